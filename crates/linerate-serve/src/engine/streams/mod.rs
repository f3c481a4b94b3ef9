//! HTTP/2 beside HTTP/1.1: the streams of a connection have their handlers and their responses.
//!
//! From [`Engine::call`] down, and up again from [`Response`](crate::Response), everything is shared
//! with HTTP/1.1. Here are only the order of the streams, their bodies, and their ends.

mod begin;
mod respond;

use std::task::Waker;

use linerate_http::h2::Code;
use linerate_http::h2::server::ClientEvent;
use linerate_net::Close;

use super::Engine;
use crate::answer::Asked;
use crate::connection::ServedConnection;
use crate::http2::{Deferred, Doing, Early, Fed, Pumped, REQUESTS, Session, Stream};
use crate::limits::{H2_CONNECTION_WINDOW, H2_HEADS, H2_HEADS_FREE, H2_HELD, H2_PIECE, H2_ROUNDS};
use crate::tasks::Polled;
use crate::{Handler, Response, access_log};

impl<H: Handler> Engine<H> {
    /// Offers HTTP/2, or no longer.
    pub(crate) fn set_http2(&mut self, on: bool) {
        self.speaks_http2 = on;
    }

    /// The client speaks HTTP/2 from here on.
    pub(crate) fn begin_http2(&mut self, c: &mut ServedConnection) {
        self.begin_session(c, false);
    }

    /// The connection is one of QUIC, whose client speaks HTTP/3.
    pub(crate) fn begin_http3(&mut self, c: &mut ServedConnection) {
        self.begin_session(c, true);
    }

    fn begin_session(&mut self, c: &mut ServedConnection, http3: bool) {
        let session = Session::new(&self.http2, self.now, http3);
        self.counts.stream_connection(http3);
        self.work(c).http2 = Some(session);
    }

    /// Takes received bytes.
    pub(super) fn receive_frames(&mut self, c: &mut ServedConnection, bytes: &[u8]) {
        let now = self.now;
        if let Some(session) = c.http2() {
            session.receive(bytes, now);
        }
    }

    /// Reads the bytes received, responds to requests, and sends what the client takes, as far as `room` goes.
    pub(crate) fn turn_streams(&mut self, c: &mut ServedConnection, room: usize) {
        let Some(mut session) = c.work.as_mut().and_then(|work| work.http2.take()) else { return };
        // Handlers that were woken have responded already.
        self.out.append(session.server.out());
        *session.server.out() = std::mem::take(&mut self.out);
        session.server.begin_turn(self.now);
        session.more = true;
        for _ in 0..H2_ROUNDS {
            let progress = self.round(c, &mut session, room);
            if session.is_over() {
                session.more = false;
                break;
            }
            if session.server.out().len() >= room {
                // The rest waits for room in the transport, not for a wakeup.
                break;
            }
            if !progress {
                session.more = false;
                break;
            }
        }
        self.out = std::mem::take(session.server.out());
        session.rest();
        self.count_held(&mut session);
        if session.is_over() && c.closing.is_none() {
            if session.flooded {
                self.counts.flooded(session.server.is_http3());
            }
            self.end_streams(&mut session, access_log::LEFT);
            // A flood is not read on: its client hardly reads why.
            c.closing = Some(if session.flooded { Close::Now } else { Close::Lingering });
        }
        self.work(c).http2 = Some(session);
    }

    /// Bytes that the client's windows keep back count as unsent ones do, and so do large heads.
    fn count_held(&mut self, session: &mut Session) {
        let held = session.count_held() + session.count_heads().saturating_sub(H2_HEADS_FREE);
        self.allowance.changed(session.counted, held);
        session.counted = held;
    }

    /// Bytes that the client's windows may keep back before further requests wait.
    fn most_held(&self) -> usize {
        if self.allowance.is_scarce() { self.allowance.each() } else { H2_HELD }
    }

