//! The server has a pool of connections to a server behind it, and all of them are taken: a call waits until
//! another one gives its connection back.
//!
//! Experiment, where its process is on this machine (`--pid`): as many calls at once as the pool has
//! connections, one fewer, one more, and twice as many. Up to the pool's size the last of them waits as one
//! alone; with one more it waits for another to end, while exactly so many connections to one address have
//! sent and not received. What looks alike: workers (another target of the server waits as well, or the
//! server does not read), and a server behind that serves only so many (more connections are busy there).

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::time::Duration;

use super::{connection_limit, in_the_process, pinned, rate_limit};
use crate::call::{Call, ms};
use crate::evidence::{Grounds, Proof, Trial};
use crate::limits::AT_ONCE_BEHIND;
use crate::parts::{CausePage, FaultPlace, Forecast, PictureStep, RuleFix, ServerChange, fix};
use crate::probe::{BehindProbe, Block, Experiment, Probe};
use crate::record::Record;
use crate::rule::{AGAIN, Cause, Judged, Judgement, Rule, excluded, not_moved};
use crate::signs::behind::{self, UpstreamWaited};
use crate::stats::median;
use crate::times::CallPart;
use crate::upstream::{UpstreamLook, UpstreamSeen};
use crate::verdict::Verdict;
use crate::words::say;

pub(crate) static CAUSE: Cause = Cause {
    id: "upstream-pool",
    title: "calls wait for one of the server's few connections to the server behind it",
    fixes: FIXES,
    verify: AGAIN,
    place: FaultPlace::Process,
    part: CallPart::FirstByte,
    pause: None,
    server_changed: ServerChange::Stands,
    forecast: Forecast::Unseen,
    packets: None,
    page: PAGE,
    rule: Rule::Beside {
        hidden_by: &[
            // They make calls at once wait as well.
            &rate_limit::CAUSE,
            &connection_limit::CAUSE,
            &pinned::CAUSE,
            &in_the_process::THROTTLED,
            &in_the_process::CONTENDED,
            &in_the_process::GC,
            &in_the_process::BLOCKED,
        ],
        asks: &[],
        wants,
        judge,
    },
};

const PAGE: CausePage = CausePage {
    what: "The server keeps so many connections to its database, or to another service, and each call takes one for as long as its queries run. If all are \
         taken, the next call waits until one is given back, though server and database have nothing to do. It shows under load alone, and grows with \
         each slow query.",
    lanes: ["server", "database"],
    picture: &[
        PictureStep::To("query 10: the last connection"),
        PictureStep::Wait(40.0, "query 11 waits for one"),
        PictureStep::From("rows: it is free"),
        PictureStep::To("query 11"),
        PictureStep::Then(40.0, "the database works"),
        PictureStep::From("rows"),
    ],
    more: &[
        fix("Go", "db.SetMaxOpenConns; db.Stats().WaitCount and WaitDuration count such waits"),
        fix(
            "Django",
            "CONN_MAX_AGE with as many workers as the database has room for; OPTIONS pool max_size",
        ),
    ],
};

const FIXES: &[RuleFix] = &[
    RuleFix {
        software: "HikariCP",
        change: "maximumPoolSize (10) higher; leakDetectionThreshold finds code that keeps a connection while it does something else",
    },
    RuleFix {
        software: "SQLAlchemy, psycopg",
        change: "pool_size and max_overflow (5 and 10), max_size of ConnectionPool higher",
    },
    RuleFix {
        software: "pg in Node",
        change: "max of Pool (10) higher; client.release() as soon as the rows are there",
    },
    RuleFix {
        software: "HAProxy",
        change: "maxconn of the server line: beyond it calls wait in the proxy's queue",
    },
    RuleFix {
        software: "any pool",
        change: "shorter queries and transactions first; then more connections, as far as the database has room (max_connections, pgbouncer)",
    },
];

/// Calls at once at first.
const FEW: u8 = 8;
/// The largest pool that is looked at. Reason: of some more connections not all are seen busy at once, and
/// the rounds of a larger one are hundreds of calls.
const LARGEST: u16 = 24;
/// How often: of one call fewer and of twice as many, and of those that are compared.
const BESIDE: usize = 3;
const COMPARED: usize = 4;
/// Calls of another target alone.
const ELSEWHERE: usize = 3;
/// From this share of a call on a wait is another one's.
const STEP: f64 = 0.3;
/// From this share of the looks on something was so all the time.
const MOSTLY: f64 = 0.5;

