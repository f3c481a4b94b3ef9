//! Rules that single situations show.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderName, Method, Request};
use linerate_http::client::HeadCache;
use linerate_http::h2::{Code, PREFACE, flag, kind};
use linerate_net::mem::{Accept, Mem, MemOptions, Peer, PeerActions, PeerConn};
use linerate_net::{Time, Transport};

use super::server_h2::{frame, reset};
use super::{CallReading, Program, address, options};
use crate::client::error::{Error, FailedPart, Phase};
use crate::client::options::{CallOptions, Protocol};
use crate::{Any, AnyShared, Failure, H2Shared, Resend, Speaks};

pub(super) const OK: &str = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok";
pub(super) const SECOND: Duration = Duration::from_secs(1);

/// The server's action for the n-th request of a connection.
#[derive(Clone, Debug)]
pub(super) enum Does {
    Says(String),
    SaysAfter(Duration, String),
    /// So many bytes each millisecond.
    SaysInPieces(usize, String),
    SaysAndCloses(String),
    /// Says it, and closes so long afterwards.
    ClosesAfter(Duration, String),
    Nothing,
}

pub(super) fn ok() -> Does {
    Does::Says(OK.to_owned())
}

/// Requests as they came: the connection, and the head.
pub(super) type Log = Arc<Mutex<Vec<(u64, Time, String)>>>;

/// Decides the action by the connection, the number of the request on it, and its head.
type Plan = dyn Fn(u64, usize, &str) -> Does + Send;

/// Does what a closure says, for each request of each connection.
struct Script {
    log: Log,
    does: Box<Plan>,
    accept: Accept,
    connections: HashMap<u64, Heard>,
}

#[derive(Debug, Default)]
struct Heard {
    bytes: Vec<u8>,
    requests: usize,
    busy_until: Time,
    closed: bool,
}

impl Script {
    fn new(does: impl Fn(u64, usize, &str) -> Does + Send + 'static) -> (Script, Log) {
        let log = Log::default();
        let script = Script {
            log: log.clone(),
            does: Box::new(does),
            accept: Accept::Now,
            connections: HashMap::new(),
        };
        (script, log)
    }
}

impl Peer for Script {
    fn accept(&mut self, _: Time) -> Accept {
        self.accept
    }

    fn received(&mut self, now: Time, conn: PeerConn, bytes: &[u8], out: &mut PeerActions) {
        let heard = self.connections.entry(conn.0).or_default();
        heard.bytes.extend_from_slice(bytes);
        while let Some(end) = heard.bytes.windows(4).position(|w| w == b"\r\n\r\n").filter(|_| !heard.closed)
        {
            let head = String::from_utf8(heard.bytes.drain(..end + 4).collect()).unwrap();
            let len = head.split("content-length: ").nth(1).and_then(|n| n.lines().next()?.parse().ok());
            heard.bytes.drain(..heard.bytes.len().min(len.unwrap_or(0)));
            self.log.lock().unwrap().push((conn.0, now, head.clone()));
            // In the order of the requests.
            let mut say = |after: Duration, words: String| {
                heard.busy_until = heard.busy_until.max(now + after);
                out.send_after(heard.busy_until - now, conn, words);
            };
            match (self.does)(conn.0, heard.requests, &head) {
                Does::Says(words) => say(Duration::ZERO, words),
                Does::SaysAfter(after, words) => say(after, words),
                Does::SaysInPieces(len, words) => {
                    for (n, piece) in (1..).zip(words.as_bytes().chunks(len)) {
                        say(Duration::from_millis(n), String::from_utf8_lossy(piece).into_owned());
                    }
                }
                Does::SaysAndCloses(words) => {
                    say(Duration::ZERO, words);
                    out.close_after(heard.busy_until - now, conn);
                    heard.closed = true;
                }
                Does::ClosesAfter(after, words) => {
                    say(Duration::ZERO, words);
                    out.close_after(after, conn);
                }
                Does::Nothing => {}
            }
            heard.requests += 1;
        }
    }
}

pub(super) fn one_pipe() -> CallOptions {
    CallOptions { pipes: 1, depth: 10, ..options() }
}

pub(super) fn program(
    options: CallOptions,
    does: impl Fn(u64, usize, &str) -> Does + Send + 'static,
) -> (Program, Log) {
    program_over(Duration::from_millis(1), options, does)
}

