//! Several servers in a capture, windows that are full, calls that are cut.

use super::*;
use crate::passive::findings::Confidence;
use crate::passive::words::{self, PassiveVerdict};

const ALONE: &[u8] = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n";

/// The two parts of a response; the second one leaves when the ACK of the first has come, which was
/// not late, or `after_us` the first.
fn halves(calls: u32, after_us: i64) -> Observation {
    parted(calls, 40_000, 10, after_us)
}

/// The same at that round trip: the first part, so much later its ACK, and so much after it the rest.
fn parted(calls: u32, rtt_us: i64, ack_us: i64, after_us: i64) -> Observation {
    let mut wire = Wire::new();
    wire.opens(0, 40_000, rtt_us);
    for n in 0..calls {
        let at = 1_000_000 * (1 + i64::from(n));
        wire.asks(at, 40_000, n);
        let q = 1_000 + (n + 1) * REQUEST.len() as u32;
        let seq = 5_000 + n * ANSWER.len() as u32;
        let first = at + rtt_us + 100;
        wire.segment(first, (false, 40_000), PSH | ACK, [seq, q], 509, ALONE);
        let next = seq + ALONE.len() as u32;
        wire.segment(first + ack_us, (true, 40_000), ACK, [q, next], 502, b"");
        wire.segment(first + after_us, (false, 40_000), PSH | ACK, [next, q], 509, b"ok");
    }
    wire.finish()
}

/// On a starved machine the rest follows the late ACK too late to be told from a server that makes it then.
#[test]
fn a_pause_that_nothing_explains_is_not_healthy() {
    let said = |after_us| {
        let seen = parted(12, 100, 40_000, after_us);
        let found = findings::of(&seen);
        (words::verdict(&seen, &found), words::headline(&seen, &found)[0].clone(), found.len())
    };
    let (verdict, line, found) = said(47_000);
    assert_eq!((verdict, found), (PassiveVerdict::Inconclusive, 0), "{line}");
    assert!(line.contains("12 of 12 responses paused in the middle for 47.0 ms"), "{line}");
    assert_eq!(said(40_100).0, PassiveVerdict::Caused, "Nagle's algorithm");
    let short = parted(12, 100, 10, 5_000);
    assert_eq!(words::verdict(&short, &findings::of(&short)), PassiveVerdict::Healthy);
}

/// Nagle's algorithm without a delayed ACK costs a round trip. A server that takes as long, to half
/// a millisecond, looks the same; one that takes a little longer does not.
#[test]
fn a_second_part_that_waits_for_an_ack_that_is_not_late() {
    let seen = halves(12, 40_150);
    let found = findings::of(&seen);
    assert_eq!((found[0].cause.id, found[0].calls), ("server-nagle-delayed-ack", 12), "{found:#?}");
    assert!(found[0].evidence[0].contains("which was not late"), "{:?}", found[0].evidence);
    for after_us in [20_000, 39_000, 41_200, 60_000] {
        let ids = ids(&halves(12, after_us));
        assert!(!ids.contains(&"server-nagle-delayed-ack"), "{after_us}: {ids:?}");
    }
}

/// A connection to the server at another port, and calls 100 ms apart.
fn to_port(wire: &mut Wire, port: u16, calls: u32, think_us: i64, server: u16) {
    let usual = std::mem::replace(&mut wire.server, server);
    wire.opens(0, port, 100);
    for n in 0..calls {
        let at = 1_000 + i64::from(n) * 100_000;
        wire.asks(at, port, n);
        wire.answers(at + 100 + think_us, port, n);
    }
    wire.server = usual;
}

