//! Whether the server can be reached. Sans-IO: told what became of connections, it says from when to when there was none.

use linerate_net::Time;

use crate::outcome::{Down, Spans};

/// What one core, or one baseline, knows of it.
#[derive(Debug)]
pub(crate) struct Reach {
    measure_from: Time,
    established: u32,
    /// The last attempt since the last connection ended was in vain.
    in_vain: bool,
    /// Since when no connection has been open.
    none_since: Time,
    /// Requests that failed for want of a connection since then.
    victims: u64,
    down: Spans,
    at_end: bool,
    /// When the end came.
    until: Option<Time>,
    /// An attempt was made at all.
    tried: bool,
}

impl Reach {
    pub(crate) fn new(start: Time, measure_from: Time) -> Reach {
        Reach {
            measure_from,
            established: 0,
            in_vain: false,
            none_since: start,
            victims: 0,
            down: Spans::default(),
            at_end: false,
            until: None,
            tried: false,
        }
    }

    /// A connection was established.
    pub(crate) fn opened(&mut self, now: Time) {
        if self.is_down() {
            self.note(now);
        }
        self.in_vain = false;
        self.tried = true;
        self.victims = 0;
        self.established += 1;
    }

    /// An established connection ended.
    pub(crate) fn closed(&mut self, now: Time) {
        self.established = self.established.saturating_sub(1);
        if self.established == 0 {
            self.none_since = now;
            self.in_vain = false;
        }
    }

    /// An attempt to open one failed.
    pub(crate) fn failed(&mut self) {
        self.in_vain = true;
        self.tried = true;
    }

    /// A request failed since the server could not be reached.
    pub(crate) fn victim(&mut self) {
        self.victims += 1;
    }

    /// No connection is open.
    pub(crate) fn is_alone(&self) -> bool {
        self.established == 0
    }

    /// No connection is open, and the last attempt to open one failed.
    pub(crate) fn is_down(&self) -> bool {
        self.established == 0 && self.in_vain
    }

    /// Nothing new is sent from now on: what happens to connections later is no matter.
    pub(crate) fn end(&mut self, now: Time) {
        if self.until.is_some() {
            return;
        }
        if self.is_down() {
            self.note(now);
            self.at_end = self.victims > 0;
        }
        self.until = Some(now);
    }

    fn note(&mut self, now: Time) {
        if self.until.is_none() {
            let from = self.none_since.nanos_since(self.measure_from);
            self.down.push(from, now.nanos_since(self.measure_from));
        }
    }

    /// What was seen until the end; `None` when nothing was tried.
    pub(crate) fn into_down(self) -> Option<Down> {
        let until_ns = self.until?.nanos_since(self.measure_from);
        self.tried.then_some(Down { spans: self.down, until_ns, at_end: self.at_end })
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn at(ms: u64) -> Time {
        Time::ZERO + Duration::from_millis(ms)
    }

    #[test]
    fn down_from_the_last_close_to_the_next_success() {
        let mut reach = Reach::new(at(0), at(0));
        reach.opened(at(1));
        reach.opened(at(1));
        reach.closed(at(1500));
        assert!(!reach.is_down());
        reach.closed(at(1501));
        assert!(!reach.is_down(), "nothing was tried yet");
        reach.failed();
        assert!(reach.is_down());
        reach.opened(at(3001));
        reach.end(at(5000));
        let down = reach.into_down().unwrap();
        assert_eq!((down.spans.total(), down.at_end), (Duration::from_millis(1500), false));
    }

    #[test]
    fn down_at_the_end_needs_a_request_that_suffered() {
        for (victims, at_end) in [(0, false), (1, true)] {
            let mut reach = Reach::new(at(0), at(0));
            reach.opened(at(1));
            reach.closed(at(900));
            reach.failed();
            (0..victims).for_each(|_| reach.victim());
            reach.end(at(1000));
            reach.opened(at(1500));
            let down = reach.into_down().unwrap();
            assert_eq!((down.spans.total(), down.at_end), (Duration::from_millis(100), at_end));
        }
    }

    #[test]
    fn a_failed_attempt_beside_an_open_connection_says_nothing_later() {
        let mut reach = Reach::new(at(0), at(0));
        reach.opened(at(1));
        reach.failed();
        reach.closed(at(10));
        assert!(!reach.is_down());
    }

    #[test]
    fn of_the_warm_up_nothing_is_counted() {
        let mut reach = Reach::new(at(0), at(1000));
        reach.failed();
        reach.opened(at(1200));
        reach.end(at(2000));
        assert_eq!(reach.into_down().unwrap().spans.total(), Duration::from_millis(200));
    }
}
