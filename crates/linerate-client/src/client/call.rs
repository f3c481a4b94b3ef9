//! One call as a future.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderName, HeaderValue, Request};
use linerate_net::Time;
use tokio::sync::OwnedSemaphorePermit;
use tracing::field::Empty;
use tracing::{Span, debug_span};

use super::board::CallResult;
use super::error::{Error, ErrorDetail};
use super::inner::Inner;
use super::options::RequestOptions;
use super::waiting::PlaceWait;

enum CallState {
    Refused(Error),
    New(Request<Bytes>),
    /// For a place among the calls.
    Waits(Request<Bytes>, PlaceWait),
    Sent(u64),
    Over,
}

/// A call: a future of its response. Dropping it gives the call up: a request that has not left never does, and the response to one that
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

    /// Adds a field to the request.
    ///
    /// ```no_run
    /// # extern crate linerate_client as linerate;
    /// # async fn example(client: linerate::client::Client) -> Result<(), Box<dyn std::error::Error>> {
    /// use std::time::Duration;
    ///
    /// let call = client.get("/items/7").header("accept", "text/plain").timeout(Duration::from_millis(200));
    /// println!("{}", call.await?.status());
    /// # Ok(())
    /// # }
    /// ```
    pub fn header<N, V>(mut self, name: N, value: V) -> ResponseFuture
    where
        HeaderName: TryFrom<N, Error: Into<http::Error>>,
        HeaderValue: TryFrom<V, Error: Into<http::Error>>,
    {
        let CallState::New(request) = &mut self.state else { return self };
        let name = HeaderName::try_from(name).map_err(Into::into);
        let field = name.and_then(|name| Ok((name, HeaderValue::try_from(value).map_err(Into::into)?)));
        match field {
            Ok((name, value)) => {
                request.headers_mut().append(name, value);
            }
            Err(error) => {
                self.state =
                    CallState::Refused(Error::Request(ErrorDetail::by(format!("a field: {error}"), error)))
            }
        }
        self
    }

    /// The time from handing the request over, which is when this future is polled first, to its whole response,
    /// instead of the client's `timeout`.
    pub fn timeout(mut self, timeout: Duration) -> ResponseFuture {
        if let CallState::New(request) = &mut self.state {
            request.extensions_mut().get_or_insert_default::<RequestOptions>().timeout = Some(timeout);
        }
        self
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
        (permit, since): (OwnedSemaphorePermit, Option<Time>),
        cx: &Context<'_>,
    ) -> Poll<CallResult> {
        match self.client.shared.submit(request, since, cx.waker()) {
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
                let shared = &this.client.shared;
                match Arc::clone(&shared.places).try_acquire_owned() {
                    Ok(permit) => this.submit(request, (permit, None), cx),
                    Err(_) => {
                        let place = PlaceWait::new(shared, RequestOptions::of(&request));
                        this.state = CallState::Waits(request, place);
                        self.poll(cx)
                    }
                }
            }
            CallState::Waits(request, mut place) => match place.poll(cx) {
                Poll::Ready(Ok(place)) => this.submit(request, place, cx),
                Poll::Ready(Err(error)) => Poll::Ready(Err(error)),
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
