//! A call whose bodies are streams.

use std::error::Error as StdError;
use std::fmt;
use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::{Buf, Bytes};
use http::header::CONTENT_LENGTH;
use http::{HeaderMap, Request, Response};
use http_body::{Body as HttpBody, Frame};
use linerate_net::Time;
use tokio::sync::OwnedSemaphorePermit;

use super::board::{Command, SharedBoard};
use super::body::Body;
use super::calls::Trailers;
use super::cell::StreamCell;
use super::error::{Error, ErrorDetail};
use super::inner::Inner;
use super::limits::STREAMED_MARK;
use super::options::RequestOptions;
use super::waiting::PlaceWait;

/// The body of a request that is a stream, and its length if that is known.
type Upload<B> = Option<(Pin<Box<B>>, Option<u64>)>;

enum StreamingState<B> {
    Refused(Error),
    New(Request<Bytes>, Upload<B>),
    /// For a place among the calls.
    Waits(Request<Bytes>, Upload<B>, PlaceWait),
    Sent(u64, Arc<StreamCell>),
    Over,
}

/// The length of a body: its own, if it knows that, or the one that Content-Length announces.
fn length(fields: &HeaderMap, own: Option<u64>) -> Result<Option<u64>, Error> {
    let mut length = own;
    for value in fields.get_all(CONTENT_LENGTH) {
        let digits = value.to_str().ok().filter(|value| value.bytes().all(|b| b.is_ascii_digit()));
        let Some(announced) = digits.and_then(|digits| digits.parse().ok()) else {
            return Err(Error::Request("Content-Length is no number\nhint: leave it out".into()));
        };
        if *length.get_or_insert(announced) != announced {
            let problem = "Content-Length differs from the body's length\nhint: leave it out";
            return Err(Error::Request(problem.into()));
        }
    }
    Ok(length)
}

/// A call whose bodies are streams, under way: it ends with the head of the response. Dropping it gives the call up.
#[must_use = "a call is sent when its future is polled"]
pub struct SendStreaming<B> {
    client: Arc<Inner>,
    state: StreamingState<B>,
}

impl<B> SendStreaming<B>
where
    B: HttpBody + Send + 'static,
    B::Data: Send,
    B::Error: Into<Box<dyn StdError + Send + Sync>>,
{
    pub(super) fn new(client: Arc<Inner>, request: Request<B>) -> SendStreaming<B> {
        let (mut head, body) = request.into_parts();
        let upload = if body.is_end_stream() {
            None
        } else {
            match length(&head.headers, body.size_hint().exact()) {
                Ok(length) => Some((Box::pin(body), length)),
                Err(error) => return SendStreaming { client, state: StreamingState::Refused(error) },
            }
        };
        // The client frames the body itself. That of one without a body is checked later.
        if upload.is_some() {
            head.headers.remove(CONTENT_LENGTH);
        }
        SendStreaming { client, state: StreamingState::New(Request::from_parts(head, Bytes::new()), upload) }
    }

    /// The request has a place: it goes to the driver, and its body follows.
    fn submit(
        &mut self,
        request: Request<Bytes>,
        upload: Upload<B>,
        permit: OwnedSemaphorePermit,
        since: Option<Time>,
    ) -> Result<(), Error> {
        if upload.is_some() && tokio::runtime::Handle::try_current().is_err() {
            return Err(Error::Request("its body is a stream, and there is no tokio runtime".into()));
        }
        let cell = Arc::<StreamCell>::default();
        let shared = &self.client.shared;
        let length = upload.as_ref().map(|upload| upload.1);
        let id = shared.submit_streaming(request, length, since, cell.clone())?;
        // The board gives it back with the call's end.
        permit.forget();
        if let Some((body, _)) = upload {
            tokio::spawn(pump(shared.clone(), id, cell.clone(), body));
        }
        self.state = StreamingState::Sent(id, cell);
        Ok(())
    }
}

impl<B> Future for SendStreaming<B>
where
    B: HttpBody + Send + 'static,
    B::Data: Send,
    B::Error: Into<Box<dyn StdError + Send + Sync>>,
{
    type Output = Result<Response<Body>, Error>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let this = &mut *self;
        loop {
            match std::mem::replace(&mut this.state, StreamingState::Over) {
                StreamingState::Refused(error) => return Poll::Ready(Err(error)),
                StreamingState::New(request, upload) => {
                    if let Err(error) = this.client.start() {
                        return Poll::Ready(Err(error));
                    }
                    let place = PlaceWait::new(&this.client.shared, RequestOptions::of(&request));
                    this.state = StreamingState::Waits(request, upload, place);
                }
                StreamingState::Waits(request, upload, mut place) => match place.poll(cx) {
                    Poll::Ready(Ok((permit, since))) => {
                        if let Err(error) = this.submit(request, upload, permit, since) {
                            this.state = StreamingState::Refused(error);
                        }
                    }
                    Poll::Ready(Err(error)) => return Poll::Ready(Err(error)),
                    Poll::Pending => {
                        this.state = StreamingState::Waits(request, upload, place);
                        return Poll::Pending;
                    }
                },
                StreamingState::Sent(id, cell) => {
                    let mut state = cell.lock();
                    if let Some(head) = state.head.take() {
                        drop(state);
                        let incoming =
                            Incoming { client: this.client.clone(), id, cell, taken: 0, over: false };
                        return Poll::Ready(Ok(head.map(|()| Body::incoming(incoming))));
                    }
                    if let Some(Err(error)) = state.end.take() {
                        return Poll::Ready(Err(error));
                    }
                    state.reader = Some(cx.waker().clone());
                    drop(state);
                    this.state = StreamingState::Sent(id, cell);
                    return Poll::Pending;
                }
                StreamingState::Over => panic!("a call was polled after its end"),
            }
        }
    }
}

