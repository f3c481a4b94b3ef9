//! What the detection of losses and the recovery from them remember (RFC 8985, RFC 6937).

use crate::Time;
use crate::stack::wire::Seq;

/// Round trips for which a wider reordering window is kept (RFC 8985 section 6.2.4).
const PERSIST: u8 = 16;

/// State of RACK (RFC 8985 section 6.1).
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Rack {
    /// Of the arrived segments, the one sent last: when, its end, and its round trip. Zero: none
    /// yet.
    pub(super) at: Time,
    pub(super) end: Seq,
    pub(super) rtt: u64,
    /// The highest number that arrived.
    pub(super) furthest: Seq,
    pub(super) reordered: bool,
    /// The reordering window in quarters of the smallest round trip, minus one.
    pub(super) wider: u8,
    pub(super) persist: u8,
    /// End of the round in which a duplicate was counted.
    pub(super) round: Option<Seq>,
}

impl Rack {
    /// RFC 8985 section 6.2.4: a retransmission was spurious, so the reordering window is too
    /// small.
    pub(super) fn note_duplicate(&mut self, nxt: Seq, una: Seq) {
        if self.round.is_some_and(|until| una.lt(until)) {
            return;
        }
        self.round = Some(nxt);
        self.wider = self.wider.saturating_add(1);
        self.persist = PERSIST;
    }

    pub(super) fn note_recovery_over(&mut self) {
        self.persist = self.persist.saturating_sub(1);
        if self.persist == 0 {
            self.wider = 0;
        }
    }
}

/// RFC 8985 section 7: the end of the probe in flight.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct TailProbe {
    pub(super) end: Option<Seq>,
    /// The probe repeated data sent before.
    pub(super) again: bool,
}

/// State of loss recovery.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Recovery {
    pub(super) active: bool,
    /// It began by a timeout.
    pub(super) timed_out: bool,
    /// It ends when this number is acknowledged.
    pub(super) until: Seq,
    /// RFC 6937: bytes in flight at the start, delivered since, and sent since.
    pub(super) flight: u32,
    pub(super) delivered: u32,
    pub(super) sent: u32,
    /// State to restore if recovery was spurious. That may be known only some time after its end.
    pub(super) undo: Option<Undo>,
}

/// The state before a recovery.
#[derive(Clone, Copy, Debug)]
pub(super) struct Undo {
    pub(super) window: u32,
    pub(super) threshold: u32,
    pub(super) lost_before: bool,
    /// The timestamp of the first retransmission.
    pub(super) first: Option<u32>,
    /// Bytes from here to the recovery's end were in flight when it began.
    pub(super) from: Seq,
    pub(super) until: Seq,
    /// Retransmissions for which no duplicate was reported yet.
    pub(super) again: u32,
}
