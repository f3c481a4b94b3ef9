//! The rows of docs/LOAD-TRUTH.md.

use std::time::Duration;

use linerate_broken::{AcceptMode, Broken, CUT, GOOD, Manner, Reply, ScriptRequest, Then};

use super::way::Truth::{Down, Due, Surplus, Swapped, Unserved};
use super::way::TruthExpectation::{AtLeast, AtMost, Counts, Says};
use super::way::{Over, TruthShape, TruthWay};

const UNREACHABLE: &str = "the server was unreachable for";
pub(super) const BROKE_OFF: &str = "a response began and broke off";
pub(super) const UNASKED: &str = "that no request had asked for";

/// A server that breaks three replies in ten.
fn three_in_ten(bad: impl Fn(&ScriptRequest<'_>) -> Reply + Send + Sync + 'static) -> Broken {
    Broken::start(move |asked| if asked.nth % 10 < 3 { bad(asked) } else { Reply::good() })
}

/// The same with fixed bytes.
fn three_in_ten_say(bytes: &'static str, then: Then) -> Broken {
    three_in_ten(move |_| Reply::broken(bytes, then))
}

fn good() -> Broken {
    Broken::start(|_| Reply::good())
}

pub(super) const NOTHING: TruthWay = TruthWay {
    name: "",
    what: "",
    server: good,
    over: Over::Http1,
    steps: &[],
    shape: TruthShape::requests(1000),
    named: &[],
    truth: Unserved,
};

/// Requests of which 30 % last as long as the timeout.
pub(super) const SLOW: TruthShape = TruthShape::requests(60);

/// Up or down.
pub(super) const DOWN: &[TruthWay] = &[
    TruthWay {
        name: "kill",
        what: "is killed 1 s into the run and stays away",
        steps: &[(1000, Broken::kill)],
        shape: TruthShape::seconds(3),
        named: &[Counts("failures.connect"), Says(UNREACHABLE), Says("and still was at the end")],
        truth: Down,
        ..NOTHING
    },
    TruthWay {
        name: "kill-open",
        what: "is killed 1 s into the run and stays away",
        steps: &[(1000, Broken::kill)],
        shape: TruthShape::seconds(3).rate(500),
        named: &[Counts("failures.connect"), Says(UNREACHABLE), Says("and still was at the end")],
        truth: Down,
        ..NOTHING
    },
    TruthWay {
        name: "restart",
        what: "is killed after 1 s and restarted 1 s later",
        steps: &[(1000, Broken::kill), (2000, Broken::restart)],
        shape: TruthShape::seconds(3),
        named: &[Counts("failures.connect"), Says(UNREACHABLE)],
        truth: Down,
        ..NOTHING
    },
    TruthWay {
        name: "restart-open",
        what: "is killed after 1 s and restarted 1 s later",
        steps: &[(1000, Broken::kill), (2000, Broken::restart)],
        shape: TruthShape::seconds(3).rate(500),
        named: &[Counts("failures.connect"), Says(UNREACHABLE)],
        truth: Down,
        ..NOTHING
    },
    TruthWay {
        name: "flapping",
        what: "is away twice for 400 ms",
        steps: &FLAPPING,
        shape: TruthShape::seconds(3),
        named: &[Counts("failures.connect"), Says(UNREACHABLE)],
        truth: Down,
        ..NOTHING
    },
    TruthWay {
        name: "flapping-open",
        what: "is away twice for 400 ms",
        steps: &FLAPPING,
        shape: TruthShape::seconds(3).rate(500),
        named: &[Counts("failures.connect"), Says(UNREACHABLE)],
        truth: Down,
        ..NOTHING
    },
];

const FLAPPING: [super::way::Step; 4] =
    [(600, Broken::kill), (1000, Broken::restart), (1700, Broken::kill), (2100, Broken::restart)];

/// Nothing comes, or not soon.
pub(super) const SILENT: &[TruthWay] = &[
    TruthWay {
        name: "never-accepts",
        what: "never accepts; two connections fit into its queue",
        server: || Broken::accepting(AcceptMode::Never { backlog: 1 }, |_| Reply::good()),
        shape: TruthShape::seconds(3).timeout(10),
        named: &[Counts("connections.hanging"), Says("never answered"), AtMost("took_s", 4.0)],
        ..NOTHING
    },
    TruthWay {
        name: "never-accepts-room",
        what: "never accepts; its queue has room for all",
        server: || Broken::accepting(AcceptMode::Never { backlog: 1024 }, |_| Reply::good()),
        shape: TruthShape::seconds(3).timeout(10),
        named: &[Counts("connections.unaccepted"), Says("accepts no connections"), AtMost("took_s", 4.0)],
        ..NOTHING
    },
    TruthWay {
        name: "never-accepts-open",
        what: "never accepts; its queue has room for all",
        server: || Broken::accepting(AcceptMode::Never { backlog: 1024 }, |_| Reply::good()),
        shape: TruthShape::seconds(3).rate(100).timeout(10),
        named: &[Counts("connections.unaccepted"), Says("accepts no connections"), AtMost("took_s", 4.0)],
        ..NOTHING
    },
    TruthWay {
        name: "accepts-late",
        what: "accepts connections 1 s late",
        server: || Broken::accepting(AcceptMode::After(Duration::from_secs(1)), |_| Reply::good()),
        shape: TruthShape::seconds(3).rate(100).timeout(5),
        named: &[AtLeast("latency_us.from_due.max", 900e3)],
        ..NOTHING
    },
    TruthWay {
        name: "silent",
        what: "reads requests and never answers",
        server: || Broken::start(|_| Reply::broken("", Then::Keep)),
        shape: TruthShape::requests(16),
        named: &[Counts("failures.timeout")],
        ..NOTHING
    },
    TruthWay {
        name: "stall",
        what: "answers 1 in 10 after 5 s, later than the time-out",
        server: || {
            Broken::start(|asked| match asked.nth % 10 {
                0 => Reply::broken(GOOD, Then::Keep).after(Duration::from_secs(5)),
                _ => Reply::good(),
            })
        },
        shape: TruthShape::requests(200),
        named: &[Counts("failures.timeout")],
        ..NOTHING
    },
    TruthWay {
        name: "stall-open",
        what: "answers nothing for 800 ms, then all",
        server: stalls_once,
        shape: TruthShape::seconds(3).rate(200),
        named: &[AtLeast("latency_us.from_due.max", 750e3), AtLeast("latency_us.from_due.p90", 400e3)],
        ..NOTHING
    },
    TruthWay {
        name: "goes-silent",
        what: "reads on after 1 s and answers nothing more",
        server: goes_silent,
        shape: TruthShape::seconds(3),
        named: &[Counts("failures.timeout"), AtMost("took_s", 4.5)],
        ..NOTHING
    },
    TruthWay {
        name: "goes-silent-open",
        what: "reads on after 1 s and answers nothing more",
        server: goes_silent,
        shape: TruthShape::seconds(3).rate(200),
        named: &[Counts("failures.timeout"), Counts("requests.unsent"), AtMost("took_s", 4.5)],
        truth: Due,
        ..NOTHING
    },
    TruthWay {
        name: "drip",
        what: "sends a body of 30 bytes at 10 bytes/s",
        server: || {
            three_in_ten(|_| {
                Reply::broken("HTTP/1.1 200 OK\r\nContent-Length: 30\r\n\r\n", Then::Keep).again(
                    "x",
                    Duration::from_millis(100),
                    30,
                )
            })
        },
        shape: SLOW,
        named: &[Counts("failures.timeout")],
        ..NOTHING
    },
    TruthWay {
        name: "endless-body",
        what: "sends a body that does not end",
        server: || {
            three_in_ten(|_| {
                Reply::broken("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n", Then::Keep).again(
                    "5\r\nhello\r\n",
                    Duration::from_millis(1),
                    60_000,
                )
            })
        },
        shape: SLOW,
        named: &[Counts("failures.timeout")],
        ..NOTHING
    },
    TruthWay {
        name: "length-too-large",
        what: "announces 60 bytes, sends 6 and waits",
        server: || three_in_ten_say("HTTP/1.1 200 OK\r\nContent-Length: 60\r\n\r\nhello\n", Then::Keep),
        shape: SLOW,
        named: &[Counts("failures.timeout")],
        ..NOTHING
    },
    TruthWay {
        name: "last-chunk-withheld",
        what: "sends all chunks but the last and waits",
        server: || three_in_ten_say(CHUNKS, Then::Keep),
        shape: SLOW,
        named: &[Counts("failures.timeout")],
        ..NOTHING
    },
];

/// Chunks without the last one.
const CHUNKS: &str = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n6\r\nhello\n\r\n";

fn goes_silent() -> Broken {
    Broken::start(|asked| match asked.age {
        age if age < Duration::from_secs(1) => Reply::good(),
        _ => Reply::broken("", Then::Keep),
    })
}

fn stalls_once() -> Broken {
    const FROM: Duration = Duration::from_millis(1000);
    const TO: Duration = Duration::from_millis(1800);
    Broken::start(|asked| {
        let stalled = asked.age >= FROM && asked.age < TO;
        Reply::good().after(if stalled { TO - asked.age } else { Duration::ZERO })
    })
}

/// Ways in which connections end.
pub(super) const ENDS: &[TruthWay] = &[
    TruthWay {
        name: "truncated",
        what: "closes in the middle of 3 bodies in 10",
        server: || three_in_ten(|_| Reply::broken(CUT, Then::Close)),
        named: &[Counts("failures.truncated"), Says(BROKE_OFF)],
        ..NOTHING
    },
    TruthWay {
        name: "truncated-open",
        what: "closes in the middle of 3 bodies in 10",
        server: || three_in_ten(|_| Reply::broken(CUT, Then::Close)),
        shape: TruthShape::seconds(2).rate(500),
        named: &[Counts("failures.truncated"), Says(BROKE_OFF)],
        ..NOTHING
    },
    TruthWay {
        name: "truncated-reset",
        what: "resets in the middle of 3 bodies in 10",
        server: || three_in_ten(|_| Reply::broken(CUT, Then::Reset)),
        named: &[Counts("failures.truncated"), Says(BROKE_OFF)],
        ..NOTHING
    },
    TruthWay {
        name: "cut-head",
        what: "closes in the middle of 3 heads in 10",
        server: || three_in_ten_say("HTTP/1.1 200 OK\r\nContent-Le", Then::Close),
        named: &[Counts("failures.truncated"), Says(BROKE_OFF)],
        ..NOTHING
    },
    TruthWay {
        name: "reset-head",
        what: "resets in the middle of 3 heads in 10",
        server: || three_in_ten_say("HTTP/1.1 200 OK\r\nContent-Le", Then::Reset),
        named: &[Counts("failures.truncated"), Says(BROKE_OFF)],
        ..NOTHING
    },
    TruthWay {
        name: "cut-chunk",
        what: "closes in the middle of a chunk, 3 in 10",
        server: || {
            three_in_ten_say("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n6\r\nhel", Then::Close)
        },
        named: &[Counts("failures.truncated"), Says(BROKE_OFF)],
        ..NOTHING
    },
    TruthWay {
        name: "last-chunk-missing",
        what: "closes without the last chunk, 3 in 10",
        server: || three_in_ten_say(CHUNKS, Then::Close),
        named: &[Counts("failures.truncated"), Says(BROKE_OFF)],
        ..NOTHING
    },
    TruthWay {
        name: "reset",
        what: "resets instead of 3 responses in 10",
        server: || three_in_ten_say("", Then::Reset),
        shape: TruthShape::requests(1000).more("--resend never"),
        named: &[Counts("failures.reset")],
        ..NOTHING
    },
    TruthWay {
        name: "reset-resent",
        what: "the same; requests on used connections go out again",
        server: || three_in_ten_say("", Then::Reset),
        named: &[Counts("failures.reset"), Counts("requests.resent")],
        ..NOTHING
    },
    TruthWay {
        name: "reset-post",
        what: "the same with POST: not known is not good",
        server: || three_in_ten_say("", Then::Reset),
        shape: TruthShape::requests(1000).more("-X POST"),
        named: &[Counts("requests.unknown")],
        ..NOTHING
    },
    TruthWay {
        name: "reset-open",
        what: "resets instead of 3 responses in 10",
        server: || three_in_ten_say("", Then::Reset),
        shape: TruthShape::seconds(2).rate(500).more("--resend never"),
        named: &[Counts("failures.reset")],
        ..NOTHING
    },
    TruthWay {
        name: "closes-unanswered",
        what: "closes instead of 3 responses in 10",
        server: || three_in_ten_say("", Then::Close),
        shape: TruthShape::requests(1000).more("--resend never"),
        named: &[Counts("failures.closed_early")],
        ..NOTHING
    },
    TruthWay {
        name: "closes-every-one",
        what: "closes every connection without a response",
        server: || Broken::start(|_| Reply::broken("", Then::Close)),
        shape: TruthShape::requests(100),
        named: &[Counts("failures.closed_early")],
        ..NOTHING
    },
    TruthWay {
        name: "close-after-10",
        what: "announces the close with each 10th response",
        server: || closes_after(10, CLOSES),
        named: &[Counts("connections.learnt_limit"), Says("it closes after 10 requests")],
        ..NOTHING
    },
    TruthWay {
        name: "close-after-10-rude",
        what: "closes unannounced behind each 10th response",
        server: || closes_after(10, GOOD),
        named: &[Counts("connections.closed_by_peer")],
        ..NOTHING
    },
    TruthWay {
        name: "close-after-10-deep",
        what: "the same, with 100 requests in flight",
        server: || closes_after(10, GOOD),
        shape: TruthShape::requests(2000).depth(100),
        named: &[Counts("requests.resent")],
        ..NOTHING
    },
    TruthWay {
        name: "one-early-close",
        what: "closes one connection once",
        server: || {
            Broken::start(|asked| match asked.nth {
                7 => Reply::good().then(Then::Close),
                _ => Reply::good(),
            })
        },
        named: &[Counts("connections.closed_by_peer"), AtMost("connections.opened", 9.0)],
        ..NOTHING
    },
    TruthWay {
        name: "connection-close",
        what: "closes after each response, and says so",
        server: || closes_after(1, CLOSES),
        named: &[Counts("connections.closed_by_peer"), AtLeast("connections.opened", 1000.0)],
        ..NOTHING
    },
    TruthWay {
        name: "http-1.0",
        what: "HTTP/1.0 without keep-alive: the close ends the body",
        server: || closes_after(1, b"HTTP/1.0 200 OK\r\n\r\nhello\n"),
        named: &[AtLeast("connections.opened", 1000.0)],
        ..NOTHING
    },
    TruthWay {
        name: "408-on-idle",
        what: "says 408 and closes what is idle for 150 ms",
        server: || Broken::with(IDLE, |_| Reply::good()),
        // Each request comes 100 ms after the last 408: none crosses the next one.
        shape: TruthShape::seconds(3).connections(1).rate(4),
        named: &[AtLeast("connections.closed_by_peer", 10.0)],
        ..NOTHING
    },
];

const CLOSES: &[u8] = b"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 6\r\n\r\nhello\n";

const IDLE: Manner = Manner {
    accept: AcceptMode::All,
    greeting: b"",
    when_idle: Some((
        Duration::from_millis(150),
        b"HTTP/1.1 408 Request Timeout\r\nConnection: close\r\nContent-Length: 0\r\n\r\n",
    )),
    http2: None,
    tls: None,
};

fn closes_after(n: u64, last: &'static [u8]) -> Broken {
    Broken::start(move |asked| {
        if asked.on_connection + 1 == n { Reply::with(last).then(Then::Close) } else { Reply::good() }
    })
}

/// Bytes that are not as they should be.
pub(super) const BYTES: &[TruthWay] = &[
    TruthWay {
        name: "duplicated",
        what: "sends 3 responses in 10 twice",
        server: || three_in_ten(|_| Reply::odd([GOOD, GOOD].concat())),
        named: &[Counts("requests.unsolicited_responses"), Says(UNASKED)],
        truth: Surplus,
        ..NOTHING
    },
    TruthWay {
        name: "garbage",
        what: "sends garbage behind 3 bodies in 10",
        server: || three_in_ten(|_| Reply::odd([GOOD, b"garbage".as_slice()].concat())),
        named: &[Counts("requests.unsolicited_responses"), Says(UNASKED), Says("garbage")],
        truth: Surplus,
        ..NOTHING
    },
    TruthWay {
        name: "length-too-small",
        what: "announces 2 bytes of 6, 3 in 10",
        server: || three_in_ten(|_| Reply::odd("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nhello\n")),
        named: &[Counts("requests.unsolicited_responses"), Says(UNASKED)],
        truth: Surplus,
        ..NOTHING
    },
    TruthWay {
        name: "swapped",
        what: "answers each second pair in the wrong order",
        server: swaps,
        shape: TruthShape::requests(1000).connections(2).depth(4).more("--tag X-Tag"),
        named: &[Counts("requests.out_of_order_responses")],
        truth: Swapped,
        ..NOTHING
    },
    TruthWay {
        name: "wrong-tag",
        what: "answers 3 in 10 with another request's response",
        server: || {
            Broken::start(|asked| match asked.nth % 10 {
                0..3 => Reply::broken(tagged("X-Tag: 99999999"), Then::Keep),
                _ => Reply::with(tagged(asked.field("X-Tag").unwrap_or("X-No: tag"))),
            })
        },
        shape: TruthShape::requests(1000).more("--tag X-Tag"),
        named: &[Counts("bad.tag")],
        ..NOTHING
    },
    TruthWay {
        name: "wrong-body",
        what: "sends the wrong body, 3 in 10",
        server: || three_in_ten_say("HTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\nerror\n", Then::Keep),
        shape: TruthShape::requests(1000).more("--expect-body hello"),
        named: &[Counts("bad.body")],
        ..NOTHING
    },
    TruthWay {
        name: "101",
        what: "switches protocols, 3 in 10",
        server: || {
            three_in_ten_say(
                "HTTP/1.1 101 Switching Protocols\r\nUpgrade: x\r\nConnection: upgrade\r\n\r\n",
                Then::Keep,
            )
        },
        named: &[Counts("bad.status")],
        ..NOTHING
    },
    TruthWay {
        name: "two-lengths",
        what: "sends two different Content-Lengths, 3 in 10",
        server: || {
            three_in_ten_say(
                "HTTP/1.1 200 OK\r\nContent-Length: 6\r\nContent-Length: 5\r\n\r\nhello\n",
                Then::Keep,
            )
        },
        named: &[Counts("failures.malformed")],
        ..NOTHING
    },
    TruthWay {
        name: "bad-status-line",
        what: "sends a status that is no number, 3 in 10",
        server: || three_in_ten_say("HTTP/1.1 OK 200\r\nContent-Length: 6\r\n\r\nhello\n", Then::Keep),
        named: &[Counts("failures.malformed")],
        ..NOTHING
    },
    TruthWay {
        name: "not-http",
        what: "speaks SSH",
        server: || Broken::start(|_| Reply::broken("SSH-2.0-OpenSSH_9.6\r\n\r\n", Then::Keep)),
        shape: TruthShape::requests(100),
        named: &[Counts("failures.malformed"), Says("greets as an SSH server")],
        ..NOTHING
    },
    TruthWay {
        name: "bad-chunk-size",
        what: "sends a chunk size that is no number, 3 in 10",
        server: || {
            three_in_ten_say(
                "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nsix\r\nhello\n\r\n0\r\n\r\n",
                Then::Keep,
            )
        },
        named: &[Counts("failures.malformed")],
        ..NOTHING
    },
    TruthWay {
        name: "endless-head",
        what: "sends a head that does not end, 3 in 10",
        server: || {
            three_in_ten(|_| {
                Reply::broken("HTTP/1.1 200 OK\r\n", Then::Close).again(
                    "X-More: and more and more\r\n".repeat(100),
                    Duration::ZERO,
                    10_000,
                )
            })
        },
        shape: TruthShape::requests(100),
        named: &[Counts("failures.malformed")],
        ..NOTHING
    },
    TruthWay {
        name: "100-many",
        what: "sends five 100 Continue before each response",
        server: || Broken::start(|_| Reply::with([CONTINUE.repeat(5).as_bytes(), GOOD].concat())),
        named: &[AtMost("bad.status", 0.0)],
        ..NOTHING
    },
    TruthWay {
        name: "100-flood",
        what: "sends 100 Continue for ever, 3 in 10",
        server: || {
            three_in_ten(|_| {
                Reply::broken("", Then::Close).again(CONTINUE, Duration::from_micros(200), 100_000)
            })
        },
        shape: SLOW,
        named: &[Counts("requests.failed")],
        ..NOTHING
    },
];

const CONTINUE: &str = "HTTP/1.1 100 Continue\r\n\r\n";

fn tagged(tag: &str) -> String {
    format!("HTTP/1.1 200 OK\r\n{tag}\r\nContent-Length: 6\r\n\r\nhello\n")
}

/// Holds the first of each second pair back until its second has come.
fn swaps() -> Broken {
    let held = std::sync::Mutex::new(std::collections::HashMap::<u64, String>::new());
    Broken::start(move |asked| {
        let own = tagged(asked.field("X-Tag").unwrap_or("X-No: tag"));
        let mut held = held.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        match (held.remove(&asked.connection), asked.on_connection % 4) {
            (Some(before), _) => Reply::odd(own + &before),
            (None, 2) => {
                held.insert(asked.connection, own);
                Reply::with("")
            }
            (None, _) => Reply::with(own),
        }
    })
}

/// Responses that say no.
pub(super) const REFUSALS: &[TruthWay] = &[
    TruthWay {
        name: "500",
        what: "answers 1 in 10 with 500",
        server: || {
            Broken::start(|asked| match asked.nth % 10 {
                0 => Reply::broken("HTTP/1.1 500 Oh\r\nContent-Length: 0\r\n\r\n", Then::Keep),
                _ => Reply::good(),
            })
        },
        named: &[Counts("bad.status"), Counts("status.500")],
        ..NOTHING
    },
    TruthWay {
        name: "429",
        what: "answers 3 in 10 with 429 and Retry-After",
        server: || {
            three_in_ten_say(
                "HTTP/1.1 429 Slow Down\r\nRetry-After: 1\r\nContent-Length: 0\r\n\r\n",
                Then::Keep,
            )
        },
        named: &[Counts("bad.status"), Counts("status.429")],
        ..NOTHING
    },
    TruthWay {
        name: "503-open",
        what: "answers 3 in 10 with 503, Retry-After and a close",
        server: || {
            three_in_ten_say(
                "HTTP/1.1 503 Busy\r\nRetry-After: 1\r\nConnection: close\r\nContent-Length: 0\r\n\r\n",
                Then::Close,
            )
        },
        shape: TruthShape::seconds(2).rate(500),
        named: &[Counts("bad.status"), Counts("status.503")],
        ..NOTHING
    },
    TruthWay {
        name: "mixed",
        what: "10 % 500, 10 % cut bodies, 10 % closed without a response",
        server: || {
            Broken::start(|asked| match asked.nth % 10 {
                0 => Reply::broken("HTTP/1.1 500 Oh\r\nContent-Length: 0\r\n\r\n", Then::Keep),
                3 => Reply::broken(CUT, Then::Close),
                6 => Reply::broken("", Then::Close),
                _ => Reply::good(),
            })
        },
        shape: TruthShape::requests(1000).more("--resend never"),
        named: &[Counts("bad.status"), Counts("failures.truncated"), Counts("failures.closed_early")],
        ..NOTHING
    },
];
