//! HTTP/2: streams as calls, and what holds them up.

use linerate_http::h2::{FrameHead, PREFACE, field, flag, kind};

use super::super::flow::ms;
use super::super::{Observation, ObservedCall, findings, words};
use super::{ACK, PSH, SYN, Wire, ids};

const PORT: u16 = 40_000;

fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let mut out = FrameHead { len: payload.len() as u32, kind, flags, stream }.bytes().to_vec();
    out.extend(payload);
    out
}

fn block(all: &[(&str, &str)]) -> Vec<u8> {
    let mut out = Vec::new();
    all.iter().for_each(|(name, value)| field(name.as_bytes(), value.as_bytes(), &mut out));
    out
}

fn get(stream: u32, path: &str) -> Vec<u8> {
    let fields = block(&[(":method", "GET"), (":scheme", "http"), (":path", path), (":authority", "h")]);
    frame(kind::HEADERS, flag::END_STREAM | flag::END_HEADERS, stream, &fields)
}

fn head(stream: u32, status: &str) -> Vec<u8> {
    frame(kind::HEADERS, flag::END_HEADERS, stream, &block(&[(":status", status), ("server", "x")]))
}

fn data(stream: u32, len: usize, ends: bool) -> Vec<u8> {
    frame(kind::DATA, u8::from(ends), stream, &vec![b'd'; len])
}

fn settings(all: &[(u16, u32)]) -> Vec<u8> {
    let bytes: Vec<u8> =
        all.iter().flat_map(|(id, value)| [&id.to_be_bytes()[..], &value.to_be_bytes()].concat()).collect();
    frame(kind::SETTINGS, 0, 0, &bytes)
}

fn room(stream: u32, bytes: u32) -> Vec<u8> {
    frame(kind::WINDOW_UPDATE, 0, stream, &bytes.to_be_bytes())
}

fn preface(of: &[(u16, u32)]) -> Vec<u8> {
    [PREFACE, &settings(of)].concat()
}

/// A connection and the numbers of what each end sends next: client, server.
struct Conversation {
    wire: Wire,
    next: [u32; 2],
}

impl Conversation {
    /// Opened at time 0.
    fn new(rtt_us: i64) -> Conversation {
        let mut wire = Wire::new();
        wire.opens(0, PORT, rtt_us);
        Conversation { wire, next: [1_000, 5_000] }
    }

    /// Whose opening is not in the capture.
    fn middle() -> Conversation {
        Conversation { wire: Wire::new(), next: [1_000, 5_000] }
    }

    fn numbers(&self, from_client: bool) -> [u32; 2] {
        let [client, server] = self.next;
        if from_client { [client, server] } else { [server, client] }
    }

    /// Sends bytes in segments of this size at most.
    fn sends(&mut self, at_us: i64, from_client: bool, bytes: &[u8], size: usize) {
        for part in bytes.chunks(size) {
            let numbers = self.numbers(from_client);
            self.wire.segment(at_us, (from_client, PORT), PSH | ACK, numbers, 60_000, part);
            self.next[usize::from(!from_client)] += part.len() as u32;
        }
    }

    fn client(&mut self, at_us: i64, bytes: &[u8]) {
        self.sends(at_us, true, bytes, 1_400);
    }

    fn server(&mut self, at_us: i64, bytes: &[u8]) {
        self.sends(at_us, false, bytes, 1_400);
    }

    fn acks(&mut self, at_us: i64, from_client: bool) {
        let numbers = self.numbers(from_client);
        self.wire.segment(at_us, (from_client, PORT), ACK, numbers, 60_000, b"");
    }

    fn finish(self) -> Observation {
        self.wire.finish()
    }
}

/// Calls by when they began, with times in microseconds since the first packet: sent, waited,
/// received.
fn calls(seen: &Observation) -> Vec<String> {
    let mut calls: Vec<&ObservedCall> = seen.slowest.iter().collect();
    calls.sort_by_key(|c| (c.start_ns + c.connect_ns + c.idle_ns, c.target.clone()));
    let told = |c: &&ObservedCall| {
        let us = |ns: i64| ns / 1_000;
        let [sent, wait, got] = [c.send_ns, c.network_ns + c.think_ns, c.receive_ns].map(us);
        format!("{} {} {} {sent} {wait} {got}", c.method, c.target, c.status)
    };
    calls.iter().map(told).collect()
}

