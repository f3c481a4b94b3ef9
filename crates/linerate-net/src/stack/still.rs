//! A process that is held up: it lost its CPU, or its application took long. The peer's packets
//! wait in the link meanwhile, and no data may count as lost before they are read.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::thread;
use std::time::Duration;

use super::Stack;
use super::StackOptions;
use super::lab::{Lab, Seg, seg};
use super::wire::Options;
use crate::link::sim::{Sim, SimEnd, SimOptions};
use crate::{Close, ConnectOptions, Event, ListenOptions, Time, Transport};

const NONE: [&str; 0] = [];
/// Longer than every timeout of a connection with a short round trip.
const LONG: Duration = Duration::from_millis(300);
/// Unrelated packets in one batch.
const A_BATCH: usize = 256;

/// A connection with a round trip of 10 ms.
fn warm() -> Lab {
    let options =
        Options { mss: Some(1000), sack_permitted: true, window_scale: Some(7), ..Options::default() };
    let mut lab = Lab::accepted(options);
    lab.send(10);
    lab.pass_ms(10);
    lab.hears(seg("A", 1, 11, 0));
    lab.drop_out();
    lab
}

/// A segment that changes nothing.
fn noise() -> Seg {
    seg("A", 1, 11, 0).win(60_000)
}

#[test]
fn an_ack_behind_many_packets_is_found() {
    let mut lab = warm();
    lab.send(2500);
    assert_eq!(lab.out().len(), 3);
    // More than one turn takes in.
    (0..4 * A_BATCH).for_each(|_| lab.queue(noise()));
    lab.queue(seg("A", 1, 2511, 0));
    lab.net.link.now = lab.net.link.now + LONG;
    (0..4).for_each(|_| lab.turn());
    assert_eq!(lab.out(), NONE);
    assert_eq!(lab.net.stats().retransmits, 0);
}

/// A link that always has more packets must not stop the timers.
#[test]
fn timers_run_though_packets_never_end() {
    let mut lab = warm();
    lab.send(2500);
    assert_eq!(lab.out().len(), 3);
    lab.net.link.now = lab.net.link.now + LONG;
    let mut turns = 0;
    while lab.net.stats().retransmits == 0 {
        (0..3 * A_BATCH).for_each(|_| lab.queue(noise()));
        lab.turn();
        turns += 1;
        assert!(turns < 100);
    }
}

/// Sends; unacknowledged data is probed two round trips after it left.
fn sends_and_probes_after_its_full_time(lab: &mut Lab) {
    lab.send(2500);
    assert_eq!(lab.out().len(), 3);
    lab.turn();
    assert_eq!(lab.out(), NONE);
    lab.pass_ms(19);
    assert_eq!(lab.out(), NONE);
    // Two round trips, and the ticks of the wheel.
    lab.pass_ms(3);
    assert_eq!(lab.out().len(), 1);
}

/// Data from a slow application counts as sent when it leaves, not when its turn began.
#[test]
fn what_a_slow_application_sends_has_its_full_time() {
    let mut lab = warm();
    lab.net.link.now = lab.net.link.now + LONG;
    sends_and_probes_after_its_full_time(&mut lab);
}

/// The flush took long, so the peer could not answer before.
#[test]
fn what_leaves_late_has_its_full_time() {
    let mut lab = warm();
    lab.net.link.stands_still = LONG;
    sends_and_probes_after_its_full_time(&mut lab);
}

/// RFC 9293 section 3.8.6.3 lets an ACK wait to travel with a response, but not for as long as a
/// slow application takes.
#[test]
fn acks_leave_before_a_slow_application_has_its_turn() {
    let mut lab = warm();
    let mut events = Vec::new();
    lab.queue(seg("PA", 1, 11, 100));
    lab.net.turn(Some(Time::ZERO), &mut events).expect("a turn");
    assert!(matches!(events[..], [Event::Readable { .. }]));
    assert_eq!(lab.out(), NONE, "an answer may carry it");
    // The application takes its time, and then there is more to read.
    lab.net.link.now = lab.net.link.now + Duration::from_millis(10);
    lab.queue(seg("PA", 101, 11, 100));
    lab.net.turn(Some(Time::ZERO), &mut events).expect("a turn");
    assert_eq!(lab.out(), ["A 11 ack 201"]);
}

