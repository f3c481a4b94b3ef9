//! One thread's loop: a transport below, the engine above.

mod together;

use std::cell::RefCell;
use std::io;
use std::net::SocketAddr;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use linerate_http::server::{HttpDate, write_chunk, write_interim, write_last_chunk};
use linerate_net::{After, Close, Conn, Data, Event, ListenOptions, Listener, NetError, Time, Transport};

use crate::access_log::{AccessLog, LogBuffer};
use crate::connection::{Answer, Connection, StreamEnd, Waits};
use crate::counts::{Counts, ThreadCounts};
use crate::engine::Engine;
use crate::limits::{self, Limits};
use crate::notice::Lack;
use crate::tasks::Ready;
use crate::timers::{self, Deadlines, Timers};
use crate::watch::Watchdog;
use crate::{Draining, Handler};

/// Where the wall clock for `Date` comes from.
#[derive(Clone, Copy, Debug)]
pub enum Wall {
    /// The system's.
    System,
    /// Seconds since 1970 at the transport's time zero: for virtual time.
    Virtual(u64),
}

/// What one turn may hand over for one connection, in bytes, before others have theirs.
const TURN_BYTES: usize = 1 << 20;
/// How often a connection's kept input is gone on with in one turn.
const TURN_ROUNDS: usize = 8;
/// Idle connections are told to go when draining, once they have been quiet for this long: what the peer sent before it could
/// know is still read.
const DRAIN_QUIET: Duration = Duration::from_millis(100);
/// How long a drained connection that never stops asking goes on being answered; then the next answer is its last. Reason: what was
/// received is answered, but there must be a last.
const DRAIN_PATIENCE: Duration = Duration::from_millis(300);

/// An HTTP server on one transport, for one thread.
///
/// [`spawn`](crate::spawn) makes one per thread on the kernel's TCP; by hand it runs on any transport, in memory and virtual
/// time as well.
pub struct Server<T: Transport, H: Handler> {
    transport: T,
    engine: Engine<H>,
    events: Vec<Event>,
    connections: Vec<Option<Connection>>,
    open: usize,
    listeners: Vec<(SocketAddr, Listener)>,
    /// Connections whose listener is gone, and when they are cut.
    leaving: usize,
    leaving_until: Time,
    drain_hard_at: Time,
    deadlines: Deadlines,
    timers: Rc<RefCell<Timers>>,
    ready: Arc<Ready>,
    /// Tasks that were woken, and how many of them had their turn.
    woken: Vec<u32>,
    woken_at: usize,
    due: Vec<u32>,
    /// Connections whose answers leave once all that was received in this turn is answered, and how many bytes these are.
    held: Vec<Conn>,
    held_bytes: usize,
    /// Empty buffers for what is held back.
    spare: Vec<Vec<u8>>,
    /// Connections with something to do at the end of this turn, and at the next.
    dirty: Vec<Conn>,
    again: Vec<Conn>,
    wall: Wall,
    next_second: Time,
    woken_by_waker: bool,
    lack: Option<Lack>,
    /// Until it was said that nothing is lacking any more: when to look.
    lacking: Option<Time>,
}

impl<T: Transport, H: Handler> Server<T, H> {
    /// A server that answers with `handler`.
    pub fn new(transport: T, handler: H, limits: Limits) -> Server<T, H> {
        let ready = Ready::new(transport.waker());
        let counts = Arc::new(ThreadCounts::default());
        let mut engine = Engine::new(handler, limits, counts, Arc::clone(&ready));
        if transport.gathers() {
            engine.copied = limits::BODY_COPIED_GATHERING;
        }
        Server {
            transport,
            engine,
            events: Vec::new(),
            connections: Vec::new(),
            open: 0,
            listeners: Vec::new(),
            leaving: 0,
            leaving_until: Time::NEVER,
            drain_hard_at: Time::NEVER,
            deadlines: Deadlines::new(),
            timers: Rc::default(),
            ready,
            woken: Vec::new(),
            woken_at: 0,
            due: Vec::new(),
            held: Vec::new(),
            held_bytes: 0,
            spare: Vec::new(),
            dirty: Vec::new(),
            again: Vec::new(),
            wall: Wall::System,
            next_second: Time::ZERO,
            woken_by_waker: false,
            lack: None,
            lacking: None,
        }
    }

