//! Calls while the connections of the server's process to servers behind it were watched: what it waits for
//! there.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::time::Duration;

use super::wait::beyond_rtt;
use crate::call::{Call, ms};
use crate::probe::{BehindProbe, Block, Experiment, Probe};
use crate::record::Record;
use crate::stats::median;
use crate::upstream::UpstreamSeen;

/// Calls that wait less beyond a round trip are not looked at, milliseconds. Reason: a connection to another
/// machine that costs 2 ms, and a request over it.
const LEAST_MS: f64 = 4.0;
/// Single calls on a kept connection, and on new ones.
const KEPT: usize = 5;
const FRESH: usize = 2;
/// Times without any call, as a control.
const CONTROLS: usize = 3;
/// They take this part of the time at most, and are fewer where calls are slow. Reason: other experiments want
/// the rest.
const SHARE: u32 = 3;
/// Servers behind that are named.
const NAMED: usize = 4;
/// Calls that show a thing.
pub(crate) const ENOUGH: usize = 3;

/// Milliseconds that a call usually takes.
pub(crate) fn usual_ms(record: &Record) -> f64 {
    record.typical(|c| c.total)
}

/// So many times as long as a call takes, and what looks and pauses take besides.
pub(crate) fn turns(record: &Record, turns: f64) -> Duration {
    Duration::from_secs_f64((turns * usual_ms(record) + 40.0) / 1e3)
}

/// Single calls, and none, where that may tell anything and was not done yet.
pub(crate) fn singles(record: &Record) -> Vec<Block> {
    let settings = &record.settings;
    let may = settings.pid.is_some() && settings.may_repeat && settings.method == "GET" && !settings.forks;
    let is_slow = !record.group().is_empty() && beyond_rtt(record) >= LEAST_MS;
    if !may || !is_slow || record.tried(Experiment::Behind) {
        return Vec::new();
    }
    let fits = |calls: usize| turns(record, 1.0) * calls as u32 <= settings.budget / SHARE;
    let (kept, fresh, controls) = match () {
        () if fits(KEPT + FRESH + CONTROLS) => (KEPT, FRESH, CONTROLS),
        () if fits(ENOUGH + 1) => (ENOUGH, 0, 1),
        () => return Vec::new(),
    };
    let probe = |calls, fresh| {
        vec![Probe::Behind(BehindProbe { calls, fresh, beside: None, time: turns(record, 1.0) })]
    };
    let kept = (0..kept).map(|_| probe(1, false));
    let fresh = (0..fresh).map(|_| probe(1, true));
    kept.chain(fresh).chain((0..controls).map(|_| probe(0, false))).collect()
}

/// What was seen beside so many calls at once, none of another target.
pub(crate) fn seen(record: &Record, calls: u8) -> Vec<(&BehindProbe, &UpstreamSeen)> {
    let all = record.behind().filter_map(|(probe, seen)| Some((probe, seen?)));
    all.filter(|(probe, _)| probe.calls == calls && (calls > 0 || probe.beside.is_none())).collect()
}

/// Single calls that were answered, with what was seen.
pub(crate) fn answered(record: &Record) -> Vec<(&BehindProbe, &UpstreamSeen, &Call)> {
    let one = |(probe, seen)| -> Option<(&BehindProbe, &UpstreamSeen, &Call)> {
        let seen: &UpstreamSeen = seen;
        let call = seen.calls.first().filter(|c| c.answer().is_some())?;
        Some((probe, seen, call))
    };
    seen(record, 1).into_iter().filter_map(one).collect()
}

/// What single calls wait for behind the server.
#[derive(Clone, Debug)]
pub(crate) struct UpstreamWaited {
    /// The server behind that most of them wait for.
    pub(crate) peer: SocketAddr,
    /// All that one of them waits for longest.
    peers: BTreeMap<SocketAddr, usize>,
    /// Calls in which a connection there waited for an answer, and all.
    pub(crate) calls: (usize, usize),
    /// Milliseconds that it waited, in the middle of them.
    pub(crate) wait_ms: f64,
    /// The part of the call's wait in which it did, or was being opened.
    pub(crate) share: f64,
}

impl UpstreamWaited {
    /// Their addresses, in words.
    pub(crate) fn names(&self) -> String {
        let names: Vec<String> = self.peers.keys().take(NAMED).map(ToString::to_string).collect();
        names.join(" or ")
    }
}

/// Of one call: the server behind that it waits for longest, for how long a connection there waited for an
/// answer, and the same with being opened.
fn longest(seen: &UpstreamSeen, call: &Call) -> Option<(SocketAddr, f64, f64)> {
    let of = |peer: &SocketAddr| {
        let wait = ms(seen.time(*peer, call.total, |p| p.busy > 0));
        (*peer, wait, ms(seen.time(*peer, call.total, |p| p.busy + p.connecting > 0)))
    };
    seen.used.iter().map(of).filter(|(_, wait, _)| *wait > 0.0).max_by(|a, b| a.2.total_cmp(&b.2))
}

/// The servers behind that single calls wait for.
pub(crate) fn waited_for(record: &Record) -> Option<UpstreamWaited> {
    let answered = answered(record);
    let (mut waits, mut shares, mut peers) = (Vec::new(), Vec::new(), BTreeMap::new());
    for (_, seen, call) in &answered {
        let beyond = ms(call.wait_for_whole()) - record.rtt_ms();
        let found = longest(seen, call).filter(|_| beyond > 0.0);
        let (wait, any) = found.map_or((0.0, 0.0), |(peer, wait, any)| {
            *peers.entry(peer).or_insert(0) += 1;
            (wait, any)
        });
        waits.push(wait);
        shares.push((any / beyond.max(1e-3)).min(1.0));
    }
    let met = waits.iter().filter(|wait| **wait > 0.0).count();
    let (peer, _) = peers.iter().max_by_key(|(_, calls)| **calls).filter(|_| met >= ENOUGH)?;
    let (peer, calls) = (*peer, (met, waits.len()));
    Some(UpstreamWaited { peer, peers, calls, wait_ms: median(&waits), share: median(&shares) })
}
