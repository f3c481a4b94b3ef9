//! Reads responses: bytes in, heads and bodies out, independent of how the bytes are cut.

use super::cache::{CachedHead, HeadCache};
use super::chunked::{ChunkStep, Chunks};
use super::error::{ResponseError, ResponseErrorKind as Kind, Speaks};
use super::flaws::HeadFlaw;
use super::framing::{Expect, Framing, switches};
use super::head::{Fields, HeadView};
use super::limits::{BANNER_BYTES, CARRY_KEPT, ResponseLimits};
use super::parse::{self, HeadFacts};
use super::scan::{Scan, unfold};

/// The next part of a response.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ResponsePart<'a> {
    /// An interim (1xx, but not 101) response; the final one follows.
    Interim(HeadView<'a>),
    /// The head of the final response.
    Head(HeadView<'a>),
    /// Some bytes of content, never empty.
    Body(&'a [u8]),
    /// The trailer fields, if there are any.
    Trailers(Fields<'a>),
    /// The response is complete.
    End(CompleteResponse),
}

/// A complete response.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CompleteResponse {
    /// The status code.
    pub status: u16,
    /// Whether the connection may carry another request, by version, Connection and framing (RFC
    /// 9112, section 9.3). If not, later bytes are not a response: the reader drops them, or the
    /// caller (101, CONNECT) takes them from `input`.
    pub reusable: bool,
    /// Bytes of the final head.
    pub head_bytes: u32,
    /// Bytes of content, without the framing.
    pub body_bytes: u64,
}

#[derive(Clone, Copy, Debug)]
enum ResponseState {
    /// Between responses, or within a head.
    Head,
    Length(u64),
    Chunks(Chunks),
    /// In the trailer section.
    Trailers,
    UntilClose,
    /// Everything is read except that `End` must still be returned.
    Whole,
    /// No response follows on this connection.
    Closed,
    Failed(ResponseError),
}

/// Reads the responses of one connection.
#[derive(Debug)]
pub struct ResponseReader {
    limits: ResponseLimits,
    state: ResponseState,
    /// The received part of an incomplete head or trailer section.
    carry: Vec<u8>,
    scan: Scan,
    /// `carry` was lent out and must be emptied.
    lent: bool,
    /// Interim responses before the current one.
    interim: u8,
    reusable: bool,
    status: u16,
    head_bytes: u32,
    body_bytes: u64,
}

impl ResponseReader {
    /// A reader for a new connection.
    pub fn new(limits: ResponseLimits) -> ResponseReader {
        ResponseReader {
            limits,
            state: ResponseState::Head,
            carry: Vec::new(),
            scan: Scan::default(),
            lent: false,
            interim: 0,
            reusable: true,
            status: 0,
            head_bytes: 0,
            body_bytes: 0,
        }
    }

    /// The limits given to `new`.
    pub fn limits(&self) -> ResponseLimits {
        self.limits
    }

    /// Whether the last response is complete and nothing of the next one has been read.
    pub fn at_boundary(&self) -> bool {
        match self.state {
            ResponseState::Head => self.interim == 0 && (self.carry.is_empty() || self.lent),
            ResponseState::Closed => true,
            _ => false,
        }
    }

    /// Whether part of a response has been read.
    pub fn in_answer(&self) -> bool {
        !self.at_boundary() && !matches!(self.state, ResponseState::Failed(_))
    }

    /// Bytes still to come of the current body, if its Content-Length says how many.
    #[inline]
    pub fn body_ahead(&self) -> u64 {
        if let ResponseState::Length(left) = self.state { left } else { 0 }
    }

    /// Skips received bytes of the body unread. Must not exceed [`body_ahead`](Self::body_ahead).
    pub fn pass_over(&mut self, bytes: u64) {
        if let ResponseState::Length(left) = self.state {
            let bytes = bytes.min(left);
            self.body_bytes += bytes;
            self.state =
                if bytes == left { ResponseState::Whole } else { ResponseState::Length(left - bytes) };
        }
    }

    /// Whether the connection persists after the response whose head was read last, as far as the
    /// head says. If it says no, no further request may be sent (RFC 9112, section 9.6).
    pub fn persists(&self) -> bool {
        self.reusable && !self.is_closed()
    }

    /// Whether the last response was the last on this connection.
    pub fn is_closed(&self) -> bool {
        matches!(self.state, ResponseState::Closed)
    }

    /// Returns the next part in `input`, which it advances. `None`: all of `input` is read, and
    /// more is needed. Call it until then, even with an empty `input`, because the end of a
    /// response may still be due. `expect` belongs to the request whose response is next. Bytes
    /// that arrive without an open request must not be read as a response (RFC 9112, section 9.2):
    /// [`ResponseError::unsolicited`].
    ///
    /// # Errors
    /// The response is malformed or exceeds a limit. Every further call returns the same error.
    pub fn next<'a, 'i: 'a>(
        &'a mut self,
        cache: &'a mut HeadCache,
        input: &mut &'i [u8],
        expect: Expect,
    ) -> Result<Option<ResponsePart<'a>>, ResponseError> {
        self.release();
        match self.state {
            ResponseState::Head => self.next_head(cache, input, expect),
            ResponseState::Length(left) => Ok(self.next_of_length(left, input)),
            ResponseState::Chunks(chunks) => self.next_of_chunks(chunks, input),
            ResponseState::Trailers => self.next_trailers(input),
            ResponseState::UntilClose => Ok(take_all(input).map(|body| {
                self.body_bytes += body.len() as u64;
                ResponsePart::Body(body)
            })),
            ResponseState::Whole => Ok(Some(ResponsePart::End(self.end()))),
            ResponseState::Closed => {
                *input = &[];
                Ok(None)
            }
            ResponseState::Failed(error) => Err(error),
        }
    }

    /// Takes complete responses (at most `most`) from the start of `input`, for requests that are
    /// [`Expect::Usual`]. Each must have the same head, which `cache` holds, with a body of known
    /// length, and must leave the connection open. Returns their number: 0 within a response, or if
    /// [`next`](Self::next) has to read. Their head becomes the cache's current one:
    /// [`HeadCache::status`] is the status of each.
    #[inline]
    pub fn take_same(&mut self, cache: &mut HeadCache, input: &mut &[u8], most: u32) -> u32 {
        // Responses usually repeat to the last byte. Then the input equals itself shifted by one
        // response. One comparison of all of it shows that, at a third of the cost of one
        // comparison per response.
        let all = *input;
        let first = self.take_same_with(cache, input, most.min(1), |_, _| {});
        let whole = all.len() - input.len();
        let alike = if first == 0 { 0 } else { (all.len() / whole).min(most as usize) };
        if alike > 1 && all[..(alike - 1) * whole] == all[whole..alike * whole] {
            *input = &all[alike * whole..];
            return alike as u32;
        }
        *input = all;
        self.take_same_with(cache, input, most, |_, _| {})
    }

    /// As [`take_same`](Self::take_same), passing each head and body to `each`.
    #[inline]
    pub fn take_same_with<'i>(
        &mut self,
        cache: &mut HeadCache,
        input: &mut &'i [u8],
        most: u32,
        mut each: impl FnMut(&'i [u8], &'i [u8]),
    ) -> u32 {
        self.release();
        if !self.is_ready() || most == 0 || !cache.select(input) {
            return 0;
        }
        let Some(held) = cache.current_mut() else { return 0 };
        let head = held.len();
        let body = held.whole().and_then(|body| usize::try_from(body).ok());
        let Some(whole) = body.and_then(|body| head.checked_add(body)) else { return 0 };
        if !self.accepts(held) || input.len() < whole {
            return 0;
        }
        let mut taken = 0;
        loop {
            let (answer, rest) = input.split_at(whole);
            let (head, body) = answer.split_at(head);
            each(head, body);
            *input = rest;
            taken += 1;
            if taken == most || rest.len() < whole || !held.matches(&rest[..head.len()]) {
                return taken;
            }
        }
    }

    /// Handles the peer's close. A response that lasts until the close is now complete; between
    /// responses there is nothing to report.
    ///
    /// # Errors
    /// A response was truncated.
    pub fn finish(&mut self) -> Result<Option<CompleteResponse>, ResponseError> {
        self.release();
        let (kind, at) = match self.state {
            ResponseState::Head if self.at_boundary() => {
                self.state = ResponseState::Closed;
                return Ok(None);
            }
            ResponseState::Closed => return Ok(None),
            ResponseState::Whole | ResponseState::UntilClose => {
                self.reusable = false;
                return Ok(Some(self.end()));
            }
            ResponseState::Failed(error) => return Err(error),
            ResponseState::Head => match foreign(&self.carry, true) {
                Some(what) => (Kind::NotHttp(what), 0),
                None => (Kind::TruncatedHead, self.carry.len() as u64),
            },
            ResponseState::Length(left) => (Kind::TruncatedBody { missing: Some(left) }, self.body_bytes),
            ResponseState::Chunks(chunks) => {
                (Kind::TruncatedBody { missing: chunks.missing() }, self.body_bytes)
            }
            ResponseState::Trailers => (Kind::TruncatedBody { missing: None }, self.body_bytes),
        };
        self.fail(ResponseError { kind, at })
    }

    /// Empties what was lent out, and frees the excess capacity of a long head.
    #[inline]
    fn release(&mut self) {
        if self.lent {
            self.lent = false;
            self.scan = Scan::default();
            self.carry.clear();
            if self.carry.capacity() > CARRY_KEPT {
                self.carry = Vec::new();
            }
        }
    }

    fn fail<T>(&mut self, error: ResponseError) -> Result<T, ResponseError> {
        self.state = ResponseState::Failed(error);
        self.carry = Vec::new();
        Err(error)
    }

    fn end(&mut self) -> CompleteResponse {
        self.state = if self.reusable { ResponseState::Head } else { ResponseState::Closed };
        self.interim = 0;
        CompleteResponse {
            status: self.status,
            reusable: self.reusable,
            head_bytes: self.head_bytes,
            body_bytes: self.body_bytes,
        }
    }

    /// Whether a response may begin here.
    #[inline]
    fn is_ready(&self) -> bool {
        matches!(self.state, ResponseState::Head) && self.interim == 0 && self.carry.is_empty()
    }

    /// Whether a cached head, read under another reader's limits, is within ours.
    #[inline]
    fn accepts(&self, held: &CachedHead) -> bool {
        held.len() <= self.limits.head_bytes as usize && held.facts().fields <= self.limits.fields
    }

    fn next_head<'a, 'i: 'a>(
        &'a mut self,
        cache: &'a mut HeadCache,
        input: &mut &'i [u8],
        expect: Expect,
    ) -> Result<Option<ResponsePart<'a>>, ResponseError> {
        if self.carry.is_empty() {
            return self.next_head_whole(cache, input, expect);
        }
        if let Some(missing) = self.completes_held(cache, input) {
            *input = &input[missing..];
            self.lent = true;
            return Ok(cache.current().map(|held| {
                self.begin_held(held.facts(), held.len(), expect);
                ResponsePart::Head(held.view())
            }));
        }
        match self.collect(input, self.limits.head_bytes, true) {
            Ok(true) => self.begin_carried(cache, expect).map(Some),
            Ok(false) => Ok(None),
            Err(error) => self.fail(error),
        }
    }

    /// Whether the carried bytes begin a cached head and `input` has its rest; returns how many
    /// bytes of `input` that is.
    fn completes_held(&self, cache: &mut HeadCache, input: &[u8]) -> Option<usize> {
        let missing = cache.select_carried(&self.carry, input)?;
        cache.current().is_some_and(|held| self.accepts(held)).then_some(missing)
    }

    /// Reads a head that is in `input`, or begins there, with nothing carried.
    fn next_head_whole<'a, 'i: 'a>(
        &'a mut self,
        cache: &mut HeadCache,
        input: &mut &'i [u8],
        expect: Expect,
    ) -> Result<Option<ResponsePart<'a>>, ResponseError> {
        let all = *input;
        if cache.select(all)
            && let Some(held) = cache.current()
            && self.accepts(held)
        {
            let (head, rest) = all.split_at(held.len());
            *input = rest;
            self.begin_held(held.facts(), held.len(), expect);
            return Ok(Some(ResponsePart::Head(HeadView::new(head, held.facts()))));
        }
        if cache.current().is_some_and(|held| held.starts_with(all) && self.accepts(held)) {
            // The read ended within a head, probably a cached one, so it is not parsed before the
            // rest arrives.
            *input = &[];
            self.carry.extend_from_slice(all);
            return Ok(None);
        }
        if let Some(what) = foreign(all, false) {
            return self.fail(ResponseError::new(Kind::NotHttp(what), 0));
        }
        let limit = self.limits.head_bytes as usize;
        let within = &all[..all.len().min(limit)];
        // Parses it as if it were complete. Only on an error is its end searched for.
        if let Ok((facts, end)) = parse::head(within, self.limits.fields, cache.tag_name()) {
            *input = &all[end..];
            return self.begin(cache, &all[..end], facts, expect).map(Some);
        }
        let mut scan = Scan::default();
        if let Some(end) = scan.find_end(within) {
            *input = &all[end..];
            self.carry.extend_from_slice(&all[..end]);
            self.scan = scan;
            return self.begin_carried(cache, expect).map(Some);
        }
        if all.len() >= limit {
            return self.fail(ResponseError::new(Kind::HeadTooLong(self.limits.head_bytes), limit));
        }
        *input = &[];
        self.carry.extend_from_slice(all);
        self.scan = scan;
        Ok(None)
    }

    /// Moves bytes from `input` to `carry` up to the end of the section; true once it is there.
    fn collect(&mut self, input: &mut &[u8], limit: u32, is_head: bool) -> Result<bool, ResponseError> {
        loop {
            if is_head && let Some(what) = foreign(&self.carry, false) {
                return Err(ResponseError::new(Kind::NotHttp(what), 0));
            }
            let kept = &self.carry[..self.carry.len().min(limit as usize)];
            if self.scan.find_end(kept).is_some() {
                return Ok(true);
            }
            if self.carry.len() >= limit as usize {
                let kind = if is_head { Kind::HeadTooLong(limit) } else { Kind::TrailersTooLong(limit) };
                return Err(ResponseError::new(kind, limit as usize));
            }
            if input.is_empty() {
                return Ok(false);
            }
            let room = limit as usize - self.carry.len();
            let line = memchr::memchr(b'\n', input).map_or(input.len(), |lf| lf + 1).min(room);
            self.carry.extend_from_slice(&input[..line]);
            *input = &input[line..];
        }
    }

    /// Handles the complete head in `carry`.
    fn begin_carried<'a>(
        &'a mut self,
        cache: &mut HeadCache,
        expect: Expect,
    ) -> Result<ResponsePart<'a>, ResponseError> {
        let mut head = std::mem::take(&mut self.carry);
        let folded = self.scan.folded;
        // White space before the first field must be detected before it could pass for a fold.
        let start = if folded { parse::check_start(&head) } else { Ok(()) };
        if folded && start.is_ok() {
            unfold(&mut head);
        }
        let facts = match start.and_then(|()| parse::head(&head, self.limits.fields, cache.tag_name())) {
            Ok((facts, _)) => facts,
            Err(error) => return self.fail(error),
        };
        // The cache gets the head without folds.
        let flaws = facts.flaws.with(HeadFlaw::FoldedField, folded);
        let seen = HeadFacts { flaws, ..facts.clone() };
        let outcome = self.begin_facts(cache, &head, facts, expect);
        self.carry = head;
        self.lent = true;
        outcome?;
        let view = HeadView::new(&self.carry, &seen);
        Ok(self.head_part(view))
    }

    /// Handles a head without folds that is complete in the input.
    fn begin<'a>(
        &mut self,
        cache: &mut HeadCache,
        raw: &'a [u8],
        facts: HeadFacts,
        expect: Expect,
    ) -> Result<ResponsePart<'a>, ResponseError> {
        let view = HeadView::new(raw, &facts);
        self.begin_facts(cache, raw, facts, expect)?;
        Ok(self.head_part(view))
    }

    fn head_part<'a>(&self, view: HeadView<'a>) -> ResponsePart<'a> {
        match self.state {
            ResponseState::Head => ResponsePart::Interim(view),
            _ => ResponsePart::Head(view),
        }
    }

    /// Prepares to read the body after a head; an interim head leaves the state as it is.
    fn begin_facts(
        &mut self,
        cache: &mut HeadCache,
        raw: &[u8],
        facts: HeadFacts,
        expect: Expect,
    ) -> Result<(), ResponseError> {
        if (100..200).contains(&facts.status) && facts.status != 101 {
            if self.interim >= self.limits.interim {
                return self.fail(ResponseError::new(Kind::TooManyInterim(self.limits.interim), 0));
            }
            self.interim += 1;
            return Ok(());
        }
        let framing = facts.framing.of_answer(facts.status, expect);
        if let Framing::Bad(kind, at) = framing {
            return self.fail(ResponseError { kind, at: u64::from(at) });
        }
        self.begin_body(facts.status, facts.persistent, raw.len(), framing, expect);
        let bad = matches!(facts.framing, Framing::Bad(..));
        if !bad && facts.status != 101 {
            cache.learn(raw, facts);
        }
        Ok(())
    }

    /// Handles a cached head of `len` bytes.
    fn begin_held(&mut self, facts: &HeadFacts, len: usize, expect: Expect) {
        let framing = facts.framing.of_answer(facts.status, expect);
        self.begin_body(facts.status, facts.persistent, len, framing, expect);
    }

    fn begin_body(&mut self, status: u16, persistent: bool, head: usize, framing: Framing, expect: Expect) {
        self.status = status;
        self.head_bytes = head as u32;
        self.body_bytes = 0;
        self.reusable = persistent && framing != Framing::UntilClose && !switches(status, expect);
        self.state = match framing {
            Framing::Length(0) | Framing::Bad(..) => ResponseState::Whole,
            Framing::Length(n) => ResponseState::Length(n),
            Framing::Chunked => ResponseState::Chunks(Chunks::new()),
            Framing::UntilClose => ResponseState::UntilClose,
        };
    }

    fn next_of_length<'i>(&mut self, left: u64, input: &mut &'i [u8]) -> Option<ResponsePart<'i>> {
        let n = usize::try_from(left).unwrap_or(usize::MAX).min(input.len());
        if n == 0 {
            return None;
        }
        let (body, rest) = input.split_at(n);
        *input = rest;
        self.body_bytes += n as u64;
        self.state =
            if left == n as u64 { ResponseState::Whole } else { ResponseState::Length(left - n as u64) };
        Some(ResponsePart::Body(body))
    }

    fn next_of_chunks<'a, 'i: 'a>(
        &'a mut self,
        mut chunks: Chunks,
        input: &mut &'i [u8],
    ) -> Result<Option<ResponsePart<'a>>, ResponseError> {
        match chunks.step(input, self.limits.chunk_line_bytes) {
            Ok(ChunkStep::Data(body)) => {
                self.body_bytes += body.len() as u64;
                self.state = ResponseState::Chunks(chunks);
                Ok(Some(ResponsePart::Body(body)))
            }
            Ok(ChunkStep::More) => {
                self.state = ResponseState::Chunks(chunks);
                Ok(None)
            }
            Ok(ChunkStep::Last) => {
                self.state = ResponseState::Trailers;
                self.next_trailers(input)
            }
            Err(kind) => self.fail(ResponseError { kind, at: self.body_bytes }),
        }
    }

    fn next_trailers<'a>(&'a mut self, input: &mut &[u8]) -> Result<Option<ResponsePart<'a>>, ResponseError> {
        if self.carry.is_empty()
            && let Some(rest) = input.strip_prefix(b"\r\n")
        {
            *input = rest;
            return Ok(Some(ResponsePart::End(self.end())));
        }
        match self.collect(input, self.limits.trailer_bytes, false) {
            Ok(true) => {}
            Ok(false) => return Ok(None),
            Err(error) => return self.fail(error),
        }
        self.lent = true;
        if self.carry.len() <= 2 {
            return Ok(Some(ResponsePart::End(self.end())));
        }
        let start = self.carry.first().is_some_and(|b| matches!(b, b' ' | b'\t'));
        if self.scan.folded && !start {
            unfold(&mut self.carry);
        }
        if let Err(error) = parse::trailers(&self.carry, self.limits.fields) {
            return self.fail(error);
        }
        self.state = ResponseState::Whole;
        Ok(Some(ResponsePart::Trailers(Fields::of_trailers(&self.carry))))
    }
}

