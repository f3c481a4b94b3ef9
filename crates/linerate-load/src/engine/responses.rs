//! Judges responses, and adds them to the figures.

use linerate_client::{Alike, Failure, Responses, Run, Settle, Settled, Turn, Whole, Whose};
use linerate_http::client::{Fields, HeadFlaws, HeadView};
use linerate_net::Time;
use memchr::memmem;

use super::board::Board;
use super::body::BodyView;
use super::kinds::Kinds;
use super::recorder::{RecordedResponse, Recorder, ResponseVerdict};
use crate::extract::reading::{StepReads, TakeReading};
use crate::flows::hooks::HookedResponse;
use crate::flows::journeys::StepEnd;
use crate::limits::{SAMPLE_HEAD_BYTES, SAVED_HEAD_BYTES};

/// How closely responses have to be looked at.
#[derive(Debug)]
pub(crate) struct Judge {
    tag: Option<String>,
    /// A substring searcher for each kind that expects a text in the body.
    bodies: Vec<Option<memmem::Finder<'static>>>,
    /// The trailer that each kind expects.
    trailers: Vec<Option<(String, String)>>,
    /// Kinds whose responses have a status of gRPC's.
    grpc: Vec<bool>,
    /// Neither tags nor bodies: responses with the same head need no look of their own.
    plain: bool,
}

impl Judge {
    pub(crate) fn new(tag: Option<&str>, kinds: &Kinds) -> Judge {
        let finder = |text: &String| memmem::Finder::new(text.as_bytes()).into_owned();
        let bodies: Vec<_> = kinds.iter().map(|k| k.expectation.body.as_ref().map(finder)).collect();
        let mut trailers: Vec<_> = kinds.iter().map(|k| k.expectation.trailer.clone()).collect();
        let mut grpc: Vec<bool> = kinds.iter().map(|k| k.is_grpc).collect();
        // What no kind needs is not looked up for each response.
        if trailers.iter().all(Option::is_none) {
            trailers.clear();
        }
        if !grpc.contains(&true) {
            grpc.clear();
        }
        Judge {
            tag: tag.map(str::to_owned),
            plain: tag.is_none()
                && kinds.reads_nothing()
                && bodies.iter().all(Option::is_none)
                && trailers.is_empty()
                && grpc.is_empty(),
            bodies,
            trailers,
            grpc,
        }
    }

    /// The text that the body of a response to a request of this kind must contain.
    pub(crate) fn finder(&self, kind: u16) -> Option<&memmem::Finder<'static>> {
        self.bodies.get(kind as usize)?.as_ref()
    }

    /// Whether the trailer that a response to a request of this kind must have is among some fields; `None`: it
    /// needs none.
    fn has_trailer<'f>(
        &self,
        kind: u16,
        mut fields: impl Iterator<Item = (&'f [u8], &'f [u8])>,
    ) -> Option<bool> {
        let (name, value) = self.trailers.get(kind as usize)?.as_ref()?;
        let is_it = |(n, v): (&[u8], &[u8])| n.eq_ignore_ascii_case(name.as_bytes()) && v == value.as_bytes();
        Some(fields.any(is_it))
    }

    /// gRPC's own status among some fields, if a response to a request of this kind has one.
    fn grpc_status<'f>(
        &self,
        kind: u16,
        mut fields: impl Iterator<Item = (&'f [u8], &'f [u8])>,
    ) -> Option<u16> {
        self.grpc.get(kind as usize).filter(|is_grpc| **is_grpc)?;
        let (_, value) = fields.find(|(name, _)| name.eq_ignore_ascii_case(b"grpc-status"))?;
        std::str::from_utf8(value).ok()?.trim().parse().ok()
    }

    /// Whose response this is, where responses have tags.
    fn whose(&self, head: &HeadView<'_>, kinds: &Kinds) -> Whose {
        let Some(tag) = &self.tag else { return Whose::Matched };
        let value = head.get(tag.as_bytes());
        let number = value.and_then(|v| std::str::from_utf8(v).ok()?.trim().parse().ok());
        Whose::Named(number.and_then(|n| kinds.local(n)))
    }
}

/// A response while it is read.
#[derive(Debug, Default)]
pub(crate) struct ResponseReading {
    head: Vec<u8>,
    body: BodyView,
    /// Whether it has the trailer that is expected.
    trailer: Option<bool>,
    grpc_status: Option<u16>,
    flaws: HeadFlaws,
    /// What a user or an expectation reads of it. Boxed because few plans have one, and connections are moved.
    taken: Option<Box<TakeReading>>,
}

