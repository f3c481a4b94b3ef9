//! What is measured of TCP in user space and what it must reach.

use crate::bench::scenario::{Figure, Want};

pub(super) const XDP: &str = "linerate xdp";
pub(super) const EPOLL: &str = "linerate epoll";
pub(super) const URING: &str = "linerate uring";
pub(super) const NGINX: &str = "nginx";
pub(super) const LOAD_XDP: &str = "load xdp";
pub(super) const LOAD_EPOLL: &str = "load epoll";

/// One row of the table.
#[derive(Debug)]
pub(crate) struct Scenario {
    /// For `--only`.
    pub(crate) name: &'static str,
    /// In words.
    pub(crate) what: &'static str,
    /// Connections held open.
    pub(super) connections: usize,
    /// Requests on each; 0: as many as there are.
    pub(super) per_connection: usize,
    /// Who is compared: a server asked by `load --io xdp`, or a client that asks `serve --io xdp`.
    pub(super) who: &'static [&'static str],
    /// What must be reached.
    pub(super) wants: &'static [Want],
}

/// Servers of which ours is held against the kernel's best, so against each.
const SERVERS: &[&str] = &[XDP, EPOLL, URING, NGINX];

const fn rate(ours: &'static str, against: &'static str, limit: f64) -> Want {
    Want { figure: Figure::Rate, ours, against, limit, binds: true }
}

const fn all(limit: f64) -> [Want; 3] {
    [rate(XDP, EPOLL, limit), rate(XDP, URING, limit), rate(XDP, NGINX, limit)]
}

const fn servers(
    name: &'static str,
    what: &'static str,
    connections: usize,
    per_connection: usize,
    wants: &'static [Want],
) -> Scenario {
    Scenario { name, what, connections, per_connection, who: SERVERS, wants }
}

/// All of them, in the table's order.
pub(crate) const SCENARIOS: &[Scenario] = &[
    servers("short1000", "1 request per connection, c=1000", 1000, 1, &all(3.4)),
    servers("short64", "1 request per connection, c=64", 64, 1, &all(1.7)),
    servers("three1000", "3 requests per connection, c=1000", 1000, 3, &all(2.0)),
    servers("ten1000", "10 requests per connection, c=1000", 1000, 10, &all(2.2)),
    servers("long1000", "long connections, c=1000", 1000, 0, &all(2.3)),
    Scenario {
        name: "client",
        what: "client: 1 request per connection, c=1000, to linerate xdp",
        connections: 1000,
        per_connection: 1,
        who: &[LOAD_XDP, LOAD_EPOLL],
        wants: &[rate(LOAD_XDP, LOAD_EPOLL, 4.0)],
    },
];
