//! One HTTP/1.1 connection, sans-IO: bytes and the time come in; whose answer it was, how long it took and whether it
//! was good goes to the recorder.

use linerate_client::Stamp;
use linerate_http::client::{
    Expect, HeadCache, Part, Pipeline, ResponseError, ResponseReader, Run, TagMatch,
};
use linerate_net::{Conn, TcpInfo, Time};
use memchr::memmem;

use super::body::BodyView;
use super::kinds::Kinds;
use super::recorder::{Answer, Recorder, Verdict};
use crate::limits::{SAMPLE_HEAD_BYTES, SAVED_HEAD_BYTES};

/// Where a connection is in its life.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Phase {
    /// `connect` was called.
    Connecting,
    /// May carry requests.
    Open,
    /// Carries no further requests: its last one was sent, or the peer said that it will close.
    Ending,
}

/// What bytes led to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Progress {
    /// Goes on.
    Open,
    /// The peer said that it closes after the last answer read.
    PeerCloses,
    /// Bytes came that no request had asked for.
    Unsolicited,
}

/// Why the bytes of a peer make no sense.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Nonsense {
    #[error("{0}")]
    Answer(#[from] ResponseError),
}

/// What sessions of a core share.
pub(crate) struct Shared<'a> {
    pub(crate) cache: &'a mut HeadCache,
    pub(crate) recorder: &'a mut Recorder,
    pub(crate) kinds: &'a Kinds,
    pub(crate) judge: &'a Judge,
}

/// How closely answers have to be looked at.
#[derive(Debug)]
pub(crate) struct Judge {
    tag: Option<String>,
    /// A substring searcher for each kind that expects a text in the body.
    bodies: Vec<Option<memmem::Finder<'static>>>,
    /// Neither tags nor bodies: answers with the same head need no look of their own.
    plain: bool,
    /// Some kind is answered without a body (HEAD) or by a tunnel (CONNECT).
    unusual: bool,
}

impl Judge {
    pub(crate) fn new(tag: Option<&str>, kinds: &Kinds) -> Judge {
        let finder = |text: &String| memmem::Finder::new(text.as_bytes()).into_owned();
        let bodies: Vec<_> = kinds.iter().map(|k| k.expectation.body.as_ref().map(finder)).collect();
        Judge {
            tag: tag.map(str::to_owned),
            plain: tag.is_none() && bodies.iter().all(Option::is_none),
            bodies,
            unusual: kinds.iter().any(|k| k.expect != Expect::Usual),
        }
    }

    /// What is looked for in the body of a response to a request of this kind.
    pub(crate) fn finder(&self, kind: u16) -> Option<&memmem::Finder<'static>> {
        self.bodies.get(kind as usize)?.as_ref()
    }
}

/// A connection's state.
#[derive(Debug)]
pub(crate) struct Session {
    pub(crate) conn: Conn,
    pub(crate) phase: Phase,
    /// When `connect` was called.
    pub(crate) since: Time,
    pub(crate) pipeline: Pipeline<Stamp>,
    /// Requests it may still carry.
    pub(crate) budget: u32,
    /// Whole answers so far.
    pub(crate) answers: u32,
    /// Requests it may have in flight: behind a connection that failed only one until the first response (RFC 9112 section 9.3.2).
    pub(crate) depth: u32,
    /// Answers when a request that goes out again was put at the front.
    pub(crate) again_at: Option<u32>,
    /// Waits in the engine's list of connections with a free place.
    pub(crate) listed: bool,
    /// Low-water mark set on the transport (1: none), and since when.
    pub(crate) low_water: usize,
    pub(crate) low_water_since: Time,
    /// What the last look at its TCP found.
    pub(crate) looked: Option<TcpInfo>,
    /// What follows the last response read is another protocol.
    tunnels: bool,
    reader: ResponseReader,
    first_byte: Option<Time>,
    /// What is known of the answer being read.
    current: Current,
}

#[derive(Debug, Default)]
struct Current {
    status: u16,
    head: Vec<u8>,
    tag: Option<u64>,
    body: BodyView,
}

impl Session {
    pub(crate) fn new(conn: Conn, since: Time, budget: u32, depth: u32) -> Session {
        Session {
            conn,
            phase: Phase::Connecting,
            since,
            pipeline: Pipeline::new(),
            budget,
            answers: 0,
            depth,
            again_at: None,
            listed: false,
            low_water: 1,
            low_water_since: since,
            looked: None,
            tunnels: false,
            reader: ResponseReader::new(linerate_http::client::Limits::default()),
            first_byte: None,
            current: Current::default(),
        }
    }

