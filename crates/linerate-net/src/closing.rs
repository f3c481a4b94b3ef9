//! Connections that the application has closed and that still wait for something. The wait is
//! limited.

use std::collections::VecDeque;

use crate::{Close, Conn, Time, TransportLimits};

/// The event that a closed connection still waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Closing {
    /// Unsent bytes must leave. Then it closes.
    Flush,
    /// Unsent bytes must leave. Then it sends a FIN and waits for the peer's.
    FlushThenLinger,
    /// Unsent bytes must leave. Then it waits for the peer's FIN.
    FlushThenAfterPeer,
    /// Our FIN was sent; the peer's has not come. Bytes received meanwhile are discarded.
    Linger,
    /// The peer's FIN has not come. Ours follows it.
    AfterPeer,
}

impl Closing {
    /// The first event that a connection closed by `how` waits for; `None` if nothing. `flushed`: all bytes
    /// have left. `ended`: the application has read all of the peer's bytes and its FIN. `fin`: the
    /// peer's FIN has been received.
    pub(crate) fn first(how: Close, flushed: bool, ended: bool, fin: bool) -> Option<Closing> {
        match (how, flushed) {
            (Close::Abort, _) | (Close::Now, true) => None,
            (Close::Now, false) => Some(Closing::Flush),
            (Close::AfterPeer, true) if fin || ended => None,
            (Close::AfterPeer, true) => Some(Closing::AfterPeer),
            (Close::AfterPeer, false) => Some(Closing::FlushThenAfterPeer),
            (Close::Lingering, true) if ended => None,
            (Close::Lingering, true) => Some(Closing::Linger),
            (Close::Lingering, false) => Some(Closing::FlushThenLinger),
        }
    }

    /// True while bytes are still unsent.
    pub(crate) fn is_flush(self) -> bool {
        matches!(self, Closing::Flush | Closing::FlushThenLinger | Closing::FlushThenAfterPeer)
    }

    /// The next state once the bytes have left; `None`: the connection ends.
    pub(crate) fn after_flush(self) -> Option<Closing> {
        match self {
            Closing::Flush => None,
            Closing::FlushThenLinger => Some(Closing::Linger),
            Closing::FlushThenAfterPeer => Some(Closing::AfterPeer),
            Closing::Linger | Closing::AfterPeer => Some(self),
        }
    }
}

/// Deadlines of closing connections. Only two timeouts exist, so two queues are sorted by
/// themselves.
#[derive(Default)]
pub(crate) struct ClosingQueue {
    flush: Deadlines,
    peer: Deadlines,
}

/// Deadlines in the order they were added.
#[derive(Default)]
struct Deadlines {
    queue: VecDeque<(Time, Conn)>,
    /// Added since the last search for connections that have ended.
    added: usize,
}

/// Of so many deadlines, one belongs to a connection that has ended and still counts, at most.
/// Reason: looking for them at each close would cost as much as there are.
const ENDED: usize = 8;

impl Deadlines {
    /// Whether more than `most` wait. Forgets deadlines of connections that have ended.
    fn exceed(&mut self, most: usize, is_waiting: impl Fn(Conn) -> bool) -> bool {
        while self.queue.len() > most && self.queue.front().is_some_and(|&(_, conn)| !is_waiting(conn)) {
            self.queue.pop_front();
        }
        if self.queue.len() > most && self.added >= self.queue.len() / ENDED {
            self.queue.retain(|&(_, conn)| is_waiting(conn));
            self.added = 0;
        }
        self.queue.len() > most
    }
}

impl ClosingQueue {
    /// Queues the deadline for `what`. Returns a connection that has to end at once because too
    /// many wait. `waits_for`: what a connection waits for now, if it still does.
    pub(crate) fn push(
        &mut self,
        limits: &TransportLimits,
        now: Time,
        (conn, what): (Conn, Closing),
        waits_for: impl Fn(Conn) -> Option<Closing>,
    ) -> Option<Conn> {
        let is_flush = what.is_flush();
        let (of, time) = if is_flush {
            (&mut self.flush, limits.flush_time)
        } else {
            (&mut self.peer, limits.closing_time)
        };
        of.queue.push_back((now + time, conn));
        of.added += 1;
        let most = limits.closing_connections as usize;
        if of.exceed(most, |conn| waits_for(conn).is_some_and(|w| w.is_flush() == is_flush)) {
            return of.queue.pop_front().map(|(_, conn)| conn);
        }
        None
    }

    /// Takes the connection that has waited longest for nothing but its peer's FIN.
    pub(crate) fn oldest(&mut self, waits_for: impl Fn(Conn) -> Option<Closing>) -> Option<Conn> {
        while let Some((_, conn)) = self.peer.queue.pop_front() {
            if waits_for(conn).is_some_and(|w| !w.is_flush()) {
                return Some(conn);
            }
        }
        None
    }

