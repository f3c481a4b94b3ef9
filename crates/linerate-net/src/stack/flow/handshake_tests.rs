//! Unusual handshakes.

use crate::NetErrorKind;
use crate::stack::lab::{Lab, Seg, seg};
use crate::stack::wire::{Message, Options};

/// RFC 7323 sections 2.2 and 3.2, RFC 2018 section 2: if SYNs cross, our answer has the options of
/// the peer's SYN, and our MSS does not change.
#[test]
fn a_crossing_syn_is_answered_with_what_it_offers() {
    let offers = [
        Options { mss: Some(536), ..Options::default() },
        Options { mss: Some(1460), sack_permitted: true, ..Options::default() },
        Options { mss: Some(1460), timestamps: Some((7, 0)), window_scale: Some(3), ..Options::default() },
    ];
    for offer in offers {
        let mut lab = Lab::connecting();
        lab.turn();
        let first = lab.take_out();
        assert_eq!(first[0].0.options.mss, Some(1460));
        let mut syn = seg("S", 0, 0, 0);
        syn.options = offer;
        lab.hears(syn);
        let answer = &lab.take_out()[0].0.options;
        assert_eq!(answer.mss, Some(1460));
        assert_eq!(answer.sack_permitted, offer.sack_permitted);
        assert_eq!(answer.window_scale, offer.window_scale.and(first[0].0.options.window_scale));
        assert_eq!(answer.timestamps.map(|(_, echo)| echo), offer.timestamps.map(|(value, _)| value));
    }
}

/// RFC 7323 section 4.1: with timestamps, a SYN that came twice still gives the round trip. A first
/// segment that is lost is then sent again soon, not after a second.
#[test]
fn a_syn_that_came_twice_still_gives_the_round_trip() {
    for (timestamps, soon) in [(true, true), (false, false)] {
        let mut lab = Lab::listening();
        let with = |s: Seg, echo: u32| if timestamps { s.ts(100, echo) } else { s };
        let mut syn = with(seg("S", 0, 0, 0), 0);
        (syn.options.mss, syn.options.sack_permitted) = (Some(1000), true);
        lab.hears(syn);
        lab.hears(syn);
        assert_eq!(lab.take_out().len(), 2);
        let echo = lab.now_ms();
        lab.pass_ms(10);
        lab.hears(with(seg("A", 1, 1, 5), echo));
        lab.send(8);
        lab.drop_out();
        lab.pass_ms(300);
        assert_eq!(!lab.out().is_empty(), soon);
    }
}

/// RFC 5961 section 3.2 and RFC 9293 section 3.10.7.4: in SYN-RECEIVED too, an ACK answers a reset
/// inside the window with the wrong number.
#[test]
fn a_reset_in_the_window_of_a_handshake_is_challenged() {
    let mut lab = Lab::listening();
    lab.hears(seg("S", 0, 0, 0));
    assert_eq!(lab.out(), ["SA 0 ack 1"]);
    lab.pass_ms(200);
    lab.hears(seg("R", 500, 0, 0));
    assert_eq!(lab.out(), ["A 1 ack 1"]);
    // At a limited rate, and not for a reset outside of the window.
    lab.hears(seg("RA", 501, 1, 0));
    lab.pass_ms(200);
    lab.hears(seg("R", 65_536, 0, 0));
    assert_eq!((lab.out(), lab.net.waiting()), (vec![], (1, 0)));
    lab.hears(seg("R", 1, 0, 0));
    assert_eq!((lab.out(), lab.net.waiting()), (vec![], (0, 0)));
}

/// RFC 9293 section 3.10.7.4, second check: a reset in SYN-RECEIVED refuses a connection that we
/// opened.
#[test]
fn a_reset_after_crossing_syns_is_a_refusal() {
    let mut lab = Lab::connecting();
    lab.turn();
    assert_eq!(lab.out(), ["S 0"]);
    lab.hears(seg("S", 0, 0, 0));
    assert_eq!(lab.out(), ["SA 0 ack 1"]);
    lab.hears(seg("R", 1, 0, 0));
    assert_eq!(lab.failed, Some(NetErrorKind::Refused));
}

/// RFC 9293 section 3.10.7.2: a listener answers SYNs and segments with an ACK, nothing else. A
/// closed port answers everything.
#[test]
fn a_listener_is_silent_on_what_begins_nothing() {
    for flags in ["F", "", "FP", "SF", "SFP"] {
        let mut probe = seg("S", 17, 0, 3);
        probe.flags = flags.chars().fold(0, |all, flag| all | seg(&flag.to_string(), 0, 0, 0).flags);
        let mut lab = Lab::listening();
        lab.hears(probe);
        assert_eq!((lab.out().len(), lab.net.waiting()), (0, (0, 0)), "{flags}");
        lab.port = 81;
        lab.hears(probe);
        assert_eq!(lab.out().len(), 1, "{flags} for a closed port");
    }
}

/// RFC 9293 section 3.10.7.4, first check: a reset right behind the window is outside. One at its
/// last byte is challenged.
#[test]
fn a_reset_right_behind_the_window() {
    let mut lab = Lab::accepted(Options { mss: Some(1460), ..Options::default() });
    lab.hears(seg("R", 65_536, 0, 0));
    assert!(lab.out().is_empty());
    lab.hears(seg("R", 65_535, 0, 0));
    assert_eq!(lab.out(), ["A 1 ack 1"]);
    assert_eq!(lab.failed, None);
}

/// RFC 5927 section 5.2, RFC 1122 section 4.2.3.9: hard errors end an attempt if they quote its SYN.
#[test]
fn a_destination_that_cannot_be_reached_ends_an_attempt() {
    let cases = [
        (2, Some(NetErrorKind::Unreachable)),
        (3, Some(NetErrorKind::Refused)),
        (9, Some(NetErrorKind::Unreachable)),
        (10, Some(NetErrorKind::Unreachable)),
        (13, Some(NetErrorKind::Unreachable)),
        (0, None),
        (1, None),
        (5, None),
    ];
    for (code, expected) in cases {
        let mut lab = Lab::connecting();
        lab.turn();
        let syn = lab.packets().remove(0);
        let message = Message::of_kind(&syn, (3, code), 0);
        // A guess of the sequence number ends nothing.
        let mut guessed = syn.clone();
        guessed[24 + 3] ^= 1;
        lab.hears_bytes(&Message::of_kind(&guessed, (3, code), 0));
        assert_eq!(lab.failed, None, "code {code}");
        lab.hears_bytes(&message);
        assert_eq!(lab.failed, expected, "code {code}");
        assert_eq!(lab.net.stats().failed_opens, u64::from(expected.is_some()));
    }
}

/// A connection in use goes on: its retransmissions tell whether the peer is there.
#[test]
fn a_connection_does_not_end_by_a_message() {
    let mut lab = Lab::accepted(Options { mss: Some(1000), ..Options::default() });
    lab.send(100);
    let segment = lab.packets().remove(0);
    for code in [2, 3, 9, 10, 13] {
        lab.hears_bytes(&Message::of_kind(&segment, (3, code), 0));
    }
    assert_eq!((lab.failed, lab.net.stats().unreachable_refused), (None, 5));
    lab.hears(seg("A", 1, 101, 0));
    lab.send(100);
    assert_eq!(lab.out().last().map(String::as_str), Some("PA 101:201 ack 1"));
}
