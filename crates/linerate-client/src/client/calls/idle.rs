//! How long a server keeps an idle connection, so that the client closes it first: a request that meets a close has no
//! response, and one that is not idempotent may not be sent again. It reads no clock.

use std::time::Duration;

use linerate_net::Time;

use crate::client::limits::{IDLE_LEARNT_LEAST, IDLE_MARGIN_LEAST, IDLE_MARGIN_MOST};

/// The limit of a server, as it announces it and as it closes connections.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct IdleLimit {
    /// By the field Keep-Alive.
    announced: Option<Duration>,
    /// Twice in a row idle connections were closed after about this time.
    learnt: Option<Duration>,
    /// The last close of one: after how long, and when.
    last: Option<(Duration, Time)>,
}

impl IdleLimit {
    pub(super) fn announced(&mut self, limit: Duration) {
        if !limit.is_zero() {
            self.announced = Some(limit);
        }
    }

    /// The server closed a connection that had been idle for so long.
    pub(super) fn closed_after(&mut self, idle: Duration, now: Time) {
        if idle < IDLE_LEARNT_LEAST {
            return;
        }
        let before = self.last.replace((idle, now));
        let Some((first, at)) = before else { return };
        // A server that ends closes all connections at once, whatever its limit.
        let is_apart = now - at >= idle / 2;
        if is_apart && first.abs_diff(idle) <= idle / 8 {
            self.learnt = Some(first.min(idle));
        }
    }

    /// How long a connection may have been idle and still take a request. `alone`: one that is not idempotent, for
    /// which a single close is warning enough.
    pub(super) fn usable(&self, alone: bool, way: Duration, most: Duration) -> Duration {
        let warned = self.last.filter(|_| alone).map(|(idle, _)| idle);
        let limits = [self.announced, self.learnt, warned].into_iter().flatten();
        let Some(limit) = limits.min() else { return most };
        let margin = (limit / 8).clamp(IDLE_MARGIN_LEAST, IDLE_MARGIN_MOST) + way;
        limit.saturating_sub(margin).min(most)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    fn usable(limit: &IdleLimit, alone: bool) -> Duration {
        limit.usable(alone, SECOND / 100, 50 * SECOND)
    }

    #[test]
    fn what_is_announced_holds_at_once() {
        let mut limit = IdleLimit::default();
        assert_eq!(usable(&limit, true), 50 * SECOND);
        limit.announced(5 * SECOND);
        assert!(usable(&limit, false) < 5 * SECOND - SECOND / 2 && usable(&limit, false) > 4 * SECOND);
    }

    #[test]
    fn two_equal_closes_teach_a_limit_and_one_warns_of_it() {
        let (mut limit, at) = (IdleLimit::default(), |seconds| Time::ZERO + SECOND * seconds);
        limit.closed_after(2 * SECOND, at(10));
        assert_eq!(usable(&limit, false), 50 * SECOND);
        assert!(usable(&limit, true) < 2 * SECOND);
        limit.closed_after(2 * SECOND + SECOND / 10, at(20));
        assert!(usable(&limit, false) < 2 * SECOND && usable(&limit, false) > SECOND);
    }

    #[test]
    fn a_server_that_ends_teaches_nothing() {
        let (mut limit, at) = (IdleLimit::default(), Time::ZERO + SECOND * 100);
        [3 * SECOND, 3 * SECOND, 9 * SECOND].into_iter().for_each(|idle| limit.closed_after(idle, at));
        limit.closed_after(SECOND / 20, at + SECOND * 9);
        assert_eq!(usable(&limit, false), 50 * SECOND);
    }
}
