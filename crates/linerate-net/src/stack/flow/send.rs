//! Decides what to send. `next` computes the segment without changing anything that matters;
//! `commit` records that it has left. So a link without room changes nothing.

use super::{Flow, Sent, TcpState, Timer};
use crate::Time;
use crate::stack::shared::{SharedPools, timestamp};
use crate::stack::wire::{Ecn, Flags, Options, Sack, Seq, TcpHeader};

/// A segment to send: its header, and where its payload is in the queued bytes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct OutgoingSegment {
    pub(crate) tcp: TcpHeader,
    pub(crate) offset: usize,
    pub(crate) len: usize,
    kind: SegmentKind,
    /// The right edge of the window it announces.
    edge: Seq,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum SegmentKind {
    Syn,
    New,
    Again(usize),
    Probe,
    Ack,
}

impl Flow {
    /// Bytes left in the peer's window.
    pub(super) fn window_room(&self) -> u32 {
        let edge = self.send.una + self.send.wnd;
        if edge.gt(self.send.nxt) { edge - self.send.nxt } else { 0 }
    }

    pub(super) fn congestion_room(&self) -> u32 {
        self.congestion.window.saturating_sub(self.in_flight())
    }

    /// Payload of the next segment of new data, if the window allowed it.
    pub(super) fn next_len(&self) -> usize {
        self.unsent().min(self.payload_room()).max(usize::from(self.send.fin && !self.send.fin_sent))
    }

    /// Selective acknowledgements reduce the room for payload.
    fn payload_room(&self) -> usize {
        let mss = usize::from(self.send.mss);
        if self.receive.early.is_none() && self.acks.dsack.is_none() {
            return mss;
        }
        let blocks = self.sack_blocks().blocks().len();
        mss.saturating_sub(if blocks > 0 { 4 + 8 * blocks } else { 0 }).max(1)
    }

    /// Payload of the next segment of new data; `None` if bytes wait and the peer's window admits
    /// none of them.
    fn admitted(&self) -> Option<usize> {
        let (unsent, most) = (self.unsent(), self.payload_room());
        let len = unsent.min(most).min(self.window_room() as usize);
        if len == unsent || len == most {
            return Some(len);
        }
        // RFC 9293 section 3.8.6.2.1, without Nagle's algorithm: a segment that the window would
        // truncate waits for more room.
        let worthwhile = len >= (self.send.max_wnd / 2) as usize || self.send.nxt == self.send.una;
        (len > 0 && worthwhile).then_some(len)
    }

    /// Whether the peer's window limits us. Before the handshake completes it is unknown.
    pub(super) fn is_window_limited(&self) -> bool {
        let open = !matches!(
            self.state,
            TcpState::SynSent | TcpState::SynReceived | TcpState::TimeWait | TcpState::Closed
        );
        open && self.unsent() > 0 && self.admitted().is_none()
    }

    /// The next segment to send now, if there is one.
    pub(crate) fn next(&mut self, now: Time) -> Option<OutgoingSegment> {
        match self.state {
            TcpState::SynSent | TcpState::SynReceived if self.send.syn_due => return Some(self.syn(now)),
            TcpState::SynSent | TcpState::Closed => return None,
            TcpState::SynReceived | TcpState::TimeWait => {}
            _ => {
                if self.send.lost > 0
                    && let Some(again) = self.next_lost(now)
                {
                    return Some(again);
                }
                if let Some(new) = self.next_new(now) {
                    return Some(new);
                }
                if self.send.probe {
                    return Some(self.window_probe(now));
                }
            }
        }
        self.acks.now.then(|| self.segment(now, Flags::ACK, self.send.nxt, 0, 0, SegmentKind::Ack))
    }