#[test]
fn streams_are_calls() {
    let mut c = Conversation::new(1_000);
    c.client(2_000, &[preface(&[]), get(1, "/one"), get(3, "/two")].concat());
    c.server(3_000, &[settings(&[]), frame(kind::SETTINGS, flag::ACK, 0, &[])].concat());
    // The second is answered first, by way of an interim response and trailers.
    c.server(5_000, &[head(3, "103"), head(3, "404")].concat());
    c.server(6_000, &data(3, 100, false));
    c.server(7_000, &frame(kind::HEADERS, 5, 3, &block(&[("grpc-status", "0")])));
    c.server(9_000, &head(1, "200"));
    c.server(10_000, &data(1, 10, true));
    // An upload.
    let fields = block(&[(":method", "POST"), (":path", "/up"), (":scheme", "http")]);
    c.client(20_000, &frame(kind::HEADERS, 4, 5, &fields));
    c.client(22_000, &data(5, 2_000, true));
    c.server(25_000, &frame(kind::HEADERS, 5, 5, &block(&[(":status", "204")])));
    let seen = c.finish();
    assert_eq!(
        calls(&seen),
        ["GET /one 200 0 7000 1000", "GET /two 404 0 3000 2000", "POST /up 204 2000 3000 0"]
    );
    let s = &seen.sums;
    assert_eq!((s.requests, s.answers, s.interim, s.answered, s.unanswered, s.http2), (3, 3, 1, 3, 0, 1));
    assert_eq!((s.first_calls, s.pipelined, s.http, s.holes), (1, 0, 0, 0));
    assert_eq!(seen.connections[0].requests, 3);
    assert_eq!(words::limits(&seen), [""; 0]);
    assert!(
        words::headline(&seen, &[])[0]
            .starts_with("Nothing in the packets is wrong: 3 calls on 1 connection")
    );
}

#[test]
fn streams_that_do_not_end_are_unanswered() {
    let mut c = Conversation::new(1_000);
    let all: Vec<u8> = [1, 3, 5, 7].iter().flat_map(|n| get(*n, "/")).collect();
    c.client(2_000, &[preface(&[]), all].concat());
    c.server(3_000, &[settings(&[]), frame(kind::RST_STREAM, 0, 1, &[0, 0, 0, 2])].concat());
    c.server(4_000, &frame(kind::GOAWAY, 0, 0, &[0, 0, 0, 3, 0, 0, 0, 0]));
    c.server(5_000, &[head(3, "200"), data(3, 5, true)].concat());
    // Stream 7 was refused by GOAWAY, and the client may retry it elsewhere: a response here counts for nothing.
    c.server(6_000, &head(7, "200"));
    let seen = c.finish();
    let s = &seen.sums;
    assert_eq!((s.requests, s.answered, s.unanswered, s.streams_reset, s.orphans), (4, 1, 3, 1, 0));
    assert!(
        words::limits(&seen).iter().any(|l| l == "1 stream of HTTP/2 reset before their answer was whole")
    );
}

