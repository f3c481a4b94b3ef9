//! What a connection adds to the record when it is forgotten, and when that is.

use std::net::SocketAddr;

use super::FlowConnection;
use crate::passive::flow::record::{Record, SharedRecord};
use crate::passive::observation::{Carried, ConnectionFault, ConnectionSummary, FaultKind};
use crate::passive::tls::Access;

/// Number of consecutive retransmissions, with nothing from the other end, after which a connection
/// is dead.
const UNHEARD: u32 = 3;
/// Time that lost segments take on a connection without a whole call before that is named,
/// nanoseconds.
const LOST_NS: i64 = 200_000_000;

/// A connection that has ended is kept for so long, nanoseconds. Reason: its last segments may come
/// again.
const ENDED_NS: i64 = 1_000_000_000;
/// A connection of which nothing but SYNs was seen is kept for so long, nanoseconds. Reason: the
/// second SYN comes after 1 s (RFC 6298), and after 3 s where that was lost, too.
const OPENS_NS: i64 = 3_000_000_000;
/// A connection that waits for no response is kept for so long, nanoseconds. Reason: servers and
/// clients in use close those that are idle for longer.
const IDLE_NS: i64 = 600_000_000_000;
/// A connection that waits for a response is kept for so long, nanoseconds. Reason: programs give up
/// sooner, or the host is gone.
const WAITING_NS: i64 = 3_600_000_000_000;

impl FlowConnection {
    /// The capture ends, or the entry is needed: closes what is open, and adds the connection to
    /// the sums.
    pub(in crate::passive::flow) fn finish(mut self, shared: &mut SharedRecord<'_>) {
        let now = self.last_ns;
        shared.record.faults.extend(self.fault(shared.limits.listed, shared.record.faults.len()));
        self.close(0, now, shared);
        self.close(1, now, shared);
        self.calls.finish(shared);
        if let Some(mut http2) = self.http2.take() {
            http2.end(&mut self.around(now, shared));
            self.http2 = Some(http2);
        }
        self.count_busy(now, shared);
        for direction in &mut self.directions {
            direction.bytes.drop_held(shared.budget);
            direction.messages.free_head(shared.budget);
        }
        let sums = &mut shared.record.sums;
        if let Some(mut tls) = self.tls.take() {
            tls.0.drop_held(shared.budget);
            let access = tls.0.access();
            *sums.tls_by(access) += 1;
            if access == Access::Open && self.carried == Carried::Tls {
                // Its content is readable, and there is none.
                self.carried = Carried::Nothing;
            }
        }
        sums.one_direction += u64::from(self.directions.iter().any(|d| d.segments == 0));
        sums.opened += u64::from(self.handshake.is_some_and(|h| h.whole_ns.is_some()));
        sums.not_opened += u64::from(self.handshake.is_some_and(|h| h.whole_ns.is_none()));
        sums.reset += u64::from(self.reset);
        sums.cut_by_client += u64::from(self.cut.is_some_and(|cut| cut.by_client));
        self.show(shared.limits.listed, shared.record);
        if let Some(owners) = &mut shared.record.owners {
            owners.forget(self.id);
        }
    }

    /// Adds to a record what the connection carries, and lists it.
    pub(in crate::passive::flow) fn show(&self, most: usize, record: &mut Record) {
        match self.carried {
            Carried::Nothing => {}
            Carried::Http => record.sums.http += 1,
            Carried::Tls => record.sums.tls += 1,
            Carried::Http2 => record.sums.http2 += 1,
            Carried::Other => record.sums.other += 1,
        }
        record.list(self.summary(), most);
    }

    /// When its last packet was captured.
    pub(in crate::passive::flow) fn last_ns(&self) -> i64 {
        self.last_ns
    }

    /// Client and server.
    pub(in crate::passive::flow) fn addresses(&self) -> (SocketAddr, SocketAddr) {
        (self.ends[self.client].addr(), self.ends[1 - self.client].addr())
    }

