//! One request at a time on one connection: what a blocking thread and an async task have in common. Sans-IO.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use linerate_client::{
    Alike, Conversation, H1, Loss, LostConnection, RequestsEnd, Responses, Run, Stamp, Whole, Whose,
    connect_failure, settle,
};
use linerate_http::client::{HeadCache, HeadView};
use linerate_net::{NetError, NetErrorKind, Time, machine};

use super::channel::{NotOpened, Opened};
use super::outgoing::RenderedRequest;
use crate::engine::board::Board;
use crate::engine::kinds::{Kinds, Rendering, RequestError};
use crate::engine::reach::Reach;
use crate::engine::recorder::Recorder;
use crate::engine::responses::{Judge, Recording, ResponseReading};
use crate::engine::supply::Supply;
use crate::limits::{DEAF_GRACE, HANGING, STOP_GRACE};
use crate::outcome::{Failure, Outcome};
use crate::plan::{Io, Pace, Plan, Resend};
use crate::start::StartError;

/// State that all callers share: the source of requests, and the recorder of figures.
#[derive(Debug)]
pub(super) struct Desk {
    supply: Supply,
    kinds: Kinds,
    judge: Arc<Judge>,
    recorder: Recorder,
    board: Arc<Board>,
    next_mark: Time,
    wall_offset_ns: u64,
    busy: u64,
    unreachable: Option<String>,
    reach: Reach,
    resend: Resend,
    is_https: bool,
    /// When a caller first saw the order to stop.
    stop_seen: Option<Time>,
}

/// The baselines know one rhythm only: a request, its response, the next request.
pub(super) fn refuse_what_is_not_theirs(plan: &Plan) -> Result<(), StartError> {
    let refuse = |what: &str| {
        let way = plan.way.name();
        Err(StartError::Plan(format!("--way {way} can't do {what}: that needs --way loop")))
    };
    match plan {
        Plan { depth: 2.., .. } => refuse("pipelining (-p)"),
        Plan { pace: Pace::Open { .. } | Pace::Trace(_), .. } => refuse("an open loop (--rate)"),
        Plan { throughput: true, .. } => refuse("--throughput"),
        Plan { tag: Some(_), .. } => refuse("--tag"),
        Plan { requests, .. } if requests.iter().any(|r| r.expect.trailer.is_some()) => {
            refuse("expect_trailer")
        }
        Plan { requests, .. } if requests.iter().any(|r| r.expect.response.is_some()) => refuse("expect"),
        Plan { io: Io::Uring, .. } => refuse("--io uring"),
        Plan { io: Io::Xdp, .. } => refuse("--io xdp"),
        Plan { from, .. } if !from.is_empty() => refuse("--from"),
        _ => Ok(()),
    }
}

impl Desk {
    pub(super) fn new(plan: &Plan, start: Time, board: Arc<Board>) -> Result<Desk, RequestError> {
        let kinds = Kinds::new(plan, 0, 1)?;
        let measure_from = start + plan.warm_up;
        let stop_at = plan.stop.duration.map_or(Time::NEVER, |d| measure_from + d);
        Ok(Desk {
            supply: Supply::new(None, plan.stop.requests.unwrap_or(u64::MAX), start, measure_from, stop_at),
            recorder: Recorder::new(measure_from, false, &kinds, false)
                .saving(plan.save_responses)
                .telling_names(plan.aborts_by_name())
                .logging(board.log(), &kinds),
            judge: Arc::new(Judge::new(None, &kinds)),
            kinds,
            board,
            next_mark: measure_from + Duration::from_secs(1),
            wall_offset_ns: machine::wall_offset_ns(),
            busy: 0,
            unreachable: None,
            reach: Reach::new(start, measure_from),
            resend: plan.resend,
            is_https: plan.tls.is_some(),
            stop_seen: None,
        })
    }

    fn tick(&mut self, now: Time) {
        if self.board.stop_asked() || self.unreachable.is_some() {
            self.supply.stop(now);
        }
        let is_past = self.is_past(now);
        self.recorder.silence.wait(now, !is_past || self.busy > 0);
        if is_past {
            self.reach.end(now.min(self.supply.stop_at()));
            self.recorder.silence.stop_sending(now.min(self.supply.stop_at()));
        } else if now >= self.next_mark {
            self.next_mark = self.next_mark + Duration::from_secs(1);
            self.recorder.hand_over_log();
            self.board.mark(&self.recorder, None);
        }
        if self.board.wanted() {
            self.board.publish(now, &self.recorder, (self.busy, 0), self.busy, None);
        }
    }

    /// Whether time is up, or the user said stop.
    fn is_past(&self, now: Time) -> bool {
        now >= self.supply.stop_at() || self.board.stop_asked() || self.unreachable.is_some()
    }

