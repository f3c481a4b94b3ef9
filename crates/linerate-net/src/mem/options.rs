//! How the wire in memory behaves.

use std::time::Duration;

use crate::Limits;

/// Where received bytes are cut into pieces.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cut {
    /// Only where the window makes it necessary.
    Whole,
    /// Into pieces of this many bytes, at least 1.
    Every(usize),
    /// Into pieces of 1 to this many bytes, by the seed; also the claim on them is split at random over several turns.
    Random(usize),
}

/// How the wire in memory behaves. The default is a perfect one without latency.
#[derive(Clone, Copy, Debug)]
pub struct MemOptions {
    /// Everything random follows from it.
    pub seed: u64,
    /// One way, for everything that travels.
    pub latency: Duration,
    /// Where received bytes are cut.
    pub cut: Cut,
    /// Bytes on the way or unread at the receiver, in each direction of a connection; more wait at the sender.
    pub window: usize,
    /// A connection is reset when this many bytes were carried to one of its ends.
    pub reset_after_bytes: Option<u64>,
    /// Each n-th connection asked for is refused.
    pub refuse_every: Option<u64>,
    /// Local ports: so many connections asked for may be open at once, then `connect` fails with `PortsExhausted`.
    pub ports: Option<u32>,
    /// Each n-th `send` fails with `NoMemory`, as if by ENOBUFS.
    pub fail_send_every: Option<u64>,
    /// The limits every transport has.
    pub limits: Limits,
}

impl Default for MemOptions {
    fn default() -> Self {
        MemOptions {
            seed: 1,
            latency: Duration::ZERO,
            cut: Cut::Whole,
            window: 256 << 10,
            reset_after_bytes: None,
            refuse_every: None,
            ports: None,
            fail_send_every: None,
            limits: Limits::default(),
        }
    }
}

/// Splitmix64: small, and the same everywhere.
pub(super) struct Random(u64);

impl Random {
    pub(super) fn new(seed: u64) -> Random {
        Random(seed)
    }

    /// From 1 to `most`.
    pub(super) fn up_to(&mut self, most: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^= z >> 31;
        1 + (z % most.max(1) as u64) as usize
    }
}
