//! Percentiles of a run in which some requests never left: those are later than any limit.

use super::Outcome;
use crate::histogram::Histogram;

/// A percentile of a latency.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Percentile {
    /// The latency, nanoseconds.
    pub ns: u64,
    /// A request that never left stands here: the true value is at least that.
    pub at_least: bool,
}

impl Outcome {
    /// The latency that checks and single figures mean: from due in an open loop, from sent in a
    /// closed one.
    pub fn main_latency(&self) -> &Histogram {
        self.latency.from_due.as_ref().unwrap_or(&self.latency.from_sent)
    }

    /// A percentile (0 to 100) of that latency. Unsent requests count as later than all others.
    pub fn percentile(&self, percent: f64) -> Percentile {
        let latency = self.main_latency();
        let unsent = if self.latency.from_due.is_some() { self.requests.unsent } else { 0 };
        let count = latency.count();
        if percent >= 100.0 || count == 0 {
            return Percentile { ns: latency.max_ns(), at_least: unsent > 0 };
        }
        if unsent == 0 {
            return Percentile { ns: latency.percentile_ns(percent), at_least: false };
        }
        let rank = (percent / 100.0 * (count + unsent) as f64).ceil().max(1.0);
        if rank > count as f64 {
            return Percentile { ns: latency.max_ns(), at_least: true };
        }
        // Half a rank less, so that rounding cannot step over it.
        let within = (rank - 0.5) / count as f64 * 100.0;
        Percentile { ns: latency.percentile_ns(within), at_least: false }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unsent_requests_are_later_than_all_others() {
        let mut outcome = Outcome::default();
        let mut due = Histogram::new();
        (1..=100u64).for_each(|i| due.record(i * 1_000_000, 1));
        outcome.latency.from_due = Some(due);
        let at = |outcome: &Outcome, p| {
            let found = outcome.percentile(p);
            (found.ns / 1_000_000, found.at_least)
        };
        assert_eq!((at(&outcome, 50.0), at(&outcome, 100.0)), ((50, false), (100, false)));
        outcome.requests.unsent = 100;
        assert_eq!((at(&outcome, 25.0), at(&outcome, 50.0)), ((50, false), (100, false)));
        assert_eq!((at(&outcome, 50.5), at(&outcome, 99.0)), ((100, true), (100, true)));
    }
}
