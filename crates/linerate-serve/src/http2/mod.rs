//! HTTP/2: one connection's streams over the `h2` crate, driven in memory (RFC 9113).
//!
//! Here is what a connection knows of its streams; [`engine::streams`](crate::engine) does the work.

mod frames;
mod heads;
mod pipe;
mod stream;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, Wake, Waker};

use ::h2::server::{Builder, Connection, Handshake, SendResponse};
use ::h2::{Error, Reason, RecvStream};
use bytes::Bytes;
use linerate_http::h2::PREFACE;
use linerate_net::Time;

pub(crate) use self::frames::{Flood, Frames};
pub(crate) use self::heads::{Heads, response_head, trailers};
pub(crate) use self::pipe::Pipe;
pub(crate) use self::stream::{Doing, Fed, Pumped, Sending, Source, Stream, Upload};
use crate::limits::{
    self, H2_CONNECTION_WINDOW, H2_LOCAL_RESETS, H2_RESETS_PENDING, H2_SEND_BUFFER, H2_STREAM_WINDOW,
    H2_STREAMS, Limits,
};
use crate::waits::Waits;

/// The client's first line (RFC 9113 section 3.4), which no request of HTTP/1.1 has.
pub(crate) const FIRST_LINE: &[u8] = PREFACE.split_at("PRI * HTTP/2.0\r\n".len()).0;

/// State that all connections of a thread share.
#[derive(Debug)]
pub(crate) struct Http2 {
    builder: Builder,
    pub(crate) heads: Heads,
}

impl Http2 {
    pub(crate) fn new(limits: &Limits) -> Http2 {
        let request = &limits.request;
        // Each field counts 32 bytes more than it has (RFC 9113 section 6.5.2).
        let head_list = u32::try_from(request.head + 32 * request.fields).unwrap_or(u32::MAX);
        let mut builder = Builder::new();
        builder
            .max_concurrent_streams(H2_STREAMS)
            .initial_window_size(H2_STREAM_WINDOW)
            .initial_connection_window_size(H2_CONNECTION_WINDOW)
            .max_header_list_size(head_list)
            .max_pending_accept_reset_streams(H2_RESETS_PENDING)
            .max_local_error_reset_streams(Some(H2_LOCAL_RESETS))
            .max_send_buffer_size(H2_SEND_BUFFER)
            .enable_connect_protocol();
        Http2 { builder, heads: Heads::new(*request) }
    }
}

/// Whether the `h2` crate asks to be polled again: its handles wake the connection when they are
/// used.
#[derive(Debug, Default)]
struct Signal(AtomicBool);

impl Wake for Signal {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        self.0.store(true, Ordering::Release);
    }
}

enum State {
    Preface(Handshake<Pipe, Bytes>),
    Open(Connection<Pipe, Bytes>),
    Over,
}

/// A request, and how to respond to it. `None`: the connection is over.
pub(crate) type Accepted = Poll<Option<(http::Request<RecvStream>, SendResponse<Bytes>)>>;

/// The HTTP/2 of one connection.
pub(crate) struct Session {
    state: State,
    pub(crate) pipe: Pipe,
    pub(crate) frames: Frames,
    /// Streams whose request or response takes more than one turn.
    pub(crate) streams: Vec<Stream>,
    /// Which stream sends next, so that all have their turn.
    pub(crate) next: usize,
    /// Held bytes as the thread counts them.
    pub(crate) counted: usize,
    signal: Arc<Signal>,
    pub(crate) waker: Waker,
    /// When the first GOAWAY was sent.
    pub(crate) goodbye: Option<Time>,
    /// The client exceeded a limit.
    pub(crate) flooded: bool,
    /// There is more to do at once, after others had their turn.
    pub(crate) more: bool,
}

impl std::fmt::Debug for Session {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Session({} streams)", self.streams.len())
    }
}

impl Session {
    pub(crate) fn new(shared: &Http2, now: Time) -> Box<Session> {
        let (pipe, signal) = (Pipe::default(), Arc::<Signal>::default());
        Box::new(Session {
            state: State::Preface(shared.builder.handshake(pipe.clone())),
            pipe,
            frames: Frames::new(now),
            streams: Vec::new(),
            next: 0,
            counted: 0,
            waker: Waker::from(Arc::clone(&signal)),
            signal,
            goodbye: None,
            flooded: false,
            more: false,
        })
    }