    /// One pass over everything; returns whether something moved.
    fn round(&mut self, c: &mut ServedConnection, session: &mut Session, room: usize) -> bool {
        let mut progress = self.read_frames(c, session, room);
        if c.peer_ended && !session.is_stuck {
            session.fin.get_or_insert(self.now);
        }
        if session.is_over() {
            return progress;
        }
        progress |= self.feed_uploads(c, session);
        progress |= self.pump_streams(session, room);
        if session.fin.is_some() {
            progress |= self.end_in_vain(session);
        }
        progress
    }

    /// The client has sent its FIN: its windows stay as they are, and behind the last response the
    /// connection ends.
    fn end_in_vain(&mut self, session: &mut Session) -> bool {
        let mut progress = false;
        while let Some(at) = session.streams.iter().position(|stream| session.is_in_vain(stream)) {
            let stream = session.streams.swap_remove(at);
            self.end_stream(session, stream, access_log::LEFT);
            progress = true;
        }
        if session.streams.is_empty() && session.deferred.is_empty() {
            session.cut(Code::NO_ERROR);
        }
        progress
    }

    /// Reads what has come, and begins with requests as far as there is room for responses.
    fn read_frames(&mut self, c: &mut ServedConnection, session: &mut Session, room: usize) -> bool {
        session.held = session.count_held();
        let mut most = if session.is_full_of_files() { 0 } else { self.most_held() };
        let mut begun = self.begin_deferred(c, session, room, most);
        let bytes = std::mem::take(&mut session.input);
        let mut rest = &bytes[session.read..];
        session.is_stuck = false;
        while !rest.is_empty() {
            if begun >= REQUESTS || session.server.out().len() >= room {
                session.is_stuck = true;
                break;
            }
            match session.server.next(&mut rest, &mut self.http2.heads) {
                Some(ClientEvent::Request(request)) if self.has_too_many_heads(session) => {
                    session.server.reset(request.stream, Code::REFUSED_STREAM);
                }
                // Other frames are read on: they may open the windows that are waited for.
                Some(ClientEvent::Request(request)) if session.held >= most && request.head.is_ok() => {
                    session.deferred.push_back(Deferred { request, early: Early::default() });
                }
                Some(ClientEvent::Request(request)) => {
                    begun += 1;
                    let before = session.streams.len();
                    self.stream(c, session, request, Early::default(), &mut rest);
                    if let Some(stream) = session.streams.get(before) {
                        session.held += stream.held();
                        if stream.keeps_file() && session.is_full_of_files() {
                            most = 0;
                        }
                    }
                }
                Some(ClientEvent::Data { stream, content, ends }) => session.content(stream, content, ends),
                Some(ClientEvent::Trailers { stream, fields }) => session.trailers(stream, fields),
                Some(ClientEvent::Refused { status, .. }) => {
                    self.refused_head(c, session.server.is_http3(), status);
                }
                Some(ClientEvent::Reset { stream }) => {
                    if let Some(stream) = session.take(stream) {
                        self.end_stream(session, stream, access_log::LEFT);
                    }
                }
                None => break,
            }
        }
        session.count_frames(self.now);
        session.flooded |= session.server.is_flooded();
        session.read = bytes.len() - rest.len();
        session.input = bytes;
        session.drop_read();
        begun > 0
    }

    /// A request that was no request.
    #[cold]
    fn refused_head(&mut self, c: &ServedConnection, http3: bool, status: u16) {
        self.counts.malformed(http3);
        self.counts.answered(status);
        let asked = Asked::by_none(c.peer, self.http2.heads.first_line(), self.now);
        self.log_line(&asked, status, 0);
    }

    /// Begins with requests that had to wait; returns how many.
    fn begin_deferred(
        &mut self,
        c: &mut ServedConnection,
        session: &mut Session,
        room: usize,
        most: usize,
    ) -> usize {
        let mut begun = 0;
        while session.held < most
            && !session.is_full_of_files()
            && session.server.out().len() < room
            && !session.is_over()
        {
            let Some(Deferred { request, early }) = session.deferred.pop_front() else { break };
            begun += 1;
            self.stream(c, session, request, early, &mut &[][..]);
            session.held = session.count_held();
        }
        begun
    }

