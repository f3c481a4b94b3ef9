//! The first call beside later ones, and beside calls after a pause.

use crate::call::{Call, ms};
use crate::probe::{Experiment, Lane};
use crate::record::Record;
use crate::stats::median;

/// The first call beside later ones, as their caller waits for them: with lookup and connection, where
/// they had to have them. Milliseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct FirstCall {
    /// The very first call.
    pub first_ms: f64,
    /// Later ones, in the middle.
    pub later_ms: f64,
    /// Calls after a pause, in the middle, where any were made.
    pub after_pause_ms: Option<f64>,
}

/// A pause before a call that counts as one, milliseconds.
const PAUSE_MS: f64 = 200.0;

/// The time of a call without opening its connection.
pub(crate) fn served(call: &Call) -> f64 {
    ms(call.total) - ms(call.opening())
}

/// The very first call, where it got a response and nothing in the network explains its time.
pub(crate) fn first(record: &Record) -> Option<&Call> {
    let call = record.observed().next()?;
    // Nor that others held the server's workers.
    let behind_others = call.crowd.is_some_and(|crowd| crowd.waiting > 0 && crowd.accepted > 0);
    (call.answer().is_some() && !call.syn_again() && !call.lossy() && !behind_others).then_some(call)
}

/// Calls after the first one with nothing changed, and without a pause before them.
pub(crate) fn later(record: &Record) -> Vec<&Call> {
    record.observed().skip(1).filter(|c| c.answer().is_some()).collect()
}

/// Calls with nothing changed on new connections, after a pause.
pub(crate) fn rested(record: &Record) -> Vec<&Call> {
    let paused = record.calls().filter(|(p, c)| {
        p.experiment == Experiment::Rested && matches!(p.lane, Lane::Fresh) && c.answer().is_some()
    });
    paused.map(|(_, c)| c).collect()
}

/// Times of calls after a pause, whatever they were made for, without their connections.
fn paused(record: &Record) -> Vec<f64> {
    let rests = [Experiment::Rested, Experiment::Paced, Experiment::Idle];
    let calls = record
        .calls()
        .filter(|(p, c)| rests.contains(&p.experiment) && ms(p.pause) >= PAUSE_MS && c.answer().is_some());
    calls.map(|(_, c)| served(c)).collect()
}

/// The three beside each other.
pub(crate) fn seen(record: &Record) -> Option<FirstCall> {
    let first = record.observed().next().filter(|c| c.answer().is_some())?;
    let times: Vec<f64> = later(record).into_iter().filter(|c| !c.fresh).map(|c| ms(c.total)).collect();
    let times =
        if times.is_empty() { later(record).into_iter().map(|c| ms(c.total)).collect() } else { times };
    let paused = paused(record);
    let lookup = record.lookups().first().map_or(0.0, |l| ms(l.took));
    (!times.is_empty()).then(|| FirstCall {
        first_ms: lookup + ms(first.total),
        later_ms: median(&times),
        after_pause_ms: (!paused.is_empty()).then(|| median(&paused)),
    })
}
