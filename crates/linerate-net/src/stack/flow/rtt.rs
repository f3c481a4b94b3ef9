//! Round-trip times and the retransmission timeout (RFC 6298).

use std::time::Duration;

use crate::stack::options::StackLimits;

/// The estimate, in nanoseconds.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Rtt {
    smoothed: u64,
    variation: u64,
    least: u64,
    rto: u64,
}

impl Rtt {
    pub(crate) fn new(first_rto: Duration) -> Rtt {
        Rtt { smoothed: 0, variation: 0, least: 0, rto: first_rto.as_nanos() as u64 }
    }

    /// Adds a sample of a segment that was sent once (Karn's algorithm, section 3).
    pub(crate) fn sample(&mut self, ns: u64, limits: &StackLimits) {
        let ns = ns.max(1);
        if self.smoothed == 0 {
            (self.smoothed, self.variation, self.least) = (ns, ns / 2, ns);
        } else {
            self.variation = (3 * self.variation + self.smoothed.abs_diff(ns)) / 4;
            self.smoothed = ((7 * self.smoothed + ns) / 8).max(1);
            self.least = self.least.min(ns);
        }
        // The minimum RTO protects against delayed ACKs, so it bounds only the variation's part (as
        // Linux does).
        let (least, most) = (limits.least_rto.as_nanos() as u64, limits.largest_rto.as_nanos() as u64);
        self.rto = (self.smoothed + (4 * self.variation).max(least)).min(most);
    }

    /// Zero before the first sample.
    pub(crate) fn smoothed(&self) -> u64 {
        self.smoothed
    }

    /// Zero before the first sample.
    pub(crate) fn variation(&self) -> u64 {
        self.variation
    }

    pub(crate) fn least(&self) -> u64 {
        self.least
    }

    /// The timeout after `backoff` consecutive ones (section 5.5), in nanoseconds.
    #[inline]
    pub(crate) fn rto_ns(&self, backoff: u8, limits: &StackLimits) -> u64 {
        // Samples keep it below its limit.
        if backoff == 0 { self.rto } else { self.backed_off(backoff, limits) }
    }

    #[cold]
    fn backed_off(&self, backoff: u8, limits: &StackLimits) -> u64 {
        let most = limits.largest_rto.as_nanos() as u64;
        self.rto.saturating_mul(1 << backoff.min(20)).min(most)
    }
}
