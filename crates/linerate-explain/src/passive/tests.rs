//! Conversations written down segment by segment, and the findings about them.

mod late;
mod live;
mod parts;
mod streams;

use std::net::Ipv4Addr;

use super::live::LiveObserver;
use super::packet::flag::{ACK, FIN, PSH, RST, SYN};
use super::{CaptureLimits, LinkType, Observation, Observer, Packet, findings};

const CLIENT: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 1);
const SERVER: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 2);
const REQUEST: &[u8] = b"GET / HTTP/1.1\r\nHost: h\r\n\r\n";
const ANSWER: &[u8] = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok";

/// An observer that is fed packets made by hand. Times are in microseconds.
struct Wire {
    observer: Observer,
    /// The same, live.
    live: LiveObserver,
    /// Its window ends after each packet.
    ends_windows: bool,
    /// The server's port.
    server: u16,
    /// How many bytes of each packet the capture has.
    snap: usize,
}

impl Wire {
    fn new() -> Wire {
        let limits = CaptureLimits::default();
        let (observer, live) = (Observer::new(limits), LiveObserver::new(limits, None));
        Wire { observer, live, ends_windows: true, server: 80, snap: usize::MAX }
    }

    /// A segment of the client at port `port`, or of the server to it; a SYN offers an MSS of 1460
    /// and windows scaled by 128.
    fn segment(
        &mut self,
        at_us: i64,
        (from_client, port): (bool, u16),
        flags: u8,
        numbers: [u32; 2],
        window: u16,
        data: &[u8],
    ) {
        let options: &[u8] = if flags & SYN == 0 { &[] } else { &[2, 4, 5, 180, 1, 3, 3, 7] };
        self.segment_with(at_us, (from_client, port), flags, numbers, window, (options, data));
    }

    /// The same with these options.
    fn segment_with(
        &mut self,
        at_us: i64,
        (from_client, port): (bool, u16),
        flags: u8,
        numbers: [u32; 2],
        window: u16,
        (options, data): (&[u8], &[u8]),
    ) {
        let length = (40 + options.len() + data.len()) as u16;
        let ends = [(CLIENT, port), (SERVER, self.server)];
        let [from, to] = if from_client { ends } else { [ends[1], ends[0]] };
        let mut p = vec![0x45, 0];
        p.extend(length.to_be_bytes());
        p.extend([0, 0, 0, 0, 64, 6, 0, 0]);
        p.extend(from.0.octets());
        p.extend(to.0.octets());
        p.extend(from.1.to_be_bytes());
        p.extend(to.1.to_be_bytes());
        p.extend(numbers[0].to_be_bytes());
        p.extend(numbers[1].to_be_bytes());
        p.extend([((20 + options.len() as u8) / 4) << 4, flags]);
        p.extend(window.to_be_bytes());
        p.extend([0; 4]);
        p.extend(options);
        p.extend(data);
        self.packet(at_us, &p);
    }

    /// An IP packet.
    fn packet(&mut self, at_us: i64, p: &[u8]) {
        let time_ns = Wire::time(at_us);
        let data = &p[..self.snap.min(p.len())];
        let packet = Packet { time_ns, link: LinkType::Raw, data, wire_len: p.len() as u32 };
        self.observer.packet(&packet);
        self.live.packet(&packet);
        if self.ends_windows {
            self.live.end_window(time_ns);
        }
    }

    /// Nanoseconds since 1970.
    fn time(at_us: i64) -> i64 {
        1_700_000_000_000_000_000 + at_us * 1_000
    }

    fn opens(&mut self, at_us: i64, port: u16, rtt_us: i64) {
        self.segment(at_us, (true, port), SYN, [999, 0], 64_240, b"");
        self.segment(at_us + rtt_us, (false, port), SYN | ACK, [4_999, 1_000], 65_160, b"");
        self.segment(at_us + rtt_us + 1, (true, port), ACK, [1_000, 5_000], 502, b"");
    }

    /// The n-th request on its connection.
    fn asks(&mut self, at_us: i64, port: u16, n: u32) {
        let numbers = [1_000 + n * REQUEST.len() as u32, 5_000 + n * ANSWER.len() as u32];
        self.segment(at_us, (true, port), PSH | ACK, numbers, 502, REQUEST);
    }

    fn answers(&mut self, at_us: i64, port: u16, n: u32) {
        let numbers = [5_000 + n * ANSWER.len() as u32, 1_000 + (n + 1) * REQUEST.len() as u32];
        self.segment(at_us, (false, port), PSH | ACK, numbers, 509, ANSWER);
    }

    fn dropped(&mut self, packets: u64) {
        self.observer.dropped(packets);
        self.live.dropped(packets);
    }

