//! Rules of HTTP/2 that single situations show: a fault of one stream leaves the others as they are.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use http::Request;
use linerate_http::client::HeadCache;
use linerate_http::h2::{Decoder, FRAME_HEAD, FrameHead, PREFACE, field, flag, kind};
use linerate_net::Time;
use linerate_net::mem::{Mem, Peer, PeerActions, PeerConn};

use super::server_h2::{frame, in_frames};
use super::{CallReading, Program, address, options};
use crate::client::error::{Error, FailedPart};
use crate::client::options::{CallOptions, Protocol};
use crate::{Any, AnyShared, Failure, H2Shared, Speaks};

const SECOND: Duration = Duration::from_secs(1);

/// Requests as they came: the connection, and method and path.
type Log = Arc<Mutex<Vec<(u64, String)>>>;

/// Makes the response to a whole request from its stream, and its method and path.
type Plan = dyn Fn(u32, &str) -> Vec<u8> + Send;

/// A server that never enlarges its windows, unless it does so once.
struct Server {
    log: Log,
    plan: Box<Plan>,
    /// How long after the connection's first bytes all windows become large.
    grants_after: Option<Duration>,
    sides: HashMap<u64, (Vec<u8>, Decoder)>,
    waiting: HashMap<u32, String>,
}

impl Peer for Server {
    fn received(&mut self, _: Time, conn: PeerConn, bytes: &[u8], out: &mut PeerActions) {
        let (received, decoder) = self.sides.entry(conn.0).or_default();
        received.extend_from_slice(bytes);
        if received.starts_with(PREFACE) {
            received.drain(..PREFACE.len());
            out.send(conn, frame(kind::SETTINGS, 0, 0, &[]));
            if let Some(after) = self.grants_after {
                let large = [0, 4, 0x10, 0, 0, 0];
                out.send_after(after, conn, frame(kind::SETTINGS, 0, 0, &large));
                out.send_after(after, conn, frame(kind::WINDOW_UPDATE, 0, 0, &large[2..]));
            }
        }
        while let Some(head) = received.first_chunk().map(FrameHead::read)
            && received.len() >= FRAME_HEAD + head.len as usize
        {
            let payload: Vec<u8> =
                received.drain(..FRAME_HEAD + head.len as usize).skip(FRAME_HEAD).collect();
            match head.kind {
                kind::SETTINGS if !head.has(flag::ACK) => {
                    out.send(conn, frame(kind::SETTINGS, flag::ACK, 0, &[]));
                }
                kind::HEADERS => {
                    let (mut method, mut path) = (String::new(), String::new());
                    let mut read = |name: &[u8], value: &[u8]| match name {
                        b":method" => method = String::from_utf8_lossy(value).into_owned(),
                        b":path" => path = String::from_utf8_lossy(value).into_owned(),
                        _ => {}
                    };
                    decoder.decode(&payload, 1 << 16, &mut read).unwrap();
                    let asked = format!("{method} {path}");
                    self.log.lock().unwrap().push((conn.0, asked.clone()));
                    self.waiting.insert(head.stream, asked);
                }
                _ => {}
            }
            if head.has(flag::END_STREAM)
                && matches!(head.kind, kind::HEADERS | kind::DATA)
                && let Some(asked) = self.waiting.remove(&head.stream)
            {
                out.send(conn, (self.plan)(head.stream, &asked));
            }
        }
    }
}

fn ok(stream: u32) -> Vec<u8> {
    frame(kind::HEADERS, flag::END_HEADERS | flag::END_STREAM, stream, &[0x88])
}

fn program(
    options: CallOptions,
    grants_after: Option<Duration>,
    plan: impl Fn(u32, &str) -> Vec<u8> + Send + 'static,
) -> (Program<Mem, Any<CallReading>>, Log) {
    let (log, mut mem) = (Log::default(), Mem::default());
    let server = Server {
        log: Arc::clone(&log),
        plan: Box::new(plan),
        grants_after,
        sides: HashMap::new(),
        waiting: HashMap::new(),
    };
    mem.serve(address(), server).unwrap();
    let shared = AnyShared::new(Speaks::Http2, HeadCache::new(), H2Shared::new(1 << 20));
    let options = CallOptions { protocol: Protocol::Http2, ..options };
    (Program::over(mem, options, shared), log)
}

type Streams = Program<Mem, Any<CallReading>>;

fn post(program: &mut Streams, number: u64, bytes: usize) {
    let body = Bytes::from(vec![b'b'; bytes]);
    program.send(number, Request::post(format!("/{number}")).body(body).unwrap());
}

