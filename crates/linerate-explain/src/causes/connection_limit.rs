//! The server works on a limited number of connections at once: it accepts a further one, which
//! waits until another one ends.
//!
//! Symptom: the first call of a connection waits for its response, and later ones on it do not.
//! Experiment: a call on a new connection while we hold idle ones beside it, few at first. If these
//! use up the limit, the response comes when we close them and not before. If we close them 200 ms
//! later, it comes 200 ms later: slope 1. Idle connections don't affect a server that is slow to
//! accept, that looks up names, or that queues requests.

use std::time::Duration;

use crate::call::{Call, ms};
use crate::evidence::{Grounds, Trial};
use crate::limits::{HOLD_TIME, IDLE};
use crate::parts::{CausePage, ENDS, FaultPlace, Forecast, PictureStep, RuleFix, ServerChange, fix};
use crate::probe::{Block, Experiment, HeldCall, Probe};
use crate::record::Record;
use crate::rule::{AGAIN, Cause, Judgement, Rule, excluded};
use crate::signs::new_connections::{WAITED_MS, last_of_a_burst, starved, syns, waited};
use crate::stats::{Estimate, slope};
use crate::times::CallPart;
use crate::verdict::Verdict;
use crate::words::say;

pub(crate) static CAUSE: Cause = Cause {
    id: "connection-limit",
    title: "the server serves only so many connections at once: a new one waits until another is closed",
    fixes: FIXES,
    verify: AGAIN,
    place: FaultPlace::Process,
    part: CallPart::New,
    pause: Some("until a connection is free"),
    server_changed: ServerChange::TakenBack,
    forecast: Forecast::Lever,
    packets: None,
    page: PAGE,
    rule: Rule::Alone { wants, judge },
};

const PAGE: CausePage = CausePage {
    what: "The server serves only so many connections at a time, and a connection that is idle counts. New ones wait until another is closed. Servers with a \
         process or thread for each connection are so: some idle browsers are enough to fill them.",
    lanes: ENDS,
    picture: &[
        PictureStep::To("SYN"),
        PictureStep::From("SYN, ACK"),
        PictureStep::To("request"),
        PictureStep::Wait(120.0, "until another connection is closed"),
        PictureStep::From("answer"),
    ],
    more: &[fix(
        "JDK HttpServer",
        "an executor with more threads; jdk.httpserver.maxConnections where it is set",
    )],
};

const FIXES: &[RuleFix] = &[
    RuleFix {
        software: "Apache httpd",
        change: "the event MPM instead of prefork; MaxRequestWorkers higher; KeepAliveTimeout 2 to 5 s, since each idle connection holds a worker",
    },
    RuleFix {
        software: "gunicorn, uWSGI",
        change: "sync workers serve one connection each: -k gthread --threads N, or more workers, behind a proxy that keeps the connections",
    },
    RuleFix {
        software: "Tomcat",
        change: "the NIO connector, maxConnections and maxThreads higher, keepAliveTimeout shorter",
    },
    RuleFix {
        software: "HAProxy",
        change: "maxconn of the frontend and of the server line: beyond it connections wait in its queue",
    },
    RuleFix {
        software: "nginx",
        change: "worker_connections, worker_rlimit_nofile; limit_conn where somebody set it",
    },
    RuleFix { software: "Python http.server", change: "ThreadingHTTPServer instead of HTTPServer" },
    RuleFix {
        software: "the callers",
        change: "a smaller pool that is used more, and idle connections closed sooner (idle time-out below the server's)",
    },
    RuleFix {
        software: "any server",
        change: "more connections served at once (workers, threads, or an event loop), and idle ones closed sooner",
    },
];

/// Calls made at once before anything is held.
const AT_ONCE: u8 = 6;
/// How long beyond what a call takes at most the idle connections are held: by turns.
const DOSES_MS: [u64; 3] = [50, 150, 300];
/// The same, to see whether this many idle connections make a call wait at all.
const TRY_MS: u64 = 200;
/// Slope above which a response follows our closing.
const FOLLOWS: f64 = 0.6;

/// From a call's start to its first byte.
fn first_byte(call: &Call) -> f64 {
    ms(call.opening() + call.send + call.wait)
}

fn sign(record: &Record) -> bool {
    let waits = waited(record) >= WAITED_MS || starved(record) > 0;
    waits && syns(record).0.is_empty()
}

/// Longest time of a call on a new connection while none is held.
fn usual(record: &Record) -> f64 {
    let fresh = record.fresh().into_iter().map(first_byte).fold(0.0, f64::max);
    fresh.max(2.0 * record.rtt_ms() + 20.0)
}

/// The call was answered only after the idle connections had been closed.
fn kept_waiting(held: &HeldCall) -> bool {
    held.idle > 0
        && held.call.answer().is_some()
        && held.released.is_some_and(|at| first_byte(&held.call) >= ms(at))
}