    /// What was seen; in windows it was the same.
    fn finish(self) -> Observation {
        let (seen, sum) = (self.observer.finish(), self.live.finish());
        assert_eq!(format!("{sum:?}"), format!("{seen:?}"), "windows add up to the whole");
        seen
    }
}

fn ids(seen: &Observation) -> Vec<&'static str> {
    findings::of(seen).iter().map(|f| f.cause.id).collect()
}

#[test]
fn a_syn_that_meets_a_connection_that_is_remembered() {
    for (again_us, collides) in [(12_000, true), (1_000_000, true), (1_000_000, false)] {
        let mut wire = Wire::new();
        wire.segment(0, (true, 40_000), SYN, [999, 0], 64_240, b"");
        if collides {
            wire.segment(40_000, (false, 40_000), ACK, [777_777, 3_000_000], 509, b"");
            wire.segment(40_100, (true, 40_000), RST, [3_000_000, 0], 0, b"");
        }
        let at = again_us + if collides { 40_000 } else { 0 };
        wire.opens(at, 40_000, 40_000);
        wire.asks(at + 41_000, 40_000, 0);
        wire.answers(at + 82_000, 40_000, 0);
        let numbers = [1_000 + REQUEST.len() as u32, 5_000 + ANSWER.len() as u32];
        wire.segment(at + 90_000, (true, 40_000), FIN | ACK, numbers, 502, b"");
        let seen = wire.finish();
        assert_eq!((seen.sums.answered, seen.sums.holes, seen.sums.reset), (1, 0, 0), "{collides}");
        let found = findings::of(&seen);
        let id = if collides { "time-wait-collision" } else { "syn-loss" };
        assert_eq!(found.first().map(|f| f.cause.id), Some(id), "{found:#?}");
        let cost_ms = found[0].cost_ns / 1_000_000;
        assert_eq!(cost_ms, at / 1_000, "all but the round trip of the SYN that was answered");
        let marked = seen.marks.seen().collect::<Vec<_>>();
        assert_eq!(
            marked,
            [("retransmission", 1)],
            "what belongs to another connection is no disorder of this one"
        );
    }
}

/// 16 calls once a second, each 20 ms at the server; `sockets` connections.
fn bursts(sockets: usize, hand_over_us: i64) -> Observation {
    let mut wire = Wire::new();
    let mut made = vec![0; sockets];
    for socket in 0..sockets {
        wire.opens(socket as i64 * 10, 40_000 + socket as u16, 5);
    }
    for burst in 1..6 {
        for turn in 0..16_usize.div_ceil(sockets) {
            let at = 1_000_000 * burst + turn as i64 * (20_000 + hand_over_us);
            let busy = sockets.min(16 - turn * sockets);
            for (socket, n) in made.iter().enumerate().take(busy) {
                wire.asks(at + socket as i64 * 5, 40_000 + socket as u16, *n);
            }
            for (socket, n) in made.iter_mut().enumerate().take(busy) {
                wire.answers(at + socket as i64 * 5 + 20_000, 40_000 + socket as u16, *n);
                *n += 1;
            }
        }
    }
    wire.finish()
}

#[test]
fn bursts_that_wait_for_a_connection() {
    for sockets in [2, 5, 6] {
        let seen = bursts(sockets, 200);
        assert_eq!(seen.sums.answered, 80);
        let found = findings::of(&seen);
        let pool =
            found.iter().find(|f| f.cause.id == "client-pool").unwrap_or_else(|| panic!("{:#?}", seen.pools));
        assert_eq!(
            pool.confidence,
            findings::Confidence::Possible,
            "packets cannot tell a pool from workers"
        );
        assert!(
            pool.evidence[0].contains(&format!("never more than {sockets} calls")),
            "{:?}",
            pool.evidence
        );
        // The fewer there are, the longer the last ones wait.
        assert_eq!(found[0].cause.id == "client-pool", sockets < 6, "{found:#?}");
    }
    // As many connections as calls; and one after the other, each after some thought.
    for (sockets, hand_over) in [(16, 200), (2, 5_000)] {
        let seen = bursts(sockets, hand_over);
        assert!(!ids(&seen).contains(&"client-pool"), "{sockets}: {:#?}", seen.pools);
    }
}

