//! The engine of one core: connections on a transport, requests from a supply, figures to a recorder. One loop serves every
//! combination of pacing, stopping and sending, since those are values it asks, not loops of their own.
//!
//! * `supply`: which request is next and when it is due.
//! * `kinds`: the requests' bytes.
//! * `responses`: what is made of responses.
//! * `recorder`: what is measured.
//! * `loss`: what becomes of requests whose connection is lost.
//! * `opening`: when connections are opened.
//! * `ending`: how all connections are closed.
//! * `owners`: users with connections of their own.
//! * `several`: the engines of several hosts in one thread.
//! * `reach`: when none could be.
//! * `silence`: when no response came.
//! * `looks`: what TCP goes through.
//! * `gaps`: when this thread itself stood still.

pub(crate) mod board;
pub(crate) mod body;
mod ending;
pub(crate) mod gaps;
pub(crate) mod kinds;
mod looks;
mod loss;
mod opening;
mod owners;
pub(crate) mod reach;
pub(crate) mod recorder;
pub(crate) mod responses;
pub(crate) mod several;
mod silence;
pub(crate) mod supply;
mod tallies;
#[cfg(test)]
mod tests;

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use linerate_client::{
    Conversation, Expired, Failure, Loss, Pool, PoolAction, PoolOptions, PoolReceived, RequestsEnd, Resend,
    Run, Stamp, TransportWire,
};
use linerate_net::{Conn, Event, NetError, NetErrorKind, TcpInfo, Time, Transport};

use crate::flows::journeys::{Journeys, UsersOf};
use crate::limits::{
    DEAF_GRACE, EVENTS_PER_CLOCK_READ, LONGEST_TURN, LONGEST_WAIT, LOW_WATER_WAIT, NEWS, STOP_GRACE,
};
use crate::outcome::Outcome;
use crate::route::Addresses;
use board::Board;
use gaps::Gaps;
use kinds::{Kinds, Rendering};
use looks::Looks;
use reach::Reach;
use recorder::{Lacking, Recorder};
use responses::{Judge, Recording, ResponseReading};
use supply::{DueBatch, Supply};

/// The configuration of the engine of one core.
#[derive(Clone, Debug)]
pub(crate) struct Orders {
    pub(crate) addresses: Addresses,
    /// A Unix socket instead of an address.
    pub(crate) unix: Option<Arc<Path>>,
    pub(crate) from: Vec<IpAddr>,
    /// The profile by which a layer over the transport treats connections.
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
    /// The plan has several hosts: connections to each are opened when requests are due.
    pub(crate) one_of_several: bool,
    /// The host's authority, where it is not the plan's target.
    pub(crate) authority: Option<String>,
    /// Figures by name are told while the run lasts.
    pub(crate) tells_names: bool,
    /// When to begin: all cores together.
    pub(crate) start: Time,
    /// Wall-clock time minus the transport's time, nanoseconds.
    pub(crate) wall_offset_ns: u64,
}

impl Orders {
    /// Wall-clock time in milliseconds.
    fn wall_ms(&self, now: Time) -> u64 {
        now.as_nanos().wrapping_add(self.wall_offset_ns) / 1_000_000
    }
}

/// The engine's own data for a connection.
#[derive(Debug)]
pub(crate) struct EngineConnection {
    /// Low-water mark set on the transport (1: none), and since when.
    low_water: usize,
    low_water_since: Time,
    /// The result of the last look at its TCP.
    looked: Option<TcpInfo>,
    /// Since when it carries nothing and takes nothing, as the last look at it found.
    shut_since: Option<Time>,
    /// Where it goes.
    to: Option<SocketAddr>,
}

impl Default for EngineConnection {
    fn default() -> Self {
        EngineConnection {
            low_water: 1,
            low_water_since: Time::ZERO,
            looked: None,
            shut_since: None,
            to: None,
        }
    }
}