/// `latency`: of one direction.
pub(super) fn program_over(
    latency: Duration,
    options: CallOptions,
    does: impl Fn(u64, usize, &str) -> Does + Send + 'static,
) -> (Program, Log) {
    let (script, log) = Script::new(does);
    let wire = MemOptions { latency, ..MemOptions::default() };
    (Program::new(wire, options, script), log)
}

/// RFC 9112 section 9.3.2.
#[test]
fn nothing_is_pipelined_before_the_first_persistent_response() {
    let (mut program, log) = program(one_pipe(), |_, _, _| ok());
    program.get_all(0..5);
    program.run(SECOND);
    let log = log.lock().unwrap();
    let times: Vec<u64> = log.iter().map(|(_, at, _)| at.as_nanos() / 1_000_000).collect();
    assert!(times[1] > times[0] && times[1..].iter().all(|t| *t == times[1]), "{times:?}");
    drop(log);
    assert!((0..5).all(|n| program.status(n) == 200));
}

#[test]
fn a_server_that_never_keeps_connections_open_is_never_sent_two_at_once() {
    let says = "HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 2\r\n\r\nok";
    let (mut program, log) = program(one_pipe(), move |_, _, _| Does::SaysAndCloses(says.to_owned()));
    program.get_all(0..5);
    program.run(SECOND);
    assert_eq!(log.lock().unwrap().len(), 5);
    assert_eq!(program.calls.statistics().resent, 0);
}

/// RFC 9112 section 9.3.2: nothing follows a request that is not idempotent before its response came.
#[test]
fn what_is_not_idempotent_is_sent_alone() {
    let (mut program, log) = program(one_pipe(), |_, _, _| Does::SaysAfter(SECOND / 10, OK.to_owned()));
    program.get(0);
    program.run(SECOND);
    program.get_all(1..4);
    program.post(4);
    program.wait(SECOND / 8);
    program.get_all(5..8);
    program.run(SECOND * 3);
    let log = log.lock().unwrap();
    let at: Vec<u64> = log.iter().map(|(_, at, _)| at.as_nanos() / 1_000_000).collect();
    assert!(log[4].2.starts_with("POST /4 "), "{log:?}");
    assert!(at[4] - at[3] >= 100 && at[5] - at[4] >= 100, "{at:?}");
    assert!(at[3] == at[1] && at[7] == at[5], "{at:?}");
}

#[test]
fn a_request_that_must_be_alone_is_not_passed_for_ever() {
    let (mut program, _) = program(one_pipe(), |_, _, _| Does::SaysAfter(SECOND / 100, OK.to_owned()));
    program.get(0);
    program.run(SECOND);
    program.post(1);
    for n in 2..40 {
        program.get(n);
        program.wait(SECOND / 200);
        if program.ended.contains_key(&1) {
            return;
        }
    }
    panic!("38 later requests passed it");
}

#[test]
fn unanswered_idempotent_requests_are_sent_again_and_others_are_unknown() {
    let (mut program, log) = program(one_pipe(), |conn, n, head| match (conn, n) {
        (0, 3) => Does::SaysAndCloses(String::new()),
        _ if head.starts_with("POST") => Does::SaysAndCloses(String::new()),
        _ => ok(),
    });
    program.get_all(0..8);
    program.run(SECOND * 2);
    assert!((0..8).all(|n| program.status(n) == 200));
    program.post(8);
    program.run(SECOND * 2);
    let Error::OutcomeUnknown(unknown) = program.error(8) else { panic!("{}", program.error(8)) };
    assert_eq!((unknown.request.uri().path(), &unknown.request.body()[..]), ("/8", &b"bbb"[..]));
    let log = log.lock().unwrap();
    assert_eq!(log.iter().filter(|(.., head)| head.starts_with("POST")).count(), 1);
    assert_eq!(program.calls.statistics().resent, 5);
}

#[test]
fn the_limit_of_a_connection_is_learnt() {
    let (mut program, log) = program(one_pipe(), |_, n, _| match n {
        4 => Does::SaysAndCloses(OK.to_owned()),
        _ => ok(),
    });
    for round in 0..12 {
        program.get_all(round * 10..round * 10 + 10);
        program.run(SECOND * 5);
    }
    let statistics = program.calls.statistics();
    assert_eq!(statistics.learnt_limit, Some(5));
    assert!(statistics.resent < 30, "{statistics:?}");
    assert!((0..120).all(|n| program.status(n) == 200));
    assert_eq!(log.lock().unwrap().len(), 120);
}

