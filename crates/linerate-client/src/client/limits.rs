//! Every limit of a program's client, with its reason.

use std::time::Duration;

/// Calls of a program that wait or are in flight, unless it says otherwise. Reason: each holds a request and later a response;
/// so many fill the pipes of a fast client several times.
pub(in crate::client) const CALLS_QUEUED: u32 = 16 << 10;

/// Connections of a program's client, at most. Reason: it looks at all of them in each turn.
pub(in crate::client) const PIPES: u32 = 1024;

/// Requests in flight on one of its connections, at most. Reason: each is sent again when the connection is lost.
pub(in crate::client) const DEPTH: u32 = 16 << 10;

/// For a connection to be established. Reason: two lost SYNs (RFC 6298: 1 s and 2 s) and the way are within it.
pub(in crate::client) const CONNECT_TIME: Duration = Duration::from_secs(5);

/// For the first byte of a response. Reason: as long as for the whole, unless the program says otherwise.
pub(in crate::client) const FIRST_BYTE_TIME: Duration = RESPONSE_TIME;

/// For a whole response. Reason: the usual patience of clients.
pub(in crate::client) const RESPONSE_TIME: Duration = Duration::from_secs(30);

/// Without requests a connection closes after this time. Reason: servers close theirs after 60 to 75 s.
pub(in crate::client) const IDLE_TIME: Duration = Duration::from_secs(50);

/// Bytes of a response's head. Reason: the parser's limit.
pub(in crate::client) const LARGEST_HEAD: usize = 64 << 10;

/// Bytes of a response's body. Reason: it is held in memory.
pub(in crate::client) const LARGEST_BODY: usize = 16 << 20;

/// Bytes of a body that nobody waits for. Reason: to read them costs less than a new connection.
pub(in crate::client) const DISCARDED_BODY: usize = 256 << 10;

/// Attempts to connect before the waiting calls fail. Reason: a server that restarts is back after the pauses between them.
pub(in crate::client) const CONNECT_ATTEMPTS: u32 = 3;

/// Bytes of a request's body, and of its head. Reason: bytes that wait to leave are held in memory.
pub(in crate::client) const LARGEST_REQUEST_BODY: usize = 64 << 20;
pub(in crate::client) const LARGEST_REQUEST_HEAD: usize = 64 << 10;

/// Bytes of requests that wait to leave on a connection before it takes no more requests. Reason: what has left the queue for one
/// connection can no longer take another.
pub(in crate::client) const UNSENT_MARK: usize = 256 << 10;

/// A body from this size on is sent from where it is. Reason: below, a copy costs less than a second system call.
pub(in crate::client) const SHARED_BODY: usize = 8 << 10;

/// Bytes reserved for a body whose length is known. Reason: a response that announces much and sends little must not cost memory.
pub(in crate::client) const RESERVED_BODY: usize = 64 << 10;

/// Heads of responses that are kept with their fields. Reason: servers send few different ones, and a copy costs a tenth of reading.
pub(in crate::client) const HEADS_KEPT: usize = 4;

/// Names of fields outside http's own list that are kept. Reason: each new one costs an allocation.
pub(in crate::client) const NAMES_KEPT: usize = 32;

/// A response at the head of a connection is slow when it takes this many times the usual, and at least this long. Reason: below, the
/// requests behind it lose less than moving them costs.
pub(in crate::client) const SLOW_FACTOR: u32 = 4;
pub(in crate::client) const SLOW_LEAST: Duration = Duration::from_millis(10);

/// How often timeouts are looked for, within a twentieth of the shortest of them. Reason: a clock of its own for each call would
/// cost more than the calls.
pub(in crate::client) const SWEEP_LEAST: Duration = Duration::from_millis(1);
pub(in crate::client) const SWEEP_MOST: Duration = Duration::from_millis(50);

/// How often a client looks at connections that are closing. Reason: they hold descriptors, and nobody waits for them.
pub(in crate::client) const CLOSING_TURN: Duration = Duration::from_millis(100);

/// Pause between two lookups of the server's name. Reason: its servers must not pay for a server that is down.
pub(in crate::client) const LOOKUP_PAUSE: Duration = Duration::from_secs(1);

/// Rounds of a client's task before other tasks have their turn. Reason: fairness.
pub(in crate::client) const ROUNDS: u32 = 32;

/// Calls of one stream under way at once. Reason: their responses wait in memory for the caller.
pub(in crate::client) const STREAM_WINDOW: u64 = 4096;
