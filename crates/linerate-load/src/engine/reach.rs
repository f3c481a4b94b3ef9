//! Whether the server can be reached. Sans-IO: told what became of connections, it says from when
//! to when there was none.

use linerate_net::Time;

use crate::outcome::{Down, Spans};

/// The target's reachability, as seen by one core, or one thread of a baseline.
#[derive(Debug)]
pub(crate) struct Reach {
    measure_from: Time,
    established: u32,
    /// The last attempt since the last connection ended was in vain.
    in_vain: bool,
    /// When a connection was last established.
    opened_at: Option<Time>,
    /// Since when no connection has been open.
    none_since: Time,
    /// Requests that have failed since then because there was no connection.
    victims: u64,
    down: Spans,
    at_end: bool,
    /// When the end came.
    until: Option<Time>,
    /// An attempt was made at all.
    tried: bool,
    /// When a response or a connection came last.
    progress: Time,
    /// Times of a second or more without either.
    quiet: Spans,
    /// When attempts failed: from the first to the last of those close to one another.
    failing: Spans,
    failing_now: Option<(Time, Time)>,
}

/// Without a response and a connection for so long, a failed attempt means that the server was out
/// of reach.
const QUIET_NS: u64 = 1_000_000_000;
/// Attempts this close to one another are noted together.
const CLOSE_NS: u64 = 100_000_000;

impl Reach {
    pub(crate) fn new(start: Time, measure_from: Time) -> Reach {
        Reach {
            measure_from,
            established: 0,
            in_vain: false,
            opened_at: None,
            none_since: start,
            victims: 0,
            down: Spans::default(),
            at_end: false,
            until: None,
            tried: false,
            progress: start,
            quiet: Spans::default(),
            failing: Spans::default(),
            failing_now: None,
        }
    }

    /// A response came, or a connection.
    #[inline]
    pub(crate) fn progressed(&mut self, now: Time) {
        if now.nanos_since(self.progress) >= QUIET_NS && self.until.is_none() {
            self.quiet.push(self.since(self.progress), self.since(now));
        }
        self.progress = now;
    }

    fn since(&self, at: Time) -> u64 {
        at.nanos_since(self.measure_from)
    }

    fn note_failing(&mut self) {
        if let Some((from, to)) = self.failing_now.take() {
            self.failing.push(self.since(from), self.since(to) + 1);
        }
    }

    /// A connection was established.
    pub(crate) fn opened(&mut self, now: Time) {
        if self.is_down() {
            self.note(now);
        }
        self.progressed(now);
        self.in_vain = false;
        self.opened_at = Some(now);
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

    /// An attempt to open one, made at `since`, failed. If another one succeeded meanwhile, the server was within reach: it has
    /// held up this one alone.
    pub(crate) fn failed(&mut self, now: Time, since: Time) {
        if self.until.is_none() && now >= self.measure_from {
            match &mut self.failing_now {
                Some((_, to)) if now.nanos_since(*to) < CLOSE_NS => *to = now,
                _ => {
                    self.note_failing();
                    self.failing_now = Some((now, now));
                }
            }
        }
        self.in_vain |= self.opened_at.is_none_or(|opened| opened <= since);
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

    /// No further requests are sent. Later events of connections do not count.
    pub(crate) fn end(&mut self, now: Time) {
        if self.until.is_some() {
            return;
        }
        if self.is_down() {
            self.note(now);
            self.at_end = self.victims > 0;
        }
        self.progressed(now);
        self.note_failing();
        self.until = Some(now);
    }

    fn note(&mut self, now: Time) {
        if self.until.is_none() {
            let from = self.none_since.nanos_since(self.measure_from);
            self.down.push(from, now.nanos_since(self.measure_from));
        }
    }

    /// The result of the whole run; `None` if no connection was attempted.
    pub(crate) fn into_down(self) -> Option<Down> {
        let until_ns = self.until?.nanos_since(self.measure_from);
        self.tried.then_some(Down {
            spans: self.down,
            until_ns,
            at_end: self.at_end,
            quiet: self.quiet,
            failing: self.failing,
        })
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
        reach.failed(at(1502), at(1502));
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
            reach.failed(at(901), at(901));
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
        reach.failed(at(2), at(2));
        reach.closed(at(10));
        assert!(!reach.is_down());
    }

    /// A handshake that the server held up until its time was over, while others succeeded.
    #[test]
    fn an_attempt_that_others_overtook_says_nothing() {
        let mut reach = Reach::new(at(0), at(0));
        reach.opened(at(500));
        reach.closed(at(510));
        reach.failed(at(1000), at(0));
        assert!(!reach.is_down());
        reach.failed(at(1600), at(600));
        assert!(reach.is_down());
    }

    /// Connections that are open and silent do not hide that the server takes no others.
    #[test]
    fn a_second_in_which_every_attempt_failed_and_nothing_came() {
        for (answered, failed, bad) in [(2999, 2500, true), (2999, 1500, false), (2400, 2200, false)] {
            let mut reach = Reach::new(at(0), at(0));
            reach.opened(at(1));
            (1..=19).for_each(|i| reach.progressed(at(100 * i)));
            reach.failed(at(failed), at(failed));
            reach.progressed(at(answered));
            reach.end(at(3000));
            let down = reach.into_down().unwrap();
            assert!(down.spans.total().is_zero());
            assert_eq!(down.had_a_bad_second(), bad, "{answered} {failed}");
        }
    }

    #[test]
    fn of_the_warm_up_nothing_is_counted() {
        let mut reach = Reach::new(at(0), at(1000));
        reach.failed(at(0), at(0));
        reach.opened(at(1200));
        reach.end(at(2000));
        assert_eq!(reach.into_down().unwrap().spans.total(), Duration::from_millis(200));
    }
}
