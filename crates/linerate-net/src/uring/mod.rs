//! The kernel's TCP by io_uring: one multishot receive for each connection, into buffers the kernel picks; sends gathered
//! and submitted with the wait, so that a turn is one call; accepted connections are direct descriptors.
//!
//! Connections we ask for have an ordinary descriptor, so that options and TCP_INFO can be had of them at any time. Of an accepted
//! one TCP_INFO is had by installing an ordinary descriptor for the moment, where the kernel can (6.8).
//! A turn asks (`ask`, for new connections `accept`) and hears what was done (`done`); `close` ends what is in flight.
//!
//! An instance belongs to the thread that made it: the kernel refuses others (`IORING_SETUP_SINGLE_ISSUER`).

mod accept;
mod ask;
mod close;
mod done;
mod entry;

use std::io;
use std::marker::PhantomData;
use std::net::{Shutdown, SocketAddr};
use std::ops::Range;
use std::os::fd::{AsRawFd, IntoRawFd, OwnedFd};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;

use self::accept::UringListener;
use self::entry::{Link, Receiving, UringConnection};
use crate::clock::{Clock, monotonic};
use crate::closing::{Closing, ClosingQueue};
use crate::dialing::Dialing;
use crate::limits::{DIRECT_DESCRIPTORS, DYING_BEYOND};
use crate::probe::explain_uring;
use crate::sys::ring::{Ring, RingOptions, Tag, Target};
use crate::sys::{EventFd, socket, thread};
use crate::table::Table;
use crate::transport::received;
use crate::{
    After, Ahead, Close, Conn, ConnectOptions, Data, Event, Lent, ListenOptions, Listener, NetError,
    NetErrorKind, ReceivedPiece, TcpInfo, Time, Transport, TransportLimits, Waker,
};

/// The purpose of a completion.
mod kind {
    pub(super) const RECEIVE: u8 = 1;
    pub(super) const SEND: u8 = 2;
    pub(super) const CONNECT: u8 = 3;
    pub(super) const ACCEPT: u8 = 4;
    pub(super) const WAKE: u8 = 5;
    pub(super) const END: u8 = 6;
    pub(super) const SHUTDOWN: u8 = 7;
    pub(super) const INSTALL: u8 = 8;
    pub(super) const WATCHED: u8 = 9;
}

/// Size of a receive buffer. Reason: a turn's responses of a deep pipeline fit in few, and those in use fit L2.
const BUFFER_BYTES: usize = 16 << 10;
/// Buffers the kernel begins with; it gets more when it runs out. Reason: few stay in the cache (with 64 of them 1000
/// connections cost 3 % more).
const BUFFERS_AT_FIRST: usize = 32;

/// In a claim: the end.
const END: u64 = 0;
/// In a claim: an error, with the errno below.
const ERROR: u64 = 1 << 63;
/// In a claim: bytes that were discarded, with their number below.
const DISCARDED: u64 = 1 << 62;

/// The kernel's TCP by io_uring.
pub struct Uring {
    ring: Ring,
    wake: Arc<EventFd>,
    /// They only end the wait.
    watched: Vec<OwnedFd>,
    limits: TransportLimits,
    table: Table<UringConnection>,
    /// Connections of the table that are closed and wait for the kernel.
    dying: u32,
    listeners: Vec<UringListener>,
    /// Whether there is room for direct descriptors, and what of our own part is free.
    has_direct: bool,
    /// The kernel makes ordinary descriptors of direct ones.
    installs: bool,
    free_direct: Vec<u32>,
    /// Free once what is queued has gone to the kernel: it closes them.
    freed_direct: Vec<u32>,
    /// Room for accepted ones that is not taken. The kernel closes a connection it has accepted and has no room for.
    free_accepted: usize,
    /// They have something to ask of the kernel.
    queued: Vec<Conn>,
    closing: ClosingQueue,
    dialing: Dialing,
    accept_at: Time,
    accept_trouble: Option<NetError>,
    turns: u64,
    /// The thread that made it is the only one the kernel lets use it.
    _not_send: PhantomData<*const ()>,
}

