//! An answer, as a handler makes it.

use std::cell::Cell;
use std::fmt;
use std::fs::File;
use std::future::poll_fn;
use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use linerate_http::server::{AnswerFraming, AnswerHead, BadField, Fields, Persistence};
use tokio::sync::mpsc::Receiver;

use crate::Route;
use crate::file_body::FileBody;
use crate::limits::FIELDS_KEPT;
use crate::tower::FromBody;
use crate::upgrade::HandOver;

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
    /// The connection is handed over: what it receives from now on goes there, and the body is what it says.
    pub(crate) tunnel: Option<Box<HandOver>>,
    /// What metrics count it as.
    pub(crate) route: Route,
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
        Response {
            status: final_status(status),
            content_type: None,
            fields: Fields::new(),
            body: ResponseBody::Whole(Bytes::new()),
            close: false,
            announced: None,
            tunnel: None,
            route: Route(0),
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

    /// The first field of that name, when it is text: those that the handler gave, without the server's own.
    pub fn field(&self, name: &str) -> Option<&str> {
        if name.eq_ignore_ascii_case("content-type") && self.content_type.is_some() {
            return self.content_type;
        }
        let (_, value) = self.fields().find(|(n, _)| n.eq_ignore_ascii_case(name.as_bytes()))?;
        std::str::from_utf8(value).ok()
    }

    /// All fields that the handler gave, names and values.
    pub fn fields(&self) -> impl Iterator<Item = (&[u8], &[u8])> {
        let kind = self.content_type.map(|kind| (&b"content-type"[..], kind.as_bytes()));
        kind.into_iter().chain(self.fields.iter())
    }

    /// Takes the body out, a streamed one to its end.
    ///
    /// # Errors
    /// When the stream fails, or the body is larger than `limit` bytes.
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

    /// With this body.
    #[must_use]
    pub fn with_body(mut self, body: impl Into<Bytes>) -> Response {
        self.give_up_tunnel();
        self.body = ResponseBody::Whole(body.into());
        self
    }

    /// With a body that is made while it is sent, at the pace at which the peer takes it.
    #[must_use]
    pub fn with_stream(mut self, stream: impl BodyStream + 'static) -> Response {
        self.give_up_tunnel();
        self.body = ResponseBody::Stream(Streamed::new(stream));
        self
    }

    /// With a range of a file as its body. On epoll the bytes go from the kernel's memory to the wire (sendfile); what is not in
    /// memory is read on the pool of [`blocking`](crate::blocking()), not on the loop. A file that turns out to be shorter cuts the
    /// connection.
    #[must_use]
    pub fn with_file(mut self, file: File, range: Range<u64>) -> Response {
        self.give_up_tunnel();
        self.body = ResponseBody::File(FileBody::new(file, range));
        self
    }

    /// With a body of the crate `http-body`, in the same way: what hyper's client and reqwest give, and what `StreamBody` of
    /// `http-body-util` makes of a stream. Its trailers are sent too.
    #[must_use]
    pub fn with_http_body<B>(self, body: B) -> Response
    where
        B: http_body::Body + 'static,
        B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
    {
        self.with_stream(FromBody::new(body))
    }

    /// With another status (200 to 599; anything else becomes 500).
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

    /// It gets something that no response has with which a handler takes a connection.
    fn give_up_tunnel(&mut self) {
        if self.tunnel.take().is_some() {
            self.status = 500;
        }
    }

    /// With this Content-Type, whichever it had.
    #[must_use]
    pub fn with_content_type(mut self, kind: &'static str) -> Response {
        self.fields.remove("content-type");
        self.content_type = Some(kind);
        self
    }

    /// With one more field. A `Content-Type` takes the place of the one it had, since there can only be one.
    ///
    /// # Errors
    /// [`BadField`] when name or value would break the message, or the field is the server's own.
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

    /// What goes over the wire before its body.
    pub(crate) fn head(&self, persistence: Persistence, framing: AnswerFraming) -> AnswerHead<'_> {
        AnswerHead {
            status: self.status,
            persistence,
            framing,
            content_type: self.content_type,
            fields: &self.fields,
        }
    }

    /// Counted as a response of this route in the metrics.
    #[must_use]
    pub fn with_route(mut self, route: Route) -> Response {
        self.route = route;
        self
    }

    /// Closes the connection behind it.
    #[must_use]
    pub fn closing(mut self) -> Response {
        self.close = true;
        self
    }
}

