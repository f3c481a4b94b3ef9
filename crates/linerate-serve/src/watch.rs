//! The watchdog: names the route whose handler holds a loop.

use std::collections::HashSet;
use std::sync::atomic::{
    AtomicBool, AtomicU64,
    Ordering::{Relaxed, SeqCst},
};
use std::sync::{Arc, Mutex, OnceLock, PoisonError, Weak};
use std::thread::{self, Thread};
use std::time::Duration;

use linerate_net::machine;

use crate::notice::{Notice, Notices};

/// How long a handler may hold its loop unreported.
pub(crate) const PATIENCE: Duration = Duration::from_millis(5);
/// Consecutive checks without activity before the watchdog sleeps until there is some. Reason: an
/// idle server must not wake a core two hundred times a second.
const QUIET_LOOKS: u32 = 40;
/// Interval of checks while it sleeps. Reason: a handler that begins at the moment it falls asleep
/// may go unnoticed.
const DOZE: Duration = Duration::from_secs(1);
/// Routes named, at most. Reason: there are many paths with numbers in them.
const NAMED: usize = 64;

/// Whether the watchdog sleeps, and how it is woken.
#[derive(Debug, Default)]
struct Doze {
    asleep: AtomicBool,
    dog: OnceLock<Thread>,
}

impl Doze {
    #[cold]
    fn end(&self) {
        if self.asleep.swap(false, Relaxed)
            && let Some(dog) = self.dog.get()
        {
            dog.unpark();
        }
    }
}

/// The state that a loop publishes: two plain stores per handler.
#[derive(Debug, Default)]
pub(crate) struct LoopWatch {
    /// The number of the current or last handler; odd while it runs.
    inside: AtomicU64,
    /// The watchdog saw the same handler twice.
    held: AtomicBool,
    /// When it saw it first, and how long the thread had waited for its CPU until then, in
    /// nanoseconds.
    seen_at: AtomicU64,
    waited_before: AtomicU64,
    /// The thread's id in the kernel; 0: unknown.
    thread: u32,
    doze: Arc<Doze>,
}

impl LoopWatch {
    pub(crate) fn enter(&self, serial: u64) {
        self.inside.store(serial | 1, Relaxed);
        if self.doze.asleep.load(Relaxed) {
            self.doze.end();
        }
    }

    /// Ends a handler; returns whether it took too long.
    pub(crate) fn leave(&self) -> bool {
        self.inside.store(self.inside.load(Relaxed) & !1, Relaxed);
        self.held.load(Relaxed) && self.held.swap(false, Relaxed) && self.is_to_blame()
    }

    /// Time without the CPU is not the handler's fault.
    fn is_to_blame(&self) -> bool {
        let elapsed = machine::monotonic_now().as_nanos().saturating_sub(self.seen_at.load(Relaxed));
        let before = self.waited_before.load(Relaxed);
        let waited = machine::thread_sched_stat().map_or(0, |s| s.waiting_ns.saturating_sub(before));
        is_long(elapsed, waited)
    }

    /// One check of the watchdog; `before` is what it saw last. Returns whether there was activity.
    fn look(&self, before: &mut u64) -> bool {
        let inside = self.inside.load(Relaxed);
        let (is_inside, is_news) = (inside & 1 == 1, inside != *before);
        if is_inside && !is_news {
            self.held.store(true, Relaxed);
        } else if is_inside {
            // If the kernel does not say, all of the time counts.
            let waited = machine::sched_stat_of(self.thread).map_or(u64::MAX, |s| s.waiting_ns);
            self.waited_before.store(waited, Relaxed);
            self.seen_at.store(machine::monotonic_now().as_nanos(), Relaxed);
        }
        *before = inside;
        is_inside || is_news
    }
}

/// Whether a handler that took `elapsed` held its loop, given that its thread waited `waited`
/// nanoseconds for the CPU.
fn is_long(elapsed: u64, waited: u64) -> bool {
    Duration::from_nanos(elapsed.saturating_sub(waited)) >= PATIENCE
}

/// Checks loops until they are gone.
#[derive(Clone, Debug)]
pub(crate) struct Watchdog {
    watches: Arc<Mutex<Vec<Weak<LoopWatch>>>>,
    notices: Notices,
    named: Arc<Mutex<HashSet<String>>>,
    doze: Arc<Doze>,
}

