//! Every limit of the passive mode, with its reason.

/// Limits of the memory that one capture may take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CaptureLimits {
    /// Connections held at once; beyond it the one that was quiet the longest is summed up and
    /// forgotten. Reason: a capture of a busy server has millions, one after the other; each held
    /// costs up to 20 kB (two traces, two lists of what is unacknowledged).
    pub connections: usize,
    /// Bytes held back on all connections together: heads of which only part has come, segments
    /// after a hole. Reason: what is out of order is small and soon in order; a capture with holes
    /// never fills them.
    pub held_bytes: usize,
    /// Bytes held back in one direction of one connection. Reason: a window's worth is what can be
    /// out of order.
    pub held_bytes_one: usize,
    /// Bytes of one message's head. Reason: servers in use stay below 16 KiB.
    pub head_bytes: usize,
    /// Requests without a response on one connection. Reason: real pipelines are below a few
    /// thousand; an endless upload of requests whose responses are not in the capture must not grow
    /// memory.
    pub pending: usize,
    /// Segments kept at the start of a connection's activity, and as many at its end. Reason: a
    /// person can look at this many; the report gives the middle of a long transfer as a count.
    pub trace: usize,
    /// Slowest calls kept with their segments. Reason: a screen or two.
    pub slowest: usize,
    /// Connections listed individually. The most notable ones are kept, and the sums include the
    /// rest. Reason: a page, not a book.
    pub listed: usize,
}

impl Default for CaptureLimits {
    fn default() -> Self {
        CaptureLimits {
            connections: 16_384,
            held_bytes: 64 << 20,
            held_bytes_one: 4 << 20,
            head_bytes: 32 << 10,
            pending: 4096,
            trace: 64,
            slowest: 10,
            listed: 200,
        }
    }
}

/// Bytes of one record of a capture file. Reason: the largest snap length that tools write is 256
/// KiB; a length beyond this is a damaged file, and must not be believed.
pub const RECORD_BYTES: usize = 16 << 20;

/// Bytes read from a file at once. Reason: fewer, longer reads; still small beside the caches.
pub const READ_BYTES: usize = 256 << 10;

/// Bytes unpacked at once. Reason: a step that meets damage yields nothing, so steps are short.
pub const UNPACKED_BYTES: usize = 1 << 10;

/// Interfaces of one pcapng section. Reason: their descriptions are kept.
pub const INTERFACES: usize = 4096;

/// Headers before TCP: of the link, VLAN tags, labels, tunnels within tunnels. Reason: four tags
/// and three tunnels are 20; packets that nest deeper are made by hand.
pub const HEADERS: u8 = 32;

/// IPv6 extension headers before TCP. Reason: RFC 8200, section 4.1 knows six; a chain without end
/// is an attack.
pub const IPV6_EXTENSIONS: usize = 8;

/// Segments remembered as unacknowledged, in one direction. Reason: they distinguish a repetition
/// from a late segment; a window has a few hundred.
pub const UNACKED: usize = 256;

/// Holes, and segments seen again, that are remembered in one direction until it is known whether
/// they were lost. Reason: a window has few of them.
pub const LATE: usize = 64;

/// Segments held back after a hole in one direction. Reason: each has a cost beyond its bytes.
pub const HELD_SEGMENTS: usize = 1024;

/// Connections held at once where segments are only counted; beyond it those that were quiet the
/// longest are forgotten. Reason: as many as a load generator holds open on a machine; each costs
/// half a kilobyte, or up to 4 kB with a full list of what is unacknowledged.
pub const TALLIED: usize = 131_072;

/// Windows remembered that one end advertised. Reason: what was advertised a round trip ago counts,
/// and an end that reads slowly advertises seldom.
pub const EDGES: usize = 64;

/// Servers whose calls are judged apart; the calls to others are judged together. Reason: each
/// costs up to 1 MB, and captures with more are of proxies or browsers.
pub const SERVERS: usize = 32;

