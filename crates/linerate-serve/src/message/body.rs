//! The body of a request, as its handler sees it.

use std::collections::VecDeque;
use std::future::poll_fn;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};

use bytes::{Bytes, BytesMut};
use linerate_http::server::RequestFault;

use crate::limits::{BODY_BUFFERED, BODY_JOINED};
use crate::message::unread::UnreadLedger;

/// The body of a request: complete, or a stream that is still arriving. Reading it slowly slows the
/// client down.
#[derive(Debug, Default)]
pub struct RequestBody(Inner);

#[derive(Debug, Default)]
enum Inner {
    #[default]
    Empty,
    Whole(Bytes),
    Stream(Receiver),
}

/// Why a body ended early.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BodyError {
    /// Its framing is malformed, or it exceeds the limit. The client has its response already.
    #[error("the body is not well-formed: {0}")]
    Fault(RequestFault),
    /// The client disconnected, or was too slow.
    #[error("the connection ended before the body")]
    Ended,
    /// It is larger than the caller's limit.
    #[error("the body is larger than {limit} bytes")]
    TooLarge {
        /// The caller's limit.
        limit: usize,
    },
}

impl RequestBody {
    pub(crate) fn whole(bytes: Bytes) -> RequestBody {
        RequestBody(if bytes.is_empty() { Inner::Empty } else { Inner::Whole(bytes) })
    }

    /// A body that is still arriving; `length`: its Content-Length.
    pub(crate) fn stream(shared: &Arc<SharedUpload>, length: Option<u64>) -> RequestBody {
        RequestBody(Inner::Stream(Receiver { shared: Arc::clone(shared), left: length }))
    }

    /// Whether the body is empty, or has been read.
    pub fn is_empty(&self) -> bool {
        matches!(self.0, Inner::Empty)
    }

    /// Bytes of it that are there and count nowhere.
    pub(crate) fn whole_bytes(&self) -> u16 {
        match &self.0 {
            Inner::Whole(bytes) => u16::try_from(bytes.len()).unwrap_or(u16::MAX),
            Inner::Empty | Inner::Stream(_) => 0,
        }
    }

    /// The number of bytes left, if known.
    pub(crate) fn known_length(&self) -> Option<u64> {
        match &self.0 {
            Inner::Empty => Some(0),
            Inner::Whole(bytes) => Some(bytes.len() as u64),
            Inner::Stream(receiver) => receiver.left,
        }
    }

    /// The next piece; `None` at the end.
    pub async fn next(&mut self) -> Option<Result<Bytes, BodyError>> {
        poll_fn(|context| self.poll_next(context)).await
    }

    /// As [`RequestBody::next`], for callers that poll.
    pub fn poll_next(&mut self, context: &mut Context<'_>) -> Poll<Option<Result<Bytes, BodyError>>> {
        match std::mem::take(&mut self.0) {
            Inner::Empty => Poll::Ready(None),
            Inner::Whole(bytes) => Poll::Ready(Some(Ok(bytes))),
            Inner::Stream(mut receiver) => {
                let polled = receiver.shared.poll_next(context);
                if let (Poll::Ready(Some(Ok(piece))), Some(left)) = (&polled, &mut receiver.left) {
                    *left = left.saturating_sub(piece.len() as u64);
                }
                if !matches!(polled, Poll::Ready(None | Some(Err(_)))) {
                    self.0 = Inner::Stream(receiver);
                }
                polled
            }
        }
    }

    /// Reads the whole body, at most `limit` bytes.
    ///
    /// # Errors
    /// [`BodyError`] if it is larger, malformed, or ends early.
    pub async fn collect(&mut self, limit: usize) -> Result<Bytes, BodyError> {
        if let Inner::Whole(bytes) = &self.0 {
            if bytes.len() > limit {
                return Err(BodyError::TooLarge { limit });
            }
            if let Inner::Whole(bytes) = std::mem::take(&mut self.0) {
                return Ok(bytes);
            }
        }
        let mut all = BytesMut::new();
        while let Some(piece) = self.next().await {
            let piece = piece?;
            if all.len() + piece.len() > limit {
                return Err(BodyError::TooLarge { limit });
            }
            if all.is_empty() {
                // Nobody else has its bytes: it is not copied.
                all = piece.into();
            } else {
                all.extend_from_slice(&piece);
            }
        }
        Ok(all.freeze())
    }

