//! Many calls as a stream.

use std::collections::VecDeque;
use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use futures_core::Stream;
use http::Request;
use tokio::sync::{AcquireError, OwnedSemaphorePermit, TryAcquireError};

use super::board::CallResult;
use super::error::Error;
use super::inner::Inner;
use super::limits::{STREAM_BYTES, STREAM_FIRST, STREAM_WINDOW};

/// A place that a stream waits for. No request does, so that no time runs.
type Place = Pin<Box<dyn Future<Output = Result<OwnedSemaphorePermit, AcquireError>> + Send>>;

/// The calls of a stream of requests.
struct StreamedCalls<S> {
    client: Arc<Inner>,
    /// Its number on the board, once there is one.
    group: Option<usize>,
    requests: Option<Pin<Box<S>>>,
    /// Requests to be handed over together.
    batch: Vec<Request<Bytes>>,
    /// Calls that have ended, as the board hands them over.
    ended: Vec<(u64, CallResult)>,
    /// Requests handed over so far, and calls that have ended.
    handed: u64,
    finished: u64,
    /// Bytes of responses that the caller has not got yet.
    held: usize,
    /// Bytes that the next response is expected to have, once there was one.
    expected: Option<usize>,
    /// Waits for a place when no call of this group could bring one.
    place: Option<Place>,
}

impl<S: Stream<Item = Request<Bytes>>> StreamedCalls<S> {
    fn new(client: Arc<Inner>, requests: S) -> StreamedCalls<S> {
        StreamedCalls {
            client,
            group: None,
            requests: Some(Box::pin(requests)),
            batch: Vec::new(),
            ended: Vec::new(),
            handed: 0,
            finished: 0,
            held: 0,
            expected: None,
            place: None,
        }
    }

    /// Calls under way, at most, with those that have ended and wait for the caller.
    fn window(&self, waiting: u64) -> u64 {
        let most = self.client.window.min(STREAM_WINDOW);
        let by_bytes = match self.expected {
            None => STREAM_FIRST,
            Some(bytes) => (STREAM_BYTES.saturating_sub(self.held) / bytes.max(1)) as u64,
        };
        // One at least, so that the caller gets on.
        most.min(waiting.saturating_add(by_bytes)).max(1)
    }

    /// Notes the bytes of responses that came.
    fn note_ended(&mut self) {
        for (_, result) in &self.ended {
            let Ok(response) = result else { continue };
            let bytes = response.body().len();
            self.held += bytes;
            // The largest of the last ones: responses of one stream are often alike.
            let before = self.expected.unwrap_or(0);
            self.expected = Some(bytes.max(before - before / 16));
        }
    }

    /// The caller gets it.
    fn taken(&mut self, result: &CallResult) {
        self.held -= result.as_ref().map_or(0, |response| response.body().len());
    }

    /// A place for a call; `None`: the client has ended, and no call needs one any more.
    fn poll_place(&mut self, cx: &mut Context<'_>) -> Poll<Option<OwnedSemaphorePermit>> {
        let places = &self.client.shared.places;
        if self.place.is_none() {
            match Arc::clone(places).try_acquire_owned() {
                Ok(permit) => return Poll::Ready(Some(permit)),
                Err(TryAcquireError::Closed) => return Poll::Ready(None),
                // A call of this group will end, and bring one.
                Err(TryAcquireError::NoPermits) if self.handed > self.finished || !self.batch.is_empty() => {
                    return Poll::Pending;
                }
                Err(TryAcquireError::NoPermits) => {}
            }
        }
        let place = self.place.get_or_insert_with(|| Box::pin(Arc::clone(places).acquire_owned()));
        let permit = ready!(place.as_mut().poll(cx));
        self.place = None;
        Poll::Ready(permit.ok())
    }

    /// Takes as many requests of the stream as there are places for, `most` at most. Many together cost least.
    fn gather(&mut self, most: u64, cx: &mut Context<'_>) {
        while (self.batch.len() as u64) < most && self.requests.is_some() {
            let Poll::Ready(permit) = self.poll_place(cx) else { return };
            let Some(requests) = &mut self.requests else { return };
            match requests.as_mut().poll_next(cx) {
                Poll::Ready(Some(request)) => {
                    // The board gives it back with the call's end.
                    permit.into_iter().for_each(OwnedSemaphorePermit::forget);
                    self.batch.push(request);
                }
                Poll::Ready(None) => self.requests = None,
                Poll::Pending => return,
            }
        }
    }