impl ResponseReading {
    /// Its head; `checked`: a text is looked for in its body; `whole`: all of it is to be kept.
    pub(crate) fn begin(&mut self, head: &HeadView<'_>, checked: bool, whole: bool) {
        let raw = head.raw();
        let most = if whole { SAVED_HEAD_BYTES } else { SAMPLE_HEAD_BYTES };
        self.head.clear();
        self.head.extend_from_slice(&raw[..raw.len().min(most)]);
        self.body.begin(head.get(b"content-encoding"), checked, whole);
        (self.trailer, self.grpc_status) = (None, None);
        self.flaws = head.flaws();
    }

    /// A piece of its body.
    pub(crate) fn piece(&mut self, piece: &[u8], finder: Option<&memmem::Finder<'_>>) {
        self.body.piece(piece, finder);
    }

    /// It is whole. `finder`: what is looked for in its body.
    pub(crate) fn answer<'a>(
        &'a mut self,
        response: &Whole,
        finder: Option<&memmem::Finder<'_>>,
        good_status: bool,
        missing: Option<&'a str>,
    ) -> RecordedResponse<'a> {
        let found = self.body.end(finder);
        let problem = self.body.problem();
        let verdict = ResponseVerdict {
            bad_status: !good_status,
            bad_body: !found,
            bad_encoding: problem.is_some(),
            bad_tag: response.turn == Turn::Unknown,
            bad_trailer: self.trailer == Some(false),
            bad_take: missing.is_some(),
            bad_expect: false,
        };
        RecordedResponse {
            now: response.now,
            first_byte: response.first_byte,
            status: response.status,
            verdict,
            head: &self.head,
            body: self.body.start(),
            problem: problem.or(missing),
            whole: self.body.whole(),
        }
    }
}

/// Records what becomes of requests.
pub(crate) struct Recording<'a> {
    pub(crate) recorder: &'a mut Recorder,
    pub(crate) kinds: &'a Kinds,
    pub(crate) judge: &'a Judge,
    pub(crate) board: &'a Board,
    /// The time given is over.
    pub(crate) ended: bool,
    pub(crate) now: Time,
    /// The warm-up is over.
    pub(crate) measuring: bool,
}

impl Recording<'_> {
    /// A response that a user or an expectation reads is whole; its user goes on.
    fn answered_user(
        &mut self,
        (run, kind): (&Run, u16),
        reads: &StepReads,
        reading: &mut ResponseReading,
        (response, good_status): (&Whole, bool),
    ) {
        let mut taken = reading.taken.take().unwrap_or_default();
        if let Some((to, by_get)) = taken.redirect() {
            let answer = reading.answer(response, None, true, None);
            let answer = RecordedResponse { verdict: ResponseVerdict::default(), ..answer };
            self.recorder.answered(run, &answer, self.kinds);
            if let Some(journeys) = self.kinds.journeys() {
                journeys.ended(
                    run.first,
                    StepEnd::Moved { to, by_get, cookies: taken.cookies() },
                    response.now,
                );
            }
            return;
        }
        // Of a response that says no, nothing is taken.
        let judge = |fields: &[(String, String)], body: &[u8]| {
            let response = HookedResponse { status: response.status, fields, body };
            self.kinds.judge(run.first, kind, &response)
        };
        let found = if good_status { taken.finish(reads, judge) } else { (Ok(Vec::new()), None) };
        let (values, missing) = match found.0 {
            Ok(values) => (values, None),
            Err(missing) => (Vec::new(), Some(missing)),
        };
        let late = reads.expect.as_ref().and_then(|expect| expect.max).and_then(|max| {
            let took = response.now - run.stamp.due;
            (took > max).then(|| format!("max_ms = {}: it took {} ms", max.as_millis(), took.as_millis()))
        });
        let unmet = found.1.clone().or(late);
        let mut answer = reading.answer(response, self.judge.finder(kind), good_status, missing.as_deref());
        answer.verdict.bad_expect = unmet.is_some();
        answer.problem = unmet.as_deref().or(answer.problem);
        self.recorder.answered(run, &answer, self.kinds);
        let why = match (answer.verdict.words(), &missing) {
            // The user continues after a response that is only late.
            (Some("not as expected"), _) if found.1.is_none() && missing.is_none() => None,
            (Some("not as expected"), _) => found.1.or(missing),
            (Some("value missing"), Some(missing)) => Some(missing.clone()),
            (Some("bad status"), _) => Some(format!("status {}", response.status)),
            (words, _) => words.map(str::to_owned),
        };
        let end = match &why {
            None => StepEnd::Good(values, taken.cookies()),
            Some(why) => StepEnd::Bad(why, taken.cookies()),
        };
        if let Some(journeys) = self.kinds.journeys() {
            journeys.ended(run.first, end, response.now);
        }
    }
}

