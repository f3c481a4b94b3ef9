//! One stream: its request's body, its handler, its response's body.

use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use bytes::Bytes;
use linerate_http::h2::Code;
use linerate_http::server::{CheckedFields, RequestFault};
use linerate_net::Time;

use super::{Early, StreamFraming};
use crate::answer::Asked;
use crate::limits::Limits;
use crate::message::body::{BodyError, SharedUpload};
use crate::message::file_body::FileBody;
use crate::message::stream::Streamed;
use crate::upload::UploadProgress;
use crate::waits::Waits;

/// A stream whose request or response is not complete.
pub(crate) struct Stream {
    /// Its number.
    pub(crate) id: u32,
    pub(crate) asked: Asked,
    /// The task in whose name its handler or its response is polled.
    pub(crate) task: Option<u32>,
    /// The body of the request, while it arrives.
    pub(crate) upload: Option<Upload>,
    pub(crate) doing: Doing,
    /// The time to take part of the response that its route grants, in place of the server's.
    pub(crate) write_time: Option<Duration>,
}

/// How far a stream has come.
pub(crate) enum Doing {
    /// Its handler is still running.
    Handling,
    Sending(Sending),
    /// The response is complete, the request is not.
    Receiving,
}

/// The body of a request that is arriving.
pub(crate) struct Upload {
    /// What has come and was not passed on.
    pub(crate) early: Early,
    /// Most bytes that it may have.
    pub(crate) most: u64,
    /// The request was refused for its size.
    unwanted: bool,
    pub(crate) progress: UploadProgress,
}

/// The result of reading a body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fed {
    Waits,
    Ended,
    /// It is larger than allowed.
    TooLarge,
    /// No handler wants it, and too much of it was dropped already.
    Unwanted,
}

impl Upload {
    pub(crate) fn new(shared: &Arc<SharedUpload>, early: Early, most: u64, now: Time) -> Upload {
        Upload { early, most, unwanted: false, progress: UploadProgress::new(shared, now) }
    }

    /// Passes on what has arrived, as far as the reader has room. The window grows by what is
    /// passed on, which slows the client down to the reader. `cut`: the client sends nothing more.
    pub(crate) fn feed(&mut self, id: u32, server: &mut StreamFraming, now: Time, cut: bool) -> Fed {
        loop {
            if self.progress.shared.is_full() {
                // The client waits for the reader.
                self.progress.began = self.progress.began.max(now);
                return Fed::Waits;
            }
            let Some(piece) = self.early.waiting.pop_front() else { break };
            server.release(id, piece.len());
            let outcome = self.take(piece);
            if outcome != Fed::Waits {
                return outcome;
            }
        }
        match self.early.end.take() {
            Some(trailers) => {
                self.progress.shared.end(Ok(()), trailers);
                Fed::Ended
            }
            None if cut => {
                self.progress.cut();
                Fed::Ended
            }
            None => Fed::Waits,
        }
    }

    fn take(&mut self, piece: Bytes) -> Fed {
        self.progress.expects_continue = false;
        self.progress.received += piece.len() as u64;
        let unwanted = self.unwanted || self.progress.shared.is_abandoned();
        if !unwanted && self.progress.received > self.most {
            self.progress.shared.end(Err(BodyError::Fault(RequestFault::BodyTooLarge)), Vec::new());
            return Fed::TooLarge;
        }
        if unwanted {
            return if self.progress.discard(piece.len()) { Fed::Unwanted } else { Fed::Waits };
        }
        self.progress.shared.push(piece);
        Fed::Waits
    }

    /// Nobody reads the rest.
    pub(crate) fn drop_into(mut self, server: &mut StreamFraming) {
        self.early.drop_into(server);
    }

    /// What is still read of a body that is too large, so that its client, which may send it before
    /// it reads the response, is not reset meanwhile. `None` if the client asks before it sends.
    pub(crate) fn refused(mut self, server: &mut StreamFraming) -> Option<Upload> {
        if self.progress.expects_continue {
            self.drop_into(server);
            return None;
        }
        self.unwanted = true;
        Some(self)
    }

