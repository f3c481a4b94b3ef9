//! The watchdog: names the route whose handler holds a loop.

use std::collections::HashSet;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Duration;

use linerate_net::machine;

use crate::notice::{Notice, Notices};

/// How long a handler may hold its loop unnoticed.
pub(crate) const PATIENCE: Duration = Duration::from_millis(5);
/// Routes named before it falls silent. Reason: paths with numbers in them are many.
const NAMED: usize = 64;

/// What a loop shows of itself: two plain stores per handler.
#[derive(Debug, Default)]
pub(crate) struct Watch {
    /// 0: not in a handler; else which one.
    inside: AtomicU64,
    /// The watchdog saw the same handler twice.
    held: AtomicBool,
    /// When it saw it first, and how long the thread had waited for its CPU until then, in nanoseconds.
    seen_at: AtomicU64,
    waited_before: AtomicU64,
    /// By which the kernel knows the thread; 0: unknown.
    thread: u32,
}

impl Watch {
    pub(crate) fn enter(&self, serial: u64) {
        self.inside.store(serial | 1, Relaxed);
    }

    /// Whether it took too long.
    pub(crate) fn leave(&self) -> bool {
        self.inside.store(0, Relaxed);
        self.held.load(Relaxed) && self.held.swap(false, Relaxed) && self.is_to_blame()
    }

    /// Time for which others had the CPU is not the handler's.
    fn is_to_blame(&self) -> bool {
        let elapsed = machine::monotonic_now().as_nanos().saturating_sub(self.seen_at.load(Relaxed));
        let before = self.waited_before.load(Relaxed);
        let waited = machine::thread_sched_stat().map_or(0, |s| s.waiting_ns.saturating_sub(before));
        is_long(elapsed, waited)
    }

    /// The watchdog looks; `before` is what it saw the last time.
    fn look(&self, before: &mut u64) {
        let inside = self.inside.load(Relaxed);
        if inside != 0 && inside == *before {
            self.held.store(true, Relaxed);
        } else if inside != 0 {
            // Where the kernel does not say, all of the time counts.
            let waited = machine::sched_stat_of(self.thread).map_or(u64::MAX, |s| s.waiting_ns);
            self.waited_before.store(waited, Relaxed);
            self.seen_at.store(machine::monotonic_now().as_nanos(), Relaxed);
        }
        *before = inside;
    }
}

/// Whether a handler held its loop that took `elapsed` while its thread waited `waited` nanoseconds for the CPU.
fn is_long(elapsed: u64, waited: u64) -> bool {
    Duration::from_nanos(elapsed.saturating_sub(waited)) >= PATIENCE
}

/// Looks at loops until they are gone.
#[derive(Clone, Debug)]
pub(crate) struct Watchdog {
    watches: Arc<Mutex<Vec<Weak<Watch>>>>,
    notices: Notices,
    named: Arc<Mutex<HashSet<String>>>,
}

impl Watchdog {
    pub(crate) fn spawn(notices: Notices) -> std::io::Result<Watchdog> {
        let dog = Watchdog { watches: Arc::default(), notices, named: Arc::default() };
        let watches = Arc::downgrade(&dog.watches);
        std::thread::Builder::new().name("watchdog".to_owned()).spawn(move || {
            let mut before = Vec::new();
            while let Some(watches) = watches.upgrade() {
                let mut list = watches.lock().unwrap_or_else(PoisonError::into_inner);
                list.retain(|w| w.strong_count() > 0);
                before.resize(list.len(), 0);
                for (watch, before) in list.iter().filter_map(Weak::upgrade).zip(&mut before) {
                    watch.look(before);
                }
                drop(list);
                drop(watches);
                std::thread::sleep(PATIENCE);
            }
        })?;
        Ok(dog)
    }

    /// For the calling thread.
    pub(crate) fn watch(&self) -> Arc<Watch> {
        let watch = Arc::new(Watch { thread: machine::thread_id().unwrap_or(0), ..Watch::default() });
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

    fn watch() -> Watch {
        Watch { thread: machine::thread_id().unwrap_or(0), ..Watch::default() }
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
    fn time_for_which_others_had_the_cpu_does_not_count() {
        let ms = 1_000_000;
        assert!(is_long(5 * ms, 0) && is_long(60 * ms, 54 * ms));
        assert!(!is_long(60 * ms, 56 * ms) && !is_long(4 * ms, 0) && !is_long(ms, 2 * ms));
    }
}
