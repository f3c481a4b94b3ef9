//! Time for handlers ([`sleep`]) and for connections (`Deadlines`).

use std::cell::RefCell;
use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use linerate_net::Time;

/// The waiters, by time.
#[derive(Debug, Default)]
pub(crate) struct Timers {
    now: Time,
    serial: u64,
    waiting: BinaryHeap<Reverse<TimerEntry>>,
}

#[derive(Debug)]
struct TimerEntry {
    at: Time,
    serial: u64,
    waker: Waker,
}

impl PartialEq for TimerEntry {
    fn eq(&self, other: &TimerEntry) -> bool {
        (self.at, self.serial) == (other.at, other.serial)
    }
}
impl Eq for TimerEntry {}
impl PartialOrd for TimerEntry {
    fn partial_cmp(&self, other: &TimerEntry) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}
impl Ord for TimerEntry {
    fn cmp(&self, other: &TimerEntry) -> std::cmp::Ordering {
        (self.at, self.serial).cmp(&(other.at, other.serial))
    }
}

impl Timers {
    pub(crate) fn next(&self) -> Option<Time> {
        self.waiting.peek().map(|Reverse(entry)| entry.at)
    }

    /// Sets the time and wakes everything due.
    pub(crate) fn advance(&mut self, now: Time) {
        self.now = now;
        while self.next().is_some_and(|at| at <= now) {
            if let Some(Reverse(entry)) = self.waiting.pop() {
                entry.waker.wake();
            }
        }
    }
}

thread_local! {
    /// The timers of the server that currently runs on this thread.
    static CURRENT: RefCell<Option<Rc<RefCell<Timers>>>> = const { RefCell::new(None) };
}

/// Makes [`sleep`] use `timers` on this thread.
pub(crate) fn enter(timers: &Rc<RefCell<Timers>>) {
    CURRENT.with_borrow_mut(|current| {
        if !current.as_ref().is_some_and(|c| Rc::ptr_eq(c, timers)) {
            *current = Some(Rc::clone(timers));
        }
    });
}

/// The same; returns the previous ones.
pub(crate) fn replace(timers: Option<Rc<RefCell<Timers>>>) -> Option<Rc<RefCell<Timers>>> {
    CURRENT.replace(timers)
}

/// The time of the server that currently runs on this thread.
pub(crate) fn now() -> Option<Time> {
    CURRENT.with_borrow(|current| current.as_ref().map(|timers| timers.borrow().now))
}

/// Sleeps on the server's own clock. Only for use inside a handler.
///
/// A turn of the loop reads that clock once, when it begins. So a request's sleep counts from its
/// arrival, not from when earlier requests were handled. It never ends early by this clock; time
/// that a handler computes in the turn before the sleep counts too.
///
/// ```
/// use std::time::Duration;
///
/// use linerate_serve::{Request, Response, sleep, testing};
///
/// async fn late(_: Request) -> Response {
///     sleep(Duration::from_millis(10)).await;
///     Response::text("10 ms later\n")
/// }
///
/// assert_eq!(testing::call(&late, Request::builder("GET", "/").build()?).code(), 200);
/// # Ok::<(), linerate_serve::BadRequest>(())
/// ```
///
/// # Panics
/// When polled outside of a handler of this crate.
pub fn sleep(duration: Duration) -> Sleep {
    Sleep { duration, until: None }
}

/// The future of [`sleep`].
#[derive(Debug)]
#[must_use = "it waits only when awaited"]
pub struct Sleep {
    duration: Duration,
    until: Option<Time>,
}

impl Future for Sleep {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        CURRENT.with_borrow(|current| {
            let Some(timers) = current else {
                panic!("linerate_serve::sleep is for handlers of linerate_serve")
            };
            let mut timers = timers.borrow_mut();
            let now = timers.now;
            let whole = now + self.duration;
            let until = *self.until.get_or_insert(whole);
            if now >= until {
                return Poll::Ready(());
            }
            timers.serial += 1;
            let serial = timers.serial;
            timers.waiting.push(Reverse(TimerEntry { at: until, serial, waker: context.waker().clone() }));
            Poll::Pending
        })
    }
}

