//! HTTP/2 against a server that misbehaves by a seed: it refuses streams, resets them, goes away, is cut off, and
//! remains silent. Each request ends in exactly one way, and the server's own count lies within the bounds.
//!
//! A seed is a bug report: `LINERATE_SEED=n` runs one, `LINERATE_SEEDS=n` this many (`cargo xtask soak load-h2`).

use std::collections::{HashMap, HashSet};
use std::net::IpAddr;
use std::sync::Mutex;
use std::thread;

use linerate_client::{Any, AnyShared, H2Shared, Resend, Speaks};
use linerate_http::client::HeadCache;
use linerate_http::h2::{Code, Decoder, FRAME_HEAD, FrameHead, PREFACE, flag, kind};
use linerate_net::link::sim::{Sim, SimOptions};
use linerate_net::mem::{Peer, PeerActions, PeerConn, PeerHost};
use linerate_net::stack::{Stack, StackOptions};
use linerate_tls::PLAIN;

use super::*;
use crate::engine::responses::ResponseReading;
use crate::plan::http::{Http, HttpOptions};
use linerate_base::Random;

/// Seeds that an ordinary test run takes.
const SEEDS: u64 = 30;

fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let head = FrameHead { len: payload.len() as u32, kind, flags, stream };
    [&head.bytes(), payload].concat()
}

fn reset(stream: u32, code: Code) -> Vec<u8> {
    frame(kind::RST_STREAM, 0, stream, &code.0.to_be_bytes())
}

fn go_away(last: u32) -> Vec<u8> {
    frame(kind::GOAWAY, 0, 0, &[&last.to_be_bytes()[..], &[0; 4]].concat())
}

/// One connection as the server sees it.
#[derive(Default)]
struct Side {
    carry: Vec<u8>,
    begun: bool,
    last: u32,
    /// The last stream that it processes, once it has said so.
    away: Option<u32>,
    closed: HashSet<u32>,
}

struct Wild {
    dice: Random,
    /// Of a hundred requests, this many meet some misbehavior.
    evil: u64,
    processed: Arc<Mutex<u64>>,
    sides: HashMap<PeerConn, Side>,
}

impl Wild {
    /// A whole request has come: does something with it.
    fn answer(&mut self, conn: PeerConn, stream: u32, out: &mut PeerActions) {
        let Wild { dice, sides, evil, processed } = self;
        let Some(side) = sides.get_mut(&conn) else { return };
        if side.away.is_some_and(|last| stream > last) {
            return;
        }
        let what = if dice.below(100) < *evil { dice.below(10) } else { 99 };
        if what == 0 {
            return out.send(conn, reset(stream, Code::REFUSED_STREAM));
        }
        if what == 1 && side.away.is_none() {
            // It processes what came before this one, and says so in one step or in two.
            let last = stream.saturating_sub(2);
            if dice.below(2) == 0 {
                out.send(conn, go_away((1 << 31) - 1));
            }
            out.send(conn, go_away(last));
            side.away = Some(last);
            return out.close_after(10 * MS, conn);
        }
        *processed.lock().unwrap() += 1;
        match what {
            2 => out.send(conn, reset(stream, Code::INTERNAL_ERROR)),
            3 => {
                out.send(conn, frame(kind::HEADERS, flag::END_HEADERS, stream, b"\x88"));
                out.send(conn, reset(stream, Code::CANCEL));
            }
            4 => out.close(conn),
            5 => out.reset(conn),
            // Silence.
            6 => {}
            7 => {
                out.send(conn, frame(kind::HEADERS, flag::END_HEADERS, stream, b"\x88"));
                out.send(conn, frame(kind::DATA, 0, stream, b"part"));
                out.close(conn);
            }
            _ => Wild::respond(dice, conn, stream, out),
        }
    }

