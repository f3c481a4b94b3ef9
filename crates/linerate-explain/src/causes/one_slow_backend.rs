//! One of several servers behind a balancer is slow: each n-th call meets it.
//!
//! Symptom: calls on one connection are quick or slow, and nothing in between. Experiment: a row of
//! calls on a connection of its own. Its first half says whose turn is slow (each n-th), the second
//! half is compared with that.

use super::{
    bandwidth, cold_start, in_the_process, path_jitter, periodic_stall, rate_limit, server_nagle, stopped,
};
use crate::arms::on_new_lanes;
use crate::call::{Call, ms};
use crate::evidence::{Grounds, Proof, Trial};
use crate::limits;
use crate::parts::{CausePage, FaultPlace, Forecast, PictureStep, RuleFix, ServerChange, fix};
use crate::probe::{Block, CallProbe, Experiment, Lane, Probe};
use crate::record::Record;
use crate::rule::{AGAIN, Cause, Judged, Judgement, Rule};
use crate::signs::scattered;
use crate::signs::wait::WORK_MS;
use crate::times::CallPart;
use crate::verdict::Verdict;
use crate::words::say;

pub(crate) static CAUSE: Cause = Cause {
    id: "one-slow-backend",
    title: "one of the servers behind the balancer is slow, and each call whose turn it is waits for it",
    fixes: FIXES,
    verify: AGAIN,
    place: FaultPlace::Process,
    part: CallPart::Call,
    pause: Some("the slow server works"),
    server_changed: ServerChange::Unequal,
    forecast: Forecast::Lever,
    packets: None,
    page: PAGE,
    rule: Rule::Beside {
        hidden_by: &[
            &stopped::CAUSE,
            &path_jitter::CAUSE,
            &server_nagle::CAUSE,
            &rate_limit::CAUSE,
            &bandwidth::CAUSE,
            &cold_start::CAUSE,
            // What stops the process makes calls slow by the clock.
            &periodic_stall::CAUSE,
            &in_the_process::THROTTLED,
            &in_the_process::GC,
            &in_the_process::BLOCKED,
        ],
        asks: &[],
        wants,
        judge,
    },
};

const PAGE: CausePage = CausePage {
    what: "A balancer hands calls to several servers in turn, and one of them is slow: its machine is overloaded, it runs an older version, its cache is cold, \
         its disk fails. Each n-th call waits, whatever connection it comes on, and all others are quick. Averages hide that, and the balancer's health checks \
         find the server alive.",
    lanes: ["client", "balancer"],
    picture: &[
        PictureStep::To("request"),
        PictureStep::From("answer, by the first server"),
        PictureStep::To("request"),
        PictureStep::Wait(60.0, "the second server is slow"),
        PictureStep::From("answer"),
        PictureStep::To("request"),
        PictureStep::From("answer, by the third server"),
    ],
    more: &[fix("Kubernetes", "kubectl top pod; a readiness probe that fails where the pod is slow")],
};

const FIXES: &[RuleFix] = &[
    RuleFix {
        software: "any balancer",
        change: "its log with the server of each call and its time names the slow one: take it out, then look at what it lacks",
    },
    RuleFix {
        software: "HAProxy",
        change: "balance leastconn; option httpchk with a time-out (timeout check) below what is too slow; the stats page has the times by server",
    },
    RuleFix {
        software: "nginx",
        change: "least_conn; $upstream_addr and $upstream_response_time in log_format; max_fails with proxy_read_timeout",
    },
    RuleFix { software: "Envoy, Istio", change: "outlier detection; LEAST_REQUEST instead of ROUND_ROBIN" },
];

/// Calls of the row, without the one that opens the connection: each half has two turns of four servers.
const ROW: usize = limits::CALLS_TURNS - 1;
/// The most servers that are told apart.
const MOST_SERVERS: usize = 4;
/// A slow call takes this many times as long as the quick ones.
const TIMES: f64 = 2.0;
/// Calls of either kind that are a sign.
const SIGN: usize = 2;

/// Of times in order: which are slow; `None` where they are not of two kinds.
fn slow(waits: &[f64]) -> Option<Vec<bool>> {
    let mut sorted = waits.to_vec();
    sorted.sort_by(f64::total_cmp);
    let (least, most) = (*sorted.first()?, *sorted.last()?);
    let (at, gap) =
        sorted.windows(2).enumerate().map(|(i, w)| (i, w[1] - w[0])).max_by(|a, b| a.1.total_cmp(&b.1))?;
    let border = f64::midpoint(sorted[at], sorted[at + 1]);
    let two_kinds = gap >= WORK_MS && 2.0 * gap > most - least && sorted[at + 1] >= TIMES * sorted[at];
    two_kinds.then(|| waits.iter().map(|wait| *wait > border).collect())
}

