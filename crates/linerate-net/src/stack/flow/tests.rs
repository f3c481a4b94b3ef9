//! Scripted situations: the peer's segments and their times, and our answers. Numbers are relative
//! to the initial ones.

use std::time::Duration;

use crate::stack::lab::{Lab, Seg, byte_at, seg};
use crate::stack::wire::{Options, Sack, Seq};
use crate::stack::{StackLimits, StackOptions};
use crate::{Close, FlowState, NetErrorKind, Transport};

const NONE: [&str; 0] = [];

/// A peer with SACK, which nearly all have.
fn with_sack() -> Options {
    Options { mss: Some(1000), sack_permitted: true, ..Options::default() }
}

fn with_timestamps() -> Options {
    Options { timestamps: Some((100, 0)), ..with_sack() }
}

/// An ACK with SACK blocks.
fn sack(ack: u32, blocks: &[(u32, u32)]) -> Seg {
    let mut s = seg("A", 1, ack, 0);
    let mut sack = Sack::default();
    for (start, end) in blocks {
        sack.push(Seq(*start), Seq(*end));
    }
    s.options.sack = sack;
    s
}

/// An established connection with a measured round trip of 10 ms and nothing in flight.
fn warm(options: Options) -> Lab {
    let mut lab = Lab::accepted(options);
    lab.send(10);
    assert_eq!(lab.out(), ["PA 1:11 ack 1"]);
    lab.pass_ms(10);
    lab.hears(seg("A", 1, 11, 0));
    lab.drop_out();
    lab
}

/// RFC 9293 section 3.5, figure 6: the handshake, data at once with its ACK, and the close of both
/// sides.
#[test]
fn a_connection_from_its_begin_to_its_end() {
    let mut lab = Lab::listening();
    lab.hears(seg("S", 0, 0, 0));
    assert_eq!(lab.out(), ["SA 0 ack 1"]);
    lab.hears(seg("PA", 1, 1, 100));
    assert_eq!(lab.received.len(), 100);
    // The response carries the ACK, and the FIN with it.
    let conn = lab.conn.expect("accepted");
    lab.net.send(conn, &[1; 50]).expect("can send");
    lab.close(Close::Now);
    assert_eq!(lab.out(), ["FPA 1:51 ack 101"]);
    lab.hears(seg("FA", 101, 52, 0));
    assert_eq!(lab.out(), ["A 52 ack 102"]);
    assert_eq!(lab.net.waiting(), (0, 1), "only TIME_WAIT remembers it");
    lab.pass(Duration::from_secs(61));
    assert_eq!(lab.net.waiting(), (0, 0));
}

/// A connection as its users see it, from its open to its close.
#[test]
fn a_connection_is_shown_as_it_is() {
    let shown = |lab: &Lab| {
        let mut all = Vec::new();
        assert_eq!(lab.net.flows(0, 10, |flow| all.push(flow)), None);
        assert!(all.len() <= 1);
        all.pop()
    };
    let mut lab = warm(with_timestamps());
    let flow = shown(&lab).expect("it is there");
    assert_eq!((flow.state, flow.tcp.rtt_us, flow.idle_ms), (FlowState::Established, 10_000, 0));
    assert_eq!((flow.unread_bytes, flow.unsent_bytes, flow.unacked_bytes), (0, 0, 0));
    assert_eq!((flow.ssthresh_bytes, flow.mss_bytes), (None, 988));
    // More than the congestion window takes: the rest waits, and no ACK comes.
    lab.send(20_000);
    let flow = shown(&lab).expect("it is there");
    assert_eq!((flow.unacked_bytes, flow.unsent_bytes), (9880, 20_000 - 9880));
    lab.pass_ms(5);
    assert_eq!(shown(&lab).map(|flow| flow.idle_ms), Some(5));
    lab.pass(Duration::from_secs(3));
    let later = shown(&lab).expect("it is there");
    assert!(later.tcp.retransmits > 0 && later.rto_us > flow.rto_us, "{later:?}");
    assert!(later.ssthresh_bytes.is_some() && later.cwnd_bytes < flow.cwnd_bytes, "{later:?}");
    lab.hears(seg("R", 1, 20_011, 0));
    assert_eq!(shown(&lab).map(|flow| (flow.state, flow.unsent_bytes)), Some((FlowState::Closed, 0)));
    lab.close(Close::Now);
    assert_eq!(shown(&lab), None);
}

