//! Handlers.

use std::error::Error;
use std::future::Future;

use crate::{BlockingError, BodyError, Request, Response};

/// What a handler gives.
pub trait IntoResponse {
    /// The response that is sent.
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

/// 500, without a word to the client: what went wrong is an event of `tracing`. This crate's own errors have their status.
impl From<Box<dyn Error + Send + Sync>> for Response {
    fn from(error: Box<dyn Error + Send + Sync>) -> Response {
        if let Some(error) = error.downcast_ref::<BodyError>() {
            return (*error).into();
        }
        if let Some(error) = error.downcast_ref::<BlockingError>() {
            return (*error).into();
        }
        tracing::error!(%error, "a handler failed: {error}");
        crate::engine::explained(500, "the handler failed")
    }
}

/// Answers requests. Any `Fn(Request) -> impl Future<Output = Response>` is one, and so is one that gives a `Result<Response, E>` whose
/// error becomes a response. Each thread has its own clone.
///
/// The future is polled in place as soon as the request is there: one that does not wait costs no scheduling. One that
/// waits is parked beside its connection, and others go on; answers leave in the order of their requests all the same.
pub trait Handler: 'static {
    /// The coroutine.
    type Future: Future<Output: IntoResponse> + 'static;

    /// Begins to answer.
    fn call(&self, request: Request) -> Self::Future;
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
