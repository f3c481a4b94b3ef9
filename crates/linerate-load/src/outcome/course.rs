//! A step of a flow over time: counts and coarse latencies of each interval, in bounded memory.

use serde::{Deserialize, Serialize};

/// Most intervals; beyond, pairs are merged. Reason: agents send them in one message, and a page draws no more.
const INTERVALS: usize = 96;

/// Buckets of latencies that double. Reason: each is then at most 3.1 % wide, so its middle is within 1.6 %.
const PER_DOUBLING: u32 = 32;

/// The course of one step.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct StepCourse {
    /// Seconds in an interval.
    width_s: u64,
    intervals: Vec<CourseInterval>,
}

/// What came in one interval.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct CourseInterval {
    /// Whole responses until the end of the run, whatever their status.
    pub answered: u64,
    /// Failed requests.
    pub failed: u64,
    /// Requests of unknown end.
    pub unknown: u64,
    /// Responses that were not good.
    pub bad: u64,
    /// Latencies of good responses.
    pub good: CourseLatencies,
    /// How long the other requests were waited for.
    pub waited: CourseLatencies,
}

/// Latencies in buckets: the number of the first, and the counts from it on.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct CourseLatencies(u32, Vec<u64>);

/// An interval as it is shown.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct CoursePoint<'a> {
    /// Its end, seconds from the beginning of measuring.
    pub t_s: f64,
    /// Seconds that it lasted; `None`: it is behind the end of the run.
    pub lasted_s: Option<f64>,
    /// What came in it.
    pub interval: &'a CourseInterval,
}

impl Default for StepCourse {
    fn default() -> StepCourse {
        StepCourse { width_s: 1, intervals: Vec::new() }
    }
}

impl StepCourse {
    /// Whether nothing came.
    pub fn is_empty(&self) -> bool {
        self.intervals.is_empty()
    }

    /// The interval of this second after the beginning of measuring.
    pub(crate) fn at(&mut self, second: u64) -> &mut CourseInterval {
        while second / self.width_s >= INTERVALS as u64 {
            self.halve();
        }
        self.reach((second / self.width_s) as usize)
    }

    fn reach(&mut self, index: usize) -> &mut CourseInterval {
        if index >= self.intervals.len() {
            self.intervals.resize(index + 1, CourseInterval::default());
        }
        &mut self.intervals[index]
    }

    /// With intervals until the end of a run of so many seconds, though nothing came in the last ones.
    #[must_use]
    pub fn until(mut self, run_s: f64) -> StepCourse {
        // The last one has begun before the end.
        if let Some(last) = (run_s.ceil() as u64).checked_sub(1) {
            self.at(last);
        }
        self
    }

    /// Adds another's, second by second.
    pub fn merge(&mut self, other: &StepCourse) {
        // Widths double, so the smaller one reaches the larger. An agent could send any.
        if !other.width_s.is_power_of_two() || other.intervals.len() > INTERVALS {
            return;
        }
        let mut other = other.clone();
        while self.width_s < other.width_s {
            self.halve();
        }
        while other.width_s < self.width_s {
            other.halve();
        }
        for (index, interval) in other.intervals.iter().enumerate() {
            self.reach(index).merge(interval);
        }
    }

    /// Merges pairs of intervals.
    fn halve(&mut self) {
        let pairs = std::mem::take(&mut self.intervals);
        let joined = |pair: &[CourseInterval]| {
            let mut sum = CourseInterval::default();
            pair.iter().for_each(|interval| sum.merge(interval));
            sum
        };
        self.intervals = pairs.chunks(2).map(joined).collect();
        self.width_s *= 2;
    }

    /// The intervals of a run that sent for `run_s` seconds, and whose last response came after `ended_s`.
    pub fn points(&self, run_s: f64, ended_s: f64) -> impl Iterator<Item = CoursePoint<'_>> {
        // A rate over less would be no rate.
        const LEAST_S: f64 = 0.001;
        let width_s = self.width_s as f64;
        let point = move |(index, interval)| {
            let begin_s = index as f64 * width_s;
            // What came after the end of the run, while iterations were let end, has no rate.
            let lasted_s = Some(run_s - begin_s).filter(|left_s| *left_s >= LEAST_S).map(|s| s.min(width_s));
            let t_s = begin_s + lasted_s.unwrap_or_else(|| (ended_s - begin_s).clamp(LEAST_S, width_s));
            CoursePoint { t_s, lasted_s, interval }
        };
        self.intervals.iter().enumerate().map(point)
    }
}

impl CourseInterval {
    fn merge(&mut self, other: &CourseInterval) {
        self.answered += other.answered;
        self.failed += other.failed;
        self.unknown += other.unknown;
        self.bad += other.bad;
        for (sum, more) in [(&mut self.good, &other.good), (&mut self.waited, &other.waited)] {
            (more.0..).zip(&more.1).for_each(|(bucket, n)| sum.add(bucket, *n));
        }
    }

    /// A percentile (0 to 100) in microseconds, and whether the true one is at least that: requests without a good response
    /// rank behind all others. `None`: no response came.
    pub fn percentile_us(&self, percent: f64) -> Option<(f64, bool)> {
        let (good, others) = (self.good.count(), self.waited.count());
        if good + self.bad + self.answered == 0 || good + others == 0 {
            return None;
        }
        let rank = (percent / 100.0 * (good + others) as f64).ceil().max(1.0) as u64;
        let us = |bucket| middle_ns(bucket) / 1e3;
        match self.good.bucket_of(rank) {
            Some(bucket) => Some((us(bucket), false)),
            None => self.good.last().into_iter().chain(self.waited.last()).max().map(|last| (us(last), true)),
        }
    }
}

