//! Every limit of a program's client, with its reason.

use std::time::Duration;

/// Calls of a program that wait or are in flight, unless it says otherwise. Reason: each holds a request and later a response;
/// this many fill the pipes of a fast client several times.
pub(super) const CALLS_QUEUED: u32 = 16 << 10;

/// Connections of a program's client, at most. Reason: it looks at all of them in each turn.
pub(super) const PIPES: u32 = 1024;

/// Connections of a client whose number the program leaves to it: those that quick responses share. Reason: one for each
/// of a few requests that must be alone.
pub(super) const FEW_PIPES: u32 = 4;

/// Connections of such a client, at most. Reason: other clients open about as many to one server.
pub(super) const MOST_PIPES: u32 = 128;

/// Connections of such a client by HTTP/2, at most. Reason: with the 100 streams that servers admit they carry as many
/// slow calls as servers of HTTP/1.1 usually take.
pub(super) const MOST_H2_CONNECTIONS: u32 = 8;

/// Streams on a connection of such a client, at most. Reason: the most that usual servers admit.
pub(super) const MOST_STREAMS: u32 = 256;

/// What a call may wait behind others, beside the way to the server, before another connection is worth it. Reason: a
/// connection costs both ends about 0.1 ms of CPU and some memory.
pub(super) const WORTH_A_PIPE: Duration = Duration::from_millis(5);

/// Requests in flight on one of its connections, at most. Reason: each is sent again when the connection is lost.
pub(super) const DEPTH: u32 = 16 << 10;

/// Origins with connections at once. Reason: each costs three descriptors and its connections' own.
pub(super) const ORIGINS: usize = 64;

/// Bytes of the path of a Unix socket. Reason: the kernel's structure has 108, of which the last is 0.
pub(super) const UNIX_PATH: usize = 107;

/// For a connection to be established. Reason: two lost SYNs (RFC 6298: 1 s and 2 s) and the way are within it.
pub(super) const CONNECT_TIME: Duration = Duration::from_secs(5);

/// For the first byte of a response. Reason: as long as for the whole, unless the program says otherwise.
pub(super) const FIRST_BYTE_TIME: Duration = RESPONSE_TIME;

/// For a whole response. Reason: the usual patience of clients.
pub(super) const RESPONSE_TIME: Duration = Duration::from_secs(30);

/// Without requests a connection closes after this time. Reason: servers close theirs after 60 to 75 s.
pub(super) const IDLE_TIME: Duration = Duration::from_secs(50);

/// How long before a server closes an idle connection the client does: an eighth of the server's limit, within these.
/// Reason: servers count from when they sent, some by a coarse clock.
pub(super) const IDLE_MARGIN_LEAST: Duration = Duration::from_millis(50);
pub(super) const IDLE_MARGIN_MOST: Duration = Duration::from_secs(1);

/// An idle connection that the server closes sooner teaches nothing of its limit. Reason: servers that run out of
/// connections close idle ones at any time.
pub(super) const IDLE_LEARNT_LEAST: Duration = Duration::from_millis(200);

/// A connection that was idle for so long goes to an origin that has its share of a common limit and wants more. Reason:
/// calls that follow each other come sooner, and would need a new connection each.
pub(super) const UNUSED: Duration = Duration::from_millis(100);

/// Bytes of a response's head. Reason: the parser's limit.
pub(super) const LARGEST_HEAD: usize = 64 << 10;

/// Bytes of a response's body. Reason: it is held in memory.
pub(super) const LARGEST_BODY: usize = 16 << 20;

/// Bytes read of the response to an abandoned call. Reason: to read them costs less than a new connection.
pub(super) const DISCARDED_BODY: usize = 256 << 10;

/// Attempts to connect before the waiting calls fail. Reason: a server that restarts is back after the pauses between them.
pub(super) const CONNECT_ATTEMPTS: u32 = 3;

