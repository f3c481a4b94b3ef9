//! Times without a response, exact under merging: of several cores or machines only a time in which
//! none of them got a response is one.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::{Outcome, Spans};
use crate::limits::QUIET_SPANS;

/// Without a response for so long, requests that fail mean that the target is out of reach.
const OUTAGE_NS: u64 = 1_000_000_000;

/// A time without a response, and what else happened in it: nanoseconds from the beginning of measuring.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct QuietSpan {
    /// The response before it.
    pub from_ns: u64,
    /// The response that ended it, or the end of the run.
    pub to_ns: u64,
    /// When requests were due or in flight.
    pub waiting: Spans,
    /// When requests failed.
    pub failed: Spans,
    /// When requests were sent that got a response in the end.
    pub answered: Spans,
}

impl QuietSpan {
    fn len_ns(&self) -> u64 {
        self.to_ns.saturating_sub(self.from_ns)
    }

    /// The part of it from one time to another.
    fn part(&self, from_ns: u64, to_ns: u64) -> Option<QuietSpan> {
        let (from_ns, to_ns) = (self.from_ns.max(from_ns), self.to_ns.min(to_ns));
        let mut whole = Spans::default();
        whole.push(from_ns, to_ns);
        (from_ns < to_ns).then(|| QuietSpan {
            from_ns,
            to_ns,
            waiting: self.waiting.intersect(&whole),
            failed: self.failed.intersect(&whole),
            answered: self.answered.intersect(&whole),
        })
    }

    /// When neither of two parts of a run got a response.
    fn both(&self, other: &QuietSpan) -> Option<QuietSpan> {
        let (from, to) = (self.from_ns.max(other.from_ns), self.to_ns.min(other.to_ns));
        let (mine, theirs) = (self.part(from, to)?, other.part(from, to)?);
        Some(QuietSpan {
            waiting: mine.waiting.union(&theirs.waiting),
            failed: mine.failed.union(&theirs.failed),
            answered: mine.answered.union(&theirs.answered),
            ..mine
        })
    }

    /// The first part of it, at least so long, in which requests failed and none was sent that got a
    /// response.
    fn outage(&self, least_ns: u64, until_ns: u64) -> Option<(u64, u64)> {
        let ends = self.answered.iter().map(|(from, to)| (*from, *to));
        let end = self.to_ns.min(until_ns);
        let mut begin = self.from_ns;
        for (from, to) in ends.chain([(end, end)]) {
            let window = self.part(begin, from.min(end)).filter(|part| part.len_ns() >= least_ns);
            if let Some(window) = window.filter(|window| !window.failed.is_empty()) {
                return Some((window.from_ns, window.to_ns));
            }
            begin = to;
        }
        None
    }
}

/// The longest times without a response.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Quiet {
    /// In their order.
    pub spans: Vec<QuietSpan>,
    /// Until when it was listened.
    pub until_ns: u64,
    /// Until when requests were sent.
    pub sending_ns: u64,
}

/// A time that is worth naming.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Silence {
    /// When it began, from the beginning of measuring.
    pub from: Duration,
    /// How long it was.
    pub lasted: Duration,
}

impl Silence {
    fn of((from, to): (u64, u64)) -> Silence {
        Silence { from: Duration::from_nanos(from), lasted: Duration::from_nanos(to - from) }
    }
}

impl Quiet {
    /// Adds one that begins after all others; of too many the shortest go.
    pub fn push(&mut self, span: QuietSpan) {
        if self.spans.len() >= QUIET_SPANS {
            let shortest = self.spans.iter().enumerate().min_by_key(|(_, kept)| kept.len_ns());
            if let Some((at, _)) = shortest.filter(|(_, kept)| kept.len_ns() <= span.len_ns()) {
                self.spans.remove(at);
            } else {
                return;
            }
        }
        self.spans.push(span);
    }

    /// The times that are common to both parts of a run: a part that finished early knows nothing of
    /// the time afterwards.
    pub fn merge(&mut self, other: &Quiet) {
        let (longer, shorter) =
            if self.until_ns >= other.until_ns { (&*self, other) } else { (other, &*self) };
        let mut merged = Quiet {
            spans: Vec::new(),
            until_ns: longer.until_ns,
            sending_ns: longer.sending_ns.max(shorter.sending_ns),
        };
        let mut rest = shorter.spans.as_slice();
        for span in &longer.spans {
            rest = &rest[rest.partition_point(|quiet| quiet.to_ns <= span.from_ns)..];
            rest.iter()
                .take_while(|quiet| quiet.from_ns < span.to_ns)
                .filter_map(|quiet| span.both(quiet))
                .for_each(|both| merged.extend(both));
            span.part(shorter.until_ns, u64::MAX).into_iter().for_each(|alone| merged.extend(alone));
        }
        *self = merged;
    }

    /// Adds one that may continue the last.
    fn extend(&mut self, span: QuietSpan) {
        match self.spans.last_mut() {
            Some(last) if last.to_ns == span.from_ns => {
                last.to_ns = span.to_ns;
                last.waiting = last.waiting.union(&span.waiting);
                last.failed = last.failed.union(&span.failed);
                last.answered = last.answered.union(&span.answered);
            }
            _ => self.push(span),
        }
    }
}

impl Outcome {
    /// The longest time without a response while requests were due or in flight.
    pub fn silence(&self) -> Option<Silence> {
        let spans = self.quiet.iter().flat_map(|quiet| &quiet.spans);
        let waited = spans.flat_map(|span| span.waiting.iter());
        waited.max_by_key(|(from, to)| to - from).map(|span| Silence::of(*span))
    }

