//! From received bytes to answers in order: everything that needs no transport.

use std::rc::Rc;
use std::sync::Arc;

use bytes::Bytes;
use linerate_http::server::{
    AnswerFraming, AnswerHead, BodyReader, Fault, Fields, Framing, HeadReader, HttpDate, Method, Persistence,
    RequestHead, Version, reason,
};
use linerate_net::{Close, Conn, Time};

use crate::access_log::{Line, LogBuffer};
use crate::body::{BodyError, RequestBody, Shared};
use crate::connection::{Answer, Asked, Connection, Incoming, StreamEnd, Work};
use crate::counts::ThreadCounts;
use crate::limits::{self, Limits};
use crate::response::ResponseBody;
use crate::tasks::{Polled, Ready, Tasks};
use crate::watch::{Watch, Watchdog};
use crate::{Draining, Handler, Request, Response};

/// One thread's HTTP: reads requests, runs handlers, keeps answers in order.
pub(crate) struct Engine<H: Handler> {
    handler: H,
    reader: HeadReader,
    pub(crate) tasks: Tasks<H::Future>,
    /// What the connection that has its turn will send.
    pub(crate) out: Vec<u8>,
    pub(crate) limits: Limits,
    /// Bodies up to this size leave as a copy beside their head.
    pub(crate) copied: usize,
    pub(crate) counts: Arc<ThreadCounts>,
    pub(crate) date: HttpDate,
    pub(crate) now: Time,
    /// Each further answer says that the connection ends.
    pub(crate) draining: bool,
    /// Who is told that this has begun.
    pub(crate) goodbye: Draining,
    /// And the next one is the last, even with bytes received behind its request.
    pub(crate) draining_hard: bool,
    /// Requests after which a connection is closed.
    pub(crate) close_after: Option<u32>,
    // Boxed, since they move between here and their connections.
    #[allow(clippy::vec_box)]
    spare: Vec<Box<Work>>,
    pub(crate) log: Option<LogBuffer>,
    pub(crate) watch: Option<(Arc<Watch>, Watchdog)>,
    serial: u64,
    /// Received bytes behind the request that is worked on.
    behind: usize,
}

impl<H: Handler> Engine<H> {
    pub(crate) fn new(handler: H, limits: Limits, counts: Arc<ThreadCounts>, ready: Arc<Ready>) -> Engine<H> {
        Engine {
            handler,
            reader: HeadReader::new(limits.request),
            tasks: Tasks::new(ready),
            out: Vec::new(),
            limits,
            copied: limits::BODY_COPIED,
            counts,
            date: HttpDate::from_unix(0),
            now: Time::ZERO,
            draining: false,
            goodbye: Draining::default(),
            draining_hard: false,
            close_after: None,
            spare: Vec::new(),
            log: None,
            watch: None,
            serial: 0,
            behind: 0,
        }
    }

    /// Grants something else from now on.
    pub(crate) fn set_limits(&mut self, limits: Limits) {
        self.reader = HeadReader::new(limits.request);
        self.limits = limits;
    }

    /// Takes received bytes: what can't be used yet is kept.
    pub(crate) fn input(&mut self, c: &mut Connection, bytes: &[u8]) {
        self.counts.received(bytes.len());
        if !c.reads() {
            return;
        }
        if c.has_input() {
            self.work(c).input.extend_from_slice(bytes);
            self.advance(c);
            return;
        }
        let (used, seen) = self.consume(c, bytes, 0);
        if used < bytes.len() && c.reads() {
            let work = self.work(c);
            work.input.extend_from_slice(&bytes[used..]);
            work.seen = seen;
        }
    }

    /// Goes on with bytes that were kept.
    pub(crate) fn advance(&mut self, c: &mut Connection) {
        let Some(work) = &mut c.work else { return };
        let (mut input, seen) = (std::mem::take(&mut work.input), work.seen);
        let (used, seen) = self.consume(c, &input, seen);
        if c.reads() {
            input.drain(..used);
        } else {
            input.clear();
        }
        if let Some(work) = &mut c.work {
            work.input = input;
            work.seen = seen;
        }
    }

