//! The engine's way of a request and its response, over a transport in memory.

use std::time::Duration;

use linerate_load::plan::{Expectation, Plan, Stop, Target};
use linerate_net::Time;
use linerate_net::mem::{Mem, Peer, PeerActions, PeerConn};

use crate::scenario::WorkUnit;

pub(super) const SCENARIOS: &[WorkUnit] = &[
    WorkUnit { name: "keep_alive", about: "one request in flight", run: |n| answered(n, |_| {}) },
    WorkUnit { name: "pipelined", about: "16 requests in flight", run: |n| answered(n, |p| p.depth = 16) },
    WorkUnit {
        name: "pipelined_checked",
        about: "16 requests in flight, with a text in the body",
        run: |n| answered(n, |p| (p.depth, p.requests[0].expect) = (16, expected())),
    },
    WorkUnit {
        name: "short",
        about: "a request on a connection of its own",
        run: |n| answered(n, |p| p.per_connection = Some(1)),
    },
];

const RESPONSE: &str =
    "HTTP/1.1 200 OK\r\nContent-Length: 14\r\nContent-Type: text/plain\r\n\r\nHello, World!\n";

fn expected() -> Expectation {
    Expectation { status: Vec::new(), body: Some("World".to_owned()), ..Default::default() }
}

/// Answers each request that has come whole.
struct MemoryServer;

impl Peer for MemoryServer {
    fn received(&mut self, _: Time, conn: PeerConn, bytes: &[u8], out: &mut PeerActions) {
        // Requests are sent whole and received whole.
        let requests = bytes.iter().filter(|b| **b == b'\n').count() / lines(bytes);
        out.send(conn, RESPONSE.repeat(requests));
        if bytes.ends_with(b"close\r\n\r\n") {
            out.close(conn);
        }
    }
}

/// Lines of one request.
fn lines(bytes: &[u8]) -> usize {
    let end = bytes.windows(4).position(|w| w == b"\r\n\r\n").map_or(bytes.len(), |at| at + 4);
    bytes[..end].iter().filter(|b| **b == b'\n').count()
}

fn answered(n: u64, change: fn(&mut Plan)) {
    let at = "10.0.0.1:80".parse().unwrap_or_else(|e| panic!("{e}"));
    let target = Target { url: "http://test/".into(), authority: "test".into(), addresses: vec![at] };
    let stop = Stop { requests: Some(n), duration: None };
    let timeout = Duration::from_secs(3600);
    let mut plan = Plan { connections: 1, stop, seed: 7, timeout, ..Plan::get(target, "/") };
    change(&mut plan);
    let mut mem = Mem::default();
    mem.serve(at, MemoryServer).unwrap_or_else(|e| panic!("{e}"));
    let outcome = linerate_load::run_on(&plan, mem).unwrap_or_else(|e| panic!("{e}"));
    assert_eq!(outcome.requests.answered, n, "{:?}", outcome.failures);
}
