//! The kernel's TCP by io_uring: one multishot receive for each connection, into buffers the kernel picks; sends gathered
//! and submitted with the wait, so that a turn is one call; accepted connections are direct descriptors.
//!
//! Connections we ask for have an ordinary descriptor, so that options and TCP_INFO can be had of them at any time. Of an accepted
//! one TCP_INFO is had by installing an ordinary descriptor for the moment, where the kernel can (6.8).
//! An instance belongs to the thread that made it: the kernel refuses others (`IORING_SETUP_SINGLE_ISSUER`).

mod accept;
mod entry;

use std::io;
use std::marker::PhantomData;
use std::net::{Shutdown, SocketAddr};
use std::ops::Range;
use std::os::fd::{AsRawFd, IntoRawFd};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;

use self::accept::Listening;
use self::entry::{Entry, Link, Load, Receiving};
use crate::clock::{Clock, monotonic};
use crate::closing::{Closing, ClosingQueue};
use crate::limits::{DIRECT_DESCRIPTORS, ONE_SEGMENT};
use crate::probe::explain_uring;
use crate::sys::ring::{DirectOption, Done, Gift, Receive, Ring, RingOptions, Tag, Target};
use crate::sys::{EventFd, socket, thread};
use crate::table::Table;
use crate::{
    After, Close, Conn, ConnectOptions, Data, Event, Lent, Limits, ListenOptions, Listener, NetError,
    NetErrorKind, TcpInfo, Time, Transport, Waker,
};

/// What a completion is for.
mod kind {
    pub(super) const RECEIVE: u8 = 1;
    pub(super) const SEND: u8 = 2;
    pub(super) const CONNECT: u8 = 3;
    pub(super) const ACCEPT: u8 = 4;
    pub(super) const WAKE: u8 = 5;
    pub(super) const END: u8 = 6;
    pub(super) const SHUTDOWN: u8 = 7;
}

/// Size of a receive buffer. Reason: a turn's answers of a deep pipeline fit in few, and those in use fit L2.
const BUFFER_BYTES: usize = 16 << 10;
/// Buffers the kernel begins with; it gets more when it runs out. Reason: few stay in the cache (with 64 of them 1000
/// connections cost 3 % more).
const BUFFERS_AT_FIRST: usize = 32;

/// In a claim: the end.
const END: u64 = 0;
/// In a claim: an error, with the errno below.
const ERROR: u64 = 1 << 63;

/// The kernel's TCP by io_uring.
pub struct Uring {
    ring: Ring,
    wake: Arc<EventFd>,
    limits: Limits,
    table: Table<Entry>,
    listeners: Vec<Listening>,
    /// Whether there is room for direct descriptors, and what of our own part is free.
    has_direct: bool,
    free_direct: Vec<u32>,
    /// Free once what is queued has gone to the kernel: it closes them.
    freed_direct: Vec<u32>,
    /// Room for accepted ones that is not taken. The kernel closes a connection it has accepted and has no room for.
    free_accepted: usize,
    /// They have something to ask of the kernel.
    queued: Vec<Conn>,
    closing: ClosingQueue,
    accept_at: Time,
    accept_trouble: Option<NetError>,
    turns: u64,
    /// The thread that made it is the only one the kernel lets use it.
    _not_send: PhantomData<*const ()>,
}

impl Uring {
    /// An instance with the default limits.
    pub fn new() -> io::Result<Uring> {
        Uring::with_limits(Limits::default())
    }

