//! The counters of a connection's segments.

use crate::Transport;
use crate::stack::lab::{Lab, Seg, seg};
use crate::stack::wire::Options;

fn accepted() -> Lab {
    Lab::accepted(Options { mss: Some(1000), sack_permitted: true, ..Options::default() })
}

fn hear_all(lab: &mut Lab, segments: impl IntoIterator<Item = Seg>) {
    for segment in segments {
        lab.hears(segment);
        lab.drop_out();
    }
}

#[test]
fn windows_that_peers_close_and_that_we_fill() {
    let mut lab = accepted();
    lab.hears(seg("A", 1, 1, 0).win(300));
    lab.send(300);
    assert_eq!(lab.out(), ["PA 1:301 ack 1"]);
    assert_eq!(lab.net.stats().windows_filled, 1);
    hear_all(&mut lab, [seg("A", 1, 301, 0).win(0), seg("A", 1, 301, 0).win(0)]);
    let stats = lab.net.stats();
    assert_eq!((stats.zero_windows_in, stats.zero_windows_out, stats.zero_windows), (2, 0, 0), "{stats:?}");
    let info = lab.net.info(lab.conn.expect("accepted")).expect("it is there");
    assert_eq!(info.peer_window, Some(0));
    assert!(info.own_window > Some(10_000), "{info:?}");
}

#[test]
fn windows_that_we_close() {
    let mut lab = accepted();
    let conn = lab.conn.expect("accepted");
    lab.net.pause(conn);
    let mut announced = 0;
    for i in 0..70 {
        lab.hears(seg("A", 1 + i * 1000, 1, 1000));
        lab.pass_ms(5);
        announced += lab.take_out().iter().filter(|(tcp, _)| tcp.window == 0).count() as u64;
    }
    assert!(announced > 0);
    assert_eq!(lab.net.stats().zero_windows_out, announced);
    assert_eq!(lab.net.info(conn).and_then(|i| i.own_window), Some(0));
}

#[test]
fn duplicate_acks_of_both_ends() {
    let mut lab = accepted();
    // A gap: each segment behind it gets an ACK with the same number.
    hear_all(&mut lab, [201, 301, 401].map(|seq| seg("A", seq, 1, 100)));
    let stats = lab.net.stats();
    assert_eq!((stats.duplicate_acks_out, stats.out_of_order, stats.duplicates_in), (3, 3, 0), "{stats:?}");
    // The gap is filled, and filled again.
    hear_all(&mut lab, [seg("A", 1, 1, 200), seg("A", 1, 1, 200), seg("A", 101, 1, 400)]);
    let stats = lab.net.stats();
    assert_eq!((stats.duplicate_acks_out, stats.duplicates_in), (3, 2), "{stats:?}");
    lab.send(3000);
    lab.drop_out();
    hear_all(&mut lab, (0..2).map(|_| seg("A", 501, 1, 0)));
    assert_eq!(lab.net.stats().duplicate_acks_in, 2);
    // A new window makes it no duplicate.
    hear_all(&mut lab, [seg("A", 501, 1, 0).win(9000)]);
    assert_eq!(lab.net.stats().duplicate_acks_in, 2);
}

/// The second of two segments is acknowledged before the first.
#[test]
fn segments_that_overtook_one_another() {
    let mut lab = accepted();
    lab.send(2000);
    lab.drop_out();
    let mut behind = seg("A", 1, 1, 0);
    behind.options.sack.push(crate::stack::wire::Seq(1001), crate::stack::wire::Seq(2001));
    hear_all(&mut lab, [behind, seg("A", 1, 2001, 0)]);
    assert_eq!(lab.net.info(lab.conn.expect("accepted")).map(|i| i.reordered), Some(1));
}