    fn syn(&self, now: Time) -> OutgoingSegment {
        let echo = if self.agreed.timestamps { self.agreed.ts_recent } else { 0 };
        let answers = self.state == TcpState::SynReceived;
        // The peer sends nothing larger than our SYN announced.
        let offer =
            Flow::syn_options(self.receive.mss, self.agreed.scale_in, now, self.agreed.ts_offset, echo);
        // RFC 7323 sections 2.2 and 3.2: an answer to a SYN has only the options of that SYN.
        let options = Options {
            window_scale: offer.window_scale.filter(|_| !answers || self.agreed.scaled),
            sack_permitted: !answers || self.agreed.sack,
            timestamps: offer.timestamps.filter(|_| !answers || self.agreed.timestamps),
            ..offer
        };
        let tcp = TcpHeader {
            src_port: self.tuple.local_port,
            dst_port: self.tuple.remote_port,
            seq: self.send.iss,
            ack: if answers { self.receive.nxt } else { Seq(0) },
            flags: if answers {
                (Flags::SYN | Flags::ACK).with(Flags::ECE, self.agreed.ecn)
            } else {
                // RFC 3168 section 6.1.1.1: a network may drop a SYN that asks.
                let asks = self.agreed.ecn && self.timers.backoff == 0;
                Flags::SYN.with(Flags::ECE | Flags::CWR, asks)
            },
            window: self.receive.size.min(0xffff) as u16,
            urgent: 0,
            ecn: Ecn::NotCapable,
            options,
        };
        OutgoingSegment {
            tcp,
            offset: 0,
            len: 0,
            kind: SegmentKind::Syn,
            edge: self.receive.nxt + self.receive.size.min(0xffff),
        }
    }

    /// The first lost segment, if the congestion window has room for it.
    fn next_lost(&mut self, now: Time) -> Option<OutgoingSegment> {
        let i = self.send.sent.iter().position(|seg| seg.lost)?;
        let seg = self.send.sent[i];
        if !self.send.forced && self.congestion_room() < seg.len().min(u32::from(self.send.mss)) {
            return None;
        }
        // If the window shrank and nothing is in flight, the first lost segment is a probe.
        if seg.start.ge(self.send.una + self.send.wnd.max(1)) && !self.send.forced {
            return None;
        }
        if !self.send.forced && !self.may_leave(now) {
            return None;
        }
        if seg.len() > u32::from(self.send.mss) + 1 {
            self.split(i);
        }
        let seg = self.send.sent[i];
        let fin = self.send.fin_sent && seg.end == self.send.nxt;
        let len = (seg.len() - u32::from(fin)) as usize;
        let flags = Flags::ACK.with(Flags::FIN, fin).with(Flags::PSH, len > 0);
        let offset = (seg.start - self.send.una) as usize;
        Some(self.segment(now, flags, seg.start, offset, len, SegmentKind::Again(i)))
    }

    /// Splits a segment because the path now takes only smaller ones.
    fn split(&mut self, i: usize) {
        let middle = self.send.sent[i].start + u32::from(self.send.mss);
        let rest = Sent { start: middle, ..self.send.sent[i] };
        self.send.sent[i].end = middle;
        self.send.sent.insert(i + 1, rest);
    }

    /// New data, with the FIN on the last segment.
    fn next_new(&mut self, now: Time) -> Option<OutgoingSegment> {
        let unsent = self.unsent();
        let fin_waits = self.send.fin && !self.send.fin_sent;
        if unsent == 0 && !fin_waits {
            self.send.cwnd_limited = false;
            return None;
        }
        let Some(len) = self.admitted() else {
            // The peer's window is the limit, which is no information about the path (RFC 7661).
            self.send.cwnd_limited = false;
            return None;
        };
        let last = len == unsent;
        if !self.send.forced && (self.congestion_room() as usize) < len {
            self.send.cwnd_limited = true;
            return None;
        }
        if !self.send.forced && !self.may_leave(now) {
            return None;
        }
        let fin = last && fin_waits;
        let flags = Flags::ACK
            .with(Flags::PSH, last && len > 0)
            .with(Flags::FIN, fin)
            .with(Flags::CWR, self.send.cwr_due && len > 0);
        let offset = (self.send.nxt - self.send.una) as usize;
        Some(self.segment(now, flags, self.send.nxt, offset, len, SegmentKind::New))
    }