/// The engine of one core, on a transport and by a protocol.
pub(crate) struct Engine<T: Transport, C: Conversation<Reading = ResponseReading>> {
    transport: T,
    orders: Orders,
    supply: Supply,
    /// The users, where each has a connection of its own.
    users: Option<Journeys>,
    kinds: Kinds,
    judge: Judge,
    recorder: Recorder,
    pool: Pool<C, EngineConnection>,
    board: Arc<Board>,
    /// Since when places have been free: a request that was due before could not have left earlier.
    free_since: Time,
    start: Time,
    /// How late this thread began.
    start_late: Duration,
    next_sweep: Time,
    next_mark: Time,
    stopping: Option<Time>,
    looks: Looks,
    gaps: Gaps,
    unreachable: Option<String>,
    /// Why this core gives the server up, once all have.
    given_up: Option<String>,
    /// No connection of this core admitted a request: why.
    shut_out: Option<String>,
    reach: Reach,
    /// Why the last attempt to connect failed.
    last_refusal: Option<(Failure, String)>,
    /// Events under the transport, for the report.
    news: Vec<String>,
}

impl<T: Transport, C: Conversation<Reading = ResponseReading>> Engine<T, C> {
    /// `shared`: what the conversations share.
    pub(crate) fn new(
        mut transport: T,
        orders: Orders,
        mut kinds: Kinds,
        supply: Supply,
        measure_from: Time,
        board: Arc<Board>,
        shared: C::Shared,
    ) -> Engine<T, C> {
        let now = transport.now();
        kinds.lend_to(&mut transport, orders.depth);
        let recorder = Recorder::new(measure_from, orders.open_loop, &kinds, orders.throughput)
            .saving(orders.save_responses)
            .telling_names(orders.tells_names)
            .logging(board.log(), &kinds);
        let options = PoolOptions {
            connections: orders.connections,
            depth: kinds.journeys().map_or(orders.depth, Journeys::depth),
            per_connection: orders.per_connection,
            timeout: orders.timeout,
            resend: orders.resend,
        };
        Engine {
            users: kinds.journeys().filter(|users| users.own_connections()).cloned(),
            pool: Pool::new(options, shared),
            judge: Judge::new(orders.tag.as_deref(), &kinds),
            recorder,
            board,
            free_since: now,
            start: orders.start,
            start_late: Duration::ZERO,
            next_sweep: now,
            next_mark: measure_from + Duration::from_secs(1),
            stopping: None,
            looks: Looks::new(measure_from),
            gaps: Gaps::default(),
            unreachable: None,
            given_up: None,
            shut_out: None,
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
        self.start_late = now - self.start;
        loop {
            self.tick(now);
            if self.finished(now) {
                return Ok(());
            }
            let until = self.deadline(now).max(now).min(now + LONGEST_WAIT);
            self.transport.turn(Some(until), &mut events)?;
            now = self.transport.now();
            self.gaps.note(until, now, self.recorder.measuring(now));
            now = self.handle_all(&mut events, now);
        }
    }

    /// Handles what a turn brought. Returns the time until which events are known.
    #[inline]
    fn handle_all(&mut self, events: &mut Vec<Event>, mut now: Time) -> Time {
        if now >= self.supply.stop_at() {
            self.recorder.close_window(self.supply.stop_at());
        }
        let (mut rest, mut since) = (events.drain(..).peekable(), 0);
        while let Some(event) = rest.next() {
            since += 1;
            if since == EVENTS_PER_CLOCK_READ {
                (now, since) = (self.transport.now(), 0);
            }
            let at = self.handle(event, rest.peek(), now);
            if at > now {
                (now, since) = (at, 0);
            }
        }
        now
    }

    /// Returns the time until which events are known: bytes may have come after `now`.
    fn handle(&mut self, event: Event, next: Option<&Event>, now: Time) -> Time {
        match event {
            Event::Connected { conn, at, tcp_at } => self.connected(conn, (tcp_at, at), now),
            Event::Readable { conn, data } => {
                let more = matches!(next, Some(Event::Readable { conn: of, .. }) if *of == conn);
                return self.readable(conn, data, more, now);
            }
            Event::Failed { conn, error } => self.lose(conn, Loss::Net(error), now),
            Event::Drained { .. } | Event::Woken | Event::Accepted { .. } => {}
        }
        now
    }

    /// TCP is established at the first time, and requests may pass at the second.
    fn connected(&mut self, conn: Conn, (tcp_at, at): (Time, Time), now: Time) {
        if self.is_ours(conn) {
            return self.lose(conn, Loss::Net(NetError::of(NetErrorKind::Refused)), now);
        }
        if let Err(why) = self.pool.agreed(conn, self.transport.protocol(conn)) {
            return self.refuse(conn, why.to_string(), now);
        }
        let Some(since) = self.pool.established(conn, at) else { return };
        self.learn_streams(conn, now);
        self.orders.addresses.reached();
        if self.orders.addresses.are_several() {
            let to = self.pool.get_mut(conn).and_then(|connection| connection.beside.to);
            self.recorder.reached(to);
        }
        self.reach.opened(now);
        if self.pool.ready() == 0 {
            self.note_free(now);
        }
        self.board.say_reached();
        self.recorder.connections.opened += 1;
        if self.recorder.measuring(now) {
            self.recorder.connect.record(tcp_at.nanos_since(since), 1);
            if at > tcp_at {
                self.recorder.tls.record(at.nanos_since(tcp_at), 1);
            }
        }
        self.send_pending(conn, now);
        self.fill(conn, now);
        self.retire_unused(conn, now);
    }

    /// Whether a connection has both ends here. If no server listens on a port that the kernel also
    /// chooses for clients, the kernel sometimes connects a socket to itself (RFC 9293 section
    /// 3.10.7.3: both ends open at once). This costs a system call, and can happen only where other
    /// attempts are refused.
    fn is_ours(&mut self, conn: Conn) -> bool {
        let connections = &self.recorder.connections;
        (connections.refused > 0 || connections.opened == 0)
            && self.transport.local(conn).is_some_and(|own| self.orders.addresses.has(own))
    }

    /// `more`: the next event has more bytes of this connection. They were received before anything
    /// that is sent now, so they respond to none of it.
    fn readable(&mut self, conn: Conn, data: linerate_net::Data, more: bool, now: Time) -> Time {
        let PoolReceived { at: now, next, .. } = self.receive(data, now);
        match next {
            PoolAction::Nothing => {}
            PoolAction::Lose(loss) => self.lose(conn, loss, now),
            PoolAction::Retire | PoolAction::Fill if more => {}
            PoolAction::Retire => self.retire(conn, now),
            PoolAction::Fill => {
                self.send_pending(conn, now);
                self.fill(conn, now);
            }
        }
        now
    }

    /// Reads responses, and says when they had come and what the connection is to do next.
    #[inline]
    fn receive(&mut self, data: linerate_net::Data, now: Time) -> PoolReceived {
        let conn = data.conn();
        let ended = self.is_time_over();
        let Engine { transport, pool, recorder, kinds, judge, board, .. } = self;
        let measuring = recorder.measuring(now);
        let mut events = Recording { recorder, kinds, judge, board, ended, now, measuring };
        let received = pool.receive(data, now, transport, &mut events);
        if received.answered > 0 {
            self.reach.progressed(received.at);
            self.note_free(received.at);
            if self.shut_out.is_some() {
                self.let_in();
            }
        } else if self.admits_again(conn) {
            self.note_free(received.at);
        }
        received
    }

    /// Whether a connection that carried nothing and took nothing has room now.
    fn admits_again(&mut self, conn: Conn) -> bool {
        let Some(connection) = self.pool.get_mut(conn) else { return false };
        let admits = connection.beside.shut_since.is_some() && connection.room() > 0;
        if admits {
            connection.beside.shut_since = None;
        }
        admits
    }

    /// There is a place now. What is due already could not have left before.
    fn note_free(&mut self, now: Time) {
        if self.supply.next_due().is_some_and(|due| due <= now) {
            self.free_since = self.gaps.free_since(now);
        }
    }

    /// A connection took nothing more. Responses that had arrived before are read first: the server
    /// may have answered, and then closed with requests unread.
    #[cold]
    fn send_failed(&mut self, conn: Conn, error: NetError, now: Time) {
        let (loss, at) = match self.transport.unread(conn).map(|data| self.receive(data, now)) {
            Some(PoolReceived { at, next: PoolAction::Lose(loss), .. }) => (loss, at),
            _ => (Loss::Net(error), now),
        };
        self.lose(conn, loss, at);
    }

    /// Whether the time given is over.
    fn is_time_over(&self) -> bool {
        self.stopping.is_some_and(|at| at >= self.supply.stop_at())
    }

    /// Sends control frames of a connection, and requests that had to wait.
    #[inline]
    fn send_pending(&mut self, conn: Conn, now: Time) {
        let Engine { transport, pool, kinds, orders, recorder, .. } = self;
        let mut requests = Rendering { kinds, now_ms: orders.wall_ms(now) };
        match pool.send_pending(conn, &mut requests, transport) {
            Ok(bytes) => recorder.bytes.sent += if recorder.measuring(now) { bytes } else { 0 },
            Err(error) => self.send_failed(conn, error, now),
        }
    }

    /// Gives a connection as many requests as it has room for.
    fn fill(&mut self, conn: Conn, now: Time) {
        if self.users.is_some() {
            return self.serve_owners(now);
        }
        loop {
            let Some(connection) = self.pool.get_mut(conn) else { return };
            let room = connection.room();
            if room == 0 {
                break;
            }
            let has_room = self.pool.opening.has_room();
            if let Some((run, end)) = self.pool.next_again(conn, room, has_room) {
                self.send_again(conn, run, end, now);
                continue;
            }
            let Some(batch) = self.take(now, room) else { break };
            self.send_batch(conn, batch, now);
        }
        self.set_low_water(conn, now);
        self.pool.note_ready(conn);
    }

    /// Takes what may leave now, and notes how late that is.
    fn take(&mut self, now: Time, most: u32) -> Option<DueBatch> {
        let batch = self.supply.take(now, most)?;
        self.prepare(batch, now)
    }

    /// A batch that was taken is about to leave.
    fn prepare(&mut self, batch: DueBatch, now: Time) -> Option<DueBatch> {
        if let Err(why) = self.kinds.prepare(batch.first, now, self.orders.wall_ms(now)) {
            // Its user fails, and nothing was sent.
            self.kinds.refuse(batch.first, &why, now);
            return None;
        }
        if self.orders.open_loop && batch.measured {
            let since = batch.due.max(self.free_since);
            self.recorder.lateness.record(now.nanos_since(since), u64::from(batch.count));
        }
        Some(batch)
    }

    /// Sends new requests, kind by kind.
    fn send_batch(&mut self, conn: Conn, batch: DueBatch, now: Time) {
        let mut first = batch.first;
        let mut left = batch.count;
        while left > 0 {
            let (kind, count) = self.kinds.pick(first, left);
            let due = if self.orders.open_loop { batch.due } else { now };
            let stamp = Stamp { sent: now, due, in_vain: 0, refused: 0, measured: batch.measured };
            if batch.measured {
                self.recorder.sent(kind, count);
            }
            self.put(conn, self.run_of(stamp, first, count, kind), now);
            first += u64::from(count);
            left -= count;
        }
    }

    fn run_of(&self, stamp: Stamp, first: u64, count: u32, kind: u16) -> Run {
        let k = self.kinds.get(kind);
        Run { stamp, first, count, kind, expect: k.expect, idempotent: k.idempotent }
    }

    /// Sends requests that went out before.
    fn send_again(&mut self, conn: Conn, run: Run, end: RequestsEnd, now: Time) {
        if run.stamp.measured {
            self.recorder.resent(run.kind, run.count, end);
        }
        self.put(conn, run, now);
    }

    /// Puts a run on the wire. If the connection was lost to the part of a batch before it, the run
    /// waits for another one.
    fn put(&mut self, conn: Conn, run: Run, now: Time) {
        if self.pool.get_mut(conn).is_none() {
            return self.pool.put_off(run, Failure::Reset);
        }
        if let Some(users) = &self.users {
            users.bind(run.first, conn, now);
        }
        let Engine { transport, pool, kinds, recorder, orders, .. } = self;
        let mut requests = Rendering { kinds, now_ms: orders.wall_ms(now) };
        match pool.begin(conn, run, &mut requests, transport) {
            Ok(bytes) => recorder.bytes.sent += if run.stamp.measured { bytes } else { 0 },
            Err(error) => self.send_failed(conn, error, now),
        }
    }

    /// `--throughput`: asks to be told only when most of what is outstanding has come. Never more than is outstanding.
    fn set_low_water(&mut self, conn: Conn, now: Time) {
        if !self.orders.throughput {
            return;
        }
        let Some(response) = self.pool.usual_response() else { return };
        let Engine { transport, pool, .. } = self;
        let Some(connection) = pool.get_mut(conn) else { return };
        let in_flight = connection.conversation.in_flight() as usize;
        let outstanding = in_flight * response;
        // Whole responses only: three in four of those outstanding, so that the pipe never runs dry.
        let wanted = if in_flight >= 4 { outstanding / 4 * 3 } else { 1 };
        let beside = &mut connection.beside;
        beside.low_water_since = now;
        if wanted.abs_diff(beside.low_water) > beside.low_water / 8 {
            beside.low_water = wanted.max(1);
            transport.set_low_water(conn, beside.low_water);
        }
    }

    /// Requests of a connection were cancelled: their places are free, unless they were the last that it may carry.
    fn go_on(&mut self, conn: Conn, now: Time) {
        self.send_pending(conn, now);
        match self.pool.get_mut(conn) {
            Some(connection) if connection.is_done() || connection.is_left() => self.retire(conn, now),
            Some(_) => self.fill(conn, now),
            None => {}
        }
    }

    /// A connection has carried all it may: closes it and opens another.
    fn retire(&mut self, conn: Conn, now: Time) {
        let Some(mut connection) = self.pool.remove(conn) else { return };
        self.look_at_last(&connection, connection.is_fresh());
        let transport = &mut self.transport;
        let how = connection.conversation.leave(&mut TransportWire { transport, conn });
        self.transport.close(conn, how);
        self.disconnected(now);
        self.open_some(now);
    }

    /// An established connection has ended.
    pub(crate) fn disconnected(&mut self, now: Time) {
        self.reach.closed(now);
        if self.reach.is_alone() {
            self.pool.opening.alone(now);
        }
    }

    /// Work that is due by the time alone: the second's mark, the stop, new connections, sweeps, snapshots.
    fn tick(&mut self, now: Time) {
        let waits = self.waits(now);
        self.recorder.silence.look(now, waits);
        // A second that ends with the run is a second too.
        if now >= self.next_mark && self.stopping.is_none() {
            self.next_mark = self.next_mark + Duration::from_secs(1);
            self.mark();
        }
        if now >= self.supply.stop_at() {
            self.supply.close();
        }
        if self.stopping.is_none()
            && (now >= self.supply.last_at() || self.board.stop_asked() || self.supply.ended())
        {
            if !self.board.stop_asked() {
                self.serve_last(now);
            }
            self.stop(now);
        }
        self.retire_released(now);
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
            let open = self.pool.opening.open();
            let stack = self.transport.totals();
            let queues = (self.pool.in_flight(), self.supply.overdue(now));
            self.board.publish(now, &self.recorder, queues, u64::from(open), stack);
        }
    }

