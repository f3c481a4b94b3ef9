//! `tower` services as handlers: an axum `Router` with its extractors runs unchanged.

use std::cell::RefCell;
use std::future::poll_fn;
use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::{Buf, Bytes};
use http::header::{self, HeaderName, HeaderValue};
use http_body::{Body, Frame, SizeHint};
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use linerate_http::server::{Fields, RequestHead, Version};
use tower_service::Service;

use crate::body::{BodyError, RequestBody, Trailers};
use crate::engine::explained;
use crate::limits::BODY_PLACES_KEPT;
use crate::response::{BodyStream, ResponseBody};
use crate::tunnel::Tunnel;
use crate::{Draining, Handler, Request, Response};

type Failure = Box<dyn std::error::Error + Send + Sync>;

/// The client's address, as an extension of the requests that services get.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Peer(pub SocketAddr);

/// Makes a handler of a service. Its errors become 500; a service that is not ready makes its requests wait.
pub fn tower<S, B>(service: S) -> impl Handler
where
    S: Service<http::Request<TowerBody>, Response = http::Response<B>> + Clone + 'static,
    S::Error: std::fmt::Display,
    S::Future: 'static,
    B: Body + 'static,
    B::Data: 'static,
    B::Error: Into<Failure>,
{
    let bridge = Rc::new(Bridge { last: RefCell::new(None), places: RefCell::default() });
    move |request: Request| call(service.clone(), Rc::clone(&bridge), request)
}

/// What one thread's requests have in common.
struct Bridge<B> {
    last: RefCell<Option<Translated>>,
    /// Where bodies of answers are polled. Most are over after one piece, and leave their place to the next.
    places: RefCell<Vec<Place<B>>>,
}

type Place<B> = Pin<Box<Option<B>>>;

/// The head translated last. Clients repeat themselves, and the reader then hands out the very same head: while it is held here
/// it cannot become another.
struct Translated {
    head: Rc<RequestHead>,
    method: http::Method,
    uri: http::Uri,
    headers: http::HeaderMap,
}

impl Translated {
    fn new(head: &Rc<RequestHead>) -> Result<Translated, http::Error> {
        let mut headers = http::HeaderMap::with_capacity(head.fields().len());
        for (name, value) in head.fields() {
            headers.append(HeaderName::from_bytes(name.as_bytes())?, HeaderValue::from_bytes(value)?);
        }
        let method = http::Method::from_bytes(head.method_name().as_bytes())?;
        Ok(Translated { head: Rc::clone(head), method, uri: head.target().parse()?, headers })
    }
}

async fn call<S, B>(mut service: S, bridge: Rc<Bridge<B>>, request: Request) -> Response
where
    S: Service<http::Request<TowerBody>, Response = http::Response<B>> + Clone + 'static,
    S::Error: std::fmt::Display,
    S::Future: 'static,
    B: Body + 'static,
    B::Data: 'static,
    B::Error: Into<Failure>,
{
    if let Some(draining) = request.wants_upgrade() {
        // Boxed, so that requests which do not ask for it need not carry the room for it.
        return Box::pin(hand_over(service, &request, draining.clone())).await;
    }
    let request = match to_http(&bridge.last, request) {
        Ok(request) => request,
        Err(error) => return explained(400, &error.to_string()),
    };
    if let Err(error) = poll_fn(|context| service.poll_ready(context)).await {
        return explained(500, &error.to_string());
    }
    match service.call(request).await {
        Ok(response) => {
            let (parts, body) = response.into_parts();
            answered(&bridge, head_of(&parts), body).await
        }
        Err(error) => explained(500, &error.to_string()),
    }
}