    /// Requests without an answer yet.
    pub(crate) fn in_flight(&self) -> u32 {
        depth(&self.pipeline)
    }

    /// Requests it could take now.
    pub(crate) fn room(&self) -> u32 {
        if self.phase == Phase::Open {
            self.depth.saturating_sub(self.in_flight()).min(self.budget)
        } else {
            0
        }
    }

    /// Whether part of the next answer has been seen.
    pub(crate) fn in_answer(&self) -> bool {
        self.reader.in_answer()
    }

    /// The peer has announced that it closes after the response that was read last, or was being read.
    pub(crate) fn announced(&self) -> bool {
        !self.reader.persists()
    }

    /// Reads what came at `now`.
    pub(crate) fn handle_bytes(
        &mut self,
        now: Time,
        bytes: &[u8],
        shared: &mut Shared<'_>,
    ) -> Result<Progress, Nonsense> {
        shared.recorder.bytes.received += bytes.len() as u64;
        let mut input = bytes;
        // An answer's end is a part of its own: it may still be to come when the bytes are used up.
        while !input.is_empty() || !self.reader.at_boundary() {
            let Some(front) = self.pipeline.front() else {
                return Ok(unasked(now, input, shared));
            };
            if shared.judge.plain && !shared.recorder.wants_whole() {
                let most = if shared.judge.unusual { usual_ahead(front) } else { depth(&self.pipeline) };
                let before = input;
                let taken = self.reader.take_same(shared.cache, &mut input, most);
                if taken > 0 {
                    self.answered_alike(now, taken, &before[..before.len() - input.len()], shared);
                    continue;
                }
            }
            match self.step(now, &mut input, shared)? {
                Some(Progress::Open) => {}
                Some(ended) => {
                    if !input.is_empty() && !self.tunnels {
                        shared.recorder.unsolicited(now, input, surplus(input, shared.cache));
                    }
                    return Ok(ended);
                }
                None => break,
            }
        }
        if self.reader.in_answer() {
            self.first_byte.get_or_insert(now);
            if !self.reader.persists() {
                // Its head said that the peer will close: nothing more is sent.
                self.phase = Phase::Ending;
            }
        }
        Ok(Progress::Open)
    }

    /// The peer's FIN: ends an answer that lasts until then. Says whether one was ended.
    pub(crate) fn handle_end(&mut self, now: Time, shared: &mut Shared<'_>) -> Result<bool, ResponseError> {
        match self.reader.finish()? {
            Some(end) if !self.pipeline.is_empty() => {
                self.end_answer(now, end.status, shared);
                Ok(true)
            }
            _ => Ok(false),
        }
    }

    /// Answers of the same length, whose heads are the same as the last one read.
    fn answered_alike(&mut self, now: Time, count: u32, bytes: &[u8], shared: &mut Shared<'_>) {
        let status = shared.cache.status();
        self.answers += count;
        let (recorder, kinds) = (&mut *shared.recorder, shared.kinds);
        let head_len = shared.cache.head().map_or(0, |h| h.raw().len());
        let whole = bytes.len() / count.max(1) as usize;
        let mut rest = bytes;
        let mut record = |run: Run<Stamp>, first_byte: Option<Time>| {
            let bad_status = !kinds.get(run.kind).good_status(status);
            let verdict = Verdict { bad_status, ..Verdict::default() };
            let (head, body) = rest[..whole].split_at(head_len);
            rest = &rest[run.count as usize * whole..];
            let answer = Answer { now, first_byte, status, verdict, head, body, problem: None, whole: None };
            recorder.answered(&run, &answer, kinds);
        };
        let mut left = count;
        if let Some(first_byte) = self.first_byte.take() {
            // Only the first of them had begun in an earlier turn.
            self.pipeline.answered(1, &mut |run| record(run, Some(first_byte)));
            left -= 1;
        }
        if left > 0 {
            self.pipeline.answered(left, &mut |run| record(run, None));
        }
    }

