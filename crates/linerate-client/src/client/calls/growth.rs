//! How many connections over HTTP/1.1 a client needs: few while responses are quick, up to one for each call where they
//! are slow. It reads no clock.

use std::time::Duration;

use crate::client::limits::{FEW_PIPES, WORTH_A_PIPE};

/// How quick a server is, as its responses tell.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Pace {
    /// The way there and back: the quickest handshake.
    way: Option<Duration>,
    /// From when a response is the next on its connection to its first byte, without the way; smoothed, nanoseconds, as
    /// if few connections shared the server.
    service_ns: u64,
}

/// Calls of now, and connections.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Demand {
    /// Calls that wait or are in flight and may share a connection.
    pub(super) usual: u32,
    /// Those that must be alone on one.
    pub(super) alone: u32,
    /// Connections whose next response is slow.
    pub(super) stalled: u32,
}

impl Pace {
    /// A handshake took so long.
    pub(super) fn handshake(&mut self, took: Duration) {
        self.way = Some(self.way.map_or(took, |way| way.min(took)));
    }

    pub(super) fn way(&self) -> Duration {
        self.way.unwrap_or_default()
    }

    /// Some responses took so long each, while so many connections were in use.
    pub(super) fn took(&mut self, service: Duration, in_use: u32) {
        // A server that does one thing at a time takes longer on each of many connections. More of them do not help.
        let few = u64::from(FEW_PIPES);
        let service = service.as_nanos() as u64 * few / u64::from(in_use).max(few);
        self.service_ns = self.service_ns - self.service_ns / 8 + service / 8;
    }

    /// A call that would wait longer behind others is worth a connection of its own.
    pub(super) fn worth(&self) -> Duration {
        WORTH_A_PIPE + self.way()
    }

    /// Whether the next response on a connection is slow, if it has been waited for for so long.
    pub(super) fn is_stalled(&self, waited: Duration) -> bool {
        waited > self.worth() + self.way()
    }

    /// Requests on a connection at once, `most` of them at most.
    pub(super) fn depth(&self, most: u32) -> u32 {
        let fit = self.worth().as_nanos() as u64 / (2 * self.service_ns).max(1);
        u32::try_from(fit).unwrap_or(u32::MAX).clamp(1, most.max(1))
    }

    /// Calls that must be alone, one after the other on a connection, before one more connection is worth it.
    fn depth_alone(&self) -> u32 {
        let each = self.way().as_nanos() as u64 + self.service_ns;
        u32::try_from(self.worth().as_nanos() as u64 / each.max(1)).unwrap_or(u32::MAX).max(1)
    }

    /// Connections wanted, `most` of them at most, with `depth` requests on each.
    pub(super) fn wanted(&self, demand: Demand, depth: u32, most: u32) -> u32 {
        let by_pace = self.depth(depth);
        let usual = if by_pace < depth { demand.usual.div_ceil(by_pace) } else { 0 };
        let alone = demand.alone.div_ceil(self.depth_alone());
        // Each look that finds slow ones doubles them at most: they may be quick again in a moment.
        let beside_slow = if demand.stalled > 0 { FEW_PIPES + 2 * demand.stalled } else { 0 };
        (usual + alone).max(beside_slow).max(FEW_PIPES).min(most)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    fn pace(way: Duration, service: Duration, in_use: u32) -> Pace {
        let mut pace = Pace::default();
        pace.handshake(way);
        (0..100).for_each(|_| pace.took(service, in_use));
        pace
    }

    fn wanted(pace: Pace, usual: u32, alone: u32) -> u32 {
        pace.wanted(Demand { usual, alone, stalled: 0 }, 64, 128)
    }

    #[test]
    fn quick_responses_share_few_connections_however_far_the_server_is() {
        for way in [MS / 20, 20 * MS, 200 * MS] {
            let pace = pace(way, MS / 50, 4);
            assert_eq!((wanted(pace, 100, 0), pace.depth(64)), (FEW_PIPES, 64), "{way:?}");
        }
        assert_eq!(wanted(Pace::default(), 10_000, 0), FEW_PIPES);
    }

    #[test]
    fn slow_responses_get_a_connection_each_and_keep_it() {
        for in_use in [4, 50, 100, 128] {
            let pace = pace(MS / 20, 200 * MS, in_use);
            assert_eq!((wanted(pace, 100, 0), pace.depth(64)), (100, 1), "{in_use}");
            assert_eq!(wanted(pace, 1000, 0), 128);
        }
    }

    /// A server that does one thing at a time for 0.1 ms.
    #[test]
    fn a_busy_server_is_not_asked_for_more_and_more_connections() {
        let mut in_use = 4;
        for _ in 0..10 {
            in_use = wanted(pace(MS / 20, MS / 10 * in_use, in_use), 100, 0);
        }
        assert!(in_use <= 32, "{in_use}");
    }

    #[test]
    fn calls_that_must_be_alone_get_connections_by_the_way() {
        assert_eq!(wanted(pace(MS / 20, MS / 50, 4), 0, 100), FEW_PIPES);
        assert_eq!(wanted(pace(20 * MS, MS / 50, 4), 0, 100), 100);
    }

    #[test]
    fn before_the_first_response_the_wait_for_it_counts() {
        let mut pace = Pace::default();
        pace.handshake(MS);
        assert!(!pace.is_stalled(6 * MS) && pace.is_stalled(8 * MS));
        let mut open = FEW_PIPES;
        let mut looks = 0;
        while open < 100 {
            open = pace.wanted(Demand { usual: 100, alone: 0, stalled: open }, 64, 128);
            looks += 1;
        }
        assert!(looks <= 5, "{looks}");
    }
}
