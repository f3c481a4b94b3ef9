//! HTTP/1.1 on one connection: responses come in the order of the requests (RFC 9112 section 9.3.2), unless they
//! name theirs.

use linerate_http::client::{
    Expect, HeadCache, HeadView, Pipeline, ResponseErrorKind, ResponseLimits, ResponsePart, ResponseReader,
    TagMatch,
};
use linerate_net::{Ahead, NetError, Time};
use memchr::memmem;

use crate::conversation::{Alike, Conversation, Fate, Out, Requests, Responses, Turn, Whole, Whose};
use crate::{Loss, Run, Stamp};

/// HTTP/1.1 on one connection; `R`: what is remembered of the response being read.
#[derive(Debug)]
pub struct H1<R> {
    pipeline: Pipeline<Stamp>,
    reader: ResponseReader,
    answers: u32,
    /// When the response being read began, if that was in an earlier read.
    first_byte: Option<Time>,
    reading: R,
    whose: Whose,
    /// Some request on this connection is answered without a body (HEAD) or by a tunnel (CONNECT).
    unusual: bool,
    /// The head of the response being read said that the peer will close.
    ends: bool,
    /// The last whole response said so.
    announced: bool,
    /// The response being read made no sense, or broke off.
    failed: bool,
    /// The server has given up the idle connection, while requests were on the wire.
    gave_up: bool,
}

impl<R: Default> Conversation for H1<R> {
    type Reading = R;
    type Shared = HeadCache;

    fn new(_: &HeadCache) -> H1<R> {
        H1 {
            pipeline: Pipeline::new(),
            reader: ResponseReader::new(ResponseLimits::default()),
            answers: 0,
            first_byte: None,
            reading: R::default(),
            whose: Whose::default(),
            unusual: false,
            ends: false,
            announced: false,
            failed: false,
            gave_up: false,
        }
    }

    #[inline]
    fn room(&self) -> u32 {
        if self.ends { 0 } else { u32::MAX }
    }

    #[inline]
    fn in_flight(&self) -> u32 {
        depth(&self.pipeline)
    }

    #[inline]
    fn answers(&self) -> u32 {
        self.answers
    }

    #[inline]
    fn in_response(&self) -> bool {
        self.reader.in_answer() && !self.gave_up
    }

    #[inline]
    fn oldest(&self) -> Option<Run> {
        self.pipeline.front().copied()
    }

    #[inline]
    fn begin(
        &mut self,
        run: Run,
        last: bool,
        requests: &mut impl Requests,
        out: &mut impl Out,
    ) -> Result<u64, NetError> {
        self.unusual |= run.expect != Expect::Usual;
        self.pipeline.push(run);
        requests.write_h1(&run, last, out)
    }

    #[inline]
    fn handle_bytes<E: Responses<Reading = R>>(
        &mut self,
        now: Time,
        bytes: &[u8],
        cache: &mut HeadCache,
        events: &mut E,
    ) -> Result<(), Loss> {
        let mut input = bytes;
        // A response's end is a part of its own: it may still be to come when the bytes are used up.
        while !input.is_empty() || !self.reader.at_boundary() {
            let Some(front) = self.pipeline.front() else {
                return Err(unasked(now, input, cache, events));
            };
            if !events.wants_parts() {
                let most = if self.unusual { usual_ahead(front) } else { depth(&self.pipeline) };
                let before = input;
                let taken = self.reader.take_same(cache, &mut input, most);
                if taken > 0 {
                    self.answered_alike(now, taken, &before[..before.len() - input.len()], cache, events);
                    continue;
                }
            }
            if !self.step(now, &mut input, cache, events)? {
                break;
            }
        }
        if self.reader.in_answer() {
            self.first_byte.get_or_insert(now);
            self.ends |= !self.reader.persists();
        }
        Ok(())
    }

    #[inline]
    fn ahead<E: Responses<Reading = R>>(&self, events: &E) -> Ahead {
        match self.reader.body_ahead() {
            0 => Ahead::default(),
            bytes => {
                let kind = self.pipeline.front().map_or(0, |run| run.kind);
                Ahead { bytes, unseen: !events.looks_on(&self.reading, kind) }
            }
        }
    }