    fn deadline(&self, limits: &Limits) -> Time {
        if self.progress.shared.is_full() || self.most == u64::MAX {
            return Time::NEVER;
        }
        self.progress.began + self.progress.granted(limits)
    }
}

/// A response whose body is being sent.
pub(crate) struct Sending {
    pub(crate) status: u16,
    pub(crate) source: ResponseSource,
    /// Taken from the source, not given to the stream.
    pub(crate) pending: Bytes,
    /// The source may have more.
    pub(crate) is_ready: bool,
    /// The client's window is used up.
    pub(crate) is_blocked: bool,
    pub(crate) sent: u64,
    /// When the rate was last looked at, and how much was sent then.
    pub(crate) since: Time,
    pub(crate) sent_then: u64,
}

/// Where the body of a response comes from.
pub(crate) enum ResponseSource {
    /// Everything is pending.
    Nothing,
    /// The bytes left, if it has announced a length.
    Stream(Streamed, Option<u64>),
    File(FileBody),
}

/// How far a response has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Pumped {
    /// All of it was written.
    Done,
    /// It waits for its source or for the client's window.
    Waits,
    /// It has more.
    More,
    /// The source failed: the stream was reset.
    Broken,
    /// The stream is over.
    Gone,
}

/// The result of polling a source.
enum PolledPiece {
    Bytes(Bytes),
    End(Option<CheckedFields>),
    Waits,
    Failed,
}

impl Sending {
    pub(crate) fn new(status: u16, source: ResponseSource, pending: Bytes, now: Time) -> Sending {
        Sending {
            status,
            is_ready: !matches!(source, ResponseSource::Nothing),
            source,
            pending,
            is_blocked: false,
            sent: 0,
            since: now,
            sent_then: 0,
        }
    }

    /// Writes one piece of at most `most` bytes, if the client's windows allow it. `ahead`: while
    /// they don't, the next piece of a handler's stream may be taken from it.
    pub(crate) fn pump(
        &mut self,
        id: u32,
        server: &mut StreamFraming,
        waker: &Waker,
        most: usize,
        ahead: bool,
    ) -> Pumped {
        let Some(room) = server.room(id) else { return Pumped::Gone };
        self.is_blocked = false;
        if self.pending.is_empty() {
            if !self.is_ready {
                return Pumped::Waits;
            }
            if room == 0 && !(ahead && self.source.may_be_over()) {
                self.is_blocked = true;
                return Pumped::Waits;
            }
            match self.source.next(waker, room.min(most)) {
                PolledPiece::Bytes(bytes) => self.pending = bytes,
                PolledPiece::End(fields) => {
                    server.write_trailers(id, &fields.unwrap_or_default());
                    return Pumped::Done;
                }
                PolledPiece::Failed => {
                    server.reset(id, Code::INTERNAL_ERROR);
                    return Pumped::Broken;
                }
                PolledPiece::Waits => {
                    self.is_ready = false;
                    return Pumped::Waits;
                }
            }
            if self.pending.is_empty() {
                return Pumped::More;
            }
        }
        let len = room.min(self.pending.len()).min(most);
        self.is_blocked = len == 0;
        if len == 0 {
            return Pumped::Waits;
        }
        let piece = self.pending.split_to(len);
        let last = self.pending.is_empty() && self.source.is_over();
        self.sent += len as u64;
        server.write_data(id, &piece, last);
        if last { Pumped::Done } else { Pumped::More }
    }

    /// Whether the client takes less than the least rate.
    pub(crate) fn is_stalled(&mut self, now: Time, limits: &Limits, write_time: Duration) -> bool {
        if !self.is_blocked || now < self.since + write_time {
            return false;
        }
        let least = (now - self.since).as_secs() * limits.least_rate;
        let stalled = self.sent - self.sent_then < least.max(1);
        (self.since, self.sent_then) = (now, self.sent);
        stalled
    }
}

