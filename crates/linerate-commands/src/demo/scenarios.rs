//! Ways of sending, and ways of a server to wait. They say how each is done; what it brings is
//! measured.

use std::time::Duration;

use linerate_load::plan::Way;
use linerate_load::plan::http::Http;

/// Connections, as in the write-up's `-c 100`.
const CONNECTIONS: u32 = 100;
/// Requests in flight on each of the few connections that pipeline.
const DEPTH: u32 = 100;
const FEW: u32 = 8;

/// A way of sending.
#[derive(Clone, Copy)]
pub(super) struct Scenario {
    pub(super) name: &'static str,
    pub(super) how: &'static str,
    pub(super) way: Way,
    pub(super) connections: u32,
    pub(super) depth: u32,
    pub(super) per_connection: Option<u32>,
    pub(super) http: Http,
    /// Requests, where the run ends by their number.
    pub(super) requests: Option<u64>,
    /// The path to ask for instead of the URL's, and how many of its responses wait at once.
    pub(super) waits: Option<(&'static str, u32)>,
}

const USUAL: Scenario = Scenario {
    name: "",
    how: "",
    way: Way::Loop,
    connections: CONNECTIONS,
    depth: 1,
    per_connection: None,
    http: Http::One,
    requests: None,
    waits: None,
};

pub(super) const SCENARIOS: [Scenario; 9] = [
    POLL,
    THREADS,
    Scenario {
        name: "async",
        how: "100 tasks on an async runtime, a connection each",
        way: Way::Async,
        ..USUAL
    },
    Scenario { name: "keep-alive", how: "an event loop, 100 connections held open", ..USUAL },
    Scenario {
        name: "short",
        how: "an event loop, a new connection for each request",
        per_connection: Some(1),
        ..USUAL
    },
    Scenario { name: "mixed 3", how: "3 requests on each connection", per_connection: Some(3), ..USUAL },
    Scenario { name: "mixed 10", how: "10 requests on each connection", per_connection: Some(10), ..USUAL },
    PIPELINED,
    Scenario { name: "http/2", how: "8 connections, 100 streams on each", http: Http::Two, ..PIPELINED },
];

const POLL: Scenario = Scenario {
    name: "poll",
    how: "one request at a time on one connection",
    way: Way::Poll,
    connections: 1,
    ..USUAL
};
const THREADS: Scenario =
    Scenario { name: "threads", how: "100 blocking threads, a connection each", way: Way::Threads, ..USUAL };
const PIPELINED: Scenario = Scenario {
    name: "pipelined",
    how: "8 connections, 100 requests in flight on each",
    connections: FEW,
    depth: DEPTH,
    ..USUAL
};

/// Requests of the write-up: 100 on each of 100 connections.
pub(super) const REQUESTS: u64 = 10_000;

/// Its run, by four ways.
pub(super) const HUNDRED: [Scenario; 4] = [
    Scenario { requests: Some(REQUESTS), ..POLL },
    Scenario { requests: Some(REQUESTS), ..THREADS },
    Scenario {
        name: "100 pipes of 100",
        how: "100 connections, 100 requests in flight on each",
        connections: CONNECTIONS,
        requests: Some(REQUESTS),
        ..PIPELINED
    },
    Scenario {
        name: "http/2, 100 x 100",
        how: "100 connections, 100 streams on each",
        connections: CONNECTIONS,
        requests: Some(REQUESTS),
        http: Http::Two,
        ..PIPELINED
    },
];

/// What a response of the second table waits.
pub(super) const WAIT: Duration = Duration::from_millis(10);

/// Ways of a server to wait.
pub(super) const WAITING: [Scenario; 3] = [
    Scenario {
        name: "blocking",
        waits: Some(("/blocking", 1)),
        how: "a handler that sleeps on the server's one thread",
        ..USUAL
    },
    Scenario {
        name: "threads",
        waits: Some(("/threads", 16)),
        how: "16 threads that sleep beside the event loop",
        ..USUAL
    },
    Scenario {
        name: "coroutines",
        waits: Some(("/coroutines", CONNECTIONS)),
        how: "a handler that awaits a timer",
        ..USUAL
    },
];
