//! Connections handed over whole: to a handler that takes one ([`Upgrade`](crate::Upgrade)), or to hyper, which alone can make the
//! `OnUpgrade` that services built on it want (WebSocket).
//!
//! What the connection receives arrives here as a request body without an end would, and what is written here leaves as a streamed
//! answer without a head: back-pressure, limits on what waits and the peer's end are those of every other body.

use std::collections::VecDeque;
use std::future::Future;
use std::io;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};

use bytes::{Buf, Bytes};
use hyper::rt::{Read, ReadBufCursor, Write};

use crate::body::{RequestBody, Shared};
use crate::draining::Watched;
use crate::limits::{CLOSE_GRACE, TUNNEL_BUFFERED};
use crate::response::BodyStream;
use crate::timers::{Sleep, sleep};
use crate::websocket::{self, Frames};

/// The connection as whoever got it sees it. May be used from other threads.
#[derive(Debug)]
pub(crate) struct TunnelIo {
    incoming: Arc<Mutex<Incoming>>,
    outgoing: Arc<Mutex<Outgoing>>,
}

/// What came and was not read.
#[derive(Debug, Default)]
struct Incoming {
    unread: VecDeque<Bytes>,
    unread_bytes: usize,
    body: RequestBody,
    /// Nothing more comes.
    ended: bool,
    /// Nothing more is kept: the handler does not read.
    unwanted: bool,
    /// Of a WebSocket, what frames have come.
    frames: Frames,
    reader: Option<Waker>,
    /// The loop reads, whether the handler does or not.
    read_by_loop: bool,
}

impl Incoming {
    /// Nothing is no piece: read, it would be the end.
    fn push(&mut self, piece: Bytes) {
        if !piece.is_empty() {
            self.unread_bytes += piece.len();
            self.unread.push_back(piece);
        }
    }

    /// Takes a piece from the body; whether there was one.
    fn poll_piece(&mut self, context: &mut Context<'_>) -> Poll<bool> {
        self.body.poll_next(context).map(|piece| {
            let Some(Ok(piece)) = piece else {
                // The peer has ended, or is gone: what is written tells which.
                self.ended = true;
                return false;
            };
            self.frames.advance(&piece);
            if !self.unwanted {
                self.push(piece);
            }
            true
        })
    }
}

/// What is written until the loop sends it.
#[derive(Debug, Default)]
struct Outgoing {
    bytes: Vec<u8>,
    /// Nothing more will be written.
    ended: bool,
    /// Nobody sends it any more.
    gone: bool,
    /// What is written is dropped.
    muted: bool,
    sender: Option<Waker>,
    writer: Option<Waker>,
}

fn lock<T>(state: &Mutex<T>) -> MutexGuard<'_, T> {
    state.lock().unwrap_or_else(PoisonError::into_inner)
}

fn end(outgoing: &Mutex<Outgoing>) {
    let mut state = lock(outgoing);
    state.ended = true;
    wake(state, |s| s.sender.take());
}

fn wake<T>(mut state: MutexGuard<'_, T>, whom: impl FnOnce(&mut T) -> Option<Waker>) {
    let waker = whom(&mut state);
    drop(state);
    if let Some(waker) = waker {
        waker.wake();
    }
}

/// The loop's end: polled as the connection's answer, it runs `driver` and gives what was written.
pub(crate) struct TunnelBody<D> {
    driver: Option<Pin<Box<D>>>,
    incoming: Arc<Mutex<Incoming>>,
    outgoing: Arc<Mutex<Outgoing>>,
    /// Taken out already, to look at.
    first: Option<Bytes>,
    going_away: Option<GoingAway>,
}

impl<D: Future> TunnelBody<D> {
    /// A tunnel whose other end `drive` gets; `begun`: bytes that come before those of `incoming`.
    pub(crate) fn new(
        begun: Bytes,
        incoming: &Arc<Shared>,
        drive: impl FnOnce(TunnelIo) -> D,
    ) -> TunnelBody<D> {
        let mut read = Incoming { body: RequestBody::stream(incoming, None), ..Incoming::default() };
        read.push(begun);
        let (incoming, outgoing) = (Arc::new(Mutex::new(read)), Arc::default());
        let driver = drive(TunnelIo { incoming: Arc::clone(&incoming), outgoing: Arc::clone(&outgoing) });
        TunnelBody { driver: Some(Box::pin(driver)), incoming, outgoing, first: None, going_away: None }
    }