impl Responses for Recording<'_> {
    type Reading = ResponseReading;

    #[inline]
    fn wants_parts(&self) -> bool {
        !self.judge.plain || self.recorder.wants_whole()
    }

    #[inline]
    fn received(&mut self, bytes: usize) {
        self.recorder.received(bytes, self.measuring);
    }

    fn head(&mut self, reading: &mut ResponseReading, kind: u16, head: &HeadView<'_>) -> Whose {
        reading.begin(head, self.judge.finder(kind).is_some(), self.recorder.wants_whole());
        if let Some(reads) = self.kinds.reads(kind) {
            let follows = self.kinds.follows(kind) && !self.kinds.get(kind).expects(head.status());
            reading.taken.get_or_insert_default().begin(reads, head, follows);
        }
        // A response without a body may have its trailers in its head.
        reading.trailer = self.judge.has_trailer(kind, head.fields());
        reading.grpc_status = self.judge.grpc_status(kind, head.fields());
        self.judge.whose(head, self.kinds)
    }

    fn body(&mut self, reading: &mut ResponseReading, kind: u16, piece: &[u8]) {
        reading.piece(piece, self.judge.finder(kind));
        if let Some(taken) = &mut reading.taken {
            taken.piece(piece);
        }
    }

    fn trailers(&mut self, reading: &mut ResponseReading, kind: u16, fields: Fields<'_>) {
        reading.trailer = self.judge.has_trailer(kind, fields);
        reading.grpc_status = self.judge.grpc_status(kind, fields).or(reading.grpc_status);
    }

    fn looks_on(&self, reading: &ResponseReading, kind: u16) -> bool {
        self.judge.finder(kind).is_some()
            || !reading.body.has_enough()
            || reading.taken.as_ref().is_some_and(|taken| taken.wants_body())
    }

    fn answered(&mut self, run: &Run, kind: u16, reading: &mut ResponseReading, response: &Whole) {
        if response.turn == Turn::OutOfOrder {
            self.recorder.out_of_order(run);
        }
        if let Some(status) = reading.grpc_status {
            self.recorder.grpc(run, status);
        }
        if !reading.flaws.is_empty() {
            self.recorder.flawed(run, reading.flaws);
        }
        let good_status = self.kinds.get(run.kind).good_status(response.status);
        if let Some(reads) = self.kinds.reads(run.kind) {
            return self.answered_user((run, kind), reads, reading, (response, good_status));
        }
        let answer = reading.answer(response, self.judge.finder(kind), good_status, None);
        self.recorder.answered(run, &answer, self.kinds);
    }

    #[inline]
    fn alike(&mut self, run: &Run, responses: &Alike<'_>) {
        let Alike { now, first_byte, status, head, body } = *responses;
        let bad_status = !self.kinds.get(run.kind).good_status(status);
        let verdict = ResponseVerdict { bad_status, ..ResponseVerdict::default() };
        let answer =
            RecordedResponse { now, first_byte, status, verdict, head, body, problem: None, whole: None };
        self.recorder.answered(run, &answer, self.kinds);
    }

    fn unsolicited(&mut self, now: Time, bytes: &[u8], responses: u64) {
        self.recorder.unsolicited(now, bytes, responses);
    }
}

impl Settle for Recording<'_> {
    fn settled(&mut self, run: &Run, how: Settled, detail: &str) {
        let why = match how {
            // After the end of the run a late request might still get a response.
            Settled::TimedOut if self.ended || self.board.stop_asked() => {
                return self.recorder.unknown(run, self.now);
            }
            Settled::Unknown => return self.recorder.unknown(run, self.now),
            Settled::TimedOut => Failure::Timeout,
            Settled::Reset(code) => {
                return self.recorder.reset(run, self.now, (code, detail), self.kinds);
            }
            Settled::Failed(why) => why,
        };
        self.recorder.failed(run, self.now, (why, Some(detail)), self.kinds);
    }
}
