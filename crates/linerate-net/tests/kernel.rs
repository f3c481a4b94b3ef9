//! What only the kernel's transports have: a backlog, TIME_WAIT, segments, and foreign peers.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::time::Duration;

use linerate_net::capture::{Capture, CaptureOptions};
use linerate_net::epoll::Epoll;
use linerate_net::uring::Uring;
use linerate_net::{
    After, Close, Conn, ConnectOptions, Event, ListenOptions, NetErrorKind, Probe, Time, Transport,
    TransportLimits,
};

const HERE: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(Ipv4Addr::LOCALHOST), 0);
const PATIENCE: Duration = Duration::from_secs(20);

/// Runs a test on every transport that works here.
macro_rules! on_each {
    ($($name:ident => $test:ident;)*) => {
        mod epoll {
            $(#[test] fn $name() { super::$test(&|limits| super::Epoll::with_limits(limits).expect("epoll")); })*
        }
        mod uring {
            $(#[test] fn $name() {
                match super::Probe::run().uring() {
                    Ok(()) => super::$test(&|limits| super::Uring::with_limits(limits).expect("io_uring")),
                    Err(why) => linerate_skips::skip(linerate_skips::need::IO_URING, why),
                }
            })*
        }
    };
}

on_each! {
    what_does_not_fit_waits_in_the_backlog => backlog;
    time_wait_stays_with_the_peer => time_wait;
    several_sends_on_a_short_connection => short_sends;
    a_large_send_on_a_short_connection_is_not_held_back => short_large_send;
    one_address_for_several_instances => reuse_port;
    an_address_in_use_is_said => address_in_use;
    a_peer_that_never_reads_is_waited_for_in_vain => flush_limit;
    bytes_for_a_connection_closed_early_reach_no_other => no_crosstalk;
    the_fin_leaves_with_the_last_bytes => fin_with_data;
}

type Make<'a, T> = &'a dyn Fn(TransportLimits) -> T;

/// Runs turns until an event that `pick` accepts; reads everything else.
#[track_caller]
fn wait_for<T: Transport, R>(
    net: &mut T,
    what: &str,
    mut pick: impl FnMut(&mut T, &Event) -> Option<R>,
) -> R {
    let limit = net.now() + PATIENCE;
    let mut events = Vec::new();
    loop {
        assert!(net.now() < limit, "{}: waited in vain for {what}", net.name());
        net.turn(Some(limit), &mut events).expect("a turn");
        let mut found = None;
        for event in events.drain(..) {
            let picked = pick(net, &event);
            found = found.or(picked);
            if let Event::Readable { data, .. } = event {
                net.receive(data, |_| {});
            }
        }
        if let Some(found) = found {
            return found;
        }
    }
}

fn accepted<T: Transport>(net: &mut T) -> Conn {
    wait_for(net, "a connection", |_, event| match event {
        Event::Accepted { conn, .. } => Some(*conn),
        _ => None,
    })
}

fn backlog<T: Transport>(make: Make<'_, T>) {
    let mut net = make(TransportLimits { connections: 1, ..TransportLimits::default() });
    let (_, at) = net.listen(HERE, &ListenOptions::default()).expect("listens");
    let mut first = TcpStream::connect(at).expect("connects");
    let _second = TcpStream::connect(at).expect("the kernel takes it into the backlog");
    let conn = accepted(&mut net);
    let mut events = Vec::new();
    let until = net.now() + Duration::from_millis(50);
    while net.now() < until {
        net.turn(Some(until), &mut events).expect("a turn");
    }
    assert!(!events.iter().any(|e| matches!(e, Event::Accepted { .. })), "there is no room: {events:?}");
    for event in events {
        if let Event::Readable { data, .. } = event {
            net.receive(data, |_| {});
        }
    }
    net.close(conn, Close::Now);
    accepted(&mut net);
    assert_eq!(first.read(&mut [0; 1]).ok(), Some(0));
}

/// Whether a local port has a connection in TIME_WAIT towards another.
fn waits(local: u16, remote: u16) -> bool {
    let text = std::fs::read_to_string("/proc/net/tcp").expect("/proc");
    text.lines().skip(1).any(|line| {
        let fields: Vec<&str> = line.split_ascii_whitespace().collect();
        let port = |field: &str| field.rsplit(':').next().and_then(|p| u16::from_str_radix(p, 16).ok());
        fields[3] == "06" && port(fields[1]) == Some(local) && port(fields[2]) == Some(remote)
    })
}

