//! Handles completions.

use crate::clock::Clock;
use crate::closing::Closing;
use crate::sys::ring::{Done, Gift, Ring};
use crate::sys::socket;
use crate::uring::entry::{Link, Receiving, UringConnection};
use crate::uring::{DISCARDED, END, ERROR, Uring, kind};
use crate::{Conn, Data, Event, NetError, NetErrorKind};

impl Uring {
    pub(super) fn on_done(&mut self, done: Done, clock: &mut Clock, events: &mut Vec<Event>) {
        match done.tag.kind {
            kind::WAKE => {
                self.wake.take();
                events.push(Event::Woken);
                if !done.more {
                    self.watch_waker();
                }
                return;
            }
            kind::WATCHED => {
                if !done.more {
                    self.watch_again(done.tag.slot);
                }
                return;
            }
            kind::ACCEPT => return self.on_accept(done, clock, events),
            _ => {}
        }
        let Some((conn, entry)) = self.table.by_slot(done.tag.slot) else { return };
        entry.requests -= u32::from(!done.more);
        match done.tag.kind {
            kind::RECEIVE => {
                entry.chain = false;
                self.on_receive(conn, &done, events);
            }
            kind::SEND => self.on_sent(conn, done, events),
            kind::END => self.on_end(conn, done.result, events),
            kind::SHUTDOWN => {
                entry.shutting = false;
                if entry.held_back && entry.closing == Some(Closing::Flush) {
                    self.finish(conn);
                }
            }
            kind::INSTALL => {
                entry.installing = false;
                if let Gift::Descriptor(fd) = done.gift {
                    entry.fd = Some(fd);
                }
            }
            _ => self.on_connect(conn, done.result, clock, events),
        }
        if self.table.get(conn).is_some_and(|entry| entry.dying && entry.requests == 0) {
            self.bury(conn);
        }
    }

    fn on_connect(&mut self, conn: Conn, result: i32, clock: &mut Clock, events: &mut Vec<Event>) {
        let Some(entry) = self.table.get_mut(conn).filter(|entry| !entry.dying) else { return };
        entry.link = Link::Established;
        if result < 0 {
            let error = NetError::from_errno(-result);
            entry.fail(error);
            (entry.ended, entry.failed) = (true, true);
            events.push(Event::Failed { conn, error });
            return;
        }
        events.push(Event::connected(conn, clock.now()));
        Self::queue(&mut self.queued, conn, entry);
    }

    /// So many bytes have come by one receive.
    fn came(ring: &mut Ring, conn: Conn, entry: &mut UringConnection, bytes: usize, turn: u64) {
        if let Some(Closing::Linger | Closing::AfterPeer) = entry.closing {
            return Self::discarded(ring, conn, entry, bytes as u64, turn);
        }
        let fills = entry.is_live() && bytes == ring.buffers().size();
        if fills && !entry.asked_for && !entry.large {
            // The application may pause it behind these bytes: a multishot receive would have brought many more.
            entry.large = true;
            if entry.receiving == Receiving::Yes {
                Self::cancel_receive(ring, conn, entry, turn);
            }
        }
    }

