//! The engine by a protocol with streams: responses in any order and interleaved, limits on streams and bytes, settings
//! and pings to be acknowledged, requests given back and cancelled. Each message is one of HTTP/1.1, cut into frames.

use std::collections::{BTreeMap, VecDeque};
use std::ops::Range;

use linerate_client::{Conversation, Fate, Loss, Out, Requests, Responses, Run, Turn, Whole, Whose};
use linerate_http::client::{Expect, HeadCache, ResponseLimits, ResponsePart, ResponseReader};
use linerate_net::mem::{Peer, PeerActions, PeerConn};
use linerate_net::{Lent, NetError};
use linerate_tls::PLAIN;

use super::*;
use crate::engine::responses::ResponseReading;

/// Kinds of frames. Each is its kind, a number, a length and that many bytes.
const SETTINGS: u8 = 0;
const SETTINGS_ACK: u8 = 1;
const MESSAGE: u8 = 2;
const CREDIT: u8 = 3;
const GO_AWAY: u8 = 4;
const CANCEL: u8 = 5;
const PING: u8 = 6;
const PONG: u8 = 7;

fn frame(kind: u8, number: u32, bytes: &[u8]) -> Vec<u8> {
    let [a, b, c, d] = number.to_be_bytes();
    [&[kind, a, b, c, d, bytes.len() as u8], bytes].concat()
}

/// Takes the first whole frame out.
fn take_frame(carry: &mut Vec<u8>) -> Option<(u8, u32, Vec<u8>)> {
    let (head, rest) = carry.split_first_chunk::<6>()?;
    let len = usize::from(head[5]);
    let bytes = rest.get(..len)?.to_vec();
    let (kind, number) = (head[0], u32::from_be_bytes([head[1], head[2], head[3], head[4]]));
    carry.drain(..6 + len);
    Some((kind, number, bytes))
}

struct Stream {
    run: Run,
    reader: ResponseReader,
    reading: ResponseReading,
    first_byte: Option<Time>,
}

/// One connection's streams.
#[derive(Default)]
struct Streams {
    open: BTreeMap<u32, Stream>,
    /// Streams that the peer admits at once, none before it has said so.
    limit: u32,
    next: u32,
    answers: u32,
    /// Bytes of requests that may leave, and requests that wait for that.
    credit: usize,
    waiting: VecDeque<Vec<u8>>,
    /// Control frames to send beside requests.
    control: Vec<u8>,
    given_back: Vec<Run>,
    goes_away: bool,
    carry: Vec<u8>,
}

#[derive(Default)]
struct Bytes(Vec<u8>);

impl Out for Bytes {
    fn send(&mut self, bytes: &[u8]) -> Result<(), NetError> {
        self.0.extend_from_slice(bytes);
        Ok(())
    }

    fn send_shared(
        &mut self,
        bytes: &Arc<[u8]>,
        _: Option<Lent>,
        range: Range<usize>,
    ) -> Result<(), NetError> {
        self.send(&bytes[range])
    }
}

impl Streams {
    fn flush(&mut self, out: &mut impl Out) -> Result<u64, NetError> {
        let mut sent = 0;
        while let Some(frame) = self.waiting.pop_front_if(|frame| frame.len() <= self.credit) {
            self.credit -= frame.len();
            sent += frame.len() as u64;
            out.send(&frame)?;
        }
        Ok(sent)
    }

    fn read<E: Responses<Reading = ResponseReading>>(
        &mut self,
        now: Time,
        stream: u32,
        mut bytes: &[u8],
        cache: &mut HeadCache,
        events: &mut E,
    ) -> Result<(), Loss> {
        let Some(open) = self.open.get_mut(&stream) else { return Ok(()) };
        loop {
            let kind = open.run.kind;
            match open.reader.next(cache, &mut bytes, Expect::Usual) {
                Ok(Some(ResponsePart::Head(head))) => {
                    assert_eq!(events.head(&mut open.reading, kind, &head), Whose::Matched);
                }
                Ok(Some(ResponsePart::Body(piece))) => events.body(&mut open.reading, kind, piece),
                Ok(Some(ResponsePart::End(end))) => {
                    let whole =
                        Whole { now, first_byte: open.first_byte, status: end.status, turn: Turn::Right };
                    events.answered(&open.run, kind, &mut open.reading, &whole);
                    self.open.remove(&stream);
                    self.answers += 1;
                    return Ok(());
                }
                Ok(Some(ResponsePart::Interim(_) | ResponsePart::Trailers(_))) => {}
                Ok(None) => {
                    open.first_byte.get_or_insert(now);
                    return Ok(());
                }
                Err(error) => return Err(Loss::Malformed(error.to_string())),
            }
        }
    }
}