    /// Reads requests and bodies until bytes or patience end. Returns how many bytes were used, and how many of the rest were
    /// looked at.
    fn consume(&mut self, c: &mut Connection, bytes: &[u8], mut seen: usize) -> (usize, usize) {
        let mut at = 0;
        while at < bytes.len() && c.reads() && !c.is_blocked(self.out.len()) {
            if c.is_reading_body() {
                at += self.body_bytes(c, &bytes[at..]);
                continue;
            }
            match self.reader.read(&bytes[at..], seen) {
                Ok(Some((head, taken))) => {
                    seen = 0;
                    at += taken;
                    at += self.request(c, head, &bytes[at..]);
                }
                Ok(None) => return (at, bytes.len() - at),
                Err(fault) => self.refuse(c, fault),
            }
        }
        (at, 0)
    }

    /// Begins with a request; returns how much of `rest` its body has used.
    fn request(&mut self, c: &mut Connection, head: Rc<RequestHead>, rest: &[u8]) -> usize {
        c.requests = c.requests.saturating_add(1);
        c.progressed = true;
        self.counts.request();
        let worn_out = self.close_after.is_some_and(|n| c.requests >= n);
        let asked = Asked {
            head: Some(Rc::clone(&head)),
            http10: head.version() == Version::Http10,
            head_only: head.method() == Method::Head,
            keep: head.keep_alive() && !worn_out,
        };
        if !asked.keep {
            // The client asked for it and sends no more; or it may, and must be able to read the answer all the same.
            c.closing = Some(if head.keep_alive() { Close::Lingering } else { Close::Now });
        }
        // HTTP/2 by Upgrade is no more (RFC 9113 section 3.1); a request with a body can be asked again without.
        c.held = head.upgrade()
            && head.framing() == Framing::None
            && head.field("upgrade").is_some_and(|to| !to.eq_ignore_ascii_case(b"h2c"));
        if head.method() == Method::Connect {
            // No tunnels here; what follows is not HTTP (RFC 9110 section 9.3.6).
            c.closing = Some(Close::Lingering);
            let mut answer = explained(405, "CONNECT is for proxies").closing();
            // Nothing is allowed that could be named: the target is another server.
            let _ = answer.fields.add("allow", "");
            self.answer(c, Asked { keep: false, ..asked }, answer);
            return 0;
        }
        let (body, used) = match head.framing() {
            Framing::None => (RequestBody::default(), 0),
            Framing::Length(n) if n <= rest.len() as u64 && n <= self.limits.request.body => {
                let n = n as usize;
                (RequestBody::whole(Bytes::copy_from_slice(&rest[..n])), n)
            }
            framing => match self.incoming(c, framing, &head, rest) {
                Ok(begun) => begun,
                Err(fault) => {
                    self.refuse(c, fault);
                    return rest.len();
                }
            },
        };
        self.behind = rest.len() - used;
        let request =
            Request::new(head, body, c.peer).asking_to_upgrade(c.held.then(|| self.goodbye.clone()));
        self.enter();
        let handler = &self.handler;
        let started = self.tasks.start(|| handler.call(request));
        self.leave(&asked);
        match started {
            (_, Polled::Ready(response)) => self.complete(c, asked, response),
            (task, Polled::Pending) => {
                self.tasks.park(task, c.conn);
                self.watch_room(c, task);
                self.work(c).queue.push_back(Answer::Waiting { task, asked });
            }
            (_, Polled::Panicked) => {
                let response = self.panicked();
                self.complete(c, asked, response);
            }
        }
        used
    }

    /// Whoever reads the arriving body may do so on another thread: the task is woken when there is room for more.
    fn watch_room(&self, c: &Connection, task: u32) {
        if let Some(body) = c.work.as_ref().and_then(|w| w.body.as_ref()) {
            body.shared.set_source(self.tasks.waker(task));
        }
    }

