//! Clients in memory and in virtual time, and the server that they talk to.
#![allow(clippy::unwrap_used)]
#![allow(dead_code, reason = "each test program uses its part")]

use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use linerate_net::mem::{Mem, MemOptions, Peer, PeerActions, PeerConn};
use linerate_net::{ListenOptions, Time, Transport};
use linerate_serve::{Handler, Limits, Server, Wall};

/// What a client saw.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Seen {
    pub(crate) text: String,
    /// When each piece came, in milliseconds.
    pub(crate) times: Vec<u64>,
    pub(crate) ended: bool,
    pub(crate) reset: bool,
}

impl Seen {
    pub(crate) fn codes(&self) -> Vec<&str> {
        self.text.match_indices("HTTP/1.1 ").map(|(at, _)| &self.text[at + 9..at + 12]).collect()
    }
}

/// A client that says its pieces at their times (in milliseconds), and may be slow to read.
#[derive(Clone, Default)]
pub(crate) struct Client {
    pub(crate) pieces: Vec<(u64, Vec<u8>)>,
    pub(crate) fin: bool,
    /// Sends its FIN and still reads.
    pub(crate) half_closes: bool,
    pub(crate) resets: bool,
    /// Reads a piece, then nothing for so long.
    pub(crate) reads_every: Option<Duration>,
    pub(crate) seen: Arc<Mutex<Seen>>,
}

impl Client {
    pub(crate) fn saying(text: impl AsRef<[u8]>) -> Client {
        Client { pieces: vec![(0, text.as_ref().to_vec())], ..Client::default() }
    }

    pub(crate) fn then(mut self, at_ms: u64, text: impl AsRef<[u8]>) -> Client {
        self.pieces.push((at_ms, text.as_ref().to_vec()));
        self
    }

    pub(crate) fn fin(self) -> Client {
        Client { fin: true, ..self }
    }

    pub(crate) fn seen(&self) -> Seen {
        self.seen.lock().unwrap().clone()
    }
}

impl Peer for Client {
    fn connected(&mut self, _: Time, conn: PeerConn, out: &mut PeerActions) {
        let mut last = 0;
        for (at, bytes) in self.pieces.drain(..) {
            last = at;
            out.send_after(Duration::from_millis(at), conn, bytes);
        }
        if self.resets {
            out.reset_after(Duration::ZERO, conn);
        }
        if self.half_closes {
            out.end_after(Duration::from_millis(last + 1), conn);
        }
        if self.fin {
            // Behind the last piece, whichever of two things at the same time comes first.
            out.close_after(Duration::from_millis(last + u64::from(last > 0)), conn);
        }
    }

    fn received(&mut self, now: Time, conn: PeerConn, bytes: &[u8], out: &mut PeerActions) {
        let mut seen = self.seen.lock().unwrap();
        seen.text.push_str(&String::from_utf8_lossy(bytes));
        seen.times.push(now.as_nanos() / 1_000_000);
        if let Some(pause) = self.reads_every {
            out.pause(conn);
            out.resume_after(pause, conn);
        }
    }

    fn ended(&mut self, _: Time, conn: PeerConn, out: &mut PeerActions) {
        self.seen.lock().unwrap().ended = true;
        out.close(conn);
    }

    fn failed(&mut self, _: Time, _: PeerConn, _: &mut PeerActions) {
        self.seen.lock().unwrap().reset = true;
    }
}

/// Where the server listens.
pub(crate) fn at() -> SocketAddr {
    "10.0.0.1:80".parse().unwrap()
}

/// A server with this handler.
pub(crate) fn server<H: Handler>(options: MemOptions, handler: H, limits: Limits) -> Server<Mem, H> {
    let mem = Mem::new(options).unwrap();
    let mut server = Server::new(mem, handler, limits).with_wall(Wall::Virtual(784_111_777));
    server.listen(at(), &ListenOptions::default()).unwrap();
    server
}

/// Runs for so long, in virtual time.
pub(crate) fn run<H: Handler>(server: &mut Server<Mem, H>, ms: u64) {
    let until = server.transport().now() + Duration::from_millis(ms);
    while server.transport().now() < until {
        server.turn(Some(until)).unwrap();
    }
}

/// A request without a body.
pub(crate) fn get(path: &str) -> String {
    format!("GET {path} HTTP/1.1\r\nHost: h\r\n\r\n")
}
