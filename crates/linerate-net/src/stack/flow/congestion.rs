//! Explicit congestion notification (RFC 3168): what marks of routers mean for both directions.

use super::Flow;
use super::ack::Acked;
use crate::stack::shared::SharedPools;
use crate::stack::wire::{Ecn, Flags, TcpHeader};

impl Flow {
    /// Section 6.1.3: after a mark each ACK says so, until the peer says that it sends less. Both at
    /// once are a new mark.
    pub(super) fn note_marks(&mut self, tcp: &TcpHeader, shared: &mut SharedPools) {
        if !self.agreed.ecn {
            return;
        }
        if tcp.flags.has(Flags::CWR) {
            // Its window may be a single segment, which waits for this ACK.
            (self.receive.marked, self.acks.now) = (false, true);
        }
        if tcp.ecn == Ecn::Marked {
            shared.stats.marks_in += 1;
            self.acks.now |= !self.receive.marked;
            self.receive.marked = true;
        }
    }

    /// Whether the peer says by this segment that a router has marked one of ours.
    pub(super) fn tells_of_a_mark(&self, tcp: &TcpHeader) -> bool {
        self.agreed.ecn && tcp.flags.has(Flags::ECE)
    }

    /// Section 6.1.2: a mark is a sign of congestion like a loss.
    pub(super) fn react_to_mark(&mut self, acked: &Acked, shared: &mut SharedPools) {
        if !acked.marked {
            return;
        }
        if self.recovery.active {
            // The window is reduced already, and that was right.
            self.recovery.undo = None;
        } else if self.reduce() {
            shared.stats.marks_heeded += 1;
            self.congestion.window = self.congestion.window.min(self.congestion.threshold);
        }
    }

    /// Sets the threshold after a sign of congestion. With ECN, marks and losses of one window count
    /// once. Returns whether it is the first.
    pub(super) fn reduce(&mut self) -> bool {
        if self.agreed.ecn {
            // An ACK of just that window cannot tell of the next.
            if self.send.una.le(self.send.reduced_until) {
                return false;
            }
            (self.send.cwr_due, self.send.reduced_until) = (true, self.send.nxt);
        }
        self.congestion.lost();
        true
    }
}
