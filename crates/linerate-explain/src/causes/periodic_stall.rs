//! The server answers nothing for a while, again and again at regular intervals: a lock that a timer's
//! work holds, a loop that looks for requests on a tick.
//!
//! Symptom: of calls at times drawn beforehand some wait, and their answers come together. Calls that
//! follow one another may meet none of it: they ride in the gap. Evidence: the moments at which
//! waiting calls are answered are a period apart, and what each call waits follows from when it
//! arrived. Experiment: calls at moments at which the server has just stopped, against calls at
//! moments at which it lets them through.

use std::time::Duration;

use super::{in_the_process, rate_limit};
use crate::call::ms;
use crate::evidence::{Grounds, Proof};
use crate::parts::{CausePage, ENDS, FaultPlace, Forecast, PictureStep, RuleFix, ServerChange, fix};
use crate::probe::{Block, CallProbe, Experiment, Lane, Probe};
use crate::record::Record;
use crate::rule::{AGAIN, Cause, Judged, Judgement, Rule};
use crate::signs::scattered::{self, Period};
use crate::stats::median;
use crate::times::CallPart;
use crate::verdict::Verdict;
use crate::words::say;

pub(crate) static CAUSE: Cause = Cause {
    id: "periodic-stall",
    title: "the server stops at regular intervals, and calls that come meanwhile wait",
    fixes: FIXES,
    verify: AGAIN,
    place: FaultPlace::Process,
    part: CallPart::Call,
    pause: None,
    server_changed: ServerChange::Unequal,
    forecast: Forecast::Lever,
    packets: None,
    page: PAGE,
    rule: Rule::Beside {
        hidden_by: &[
            // A collector, a quota or a loop may stop it as regularly: they are the reason.
            &in_the_process::THROTTLED,
            &in_the_process::GC,
            &in_the_process::BLOCKED,
            &rate_limit::CAUSE,
        ],
        asks: &[],
        wants,
        judge,
    },
};

const PAGE: CausePage = CausePage {
    what: "The server answers nothing for a while, again and again at regular intervals: work that a timer starts holds a lock which calls want, or a loop looks \
         for requests only on each tick. A call that comes meanwhile waits for the end. Calls that follow one another at once ride in the gap and see nothing \
         of it: only calls at random times show how many wait.",
    lanes: ENDS,
    picture: &[
        PictureStep::To("first request"),
        PictureStep::From("answer, at once"),
        PictureStep::Then(25.0, "the server stops"),
        PictureStep::To("a request that comes now"),
        PictureStep::Wait(70.0, "until the stall ends"),
        PictureStep::From("answer"),
    ],
    more: &[fix(
        "PostgreSQL, MySQL behind it",
        "checkpoints, vacuum and table locks that recur: their logs name them",
    )],
};

const FIXES: &[RuleFix] = &[
    RuleFix {
        software: "any server",
        change: "find what runs every PERIOD (timers, cron jobs, statistics, cache refreshes, flushes) and which lock it holds meanwhile: hold it for less, or work on a copy",
    },
    RuleFix {
        software: "any server that looks for work on a tick",
        change: "wake it when work arrives (a condition variable, an eventfd, a notification) instead of sleeping between looks",
    },
    RuleFix {
        software: "Go",
        change: "the mutex and block profiles of net/http/pprof; sync.RWMutex, and no lock held over I/O or a sleep",
    },
    RuleFix {
        software: "JVM",
        change: "async-profiler -e lock; scheduled tasks (@Scheduled, Timer) that hold a lock which handlers want",
    },
    RuleFix { software: "Node", change: "setInterval callbacks that take long: --cpu-prof shows them" },
    RuleFix {
        software: "Python",
        change: "py-spy dump while a call waits; threads that hold the lock, or the GIL",
    },
];

/// Calls of the experiment, by arm.
const ORDER: [u8; 8] = [0, 1, 1, 0, 1, 0, 0, 1];
/// A call that is to meet a stall arrives when this share of it is left.
const LEFT: f64 = 0.8;
/// A call that is to meet none arrives after this share of the gap.
const GAP_GONE: f64 = 0.3;
/// On a tick there is no gap: it arrives when this share of a period is left.
const TICK_LEFT: f64 = 0.15;
/// Least part of a stall that another moment must spare.
const SPARED: f64 = 0.4;
/// Time that is needed to make a call at a moment, milliseconds.
const READY_MS: f64 = 2.0;