    fn respond(dice: &mut Random, conn: PeerConn, stream: u32, out: &mut PeerActions) {
        let after = MS * dice.below(5) as u32;
        if dice.below(4) == 0 {
            out.send_after(after, conn, frame(kind::HEADERS, flag::END_HEADERS, stream, b"\x08\x03103"));
            out.send_after(after, conn, frame(kind::PING, 0, 0, &[0; 8]));
        }
        let body: &[u8] = if dice.below(2) == 0 { b"hello" } else { b"hello, hello" };
        out.send_after(after, conn, frame(kind::HEADERS, flag::END_HEADERS, stream, b"\x88"));
        match dice.below(3) {
            0 => out.send_after(after, conn, frame(kind::DATA, flag::END_STREAM, stream, body)),
            1 => {
                out.send_after(after, conn, frame(kind::DATA, 8, stream, &[b"\x02", body, b"\0\0"].concat()));
                out.send_after(after + MS, conn, frame(kind::DATA, flag::END_STREAM, stream, b""));
            }
            _ => {
                out.send_after(after, conn, frame(kind::DATA, 0, stream, body));
                let trailers =
                    frame(kind::HEADERS, flag::END_HEADERS | flag::END_STREAM, stream, b"\0\x01a\x01b");
                out.send_after(after + MS, conn, trailers);
            }
        }
    }

    /// Takes the first whole frame out.
    fn next_frame(side: &mut Side) -> Option<(FrameHead, Vec<u8>)> {
        if !side.begun {
            if side.carry.len() < PREFACE.len() {
                return None;
            }
            side.carry.drain(..PREFACE.len());
            side.begun = true;
        }
        let head = FrameHead::read(side.carry.first_chunk::<FRAME_HEAD>()?);
        let end = FRAME_HEAD + head.len as usize;
        let payload = side.carry.get(FRAME_HEAD..end)?.to_vec();
        side.carry.drain(..end);
        Some((head, payload))
    }
}

impl Peer for Wild {
    fn connected(&mut self, _: Time, conn: PeerConn, out: &mut PeerActions) {
        self.sides.insert(conn, Side::default());
        let most = 1 + self.dice.below(30) as u8;
        let window = self.dice.below(3) as u8;
        // A limit of streams, and a window of 0, 256 or 512 bytes.
        out.send(conn, frame(kind::SETTINGS, 0, 0, &[0, 3, 0, 0, 0, most, 0, 4, 0, 0, window, 0]));
    }

    fn received(&mut self, _: Time, conn: PeerConn, bytes: &[u8], out: &mut PeerActions) {
        let Some(side) = self.sides.get_mut(&conn) else { return };
        side.carry.extend_from_slice(bytes);
        while let Some((head, _)) = self.sides.get_mut(&conn).and_then(Wild::next_frame) {
            let Some(side) = self.sides.get_mut(&conn) else { return };
            match head.kind {
                kind::SETTINGS if head.flags == 0 => out.send(conn, frame(kind::SETTINGS, 1, 0, b"")),
                kind::HEADERS => {
                    assert!(head.stream > side.last, "stream numbers grow");
                    side.last = head.stream;
                    if head.flags & flag::END_STREAM == 0 {
                        out.send(conn, frame(kind::WINDOW_UPDATE, 0, head.stream, &1000u32.to_be_bytes()));
                    }
                }
                kind::DATA => out.send(conn, frame(kind::WINDOW_UPDATE, 0, 0, &1000u32.to_be_bytes())),
                kind::RST_STREAM => drop(side.closed.insert(head.stream)),
                _ => {}
            }
            let is_request = matches!(head.kind, kind::HEADERS | kind::DATA);
            if is_request && head.flags & flag::END_STREAM != 0 {
                self.answer(conn, head.stream, out);
            }
        }
    }
}

fn by_http2() -> HttpOptions {
    HttpOptions { version: Http::Two, ..HttpOptions::default() }
}

