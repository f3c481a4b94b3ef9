//! Every limit of this crate, with its reason.

/// Limits of a transport instance (one per core).
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Connections open at once. Reason: tables are sized by it and descriptors are finite.
    pub connections: u32,
    /// Bytes that wait to leave on one connection before `send` fails with `NoMemory`. Reason: a peer that does not read
    /// must not grow our memory.
    pub unsent_bytes: usize,
    /// Size of a receive buffer. Reason: 64 KiB fits L2 beside the working set and empties a socket in few calls.
    pub receive_bytes: usize,
    /// Reads on one connection in one turn before others have theirs. Reason: fairness.
    pub reads_per_turn: u32,
}

impl Default for Limits {
    fn default() -> Self {
        Limits { connections: 1 << 20, unsent_bytes: 64 << 20, receive_bytes: 64 << 10, reads_per_turn: 16 }
    }
}