/// Whether there was activity in any loop; `None` if all are gone. `before` is what was seen of
/// each.
fn look_at_all(watches: &Weak<Mutex<Vec<Weak<LoopWatch>>>>, before: &mut Vec<u64>) -> Option<bool> {
    let watches = watches.upgrade()?;
    let mut list = watches.lock().unwrap_or_else(PoisonError::into_inner);
    list.retain(|w| w.strong_count() > 0);
    before.resize(list.len(), 0);
    let seen = list.iter().filter_map(Weak::upgrade).zip(before);
    Some(seen.fold(false, |happens, (watch, before)| watch.look(before) || happens))
}

impl Watchdog {
    pub(crate) fn spawn(notices: Notices) -> std::io::Result<Watchdog> {
        let dog = Watchdog { watches: Arc::default(), notices, named: Arc::default(), doze: Arc::default() };
        let (watches, doze) = (Arc::downgrade(&dog.watches), Arc::clone(&dog.doze));
        thread::Builder::new().name("watchdog".to_owned()).spawn(move || {
            let (mut before, mut quiet) = (Vec::new(), 0);
            // Nothing else sets it.
            let _ = doze.dog.set(thread::current());
            while let Some(happens) = look_at_all(&watches, &mut before) {
                quiet = if happens { 0 } else { quiet + 1 };
                if quiet < QUIET_LOOKS {
                    thread::sleep(PATIENCE);
                    continue;
                }
                // Announced first and checked once more afterwards: a handler that begins now
                // either wakes it or is seen.
                doze.asleep.store(true, SeqCst);
                match look_at_all(&watches, &mut before) {
                    Some(false) => thread::park_timeout(DOZE),
                    Some(true) => quiet = 0,
                    None => return,
                }
                doze.asleep.store(false, Relaxed);
            }
        })?;
        Ok(dog)
    }

    /// The watch of the calling thread.
    pub(crate) fn watch(&self) -> Arc<LoopWatch> {
        let (thread, doze) = (machine::thread_id().unwrap_or(0), Arc::clone(&self.doze));
        let watch = Arc::new(LoopWatch { thread, doze, ..LoopWatch::default() });
        self.watches.lock().unwrap_or_else(PoisonError::into_inner).push(Arc::downgrade(&watch));
        watch
    }

    pub(crate) fn report(&self, route: String) {
        let mut named = self.named.lock().unwrap_or_else(PoisonError::into_inner);
        if named.len() < NAMED && named.insert(route.clone()) {
            drop(named);
            self.notices.tell(&Notice::Blocked { route, at_least: PATIENCE });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn watch() -> LoopWatch {
        LoopWatch { thread: machine::thread_id().unwrap_or(0), ..LoopWatch::default() }
    }

    #[test]
    fn a_handler_that_blocks_is_to_blame() {
        let (watch, mut before) = (watch(), 0);
        watch.enter(2);
        watch.look(&mut before);
        watch.look(&mut before);
        std::thread::sleep(2 * PATIENCE);
        assert!(watch.leave());
        assert!(!watch.leave(), "it is said once");
    }

    #[test]
    fn one_that_is_seen_once_is_not() {
        let (watch, mut before) = (watch(), 0);
        for serial in [2, 4, 6] {
            watch.enter(serial);
            watch.look(&mut before);
            assert!(!watch.leave());
        }
    }

    #[test]
    fn an_idle_servers_watchdog_sleeps_until_a_handler_runs() {
        let dog = Watchdog::spawn(Notices::default()).expect("a thread");
        let watch = dog.watch();
        let until = |what: &dyn Fn() -> bool| {
            (0..1000).any(|_| {
                what() || {
                    thread::sleep(PATIENCE);
                    false
                }
            })
        };
        for serial in [2, 4] {
            assert!(until(&|| dog.doze.asleep.load(Relaxed)), "it falls asleep");
            watch.enter(serial);
            assert!(!dog.doze.asleep.load(Relaxed), "it is woken");
            assert!(until(&|| watch.held.load(Relaxed)), "and sees that it takes long");
            watch.leave();
        }
    }

    #[test]
    fn time_for_which_others_had_the_cpu_does_not_count() {
        let ms = 1_000_000;
        assert!(is_long(5 * ms, 0) && is_long(60 * ms, 54 * ms));
        assert!(!is_long(60 * ms, 56 * ms) && !is_long(4 * ms, 0) && !is_long(ms, 2 * ms));
    }
}
