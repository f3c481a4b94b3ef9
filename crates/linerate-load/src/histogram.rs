//! Latency histograms: HdrHistogram with three significant digits, nanoseconds, up to an hour.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use hdrhistogram::Histogram as Hdr;
use hdrhistogram::serialization::{Deserializer as HdrReader, Serializer as _, V2DeflateSerializer};
use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// Largest distinct value, nanoseconds (an hour); larger ones count as this. No timeout may exceed
/// it.
pub const LARGEST_NS: u64 = 3_600_000_000_000;

/// A histogram of nanoseconds that keeps every sample to three significant digits and merges
/// exactly.
///
/// ```
/// use linerate_load::histogram::Histogram;
///
/// let mut latencies = Histogram::new();
/// latencies.record(1_000_000, 99); // 99 of 1 ms
/// latencies.record(20_000_000, 1);
/// assert_eq!((latencies.count(), latencies.percentile_ns(50.0) / 100_000), (100, 10));
/// assert_eq!(latencies.max_ns() / 1_000_000, 20);
/// ```
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

    /// HdrHistogram's own form, "V2 deflate"; empty without samples.
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut bytes = Vec::new();
        if let Some(hdr) = self.0.as_ref().filter(|h| !h.is_empty()) {
            // Writing into memory fails only for histograms beyond any that this type can hold.
            let _ = V2DeflateSerializer::new().serialize(hdr, &mut bytes);
        }
        bytes
    }

    /// Reads [`to_bytes`](Histogram::to_bytes), also of another program. Values above
    /// [`LARGEST_NS`] count as that.
    pub fn from_bytes(bytes: &[u8]) -> Result<Histogram, WrongHistogram> {
        let mut read = Histogram::new();
        if bytes.is_empty() {
            return Ok(read);
        }
        let mut left = bytes;
        let hdr: Hdr<u64> = HdrReader::new().deserialize(&mut left).map_err(|_| WrongHistogram)?;
        if !left.is_empty() {
            return Err(WrongHistogram);
        }
        for value in hdr.iter_recorded() {
            read.record(value.value_iterated_to(), value.count_since_last_iteration());
        }
        Ok(read)
    }

    /// Recorded values with their counts, ascending, nanoseconds.
    pub fn iter_recorded(&self) -> impl Iterator<Item = (u64, u64)> + '_ {
        self.0
            .iter()
            .flat_map(|h| h.iter_recorded().map(|v| (v.value_iterated_to(), v.count_since_last_iteration())))
    }
}

/// Bytes that are not a histogram in the form "V2 deflate".
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("these bytes are not a histogram in HdrHistogram's form \"V2 deflate\"")]
pub struct WrongHistogram;

/// In text: base64 of [`Histogram::to_bytes`], as HdrHistogram's logs have it.
impl Serialize for Histogram {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&BASE64.encode(self.to_bytes()))
    }
}

impl<'de> Deserialize<'de> for Histogram {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Histogram, D::Error> {
        let text = std::borrow::Cow::<str>::deserialize(deserializer)?;
        let bytes = BASE64.decode(text.as_bytes()).map_err(D::Error::custom)?;
        Histogram::from_bytes(&bytes).map_err(D::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_written_is_read_bucket_by_bucket() {
        let mut histogram = Histogram::new();
        for (nanos, n) in [(1, 1), (999, 2), (1_000_000, 3), (LARGEST_NS * 2, 4)] {
            histogram.record(nanos, n);
        }
        let text = serde_json::to_string(&histogram).unwrap();
        let read: Histogram = serde_json::from_str(&text).unwrap();
        assert!(read.iter_recorded().eq(histogram.iter_recorded()));
        let none: Histogram = serde_json::from_str("\"\"").unwrap();
        assert_eq!(none.count(), 0);
        let mut more = histogram.to_bytes();
        more.push(0);
        for wrong in [&b"HIST"[..], &more, &more[..20]] {
            assert_eq!(Histogram::from_bytes(wrong).unwrap_err(), WrongHistogram);
        }
    }
}
