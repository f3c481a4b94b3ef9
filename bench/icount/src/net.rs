//! User-space TCP: both ends of each connection, over a link in plain memory.

use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::time::Duration;

use linerate_net::link::sim::{Sim, SimEnd, SimOptions};
use linerate_net::link::{Checksums, Link};
use linerate_net::stack::{Stack, StackOptions};
use linerate_net::{Close, Conn, ConnectOptions, Event, ListenOptions, Time, Transport, Waker};

use crate::scenario::WorkUnit;

const IP: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);
const CONNECTIONS: usize = 1000;
const REQUEST: [u8; 100] = [1; 100];
const RESPONSE: [u8; 600] = [2; 600];
/// Frames of the link, and bytes of each.
const FRAMES: usize = 4096;
const FRAME: usize = 2048;
/// How far the time advances in each turn.
const TURN: Duration = Duration::from_micros(100);

pub(super) const SCENARIOS: &[WorkUnit] = &[
    WorkUnit {
        name: "keep_alive",
        about: "a request and its response on 1000 open connections",
        run: keep_alive,
    },
    WorkUnit { name: "short", about: "a connection with one request, opened and closed", run: short },
];

/// Returns every packet to its sender.
struct Loopback {
    now: Time,
    frames: Vec<u8>,
    lens: [usize; FRAMES],
    first: usize,
    count: usize,
    /// Lends its waker.
    sim: SimEnd,
}

impl Link for Loopback {
    fn now(&mut self) -> Time {
        self.now
    }

    fn receive(&mut self, max: usize, mut take: impl FnMut(&mut [u8])) -> usize {
        let count = max.min(self.count);
        for _ in 0..count {
            let at = self.first * FRAME;
            take(&mut self.frames[at..at + self.lens[self.first]]);
            self.first = (self.first + 1) % FRAMES;
        }
        self.count -= count;
        count
    }

    fn transmit(&mut self, _to: IpAddr, len: usize, fill: impl FnOnce(&mut [u8])) -> bool {
        if self.count == FRAMES {
            return false;
        }
        let slot = (self.first + self.count) % FRAMES;
        self.lens[slot] = len;
        fill(&mut self.frames[slot * FRAME..slot * FRAME + len]);
        self.count += 1;
        true
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }

    fn wait(&mut self, _until: Option<Time>) -> io::Result<bool> {
        self.now = self.now + TURN;
        Ok(false)
    }

    fn waker(&self) -> Waker {
        self.sim.waker()
    }

    fn mtu(&mut self, _to: IpAddr) -> usize {
        1500
    }

    fn checksums(&self) -> Checksums {
        Checksums::Full
    }
}

fn stack() -> (Stack<Loopback>, SocketAddr) {
    let sim = Sim::alone(SimOptions::default()).expect("a descriptor");
    let now = Time::from_nanos(1_000_000_000);
    let link = Loopback { now, frames: vec![0; FRAMES * FRAME], lens: [0; FRAMES], first: 0, count: 0, sim };
    let mut net =
        Stack::new(link, StackOptions { addresses: vec![IP], seed: Some(1), ..StackOptions::default() });
    let (_, at) = net.listen(SocketAddr::new(IP, 80), &ListenOptions::default()).expect("can listen");
    (net, at)
}

/// Runs turns until `done`. `handle` gets each connection with the bytes it received.
fn turns(net: &mut Stack<Loopback>, mut handle: impl FnMut(&mut Stack<Loopback>, Conn, usize) -> bool) {
    let mut events = Vec::new();
    let mut on = true;
    while on {
        net.turn(None, &mut events).expect("a turn");
        for event in events.drain(..) {
            let Event::Readable { conn, data } = event else { continue };
            let mut len = 0;
            net.receive(data, |piece| len += piece.len());
            on &= handle(net, conn, len);
        }
    }
}

fn keep_alive(n: u64) {
    let (mut net, at) = stack();
    for _ in 0..CONNECTIONS {
        let conn = net.connect(at, &ConnectOptions::default()).expect("can connect");
        net.send(conn, &REQUEST).expect("can send");
    }
    let mut answered = 0;
    turns(&mut net, |net, conn, len| {
        let bytes = if len == REQUEST.len() { &RESPONSE[..] } else { &REQUEST[..] };
        answered += u64::from(len != REQUEST.len());
        net.send(conn, bytes).expect("can send");
        answered < n
    });
}

fn short(n: u64) {
    let (mut net, at) = stack();
    let open = |net: &mut Stack<Loopback>| {
        let conn = net.connect(at, &ConnectOptions::default()).expect("can connect");
        net.send(conn, &REQUEST).expect("can send");
    };
    (0..64).for_each(|_| open(&mut net));
    let mut answered = 0;
    turns(&mut net, |net, conn, len| {
        if len == REQUEST.len() {
            net.send(conn, &RESPONSE).expect("can send");
            net.close(conn, Close::Now);
        } else if len == RESPONSE.len() {
            answered += 1;
            net.close(conn, Close::Now);
            open(net);
        }
        answered < n
    });
}
