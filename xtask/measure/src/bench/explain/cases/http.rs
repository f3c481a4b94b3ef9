//! Faults in how HTTP is used.

use crate::bench::explain::case::{BackgroundActivity, Case, CaseServer, Fixed, PLAIN};

pub(super) static CASES: &[Case] = &[
    Case {
        name: "no-100-continue",
        truth: "expect-continue",
        server: CaseServer::Linerate(&["--misbehave", "no-100-continue"]),
        path: "/upper",
        flags: &["-X", "POST", "--repeat-unsafe", "--body", "hello", "-H", "Expect: 100-continue"],
        fixed: Fixed::Flags(&["-X", "POST", "--repeat-unsafe", "--body", "hello"]),
        ..PLAIN
    },
    Case {
        name: "no-keep-alive",
        truth: "no-keep-alive",
        rtts: &[40],
        server: CaseServer::Linerate(&["--misbehave", "no-keep-alive"]),
        fixed: Fixed::Server(CaseServer::Linerate(&[])),
        ..PLAIN
    },
    Case {
        name: "redirects",
        truth: "redirects",
        rtts: &[40],
        server: CaseServer::Nginx(
            "location = / { return 302 /a; } location = /a { return 302 /b; } location = /b { return 200 'here'; }",
        ),
        fixed: Fixed::Server(CaseServer::Nginx("location / { return 200 'here'; }")),
        ..PLAIN
    },
    Case {
        name: "gzip-expensive",
        truth: "compression",
        server: CaseServer::Nginx("gzip on; gzip_comp_level 9; gzip_types *; location / { root www; }"),
        path: "/words",
        flags: &["--compressed"],
        alone: true,
        fixed: Fixed::Flags(&[]),
        ..PLAIN
    },
    Case {
        name: "proxy-buffers",
        truth: "proxy-buffering",
        server: CaseServer::Nginx(
            "location / { proxy_pass http://127.0.0.1:8001; proxy_http_version 1.1; proxy_buffering on; }",
        ),
        flags: &["--origin", "@BEHIND"],
        fixed: Fixed::Server(CaseServer::Nginx(
            "location / { proxy_pass http://127.0.0.1:8001; proxy_http_version 1.1; proxy_buffering off; }",
        )),
        ..PLAIN
    },
    Case {
        name: "pipelined-behind",
        truth: "head-of-line",
        server: CaseServer::Linerate(&["--misbehave", "think=20"]),
        beside: &[BackgroundActivity::Load("/ -c 2 -p 4 --per-connection 8")],
        watched: true,
        ..PLAIN
    },
    Case {
        name: "small-pool",
        truth: "client-pool",
        server: CaseServer::Linerate(&["--misbehave", "think=20"]),
        beside: &[BackgroundActivity::Bursts(2)],
        watched: true,
        ..PLAIN
    },
    Case {
        name: "slow-reader",
        truth: "client-slow-reader",
        // A buffer that does not grow with what is read.
        client_sysctls: &[("net/ipv4/tcp_rmem", "4096 65536 65536")],
        beside: &[BackgroundActivity::Dawdle("/bytes/150000", 3_000)],
        watched: true,
        ..PLAIN
    },
];
