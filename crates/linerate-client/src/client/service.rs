//! The client as a service of tower.

use std::sync::Arc;
use std::task::{Context, Poll};

use http::{Request, Response};
use http_body::Body as HttpBody;
use tower_service::Service;

use super::Client;
use super::body::{Body, BoxError};
use super::error::Error;
use super::exchange::{Exchange, Streaming};
use super::stream::SendStreaming;

/// Makes a type a service that is always ready.
macro_rules! service {
    ($(#[$doc:meta])* $type:ty, $future:ty, $call:expr) => {
        $(#[$doc])*
        impl<B> Service<Request<B>> for $type
        where
            B: HttpBody + Send + 'static,
            B::Data: Send,
            B::Error: Into<BoxError>,
        {
            type Response = Response<Body>;
            type Error = Error;
            type Future = $future;

            fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Error>> {
                Poll::Ready(Ok(()))
            }

            fn call(&mut self, request: Request<B>) -> $future {
                let call: fn(&$type, Request<B>) -> $future = $call;
                call(self, request)
            }
        }
    };
}

pub(super) use service;

service! {
    /// Layers of tower and tower-http work over it: Trace, Timeout, Retry, `FollowRedirect`, Decompression and others.
    /// It is always ready: a call waits in its future for a place.
    ///
    /// A request without a body, or with one of a known length of up to 1 MiB, is sent as [`Client::send`] does it: it
    /// may share its connection, and its response is whole. Any other is sent as [`Client::send_streaming`] does it, as
    /// is each request of [`Client::streaming`].
    Client, Exchange<B>, |client, request| Exchange::new(&client.0, request)
}

service! {
    /// As for the client itself.
    &Client, Exchange<B>, |client, request| Exchange::new(&client.0, request)
}

service! {
    /// Each call is one of [`Client::send_streaming`].
    Streaming, SendStreaming<B>, |streaming, request| SendStreaming::new(Arc::clone(&streaming.0), request)
}
