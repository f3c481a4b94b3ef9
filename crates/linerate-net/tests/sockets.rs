//! Sockets over user-space TCP in virtual time: what the comparison with the kernel
//! (`sockets_kernel.rs`) leaves out.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::time::Duration;

use linerate_net::link::sim::{Sim, SimEnd, SimOptions};
use linerate_net::sockets::{
    CallFlags, HUP, IN, OUT, PollEntry, PollSetId, Shutdown, SocketId, Sockets, WaitFlags,
};
use linerate_net::stack::{Stack, StackOptions};

const HOST: IpAddr = IpAddr::V4(Ipv4Addr::new(10, 0, 0, 1));
const AT: SocketAddr = SocketAddr::new(HOST, 80);
const PLAIN: CallFlags = CallFlags { peek: false, truncate: false, no_signal: false };
const EDGE: u32 = libc::EPOLLET as u32;
const ONCE: u32 = libc::EPOLLONESHOT as u32;
const EXCLUSIVE: u32 = libc::EPOLLEXCLUSIVE as u32;

fn sockets() -> Sockets<SimEnd> {
    losing(0)
}

/// Sockets over a link that loses the packet of this number.
fn losing(lose: u64) -> Sockets<SimEnd> {
    let link = Sim::alone(SimOptions { lose, ..SimOptions::default() }).expect("a link");
    let options = StackOptions { addresses: vec![HOST], seed: Some(1), ..StackOptions::default() };
    Sockets::new(Stack::new(link, options))
}

fn run(net: &mut Sockets<SimEnd>, time: Duration) {
    let until = net.now() + time;
    while net.now() < until {
        net.turn(Some(until)).expect("a turn");
    }
}

fn rest(net: &mut Sockets<SimEnd>) {
    run(net, Duration::from_millis(500));
}

fn listener(net: &mut Sockets<SimEnd>, backlog: u32) -> SocketId {
    let listener = net.socket().expect("one");
    net.bind(listener, AT).expect("free");
    net.listen(listener, backlog).expect("free");
    listener
}

fn connecting(net: &mut Sockets<SimEnd>) -> SocketId {
    let client = net.socket().expect("one");
    assert_eq!(net.connect(client, AT).map_err(|e| e.errno), Err(libc::EINPROGRESS));
    client
}

fn pair(net: &mut Sockets<SimEnd>) -> (SocketId, SocketId) {
    let listener = listener(net, 1);
    let client = connecting(net);
    rest(net);
    let (server, _) = net.accept(listener).expect("connected");
    (client, server)
}

fn found(net: &mut Sockets<SimEnd>, set: PollSetId) -> Vec<(u64, u32)> {
    let mut found: Vec<PollEntry> = Vec::new();
    net.poll(set, 64, &mut found).expect("a set");
    found.iter().map(|entry| (entry.token, entry.readiness)).collect()
}

#[test]
fn connect_says_each_stage_once() {
    let mut net = sockets();
    let refused = connecting(&mut net);
    assert_eq!(net.connect(refused, AT).map_err(|e| e.errno), Err(libc::EALREADY));
    assert_eq!(net.readiness(refused), Ok(0));
    rest(&mut net);
    assert_eq!(net.take_error(refused), Ok(Some(libc::ECONNREFUSED)));
    assert_eq!(net.connect(refused, AT).map_err(|e| e.errno), Err(libc::ECONNABORTED));
    listener(&mut net, 1);
    assert_eq!(net.connect(refused, AT).map_err(|e| e.errno), Err(libc::EINPROGRESS));
    rest(&mut net);
    assert_eq!(net.connect(refused, AT), Ok(()));
    assert_eq!(net.connect(refused, AT).map_err(|e| e.errno), Err(libc::EISCONN));
}

