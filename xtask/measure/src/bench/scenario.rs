//! The scenarios for clients and their targets.

/// One row of the table.
#[derive(Debug)]
pub(crate) struct LoadScenario {
    /// The name for `--only`.
    pub(crate) name: &'static str,
    /// A description in words.
    pub(crate) what: &'static str,
    /// How it is measured.
    pub(crate) sort: LoadMeasure,
}

/// How a scenario is measured.
#[derive(Clone, Copy, Debug)]
pub(crate) enum LoadMeasure {
    /// Paired runs of ours and others against the same server.
    InTurns {
        /// The requests to send.
        shape: LoadShape,
        /// The targets to reach.
        wants: &'static [Want],
    },
    /// Resident memory over half a minute.
    Memory,
    /// An exact rate against a server that responds at once.
    Rate,
    /// A server that stalls for a second once in ten.
    Stall,
}

/// The requests and their server.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LoadShape {
    /// Connections held open.
    pub(crate) connections: usize,
    /// Requests in flight on each.
    pub(crate) depth: usize,
    /// A new connection for each request.
    pub(crate) short: bool,
    /// Path of the requests.
    pub(crate) path: &'static str,
    /// Bytes of body in each response.
    pub(crate) body: usize,
    /// Against nginx, with `--throughput`; otherwise against the bare server.
    pub(crate) nginx: bool,
}

/// One figure that must be reached.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Want {
    /// The figure to compare.
    pub(crate) figure: Figure,
    /// The program whose figure must reach the target.
    pub(crate) ours: &'static str,
    /// The program whose figure it is divided by.
    pub(crate) against: &'static str,
    /// The least (rate) or the most (processor time) that the ratio may be.
    pub(crate) limit: f64,
    /// Whether missing it is a failure; otherwise it is an aim.
    pub(crate) binds: bool,
}

/// Figures that can be compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Figure {
    /// Answered requests per second: more is better.
    Rate,
    /// Processor time per request of what is measured, client or server: less is better.
    Cpu,
    /// Latency that 99 % of the requests did not exceed: less is better.
    P99,
    /// Requests per second of a core's time that the program used: more is better.
    PerCore,
    /// Memory that a user adds: less is better.
    Memory,
}

impl Figure {
    /// Whether a target is the least that a ratio may be; otherwise it is the most.
    pub(crate) fn more_is_better(self) -> bool {
        matches!(self, Figure::Rate | Figure::PerCore)
    }
}

/// The better of the two raw clients: targets against it are pass/fail, those against a peer are
/// informational.
pub(crate) const RAW: &str = "raw";

/// The client that is measured here.
const OURS: &str = "linerate";

const KEEP: LoadShape =
    LoadShape { connections: 64, depth: 1, short: false, path: "/", body: 13, nginx: false };

const fn is_raw(against: &str) -> bool {
    matches!(against.as_bytes(), b"raw")
}

const fn binding(want: Want) -> Want {
    Want { binds: true, ..want }
}

const fn rate(against: &'static str, limit: f64) -> Want {
    Want { figure: Figure::Rate, ours: OURS, against, limit, binds: is_raw(against) }
}

const fn cpu(against: &'static str, limit: f64) -> Want {
    Want { figure: Figure::Cpu, ours: OURS, against, limit, binds: is_raw(against) }
}

const fn turns(
    name: &'static str,
    what: &'static str,
    shape: LoadShape,
    wants: &'static [Want],
) -> LoadScenario {
    LoadScenario { name, what, sort: LoadMeasure::InTurns { shape, wants } }
}

/// Targets for large responses.
const NEAR_RAW: &[Want] = &[rate(RAW, 0.95), rate("shb", 1.0)];

const fn body(name: &'static str, what: &'static str, bytes: usize) -> LoadScenario {
    turns(name, what, LoadShape { body: bytes, ..KEEP }, NEAR_RAW)
}

/// All of them, in the table's order.
pub(crate) const SCENARIOS: &[LoadScenario] = &[
    turns(
        "keepalive64",
        "keep-alive, c=64",
        KEEP,
        &[rate(RAW, 1.0), rate("wrk", 1.3), rate("shb", 1.0), cpu("wrk", 0.8)],
    ),
    turns(
        "keepalive1000",
        "keep-alive, c=1000",
        LoadShape { connections: 1000, ..KEEP },
        &[rate(RAW, 1.0), rate("wrk", 1.5), rate("shb", 1.0), cpu("wrk", 0.8)],
    ),
    turns(
        "pipe64x16",
        "pipelined 64 x 16",
        LoadShape { depth: 16, ..KEEP },
        &[rate(RAW, 0.95), rate("wrk", 1.8)],
    ),
    turns(
        "pipe64x64",
        "pipelined 64 x 64",
        LoadShape { depth: 64, ..KEEP },
        &[rate(RAW, 0.95), rate("wrk", 3.3), rate("h2load", 4.5)],
    ),
    turns(
        "pipe8x100",
        "pipelined 8 x 100",
        LoadShape { connections: 8, depth: 100, ..KEEP },
        &[rate(RAW, 0.95), rate("wrk", 4.0), rate("h2load", 6.0)],
    ),
    turns(
        "short64",
        "short connections, c=64",
        LoadShape { short: true, ..KEEP },
        &[rate(RAW, 0.95), rate("wrk", 1.35), rate("ab", 1.25), rate("shb", 1.0)],
    ),
    body("body600", "answers of 600 B, keep-alive c=64", 600),
    body("body6k", "answers of 6 kB, keep-alive c=64", 6_000),
    body("body32k", "answers of 32 kB, keep-alive c=64", 32_000),
    body("body1m", "answers of 1 MB, keep-alive c=64", 1_000_000),
    turns(
        "nginx8x100",
        "against nginx, pipelined 8 x 100, --throughput",
        LoadShape { connections: 8, depth: 100, nginx: true, ..KEEP },
        &[binding(rate("h2load", 1.35)), binding(cpu("h2load", 0.1))],
    ),
    LoadScenario { name: "memory1000", what: "memory, c=1000, 30 s", sort: LoadMeasure::Memory },
    LoadScenario { name: "rate50k", what: "open loop at 50,000/s", sort: LoadMeasure::Rate },
    LoadScenario {
        name: "stall",
        what: "open loop, the server stalls for 1 s once in 10 s",
        sort: LoadMeasure::Stall,
    },
];
