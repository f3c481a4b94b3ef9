//! Connections are spread over workers (by SO_REUSEPORT's hash, by a load balancer, round robin)
//! and stay there, and one of the workers is busy.
//!
//! Symptom: some connections respond late and others at once. Experiment: several calls on each of
//! several new connections. The first call classifies each connection. If the later calls on it
//! agree with the first, the connection decides, and opening another one helps. A server whose
//! times vary from call to call shows no difference between connections.

use super::server_think::WORK_MS;
use super::{
    Block, Cause, Fix, Judgement, accept_queue, bufferbloat, connection_limit, excluded, not_moved, say,
    server_queueing,
};
use crate::call::{Call, ms};
use crate::evidence::{Grounds, Trial};
use crate::probe::{CallProbe, Experiment, Lane, Probe};
use crate::record::{Record, median_of};
use crate::verdict::Verdict;

pub(super) static CAUSE: Cause = Cause {
    id: "pinned-to-busy-worker",
    title: "some connections are at a worker that is busy: every call on them is late, on others none",
    fixes: FIXES,
    verify: super::AGAIN,
    wants,
    judge,
};

const FIXES: &[Fix] = &[
    Fix {
        software: "SO_REUSEPORT servers",
        change: "work that blocks off the workers that accept; or hand connections out by load (SO_ATTACH_REUSEPORT_EBPF, one accepting thread)",
    },
    Fix {
        software: "nginx",
        change: "listen without reuseport, or accept_mutex on, where workers are unevenly busy; aio threads for slow disks",
    },
    Fix { software: "Envoy", change: "connection_balance_config: exact_balance on the listener" },
    Fix {
        software: "Node cluster, PM2",
        change: "heavy requests to worker_threads: a worker keeps the connections that it was given",
    },
    Fix {
        software: "Netty, Vert.x",
        change: "blocking work off the event loop that owns the connection (EventExecutorGroup, executeBlocking)",
    },
    Fix {
        software: "balancers by connection (IPVS, Kubernetes services, HAProxy in TCP mode)",
        change: "leastconn instead of round robin or a hash, or balance requests (HTTP mode); look at the slow backend",
    },
    Fix {
        software: "the callers",
        change: "several connections, each closed after some requests (keepalive_requests, a pool's maximum age)",
    },
];

/// New connections of a round and calls on each: the first call classifies the connection, the
/// others test that. If the first round shows a difference, a second one always follows. Calls on
/// one connection are not independent samples, so each connection counts once, and a single slow
/// one may be chance. By a hash, all six of a round can also meet workers of one kind.
const CONNECTIONS: u8 = 6;
const CALLS: usize = 2;
/// Connections of either kind that it takes.
const EACH: usize = 2;

/// Time that a call waits beyond a round trip.
fn beyond(record: &Record, call: &Call) -> f64 {
    (ms(call.wait) - record.rtt_ms()).max(0.0)
}

/// Some are quick, and some slow.
fn split(times: &[f64]) -> bool {
    let least = times.iter().copied().fold(f64::INFINITY, f64::min);
    let most = times.iter().copied().fold(0.0, f64::max);
    most - least >= WORK_MS && least <= 0.5 * most
}

/// Connections answered differently: the kept one and new ones, or new ones among themselves.
fn sign(record: &Record) -> bool {
    split(&met(record))
}

/// One busy worker makes two groups with a gap between them; work of varying length fills the
/// range.
fn two_kinds(record: &Record) -> bool {
    let mut all = met(record);
    all.sort_by(f64::total_cmp);
    let widest = all.windows(2).map(|w| w[1] - w[0]).fold(0.0, f64::max);
    let range = all.last().zip(all.first()).map_or(0.0, |(most, least)| most - least);
    widest >= WORK_MS && 2.0 * widest > range
}

/// Times that calls waited on the connections before the experiment.
fn met(record: &Record) -> Vec<f64> {
    let all = |calls: Vec<&Call>| calls.iter().map(|c| beyond(record, c)).collect::<Vec<_>>();
    let mut fresh = all(record.fresh());
    let kept = median_of(&record.reused(), |c| c.wait) - record.rtt_ms();
    if kept >= WORK_MS {
        fresh.push(kept);
        // Calls at once show connections that were not met before.
        fresh.extend(all(record.bursts().flatten().filter(|c| c.answer().is_some()).collect()));
    }
    fresh
}

fn wants(record: &Record) -> Vec<Block> {
    // More rounds come last: rare causes need their calls first.
    if record.tried(Experiment::PerConnection) { Vec::new() } else { round(record) }
}

fn round(record: &Record) -> Vec<Block> {
    let other = connection_limit::named(record) || bufferbloat::named(record);
    let lost = !accept_queue::syns(record).0.is_empty();
    let made = record.by_connection(Experiment::PerConnection).len();
    let enough = match made {
        0 => record.tried(Experiment::PerConnection),
        _ => made > usize::from(CONNECTIONS) || !(two_kinds(record) || seems(record)),
    };
    // The second round takes what is left.
    let left = record.settings.calls.saturating_sub(record.calls_made()) / CALLS;
    let connections = if made == 0 {
        CONNECTIONS
    } else {
        u8::try_from(left).map_or(CONNECTIONS, |left| left.min(CONNECTIONS))
    };
    if other || lost || enough || !sign(record) || !record.settings.may_repeat {
        return Vec::new();
    }
    let first = super::lane_of(Experiment::PerConnection) + made as u8;
    let block = |n: u8| {
        let lane = Lane::Kept(first + n);
        let mut probe = CallProbe::plain(Experiment::PerConnection, 0, lane);
        probe.writes = record.settings.writes;
        let mut block = vec![Probe::Call(Box::new(probe.clone())); CALLS - 1];
        // A server may have few connections to give.
        probe.closes = true;
        block.push(Probe::Call(Box::new(probe)));
        block
    };
    (0..connections).map(block).collect()
}

