//! Sends responses: in order, as far as they are ready and the transport takes them.

use std::task::{Context, Poll};

use linerate_http::server::{write_chunk, write_interim, write_last_chunk};
use linerate_net::{Close, NetError, Transport};

use super::Server;
use crate::allowance::Allowance;
use crate::answer::{OrderedResponse, StreamEnd, Unlogged};
use crate::connection::ServedConnection;
use crate::{Handler, limits};

impl<T: Transport, H: Handler> Server<T, H> {
    /// Moves responses from the front of the queue to the transport, as far as they are ready and it takes them.
    pub(super) fn pump(&mut self, c: &mut ServedConnection, budget: &mut usize) -> Result<(), Gone> {
        while *budget > 0 {
            if self.engine.out.len() + c.unsent >= self.engine.allowance.each() {
                *budget = budget.saturating_sub(self.engine.out.len());
                self.flush(c)?;
                if c.unsent >= self.engine.allowance.each() {
                    return Ok(());
                }
            }
            let Some(work) = &mut c.work else { return Ok(()) };
            let Some(front) = work.queue.front_mut() else { return Ok(()) };
            let pumped = match front {
                OrderedResponse::Waiting { .. } => {
                    continue_if_wanted(c, &mut self.engine.out);
                    Pumped::Waits
                }
                OrderedResponse::Bytes { bytes, last } => {
                    if self.engine.out.is_empty() {
                        std::mem::swap(&mut self.engine.out, bytes);
                        self.held.keep_buffer(bytes);
                    } else {
                        self.engine.out.append(bytes);
                    }
                    Pumped::Done { last: *last }
                }
                OrderedResponse::Large { .. } => self.pump_large(c, budget)?,
                OrderedResponse::Stream { .. } => self.pump_stream(c, budget)?,
                OrderedResponse::File { .. } => self.pump_file(c, budget)?,
            };
            if matches!(pumped, Pumped::Broken(_) | Pumped::Done { .. }) {
                hand_over_line(c, self.engine.out.len());
            }
            match pumped {
                Pumped::More => {}
                Pumped::Waits => return Ok(()),
                // Behind what there was of it the connection ends.
                Pumped::Broken(how) => {
                    c.closing = Some(how);
                    c.cut_body();
                    self.engine.cancel_from(c, 0);
                }
                // Requests after the last response get none.
                Pumped::Done { last: true } => self.engine.cancel_from(c, 0),
                Pumped::Done { last: false } => {
                    c.progressed = true;
                    let done = c.work.as_mut().and_then(|work| work.queue.pop_front());
                    if let Some(OrderedResponse::Stream { task, .. } | OrderedResponse::File { task, .. }) =
                        done
                    {
                        self.engine.tasks.cancel(task);
                    }
                }
            }
        }
        Ok(())
    }

    /// Gives `out` to the transport.
    pub(super) fn flush(&mut self, c: &mut ServedConnection) -> Result<(), Gone> {
        let out = &mut self.engine.out;
        if !out.is_empty() {
            let sent = self.transport.send(c.conn, out);
            count_file(c, &mut self.engine.allowance, 0);
            c.handed += if sent.is_ok() { out.len() as u64 } else { 0 };
            self.engine.counts.sent(out.len());
            out.clear();
            if out.capacity() > limits::OUTPUT_KEPT {
                *out = Vec::new();
            }
            sent.map_err(|_| Gone)?;
        }
        self.look_at_unsent(c);
        Ok(())
    }

    /// Asks how much of what was handed over has not left.
    pub(super) fn look_at_unsent(&mut self, c: &mut ServedConnection) {
        let before = c.held();
        c.unsent = self.transport.unsent(c.conn);
        self.engine.allowance.changed(before, c.held());
    }

    /// Whether what is in `out` ends the connection, and nothing else is to be waited for.
    pub(super) fn is_the_last(&self, c: &ServedConnection) -> bool {
        c.closing == Some(Close::Now)
            && c.queue_is_empty()
            && !c.is_reading_body()
            && !self.engine.out.is_empty()
            && self.engine.out.len() + c.unsent <= limits::UNSENT_CLOSED
    }