/// The sizes of all rounds of calls at once, with what was seen.
fn rounds(record: &Record) -> Vec<(u8, &BehindProbe, &UpstreamSeen)> {
    let all = record.behind().filter_map(|(probe, seen)| Some((probe.calls, probe, seen?)));
    all.filter(|(calls, probe, _)| *calls >= 2 || *calls == 1 && probe.fresh).collect()
}

/// A call to another target alone was made: the rounds of the experiment were.
fn is_made(record: &Record) -> bool {
    record.behind().any(|(probe, _)| probe.calls == 0 && probe.beside.is_some())
}

/// The largest round, and the most connections that were busy in any.
fn most(record: &Record) -> Option<(u8, u16)> {
    let rounds = rounds(record);
    let largest = rounds.iter().map(|(calls, ..)| *calls).filter(|calls| *calls >= FEW).max()?;
    Some((largest, rounds.iter().map(|(.., seen)| seen.most_busy()).max().unwrap_or(0)))
}

/// The pool's size, if fewer connections were busy than there were calls.
fn pool_size(largest: u8, busy: u16) -> Option<u8> {
    let size = u8::try_from(busy.min(LARGEST + 1)).ok()?;
    (1..largest).contains(&size).then_some(size).filter(|size| u16::from(*size) <= LARGEST)
}

fn wants(record: &Record, judged: &Judged<'_>) -> Vec<Block> {
    if !record.tried(Experiment::Behind) {
        return behind::singles(record);
    }
    let given_up = record.given_up.contains(&Experiment::Behind);
    if given_up || behind::waited_for(record).is_none() || is_made(record) || judged.hides_it() {
        return Vec::new();
    }
    let probe = |calls: u8, beside: Option<Duration>, turns: f64| {
        let time = behind::turns(record, turns);
        vec![Probe::Behind(BehindProbe { calls, fresh: true, beside, time })]
    };
    match most(record) {
        None => vec![probe(FEW, None, 4.0)],
        Some((FEW, busy)) if busy >= u16::from(FEW) => vec![probe(AT_ONCE_BEHIND, None, 4.0)],
        Some((largest, busy)) => {
            let Some(size) = pool_size(largest, busy) else { return Vec::new() };
            let third = Duration::from_secs_f64(behind::usual_ms(record) / 3e3);
            let round = |calls: u8| {
                let full = calls > size;
                probe(
                    calls,
                    full.then_some(third),
                    f64::from(calls.div_ceil(size)) + f64::from(u8::from(full)),
                )
            };
            let twice = size.saturating_mul(2).min(AT_ONCE_BEHIND);
            let sizes = [(size - 1, BESIDE), (size, COMPARED), (size + 1, COMPARED), (twice, BESIDE)];
            let sizes =
                sizes.into_iter().filter(|(calls, _)| *calls > 0 && (*calls <= size + 1 || *calls == twice));
            let repeat = |(calls, times)| std::iter::repeat_with(move || round(calls)).take(times);
            let alone = std::iter::repeat_with(|| probe(0, Some(Duration::ZERO), 1.0)).take(ELSEWHERE);
            sizes.flat_map(repeat).chain(alone).collect()
        }
    }
}

/// Milliseconds that the last call of a round waited.
fn last(seen: &UpstreamSeen) -> f64 {
    seen.calls.iter().filter(|c| c.answer().is_some()).map(|c| ms(c.first_wait())).fold(0.0, f64::max)
}

/// What looks show while all connections of the pool are busy and calls wait.
struct FullLooks {
    /// Rounds of more calls than the pool has connections, and those in which exactly so many were busy.
    rounds: (usize, usize),
    looks: usize,
    /// Looks at which another connection to the server behind had nothing to do.
    idle: usize,
    /// Looks at which a call's request was not read.
    unread: usize,
    /// Addresses with busy connections.
    peers: BTreeSet<SocketAddr>,
}

fn full(record: &Record, size: u8) -> FullLooks {
    let mut full = FullLooks { rounds: (0, 0), looks: 0, idle: 0, unread: 0, peers: BTreeSet::new() };
    for (_, _, seen) in rounds(record).into_iter().filter(|(calls, ..)| *calls > size) {
        full.rounds.0 += 1;
        full.rounds.1 += usize::from(seen.most_busy() == u16::from(size));
        let busy = |look: &&UpstreamLook| look.peers.values().map(|p| p.busy).sum::<u16>() == u16::from(size);
        for look in seen.looks.iter().filter(busy) {
            full.looks += 1;
            let peers = look.peers.iter().filter(|(_, at)| at.busy > 0);
            full.idle += usize::from(peers.clone().any(|(_, at)| at.open > at.busy + at.unclear));
            full.unread += usize::from(look.unread > 0);
            full.peers.extend(peers.map(|(peer, _)| *peer));
        }
    }
    full
}

