//! Connections that the application has closed.

use crate::stack::lab::{Lab, Seg, seg};
use crate::stack::wire::{Options, TcpHeader};
use crate::{Close, Transport};

fn lab() -> Lab {
    Lab::accepted(Options { mss: Some(1000), sack_permitted: true, ..Options::default() })
}

/// A silent peer: retransmissions are seconds apart by then, and the end does not wait for the next.
#[test]
fn an_orphan_ends_when_its_patience_does() {
    for (sent, how) in [(2500, Close::Now), (0, Close::Now), (0, Close::AfterPeer)] {
        let mut lab = lab();
        lab.send(sent);
        lab.close(how);
        // The peer's FIN is waited for first.
        lab.pass_ms(if how == Close::AfterPeer { 1_000 } else { 0 });
        lab.pass_ms(9_900);
        assert_eq!(lab.net.unfinished(), 1, "{sent} {how:?}");
        lab.pass_ms(200);
        assert_eq!(lab.net.unfinished(), 0, "{sent} {how:?}");
    }
}

/// The timeout had grown before the application closed.
#[test]
fn an_orphan_does_not_wait_for_a_late_timeout() {
    let mut lab = lab();
    lab.send(2500);
    lab.pass_ms(60_000);
    lab.close(Close::Now);
    lab.pass_ms(9_900);
    assert_eq!(lab.net.unfinished(), 1);
    lab.pass_ms(200);
    assert_eq!(lab.net.unfinished(), 0);
}

/// Advances the time and answers each window probe with a closed window.
fn pass_with_answers(lab: &mut Lab, ms: u64, answer: Seg) {
    for _ in 0..ms / 10 {
        lab.pass_ms(10);
        if lab.take_out().iter().any(|(tcp, _): &(TcpHeader, _)| tcp.seq == lab.first()) {
            lab.hears(answer);
        }
    }
}

/// A peer that keeps its window closed may answer probes for ever.
#[test]
fn an_orphan_ends_though_its_probes_are_answered() {
    let mut lab = lab();
    let closed = seg("A", 1, 1, 0).win(0);
    lab.hears(closed);
    lab.send(100);
    lab.close(Close::Now);
    pass_with_answers(&mut lab, 9_900, closed);
    assert_eq!(lab.net.unfinished(), 1);
    pass_with_answers(&mut lab, 200, closed);
    assert_eq!(lab.net.unfinished(), 0);
}

/// A slow reader has the last response whole, however long that takes.
#[test]
fn an_orphan_whose_peer_reads_slowly_goes_on() {
    let mut lab = lab();
    lab.hears(seg("A", 1, 1, 0).win(1000));
    lab.send(10_000);
    lab.close(Close::Now);
    let mut next = 1;
    for piece in 1.. {
        lab.pass_ms(8_000);
        for (tcp, payload) in lab.take_out() {
            next = next.max(tcp.seq - lab.first() + payload.len() as u32);
        }
        if next > 10_000 {
            assert!(piece >= 10, "{piece} pieces");
            break;
        }
        assert_eq!(lab.net.unfinished(), 1, "after {piece} pieces and {next} bytes");
        lab.hears(seg("A", 1, next, 0).win(1000));
    }
    // The FIN.
    lab.hears(seg("A", 1, 10_002, 0));
    assert_eq!(lab.net.unfinished(), 0);
}