/// How often a request came.
fn count(log: &Log, asked: &str) -> usize {
    log.lock().unwrap().iter().filter(|(_, came)| came == asked).count()
}

#[test]
fn a_head_beyond_64_kib_is_too_large_and_costs_its_stream_alone() {
    for bytes in [70_000, 900_000] {
        let (mut program, log) = program(options(), None, move |stream, asked| {
            if asked != "GET /2" && asked != "POST /7" {
                return ok(stream);
            }
            let mut block = vec![0x88];
            field(b"x-long", &vec![b'~'; bytes], &mut block);
            let head = in_frames(stream, 0, &block);
            [head, frame(kind::DATA, flag::END_STREAM, stream, b"late")].concat()
        });
        program.get_all(0..6);
        post(&mut program, 6, 1000);
        post(&mut program, 7, 1000);
        program.run(SECOND);
        for number in [2, 7] {
            let error = program.error(number);
            assert!(
                matches!(error, Error::TooLarge { part: FailedPart::Head, limit: 65_536, .. }),
                "{error}"
            );
        }
        assert!([0, 1, 3, 4, 5, 6].iter().all(|n| program.status(*n) == 200), "{bytes}");
        program.get(8);
        program.run(SECOND);
        assert_eq!(program.status(8), 200);
        assert!(log.lock().unwrap().iter().all(|(conn, _)| *conn == 0), "one connection");
        assert_eq!((log.lock().unwrap().len(), program.calls.statistics().lost), (9, 0));
    }
}

#[test]
fn trailers_beyond_64_kib_cost_their_stream_alone() {
    let (mut program, log) = program(options(), None, |stream, asked| {
        if asked != "GET /2" {
            return ok(stream);
        }
        let mut block = Vec::new();
        field(b"x-long", &[b'~'; 70_000], &mut block);
        let head = frame(kind::HEADERS, flag::END_HEADERS, stream, &[0x88]);
        let data = frame(kind::DATA, 0, stream, b"hello");
        [head, data, in_frames(stream, flag::END_STREAM, &block)].concat()
    });
    program.get_all(0..6);
    program.run(SECOND);
    let Error::Failed { failure: Failure::Malformed, detail, .. } = program.error(2) else {
        panic!("{}", program.error(2));
    };
    assert!(detail.contains("trailers"), "{detail}");
    assert!([0, 1, 3, 4, 5].iter().all(|n| program.status(*n) == 200));
    assert_eq!((count(&log, "GET /2"), program.calls.statistics().lost), (1, 0));
}

/// RFC 9113 section 5.2: flow control concerns DATA alone.
#[test]
fn a_stalled_upload_holds_no_request_without_a_body_up() {
    for streamed in [false, true] {
        let (mut program, log) = program(options(), None, |stream, _| ok(stream));
        match streamed {
            false => post(&mut program, 100, 1_000_000),
            true => {
                let id = program.put(100, Some(1_000_000));
                (0..10).for_each(|_| program.give(id, 100_000));
                program.calls.give_end(id);
            }
        }
        program.wait(SECOND / 10);
        // Later bodies would wait behind it, and these requests would not.
        post(&mut program, 101, 1000);
        program.send(102, Request::put("/102").body(Bytes::from_static(b"b")).unwrap());
        program.get_all(0..10);
        post(&mut program, 103, 0);
        program.wait(SECOND / 10);
        assert!((0..10).chain([103]).all(|n| program.status(n) == 200), "streamed: {streamed}");
        assert_eq!(program.ended.len(), 11);
        assert_eq!((count(&log, "POST /101"), count(&log, "PUT /102")), (0, 0), "their bytes cannot leave");
        program.run(20 * SECOND);
        assert!(program.ended[&100].is_err(), "streamed: {streamed}");
    }
}

#[test]
fn bodies_leave_in_order_once_the_windows_open() {
    let (mut program, log) = program(options(), Some(SECOND), |stream, _| ok(stream));
    for n in 0..50 {
        post(&mut program, n, 20_000);
    }
    program.get_all(50..60);
    program.wait(SECOND / 2);
    assert!((50..60).all(|n| program.status(n) == 200));
    assert!(log.lock().unwrap().len() < 20, "few bodies have begun");
    program.run(2 * SECOND);
    assert!((0..60).all(|n| program.status(n) == 200));
    let log = log.lock().unwrap();
    let posts = log.iter().filter_map(|(_, asked)| asked.strip_prefix("POST /")?.parse().ok());
    assert_eq!(posts.collect::<Vec<u64>>(), (0..50).collect::<Vec<_>>());
}
