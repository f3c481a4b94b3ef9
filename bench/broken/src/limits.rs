//! Every limit of this crate, with its reason.

use std::time::Duration;

/// How long a server lives at most. Reason: a test that hangs leaves nothing behind.
pub const LIFE: Duration = Duration::from_secs(60);

/// Connections at once, at most; others are closed at once. Reason: each has a thread.
pub const CONNECTIONS: u64 = 512;

/// Bytes of a request that may wait for its end. Reason: a client that never ends a head.
pub const REQUEST_BYTES: usize = 1 << 20;

/// Numbers of requests that are remembered. Reason: a client that runs for a minute.
pub const NUMBERS: usize = 4 << 20;

/// How often the listener looks for connections, and for the order to end.
pub const TICK: Duration = Duration::from_micros(200);

/// How long closing the listener may take. Reason: it is looked at every [`TICK`].
pub const CLOSING: Duration = Duration::from_secs(5);
