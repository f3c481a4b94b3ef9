//! The future of a response that is usually ready at once.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};

use crate::Response;

/// A future on the heap.
pub(crate) type Waits = Pin<Box<dyn Future<Output = Response>>>;

/// A response that is ready, or the future of one, or of either. It is small whatever that future needs: the
/// server moves the future of each request once, and nested async functions would move request and
/// response at each level.
pub(crate) enum Responding {
    /// `None` once it was taken.
    Ready(Option<Response>),
    Waits(Waits),
    /// What takes its place is being found out. That may need more memory than the future that
    /// then waits; it is freed before.
    Decides(Pin<Box<dyn Future<Output = Responding>>>),
}

impl Responding {
    pub(crate) fn ready(response: Response) -> Responding {
        Responding::Ready(Some(response))
    }

    pub(crate) fn waits(future: impl Future<Output = Response> + 'static) -> Responding {
        Responding::Waits(Box::pin(future))
    }

    pub(crate) fn decides(future: impl Future<Output = Responding> + 'static) -> Responding {
        Responding::Decides(Box::pin(future))
    }
}

impl Future for Responding {
    type Output = Response;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Response> {
        let this = self.get_mut();
        loop {
            match this {
                Responding::Ready(response) => return response.take().map_or(Poll::Pending, Poll::Ready),
                Responding::Waits(future) => return future.as_mut().poll(context),
                Responding::Decides(future) => match future.as_mut().poll(context) {
                    Poll::Ready(decided) => *this = decided,
                    Poll::Pending => return Poll::Pending,
                },
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Request;

    /// Above 128 bytes each move is a call of memmove, and every request moves these.
    #[test]
    fn what_every_request_moves_is_small() {
        assert!(size_of::<Response>() <= 104, "{} bytes", size_of::<Response>());
        assert!(size_of::<Request>() <= 112, "{} bytes", size_of::<Request>());
        assert!(size_of::<Responding>() <= 112, "{} bytes", size_of::<Responding>());
        let polled = size_of::<Poll<Result<Response, Box<dyn std::error::Error>>>>();
        assert!(polled <= 112, "{polled} bytes");
    }
}
