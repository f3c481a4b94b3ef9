//! Turns a handler's response into bytes, in its place in the order.

use std::sync::Arc;

use bytes::Bytes;
use linerate_http::server::{AnswerFraming, Persistence, RequestFault};
use linerate_net::Close;

use super::Engine;
use crate::answer::{Asked, OrderedResponse, StreamEnd};
use crate::connection::{Incoming, NextBytes, ServedConnection};
use crate::message::body::SharedUpload;
use crate::message::file_body::FileBody;
use crate::message::response::{self, ResponseBody};
use crate::message::stream::Streamed;
use crate::upload::UploadProgress;
use crate::{Handler, Response};

impl<H: Handler> Engine<H> {
    /// Queues a response behind earlier ones: straight into `out` when there are none.
    /// Returns whether it is the connection's last.
    pub(super) fn answer(&mut self, c: &mut ServedConnection, asked: &Asked, mut response: Response) -> bool {
        if c.next == NextBytes::Undecided {
            c.next = NextBytes::Request;
        }
        self.counts.answered(response.status);
        if let Some(meter) = &mut self.meter {
            meter.answered(&self.counts.measured, response.route, response.status, asked.began, self.now);
        }
        self.alternatives.tell(c.listener, &mut response);
        let status = response.status;
        let len = if let ResponseBody::Whole(body) = &response.body { body.len() as u64 } else { 0 };
        let tunnel = response.tunnel.take();
        let keep = asked.keep && !response.close && tunnel.is_none();
        if !keep {
            c.closing.get_or_insert(Close::Lingering);
        }
        let direct = c.queue_is_empty();
        if direct && keep && self.write_whole(asked, &response) {
            response::keep_buffer(response.fields);
            self.log_line(asked, status, len);
            return false;
        }
        let mut head = if direct { std::mem::take(&mut self.out) } else { Vec::new() };
        if tunnel.as_ref().is_some_and(|tunnel| tunnel.needs_head) {
            let persistence = if status == 101 { Persistence::Upgrade } else { Persistence::Implied };
            self.writer.write(&response.head(persistence, AnswerFraming::Absent), &mut head, &self.date);
        }
        let later = match (tunnel, response.body) {
            (Some(tunnel), ResponseBody::Stream(stream)) => {
                self.hand_over(c, tunnel.take());
                Some(Later::Stream(stream, StreamEnd::Close))
            }
            (_, body) => self.write(&mut head, c, asked, keep, Response { body, ..response }),
        };
        let last = !keep || matches!(later, Some(Later::Stream(_, StreamEnd::Close)));
        let head = if direct {
            self.out = head;
            Vec::new()
        } else {
            head
        };
        let line = match &later {
            Some(_) => self.later(c, asked, status, direct),
            None => {
                self.log_line(asked, status, len);
                None
            }
        };
        if direct && later.is_none() {
            return last;
        }
        let task =
            matches!(later, Some(Later::Stream(..) | Later::File(..))).then(|| self.tasks.reserve(c.conn));
        if let Some(task) = task {
            self.watch_room(c, task);
        }
        let work = self.work(c);
        let answer = match (later, task) {
            (Some(Later::Large(body)), _) => OrderedResponse::Large { head, body, at: 0, last, line },
            (Some(Later::Stream(stream, end)), Some(task)) => {
                OrderedResponse::Stream { task, head, stream, end, last, line }
            }
            (Some(Later::File(body)), Some(task)) => OrderedResponse::File { task, head, body, last, line },
            _ => OrderedResponse::Bytes { bytes: head, last },
        };
        work.queue.push_back(answer);
        last
    }

    /// All later bytes go to the handler that took over the connection.
    fn hand_over(&mut self, c: &mut ServedConnection, shared: Arc<SharedUpload>) {
        let progress = UploadProgress::new(&shared, self.now);
        self.work(c).body = Some(Incoming { reader: None, announced: None, progress });
    }

    /// Writes the most frequent kind of response, with a small body in memory, to `out`; `false`: it is another kind.
    fn write_whole(&mut self, asked: &Asked, response: &Response) -> bool {
        let ResponseBody::Whole(body) = &response.body else { return false };
        if body.len() > self.copied || asked.head_only || has_no_body(response.status) {
            return false;
        }
        let head = response.head(persistence(true, asked.http10), AnswerFraming::Length(body.len() as u64));
        self.writer.write(&head, &mut self.out, &self.date);
        self.out.extend_from_slice(body);
        true
    }

