//! What segments show of lost time: losses, disorder, windows that were full, delayed ACKs.

use super::FlowConnection;
use crate::passive::flow::order::{Fate, Late, Undone};
use crate::passive::flow::pending::closed_window;
use crate::passive::flow::record::SharedRecord;
use crate::passive::flow::sequence::Marks;
use crate::passive::packet::{Segment, flag};

/// Data that had waited for room leaves within this time after the room was given, and the way from
/// there, nanoseconds. Reason: the sender has to be scheduled, on a busy machine too.
const READY_NS: i64 = 3_000_000;
/// A receiver that gives room later than this, and later than the way takes, did not read,
/// nanoseconds.
const READ_NS: i64 = 1_000_000;

/// Round trips from where we capture: to the sender of a segment, and to the other end.
#[derive(Clone, Copy, Debug)]
struct Ways {
    to_sender: i64,
    to_peer: i64,
    /// Both, where a handshake tells them.
    whole: Option<i64>,
}

impl FlowConnection {
    fn ways(&self, from_client: bool) -> Ways {
        let h = self.handshake.unwrap_or_default();
        let (to_server, to_client) = (h.to_server_ns.unwrap_or(0), h.to_client_ns.unwrap_or(0));
        let whole = h.to_server_ns.zip(h.to_client_ns).map(|(a, b)| a.saturating_add(b));
        match from_client {
            true => Ways { to_sender: to_client, to_peer: to_server, whole },
            false => Ways { to_sender: to_server, to_peer: to_client, whole },
        }
    }

    /// Losses, closed windows and delayed ACKs, with what they cost the call they fall into.
    pub(super) fn time_losses(
        &mut self,
        dir: usize,
        s: &Segment<'_>,
        now: i64,
        since_last: i64,
        marks: Marks,
        shared: &mut SharedRecord<'_>,
    ) {
        let from_client = dir == self.client;
        let ways = self.ways(from_client);
        let undone = self.directions[1 - dir].order.peer(s, now, ways.whole);
        self.undo(1 - dir, undone, now, shared);
        let probe = marks.has(Marks::KEEP_ALIVE) || marks.has(Marks::ZERO_WINDOW_PROBE);
        let late = (s.len > 0 && !probe).then(|| self.directions[dir].order.segment(s, now, ways.whole));
        let late = late.flatten();
        if let Some(late) = late {
            self.came_late(dir, s, now, (late, since_last.max(0)), marks, shared);
        }
        self.window_moves(dir, s, now, marks);
        let to_peer = ways.to_peer;
        let me = &mut self.directions[dir];
        me.window.advertised(s, now, me.side.scale, to_peer);
        let all = s.has(flag::ACK) && self.directions[1 - dir].side.next == Some(s.ack);
        self.directions[1 - dir].watch.peer(s, now, all);
        let fresh =
            s.len > 0 && late.is_none() && !marks.has(Marks::RESENT) && !marks.has(Marks::OUT_OF_ORDER);
        if fresh {
            self.fresh(dir, s, now, ways);
        }
    }

    /// A segment with old bytes, or one that fills a hole.
    fn came_late(
        &mut self,
        dir: usize,
        s: &Segment<'_>,
        now: i64,
        (late, since_last): (Late, i64),
        marks: Marks,
        shared: &mut SharedRecord<'_>,
    ) {
        // What is sent again into a closed or full window probes it, or found no room in the
        // receiver; the rule of the window reports that time.
        let full = self.directions[1 - dir].closed_since.is_some() || self.is_kept_waiting(dir);
        let closed = full && !late.filled;
        self.undo(dir, late.undone, now, shared);
        let server = self.ends[1 - self.client].addr();
        let order = shared.record.late(server);
        match late.fate {
            Fate::Lost if closed => {}
            Fate::Lost => {
                order.lost += 1;
                order.told += 1;
                let waited = late.held.max(since_last);
                self.lost.segments += 1;
                self.lost.cost_ns = self.lost.cost_ns.saturating_add(since_last);
                let fast = marks.has(Marks::FAST_RETRANSMISSION);
                self.lost_segment(dir, s, now, (waited, fast), shared);
            }
            Fate::Overtaken => {
                order.overtaken += 1;
                self.overtaken(dir, now, 1, late.held);
            }
            // The first one, which shows that its repetition was needless, is not another one.
            Fate::Needless => order.needless += u64::from(late.undone.segments == 0),
        }
    }