/// Connections that are never idle: no request waits in a load generator.
#[test]
fn a_closed_loop_is_no_pool() {
    for sockets in [1, 2, 4_u16] {
        let mut wire = Wire::new();
        for socket in 0..sockets {
            wire.opens(i64::from(socket) * 10, 40_000 + socket, 5);
        }
        for n in 0..100 {
            for socket in 0..sockets {
                wire.asks(1_000 + i64::from(n) * 20_100 + i64::from(socket) * 7, 40_000 + socket, n);
            }
            for socket in 0..sockets {
                wire.answers(
                    1_000 + i64::from(n) * 20_100 + i64::from(socket) * 7 + 20_000,
                    40_000 + socket,
                    n,
                );
            }
        }
        let seen = wire.finish();
        assert_eq!(ids(&seen), ["server-think"], "{:#?}", seen.pools);
    }
}

/// A response of 60 segments over a round trip of 40 ms. The client's window is as large as ever,
/// or nearly full of unread data. In both cases the sender has to wait for it.
#[test]
fn a_window_that_stays_small_far_away() {
    for (window, slow) in [(502, false), (12, true)] {
        let mut wire = Wire::new();
        wire.opens(0, 40_000, 40_000);
        let head = format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n", 60 * 1_460);
        wire.segment(41_000, (true, 40_000), PSH | ACK, [1_000, 5_000], 502, REQUEST);
        let asked = 1_000 + REQUEST.len() as u32;
        let (mut at, mut seq) = (82_000, 5_000);
        wire.segment(at, (false, 40_000), PSH | ACK, [seq, asked], 509, head.as_bytes());
        seq += head.len() as u32;
        for _ in 0..60 {
            // The sender sends no more than the window admits.
            wire.segment(at + 10, (true, 40_000), ACK, [asked, seq], window, b"");
            at += 41_000;
            wire.segment(at, (false, 40_000), ACK, [seq, asked], 509, &[b'x'; 1_460]);
            seq += 1_460;
        }
        let seen = wire.finish();
        assert_eq!(seen.sums.answered, 1);
        assert_eq!(ids(&seen).contains(&"client-slow-reader"), slow, "{:#?}", findings::of(&seen));
        if slow {
            let found = findings::of(&seen);
            assert!(
                found[0].evidence[0].contains("which admitted 1536 bytes at its smallest"),
                "{:?}",
                found[0].evidence
            );
        }
    }
}

/// 1,380 bytes of each response arrive together, and the client's ACK is late because that is
/// little data: this is slow start, not a held segment.
#[test]
fn full_segments_after_an_ack_were_not_held_back() {
    let mut wire = Wire::new();
    wire.opens(0, 40_000, 40_000);
    wire.asks(50_000, 40_000, 0);
    let head = b"HTTP/1.1 200 OK\r\nContent-Length: 13000\r\n\r\n";
    let mut first = head.to_vec();
    first.resize(1_380, b'x');
    let q = 1_000 + REQUEST.len() as u32;
    let full = [b'x'; 1_380];
    let mut next = 5_000;
    let mut at = 100_000;
    for (n, round) in [2u32, 3, 4].into_iter().enumerate() {
        for i in 0..round {
            let data: &[u8] = if n == 0 && i == 0 { &first } else { &full };
            wire.segment(at, (false, 40_000), ACK, [next, q], 509, data);
            next += 1_380;
            at += 100;
        }
        at += 80_000;
        wire.segment(at, (true, 40_000), ACK, [q, next], 502, b"");
        at += 40_050;
    }
    let seen = wire.finish();
    assert!(!ids(&seen).contains(&"server-nagle-delayed-ack"), "{:#?}", seen.seen);
}

#[test]
fn connections_that_went_wrong_are_told_without_a_call() {
    let mut silent = Wire::new();
    for n in 0..31 {
        for again in 0..3 {
            silent.segment(again * 1_000_000, (true, 40_000 + n), SYN, [999, 0], 64_240, b"");
        }
    }
    let seen = silent.finish();
    let found = findings::of(&seen);
    assert_eq!(ids(&seen), ["syn-loss"]);
    assert!(found[0].evidence[0].contains("93 SYNs got no answer"), "{:?}", found[0].evidence);
    assert_eq!(super::words::verdict(&seen, &found), super::words::PassiveVerdict::Caused);

    let mut last = Wire::new();
    last.segment(0, (true, 40_000), SYN, [999, 0], 64_240, b"");
    assert_eq!(ids(&last.finish()), [""; 0], "the capture ends before an answer can be in it");

    let mut refused = Wire::new();
    refused.segment(0, (true, 40_000), SYN, [999, 0], 64_240, b"");
    refused.segment(100, (false, 40_000), RST | ACK, [0, 1_000], 0, b"");
    assert_eq!(ids(&refused.finish()), ["connection-refused"]);

    let mut died = Wire::new();
    died.opens(0, 40_000, 100);
    for again in 0..5 {
        died.asks(1_000 + again * 400_000, 40_000, 0);
    }
    assert_eq!(ids(&died.finish()), ["connection-died"]);

    let mut closed = Wire::new();
    closed.opens(0, 40_000, 100);
    closed.asks(1_000, 40_000, 0);
    let q = 1_000 + REQUEST.len() as u32;
    closed.segment(
        2_000,
        (false, 40_000),
        ACK,
        [5_000, q],
        509,
        b"HTTP/1.1 200 OK\r\nContent-Length: 90000\r\n\r\n",
    );
    closed.segment(3_000, (true, 40_000), ACK, [q, 5_042], 0, b"");
    closed.segment(900_000, (true, 40_000), ACK, [q, 5_042], 0, b"");
    assert_eq!(ids(&closed.finish()), ["client-slow-reader"]);
}

