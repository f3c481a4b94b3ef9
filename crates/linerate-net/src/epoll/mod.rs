//! The kernel's TCP by epoll, edge-triggered.
//!
//! Savings: a descriptor is given to epoll once, and only at the start of the next turn, so a connection that is over by
//! then was never given at all; room to send is asked for only while something waits for it; a short read is known to
//! have emptied the socket; a FIN that epoll reported needs no read of its own.

mod entry;

use std::collections::VecDeque;
use std::fs::File;
use std::io;
use std::net::{Shutdown, SocketAddr};
use std::ops::Range;
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;

use self::entry::{EpollConnection, Flushed};
use crate::clock::{Clock, monotonic};
use crate::closing::{Closing, ClosingQueue};
use crate::dialing::Dialing;
use crate::limits::{ACCEPT_PAUSE, DESCRIPTORS_AT_FIRST, DESCRIPTORS_RESERVED};
use crate::outbox::LentTable;
pub use crate::sys::TimerFd;
use crate::sys::{EventFd, Interest, Poll, PollEvent, socket, thread};
use crate::table::{LAST_GENERATION, Table};
use crate::transport::received;
use crate::{
    After, Ahead, Close, Conn, ConnectOptions, Data, Event, Lent, ListenOptions, Listener, NetError,
    NetErrorKind, ReceivedPiece, TcpInfo, Time, Transport, TransportLimits, Waker,
};

/// Tokens of listeners have this in place of a generation, and their index in place of the slot.
const LISTENER: u32 = LAST_GENERATION + 1;
/// The token of the waker: the slot no listener has.
const WAKER: u64 = u64::MAX;
/// The token of descriptors that only end the wait: another slot that no listener has.
const WATCHED: u64 = u64::MAX - 1;

fn token(slot: u32, generation: u32) -> u64 {
    u64::from(generation) << 32 | u64::from(slot)
}

/// The first descriptor of those that no connection is accepted with.
fn reserve_from() -> u64 {
    thread::nofile().map_or(u64::MAX, first_reserved)
}

fn first_reserved(limit: u64) -> u64 {
    limit - (limit / 8).min(DESCRIPTORS_RESERVED)
}

/// The least limit on open descriptors at which connections are accepted, with this many in use.
pub(crate) fn least_limit(used: u64) -> u64 {
    (used..).find(|&limit| first_reserved(limit) > used).unwrap_or(u64::MAX)
}

/// The kernel's TCP by epoll.
pub struct Epoll {
    poll: Poll,
    wake: Arc<EventFd>,
    limits: TransportLimits,
    table: Table<EpollConnection>,
    listeners: Vec<Option<OwnedFd>>,
    watched: Vec<OwnedFd>,
    lent: LentTable,
    buffer: Box<[u8]>,
    /// Opened since the last turn: epoll does not know them yet.
    fresh: Vec<Conn>,
    /// They have more to read than one turn's share, or were resumed.
    ready: VecDeque<Conn>,
    /// Found out between turns.
    pending: Vec<Event>,
    closing: ClosingQueue,
    dialing: Dialing,
    /// Listeners that may have more to accept, and since when to try again.
    accepting: Vec<Listener>,
    accept_at: Time,
    accept_trouble: Option<NetError>,
    /// Accepted descriptors from this one on mean that only the reserve is left.
    reserve_from: u64,
    /// The last one accepted was of the reserve.
    reserve_used: bool,
}

impl Epoll {
    /// An instance with the default limits.
    pub fn new() -> io::Result<Epoll> {
        Epoll::with_limits(TransportLimits::default())
    }