impl Uring {
    /// An instance with the default limits.
    pub fn new() -> io::Result<Uring> {
        Uring::with_limits(TransportLimits::default())
    }

    /// An instance with these limits. When the kernel refuses, the error says why in words for users, as
    /// [`Probe::uring`](crate::Probe::uring) does.
    pub fn with_limits(limits: TransportLimits) -> io::Result<Uring> {
        let buffers = limits.receive_buffers.clamp(1, 1 << 15);
        let ring = Ring::new(&RingOptions {
            buffers: if buffers.is_power_of_two() { buffers } else { buffers.next_power_of_two() / 2 },
            buffer_bytes: BUFFER_BYTES.min(limits.receive_bytes.max(1)),
            buffers_at_first: BUFFERS_AT_FIRST,
        })
        .map_err(explain_uring)?;
        let mut uring = Uring {
            ring,
            wake: Arc::new(EventFd::new()?),
            watched: Vec::new(),
            limits,
            table: Table::new(limits.connections.saturating_add(DYING_BEYOND)),
            dying: 0,
            listeners: Vec::new(),
            has_direct: false,
            installs: false,
            free_direct: Vec::new(),
            freed_direct: Vec::new(),
            free_accepted: 0,
            queued: Vec::new(),
            closing: ClosingQueue::default(),
            dialing: Dialing::default(),
            accept_at: Time::ZERO,
            accept_trouble: None,
            turns: 0,
            _not_send: PhantomData,
        };
        uring.watch_waker();
        Ok(uring)
    }

    fn watch_waker(&mut self) {
        self.ring.watch(Tag { kind: kind::WAKE, slot: 0 }, &*self.wake);
    }

    fn watch_again(&mut self, at: u32) {
        if let Some(descriptor) = self.watched.get(at as usize) {
            self.ring.watch(Tag { kind: kind::WATCHED, slot: at }, descriptor);
        }
    }

    fn live(&mut self, conn: Conn) -> Option<&mut UringConnection> {
        self.table.get_mut(conn).filter(|entry| entry.is_live())
    }

    fn queue(queued: &mut Vec<Conn>, conn: Conn, entry: &mut UringConnection) {
        if !entry.queued {
            entry.queued = true;
            queued.push(conn);
        }
    }

    /// Makes the table of direct descriptors. The kind that is needed first, connections we open or those we accept, gets
    /// most of it.
    fn make_direct(&mut self, own_first: bool) -> io::Result<()> {
        if self.has_direct {
            return Ok(());
        }
        let limit = thread::nofile().unwrap_or(1024).min(u64::from(DIRECT_DESCRIPTORS)) as u32;
        let most = self.limits.connections.min(limit / 8 * 7).max(1);
        let rest = self.limits.connections.min(limit / 8).max(1);
        let (own, accepted) = if own_first { (most, rest) } else { (rest, most) };
        self.has_direct = true;
        self.installs = self.ring.installs();
        self.ring.add_direct(own, accepted)?;
        self.free_direct = (0..own).rev().collect();
        self.free_accepted = accepted as usize;
        Ok(())
    }

    /// A direct descriptor of our own, where it is worth it.
    fn own_direct(&mut self, options: &ConnectOptions) -> Option<u32> {
        if !options.short || options.from.is_some() {
            return None;
        }
        self.make_direct(true).ok()?;
        self.free_direct.pop()
    }

    // Sending.

    fn hand_over(
        &mut self,
        conn: Conn,
        len: usize,
        put: impl FnOnce(&mut UringConnection),
    ) -> Result<(), NetError> {
        let limit = self.limits.unsent_bytes;
        let Some(entry) = self.table.get_mut(conn).filter(|entry| entry.is_live()) else { return Ok(()) };
        if let Some(error) = entry.error {
            return Err(error);
        }
        if entry.unsent() + len > limit {
            return Err(NetError::of(NetErrorKind::NoMemory));
        }
        put(entry);
        Self::queue(&mut self.queued, conn, entry);
        Ok(())
    }

