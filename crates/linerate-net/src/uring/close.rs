//! Closing: requests in flight are cancelled first, and the slot is freed once they have completed.

use std::net::Shutdown;
use std::os::fd::IntoRawFd;

use crate::clock::{Clock, monotonic};
use crate::closing::Closing;
use crate::sys::ring::{DirectOption, Ring, Tag, Target};
use crate::sys::socket;
use crate::uring::entry::{Link, Receiving, UringConnection};
use crate::uring::{Uring, kind};
use crate::{Ahead, Conn};

impl Uring {
    pub(super) fn cancel_receive(ring: &mut Ring, conn: Conn, entry: &mut UringConnection, turn: u64) {
        entry.receiving = Receiving::Ending;
        entry.cancelled_in_turn = turn;
        ring.cancel(Tag { kind: kind::RECEIVE, slot: conn.slot });
    }

    /// Cancels requests in flight, by name where possible because the kernel then looks the name
    /// up. Cancelling by descriptor walks the requests of all connections: with 1000 connections,
    /// closing them took 15 % of a run.
    fn cancel_requests(ring: &mut Ring, conn: Conn, entry: &UringConnection) {
        if entry.sending || entry.link == Link::Connecting {
            return ring.cancel_all(entry.target);
        }
        if entry.receiving != Receiving::No {
            ring.cancel(Tag { kind: kind::RECEIVE, slot: conn.slot });
        }
        if entry.watches_end {
            ring.cancel(Tag { kind: kind::END, slot: conn.slot });
        }
    }

    pub(super) fn begin_closing(&mut self, conn: Conn, state: Closing) {
        let Some(entry) = self.table.get_mut(conn) else { return };
        entry.closing = Some(state);
        if !state.is_flush() {
            // We wait for the peer's FIN, so receiving must resume.
            entry.paused = false;
            entry.ahead = Ahead { bytes: self.limits.closing_bytes, unseen: true };
            entry.large = true;
            if state == Closing::Linger {
                Self::shut(&mut self.ring, conn, entry, Shutdown::Write);
            }
        }
        Self::queue(&mut self.queued, conn, entry);
        let table = &self.table;
        let waits_for = |conn| table.get(conn).and_then(|entry| entry.closing);
        if let Some(oldest) = self.closing.push(&self.limits, monotonic(), (conn, state), waits_for) {
            self.finish(oldest);
        }
    }

    /// How many more connections the limit admits. Those that only wait for the kernel to let go of
    /// them do not count, and the table has some room of its own for them.
    pub(super) fn room(&self) -> usize {
        let open = self.table.len() - self.dying as usize;
        (self.limits.connections as usize).saturating_sub(open).min(self.table.room())
    }

    /// Ends the connection that has lingered longest if there is no room. Says whether there is
    /// room now.
    pub(super) fn make_room(&mut self) -> bool {
        if self.room() > 0 {
            return true;
        }
        let table = &self.table;
        if let Some(oldest) = self.closing.oldest(|conn| table.get(conn).and_then(|entry| entry.closing)) {
            self.finish(oldest);
        }
        self.room() > 0
    }

    pub(super) fn after_flush(&mut self, conn: Conn, state: Closing) {
        if !state.is_flush() {
            return;
        }
        let Some(entry) = self.table.get_mut(conn) else { return };
        if entry.held_back {
            Self::shut(&mut self.ring, conn, entry, Shutdown::Write);
            if entry.shutting {
                return;
            }
        }
        let ended = entry.ended;
        match state.after_flush() {
            Some(next) if !ended => self.begin_closing(conn, next),
            _ => self.finish(conn),
        }
    }

    /// Closes. Requests in flight are cancelled first, and the slot is freed once they have
    /// completed.
    pub(super) fn finish(&mut self, conn: Conn) {
        self.finish_with(conn, Shutdown::Both);
    }

    /// `how`: the directions to shut down at once if the close has to wait.
    fn finish_with(&mut self, conn: Conn, how: Shutdown) {
        let Some(entry) = self.table.get_mut(conn).filter(|entry| !entry.dying) else { return };
        entry.dying = true;
        entry.closing = None;
        self.dying += 1;
        if entry.requests == 0 {
            return self.bury(conn);
        }
        if entry.chain || entry.shutting {
            Self::shut(&mut self.ring, conn, entry, how);
            self.ring.cancel_all(entry.target);
        } else {
            Self::cancel_requests(&mut self.ring, conn, entry);
            entry.closed = true;
            Self::let_go(&mut self.ring, entry);
        }
    }

    /// Closes all descriptors of a connection.
    fn let_go(ring: &mut Ring, entry: &mut UringConnection) {
        if let Some(fd) = entry.fd.take() {
            let plain = Target::Plain(fd.into_raw_fd());
            ring.close(plain);
            if entry.target == plain {
                return;
            }
        }
        ring.close(entry.target);
    }

    fn shut(ring: &mut Ring, conn: Conn, entry: &mut UringConnection, how: Shutdown) {
        if let Some(fd) = &entry.fd {
            return socket::shutdown(fd, how);
        }
        let how = match how {
            Shutdown::Read => libc::SHUT_RD,
            Shutdown::Write => libc::SHUT_WR,
            Shutdown::Both => libc::SHUT_RDWR,
        };
        entry.shutting = true;
        entry.requests += 1;
        ring.shutdown(Tag { kind: kind::SHUTDOWN, slot: conn.slot }, entry.target, how);
    }

    /// So many bytes of the peer were discarded on a closed connection. Beyond the limit it is not read any more.
    pub(super) fn discarded(ring: &mut Ring, conn: Conn, entry: &mut UringConnection, bytes: u64, turn: u64) {
        entry.ahead.bytes = entry.ahead.bytes.saturating_sub(bytes);
        entry.paused = entry.ahead.bytes == 0;
        if entry.paused && entry.receiving == Receiving::Yes {
            Self::cancel_receive(ring, conn, entry, turn);
        }
    }

    /// Frees a connection that has nothing in flight any more.
    pub(super) fn bury(&mut self, conn: Conn) {
        let Some(mut entry) = self.table.remove(conn) else { return };
        self.dying -= u32::from(entry.dying);
        if !entry.closed {
            Self::let_go(&mut self.ring, &mut entry);
        }
        match (entry.target, entry.asked_for) {
            (Target::Direct(index), true) => self.freed_direct.push(index),
            (Target::Direct(_), false) => self.free_accepted += 1,
            (Target::Plain(_), _) => {}
        }
    }

    pub(super) fn expire_closing(&mut self, clock: &mut Clock) {
        while self.closing.next().is_some() {
            let (now, table) = (clock.now(), &self.table);
            let state = |conn| table.get(conn).and_then(|entry| entry.closing);
            let Some(over) = self.closing.expired(now, state) else { return };
            self.finish(over);
        }
    }

    /// Closes with a reset.
    pub(super) fn abort(&mut self, conn: Conn) {
        let Some(entry) = self.table.get_mut(conn) else { return };
        if let Some(fd) = &entry.fd {
            let _ = socket::set_abort(fd);
        } else {
            let target = entry.target;
            self.ring.set_option(target, DirectOption::Abort);
        }
        self.finish_with(conn, Shutdown::Read);
    }
}
