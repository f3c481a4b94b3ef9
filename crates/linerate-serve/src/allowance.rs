//! What a connection may have on its way: much, until all of a thread together have too much.

use crate::limits::{UNSENT, UNSENT_SCARCE, UNSENT_TOGETHER};

/// Bytes of all connections' answers that were handed over, take memory and have not left.
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
    /// Bytes that one connection may have on their way.
    pub(crate) fn each(&self) -> usize {
        self.each
    }

    /// One connection had so many, and has so many now.
    pub(crate) fn changed(&mut self, before: usize, now: usize) {
        self.together = self.together + now - before;
        self.each = if self.together < UNSENT_TOGETHER { UNSENT } else { UNSENT_SCARCE };
    }

    /// Bytes of all connections.
    pub(crate) fn together(&self) -> usize {
        self.together
    }
}
