//! Clients that upload while their handlers do something else, in memory and in virtual time: what waits for handlers
//! keeps to the limit of a thread, and every body comes whole once it is read.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;
use std::time::Duration;

use linerate_http::h2::{FrameHead, PREFACE, field, flag, kind};
use linerate_net::mem::{Cut, Mem, MemOptions, Peer, PeerActions, PeerConn};
use linerate_net::{ListenOptions, Time, Transport};

use super::windows::{frame, whole_frames};
use super::{Server, Wall};
use crate::limits::{BODY_BUFFERED, H2_KEPT, UNREAD_TOGETHER};
use crate::{Handler, Limits, Request, Response};

const AT: &str = "10.0.0.1:80";

/// Streams of a connection.
const STREAMS: u32 = 100;

/// The most that one read brings.
const PIECE: usize = 20_000;

/// The window of a connection at first (RFC 9113 section 6.9.2).
const FIRST_WINDOW: usize = 65_535;

/// Bodies as their handlers saw them: how long each was, or that it ended early.
type Seen = Rc<RefCell<Vec<Option<usize>>>>;

/// A client that sends one body over HTTP/1.1.
#[derive(Clone)]
struct OneUpload(usize);

impl Peer for OneUpload {
    fn connected(&mut self, _: Time, conn: PeerConn, out: &mut PeerActions) {
        let mut bytes =
            format!("POST / HTTP/1.1\r\nHost: h\r\nContent-Length: {}\r\n\r\n", self.0).into_bytes();
        bytes.resize(bytes.len() + self.0, b'u');
        out.send(conn, bytes);
    }

    fn received(&mut self, _: Time, _: PeerConn, _: &[u8], _: &mut PeerActions) {}
}

/// A client that sends a body on each stream over HTTP/2, as far as the windows let it.
#[derive(Clone)]
struct StreamUploads {
    /// Bytes left to send on each stream, and its window.
    left: BTreeMap<u32, (usize, usize)>,
    window: usize,
    stream_window: usize,
    unread: Vec<u8>,
}

impl StreamUploads {
    fn new(size: usize) -> StreamUploads {
        let left = (0..STREAMS).map(|n| (n * 2 + 1, (size, FIRST_WINDOW))).collect();
        StreamUploads { left, window: FIRST_WINDOW, stream_window: FIRST_WINDOW, unread: Vec::new() }
    }

    /// What the windows allow, in frames of different streams.
    fn data(&mut self) -> Vec<u8> {
        let mut bytes = Vec::new();
        loop {
            let before = bytes.len();
            for (stream, (left, window)) in &mut self.left {
                let n = (*left).min(*window).min(self.window).min(5_000);
                if n > 0 {
                    (*left, *window, self.window) = (*left - n, *window - n, self.window - n);
                    let end = if *left == 0 { flag::END_STREAM } else { 0 };
                    bytes.extend(frame(kind::DATA, end, *stream, &vec![b'u'; n]));
                }
            }
            if bytes.len() == before {
                return bytes;
            }
        }
    }

    fn take(&mut self, head: FrameHead, payload: &[u8]) {
        let number = |at: usize| u32::from_be_bytes(payload[at..at + 4].try_into().unwrap()) as usize;
        match (head.kind, head.stream) {
            (kind::WINDOW_UPDATE, 0) => self.window += number(0),
            (kind::WINDOW_UPDATE, stream) => {
                if let Some((_, window)) = self.left.get_mut(&stream) {
                    *window += number(0);
                }
            }
            (kind::SETTINGS, _) => {
                for at in (0..payload.len()).step_by(6).filter(|at| payload[*at..at + 2] == [0, 4]) {
                    let window = number(at + 2);
                    self.left.values_mut().for_each(|(_, own)| *own = *own + window - self.stream_window);
                    self.stream_window = window;
                }
            }
            (kind::RST_STREAM, stream) => panic!("stream {stream} was reset"),
            _ => {}
        }
    }
}

impl Peer for StreamUploads {
    fn connected(&mut self, _: Time, conn: PeerConn, out: &mut PeerActions) {
        let mut bytes = PREFACE.to_vec();
        bytes.extend(frame(kind::SETTINGS, 0, 0, &[]));
        let mut block = Vec::new();
        for (name, value) in
            [(":method", "POST"), (":scheme", "http"), (":path", "/"), (":authority", "a.example")]
        {
            field(name.as_bytes(), value.as_bytes(), &mut block);
        }
        self.left.keys().for_each(|id| bytes.extend(frame(kind::HEADERS, flag::END_HEADERS, *id, &block)));
        bytes.extend(self.data());
        out.send(conn, bytes);
    }

