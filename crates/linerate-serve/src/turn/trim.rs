//! Decides when freed memory is returned to the system: once a thread's unsent responses and unread bodies have
//! fallen far below their peak and stay there. The heap would otherwise keep the freed memory
//! forever.

use std::sync::atomic::{AtomicBool, Ordering};

use linerate_net::{Time, machine};

use crate::blocking::blocking;
use crate::limits::{TRIM_CALM, TRIM_EVERY, TRIM_WORTH};

/// The decision for one thread.
#[derive(Debug, Default)]
pub(crate) struct Trim {
    /// Most bytes held at once since memory was last returned.
    peak: usize,
    /// Since when less than half of the peak has been held.
    low_since: Option<Time>,
    not_before: Time,
}

impl Trim {
    /// Records how many bytes are held now. `true`: return memory.
    pub(crate) fn is_due(&mut self, now: Time, held: usize) -> bool {
        self.peak = self.peak.max(held);
        if self.peak < TRIM_WORTH || held > self.peak / 2 {
            self.low_since = None;
            return false;
        }
        self.low_since.get_or_insert(now);
        if self.next().is_none_or(|at| now < at) {
            return false;
        }
        *self = Trim { peak: held, low_since: None, not_before: now + TRIM_EVERY };
        true
    }

    /// When to call again, even if nothing happens.
    pub(crate) fn next(&self) -> Option<Time> {
        Some((self.low_since? + TRIM_CALM).max(self.not_before))
    }
}

/// Returns it, on a thread of the pool: after a peak of 150 MB that takes milliseconds.
pub(crate) fn return_free_memory() {
    // One call covers the memory of all threads.
    if !RUNS.swap(true, Ordering::AcqRel) {
        let turn = Turn;
        // If the pool is full, the next peak is soon enough.
        drop(blocking(move || {
            let _turn = turn;
            machine::return_free_memory()
        }));
    }
}

static RUNS: AtomicBool = AtomicBool::new(false);

/// Also reset if the pool has no room for the work.
struct Turn;

impl Drop for Turn {
    fn drop(&mut self) {
        RUNS.store(false, Ordering::Release);
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn at(millis: u64) -> Time {
        Time::ZERO + Duration::from_millis(millis)
    }

    #[test]
    fn it_is_due_once_the_peak_is_over_and_stays_over() {
        let mut trim = Trim::default();
        assert!(!trim.is_due(at(0), 64 << 20));
        assert_eq!(trim.next(), None);
        // Down, up again, and down.
        assert!(!trim.is_due(at(10), 1 << 20));
        assert_eq!(trim.next(), Some(at(1010)));
        assert!(!trim.is_due(at(900), 40 << 20));
        assert_eq!(trim.next(), None);
        assert!(!trim.is_due(at(1100), 32 << 20));
        assert!(!trim.is_due(at(2099), 0));
        assert!(trim.is_due(at(2100), 0));
        // Reported once.
        assert_eq!(trim.next(), None);
        assert!(!trim.is_due(at(9000), 0));
    }

    #[test]
    fn small_peaks_and_gentle_falls_are_not_worth_it() {
        for (peak, then) in [(TRIM_WORTH - 1, 0), (64 << 20, (32 << 20) + 1)] {
            let mut trim = Trim::default();
            assert!(!trim.is_due(at(0), peak));
            assert!(!trim.is_due(at(1), then) && trim.next().is_none(), "{peak}, {then}");
        }
    }

    #[test]
    fn a_peak_soon_behind_the_last_waits() {
        let mut trim = Trim::default();
        for held in [64 << 20, 0] {
            assert!(!trim.is_due(at(1000), held));
        }
        assert!(trim.is_due(at(2000), 0));
        for held in [64 << 20, 0] {
            assert!(!trim.is_due(at(2500), held));
        }
        assert_eq!(trim.next(), Some(at(7000)));
        assert!(!trim.is_due(at(6999), 0));
        assert!(trim.is_due(at(7000), 0));
    }
}
