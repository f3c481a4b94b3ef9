//! The server closes idle connections without announcing it, and a request in flight at that moment
//! is lost.
//!
//! Symptom: a call on a reused connection ends with a reset or a FIN before the first byte, though
//! the previous response allowed another request. Experiment: calls after a pause.

use crate::call::{Call, CallStage, Why, ms};
use crate::evidence::Grounds;
use crate::parts::{CausePage, ENDS, FaultPlace, Forecast, PictureStep, RuleFix, ServerChange, fix};
use crate::probe::Experiment;
use crate::record::Record;
use crate::rule::{AGAIN, Cause, Judgement, Rule, excluded, nothing};
use crate::stats::median;
use crate::times::CallPart;
use crate::verdict::Verdict;

pub(crate) static CAUSE: Cause = Cause {
    id: "keep-alive-race",
    title: "the server closes kept connections under the client's requests",
    fixes: FIXES,
    verify: AGAIN,
    place: FaultPlace::Wire,
    part: CallPart::Call,
    pause: None,
    server_changed: ServerChange::TakenBack,
    forecast: Forecast::Lever,
    packets: None,
    page: PAGE,
    rule: Rule::Alone { wants: nothing, judge },
};

const PAGE: CausePage = CausePage {
    what: "A kept connection may be closed by the server when it was idle for long enough. A request that leaves just then meets a closed door: it gets no \
         answer, and the caller has to send it again on a new connection, if it may.",
    lanes: ENDS,
    picture: &[
        PictureStep::To("request"),
        PictureStep::From("answer"),
        PictureStep::Then(30.0, "idle"),
        PictureStep::From("FIN: the server closes"),
        PictureStep::LostTo("request: too late"),
        PictureStep::Wait(40.0, "a new connection"),
        PictureStep::To("request again"),
        PictureStep::From("answer"),
    ],
    more: &[fix(
        "JDK, Go, Python, as callers",
        "an idle time-out below the server's (jdk.httpclient.keepalive.timeout, IdleConnTimeout, pool_recycle)",
    )],
};

const FIXES: &[RuleFix] = &[
    RuleFix {
        software: "any client",
        change: "an idle time-out shorter than the server's; retry idempotent requests once on a new connection",
    },
    RuleFix {
        software: "Apache HttpClient",
        change: "setValidateAfterInactivity, evictIdleConnections below the server's time-out",
    },
    RuleFix {
        software: "Node",
        change: "server.keepAliveTimeout above the load balancer's idle time-out (ALB: 60 s)",
    },
    RuleFix {
        software: "nginx",
        change: "keepalive_timeout above the client's; keepalive_requests high enough",
    },
    RuleFix { software: "any server", change: "say Connection: close with the last answer before closing" },
];

/// The server closed the connection without a response.
fn dropped(call: &Call) -> bool {
    let closed = |why| matches!(why, Why::Reset | Why::ClosedEarly);
    call.failure().is_some_and(|f| closed(f.why) && matches!(f.stage, CallStage::Wait | CallStage::Send))
}

fn judge(record: &Record) -> Judgement {
    let mut reused = 0;
    let mut lost = Vec::new();
    // Those that come as the server behind the proxy closes are another cause's.
    for (_, call) in record.calls().filter(|(p, c)| !c.fresh && p.experiment != Experiment::IdleOrder) {
        reused += 1;
        if dropped(call) {
            lost.push(ms(call.total));
        }
    }
    if lost.is_empty() {
        return Judgement::Silent;
    }
    // A new connection cannot have been idle for too long.
    let fresh = record.calls().filter(|(_, c)| c.fresh).count();
    let new = record.calls().filter(|(_, c)| c.fresh && dropped(c)).count();
    if new > 0 {
        return excluded(format!(
            "{new} of {fresh} calls on new connections got no answer either, and {} of {reused} on kept ones",
            lost.len()
        ));
    }
    // A client has to send it again on a new connection.
    let again = crate::record::median_of(&record.fresh(), |c| c.total);
    let words = format!(
        "{} of {reused} calls on a kept connection got no answer: the server closed it though the answer before allowed another",
        lost.len()
    );
    let alone = lost.len() >= 2;
    Judgement::Named(Box::new(Verdict::new(&CAUSE, median(&lost) + again, Grounds::Seen { words, alone })))
}