    /// Takes the next request; `unsendable`: for want of a connection it will fail.
    fn next_run(&mut self, now: Time, unsendable: bool) -> Option<Run> {
        let batch = if unsendable { self.supply.take_unsendable(now) } else { self.supply.take(now, 1) }?;
        let (kind, _) = self.kinds.pick(batch.first, 1);
        let k = self.kinds.get(kind);
        let stamp = Stamp { sent: now, due: now, in_vain: 0, refused: 0, measured: batch.measured };
        Some(Run { stamp, first: batch.first, count: 1, kind, expect: k.expect, idempotent: k.idempotent })
    }

    /// A request that was taken is sent now, or fails since it cannot be.
    fn sent(&mut self, run: Run, now: Time) -> Run {
        if run.stamp.measured {
            self.recorder.sent(run.kind, 1);
        }
        Run { stamp: Stamp { sent: now, due: now, ..run.stamp }, ..run }
    }

    /// Records what becomes of requests.
    fn recording(&mut self, now: Time) -> Recording<'_> {
        let ended = self.is_past(now);
        if ended {
            let at = now.min(self.supply.stop_at()).max(self.recorder.measure_from);
            self.recorder.close_window(at);
        }
        let Desk { recorder, kinds, judge, board, .. } = self;
        let measuring = recorder.measuring(now);
        Recording { recorder, kinds, judge, board, ended, now, measuring }
    }

    /// The outcome, after the last caller is done.
    pub(super) fn into_outcome(mut self, io: &str) -> Outcome {
        let now = machine::monotonic_now();
        self.reach.end(now.min(self.supply.stop_at()));
        self.recorder.silence.stop_sending(now.min(self.supply.stop_at()));
        let from = self.recorder.measure_from;
        let planned = self.supply.stop_at();
        let last = self.recorder.last_answer();
        let interrupted = self.board.stop_asked();
        let to_plan = planned != Time::NEVER && !interrupted && self.supply.ran_out_of_time();
        // Callers that cannot reach the target give up before the planned end.
        let end = if to_plan { planned.min(now).max(last) } else { self.recorder.last_end() };
        self.board.mark_last(&self.recorder, None);
        let mut outcome = self.recorder.into_outcome(end.max(from), now);
        outcome.down = self.reach.into_down();
        outcome.io = io.to_owned();
        outcome.interrupted = interrupted;
        outcome.unreachable = self.unreachable;
        outcome
    }
}

/// The next step of a connection's task.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Next {
    /// Send the request that was rendered.
    Send,
    /// Nothing more will come.
    Done,
}

/// The result of reading bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Heard {
    /// The response is not whole yet.
    More,
    /// It is whole; whether the connection may carry another request.
    Answered { reusable: bool },
    /// It made no sense: the connection is to be closed.
    Broken,
}

/// Looks at responses for a caller. The desk is held only while one is recorded.
struct Telling<'a> {
    desk: &'a Mutex<Desk>,
    judge: &'a Judge,
    now: Time,
}

impl Responses for Telling<'_> {
    type Reading = ResponseReading;

    /// Always: the baselines read a response as it comes.
    fn wants_parts(&self) -> bool {
        true
    }

    fn received(&mut self, bytes: usize) {
        let mut desk = lock(self.desk);
        let measuring = desk.recorder.measuring(self.now);
        desk.recorder.received(bytes, measuring);
    }

    fn head(&mut self, reading: &mut ResponseReading, kind: u16, head: &HeadView<'_>) -> Whose {
        let whole = lock(self.desk).recorder.wants_whole();
        reading.begin(head, self.judge.finder(kind).is_some(), whole);
        Whose::Matched
    }

    fn body(&mut self, reading: &mut ResponseReading, kind: u16, piece: &[u8]) {
        reading.piece(piece, self.judge.finder(kind));
    }

    fn answered(&mut self, run: &Run, kind: u16, reading: &mut ResponseReading, response: &Whole) {
        let mut desk = lock(self.desk);
        desk.busy = desk.busy.saturating_sub(1);
        desk.reach.progressed(self.now);
        desk.recording(self.now).answered(run, kind, reading, response);
    }

    fn alike(&mut self, run: &Run, responses: &Alike<'_>) {
        lock(self.desk).recording(self.now).alike(run, responses);
    }

    fn unsolicited(&mut self, now: Time, bytes: &[u8], responses: u64) {
        lock(self.desk).recording(now).unsolicited(now, bytes, responses);
    }
}

/// A client of one connection at a time, and of one request at a time on it.
#[derive(Debug)]
pub(super) struct Caller {
    desk: Arc<Mutex<Desk>>,
    judge: Arc<Judge>,
    per_connection: Option<u32>,
    conversation: H1<ResponseReading>,
    cache: HeadCache,
    /// The request to go out again, and how it was lost.
    again: Option<(Run, RequestsEnd)>,
    /// The request that the next connection is opened for.
    reserved: Option<Run>,
    /// Responses on this connection when one was sent again.
    again_at: Option<u32>,
    on_connection: u32,
}

