//! How connections come and go, and how a turn waits.

use std::time::{Duration, Instant};

use super::bed::{Bed, ObservedConnection};
use super::{Subject, pattern};
use crate::{
    After, Close, ConnectOptions, Event, ListenOptions, NetErrorKind, Time, Transport, TransportLimits,
    machine,
};

pub fn a_connection_is_made<T: Transport>(subject: &Subject<T>) {
    let mut bed = subject.bed();
    let (client, server) = bed.pair();
    assert_ne!(client.slot(), server.slot());
    assert_eq!(bed.accepted[0].1.ip(), subject.source());
    bed.for_a_while(Duration::from_millis(20));
    assert_eq!((bed.net.unsent(client), bed.net.unsent(server)), (0, 0));
    assert_eq!(bed.of(client).connected, 1, "said once");
    assert_eq!(bed.accepted.len(), 1);
}

pub fn a_source_address_is_used<T: Transport>(subject: &Subject<T>) {
    let mut bed = subject.bed();
    let from = subject.other_source();
    let options = ConnectOptions { from: Some(from), ..ConnectOptions::default() };
    let client = bed.net.connect(bed.at, &options).expect("can connect");
    bed.seen.insert(client, ObservedConnection::default());
    bed.until("a connection", |bed| bed.accepted.len() == 1 && bed.of(client).connected == 1);
    assert_eq!(bed.accepted[0].1.ip(), from);
}

pub fn connected_comes_before_bytes<T: Transport>(subject: &Subject<T>) {
    let mut bed = subject.bed();
    // The server sends first, as soon as it has accepted.
    let clients: Vec<_> = (0..20).map(|_| bed.connect()).collect();
    let mut greeted = 0;
    while clients.iter().any(|c| bed.received(*c) < 5) {
        bed.until("progress", |bed| {
            bed.accepted.len() > greeted || clients.iter().all(|c| bed.received(*c) == 5)
        });
        while greeted < bed.accepted.len() {
            bed.net.send(bed.accepted[greeted].0, b"hello").expect("can send");
            greeted += 1;
        }
    }
    // `handle` asserts the order of events itself.
    assert!(clients.iter().all(|c| bed.of(*c).received == b"hello"));
}

pub fn bytes_sent_at_once_arrive<T: Transport>(subject: &Subject<T>) {
    let mut bed = subject.bed();
    let client = bed.connect();
    let whole = pattern(100_000);
    for piece in whole.chunks(30_000) {
        bed.net.send(client, piece).expect("can send while connecting");
    }
    bed.until("all bytes", |bed| {
        bed.accepted.first().is_some_and(|(server, _)| bed.received(*server) == whole.len())
    });
    assert_eq!(bed.of(bed.accepted[0].0).received, whole);
    assert_eq!(bed.of(client).connected, 1);
}

pub fn refused_is_told<T: Transport>(subject: &Subject<T>) {
    let mut bed = subject.bed();
    bed.net.unlisten(bed.listener);
    let client = bed.connect();
    bed.until("the refusal", |bed| bed.of(client).failed.is_some());
    assert_eq!(bed.of(client).failed.map(|e| e.kind), Some(NetErrorKind::Refused));
    assert_eq!(bed.of(client).connected, 0);
    bed.net.close(client, Close::Now);
}

pub fn refused_is_told_once_though_bytes_were_sent<T: Transport>(subject: &Subject<T>) {
    let mut bed = subject.bed();
    bed.net.unlisten(bed.listener);
    for short in [false, true] {
        let options = ConnectOptions { short, ..ConnectOptions::default() };
        let client = bed.net.connect(bed.at, &options).expect("asked for");
        bed.seen.insert(client, ObservedConnection::default());
        bed.net.send(client, b"nobody reads this").expect("the failure is told by its event");
        bed.until("the refusal", |bed| bed.of(client).failed.is_some());
        bed.for_a_while(Duration::from_millis(20));
        assert_eq!(bed.of(client).failed.map(|e| e.kind), Some(NetErrorKind::Refused));
        assert_eq!(bed.of(client).failures, 1);
        assert_eq!(bed.net.unsent(client), 0);
        bed.net.close(client, Close::Now);
        assert_eq!(bed.net.send(client, b"and this"), Ok(()), "closed: nothing happens");
    }
}

