//! The client as a service of tower.

use std::error::Error as StdError;
use std::task::{Context, Poll};

use http::{Request, Response};
use http_body::Body as HttpBody;
use tower_service::Service;

use super::Client;
use super::body::Body;
use super::error::Error;
use super::exchange::Exchange;

type BoxError = Box<dyn StdError + Send + Sync>;

/// Layers of tower and tower-http work over it: Trace, Timeout, Retry, `FollowRedirect`, Decompression and others.
/// It is always ready: a call waits in its future for a place.
///
/// A request without a body, or with one of a known length of up to 1 MiB, is sent as [`Client::send`] does it: it may
/// share its connection, and its response is whole. Any other is sent as [`Client::send_streaming`] does it, as is each
/// request of [`Client::streaming`].
impl<B> Service<Request<B>> for Client
where
    B: HttpBody + Send + 'static,
    B::Data: Send,
    B::Error: Into<BoxError>,
{
    type Response = Response<Body>;
    type Error = Error;
    type Future = Exchange<B>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Error>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<B>) -> Exchange<B> {
        Exchange::new(&self.0, request)
    }
}

/// As for the client itself.
impl<B> Service<Request<B>> for &Client
where
    B: HttpBody + Send + 'static,
    B::Data: Send,
    B::Error: Into<BoxError>,
{
    type Response = Response<Body>;
    type Error = Error;
    type Future = Exchange<B>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Error>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<B>) -> Exchange<B> {
        Exchange::new(&self.0, request)
    }
}
