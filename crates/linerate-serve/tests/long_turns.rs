//! Handlers that wait while a turn of the loop takes long, in virtual time: reading each request takes a tenth of a millisecond.
#![allow(clippy::unwrap_used)]

use std::io;
use std::net::SocketAddr;
use std::ops::Range;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use linerate_net::mem::{Mem, MemOptions, Peer, PeerActions, PeerConn};
use linerate_net::{
    After, Close, Conn, ConnectOptions, Data, Event, Lent, ListenOptions, Listener, NetError, TcpInfo, Time,
    Transport, Waker,
};
use linerate_serve::{Limits, Request, Response, Server, Wall, sleep};

const READING: Duration = Duration::from_micros(100);

/// The network in memory, whose time also passes while we work.
struct Slow {
    mem: Mem,
    /// How far the work has brought us beyond the network's time.
    ahead: Duration,
}

impl Transport for Slow {
    fn now(&mut self) -> Time {
        self.mem.now() + self.ahead
    }

    fn turn(&mut self, until: Option<Time>, events: &mut Vec<Event>) -> io::Result<()> {
        let ahead = self.ahead.as_nanos() as u64;
        let until = until.map(|until| Time::from_nanos(until.as_nanos().saturating_sub(ahead)));
        self.mem.turn(until, events)
    }

    fn receive(&mut self, data: Data, take: impl FnMut(&mut [u8])) -> After {
        self.ahead += READING;
        self.mem.receive(data, take)
    }

    fn listen(&mut self, at: SocketAddr, o: &ListenOptions) -> Result<(Listener, SocketAddr), NetError> {
        self.mem.listen(at, o)
    }

    fn unlisten(&mut self, listener: Listener) {
        self.mem.unlisten(listener);
    }

    fn connect(&mut self, to: SocketAddr, options: &ConnectOptions) -> Result<Conn, NetError> {
        self.mem.connect(to, options)
    }

    fn send(&mut self, conn: Conn, bytes: &[u8]) -> Result<(), NetError> {
        self.mem.send(conn, bytes)
    }

    fn lend(&mut self, bytes: Arc<[u8]>) -> Lent {
        self.mem.lend(bytes)
    }

    fn send_lent(&mut self, conn: Conn, lent: Lent, range: Range<usize>) -> Result<(), NetError> {
        self.mem.send_lent(conn, lent, range)
    }

    fn unsent(&self, conn: Conn) -> usize {
        self.mem.unsent(conn)
    }

    fn pause(&mut self, conn: Conn) {
        self.mem.pause(conn);
    }

    fn resume(&mut self, conn: Conn) {
        self.mem.resume(conn);
    }

    fn set_low_water(&mut self, conn: Conn, bytes: usize) {
        self.mem.set_low_water(conn, bytes);
    }

    fn close(&mut self, conn: Conn, how: Close) {
        self.mem.close(conn, how);
    }

    fn info(&mut self, conn: Conn) -> Option<TcpInfo> {
        self.mem.info(conn)
    }

    fn waker(&self) -> Waker {
        self.mem.waker()
    }

    fn name(&self) -> &'static str {
        "slow"
    }
}

struct Asks;

impl Peer for Asks {
    fn connected(&mut self, _: Time, conn: PeerConn, out: &mut PeerActions) {
        // When all are connected.
        out.send_after(Duration::from_millis(1), conn, "GET / HTTP/1.1\r\nHost: h\r\n\r\n");
    }

    fn received(&mut self, _: Time, _: PeerConn, _: &[u8], _: &mut PeerActions) {}
}

/// What handlers did, in order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Did {
    Began,
    Slept,
}

/// So many requests at once; each handler sleeps for so long. What they did, and how many began in the longest turn.
fn asked_at_once(requests: usize, for_us: u64) -> (Vec<Did>, usize) {
    let did = Arc::new(Mutex::new(Vec::new()));
    let log = Arc::clone(&did);
    let handler = move |_: Request| {
        let log = Arc::clone(&log);
        async move {
            log.lock().unwrap().push(Did::Began);
            sleep(Duration::from_micros(for_us)).await;
            log.lock().unwrap().push(Did::Slept);
            Response::text("done")
        }
    };
    let slow = Slow { mem: Mem::new(MemOptions::default()).unwrap(), ahead: Duration::ZERO };
    let mut server = Server::new(slow, handler, Limits::default()).with_wall(Wall::Virtual(784_111_777));
    let at = "10.0.0.1:80".parse().unwrap();
    server.listen(at, &ListenOptions::default()).unwrap();
    for _ in 0..requests {
        server.transport().mem.dial(at, Asks);
    }
    let (mut at_once, mut began) = (0, 0);
    for _ in 0..1000 {
        server.turn(Some(Time::from_nanos(1_000_000_000))).unwrap();
        let now = did.lock().unwrap().iter().filter(|d| **d == Did::Began).count();
        at_once = at_once.max(now - began);
        began = now;
        if server.counts().by_status.get(&200) == Some(&(requests as u64)) {
            break;
        }
    }
    (Arc::try_unwrap(did).map_or_else(|d| d.lock().unwrap().clone(), |d| d.into_inner().unwrap()), at_once)
}

#[test]
fn what_falls_due_goes_on_before_the_last_request_of_a_turn_is_read() {
    // Reading all takes 20 ms, each sleep 4: the first are over when a fifth is read.
    let (did, at_once) = asked_at_once(200, 4_000);
    assert!(at_once >= 199, "otherwise this tests nothing");
    assert_eq!(did.len(), 400);
    let first = did.iter().position(|d| *d == Did::Slept).unwrap();
    assert!((40..=80).contains(&first), "after {first} requests were read");
}

#[test]
fn a_sleep_counts_from_when_the_request_was_there() {
    // The last of 100 is read after 10 ms, and its sleep of 12 is over 2 later, with those of all the others.
    let (did, at_once) = asked_at_once(100, 12_000);
    assert!(at_once >= 99, "otherwise this tests nothing");
    assert_eq!(did.iter().position(|d| *d == Did::Slept), Some(100));
}