    /// An instance with these limits.
    pub fn with_limits(limits: TransportLimits) -> io::Result<Epoll> {
        let poll = Poll::new(limits.events_per_turn as usize)?;
        let wake = Arc::new(EventFd::new()?);
        // Edge-triggered: each signal is an edge, so the count is never read.
        poll.add(&*wake, Interest::Read, WAKER)?;
        // Without the room it works as well, only slower.
        let _ = thread::reserve_descriptors(&*wake, limits.connections.min(DESCRIPTORS_AT_FIRST));
        Ok(Epoll {
            poll,
            wake,
            limits,
            table: Table::new(limits.connections),
            listeners: Vec::new(),
            watched: Vec::new(),
            lent: LentTable::default(),
            buffer: vec![0; limits.receive_bytes.max(1)].into_boxed_slice(),
            fresh: Vec::new(),
            ready: VecDeque::new(),
            pending: Vec::new(),
            closing: ClosingQueue::default(),
            dialing: Dialing::default(),
            accepting: Vec::new(),
            accept_at: Time::ZERO,
            accept_trouble: None,
            reserve_from: u64::MAX,
            reserve_used: false,
        })
    }

    /// Another descriptor of the instance, to wait for in an event loop of somebody else. It is readable when a turn
    /// may find something. Take turns until one finds nothing before you wait again.
    ///
    /// # Errors
    /// No file descriptor is left.
    pub fn descriptor(&self) -> io::Result<OwnedFd> {
        self.poll.descriptor()
    }

    fn add_listener(&mut self, fd: OwnedFd, interest: Interest) -> Result<Listener, NetError> {
        self.reserve_from = reserve_from();
        let index = self.listeners.iter().position(Option::is_none).unwrap_or(self.listeners.len());
        self.poll.add(&fd, interest, token(index as u32, LISTENER))?;
        if index == self.listeners.len() {
            self.listeners.push(None);
        }
        self.listeners[index] = Some(fd);
        Ok(Listener(index as u32))
    }

    /// The entry of a connection the application has not closed.
    fn live(&mut self, conn: Conn) -> Option<&mut EpollConnection> {
        self.table.get_mut(conn).filter(|entry| entry.closing.is_none())
    }

    /// Gives the connections of the last turn that are still open to epoll.
    fn register_fresh(&mut self) {
        for conn in self.fresh.drain(..) {
            let Some(entry) = self.table.get_mut(conn).filter(|entry| !entry.failed) else { continue };
            let interest = entry.wanted_interest();
            match self.poll.add(&entry.fd, interest, token(conn.slot, conn.generation)) {
                Ok(()) => entry.interest = Some(interest),
                Err(e) if entry.closing.is_none() => {
                    let error = entry.fail(Some(e.into()));
                    self.pending.push(Event::Failed { conn, error });
                }
                Err(_) => drop(self.table.remove(conn)),
            }
        }
    }

    /// Makes epoll tell of room to send, if it does not yet.
    fn ask_for_room(poll: &Poll, conn: Conn, entry: &mut EpollConnection) {
        if entry.interest == Some(Interest::Read) {
            let asked = poll.modify(&entry.fd, Interest::ReadWrite, token(conn.slot, conn.generation));
            if asked.is_ok() {
                entry.interest = Some(Interest::ReadWrite);
            }
        }
    }

    fn report_pending(&mut self, events: &mut Vec<Event>) {
        for event in self.pending.drain(..) {
            let (Event::Connected { conn, .. } | Event::Failed { conn, .. }) = &event else { continue };
            if self.table.get(*conn).is_some_and(|entry| entry.closing.is_none()) {
                events.push(event);
            }
        }
        for _ in 0..self.ready.len() {
            let Some(conn) = self.ready.pop_front() else { break };
            let Some(entry) = self.table.get_mut(conn) else { continue };
            if entry.closing.is_some() {
                self.on_closing(conn);
            } else if entry.readable && !entry.paused {
                events.push(Event::Readable { conn, data: Data { conn, token: 0 } });
            } else {
                entry.reported = false;
            }
        }
    }

    /// How long this turn may wait.
    fn patience(&self, until: Option<Time>) -> Option<Duration> {
        let accept = if self.accepting.is_empty() { None } else { Some(self.accept_at) };
        let waits = [until, self.closing.next(), self.dialing.next(), accept];
        let until = waits.into_iter().flatten().min()?;
        if until == Time::NEVER { None } else { Some(until - monotonic()) }
    }

