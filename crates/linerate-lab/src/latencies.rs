//! Latencies of several runs as one distribution in which each run weighs the same. Plain pooling
//! hides a run that stalled, because few responses come in it.

use linerate_load::Outcome;
use linerate_load::histogram::{Histogram, WrongHistogram};
use linerate_load::outcome::Ranked;

use crate::limits::BEYOND;

/// The latencies of one run.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RunLatencies {
    /// Nanoseconds and how many responses took that long, ascending.
    counts: Vec<(u64, u64)>,
    /// How long each request without a good response was waited for, in the same way. They count as
    /// later than any limit.
    waited: Vec<(u64, u64)>,
}

impl RunLatencies {
    /// Those of a run.
    pub fn of(outcome: &Outcome) -> RunLatencies {
        let Ranked { good, waited } = outcome.latency.main();
        RunLatencies::new(good, waited)
    }

    /// From the latencies of good responses, and from how long each other request was waited for.
    pub fn new(good: &Histogram, waited: &Histogram) -> RunLatencies {
        RunLatencies { counts: good.iter_recorded().collect(), waited: waited.iter_recorded().collect() }
    }

    /// Whether there is nothing to take a percentile of.
    pub fn is_empty(&self) -> bool {
        self.requests() == 0
    }

    /// Both as HdrHistogram's own form, "V2 deflate".
    pub fn to_bytes(&self) -> [Vec<u8>; 2] {
        [&self.counts, &self.waited].map(|counts| {
            let mut histogram = Histogram::new();
            counts.iter().for_each(|(nanos, n)| histogram.record(*nanos, *n));
            histogram.to_bytes()
        })
    }

    /// Reads [`to_bytes`](RunLatencies::to_bytes).
    pub fn from_bytes([good, waited]: [&[u8]; 2]) -> Result<RunLatencies, WrongHistogram> {
        Ok(RunLatencies::new(&Histogram::from_bytes(good)?, &Histogram::from_bytes(waited)?))
    }

    /// The shortest response, microseconds; `None` without one.
    pub fn least_us(&self) -> Option<f64> {
        self.counts.first().map(|(nanos, _)| *nanos as f64 / 1e3)
    }

    /// Requests that took longer than that, and all of them. Those without a good response did.
    pub fn longer_than(&self, us: f64) -> (u64, u64) {
        let sooner: u64 =
            self.counts.iter().filter(|(nanos, _)| *nanos as f64 / 1e3 <= us).map(|(_, n)| n).sum();
        (self.requests() - sooner, self.requests())
    }

    fn responses(&self) -> u64 {
        self.counts.iter().map(|(_, n)| n).sum()
    }

    fn requests(&self) -> u64 {
        self.responses() + self.waited.iter().map(|(_, n)| n).sum::<u64>()
    }

    /// The mean, microseconds. Requests without a good response count with the time that they were
    /// waited for, and never make it smaller.
    fn mean_us(&self) -> Option<f64> {
        let sum = |of: &[(u64, u64)]| of.iter().map(|(nanos, n)| *nanos as f64 * *n as f64).sum::<f64>();
        let good = sum(&self.counts) / self.responses() as f64;
        let all = (sum(&self.counts) + sum(&self.waited)) / self.requests() as f64;
        (!self.counts.is_empty()).then(|| all.max(good) / 1e3)
    }

    /// The longest that a request was waited for, microseconds: the least that one without a good
    /// response can be meant to take.
    pub fn longest_us(&self) -> f64 {
        let waited = self.waited.last().map_or(0, |(nanos, _)| *nanos);
        self.longest().max(waited) as f64 / 1e3
    }

    /// The longest response, nanoseconds.
    fn longest(&self) -> u64 {
        self.counts.last().map_or(0, |(nanos, _)| *nanos)
    }

    /// The first latency that at least this share of the requests has or stays below; the longest
    /// one where that is later than any limit.
    fn reaches(&self, share: f64) -> u64 {
        let wanted = share * self.requests() as f64 - 1e-9;
        let mut sum = 0;
        let found = self.counts.iter().find(|(_, n)| {
            sum += n;
            sum as f64 >= wanted
        });
        found.map_or(self.longest(), |(nanos, _)| *nanos)
    }
}

/// What of the latencies is looked at.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Statistic {
    /// The mean of the responses.
    Mean,
    /// A percentile of all requests, as a share of 1.
    Percentile(f64),
}

