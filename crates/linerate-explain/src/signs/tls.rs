//! Signs in the handshakes of new connections.

use std::time::Duration;

use crate::call::{Call, ms};
use crate::evidence::Trial;
use crate::handshake::Handshake;
use crate::probe::{Block, CallProbe, Experiment, Lane, Probe};
use crate::record::Record;
use crate::stats::median;

use linerate_tls::Variant;

/// Less than that is not worth an experiment, milliseconds.
pub(crate) const WORTH_MS: f64 = 2.0;
/// Pairs of an experiment. Reason: with four calls in each arm chance is excluded.
const PAIRS: usize = 4;
/// On a busy machine work must be this many times what counts elsewhere: the server may wait for a
/// processor as well.
const BUSY: f64 = 3.0;

/// Handshakes that ended, of calls with nothing changed.
pub(crate) fn usual(record: &Record) -> Vec<&Handshake> {
    record.observed().filter_map(|c| c.tls.as_deref()).filter(|h| h.seen.is_some()).collect()
}

/// Those that could have resumed a session: all but the first.
pub(crate) fn later(record: &Record) -> Vec<&Handshake> {
    let mut all = usual(record);
    all.drain(..all.len().min(1));
    all
}

/// Milliseconds, in the middle.
pub(crate) fn middle(handshakes: &[&Handshake], metric: fn(&Handshake) -> Duration) -> f64 {
    median(&handshakes.iter().map(|h| ms(metric(h))).collect::<Vec<_>>())
}

/// Full ones, of calls with nothing changed; if all but the first resume, the first.
pub(crate) fn full(record: &Record) -> Vec<&Handshake> {
    let of = |all: Vec<&'_ Handshake>| all.into_iter().filter(|h| !h.is_resumed()).count();
    let handshakes = if of(later(record)) > 0 { later(record) } else { usual(record) };
    handshakes.into_iter().filter(|h| !h.is_resumed()).collect()
}

/// Time of a full handshake beyond our own work and one round trip.
pub(crate) fn beyond_rtt(record: &Record) -> f64 {
    (middle(&full(record), Handshake::beside_ours) - record.rtt_ms()).max(0.0)
}

/// The server gave something to resume a session by.
pub(crate) fn gives(record: &Record) -> bool {
    usual(record).iter().any(|h| h.given)
}

/// The same, with that version.
pub(crate) fn gives_in_version(record: &Record, version: &str) -> bool {
    usual(record).iter().any(|h| h.given && h.version() == version)
}

/// Work of the server that takes so long counts, on this machine.
pub(crate) fn counts_ms(record: &Record, least: f64) -> f64 {
    least * if record.is_machine_busy() { BUSY } else { 1.0 }
}

/// Pairs of calls on new connections that differ in how TLS is spoken: without the change first,
/// and in every other pair last.
pub(crate) fn pairs(record: &Record, experiment: Experiment, variant: Variant) -> Vec<Block> {
    let call = |arm: u8| {
        let mut probe = CallProbe::plain(experiment, arm, Lane::Fresh);
        probe.writes = record.settings.writes;
        probe.closes = true;
        probe.tls = if arm == 1 { variant } else { Variant::Full };
        Probe::Call(Box::new(probe))
    };
    let pair = |i: usize| if i.is_multiple_of(2) { vec![call(0), call(1)] } else { vec![call(1), call(0)] };
    (0..PAIRS).map(pair).collect()
}

/// An experiment may be made: calls may be repeated, and it was not tried.
pub(crate) fn may(record: &Record, experiment: Experiment) -> bool {
    record.settings.tls.is_some()
        && record.settings.may_repeat
        && !record.tried(experiment)
        && usual(record).len() >= 2
}

/// The handshakes of an arm that came to what it is about.
fn arm(record: &Record, experiment: Experiment, arm: u8) -> Vec<&Call> {
    let is_meant = |c: &&Call| {
        let Some(handshake) = c.tls.as_deref() else { return false };
        match (experiment, arm) {
            (Experiment::Resume, 1) => handshake.is_resumed(),
            (Experiment::Group, 1) => !handshake.is_retried(),
            (Experiment::Version, 1) => handshake.version() == "TLSv1.3",
            _ => !handshake.is_resumed(),
        }
    };
    record.arm(experiment, arm).into_iter().filter(|c| !c.lossy()).filter(is_meant).collect()
}

/// The two arms against each other.
pub(crate) fn trial(
    record: &Record,
    experiment: Experiment,
    name: &str,
    changed: &str,
    metric: fn(&Call) -> Duration,
) -> Option<Trial> {
    let [without, with] =
        [0, 1].map(|n| arm(record, experiment, n).into_iter().map(|c| ms(metric(c))).collect());
    Trial::of(name, changed, without, with)
}

/// Resumed sessions against full handshakes.
pub(crate) fn resumed(record: &Record, metric: fn(&Call) -> Duration) -> Option<Trial> {
    trial(record, Experiment::Resume, "a resumed session", "a session ticket in the ClientHello", metric)
}

/// Time of a handshake beyond our own work.
pub(crate) fn took(call: &Call) -> Duration {
    call.tls.as_deref().map_or(Duration::ZERO, Handshake::beside_ours)
}

/// From the ClientHello to the server's first flight.
pub(crate) fn hello(call: &Call) -> Duration {
    call.tls.as_deref().map_or(Duration::ZERO, Handshake::hello)
}

/// The server's first flight.
pub(crate) fn flight(call: &Call) -> Duration {
    call.tls.as_deref().map_or(Duration::ZERO, Handshake::flight)
}
