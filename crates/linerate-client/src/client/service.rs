//! The client as a service of tower.

use std::task::{Context, Poll};

use bytes::Bytes;
use http::{Request, Response};
use tower_service::Service;

use super::error::Error;
use super::{Client, Send};

/// Layers of tower and tower-http work over it. It is always ready: a call waits in its future for a place.
impl Service<Request<Bytes>> for Client {
    type Response = Response<Bytes>;
    type Error = Error;
    type Future = Send;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Error>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<Bytes>) -> Send {
        self.send(request)
    }
}

/// As for the client itself.
impl Service<Request<Bytes>> for &Client {
    type Response = Response<Bytes>;
    type Error = Error;
    type Future = Send;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Error>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<Bytes>) -> Send {
        self.send(request)
    }
}