impl Caller {
    pub(super) fn new(desk: Arc<Mutex<Desk>>, per_connection: Option<u32>) -> Caller {
        let (judge, cache) = (Arc::clone(&lock(&desk).judge), HeadCache::new());
        Caller {
            desk,
            judge,
            per_connection,
            conversation: H1::new(&cache),
            cache,
            again: None,
            reserved: None,
            again_at: None,
            on_connection: 0,
        }
    }

    /// A connection is open: TCP at the first time, and requests may pass at the second.
    pub(super) fn connected(&mut self, asked: Time, tcp_at: Time, now: Time) {
        self.conversation = H1::new(&self.cache);
        (self.on_connection, self.again_at) = (0, None);
        let mut desk = lock(&self.desk);
        desk.reach.opened(now);
        desk.recorder.connections.opened += 1;
        if desk.recorder.measuring(now) {
            desk.recorder.connect.record(tcp_at.nanos_since(asked), 1);
            if desk.is_https {
                desk.recorder.tls.record(now.nanos_since(tcp_at), 1);
            }
        }
    }

    /// The connection is closed.
    pub(super) fn disconnected(&mut self, now: Time) {
        lock(&self.desk).reach.closed(now);
    }

    /// Whether there is a request for another connection, which it then gets: connections that carry
    /// nothing are not opened.
    pub(super) fn has_more(&mut self, now: Time) -> bool {
        if self.again.is_none() && self.reserved.is_none() {
            let mut desk = lock(&self.desk);
            desk.tick(now);
            self.reserved = desk.next_run(now, false);
        }
        self.again.is_some() || self.reserved.is_some()
    }

    /// How long connecting may take: not beyond the end of the run.
    pub(super) fn connect_limit(&self, now: Time, timeout: Duration) -> Duration {
        let left = lock(&self.desk).supply.stop_at().nanos_since(now);
        timeout.min(Duration::from_nanos(left)).max(Duration::from_millis(1))
    }

    /// Renders the request to be sent next.
    pub(super) fn next(&mut self, now: Time, out: &mut RenderedRequest) -> Next {
        let mut desk = lock(&self.desk);
        desk.tick(now);
        let run = match self.again.take() {
            Some((run, end)) => {
                if run.stamp.measured {
                    desk.recorder.resent(run.kind, 1, end);
                }
                self.again_at = Some(self.conversation.answers());
                run
            }
            None => match self.reserved.take().or_else(|| desk.next_run(now, false)) {
                Some(run) if !desk.is_past(now) => desk.sent(run, now),
                Some(_) | None => return Next::Done,
            },
        };
        desk.busy += 1;
        self.on_connection += 1;
        let last = self.per_connection.is_some_and(|n| self.on_connection >= n);
        out.clear();
        let now_ms = now.as_nanos().wrapping_add(desk.wall_offset_ns) / 1_000_000;
        let mut requests = Rendering { kinds: &mut desk.kinds, now_ms };
        // Memory takes all of it.
        let bytes = self.conversation.begin(run, last, &mut requests, out).unwrap_or(0);
        if run.stamp.measured {
            desk.recorder.bytes.sent += bytes;
        }
        Next::Send
    }

    /// Takes the bytes of a read. Says whether the exchange is over and, if so, whether the connection may carry another
    /// request.
    pub(super) fn take(&mut self, now: Time, plain: &[u8], opened: Opened) -> Option<bool> {
        if !plain.is_empty() {
            match self.handle_bytes(now, plain) {
                Heard::More => {}
                Heard::Answered { reusable } => return Some(reusable && matches!(opened, Opened::More)),
                Heard::Broken => return Some(false),
            }
        }
        match opened {
            Opened::More => return None,
            Opened::Ended => {
                self.lost(now, Failure::ClosedEarly, "the peer closed the connection without an answer");
            }
            // A body that lasts until the close has no other end than TLS's own (RFC 9112 section 9.8).
            Opened::Failed(failed) => {
                let why = if self.conversation.in_response() { Failure::Reset } else { Failure::ClosedEarly };
                self.lost(now, why, &failed.words());
            }
        }
        Some(false)
    }

    /// Bytes of the response.
    fn handle_bytes(&mut self, now: Time, bytes: &[u8]) -> Heard {
        let Caller { desk, judge, conversation, cache, .. } = self;
        let mut events = Telling { desk, judge, now };
        events.received(bytes.len());
        let read = conversation.handle_bytes(now, bytes, cache, &mut events);
        let waits = conversation.in_flight() > 0;
        let spent = self.per_connection.is_some_and(|n| self.on_connection >= n);
        match read {
            Ok(()) if waits => Heard::More,
            Ok(()) => Heard::Answered { reusable: !spent },
            Err(loss) if waits => {
                self.settle(now, &loss, &loss.words());
                Heard::Broken
            }
            // The response came, and said that it was the last; or more came than a response.
            Err(_) => Heard::Answered { reusable: false },
        }
    }