    /// The application knows what comes next: a multishot receive, which would copy it, ends. `looked`: behind bytes that it was handed.
    fn look_ahead(&mut self, conn: Conn, ahead: Ahead, looked: bool) {
        let Some(entry) = self.table.get_mut(conn) else { return };
        entry.ahead = ahead;
        if entry.to_discard().is_some() {
            if entry.receiving == Receiving::Yes && !entry.large {
                Self::cancel_receive(&mut self.ring, conn, entry, self.turns);
            }
            entry.large = true;
        } else if ahead.bytes == 0 && entry.receiving == Receiving::No && looked {
            entry.large = false;
        }
        entry.looks_ahead = ahead.bytes > 0 || entry.large;
    }

    /// A connection to a Unix socket. That of TCP is asked of the ring.
    fn connect_unix(&mut self, path: &Arc<Path>, short: bool) -> Result<Conn, NetError> {
        // Without room for direct descriptors it stays an ordinary one.
        let _ = self.make_direct(true);
        let entry = UringConnection::dialing(socket::unix()?, short);
        let conn = self.table.insert(entry).map_err(|_| NetError::of(NetErrorKind::NoMemory))?;
        self.dialing.push(conn, path);
        Ok(conn)
    }

    fn dial(&mut self, events: &mut Vec<Event>) {
        while self.dialing.next().is_some() {
            let (now, table) = (monotonic(), &self.table);
            let step = self.dialing.step(now, |conn| table.get(conn)?.fd.as_ref());
            let Some((conn, result)) = step else { return };
            let Some(entry) = self.table.get_mut(conn).filter(|entry| !entry.dying) else { continue };
            entry.link = Link::Established;
            events.push(match result {
                Ok(()) => {
                    Self::queue(&mut self.queued, conn, entry);
                    Event::connected(conn, now)
                }
                Err(error) => {
                    entry.fail(error);
                    (entry.ended, entry.failed) = (true, true);
                    Event::Failed { conn, error }
                }
            });
        }
    }

    fn patience(&self, until: Option<Time>) -> Option<Duration> {
        let accept = if self.accept_at > Time::ZERO { Some(self.accept_at) } else { None };
        let waits = [until, self.closing.next(), self.dialing.next(), accept];
        let until = waits.into_iter().flatten().min()?;
        if until == Time::NEVER { None } else { Some(until - monotonic()) }
    }
}

impl Transport for Uring {
    fn now(&mut self) -> Time {
        monotonic()
    }

    fn listen(
        &mut self,
        at: SocketAddr,
        options: &ListenOptions,
    ) -> Result<(Listener, SocketAddr), NetError> {
        self.make_direct(false)?;
        let (fd, at) = socket::listen(at, options)?;
        self.listeners.push(UringListener { fd: Some(fd), in_flight: 0, shared: false });
        Ok((Listener(self.listeners.len() as u32 - 1), at))
    }

    fn adopt(&mut self, fd: OwnedFd) -> Result<Listener, NetError> {
        self.make_direct(false)?;
        socket::adopt(&fd)?;
        self.listeners.push(UringListener { fd: Some(fd), in_flight: 0, shared: true });
        Ok(Listener(self.listeners.len() as u32 - 1))
    }

    fn refuse_new(&mut self, listener: Listener) -> bool {
        let fd = self.listeners.get(listener.0 as usize).and_then(|listening| listening.fd.as_ref());
        fd.is_some_and(|fd| socket::drop_syns(fd).is_ok())
    }

    fn unlisten(&mut self, listener: Listener) {
        if let Some(listening) = self.listeners.get_mut(listener.0 as usize)
            && let Some(fd) = listening.fd.take()
        {
            // Requests on it hold the socket, but from now on it accepts nothing; other holders continue.
            if !listening.shared {
                socket::shutdown(&fd, Shutdown::Both);
            }
            self.ring.cancel_all(Target::Plain(fd.as_raw_fd()));
            self.ring.close(Target::Plain(fd.into_raw_fd()));
        }
    }