    /// Whether requests are due or in flight. In a closed loop there is always another one.
    fn waits(&mut self, now: Time) -> bool {
        let is_due = !self.orders.open_loop || self.supply.next_due().is_some_and(|due| due <= now);
        self.pool.in_flight() > 0 || self.pool.has_again() || (self.stopping.is_none() && is_due)
    }

    /// Nothing more leaves from now on.
    fn stop(&mut self, now: Time) {
        self.stopping = Some(now);
        if self.board.stop_asked() {
            self.recorder.close_window(now.max(self.recorder.measure_from));
        }
        let lacking = self.lacking();
        self.give_up_hanging(now);
        self.fail_due(now);
        self.end_supply(now, lacking);
        self.reach.end(now.min(self.supply.last_at()));
        self.recorder.silence.stop_sending(now.min(self.supply.last_at()));
        let hanging = self.recorder.connections.hanging > 0;
        self.board.say_at_end(self.recorder.has_heard(), hanging);
    }

    /// Whatever was due and has not left never will.
    fn end_supply(&mut self, now: Time, lacking: Lacking) {
        let Engine { supply, recorder, kinds, .. } = self;
        supply.stop(now);
        recorder.unsent_for(supply.untold(), lacking);
        supply.tell_unsent(|number, waited, n| {
            recorder.unsent(number.map(|number| kinds.pick(number, 1).0), waited, n);
        });
    }