    /// The first deadline.
    pub(crate) fn next(&self) -> Option<Time> {
        let front = |of: &Deadlines| of.queue.front().map(|&(at, _)| at);
        match (front(&self.flush), front(&self.peer)) {
            (Some(a), Some(b)) => Some(a.min(b)),
            (a, b) => a.or(b),
        }
    }

    /// Takes a connection whose deadline has passed. One that moved from flushing to lingering is
    /// in both queues and its first deadline is void: `waits_for` says what the connection waits
    /// for now.
    pub(crate) fn expired(&mut self, now: Time, waits_for: impl Fn(Conn) -> Option<Closing>) -> Option<Conn> {
        for (of, is_flush) in [(&mut self.flush, true), (&mut self.peer, false)] {
            while let Some(&(at, conn)) = of.queue.front() {
                let stale = waits_for(conn).is_none_or(|w| w.is_flush() != is_flush);
                if at > now && !stale {
                    break;
                }
                of.queue.pop_front();
                if !stale {
                    return Some(conn);
                }
            }
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn conn(slot: u32) -> Conn {
        Conn { slot, generation: 0 }
    }

    #[test]
    fn each_has_its_time() {
        let limits = TransportLimits::default();
        let mut queue = ClosingQueue::default();
        let start = Time::from_nanos(5);
        assert_eq!(queue.push(&limits, start, (conn(1), Closing::Flush), |_| None), None);
        assert_eq!(queue.push(&limits, start, (conn(2), Closing::AfterPeer), |_| None), None);
        assert_eq!(queue.push(&limits, start, (conn(3), Closing::Linger), |_| None), None);
        assert_eq!(queue.next(), Some(start + limits.closing_time));
        let what = |c: Conn| match c.slot {
            1 => Some(Closing::Flush),
            2 => None,
            _ => Some(Closing::Linger),
        };
        assert_eq!(queue.expired(start, what), None);
        assert_eq!(queue.expired(start + limits.closing_time, what), Some(conn(3)), "2 has ended");
        assert_eq!(queue.expired(start + limits.closing_time, what), None);
        assert_eq!(queue.expired(start + limits.flush_time, what), Some(conn(1)));
        assert_eq!(queue.next(), None);
    }

    #[test]
    fn one_that_began_to_linger_is_not_ended_by_its_first_deadline() {
        let limits = TransportLimits::default();
        let mut queue = ClosingQueue::default();
        queue.push(&limits, Time::ZERO, (conn(1), Closing::FlushThenLinger), |_| None);
        let late = Time::ZERO + limits.flush_time;
        queue.push(&limits, late, (conn(1), Closing::Linger), |_| None);
        assert_eq!(queue.expired(late, |_| Some(Closing::Linger)), None);
        assert_eq!(queue.expired(late + limits.closing_time, |_| Some(Closing::Linger)), Some(conn(1)));
    }

    #[test]
    fn beyond_the_limit_the_oldest_goes() {
        let limits = TransportLimits { closing_connections: 2, ..TransportLimits::default() };
        let mut queue = ClosingQueue::default();
        let mut push =
            |n| queue.push(&limits, Time::ZERO, (conn(n), Closing::Linger), |_| Some(Closing::Linger));
        assert_eq!((push(1), push(2), push(3)), (None, None, Some(conn(1))));
        assert_eq!(push(4), Some(conn(2)));
    }

    /// One connection that never ends must not make those that have ended count.
    #[test]
    fn connections_that_have_ended_do_not_count() {
        const LIMIT: u32 = 64;
        let limits = TransportLimits { closing_connections: LIMIT, ..TransportLimits::default() };
        let mut queue = ClosingQueue::default();
        let waits_for = |c: Conn, last| (c.slot == 0 || c.slot == last).then_some(Closing::AfterPeer);
        for n in 0..100 * LIMIT {
            let ended = queue.push(&limits, Time::ZERO, (conn(n), Closing::AfterPeer), |c| waits_for(c, n));
            assert_eq!(ended, None, "at {n}");
            assert!(queue.peer.queue.len() <= LIMIT as usize);
        }
        let last = 100 * LIMIT - 1;
        assert_eq!(queue.oldest(|c| waits_for(c, last)), Some(conn(0)));
        assert_eq!(queue.oldest(|c| waits_for(c, last)), Some(conn(last)));
        assert_eq!(queue.oldest(|c| waits_for(c, last)), None);
    }

    /// Bytes that have not left are not given up for room.
    #[test]
    fn only_connections_that_linger_make_room() {
        let limits = TransportLimits::default();
        let mut queue = ClosingQueue::default();
        queue.push(&limits, Time::ZERO, (conn(1), Closing::Flush), |_| None);
        assert_eq!(queue.oldest(|_| Some(Closing::Flush)), None);
    }
}