    /// It is a WebSocket, which is closed when the server drains and its handler does not know of that. `frames`: where they begin
    /// in what is written.
    pub(crate) fn close_on_drain(&mut self, drain: Watched, frames: websocket::Outgoing) {
        self.going_away = Some(GoingAway::new(drain, frames));
    }

    /// Waits for the first bytes that are written; they stay the first that are sent.
    pub(crate) fn poll_first(&mut self, context: &mut Context<'_>) -> Poll<Option<Bytes>> {
        let polled = self.poll_out(context);
        if let Poll::Ready(Some(bytes)) = &polled {
            self.first = Some(bytes.clone());
        }
        polled
    }

    fn poll_out(&mut self, context: &mut Context<'_>) -> Poll<Option<Bytes>> {
        if let Some(first) = self.first.take() {
            return Poll::Ready(Some(first));
        }
        if let Some(driver) = &mut self.driver
            && driver.as_mut().poll(context).is_ready()
        {
            self.driver = None;
        }
        let mut state = lock(&self.outgoing);
        if !state.bytes.is_empty() {
            let bytes = Bytes::from(std::mem::take(&mut state.bytes));
            wake(state, |s| s.writer.take());
            return Poll::Ready(Some(bytes));
        }
        if state.ended {
            return Poll::Ready(None);
        }
        state.sender = Some(context.waker().clone());
        Poll::Pending
    }

    /// As [`TunnelBody::poll_out`], with the server's Close frame when it is due.
    fn poll_websocket(&mut self, context: &mut Context<'_>) -> Poll<Option<Bytes>> {
        let due = self.going_away.as_mut().is_some_and(|going| going.poll_due(context).is_ready());
        let polled = self.poll_out(context);
        let Some(going) = &mut self.going_away else { return polled };
        let polled = match polled {
            Poll::Ready(Some(bytes)) => Poll::Ready(Some(going.outgoing.pass(bytes, due))),
            Poll::Pending if due => match going.outgoing.close() {
                Some(close) => Poll::Ready(Some(close)),
                None => Poll::Pending,
            },
            polled => polled,
        };
        if going.outgoing.is_closed() {
            lock(&self.incoming).read_by_loop = true;
            let mut state = lock(&self.outgoing);
            (state.muted, state.bytes) = (true, Vec::new());
            wake(state, |s| s.writer.take());
        }
        polled
    }

    /// Behind the server's Close frame: what the peer still sends is read until its own one, or its end.
    fn poll_closed(&mut self, context: &mut Context<'_>) -> Poll<Option<Bytes>> {
        let mut incoming = lock(&self.incoming);
        while !incoming.ended && !incoming.frames.is_closed() {
            match incoming.poll_piece(context) {
                Poll::Ready(_) => incoming.unwanted |= incoming.unread_bytes > TUNNEL_BUFFERED,
                Poll::Pending => {
                    wake(incoming, |incoming| incoming.reader.take());
                    return Poll::Pending;
                }
            }
        }
        incoming.ended = true;
        wake(incoming, |incoming| incoming.reader.take());
        Poll::Ready(None)
    }
}

impl<D> Drop for TunnelBody<D> {
    fn drop(&mut self) {
        let mut state = lock(&self.outgoing);
        state.gone = true;
        state.bytes = Vec::new();
        wake(state, |s| s.writer.take());
        let mut incoming = lock(&self.incoming);
        // Else nobody would read it.
        incoming.ended |= incoming.read_by_loop;
        wake(incoming, |incoming| incoming.reader.take());
    }
}

