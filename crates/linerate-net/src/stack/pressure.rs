//! Peers that leave gaps: how much memory they can occupy, and that other connections are not
//! affected.

use allocation_counter::measure;

use super::lab::{Lab, seg};
use super::pool::BLOCK;
use super::wire::Options;
use super::{StackLimits, StackOptions};

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
