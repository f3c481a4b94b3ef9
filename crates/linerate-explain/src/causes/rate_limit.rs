//! The server, or something in front of it, limits the rate of calls: ours came sooner, and waited
//! or were refused.
//!
//! Symptom: each of several consecutive calls waits the same time, as with a server that works that
//! long; or the response is 429. Experiment: calls after a pause, paired with calls right after
//! them. A server that works takes equally long for both.

use std::time::Duration;

use crate::call::ms;
use crate::evidence::Grounds;
use crate::probe::{Block, CallProbe, Experiment, Lane, Probe};
use crate::record::Record;
use crate::rule::{AGAIN, Cause, Fix, Judgement, Rule, not_moved};
use crate::signs::pace;
use crate::signs::wait::{WORK_MS, beyond_rtt};
use crate::verdict::Verdict;
use crate::words::say;

pub(super) static CAUSE: Cause = Cause {
    id: "rate-limit",
    title: "the server lets calls through at a limited rate, and calls that come sooner wait or are refused",
    fixes: FIXES,
    verify: AGAIN,
    rule: Rule::Alone { wants, judge },
};

const FIXES: &[Fix] = &[
    Fix {
        software: "nginx",
        change: "limit_req_zone with a higher rate, limit_req with burst= and nodelay; limit_req_status 429, so that callers know",
    },
    Fix {
        software: "Envoy, Istio",
        change: "local_ratelimit or the rate-limit service: max_tokens and fill_interval of the token bucket",
    },
    Fix {
        software: "HAProxy",
        change: "http-request deny/tarpit with sc_http_req_rate: the rate in the condition",
    },
    Fix {
        software: "Express",
        change: "express-rate-limit: windowMs and limit, and skip for callers inside",
    },
    Fix {
        software: "API gateways, clouds",
        change: "the plan's requests per second; a key of its own for this caller",
    },
    Fix {
        software: "any client",
        change: "fewer calls (caches, batches), a pace below the limit, and Retry-After obeyed",
    },
    Fix {
        software: "any server",
        change: "find who limits: the application, a proxy before it, or a gateway",
    },
];

/// Blocks of a call after a pause and one right after it.
const BLOCKS: usize = 4;
/// A pause is this many times the duration of a call, plus this time: by then the limit admits the
/// next call.
const PAUSE: (f64, Duration) = (1.5, Duration::from_millis(20));

/// If calls fail with 503, it is unknown when the next one is admitted.
const UNAVAILABLE: Duration = Duration::from_secs(1);

/// Least wait that the limit must explain, in relation to what the calls wait.
fn least_ms(record: &Record) -> f64 {
    (0.3 * beyond_rtt(record)).max(WORK_MS / 2.0)
}

fn wants(record: &Record) -> Vec<Block> {
    let slow = beyond_rtt(record) >= WORK_MS * 0.8;
    let unavailable = record.observed().filter_map(|c| c.answer()).filter(|a| a.status == 503).count();
    let some = unavailable > 0 && unavailable < record.observed().count();
    let may = record.settings.may_repeat && !record.tried(Experiment::Paced);
    // If the server names its limit itself, more calls are needless: it asked for fewer.
    if !(slow || some) || !may || record.group().is_empty() || !pace::refusals(record).0.is_empty() {
        return Vec::new();
    }
    let takes = Duration::from_secs_f64(record.typical(|c| c.total) / 1e3);
    let lane =
        if record.reused().len() >= 2 { Lane::Kept(Experiment::Paced.first_lane()) } else { Lane::Fresh };
    let probe = |arm: u8| {
        let plain = CallProbe::plain(Experiment::Paced, arm, lane);
        let mut probe = CallProbe { writes: record.settings.writes, ..plain };
        if arm == 1 {
            probe.pause = if some { UNAVAILABLE } else { takes.mul_f64(PAUSE.0) + PAUSE.1 };
        }
        Probe::Call(Box::new(probe))
    };
    let pairs = |n: usize| std::iter::repeat_n([probe(1), probe(0)], n).flatten();
    // Very slow calls leave time for three of each only.
    let blocks = if some || takes > Duration::from_millis(350) { BLOCKS - 1 } else { BLOCKS };
    vec![std::iter::once(probe(2)).chain(pairs(blocks)).collect()]
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
    let Some(trial) = pace::trial(record) else { return Judgement::Silent };
    let least = least_ms(record);
    if !trial.moved(least) {
        let words = format!(
            "a call after a pause waits {}, one right after another {}: it is not our own pace",
            say(trial.after_ms()),
            say(trial.before_ms())
        );
        return not_moved(&trial, least, &words);
    }
    let words = format!(
        "a call alone is answered after {}; right after another it waits {}: the time between two calls is what is limited",
        say(trial.after_ms()),
        say(trial.before_ms())
    );
    let verdict = Verdict::new(&CAUSE, trial.effect.value, Grounds::Moved(trial)).saying(words).saying(
        "work that goes on after each answer and holds up the next call looks the same from outside: the limiter's own log tells",
    );
    Judgement::Named(Box::new(verdict))
}
