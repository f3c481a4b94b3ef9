//! `tower` services as handlers: an axum `Router` with its extractors runs unchanged.

use std::cell::{Cell, RefCell, RefMut};
use std::future::{Future, poll_fn};
use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll, Waker, ready};

use bytes::Bytes;
use http::header::{self, HeaderName, HeaderValue};
use http_body::{Body, Frame, SizeHint};
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use linerate_http::server::{RequestHead, Version};
use linerate_tls::TlsInfo;
use tower_service::Service;

use crate::message::body::{BodyError, RequestBody, Trailers};
use crate::message::hand_over::HandOver;
use crate::message::http_body::{Framed, FromBody, Housed, Place, Places, to_bytes};
use crate::message::response::{Announced, ResponseBody, fields};
use crate::message::stream::{Failure, Streamed};
use crate::message::tunnel::TunnelBody;
use crate::message::websocket;
use crate::{Draining, Handler, Request, Response};

/// The client's address, an extension of requests to services behind [`tower_with_peer`]. Requests
/// by a Unix socket have none: if you listen on one, extract `Option<Extension<Peer>>`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Peer(pub SocketAddr);

/// Turns a service into a handler. Its errors become 500; while the service is not ready, its
/// requests wait.
///
/// Pass an axum `Router` as `app.with_state(())`, as `axum::serve` does internally: its handlers
/// then become services once instead of for each request.
pub fn tower<S, B>(service: S) -> impl Handler<Future: Future<Output = Response>>
where
    S: Service<http::Request<TowerBody>, Response = http::Response<B>> + Clone + 'static,
    S::Error: std::fmt::Display,
    S::Future: 'static,
    B: Body + 'static,
    B::Data: 'static,
    B::Error: Into<Failure>,
{
    Bridge::handler(service, false)
}

/// As [`tower()`], and each request has its [`Peer`] among its extensions (in axum: `Extension<Peer>`). It is asked for, as `ConnectInfo`
/// is in axum, since it takes three allocations of each request. Requests that come over TLS have their [`TlsInfo`] as well (in axum:
/// `Extension<Arc<TlsInfo>>`), with the client's certificate. Handlers that ask for `ConnectInfo` itself get it from a layer:
///
/// ```
/// use std::net::SocketAddr;
///
/// use axum::extract::{ConnectInfo, Request};
/// use axum::{Extension, Router, middleware::map_request, routing::get};
/// use linerate_serve::{Peer, tower_with_peer};
///
/// async fn connect_info(Extension(Peer(peer)): Extension<Peer>, mut request: Request) -> Request {
///     request.extensions_mut().insert(ConnectInfo(peer));
///     request
/// }
///
/// let app: Router = Router::new()
///     .route("/", get(|ConnectInfo(peer): ConnectInfo<SocketAddr>| async move { peer.to_string() }))
///     .layer(map_request(connect_info));
/// let handler = tower_with_peer(app);
/// ```
pub fn tower_with_peer<S, B>(service: S) -> impl Handler<Future: Future<Output = Response>>
where
    S: Service<http::Request<TowerBody>, Response = http::Response<B>> + Clone + 'static,
    S::Error: std::fmt::Display,
    S::Future: 'static,
    B: Body + 'static,
    B::Data: 'static,
    B::Error: Into<Failure>,
{
    Bridge::handler(service, true)
}

/// The facts about a request's connection that a service gets.
#[derive(Clone, Default)]
struct ConnectionFacts {
    peer: Option<Peer>,
    tls: Option<Arc<TlsInfo>>,
    /// What handlers around the service have added.
    added: http::Extensions,
}

impl ConnectionFacts {
    fn put(self, extensions: &mut http::Extensions) {
        if !self.added.is_empty() {
            extensions.extend(self.added);
        }
        if let Some(peer) = self.peer {
            extensions.insert(peer);
        }
        if let Some(tls) = self.tls {
            extensions.insert(tls);
        }
    }
}

/// State that the requests of one thread share.
struct Bridge<S, F, B> {
    service: RefCell<S>,
    tells_peer: bool,
    last: RefCell<Translated>,
    /// Places for pending responses, and for their bodies. Most are ready at once and free their
    /// place.
    calls: Places<F>,
    bodies: Places<B>,
}

/// The head translated last. Clients repeat themselves, and the reader then returns the same head.
/// While it is held here, its memory cannot become another head.
struct Translated {
    head: Rc<RequestHead>,
    parts: http::request::Parts,
}

