//! Bodies as streams: those of requests come piece by piece from the owner, those of responses go to it as they come.

use std::collections::VecDeque;

use bytes::Bytes;
use http::Request;
use linerate_net::{Conn, Time, Transport};

use super::request::{self, Nature};
use super::streamed::{News, Streaming, Upload};
use super::table::OpenCall;
use super::{CallReading, Calls, Done};
use crate::Loss;
use crate::client::error::{Error, ErrorDetail, Phase};
use crate::client::limits::{STREAMED_MARK, UNSENT_MARK};
use crate::conversation::Conversation;

impl<T: Transport, C: Conversation<Reading = CallReading>> Calls<T, C> {
    /// As [`submit`](Calls::submit), for a call whose response is handed over as it comes ([`news`](Calls::news)); its
    /// [`Done`] then has an empty body. `upload`: the request's body follows by [`give`](Calls::give), and its length if
    /// that is known. Such a request is never sent again.
    pub fn submit_streaming(
        &mut self,
        id: u64,
        request: Request<Bytes>,
        upload: Option<Option<u64>>,
        accepted: Time,
    ) {
        self.statistics.calls += 1;
        if let Err(error) = request::check(&request, &self.options) {
            return self.done.push(Done { id, result: Err(error) });
        }
        let mut nature = Nature::of(&request, self.options.tag.is_some());
        nature.alone = true;
        nature.idempotent &= upload.is_none();
        let terms = self.terms(&request, accepted);
        let mut call = OpenCall::new(id, request, nature, terms);
        let upload = upload.map(|length| Upload {
            length,
            given: 0,
            pending: VecDeque::new(),
            ended: length == Some(0),
        });
        call.streaming = Some(Box::new(Streaming { upload, held: 0, paused: false, touched: accepted }));
        self.calls.insert(call);
        self.queues.alone.push_back(id);
        self.streaming.push(id);
    }

    /// News of calls whose bodies are streams, since the owner took them last.
    pub fn news(&mut self) -> &mut Vec<News> {
        &mut self.news
    }

    /// The next piece of a request's body. The owner gives no more than it has memory for: see [`News::Left`].
    pub fn give(&mut self, id: u64, piece: Bytes, now: Time) {
        let Some(streaming) = self.calls.get_mut(id).and_then(|call| call.streaming.as_mut()) else { return };
        let Some(upload) = &mut streaming.upload else { return };
        upload.given += piece.len() as u64;
        if upload.length.is_some_and(|length| upload.given > length) {
            return self.fail_upload(id, "its body is longer than announced");
        }
        streaming.touched = now;
        if !piece.is_empty() {
            upload.pending.push_back(piece);
        }
    }

    /// The request's body is whole.
    pub fn give_end(&mut self, id: u64) {
        let Some(streaming) = self.calls.get_mut(id).and_then(|call| call.streaming.as_mut()) else { return };
        let Some(upload) = &mut streaming.upload else { return };
        if upload.length.is_some_and(|length| upload.given < length) {
            return self.fail_upload(id, "its body is shorter than announced");
        }
        upload.ended = true;
    }

    /// There is no more of the request's body, and it is not whole: nothing may pass for it.
    pub fn fail_upload(&mut self, id: u64, why: impl Into<ErrorDetail>) {
        let Some(call) = self.calls.take(id) else { return };
        self.forget(&call);
        self.done.push(call.fail(Error::Request(why.into())));
    }

    /// The owner has consumed this many bytes of a response.
    pub fn taken(&mut self, id: u64, bytes: usize, now: Time) {
        let Some(call) = self.calls.get_mut(id) else { return };
        let Some(streaming) = &mut call.streaming else { return };
        streaming.held = streaming.held.saturating_sub(bytes);
        if streaming.paused && streaming.held <= STREAMED_MARK / 2 {
            (streaming.paused, streaming.touched) = (false, now);
            if let Some(conn) = call.conn {
                self.hold(conn, id, false);
            }
        }
    }

    /// The owner holds much of these responses: no more of them is read.
    pub(super) fn pause_full(&mut self, full: Vec<u64>) {
        for id in full {
            let Some(call) = self.calls.get_mut(id) else { continue };
            if let (Some(conn), Some(streaming)) = (call.conn, &mut call.streaming) {
                streaming.paused = true;
                self.hold(conn, id, true);
            }
        }
    }

    fn hold(&mut self, conn: Conn, id: u64, paused: bool) {
        let Some(pipe) = self.pool.get_mut(conn) else { return };
        match (pipe.conversation.has_streams(), paused) {
            (true, _) => {
                pipe.conversation.hold(id, paused);
                self.speak.push(conn);
            }
            // It is alone there.
            (false, true) => self.transport.pause(conn),
            (false, false) => self.resume(conn),
        }
    }

