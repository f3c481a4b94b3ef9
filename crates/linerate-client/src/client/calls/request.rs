//! Requests: whether they can be sent, and their bytes.

use std::borrow::Cow;
use std::io::Write as _;
use std::ops::Range;
use std::sync::Arc;

use bytes::Bytes;
use http::header::{
    CONNECTION, CONTENT_LENGTH, EXPECT, HOST, HeaderName, PROXY_AUTHORIZATION, TE, TRANSFER_ENCODING, UPGRADE,
};
use http::uri::Authority;
use http::{HeaderMap, HeaderValue, Method, Request, Uri};
use linerate_http::client::{Expect, StreamFieldCoding};
use linerate_net::{Conn, Lent, NetError, Transport};

use super::table::{CallTable, OpenCall};
use crate::Run;
use crate::client::error::Error;
use crate::client::limits::{LARGEST_REQUEST_BODY, LARGEST_REQUEST_HEAD, SHARED_BODY, UNSENT_MARK};
use crate::client::options::CallOptions;
use crate::client::proxy::ClientProxy;
use crate::conversation::{BodyPart, Out, Requests};

/// The properties of a request that decide where and when it is sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Nature {
    /// How its response is framed.
    pub(super) expect: Expect,
    /// It may be sent again (RFC 9110 section 9.2.2).
    pub(super) idempotent: bool,
    /// Nothing else may be in flight beside it: it is not idempotent (RFC 9112 section 9.3.2), or it changes what
    /// follows on its connection.
    pub(super) alone: bool,
}

impl Nature {
    /// `tagged`: responses name their requests.
    pub(super) fn of(request: &Request<Bytes>, tagged: bool) -> Nature {
        let method = request.method();
        let idempotent =
            matches!(*method, Method::GET | Method::HEAD | Method::OPTIONS | Method::TRACE | Method::PUT)
                || *method == Method::DELETE;
        let expect = if *method == Method::HEAD { Expect::Head } else { Expect::Usual };
        let fields = request.headers();
        let special =
            !fields.is_empty() && [EXPECT, UPGRADE, CONNECTION].iter().any(|f| fields.contains_key(f));
        // A server that mixes responses up would make the fields of one describe the body of another.
        let unframed = tagged && expect == Expect::Head;
        Nature { expect, idempotent, alone: !idempotent || special || unframed }
    }
}

/// Whether a request can be sent to the server of these options.
///
/// # Errors
/// It cannot, and what would be right.
pub(super) fn check(request: &Request<Bytes>, options: &CallOptions) -> Result<(), Error> {
    let problem = |what: String| Err(Error::Request(what.into()));
    if request.method() == Method::CONNECT {
        return problem("CONNECT opens a tunnel, and the client has none".to_owned());
    }
    let (uri, scheme) = (request.uri(), if options.secure { "https" } else { "http" });
    let is_foreign = uri.scheme_str().is_some_and(|named| !named.eq_ignore_ascii_case(scheme));
    if let Some(authority) = uri.authority()
        && (is_foreign || !is_same_server(authority, options))
    {
        let named = uri.scheme_str().map_or(String::new(), |scheme| format!("{scheme}://"));
        let host = String::from_utf8_lossy(options.host.as_bytes());
        let hint = "hint: Hosts calls several servers";
        let client = format!("the client is for {scheme}://{host}");
        return problem(format!("its URI names {named}{authority}, and {client}\n{hint}"));
    }
    let (fields, len) = (request.headers(), request.body().len());
    if !fields.is_empty() {
        check_fields(fields, len, options.tag.as_ref())?;
    }
    if len > LARGEST_REQUEST_BODY {
        return problem(format!("its body has {len} bytes, and {LARGEST_REQUEST_BODY} are the limit"));
    }
    let head: usize = fields.iter().map(|(name, value)| name.as_str().len() + value.len() + 4).sum();
    let head = head + target(request.uri()).len();
    if head > LARGEST_REQUEST_HEAD {
        return problem(format!("its head has {head} bytes, and {LARGEST_REQUEST_HEAD} are the limit"));
    }
    Ok(())
}