/// The next call of the experiment: its moment is computed when the one before has ended.
fn wants(record: &Record, judged: &Judged<'_>) -> Vec<Block> {
    let given_up = record.given_up.contains(&Experiment::Timed);
    if given_up || !record.settings.may_repeat || judged.hides_it() {
        return Vec::new();
    }
    let made = record.calls().filter(|(p, _)| p.experiment == Experiment::Timed).count();
    let Some(period) = scattered::period(record) else { return Vec::new() };
    // The first one may have to open its connection, and does not count.
    let Some(arm) = [1].iter().chain(&ORDER).nth(made) else { return Vec::new() };
    let left = match arm {
        0 => LEFT * period.length,
        _ if period.is_tick => TICK_LEFT * period.ms,
        _ => period.ms - GAP_GONE * (period.ms - period.length),
    };
    let Some(now) = now_ms(record) else { return Vec::new() };
    let pause = (period.end - left - now - READY_MS).rem_euclid(period.ms) + READY_MS;
    let plain = CallProbe::plain(Experiment::Timed, *arm, Lane::Kept(0));
    let pause = Duration::from_secs_f64(pause / 1e3);
    vec![vec![Probe::Call(Box::new(CallProbe { writes: record.settings.writes, pause, ..plain }))]]
}

/// When the last call ended, on the time of calls at random times.
fn now_ms(record: &Record) -> Option<f64> {
    let scattered =
        record.calls().filter(|(p, c)| p.experiment == Experiment::Scattered && c.answer().is_some());
    let first = scattered.map(|(_, c)| c.began_ns).min()?;
    let ended = record.calls().map(|(_, c)| (c.began_ns - first) as f64 / 1e6 + ms(c.total));
    ended.reduce(f64::max)
}

fn words(record: &Record, period: &Period) -> String {
    let all = scattered::all(record);
    let late: Vec<f64> = all.iter().map(|a| a.wait).filter(|w| w - period.floor > 2.0).collect();
    format!(
        "{} of {} calls at random times waited, {} in the middle and {} at most; they were answered together, at moments {} apart: every {} \
         nothing is answered for {} ({:.0} % of the time)",
        period.met,
        all.len(),
        say(median(&late)),
        say(late.iter().copied().fold(0.0, f64::max)),
        say(period.ms),
        say(period.ms),
        say(period.length),
        100.0 * period.share()
    )
}

fn judge(record: &Record, judged: &Judged<'_>) -> Judgement {
    if judged.hides_it() {
        return Judgement::Silent;
    }
    let Some(period) = scattered::period(record) else { return Judgement::Silent };
    let words = words(record, &period);
    let beyond: Vec<f64> =
        scattered::all(record).iter().map(|a| a.wait - period.floor).filter(|b| *b > 2.0).collect();
    let cost = median(&beyond);
    let right_after =
        format!("calls one right after another wait {} in the middle", say(record.typical(|c| c.wait)));
    let finish = |verdict: Verdict| {
        let verdict = verdict.saying(right_after);
        Judgement::Named(Box::new(if period.is_tick {
            verdict.titled("the server answers on a tick: each call waits for the next one")
        } else {
            verdict
        }))
    };
    match scattered::timed(record) {
        Some(trial) if trial.moved(SPARED * period.length) => {
            finish(Verdict::new(&CAUSE, cost, Grounds::Moved(trial)).saying(words))
        }
        Some(trial) if trial.excludes(SPARED * period.length) => Judgement::Open(format!(
            "unclear: {words}; but calls made at moments at which it should answer waited {}, and at others {}",
            say(trial.after_ms()),
            say(trial.before_ms())
        )),
        _ => finish(Verdict::new(&CAUSE, cost, Grounds::Seen { words, alone: true }).at_most(Proof::Likely)),
    }
}