    fn on_receive(&mut self, conn: Conn, done: &Done, events: &mut Vec<Event>) {
        let Some(entry) = self.table.get_mut(conn) else { return };
        if !done.more {
            entry.receiving = Receiving::No;
            entry.unproven = false;
        } else if (entry.dying || entry.receiving == Receiving::Ending)
            && self.turns > entry.cancelled_in_turn + 1
        {
            // The cancellation raced with the receive, or ran before it had begun.
            Self::cancel_receive(&mut self.ring, conn, entry, self.turns);
        }
        let live = entry.is_live();
        if let Ok(bytes @ 1..) = usize::try_from(done.result) {
            Self::came(&mut self.ring, conn, entry, bytes, self.turns);
        }
        if let (Gift::Nothing, true) = (&done.gift, live && done.result > 0) {
            let token = DISCARDED | done.result as u64;
            events.push(Event::Readable { conn, data: Data { conn, token } });
        }
        if let Gift::Buffer(id) = done.gift {
            if live && done.result > 0 {
                let token = (u64::from(id) + 1) << 32 | done.result as u64;
                events.push(Event::Readable { conn, data: Data { conn, token } });
            } else {
                self.ring.buffers().give_back(id);
            }
        }
        let token = match -done.result {
            0 => {
                entry.ended = true;
                // A failed send consumed the socket's error; the socket then only reports the end.
                entry.failed |= entry.error.is_some();
                entry.error.map_or(END, |error| ERROR | error.errno as u64)
            }
            libc::ENOBUFS => {
                let buffers = self.ring.buffers();
                buffers.want_more();
                buffers.top_up();
                return Self::queue(&mut self.queued, conn, entry);
            }
            libc::ECANCELED | ..0 if !done.more && live && entry.broken && entry.paused => {
                // No later receive will report the error.
                let error = entry.error.unwrap_or(NetError::of(NetErrorKind::Reset));
                return self.tell_failure(conn, error, events);
            }
            // Cancelled, or its connection failed, or the kernel ended it for its own reasons.
            libc::ECANCELED | ..0 => {
                if !done.more && entry.should_receive() {
                    Self::queue(&mut self.queued, conn, entry);
                }
                return;
            }
            errno => {
                entry.fail(NetError::from_errno(errno));
                (entry.ended, entry.failed) = (true, true);
                ERROR | errno as u64
            }
        };
        if live {
            events.push(Event::Readable { conn, data: Data { conn, token } });
            if token == END && entry.broken {
                // The reset came behind the FIN, and no later receive will report it.
                self.tell_failure(conn, NetError::of(NetErrorKind::Reset), events);
            }
        } else if matches!(entry.closing, Some(Closing::Linger | Closing::AfterPeer)) || entry.error.is_some()
        {
            self.finish(conn);
        }
    }

    fn on_sent(&mut self, conn: Conn, done: Done, events: &mut Vec<Event>) {
        let Some(entry) = self.table.get_mut(conn) else { return };
        let parcel = if let Gift::Parcel(parcel) = done.gift { Some(parcel) } else { None };
        entry.sent(usize::try_from(done.result).unwrap_or(0), parcel);
        if entry.dying {
            return;
        }
        match -done.result {
            ..=0 | libc::ECANCELED | libc::EINTR | libc::EAGAIN => {}
            errno => {
                let error = NetError::from_errno(errno);
                entry.fail(error);
                if entry.closing.is_some() {
                    self.finish(conn);
                } else {
                    self.tell_failure(conn, error, events);
                }
                return;
            }
        }
        if let Some(error) = entry.error {
            entry.fail(error);
        } else if entry.unsent() > 0 {
            Self::queue(&mut self.queued, conn, entry);
        } else if let Some(state) = entry.closing {
            self.after_flush(conn, state);
        } else if entry.watched.replace(false) || entry.sent_in_turn != self.turns {
            events.push(Event::Drained { conn });
        }
    }

    /// The peer sent a FIN, or the connection was closed or reset.
    fn on_end(&mut self, conn: Conn, result: i32, events: &mut Vec<Event>) {
        // The receive handles a mere FIN.
        let is_over = result > 0 && result & i32::from(libc::POLLERR | libc::POLLHUP) != 0;
        let Some(entry) = self.table.get_mut(conn).filter(|entry| is_over && !entry.dying) else { return };
        if entry.closing.is_some() {
            return self.finish(conn);
        }
        let waiting =
            entry.fd.as_ref().filter(|_| entry.receiving == Receiving::No).and_then(socket::take_error);
        let error =
            entry.error.or(waiting.map(NetError::from_errno)).unwrap_or(NetError::of(NetErrorKind::Reset));
        self.tell_failure(conn, error, events);
    }

    /// Lets the receive report a failure, after the bytes that the peer sent before; or reports it
    /// here.
    fn tell_failure(&mut self, conn: Conn, error: NetError, events: &mut Vec<Event>) {
        let Some(entry) = self.table.get_mut(conn) else { return };
        entry.broken = true;
        match entry.receiving {
            // The receive restarts after its last completion, and then meets the error.
            Receiving::Yes => Self::cancel_receive(&mut self.ring, conn, entry, self.turns),
            Receiving::Ending => {}
            Receiving::No if entry.failed => {}
            Receiving::No => {
                entry.fail(error);
                entry.failed = true;
                events.push(Event::Failed { conn, error });
            }
        }
    }
}