    /// A handle for the trailer fields. Take it before reading the body; it has the fields once the
    /// body has ended.
    pub fn trailers(&self) -> Trailers {
        Trailers(match &self.0 {
            Inner::Stream(receiver) => Some(Arc::clone(&receiver.shared)),
            _ => None,
        })
    }
}

/// Receives a body's trailers once it has ended.
#[derive(Debug)]
pub struct Trailers(Option<Arc<SharedUpload>>);

impl Trailers {
    /// The trailer fields; empty before the body's end, and if there are none.
    pub fn get(&self) -> Vec<(String, Vec<u8>)> {
        self.0.as_ref().map(|shared| shared.lock().trailers.clone()).unwrap_or_default()
    }
}

/// The handler's end; dropping it means that the rest is not needed.
#[derive(Debug)]
struct Receiver {
    shared: Arc<SharedUpload>,
    /// Bytes left to hand out, if known.
    left: Option<u64>,
}

impl Drop for Receiver {
    fn drop(&mut self) {
        let mut state = self.shared.lock();
        state.abandoned = true;
        state.clear();
        let source = state.source.take();
        drop(state);
        // The connection may have stopped reading; what it receives can be dropped now.
        source.inspect(Waker::wake_by_ref);
    }
}

/// A body between the connection that reads it and the handler that consumes it. Only one thread
/// locks it, unless a handler moves its request to another thread.
#[derive(Debug, Default)]
pub(crate) struct SharedUpload(Mutex<UploadState>);

impl Drop for UploadState {
    fn drop(&mut self) {
        self.clear();
    }
}

#[derive(Debug, Default)]
struct UploadState {
    pieces: VecDeque<Bytes>,
    buffered: usize,
    /// Where `buffered` counts too.
    ledger: Option<Arc<UnreadLedger>>,
    /// The connection stopped reading, because so much waits.
    stopped: bool,
    ended: Option<Result<(), BodyError>>,
    trailers: Vec<(String, Vec<u8>)>,
    wanted: bool,
    abandoned: bool,
    waker: Option<Waker>,
    /// Wakes the reader of the connection when there is room again, since another thread may
    /// consume the body.
    source: Option<Waker>,
}

impl UploadState {
    /// Whether so much waits that the connection should not be read. While all bodies together are too large, each is
    /// read only as far as its handler waits for more.
    fn is_full(&self) -> bool {
        let is_scarce = self.ledger.as_ref().is_some_and(|ledger| ledger.is_scarce());
        self.buffered >= BODY_BUFFERED
            || (is_scarce && !self.abandoned && (self.buffered > 0 || self.waker.is_none()))
    }

    fn count(&mut self, bytes: usize) {
        self.buffered += bytes;
        self.ledger.iter().for_each(|ledger| ledger.add(bytes));
    }

    fn uncount(&mut self, bytes: usize) {
        self.buffered -= bytes;
        self.ledger.iter().for_each(|ledger| ledger.subtract(bytes));
    }

    fn clear(&mut self) {
        self.pieces.clear();
        self.uncount(self.buffered);
    }
}

impl SharedUpload {
    /// One whose bytes count among those of a thread.
    pub(crate) fn counted(ledger: &Arc<UnreadLedger>) -> Arc<SharedUpload> {
        let shared = SharedUpload::default();
        shared.lock().ledger = Some(Arc::clone(ledger));
        Arc::new(shared)
    }