    /// A body that isn't all there, or comes in chunks.
    fn incoming(
        &mut self,
        c: &mut Connection,
        framing: Framing,
        head: &RequestHead,
        rest: &[u8],
    ) -> Result<(RequestBody, usize), Fault> {
        let reader = BodyReader::new(framing, &self.limits.request)?;
        let shared = Arc::new(Shared::default());
        let began = self.now;
        let body = Incoming {
            reader: Some(reader),
            shared: Arc::clone(&shared),
            expects_continue: head.expects_continue() && rest.is_empty(),
            received: 0,
            announced: if let Framing::Length(n) = framing { Some(n) } else { None },
            discarded: 0,
            began,
        };
        self.work(c).body = Some(body);
        let mut used = 0;
        while used < rest.len() && c.is_reading_body() && !shared.is_full() {
            used += self.feed(c, &rest[used..])?;
        }
        Ok((RequestBody::stream(&shared), used))
    }

    /// Received bytes belong to a body that is arriving.
    fn body_bytes(&mut self, c: &mut Connection, bytes: &[u8]) -> usize {
        match self.feed(c, bytes) {
            Ok(used) => used,
            Err(fault) => {
                let shared = c.work.as_mut().and_then(|w| w.body.take()).map(|b| b.shared);
                // Its handler, if it still runs, gives no answer any more: this is the answer.
                if shared.is_some_and(|s| !s.is_abandoned()) {
                    self.cancel_last(c);
                    self.refuse(c, fault);
                } else {
                    c.closing = Some(Close::Lingering);
                }
                bytes.len()
            }
        }
    }

    fn feed(&mut self, c: &mut Connection, bytes: &[u8]) -> Result<usize, Fault> {
        let Some(work) = &mut c.work else { return Ok(0) };
        let Some(body) = &mut work.body else { return Ok(0) };
        let Some(reader) = &mut body.reader else {
            body.received += bytes.len() as u64;
            body.shared.push(Bytes::copy_from_slice(bytes));
            return Ok(bytes.len());
        };
        let step = match reader.step(bytes) {
            Ok(step) => step,
            Err(fault) => {
                body.shared.end(Err(BodyError::Fault(fault)), Vec::new());
                return Err(fault);
            }
        };
        body.expects_continue = false;
        body.received += step.consumed as u64;
        if body.shared.is_abandoned() {
            body.discarded += step.data.len() as u64;
            if body.discarded > limits::BODY_DISCARDED {
                work.body = None;
                c.closing.get_or_insert(Close::Lingering);
                return Ok(step.consumed);
            }
        } else {
            body.shared.push(Bytes::copy_from_slice(&bytes[step.data]));
        }
        if step.ended {
            let trailers = reader.trailers().map(|(n, v)| (n.to_owned(), v.to_vec())).collect();
            body.shared.end(Ok(()), trailers);
            work.body = None;
            c.progressed = true;
        }
        Ok(step.consumed)
    }

    /// The answer of the newest request is there. If its body isn't, decides whether to read the rest.
    fn complete(&mut self, c: &mut Connection, mut asked: Asked, response: Response) {
        if let Some(body) = c.work.as_ref().and_then(|w| w.body.as_ref()) {
            // A client that waits for 100 may or may not send the body now: only closing is safe (RFC 9110 section 10.1.1).
            let unwanted = body.shared.is_abandoned();
            let left = body.announced.map_or(0, |n| n.saturating_sub(body.received));
            if unwanted && (body.expects_continue || left > limits::BODY_DISCARDED) {
                asked.keep = false;
                c.closing = Some(Close::Lingering);
                c.cut_body();
            }
        }
        if (self.draining || c.leaving) && asked.keep && (self.behind == 0 || self.draining_hard) {
            // What was received is answered, whatever is being drained; this is the last of it.
            asked.keep = false;
            c.closing.get_or_insert(Close::Lingering);
        }
        self.answer(c, asked, response);
    }

