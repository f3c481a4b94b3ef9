//! A response as a handler makes it.

use std::cell::Cell;
use std::fmt;
use std::fs::File;
use std::future::poll_fn;
use std::ops::Range;

use bytes::Bytes;
use linerate_http::server::{AnswerFraming, AnswerHead, BadField, CheckedFields, Persistence, reason};

use crate::Route;
use crate::blocking::BlockingError;
use crate::limits::FIELDS_KEPT;
use crate::message::body::BodyError;
use crate::message::file_body::FileBody;
use crate::message::hand_over::HandOver;
use crate::message::http_body::FromBody;
use crate::message::stream::{BodyStream, Failure, Streamed};

/// A response. The server itself sets `Date`, `Content-Length`, `Transfer-Encoding` and
/// `Connection`.
///
/// ```
/// use linerate_serve::Response;
///
/// let response = Response::json(r#"{"id":7}"#).with_status(201).with_field("Location", "/items/7")?;
/// assert_eq!((response.code(), response.field("location")), (201, Some("/items/7")));
/// # Ok::<(), linerate_serve::BadField>(())
/// ```
#[derive(Debug)]
pub struct Response {
    pub(crate) status: u16,
    pub(crate) content_type: Option<&'static str>,
    pub(crate) fields: CheckedFields,
    pub(crate) body: ResponseBody,
    pub(crate) close: bool,
    /// The Content-Length of a response to HEAD that has no body to measure.
    pub(crate) announced: Announced,
    /// The connection is handed over: this receives its bytes, and the body is what it sends.
    pub(crate) tunnel: Option<Box<HandOver>>,
    /// The route that metrics count it under.
    pub(crate) route: Route,
}

/// A Content-Length, or none: an `Option<u64>` in eight bytes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Announced(u64);

impl Announced {
    pub(crate) const NOTHING: Announced = Announced(u64::MAX);

    pub(crate) fn new(length: Option<u64>) -> Announced {
        length.map_or(Announced::NOTHING, Announced)
    }

    pub(crate) fn get(self) -> Option<u64> {
        (self.0 != u64::MAX).then_some(self.0)
    }
}

thread_local! {
    /// The buffer of the last response's fields, for the next one.
    static BUFFER: Cell<Vec<u8>> = const { Cell::new(Vec::new()) };
}

/// Empty fields, in the last buffer if there is one.
pub(crate) fn fields() -> CheckedFields {
    CheckedFields::in_buffer(BUFFER.take())
}

/// Keeps the buffer of written fields.
pub(crate) fn keep_buffer(fields: CheckedFields) {
    let buffer = fields.into_buffer();
    if (1..=FIELDS_KEPT).contains(&buffer.capacity()) {
        BUFFER.set(buffer);
    }
}

impl Response {
    /// A response with this status (200 to 599; anything else becomes 500), without a body.
    pub const fn status(status: u16) -> Response {
        Response {
            status: final_status(status),
            content_type: None,
            fields: CheckedFields::new(),
            body: ResponseBody::Whole(Bytes::new()),
            close: false,
            announced: Announced::NOTHING,
            tunnel: None,
            route: Route(0),
        }
    }

    /// 200 with a text.
    pub fn text(body: impl Into<Bytes>) -> Response {
        Response::of("text/plain; charset=utf-8", body.into())
    }

    /// 200 with JSON.
    pub fn json(body: impl Into<Bytes>) -> Response {
        Response::of("application/json", body.into())
    }

    fn of(kind: &'static str, body: Bytes) -> Response {
        Response { content_type: Some(kind), body: ResponseBody::Whole(body), ..Response::status(200) }
    }

    /// An error response that says why.
    pub(crate) fn explained(status: u16, text: &str) -> Response {
        let mut response = Response::text(format!("{status} {}: {text}\n", reason(status)));
        response.status = status;
        response.fields = CheckedFields::new();
        response
    }

    /// The response to CONNECT of handlers that make no tunnels.
    pub(crate) fn no_tunnel() -> Response {
        let mut response = Response::explained(405, "CONNECT is for proxies");
        // Nothing is allowed that could be named: the target is another server.
        let _ = response.fields.add("allow", "");
        response
    }

    /// The status code.
    pub fn code(&self) -> u16 {
        self.status
    }

    /// The first field of that name, if it is text; only fields that the handler set.
    pub fn field(&self, name: &str) -> Option<&str> {
        if name.eq_ignore_ascii_case("content-type") && self.content_type.is_some() {
            return self.content_type;
        }
        let (_, value) = self.fields().find(|(n, _)| n.eq_ignore_ascii_case(name.as_bytes()))?;
        std::str::from_utf8(value).ok()
    }

    /// All fields that the handler set, names and values.
    pub fn fields(&self) -> impl Iterator<Item = (&[u8], &[u8])> {
        let kind = self.content_type.map(|kind| (&b"content-type"[..], kind.as_bytes()));
        kind.into_iter().chain(self.fields.iter())
    }

    /// Takes the body, reading a streamed one to its end.
    ///
    /// # Errors
    /// The stream fails, or the body is larger than `limit` bytes.
    pub async fn collect(&mut self, limit: usize) -> Result<Bytes, Failure> {
        let too_large = || Failure::from(format!("the body is larger than {limit} bytes"));
        let mut stream = match std::mem::take(&mut self.body) {
            ResponseBody::Whole(body) if body.len() > limit => return Err(too_large()),
            ResponseBody::Whole(body) => return Ok(body),
            ResponseBody::File(file) if file.len() > limit as u64 => return Err(too_large()),
            ResponseBody::File(file) => {
                let all = file.read(limit);
                let whole = all.len() as u64 == file.len();
                return if whole { Ok(all.into()) } else { Err("the file is shorter than it was".into()) };
            }
            ResponseBody::Stream(stream) => stream,
        };
        let mut all = Vec::new();
        while let Some(piece) = poll_fn(|context| stream.poll_next(context)).await {
            let piece = piece?;
            if all.len() + piece.len() > limit {
                return Err(too_large());
            }
            all.extend_from_slice(&piece);
        }
        Ok(all.into())
    }

