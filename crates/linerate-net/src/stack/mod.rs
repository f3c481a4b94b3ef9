//! TCP in user space: packets in, packets and bytes out, over any [`Link`]. No `unsafe`, no clock and no system call of its own.
//! docs/STACK.md says what is implemented, by section of the RFCs, and what is absent.
//!
//! A turn: everything that the application did since the last one leaves (data, ACK and FIN in one packet where they
//! can); packets are taken, and timers run; their events are reported. So an ACK waits for the response that carries it,
//! and no longer than until the next turn where one is due; where the application is slow, ACKs leave before its turn.

mod cookie;
mod core;
mod demux;
mod entry;
mod flow;
mod flush;
#[doc(hidden)]
pub mod fuzz;
mod handshake;
mod holders;
mod intake;
mod lab;
#[cfg(test)]
mod memory;
mod options;
mod paths;
mod piece;
mod pool;
mod ports;
#[cfg(test)]
mod pressure;
mod reading;
mod reply;
mod shared;
mod source;
mod stalled;
mod stats;
#[cfg(test)]
mod still;
mod time_wait;
mod tuple;
mod wheel;
mod wire;

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use self::core::{Core, mss_of};
use self::demux::Owner;
use self::entry::StackConnection;
use self::flow::Flow;
use self::handshake::StackListener;
use self::intake::Unread;
pub use self::options::{StackLimits, StackOptions, UseOfEcn};
pub use self::reading::FlowSides;
pub use self::stats::StackStats;
use self::tuple::Tuple;
use self::wire::Addr;
use crate::closing::Closing;
use crate::link::Link;
use crate::{
    After, Close, Conn, ConnectOptions, Data, Event, FlowInfo, Lent, ListenOptions, Listener, NetError,
    NetErrorKind, TcpInfo, TcpTotals, Time, Transport, Waker,
};

/// How long a turn waits at most while the link has no room for what is to leave. Reason: it has room again soon, and not every
/// link can say when.
const LINK_FULL: Duration = Duration::from_micros(100);

/// Of turns that have enough to do, one in this many asks the link whether its waker was used. Reason: asking may cost
/// a system call.
const LOOKS: u32 = 8;

/// TCP in user space over a link.
pub struct Stack<L> {
    link: L,
    core: Core,
    /// Turns that found enough to do.
    busy: u32,
    /// The application counts as slow for this many turns.
    slow: u8,
    unread: Option<Unread>,
    /// Packets given to the link that it may not have sent yet, and the slots they are from.
    handed: usize,
    leaving: Vec<u32>,
}

impl<L: Link> Stack<L> {
    /// A stack over this link.
    pub fn new(mut link: L, options: StackOptions) -> Stack<L> {
        let now = link.now();
        let core = Core::new(options, now);
        Stack { link, core, busy: 0, slow: 0, unread: None, handed: 0, leaving: Vec::new() }
    }

    /// The link.
    pub fn link(&self) -> &L {
        &self.link
    }

    /// The link, to talk to. Packets are the stack's business.
    pub fn link_mut(&mut self) -> &mut L {
        &mut self.link
    }

    /// How connections use ECN that begin from now on.
    pub fn use_ecn(&mut self, ecn: UseOfEcn) {
        self.core.shared.ecn = ecn;
    }

    /// Counters since the stack began.
    pub fn stats(&self) -> StackStats {
        StackStats { replies_dropped: self.core.replies.dropped(), ..self.core.shared.stats }
    }

    /// Bytes that a connection takes before the application should wait: what a socket's send buffer
    /// has room for.
    pub fn send_room(&self, conn: Conn) -> usize {
        let entry = self.core.table.get(conn).filter(|entry| entry.closing.is_none());
        entry.map_or(0, |entry| entry.flow.send_room(&self.core.shared))
    }

    /// Handshakes under way, and connections that only TIME_WAIT remembers.
    pub fn waiting(&self) -> (usize, usize) {
        (self.core.halves.len(), self.core.waits.len())
    }

