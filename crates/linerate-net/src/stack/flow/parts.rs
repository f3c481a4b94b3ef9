//! The state of a connection, by task: what it sends, what it receives, what it acknowledges, when it acts by itself,
//! and what both ends agreed on.

use std::collections::VecDeque;

use super::reassembly::Reassembly;
use crate::Time;
use crate::stack::pool::{Chain, Cursor};
use crate::stack::wire::Seq;

/// A segment that was sent and not acknowledged.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Sent {
    pub(crate) start: Seq,
    pub(crate) end: Seq,
    /// When it was last sent.
    pub(crate) at: Time,
    pub(crate) sacked: bool,
    /// Considered lost, and not retransmitted since.
    pub(crate) lost: bool,
    /// Sent more than once.
    pub(crate) again: bool,
}

impl Sent {
    pub(super) fn len(&self) -> u32 {
        self.end - self.start
    }
}

/// Segments sent and not acknowledged, in order.
pub(crate) type Scoreboard = VecDeque<Sent>;

/// The sending side.
pub(super) struct Send {
    pub(super) iss: Seq,
    pub(super) una: Seq,
    pub(super) nxt: Seq,
    pub(super) wnd: u32,
    pub(super) max_wnd: u32,
    pub(super) wl1: Seq,
    pub(super) wl2: Seq,
    /// Payload of a full segment, after timestamps are subtracted.
    pub(super) mss: u16,
    pub(super) out: Chain,
    pub(super) cursor: Cursor,
    pub(super) sent: Scoreboard,
    /// Bytes in `sent` that are selectively acknowledged, and that are considered lost.
    pub(super) sacked: u32,
    pub(super) lost: u32,
    /// Our FIN follows the queued bytes; whether it was sent.
    pub(super) fin: bool,
    pub(super) fin_sent: bool,
    /// A SYN must be sent now (SYN-SENT, SYN-RECEIVED).
    pub(super) syn_due: bool,
    /// How often the peer answered our SYN by an ACK of another connection.
    pub(super) challenged_syns: u8,
    /// One segment may be sent whatever the congestion window: a retransmission after a timeout, or
    /// a probe.
    pub(super) forced: bool,
    /// The window is closed and must be probed now.
    pub(super) probe: bool,
    /// Whether the congestion window stopped the last attempt to send; since when the peer's does,
    /// or `NEVER`.
    pub(super) cwnd_limited: bool,
    pub(super) window_limited_since: Time,
    pub(super) dup_acks: u8,
    /// The peer must be told that the congestion window was reduced (RFC 3168 section 6.1.2).
    pub(super) cwr_due: bool,
    /// Signs of congestion up to here have been answered by the last reduction.
    pub(super) reduced_until: Seq,
    /// When it last sent.
    pub(super) sent_at: Time,
    /// When the peer last took bytes, or the first bytes were queued, in milliseconds. Short because
    /// there are many connections.
    pub(super) moved_ms: u32,
}

/// The time in milliseconds, which wraps after seven weeks.
pub(super) fn millis(at: Time) -> u32 {
    (at.as_nanos() / 1_000_000) as u32
}

impl Send {
    pub(super) fn new(now: Time) -> Send {
        Send {
            iss: Seq(0),
            una: Seq(0),
            nxt: Seq(0),
            wnd: 0,
            max_wnd: 0,
            wl1: Seq(0),
            wl2: Seq(0),
            mss: 536,
            out: Chain::default(),
            cursor: Cursor::default(),
            sent: Scoreboard::new(),
            sacked: 0,
            lost: 0,
            fin: false,
            fin_sent: false,
            syn_due: false,
            challenged_syns: 0,
            forced: false,
            probe: false,
            cwnd_limited: false,
            window_limited_since: Time::NEVER,
            dup_acks: 0,
            cwr_due: false,
            reduced_until: Seq(0),
            sent_at: now,
            moved_ms: millis(now),
        }
    }
}

/// The urgent bytes to remove.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Urgent {
    /// The last one that the peer announced. An earlier one not yet reached stays in the stream.
    pub(super) at: Option<Seq>,
    /// An earlier one that is the next byte to read.
    pub(super) next: Option<Seq>,
}

