//! Handlers.

use std::future::Future;

use crate::{Request, Response};

/// Answers requests. Any `Fn(Request) -> impl Future<Output = Response>` is one. Each thread has its own clone.
///
/// The future is polled in place as soon as the request is there: one that does not wait costs no scheduling. One that
/// waits is parked beside its connection, and others go on; answers leave in the order of their requests all the same.
pub trait Handler: 'static {
    /// The coroutine.
    type Future: Future<Output = Response> + 'static;

    /// Begins to answer.
    fn call(&self, request: Request) -> Self::Future;
}

impl<F, Fut> Handler for F
where
    F: Fn(Request) -> Fut + 'static,
    Fut: Future<Output = Response> + 'static,
{
    type Future = Fut;

    fn call(&self, request: Request) -> Fut {
        self(request)
    }
}