    /// The peer closed, or the connection failed: what becomes of the request.
    pub(super) fn lost(&mut self, now: Time, why: Failure, words: &str) {
        let Caller { desk, judge, conversation, .. } = self;
        let loss = match why {
            Failure::ClosedEarly => conversation.handle_end(now, &mut Telling { desk, judge, now }),
            _ => Loss::Net(NetError::of(NetErrorKind::Reset)),
        };
        let detail = if let Loss::Cut(cut) = &loss { cut } else { words };
        self.settle(now, &loss, detail);
    }

    /// No response within the timeout: failed, or unknown when the end had come meanwhile.
    pub(super) fn timed_out(&mut self, now: Time) {
        lock(&self.desk).tick(now);
        self.settle(now, &Loss::TimedOut, &Loss::TimedOut.words());
    }

    /// The connection is lost: what becomes of the request on it, by the rules of every client.
    fn settle(&mut self, now: Time, loss: &Loss, detail: &str) {
        let Caller { desk, conversation, again, again_at, .. } = self;
        let in_flight = conversation.in_flight();
        let mut guard = lock(desk);
        let desk = &mut *guard;
        desk.busy = desk.busy.saturating_sub(u64::from(in_flight));
        desk.recorder.connections.closed_by_peer += u64::from(loss.by_peer() && in_flight > 0);
        let stuck = *again_at == Some(conversation.answers());
        // The caller itself has measured the time of its one request.
        let lost = LostConnection { loss, detail, now, timeout_ns: 0, resend: desk.resend, stuck };
        settle(conversation, lost, &mut desk.recording(now), |run, end| *again = Some((run, end)));
    }

    /// Whether the user said stop long enough ago that the response under way is no longer waited for.
    pub(super) fn is_over(&self, now: Time) -> bool {
        let mut desk = lock(&self.desk);
        if !desk.board.stop_asked() {
            let waiting = desk.recorder.connections.hanging > 0 || desk.board.unaccepted() > 0;
            let never_accepted = waiting && !desk.recorder.has_heard();
            return never_accepted && now.nanos_since(desk.supply.stop_at()) >= DEAF_GRACE.as_nanos() as u64;
        }
        now - *desk.stop_seen.get_or_insert(now) >= STOP_GRACE
    }

    /// The server may or may not have acted on the request in flight: its outcome is unknown.
    fn abandon(&mut self) {
        let Caller { desk, conversation, again, .. } = self;
        let (mut desk, now) = (lock(desk), machine::monotonic_now());
        desk.busy = desk.busy.saturating_sub(u64::from(conversation.in_flight()));
        conversation.abandon(|run, _| desk.recorder.unknown(&run, now));
        again.take().iter().for_each(|(run, _)| desk.recorder.unknown(run, now));
    }

    /// No connection could be opened: the next request has failed. Says whether to continue.
    pub(super) fn connect_failed(&mut self, asked: Time, now: Time, failed: &NotOpened) -> bool {
        let (error, words) = (failed.error, failed.words());
        let mut guard = lock(&self.desk);
        let desk = &mut *guard;
        // A connection attempt that began after the end is no failure, and must not prolong the run.
        if asked >= desk.supply.stop_at() {
            return false;
        }
        let cut_short = error.kind == NetErrorKind::TimedOut && now - asked < HANGING;
        if cut_short && now >= desk.supply.stop_at() {
            return false;
        }
        let connections = &mut desk.recorder.connections;
        connections.failed += 1;
        connections.refused += u64::from(error.kind == NetErrorKind::Refused);
        connections.hanging += u64::from(error.kind == NetErrorKind::TimedOut);
        if connections.opened == 0 {
            desk.unreachable = Some(words.clone());
        }
        desk.reach.failed(now, asked);
        let run = match (self.again.take(), self.reserved.take()) {
            (Some((run, _)), reserved) => {
                self.reserved = reserved;
                run
            }
            (None, reserved) => {
                let Some(run) = reserved.or_else(|| desk.next_run(now, true)) else { return false };
                desk.sent(run, now)
            }
        };
        if run.stamp.measured {
            desk.reach.victim();
        }
        let why = connect_failure(error.kind);
        desk.recorder.failed(&run, now, (why, Some(&words)), &desk.kinds);
        desk.tick(now);
        true
    }
}

impl Drop for Caller {
    fn drop(&mut self) {
        self.abandon();
    }
}

fn lock(desk: &Mutex<Desk>) -> MutexGuard<'_, Desk> {
    desk.lock().unwrap_or_else(PoisonError::into_inner)
}