impl Statistic {
    /// The one that a metric is.
    pub fn of(metric: &str) -> Option<Statistic> {
        match metric {
            "mean_us" => Some(Statistic::Mean),
            "p50_us" => Some(Statistic::Percentile(0.5)),
            "p90_us" => Some(Statistic::Percentile(0.9)),
            "p99_us" => Some(Statistic::Percentile(0.99)),
            "p999_us" => Some(Statistic::Percentile(0.999)),
            _ => None,
        }
    }

    /// Whether these runs of a side say it. Enough requests must be beyond a percentile, of all runs
    /// together, and no single one may decide it: in a run with few responses each weighs more.
    pub fn is_said_by(self, runs: &[&RunLatencies]) -> bool {
        let Statistic::Percentile(share) = self else {
            return !runs.is_empty() && runs.iter().all(|run| run.responses() > 0);
        };
        let beyond = |requests: u64| requests as f64 * (1.0 - share) + 1e-6;
        let fewest = runs.iter().map(|r| r.requests()).min().unwrap_or(0);
        let all = runs.iter().map(|r| r.requests()).sum();
        beyond(all) >= BEYOND && beyond(fewest * runs.len() as u64) >= 1.0
    }
}

/// A statistic of several runs.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct RunStatistic {
    /// Microseconds.
    pub us: f64,
    /// Requests that are later than any limit stand here: the true value is at least that.
    pub at_least: bool,
}

/// A statistic of runs that may weigh more or less, prepared for many choices of weights.
#[derive(Clone, Debug)]
pub struct Mixed {
    statistic: Statistic,
    /// Microseconds at which the shares were taken, ascending: a percentile of all runs together
    /// lies between the lowest and the highest of single runs.
    grid: Vec<f64>,
    /// The longest response of all.
    longest_us: f64,
    /// Run by run, the share of requests at or below each of these; for a mean, the mean alone.
    shares: Vec<Vec<f64>>,
    /// Run by run, whether it had requests without a good response.
    has_waited: Vec<bool>,
}

impl Mixed {
    /// Of these runs.
    pub fn of(statistic: Statistic, runs: &[&RunLatencies]) -> Mixed {
        let (grid, shares) = match statistic {
            Statistic::Mean => {
                (Vec::new(), runs.iter().map(|run| vec![run.mean_us().unwrap_or(0.0)]).collect())
            }
            Statistic::Percentile(share) => Mixed::percentile(share, runs),
        };
        let has_waited = runs.iter().map(|run| !run.waited.is_empty()).collect();
        Mixed { statistic, grid, longest_us: longest_us(runs), shares, has_waited }
    }

    /// The grid and the shares of each run at it.
    fn percentile(share: f64, runs: &[&RunLatencies]) -> (Vec<f64>, Vec<Vec<f64>>) {
        let at = || runs.iter().map(|r| r.reaches(share));
        let (low, high) = (at().min().unwrap_or(0), at().max().unwrap_or(0));
        let within = |nanos: &u64| (low..=high).contains(nanos);
        let mut grid: Vec<u64> =
            runs.iter().flat_map(|r| r.counts.iter().map(|(nanos, _)| *nanos)).filter(within).collect();
        grid.sort_unstable();
        grid.dedup();
        let shares = runs.iter().map(|run| {
            let all = run.requests().max(1) as f64;
            let (mut next, mut sum) = (run.counts.iter().peekable(), 0);
            let mut upto = |nanos: u64| {
                while let Some((_, n)) = next.next_if(|(at, _)| *at <= nanos) {
                    sum += n;
                }
                sum as f64 / all
            };
            grid.iter().map(|nanos| upto(*nanos)).collect()
        });
        let shares = shares.collect();
        (grid.into_iter().map(|nanos| nanos as f64 / 1e3).collect(), shares)
    }

    /// The statistic where run `i` weighs `weights[i]`.
    pub fn weighed(&self, weights: &[u32]) -> RunStatistic {
        let all: f64 = weights.iter().map(|w| f64::from(*w)).sum();
        let mean = |at: usize| {
            let parts = weights.iter().zip(&self.shares).filter(|(w, _)| **w > 0);
            parts.map(|(w, shares)| f64::from(*w) * shares[at]).sum::<f64>() / all
        };
        let Statistic::Percentile(share) = self.statistic else {
            let at_least = weights.iter().zip(&self.has_waited).any(|(w, waited)| *w > 0 && *waited);
            return RunStatistic { us: mean(0), at_least };
        };
        let (mut low, mut high) = (0, self.grid.len());
        while low < high {
            let middle = low.midpoint(high);
            if mean(middle) < share - 1e-9 {
                low = middle + 1;
            } else {
                high = middle;
            }
        }
        let found = self.grid.get(low).copied();
        RunStatistic { us: found.unwrap_or(self.longest_us), at_least: found.is_none() }
    }

