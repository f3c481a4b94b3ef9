//! How connections end, as scripts: what the table keeps, for how long, which connection may reuse
//! an entry, and what happens if it is full.

use std::net::SocketAddr;
use std::time::Duration;

use super::{Remains, TimeWait};
use crate::stack::lab::{Lab, PEER, Seg, seg};
use crate::stack::tuple::Tuple;
use crate::stack::wire::{Options, Seq};
use crate::stack::{StackLimits, StackOptions};
use crate::{Close, ConnectOptions, NetErrorKind, Time, Transport};

const NONE: [&str; 0] = [];

fn with(stack: StackLimits) -> StackOptions {
    StackOptions { stack, ..StackOptions::default() }
}

/// Opens and closes a connection from this port. We close first, so it is in TIME_WAIT.
fn over(lab: &mut Lab, port: u16) {
    lab.peer_port = port;
    lab.hears(seg("S", 0, 0, 0));
    lab.drop_out();
    lab.hears(seg("A", 1, 1, 0));
    lab.close(Close::Now);
    assert_eq!(lab.out(), ["FA 1 ack 1"]);
    lab.hears(seg("FA", 1, 2, 0));
    assert_eq!(lab.out(), ["A 2 ack 2"]);
}

/// RFC 9293 section 3.4.1: twice the maximum segment lifetime, which we take to be 30 s; the peer's
/// FIN restarts it.
#[test]
fn it_lasts_a_minute() {
    assert_eq!(StackLimits::default().time_wait_time, Duration::from_secs(60));
    let mut lab = Lab::listening();
    over(&mut lab, 9);
    lab.pass(Duration::from_secs(50));
    lab.hears(seg("FA", 1, 2, 0));
    assert_eq!(lab.out(), ["A 2 ack 2"], "our ACK was lost");
    lab.pass(Duration::from_secs(59));
    assert_eq!(lab.net.waiting(), (0, 1));
    lab.pass(Duration::from_secs(2));
    assert_eq!(lab.net.waiting(), (0, 0));
    lab.hears(seg("FA", 1, 2, 0));
    assert_eq!(lab.out(), ["R 2"], "nobody knows it any more");
}

/// The oldest entry is dropped and counted. A reset answers a late segment for it, as from a host
/// that has forgotten it.
#[test]
fn a_full_table_forgets_the_oldest() {
    let mut lab = Lab::listening_with(with(StackLimits { time_wait: 3, ..StackLimits::default() }));
    for port in 1..=5 {
        over(&mut lab, port);
    }
    assert_eq!(lab.net.waiting(), (0, 3));
    let stats = lab.net.stats();
    assert_eq!((stats.time_waits, stats.time_waits_cut, stats.passive_opens), (5, 2, 5));
    lab.pass(Duration::from_secs(1));
    for (port, resets) in [(1, 1), (2, 2), (3, 2), (4, 2), (5, 2)] {
        lab.peer_port = port;
        lab.hears(seg("FA", 1, 2, 0));
        assert_eq!((lab.take_out().len(), lab.net.stats().resets_out), (1, resets), "port {port}");
    }
    // A peer whose entry was dropped can reconnect at once.
    lab.peer_port = 1;
    lab.hears(seg("S", 0, 0, 0));
    assert_eq!(lab.out(), ["SA 0 ack 1"]);
    lab.pass(Duration::from_secs(200));
    assert_eq!(lab.net.waiting(), (0, 0), "nothing is left behind");
}

/// RFC 9293 section 3.10.7.4: a reset with exactly the next number ends it. Otherwise a host whose
/// clocks restarted could not use the same port for a minute. RFC 1337's old resets have other
/// numbers.
#[test]
fn a_reset_ends_it_with_exactly_the_next_number() {
    let mut lab = Lab::listening();
    over(&mut lab, 9);
    for seq in [0, 1, 3, 1000, 0u32.wrapping_sub(1000)] {
        lab.hears(seg("R", seq, 0, 0));
        assert_eq!((lab.out(), lab.net.waiting()), (Vec::<String>::new(), (0, 1)), "{seq}");
    }
    lab.hears(seg("R", 2, 0, 0));
    assert_eq!((lab.out(), lab.net.waiting()), (Vec::<String>::new(), (0, 0)));
    lab.hears(seg("S", 0u32.wrapping_sub(9000), 0, 0));
    assert_eq!(lab.net.waiting(), (1, 0), "it comes back");
}