    /// Whether the heads of a connection's requests take more than it may have while memory is scarce.
    fn has_too_many_heads(&self, session: &Session) -> bool {
        self.allowance.is_scarce() && session.count_heads() >= H2_HEADS
    }

    /// Passes on what has arrived of requests' bodies.
    fn feed_uploads(&mut self, c: &mut ServedConnection, session: &mut Session) -> bool {
        let mut progress = false;
        let mut at = 0;
        while at < session.streams.len() {
            let stream = &mut session.streams[at];
            let id = stream.id;
            let handling = matches!(stream.doing, Doing::Handling);
            if let Some(upload) = &mut stream.upload
                && handling
                && upload.progress.take_continue()
            {
                session.server.write_interim(id, 100);
                progress = true;
            }
            // The bytes after a request for a tunnel wait for the response.
            let Some(upload) = stream.upload.as_mut().filter(|upload| !handling || upload.most < u64::MAX)
            else {
                at += 1;
                continue;
            };
            let before = upload.progress.received;
            let fed = upload.feed(id, &mut session.server, self.now, session.fin.is_some());
            progress |= upload.progress.received != before || fed != Fed::Waits;
            match fed {
                Fed::Waits => {
                    if session.wide.is_none() && upload.progress.received != before {
                        session.wide = self.unread.widen();
                        session.wide.iter().for_each(|_| session.server.widen(H2_CONNECTION_WINDOW));
                    }
                    at += 1;
                }
                Fed::TooLarge if handling => {
                    let mut stream = session.streams.swap_remove(at);
                    stream.upload = stream.upload.and_then(|upload| upload.refused(&mut session.server));
                    self.refuse_stream(c, session, stream, 413, "the body is too large");
                }
                Fed::Ended | Fed::Unwanted | Fed::TooLarge => {
                    if let Some(upload) = stream.upload.take() {
                        upload.drop_into(&mut session.server);
                    }
                    if matches!(stream.doing, Doing::Receiving) {
                        session.streams.swap_remove(at);
                        session.server.close(id);
                    } else {
                        at += 1;
                    }
                }
            }
        }
        progress
    }

    /// Gives each response its turn, as far as the transport takes it.
    fn pump_streams(&mut self, session: &mut Session, room: usize) -> bool {
        let (piece, most_held) = (H2_PIECE.min(self.allowance.each()), self.most_held());
        let (mut progress, mut files_wait) = (false, false);
        let mut at = session.next;
        for _ in 0..session.streams.len() {
            if session.server.out().len() >= room {
                break;
            }
            at = if at < session.streams.len() { at } else { 0 };
            if session.must_wait_for_files(at, &mut files_wait, self.now) {
                at += 1;
                continue;
            }
            let stream = &mut session.streams[at];
            let Doing::Sending(sending) = &mut stream.doing else {
                at += 1;
                continue;
            };
            let (before, held) = (sending.sent, sending.pending.len());
            let waker = stream.task.and_then(|task| self.tasks.waker(task));
            let waker = waker.as_ref().unwrap_or(Waker::noop());
            let ahead = session.held < most_held;
            let pumped = sending.pump(stream.id, &mut session.server, waker, piece, ahead);
            session.held = session.held.saturating_sub(held) + sending.pending.len();
            if sending.sent > before {
                session.frames.sent();
                if !sending.is_blocked && sending.sent_then == 0 {
                    sending.since = self.now;
                }
            }
            progress |= pumped != Pumped::Waits;
            match pumped {
                Pumped::Waits | Pumped::More => at += 1,
                Pumped::Done | Pumped::Broken => {
                    let stream = session.streams.swap_remove(at);
                    self.response_over(session, stream);
                }
                Pumped::Gone => {
                    let stream = session.streams.swap_remove(at);
                    self.end_stream(session, stream, access_log::LEFT);
                }
            }
        }
        session.next = at;
        progress
    }

    /// A task of a stream was woken.
    pub(super) fn poll_stream(&mut self, c: &mut ServedConnection, task: u32) {
        let Some(mut session) = c.work.as_mut().and_then(|work| work.http2.take()) else { return };
        if let Some(at) = session.streams.iter().position(|stream| stream.task == Some(task)) {
            match &mut session.streams[at].doing {
                Doing::Sending(sending) => sending.is_ready = true,
                Doing::Receiving => {}
                Doing::Handling => self.poll_handler(c, &mut session, at, task),
            }
        }
        self.work(c).http2 = Some(session);
    }

