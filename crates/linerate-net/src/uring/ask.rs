//! Requests to the kernel: submitted at the start of a turn, for the connections that have something to ask.

use std::io;
use std::net::SocketAddr;

use crate::Conn;
use crate::limits::ONE_SEGMENT;
use crate::sys::ring::{DirectOption, Receive, Ring, Send, Tag, Target};
use crate::sys::socket;
use crate::uring::entry::{Link, Load, Receiving, UringConnection};
use crate::uring::{Uring, kind};

impl Uring {
    pub(super) fn ask(&mut self) -> io::Result<()> {
        for index in 0..self.queued.len() {
            let conn = self.queued[index];
            let Some(entry) = self.table.get_mut(conn) else { continue };
            entry.queued = false;
            match entry.link {
                _ if entry.dying => {}
                Link::Wanted(to) => Self::ask_connect(&mut self.ring, conn, entry, to, self.turns)?,
                Link::Connecting | Link::Dialing => {}
                Link::Established => {
                    if entry.should_register() {
                        Self::register(&mut self.ring, &mut self.free_direct, entry);
                    }
                    let ends_soon = entry.ends_soon();
                    if let Some(load) = entry.pack() {
                        let more = entry.holds_back(self.installs);
                        if more {
                            Self::ask_descriptor(&mut self.ring, conn, entry);
                        }
                        entry.held_back = more;
                        Self::ask_send(
                            &mut self.ring,
                            conn,
                            entry,
                            load,
                            self.turns,
                            Send { link: false, more },
                        );
                    }
                    if entry.should_receive() {
                        Self::ask_receive(&mut self.ring, conn, entry);
                    }
                    // A connection that reads for the first time meets an error by itself.
                    if !entry.watches_end && !entry.unproven && !ends_soon {
                        Self::ask_end(&mut self.ring, conn, entry);
                    }
                }
            }
        }
        self.queued.clear();
        self.ask_accept();
        Ok(())
    }

    /// The connection, what is to be sent on it, and what comes: a chain, so that one call to the kernel starts it all.
    fn ask_connect(
        ring: &mut Ring,
        conn: Conn,
        entry: &mut UringConnection,
        to: SocketAddr,
        turn: u64,
    ) -> io::Result<()> {
        ring.make_room(4)?;
        entry.link = Link::Connecting;
        entry.requests += 1;
        // A direct descriptor does not exist yet, so its options cannot be set: few bytes go with the connection, more when
        // it is there.
        let load = if entry.fd.is_some() || entry.unsent() <= ONE_SEGMENT { entry.pack() } else { None };
        let receives = entry.should_receive();
        entry.chain = load.is_some() || receives;
        if let (None, Target::Direct(index)) = (&entry.fd, entry.target) {
            ring.socket(index, to);
        }
        ring.connect(Tag { kind: kind::CONNECT, slot: conn.slot }, entry.target, to, entry.chain);
        if let Some(load) = load {
            Self::ask_send(ring, conn, entry, load, turn, Send { link: receives, more: false });
        }
        if receives {
            Self::ask_receive(ring, conn, entry);
        }
        Ok(())
    }

    fn ask_send(ring: &mut Ring, conn: Conn, entry: &mut UringConnection, load: Load, turn: u64, how: Send) {
        if entry.needs_nodelay() {
            match &entry.fd {
                // It can only fail on a connection that failed, which the send will tell.
                Some(fd) => drop(socket::set_nodelay(fd)),
                None => ring.set_option(entry.target, DirectOption::NoDelay),
            }
        }
        entry.sent_in_turn = turn;
        entry.requests += 1;
        let tag = Tag { kind: kind::SEND, slot: conn.slot };
        match load {
            Load::Parcel(parcel) => ring.send(tag, entry.target, parcel, how),
            Load::Lent(lent, range) => {
                let known = ring.send_lent(tag, entry.target, (lent, &range), how);
                debug_assert!(known, "ranges were checked when they were handed over");
            }
        }
    }

    /// An ordinary descriptor, to send the FIN by once the last bytes have left.
    fn ask_descriptor(ring: &mut Ring, conn: Conn, entry: &mut UringConnection) {
        if let (None, Target::Direct(index), false) = (&entry.fd, entry.target, entry.installing) {
            entry.installing = true;
            entry.requests += 1;
            ring.ask_install(Tag { kind: kind::INSTALL, slot: conn.slot }, index);
        }
    }

    /// Makes a direct descriptor of an ordinary one too.
    fn register(ring: &mut Ring, free: &mut Vec<u32>, entry: &mut UringConnection) {
        let Some(index) = free.pop() else { return };
        match entry.fd.as_ref().map(|fd| ring.register(index, fd)) {
            Some(Ok(())) => entry.target = Target::Direct(index),
            _ => free.push(index),
        }
    }

    fn ask_receive(ring: &mut Ring, conn: Conn, entry: &mut UringConnection) {
        entry.receiving = Receiving::Yes;
        entry.requests += 1;
        let tag = Tag { kind: kind::RECEIVE, slot: conn.slot };
        if let Some(len) = entry.to_discard() {
            return ring.discard(tag, entry.target, len as u32);
        }
        let how = Receive {
            once: entry.short || entry.broken || entry.unproven || entry.large,
            nothing_yet: entry.link == Link::Connecting,
        };
        ring.receive(tag, entry.target, how);
    }

    /// A receive that has just emptied the socket is not tried again by the kernel until something more happens to it. A
    /// reset that came behind the last bytes has happened already, and would never be seen.
    fn ask_end(ring: &mut Ring, conn: Conn, entry: &mut UringConnection) {
        entry.watches_end = true;
        entry.requests += 1;
        ring.watch_end(Tag { kind: kind::END, slot: conn.slot }, entry.target);
    }
}
