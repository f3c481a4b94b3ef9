//! Faults in how HTTP is used.

use crate::bench::explain::case::{Beside, Case, Fixed, PLAIN, Server};

pub(super) static CASES: &[Case] = &[
    Case {
        name: "no-100-continue",
        truth: "expect-continue",
        server: Server::Linerate(&["--misbehave", "no-100-continue"]),
        path: "/upper",
        flags: &["-X", "POST", "--repeat-unsafe", "--body", "hello", "-H", "Expect: 100-continue"],
        fixed: Fixed::Flags(&["-X", "POST", "--repeat-unsafe", "--body", "hello"]),
        ..PLAIN
    },
    Case {
        name: "no-keep-alive",
        truth: "no-keep-alive",
        rtts: &[40],
        server: Server::Linerate(&["--misbehave", "no-keep-alive"]),
        fixed: Fixed::Server(Server::Linerate(&[])),
        ..PLAIN
    },
    Case {
        name: "redirects",
        truth: "redirects",
        rtts: &[40],
        server: Server::Nginx(
            "location = / { return 302 /a; } location = /a { return 302 /b; } location = /b { return 200 'here'; }",
        ),
        fixed: Fixed::Server(Server::Nginx("location / { return 200 'here'; }")),
        ..PLAIN
    },
    Case {
        name: "gzip-expensive",
        truth: "compression",
        server: Server::Nginx("gzip on; gzip_comp_level 9; gzip_types *; location / { root www; }"),
        path: "/words",
        flags: &["--compressed"],
        alone: true,
        fixed: Fixed::Flags(&[]),
        ..PLAIN
    },
    Case {
        name: "proxy-buffers",
        truth: "proxy-buffering",
        server: Server::Nginx(
            "location / { proxy_pass http://127.0.0.1:8001; proxy_http_version 1.1; proxy_buffering on; }",
        ),
        flags: &["--origin", "@BEHIND"],
        fixed: Fixed::Server(Server::Nginx(
            "location / { proxy_pass http://127.0.0.1:8001; proxy_http_version 1.1; proxy_buffering off; }",
        )),
        ..PLAIN
    },
    Case {
        name: "pipelined-behind",
        truth: "head-of-line",
        server: Server::Linerate(&["--misbehave", "think=20"]),
        beside: &[Beside::Load("/ -c 2 -p 4 --per-connection 8")],
        watched: true,
        ..PLAIN
    },
    Case {
        name: "small-pool",
        truth: "client-pool",
        server: Server::Linerate(&["--misbehave", "think=20"]),
        beside: &[Beside::Bursts(2)],
        watched: true,
        ..PLAIN
    },
    Case {
        name: "slow-reader",
        truth: "client-slow-reader",
        // A buffer that does not grow with what is read.
        client_sysctls: &[("net/ipv4/tcp_rmem", "4096 65536 65536")],
        beside: &[Beside::Dawdle("/bytes/150000", 3_000)],
        watched: true,
        ..PLAIN
    },
];