    fn lock(&self) -> MutexGuard<'_, UploadState> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn push(&self, piece: Bytes) {
        let mut state = self.lock();
        if !state.abandoned && !piece.is_empty() {
            state.count(piece.len());
            if !join(&mut state.pieces, &piece) {
                state.pieces.push_back(piece);
            }
            wake(state);
        }
    }

    pub(crate) fn end(&self, how: Result<(), BodyError>, trailers: Vec<(String, Vec<u8>)>) {
        let mut state = self.lock();
        if state.ended.is_none() {
            state.ended = Some(how);
            state.trailers = trailers;
            wake(state);
        }
    }

    /// Whether the handler has asked for more bytes than were there.
    pub(crate) fn is_wanted(&self) -> bool {
        self.lock().wanted
    }

    /// Whether the handler has dropped it.
    pub(crate) fn is_abandoned(&self) -> bool {
        self.lock().abandoned
    }

    /// Sets the waker for when there is room again.
    pub(crate) fn set_source(&self, waker: Option<Waker>) {
        self.lock().source = waker;
    }

    /// Whether so much waits that the connection should not be read.
    pub(crate) fn is_full(&self) -> bool {
        let mut state = self.lock();
        let is_full = state.is_full();
        state.stopped |= is_full;
        is_full
    }

    fn poll_next(&self, context: &mut Context<'_>) -> Poll<Option<Result<Bytes, BodyError>>> {
        let mut state = self.lock();
        if let Some(piece) = state.pieces.pop_front() {
            state.uncount(piece.len());
            if state.stopped && !state.is_full() {
                state.stopped = false;
                let source = state.source.clone();
                drop(state);
                source.inspect(Waker::wake_by_ref);
            }
            return Poll::Ready(Some(Ok(piece)));
        }
        match state.ended {
            Some(Ok(())) => Poll::Ready(None),
            Some(Err(error)) => Poll::Ready(Some(Err(error))),
            None => {
                let first = !std::mem::replace(&mut state.wanted, true);
                state.waker = Some(context.waker().clone());
                let goes_on = std::mem::take(&mut state.stopped);
                // The connection's reader may have to ask for the body, and does not know when
                // another thread wants it.
                let source =
                    state.source.clone().filter(|s| goes_on || (first && !s.will_wake(context.waker())));
                drop(state);
                source.inspect(Waker::wake_by_ref);
                Poll::Pending
            }
        }
    }
}

/// Appends a small piece to the last of others, if that is small too. Returns whether it did.
pub(crate) fn join(pieces: &mut VecDeque<Bytes>, piece: &[u8]) -> bool {
    let Some(last) = pieces.pop_back_if(|last| last.len().max(piece.len()) < BODY_JOINED) else {
        return false;
    };
    match last.try_into_mut() {
        Ok(mut last) => {
            last.extend_from_slice(piece);
            pieces.push_back(last.freeze());
            true
        }
        // Another handle shares its bytes.
        Err(last) => {
            pieces.push_back(last);
            false
        }
    }
}

fn wake(mut state: MutexGuard<'_, UploadState>) {
    let waker = state.waker.take();
    drop(state);
    if let Some(waker) = waker {
        waker.wake();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn small_pieces_are_joined() {
        let (shared, mut early) = (SharedUpload::default(), VecDeque::new());
        for i in 0..100_000u32 {
            let piece = Bytes::copy_from_slice(&[i as u8]);
            // Pieces that share their bytes are not joined.
            shared.push(Bytes::copy_from_slice(&piece));
            if !join(&mut early, &piece) {
                early.push_back(piece);
            }
        }
        let state = shared.lock();
        assert_eq!(state.buffered, 100_000);
        let all: Vec<u8> = (0..100_000u32).map(|i| i as u8).collect();
        for pieces in [&state.pieces, &early] {
            assert!(pieces.len() < 100, "{}", pieces.len());
            assert_eq!(pieces.iter().flatten().copied().collect::<Vec<u8>>(), all);
        }
    }
}