    fn live(&mut self, conn: Conn) -> Option<&mut StackConnection> {
        self.core.table.get_mut(conn).filter(|entry| entry.closing.is_none())
    }

    /// The address that a connection to `to` comes from.
    fn source(&self, to: Addr, from: Option<IpAddr>) -> Result<Addr, NetError> {
        let source = match from {
            Some(ip) => Some(Addr::from(ip)),
            None => self.core.addresses.iter().copied().find(|addr| addr.is_v4() == to.is_v4()),
        };
        let source = source.ok_or(NetError::of(NetErrorKind::Unreachable))?;
        if source.is_v4() != to.is_v4() || !source.is_somebody() || !to.is_somebody() {
            return Err(NetError::of(NetErrorKind::Unreachable));
        }
        Ok(source)
    }

    /// Takes bytes to send, copied or lent.
    fn hand_over(
        &mut self,
        conn: Conn,
        len: usize,
        push: impl FnOnce(&mut Flow, &mut shared::SharedPools) -> Result<(), NetError>,
    ) -> Result<(), NetError> {
        let core = &mut self.core;
        let limit = core.limits.unsent_bytes;
        let Some(entry) = core.table.get_mut(conn).filter(|entry| entry.closing.is_none()) else {
            return Ok(());
        };
        if let Some(error) = entry.flow.error {
            // A refusal is reported by its event.
            let told_later = entry.connecting || core.pending.iter().any(|e| is_failure_of(e, conn));
            return if told_later { Ok(()) } else { Err(error) };
        }
        if entry.flow.held_back(&core.shared) + len > limit {
            return Err(NetError::of(NetErrorKind::NoMemory));
        }
        if len == 0 {
            return Ok(());
        }
        let entry = if core.shared.pool.has_room_beyond_reserve(len) {
            entry
        } else {
            core.make_memory_for(conn, len)?;
            let Some(entry) = core.table.get_mut(conn) else { return Ok(()) };
            entry
        };
        entry.flow.begin_push(core.now);
        push(&mut entry.flow, &mut core.shared)?;
        if !std::mem::replace(&mut entry.dirty, true) {
            core.dirty.push(conn.slot);
        }
        Ok(())
    }

    /// Until when a caller that waits for the link's packets by itself may wait, instead of
    /// [`Transport::turn`], which it calls next.
    pub fn patience(&mut self, until: Option<Time>) -> Option<Time> {
        let core = &mut self.core;
        let full = (!core.dirty.is_empty() || core.replies.front().is_some()).then(|| core.now + LINK_FULL);
        let timers = core.next_deadline();
        // What is due waits for room too.
        let timers = if core.replies.is_behind() { timers.max(full) } else { timers };
        let until = until.filter(|until| *until != Time::NEVER);
        [until, timers, full].into_iter().flatten().min()
    }
}

fn is_failure_of(event: &Event, of: Conn) -> bool {
    matches!(event, Event::Failed { conn, .. } if *conn == of)
}

impl<L: Link> Transport for Stack<L> {
    fn now(&mut self) -> Time {
        self.link.now()
    }

    fn listen(
        &mut self,
        at: SocketAddr,
        options: &ListenOptions,
    ) -> Result<(Listener, SocketAddr), NetError> {
        let mut at = at;
        let core = &mut self.core;
        if at.port() == 0 {
            let (first, last) = core.shared.limits.ports;
            let free = (first..=last).rev().find(|port| core.is_free(SocketAddr::new(at.ip(), *port)));
            at.set_port(free.ok_or(NetError::of(NetErrorKind::AddressInUse))?);
        } else if !core.is_free(at) {
            return Err(NetError::of(NetErrorKind::AddressInUse));
        }
        let index = core.listeners.iter().position(Option::is_none).unwrap_or(core.listeners.len());
        if index == core.listeners.len() {
            core.listeners.push(None);
        }
        core.listeners[index] = Some(StackListener::new(at, options));
        Ok((Listener(index as u32), at))
    }

    fn unlisten(&mut self, listener: Listener) {
        let core = &mut self.core;
        for half in core.halves.of(listener.0) {
            core.abandon(half);
        }
        if let Some(place) = core.listeners.get_mut(listener.0 as usize) {
            *place = None;
        }
    }

