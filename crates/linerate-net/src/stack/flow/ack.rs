//! Handles acknowledgements: RFC 9293 section 3.10.7.4, fifth check, and the consequences for loss
//! and congestion.

use super::{Flow, FlowActions, TcpState};
use crate::Time;
use crate::stack::shared::SharedPools;
use crate::stack::wire::{Seq, TcpHeader};

/// The report of one ACK.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Acked {
    /// Bytes newly acknowledged in order, and bytes newly known to have arrived.
    pub(super) bytes: u32,
    pub(super) delivered: u32,
    /// When the latest of the arrived segments was sent, if it was sent once.
    pub(super) sample: Option<Time>,
    /// It reported a duplicate (RFC 2883).
    pub(super) duplicate: bool,
    /// It says that a router has marked a segment of ours.
    pub(super) marked: bool,
    /// TSecr.
    pub(super) echo: Option<u32>,
}

impl Flow {
    /// Handles the ACK of an acceptable segment; `pure`: it carries no data.
    pub(super) fn handle_ack(
        &mut self,
        now: Time,
        tcp: &TcpHeader,
        pure: bool,
        shared: &mut SharedPools,
    ) -> FlowActions {
        let echo = tcp.options.timestamps.filter(|_| self.agreed.timestamps).map(|(_, echo)| echo);
        let mut acked = Acked { echo, marked: self.tells_of_a_mark(tcp), ..Acked::default() };
        let window_before = self.send.wnd;
        shared.stats.zero_windows_in += u64::from(tcp.window == 0);
        if self.agreed.sack && !tcp.options.sack.blocks().is_empty() {
            self.note_sack(now, tcp, &mut acked, shared);
        }
        if tcp.ack.ge(self.send.una) {
            self.update_window(tcp);
        }
        let mut told = FlowActions::NOTHING;
        let flight = self.send.nxt - self.send.una;
        if tcp.ack.gt(self.send.una) {
            self.advance(now, tcp.ack, &mut acked, shared);
            told = self.after_fin_acked();
        } else if tcp.ack == self.send.una && pure && flight > 0 && self.send.wnd == window_before {
            shared.stats.duplicate_acks_in += 1;
            self.note_duplicate_ack(&mut acked);
        }
        if self.send.window_limited_since != Time::NEVER {
            // Must come first: the link may have no room for what follows.
            self.note_window_limit(now);
        }
        if flight == 0 {
            // Nothing was in flight, so the ACK may have opened the window.
            self.timers.waiting_since = now;
            if self.timer_needed() {
                self.arm(now, shared);
            }
        } else {
            self.react(now, tcp.ack, &acked, flight, shared);
        }
        told.add(FlowActions::SEND);
        told
    }

    /// While nothing is in flight, only a closed window needs the timer.
    fn timer_needed(&mut self) -> bool {
        if self.window_room() > 0 {
            self.timers.backoff = 0;
            self.send.probe = false;
        }
        self.timers.kind != super::Timer::None || self.unsent() > 0 || (self.send.fin && !self.send.fin_sent)
    }

    /// RFC 9293 section 3.10.7.4: only a segment at least as new as the last update changes the
    /// window.
    fn update_window(&mut self, tcp: &TcpHeader) {
        if self.send.wl1.lt(tcp.seq) || (self.send.wl1 == tcp.seq && self.send.wl2.le(tcp.ack)) {
            self.send.wnd = u32::from(tcp.window) << self.agreed.scale_out;
            self.send.max_wnd = self.send.max_wnd.max(self.send.wnd);
            (self.send.wl1, self.send.wl2) = (tcp.seq, tcp.ack);
        }
    }

    /// Measures how long the peer's window limited us.
    pub(super) fn note_window_limit(&mut self, now: Time) {
        let (limited, since) = (self.is_window_limited(), self.send.window_limited_since);
        if limited && since == Time::NEVER {
            self.send.window_limited_since = now;
        } else if !limited && since != Time::NEVER {
            self.counters.rwnd_limited_us += now.nanos_since(since) / 1000;
            self.send.window_limited_since = Time::NEVER;
        }
    }