    /// Hands what is due to connections with a free place.
    fn serve_ready(&mut self, now: Time) {
        if let Some(users) = &self.users {
            users.resume();
            return self.serve_owners(now);
        }
        for _ in 0..self.pool.ready() {
            if !self.pool.has_again() && self.supply.next_due().is_none_or(|due| due > now) {
                return;
            }
            let Some(conn) = self.pool.next_ready() else { return };
            // One at a time in an open loop, so that load spreads over the connections.
            self.fill_one(conn, now);
        }
    }

    /// What was due before the end leaves as far as there is room for it, even if this thread wakes
    /// up behind the end.
    fn serve_last(&mut self, now: Time) {
        while let Some(due) = self.supply.next_due().filter(|due| *due <= now) {
            self.serve_ready(now);
            if self.supply.next_due() == Some(due) {
                return;
            }
        }
    }

    fn fill_one(&mut self, conn: Conn, now: Time) {
        if !self.orders.open_loop || self.pool.has_again() {
            return self.fill(conn, now);
        }
        let Some(connection) = self.pool.get_mut(conn) else { return };
        if connection.room() > 0
            && let Some(batch) = self.take(now, 1)
        {
            self.send_batch(conn, batch, now);
        }
        self.pool.note_ready(conn);
    }

    /// Looks for requests whose time is over, and for low-water marks that were not reached.
    fn sweep(&mut self, now: Time) {
        let timeout = self.orders.timeout;
        let step = (timeout / 20).clamp(Duration::from_millis(1), Duration::from_millis(100));
        self.next_sweep = now + if self.orders.throughput { LOW_WATER_WAIT } else { step };
        let ended = self.is_time_over();
        let measuring = self.recorder.measuring(now);
        for slot in 0..self.pool.slots() {
            let Engine { pool, recorder, kinds, judge, board, .. } = self;
            let mut events = Recording { recorder, kinds, judge, board, ended, now, measuring };
            let expired = pool.expire(slot, now, &mut events);
            let Some(connection) = pool.at_mut(slot) else { continue };
            let (conn, conversation) = (connection.conn, &connection.conversation);
            let shut = connection.established && conversation.in_flight() == 0 && conversation.room() == 0;
            let beside = &mut connection.beside;
            beside.shut_since = shut.then(|| beside.shut_since.unwrap_or(now));
            match expired {
                Expired::Connection => self.lose(conn, Loss::TimedOut, now),
                Expired::None if beside.shut_since.is_some_and(|since| now - since >= timeout) => {
                    self.give_up_shut(conn, now);
                }
                Expired::Requests => self.go_on(conn, now),
                Expired::None if beside.low_water > 1 && now - beside.low_water_since >= LOW_WATER_WAIT => {
                    beside.low_water = 1;
                    self.transport.set_low_water(conn, 1);
                }
                Expired::None => {}
            }
        }
        let Engine { pool, recorder, kinds, judge, board, .. } = self;
        pool.expire_again(now, &mut Recording { recorder, kinds, judge, board, ended, now, measuring });
        while let Some(news) = self.transport.news() {
            if self.news.len() < NEWS && !self.news.contains(&news) {
                self.news.push(news);
            }
        }
    }