#[test]
fn a_full_accept_queue_takes_the_others_later() {
    let mut net = sockets();
    let listener = listener(&mut net, 2);
    let clients: Vec<_> = (0..5).map(|_| connecting(&mut net)).collect();
    rest(&mut net);
    let mut accepted = 0;
    while net.accept(listener).is_ok() {
        accepted += 1;
    }
    // One more than the backlog, as on Linux.
    assert_eq!(accepted, 3);
    run(&mut net, Duration::from_secs(10));
    while net.accept(listener).is_ok() {
        accepted += 1;
    }
    assert_eq!(accepted, 5);
    assert!(clients.iter().all(|client| net.readiness(*client) == Ok(OUT)));
}

#[test]
fn a_send_buffer_of_the_programs_own_size_fills_and_drains() {
    let mut net = sockets();
    let (client, server) = pair(&mut net);
    net.options_mut(client).expect("open").sndbuf = Some(3000);
    let set = net.poll_set();
    net.watch(set, client, OUT | EDGE, 7).expect("new");
    assert_eq!(found(&mut net, set), [(7, OUT)]);
    assert_eq!(net.send(client, &[1; 5000], PLAIN), Ok(3000));
    assert_eq!(net.send(client, &[1; 5000], PLAIN).map_err(|e| e.errno), Err(libc::EAGAIN));
    assert_eq!((net.readiness(client), found(&mut net, set)), (Ok(0), vec![]));
    rest(&mut net);
    assert_eq!(found(&mut net, set), [(7, OUT)]);
    assert_eq!(net.queued(server).expect("open").0, 3000);
}

#[test]
fn unread_bytes_close_the_window_and_reading_opens_it() {
    let mut net = sockets();
    let (client, server) = pair(&mut net);
    let mut sent = 0;
    loop {
        match net.send(client, &[7; 10_000], PLAIN) {
            Ok(len) => sent += len,
            Err(_) => {
                let before = net.info(client).expect("open").unacked_bytes;
                rest(&mut net);
                if net.readiness(client) == Ok(0) && net.info(client).expect("open").unacked_bytes == before {
                    break;
                }
            }
        }
    }
    assert_eq!(net.info(client).expect("open").peer_window_bytes, 0);
    let unread = net.queued(server).expect("open").0;
    assert!(unread < sent, "{unread} of {sent}");
    let mut got = 0;
    while got < sent {
        match net.recv(server, &mut [0; 9999], PLAIN) {
            Ok(len) => got += len,
            Err(_) => rest(&mut net),
        }
    }
    assert_eq!((got, net.readiness(client)), (sent, Ok(OUT)));
}

#[test]
fn low_water_and_dropped_bytes() {
    let mut net = sockets();
    let (client, server) = pair(&mut net);
    net.options_mut(server).expect("open").rcvlowat = 10;
    assert_eq!(net.send(client, b"123456789", PLAIN), Ok(9));
    rest(&mut net);
    assert_eq!(net.readiness(server), Ok(OUT));
    assert_eq!(net.send(client, b"0", PLAIN), Ok(1));
    rest(&mut net);
    assert_eq!(net.readiness(server), Ok(IN | OUT));
    assert_eq!(net.recv(server, &mut [0; 8], CallFlags { truncate: true, ..PLAIN }), Ok(8));
    let mut left = [0; 8];
    assert_eq!(net.recv(server, &mut left, PLAIN), Ok(2));
    assert_eq!(&left[..2], b"90");
}

#[test]
fn sigpipe_comes_with_epipe_alone() {
    let mut net = sockets();
    let (client, server) = pair(&mut net);
    net.options_mut(server).expect("open").resets_at_close = true;
    net.close(server).expect("open");
    rest(&mut net);
    let first = net.send(client, b"x", PLAIN).expect_err("reset");
    assert_eq!((first.errno, first.raises_sigpipe), (libc::ECONNRESET, false));
    let second = net.send(client, b"x", PLAIN).expect_err("reset");
    assert_eq!((second.errno, second.raises_sigpipe), (libc::EPIPE, true));
    let third = net.send(client, b"x", CallFlags { no_signal: true, ..PLAIN }).expect_err("reset");
    assert!(!third.raises_sigpipe);
    assert_eq!(net.recv(server, &mut [0], PLAIN).map_err(|e| e.errno), Err(libc::EBADF));
}