    /// Sets the body.
    #[must_use]
    pub fn with_body(mut self, body: impl Into<Bytes>) -> Response {
        self.give_up_tunnel();
        self.body = ResponseBody::Whole(body.into());
        self
    }

    /// Sets a body that is produced while it is sent, as fast as the client reads it.
    #[must_use]
    pub fn with_stream(mut self, stream: impl BodyStream + 'static) -> Response {
        self.give_up_tunnel();
        self.body = ResponseBody::Stream(Streamed::new(stream));
        self
    }

    /// Sets a range of a file as the body. On epoll the bytes go from the page cache to the wire
    /// (sendfile). The pool of [`blocking`](crate::blocking()) reads missing pages, so the loop
    /// does not block. If the file is too short, the connection is cut.
    #[must_use]
    pub fn with_file(mut self, file: File, range: Range<u64>) -> Response {
        self.give_up_tunnel();
        self.body = ResponseBody::File(Box::new(FileBody::new(file, range)));
        self
    }

    /// Sets a body of the crate `http-body`, in the same way: those of hyper's client and reqwest,
    /// and `StreamBody` of `http-body-util`. Its trailers are sent too.
    #[must_use]
    pub fn with_http_body<B>(self, body: B) -> Response
    where
        B: http_body::Body + 'static,
        B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
    {
        self.with_stream(FromBody::new(body))
    }

    /// Sets the status (200 to 599; anything else becomes 500).
    #[must_use]
    pub fn with_status(mut self, status: u16) -> Response {
        let tunnels = |status| matches!(status, 200..300);
        if self.tunnel.is_some() && !(tunnels(self.status) && tunnels(status)) {
            self.give_up_tunnel();
            self.body = ResponseBody::default();
        }
        self.status = final_status(status);
        self
    }

    /// The handler set something that a response which takes over the connection must not have.
    fn give_up_tunnel(&mut self) {
        if self.tunnel.take().is_some() {
            self.status = 500;
        }
    }

    /// Sets the Content-Type, replacing an existing one.
    #[must_use]
    pub fn with_content_type(mut self, kind: &'static str) -> Response {
        self.fields.remove("content-type");
        self.content_type = Some(kind);
        self
    }

    /// Adds a field. A `Content-Type` replaces an existing one, because a response has only one.
    ///
    /// # Errors
    /// [`BadField`] if name or value would break the message, or the server itself sets this field.
    pub fn with_field(mut self, name: &str, value: impl AsRef<[u8]>) -> Result<Response, BadField> {
        let kind = name.eq_ignore_ascii_case("content-type");
        if kind {
            self.fields.remove(name);
        }
        self.fields.add(name, value)?;
        if kind {
            self.content_type = None;
        }
        Ok(self)
    }

    /// The Content-Length of a response to HEAD, which has no body to measure (RFC 9110 section 9.3.2). With a body, and
    /// for other methods, the body says it.
    pub fn announcing(mut self, length: u64) -> Response {
        self.announced = Announced::new(Some(length));
        self
    }

    /// The head to send before the body.
    pub(crate) fn head(&self, persistence: Persistence, framing: AnswerFraming) -> AnswerHead<'_> {
        AnswerHead {
            status: self.status,
            persistence,
            framing,
            content_type: self.content_type,
            fields: &self.fields,
        }
    }

    /// Makes metrics count it as a response of this route.
    #[must_use]
    pub fn with_route(mut self, route: Route) -> Response {
        self.route = route;
        self
    }

    /// Closes the connection after it.
    #[must_use]
    pub fn closing(mut self) -> Response {
        self.close = true;
        self
    }
}

const fn final_status(status: u16) -> u16 {
    if status < 200 || status > 599 { 500 } else { status }
}

/// The body of a response.
pub(crate) enum ResponseBody {
    /// A complete body; sent with Content-Length, and without a copy if it is large.
    Whole(Bytes),
    /// Produced while it is sent: chunked, or with Content-Length if the stream knows it.
    Stream(Streamed),
    /// Ranges of a file, sent with Content-Length. Boxed, so that every response is small to move.
    File(Box<FileBody>),
}

impl Default for ResponseBody {
    /// No body.
    fn default() -> Self {
        ResponseBody::Whole(Bytes::new())
    }
}

impl fmt::Debug for ResponseBody {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ResponseBody::Whole(bytes) => write!(f, "Whole({} bytes)", bytes.len()),
            ResponseBody::Stream(_) => f.write_str("Stream"),
            ResponseBody::File(body) => write!(f, "File({} bytes)", body.len()),
        }
    }
}

impl From<BodyError> for Response {
    fn from(error: BodyError) -> Response {
        let status = match error {
            BodyError::TooLarge { .. } => 413,
            BodyError::Fault(fault) => fault.status(),
            BodyError::Ended => 400,
        };
        Response::explained(status, &error.to_string()).closing()
    }
}

impl From<BlockingError> for Response {
    fn from(error: BlockingError) -> Response {
        let status = match error {
            BlockingError::Busy => 503,
            BlockingError::Panicked => 500,
        };
        let mut response = Response::explained(status, &error.to_string());
        if error == BlockingError::Busy {
            // The name and the value are well-formed.
            let _ = response.fields.add("retry-after", "1");
        }
        response
    }
}