#[test]
fn a_slow_response_at_the_head_is_avoided() {
    let slow = |conn: u64, _: usize, head: &str| match head {
        _ if head.starts_with("GET /100 ") && conn < 2 => Does::SaysAfter(SECOND * 2, OK.to_owned()),
        _ => Does::SaysAfter(SECOND / 1000, OK.to_owned()),
    };
    let (mut program, _) = program(CallOptions { pipes: 2, depth: 10, ..options() }, slow);
    program.get_all(0..20);
    program.run(SECOND);
    program.get_all(100..104);
    program.wait(SECOND / 20);
    for n in 200..300 {
        program.get(n);
        program.wait(SECOND / 100);
    }
    let statistics = program.calls.statistics();
    assert_eq!(statistics.head_of_line, 1, "{statistics:?}");
    // Those that were behind it when it was sent, and no later one.
    assert!((200..300).all(|n| program.ended.contains_key(&n)), "{statistics:?}");
    assert!(!program.ended.contains_key(&100));
    program.run(SECOND * 3);
}

#[test]
fn while_another_pipe_may_open_nothing_is_sent_behind_a_slow_response() {
    let (mut program, log) = program(CallOptions { pipes: 4, ..options() }, |_, _, head| {
        if head.starts_with("GET /1 ") { Does::SaysAfter(3 * SECOND, OK.to_owned()) } else { ok() }
    });
    program.get(0);
    program.run(SECOND);
    program.get(1);
    program.wait(SECOND);
    program.get_all(2..6);
    program.wait(SECOND);
    assert_eq!(program.ended.len(), 5, "all but the slow one");
    let log = log.lock().unwrap();
    let slow = log.iter().find(|(_, _, head)| head.starts_with("GET /1 ")).unwrap().0;
    assert!(log.iter().filter(|(conn, ..)| *conn == slow).count() <= 2, "{log:?}");
}

/// RFC 9113 section 8.7: the server may have acted on a request whose stream it reset, so that it goes out again only if
/// the program said so, and for a limited number of times.
#[test]
fn a_request_whose_stream_is_reset_has_failed() {
    let idempotent = (Resend::Idempotent, 6);
    for (code, (resend, times)) in [
        (0_u32, (Resend::Idle, 3)),
        (2, (Resend::Idle, 3)),
        (8, (Resend::Never, 3)),
        (2, idempotent),
        (11, idempotent),
        (13, idempotent),
    ] {
        let asked = Arc::new(Mutex::new(0_u32));
        let mut mem = Mem::default();
        let (seen, mut received) = (Arc::clone(&asked), Vec::new());
        let server = move |_: Time, conn: PeerConn, bytes: &[u8], out: &mut PeerActions| {
            received.extend_from_slice(bytes);
            if received.starts_with(PREFACE) {
                received.drain(..PREFACE.len());
                out.send(conn, frame(kind::SETTINGS, 0, 0, &[]));
            }
            while let Some(head) = received.first_chunk::<9>() {
                let (length, of) = (u32::from_be_bytes([0, head[0], head[1], head[2]]) as usize, head[3]);
                let stream = u32::from_be_bytes([head[5], head[6], head[7], head[8]]);
                if received.len() < 9 + length {
                    break;
                }
                received.drain(..9 + length);
                if of == kind::HEADERS {
                    let mut asked = seen.lock().unwrap();
                    *asked += 1;
                    let ok = frame(kind::HEADERS, flag::END_HEADERS | flag::END_STREAM, stream, &[0x88]);
                    out.send(conn, if *asked == 1 { ok } else { reset(stream, Code(code)) });
                }
            }
        };
        mem.serve(address(), server).unwrap();
        let shared = AnyShared::new(Speaks::Http2, HeadCache::new(), H2Shared::new(1 << 20));
        let calls = CallOptions { protocol: Protocol::Http2, resend, ..options() };
        let mut program = Program::<_, Any<CallReading>>::over(mem, calls, shared);
        program.get(0);
        program.run(SECOND);
        program.get(1);
        program.post(2);
        program.run(SECOND);
        assert!(program.ended[&0].is_ok());
        assert!(matches!(program.ended[&1], Err(Error::Failed { failure: Failure::Reset, .. })), "{code}");
        assert!(matches!(program.ended[&2], Err(Error::OutcomeUnknown(_))), "{code}");
        // The first, the GET once or four times, and the POST once.
        assert_eq!(*asked.lock().unwrap(), times, "{code}");
    }
}

