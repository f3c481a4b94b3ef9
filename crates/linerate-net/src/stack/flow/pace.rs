//! Pacing spreads segments over the round trip, so that no queue on the path must hold a whole
//! window. The rate is Linux's. In slow start it is twice the window per smoothed round trip, since
//! the window doubles in one. Afterwards it is 1.2 times the window, so that the window stays the
//! limit.

use super::Flow;
use crate::Time;

/// Nothing is paced below this smoothed round trip, ns. Reason: it is eight ticks of the timer
/// wheel; pacing could not spread a shorter burst, and short paths pay nothing.
const LEAST_RTT: u64 = 2_000_000;
/// Segments that may be in flight whatever the rate. Reason: the initial window (RFC 6928) leaves
/// at once.
const AT_ONCE: u32 = 10;
/// How much unused time at the rate may be caught up, ns. Reason: timers are late by two ticks, and
/// Linux also sends a millisecond's worth at once.
const CAUGHT_UP: u64 = 1_000_000;

impl Flow {
    /// Whether a segment may leave now. If not, sets the timer for when it may.
    #[inline]
    pub(super) fn may_leave(&mut self, now: Time) -> bool {
        if self.pace.until <= now || self.in_flight() < AT_ONCE * u32::from(self.send.mss) {
            return true;
        }
        self.pace.due = self.pace.until;
        false
    }

    /// Charges a segment of `len` bytes.
    #[inline]
    pub(super) fn note_pace(&mut self, now: Time, len: u32) {
        if self.rtt.smoothed() >= LEAST_RTT {
            self.charge_pace(now, len);
        }
    }

    fn charge_pace(&mut self, now: Time, len: u32) {
        self.pace.due = Time::NEVER;
        // If the peer's window is smaller than ours, ours does not reflect the rate.
        let window = u64::from(self.congestion.window.max(self.in_flight()).max(1));
        let takes = u64::from(len) * self.rtt.smoothed();
        let slow_start = self.congestion.window < self.congestion.threshold / 2;
        let takes = if slow_start { takes / (2 * window) } else { 5 * takes / (6 * window) };
        let from = self.pace.until.as_nanos().max(now.as_nanos().saturating_sub(CAUGHT_UP));
        self.pace.until = Time::from_nanos(from + takes);
    }
}

#[cfg(test)]
mod tests {
    use crate::stack::lab::{Lab, seg};
    use crate::stack::wire::{Options, Sack, Seq};
    use crate::{FlowInfo, Transport};

    /// A connection with segments of 1000 bytes and this round trip.
    fn lab(rtt_ms: u64) -> Lab {
        let options = Options { mss: Some(1000), sack_permitted: true, ..Options::default() };
        let mut lab = Lab::accepted(options);
        // The handshake took 10 ms; this lets the average approach `rtt_ms`.
        for i in 0..40 {
            lab.send(10);
            lab.pass_ms(rtt_ms);
            lab.hears(seg("A", 1, 11 + 10 * i, 0));
            lab.drop_out();
        }
        lab
    }

    fn shown(lab: &Lab) -> FlowInfo {
        let mut all = Vec::new();
        lab.net.flows(0, 1, |flow| all.push(flow));
        all.remove(0)
    }

    /// The peer acknowledges ten segments at once, which doubles the window: twenty may leave.
    fn answered_at_once(rtt_ms: u64) -> Lab {
        let mut lab = lab(rtt_ms);
        lab.send(100_000);
        assert_eq!(lab.out().len(), 10);
        lab.pass_ms(rtt_ms);
        lab.drop_out();
        lab.hears(seg("A", 1, 401 + 10_000, 0));
        lab
    }

    #[test]
    fn a_window_leaves_spread_over_half_a_round_trip() {
        let mut lab = answered_at_once(20);
        assert_eq!(lab.out().len(), 10, "no more at once than the initial window");
        let mut left = Vec::new();
        for _ in 0..12 {
            lab.pass_ms(1);
            left.push(lab.out().len());
        }
        assert!(left.iter().all(|count| *count <= 3), "{left:?}");
        assert_eq!(left.iter().sum::<usize>(), 10, "{left:?}");
    }

    #[test]
    fn a_short_path_is_not_paced() {
        let mut lab = answered_at_once(1);
        assert_eq!(lab.out().len(), 20);
    }

    /// RFC 7661 section 4: the congestion window does not grow while the peer's window keeps it
    /// from being used.
    #[test]
    fn the_congestion_window_does_not_grow_behind_the_peers() {
        const WINDOW: u16 = 39_000;
        for rtt_ms in [1, 20] {
            let mut lab = lab(rtt_ms);
            lab.send(4_000_000);
            let mut acked = 401;
            for _ in 0..1000 {
                lab.pass_ms(1);
                lab.drop_out();
                acked += 2000;
                lab.hears(seg("A", 1, acked, 0).win(WINDOW));
            }
            let flow = shown(&lab);
            assert!(flow.unacked_bytes > 30_000, "{flow:?}");
            assert!(flow.cwnd_bytes <= 2 * u32::from(WINDOW) + 2000, "{flow:?}");
        }
    }

    fn sack(ack: u32, start: u32, end: u32) -> crate::stack::lab::Seg {
        let mut blocks = Sack::default();
        blocks.push(Seq(start), Seq(end));
        let mut seg = seg("A", 1, ack, 0);
        seg.options.sack = blocks;
        seg
    }

    /// RFC 3708: duplicates are reported for all retransmissions, after the recovery ended, so
    /// nothing was lost.
    #[test]
    fn reported_duplicates_take_a_recovery_back() {
        let mut lab = lab(20);
        lab.send(8000);
        lab.drop_out();
        let before = shown(&lab);
        lab.pass_ms(20);
        lab.hears(sack(401, 1401, 2401));
        lab.hears(sack(401, 1401, 4401));
        assert_eq!(lab.out(), ["PA 401:1401 ack 1"], "three segments overtook it");
        lab.hears(seg("A", 1, 8401, 0));
        let over = shown(&lab);
        assert!(over.ssthresh_bytes.is_some() && over.cwnd_bytes < before.cwnd_bytes, "{over:?}");
        lab.hears(sack(8401, 401, 1401));
        let after = shown(&lab);
        assert_eq!((after.ssthresh_bytes, lab.net.stats().spurious), (before.ssthresh_bytes, 1));
        assert!(after.cwnd_bytes >= before.cwnd_bytes, "{after:?}");
    }

    /// A duplicate that the network made of data never retransmitted undoes nothing.
    #[test]
    fn a_duplicate_of_something_else_takes_nothing_back() {
        let mut lab = lab(20);
        lab.send(8000);
        lab.drop_out();
        lab.pass_ms(20);
        lab.hears(sack(401, 1401, 4401));
        assert_eq!(lab.out().len(), 1);
        lab.hears(seg("A", 1, 8401, 0));
        lab.hears(sack(8401, 201, 401));
        assert_eq!(lab.net.stats().spurious, 0);
    }
}