const fn final_status(status: u16) -> u16 {
    if status < 200 || status > 599 { 500 } else { status }
}

/// The body of an answer.
pub(crate) enum ResponseBody {
    /// All of it; sent with Content-Length, and without a copy where it is large.
    Whole(Bytes),
    /// Made while it is sent: chunked, or by length when the stream knows it.
    Stream(Streamed),
    /// Ranges of a file; sent with Content-Length.
    File(FileBody),
}

impl Default for ResponseBody {
    /// None.
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

/// What a channel's other end sends, until it is dropped: an end that comes by a panic looks like any other.
/// A receiver of results can say that something is missing.
impl BodyStream for Receiver<Bytes> {
    fn poll_next(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Bytes, Box<dyn std::error::Error + Send + Sync>>>> {
        self.get_mut().poll_recv(context).map(|piece| piece.map(Ok))
    }
}

/// What a channel's other end sends, until it is dropped or an error is sent, which cuts the connection.
impl<E: Into<Box<dyn std::error::Error + Send + Sync>>> BodyStream for Receiver<Result<Bytes, E>> {
    fn poll_next(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Bytes, Box<dyn std::error::Error + Send + Sync>>>> {
        self.get_mut().poll_recv(context).map(|piece| piece.map(|piece| piece.map_err(Into::into)))
    }
}

type Failure = Box<dyn std::error::Error + Send + Sync>;

/// A handler's stream. Its code may panic as the handler's may, its destructor too: that ends the answer, and nobody else notices.
pub(crate) struct Streamed(Option<Pin<Box<dyn BodyStream>>>);

impl Streamed {
    pub(crate) fn new(stream: impl BodyStream + 'static) -> Streamed {
        Streamed(Some(Box::pin(stream)))
    }

    /// As [`BodyStream::poll_next`].
    pub(crate) fn poll_next(&mut self, context: &mut Context<'_>) -> Poll<Option<Result<Bytes, Failure>>> {
        let Some(stream) = &mut self.0 else { return Poll::Ready(None) };
        caught(|| stream.as_mut().poll_next(context)).unwrap_or_else(|error| Poll::Ready(Some(Err(error))))
    }

    /// As [`BodyStream::length`].
    pub(crate) fn length(&self) -> Option<u64> {
        caught(|| self.0.as_ref()?.length()).unwrap_or(None)
    }

    /// As [`BodyStream::trailers`].
    pub(crate) fn trailers(&mut self) -> Result<Option<Fields>, Failure> {
        let Some(stream) = &mut self.0 else { return Ok(None) };
        caught(|| stream.as_mut().trailers())
    }
}

impl Drop for Streamed {
    fn drop(&mut self) {
        // It was printed already.
        let _ = caught(|| drop(self.0.take()));
    }
}

fn caught<T>(code: impl FnOnce() -> T) -> Result<T, Failure> {
    catch_unwind(AssertUnwindSafe(code)).map_err(|_| "the stream panicked".into())
}

/// A body that is made while it is sent. Polled only while the peer takes what it makes.
///
/// The receiver of a channel is one:
///
/// ```
/// use bytes::Bytes;
/// use linerate_serve::{Request, Response};
///
/// async fn count(_: Request) -> Response {
///     let (sender, pieces) = tokio::sync::mpsc::channel(8);
///     tokio::spawn(async move {
///         for n in 0..1000 {
///             // Waits while the client is slow; fails when it has gone.
///             if sender.send(Bytes::from(format!("{n}\n"))).await.is_err() {
///                 return;
///             }
///         }
///     });
///     Response::status(200).with_content_type("text/plain").with_stream(pieces)
/// }
/// ```
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
