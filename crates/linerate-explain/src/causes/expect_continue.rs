//! The request asks for `100 Continue`, and the server does not say it; the client waits before it
//! sends the body.
//!
//! Experiment: the same request without `Expect`.

use crate::arms::singles;
use crate::call::Call;
use crate::evidence::Grounds;
use crate::parts::{
    CausePage, ENDS, FaultPlace, Forecast, PacketDoubt, PacketSigns, PictureStep, RuleFix, ServerChange, fix,
};
use crate::probe::{Block, CallProbe, Experiment, Lane, Probe, Variation};
use crate::record::Record;
use crate::rule::{AGAIN, Cause, Judgement, Rule, excluded, not_moved};
use crate::times::CallPart;
use crate::verdict::Verdict;
use crate::words::say;

pub(crate) static CAUSE: Cause = Cause {
    id: "expect-continue",
    title: "the client waits for 100 Continue before it sends the body, and the server does not say it in time",
    fixes: FIXES,
    verify: AGAIN,
    place: FaultPlace::Here,
    part: CallPart::Call,
    pause: Some("we wait for 100 Continue"),
    server_changed: ServerChange::TakenBack,
    forecast: Forecast::Lever,
    packets: Some(PACKETS),
    page: PAGE,
    rule: Rule::Alone { wants, judge },
};

const PAGE: CausePage = CausePage {
    what: "A client with a large body may ask first whether the server wants it: it sends the head with \"Expect: 100-continue\" and holds the body back. \
         A server, or a proxy, that never says \"100 Continue\" leaves it waiting until it gives up, for a second as a rule.",
    lanes: ENDS,
    picture: &[
        PictureStep::To("request head, Expect"),
        PictureStep::Wait(1000.0, "the client waits for 100 Continue"),
        PictureStep::To("request body"),
        PictureStep::From("answer"),
    ],
    more: &[
        fix(
            "Go, Python, Node, JDK, as callers",
            "they send Expect only when told: Transport.ExpectContinueTimeout, expectContinue(true)",
        ),
        fix("nginx", "answers 100 Continue by itself; proxy_request_buffering on keeps backends out of it"),
    ],
};

const PACKETS: PacketSigns = PacketSigns {
    title: "the client holds its body back until the server says 100 Continue",
    fixes: &[
        fix("curl", "-H 'Expect:' for requests that will be accepted"),
        fix("Apache HttpClient", "RequestConfig.custom().setExpectContinueEnabled(false)"),
        fix(".NET", "HttpClient.DefaultRequestHeaders.ExpectContinue = false"),
        fix("the server", "answer 100 Continue at once (RFC 9110, section 10.1.1)"),
    ],
    verify: "capture again with the Expect field left out",
    pause: Some("the client waits for 100 Continue"),
    of_connections: false,
    doubts: PacketDoubt::None,
};

const FIXES: &[RuleFix] = &[
    RuleFix {
        software: "curl",
        change: "-H 'Expect:' (sent by itself for bodies above 1 MiB, before 7.84 above 1 kB)",
    },
    RuleFix {
        software: ".NET",
        change: "HttpClient.DefaultRequestHeaders.ExpectContinue = false; ServicePointManager.Expect100Continue = false",
    },
    RuleFix { software: "Apache HttpClient", change: "RequestConfig.setExpectContinueEnabled(false)" },
    RuleFix {
        software: "any server",
        change: "answer 100 Continue as soon as the head is read (RFC 9110, section 10.1.1); proxies must pass it on",
    },
];

/// Least cost of holding the body back.
const LEAST_MS: f64 = 5.0;

fn wants(record: &Record) -> Vec<Block> {
    let s = &record.settings;
    if !s.expects_continue || !s.may_repeat || record.tried(Experiment::Expect) || record.group().is_empty() {
        return Vec::new();
    }
    let probe = |arm: u8| {
        let mut probe = CallProbe::plain(Experiment::Expect, arm, Lane::Fresh);
        probe.writes = s.writes;
        if arm == 1 {
            probe.variation = Variation::WithoutExpect;
        }
        Probe::Call(Box::new(probe))
    };
    // Three of each: with a second of waiting in one arm that is what there is time for.
    singles((0..3).flat_map(|_| [probe(0), probe(1)]).collect())
}

fn judge(record: &Record) -> Judgement {
    if !record.settings.expects_continue {
        return Judgement::Silent;
    }
    let trial = record.trial(
        Experiment::Expect,
        "without Expect: 100-continue",
        "the field is left out",
        Call::to_first_byte,
    );
    let Some(trial) = trial else {
        return Judgement::Open(
            "the request says Expect: 100-continue; what that costs needs it repeated (--repeat-unsafe)"
                .to_owned(),
        );
    };
    let held: Vec<f64> = record.observed().filter_map(|c| c.held_for_continue).map(crate::call::ms).collect();
    let held = crate::stats::median(&held);
    let words = format!("the server says 100 Continue after {}", say(held));
    if held < LEAST_MS {
        return excluded(words);
    }
    if !trial.moved(LEAST_MS) {
        return not_moved(&trial, LEAST_MS, &words);
    }
    let in_vain =
        record.observed().filter(|c| c.held_for_continue.is_some() && c.continued.is_none()).count();
    let words = if in_vain > 0 {
        format!("the body was held back for {}, and 100 Continue never came", say(held))
    } else {
        format!("the body was held back for {} until 100 Continue came", say(held))
    };
    Judgement::Named(Box::new(Verdict::new(&CAUSE, trial.effect.value, Grounds::Moved(trial)).saying(words)))
}
