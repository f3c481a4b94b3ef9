//! The server's way of a request, over a transport in memory.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use bytes::Bytes;
use linerate_net::mem::{Mem, Peer, PeerActions, PeerConn};
use linerate_net::{ListenOptions, Time};
use linerate_serve::{
    Content, Counts, Handler, Limits, Request, Response, Routes, Server, SharedContent, SitePlan,
};

use crate::scenario::WorkUnit;

pub(super) const SCENARIOS: &[WorkUnit] = &[
    WorkUnit { name: "keep_alive", about: "a request on an open connection", run: |n| answered(n, 1, false) },
    WorkUnit {
        name: "pipelined",
        about: "a request of 16 that came together",
        run: |n| answered(n, 16, false),
    },
    WorkUnit {
        name: "keep_alive_measured",
        about: "a request on an open connection, for metrics",
        run: |n| answered(n, 1, true),
    },
    WorkUnit {
        name: "pipelined_measured",
        about: "a request of 16 that came together, for metrics",
        run: |n| answered(n, 16, true),
    },
    WorkUnit {
        name: "routes_keep_alive",
        about: "a request on an open connection, by the built-in routes",
        run: |n| routed(n, 1),
    },
    WorkUnit {
        name: "routes_pipelined",
        about: "a request of 16 that came together, by the built-in routes",
        run: |n| routed(n, 16),
    },
];

const REQUEST: &str = "GET / HTTP/1.1\r\nHost: 10.0.0.1\r\nUser-Agent: test\r\nAccept: */*\r\n\r\n";

/// Sends the next requests once all responses to the last ones have arrived.
struct MemoryClient {
    batch: usize,
    length: u64,
    received: Arc<AtomicU64>,
}

impl Peer for MemoryClient {
    fn connected(&mut self, _: Time, conn: PeerConn, out: &mut PeerActions) {
        out.send(conn, REQUEST.repeat(self.batch));
    }

    fn received(&mut self, _: Time, conn: PeerConn, bytes: &[u8], out: &mut PeerActions) {
        let all = self.received.fetch_add(bytes.len() as u64, Ordering::Relaxed) + bytes.len() as u64;
        // Every response is as long as the first.
        if self.length == 0 {
            self.length = all / self.batch as u64;
        }
        if all.is_multiple_of(self.length * self.batch as u64) {
            out.send(conn, REQUEST.repeat(self.batch));
        }
    }
}

fn answered(n: u64, batch: usize, measured: bool) {
    let handler = |request: Request| async move {
        match request.path() {
            "/" => Response::text(Bytes::from_static(b"Hello, World!\n")),
            _ => Response::status(404),
        }
    };
    run(n, batch, measured, handler);
}

/// As `linerate serve` responds without options.
fn routed(n: u64, batch: usize) {
    let routes = Routes::new(Arc::new(Counts::default));
    let site = SitePlan::new(routes, SharedContent::new(Content::default())).site();
    run(n, batch, false, move |request: Request| site.clone().answer(request));
}

fn run(n: u64, batch: usize, measured: bool, handler: impl Handler) {
    let at = "10.0.0.1:80".parse().unwrap_or_else(|e| panic!("{e}"));
    let mut mem = Mem::default();
    let received: Arc<AtomicU64> = Arc::default();
    mem.dial(at, MemoryClient { batch, length: 0, received: Arc::clone(&received) });
    let mut server = Server::new(mem, handler, Limits::default()).with_measure(measured);
    server.listen(at, &ListenOptions::default()).unwrap_or_else(|e| panic!("{e}"));
    while server.counts().requests < n {
        for _ in 0..64 {
            server.turn(None).unwrap_or_else(|e| panic!("{e}"));
        }
    }
    assert!(received.load(Ordering::Relaxed) > n);
}
