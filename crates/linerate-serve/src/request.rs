//! A request, as a handler gets it.

use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::Arc;

use linerate_http::server::{Method, RequestHead};
use linerate_tls::TlsInfo;

use crate::Address;
use crate::body::RequestBody;
use crate::upgrade::{Offer, Upgrade};

/// A request: its head, its body, who sent it.
#[derive(Debug)]
pub struct Request {
    head: Rc<RequestHead>,
    body: RequestBody,
    peer: SocketAddr,
    listener: Option<Address>,
    tls: Option<Arc<TlsInfo>>,
    /// Asks to go on with another protocol, and the connection can be handed over.
    offer: Option<Box<Offer>>,
}

impl Request {
    pub(crate) fn new(head: Rc<RequestHead>, body: RequestBody, peer: SocketAddr) -> Request {
        Request { head, body, peer, listener: None, tls: None, offer: None }
    }

    /// It came by this address.
    pub(crate) fn by(self, listener: Option<Address>) -> Request {
        Request { listener, ..self }
    }

    /// It came over TLS.
    pub(crate) fn over_tls(self, tls: Option<Arc<TlsInfo>>) -> Request {
        Request { tls, ..self }
    }

    /// Its connection can be handed over.
    pub(crate) fn offering(self, offer: Option<Box<Offer>>) -> Request {
        Request { offer, ..self }
    }

    /// Whether it asks to go on with another protocol, and the connection can be handed over.
    pub(crate) fn offer(&self) -> Option<&Offer> {
        self.offer.as_deref()
    }

    /// The right to take the connection over: CONNECT asks for that (RFC 9110 section 9.3.6), and so does a request with
    /// `Connection: upgrade` (section 7.8) that has no body. There is one of it; a handler that does not
    /// [accept](Upgrade::accept) it answers as it answers other requests.
    pub fn upgrade(&mut self) -> Option<Upgrade> {
        Upgrade::of(&self.head, *self.offer.take()?)
    }

    /// The head, with all its fields.
    pub fn head(&self) -> &RequestHead {
        &self.head
    }

    /// The head as it is shared with the reader that found it, the body, and who sent it.
    pub(crate) fn into_parts(self) -> (Rc<RequestHead>, RequestBody, SocketAddr) {
        (self.head, self.body, self.peer)
    }

    /// The method.
    pub fn method(&self) -> Method {
        self.head.method()
    }

    /// The path, percent-encoded, without the query.
    pub fn path(&self) -> &str {
        self.head.path()
    }

    /// The query.
    pub fn query(&self) -> Option<&str> {
        self.head.query()
    }

    /// The first field of that name, when it is text.
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

    /// The client's address. None by a Unix socket, whose clients have none.
    pub fn peer(&self) -> Option<SocketAddr> {
        (!self.peer.ip().is_unspecified()).then_some(self.peer)
    }

    /// What TLS's handshake came to, with the client's certificate if one was asked for. None: it came over plain HTTP.
    pub fn tls(&self) -> Option<&Arc<TlsInfo>> {
        self.tls.as_ref()
    }

    /// The address by which it came, as it is listened on: `0.0.0.0:80` stands for all that the machine has. None where the
    /// server listens by other means than [`Server::listen`](crate::Server::listen).
    pub fn listener(&self) -> Option<&Address> {
        self.listener.as_ref()
    }
}
