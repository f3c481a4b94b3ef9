//! An answer, as a handler makes it.

use std::cell::Cell;
use std::fmt;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::Bytes;
use linerate_http::server::{BadField, Fields};

use crate::body::Shared;
use crate::limits::FIELDS_KEPT;

/// An answer. `Date`, `Content-Length`, `Transfer-Encoding` and `Connection` are the server's business.
#[derive(Debug)]
pub struct Response {
    pub(crate) status: u16,
    pub(crate) content_type: Option<&'static str>,
    pub(crate) fields: Fields,
    pub(crate) body: ResponseBody,
    pub(crate) close: bool,
    /// What Content-Length says in an answer to HEAD that has no body to measure.
    pub(crate) announced: Option<u64>,
    /// The connection is handed over: what it receives from now on goes there, and the body, sent without a head, is what it
    /// says.
    pub(crate) tunnel: Option<Arc<Shared>>,
}

thread_local! {
    /// Where an answer's fields were, for those of the next.
    static BUFFER: Cell<Vec<u8>> = const { Cell::new(Vec::new()) };
}

/// Fields in the buffer that was used last, when there is one.
pub(crate) fn fields() -> Fields {
    Fields::in_buffer(BUFFER.take())
}

/// These were written.
pub(crate) fn keep_buffer(fields: Fields) {
    let buffer = fields.into_buffer();
    if (1..=FIELDS_KEPT).contains(&buffer.capacity()) {
        BUFFER.set(buffer);
    }
}

impl Response {
    /// An answer of this status (200 to 599; anything else becomes 500) without a body.
    pub const fn status(status: u16) -> Response {
        let status = if status < 200 || status > 599 { 500 } else { status };
        Response {
            status,
            content_type: None,
            fields: Fields::new(),
            body: ResponseBody::Whole(Bytes::new()),
            close: false,
            announced: None,
            tunnel: None,
        }
    }

    /// 200 with a text.
    pub fn text(body: impl Into<Bytes>) -> Response {
        Response::status(200).with_content_type("text/plain; charset=utf-8").with_body(body)
    }

    /// 200 with JSON.
    pub fn json(body: impl Into<Bytes>) -> Response {
        Response::status(200).with_content_type("application/json").with_body(body)
    }

    /// The status it has.
    pub fn code(&self) -> u16 {
        self.status
    }

    /// With this body.
    #[must_use]
    pub fn with_body(mut self, body: impl Into<Bytes>) -> Response {
        self.body = ResponseBody::Whole(body.into());
        self
    }

    /// With a body that is made while it is sent, at the pace at which the peer takes it.
    #[must_use]
    pub fn with_stream(mut self, stream: impl BodyStream + 'static) -> Response {
        self.body = ResponseBody::Stream(Box::pin(stream));
        self
    }

    /// With this Content-Type.
    #[must_use]
    pub fn with_content_type(mut self, kind: &'static str) -> Response {
        self.content_type = Some(kind);
        self
    }

    /// With one more field.
    ///
    /// # Errors
    /// [`BadField`] when name or value would break the message, or the field is the server's own.
    pub fn with_field(mut self, name: &str, value: impl AsRef<[u8]>) -> Result<Response, BadField> {
        self.fields.add(name, value)?;
        Ok(self)
    }

    /// Closes the connection behind it.
    #[must_use]
    pub fn closing(mut self) -> Response {
        self.close = true;
        self
    }
}

/// The body of an answer.
pub enum ResponseBody {
    /// All of it; sent with Content-Length, and without a copy where it is large.
    Whole(Bytes),
    /// Made while it is sent: chunked, or by length when the stream knows it.
    Stream(Pin<Box<dyn BodyStream>>),
}

impl fmt::Debug for ResponseBody {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ResponseBody::Whole(bytes) => write!(f, "Whole({} bytes)", bytes.len()),
            ResponseBody::Stream(_) => f.write_str("Stream"),
        }
    }
}

/// A body that is made while it is sent. Polled only while the peer takes what it makes.
pub trait BodyStream {
    /// The next piece; `None` at the end. An error cuts the connection, so that the peer can tell a part from the whole.
    fn poll_next(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Bytes, Box<dyn std::error::Error + Send + Sync>>>>;

    /// Its length, when that is known before.
    fn length(&self) -> Option<u64> {
        None
    }

    /// Fields to send behind it, asked for at the end (chunked bodies only).
    fn trailers(self: Pin<&mut Self>) -> Option<Fields> {
        None
    }
}
