//! Handlers.

use std::error::Error;
use std::future::Future;
use std::time::Duration;

use linerate_http::server::RequestHead;

use crate::{Address, BlockingError, BodyError, Request, Response};

/// A value that a handler can return.
pub trait IntoResponse {
    /// Converts it to the response to send.
    fn into_response(self) -> Response;
}

impl IntoResponse for Response {
    fn into_response(self) -> Response {
        self
    }
}

impl<E: Into<Response>> IntoResponse for Result<Response, E> {
    fn into_response(self) -> Response {
        self.unwrap_or_else(Into::into)
    }
}

/// 500, without details for the client: an event of `tracing` has them. This crate's own errors
/// have their own status.
impl From<Box<dyn Error + Send + Sync>> for Response {
    fn from(error: Box<dyn Error + Send + Sync>) -> Response {
        if let Some(error) = error.downcast_ref::<BodyError>() {
            return (*error).into();
        }
        if let Some(error) = error.downcast_ref::<BlockingError>() {
            return (*error).into();
        }
        tracing::error!(%error, "a handler failed: {error}");
        Response::explained(500, "the handler failed")
    }
}

/// Responds to requests. Any `Fn(Request) -> impl Future<Output = Response>` is a handler. So is a
/// function that returns a `Result<Response, E>` whose error converts to a response. Each thread
/// has its own clone.
///
/// The future is polled inline as soon as the request is there: a handler that never awaits is
/// never scheduled. One that waits is parked beside its connection, and others continue. Responses
/// still leave in the order of their requests.
pub trait Handler: 'static {
    /// The future of a response.
    type Future: Future<Output: IntoResponse> + 'static;

    /// Starts handling a request.
    fn call(&self, request: Request) -> Self::Future;

    /// The limits of one request, where they differ from the server's. Called before its body is read.
    /// `listener`: as [`Request::listener`] returns it.
    fn limits(&self, _head: &RequestHead, _listener: Option<&Address>) -> RouteLimits {
        RouteLimits::default()
    }
}

/// Limits of some requests, in place of the server's ([`Limits`](crate::Limits)); `None`: the
/// server's.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RouteLimits {
    /// Largest body of a request.
    pub body: Option<u64>,
    /// Time that a body may take in addition to what the least rate grants.
    pub body_time: Option<Duration>,
    /// Time in which the client must take part of its response. Over HTTP/1.1 that of the newest
    /// request holds for its connection.
    pub write_time: Option<Duration>,
}

impl RouteLimits {
    /// These, and where they say nothing, `others`.
    pub(crate) fn or(self, others: RouteLimits) -> RouteLimits {
        RouteLimits {
            body: self.body.or(others.body),
            body_time: self.body_time.or(others.body_time),
            write_time: self.write_time.or(others.write_time),
        }
    }
}

impl<F, Fut> Handler for F
where
    F: Fn(Request) -> Fut + 'static,
    Fut: Future<Output: IntoResponse> + 'static,
{
    type Future = Fut;

    fn call(&self, request: Request) -> Fut {
        self(request)
    }
}
