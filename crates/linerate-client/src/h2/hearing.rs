//! Responses on streams, matched with their requests.

use std::sync::Arc;

use linerate_http::client::{Fields, HeadView};
use linerate_http::h2::{Block, Code, Lost, ResponseSink, StreamData};
use linerate_http::h3::H3Code;
use linerate_net::Time;

use crate::Run;
use crate::conversation::{Alike, Facts, Fate, Responses, Turn, Whole, Whose};

/// A request in flight, or several that left together.
#[derive(Clone, Copy, Debug)]
pub(crate) struct HeardRequests {
    pub(crate) run: Run,
    /// Responses on this connection when it left.
    answers: u32,
    /// When its response began.
    first_byte: Option<Time>,
    /// Where its response is remembered.
    pub(crate) reading: Option<u32>,
    whose: Whose,
}

impl HeardRequests {
    #[inline]
    pub(crate) fn new(run: Run, answers: u32) -> HeardRequests {
        HeardRequests { run, answers, first_byte: None, reading: None, whose: Whose::Matched }
    }

    /// The request to go out again; `answers`: responses on the connection by now.
    pub(crate) fn refused(self, answers: u32) -> Run {
        let mut run = self.run;
        let in_vain = answers == self.answers;
        run.stamp.refused = if in_vain { run.stamp.refused.saturating_add(1) } else { 1 };
        run
    }
}

impl StreamData for HeardRequests {
    #[inline]
    fn nth(&self, n: u32) -> HeardRequests {
        let run = Run { first: self.run.first + u64::from(n), count: 1, ..self.run };
        HeardRequests { run, ..*self }
    }
}

/// State of responses that arrive in parts. Slots are reused.
#[derive(Debug)]
pub(crate) struct Readings<R> {
    all: Vec<R>,
    free: Vec<u32>,
}

impl<R> Default for Readings<R> {
    fn default() -> Self {
        Readings { all: Vec::new(), free: Vec::new() }
    }
}

impl<R: Default> Readings<R> {
    fn of(&mut self, request: &mut HeardRequests) -> &mut R {
        let at = *request.reading.get_or_insert_with(|| {
            self.free.pop().unwrap_or_else(|| {
                self.all.push(R::default());
                self.all.len() as u32 - 1
            })
        });
        &mut self.all[at as usize]
    }
}

impl<R> Readings<R> {
    pub(crate) fn give_back(&mut self, reading: Option<u32>) {
        self.free.extend(reading);
    }
}

/// Whole responses to requests that left together, reported in one call.
struct HeardBatch<'i> {
    run: Run,
    block: Arc<Block>,
    body: &'i [u8],
}

/// Matches what a connection hears with its requests, during one read.
pub(crate) struct Hearing<'a, 'i, E: Responses> {
    now: Time,
    events: &'a mut E,
    readings: &'a mut Readings<E::Reading>,
    answers: &'a mut u32,
    given_back: &'a mut Vec<(Run, Fate)>,
    facts: &'a mut Facts,
    batch: Option<HeardBatch<'i>>,
}

impl<'a, E: Responses> Hearing<'a, '_, E> {
    pub(crate) fn new(
        now: Time,
        events: &'a mut E,
        readings: &'a mut Readings<E::Reading>,
        answers: &'a mut u32,
        given_back: &'a mut Vec<(Run, Fate)>,
        facts: &'a mut Facts,
    ) -> Self {
        Hearing { now, events, readings, answers, given_back, facts, batch: None }
    }

    /// Tells of the responses that were held back to be told together.
    #[inline]
    pub(crate) fn tell(&mut self) {
        if let Some(HeardBatch { run, block, body }) = self.batch.take() {
            self.alike(&run, None, &block, body);
        }
    }

    #[inline]
    fn alike(&mut self, run: &Run, first_byte: Option<Time>, block: &Block, body: &[u8]) {
        let (now, status, head) = (self.now, block.status(), block.head().raw());
        self.events.alike(run, &Alike { now, first_byte, status, head, body });
    }

    /// When its first byte came, if that was in an earlier read.
    #[inline]
    fn first_byte(&self, request: &HeardRequests) -> Option<Time> {
        request.first_byte.filter(|at| *at < self.now)
    }
}

