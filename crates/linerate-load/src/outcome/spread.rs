//! The latencies of one interval, coarse enough to keep for each second of a long run.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::histogram::Histogram;

/// Latencies counted in buckets. Bucket `k` begins at 2^(k/4) nanoseconds, so each is 19 % wide.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(from = "(u32, Vec<u64>)", into = "(u32, Vec<u64>)")]
pub struct Spread {
    first: u32,
    // Shared, because each snapshot of a run contains all intervals.
    counts: Arc<[u64]>,
}

impl Spread {
    /// The samples of a histogram.
    pub fn of(histogram: &Histogram) -> Spread {
        histogram.iter_recorded().map(|(nanos, n)| (bucket(nanos), n)).collect()
    }

    /// The number of the first bucket, and the counts from it on. First and last count are not 0.
    pub fn counts(&self) -> (u32, &[u64]) {
        (self.first, &self.counts)
    }

    /// Both together.
    #[must_use]
    pub fn plus(&self, other: &Spread) -> Spread {
        [self, other].into_iter().flat_map(Spread::iter).collect()
    }

    /// Bucket numbers with their counts.
    fn iter(&self) -> impl Iterator<Item = (u32, u64)> + '_ {
        (self.first..).zip(self.counts.iter().copied())
    }
}

/// The bucket of a latency.
fn bucket(nanos: u64) -> u32 {
    ((nanos.max(1) as f64).log2() * 4.0).floor() as u32
}

/// From buckets with their counts, in any order.
impl FromIterator<(u32, u64)> for Spread {
    fn from_iter<I: IntoIterator<Item = (u32, u64)>>(buckets: I) -> Spread {
        let mut sums = std::collections::BTreeMap::new();
        for (bucket, n) in buckets.into_iter().filter(|(_, n)| *n > 0) {
            *sums.entry(bucket).or_insert(0) += n;
        }
        let (Some((first, _)), Some((last, _))) = (sums.first_key_value(), sums.last_key_value()) else {
            return Spread::default();
        };
        let (first, last) = (*first, *last);
        let counts = (first..=last).map(|bucket| sums.get(&bucket).copied().unwrap_or(0)).collect();
        Spread { first, counts }
    }
}

impl From<(u32, Vec<u64>)> for Spread {
    fn from((first, counts): (u32, Vec<u64>)) -> Spread {
        Spread { first, counts: counts.into() }
    }
}

impl From<Spread> for (u32, Vec<u64>) {
    fn from(spread: Spread) -> (u32, Vec<u64>) {
        (spread.first, spread.counts.to_vec())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_sample_is_in_the_bucket_that_begins_below_it() {
        let mut histogram = Histogram::new();
        for (nanos, n) in [(1_000_000, 3), (1_100_000, 2), (4_000_000, 1)] {
            histogram.record(nanos, n);
        }
        let spread = Spread::of(&histogram);
        let (first, counts) = spread.counts();
        let begins = |k: u32| 2f64.powf(f64::from(k) / 4.0);
        assert!(begins(first) <= 1_000_000.0 && begins(first + 1) > 1_000_000.0);
        assert_eq!((counts.len(), counts.iter().sum::<u64>(), counts.last()), (9, 6, Some(&1)));
        assert_eq!(spread.plus(&spread).counts().1.iter().sum::<u64>(), 12);
        assert_eq!(spread.plus(&Spread::default()), spread);
        assert_eq!(Spread::of(&Histogram::new()).counts(), (0, &[][..]));
    }
}
