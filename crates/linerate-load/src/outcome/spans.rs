//! Times in which something was so, exact under merging.

use std::cmp::Ordering;
use std::time::Duration;

use serde::{Deserialize, Serialize};

/// Disjoint spans of time in ascending order, nanoseconds from the beginning of measuring.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Spans(Vec<(u64, u64)>);

/// Spans kept. Reason: a server that comes and goes for a week must not grow memory. Further spans
/// extend the last one.
const MOST: usize = 4096;

impl Spans {
    /// Adds a span that begins after all others have ended.
    pub fn push(&mut self, from_ns: u64, to_ns: u64) {
        if from_ns >= to_ns {
            return;
        }
        let full = self.0.len() >= MOST;
        match self.0.last_mut() {
            Some(last) if last.1 >= from_ns || full => last.1 = last.1.max(to_ns),
            _ => self.0.push((from_ns, to_ns)),
        }
    }

    /// Adds a span anywhere; those as close to one another as that become one.
    pub fn insert(&mut self, from_ns: u64, to_ns: u64, close_ns: u64) {
        let at = self.0.partition_point(|span| span.1.saturating_add(close_ns) < from_ns);
        let is_full = self.0.len() >= MOST;
        match self.0.get_mut(at) {
            Some(span) if is_full || span.0 <= to_ns.saturating_add(close_ns) => {
                *span = (span.0.min(from_ns), span.1.max(to_ns));
                let end = span.1.saturating_add(close_ns);
                if let Some(next) = self.0.get(at + 1).copied().filter(|next| next.0 <= end) {
                    self.0[at].1 = self.0[at].1.max(next.1);
                    self.0.remove(at + 1);
                }
            }
            None if is_full => self.push(from_ns, to_ns),
            _ => self.0.insert(at, (from_ns, to_ns)),
        }
    }

    /// All of them, in their order.
    pub fn iter(&self) -> impl Iterator<Item = &(u64, u64)> {
        self.0.iter()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// When both were so: a server that one core reaches is reachable.
    pub fn intersect(&self, other: &Spans) -> Spans {
        let (mut mine, mut theirs) = (self.0.as_slice(), other.0.as_slice());
        let mut both = Spans::default();
        while let (Some(a), Some(b)) = (mine.first(), theirs.first()) {
            both.push(a.0.max(b.0), a.1.min(b.1));
            if a.1 <= b.1 {
                mine = &mine[1..];
            } else {
                theirs = &theirs[1..];
            }
        }
        both
    }

    /// When at least one was so.
    pub fn union(&self, other: &Spans) -> Spans {
        let mut all: Vec<_> = self.0.iter().chain(&other.0).copied().collect();
        all.sort_unstable();
        let mut union = Spans::default();
        all.into_iter().for_each(|(from, to)| union.push(from, to));
        union
    }

    /// All of them together.
    pub fn total(&self) -> Duration {
        Duration::from_nanos(self.0.iter().map(|(from, to)| to - from).sum())
    }

    /// The longest span.
    pub fn longest(&self) -> Duration {
        Duration::from_nanos(self.0.iter().map(|(from, to)| to - from).max().unwrap_or(0))
    }
}

/// When no connection was open and none could be opened.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Down {
    /// From when to when.
    pub spans: Spans,
    /// Until when that was looked at, nanoseconds from the beginning of measuring.
    pub until_ns: u64,
    /// So it was at the end, and requests failed for it.
    pub at_end: bool,
    /// Times of a second or more in which neither a response nor a connection came.
    pub quiet: Spans,
    /// Times in which attempts to connect failed.
    pub failing: Spans,
}

impl Down {
    /// Whether there was a second in which every attempt to connect failed, and no response came:
    /// whatever connections were open.
    pub fn had_a_bad_second(&self) -> bool {
        const SECOND: u64 = 1_000_000_000;
        let bad = |quiet: &(u64, u64)| {
            quiet.1 - quiet.0 >= SECOND && self.failing.0.iter().any(|f| f.0 < quiet.1 && quiet.0 < f.1)
        };
        self.quiet.0.iter().any(bad)
    }

