//! The server, or something in front of it, limits the rate of calls: ours came sooner, and waited
//! or were refused.
//!
//! Symptom: each of several consecutive calls waits the same time, as with a server that works that
//! long; or the response is 429. Experiment: calls after a pause, paired with calls right after
//! them. A server that works takes equally long for both. Dose: after a pause shorter than the wait
//! a call waits that much less, and after every longer one only what the server takes. A server
//! that answers on a tick makes calls wait after long pauses too; a delayed acknowledgement (behind a
//! proxy, say) is spared all at once.

use std::time::Duration;

use crate::call::ms;
use crate::evidence::{Grounds, Proof};
use crate::parts::{CausePage, ENDS, FaultPlace, Forecast, PictureStep, RuleFix, ServerChange, fix};
use crate::probe::{Block, CallProbe, Experiment, Lane, Probe};
use crate::record::Record;
use crate::rule::{AGAIN, Cause, Judgement, Rule, excluded, not_moved};
use crate::signs::pace::{self, LONG, OPENING, PAUSES, PausePace, SHORT, SOON};
use crate::signs::wait::{WORK_MS, beyond_rtt};
use crate::times::CallPart;
use crate::verdict::Verdict;
use crate::words::say;

/// A limiter holds requests back, or refuses them.
pub static CAUSE: Cause = Cause {
    id: "rate-limit",
    title: "the server lets calls through at a limited rate, and calls that come sooner wait or are refused",
    fixes: FIXES,
    verify: AGAIN,
    place: FaultPlace::Process,
    part: CallPart::Call,
    pause: Some("held until its turn (limited rate)"),
    server_changed: ServerChange::Refuses,
    forecast: Forecast::Lever,
    packets: None,
    page: PAGE,
    rule: Rule::Alone { wants, judge },
};

const PAGE: CausePage = CausePage {
    what: "The server, or a proxy or gateway before it, lets only so many calls through per second. What comes sooner waits for its turn or is refused (429). A \
         call after a pause is quick: nothing works for long, the pace is held down on purpose.",
    lanes: ENDS,
    picture: &[
        PictureStep::To("first request"),
        PictureStep::From("answer"),
        PictureStep::To("the next one, at once"),
        PictureStep::Wait(100.0, "held until its turn"),
        PictureStep::From("answer"),
    ],
    more: &[fix(
        "Go, Python, JDK",
        "where the application limits: rate.Limiter, slowapi, Bucket4j, Resilience4j",
    )],
};

const FIXES: &[RuleFix] = &[
    RuleFix {
        software: "nginx",
        change: "limit_req_zone with a higher rate, limit_req with burst= and nodelay; limit_req_status 429, so that callers know",
    },
    RuleFix {
        software: "Envoy, Istio",
        change: "local_ratelimit or the rate-limit service: max_tokens and fill_interval of the token bucket",
    },
    RuleFix {
        software: "HAProxy",
        change: "http-request deny/tarpit with sc_http_req_rate: the rate in the condition",
    },
    RuleFix {
        software: "Express",
        change: "express-rate-limit: windowMs and limit, and skip for callers inside",
    },
    RuleFix {
        software: "API gateways, clouds",
        change: "the plan's requests per second; a key of its own for this caller",
    },
    RuleFix {
        software: "any client",
        change: "fewer calls (caches, batches), a pace below the limit, and Retry-After obeyed",
    },
    RuleFix {
        software: "any server",
        change: "find who limits: the application, a proxy before it, or a gateway",
    },
];

/// If calls fail with 503, it is unknown when the next one is admitted.
const UNAVAILABLE: Duration = Duration::from_secs(1);

/// Pairs of a call after that pause and one right after it, if calls fail with 503.
const UNAVAILABLE_PAIRS: usize = 3;