/// Accepts a connection, with a limit on the wait.
fn accept(listener: &TcpListener) -> (TcpStream, SocketAddr) {
    let (peer, from) = listener.accept().expect("it is there");
    peer.set_read_timeout(Some(PATIENCE)).expect("a time limit");
    peer.set_write_timeout(Some(PATIENCE)).expect("a time limit");
    (peer, from)
}

fn time_wait<T: Transport>(make: Make<'_, T>) {
    let mut net = make(TransportLimits::default());
    let listener = TcpListener::bind(HERE).expect("binds");
    let at = listener.local_addr().expect("bound");
    let conn = net.connect(at, &ConnectOptions::default()).expect("asked for");
    net.send(conn, b"bye").expect("can send");
    wait_for(&mut net, "the connection", |_, event| matches!(event, Event::Connected { .. }).then_some(()));
    let (mut peer, from) = accept(&listener);
    peer.read_exact(&mut [0; 3]).expect("bye");
    net.close(conn, Close::AfterPeer);
    let mut events = Vec::new();
    net.turn(Some(Time::ZERO), &mut events).expect("a turn");
    drop(peer);
    let limit = net.now() + PATIENCE;
    while !waits(at.port(), from.port()) {
        assert!(net.now() < limit, "the peer closed first, so it waits");
        let soon = net.now() + Duration::from_millis(5);
        net.turn(Some(soon), &mut events).expect("a turn");
    }
    assert!(!waits(from.port(), at.port()), "and we do not");
}

fn short_sends<T: Transport>(make: Make<'_, T>) {
    let mut net = make(TransportLimits::default());
    let listener = TcpListener::bind(HERE).expect("binds");
    let at = listener.local_addr().expect("bound");
    let options = ConnectOptions { short: true, ..ConnectOptions::default() };
    let conn = net.connect(at, &options).expect("asked for");
    net.send(conn, b"one ").expect("can send");
    wait_for(&mut net, "the connection", |_, event| matches!(event, Event::Connected { .. }).then_some(()));
    net.send(conn, b"two ").expect("can send");
    let mut events = Vec::new();
    net.turn(Some(Time::ZERO), &mut events).expect("a turn");
    net.send(conn, b"three").expect("can send");
    let (mut peer, _) = accept(&listener);
    peer.write_all(b"answer in ").expect("can send");
    let mut got = Vec::new();
    let mut ended = false;
    let limit = net.now() + PATIENCE;
    while !ended {
        assert!(net.now() < limit);
        net.turn(Some(limit), &mut events).expect("a turn");
        for event in events.drain(..) {
            if let Event::Readable { data, .. } = event {
                ended |= net.receive(data, |bytes| got.extend_from_slice(bytes)) == After::Ended;
            }
        }
        // The first piece was read and the connection is still open, so the rest arrives too.
        if got == b"answer in " {
            let mut asked = [0; 13];
            peer.read_exact(&mut asked).expect("all three");
            assert_eq!(&asked, b"one two three");
            peer.write_all(b"pieces").expect("can send");
            peer.shutdown(std::net::Shutdown::Write).expect("FIN");
        }
    }
    assert_eq!(got, b"answer in pieces");
    net.close(conn, Close::Now);
}

fn short_large_send<T: Transport>(make: Make<'_, T>) {
    let mut net = make(TransportLimits::default());
    let listener = TcpListener::bind(HERE).expect("binds");
    let at = listener.local_addr().expect("bound");
    let whole: Vec<u8> = (0..200_001u32).map(|i| i as u8).collect();
    let reader = std::thread::spawn(move || {
        let (mut peer, _) = accept(&listener);
        let mut all = Vec::new();
        peer.read_to_end(&mut all).expect("to the end");
        all
    });
    let options = ConnectOptions { short: true, ..ConnectOptions::default() };
    let conn = net.connect(at, &options).expect("asked for");
    net.send(conn, &whole).expect("can send");
    wait_for(&mut net, "the connection", |_, event| matches!(event, Event::Connected { .. }).then_some(()));
    net.close(conn, Close::Now);
    let limit = net.now() + PATIENCE;
    let mut events = Vec::new();
    while !reader.is_finished() {
        assert!(net.now() < limit);
        let soon = net.now() + Duration::from_millis(5);
        net.turn(Some(soon), &mut events).expect("a turn");
    }
    assert!(reader.join().expect("no panic") == whole);
}