fn run_seed(seed: u64) {
    let mut dice = Random::new(seed);
    let (ours, theirs) = (IpAddr::from([10, 0, 0, 1]), IpAddr::from([10, 0, 0, 2]));
    let lossy = dice.below(2) == 0;
    let ppm = |n| if lossy { n } else { 0 };
    let network = SimOptions {
        seed,
        delay: MS,
        loss_ppm: ppm(10_000),
        reorder_ppm: ppm(20_000),
        duplicate_ppm: ppm(5_000),
        ..SimOptions::default()
    };
    let sim = Sim::new(network);
    let options = |address, seed| StackOptions {
        addresses: vec![address],
        seed: Some(seed),
        ..StackOptions::default()
    };
    let stack = Stack::new(sim.end(&[ours]).unwrap(), options(ours, seed));
    let mut host = PeerHost::new(Stack::new(sim.end(&[theirs]).unwrap(), options(theirs, seed + 1)));
    let processed = Arc::new(Mutex::new(0));
    let evil = dice.below(30);
    let script =
        Wild { dice: Random::new(seed + 2), evil, processed: Arc::clone(&processed), sides: HashMap::new() };
    let address = SocketAddr::new(theirs, 80);
    host.serve(address, script).unwrap();
    let server = thread::spawn(move || host.run(|| false));
    let resend = Resend::ALL[dice.below(3) as usize];
    let mut plan = Plan {
        connections: 1 + dice.below(4) as u32,
        depth: 1 + dice.below(40) as u32,
        per_connection: (dice.below(4) == 0).then_some(20),
        // A lost SYN is sent again after a second.
        timeout: if lossy { 3000 * MS } else { 100 * MS },
        stop: requests(300),
        http: by_http2(),
        resend,
        ..plan()
    };
    plan.target.addresses = vec![address];
    plan.requests = vec![request("GET"), request("POST")];
    plan.requests[1].body = Some("a body that waits for the window".into());
    let shared = AnyShared::new(Speaks::Http2, HeadCache::new(), H2Shared::new(plan.http.h2_window));
    let outcome = part().run_by::<_, Any<ResponseReading>>(&plan, stack, PLAIN, board(), shared).unwrap();
    server.join().unwrap().unwrap();
    let (r, c) = (outcome.requests, *processed.lock().unwrap());
    assert_eq!(r.sent, 300, "seed {seed}: {r:?}");
    assert_eq!(r.sent, r.answered + r.failed + r.unknown, "seed {seed}: {r:?}");
    assert_eq!(r.failed, outcome.failures.total(), "seed {seed}");
    assert!(r.answered <= c && c <= r.sent + r.resent, "seed {seed}: the server counted {c}, we {r:?}");
    assert_eq!(outcome.http.h2, outcome.connections.opened, "seed {seed}");
    if evil == 0 {
        assert_eq!(r.answered, 300, "seed {seed}: {:?}", outcome.failures);
    }
}

#[test]
fn each_request_ends_in_exactly_one_way() {
    let number = |name: &str| std::env::var(name).ok().map(|text| text.parse::<u64>().unwrap());
    if let Some(seed) = number("LINERATE_SEED") {
        return run_seed(seed);
    }
    let first = number("LINERATE_FROM").unwrap_or(1);
    (first..first + number("LINERATE_SEEDS").unwrap_or(SEEDS)).for_each(run_seed);
}

/// RFC 9113, section 8.7: a server that refuses everything ends in failures, not in an endless loop.
#[test]
fn a_server_that_refuses_everything_ends_in_failures() {
    struct Refuses(Wild);
    impl Peer for Refuses {
        fn connected(&mut self, now: Time, conn: PeerConn, out: &mut PeerActions) {
            self.0.connected(now, conn, out);
        }
        fn received(&mut self, _: Time, conn: PeerConn, bytes: &[u8], out: &mut PeerActions) {
            let Some(side) = self.0.sides.get_mut(&conn) else { return };
            side.carry.extend_from_slice(bytes);
            while let Some((head, _)) = Wild::next_frame(side) {
                if head.kind == kind::HEADERS {
                    *self.0.processed.lock().unwrap() += 1;
                    out.send(conn, reset(head.stream, Code::REFUSED_STREAM));
                }
            }
        }
    }
    for resend in Resend::ALL {
        let seen = Arc::new(Mutex::new(0));
        let wild =
            Wild { dice: Random::new(1), evil: 0, processed: Arc::clone(&seen), sides: HashMap::new() };
        let mut mem = Mem::new(wire()).unwrap();
        mem.serve(server(), Refuses(wild)).unwrap();
        let plan = Plan { depth: 5, stop: requests(20), resend, ..plan() };
        let shared = AnyShared::new(Speaks::Http2, HeadCache::new(), H2Shared::new(1 << 20));
        let outcome = part().run_by::<_, Any<ResponseReading>>(&plan, mem, PLAIN, board(), shared).unwrap();
        let r = outcome.requests;
        let times = if resend == Resend::Never { 1 } else { 4 };
        let again = 20 * (times - 1);
        assert_eq!((r.sent, r.failed, r.resent, r.resent_refused), (20, 20, again, again), "{resend:?}");
        assert_eq!(*seen.lock().unwrap(), 20 * times, "each went out {times} times");
        assert_eq!(outcome.http.refused, 20 * times);
        assert_eq!(outcome.failures.count(Failure::RefusedStream), 20);
    }
}

