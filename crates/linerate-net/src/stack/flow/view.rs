//! A connection as users see it.

use super::{Flow, TcpState};
use crate::stack::options::StackLimits;
use crate::{AgreedOptions, FlowInfo, FlowState, Time};

impl Flow {
    /// A snapshot. No state is kept for it alone.
    pub(crate) fn view(&self, now: Time, limits: &StackLimits) -> FlowInfo {
        let unacked =
            if self.state == TcpState::Closed { 0 } else { self.sent_bytes().min(self.send.out.len()) };
        let lately = self
            .send
            .sent_at
            .max(self.timers.waiting_since)
            .max(self.agreed.ts_recent_at)
            .max(self.receive.since);
        let agreed = &self.agreed;
        let threshold = self.congestion.threshold;
        FlowInfo {
            local: self.tuple.own(),
            remote: self.tuple.peer(),
            state: match self.state {
                TcpState::SynSent => FlowState::SynSent,
                TcpState::SynReceived => FlowState::SynReceived,
                TcpState::Established => FlowState::Established,
                TcpState::FinWait1 => FlowState::FinWait1,
                TcpState::FinWait2 => FlowState::FinWait2,
                TcpState::CloseWait => FlowState::CloseWait,
                TcpState::Closing => FlowState::Closing,
                TcpState::LastAck => FlowState::LastAck,
                TcpState::TimeWait | TcpState::Closed => FlowState::Closed,
            },
            unread_bytes: self.inbox_len(),
            unsent_bytes: self.send.out.len() - unacked,
            unacked_bytes: unacked,
            cwnd_bytes: self.congestion.window,
            ssthresh_bytes: (threshold != u32::MAX).then_some(threshold),
            peer_window_bytes: self.send.wnd,
            mss_bytes: self.send.mss,
            agreed: AgreedOptions {
                timestamps: agreed.timestamps,
                sack: agreed.sack,
                ecn: agreed.ecn,
                send_shift: agreed.scaled.then_some(agreed.scale_out),
                receive_shift: agreed.scaled.then_some(agreed.scale_in),
            },
            rtt_variation_us: u32::try_from(self.rtt.variation() / 1000).unwrap_or(u32::MAX),
            rto_us: self.rtt.rto_ns(self.timers.backoff, limits) / 1000,
            idle_ms: now.nanos_since(lately) / 1_000_000,
            tcp: self.info(now),
        }
    }
}