impl ResponseSource {
    /// Whether nothing comes after what is pending.
    fn is_over(&self) -> bool {
        match self {
            ResponseSource::Nothing => true,
            ResponseSource::Stream(_, left) => *left == Some(0),
            ResponseSource::File(body) => body.is_over(),
        }
    }

    /// Whether it may end without another byte: the end needs no window (RFC 9113 section 6.9).
    fn may_be_over(&self) -> bool {
        matches!(self, ResponseSource::Stream(_, None | Some(0)))
    }

    /// The next piece, with at most `most` bytes of a file.
    fn next(&mut self, waker: &Waker, most: usize) -> PolledPiece {
        let mut context = Context::from_waker(waker);
        match self {
            ResponseSource::Nothing => PolledPiece::End(None),
            ResponseSource::Stream(stream, left) => match stream.poll_next(&mut context) {
                Poll::Pending => PolledPiece::Waits,
                Poll::Ready(Some(Ok(bytes))) => {
                    if let Some(left) = left {
                        let Some(rest) = left.checked_sub(bytes.len() as u64) else {
                            return PolledPiece::Failed;
                        };
                        *left = rest;
                    }
                    PolledPiece::Bytes(bytes)
                }
                // It is shorter than it said.
                Poll::Ready(None) if left.is_some_and(|left| left > 0) => PolledPiece::Failed,
                Poll::Ready(None) => stream.trailers().map_or(PolledPiece::Failed, PolledPiece::End),
                Poll::Ready(Some(Err(_))) => PolledPiece::Failed,
            },
            ResponseSource::File(body) => match body.poll_slice(most, &mut context) {
                Poll::Pending => PolledPiece::Waits,
                Poll::Ready(Ok(None)) => PolledPiece::End(None),
                Poll::Ready(Ok(Some(slice))) => slice.read().map_or(PolledPiece::Failed, PolledPiece::Bytes),
                Poll::Ready(Err(_)) => PolledPiece::Failed,
            },
        }
    }
}

impl Stream {
    /// The event that it waits for.
    pub(crate) fn waits(&self) -> Waits {
        match &self.doing {
            Doing::Sending(sending) if sending.is_blocked => return Waits::Write,
            _ => {}
        }
        match &self.upload {
            Some(upload) if !upload.progress.shared.is_full() && upload.most != u64::MAX => Waits::Body,
            _ => Waits::Handler,
        }
    }

    /// When it has taken too long.
    pub(crate) fn deadline(&self, limits: &Limits) -> Time {
        let upload = self.upload.as_ref().map_or(Time::NEVER, |upload| upload.deadline(limits));
        match &self.doing {
            Doing::Sending(sending) if sending.is_blocked => {
                upload.min(sending.since + self.write_time.unwrap_or(limits.write_time))
            }
            _ => upload,
        }
    }

    /// Whether its request's body takes too long.
    pub(crate) fn is_late(&self, now: Time, limits: &Limits) -> bool {
        self.upload.as_ref().is_some_and(|upload| upload.deadline(limits) <= now)
    }

    /// The file that its response comes from.
    pub(crate) fn file(&mut self) -> Option<&mut FileBody> {
        match &mut self.doing {
            Doing::Sending(Sending { source: ResponseSource::File(body), .. }) => Some(body),
            _ => None,
        }
    }

    /// Whether it has a file open that has to stay so.
    pub(crate) fn keeps_file(&self) -> bool {
        match &self.doing {
            Doing::Sending(Sending { source: ResponseSource::File(body), .. }) => !body.may_close(),
            _ => false,
        }
    }

    /// Bytes of its response in memory.
    pub(crate) fn held(&self) -> usize {
        if let Doing::Sending(sending) = &self.doing { sending.pending.len() } else { 0 }
    }
}
