//! Sends what each changed connection may send now, and advances closed connections.

use std::io;
use std::time::Duration;

use super::Stack;
use super::core::{Core, mss_of};
use super::flow::TcpState;
use super::time_wait::Remains;
use super::wire::{Flags, TcpHeader, emit, headers_len};
use crate::closing::Closing;
use crate::link::Link;
use crate::{Conn, Event, Time};

/// Connections that the link may refuse in one flush before the others wait for the next. Reason:
/// with a hundred thousand connections, trying each on a full link would let incoming packets
/// overrun it. Some of the refused may only lack a next hop.
const REFUSALS: usize = 64;

/// Packets handed to the link before a flush of the link. Reason: each flush costs, but early
/// packets must not wait long for the last.
const HANDED: usize = 64;

/// A link flush this late means that the process was held up. Reason: it is a small fraction of the
/// minimum RTO.
const LATE: Duration = Duration::from_millis(1);

/// The result of sending a connection's segments.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Left {
    All,
    /// The link must be flushed before more fits.
    Some,
    /// The link had no room.
    Refused,
}

impl<L: Link> Stack<L> {
    /// Sends what may be sent, and flushes the link.
    pub(super) fn flush(&mut self) -> io::Result<()> {
        self.core.now = self.link.now();
        let mut dirty = std::mem::take(&mut self.core.dirty);
        let (mut kept, mut looked) = (0, 0);
        while looked < dirty.len() && kept < REFUSALS {
            let slot = dirty[looked];
            looked += 1;
            if !self.flush_flow(slot)? {
                dirty[kept] = slot;
                kept += 1;
            }
        }
        // Next time, slots not visited come first, then those that the link refused, then those
        // that changed meanwhile.
        dirty.copy_within(looked.., kept);
        dirty.truncate(dirty.len() - (looked - kept));
        dirty.rotate_left(kept);
        dirty.append(&mut self.core.dirty);
        self.core.dirty = dirty;
        self.send_replies();
        self.let_go()
    }

    /// Flushes the link. If that was late (the process lost its CPU), timers of those segments
    /// start late too.
    fn let_go(&mut self) -> io::Result<()> {
        match self.link.flush() {
            // A link that is down loses packets as a network does: timers retransmit them.
            Err(e) if e.raw_os_error() == Some(libc::ENETDOWN) => {}
            flushed => flushed?,
        }
        self.handed = 0;
        if self.leaving.is_empty() {
            return Ok(());
        }
        let core = &mut self.core;
        let before = std::mem::replace(&mut core.now, self.link.now());
        let late = core.now - before;
        if late > LATE {
            for slot in &self.leaving {
                if let Some((_, entry)) = core.table.by_slot(*slot) {
                    entry.flow.wait_longer(late);
                }
            }
        }
        self.leaving.clear();
        Ok(())
    }

    fn send_replies(&mut self) {
        while let Some((tuple, tcp)) = self.core.replies.front() {
            let len = headers_len(&tuple.remote, tcp);
            let sent = self.link.transmit(tuple.remote.ip(), len, |packet| {
                emit(&tuple.local, &tuple.remote, tcp, packet, |_| {});
            });
            if !sent && !self.link.has_room() {
                return self.core.shared.stats.link_full += 1;
            }
            // A reply without a next hop (invented addresses in a flood) is dropped, or it would
            // block all others. Real peers retry.
            self.core.shared.stats.packets_out += u64::from(sent);
            self.core.shared.stats.no_way += u64::from(!sent);
            self.core.replies.pop();
        }
    }

    /// Returns `false` if the link had no room for all of it.
    fn flush_flow(&mut self, slot: u32) -> io::Result<bool> {
        let Some((conn, entry)) = self.core.table.by_slot(slot) else { return Ok(true) };
        if !entry.dirty {
            return Ok(true);
        }
        if entry.closing.is_some() {
            self.core.advance_closing(conn);
        }
        loop {
            match self.send_segments(conn) {
                Left::All => break,
                Left::Some => self.let_go()?,
                Left::Refused => return Ok(false),
            }
        }
        let core = &mut self.core;
        let Some(mut entry) = core.table.get_mut(conn) else { return Ok(true) };
        if entry.closing.is_some() {
            core.advance_closing(conn);
            let Some(left) = core.table.get_mut(conn) else { return Ok(true) };
            entry = left;
        }
        entry.dirty = false;
        entry.flow.settle(core.now, &core.shared);
        if entry.flow.held_back(&core.shared) > 0 {
            entry.waited.set(true);
        } else if entry.waited.replace(false) && entry.closing.is_none() && entry.flow.error.is_none() {
            core.pending.push(Event::Drained { conn });
        }
        core.wheel.set_by(slot, entry.flow.deadline());
        Ok(true)
    }

    fn send_segments(&mut self, conn: Conn) -> Left {
        let core = &mut self.core;
        let Some(entry) = core.table.get_mut(conn) else { return Left::All };
        if entry.flow.is_stalled() {
            // No ACKs come: the path may have become narrower.
            let mtu = self.link.mtu(entry.flow.tuple.remote.ip());
            entry.flow.limit_mss(mss_of(mtu, &entry.flow.tuple.remote));
        }
        let shared = &mut core.shared;
        let before = self.handed;
        while let Some(outgoing) = entry.flow.next(core.now) {
            let (local, remote) = (entry.flow.tuple.local, entry.flow.tuple.remote);
            let tcp: &TcpHeader = &outgoing.tcp;
            let len = headers_len(&remote, tcp) + outgoing.len;
            let flow = &mut entry.flow;
            let sent = self.link.transmit(remote.ip(), len, |packet| {
                emit(&local, &remote, tcp, packet, |payload| flow.fill(&outgoing, shared, payload));
            });
            if !sent {
                if self.link.has_room() {
                    shared.stats.no_way += 1;
                } else {
                    shared.stats.link_full += 1;
                }
                return Left::Refused;
            }
            shared.stats.packets_out += 1;
            entry.flow.commit(core.now, &outgoing, shared);
            if self.handed == before {
                self.leaving.push(conn.slot);
            }
            self.handed += 1;
            if self.handed >= HANDED {
                return Left::Some;
            }
        }
        Left::All
    }