    fn set_defer(&mut self, listener: Listener, defer: Option<Duration>) {
        let Some(UringListener { fd: Some(fd), .. }) = self.listeners.get(listener.0 as usize) else {
            return;
        };
        let _ = socket::set_defer_accept(fd, defer);
    }

    fn connect(&mut self, to: SocketAddr, options: &ConnectOptions) -> Result<Conn, NetError> {
        if !self.make_room() {
            return Err(NetError::of(NetErrorKind::NoMemory));
        }
        if let Some(path) = &options.unix {
            return self.connect_unix(path, options.short);
        }
        let (target, fd) = match self.own_direct(options) {
            Some(index) => (Target::Direct(index), None),
            None => {
                // Without room for direct descriptors it stays an ordinary one.
                let _ = self.make_direct(true);
                let fd = socket::tcp(to)?;
                if let Some(from) = options.from {
                    socket::bind_source(&fd, from)?;
                }
                (Target::Plain(fd.as_raw_fd()), Some(fd))
            }
        };
        match self.table.insert(UringConnection::connecting(target, fd, to, options.short)) {
            Ok(conn) => {
                if let Some(entry) = self.table.get_mut(conn) {
                    Self::queue(&mut self.queued, conn, entry);
                }
                Ok(conn)
            }
            Err(_) => Err(NetError::of(NetErrorKind::NoMemory)),
        }
    }

    fn local(&mut self, conn: Conn) -> Option<SocketAddr> {
        let entry = self.table.get_mut(conn).filter(|entry| entry.is_live())?;
        match (&entry.fd, entry.target) {
            (Some(fd), _) => socket::local(fd),
            (None, Target::Direct(index)) => socket::local(&self.ring.install(index)?),
            (None, Target::Plain(_)) => None,
        }
    }

    fn turn(&mut self, until: Option<Time>, events: &mut Vec<Event>) -> io::Result<()> {
        self.turns += 1;
        let before = events.len();
        self.dial(events);
        self.ask()?;
        if self.ring.has_completions() || events.len() > before {
            if self.ring.has_requests() {
                self.ring.enter(0, None)?;
            }
        } else {
            match self.patience(until) {
                Some(Duration::ZERO) => self.ring.enter(0, None)?,
                patience => self.ring.enter(1, patience)?,
            }
        }
        if !self.freed_direct.is_empty() && !self.ring.has_requests() {
            self.free_direct.append(&mut self.freed_direct);
        }
        let mut clock = Clock::default();
        for _ in 0..self.limits.events_per_turn.max(1) {
            let Some(done) = self.ring.next() else { break };
            self.on_done(done, &mut clock, events);
        }
        self.expire_closing(&mut clock);
        Ok(())
    }

    fn receive(&mut self, data: Data, take: impl FnMut(&mut [u8])) -> After {
        self.receive_or_discard(data, received(take))
    }

