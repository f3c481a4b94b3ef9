//! The windows of HTTP/2 that our client announces are smaller than what the path holds: the server
//! sends a window, and waits a round trip for our word that there is room again.
//!
//! Sign: over HTTP/2 a response that is larger than our window, and a round trip that counts.
//! Experiment: larger windows; nothing else changes. Two, four times the window and one that is
//! never full are doses: the response takes longer in proportion to the round trips in which it stands
//! still.

use crate::arms::{arms, on_new_lanes};
use crate::evidence::{Grounds, Proof};
use crate::parts::{
    CausePage, ENDS, FaultPlace, Forecast, PacketDoubt, PacketSigns, PictureStep, RuleFix, ServerChange, fix,
};
use crate::probe::{Block, Experiment, Probe};
use crate::record::Record;
use crate::rule::{Cause, Judgement, Rule, again, excluded, not_moved};
use crate::signs::streams::{self, FIRST_WINDOW, WINDOWS};
use crate::times::CallPart;
use crate::verdict::Verdict;
use crate::words::say;

pub(crate) static CAUSE: Cause = Cause {
    id: "h2-flow-control",
    title: "the client's HTTP/2 window is too small for this path: the server sends one window per round trip and waits for room",
    fixes: FIXES,
    verify: "give --h2-window what the client announces then: explain speaks for it",
    place: FaultPlace::Here,
    part: CallPart::Call,
    pause: Some("our HTTP/2 window is full"),
    server_changed: ServerChange::TakenBack,
    forecast: Forecast::Lever,
    packets: Some(PACKETS),
    page: PAGE,
    rule: Rule::Alone { wants, judge },
};

const PAGE: CausePage = CausePage {
    what: "Over HTTP/2 each side says how many bytes the other may send before it has to wait: the window, for each stream and for the whole \
         connection. It begins with 65,535 bytes, and many clients leave it there. The server sends a window and stops; the client's word \
         that there is room again takes a round trip. So no answer is faster than one window per round trip: at 40 ms, 1.6 MB a second, \
         however fast the line is.",
    lanes: ENDS,
    picture: &[
        PictureStep::To("request"),
        PictureStep::From("answer, 65535 bytes"),
        PictureStep::Wait(40.0, "the window is full until WINDOW_UPDATE arrives"),
        PictureStep::To("WINDOW_UPDATE"),
        PictureStep::From("answer, 65535 bytes"),
        PictureStep::Wait(40.0, "and again"),
        PictureStep::From("answer, the rest"),
    ],
    more: &[fix("nghttp", "nghttp -w 24 -W 24 URL announces windows of 16 MiB: compare with -w 16 -W 16")],
};

const PACKETS: PacketSigns = PacketSigns {
    title: "an HTTP/2 window is too small for this path: its sender sends one window per round trip and waits for room",
    fixes: &[
        fix(
            "any client",
            "SETTINGS_INITIAL_WINDOW_SIZE and a WINDOW_UPDATE on stream 0: both at least the path's rate times its round trip",
        ),
        fix(
            "Java HttpClient",
            "-Djdk.httpclient.windowsize=16777216 and -Djdk.httpclient.connectionWindowSize=33554432",
        ),
        fix(
            "Go",
            "http2.Transport's windows are 4 MiB a stream; grpc.WithInitialWindowSize and WithInitialConnWindowSize",
        ),
        fix(
            "Node",
            "http2.connect(url, { settings: { initialWindowSize: 16 << 20 } }), and session.setLocalWindowSize(16 << 20)",
        ),
        fix("any server, for uploads", "the same, announced by the server"),
    ],
    verify: "linerate explain --http2 --h2-window BYTES URL proves it, with the window that the client announces",
    pause: Some("the HTTP/2 window is full"),
    of_connections: false,
    doubts: PacketDoubt::None,
};

const FIXES: &[RuleFix] = &[
    RuleFix {
        software: "Java HttpClient",
        change: "-Djdk.httpclient.windowsize=16777216 and -Djdk.httpclient.connectionWindowSize=33554432",
    },
    RuleFix {
        software: "Netty, gRPC-Java",
        change: "NettyChannelBuilder.flowControlWindow(16 << 20), or initialFlowControlWindow, which grows by itself",
    },
    RuleFix {
        software: "Go",
        change: "http2.Transport's windows are 4 MiB a stream; grpc.WithInitialWindowSize and WithInitialConnWindowSize",
    },
    RuleFix {
        software: "Node",
        change: "http2.connect(url, { settings: { initialWindowSize: 16 << 20 } }), and session.setLocalWindowSize(16 << 20)",
    },
    RuleFix {
        software: "Python httpx, h2",
        change: "its windows are 65,535 bytes and 16 MiB for a connection: HTTP/1.1 where bodies are large and the server is far",
    },
    RuleFix {
        software: "nghttp2, libcurl",
        change: "nghttp2_session_set_local_window_size for the stream and for the connection; libcurl announces 10 MiB and more",
    },
    RuleFix {
        software: "Rust hyper, reqwest",
        change: "http2_adaptive_window(true), or http2_initial_stream_window_size and http2_initial_connection_window_size",
    },
    RuleFix {
        software: "any client",
        change: "SETTINGS_INITIAL_WINDOW_SIZE and a WINDOW_UPDATE on stream 0: both at least the path's rate times its round trip",
    },
];

