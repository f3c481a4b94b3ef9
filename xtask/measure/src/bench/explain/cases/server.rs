//! Faults in the server.

use crate::bench::explain::case::{
    BackgroundActivity, Case, CaseNameServer, CaseServer, Fixed, NAMES, PLAIN, ServerCpus,
};
use crate::bench::explain::wild::{Wild, WildServerKind, WildServerMode};

/// A name server that takes its time, for servers that look up who calls.
const SLOW_NAMES: Option<CaseNameServer> = Some(CaseNameServer { delay_ms: 200, ..NAMES });

/// A proxy before a server with Nagle's algorithm.
const fn nagle_behind(kind: WildServerKind) -> Wild {
    Wild { kind, mode: WildServerMode::Nagle, workers: 0 }
}

pub(super) static CASES: &[Case] = &[
    Case {
        name: "queueing",
        truth: "server-queueing",
        server: CaseServer::Linerate(&["--misbehave", "lanes=1", "--misbehave", "think=5"]),
        beside: &[BackgroundActivity::LoadNear("/ -c 8")],
        // That others fill the line is seen at the server only.
        pid: true,
        fixed: Fixed::Alone,
        ..PLAIN
    },
    Case {
        name: "paced",
        truth: "rate-limit",
        server: CaseServer::Nginx("location / { limit_req zone=pace burst=50; root www; }"),
        path: "/small",
        fixed: Fixed::Server(CaseServer::Nginx("location / { root www; }")),
        ..PLAIN
    },
    Case {
        name: "refused",
        truth: "rate-limit",
        server: CaseServer::Nginx("location / { limit_req zone=pace; limit_req_status 429; root www; }"),
        path: "/small",
        ..PLAIN
    },
    // What depends on the time, and on no pace of ours.
    Case {
        name: "tick-20",
        truth: "periodic-stall",
        alike: true,
        rtts: &[0],
        server: CaseServer::Odd("tick=20"),
        ..PLAIN
    },
    Case {
        name: "tick-100",
        truth: "periodic-stall",
        alike: true,
        server: CaseServer::Odd("tick=100"),
        ..PLAIN
    },
    Case {
        name: "lock-90-of-120",
        truth: "periodic-stall",
        alike: true,
        server: CaseServer::Odd("lock"),
        ..PLAIN
    },
    // The server behind the proxy that answers has the fault.
    Case {
        name: "nagle-behind",
        truth: "server-nagle-delayed-ack",
        rtts: &[0],
        server: CaseServer::Nginx(
            "location / { proxy_pass http://nagle; proxy_http_version 1.1; proxy_set_header Connection ''; }",
        ),
        never: &["rate-limit"],
        ..PLAIN
    },
    Case {
        name: "nagle-behind-haproxy",
        truth: "server-nagle-delayed-ack",
        rtts: &[0],
        server: CaseServer::Wild(nagle_behind(WildServerKind::Haproxy)),
        never: &["rate-limit"],
        ..PLAIN
    },
    Case {
        name: "nagle-behind-caddy",
        truth: "server-nagle-delayed-ack",
        rtts: &[0],
        server: CaseServer::Wild(nagle_behind(WildServerKind::Caddy)),
        never: &["rate-limit"],
        ..PLAIN
    },
    Case {
        name: "event-loop",
        truth: "event-loop-blocked",
        server: CaseServer::Node("blocking"),
        beside: &[BackgroundActivity::Calls("/block", 40)],
        pid: true,
        alone: true,
        fixed: Fixed::Alone,
        ..PLAIN
    },
    Case {
        name: "gc",
        truth: "gc-pause",
        server: CaseServer::Jdk(
            "garbage",
            &["-Xmx160m", "-Xms160m", "-XX:+UseSerialGC", "-Dsun.net.httpserver.nodelay=true"],
        ),
        pid: true,
        alone: true,
        // As much garbage, and room for it.
        fixed: Fixed::Server(CaseServer::Jdk(
            "garbage",
            &["-Xmx1g", "-Xms1g", "-Xmn800m", "-XX:+UseSerialGC", "-Dsun.net.httpserver.nodelay=true"],
        )),
        ..PLAIN
    },
    Case {
        name: "throttled",
        truth: "cpu-throttled",
        // More than its group has in one period, however seldom it is called.
        server: CaseServer::Python("burn=12"),
        share: ServerCpus::Tenth,
        pid: true,
        alone: true,
        fixed: Fixed::Whole,
        ..PLAIN
    },
    // The processes that answer are children of the one that is known.
    Case {
        name: "prefork-throttled",
        truth: "cpu-throttled",
        alike: true,
        server: CaseServer::Odd("prefork"),
        share: ServerCpus::Tenth,
        pid: true,
        alone: true,
        never: &["server-think"],
        ..PLAIN
    },
    Case {
        name: "contended",
        truth: "cpu-contention",
        server: CaseServer::Python("burn=5"),
        share: ServerCpus::Contended(4),
        pid: true,
        alone: true,
        fixed: Fixed::Whole,
        ..PLAIN
    },
    Case {
        name: "reverse-lookup",
        truth: "reverse-dns",
        server: CaseServer::Python("reverse"),
        name_server: SLOW_NAMES,
        ..PLAIN
    },
    // All but one of its descriptors are taken.
    Case {
        name: "descriptors",
        truth: "fd-limit",
        alike: true,
        server: CaseServer::Odd("full"),
        pid: true,
        never: &["server-think", "accept-queue"],
        ..PLAIN
    },
    Case {
        name: "workers",
        truth: "connection-limit",
        server: CaseServer::Linerate(&["--misbehave", "workers=2"]),
        beside: &[BackgroundActivity::Churn(6, 120, 0)],
        fixed: Fixed::Alone,
        ..PLAIN
    },
    Case { name: "one-connection", truth: "connection-limit", server: CaseServer::Python("single"), ..PLAIN },
    // Connections are handed out in turn: by a hash (SO_REUSEPORT) all that a diagnosis makes may
    // happen to meet the idle one. Four processes that must get the processor at once: alone.
    Case {
        name: "node-cluster",
        truth: "pinned-to-busy-worker",
        server: CaseServer::Node("cluster"),
        alone: true,
        ..PLAIN
    },
];
