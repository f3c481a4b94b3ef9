//! HTTP/2's rows of docs/LOAD-TRUTH.md that concern single responses, windows and times.

use std::time::Duration;

use linerate_broken::frames::{FrameBytes, OK, block_of, flag, kind, with};
use linerate_broken::{Broken, Reply, ScriptRequest, StreamBehaviour, Then};

use super::streams::{MANY, broken, fine, frames, good, greeting, h2, three_in_ten, with_h2};
use super::way::Truth::{Down, Due, Surplus};
use super::way::TruthExpectation::{AtLeast, AtMost, Counts, Says};
use super::way::{Over, TruthShape, TruthWay};
use super::ways::{NOTHING, SLOW as FEW, UNASKED};

fn stalls_once(asked: &ScriptRequest<'_>) -> Reply {
    const FROM: Duration = Duration::from_millis(1000);
    const TO: Duration = Duration::from_millis(1800);
    let stalled = asked.age >= FROM && asked.age < TO;
    good(asked).after(if stalled { TO - asked.age } else { Duration::ZERO })
}

fn interim(stream: u32, times: usize) -> FrameBytes {
    (0..times).fold(frames(), |frames, _| frames.headers(stream, &block_of(103)))
}

/// A head of six frames.
fn huge(stream: u32) -> FrameBytes {
    let field = with(b"", "a", &"x".repeat(15_000));
    let head = frames().frame(kind::HEADERS, flag::END_STREAM, stream, &with(OK, "a", &"x".repeat(15_000)));
    let head = (0..4).fold(head, |frames, _| frames.frame(kind::CONTINUATION, 0, stream, &field));
    head.frame(kind::CONTINUATION, flag::END_HEADERS, stream, &field)
}

fn pieces(asked: &ScriptRequest<'_>) -> Reply {
    let s = asked.stream;
    let block = with(&with(OK, "content-length", "6"), "a", "b");
    let (first, second) = block.split_at(3);
    let head =
        frames().frame(kind::HEADERS, 0, s, first).frame(kind::CONTINUATION, flag::END_HEADERS, s, second);
    let body = head.frame(kind::DATA, flag::PADDED, s, b"\x02hel\0\0").data(s, b"").data(s, b"lo\n");
    fine(body.last_headers(s, &with(b"", "trailer", "value")))
}

fn mixed(asked: &ScriptRequest<'_>) -> Reply {
    let s = asked.stream;
    match asked.nth % 10 {
        0 => broken(frames().reset(s, 2), Then::Keep),
        3 => broken(frames().headers(s, OK).data(s, b"hel").reset(s, 2), Then::Keep),
        6 => broken(frames().status(s, 500), Then::Keep),
        _ => good(asked),
    }
}

const USUAL: StreamBehaviour = StreamBehaviour {
    greeting: || FrameBytes::new().settings(&[(3, 100)]).0,
    later: None,
    grants: true,
    early: false,
};
const OPENS_LATE: StreamBehaviour = StreamBehaviour {
    greeting: || FrameBytes::new().settings(&[(3, 0)]).0,
    later: Some((Duration::from_secs(1), || FrameBytes::new().settings(&[(3, 100)]).0)),
    ..USUAL
};
const ONE_STREAM: StreamBehaviour =
    StreamBehaviour { greeting: || FrameBytes::new().settings(&[(3, 1)]).0, ..USUAL };
const WINDOW_0: StreamBehaviour = StreamBehaviour {
    greeting: || FrameBytes::new().settings(&[(3, 100), (4, 0)]).0,
    grants: false,
    ..USUAL
};
const NO_GRANTS: StreamBehaviour = StreamBehaviour { grants: false, ..USUAL };
const EARLY: StreamBehaviour = StreamBehaviour { early: true, ..USUAL };