    fn on_ready(&mut self, token: u64, ready: PollEvent, clock: &mut Clock, events: &mut Vec<Event>) {
        let conn = Conn { slot: token as u32, generation: (token >> 32) as u32 };
        if conn.generation == LISTENER {
            match token {
                WAKER => events.push(Event::Woken),
                WATCHED => {}
                _ => self.accept(Listener(conn.slot), clock, events),
            }
            return;
        }
        let Some(entry) = self.table.get_mut(conn) else { return };
        entry.note(ready);
        if entry.closing.is_some() {
            return self.on_closing(conn);
        }
        if entry.failed {
            return;
        }
        if entry.connecting {
            if ready.broken() {
                let error = entry.fail(None);
                events.push(Event::Failed { conn, error });
                return;
            }
            if !ready.writable() {
                return;
            }
            entry.connecting = false;
            events.push(Event::connected(conn, clock.now()));
        }
        if ready.writable() && !entry.outbox.is_empty() {
            match entry.flush(&self.lent) {
                Flushed::All => events.push(Event::Drained { conn }),
                Flushed::Some => {}
                // The peer's last bytes are still to be read, and the error follows them.
                Flushed::Failed => (entry.readable, entry.broken) = (true, true),
            }
        }
        if entry.readable && !entry.reported {
            if !entry.paused {
                entry.reported = true;
                events.push(Event::Readable { conn, data: Data { conn, token: 0 } });
            } else if entry.broken {
                let error = entry.fail(None);
                events.push(Event::Failed { conn, error });
            }
        }
    }

    fn accept(&mut self, listener: Listener, clock: &mut Clock, events: &mut Vec<Event>) {
        let Some(Some(fd)) = self.listeners.get(listener.0 as usize) else { return };
        for _ in 0..self.limits.accepts_per_turn {
            if self.table.is_full() {
                break;
            }
            if self.reserve_used {
                // The limit may have been raised meanwhile.
                self.reserve_from = reserve_from();
                self.reserve_used = thread::lowest_free(fd).is_none_or(|free| free >= self.reserve_from);
            }
            if self.reserve_used {
                self.accept_trouble = Some(NetError::of(NetErrorKind::DescriptorsExhausted));
                self.accept_at = clock.now() + ACCEPT_PAUSE;
                return self.accept_later(listener);
            }
            match socket::accept(fd) {
                Ok((accepted, peer)) => {
                    // The kernel gives the lowest that is free.
                    self.reserve_used = accepted.as_raw_fd() as u64 >= self.reserve_from;
                    let Ok(conn) = self.table.insert(EpollConnection::accepted(accepted)) else { break };
                    self.fresh.push(conn);
                    self.accept_trouble = None;
                    events.push(Event::Accepted { listener, conn, peer });
                    events.push(Event::Readable { conn, data: Data { conn, token: 0 } });
                }
                Err(e) => match e.raw_os_error() {
                    // The kernel takes the descriptor first and looks for a connection then: there are some.
                    Some(libc::EAGAIN) => {
                        self.accept_trouble = None;
                        return;
                    }
                    Some(libc::EMFILE | libc::ENFILE | libc::ENOBUFS | libc::ENOMEM) => {
                        self.accept_trouble = Some(e.into());
                        self.accept_at = clock.now() + ACCEPT_PAUSE;
                        return self.accept_later(listener);
                    }
                    // A connection that failed before we took it (accept(2) names a dozen reasons): the next one.
                    _ => {}
                },
            }
        }
        if self.table.is_full() {
            self.accept_at = clock.now() + ACCEPT_PAUSE;
        }
        self.accept_later(listener);
    }

    /// A connection to a Unix socket. That of TCP is begun where it is asked for.
    fn connect_unix(&mut self, path: &Arc<Path>) -> Result<Conn, NetError> {
        let entry = EpollConnection::dialing(socket::unix()?);
        let conn = self.table.insert(entry).map_err(|_| NetError::of(NetErrorKind::NoMemory))?;
        self.dialing.push(conn, path);
        Ok(conn)
    }