fn wants(record: &Record) -> Vec<Block> {
    let slow = beyond_rtt(record) >= WORK_MS * 0.8;
    let unavailable = record.observed().filter_map(|c| c.answer()).filter(|a| a.status == 503).count();
    let some = unavailable > 0 && unavailable < record.observed().count();
    let may = record.settings.may_repeat && !record.given_up.contains(&Experiment::Paced);
    // If the server names its limit itself, more calls are needless: it asked for fewer.
    if !(slow || some) || !may || record.group().is_empty() || !pace::refusals(record).0.is_empty() {
        return Vec::new();
    }
    let takes = Duration::from_secs_f64(record.typical(|c| c.total) / 1e3);
    let lane =
        if record.reused().len() >= 2 { Lane::Kept(Experiment::Paced.first_lane()) } else { Lane::Fresh };
    let probe = |arm: u8, pause: Duration| {
        let plain = CallProbe::plain(Experiment::Paced, arm, lane);
        Probe::Call(Box::new(CallProbe { writes: record.settings.writes, pause, ..plain }))
    };
    let soon = || probe(SOON, Duration::ZERO);
    let long = |times: f64| probe(LONG, takes.mul_f64(times));
    if !record.tried(Experiment::Paced) {
        let opening = std::iter::once(probe(OPENING, Duration::ZERO));
        let pairs = if some {
            std::iter::repeat_n([probe(LONG, UNAVAILABLE), soon()], UNAVAILABLE_PAIRS).flatten().collect()
        } else {
            let [longer, long_enough, _] = PAUSES;
            [long_enough, longer, long_enough, longer].map(|times| [long(times), soon()]).concat()
        };
        return vec![opening.chain(pairs).collect()];
    }
    // A pause spares the wait: the doses tell how.
    let spared = match pace::seen(record) {
        PausePace::Untried | PausePace::Same(_) => return Vec::new(),
        PausePace::Limited(trial, _) | PausePace::Step(trial) | PausePace::Otherwise(trial, _) => {
            trial.effect.value
        }
    };
    if some || pace::has_short_pauses(record) {
        return Vec::new();
    }
    let part = |times: f64| Duration::from_secs_f64(times * spared / 1e3);
    let [quarter, half] = SHORT.map(|(arm, times)| probe(arm, part(times)));
    let most = PAUSES[PAUSES.len() - 1];
    let at_once = soon();
    let short = [[&half, &quarter, &at_once], [&quarter, &at_once, &half], [&at_once, &half, &quarter]];
    let short = short.concat().into_iter().cloned();
    vec![short.chain([long(most), soon(), long(most), soon()]).collect()]
}

fn refused(record: &Record) -> Option<Verdict> {
    let (refusals, all) = pace::refusals(record);
    let first = refusals.first()?;
    let after = refusals.iter().filter_map(|a| pace::refused(a)).max().unwrap_or_default();
    let says = first.field("retry-after").map_or_else(
        || "without saying when to come again".to_owned(),
        |after| format!("with Retry-After: {after}"),
    );
    let words = format!(
        "{} of {all} answers refuse the call with {} {says}; no more calls were made than that allows",
        refusals.len(),
        first.status
    );
    Some(Verdict::new(&CAUSE, ms(after), Grounds::Counted { words, share: 1.0 }))
}

fn judge(record: &Record) -> Judgement {
    if let Some(verdict) = refused(record) {
        return Judgement::Named(Box::new(verdict));
    }
    let [soon, paced] = pace::unavailable(record);
    if soon.0 >= 2 && paced.0 == 0 && paced.1 >= 3 {
        let words = format!(
            "{} of {} calls right after another were answered 503, and of {} after a pause none",
            soon.0, soon.1, paced.1
        );
        let cost = record.typical(|c| c.total).max(1e3);
        return Judgement::Named(Box::new(Verdict::new(
            &CAUSE,
            cost,
            Grounds::Counted { words, share: 1.0 },
        )));
    }
    let (trial, slope) = match pace::seen(record) {
        PausePace::Untried => return Judgement::Silent,
        PausePace::Same(trial) => {
            let words = format!(
                "a call after a pause waits {}, one right after another {}: it is not our own pace",
                say(trial.after_ms()),
                say(trial.before_ms())
            );
            return not_moved(&trial, pace::least_ms(record), &words);
        }
        PausePace::Step(trial) => {
            return excluded(format!(
                "a pause spares a call all of its wait ({} instead of {}) or nothing: a limit would make it shorter by 1 ms for each \
                 millisecond of pause",
                say(trial.after_ms()),
                say(trial.before_ms())
            ));
        }
        PausePace::Otherwise(_, words) => return Judgement::Open(format!("unclear: {words}")),
        PausePace::Limited(trial, slope) => (trial, slope),
    };
    let words = format!(
        "a call alone is answered after {}; right after another it waits {}: the time between two calls is what is limited",
        say(trial.after_ms()),
        say(trial.before_ms())
    );
    let verdict = Verdict::new(&CAUSE, trial.effect.value, Grounds::Moved(trial)).saying(words);
    let verdict = match slope {
        Some(slope) => verdict.saying(format!(
            "dose-response: a call waits {:.2} ms less for each millisecond of a pause before it ({:.2} to {:.2}), and after every pause \
             longer than the wait the same",
            -slope.value, -slope.high, -slope.low
        )),
        None => verdict.at_most(Proof::Likely).saying(
            "pauses shorter than the wait, which would show that it falls by 1 ms for each, did not fit into the time (--budget)",
        ),
    };
    Judgement::Named(Box::new(verdict.saying(
        "work that goes on after each answer and holds up the next call looks the same from outside: the limiter's own log tells",
    )))
}