#[test]
fn level_edge_and_once() {
    let mut net = sockets();
    let (client, server) = pair(&mut net);
    let (level, edge, once) = (net.poll_set(), net.poll_set(), net.poll_set());
    net.watch(level, server, IN, 1).expect("new");
    net.watch(edge, server, IN | EDGE, 2).expect("new");
    net.watch(once, server, IN | ONCE, 3).expect("new");
    assert_eq!(net.watch(once, server, IN, 3).map_err(|e| e.errno), Err(libc::EEXIST));
    for (round, expected) in [vec![(3, IN)], vec![]].into_iter().enumerate() {
        assert_eq!(net.send(client, b"x", PLAIN), Ok(1));
        rest(&mut net);
        assert_eq!(found(&mut net, level), [(1, IN)]);
        assert_eq!(found(&mut net, level), [(1, IN)]);
        assert_eq!(found(&mut net, edge), [(2, IN)], "round {round}");
        assert_eq!(found(&mut net, edge), []);
        assert_eq!(found(&mut net, once), expected);
    }
    net.rewatch(once, server, IN | ONCE, 4).expect("there");
    assert_eq!(found(&mut net, once), [(4, IN)]);
    assert_eq!(net.recv(server, &mut [0; 9], PLAIN), Ok(2));
    assert_eq!(found(&mut net, level), []);
    net.unwatch(level, server).expect("there");
    assert_eq!(net.unwatch(level, server).map_err(|e| e.errno), Err(libc::ENOENT));
}

#[test]
fn of_exclusive_sets_one_is_told() {
    let mut net = sockets();
    let listener = listener(&mut net, 8);
    let sets = [net.poll_set(), net.poll_set(), net.poll_set()];
    for set in sets {
        net.watch(set, listener, IN | EXCLUSIVE | EDGE, 0).expect("new");
    }
    for _ in 0..6 {
        connecting(&mut net);
        rest(&mut net);
        let told = sets.iter().filter(|set| !found(&mut net, **set).is_empty()).count();
        assert_eq!(told, 1);
    }
}

#[test]
fn a_fresh_socket_is_as_the_kernels() {
    let mut net = sockets();
    let fresh = net.socket().expect("one");
    assert_eq!(net.readiness(fresh), Ok(OUT | HUP));
    assert_eq!(net.recv(fresh, &mut [0], PLAIN).map_err(|e| e.errno), Err(libc::ENOTCONN));
    assert_eq!(net.send(fresh, b"x", PLAIN).map_err(|e| e.errno), Err(libc::EPIPE));
    assert_eq!(net.peer(fresh).map_err(|e| e.errno), Err(libc::ENOTCONN));
}

#[test]
fn closing_leaves_nothing_behind() {
    let mut net = sockets();
    let (client, server) = pair(&mut net);
    net.shutdown(client, Shutdown::Write).expect("connected");
    rest(&mut net);
    net.shutdown(server, Shutdown::Write).expect("connected");
    rest(&mut net);
    for id in [client, server] {
        assert_eq!(net.recv(id, &mut [0], PLAIN), Ok(0));
        net.close(id).expect("open");
    }
    rest(&mut net);
    let totals = linerate_net::Transport::totals(net.stack()).expect("counted");
    assert_eq!((totals.connections, totals.buffer_bytes, totals.time_wait), (0, 0, 1));
}