    fn dial(&mut self) {
        while self.dialing.next().is_some() {
            let (now, table) = (monotonic(), &self.table);
            let step = self.dialing.step(now, |conn| table.get(conn).map(|entry| &entry.fd));
            let Some((conn, result)) = step else { return };
            let Some(entry) = self.table.get_mut(conn) else { continue };
            (entry.dialing, entry.connecting) = (false, false);
            self.pending.push(match result {
                Ok(()) => {
                    self.fresh.push(conn);
                    Event::connected(conn, now)
                }
                Err(error) => Event::Failed { conn, error: entry.fail(Some(error)) },
            });
        }
    }

    fn accept_later(&mut self, listener: Listener) {
        if !self.accepting.contains(&listener) {
            self.accepting.push(listener);
        }
    }

    fn accept_again(&mut self, clock: &mut Clock, events: &mut Vec<Event>) {
        if !self.accepting.is_empty() && clock.now() >= self.accept_at {
            for listener in std::mem::take(&mut self.accepting) {
                self.accept(listener, clock, events);
            }
        }
    }

    /// A connection the application has closed enters `state`.
    fn begin_closing(&mut self, conn: Conn, state: Closing) {
        let Some(entry) = self.table.get_mut(conn) else { return };
        entry.closing = Some(state);
        if state == Closing::Linger {
            socket::shutdown(&entry.fd, Shutdown::Write);
            // Its edge may have been used up by the application.
            entry.readable = true;
            entry.ahead = Ahead { bytes: self.limits.closing_bytes, unseen: true };
        }
        let table = &self.table;
        let waits_for = |conn| table.get(conn).and_then(|entry| entry.closing);
        if let Some(oldest) = self.closing.push(&self.limits, monotonic(), (conn, state), waits_for) {
            drop(self.table.remove(oldest));
        }
    }

    /// Ends the connection that has lingered longest if the table is full. Says whether there is
    /// room now.
    fn make_room(&mut self) -> bool {
        if !self.table.is_full() {
            return true;
        }
        let table = &self.table;
        let oldest = self.closing.oldest(|conn| table.get(conn).and_then(|entry| entry.closing));
        oldest.is_some_and(|conn| self.table.remove(conn).is_some()) && !self.table.is_full()
    }

    /// Moves on with a connection the application has closed.
    fn on_closing(&mut self, conn: Conn) {
        let Some(entry) = self.table.get_mut(conn) else { return };
        let Some(mut state) = entry.closing else { return };
        entry.reported = false;
        if state.is_flush() {
            match entry.flush(&self.lent) {
                Flushed::Some => return Self::ask_for_room(&self.poll, conn, entry),
                Flushed::Failed => return drop(self.table.remove(conn)),
                Flushed::All => {}
            }
            let Some(next) = state.after_flush() else { return drop(self.table.remove(conn)) };
            state = next;
            self.begin_closing(conn, state);
        }
        let Some(entry) = self.table.get_mut(conn) else { return };
        let over = entry.broken
            || match state {
                Closing::Linger => self.discard(conn),
                _ => entry.fin || entry.ended,
            };
        if over {
            drop(self.table.remove(conn));
        }
    }

    /// Reads and forgets, as many bytes as the limit allows; whether the end was reached.
    fn discard(&mut self, conn: Conn) -> bool {
        let Some(entry) = self.table.get_mut(conn) else { return false };
        let mut left = entry.ahead;
        if left.bytes == 0 {
            return false;
        }
        let after = entry.read(&mut self.buffer, self.limits.reads_per_turn, |piece| {
            let bytes = match piece {
                ReceivedPiece::Bytes(bytes) => bytes.len() as u64,
                ReceivedPiece::Discarded(bytes) => bytes,
            };
            left.bytes = left.bytes.saturating_sub(bytes);
            left
        });
        if after == After::Open && entry.readable && left.bytes > 0 {
            entry.reported = true;
            self.ready.push_back(conn);
        }
        after != After::Open
    }

