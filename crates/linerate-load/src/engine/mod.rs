//! The engine of one core: connections on a transport, requests from a supply, figures to a recorder. One loop serves every
//! combination of pacing, stopping and sending, since those are values it asks, not loops of their own.
//!
//! * `supply`: which request is next and when it is due.
//! * `kinds`: the requests' bytes.
//! * `session`: a connection's answers.
//! * `recorder`: what is measured.
//! * `loss`: what becomes of requests whose connection is lost.
//! * `opening`: when connections are opened.
//! * `reach`: when none could be.
//! * `looks`: what TCP goes through.

pub(crate) mod board;
pub(crate) mod body;
mod decode;
pub(crate) mod kinds;
mod looks;
mod loss;
mod opening;
pub(crate) mod reach;
pub(crate) mod recorder;
pub(crate) mod session;
pub(crate) mod supply;
#[cfg(test)]
mod tests;

use std::collections::VecDeque;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use linerate_client::{Learnt, Loss, Opening, Stamp, Waiting};
use linerate_http::client::{HeadCache, Run};
use linerate_net::{After, Close, Conn, Event, TcpTotals, Time, Transport};

use crate::limits::{
    DEAF_GRACE, EVENTS_PER_CLOCK_READ, LETTING_ALL_GO, LETTING_GO, LONGEST_TURN, LOW_WATER_WAIT, NEWS,
    RESETS, STOP_GRACE,
};
use crate::outcome::{Failure, Outcome};
use crate::plan::Resend;
use board::Board;
use kinds::{Kinds, Sending};
use looks::Looks;
use reach::Reach;
use recorder::Recorder;
use session::{Judge, Phase, Progress, Session, Shared};
use supply::{Batch, Supply};

/// What the engine of one core is told.
#[derive(Clone, Debug)]
pub(crate) struct Orders {
    pub(crate) addresses: Vec<SocketAddr>,
    pub(crate) from: Vec<IpAddr>,
    /// What a layer over the transport makes of connections.
    pub(crate) profile: linerate_net::Profile,
    /// Connections of this core.
    pub(crate) connections: u32,
    pub(crate) depth: u32,
    pub(crate) per_connection: Option<u32>,
    pub(crate) timeout: Duration,
    pub(crate) tag: Option<String>,
    pub(crate) resend: Resend,
    pub(crate) throughput: bool,
    /// Responses to be kept whole.
    pub(crate) save_responses: u32,
    pub(crate) open_loop: bool,
    /// When to begin: all cores together.
    pub(crate) start: Time,
    /// Wall-clock time minus the transport's time, nanoseconds.
    pub(crate) wall_offset_ns: u64,
}

/// The engine of one core.
pub(crate) struct Engine<T: Transport> {
    transport: T,
    orders: Orders,
    supply: Supply,
    kinds: Kinds,
    judge: Judge,
    cache: HeadCache,
    recorder: Recorder,
    learnt: Learnt,
    opening: Opening,
    board: Arc<Board>,
    /// By the connection's slot.
    sessions: Vec<Option<Session>>,
    /// Connections with a free place and nothing to send when last looked at.
    ready: VecDeque<Conn>,
    /// Requests that have to go out again.
    again: VecDeque<Waiting>,
    /// Connections to be opened in place of some that failed unannounced.
    careful: u32,
    in_flight: u64,
    /// Since when places have been free: a request that was due before could not have left earlier.
    free_since: Time,
    start: Time,
    next_sweep: Time,
    next_mark: Time,
    stopping: Option<Time>,
    looks: Looks,
    unreachable: Option<String>,
    reach: Reach,
    /// Why the last attempt to connect failed.
    last_refusal: Option<(Failure, String)>,
    /// What happened under the transport.
    news: Vec<String>,
}

