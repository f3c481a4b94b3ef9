//! Handles an arriving segment: RFC 9293 section 3.10.7, RFC 5961's answers to possibly forged
//! segments, and PAWS (RFC 7323 section 5).

use std::time::Duration;

use super::{Agreed, Flow, FlowActions, TcpState, Timer};
use crate::stack::shared::SharedPools;
use crate::stack::wire::{Flags, TcpHeader};
use crate::{NetErrorKind, Time};

/// Minimum interval between answers to unacceptable segments without data. Reason: two stacks that
/// disagree must not answer each other forever (Linux: tcp_invalid_ratelimit).
const OUT_OF_PLACE_EVERY_NS: u64 = 500_000_000;

/// How long TS.Recent is valid (RFC 7323 section 5.5: 24 days).
const TS_RECENT_NS: u64 = 24 * 24 * 3600 * 1_000_000_000;

/// Delay of our SYN after the reset that ends a peer's TIME_WAIT. Reason: the reset must arrive
/// first.
const SOON_AGAIN: Duration = Duration::from_millis(1);
/// Ports that one connection tries. Reason: an attacker who guesses ports must not make us retry
/// forever.
const PORTS_TRIED: u8 = 16;

impl Flow {
    /// Handles a segment of this connection with this `payload`.
    pub(crate) fn handle_segment(
        &mut self,
        now: Time,
        tcp: &TcpHeader,
        payload: &[u8],
        shared: &mut SharedPools,
    ) -> FlowActions {
        match self.state {
            TcpState::SynSent => return self.handle_in_syn_sent(now, tcp, payload, shared),
            // The application has not let go of it yet. Our last ACK was lost.
            TcpState::TimeWait if tcp.flags.has(Flags::FIN) => {
                self.acks.now = true;
                return FlowActions::SEND;
            }
            TcpState::TimeWait | TcpState::Closed => return FlowActions::NOTHING,
            _ => {}
        }
        if !self.is_acceptable(now, tcp, payload.len() as u32, shared) {
            return if tcp.flags.has(Flags::RST) {
                FlowActions::NOTHING
            } else {
                self.note_duplicate(tcp.seq, payload.len(), shared);
                self.out_of_place(now, payload, shared)
            };
        }
        if tcp.flags.has(Flags::RST) {
            return self.handle_reset(now, tcp, shared);
        }
        // RFC 5961 section 4: an ACK answers a SYN whatever its number. A peer that lost its state
        // will then reset.
        if tcp.flags.has(Flags::SYN) {
            return self.challenge(now, shared);
        }
        if !tcp.flags.has(Flags::ACK) {
            return FlowActions::NOTHING;
        }
        if tcp.ack.gt(self.send.nxt) || tcp.ack.lt(self.send.una - self.send.max_wnd) {
            // RFC 5961 section 5.
            return self.challenge(now, shared);
        }
        self.note_timestamp(now, tcp);
        self.note_marks(tcp, shared);
        let mut told = FlowActions::NOTHING;
        if self.state == TcpState::SynReceived {
            if tcp.ack.lt(self.send.iss + 1) {
                return FlowActions::RESET;
            }
            self.state = TcpState::Established;
            self.send.una = self.send.iss + 1;
            told.add(FlowActions::ESTABLISHED);
        }
        told.add(self.handle_ack(now, tcp, payload.is_empty(), shared));
        if self.state == TcpState::Closed || self.state == TcpState::TimeWait {
            told.add(FlowActions::OVER);
            return told;
        }
        if tcp.flags.has(Flags::URG) {
            self.note_urgent(tcp);
        }
        told.add(self.handle_payload(now, tcp, payload, shared));
        told
    }

    /// RFC 9293 section 3.10.7.4, first check, preceded by PAWS.
    fn is_acceptable(&mut self, now: Time, tcp: &TcpHeader, len: u32, shared: &mut SharedPools) -> bool {
        if self.agreed.timestamps
            && !tcp.flags.has(Flags::RST)
            && let Some((value, _)) = tcp.options.timestamps
            && (value.wrapping_sub(self.agreed.ts_recent) as i32) < 0
            && now.nanos_since(self.agreed.ts_recent_at) < TS_RECENT_NS
        {
            shared.stats.paws_refused += 1;
            return false;
        }
        let end = tcp.seq + len + u32::from(tcp.flags.has(Flags::FIN));
        // A duplicate that ends at our next number is accepted for its ACK, and so is a segment
        // that begins at the edge of a closed window. A reset has no ACK of interest.
        let behind = tcp.seq == self.receive.edge && tcp.seq != self.receive.nxt && tcp.flags.has(Flags::RST);
        end.ge(self.receive.nxt) && tcp.seq.le(self.receive.edge) && !behind
    }

    /// Handles a segment outside the window: an ACK tells the peer our position.
    fn out_of_place(&mut self, now: Time, payload: &[u8], shared: &mut SharedPools) -> FlowActions {
        if payload.is_empty() && now.nanos_since(self.acks.challenged) < OUT_OF_PLACE_EVERY_NS {
            return FlowActions::NOTHING;
        }
        if payload.is_empty() {
            self.acks.challenged = now;
            shared.stats.challenges += 1;
        }
        self.acks.now = true;
        FlowActions::SEND
    }

    /// Sends a challenge ACK, at a limited rate (RFC 5961 section 10).
    fn challenge(&mut self, now: Time, shared: &mut SharedPools) -> FlowActions {
        self.out_of_place(now, &[], shared)
    }