impl Translated {
    /// Translates a head that no reader returns.
    fn nothing() -> Translated {
        Translated { head: Rc::default(), parts: http::Request::new(()).into_parts().0 }
    }

    /// A request with this head. Inlined, because it is large and would be copied once more.
    #[inline(always)]
    fn request(&self, body: RequestBody, told: ConnectionFacts) -> http::Request<TowerBody> {
        let mut request = http::Request::from_parts(self.parts.clone(), TowerBody::new(body));
        told.put(request.extensions_mut());
        request
    }

    fn new(head: &Rc<RequestHead>) -> Result<Translated, http::Error> {
        let Translated { mut parts, .. } = Translated::nothing();
        parts.method = http::Method::from_bytes(head.method_name().as_bytes())?;
        parts.uri = head.target().parse()?;
        parts.version = match head.version() {
            Version::Http10 => http::Version::HTTP_10,
            Version::Http11 => http::Version::HTTP_11,
            Version::Http2 => http::Version::HTTP_2,
            Version::Http3 => http::Version::HTTP_3,
        };
        parts.headers.reserve(head.fields().len());
        for (name, value) in head.fields() {
            parts.headers.append(HeaderName::from_bytes(name.as_bytes())?, HeaderValue::from_bytes(value)?);
        }
        Ok(Translated { head: Rc::clone(head), parts })
    }
}

impl<S, B> Bridge<S, S::Future, B>
where
    S: Service<http::Request<TowerBody>, Response = http::Response<B>> + Clone + 'static,
    S::Error: std::fmt::Display,
    S::Future: 'static,
    B: Body + 'static,
    B::Data: 'static,
    B::Error: Into<Failure>,
{
    fn handler(service: S, tells_peer: bool) -> impl Handler<Future: Future<Output = Response>> {
        let bridge = Rc::new(Bridge {
            service: RefCell::new(service),
            tells_peer,
            last: RefCell::new(Translated::nothing()),
            calls: Places(RefCell::default()),
            bodies: Places(RefCell::default()),
        });
        move |request: Request| Answering { state: bridge.begin(request), bridge: Rc::clone(&bridge) }
    }

    fn told(&self, request: &mut Request) -> ConnectionFacts {
        let added = std::mem::take(request.extensions_mut());
        if !self.tells_peer {
            return ConnectionFacts { added, ..ConnectionFacts::default() };
        }
        ConnectionFacts { peer: request.peer().map(Peer), tls: request.tls().cloned(), added }
    }

    fn begin(&self, mut request: Request) -> TowerState<S, S::Future> {
        if request.offer().is_some() {
            let told = self.told(&mut request);
            let Some(offer) = request.offer() else {
                return TowerState::failed(500, &"the connection is gone");
            };
            let service = self.service.borrow().clone();
            let begun = as_http_1_1(request.head());
            let upgrade = TakenConnection {
                begun,
                told,
                draining: offer.draining.clone(),
                websocket: request
                    .field("upgrade")
                    .is_some_and(|to| to.trim().eq_ignore_ascii_case("websocket")),
            };
            return TowerState::HandedOver(Box::pin(hand_over(service, upgrade)));
        }
        let told = self.told(&mut request);
        let (head, body) = request.into_parts();
        let same = match self.translated(&head) {
            Ok(same) => same,
            Err(error) => return TowerState::failed(400, &error),
        };
        let mut service = self.service.borrow_mut();
        // A pending request is polled again at once, with its own waker.
        match service.poll_ready(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(Ok(())) => {
                let request = same.request(body, told);
                drop(same);
                TowerState::Called(self.calls.put(service.call(request)))
            }
            Poll::Ready(Err(error)) => TowerState::failed(500, &error),
            Poll::Pending => {
                // The instance that was polled has the place in the service's queue, so it serves
                // this request.
                let fresh = service.clone();
                let asked = std::mem::replace(&mut *service, fresh);
                TowerState::Unready(Box::new((asked, same.request(body, told))))
            }
        }
    }

    fn translated(&self, head: &Rc<RequestHead>) -> Result<RefMut<'_, Translated>, http::Error> {
        let mut last = self.last.borrow_mut();
        if !Rc::ptr_eq(&last.head, head) {
            *last = Translated::new(head)?;
        }
        Ok(last)
    }
}

/// A request in the service.
struct Answering<S, F, B> {
    bridge: Rc<Bridge<S, F, B>>,
    state: TowerState<S, F>,
}

