//! The state of one connection.

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use linerate_http::server::BodyReader;
use linerate_net::{Close, Conn, Listener, Time};
use linerate_tls::TlsInfo;

use crate::allowance::Allowance;
use crate::answer::{OrderedResponse, Unlogged};
use crate::http2::Session;
use crate::limits::PIPELINED;
use crate::queue::AnswerQueue;
use crate::upload::UploadProgress;
use crate::waits::Waits;

/// One connection. Small, because most are idle: [`Work`] has the rest of a busy one's state.
#[derive(Debug)]
pub(crate) struct ServedConnection {
    pub(crate) conn: Conn,
    /// The listener that accepted it.
    pub(crate) listener: Listener,
    pub(crate) peer: SocketAddr,
    /// Set with the first bytes, if it uses TLS.
    pub(crate) tls: Option<Arc<TlsInfo>>,
    pub(crate) work: Option<Box<Work>>,
    /// Number of requests read.
    pub(crate) requests: u32,
    /// Nothing more is read; it is closed this way once the last response is handed over.
    pub(crate) closing: Option<Close>,
    pub(crate) next: NextBytes,
    /// It counts towards its client's connections.
    pub(crate) counted: bool,
    pub(crate) peer_ended: bool,
    pub(crate) paused: bool,
    /// Its listener is gone: it closes after the responses that are due.
    pub(crate) leaving: bool,
    /// In the list of connections whose body is read after its response.
    pub(crate) read_elsewhere: bool,
    /// In the list of connections to settle at the end of the turn.
    pub(crate) dirty: bool,
    pub(crate) waits: Waits,
    pub(crate) since: Time,
    /// A request was read or a response made since `since` was set.
    pub(crate) progressed: bool,
    /// Bytes given to the transport in total, and how many of them had left when `since` was set.
    pub(crate) handed: u64,
    pub(crate) left_at_since: u64,
    pub(crate) unsent: usize,
    /// The time to take part of a response that its newest request's route grants, in milliseconds;
    /// 0: the server's.
    write_ms: u32,
    /// The last bytes handed over, this many, belong to a file that the transport sends itself, and
    /// take no memory.
    pub(crate) of_file: usize,
}

/// The meaning of a connection's next bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NextBytes {
    /// The PROXY preface.
    Preface,
    /// A request, or the rest of one.
    Request,
    /// Requests or another protocol, as the response to a request for an upgrade will say. They
    /// wait for it.
    Undecided,
}

/// The additional state of a busy connection.
#[derive(Debug, Default)]
pub(crate) struct Work {
    /// Bytes received and not consumed.
    pub(crate) input: Vec<u8>,
    /// How many of them were examined before.
    pub(crate) seen: usize,
    /// Responses in the order of their requests.
    pub(crate) queue: AnswerQueue,
    /// The request body that is arriving.
    pub(crate) body: Option<Incoming>,
    /// Responses that were handed over and have not left.
    pub(crate) unlogged: VecDeque<Box<Unlogged>>,
    /// The connection speaks HTTP/2, and uses nothing else of this.
    pub(crate) http2: Option<Box<Session>>,
}

impl Work {
    /// Whether it equals a new one, except for its capacity.
    #[cfg(test)]
    pub(crate) fn is_pristine(&self) -> bool {
        let Work { input, seen, queue, body, unlogged, http2 } = self;
        input.is_empty()
            && *seen == 0
            && queue.is_empty()
            && queue.ready_bytes() == 0
            && body.is_none()
            && unlogged.is_empty()
            && http2.is_none()
    }

    /// Resets it to a new one, except for its capacity, so that the next connection finds nothing
    /// of this one.
    pub(crate) fn reset(&mut self) {
        let Work { mut input, queue, .. } = std::mem::take(self);
        input.clear();
        *self = Work { input, queue: queue.into_empty(), ..Work::default() };
    }

    /// Bytes that its buffers have room for.
    pub(crate) fn capacity(&self) -> usize {
        self.input.capacity() + self.queue.capacity() * size_of::<OrderedResponse>()
    }

    /// Empty lines before a request do not belong to it (RFC 9112 section 2.2). There are few: the
    /// reader refuses more.
    fn has_begun_head(&self) -> bool {
        self.input.iter().any(|b| !matches!(b, b'\r' | b'\n'))
    }
}

/// A request body that is arriving.
#[derive(Debug)]
pub(crate) struct Incoming {
    /// `None`: the connection was handed over, and everything received is passed on.
    pub(crate) reader: Option<BodyReader>,
    /// Its Content-Length.
    pub(crate) announced: Option<u64>,
    pub(crate) progress: UploadProgress,
}