/// RFC 9293 section 3.10.7.3: a reset answers a bad ACK in SYN-SENT, or the peer's TIME_WAIT would
/// stall us.
#[test]
fn a_bad_ack_in_syn_sent() {
    let mut lab = Lab::connecting();
    lab.turn();
    assert_eq!(lab.out(), ["S 0"]);
    lab.hears(seg("A", 500, 77, 0));
    assert_eq!(lab.out(), ["R 77"]);
    // The SYN follows soon, not after a second.
    lab.pass_ms(2);
    assert_eq!(lab.out(), ["S 0"]);
    lab.pass_ms(500);
    assert!(lab.out().is_empty());
    lab.hears(seg("SA", 0, 1, 0));
    assert_eq!(lab.out(), ["A 1 ack 1"]);
    // Nothing was lost, so the initial window is a full one (RFC 6928).
    lab.send(20_000);
    assert_eq!(lab.out().len(), 10);
}

/// A peer that keeps an earlier connection (tcp_rfc1337=1) never accepts the port: another port is
/// tried at once, and nothing counts as lost.
#[test]
fn a_second_bad_ack_in_syn_sent_moves_the_connection_to_another_port() {
    let mut lab = Lab::connecting();
    lab.turn();
    let mut ports = vec![lab.syn_port()];
    lab.hears(seg("A", 500, 77, 0));
    assert_eq!(lab.out(), ["R 77"]);
    lab.pass_ms(2);
    assert_eq!(lab.out(), ["S 0"]);
    // From now on each such answer costs a port. An attacker who forges them cannot make us retry
    // forever.
    for _ in 0..30 {
        lab.hears(seg("A", 500, 77, 0));
        let out = lab.take_out();
        assert_eq!(out.iter().filter(|(tcp, _)| tcp.flags.0 == 4).count(), 1, "a reset each time");
        ports.extend(out.iter().filter(|(tcp, _)| tcp.flags.0 == 2).map(|(tcp, _)| tcp.src_port));
    }
    let moved = lab.net.stats().ports_moved;
    assert_eq!((ports.len(), moved), (16, 15));
    ports.sort_unstable();
    ports.dedup();
    assert_eq!(ports.len(), 16, "each is tried once");
    lab.hears(seg("SA", 0, 1, 0));
    assert_eq!(lab.out(), ["A 1 ack 1"]);
    lab.send(20_000);
    assert_eq!(lab.out().len(), 10);
    assert_eq!((lab.net.stats().retransmits, lab.net.stats().timeouts), (0, 0));
    lab.close(Close::Abort);
    assert_eq!(lab.net.unfinished(), 0);
}

/// A peer that accepted the SYN learns of the close (RFC 9293 section 3.10.7.4), though its answer
/// finds us gone.
#[test]
fn closed_before_the_answer_to_its_syn() {
    let mut lab = Lab::connecting();
    lab.turn();
    assert_eq!(lab.out(), ["S 0"]);
    lab.close(Close::Now);
    assert_eq!(lab.out(), ["R 1"]);
    lab.pass_ms(3000);
    assert_eq!(lab.out(), NONE);
}

/// RFC 9293 section 3.10.7.3: a reset in SYN-SENT needs the right ACK.
#[test]
fn a_reset_in_syn_sent() {
    let mut lab = Lab::connecting();
    lab.turn();
    lab.drop_out();
    lab.hears(seg("RA", 0, 77, 0));
    lab.hears(seg("R", 0, 0, 0));
    assert_eq!((lab.failed, lab.out()), (None, vec![]));
    lab.hears(seg("RA", 0, 1, 0));
    assert_eq!(lab.failed, Some(NetErrorKind::Refused));
}

/// RFC 9293 section 3.5, figure 7: both ends send a SYN at once.
#[test]
fn simultaneous_open() {
    let mut lab = Lab::connecting();
    lab.turn();
    assert_eq!(lab.out(), ["S 0"]);
    lab.hears(seg("S", 0, 0, 0));
    assert_eq!(lab.out(), ["SA 0 ack 1"]);
    lab.hears(seg("A", 1, 1, 0));
    lab.send(5);
    assert_eq!(lab.out(), ["PA 1:6 ack 1"]);
}

