//! The server's own counters.

use std::collections::HashMap;

use crate::limits::NUMBERS;

/// Counters of a server.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct BrokenCounts {
    /// Connections accepted.
    pub connections: u64,
    /// Requests read; a repeated one counts again.
    pub requests: u64,
    /// Faulty replies.
    pub broken: u64,
}

/// Requests by the client's numbers: a repeated one counts once.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Numbers {
    /// Requests received.
    pub asked: u64,
    /// Of these, the ones served at least once.
    pub served: u64,
}

/// The numbers that arrived, and whether each was served.
#[derive(Debug, Default)]
pub(crate) struct RequestTally(HashMap<u64, bool>);

impl RequestTally {
    pub(crate) fn note(&mut self, number: u64, served: bool) {
        if self.0.len() < NUMBERS || self.0.contains_key(&number) {
            *self.0.entry(number).or_default() |= served;
        }
    }

    pub(crate) fn numbers(&self) -> Numbers {
        Numbers {
            asked: self.0.len() as u64,
            served: self.0.values().filter(|served| **served).count() as u64,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_that_comes_twice_counts_once() {
        let mut tally = RequestTally::default();
        for (number, served) in [(1, false), (2, true), (1, true), (2, false), (3, false)] {
            tally.note(number, served);
        }
        assert_eq!(tally.numbers(), Numbers { asked: 3, served: 2 });
    }
}
