//! The memory cost of a connection by its state, with every allocation counted, excluding the bytes
//! it buffers.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::time::Duration;

use allocation_counter::measure;

use super::lab::{Lab, OURS, seg};
use super::{Stack, StackLimits, StackOptions};
use crate::link::sim::{Sim, SimEnd, SimOptions};
use crate::{After, Close, Conn, ConnectOptions, Event, ListenOptions, Transport};

/// Number of connections kept open.
const CONNECTIONS: usize = 100_000;
/// Connections opened, used and closed at a time, so that packets in flight take little memory.
const AT_ONCE: usize = 1000;
const HOST: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);
/// One source address does not have enough ports towards one port.
const SERVED: [u16; 2] = [80, 81];
const REQUEST: [u8; 100] = [1; 100];
const ANSWER: [u8; 600] = [2; 600];

/// Both ends of all connections, in one stack.
struct Ends {
    net: Stack<SimEnd>,
    clients: Vec<Conn>,
    servers: Vec<Conn>,
    events: Vec<Event>,
    /// Bytes received.
    got: usize,
    ended: usize,
}

impl Ends {
    fn new() -> Ends {
        let stack = StackLimits { time_wait: 2 * CONNECTIONS as u32, ..StackLimits::default() };
        let options = StackOptions { addresses: vec![HOST], seed: Some(1), stack, ..StackOptions::default() };
        let mut net = Stack::new(Sim::alone(SimOptions::default()).expect("a descriptor"), options);
        for port in SERVED {
            net.listen(SocketAddr::new(HOST, port), &ListenOptions::default()).expect("can listen");
        }
        let (clients, servers) = (Vec::with_capacity(CONNECTIONS), Vec::with_capacity(CONNECTIONS));
        Ends { net, clients, servers, events: Vec::with_capacity(4 * AT_ONCE), got: 0, ended: 0 }
    }

    /// Runs turns until `done`, or until no event can happen any more.
    fn go_on(&mut self, done: impl Fn(&Ends) -> bool) {
        let patience = self.net.now() + Duration::from_secs(5);
        while !done(self) {
            let now = self.net.now();
            assert!(now < patience, "nothing goes on: {:?}", self.net.stats());
            let mut events = std::mem::take(&mut self.events);
            self.net.turn(Some(now + Duration::from_millis(1)), &mut events).expect("a turn");
            for event in events.drain(..) {
                match event {
                    Event::Accepted { conn, .. } => self.servers.push(conn),
                    Event::Connected { .. } | Event::Drained { .. } | Event::Woken => {}
                    Event::Readable { data, .. } => {
                        let got = &mut self.got;
                        let after = self.net.receive(data, |piece| *got += piece.len());
                        self.ended += usize::from(after == After::Ended);
                    }
                    Event::Failed { error, .. } => panic!("{error}"),
                }
            }
            self.events = events;
        }
    }

    fn open(&mut self) {
        while self.clients.len() < CONNECTIONS {
            for n in 0..AT_ONCE {
                let to = SocketAddr::new(HOST, SERVED[n % SERVED.len()]);
                let conn = self.net.connect(to, &ConnectOptions::default()).expect("there are ports");
                self.clients.push(conn);
            }
            self.go_on(|ends| ends.servers.len() == ends.clients.len());
        }
    }

    /// Each connection carries a request and a response.
    fn exchange(&mut self) {
        for first in (0..CONNECTIONS).step_by(AT_ONCE) {
            for (conns, bytes) in [(&self.clients, &REQUEST[..]), (&self.servers, &ANSWER)] {
                for conn in &conns[first..first + AT_ONCE] {
                    self.net.send(*conn, bytes).expect("can send");
                }
            }
            let all = (first + AT_ONCE) * (REQUEST.len() + ANSWER.len());
            self.go_on(|ends| ends.got == all);
        }
        self.got = 0;
        // Until the last ACKs have arrived, so that nothing is buffered.
        self.rest(Duration::from_secs(1));
    }

    fn close(&mut self) {
        self.ended = 0;
        for first in (0..CONNECTIONS).step_by(AT_ONCE) {
            for conn in &self.servers[first..first + AT_ONCE] {
                self.net.close(*conn, Close::Now);
            }
            self.go_on(|ends| ends.ended == first + AT_ONCE);
            for conn in &self.clients[first..first + AT_ONCE] {
                self.net.close(*conn, Close::Now);
            }
            self.go_on(|ends| ends.net.unfinished() == 2 * (CONNECTIONS - first - AT_ONCE));
        }
        self.clients.clear();
        self.servers.clear();
    }

    /// Lets time pass without new work.
    fn rest(&mut self, time: Duration) {
        let until = self.net.now() + time;
        while self.net.now() < until {
            self.net.turn(Some(until), &mut self.events).expect("a turn");
            assert!(self.events.is_empty(), "all is quiet");
        }
    }
}

/// Bytes that `what` leaves allocated, per connection.
fn left(count: usize, what: impl FnOnce()) -> f64 {
    measure(what).bytes_current as f64 / count as f64
}

fn at_most(most: f64, state: &str, bytes: f64) {
    println!("{state}: {bytes:.0} bytes each");
    assert!(bytes <= most, "{state}: {bytes:.0} bytes each, at most {most}");
}

/// Both ends of a hundred thousand connections, each of which carried a request and a response and
/// is idle; then their TIME_WAIT entries. Repeating it must not need more memory.
#[test]
fn a_hundred_thousand_connections() {
    let flows = 2 * CONNECTIONS;
    let mut ends = Ends::new();
    let open = left(flows, || ends.open());
    assert_eq!(ends.net.unfinished(), flows);
    at_most(1024.0, "an open connection", open);
    let asked = left(flows, || ends.exchange());
    at_most(1024.0, "one that was asked once, with blocks to spare", open + asked);
    let over = left(CONNECTIONS, || ends.close());
    assert_eq!(ends.net.waiting(), (0, CONNECTIONS));
    at_most(160.0, "one in TIME_WAIT, more", over);
    let round = |ends: &mut Ends| {
        ends.rest(Duration::from_secs(61));
        assert_eq!((ends.net.waiting(), ends.net.unfinished()), ((0, 0), 0));
        ends.open();
        ends.exchange();
        ends.close();
    };
    // In the first rounds, the lists grow to their size.
    round(&mut ends);
    round(&mut ends);
    at_most(1.0, "the same again, more", left(CONNECTIONS, || round(&mut ends)));
    let stats = ends.net.stats();
    assert_eq!((stats.active_opens, stats.passive_opens), (4 * CONNECTIONS as u64, 4 * CONNECTIONS as u64));
    assert_eq!((stats.failed_opens, stats.resets_in, stats.time_waits_cut), (0, 0, 0));
}

#[test]
fn a_handshake_under_way() {
    const HANDSHAKES: usize = 60_000;
    let mut lab = Lab::listening();
    let options = ListenOptions { backlog: 1 << 16, ..ListenOptions::default() };
    lab.port = 81;
    lab.net.listen(SocketAddr::new(OURS, 81), &options).expect("can listen");
    let bytes = left(HANDSHAKES, || {
        for port in 0..HANDSHAKES {
            lab.peer_port = port as u16 + 1;
            lab.hears(seg("S", 0, 0, 0));
            lab.drop_out();
        }
    });
    assert_eq!(lab.net.waiting(), (HANDSHAKES, 0));
    at_most(256.0, "a handshake under way", bytes);
}