/// What a call of another target says while all connections are busy.
#[derive(Clone, Copy, PartialEq)]
enum Elsewhere {
    /// It is answered as if there were no other calls.
    Quick,
    /// It waits as well.
    Waits,
    /// It needs the server behind, too, or it has no answer: it tells nothing.
    Nothing,
}

fn elsewhere(record: &Record, peer: SocketAddr, size: u8) -> Elsewhere {
    let took = |call: &Call| ms(call.total);
    let (mut alone, mut beside, mut asks) = (Vec::new(), Vec::new(), false);
    for (probe, seen) in record.behind().filter_map(|(probe, seen)| Some((probe, seen?))) {
        let Some(call) = seen.beside.as_ref().filter(|c| c.answer().is_some()) else { continue };
        match probe.calls {
            0 => {
                alone.push(took(call));
                asks |= seen.used.contains(&peer);
            }
            calls if calls > size => beside.push(took(call)),
            _ => {}
        }
    }
    let usual = behind::usual_ms(record);
    if asks || alone.len() < 2 || beside.len() < 2 || median(&alone) > STEP * usual {
        return Elsewhere::Nothing;
    }
    match median(&beside) - median(&alone) {
        longer if longer >= STEP * usual => Elsewhere::Waits,
        longer if longer <= STEP / 2.0 * usual => Elsewhere::Quick,
        _ => Elsewhere::Nothing,
    }
}

fn judge(record: &Record, judged: &Judged<'_>) -> Judgement {
    let Some(waits) = behind::waited_for(record) else { return Judgement::Silent };
    let Some((largest, busy)) = most(record).filter(|_| !judged.hides_it()) else { return Judgement::Silent };
    let Some(size) = pool_size(largest, busy) else {
        return excluded(format!(
            "{largest} calls at once had {busy} connections to {} busy at once: no pool of up to {} is used up then",
            waits.peer,
            LARGEST.min(u16::from(largest) - 1)
        ));
    };
    let times = |n: u8| -> Vec<f64> {
        rounds(record).iter().filter(|(calls, ..)| *calls == n).map(|(.., seen)| last(seen)).collect()
    };
    let name = format!("{} calls at once", u16::from(size) + 1);
    let trial = Trial::of(&name, &format!("{size} at once"), times(size + 1), times(size));
    let Some(trial) = trial.filter(|_| is_made(record)) else {
        return Judgement::Open(format!(
            "unclear: of {largest} calls at once at most {size} connections to {} were busy; rounds of {size} and of one more would tell (--budget)",
            waits.peer
        ));
    };
    let full = full(record, size);
    if let Some(other) = alike(record, &full, &waits, size) {
        return other;
    }
    let step = (STEP * behind::usual_ms(record)).max(2.0);
    if !trial.moved(step) {
        let words = format!(
            "the last of {} calls at once waits no longer than the last of {size}",
            u16::from(size) + 1
        );
        return not_moved(&trial, step, &words);
    }
    named(record, trial, &full, waits.peer, size, times)
}

/// What looks like a pool and is none.
fn alike(record: &Record, full: &FullLooks, waits: &UpstreamWaited, size: u8) -> Option<Judgement> {
    let mostly = |n: usize| n as f64 > MOSTLY * full.looks as f64;
    if full.looks == 0 || full.rounds.1 + 1 < full.rounds.0 {
        return Some(excluded(format!(
            "calls at once have no fixed number of connections to {} busy: up to {size}, in {} of {} rounds",
            waits.peer, full.rounds.1, full.rounds.0
        )));
    }
    if mostly(full.unread) {
        return Some(excluded(format!(
            "while {size} calls are at work the server does not read the next one: its workers are used up, and no pool"
        )));
    }
    if mostly(full.idle) {
        return Some(excluded(format!(
            "while {size} connections to {} are busy and calls wait, it has others that are idle",
            waits.peer
        )));
    }
    if full.peers.len() > 1 {
        let all: Vec<String> = full.peers.iter().map(ToString::to_string).collect();
        return Some(Judgement::Open(format!(
            "unclear: at most {size} connections are busy at once, to {} together: pools of their own, or one limit for all",
            all.join(" and ")
        )));
    }
    (elsewhere(record, waits.peer, size) == Elsewhere::Waits).then(|| {
        excluded(format!(
            "while {size} calls are at work, a call of another target, which asks nobody behind, waits as well: the server's workers are used up"
        ))
    })
}

