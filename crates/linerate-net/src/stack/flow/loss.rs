//! Losses: how they are detected (RACK-TLP, RFC 8985; without SACK, RFC 5681 and RFC 6582), how
//! fast lost data is retransmitted (proportional rate reduction, RFC 6937), and how a spurious loss
//! is undone (RFC 3522 and RFC 4015).

use super::ack::Acked;
use super::recovery::{Recovery, TailProbe, Undo};
use super::{Flow, Sent, Timer};
use crate::Time;
use crate::stack::shared::{SharedPools, timestamp};
use crate::stack::wire::Seq;

/// Segments behind a gap after which it counts as lost at once (RFC 5681 section 3.2; RFC 8985
/// section 6.2.4).
const DUPLICATES: u8 = 3;
/// Minimum reordering window, ns; the smoothed round trip still bounds it (RFC 8985 section 6.2.4).
/// Reason: on one machine a single round trip may be nearly zero, and its quarter does not reflect
/// reordering there.
const LEAST_REORDERING: u64 = 50_000;

impl Flow {
    /// Estimate of the bytes in flight.
    pub(super) fn in_flight(&self) -> u32 {
        (self.send.nxt - self.send.una).saturating_sub(self.send.sacked + self.send.lost)
    }

    /// A segment has arrived (RFC 8985 section 6.2, steps 1 to 3).
    pub(super) fn note_delivered(&mut self, now: Time, seg: &Sent, acked: &mut Acked) {
        if !seg.again {
            if seg.end.lt(self.rack.furthest) && self.agreed.sack {
                self.rack.reordered = true;
                self.counters.reordered = self.counters.reordered.wrapping_add(1);
            }
            acked.sample = acked.sample.max(Some(seg.at));
        }
        self.rack.furthest = self.rack.furthest.max(seg.end);
        let took = now.nanos_since(seg.at);
        if seg.again {
            // The ACK may be for the original.
            let earlier = acked
                .echo
                .is_some_and(|echo| (echo.wrapping_sub(timestamp(seg.at, self.agreed.ts_offset)) as i32) < 0);
            if earlier || took < self.rtt.least() {
                return;
            }
        }
        if seg.at > self.rack.at || (seg.at == self.rack.at && seg.end.gt(self.rack.end)) {
            (self.rack.at, self.rack.end, self.rack.rtt) = (seg.at, seg.end, took);
        }
    }

    /// RFC 5681 section 2: without SACK, duplicate ACKs estimate how many segments have left the
    /// network.
    pub(super) fn note_duplicate_ack(&mut self, acked: &mut Acked) {
        self.send.dup_acks = self.send.dup_acks.saturating_add(1);
        if self.agreed.sack {
            return;
        }
        let mss = u32::from(self.send.mss);
        let flight = self.send.nxt - self.send.una;
        let before = self.send.sacked;
        self.send.sacked = (self.send.sacked + mss).min(flight.saturating_sub(self.send.lost + mss));
        acked.delivered += self.send.sacked.saturating_sub(before);
        if self.send.dup_acks == DUPLICATES && !self.recovery.active {
            self.first_lost();
        }
    }

    /// Marks the first unacknowledged segment as lost.
    fn first_lost(&mut self) {
        if let Some(first) = self.send.sent.front_mut().filter(|first| !first.lost && !first.sacked) {
            first.lost = true;
            self.send.lost += first.len();
        }
    }

    /// Reacts to an ACK.
    pub(super) fn react(
        &mut self,
        now: Time,
        ack: Seq,
        acked: &Acked,
        flight: u32,
        shared: &mut SharedPools,
    ) {
        self.take_sample(now, acked, shared);
        if acked.bytes > 0 {
            self.send.dup_acks = 0;
            if std::mem::take(&mut self.timers.backoff) > 0 && self.settle_suspicion() {
                shared.stats.black_holes += 1;
            }
            self.timers.waiting_since = now;
            self.take_back(acked, shared);
            if !self.agreed.sack {
                self.partly(acked);
            }
        }
        self.note_tail_probe(ack, acked);
        // With a known gap RACK is active, and no probe is needed.
        if acked.bytes > 0 || (self.timers.kind == Timer::TailProbe && self.send.sacked > 0) {
            self.arm(now, shared);
        }
        if self.agreed.sack && acked.delivered > 0 {
            self.detect_losses(now, shared);
        }
        if self.recovery.active && self.send.una.ge(self.recovery.until) {
            self.recover();
        }
        if self.send.lost > 0 && !self.recovery.active {
            self.enter_recovery();
        }
        self.react_to_mark(acked, shared);
        if self.recovery.active && !self.recovery.timed_out {
            self.reduce_proportionally(acked);
        } else if acked.bytes > 0 && !acked.marked && (self.is_limited(flight) || self.recovery.timed_out) {
            let rtt = acked.sample.map(|at| now.nanos_since(at));
            self.congestion.note_round_trip(now, ack, self.send.nxt, rtt, self.rtt.least());
            self.congestion.acked(now, acked.bytes, self.rtt.smoothed());
        }
    }

