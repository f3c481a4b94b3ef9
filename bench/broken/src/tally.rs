//! What a server counts of itself.

use std::collections::HashMap;

use crate::limits::NUMBERS;

/// What a server counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Connections that it accepted.
    pub connections: u64,
    /// Requests that it read, one that came twice counted twice.
    pub requests: u64,
    /// Replies in which something was wrong.
    pub broken: u64,
}

/// Requests by the numbers that the client gave them: one that came twice counts once.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Numbers {
    /// Requests that came.
    pub asked: u64,
    /// Of these, those that were served at least once.
    pub served: u64,
}

/// Which numbers came, and which were served.
#[derive(Debug, Default)]
pub(crate) struct Tally(HashMap<u64, bool>);

impl Tally {
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
        let mut tally = Tally::default();
        for (number, served) in [(1, false), (2, true), (1, true), (2, false), (3, false)] {
            tally.note(number, served);
        }
        assert_eq!(tally.numbers(), Numbers { asked: 3, served: 2 });
    }
}
