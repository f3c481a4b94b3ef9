//! Explicit congestion notification (RFC 3168).

use super::Congestion;
use crate::stack::lab::{Lab, Seg, seg};
use crate::stack::wire::Options;
use crate::stack::{StackLimits, StackOptions, UseOfEcn};

const MSS: u32 = 1000;

fn with(ecn: UseOfEcn) -> StackOptions {
    StackOptions { ecn, ..StackOptions::default() }
}

fn syn(flags: &str) -> Seg {
    let mut syn = seg(flags, 0, 0, 0);
    syn.options = Options { mss: Some(MSS as u16), sack_permitted: true, ..Options::default() };
    syn
}

/// A connection that the peer opened and that uses ECN.
fn agreed() -> Lab {
    let mut lab = Lab::listening();
    lab.hears(syn("SEW"));
    assert_eq!(lab.out(), ["SAE 0 ack 1"]);
    lab.pass_ms(10);
    lab.hears(seg("A", 1, 1, 0));
    lab.drop_out();
    lab
}

fn congestion(lab: &Lab) -> &Congestion {
    let conn = lab.conn.expect("accepted");
    &lab.net.core.table.get(conn).expect("it lives").flow.congestion
}

fn window(lab: &Lab) -> u32 {
    congestion(lab).window
}

/// Section 6.1.1. A SYN that asks is not marked itself.
#[test]
fn a_listener_agrees_with_who_asks_alone() {
    for (ecn, asked, answer) in [
        (UseOfEcn::Accept, syn("SEW"), "SAE 0 ack 1"),
        (UseOfEcn::Ask, syn("SEW"), "SAE 0 ack 1"),
        (UseOfEcn::Off, syn("SEW"), "SA 0 ack 1"),
        (UseOfEcn::Accept, syn("S"), "SA 0 ack 1"),
        (UseOfEcn::Accept, syn("SE"), "SA 0 ack 1"),
        (UseOfEcn::Accept, syn("SW"), "SA 0 ack 1"),
        (UseOfEcn::Accept, syn("SEW").marked(), "SA 0 ack 1"),
    ] {
        let mut lab = Lab::listening_with(with(ecn));
        lab.hears(asked);
        assert_eq!(lab.out(), [answer], "{ecn:?}");
        lab.pass_ms(10);
        lab.hears(seg("A", 1, 1, 0));
        lab.send(10);
        let uses = answer.starts_with("SAE");
        assert_eq!(lab.out(), [if uses { "PA 1:11 ack 1 ect" } else { "PA 1:11 ack 1" }]);
    }
}

/// Section 6.1.1: ECE alone agrees; both flags are an echo of ours. Section 6.1.1.1: a SYN that is
/// sent again does not ask, and what answers it then agrees to nothing.
#[test]
fn a_client_asks_once_and_takes_agreement_alone() {
    for (ecn, again, answer, uses) in [
        (UseOfEcn::Ask, false, "SAE", true),
        (UseOfEcn::Ask, false, "SAEW", false),
        (UseOfEcn::Ask, false, "SA", false),
        (UseOfEcn::Ask, true, "SAE", false),
        (UseOfEcn::Accept, false, "SAE", false),
    ] {
        let mut lab = Lab::connecting_with(with(ecn));
        lab.turn();
        assert_eq!(lab.out(), [if ecn == UseOfEcn::Ask { "SEW 0" } else { "S 0" }]);
        if again {
            lab.pass_ms(1001);
            assert_eq!(lab.out(), ["S 0"]);
        }
        lab.hears(Seg { flags: seg(answer, 0, 0, 0).flags, ack: 1, ..syn("S") });
        lab.send(10);
        let data = lab.out().pop().expect("data");
        assert_eq!(data.ends_with(" ect"), uses, "{ecn:?} {again} {answer}: {data}");
    }
}

/// Section 6.1.1, on crossing SYNs: our own must have asked.
#[test]
fn crossing_syns_agree_if_both_asked() {
    for (ecn, asked, answer) in [
        (UseOfEcn::Ask, "SEW", "SAE 0 ack 1"),
        (UseOfEcn::Ask, "S", "SA 0 ack 1"),
        (UseOfEcn::Accept, "SEW", "SA 0 ack 1"),
    ] {
        let mut lab = Lab::connecting_with(with(ecn));
        lab.turn();
        lab.drop_out();
        lab.hears(syn(asked));
        assert_eq!(lab.out(), [answer], "{ecn:?} {asked}");
    }
}

/// Sections 6.1.4 to 6.1.6: a mark must not be lost with its packet, so only new data may get one.
#[test]
fn only_new_data_may_be_marked() {
    let mut lab = agreed();
    lab.send(2500);
    assert_eq!(lab.out(), ["A 1:1001 ack 1 ect", "A 1001:2001 ack 1 ect", "PA 2001:2501 ack 1 ect"]);
    lab.pass_ms(400);
    assert!(lab.out().iter().all(|again| !again.ends_with(" ect")), "retransmissions");
    lab.hears(seg("PA", 1, 2501, 2500));
    assert_eq!(lab.out(), ["A 2501 ack 2501"]);
    lab.hears(seg("A", 2501, 2501, 0).win(0));
    lab.send(10);
    lab.pass_ms(2000);
    let probes = lab.out();
    assert!(!probes.is_empty() && probes.iter().all(|probe| !probe.ends_with(" ect")), "{probes:?}");
}

