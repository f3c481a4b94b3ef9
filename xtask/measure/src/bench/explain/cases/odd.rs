//! Faults that were once missed, and oddities that were once taken for a fault.

use crate::bench::explain::case::{Case, CaseNameServer, CaseServer, Fixed, NAMES, PLAIN};

pub(super) static CASES: &[Case] = &[
    Case { name: "cold-start", truth: "cold-start", server: CaseServer::Odd("cold"), cold: true, ..PLAIN },
    Case { name: "late-close", truth: "late-close", server: CaseServer::Odd("late-close"), ..PLAIN },
    Case {
        name: "cork",
        truth: "cork",
        server: CaseServer::Odd("cork"),
        fixed: Fixed::Server(CaseServer::Odd("plain")),
        ..PLAIN
    },
    Case {
        name: "small-send-buffer",
        truth: "server-send-buffer",
        rtts: &[40],
        server: CaseServer::Odd("sndbuf"),
        server_sysctls: &[("net/ipv4/tcp_congestion_control", "reno")],
        // While the connection is new, the window is small as well.
        also: &["slow-start", "idle-restart"],
        ..PLAIN
    },
    Case {
        name: "first-address-dead",
        truth: "dead-address",
        name_server: Some(CaseNameServer { dead_first: true, ..NAMES }),
        fixed: Fixed::Names,
        ..PLAIN
    },
    // Two of a hundred segments are lost, and calls are small: hardly one meets it, and it is not
    // ruled out.
    Case {
        name: "loss-small",
        alike: true,
        rtts: &[40],
        net: "--loss 2%",
        also: &["packet-loss", "syn-loss"],
        open: &["packet-loss"],
        never: &["reordering"],
        ..PLAIN
    },
    // It hangs while its workers boot; 43 bytes meet no limit of the path.
    Case {
        name: "boots",
        alike: true,
        cold: true,
        server: CaseServer::Odd("boots"),
        also: &["cold-start"],
        never: &["path-mtu", "accept-queue", "connection-limit"],
        ..PLAIN
    },
    // The accept queue of another program on the server's machine runs over.
    Case {
        name: "queue-of-another",
        alike: true,
        server: CaseServer::Odd("overflow"),
        never: &["accept-queue"],
        ..PLAIN
    },
    // One connection of many is slow.
    Case {
        name: "one-slow-connection",
        alike: true,
        server: CaseServer::Odd("one-slow"),
        never: &["pinned-to-busy-worker"],
        ..PLAIN
    },
    // Opening connections costs some microseconds each: a note.
    Case {
        name: "trifle",
        alike: true,
        rtts: &[0],
        server: CaseServer::Linerate(&["--misbehave", "no-keep-alive"]),
        never: &["no-keep-alive"],
        ..PLAIN
    },
];