impl<D: Future> BodyStream for TunnelBody<D> {
    fn poll_next(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Bytes, Box<dyn std::error::Error + Send + Sync>>>> {
        let polled = match &self.going_away {
            None => self.poll_out(context),
            Some(going) if going.outgoing.is_closed() => self.poll_closed(context),
            Some(_) => self.poll_websocket(context),
        };
        polled.map(|bytes| bytes.map(Ok))
    }
}

/// When the server closes a WebSocket itself, and where.
struct GoingAway {
    drain: Arc<Watched>,
    wait: Wait,
    outgoing: websocket::Outgoing,
}

enum Wait {
    Drain(Pin<Box<dyn Future<Output = ()>>>),
    /// The handler may know of it.
    Handler(Sleep),
    Over,
}

impl GoingAway {
    fn new(drain: Watched, outgoing: websocket::Outgoing) -> GoingAway {
        let drain = Arc::new(drain);
        let wait = Wait::Drain(Box::pin(Arc::clone(&drain).begins()));
        GoingAway { drain, wait, outgoing }
    }

    /// Waits until a Close frame of the server is due.
    fn poll_due(&mut self, context: &mut Context<'_>) -> Poll<()> {
        loop {
            let over = match &mut self.wait {
                Wait::Drain(begins) => begins.as_mut().poll(context),
                Wait::Handler(sleep) => Pin::new(sleep).poll(context),
                // One that knows sees to it itself.
                Wait::Over if self.drain.is_taken() => return Poll::Pending,
                Wait::Over => return Poll::Ready(()),
            };
            if over.is_pending() {
                return Poll::Pending;
            }
            self.wait = match self.wait {
                Wait::Drain(_) if self.drain.may_be_known() => Wait::Handler(sleep(CLOSE_GRACE)),
                _ => Wait::Over,
            };
        }
    }
}

impl TunnelIo {
    /// Hands at most `most` of the bytes that came to `put`, none at the end.
    pub(crate) fn poll_take(
        &self,
        context: &mut Context<'_>,
        most: usize,
        put: impl FnOnce(&[u8]),
    ) -> Poll<io::Result<()>> {
        let mut incoming = lock(&self.incoming);
        let incoming = &mut *incoming;
        loop {
            if let Some(piece) = incoming.unread.front_mut() {
                let n = piece.len().min(most);
                put(&piece[..n]);
                piece.advance(n);
                let all = piece.is_empty();
                incoming.unread_bytes -= n;
                if all {
                    incoming.unread.pop_front();
                }
                return Poll::Ready(Ok(()));
            }
            if incoming.ended || incoming.unwanted {
                return Poll::Ready(Ok(()));
            }
            if incoming.read_by_loop || incoming.poll_piece(context).is_pending() {
                incoming.reader = Some(context.waker().clone());
                return Poll::Pending;
            }
        }
    }

    /// Takes as many of `bytes` as there is room for.
    pub(crate) fn poll_put(&self, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let mut state = lock(&self.outgoing);
        if state.gone || state.ended {
            return Poll::Ready(Err(io::ErrorKind::BrokenPipe.into()));
        }
        if state.muted {
            return Poll::Ready(Ok(bytes.len()));
        }
        let n = bytes.len().min(TUNNEL_BUFFERED.saturating_sub(state.bytes.len()));
        if n == 0 && !bytes.is_empty() {
            state.writer = Some(context.waker().clone());
            return Poll::Pending;
        }
        state.bytes.extend_from_slice(&bytes[..n]);
        wake(state, |s| s.sender.take());
        Poll::Ready(Ok(n))
    }

    /// Nothing more will be written.
    pub(crate) fn end(&self) {
        end(&self.outgoing);
    }
}

impl Read for TunnelIo {
    fn poll_read(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        mut into: ReadBufCursor<'_>,
    ) -> Poll<io::Result<()>> {
        self.poll_take(context, into.remaining(), |bytes| into.put_slice(bytes))
    }
}

impl Write for TunnelIo {
    fn poll_write(self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        self.poll_put(context, bytes)
    }

    /// What is written is on its way; when it has left is the loop's business.
    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.end();
        Poll::Ready(Ok(()))
    }
}

impl Drop for TunnelIo {
    fn drop(&mut self) {
        end(&self.outgoing);
        let mut incoming = lock(&self.incoming);
        if !incoming.read_by_loop {
            // Nothing more of it is wanted.
            let body = std::mem::take(&mut incoming.body);
            drop(incoming);
            drop(body);
        }
    }
}
