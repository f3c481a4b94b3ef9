//! A queue of delayed items: they leave by due time, and in insertion order among equal times.

use std::cmp::Ordering;
use std::collections::BinaryHeap;

use crate::Time;

struct LatePacket<T> {
    at: Time,
    order: u64,
    what: T,
}

impl<T> LatePacket<T> {
    fn rank(&self) -> (Time, u64) {
        (self.at, self.order)
    }
}

impl<T> PartialEq for LatePacket<T> {
    fn eq(&self, other: &Self) -> bool {
        self.rank() == other.rank()
    }
}

impl<T> Eq for LatePacket<T> {}

impl<T> PartialOrd for LatePacket<T> {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl<T> Ord for LatePacket<T> {
    /// Reversed, so that the heap's greatest item is the earliest.
    fn cmp(&self, other: &Self) -> Ordering {
        other.rank().cmp(&self.rank())
    }
}

pub(super) struct Late<T> {
    heap: BinaryHeap<LatePacket<T>>,
    order: u64,
}

impl<T> Default for Late<T> {
    fn default() -> Self {
        Late { heap: BinaryHeap::new(), order: 0 }
    }
}

impl<T> Late<T> {
    pub(super) fn push(&mut self, at: Time, what: T) {
        self.order += 1;
        self.heap.push(LatePacket { at, order: self.order, what });
    }

    /// The due time of the first item.
    pub(super) fn next(&self) -> Option<Time> {
        self.heap.peek().map(|entry| entry.at)
    }

    /// Removes the first item if it is due.
    pub(super) fn pop(&mut self, now: Time) -> Option<T> {
        if self.next()? > now {
            return None;
        }
        self.heap.pop().map(|entry| entry.what)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_decide_and_then_the_order_of_arrival() {
        let mut late = Late::default();
        let at = Time::from_nanos;
        for (when, what) in [(5, 'c'), (3, 'a'), (5, 'd'), (4, 'b')] {
            late.push(at(when), what);
        }
        assert_eq!(late.next(), Some(at(3)));
        assert_eq!(late.pop(at(2)), None);
        let out: String = std::iter::from_fn(|| late.pop(at(9))).collect();
        assert_eq!(out, "abcd");
        assert_eq!(late.next(), None);
    }
}
