//! How many unsent bytes a connection may have: many, until all connections of a thread together
//! have too many.

use crate::limits::{UNSENT, UNSENT_SCARCE, UNSENT_TOGETHER};

/// Bytes of all connections' responses that were handed over, use memory and have not been sent.
#[derive(Debug)]
pub(crate) struct Allowance {
    together: usize,
    each: usize,
}

impl Default for Allowance {
    fn default() -> Allowance {
        Allowance { together: 0, each: UNSENT }
    }
}

impl Allowance {
    /// Unsent bytes that one connection may have.
    pub(crate) fn each(&self) -> usize {
        self.each
    }

    /// Whether all of them together have used up what the thread may have.
    pub(crate) fn is_scarce(&self) -> bool {
        self.each < UNSENT
    }

    /// Records that one connection's count changed from `before` to `now`.
    pub(crate) fn changed(&mut self, before: usize, now: usize) {
        self.together = self.together + now - before;
        self.each = if self.together < UNSENT_TOGETHER { UNSENT } else { UNSENT_SCARCE };
    }

    /// Unsent bytes of all connections.
    pub(crate) fn together(&self) -> usize {
        self.together
    }
}