    /// Since when its oldest call waits for the end of its response, and how many calls do.
    pub(in crate::passive::flow) fn waiting(&self) -> Option<(i64, u64)> {
        match &self.http2 {
            Some(http2) => http2.streams.waiting(),
            None => self.calls.waiting(),
        }
    }

    /// Both ends have closed it, or one has reset it.
    pub(in crate::passive::flow) fn has_ended(&self) -> bool {
        self.reset || self.fins == [true; 2]
    }

    /// It has been quiet for so long that nothing more is expected of it.
    pub(in crate::passive::flow) fn is_over(&self, now: i64) -> bool {
        let quiet = now.saturating_sub(self.last_ns);
        let opens = self.handshake.is_some_and(|h| h.to_server_ns.is_none());
        if self.has_ended() {
            quiet >= ENDED_NS
        } else if opens {
            // Each SYN that is sent again comes after twice the time.
            quiet >= OPENS_NS.saturating_add(2 * (self.last_ns - self.first_ns))
        } else {
            quiet >= if self.waiting().is_some() { WAITING_NS } else { IDLE_NS }
        }
    }

    /// Faults of the connection itself, whatever it carried.
    fn fault(&self, most: usize, has: usize) -> Option<ConnectionFault> {
        if has >= most {
            return None;
        }
        let ends = self.addresses();
        let lasted = self.last_ns - self.first_ns;
        let fault =
            |kind, cost_ns| Some(ConnectionFault { kind, ends, cost_ns, segments: self.lost.segments });
        if let Some(h) = self.handshake {
            if self.refused {
                return fault(FaultKind::Refused, 0);
            }
            // Segments beyond SYNs show that there were replies, which the capture lacks.
            let only_syns = self.directions[self.client].segments == u64::from(h.syns);
            if h.to_server_ns.is_none() && self.directions[1 - self.client].segments == 0 && only_syns {
                return fault(FaultKind::NotOpened { syns: h.syns }, lasted);
            }
        }
        if let Some(cut) = self.cut.filter(|cut| !cut.by_client) {
            return fault(FaultKind::Cut { reset: cut.reset, begun: cut.begun }, lasted);
        }
        let closed = self.directions.iter().position(|d| d.closed_since.is_some_and(|at| self.last_ns > at));
        if let Some(dir) = closed.filter(|_| !self.reset && self.fins == [false; 2]) {
            let since = self.directions[dir].closed_since.unwrap_or(self.last_ns);
            return fault(FaultKind::WindowClosed { of_client: dir == self.client }, self.last_ns - since);
        }
        if let Some(dir) = self.unheard.iter().position(|(_, times)| *times >= UNHEARD) {
            return fault(FaultKind::Died { from_client: dir == self.client }, lasted);
        }
        // Calls report their own losses.
        let both = self.directions.iter().all(|d| d.segments > 0);
        let whole = self.calls.any_whole() || self.http2.as_ref().is_some_and(|h| h.streams.any_whole());
        let none = both && !whole;
        (none && self.lost.cost_ns >= LOST_NS)
            .then_some(())
            .and_then(|()| fault(FaultKind::Lossy, self.lost.cost_ns))
    }

    fn summary(&self) -> ConnectionSummary {
        let streams = self.http2.as_ref().map_or((0, 0), |h| (h.streams.requests, h.streams.answers));
        let (c, s) = (&self.directions[self.client], &self.directions[1 - self.client]);
        ConnectionSummary {
            id: self.id,
            client: self.ends[self.client].addr(),
            server: self.ends[1 - self.client].addr(),
            segments: [c.segments, s.segments],
            bytes: [c.data_bytes, s.data_bytes],
            marks: [c.marks, s.marks],
            handshake: self.handshake,
            carried: self.carried,
            requests: self.calls.requests + streams.0,
            answers: self.calls.answers + streams.1,
            reset: self.reset,
            first_ns: self.first_ns,
            last_ns: self.last_ns,
        }
    }
}