    pub(crate) fn with_counts(mut self, counts: Arc<ThreadCounts>) -> Self {
        self.engine.counts = counts;
        self
    }

    /// With another wall clock.
    #[must_use]
    pub fn with_wall(mut self, wall: Wall) -> Self {
        self.wall = wall;
        self
    }

    /// Closes each connection after so many requests, as `keepalive_requests` does elsewhere.
    #[must_use]
    pub fn with_close_after(mut self, requests: Option<u32>) -> Self {
        self.engine.close_after = requests;
        self
    }

    /// Writes a line per answer.
    #[must_use]
    pub fn with_access_log(mut self, log: Option<AccessLog>) -> Self {
        self.engine.log = log.map(LogBuffer::new);
        self
    }

    /// Tells this one as well when it drains.
    #[must_use]
    pub fn with_draining(mut self, draining: Draining) -> Self {
        self.engine.goodbye = draining;
        self
    }

    pub(crate) fn with_lack(mut self, lack: Lack) -> Self {
        self.lack = Some(lack);
        self
    }

    pub(crate) fn with_watchdog(mut self, dog: Option<&Watchdog>) -> Self {
        self.engine.watch = dog.map(|dog| (dog.watch(), dog.clone()));
        self
    }

    /// Listens; the address comes back with the port chosen.
    ///
    /// # Errors
    /// As the transport says.
    pub fn listen(&mut self, at: SocketAddr, options: &ListenOptions) -> Result<SocketAddr, NetError> {
        let (listener, address) = self.transport.listen(at, options)?;
        self.listeners.push((address, listener));
        Ok(address)
    }

    /// Where it listens.
    pub fn addresses(&self) -> impl Iterator<Item = SocketAddr> {
        self.listeners.iter().map(|(at, _)| *at)
    }

    /// Stops listening at an address that [`Server::listen`] gave. Its connections are told to close behind the answers that are
    /// due; those that have not ended after `drain` are cut.
    pub fn unlisten(&mut self, at: SocketAddr, drain: Duration) {
        let now = self.transport.now();
        for (_, gone) in self.listeners.extract_if(.., |(address, _)| *address == at) {
            self.transport.unlisten(gone);
            for c in self.connections.iter_mut().flatten().filter(|c| c.listener == gone && !c.leaving) {
                c.leaving = true;
                self.leaving += 1;
            }
            self.leaving_until = now + drain;
            self.drain_hard_at = now + DRAIN_PATIENCE;
        }
    }

    /// Grants something else from now on, to connections that are open as well.
    pub fn set_limits(&mut self, limits: Limits) {
        self.engine.set_limits(limits);
        for c in self.connections.iter().flatten() {
            self.deadlines.arm(c.conn.slot(), self.deadline(c));
        }
    }

    /// As [`Server::with_close_after`], for one that runs.
    pub fn set_close_after(&mut self, requests: Option<u32>) {
        self.engine.close_after = requests;
    }

    /// As [`Server::with_access_log`], for one that runs: lines of the log before are handed over.
    pub fn set_access_log(&mut self, log: Option<AccessLog>) {
        self.engine.log = log.map(LogBuffer::new);
    }

    /// What it has done so far.
    pub fn counts(&self) -> Counts {
        let mut counts = Counts::default();
        counts.add(&self.engine.counts);
        counts
    }

    /// Connections open now.
    pub fn open(&self) -> usize {
        self.open
    }

    /// Connections open now, or closed and not over: their last bytes are still to leave.
    pub fn unfinished(&self) -> usize {
        self.open.max(self.transport.unfinished())
    }

    /// The transport, for tests that script it.
    pub fn transport(&mut self) -> &mut T {
        &mut self.transport
    }

