//! The scenarios for user-space TCP and their targets.

use std::time::Duration;

use super::transfer::{Transfer, TransferSender};
use crate::bench::scenario::{Figure, Want};

/// Bytes of body in each response, unless a scenario says otherwise: as in the write-up.
pub(super) const BODY: usize = 600;
/// The server's port.
pub(super) const PORT: u16 = 8080;
pub(super) const XDP: &str = "linerate xdp";
pub(super) const EPOLL: &str = "linerate epoll";
pub(super) const URING: &str = "linerate uring";
pub(super) const NGINX: &str = "nginx";
pub(super) const LOAD_XDP: &str = "load xdp";
pub(super) const LOAD_EPOLL: &str = "load epoll";

/// One row of the table.
#[derive(Debug)]
pub(crate) struct StackScenario {
    /// The name for `--only`.
    pub(crate) name: &'static str,
    /// A description in words.
    pub(crate) what: &'static str,
    /// Connections held open.
    pub(super) connections: usize,
    /// Requests on each; 0: as many as there are.
    pub(super) per_connection: usize,
    /// Bytes of body in each response.
    pub(super) body: usize,
    /// Requests a second, the same for all: then their CPU is compared. 0: as many as they can.
    pub(super) rate: u32,
    /// Instead of many requests one transfer, over a far path.
    pub(super) transfer: Option<Transfer>,
    /// The contenders: servers called by `load --io xdp`, or clients that call `serve --io xdp`.
    pub(super) who: &'static [&'static str],
    /// The targets to reach.
    pub(super) wants: &'static [Want],
}

/// The kernel's servers. Ours is compared with the best of them, and so with each.
const SERVERS: &[&str] = &[XDP, EPOLL, URING, NGINX];

const fn rate(ours: &'static str, against: &'static str, limit: f64) -> Want {
    Want { figure: Figure::Rate, ours, against, limit, binds: true }
}

const fn all(limit: f64) -> [Want; 3] {
    [rate(XDP, EPOLL, limit), rate(XDP, URING, limit), rate(XDP, NGINX, limit)]
}

/// More than F-Stack's figure is aimed at; what it reaches itself binds.
const LONG: &[Want] = &[
    rate(XDP, EPOLL, 2.3),
    rate(XDP, NGINX, 2.3),
    Want { binds: false, ..rate(XDP, EPOLL, 2.9) },
    Want { binds: false, ..rate(XDP, URING, 2.3) },
];

const fn servers(
    name: &'static str,
    what: &'static str,
    connections: usize,
    per_connection: usize,
    wants: &'static [Want],
) -> StackScenario {
    let (body, rate) = (BODY, 0);
    StackScenario { name, what, connections, per_connection, body, rate, transfer: None, who: SERVERS, wants }
}

const fn bodies(
    name: &'static str,
    what: &'static str,
    body: usize,
    wants: &'static [Want],
) -> StackScenario {
    StackScenario { body, ..servers(name, what, 64, 0, wants) }
}

const fn at_rate(
    name: &'static str,
    what: &'static str,
    per_connection: usize,
    rate: u32,
    wants: &'static [Want],
) -> StackScenario {
    StackScenario { rate, ..servers(name, what, 64, per_connection, wants) }
}

/// CPU of both ends, as a share of the other's.
const fn cpu(limit: f64) -> [Want; 3] {
    const fn of(against: &'static str, limit: f64) -> Want {
        Want { figure: Figure::Cpu, ours: XDP, against, limit, binds: false }
    }
    [of(EPOLL, limit), of(URING, limit), of(NGINX, limit)]
}

/// Of the kernel's rate with cubic.
const CLIENT_SENDS: &[Want] = &[rate(LOAD_XDP, LOAD_EPOLL, 0.8)];
const SERVER_MOVES: &[Want] = &[rate(XDP, EPOLL, 0.8)];

/// One way; a round trip takes twice as long.
const FAR: Duration = Duration::from_millis(20);
const NEAR: Duration = Duration::from_millis(1);