/// RFC 6298 section 2.1, 5.5 and 5.7: a SYN is retransmitted after 1, 2, 4 ... seconds, and then
/// given up.
#[test]
fn a_syn_that_nobody_answers() {
    let mut lab = Lab::connecting();
    lab.turn();
    assert_eq!(lab.out(), ["S 0"]);
    lab.pass_ms(5);
    for wait in [1, 2, 4, 8, 16, 32] {
        lab.pass_ms(wait * 1000 - 10);
        assert_eq!(lab.out(), NONE, "before {wait} s");
        lab.pass_ms(10);
        assert_eq!(lab.out(), ["S 0"], "after {wait} s");
    }
    lab.pass_ms(70_000);
    assert_eq!(lab.failed, Some(NetErrorKind::TimedOut));
}

/// RFC 5961 section 3.2: a reset must have exactly the next number; a challenge ACK answers one
/// elsewhere in the window.
#[test]
fn resets_that_somebody_made_up() {
    let mut lab = Lab::accepted(with_sack());
    lab.hears(seg("R", 70_000_000, 0, 0));
    assert_eq!(lab.out(), NONE, "outside of the window: nothing");
    lab.hears(seg("R", 100, 0, 0));
    assert_eq!((lab.failed, lab.out()), (None, vec!["A 1 ack 1".to_owned()]));
    lab.hears(seg("R", 200, 0, 0));
    assert_eq!(lab.out(), NONE, "section 10: at a limited rate");
    lab.hears(seg("R", 1, 0, 0));
    assert_eq!(lab.failed, Some(NetErrorKind::Reset));
}

/// RFC 5961 section 4.2: a challenge ACK answers a SYN on an established connection, whatever its
/// number.
#[test]
fn a_syn_in_an_established_connection() {
    let mut lab = Lab::accepted(with_sack());
    lab.hears(seg("S", 1, 0, 0));
    assert_eq!((lab.failed, lab.out()), (None, vec!["A 1 ack 1".to_owned()]));
}

/// RFC 5961 section 5.2: an ACK of data never sent has no effect.
#[test]
fn an_ack_of_what_was_never_sent() {
    let mut lab = warm(with_sack());
    lab.hears(seg("PA", 1, 500, 20));
    assert_eq!((lab.received.len(), lab.out()), (0, vec!["A 11 ack 1".to_owned()]));
}

/// RFC 7323 section 5.3: a segment with an old timestamp is refused (PAWS) and answered by an ACK.
#[test]
fn old_timestamps() {
    let mut lab = Lab::accepted(with_timestamps());
    lab.hears(seg("PA", 1, 1, 10).ts(200, 0));
    lab.pass_ms(10);
    lab.drop_out();
    lab.hears(seg("PA", 11, 1, 10).ts(150, 0));
    assert_eq!((lab.received.len(), lab.out()), (10, vec!["A 1 ack 11".to_owned()]));
    lab.hears(seg("PA", 11, 1, 10).ts(200, 0));
    assert_eq!(lab.received.len(), 20);
}

/// RFC 5681 section 4.2: every second full segment is acknowledged at once, a single one within the
/// delay; RFC 9293 section 3.8.6.3: less than 500 ms.
#[test]
fn acknowledgements_are_delayed_a_little() {
    let mut lab = Lab::accepted(with_sack());
    lab.hears(seg("A", 1, 1, 1000));
    assert_eq!(lab.out(), NONE);
    lab.pass_ms(5);
    assert_eq!(lab.out(), ["A 1 ack 1001"]);
    lab.hears(seg("A", 1001, 1, 1000));
    lab.hears(seg("A", 2001, 1, 1000));
    assert_eq!(lab.out(), ["A 1 ack 3001"]);
}

/// RFC 2018 section 4: early data is reported at once, the latest block first; RFC 2883: duplicates
/// are reported before it.
#[test]
fn gaps_and_duplicates_are_told() {
    let mut lab = Lab::accepted(with_sack());
    lab.hears(seg("A", 1001, 1, 1000));
    assert_eq!(lab.out(), ["A 1 ack 1 sack 1001:2001"]);
    lab.hears(seg("A", 3001, 1, 1000));
    assert_eq!(lab.out(), ["A 1 ack 1 sack 3001:4001 1001:2001"]);
    lab.hears(seg("A", 1001, 1, 1000));
    assert_eq!(lab.out(), ["A 1 ack 1 sack 1001:2001 1001:2001 3001:4001"]);
    lab.hears(seg("A", 1, 1, 1000));
    assert_eq!(lab.out(), ["A 1 ack 2001 sack 3001:4001"]);
    lab.hears(seg("A", 2001, 1, 1000));
    assert_eq!((lab.received.len(), lab.out()), (4000, vec!["A 1 ack 4001".to_owned()]));
}

