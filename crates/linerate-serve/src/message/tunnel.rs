//! Connections handed over as a whole: to a handler that takes one ([`Upgrade`](crate::Upgrade)),
//! or to hyper, which alone can make the `OnUpgrade` that services built on it need (WebSocket).
//!
//! Received bytes arrive here as an endless request body, and written bytes leave as a streamed
//! response without a head. So back-pressure, limits and the client's end work as for every other
//! body.

use std::collections::VecDeque;
use std::future::Future;
use std::io;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};

use bytes::{Buf, Bytes};
use hyper::rt::{Read, ReadBufCursor, Write};

use crate::draining::Watched;
use crate::limits::{CLOSE_GRACE, TUNNEL_BUFFERED};
use crate::message::body::{RequestBody, SharedUpload};
use crate::message::stream::BodyStream;
use crate::message::websocket::{self, Frames};
use crate::timers::{Sleep, sleep};

/// The connection as its new owner sees it. May be used from other threads.
#[derive(Debug)]
pub(crate) struct TunnelIo {
    incoming: Arc<Mutex<Incoming>>,
    outgoing: Arc<Mutex<TunnelBytes>>,
}

/// Bytes received and not read.
#[derive(Debug, Default)]
struct Incoming {
    unread: VecDeque<Bytes>,
    unread_bytes: usize,
    body: RequestBody,
    /// No more bytes will arrive.
    ended: bool,
    /// Further bytes are dropped: the handler does not read.
    unwanted: bool,
    /// For a WebSocket: the frames received so far.
    frames: Frames,
    reader: Option<Waker>,
    /// The loop reads, even if the handler does not.
    read_by_loop: bool,
}

impl Incoming {
    /// Empty pieces are skipped: a read of zero bytes would mean the end.
    fn push(&mut self, piece: Bytes) {
        if !piece.is_empty() {
            self.unread_bytes += piece.len();
            self.unread.push_back(piece);
        }
    }

    /// Takes a piece from the body; returns whether there was one.
    fn poll_piece(&mut self, context: &mut Context<'_>) -> Poll<bool> {
        self.body.poll_next(context).map(|piece| {
            let Some(Ok(piece)) = piece else {
                // The client has ended, or is gone: a write will show which.
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

/// Written bytes, until the loop sends them.
#[derive(Debug, Default)]
struct TunnelBytes {
    bytes: Vec<u8>,
    /// No more bytes will be written.
    ended: bool,
    /// The loop sends no more of it.
    gone: bool,
    /// Written bytes are dropped.
    muted: bool,
    sender: Option<Waker>,
    writer: Option<Waker>,
}

fn lock<T>(state: &Mutex<T>) -> MutexGuard<'_, T> {
    state.lock().unwrap_or_else(PoisonError::into_inner)
}

fn end(outgoing: &Mutex<TunnelBytes>) {
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

/// The loop's end: polled as the connection's response, it runs `driver` and returns written bytes.
pub(crate) struct TunnelBody<D> {
    driver: Option<Pin<Box<D>>>,
    incoming: Arc<Mutex<Incoming>>,
    outgoing: Arc<Mutex<TunnelBytes>>,
    /// Taken out early, to inspect it.
    first: Option<Bytes>,
    going_away: Option<GoingAway>,
}

impl<D: Future> TunnelBody<D> {
    /// A tunnel whose other end goes to `drive`; `begun`: bytes that precede those of `incoming`.
    pub(crate) fn new(
        begun: Bytes,
        incoming: &Arc<SharedUpload>,
        drive: impl FnOnce(TunnelIo) -> D,
    ) -> TunnelBody<D> {
        let mut read = Incoming { body: RequestBody::stream(incoming, None), ..Incoming::default() };
        read.push(begun);
        let (incoming, outgoing) = (Arc::new(Mutex::new(read)), Arc::default());
        let driver = drive(TunnelIo { incoming: Arc::clone(&incoming), outgoing: Arc::clone(&outgoing) });
        TunnelBody { driver: Some(Box::pin(driver)), incoming, outgoing, first: None, going_away: None }
    }

    /// Marks it as a WebSocket, which the server closes on a drain if its handler does not know of
    /// the drain. `frames`: where they begin in the written bytes.
    pub(crate) fn close_on_drain(&mut self, drain: Watched, frames: websocket::WebSocketBytes) {
        self.going_away = Some(GoingAway::new(drain, frames));
    }

    /// Waits for the first written bytes, which remain the first to be sent.
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

    /// As [`TunnelBody::poll_out`], with the server's Close frame once it is due.
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

    /// After the server's Close frame: reads what the client still sends, up to its own Close frame
    /// or its end.
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
        // Otherwise it would never be read.
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

/// When and where the server closes a WebSocket itself.
struct GoingAway {
    drain: Arc<Watched>,
    wait: Wait,
    outgoing: websocket::WebSocketBytes,
}

enum Wait {
    Drain(Pin<Box<dyn Future<Output = ()>>>),
    /// The handler may know of the drain.
    Handler(Sleep),
    Over,
}

impl GoingAway {
    fn new(drain: Watched, outgoing: websocket::WebSocketBytes) -> GoingAway {
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
                // A handler that knows of the drain closes by itself.
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
    /// Passes at most `most` received bytes to `put`; none at the end.
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

    /// No more bytes will be written.
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

    /// Written bytes are sent without flushing; the loop does that.
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
            // The rest of it is not needed.
            let body = std::mem::take(&mut incoming.body);
            drop(incoming);
            drop(body);
        }
    }
}