    fn expire_closing(&mut self, clock: &mut Clock) {
        while self.closing.next().is_some() {
            let (now, table) = (clock.now(), &self.table);
            let state = |conn| table.get(conn).and_then(|entry| entry.closing);
            let Some(over) = self.closing.expired(now, state) else { return };
            drop(self.table.remove(over));
        }
    }

    /// Sends what can be sent at once; the rest goes to the outbox.
    fn send_or_keep(&mut self, conn: Conn, bytes: Load<'_>) -> Result<(), NetError> {
        let limit = self.limits.unsent_bytes;
        let Some(entry) = self.table.get_mut(conn).filter(|entry| entry.closing.is_none()) else {
            return Ok(());
        };
        if let Some(error) = entry.error {
            return Err(error);
        }
        let whole = match &bytes {
            Load::Copied(bytes) => *bytes,
            Load::Shared(bytes) => &bytes[..],
            Load::Lent(lent, range) => self.lent.range(*lent, range)?,
        };
        if entry.outbox.unsent() + whole.len() > limit {
            return Err(NetError::of(NetErrorKind::NoMemory));
        }
        let mut sent = 0;
        if entry.outbox.is_empty() && !whole.is_empty() && !entry.dialing {
            // While connecting it is tried as well: on a short way the handshake is over already.
            let was_connecting = entry.connecting;
            match entry.send_now(whole) {
                Ok(n) => sent = n,
                Err(error) if was_connecting => {
                    entry.fail(Some(error));
                    self.pending.push(Event::Failed { conn, error });
                    return Ok(());
                }
                Err(error) => return Err(error),
            }
            if was_connecting && sent > 0 {
                entry.connecting = false;
                self.pending.push(Event::connected(conn, monotonic()));
            }
        }
        if sent < whole.len() {
            match bytes {
                Load::Copied(bytes) => entry.outbox.push_copy(&bytes[sent..]),
                Load::Shared(bytes) => entry.outbox.push_shared(bytes.slice(sent..)),
                Load::Lent(lent, range) => entry.outbox.push_lent(lent, range.start + sent..range.end),
            }
            Self::ask_for_room(&self.poll, conn, entry);
        }
        Ok(())
    }
}

/// Data to be sent, and who owns it.
enum Load<'a> {
    Copied(&'a [u8]),
    Shared(Bytes),
    Lent(Lent, Range<usize>),
}

impl Transport for Epoll {
    fn now(&mut self) -> Time {
        monotonic()
    }

    fn listen(
        &mut self,
        at: SocketAddr,
        options: &ListenOptions,
    ) -> Result<(Listener, SocketAddr), NetError> {
        let (fd, at) = socket::listen(at, options)?;
        Ok((self.add_listener(fd, Interest::Read)?, at))
    }

    fn adopt(&mut self, fd: OwnedFd) -> Result<Listener, NetError> {
        socket::adopt(&fd)?;
        self.add_listener(fd, Interest::Shared)
    }

    fn refuse_new(&mut self, listener: Listener) -> bool {
        let fd = self.listeners.get(listener.0 as usize).and_then(Option::as_ref);
        fd.is_some_and(|fd| socket::drop_syns(fd).is_ok())
    }

    fn unlisten(&mut self, listener: Listener) {
        self.accepting.retain(|l| *l != listener);
        if let Some(fd) = self.listeners.get_mut(listener.0 as usize).and_then(Option::take) {
            // It can only fail where epoll does not know it.
            let _ = self.poll.remove(&fd);
        }
    }

    fn set_defer(&mut self, listener: Listener, defer: Option<Duration>) {
        let Some(Some(fd)) = self.listeners.get(listener.0 as usize) else { return };
        // The option exists on every Linux.
        let _ = socket::set_defer_accept(fd, defer);
    }

