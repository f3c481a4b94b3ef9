//! Every limit of this crate, with its reason.

use std::time::Duration;

/// A request that went out so often, while the server did nothing on the connection, has failed. Reason: a peer that closes everything
/// at once must end in failures, not in an endless loop.
pub(crate) const ATTEMPTS_IN_VAIN: u8 = 4;

/// A request that the peer refused goes out again so often, unless the peer answered others meanwhile. Reason: a peer that
/// refuses everything must end in failures, not in an endless loop.
pub(crate) const RESENT_IN_VAIN: u8 = 3;

/// Bytes of requests that are handed to the transport at once. Reason: beyond that, copying them gains nothing.
pub(crate) const SEND_BYTES: usize = 64 << 10;

/// Connections that the peer closed after the same number of requests before that is taken for its limit. Reason: one early close is an
/// accident, and what is learnt from it changes the load.
pub(crate) const EQUAL_OBSERVATIONS: u32 = 3;

/// First pause after a connection that gave no response; doubles up to `LONGEST_BACKOFF`. Reason: a dead target must
/// not turn the load generator into a busy loop.
pub(crate) const FIRST_BACKOFF: Duration = Duration::from_millis(2);

/// Longest pause between attempts to connect while no connection is open. Reason: downtime is measured to 50 ms, and in an open
/// loop each restart adds half of this to it. The baselines pause as long.
pub(crate) const DOWN_BACKOFF: Duration = Duration::from_millis(10);

/// Longest pause while other connections are open, or after connections that gave no response.
pub(crate) const LONGEST_BACKOFF: Duration = Duration::from_secs(1);

/// One connection in this many goes without the learnt limit. Reason: a limit learnt by accident must be unlearnt.
pub(crate) const PROBE_EVERY: u32 = 64;

/// Pending attempts of a core to connect, at first. Reason: servers bound their queues of new connections
/// (nginx 511, Linux 4096), and so do rings in between; an attempt that finds no room is repeated after a second.
pub(crate) const ASKED_AT_FIRST: u32 = 512;

/// ... when handshakes are quick. Reason: a hundred thousand over a round trip of 40 ms take a second.
pub(crate) const ASKED_AT_MOST: u32 = 4096;

/// ... also when they come late. Reason: beyond it a queue in the network may be full before the first of them has to ask
/// again, and a thousand clients that connect for each request must be able to.
pub(crate) const ASKED_BLINDLY: u32 = 1024;

/// How much longer than the quickest a handshake may take, as a share of that and within these bounds, before it counts as late.
/// Reason: what waits in a queue takes longer before the queue is full; clocks and turns of a busy machine are not finer (compare
/// HyStart++, RFC 9406 section 4.2).
pub(crate) const LATE_SHARE: u32 = 8;
pub(crate) const LATE_LEAST: Duration = Duration::from_millis(1);
pub(crate) const LATE_MOST: Duration = Duration::from_millis(16);

/// ... and when they do not.
pub(crate) const ASKED_AT_LEAST: u32 = 128;

/// A handshake that took this long lost a SYN. Reason: a lost SYN is sent again after a second (RFC 6298 section 2.1).
pub(crate) const ASKED_AGAIN: Duration = Duration::from_millis(900);

/// Connections opened in one turn of the loop. Reason: responses on those already open must not wait for the rest.
pub(crate) const OPENED_PER_TURN: u32 = 64;

/// A body from this size on is sent from where it is. Reason: below, a copy costs less than a second piece to send.
pub(crate) const COPIED_BODY: usize = 8 << 10;

/// Bytes of a proxy's response to CONNECT. Reason: none needs more, and each connection being opened may hold one.
pub(crate) const CONNECT_HEAD_BYTES: u32 = 16 << 10;

/// Characters of a proxy's own words in an error. Reason: the peer chooses them.
pub(crate) const REFUSAL_CHARS: usize = 100;

/// Datagrams of QUIC that leave in one call. Reason: the kernel takes 64 and at most 64 KiB, and each call
/// delays what else this thread has to do.
#[cfg(feature = "quic")]
pub(crate) const DATAGRAMS_AT_ONCE: usize = 40;

/// Bytes of streams that are handed over at once, when so many have come. Reason: copies of them should stay in
/// the cache.
#[cfg(feature = "quic")]
pub(crate) const RECORD_BYTES: usize = 256 << 10;

/// Bytes of requests that wait for the windows of a QUIC connection, when one more is begun. Reason: a peer that
/// does not read must not grow our memory.
#[cfg(feature = "quic")]
pub(crate) const UNSENT_BYTES: usize = 64 << 20;

/// Bytes of a request's body that are handed to QUIC at once; more follow when it has taken them. Reason: a
/// server that does not read a body holds up no other, and a turn of the loop is worth its datagrams.
#[cfg(feature = "quic")]
pub(crate) const BODY_PIECE: u32 = 64 << 10;
