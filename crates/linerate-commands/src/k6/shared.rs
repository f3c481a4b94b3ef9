//! What all threads of a run share.

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::future::{Future, poll_fn};
use std::pin::pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::task::{Poll, Waker};

use tokio::sync::watch;

/// Why a run ends before its time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum EarlyEnd {
    /// The script called `exec.test.abort`.
    Aborted(String),
    /// A threshold with `abortOnFail` failed.
    Threshold(String),
    /// The user wants it.
    Interrupted,
    /// A user could not be made.
    Broken(String),
}

/// Counts of the whole run, and its early end.
#[derive(Debug)]
pub(super) struct RunShared {
    pub(super) completed: AtomicU64,
    pub(super) interrupted: AtomicU64,
    pub(super) active: AtomicU64,
    pub(super) users: AtomicU64,
    pub(super) begun: AtomicU64,
    /// Nanoseconds that scripts ran, without the time in which they waited.
    pub(super) script_ns: AtomicU64,
    end: watch::Sender<Option<EarlyEnd>>,
    /// The script said that the run has failed.
    pub(super) failed: Mutex<Option<String>>,
    /// Errors of iterations, by their text.
    errors: Mutex<HashMap<String, u64>>,
}

/// How often the same error is printed.
const SAME_ERROR: u64 = 10;

/// Errors told apart.
const ERRORS: usize = 1000;

impl RunShared {
    pub(super) fn new() -> RunShared {
        RunShared {
            completed: AtomicU64::new(0),
            interrupted: AtomicU64::new(0),
            active: AtomicU64::new(0),
            users: AtomicU64::new(0),
            begun: AtomicU64::new(0),
            script_ns: AtomicU64::new(0),
            end: watch::Sender::new(None),
            failed: Mutex::new(None),
            errors: Mutex::default(),
        }
    }

    /// Ends the run; the first reason stays.
    pub(super) fn end(&self, why: EarlyEnd) {
        self.end.send_if_modified(|end| {
            end.is_none() && {
                *end = Some(why);
                true
            }
        });
    }

    pub(super) fn ended(&self) -> Option<EarlyEnd> {
        self.end.borrow().clone()
    }

    /// Waits until the run ends early.
    pub(super) async fn wait_end(&self) {
        let mut end = self.end.subscribe();
        // The sender lives as long as this.
        let _ = end.wait_for(Option::is_some).await;
    }

    /// Counts an error; whether it is to be printed, and with which words behind it.
    pub(super) fn note_error(&self, text: &str) -> Option<&'static str> {
        let mut errors = locked(&self.errors);
        if errors.len() >= ERRORS && !errors.contains_key(text) {
            return None;
        }
        let count = errors.entry(text.to_owned()).or_default();
        *count += 1;
        match *count {
            n if n < SAME_ERROR => Some(""),
            SAME_ERROR => Some(" (printed no more)"),
            _ => None,
        }
    }

    pub(super) fn count(of: &AtomicU64) -> u64 {
        of.load(Ordering::Relaxed)
    }
}

/// Cuts off what one user does.
#[derive(Debug, Default)]
pub(super) struct CutSignal {
    is_cut: Cell<bool>,
    waker: RefCell<Option<Waker>>,
}

impl CutSignal {
    pub(super) fn cut(&self) {
        self.is_cut.set(true);
        if let Some(waker) = self.waker.take() {
            waker.wake();
        }
    }

    /// It may go on again.
    pub(super) fn reset(&self) {
        self.is_cut.set(false);
    }

    pub(super) fn is_cut(&self) -> bool {
        self.is_cut.get()
    }

    /// The result of a future, unless it is cut off before.
    pub(super) async fn unless_cut<F: Future>(&self, future: F) -> Option<F::Output> {
        let mut future = pin!(future);
        poll_fn(|cx| {
            if self.is_cut.get() {
                return Poll::Ready(None);
            }
            if let Poll::Ready(output) = future.as_mut().poll(cx) {
                return Poll::Ready(Some(output));
            }
            let mut waker = self.waker.borrow_mut();
            match &mut *waker {
                Some(known) if known.will_wake(cx.waker()) => {}
                place => *place = Some(cx.waker().clone()),
            }
            Poll::Pending
        })
        .await
    }
}

/// A lock whose holder may have panicked: what it guards is whole between two changes.
pub(super) fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
