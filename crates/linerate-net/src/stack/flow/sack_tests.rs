//! Selective acknowledgements of gaps and of duplicates.

use crate::stack::lab::{Lab, seg};
use crate::stack::wire::Options;

/// A peer with SACK and without timestamps, so that four blocks fit.
fn accepted() -> Lab {
    Lab::accepted(Options { mss: Some(1460), sack_permitted: true, ..Options::default() })
}

/// Sends segments of a hundred bytes that begin there; each gets an ACK of its own.
fn with_gaps(starts: &[u32]) -> Lab {
    let mut lab = accepted();
    starts.iter().for_each(|start| lab.hears(seg("A", *start, 1, 100)));
    lab.drop_out();
    lab
}

/// RFC 2018 section 4: behind the first block, the most recently reported come first.
#[test]
fn the_most_recent_blocks_come_first() {
    let mut lab = with_gaps(&[201, 601, 401]);
    lab.hears(seg("A", 801, 1, 100));
    assert_eq!(lab.out(), ["A 1 ack 1 sack 801:901 401:501 601:701 201:301"]);
    // Four fit: the one that arrived longest ago is left out.
    lab.hears(seg("A", 1001, 1, 100));
    assert_eq!(lab.out(), ["A 1 ack 1 sack 1001:1101 801:901 401:501 601:701"]);
    // A range that grows counts as recent again.
    lab.hears(seg("A", 301, 1, 50));
    assert_eq!(lab.out(), ["A 1 ack 1 sack 201:351 1001:1101 801:901 401:501"]);
}

/// If there are more gaps than fit, every one is still reported, whatever came in one turn.
#[test]
fn every_new_block_is_told() {
    let mut lab = accepted();
    [201, 401, 601, 801, 1001].iter().for_each(|start| lab.queue(seg("A", *start, 1, 100)));
    lab.turn();
    let out = lab.out();
    assert_eq!(
        out,
        [
            "A 1 ack 1 sack 1001:1101 801:901 601:701 401:501",
            "A 1 ack 1 sack 1001:1101 201:301 801:901 601:701",
        ]
    );
}

/// RFC 2883 section 4.2: part of a segment was received before.
#[test]
fn a_part_that_came_before_is_told() {
    // Below the acknowledged number, and into a gap.
    let mut lab = accepted();
    lab.hears(seg("A", 1, 1, 100));
    lab.hears(seg("A", 201, 1, 100));
    lab.drop_out();
    lab.hears(seg("A", 51, 1, 100));
    assert_eq!(lab.out(), ["A 1 ack 151 sack 51:101 201:301"]);
    // Its end is known: the next bytes fill the gap and reach into the range behind it.
    lab.hears(seg("A", 151, 1, 75));
    assert_eq!(lab.out(), ["A 1 ack 301 sack 201:226"]);
    // Out of order: over the start of a range, over its end, and over all of it.
    lab.hears(seg("A", 501, 1, 100));
    assert_eq!(lab.out(), ["A 1 ack 301 sack 501:601"]);
    lab.hears(seg("A", 451, 1, 100));
    assert_eq!(lab.out(), ["A 1 ack 301 sack 501:551 451:601"]);
    lab.hears(seg("A", 551, 1, 100));
    assert_eq!(lab.out(), ["A 1 ack 301 sack 551:601 451:651"]);
    lab.hears(seg("A", 401, 1, 300));
    assert_eq!(lab.out(), ["A 1 ack 301 sack 451:651 401:701"]);
}

/// RFC 2883 section 4: of several parts received before, the first is reported.
#[test]
fn one_of_several_known_parts_is_told() {
    let mut lab = with_gaps(&[201, 401, 601]);
    lab.hears(seg("A", 251, 1, 400));
    assert_eq!(lab.out(), ["A 1 ack 1 sack 251:301 201:701"]);
    lab.hears(seg("A", 1, 1, 300));
    assert_eq!(lab.out(), ["A 1 ack 701 sack 201:301"]);
}

/// RFC 2883 section 4.1: the whole segment was acknowledged before.
#[test]
fn what_was_acknowledged_before_is_told() {
    let mut lab = accepted();
    lab.hears(seg("A", 1, 1, 300));
    lab.hears(seg("A", 501, 1, 100));
    lab.drop_out();
    lab.hears(seg("A", 101, 1, 100));
    assert_eq!(lab.out(), ["A 1 ack 301 sack 101:201 501:601"]);
    // It is reported once.
    lab.hears(seg("A", 701, 1, 100));
    assert_eq!(lab.out(), ["A 1 ack 301 sack 701:801 501:601"]);
}

/// Without the option, nothing is reported.
#[test]
fn a_peer_without_sack_is_told_nothing() {
    let mut lab = Lab::accepted(Options { mss: Some(1460), ..Options::default() });
    lab.hears(seg("A", 1, 1, 300));
    lab.drop_out();
    lab.hears(seg("A", 101, 1, 100));
    lab.hears(seg("A", 501, 1, 100));
    assert_eq!(lab.out(), ["A 1 ack 301", "A 1 ack 301"]);
}