#[test]
fn each_timeout_says_what_it_waited_for() {
    let (mut program, _) = program(one_pipe(), |_, n, head| match head {
        _ if head.starts_with("GET /0 ") => ok(),
        _ if n == 1 => Does::Nothing,
        _ => Does::Says("HTTP/1.1 200 OK\r\nContent-Length: 20\r\n\r\nok".to_owned()),
    });
    program.get(0);
    program.run(SECOND);
    program.get(1);
    program.run(SECOND * 5);
    assert!(
        matches!(program.error(1), Error::Timeout { phase: Phase::FirstByte, .. }),
        "{}",
        program.error(1)
    );
    let (mut program, _) = self::program(one_pipe(), |_, _, _| {
        Does::Says("HTTP/1.1 200 OK\r\nContent-Length: 20\r\n\r\nok".to_owned())
    });
    program.get(1);
    program.post(2);
    program.run(SECOND * 20);
    assert!(
        matches!(program.error(1), Error::Timeout { phase: Phase::Response, .. }),
        "{}",
        program.error(1)
    );
    assert!(matches!(program.error(2), Error::Timeout { phase: Phase::Queue, .. }), "{}", program.error(2));
    let (mut program, _) = self::program(one_pipe(), |_, _, _| Does::Nothing);
    program.post(3);
    program.run(SECOND * 20);
    assert!(matches!(program.error(3), Error::OutcomeUnknown(_)), "{}", program.error(3));
}

#[test]
fn a_server_that_cannot_be_reached_fails_what_waits() {
    for accept in [Accept::Refuse, Accept::Ignore] {
        let (mut script, _) = Script::new(|_, _, _| ok());
        script.accept = accept;
        let mut program = Program::new(MemOptions::default(), one_pipe(), script);
        program.get_all(0..5);
        program.run(SECOND * 10);
        assert!((0..5).all(|n| matches!(program.error(n), Error::Connect(_))), "{:?}", program.ended);
        assert_eq!(program.calls.open(), 0);
    }
}

/// RFC 8305 section 5.
#[test]
fn an_address_that_does_not_answer_gets_company() {
    for (accept, within) in [(Accept::Ignore, SECOND), (Accept::Refuse, SECOND / 10)] {
        let (mut script, _) = Script::new(|_, _, _| ok());
        script.accept = accept;
        let mut program = Program::new(MemOptions::default(), one_pipe(), script);
        let second = SocketAddr::from(([10, 0, 0, 3], 80));
        program.calls.transport().serve(second, Script::new(|_, _, _| ok()).0).unwrap();
        program.calls.set_addresses(vec![address(), second]);
        program.get_all(0..5);
        program.run(within);
        assert!((0..5).all(|n| program.status(n) == 200));
        assert_eq!((program.calls.statistics().connected, program.calls.open()), (1, 1));
        // Later pipes go where the first one went.
        program.wait(SECOND * 60);
        assert_eq!(program.calls.open(), 0);
        program.get(5);
        program.run(SECOND / 10);
    }
}

#[test]
fn limits_of_heads_and_bodies() {
    let long = |n: usize| format!("HTTP/1.1 200 OK\r\nX: {}\r\nContent-Length: 2\r\n\r\nok", "x".repeat(n));
    let large = |n: usize| format!("HTTP/1.1 200 OK\r\nContent-Length: {n}\r\n\r\n{}", "x".repeat(n));
    let limits = CallOptions { max_head: 1000, max_body: 1000, ..one_pipe() };
    let (mut program, _) = program(limits, move |_, _, head| {
        let at: usize = head.split(['/', ' ']).nth(2).unwrap().parse().unwrap();
        Does::Says(match at {
            1 => long(1000),
            2 => large(1000),
            3 => large(1001),
            4 => large(300_000),
            5 => return Does::SaysInPieces(300, large(3000)),
            _ => OK.to_owned(),
        })
    });
    program.get_all(0..7);
    program.run(SECOND * 5);
    assert!(matches!(program.error(1), Error::TooLarge { part: FailedPart::Head, limit: 1000, .. }));
    for n in [3, 4, 5] {
        assert!(matches!(program.error(n), Error::TooLarge { part: FailedPart::Body, limit: 1000, .. }));
    }
    assert!([0, 2, 6].iter().all(|n| program.status(*n) == 200));
}