/// Hands the connection over to hyper, whose `OnUpgrade` the service finds in the request. hyper reads the request again, and ends
/// the connection behind an answer that is no upgrade.
async fn hand_over<S, B>(service: S, request: &Request, draining: Draining) -> Response
where
    S: Service<http::Request<TowerBody>, Response = http::Response<B>> + Clone + 'static,
    S::Error: std::fmt::Display,
    S::Future: 'static,
    B: Body + 'static,
    B::Data: 'static,
    B::Error: Into<Failure>,
{
    let peer = Peer(request.peer());
    let service = service_fn(move |request: http::Request<Incoming>| {
        let mut service = service.clone();
        let draining = draining.clone();
        async move {
            let mut request = request.map(TowerBody::incoming);
            request.extensions_mut().insert(peer);
            request.extensions_mut().insert(draining);
            let failed = |error: S::Error| io::Error::other(error.to_string());
            poll_fn(|context| service.poll_ready(context)).await.map_err(failed)?;
            let mut response = service.call(request).await.map_err(failed)?;
            if response.status() != http::StatusCode::SWITCHING_PROTOCOLS {
                // The next request deserves our own reader again.
                response.headers_mut().insert(header::CONNECTION, HeaderValue::from_static("close"));
            }
            Ok::<_, io::Error>(response)
        }
    });
    let incoming = Arc::default();
    let begun = Bytes::copy_from_slice(request.head().bytes());
    let mut tunnel = Tunnel::new(begun, &incoming, |io| {
        http1::Builder::new().serve_connection(io, service).with_upgrades()
    });
    let Some(first) = poll_fn(|context| tunnel.poll_first(context)).await else {
        return explained(500, "the service gave no answer");
    };
    let status = first.get(9..12).and_then(|digits| std::str::from_utf8(digits).ok()?.parse().ok());
    let mut response = Response::status(200).with_stream(tunnel);
    response.status = status.unwrap_or(500);
    response.tunnel = Some(incoming);
    response
}

fn to_http(
    last: &RefCell<Option<Translated>>,
    request: Request,
) -> Result<http::Request<TowerBody>, http::Error> {
    let (head, body, peer) = request.into_parts();
    let mut last = last.borrow_mut();
    let same = match &mut *last {
        Some(same) if Rc::ptr_eq(&same.head, &head) => same,
        other => other.insert(Translated::new(&head)?),
    };
    let mut translated = http::Request::new(TowerBody::new(body));
    *translated.method_mut() = same.method.clone();
    *translated.uri_mut() = same.uri.clone();
    *translated.headers_mut() = same.headers.clone();
    if head.version() == Version::Http10 {
        *translated.version_mut() = http::Version::HTTP_10;
    }
    translated.extensions_mut().insert(Peer(peer));
    Ok(translated)
}

/// The head of an answer, as ours.
fn head_of(parts: &http::response::Parts) -> Response {
    let mut answer = Response::status(parts.status.as_u16());
    for (name, value) in &parts.headers {
        if name == header::CONNECTION {
            answer.close |= value.as_bytes().eq_ignore_ascii_case(b"close");
        } else if name == header::CONTENT_LENGTH {
            // A service that answers HEAD says how long the answer would have been.
            answer.announced = value.to_str().ok().and_then(|v| v.parse().ok());
        } else {
            // Framing and date are the server's own, which `add` refuses; the rest was checked by `http`.
            let _ = answer.fields.add(name.as_str(), value.as_bytes());
        }
    }
    answer
}

/// An answer with its body: whole when it is there already, else as it comes.
async fn answered<B>(bridge: &Bridge<B>, mut answer: Response, body: B) -> Response
where
    B: Body + 'static,
    B::Error: Into<Failure>,
{
    if body.is_end_stream() {
        return answer;
    }
    let mut place = bridge.places.borrow_mut().pop().unwrap_or_else(|| Box::pin(None));
    place.set(Some(body));
    let mut body = Housed(place);
    // Most bodies are one piece that is there already: it leaves beside its head.
    let first = match poll_fn(|context| body.poll_frame(context)).await {
        None => return answer,
        Some(Ok(frame)) => frame,
        Some(Err(_)) => return Response::status(500).closing(),
    };
    match first.into_data() {
        Ok(data) if body.is_over() => {
            answer.body = ResponseBody::Whole(to_bytes(data));
            body.0.set(None);
            let mut places = bridge.places.borrow_mut();
            if places.len() < BODY_PLACES_KEPT {
                places.push(body.0);
            }
        }
        first => {
            let (first, trailers) = match first {
                Ok(data) => (Some(to_bytes(data)), None),
                Err(frame) => (None, frame.into_trailers().ok()),
            };
            let length = body.length().map(|n| n + first.as_ref().map_or(0, |b| b.len() as u64));
            answer.body = ResponseBody::Stream(Box::pin(FromBody { body, first, trailers, length }));
        }
    }
    answer
}

type Framed<B> = Option<Result<Frame<<B as Body>::Data>, <B as Body>::Error>>;