fn wants(record: &Record) -> Vec<Block> {
    if !sign(record) || !record.settings.may_repeat || record.given_up.contains(&Experiment::Held) {
        return Vec::new();
    }
    if starved(record) == 0 && !record.burst_tried() {
        // If the accept queue is full, several at once lose SYNs, and no connection is held there.
        return vec![vec![Probe::Burst(AT_ONCE)]];
    }
    if record.held().any(|h| h.call.answer().is_none() || h.call.syn_again()) {
        return Vec::new();
    }
    let time = |more: u64| Duration::from_secs_f64(usual(record) / 1e3) + Duration::from_millis(more);
    let probe = |idle: u8, more: u64| vec![Probe::Held(idle, time(more).min(HOLD_TIME))];
    let tried: Vec<&HeldCall> = record.held().collect();
    match tried.iter().find(|h| kept_waiting(h)) {
        // The call waits: test how it follows our closing, and make calls while none is held.
        Some(first) if tried.last().is_some_and(|last| std::ptr::eq(*last, *first)) => {
            let idle = IDLE[tried.len() - 1];
            let doses = DOSES_MS.iter().flat_map(|dose| [probe(idle, *dose), probe(idle, *dose)]);
            doses.chain(std::iter::repeat_with(|| probe(0, 0)).take(3)).collect()
        }
        Some(_) => Vec::new(),
        // Of several at once, each waited for all before it, and four idle ones delayed none. So
        // the server accepts slowly, and more connections of ours would only fill that queue.
        None if !tried.is_empty() && last_of_a_burst(record) > 2.5 => Vec::new(),
        None => IDLE.get(tried.len()).map(|idle| vec![probe(*idle, TRY_MS)]).unwrap_or_default(),
    }
}

/// The complete experiment: the arms, and how the response follows our closing.
fn found(record: &Record) -> Option<(Trial, Estimate, u8)> {
    let answered: Vec<&HeldCall> = record.held().filter(|h| h.call.answer().is_some()).collect();
    let idle = answered.iter().find(|h| kept_waiting(h))?.idle;
    let times = |n: u8| answered.iter().filter(move |h| h.idle == n);
    let points: Vec<(f64, f64)> = times(idle)
        .filter(|h| kept_waiting(h))
        .filter_map(|h| Some((ms(h.released?), first_byte(&h.call))))
        .collect();
    let without: Vec<f64> = times(idle).map(|h| first_byte(&h.call)).collect();
    // One may slip in when another caller's connection ends.
    let dose = slope(&points).filter(|_| points.len() >= 5 && points.len() + 1 >= without.len())?;
    let with: Vec<f64> =
        times(0).map(|h| first_byte(&h.call)).chain(record.fresh().into_iter().map(first_byte)).collect();
    let trial = Trial::of("idle connections of ours beside the call", "none held", without, with)?;
    (trial.moved(WAITED_MS) && dose.value >= FOLLOWS && dose.low > 0.0).then_some((trial, dose, idle))
}

fn judge(record: &Record) -> Judgement {
    let most = record.held().map(|h| h.idle).max();
    let Some((trial, dose, idle)) = found(record) else {
        // Too few, or they contradict one another.
        if let Some(held) = record.held().find(|h| kept_waiting(h) || h.call.answer().is_none()) {
            let ended = if held.call.answer().is_some() {
                "was answered when we closed them"
            } else {
                "was not answered"
            };
            return Judgement::Open(format!(
                "unclear: a call beside {} idle connections of ours {ended}; calls while these are closed at other times would tell",
                held.idle
            ));
        }
        return match most {
            Some(most) => excluded(format!(
                "the first call of a connection waits, but {most} idle connections of ours beside it do not make it wait for their end"
            )),
            None => Judgement::Silent,
        };
    };
    let starved = starved(record);
    let cost = if starved > 0 { ms(crate::limits::CALL_TIME) } else { waited(record) };
    let (before, after) = (trial.before_ms(), trial.after_ms());
    let mut verdict = Verdict::new(&CAUSE, cost, Grounds::Moved(trial)).saying(format!(
        "a call on a new connection takes {}; with {idle} idle connections of ours beside it, {}: it is answered when we close them",
        say(after),
        say(before)
    ));
    if starved > 0 {
        verdict = verdict
            .saying(format!("{starved} calls on a new connection were never answered while we kept another"));
    }
    let words = format!(
        "dose-response: each millisecond we close them later makes the answer {:.2} ms later ({:.2} to {:.2})",
        dose.value, dose.low, dose.high
    );
    Judgement::Named(Box::new(verdict.with_dose(Some(dose)).saying(words)))
}
