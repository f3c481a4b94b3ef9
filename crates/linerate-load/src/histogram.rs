//! Latency histograms: HdrHistogram with three significant digits, nanoseconds, up to an hour.

use hdrhistogram::Histogram as Hdr;

/// Largest distinct value, nanoseconds (an hour); larger ones count as this. No timeout may exceed
/// it.
pub const LARGEST_NS: u64 = 3_600_000_000_000;

/// A histogram of nanoseconds that keeps every sample to three significant digits and merges
/// exactly.
#[derive(Clone, Debug, Default)]
pub struct Histogram(Option<Box<Hdr<u64>>>);

impl Histogram {
    /// An empty one; memory is taken with the first sample.
    pub fn new() -> Histogram {
        Histogram::default()
    }

    fn inner(&mut self) -> &mut Hdr<u64> {
        self.0.get_or_insert_with(|| {
            let hdr = Hdr::new_with_bounds(1, LARGEST_NS, 3);
            Box::new(hdr.unwrap_or_else(|_| unreachable!("constant bounds")))
        })
    }

    /// Counts `n` samples of `nanos`.
    #[inline]
    pub fn record(&mut self, nanos: u64, n: u64) {
        self.inner().saturating_record_n(nanos.max(1), n);
    }

    /// Adds another's samples.
    pub fn merge(&mut self, other: &Histogram) {
        if let Some(o) = &other.0 {
            // Bounds and precision are the same: this cannot fail.
            let _ = self.inner().add(o.as_ref());
        }
    }

    /// Takes away the samples of an earlier state of the same histogram.
    pub fn subtract(&mut self, earlier: &Histogram) {
        if let Some(e) = &earlier.0 {
            let _ = self.inner().subtract(e.as_ref());
        }
    }

    /// Number of samples.
    pub fn count(&self) -> u64 {
        self.0.as_ref().map_or(0, |h| h.len())
    }

    /// Value at a percentile (0 to 100), nanoseconds; 0 when empty.
    pub fn percentile_ns(&self, percent: f64) -> u64 {
        self.0.as_ref().map_or(0, |h| h.value_at_percentile(percent))
    }

    /// Smallest sample, nanoseconds; 0 when empty.
    pub fn min_ns(&self) -> u64 {
        self.0.as_ref().map_or(0, |h| if h.is_empty() { 0 } else { h.min() })
    }

    /// Largest sample, nanoseconds; 0 when empty.
    pub fn max_ns(&self) -> u64 {
        self.0.as_ref().map_or(0, |h| h.max())
    }

    /// Mean, nanoseconds; 0 when empty.
    pub fn mean_ns(&self) -> f64 {
        self.0.as_ref().map_or(0.0, |h| if h.is_empty() { 0.0 } else { h.mean() })
    }

    /// Recorded values with their counts, ascending, nanoseconds.
    pub fn iter_recorded(&self) -> impl Iterator<Item = (u64, u64)> + '_ {
        self.0
            .iter()
            .flat_map(|h| h.iter_recorded().map(|v| (v.value_iterated_to(), v.count_since_last_iteration())))
    }
}