/// A body in its place.
struct Housed<B>(Place<B>);

impl<B: Body> Housed<B> {
    fn poll_frame(&mut self, context: &mut Context<'_>) -> Poll<Framed<B>> {
        self.0.as_mut().as_pin_mut().map_or(Poll::Ready(None), |body| body.poll_frame(context))
    }

    fn is_over(&self) -> bool {
        self.0.as_ref().as_pin_ref().is_none_or(|body| body.is_end_stream())
    }

    fn length(&self) -> Option<u64> {
        self.0.as_ref().as_pin_ref()?.size_hint().exact()
    }
}

fn to_bytes(mut data: impl Buf) -> Bytes {
    data.copy_to_bytes(data.remaining())
}

/// A service's body as a stream of ours.
struct FromBody<B> {
    body: Housed<B>,
    first: Option<Bytes>,
    trailers: Option<http::HeaderMap>,
    length: Option<u64>,
}

impl<B> BodyStream for FromBody<B>
where
    B: Body,
    B::Error: Into<Failure>,
{
    fn poll_next(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Bytes, Failure>>> {
        if let Some(first) = self.first.take() {
            return Poll::Ready(Some(Ok(first)));
        }
        loop {
            return match self.body.poll_frame(context) {
                Poll::Pending => Poll::Pending,
                Poll::Ready(None) => Poll::Ready(None),
                Poll::Ready(Some(Err(error))) => Poll::Ready(Some(Err(error.into()))),
                Poll::Ready(Some(Ok(frame))) => match frame.into_data() {
                    Ok(data) => Poll::Ready(Some(Ok(to_bytes(data)))),
                    Err(frame) => {
                        self.trailers = frame.into_trailers().ok();
                        continue;
                    }
                },
            };
        }
    }

    fn length(&self) -> Option<u64> {
        self.length
    }

    fn trailers(mut self: Pin<&mut Self>) -> Option<Fields> {
        let mut fields = Fields::new();
        for (name, value) in &self.trailers.take()? {
            // Those that must not come here are left out.
            let _ = fields.add(name.as_str(), value.as_bytes());
        }
        Some(fields)
    }
}

/// The body of a request, as services get it.
#[derive(Debug)]
pub struct TowerBody(Source);

#[derive(Debug)]
enum Source {
    Ours {
        body: RequestBody,
        trailers: Option<Trailers>,
    },
    /// Of a connection that was handed over.
    Hyper(Incoming),
}

impl TowerBody {
    fn new(body: RequestBody) -> TowerBody {
        let trailers = (!body.is_empty()).then(|| body.trailers());
        TowerBody(Source::Ours { body, trailers })
    }

    fn incoming(body: Incoming) -> TowerBody {
        TowerBody(Source::Hyper(body))
    }
}

impl Body for TowerBody {
    type Data = Bytes;
    type Error = BodyError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        let (body, trailers) = match &mut self.0 {
            Source::Ours { body, trailers } => (body, trailers),
            Source::Hyper(body) => {
                let ended = |frame: Result<_, hyper::Error>| frame.map_err(|_| BodyError::Ended);
                return Pin::new(body).poll_frame(context).map(|frame| frame.map(ended));
            }
        };
        match body.poll_next(context) {
            Poll::Pending => Poll::Pending,
            Poll::Ready(Some(piece)) => Poll::Ready(Some(piece.map(Frame::data))),
            Poll::Ready(None) => {
                let fields = trailers.take().map(|t| t.get()).unwrap_or_default();
                let mut map = http::HeaderMap::new();
                for (name, value) in &fields {
                    if let (Ok(name), Ok(value)) =
                        (HeaderName::from_bytes(name.as_bytes()), HeaderValue::from_bytes(value))
                    {
                        map.append(name, value);
                    }
                }
                Poll::Ready((!map.is_empty()).then_some(Ok(Frame::trailers(map))))
            }
        }
    }

    fn is_end_stream(&self) -> bool {
        match &self.0 {
            Source::Ours { body, trailers } => body.is_empty() && trailers.is_none(),
            Source::Hyper(body) => body.is_end_stream(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match &self.0 {
            Source::Ours { body, .. } => {
                body.known_length().map_or_else(SizeHint::default, |n| SizeHint::with_exact(n as u64))
            }
            Source::Hyper(body) => body.size_hint(),
        }
    }
}