/// Five segments are in flight, and the first is lost. RFC 8985 section 6.2: with three behind the
/// gap it is retransmitted at once.
#[test]
fn fast_retransmit() {
    let mut lab = warm(with_sack());
    lab.send(5000);
    assert_eq!(lab.out().len(), 5);
    lab.pass_ms(10);
    lab.hears(sack(11, &[(1011, 2011)]));
    assert_eq!(lab.out(), NONE, "it may only have been overtaken");
    lab.hears(sack(11, &[(1011, 3011)]));
    lab.hears(sack(11, &[(1011, 4011)]));
    assert_eq!(lab.out(), ["PA 11:1011 ack 1"]);
    lab.hears(seg("A", 1, 5011, 0));
    lab.pass_ms(1000);
    assert_eq!(lab.out(), NONE);
    assert_eq!(lab.net.stats().timeouts, 0);
}

/// RFC 8985 section 6.2, step 5: with fewer behind the gap, after a quarter of the smallest round
/// trip.
#[test]
fn rack_waits_for_what_may_be_overtaken() {
    let mut lab = warm(with_sack());
    lab.send(2000);
    lab.drop_out();
    lab.pass_ms(10);
    lab.hears(sack(11, &[(1011, 2011)]));
    assert_eq!(lab.out(), NONE);
    lab.pass_ms(4);
    assert_eq!(lab.out(), ["PA 11:1011 ack 1"], "2.5 ms and the timer's grain");
}

/// RFC 8985 section 7: the tail of a flight is lost, and nothing reports it. It is probed after two
/// round trips, before the 200 ms of a retransmission timeout.
#[test]
fn a_tail_loss_is_probed() {
    let mut lab = warm(with_sack());
    lab.send(3000);
    assert_eq!(lab.out().len(), 3);
    lab.pass_ms(10);
    lab.hears(seg("A", 1, 1011, 0));
    lab.pass_ms(19);
    assert_eq!(lab.out(), NONE);
    lab.pass_ms(4);
    assert_eq!(lab.out(), ["PA 2011:3011 ack 1"]);
    // The probe's ACK shows the gap.
    lab.pass_ms(10);
    lab.hears(sack(1011, &[(2011, 3011)]));
    lab.pass_ms(4);
    assert_eq!(lab.out(), ["PA 1011:2011 ack 1"]);
    assert_eq!(lab.net.stats().timeouts, 0);
}

/// RFC 8985 section 7.2: a single segment is probed as soon as the peer's delayed ACK is overdue.
#[test]
fn a_single_segment_is_probed() {
    let mut lab = warm(with_sack());
    lab.send(100);
    lab.drop_out();
    lab.pass_ms(69);
    assert_eq!(lab.out(), NONE);
    lab.pass_ms(5);
    assert_eq!(lab.out(), ["PA 11:111 ack 1"]);
}

/// RFC 6298 section 5.5 and 5.6: timeouts double until the connection fails (RFC 9293 section
/// 3.8.3).
#[test]
fn time_outs_double_and_end() {
    let mut lab = warm(with_sack());
    lab.send(100);
    lab.drop_out();
    // The probe, then the timeouts.
    lab.pass_ms(80);
    assert_eq!(lab.out().len(), 1);
    lab.pass_ms(210);
    assert_eq!(lab.out().len(), 1);
    lab.pass_ms(390);
    assert_eq!(lab.out(), NONE);
    lab.pass_ms(60);
    assert_eq!(lab.out().len(), 1);
    lab.pass_ms(300_000);
    assert_eq!(lab.failed, Some(NetErrorKind::TimedOut));
    assert!(lab.out().len() < 12);
}

/// RFC 6298 section 3: data that arrived long ago is acknowledged only when the gap before it is
/// filled; that is no round trip.
#[test]
fn an_ack_behind_a_filled_gap_is_no_sample() {
    let mut lab = warm(Options { mss: Some(1000), ..Options::default() });
    lab.send(3000);
    assert_eq!(lab.out().len(), 3);
    lab.pass_ms(5000);
    lab.drop_out();
    lab.hears(seg("A", 1, 3011, 0));
    let mut rto_us = 0;
    lab.net.flows(0, 1, |flow| rto_us = flow.rto_us);
    assert!(rto_us < 300_000, "{rto_us}");
}

