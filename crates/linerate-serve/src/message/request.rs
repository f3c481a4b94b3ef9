//! A request as a handler receives it.

use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::Arc;

use http::Method;
use linerate_http::server::RequestHead;
use linerate_tls::TlsInfo;

use crate::Address;
use crate::message::body::RequestBody;
use crate::message::upgrade::{Offer, Upgrade};

/// A request: its head, its body, and its client.
///
/// ```
/// use linerate_serve::{Method, Request, Response, testing};
///
/// async fn upper(mut request: Request) -> Response {
///     if request.method() != Method::POST {
///         return Response::status(405);
///     }
///     match request.body().collect(64 << 10).await {
///         Ok(body) => Response::text(body.to_ascii_uppercase()),
///         Err(error) => error.into(),
///     }
/// }
///
/// let mut response = testing::call(&upper, Request::builder("POST", "/").body("abc").build()?);
/// assert_eq!(testing::body(&mut response)?, "ABC");
/// # Ok::<(), Box<dyn std::error::Error + Send + Sync>>(())
/// ```
#[derive(Debug)]
pub struct Request {
    head: Rc<RequestHead>,
    body: RequestBody,
    peer: SocketAddr,
    /// Shared, because every request of a connection carries it.
    listener: Option<Rc<Address>>,
    tls: Option<Arc<TlsInfo>>,
    /// It asks for another protocol, and the connection can be handed over.
    offer: Option<Box<Offer>>,
    extensions: http::Extensions,
}

impl Request {
    pub(crate) fn new(head: Rc<RequestHead>, body: RequestBody, peer: SocketAddr) -> Request {
        let extensions = http::Extensions::new();
        Request { head, body, peer, listener: None, tls: None, offer: None, extensions }
    }

    /// Sets the address that accepted it.
    pub(crate) fn by(self, listener: Option<Rc<Address>>) -> Request {
        Request { listener, ..self }
    }

    /// Sets its TLS connection.
    pub(crate) fn over_tls(self, tls: Option<Arc<TlsInfo>>) -> Request {
        Request { tls, ..self }
    }

    /// Makes its connection available for a takeover.
    pub(crate) fn offering(self, offer: Option<Box<Offer>>) -> Request {
        Request { offer, ..self }
    }

    /// Whether it asks for another protocol and the connection can be handed over.
    pub(crate) fn offer(&self) -> Option<&Offer> {
        self.offer.as_deref()
    }

    /// The right to take over the connection. CONNECT asks for that (RFC 9110 section 9.3.6), and
    /// so does a request without a body that has `Connection: upgrade` (section 7.8). Only the
    /// first call returns it. A handler that does not [accept](Upgrade::accept) it responds as to
    /// other requests.
    pub fn upgrade(&mut self) -> Option<Upgrade> {
        Upgrade::of(&self.head, *self.offer.take()?)
    }

    /// The head, with all its fields.
    pub fn head(&self) -> &RequestHead {
        &self.head
    }

    /// The head as shared with its reader, and the body.
    pub(crate) fn into_parts(self) -> (Rc<RequestHead>, RequestBody) {
        (self.head, self.body)
    }

    /// The method.
    pub fn method(&self) -> Method {
        use linerate_http::server::Method as Known;
        match self.head.method() {
            Known::Get => Method::GET,
            Known::Head => Method::HEAD,
            Known::Post => Method::POST,
            Known::Put => Method::PUT,
            Known::Delete => Method::DELETE,
            Known::Connect => Method::CONNECT,
            Known::Options => Method::OPTIONS,
            Known::Trace => Method::TRACE,
            Known::Patch => Method::PATCH,
            // The reader takes tokens alone, as this does.
            Known::Other => {
                Method::from_bytes(self.head.method_name().as_bytes()).expect("a method is a token")
            }
        }
    }

    /// What middleware has added to the request. A tower service finds it among its extensions (axum:
    /// `Extension<T>`).
    pub fn extensions(&self) -> &http::Extensions {
        &self.extensions
    }

    /// The same, to add to.
    pub fn extensions_mut(&mut self) -> &mut http::Extensions {
        &mut self.extensions
    }

    /// The path, percent-encoded, without the query.
    pub fn path(&self) -> &str {
        self.head.path()
    }

    /// The query.
    pub fn query(&self) -> Option<&str> {
        self.head.query()
    }

    /// The first field of that name, if it is text.
    pub fn field(&self, name: &str) -> Option<&str> {
        self.head.field_text(name)
    }

    /// The body.
    pub fn body(&mut self) -> &mut RequestBody {
        &mut self.body
    }

    /// Takes the body out.
    pub fn into_body(self) -> RequestBody {
        self.body
    }

    /// The client's address; `None` for a Unix socket.
    pub fn peer(&self) -> Option<SocketAddr> {
        (!self.peer.ip().is_unspecified()).then_some(self.peer)
    }

    /// The result of the TLS handshake, with the client's certificate if one was requested. `None`
    /// for plain HTTP.
    pub fn tls(&self) -> Option<&Arc<TlsInfo>> {
        self.tls.as_ref()
    }

    /// The address that accepted it, as listened on: `0.0.0.0:80` stands for all addresses of the
    /// machine. `None` if the server listens by other means than
    /// [`Server::listen`](crate::Server::listen).
    pub fn listener(&self) -> Option<&Address> {
        self.listener.as_deref()
    }
}