/// The same host and port; a port that is left out is the scheme's (RFC 9110 section 4.2.3).
fn is_same_server(authority: &Authority, options: &CallOptions) -> bool {
    if authority.as_str().as_bytes().eq_ignore_ascii_case(options.host.as_bytes()) {
        return true;
    }
    let Ok(ours) = Authority::try_from(options.host.as_bytes()) else { return false };
    let port = |authority: &Authority| authority.port_u16().unwrap_or(if options.secure { 443 } else { 80 });
    let has_user = authority.as_str().contains('@');
    !has_user && authority.host().eq_ignore_ascii_case(ours.host()) && port(authority) == port(&ours)
}

fn check_fields(fields: &HeaderMap, len: usize, tag: Option<&HeaderName>) -> Result<(), Error> {
    let problem = |what: &str| Err(Error::Request(what.into()));
    // The client frames the body itself (RFC 9112 section 6.1).
    if fields.contains_key(TRANSFER_ENCODING) || fields.contains_key(TE) {
        return problem("the client frames the body\nhint: leave Transfer-Encoding and TE out");
    }
    let announced = fields.get(CONTENT_LENGTH).map(HeaderValue::as_bytes);
    if announced.is_some_and(|value| value != len.to_string().as_bytes()) {
        return problem("Content-Length differs from the body's length\nhint: leave it out");
    }
    if fields.get_all(HOST).iter().count() > 1 {
        return problem("Host is there twice (RFC 9112 section 3.2)");
    }
    if let Some(tag) = tag.filter(|tag| fields.contains_key(*tag)) {
        return problem(&format!("the client itself sets {tag}, its tag\nhint: leave the field out"));
    }
    Ok(())
}

/// The path is never empty (RFC 9112 section 3.2.1, RFC 9113 section 8.3.1).
fn target(uri: &Uri) -> Cow<'_, str> {
    match uri.path_and_query().map_or("", |path| path.as_str()) {
        "" => Cow::Borrowed("/"),
        query if query.starts_with('?') => Cow::Owned(format!("/{query}")),
        path => Cow::Borrowed(path),
    }
}

/// A piece of what leaves on a connection.
#[derive(Debug)]
enum OutgoingPiece {
    /// Bytes of the buffer up to here.
    Upto(usize),
    /// A body, from where it is.
    Body(Bytes),
}

/// Requests that leave together on one connection.
#[derive(Debug, Default)]
pub(super) struct OutgoingRequests {
    buffer: Vec<u8>,
    pieces: Vec<OutgoingPiece>,
    len: usize,
    unsent: usize,
}

/// Frames of HTTP/2 collect in it as requests of HTTP/1.1 do.
impl Out for OutgoingRequests {
    fn send(&mut self, bytes: &[u8]) -> Result<(), NetError> {
        self.buffer.extend_from_slice(bytes);
        self.len += bytes.len();
        Ok(())
    }

    fn send_shared(
        &mut self,
        bytes: &Arc<[u8]>,
        _: Option<Lent>,
        range: Range<usize>,
    ) -> Result<(), NetError> {
        self.send(&bytes[range])
    }

    fn send_counted(&mut self, bytes: Bytes) -> Result<(), NetError> {
        self.len += bytes.len();
        self.body(&bytes);
        Ok(())
    }

    fn is_full(&self) -> bool {
        self.unsent + self.len >= UNSENT_MARK
    }
}

impl OutgoingRequests {
    /// Bytes in it.
    pub(super) fn len(&self) -> usize {
        self.len
    }

    /// Bytes that wait in the transport besides.
    pub(super) fn beside(&mut self, unsent: usize) -> &mut OutgoingRequests {
        self.unsent = unsent;
        self
    }

    /// Hands all of it over.
    ///
    /// # Errors
    /// The connection is lost.
    pub(super) fn hand_over<T: Transport>(&mut self, conn: Conn, transport: &mut T) -> Result<(), NetError> {
        let (mut from, mut sent) = (0, Ok(()));
        self.pieces.push(OutgoingPiece::Upto(self.buffer.len()));
        for piece in self.pieces.drain(..) {
            if sent.is_err() {
                break;
            }
            sent = match piece {
                OutgoingPiece::Upto(to) if to == from => Ok(()),
                OutgoingPiece::Upto(to) => {
                    transport.send(conn, &self.buffer[std::mem::replace(&mut from, to)..to])
                }
                OutgoingPiece::Body(body) => transport.send_shared(conn, body),
            };
        }
        self.buffer.clear();
        self.len = 0;
        sent
    }