    /// Reads frames, writes frames, and returns the next request.
    pub(crate) fn accept(&mut self) -> Accepted {
        self.signal.0.store(false, Ordering::Release);
        let mut context = Context::from_waker(&self.waker);
        if let State::Preface(handshake) = &mut self.state {
            match std::pin::Pin::new(handshake).poll(&mut context) {
                Poll::Pending => return Poll::Pending,
                Poll::Ready(Ok(connection)) => self.state = State::Open(connection),
                Poll::Ready(Err(_)) => return self.end(),
            }
        }
        let State::Open(connection) = &mut self.state else { return Poll::Ready(None) };
        match connection.poll_accept(&mut context) {
            Poll::Pending => Poll::Pending,
            Poll::Ready(Some(Ok(both))) => Poll::Ready(Some(both)),
            Poll::Ready(Some(Err(error))) => {
                self.flooded |= is_flood(&error);
                self.end()
            }
            Poll::Ready(None) => self.end(),
        }
    }

    /// Writes frames, and reads frames of streams that exist.
    pub(crate) fn flush(&mut self) {
        self.signal.0.store(false, Ordering::Release);
        let mut context = Context::from_waker(&self.waker);
        let State::Open(connection) = &mut self.state else { return };
        if let Poll::Ready(closed) = connection.poll_closed(&mut context) {
            self.flooded |= closed.is_err_and(|error| is_flood(&error));
            let _ = self.end();
        }
    }

    fn end(&mut self) -> Accepted {
        self.state = State::Over;
        self.pipe.discard_input();
        Poll::Ready(None)
    }

    pub(crate) fn is_over(&self) -> bool {
        matches!(self.state, State::Over)
    }

    /// Whether the client's preface has arrived.
    pub(crate) fn is_open(&self) -> bool {
        matches!(self.state, State::Open(_))
    }

    /// Whether a handle was used since the last poll.
    pub(crate) fn is_signalled(&self) -> bool {
        self.signal.0.load(Ordering::Acquire)
    }

    /// Announces that no more requests are wanted; those that the client sends before it knows get
    /// responses. The `h2` crate sends a second GOAWAY, with the last stream, a round trip later.
    pub(crate) fn say_goodbye(&mut self, now: Time) {
        if self.goodbye.is_some() {
            return;
        }
        self.goodbye = Some(now);
        match &mut self.state {
            State::Open(connection) => connection.graceful_shutdown(),
            State::Preface(_) => self.state = State::Over,
            State::Over => {}
        }
    }

    /// Ends the connection, with the reason.
    pub(crate) fn cut(&mut self, reason: Reason) {
        self.pipe.discard_input();
        match &mut self.state {
            State::Open(connection) => connection.abrupt_shutdown(reason),
            State::Preface(_) => self.state = State::Over,
            State::Over => {}
        }
    }

    /// The event that the connection waits for, apart from the transport.
    pub(crate) fn state(&self) -> Waits {
        let mut state = if self.frames.is_in_head() { Waits::Head } else { Waits::Idle };
        for stream in &self.streams {
            match stream.waits() {
                // A handler has all the time it wants, so it counts only if nothing else does.
                Waits::Handler if state == Waits::Idle => state = Waits::Handler,
                Waits::Handler => {}
                waits => return waits,
            }
        }
        state
    }

    /// When the first of its streams, or a header block, has taken too long.
    pub(crate) fn deadline(&self, limits: &Limits) -> Time {
        let block = self.frames.block_since().map(|since| since + limits.header_time);
        let streams = self.streams.iter().map(|stream| stream.deadline(limits));
        streams.chain(block).min().unwrap_or(Time::NEVER)
    }

    /// Whether a body is read after its response, by code that is not one of our tasks.
    pub(crate) fn is_read_elsewhere(&self) -> bool {
        self.streams.iter().any(|stream| stream.task.is_none() && stream.upload.is_some())
    }

    /// Bytes of responses in memory that the client's windows keep back.
    pub(crate) fn held(&self) -> usize {
        self.streams.iter().map(Stream::held).sum()
    }
}

/// Whether the `h2` crate closed the connection because of too many frames of some kind.
fn is_flood(error: &Error) -> bool {
    error.reason() == Some(Reason::ENHANCE_YOUR_CALM) && !error.is_remote()
}

/// How many requests one turn begins with.
pub(crate) const REQUESTS: usize = limits::H2_STREAMS as usize;