fn named(
    record: &Record,
    trial: Trial,
    full: &FullLooks,
    peer: SocketAddr,
    size: u8,
    times: impl Fn(u8) -> Vec<f64>,
) -> Judgement {
    let mut sizes: Vec<u8> = rounds(record).iter().map(|(calls, ..)| *calls).collect();
    sizes.sort_unstable();
    sizes.dedup();
    let near = sizes.into_iter().filter(|n| *n + 1 >= size);
    let doses: Vec<String> = near.map(|n| format!("{n}: {}", say(median(&times(n))))).collect();
    let cost = trial.effect.value;
    let verdict = Verdict::new(&CAUSE, cost, Grounds::Moved(trial))
        .titled(&format!("calls wait for one of a pool of {size} connections to {peer}"))
        .saying(format!(
            "while calls waited, exactly {size} connections of the process to {peer} had sent and not received, and it had no other there, in {} of \
             {} rounds (sock_diag, TCP_INFO)",
            full.rounds.1, full.rounds.0
        ))
        .saying(format!("the last of so many calls at once waits: {}", doses.join(", ")));
    let verdict = match elsewhere(record, peer, size) {
        Elsewhere::Quick => verdict.saying("a call of another target is answered at once meanwhile: the server has workers left"),
        _ => verdict
            .at_most(Proof::Likely)
            .saying("no other target of the server was found that needs no connection there: a limit of its workers is not excluded"),
    };
    Judgement::Named(Box::new(verdict))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use crate::call::ProbeResponse;
    use crate::probe::{CallProbe, Lane, Observation};
    use crate::record::Settings;
    use crate::rule::Judgements;
    use crate::upstream::PeerLook;

    const PEER: ([u8; 4], u16) = ([10, 0, 0, 7], 5432);
    /// What a query takes, milliseconds.
    const QUERY: f64 = 40.0;

    /// A server, and how it does its calls.
    #[derive(Clone, Copy)]
    struct Pooled {
        /// Calls that are served at once.
        size: u8,
        /// Connections that have nothing to do, beside those that are busy.
        spare: u16,
        /// It does not read the calls that wait.
        unread: u16,
        /// A call of another target waits with the others.
        elsewhere_waits: bool,
        /// Another target asks the database, too.
        elsewhere_asks: bool,
        /// Every second connection is to another address.
        two: bool,
        /// Twice as long each time it is asked for one more at once: the database itself is slow then.
        slows: bool,
    }

    const POOL: Pooled = Pooled {
        size: 10,
        spare: 0,
        unread: 0,
        elsewhere_waits: false,
        elsewhere_asks: false,
        two: false,
        slows: false,
    };

    fn call(wait: f64) -> Call {
        let wait = Duration::from_secs_f64(wait / 1e3);
        let answer = ProbeResponse { status: 200, reusable: true, ..ProbeResponse::default() };
        Call { fresh: true, wait, total: wait, end: Some(Ok(answer)), ..Call::default() }
    }

    /// What is seen beside so many calls.
    fn seen(server: Pooled, probe: &BehindProbe) -> UpstreamSeen {
        let calls: Vec<Call> = (0..probe.calls)
            .map(|n| {
                let turns = if server.slows {
                    1 + u32::from(probe.calls) / 4
                } else {
                    1 + u32::from(n / server.size)
                };
                call(f64::from(turns) * QUERY + f64::from(n % 3))
            })
            .collect();
        let busy = u16::from(probe.calls.min(server.size));
        let look = |n: u64| {
            let mut peers = BTreeMap::new();
            let here = if server.two { busy.div_ceil(2) } else { busy };
            let at = |busy| PeerLook { open: busy + server.spare, busy, ..PeerLook::default() };
            peers.insert(PEER.into(), at(here));
            if server.two {
                peers.insert(([10, 0, 0, 8], 5432).into(), at(busy - here));
            }
            let waits = probe.calls > server.size;
            UpstreamLook {
                at: Duration::from_millis(2 * n),
                peers,
                unread: if waits { server.unread } else { 0 },
            }
        };
        let looks = (0..20).map(look).collect();
        let wait = if server.elsewhere_waits && probe.calls > server.size { QUERY } else { 0.5 };
        let used = if probe.calls > 0 || server.elsewhere_asks { vec![PEER.into()] } else { Vec::new() };
        UpstreamSeen { calls, beside: probe.beside.map(|_| call(wait)), looks, used, opened: Vec::new() }
    }

    /// The judgement once nothing more is wanted, and the largest number of calls at once.
    fn judged(server: Pooled) -> (Judgement, u8) {
        let mut record = Record::new(Settings { pid: Some(7), ..Settings::default() });
        for _ in 0..8 {
            let probe = CallProbe::plain(Experiment::Observe, 0, Lane::Kept(0));
            let call = Call { fresh: false, ..call(QUERY) };
            record.push(Probe::Call(Box::new(probe)), Observation::Call(Box::new(call)));
        }
        let mut largest = 0;
        for _ in 0..8 {
            let all: [&Cause; 8] = [
                &CAUSE,
                &rate_limit::CAUSE,
                &connection_limit::CAUSE,
                &pinned::CAUSE,
                &in_the_process::THROTTLED,
                &in_the_process::CONTENDED,
                &in_the_process::GC,
                &in_the_process::BLOCKED,
            ];
            let judgements = Judgements::new(&record, &all);
            let wanted = judgements.wanted(&CAUSE);
            if wanted.is_empty() {
                return (judgements.of(CAUSE.id).clone(), largest);
            }
            for probe in wanted.into_iter().flatten() {
                let Probe::Behind(behind) = &probe else { unreachable!("only these") };
                largest = largest.max(behind.calls);
                let seen = seen(server, behind);
                record.push(probe, Observation::Behind(Some(Box::new(seen))));
            }
        }
        unreachable!("it wants ever more");
    }

    #[test]
    fn a_pool_is_proved_by_the_step_at_its_size() {
        for size in [1, 2, 5, 10, 16, 24] {
            let (judged, largest) = judged(Pooled { size, ..POOL });
            let Judgement::Named(verdict) = &judged else { panic!("{size}: {judged:?}") };
            assert_eq!(verdict.proof(), Proof::Proved, "{size}: {verdict:?}");
            assert!((verdict.cost_ms() - QUERY).abs() < 3.0, "{size}: {verdict:?}");
            assert!(verdict.title().ends_with(&format!("a pool of {size} connections to 10.0.0.7:5432")));
            assert!(largest <= AT_ONCE_BEHIND, "{largest}");
        }
    }

    #[test]
    fn what_looks_alike_is_not_named() {
        let alike = [
            ("workers that read late", Pooled { unread: 1, ..POOL }),
            ("workers", Pooled { elsewhere_waits: true, ..POOL }),
            ("workers with spare connections", Pooled { spare: 2, ..POOL }),
            ("two addresses", Pooled { two: true, ..POOL }),
            ("a pool that never fills", Pooled { size: 50, ..POOL }),
            ("one that hardly fills", Pooled { size: 30, ..POOL }),
            ("a slow database", Pooled { size: 50, slows: true, ..POOL }),
        ];
        for (name, server) in alike {
            let (judged, _) = judged(server);
            assert!(!matches!(judged, Judgement::Named(_)), "{name}: {judged:?}");
            assert_ne!(judged, Judgement::Silent, "{name}");
        }
        let (asks, _) = judged(Pooled { elsewhere_asks: true, ..POOL });
        assert!(matches!(&asks, Judgement::Named(v) if v.proof() == Proof::Likely), "{asks:?}");
    }

    #[test]
    fn only_a_get_to_a_process_of_this_machine_is_looked_at() {
        let slow = |settings: Settings| {
            let mut record = Record::new(settings);
            for _ in 0..8 {
                let probe = CallProbe::plain(Experiment::Observe, 0, Lane::Kept(0));
                let call = Call { fresh: false, ..call(QUERY) };
                record.push(Probe::Call(Box::new(probe)), Observation::Call(Box::new(call)));
            }
            behind::singles(&record).len()
        };
        let pid = Some(7);
        assert!(slow(Settings { pid, ..Settings::default() }) > 0);
        assert_eq!(slow(Settings::default()), 0);
        assert_eq!(slow(Settings { pid, method: "HEAD".to_owned(), ..Settings::default() }), 0);
        assert_eq!(slow(Settings { pid, may_repeat: false, ..Settings::default() }), 0);
    }
}
