//! Delayed responses. All have the same delay, so they are due in the order they were added.

use std::collections::VecDeque;
use std::time::Duration;

use crate::sys;

/// Delayed responses, in the order they are due.
#[derive(Debug)]
pub(crate) struct DelayedResponses {
    wait_ns: u64,
    /// The time when the clock was last read.
    now_ns: u64,
    /// Due time, slot and serial.
    queue: VecDeque<(u64, usize, u64)>,
}

impl DelayedResponses {
    pub(crate) fn new(wait: Duration) -> DelayedResponses {
        DelayedResponses { wait_ns: wait.as_nanos() as u64, now_ns: sys::now_ns(), queue: VecDeque::new() }
    }

    /// Reads the clock.
    pub(crate) fn look(&mut self) {
        self.now_ns = sys::now_ns();
    }

    /// Adds a request that had arrived when the clock was last read.
    pub(crate) fn push(&mut self, slot: usize, serial: u64) {
        self.queue.push_back((self.now_ns + self.wait_ns, slot, serial));
    }

    /// The next one that was due when the clock was last read.
    pub(crate) fn due(&mut self) -> Option<(usize, u64)> {
        let (_, slot, serial) = self.queue.pop_front_if(|(at, ..)| *at <= self.now_ns)?;
        Some((slot, serial))
    }

    /// Time until the next is due, if there is one.
    pub(crate) fn next_in(&self) -> Option<Duration> {
        let (at, ..) = self.queue.front()?;
        Some(Duration::from_nanos(at.saturating_sub(sys::now_ns())))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_come_due_in_their_order_and_not_before() {
        let mut waiting = DelayedResponses::new(Duration::ZERO);
        waiting.push(3, 1);
        waiting.push(2, 2);
        assert_eq!(waiting.next_in(), Some(Duration::ZERO));
        assert_eq!([waiting.due(), waiting.due(), waiting.due()], [Some((3, 1)), Some((2, 2)), None]);
        assert_eq!(waiting.next_in(), None);
        let mut waiting = DelayedResponses::new(Duration::from_secs(3600));
        waiting.push(3, 1);
        waiting.look();
        assert_eq!(waiting.due(), None);
        assert!(waiting.next_in().is_some_and(|left| left > Duration::from_secs(1)));
    }
}