/// The same messages in any segments, and with repetitions: the same calls.
#[test]
fn any_cut_gives_the_same_calls() {
    let mut indexed = vec![0x40, 1, b'x'];
    indexed.extend([3, b'a', b'b', b'c']);
    let with = |bytes: &[u8], more: &[u8]| [bytes, more].concat();
    let one = block(&[(":method", "GET"), (":path", "/one")]);
    let two = block(&[(":method", "PUT"), (":path", "/two")]);
    let script: Vec<(i64, bool, Vec<u8>)> = vec![
        (2_000, true, preface(&[(4, 1_000_000)])),
        (2_500, true, frame(kind::HEADERS, 5, 1, &with(&one, &indexed))),
        (3_000, false, [settings(&[(3, 100)]), frame(kind::PING, 0, 0, &[0; 8])].concat()),
        (4_000, true, [frame(kind::HEADERS, 0, 3, &two), frame(kind::CONTINUATION, 4, 3, &[0xbe])].concat()),
        (4_500, true, data(3, 3_000, true)),
        (5_000, false, [head(1, "200"), head(3, "500"), data(3, 20, false)].concat()),
        (6_000, false, [data(1, 40_000, true), room(0, 65_000)].concat()),
        (7_000, true, [room(1, 9), frame(kind::HEADERS, 5, 5, &with(&one, &[0xbe]))].concat()),
        (8_000, false, [data(3, 0, true), frame(0xee, 0xff, 9, b"unknown"), head(5, "301")].concat()),
        (9_000, false, frame(kind::HEADERS, 5, 5, &block(&[("trailer", "x")]))),
    ];
    let expected = ["GET /one 200 0 2500 1000", "PUT /two 500 500 500 3000", "GET /one 301 0 1000 1000"];
    for seed in 1..200u64 {
        let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let mut random = |below: usize| {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            (state >> 11) as usize % below
        };
        let mut c = Conversation::new(1_000);
        for (at_us, from_client, bytes) in &script {
            let mut rest = &bytes[..];
            while !rest.is_empty() {
                let most = [3, 30, 1_400][random(3)];
                let (part, behind) = rest.split_at(rest.len().min(1 + random(most)));
                if random(8) == 0 {
                    // Once more.
                    let numbers = c.numbers(*from_client);
                    c.wire.segment(*at_us, (*from_client, PORT), ACK, numbers, 60_000, part);
                }
                c.sends(*at_us, *from_client, part, 1_400);
                rest = behind;
            }
        }
        let seen = c.finish();
        assert_eq!(calls(&seen), expected, "seed {seed}");
        assert_eq!((seen.sums.unknown_fields, seen.unread.len()), (0, 0), "seed {seed}");
    }
}

#[test]
fn from_the_middle_what_is_not_known_is_not_invented() {
    let mut c = Conversation::middle();
    // A path, and a status, by entries of tables that are not known.
    let known = block(&[(":method", "GET"), (":scheme", "http")]);
    c.server(500, &data(7, 900, true));
    c.client(1_000, &frame(kind::HEADERS, 5, 9, &[&known[..], &[0xc5]].concat()));
    c.server(2_000, &[frame(kind::HEADERS, 4, 9, &[0xc0]), data(9, 7, true)].concat());
    // The path is added to the table, and known from then on.
    let add = [&known[..], &[0x44, 4, b'/', b'n', b'e', b'w']].concat();
    c.client(3_000, &frame(kind::HEADERS, 5, 11, &add));
    c.server(4_000, &[head(11, "200"), data(11, 7, true)].concat());
    c.client(5_000, &frame(kind::HEADERS, 5, 13, &[&known[..], &[0xbe]].concat()));
    c.server(6_000, &[head(13, "200"), data(13, 7, true)].concat());
    let seen = c.finish();
    assert_eq!(calls(&seen), ["GET ? 0 0 1000 0", "GET /new 200 0 1000 0", "GET /new 200 0 1000 0"]);
    assert_eq!((seen.sums.unknown_fields, seen.sums.http2), (1, 1));
    let limits = words::limits(&seen);
    assert!(
        limits.iter().any(|l| l.starts_with("1 call over HTTP/2 whose method, path or status")),
        "{limits:?}"
    );
}

/// A hole takes a field block and its table with it; streams that follow are read again.
#[test]
fn a_hole_ends_what_was_known() {
    let mut c = Conversation::new(1_000);
    let known = block(&[(":method", "GET"), (":scheme", "http")]);
    let add = [&known[..], &[0x44, 4, b'/', b'o', b'l', b'd']].concat();
    c.client(2_000, &[preface(&[]), frame(kind::HEADERS, 5, 1, &add)].concat());
    c.server(3_000, &[settings(&[]), head(1, "200"), data(1, 5, true)].concat());
    // A request that the capture lacks, and the server's word for it.
    c.next[0] += 33;
    c.acks(4_000, false);
    c.server(5_000, &[head(3, "200"), data(3, 5, true)].concat());
    c.client(6_000, &frame(kind::HEADERS, 5, 5, &[&known[..], &[0xbe]].concat()));
    c.server(7_000, &[head(5, "200"), data(5, 5, true)].concat());
    let seen = c.finish();
    assert_eq!(calls(&seen), ["GET /old 200 0 1000 0", "GET ? 200 0 1000 0"]);
    assert_eq!((seen.sums.holes, seen.sums.orphans, seen.sums.unknown_fields), (1, 1, 1));
}

