//! Every limit of this crate, with its reason.

use std::time::Duration;

/// Largest frame: the interfaces' MTU and an Ethernet header. Reason: interfaces without offloads
/// send nothing larger.
pub const FRAME_BYTES: usize = 1500 + 14;

/// Bytes in flight in one direction; more are dropped and counted as `overflow`. Reason: 10 Gbit/s
/// for 100 ms, or 1 Gbit/s for a second. Without a limit the delay line would grow as long as a
/// sender sends.
pub const HELD_BYTES: usize = 128 << 20;

/// Default queue in front of a slow link: some 200 ms at 10 Mbit/s, as in cheap routers.
pub const DEFAULT_QUEUE: usize = 256 << 10;

/// Flows whose segments are counted; a new one replaces the oldest, which then counts from the
/// start. Reason: a table must end.
pub const FLOWS: usize = 1 << 16;

/// Longest delay. Reason: a longer one is a typing mistake, and TCP would have given up.
pub const LONGEST_DELAY: Duration = Duration::from_secs(60);

/// Drop rules in one direction. Reason: each frame is compared with each.
pub const RULES: usize = 64;

/// Lines to this machine at the same time. Reason: each is an interface of the machine, and a
/// thread that runs before all others.
pub const LINES: u8 = 32;

/// Frames read from one side before the other has its turn. Reason: neither direction may starve
/// the other.
pub(crate) const FRAMES_PER_TURN: usize = 64;

/// Frames queued in an interface for the relay. Reason: a relay without a CPU for 10 ms at 1 Gbit/s
/// is behind by 900 frames; the kernel's default of 1000 would cause unintended loss.
pub(crate) const INTERFACE_QUEUE: u32 = 20_000;

/// Buffers kept for the next frames. Reason: an allocation costs more than the frame, and keeping
/// all buffers of a burst would keep its memory.
pub(crate) const SPARE_BUFFERS: usize = 4096;

/// How long a process may take to end when the box is dropped. Reason: it was killed; longer means
/// that it hangs.
pub(crate) const ENDING: Duration = Duration::from_secs(5);