    /// The sender in that direction waits for room in a window.
    fn is_kept_waiting(&self, dir: usize) -> bool {
        let known = self.directions[1 - dir].window.admits();
        let sent = self.directions[dir].side.next;
        let least = u32::from(self.directions[dir].watch.mss.unwrap_or(1)).min(LEAST_ROOM);
        known.zip(sent).is_some_and(|(known, sent)| (known.wrapping_sub(sent) as i32) < least as i32)
    }

    /// Segments of direction `dir` that seemed to be lost were not.
    fn undo(&mut self, dir: usize, undone: Undone, now: i64, shared: &mut SharedRecord<'_>) {
        if undone == Undone::default() {
            return;
        }
        let n = u64::from(undone.segments);
        shared.record.not_lost(self.ends[1 - self.client].addr(), n, undone.overtaken.into());
        self.lost.segments = self.lost.segments.saturating_sub(n);
        self.lost.cost_ns = (self.lost.cost_ns - undone.told).max(0);
        if self.http2.is_none() {
            self.calls.undo(dir == self.client, undone);
        }
        if undone.overtaken > 0 {
            self.overtaken(dir, now, undone.overtaken, undone.held);
        }
    }

    /// The window of a segment's sender closes, or opens again.
    fn window_moves(&mut self, dir: usize, s: &Segment<'_>, now: i64, marks: Marks) {
        let from_client = dir == self.client;
        let me = &mut self.directions[dir];
        if marks.has(Marks::ZERO_WINDOW) {
            me.closed_since.get_or_insert(now);
        } else if s.window > 0
            && !s.has(flag::RST)
            && let Some(since) = me.closed_since.take()
        {
            match &mut self.http2 {
                Some(http2) => http2.closed_window(&closed_window(since, now - since, from_client)),
                None => self.calls.closed_window(since, now - since, from_client),
            }
            let other = &mut self.directions[1 - dir];
            other.kept.add(now - since.max(other.sent.unwrap_or(since)), true);
            // The time that the other end has waited until now counts.
            other.sent = Some(now);
        }
    }

    /// New data: had it waited for room in the window, or for an ACK?
    fn fresh(&mut self, dir: usize, s: &Segment<'_>, now: i64, ways: Ways) {
        let from_client = dir == self.client;
        let end = s.seq.wrapping_add(s.len);
        let (me, peer) = (&self.directions[dir], &self.directions[1 - dir]);
        let (mss, sent) = (me.watch.mss, me.sent);
        let waited = sent.map_or(0, |sent| now - sent);
        // It did not fit into what was admitted when its sender last sent, and left when it did.
        let room_at = me.admitted.and_then(|admitted| peer.window.room_since(admitted, end));
        let room_at = room_at.filter(|at| now - at <= ways.to_sender + ways.to_sender / 4 + READY_NS);
        let open = peer.closed_since.is_none();
        let small = peer.window.filled(end, now, ways.to_sender, mss).filter(|_| open);
        let unread = room_at
            .zip(sent)
            .filter(|(at, sent)| at - sent - ways.to_peer > READ_NS.max(ways.whole.unwrap_or(0)) && open);
        let unread = unread.and_then(|_| peer.window.size());
        let size = small.or(unread);
        let known = peer.window.known(now, ways.to_sender);
        let me = &mut self.directions[dir];
        (me.admitted, me.sent) = (known, Some(now));
        if room_at.is_some() {
            me.kept.add(waited, size.is_some());
        }
        if let Some(size) = size {
            match &mut self.http2 {
                Some(http2) => http2.small_window(dir, now - waited, waited, size),
                None => self.calls.small_window(now - waited, waited, size, !from_client),
            }
        }
        if !from_client && self.http2.is_none() {
            self.calls.answer_data(now, s.len);
        }
        let stall = self.directions[dir].watch.data(s, now, ways.to_sender, ways.to_peer);
        if let Some(stall) = stall.filter(|_| room_at.is_none()) {
            self.stalled(dir, stall, from_client);
        }
    }
}

/// A sender with less room than this, or than a segment, waits for more, bytes.
const LEAST_ROOM: u32 = 16 << 10;