    fn connect(&mut self, to: SocketAddr, options: &ConnectOptions) -> Result<Conn, NetError> {
        if !self.make_room() {
            return Err(NetError::of(NetErrorKind::NoMemory));
        }
        if let Some(path) = &options.unix {
            return self.connect_unix(path);
        }
        let fd = socket::tcp(to)?;
        if let Some(from) = options.from {
            socket::bind_source(&fd, from)?;
        }
        let started = socket::connect(&fd, to);
        // A result that came at once is reported like one that came later.
        let conn = match self.table.insert(EpollConnection::connecting(fd)) {
            Ok(conn) => conn,
            Err(_) => return Err(NetError::of(NetErrorKind::NoMemory)),
        };
        match started {
            Ok(established) => {
                self.fresh.push(conn);
                if established && let Some(entry) = self.table.get_mut(conn) {
                    entry.connecting = false;
                    self.pending.push(Event::connected(conn, monotonic()));
                }
                Ok(conn)
            }
            Err(e) => {
                drop(self.table.remove(conn));
                Err(e.into())
            }
        }
    }

    fn local(&mut self, conn: Conn) -> Option<SocketAddr> {
        socket::local(&self.live(conn)?.fd)
    }

    fn turn(&mut self, until: Option<Time>, events: &mut Vec<Event>) -> io::Result<()> {
        let before = events.len();
        self.dial();
        self.register_fresh();
        self.report_pending(events);
        let patience = if events.len() > before || !self.ready.is_empty() {
            Some(Duration::ZERO)
        } else {
            self.patience(until)
        };
        let mut clock = Clock::default();
        for index in 0..self.poll.wait(patience)? {
            let (token, ready) = self.poll.event(index);
            self.on_ready(token, ready, &mut clock, events);
        }
        self.accept_again(&mut clock, events);
        self.expire_closing(&mut clock);
        Ok(())
    }

    fn received_by(_: Time) -> Time {
        monotonic()
    }

    fn receive(&mut self, data: Data, take: impl FnMut(&mut [u8])) -> After {
        self.receive_or_discard(data, received(take))
    }