#[test]
fn hostile_frames_end_the_connection_in_words() {
    for (bytes, why) in [
        (frame(kind::PING, 0, 0, &[0; 7]), "a frame (PING) of 7 bytes"),
        (frame(kind::HEADERS, 5, 3, &[0xbe]), "a field block uses entry 62, which no table has"),
        (
            frame(kind::HEADERS, 5, 3, &[0x3f, 0xff, 0xff, 0xff, 0x7f]),
            "a number in a field block is too large",
        ),
    ] {
        let mut c = Conversation::new(1_000);
        c.client(2_000, &[preface(&[]), get(1, "/")].concat());
        c.server(3_000, &[settings(&[]), head(1, "200"), data(1, 5, true)].concat());
        c.client(4_000, &bytes);
        c.client(5_000, &get(5, "/never"));
        let seen = c.finish();
        assert_eq!(calls(&seen), ["GET / 200 0 1000 0"], "{why}");
        assert_eq!(seen.unread, [(why.to_owned(), 1)]);
        let told = format!("1 connection with HTTP/2 of which the rest was not read: {why}");
        assert!(words::limits(&seen).contains(&told), "{:?}", words::limits(&seen));
    }
}

/// Streams without end and tables without end: memory stays bounded, and each request is counted.
#[test]
fn many_streams_are_bounded() {
    let mut c = Conversation::new(1_000);
    c.client(2_000, &preface(&[]));
    for n in 0..5_000 {
        c.client(3_000 + n, &get(2 * n as u32 + 1, "/"));
    }
    let seen = c.finish();
    assert_eq!((seen.sums.requests, seen.sums.unanswered), (5_000, 5_000));
}

/// 300,000 bytes through a window of 65,535 over a round trip of 40 ms, captured at either end.
fn through_a_window(at_client: bool, reads_after_us: i64) -> Observation {
    const RTT: i64 = 40_000;
    let mut c = Conversation::middle();
    let (to_server, to_client) = if at_client { (RTT, 0) } else { (0, RTT) };
    c.wire.segment(0, (true, PORT), SYN, [999, 0], 64_240, b"");
    c.wire.segment(to_server, (false, PORT), SYN | ACK, [4_999, 1_000], 65_160, b"");
    c.wire.segment(RTT, (true, PORT), ACK, [1_000, 5_000], 502, b"");
    // The connection's window is larger.
    c.client(RTT, &[preface(&[]), room(0, 1 << 24), get(1, "/large")].concat());
    let mut at = RTT + to_server + 1_000;
    c.server(at, &[settings(&[]), head(1, "200")].concat());
    let mut left = 300_000;
    while left > 0 {
        let mut window = left.min(65_535);
        left -= window;
        while window > 0 {
            let n = window.min(16_384);
            window -= n;
            c.server(at, &data(1, n, left + window == 0));
        }
        c.client(at + to_client + reads_after_us, &room(1, 65_535));
        at += to_client + reads_after_us + to_server;
    }
    c.finish()
}

#[test]
fn a_window_that_is_full_is_named() {
    for at_client in [true, false] {
        let seen = through_a_window(at_client, 100);
        assert_eq!(seen.sums.answered, 1);
        let found = findings::of(&seen);
        let Some(window) = found.iter().find(|f| f.cause.id == "h2-flow-control") else {
            panic!("{found:#?}")
        };
        let cost = ms(window.cost_ns);
        assert_eq!(cost, "160 ms", "four round trips, {at_client}");
        assert!(window.evidence[0].contains("4 times the server had sent all of the answer that its HTTP/2 window admits (it began with 65535 bytes)"), "{:?}", window.evidence);
        assert!(!ids(&seen).contains(&"client-slow-reader"));
    }
}

#[test]
fn a_client_that_does_not_read_is_no_small_window() {
    let seen = through_a_window(true, 100_000);
    assert!(
        ids(&seen).contains(&"client-slow-reader") && !ids(&seen).contains(&"h2-flow-control"),
        "{:?}",
        ids(&seen)
    );
}