    /// Gives `out` to the transport, and the end of the connection with it.
    pub(super) fn send_last(&mut self, mut c: ServedConnection) {
        let out = &mut self.engine.out;
        self.engine.counts.sent(out.len());
        let sent = self.transport.send_last(c.conn, out, Close::Now);
        c.handed += if sent.is_ok() { out.len() as u64 } else { 0 };
        out.clear();
        match sent {
            Ok(()) => {
                let all = c.handed;
                self.forget(c, all);
            }
            Err(_) => self.close(c, Close::Abort),
        }
    }

    /// A large body goes from where it is, in slices.
    fn pump_large(&mut self, c: &mut ServedConnection, budget: &mut usize) -> Result<Pumped, Gone> {
        let Some(OrderedResponse::Large { head, body, at, last, line }) =
            c.work.as_mut().and_then(|w| w.queue.front_mut())
        else {
            return Ok(Pumped::Waits);
        };
        if !head.is_empty() {
            // It leaves with the first of the body, not in a segment of its own.
            self.engine.out.append(head);
            begin_line(line, c.handed, self.engine.out.len());
            let with_head = body.len().min(limits::BODY_COPIED_GATHERING);
            self.engine.out.extend_from_slice(&body[..with_head]);
            *at = with_head;
            return Ok(Pumped::More);
        }
        let slice = self.engine.allowance.each().min(limits::BODY_SLICE);
        let (slice, last) = (body.slice(*at..body.len().min(*at + slice)), *last);
        *at += slice.len();
        let done = *at == body.len();
        self.flush(c)?;
        let len = slice.len();
        let sent = self.transport.send_shared(c.conn, slice);
        count_file(c, &mut self.engine.allowance, 0);
        self.handed_over(c, sent, len, budget)?;
        Ok(if done { Pumped::Done { last } } else { Pumped::More })
    }

    /// A range of a file goes to the transport, with what is before it.
    fn pump_file(&mut self, c: &mut ServedConnection, budget: &mut usize) -> Result<Pumped, Gone> {
        let Some(OrderedResponse::File { task, head, body, last, line }) =
            c.work.as_mut().and_then(|w| w.queue.front_mut())
        else {
            return Ok(Pumped::Waits);
        };
        let out = &mut self.engine.out;
        out.append(head);
        begin_line(line, c.handed, out.len());
        let Some(waker) = self.engine.tasks.waker(*task) else { return Err(Gone) };
        let unread = self.transport.sends_files();
        let slice =
            if unread { limits::FILE_SLICE } else { limits::BODY_SLICE.min(self.engine.allowance.each()) };
        let slice = match body.poll_slice(slice, &mut Context::from_waker(&waker)) {
            Poll::Pending => return Ok(Pumped::Waits),
            Poll::Ready(Ok(Some(slice))) => slice,
            Poll::Ready(Ok(None)) => return Ok(Pumped::Done { last: *last }),
            // It is shorter than it was, or the disk fails.
            Poll::Ready(Err(_)) => return Ok(Pumped::Broken(Close::Lingering)),
        };
        let pumped = if body.is_over() { Pumped::Done { last: *last } } else { Pumped::More };
        out.extend_from_slice(&slice.lead);
        let of_file = (slice.range.end - slice.range.start) as usize;
        if unread && of_file <= limits::BODY_COPIED_GATHERING {
            // It leaves with the head, and the transport keeps no file open for it.
            if slice.read_range(out).is_err() {
                return Ok(Pumped::Broken(Close::Lingering));
            }
            *budget = budget.saturating_sub(of_file.max(1));
            return Ok(pumped);
        }
        let len = out.len() + of_file;
        let sent = self.transport.send_file(c.conn, out, &slice.file, slice.range);
        out.clear();
        count_file(c, &mut self.engine.allowance, if unread { of_file } else { 0 });
        self.handed_over(c, sent, len, budget)?;
        Ok(pumped)
    }

    /// The transport got `len` bytes of a body, besides those of `out`.
    fn handed_over(
        &mut self,
        c: &mut ServedConnection,
        sent: Result<(), NetError>,
        len: usize,
        budget: &mut usize,
    ) -> Result<(), Gone> {
        c.handed += if sent.is_ok() { len as u64 } else { 0 };
        self.engine.counts.sent(len);
        sent.map_err(|_| Gone)?;
        self.look_at_unsent(c);
        *budget = budget.saturating_sub(len);
        Ok(())
    }