/// The number of servers and the turn of the slow one, where each n-th of these is slow and no other.
fn turn(slow: &[bool]) -> Option<(usize, usize)> {
    let first = slow.iter().position(|s| *s)?;
    let fits = |n: &usize| slow.iter().enumerate().all(|(i, s)| *s == (i % n == first));
    (first.max(1) + 1..=MOST_SERVERS).find(fits).map(|n| (n, first))
}

fn wants(record: &Record, judged: &Judged<'_>) -> Vec<Block> {
    if record.tried(Experiment::Turns) || !record.settings.may_repeat || judged.hides_it() {
        return Vec::new();
    }
    let mut waits: Vec<f64> = record.reused().iter().map(|c| ms(c.wait)).collect();
    waits.extend(scattered::all(record).iter().map(|a| a.wait));
    let sign = slow(&waits).is_some_and(|slow| {
        let late = slow.iter().filter(|s| **s).count();
        late >= SIGN && slow.len() - late >= SIGN
    });
    if !sign {
        return Vec::new();
    }
    let lane = Lane::Kept(Experiment::Turns.first_lane());
    let probe = CallProbe { writes: record.settings.writes, ..CallProbe::plain(Experiment::Turns, 0, lane) };
    // The first one opens the connection.
    on_new_lanes(record, vec![vec![Probe::Call(Box::new(probe)); ROW + 1]])
}

/// The row of calls, without the one that opened the connection.
fn row(record: &Record) -> Vec<&Call> {
    let calls = record.calls().filter(|(p, _)| p.experiment == Experiment::Turns).map(|(_, c)| c);
    calls.filter(|c| c.answer().is_some() && !c.fresh && !c.lossy()).collect()
}

fn judge(record: &Record, judged: &Judged<'_>) -> Judgement {
    let row = row(record);
    if row.len() < ROW || judged.hides_it() {
        return Judgement::Silent;
    }
    let waits: Vec<f64> = row.iter().map(|c| ms(c.wait)).collect();
    let Some(slow) = slow(&waits) else { return Judgement::Silent };
    let late = slow.iter().filter(|s| **s).count();
    let (seen, held) = slow.split_at(ROW / 2);
    let Some((servers, first)) = turn(seen) else {
        return Judgement::Open(format!(
            "{late} of {ROW} calls in a row were slow, and not each n-th: a balancer that hands calls out at random would do so, and so would work \
             that only some calls have; its log would tell"
        ));
    };
    let is_due = |i: usize| (seen.len() + i) % servers == first;
    let of = |due: bool| {
        let all = waits[seen.len()..].iter().enumerate().filter(|(i, _)| is_due(*i) == due);
        all.map(|(_, wait)| *wait).collect::<Vec<f64>>()
    };
    let name = "a call whose turn is another server's";
    let trial = Trial::of(name, "whose turn it is", of(true), of(false));
    let as_said = held.iter().enumerate().all(|(i, s)| *s == is_due(i));
    let Some(trial) = trial.filter(|_| as_said) else {
        return Judgement::Open(format!(
            "{late} of {ROW} calls in a row were slow, each {servers}. of the first ones, and later ones otherwise; other callers take turns, too, \
             so that the balancer's log must tell"
        ));
    };
    let words = format!(
        "of {ROW} calls in a row each {servers}. waited {}, the others {}: the first {} said which of the last {} are slow",
        say(trial.before_ms()),
        say(trial.after_ms()),
        seen.len(),
        held.len()
    );
    let cost = trial.effect.value;
    let grounds = if trial.moved(WORK_MS) {
        Grounds::Moved(trial)
    } else {
        Grounds::Seen { words: words.clone(), alone: true }
    };
    // Whether there are several servers is not seen from outside.
    let verdict = Verdict::new(&CAUSE, cost, grounds).saying(words).at_most(Proof::Likely);
    Judgement::Named(Box::new(verdict.saying(format!(
        "a balancer that hands calls to {servers} servers in turn does so; a single program with work for each {servers}. call looks the same"
    ))))
}
