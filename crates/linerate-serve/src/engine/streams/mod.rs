//! HTTP/2 beside HTTP/1.1: the streams of a connection have their handlers and their responses.
//!
//! From [`Engine::call`] down, and up again from [`Response`](crate::Response), everything is shared
//! with HTTP/1.1. Here are only the order of the streams, their bodies, and their ends.

mod begin;
mod respond;

use std::task::Poll;

use ::h2::Reason;
use linerate_net::Close;

use super::Engine;
use crate::connection::Connection;
use crate::http2::{Doing, Fed, Flood, Pumped, REQUESTS, Session, Stream, Upload};
use crate::limits::{H2_HELD, H2_ROUNDS, UNSENT};
use crate::tasks::Polled;
use crate::{Handler, Response, access_log};

impl<H: Handler> Engine<H> {
    /// Offers HTTP/2, or no longer.
    pub(crate) fn set_http2(&mut self, on: bool) {
        self.speaks_http2 = on;
    }

    /// The client speaks HTTP/2 from here on.
    pub(crate) fn begin_http2(&mut self, c: &mut Connection) {
        let session = Session::new(&self.http2, self.now);
        self.counts.http2_connection();
        self.work(c).http2 = Some(session);
    }

    /// Takes received bytes.
    pub(super) fn receive_frames(&mut self, c: &mut Connection, bytes: &[u8]) {
        let Some(session) = c.http2() else { return };
        session.pipe.receive(bytes);
        if let Err(Flood) = session.frames.follow(bytes, self.now) {
            session.flooded = true;
            session.cut(Reason::ENHANCE_YOUR_CALM);
        }
    }

    /// Reads the bytes received, responds to requests, and sends what the client takes, as far as `room` goes.
    pub(crate) fn turn_streams(&mut self, c: &mut Connection, room: usize) {
        let Some(mut session) = c.work.as_mut().and_then(|work| work.http2.take()) else { return };
        session.pipe.lend(std::mem::take(&mut self.out), room);
        if c.peer_ended {
            session.pipe.end();
        }
        session.more = true;
        for _ in 0..H2_ROUNDS {
            let progress = self.round(c, &mut session);
            if session.pipe.room() == 0 && !session.is_over() {
                // The rest waits for room in the transport, not for a wakeup.
                break;
            }
            if session.is_over() || (!progress && !session.is_signalled()) {
                session.more = false;
                break;
            }
        }
        self.out = session.pipe.take_back();
        self.count_held(&mut session);
        if session.is_over() && c.closing.is_none() {
            if session.flooded {
                self.counts.http2_flooded();
            }
            self.end_streams(&mut session, access_log::LEFT);
            // A flood is not read on: its client hardly reads why.
            c.closing = Some(if session.flooded { Close::Now } else { Close::Lingering });
        }
        self.work(c).http2 = Some(session);
    }

    /// Bytes that the client's windows keep back count as unsent ones do.
    fn count_held(&mut self, session: &mut Session) {
        let held = session.held();
        self.allowance.changed(session.counted, held);
        session.counted = held;
    }

    /// One pass over everything; returns whether something moved.
    fn round(&mut self, c: &mut Connection, session: &mut Session) -> bool {
        let mut progress = false;
        let mut begun = 0;
        let scarce = self.allowance.each() < UNSENT;
        let most = if scarce { self.allowance.each() } else { H2_HELD };
        while begun < REQUESTS && session.held() < most {
            match session.accept() {
                Poll::Ready(Some((request, respond))) => {
                    begun += 1;
                    self.stream(c, session, request, respond);
                }
                Poll::Pending => break,
                Poll::Ready(None) => return false,
            }
        }
        progress |= begun > 0;
        if begun == 0 {
            session.flush();
        }
        progress |= self.look_at_resets(session);
        progress |= self.feed_uploads(c, session);
        progress |= self.pump_streams(session);
        progress
    }

    /// Ends the handlers and the responses of streams that the client has reset, or that had to be.
    fn look_at_resets(&mut self, session: &mut Session) -> bool {
        let waker = session.waker.clone();
        let gone: Vec<Stream> = session.streams.extract_if(.., |stream| stream.is_reset(&waker)).collect();
        let any = !gone.is_empty();
        gone.into_iter().for_each(|stream| self.end_stream(stream, access_log::LEFT));
        any
    }

