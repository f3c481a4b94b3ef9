//! A cache in front of the server does not have the response: it has lost it after a rest, or never
//! keeps it.
//!
//! Symptom: responses name what the cache did (`X-Cache`, `CF-Cache-Status`, `Age`), and those that it
//! did not have are slow. Experiment: calls after a rest. Where identical calls one after another are
//! never answered by it, no rest is needed.

use std::time::Duration;

use super::{bandwidth, periodic_stall, rate_limit, server_nagle};
use crate::call::{Call, ProbeResponse, ms};
use crate::evidence::{Grounds, Proof, Trial};
use crate::parts::{CausePage, ENDS, FaultPlace, Forecast, PictureStep, RuleFix, ServerChange, fix};
use crate::probe::{Block, CallProbe, Experiment, Lane, Probe};
use crate::record::Record;
use crate::rule::{AGAIN, Cause, Judged, Judgement, Rule};
use crate::signs::wait::WORK_MS;
use crate::stats::median;
use crate::times::CallPart;
use crate::verdict::Verdict;
use crate::words::say;

pub(crate) static CAUSE: Cause = Cause {
    id: "cache-cold",
    title: "the cache in front of the server does not have the answer, and the server behind makes it anew",
    fixes: FIXES,
    verify: AGAIN,
    place: FaultPlace::Process,
    part: CallPart::FirstByte,
    pause: Some("the server behind makes the answer"),
    server_changed: ServerChange::Unequal,
    forecast: Forecast::Unseen,
    packets: None,
    page: PAGE,
    rule: Rule::Beside {
        // They say why it is slow to make.
        hidden_by: &[&server_nagle::CAUSE, &rate_limit::CAUSE, &bandwidth::CAUSE, &periodic_stall::CAUSE],
        asks: &[],
        wants,
        judge,
    },
};

const PAGE: CausePage = CausePage {
    what: "A cache stands in front of the server (a CDN, Varnish, nginx), and answers what it has. This call it does not have: the answer has expired, was \
         thrown out for others, or must not be kept (Cache-Control, a cookie, a query that differs). Then the server behind makes it anew, and the call \
         takes as long as without the cache.",
    lanes: ENDS,
    picture: &[
        PictureStep::To("request"),
        PictureStep::Wait(60.0, "X-Cache: MISS: the server behind makes it"),
        PictureStep::From("answer"),
        PictureStep::To("request"),
        PictureStep::From("answer, X-Cache: HIT, at once"),
    ],
    more: &[fix(
        "browsers, clients",
        "Cache-Control: no-cache in the request goes around many caches: curl -I shows what the answer allows",
    )],
};

const FIXES: &[RuleFix] = &[
    RuleFix {
        software: "the server behind",
        change: "Cache-Control: max-age (or s-maxage) as long as the answer may be old, no Set-Cookie on it, and Vary by no more than needed",
    },
    RuleFix {
        software: "nginx",
        change: "proxy_cache_valid longer; proxy_cache_use_stale updating with proxy_cache_background_update on; proxy_cache_lock on",
    },
    RuleFix {
        software: "Varnish",
        change: "a longer beresp.ttl, and beresp.grace, which answers while it fetches",
    },
    RuleFix {
        software: "CDNs",
        change: "stale-while-revalidate; a cache key without what does not change the answer; a shield between the edges and the server",
    },
];

/// What a cache did with a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum CacheUse {
    Hit,
    Miss,
}

/// Fields in which caches say it.
const FIELDS: [&str; 4] = ["x-cache", "x-cache-status", "cf-cache-status", "x-proxy-cache"];
/// Words for responses that the server behind made, though the cache looked for them: what is not
/// meant to be kept (`BYPASS`, `DYNAMIC`) is none.
const MISSES: [&str; 2] = ["miss", "expired"];

/// What the response says; the last word counts, since the cache nearest to us adds its own behind the others'.
fn said(answer: &ProbeResponse) -> Option<CacheUse> {
    let field = FIELDS.iter().find_map(|name| answer.field(name))?.to_ascii_lowercase();
    let last = field.rsplit(',').next().unwrap_or_default();
    if last.contains("hit") || last.contains("stale") {
        Some(CacheUse::Hit)
    } else {
        MISSES.iter().any(|word| last.contains(word)).then_some(CacheUse::Miss)
    }
}