/// Bytes of a request's body, and of its head. Reason: bytes that wait to leave are held in memory.
pub(super) const LARGEST_REQUEST_BODY: usize = 64 << 20;
pub(super) const LARGEST_REQUEST_HEAD: usize = 64 << 10;

/// Bytes of a request's body that a service of tower reads before it sends the request. Reason: a longer one costs more
/// memory than a connection of its own.
pub(super) const GATHERED_BODY: usize = 1 << 20;

/// Bytes of requests that wait to leave on a connection before it takes no more requests. Reason: what has left the queue for one
/// connection can no longer take another.
pub(super) const UNSENT_MARK: usize = 256 << 10;

/// A body from this size on is sent from where it is. Reason: below, a copy costs less than a second system call.
pub(super) const SHARED_BODY: usize = 8 << 10;

/// Bytes reserved for a body whose length is known. Reason: a response that announces much and sends little must not cost memory.
pub(super) const RESERVED_BODY: usize = 64 << 10;

/// Bytes of a streamed body that wait for the program or, of a request, for the server. Reason: as much as is in
/// flight at 10 ms and 200 Mbit/s; each stream may hold this many.
pub(super) const STREAMED_MARK: usize = 256 << 10;

/// Fields of trailers, at most. Reason: as many as of a head.
pub(super) const TRAILERS: usize = 256;

/// Connections by HTTP/2, at most. Reason: as for those by HTTP/1.1.
pub(super) const H2_CONNECTIONS: u32 = PIPES;

/// Connections beyond those wanted that only finish their responses (GOAWAY). Reason: others take their place meanwhile.
pub(super) const LEAVING: u32 = 8;

/// The window of each stream and connection of HTTP/2, bytes. Reason: the body of a response is held in memory, so that
/// no more than one that is allowed has to be under way.
pub(super) const H2_WINDOW: u32 = LARGEST_BODY as u32;

/// Heads of responses that are kept with their fields. Reason: servers send few different ones, and a copy costs a tenth of reading.
pub(super) const HEADS_KEPT: usize = 4;

/// Names of fields outside http's own list that are kept. Reason: each new one costs an allocation.
pub(super) const NAMES_KEPT: usize = 32;

/// A response at the head of a connection is slow when it takes this many times the usual, and at least this long. Reason: below, the
/// requests behind it lose less than moving them costs.
pub(super) const SLOW_FACTOR: u32 = 4;
pub(super) const SLOW_LEAST: Duration = Duration::from_millis(10);

/// How often timeouts are looked for, within a twentieth of the shortest of them. Reason: a clock of its own for each call would
/// cost more than the calls.
pub(super) const SWEEP_LEAST: Duration = Duration::from_millis(1);
pub(super) const SWEEP_MOST: Duration = Duration::from_millis(50);

/// How often a client looks at connections that are closing. Reason: they hold descriptors, to no purpose.
pub(super) const CLOSING_TURN: Duration = Duration::from_millis(100);

/// Until a connection is asked for again after the transport had no room, because earlier ones were still closing.
/// Reason: as for accepting; most are closed within it.
pub(super) const ROOM_PAUSE: Duration = Duration::from_millis(10);

/// Time without a handshake until the next address is tried in parallel. Reason: RFC 8305 section 5 recommends it.
pub(super) const ATTEMPT_DELAY: Duration = Duration::from_millis(250);

/// Pause between two lookups of the server's name. Reason: its servers must not pay for a server that is down.
pub(super) const LOOKUP_PAUSE: Duration = Duration::from_secs(1);

/// Responses that must be expected while they collect. Reason: with fewer a timer costs more than it saves.
pub(super) const COLLECT_RESPONSES: u32 = 4;

/// Of the time that calls are in flight, the part for which responses collect. Reason: the server has work for the rest
/// of it, so that the rate does not suffer.
pub(super) const COLLECT_PART: u32 = 8;

/// How long responses collect, at least and at most. Reason: below, a timer costs more than it saves; above, nothing more
/// is gained.
pub(super) const COLLECT_LEAST: Duration = Duration::from_micros(30);
pub(super) const COLLECT_MOST: Duration = Duration::from_micros(200);