    fn connect(&mut self, to: SocketAddr, options: &ConnectOptions) -> Result<Conn, NetError> {
        if options.unix.is_some() {
            return Err(NetError::from_errno(libc::EOPNOTSUPP));
        }
        if !self.core.make_room() {
            return Err(NetError::of(NetErrorKind::NoMemory));
        }
        let remote = Addr::from(to.ip());
        let local = self.source(remote, options.from)?;
        let tuple = Tuple { local, remote, local_port: 0, remote_port: to.port() };
        let mss = mss_of(self.link.mtu(to.ip()), &remote);
        let core = &mut self.core;
        let (tuple, hash) = core.choose_port(tuple)?;
        core.shared.stats.active_opens += 1;
        let flow = Flow::connect(tuple, mss, core.now, &mut core.shared);
        let Ok(conn) = core.table.insert(StackConnection::new(flow, hash, true)) else {
            return Err(NetError::of(NetErrorKind::NoMemory));
        };
        core.demux.insert(hash, Owner::Flow(conn.slot));
        core.touch(conn);
        Ok(conn)
    }

    fn local(&mut self, conn: Conn) -> Option<SocketAddr> {
        Some(self.core.table.get(conn)?.flow.tuple.own())
    }

    fn turn(&mut self, until: Option<Time>, events: &mut Vec<Event>) -> io::Result<()> {
        let before = events.len();
        self.note_absence();
        self.flush()?;
        self.core.report(events);
        self.take_packets(events);
        if events.len() > before {
            self.acknowledge_before()?;
            self.busy = self.busy.wrapping_add(1);
            return if self.busy.is_multiple_of(LOOKS) { self.look_for_waker(events) } else { Ok(()) };
        }
        // Received data may get a response at once: a busy link is not waited for.
        self.flush()?;
        self.core.report(events);
        let until = if events.len() > before { Some(Time::ZERO) } else { self.patience(until) };
        if self.link.wait(until)? {
            events.push(Event::Woken);
        }
        self.take_packets(events);
        if events.len() > before { self.acknowledge_before() } else { Ok(()) }
    }

    fn receive(&mut self, data: Data, take: impl FnMut(&mut [u8])) -> After {
        let conn = data.conn;
        let core = &mut self.core;
        let Some(entry) = core.table.get_mut(conn).filter(|entry| entry.closing.is_none()) else {
            return After::Gone;
        };
        entry.reported = false;
        if entry.paused {
            return After::Open;
        }
        let most = core.limits.receive_bytes.saturating_mul(core.limits.reads_per_turn as usize);
        let most = most.min(core.shared.limits.lent_per_turn);
        entry.flow.read(core.now, most, &mut core.shared, take);
        let opened = entry.flow.note_read();
        let after = if entry.flow.has_bytes() {
            entry.reported = true;
            core.ready.push_back(conn);
            After::Open
        } else if entry.flow.receive.ended && !entry.ended {
            entry.ended = true;
            After::Ended
        } else if let Some(error) = entry.flow.error.filter(|_| !entry.failed) {
            entry.failed = true;
            After::Failed(error)
        } else if entry.ended {
            After::Ended
        } else {
            After::Open
        };
        if after == After::Ended {
            core.fail_unread(conn);
        }
        if opened {
            core.touch(conn);
        }
        after
    }

    fn send(&mut self, conn: Conn, bytes: &[u8]) -> Result<(), NetError> {
        self.hand_over(conn, bytes.len(), |flow, shared| flow.push(bytes, shared))
    }

    fn lend(&mut self, bytes: Arc<[u8]>) -> Lent {
        self.core.shared.lent.add(bytes)
    }

    fn send_lent(&mut self, conn: Conn, lent: Lent, range: Range<usize>) -> Result<(), NetError> {
        if self.live(conn).is_none() {
            return Ok(());
        }
        self.core.shared.lent.range(lent, &range)?;
        self.hand_over(conn, range.len(), |flow, shared| flow.push_lent(lent.0, range, shared))
    }

