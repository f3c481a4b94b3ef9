//! Delayed acknowledgements that hold back data: the sender's small segment waits (Nagle's
//! algorithm, RFC 896) until the peer acknowledges what was sent before, and the peer takes its
//! time to (RFC 1122, section 4.2.3.2).

use crate::passive::packet::{Segment, flag};

/// The last segments of one direction, and the peer's acknowledgement of them.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct StallWatch {
    /// When new data was sent last.
    sent: Option<i64>,
    /// The bare ACK of everything sent, with no other segment in between.
    acked: Option<i64>,
    /// Largest segment this direction may send: by the peer's option and its own (RFC 9293, section
    /// 3.7.1, has senders mind both in practice).
    pub(super) mss: Option<u16>,
    /// Bytes of the last segment of data.
    last: u32,
    /// Largest segment that was followed by another one before anything came back, and how often
    /// one of that size.
    largest: (u32, u32),
}

/// Acknowledging later than this, the network's part taken off, counts as delayed. Reason: no
/// system in use delays less than 20 ms on purpose, and an idle one acknowledges within a few.
const DELAYED_NS: i64 = 15_000_000;
/// Data that was held back leaves at once when the ACK arrives: this is allowed for the sender's
/// own time. Reason: on a busy machine a wake-up takes a few hundred microseconds; a server that
/// happens to be ready as late as the ACK rarely hits it.
const AT_ONCE_NS: i64 = 500_000;

/// A pause of exactly a round trip after an ACK that was not late: that much it may differ.
const EXACTLY_NS: i64 = 500_000;
/// Round trips shorter than this cost little, and are met by chance.
const FAR_NS: i64 = 5_000_000;

/// Bytes of data that a full segment has at least (RFC 9293, section 3.7.1).
const LEAST_FULL: u32 = 536;
/// Bytes that TCP options may take of a full segment.
const OPTIONS: u32 = 40;

/// A stall that looks like one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Stall {
    /// When the segment before it was sent.
    pub(super) from: i64,
    /// From there to the ACK.
    pub(super) ack_after: i64,
    /// From the ACK to the data that had waited.
    pub(super) data_after: i64,
    /// The ACK was late, beyond its way.
    pub(super) delayed: bool,
}

impl StallWatch {
    /// New data of this direction; whether it seems to have waited for the ACK. `to_sender_ns`,
    /// `to_peer_ns`: round trips from where we capture to either end, when known.
    pub(super) fn data(
        &mut self,
        s: &Segment<'_>,
        now: i64,
        to_sender_ns: i64,
        to_peer_ns: i64,
    ) -> Option<Stall> {
        let found = self.sent.zip(self.acked).map(|(sent, acked)| Stall {
            from: sent,
            ack_after: acked - sent,
            data_after: now - acked,
            delayed: acked - sent >= DELAYED_NS + to_peer_ns,
        });
        let last = self.last;
        // A full segment is never held back. One that was followed by another before anything came
        // back is full, whatever the handshake said, if its size came again. A small one ends a
        // burst, however often it comes.
        if self.sent.is_some() && self.acked.is_none() {
            match self.last.cmp(&self.largest.0) {
                std::cmp::Ordering::Greater => self.largest = (self.last, 1),
                std::cmp::Ordering::Equal => self.largest.1 += 1,
                std::cmp::Ordering::Less => {}
            }
        }
        self.sent = Some(now);
        self.acked = None;
        self.last = s.len;
        let again = Some(self.largest).filter(|(size, times)| *size >= LEAST_FULL && *times >= 2);
        let full = [self.mss.map(u32::from), again.map(|(size, _)| size)].into_iter().flatten().min();
        // Without a handshake in the capture even that may be one.
        let full = full.unwrap_or(LEAST_FULL);
        let least = full.saturating_sub(OPTIONS);
        // What leaves exactly when an ACK that was not late reaches its sender had waited for it as
        // well: for a round trip. Behind a full segment that is a congestion window.
        let exactly = to_sender_ns.saturating_add(to_peer_ns) >= FAR_NS && last < least;
        found.filter(|stall| {
            let slack = match stall.delayed {
                true => to_sender_ns / 4 + AT_ONCE_NS,
                false => EXACTLY_NS,
            };
            s.len < least
                && stall.data_after <= to_sender_ns + slack
                // Sooner than the ACK can have reached its sender, it was not waiting for it.
                && match stall.delayed {
                    true => stall.data_after >= (to_sender_ns - slack).max(0),
                    false => {
                        exactly
                            && stall.data_after >= to_sender_ns - slack
                            && stall.ack_after >= to_peer_ns - slack
                    }
                }
        })
    }

    /// A segment of the peer. `all`: it acknowledges all that this direction sent.
    pub(super) fn peer(&mut self, s: &Segment<'_>, now: i64, all: bool) {
        if s.len > 0 || s.has(flag::FIN | flag::RST | flag::SYN) {
            // A segment that comes then may be a reply to it.
            self.sent = None;
            self.acked = None;
        } else if all && self.sent.is_some() && self.acked.is_none() {
            self.acked = Some(now);
        }
    }
}
