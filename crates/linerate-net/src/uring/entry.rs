//! One connection of the io_uring transport.

use std::cell::Cell;
use std::mem;
use std::net::SocketAddr;
use std::ops::Range;
use std::os::fd::{AsRawFd, OwnedFd};

use crate::closing::Closing;
use crate::limits::{DISCARDED_BY_RING, LAST_BYTES, ONE_SEGMENT, SENDS_BEFORE_DIRECT};
use crate::outbox::Outbox;
use crate::sys::ring::{Parcel, Target};
use crate::sys::socket;
use crate::{Ahead, Lent, NetError};

/// The bytes of one send request.
pub(super) enum Load {
    Lent(Lent, Range<usize>),
    Parcel(Box<Parcel>),
}

/// The multishot receive of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Receiving {
    No,
    Yes,
    /// It was cancelled; its last completion has not come yet.
    Ending,
}

/// How far a connection we asked for has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Link {
    /// Nothing was asked of the kernel yet.
    Wanted(SocketAddr),
    /// It is for a Unix socket, which is connected without the ring.
    Dialing,
    /// The handshake is in flight.
    Connecting,
    Established,
}

/// The state of a connection. Its slot is free when it is `dying` and no request of it is in flight.
///
/// Data leaves in this order: the lent bytes, the parcel, the outbox. Mostly there are only lent bytes, and then
/// nothing beyond this structure is touched.
pub(super) struct UringConnection {
    pub(super) target: Target,
    lent: Lent,
    range: Range<usize>,
    /// The descriptor, when it is an ordinary one and not handed over to be closed.
    pub(super) fd: Option<OwnedFd>,
    /// A descriptor is being made of the direct one.
    pub(super) installing: bool,
    /// The end of what was sent waits in the kernel for our FIN.
    pub(super) held_back: bool,
    /// Waits for the parcel before it.
    pub(super) outbox: Outbox,
    /// `None` while it is in flight.
    pub(super) parcel: Option<Box<Parcel>>,
    /// Bytes of the parcel that have not left.
    pub(super) in_parcel: usize,
    pub(super) sending: bool,
    /// The turn in which the parcel went to the kernel.
    pub(super) sent_in_turn: u64,
    /// The application knows that bytes wait, so an event says when they have left.
    pub(super) watched: Cell<bool>,
    pub(super) link: Link,
    pub(super) receiving: Receiving,
    pub(super) paused: bool,
    /// Nothing more comes: the end or an error was met by the receive, or the connection could not be had.
    pub(super) ended: bool,
    /// Why sending, receiving or connecting failed; nothing more is sent.
    pub(super) error: Option<NetError>,
    /// The turn in which the receive was cancelled.
    pub(super) cancelled_in_turn: u64,
    /// The connection is over or was reset: each further receive has to look.
    pub(super) broken: bool,
    /// Whether the kernel was asked to tell of a reset.
    pub(super) watches_end: bool,
    /// We asked for it; otherwise it was accepted.
    pub(super) asked_for: bool,
    /// It carries one request: one receive will mostly do.
    pub(super) short: bool,
    /// It was accepted and has not received anything yet. It may be over after one request: its first receive is one, since a
    /// multishot one that is armed at the close delays the FIN and doubles what the connection costs.
    pub(super) unproven: bool,
    /// `Failed` was reported: there is nothing more to say.
    pub(super) failed: bool,
    /// The application has closed it, and it waits for something.
    pub(super) closing: Option<Closing>,
    /// It is over; only completions are waited for.
    pub(super) dying: bool,
    /// The close was handed over too.
    pub(super) closed: bool,
    /// Requests of the chain that makes the connection may not have begun, or a shutdown has not. They look up their descriptor
    /// when they begin, so it must not become somebody else's before.
    pub(super) chain: bool,
    pub(super) shutting: bool,
    /// Requests in flight.
    pub(super) requests: u32,
    /// It is in the list of those that have something to ask of the kernel.
    pub(super) queued: bool,
    sends: u32,
    nodelay: bool,
    /// The application's knowledge of the next bytes; once it is closed, how many more are discarded.
    pub(super) ahead: Ahead,
    /// TCP alone discards bytes without a buffer to copy them to.
    is_unix: bool,
    /// Large bodies come on it: each receive is one, so that what follows can be discarded, or left where it is.
    pub(super) large: bool,
    /// Something is known of what comes next, or was and still has to be undone.
    pub(super) looks_ahead: bool,
}

impl UringConnection {
    fn new(target: Target, fd: Option<OwnedFd>, link: Link) -> UringConnection {
        UringConnection {
            target,
            lent: Lent(0),
            range: 0..0,
            fd,
            installing: false,
            held_back: false,
            outbox: Outbox::default(),
            parcel: None,
            in_parcel: 0,
            sending: false,
            sent_in_turn: 0,
            watched: Cell::new(false),
            link,
            receiving: Receiving::No,
            paused: false,
            ended: false,
            error: None,
            cancelled_in_turn: 0,
            broken: false,
            watches_end: false,
            asked_for: false,
            short: false,
            unproven: false,
            failed: false,
            closing: None,
            dying: false,
            closed: false,
            chain: false,
            shutting: false,
            requests: 0,
            queued: false,
            sends: 0,
            nodelay: false,
            ahead: Ahead::default(),
            is_unix: false,
            large: false,
            looks_ahead: false,
        }
    }

