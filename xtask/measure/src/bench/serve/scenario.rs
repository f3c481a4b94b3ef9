//! The scenarios for servers and their targets.

use crate::bench::scenario::{Figure, LoadShape, Want};

/// One row of the table.
#[derive(Debug)]
pub(crate) struct ServeScenario {
    /// The name for `--only`.
    pub(crate) name: &'static str,
    /// A description in words.
    pub(crate) what: &'static str,
    /// How it is measured.
    pub(crate) sort: ServeMeasure,
    /// The servers, by name.
    pub(crate) who: &'static [&'static str],
}

/// How a scenario is measured.
#[derive(Clone, Copy, Debug)]
pub(crate) enum ServeMeasure {
    /// Paired runs, by load generators.
    InTurns {
        /// The requests to send.
        shape: LoadShape,
        /// The targets to reach.
        wants: &'static [Want],
    },
    /// Memory of connections that were asked once and are quiet since.
    Idle,
    /// By `ab -k -c 1000`, asking for this path.
    Ab(&'static str),
}

pub(super) const EPOLL: &str = "linerate epoll";
pub(super) const URING: &str = "linerate uring";
pub(super) const NETTY: &str = "netty";
pub(super) const THREADS: &str = "16 threads";
/// The least that any server of this kind needs: a receive and a send per request, and no parsing.
pub(super) const BARE: &str = "bare";
/// The same on io_uring.
pub(super) const BARE_URING: &str = "bare uring";
/// Path of responses that take 10 ms.
pub(super) const WAITING: &str = "/delay/10";

const KEEP: LoadShape =
    LoadShape { connections: 64, depth: 1, short: false, path: "/", body: 14, nginx: false };

/// Targets of the transport that `--io auto` selects are pass/fail; those of the other are
/// informational.
const fn cpu(ours: &'static str, against: &'static str, limit: f64) -> Want {
    Want { figure: Figure::Cpu, ours, against, limit, binds: true }
}

const fn rate(ours: &'static str, against: &'static str, limit: f64) -> Want {
    Want { figure: Figure::Rate, ours, against, limit, binds: true }
}

const fn aim(want: Want) -> Want {
    Want { binds: false, ..want }
}

const fn turns(
    name: &'static str,
    what: &'static str,
    shape: LoadShape,
    who: &'static [&'static str],
    wants: &'static [Want],
) -> ServeScenario {
    ServeScenario { name, what, sort: ServeMeasure::InTurns { shape, wants }, who }
}

const ALL: &[&str] = &[EPOLL, URING, "nginx", "hyper", "axum", NETTY, "go", "swoole"];
const KEEPING: &[&str] = &[EPOLL, URING, BARE, BARE_URING, "nginx", "hyper", "axum", NETTY, "go", "swoole"];
const BESIDE_NGINX: &[&str] = &[EPOLL, URING, "nginx"];
const DEFERRED: &str = "linerate epoll deferred";
const DEFERRED_URING: &str = "linerate uring deferred";
const TOKIO: &str = "linerate epoll tokio";
const TOKIO_URING: &str = "linerate uring tokio";
const AXUM: &str = "linerate epoll axum";
/// `axum::serve` with TCP_NODELAY, which all the others here set as well: with its default, Nagle
/// coalesces a pipeline's responses.
pub(super) const AXUM_NODELAY: &str = "axum nodelay";
const AXUM_URING: &str = "linerate uring axum";
pub(super) const FILES: &str = "linerate epoll files";
pub(super) const FILES_URING: &str = "linerate uring files";
/// Targets for large responses.
const NO_MORE_THAN_NGINX: &[Want] = &[cpu(EPOLL, "nginx", 1.0), aim(cpu(URING, "nginx", 1.0))];

const fn body(
    name: &'static str,
    what: &'static str,
    path: &'static str,
    body: usize,
    depth: usize,
) -> ServeScenario {
    // Pipelines of megabytes use few connections.
    let connections = if depth > 1 { 8 } else { 64 };
    turns(name, what, LoadShape { path, body, depth, connections, ..KEEP }, BESIDE_NGINX, NO_MORE_THAN_NGINX)
}

const FILES_BESIDE_NGINX: &[&str] = &[FILES, FILES_URING, "nginx"];
const FILES_AT_NGINX: &[Want] = &[cpu(FILES, "nginx", 1.2), aim(cpu(FILES_URING, "nginx", 1.2))];

/// Static files; the ratio of CPU per request is that of CPU per GB.
const fn file(name: &'static str, what: &'static str, path: &'static str, body: usize) -> ServeScenario {
    turns(name, what, LoadShape { path, body, connections: 8, ..KEEP }, FILES_BESIDE_NGINX, FILES_AT_NGINX)
}