    /// The spans that are common to both parts of a run: while one of them reaches the server, the
    /// server is not down.
    pub fn merge(&mut self, other: &Down) {
        let both = self.until_ns.min(other.until_ns);
        // A part that finished early knows nothing about the time afterwards.
        let later = self.until_ns > other.until_ns;
        let common = |mine: &Spans, theirs: &Spans| {
            let mut common = mine.intersect(theirs);
            let longer = if later { mine } else { theirs };
            longer.0.iter().for_each(|(from, to)| common.push((*from).max(both), *to));
            common
        };
        let (spans, quiet) = (common(&self.spans, &other.spans), common(&self.quiet, &other.quiet));
        (self.quiet, self.failing) = (quiet, self.failing.union(&other.failing));
        self.at_end = match self.until_ns.cmp(&other.until_ns) {
            Ordering::Less => other.at_end,
            Ordering::Equal => self.at_end && other.at_end,
            Ordering::Greater => self.at_end,
        };
        self.spans = spans;
        self.until_ns = self.until_ns.max(other.until_ns);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn spans(of: &[(u64, u64)]) -> Spans {
        let mut spans = Spans::default();
        of.iter().for_each(|(from, to)| spans.push(*from, *to));
        spans
    }

    #[test]
    fn spans_are_inserted_in_any_order() {
        let mut all = Spans::default();
        for at in [50, 10, 90, 52, 30, 12] {
            all.insert(at, at + 1, 5);
        }
        assert_eq!(all, spans(&[(10, 13), (30, 31), (50, 53), (90, 91)]));
        all.insert(34, 46, 5);
        assert_eq!(all, spans(&[(10, 13), (30, 53), (90, 91)]));
        let mut many = Spans::default();
        (0..10_000u64).rev().for_each(|i| many.insert(i * 10, i * 10 + 1, 0));
        assert_eq!(many.0.len(), MOST);
        assert!(many.0.is_sorted_by(|a, b| a.1 < b.0) && many.0[0].0 == 0);
    }

    #[test]
    fn only_what_both_saw_stays() {
        let a = spans(&[(0, 10), (20, 30), (40, 50)]);
        let b = spans(&[(5, 25), (45, 60)]);
        let both = spans(&[(5, 10), (20, 25), (45, 50)]);
        assert_eq!(a.intersect(&b), both);
        assert_eq!(b.intersect(&a), both);
        assert_eq!((both.total().as_nanos(), both.longest().as_nanos()), (15, 5));
        assert_eq!(a.intersect(&Spans::default()), Spans::default());
    }

    #[test]
    fn the_order_of_merging_does_not_matter() {
        let (a, b, c) = (spans(&[(0, 10), (12, 40)]), spans(&[(3, 30)]), spans(&[(1, 5), (8, 20)]));
        assert_eq!(a.intersect(&b).intersect(&c), a.intersect(&b.intersect(&c)));
    }

    #[test]
    fn a_part_that_ended_earlier_has_no_say_later() {
        let down = |of, until_ns, at_end| Down { spans: spans(of), until_ns, at_end, ..Down::default() };
        let (a, b) = (down(&[(10, 20)], 20, false), down(&[(15, 50)], 50, true));
        for (mut one, other) in [(a.clone(), &b), (b.clone(), &a)] {
            one.merge(other);
            assert_eq!(one, down(&[(15, 50)], 50, true));
        }
        let mut same = down(&[(0, 5)], 5, true);
        same.merge(&down(&[], 5, false));
        assert_eq!(same, down(&[], 5, false));
    }

    /// One core's attempts fail while another's connections are silent: together that is a bad
    /// second.
    #[test]
    fn a_bad_second_is_that_of_all_parts() {
        let second = 1_000_000_000;
        let part = |quiet: &[(u64, u64)], failing: &[(u64, u64)]| Down {
            until_ns: 4 * second,
            quiet: spans(quiet),
            failing: spans(failing),
            ..Down::default()
        };
        let silent = part(&[(second / 2, 4 * second)], &[]);
        for (quiet, bad) in [((second, 3 * second), true), ((3 * second, 4 * second), false)] {
            let mut one = part(&[quiet], &[(2 * second, 2 * second + 1)]);
            one.merge(&silent);
            assert_eq!(one.had_a_bad_second(), bad);
        }
        assert!(!silent.had_a_bad_second());
    }

    #[test]
    fn spans_that_touch_are_one_and_their_number_has_a_limit() {
        assert_eq!(spans(&[(0, 5), (5, 7), (7, 7)]), spans(&[(0, 7)]));
        let many: Vec<_> = (0..10_000).map(|i| (i * 10, i * 10 + 1)).collect();
        assert_eq!(spans(&many).0.len(), MOST);
    }
}
