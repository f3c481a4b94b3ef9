//! Segments that come late: lost, overtaken, or sent again for nothing.

use super::*;

/// Bytes of a full segment.
const FULL: u32 = 1_448;
const RTT_MS: i64 = 40;
/// Bytes of the response's head.
const HEAD: u32 = 43;

/// A conversation in which every segment has a timestamp, whose clock is that of the capture.
struct Clocked {
    wire: Wire,
    asked: u32,
}

fn stamps(own_ms: u32, echo_ms: u32) -> Vec<u8> {
    [&[1, 1, 8, 10][..], &own_ms.to_be_bytes(), &echo_ms.to_be_bytes()].concat()
}

/// With blocks of SACK.
fn sacks(own_ms: u32, echo_ms: u32, blocks: &[(u32, u32)]) -> Vec<u8> {
    let mut options = stamps(own_ms, echo_ms);
    options.extend([1, 1, 5, 2 + 8 * blocks.len() as u8]);
    for (from, to) in blocks {
        options.extend(from.to_be_bytes());
        options.extend(to.to_be_bytes());
    }
    options
}

impl Clocked {
    /// A request for `segments` full segments, captured at the client or at the server.
    fn new(segments: u32, at_client: bool) -> Clocked {
        let mut wire = Wire::new();
        let rtt = RTT_MS * 1_000;
        wire.segment(0, (true, 40_000), SYN, [999, 0], 64_240, b"");
        let (to_server, to_client) = if at_client { (rtt, 10) } else { (10, rtt) };
        wire.segment(to_server, (false, 40_000), SYN | ACK, [4_999, 1_000], 65_160, b"");
        wire.segment(to_server + to_client, (true, 40_000), ACK, [1_000, 5_000], 502, b"");
        let head = format!("HTTP/1.1 200 OK\r\nContent-Length: {:06}\r\n\r\n", segments * FULL - HEAD);
        assert_eq!(head.len() as u32, HEAD);
        wire.segment(50_000, (true, 40_000), PSH | ACK, [1_000, 5_000], 502, REQUEST);
        Clocked { wire, asked: 1_000 + REQUEST.len() as u32 }
    }

    /// The n-th segment of the response, sent at `sent_ms`.
    fn data(&mut self, at_ms: i64, n: u32, sent_ms: u32, of: u32) {
        let mut data = Vec::new();
        if n == 0 {
            data = format!("HTTP/1.1 200 OK\r\nContent-Length: {:06}\r\n\r\n", of * FULL - HEAD).into_bytes();
        }
        data.resize(FULL as usize, b'x');
        let numbers = [5_000 + n * FULL, self.asked];
        let options = stamps(sent_ms, 0);
        self.wire.segment_with(at_ms * 1_000, (false, 40_000), ACK, numbers, 509, (&options, &data));
    }

    /// The client has all before the n-th segment, and blocks beyond.
    fn ack(&mut self, at_ms: i64, n: u32, echo_ms: u32, blocks: &[(u32, u32)]) {
        let blocks: Vec<_> = blocks.iter().map(|(a, b)| (5_000 + a * FULL, 5_000 + b * FULL)).collect();
        let options = if blocks.is_empty() { stamps(1, echo_ms) } else { sacks(1, echo_ms, &blocks) };
        let numbers = [self.asked, 5_000 + n * FULL];
        self.wire.segment_with(at_ms * 1_000, (true, 40_000), ACK, numbers, 502, (&options, b""));
    }

    fn finish(self) -> (Observation, Vec<&'static str>) {
        let seen = self.wire.finish();
        assert_eq!(seen.sums.answered, 1, "{:?}", seen.sums);
        let ids = ids(&seen);
        (seen, ids)
    }
}

/// Captured at the client: the second segment comes 30 ms behind the third, or 60.
#[test]
fn an_older_segment_was_overtaken_and_a_newer_one_was_sent_again() {
    for (late_ms, sent_ms, lost) in [(30, 100, false), (60, 100, false), (60, 150, true)] {
        let mut c = Clocked::new(4, true);
        c.data(120, 0, 100, 4);
        c.ack(120, 1, 100, &[]);
        c.data(121, 2, 101, 4);
        c.ack(121, 1, 100, &[(2, 3)]);
        c.data(122, 3, 102, 4);
        c.ack(122, 1, 100, &[(2, 4)]);
        c.data(121 + late_ms, 1, sent_ms, 4);
        c.ack(121 + late_ms, 4, sent_ms, &[]);
        let (seen, ids) = c.finish();
        let late = seen.late;
        assert_eq!((late.lost, late.overtaken), (u64::from(lost), u64::from(!lost)), "{late_ms} {sent_ms}");
        assert!(ids.contains(&if lost { "packet-loss" } else { "reordering" }), "{ids:?}");
        assert!(!ids.contains(&if lost { "reordering" } else { "packet-loss" }), "{ids:?}");
        let found = findings::of(&seen);
        let named =
            found.iter().find(|f| f.cause.id == "reordering" || f.cause.id == "packet-loss").expect("named");
        assert_eq!(named.cost_ns, late_ms * 1_000_000, "from the hole to what fills it");
    }
}