/// RFC 9113, section 8.7: of streams that the server resets, only refused ones were certainly not processed.
#[test]
fn a_stream_that_the_server_resets_has_failed() {
    /// Resets three streams in ten, and a fourth one after the head of the response.
    struct Resets(Wild);
    impl Peer for Resets {
        fn connected(&mut self, now: Time, conn: PeerConn, out: &mut PeerActions) {
            self.0.connected(now, conn, out);
        }
        fn received(&mut self, _: Time, conn: PeerConn, bytes: &[u8], out: &mut PeerActions) {
            let Some(side) = self.0.sides.get_mut(&conn) else { return };
            side.carry.extend_from_slice(bytes);
            while let Some((head, _)) = Wild::next_frame(side) {
                if head.kind != kind::HEADERS {
                    continue;
                }
                let mut seen = self.0.processed.lock().unwrap();
                *seen += 1;
                match *seen % 10 {
                    0..3 => out.send(conn, reset(head.stream, Code::INTERNAL_ERROR)),
                    3 => {
                        out.send(conn, frame(kind::HEADERS, flag::END_HEADERS, head.stream, b"\x88"));
                        out.send(conn, reset(head.stream, Code::CANCEL));
                    }
                    _ => out.send(conn, frame(kind::HEADERS, 5, head.stream, b"\x88")),
                }
            }
        }
    }
    for (resend, method) in [(Resend::Idle, "GET"), (Resend::Never, "GET"), (Resend::Idle, "POST")] {
        let seen = Arc::new(Mutex::new(0));
        let wild =
            Wild { dice: Random::new(1), evil: 0, processed: Arc::clone(&seen), sides: HashMap::new() };
        let mut mem = Mem::new(wire()).unwrap();
        mem.serve(server(), Resets(wild)).unwrap();
        let plan = Plan { depth: 5, stop: requests(1000), resend, requests: vec![request(method)], ..plan() };
        let shared = AnyShared::new(Speaks::Http2, HeadCache::new(), H2Shared::new(1 << 20));
        let outcome = part().run_by::<_, Any<ResponseReading>>(&plan, mem, PLAIN, board(), shared).unwrap();
        let (r, failures) = (outcome.requests, &outcome.failures);
        assert_eq!((r.sent, r.failed, r.resent, r.unknown), (1000, 400, 0, 0), "{resend:?} {method}");
        assert_eq!((failures.count(Failure::Reset), failures.count(Failure::Truncated)), (300, 100));
        assert_eq!(failures.codes().iter().collect::<Vec<_>>(), [(&"INTERNAL_ERROR".to_owned(), &300)]);
        assert_eq!(failures.details["reset"], "the server reset the stream: INTERNAL_ERROR");
        let broke_off = "the server reset the stream of a response that had begun: CANCEL";
        assert_eq!(failures.details["truncated"], broke_off);
        assert_eq!(*seen.lock().unwrap(), 1000, "nothing went out twice");
    }
}

/// Breaks the connection at some of the requests: by a frame of its own, or by GOAWAY.
struct Breaks {
    wild: Wild,
    by_go_away: bool,
}
impl Breaks {
    /// By the path. No block of ours refers to another one.
    fn is_cause(block: &[u8]) -> bool {
        let mut is_cause = false;
        let each = |name: &[u8], value: &[u8]| is_cause |= name == b":path" && value.starts_with(b"/cause");
        Decoder::default().decode(block, 1000, each).unwrap();
        is_cause
    }
}
impl Peer for Breaks {
    fn connected(&mut self, _: Time, conn: PeerConn, out: &mut PeerActions) {
        self.wild.sides.insert(conn, Side::default());
        out.send(conn, frame(kind::SETTINGS, 0, 0, &[0, 3, 0, 0, 0, 100]));
    }
    fn received(&mut self, _: Time, conn: PeerConn, bytes: &[u8], out: &mut PeerActions) {
        let Some(side) = self.wild.sides.get_mut(&conn) else { return };
        side.carry.extend_from_slice(bytes);
        while let Some((head, block)) = Wild::next_frame(side) {
            match head.kind {
                kind::HEADERS if Breaks::is_cause(&block) && self.by_go_away => {
                    let away = [&head.stream.to_be_bytes()[..], &[0, 0, 0, 2]].concat();
                    out.send(conn, frame(kind::GOAWAY, 0, 0, &away));
                    return out.close(conn);
                }
                kind::HEADERS if Breaks::is_cause(&block) => {
                    return out.send(conn, frame(kind::SETTINGS, 0, 0, b"short"));
                }
                // Some time later, so that others are in flight beside it.
                kind::HEADERS => out.send_after(MS, conn, frame(kind::HEADERS, 5, head.stream, b"\x88")),
                _ => {}
            }
        }
    }
}