/// The same after concurrent calls have shown more connections, and again if the first round
/// decided nothing.
pub(super) fn wants_late(record: &Record) -> Vec<Block> {
    let line = server_queueing::wants(record);
    if line.is_empty() { round(record) } else { line }
}

/// The result of the experiment.
enum Sorted {
    /// It was not made.
    Untried,
    /// The connections' first calls do not differ.
    Alike,
    /// There are fewer of one kind than can be compared.
    Single(usize),
    /// Later calls on slow connections against later calls on quick ones; how many connections
    /// there were of each.
    Apart(Trial, usize, usize),
}

fn sorted(record: &Record) -> Sorted {
    let connections: Vec<Vec<f64>> = record
        .by_connection(Experiment::PerConnection)
        .iter()
        .filter(|calls| calls.len() == CALLS && calls.iter().all(|c| c.answer().is_some() && !c.lossy()))
        .map(|calls| calls.iter().map(|c| beyond(record, c)).collect())
        .collect();
    if connections.len() * 2 < usize::from(CONNECTIONS) {
        return Sorted::Untried;
    }
    let first: Vec<f64> = connections.iter().map(|calls| calls[0]).collect();
    if !split(&first) {
        return Sorted::Alike;
    }
    let middle = f64::midpoint(
        first.iter().copied().fold(f64::INFINITY, f64::min),
        first.iter().copied().fold(0.0, f64::max),
    );
    let (slow, quick): (Vec<_>, Vec<_>) = connections.iter().partition(|calls| calls[0] > middle);
    let later = |all: &[&Vec<f64>]| all.iter().flat_map(|calls| &calls[1..]).copied().collect::<Vec<f64>>();
    let name = "calls on another connection";
    match Trial::of(name, "a connection whose first call was quick", later(&slow), later(&quick)) {
        Some(trial) => Sorted::Apart(trial, slow.len(), quick.len()),
        None => Sorted::Single(slow.len() + quick.len()),
    }
}

/// The connection decides: every later call on a slow one is slower than all on quick ones, but for
/// one in ten that a hiccup of a machine has touched.
fn decides(trial: &Trial) -> bool {
    let hiccups = (trial.without.len() + trial.with.len()) / 10;
    let (mut slow, mut quick) = (trial.without.clone(), trial.with.clone());
    slow.sort_by(f64::total_cmp);
    quick.sort_by(|a, b| b.total_cmp(a));
    let apart = (0..=hiccups)
        .any(|n| slow.get(n).zip(quick.get(hiccups - n)).is_some_and(|(least, most)| *least > 1.5 * most));
    trial.moved(WORK_MS) && apart
}

/// A first round that a second one is worth.
fn seems(record: &Record) -> bool {
    match sorted(record) {
        Sorted::Apart(trial, ..) => trial.effect.value >= WORK_MS,
        Sorted::Single(_) => true,
        Sorted::Untried | Sorted::Alike => false,
    }
}

/// Enough connections of either kind, in two rounds.
fn enough(record: &Record, slow: usize, quick: usize) -> bool {
    let made = record.by_connection(Experiment::PerConnection).len();
    slow >= EACH && quick >= EACH && made > usize::from(CONNECTIONS)
}

/// It is why calls are slow.
pub(super) fn named(record: &Record) -> bool {
    matches!(sorted(record), Sorted::Apart(trial, slow, quick) if decides(&trial) && enough(record, slow, quick))
}

fn unclear(few: usize, made: usize) -> Judgement {
    Judgement::Open(format!(
        "unclear: {few} of {made} connections differed from the others; it takes {EACH} of either kind in two rounds, and {} more calls \
         would tell",
        usize::from(CONNECTIONS) * CALLS
    ))
}

fn judge(record: &Record) -> Judgement {
    let (trial, slow, quick) = match sorted(record) {
        Sorted::Untried => return Judgement::Silent,
        Sorted::Alike => {
            let made = record.by_connection(Experiment::PerConnection).len();
            return excluded(format!("the first calls of {made} connections take alike"));
        }
        Sorted::Single(made) => return unclear(1, made),
        Sorted::Apart(trial, ..) if !decides(&trial) => {
            let words = format!(
                "it does not depend on the connection: where its first call was slow the next one took {}, else {}",
                say(trial.before_ms()),
                say(trial.after_ms())
            );
            return not_moved(&trial, WORK_MS, &words);
        }
        Sorted::Apart(_, slow, quick) if !enough(record, slow, quick) => {
            return unclear(slow.min(quick), slow + quick);
        }
        Sorted::Apart(trial, slow, quick) => (trial, slow, quick),
    };
    let words = format!(
        "{slow} of {} new connections were slow at their first call and at the next one ({} beyond a round trip), the others at none \
         ({})",
        slow + quick,
        say(trial.before_ms()),
        say(trial.after_ms())
    );
    let kept = median_of(&record.reused(), |c| c.wait) - record.rtt_ms();
    let met = if kept >= WORK_MS {
        format!(
            "the connection that was kept for the first look met a busy one: each of its calls waited {}",
            say(kept)
        )
    } else {
        "the connection that was kept for the first look met a quick one".to_owned()
    };
    let cost = trial.effect.value;
    Judgement::Named(Box::new(Verdict::new(&CAUSE, cost, Grounds::Moved(trial)).saying(words).saying(met)))
}
