//! Every limit of this crate, with its reason.

use std::time::Duration;

/// Largest frame that is carried: the interfaces' MTU and an Ethernet header. Reason: nothing larger comes from an
/// interface without offloads.
pub const FRAME_BYTES: usize = 1500 + 14;

/// Bytes that are under way in one direction; what comes on top is dropped and counted as `overflow`. Reason: 10 Gbit/s
/// for 100 ms, or 1 Gbit/s for a second: beyond it the delay line would grow as long as a sender sends.
pub const HELD_BYTES: usize = 128 << 20;

/// Queue in front of a slow link where none is asked for: some 200 ms at 10 Mbit/s, as cheap routers have it.
pub const DEFAULT_QUEUE: usize = 256 << 10;

/// Flows whose segments are counted; beyond it the oldest is forgotten and counts from the start. Reason: a table must end.
pub const FLOWS: usize = 1 << 16;

/// Longest delay. Reason: one that is longer was mistyped, and TCP would have given up.
pub const LONGEST_DELAY: Duration = Duration::from_secs(60);

/// Drop rules in one direction. Reason: each frame is held against each.
pub const RULES: usize = 64;

/// Frames read from one side before the other one has its turn. Reason: neither direction may starve the other.
pub(crate) const FRAMES_PER_TURN: usize = 64;

/// Frames that wait in an interface for the relay. Reason: a relay that does not get a processor for 10 ms at 1 Gbit/s is
/// behind by 900 frames; the kernel's default of 1000 would lose what no one asked to lose.
pub(crate) const INTERFACE_QUEUE: u32 = 20_000;

/// Buffers kept for the next frames. Reason: allocating anew per frame costs more than the frame, and keeping all of a
/// burst would keep its memory.
pub(crate) const SPARE_BUFFERS: usize = 4096;

/// How long a process may take to end when the box goes. Reason: it was killed; more than that is a hang.
pub(crate) const ENDING: Duration = Duration::from_secs(5);