/// A first call that missed must be this much slower to be worth rests, milliseconds.
const WORTH_MS: f64 = 50.0;
/// The rests, each twice; those beyond the first where so much time is allowed.
const RESTS: [(Duration, Duration); 3] = [
    (Duration::from_secs(2), Duration::ZERO),
    (Duration::from_secs(5), Duration::from_secs(40)),
    (Duration::from_secs(15), Duration::from_secs(80)),
];
/// Calls after each rest.
const TWICE: usize = 2;
/// Identical calls of which the cache answered none.
const NEVER: usize = 5;

/// Waits beyond the round trip of calls as they are, and after a rest, that the cache answered in such a way.
fn waits(record: &Record, rested: bool, what: CacheUse) -> Vec<f64> {
    let plain = |e: Experiment| match e {
        Experiment::Rested => rested,
        Experiment::Observe | Experiment::Tail | Experiment::Scattered => !rested,
        _ => false,
    };
    let calls = record.calls().filter(|(p, c)| plain(p.experiment) && !c.lossy());
    let said = |call: &&Call| call.answer().and_then(said) == Some(what);
    calls.map(|(_, c)| c).filter(said).map(|c| ms(c.wait) - record.rtt_ms()).collect()
}

fn wants(record: &Record, judged: &Judged<'_>) -> Vec<Block> {
    let [missed, hit] = [CacheUse::Miss, CacheUse::Hit].map(|what| waits(record, false, what));
    let cold = missed.len() == 1 && hit.len() >= NEVER && missed[0] - median(&hit) >= WORTH_MS;
    if !cold || !record.settings.may_repeat || record.tried(Experiment::Rested) || judged.hides_it() {
        return Vec::new();
    }
    let block = |(pause, _): &(Duration, Duration)| {
        let plain = CallProbe::plain(Experiment::Rested, 0, Lane::Fresh);
        let probe = CallProbe { writes: record.settings.writes, pause: *pause, ..plain };
        vec![Probe::Call(Box::new(probe)); TWICE]
    };
    let budget = record.settings.budget;
    RESTS.iter().filter(|(_, from)| budget >= *from).map(block).collect()
}

fn judge(record: &Record, judged: &Judged<'_>) -> Judgement {
    if judged.hides_it() {
        return Judgement::Silent;
    }
    let [missed, hit] = [CacheUse::Miss, CacheUse::Hit].map(|what| waits(record, false, what));
    let rested = waits(record, true, CacheUse::Miss);
    let slow = |waits: &[f64]| !waits.is_empty() && median(waits) >= WORK_MS;
    if hit.is_empty() && missed.len() >= NEVER && slow(&missed) {
        let words = format!(
            "of {} identical calls, one after another, the cache answered none: each says that it had to ask the server behind, and waits {}",
            missed.len(),
            say(median(&missed))
        );
        let cost = median(&missed);
        // It may not be meant to be kept.
        let verdict =
            Verdict::new(&CAUSE, cost, Grounds::Seen { words, alone: false }).at_most(Proof::Possible);
        return Judgement::Named(Box::new(
            verdict
                .titled("the cache in front of the server never keeps the answer: each call goes to the server behind")
                .saying("the response's Cache-Control, Vary and Set-Cookie tell whether it may be kept"),
        ));
    }
    if hit.len() < 2 || missed.is_empty() {
        return Judgement::Silent;
    }
    let name = "an answer that the cache has";
    let again = Trial::of(name, "no rest before the call", rested.clone(), hit.clone());
    if let Some(trial) = again.filter(|trial| trial.moved(WORK_MS)) {
        let words = format!(
            "after a rest of {} the cache had lost the answer: such calls wait {}, those that it answers {}",
            say(ms(RESTS[0].0)),
            say(median(&rested)),
            say(median(&hit))
        );
        return Judgement::Named(Box::new(
            Verdict::new(&CAUSE, trial.effect.value, Grounds::Moved(trial)).saying(words),
        ));
    }
    match Trial::of(name, "who answers", missed.clone(), hit.clone()) {
        Some(trial) if trial.moved(WORK_MS) => {
            let words = format!(
                "{} of {} calls were not answered by the cache and waited {}, the others {}",
                missed.len(),
                missed.len() + hit.len(),
                say(median(&missed)),
                say(median(&hit))
            );
            let cost = trial.effect.value;
            let grounds = Grounds::Seen { words, alone: true };
            Judgement::Named(Box::new(Verdict::new(&CAUSE, cost, grounds).at_most(Proof::Likely)))
        }
        _ if slow(&missed) => Judgement::Open(format!(
            "a note and no cause: the first call was not in the cache and waited {}, later ones {}",
            say(median(&missed)),
            say(median(&hit))
        )),
        _ => Judgement::Silent,
    }
}