    /// An instance with these limits. When the kernel refuses, the error says why in words for users, as
    /// [`Probe::uring`](crate::Probe::uring) does.
    pub fn with_limits(limits: Limits) -> io::Result<Uring> {
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
            limits,
            table: Table::new(limits.connections),
            listeners: Vec::new(),
            has_direct: false,
            free_direct: Vec::new(),
            freed_direct: Vec::new(),
            free_accepted: 0,
            queued: Vec::new(),
            closing: ClosingQueue::default(),
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

    fn live(&mut self, conn: Conn) -> Option<&mut Entry> {
        self.table.get_mut(conn).filter(|entry| entry.is_live())
    }

    fn queue(queued: &mut Vec<Conn>, conn: Conn, entry: &mut Entry) {
        if !entry.queued {
            entry.queued = true;
            queued.push(conn);
        }
    }

    // Asking the kernel.

    fn ask(&mut self) -> io::Result<()> {
        for index in 0..self.queued.len() {
            let conn = self.queued[index];
            let Some(entry) = self.table.get_mut(conn) else { continue };
            entry.queued = false;
            match entry.link {
                _ if entry.dying => {}
                Link::Wanted(to) => Self::ask_connect(&mut self.ring, conn, entry, to, self.turns)?,
                Link::Connecting => {}
                Link::Established => {
                    if entry.should_register() {
                        Self::register(&mut self.ring, &mut self.free_direct, entry);
                    }
                    if let Some(load) = entry.pack() {
                        Self::ask_send(&mut self.ring, conn, entry, load, self.turns, false);
                    }
                    if entry.should_receive() {
                        Self::ask_receive(&mut self.ring, conn, entry);
                    }
                    // What reads for the first time meets an error by itself.
                    if !entry.watches_end && !entry.unproven {
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
        entry: &mut Entry,
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
            Self::ask_send(ring, conn, entry, load, turn, receives);
        }
        if receives {
            Self::ask_receive(ring, conn, entry);
        }
        Ok(())
    }

    fn ask_send(ring: &mut Ring, conn: Conn, entry: &mut Entry, load: Load, turn: u64, link: bool) {
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
            Load::Parcel(parcel) => ring.send(tag, entry.target, parcel, link),
            Load::Lent(lent, range) => {
                let known = ring.send_lent(tag, entry.target, (lent, &range), link);
                debug_assert!(known, "ranges were checked when they were handed over");
            }
        }
    }

    /// Makes a direct descriptor of an ordinary one too.
    fn register(ring: &mut Ring, free: &mut Vec<u32>, entry: &mut Entry) {
        let Some(index) = free.pop() else { return };
        match entry.fd.as_ref().map(|fd| ring.register(index, fd)) {
            Some(Ok(())) => entry.target = Target::Direct(index),
            _ => free.push(index),
        }
    }

    fn ask_receive(ring: &mut Ring, conn: Conn, entry: &mut Entry) {
        entry.receiving = Receiving::Yes;
        entry.requests += 1;
        let how = Receive {
            once: entry.short || entry.broken || entry.unproven,
            nothing_yet: entry.link == Link::Connecting,
        };
        ring.receive(Tag { kind: kind::RECEIVE, slot: conn.slot }, entry.target, how);
    }

    /// A receive that has just emptied the socket is not tried again by the kernel until something more happens to it. A
    /// reset that came behind the last bytes has happened already, and would never be seen.
    fn ask_end(ring: &mut Ring, conn: Conn, entry: &mut Entry) {
        entry.watches_end = true;
        entry.requests += 1;
        ring.watch_end(Tag { kind: kind::END, slot: conn.slot }, entry.target);
    }

    // What the kernel says.

    fn on_done(&mut self, done: Done, clock: &mut Clock, events: &mut Vec<Event>) {
        match done.tag.kind {
            kind::WAKE => {
                self.wake.take();
                events.push(Event::Woken);
                if !done.more {
                    self.watch_waker();
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
            kind::SHUTDOWN => entry.shutting = false,
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
        events.push(Event::Connected { conn, at: clock.now() });
        Self::queue(&mut self.queued, conn, entry);
    }

    fn on_receive(&mut self, conn: Conn, done: &Done, events: &mut Vec<Event>) {
        let Some(entry) = self.table.get_mut(conn) else { return };
        if !done.more {
            entry.receiving = Receiving::No;
            entry.unproven = false;
        } else if (entry.dying || entry.receiving == Receiving::Ending)
            && self.turns > entry.cancelled_in_turn + 1
        {
            // The cancellation met it at a bad moment, or before it had begun.
            Self::cancel_receive(&mut self.ring, conn, entry, self.turns);
        }
        let live = entry.is_live();
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
                // A send that failed took the error with it; the socket then only says that nothing more comes.
                entry.error.map_or(END, |error| ERROR | error.errno as u64)
            }
            libc::ENOBUFS => {
                let buffers = self.ring.buffers();
                buffers.want_more();
                buffers.top_up();
                return Self::queue(&mut self.queued, conn, entry);
            }
            libc::ECANCELED | ..0 if !done.more && live && entry.broken && entry.paused => {
                // No further receive will meet it.
                let error = entry.error.unwrap_or(NetError::of(NetErrorKind::Reset));
                return self.tell_failure(conn, error, events);
            }
            // Cancelled, or its connection could not be had; or it came to an end for the kernel's reasons.
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

    /// The peer sent its FIN, or the connection is over or was reset.
    fn on_end(&mut self, conn: Conn, result: i32, events: &mut Vec<Event>) {
        // A mere FIN is the receive's business.
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

    fn cancel_receive(ring: &mut Ring, conn: Conn, entry: &mut Entry, turn: u64) {
        entry.receiving = Receiving::Ending;
        entry.cancelled_in_turn = turn;
        ring.cancel(Tag { kind: kind::RECEIVE, slot: conn.slot });
    }

    /// Ends what is in flight. By name where that can be, as the kernel looks a name up; for those of a descriptor it goes
    /// through the requests of all connections (at 1000 of them 15 % of a run went into closing them at its end).
    fn cancel_requests(ring: &mut Ring, conn: Conn, entry: &Entry) {
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

    /// Makes the receive tell of a failure, after what the peer said before it went; or tells of it.
    fn tell_failure(&mut self, conn: Conn, error: NetError, events: &mut Vec<Event>) {
        let Some(entry) = self.table.get_mut(conn) else { return };
        entry.broken = true;
        match entry.receiving {
            // Asked again when the last completion has come: that one meets the error.
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

    // Closing.

    fn begin_closing(&mut self, conn: Conn, state: Closing) {
        let Some(entry) = self.table.get_mut(conn) else { return };
        entry.closing = Some(state);
        if !state.is_flush() {
            // The peer's FIN is waited for.
            entry.paused = false;
            if state == Closing::Linger {
                Self::shut(&mut self.ring, conn, entry, Shutdown::Write);
            }
        }
        Self::queue(&mut self.queued, conn, entry);
        if let Some(oldest) = self.closing.push(&self.limits, monotonic(), conn, state)
            && self.table.get(oldest).is_some_and(|entry| entry.closing.is_some())
        {
            self.finish(oldest);
        }
    }

    fn after_flush(&mut self, conn: Conn, state: Closing) {
        if !state.is_flush() {
            return;
        }
        let ended = self.table.get(conn).is_some_and(|entry| entry.ended);
        match state.after_flush() {
            Some(next) if !ended => self.begin_closing(conn, next),
            _ => self.finish(conn),
        }
    }

    /// Closes. What is still in flight is ended first; the slot is free when that is known.
    fn finish(&mut self, conn: Conn) {
        self.finish_with(conn, Shutdown::Both);
    }

    /// `how`: which directions are shut at once should the close have to wait.
    fn finish_with(&mut self, conn: Conn, how: Shutdown) {
        let Some(entry) = self.table.get_mut(conn).filter(|entry| !entry.dying) else { return };
        entry.dying = true;
        entry.closing = None;
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
    fn let_go(ring: &mut Ring, entry: &mut Entry) {
        if let Some(fd) = entry.fd.take() {
            let plain = Target::Plain(fd.into_raw_fd());
            ring.close(plain);
            if entry.target == plain {
                return;
            }
        }
        ring.close(entry.target);
    }

    fn shut(ring: &mut Ring, conn: Conn, entry: &mut Entry, how: Shutdown) {
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

    /// The last of a connection: nothing of it is in flight any more.
    fn bury(&mut self, conn: Conn) {
        let Some(mut entry) = self.table.remove(conn) else { return };
        if !entry.closed {
            Self::let_go(&mut self.ring, &mut entry);
        }
        match (entry.target, entry.asked_for) {
            (Target::Direct(index), true) => self.freed_direct.push(index),
            (Target::Direct(_), false) => self.free_accepted += 1,
            (Target::Plain(_), _) => {}
        }
    }

    fn expire_closing(&mut self, clock: &mut Clock) {
        while self.closing.next().is_some() {
            let (now, table) = (clock.now(), &self.table);
            let state = |conn| table.get(conn).and_then(|entry| entry.closing);
            let Some(over) = self.closing.expired(now, state) else { return };
            self.finish(over);
        }
    }

    /// Makes the table of direct descriptors. Whoever comes first, connections we ask for or those we accept, gets most of
    /// it.
    fn make_direct(&mut self, own_first: bool) -> io::Result<()> {
        if self.has_direct {
            return Ok(());
        }
        let limit = thread::nofile().unwrap_or(1024).min(u64::from(DIRECT_DESCRIPTORS)) as u32;
        let most = self.limits.connections.min(limit / 8 * 7).max(1);
        let rest = self.limits.connections.min(limit / 8).max(1);
        let (own, accepted) = if own_first { (most, rest) } else { (rest, most) };
        self.has_direct = true;
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

    fn hand_over(&mut self, conn: Conn, len: usize, put: impl FnOnce(&mut Entry)) -> Result<(), NetError> {
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

    fn patience(&self, until: Option<Time>) -> Option<Duration> {
        let accept = if self.accept_at > Time::ZERO { Some(self.accept_at) } else { None };
        let until = [until, self.closing.next(), accept].into_iter().flatten().min()?;
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
        self.listeners.push(Listening { fd: Some(fd), in_flight: 0 });
        Ok((Listener(self.listeners.len() as u32 - 1), at))
    }

    fn unlisten(&mut self, listener: Listener) {
        if let Some(listening) = self.listeners.get_mut(listener.0 as usize)
            && let Some(fd) = listening.fd.take()
        {
            // Requests on it hold the socket, but from now on nobody is let in.
            socket::shutdown(&fd, Shutdown::Both);
            self.ring.cancel_all(Target::Plain(fd.as_raw_fd()));
            self.ring.close(Target::Plain(fd.into_raw_fd()));
        }
    }

    fn set_defer(&mut self, listener: Listener, defer: Option<Duration>) {
        let Some(Listening { fd: Some(fd), .. }) = self.listeners.get(listener.0 as usize) else { return };
        let _ = socket::set_defer_accept(fd, defer);
    }

    fn connect(&mut self, to: SocketAddr, options: &ConnectOptions) -> Result<Conn, NetError> {
        if self.table.is_full() {
            return Err(NetError::of(NetErrorKind::NoMemory));
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
        match self.table.insert(Entry::connecting(target, fd, to, options.short)) {
            Ok(conn) => {
                if let Some(entry) = self.table.get_mut(conn) {
                    Self::queue(&mut self.queued, conn, entry);
                }
                Ok(conn)
            }
            Err(_) => Err(NetError::of(NetErrorKind::NoMemory)),
        }
    }

    fn turn(&mut self, until: Option<Time>, events: &mut Vec<Event>) -> io::Result<()> {
        self.turns += 1;
        self.ask()?;
        if self.ring.has_completions() {
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

    fn receive(&mut self, data: Data, mut take: impl FnMut(&mut [u8])) -> After {
        let live = self.live(data.conn).is_some();
        if data.token & ERROR != 0 {
            let errno = (data.token & !ERROR) as i32;
            return if live { After::Failed(NetError::from_errno(errno)) } else { After::Gone };
        }
        if data.token == END {
            return if live { After::Ended } else { After::Gone };
        }
        let (id, len) = ((data.token >> 32) as u16 - 1, data.token as u32 as usize);
        let buffers = self.ring.buffers();
        if live && let Some(bytes) = buffers.get(id, len) {
            take(bytes);
        }
        buffers.give_back(id);
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
        if let Some(fd) = self.live(conn).and_then(|entry| entry.fd.as_ref()) {
            let _ = socket::set_low_water(fd, bytes);
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

    fn waker(&self) -> Waker {
        Waker(self.wake.clone())
    }

    fn name(&self) -> &'static str {
        "uring"
    }
}

impl Uring {
    /// Closes by a reset.
    fn abort(&mut self, conn: Conn) {
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

impl Drop for Uring {
    /// Ends what is in flight by name: the ring would have to go through all requests for each of them.
    fn drop(&mut self) {
        for conn in self.table.conns() {
            self.finish(conn);
        }
    }
}
