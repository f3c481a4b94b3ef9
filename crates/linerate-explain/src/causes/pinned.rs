//! Connections are spread over workers (by SO_REUSEPORT's hash, by a load balancer, round robin)
//! and stay there, and one of the workers is busy.
//!
//! Symptom: some connections respond late and others at once. Experiment: several calls on each of
//! several new connections. The first call classifies each connection. If the later calls on it
//! agree with the first, the connection decides, and opening another one helps. A server whose
//! times vary from call to call shows no difference between connections.

use super::connection_limit;
use crate::evidence::{Grounds, Trial};
use crate::parts::{CausePage, ENDS, FaultPlace, Forecast, PictureStep, RuleFix, ServerChange};
use crate::probe::{Block, Experiment};
use crate::record::{Record, median_of};
use crate::rule::{AGAIN, Cause, Judged, Judgement, Rule, excluded, not_moved};
use crate::signs::by_connection::{
    self, CALLS, CONNECTIONS, EACH, Sorted, decides, enough_of_each, made, sorted,
};
use crate::signs::wait::WORK_MS;
use crate::times::CallPart;
use crate::verdict::Verdict;
use crate::words::say;

pub(crate) static CAUSE: Cause = Cause {
    id: "pinned-to-busy-worker",
    title: "some connections are at a worker that is busy: every call on them is late, on others none",
    fixes: FIXES,
    verify: AGAIN,
    place: FaultPlace::Process,
    part: CallPart::Call,
    pause: Some("its worker is busy with others"),
    server_changed: ServerChange::Unequal,
    forecast: Forecast::Lever,
    packets: None,
    page: PAGE,
    rule: Rule::Beside {
        hidden_by: &[],
        // Connections that wait for another to end answer late, too, whichever worker has them.
        asks: &[&connection_limit::CAUSE],
        wants,
        judge: |record, _| judge(record),
    },
};

const PAGE: CausePage = CausePage {
    what: "The server has several workers, and a connection belongs to one of them for its whole life. Who was given to a worker that is busy waits at every \
         call, while the others are idle. Another connection may be quick.",
    lanes: ENDS,
    picture: &[
        PictureStep::To("request, on a connection of worker 1"),
        PictureStep::Wait(60.0, "worker 1 is busy; worker 2 is idle"),
        PictureStep::From("answer"),
    ],
    more: &[],
};

const FIXES: &[RuleFix] = &[
    RuleFix {
        software: "SO_REUSEPORT servers",
        change: "work that blocks off the workers that accept; or hand connections out by load (SO_ATTACH_REUSEPORT_EBPF, one accepting thread)",
    },
    RuleFix {
        software: "nginx",
        change: "listen without reuseport, or accept_mutex on, where workers are unevenly busy; aio threads for slow disks",
    },
    RuleFix { software: "Envoy", change: "connection_balance_config: exact_balance on the listener" },
    RuleFix {
        software: "Node cluster, PM2",
        change: "heavy requests to worker_threads: a worker keeps the connections that it was given",
    },
    RuleFix {
        software: "Netty, Vert.x",
        change: "blocking work off the event loop that owns the connection (EventExecutorGroup, executeBlocking)",
    },
    RuleFix {
        software: "balancers by connection (IPVS, Kubernetes services, HAProxy in TCP mode)",
        change: "leastconn instead of round robin or a hash, or balance requests (HTTP mode); look at the slow backend",
    },
    RuleFix {
        software: "the callers",
        change: "several connections, each closed after some requests (keepalive_requests, a pool's maximum age)",
    },
];

fn wants(record: &Record, judged: &Judged<'_>) -> Vec<Block> {
    // The last rule of all wants more rounds: rare causes need their calls first.
    if record.tried(Experiment::PerConnection) || judged.names(&connection_limit::CAUSE) {
        Vec::new()
    } else {
        by_connection::round(record)
    }
}

fn unclear(few: usize, made: usize) -> Judgement {
    Judgement::Open(format!(
        "unclear: {few} of {made} connections differed from the others; it takes {EACH} of either kind in two rounds, and {} more calls \
         would tell",
        usize::from(CONNECTIONS) * CALLS
    ))
}

/// Connections of either kind, where programs compete for this machine's processors.
const CONTENDED_CONNECTIONS: usize = 3;
/// How many times as long the slow ones wait there, with the round trip.
const CONTENDED_TIMES: f64 = 2.0;

/// The calls of a connection follow one another: what slows this machine down for a moment makes both
/// of them slow.
fn stand_out(trial: &Trial, rtt: f64, slow: usize, quick: usize) -> bool {
    slow.min(quick) >= CONTENDED_CONNECTIONS
        && rtt + trial.before_ms() >= CONTENDED_TIMES * (rtt + trial.after_ms())
}

fn judge(record: &Record) -> Judgement {
    let (trial, slow, quick) = match sorted(record) {
        Sorted::Untried => return Judgement::Silent,
        Sorted::Alike => {
            return excluded(format!("the first calls of {} connections take alike", made(record)));
        }
        Sorted::Single(made) => return unclear(1, made),
        Sorted::Apart(trial, ..) if !decides(&trial) => {
            let says = if trial.excludes(WORK_MS) { "it does not depend on the connection: " } else { "" };
            let words = format!(
                "{says}where a connection's first call was slow the next one took {}, else {}",
                say(trial.before_ms()),
                say(trial.after_ms())
            );
            return not_moved(&trial, WORK_MS, &words);
        }
        Sorted::Apart(_, slow, quick) if !enough_of_each(made(record), slow, quick) => {
            return unclear(slow.min(quick), slow + quick);
        }
        Sorted::Apart(trial, slow, quick)
            if record.is_contended() && !stand_out(&trial, record.rtt_ms(), slow, quick) =>
        {
            return Judgement::Open(format!(
                "unclear: {slow} of {} connections were slow ({}, the others {}), and other programs compete for this machine's processors, \
                 which makes calls slow that follow one another; a quieter machine would tell",
                slow + quick,
                say(trial.before_ms()),
                say(trial.after_ms())
            ));
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