#[test]
fn a_head_beyond_64_kib_is_too_large() {
    let (mut program, log) = program(one_pipe(), |_, _, head| match head {
        _ if head.starts_with("GET /2 ") => {
            Does::Says(format!("HTTP/1.1 200 OK\r\nX: {}\r\nContent-Length: 2\r\n\r\nok", "x".repeat(70_000)))
        }
        _ => ok(),
    });
    program.get_all(0..6);
    program.run(SECOND * 5);
    let error = program.error(2);
    assert!(matches!(error, Error::TooLarge { part: FailedPart::Head, limit: 65_536, .. }), "{error}");
    assert!([0, 1, 3, 4, 5].iter().all(|n| program.status(*n) == 200));
    assert_eq!(log.lock().unwrap().iter().filter(|(.., head)| head.starts_with("GET /2 ")).count(), 1);
}

#[test]
fn a_response_whose_end_is_in_doubt_fails_and_none_behind_it_is_trusted() {
    for (fields, words) in [
        ("Content-Length: 2\r\nTransfer-Encoding: chunked", "both Transfer-Encoding and Content-Length"),
        ("Transfer-Encoding: gzip, chunked", "not chunked alone"),
        ("Transfer-Encoding: gzip\r\nTransfer-Encoding: chunked", "not chunked alone"),
    ] {
        // A second response lies in the same packet.
        let doubtful =
            format!("HTTP/1.1 200 OK\r\n{fields}\r\n\r\n2\r\nok\r\n0\r\n\r\n{}", OK.replace("200", "201"));
        let (mut program, log) = program(one_pipe(), move |_, _, head| match head {
            _ if head.starts_with("GET /2 ") => Does::Says(doubtful.clone()),
            _ => ok(),
        });
        program.get_all(0..6);
        program.run(SECOND * 5);
        let Error::Failed { failure: Failure::Malformed, detail, .. } = program.error(2) else {
            panic!("{fields}: {}", program.error(2));
        };
        assert!(detail.contains(words), "{detail}");
        assert!([0, 1, 3, 4, 5].iter().all(|n| program.status(*n) == 200), "{fields}");
        let connections = log.lock().unwrap().iter().map(|(conn, ..)| *conn).max();
        assert_eq!(connections, Some(1), "{fields}: one more connection");
    }
}

#[test]
fn responses_that_nobody_waits_for_are_discarded_within_a_limit() {
    for (len, given_up) in [(5_000, 0), (2_000_000, 1)] {
        let limits = CallOptions { max_discarded: 100_000, ..one_pipe() };
        let (mut program, log) = program(limits, move |_, _, head| match head {
            _ if head.starts_with("GET /1 ") => {
                Does::Says(format!("HTTP/1.1 200 OK\r\nContent-Length: {len}\r\n\r\n{}", "x".repeat(len)))
            }
            _ => ok(),
        });
        program.get(0);
        program.run(SECOND);
        let id = program.get(1);
        program.get(2);
        let now = program.now();
        program.calls.tick(now);
        program.cancel(id);
        program.run(SECOND * 2);
        assert_eq!(program.status(2), 200);
        let statistics = program.calls.statistics();
        assert_eq!(statistics.given_up, given_up, "{statistics:?}");
        assert_eq!(log.lock().unwrap().len(), 3 + given_up as usize);
    }
}

#[test]
fn a_request_given_up_before_it_was_sent_never_is() {
    let (mut program, log) = program(one_pipe(), |_, _, _| ok());
    program.get(0);
    let id = program.get(1);
    program.cancel(id);
    program.run(SECOND);
    assert_eq!(log.lock().unwrap().len(), 1);
}

