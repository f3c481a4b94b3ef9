//! Bodies of the crate `http-body` as streams of ours.

use std::cell::RefCell;
use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::{Buf, Bytes};
use http_body::{Body, Frame};
use linerate_http::server::CheckedFields;

use crate::limits::TOWER_PLACES_KEPT;
use crate::message::stream::{BodyStream, Failure};

pub(crate) type Place<T> = Pin<Box<Option<T>>>;

/// Free places.
pub(crate) struct Places<T>(pub(crate) RefCell<Vec<Place<T>>>);

impl<T> Places<T> {
    /// Inlined, because contents are large and would be copied once more.
    #[inline(always)]
    pub(crate) fn put(&self, content: T) -> Place<T> {
        let mut place = self.0.borrow_mut().pop().unwrap_or_else(|| Box::pin(None));
        place.set(Some(content));
        place
    }

    pub(crate) fn free(&self, mut place: Place<T>) {
        // The service's destructors may call this again.
        place.set(None);
        let mut places = self.0.borrow_mut();
        if places.len() < TOWER_PLACES_KEPT {
            places.push(place);
        }
    }
}

pub(crate) type Framed<B> = Option<Result<Frame<<B as Body>::Data>, <B as Body>::Error>>;

/// A body in its place.
pub(crate) struct Housed<B>(pub(crate) Place<B>);

impl<B: Body> Housed<B> {
    pub(crate) fn poll_frame(&mut self, context: &mut Context<'_>) -> Poll<Framed<B>> {
        self.0.as_mut().as_pin_mut().map_or(Poll::Ready(None), |body| body.poll_frame(context))
    }

    pub(crate) fn is_over(&self) -> bool {
        self.0.as_ref().as_pin_ref().is_none_or(|body| body.is_end_stream())
    }

    pub(crate) fn length(&self) -> Option<u64> {
        self.0.as_ref().as_pin_ref()?.size_hint().exact()
    }
}

pub(crate) fn to_bytes(mut data: impl Buf) -> Bytes {
    data.copy_to_bytes(data.remaining())
}

/// Adapts a service's body to our streams.
pub(crate) struct FromBody<B> {
    pub(crate) body: Housed<B>,
    pub(crate) first: Option<Bytes>,
    pub(crate) trailers: Option<http::HeaderMap>,
    pub(crate) length: Option<u64>,
}

impl<B: Body> FromBody<B> {
    pub(crate) fn new(body: B) -> FromBody<B> {
        let length = body.size_hint().exact();
        FromBody { body: Housed(Box::pin(Some(body))), first: None, trailers: None, length }
    }
}

impl<B> BodyStream for FromBody<B>
where
    B: Body,
    B::Error: Into<Failure>,
{
    fn poll_next(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Bytes, Failure>>> {
        if let Some(first) = self.first.take() {
            return Poll::Ready(Some(Ok(first)));
        }
        loop {
            // Trailers are the end, though the body itself may not know: a gRPC service's that ends
            // with an error would wait for the client.
            if self.trailers.is_some() {
                return Poll::Ready(None);
            }
            return match self.body.poll_frame(context) {
                Poll::Pending => Poll::Pending,
                Poll::Ready(None) => Poll::Ready(None),
                Poll::Ready(Some(Err(error))) => Poll::Ready(Some(Err(error.into()))),
                Poll::Ready(Some(Ok(frame))) => match frame.into_data() {
                    Ok(data) => Poll::Ready(Some(Ok(to_bytes(data)))),
                    Err(frame) => {
                        self.trailers = frame.into_trailers().ok();
                        continue;
                    }
                },
            };
        }
    }

    fn length(&self) -> Option<u64> {
        self.length
    }

    fn trailers(mut self: Pin<&mut Self>) -> Option<CheckedFields> {
        let mut fields = CheckedFields::new();
        for (name, value) in &self.trailers.take()? {
            // Fields that are forbidden here are left out.
            let _ = fields.add(name.as_str(), value.as_bytes());
        }
        Some(fields)
    }
}