    /// A parked handler was woken.
    pub(crate) fn poll_task(&mut self, c: &mut Connection, task: u32) {
        let Some(work) = &mut c.work else { return };
        let place =
            work.queue.iter().position(|a| matches!(a, Answer::Waiting { task: t, .. } if *t == task));
        let Some(place) = place else { return };
        let newest = place + 1 == work.queue.len();
        self.enter();
        let polled = self.tasks.poll(task);
        if let Some(Answer::Waiting { asked, .. }) = work.queue.get(place) {
            self.leave(asked);
        }
        let response = match polled {
            Polled::Pending => return,
            Polled::Ready(response) => response,
            Polled::Panicked => self.panicked(),
        };
        let Some(work) = &mut c.work else { return };
        // What the answer becomes is put in its place; those behind it are set aside meanwhile.
        let mut behind = work.queue.split_off(place);
        let Some(Answer::Waiting { asked, .. }) = behind.pop_front() else { return };
        c.progressed = true;
        if newest {
            self.behind = work.input.len();
            self.complete(c, asked, response);
            return;
        }
        let last = self.answer(c, asked, response);
        let place = c.work.as_ref().map_or(0, |w| w.queue.len());
        self.work(c).queue.append(&mut behind);
        if last {
            // What was asked behind the last answer gets none.
            c.cut_body();
            self.cancel_from(c, place);
        }
    }

    /// A handler runs: the watchdog may look.
    fn enter(&mut self) {
        self.serial = self.serial.wrapping_add(2);
        if let Some((watch, _)) = &self.watch {
            watch.enter(self.serial);
        }
    }

    /// It has given the thread back.
    fn leave(&self, asked: &Asked) {
        if let Some((watch, dog)) = &self.watch
            && watch.leave()
        {
            self.counts.blocked();
            if let Some(head) = &asked.head {
                dog.report(format!("{} {}", head.method_name(), head.path()));
            }
        }
    }

    fn panicked(&mut self) -> Response {
        self.counts.panicked();
        explained(500, "the handler failed").closing()
    }

    /// Puts an answer behind those that are there already: straight into `out` when there are none.
    /// Returns whether it is the connection's last.
    fn answer(&mut self, c: &mut Connection, asked: Asked, mut response: Response) -> bool {
        c.held = false;
        self.counts.answered(response.status);
        if let Some(log) = &mut self.log {
            let bytes = match &response.body {
                _ if asked.head_only => Some(0),
                ResponseBody::Whole(body) => Some(body.len() as u64),
                ResponseBody::Stream(stream) => stream.length(),
            };
            let line = Line { peer: c.peer, head: asked.head.as_deref(), status: response.status, bytes };
            log.add(self.now, &self.date, &line);
        }
        let tunnel = response.tunnel.take();
        let keep = asked.keep && !response.close && tunnel.is_none();
        if !keep {
            c.closing.get_or_insert(Close::Lingering);
        }
        let direct = c.queue_is_empty();
        let mut head = if direct { std::mem::take(&mut self.out) } else { Vec::new() };
        let later = match (tunnel, response.body) {
            (Some(shared), ResponseBody::Stream(stream)) => {
                self.hand_over(c, shared);
                Some(Later::Stream(stream, StreamEnd::Close))
            }
            (_, body) => self.write(&mut head, c, &asked, keep, Response { body, ..response }),
        };
        let last = !keep || matches!(later, Some(Later::Stream(_, StreamEnd::Close)));
        let head = if direct {
            self.out = head;
            Vec::new()
        } else {
            head
        };
        if direct && later.is_none() {
            return last;
        }
        let task = matches!(later, Some(Later::Stream(..))).then(|| self.tasks.reserve(c.conn));
        if let Some(task) = task {
            self.watch_room(c, task);
        }
        let work = self.work(c);
        work.ready += head.len();
        let answer = match (later, task) {
            (Some(Later::Large(body)), _) => {
                work.ready += body.len();
                Answer::Large { head, body, at: 0, last }
            }
            (Some(Later::Stream(stream, end)), Some(task)) => {
                Answer::Stream { task, head, stream, end, last }
            }
            _ => Answer::Bytes { bytes: head, last },
        };
        work.queue.push_back(answer);
        last
    }

    /// Everything that comes from now on goes to whoever took the connection.
    fn hand_over(&mut self, c: &mut Connection, shared: Arc<Shared>) {
        let began = self.now;
        self.work(c).body = Some(Incoming {
            reader: None,
            shared,
            expects_continue: false,
            received: 0,
            announced: None,
            discarded: 0,
            began,
        });
    }