/// Pairs of a client's address and a server of which it is counted how many connections are busy.
/// Reason: each costs 3 kB.
pub const CLIENTS: usize = 256;

/// Connections with calls of which it is not known yet which process has them. Reason: each costs up
/// to 1 kB until the sockets are looked up or the window ends.
pub const UNOWNED: usize = 4096;

/// Busy connections of one client that are counted. Reason: pools that are too small are smaller
/// than this.
pub const LEVELS: usize = 64;

/// Characters kept of a request's target. Reason: it is shown on a line.
pub const TARGET_CHARS: usize = 120;

/// Sentences of evidence kept for one cause. Reason: the first few show it.
pub const EVIDENCE: usize = 4;

/// Notes kept of one call. Reason: each is a line on the screen.
pub const NOTES: usize = 16;
/// Costs kept of each kind of trouble, for their median. Reason: memory; more change it little.
pub const COSTS: usize = 4096;
/// Time of the server from which on a call is slow, nanoseconds. Reason: below it a server does its
/// job.
pub const SLOW_NS: i64 = 10_000_000;
/// Packets among which one that was captured twice is looked for. Reason: two copies are next to
/// each other, but for what came between.
pub const LATELY: usize = 32;

/// Sessions of a key log that are kept. Reason: each costs up to 400 bytes; a browser writes some
/// thousand a day.
pub const KEYLOG_SESSIONS: usize = 1 << 18;

/// Bytes of a key log. Reason: as many lines as such sessions have.
pub const KEYLOG_BYTES: usize = 1 << 30;

/// Bytes of a TLS record after its header. Reason: 2^14 of content and up to 2048 beside it
/// (RFC 5246, section 6.2.3; TLS 1.3 has less).
pub const TLS_RECORD: usize = (16 << 10) + 2048;

/// Bytes of a server's name. Reason: RFC 1035, section 2.3.4.
pub const TLS_NAME: usize = 255;

/// Bytes of a client's sealed record below which it is no request: an alert, or a frame of HTTP/2
/// that asks for nothing. Reason: the shortest request of HTTP/1.1 has 27 bytes, and a record 17 to
/// 24 more.
pub const SEALED_REQUEST: usize = 40;

/// Bytes of a server's sealed record below which it is no part of a response. Reason: an alert has
/// 2, and a record 17 to 24 more.
pub const SEALED_ANSWER: usize = 20;

/// Bytes of a server's sealed record up to which the first ones may be session tickets. Reason: servers
/// in use send some 250 bytes.
pub const TICKET_BYTES: usize = 600;
/// Records that may be session tickets. Reason: servers in use send one or two.
pub const TICKETS: usize = 2;

/// Streams that are open at once on one connection of HTTP/2; beyond it the oldest is dropped.
/// Reason: servers in use admit up to a few hundred.
pub const STREAMS: usize = 1024;

/// Streams of a connection that one TCP event applies to. Reason: each event must cost little,
/// however many streams are open.
pub const STREAMS_TOLD: usize = 64;

/// Bytes of an HTTP/2 frame that is not DATA. Reason: 16,384 is what every endpoint takes; few
/// announce more, and nothing but field blocks needs it.
pub const FRAME: usize = 64 << 10;

/// Frames of one field block of HTTP/2. Reason: as in `linerate-http`; empty ones cost no bytes.
pub const BLOCK_FRAMES: u32 = 64;

/// Bytes of a table of fields (HPACK). Reason: browsers announce 65,536, servers 4,096.
pub const FIELDS_TABLE: usize = 64 << 10;

/// Room that was given in one window of HTTP/2, lately. Reason: what was given a round trip ago
/// counts, and receivers give half a window at once.
pub const ROOMS: usize = 64;

/// Parts of frames whose place is remembered, in one direction of a connection of HTTP/2. Reason:
/// what came behind a lost segment is a window's worth.
pub const PLACES: usize = 512;

/// Different reasons why HTTP/2 was read no further that are kept. Reason: each is a line.
pub const UNREAD: usize = 8;
