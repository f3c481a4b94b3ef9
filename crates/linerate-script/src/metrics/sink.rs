//! What is kept of a metric's samples.

use std::collections::BTreeMap;

use crate::limits::TREND_BUCKETS;

/// How samples of a metric are summed up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MetricKind {
    /// A sum.
    Counter,
    /// The last value.
    Gauge,
    /// The share of samples that are not zero.
    Rate,
    /// Percentiles.
    Trend,
}

impl MetricKind {
    /// As in k6's data.
    pub fn name(self) -> &'static str {
        match self {
            MetricKind::Counter => "counter",
            MetricKind::Gauge => "gauge",
            MetricKind::Rate => "rate",
            MetricKind::Trend => "trend",
        }
    }

    /// The kind with this name.
    pub fn named(name: &str) -> Option<MetricKind> {
        [MetricKind::Counter, MetricKind::Gauge, MetricKind::Rate, MetricKind::Trend]
            .into_iter()
            .find(|kind| kind.name() == name)
    }
}

/// The unit of a metric's values.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum SampleUnit {
    /// A number.
    #[default]
    Plain,
    /// Milliseconds.
    Time,
    /// Bytes.
    Data,
}

impl SampleUnit {
    /// As in k6's data.
    pub fn name(self) -> &'static str {
        match self {
            SampleUnit::Plain => "default",
            SampleUnit::Time => "time",
            SampleUnit::Data => "data",
        }
    }
}

/// Samples of a trend, in buckets 0.1 % wide. The mean of each bucket is exact, so values that are
/// few, or alike, come back as they were.
#[derive(Clone, Debug, Default)]
pub struct TrendSink {
    buckets: BTreeMap<i32, TrendBucket>,
    count: u64,
    sum: f64,
    min: f64,
    max: f64,
}

#[derive(Clone, Copy, Debug, Default)]
struct TrendBucket {
    count: u64,
    sum: f64,
}

/// Of the natural logarithm of 1.001.
const BUCKETS_PER_E: f64 = 1000.5;

/// Values closer to 0 than this, e to the power of -21, share a bucket.
const SMALLEST: f64 = 7.6e-10;

impl TrendSink {
    fn bucket(value: f64) -> i32 {
        let size = value.abs();
        if size < SMALLEST {
            return 0;
        }
        let place = ((size.ln() + 21.0) * BUCKETS_PER_E) as i32 + 1;
        if value < 0.0 { -place } else { place }
    }

    fn add(&mut self, value: f64) {
        if self.count == 0 {
            (self.min, self.max) = (value, value);
        }
        (self.min, self.max) = (self.min.min(value), self.max.max(value));
        self.count += 1;
        self.sum += value;
        self.count_in(TrendSink::bucket(value), TrendBucket { count: 1, sum: value });
    }

    /// Buckets beyond the limit join their neighbour.
    fn count_in(&mut self, place: i32, more: TrendBucket) {
        let is_known = self.buckets.len() < TREND_BUCKETS || self.buckets.contains_key(&place);
        let place = match is_known {
            true => place,
            false => self.buckets.range(..place).next_back().map_or(place, |(near, _)| *near),
        };
        let bucket = self.buckets.entry(place).or_default();
        bucket.count += more.count;
        bucket.sum += more.sum;
    }

    fn merge(&mut self, other: &TrendSink) {
        if other.count == 0 {
            return;
        }
        if self.count == 0 {
            (self.min, self.max) = (other.min, other.max);
        }
        (self.min, self.max) = (self.min.min(other.min), self.max.max(other.max));
        self.count += other.count;
        self.sum += other.sum;
        other.buckets.iter().for_each(|(place, bucket)| self.count_in(*place, *bucket));
    }

    /// The value of this rank, from 0.
    fn at(&self, rank: u64) -> f64 {
        if rank == 0 {
            return self.min;
        }
        if rank + 1 >= self.count {
            return self.max;
        }
        let mut before = 0;
        for bucket in self.buckets.values() {
            before += bucket.count;
            if rank < before {
                return bucket.sum / bucket.count as f64;
            }
        }
        self.max
    }

    /// The percentile (0 to 100), linear between two ranks, as k6 has it.
    pub fn percentile(&self, percent: f64) -> f64 {
        if self.count == 0 {
            return 0.0;
        }
        let rank = percent.clamp(0.0, 100.0) / 100.0 * (self.count - 1) as f64;
        let low = rank.floor();
        let (from, to) = (self.at(low as u64), self.at(low as u64 + 1));
        if rank == low { from } else { from + (to - from) * (rank - low) }
    }
}

/// The samples of a metric so far.
#[derive(Clone, Debug)]
pub enum MetricSink {
    /// Their sum.
    Counter(f64),
    /// The last, the smallest and the largest one; how many there were.
    Gauge {
        /// Last.
        value: f64,
        /// Smallest.
        min: f64,
        /// Largest.
        max: f64,
        /// Of them.
        count: u64,
    },
    /// Those that are not zero, and all.
    Rate {
        /// Not zero.
        passes: u64,
        /// All.
        total: u64,
    },
    /// All of them.
    Trend(Box<TrendSink>),
}

impl MetricSink {
    pub(crate) fn new(kind: MetricKind) -> MetricSink {
        match kind {
            MetricKind::Counter => MetricSink::Counter(0.0),
            MetricKind::Gauge => MetricSink::Gauge { value: 0.0, min: 0.0, max: 0.0, count: 0 },
            MetricKind::Rate => MetricSink::Rate { passes: 0, total: 0 },
            MetricKind::Trend => MetricSink::Trend(Box::default()),
        }
    }