    /// Stops accepting; every answer from now on says that its connection ends, and idle ones are closed.
    pub fn drain(&mut self) {
        self.engine.draining = true;
        self.engine.goodbye.begin();
        self.drain_hard_at = self.transport.now() + DRAIN_PATIENCE;
        for (_, listener) in self.listeners.drain(..) {
            self.transport.unlisten(listener);
        }
    }

    /// Whether the last turn was ended by a [`Waker`](linerate_net::Waker) of the transport.
    pub fn take_woken(&mut self) -> bool {
        std::mem::take(&mut self.woken_by_waker)
    }

    /// Waits until something happens, `until` at the latest, and does what there is to do.
    ///
    /// # Errors
    /// When the transport itself fails; connections' failures are theirs alone.
    pub fn turn(&mut self, until: Option<Time>) -> io::Result<()> {
        let until = if self.again.is_empty() && !self.has_woken() && self.ready.fall_asleep() {
            let log = self.engine.log.as_ref().and_then(LogBuffer::due);
            let own =
                [self.timers.borrow().next(), self.deadlines.next(), self.drain_tick(), log, self.lacking];
            own.into_iter().flatten().chain(until).min()
        } else {
            Some(Time::ZERO)
        };
        let turned = self.transport.turn(until, &mut self.events);
        self.ready.wake_up();
        turned?;
        self.begin_turn();
        let mut events = std::mem::take(&mut self.events);
        for event in events.drain(..) {
            self.event(event);
        }
        self.events = events;
        self.let_go();
        self.run_woken();
        self.look_at_deadlines();
        self.look_at_accepting();
        let mut again = std::mem::take(&mut self.again);
        again.append(&mut self.dirty);
        for conn in again {
            if let Some(mut c) = self.take(conn) {
                c.dirty = false;
                self.settle(c);
            }
        }
        self.engine.counts.set_parked(self.engine.tasks.parked());
        if let Some(log) = &mut self.engine.log
            && log.due().is_some_and(|due| due <= self.engine.now)
        {
            log.hand_over();
        }
        Ok(())
    }

    fn drain_tick(&self) -> Option<Time> {
        ((self.engine.draining && self.open > 0) || self.leaving > 0)
            .then(|| self.engine.now + DRAIN_QUIET / 2)
    }