fn reuse_port<T: Transport>(make: Make<'_, T>) {
    let options = ListenOptions { reuse_port: true, ..ListenOptions::default() };
    let (mut one, mut two) = (make(TransportLimits::default()), make(TransportLimits::default()));
    let (_, at) = one.listen(HERE, &options).expect("listens");
    two.listen(at, &options).expect("listens on the same");
    let clients: Vec<_> = (0..64).map(|_| TcpStream::connect(at).expect("connects")).collect();
    let mut counts = [0, 0];
    let limit = one.now() + PATIENCE;
    let mut events = Vec::new();
    while counts[0] + counts[1] < clients.len() {
        assert!(one.now() < limit, "{counts:?}");
        for (net, count) in [&mut one, &mut two].into_iter().zip(&mut counts) {
            let soon = net.now() + Duration::from_millis(1);
            net.turn(Some(soon), &mut events).expect("a turn");
            for event in events.drain(..) {
                match event {
                    Event::Accepted { .. } => *count += 1,
                    Event::Readable { data, .. } => drop(net.receive(data, |_| {})),
                    _ => {}
                }
            }
        }
    }
    assert!(counts[0] > 0 && counts[1] > 0, "both have their share: {counts:?}");
}

fn address_in_use<T: Transport>(make: Make<'_, T>) {
    let mut net = make(TransportLimits::default());
    let (_, at) = net.listen(HERE, &ListenOptions::default()).expect("listens");
    let again = net.listen(at, &ListenOptions::default());
    assert_eq!(again.map_err(|e| e.kind), Err(NetErrorKind::AddressInUse));
    let elsewhere = SocketAddr::from((Ipv4Addr::new(192, 0, 2, 1), 0));
    assert!(net.listen(elsewhere, &ListenOptions::default()).is_err(), "not an address of ours");
}

/// What a captured packet of TCP over IPv4 carries from a port: whether it has the FIN, and the bytes
/// of its payload.
fn carried(packet: &[u8], port: u16) -> Option<(bool, usize)> {
    const FIN: u8 = 1;
    let tcp = usize::from(packet.first()? & 15) * 4;
    let total = usize::from(u16::from_be_bytes([*packet.get(2)?, *packet.get(3)?]));
    if u16::from_be_bytes([*packet.get(tcp)?, *packet.get(tcp + 1)?]) != port {
        return None;
    }
    let head = usize::from(packet.get(tcp + 12)? >> 4) * 4;
    Some((packet.get(tcp + 13)? & FIN != 0, total - tcp - head))
}