impl<T: Transport> Engine<T> {
    pub(crate) fn new(
        mut transport: T,
        orders: Orders,
        mut kinds: Kinds,
        supply: Supply,
        measure_from: Time,
        board: Arc<Board>,
    ) -> Engine<T> {
        let now = transport.now();
        kinds.lend_to(&mut transport, orders.depth);
        let judge = Judge::new(orders.tag.as_deref(), &kinds);
        let cache = orders.tag.as_deref().map_or_else(HeadCache::new, HeadCache::with_tag);
        let recorder = Recorder::new(measure_from, orders.open_loop, &kinds, orders.throughput)
            .saving(orders.save_responses);
        Engine {
            opening: Opening::new(orders.connections),
            judge,
            cache,
            recorder,
            learnt: Learnt::default(),
            board,
            sessions: Vec::new(),
            ready: VecDeque::new(),
            again: VecDeque::new(),
            careful: 0,
            in_flight: 0,
            free_since: now,
            start: orders.start,
            next_sweep: now,
            next_mark: measure_from + Duration::from_secs(1),
            stopping: None,
            looks: Looks::new(measure_from),
            unreachable: None,
            reach: Reach::new(orders.start, measure_from),
            last_refusal: None,
            news: Vec::new(),
            transport,
            orders,
            supply,
            kinds,
        }
    }

    /// Runs to the end. Should the transport fail before, what was measured until then is not lost.
    pub(crate) fn run(mut self) -> Outcome {
        let broken = self.run_on().err();
        let now = self.transport.now();
        let mut outcome = self.end(now, broken.is_some());
        if let Some(error) = broken {
            outcome.warnings.push(format!("the run ended early: {error}"));
            outcome.broken = Some(error.to_string());
        }
        outcome
    }

    fn run_on(&mut self) -> io::Result<()> {
        let mut events = Vec::with_capacity(1024);
        let mut now = self.transport.now();
        while now < self.start {
            self.transport.turn(Some(self.start), &mut events)?;
            now = self.transport.now();
        }
        loop {
            self.tick(now);
            if self.finished(now) {
                return Ok(());
            }
            let until = self.deadline(now);
            self.transport.turn(Some(until), &mut events)?;
            now = self.transport.now();
            for (i, event) in events.drain(..).enumerate() {
                if i % EVENTS_PER_CLOCK_READ == EVENTS_PER_CLOCK_READ - 1 {
                    now = self.transport.now();
                }
                self.handle(event, now);
            }
        }
    }

    fn handle(&mut self, event: Event, now: Time) {
        match event {
            Event::Connected { conn, at, tcp_at } => self.connected(conn, (tcp_at, at), now),
            Event::Readable { conn, data } => self.readable(conn, data, now),
            Event::Failed { conn, error } => self.lose(conn, Loss::Net(error), now),
            Event::Drained { .. } | Event::Woken | Event::Accepted { .. } => {}
        }
    }

    fn session(&mut self, conn: Conn) -> Option<&mut Session> {
        self.sessions.get_mut(conn.slot())?.as_mut().filter(|s| s.conn == conn)
    }

    /// TCP is established at the first time, and requests may pass at the second.
    fn connected(&mut self, conn: Conn, (tcp_at, at): (Time, Time), now: Time) {
        let Some(session) = self.session(conn) else { return };
        if session.phase != Phase::Connecting {
            return;
        }
        session.phase = Phase::Open;
        let since = session.since;
        if session.budget == 0 {
            session.phase = Phase::Ending;
        }
        self.opening.answered();
        self.opening.opened(at - since);
        self.reach.opened(now);
        self.board.say_reached();
        self.recorder.connections.opened += 1;
        if self.recorder.measuring(now) {
            self.recorder.connect.record(tcp_at.nanos_since(since), 1);
            if at > tcp_at {
                self.recorder.tls.record(at.nanos_since(tcp_at), 1);
            }
        }
        self.fill(conn, now);
    }

