//! What the connections of one stack have in common.

use super::flow::Scoreboard;
use super::keyed::Keys;
use super::options::StackLimits;
use super::pool::Pool;
use super::stats::StackStats;
use super::tuple::Tuple;
use crate::Time;
use crate::outbox::LentTable;

/// Memory of scoreboards that is kept for the next connection. Reason: a short connection then allocates nothing.
const SPARE_LISTS: usize = 4096;

/// Pools, limits, secrets and counters.
pub(crate) struct Shared {
    pub(crate) pool: Pool,
    pub(crate) lent: LentTable,
    pub(crate) limits: StackLimits,
    pub(crate) keys: Keys,
    pub(crate) stats: StackStats,
    spare: Vec<Scoreboard>,
}

impl Shared {
    pub(crate) fn new(limits: StackLimits, seed: Option<u64>) -> Shared {
        Shared {
            pool: Pool::new(limits.buffer_bytes),
            lent: LentTable::default(),
            limits,
            keys: Keys::new(seed),
            stats: StackStats::default(),
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
        ((now.as_nanos() >> 6) as u32).wrapping_add(tuple.hash(self.keys.sequence) as u32)
    }

    /// What is added to the clock of timestamps towards a peer: the same for all connections between two hosts, so that
    /// a later one has later timestamps (RFC 7323 section 7.1).
    pub(crate) fn timestamp_offset(&self, tuple: &Tuple) -> u32 {
        tuple.hash_hosts(self.keys.timestamps) as u32
    }
}

/// The clock of timestamps: milliseconds (RFC 7323 section 5.4 asks for 1 ms to 1 s).
pub(crate) fn timestamp(now: Time, offset: u32) -> u32 {
    ((now.as_nanos() / 1_000_000) as u32).wrapping_add(offset)
}