#[test]
fn a_receive_that_waits_for_all() {
    let mut net = sockets();
    let (client, server) = pair(&mut net);
    net.options_mut(server).expect("open").receive_timeout = Some(Duration::from_secs(2));
    let all = WaitFlags { wait_all: true, ..WaitFlags::default() };
    let mut into = [0; 10];
    let mut call = net.begin_receive(server, 10, all).expect("open");
    assert_eq!(net.continue_receive(&mut call, server, &mut into, PLAIN), None);
    assert_eq!(call.interrupted().map_err(|e| e.errno), Err(libc::EINTR));
    assert_eq!(net.send(client, b"1234", PLAIN), Ok(4));
    rest(&mut net);
    assert_eq!(net.continue_receive(&mut call, server, &mut into, PLAIN), None);
    assert_eq!(call.interrupted(), Ok(4));
    assert_eq!(net.send(client, b"567890ab", PLAIN), Ok(8));
    rest(&mut net);
    assert_eq!(net.continue_receive(&mut call, server, &mut into, PLAIN), Some(Ok(10)));
    assert_eq!(&into, b"1234567890");
    // The time ends with fewer, and then with none.
    let mut call = net.begin_receive(server, 10, all).expect("open");
    assert_eq!(net.continue_receive(&mut call, server, &mut into, PLAIN), None);
    run(&mut net, Duration::from_secs(2));
    assert_eq!(net.continue_receive(&mut call, server, &mut into, PLAIN), Some(Ok(2)));
    let mut call = net.begin_receive(server, 10, WaitFlags::default()).expect("open");
    run(&mut net, Duration::from_secs(2));
    let late = net.continue_receive(&mut call, server, &mut into, PLAIN);
    assert_eq!(late.map(|late| late.map_err(|e| e.errno)), Some(Err(libc::EAGAIN)));
    // The end comes after the bytes.
    assert_eq!(net.send(client, b"xy", PLAIN), Ok(2));
    net.shutdown(client, Shutdown::Write).expect("connected");
    rest(&mut net);
    let mut call = net.begin_receive(server, 10, all).expect("open");
    assert_eq!(net.continue_receive(&mut call, server, &mut into, PLAIN), None);
    assert_eq!(net.continue_receive(&mut call, server, &mut into, PLAIN), Some(Ok(2)));
    let mut call = net.begin_receive(server, 10, all).expect("open");
    assert_eq!(net.continue_receive(&mut call, server, &mut into, PLAIN), Some(Ok(0)));
}

#[test]
fn a_send_that_waits_for_room() {
    let mut net = sockets();
    let (client, server) = pair(&mut net);
    net.options_mut(client).expect("open").sndbuf = Some(4000);
    let bytes = [3; 10_000];
    let none = WaitFlags { dont_wait: true, ..WaitFlags::default() };
    let mut call = net.begin_send(client, none).expect("open");
    assert_eq!(net.continue_send(&mut call, client, &bytes, PLAIN), Some(Ok(4000)));
    let mut call = net.begin_send(client, WaitFlags::default()).expect("open");
    let mut waits = 0;
    while net.continue_send(&mut call, client, &bytes, PLAIN).is_none() {
        rest(&mut net);
        waits += 1;
    }
    rest(&mut net);
    assert_eq!((waits, net.queued(server).expect("open").0), (3, 14_000));
    // A reset meanwhile: first the bytes so far, then the error.
    let mut call = net.begin_send(client, WaitFlags::default()).expect("open");
    assert_eq!(net.continue_send(&mut call, client, &bytes, PLAIN), None);
    net.options_mut(server).expect("open").resets_at_close = true;
    net.close(server).expect("open");
    rest(&mut net);
    assert_eq!(net.continue_send(&mut call, client, &bytes, PLAIN), Some(Ok(4000)));
    assert_eq!(net.send(client, b"x", PLAIN).map_err(|e| e.errno), Err(libc::ECONNRESET));
}

#[test]
fn two_half_closes_end_whatever_packet_is_lost() {
    // Beyond the handshake: data, two FINs, their ACKs.
    for lose in 4..14 {
        let mut net = losing(lose);
        let (client, server) = pair(&mut net);
        assert_eq!(net.send(client, b"x", PLAIN), Ok(1));
        run(&mut net, Duration::from_secs(5));
        for id in [client, server] {
            net.shutdown(id, Shutdown::Write).expect("connected");
            run(&mut net, Duration::from_secs(5));
        }
        // Both hold their sockets. The ACK of the last FIN comes from the side in TIME_WAIT.
        for id in [client, server] {
            let errno = net.shutdown(id, Shutdown::Both).map_err(|e| e.errno);
            assert_eq!((lose, errno), (lose, Err(libc::ENOTCONN)));
        }
    }
}
