//! What `bench client` measures, and what is wanted.

use crate::bench::scenario::{Figure, Want};

/// One row.
#[derive(Debug)]
pub(super) struct ClientScenario {
    pub(super) name: &'static str,
    pub(super) what: &'static str,
    pub(super) task: ClientTask,
    pub(super) clients: &'static [&'static str],
    pub(super) wants: &'static [Want],
}

/// The requests and their server.
#[derive(Clone, Copy, Debug)]
pub(super) enum ClientTask {
    /// `calls` calls in flight, to the bare server, which responds with `body` bytes.
    Flight { calls: u32, body: usize },
    /// The same over a round trip of `rtt_ms` milliseconds, on four connections each: clients that do not pipeline have
    /// four calls in flight.
    Far { rtt_ms: u64, calls: u32 },
    /// An open loop at a tenth of the rate that a client reaches with `calls` calls in flight.
    Tenth { calls: u32, of: &'static str },
    /// `calls` streams of one connection by HTTP/2, to a bare server.
    Streams { calls: u32 },
    /// A server of `bench serve`, as it is packaged: every client as its users set it up.
    Packaged { server: &'static str, calls: u32 },
    /// The same over a round trip, to the bare server, without a limit on connections. Ours may open one for 10 calls.
    Pools { rtt_ms: u64, calls: u32 },
    /// nginx with `keepalive_requests 100`. Every n-th call is a POST, if n is not 0.
    Nginx { calls: u32, post_every: u32 },
}

pub(super) const SEND: &str = "send";
/// Ours as its users set it up.
pub(super) const DEFAULT: &str = "default";
pub(super) const SEND_H2: &str = "send-h2";
pub(super) const HYPER_H2: &str = "hyper-util-h2";
pub(super) const SEND_ALL: &str = "send_all";
pub(super) const COUNTED: &str = "send_counted";
pub(super) const LOAD: &str = "linerate load";
pub(super) const HYPER: &str = "hyper-util";
pub(super) const REQWEST: &str = "reqwest";
pub(super) const PYTHON_ALL: &str = "Python send_all";
pub(super) const PYTHON_SEND: &str = "Python send";
pub(super) const AIOHTTP: &str = "aiohttp";
pub(super) const HTTPX: &str = "httpx";

const ALL: &[&str] = &[SEND, SEND_ALL, COUNTED, LOAD, HYPER, REQWEST];
const CALLS: &[&str] = &[SEND, HYPER, REQWEST];

const USUAL: &[&str] = &[DEFAULT, HYPER, REQWEST];

const fn rate(ours: &'static str, against: &'static str, limit: f64) -> Want {
    Want { figure: Figure::Rate, ours, against, limit, binds: true }
}

const fn of(figure: Figure, against: &'static str, limit: f64) -> Want {
    Want { figure, ours: SEND, against, limit, binds: true }
}

const fn usual(figure: Figure, against: &'static str, limit: f64) -> Want {
    Want { figure, ours: DEFAULT, against, limit, binds: true }
}

/// Many calls in flight.
const MANY: &[Want] = &[
    usual(Figure::Cpu, HYPER, 0.5),
    usual(Figure::Cpu, REQWEST, 0.35),
    usual(Figure::Rate, HYPER, 1.0),
    usual(Figure::Rate, REQWEST, 1.0),
];

/// One call, or few.
const FEW: &[Want] = &[usual(Figure::Cpu, HYPER, 1.0), usual(Figure::P99, HYPER, 1.0)];

const fn packaged(
    name: &'static str,
    what: &'static str,
    server: &'static str,
    calls: u32,
    wants: &'static [Want],
) -> ClientScenario {
    ClientScenario { name, what, task: ClientTask::Packaged { server, calls }, clients: USUAL, wants }
}

/// All of them, in the table's order.
pub(super) const SCENARIOS: &[ClientScenario] = &[
    ClientScenario {
        name: "flight100",
        what: "100-byte responses, 100 in flight",
        task: ClientTask::Flight { calls: 100, body: 100 },
        clients: ALL,
        wants: &[
            rate(SEND, HYPER, 5.0),
            rate(SEND, REQWEST, 5.0),
            rate(SEND_ALL, HYPER, 10.0),
            rate(SEND_ALL, REQWEST, 10.0),
            rate(COUNTED, LOAD, 0.8),
        ],
    },
    ClientScenario {
        name: "flight1",
        what: "100-byte responses, one at a time",
        task: ClientTask::Flight { calls: 1, body: 100 },
        clients: ALL,
        wants: &[rate(SEND, HYPER, 1.0), rate(SEND, REQWEST, 1.0)],
    },
    ClientScenario {
        name: "body16k",
        what: "16 KiB responses, 100 in flight",
        task: ClientTask::Flight { calls: 100, body: 16 << 10 },
        clients: ALL,
        wants: &[rate(SEND, HYPER, 1.0), rate(SEND, REQWEST, 1.0)],
    },
    ClientScenario {
        name: "far20",
        what: "round trip of 20 ms, 4 connections each",
        task: ClientTask::Far { rtt_ms: 20, calls: 256 },
        clients: CALLS,
        wants: &[rate(SEND, HYPER, 10.0), rate(SEND, REQWEST, 10.0)],
    },
    ClientScenario {
        name: "tenth",
        what: "p99 at a tenth of the top rate of send",
        task: ClientTask::Tenth { calls: 100, of: SEND },
        clients: CALLS,
        wants: &[of(Figure::P99, HYPER, 1.0), of(Figure::P99, REQWEST, 1.0)],
    },
    ClientScenario {
        name: "tenth-pooled",
        what: "p99 at a tenth of the top rate of hyper-util, which all clients reach",
        task: ClientTask::Tenth { calls: 100, of: HYPER },
        clients: CALLS,
        wants: &[of(Figure::P99, HYPER, 1.0), of(Figure::P99, REQWEST, 1.0)],
    },
    ClientScenario {
        name: "nginx100",
        what: "nginx with keepalive_requests 100, 100 in flight",
        task: ClientTask::Nginx { calls: 100, post_every: 0 },
        clients: CALLS,
        wants: &[rate(SEND, REQWEST, 1.5), of(Figure::Cpu, REQWEST, 0.4)],
    },
    ClientScenario {
        name: "nginx100post",
        what: "the same, every 50th a POST: none may be sent twice",
        task: ClientTask::Nginx { calls: 100, post_every: 50 },
        clients: CALLS,
        wants: &[],
    },
    packaged("usual-nginx100", "nginx as packaged, 100 in flight", "nginx", 100, MANY),
    packaged("usual-go100", "Go's net/http, 100 in flight", "go", 100, MANY),
    packaged("usual-node100", "Node's http, 100 in flight", "node", 100, MANY),
    packaged("usual-nginx10", "nginx as packaged, 10 in flight", "nginx", 10, FEW),
    packaged("usual-go10", "Go's net/http, 10 in flight", "go", 10, FEW),
    packaged("usual-node10", "Node's http, 10 in flight", "node", 10, FEW),
    packaged("usual-nginx1", "nginx as packaged, one at a time", "nginx", 1, FEW),
    packaged("usual-go1", "Go's net/http, one at a time", "go", 1, FEW),
    packaged("usual-node1", "Node's http, one at a time", "node", 1, FEW),
    ClientScenario {
        name: "pools20",
        what: "round trip of 20 ms, 100 in flight, connections without limit (ours: 10 at most)",
        task: ClientTask::Pools { rtt_ms: 20, calls: 100 },
        clients: USUAL,
        // The round trip sets the rate of all: 2 % are noise.
        wants: &[usual(Figure::Rate, HYPER, 0.98), usual(Figure::Rate, REQWEST, 0.98)],
    },
    ClientScenario {
        name: "http2",
        what: "HTTP/2, 1 connection, 100 streams",
        task: ClientTask::Streams { calls: 100 },
        clients: &[SEND_H2, HYPER_H2],
        wants: &[
            rate(SEND_H2, HYPER_H2, 2.0),
            Want { figure: Figure::Cpu, ours: SEND_H2, against: HYPER_H2, limit: 0.6, binds: true },
        ],
    },
    ClientScenario {
        name: "python",
        what: "Python: 100-byte responses, 100 in flight",
        task: ClientTask::Flight { calls: 100, body: 100 },
        clients: &[PYTHON_ALL, PYTHON_SEND, AIOHTTP, HTTPX],
        wants: &[
            rate(PYTHON_ALL, AIOHTTP, 10.0),
            rate(PYTHON_ALL, HTTPX, 20.0),
            Want { figure: Figure::Cpu, ours: PYTHON_ALL, against: AIOHTTP, limit: 0.05, binds: true },
        ],
    },
];
