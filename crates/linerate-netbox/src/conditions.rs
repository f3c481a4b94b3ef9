//! Network conditions as values.

use std::time::Duration;

use crate::limits;
use crate::rule::DropRule;

/// What happens to frames in one direction.
#[derive(Clone, Debug, PartialEq)]
pub struct Conditions {
    /// Delay of each frame.
    pub delay: Duration,
    /// Maximum extra delay, uniformly distributed; frames keep their order.
    pub jitter: Duration,
    /// The probability that a frame is lost, 0 to 1.
    pub loss: f64,
    /// The probability that a frame arrives twice, 0 to 1.
    pub duplicate: f64,
    /// The probability that a frame is delayed by [`reorder_by`](Self::reorder_by), behind later
    /// frames; 0 to 1.
    pub reorder: f64,
    /// The delay of a reordered frame.
    pub reorder_by: Duration,
    /// Bits per second, Ethernet headers included.
    pub rate: Option<u64>,
    /// Bytes that may queue for the rate; a frame that finds the queue full is lost. `None`:
    /// [`limits::DEFAULT_QUEUE`].
    pub queue: Option<usize>,
    /// Largest IP packet in bytes; ICMP answers a larger one (RFC 1191, RFC 8201), which is
    /// dropped. A larger packet that may be fragmented is dropped too: the box does not fragment.
    pub mtu: Option<usize>,
    /// Packets above the MTU are dropped without ICMP.
    pub black_hole: bool,
    /// Targeted drops.
    pub drops: Vec<DropRule>,
    /// Determines everything random: the same seed and the same frames have the same fate.
    pub seed: u64,
}

impl Default for Conditions {
    fn default() -> Conditions {
        Conditions {
            delay: Duration::ZERO,
            jitter: Duration::ZERO,
            loss: 0.0,
            duplicate: 0.0,
            reorder: 0.0,
            reorder_by: Duration::from_millis(1),
            rate: None,
            queue: None,
            mtu: None,
            black_hole: false,
            drops: Vec::new(),
            seed: 1,
        }
    }
}

/// Invalid conditions.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[error("{what} is {value}: {wanted}")]
pub struct ConditionsError {
    what: &'static str,
    value: String,
    wanted: &'static str,
}

impl Conditions {
    /// Checks the values.
    ///
    /// # Errors
    /// Names the value and what would be right.
    pub fn check(&self) -> Result<(), ConditionsError> {
        let fault = |what, value: String, wanted| Err(ConditionsError { what, value, wanted });
        for (what, p) in [("loss", self.loss), ("duplicate", self.duplicate), ("reorder", self.reorder)] {
            if !(0.0..=1.0).contains(&p) {
                return fault(what, p.to_string(), "a probability is from 0 to 1 (0 % to 100 %)");
            }
        }
        for (what, t) in [("delay", self.delay), ("jitter", self.jitter), ("reorder by", self.reorder_by)] {
            if t > limits::LONGEST_DELAY {
                return fault(what, format!("{t:?}"), "at most 60 s");
            }
        }
        if self.rate.is_some_and(|r| r < 1000) {
            return fault("rate", format!("{} bit/s", self.rate.unwrap_or(0)), "at least 1000 bit/s");
        }
        if self.queue.is_some_and(|q| q < limits::FRAME_BYTES) {
            let value = format!("{} bytes", self.queue.unwrap_or(0));
            return fault("queue", value, "at least one frame, 1514 bytes");
        }
        if self.queue.is_some() && self.rate.is_none() {
            return fault("queue", "given without a rate".to_owned(), "only a link with a rate has a queue");
        }
        if self.mtu.is_some_and(|m| !(576..=1500).contains(&m)) {
            return fault("mtu", self.mtu.unwrap_or(0).to_string(), "from 576 to 1500 bytes");
        }
        if self.black_hole && self.mtu.is_none() {
            return fault("black hole", "given without an MTU".to_owned(), "only what is too big vanishes");
        }
        if self.drops.len() > limits::RULES {
            return fault("drop rules", self.drops.len().to_string(), "at most 64 in one direction");
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_cannot_be_is_named() {
        let ok = Conditions::default();
        assert_eq!(ok.check(), Ok(()));
        let cases = [
            (Conditions { loss: 1.5, ..ok.clone() }, "loss is 1.5"),
            (Conditions { loss: f64::NAN, ..ok.clone() }, "loss is NaN"),
            (Conditions { delay: Duration::from_secs(61), ..ok.clone() }, "delay is 61s"),
            (Conditions { rate: Some(5), ..ok.clone() }, "rate is 5 bit/s"),
            (Conditions { queue: Some(9000), ..ok.clone() }, "given without a rate"),
            (Conditions { rate: Some(1_000_000), queue: Some(100), ..ok.clone() }, "queue is 100 bytes"),
            (Conditions { mtu: Some(9000), ..ok.clone() }, "mtu is 9000"),
            (Conditions { black_hole: true, ..ok.clone() }, "without an MTU"),
        ];
        for (conditions, says) in cases {
            let error = conditions.check().expect_err(says).to_string();
            assert!(error.contains(says), "{error}");
        }
    }
}
