//! The server ends the connection with each response, so each call pays for a new one.
//!
//! Symptom: every call on what should be a kept connection had to open it. Evidence: the responses
//! say `Connection: close` (or are HTTP/1.0, or end by closing), or the peer's FIN follows each.
//! Cost: the handshake, measured.

use crate::call::Call;
use crate::evidence::Grounds;
use crate::parts::{
    CausePage, ENDS, FaultPlace, Forecast, PacketDoubt, PacketSigns, PictureStep, RuleFix, ServerChange, fix,
};
use crate::probe::{Experiment, Lane};
use crate::record::{Record, median_of};
use crate::rule::{AGAIN, Cause, Judgement, Rule, excluded, nothing};
use crate::times::CallPart;
use crate::verdict::Verdict;
use crate::words::say;

pub(crate) static CAUSE: Cause = Cause {
    id: "no-keep-alive",
    title: "the server closes the connection after each answer, so each call opens a new one",
    fixes: FIXES,
    verify: AGAIN,
    place: FaultPlace::Wire,
    part: CallPart::Call,
    pause: None,
    server_changed: ServerChange::TakenBack,
    forecast: Forecast::Counted(Call::opening),
    packets: Some(PACKETS),
    page: PAGE,
    rule: Rule::Alone { wants: nothing, judge },
};

const PAGE: CausePage = CausePage {
    what: "The server ends the connection with each answer, so each call has to open a new one first: at least a round trip more, and with TLS two or three.",
    lanes: ENDS,
    picture: &[
        PictureStep::To("SYN"),
        PictureStep::Wait(40.0, "a round trip to open"),
        PictureStep::From("SYN, ACK"),
        PictureStep::To("request"),
        PictureStep::From("answer, Connection: close"),
    ],
    more: &[fix(
        "JDK HttpServer",
        "it keeps connections if each exchange is read to its end and closed (sun.net.httpserver.idleInterval)",
    )],
};

const PACKETS: PacketSigns = PacketSigns {
    title: "nearly every call opens a connection of its own",
    fixes: &[
        fix("the client", "keep connections and use them again (a pool, a session, an agent with keepAlive)"),
        fix("the server", "do not answer Connection: close"),
    ],
    verify: "linerate load URL --per-connection 1, against the same without",
    pause: None,
    of_connections: false,
    doubts: PacketDoubt::None,
};

const FIXES: &[RuleFix] = &[
    RuleFix {
        software: "nginx",
        change: "keepalive_timeout above 0 and keepalive_requests 1000; towards backends: keepalive in upstream, proxy_http_version 1.1 and an empty Connection header",
    },
    RuleFix { software: "Apache httpd", change: "KeepAlive On, MaxKeepAliveRequests 1000" },
    RuleFix {
        software: "HAProxy",
        change: "option http-keep-alive instead of httpclose or http-server-close",
    },
    RuleFix { software: "Tomcat", change: "maxKeepAliveRequests=\"-1\", keepAliveTimeout on the Connector" },
    RuleFix {
        software: "Python http.server",
        change: "protocol_version = \"HTTP/1.1\" in the handler, and a Content-Length with each answer",
    },
    RuleFix { software: "Node", change: "server.keepAliveTimeout, and no Connection: close header" },
    RuleFix {
        software: "Go",
        change: "remove SetKeepAlivesEnabled(false); read and close response bodies in handlers that proxy",
    },
    RuleFix {
        software: "any server",
        change: "Content-Length or chunked with each answer, and no Connection: close",
    },
];

/// The responses that allow another request say so in vain, or do not allow it.
fn closing(record: &Record) -> (usize, usize) {
    // A stream of events ends with its connection because we left.
    let answered: Vec<_> = record.observed().filter(|c| c.answer().is_some_and(|a| !a.endless)).collect();
    let closing = answered.iter().filter(|c| c.answer().is_some_and(|a| !a.reusable)).count();
    (closing, answered.len())
}

/// Share of calls that have to open their connection from which on the server closes too soon.
const SOON_SHARE: f64 = 0.2;
/// Their least number.
const SOON_CALLS: usize = 2;

/// Of the calls for which an earlier one had left a connection, those that had to open one all the same:
/// that many, and of how many.
fn reopened(record: &Record) -> Option<(usize, usize)> {
    let kept = record.calls().filter(|(p, c)| {
        p.experiment == Experiment::Observe
            && matches!(p.lane, Lane::Kept(_))
            && c.answer().is_some_and(|a| !a.endless)
    });
    let kept: Vec<&Call> = kept.map(|(_, c)| c).skip(1).collect();
    let opened = kept.iter().filter(|c| c.fresh).count();
    let often = opened >= SOON_CALLS && opened as f64 >= SOON_SHARE * kept.len() as f64;
    (often && opened < kept.len()).then_some((opened, kept.len()))
}

fn judge(record: &Record) -> Judgement {
    let (closing, answered) = closing(record);
    if answered < 2 {
        return Judgement::Silent;
    }
    if let Some((opened, of)) = reopened(record) {
        let connect = median_of(&record.fresh(), Call::opening);
        let words = format!(
            "{opened} of {of} calls that should have found their connection open had to open it: the server closes it after every {:.0} answers, \
             and opening one takes {}",
            1.0 + of as f64 / opened as f64,
            say(connect)
        );
        // So much of them pay for it, on average.
        let cost = connect * opened as f64 / of as f64;
        let verdict = Verdict::new(&CAUSE, cost, Grounds::Counted { words, share: 1.0 });
        return Judgement::Named(Box::new(
            verdict
                .titled("the server closes the connection after a few answers, so many calls open a new one"),
        ));
    }
    if closing < answered {
        return match (closing, record.reused().len()) {
            (0, n) if n > 0 => excluded(format!("the server keeps connections: {n} calls reused one")),
            _ => Judgement::Silent,
        };
    }
    let connect = median_of(&record.fresh(), Call::opening);
    let words = format!(
        "all {answered} answers end their connection; opening one takes {}, {:.0} % of the call",
        say(connect),
        100.0 * connect / record.typical(|c| c.total).max(1e-6)
    );
    Judgement::Named(Box::new(Verdict::new(&CAUSE, connect, Grounds::Counted { words, share: 1.0 })))
}