/// What breaks a stream, and what should break nothing.
pub(super) const ODD: &[TruthWay] = &[
    TruthWay {
        name: "h2-no-status",
        what: "sends a head without a status, 3 in 10",
        over: Over::Http2(|tls| {
            three_in_ten(tls, |s| broken(frames().last_headers(s, &with(b"", "a", "b")), Then::Keep))
        }),
        named: &[Counts("failures.malformed")],
        ..NOTHING
    },
    TruthWay {
        name: "h2-upper-case",
        what: "sends a field name in upper case, 3 in 10",
        over: Over::Http2(|tls| {
            three_in_ten(tls, |s| broken(frames().last_headers(s, &with(OK, "Upper", "x")), Then::Keep))
        }),
        named: &[Counts("failures.malformed")],
        ..NOTHING
    },
    TruthWay {
        name: "h2-connection-field",
        what: "sends Connection: close, 3 in 10",
        over: Over::Http2(|tls| {
            three_in_ten(tls, |s| {
                broken(frames().last_headers(s, &with(OK, "connection", "close")), Then::Keep)
            })
        }),
        named: &[Counts("failures.malformed")],
        ..NOTHING
    },
    TruthWay {
        name: "h2-line-break",
        what: "sends a field value with a line break, 3 in 10",
        over: Over::Http2(|tls| {
            three_in_ten(tls, |s| broken(frames().last_headers(s, &with(OK, "a", "b\r\nc: d")), Then::Keep))
        }),
        named: &[Counts("failures.malformed")],
        ..NOTHING
    },
    TruthWay {
        name: "h2-length-short",
        what: "announces 6 bytes and sends 3, 3 in 10",
        over: Over::Http2(|tls| {
            three_in_ten(tls, |s| {
                broken(frames().headers(s, &with(OK, "content-length", "6")).last_data(s, b"hel"), Then::Keep)
            })
        }),
        named: &[Counts("failures.malformed")],
        ..NOTHING
    },
    TruthWay {
        name: "h2-length-long",
        what: "announces 2 bytes and sends 6, 3 in 10",
        over: Over::Http2(|tls| {
            three_in_ten(tls, |s| {
                broken(
                    frames().headers(s, &with(OK, "content-length", "2")).last_data(s, b"hello\n"),
                    Then::Keep,
                )
            })
        }),
        named: &[Counts("failures.malformed")],
        ..NOTHING
    },
    TruthWay {
        name: "h2-101",
        what: "switches protocols, which HTTP/2 cannot, 3 in 10",
        over: Over::Http2(|tls| {
            three_in_ten(tls, |s| broken(frames().last_headers(s, &block_of(101)), Then::Keep))
        }),
        named: &[Counts("failures.malformed")],
        ..NOTHING
    },
    TruthWay {
        name: "h2-body-first",
        what: "sends the body before the head, 3 in 10",
        over: Over::Http2(|tls| three_in_ten(tls, |s| broken(frames().last_data(s, b"hello\n"), Then::Keep))),
        named: &[Counts("failures.malformed")],
        ..NOTHING
    },
    TruthWay {
        name: "h2-two-heads",
        what: "sends a second head that does not end the stream, 3 in 10",
        over: Over::Http2(|tls| {
            three_in_ten(tls, |s| {
                broken(frames().headers(s, OK).headers(s, OK).last_data(s, b"x"), Then::Keep)
            })
        }),
        named: &[Counts("failures.malformed")],
        ..NOTHING
    },
    TruthWay {
        name: "h2-huge-head",
        what: "sends a head of 90 kB, 3 in 10",
        over: Over::Http2(|tls| three_in_ten(tls, |s| broken(huge(s), Then::Keep))),
        named: &[Counts("failures.malformed"), Says("head of the response is too long")],
        ..NOTHING
    },
    TruthWay {
        name: "h2-interim-flood",
        what: "sends 100 interim responses, 3 in 10",
        over: Over::Http2(|tls| three_in_ten(tls, |s| broken(interim(s, 100), Then::Keep))),
        named: &[Counts("failures.malformed"), Says("too many interim responses")],
        ..NOTHING
    },
    TruthWay {
        name: "h2-interim",
        what: "sends five interim responses before each response",
        over: Over::Http2(|tls| {
            h2(tls, |asked| {
                let s = asked.stream;
                Reply::with([interim(s, 5).0, frames().good(s).0].concat())
            })
        }),
        named: &[AtMost("bad.status", 0.0)],
        ..NOTHING
    },
    TruthWay {
        name: "h2-pieces",
        what: "sends each response in padded frames and CONTINUATIONs, with trailers",
        over: Over::Http2(|tls| h2(tls, pieces)),
        named: &[AtMost("requests.failed", 0.0)],
        ..NOTHING
    },
    TruthWay {
        name: "h2-surplus",
        what: "sends 3 responses in 10 twice",
        over: Over::Http2(|tls| three_in_ten(tls, |s| Reply::odd(frames().good(s).good(s).0))),
        named: &[Counts("requests.unsolicited_responses"), Says(UNASKED)],
        truth: Surplus,
        ..NOTHING
    },
    TruthWay {
        name: "h2-surplus-data",
        what: "sends DATA behind the end of 3 responses in 10",
        over: Over::Http2(|tls| three_in_ten(tls, |s| Reply::odd(frames().good(s).last_data(s, b"more").0))),
        named: &[Counts("requests.unsolicited_responses"), Says(UNASKED), Says("more")],
        truth: Surplus,
        ..NOTHING
    },
    TruthWay {
        name: "h2-surplus-head",
        what: "sends HEADERS behind the end of 3 responses in 10",
        over: Over::Http2(|tls| three_in_ten(tls, |s| Reply::odd(frames().good(s).last_headers(s, OK).0))),
        named: &[Counts("requests.unsolicited_responses"), Says(UNASKED)],
        truth: Surplus,
        ..NOTHING
    },
    TruthWay {
        name: "h2-surplus-late",
        what: "answers a finished stream again, one request later",
        over: Over::Http2(|tls| {
            h2(tls, |asked| match asked.stream {
                s @ 3.. if asked.nth % 10 < 3 => Reply::odd(frames().good(s).good(s - 2).0),
                _ => good(asked),
            })
        }),
        named: &[Counts("requests.unsolicited_responses")],
        truth: Surplus,
        ..NOTHING
    },
    TruthWay {
        name: "h2-refused-answered",
        what: "refuses 3 streams in 10 and answers them all the same",
        over: Over::Http2(|tls| {
            three_in_ten(tls, |s| Reply { served: false, ..Reply::odd(frames().reset(s, 7).good(s).0) })
        }),
        named: &[Counts("requests.unsolicited_responses"), Counts("requests.resent")],
        ..NOTHING
    },
    TruthWay {
        name: "h2-may-follow",
        what: "sends WINDOW_UPDATE, PRIORITY and RST_STREAM behind each response",
        over: Over::Http2(|tls| {
            h2(tls, |asked| {
                let s = asked.stream;
                fine(frames().good(s).window(s, 9).frame(kind::PRIORITY, 0, s, &[0; 5]).reset(s, 0))
            })
        }),
        named: &[AtMost("requests.unsolicited_responses", 0.0)],
        ..NOTHING
    },
];