impl CourseLatencies {
    pub(crate) fn record(&mut self, nanos: u64, n: u64) {
        self.add(bucket_of(nanos), n);
    }

    fn add(&mut self, bucket: u32, n: u64) {
        // An agent could name any.
        if n == 0 || bucket > bucket_of(u64::MAX) {
            return;
        }
        let CourseLatencies(first, counts) = self;
        if counts.is_empty() {
            *first = bucket;
        }
        if bucket < *first {
            counts.splice(0..0, std::iter::repeat_n(0, (*first - bucket) as usize));
            *first = bucket;
        }
        let index = (bucket - *first) as usize;
        if index >= counts.len() {
            counts.resize(index + 1, 0);
        }
        counts[index] += n;
    }

    fn count(&self) -> u64 {
        self.1.iter().sum()
    }

    fn last(&self) -> Option<u32> {
        let end = self.1.iter().rposition(|n| *n > 0)?;
        Some(self.0 + end as u32)
    }

    /// The bucket with the sample of this rank, from 1.
    fn bucket_of(&self, rank: u64) -> Option<u32> {
        let mut seen = 0;
        let reaches = |n: &u64| {
            seen += n;
            seen >= rank
        };
        Some(self.0 + self.1.iter().position(reaches)? as u32)
    }
}

/// The bucket of a latency: exact below 32 ns, then 32 buckets from one power of two to the next.
fn bucket_of(nanos: u64) -> u32 {
    let doublings = nanos.checked_ilog2().unwrap_or(0).saturating_sub(PER_DOUBLING.ilog2());
    doublings * PER_DOUBLING + (nanos >> doublings) as u32
}

/// The middle of a bucket, nanoseconds.
fn middle_ns(bucket: u32) -> f64 {
    let doublings = (bucket / PER_DOUBLING).saturating_sub(1);
    let within = f64::from(bucket - doublings * PER_DOUBLING);
    let width = 2f64.powi(doublings as i32);
    if doublings == 0 { within } else { (within + 0.5) * width }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answered(course: &mut StepCourse, second: u64, us: u64) {
        let interval = course.at(second);
        interval.answered += 1;
        interval.good.record(us * 1_000, 1);
    }

    #[test]
    fn a_latency_is_within_two_percent() {
        for nanos in
            (0..40).chain((5..63).flat_map(|k| [(1 << k) - 1, 1 << k, (1 << k) + (1 << (k - 1)) + 7]))
        {
            let off = middle_ns(bucket_of(nanos)) - nanos as f64;
            assert!(off.abs() <= nanos as f64 * 0.016, "{nanos} ns: off by {off}");
        }
        let mut latencies = CourseLatencies::default();
        latencies.record(u64::MAX, 1);
        latencies.add(u32::MAX, 1);
        assert_eq!(latencies.count(), 1);
    }

    #[test]
    fn requests_without_a_response_rank_last_and_gaps_stay_gaps() {
        let mut course = StepCourse::default();
        (0..9).for_each(|_| answered(&mut course, 0, 1_000));
        course.at(0).failed = 1;
        course.at(0).waited.record(5_000_000, 1);
        course.at(2).failed = 1;
        course.at(2).waited.record(1_000_000_000, 1);
        let points: Vec<_> = course.points(2.5, 2.5).collect();
        let near = |found: Option<(f64, bool)>, us: f64, at_least| {
            found.is_some_and(|(got, bound)| (got / us - 1.0).abs() < 0.02 && bound == at_least)
        };
        assert!(near(points[0].interval.percentile_us(50.0), 1_000.0, false));
        assert!(near(points[0].interval.percentile_us(99.0), 5_000.0, true));
        // Nothing came in the second one, and no response in the third.
        assert_eq!(points[1].interval, &CourseInterval::default());
        assert_eq!((points[2].interval.percentile_us(50.0), points[2].interval.failed), (None, 1));
        assert_eq!((points[2].t_s, points[2].lasted_s), (2.5, Some(0.5)));
        let quiet = course.clone().until(200.0);
        let ends: Vec<f64> = quiet.points(200.0, 200.0).map(|point| point.t_s).collect();
        assert_eq!((ends[0], ends.len(), ends.last()), (4.0, 50, Some(&200.0)));
        assert_eq!((course.clone().until(2.5), course.clone().until(0.0)), (course.clone(), course.clone()));
        let late = course.points(2.0, 2.25).last().map(|point| (point.t_s, point.lasted_s));
        assert_eq!(late, Some((2.25, None)));
    }

    #[test]
    fn parts_of_a_run_add_up_whatever_their_widths() {
        let (mut long, mut short, mut whole) = <(StepCourse, StepCourse, StepCourse)>::default();
        for second in 0..1_000 {
            answered(&mut long, second, second + 1);
            answered(&mut whole, second, second + 1);
        }
        for second in 0..7 {
            answered(&mut short, second, 10);
            answered(&mut whole, second, 10);
        }
        assert!(long.intervals.len() <= INTERVALS && long.width_s == 16);
        let (mut one, mut other) = (long.clone(), short.clone());
        one.merge(&short);
        other.merge(&long);
        assert_eq!((&one, &other), (&whole, &whole));
        assert_eq!(whole.points(1_000.0, 1_000.0).map(|point| point.interval.answered).sum::<u64>(), 1_007);
        let hostile = StepCourse { width_s: 0, intervals: vec![CourseInterval::default()] };
        one.merge(&hostile);
        assert_eq!(one, whole);
    }
}