    /// Writes the head, and the body when it is small.
    fn write(
        &self,
        out: &mut Vec<u8>,
        c: &mut Connection,
        asked: &Asked,
        keep: bool,
        response: Response,
    ) -> Option<Later> {
        let bodiless = matches!(response.status, 204 | 304);
        let mut persistence = match (keep, asked.http10) {
            (true, false) => Persistence::Implied,
            (true, true) => Persistence::KeepAlive,
            (false, _) => Persistence::Close,
        };
        let (framing, later) = match response.body {
            _ if bodiless => (AnswerFraming::Absent, None),
            ResponseBody::Whole(body) => {
                let announced = response.announced.filter(|_| asked.head_only && body.is_empty());
                let framing = AnswerFraming::Length(announced.unwrap_or(body.len() as u64));
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
        };
        let head = AnswerHead {
            status: response.status,
            persistence,
            framing,
            content_type: response.content_type,
            fields: &response.fields,
        };
        head.write(out, &self.date);
        match later {
            Some(Later::Large(body)) if body.len() <= self.copied => {
                out.extend_from_slice(&body);
                None
            }
            Some(Later::Stream(_, StreamEnd::Nothing)) => None,
            later => later,
        }
    }

    /// Answers a request that is not one, and closes.
    pub(crate) fn refuse(&mut self, c: &mut Connection, fault: Fault) {
        let text = format!("{fault} ({})", fault.section());
        self.refuse_with(c, fault.status(), &text);
    }

    /// Answers with an error for which there is no request, and closes.
    pub(crate) fn refuse_with(&mut self, c: &mut Connection, status: u16, text: &str) {
        c.cut_body();
        c.closing = Some(Close::Lingering);
        let asked = Asked { head: None, http10: false, head_only: false, keep: false };
        self.answer(c, asked, explained(status, text));
    }

    /// Ends the newest request's handler, if it still runs.
    pub(crate) fn cancel_last(&mut self, c: &mut Connection) {
        let Some(work) = &mut c.work else { return };
        if let Some(Answer::Waiting { task, .. }) = work.queue.back() {
            self.tasks.cancel(*task);
            work.queue.pop_back();
        }
    }

    /// Ends everything that works for a connection, or for what stands in its queue from `from` on.
    pub(crate) fn cancel_from(&mut self, c: &mut Connection, from: usize) {
        let Some(work) = &mut c.work else { return };
        for answer in work.queue.drain(from.min(work.queue.len())..) {
            work.ready -= answer.ready_bytes();
            if let Answer::Waiting { task, .. } | Answer::Stream { task, .. } = answer {
                self.tasks.cancel(task);
            }
        }
    }

    /// The work area of a connection, from those kept when it has none.
    pub(crate) fn work<'c>(&mut self, c: &'c mut Connection) -> &'c mut Work {
        c.work.get_or_insert_with(|| self.spare.pop().unwrap_or_default())
    }

    /// Takes the work area of a connection back when there is nothing in it.
    pub(crate) fn rest(&mut self, c: &mut Connection) {
        let idle = |w: &Work| w.input.is_empty() && w.queue.is_empty() && w.body.is_none();
        if !c.work.as_ref().is_some_and(|w| idle(w)) {
            return;
        }
        if let Some(mut work) = c.work.take()
            && self.spare.len() < limits::WORK_KEPT
        {
            if work.input.capacity() > limits::BUFFER_KEPT {
                work.input = Vec::new();
            }
            work.seen = 0;
            self.spare.push(work);
        }
    }

    /// For whom a task works.
    pub(crate) fn owner(&self, task: u32) -> Option<Conn> {
        self.tasks.owner(task)
    }
}

enum Later {
    Large(Bytes),
    Stream(std::pin::Pin<Box<dyn crate::response::BodyStream>>, StreamEnd),
}

/// An answer that says why.
pub(crate) fn explained(status: u16, text: &str) -> Response {
    let mut response = Response::text(format!("{status} {}: {text}\n", reason(status)));
    response.status = status;
    response.fields = Fields::new();
    response
}

#[cfg(test)]
mod tests;
