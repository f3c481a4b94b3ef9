//! Findings about HTTP/2's streams.

use super::super::cause;
use super::super::flow::ms;
use super::super::observation::{Observation, StreamLimit};
use super::finding::{CauseTexts, Confidence, FOLLOWED, Finding, Fixes, LEAST_NS, SHARE, made, per};

pub(super) const FLOW_CONTROL: CauseTexts = CauseTexts {
    id: cause::H2_FLOW_CONTROL,
    title: "an HTTP/2 window is too small for this path: its sender sends one window per round trip and waits for room",
    fixes: &[
        (
            "any client",
            "SETTINGS_INITIAL_WINDOW_SIZE and a WINDOW_UPDATE on stream 0: both at least the path's rate times its round trip",
        ),
        (
            "Java HttpClient",
            "-Djdk.httpclient.windowsize=16777216 and -Djdk.httpclient.connectionWindowSize=33554432",
        ),
        (
            "Go",
            "http2.Transport's windows are 4 MiB a stream; grpc.WithInitialWindowSize and WithInitialConnWindowSize",
        ),
        (
            "Node",
            "http2.connect(url, { settings: { initialWindowSize: 16 << 20 } }), and session.setLocalWindowSize(16 << 20)",
        ),
        ("any server, for uploads", "the same, announced by the server"),
    ],
    verify: "linerate explain --http2 --h2-window BYTES URL proves it, with the window that the client announces",
};

pub(super) const HEAD_OF_LINE: CauseTexts = CauseTexts {
    id: cause::H2_HEAD_OF_LINE,
    title: "a lost packet held up HTTP/2 streams whose packet it was not",
    fixes: &[
        ("the path", "find where packets are lost, as for packet-loss: mtr, ethtool -S, ip -s link"),
        ("browsers, curl", "HTTP/3 (QUIC), where the server speaks it: there a loss holds up one stream"),
        (
            "any client",
            "some connections instead of one, or HTTP/1.1 with a pool, on paths that lose packets",
        ),
    ],
    verify: "linerate explain --http2 URL compares one connection with several",
};

pub(super) const LIMIT: &str =
    "calls wait in the client for a stream: the server admits no more at once on a connection";

pub(super) const LIMIT_FIXES: Fixes = &[
    ("nginx", "http2_max_concurrent_streams (128 by default)"),
    ("Apache", "H2MaxSessionStreams (100 by default)"),
    ("Node", "http2.createServer({ settings: { maxConcurrentStreams: n } })"),
    ("Go", "http2.Server.MaxConcurrentStreams (250 by default); grpc.MaxConcurrentStreams"),
    (
        "the client",
        "a second connection when the first one is full (Go and Java's HttpClient do not by themselves)",
    ),
];

/// Share of the time below the limit. A program that makes its calls in a closed loop keeps all
/// streams busy all the time, and nothing waits in it.
const SLACK: f64 = 0.1;
/// Turns at the limit up to which a burst is no closed loop.
const TURNS: u64 = 10;

/// Requests leave as soon as a stream ends, and never more than the server admits.
pub(super) fn limit(seen: &Observation) -> Option<Finding> {
    let waits = |l: &&StreamLimit| {
        let slack = (l.full_ns as f64) <= (1.0 - SLACK) * l.watched_ns as f64;
        l.followed >= FOLLOWED.max(l.times)
            && 2 * l.followed >= l.ended
            && (slack || l.followed <= TURNS * l.limit)
    };
    let all: Vec<&StreamLimit> = seen.stream_limits.iter().filter(waits).collect();
    let worst = *all.iter().max_by_key(|l| l.waited_ns)?;
    let sum = |of: fn(&StreamLimit) -> u64| all.iter().map(|l| of(l)).sum::<u64>();
    let followed = sum(|l| l.followed);
    let all_ns = all.iter().fold(0i64, |sum, l| sum.saturating_add(l.waited_ns));
    let cost_ns = per(all_ns, followed);
    if cost_ns < LEAST_NS || (all_ns as f64) < SHARE * seen.sums.total_ns as f64 {
        return None;
    }
    let (client, server) = worst.ends?;
    let mut evidence = vec![
        format!(
            "{server} admits {} streams at once (SETTINGS_MAX_CONCURRENT_STREAMS), and {client} came to that {} times; of {} streams that \
             ended then, {} were followed by the next request at once (within 5 ms)",
            worst.limit, worst.times, worst.ended, worst.followed
        ),
        format!(
            "those requests left up to {} after all streams had become busy: if they were there by then, they waited that long",
            ms(cost_ns)
        ),
    ];
    let refused = sum(|l| l.refused);
    match refused {
        0 => evidence
            .push("a client that has as many workers as the server admits streams looks the same".to_owned()),
        n => evidence.push(format!("the server refused {n} streams beyond those (REFUSED_STREAM)")),
    }
    Some(Finding {
        id: cause::H2_STREAM_LIMIT,
        title: LIMIT,
        server: None,
        calls: followed.min(seen.sums.answered),
        of: seen.sums.answered,
        cost_ns,
        all_ns,
        confidence: if refused > 0 { Confidence::Likely } else { Confidence::Possible },
        evidence,
        fixes: made(LIMIT_FIXES),
        verify: "linerate explain --http2 URL makes twice as many calls at once on one connection and on two"
            .to_owned(),
        example: seen.slowest.first().cloned(),
    })
}