/// RFC 5681 section 3.2 and RFC 6582: a peer without SACK sends three duplicate ACKs, then a
/// partial one.
#[test]
fn without_sack() {
    let mut lab = warm(Options { mss: Some(1000), ..Options::default() });
    lab.send(8000);
    assert_eq!(lab.out().len(), 8);
    lab.pass_ms(10);
    lab.hears(seg("A", 1, 11, 0));
    lab.hears(seg("A", 1, 11, 0));
    assert_eq!(lab.out(), NONE);
    lab.hears(seg("A", 1, 11, 0));
    assert_eq!(lab.out(), ["PA 11:1011 ack 1"]);
    lab.pass_ms(10);
    lab.hears(seg("A", 1, 4011, 0));
    assert_eq!(lab.out(), ["PA 4011:5011 ack 1"], "section 3.2, step 3");
    lab.hears(seg("A", 1, 8011, 0));
    assert_eq!(lab.net.stats().timeouts, 0);
}

/// RFC 3522 and RFC 4015: the ACK of a retransmission echoes the original's timestamp, so the
/// original was late, not lost.
#[test]
fn a_needless_retransmission_is_taken_back() {
    let mut lab = Lab::accepted(with_timestamps());
    let begun = lab.now_ms();
    lab.send(4000);
    lab.drop_out();
    // A delay of a second: the whole flight seems to be lost.
    lab.pass_ms(1000);
    assert!(!lab.out().is_empty());
    lab.hears(seg("A", 1, 2001, 0).ts(101, begun));
    assert_eq!(lab.net.stats().spurious, 1);
    lab.hears(seg("A", 1, 4001, 0).ts(101, begun));
    let before = lab.net.stats().retransmits;
    lab.send(20_000);
    assert!(lab.out().len() >= 10, "the window is what it was");
    assert_eq!(lab.net.stats().retransmits, before);
}

/// RFC 9293 section 3.8.6.1: a closed window is probed at growing intervals, and never given up
/// while the peer answers.
#[test]
fn a_closed_window_is_probed() {
    let mut lab = warm(with_sack());
    lab.hears(seg("A", 1, 11, 0).win(0));
    lab.send(100);
    assert_eq!(lab.out(), NONE);
    let mut probes = 0;
    for _ in 0..400 {
        lab.pass_ms(1000);
        for probe in lab.out() {
            assert_eq!(probe, "A 10 ack 1", "what was acknowledged before");
            probes += 1;
            lab.hears(seg("A", 1, 11, 0).win(0));
        }
    }
    assert!((8..30).contains(&probes), "{probes} probes in 400 s");
    assert_eq!(lab.failed, None);
    lab.hears(seg("A", 1, 11, 0));
    assert_eq!(lab.out(), ["PA 11:111 ack 1"]);
}

/// Counts only if data waits for the window, and the window is known.
#[test]
fn only_a_window_that_holds_data_back_is_counted() {
    let mut lab = Lab::connecting();
    let limited = |lab: &mut Lab| lab.net.info(lab.conn.expect("asked for")).map(|i| i.rwnd_limited_us);
    lab.send(100);
    lab.drop_out();
    lab.pass_ms(50);
    lab.hears(seg("SA", 0, 1, 0).win(150));
    assert_eq!(lab.out(), ["PA 1:101 ack 1"]);
    lab.pass_ms(50);
    assert_eq!(limited(&mut lab), Some(0), "the handshake took that time, and a round trip");
    lab.hears(seg("A", 1, 101, 0).win(0));
    lab.pass_ms(50);
    assert_eq!(limited(&mut lab), Some(0), "a closed window, and nothing waits");
    lab.send(100);
    lab.pass_ms(30);
    assert_eq!(limited(&mut lab), Some(30_000), "it counts while it lasts");
    lab.pass_ms(10);
    lab.drop_out();
    lab.hears(seg("A", 1, 101, 0).win(200));
    assert_eq!(lab.out(), ["PA 101:201 ack 1"]);
    lab.pass_ms(20);
    assert_eq!(limited(&mut lab), Some(40_000), "sent and on its way");
}

/// RFC 9293 section 3.8.6.2.1: a segment that only the window would truncate waits for more room.
#[test]
fn no_silly_windows() {
    let mut lab = warm(with_sack());
    lab.hears(seg("A", 1, 11, 0).win(1100));
    lab.send(3000);
    assert_eq!(lab.out(), ["A 11:1011 ack 1"]);
    lab.hears(seg("A", 1, 1011, 0).win(2500));
    assert_eq!(lab.out(), ["A 1011:2011 ack 1", "PA 2011:3011 ack 1"]);
}

