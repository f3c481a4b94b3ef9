//! Scenarios over TLS and their targets.

use crate::bench::scenario::{Figure, Want};

/// One row of the table.
#[derive(Debug)]
pub(super) struct TlsScenario {
    pub(super) name: &'static str,
    pub(super) what: &'static str,
    pub(super) sort: TlsMeasure,
}

/// The measured quantity and the peer it is measured against.
#[derive(Clone, Copy, Debug)]
pub(super) enum TlsMeasure {
    /// The processor time of clients, against the same server.
    Clients { shape: TlsShape, server: Against, wants: &'static [Want] },
    /// That of servers, by `linerate load`.
    Servers { shape: TlsShape, wants: &'static [Want] },
    /// Memory of connections that were asked once and are quiet since.
    Idle,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Against {
    Nginx,
    /// It does less for a request than any client, so it is not the limit of pipelined ones.
    Bare,
}

/// The traffic of a client: connections, pipelining, target and handshakes.
#[derive(Clone, Copy, Debug)]
pub(super) struct TlsShape {
    pub(super) connections: usize,
    pub(super) depth: usize,
    pub(super) path: &'static str,
    pub(super) handshakes: HandshakeRate,
}

/// How often sides shake hands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum HandshakeRate {
    /// Once for each connection that is kept.
    Few,
    /// A full one for each request.
    Full,
    /// A resumed one for each request.
    Resumed,
}

const KEEP: TlsShape = TlsShape { connections: 64, depth: 1, path: "/", handshakes: HandshakeRate::Few };
const LOAD: &str = "linerate";
const SERVE: &str = "linerate serve";

const fn cpu(ours: &'static str, against: &'static str, limit: f64) -> Want {
    Want { figure: Figure::Cpu, ours, against, limit, binds: true }
}

const fn rate(against: &'static str, limit: f64) -> Want {
    Want { figure: Figure::Rate, ours: LOAD, against, limit, binds: true }
}

const fn aim(want: Want) -> Want {
    Want { binds: false, ..want }
}

/// All of them, in the table's order.
pub(super) const SCENARIOS: &[TlsScenario] = &[
    TlsScenario {
        name: "load-keep64",
        what: "load, keep-alive c=64 against nginx",
        sort: TlsMeasure::Clients {
            shape: KEEP,
            server: Against::Nginx,
            wants: &[cpu(LOAD, "wrk", 0.85), rate("wrk", 1.0)],
        },
    },
    TlsScenario {
        name: "load-full",
        what: "load, a full handshake for each request, c=64 against nginx",
        sort: TlsMeasure::Clients {
            shape: TlsShape { handshakes: HandshakeRate::Full, ..KEEP },
            server: Against::Nginx,
            // Where nginx is the limit no client is faster; the run then says so among its doubts.
            wants: &[
                cpu(LOAD, "wrk", 0.5),
                cpu(LOAD, "ab", 0.5),
                aim(rate("wrk", 1.6)),
                aim(rate("ab", 1.6)),
            ],
        },
    },
    TlsScenario {
        name: "load-resumed",
        what: "load, a resumed handshake for each request, c=64 against nginx",
        sort: TlsMeasure::Clients {
            shape: TlsShape { handshakes: HandshakeRate::Resumed, ..KEEP },
            server: Against::Nginx,
            wants: &[cpu(LOAD, "wrk", 0.9), rate("wrk", 1.0)],
        },
    },
    TlsScenario {
        name: "load-pipe8x100",
        what: "load, pipelined 8 x 100 against a bare server",
        sort: TlsMeasure::Clients {
            shape: TlsShape { connections: 8, depth: 100, ..KEEP },
            server: Against::Bare,
            // Where the server is the limit, the processor time still compares the clients.
            wants: &[rate("wrk", 2.5), cpu(LOAD, "wrk", 0.4)],
        },
    },
    TlsScenario {
        name: "serve-keep64",
        what: "serve, keep-alive c=64",
        sort: TlsMeasure::Servers { shape: KEEP, wants: &[cpu(SERVE, "nginx", 0.95)] },
    },
    TlsScenario {
        name: "serve-keep1000",
        what: "serve, keep-alive c=1000",
        sort: TlsMeasure::Servers {
            shape: TlsShape { connections: 1000, ..KEEP },
            wants: &[cpu(SERVE, "nginx", 0.95)],
        },
    },
    TlsScenario {
        name: "serve-full",
        what: "serve, a full handshake for each request, c=64",
        sort: TlsMeasure::Servers {
            shape: TlsShape { handshakes: HandshakeRate::Full, ..KEEP },
            wants: &[cpu(SERVE, "nginx", 1.0), aim(cpu(SERVE, "nginx", 0.7))],
        },
    },
    TlsScenario {
        name: "serve-1m",
        what: "serve, 1 MB bodies, keep-alive c=8 (nginx: without kTLS)",
        sort: TlsMeasure::Servers {
            shape: TlsShape { connections: 8, path: "/bytes/1000000", ..KEEP },
            wants: &[cpu(SERVE, "nginx", 1.1)],
        },
    },
    TlsScenario { name: "serve-idle", what: "2,000 idle connections", sort: TlsMeasure::Idle },
];