    fn handle_discarded<E: Responses<Reading = R>>(
        &mut self,
        now: Time,
        bytes: u64,
        cache: &mut HeadCache,
        events: &mut E,
    ) -> Result<(), Loss> {
        self.reader.pass_over(bytes);
        self.handle_bytes(now, &[], cache, events)
    }

    fn handle_end<E: Responses<Reading = R>>(&mut self, now: Time, events: &mut E) -> Loss {
        match self.reader.finish() {
            Ok(Some(end)) if !self.pipeline.is_empty() => {
                // The response lasted until the connection's end.
                self.end_answer(now, end.status, events);
                Loss::Closed
            }
            Ok(_) => Loss::Closed,
            Err(cut) => {
                self.failed = true;
                Loss::Cut(cut.to_string())
            }
        }
    }

    fn abandon(&mut self, mut each: impl FnMut(Run, Fate)) {
        let in_response = (self.reader.in_answer() || self.failed) && !self.gave_up;
        // Nothing behind a response that says `Connection: close` is processed (RFC 9112 section 9.6).
        let announced = self.announced || self.gave_up || (in_response && !self.reader.persists());
        let behind = if announced { Fate::NeverProcessed } else { Fate::Unknown };
        let mut begun = in_response;
        for mut run in self.pipeline.drain() {
            if std::mem::replace(&mut begun, false) {
                each(Run { count: 1, ..run }, Fate::Begun);
                run.first += 1;
                run.count -= 1;
            }
            if run.count > 0 {
                each(run, behind);
            }
        }
    }

    fn usual_response(cache: &HeadCache) -> Option<usize> {
        let body = usize::try_from(cache.body_len()?).ok()?;
        Some(cache.head()?.raw().len() + body)
    }
}

impl<R: Default> H1<R> {
    /// Responses of the same length, whose heads are the same as the last one read.
    fn answered_alike(
        &mut self,
        now: Time,
        count: u32,
        bytes: &[u8],
        cache: &HeadCache,
        events: &mut impl Responses,
    ) {
        let status = cache.status();
        self.answers += count;
        let head_len = cache.head().map_or(0, |h| h.raw().len());
        let whole = bytes.len() / count.max(1) as usize;
        let mut rest = bytes;
        let mut tell = |run: Run, first_byte: Option<Time>| {
            let (head, body) = rest[..whole].split_at(head_len);
            rest = &rest[run.count as usize * whole..];
            events.alike(&run, &Alike { now, first_byte, status, head, body });
        };
        let mut left = count;
        if let Some(first_byte) = self.first_byte.take() {
            // Only the first of them had begun in an earlier read.
            self.pipeline.answered(1, &mut |run| tell(run, Some(first_byte)));
            left -= 1;
        }
        if left > 0 {
            self.pipeline.answered(left, &mut |run| tell(run, None));
        }
    }

    /// Reads the next part of a response. Says whether there was one; if not, more bytes are needed.
    fn step<E: Responses<Reading = R>>(
        &mut self,
        now: Time,
        input: &mut &[u8],
        cache: &mut HeadCache,
        events: &mut E,
    ) -> Result<bool, Loss> {
        let front = self.pipeline.front();
        let (expect, kind) = front.map_or((Expect::Usual, 0), |r| (r.expect, r.kind));
        let is_idempotent = front.is_some_and(|r| r.idempotent);
        let part = match self.reader.next(cache, input, expect) {
            Ok(Some(part)) => part,
            Ok(None) => return Ok(false),
            Err(error) => {
                self.failed = true;
                if let (ResponseErrorKind::HeadTooLong(limit), Some(front)) =
                    (error.kind, self.pipeline.front())
                {
                    events.head_too_long(front, limit as usize);
                }
                return Err(Loss::Malformed(error.to_string()));
            }
        };
        match part {
            ResponsePart::Interim(_) => {}
            ResponsePart::Trailers(fields) => events.trailers(&mut self.reading, kind, fields),
            // A server says 408 when it closes an idle connection. One that comes on a reused
            // connection probably crossed the requests on the wire, and they may go out again (RFC
            // 9110 section 15.5.9). A handler may have said it too, so a request that is not
            // idempotent gets it as its response (section 9.2.2).
            ResponsePart::Head(head) if is_idempotent && self.answers > 0 && gives_up(&head) => {
                self.gave_up = true;
                return Err(Loss::SaidClose);
            }
            ResponsePart::Head(head) => {
                if let Some(front) = self.pipeline.front() {
                    events.begins(&mut self.reading, front);
                }
                self.whose = events.head(&mut self.reading, kind, &head);
            }
            ResponsePart::Body(piece) => events.body(&mut self.reading, kind, piece),
            ResponsePart::End(end) => {
                let tunnels = end.status == 101 || (expect == Expect::Connect && end.status < 300);
                self.end_answer(now, end.status, events);
                if !end.reusable {
                    self.announced = true;
                    if !input.is_empty() && !tunnels {
                        events.unsolicited(now, input, surplus(input, cache));
                    }
                    return Err(Loss::SaidClose);
                }
            }
        }
        Ok(true)
    }

