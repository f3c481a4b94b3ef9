//! Every limit of this crate, with its reason.

use std::time::Duration;

/// How long a call that would block continues. Reason: scripts expect their calls to return at
/// once; a script that blocks longer cannot be played.
pub(crate) const CALL: Duration = Duration::from_millis(100);

/// How long to wait for a packet. Reason: longer than every timer of a connection, so that none can
/// come later.
pub(crate) const PACKET: Duration = Duration::from_secs(300);

/// Turns without events before the stack counts as settled at a time. Reason: an event may need one
/// turn to be reported and one for its consequences.
pub(crate) const IDLE_TURNS: u32 = 2;

/// Turns at one time. Reason: a stack that always has events would stop the clock.
pub(crate) const TURNS: u32 = 10_000;

/// Bytes that one call reads or writes. Reason: it is the size of buffers.
pub(crate) const BYTES: usize = 1 << 20;