    fn readable(&mut self, conn: Conn, data: linerate_net::Data, now: Time) {
        let Engine { transport, sessions, cache, recorder, kinds, judge, .. } = self;
        let Some(session) = sessions.get_mut(conn.slot()).and_then(Option::as_mut).filter(|s| s.conn == conn)
        else {
            transport.receive(data, |_| ());
            return;
        };
        let before = session.in_flight();
        let mut shared = Shared { cache, recorder, kinds, judge };
        let mut nonsense = None;
        let mut progress = Progress::Open;
        let after = transport.receive(data, |bytes| {
            if nonsense.is_none() && progress == Progress::Open {
                match session.handle_bytes(now, bytes, &mut shared) {
                    Ok(p) => progress = p,
                    Err(e) => nonsense = Some(e),
                }
            }
        });
        let mut ended = Ok(false);
        if after == After::Ended && nonsense.is_none() && progress == Progress::Open {
            ended = session.handle_end(now, &mut shared);
        }
        let answered = before - session.in_flight();
        let answers = session.answers;
        if answered > 0 {
            session.depth = self.orders.depth;
        }
        let done = session.phase == Phase::Ending && session.pipeline.is_empty();
        self.in_flight -= u64::from(answered);
        if answered > 0 {
            self.reach.progressed(now);
            self.opening.fruitful();
            self.learnt.answered(answers);
            if self.supply.next_due().is_some_and(|due| due <= now) {
                self.free_since = now;
            }
        }
        match (nonsense, after) {
            (Some(nonsense), _) => self.lose(conn, Loss::Malformed(nonsense.to_string()), now),
            (None, _) if progress == Progress::PeerCloses => self.lose(conn, Loss::SaidClose, now),
            (None, _) if progress == Progress::Unsolicited => self.lose(conn, Loss::Unsolicited, now),
            (None, After::Ended) => match ended {
                Ok(_) => self.lose(conn, Loss::Closed, now),
                Err(cut) => self.lose(conn, Loss::Cut(cut.to_string()), now),
            },
            (None, After::Failed(error)) => self.lose(conn, Loss::Net(error), now),
            (None, After::Gone) => {}
            (None, After::Open) if done => self.retire(conn, now),
            (None, After::Open) => self.fill(conn, now),
        }
    }

    /// Gives a connection as many requests as it has room for.
    fn fill(&mut self, conn: Conn, now: Time) {
        loop {
            let Some(session) = self.session(conn) else { return };
            let room = session.room();
            if room == 0 {
                break;
            }
            if let Some(waiting) = self.take_again(conn) {
                self.send_again(conn, waiting, room, now);
                continue;
            }
            let Some(batch) = self.take(now, room) else { break };
            self.send_batch(conn, batch, now);
        }
        self.set_low_water(conn, now);
        let Some(session) = self.session(conn) else { return };
        if !session.listed && session.room() > 0 {
            session.listed = true;
            self.ready.push_back(conn);
        }
    }

    /// Takes what may leave now, and notes how late that is.
    fn take(&mut self, now: Time, most: u32) -> Option<Batch> {
        let batch = self.supply.take(now, most)?;
        if self.orders.open_loop && batch.measured {
            self.recorder.lateness.record(now.nanos_since(batch.due.max(self.free_since)), 1);
        }
        Some(batch)
    }

    /// Sends new requests, kind by kind.
    fn send_batch(&mut self, conn: Conn, batch: Batch, now: Time) {
        let mut first = batch.first;
        let mut left = batch.count;
        while left > 0 {
            let (kind, count) = self.kinds.pick(first, left);
            let due = if self.orders.open_loop { batch.due } else { now };
            let stamp = Stamp { sent: now, due, in_vain: 0, measured: batch.measured };
            if batch.measured {
                self.recorder.sent(kind, count);
            }
            self.put(conn, self.run_of(stamp, first, count, kind), now);
            first += u64::from(count);
            left -= count;
        }
    }

    fn run_of(&self, stamp: Stamp, first: u64, count: u32, kind: u16) -> Run<Stamp> {
        let k = self.kinds.get(kind);
        Run { stamp, first, count, kind, expect: k.expect, idempotent: k.idempotent }
    }