#[test]
fn a_foreign_tag_closes_the_connection_with_an_error_that_says_so() {
    let tagged = CallOptions { tag: Some(HeaderName::from_static("x-call")), ..one_pipe() };
    let (mut program, _) = program(tagged, |conn, n, head| {
        let tag = head.split("x-call: ").nth(1).unwrap().lines().next().unwrap();
        let tag = if (conn, n) == (0, 2) { "77" } else { tag };
        Does::Says(format!("HTTP/1.1 200 OK\r\nX-Call: {tag}\r\nContent-Length: 2\r\n\r\nok"))
    });
    program.get_all(0..6);
    program.run(SECOND * 2);
    let Error::Mismatch(words) = program.error(2) else { panic!("{}", program.error(2)) };
    assert!(words.contains("x-call names no request in flight"), "{words}");
    assert!([0, 1, 3, 4, 5].iter().all(|n| program.status(*n) == 200), "{:?}", program.ended);
    assert_eq!(program.calls.statistics().lost, 1);
}

/// URIs of other servers, for a client of `http://server`.
const FOREIGN: [&str; 4] =
    ["https://server/", "http://server:443/", "https://server:80/", "http://user@server/"];

#[test]
fn a_uri_may_name_the_default_port() {
    for (secure, host, good, bad) in [
        (false, "server", "http://server:80/x", "https://server:80/x"),
        (false, "server:80", "http://SERVER/x", "http://server:443/x"),
        (true, "server", "https://server:443/x", "http://server/x"),
        (true, "[::1]:443", "https://[::1]/x", "https://[::1]:80/x"),
    ] {
        let options = CallOptions { secure, host: host.parse().unwrap(), ..one_pipe() };
        let (mut program, _) = program(options, |_, _, _| ok());
        program.send(0, Request::get(good).body(Bytes::new()).unwrap());
        program.send(1, Request::get(bad).body(Bytes::new()).unwrap());
        program.run(SECOND);
        assert_eq!(program.status(0), 200, "{good}");
        assert!(matches!(program.error(1), Error::Request(_)), "{bad}");
    }
}

#[test]
fn what_cannot_be_sent_is_an_error_before_anything_left() {
    let (mut program, log) = program(one_pipe(), |_, _, _| ok());
    let request = |method: Method, uri: &str| Request::builder().method(method).uri(uri);
    program.send(0, request(Method::CONNECT, "server:80").body(Bytes::new()).unwrap());
    program.send(1, request(Method::GET, "http://other/").body(Bytes::new()).unwrap());
    let chunked = request(Method::POST, "/").header("transfer-encoding", "chunked");
    program.send(2, chunked.body(Bytes::new()).unwrap());
    let wrong = request(Method::POST, "/").header("content-length", "7");
    program.send(3, wrong.body(Bytes::new()).unwrap());
    for (n, uri) in (4..).zip(FOREIGN) {
        program.send(n, request(Method::GET, uri).body(Bytes::new()).unwrap());
    }
    program.run(SECOND);
    let count = 4 + FOREIGN.len() as u64;
    assert!((0..count).all(|n| matches!(program.error(n), Error::Request(_))), "{:?}", program.ended);
    assert!(log.lock().unwrap().is_empty());
    // A valid request is sent exactly as given.
    let good = request(Method::PUT, "http://SERVER/a?b").header("content-length", "2").header("X-Y", "z");
    program.send(count, good.body(Bytes::from_static(b"bb")).unwrap());
    program.run(SECOND);
    let head = log.lock().unwrap()[0].2.clone();
    assert_eq!(head, "PUT /a?b HTTP/1.1\r\nhost: server\r\nx-y: z\r\ncontent-length: 2\r\n\r\n");
}

#[test]
fn an_answer_that_is_not_http_fails_its_call() {
    let (mut program, _) = program(one_pipe(), |_, _, _| Does::Says("SSH-2.0-OpenSSH_9.2p1\r\n".to_owned()));
    program.get(0);
    program.run(SECOND);
    let Error::Failed { failure: Failure::Malformed, detail, .. } = program.error(0) else { panic!() };
    assert!(detail.contains("SSH"), "{detail}");
}