/// Pauses in a response that does not fill the window.
#[test]
fn a_server_that_pauses_has_room() {
    let mut c = Conversation::new(40_000);
    c.client(41_000, &[preface(&[]), get(1, "/")].concat());
    c.server(82_000, &[settings(&[]), head(1, "200")].concat());
    for n in 0..5 {
        c.server(83_000 + n * 40_000, &data(1, 16_000, n == 4));
        c.client(84_000 + n * 40_000, &[room(0, 16_000), room(1, 16_000)].concat());
    }
    let seen = c.finish();
    assert_eq!(seen.sums.answered, 1);
    assert!(!ids(&seen).contains(&"h2-flow-control"), "{:#?}", seen.seen);
}

/// Three responses of two segments each; the first segment of the first one is lost before it is
/// captured. `streams`: the responses belong to this many streams.
fn with_a_loss(streams: u32) -> Observation {
    let mut c = Conversation::new(40_000);
    c.client(41_000, &[preface(&[]), get(1, "/1"), get(3, "/2"), get(5, "/3")].concat());
    c.server(82_000, &settings(&[]));
    let response = |n: u32| {
        let stream = 2 * (n % streams) + 1;
        let first = if n < streams { head(stream, "200") } else { Vec::new() };
        let ends = n + streams >= 3;
        [first, data(stream, 1_300, ends)].concat()
    };
    let lost = (c.next[1], response(0));
    c.next[1] += lost.1.len() as u32;
    for n in 1..3 {
        c.server(84_000 + i64::from(n), &response(n));
    }
    let expected = lost.0;
    for _ in 0..3 {
        c.wire.segment(84_100, (true, PORT), ACK, [c.next[0], expected], 60_000, b"");
    }
    c.wire.segment(126_000, (false, PORT), ACK, [lost.0, c.next[0]], 60_000, &lost.1);
    c.acks(126_100, true);
    c.finish()
}

#[test]
fn a_lost_segment_holds_up_other_streams() {
    let seen = with_a_loss(3);
    assert_eq!(seen.sums.answered, 3);
    let found = findings::of(&seen);
    let line =
        found.iter().find(|f| f.cause.id == "h2-head-of-line").unwrap_or_else(|| panic!("{:#?}", seen.seen));
    assert_eq!((line.calls, line.of, ms(line.cost_ns)), (2, 3, "42.0 ms".to_owned()));
    let loss = found.iter().find(|f| f.cause.id == "packet-loss").expect("its own stream's");
    assert_eq!((loss.calls, ms(loss.cost_ns)), (1, "42.0 ms".to_owned()));
    // Alone on its connection a stream waits for its own segments.
    let seen = with_a_loss(1);
    assert!(!ids(&seen).contains(&"h2-head-of-line"), "{:#?}", seen.seen);
    assert!(ids(&seen).contains(&"packet-loss"));
}

/// This many requests at once to a server that admits four streams, each 50 ms.
fn at_once(requests: u32, followed_after_us: i64) -> Observation {
    let mut c = Conversation::new(1_000);
    c.client(2_000, &preface(&[]));
    c.server(3_000, &settings(&[(3, 4)]));
    c.acks(3_100, true);
    let mut at = 10_000;
    for turn in 0..requests.div_ceil(4) {
        let here: Vec<u32> = (4 * turn..requests.min(4 * turn + 4)).map(|n| 2 * n + 1).collect();
        let asked: Vec<u8> = here.iter().flat_map(|n| get(*n, "/")).collect();
        c.client(at, &asked);
        let told: Vec<u8> = here.iter().flat_map(|n| [head(*n, "200"), data(*n, 5, true)].concat()).collect();
        c.server(at + 50_000, &told);
        at += 50_000 + followed_after_us;
    }
    c.finish()
}

#[test]
fn requests_that_wait_for_a_stream() {
    let seen = at_once(20, 200);
    let found = findings::of(&seen);
    let limit = found
        .iter()
        .find(|f| f.cause.id == "h2-stream-limit")
        .unwrap_or_else(|| panic!("{:?}", seen.stream_limits));
    assert_eq!((limit.calls, limit.of), (16, 20));
    assert!(limit.evidence[0].contains("admits 4 streams at once"), "{:?}", limit.evidence);
    assert_eq!(limit.confidence, findings::Confidence::Possible);
    // One turn, and requests that are made after some thought.
    for (requests, after) in [(4, 200), (20, 8_000)] {
        let seen = at_once(requests, after);
        assert!(!ids(&seen).contains(&"h2-stream-limit"), "{requests}: {:?}", seen.stream_limits);
    }
}