    /// Polls a streamed body once.
    fn pump_stream(&mut self, c: &mut ServedConnection, budget: &mut usize) -> Result<Pumped, Gone> {
        let Some(OrderedResponse::Stream { task, head, stream, end, last, line }) =
            c.work.as_mut().and_then(|w| w.queue.front_mut())
        else {
            return Ok(Pumped::Waits);
        };
        let out = &mut self.engine.out;
        out.append(head);
        begin_line(line, c.handed, out.len());
        let Some(waker) = self.engine.tasks.waker(*task) else { return Err(Gone) };
        let mut context = Context::from_waker(&waker);
        let before = out.len();
        let polled = stream.poll_next(&mut context);
        let last = *last;
        match (polled, &mut *end) {
            (Poll::Pending, _) => return Ok(Pumped::Waits),
            (Poll::Ready(Some(Ok(bytes))), StreamEnd::Chunked) => write_chunk(out, &bytes),
            (Poll::Ready(Some(Ok(bytes))), StreamEnd::Close) => out.extend_from_slice(&bytes),
            (Poll::Ready(Some(Ok(bytes))), StreamEnd::Length(left)) if bytes.len() as u64 <= *left => {
                *left -= bytes.len() as u64;
                out.extend_from_slice(&bytes);
            }
            (Poll::Ready(None), StreamEnd::Chunked) if let Ok(trailers) = stream.trailers() => {
                write_last_chunk(out, &trailers.unwrap_or_default());
                return Ok(Pumped::Done { last });
            }
            (Poll::Ready(None), StreamEnd::Length(0) | StreamEnd::Close | StreamEnd::Nothing) => {
                return Ok(Pumped::Done { last });
            }
            // The body failed, or is not as long as announced. Where only the end of the connection ends a response, a reset
            // tells that it is incomplete (RFC 9112 section 8).
            (_, StreamEnd::Close) => return Ok(Pumped::Broken(Close::Abort)),
            _ => return Ok(Pumped::Broken(Close::Lingering)),
        }
        *budget = budget.saturating_sub((out.len() - before).max(limits::PIECE_COUNTS_AS));
        Ok(Pumped::More)
    }
}

/// The connection failed or had to be cut.
pub(super) struct Gone;

/// The last of what was handed over is so much of a file that takes no memory.
fn count_file(c: &mut ServedConnection, allowance: &mut Allowance, bytes: usize) {
    let before = c.held();
    c.of_file = bytes;
    allowance.changed(before, c.held());
}

/// How far the response at the front of a queue has come.
enum Pumped {
    /// All of it is handed over.
    Done { last: bool },
    /// There is more to hand over.
    More,
    /// It waits for its handler.
    Waits,
    /// Something of it is missing, which the end of the connection, in this way, tells the peer.
    Broken(Close),
}

/// The body of a response begins behind what is handed over and in `out`; once.
fn begin_line(line: &mut Option<Box<Unlogged>>, handed: u64, out: usize) {
    if let Some(line) = line {
        line.from.get_or_insert(handed + out as u64);
    }
}

/// The response at the front is handed over, or in `out`: its line is due when that has left.
fn hand_over_line(c: &mut ServedConnection, out: usize) {
    let until = c.handed + out as u64;
    if let Some(work) = &mut c.work
        && let Some(mut line) = work.queue.front_mut().and_then(OrderedResponse::line).and_then(Option::take)
    {
        line.until = Some(until);
        work.unlogged.push_back(line);
    }
}

/// Tells a client that waits for it to send its body, once the handler asks for it (RFC 9110 section 10.1.1).
fn continue_if_wanted(c: &mut ServedConnection, out: &mut Vec<u8>) {
    let Some(work) = &mut c.work else { return };
    let alone = work.queue.len() == 1;
    if let Some(body) = &mut work.body
        && alone
        && body.progress.take_continue()
    {
        write_interim(out, 100);
    }
}
