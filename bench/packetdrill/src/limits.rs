//! Every limit of this crate, with its reason.

use std::time::Duration;

/// How long a call that would block goes on. Reason: scripts expect what they call to return at once; one that says otherwise is not
/// expressible.
pub(crate) const CALL: Duration = Duration::from_millis(100);

/// How long a packet is waited for. Reason: longer than every timer of a connection, so that nothing comes any more.
pub(crate) const PACKET: Duration = Duration::from_secs(300);

/// Turns that end without news before the stack counts as settled at a time. Reason: an event may need a turn to be told and one for
/// what follows from it.
pub(crate) const IDLE_TURNS: u32 = 2;

/// Turns at one time. Reason: a stack that always has something to say would keep the clock for ever.
pub(crate) const TURNS: u32 = 10_000;

/// Bytes that one call reads or writes. Reason: buffers are made of it.
pub(crate) const BYTES: usize = 1 << 20;
