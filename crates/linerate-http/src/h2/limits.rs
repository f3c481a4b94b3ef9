//! Every limit of HTTP/2, with its reason.

/// Bytes of a frame that we take. Reason: it is the least that every endpoint takes (RFC 9113,
/// section 6.5.2), and a frame that is not DATA is stored until it is whole.
pub(super) const FRAME_BYTES: u32 = 1 << 14;

/// Bytes of a frame of ours, even if the server takes larger ones. Reason: other streams wait for
/// its end.
pub(super) const OWN_FRAME_BYTES: u32 = 1 << 16;

/// Bytes of a field block that are stored, and of the fields it decodes to. Reason: a block must not
/// fill our memory, and neither must a few bytes that decode to millions. It is what HTTP/1.1 admits
/// for a head. A longer block costs its stream alone: its further bytes are dropped.
pub(super) const BLOCK_BYTES: usize = 64 << 10;

/// Frames of a field block, dropped or not. Reason: nothing else on the connection is read before
/// the block ends, and empty CONTINUATION frames cost no bytes of it (CVE-2024-27316).
pub(super) const BLOCK_FRAMES: u32 = 64;

/// Bytes of a field block in all its frames, dropped or not. Reason: an endless row of CONTINUATION
/// frames must end (CVE-2024-27316). The limits of frames imply it, so that nothing counts it.
const BLOCK_BYTES_SENT: u64 = 1 << 20;
const _: () = assert!(BLOCK_FRAMES as u64 * FRAME_BYTES as u64 <= BLOCK_BYTES_SENT);

/// Fields in a field block. Reason: thousands of tiny fields are an attack, not a response.
pub(super) const FIELDS: usize = 256;

/// Interim (1xx) responses before the final one. Reason: as in HTTP/1.1.
pub(super) const INTERIM: u8 = 16;

/// Frames in a row that bring no response further: settings, pings, priorities, frames on closed
/// streams. Reason: each costs work and some cost a reply. Real servers send a few between two
/// responses.
pub(super) const IDLE_FRAMES: u32 = 10_000;

/// Streams that we reset and whose late frames are told from surplus ones. Reason: what left the server before
/// our frame arrived is no fault of its. Beyond that, all older streams are forgiven.
pub(super) const RESETS_KNOWN: usize = 1024;

/// Surplus responses that may be coming at once. Reason: a server that sends more of them counts as one that
/// sends each in several pieces.
pub(super) const SURPLUS_OPEN: usize = 64;

/// Field blocks in a [`BlockCache`](super::BlockCache). Reason: a run has few kinds of responses.
/// Each costs one failed comparison before a new block is decoded.
pub(super) const BLOCKS_HELD: usize = 8;

/// Streams that are opened at once before the server's settings say how many it admits. Reason: RFC
/// 9113, section 6.5.2 recommends to admit at least that many.
pub(super) const FIRST_STREAMS: u32 = 100;

/// The last stream number of a client.
pub(super) const LAST_STREAM: u32 = (1 << 31) - 1;

/// The default window of a connection and of each stream.
pub(super) const FIRST_WINDOW: u32 = 65_535;

/// The largest window.
pub(super) const LARGEST_WINDOW: u32 = (1 << 31) - 1;

/// The window that a client gives each stream and the connection unless its options say otherwise,
/// bytes. Reason: it fills 10 Gbit/s at a round trip of 13 ms, and costs no memory, because what
/// arrives is read at once.
pub const WINDOW: u32 = 16 << 20;
