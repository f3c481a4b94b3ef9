//! Connections that the application has closed and that still wait for something. The wait is
//! limited.

use std::collections::VecDeque;

use crate::{Close, Conn, Limits, Time};

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
    flush: VecDeque<(Time, Conn)>,
    peer: VecDeque<(Time, Conn)>,
}

impl ClosingQueue {
    /// Queues the deadline for `what`. Returns a connection that has to end at once because too
    /// many wait. Connections that have ended may still be queued: the caller recognizes them by
    /// the generation.
    pub(crate) fn push(&mut self, limits: &Limits, now: Time, conn: Conn, what: Closing) -> Option<Conn> {
        let (queue, time) = if what.is_flush() {
            (&mut self.flush, limits.flush_time)
        } else {
            (&mut self.peer, limits.closing_time)
        };
        queue.push_back((now + time, conn));
        if queue.len() > limits.closing_connections as usize {
            return queue.pop_front().map(|(_, conn)| conn);
        }
        None
    }

    /// The first deadline.
    pub(crate) fn next(&self) -> Option<Time> {
        let front = |q: &VecDeque<(Time, Conn)>| q.front().map(|&(at, _)| at);
        match (front(&self.flush), front(&self.peer)) {
            (Some(a), Some(b)) => Some(a.min(b)),
            (a, b) => a.or(b),
        }
    }

    /// Takes a connection whose deadline has passed. One that moved from flushing to lingering is
    /// in both queues and its first deadline is void: `what` says what the connection waits for
    /// now.
    pub(crate) fn expired(&mut self, now: Time, what: impl Fn(Conn) -> Option<Closing>) -> Option<Conn> {
        for (queue, is_flush) in [(&mut self.flush, true), (&mut self.peer, false)] {
            while let Some(&(at, conn)) = queue.front() {
                let stale = what(conn).is_none_or(|w| w.is_flush() != is_flush);
                if at > now && !stale {
                    break;
                }
                queue.pop_front();
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
        let limits = Limits::default();
        let mut queue = ClosingQueue::default();
        let start = Time::from_nanos(5);
        assert_eq!(queue.push(&limits, start, conn(1), Closing::Flush), None);
        assert_eq!(queue.push(&limits, start, conn(2), Closing::AfterPeer), None);
        assert_eq!(queue.push(&limits, start, conn(3), Closing::Linger), None);
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
        let limits = Limits::default();
        let mut queue = ClosingQueue::default();
        queue.push(&limits, Time::ZERO, conn(1), Closing::FlushThenLinger);
        let late = Time::ZERO + limits.flush_time;
        queue.push(&limits, late, conn(1), Closing::Linger);
        assert_eq!(queue.expired(late, |_| Some(Closing::Linger)), None);
        assert_eq!(queue.expired(late + limits.closing_time, |_| Some(Closing::Linger)), Some(conn(1)));
    }

    #[test]
    fn beyond_the_limit_the_oldest_goes() {
        let limits = Limits { closing_connections: 2, ..Limits::default() };
        let mut queue = ClosingQueue::default();
        assert_eq!(queue.push(&limits, Time::ZERO, conn(1), Closing::Linger), None);
        assert_eq!(queue.push(&limits, Time::ZERO, conn(2), Closing::Linger), None);
        assert_eq!(queue.push(&limits, Time::ZERO, conn(3), Closing::Linger), Some(conn(1)));
    }
}
