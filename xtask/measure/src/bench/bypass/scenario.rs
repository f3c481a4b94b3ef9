//! The scenarios for unchanged programs and their targets.

use crate::bench::scenario::{Figure, Want};

/// Connections in user space, by the library.
pub(super) const BYPASS: &str = "bypass";
/// The same program with the same configuration on the kernel's sockets.
pub(super) const KERNEL: &str = "kernel";
/// Bytes of the body that `return` responds with.
pub(super) const BODY: usize = 600;
/// Bytes of the file.
pub(super) const FILE: usize = 3_700;

/// What serves, and what asks it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum BypassServer {
    /// nginx, asked by `linerate load --io xdp` for this path.
    Nginx(&'static str),
    /// redis, asked by redis-benchmark on the kernel's sockets.
    Redis,
}

/// One row of the table.
#[derive(Debug)]
pub(crate) struct BypassScenario {
    /// The name for `--only`.
    pub(crate) name: &'static str,
    /// A description in words.
    pub(crate) what: &'static str,
    pub(super) server: BypassServer,
    /// Connections held open.
    pub(super) connections: usize,
    /// Requests on each; 0: as many as there are.
    pub(super) per_connection: usize,
    /// The targets to reach.
    pub(super) wants: [Want; 2],
}

/// A rate that is required, and one that is aimed at, as multiples of the kernel's.
const fn rates(required: f64, aim: f64) -> [Want; 2] {
    const fn rate(limit: f64, binds: bool) -> Want {
        Want { figure: Figure::Rate, ours: BYPASS, against: KERNEL, limit, binds }
    }
    [rate(required, true), rate(aim, false)]
}

const fn nginx(
    name: &'static str,
    what: &'static str,
    connections: usize,
    per_connection: usize,
    wants: [Want; 2],
) -> BypassScenario {
    BypassScenario { name, what, server: BypassServer::Nginx("/"), connections, per_connection, wants }
}

const fn at(path: &'static str, of: BypassScenario) -> BypassScenario {
    BypassScenario { server: BypassServer::Nginx(path), ..of }
}

/// All of them, in the table's order.
pub(crate) const SCENARIOS: &[BypassScenario] = &[
    nginx("short64", "nginx `return`, 1 request per connection, c=64", 64, 1, rates(2.0, 2.4)),
    nginx("short1000", "nginx `return`, 1 request per connection, c=1000", 1000, 1, rates(1.8, 2.2)),
    nginx("three1000", "nginx `return`, 3 requests per connection, c=1000", 1000, 3, rates(1.7, 2.2)),
    nginx("ten1000", "nginx `return`, 10 requests per connection, c=1000", 1000, 10, rates(1.4, 1.8)),
    nginx("long64", "nginx `return`, long connections, c=64", 64, 0, rates(1.3, 1.5)),
    nginx("long1000", "nginx `return`, long connections, c=1000", 1000, 0, rates(1.3, 1.5)),
    at(
        "/file",
        nginx("file-short", "nginx, 3.7 kB file, 1 request per connection, c=64", 64, 1, rates(1.5, 2.0)),
    ),
    at("/file", nginx("file-long", "nginx, 3.7 kB file, long connections, c=64", 64, 0, rates(1.1, 1.3))),
    at(
        "/proxy",
        nginx("proxy", "nginx `proxy_pass` to the kernel, long connections, c=64", 64, 0, rates(1.15, 1.3)),
    ),
    BypassScenario {
        name: "redis",
        what: "redis GET by redis-benchmark on the kernel, c=50",
        server: BypassServer::Redis,
        connections: 50,
        per_connection: 0,
        wants: rates(1.15, 1.3),
    },
];