    /// The statistic where all weigh the same.
    pub fn all(&self) -> RunStatistic {
        self.weighed(&vec![1; self.shares.len()])
    }
}

fn longest_us(runs: &[&RunLatencies]) -> f64 {
    runs.iter().map(|r| r.longest()).max().unwrap_or(0) as f64 / 1e3
}

#[cfg(test)]
mod tests {
    use super::*;

    /// So many responses of so many milliseconds each.
    fn latencies(counts: &[(u64, u64)], beyond: u64) -> RunLatencies {
        let (mut histogram, mut waited) = (Histogram::new(), Histogram::new());
        counts.iter().for_each(|(ms, n)| histogram.record(ms * 1_000_000, *n));
        waited.record(1_000, beyond);
        RunLatencies::new(&histogram, &waited)
    }

    fn at(percent: f64, runs: &[RunLatencies]) -> Option<(f64, bool)> {
        let runs: Vec<&RunLatencies> = runs.iter().collect();
        let statistic = Statistic::Percentile(percent / 100.0);
        let found = Mixed::of(statistic, &runs).all();
        statistic.is_said_by(&runs).then_some(((found.us / 1e3).round(), found.at_least))
    }

    #[test]
    fn a_run_that_stalled_weighs_as_much_as_one_with_many_responses() {
        let (fast, stalled) = (latencies(&[(1, 100_000)], 0), latencies(&[(500, 40)], 0));
        let half = [fast.clone(), stalled.clone()];
        assert_eq!(at(50.0, &half), Some((1.0, false)));
        assert_eq!(at(51.0, &half), Some((500.0, false)));
        assert_eq!(at(90.0, &half), Some((500.0, false)));
        // Pooled, p99 would be 1 ms.
        assert_eq!(at(99.0, &[fast.clone(), fast.clone(), stalled.clone()]), Some((500.0, false)));
        assert_eq!(at(50.0, &[fast.clone(), fast.clone(), stalled]), Some((1.0, false)));
        let runs: Vec<&RunLatencies> = half.iter().collect();
        let mean = Mixed::of(Statistic::Mean, &runs);
        assert!((mean.all().us / 1e3 - 250.5).abs() < 0.5, "{mean:?}");
        assert!((mean.weighed(&[1, 0]).us / 1e3 - 1.0).abs() < 0.01);
    }

    #[test]
    fn a_percentile_of_one_run_is_that_of_its_histogram() {
        let mut histogram = Histogram::new();
        (1..=5_000u64).for_each(|i| histogram.record(i * i * 1_000, 1));
        let one = RunLatencies::new(&histogram, &Histogram::new());
        for percent in [50.0, 90.0, 99.0] {
            let found = Mixed::of(Statistic::Percentile(percent / 100.0), &[&one]).all();
            assert_eq!((found.us * 1e3).round() as u64, histogram.percentile_ns(percent), "{percent}");
        }
    }

    #[test]
    fn requests_without_a_response_are_later_than_any_limit() {
        let runs = [latencies(&[(1, 900)], 100), latencies(&[(2, 1_000)], 0)];
        assert_eq!(at(90.0, &runs), Some((2.0, false)));
        assert_eq!(at(99.0, &runs), Some((2.0, true)));
        assert_eq!(at(50.0, &[latencies(&[], 50)]), Some((0.0, true)));
    }

    #[test]
    fn too_few_requests_say_nothing() {
        assert_eq!(at(99.0, &[latencies(&[(1, 999)], 0)]), None);
        assert_eq!(at(99.0, &[latencies(&[(1, 1_000)], 0)]), Some((1.0, false)));
        assert_eq!(at(99.0, &[latencies(&[(1, 500)], 0), latencies(&[(1, 500)], 0)]), Some((1.0, false)));
        // Each of the 49 responses that stalled weighs more than the 1 % beyond a p99.
        assert_eq!(at(99.0, &[latencies(&[(1, 10_000)], 0), latencies(&[(500, 49)], 0)]), None);
        assert_eq!(at(50.0, &[]), None);
    }

    #[test]
    fn written_and_read_they_are_the_same() {
        let some = latencies(&[(1, 7), (30, 2)], 3);
        let [good, waited] = some.to_bytes();
        assert_eq!(RunLatencies::from_bytes([&good, &waited]).unwrap(), some);
        assert!(RunLatencies::from_bytes([b"HIST", &waited]).is_err());
        assert!(latencies(&[], 0).is_empty() && !latencies(&[], 1).is_empty());
    }
}
