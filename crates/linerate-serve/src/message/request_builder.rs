//! Builds requests for tests.

use std::net::{Ipv4Addr, SocketAddr};
use std::rc::Rc;
use std::sync::Arc;

use bytes::Bytes;
use linerate_http::server::{HeadReader, RequestFault, RequestLimits};
use linerate_tls::TlsInfo;

use crate::message::body::{RequestBody, SharedUpload};
use crate::message::upgrade::{self, Offer};
use crate::{Address, Draining, Request};

/// Why a request cannot be built.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BadRequest {
    /// A server would refuse it from a client.
    #[error("a server refuses this request with {}: {}", .0.status(), .0)]
    Refused(RequestFault),
    /// A part of the head contains a line end or another control character.
    #[error("there is a control character in {0:?}")]
    Control(String),
}

/// Builds a [`Request`] as a client would send it.
#[derive(Debug)]
#[must_use = "it makes a request when it is built"]
pub struct RequestBuilder {
    line: String,
    fields: Vec<(String, Vec<u8>)>,
    body: Vec<Bytes>,
    is_chunked: bool,
    behind: Vec<Bytes>,
    peer: SocketAddr,
    listener: Option<Address>,
    tls: Option<Arc<TlsInfo>>,
}

impl Request {
    /// Begins a request for a test of a handler, from `127.0.0.1`. It is parsed like one from a
    /// client: requests that a server would refuse cannot be built.
    pub fn builder(method: &str, target: &str) -> RequestBuilder {
        RequestBuilder {
            line: format!("{method} {target} HTTP/1.1"),
            fields: Vec::new(),
            body: Vec::new(),
            is_chunked: false,
            behind: Vec::new(),
            peer: (Ipv4Addr::LOCALHOST, 49152).into(),
            listener: None,
            tls: None,
        }
    }
}

impl RequestBuilder {
    /// Adds a field. `Host` is `localhost` by default; `Content-Length` and `Transfer-Encoding`
    /// follow from the body.
    pub fn field(mut self, name: &str, value: impl AsRef<[u8]>) -> Self {
        self.fields.push((name.to_owned(), value.as_ref().to_vec()));
        self
    }

    /// Sets a body of known length.
    pub fn body(mut self, body: impl Into<Bytes>) -> Self {
        self.body = vec![body.into()];
        self.is_chunked = false;
        self
    }

    /// Sets a body that arrives in these pieces, with unknown length.
    pub fn body_in_pieces(mut self, pieces: impl IntoIterator<Item = impl Into<Bytes>>) -> Self {
        self.body = pieces.into_iter().map(Into::into).collect();
        self.is_chunked = true;
        self
    }

    /// Sets what the client sends once its connection is a tunnel: after the head of a CONNECT or
    /// of an upgrade request. The bytes that the handler writes into the [`Tunnel`](crate::Tunnel)
    /// are then the body of its response.
    pub fn tunnelled(mut self, pieces: impl IntoIterator<Item = impl Into<Bytes>>) -> Self {
        self.behind = pieces.into_iter().map(Into::into).collect();
        self
    }

    /// Sets the client's address.
    pub fn peer(mut self, peer: SocketAddr) -> Self {
        self.peer = peer;
        self
    }

    /// Sets the server's address.
    pub fn listener(mut self, listener: Address) -> Self {
        if listener.tcp().is_none() {
            // Clients of a Unix socket have no address.
            self.peer = (Ipv4Addr::UNSPECIFIED, 0).into();
        }
        self.listener = Some(listener);
        self
    }

    /// Sends it over TLS, after this handshake.
    pub fn tls(mut self, info: TlsInfo) -> Self {
        self.tls = Some(Arc::new(info));
        self
    }

    /// Builds the request.
    ///
    /// # Errors
    /// [`BadRequest`] if a server would refuse it.
    pub fn build(mut self) -> Result<Request, BadRequest> {
        if !self.fields.iter().any(|(name, _)| name.eq_ignore_ascii_case("host")) {
            self.fields.push(("host".to_owned(), b"localhost".to_vec()));
        }
        let length: usize = self.body.iter().map(Bytes::len).sum();
        if self.is_chunked {
            self.fields.push(("transfer-encoding".to_owned(), b"chunked".to_vec()));
        } else if length > 0 {
            self.fields.push(("content-length".to_owned(), length.to_string().into_bytes()));
        }
        let mut head = plain(self.line.as_bytes())?.to_vec();
        for (name, value) in &self.fields {
            head.extend_from_slice(b"\r\n");
            head.extend_from_slice(plain(name.as_bytes())?);
            head.extend_from_slice(b": ");
            head.extend_from_slice(plain(value)?);
        }
        head.extend_from_slice(b"\r\n\r\n");
        let read = HeadReader::new(RequestLimits::default()).read(&head, 0).map_err(BadRequest::Refused)?;
        // A head that ends is either complete or refused.
        let (head, _) = read.ok_or(BadRequest::Control(self.line))?;
        let body = if self.is_chunked {
            RequestBody::stream(&arrived(self.body), None)
        } else {
            RequestBody::whole(self.body.concat().into())
        };
        let offer = upgrade::is_offered(&head)
            .then(|| Box::new(Offer { draining: Draining::default(), incoming: arrived(self.behind) }));
        Ok(Request::new(head, body, self.peer)
            .by(self.listener.map(Rc::new))
            .over_tls(self.tls)
            .offering(offer))
    }
}

fn plain(bytes: &[u8]) -> Result<&[u8], BadRequest> {
    match bytes.iter().any(|b| matches!(b, b'\r' | b'\n' | 0)) {
        true => Err(BadRequest::Control(String::from_utf8_lossy(bytes).into_owned())),
        false => Ok(bytes),
    }
}

/// A body whose pieces have all arrived.
fn arrived(pieces: Vec<Bytes>) -> Arc<SharedUpload> {
    let shared = Arc::new(SharedUpload::default());
    pieces.into_iter().for_each(|piece| shared.push(piece));
    shared.end(Ok(()), Vec::new());
    shared
}
