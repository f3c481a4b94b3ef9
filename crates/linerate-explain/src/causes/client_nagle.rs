//! The client writes head and body of its request separately with Nagle's algorithm on. The body
//! waits for the server's acknowledgement of the head, which the server delays.
//!
//! Symptom: a request with a body takes about 40 ms more until its first byte arrives. Experiment:
//! TCP_NODELAY, nothing else changed. `explain` cannot know how the user's client writes. It
//! assumes what `--writes` says, and reports the cost of the other way.

use crate::arms::{arms, on_new_lanes, side_by_side};
use crate::call::{Call, ms};
use crate::evidence::{Grounds, Trial};
use crate::parts::{
    CausePage, ENDS, FaultPlace, Forecast, PacketDoubt, PacketSigns, PictureStep, RuleFix, ServerChange, fix,
};
use crate::probe::{Block, Experiment, Writes};
use crate::record::Record;
use crate::rule::{Cause, Judgement, Rule, again, not_moved};
use crate::stats::median;
use crate::times::CallPart;
use crate::verdict::Verdict;
use crate::words::say;

/// Our small write waits for the server's delayed ACK.
pub static CAUSE: Cause = Cause {
    id: "client-nagle-delayed-ack",
    title: "the client holds the body of its request back until the server acknowledges the head (Nagle's algorithm meeting delayed ACKs)",
    fixes: FIXES,
    verify: "where the client now writes in one piece: with --writes one",
    place: FaultPlace::Here,
    part: CallPart::Call,
    pause: Some("our body waits for the server's ACK"),
    server_changed: ServerChange::TakenBack,
    forecast: Forecast::Lever,
    packets: Some(PACKETS),
    page: PAGE,
    rule: Rule::Alone { wants, judge },
};

const PAGE: CausePage = CausePage {
    what: "The same as in a server, the other way round: the client writes the request's head and its body apart, with Nagle's algorithm on. The \
         body waits until the server has acknowledged the head, and the server delays that acknowledgement, since it has nothing to \
         answer yet.",
    lanes: ENDS,
    picture: &[
        PictureStep::To("request head"),
        PictureStep::Wait(41.0, "the body waits for the ACK"),
        PictureStep::From("ACK"),
        PictureStep::To("request body"),
        PictureStep::From("answer"),
    ],
    more: &[fix(
        "JDK HttpClient, macOS, Windows",
        "their HTTP clients set TCP_NODELAY; your own sockets: Socket.setTcpNoDelay(true), setsockopt(TCP_NODELAY)",
    )],
};

const PACKETS: PacketSigns = PacketSigns {
    title: "the client's request leaves in parts, and the rest waits for the server's delayed ACK (Nagle's algorithm)",
    fixes: &[
        fix("any client", "TCP_NODELAY, or header and body in one write"),
        fix("Apache HttpClient", "SocketConfig.custom().setTcpNoDelay(true) (its default since 4.3)"),
        fix("Python http.client", "pass the body to request(), so that it leaves with the header"),
    ],
    verify: "capture again after the change: the pause inside the request is gone",
    pause: Some("the client's next part waits for the server's ACK"),
    of_connections: false,
    doubts: PacketDoubt::None,
};

const FIXES: &[RuleFix] = &[
    RuleFix {
        software: "Apache HttpClient 4/5",
        change: "SocketConfig.custom().setTcpNoDelay(true) (the default; check that nobody turned it off)",
    },
    RuleFix {
        software: "Java HttpURLConnection",
        change: "setFixedLengthStreamingMode off for small bodies, so that head and body leave together",
    },
    RuleFix {
        software: "Node",
        change: "noDelay: true in http.Agent, and request.end(body) instead of write and end",
    },
    RuleFix {
        software: "Python",
        change: "http.client sets TCP_NODELAY since 3.6; for raw sockets setsockopt it, or join head and body",
    },
    RuleFix { software: "Go", change: "the default is right; remove SetNoDelay(false)" },
    RuleFix {
        software: ".NET",
        change: "SocketsHttpHandler's default is right; ServicePoint.UseNagleAlgorithm = false in .NET Framework",
    },
    RuleFix { software: "libcurl", change: "CURLOPT_TCP_NODELAY 1 (the default since 7.50.2)" },
    RuleFix {
        software: "any client",
        change: "setsockopt(TCP_NODELAY), or MSG_MORE on the head, or one writev",
    },
];