    /// Polls the waker, for loops that are too busy to wait.
    pub(super) fn look_for_waker(&mut self, events: &mut Vec<Event>) -> io::Result<()> {
        if self.link.wait(Some(Time::ZERO))? {
            events.push(Event::Woken);
        }
        Ok(())
    }
}

impl Core {
    /// Begins to close a connection that the application has closed.
    pub(super) fn begin_closing(&mut self, conn: Conn, closing: Closing) {
        let now = self.now;
        let Some(entry) = self.table.get_mut(conn) else { return };
        entry.closing = Some(closing);
        entry.low_water_or_discarded = 0;
        let resets = entry.resets;
        let flow = &mut entry.flow;
        flow.read(now, usize::MAX, &mut self.shared, |_| {});
        match closing {
            Closing::Flush => {
                flow.become_orphan(now, &self.shared);
                if !resets {
                    flow.finish();
                }
            }
            Closing::Linger | Closing::FlushThenLinger => flow.finish(),
            Closing::AfterPeer | Closing::FlushThenAfterPeer => {}
        }
        self.touch(conn);
        self.await_peer(conn, closing);
    }

    /// Limits the time that a connection waits for its peer alone.
    fn await_peer(&mut self, conn: Conn, closing: Closing) {
        if closing.is_flush() {
            return;
        }
        let table = &self.table;
        let waits_for = |conn| table.get(conn).and_then(|entry| entry.closing);
        if let Some(oldest) = self.closing.push(&self.limits, self.now, (conn, closing), waits_for) {
            self.end_patience(oldest);
        }
    }

    /// Moves the connection that has lingered longest out of the table if it is full. Says whether
    /// there is room now.
    pub(super) fn make_room(&mut self) -> bool {
        if !self.table.is_full() {
            return true;
        }
        let table = &self.table;
        let oldest = self.closing.oldest(|conn| table.get(conn).and_then(|entry| entry.closing));
        oldest.is_some_and(|conn| self.end_at_once(conn)) && !self.table.is_full()
    }

    /// Ends a connection that waits for nothing but its peer's FIN: it goes on as FIN_WAIT_2. A FIN
    /// of ours that gets lost is not retransmitted, as all data has arrived.
    fn end_at_once(&mut self, conn: Conn) -> bool {
        let Some(entry) = self.table.get_mut(conn) else { return false };
        let (hash, fin_due, owes) = (entry.hash, !entry.flow.fin_sent(), entry.flow.wants_to_send());
        let mut remains = Remains::new(entry.flow.tuple, entry.flow.remains(), true, self.now);
        if fin_due {
            self.answer_of(&remains, Flags::FIN | Flags::ACK);
            remains.nxt += 1;
        } else if owes {
            self.answer_of(&remains, Flags::ACK);
        }
        self.leave(conn.slot, hash, Some(remains));
        self.drop_entry(conn);
        true
    }

    /// Resets some connections that the application has closed and that are not over.
    pub(super) fn reset_closed(&mut self, most: usize) -> usize {
        let open = (0..self.table.slots() as u32).filter_map(|slot| {
            let entry = self.table.at(slot).filter(|entry| entry.closing.is_some())?;
            Some((slot, entry.flow.tuple, entry.flow.reset_header()))
        });
        let open: Vec<_> = open.take(most).collect();
        let waiting = self.waits.some_fin_waits(most - open.len());
        let count = open.len() + waiting.len();
        self.shared.stats.resets_out += count as u64;
        for (slot, tuple, reset) in open {
            self.replies.push(&tuple, reset);
            if let Some((conn, _)) = self.table.by_slot(slot) {
                self.remove(conn);
            }
        }
        for index in waiting {
            if let Some(remains) = self.waits.get(index) {
                self.replies.push(&remains.tuple, remains.reset_header());
            }
            self.forget(index);
        }
        count
    }

    /// Advances a closed connection as far as possible.
    pub(super) fn advance_closing(&mut self, conn: Conn) {
        let Some(entry) = self.table.get_mut(conn) else { return };
        let Some(closing) = entry.closing else { return };
        let flow = &mut entry.flow;
        match closing {
            Closing::Flush if entry.resets && flow.all_acked() => {
                let (tuple, reset) = (flow.tuple, flow.reset_header());
                self.shared.stats.resets_out += 1;
                self.replies.push(&tuple, reset);
                self.remove(conn);
            }
            // The last two: both sides were closed before the application let go.
            Closing::Flush
                if matches!(flow.state, TcpState::FinWait2 | TcpState::TimeWait | TcpState::Closed) =>
            {
                self.retire(conn);
            }
            Closing::FlushThenLinger if flow.all_acked() => {
                entry.closing = Some(Closing::Linger);
                self.await_peer(conn, Closing::Linger);
            }
            Closing::AfterPeer | Closing::FlushThenAfterPeer if flow.receive.ended => {
                entry.closing = Some(Closing::Flush);
                flow.become_orphan(self.now, &self.shared);
                flow.finish();
            }
            Closing::FlushThenAfterPeer if flow.all_acked() => {
                entry.closing = Some(Closing::AfterPeer);
                self.await_peer(conn, Closing::AfterPeer);
            }
            _ => {}
        }
    }
}