impl Conversation for Streams {
    type Reading = ResponseReading;
    type Shared = HeadCache;

    fn new(_: &HeadCache) -> Streams {
        Streams::default()
    }

    fn room(&self) -> u32 {
        if self.goes_away { 0 } else { self.limit.saturating_sub(self.in_flight()) }
    }

    fn in_flight(&self) -> u32 {
        self.open.len() as u32
    }

    fn answers(&self) -> u32 {
        self.answers
    }

    fn in_response(&self) -> bool {
        self.open.values().any(|stream| stream.reader.in_answer())
    }

    fn oldest(&self) -> Option<Run> {
        self.open.values().map(|stream| stream.run).min_by_key(|run| run.stamp.sent)
    }

    fn begin(
        &mut self,
        run: Run,
        last: bool,
        requests: &mut impl Requests,
        out: &mut impl Out,
    ) -> Result<u64, NetError> {
        for first in run.first..run.end() {
            let run = Run { first, count: 1, ..run };
            let mut bytes = Bytes::default();
            requests.write_h1(&run, last, &mut bytes)?;
            self.waiting.push_back(frame(MESSAGE, self.next, &bytes.0));
            let reader = ResponseReader::new(ResponseLimits::default());
            let stream = Stream { run, reader, reading: ResponseReading::default(), first_byte: None };
            self.open.insert(self.next, stream);
            self.next += 1;
        }
        self.flush(out)
    }

    fn handle_bytes<E: Responses<Reading = ResponseReading>>(
        &mut self,
        now: Time,
        bytes: &[u8],
        cache: &mut HeadCache,
        events: &mut E,
    ) -> Result<(), Loss> {
        self.carry.extend_from_slice(bytes);
        while let Some((kind, number, bytes)) = take_frame(&mut self.carry) {
            match kind {
                SETTINGS => {
                    self.limit = number;
                    self.control.extend(frame(SETTINGS_ACK, 0, b""));
                }
                CREDIT => self.credit += number as usize,
                PING => self.control.extend(frame(PONG, number, b"")),
                GO_AWAY => {
                    self.goes_away = true;
                    let behind = self.open.split_off(&(number + 1));
                    self.given_back.extend(behind.into_values().map(|stream| stream.run));
                }
                MESSAGE => self.read(now, number, &bytes, cache, events)?,
                _ => return Err(Loss::Malformed(format!("a frame of kind {kind}"))),
            }
        }
        if self.goes_away && self.open.is_empty() { Err(Loss::SaidClose) } else { Ok(()) }
    }

    fn handle_end<E: Responses<Reading = ResponseReading>>(&mut self, _: Time, _: &mut E) -> Loss {
        Loss::Closed
    }

    fn send_pending(&mut self, _: &mut impl Requests, out: &mut impl Out) -> Result<u64, NetError> {
        out.send(&std::mem::take(&mut self.control))?;
        self.flush(out)
    }

    fn given_back(&mut self, mut each: impl FnMut(Run, Fate)) {
        self.given_back.drain(..).for_each(|run| each(run, Fate::NeverProcessed));
    }

    fn cancel_oldest(&mut self) -> Option<Run> {
        let (number, _) = self.open.iter().min_by_key(|(_, stream)| stream.run.stamp.sent)?;
        let number = *number;
        self.control.extend(frame(CANCEL, number, b""));
        Some(self.open.remove(&number)?.run)
    }

    fn abandon(&mut self, mut each: impl FnMut(Run, Fate)) {
        for (_, stream) in std::mem::take(&mut self.open) {
            each(stream.run, if stream.reader.in_answer() { Fate::Begun } else { Fate::Unknown });
        }
    }
}

/// Streams that the server admits at once.
const ADMITTED: u32 = 4;

/// Counts of what the server received.
#[derive(Clone, Debug, Default)]
struct Counts {
    connections: u32,
    requests: u32,
    most_at_once: usize,
    acknowledged: u32,
    pongs: u32,
    cancelled: u32,
}

/// Collects requests for a millisecond, then responds to all of them in reverse order, in pieces.
#[derive(Default)]
struct Server {
    seen: Arc<std::sync::Mutex<Counts>>,
    /// Sends GO_AWAY at this stream of a connection, and processes only the first of those that wait.
    goes_away_after: Option<u32>,
    /// Ignores this stream of each connection.
    ignores: Option<u32>,
    connections: std::collections::HashMap<PeerConn, ServerSide>,
}

#[derive(Default)]
struct ServerSide {
    carry: Vec<u8>,
    waiting: Vec<u32>,
    streams: u32,
    away: bool,
}

