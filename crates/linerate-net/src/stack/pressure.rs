//! Peers that leave gaps, and peers that stop reading: how much memory they can occupy, and that
//! other connections are not affected.

use allocation_counter::measure;

use super::lab::{Lab, seg};
use super::pool::BLOCK;
use super::wire::Options;
use super::{StackLimits, StackOptions};
use crate::{Conn, NetErrorKind, Transport};

/// The attack: this many connections, with this many single bytes behind gaps on each. 26 MB on the
/// wire.
const CONNECTIONS: u16 = 4000;
const GAPS: u32 = 120;
/// Memory that it may add, bytes. Without a budget it added 1.1 GB, and no connection had memory
/// left.
const MOST: u64 = 100_000_000;
/// Port of the honest client.
const HONEST: u16 = 9;

fn peer() -> Options {
    Options { mss: Some(1460), sack_permitted: true, window_scale: Some(7), ..Options::default() }
}

/// Opens a connection from this port, as the lab's own.
fn open(lab: &mut Lab, port: u16) {
    lab.peer_port = port;
    let mut syn = seg("S", 0, 0, 0);
    syn.options = peer();
    lab.hears(syn);
    lab.drop_out();
    lab.hears(seg("A", 1, 1, 0));
    lab.drop_out();
}

/// Sends the bytes, close together or far apart.
fn attack(lab: &mut Lab) {
    for port in 0..CONNECTIONS {
        let apart = if port % 2 == 0 { 2 } else { 1500 };
        open(lab, 1000 + port);
        for gap in 1..=GAPS {
            lab.queue(seg("A", 1 + gap * apart, 1, 1));
        }
        lab.turn();
        lab.drop_out();
    }
}

/// A request whose segments come in the wrong order, and its response.
fn exchange(lab: &mut Lab) {
    open(lab, HONEST);
    lab.received.clear();
    for first in [2921, 1461, 1] {
        lab.hears(seg("PA", first, 1, 1460));
    }
    assert_eq!(lab.received.len(), 3 * 1460, "{:?}", lab.net.stats());
    lab.send(1000);
    assert_eq!(lab.out().last().map(String::as_str), Some("PA 1:1001 ack 4381"));
}

#[test]
fn single_bytes_with_gaps_silence_nobody() {
    let mut lab = Lab::listening();
    let added = measure(|| attack(&mut lab)).bytes_max;
    println!("{added} bytes");
    assert!(added < MOST, "{added} bytes");
    exchange(&mut lab);
}

/// One connection holds no more than its own window allows.
#[test]
fn a_connection_is_charged_for_what_it_keeps() {
    const WINDOW: u32 = 8192;
    let stack = StackLimits { ranges: usize::MAX, first_window: WINDOW, ..StackLimits::default() };
    let mut lab = Lab::listening_with(StackOptions { stack, ..StackOptions::default() });
    open(&mut lab, 1000);
    // Every second byte, from the far end of the window.
    for at in (1..WINDOW / 2).rev() {
        lab.hears(seg("A", 2 * at, 1, 1));
        lab.drop_out();
    }
    let kept = lab.net.core.shared.pool.early();
    assert!(kept > 0 && kept <= 2 * WINDOW as usize + BLOCK, "{kept} bytes for a window of {WINDOW}");
    // Data in order is still accepted.
    lab.hears(seg("PA", 1, 1, 1460));
    assert!(lab.received.len() >= 1460);
}

/// The gaps open longest are dropped in favor of those of honest peers.
#[test]
fn the_oldest_gap_gives_way() {
    let stack = StackLimits { early_bytes: 100_000, ..StackLimits::default() };
    let mut lab = Lab::listening_with(StackOptions { stack, ..StackOptions::default() });
    for port in 0..100 {
        open(&mut lab, 1000 + port);
        (0..50).for_each(|gap| lab.hears(seg("A", 3 + 2 * gap, 1, 1)));
        lab.drop_out();
        lab.pass_ms(1);
    }
    let early = lab.net.core.shared.pool.early();
    assert!((80_000..=100_000).contains(&early), "{early}");
    assert!(lab.net.stats().bytes_dropped > 50 * 50);
    exchange(&mut lab);
}

/// Opens a connection whose peer then closes its window.
fn open_and_stop(lab: &mut Lab, port: u16) -> Conn {
    open(lab, port);
    lab.hears(seg("A", 1, 1, 0).win(0));
    lab.conn.expect("accepted")
}

/// Hands over pieces as an application that watches what is unsent, up to `most` bytes beyond the
/// send buffer.
fn fill(lab: &mut Lab, conn: Conn, most: usize) -> Result<(), crate::NetError> {
    let piece = vec![7; 16 << 10];
    for _ in 0..1024 {
        if lab.net.unsent(conn) > most {
            return Ok(());
        }
        lab.net.send(conn, &piece)?;
    }
    panic!("{} bytes and no end", 1024 * piece.len());
}