pub fn stale_calls_do_nothing<T: Transport>(subject: &Subject<T>) {
    let mut bed = subject.bed();
    let (client, server) = bed.pair();
    bed.held = Some(Vec::new());
    bed.net.send(client, b"bytes nobody takes").expect("can send");
    bed.until("the claim", |bed| bed.held.as_ref().is_some_and(|h| h.iter().any(|d| d.conn() == server)));
    bed.net.close(server, Close::Now);
    for data in bed.held.take().unwrap_or_default() {
        if data.conn() == server {
            assert_eq!(bed.net.receive(data, |_| panic!("closed: nothing comes")), After::Gone);
        }
    }
    let lent = bed.net.lend(vec![1, 2, 3].into());
    assert_eq!(bed.net.send(server, b"x"), Ok(()));
    assert_eq!(bed.net.send_lent(server, lent, 0..3), Ok(()));
    assert_eq!(bed.net.unsent(server), 0);
    bed.net.pause(server);
    bed.net.resume(server);
    bed.net.set_low_water(server, 10);
    assert_eq!(bed.net.info(server), None);
    bed.net.close(server, Close::Abort);
    bed.until("the peer's word", |bed| bed.of(client).ended || bed.of(client).failed.is_some());
}

pub fn a_slot_is_reused_and_the_conn_is_not<T: Transport>(subject: &Subject<T>) {
    let mut bed = subject.bed();
    bed.echo = true;
    let mut all = std::collections::HashSet::new();
    let mut slots = std::collections::HashSet::new();
    let mut last = None;
    for round in 0..50u32 {
        let (client, server) = bed.pair();
        assert!(all.insert(client) && all.insert(server), "handed out once");
        slots.extend([client.slot(), server.slot()]);
        if let Some(stale) = last {
            bed.net.send(stale, b"not for you").expect("does nothing");
            bed.net.close(stale, Close::Abort);
        }
        bed.net.send(client, &round.to_ne_bytes()).expect("can send");
        bed.until("the echo", |bed| bed.received(client) == 4);
        assert_eq!(bed.of(client).received, round.to_ne_bytes());
        bed.net.close(client, Close::Now);
        // With echo on, the server closes when it reads the FIN.
        bed.until("the end", |bed| bed.of(server).ended);
        last = Some(client);
    }
    assert!(slots.len() < 20, "slots are dense: {}", slots.len());
}

pub fn the_limit_of_connections_holds<T: Transport>(subject: &Subject<T>) {
    let mut bed = subject.bed_with(TransportLimits { connections: 2, ..TransportLimits::default() });
    let (_client, server) = bed.pair();
    let refused = bed.net.connect(bed.at, &ConnectOptions::default());
    // The transport in memory holds both ends of a connection, for which the kernel would need two
    // tables.
    if bed.net.name() != "mem" {
        assert_eq!(refused.map_err(|e| e.kind), Err(NetErrorKind::NoMemory));
        bed.net.close(server, Close::Now);
        bed.for_a_while(Duration::from_millis(20));
        assert!(bed.net.connect(bed.at, &ConnectOptions::default()).is_ok(), "there is room again");
    }
}

pub fn unlisten_keeps_connections<T: Transport>(subject: &Subject<T>) {
    let mut bed = subject.bed();
    bed.echo = true;
    let (client, _server) = bed.pair();
    bed.net.unlisten(bed.listener);
    bed.net.unlisten(bed.listener);
    bed.net.send(client, b"still there?").expect("can send");
    bed.until("the echo", |bed| bed.received(client) == 12);
    let late = bed.connect();
    bed.until("the refusal", |bed| bed.of(late).failed.is_some());
    let again = bed.net.listen(bed.at, &ListenOptions::default());
    assert!(again.is_ok(), "the address is free again: {again:?}");
}

pub fn a_thousand_connections<T: Transport>(subject: &Subject<T>) {
    let mut bed = subject.bed();
    bed.echo = true;
    let limit = machine::raise_nofile().expect("a limit");
    let count = 1000.min(limit.saturating_sub(200) / 2) as usize;
    let message = pattern(100);
    let clients: Vec<_> = (0..count).map(|_| bed.connect()).collect();
    for client in &clients {
        bed.net.send(*client, &message).expect("can send");
    }
    bed.until("all echoes", |bed| clients.iter().all(|c| bed.received(*c) == message.len()));
    assert_eq!(bed.accepted.len(), count);
    for client in &clients {
        bed.net.send(*client, &message).expect("can send again");
    }
    bed.until("all echoes again", |bed| clients.iter().all(|c| bed.received(*c) == 2 * message.len()));
    for client in &clients {
        bed.net.close(*client, Close::Now);
    }
    bed.until("all ends", |bed| bed.accepted.iter().all(|(server, _)| bed.of(*server).ended));
}