    /// Hands over what there are places for, and takes what has ended. `waiting`: ended calls that the caller has not
    /// got yet. Says whether all is over.
    fn exchange(&mut self, waiting: u64, cx: &mut Context<'_>) -> bool {
        let window = self.window(waiting);
        let under_way = self.handed - self.finished + waiting;
        // Half a window at a time, so that requests leave in batches.
        if under_way <= window / 2 {
            self.gather(window - under_way, cx);
        }
        if self.handed == self.finished && self.batch.is_empty() {
            return self.requests.is_none();
        }
        if let Err(error) = self.client.start() {
            return self.refuse(&error);
        }
        let shared = &self.client.shared;
        let group = *self.group.get_or_insert_with(|| shared.new_group());
        let (first, count) = (self.handed, self.batch.len() as u64);
        shared.exchange(group, (first, &mut self.batch), &mut self.ended, cx.waker());
        self.handed += count;
        self.finished += self.ended.len() as u64;
        self.note_ended();
        false
    }

    /// Nothing can be sent here.
    fn refuse(&mut self, why: &Error) -> bool {
        self.client.shared.places.add_permits(self.batch.len());
        for _ in self.batch.drain(..) {
            self.ended.push((self.handed, Err(Error::Connect(why.to_string().into()))));
            self.handed += 1;
            self.finished += 1;
        }
        false
    }
}

impl<S> Drop for StreamedCalls<S> {
    fn drop(&mut self) {
        // The stream of requests may have panicked before these were handed over.
        self.client.shared.places.add_permits(self.batch.len());
        if let Some(group) = self.group {
            self.client.shared.drop_group(group);
        }
    }
}

/// Responses in the order of their requests. See [`Client::send_all`](super::Client::send_all).
#[must_use = "a stream does nothing until it is polled"]
pub struct SendAll<S> {
    group: StreamedCalls<S>,
    /// Ended calls by their distance from the next.
    ordered: VecDeque<Option<CallResult>>,
    /// The next index that the caller gets.
    next: u64,
    /// Of `ordered`, those that are there.
    held: u64,
}

impl<S: Stream<Item = Request<Bytes>>> SendAll<S> {
    pub(super) fn new(client: Arc<Inner>, requests: S) -> SendAll<S> {
        SendAll { group: StreamedCalls::new(client, requests), ordered: VecDeque::new(), next: 0, held: 0 }
    }

    fn pop(&mut self) -> Option<CallResult> {
        let result = self.ordered.front_mut()?.take()?;
        self.ordered.pop_front();
        self.next += 1;
        self.held -= 1;
        self.group.taken(&result);
        Some(result)
    }
}

impl<S: Stream<Item = Request<Bytes>>> Stream for SendAll<S> {
    type Item = CallResult;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<CallResult>> {
        let this = &mut *self;
        loop {
            if let Some(result) = this.pop() {
                return Poll::Ready(Some(result));
            }
            if this.group.exchange(this.held, cx) {
                return Poll::Ready(None);
            }
            if this.group.ended.is_empty() {
                return Poll::Pending;
            }
            for (index, result) in this.group.ended.drain(..) {
                let at = (index - this.next) as usize;
                if this.ordered.len() <= at {
                    this.ordered.resize_with(at + 1, || None);
                }
                this.ordered[at] = Some(result);
                this.held += 1;
            }
        }
    }
}

/// Responses as they come, each with the index of its request. See
/// [`Client::send_all_unordered`](super::Client::send_all_unordered).
#[must_use = "a stream does nothing until it is polled"]
pub struct SendAllUnordered<S> {
    group: StreamedCalls<S>,
    ready: VecDeque<(u64, CallResult)>,
}

impl<S: Stream<Item = Request<Bytes>>> SendAllUnordered<S> {
    pub(super) fn new(client: Arc<Inner>, requests: S) -> SendAllUnordered<S> {
        SendAllUnordered { group: StreamedCalls::new(client, requests), ready: VecDeque::new() }
    }

    fn pop(&mut self) -> Option<(u64, CallResult)> {
        let first = self.ready.pop_front()?;
        self.group.taken(&first.1);
        Some(first)
    }
}

impl<S: Stream<Item = Request<Bytes>>> Stream for SendAllUnordered<S> {
    type Item = (u64, CallResult);

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<(u64, CallResult)>> {
        let this = &mut *self;
        if let Some(first) = this.pop() {
            return Poll::Ready(Some(first));
        }
        if this.group.exchange(0, cx) {
            return Poll::Ready(None);
        }
        this.ready.extend(this.group.ended.drain(..));
        this.pop().map_or(Poll::Pending, |first| Poll::Ready(Some(first)))
    }
}

impl<S> fmt::Debug for SendAll<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SendAll").field("next", &self.next).finish_non_exhaustive()
    }
}

impl<S> fmt::Debug for SendAllUnordered<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SendAllUnordered").finish_non_exhaustive()
    }
}
