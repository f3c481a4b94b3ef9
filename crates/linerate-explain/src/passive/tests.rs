//! Conversations written down segment by segment, and what is said of them.

use std::net::Ipv4Addr;

use super::packet::flag::{ACK, FIN, PSH, RST, SYN};
use super::{Limits, LinkType, Observation, Observer, Packet, findings};

const CLIENT: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 1);
const SERVER: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 2);
const REQUEST: &[u8] = b"GET / HTTP/1.1\r\nHost: h\r\n\r\n";
const ANSWER: &[u8] = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok";

/// What is captured, in microseconds.
struct Wire(Observer);

impl Wire {
    fn new() -> Wire {
        Wire(Observer::new(Limits::default()))
    }

    /// A segment of the client at port `port`, or of the server to it; a SYN offers an MSS of 1460 and windows scaled by 128.
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
        let length = (40 + options.len() + data.len()) as u16;
        let ends = [(CLIENT, port), (SERVER, 80)];
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
        let time_ns = 1_700_000_000_000_000_000 + at_us * 1_000;
        self.0.packet(&Packet { time_ns, link: LinkType::Raw, data: &p, wire_len: p.len() as u32 });
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

    fn finish(self) -> Observation {
        self.0.finish()
    }
}

fn ids(seen: &Observation) -> Vec<&'static str> {
    findings::of(seen).iter().map(|f| f.id).collect()
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
        assert_eq!(found.first().map(|f| f.id), Some(id), "{found:#?}");
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
            found.iter().find(|f| f.id == "client-pool").unwrap_or_else(|| panic!("{:#?}", seen.pools));
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
        assert_eq!(found[0].id == "client-pool", sockets < 6, "{found:#?}");
    }
    // As many connections as calls; and one after the other, each after some thought.
    for (sockets, hand_over) in [(16, 200), (2, 5_000)] {
        let seen = bursts(sockets, hand_over);
        assert!(!ids(&seen).contains(&"client-pool"), "{sockets}: {:#?}", seen.pools);
    }
}

/// Connections that are never idle: nothing waits in a load generator.
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

/// An answer of 60 segments over a round trip of 40 ms. The client's window is as large as it ever was, or nearly full of what was not read;
/// in both the sender has to wait for it.
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
            // What it may send: not more than the window.
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
            assert!(found[0].evidence[0].contains("window shrank to 1536 bytes"), "{:?}", found[0].evidence);
        }
    }
}
