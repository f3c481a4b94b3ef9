//! The server admits so few streams at once on a connection that calls at once wait in the client
//! for one to end.
//!
//! Sign: a small SETTINGS_MAX_CONCURRENT_STREAMS. Experiment: twice as many calls at once as it
//! admits, on one connection (0) against several (1), each within the limit. What waits then does so
//! at ours, before its request leaves: that is measured, too.

use crate::call::ms;
use crate::evidence::{Grounds, Trial};
use crate::parts::{
    CausePage, ENDS, FaultPlace, Forecast, PacketDoubt, PacketSigns, PictureStep, RuleFix, ServerChange, fix,
};
use crate::probe::{Block, Experiment, Probe};
use crate::record::Record;
use crate::rule::{AGAIN, Cause, Judgement, Rule, excluded, not_moved};
use crate::signs::streams;
use crate::stats::median;
use crate::times::CallPart;
use crate::verdict::Verdict;
use crate::words::say;

pub(crate) static CAUSE: Cause = Cause {
    id: "h2-stream-limit",
    title: "the server admits few HTTP/2 streams at once: of several calls on a connection some wait in the client for their turn",
    fixes: FIXES,
    verify: AGAIN,
    place: FaultPlace::Process,
    part: CallPart::Call,
    pause: None,
    server_changed: ServerChange::TakenBack,
    forecast: Forecast::Lever,
    packets: Some(PACKETS),
    page: PAGE,
    rule: Rule::Alone { wants, judge },
};

const PAGE: CausePage = CausePage {
    what: "An HTTP/2 connection carries many calls at once, each on a stream of its own, and the server says how many: \
         SETTINGS_MAX_CONCURRENT_STREAMS. A client with more calls than that keeps the rest back until a stream ends. In the server's \
         log they look quick, since they had not been sent while they waited.",
    lanes: ENDS,
    picture: &[
        PictureStep::To("requests 1 and 2"),
        PictureStep::Wait(50.0, "request 3 waits in the client: two streams are admitted"),
        PictureStep::From("answers 1 and 2"),
        PictureStep::To("request 3"),
        PictureStep::From("answer 3"),
    ],
    more: &[fix(
        "browsers",
        "chrome://net-export shows the limit a server announces, in the events of HTTP2_SESSION",
    )],
};

const PACKETS: PacketSigns = PacketSigns {
    title: "calls wait in the client for a stream: the server admits no more at once on a connection",
    fixes: &[
        fix("nginx", "http2_max_concurrent_streams (128 by default)"),
        fix("Apache", "H2MaxSessionStreams (100 by default)"),
        fix("Node", "http2.createServer({ settings: { maxConcurrentStreams: n } })"),
        fix("Go", "http2.Server.MaxConcurrentStreams (250 by default); grpc.MaxConcurrentStreams"),
        fix(
            "the client",
            "a second connection when the first one is full (Go and Java's HttpClient do not by themselves)",
        ),
    ],
    verify: "linerate explain --http2 URL makes twice as many calls at once on one connection and on two",
    pause: None,
    of_connections: false,
    doubts: PacketDoubt::None,
};

const FIXES: &[RuleFix] = &[
    RuleFix { software: "nginx", change: "http2_max_concurrent_streams 128; (the default)" },
    RuleFix {
        software: "Apache httpd",
        change: "H2MaxSessionStreams 100 (the default), and H2MaxWorkers for as many",
    },
    RuleFix {
        software: "Tomcat",
        change: "maxConcurrentStreams and maxConcurrentStreamExecution of the UpgradeProtocol element: 100 and 20 are the defaults",
    },
    RuleFix { software: "Go", change: "http2.Server{MaxConcurrentStreams: 250}; grpc.MaxConcurrentStreams" },
    RuleFix {
        software: "Node",
        change: "http2.createServer({ settings: { maxConcurrentStreams: 100 } }), or leave it out",
    },
    RuleFix {
        software: "Netty, gRPC-Java",
        change: "maxConcurrentCallsPerConnection(Integer.MAX_VALUE), the default",
    },
    RuleFix { software: "HAProxy", change: "tune.h2.fe.max-concurrent-streams 100 (the default)" },
    RuleFix {
        software: "any server",
        change: "SETTINGS_MAX_CONCURRENT_STREAMS of at least 100, as RFC 9113 section 6.5.2 recommends",
    },
    RuleFix { software: "any client", change: "more connections, where the limit cannot be raised" },
];

