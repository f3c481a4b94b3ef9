//! How the wire in memory behaves.

use std::time::Duration;

use crate::TransportLimits;

/// Where the wire cuts received bytes into pieces.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cut {
    /// Only where the window requires it.
    Whole,
    /// Into pieces of this many bytes, at least 1.
    Every(usize),
    /// Into pieces of 1 to this many bytes, chosen by the seed. It also splits each claim at random
    /// over several turns.
    Random(usize),
}

/// How the wire in memory behaves. The default has no latency and no faults.
#[derive(Clone, Copy, Debug)]
pub struct MemOptions {
    /// Determines everything that is random.
    pub seed: u64,
    /// One-way delay of everything that travels.
    pub latency: Duration,
    /// Where received bytes are cut.
    pub cut: Cut,
    /// Bytes in flight or unread at the receiver, for each direction of a connection. More bytes
    /// wait at the sender.
    pub window: usize,
    /// Resets a connection once this many bytes were carried to one of its ends.
    pub reset_after_bytes: Option<u64>,
    /// Refuses each n-th connection.
    pub refuse_every: Option<u64>,
    /// Number of local ports: `connect` fails with `PortsExhausted` once this many outgoing
    /// connections are open.
    pub ports: Option<u32>,
    /// Each n-th `send` fails with `NoMemory`, as ENOBUFS would.
    pub fail_send_every: Option<u64>,
    /// The limits that every transport has.
    pub limits: TransportLimits,
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
            limits: TransportLimits::default(),
        }
    }
}