    /// RFC 5961 section 3.
    fn handle_reset(&mut self, now: Time, tcp: &TcpHeader, shared: &mut SharedPools) -> FlowActions {
        if tcp.seq != self.receive.nxt {
            return self.challenge(now, shared);
        }
        shared.stats.resets_in += 1;
        // RFC 9293 section 3.10.7.4: our connection attempt was refused.
        let crossed = self.state == TcpState::SynReceived;
        let mut told = self.fail(if crossed { NetErrorKind::Refused } else { NetErrorKind::Reset });
        told.add(FlowActions::OVER);
        told
    }

    /// RFC 7323 section 4.3, rule (2): only for segments that are not beyond our last ACK.
    fn note_timestamp(&mut self, now: Time, tcp: &TcpHeader) {
        if let Some((value, _)) = tcp.options.timestamps
            && self.agreed.timestamps
            && tcp.seq.le(self.acks.last)
            && (value.wrapping_sub(self.agreed.ts_recent) as i32 >= 0
                || now.nanos_since(self.agreed.ts_recent_at) >= TS_RECENT_NS)
        {
            (self.agreed.ts_recent, self.agreed.ts_recent_at) = (value, now);
        }
    }

    /// RFC 9293 section 3.10.7.3.
    fn handle_in_syn_sent(
        &mut self,
        now: Time,
        tcp: &TcpHeader,
        payload: &[u8],
        shared: &mut SharedPools,
    ) -> FlowActions {
        let acks = tcp.flags.has(Flags::ACK);
        if acks && tcp.ack != self.send.nxt {
            // An answer to an earlier connection. The peer must learn that it is gone, or it will
            // never accept our SYN.
            if tcp.flags.has(Flags::RST) {
                return FlowActions::NOTHING;
            }
            let mut told = FlowActions::RESET;
            self.send.challenged_syns = self.send.challenged_syns.saturating_add(1);
            if self.send.challenged_syns == 1 {
                // The reset ends the peer's TIME_WAIT, so the SYN need not wait another second.
                self.set_timer(Timer::SynAgain, now + SOON_AGAIN);
                told.add(FlowActions::SEND);
            } else if self.send.challenged_syns <= PORTS_TRIED {
                // It did not: the peer will not accept this port (tcp_rfc1337=1, or a NAT that maps
                // it to another connection).
                told.add(FlowActions::MOVE);
            }
            return told;
        }
        if tcp.flags.has(Flags::RST) {
            if !acks {
                return FlowActions::NOTHING;
            }
            let mut told = self.fail(NetErrorKind::Refused);
            told.add(FlowActions::OVER);
            return told;
        }
        if !tcp.flags.has(Flags::SYN) {
            return FlowActions::NOTHING;
        }
        let options = &tcp.options;
        let sent_once = acks && self.timers.backoff == 0;
        // RFC 3168 section 6.1.1: not after a SYN that did not ask.
        let has_asked = self.agreed.ecn && self.timers.backoff == 0;
        let agreed = Agreed {
            iss: self.send.iss,
            irs: tcp.seq,
            window: tcp.window,
            scale: options.window_scale.map(|out| (out, self.agreed.scale_in)),
            sack: options.sack_permitted,
            timestamp: options.timestamps.map(|(value, _)| value),
            mss: self.send.mss.min(options.mss.unwrap_or(536).max(64)),
            ecn: has_asked && if acks { tcp.agrees_to_ecn() } else { tcp.asks_for_ecn() },
            sent_at: sent_once.then_some(self.send.sent_at),
        };
        let retried = self.timers.backoff > 0;
        if !acks {
            return self.cross(&agreed, now, shared);
        }
        self.send.una = tcp.ack;
        self.establish(&agreed, now, shared);
        self.after_lost_handshake(retried);
        self.acks.now = true;
        let mut told = FlowActions::ESTABLISHED;
        told.add(FlowActions::SEND);
        told.add(self.handle_payload(now, &TcpHeader { seq: tcp.seq + 1, ..*tcp }, payload, shared));
        told
    }

    /// Both ends sent a SYN at once (RFC 9293 section 3.5, figure 7).
    fn cross(&mut self, agreed: &Agreed, now: Time, shared: &SharedPools) -> FlowActions {
        let (una, told_mss) = (self.send.una, self.receive.mss);
        self.establish(agreed, now, shared);
        (self.send.una, self.receive.mss) = (una, told_mss);
        self.send.wl2 = una;
        self.state = TcpState::SynReceived;
        self.send.syn_due = true;
        FlowActions::SEND
    }

    /// RFC 6298 section 5.7 and RFC 5681 section 3.1: after a lost SYN the initial window is one
    /// segment.
    fn after_lost_handshake(&mut self, retried: bool) {
        if retried {
            self.congestion.window = self.congestion.initial() / 10;
        }
    }

    /// Handles the peer's FIN, received in order: RFC 9293 section 3.10.7.4, eighth check.
    pub(super) fn handle_fin(&mut self) -> FlowActions {
        self.receive.ended = true;
        self.acks.now = true;
        self.state = match self.state {
            TcpState::Established => TcpState::CloseWait,
            TcpState::FinWait1 => TcpState::Closing,
            TcpState::FinWait2 => TcpState::TimeWait,
            other => other,
        };
        let mut told = FlowActions::READABLE;
        told.add(FlowActions::SEND);
        if self.state == TcpState::TimeWait {
            told.add(FlowActions::OVER);
        }
        told
    }
}
