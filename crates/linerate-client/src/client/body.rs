//! Bodies: whole ones in memory, and those of responses that come piece by piece.

use std::error::Error as StdError;
use std::fmt;
use std::future::poll_fn;
use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use http::{HeaderMap, Response};
use http_body::{Body as HttpBody, Frame, SizeHint};

use super::calls::Trailers;
use super::error::Error;
use super::stream::Incoming;

/// What the body of a request may fail with.
pub(super) type BoxError = Box<dyn StdError + Send + Sync>;

/// The body of a message: bytes in memory, or a response that comes piece by piece. It implements
/// [`http_body::Body`].
///
/// ```
/// # extern crate linerate_client as linerate;
/// use linerate::client::Body;
///
/// let request = http::Request::post("/items").body(Body::from("a new one"))?;
/// # Ok::<(), http::Error>(())
/// ```
///
/// While the caller takes nothing of a streamed response, the server is held back. Dropping the body gives the rest up:
/// it is read and discarded within limits, or its connection closes; by HTTP/2 its stream is reset.
#[derive(Default)]
pub struct Body(Kind);

enum Kind {
    Whole(Bytes, Option<Box<HeaderMap>>),
    Incoming(Incoming),
}

impl Default for Kind {
    fn default() -> Kind {
        Kind::Whole(Bytes::new(), None)
    }
}

impl Body {
    /// A body without content.
    pub fn empty() -> Body {
        Body::default()
    }

    pub(super) fn incoming(incoming: Incoming) -> Body {
        Body(Kind::Incoming(incoming))
    }

    /// A response that is there as a whole, with its trailers at the end of its body.
    pub(super) fn of_whole(mut response: Response<Bytes>) -> Response<Body> {
        let trailers = match response.extensions().is_empty() {
            true => None,
            false => response.extensions_mut().remove::<Trailers>(),
        };
        let trailers = trailers.map(|Trailers(fields)| Box::new(fields));
        response.map(|content| Body(Kind::Whole(content, trailers)))
    }

    /// The next piece; `None`: it is whole.
    pub async fn next(&mut self) -> Option<Result<Bytes, Error>> {
        loop {
            match poll_fn(|cx| Pin::new(&mut *self).poll_frame(cx)).await? {
                Ok(frame) => match frame.into_data() {
                    Ok(piece) => return Some(Ok(piece)),
                    Err(_trailers) => {}
                },
                Err(error) => return Some(Err(error)),
            }
        }
    }
}

impl HttpBody for Body {
    type Data = Bytes;
    type Error = Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Error>>> {
        match &mut self.0 {
            Kind::Incoming(incoming) => incoming.poll_frame(cx),
            Kind::Whole(content, _) if !content.is_empty() => {
                Poll::Ready(Some(Ok(Frame::data(std::mem::take(content)))))
            }
            Kind::Whole(_, trailers) => {
                Poll::Ready(trailers.take().map(|fields| Ok(Frame::trailers(*fields))))
            }
        }
    }

    fn is_end_stream(&self) -> bool {
        match &self.0 {
            Kind::Incoming(incoming) => incoming.is_over(),
            Kind::Whole(content, trailers) => content.is_empty() && trailers.is_none(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match &self.0 {
            Kind::Incoming(_) => SizeHint::default(),
            Kind::Whole(content, _) => SizeHint::with_exact(content.len() as u64),
        }
    }
}

impl From<Bytes> for Body {
    fn from(content: Bytes) -> Body {
        Body(Kind::Whole(content, None))
    }
}

impl From<Vec<u8>> for Body {
    fn from(content: Vec<u8>) -> Body {
        Bytes::from(content).into()
    }
}

impl From<String> for Body {
    fn from(content: String) -> Body {
        Bytes::from(content).into()
    }
}

impl From<&'static str> for Body {
    fn from(content: &'static str) -> Body {
        Bytes::from_static(content.as_bytes()).into()
    }
}

impl From<&'static [u8]> for Body {
    fn from(content: &'static [u8]) -> Body {
        Bytes::from_static(content).into()
    }
}

impl fmt::Debug for Body {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0 {
            Kind::Incoming(_) => f.write_str("Body(incoming)"),
            Kind::Whole(content, _) => write!(f, "Body({} bytes)", content.len()),
        }
    }
}
