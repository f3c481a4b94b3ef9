//! Scenarios over HTTP/3 and their targets.

use crate::bench::scenario::{Figure, Want};

/// One row of the table.
#[derive(Debug)]
pub(super) struct QuicScenario {
    pub(super) name: &'static str,
    pub(super) what: &'static str,
    pub(super) sort: QuicMeasure,
    pub(super) wants: &'static [Want],
}

/// The measured quantity.
#[derive(Clone, Copy, Debug)]
pub(super) enum QuicMeasure {
    /// The processor time of clients against `linerate serve`, with so many connections and streams at
    /// once on each.
    Load(QuicShape),
    /// That of servers, by `linerate load`.
    Serve(QuicShape),
    /// Memory that a connection takes of `linerate serve` while it is quiet, with so many of them.
    Quiet(usize),
}

/// Connections, and streams at once on each.
#[derive(Clone, Copy, Debug)]
pub(super) struct QuicShape {
    pub(super) connections: usize,
    pub(super) depth: usize,
}

pub(super) const LOAD: &str = "linerate";
pub(super) const SHB: &str = "shb";
pub(super) const OHA: &str = "oha";
pub(super) const H2LOAD: &str = "h2load";
pub(super) const RAW: &str = "raw h3";
pub(super) const SERVE: &str = "linerate serve";
pub(super) const NGINX: &str = "nginx";

/// Memory of a quiet connection: required, and aimed at, bytes.
pub(super) const QUIET_MOST: f64 = 32_000.0;
pub(super) const QUIET_AIM: f64 = 15_000.0;

const fn want(figure: Figure, ours: &'static str, against: &'static str, limit: f64) -> Want {
    Want { figure, ours, against, limit, binds: true }
}

const fn aim(figure: Figure, ours: &'static str, against: &'static str, limit: f64) -> Want {
    Want { binds: false, ..want(figure, ours, against, limit) }
}

const BESIDE_CLIENTS: &[Want] = &[
    want(Figure::Rate, LOAD, SHB, 0.9),
    aim(Figure::Rate, LOAD, SHB, 1.2),
    want(Figure::Cpu, LOAD, SHB, 1.4),
    aim(Figure::Cpu, LOAD, SHB, 0.85),
    want(Figure::Cpu, LOAD, OHA, 0.2),
    aim(Figure::Cpu, LOAD, OHA, 0.15),
    want(Figure::Rate, LOAD, RAW, 0.85),
    aim(Figure::Rate, LOAD, RAW, 0.95),
];

const MANY: QuicShape = QuicShape { connections: 32, depth: 32 };

/// All of them, in the table's order.
pub(super) const SCENARIOS: &[QuicScenario] = &[
    QuicScenario {
        name: "load32x32",
        what: "load h3 32 x 32",
        sort: QuicMeasure::Load(MANY),
        wants: BESIDE_CLIENTS,
    },
    QuicScenario {
        name: "load4x32",
        what: "load h3 4 x 32",
        sort: QuicMeasure::Load(QuicShape { connections: 4, ..MANY }),
        wants: BESIDE_CLIENTS,
    },
    QuicScenario {
        name: "serve32x32",
        what: "serve h3 32 x 32, 1 KiB",
        sort: QuicMeasure::Serve(MANY),
        wants: &[want(Figure::Cpu, SERVE, NGINX, 0.5), aim(Figure::Cpu, SERVE, NGINX, 0.3)],
    },
    QuicScenario {
        name: "quiet",
        what: "serve h3, 1000 quiet connections",
        sort: QuicMeasure::Quiet(1000),
        wants: &[],
    },
];
