//! Faults on the connection and before it.

use crate::bench::explain::case::{
    BackgroundActivity, Case, CaseNameServer, CaseServer, Fixed, NAMES, PLAIN, ServerCpus,
};

/// An upload, which `explain` repeats only when told that it may.
const UPLOAD: &[&str] = &["-X", "POST", "--repeat-unsafe", "--body", "@BODY"];

/// Time to look at connections that are idle for long.
pub(super) const IDLE_LONG: &[&str] = &["--budget", "60s"];
/// A way that keeps a table of connections, and what it does with packets of others: drops or resets.
const FORGETS: [&[&str]; 2] = [
    &["add table inet way", WAY_IN, "add rule inet way in ct state invalid drop"],
    &[
        "add table inet way",
        WAY_IN,
        "add rule inet way in meta l4proto tcp ct state invalid reject with tcp reset",
    ],
];
const WAY_IN: &str = "add chain inet way in {type filter hook input priority 0;}";
/// What was idle for two seconds is no longer in it, and does not come into it again by its next packet.
const FORGETS_SOON: &[(&str, &str)] = &[
    ("net/netfilter/nf_conntrack_tcp_loose", "0"),
    ("net/netfilter/nf_conntrack_tcp_timeout_established", "2"),
];

pub(super) static CASES: &[Case] = &[
    // Each way up to so much more, in order.
    Case {
        name: "jitter-40",
        truth: "path-jitter",
        rtts: &[0, 20],
        net: "--jitter 60ms",
        fixed: Fixed::Net,
        ..PLAIN
    },
    // A line that is narrow for what is sent on it.
    Case {
        name: "line-2mbit",
        truth: "bandwidth",
        net: "--rate down:2mbit",
        path: "/bytes/560000",
        also: &["packet-loss"],
        never: &["server-think", "server-nagle-delayed-ack"],
        fixed: Fixed::Net,
        ..PLAIN
    },
    Case {
        name: "line-10mbit",
        truth: "bandwidth",
        net: "--rate down:10mbit",
        path: "/bytes/1000000",
        also: &["packet-loss"],
        never: &["server-think", "server-nagle-delayed-ack"],
        fixed: Fixed::Net,
        ..PLAIN
    },
    // A body that takes longer than anybody waits for.
    Case {
        name: "line-1mbit-cut",
        truth: "bandwidth",
        rtts: &[0],
        net: "--rate down:1mbit",
        path: "/bytes/5000000",
        also: &["packet-loss"],
        never: &["server-think"],
        ..PLAIN
    },
    Case {
        name: "limit-rate",
        truth: "bandwidth",
        server: CaseServer::Nginx("location / { limit_rate 200k; root www; }"),
        path: "/half",
        never: &["server-think", "server-nagle-delayed-ack"],
        fixed: Fixed::Server(CaseServer::Nginx("location / { root www; }")),
        ..PLAIN
    },
    Case {
        name: "nagle-split",
        truth: "server-nagle-delayed-ack",
        server: CaseServer::Linerate(&["--misbehave", "nagle-split"]),
        fixed: Fixed::Server(CaseServer::Linerate(&[])),
        ..PLAIN
    },
    Case {
        name: "jdk",
        truth: "server-nagle-delayed-ack",
        server: CaseServer::Jdk("plain", &[]),
        fixed: Fixed::Server(CaseServer::Jdk("plain", &["-Dsun.net.httpserver.nodelay=true"])),
        ..PLAIN
    },
    Case {
        name: "jdk-contended",
        truth: "server-nagle-delayed-ack",
        server: CaseServer::Jdk("plain", &[]),
        share: ServerCpus::Contended(4),
        alone: true,
        ..PLAIN
    },
    Case {
        name: "python-split",
        truth: "server-nagle-delayed-ack",
        server: CaseServer::Python("split"),
        fixed: Fixed::Server(CaseServer::Python("whole")),
        ..PLAIN
    },
    Case {
        name: "node-split",
        truth: "server-nagle-delayed-ack",
        server: CaseServer::Node("split"),
        fixed: Fixed::Server(CaseServer::Node("plain")),
        ..PLAIN
    },
    Case {
        name: "nagle-think",
        truth: "server-nagle-delayed-ack",
        server: CaseServer::Linerate(&["--misbehave", "nagle-split", "--misbehave", "think=exp:20"]),
        fixed: Fixed::Server(CaseServer::Linerate(&["--misbehave", "think=exp:20"])),
        ..PLAIN
    },
    Case {
        name: "client-nagle",
        truth: "client-nagle-delayed-ack",
        flags: &["-X", "POST", "--repeat-unsafe", "--body", "hello", "--writes", "apart"],
        path: "/upper",
        fixed: Fixed::Flags(&["-X", "POST", "--repeat-unsafe", "--body", "hello"]),
        ..PLAIN
    },
    Case {
        name: "tiny-chunks",
        truth: "tiny-writes",
        server: CaseServer::Linerate(&["--misbehave", "tiny-chunks=1"]),
        path: "/bytes/60000",
        fixed: Fixed::Server(CaseServer::Linerate(&[])),
        ..PLAIN
    },
    Case {
        name: "accept-delay",
        truth: "accept-queue",
        server: CaseServer::Linerate(&["--misbehave", "accept-delay=150"]),
        // Four times as many connections as are accepted: with many more, a client far away gets
        // none at all.
        beside: &[BackgroundActivity::Churn(4, 50, 50)],
        fixed: Fixed::Server(CaseServer::Linerate(&[])),
        ..PLAIN
    },
    Case { name: "syn-lost", truth: "syn-loss", net: "--drop up:syn=1/flow", fixed: Fixed::Net, ..PLAIN },
    Case {
        name: "syn-ack-lost",
        truth: "syn-loss",
        net: "--drop down:syn-ack=1/flow",
        fixed: Fixed::Net,
        ..PLAIN
    },
    Case {
        name: "loss-answers",
        truth: "packet-loss",
        rtts: &[40],
        net: "--drop down:data=every:6",
        path: "/bytes/6000",
        never: &["reordering"],
        fixed: Fixed::Net,
        ..PLAIN
    },
    Case {
        name: "loss-requests",
        truth: "packet-loss",
        rtts: &[40],
        net: "--drop up:data=every:4",
        never: &["local-drops"],
        fixed: Fixed::Net,
        ..PLAIN
    },
    // Our own queue has room for three packets.
    Case {
        name: "small-queue-here",
        truth: "local-drops",
        path: "/echo",
        flags: &["-X", "POST", "--repeat-unsafe", "--body", "@BODY"],
        client_qdisc: "tbf rate 10mbit burst 1600 limit 4500",
        // Every call loses segments.
        behind: &["packet-loss", "slow-start"],
        ..PLAIN
    },
    // A tenth of the server's packets come behind later ones: nothing is lost.
    Case {
        name: "reordered",
        truth: "reordering",
        rtts: &[40],
        net: "--reorder down:5%:20ms",
        path: "/bytes/12000",
        never: &["packet-loss"],
        fixed: Fixed::Net,
        ..PLAIN
    },
    Case {
        name: "reordered-request",
        truth: "reordering",
        rtts: &[40],
        net: "--reorder up:10%:30ms",
        path: "/echo",
        flags: UPLOAD,
        never: &["packet-loss"],
        fixed: Fixed::Net,
        ..PLAIN
    },
    // Both: either may cost more.
    Case {
        name: "reordered-and-lost",
        truth: "packet-loss",
        rtts: &[40],
        net: "--reorder down:5%:20ms --drop down:data=every:16",
        path: "/bytes/12000",
        also: &["reordering"],
        behind: &["reordering"],
        fixed: Fixed::Net,
        ..PLAIN
    },
    Case { name: "slow-start", truth: "slow-start", rtts: &[40], path: "/bytes/500000", ..PLAIN },
    Case {
        name: "idle-restart",
        truth: "idle-restart",
        rtts: &[40],
        server_sysctls: &[("net/ipv4/tcp_congestion_control", "reno")],
        path: "/bytes/150000",
        ..PLAIN
    },
    Case {
        name: "zero-window",
        truth: "zero-window",
        server: CaseServer::Linerate(&["--misbehave", "slow-read=400000"]),
        path: "/echo",
        flags: UPLOAD,
        fixed: Fixed::Server(CaseServer::Linerate(&[])),
        ..PLAIN
    },
    Case {
        name: "send-buffer",
        truth: "send-buffer",
        rtts: &[40],
        client_sysctls: &[("net/ipv4/tcp_wmem", "4096 8192 8192")],
        server: CaseServer::Linerate(&["--misbehave", "think=1"]),
        path: "/status/200",
        flags: UPLOAD,
        fixed: Fixed::Sysctls(&[]),
        ..PLAIN
    },
    Case {
        name: "mtu-black-hole",
        truth: "path-mtu",
        net: "--mtu down:1200 --black-hole",
        path: "/bytes/3000",
        fixed: Fixed::Net,
        ..PLAIN
    },
    Case {
        name: "bufferbloat",
        truth: "bufferbloat",
        net: "--rate down:10mbit --queue down:256kB",
        // BBR, which some machines have as their default, keeps queues short.
        server_sysctls: &[("net/ipv4/tcp_congestion_control", "reno")],
        beside: &[BackgroundActivity::Load("/bytes/50000000 -c 1")],
        fixed: Fixed::Alone,
        ..PLAIN
    },
    Case {
        name: "ports-used-before",
        truth: "time-wait-collision",
        // So that it is decided by sequence numbers alone whether a SYN is new.
        client_sysctls: &[("net/ipv4/tcp_timestamps", "0"), ("net/ipv4/ip_local_port_range", "40000 42047")],
        beside: &[BackgroundActivity::Collide(40_000, 42_047)],
        fixed: Fixed::Alone,
        ..PLAIN
    },
    Case {
        name: "ports-exhausted",
        truth: "ports-exhausted",
        client_sysctls: &[("net/ipv4/ip_local_port_range", "40000 40007")],
        beside: &[BackgroundActivity::Hold(8)],
        fixed: Fixed::Alone,
        ..PLAIN
    },
    Case {
        name: "idle-close",
        truth: "keep-alive-race",
        rtts: &[40],
        server: CaseServer::Linerate(&["--misbehave", "idle-close=30"]),
        fixed: Fixed::Server(CaseServer::Linerate(&[])),
        ..PLAIN
    },
    Case {
        name: "forgotten-in-silence",
        truth: "idle-forgotten",
        server_rules: FORGETS[0],
        server_sysctls: FORGETS_SOON,
        flags: IDLE_LONG,
        ..PLAIN
    },
    Case {
        name: "forgotten-and-reset",
        truth: "idle-forgotten",
        server_rules: FORGETS[1],
        server_sysctls: FORGETS_SOON,
        flags: IDLE_LONG,
        ..PLAIN
    },
    Case {
        name: "dns-slow",
        truth: "dns-slow",
        name_server: Some(CaseNameServer { delay_ms: 300, ..NAMES }),
        fixed: Fixed::Names,
        ..PLAIN
    },
    Case {
        name: "dns-timeout",
        truth: "dns-timeout",
        name_server: Some(CaseNameServer { dead_before: true, ..NAMES }),
        fixed: Fixed::Names,
        ..PLAIN
    },
    // The resolver waits for a reply that never comes, though it has the other one.
    Case {
        name: "dns-mute-v6",
        truth: "dns-timeout",
        rtts: &[0],
        name_server: Some(CaseNameServer { mute_v6: true, ..NAMES }),
        fixed: Fixed::Names,
        ..PLAIN
    },
    Case {
        name: "ipv6-dead",
        truth: "ipv6-fallback",
        net: "--drop ipv6=all",
        name_server: Some(CaseNameServer { v6: true, ..NAMES }),
        fixed: Fixed::Names,
        ..PLAIN
    },
];