    /// Whether the congestion window limited sending (RFC 9438 section 5.8, RFC 7661).
    fn is_limited(&self, flight: u32) -> bool {
        self.send.cwnd_limited || (self.congestion.in_slow_start() && flight * 2 >= self.congestion.window)
    }

    /// RFC 6582 section 3.2, step 3: a partial ACK shows that the next segment is lost too.
    fn partly(&mut self, acked: &Acked) {
        let guessed = acked.bytes.saturating_sub(u32::from(self.send.mss));
        self.send.sacked = self
            .send
            .sacked
            .saturating_sub(guessed)
            .min((self.send.nxt - self.send.una).saturating_sub(self.send.lost));
        if self.send.una.ge(self.recovery.until) {
            self.send.sacked = 0;
        } else if self.recovery.active
            && !self.recovery.timed_out
            && self.send.sent.front().is_some_and(|first| !first.again)
        {
            self.first_lost();
            self.send.sacked = self.send.sacked.min((self.send.nxt - self.send.una) - self.send.lost);
        }
    }

    fn before(&self) -> Undo {
        let (window, threshold, lost_before) = self.congestion.before();
        Undo {
            window,
            threshold,
            lost_before,
            first: None,
            from: self.send.una,
            until: self.send.nxt,
            again: 0,
        }
    }

    fn enter_recovery(&mut self) {
        let before = self.before();
        self.reduce();
        self.recovery = Recovery {
            active: true,
            timed_out: false,
            until: self.send.nxt,
            flight: self.send.nxt - self.send.una,
            delivered: 0,
            sent: 0,
            undo: Some(before),
        };
        self.tail.end = None;
    }

    fn recover(&mut self) {
        if !self.recovery.timed_out {
            self.congestion.window = self.congestion.threshold.max(u32::from(self.send.mss));
        }
        (self.recovery.active, self.recovery.timed_out) = (false, false);
        self.send.dup_acks = 0;
        self.rack.note_recovery_over();
    }

    /// RFC 6937 section 3, with its slow start reduction bound.
    fn reduce_proportionally(&mut self, acked: &Acked) {
        let r = &mut self.recovery;
        r.delivered = r.delivered.saturating_add(acked.delivered);
        let (pipe, mss) = (
            (self.send.nxt - self.send.una).saturating_sub(self.send.sacked + self.send.lost),
            u32::from(self.send.mss),
        );
        let threshold = self.congestion.threshold;
        let quota = if pipe > threshold {
            let share = u64::from(r.delivered) * u64::from(threshold) / u64::from(r.flight.max(1));
            (share as u32).saturating_sub(r.sent)
        } else {
            let limit = r.delivered.saturating_sub(r.sent).max(acked.delivered);
            let limit = if acked.bytes > 0 { limit + mss } else { limit };
            limit.min(threshold - pipe)
        };
        let quota = if r.sent == 0 { quota.max(mss) } else { quota };
        self.congestion.window = (pipe + quota).max(mss);
    }

    /// RFC 8985 section 6.2.4.
    fn reordering_window(&self) -> u64 {
        let behind =
            |n: u8| self.send.sent.iter().filter(|seg| seg.sacked).take(n.into()).count() >= usize::from(n);
        if !self.rack.reordered && (self.recovery.active || behind(DUPLICATES)) {
            return 0;
        }
        let quarter = self.rtt.least() / 4;
        (quarter * (1 + u64::from(self.rack.wider))).max(LEAST_REORDERING).min(self.rtt.smoothed())
    }

    /// RFC 8985 section 6.2, step 5.
    pub(super) fn detect_losses(&mut self, now: Time, shared: &mut SharedPools) {
        let (at, end) = (self.rack.at, self.rack.end);
        if at == Time::ZERO && self.rack.rtt == 0 {
            return;
        }
        let before = |seg: &Sent| seg.at < at || (seg.at == at && seg.end.lt(end));
        if self.send.sent.front().is_none_or(|first| !before(first) && !first.again) {
            return;
        }
        let wait = std::time::Duration::from_nanos(self.rack.rtt + self.reordering_window());
        let mut later: Option<Time> = None;
        let mut found = 0;
        for seg in &mut self.send.sent {
            let before = before(seg);
            if !before && !seg.again {
                // All later segments were sent, or retransmitted, after this one.
                break;
            }
            if seg.sacked || seg.lost || !before {
                continue;
            }
            let due = seg.at + wait;
            if due <= now {
                seg.lost = true;
                found += seg.len();
            } else {
                later = later.max(Some(due));
            }
        }
        self.send.lost += found;
        if found > 0 && !self.recovery.active {
            self.enter_recovery();
            self.reduce_proportionally(&Acked::default());
        }
        if let Some(later) = later.filter(|later| *later < self.timers.at) {
            self.set_timer(Timer::Reorder, later);
        }
        shared.stats.fast_retransmits += u64::from(found.div_ceil(u32::from(self.send.mss).max(1)));
    }

