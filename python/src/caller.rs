//! Who sends the calls: a client of one server, or of several.

use bytes::Bytes;
use futures_util::StreamExt;
use futures_util::stream::{BoxStream, Stream};
use http::{Request, Response};
use http_body::Body as HttpBody;
use linerate_client::client::{Body, Client, Error, Hosts};

use crate::ready::CallResult;

/// A client of one server, or of several.
#[derive(Clone)]
pub(crate) enum Caller {
    One(Client),
    Many(Hosts),
}

impl Caller {
    pub(crate) async fn send(self, request: Request<Bytes>) -> CallResult {
        match self {
            Caller::One(client) => client.send(request).await,
            Caller::Many(hosts) => hosts.send(request).await,
        }
    }

    pub(crate) async fn send_streaming<B>(self, request: Request<B>) -> Result<Response<Body>, Error>
    where
        B: HttpBody<Data = Bytes> + Send + 'static,
        B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
    {
        match self {
            Caller::One(client) => client.send_streaming(request).await,
            Caller::Many(hosts) => hosts.send_streaming(request).await,
        }
    }

    /// Responses in the order of the requests. `window`: of several servers, calls under way at once.
    pub(crate) fn send_all(
        self,
        requests: impl Stream<Item = Request<Bytes>> + Send + 'static,
        window: usize,
    ) -> BoxStream<'static, CallResult> {
        match self {
            Caller::One(client) => client.send_all(requests).boxed(),
            Caller::Many(hosts) => requests.map(move |request| hosts.send(request)).buffered(window).boxed(),
        }
    }
}