impl Server {
    fn answer(waiting: &mut Vec<u32>, conn: PeerConn, out: &mut PeerActions) {
        let response = b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello";
        for piece in response.chunks(30) {
            for stream in waiting.iter().rev() {
                out.send(conn, frame(MESSAGE, *stream, piece));
            }
        }
        waiting.clear();
    }
}

impl Peer for Server {
    fn connected(&mut self, _: Time, conn: PeerConn, out: &mut PeerActions) {
        self.seen.lock().unwrap().connections += 1;
        out.send(conn, frame(SETTINGS, ADMITTED, b""));
        out.send(conn, frame(CREDIT, 300, b""));
    }

    fn received(&mut self, _: Time, conn: PeerConn, bytes: &[u8], out: &mut PeerActions) {
        let mut seen = self.seen.lock().unwrap();
        let side = self.connections.entry(conn).or_default();
        side.carry.extend_from_slice(bytes);
        while let Some((kind, number, message)) = take_frame(&mut side.carry) {
            match kind {
                MESSAGE if side.away => {}
                MESSAGE => {
                    seen.requests += 1;
                    side.streams += 1;
                    out.send(conn, frame(CREDIT, message.len() as u32 + 6, b""));
                    out.send(conn, frame(PING, number, b""));
                    if self.ignores != Some(number) {
                        side.waiting.push(number);
                    }
                    seen.most_at_once = seen.most_at_once.max(side.waiting.len());
                    if self.goes_away_after == Some(side.streams) {
                        side.away = true;
                        // Of those that came together it processes the first.
                        seen.requests -= side.waiting.len() as u32 - 1;
                        side.waiting.truncate(1);
                        out.send(conn, frame(GO_AWAY, side.waiting[0], b""));
                        Server::answer(&mut side.waiting, conn, out);
                    }
                }
                SETTINGS_ACK => seen.acknowledged += 1,
                PONG => seen.pongs += 1,
                CANCEL => seen.cancelled += 1,
                _ => panic!("a frame of kind {kind}"),
            }
        }
        out.call_after(MS, conn);
    }

    fn called(&mut self, _: Time, conn: PeerConn, out: &mut PeerActions) {
        Server::answer(&mut self.connections.entry(conn).or_default().waiting, conn, out);
    }
}

fn run_streams(plan: &Plan, script: Server) -> (Outcome, Counts) {
    let seen = Arc::clone(&script.seen);
    let mut mem = Mem::new(wire()).unwrap();
    mem.serve(server(), script).unwrap();
    let outcome = part().run_by::<_, Streams>(plan, mem, PLAIN, board(), HeadCache::new()).unwrap();
    let r = outcome.requests;
    assert_eq!(r.sent, r.answered + r.failed + r.unknown, "{r:?}");
    let seen = seen.lock().unwrap().clone();
    (outcome, seen)
}

#[test]
fn streams_are_answered_in_any_order_within_their_limits() {
    let plan = Plan { connections: 3, depth: 10, stop: requests(500), ..plan() };
    let (outcome, seen) = run_streams(&plan, Server::default());
    assert_eq!((outcome.requests.answered, seen.requests), (500, 500));
    assert_eq!(outcome.connections.opened, 3);
    // The last pings came with the last responses.
    assert!(seen.acknowledged == 3 && seen.pongs > 490, "{seen:?}");
    assert!((2..=ADMITTED as usize).contains(&seen.most_at_once), "{seen:?}");
    assert_eq!(outcome.latency.from_sent.count(), 500);
}

/// RFC 9113 section 6.8.
#[test]
fn what_is_above_the_last_stream_goes_out_again_whatever_its_method() {
    let mut plan = Plan { connections: 2, depth: 10, stop: requests(300), ..plan() };
    plan.requests = vec![request("POST")];
    let (outcome, seen) = run_streams(&plan, Server { goes_away_after: Some(7), ..Server::default() });
    let r = outcome.requests;
    assert_eq!((r.answered, r.failed, r.unknown), (300, 0, 0), "{:?}", outcome.failures);
    assert_eq!(seen.requests, 300);
    assert!(r.resent > 0 && seen.connections > 2, "{r:?} {seen:?}");
}

/// RFC 9113 section 5.4.2: a late stream costs no other.
#[test]
fn one_late_stream_is_cancelled_and_the_connection_goes_on() {
    let plan = Plan { depth: 4, timeout: 50 * MS, stop: requests(100), ..plan() };
    let (outcome, seen) = run_streams(&plan, Server { ignores: Some(2), ..Server::default() });
    let r = outcome.requests;
    assert_eq!((r.answered, outcome.failures.count(Failure::Timeout)), (99, 1), "{:?}", outcome.failures);
    assert_eq!((outcome.connections.opened, seen.cancelled), (1, 1));
}