/// RFC 9293 section 3.8.6.2.2 and 3.8.6: our window closes while the application does not read,
/// never shrinks, and opens by a worthwhile step.
#[test]
fn our_window_closes_and_opens() {
    let mut lab = Lab::accepted(with_sack());
    let conn = lab.conn.expect("accepted");
    lab.net.pause(conn);
    let mut seq = 1;
    let mut least = u32::from(u16::MAX);
    for _ in 0..70 {
        lab.hears(seg("A", seq, 1, 1000));
        seq += 1000;
        lab.pass_ms(5);
        for (tcp, _) in lab.take_out() {
            least = least.min(u32::from(tcp.window));
        }
    }
    assert_eq!(least, 0, "it is closed");
    lab.hears(seg("A", seq - 535, 1, 1));
    lab.drop_out();
    lab.net.resume(conn);
    lab.turn();
    let (update, _) = lab.take_out().pop().expect("the peer waits for it");
    assert!(update.window > 10_000, "{}", update.window);
    assert!((65_000..=65_535).contains(&lab.received.len()));
}

/// RFC 9293 section 3.10.7.4: a reset answers data that arrives after we have closed.
#[test]
fn data_for_one_that_is_closed() {
    let mut lab = warm(with_sack());
    lab.close(Close::Now);
    assert_eq!(lab.out(), ["FA 11 ack 1"]);
    lab.hears(seg("A", 1, 12, 0));
    lab.hears(seg("PA", 1, 12, 10));
    assert_eq!(lab.out(), ["R 12"]);
    assert_eq!(lab.net.waiting(), (0, 0));
}

/// RFC 9293 section 3.6, figure 13: both ends close at once.
#[test]
fn simultaneous_close() {
    let mut lab = warm(with_sack());
    lab.close(Close::Now);
    lab.drop_out();
    lab.hears(seg("FA", 1, 11, 0));
    assert_eq!(lab.out(), ["A 12 ack 2"]);
    lab.hears(seg("A", 2, 12, 0));
    assert_eq!(lab.net.waiting(), (0, 1));
}

/// RFC 9293 section 3.10.7.4 and RFC 6191: TIME_WAIT answers another FIN, and lets a new connection
/// begin with higher numbers.
#[test]
fn time_wait() {
    let mut lab = warm(with_sack());
    lab.close(Close::Now);
    lab.hears(seg("FA", 1, 12, 0));
    lab.drop_out();
    lab.pass_ms(600);
    lab.hears(seg("FA", 1, 12, 0));
    assert_eq!((lab.out(), lab.net.waiting()), (vec!["A 12 ack 2".to_owned()], (0, 1)));
    lab.pass_ms(600);
    lab.hears(seg("S", 1, 0, 0));
    assert_eq!(lab.out(), ["A 12 ack 2"], "an old SYN");
    lab.hears(seg("S", 5000, 0, 0));
    let (syn_ack, _) = lab.take_out().pop().expect("a new connection");
    assert_eq!((lab.net.waiting(), syn_ack.flags.0), ((1, 0), 18));
}

/// RFC 9293 section 3.10.7.2, and Linux: a listener does not answer segments without SYN and ACK.
#[test]
fn scans_of_a_listener_are_not_answered() {
    let mut lab = Lab::listening();
    for flags in ["F", "-", "FPU", "SF", "SFPU", "P", "U"] {
        lab.hears(seg(flags, 0, 0, 0));
        assert_eq!((lab.out(), lab.net.waiting()), (Vec::<String>::new(), (0, 0)), "{flags}");
    }
    lab.hears(seg("A", 7, 99, 0));
    assert_eq!(lab.out(), ["R 99"], "an ACK is of a connection that nobody knows");
    lab.hears(seg("S", 0, 0, 0));
    assert_eq!(lab.out(), ["SA 0 ack 1"]);
}

/// RFC 9293 section 3.7.1: a peer that announces no size takes 536 bytes; 0 counts as none.
#[test]
fn a_segment_size_of_nothing_is_the_usual_one() {
    let mut lab = Lab::accepted(Options { mss: Some(0), ..Options::default() });
    lab.send(5000);
    assert_eq!(lab.out().first().map(String::as_str), Some("A 1:537 ack 1"));
}

