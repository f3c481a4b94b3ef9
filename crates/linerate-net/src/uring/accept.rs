//! Accepting connections: never more at once than the table has room for.

use std::os::fd::OwnedFd;

use crate::clock::{Clock, monotonic};
use crate::limits::{ACCEPT_PAUSE, ACCEPTS_IN_FLIGHT};
use crate::sys::ring::{Done, Gift, Tag, Target};
use crate::uring::entry::UringConnection;
use crate::uring::{Uring, kind};
use crate::{Event, Listener, NetError, NetErrorKind, Time};

/// A listening socket.
pub(super) struct UringListener {
    /// `None` once listening has ended.
    pub(super) fd: Option<OwnedFd>,
    pub(super) in_flight: usize,
    /// Other processes hold the socket too.
    pub(super) shared: bool,
}

impl Uring {
    pub(super) fn ask_accept(&mut self) {
        if self.listeners.is_empty() || (self.accept_at > Time::ZERO && monotonic() < self.accept_at) {
            return;
        }
        if self.accept_at > Time::ZERO {
            // Retries after the last error; if its cause persists, accepting fails again.
            self.accept_trouble = None;
        }
        self.accept_at = Time::ZERO;
        let is_ours = |error: NetError| error.errno == 0;
        if self.free_accepted == 0 {
            self.accept_trouble = Some(NetError::of(NetErrorKind::DescriptorsExhausted));
        } else if self.accept_trouble.is_some_and(is_ours) {
            self.accept_trouble = None;
        }
        let mut room = self.room().min(self.free_accepted);
        for (index, listening) in self.listeners.iter_mut().enumerate() {
            let Some(fd) = &listening.fd else { continue };
            room = room.saturating_sub(listening.in_flight);
            while listening.in_flight < ACCEPTS_IN_FLIGHT && room > 0 {
                self.ring.accept(Tag { kind: kind::ACCEPT, slot: index as u32 }, fd);
                listening.in_flight += 1;
                room -= 1;
            }
        }
    }

    pub(super) fn on_accept(&mut self, done: Done, clock: &mut Clock, events: &mut Vec<Event>) {
        let listener = Listener(done.tag.slot);
        let Some(listening) = self.listeners.get_mut(listener.0 as usize) else { return };
        listening.in_flight -= 1;
        // A shared socket may accept one more connection while we give it up. It gets served,
        // because only we have it now.
        let is_open = listening.fd.is_some() || listening.shared;
        let Ok(index) = u32::try_from(done.result) else {
            if matches!(-done.result, libc::EMFILE | libc::ENFILE | libc::ENOBUFS | libc::ENOMEM) {
                self.accept_trouble = Some(NetError::from_errno(-done.result));
                self.accept_at = clock.now() + ACCEPT_PAUSE;
            }
            return;
        };
        self.accept_trouble = None;
        let Gift::Peer(peer) = done.gift else { return };
        if !is_open || self.table.is_full() {
            return self.ring.close(Target::Direct(index));
        }
        if let Ok(conn) = self.table.insert(UringConnection::accepted(index))
            && let Some(entry) = self.table.get_mut(conn)
        {
            self.free_accepted = self.free_accepted.saturating_sub(1);
            Self::queue(&mut self.queued, conn, entry);
            events.push(Event::Accepted { listener, conn, peer });
        }
    }
}