/// RFC 9113, section 5.4.1: of the requests on a connection that breaks, the cause shows itself alone.
#[test]
fn a_request_that_breaks_its_connection_fails_and_no_other() {
    let causes = |n: usize| (n % 50 == 20).then(|| format!("/cause{}", n / 50));
    for (by_go_away, method, resend) in [
        (false, "GET", Resend::Idle),
        (true, "GET", Resend::Idle),
        (false, "GET", Resend::Never),
        (false, "POST", Resend::Idle),
    ] {
        let mut mem = Mem::new(wire()).unwrap();
        let wild = Wild { dice: Random::new(1), evil: 0, processed: Arc::default(), sides: HashMap::new() };
        mem.serve(server(), Breaks { wild, by_go_away }).unwrap();
        let mut plan = Plan {
            connections: 2,
            depth: 8,
            stop: requests(200),
            order: Order::Listed((0..200).collect()),
            resend,
            http: by_http2(),
            ..plan()
        };
        plan.requests = (0..200)
            .map(|n| {
                let mut one = request(method);
                one.path = causes(n).unwrap_or_else(|| "/".to_owned());
                one
            })
            .collect();
        let shared = AnyShared::new(Speaks::Http2, HeadCache::new(), H2Shared::new(1 << 20));
        let outcome = part().run_by::<_, Any<ResponseReading>>(&plan, mem, PLAIN, board(), shared).unwrap();
        let (r, failures) = (outcome.requests, &outcome.failures);
        let how = format!("{by_go_away} {method} {resend:?}: {r:?} {:?}", failures.in_detail());
        assert_eq!((r.sent, r.sent), (200, r.answered + r.failed + r.unknown), "{how}");
        let (malformed, early) = (failures.count(Failure::Malformed), failures.count(Failure::ClosedEarly));
        match (by_go_away, method, resend) {
            (false, "GET", Resend::Idle) => assert_eq!((r.failed, malformed), (4, 4), "{how}"),
            (true, "GET", Resend::Idle) => assert_eq!((r.failed, early), (4, 4), "{how}"),
            (_, "GET", _) => assert!(early > 4 && early == r.failed && r.resent == 0, "{how}"),
            _ => assert!(r.unknown > 4 && r.resent == 0, "{how}"),
        }
        assert_eq!(r.resent, r.resent_alone + r.resent_refused, "{how}");
    }
}

/// RFC 9113, section 6.8: behind a GOAWAY nothing new is sent. Once its requests have timed out, another connection
/// takes the place.
#[test]
fn a_server_that_goes_away_and_stays_silent_costs_time_outs_alone() {
    struct Leaves(Wild);
    impl Peer for Leaves {
        fn connected(&mut self, now: Time, conn: PeerConn, out: &mut PeerActions) {
            self.0.connected(now, conn, out);
        }
        fn received(&mut self, _: Time, conn: PeerConn, bytes: &[u8], out: &mut PeerActions) {
            let Some(side) = self.0.sides.get_mut(&conn) else { return };
            side.carry.extend_from_slice(bytes);
            while let Some((head, _)) = Wild::next_frame(side) {
                if head.kind == kind::HEADERS {
                    out.send(conn, go_away(head.stream));
                }
            }
        }
    }
    let mut mem = Mem::new(wire()).unwrap();
    let wild = Wild { dice: Random::new(1), evil: 0, processed: Arc::default(), sides: HashMap::new() };
    mem.serve(server(), Leaves(wild)).unwrap();
    let plan = Plan { timeout: 50 * MS, stop: requests(8), http: by_http2(), ..plan() };
    let shared = AnyShared::new(Speaks::Http2, HeadCache::new(), H2Shared::new(1 << 20));
    let outcome = part().run_by::<_, Any<ResponseReading>>(&plan, mem, PLAIN, board(), shared).unwrap();
    let (failures, connections) = (&outcome.failures, &outcome.connections);
    assert_eq!(
        (outcome.requests.failed, failures.count(Failure::Timeout)),
        (8, 8),
        "{:?}",
        failures.in_detail()
    );
    assert_eq!((connections.opened, connections.failed, outcome.unreachable), (8, 0, None));
}