/// Least cost of a hold: delayed acknowledgements last 40 ms.
const HOLD_MS: f64 = 4.0;

fn applies(record: &Record) -> bool {
    record.settings.body_bytes > 0
        && record.settings.may_repeat
        && !record.settings.expects_continue
        && !record.reused().is_empty()
}

fn wants(record: &Record) -> Vec<Block> {
    if !applies(record) {
        return Vec::new();
    }
    match record.settings.writes {
        Writes::Apart if again(record, Experiment::NoDelay, trial(record).as_ref(), HOLD_MS) => {
            let arms = arms(Experiment::NoDelay, 2, 2, 2, |p| {
                p.writes = Writes::Apart;
                p.levers.nodelay = p.arm == 1;
                // In both arms, so that they still differ in one thing.
                p.levers.stamps = true;
            });
            side_by_side(record, on_new_lanes(record, arms))
        }
        Writes::One if !record.tried(Experiment::Apart) => {
            let arms = arms(Experiment::Apart, 2, 1, 4, |p| {
                p.writes = if p.arm == 1 { Writes::Apart } else { Writes::One };
            });
            side_by_side(record, arms)
        }
        _ => Vec::new(),
    }
}

fn trial(record: &Record) -> Option<Trial> {
    record.trial(
        Experiment::NoDelay,
        "without Nagle's algorithm",
        "TCP_NODELAY on our side",
        Call::to_first_byte,
    )
}

fn judge(record: &Record) -> Judgement {
    if !applies(record) {
        return Judgement::Silent;
    }
    if record.settings.writes == Writes::One {
        let [one, apart] = [0, 1].map(|arm| record.times(Experiment::Apart, arm, Call::to_first_byte));
        // The other way round: the change is what a client may do worse.
        let other =
            Trial::of("head and body in two writes", "two writes under Nagle's algorithm", apart, one);
        return match other.filter(|t| t.moved(HOLD_MS)) {
            Some(t) => Judgement::Open(format!(
                "how your client writes its request is not known: here head and body left in one write; a client that writes them \
                 apart under Nagle's algorithm (older Apache HttpClient, raw sockets) would pay {} more; --writes apart explains such a one",
                say(t.effect.value)
            )),
            None => Judgement::Silent,
        };
    }
    let Some(trial) = trial(record) else { return Judgement::Silent };
    if !trial.moved(HOLD_MS) {
        let words = format!(
            "the first byte comes after {} without TCP_NODELAY, after {} with it",
            say(trial.before_ms()),
            say(trial.after_ms())
        );
        return not_moved(&trial, HOLD_MS, &words);
    }
    let words = format!(
        "the first byte of the answer comes {} after the first write; with TCP_NODELAY after {}",
        say(trial.before_ms()),
        say(trial.after_ms())
    );
    let held: Vec<f64> =
        record.arm(Experiment::NoDelay, 0).iter().filter_map(|c| c.held_in_tcp).map(ms).collect();
    let verdict = Verdict::new(&CAUSE, trial.effect.value, Grounds::Moved(trial)).saying(words);
    Judgement::Named(Box::new(if held.len() >= 2 && median(&held) >= HOLD_MS {
        verdict.saying(format!(
            "the kernel's own stamps: the body lay in TCP for {} after it was written, until the head was acknowledged",
            say(median(&held))
        ))
    } else {
        verdict
    }))
}
