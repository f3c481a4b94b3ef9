//! Calls that wait for a place on a pipe.

use std::collections::VecDeque;

use linerate_net::Conn;

/// Numbers of calls, in the order they wait. Some of the calls may have ended meanwhile.
#[derive(Debug, Default)]
pub(super) struct Queues {
    /// Those that may follow others on a pipe.
    pub(super) usual: VecDeque<u64>,
    /// Those that must be alone on a pipe.
    pub(super) alone: VecDeque<u64>,
    /// Those of both that have a body, and came to a connection whose window holds bodies up.
    pub(super) held_up: VecDeque<u64>,
}

impl Queues {
    /// Each of them.
    pub(super) fn all_mut(&mut self) -> [&mut VecDeque<u64>; 3] {
        [&mut self.usual, &mut self.alone, &mut self.held_up]
    }

    pub(super) fn len(&self) -> usize {
        self.usual.len() + self.alone.len() + self.held_up.len()
    }
}

/// A pipe with room.
#[derive(Clone, Copy, Debug)]
pub(super) struct Candidate {
    pub(super) slow: bool,
    pub(super) in_flight: u32,
    /// The number of the filling that gave it requests last.
    pub(super) filled: u64,
    pub(super) conn: Conn,
}