#[test]
fn idle_connections_close() {
    let (mut program, _) = program(CallOptions { idle_timeout: SECOND * 3, ..one_pipe() }, |_, _, _| ok());
    program.get(0);
    program.run(SECOND);
    program.wait(SECOND * 2);
    assert_eq!(program.calls.open(), 1);
    program.wait(SECOND * 3);
    assert_eq!((program.calls.open(), program.calls.transport().unfinished()), (0, 0));
    program.get(1);
    program.run(SECOND);
    assert_eq!(program.status(1), 200);
}

const TOO_LARGE: &str = "HTTP/1.1 413 Content Too Large\r\nContent-Length: 0\r\n\r\n";

fn early(_: u64, _: usize, head: &str) -> Does {
    match head {
        _ if head.starts_with("PUT") => Does::SaysAfter(SECOND / 100, TOO_LARGE.to_owned()),
        _ => ok(),
    }
}

/// RFC 9112 sections 9.3 and 9.6: what follows an unfinished request would be read as its body.
#[test]
fn nothing_follows_an_upload_that_was_answered_before_it_was_whole() {
    for length in [Some(1500), None] {
        let (mut program, log) = program(one_pipe(), early);
        program.get(0);
        program.run(SECOND);
        let id = program.put(1, length);
        program.give(id, 1000);
        program.wait(SECOND / 200);
        program.get_all(2..6);
        program.post(6);
        program.run(SECOND);
        assert_eq!(program.status(1), 413);
        assert!([2, 3, 4, 5, 6].iter().all(|n| program.status(*n) == 200), "{:?}", program.ended);
        let log = log.lock().unwrap();
        let at: Vec<(u64, &str)> = log.iter().map(|(conn, _, head)| (*conn, &head[..6])).collect();
        let later = [(1, "GET /2"), (1, "GET /3"), (1, "GET /4"), (1, "GET /5"), (1, "POST /")];
        assert_eq!(at[..2], [(0, "GET /0"), (0, "PUT /1")]);
        assert_eq!(at[2..], later);
        assert_eq!(program.calls.statistics().resent, 0);
        assert_eq!((program.calls.pool.in_flight(), program.calls.open()), (0, 1));
    }
}

#[test]
fn an_upload_that_is_whole_keeps_its_connection() {
    for ends in [true, false] {
        let (mut program, log) = program(one_pipe(), early);
        let id = program.put(0, Some(1000));
        program.give(id, 1000);
        if ends {
            program.calls.give_end(id);
        }
        program.run(SECOND);
        program.get(1);
        program.run(SECOND);
        assert_eq!((program.status(0), program.status(1)), (413, 200));
        assert!(log.lock().unwrap().iter().all(|(conn, ..)| *conn == 0), "{log:?}");
    }
}

#[test]
fn an_upload_that_fails_or_is_given_up_leaves_nothing_in_flight() {
    for fails in [true, false] {
        let (mut program, log) = program(one_pipe(), |_, _, head| match head {
            _ if head.starts_with("PUT") => Does::Nothing,
            _ => ok(),
        });
        let id = program.put(0, None);
        program.give(id, 1000);
        program.wait(SECOND / 10);
        program.get(1);
        match fails {
            true => program.calls.fail_upload(id, "the disk is gone"),
            false => program.cancel(id),
        }
        program.run(SECOND / 10);
        assert_eq!(program.status(1), 200);
        assert_eq!(program.calls.pool.in_flight(), 0);
        let conns: Vec<u64> = log.lock().unwrap().iter().map(|(conn, ..)| *conn).collect();
        assert_eq!(conns, [0, 1]);
    }
}

/// Nothing in the protocol says when such a response ends, and the server may never send another byte.
#[test]
fn a_pipe_whose_streamed_response_was_dropped_comes_back() {
    let (mut program, log) = program(one_pipe(), |_, _, head| match head {
        _ if head.starts_with("GET /1 ") => {
            Does::Says("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n".to_owned())
        }
        _ => ok(),
    });
    program.get(0);
    program.run(SECOND);
    let id = program.stream(1);
    program.wait(SECOND / 10);
    program.cancel(id);
    program.get(2);
    program.post(3);
    program.run(SECOND * 4);
    assert_eq!((program.status(2), program.status(3)), (200, 200));
    assert_eq!(program.calls.statistics().given_up, 1);
    assert_eq!(log.lock().unwrap().len(), 4, "the dropped one is not sent again");
}