    /// Everything before `ack` has arrived.
    fn advance(&mut self, now: Time, ack: Seq, acked: &mut Acked, shared: &mut SharedPools) {
        acked.bytes = ack - self.send.una;
        let mut again = false;
        while let Some(first) = self.send.sent.front_mut() {
            if first.start.ge(ack) {
                break;
            }
            let end = first.end.min(ack);
            let len = end - first.start;
            let was = *first;
            if was.sacked {
                self.send.sacked -= len;
            } else {
                acked.delivered += len;
                self.send.lost -= if was.lost { len } else { 0 };
            }
            if end == was.end {
                self.send.sent.pop_front();
            } else {
                first.start = end;
            }
            again |= was.again;
            if !was.sacked && end == was.end {
                self.note_delivered(now, &was, acked);
            }
        }
        if again {
            // The segments behind it may have waited for it, so their time is not a round trip.
            acked.sample = None;
        }
        self.send.moved_ms = super::parts::millis(now);
        let bytes = self.send.out.len().min(acked.bytes as usize);
        shared.pool.consume(&mut self.send.out, bytes);
        self.send.cursor.consumed(bytes);
        self.send.una = ack;
        if self.send.sent.is_empty() && self.send.out.is_empty() {
            let list = std::mem::take(&mut self.send.sent);
            shared.give_back(list);
        }
    }

    fn after_fin_acked(&mut self) -> FlowActions {
        if !self.send.fin_sent || self.send.una != self.send.nxt {
            return FlowActions::NOTHING;
        }
        self.state = match self.state {
            TcpState::FinWait1 => TcpState::FinWait2,
            TcpState::Closing => TcpState::TimeWait,
            TcpState::LastAck => TcpState::Closed,
            other => other,
        };
        FlowActions::FIN_ACKED
    }

    /// RFC 2018 section 4 and RFC 2883 section 4: segments that arrived behind a gap, or twice.
    fn note_sack(&mut self, now: Time, tcp: &TcpHeader, acked: &mut Acked, shared: &mut SharedPools) {
        let blocks = tcp.options.sack.blocks();
        let (start, end) = blocks[0];
        let inside = blocks.get(1).is_some_and(|(s, e)| s.le(start) && end.le(*e));
        let duplicate = start.lt(tcp.ack) || inside;
        if duplicate {
            acked.duplicate = true;
            self.counters.dsack_dups = self.counters.dsack_dups.wrapping_add(1);
            self.rack.note_duplicate(self.send.nxt, self.send.una);
            self.take_back_by_duplicates((start, end), shared);
        }
        for (start, end) in &blocks[usize::from(duplicate)..] {
            // Only data that was sent and is not acknowledged can be meant.
            if start.lt(*end) && start.ge(self.send.una) && end.le(self.send.nxt) {
                self.mark_sacked(now, *start, *end, acked);
            }
        }
    }

    fn mark_sacked(&mut self, now: Time, start: Seq, end: Seq, acked: &mut Acked) {
        let first = self.send.sent.partition_point(|seg| seg.start.lt(start));
        for i in first..self.send.sent.len() {
            let seg = &mut self.send.sent[i];
            if seg.end.gt(end) {
                break;
            }
            if seg.sacked {
                continue;
            }
            let was = *seg;
            (seg.sacked, seg.lost) = (true, false);
            self.send.sacked += was.len();
            self.send.lost -= if was.lost { was.len() } else { 0 };
            acked.delivered += was.len();
            self.note_delivered(now, &was, acked);
        }
    }

    /// Measures the round trip of the segment that arrived last (RFC 6298 section 3: never of a
    /// retransmitted one).
    pub(super) fn take_sample(&mut self, now: Time, acked: &Acked, shared: &SharedPools) {
        if let Some(at) = acked.sample {
            self.rtt.sample(now.nanos_since(at), &shared.limits);
        }
    }
}