#[test]
fn an_answer_that_ends_late_with_its_connection() {
    let mut wire = Wire::new();
    wire.opens(0, 40_000, 100);
    wire.asks(1_000, 40_000, 0);
    let q = 1_000 + REQUEST.len() as u32;
    let answer = b"HTTP/1.0 200 OK\r\n\r\nhello";
    wire.segment(2_000, (false, 40_000), ACK, [5_000, q], 509, answer);
    let end = 5_000 + answer.len() as u32;
    wire.segment(2_100, (true, 40_000), ACK, [q, end], 502, b"");
    wire.segment(502_000, (false, 40_000), FIN | ACK, [end, q], 509, b"");
    let seen = wire.finish();
    assert_eq!(ids(&seen), ["late-close"], "{:#?}", seen.seen);
    assert_eq!(findings::of(&seen)[0].cost_ns, 500_000_000);
}

#[test]
fn without_the_opening_the_round_trip_is_bounded() {
    let mut wire = Wire::new();
    for n in 0..5 {
        let at = i64::from(n) * 1_000_000;
        wire.asks(at, 40_000, n);
        let q = 1_000 + (n + 1) * REQUEST.len() as u32;
        // A bare ACK after a round trip, the response 130 ms later.
        wire.segment(at + 69_000, (false, 40_000), ACK, [5_000 + n * ANSWER.len() as u32, q], 509, b"");
        wire.answers(at + 199_000, 40_000, n);
    }
    let seen = wire.finish();
    assert_eq!(seen.sums.rtt_bound_ns, Some(69_000_000));
    let found = findings::of(&seen);
    assert_eq!((found[0].cause.id, found[0].cost_ns / 1_000_000), ("server-think", 130), "{found:#?}");
}

#[test]
fn one_outlier_is_not_said_of_all() {
    let mut wire = Wire::new();
    wire.opens(0, 40_000, 100);
    for n in 0..5 {
        let at = 1_000_000 + i64::from(n) * 5_000_000;
        wire.asks(at, 40_000, n);
        wire.answers(at + if n == 3 { 1_600_000 } else { 1_000 }, 40_000, n);
    }
    let seen = wire.finish();
    let found = findings::of(&seen);
    assert_eq!((found[0].cause.id, found[0].calls, found[0].of), ("server-think", 1, 5));
    assert_eq!(found[0].confidence, findings::Confidence::Possible);
    assert!((1_599_000_000..1_601_000_000).contains(&found[0].cost_ns), "{}", found[0].cost_ns);
}

/// Two interfaces were captured: each packet is there twice, with the same identification.
#[test]
fn packets_that_were_captured_twice_are_no_retransmissions() {
    let mut wire = Wire::new();
    let packet = |id: u16, seq: u32, data: &[u8]| {
        let mut p = vec![0x45, 0];
        p.extend((40 + data.len() as u16).to_be_bytes());
        p.extend(id.to_be_bytes());
        p.extend([0, 0, 64, 6, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2, 0x9c, 0x40, 0, 80]);
        p.extend(seq.to_be_bytes());
        p.extend([0, 0, 0, 1, 0x50, ACK, 1, 0xf6, 0, 0, 0, 0]);
        p.extend(data);
        p
    };
    for n in 0..10u16 {
        let p = packet(100 + n, 1_000 + u32::from(n) * 4, b"data");
        wire.packet(i64::from(n) * 10_000, &p);
        wire.packet(i64::from(n) * 10_000 + 40, &p);
    }
    // The same bytes, under another identification and later: a retransmission.
    wire.packet(500_000, &packet(200, 1_036, b"data"));
    let seen = wire.finish();
    assert_eq!(seen.packets.twice, 10);
    let again = seen.marks.seen().find(|(name, _)| *name == "retransmission").map(|(_, n)| n);
    assert_eq!(again, Some(1));
    assert!(super::words::limits(&seen).iter().any(|l| l.contains("captured twice")));
}