/// The receiving side.
pub(crate) struct Receive {
    pub(super) nxt: Seq,
    /// The right edge of the announced window.
    pub(super) edge: Seq,
    pub(super) size: u32,
    /// Bytes read by the application since the window was last adjusted, and when that was.
    pub(super) taken: u32,
    pub(super) since: Time,
    pub(super) inbox: Chain,
    pub(super) early: Option<Box<Reassembly>>,
    /// Number of the peer's FIN, once known.
    pub(super) fin_at: Option<Seq>,
    pub(super) urgent: Urgent,
    /// The FIN was received in order.
    pub(crate) ended: bool,
    /// The largest segment.
    pub(super) mss: u16,
    /// The application has stopped reading: a reset answers new bytes.
    pub(crate) deaf: bool,
    /// It has shut both directions down and not closed yet: a reset answers new bytes, too.
    pub(crate) shut: bool,
    /// A router has marked a segment, and the peer has not said yet that it sends less.
    pub(super) marked: bool,
}

impl Receive {
    pub(super) fn new(size: u32, now: Time) -> Receive {
        Receive {
            nxt: Seq(0),
            edge: Seq(0),
            size,
            taken: 0,
            since: now,
            inbox: Chain::default(),
            early: None,
            fin_at: None,
            urgent: Urgent::default(),
            ended: false,
            mss: 536,
            deaf: false,
            shut: false,
            marked: false,
        }
    }
}

/// The acknowledgements that it sends.
pub(super) struct Acks {
    pub(super) last: Seq,
    pub(super) now: bool,
    pub(super) at: Time,
    /// Bytes received since the last ACK.
    pub(super) bytes: u32,
    /// A duplicate to report (RFC 2883).
    pub(super) dsack: Option<(Seq, Seq)>,
    /// When an unacceptable segment was last answered.
    pub(super) challenged: Time,
}

impl Acks {
    pub(super) fn new() -> Acks {
        Acks { last: Seq(0), now: false, at: Time::NEVER, bytes: 0, dsack: None, challenged: Time::ZERO }
    }
}

/// The event for which the sending side's timer is set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Timer {
    None,
    /// RFC 6298.
    Retransmission,
    /// RFC 8985 section 7.
    TailProbe,
    /// RFC 8985 section 6.2, step 5.
    Reorder,
    /// RFC 9293 section 3.8.6.1.
    Persist,
    /// Our SYN is sent again because the peer was in the wrong state for it, not because it was
    /// lost.
    SynAgain,
}

/// When it acts though nothing arrives.
pub(super) struct Timers {
    pub(super) kind: Timer,
    pub(super) at: Time,
    /// Consecutive timeouts.
    pub(super) backoff: u8,
    /// Since when data has been unacknowledged without any reply.
    pub(super) waiting_since: Time,
}

impl Timers {
    pub(super) fn new(now: Time) -> Timers {
        Timers { kind: Timer::None, at: Time::NEVER, backoff: 0, waiting_since: now }
    }
}

/// The options that hold on it.
pub(super) struct Negotiated {
    pub(super) scale_out: u8,
    pub(super) scale_in: u8,
    pub(super) scaled: bool,
    pub(super) sack: bool,
    pub(super) timestamps: bool,
    /// In SYN-SENT: whether to ask for it.
    pub(super) ecn: bool,
    pub(super) ts_offset: u32,
    pub(super) ts_recent: u32,
    pub(super) ts_recent_at: Time,
}

impl Negotiated {
    pub(super) fn new(ts_offset: u32, now: Time) -> Negotiated {
        Negotiated {
            scale_out: 0,
            scale_in: 0,
            scaled: false,
            sack: false,
            timestamps: false,
            ecn: false,
            ts_offset,
            ts_recent: 0,
            ts_recent_at: now,
        }
    }
}

/// Decides when segments may leave.
#[derive(Clone, Copy, Debug)]
pub(super) struct SegmentPacer {
    /// At the rate, the segments sent so far take until then.
    pub(super) until: Time,
    /// When the waiting segment may leave; `NEVER`: none waits.
    pub(super) due: Time,
}

impl Default for SegmentPacer {
    fn default() -> SegmentPacer {
        SegmentPacer { until: Time::ZERO, due: Time::NEVER }
    }
}

/// Evidence of a black hole.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Suspicion {
    /// The segment size before small ones were tried; 0: none are.
    pub(super) before: u16,
    /// How often small segments got through.
    pub(super) times: u8,
}