    pub(crate) fn add(&mut self, sample: f64) {
        match self {
            MetricSink::Counter(sum) => *sum += sample,
            MetricSink::Gauge { value, min, max, count } => {
                *min = if *count == 0 { sample } else { min.min(sample) };
                *max = if *count == 0 { sample } else { max.max(sample) };
                *value = sample;
                *count += 1;
            }
            MetricSink::Rate { passes, total } => {
                *passes += u64::from(sample != 0.0);
                *total += 1;
            }
            MetricSink::Trend(trend) => trend.add(sample),
        }
    }

    pub(crate) fn merge(&mut self, other: &MetricSink) {
        match (self, other) {
            (MetricSink::Counter(sum), MetricSink::Counter(more)) => *sum += more,
            (
                MetricSink::Gauge { value, min, max, count },
                MetricSink::Gauge { value: last, min: low, max: high, count: more },
            ) if *more > 0 => {
                *min = if *count == 0 { *low } else { min.min(*low) };
                *max = if *count == 0 { *high } else { max.max(*high) };
                *value = *last;
                *count += more;
            }
            (MetricSink::Rate { passes, total }, MetricSink::Rate { passes: p, total: t }) => {
                *passes += p;
                *total += t;
            }
            (MetricSink::Trend(trend), MetricSink::Trend(more)) => trend.merge(more),
            // Metrics of one name have one kind.
            _ => {}
        }
    }

    /// Whether there was no sample.
    pub fn is_empty(&self) -> bool {
        match self {
            MetricSink::Counter(sum) => *sum == 0.0,
            MetricSink::Gauge { count, .. } => *count == 0,
            MetricSink::Rate { total, .. } => *total == 0,
            MetricSink::Trend(trend) => trend.count == 0,
        }
    }

    /// A value by its name in thresholds and in the summary: `avg`, `p(95)`, `rate`. `seconds`: how
    /// long the run took.
    pub fn value(&self, name: &str, seconds: f64) -> Option<f64> {
        Some(match (self, name) {
            (MetricSink::Counter(sum), "count") => *sum,
            (MetricSink::Counter(sum), "rate") => {
                if seconds > 0.0 {
                    sum / seconds
                } else {
                    0.0
                }
            }
            (MetricSink::Gauge { value, .. }, "value") => *value,
            (MetricSink::Gauge { min, .. }, "min") => *min,
            (MetricSink::Gauge { max, .. }, "max") => *max,
            (MetricSink::Rate { total: 0, .. }, "rate") => 0.0,
            (MetricSink::Rate { passes, total }, "rate") => *passes as f64 / *total as f64,
            (MetricSink::Rate { passes, .. }, "passes") => *passes as f64,
            (MetricSink::Rate { passes, total }, "fails") => (total - passes) as f64,
            (MetricSink::Trend(trend), name) => return trend.value(name),
            _ => return None,
        })
    }
}

impl TrendSink {
    fn value(&self, name: &str) -> Option<f64> {
        Some(match name {
            "count" => self.count as f64,
            "min" => self.min,
            "max" => self.max,
            "avg" => {
                if self.count == 0 {
                    0.0
                } else {
                    self.sum / self.count as f64
                }
            }
            "med" => self.percentile(50.0),
            _ => {
                let percent = name.strip_prefix("p(")?.strip_suffix(')')?.parse().ok()?;
                return (0.0..=100.0).contains(&percent).then(|| self.percentile(percent));
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn trend(values: impl IntoIterator<Item = f64>) -> MetricSink {
        let mut sink = MetricSink::new(MetricKind::Trend);
        values.into_iter().for_each(|value| sink.add(value));
        sink
    }

    #[test]
    fn few_values_come_back_as_they_were() {
        let sink = trend([5.0, 1.0, 3.0, 2.0, 4.0]);
        let of = |name: &str| sink.value(name, 1.0).unwrap();
        assert_eq!((of("min"), of("max"), of("med"), of("avg"), of("count")), (1.0, 5.0, 3.0, 3.0, 5.0));
        assert_eq!((of("p(90)"), of("p(95)"), of("p(0)")), (4.6, 4.8, 1.0));
        assert_eq!(sink.value("rate", 1.0), None);
    }

    #[test]
    fn many_values_keep_their_percentiles_within_a_thousandth() {
        let mut parts = [trend([]), trend([])];
        (0..100_000).for_each(|n| parts[n % 2].add(n as f64 / 7.0 - 100.0));
        let [mut all, other] = parts;
        all.merge(&other);
        for percent in [1.0, 50.0, 95.0, 99.9] {
            let exact = percent / 100.0 * 99_999.0 / 7.0 - 100.0;
            let got = all.value(&format!("p({percent})"), 1.0).unwrap();
            assert!((got - exact).abs() <= exact.abs() / 900.0 + 0.2, "p({percent}): {got}, not {exact}");
        }
    }

    #[test]
    fn rates_counters_and_gauges() {
        let mut rate = MetricSink::new(MetricKind::Rate);
        [1.0, 0.0, 1.0, 1.0].into_iter().for_each(|v| rate.add(v));
        assert_eq!((rate.value("rate", 1.0), rate.value("fails", 1.0)), (Some(0.75), Some(1.0)));
        let mut counter = MetricSink::new(MetricKind::Counter);
        counter.add(10.0);
        assert_eq!((counter.value("count", 4.0), counter.value("rate", 4.0)), (Some(10.0), Some(2.5)));
        let mut gauge = MetricSink::new(MetricKind::Gauge);
        [3.0, 9.0, 4.0].into_iter().for_each(|v| gauge.add(v));
        assert_eq!((gauge.value("value", 1.0), gauge.value("max", 1.0)), (Some(4.0), Some(9.0)));
    }
}
