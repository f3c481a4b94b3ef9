//! Requests: whether they can be sent, and their bytes.

use bytes::Bytes;
use http::header::{CONNECTION, CONTENT_LENGTH, EXPECT, HOST, HeaderName, TE, TRANSFER_ENCODING, UPGRADE};
use http::{HeaderMap, HeaderValue, Method, Request, Uri};
use linerate_http::client::Expect;
use linerate_net::{Conn, NetError, Transport};

use super::super::error::Error;
use super::super::limits::{LARGEST_REQUEST_BODY, LARGEST_REQUEST_HEAD, SHARED_BODY};
use super::CallTable;
use crate::Run;
use crate::conversation::{Out, Requests};

/// What of a request decides where and when it is sent.
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

/// Whether a request can be sent to the server with this Host.
///
/// # Errors
/// It cannot, and what would be right.
pub(in crate::client) fn check(
    request: &Request<Bytes>,
    host: &HeaderValue,
    tag: Option<&HeaderName>,
) -> Result<(), Error> {
    let problem = |what: String| Err(Error::Request(what));
    if request.method() == Method::CONNECT {
        return problem("CONNECT opens a tunnel, and the client has none".to_owned());
    }
    if let Some(authority) = request.uri().authority()
        && !authority.as_str().as_bytes().eq_ignore_ascii_case(host.as_bytes())
    {
        let host = String::from_utf8_lossy(host.as_bytes());
        let hint = "hint: make a client for each server";
        return problem(format!("its URI names {authority}, and the client is for {host}\n{hint}"));
    }
    let (fields, len) = (request.headers(), request.body().len());
    if !fields.is_empty() {
        check_fields(fields, len, tag)?;
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

fn check_fields(fields: &HeaderMap, len: usize, tag: Option<&HeaderName>) -> Result<(), Error> {
    let problem = |what: &str| Err(Error::Request(what.to_owned()));
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

fn target(uri: &Uri) -> &str {
    uri.path_and_query().map_or("/", |path| if path.as_str().is_empty() { "/" } else { path.as_str() })
}

/// A piece of what leaves on a connection.
#[derive(Debug)]
enum Piece {
    /// Bytes of the buffer up to here.
    Upto(usize),
    /// A body, from where it is.
    Body(Bytes),
}

/// Requests that leave together on one connection.
#[derive(Debug, Default)]
pub(super) struct Outgoing {
    buffer: Vec<u8>,
    pieces: Vec<Piece>,
    len: usize,
}

impl Outgoing {
    /// Bytes in it.
    pub(super) fn len(&self) -> usize {
        self.len
    }

    /// Hands all of it over.
    ///
    /// # Errors
    /// The connection is lost.
    pub(super) fn send<T: Transport>(&mut self, conn: Conn, transport: &mut T) -> Result<(), NetError> {
        let (mut from, mut sent) = (0, Ok(()));
        self.pieces.push(Piece::Upto(self.buffer.len()));
        for piece in self.pieces.drain(..) {
            if sent.is_err() {
                break;
            }
            sent = match piece {
                Piece::Upto(to) if to == from => Ok(()),
                Piece::Upto(to) => transport.send(conn, &self.buffer[std::mem::replace(&mut from, to)..to]),
                Piece::Body(body) => transport.send_shared(conn, body),
            };
        }
        self.buffer.clear();
        self.len = 0;
        sent
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
            self.pieces.push(Piece::Upto(self.buffer.len()));
            self.pieces.push(Piece::Body(body.clone()));
        }
    }
}

/// Writes the requests of calls.
pub(super) struct Writing<'a> {
    pub(super) calls: &'a CallTable,
    pub(super) host: &'a HeaderValue,
    pub(super) tag: Option<&'a HeaderName>,
    pub(super) out: &'a mut Outgoing,
}

impl Requests for Writing<'_> {
    /// Into the buffer of all that leaves on the connection in this turn, so that it leaves in one system call.
    fn write_h1(&mut self, run: &Run, _closing: bool, _out: &mut impl Out) -> Result<u64, NetError> {
        let mut bytes = 0;
        for id in run.first..run.end() {
            if let Some(call) = self.calls.get(id) {
                bytes += self.write(id, &call.request);
            }
        }
        Ok(bytes)
    }
}

impl Writing<'_> {
    fn write(&mut self, id: u64, request: &Request<Bytes>) -> u64 {
        let out = &mut *self.out;
        let (start, fields, body) = (out.buffer.len(), request.headers(), request.body());
        out.buffer.extend_from_slice(request.method().as_str().as_bytes());
        out.buffer.push(b' ');
        out.buffer.extend_from_slice(target(request.uri()).as_bytes());
        out.buffer.extend_from_slice(b" HTTP/1.1\r\n");
        let own_host = if fields.is_empty() { None } else { fields.get(HOST) };
        out.field(b"host", own_host.unwrap_or(self.host).as_bytes());
        for (name, value) in fields.iter().filter(|(name, _)| *name != HOST && *name != CONTENT_LENGTH) {
            out.field(name.as_str().as_bytes(), value.as_bytes());
        }
        let mut digits = [0; 20];
        if let Some(tag) = self.tag {
            out.field(tag.as_str().as_bytes(), decimal(id, &mut digits));
        }
        // Where the method gives a body a meaning, an empty one is announced (RFC 9110 section 8.6).
        if !body.is_empty() || matches!(*request.method(), Method::POST | Method::PUT | Method::PATCH) {
            out.field(b"content-length", decimal(body.len() as u64, &mut digits));
        }
        out.buffer.extend_from_slice(b"\r\n");
        let head = out.buffer.len() - start;
        out.body(body);
        out.len += head + body.len();
        (head + body.len()) as u64
    }
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
