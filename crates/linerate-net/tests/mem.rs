//! The transport in memory: scripted peers, faults, virtual time.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use linerate_net::mem::{Accept, Cut, Mem, MemOptions, Peer, PeerActions, PeerConn};
use linerate_net::{
    After, Close, Conn, ConnectOptions, Event, ListenOptions, NetError, NetErrorKind, Time, Transport,
};

const LATENCY: Duration = Duration::from_millis(10);

fn at() -> SocketAddr {
    SocketAddr::from(([10, 0, 0, 1], 80))
}

/// An event on the application's side, with its time in milliseconds.
#[derive(Debug, PartialEq)]
enum Seen {
    Connected(u64),
    Bytes(u64, Vec<u8>),
    Ended(u64),
    Failed(u64, NetErrorKind),
}

fn ms(time: Time) -> u64 {
    time.as_nanos() / 1_000_000
}

/// Runs turns until no more events come within `limit`.
fn run(net: &mut Mem, limit: Duration) -> Vec<Seen> {
    let end = net.now() + limit;
    let (mut seen, mut events) = (Vec::new(), Vec::new());
    while net.now() < end {
        net.turn(Some(end), &mut events).expect("a turn");
        let now = ms(net.now());
        for event in events.drain(..) {
            match event {
                Event::Connected { at, .. } => seen.push(Seen::Connected(ms(at))),
                Event::Failed { error, .. } => seen.push(Seen::Failed(now, error.kind)),
                Event::Readable { data, .. } => {
                    let mut bytes = Vec::new();
                    let after = net.receive(data, |piece| bytes.extend_from_slice(piece));
                    if !bytes.is_empty() {
                        seen.push(Seen::Bytes(now, bytes));
                    }
                    match after {
                        After::Ended => seen.push(Seen::Ended(now)),
                        After::Failed(error) => seen.push(Seen::Failed(now, error.kind)),
                        After::Open | After::Gone => {}
                    }
                }
                _ => {}
            }
        }
    }
    seen
}

fn connect(net: &mut Mem) -> Result<Conn, NetError> {
    net.connect(at(), &ConnectOptions::default())
}

fn with_latency() -> Mem {
    Mem::new(MemOptions { latency: LATENCY, ..MemOptions::default() }).expect("mem")
}

#[test]
fn time_is_virtual_and_exact() {
    let mut net = with_latency();
    // Waits 5 ms, responds, and closes 1 s later.
    let peer = |_now: Time, conn: PeerConn, bytes: &[u8], out: &mut PeerActions| {
        out.send_after(Duration::from_millis(5), conn, [b"re: ", bytes].concat());
        out.close_after(Duration::from_secs(1), conn);
    };
    net.serve(at(), peer).expect("a free address");
    let conn = connect(&mut net).expect("asked for");
    net.send(conn, b"hello").expect("can send");
    let start = Instant::now();
    let seen = run(&mut net, Duration::from_secs(3600));
    // The handshake takes one round trip. The request then takes one way more.
    let expected = [Seen::Connected(20), Seen::Bytes(45, b"re: hello".to_vec()), Seen::Ended(1040)];
    assert_eq!(seen, expected);
    assert_eq!(net.now(), Time::ZERO + Duration::from_secs(3600));
    assert!(start.elapsed() < Duration::from_secs(60), "an hour takes no hour");
}

struct Moody(Vec<Accept>);

impl Peer for Moody {
    fn accept(&mut self, _now: Time) -> Accept {
        self.0.remove(0)
    }

    fn received(&mut self, _: Time, _: PeerConn, _: &[u8], _: &mut PeerActions) {}
}

#[test]
fn a_peer_may_accept_late_or_refuse_or_say_nothing() {
    let late = Accept::After(Duration::from_millis(100));
    let mut net = with_latency();
    net.serve(at(), Moody(vec![late, Accept::Refuse, Accept::Ignore])).expect("a free address");
    connect(&mut net).expect("asked for");
    assert_eq!(run(&mut net, Duration::from_secs(1)), [Seen::Connected(120)]);
    let refused = connect(&mut net).expect("asked for");
    assert_eq!(run(&mut net, Duration::from_secs(1)), [Seen::Failed(1020, NetErrorKind::Refused)]);
    net.close(refused, Close::Now);
    let ignored = connect(&mut net).expect("asked for");
    assert_eq!(run(&mut net, Duration::from_secs(100)), []);
    net.close(ignored, Close::Now);
}

struct Lifelong(Arc<Mutex<Vec<String>>>);

impl Lifelong {
    fn note(&self, now: Time, what: &str) {
        self.0.lock().expect("no panic").push(format!("{} {what}", ms(now)));
    }
}

impl Peer for Lifelong {
    fn connected(&mut self, now: Time, conn: PeerConn, out: &mut PeerActions) {
        self.note(now, "connected");
        out.send(conn, "welcome");
        out.call_after(Duration::from_millis(200), conn);
        out.pause(conn);
        out.resume_after(Duration::from_millis(100), conn);
    }

    fn received(&mut self, now: Time, _: PeerConn, bytes: &[u8], _: &mut PeerActions) {
        self.note(now, &format!("received {}", bytes.len()));
    }

    fn ended(&mut self, now: Time, conn: PeerConn, out: &mut PeerActions) {
        self.note(now, "ended");
        out.close(conn);
    }

    fn failed(&mut self, now: Time, _: PeerConn, _: &mut PeerActions) {
        self.note(now, "failed");
    }

    fn called(&mut self, now: Time, conn: PeerConn, out: &mut PeerActions) {
        self.note(now, "called");
        out.reset(conn);
    }
}