impl ServedConnection {
    pub(crate) fn new(conn: Conn, listener: Listener, peer: SocketAddr, now: Time) -> ServedConnection {
        ServedConnection {
            conn,
            listener,
            peer,
            tls: None,
            work: None,
            requests: 0,
            closing: None,
            next: NextBytes::Request,
            counted: false,
            peer_ended: false,
            paused: false,
            leaving: false,
            read_elsewhere: false,
            dirty: false,
            waits: Waits::Idle,
            since: now,
            progressed: false,
            handed: 0,
            left_at_since: 0,
            unsent: 0,
            write_ms: 0,
            of_file: 0,
        }
    }

    /// Sets the time in which the client must take part of a response; `None`: the server's.
    pub(crate) fn set_write_time(&mut self, time: Option<Duration>) {
        self.write_ms = time.map_or(0, |time| u32::try_from(time.as_millis()).unwrap_or(u32::MAX).max(1));
    }

    /// That time; `usual`: the server's.
    pub(crate) fn write_time(&self, usual: Duration) -> Duration {
        if self.write_ms == 0 { usual } else { Duration::from_millis(self.write_ms.into()) }
    }

    /// Whether it has no state and nothing pending: all there is are the bytes that the engine has
    /// ready to send.
    pub(crate) fn is_plain(&self) -> bool {
        self.work.is_none() && self.closing.is_none() && !self.peer_ended && self.next != NextBytes::Undecided
    }

    /// Bytes in memory that have not left.
    pub(crate) fn held(&self) -> usize {
        self.unsent.saturating_sub(self.of_file)
    }

    pub(crate) fn is_http2(&self) -> bool {
        self.work.as_ref().is_some_and(|w| w.http2.is_some())
    }

    /// Its streams, if it speaks HTTP/2.
    pub(crate) fn http2(&mut self) -> Option<&mut Session> {
        self.work.as_mut()?.http2.as_deref_mut()
    }

    /// Whether the next thing to send is a response that its handler has not made yet.
    pub(crate) fn waits_for_response(&self) -> bool {
        self.work.as_ref().is_some_and(|w| matches!(w.queue.front(), Some(OrderedResponse::Waiting { .. })))
    }

    pub(crate) fn queue_is_empty(&self) -> bool {
        self.work.as_ref().is_none_or(|w| w.queue.is_empty())
    }

    /// Whether received bytes cannot be read where they are.
    pub(crate) fn has_input(&self) -> bool {
        self.work.as_ref().is_some_and(|w| !w.input.is_empty() || w.http2.is_some())
    }

    /// Whether received bytes are useful: until the last request, and its body, are read.
    pub(crate) fn reads(&self) -> bool {
        self.closing.is_none() || self.is_reading_body()
    }

    pub(crate) fn is_reading_body(&self) -> bool {
        self.work.as_ref().is_some_and(|w| w.body.is_some())
    }

    /// Whether reading must wait: for responses to leave, or for a handler to read its body.
    pub(crate) fn is_blocked(&self, about_to_send: usize, allowance: &Allowance) -> bool {
        if self.next == NextBytes::Undecided {
            return true;
        }
        let Some(work) = &self.work else { return about_to_send + self.unsent >= allowance.each() };
        if let Some(session) = &work.http2 {
            return session.has_unread();
        }
        let body_full = work.body.as_ref().is_some_and(|b| b.progress.shared.is_full());
        work.queue.len() >= PIPELINED
            || about_to_send + self.unsent + work.queue.ready_bytes() >= allowance.each()
            || body_full
    }

    /// The event that it waits for now.
    pub(crate) fn state(&self, allowance: &Allowance) -> Waits {
        if self.unsent > 0 {
            return Waits::Write;
        }
        match self.work.as_deref() {
            Some(Work { http2: Some(session), .. }) => session.state(),
            // While the body is not read, the connection waits for the body's consumer, not for the
            // client.
            Some(Work { body: Some(Incoming { reader: Some(_), .. }), .. }) => {
                if self.is_blocked(0, allowance) { Waits::Handler } else { Waits::Body }
            }
            Some(work) if !work.queue.is_empty() => Waits::Handler,
            Some(work) if work.has_begun_head() => Waits::Head,
            _ => Waits::Idle,
        }
    }

    /// The client sends no more: tells the consumer of the body.
    pub(crate) fn cut_body(&mut self) {
        if let Some(work) = &mut self.work
            && let Some(body) = work.body.take()
        {
            body.progress.cut();
        }
    }
}