    fn deadline(&mut self, now: Time) -> Time {
        let mut until = (now + LONGEST_TURN).min(self.next_sweep);
        if self.stopping.is_none() {
            let end = self.supply.stop_at();
            let end = if now < end { end } else { self.supply.last_at() };
            until = until.min(self.next_mark).min(end);
            if let Some(users) = &self.users {
                // Those that are due and have no connection wait for one.
                let unbound = users.next_due(UsersOf::NoConnection).filter(|due| *due > now);
                let due = users.next_due(UsersOf::Connections).into_iter().chain(unbound).min();
                return until.min(due.unwrap_or(Time::NEVER)).min(self.next_opening(now));
            }
            let room = self.pool.ready() > 0
                || (self.is_short() && self.pool.opening.has_room())
                || self.reach.is_down();
            let opens = self.orders.one_of_several;
            if let Some(due) = self.supply.next_due().filter(|due| room || (opens && *due > now)) {
                until = until.min(due);
            }
        }
        until.min(self.next_opening(now))
    }

    /// When to look again whether connections are to be opened.
    fn next_opening(&mut self, now: Time) -> Time {
        if self.is_needed(now) { self.pool.opening.next(now) } else { Time::NEVER }
    }

    fn finished(&mut self, now: Time) -> bool {
        if self.shut_out.is_some() && self.board.all_shut() {
            self.unreachable = self.shut_out.take();
        }
        if self.unreachable.is_some() || (self.given_up.is_some() && self.board.all_gave_up()) {
            return true;
        }
        let Some(since) = self.stopping else { return false };
        let patience = match () {
            () if self.board.stop_asked() => STOP_GRACE,
            () if self.board.never_accepted() => DEAF_GRACE,
            () => self.orders.timeout,
        };
        (self.pool.in_flight() == 0 && !self.pool.has_again()) || now - since >= patience
    }