/// Nothing comes, or not soon; nothing may leave, or not soon.
pub(super) const SLOW: &[TruthWay] = &[
    TruthWay {
        name: "h2-silent",
        what: "reads requests and never answers",
        over: Over::Http2(|tls| h2(tls, |_| broken(frames(), Then::Keep))),
        shape: TruthShape::requests(16),
        named: &[Counts("failures.timeout")],
        ..NOTHING
    },
    TruthWay {
        name: "h2-stall",
        what: "answers 1 in 10 after 5 s, later than the timeout",
        over: Over::Http2(|tls| {
            h2(tls, |asked| match asked.nth % 10 {
                0 => Reply { served: false, ..good(asked) }.after(Duration::from_secs(5)),
                _ => good(asked),
            })
        }),
        shape: TruthShape::requests(200),
        named: &[Counts("failures.timeout")],
        ..NOTHING
    },
    TruthWay {
        name: "h2-stall-many",
        what: "the same, 16 streams at once: the others do not wait",
        over: Over::Http2(|tls| {
            h2(tls, |asked| match asked.nth % 10 {
                0 => Reply { served: false, ..good(asked) }.after(Duration::from_secs(5)),
                _ => good(asked),
            })
        }),
        shape: TruthShape::requests(200).connections(2).depth(16),
        named: &[Counts("failures.timeout"), AtMost("took_s", 3.0)],
        ..NOTHING
    },
    TruthWay {
        name: "h2-stall-open",
        what: "answers nothing for 800 ms, then all",
        over: Over::Http2(|tls| h2(tls, stalls_once)),
        shape: TruthShape::seconds(3).rate(200),
        named: &[AtLeast("latency_us.from_due.max", 750e3), AtLeast("latency_us.from_due.p90", 400e3)],
        ..NOTHING
    },
    TruthWay {
        name: "h2-goes-silent-open",
        what: "reads on after 1 s and answers nothing more",
        over: Over::Http2(|tls| {
            h2(tls, |asked| match asked.age {
                age if age < Duration::from_secs(1) => good(asked),
                _ => broken(frames(), Then::Keep),
            })
        }),
        shape: TruthShape::seconds(3).rate(200),
        named: &[Counts("failures.timeout"), Counts("requests.unsent"), AtMost("took_s", 4.5)],
        truth: Due,
        ..NOTHING
    },
    TruthWay {
        name: "h2-no-end",
        what: "does not end 3 streams in 10",
        over: Over::Http2(|tls| {
            three_in_ten(tls, |s| broken(frames().headers(s, OK).data(s, b"hello\n"), Then::Keep))
        }),
        shape: FEW,
        named: &[Counts("failures.timeout")],
        ..NOTHING
    },
    TruthWay {
        name: "h2-drip",
        what: "sends a body of 30 bytes at 10 bytes/s, 3 in 10",
        over: Over::Http2(|tls| {
            three_in_ten(tls, |s| {
                broken(frames().headers(s, OK), Then::Keep).again(
                    frames().data(s, b"x").0,
                    Duration::from_millis(100),
                    30,
                )
            })
        }),
        shape: FEW,
        named: &[Counts("failures.timeout")],
        ..NOTHING
    },
    TruthWay {
        name: "h2-endless-body",
        what: "sends a body that does not end, 3 in 10",
        over: Over::Http2(|tls| {
            three_in_ten(tls, |s| {
                broken(frames().headers(s, OK), Then::Keep).again(
                    frames().data(s, b"hello").0,
                    Duration::from_millis(1),
                    60_000,
                )
            })
        }),
        shape: FEW,
        named: &[Counts("failures.timeout")],
        ..NOTHING
    },
    TruthWay {
        name: "h2-no-streams",
        what: "admits no streams (SETTINGS_MAX_CONCURRENT_STREAMS is 0)",
        over: Over::Http2(|tls| greeting(tls, || frames().settings(&[(3, 0)]).0)),
        shape: TruthShape::requests(16),
        named: &[Counts("requests.failed"), Says("SETTINGS_MAX_CONCURRENT_STREAMS is 0")],
        ..NOTHING
    },
    TruthWay {
        name: "h2-no-streams-1s",
        what: "admits no streams for 1 s, then 100",
        over: Over::Http2(|tls| with_h2(tls, OPENS_LATE, good)),
        shape: TruthShape::seconds(2).rate(100).timeout(5),
        named: &[
            AtLeast("http2.no_streams_s", 0.9),
            AtMost("http2.no_streams_s", 1.2),
            Says("admits 0 to 100 streams"),
            Says("it admitted none for"),
        ],
        ..NOTHING
    },
    TruthWay {
        name: "h2-one-stream",
        what: "admits one stream, where 16 are wanted",
        over: Over::Http2(|tls| with_h2(tls, ONE_STREAM, good)),
        shape: MANY,
        named: &[AtMost("requests.failed", 0.0), Says("fewer than -p")],
        ..NOTHING
    },
    TruthWay {
        name: "h2-window-0",
        what: "has a window of 0, and does not open it",
        over: Over::Http2(|tls| with_h2(tls, WINDOW_0, good)),
        shape: TruthShape::requests(16).more("-X POST --body 0123456789"),
        named: &[
            Counts("failures.timeout"),
            Counts("http2.held_up.requests"),
            Says("window admitted no more of the request's body"),
        ],
        ..NOTHING
    },
    TruthWay {
        name: "h2-window-used",
        what: "never opens the connection's window again",
        over: Over::Http2(|tls| with_h2(tls, NO_GRANTS, good)),
        shape: TruthShape::requests(60).connections(1).more("-X POST --body {{rand_text:6000}}"),
        named: &[
            Counts("failures.timeout"),
            Counts("http2.held_up.bytes"),
            Says("window admitted no more of the request's body"),
        ],
        ..NOTHING
    },
    TruthWay {
        name: "h2-early",
        what: "answers POST before its body has come, and cancels the rest",
        over: Over::Http2(|tls| {
            with_h2(tls, EARLY, |asked| fine(frames().good(asked.stream).reset(asked.stream, 0)))
        }),
        shape: TruthShape::requests(200).more("-X POST --body {{rand_text:6000}}"),
        named: &[AtMost("requests.failed", 0.0)],
        ..NOTHING
    },
];