/// No response collects for this long after the client turned out to be what the server waits for; twice as long each time,
/// at most. Reason: to try again must cost less than a hundredth.
pub(super) const COLLECT_NOT: Duration = Duration::from_millis(5);
pub(super) const COLLECT_NOT_MOST: Duration = Duration::from_millis(80);

/// Rounds of a client's task before other tasks have their turn. Reason: fairness.
pub(super) const ROUNDS: u32 = 32;

/// Calls of one stream under way at once. Reason: their responses wait in memory for the caller.
pub(super) const STREAM_WINDOW: u64 = 4096;

/// Bytes of responses of one stream that are under way or wait for the caller, as far as the last ones tell. Reason: a
/// caller that pauses must not cost more memory than four responses of the largest size.
pub(super) const STREAM_BYTES: usize = 4 * LARGEST_BODY;

/// Calls of one stream under way before its first response tells how large they are. Reason: they fill some connections,
/// and cost as much memory as the bytes above if each has 1 MiB.
pub(super) const STREAM_FIRST: u64 = 64;

/// Pieces of a body that are smaller than this are joined, bytes. Reason: each piece of its own costs about 60 bytes.
pub(super) const JOINED_PIECE: usize = 1 << 10;
/// Joined pieces up to this size, bytes. Reason: a reader gets them as one.
pub(super) const JOINED_PIECES: usize = 16 << 10;

/// How long the rest of a streamed response is read and discarded when its body was dropped. Reason: a server that
/// sends little or nothing more must not keep the connection from other requests.
pub(super) const DISCARD_TIME: Duration = Duration::from_secs(2);

/// Bytes of a response over HTTP/3, and of all on one connection, that may wait for the program. Reason: a response
/// that its program does not read holds up no other before 16 of them do, and the server sends as much in a round
/// trip at most.
#[cfg(feature = "quic")]
pub(super) const QUIC_STREAM_WINDOW: u32 = 4 << 20;
#[cfg(feature = "quic")]
pub(super) const QUIC_CONNECTION_WINDOW: u32 = 64 << 20;

/// Nothing came for this long on a QUIC connection: it is lost. Reason: as long as for a response.
#[cfg(feature = "quic")]
pub(super) const QUIC_IDLE: Duration = Duration::from_secs(30);

/// A QUIC connection on which nothing was sent for this long asks for a sign of life. Reason: seven of them fit into the
/// idle timeouts of usual servers, 30 s and more, and servers with 5 s are known; NATs keep a UDP mapping for 30 s and
/// more (RFC 9308 section 3.2).
#[cfg(feature = "quic")]
pub(super) const QUIC_KEEP_ALIVE: Duration = Duration::from_secs(4);

/// How long an alternative that did not work is not tried, the first time and at most; each failure doubles it. Reason:
/// a network that drops UDP does so for hours, one that a machine has just joined may not; each attempt costs some
/// datagrams and a handshake.
pub(super) const ALT_FIRST_PAUSE: Duration = Duration::from_secs(60);
pub(super) const ALT_LONGEST_PAUSE: Duration = Duration::from_secs(4 * 60 * 60);

/// Alternatives of an origin that did not work and are remembered. Reason: as many as one response may announce.
pub(super) const ALT_FAILURES: usize = 16;

/// Addresses of an alternative that are tried. Reason: two of each family.
pub(super) const ALT_ADDRESSES: usize = 4;

/// Nothing came for so long on a connection to an alternative: it is lost. It is a third of the time of its calls,
/// within these. Reason: the calls go over TCP then, and have time left; signs of life that leave more often cost more
/// than a path is worth.
#[cfg(feature = "quic")]
pub(super) const ALT_QUIC_IDLE: Duration = Duration::from_secs(10);
#[cfg(feature = "quic")]
pub(super) const ALT_QUIC_IDLE_LEAST: Duration = Duration::from_secs(2);