    fn poll_handler(&mut self, c: &mut ServedConnection, session: &mut Session, at: usize, task: u32) {
        self.watch.enter();
        let polled = self.tasks.poll(task);
        self.watch.leave(&session.streams[at].asked, &self.counts);
        let response = match polled {
            Polled::Pending => return,
            Polled::Ready(response) => response,
            Polled::Panicked => self.panicked_stream(),
        };
        let mut stream = session.streams.swap_remove(at);
        stream.task = None;
        c.progressed = true;
        self.respond(c, session, stream, response);
    }

    fn panicked_stream(&mut self) -> crate::Response {
        self.counts.panicked();
        Response::explained(500, "the handler failed")
    }

    /// Ends a stream that gets no response, or no more of it. `why` stands in place of its status.
    fn end_stream(&mut self, session: &mut Session, mut stream: Stream, why: u16) {
        session.server.close(stream.id);
        if let Some(upload) = stream.upload.take() {
            upload.progress.cut();
            upload.drop_into(&mut session.server);
        }
        if let Some(task) = stream.task {
            self.tasks.cancel(task);
        }
        match &stream.doing {
            Doing::Handling => self.log_line(&stream.asked, why, 0),
            Doing::Sending(sending) => self.log_line(&stream.asked, sending.status, sending.sent),
            Doing::Receiving => {}
        }
    }

    /// Ends all streams of a connection.
    fn end_streams(&mut self, session: &mut Session, why: u16) {
        for stream in std::mem::take(&mut session.streams) {
            self.end_stream(session, stream, why);
        }
    }

    /// The connection is gone.
    pub(crate) fn forget_streams(&mut self, c: &mut ServedConnection, why: u16) {
        if let Some(mut session) = c.work.as_mut().and_then(|work| work.http2.take()) {
            session.deferred.clear();
            self.end_streams(&mut session, why);
            self.count_held(&mut session);
        }
    }

    /// Ends what has taken too long.
    pub(crate) fn expire_streams(&mut self, c: &mut ServedConnection) {
        let Some(mut session) = c.work.as_mut().and_then(|work| work.http2.take()) else { return };
        let now = self.now;
        let overdue = |since| since + self.limits.header_time <= now;
        if session.head_since().is_some_and(overdue) {
            session.cut(Code::ENHANCE_YOUR_CALM);
        }
        let limits = self.limits;
        if session.fin.zip(limits.after_fin()).is_some_and(|(fin, time)| fin + time <= now) {
            let handling = |stream: &mut Stream| matches!(stream.doing, Doing::Handling);
            let handling: Vec<Stream> = session.streams.extract_if(.., handling).collect();
            handling.into_iter().for_each(|stream| self.end_stream(&mut session, stream, access_log::LEFT));
        }
        let late: Vec<Stream> =
            session.streams.extract_if(.., |stream| stream.is_late(now, &limits)).collect();
        for mut stream in late {
            if let Some(upload) = stream.upload.take() {
                upload.progress.cut();
                upload.drop_into(&mut session.server);
            }
            match stream.doing {
                Doing::Handling => {
                    self.refuse_stream(c, &mut session, stream, 408, "the request's body took too long");
                }
                Doing::Sending(_) => session.streams.push(stream),
                Doing::Receiving => session.server.close(stream.id),
            }
        }
        let stalled = |stream: &mut Stream| {
            let time = stream.write_time.unwrap_or(limits.write_time);
            match &mut stream.doing {
                Doing::Sending(sending) => sending.is_stalled(now, &limits, time),
                _ => false,
            }
        };
        let stalled: Vec<Stream> = session.streams.extract_if(.., stalled).collect();
        stalled.into_iter().for_each(|stream| self.end_stream(&mut session, stream, access_log::LEFT));
        self.work(c).http2 = Some(session);
    }
}