/// Responses that say no, and servers that go away.
pub(super) const SAID: &[TruthWay] = &[
    TruthWay {
        name: "h2-500",
        what: "answers 1 in 10 with 500",
        over: Over::Http2(|tls| {
            h2(tls, |asked| match asked.nth % 10 {
                0 => broken(frames().status(asked.stream, 500), Then::Keep),
                _ => good(asked),
            })
        }),
        named: &[Counts("bad.status"), Counts("status.500")],
        ..NOTHING
    },
    TruthWay {
        name: "h2-503-goaway",
        what: "answers 3 in 10 with 503 and GOAWAY",
        over: Over::Http2(|tls| {
            three_in_ten(tls, |s| broken(frames().status(s, 503).go_away(s, 0), Then::Close))
        }),
        named: &[Counts("bad.status"), Counts("status.503")],
        ..NOTHING
    },
    TruthWay {
        name: "h2-wrong-body",
        what: "sends the wrong body, 3 in 10",
        over: Over::Http2(|tls| {
            three_in_ten(tls, |s| broken(frames().headers(s, OK).last_data(s, b"error\n"), Then::Keep))
        }),
        shape: TruthShape::requests(1000).more("--expect-body hello"),
        named: &[Counts("bad.body")],
        ..NOTHING
    },
    TruthWay {
        name: "h2-wrong-tag",
        what: "answers 3 in 10 with another request's response",
        over: Over::Http2(|tls| {
            h2(tls, |asked| {
                let own = asked
                    .field("x-tag")
                    .and_then(|line| line.split(": ").nth(1))
                    .unwrap_or("no tag")
                    .to_owned();
                match asked.nth % 10 {
                    0..3 => broken(
                        frames().last_headers(asked.stream, &with(OK, "x-tag", "99999999")),
                        Then::Keep,
                    ),
                    _ => fine(frames().last_headers(asked.stream, &with(OK, "x-tag", &own))),
                }
            })
        }),
        shape: TruthShape::requests(1000).more("--tag X-Tag"),
        named: &[Counts("bad.tag")],
        ..NOTHING
    },
    TruthWay {
        name: "h2-mixed",
        what: "10 % INTERNAL_ERROR, 10 % cut bodies, 10 % 500",
        over: Over::Http2(|tls| h2(tls, mixed)),
        named: &[Counts("bad.status"), Counts("failures.truncated"), Counts("failures.reset")],
        ..NOTHING
    },
    TruthWay {
        name: "h2-kill",
        what: "is killed 1 s into the run and stays away",
        over: Over::Http2(|tls| h2(tls, good)),
        steps: &[(1000, Broken::kill)],
        shape: TruthShape::seconds(2),
        named: &[Counts("failures.connect"), Says("and still was at the end")],
        truth: Down,
        ..NOTHING
    },
    TruthWay {
        name: "h2-restart-open",
        what: "is killed after 800 ms and restarted 800 ms later",
        over: Over::Http2(|tls| h2(tls, good)),
        steps: &[(800, Broken::kill), (1600, Broken::restart)],
        shape: TruthShape::seconds(3).rate(500),
        named: &[Counts("failures.connect")],
        truth: Down,
        ..NOTHING
    },
];