/// RFC 6191 section 2: a later timestamp allows a new connection even with a lower number; an
/// earlier one forbids it even with a higher.
#[test]
fn timestamps_decide_who_begins_anew() {
    let options = Options { mss: Some(1000), timestamps: Some((5_000, 0)), ..Options::default() };
    let mut lab = Lab::accepted(options);
    lab.close(Close::Now);
    lab.drop_out();
    lab.hears(seg("FA", 1, 2, 0).ts(5_000, lab.now_ms()));
    assert_eq!(lab.net.waiting(), (0, 1));
    lab.drop_out();
    lab.pass_ms(600);
    let syn = |seq: u32, value: u32| seg("S", seq, 0, 0).ts(value, 0);
    lab.hears(syn(90_000, 4_999));
    assert_eq!(lab.out(), ["A 2 ack 2"], "an old SYN that was delayed on its way");
    lab.hears(syn(0u32.wrapping_sub(90_000), 5_001));
    let (answer, _) = lab.take_out().pop().expect("an answer");
    assert_eq!((answer.flags.0, lab.net.waiting(), lab.net.stats().time_waits_reused), (18, (1, 0), 1));
}

fn connect(lab: &mut Lab) -> Result<(), NetErrorKind> {
    let conn = lab.net.connect(SocketAddr::new(PEER, 80), &ConnectOptions::default());
    lab.conn = Some(conn.map_err(|e| e.kind)?);
    lab.turn();
    Ok(())
}

/// A port whose last connection is in TIME_WAIT is reused after a second if timestamps tell old
/// segments from new ones, otherwise not.
#[test]
fn our_own_ports_are_taken_again_where_that_is_safe() {
    for timestamps in [false, true] {
        let mut lab = Lab::new(with(StackLimits { ports: (7000, 7000), ..StackLimits::default() }));
        lab.peer_port = 80;
        let stamped = |seg: Seg, lab: &Lab| if timestamps { seg.ts(100, lab.now_ms()) } else { seg };
        connect(&mut lab).expect("the port is free");
        lab.drop_out();
        let syn_ack = stamped(seg("SA", 0, 1, 0), &lab);
        lab.hears(syn_ack);
        lab.close(Close::Now);
        let fin = stamped(seg("FA", 1, 2, 0), &lab);
        lab.hears(fin);
        lab.drop_out();
        assert_eq!(lab.net.waiting(), (0, 1));
        assert_eq!(connect(&mut lab), Err(NetErrorKind::PortsExhausted), "the last ACK may be on its way");
        lab.pass_ms(1_100);
        let again = connect(&mut lab);
        assert_eq!(again.is_ok(), timestamps);
        assert_eq!(lab.net.stats().time_waits_reused, u64::from(timestamps));
        lab.pass(Duration::from_secs(60));
        assert!(timestamps || connect(&mut lab).is_ok(), "after a minute it is free in any case");
    }
}

/// A connection from this port, made by a SYN cookie: its first segment returns the cookie and
/// carries 100 bytes.
fn by_cookie(lab: &mut Lab) -> Seg {
    lab.hears(seg("S", 0, 0, 0));
    lab.drop_out();
    assert!(lab.net.stats().cookies_sent > 0, "nothing more can be kept");
    let first = seg("PA", 1, 1, 100);
    lab.hears(first);
    assert_eq!((lab.net.stats().cookies_taken, lab.received.len()), (1, 100));
    lab.drop_out();
    first
}

/// A listener that keeps no more handshakes, because another one has the only place.
fn flooded() -> Lab {
    let mut lab = Lab::listening_with(with(StackLimits { handshakes: 1, ..StackLimits::default() }));
    lab.peer_port = 1;
    lab.hears(seg("S", 0, 0, 0));
    lab.drop_out();
    lab.peer_port = 9;
    lab
}

