//! How long calls wait for their first byte beyond the network's round trip.

use std::time::Duration;

use super::path;
use crate::call::{Call, ms};
use crate::probe::Experiment;
use crate::record::{Record, median_of};

/// Work below this is a server doing its job.
pub(crate) const WORK_MS: f64 = 10.0;

/// The part of the wait for the first byte beyond one round trip, in the middle of the explained
/// calls.
pub(crate) fn beyond_rtt(record: &Record) -> f64 {
    if let Some(beyond) = path::beyond_handshake_ms(record) {
        return beyond;
    }
    if let Some(beyond) = path::beyond_jitter(record) {
        return beyond.low.max(0.0);
    }
    // Another rule reports the time that a lost segment took.
    let clean: Vec<&Call> = record.group().into_iter().filter(|c| !c.lossy()).collect();
    let wait = if clean.len() >= 2 { median_of(&clean, first_byte) } else { record.typical(first_byte) };
    let wait = wait.max(often(record, &clean));
    (wait - record.rtt_ms()).max(0.0)
}

/// The mean with the longest twelfth left out: work whose length varies much has a small median,
/// and one hiccup is no work.
fn often(record: &Record, clean: &[&Call]) -> f64 {
    let mut all: Vec<f64> = clean.iter().map(|c| ms(first_byte(c))).collect();
    all.extend(record.times(Experiment::Tail, 0, first_byte));
    if all.len() < 12 {
        return 0.0;
    }
    all.sort_by(f64::total_cmp);
    all.truncate(all.len() * 11 / 12);
    all.iter().sum::<f64>() / all.len() as f64
}

/// From when the request's last byte left (or from the wait for `100 Continue` that was in vain) to
/// the response's first one.
fn first_byte(call: &Call) -> Duration {
    call.wait_for_whole()
}