    /// A piece of a streamed body, as a chunk (RFC 9112 section 7.1) unless its length was announced.
    pub(super) fn piece(&mut self, piece: &Bytes, chunked: bool) {
        let before = self.buffer.len();
        if chunked {
            let _ = write!(self.buffer, "{:x}\r\n", piece.len());
        }
        self.len += self.buffer.len() - before + piece.len();
        self.body(piece);
        if chunked {
            self.buffer.extend_from_slice(b"\r\n");
            self.len += 2;
        }
    }

    /// The end of a body in chunks.
    pub(super) fn last_chunk(&mut self) {
        self.buffer.extend_from_slice(b"0\r\n\r\n");
        self.len += 5;
    }

    fn field(&mut self, name: &[u8], value: &[u8]) {
        self.buffer.extend_from_slice(name);
        self.buffer.extend_from_slice(b": ");
        self.buffer.extend_from_slice(value);
        self.buffer.extend_from_slice(b"\r\n");
    }

    fn body(&mut self, body: &Bytes) {
        if body.len() < SHARED_BODY {
            self.buffer.extend_from_slice(body);
        } else {
            self.pieces.push(OutgoingPiece::Upto(self.buffer.len()));
            self.pieces.push(OutgoingPiece::Body(body.clone()));
        }
    }
}

/// Writes the requests of calls.
pub(super) struct Writing<'a> {
    pub(super) calls: &'a CallTable,
    pub(super) host: &'a HeaderValue,
    pub(super) tag: Option<&'a HeaderName>,
    pub(super) secure: bool,
    /// How fields are encoded on streams.
    pub(super) coding: StreamFieldCoding,
    /// The proxy that requests are written for.
    pub(super) forwarder: Option<&'a ClientProxy>,
    pub(super) out: &'a mut OutgoingRequests,
}

impl<'a> Writing<'a> {
    pub(super) fn new(
        calls: &'a CallTable,
        options: &'a CallOptions,
        coding: StreamFieldCoding,
        out: &'a mut OutgoingRequests,
    ) -> Writing<'a> {
        let CallOptions { host, tag, secure, proxy, .. } = options;
        let forwarder = proxy.as_ref().filter(|proxy| proxy.forwards());
        Writing { calls, host, tag: tag.as_ref(), secure: *secure, coding, forwarder, out }
    }
}

impl Requests for Writing<'_> {
    /// Into the buffer of all that leaves on the connection in this turn, so that it leaves in one system call.
    fn write_h1(&mut self, run: &Run, _closing: bool, _out: &mut impl Out) -> Result<u64, NetError> {
        let mut bytes = 0;
        for id in run.first..run.end() {
            if let Some(call) = self.calls.get(id) {
                bytes += self.write(id, call);
            }
        }
        Ok(bytes)
    }

    fn write_h2(&mut self, run: &Run, block: &mut Vec<u8>, mut body: impl FnMut(BodyPart<'_>)) {
        let Some(call) = self.calls.get(run.first) else { return };
        self.write_block(run.first, call, block);
        if call.upload().is_some() {
            body(BodyPart::Follows);
        }
        if !call.request.body().is_empty() {
            body(BodyPart::Counted(call.request.body()));
        }
    }
}

/// Fields about one connection, which have no place in HTTP/2 and HTTP/3 (RFC 9113 section 8.2.2, RFC 9114 section 4.2).
const ABOUT_CONNECTION: [&str; 5] =
    ["connection", "keep-alive", "proxy-connection", "transfer-encoding", "upgrade"];