/// The peer closed first, so no TIME_WAIT is due. But a late copy of the segment with the cookie
/// would make the connection again, and deliver its request a second time.
#[test]
fn what_a_cookie_made_is_remembered_whoever_closes_first() {
    let mut lab = flooded();
    let first = by_cookie(&mut lab);
    lab.hears(seg("FA", 101, 1, 0));
    lab.close(Close::Now);
    lab.hears(seg("A", 102, 2, 0));
    lab.drop_out();
    assert_eq!((lab.net.waiting(), lab.net.stats().time_waits), ((1, 1), 1));
    lab.hears(first);
    assert_eq!((lab.net.stats().cookies_taken, lab.received.len()), (1, 100), "no second time");
    lab.pass(Duration::from_secs(61));
    assert_eq!(lab.net.waiting().1, 0);
}

/// The same if it ended by a reset, the peer's or ours.
#[test]
fn what_a_cookie_made_is_remembered_after_a_reset() {
    let mut lab = flooded();
    let first = by_cookie(&mut lab);
    lab.hears(seg("R", 101, 0, 0));
    assert_eq!(lab.failed, Some(NetErrorKind::Reset));
    lab.close(Close::Now);
    lab.hears(first);
    assert_eq!((lab.net.stats().cookies_taken, lab.net.waiting().1), (1, 1));

    let mut lab = flooded();
    let first = by_cookie(&mut lab);
    lab.close(Close::Abort);
    assert_eq!(lab.out(), ["RA 1 ack 101"]);
    lab.hears(first);
    assert_eq!(lab.net.stats().cookies_taken, 1);
    lab.drop_out();
    // Our reset was lost: another one answers new data. A late copy of the first segment still
    // creates nothing.
    lab.hears(seg("PA", 101, 1, 50));
    assert_eq!((lab.out(), lab.net.waiting().1), (vec!["R 1".to_owned()], 1));
    lab.hears(first);
    assert_eq!(lab.net.stats().cookies_taken, 1);
}

/// A bare ACK or a FIN that overtook the segment with the cookie belongs to a good connection: a
/// reset would end it.
#[test]
fn what_overtakes_a_cookie_is_not_answered_by_a_reset() {
    let mut lab = flooded();
    lab.hears(seg("S", 0, 0, 0));
    lab.drop_out();
    for early in [seg("A", 101, 1, 0), seg("FA", 101, 1, 0), seg("PA", 51, 1, 50)] {
        lab.hears(early);
        assert_eq!(lab.out(), NONE);
    }
    lab.hears(seg("PA", 1, 1, 100));
    assert_eq!((lab.net.stats().cookies_taken, lab.received.len()), (1, 100));
    // A segment that does not acknowledge a recent cookie belongs to no connection.
    lab.drop_out();
    lab.peer_port = 10;
    lab.hears(seg("A", 1, 1 << 28, 0));
    assert_eq!(lab.out(), [format!("R {}", 1 << 28)]);
}

/// Whatever is added and removed, even at one instant, entries are ordered by time, and none is
/// left behind.
#[test]
fn the_order_is_that_of_time() {
    let mut table = TimeWait::new(1000, Duration::from_secs(60));
    let mut model: Vec<(u32, Time)> = Vec::new();
    let (mut now, mut random) = (Time::from_nanos(1), 7u64);
    for _ in 0..20_000 {
        random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let pick = |n: usize| (random >> 40) as usize % n.max(1);
        match random >> 61 {
            0..=3 if !table.is_full() => {
                let numbers = (Seq(1), Seq(2), None);
                let index = table.insert(0, Remains::new(Tuple::default(), numbers, false, now));
                model.push((index, now));
            }
            4 if !model.is_empty() => {
                let (index, _) = model.remove(pick(model.len()));
                assert!(table.remove(index).is_some());
            }
            5 if !model.is_empty() => {
                let (index, _) = model.remove(pick(model.len()));
                table.begin_anew(now, index);
                model.push((index, now));
            }
            6 => now = now + Duration::from_millis(random >> 50 & 0xfff),
            _ => {}
        }
        while let Some(index) = table.expired(now) {
            assert_eq!(model.remove(0).0, index);
            table.remove(index);
        }
        assert_eq!((table.oldest(), table.len()), (model.first().map(|(i, _)| *i), model.len()));
        assert_eq!(table.next(), model.first().map(|(_, at)| *at + Duration::from_secs(60)));
    }
}