    /// Writes the head, and the body when it is small.
    fn write(
        &mut self,
        out: &mut Vec<u8>,
        c: &mut ServedConnection,
        asked: &Asked,
        keep: bool,
        mut response: Response,
    ) -> Option<Later> {
        let mut persistence = persistence(keep, asked.http10);
        let (framing, later) = match std::mem::take(&mut response.body) {
            _ if has_no_body(response.status) => (AnswerFraming::Absent, None),
            ResponseBody::Whole(body) => {
                let framing = if asked.head_only && body.is_empty() {
                    // Left out, for all we know: a length of 0 would be a statement about GET (RFC 9110 section 8.6).
                    response.announced.get().map_or(AnswerFraming::Absent, AnswerFraming::Length)
                } else {
                    AnswerFraming::Length(body.len() as u64)
                };
                if asked.head_only { (framing, None) } else { (framing, Some(Later::Large(body))) }
            }
            ResponseBody::Stream(stream) => {
                let (framing, end) = match stream.length() {
                    Some(n) => (AnswerFraming::Length(n), StreamEnd::Length(n)),
                    None if asked.http10 => {
                        persistence = Persistence::Close;
                        c.closing.get_or_insert(Close::Now);
                        (AnswerFraming::UntilClose, StreamEnd::Close)
                    }
                    None => (AnswerFraming::Chunked, StreamEnd::Chunked),
                };
                let end = if asked.head_only { StreamEnd::Nothing } else { end };
                (framing, Some(Later::Stream(stream, end)))
            }
            ResponseBody::File(body) => {
                let framing = AnswerFraming::Length(body.len());
                (framing, (!asked.head_only && body.len() > 0).then_some(Later::File(*body)))
            }
        };
        self.writer.write(&response.head(persistence, framing), out, &self.date);
        response::keep_buffer(response.fields);
        match later {
            Some(Later::Large(body)) if body.len() <= self.copied => {
                out.extend_from_slice(&body);
                None
            }
            Some(Later::Stream(_, StreamEnd::Nothing)) => None,
            later => later,
        }
    }

    /// Responds to a malformed request, and closes.
    pub(crate) fn refuse(&mut self, c: &mut ServedConnection, asked: Asked, fault: RequestFault) {
        self.refuse_with(c, asked, fault.status(), &said(fault));
    }

    /// Gives up the arriving body, which is broken or too slow. Its request gets one response only: if that exists already,
    /// or its handler works on one without the body, the connection just ends after it.
    pub(crate) fn refuse_body(&mut self, c: &mut ServedConnection, status: u16, text: &str) {
        // The body belongs to the newest request, which has no response yet only if the last in the queue waits.
        let work = c.work.as_ref();
        let waits = work.is_some_and(|w| matches!(w.queue.back(), Some(OrderedResponse::Waiting { .. })));
        let wanted = work.and_then(|w| w.body.as_ref()).is_some_and(|b| !b.progress.shared.is_abandoned());
        if waits && wanted {
            let asked = self.cancel_last(c).unwrap_or_else(|| Asked::by_none(c.peer, b"", self.now));
            self.refuse_with(c, asked, status, text);
        } else {
            c.cut_body();
            c.closing = Some(Close::Lingering);
        }
    }

    /// Responds with an error to a malformed or refused request, and closes.
    pub(crate) fn refuse_with(&mut self, c: &mut ServedConnection, asked: Asked, status: u16, text: &str) {
        c.cut_body();
        c.closing = Some(Close::Lingering);
        self.answer(c, &Asked { keep: false, ..asked }, Response::explained(status, text));
    }
}

/// Whether responses of this status never have a body, nor a length (RFC 9110 section 6.4.1).
pub(super) fn has_no_body(status: u16) -> bool {
    matches!(status, 204 | 304)
}

/// How a response announces the end of the connection, or that it persists.
fn persistence(keep: bool, http10: bool) -> Persistence {
    match (keep, http10) {
        (true, false) => Persistence::Implied,
        (true, true) => Persistence::KeepAlive,
        (false, _) => Persistence::Close,
    }
}

enum Later {
    Large(Bytes),
    Stream(Streamed, StreamEnd),
    File(FileBody),
}

/// The fault, with the section that forbids it.
pub(super) fn said(fault: RequestFault) -> String {
    format!("{fault} ({})", fault.section())
}
