//! The run second by second, in bounded memory: exact, whatever the order in which seconds come.

use std::collections::{BTreeMap, VecDeque};

use linerate_load::histogram::Histogram;
use linerate_load::outcome::{Bytes, Interval, Ranked, Spread, TcpEvents};

use crate::figures::IntervalFigures;

/// Most intervals; beyond, pairs are merged. Reason: a week must not grow memory; a packed interval
/// has some kilobytes.
const INTERVALS: usize = 4096;

/// Intervals whose histograms are ready for more samples. Reason: each has a quarter of a megabyte,
/// and agents are rarely further apart than this many seconds.
const OPEN: usize = 16;

/// All intervals of a run.
#[derive(Debug)]
pub(super) struct RunSeries {
    /// Most intervals.
    most: usize,
    /// Seconds in each interval.
    width: u64,
    intervals: BTreeMap<u64, IntervalSum>,
    /// Those whose histograms are not packed, the one used last at the end.
    open: VecDeque<u64>,
    /// Whole seconds that the run has had.
    end: u64,
}

/// What all agents measured in one interval.
#[derive(Debug, Default)]
struct IntervalSum {
    answered: u64,
    failed: u64,
    unknown: u64,
    bad: u64,
    tcp: TcpEvents,
    bytes: Bytes,
    latency: IntervalLatency,
}

#[derive(Debug)]
enum IntervalLatency {
    Open(Histograms),
    /// In HdrHistogram's compressed form, beside an interval that has what is shown of it.
    Packed([Vec<u8>; 2], Box<Interval>),
}

/// Latencies of good responses, and how long the other requests were waited for.
#[derive(Debug, Default)]
struct Histograms {
    good: Histogram,
    waited: Histogram,
}

impl Histograms {
    fn merge(&mut self, good: &Histogram, waited: &Histogram) {
        self.good.merge(good);
        self.waited.merge(waited);
    }

    /// An interval with percentiles and spread alone.
    fn shown(&self) -> Interval {
        let spread = Spread::of(&self.good);
        let ranked = Ranked { good: &self.good, waited: &self.waited };
        Interval { spread, ..Interval::default() }.with_percentiles(ranked, true)
    }
}

impl Default for IntervalLatency {
    fn default() -> IntervalLatency {
        IntervalLatency::Open(Histograms::default())
    }
}

impl RunSeries {
    pub(super) fn new() -> RunSeries {
        RunSeries::of(INTERVALS)
    }

    fn of(most: usize) -> RunSeries {
        RunSeries { most, width: 1, intervals: BTreeMap::new(), open: VecDeque::new(), end: 0 }
    }

    /// Adds what an agent measured in this second.
    pub(super) fn add(&mut self, second: u64, figures: &IntervalFigures) {
        self.end = self.end.max(second + 1);
        let number = second / self.width;
        let sum = self.intervals.entry(number).or_default();
        sum.answered += figures.requests.answered;
        sum.failed += figures.requests.failed;
        sum.unknown += figures.requests.unknown;
        sum.bad += figures.bad.total();
        sum.tcp.merge(&figures.tcp);
        sum.bytes.merge(&figures.bytes);
        sum.latency.open().merge(&figures.latency, &figures.waited);
        if self.open.back() != Some(&number) {
            self.open.retain(|open| *open != number);
            self.open.push_back(number);
        }
        while self.open.len() > OPEN
            && let Some(oldest) = self.open.pop_front()
        {
            self.intervals.entry(oldest).and_modify(|sum| sum.latency.pack());
        }
        if self.intervals.len() > self.most {
            self.halve();
        }
    }

    /// Merges pairs of intervals, exactly.
    fn halve(&mut self) {
        self.width *= 2;
        self.open.clear();
        let mut merged: BTreeMap<u64, IntervalSum> = BTreeMap::new();
        for (number, sum) in std::mem::take(&mut self.intervals) {
            let pair = merged.entry(number / 2).or_default();
            pair.merge(sum);
            // The second of a pair is the last that comes.
            if number % 2 == 1 {
                pair.latency.pack();
            }
        }
        merged.values_mut().for_each(|sum| sum.latency.pack());
        self.intervals = merged;
    }

    /// The last intervals, at most `most`, in their order.
    pub(super) fn recent(&self, most: usize) -> Vec<Interval> {
        let newest = self.intervals.iter().rev().take(most);
        let mut recent: Vec<Interval> = newest.map(|(number, sum)| self.interval(*number, sum)).collect();
        recent.reverse();
        recent
    }

