//! State that the connections of one stack share.

use std::cell::Cell;

use super::flow::Scoreboard;
use super::options::{StackLimits, UseOfEcn};
use super::pool::BlockPool;
use super::stats::StackStats;
use super::tuple::Tuple;
use super::wire::Addr;
use crate::keyed::Keys;
use crate::outbox::LentTable;
use crate::{HostSecret, Time};

/// Scoreboards whose memory is kept for later connections. Reason: a short connection then
/// allocates nothing.
const SPARE_LISTS: usize = 4096;

/// Pools, limits, secrets and counters.
pub(crate) struct SharedPools {
    pub(crate) pool: BlockPool,
    pub(crate) lent: LentTable,
    pub(crate) limits: StackLimits,
    pub(crate) ecn: UseOfEcn,
    pub(crate) keys: Keys,
    pub(crate) stats: StackStats,
    /// Payload of the largest segment that the link's MTU admits.
    pub(crate) largest_segment: u16,
    /// Bytes came out of order, or found no room, so the list of holders must be updated.
    pub(crate) early_news: bool,
    spare: Vec<Scoreboard>,
    /// How far the clock that peers remember is ahead of the link's.
    ahead_ns: u64,
    /// The hosts whose offset of timestamps was computed last, and the offset. Reason: a client's
    /// connections lead to few hosts, and a server computes it twice for each.
    last_offset: Cell<Option<(Addr, Addr, u32)>>,
}

impl SharedPools {
    pub(crate) fn new(
        limits: StackLimits,
        ecn: UseOfEcn,
        seed: Option<u64>,
        host: Option<HostSecret>,
    ) -> SharedPools {
        SharedPools {
            pool: BlockPool::new(limits.buffer_bytes),
            lent: LentTable::default(),
            limits,
            ecn,
            keys: Keys::new(seed, host.map(|host| host.key)),
            ahead_ns: host.map_or(0, |host| host.ahead_ns),
            stats: StackStats::default(),
            largest_segment: u16::MAX,
            early_news: false,
            spare: Vec::new(),
            last_offset: Cell::new(None),
        }
    }

    /// An empty scoreboard, with spare memory if there is some.
    pub(crate) fn scoreboard(&mut self) -> Scoreboard {
        self.spare.pop().unwrap_or_default()
    }

    /// Returns an empty scoreboard.
    pub(crate) fn give_back(&mut self, list: Scoreboard) {
        debug_assert!(list.is_empty());
        if list.capacity() > 0 && list.capacity() <= 64 && self.spare.len() < SPARE_LISTS {
            self.spare.push(list);
        }
    }

    /// The initial sequence number of a connection (RFC 6528): a clock plus a keyed hash of the
    /// 4-tuple. The clock ticks every 64 ns, so that reused 4-tuples get higher numbers at any rate
    /// of short connections.
    pub(crate) fn first_seq(&self, now: Time, tuple: &Tuple) -> u32 {
        let ticks = now.as_nanos().wrapping_add(self.ahead_ns) >> 6;
        (ticks as u32).wrapping_add(tuple.hash(self.keys.sequence) as u32)
    }

    /// Offset added to the timestamp clock towards a peer. It is the same for all connections
    /// between two hosts, so that a later one has later timestamps (RFC 7323 sections 5.4 and 7.1).
    pub(crate) fn timestamp_offset(&self, tuple: &Tuple) -> u32 {
        if let Some((local, remote, offset)) = self.last_offset.get()
            && (local, remote) == (tuple.local, tuple.remote)
        {
            return offset;
        }
        let hash = tuple.hash_hosts(self.keys.timestamps) as u32;
        let offset = ((self.ahead_ns / 1_000_000) as u32).wrapping_add(hash);
        self.last_offset.set(Some((tuple.local, tuple.remote, offset)));
        offset
    }
}

/// The timestamp clock, in milliseconds (RFC 7323 section 5.4 asks for 1 ms to 1 s).
pub(crate) fn timestamp(now: Time, offset: u32) -> u32 {
    ((now.as_nanos() / 1_000_000) as u32).wrapping_add(offset)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A process that starts later, on a clock that started later, continues where the other ended;
    /// without the secret it does not.
    #[test]
    fn numbers_of_a_later_process_are_higher() {
        let tuple = Tuple { local_port: 5, remote_port: 80, ..Tuple::default() };
        let process =
            |host: Option<HostSecret>| SharedPools::new(StackLimits::default(), UseOfEcn::Off, None, host);
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
            // The machine slept for 50 s in between, which the link's clock did not count.
            monotonic += u32::from(ahead_of(Some(secret(57)), Some(secret(7))));
            by_chance += u32::from(ahead_of(None, None));
        }
        assert_eq!((monotonic, by_chance), (64, 0));
    }
}
