//! Percentiles in which requests without a good response lie beyond every limit.

use super::{FlowFigures, Latency, NamedFigures, Outcome, Snapshot};
use crate::histogram::Histogram;

/// A percentile of a latency.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Percentile {
    /// The latency, nanoseconds.
    pub ns: u64,
    /// A request without a good response stands here: the true value is at least that.
    pub at_least: bool,
}

/// A latency in which requests without a good response (failed, unknown, bad, never sent) rank
/// behind all others: none of them makes a percentile smaller.
///
/// ```
/// use linerate_load::histogram::Histogram;
/// use linerate_load::outcome::Ranked;
///
/// let (mut good, mut waited) = (Histogram::new(), Histogram::new());
/// good.record(1_000_000, 90); // 90 good responses after 1 ms
/// waited.record(200_000, 10); // 10 times a 503 after 0.2 ms
/// let ranked = Ranked { good: &good, waited: &waited };
/// assert!(!ranked.percentile(50.0).at_least);
/// assert!(ranked.percentile(99.0).at_least);
/// ```
#[derive(Clone, Copy, Debug)]
pub struct Ranked<'a> {
    /// Latencies of good responses.
    pub good: &'a Histogram,
    /// How long each of the others was waited for.
    pub waited: &'a Histogram,
}

impl Ranked<'_> {
    /// All requests that rank.
    pub fn count(self) -> u64 {
        self.good.count() + self.waited.count()
    }

    /// Whether nothing was recorded.
    pub fn is_empty(self) -> bool {
        self.count() == 0
    }

    /// The bound of rows that a request without a good response touches: the longest that one was
    /// waited for. Rows ascend, so it is never below the latency of a good response.
    fn bound_ns(self) -> u64 {
        self.waited.max_ns().max(self.good.max_ns())
    }

    /// A percentile (0 to 100); 0 when empty.
    pub fn percentile(self, percent: f64) -> Percentile {
        let (good, others) = (self.good.count(), self.waited.count());
        if percent >= 100.0 || good == 0 {
            return Percentile { ns: self.bound_ns(), at_least: others > 0 };
        }
        if others == 0 {
            return Percentile { ns: self.good.percentile_ns(percent), at_least: false };
        }
        let rank = (percent / 100.0 * (good + others) as f64).ceil().max(1.0);
        if rank > good as f64 {
            return Percentile { ns: self.bound_ns(), at_least: true };
        }
        // Half a rank less, so that rounding cannot step over it.
        let within = (rank - 0.5) / good as f64 * 100.0;
        Percentile { ns: self.good.percentile_ns(within), at_least: false }
    }

    /// The largest.
    pub fn max(self) -> Percentile {
        self.percentile(100.0)
    }

    /// The mean, nanoseconds, and whether the true one is at least that: requests without a good
    /// response count with the time that they were waited for, and never make it smaller.
    pub fn mean_ns(self) -> (f64, bool) {
        let (good, others) = (self.good.count() as f64, self.waited.count() as f64);
        let of_good = self.good.mean_ns();
        if others == 0.0 {
            return (of_good, false);
        }
        let of_all = (of_good * good + self.waited.mean_ns() * others) / (good + others);
        (of_all.max(of_good), true)
    }
}

impl Latency {
    /// The latency that checks and single figures mean: from due in an open loop, from sent in a
    /// closed one.
    pub fn main(&self) -> Ranked<'_> {
        Ranked { good: self.from_due.as_ref().unwrap_or(&self.from_sent), waited: &self.waited }
    }

    /// The latency from when requests were sent.
    pub fn sent(&self) -> Ranked<'_> {
        let waited = self.waited_from_sent.as_ref().unwrap_or(&self.waited);
        Ranked { good: &self.from_sent, waited }
    }
}

impl Outcome {
    /// Latencies of good responses, in the sense of [`Latency::main`].
    pub fn main_latency(&self) -> &Histogram {
        self.latency.main().good
    }

    /// A percentile (0 to 100) of [`Latency::main`].
    pub fn percentile(&self, percent: f64) -> Percentile {
        self.latency.main().percentile(percent)
    }
}

impl Snapshot {
    /// The latency so far.
    pub fn ranked(&self) -> Ranked<'_> {
        Ranked { good: &self.latency, waited: &self.waited }
    }
}

impl FlowFigures {
    /// How long its iterations took: those that failed rank behind all others.
    pub fn ranked(&self) -> Ranked<'_> {
        Ranked { good: &self.duration, waited: &self.waited }
    }
}

impl NamedFigures {
    /// Its latency.
    pub fn ranked(&self) -> Ranked<'_> {
        Ranked { good: &self.latency, waited: &self.waited }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_without_a_good_response_are_later_than_all_others() {
        let mut outcome = Outcome::default();
        let mut due = Histogram::new();
        (1..=100u64).for_each(|i| due.record(i * 1_000_000, 1));
        outcome.latency.from_due = Some(due);
        let at = |outcome: &Outcome, p| {
            let found = outcome.percentile(p);
            (found.ns / 1_000_000, found.at_least)
        };
        assert_eq!((at(&outcome, 50.0), at(&outcome, 100.0)), ((50, false), (100, false)));
        // Quick errors: the bound is not below what good responses took.
        outcome.latency.waited.record(1_000_000, 100);
        assert_eq!((at(&outcome, 25.0), at(&outcome, 50.0)), ((50, false), (100, false)));
        assert_eq!((at(&outcome, 50.5), at(&outcome, 99.0)), ((100, true), (100, true)));
        outcome.latency.waited.record(3_000_000_000, 1);
        assert_eq!((at(&outcome, 25.0), at(&outcome, 99.0)), ((51, false), (3001, true)));
    }

    #[test]
    fn without_a_good_response_every_row_is_a_bound() {
        let (good, mut waited) = (Histogram::new(), Histogram::new());
        waited.record(2_000, 7);
        let ranked = Ranked { good: &good, waited: &waited };
        assert_eq!((ranked.count(), ranked.percentile(1.0).at_least), (7, true));
        assert_eq!(ranked.percentile(1.0).ns, waited.max_ns());
        let nothing = Ranked { good: &good, waited: &good };
        assert!(nothing.is_empty() && !nothing.max().at_least && nothing.max().ns == 0);
    }

    #[test]
    fn no_request_without_a_good_response_makes_the_mean_smaller() {
        let (mut good, mut waited) = (Histogram::new(), Histogram::new());
        good.record(1_000_000, 10);
        let mean = |good: &Histogram, waited: &Histogram| {
            let (ns, at_least) = Ranked { good, waited }.mean_ns();
            ((ns / 1e5).round() as u64, at_least)
        };
        assert_eq!(mean(&good, &waited), (10, false));
        waited.record(1_000, 10);
        assert_eq!(mean(&good, &waited), (10, true));
        waited.record(10_000_000, 10);
        assert_eq!(mean(&good, &waited).0, 37);
    }
}