fn take_all<'i>(input: &mut &'i [u8]) -> Option<&'i [u8]> {
    let all = std::mem::take(input);
    (!all.is_empty()).then_some(all)
}

/// The protocol of a peer whose first bytes are not HTTP/1, once enough bytes (or the last ones)
/// have arrived for a stable verdict.
fn foreign(start: &[u8], last: bool) -> Option<Speaks> {
    const MAGIC: &[u8] = b"HTTP/";
    let n = start.len().min(MAGIC.len());
    if start[..n] == MAGIC[..n] {
        return None;
    }
    let start = &start[..start.len().min(BANNER_BYTES)];
    let line = start.split_inclusive(|b| *b == b'\n').next().unwrap_or(start);
    if line.len() < BANNER_BYTES && !last && !line.ends_with(b"\n") {
        return None;
    }
    Some(match line {
        [b'S', b'S', b'H', b'-', ..] => Speaks::Ssh,
        [0x15 | 0x16, 3, ..] => Speaks::Tls,
        // The server's preface is a SETTINGS frame on stream 0 (RFC 9113, section 3.4).
        [0, _, _, 4, 0 | 1, 0, 0, 0, 0] => Speaks::Http2,
        [b'2', b'2', b'0', b' ' | b'-', ..] => Speaks::MailOrFtp,
        _ => Speaks::Unknown,
    })
}
