//! One call as a future.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::Bytes;
use http::Request;
use tokio::sync::{AcquireError, OwnedSemaphorePermit};
use tracing::field::Empty;
use tracing::{Span, debug_span};

use super::board::CallResult;
use super::error::Error;
use super::inner::Inner;

/// Waits for a place among the calls.
pub(super) type Place =
    Pin<Box<dyn Future<Output = Result<OwnedSemaphorePermit, AcquireError>> + Send>>;

enum CallState {
    Refused(Error),
    New(Request<Bytes>),
    /// For a place among the calls.
    Waits(Request<Bytes>, Place),
    Sent(u64),
    Over,
}

/// A call under way. Dropping it gives the call up: a request that has not left never does, and the response to one that
/// has is read and discarded.
#[must_use = "a call is sent when its future is polled"]
pub struct ResponseFuture {
    client: Arc<Inner>,
    state: CallState,
    span: Span,
}

impl ResponseFuture {
    pub(super) fn new(client: Arc<Inner>, request: Result<Request<Bytes>, Error>) -> ResponseFuture {
        let span = match &request {
            Ok(request) => debug_span!(
                "http_request",
                method = %request.method(),
                path = request.uri().path(),
                status = Empty,
                error = Empty
            ),
            Err(_) => Span::none(),
        };
        ResponseFuture { client, state: request.map_or_else(CallState::Refused, CallState::New), span }
    }

    fn note(&self, result: &CallResult) {
        if self.span.is_disabled() {
            return;
        }
        match result {
            Ok(response) => self.span.record("status", response.status().as_u16()),
            Err(error) => self.span.record("error", tracing::field::display(error)),
        };
    }

    /// The request has a place: it goes to the driver.
    fn submit(
        &mut self,
        request: Request<Bytes>,
        permit: OwnedSemaphorePermit,
        cx: &Context<'_>,
    ) -> Poll<CallResult> {
        match self.client.shared.submit(request, cx.waker()) {
            Ok(id) => {
                // The board gives it back with the call's end.
                permit.forget();
                self.state = CallState::Sent(id);
                Poll::Pending
            }
            Err(error) => Poll::Ready(Err(error)),
        }
    }
}

impl Future for ResponseFuture {
    type Output = CallResult;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<CallResult> {
        let this = &mut *self;
        match std::mem::replace(&mut this.state, CallState::Over) {
            CallState::Refused(error) => Poll::Ready(Err(error)),
            CallState::New(request) => {
                if let Err(error) = this.client.start() {
                    return Poll::Ready(Err(error));
                }
                let places = &this.client.shared.places;
                match Arc::clone(places).try_acquire_owned() {
                    Ok(permit) => this.submit(request, permit, cx),
                    Err(_) => {
                        let place = Box::pin(Arc::clone(places).acquire_owned());
                        this.state = CallState::Waits(request, place);
                        self.poll(cx)
                    }
                }
            }
            CallState::Waits(request, mut place) => match place.as_mut().poll(cx) {
                Poll::Ready(Ok(permit)) => this.submit(request, permit, cx),
                Poll::Ready(Err(_)) => Poll::Ready(Err(Error::Closed)),
                Poll::Pending => {
                    this.state = CallState::Waits(request, place);
                    Poll::Pending
                }
            },
            CallState::Sent(id) => match this.client.shared.take(id, cx.waker()) {
                Some(result) => {
                    this.note(&result);
                    Poll::Ready(result)
                }
                None => {
                    this.state = CallState::Sent(id);
                    Poll::Pending
                }
            },
            CallState::Over => panic!("a call was polled after its end"),
        }
    }
}

impl Drop for ResponseFuture {
    fn drop(&mut self) {
        if let CallState::Sent(id) = self.state {
            self.client.shared.give_up(id);
        }
    }
}

impl fmt::Debug for ResponseFuture {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ResponseFuture").finish_non_exhaustive()
    }
}
