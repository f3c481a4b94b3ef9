//! The parts of a [`Server`](super::Server) that need no transport. Their private fields are out of reach
//! of the steps of a turn.

use std::cell::RefCell;
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use linerate_http::server::HttpDate;
use linerate_net::{Conn, Listener, Time};

use crate::Address;
use crate::limits::{HELD_BYTES, HELD_EACH, HELD_KEPT};
use crate::notice::Lack;
use crate::tasks::WokenTasks;
use crate::timers::{self, Deadlines, Timers};

/// Where the wall clock for `Date` comes from.
#[derive(Clone, Copy, Debug)]
pub enum Wall {
    /// The system's.
    System,
    /// Seconds since 1970 at the transport's time zero: for virtual time.
    Virtual(u64),
}

/// Listeners, and what they accept.
pub(super) struct Accepting {
    pub(super) listeners: Vec<(Address, Listener)>,
    /// Those of them that no other process or thread has.
    pub(super) own: Vec<Listener>,
    /// Listeners that accept no new connections, and when they are closed.
    pub(super) closing: Vec<Listener>,
    pub(super) last_call: Time,
    /// Connections accepted.
    pub(super) accepted: u64,
    pub(super) lack: Option<Lack>,
    /// Until it was said that nothing is lacking any more: when to look.
    pub(super) lacking: Option<Time>,
}

impl Default for Accepting {
    fn default() -> Accepting {
        Accepting {
            listeners: Vec::new(),
            own: Vec::new(),
            closing: Vec::new(),
            last_call: Time::NEVER,
            accepted: 0,
            lack: None,
            lacking: None,
        }
    }
}

/// Connections whose listener is gone.
pub(super) struct Leaving {
    pub(super) count: usize,
    /// When they are cut.
    pub(super) until: Time,
    /// From when on their next response is their last.
    pub(super) hard_at: Time,
}

impl Default for Leaving {
    fn default() -> Leaving {
        Leaving { count: 0, until: Time::NEVER, hard_at: Time::NEVER }
    }
}

/// Timeouts of connections, and timers of handlers.
pub(super) struct Timeouts {
    deadlines: Deadlines,
    timers: Rc<RefCell<Timers>>,
    /// An empty buffer.
    due: Vec<u32>,
}

impl Timeouts {
    pub(super) fn new() -> Timeouts {
        Timeouts { deadlines: Deadlines::new(), timers: Rc::default(), due: Vec::new() }
    }

    /// Sets the timeout of a connection.
    pub(super) fn arm(&mut self, slot: usize, at: Time) {
        self.deadlines.arm(slot, at);
    }

    /// Takes the connections whose timeout may be over; [`Timeouts::give_back`] returns the buffer.
    pub(super) fn take_due(&mut self, now: Time) -> Vec<u32> {
        let mut due = std::mem::take(&mut self.due);
        due.clear();
        self.deadlines.advance(now, &mut due);
        due
    }

    pub(super) fn give_back(&mut self, due: Vec<u32>) {
        self.due = due;
    }

    /// Wakes the handlers whose timers are over, and lets handlers set new ones.
    pub(super) fn begin_turn(&mut self, now: Time) {
        timers::enter(&self.timers);
        self.timers.borrow_mut().advance(now);
    }

    /// When the next connection's timeout is over, and the next handler's timer.
    pub(super) fn next(&self) -> [Option<Time>; 2] {
        [self.timers.borrow().next(), self.deadlines.next()]
    }
}

/// Tasks that were woken and had no turn yet.
pub(super) struct Woken {
    ready: Arc<WokenTasks>,
    tasks: Vec<u32>,
    /// How many of them had their turn.
    at: usize,
}

impl Woken {
    pub(super) fn new(ready: Arc<WokenTasks>) -> Woken {
        Woken { ready, tasks: Vec::new(), at: 0 }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.at >= self.tasks.len()
    }