    /// The first time in which no response arrived, requests failed, and none that was sent in it got a
    /// response, whatever became of the attempts to connect: at least a second, and longer than the
    /// slowest good response.
    pub fn outage(&self) -> Option<Silence> {
        let quiet = self.quiet.as_ref()?;
        let least = OUTAGE_NS.max(self.latency.sent().good.max_ns());
        quiet.spans.iter().find_map(|span| span.outage(least, quiet.sending_ns)).map(Silence::of)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: u64 = 1_000_000_000;

    fn spans(of: &[(u64, u64)]) -> Spans {
        let mut spans = Spans::default();
        of.iter().for_each(|(from, to)| spans.push(*from, *to));
        spans
    }

    fn quiet(from: u64, to: u64, failed: &[(u64, u64)], answered: &[(u64, u64)]) -> QuietSpan {
        let waiting = spans(&[(from, to)]);
        QuietSpan { from_ns: from, to_ns: to, waiting, failed: spans(failed), answered: spans(answered) }
    }

    fn outcome(spans: Vec<QuietSpan>) -> Outcome {
        let quiet = Quiet { spans, until_ns: 10 * SECOND, sending_ns: 10 * SECOND };
        Outcome { quiet: Some(quiet), ..Outcome::default() }
    }

    #[test]
    fn an_outage_needs_a_failure_and_no_request_that_was_answered() {
        let s = SECOND;
        for (span, expected) in [
            (quiet(s, 3 * s, &[(2 * s, 2 * s + 1)], &[]), Some((s, 3 * s))),
            (quiet(s, 3 * s, &[], &[]), None),
            (quiet(s, 2 * s - 1, &[(s, s + 1)], &[]), None),
            // The request that ended it was sent in it: what was before counts.
            (quiet(s, 3 * s, &[(2 * s, 2 * s + 1)], &[(2 * s + s / 2, 3 * s)]), Some((s, 2 * s + s / 2))),
            // A server that stands still for two seconds and then answers all: one connection broke.
            (quiet(s, 3 * s, &[(2 * s, 2 * s + 1)], &[(s, 3 * s)]), None),
            (quiet(s, 3 * s, &[(s + 1, s + 2)], &[(s + s / 2, s + s / 2 + 1)]), None),
        ] {
            let found = outcome(vec![span.clone()]).outage();
            assert_eq!(found, expected.map(Silence::of), "{span:?}");
        }
        let mut slow = outcome(vec![quiet(s, 3 * s, &[(2 * s, 2 * s + 1)], &[])]);
        slow.latency.from_sent.record(2 * s + s / 2, 1);
        assert_eq!(slow.outage(), None, "responses may take as long");
        slow.quiet.as_mut().unwrap().sending_ns = s;
        slow.latency = Default::default();
        assert_eq!(slow.outage(), None, "nothing was sent in it");
    }

    #[test]
    fn the_longest_silence_is_one_in_which_something_was_waited_for() {
        let mut idle = quiet(0, 8 * SECOND, &[], &[]);
        idle.waiting = spans(&[(7 * SECOND, 8 * SECOND)]);
        let outcome = outcome(vec![idle, quiet(8 * SECOND, 10 * SECOND, &[], &[])]);
        assert_eq!(outcome.silence(), Some(Silence::of((8 * SECOND, 10 * SECOND))));
        assert_eq!(Outcome::default().silence(), None);
    }

    /// One core's requests fail, another's wait: what they have in common counts, in any order.
    #[test]
    fn parts_of_a_run_are_silent_together() {
        let s = SECOND;
        let part = |of: &[QuietSpan], until: u64| Quiet {
            spans: of.to_vec(),
            until_ns: until * s,
            sending_ns: until * s,
        };
        let a = part(&[quiet(0, 2 * s, &[], &[]), quiet(4 * s, 9 * s, &[(6 * s, 6 * s + 1)], &[])], 10);
        let b = part(&[quiet(s, 5 * s, &[(s, s + 1)], &[])], 6);
        for (mut one, other) in [(a.clone(), &b), (b.clone(), &a)] {
            one.merge(other);
            let found: Vec<_> = one.spans.iter().map(|q| (q.from_ns / s, q.to_ns / s)).collect();
            assert_eq!(found, [(1, 2), (4, 5), (6, 9)]);
            assert_eq!(one.spans[2].failed, spans(&[(6 * s, 6 * s + 1)]));
            assert_eq!(one.spans[0].failed, spans(&[(s, s + 1)]));
            assert_eq!((one.until_ns, one.sending_ns), (10 * s, 10 * s));
        }
        let mut ended = part(&[quiet(0, 3 * s, &[], &[])], 3);
        ended.merge(&part(&[quiet(s, 5 * s, &[], &[])], 5));
        let found: Vec<_> = ended.spans.iter().map(|q| (q.from_ns / s, q.to_ns / s)).collect();
        assert_eq!(found, [(1, 5)], "a part that has ended has no say later");
    }

    #[test]
    fn of_too_many_the_shortest_go() {
        let mut all = Quiet::default();
        for i in 0..2 * QUIET_SPANS as u64 {
            all.push(quiet(i * SECOND, i * SECOND + 100 + i % 7, &[], &[]));
        }
        assert_eq!(all.spans.len(), QUIET_SPANS);
        assert!(all.spans.iter().filter(|span| span.len_ns() == 106).count() > QUIET_SPANS / 4);
    }
}