/// A peer that admits nothing needs no buffer of 1 MiB.
#[test]
fn readers_that_stop_hold_little() {
    const READERS: u16 = 1000;
    let mut lab = Lab::listening();
    for port in 0..READERS {
        let conn = open_and_stop(&mut lab, 1000 + port);
        assert_eq!(lab.net.send_room(conn), 64 << 10);
        fill(&mut lab, conn, 0).expect("there is memory");
        assert_eq!(lab.net.send_room(conn), 0);
        lab.turn();
        lab.drop_out();
    }
    let held = lab.net.core.shared.pool.bytes_in_use();
    assert!(held <= usize::from(READERS) * (80 << 10), "{held} bytes");
}

/// The send buffer follows both windows.
#[test]
fn the_send_buffer_is_twice_what_the_windows_admit() {
    let mut lab = Lab::listening();
    open(&mut lab, HONEST);
    let conn = lab.conn.expect("accepted");
    let (mut sent, mut largest) = (0, 0);
    for _ in 0..2000 {
        fill(&mut lab, conn, 0).expect("there is memory");
        let entry = lab.net.core.table.get(conn).expect("it is open");
        let buffer = entry.flow.send_room(&lab.net.core.shared) + entry.flow.queued();
        assert!(buffer <= (1 << 20) + (16 << 10), "{buffer}");
        largest = largest.max(buffer);
        lab.pass_ms(10);
        sent += lab.take_out().iter().map(|(_, payload)| payload.len() as u32).sum::<u32>();
        lab.hears(seg("A", 1, 1 + sent, 0).win(u16::MAX));
    }
    assert!(largest >= 1 << 20, "{largest}: a fast path has all of it");
    fill(&mut lab, conn, 0).expect("there is memory");
    assert!(lab.net.unsent(conn) <= 16 << 10);
    lab.hears(seg("A", 1, 1 + sent, 0).win(0));
    assert_eq!(lab.net.send_room(conn), 0);
    assert!(lab.net.unsent(conn) > 256 << 10, "the buffer has shrunk with the window");
}

fn memory(buffer_bytes: usize) -> StackOptions {
    StackOptions { stack: StackLimits { buffer_bytes, ..StackLimits::default() }, ..StackOptions::default() }
}

/// The less memory is free, the less each may have, and a newcomer always finds some.
#[test]
fn many_readers_that_stop_leave_room_for_others() {
    let mut lab = Lab::listening_with(memory(64 << 20));
    for port in 0..1000 {
        let conn = open_and_stop(&mut lab, 1000 + port);
        while lab.net.send_room(conn) > 0 {
            let room = lab.net.send_room(conn);
            lab.net.send(conn, &vec![7; room]).expect("there is memory");
        }
        lab.turn();
        lab.drop_out();
    }
    exchange(&mut lab);
    assert_eq!(lab.net.stats().stalled_ended, 0);
}

/// An application that hands over more than there is room for: those beyond their share are refused
/// at once, and those stalled longest end, but no connection that moves.
#[test]
fn connections_that_do_not_move_give_way() {
    const READERS: u16 = 200;
    let mut lab = Lab::listening_with(memory(16 << 20));
    let mut readers = Vec::new();
    let mut refused = 0;
    for port in 0..READERS {
        let conn = open_and_stop(&mut lab, 1000 + port);
        readers.push(conn);
        if let Err(error) = fill(&mut lab, conn, 256 << 10) {
            assert_eq!(error.kind, NetErrorKind::NoMemory);
            refused += 1;
        }
        lab.pass_ms(1);
        lab.drop_out();
    }
    assert!(refused > 0 && refused < READERS, "{refused} are refused");
    exchange(&mut lab);
    let mover = lab.conn.expect("accepted");
    let failed = |lab: &Lab, conn: Conn| lab.net.core.table.get(conn).and_then(|e| e.flow.error).is_some();
    let ended = readers.iter().take_while(|conn| failed(&lab, **conn)).count();
    assert_eq!(lab.net.stats().stalled_ended, ended as u64, "those stalled longest");
    assert!(ended > 0 && ended < 100, "{ended} were stalled for 100 ms");
    // Later even the reserve is made again, and one that moves is spared.
    lab.pass_ms(998);
    lab.hears(seg("A", 4381, 1001, 0));
    lab.send(100_000);
    lab.pass_ms(2);
    lab.drop_out();
    let late = open_and_stop(&mut lab, 2000);
    fill(&mut lab, late, 256 << 10).expect("others gave way");
    lab.turn();
    assert!(lab.net.stats().stalled_ended > ended as u64);
    assert!(!failed(&lab, mover) && !failed(&lab, late));
    assert!(lab.out().iter().any(|segment| segment.starts_with('R')), "the peers are told");
}
