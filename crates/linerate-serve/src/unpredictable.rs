//! Numbers that nobody can guess.

use std::hash::{BuildHasher, Hasher, RandomState};

/// 64 bits from the standard library's source of hash keys, which are random for each process and differ
/// from call to call.
pub(crate) fn unpredictable() -> u64 {
    RandomState::new().build_hasher().finish()
}