impl Writing<'_> {
    /// RFC 9113 section 8.3.1, RFC 9114 section 4.3.1.
    fn write_block(&self, id: u64, call: &OpenCall, block: &mut Vec<u8>) {
        let request = &call.request;
        let (fields, body) = (request.headers(), request.body());
        let own_host = fields.get(HOST).unwrap_or(self.host);
        self.coding.begin(block);
        self.coding.put(b":method", request.method().as_str().as_bytes(), block);
        self.coding.put(b":scheme", if self.secure { b"https" } else { b"http" }, block);
        self.coding.put(b":authority", own_host.as_bytes(), block);
        self.coding.put(b":path", target(request.uri()).as_bytes(), block);
        let connection = fields.get(CONNECTION).and_then(|value| value.to_str().ok()).unwrap_or("");
        let is_named = |name: &str| connection.split(',').any(|o| o.trim().eq_ignore_ascii_case(name));
        for (name, value) in fields {
            let is_own = *name == HOST || *name == CONTENT_LENGTH;
            if !is_own && !ABOUT_CONNECTION.contains(&name.as_str()) && !is_named(name.as_str()) {
                self.coding.put(name.as_str().as_bytes(), value.as_bytes(), block);
            }
        }
        let mut digits = [0; 20];
        if let Some(tag) = self.tag {
            self.coding.put(tag.as_str().as_bytes(), decimal(id, &mut digits), block);
        }
        match call.upload() {
            Some(Some(length)) => self.coding.put(b"content-length", decimal(length, &mut digits), block),
            Some(None) => {}
            None if !announces_length(request.method(), body) => {}
            None => self.coding.put(b"content-length", decimal(body.len() as u64, &mut digits), block),
        }
    }

    fn write(&mut self, id: u64, call: &OpenCall) -> u64 {
        let request = &call.request;
        let out = &mut *self.out;
        let (start, fields, body) = (out.buffer.len(), request.headers(), request.body());
        out.buffer.extend_from_slice(request.method().as_str().as_bytes());
        out.buffer.push(b' ');
        let target = target(request.uri());
        if self.forwarder.is_some() {
            out.buffer.extend_from_slice(b"http://");
            out.buffer.extend_from_slice(self.host.as_bytes());
        }
        // Through a proxy, `OPTIONS *` has no path (RFC 9112 section 3.2.4).
        if self.forwarder.is_none() || target != "*" {
            out.buffer.extend_from_slice(target.as_bytes());
        }
        out.buffer.extend_from_slice(b" HTTP/1.1\r\n");
        let own_host = if fields.is_empty() { None } else { fields.get(HOST) };
        out.field(b"host", own_host.unwrap_or(self.host).as_bytes());
        for (name, value) in fields.iter().filter(|(name, _)| *name != HOST && *name != CONTENT_LENGTH) {
            out.field(name.as_str().as_bytes(), value.as_bytes());
        }
        if let Some(value) = self.forwarder.and_then(ClientProxy::authorization)
            && !fields.contains_key(PROXY_AUTHORIZATION)
        {
            out.field(b"proxy-authorization", value.as_bytes());
        }
        let mut digits = [0; 20];
        if let Some(tag) = self.tag {
            out.field(tag.as_str().as_bytes(), decimal(id, &mut digits));
        }
        match call.upload() {
            Some(Some(length)) => out.field(b"content-length", decimal(length, &mut digits)),
            Some(None) => out.field(b"transfer-encoding", b"chunked"),
            None if !announces_length(request.method(), body) => {}
            None => out.field(b"content-length", decimal(body.len() as u64, &mut digits)),
        }
        out.buffer.extend_from_slice(b"\r\n");
        let head = out.buffer.len() - start;
        out.body(body);
        out.len += head + body.len();
        (head + body.len()) as u64
    }
}

/// Where the method gives a body a meaning, an empty one is announced (RFC 9110 section 8.6).
fn announces_length(method: &Method, body: &Bytes) -> bool {
    !body.is_empty() || matches!(*method, Method::POST | Method::PUT | Method::PATCH)
}

fn decimal(mut number: u64, digits: &mut [u8; 20]) -> &[u8] {
    let mut at = digits.len();
    loop {
        at -= 1;
        digits[at] = b'0' + (number % 10) as u8;
        number /= 10;
        if number == 0 {
            return &digits[at..];
        }
    }
}