impl<'i, E: Responses> ResponseSink<'i, HeardRequests> for Hearing<'_, 'i, E> {
    #[inline]
    fn wants_parts(&self) -> bool {
        self.events.wants_parts()
    }

    #[inline]
    fn whole(&mut self, request: HeardRequests, head: &Arc<Block>, body: &'i [u8]) {
        *self.answers += 1;
        let first_byte = self.first_byte(&request);
        let run = request.run;
        if let Some(batch) = &mut self.batch
            && first_byte.is_none()
            && Arc::ptr_eq(&batch.block, head)
            && batch.body.len() == body.len()
            && continues(&batch.run, &run)
        {
            batch.run.count += 1;
            return;
        }
        self.tell();
        if first_byte.is_some() {
            return self.alike(&run, first_byte, head, body);
        }
        self.batch = Some(HeardBatch { run, block: Arc::clone(head), body });
    }

    #[inline]
    fn again(&mut self, request: HeardRequests, head: &Arc<Block>, body: &'i [u8]) {
        // Nothing came of a response that is taken like this, so that it went into the batch.
        match &mut self.batch {
            Some(batch) => {
                *self.answers += 1;
                batch.run.count += 1;
            }
            None => self.whole(request, head, body),
        }
    }

    #[inline]
    fn begun(&mut self, request: &mut HeardRequests) {
        request.first_byte = Some(self.now);
    }

    fn head(&mut self, request: &mut HeardRequests, head: &HeadView<'_>) {
        let run = request.run;
        let reading = self.readings.of(request);
        self.events.begins(reading, &run);
        let whose = self.events.head(reading, request.run.kind, head);
        request.whose = whose;
    }

    fn body(&mut self, request: &mut HeardRequests, piece: &[u8]) {
        self.events.body(self.readings.of(request), request.run.kind, piece);
    }

    fn trailers(&mut self, request: &mut HeardRequests, fields: Fields<'_>) {
        self.events.trailers(self.readings.of(request), request.run.kind, fields);
    }

    fn end(&mut self, mut request: HeardRequests, status: u16) {
        self.tell();
        *self.answers += 1;
        let turn = match request.whose {
            Whose::Named(name) if name != Some(request.run.first) => Turn::Unknown,
            _ => Turn::Right,
        };
        let response = Whole { now: self.now, first_byte: self.first_byte(&request), status, turn };
        let reading = self.readings.of(&mut request);
        self.events.answered(&request.run, request.run.kind, reading, &response);
        self.readings.give_back(request.reading);
    }

    #[cold]
    fn lost(&mut self, request: HeardRequests, how: Lost, begun: bool) {
        self.readings.give_back(request.reading);
        let lost = match how {
            Lost::Malformed(words) => (request.run, Fate::Malformed(words)),
            Lost::HeadTooLong(limit) => {
                self.events.head_too_long(&request.run, limit);
                (request.run, Fate::Malformed("the head of the response is too long"))
            }
            Lost::Reset(code)
                if !begun
                    && (code == Code::REFUSED_STREAM.into() || code == H3Code::REQUEST_REJECTED.into()) =>
            {
                self.facts.refused += 1;
                (request.refused(*self.answers), Fate::Refused)
            }
            Lost::Reset(code) => {
                *self.facts.resets.entry(code.name.to_owned()).or_default() += 1;
                (request.run, Fate::Reset { code, begun })
            }
        };
        self.given_back.push(lost);
    }

    #[cold]
    fn surplus(&mut self, bytes: &[u8], responses: u64) {
        if responses > 0 {
            self.events.unsolicited(self.now, bytes, responses);
        }
    }
}

/// Whether a request left right behind those of a run, and together with them.
#[inline]
fn continues(run: &Run, next: &Run) -> bool {
    run.end() == next.first && run.stamp == next.stamp && run.kind == next.kind && run.expect == next.expect
}