/// A server whose windows admit no more of a body: the report names what could not leave.
#[test]
fn a_body_that_the_window_holds_up_is_named() {
    struct Shuts(Wild);
    impl Peer for Shuts {
        fn connected(&mut self, _: Time, conn: PeerConn, out: &mut PeerActions) {
            self.0.sides.insert(conn, Side::default());
            out.send(conn, frame(kind::SETTINGS, 0, 0, &[0, 3, 0, 0, 0, 100]));
        }
        fn received(&mut self, _: Time, conn: PeerConn, bytes: &[u8], out: &mut PeerActions) {
            let Some(side) = self.0.sides.get_mut(&conn) else { return };
            side.carry.extend_from_slice(bytes);
            while let Some((head, _)) = Wild::next_frame(side) {
                if head.kind == kind::DATA && head.flags & flag::END_STREAM != 0 {
                    out.send(conn, frame(kind::HEADERS, 5, head.stream, b"\x88"));
                }
            }
        }
    }
    let mut mem = Mem::new(wire()).unwrap();
    let wild = Wild { dice: Random::new(1), evil: 0, processed: Arc::default(), sides: HashMap::new() };
    mem.serve(server(), Shuts(wild)).unwrap();
    let mut plan = Plan { depth: 2, timeout: 50 * MS, stop: requests(12), http: by_http2(), ..plan() };
    plan.requests = vec![request("POST")];
    plan.requests[0].body = Some("x".repeat(20_000).into());
    let shared = AnyShared::new(Speaks::Http2, HeadCache::new(), H2Shared::new(1 << 20));
    let outcome = part().run_by::<_, Any<ResponseReading>>(&plan, mem, PLAIN, board(), shared).unwrap();
    let (r, facts) = (outcome.requests, &outcome.http);
    assert_eq!((r.sent, r.sent), (12, r.answered + r.failed + r.unknown), "{r:?}");
    assert!(r.answered >= 3 && r.failed > 0, "{r:?} {:?}", outcome.failures.in_detail());
    assert_eq!(outcome.unreachable, None);
    let words = &outcome.failures.details["timeout"];
    assert!(words.contains("window admitted no more of the request's body"), "{words}");
    assert!(facts.held_bodies > 0 && facts.held_bytes > 0 && facts.held_ns >= 40_000_000, "{facts:?}");
    assert_eq!(facts.shut_ns, 0);
}

/// RFC 9113, section 6.5.2: a server may admit no streams. Requests that it never admits fail after the
/// time-out.
#[test]
fn a_server_that_admits_no_streams_ends_the_run() {
    /// Responds to this many requests of each connection and admits none from then on.
    struct Shuts(Wild, u32);
    impl Shuts {
        fn shut(conn: PeerConn, out: &mut PeerActions) {
            out.send(conn, frame(kind::SETTINGS, 0, 0, &[0, 3, 0, 0, 0, 0]));
        }
    }
    impl Peer for Shuts {
        fn connected(&mut self, _: Time, conn: PeerConn, out: &mut PeerActions) {
            self.0.sides.insert(conn, Side::default());
            match self.1 {
                0 => Shuts::shut(conn, out),
                most => out.send(conn, frame(kind::SETTINGS, 0, 0, &[0, 3, 0, 0, 0, most as u8])),
            }
        }
        fn received(&mut self, _: Time, conn: PeerConn, bytes: &[u8], out: &mut PeerActions) {
            let Some(side) = self.0.sides.get_mut(&conn) else { return };
            side.carry.extend_from_slice(bytes);
            while let Some((head, _)) = Wild::next_frame(side) {
                match head.kind {
                    kind::HEADERS if self.1 == 0 => out.send(conn, reset(head.stream, Code::REFUSED_STREAM)),
                    kind::HEADERS => {
                        self.1 -= 1;
                        if self.1 == 0 {
                            Shuts::shut(conn, out);
                        }
                        out.send(conn, frame(kind::HEADERS, 5, head.stream, b"\x88"));
                    }
                    _ => {}
                }
            }
        }
    }
    for (admits, answered) in [(0, 0), (3, 3)] {
        let wild = Wild { dice: Random::new(1), evil: 0, processed: Arc::default(), sides: HashMap::new() };
        let mut mem = Mem::new(wire()).unwrap();
        mem.serve(server(), Shuts(wild, admits)).unwrap();
        let plan = Plan { depth: 1, timeout: 50 * MS, stop: requests(8), ..plan() };
        let shared = AnyShared::new(Speaks::Http2, HeadCache::new(), H2Shared::new(1 << 20));
        let outcome = part().run_by::<_, Any<ResponseReading>>(&plan, mem, PLAIN, board(), shared).unwrap();
        let r = outcome.requests;
        assert_eq!((r.answered, r.sent), (answered, r.answered + r.failed + r.unknown), "{r:?}");
        if admits == 0 {
            let why = outcome.unreachable.unwrap();
            assert!(why.contains("SETTINGS_MAX_CONCURRENT_STREAMS is 0"), "{why}");
            assert!(outcome.http.shut_ns >= 50_000_000, "{:?}", outcome.http);
        } else {
            assert_eq!(r.failed, 5, "{r:?} {:?}", outcome.unreachable);
        }
    }
}

