//! State that a caller and the driver share for a call whose bodies are streams.

use std::collections::VecDeque;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::task::Waker;

use bytes::Bytes;
use http::Response;

use super::calls::{News, Trailers};
use super::error::Error;

/// The shared state of a call whose bodies are streams.
#[derive(Default)]
pub(super) struct StreamState {
    pub(super) head: Option<Response<()>>,
    pub(super) pieces: VecDeque<Bytes>,
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
            News::Piece(_, piece) => state.pieces.push_back(piece),
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
        state.pieces.clear();
        state.writer.take()
    }
}
