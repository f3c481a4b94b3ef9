//! What leaves: for each connection that was touched, all that may be sent now; and how closed ones move on.

use std::io;
use std::time::Duration;

use super::Stack;
use super::core::{Core, mss_of};
use super::flow::State;
use super::wire::{TcpHeader, emit, headers_len};
use crate::closing::Closing;
use crate::link::Link;
use crate::{Conn, Event, Time};

/// Connections that the link refuses in one flush before the others wait for the next. Reason: a full link is asked in vain by
/// each of a hundred thousand, while what comes in overruns it; but some of the refused may only lack a way to their peer.
const REFUSALS: usize = 64;

/// Packets that are handed to the link before it lets them go. Reason: each call to it costs, and what is handed over first gets old
/// while the last is made.
const HANDED: usize = 64;

/// A link that lets packets go so late was kept from it. Reason: a small part of the least time-out.
const LATE: Duration = Duration::from_millis(1);

/// What became of a connection's segments.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Left {
    All,
    /// The link has to let go what it has.
    Some,
    /// The link had no room.
    Refused,
}

impl<L: Link> Stack<L> {
    /// Sends what may be sent, and lets the link have it.
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
        // Those that were not looked at are first the next time, then those the link had no room for, then what was touched
        // meanwhile.
        dirty.copy_within(looked.., kept);
        dirty.truncate(dirty.len() - (looked - kept));
        dirty.rotate_left(kept);
        dirty.append(&mut self.core.dirty);
        self.core.dirty = dirty;
        self.send_replies();
        self.let_go()
    }

    /// Everything that was handed to the link leaves. Should that have taken long (a process that lost its core), timers of what
    /// leaves late begin late.
    fn let_go(&mut self) -> io::Result<()> {
        match self.link.flush() {
            // A link that is down has lost it, as a network would: the timers send it again.
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
        for slot in self.leaving.drain(..) {
            if late > LATE
                && let Some((_, entry)) = core.table.by_slot(slot)
            {
                entry.flow.wait_longer(late);
                core.wheel.set(slot, entry.flow.deadline());
            }
        }
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
            // One that has no way to its peer (a flood's invented addresses) is given up, or it would keep back all others;
            // peers ask again.
            self.core.shared.stats.packets_out += u64::from(sent);
            self.core.shared.stats.no_way += u64::from(!sent);
            self.core.replies.pop();
        }
    }

    /// `false` when the link had no room for all of it.
    fn flush_flow(&mut self, slot: u32) -> io::Result<bool> {
        let Some((conn, entry)) = self.core.table.by_slot(slot) else { return Ok(true) };
        if !entry.dirty {
            return Ok(true);
        }
        self.core.advance_closing(conn);
        loop {
            match self.send_segments(conn) {
                Left::All => break,
                Left::Some => self.let_go()?,
                Left::Refused => return Ok(false),
            }
        }
        let core = &mut self.core;
        core.advance_closing(conn);
        let Some(entry) = core.table.get_mut(conn) else { return Ok(true) };
        entry.dirty = false;
        entry.flow.settle(core.now, &core.shared);
        if entry.flow.held_back(core.shared.limits.send_buffer) > 0 {
            entry.waited.set(true);
        } else if entry.waited.replace(false) && entry.closing.is_none() && entry.flow.error.is_none() {
            core.pending.push(Event::Drained { conn });
        }
        core.wheel.set(slot, entry.flow.deadline());
        Ok(true)
    }

    fn send_segments(&mut self, conn: Conn) -> Left {
        let core = &mut self.core;
        let Some(entry) = core.table.get_mut(conn) else { return Left::All };
        if entry.flow.is_stalled() {
            // Nothing comes back: the path may have become narrower.
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
                shared.stats.link_full += 1;
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

    /// A signal that came while there was enough to do.
    pub(super) fn look_for_waker(&mut self, events: &mut Vec<Event>) -> io::Result<()> {
        if self.link.wait(Some(Time::ZERO))? {
            events.push(Event::Woken);
        }
        Ok(())
    }
}

impl Core {
    /// The application has closed a connection.
    pub(super) fn begin_closing(&mut self, conn: Conn, closing: Closing) {
        let now = self.now;
        let Some(entry) = self.table.get_mut(conn) else { return };
        entry.closing = Some(closing);
        let resets = entry.resets;
        let flow = &mut entry.flow;
        flow.read(now, usize::MAX, &mut self.shared, |_| {});
        match closing {
            Closing::Flush => {
                flow.deaf = true;
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

    /// Those that wait for the peer alone have a limit on it.
    fn await_peer(&mut self, conn: Conn, closing: Closing) {
        if closing.is_flush() {
            return;
        }
        if let Some(oldest) = self.closing.push(&self.limits, self.now, conn, closing) {
            self.end_patience(oldest);
        }
    }

    /// Resets some of those that the application has closed and that are not over.
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

    /// A closed connection moves on as far as it can.
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
            Closing::Flush if flow.state == State::FinWait2 => self.retire(conn),
            Closing::FlushThenLinger if flow.all_acked() => {
                entry.closing = Some(Closing::Linger);
                self.await_peer(conn, Closing::Linger);
            }
            Closing::AfterPeer | Closing::FlushThenAfterPeer if flow.ended => {
                entry.closing = Some(Closing::Flush);
                flow.deaf = true;
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