    /// Looks for more, once all had their turn.
    pub(super) fn refill(&mut self) {
        if self.is_empty() {
            self.ready.take(&mut self.tasks);
            self.at = 0;
        }
    }

    pub(super) fn next(&mut self) -> Option<u32> {
        let task = *self.tasks.get(self.at)?;
        self.at += 1;
        Some(task)
    }

    /// As [`WokenTasks::fall_asleep`].
    pub(super) fn fall_asleep(&self) -> bool {
        self.ready.fall_asleep()
    }

    /// As [`WokenTasks::wake_up`].
    pub(super) fn wake_up(&self) {
        self.ready.wake_up();
    }
}

/// Connections whose responses leave once everything received in this turn has its response.
#[derive(Default)]
pub(super) struct HeldBack {
    conns: Vec<Conn>,
    /// Bytes of these responses.
    bytes: usize,
    /// Empty buffers for them.
    spare: Vec<Vec<u8>>,
}

impl HeldBack {
    /// An empty buffer.
    pub(super) fn buffer(&mut self) -> Vec<u8> {
        let mut empty = self.spare.pop().unwrap_or_default();
        empty.clear();
        empty
    }

    /// Keeps a buffer, if it is one worth keeping.
    pub(super) fn keep_buffer(&mut self, bytes: &mut Vec<u8>) {
        if self.spare.len() < HELD_KEPT && bytes.capacity() <= HELD_EACH * 2 {
            self.spare.push(std::mem::take(bytes));
        }
    }

    /// Adds a connection with its bytes; `true`: it is time to send.
    pub(super) fn add(&mut self, conn: Conn, bytes: usize) -> bool {
        self.conns.push(conn);
        self.bytes += bytes;
        self.bytes >= HELD_BYTES
    }

    /// Takes the connections; [`HeldBack::give_back`] returns the buffer.
    pub(super) fn take(&mut self) -> Vec<Conn> {
        self.bytes = 0;
        std::mem::take(&mut self.conns)
    }

    pub(super) fn give_back(&mut self, empty: Vec<Conn>) {
        self.conns = empty;
    }

    /// Connections and bytes held, and bytes in empty buffers: all are 0 between turns.
    #[cfg(test)]
    pub(super) fn leftovers(&self) -> usize {
        self.conns.len() + self.bytes + self.spare.iter().map(Vec::len).sum::<usize>()
    }
}

/// Connections to settle at the end of a turn.
#[derive(Default)]
pub(super) struct Unsettled {
    this_turn: Vec<Conn>,
    next_turn: Vec<Conn>,
}

impl Unsettled {
    pub(super) fn add(&mut self, conn: Conn) {
        self.this_turn.push(conn);
    }

    /// Others get their turn first.
    pub(super) fn add_to_next(&mut self, conn: Conn) {
        self.next_turn.push(conn);
    }

    /// Whether the next turn has something to do at once.
    pub(super) fn has_next(&self) -> bool {
        !self.next_turn.is_empty()
    }

    /// Those of this turn, after those that the previous one left.
    pub(super) fn take(&mut self) -> Vec<Conn> {
        let mut all = std::mem::take(&mut self.next_turn);
        all.append(&mut self.this_turn);
        all
    }

    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.this_turn.len() + self.next_turn.len()
    }
}

/// The clock on the wall.
pub(super) struct WallClock {
    wall: Wall,
    next: Time,
}

impl WallClock {
    pub(super) fn new(wall: Wall) -> WallClock {
        WallClock { wall, next: Time::ZERO }
    }

    /// The time for `Date`, if it may have changed.
    pub(super) fn news(&mut self, now: Time) -> Option<HttpDate> {
        if now < self.next {
            return None;
        }
        let seconds = match self.wall {
            Wall::System => SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |d| d.as_secs()),
            Wall::Virtual(at_zero) => at_zero + now.as_nanos() / 1_000_000_000,
        };
        // Twice a second, so that it is never more than half a second late.
        self.next = now + Duration::from_millis(500);
        Some(HttpDate::from_unix(seconds))
    }
}