    fn receive_or_discard(&mut self, data: Data, take: impl FnMut(ReceivedPiece<'_>) -> Ahead) -> After {
        let Some(entry) = self.table.get_mut(data.conn).filter(|entry| entry.closing.is_none()) else {
            return After::Gone;
        };
        entry.reported = false;
        if entry.paused {
            return After::Open;
        }
        let after = entry.read(&mut self.buffer, self.limits.reads_per_turn, take);
        if entry.readable {
            entry.reported = true;
            self.ready.push_back(data.conn);
        }
        after
    }

    fn unread(&mut self, conn: Conn) -> Option<Data> {
        let entry = self.live(conn)?;
        (!entry.connecting && !entry.failed).then_some(Data { conn, token: 0 })
    }

    fn send(&mut self, conn: Conn, bytes: &[u8]) -> Result<(), NetError> {
        self.send_or_keep(conn, Load::Copied(bytes))
    }

    fn send_shared(&mut self, conn: Conn, bytes: Bytes) -> Result<(), NetError> {
        self.send_or_keep(conn, Load::Shared(bytes))
    }

    fn send_last(&mut self, conn: Conn, bytes: &[u8], how: Close) -> Result<(), NetError> {
        let mut sent = 0;
        if how == Close::Now
            && let Some(entry) = self.live(conn)
            && entry.is_idle()
        {
            sent = entry.send_and_end(bytes)?;
        }
        if sent < bytes.len() {
            self.send(conn, &bytes[sent..])?;
        }
        self.close(conn, how);
        Ok(())
    }

    fn lend(&mut self, bytes: Arc<[u8]>) -> Lent {
        self.lent.add(bytes)
    }

    fn send_lent(&mut self, conn: Conn, lent: Lent, range: Range<usize>) -> Result<(), NetError> {
        self.send_or_keep(conn, Load::Lent(lent, range))
    }

    fn send_file(
        &mut self,
        conn: Conn,
        head: &[u8],
        file: &Arc<File>,
        range: Range<u64>,
    ) -> Result<(), NetError> {
        let limit = self.limits.unsent_bytes;
        let Some(entry) = self.table.get_mut(conn).filter(|entry| entry.closing.is_none()) else {
            return Ok(());
        };
        if let Some(error) = entry.error {
            return Err(error);
        }
        let before = entry.outbox.unsent();
        let len = usize::try_from(range.end - range.start).unwrap_or(usize::MAX);
        if before.saturating_add(head.len()).saturating_add(len) > limit {
            return Err(NetError::of(NetErrorKind::NoMemory));
        }
        entry.outbox.push_copy(head);
        entry.outbox.push_file(file, range);
        if before > 0 || entry.connecting {
            Self::ask_for_room(&self.poll, conn, entry);
            return Ok(());
        }
        match entry.flush(&self.lent) {
            Flushed::All => {}
            Flushed::Some => Self::ask_for_room(&self.poll, conn, entry),
            Flushed::Failed => return Err(entry.error.unwrap_or(NetError::of(NetErrorKind::Other))),
        }
        Ok(())
    }

    fn sends_files(&self) -> bool {
        true
    }

    fn unsent(&self, conn: Conn) -> usize {
        self.table.get(conn).filter(|entry| entry.closing.is_none()).map_or(0, |entry| entry.outbox.unsent())
    }

    fn pause(&mut self, conn: Conn) {
        if let Some(entry) = self.live(conn) {
            entry.paused = true;
        }
    }

    fn resume(&mut self, conn: Conn) {
        let Some(entry) = self.live(conn) else { return };
        entry.paused = false;
        if entry.readable && !entry.reported {
            entry.reported = true;
            self.ready.push_back(conn);
        }
    }

    fn set_low_water(&mut self, conn: Conn, bytes: usize) {
        if let Some(entry) = self.live(conn) {
            entry.set_low_water(bytes);
        }
    }

    fn close(&mut self, conn: Conn, how: Close) {
        let Some(entry) = self.live(conn) else { return };
        if how == Close::Abort {
            // It can only fail on a connection that failed.
            let _ = socket::set_abort(&entry.fd);
        }
        let given_up = how == Close::Abort || entry.connecting || entry.error.is_some();
        let state = Closing::first(how, entry.outbox.is_empty(), entry.ended, entry.fin);
        match state.filter(|_| !given_up) {
            Some(state) => {
                self.begin_closing(conn, state);
                self.on_closing(conn);
            }
            None => drop(self.table.remove(conn)),
        }
    }

    fn unfinished(&self) -> usize {
        self.table.len()
    }

    fn accept_trouble(&self) -> Option<NetError> {
        self.accept_trouble
    }

    fn info(&mut self, conn: Conn) -> Option<TcpInfo> {
        let entry = self.live(conn)?;
        socket::tcp_info(&entry.fd).ok()
    }

    fn watch(&mut self, descriptor: OwnedFd) -> Result<(), NetError> {
        self.poll.add(&descriptor, Interest::Read, WATCHED)?;
        self.watched.push(descriptor);
        Ok(())
    }

    fn waker(&self) -> Waker {
        Waker(self.wake.clone())
    }

    fn name(&self) -> &'static str {
        "epoll"
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Else the kernel would make room in the midst of accepting, and take ten milliseconds each time.
    #[test]
    fn room_for_descriptors_is_made_at_the_start() {
        let epoll = Epoll::with_limits(TransportLimits { connections: 3000, ..TransportLimits::default() });
        let limit = thread::nofile().expect("a limit").min(3000);
        let status = std::fs::read_to_string("/proc/self/status").expect("of this process");
        let size = status.lines().find_map(|l| l.strip_prefix("FDSize:")?.trim().parse::<u64>().ok());
        assert!(size.expect("FDSize") >= limit, "{size:?} of {limit}");
        drop(epoll.expect("an instance"));
    }
}