pub fn deferred_and_short_connections<T: Transport>(subject: &Subject<T>) {
    let net = (subject.make)(TransportLimits::default());
    let options = ListenOptions { defer: Some(Duration::from_secs(1)), ..ListenOptions::default() };
    let mut bed = Bed::listening(net, subject.at, &options);
    for round in 0..50 {
        let options = ConnectOptions { short: true, ..ConnectOptions::default() };
        let client = bed.net.connect(bed.at, &options).expect("can connect");
        bed.seen.insert(client, ObservedConnection::default());
        bed.net.send(client, b"one request").expect("can send");
        bed.until("the request", |bed| {
            bed.accepted.get(round).is_some_and(|(server, _)| bed.received(*server) == 11)
        });
        let server = bed.accepted[round].0;
        bed.net.send(server, b"one answer").expect("can send");
        bed.net.close(server, Close::Now);
        bed.until("the answer", |bed| bed.of(client).ended);
        assert_eq!(bed.of(client).received, b"one answer");
        assert_eq!(bed.of(client).connected, 1);
        bed.net.close(client, if round % 2 == 0 { Close::Now } else { Close::AfterPeer });
    }
}

pub fn a_waker_ends_the_wait<T: Transport>(subject: &Subject<T>) {
    let mut bed = subject.bed();
    let waker = bed.net.waker();
    let thread = std::thread::spawn(move || {
        std::thread::sleep(Duration::from_millis(20));
        waker.wake();
    });
    let mut events = Vec::new();
    while events.is_empty() {
        bed.net.turn(None, &mut events).expect("a turn");
    }
    assert_eq!(events, [Event::Woken]);
    thread.join().expect("no panic");
}

pub fn a_waker_used_early_is_not_lost<T: Transport>(subject: &Subject<T>) {
    let mut bed = subject.bed();
    for round in 0..3 {
        let waker = bed.net.waker();
        waker.wake();
        waker.clone().wake();
        bed.until("the waker's word", |bed| bed.woken > 0);
        bed.for_a_while(Duration::from_millis(5));
        assert!(bed.woken <= 2, "round {round}: {} for two signals", bed.woken);
        bed.woken = 0;
    }
}

pub fn the_past_is_not_waited_for<T: Transport>(subject: &Subject<T>) {
    let mut bed = subject.bed();
    bed.for_a_while(Duration::from_millis(2));
    let start = Instant::now();
    let mut events = Vec::new();
    for _ in 0..10 {
        bed.net.turn(Some(Time::ZERO), &mut events).expect("a turn");
    }
    assert!(events.is_empty());
    assert!(start.elapsed() < Duration::from_secs(5), "it only looked");
}

pub fn a_deadline_is_kept<T: Transport>(subject: &Subject<T>) {
    let mut bed = subject.bed();
    for micros in [1, 300, 1500, 20_000] {
        let until = bed.net.now() + Duration::from_micros(micros);
        let mut events = Vec::new();
        let mut turns = 0;
        while bed.net.now() < until {
            bed.net.turn(Some(until), &mut events).expect("a turn");
            turns += 1;
        }
        assert!(events.is_empty());
        assert!(turns < 50, "it waits, and does not spin: {turns} turns");
    }
}

pub fn dropped_with_everything_in_flight<T: Transport>(subject: &Subject<T>) {
    let mut bed = subject.bed();
    let lent = bed.net.lend(pattern(subject.bulk).into());
    for _ in 0..10 {
        let (client, server) = bed.pair();
        bed.net.pause(server);
        bed.net.send_lent(client, lent, 0..subject.bulk).expect("can send");
        bed.net.send(client, &pattern(100_000)).expect("can send");
        bed.net.send(server, &pattern(100_000)).expect("can send");
    }
    bed.connect();
    bed.turn(Time::ZERO);
    let (closing, _) = bed.pair();
    bed.net.send_lent(closing, lent, 0..subject.bulk).expect("can send");
    bed.net.close(closing, Close::Lingering);
    bed.turn(Time::ZERO);
    bed.held = Some(Vec::new());
    bed.turn(Time::ZERO);
    drop(bed);
}

pub fn tcp_counters<T: Transport>(subject: &Subject<T>) {
    let mut bed = subject.bed();
    bed.echo = true;
    let (client, server) = bed.pair();
    for round in 1..=3 {
        bed.net.send(client, b"ping").expect("can send");
        bed.until("the echo", |bed| bed.received(client) == 4 * round);
    }
    if let Some(info) = bed.net.info(client) {
        assert!(info.data_segs_out >= 3 && info.data_segs_in >= 3, "{info:?}");
        assert!(info.min_rtt_us > 0, "{info:?}");
        let other = bed.net.info(server).expect("both ends have it");
        assert!(other.data_segs_in >= 3, "{other:?}");
        // The connection still works.
        bed.net.send(client, b"ping").expect("can send");
        bed.until("the echo", |bed| bed.received(client) == 16);
    }
}