    /// RFC 9293 section 3.8.6.1: a segment whose ACK announces the window. As in Linux, it has a
    /// number that was already acknowledged, so that nothing is sent beyond the window.
    fn window_probe(&self, now: Time) -> OutgoingSegment {
        self.segment(now, Flags::ACK, self.send.una - 1, 0, 0, SegmentKind::Probe)
    }

    fn segment(
        &self,
        now: Time,
        flags: Flags,
        seq: Seq,
        offset: usize,
        len: usize,
        kind: SegmentKind,
    ) -> OutgoingSegment {
        let edge = self.new_edge();
        let window = if edge.gt(self.receive.nxt) { edge - self.receive.nxt } else { 0 };
        // Rounded up if the edge stays, because it must not move back.
        let up = if edge == self.receive.edge { (1 << self.agreed.scale_in) - 1 } else { 0 };
        let field = ((window + up) >> self.agreed.scale_in).min(0xffff);
        let options = Options {
            timestamps: self
                .agreed
                .timestamps
                .then(|| (timestamp(now, self.agreed.ts_offset), self.agreed.ts_recent)),
            // A retransmission may have been cut to the path's size: adding blocks would exceed it.
            // A separate ACK follows.
            sack: match kind {
                SegmentKind::Again(_) if len > 0 => Sack::default(),
                _ => self.sack_blocks(),
            },
            ..Options::default()
        };
        let tcp = TcpHeader {
            src_port: self.tuple.local_port,
            dst_port: self.tuple.remote_port,
            seq,
            ack: self.receive.nxt,
            flags: flags.with(Flags::ECE, self.receive.marked),
            window: field as u16,
            urgent: 0,
            // RFC 3168 sections 6.1.4 to 6.1.6: neither ACKs nor retransmissions nor probes.
            ecn: if self.agreed.ecn && len > 0 && kind == SegmentKind::New {
                Ecn::Capable
            } else {
                Ecn::NotCapable
            },
            options,
        };
        let edge = self.receive.edge.max(self.receive.nxt + (field << self.agreed.scale_in));
        OutgoingSegment { tcp, offset, len, kind, edge }
    }

    /// Writes the payload of a segment that `next` returned.
    pub(crate) fn fill(&mut self, outgoing: &OutgoingSegment, shared: &SharedPools, payload: &mut [u8]) {
        if outgoing.len > 0 {
            let mut fresh = super::Cursor::default();
            let cursor = if outgoing.kind == SegmentKind::New { &mut self.send.cursor } else { &mut fresh };
            shared.pool.copy(&self.send.out, &shared.lent, cursor, outgoing.offset, payload);
        }
    }

    /// Records that a segment from `next` has left.
    pub(crate) fn commit(&mut self, now: Time, outgoing: &OutgoingSegment, shared: &mut SharedPools) {
        match outgoing.kind {
            SegmentKind::Syn => return self.commit_syn(now, shared),
            SegmentKind::New => self.commit_new(now, outgoing, shared),
            SegmentKind::Again(i) => self.commit_again(now, i, shared),
            SegmentKind::Probe => self.send.probe = false,
            // Without data, and with the same number as the last ACK: it shows the peer the gap
            // (RFC 5681 section 4.2).
            SegmentKind::Ack if self.receive.early.is_some() && self.acks.last == self.receive.nxt => {
                shared.stats.duplicate_acks_out += 1;
            }
            SegmentKind::Ack => {}
        }
        shared.stats.zero_windows_out += u64::from(outgoing.tcp.window == 0);
        // Every segment carries the ACK.
        self.acks.last = self.receive.nxt;
        self.receive.edge = outgoing.edge;
        self.acks.bytes = 0;
        self.acks.at = Time::NEVER;
        self.acks.now = if self.receive.early.is_some() || self.acks.dsack.is_some() {
            self.sack_told(&outgoing.tcp.options.sack)
        } else {
            false
        };
    }

