//! A new connection may send only a few segments per round trip at first, and its window must grow.
//!
//! Experiment: the same response on a warm connection. The control is the first byte, which does
//! not depend on the window.

use super::{compression, idle_restart, request_held};
use crate::call::{Call, ms};
use crate::evidence::{Grounds, Trial};
use crate::parts::{CausePage, ENDS, FaultPlace, Forecast, PictureStep, RuleFix, ServerChange, fix};
use crate::record::Record;
use crate::rule::{AGAIN, Cause, Judged, Judgement, Rule, not_moved, nothing_beside};
use crate::signs::congestion;
use crate::times::CallPart;
use crate::verdict::Verdict;
use crate::words::say;

pub(crate) static CAUSE: Cause = Cause {
    id: "slow-start",
    title: "a new connection starts slowly: the answer needs several round trips until the window has grown",
    fixes: FIXES,
    verify: AGAIN,
    place: FaultPlace::Wire,
    part: CallPart::New,
    pause: None,
    server_changed: ServerChange::TakenBack,
    forecast: Forecast::LeverAndOpening,
    packets: None,
    page: PAGE,
    rule: Rule::Beside {
        // If the window is not the limit, a new connection is slow for that other reason.
        hidden_by: &[&request_held::ZERO_WINDOW, &request_held::SEND_BUFFER],
        // Each new connection starts slowly; what is slow on a kept one, too, is what can be helped
        // first.
        asks: &[&idle_restart::CAUSE, &compression::CAUSE],
        wants: nothing_beside,
        judge,
    },
};

const PAGE: CausePage = CausePage {
    what: "A new connection does not know how much the path takes, so TCP begins with ten packets (some 14 kB), waits for them to be acknowledged, \
         sends twice as many, and so on. Far away a large answer on a new connection costs several round trips; on a connection that was used \
         before, the window has grown already.",
    lanes: ENDS,
    picture: &[
        PictureStep::To("request"),
        PictureStep::From("10 packets"),
        PictureStep::Wait(40.0, "a round trip"),
        PictureStep::To("ACKs"),
        PictureStep::From("20 packets"),
        PictureStep::Wait(40.0, "a round trip"),
        PictureStep::To("ACKs"),
        PictureStep::From("40 packets"),
    ],
    more: &[
        fix(
            "JDK, Node, Go, Python, as callers",
            "one HttpClient, Agent, http.Client, requests.Session for the whole program: they keep connections",
        ),
        fix("nginx", "keepalive_timeout and keepalive_requests high enough that callers can keep theirs"),
    ],
};

const FIXES: &[RuleFix] = &[
    RuleFix { software: "any client", change: "keep connections and share them: the window has grown then" },
    RuleFix {
        software: "Linux servers",
        change: "ip route change ... initcwnd 30; net.ipv4.tcp_slow_start_after_idle=0",
    },
    RuleFix {
        software: "any server",
        change: "smaller answers: compress, split; serve from nearer (each round trip counts)",
    },
];

fn judge(record: &Record, judged: &Judged<'_>) -> Judgement {
    let rtt = record.rtt_ms();
    let group = record.group();
    let Some(answer) = group.first().and_then(|c| c.answer()).filter(|_| congestion::may_limit(record))
    else {
        return Judgement::Silent;
    };
    if judged.hides_it() {
        return Judgement::Silent;
    }
    // An upload meets the same window on our side.
    let times = |calls: Vec<&Call>| {
        calls.iter().filter(|c| !c.lossy()).map(|c| ms(c.send + c.wait + c.receive)).collect::<Vec<_>>()
    };
    let (fresh, reused) = (times(record.fresh()), times(record.reused()));
    let Some(trial) = Trial::of("a connection that is warm", "the same connection again", fresh, reused)
    else {
        return Judgement::Open(
            "the answer is larger than a new connection's first window; what slow start costs needs a connection that the server keeps"
                .to_owned(),
        );
    };
    if !trial.moved(0.7 * rtt) {
        let words = format!(
            "a new connection is as fast as a warm one: {} and {}",
            say(trial.before_ms()),
            say(trial.after_ms())
        );
        return not_moved(&trial, 0.7 * rtt, &words);
    }
    let words = format!(
        "{} bytes take {} on a new connection and {} on a warm one: {:.1} round trips of {} more",
        answer.body_bytes.max(record.settings.body_bytes),
        say(trial.before_ms()),
        say(trial.after_ms()),
        trial.effect.value / rtt,
        say(rtt)
    );
    let verdict = Verdict::new(&CAUSE, trial.effect.value, Grounds::Moved(trial)).saying(words);
    let kept = judged.names_any(&[&idle_restart::CAUSE, &compression::CAUSE]);
    Judgement::Named(Box::new(if kept { verdict.behind() } else { verdict }))
}