    fn unsent(&self, conn: Conn) -> usize {
        let Some(entry) = self.core.table.get(conn).filter(|entry| entry.closing.is_none()) else { return 0 };
        let held = entry.flow.held_back(&self.core.shared);
        if held > 0 {
            entry.waited.set(true);
        }
        held
    }

    fn pause(&mut self, conn: Conn) {
        if let Some(entry) = self.live(conn) {
            entry.paused = true;
        }
    }

    fn resume(&mut self, conn: Conn) {
        let Some(entry) = self.live(conn) else { return };
        entry.paused = false;
        if entry.is_readable() && !entry.reported {
            entry.reported = true;
            self.core.ready.push_back(conn);
        }
    }

    fn set_low_water(&mut self, conn: Conn, bytes: usize) {
        let Some(entry) = self.live(conn) else { return };
        entry.low_water_or_discarded = u32::try_from(bytes).unwrap_or(u32::MAX);
        if entry.is_readable() && !entry.reported && !entry.paused {
            entry.reported = true;
            self.core.ready.push_back(conn);
        }
    }

    fn close(&mut self, conn: Conn, how: Close) {
        let Some(entry) = self.live(conn) else { return };
        if entry.flow.error.is_some() {
            return self.core.remove(conn);
        }
        // A SYN may have arrived. Its SYN-ACK may find no connection to refuse it, and the peer would keep half a connection
        // for a minute.
        if how == Close::Abort || entry.connecting {
            let (tuple, reset) = (entry.flow.tuple, entry.flow.reset_header());
            self.core.shared.stats.resets_out += 1;
            self.core.replies.push(&tuple, reset);
            return self.core.remove(conn);
        }
        let unread = entry.flow.has_bytes();
        let flushed = entry.flow.all_acked();
        let closing = match how {
            Close::AfterPeer if entry.flow.receive.ended => Closing::Flush,
            Close::AfterPeer if flushed => Closing::AfterPeer,
            Close::AfterPeer => Closing::FlushThenAfterPeer,
            Close::Lingering if entry.flow.receive.ended => Closing::Flush,
            Close::Lingering if flushed => Closing::Linger,
            Close::Lingering => Closing::FlushThenLinger,
            Close::Now | Close::Abort => Closing::Flush,
        };
        entry.resets = unread && how == Close::Now;
        self.core.begin_closing(conn, closing);
    }

    fn info(&mut self, conn: Conn) -> Option<TcpInfo> {
        let now = self.core.now;
        self.live(conn).map(|entry| entry.flow.info(now))
    }

    fn waker(&self) -> Waker {
        self.link.waker()
    }

    fn unfinished(&self) -> usize {
        self.core.table.len()
    }

    fn half_closed(&self) -> usize {
        self.core.waits.fin_waits() + self.core.replies.len()
    }

    fn reset_closed(&mut self, most: usize) -> usize {
        self.core.reset_closed(most)
    }

    fn totals(&self) -> Option<TcpTotals> {
        let (handshakes, time_wait) = self.waiting();
        let totals = TcpTotals {
            connections: self.core.table.len() as u64,
            handshakes: handshakes as u64,
            time_wait: time_wait as u64,
            buffer_bytes: self.core.shared.pool.bytes_in_use() as u64,
            overrun: self.link.overrun(),
            too_large: self.link.too_large(),
            ..self.stats().totals()
        };
        Some(totals)
    }

    fn news(&mut self) -> Option<String> {
        self.link.news()
    }

    fn flows(&self, from: usize, most: usize, mut each: impl FnMut(FlowInfo)) -> Option<usize> {
        let core = &self.core;
        let end = core.table.slots().min(from.saturating_add(most));
        for slot in from..end {
            // Slots are numbered by u32.
            if let Some(entry) = core.table.at(slot as u32) {
                each(entry.flow.view(core.now, &core.shared.limits));
            }
        }
        (end < core.table.slots()).then_some(end)
    }

    fn name(&self) -> &'static str {
        "stack"
    }
}