    fn commit_syn(&mut self, now: Time, shared: &mut SharedPools) {
        self.send.syn_due = false;
        self.send.sent_at = now;
        self.receive.edge = self.receive.nxt + self.receive.size.min(0xffff);
        if self.timers.backoff == 0 {
            self.timers.waiting_since = now;
        } else {
            shared.stats.retransmits += 1;
            self.counters.retransmits += 1;
        }
        self.arm(now, shared);
    }

    fn commit_new(&mut self, now: Time, outgoing: &OutgoingSegment, shared: &mut SharedPools) {
        let fin = outgoing.tcp.flags.has(Flags::FIN);
        let len = outgoing.len as u32 + u32::from(fin);
        let idle = self.send.una == self.send.nxt;
        if idle {
            self.timers.waiting_since = now;
            self.after_idle(now, shared);
        }
        if self.send.sent.capacity() == 0 {
            self.send.sent = shared.scoreboard();
        }
        let seg = Sent {
            start: self.send.nxt,
            end: self.send.nxt + len,
            at: now,
            sacked: false,
            lost: false,
            again: false,
        };
        self.send.sent.push_back(seg);
        self.send.nxt += len;
        self.send.forced = false;
        self.send.cwr_due &= !outgoing.tcp.flags.has(Flags::CWR);
        self.send.sent_at = now;
        self.note_sent(len);
        self.note_pace(now, len);
        if outgoing.len > 0 {
            shared.stats.windows_filled += u64::from(self.send.nxt == self.send.una + self.send.wnd);
            self.counters.data_segs_out = self.counters.data_segs_out.wrapping_add(1);
        }
        if fin {
            self.send.fin_sent = true;
            self.state = match self.state {
                TcpState::Established | TcpState::SynReceived => TcpState::FinWait1,
                TcpState::CloseWait => TcpState::LastAck,
                other => other,
            };
        }
        if idle || matches!(self.timers.kind, Timer::TailProbe | Timer::None | Timer::Persist) {
            self.arm(now, shared);
        }
    }

    /// RFC 5681 section 4.1: after an idle time the window does not reflect the path any more.
    fn after_idle(&mut self, now: Time, shared: &SharedPools) {
        let rto = self.rtt.rto_ns(0, &shared.limits);
        if now.nanos_since(self.send.sent_at) > rto && !self.recovery.active {
            self.congestion.idle();
        }
    }

    fn commit_again(&mut self, now: Time, i: usize, shared: &mut SharedPools) {
        let Some(seg) = self.send.sent.get_mut(i) else { return };
        (seg.lost, seg.again, seg.at) = (false, true, now);
        let len = seg.len();
        self.send.lost -= len;
        self.send.forced = false;
        self.send.sent_at = now;
        self.note_sent(len);
        self.note_pace(now, len);
        self.note_retransmission(now);
        self.counters.retransmits = self.counters.retransmits.wrapping_add(1);
        self.counters.data_segs_out = self.counters.data_segs_out.wrapping_add(1);
        shared.stats.retransmits += 1;
        if i == 0 || self.timers.kind == Timer::None {
            // RFC 8985 section 8: a retransmission gets its full timeout.
            self.set_timer(Timer::Retransmission, self.timeout(now, shared));
        }
    }

    /// Whether `next` may return a segment.
    pub(crate) fn wants_to_send(&self) -> bool {
        self.acks.now
            || self.send.syn_due
            || self.send.probe
            || self.send.lost > 0
            || self.unsent() > 0
            || (self.send.fin && !self.send.fin_sent)
    }

    /// Ends a turn's sending attempts: a closed window must be probed later.
    pub(crate) fn settle(&mut self, now: Time, shared: &SharedPools) {
        let waits = self.unsent() > 0 || (self.send.fin && !self.send.fin_sent);
        if !waits && self.send.window_limited_since == Time::NEVER {
            return;
        }
        self.note_window_limit(now);
        if waits
            && self.send.una == self.send.nxt
            && self.timers.kind == Timer::None
            && self.state != TcpState::Closed
        {
            self.arm(now, shared);
        }
    }
}