/// All were sent in one tick of the clock: then only the time tells.
#[test]
fn in_one_tick_the_round_trip_tells() {
    for (late_ms, overtaken) in [(8, true), (RTT_MS + 2, true), (15, true)] {
        let mut c = Clocked::new(3, true);
        c.data(120, 0, 100, 3);
        c.data(121, 2, 100, 3);
        c.data(121 + late_ms, 1, 100, 3);
        let (seen, _) = c.finish();
        assert_eq!(seen.late.overtaken == 1, overtaken, "{late_ms}: {:?}", seen.late);
    }
}

/// Both: what fills the hole was sent again, and then the first one comes.
#[test]
fn a_first_one_that_comes_after_all_was_not_lost() {
    let mut c = Clocked::new(4, true);
    c.data(120, 0, 100, 4);
    c.data(121, 2, 101, 4);
    c.data(165, 1, 142, 4);
    c.data(170, 1, 101, 4);
    c.data(172, 3, 150, 4);
    let (seen, ids) = c.finish();
    assert_eq!((seen.late.lost, seen.late.overtaken, seen.late.needless), (0, 1, 1));
    assert!(ids.contains(&"reordering") && !ids.contains(&"packet-loss"), "{ids:?}");
}

/// Captured at the server, where every segment is seen twice: the peer tells, by what it echoes or
/// by a block of what it had already.
#[test]
fn the_peer_tells_what_it_had() {
    #[derive(Clone, Copy, Debug, PartialEq)]
    enum Peer {
        EchoesTheFirst,
        HadItTwice,
        LackedIt,
    }
    for peer in [Peer::EchoesTheFirst, Peer::HadItTwice, Peer::LackedIt] {
        let mut c = Clocked::new(5, false);
        for n in 0..4 {
            c.data(100, n, 100, 5);
        }
        c.ack(140, 1, 100, &[(2, 3)]);
        c.ack(141, 1, 100, &[(2, 4)]);
        c.data(142, 1, 142, 5);
        match peer {
            Peer::EchoesTheFirst => c.ack(150, 4, 100, &[]),
            Peer::HadItTwice => {
                c.ack(183, 4, 142, &[]);
                c.ack(184, 4, 142, &[(1, 2)]);
            }
            Peer::LackedIt => c.ack(183, 4, 142, &[]),
        }
        c.data(190, 4, 190, 5);
        let (seen, ids) = c.finish();
        let lost = peer == Peer::LackedIt;
        assert_eq!((seen.late.lost, seen.late.overtaken), (u64::from(lost), u64::from(!lost)), "{peer:?}");
        assert_eq!(ids.contains(&"packet-loss"), lost, "{peer:?}: {ids:?}");
        assert!(!ids.contains(&"reordering") || !lost, "{peer:?}: {ids:?}");
    }
}

/// A sender that repeats what its peer has tells of no loss.
#[test]
fn what_the_peer_has_is_sent_again_for_nothing() {
    let mut c = Clocked::new(3, false);
    c.data(100, 0, 100, 3);
    c.data(100, 1, 100, 3);
    c.ack(140, 2, 100, &[]);
    c.data(350, 1, 350, 3);
    c.data(351, 2, 351, 3);
    let (seen, ids) = c.finish();
    assert_eq!((seen.late.lost, seen.late.needless), (0, 1));
    assert!(!ids.contains(&"packet-loss") && !ids.contains(&"reordering"), "{ids:?}");
}

/// Blocks beyond all that was sent, and an ACK that comes again with nothing in flight, tell of no loss.
#[test]
fn a_block_that_cannot_be_tells_nothing() {
    let mut c = Clocked::new(3, false);
    c.data(100, 0, 100, 3);
    c.ack(140, 1, 100, &[(700, 701)]);
    c.ack(200, 1, 100, &[]);
    c.data(5_000, 1, 5_000, 3);
    c.data(5_000, 2, 5_000, 3);
    c.ack(5_040, 2, 5_000, &[]);
    c.data(5_041, 2, 5_041, 3);
    let (seen, ids) = c.finish();
    assert!(!ids.contains(&"packet-loss") && !ids.contains(&"reordering"), "{ids:?}: {:?}", seen.late);
}

/// Losses that are repaired at once cost a round trip each, though no pause is seen.
#[test]
fn a_loss_costs_what_waited_behind_it() {
    let mut c = Clocked::new(60, true);
    for n in 0..60 {
        let at = 120 + i64::from(n);
        if n % 20 != 3 {
            c.data(at, n, at as u32 - 20, 60);
        }
        // A round trip after the one behind it.
        if n >= 41 && (n - 41) % 20 == 3 {
            c.data(at, n - 41, at as u32 - 20, 60);
        }
    }
    for n in [23, 43] {
        c.data(120 + i64::from(n) + RTT_MS + 1, n, 140 + n, 60);
    }
    let (seen, ids) = c.finish();
    assert_eq!(seen.late.lost, 3);
    assert_eq!(ids.first(), Some(&"packet-loss"), "{ids:?}");
}
