//! Where a core leaves word of how it is going, and where it finds the order to stop. Looked at once a turn; the lock is
//! only taken when somebody asked, or a second has passed.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use linerate_net::{TcpTotals, Time};

use super::recorder::Recorder;
use crate::histogram::Histogram;
use crate::outcome::Snapshot;

/// Marks kept when nobody collects them. Reason: the collector comes by ten times a second.
const MARKS: usize = 64;

/// Between one core and whoever watches.
#[derive(Debug, Default)]
pub(crate) struct Board {
    stop: AtomicBool,
    wanted: AtomicBool,
    word: Mutex<Word>,
}

#[derive(Debug, Default)]
struct Word {
    snapshot: Option<Snapshot>,
    marks: Vec<Mark>,
}

/// Cumulative figures at the end of a second.
#[derive(Clone, Debug, Default)]
pub(crate) struct Mark {
    pub(crate) answered: u64,
    pub(crate) failed: u64,
    pub(crate) latency: Histogram,
}

impl Board {
    fn word(&self) -> MutexGuard<'_, Word> {
        self.word.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Asks the core to stop.
    pub(crate) fn ask_to_stop(&self) {
        self.stop.store(true, Ordering::Relaxed);
    }

    pub(crate) fn stop_asked(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }

    /// Whether somebody wants a snapshot.
    pub(crate) fn wanted(&self) -> bool {
        self.wanted.load(Ordering::Relaxed) && self.wanted.swap(false, Ordering::Relaxed)
    }

    /// Takes the last snapshot and asks for the next.
    pub(crate) fn collect(&self) -> (Option<Snapshot>, Vec<Mark>) {
        let mut word = self.word();
        self.wanted.store(true, Ordering::Relaxed);
        (word.snapshot.take(), std::mem::take(&mut word.marks))
    }

    pub(crate) fn mark(&self, recorder: &Recorder) {
        let mark = Mark {
            answered: recorder.requests.answered,
            failed: recorder.requests.failed,
            latency: recorder.latency.clone(),
        };
        let mut word = self.word();
        if word.marks.len() < MARKS {
            word.marks.push(mark);
        }
    }

    pub(crate) fn publish(
        &self,
        now: Time,
        recorder: &Recorder,
        in_flight: u64,
        open: u64,
        stack: Option<TcpTotals>,
    ) {
        let snapshot = Snapshot {
            measuring: recorder.measuring(now),
            requests: recorder.requests,
            bad: recorder.bad,
            failures: recorder.failures.clone(),
            status: recorder.statuses().collect(),
            in_flight,
            open,
            bytes: recorder.bytes,
            stack,
            latency: recorder.latency.clone(),
            ..Snapshot::default()
        };
        self.word().snapshot = Some(snapshot);
    }
}
