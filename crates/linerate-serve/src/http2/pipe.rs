//! The bytes between the transport and the `h2` crate: two buffers in memory.

use std::cell::RefCell;
use std::io;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use crate::limits::BUFFER_KEPT;

/// Both ends of a connection in memory. No waker is kept: the session is polled whenever bytes
/// arrive or leave.
#[derive(Clone, Debug, Default)]
pub(crate) struct Pipe(Rc<RefCell<Buffers>>);

#[derive(Debug, Default)]
struct Buffers {
    input: Vec<u8>,
    /// How many of them were read.
    read: usize,
    ended: bool,
    out: Vec<u8>,
    /// Bytes that `out` may have; beyond it, writing waits.
    room: usize,
}

impl Pipe {
    /// Adds received bytes.
    pub(crate) fn receive(&self, bytes: &[u8]) {
        self.0.borrow_mut().input.extend_from_slice(bytes);
    }

    /// The client sends no more.
    pub(crate) fn end(&self) {
        self.0.borrow_mut().ended = true;
    }

    /// Drops received bytes that were not read.
    pub(crate) fn discard_input(&self) {
        let mut buffers = self.0.borrow_mut();
        (buffers.input, buffers.read) = (Vec::new(), 0);
    }

    /// Whether received bytes wait because writing waits.
    pub(crate) fn has_unread(&self) -> bool {
        !self.0.borrow().input.is_empty()
    }

    /// Lends the buffer for outgoing bytes, which may grow to `room`.
    pub(crate) fn lend(&self, out: Vec<u8>, room: usize) {
        let mut buffers = self.0.borrow_mut();
        (buffers.out, buffers.room) = (out, room);
    }

    /// Takes that buffer back.
    pub(crate) fn take_back(&self) -> Vec<u8> {
        let mut buffers = self.0.borrow_mut();
        buffers.room = 0;
        std::mem::take(&mut buffers.out)
    }

    /// Bytes that may still be written.
    pub(crate) fn room(&self) -> usize {
        let buffers = self.0.borrow();
        buffers.room.saturating_sub(buffers.out.len())
    }
}

impl AsyncRead for Pipe {
    fn poll_read(self: Pin<&mut Self>, _: &mut Context<'_>, into: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let mut buffers = self.0.borrow_mut();
        let unread = &buffers.input[buffers.read..];
        if unread.is_empty() {
            return if buffers.ended { Poll::Ready(Ok(())) } else { Poll::Pending };
        }
        let len = unread.len().min(into.remaining());
        into.put_slice(&unread[..len]);
        buffers.read += len;
        if buffers.read == buffers.input.len() {
            buffers.read = 0;
            buffers.input.clear();
            if buffers.input.capacity() > BUFFER_KEPT {
                buffers.input = Vec::new();
            }
        }
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for Pipe {
    fn poll_write(self: Pin<&mut Self>, _: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let mut buffers = self.0.borrow_mut();
        if buffers.out.len() >= buffers.room {
            return Poll::Pending;
        }
        buffers.out.extend_from_slice(bytes);
        Poll::Ready(Ok(bytes.len()))
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        _: &mut Context<'_>,
        pieces: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let mut buffers = self.0.borrow_mut();
        if buffers.out.len() >= buffers.room {
            return Poll::Pending;
        }
        pieces.iter().for_each(|piece| buffers.out.extend_from_slice(piece));
        Poll::Ready(Ok(pieces.iter().map(|piece| piece.len()).sum()))
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    /// The loop sends written bytes without being asked.
    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }
}