    /// Passes on what has arrived of requests' bodies.
    fn feed_uploads(&mut self, c: &mut Connection, session: &mut Session) -> bool {
        let mut progress = false;
        let mut at = 0;
        while at < session.streams.len() {
            let stream = &mut session.streams[at];
            if let (Doing::Handling(respond), Some(upload)) = (&mut stream.doing, &mut stream.upload)
                && upload.expects_continue
                && upload.shared.is_wanted()
            {
                upload.expects_continue = false;
                progress |= respond::send_continue(respond);
            }
            let handling = matches!(stream.doing, Doing::Handling(_));
            // The bytes after a request for a tunnel wait for the response.
            let Some(upload) = stream.upload.as_mut().filter(|upload| !handling || upload.most < u64::MAX)
            else {
                at += 1;
                continue;
            };
            let before = upload.received;
            let fed = upload.feed(&session.waker, self.now);
            progress |= upload.received != before || fed != Fed::Waits;
            match fed {
                Fed::Waits => at += 1,
                Fed::TooLarge if handling => {
                    let mut stream = session.streams.swap_remove(at);
                    stream.upload = stream.upload.and_then(Upload::refused);
                    self.refuse_stream(c, session, stream, 413, "the body is too large");
                }
                Fed::Ended | Fed::Unwanted | Fed::TooLarge => {
                    stream.upload = None;
                    if matches!(stream.doing, Doing::Receiving) {
                        session.streams.swap_remove(at);
                    } else {
                        at += 1;
                    }
                }
                Fed::Broken => {
                    let stream = session.streams.swap_remove(at);
                    self.end_stream(stream, access_log::LEFT);
                }
            }
        }
        progress
    }

    /// Gives each response its turn, as far as the transport takes it.
    fn pump_streams(&mut self, session: &mut Session) -> bool {
        let mut progress = false;
        let mut room = session.pipe.room();
        let mut at = session.next;
        for _ in 0..session.streams.len() {
            if room == 0 {
                break;
            }
            at = if at < session.streams.len() { at } else { 0 };
            let stream = &mut session.streams[at];
            let Doing::Sending(sending) = &mut stream.doing else {
                at += 1;
                continue;
            };
            let before = sending.sent;
            let pumped = match stream.task.and_then(|task| self.tasks.waker(task)) {
                Some(waker) => sending.pump(&waker),
                None => sending.pump(&session.waker),
            };
            let sent = (sending.sent - before) as usize;
            room = room.saturating_sub(sent);
            if sent > 0 {
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
                    self.end_stream(stream, access_log::LEFT);
                }
            }
        }
        session.next = at;
        progress
    }

    /// A task of a stream was woken.
    pub(super) fn poll_stream(&mut self, c: &mut Connection, task: u32) {
        let Some(mut session) = c.work.as_mut().and_then(|work| work.http2.take()) else { return };
        if let Some(at) = session.streams.iter().position(|stream| stream.task == Some(task)) {
            match &mut session.streams[at].doing {
                Doing::Sending(sending) => sending.is_ready = true,
                Doing::Receiving => {}
                Doing::Handling(_) => self.poll_handler(c, &mut session, at, task),
            }
        }
        self.work(c).http2 = Some(session);
    }

    fn poll_handler(&mut self, c: &mut Connection, session: &mut Session, at: usize, task: u32) {
        self.enter();
        let polled = self.tasks.poll(task);
        self.leave(&session.streams[at].asked);
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
    fn end_stream(&mut self, mut stream: Stream, why: u16) {
        if let Some(upload) = stream.upload.take() {
            upload.shared.end(Err(crate::BodyError::Ended), Vec::new());
        }
        if let Some(task) = stream.task {
            self.tasks.cancel(task);
        }
        match &stream.doing {
            Doing::Handling(_) => self.log_line(&stream.asked, why, 0),
            Doing::Sending(sending) => self.log_line(&stream.asked, sending.status, sending.sent),
            Doing::Receiving => {}
        }
    }

    /// Ends all streams of a connection.
    fn end_streams(&mut self, session: &mut Session, why: u16) {
        for stream in std::mem::take(&mut session.streams) {
            self.end_stream(stream, why);
        }
    }

    /// The connection is gone.
    pub(crate) fn forget_streams(&mut self, c: &mut Connection, why: u16) {
        if let Some(mut session) = c.work.as_mut().and_then(|work| work.http2.take()) {
            self.end_streams(&mut session, why);
            self.count_held(&mut session);
        }
    }

    /// Ends what has taken too long.
    pub(crate) fn expire_streams(&mut self, c: &mut Connection) {
        let Some(mut session) = c.work.as_mut().and_then(|work| work.http2.take()) else { return };
        let now = self.now;
        let overdue = |since| since + self.limits.header_time <= now;
        if session.frames.block_since().is_some_and(overdue) {
            session.cut(Reason::ENHANCE_YOUR_CALM);
        }
        let limits = self.limits;
        let late: Vec<Stream> =
            session.streams.extract_if(.., |stream| stream.is_late(now, &limits)).collect();
        for mut stream in late {
            if let Some(upload) = stream.upload.take() {
                upload.shared.end(Err(crate::BodyError::Ended), Vec::new());
            }
            match stream.doing {
                Doing::Handling(_) => {
                    self.refuse_stream(c, &mut session, stream, 408, "the request's body took too long");
                }
                Doing::Sending(_) => session.streams.push(stream),
                Doing::Receiving => {}
            }
        }
        let stalled = |stream: &mut Stream| match &mut stream.doing {
            Doing::Sending(sending) => sending.is_stalled(now, &limits),
            _ => false,
        };
        let stalled: Vec<Stream> = session.streams.extract_if(.., stalled).collect();
        stalled.into_iter().for_each(|stream| self.end_stream(stream, access_log::LEFT));
        self.work(c).http2 = Some(session);
    }
}