/// All of them, in the table's order.
pub(crate) const SCENARIOS: &[ServeScenario] = &[
    turns(
        "pipe16",
        "pipelined x 16, c=64",
        LoadShape { depth: 16, ..KEEP },
        ALL,
        &[
            cpu(EPOLL, "nginx", 0.10),
            cpu(EPOLL, "hyper", 0.75),
            aim(cpu(URING, "nginx", 0.10)),
            aim(cpu(URING, "hyper", 0.75)),
        ],
    ),
    turns(
        "keep1000",
        "keep-alive, c=1000",
        LoadShape { connections: 1000, ..KEEP },
        KEEPING,
        // The bare server is the floor: what is above it is ours.
        &[
            cpu(EPOLL, BARE, 1.1),
            cpu(URING, BARE_URING, 1.1),
            aim(cpu(EPOLL, "nginx", 0.70)),
            aim(cpu(URING, "nginx", 0.70)),
        ],
    ),
    turns(
        "keep64",
        "keep-alive, c=64",
        KEEP,
        KEEPING,
        &[cpu(EPOLL, "nginx", 1.0), aim(cpu(URING, "nginx", 1.0)), aim(cpu(EPOLL, "nginx", 0.95))],
    ),
    turns(
        "short64",
        "short connections, c=64",
        LoadShape { short: true, ..KEEP },
        &[EPOLL, URING, DEFERRED, DEFERRED_URING, "nginx", "nginx deferred", "hyper"],
        &[
            cpu(DEFERRED, "nginx", 0.60),
            cpu(DEFERRED, "nginx deferred", 0.90),
            aim(cpu(EPOLL, "nginx", 0.60)),
            aim(cpu(DEFERRED_URING, "nginx", 0.60)),
            aim(cpu(DEFERRED_URING, "nginx deferred", 0.90)),
        ],
    ),
    turns(
        "wait10",
        "10 ms wait in the handler, c=1000",
        LoadShape { connections: 1000, path: WAITING, ..KEEP },
        &[EPOLL, URING, TOKIO, TOKIO_URING, "hyper", "axum", NETTY, "go", "swoole"],
        &[
            cpu(TOKIO, "hyper", 0.90),
            rate(TOKIO, "hyper", 1.0),
            aim(cpu(TOKIO_URING, "hyper", 0.90)),
            aim(rate(TOKIO_URING, "hyper", 1.0)),
            aim(cpu(EPOLL, "hyper", 0.90)),
            aim(rate(EPOLL, "hyper", 1.0)),
        ],
    ),
    turns(
        "axum16",
        "an axum app, unchanged, pipelined x 16, c=64",
        LoadShape { depth: 16, ..KEEP },
        &[AXUM, AXUM_URING, "axum", AXUM_NODELAY],
        &[
            rate(AXUM, AXUM_NODELAY, 4.0),
            aim(rate(AXUM, "axum", 4.0)),
            aim(rate(AXUM_URING, AXUM_NODELAY, 4.0)),
            aim(rate(AXUM_URING, "axum", 4.0)),
        ],
    ),
    body("body3k7", "3.7 kB, keep-alive c=64 (nginx: from memory)", "/bytes/3700", 3_700, 1),
    body("body32k", "32 kB, keep-alive c=64 (nginx: sendfile)", "/bytes/32000", 32_000, 1),
    body("body1m", "1 MB, keep-alive c=64 (nginx: sendfile)", "/bytes/1000000", 1_000_000, 1),
    body("pipe3k7", "3.7 kB, pipelined 8 x 16 (nginx: from memory)", "/bytes/3700", 3_700, 16),
    body("pipe32k", "32 kB, pipelined 8 x 16 (nginx: sendfile)", "/bytes/32000", 32_000, 16),
    body("pipe1m", "1 MB, pipelined 8 x 16 (nginx: sendfile)", "/bytes/1000000", 1_000_000, 16),
    file("file32k", "a file of 32 kB, keep-alive c=8 (nginx: sendfile)", "/file/32000.bin", 32_000),
    file("file1m", "a file of 1 MB, keep-alive c=8 (nginx: sendfile)", "/file/1000000.bin", 1_000_000),
    file(
        "file100m",
        "a file of 100 MB, keep-alive c=8 (nginx: sendfile)",
        "/file/100000000.bin",
        100_000_000,
    ),
    ServeScenario {
        name: "idle10k",
        what: "10,000 idle keep-alive connections",
        sort: ServeMeasure::Idle,
        who: &[EPOLL, URING, "nginx", "hyper", "axum", NETTY, "go", "swoole"],
    },
    ServeScenario {
        name: "ab-hello",
        what: "ab -k -c 1000 -n 200000, hello world",
        sort: ServeMeasure::Ab("/"),
        who: &[EPOLL, URING, NETTY, "nginx", "go", "swoole"],
    },
    ServeScenario {
        name: "ab-wait",
        what: "ab -k -c 1000 -n 200000, 10 ms wait in each handler",
        sort: ServeMeasure::Ab(WAITING),
        who: &[EPOLL, URING, NETTY, "netty blocking", "go", "swoole", THREADS],
    },
];
