//! HTTP/2: its windows, its streams, and servers that speak it well.

use crate::bench::explain::case::{Case, CaseServer, Fixed, PLAIN};

const HTTP2: &[&str] = &["--http2"];
/// A client that announces no windows of its own.
const SMALL: &[&str] = &["--http2", "--h2-window", "65535"];

/// What the loss does besides.
const LOSS: &[&str] = &["packet-loss", "syn-loss"];

pub(super) static CASES: &[Case] = &[
    Case {
        name: "h2-window",
        truth: "h2-flow-control",
        rtts: &[40],
        path: "/bytes/300000",
        flags: SMALL,
        // Its new connections begin slowly besides.
        also: &["slow-start"],
        fixed: Fixed::Flags(HTTP2),
        ..PLAIN
    },
    Case {
        name: "h2-streams",
        truth: "h2-stream-limit",
        rtts: &[40],
        server: CaseServer::Node("h2-streams"),
        flags: HTTP2,
        ..PLAIN
    },
    Case {
        name: "h2-loss",
        truth: "h2-head-of-line",
        rtts: &[40],
        net: "--loss down:2%",
        path: "/bytes/12000",
        flags: HTTP2,
        behind: LOSS,
        ..PLAIN
    },
    Case {
        name: "h2-loss-nginx",
        truth: "h2-head-of-line",
        rtts: &[40],
        net: "--loss down:2%",
        server: CaseServer::NginxHttp2("location / { root www; }"),
        path: "/page",
        flags: HTTP2,
        behind: LOSS,
        ..PLAIN
    },
    // Segments get lost, and no call waits for those of another: there is one at a time, or the
    // responses of all leave in one segment.
    Case {
        name: "h2-loss-one-stream",
        truth: "packet-loss",
        rtts: &[40],
        net: "--drop down:data=every:40",
        server: CaseServer::NginxHttp2("http2_max_concurrent_streams 1; location / { root www; }"),
        path: "/page",
        flags: HTTP2,
        also: &["h2-stream-limit"],
        never: &["h2-head-of-line"],
        ..PLAIN
    },
    Case {
        name: "h2-loss-small",
        truth: "packet-loss",
        rtts: &[40],
        net: "--drop down:data=every:9",
        flags: HTTP2,
        never: &["h2-head-of-line"],
        ..PLAIN
    },
    Case {
        name: "h2-nginx-streams",
        truth: "h2-stream-limit",
        rtts: &[40],
        server: CaseServer::NginxHttp2("http2_max_concurrent_streams 3; location / { return 200 hello; }"),
        flags: HTTP2,
        fixed: Fixed::Server(CaseServer::NginxHttp2("location / { return 200 hello; }")),
        ..PLAIN
    },
    Case {
        name: "h2-nginx-window",
        truth: "h2-flow-control",
        rtts: &[40],
        server: CaseServer::NginxHttp2("location / { root www; }"),
        path: "/half",
        flags: SMALL,
        also: &["slow-start"],
        fixed: Fixed::Flags(HTTP2),
        ..PLAIN
    },
    Case { name: "h2-healthy-linerate", alike: true, flags: HTTP2, ..PLAIN },
    Case { name: "h2-healthy-body", alike: true, path: "/bytes/12000", flags: HTTP2, ..PLAIN },
    Case { name: "h2-healthy-small-window", alike: true, path: "/bytes/8000", flags: SMALL, ..PLAIN },
    Case {
        name: "h2-healthy-node",
        alike: true,
        server: CaseServer::Node("h2-plain"),
        flags: HTTP2,
        ..PLAIN
    },
    Case {
        name: "h2-healthy-nginx",
        alike: true,
        server: CaseServer::NginxHttp2("location / { return 200 hello; }"),
        flags: HTTP2,
        ..PLAIN
    },
    Case {
        name: "h2-think-40",
        truth: "server-think",
        alike: true,
        server: CaseServer::Node("h2-think"),
        flags: HTTP2,
        ..PLAIN
    },
];