#[test]
fn a_peer_is_told_everything_and_can_do_everything() {
    let notes = Arc::new(Mutex::new(Vec::new()));
    let mut net = with_latency();
    net.serve(at(), Lifelong(notes.clone())).expect("a free address");
    let conn = connect(&mut net).expect("asked for");
    net.send(conn, b"12345").expect("can send");
    let seen = run(&mut net, Duration::from_secs(1));
    let expected =
        [Seen::Connected(20), Seen::Bytes(20, b"welcome".to_vec()), Seen::Failed(220, NetErrorKind::Reset)];
    assert_eq!(seen, expected);
    net.close(conn, Close::Now);
    let other = connect(&mut net).expect("asked for");
    run(&mut net, Duration::from_millis(50));
    net.close(other, Close::Now);
    run(&mut net, Duration::from_secs(1));
    let third = connect(&mut net).expect("asked for");
    run(&mut net, Duration::from_millis(50));
    net.close(third, Close::Abort);
    run(&mut net, Duration::from_secs(1));
    let told = notes.lock().expect("no panic").join(", ");
    let expected = "10 connected, 110 received 5, 210 called, 1010 connected, 1110 ended, \
                    2060 connected, 2110 failed";
    assert_eq!(told, expected);
}

#[test]
fn a_peer_may_dial() {
    let notes = Arc::new(Mutex::new(Vec::new()));
    let mut net = with_latency();
    net.dial(at(), Lifelong(notes.clone()));
    run(&mut net, Duration::from_millis(100));
    assert_eq!(notes.lock().expect("no panic").join(", "), "20 failed", "nobody listens");
    net.listen(at(), &ListenOptions::default()).expect("a free address");
    net.dial(at(), Lifelong(notes.clone()));
    let seen = run(&mut net, Duration::from_secs(1));
    assert_eq!(seen, [Seen::Bytes(130, b"welcome".to_vec()), Seen::Failed(330, NetErrorKind::Reset)]);
}

#[test]
fn faults_come_as_ordered() {
    let options = MemOptions { refuse_every: Some(3), ports: Some(4), ..MemOptions::default() };
    let mut net = Mem::new(options).expect("mem");
    net.serve(at(), |_: Time, _: PeerConn, _: &[u8], _: &mut PeerActions| {}).expect("a free address");
    let conns: Vec<_> = (0..6).map(|_| connect(&mut net)).collect();
    let kinds: Vec<_> = conns.iter().map(|c| c.map_err(|e| e.kind).err()).collect();
    let used_up = Some(NetErrorKind::PortsExhausted);
    assert_eq!(kinds, [None, None, None, None, used_up, used_up]);
    let seen = run(&mut net, Duration::from_secs(1));
    let refused = seen.iter().filter(|s| matches!(s, Seen::Failed(_, NetErrorKind::Refused))).count();
    assert_eq!((seen.len(), refused), (4, 1), "{seen:?}");
    // Closing a connection frees its port.
    net.close(conns[0].expect("was made"), Close::Abort);
    assert!(connect(&mut net).is_ok());

    let mut net = Mem::new(MemOptions { fail_send_every: Some(2), ..MemOptions::default() }).expect("mem");
    net.serve(at(), |_: Time, _: PeerConn, _: &[u8], _: &mut PeerActions| {}).expect("a free address");
    let conn = connect(&mut net).expect("asked for");
    run(&mut net, Duration::from_secs(1));
    assert_eq!(net.send(conn, b"x"), Ok(()));
    assert_eq!(net.send(conn, b"x").map_err(|e| e.kind), Err(NetErrorKind::NoMemory));
    assert_eq!(net.send(conn, b"x"), Ok(()));
}

#[test]
fn a_connection_is_reset_after_so_many_bytes() {
    let mut net = Mem::new(MemOptions { reset_after_bytes: Some(10), ..MemOptions::default() }).expect("mem");
    let peer = |_: Time, conn: PeerConn, _: &[u8], out: &mut PeerActions| {
        out.send(conn, "12345");
    };
    net.serve(at(), peer).expect("a free address");
    let conn = connect(&mut net).expect("asked for");
    let mut seen = Vec::new();
    while !seen.iter().any(|s| matches!(s, Seen::Failed(..))) {
        let _ = net.send(conn, b"more");
        seen.extend(run(&mut net, Duration::from_millis(1)));
        assert!(seen.len() < 20);
    }
    assert!(matches!(seen.last(), Some(Seen::Failed(_, NetErrorKind::Reset))), "{seen:?}");
}

#[test]
fn the_seed_decides_everything() {
    let story = |seed| {
        let options = MemOptions { seed, cut: Cut::Random(7), window: 50, ..MemOptions::default() };
        let mut net = Mem::new(options).expect("mem");
        let peer = |_: Time, conn: PeerConn, bytes: &[u8], out: &mut PeerActions| out.send(conn, bytes);
        net.serve(at(), peer).expect("a free address");
        let conn = connect(&mut net).expect("asked for");
        net.send(conn, &[7; 500]).expect("can send");
        let (mut sizes, mut events, mut total) = (Vec::new(), Vec::new(), 0);
        while total < 500 {
            net.turn(Some(Time::NEVER), &mut events).expect("a turn");
            for event in events.drain(..) {
                if let Event::Readable { data, .. } = event {
                    net.receive(data, |piece| {
                        sizes.push(piece.len());
                        total += piece.len();
                    });
                    sizes.push(0);
                }
            }
        }
        sizes
    };
    assert_eq!(story(1), story(1));
    assert_ne!(story(1), story(2));
    assert!(story(3).iter().all(|n| *n <= 7));
}

#[test]
fn waiting_for_nothing_is_an_error_and_not_for_ever() {
    let mut net = Mem::default();
    let error = net.turn(None, &mut Vec::new()).expect_err("nothing is ever going to happen");
    assert_eq!(error.kind(), std::io::ErrorKind::TimedOut);
}
