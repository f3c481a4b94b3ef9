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

/// First pause after a connection failed without an answer; doubles up to `LONGEST_BACKOFF`. Reason: a dead target must
/// not turn the load generator into a busy loop.
pub(crate) const FIRST_BACKOFF: Duration = Duration::from_millis(2);

/// Longest pause between attempts to connect while no connection is open. Reason: downtime is measured to 50 ms, and in an open
/// loop each restart adds half of this to it. The baselines pause as long.
pub(crate) const DOWN_BACKOFF: Duration = Duration::from_millis(10);

/// Longest pause while other connections are open, or after connections that gave no response.
pub(crate) const LONGEST_BACKOFF: Duration = Duration::from_secs(1);

/// Every so many connections one goes without the learnt limit. Reason: a limit learnt by accident must be unlearnt.
pub(crate) const PROBE_EVERY: u32 = 64;

/// Connections of a core that may wait for their first answer at the same time, at first. Reason: what a server keeps of them
/// (nginx 511, Linux 4096) and what rings on the way hold is bounded; what finds no room asks again after a second.
pub(crate) const ASKED_AT_FIRST: u32 = 512;

/// ... when answers come at once. Reason: a hundred thousand over a round trip of 40 ms take a second.
pub(crate) const ASKED_AT_MOST: u32 = 4096;

/// ... also when they come late. Reason: beyond it a queue on the way may be full before the first of them has to ask again, and a thousand
/// clients that connect for each request must be able to.
pub(crate) const ASKED_BLINDLY: u32 = 1024;

/// How much longer than the quickest a handshake may take, as a share of that and within these bounds, before it counts as late.
/// Reason: what waits in a queue takes longer before the queue is full; clocks and turns of a busy machine are not finer (compare
/// HyStart++, RFC 9406 section 4.2).
pub(crate) const LATE_SHARE: u32 = 8;
pub(crate) const LATE_LEAST: Duration = Duration::from_millis(1);
pub(crate) const LATE_MOST: Duration = Duration::from_millis(16);

/// ... and when they do not.
pub(crate) const ASKED_AT_LEAST: u32 = 128;

/// A connection that took so long was asked for twice. Reason: a lost SYN is sent again after a second (RFC 6298 section 2.1).
pub(crate) const ASKED_AGAIN: Duration = Duration::from_millis(900);

/// Connections opened in one turn of the loop. Reason: answers on those already open must not wait for the rest.
pub(crate) const OPENED_PER_TURN: u32 = 64;

/// A body from this size on is sent from where it is. Reason: below, a copy costs less than a second piece to send.
pub(crate) const COPIED_BODY: usize = 8 << 10;