    fn end_answer<E: Responses<Reading = R>>(&mut self, now: Time, status: u16, events: &mut E) {
        self.answers += 1;
        let first_byte = self.first_byte.take();
        let kind = self.pipeline.front().map_or(0, |run| run.kind);
        let (named, turn) = match self.whose {
            Whose::Matched => (None, Turn::Right),
            Whose::Named(name) => match name.map_or(TagMatch::Unknown, |n| self.pipeline.answered_tag(n)) {
                TagMatch::InOrder(run) => (Some(run), Turn::Right),
                TagMatch::OutOfOrder(run) => (Some(run), Turn::OutOfOrder),
                TagMatch::Unknown => (None, Turn::Unknown),
            },
        };
        let mut run = named;
        if run.is_none() {
            self.pipeline.answered(1, &mut |front| run = Some(front));
        }
        let Some(run) = run else { return };
        let response = Whole { now, first_byte, status, turn };
        events.answered(&run, kind, &mut self.reading, &response);
    }
}

/// RFC 9110 section 15.5.9.
const REQUEST_TIMEOUT: u16 = 408;

/// Whether the server closes a connection that it took for idle.
fn gives_up(head: &HeadView<'_>) -> bool {
    head.status() == REQUEST_TIMEOUT && says_close(head)
}

fn says_close(head: &HeadView<'_>) -> bool {
    head.get(b"connection").is_some_and(|value| memmem::find(&value.to_ascii_lowercase(), b"close").is_some())
}

/// Bytes on a connection with nothing in flight. A server that gives up on an idle connection may say so before it closes it (RFC 9110
/// section 15.5.9); nothing else may come.
fn unasked(now: Time, bytes: &[u8], cache: &mut HeadCache, events: &mut impl Responses) -> Loss {
    if is_farewell(bytes) {
        return Loss::SaidClose;
    }
    events.unsolicited(now, bytes, surplus(bytes, cache));
    Loss::Unsolicited
}

/// Whether it is a 408 that announces the close.
fn is_farewell(bytes: &[u8]) -> bool {
    let Some(end) = memmem::find(bytes, b"\r\n\r\n") else { return false };
    let head = bytes[..end].to_ascii_lowercase();
    let closes = |line: &[u8]| {
        let value = line.strip_prefix(b"connection:");
        value.is_some_and(|v| memmem::find(v, b"close").is_some())
    };
    head.starts_with(b"http/1.1 408") && head.split(|b| *b == b'\n').any(closes)
}

/// How many responses the bytes hold, one that is not whole or makes no sense included.
fn surplus(mut bytes: &[u8], cache: &mut HeadCache) -> u64 {
    let mut reader = ResponseReader::new(ResponseLimits::default());
    let mut n = 0;
    loop {
        match reader.next(cache, &mut bytes, Expect::Usual) {
            Ok(Some(ResponsePart::End(end))) => {
                n += 1;
                if bytes.is_empty() || !end.reusable {
                    return n;
                }
            }
            Ok(Some(_)) => {}
            Ok(None) => return n + u64::from(reader.in_answer()),
            Err(_) => return n + 1,
        }
    }
}

fn depth(pipeline: &Pipeline<Stamp>) -> u32 {
    u32::try_from(pipeline.len()).unwrap_or(u32::MAX)
}

/// How many requests from the front on have answers framed in the usual way.
fn usual_ahead(front: &Run) -> u32 {
    if front.expect == Expect::Usual { front.count } else { 0 }
}