#[test]
fn one_turn_lends_a_part_of_much() {
    const SEGMENTS: usize = 250;
    let mut lab = warm();
    (0..SEGMENTS).for_each(|i| lab.queue(seg("A", 1 + 1000 * i as u32, 11, 1000)));
    let mut events = Vec::new();
    let mut pieces = Vec::new();
    for _ in 0..3 {
        lab.net.turn(Some(Time::ZERO), &mut events).expect("a turn");
        for event in events.drain(..) {
            let Event::Readable { data, .. } = event else { continue };
            let mut len = 0;
            lab.net.receive(data, |bytes| len += bytes.len());
            pieces.push(len);
        }
    }
    let most = lab.net.core.shared.limits.lent_per_turn;
    assert_eq!(pieces.iter().sum::<usize>(), 1000 * SEGMENTS);
    assert!(pieces.len() == 2 && pieces[0] <= most + 4096, "{pieces:?}");
}

const SERVER: IpAddr = IpAddr::V4(Ipv4Addr::new(10, 0, 0, 1));
const CLIENT: IpAddr = IpAddr::V4(Ipv4Addr::new(10, 0, 0, 2));
const BYTES: usize = 20_000_000;

fn on(end: SimEnd, address: IpAddr) -> Stack<SimEnd> {
    Stack::new(end, StackOptions { addresses: vec![address], seed: Some(7), ..StackOptions::default() })
}

/// Reads one connection to its end.
fn take_all(mut net: Stack<SimEnd>) -> usize {
    net.listen(SocketAddr::new(SERVER, 80), &ListenOptions::default()).expect("can listen");
    let (mut received, mut events, mut open) = (0, Vec::new(), true);
    while open {
        net.turn(None, &mut events).expect("a turn");
        for event in events.drain(..) {
            let Event::Readable { conn, data } = event else { continue };
            if net.receive(data, |bytes| received += bytes.len()) == crate::After::Ended {
                net.close(conn, Close::Now);
                open = false;
            }
        }
    }
    while net.unfinished() > 0 {
        net.turn(None, &mut events).expect("a turn");
    }
    received
}

/// Over a network without losses, a sender that repeatedly loses its CPU retransmits nothing.
#[test]
fn a_sender_that_stands_still_sends_nothing_again() {
    let sim = Sim::new(SimOptions { delay: Duration::from_millis(1), ..SimOptions::default() });
    let server = on(sim.end(&[SERVER]).expect("a descriptor"), SERVER);
    let mut client = on(sim.end(&[CLIENT]).expect("a descriptor"), CLIENT);
    thread::scope(|scope| {
        let received = scope.spawn(|| take_all(server));
        let conn = client.connect(SocketAddr::new(SERVER, 80), &ConnectOptions::default()).expect("begun");
        let mut events = Vec::new();
        client.turn(None, &mut events).expect("a turn");
        client.send(conn, &vec![1; BYTES]).expect("sent");
        client.close(conn, Close::Now);
        let mut turns = 0;
        while client.unfinished() > 0 {
            client.turn(None, &mut events).expect("a turn");
            turns += 1;
            if turns % 2 == 0 {
                client.link_mut().stand_still(LONG).expect("time goes on");
            }
        }
        let stats = client.stats();
        assert_eq!((stats.retransmits, stats.tail_probes, stats.timeouts), (0, 0, 0), "{stats:?}");
        assert!(turns >= 10, "{turns}: it stood still often");
        drop(client);
        assert_eq!(received.join().expect("the server's end"), BYTES);
    });
}