fn fin_with_data<T: Transport>(make: Make<'_, T>) {
    const CALLS: usize = 40;
    let mut net = make(TransportLimits::default());
    let (_, at) = net.listen(HERE, &ListenOptions::default()).expect("listens");
    let options = CaptureOptions { towards: Some(at.ip()), port: Some(at.port()), ..Default::default() };
    let mut capture = match Capture::open(&options) {
        Ok(capture) => capture,
        Err(why) => return linerate_skips::skip(linerate_skips::need::CAPTURE, why),
    };
    for call in 0..CALLS {
        let mut client = TcpStream::connect(at).expect("connects");
        client.set_read_timeout(Some(PATIENCE)).expect("a time limit");
        let conn = accepted(&mut net);
        client.write_all(b"request").expect("can send");
        wait_for(&mut net, "the request", |_, event| matches!(event, Event::Readable { .. }).then_some(()));
        if call % 4 == 3 {
            // Bytes that nobody reads make the close a reset, which must not overtake the last ones.
            net.pause(conn);
            client.write_all(b"unread").expect("can send");
            let (soon, mut events) = (net.now() + Duration::from_millis(5), Vec::new());
            net.turn(Some(soon), &mut events).expect("a turn");
        }
        let last = vec![call as u8; 600];
        net.send_last(conn, &last, Close::Now).expect("can send");
        let mut events = Vec::new();
        let mut got = vec![0; last.len()];
        let reader = std::thread::spawn(move || client.read_exact(&mut got).map(|()| got));
        while !reader.is_finished() || net.unfinished() > 0 {
            let soon = net.now() + Duration::from_millis(1);
            net.turn(Some(soon), &mut events).expect("a turn");
            for event in events.drain(..) {
                if let Event::Readable { data, .. } = event {
                    net.receive(data, |_| {});
                }
            }
        }
        assert_eq!(reader.join().expect("no panic").expect("the last bytes"), last, "call {call}");
    }
    let (mut together, mut apart) = (0, 0);
    let limit = net.now() + PATIENCE;
    while together + apart < CALLS && net.now() < limit {
        let counted = |packet: linerate_net::capture::Captured<'_>| match carried(packet.data, at.port()) {
            Some((true, 600)) => together += 1,
            Some((true, _)) => apart += 1,
            _ => {}
        };
        capture.next(Duration::from_millis(20), counted).expect("captured");
    }
    assert_eq!((together, apart), (CALLS, 0), "{}", net.name());
}

fn flush_limit<T: Transport>(make: Make<'_, T>) {
    let limits = TransportLimits {
        connections: 1,
        flush_time: Duration::from_millis(200),
        ..TransportLimits::default()
    };
    let mut net = make(limits);
    let listener = TcpListener::bind(HERE).expect("binds");
    let at = listener.local_addr().expect("bound");
    let conn = net.connect(at, &ConnectOptions::default()).expect("asked for");
    wait_for(&mut net, "the connection", |_, event| matches!(event, Event::Connected { .. }).then_some(()));
    net.send(conn, &vec![7; 32 << 20]).expect("can send");
    net.close(conn, Close::Now);
    assert!(net.connect(at, &ConnectOptions::default()).is_err(), "its bytes still leave");
    let limit = net.now() + PATIENCE;
    let mut events = Vec::new();
    while net.connect(at, &ConnectOptions::default()).is_err() {
        assert!(net.now() < limit, "it is given up at last");
        let soon = net.now() + Duration::from_millis(20);
        net.turn(Some(soon), &mut events).expect("a turn");
    }
}

fn no_crosstalk<T: Transport>(make: Make<'_, T>) {
    let mut net = make(TransportLimits::default());
    let listener = TcpListener::bind(HERE).expect("binds");
    let at = listener.local_addr().expect("bound");
    let reader = std::thread::spawn(move || {
        let mut whole = 0;
        for _ in 0..400 {
            let (mut peer, _) = accept(&listener);
            let mut all = Vec::new();
            // Connections that were dropped early send little or nothing, and may be reset.
            let _ = peer.read_to_end(&mut all);
            assert!(
                all.is_empty() || all == b"early" || all == b"stays",
                "bytes of another connection: {:?}",
                String::from_utf8_lossy(&all)
            );
            whole += usize::from(all == b"stays");
        }
        whole
    });
    let mut events = Vec::new();
    for round in 0..200 {
        let options = ConnectOptions { short: true, ..ConnectOptions::default() };
        let early = net.connect(at, &options).expect("asked for");
        net.send(early, b"early").expect("can send");
        // In three of four rounds the kernel has the connection before it is closed.
        if round % 4 > 0 {
            net.turn(Some(Time::ZERO), &mut events).expect("a turn");
        }
        net.close(early, if round % 2 == 0 { Close::Now } else { Close::Abort });
        let stays = net.connect(at, &options).expect("asked for");
        net.send(stays, b"stays").expect("can send");
        wait_for(&mut net, "the one that stays", |_, event| {
            matches!(event, Event::Connected { conn, .. } if *conn == stays).then_some(())
        });
        net.close(stays, Close::Now);
    }
    // Replaces connections that never reached the kernel.
    while !reader.is_finished() {
        let _ = TcpStream::connect(at);
        let soon = net.now() + Duration::from_millis(2);
        net.turn(Some(soon), &mut events).expect("a turn");
    }
    assert_eq!(reader.join().expect("no panic"), 200);
}
