//! Calls of the client as a service of tower.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use bytes::{Buf, Bytes, BytesMut};
use http::request::Parts;
use http::{Request, Response};
use http_body::Body as HttpBody;

use super::body::{Body, BoxError};
use super::call::ResponseFuture;
use super::error::{Error, ErrorDetail};
use super::inner::Inner;
use super::limits::GATHERED_BODY;
use super::stream::SendStreaming;

/// A client as a service of tower whose responses are streams, of any length. [`Client::streaming`](super::Client::streaming) makes
/// it.
#[derive(Clone)]
pub struct Streaming(pub(super) Arc<Inner>);

impl fmt::Debug for Streaming {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Streaming").finish_non_exhaustive()
    }
}

/// A request whose body is read before the request is sent.
struct Gathering<B> {
    client: Arc<Inner>,
    head: Parts,
    body: Pin<Box<B>>,
    first: Bytes,
    more: BytesMut,
}

impl<B> Gathering<B>
where
    B: HttpBody,
    B::Error: Into<BoxError>,
{
    /// Reads the body to its end.
    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Error>> {
        while let Some(frame) = ready!(self.body.as_mut().poll_frame(cx)) {
            let frame = frame.map_err(|e| {
                let error = e.into();
                Error::Request(ErrorDetail::by(format!("its body failed: {error}"), error))
            })?;
            // Trailers of requests are not sent.
            let Ok(mut data) = frame.into_data() else { continue };
            let piece = data.copy_to_bytes(data.remaining());
            if self.first.is_empty() {
                self.first = piece;
            } else if !piece.is_empty() {
                if self.more.is_empty() {
                    self.more.extend_from_slice(&self.first);
                }
                self.more.extend_from_slice(&piece);
            }
            if self.more.len() > GATHERED_BODY {
                return Poll::Ready(Err(Error::Request("its body is longer than it said".into())));
            }
        }
        Poll::Ready(Ok(()))
    }

    fn send(self) -> ResponseFuture {
        let body = if self.more.is_empty() { self.first } else { self.more.freeze() };
        ResponseFuture::new(self.client, Ok(Request::from_parts(self.head, body)))
    }
}

enum ExchangeState<B> {
    Gathering(Box<Gathering<B>>),
    Whole(ResponseFuture),
    Streaming(SendStreaming<B>),
    Over,
}

/// A call of the client as a service of tower. Dropping it gives the call up.
#[must_use = "a call is sent when its future is polled"]
pub struct Exchange<B>(ExchangeState<B>);

impl<B> Exchange<B>
where
    B: HttpBody + Send + 'static,
    B::Data: Send,
    B::Error: Into<BoxError>,
{
    pub(super) fn new(client: &Arc<Inner>, request: Request<B>) -> Exchange<B> {
        let body = request.body();
        if body.is_end_stream() {
            let request = request.map(|_| Bytes::new());
            return Exchange(ExchangeState::Whole(ResponseFuture::new(Arc::clone(client), Ok(request))));
        }
        if body.size_hint().exact().is_none_or(|length| length > GATHERED_BODY as u64) {
            return Exchange(ExchangeState::Streaming(SendStreaming::new(Arc::clone(client), request)));
        }
        let (head, body) = request.into_parts();
        let (client, body) = (client.clone(), Box::pin(body));
        let gathering = Gathering { client, head, body, first: Bytes::new(), more: BytesMut::new() };
        Exchange(ExchangeState::Gathering(Box::new(gathering)))
    }
}

impl<B> Future for Exchange<B>
where
    B: HttpBody + Send + 'static,
    B::Data: Send,
    B::Error: Into<BoxError>,
{
    type Output = Result<Response<Body>, Error>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        loop {
            match &mut self.0 {
                ExchangeState::Whole(call) => {
                    return Poll::Ready(ready!(Pin::new(call).poll(cx)).map(Body::of_whole));
                }
                ExchangeState::Streaming(call) => return Pin::new(call).poll(cx),
                ExchangeState::Gathering(gathering) => {
                    let gathered = ready!(gathering.poll(cx));
                    let state = std::mem::replace(&mut self.0, ExchangeState::Over);
                    if let Err(error) = gathered {
                        return Poll::Ready(Err(error));
                    }
                    if let ExchangeState::Gathering(gathering) = state {
                        self.0 = ExchangeState::Whole(gathering.send());
                    }
                }
                ExchangeState::Over => panic!("a call was polled after its end"),
            }
        }
    }
}

/// Nothing in it is pinned: the body is in a box.
impl<B> Unpin for Exchange<B> {}

impl<B> fmt::Debug for Exchange<B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Exchange").finish_non_exhaustive()
    }
}