    /// Reads the next part of an answer; `None` when more bytes are needed.
    fn step(
        &mut self,
        now: Time,
        input: &mut &[u8],
        shared: &mut Shared<'_>,
    ) -> Result<Option<Progress>, Nonsense> {
        let (expect, kind) = self.pipeline.front().map_or((Expect::Usual, 0), |r| (r.expect, r.kind));
        let current = &mut self.current;
        match self.reader.next(shared.cache, input, expect)? {
            None => return Ok(None),
            Some(Part::Interim(_) | Part::Trailers(_)) => {}
            Some(Part::Head(head)) => {
                let whole = shared.recorder.wants_whole();
                current.begin(&head, shared.judge.tag.as_deref(), whole);
                current.body.begin(head.get(b"content-encoding"), shared.judge.finder(kind).is_some(), whole);
            }
            Some(Part::Body(piece)) => {
                current.body.piece(piece, shared.judge.finder(kind));
            }
            Some(Part::End(end)) => {
                self.tunnels = end.status == 101 || (expect == Expect::Connect && end.status < 300);
                self.end_answer(now, end.status, shared);
                if !end.reusable {
                    return Ok(Some(Progress::PeerCloses));
                }
            }
        }
        Ok(Some(Progress::Open))
    }

    fn end_answer(&mut self, now: Time, status: u16, shared: &mut Shared<'_>) {
        self.answers += 1;
        let first_byte = self.first_byte.take();
        let kind = self.pipeline.front().map_or(0, |run| run.kind);
        let current = &mut self.current;
        let found = current.body.end(shared.judge.finder(kind));
        let mut bad_tag = false;
        let mut matched = None;
        if shared.judge.tag.is_some() {
            let local = current.tag.and_then(|n| shared.kinds.local(n));
            match local.map_or(TagMatch::Unknown, |n| self.pipeline.answered_tag(n)) {
                TagMatch::InOrder(run) => matched = Some(run),
                TagMatch::OutOfOrder(run) => {
                    shared.recorder.out_of_order(&run);
                    matched = Some(run);
                }
                TagMatch::Unknown => bad_tag = true,
            }
        }
        let run = match matched {
            Some(run) => run,
            None => {
                let mut front = None;
                self.pipeline.answered(1, &mut |run| front = Some(run));
                let Some(run) = front else { return };
                run
            }
        };
        let kind = shared.kinds.get(run.kind);
        let verdict = Verdict {
            bad_status: !kind.good_status(status),
            bad_body: !found,
            bad_encoding: current.body.problem().is_some(),
            bad_tag,
        };
        let (body, problem) = (current.body.start(), current.body.problem());
        let answer = Answer {
            now,
            first_byte,
            status,
            verdict,
            head: &current.head,
            body,
            problem,
            whole: current.body.whole(),
        };
        shared.recorder.answered(&run, &answer, shared.kinds);
    }
}

/// Bytes on a connection with nothing in flight. A server that gives up on an idle connection may say so before it closes it (RFC 9110
/// section 15.5.9); nothing else may come.
fn unasked(now: Time, bytes: &[u8], shared: &mut Shared<'_>) -> Progress {
    if is_farewell(bytes) {
        return Progress::PeerCloses;
    }
    shared.recorder.unsolicited(now, bytes, surplus(bytes, shared.cache));
    Progress::Unsolicited
}

/// Whether it is a 408 that announces the close.
pub(crate) fn is_farewell(bytes: &[u8]) -> bool {
    let Some(end) = memmem::find(bytes, b"\r\n\r\n") else { return false };
    let head = bytes[..end].to_ascii_lowercase();
    let closes = |line: &[u8]| {
        let value = line.strip_prefix(b"connection:");
        value.is_some_and(|v| memmem::find(v, b"close").is_some())
    };
    head.starts_with(b"http/1.1 408") && head.split(|b| *b == b'\n').any(closes)
}

/// How many responses the bytes hold, one that is not whole or makes no sense included.
pub(crate) fn surplus(mut bytes: &[u8], cache: &mut HeadCache) -> u64 {
    let mut reader = ResponseReader::new(linerate_http::client::Limits::default());
    let mut n = 0;
    loop {
        match reader.next(cache, &mut bytes, Expect::Usual) {
            Ok(Some(Part::End(end))) => {
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
fn usual_ahead(front: &Run<Stamp>) -> u32 {
    if front.expect == Expect::Usual { front.count } else { 0 }
}

impl Current {
    fn begin(&mut self, head: &linerate_http::client::HeadView<'_>, tag: Option<&str>, whole: bool) {
        self.status = head.status();
        self.head.clear();
        let raw = head.raw();
        let most = if whole { SAVED_HEAD_BYTES } else { SAMPLE_HEAD_BYTES };
        self.head.extend_from_slice(&raw[..raw.len().min(most)]);
        self.tag = tag
            .and_then(|name| head.get(name.as_bytes()))
            .and_then(|v| std::str::from_utf8(v).ok()?.trim().parse().ok());
    }
}
