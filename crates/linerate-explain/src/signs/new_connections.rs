//! Signs on new connections beside reused ones: retransmitted SYNs, and a first call that waits.

use crate::call::{Call, CallStage, Failure, Why, ms};
use crate::record::{Record, median_of};
use crate::stats::median;

/// Least difference between the wait of a first call and of a later one.
pub(crate) const WAITED_MS: f64 = 10.0;

/// How much longer the first call of a connection waits than later ones.
pub(crate) fn waited(record: &Record) -> f64 {
    let (mut fresh, reused) = (first_waits(record.observed()), record.reused());
    if fresh.len() < 2 && !syns(record).0.is_empty() {
        // Connecting took so long that the look was cut short.
        fresh.extend(first_waits(record.bursts().flatten()));
    }
    if fresh.len() < 2 || reused.len() < 2 {
        return 0.0;
    }
    let later = median_of(&reused, Call::wait_for_whole);
    let wait = median(&fresh) - later;
    if wait > 2.0 * (later - record.rtt_ms()) { wait } else { 0.0 }
}

/// It was connected, and got no answer in its time.
fn in_vain(call: &Call) -> bool {
    let waits = |f: &Failure| matches!(f.stage, CallStage::Tls | CallStage::Wait) && f.why == Why::TimedOut;
    call.failure().is_some_and(waits)
}

/// Milliseconds that calls waited on new connections: for their first byte, or until they failed.
/// If the full queue has no place for a connection, the kernel drops its data as well, so such a
/// call may get no response at all.
pub(crate) fn first_waits<'a>(calls: impl Iterator<Item = &'a Call>) -> Vec<f64> {
    calls.filter(|c| c.fresh && (c.answer().is_some() || in_vain(c))).map(|c| ms(c.first_wait())).collect()
}

/// Calls on new connections that were accepted and never answered, while those on a kept one were.
pub(crate) fn starved(record: &Record) -> usize {
    if record.reused().len() < 2 { 0 } else { record.observed().filter(|c| c.fresh && in_vain(c)).count() }
}

/// Retransmitted SYNs, and calls on new connections.
pub(crate) fn syns(record: &Record) -> (Vec<&Call>, usize) {
    let fresh: Vec<&Call> =
        record.calls().map(|(_, c)| c).chain(record.bursts().flatten()).filter(|c| c.fresh).collect();
    let all = fresh.len();
    (fresh.into_iter().filter(|c| c.syn_lost()).collect(), all)
}

/// Connections opened alone that make it plain that those lose no SYN.
const ALONE: usize = 6;

/// Of connections, how many had to send their SYN again, and how many there were.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Resent {
    pub(crate) again: usize,
    pub(crate) of: usize,
}

impl Resent {
    fn of<'a>(calls: impl Iterator<Item = &'a Call>) -> Resent {
        calls.filter(|c| c.fresh).fold(Resent::default(), |sum, c| Resent {
            again: sum.again + usize::from(c.syn_lost()),
            of: sum.of + 1,
        })
    }
}

/// Connections that were opened several at once, and that were opened alone, if only some of the
/// first had to send their SYN again. Calls are usually made on one of the others.
pub(crate) fn lost_only_at_once(record: &Record) -> Option<[Resent; 2]> {
    let [at_once, alone] =
        [Resent::of(record.bursts().flatten()), Resent::of(record.calls().map(|(_, c)| c))];
    (at_once.again > 0 && alone.again == 0 && alone.of >= ALONE).then_some([at_once, alone])
}

/// The more connections at once, the longer the last one waits: they are accepted one after the
/// other.
pub(crate) fn grows(record: &Record) -> bool {
    last_of_a_burst(record) > 1.5
}

/// How many times as long the last of several connections at once waits as one alone.
pub(crate) fn last_of_a_burst(record: &Record) -> f64 {
    let alone = median_of(&record.fresh(), Call::first_wait);
    record.bursts().flatten().map(|c| ms(c.first_wait())).fold(0.0, f64::max) / alone.max(1e-3)
}