    /// An abandoned call was taken out.
    pub(super) fn forget(&mut self, call: &OpenCall) {
        let Some(conn) = call.conn else { return };
        let streams = self.pool.get_mut(conn).is_some_and(|pipe| pipe.conversation.has_streams());
        if streams {
            // On a stream of its own nothing of the response is wanted any more.
            if self.pool.cancel(conn, call.id()) {
                self.speak.push(conn);
            }
        } else if call.streaming.as_ref().is_some_and(|streaming| streaming.paused) {
            // The rest of the response is read and discarded, within limits.
            self.resume(conn);
        }
    }

    /// Asks for a turn: bytes that arrived during the pause cause no new event of the kernel.
    fn resume(&mut self, conn: Conn) {
        self.transport.resume(conn);
        self.wants_turn = true;
    }

    /// Closes the connections of calls that ended before their requests had left whole: the next request would
    /// be read as the rest of the body. By HTTP/2 only the stream ends.
    pub(super) fn cut_uploads(&mut self, now: Time) {
        let mut at = 0;
        while at < self.uploading.len() {
            let (id, conn) = self.uploading[at];
            if self.calls.get(id).is_some() {
                at += 1;
                continue;
            }
            self.uploading.swap_remove(at);
            if self.pool.get_mut(conn).is_some_and(|pipe| !pipe.conversation.has_streams()) {
                self.lose(conn, &Loss::Unfinished, now);
            }
        }
    }

    /// Sends what there is of the bodies of requests.
    pub(super) fn pump_uploads(&mut self, now: Time) {
        let mut at = 0;
        while at < self.uploading.len() {
            let (id, conn) = self.uploading[at];
            if self.pump(id, conn, now) {
                at += 1;
            } else {
                self.uploading.swap_remove(at);
            }
        }
    }

    /// Says whether there will be more.
    fn pump(&mut self, id: u64, conn: Conn, now: Time) -> bool {
        let Calls { calls, pool, transport, out, news, speak, .. } = self;
        let Some(pipe) = pool.get_mut(conn) else { return false };
        let streams = pipe.conversation.has_streams();
        let streaming = calls.get_mut(id).and_then(|call| call.streaming.as_mut());
        let Some(Streaming { upload: Some(upload), touched, .. }) =
            streaming.map(|streaming| &mut **streaming)
        else {
            // `cut_uploads` finds it in the next turn.
            return true;
        };
        // By HTTP/1.1 a request ends with the last byte that it announced.
        upload.ended |= !streams && upload.length == Some(upload.given);
        let (mut left, mut has_room) = (0, true);
        if streams {
            let Some(backlog) = pipe.conversation.upload_backlog(id) else { return false };
            has_room = backlog < UNSENT_MARK;
            if has_room {
                for piece in upload.pending.drain(..) {
                    left += piece.len();
                    pipe.conversation.give(id, piece);
                }
                if upload.ended {
                    pipe.conversation.give_end(id);
                }
                speak.push(conn);
            }
        } else {
            while transport.unsent(conn) + out.len() < UNSENT_MARK
                && let Some(piece) = upload.pending.pop_front()
            {
                left += piece.len();
                out.piece(&piece, upload.length.is_none());
            }
        }
        let is_over = upload.ended && upload.pending.is_empty() && has_room;
        if is_over && !streams && upload.length.is_none() {
            out.last_chunk();
        }
        if left > 0 {
            *touched = now;
            pipe.beside.progress = now;
            news.push(News::Left(id, left));
        }
        self.flush(conn, now);
        !is_over
    }

    /// Calls on which nothing has moved for too long.
    pub(super) fn sweep_streaming(&mut self, now: Time) {
        let calls = &self.calls;
        self.streaming.retain(|id| calls.get(*id).is_some());
        for at in 0..self.streaming.len() {
            let id = self.streaming[at];
            let Some(call) = self.calls.get(id) else { continue };
            let (Some(conn), Some(streaming)) = (call.conn, &call.streaming) else { continue };
            let o = &self.options;
            let own = call.is_own.then(|| call.timeout());
            let patience = own.unwrap_or(if call.begun { o.timeout } else { o.first_byte_timeout });
            let since = streaming.touched.max(call.sent.unwrap_or(now));
            if !streaming.waits_for_server() || now - since < patience {
                continue;
            }
            let phase = if call.begun { Phase::Response } else { Phase::FirstByte };
            let begun = call.begun;
            let streams = self.pool.get_mut(conn).is_some_and(|pipe| pipe.conversation.has_streams());
            if streams && self.pool.cancel(conn, id) {
                self.speak.push(conn);
            }
            match begun {
                true => self.end(id, Err(Error::timeout(phase))),
                false => self.end_unanswered(id, phase, "the response did not begin in time"),
            }
            if !streams {
                self.lose(conn, &Loss::TimedOut, now);
            }
        }
    }
}