/// As Linux does it without SO_OOBINLINE: the byte before the pointer is removed from the stream;
/// of several, only the last.
#[test]
fn urgent_data_is_out_of_line() {
    let expect = |lab: &Lab, without: &[u32], last: u32| {
        let stream: Vec<u8> = (1..=last).filter(|n| !without.contains(n)).map(byte_at).collect();
        assert!(lab.received == stream, "{:?} without {without:?}", lab.received.len());
    };
    let mut lab = Lab::accepted(with_sack());
    // Within a segment, at its end, announced before it comes, and in a segment that comes out of
    // order.
    lab.hears(seg("APU", 1, 1, 10).urgent(4));
    expect(&lab, &[4], 10);
    lab.hears(seg("APU", 11, 1, 10).urgent(10));
    expect(&lab, &[4, 20], 20);
    lab.hears(seg("APU", 21, 1, 10).urgent(15));
    lab.hears(seg("AP", 31, 1, 10));
    expect(&lab, &[4, 20, 35], 40);
    lab.hears(seg("APU", 51, 1, 10).urgent(3));
    lab.hears(seg("AP", 41, 1, 10));
    expect(&lab, &[4, 20, 35, 53], 60);
    // A pointer to a byte already read has no effect, nor does a pointer without the flag.
    lab.hears(seg("APU", 51, 1, 10).urgent(3));
    lab.hears(seg("AP", 61, 1, 10).urgent(3));
    expect(&lab, &[4, 20, 35, 53], 70);
    // Two pointers before the first byte is reached: the first byte stays.
    lab.hears(seg("AU", 71, 1, 0).urgent(3));
    lab.hears(seg("AU", 71, 1, 0).urgent(5));
    lab.hears(seg("APF", 71, 1, 10));
    expect(&lab, &[4, 20, 35, 53, 75], 80);
    assert!(lab.ended);
}

/// RFC 9293 section 3.10.7.1: resets for unknown connections have numbers that the peer accepts.
#[test]
fn resets_for_strangers() {
    let mut lab = Lab::new(StackOptions::default());
    lab.hears(seg("S", 0, 0, 0));
    assert_eq!(lab.out(), ["RA 0 ack 1"]);
    lab.hears(seg("A", 7, 99, 10));
    assert_eq!(lab.out(), ["R 99"]);
    lab.hears(seg("R", 7, 0, 0));
    assert_eq!(lab.out(), NONE);
}

/// RFC 9293 section 3.10.7.4: a handshake in progress gets the SYN again, a wrong ACK, a reset.
#[test]
fn handshakes_under_way() {
    let mut lab = Lab::listening();
    lab.hears(seg("S", 0, 0, 0));
    assert_eq!(lab.out(), ["SA 0 ack 1"]);
    lab.pass_ms(200);
    lab.hears(seg("S", 0, 0, 0));
    assert_eq!(lab.out(), ["SA 0 ack 1"]);
    lab.hears(seg("A", 1, 50, 0));
    assert_eq!(lab.out(), ["R 50"]);
    lab.pass_ms(1000);
    assert_eq!(lab.out(), ["SA 0 ack 1"], "RFC 6298: sent again after a second");
    lab.hears(seg("R", 1, 0, 0));
    assert_eq!(lab.net.waiting(), (0, 0));
    assert!(lab.conn.is_none());
}

/// RFC 6928: ten segments at first; RFC 5681 section 3.1: one more for each that is acknowledged.
#[test]
fn the_initial_window() {
    let mut lab = Lab::accepted(with_sack());
    lab.send(50_000);
    assert_eq!(lab.out().len(), 10);
    lab.hears(seg("A", 1, 2001, 0));
    // Paced, and the first ten were sent just now.
    lab.pass_ms(8);
    assert_eq!(lab.out().len(), 4);
}

/// RFC 2018 section 8: after a timeout, all data is retransmitted to a peer that discarded what it
/// had reported.
#[test]
fn a_peer_that_forgets() {
    let mut lab = warm(with_sack());
    lab.send(3000);
    lab.drop_out();
    lab.hears(sack(11, &[(1011, 3011)]));
    lab.pass_ms(3000);
    let out = lab.out();
    assert!(out.iter().all(|segment| segment == "PA 11:1011 ack 1"), "{out:?}");
    lab.hears(seg("A", 1, 1011, 0));
    lab.pass_ms(3000);
    assert!(lab.out().iter().any(|segment| segment.contains("1011:2011")), "the rest too");
}