    fn begin_turn(&mut self) {
        let now = self.transport.now();
        self.engine.now = now;
        self.engine.draining_hard = now >= self.drain_hard_at;
        if now >= self.next_second {
            let seconds = match self.wall {
                Wall::System => SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |d| d.as_secs()),
                Wall::Virtual(at_zero) => at_zero + now.as_nanos() / 1_000_000_000,
            };
            self.engine.date = HttpDate::from_unix(seconds);
            // Twice a second, so that it is never more than half a second late.
            self.next_second = now + Duration::from_millis(500);
        }
        timers::enter(&self.timers);
        self.timers.borrow_mut().advance(now);
    }

    fn event(&mut self, event: Event) {
        match event {
            Event::Accepted { conn, peer, listener } => self.accept(conn, listener, peer),
            Event::Readable { conn, data } => self.readable(conn, data),
            Event::Drained { conn } => {
                if let Some(c) = self.take(conn) {
                    self.settle(c);
                }
            }
            Event::Failed { conn, .. } => {
                if let Some(c) = self.take(conn) {
                    self.close(c, Close::Abort);
                }
            }
            Event::Woken => self.woken_by_waker = true,
            Event::Connected { .. } => {}
        }
    }

    fn accept(&mut self, conn: Conn, listener: Listener, peer: SocketAddr) {
        self.engine.counts.accepted();
        if self.open >= self.engine.limits.connections {
            self.engine.counts.refused();
            self.engine.counts.closed();
            self.transport.close(conn, Close::Abort);
            return;
        }
        if self.connections.len() <= conn.slot() {
            self.connections.resize_with(conn.slot() + 1, || None);
        }
        let c = Connection::new(conn, listener, peer, self.engine.now);
        self.deadlines.arm(conn.slot(), self.deadline(&c));
        self.connections[conn.slot()] = Some(c);
        self.open += 1;
    }

    /// Takes a connection out of the table, if that is the one its slot has now.
    fn take(&mut self, conn: Conn) -> Option<Connection> {
        self.connections.get_mut(conn.slot())?.take_if(|c| c.conn == conn)
    }

    fn readable(&mut self, conn: Conn, data: Data) {
        let Some(mut c) = self.take(conn) else {
            self.transport.receive(data, |_| {});
            return;
        };
        let engine = &mut self.engine;
        let before = c.requests;
        match self.transport.receive(data, |bytes| engine.input(&mut c, bytes)) {
            After::Open if c.requests - before >= limits::HELD_REQUESTS => self.hold(c),
            After::Open => self.settle(c),
            After::Ended => {
                c.peer_ended = true;
                self.settle(c);
            }
            After::Failed(_) => self.close(c, Close::Abort),
            After::Gone => self.forget(c),
        }
    }

    fn run_woken(&mut self) {
        if !self.has_woken() {
            self.ready.take(&mut self.woken);
            self.woken_at = 0;
        }
        for _ in 0..limits::WOKEN_PER_TURN {
            let Some(&task) = self.woken.get(self.woken_at) else { break };
            self.woken_at += 1;
            self.engine.tasks.unqueue(task);
            let Some(conn) = self.engine.owner(task) else { continue };
            let Some(mut c) = self.take(conn) else { continue };
            self.engine.poll_task(&mut c, task);
            if self.engine.out.is_empty() {
                // Several of one connection may be woken in one turn: it sends once.
                if !c.dirty {
                    c.dirty = true;
                    self.dirty.push(conn);
                }
                self.connections[conn.slot()] = Some(c);
            } else {
                self.settle(c);
            }
        }
    }

    /// Whether handlers that were woken wait for their turn.
    fn has_woken(&self) -> bool {
        self.woken_at < self.woken.len()
    }

    /// Sends what can be sent, goes on with what can go on, and decides what the connection waits for next.
    fn settle(&mut self, mut c: Connection) {
        let mut budget = TURN_BYTES;
        for round in 0.. {
            match self.pump(&mut c, &mut budget) {
                Ok(()) if self.is_the_last(&c) => return self.send_last(c),
                pumped => match pumped.and_then(|()| self.flush(&mut c)) {
                    Ok(()) => {}
                    Err(Gone) => return self.close(c, Close::Abort),
                },
            }
            let stuck = !c.reads() || c.is_blocked(0) || !has_news(&c);
            if budget == 0 || round >= TURN_ROUNDS {
                // Others have their turn first; while the wire is full there is nothing to come back for.
                let more = !stuck || (!c.queue_is_empty() && c.unsent < limits::UNSENT);
                if more && !c.dirty {
                    c.dirty = true;
                    self.again.push(c.conn);
                }
                break;
            }
            if stuck {
                break;
            }
            self.engine.advance(&mut c);
        }
        if c.peer_ended && !c.is_blocked(0) && !has_news(&c) {
            c.cut_body();
            c.closing.get_or_insert(Close::Now);
        }
        if let Some(how) = c.closing
            && c.queue_is_empty()
        {
            // A body that nobody reads to its end is still arriving: do not let it destroy the answer.
            let how = if c.is_reading_body() && !c.peer_ended { Close::Lingering } else { how };
            return self.close(c, how);
        }
        self.keep(c);
    }

    /// Puts a connection back, with its reading and its deadline as they should be.
    fn keep(&mut self, mut c: Connection) {
        let pause = c.reads() && c.is_blocked(0);
        if pause != c.paused {
            c.paused = pause;
            if pause {
                self.transport.pause(c.conn);
            } else {
                self.transport.resume(c.conn);
            }
        }
        self.engine.rest(&mut c);
        let state = c.state();
        if state != c.waits || c.progressed {
            c.waits = state;
            c.progressed = false;
            c.since = self.engine.now;
            c.left_at_since = c.handed - c.unsent as u64;
        }
        self.deadlines.arm(c.conn.slot(), self.deadline(&c));
        let slot = c.conn.slot();
        self.connections[slot] = Some(c);
    }

    fn deadline(&self, c: &Connection) -> Time {
        let limits = &self.engine.limits;
        let granted = |bytes: u64| Duration::from_secs(bytes / limits.least_rate.max(1));
        match c.waits {
            Waits::Idle if c.requests == 0 => c.since + limits.header_time,
            Waits::Idle => c.since + limits.idle_time,
            Waits::Head => c.since + limits.header_time,
            Waits::Body => match c.work.as_ref().and_then(|w| w.body.as_ref()) {
                Some(body) => body.began.max(c.since) + limits.body_time + granted(body.received),
                None => c.since + limits.body_time,
            },
            Waits::Handler => Time::NEVER,
            Waits::Write => c.since + limits.write_time,
        }
    }

    fn look_at_deadlines(&mut self) {
        let now = self.engine.now;
        let mut due = std::mem::take(&mut self.due);
        due.clear();
        self.deadlines.advance(now, &mut due);
        for &slot in &due {
            let Some(c) = self.connections.get_mut(slot as usize).and_then(Option::take) else { continue };
            if self.deadline(&c) <= now {
                self.expired(c);
            } else {
                self.deadlines.arm(slot as usize, self.deadline(&c));
                self.connections[slot as usize] = Some(c);
            }
        }
        self.due = due;
        if self.engine.draining || self.leaving > 0 {
            self.close_idle();
        }
    }

    /// Says it when descriptors are used up, and when they are there again. Meanwhile idle connections make room: whoever waits to
    /// be accepted has something to ask.
    fn look_at_accepting(&mut self) {
        let trouble = self.transport.accept_trouble();
        let (Some(lack), now) = (&self.lack, self.engine.now) else { return };
        if trouble.is_none() && self.lacking.is_none() && !lack.is_felt() {
            return;
        }
        match trouble {
            Some(why) => {
                lack.felt(now, why);
                self.lacking = Some(Time::NEVER);
            }
            None if self.lacking.is_some() => self.lacking = lack.over(now),
            None => {}
        }
        for slot in 0..self.connections.len() {
            let idle = |c: &mut Connection| {
                c.waits == Waits::Idle && c.requests > 0 && c.since + limits::SPARED_IDLE <= now
            };
            if let Some(c) = self.connections[slot].take_if(idle) {
                self.close(c, Close::Now);
            }
        }
    }

    fn expired(&mut self, mut c: Connection) {
        match c.waits {
            Waits::Idle => self.close(c, Close::Now),
            Waits::Handler => self.keep(c),
            Waits::Head => {
                self.engine.refuse_with(&mut c, 408, "the request took too long");
                self.settle(c);
            }
            Waits::Body => {
                self.engine.cancel_last(&mut c);
                self.engine.refuse_with(&mut c, 408, "the request's body took too long");
                self.settle(c);
            }
            Waits::Write => {
                let left = c.handed - c.unsent as u64;
                let elapsed = self.engine.now - c.since;
                let least = elapsed.as_secs() * self.engine.limits.least_rate;
                if left - c.left_at_since < least.max(1) {
                    return self.close(c, Close::Abort);
                }
                c.progressed = true;
                self.keep(c);
            }
        }
    }

    /// While draining: those that have been quiet for a moment go.
    fn close_idle(&mut self) {
        let (now, draining) = (self.engine.now, self.engine.draining);
        let overdue = now >= self.leaving_until;
        let hard = self.engine.draining_hard;
        for slot in 0..self.connections.len() {
            let idle = |c: &mut Connection| {
                (draining || c.leaving) && c.waits == Waits::Idle && c.since + DRAIN_QUIET <= now
            };
            if let Some(c) = self.connections[slot].take_if(idle) {
                self.close(c, Close::Lingering);
            } else if let Some(c) = self.connections[slot].take_if(|c| overdue && c.leaving) {
                self.close(c, Close::Abort);
            } else if let Some(c) = &mut self.connections[slot]
                && (draining || c.leaving)
                && hard
                && !c.queue_is_empty()
            {
                // What it has asked is answered; more is not read.
                c.closing.get_or_insert(Close::Lingering);
            }
        }
    }

    /// Gives `out` to the transport.
    fn flush(&mut self, c: &mut Connection) -> Result<(), Gone> {
        let out = &mut self.engine.out;
        if !out.is_empty() {
            let sent = self.transport.send(c.conn, out);
            c.handed += out.len() as u64;
            self.engine.counts.sent(out.len());
            out.clear();
            if out.capacity() > limits::BUFFER_KEPT * 2 {
                *out = Vec::new();
            }
            sent.map_err(|_| Gone)?;
        }
        c.unsent = self.transport.unsent(c.conn);
        Ok(())
    }

    /// Whether what is in `out` ends the connection, and nothing else is to be waited for.
    fn is_the_last(&self, c: &Connection) -> bool {
        c.closing == Some(Close::Now)
            && c.queue_is_empty()
            && !c.is_reading_body()
            && !self.engine.out.is_empty()
    }

    /// Gives `out` to the transport, and the end of the connection with it.
    fn send_last(&mut self, c: Connection) {
        let out = &mut self.engine.out;
        self.engine.counts.sent(out.len());
        let sent = self.transport.send_last(c.conn, out, Close::Now);
        out.clear();
        match sent {
            Ok(()) => self.forget(c),
            Err(_) => self.close(c, Close::Abort),
        }
    }

    /// Moves answers from the front of the queue to the wire as far as they are ready and the wire takes them.
    fn pump(&mut self, c: &mut Connection, budget: &mut usize) -> Result<(), Gone> {
        while *budget > 0 {
            if self.engine.out.len() + c.unsent >= limits::UNSENT {
                *budget = budget.saturating_sub(self.engine.out.len());
                self.flush(c)?;
                if c.unsent >= limits::UNSENT {
                    return Ok(());
                }
            }
            let Some(work) = &mut c.work else { return Ok(()) };
            let Some(front) = work.queue.front_mut() else { return Ok(()) };
            let ready = front.ready_bytes();
            let pumped = match front {
                Answer::Waiting { .. } => {
                    continue_if_wanted(c, &mut self.engine.out);
                    Pumped::Waits
                }
                Answer::Bytes { bytes, last } => {
                    if self.engine.out.is_empty() {
                        std::mem::swap(&mut self.engine.out, bytes);
                        if self.spare.len() < limits::HELD_KEPT && bytes.capacity() <= limits::HELD_EACH * 2 {
                            self.spare.push(std::mem::take(bytes));
                        }
                    } else {
                        self.engine.out.append(bytes);
                    }
                    Pumped::Done { last: *last }
                }
                Answer::Large { .. } => self.pump_large(c, budget)?,
                Answer::Stream { .. } => self.pump_stream(c, budget)?,
            };
            if let Some(work) = &mut c.work {
                work.ready -= ready - work.queue.front().map_or(0, Answer::ready_bytes);
            }
            match pumped {
                Pumped::More => {}
                Pumped::Waits => return Ok(()),
                // What was asked behind the last answer gets none.
                Pumped::Done { last: true } => self.engine.cancel_from(c, 0),
                Pumped::Done { last: false } => {
                    c.progressed = true;
                    if let Some(work) = &mut c.work {
                        work.queue.pop_front();
                    }
                }
            }
        }
        Ok(())
    }

    /// A large body goes from where it is, in slices.
    fn pump_large(&mut self, c: &mut Connection, budget: &mut usize) -> Result<Pumped, Gone> {
        let Some(Answer::Large { head, body, at, last }) = c.work.as_mut().and_then(|w| w.queue.front_mut())
        else {
            return Ok(Pumped::Waits);
        };
        if !head.is_empty() {
            // It leaves with the first of the body, not in a segment of its own.
            self.engine.out.append(head);
            let with_head = body.len().min(limits::BODY_COPIED_GATHERING);
            self.engine.out.extend_from_slice(&body[..with_head]);
            *at = with_head;
            return Ok(Pumped::More);
        }
        let (slice, last) = (body.slice(*at..body.len().min(*at + limits::BODY_SLICE)), *last);
        *at += slice.len();
        let done = *at == body.len();
        self.flush(c)?;
        let len = slice.len();
        let sent = self.transport.send_shared(c.conn, slice);
        c.handed += len as u64;
        self.engine.counts.sent(len);
        sent.map_err(|_| Gone)?;
        c.unsent = self.transport.unsent(c.conn);
        *budget = budget.saturating_sub(len);
        Ok(if done { Pumped::Done { last } } else { Pumped::More })
    }

    /// Polls a streamed body once.
    fn pump_stream(&mut self, c: &mut Connection, budget: &mut usize) -> Result<Pumped, Gone> {
        let Some(Answer::Stream { task, head, stream, end, last }) =
            c.work.as_mut().and_then(|w| w.queue.front_mut())
        else {
            return Ok(Pumped::Waits);
        };
        let out = &mut self.engine.out;
        out.append(head);
        let Some(waker) = self.engine.tasks.waker(*task) else { return Err(Gone) };
        let mut context = Context::from_waker(&waker);
        let before = out.len();
        let polled = catch_unwind(AssertUnwindSafe(|| stream.as_mut().poll_next(&mut context)));
        let (task, last) = (*task, *last);
        match (polled, &mut *end) {
            (Ok(Poll::Pending), _) => {
                continue_if_wanted(c, &mut self.engine.out);
                return Ok(Pumped::Waits);
            }
            (Ok(Poll::Ready(Some(Ok(bytes)))), StreamEnd::Chunked) => write_chunk(out, &bytes),
            (Ok(Poll::Ready(Some(Ok(bytes)))), StreamEnd::Close) => out.extend_from_slice(&bytes),
            (Ok(Poll::Ready(Some(Ok(bytes)))), StreamEnd::Length(left)) if bytes.len() as u64 <= *left => {
                *left -= bytes.len() as u64;
                out.extend_from_slice(&bytes);
            }
            (Ok(Poll::Ready(None)), StreamEnd::Chunked) => {
                write_last_chunk(out, &stream.as_mut().trailers().unwrap_or_default());
                self.engine.tasks.cancel(task);
                return Ok(Pumped::Done { last });
            }
            (Ok(Poll::Ready(None)), StreamEnd::Length(0) | StreamEnd::Close | StreamEnd::Nothing) => {
                self.engine.tasks.cancel(task);
                return Ok(Pumped::Done { last });
            }
            // It failed, or is not as long as it said: only a cut connection tells the peer that something is missing.
            _ => {
                self.flush(c)?;
                return Err(Gone);
            }
        }
        *budget = budget.saturating_sub((out.len() - before).max(1));
        Ok(Pumped::More)
    }

    fn close(&mut self, mut c: Connection, how: Close) {
        self.transport.close(c.conn, how);
        c.unsent = 0;
        self.forget(c);
    }

    fn forget(&mut self, mut c: Connection) {
        self.engine.out.clear();
        c.cut_body();
        self.engine.cancel_from(&mut c, 0);
        if let Some(work) = &mut c.work {
            work.input.clear();
        }
        self.engine.rest(&mut c);
        self.engine.counts.closed();
        self.leaving -= usize::from(c.leaving);
        self.open -= 1;
    }
}

/// The connection failed or had to be cut.
struct Gone;

/// How far the answer at the front of a queue has come.
enum Pumped {
    /// All of it is handed over.
    Done { last: bool },
    /// There is more to hand over.
    More,
    /// It waits for its handler.
    Waits,
}

/// Whether input is kept that was not looked at yet.
fn has_news(c: &Connection) -> bool {
    c.work.as_ref().is_some_and(|w| w.seen < w.input.len())
}

/// Tells a client that waits for it to send its body, once the handler asks for it (RFC 9110 section 10.1.1).
fn continue_if_wanted(c: &mut Connection, out: &mut Vec<u8>) {
    let Some(work) = &mut c.work else { return };
    let alone = work.queue.len() == 1;
    if let Some(body) = &mut work.body
        && alone
        && body.expects_continue
        && body.shared.is_wanted()
    {
        body.expects_continue = false;
        write_interim(out, 100);
    }
}
