//! The one timer of the sending side, and the one of a delayed ACK.

use std::time::Duration;

use super::parts::{Timer, millis};
use super::{Flow, FlowActions, TcpState};
use crate::stack::shared::SharedPools;
use crate::{NetErrorKind, Time};

/// A tail loss probe comes no sooner. Reason: the peer's machine may be busy. Linux waits two ticks
/// beyond its two round trips, 8 ms on most machines; RFC 8985's drafts wait 10 ms.
const LEAST_PROBE_NS: u64 = 10_000_000;
/// How long a peer may delay an ACK: that of a single segment (RFC 8985 section 7.2), and that of a
/// full window. Reason: Linux waits 40 ms.
const PEERS_ACK_DELAY_NS: u64 = 50_000_000;

/// Timeouts that an orphan waits for, at least, as they are without backoff.
const LOST_BY_ORPHANS: u64 = 3;

/// Plain nanoseconds: a `Duration` costs a division and two multiplications.
fn after(now: Time, ns: u64) -> Time {
    Time::from_nanos(now.as_nanos().saturating_add(ns))
}

impl Flow {
    pub(super) fn set_timer(&mut self, timer: Timer, at: Time) {
        (self.timers.kind, self.timers.at) = (timer, at);
    }

    /// Sets the timer for the data in flight. `now`: data was just acknowledged or sent.
    pub(super) fn arm(&mut self, now: Time, shared: &SharedPools) {
        if self.state == TcpState::SynSent || self.state == TcpState::SynReceived {
            return self.set_timer(Timer::Retransmission, self.timeout(now, shared));
        }
        if self.send.una == self.send.nxt {
            let waits = self.unsent() > 0 || (self.send.fin && !self.send.fin_sent);
            if waits && self.window_room() < self.next_len() as u32 {
                if self.timers.kind != Timer::Persist {
                    self.set_timer(Timer::Persist, self.timeout(now, shared));
                }
            } else {
                self.set_timer(Timer::None, Time::NEVER);
            }
            return;
        }
        let rto = self.timeout(now, shared);
        match self.tail_probe_due(now) {
            Some(at) if at < rto => self.set_timer(Timer::TailProbe, at),
            _ => self.set_timer(Timer::Retransmission, rto),
        }
    }

    /// The last segments left late by `late`, so the peer could not answer before.
    pub(crate) fn wait_longer(&mut self, late: Duration) {
        if self.timers.kind != Timer::None {
            self.timers.at = self.timers.at + late;
        }
    }

    /// RFC 8985 section 7.2.
    fn tail_probe_due(&self, now: Time) -> Option<Time> {
        let quiet =
            !self.recovery.active && self.send.sacked == 0 && self.send.lost == 0 && self.timers.backoff == 0;
        if !quiet || self.tail.end.is_some() || self.rtt.smoothed() == 0 {
            return None;
        }
        if !self.agreed.sack && self.send.sent.len() > 1 {
            return None;
        }
        let mut wait = 2 * self.rtt.smoothed();
        // Linux also delays ACKs while its reader leaves it no window to announce.
        let window_limited = self.unsent() > 0 && self.window_room() < u32::from(self.send.mss);
        if self.send.sent.len() == 1 || window_limited {
            wait += PEERS_ACK_DELAY_NS;
        }
        Some(after(now, wait.max(LEAST_PROBE_NS)))
    }

    /// Handles the deadline.
    pub(crate) fn handle_deadline(&mut self, now: Time, shared: &mut SharedPools) -> FlowActions {
        let mut told = FlowActions::NOTHING;
        if self.acks.at <= now {
            self.acks.at = Time::NEVER;
            self.acks.now = true;
            told.add(FlowActions::SEND);
        }
        if self.pace.due <= now {
            self.pace.due = Time::NEVER;
            told.add(FlowActions::SEND);
        }
        if self.timers.at > now {
            return told;
        }
        told.add(FlowActions::SEND);
        let timer = self.timers.kind;
        self.set_timer(Timer::None, Time::NEVER);
        match timer {
            Timer::None => {}
            Timer::Reorder => {
                self.detect_losses(now, shared);
                if self.timers.kind == Timer::None {
                    self.arm(now, shared);
                }
            }
            Timer::TailProbe => self.send_tail_probe(now, shared),
            Timer::Persist => {
                self.timers.backoff = self.timers.backoff.saturating_add(1);
                self.send.probe = true;
                shared.stats.zero_windows += 1;
                self.set_timer(Timer::Persist, self.timeout(now, shared));
                // Probes that are answered continue forever (RFC 9293 section 3.8.6.1). Unanswered
                // ones end, and so do those of a connection that the application has closed.
                if self.lacks_patience(now, shared) {
                    told.add(self.give_up());
                }
            }
            Timer::SynAgain => {
                self.send.syn_due = true;
                self.arm(now, shared);
            }
            Timer::Retransmission => told.add(self.time_out(now, shared)),
        }
        told
    }

    /// When the next timeout passes. That of an orphan is no later than its end.
    pub(super) fn timeout(&self, now: Time, shared: &SharedPools) -> Time {
        let at = after(now, self.rtt.rto_ns(self.timers.backoff, &shared.limits));
        if self.receive.deaf { at.min(now + self.orphan_time(now, shared)) } else { at }
    }

    /// How long an orphan still waits for its peer to take something. On the slowest paths several
    /// segments have to be lost.
    fn orphan_time(&self, now: Time, shared: &SharedPools) -> Duration {
        let waited = Duration::from_millis(millis(now).wrapping_sub(self.send.moved_ms).into());
        let lost = Duration::from_nanos(LOST_BY_ORPHANS * self.rtt.rto_ns(0, &shared.limits));
        let patience = shared.limits.orphan_patience.max(lost);
        patience.saturating_sub(waited)
    }

    /// The application has closed the connection and reads nothing more. Its patience begins, and
    /// ends however far away the next timeout is.
    pub(crate) fn become_orphan(&mut self, now: Time, shared: &SharedPools) {
        self.receive.deaf = true;
        self.send.moved_ms = millis(now);
        if matches!(self.timers.kind, Timer::Retransmission | Timer::Persist) {
            self.timers.at = self.timers.at.min(now + self.orphan_time(now, shared));
        }
    }

    /// Whether the peer has been silent too long. An orphan's must take something, too: it holds a
    /// slot that no application uses.
    fn lacks_patience(&self, now: Time, shared: &SharedPools) -> bool {
        if self.receive.deaf {
            return self.orphan_time(now, shared).is_zero();
        }
        now.nanos_since(self.timers.waiting_since) > shared.limits.patience.as_nanos() as u64
    }

    fn give_up(&mut self) -> FlowActions {
        let mut told = self.fail(NetErrorKind::TimedOut);
        told.add(FlowActions::OVER);
        told
    }

    /// A retransmission timeout has passed (RFC 6298 section 5.4 to 5.6).
    fn time_out(&mut self, now: Time, shared: &mut SharedPools) -> FlowActions {
        shared.stats.timeouts += 1;
        let handshake = matches!(self.state, TcpState::SynSent | TcpState::SynReceived);
        let over = if handshake {
            self.timers.backoff >= shared.limits.handshake_retries
        } else {
            self.lacks_patience(now, shared)
        };
        if over {
            return self.give_up();
        }
        self.timers.backoff = self.timers.backoff.saturating_add(1);
        if handshake {
            self.send.syn_due = true;
        } else {
            self.all_lost(now);
            self.suspect_black_hole();
        }
        self.set_timer(Timer::Retransmission, self.timeout(now, shared));
        FlowActions::NOTHING
    }
}
