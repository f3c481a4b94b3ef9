//! Bodies that are produced while they are sent.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use linerate_http::server::CheckedFields;
use tokio::sync::mpsc::Receiver;

/// Everything sent into a channel, until its sender is dropped. A panic in the sending task is
/// indistinguishable from a normal end. A receiver of results can report an error.
impl BodyStream for Receiver<Bytes> {
    fn poll_next(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Bytes, Box<dyn std::error::Error + Send + Sync>>>> {
        self.get_mut().poll_recv(context).map(|piece| piece.map(Ok))
    }
}

/// Everything sent into a channel, until its sender is dropped, or sends an error, which cuts the
/// connection.
impl<E: Into<Box<dyn std::error::Error + Send + Sync>>> BodyStream for Receiver<Result<Bytes, E>> {
    fn poll_next(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Bytes, Box<dyn std::error::Error + Send + Sync>>>> {
        self.get_mut().poll_recv(context).map(|piece| piece.map(|piece| piece.map_err(Into::into)))
    }
}

pub(crate) type Failure = Box<dyn std::error::Error + Send + Sync>;

/// A handler's stream. Its code and its destructor may panic as a handler may: that ends the
/// response and affects no other.
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
    pub(crate) fn trailers(&mut self) -> Result<Option<CheckedFields>, Failure> {
        let Some(stream) = &mut self.0 else { return Ok(None) };
        caught(|| stream.as_mut().trailers())
    }
}

impl Drop for Streamed {
    fn drop(&mut self) {
        // The panic was printed already.
        let _ = caught(|| drop(self.0.take()));
    }
}

fn caught<T>(code: impl FnOnce() -> T) -> Result<T, Failure> {
    catch_unwind(AssertUnwindSafe(code)).map_err(|_| "the stream panicked".into())
}

/// A body that is produced while it is sent. It is polled only while the client reads.
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
    /// The next piece; `None` at the end. An error cuts the connection, so that the client notices
    /// an incomplete body.
    fn poll_next(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Bytes, Box<dyn std::error::Error + Send + Sync>>>>;

    /// Its length, if known in advance.
    fn length(&self) -> Option<u64> {
        None
    }

    /// Trailer fields, requested at the end (chunked bodies only).
    fn trailers(self: Pin<&mut Self>) -> Option<CheckedFields> {
        None
    }
}
