//! Connections handed over whole: to hyper, which alone can make the `OnUpgrade` that services built on it want (WebSocket).
//!
//! What the connection receives arrives here as a request body without an end would, and what is written here leaves as a streamed
//! answer without a head: back-pressure, limits on what waits and the peer's end are those of every other body.

use std::future::Future;
use std::io;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};

use bytes::{Buf, Bytes};
use hyper::rt::{Read, ReadBufCursor, Write};

use crate::body::{RequestBody, Shared};
use crate::limits::TUNNEL_BUFFERED;
use crate::response::BodyStream;

/// The connection as whoever got it sees it. May be used from other threads.
pub(crate) struct TunnelIo {
    unread: Bytes,
    incoming: RequestBody,
    outgoing: Arc<Outgoing>,
}

/// What is written until the loop sends it.
#[derive(Default)]
struct Outgoing(Mutex<State>);

#[derive(Default)]
struct State {
    bytes: Vec<u8>,
    /// Nothing more will be written.
    ended: bool,
    /// Nobody sends it any more.
    gone: bool,
    sender: Option<Waker>,
    writer: Option<Waker>,
}

impl Outgoing {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn end(&self) {
        let mut state = self.lock();
        state.ended = true;
        wake(state, |s| s.sender.take());
    }
}

fn wake(mut state: MutexGuard<'_, State>, whom: impl FnOnce(&mut State) -> Option<Waker>) {
    let waker = whom(&mut state);
    drop(state);
    if let Some(waker) = waker {
        waker.wake();
    }
}

/// The loop's end: polled as the connection's answer, it runs `driver` and gives what was written.
pub(crate) struct Tunnel<D> {
    driver: Option<Pin<Box<D>>>,
    outgoing: Arc<Outgoing>,
    /// Taken out already, to look at.
    first: Option<Bytes>,
}

impl<D: Future> Tunnel<D> {
    /// A tunnel whose other end `drive` gets; `begun`: bytes that come before those of `incoming`.
    pub(crate) fn new(begun: Bytes, incoming: &Arc<Shared>, drive: impl FnOnce(TunnelIo) -> D) -> Tunnel<D> {
        let outgoing: Arc<Outgoing> = Arc::default();
        let incoming = RequestBody::stream(incoming, None);
        let driver = drive(TunnelIo { unread: begun, incoming, outgoing: Arc::clone(&outgoing) });
        Tunnel { driver: Some(Box::pin(driver)), outgoing, first: None }
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
        if let Some(driver) = &mut self.driver
            && driver.as_mut().poll(context).is_ready()
        {
            self.driver = None;
        }
        let mut state = self.outgoing.lock();
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
}

impl<D> Drop for Tunnel<D> {
    fn drop(&mut self) {
        let mut state = self.outgoing.lock();
        state.gone = true;
        state.bytes = Vec::new();
        wake(state, |s| s.writer.take());
    }
}

impl<D: Future> BodyStream for Tunnel<D> {
    fn poll_next(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Bytes, Box<dyn std::error::Error + Send + Sync>>>> {
        match self.first.take() {
            Some(first) => Poll::Ready(Some(Ok(first))),
            None => self.poll_out(context).map(|bytes| bytes.map(Ok)),
        }
    }
}

impl Read for TunnelIo {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        mut into: ReadBufCursor<'_>,
    ) -> Poll<io::Result<()>> {
        while self.unread.is_empty() {
            match self.incoming.poll_next(context) {
                Poll::Pending => return Poll::Pending,
                Poll::Ready(Some(Ok(piece))) => self.unread = piece,
                // The peer has ended, or is gone: what is written tells which.
                Poll::Ready(None | Some(Err(_))) => return Poll::Ready(Ok(())),
            }
        }
        let n = self.unread.len().min(into.remaining());
        into.put_slice(&self.unread[..n]);
        self.unread.advance(n);
        Poll::Ready(Ok(()))
    }
}

impl Write for TunnelIo {
    fn poll_write(self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let mut state = self.outgoing.lock();
        if state.gone || state.ended {
            return Poll::Ready(Err(io::ErrorKind::BrokenPipe.into()));
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

    /// What is written is on its way; when it has left is the loop's business.
    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.outgoing.end();
        Poll::Ready(Ok(()))
    }
}

impl Drop for TunnelIo {
    fn drop(&mut self) {
        self.outgoing.end();
    }
}