/// 40 ms of one server are no fault of another one, and are not hidden by it.
#[test]
fn each_server_is_judged_by_its_own_calls() {
    let mut wire = Wire::new();
    to_port(&mut wire, 40_000, 40, 90_000, 8_081);
    to_port(&mut wire, 40_001, 10, 0, 8_080);
    to_port(&mut wire, 40_002, 6, 20_000, 8_082);
    let seen = wire.finish();
    assert_eq!((seen.sums.answered, seen.servers.len()), (56, 3));
    let found = findings::of(&seen);
    let named: Vec<_> =
        found.iter().map(|f| (f.cause.id, f.server.map(|s| s.port()), f.calls, f.of)).collect();
    assert_eq!(named, [("server-think", Some(8_081), 40, 40), ("server-think", Some(8_082), 6, 6)]);
    let first = &super::super::words::headline(&seen, &found)[0];
    assert!(first.starts_with("Seen in 40 of 40 calls to 10.0.0.2:8081, "), "{first}");
    // One alone needs no name.
    let mut wire = Wire::new();
    to_port(&mut wire, 40_000, 4, 90_000, 8_081);
    let seen = wire.finish();
    assert!(seen.servers.is_empty() && findings::of(&seen)[0].server.is_none());
}

/// A client that tries ::1 before 127.0.0.1, and one slow call among the calls to several servers.
#[test]
fn one_of_several_servers_is_not_blamed_for_a_trifle() {
    let mut wire = Wire::new();
    wire.segment(0, (true, 50_000), SYN, [999, 0], 64_240, b"");
    wire.segment(100, (false, 50_000), RST | ACK, [0, 1_000], 0, b"");
    to_port(&mut wire, 40_000, 9, 1_000, 8_080);
    to_port(&mut wire, 40_001, 9, 1_000, 8_081);
    assert_eq!(ids(&wire.finish()), [""; 0], "two of three connections were not refused");
    let mut wire = Wire::new();
    to_port(&mut wire, 40_000, 30, 5_000, 8_080);
    to_port(&mut wire, 40_001, 1, 60_000, 8_081);
    assert_eq!(ids(&wire.finish()), [""; 0], "one call of many");
}

/// 20 pipelined requests. The client reads 1,460 bytes each 10 ms, and its window is full; or the
/// server takes 10 ms for each.
fn pipelined(window_is_full: bool) -> Observation {
    let mut wire = Wire::new();
    wire.opens(0, 40_000, 100);
    let requests: Vec<u8> = REQUEST.repeat(20);
    wire.segment(1_000, (true, 40_000), PSH | ACK, [1_000, 5_000], 502, &requests);
    let q = 1_000 + requests.len() as u32;
    let mut answer = b"HTTP/1.1 200 OK\r\nContent-Length: 1419\r\n\r\n".to_vec();
    answer.resize(1_460, b'x');
    // The window is scaled by 128.
    let window = if window_is_full { 12 } else { 502 };
    wire.segment(1_050, (true, 40_000), ACK, [q, 5_000], window, b"");
    for n in 0..20 {
        let at = 1_100 + i64::from(n) * 10_000;
        let seq = 5_000 + n * 1_460;
        wire.segment(at, (false, 40_000), ACK, [seq, q], 509, &answer);
        let read_at = if window_is_full { at + 9_950 } else { at + 40 };
        wire.segment(read_at, (true, 40_000), ACK, [q, seq + 1_460], window, b"");
    }
    wire.finish()
}

#[test]
fn a_client_that_does_not_read_makes_no_queue() {
    let (unread, slow) = (pipelined(true), pipelined(false));
    assert_eq!((unread.sums.answered, slow.sums.answered), (20, 20));
    let found = ids(&unread);
    assert!(found.contains(&"client-slow-reader") && !found.contains(&"head-of-line"), "{found:?}");
    let found = findings::of(&slow);
    assert_eq!((found[0].cause.id, found[0].calls), ("head-of-line", 19), "{found:#?}");
}

/// What the capture lacks makes its findings doubtful, and no cause has more calls than there are.
#[test]
fn a_capture_that_lacks_packets_proves_less() {
    for dropped in [0, 1_000] {
        let mut wire = Wire::new();
        to_port(&mut wire, 40_000, 40, 90_000, 8_081);
        wire.dropped(dropped);
        let seen = wire.finish();
        let found = findings::of(&seen);
        let sure = if dropped == 0 { Confidence::Likely } else { Confidence::Possible };
        assert_eq!((found[0].cause.id, found[0].confidence), ("server-think", sure));
        let told =
            super::super::words::limits(&seen).iter().any(|l| l.contains("no cause is more than possible"));
        assert_eq!(told, dropped > 0);
    }
}