/// The progress of a request. Rare states are boxed, to keep the others small.
enum TowerState<S, F> {
    /// The service is not ready for it.
    Unready(Box<(S, http::Request<TowerBody>)>),
    /// The service works on it.
    Called(Place<F>),
    /// It never reached the service, or everything was returned.
    Failed(Option<Box<Response>>),
    HandedOver(Pin<Box<dyn Future<Output = Response>>>),
}

impl<S, F> TowerState<S, F> {
    fn failed(status: u16, why: &dyn std::fmt::Display) -> TowerState<S, F> {
        TowerState::Failed(Some(Box::new(Response::explained(status, &why.to_string()))))
    }

    /// Takes the state and leaves nothing.
    fn take(&mut self) -> TowerState<S, F> {
        std::mem::replace(self, TowerState::Failed(None))
    }
}

impl<S, B> Future for Answering<S, S::Future, B>
where
    S: Service<http::Request<TowerBody>, Response = http::Response<B>>,
    S::Error: std::fmt::Display,
    B: Body + 'static,
    B::Error: Into<Failure>,
{
    type Output = Response;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Response> {
        let Answering { bridge, state } = self.get_mut();
        if let TowerState::Unready(waiting) = state {
            match ready!(waiting.0.poll_ready(context)) {
                Ok(()) => {}
                Err(error) => return Poll::Ready(Response::explained(500, &error.to_string())),
            }
            if let TowerState::Unready(waiting) = state.take() {
                let (mut service, request) = *waiting;
                *state = TowerState::Called(bridge.calls.put(service.call(request)));
            }
        }
        if let TowerState::Called(place) = state {
            let Some(call) = place.as_mut().as_pin_mut() else { return Poll::Pending };
            let answer = ready!(call.poll(context));
            if let TowerState::Called(place) = state.take() {
                bridge.calls.free(place);
            }
            let (parts, body) = match answer {
                Ok(answer) => answer.into_parts(),
                Err(error) => return Poll::Ready(Response::explained(500, &error.to_string())),
            };
            let answer = head_of(&parts);
            if body.is_end_stream() {
                return Poll::Ready(answer);
            }
            let mut body = Housed(bridge.bodies.put(body));
            // Most bodies are one piece that is ready: it leaves with its head. A head does not wait
            // for a body, because clients may: gRPC's of a stream both ways send nothing before.
            return Poll::Ready(match body.poll_frame(context) {
                Poll::Ready(first) => with_body(&bridge.bodies, answer, body, first),
                Poll::Pending => streamed(answer, body, None, None),
            });
        }
        match state {
            TowerState::Failed(answer) => answer.take().map_or(Poll::Pending, |answer| Poll::Ready(*answer)),
            TowerState::HandedOver(tunnel) => tunnel.as_mut().poll(context),
            TowerState::Unready(_) | TowerState::Called(_) => Poll::Pending,
        }
    }
}

/// A request whose connection is handed over.
struct TakenConnection {
    /// The bytes of its head.
    begun: Bytes,
    told: ConnectionFacts,
    draining: Draining,
    websocket: bool,
}

/// The bytes of a head for hyper's HTTP/1.1, whatever it came by.
fn as_http_1_1(head: &RequestHead) -> Bytes {
    let mut bytes = head.bytes().to_vec();
    let version = head.method_name().len() + 1 + head.target().len() + 1;
    if matches!(head.version(), Version::Http2 | Version::Http3) {
        bytes[version..version + 8].copy_from_slice(b"HTTP/1.1");
    }
    bytes.into()
}