    /// Sends requests that went out before, as many as there is room for.
    fn send_again(&mut self, conn: Conn, waiting: Waiting, room: u32, now: Time) {
        let Waiting { mut run, why } = waiting;
        if run.count > room {
            let rest = Run { first: run.first + u64::from(room), count: run.count - room, ..run };
            self.again.push_front(Waiting { run: rest, why });
            run.count = room;
        }
        if let Some(session) = self.session(conn)
            && session.pipeline.is_empty()
        {
            session.again_at = Some(session.answers);
        }
        if run.stamp.measured {
            self.recorder.resent(run.kind, run.count);
        }
        self.put(conn, run, now);
    }

    /// Puts a run on the wire and into the pipeline.
    fn put(&mut self, conn: Conn, run: Run<Stamp>, now: Time) {
        let closing_after = self.orders.per_connection.is_some();
        let Engine { transport, sessions, kinds, recorder, .. } = self;
        let Some(session) = sessions.get_mut(conn.slot()).and_then(Option::as_mut) else { return };
        session.budget = session.budget.saturating_sub(run.count);
        let last = session.budget == 0;
        let wall_ns = now.as_nanos().wrapping_add(self.orders.wall_offset_ns);
        let what = Sending {
            kind: run.kind,
            first: run.first,
            count: run.count,
            closing: last && closing_after,
            now_ms: wall_ns / 1_000_000,
        };
        if last && session.phase == Phase::Open {
            session.phase = Phase::Ending;
        }
        session.pipeline.push(run);
        self.in_flight += u64::from(run.count);
        match kinds.send(transport, conn, what) {
            Ok(bytes) => recorder.bytes.sent += if run.stamp.measured { bytes } else { 0 },
            Err(error) => self.lose(conn, Loss::Net(error), now),
        }
    }

    /// `--throughput`: asks to be told only when most of what is outstanding has come. Never more than is outstanding.
    fn set_low_water(&mut self, conn: Conn, now: Time) {
        if !self.orders.throughput {
            return;
        }
        let Some(answer) = answer_bytes(&self.cache) else { return };
        let Engine { transport, sessions, .. } = self;
        let Some(session) = sessions.get_mut(conn.slot()).and_then(Option::as_mut) else { return };
        let outstanding = session.pipeline.len() * answer;
        // Whole answers only: three in four of those outstanding, so that the pipe never runs dry.
        let wanted = if session.pipeline.len() >= 4 { outstanding / 4 * 3 } else { 1 };
        session.low_water_since = now;
        if wanted.abs_diff(session.low_water) > session.low_water / 8 {
            session.low_water = wanted.max(1);
            transport.set_low_water(conn, session.low_water);
        }
    }

    /// A connection has carried all it may: closes it and opens another.
    fn retire(&mut self, conn: Conn, now: Time) {
        let Some(session) = self.remove(conn) else { return };
        self.look_at_last(&session, session.answers <= 1);
        self.transport.close(conn, Close::AfterPeer);
        self.opening.closed();
        self.disconnected(now);
        self.open_some(now);
    }

    /// An established connection has ended.
    pub(crate) fn disconnected(&mut self, now: Time) {
        self.reach.closed(now);
        if self.reach.is_alone() {
            self.opening.alone(now);
        }
    }

    fn remove(&mut self, conn: Conn) -> Option<Session> {
        let entry = self.sessions.get_mut(conn.slot())?;
        let session = if entry.as_ref().is_some_and(|s| s.conn == conn) { entry.take() } else { None };
        if session.as_ref().is_some_and(|s| s.phase == Phase::Connecting) {
            self.opening.answered();
        }
        session
    }

    /// What is due by the time alone.
    fn tick(&mut self, now: Time) {
        // A second that ends with the run is a second too.
        if now >= self.next_mark && self.stopping.is_none() {
            self.next_mark = self.next_mark + Duration::from_secs(1);
            self.mark();
        }
        if self.stopping.is_none()
            && (now >= self.supply.stop_at() || self.board.stop_asked() || self.supply.ended())
        {
            self.stop(now);
        }
        self.open_some(now);
        self.fail_due(now);
        self.serve_ready(now);
        if now >= self.next_sweep {
            self.sweep(now);
        }
        if now >= self.looks.next() {
            self.look_around(now);
        }
        if self.board.wanted() {
            let open = self.opening.open();
            let stack = self.transport.totals();
            self.board.publish(now, &self.recorder, self.in_flight, u64::from(open), stack);
        }
    }