/// Calls that take longer are repeated less.
const SLOW_MS: f64 = 400.0;
/// Calls for each window between the usual one and one that is never full.
const DOSED: usize = 2;
/// Share of a round trip that a larger window must take away.
const MOVED: f64 = 0.7;
/// Slopes by which the time follows the window: what a window admits comes in bursts of halves, and
/// the path's rate is finite.
const FOLLOWS: std::ops::Range<f64> = 0.5..1.7;

fn wants(record: &Record) -> Vec<Block> {
    let trial = streams::window_trial(record);
    let moved = MOVED * record.rtt_ms();
    if !streams::may_be_limited(record)
        || !record.settings.may_repeat
        || !again(record, Experiment::Window, trial.as_ref(), moved)
    {
        return Vec::new();
    }
    let window = record.settings.window;
    // Slow calls leave no time for a fourth one.
    let n = if record.typical(|c| c.total) > SLOW_MS { 3 } else { 4 };
    let blocks = arms(Experiment::Window, WINDOWS.len() as u8, 1, n, |p| {
        p.writes = record.settings.writes;
        p.window = match WINDOWS[usize::from(p.arm)] {
            1 => None,
            0 => Some(u32::MAX >> 1),
            times => Some(window.saturating_mul(times).min(u32::MAX >> 1)),
        };
    });
    let doses = |block: &mut Block| {
        let is_dose = |p: &Probe| matches!(p, Probe::Call(call) if call.arm > 1);
        if block.iter().all(is_dose) {
            block.truncate(DOSED + 1);
        }
    };
    let mut blocks = on_new_lanes(record, blocks);
    blocks.iter_mut().for_each(doses);
    blocks
}

fn judge(record: &Record) -> Judgement {
    if !streams::may_be_limited(record) {
        return beside(record);
    }
    let (window, rtt, body) = (record.settings.window, record.rtt_ms(), streams::body(record));
    let Some(trial) = streams::window_trial(record) else {
        return Judgement::Open(format!(
            "the answer of {body} bytes is larger than our HTTP/2 window of {window}; what that costs needs the call repeated with \
             larger ones"
        ));
    };
    let (before, after) = (trial.before_ms(), trial.after_ms());
    if !trial.moved(MOVED * rtt) {
        let words = format!(
            "the answer takes {} with our window of {window} bytes, and {} with one that is never full",
            say(before),
            say(after)
        );
        return not_moved(&trial, MOVED * rtt, &words);
    }
    let stops = streams::stops(body, u64::from(window));
    let words = format!(
        "{body} bytes through a window of {window}: the server has to wait {stops:.1} round trips of {} for room; from its first to its \
         last byte the answer takes {}, and {} with a window that is never full",
        say(rtt),
        say(before),
        say(after)
    );
    let dose = streams::window_dose(record);
    let verdict = Verdict::new(&CAUSE, trial.effect.value, Grounds::Moved(trial)).saying(words);
    Judgement::Named(Box::new(match dose {
        Some(d) if d.low > 0.0 && FOLLOWS.contains(&d.value) => verdict.saying(format!(
            "dose-response: by windows of one, two and four times {window} bytes, and by one that is never full, each millisecond that the \
             server has to wait for room makes the answer {:.2} ms later ({:.2} to {:.2})",
            d.value, d.low, d.high
        )),
        Some(d) => verdict.at_most(Proof::Likely).saying(format!(
            "how the time follows the window is unclear: slope {:.2} ({:.2} to {:.2})",
            d.value, d.low, d.high
        )),
        None => verdict,
    }))
}

/// The cost for a client with smaller windows, where ours are large enough.
fn beside(record: &Record) -> Judgement {
    let (rtt, body) = (record.rtt_ms(), streams::body(record));
    if record.streamed().is_none() || body == 0 {
        return Judgement::Silent;
    }
    let stops = streams::stops(body, u64::from(FIRST_WINDOW));
    if stops == 0.0 || rtt < streams::RTT_MS {
        return excluded(format!(
            "the answer of {body} bytes needs no window larger than ours of {}",
            record.settings.window
        ));
    }
    Judgement::Open(format!(
        "which windows your client announces is not known: here they are {} bytes; with the {FIRST_WINDOW} that HTTP/2 begins with, the server \
         would wait {stops:.1} round trips for room, {} in all; --h2-window {FIRST_WINDOW} explains such a client",
        record.settings.window,
        say(stops * rtt)
    ))
}
