//! Selects the samples that a report keeps, once those of all cores are merged.

use super::{Outcome, Sample};
use crate::limits::{BAD_SAMPLES, SLOWEST};

impl Outcome {
    /// Keeps the slowest of all cores, slowest first, and the first bad or failed ones, in the
    /// order of time.
    pub fn tidy_samples(&mut self) {
        let (mut slow, mut bad): (Vec<Sample>, Vec<Sample>) =
            std::mem::take(&mut self.samples).into_iter().partition(|s| s.why == "slowest");
        slow.sort_by(|a, b| b.latency_us.partial_cmp(&a.latency_us).unwrap_or(std::cmp::Ordering::Equal));
        slow.truncate(SLOWEST);
        bad.sort_by(|a, b| a.due_us.partial_cmp(&b.due_us).unwrap_or(std::cmp::Ordering::Equal));
        bad.truncate(BAD_SAMPLES);
        self.samples = slow;
        self.samples.append(&mut bad);
    }
}