    /// Nothing more leaves from now on.
    fn stop(&mut self, now: Time) {
        self.stopping = Some(now);
        self.give_up_hanging(now);
        self.fail_due(now);
        self.supply.stop(now);
        self.reach.end(now.min(self.supply.stop_at()));
        let hanging = self.recorder.connections.hanging > 0;
        self.board.say_at_end(self.recorder.bytes.received > 0, hanging);
    }

    /// Hands what is due to connections with a free place.
    fn serve_ready(&mut self, now: Time) {
        let mut looks = self.ready.len();
        while looks > 0 {
            looks -= 1;
            if self.again.is_empty() && self.supply.next_due().is_none_or(|due| due > now) {
                return;
            }
            let Some(conn) = self.ready.pop_front() else { return };
            let Some(session) = self.session(conn) else { continue };
            session.listed = false;
            // One at a time in an open loop, so that load spreads over the connections.
            self.fill_one(conn, now);
        }
    }

    fn fill_one(&mut self, conn: Conn, now: Time) {
        if !self.orders.open_loop || !self.again.is_empty() {
            return self.fill(conn, now);
        }
        let Some(session) = self.session(conn) else { return };
        if session.room() > 0
            && let Some(batch) = self.take(now, 1)
        {
            self.send_batch(conn, batch, now);
        }
        if let Some(session) = self.session(conn)
            && session.room() > 0
        {
            session.listed = true;
            self.ready.push_back(conn);
        }
    }

    /// Looks for requests whose time is over, and for low-water marks that were not reached.
    fn sweep(&mut self, now: Time) {
        let timeout = self.orders.timeout;
        let step = (timeout / 20).clamp(Duration::from_millis(1), Duration::from_millis(100));
        self.next_sweep = now + if self.orders.throughput { LOW_WATER_WAIT } else { step };
        let timeout_ns = u64::try_from(timeout.as_nanos()).unwrap_or(u64::MAX);
        for slot in 0..self.sessions.len() {
            let Some(session) = &mut self.sessions[slot] else { continue };
            let conn = session.conn;
            let expired = match session.pipeline.front() {
                Some(run) => run.stamp.expired(now, timeout_ns),
                None => session.phase == Phase::Connecting && now.nanos_since(session.since) >= timeout_ns,
            };
            let low = session.low_water > 1 && now - session.low_water_since >= LOW_WATER_WAIT;
            if expired {
                self.lose(conn, Loss::TimedOut, now);
            } else if low {
                session.low_water = 1;
                self.transport.set_low_water(conn, 1);
            }
        }
        self.expire_waiting(now, timeout_ns);
        while let Some(news) = self.transport.news() {
            if self.news.len() < NEWS && !self.news.contains(&news) {
                self.news.push(news);
            }
        }
    }

    fn deadline(&mut self, now: Time) -> Time {
        let mut until = (now + LONGEST_TURN).min(self.next_sweep);
        if self.stopping.is_none() {
            until = until.min(self.next_mark).min(self.supply.stop_at());
            let room = !self.ready.is_empty()
                || (self.is_short() && self.opening.has_room())
                || self.reach.is_down();
            if room && let Some(due) = self.supply.next_due() {
                until = until.min(due);
            }
        }
        if self.is_needed(now) { until.min(self.opening.next(now)) } else { until }
    }

    fn finished(&mut self, now: Time) -> bool {
        if self.unreachable.is_some() {
            return true;
        }
        let Some(since) = self.stopping else { return false };
        let patience = match () {
            () if self.board.stop_asked() => STOP_GRACE,
            () if self.board.never_accepted() => DEAF_GRACE,
            () => self.orders.timeout,
        };
        (self.in_flight == 0 && self.again.is_empty()) || now - since >= patience
    }