    /// `fd`: `None` when `target` is an own direct descriptor. `short`: see [`ConnectOptions`](crate::ConnectOptions).
    pub(super) fn connecting(
        target: Target,
        fd: Option<OwnedFd>,
        to: SocketAddr,
        short: bool,
    ) -> UringConnection {
        UringConnection {
            asked_for: true,
            short,
            watches_end: short,
            ..UringConnection::new(target, fd, Link::Wanted(to))
        }
    }

    /// For a Unix socket. Nagle's algorithm is TCP's.
    pub(super) fn dialing(fd: OwnedFd, short: bool) -> UringConnection {
        let target = Target::Plain(fd.as_raw_fd());
        let entry = UringConnection::new(target, Some(fd), Link::Dialing);
        UringConnection { asked_for: true, short, watches_end: short, nodelay: true, is_unix: true, ..entry }
    }

    /// It inherited TCP_NODELAY from its listener.
    pub(super) fn accepted(index: u32) -> UringConnection {
        UringConnection {
            nodelay: true,
            unproven: true,
            ..UringConnection::new(Target::Direct(index), None, Link::Established)
        }
    }

    /// The application holds it.
    pub(super) fn is_live(&self) -> bool {
        self.closing.is_none() && !self.dying
    }

    pub(super) fn unsent(&self) -> usize {
        self.range.len() + self.in_parcel + self.outbox.unsent()
    }

    pub(super) fn push_lent(&mut self, lent: Lent, range: Range<usize>) {
        if self.unsent() == 0 {
            (self.lent, self.range) = (lent, range);
        } else {
            self.outbox.push_lent(lent, range);
        }
    }

    /// It ends with so few bytes that nothing has to be heard of it meanwhile.
    pub(super) fn ends_soon(&self) -> bool {
        self.closing == Some(Closing::Flush) && self.unsent() <= LAST_BYTES
    }

    /// Whether a receive has to be asked for.
    pub(super) fn should_receive(&self) -> bool {
        self.receiving == Receiving::No && !self.paused && !self.ended && !self.dying && !self.ends_soon()
    }

    /// Whether its last bytes may wait for our FIN, so that both leave in one segment. An ordinary
    /// descriptor is needed for that: the ring leaves a shutdown to another thread, and a close
    /// resets where something is unread. `installs`: one can be made.
    pub(super) fn holds_back(&self, installs: bool) -> bool {
        self.closing == Some(Closing::Flush) && !self.is_unix && (self.fd.is_some() || installs)
    }

    /// The next bytes to send, if something can be sent now.
    pub(super) fn pack(&mut self) -> Option<Load> {
        if self.sending || self.unsent() == 0 || self.error.is_some() || self.dying {
            return None;
        }
        self.sending = true;
        if !self.range.is_empty() {
            return Some(Load::Lent(self.lent, self.range.clone()));
        }
        let mut parcel = self.parcel.take().unwrap_or_else(Parcel::new);
        if parcel.outbox.is_empty() {
            mem::swap(&mut parcel.outbox, &mut self.outbox);
        }
        self.in_parcel = parcel.outbox.unsent();
        Some(Load::Parcel(parcel))
    }

    /// A send is over; `sent`: how many bytes have left.
    pub(super) fn sent(&mut self, sent: usize, parcel: Option<Box<Parcel>>) {
        self.sending = false;
        match parcel {
            Some(parcel) => {
                self.in_parcel = parcel.outbox.unsent();
                self.parcel = Some(parcel);
            }
            None => self.range.start = (self.range.start + sent).min(self.range.end),
        }
    }

    /// See the epoll transport: the call is saved for connections that send once, and little. Whether it has to be made.
    pub(super) fn needs_nodelay(&mut self) -> bool {
        let needs = !self.nodelay && (self.sends > 0 || self.unsent() > ONE_SEGMENT);
        self.nodelay |= needs;
        self.sends = self.sends.saturating_add(1);
        needs
    }

    /// Nothing more is sent.
    pub(super) fn fail(&mut self, error: NetError) {
        self.error = Some(error);
        self.range = 0..0;
        self.outbox.clear();
        if let Some(parcel) = &mut self.parcel {
            parcel.outbox.clear();
        }
        if !self.sending {
            self.in_parcel = 0;
        }
    }

    /// Bytes that the next receive discards.
    pub(super) fn to_discard(&self) -> Option<usize> {
        self.ahead.to_discard(DISCARDED_BY_RING).filter(|_| !self.is_unix)
    }

    /// Asks for events only from this many bytes on.
    pub(super) fn set_low_water(&self, bytes: usize) {
        if let Some(fd) = &self.fd {
            // Without it, received bytes are reported at once.
            let _ = socket::set_low_water(fd, bytes);
        }
    }

    /// Whether a direct descriptor will pay: it saves the kernel a look-up and a reference in each request.
    pub(super) fn should_register(&mut self) -> bool {
        self.sends == SENDS_BEFORE_DIRECT && self.fd.is_some() && matches!(self.target, Target::Plain(_))
    }
}
