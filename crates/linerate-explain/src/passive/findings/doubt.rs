//! What the capture lacks, and how much that makes its findings doubtful.

use super::super::Marks;
use super::super::observation::Observation;

/// Packets that the capture lacks, as far as it is known: dropped by the kernel, or acknowledged
/// and not seen.
pub(in crate::passive) fn missing(seen: &Observation) -> u64 {
    seen.packets.dropped.max(seen.marks.of(Marks::ACK_LOST_SEGMENT))
}

/// One in so many packets is missing: then no cause is more than possible.
const MANY: u64 = 200;

/// So many are missing that what was seen may be due to that.
pub(in crate::passive) fn is_wide(seen: &Observation) -> bool {
    let missing = missing(seen);
    missing > 0 && missing.saturating_mul(MANY) >= seen.packets.tcp
}