#[test]
fn answers_that_are_cut_are_told() {
    let cut = |calls: u16, flags: u8, begun: bool| {
        let mut wire = Wire::new();
        for n in 0..calls {
            let (at, port) = (i64::from(n) * 100_000, 40_000 + n);
            wire.opens(at, port, 100);
            wire.asks(at + 1_000, port, 0);
            let q = 1_000 + REQUEST.len() as u32;
            let part = b"HTTP/1.1 200 OK\r\nContent-Length: 90000\r\n\r\nx";
            let mut end = 5_000;
            if begun {
                wire.segment(at + 2_000, (false, port), ACK, [end, q], 509, part);
                end += part.len() as u32;
            }
            wire.segment(at + 30_000, (false, port), flags, [end, q], 509, b"");
        }
        wire.finish()
    };
    for (flags, begun, how) in [
        (RST | ACK, true, "8 by a reset within the answer"),
        (RST | ACK, false, "8 by a reset before its first byte"),
        (FIN | ACK, true, "8 closed (FIN) before the end that its head announced"),
    ] {
        let seen = cut(8, flags, begun);
        let found = findings::of(&seen);
        assert_eq!((found[0].cause.id, found[0].calls, found[0].of), ("response-cut", 8, 8), "{how}");
        assert!(found[0].evidence[0].ends_with(how), "{:?}", found[0].evidence);
        let first = &super::super::words::headline(&seen, &found)[0];
        assert!(first.starts_with("Answers were cut short, or none came"), "{first}");
    }
    // A client that leaves is none.
    let mut wire = Wire::new();
    wire.opens(0, 40_000, 100);
    wire.asks(1_000, 40_000, 0);
    wire.segment(50_000, (true, 40_000), RST, [1_000 + REQUEST.len() as u32, 0], 0, b"");
    let seen = wire.finish();
    assert_eq!((ids(&seen), seen.sums.cut_by_client), (vec![], 1));
}

/// Packets of which the capture has the first `snap` bytes.
fn snapped(snap: usize) -> Observation {
    let mut wire = Wire::new();
    wire.opens(0, 40_000, 100);
    wire.snap = snap;
    let (mut q, mut a) = (1_000, 5_000);
    let mut give = |at_us: i64, from_client: bool, numbers: [u32; 2], data: &[u8]| {
        wire.segment(at_us, (from_client, 40_000), ACK, numbers, 512, data);
    };
    let request =
        [b"GET /a/path HTTP/1.1\r\nHost: example.com\r\nX: ", &[b'x'; 200][..], b"\r\n\r\n"].concat();
    let mut answer = b"HTTP/1.1 200 OK\r\nServer: nginx\r\nContent-Length: 2000\r\n\r\n".to_vec();
    answer.resize(answer.len() + 2_000, b'x');
    for n in 0..6 {
        let at = 10_000 + n * 100_000;
        give(at, true, [q, a], &request);
        q += request.len() as u32;
        give(at + 20_000, false, [a, q], &answer[..1_000]);
        give(at + 30_000, false, [a + 1_000, q], &answer[1_000..]);
        a += answer.len() as u32;
    }
    wire.finish()
}

/// As many calls as there are, with their times, whatever was cut off of their heads.
#[test]
fn heads_that_a_snap_length_cuts_off() {
    let whole = snapped(65_535);
    for snap in [82, 96 - 14, 128 - 14, 200] {
        let seen = snapped(snap);
        assert_eq!((seen.sums.requests, seen.sums.answered), (6, 6), "{snap}");
        assert_eq!(seen.sums.heads_cut > 0, snap < 200 || seen.sums.heads_cut > 0, "{snap}");
        let times = |seen: &Observation| {
            let mut times: Vec<_> =
                seen.slowest.iter().map(|c| (c.start_ns, c.think_ns, c.receive_ns)).collect();
            times.sort_unstable();
            times
        };
        assert_eq!(times(&seen), times(&whole), "{snap}");
        assert!(seen.slowest.iter().all(|c| c.status == 200 && c.target == "/a/path"), "{snap}");
    }
}
