//! The watchdog: names the route whose handler holds a loop.

use std::collections::HashSet;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Duration;

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
}

impl Watch {
    pub(crate) fn enter(&self, serial: u64) {
        self.inside.store(serial | 1, Relaxed);
    }

    /// Whether it took too long.
    pub(crate) fn leave(&self) -> bool {
        self.inside.store(0, Relaxed);
        self.held.load(Relaxed) && self.held.swap(false, Relaxed)
    }
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
                    let inside = watch.inside.load(Relaxed);
                    if inside != 0 && inside == *before {
                        watch.held.store(true, Relaxed);
                    }
                    *before = inside;
                }
                drop(list);
                drop(watches);
                std::thread::sleep(PATIENCE);
            }
        })?;
        Ok(dog)
    }

    pub(crate) fn watch(&self) -> Arc<Watch> {
        let watch = Arc::new(Watch::default());
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