const fn transfer(
    name: &'static str,
    what: &'static str,
    sender: TransferSender,
    loss: f64,
) -> StackScenario {
    let (who, wants): (&[&str], &[Want]) = match sender {
        TransferSender::Client => (&[LOAD_XDP, LOAD_EPOLL], CLIENT_SENDS),
        TransferSender::Server | TransferSender::Kernel => (&[XDP, EPOLL], SERVER_MOVES),
    };
    let transfer = Some(Transfer { sender, loss, late: 0.0, delay: FAR });
    let (connections, per_connection, body, rate) = (1, 1, BODY, 0);
    StackScenario { name, what, connections, per_connection, body, rate, transfer, who, wants }
}

/// Of every hundred frames five take a millisecond longer.
const fn reordered(
    name: &'static str,
    what: &'static str,
    sender: TransferSender,
    delay: Duration,
) -> StackScenario {
    let wants: &[Want] = match sender {
        TransferSender::Client => const { &[rate(LOAD_XDP, LOAD_EPOLL, 0.5)] },
        TransferSender::Server | TransferSender::Kernel => const { &[rate(XDP, EPOLL, 0.5)] },
    };
    let late = Some(Transfer { sender, loss: 0.0, late: 0.05, delay });
    StackScenario { transfer: late, wants, ..transfer(name, what, sender, 0.0) }
}

/// All of them, in the table's order.
pub(crate) const SCENARIOS: &[StackScenario] = &[
    servers("short1000", "1 request per connection, c=1000", 1000, 1, &all(3.4)),
    servers("short64", "1 request per connection, c=64", 64, 1, &all(1.7)),
    servers("three1000", "3 requests per connection, c=1000", 1000, 3, &all(2.0)),
    servers("ten1000", "10 requests per connection, c=1000", 1000, 10, &all(2.2)),
    servers("long1000", "long connections, c=1000", 1000, 0, LONG),
    bodies("body3700", "long connections, c=64, 3.7 kB bodies", 3_700, &[]),
    bodies("body32000", "long connections, c=64, 32 kB bodies", 32_000, &[]),
    at_rate("rate-long", "long connections, c=64, 10,000 requests/s", 0, 10_000, &cpu(1.0)),
    at_rate("rate-short", "1 request per connection, c=64, 5,000 requests/s", 1, 5_000, &cpu(1.0)),
    StackScenario {
        name: "client",
        what: "client: 1 request per connection, c=1000, to linerate xdp",
        connections: 1000,
        per_connection: 1,
        body: BODY,
        rate: 0,
        transfer: None,
        who: &[LOAD_XDP, LOAD_EPOLL],
        wants: &[rate(LOAD_XDP, LOAD_EPOLL, 4.0)],
    },
    transfer("down0", "50 MB, 40 ms, no loss: the server sends", TransferSender::Server, 0.0),
    transfer("down0.1", "50 MB, 40 ms, 0.1 % loss: the server sends", TransferSender::Server, 0.001),
    transfer("down1", "50 MB, 40 ms, 1 % loss: the server sends", TransferSender::Server, 0.01),
    transfer("up0", "50 MB, 40 ms, no loss: the client sends", TransferSender::Client, 0.0),
    transfer("up0.1", "50 MB, 40 ms, 0.1 % loss: the client sends", TransferSender::Client, 0.001),
    transfer("up1", "50 MB, 40 ms, 1 % loss: the client sends", TransferSender::Client, 0.01),
    transfer(
        "receive0",
        "50 MB, 40 ms, no loss: the server receives from the kernel",
        TransferSender::Kernel,
        0.0,
    ),
    transfer(
        "receive0.1",
        "50 MB, 40 ms, 0.1 % loss: the server receives from the kernel",
        TransferSender::Kernel,
        0.001,
    ),
    transfer(
        "receive1",
        "50 MB, 40 ms, 1 % loss: the server receives from the kernel",
        TransferSender::Kernel,
        0.01,
    ),
    reordered("down-late", "50 MB, 40 ms, 5 % late by 1 ms: the server sends", TransferSender::Server, FAR),
    reordered(
        "down-late-near",
        "50 MB, 2 ms, 5 % late by 1 ms: the server sends",
        TransferSender::Server,
        NEAR,
    ),
    reordered("up-late", "50 MB, 40 ms, 5 % late by 1 ms: the client sends", TransferSender::Client, FAR),
    reordered(
        "up-late-near",
        "50 MB, 2 ms, 5 % late by 1 ms: the client sends",
        TransferSender::Client,
        NEAR,
    ),
];