impl<B> Drop for SendStreaming<B> {
    fn drop(&mut self) {
        if let StreamingState::Sent(id, _) = self.state {
            self.client.shared.give_up(id);
        }
    }
}

/// Nothing in it is pinned: the body is in a box.
impl<B> Unpin for SendStreaming<B> {}

impl<B> fmt::Debug for SendStreaming<B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SendStreaming").finish_non_exhaustive()
    }
}

/// Ends the call when its body is dropped before its end: the body panicked, or the runtime has ended.
struct UploadGuard {
    shared: Arc<SharedBoard>,
    id: u64,
    has_ended: bool,
}

impl UploadGuard {
    fn end(mut self, command: Option<Command>) {
        self.has_ended = true;
        command.into_iter().for_each(|command| self.shared.command(command));
    }
}

impl Drop for UploadGuard {
    fn drop(&mut self) {
        if self.has_ended {
            return;
        }
        let why =
            if std::thread::panicking() { "its body panicked" } else { "its body ended with the runtime" };
        self.shared.command(Command::FailUpload(self.id, why.into()));
    }
}

/// Hands over the body of a request as it comes and as it leaves.
async fn pump<B>(shared: Arc<SharedBoard>, id: u64, cell: Arc<StreamCell>, mut body: Pin<Box<B>>)
where
    B: HttpBody,
    B::Error: Into<Box<dyn StdError + Send + Sync>>,
{
    let guard = UploadGuard { shared, id, has_ended: false };
    loop {
        // A body that is always ready must not keep the task of the driver from its turn.
        tokio::task::coop::consume_budget().await;
        let frame = poll_fn(|cx| {
            let mut state = cell.lock();
            if state.over {
                return Poll::Ready(None);
            }
            state.writer = Some(cx.waker().clone());
            if state.unsent >= STREAMED_MARK {
                return Poll::Pending;
            }
            drop(state);
            body.as_mut().poll_frame(cx).map(Some)
        });
        match frame.await {
            None => return guard.end(None),
            Some(None) => return guard.end(Some(Command::GiveEnd(id))),
            Some(Some(Err(error))) => {
                let error = error.into();
                let why = ErrorDetail::by(format!("its body failed: {error}"), error);
                return guard.end(Some(Command::FailUpload(id, why)));
            }
            Some(Some(Ok(frame))) => {
                // Trailers of requests are not sent.
                let Ok(mut data) = frame.into_data() else { continue };
                let piece = data.copy_to_bytes(data.remaining());
                if piece.is_empty() {
                    continue;
                }
                cell.lock().unsent += piece.len();
                guard.shared.command(Command::Give(id, piece));
            }
        }
    }
}

/// The body of a response, as it comes.
pub(super) struct Incoming {
    client: Arc<Inner>,
    id: u64,
    cell: Arc<StreamCell>,
    /// Bytes taken that the driver does not know of.
    taken: usize,
    over: bool,
}

impl Incoming {
    pub(super) fn poll_frame(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Error>>> {
        if self.over {
            return Poll::Ready(None);
        }
        let mut state = self.cell.lock();
        if let Some(piece) = state.pieces.pop() {
            let is_last = state.pieces.is_empty();
            drop(state);
            self.taken += piece.len();
            if is_last || self.taken >= STREAMED_MARK / 4 {
                self.client.shared.command(Command::Taken(self.id, std::mem::take(&mut self.taken)));
            }
            return Poll::Ready(Some(Ok(Frame::data(piece))));
        }
        let Some(end) = state.end.take() else {
            state.reader = Some(cx.waker().clone());
            return Poll::Pending;
        };
        drop(state);
        self.over = true;
        match end {
            Ok(Some(Trailers(trailers))) => Poll::Ready(Some(Ok(Frame::trailers(trailers)))),
            Ok(None) => Poll::Ready(None),
            Err(error) => Poll::Ready(Some(Err(error))),
        }
    }

    pub(super) fn is_over(&self) -> bool {
        self.over
    }
}

impl Drop for Incoming {
    fn drop(&mut self) {
        if !self.over {
            self.client.shared.give_up(self.id);
        }
    }
}