    /// Whatever is still in flight is unknown; closes everything.
    fn end(mut self, now: Time, broken: bool) -> Outcome {
        // The run's own closing is not measured: it is not what the server or the path did.
        let totals = self.transport.totals();
        self.pool.note_shut(now);
        self.give_up_all(now);
        self.board.give_up();
        self.end_supply(now, Lacking::Nothing);
        self.reach.end(now);
        let connections = &mut self.recorder.connections;
        (connections.learnt_limit, connections.learnt_on) = self.pool.learnt.limit();
        let from = self.recorder.measure_from;
        let last = self.recorder.last_answer();
        let planned = self.supply.stop_at();
        // A number of requests takes until the last of them has its end: one without a response is no quicker.
        let is_planned = self.stopping.is_some_and(|at| at >= planned);
        let end = if is_planned { planned.max(last) } else { self.recorder.last_end().max(from) };
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
        if !broken {
            self.let_go();
        }
        if let Some(totals) = totals {
            self.recorder.tcp_totals(&totals);
        }
        self.board.mark_last(&self.recorder, totals);
        let mut outcome = self.recorder.into_outcome(end, now);
        outcome.http = self.pool.facts();
        outcome.client.start_late = self.start_late;
        outcome.client.script = self.kinds.script_time();
        outcome.client.stood_still = self.gaps.longest;
        outcome.client.stood_still_in_all = self.gaps.total;
        outcome.io = self.transport.name().to_owned();
        outcome.interrupted = interrupted;
        outcome.unreachable = self.unreachable.or(self.given_up.filter(|_| !self.board.reached()));
        outcome.down = self.reach.into_down();
        outcome.warnings.append(&mut self.news);
        outcome
    }
}