/// RFC 4987 section 3.6: a flood of SYNs fills the handshake table, and a real connection is made
/// by a cookie with its options and its data intact.
#[test]
fn a_flood_of_syns_stops_nobody() {
    let stack = StackLimits { handshakes: 1000, ..StackLimits::default() };
    let mut lab = Lab::listening_with(StackOptions { stack, ..StackOptions::default() });
    for port in 1000..60_000 {
        lab.peer_port = port;
        lab.queue(seg("S", 0, 0, 0));
        if port % 200 == 0 {
            lab.turn();
            lab.drop_out();
        }
    }
    lab.turn();
    lab.drop_out();
    assert_eq!(lab.net.waiting().0, 1000);
    assert_eq!(lab.net.stats().cookies_sent, 58_000);
    lab.peer_port = 9;
    let mut syn = seg("S", 0, 0, 0);
    syn.options = Options { window_scale: Some(3), ..with_timestamps() };
    lab.hears(syn);
    let (answer, _) = lab.take_out().pop().expect("a cookie");
    let (value, _) = answer.options.timestamps.expect("the peer has them");
    let mut ack = seg("PA", 1, 1, 500);
    // Subtracts the offset that Lab adds to an echo.
    ack.options.timestamps = Some((101, value.wrapping_sub(lab.offset())));
    lab.hears(ack);
    assert_eq!((lab.received.len(), lab.net.stats().cookies_taken), (500, 1));
    lab.send(2000);
    assert_eq!(lab.out(), ["A 1:989 ack 501", "A 989:1977 ack 501", "PA 1977:2001 ack 501"]);
    // Handshakes that are never completed are given up.
    lab.pass(Duration::from_secs(200));
    assert_eq!(lab.net.waiting().0, 0);
}

/// A flood that the link answers too slowly fills the queue of replies, not that of the link. Then
/// no SYN-ACK is dropped, and a real client does not wait a second to repeat its SYN.
#[test]
fn a_full_link_costs_no_answer() {
    let mut lab = Lab::listening();
    lab.net.link.room = 0;
    for port in 1000..21_000 {
        lab.peer_port = port;
        lab.queue(seg("S", 0, 0, 0));
    }
    (0..100).for_each(|_| lab.turn());
    assert_eq!(lab.net.stats().packets_in, 4096, "no more than there is room for answers");
    lab.peer_port = 9;
    lab.queue(seg("S", 0, 0, 0));
    (0..200).for_each(|_| {
        lab.net.link.room = 200;
        lab.turn();
    });
    let out = lab.take_out();
    assert_eq!(out.len(), 20_001, "each SYN has its answer, without a second's wait");
    assert_eq!(out.last().map(|(tcp, _)| tcp.dst_port), Some(9));
    assert_eq!(lab.net.stats().replies_dropped, 0);
}

/// Unanswered handshakes repeat their SYN-ACKs, which leave room for answers to new SYNs.
#[test]
fn repeated_answers_give_way_to_new_ones() {
    let mut lab = Lab::listening();
    for port in 1000..5096 {
        lab.peer_port = port;
        lab.hears(seg("S", 0, 0, 0));
    }
    lab.drop_out();
    lab.net.link.room = 0;
    lab.pass_ms(1002);
    lab.peer_port = 9;
    lab.hears(seg("S", 0, 0, 0));
    lab.net.link.room = usize::MAX;
    lab.turn();
    let out = lab.take_out();
    assert!(out.iter().any(|(tcp, _)| tcp.dst_port == 9), "{} answers", out.len());
    assert_eq!(lab.net.stats().replies_dropped, 0);
}

/// The link is told, so that it keeps more packets whenever the process is held up.
#[test]
fn a_link_is_told_of_a_flood() {
    let mut lab = Lab::listening();
    for port in 1000..2023 {
        lab.peer_port = port;
        lab.hears(seg("S", 0, 0, 0));
    }
    assert_eq!(lab.net.link.floods, 0);
    lab.peer_port = 3000;
    lab.hears(seg("S", 0, 0, 0));
    lab.turn();
    assert!(lab.net.link.floods > 0);
}

/// 100,000 open connections at no more than a kilobyte each, in addition to their buffers.
#[test]
fn a_connection_is_small() {
    let each = size_of::<crate::stack::entry::StackConnection>();
    // A slot's generation, two places in the table of 4-tuples, and a timer.
    assert!(each + 8 + 2 * 2 * 8 + 24 <= 1024, "{each} bytes");
}
