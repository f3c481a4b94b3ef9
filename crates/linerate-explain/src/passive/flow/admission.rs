//! How many streams a client has open at once, against the number that its server admits
//! (SETTINGS_MAX_CONCURRENT_STREAMS), and whether requests seem to wait in it for one to end.

use crate::passive::observation::StreamLimit;

/// A request that leaves within this time after a stream ended had been waiting, nanoseconds. Reason:
/// as for pools of connections, and several streams end in one turn of a client's loop.
const AT_ONCE_NS: i64 = 5_000_000;

/// The streams of one connection.
#[derive(Debug, Default)]
pub(super) struct Admission {
    limit: Option<u64>,
    open: u64,
    /// Since when as many are open as may be, or were a moment ago.
    run: i64,
    /// When a stream last ended at the limit, or one right after it.
    left: Option<i64>,
    first: Option<i64>,
    last: i64,
    /// Since when the limit is reached, now.
    full: Option<i64>,
    counts: StreamLimit,
    /// Frames were lost, so the number of open streams is unknown.
    is_blind: bool,
}

impl Admission {
    /// The server says how many it admits. A client may have opened more before it knew.
    pub(super) fn limit(&mut self, streams: u32, now: i64) {
        self.limit = Some(u64::from(streams));
        if self.open >= u64::from(streams) {
            self.reached(now);
        }
    }

    /// As many are open as may be.
    fn reached(&mut self, now: i64) {
        self.counts.times += 1;
        self.run = now;
        self.full.get_or_insert(now);
    }

    /// Frames were lost: how many are open is not known any more.
    pub(super) fn lose(&mut self) {
        self.is_blind = true;
    }

    /// A stream was opened. `to_client`: the round trip from the capture to the client.
    pub(super) fn opened(&mut self, now: i64, to_client: i64) {
        self.open += 1;
        self.first.get_or_insert(now);
        self.last = now;
        let Some(limit) = self.limit.filter(|limit| self.open <= *limit) else { return };
        let moment = AT_ONCE_NS + to_client + to_client / 4;
        let follows = self.left.is_some_and(|left| now - left <= moment);
        if follows {
            self.counts.followed += 1;
            self.counts.waited_ns = self.counts.waited_ns.saturating_add((now - self.run).max(0));
        }
        if self.open == limit {
            self.full.get_or_insert(now);
            if !follows {
                self.reached(now);
            }
        }
    }

    /// A stream ended, at both ends.
    pub(super) fn ended(&mut self, now: i64) {
        if self.limit == Some(self.open) || self.left.is_some_and(|left| now - left <= AT_ONCE_NS) {
            self.left = Some(now);
            self.counts.ended += 1;
        }
        self.open = self.open.saturating_sub(1);
        if self.limit.is_some_and(|limit| self.open < limit) {
            let since = self.full.take().map_or(0, |since| now - since);
            self.counts.full_ns = self.counts.full_ns.saturating_add(since.max(0));
        }
        self.last = now;
    }

    /// The server refused a stream.
    pub(super) fn refused(&mut self) {
        self.counts.refused += 1;
    }

    /// The counts, if as many streams were open as the server admits.
    pub(super) fn counts(&self) -> Option<StreamLimit> {
        let limit = self.limit.filter(|_| !self.is_blind && self.counts.times > 0)?;
        let watched_ns = self.first.map_or(0, |first| self.last - first);
        Some(StreamLimit { limit, watched_ns, ..self.counts })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: i64 = 1_000_000;

    #[test]
    fn requests_that_follow_ends() {
        let mut streams = Admission::default();
        streams.limit(2, 0);
        for _ in 0..2 {
            streams.opened(0, 0);
        }
        for turn in 1..4 {
            // Two end in one packet, and two requests follow them.
            for _ in 0..2 {
                streams.ended(turn * 50 * MS);
            }
            for _ in 0..2 {
                streams.opened(turn * 50 * MS + MS, 0);
            }
        }
        let counts = streams.counts().expect("the limit was reached");
        assert_eq!((counts.limit, counts.times, counts.ended, counts.followed), (2, 1, 6, 6));
        assert_eq!(counts.waited_ns, 2 * (51 + 101 + 151) * MS);
        streams.lose();
        assert_eq!(streams.counts(), None);
    }

    /// Requests leave before the server's settings are there.
    #[test]
    fn more_than_admitted_at_first() {
        let mut streams = Admission::default();
        for _ in 0..4 {
            streams.opened(0, 0);
        }
        streams.limit(2, 40 * MS);
        for _ in 0..4 {
            streams.ended(50 * MS);
        }
        for _ in 0..2 {
            streams.opened(51 * MS, 0);
        }
        let counts = streams.counts().expect("the limit was reached");
        assert_eq!((counts.times, counts.ended, counts.followed), (1, 2, 2));
        assert_eq!((counts.waited_ns, counts.full_ns), (22 * MS, 10 * MS));
    }

    #[test]
    fn fewer_than_admitted_wait_for_nothing() {
        let mut streams = Admission::default();
        streams.limit(3, 0);
        for turn in 0..9 {
            for _ in 0..2 {
                streams.opened(turn * 10 * MS, 0);
            }
            for _ in 0..2 {
                streams.ended(turn * 10 * MS + 9 * MS);
            }
        }
        assert_eq!(streams.counts(), None);
    }
}