    /// RFC 6298 section 5.4 and RFC 5681 section 3.1: a timeout marks everything in flight as lost.
    pub(super) fn all_lost(&mut self, _now: Time) {
        // A peer may discard data that it acknowledged selectively (RFC 2018 section 8).
        let forgetful = self.send.sent.front().is_some_and(|first| first.sacked);
        for seg in &mut self.send.sent {
            if forgetful {
                seg.sacked = false;
            }
            seg.lost = !seg.sacked;
        }
        let sum = |which: fn(&Sent) -> bool, sent: &super::Scoreboard| {
            sent.iter().filter(|seg| which(seg)).map(Sent::len).sum::<u32>()
        };
        self.send.sacked = sum(|seg| seg.sacked, &self.send.sent);
        self.send.lost = sum(|seg| seg.lost, &self.send.sent);
        self.send.dup_acks = 0;
        if !self.recovery.timed_out {
            let before = self.before();
            if !self.recovery.active {
                self.reduce();
                self.recovery.undo = Some(before);
            }
        }
        self.congestion.collapse();
        (self.recovery.active, self.recovery.timed_out, self.recovery.until) = (true, true, self.send.nxt);
        self.tail.end = None;
        self.send.forced = true;
    }

    /// RFC 8985 section 7.3: sends new data if there is some, otherwise the last segment again.
    pub(super) fn send_tail_probe(&mut self, now: Time, shared: &mut SharedPools) {
        shared.stats.tail_probes += 1;
        let new = self.unsent() > 0 && self.window_room() as usize >= self.next_len();
        if !new && let Some(last) = self.send.sent.back_mut().filter(|last| !last.lost && !last.sacked) {
            last.lost = true;
            self.send.lost += last.len();
        }
        self.tail = TailProbe {
            end: Some(self.send.nxt + if new { self.next_len() as u32 } else { 0 }),
            again: !new,
        };
        self.send.forced = true;
        self.set_timer(Timer::Retransmission, self.timeout(now, shared));
    }

    /// RFC 8985 section 7.4: if the probe repaired a loss, congestion control must react to it.
    fn note_tail_probe(&mut self, ack: Seq, acked: &Acked) {
        let Some(end) = self.tail.end.filter(|end| ack.ge(*end)) else { return };
        if !self.tail.again || acked.duplicate {
            self.tail.end = None;
        } else if ack.gt(end) {
            self.tail.end = None;
            self.reduce();
            self.congestion.window = self.congestion.window.min(self.congestion.threshold);
        } else if acked.bytes == 0 {
            self.tail.end = None;
        }
    }

    /// Records a retransmission, and the first of a recovery.
    pub(super) fn note_retransmission(&mut self, now: Time) {
        let value = timestamp(now, self.agreed.ts_offset);
        if let Some(undo) = self.recovery.undo.as_mut().filter(|_| self.recovery.active) {
            undo.first.get_or_insert(value);
            undo.again += 1;
        }
    }

    /// Counts bytes sent during recovery.
    pub(super) fn note_sent(&mut self, len: u32) {
        if self.recovery.active {
            self.recovery.sent = self.recovery.sent.saturating_add(len);
        }
    }

    /// RFC 3522: an ACK that echoes a timestamp earlier than the first retransmission's is for the
    /// original, which was late and not lost.
    fn take_back(&mut self, acked: &Acked, shared: &mut SharedPools) {
        let (Some(Undo { first: Some(first), .. }), Some(echo)) = (self.recovery.undo, acked.echo) else {
            return;
        };
        if self.recovery.active && (echo.wrapping_sub(first) as i32) < 0 {
            self.undo(shared);
        }
    }

    /// The peer reports that these bytes arrived twice (RFC 2883). Once that holds for everything
    /// retransmitted, nothing was lost (RFC 3708).
    pub(super) fn take_back_by_duplicates(&mut self, (start, end): (Seq, Seq), shared: &mut SharedPools) {
        let Some(undo) = &mut self.recovery.undo else { return };
        if undo.again > 0 && start.ge(undo.from) && end.le(undo.until) {
            undo.again -= 1;
            if undo.again == 0 {
                self.undo(shared);
            }
        }
    }

    fn undo(&mut self, shared: &mut SharedPools) {
        let Some(undo) = self.recovery.undo.take() else { return };
        shared.stats.spurious += 1;
        self.congestion.undo(undo.window, undo.threshold, undo.lost_before);
        self.send.reduced_until = self.send.una - 1;
        if self.recovery.active {
            for seg in &mut self.send.sent {
                seg.lost = false;
            }
            self.send.lost = 0;
            self.recovery = Recovery { until: self.send.una, ..Recovery::default() };
        }
        if self.agreed.sack {
            self.rack.reordered = true;
        }
    }
}
