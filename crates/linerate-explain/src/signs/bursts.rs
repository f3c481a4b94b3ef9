//! How a response comes on a connection that is warm: in bursts, a round trip apart.

use crate::call::{Call, ms};
use crate::record::Record;
use crate::stats::median;

/// Bursts of one response.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Bursts {
    /// Bytes of each.
    pub(crate) bytes: Vec<u64>,
    /// From the beginning of one to that of the next, milliseconds.
    pub(crate) apart: Vec<f64>,
    /// From the first to the last byte of each, milliseconds.
    pub(crate) lasts: Vec<f64>,
}

/// A round trip from which on bursts can be distinguished, milliseconds.
const RTT_MS: f64 = 3.0;
/// Silence that ends a burst, as a share of a round trip.
const SILENCE: f64 = 0.5;

/// The bursts of a response.
pub(crate) fn of(call: &Call, rtt_ms: f64) -> Bursts {
    let mut all: Vec<(f64, f64, u64)> = Vec::new();
    for receive in &call.receives {
        let (at, bytes) = (ms(receive.at), u64::from(receive.bytes));
        match all.last_mut() {
            Some(burst) if at - burst.1 < SILENCE * rtt_ms => (burst.1, burst.2) = (at, burst.2 + bytes),
            _ => all.push((at, at, bytes)),
        }
    }
    Bursts {
        bytes: all.iter().map(|b| b.2).collect(),
        apart: all.windows(2).map(|w| w[1].0 - w[0].0).collect(),
        lasts: all.iter().map(|b| b.1 - b.0).collect(),
    }
}

/// Those of calls on a connection that has carried several, in their order; none where the round
/// trip is too short to tell.
pub(crate) fn warm(record: &Record) -> Vec<Bursts> {
    let rtt = record.rtt_ms();
    if rtt < RTT_MS {
        return Vec::new();
    }
    let calls = record.reused().into_iter().filter(|c| !c.lossy());
    calls.map(|c| of(c, rtt)).collect()
}

/// Round trips that a response takes on a warm connection, in the middle of the later half of
/// calls.
pub(crate) fn round_trips(record: &Record) -> f64 {
    let warm = warm(record);
    let counts: Vec<f64> = warm[warm.len() / 2..].iter().map(|b| b.bytes.len() as f64).collect();
    median(&counts)
}

impl Bursts {
    /// Each is as large as the others, but for the last one; they are a round trip apart, and
    /// short.
    pub(crate) fn are_alike(&self, rtt_ms: f64) -> bool {
        let Some((_, whole)) = self.bytes.split_last() else { return false };
        let sizes: Vec<f64> = whole.iter().map(|b| *b as f64).collect();
        let middle = median(&sizes);
        let off = sizes.iter().filter(|b| **b > 1.6 * middle || **b < 0.4 * middle).count();
        let paced = self.apart.iter().filter(|ms| (0.7 * rtt_ms..1.7 * rtt_ms).contains(ms)).count();
        off <= sizes.len() / 4 && 4 * paced >= 3 * self.apart.len() && median(&self.lasts) < 0.4 * rtt_ms
    }

    /// Bytes of one in the middle.
    pub(crate) fn window(&self) -> f64 {
        let whole = &self.bytes[..self.bytes.len().saturating_sub(1)];
        median(&whole.iter().map(|b| *b as f64).collect::<Vec<_>>())
    }
}