/// RFC 9110 section 15.5.9 lets a client repeat a request that was in transit, and section 9.2.2 only if it knows that the
/// server did not act on it.
#[test]
fn a_408_on_a_reused_connection_is_the_response_to_a_request_that_is_not_idempotent() {
    let (mut program, log) = program(one_pipe(), |_, n, head| match head {
        _ if n > 0 && (head.starts_with("POST /1 ") || head.starts_with("GET /2 ")) => Does::SaysAndCloses(
            "HTTP/1.1 408 Request Timeout\r\nConnection: close\r\nContent-Length: 0\r\n\r\n".to_owned(),
        ),
        _ => ok(),
    });
    program.get(0);
    program.run(SECOND);
    program.post(1);
    program.run(SECOND);
    assert_eq!(program.status(1), 408);
    program.get(3);
    program.run(SECOND);
    program.get(2);
    program.run(SECOND);
    assert_eq!(program.status(2), 200, "a GET goes out again");
    let log = log.lock().unwrap();
    assert_eq!(log.iter().filter(|(.., head)| head.starts_with("POST")).count(), 1);
}

fn tagged(tag: &str, body: &str) -> String {
    format!("HTTP/1.1 200 OK\r\nX-Call: {tag}\r\nContent-Length: {}\r\n\r\n{body}", body.len())
}

fn tag_in(head: &str) -> String {
    head.split("x-call: ").nth(1).unwrap().lines().next().unwrap().to_owned()
}

#[test]
fn a_streamed_response_with_a_foreign_tag_is_not_handed_over() {
    let options = CallOptions { tag: Some(HeaderName::from_static("x-call")), ..one_pipe() };
    let (mut program, _) = program(options, |_, _, head| match head {
        _ if head.starts_with("GET /1 ") => Does::Says(tagged("77", "someone else's")),
        _ => Does::Says(tagged(&tag_in(head), "ok")),
    });
    program.get(0);
    program.run(SECOND);
    program.stream(1);
    program.run(SECOND);
    assert!(matches!(program.error(1), Error::Mismatch(_)), "{}", program.error(1));
    assert!(program.calls.news().is_empty(), "{:?}", program.calls.news());
    program.stream(2);
    program.run(SECOND);
    assert_eq!(program.calls.news().len(), 2, "head and body");
}

/// The response of the second request comes first, and is too large.
#[test]
fn the_call_that_a_tag_names_gets_the_error_of_its_response() {
    let options =
        CallOptions { tag: Some(HeaderName::from_static("x-call")), max_body: 100_000, ..one_pipe() };
    let first = Arc::new(Mutex::new(String::new()));
    let (mut program, log) = program(options, move |_, _, head| match head {
        _ if head.starts_with("GET /1 ") => {
            *first.lock().unwrap() = tag_in(head);
            Does::Nothing
        }
        _ if head.starts_with("GET /2 ") => {
            let large = tagged(&tag_in(head), &"x".repeat(200_000));
            Does::SaysInPieces(10_000, large + &tagged(&first.lock().unwrap(), "ok"))
        }
        _ => Does::Says(tagged(&tag_in(head), "ok")),
    });
    program.get(0);
    program.run(SECOND);
    program.get(1);
    program.get(2);
    program.wait(SECOND);
    assert!(
        matches!(program.error(2), Error::TooLarge { part: FailedPart::Body, .. }),
        "{}",
        program.error(2)
    );
    let log = log.lock().unwrap();
    assert_eq!(log.iter().filter(|(.., head)| head.starts_with("GET /2 ")).count(), 1);
    assert!(!program.ended.contains_key(&1) || program.ended[&1].is_ok());
}

/// RFC 9112 section 3.2.1.
#[test]
fn a_target_without_a_path_begins_with_a_slash() {
    let (mut program, log) = program(one_pipe(), |_, _, _| ok());
    for (number, uri) in [(0, "http://server?x=1"), (1, "http://server"), (2, "/?y")] {
        program.send(number, Request::get(uri).body(Bytes::new()).unwrap());
    }
    program.run(SECOND);
    let log = log.lock().unwrap();
    let mut targets: Vec<&str> = log.iter().filter_map(|(.., head)| head.split(' ').nth(1)).collect();
    targets.sort_unstable();
    assert_eq!(targets, ["/", "/?x=1", "/?y"]);
}