    fn received(&mut self, _: Time, conn: PeerConn, bytes: &[u8], out: &mut PeerActions) {
        let mut unread = std::mem::take(&mut self.unread);
        unread.extend_from_slice(bytes);
        self.unread = whole_frames(&unread, |head, payload| self.take(head, payload));
        out.send(conn, self.data());
    }
}

/// Waits, then reads the body piece by piece with pauses.
async fn respond(seen: Seen, mut request: Request) -> Response {
    crate::sleep(Duration::from_secs(5)).await;
    let mut bytes = 0;
    let ended = loop {
        match request.body().next().await {
            Some(Ok(piece)) => bytes += piece.len(),
            Some(Err(_)) => break None,
            None => break Some(bytes),
        }
        crate::sleep(Duration::from_millis(1)).await;
    };
    seen.borrow_mut().push(ended);
    Response::text("read")
}

fn server() -> (Server<Mem, impl Handler>, Seen) {
    let options = MemOptions { seed: 1, cut: Cut::Random(PIECE), window: 1 << 20, ..MemOptions::default() };
    let seen = Seen::default();
    let to = Rc::clone(&seen);
    let handler = move |request: Request| respond(Rc::clone(&to), request);
    let mut server =
        Server::new(Mem::new(options).unwrap(), handler, Limits::default()).with_wall(Wall::Virtual(0));
    server.listen(AT.parse().unwrap(), &ListenOptions::default()).unwrap();
    (server, seen)
}

/// Runs for so long in virtual time; the most that waited for handlers meanwhile, and behind windows.
fn run(server: &mut Server<Mem, impl Handler>, time: Duration) -> (usize, usize) {
    let until = server.transport().now() + time;
    let mut most = (0, 0);
    while server.transport().now() < until {
        server.turn(Some(until)).unwrap();
        let behind_windows = |c: &mut crate::connection::ServedConnection| {
            let streams = &c.http2()?.streams;
            let waiting = streams.iter().filter_map(|s| s.upload.as_ref()).flat_map(|u| &u.early.waiting);
            Some(waiting.map(bytes::Bytes::len).sum::<usize>())
        };
        let early = server.connections.iter_mut().flatten().filter_map(behind_windows).sum();
        most = (most.0.max(server.engine.unread.bytes()), most.1.max(early));
    }
    most
}

#[test]
fn bodies_that_no_handler_reads_keep_to_the_threads_limit() {
    const CLIENTS: usize = 500;
    const SIZE: usize = 150_000;
    let (mut server, seen) = server();
    for _ in 0..CLIENTS {
        server.transport().dial(AT.parse().unwrap(), OneUpload(SIZE));
    }
    let (unread, _) = run(&mut server, Duration::from_secs(4));
    assert!(unread >= UNREAD_TOGETHER.min(CLIENTS * BODY_BUFFERED), "{unread}");
    let (later, _) = run(&mut server, Duration::from_secs(60));
    for most in [unread, later] {
        // A handler that waits gets what one read brings.
        assert!(most < UNREAD_TOGETHER + CLIENTS * PIECE, "{most} of {}", CLIENTS * BODY_BUFFERED);
    }
    assert_eq!(*seen.borrow(), vec![Some(SIZE); CLIENTS]);
    assert_eq!(server.engine.unread.bytes(), 0);
}

#[test]
fn bodies_of_streams_that_no_handler_reads_keep_to_the_threads_limit() {
    const CLIENTS: usize = 50;
    const SIZE: usize = 20_000;
    let (mut server, seen) = server();
    for _ in 0..CLIENTS {
        server.transport().dial(AT.parse().unwrap(), StreamUploads::new(SIZE));
    }
    let before = run(&mut server, Duration::from_secs(4));
    let after = run(&mut server, Duration::from_secs(60));
    for (unread, early) in [before, after] {
        assert!(unread < UNREAD_TOGETHER + CLIENTS * FIRST_WINDOW, "{unread}");
        assert!(early < UNREAD_TOGETHER + CLIENTS * FIRST_WINDOW, "{early}");
    }
    assert_eq!(*seen.borrow(), vec![Some(SIZE); CLIENTS * STREAMS as usize]);
    assert_eq!(server.engine.unread.bytes(), 0);
    for session in server.connections.iter_mut().flatten().filter_map(|c| c.http2()) {
        assert!(session.input.capacity() <= H2_KEPT, "{}", session.input.capacity());
        let streams = session.streams.capacity() * size_of::<crate::http2::Stream>();
        assert!(streams <= H2_KEPT, "{streams}");
    }
}