    fn receive_or_discard(&mut self, data: Data, mut take: impl FnMut(ReceivedPiece<'_>) -> Ahead) -> After {
        let looks_ahead = self.live(data.conn).map(|entry| entry.looks_ahead);
        let live = looks_ahead.is_some();
        if data.token & ERROR != 0 {
            let errno = (data.token & !ERROR) as i32;
            return if live { After::Failed(NetError::from_errno(errno)) } else { After::Gone };
        }
        if data.token == END {
            return if live { After::Ended } else { After::Gone };
        }
        let len = data.token as u32 as usize;
        let mut ahead = None;
        if data.token & DISCARDED != 0 {
            ahead = live.then(|| take(ReceivedPiece::Discarded(len as u64)));
        } else {
            let id = (data.token >> 32) as u16 - 1;
            let buffers = self.ring.buffers();
            if live && let Some(bytes) = buffers.get(id, len) {
                ahead = Some(take(ReceivedPiece::Bytes(bytes)));
            }
            buffers.give_back(id);
        }
        // Most receives say nothing of what comes next, and must not cost a look into the table.
        if let Some(ahead) = ahead.filter(|ahead| ahead.bytes > 0 || looks_ahead == Some(true)) {
            self.look_ahead(data.conn, ahead, data.token & DISCARDED == 0);
        }
        if live { After::Open } else { After::Gone }
    }

    fn send(&mut self, conn: Conn, bytes: &[u8]) -> Result<(), NetError> {
        self.hand_over(conn, bytes.len(), |entry| entry.outbox.push_copy(bytes))
    }

    fn send_shared(&mut self, conn: Conn, bytes: Bytes) -> Result<(), NetError> {
        self.hand_over(conn, bytes.len(), |entry| entry.outbox.push_shared(bytes))
    }

    fn gathers(&self) -> bool {
        true
    }

    fn lend(&mut self, bytes: Arc<[u8]>) -> Lent {
        self.ring.lent().add(bytes)
    }

    fn send_lent(&mut self, conn: Conn, lent: Lent, range: Range<usize>) -> Result<(), NetError> {
        if self.live(conn).is_none() {
            return Ok(());
        }
        let len = self.ring.lent().range(lent, &range)?.len();
        self.hand_over(conn, len, |entry| entry.push_lent(lent, range))
    }

    fn unsent(&self, conn: Conn) -> usize {
        let Some(entry) = self.table.get(conn).filter(|entry| entry.is_live()) else { return 0 };
        let unsent = entry.unsent();
        if unsent > 0 {
            entry.watched.set(true);
        }
        unsent
    }

    fn pause(&mut self, conn: Conn) {
        let Some(entry) = self.table.get_mut(conn).filter(|entry| entry.is_live()) else { return };
        entry.paused = true;
        if std::mem::take(&mut entry.unproven) {
            // Nothing reads, so its end has to be watched.
            Self::queue(&mut self.queued, conn, entry);
        }
        if entry.receiving == Receiving::Yes {
            Self::cancel_receive(&mut self.ring, conn, entry, self.turns);
        }
    }

    fn resume(&mut self, conn: Conn) {
        let Some(entry) = self.table.get_mut(conn).filter(|entry| entry.is_live()) else { return };
        entry.paused = false;
        Self::queue(&mut self.queued, conn, entry);
    }

    fn set_low_water(&mut self, conn: Conn, bytes: usize) {
        if let Some(entry) = self.live(conn) {
            entry.set_low_water(bytes);
        }
    }

    fn close(&mut self, conn: Conn, how: Close) {
        let Some(entry) = self.table.get_mut(conn).filter(|entry| entry.is_live()) else { return };
        if how == Close::Abort {
            return self.abort(conn);
        }
        let given_up = entry.link != Link::Established || entry.error.is_some();
        let state = Closing::first(how, entry.unsent() == 0, entry.ended, entry.ended);
        match state.filter(|_| !given_up) {
            Some(state) => self.begin_closing(conn, state),
            None => self.finish(conn),
        }
    }

    fn unfinished(&self) -> usize {
        self.table.len()
    }

    fn accept_trouble(&self) -> Option<NetError> {
        self.accept_trouble
    }

    fn info(&mut self, conn: Conn) -> Option<TcpInfo> {
        let entry = self.table.get_mut(conn).filter(|entry| entry.is_live())?;
        match (&entry.fd, entry.target) {
            (Some(fd), _) => socket::tcp_info(fd).ok(),
            (None, Target::Direct(index)) => socket::tcp_info(&self.ring.install(index)?).ok(),
            (None, Target::Plain(_)) => None,
        }
    }

    fn watch(&mut self, descriptor: OwnedFd) -> Result<(), NetError> {
        self.watched.push(descriptor);
        self.watch_again(self.watched.len() as u32 - 1);
        Ok(())
    }

    fn waker(&self) -> Waker {
        Waker(self.wake.clone())
    }

    fn name(&self) -> &'static str {
        "uring"
    }
}

impl Drop for Uring {
    /// Ends what is in flight by name: the ring would have to go through all requests for each of them.
    fn drop(&mut self) {
        for conn in self.table.conns() {
            self.finish(conn);
        }
    }
}