/// Limits beyond this are not tested. Reason: it takes twice as many calls at once.
const TESTED: u32 = 6;
/// Calls that wait must be spared this many milliseconds.
const MOVED_MS: f64 = 2.0;

fn few(record: &Record) -> Option<u32> {
    streams::limit(record).filter(|limit| (1..=TESTED).contains(limit))
}

fn wants(record: &Record) -> Vec<Block> {
    let Some(limit) = few(record).filter(|_| record.settings.may_repeat) else { return Vec::new() };
    if record.tried(Experiment::Streams) {
        return Vec::new();
    }
    // As many calls that wait as it takes to tell.
    let rounds = 4_u32.div_ceil(limit) as u8;
    let arms = streams::arms(Experiment::Streams, 2 * limit as u8, 2, rounds);
    arms.map(|arm| vec![Probe::Together(arm)]).into()
}

fn judge(record: &Record) -> Judgement {
    let Some(limit) = few(record) else {
        return match streams::limit(record) {
            Some(limit) if limit > 0 => {
                excluded(format!("the server admits {limit} streams at once on a connection"))
            }
            None if record.streamed().is_some() => excluded("the server names no limit of streams"),
            _ => Judgement::Silent,
        };
    };
    let of = |arm| {
        let rounds = record.together(Experiment::Streams, arm);
        // Those for which there was no stream at first, and those on the other connection.
        let late = |round: &[crate::call::Call]| {
            let mut round: Vec<_> = round.iter().filter(|c| c.answer().is_some()).collect();
            round.sort_by_key(|c| c.total);
            round.split_off(round.len().min(limit as usize)).into_iter().cloned().collect::<Vec<_>>()
        };
        rounds.into_iter().flat_map(late).collect::<Vec<_>>()
    };
    let [one, several] = [0, 1].map(of);
    let times = |calls: &[crate::call::Call]| calls.iter().map(|c| ms(c.total)).collect::<Vec<_>>();
    let trial = Trial::of(
        "on several connections",
        "how many connections carry the same calls at once",
        times(&one),
        times(&several),
    );
    let Some(trial) = trial else {
        return Judgement::Open(format!(
            "the server admits {limit} streams at once on a connection, and RFC 9113 recommends 100; what that costs needs several calls at once"
        ));
    };
    if !trial.moved(MOVED_MS) {
        let words = format!(
            "of {} calls at once, the later half takes {} on one connection and {} on two, though the server admits {limit} streams",
            2 * limit,
            say(trial.before_ms()),
            say(trial.after_ms())
        );
        return not_moved(&trial, MOVED_MS, &words);
    }
    let waited = median(&one.iter().map(|c| ms(c.queued)).collect::<Vec<_>>());
    let words = format!(
        "the server admits {limit} streams at once (SETTINGS_MAX_CONCURRENT_STREAMS): of {} calls at once on a connection {limit} had to wait {} \
         for a stream before their requests left; on two connections none waited, and they took {} instead of {}",
        2 * limit,
        say(waited),
        say(trial.after_ms()),
        say(trial.before_ms())
    );
    let verdict = Verdict::new(&CAUSE, trial.effect.value, Grounds::Moved(trial)).saying(words);
    // A call alone does not wait: what else costs it time comes first.
    Judgement::Named(Box::new(
        verdict.saying("a call alone on its connection does not wait for a stream").behind(),
    ))
}