/// Section 6.1.3.
#[test]
fn a_mark_is_told_until_the_peer_sends_less() {
    let mut lab = agreed();
    // It is told at once, although an ACK of one segment could wait.
    lab.hears(seg("PA", 1, 1, 100).marked());
    assert_eq!(lab.out(), ["AE 1 ack 101"]);
    lab.hears(seg("A", 101, 1, 1000));
    lab.hears(seg("A", 1101, 1, 1000));
    assert_eq!(lab.out(), ["AE 1 ack 2101"]);
    lab.send(10);
    assert_eq!(lab.out(), ["PAE 1:11 ack 2101 ect"]);
    lab.hears(seg("AW", 2101, 11, 1000));
    assert_eq!(lab.out(), ["A 11 ack 3101"]);
    // It says that it sends less, and its segment has met the next queue.
    lab.hears(seg("AW", 3101, 11, 1000).marked());
    assert_eq!(lab.out(), ["AE 11 ack 4101"]);
    assert_eq!(lab.net.stats().marks_in, 2);
}

/// Section 6.1.5: what is outside of the window may be forged.
#[test]
fn marks_outside_of_the_window_do_not_count() {
    let mut lab = agreed();
    lab.hears(seg("A", 1 << 20, 1, 1000).marked());
    assert_eq!(lab.out(), ["A 1 ack 1"]);
    let mut lab = Lab::accepted(Options::default());
    lab.hears(seg("PA", 1, 1, 1000).marked());
    lab.pass_ms(5);
    assert_eq!(lab.out(), ["A 1 ack 1001"], "a peer that has not asked");
}

/// Section 6.1.2: once in a window of data, and the next new segment says so.
#[test]
fn the_window_is_reduced_once_in_a_window_of_data() {
    let mut lab = agreed();
    lab.send(30_000);
    assert_eq!((lab.out().len(), window(&lab)), (10, 10 * MSS));
    lab.hears(seg("AE", 1, 2001, 0));
    assert_eq!((window(&lab), lab.out()), (7 * MSS, Vec::new()), "eight are in flight");
    lab.hears(seg("AE", 1, 4001, 0));
    assert_eq!((window(&lab), lab.out()), (7 * MSS, vec!["AW 10001:11001 ack 1 ect".to_owned()]));
    lab.hears(seg("AE", 1, 10001, 0));
    assert_eq!(window(&lab), 7 * MSS);
    assert!(lab.out().iter().all(|new| new.starts_with("A ")), "it was told once");
    // The next window.
    lab.hears(seg("AE", 1, 11001, 0));
    assert_eq!((window(&lab), lab.net.stats().marks_heeded), (4900, 2));
    lab.hears(seg("A", 1, 16001, 0));
    assert!(lab.out().iter().any(|new| new.starts_with("AW ")), "it was told again");
    assert_eq!(lab.net.stats().retransmits, 0);
}

/// Section 6.1.2: marks and losses of one window count once, whichever is first.
#[test]
fn a_loss_and_a_mark_in_one_window_count_once() {
    // The ACK of a loss may still grow the window.
    for (marks_first, threshold) in [(true, 7000), (false, 7700)] {
        let mut lab = agreed();
        lab.send(30_000);
        lab.drop_out();
        let mut behind = seg("A", 1, 1001, 0);
        behind.options.sack.push(crate::stack::wire::Seq(2001), crate::stack::wire::Seq(10_001));
        let marked = seg("AE", 1, 1001, 0);
        lab.hears(if marks_first { marked } else { seg("A", 1, 1001, 0) });
        lab.pass_ms(1);
        lab.hears(behind);
        if !marks_first {
            lab.hears(marked);
        }
        assert!(lab.packets().len() > 1, "the lost one has left again");
        lab.pass_ms(1);
        lab.hears(seg("A", 1, 10_001, 0));
        assert_eq!(congestion(&lab).threshold, threshold, "marks first: {marks_first}");
        let out = lab.out();
        assert!(out.iter().any(|new| new.contains("W ")), "a loss is told as well: {out:?}");
    }
}

/// A cookie has room for it in the timestamp alone.
#[test]
fn a_cookie_keeps_it_in_the_timestamp() {
    for timestamps in [true, false] {
        let stack = StackLimits { handshakes: 0, ..StackLimits::default() };
        let mut lab = Lab::listening_with(StackOptions { stack, ..StackOptions::default() });
        let with = |s: Seg, echo: u32| if timestamps { s.ts(100, echo) } else { s };
        lab.hears(with(syn("SEW"), 0));
        let (answer, _) = lab.take_out()[0].clone();
        assert_eq!(answer.agrees_to_ecn(), timestamps);
        let echo = answer.options.timestamps.map_or(0, |(value, _)| value.wrapping_sub(lab.offset()));
        lab.hears(with(seg("A", 1, 1, 0), echo));
        lab.send(10);
        assert_eq!(lab.out().pop().is_some_and(|data| data.ends_with(" ect")), timestamps);
    }
}