/// Hands the connection over to hyper, whose `OnUpgrade` the service finds in the request. hyper
/// parses the request again, and closes the connection after a response that is not an upgrade.
async fn hand_over<S, B>(service: S, upgrade: TakenConnection) -> Response
where
    S: Service<http::Request<TowerBody>, Response = http::Response<B>> + Clone + 'static,
    S::Error: std::fmt::Display,
    S::Future: 'static,
    B: Body + 'static,
    B::Data: 'static,
    B::Error: Into<Failure>,
{
    let TakenConnection { begun, told, draining, websocket } = upgrade;
    let (draining, watched) = draining.of_connection();
    // Not cloned: a clone would count as taken by the handler.
    let draining = Cell::new(Some(draining));
    let service = service_fn(move |request: http::Request<Incoming>| {
        let mut service = service.clone();
        let (draining, told) = (draining.take(), told.clone());
        async move {
            let mut request = request.map(TowerBody::incoming);
            told.put(request.extensions_mut());
            if let Some(draining) = draining {
                request.extensions_mut().insert(draining);
            }
            let failed = |error: S::Error| io::Error::other(error.to_string());
            poll_fn(|context| service.poll_ready(context)).await.map_err(failed)?;
            let connects = request.method() == http::Method::CONNECT;
            let mut response = service.call(request).await.map_err(failed)?;
            let taken = response.status() == http::StatusCode::SWITCHING_PROTOCOLS
                || connects && response.status().is_success();
            if !taken {
                // The next request should get our own reader again.
                response.headers_mut().insert(header::CONNECTION, HeaderValue::from_static("close"));
            }
            Ok::<_, io::Error>(response)
        }
    });
    let incoming = Arc::default();
    let mut tunnel = TunnelBody::new(begun, &incoming, |io| {
        http1::Builder::new().serve_connection(io, service).with_upgrades()
    });
    let Some(first) = poll_fn(|context| tunnel.poll_first(context)).await else {
        return Response::explained(500, "the service gave no answer");
    };
    let status = first.get(9..12).and_then(|digits| std::str::from_utf8(digits).ok()?.parse().ok());
    if websocket && status == Some(101) {
        tunnel.close_on_drain(watched, websocket::WebSocketBytes::default());
    }
    let mut response = Response::status(200).with_stream(tunnel);
    response.status = status.unwrap_or(500);
    response.tunnel = Some(HandOver::new(incoming, false));
    response
}

/// Converts the head of a response.
fn head_of(parts: &http::response::Parts) -> Response {
    let mut answer = Response::status(parts.status.as_u16());
    answer.fields = fields();
    answer.route = parts.extensions.get().copied().unwrap_or_default();
    for (name, value) in &parts.headers {
        if name == header::CONTENT_LENGTH {
            // To HEAD, a service sends the length that the body would have; and it may know the
            // length of a body that does not.
            answer.announced = Announced::new(value.to_str().ok().and_then(|v| v.parse().ok()));
        } else if name == header::CONNECTION {
            answer.close |= value.as_bytes().eq_ignore_ascii_case(b"close");
        } else {
            // The server itself sets framing and date, so those are refused.
            let _ = answer.fields.add_token(name.as_str(), value.as_bytes());
        }
    }
    answer
}

/// A response with its body, whose first frame is ready: complete if that was all, otherwise
/// streamed.
fn with_body<B>(places: &Places<B>, mut answer: Response, body: Housed<B>, first: Framed<B>) -> Response
where
    B: Body + 'static,
    B::Error: Into<Failure>,
{
    let first = match first {
        None => return answer,
        Some(Ok(frame)) => frame,
        Some(Err(_)) => return Response::status(500).closing(),
    };
    match first.into_data() {
        Ok(data) if body.is_over() => {
            answer.body = ResponseBody::Whole(to_bytes(data));
            places.free(body.0);
        }
        first => {
            let (first, trailers) = match first {
                Ok(data) => (Some(to_bytes(data)), None),
                Err(frame) => (None, frame.into_trailers().ok()),
            };
            return streamed(answer, body, first, trailers);
        }
    }
    answer
}

/// A response whose body comes by and by, behind what there is of it.
fn streamed<B>(
    mut answer: Response,
    body: Housed<B>,
    first: Option<Bytes>,
    trailers: Option<http::HeaderMap>,
) -> Response
where
    B: Body + 'static,
    B::Error: Into<Failure>,
{
    let length = body.length().map(|n| n + first.as_ref().map_or(0, |b| b.len() as u64));
    let length = length.or(answer.announced.get());
    answer.body = ResponseBody::Stream(Streamed::new(FromBody { body, first, trailers, length }));
    answer
}

/// The body of a request, as services receive it.
#[derive(Debug)]
pub struct TowerBody(TowerSource);

#[derive(Debug)]
enum TowerSource {
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
        TowerBody(TowerSource::Ours { body, trailers })
    }

    fn incoming(body: Incoming) -> TowerBody {
        TowerBody(TowerSource::Hyper(body))
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
            TowerSource::Ours { body, trailers } => (body, trailers),
            TowerSource::Hyper(body) => {
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
            TowerSource::Ours { body, trailers } => body.is_empty() && trailers.is_none(),
            TowerSource::Hyper(body) => body.is_end_stream(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match &self.0 {
            TowerSource::Ours { body, .. } => {
                body.known_length().map_or_else(SizeHint::default, SizeHint::with_exact)
            }
            TowerSource::Hyper(body) => body.size_hint(),
        }
    }
}
