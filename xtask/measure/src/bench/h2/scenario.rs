//! Scenarios over HTTP/2 and their targets.

use crate::bench::scenario::{Figure, Want};

/// One row of the table.
#[derive(Debug)]
pub(super) struct StreamScenario {
    pub(super) name: &'static str,
    pub(super) what: &'static str,
    pub(super) connections: usize,
    /// Streams at once on each.
    pub(super) depth: usize,
    pub(super) tls: bool,
    pub(super) sort: StreamMeasure,
    pub(super) wants: &'static [Want],
}

/// The measured quantity and the peer it is measured against.
#[derive(Clone, Copy, Debug)]
pub(super) enum StreamMeasure {
    /// The processor time of clients, against the bare server.
    Bare,
    /// The same, against nginx.
    Nginx,
    /// That of these servers, by `linerate load`.
    Servers(&'static [&'static str]),
}

pub(super) const LOAD: &str = "linerate";
pub(super) const SHB: &str = "shb";
pub(super) const RAW: &str = "raw h2";
pub(super) const SERVE: &str = "linerate serve";
pub(super) const NGINX: &str = "nginx";
pub(super) const HYPER: &str = "hyper";
pub(super) const OUR_AXUM: &str = "linerate axum";
pub(super) const HYPER_AXUM: &str = "hyper axum";
const H2LOAD: &str = "h2load";

/// Targets of rate against shb and the raw sender, of which one is enough.
pub(super) const SHB_RATE: f64 = 1.5;
pub(super) const RAW_RATE: f64 = 0.95;

const fn cpu(ours: &'static str, against: &'static str, limit: f64) -> Want {
    Want { figure: Figure::Cpu, ours, against, limit, binds: true }
}

const fn rate(ours: &'static str, against: &'static str, limit: f64) -> Want {
    Want { figure: Figure::Rate, ours, against, limit, binds: true }
}

const fn aim(want: Want) -> Want {
    Want { binds: false, ..want }
}

const fn row(
    name: &'static str,
    what: &'static str,
    (connections, depth): (usize, usize),
    tls: bool,
    sort: StreamMeasure,
    wants: &'static [Want],
) -> StreamScenario {
    StreamScenario { name, what, connections, depth, tls, sort, wants }
}

/// All of them, in the table's order.
pub(super) const SCENARIOS: &[StreamScenario] = &[
    row(
        "load8x100",
        "load h2c 8 x 100, bare server",
        (8, 100),
        false,
        StreamMeasure::Bare,
        &[rate(LOAD, H2LOAD, 8.0), cpu(LOAD, H2LOAD, 0.12)],
    ),
    row(
        "load64x16",
        "load h2c 64 x 16, bare server",
        (64, 16),
        false,
        StreamMeasure::Bare,
        &[rate(LOAD, H2LOAD, 3.0)],
    ),
    row(
        "load1000x1",
        "load h2c 1000 x 1, bare server",
        (1000, 1),
        false,
        StreamMeasure::Bare,
        &[rate(LOAD, H2LOAD, 1.2)],
    ),
    row(
        "load-tls",
        "load h2 over TLS 8 x 100, bare server",
        (8, 100),
        true,
        StreamMeasure::Bare,
        &[rate(LOAD, H2LOAD, 4.0)],
    ),
    row(
        "load-nginx",
        "load h2c 8 x 100, nginx, --throughput",
        (8, 100),
        false,
        StreamMeasure::Nginx,
        &[rate(LOAD, H2LOAD, 0.95), cpu(LOAD, H2LOAD, 0.95)],
    ),
    row(
        "serve8x100",
        "serve h2c 8 x 100",
        (8, 100),
        false,
        StreamMeasure::Servers(&[SERVE, NGINX, HYPER]),
        &[cpu(SERVE, NGINX, 0.25), cpu(SERVE, HYPER, 0.9), aim(cpu(SERVE, HYPER, 0.5))],
    ),
    row(
        "serve-tls",
        "serve h2 over TLS 8 x 100",
        (8, 100),
        true,
        StreamMeasure::Servers(&[SERVE, NGINX]),
        &[cpu(SERVE, NGINX, 0.35)],
    ),
    row(
        "serve1000x1",
        "serve h2c 1000 x 1",
        (1000, 1),
        false,
        StreamMeasure::Servers(&[SERVE, NGINX]),
        &[cpu(SERVE, NGINX, 0.9)],
    ),
    row(
        "axum8x100",
        "an axum app, unchanged, h2c 8 x 100",
        (8, 100),
        false,
        StreamMeasure::Servers(&[OUR_AXUM, HYPER_AXUM]),
        &[rate(OUR_AXUM, HYPER_AXUM, 1.2)],
    ),
];