    /// Whatever is still in flight is unknown; closes everything.
    fn end(mut self, now: Time, broken: bool) -> Outcome {
        for slot in 0..self.sessions.len() {
            let Some(mut session) = self.sessions[slot].take() else { continue };
            for run in session.pipeline.drain() {
                self.recorder.unknown(&run);
            }
            if session.phase != Phase::Connecting {
                self.look_at_last(&session, false);
            }
            self.transport.close(session.conn, Close::Now);
        }
        for Waiting { run, why } in std::mem::take(&mut self.again) {
            if self.board.stop_asked() {
                self.recorder.unknown(&run);
            } else {
                self.fail(&run, why, None);
            }
        }
        self.supply.stop(now);
        self.reach.end(now);
        self.recorder.requests.unsent = self.supply.unsent();
        let connections = &mut self.recorder.connections;
        (connections.learnt_limit, connections.learnt_on) = self.learnt.limit();
        let from = self.recorder.measure_from;
        let last = self.recorder.last_answer();
        let planned = self.supply.stop_at();
        let end =
            if self.stopping.is_some_and(|at| at >= planned) { planned.max(last) } else { last.max(from) };
        let interrupted = self.board.stop_asked();
        // A schedule that has run to its planned end lasted until then, though its last request was due before.
        let to_plan = self.orders.open_loop && planned != Time::NEVER && self.supply.ran_out_of_time();
        let to_plan = to_plan && !interrupted && !broken;
        let end = if to_plan { planned.max(last) } else { end };
        while to_plan && self.next_mark <= planned {
            self.next_mark = self.next_mark + Duration::from_secs(1);
            self.mark();
        }
        let end = if interrupted || broken || last == Time::ZERO { now } else { end };
        let totals = if broken { self.transport.totals() } else { self.let_go() };
        if let Some(totals) = totals {
            self.recorder.tcp_totals(&totals);
        }
        let mut outcome = self.recorder.into_outcome();
        outcome.duration = end - from;
        outcome.io = self.transport.name().to_owned();
        outcome.interrupted = interrupted;
        outcome.unreachable = self.unreachable;
        outcome.down = self.reach.into_down();
        outcome.warnings.append(&mut self.news);
        outcome
    }

    /// A TCP of our own goes with us: its last segments leave, and the peers' FINs get their answers. Those that have not ended
    /// after a moment are reset, or they would keep half a connection to nobody.
    fn let_go(&mut self) -> Option<TcpTotals> {
        let begun = self.transport.now();
        let (mut fewest, mut last) = (usize::MAX, begun);
        let mut events = Vec::new();
        loop {
            let now = self.transport.now();
            let open = self.transport.unfinished() + self.transport.half_closed();
            if open < fewest {
                (fewest, last) = (open, now);
            }
            if open == 0 || now - last >= LETTING_GO || now - begun >= LETTING_ALL_GO {
                break;
            }
            self.last_turn(now + LETTING_GO / 16, &mut events)?;
        }
        // Each time some, so that they have room to leave.
        for _ in 0..=fewest.div_ceil(RESETS) {
            if self.transport.reset_closed(RESETS) + self.transport.half_closed() == 0 {
                break;
            }
            self.last_turn(Time::ZERO, &mut events)?;
        }
        self.transport.totals()
    }

    /// A turn of which only the transport wants something.
    fn last_turn(&mut self, until: Time, events: &mut Vec<Event>) -> Option<()> {
        self.transport.turn(Some(until), events).ok()?;
        for event in events.drain(..) {
            if let Event::Readable { data, .. } = event {
                self.transport.receive(data, |_| ());
            }
        }
        Some(())
    }

    fn fail(&mut self, run: &Run<Stamp>, why: Failure, detail: Option<&str>) {
        self.recorder.failed(run, why, detail, &self.kinds);
    }
}

/// Bytes of an answer like the last one, head and body; `None` when its length isn't known beforehand.
fn answer_bytes(cache: &HeadCache) -> Option<usize> {
    let body = usize::try_from(cache.body_len()?).ok()?;
    Some(cache.head()?.raw().len() + body)
}
