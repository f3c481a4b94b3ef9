//! Every limit of this crate, with its reason.

use std::time::Duration;

/// Maximum life of a server. Reason: a test that hangs leaves nothing behind.
pub const LIFE: Duration = Duration::from_secs(60);

/// Concurrent connections, at most; others are closed at once. Reason: each has a thread.
pub const CONNECTIONS: u64 = 512;

/// Bytes of an incomplete request. Reason: a client may never end a head.
pub const REQUEST_BYTES: usize = 1 << 20;

/// Bytes of a request's fields by HTTP/2. Reason: some programs send cookies and tags, none sends more.
pub const FIELDS_BYTES: usize = 64 << 10;

/// Request numbers that are remembered. Reason: a client that runs for a minute.
pub const NUMBERS: usize = 4 << 20;

/// How often the listener checks for connections, and for the order to stop.
pub const TICK: Duration = Duration::from_micros(200);

/// How long closing the listener may take. Reason: it checks every [`TICK`].
pub const CLOSING: Duration = Duration::from_secs(5);