    fn interval(&self, number: u64, sum: &IntervalSum) -> Interval {
        let begin = number * self.width;
        let end = (begin + self.width).min(self.end);
        let mut shown = sum.latency.shown();
        if sum.answered == 0 {
            (shown.p50_us, shown.p99_us) = (None, None);
            (shown.p50_at_least, shown.p99_at_least) = (false, false);
        }
        Interval {
            t_s: end as f64,
            rate_rps: sum.answered as f64 / (end - begin).max(1) as f64,
            failed: sum.failed,
            unknown: sum.unknown,
            bad: sum.bad,
            tcp: sum.tcp,
            bytes: sum.bytes,
            ..shown
        }
    }
}

impl IntervalSum {
    fn merge(&mut self, mut other: IntervalSum) {
        self.answered += other.answered;
        self.failed += other.failed;
        self.unknown += other.unknown;
        self.bad += other.bad;
        self.tcp.merge(&other.tcp);
        self.bytes.merge(&other.bytes);
        let more = other.latency.open();
        self.latency.open().merge(&more.good, &more.waited);
    }
}

impl IntervalLatency {
    /// The histograms, ready for more samples.
    fn open(&mut self) -> &mut Histograms {
        if let IntervalLatency::Packed(bytes, _) = self {
            // Our own bytes, so they can be read.
            let [good, waited] =
                bytes.each_ref().map(|bytes| Histogram::from_bytes(bytes).unwrap_or_default());
            *self = IntervalLatency::Open(Histograms { good, waited });
        }
        match self {
            IntervalLatency::Open(histograms) => histograms,
            IntervalLatency::Packed(..) => unreachable!("it was opened"),
        }
    }

    fn pack(&mut self) {
        if let IntervalLatency::Open(histograms) = self {
            let bytes = [histograms.good.to_bytes(), histograms.waited.to_bytes()];
            *self = IntervalLatency::Packed(bytes, Box::new(histograms.shown()));
        }
    }

    fn shown(&self) -> Interval {
        match self {
            IntervalLatency::Open(histograms) => histograms.shown(),
            IntervalLatency::Packed(_, shown) => (**shown).clone(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn one(nanos: u64) -> IntervalFigures {
        let mut figures = IntervalFigures::default();
        figures.requests.answered = 1;
        figures.latency.record(nanos, 1);
        figures
    }

    /// More seconds than intervals, and a second that comes late: nothing is lost, memory is bounded.
    #[test]
    fn a_long_series_is_merged_in_pairs() {
        const MOST: usize = 64;
        let mut series = RunSeries::of(MOST);
        let seconds = 4 * MOST as u64 + 7;
        for second in 0..seconds {
            series.add(second, &one(1_000 * (second + 1)));
        }
        series.add(1, &one(5));
        assert!(series.intervals.len() <= MOST && series.open.len() <= OPEN);
        let all = series.recent(usize::MAX);
        let answered: f64 = all
            .iter()
            .zip(std::iter::once(0.0).chain(all.iter().map(|i| i.t_s)))
            .map(|(interval, begin)| interval.rate_rps * (interval.t_s - begin))
            .sum();
        assert_eq!(answered.round() as u64, seconds + 1);
        assert_eq!(all.last().map(|i| i.t_s), Some(seconds as f64));
        let samples: u64 = all.iter().flat_map(|i| i.spread.counts().1.to_vec()).sum();
        assert_eq!(samples, seconds + 1);
        let closed =
            series.intervals.values().filter(|s| matches!(s.latency, IntervalLatency::Packed(..))).count();
        assert!(closed + OPEN >= series.intervals.len(), "{closed} of {}", series.intervals.len());
    }
    /// Requests without a response make no second quick, and one without any has no percentiles.
    #[test]
    fn what_was_waited_for_in_vain_ranks_last() {
        let mut failing = IntervalFigures::default();
        failing.requests.failed = 1;
        failing.waited.record(1_000_000_000, 1);
        let mut series = RunSeries::new();
        series.add(0, &failing);
        let first = series.recent(1).remove(0);
        assert_eq!((first.failed, first.p50_us), (1, None));
        series.add(0, &one(1_000));
        let first = series.recent(1).remove(0);
        assert!(!first.p50_at_least && first.p99_at_least && first.p99_us > Some(999_000.0), "{first:?}");
    }
}
