//! What the connections of one stack have in common.

use super::flow::Scoreboard;
use super::keyed::Keys;
use super::options::StackLimits;
use super::pool::Pool;
use super::stats::StackStats;
use super::tuple::Tuple;
use crate::outbox::LentTable;
use crate::{HostSecret, Time};

/// Memory of scoreboards that is kept for the next connection. Reason: a short connection then allocates nothing.
const SPARE_LISTS: usize = 4096;

/// Pools, limits, secrets and counters.
pub(crate) struct Shared {
    pub(crate) pool: Pool,
    pub(crate) lent: LentTable,
    pub(crate) limits: StackLimits,
    pub(crate) keys: Keys,
    pub(crate) stats: StackStats,
    /// Bytes came out of order, or found no room: it is to be looked at who keeps how many.
    pub(crate) early_news: bool,
    spare: Vec<Scoreboard>,
    /// What the clock that peers remember is ahead of the link's.
    ahead_ns: u64,
}

impl Shared {
    pub(crate) fn new(limits: StackLimits, seed: Option<u64>, host: Option<HostSecret>) -> Shared {
        Shared {
            pool: Pool::new(limits.buffer_bytes),
            lent: LentTable::default(),
            limits,
            keys: Keys::new(seed, host.map(|host| host.key)),
            ahead_ns: host.map_or(0, |host| host.ahead_ns),
            stats: StackStats::default(),
            early_news: false,
            spare: Vec::new(),
        }
    }

    /// An empty scoreboard, with memory where there is some to spare.
    pub(crate) fn scoreboard(&mut self) -> Scoreboard {
        self.spare.pop().unwrap_or_default()
    }

    /// Takes an empty scoreboard back.
    pub(crate) fn give_back(&mut self, list: Scoreboard) {
        debug_assert!(list.is_empty());
        if list.capacity() > 0 && list.capacity() <= 64 && self.spare.len() < SPARE_LISTS {
            self.spare.push(list);
        }
    }

    /// The first sequence number of a connection (RFC 6528): a clock, and a secret function of who talks to whom. The clock
    /// ticks every 64 ns, so that 4-tuples are reused by higher numbers at any rate that short connections reach.
    pub(crate) fn first_seq(&self, now: Time, tuple: &Tuple) -> u32 {
        let ticks = now.as_nanos().wrapping_add(self.ahead_ns) >> 6;
        (ticks as u32).wrapping_add(tuple.hash(self.keys.sequence) as u32)
    }

    /// What is added to the clock of timestamps towards a peer: the same for all connections between two hosts, so that
    /// a later one has later timestamps (RFC 7323 sections 5.4 and 7.1).
    pub(crate) fn timestamp_offset(&self, tuple: &Tuple) -> u32 {
        ((self.ahead_ns / 1_000_000) as u32).wrapping_add(tuple.hash_hosts(self.keys.timestamps) as u32)
    }
}

/// The clock of timestamps: milliseconds (RFC 7323 section 5.4 asks for 1 ms to 1 s).
pub(crate) fn timestamp(now: Time, offset: u32) -> u32 {
    ((now.as_nanos() / 1_000_000) as u32).wrapping_add(offset)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A process that begins later, by a clock that began later, goes on where the other ended; without the secret it does not.
    #[test]
    fn numbers_of_a_later_process_are_higher() {
        let tuple = Tuple { local_port: 5, remote_port: 80, ..Tuple::default() };
        let process = |host: Option<HostSecret>| Shared::new(StackLimits::default(), None, host);
        let secret = |ahead: u64| HostSecret::for_tests([1, 2], ahead * 1_000_000_000);
        let (mut monotonic, mut by_chance) = (0, 0);
        for _ in 0..64 {
            let ahead_of = |later: Option<HostSecret>, earlier: Option<HostSecret>| {
                let (first, second) = (process(earlier), process(later));
                let (then, now) = (Time::from_nanos(100_000_000_000), Time::from_nanos(60_000_000_000));
                let numbers = second.first_seq(now, &tuple).wrapping_sub(first.first_seq(then, &tuple));
                let stamps = timestamp(now, second.timestamp_offset(&tuple))
                    .wrapping_sub(timestamp(then, first.timestamp_offset(&tuple)));
                (numbers == 10_000_000_000u64.wrapping_shr(6) as u32) && stamps == 10_000
            };
            // The machine slept for 50 s between them, in which the link's clock lost as much.
            monotonic += u32::from(ahead_of(Some(secret(57)), Some(secret(7))));
            by_chance += u32::from(ahead_of(None, None));
        }
        assert_eq!((monotonic, by_chance), (64, 0));
    }
}
