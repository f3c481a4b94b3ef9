//! HTTP/2's rows of docs/LOAD-TRUTH.md: frames by hand.

use std::time::Duration;

use linerate_broken::frames::{FrameBytes, OK, flag, kind};
use linerate_broken::{Broken, BrokenTls, Manner, Reply, ScriptRequest, StreamBehaviour, Then};

use super::way::TruthExpectation::{AtLeast, AtMost, Counts, Says};

use super::way::{Over, TruthShape, TruthWay};
use super::ways::{BROKE_OFF, NOTHING, SLOW as FEW};

/// Sixteen streams at once on each of two connections.
pub(super) const MANY: TruthShape = TruthShape::requests(1000).connections(2).depth(16);
/// Requests of which four break their connection, with others beside them.
const CAUSES: TruthShape = TruthShape::requests(200).connections(2).depth(8);

pub(super) fn frames() -> FrameBytes {
    FrameBytes::new()
}

/// A server by HTTP/2; `tls`: not in clear text.
pub(super) fn with_h2(
    tls: bool,
    http2: StreamBehaviour,
    script: impl Fn(&ScriptRequest<'_>) -> Reply + Send + Sync + 'static,
) -> Broken {
    let tls = tls.then(|| BrokenTls { alpn: &[b"h2"], ..BrokenTls::default() });
    Broken::with(Manner { http2: Some(http2), tls, ..Manner::default() }, script)
}

pub(super) fn h2(tls: bool, script: impl Fn(&ScriptRequest<'_>) -> Reply + Send + Sync + 'static) -> Broken {
    with_h2(tls, StreamBehaviour::default(), script)
}

pub(super) fn greeting(tls: bool, greeting: fn() -> Vec<u8>) -> Broken {
    with_h2(tls, StreamBehaviour { greeting, ..StreamBehaviour::default() }, |_| broken(frames(), Then::Keep))
}

/// A server that breaks three replies in ten.
pub(super) fn three_in_ten(tls: bool, bad: impl Fn(u32) -> Reply + Send + Sync + 'static) -> Broken {
    h2(tls, move |asked| if asked.nth % 10 < 3 { bad(asked.stream) } else { good(asked) })
}

/// A server on which requests number 20, 70, 120 and 170 break something; the others take 2 ms.
fn at_causes(tls: bool, bad: impl Fn(u32) -> Reply + Send + Sync + 'static) -> Broken {
    h2(tls, move |asked| match asked.number() {
        Some(n) if n % 50 == 20 => bad(asked.stream),
        _ => good(asked).after(Duration::from_millis(2)),
    })
}

pub(super) fn good(asked: &ScriptRequest<'_>) -> Reply {
    fine(frames().good(asked.stream))
}

/// Frames that hold a good response.
pub(super) fn fine(frames: FrameBytes) -> Reply {
    Reply::with(frames.0)
}

/// Frames that do not.
pub(super) fn broken(frames: FrameBytes, then: Then) -> Reply {
    Reply::broken(frames.0, then)
}

fn broken_bytes(bytes: &[u8], then: Then) -> Reply {
    Reply::broken(bytes, then)
}

/// Processes what came before the twentieth request of a connection, and refuses the others.
fn goes_away_early(asked: &ScriptRequest<'_>) -> Reply {
    match asked.on_connection {
        ..19 => good(asked),
        19 => broken(frames().go_away(asked.stream - 2, 0), Then::Keep),
        _ => broken(frames(), Then::Keep),
    }
}

/// Serves the twentieth request of a connection as the last one.
fn goes_away(asked: &ScriptRequest<'_>) -> Reply {
    match asked.on_connection {
        ..19 => good(asked),
        19 => fine(frames().good(asked.stream).go_away(asked.stream, 0)),
        _ => broken(frames(), Then::Keep),
    }
}

fn flood() -> FrameBytes {
    (0..20_000).fold(frames(), |frames, _| frames.frame(kind::PING, flag::ACK, 0, &[0; 8]))
}

/// Streams that the server ends.
pub(super) const RESETS: &[TruthWay] = &[
    TruthWay {
        name: "h2-reset",
        what: "resets 3 streams in 10: INTERNAL_ERROR",
        over: Over::Http2(|tls| three_in_ten(tls, |s| broken(frames().reset(s, 2), Then::Keep))),
        named: &[
            Counts("failures.reset"),
            Counts("failures_detail.INTERNAL_ERROR"),
            Says("the server reset the stream: INTERNAL_ERROR"),
            AtMost("requests.resent", 0.0),
        ],
        ..NOTHING
    },
    TruthWay {
        name: "h2-reset-post",
        what: "the same with POST",
        over: Over::Http2(|tls| three_in_ten(tls, |s| broken(frames().reset(s, 2), Then::Keep))),
        shape: TruthShape::requests(1000).more("-X POST --body 0123456789"),
        named: &[Counts("failures.reset"), AtMost("requests.unknown", 0.0)],
        ..NOTHING
    },
    TruthWay {
        name: "h2-reset-open",
        what: "the same, in an open loop",
        over: Over::Http2(|tls| three_in_ten(tls, |s| broken(frames().reset(s, 2), Then::Keep))),
        shape: TruthShape::seconds(2).rate(500),
        named: &[Counts("failures.reset")],
        ..NOTHING
    },
    TruthWay {
        name: "h2-reset-many",
        what: "the same, 16 streams at once",
        over: Over::Http2(|tls| three_in_ten(tls, |s| broken(frames().reset(s, 2), Then::Keep))),
        shape: MANY,
        named: &[Counts("failures.reset"), AtMost("requests.resent", 0.0)],
        ..NOTHING
    },
    TruthWay {
        name: "h2-reset-resent",
        what: "the same; idempotent requests may go out again",
        over: Over::Http2(|tls| three_in_ten(tls, |s| broken(frames().reset(s, 2), Then::Keep))),
        shape: TruthShape::requests(1000).more("--resend idempotent"),
        named: &[Counts("requests.resent"), Says("because the server reset the stream")],
        ..NOTHING
    },
    TruthWay {
        name: "h2-cancel",
        what: "resets 3 streams in 10: CANCEL",
        over: Over::Http2(|tls| three_in_ten(tls, |s| broken(frames().reset(s, 8), Then::Keep))),
        named: &[Counts("failures.reset"), Counts("failures_detail.CANCEL")],
        ..NOTHING
    },
    TruthWay {
        name: "h2-no-error",
        what: "resets 3 streams in 10 without a response: NO_ERROR",
        over: Over::Http2(|tls| three_in_ten(tls, |s| broken(frames().reset(s, 0), Then::Keep))),
        named: &[Counts("failures.reset"), Counts("failures_detail.NO_ERROR")],
        ..NOTHING
    },
    TruthWay {
        name: "h2-calm",
        what: "resets 3 streams in 10: ENHANCE_YOUR_CALM",
        over: Over::Http2(|tls| three_in_ten(tls, |s| broken(frames().reset(s, 11), Then::Keep))),
        named: &[Counts("failures.reset"), Counts("failures_detail.ENHANCE_YOUR_CALM")],
        ..NOTHING
    },
    TruthWay {
        name: "h2-unknown-code",
        what: "resets 3 streams in 10 with a code that no RFC has",
        over: Over::Http2(|tls| three_in_ten(tls, |s| broken(frames().reset(s, 0xdead), Then::Keep))),
        named: &[Counts("failures.reset"), Counts("failures_detail.other"), Says("code 0xdead")],
        ..NOTHING
    },
    TruthWay {
        name: "h2-reset-begun",
        what: "resets 3 streams in 10 behind the head",
        over: Over::Http2(|tls| {
            three_in_ten(tls, |s| broken(frames().headers(s, OK).reset(s, 8), Then::Keep))
        }),
        named: &[Counts("failures.truncated"), Says(BROKE_OFF)],
        ..NOTHING
    },
    TruthWay {
        name: "h2-reset-mid-body",
        what: "resets 3 streams in 10 in the middle of the body",
        over: Over::Http2(|tls| {
            three_in_ten(tls, |s| broken(frames().headers(s, OK).data(s, b"hel").reset(s, 2), Then::Keep))
        }),
        named: &[Counts("failures.truncated"), Says(BROKE_OFF)],
        ..NOTHING
    },
    TruthWay {
        name: "h2-reset-behind",
        what: "resets each stream behind the whole response: NO_ERROR",
        over: Over::Http2(|tls| h2(tls, |asked| fine(frames().good(asked.stream).reset(asked.stream, 0)))),
        named: &[AtMost("requests.unsolicited_responses", 0.0)],
        ..NOTHING
    },
    TruthWay {
        name: "h2-refused",
        what: "refuses 3 streams in 10: they go out again",
        over: Over::Http2(|tls| three_in_ten(tls, |s| broken(frames().reset(s, 7), Then::Keep))),
        named: &[
            Counts("requests.resent"),
            Counts("http2.refused"),
            Says("because the server refused the stream"),
        ],
        ..NOTHING
    },
    TruthWay {
        name: "h2-refused-post",
        what: "the same with POST: it was not processed",
        over: Over::Http2(|tls| three_in_ten(tls, |s| broken(frames().reset(s, 7), Then::Keep))),
        shape: TruthShape::requests(1000).more("-X POST --body 0123456789"),
        named: &[Counts("requests.resent"), AtMost("requests.unknown", 0.0)],
        ..NOTHING
    },
    TruthWay {
        name: "h2-refused-never",
        what: "the same; nothing may go out again",
        over: Over::Http2(|tls| three_in_ten(tls, |s| broken(frames().reset(s, 7), Then::Keep))),
        shape: TruthShape::requests(1000).more("--resend never"),
        named: &[Counts("failures.refused_stream"), AtMost("requests.resent", 0.0)],
        ..NOTHING
    },
    TruthWay {
        name: "h2-refuses-all",
        what: "refuses every stream",
        over: Over::Http2(|tls| h2(tls, |asked| broken(frames().reset(asked.stream, 7), Then::Keep))),
        shape: TruthShape::requests(100),
        named: &[Counts("failures.refused_stream"), AtLeast("requests.resent", 300.0)],
        ..NOTHING
    },
    TruthWay {
        name: "h2-refused-begun",
        what: "refuses 3 streams in 10 behind the head",
        over: Over::Http2(|tls| {
            three_in_ten(tls, |s| broken(frames().headers(s, OK).reset(s, 7), Then::Keep))
        }),
        named: &[Counts("failures.truncated"), AtMost("requests.resent", 0.0)],
        ..NOTHING
    },
];

/// Ways in which connections end.
pub(super) const ENDS: &[TruthWay] = &[
    TruthWay {
        name: "h2-goaway",
        what: "ends each connection after 20 responses by GOAWAY",
        over: Over::Http2(|tls| {
            h2(tls, |asked| match asked.on_connection {
                19 => fine(frames().good(asked.stream).go_away(asked.stream, 0)).then(Then::Close),
                _ => good(asked),
            })
        }),
        named: &[AtLeast("http2.goaways", 40.0), Says("by GOAWAY")],
        ..NOTHING
    },
    TruthWay {
        name: "h2-goaway-refuses",
        what: "the same, 16 streams at once, of which those behind are refused",
        over: Over::Http2(|tls| h2(tls, goes_away)),
        shape: MANY,
        named: &[Counts("requests.resent"), Counts("http2.refused")],
        ..NOTHING
    },
    TruthWay {
        name: "h2-goaway-post",
        what: "the same with POST: refused ones go out again",
        over: Over::Http2(|tls| h2(tls, goes_away)),
        shape: MANY.more("-X POST --body 0123456789"),
        named: &[Counts("requests.resent"), AtMost("requests.unknown", 0.0)],
        ..NOTHING
    },
    TruthWay {
        name: "h2-goaway-never",
        what: "the same; nothing may go out again",
        over: Over::Http2(|tls| h2(tls, goes_away_early)),
        shape: MANY.more("--resend never"),
        named: &[Counts("failures.refused_stream")],
        ..NOTHING
    },
    TruthWay {
        name: "h2-goaway-silent",
        what: "says GOAWAY behind 3 requests in 10, and neither answers them nor closes",
        over: Over::Http2(|tls| three_in_ten(tls, |s| broken(frames().go_away(s, 0), Then::Keep))),
        shape: FEW,
        named: &[Counts("failures.timeout")],
        ..NOTHING
    },
    TruthWay {
        name: "h2-goaway-error",
        what: "ends the connection at 4 requests of 200: GOAWAY, INTERNAL_ERROR",
        over: Over::Http2(|tls| at_causes(tls, |s| broken(frames().go_away(s, 2), Then::Close))),
        shape: CAUSES,
        named: &[
            Counts("failures.closed_early"),
            AtMost("requests.failed", 4.0),
            Says("GOAWAY, INTERNAL_ERROR"),
        ],
        ..NOTHING
    },
    TruthWay {
        name: "h2-close",
        what: "closes instead of 3 responses in 10",
        over: Over::Http2(|tls| three_in_ten(tls, |_| broken(frames(), Then::Close))),
        shape: TruthShape::requests(1000).more("--resend never"),
        named: &[Counts("failures.closed_early")],
        ..NOTHING
    },
    TruthWay {
        name: "h2-close-post",
        what: "the same with POST: not known is not good",
        over: Over::Http2(|tls| three_in_ten(tls, |_| broken(frames(), Then::Close))),
        shape: TruthShape::requests(1000).more("-X POST --body 0123456789"),
        named: &[Counts("requests.unknown")],
        ..NOTHING
    },
    TruthWay {
        name: "h2-close-resent",
        what: "the same; requests on used connections go out again",
        over: Over::Http2(|tls| three_in_ten(tls, |_| broken(frames(), Then::Close))),
        named: &[
            Counts("failures.closed_early"),
            Counts("requests.resent"),
            Says("because the server closed the connection"),
        ],
        ..NOTHING
    },
    TruthWay {
        name: "h2-tcp-reset",
        what: "resets the connection instead of 3 responses in 10",
        over: Over::Http2(|tls| three_in_ten(tls, |_| broken(frames(), Then::Reset))),
        shape: TruthShape::requests(1000).more("--resend never"),
        named: &[Counts("failures.reset")],
        ..NOTHING
    },
    TruthWay {
        name: "h2-close-mid-frame",
        what: "closes in the middle of a frame, 3 in 10",
        over: Over::Http2(|tls| three_in_ten(tls, |s| broken_bytes(&frames().good(s).0[..7], Then::Close))),
        shape: TruthShape::requests(1000).more("--resend never"),
        named: &[Counts("requests.failed")],
        ..NOTHING
    },
    TruthWay {
        name: "h2-close-mid-body",
        what: "closes in the middle of 3 bodies in 10",
        over: Over::Http2(|tls| {
            three_in_ten(tls, |s| broken(frames().headers(s, OK).data(s, b"hel"), Then::Close))
        }),
        named: &[Counts("failures.truncated"), Says(BROKE_OFF)],
        ..NOTHING
    },
    TruthWay {
        name: "h2-reset-tcp-mid-body",
        what: "resets the connection in the middle of 3 bodies in 10",
        over: Over::Http2(|tls| {
            three_in_ten(tls, |s| broken(frames().headers(s, OK).data(s, b"hel"), Then::Reset))
        }),
        named: &[Counts("failures.truncated"), Says(BROKE_OFF)],
        ..NOTHING
    },
    TruthWay {
        name: "h2-closes-all",
        what: "closes every connection without a response",
        over: Over::Http2(|tls| h2(tls, |_| broken(frames(), Then::Close))),
        shape: TruthShape::requests(100),
        named: &[Counts("failures.closed_early")],
        ..NOTHING
    },
];

/// What breaks a connection.
pub(super) const BROKEN: &[TruthWay] = &[
    TruthWay {
        name: "h2-settings-size",
        what: "breaks the connection at 4 requests of 200: SETTINGS of 5 bytes",
        over: Over::Http2(|tls| {
            at_causes(tls, |_| broken(frames().frame(kind::SETTINGS, 0, 0, b"short"), Then::Keep))
        }),
        shape: CAUSES,
        named: &[
            Counts("failures.malformed"),
            AtMost("requests.failed", 4.0),
            Says("ended the connection (each went out alone)"),
        ],
        ..NOTHING
    },
    TruthWay {
        name: "h2-hpack",
        what: "the same by a field block that cannot be decoded",
        over: Over::Http2(|tls| at_causes(tls, |s| broken(frames().headers(s, b"\xbe"), Then::Keep))),
        shape: CAUSES,
        named: &[
            Counts("failures.malformed"),
            AtMost("requests.failed", 4.0),
            Says("ended the connection (each went out alone)"),
        ],
        ..NOTHING
    },
    TruthWay {
        name: "h2-data-on-0",
        what: "the same by DATA on stream 0",
        over: Over::Http2(|tls| at_causes(tls, |_| broken(frames().data(0, b"x"), Then::Keep))),
        shape: CAUSES,
        named: &[
            Counts("failures.malformed"),
            AtMost("requests.failed", 4.0),
            Says("ended the connection (each went out alone)"),
        ],
        ..NOTHING
    },
    TruthWay {
        name: "h2-frame-size",
        what: "the same by a frame of 20,000 bytes",
        over: Over::Http2(|tls| at_causes(tls, |s| broken(frames().data(s, &[0; 20_000]), Then::Keep))),
        shape: CAUSES,
        named: &[
            Counts("failures.malformed"),
            AtMost("requests.failed", 4.0),
            Says("ended the connection (each went out alone)"),
        ],
        ..NOTHING
    },
    TruthWay {
        name: "h2-push",
        what: "the same by a pushed response, which the client forbade",
        over: Over::Http2(|tls| {
            at_causes(tls, |s| {
                broken(
                    frames().frame(kind::PUSH_PROMISE, flag::END_HEADERS, s, b"\0\0\0\x02\x88"),
                    Then::Keep,
                )
            })
        }),
        shape: CAUSES,
        named: &[
            Counts("failures.malformed"),
            AtMost("requests.failed", 4.0),
            Says("ended the connection (each went out alone)"),
        ],
        ..NOTHING
    },
    TruthWay {
        name: "h2-never-opened",
        what: "the same by a response on a stream that was never opened",
        over: Over::Http2(|tls| at_causes(tls, |s| broken(frames().good(s + 1000), Then::Keep))),
        shape: CAUSES,
        named: &[
            Counts("failures.malformed"),
            AtMost("requests.failed", 4.0),
            Says("ended the connection (each went out alone)"),
        ],
        ..NOTHING
    },
    TruthWay {
        name: "h2-continuation",
        what: "the same by a CONTINUATION frame that continues nothing",
        over: Over::Http2(|tls| {
            at_causes(tls, |s| {
                broken(frames().frame(kind::CONTINUATION, flag::END_HEADERS, s, OK), Then::Keep)
            })
        }),
        shape: CAUSES,
        named: &[
            Counts("failures.malformed"),
            AtMost("requests.failed", 4.0),
            Says("ended the connection (each went out alone)"),
        ],
        ..NOTHING
    },
    TruthWay {
        name: "h2-window-overflow",
        what: "the same by a window that overflows",
        over: Over::Http2(|tls| at_causes(tls, |_| broken(frames().window(0, (1 << 31) - 1), Then::Keep))),
        shape: CAUSES,
        named: &[
            Counts("failures.malformed"),
            AtMost("requests.failed", 4.0),
            Says("ended the connection (each went out alone)"),
        ],
        ..NOTHING
    },
    TruthWay {
        name: "h2-interrupted",
        what: "the same by a field block that another frame interrupts",
        over: Over::Http2(|tls| {
            at_causes(tls, |s| {
                broken(frames().frame(kind::HEADERS, 0, s, OK).frame(kind::PING, 0, 0, &[0; 8]), Then::Keep)
            })
        }),
        shape: CAUSES,
        named: &[
            Counts("failures.malformed"),
            AtMost("requests.failed", 4.0),
            Says("ended the connection (each went out alone)"),
        ],
        ..NOTHING
    },
    TruthWay {
        name: "h2-padding",
        what: "the same by padding longer than its frame",
        over: Over::Http2(|tls| {
            at_causes(tls, |s| {
                broken(frames().headers(s, OK).frame(kind::DATA, flag::PADDED, s, b"\x09x"), Then::Keep)
            })
        }),
        shape: CAUSES,
        named: &[AtLeast("requests.failed", 4.0), AtMost("requests.failed", 4.0)],
        ..NOTHING
    },
    TruthWay {
        name: "h2-cause-post",
        what: "breaks the connection at 4 POSTs of 200: bystanders are not known",
        over: Over::Http2(|tls| {
            at_causes(tls, |_| broken(frames().frame(kind::SETTINGS, 0, 0, b"short"), Then::Keep))
        }),
        shape: CAUSES.more("-X POST --body 0123456789"),
        named: &[Counts("requests.unknown"), AtMost("failures.malformed", 4.0)],
        ..NOTHING
    },
    TruthWay {
        name: "h2-flood",
        what: "floods 4 requests of 200 with 20,000 PING frames",
        over: Over::Http2(|tls| at_causes(tls, |_| broken(flood(), Then::Keep))),
        shape: CAUSES,
        named: &[Counts("failures.malformed"), AtMost("requests.failed", 4.0)],
        ..NOTHING
    },
    TruthWay {
        name: "h2-not-http2",
        what: "answers HTTP/1.1 to HTTP/2",
        over: Over::Http2(|tls| greeting(tls, || b"HTTP/1.1 400 Bad Request\r\n\r\n".to_vec())),
        shape: TruthShape::requests(100),
        named: &[Counts("failures.malformed"), Says("the server answers by HTTP/1.1")],
        ..NOTHING
    },
    TruthWay {
        name: "h2-no-settings",
        what: "begins without SETTINGS",
        over: Over::Http2(|tls| greeting(tls, || frames().frame(kind::PING, 0, 0, &[0; 8]).0)),
        shape: TruthShape::requests(100),
        named: &[Counts("failures.malformed"), Says("does not begin with its settings")],
        ..NOTHING
    },
];
