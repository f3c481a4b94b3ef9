//! State that a caller and the driver share for a call whose bodies are streams.

use std::collections::VecDeque;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::task::Waker;

use bytes::{Bytes, BytesMut};
use http::Response;

use super::calls::{News, Trailers};
use super::error::Error;
use super::limits::{JOINED_PIECE, JOINED_PIECES};

/// Pieces of a body that wait for their reader. Small ones are joined: a peer that sends single bytes must not cost a
/// piece for each.
#[derive(Default)]
pub(super) struct Pieces {
    ready: VecDeque<Bytes>,
    /// Small ones behind them.
    small: BytesMut,
}

impl Pieces {
    fn push(&mut self, piece: Bytes) {
        if piece.len() >= JOINED_PIECE {
            self.join();
            return self.ready.push_back(piece);
        }
        self.small.extend_from_slice(&piece);
        if self.small.len() >= JOINED_PIECES {
            self.join();
        }
    }

    /// The small ones become one piece.
    fn join(&mut self) {
        if !self.small.is_empty() {
            self.ready.push_back(self.small.split().freeze());
        }
    }

    /// The next piece.
    pub(super) fn pop(&mut self) -> Option<Bytes> {
        if self.ready.is_empty() {
            self.join();
        }
        self.ready.pop_front()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.ready.is_empty() && self.small.is_empty()
    }
}

/// The shared state of a call whose bodies are streams.
#[derive(Default)]
pub(super) struct StreamState {
    pub(super) head: Option<Response<()>>,
    pub(super) pieces: Pieces,
    pub(super) end: Option<Result<Option<Trailers>, Error>>,
    pub(super) reader: Option<Waker>,
    /// Bytes of the request's body that were handed over and have not left.
    pub(super) unsent: usize,
    pub(super) writer: Option<Waker>,
    /// The call has ended, or was abandoned.
    pub(super) over: bool,
}

#[derive(Default)]
pub(super) struct StreamCell(Mutex<StreamState>);

impl StreamCell {
    pub(super) fn lock(&self) -> MutexGuard<'_, StreamState> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Something happened to the call; returns the task to wake.
    pub(super) fn tell(&self, news: News) -> Option<Waker> {
        let mut state = self.lock();
        match news {
            News::Head(_, head) => state.head = Some(head),
            News::Piece(_, piece) => state.pieces.push(piece),
            News::Left(_, bytes) => {
                state.unsent = state.unsent.saturating_sub(bytes);
                return state.writer.take();
            }
        }
        state.reader.take()
    }

    /// The call has ended; returns the tasks to wake.
    pub(super) fn end(&self, result: Result<Response<Bytes>, Error>) -> [Option<Waker>; 2] {
        let mut state = self.lock();
        state.end = Some(result.map(|mut whole| whole.extensions_mut().remove()));
        state.over = true;
        [state.reader.take(), state.writer.take()]
    }

    /// The caller has abandoned it.
    pub(super) fn abandon(&self) -> Option<Waker> {
        let mut state = self.lock();
        state.over = true;
        state.pieces = Pieces::default();
        state.writer.take()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn small_pieces_are_joined_and_all_keep_their_order() {
        let mut pieces = Pieces::default();
        let mut sent = Vec::new();
        for n in 0..10_000usize {
            let len = if n % 1000 == 999 { 3 * JOINED_PIECE } else { 1 };
            let piece = Bytes::from(vec![n as u8; len]);
            sent.extend_from_slice(&piece);
            pieces.push(piece);
        }
        let (mut got, mut count) = (Vec::new(), 0);
        while let Some(piece) = pieces.pop() {
            got.extend_from_slice(&piece);
            count += 1;
        }
        assert!(got == sent && pieces.is_empty());
        assert!(count <= 20, "{count}");
    }
}
