//! One thread's loop: a transport below, the [engine](crate::engine) above.
//!
//! A connection passes through it in steps: accept, read, handle (only what waited), together and respond, settle;
//! expire and drain end it.

mod accept;
mod drain;
mod expire;
mod handle;
mod parts;
mod read;
mod respond;
#[cfg(test)]
mod seeds;
mod settle;
mod setup;
mod streams;
mod together;
mod trim;
#[cfg(test)]
mod uploads;
#[cfg(test)]
mod windows;

use std::io;
use std::sync::Arc;

use linerate_net::{Close, Conn, Event, Time, Transport};

pub use self::parts::Wall;
use self::parts::{Accepting, HeldBack, Leaving, Timeouts, Unsettled, WallClock, Woken};
use self::trim::Trim;
use crate::Handler;
use crate::access_log::{self, LogBuffer};
use crate::connection::ServedConnection;
use crate::engine::Engine;
use crate::limits::{self, Limits};
use crate::stats::counts::{Counts, ThreadCounts};
use crate::tasks::WokenTasks;

/// An HTTP server on one transport, for one thread.
///
/// [`spawn`](crate::spawn) makes one per thread on the kernel's TCP; by hand it runs on any transport, in memory and virtual
/// time as well.
pub struct Server<T: Transport, H: Handler> {
    transport: T,
    engine: Engine<H>,
    events: Vec<Event>,
    connections: Vec<Option<ServedConnection>>,
    open: usize,
    accepting: Accepting,
    leaving: Leaving,
    timeouts: Timeouts,
    woken: Woken,
    held: HeldBack,
    unsettled: Unsettled,
    /// Connections over HTTP/2 that wait until memory is not scarce.
    starving: Vec<Conn>,
    clock: WallClock,
    woken_by_waker: bool,
    trim: Trim,
}

impl<T: Transport, H: Handler> Server<T, H> {
    /// A server that responds with `handler`.
    pub fn new(transport: T, handler: H, limits: Limits) -> Server<T, H> {
        let ready = WokenTasks::new(transport.waker());
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
            accepting: Accepting::default(),
            leaving: Leaving::default(),
            timeouts: Timeouts::new(),
            woken: Woken::new(ready),
            held: HeldBack::default(),
            unsettled: Unsettled::default(),
            starving: Vec::new(),
            clock: WallClock::new(Wall::System),
            woken_by_waker: false,
            trim: Trim::default(),
        }
    }

    /// Its counters so far.
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

    /// Whether the last turn was ended by a [`Waker`](linerate_net::Waker) of the transport.
    pub fn take_woken(&mut self) -> bool {
        std::mem::take(&mut self.woken_by_waker)
    }

    /// Waits until something happens, `until` at the latest, and does what there is to do.
    ///
    /// # Errors
    /// When the transport itself fails; connections' failures are theirs alone.
    pub fn turn(&mut self, until: Option<Time>) -> io::Result<()> {
        let until = if !self.unsettled.has_next() && self.woken.is_empty() && self.woken.fall_asleep() {
            let log = self.engine.log.buffer.as_ref().and_then(LogBuffer::due);
            let last_call = self.last_call();
            let trim = self.trim.next();
            let [timer, deadline] = self.timeouts.next();
            let own = [timer, deadline, self.drain_tick(), last_call, log, self.accepting.lacking, trim];
            own.into_iter().flatten().chain(until).min()
        } else {
            Some(Time::ZERO)
        };
        let turned = self.transport.turn(until, &mut self.events);
        self.woken.wake_up();
        turned?;
        self.begin_turn();
        let accepted = self.accepting.accepted;
        let mut events = std::mem::take(&mut self.events);
        for event in events.drain(..) {
            self.event(event);
        }
        self.events = events;
        self.let_go();
        self.run_woken();
        self.look_at_deadlines();
        self.look_at_accepting();
        self.close_listeners(accepted);
        for conn in self.unsettled.take() {
            if let Some(mut c) = self.take(conn) {
                c.dirty = false;
                self.settle(c);
            }
        }
        self.end_turn();
        if let Some(log) = &mut self.engine.log.buffer
            && log.due().is_some_and(|due| due <= self.engine.now)
        {
            log.hand_over();
        }
        Ok(())
    }

    fn begin_turn(&mut self) {
        let now = self.transport.now();
        self.engine.now = now;
        self.engine.drain.hard = now >= self.leaving.hard_at;
        if let Some(date) = self.clock.news(now) {
            self.engine.date = date;
        }
        if let Some(meter) = &mut self.engine.meter {
            meter.begin_turn(&self.engine.counts.measured, now);
        }
        self.timeouts.begin_turn(now);
    }

    /// Publishes the state that other threads read.
    fn end_turn(&mut self) {
        self.feed_starving();
        let engine = &mut self.engine;
        engine.counts.set_parked(engine.tasks.parked(), engine.tasks.streaming());
        engine.counts.set_states(engine.states);
        if let Some(meter) = &mut engine.meter {
            meter.end_turn(&engine.counts.measured, engine.now, self.transport.now());
        }
        if self.trim.is_due(engine.now, engine.allowance.together() + engine.unread.bytes()) {
            trim::return_free_memory();
        }
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

    /// Takes a connection out of the table, if that is the one its slot has now.
    fn take(&mut self, conn: Conn) -> Option<ServedConnection> {
        self.connections.get_mut(conn.slot())?.take_if(|c| c.conn == conn)
    }

    fn close(&mut self, c: ServedConnection, how: Close) {
        self.transport.close(c.conn, how);
        // Bytes that the transport still holds leave, unless they are cut.
        let left = c.handed - if how == Close::Abort { c.unsent as u64 } else { 0 };
        self.forget(c, left);
    }

    /// `left`: how many of the bytes that were handed over have left, or will.
    fn forget(&mut self, mut c: ServedConnection, left: u64) {
        self.engine.out.clear();
        c.cut_body();
        let cut = c.leaving && self.engine.now >= self.leaving.until;
        if c.is_http2() {
            self.forget_streams(&mut c, cut);
        }
        self.engine.log_unanswered(&c, if cut { access_log::CUT } else { access_log::LEFT });
        self.engine.cancel_from(&mut c, 0);
        self.engine.log_left(&mut c, left, true);
        if let Some(work) = &mut c.work {
            work.input.clear();
        }
        self.engine.rest(&mut c);
        self.engine.allowance.changed(c.held(), 0);
        if c.read_elsewhere {
            self.engine.read_elsewhere.retain(|conn| *conn != c.conn);
        }
        if c.counted {
            self.engine.admission.clients.closed(c.peer.ip());
        }
        self.engine.counts.closed();
        self.leaving.count -= usize::from(c.leaving);
        self.open -= 1;
        self.engine.states[c.waits as usize] -= 1;
    }
}
