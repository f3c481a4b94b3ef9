//! Every limit of this crate, with its reason.

use std::time::Duration;

/// Limits of a transport instance (one per core).
#[derive(Clone, Copy, Debug)]
pub struct TransportLimits {
    /// Connections open at once, those that are closing included. Reason: tables are sized by it and descriptors are
    /// finite.
    pub connections: u32,
    /// Bytes that wait to leave on one connection before `send` fails with `NoMemory`. Reason: a peer that does not read
    /// must not grow our memory.
    pub unsent_bytes: usize,
    /// Size of a receive buffer. Reason: 64 KiB fits L2 beside the working set and empties a socket in few calls.
    pub receive_bytes: usize,
    /// Receive buffers the kernel may fill before we look (io_uring; a power of two up to 32768). Reason: they are memory;
    /// most of them are never touched.
    pub receive_buffers: u16,
    /// Reads on one connection in one turn before others have theirs. Reason: fairness.
    pub reads_per_turn: u32,
    /// Connections accepted on one listener in one turn. Reason: those that are open have their turn too.
    pub accepts_per_turn: u32,
    /// Things the kernel tells in one turn. Reason: what comes first must not get old while the rest is handled.
    pub events_per_turn: u32,
    /// How long a connection closed with `AfterPeer` or `Lingering` waits for the peer's FIN. Reason: it holds a slot and a
    /// descriptor that the application no longer sees.
    pub closing_time: Duration,
    /// Bytes of the peer that such a connection discards; then it is not read until that time is over, or the peer is
    /// gone. Reason: a peer that sends for ever must not take our time; one that sends less sees no reset while it reads
    /// our last bytes.
    pub closing_bytes: u64,
    /// How long bytes handed over before the close may take to leave. Reason: as above, but a last response on a slow
    /// wire deserves more patience.
    pub flush_time: Duration,
    /// Connections that wait in either of these ways; beyond it the oldest is closed. Reason: as above.
    pub closing_connections: u32,
}

impl Default for TransportLimits {
    fn default() -> Self {
        TransportLimits {
            connections: 1 << 20,
            unsent_bytes: 64 << 20,
            receive_bytes: 64 << 10,
            receive_buffers: 1024,
            reads_per_turn: 16,
            accepts_per_turn: 64,
            events_per_turn: 256,
            closing_time: Duration::from_secs(1),
            closing_bytes: 64 << 20,
            flush_time: Duration::from_secs(10),
            closing_connections: 1 << 14,
        }
    }
}

/// How long nothing is accepted after a descriptor, a slot or memory was lacking for it. Reason: the backlog keeps what
/// waits, and asking at once again would spin.
pub(crate) const ACCEPT_PAUSE: Duration = Duration::from_millis(10);

/// Descriptors that an instance of epoll has room made for when it starts. Reason: making it later holds up a turn for ten
/// milliseconds at each power of two; this many take 128 KiB of the kernel's memory for the whole process.
pub(crate) const DESCRIPTORS_AT_FIRST: u32 = 1 << 14;

/// Descriptors that no connection is accepted with (epoll): an eighth of `ulimit -n`, at most this many. Reason: a
/// request for a file needs one more, and so do a log that is opened anew and the reading of `/proc`. Connections must
/// not take the last. io_uring keeps connections in a table of its own.
pub(crate) const DESCRIPTORS_RESERVED: u64 = 1024;

/// A first send up to this size leaves at once without TCP_NODELAY. Reason: it fits one segment even at the smallest MSS
/// (RFC 9293: 536 bytes, less options), and the Nagle algorithm only holds back what follows unacknowledged data.
pub(crate) const ONE_SEGMENT: usize = 500;

/// Last bytes of a connection that leave without a look at what comes meanwhile (io_uring). Reason:
/// ten segments, which need no word from the peer (RFC 6928).
pub(crate) const LAST_BYTES: usize = 14 << 10;

/// Sends after which a connection's descriptor is registered with the ring. Reason: registering costs about as much as
/// it saves in this many.
pub(crate) const SENDS_BEFORE_DIRECT: u32 = 32;

/// How long a Unix socket whose accept queue is full is left alone. Reason: a server that is busy accepts some within it; asking more
/// often would take its core from it.
pub(crate) const DIAL_PAUSE: Duration = Duration::from_millis(1);

/// Connections beyond the limit that are closed and wait for the kernel to let go of them (io_uring). Reason: a
/// connection that lingers gives its place to a new one at once, and a loop opens fewer in a turn.
pub(crate) const DYING_BEYOND: u32 = 1024;

/// Extension headers of an IPv6 packet, at most (user-space TCP). Reason: RFC 8200 section 4.1 knows seven places for them,
/// and the XDP program has code for each. Longer chains are dropped, as RFC 8504 section 5.3 allows.
pub(crate) const EXTENSION_HEADERS: usize = 8;

/// Connections asked for at once on a listener (io_uring). Reason: each is a request of its own since it brings the
/// peer's address; one turn accepts no more.
pub(crate) const ACCEPTS_IN_FLIGHT: usize = 32;

/// Direct descriptors of one ring, at most (io_uring). Reason: the kernel's table is memory; connections we ask for beyond
/// it have ordinary ones.
pub(crate) const DIRECT_DESCRIPTORS: u32 = 1 << 16;

/// Sockets that are taken over from a service manager. Reason: each thread accepts from each of them.
pub(crate) const INHERITED: u32 = 64;

/// Size of the buffers that files are read into where a transport cannot send them by itself. Reason: as much as is handed over
/// at a time; it fits L2.
pub(crate) const FILE_BUFFER: usize = 128 << 10;

/// Such buffers that a thread keeps when they have left. Reason: fresh ones cost page faults; 8 MiB are enough for the downloads
/// that a thread has under way at the same moment.
pub(crate) const FILE_BUFFERS_KEPT: usize = 64;

/// Bytes that are discarded rather than received (epoll), at least. Reason: the call that it takes costs as much as
/// copying this many.
pub(crate) const DISCARDED_BY_CALL: usize = 8 << 10;

/// ... and with io_uring. Reason: the multishot receive has to be ended for it.
pub(crate) const DISCARDED_BY_RING: usize = 64 << 10;

/// Bytes discarded at once. Reason: each call may acknowledge what it took. With 64 MiB at once, a server 40 ms away
/// stayed at 59 Mbit/s instead of 420 in 9 of 25 transfers; with 64 KiB in none of 14.
pub(crate) const DISCARDED_AT_ONCE: u64 = 64 << 10;

/// Receive buffers beyond those that the kernel begins with (io_uring), while they come back filled. Reason: 2 MiB of them fit the
/// cache, and a receive that finds none is asked for again, which costs less than one from memory.
pub(crate) const FULL_BUFFERS: usize = 128;
