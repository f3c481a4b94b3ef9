//! The first call finds everything cold: a process that starts, code that is compiled, connections
//! that are opened.
//!
//! Symptom: the first call takes far longer than all later ones. Experiment: calls after a pause; a
//! server that rests after a while is cold again.

use std::time::Duration;

use super::cache_cold;
use crate::call::ms;
use crate::evidence::{Grounds, Trial};
use crate::parts::{CausePage, ENDS, FaultPlace, Forecast, PictureStep, RuleFix, ServerChange, fix};
use crate::probe::{Block, CallProbe, Experiment, Lane, Probe};
use crate::record::Record;
use crate::rule::{Cause, Judged, Judgement, Rule};
use crate::signs::first;
use crate::stats::median;
use crate::times::CallPart;
use crate::verdict::Verdict;
use crate::words::say;

pub(crate) static CAUSE: Cause = Cause {
    id: "cold-start",
    title: "the first call finds the server cold and takes far longer than later ones",
    fixes: FIXES,
    verify: "a server that was called just now is warm: run it right after a start, or after as long a pause",
    place: FaultPlace::Process,
    part: CallPart::New,
    pause: Some("the server starts"),
    server_changed: ServerChange::TakenBack,
    forecast: Forecast::Warm,
    packets: None,
    page: PAGE,
    rule: Rule::Beside {
        // The server behind a cache is not cold.
        hidden_by: &[&cache_cold::CAUSE],
        asks: &[],
        wants,
        judge,
    },
};

const PAGE: CausePage = CausePage {
    what: "The first call, or the first after a long pause, is much slower than the ones that follow: the server starts a process, compiles code, fills caches, opens \
         connections to its database. Later calls find all that done.",
    lanes: ENDS,
    picture: &[
        PictureStep::To("first request"),
        PictureStep::Wait(1500.0, "the server starts"),
        PictureStep::From("answer"),
        PictureStep::To("request"),
        PictureStep::From("answer, at once"),
    ],
    more: &[
        fix("JDK", "class data sharing (-XX:SharedArchiveFile), call the paths once after start"),
        fix(
            "any server",
            "warm it up before it gets calls (a readiness probe that calls the real path), and keep one instance alive",
        ),
    ],
};

const FIXES: &[RuleFix] = &[
    RuleFix {
        software: "any server",
        change: "call the real path once after each start, before it gets calls (a readiness probe that does so), and keep one instance alive",
    },
    RuleFix {
        software: "JVM",
        change: "class data sharing (-XX:SharedArchiveFile), connection pools filled at start, no lazy initialisation on the path",
    },
    RuleFix { software: "gunicorn", change: "preload_app, and warm caches in post_worker_init" },
    RuleFix { software: "php-fpm", change: "pm = static or pm.min_spare_servers higher; opcache.preload" },
    RuleFix {
        software: "Tomcat",
        change: "load-on-startup for the servlet, and spring.mvc.servlet.load-on-startup",
    },
];

/// The first call must take this much longer than later ones to be named.
const COLD_MS: f64 = 500.0;
/// From this on it is a note: most runtimes compile something for their first call.
const NOTE_MS: f64 = 50.0;
/// This many times what the slowest later one takes.
const TIMES: f64 = 5.0;
/// Later calls below which one slow call among them may be chance.
const LATER: usize = 6;
/// Longer than a process that serves one call after another ever rests.
const PAUSE: Duration = Duration::from_millis(2_000);
/// Calls after a pause.
const RESTED: usize = 2;

/// The extra time of the first call over later ones, where it takes far more than each of them.
fn beyond(record: &Record) -> Option<f64> {
    let call = first::first(record)?;
    let later: Vec<f64> = first::later(record).into_iter().map(first::served).collect();
    let most = later.iter().copied().fold(0.0, f64::max);
    // Our own waits for a processor are no time of the server's.
    let took = first::served(call) - ms(call.starved);
    (later.len() >= 2 && took > TIMES * most).then(|| took - median(&later))
}

fn wants(record: &Record, judged: &Judged<'_>) -> Vec<Block> {
    let cold = beyond(record).is_some_and(|ms| ms >= COLD_MS);
    if !cold || !record.settings.may_repeat || record.tried(Experiment::Rested) || judged.hides_it() {
        return Vec::new();
    }
    let plain = CallProbe::plain(Experiment::Rested, 0, Lane::Fresh);
    let probe = CallProbe { writes: record.settings.writes, pause: PAUSE, ..plain };
    vec![vec![Probe::Call(Box::new(probe)); RESTED]]
}

fn judge(record: &Record, judged: &Judged<'_>) -> Judgement {
    if judged.hides_it() {
        return Judgement::Silent;
    }
    let Some(cost) = beyond(record).filter(|ms| *ms >= NOTE_MS) else { return Judgement::Silent };
    let Some(call) = first::first(record) else { return Judgement::Silent };
    let later: Vec<f64> = first::later(record).into_iter().map(first::served).collect();
    let rested: Vec<f64> = first::rested(record).into_iter().map(first::served).collect();
    let words = format!(
        "the first call took {}, the {} after it {} in the middle and {} at most",
        say(first::served(call)),
        later.len(),
        say(median(&later)),
        say(later.iter().copied().fold(0.0, f64::max))
    );
    if cost < COLD_MS {
        return Judgement::Open(format!("a note and no cause: {words}"));
    }
    let name = "right after another call";
    let again = Trial::of(name, "no pause before it", rested.clone(), later.clone());
    if let Some(trial) = again.filter(|trial| trial.moved(COLD_MS)) {
        let verdict = Verdict::new(&CAUSE, trial.effect.value, Grounds::Moved(trial));
        return Judgement::Named(Box::new(verdict.saying(words).saying(format!(
            "after a pause of {} a call takes as long again: {}",
            say(ms(PAUSE)),
            say(median(&rested))
        ))));
    }
    let verdict = Verdict::new(&CAUSE, cost, Grounds::Seen { words, alone: later.len() >= LATER });
    Judgement::Named(Box::new(match rested.as_slice() {
        [] => verdict.saying("calls after a pause were not tried"),
        _ => verdict.saying(format!(
            "after a pause of {} a call takes {}: so short a pause does not make it cold again",
            say(ms(PAUSE)),
            say(median(&rested))
        )),
    }))
}