/// Buckets of the wheel and the time of each. Reason: deadlines of connections are seconds; 1/8 s
/// is exact enough, and 1024 buckets reach beyond two minutes (later ones wrap around).
const BUCKETS: usize = 1024;
const TICK_NS: u64 = 125_000_000;

/// One deadline per slot. Postponing it is free: a slot that is examined too early is put in again.
#[derive(Debug)]
pub(crate) struct Deadlines {
    buckets: Vec<Vec<u32>>,
    /// Per slot: the tick at which it is examined; 0: none.
    armed: Vec<u64>,
    /// All ticks up to this one were examined.
    done: u64,
    count: usize,
}

impl Deadlines {
    pub(crate) fn new() -> Deadlines {
        Deadlines { buckets: vec![Vec::new(); BUCKETS], armed: Vec::new(), done: 0, count: 0 }
    }

    /// Makes sure that `slot` is examined at most one tick after `at`.
    pub(crate) fn arm(&mut self, slot: usize, at: Time) {
        if at == Time::NEVER {
            return;
        }
        let tick = (at.as_nanos() / TICK_NS + 1).clamp(self.done + 1, self.done + BUCKETS as u64 - 1);
        if self.armed.len() <= slot {
            self.armed.resize(slot + 1, 0);
        }
        if self.armed[slot] != 0 && self.armed[slot] <= tick {
            return;
        }
        self.armed[slot] = tick;
        self.buckets[(tick % BUCKETS as u64) as usize].push(slot as u32);
        self.count += 1;
    }

    /// The next time to call `advance`; `None` if nothing is armed.
    pub(crate) fn next(&self) -> Option<Time> {
        (self.count > 0).then(|| Time::from_nanos((self.done + 1) * TICK_NS))
    }

    /// Returns the slots whose time may have come; those not done must be armed again.
    pub(crate) fn advance(&mut self, now: Time, due: &mut Vec<u32>) {
        let tick = now.as_nanos() / TICK_NS;
        if self.count == 0 {
            self.done = self.done.max(tick);
        }
        // Nothing is armed beyond one turn of the wheel: after a long pause one turn covers
        // everything.
        self.done = self.done.max(tick.saturating_sub(BUCKETS as u64));
        while self.done < tick {
            self.done += 1;
            let bucket = &mut self.buckets[(self.done % BUCKETS as u64) as usize];
            self.count -= bucket.len();
            for slot in bucket.drain(..) {
                // An entry that an earlier one replaced no longer belongs to the slot.
                let armed = &mut self.armed[slot as usize];
                if *armed != 0 && *armed <= self.done {
                    *armed = 0;
                    due.push(slot);
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(ms: u64) -> Time {
        Time::from_nanos(ms * 1_000_000)
    }

    #[test]
    fn deadlines_come_when_due_and_once() {
        let mut wheel = Deadlines::new();
        let mut due = Vec::new();
        wheel.arm(3, at(1000));
        wheel.arm(3, at(2000));
        wheel.arm(4, at(500_000));
        wheel.advance(at(999), &mut due);
        assert!(due.is_empty());
        wheel.advance(at(1250), &mut due);
        assert_eq!(due, [3]);
        due.clear();
        wheel.advance(at(120_000), &mut due);
        assert!(due.is_empty());
        // Beyond the horizon it is examined early and armed again.
        wheel.advance(at(200_000), &mut due);
        assert_eq!(due, [4]);
        assert_eq!(wheel.next(), None);
    }

    #[test]
    fn an_earlier_deadline_replaces_a_later_one() {
        let mut wheel = Deadlines::new();
        let mut due = Vec::new();
        wheel.arm(0, at(10_000));
        wheel.arm(0, at(1000));
        wheel.advance(at(1200), &mut due);
        assert_eq!(due, [0]);
        wheel.advance(at(20_000), &mut due);
        assert_eq!(due, [0], "the entry that was replaced must not come");
    }

    #[test]
    fn the_wheel_survives_long_pauses() {
        let mut wheel = Deadlines::new();
        let mut due = Vec::new();
        wheel.advance(at(86_400_000), &mut due);
        wheel.arm(1, at(86_401_000));
        wheel.advance(at(2 * 86_400_000), &mut due);
        assert_eq!(due, [1]);
    }
}