/// Admits streams on connections that are opened from a time on, or so long after they were opened.
struct AdmitsLate {
    wild: Wild,
    from: Time,
    after: Option<Duration>,
}

impl AdmitsLate {
    fn run(from: Duration, after: Option<Duration>, lasts: Duration, board: Arc<Board>) -> Outcome {
        let wild = Wild { dice: Random::new(1), evil: 0, processed: Arc::default(), sides: HashMap::new() };
        let mut mem = Mem::new(wire()).unwrap();
        mem.serve(server(), AdmitsLate { wild, from: Time::ZERO + from, after }).unwrap();
        let pace = Pace::Open { rate: Rate::constant(100.0), arrival: Default::default() };
        let stop = Stop { requests: None, duration: Some(lasts) };
        let plan = Plan { depth: 8, timeout: 50 * MS, stop, pace, http: by_http2(), ..plan() };
        let shared = AnyShared::new(Speaks::Http2, HeadCache::new(), H2Shared::new(1 << 20));
        part().run_by::<_, Any<ResponseReading>>(&plan, mem, PLAIN, board, shared).unwrap()
    }
}

impl Peer for AdmitsLate {
    fn connected(&mut self, now: Time, conn: PeerConn, out: &mut PeerActions) {
        self.wild.sides.insert(conn, Side::default());
        let [shut, open] = [0, 100].map(|streams| frame(kind::SETTINGS, 0, 0, &[0, 3, 0, 0, 0, streams]));
        out.send(conn, if now < self.from { shut } else { open.clone() });
        if let Some(after) = self.after {
            out.send_after(after, conn, open);
        }
    }

    fn received(&mut self, _: Time, conn: PeerConn, bytes: &[u8], out: &mut PeerActions) {
        let Some(side) = self.wild.sides.get_mut(&conn) else { return };
        side.carry.extend_from_slice(bytes);
        while let Some((head, _)) = Wild::next_frame(side) {
            if head.kind == kind::HEADERS {
                out.send(conn, frame(kind::HEADERS, 5, head.stream, b"\x88"));
            }
        }
    }
}

#[test]
fn a_core_that_is_shut_out_keeps_its_share_while_others_are_served() {
    let common = Arc::new(Common::default());
    let (mine, _other) = (Arc::new(Board::sharing(&common)), Board::sharing(&common));
    let outcome = AdmitsLate::run(200 * MS, None, 1_000 * MS, mine);
    let r = outcome.requests;
    assert_eq!((r.due(), outcome.unreachable), (100, None), "{r:?}");
    assert!(r.answered > 60, "{r:?}");
}

#[test]
fn requests_that_the_server_did_not_admit_are_not_our_lateness() {
    let outcome = AdmitsLate::run(1_000 * MS, Some(40 * MS), 200 * MS, board());
    let late = outcome.client.lateness.max_ns();
    assert_eq!((outcome.requests.answered, outcome.unreachable), (20, None), "{:?}", outcome.requests);
    assert!(late < 5_000_000, "{late} ns");
}
