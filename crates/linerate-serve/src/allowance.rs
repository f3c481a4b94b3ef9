//! What a connection may have on its way: much, until all of a thread together have too much.

use std::cell::Cell;

use crate::limits::{UNSENT, UNSENT_SCARCE, UNSENT_TOGETHER};

thread_local! {
    /// The allowance of the server whose turn it is on this thread.
    static CURRENT: Cell<usize> = const { Cell::new(UNSENT) };
}

/// For bodies that are read piece by piece: how much of them is of use at once.
pub(crate) fn current() -> usize {
    CURRENT.get()
}

/// Bytes of all connections' answers that were handed over and have not left.
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
        let each = if self.together < UNSENT_TOGETHER { UNSENT } else { UNSENT_SCARCE };
        if each != self.each {
            self.each = each;
            self.enter();
        }
    }

    /// Bytes of all connections.
    #[cfg(test)]
    pub(crate) fn together(&self) -> usize {
        self.together
    }

    /// Makes this the one that [`current`] tells of.
    pub(crate) fn enter(&self) {
        CURRENT.set(self.each);
    }
}
