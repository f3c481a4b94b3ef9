//! HTTP/3: connections of QUIC beside those of TCP, in the loop of one thread.
//!
//! [`WithQuic`] is a transport over another one. Its listeners with TLS listen on UDP too. A connection of
//! QUIC is one more connection to the loop: what passes on it are records of its streams
//! ([`StreamRecord`](linerate_http::h3::server::StreamRecord)), which
//! [`H3Server`](linerate_http::h3::server::H3Server) reads and writes.

mod listeners;
mod streams;

use std::any::Any;
use std::collections::VecDeque;
use std::fs::File;
use std::io;
use std::net::SocketAddr;
use std::ops::Range;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use linerate_http::h3::H3Code;
use linerate_net::datagrams::{DatagramSocket, Datagrams};
use linerate_net::{
    After, Ahead, Close, Conn, ConnectOptions, Data, Event, FlowInfo, Lent, ListenOptions, Listener,
    NetError, NetErrorKind, Profile, ReceivedPiece, TcpInfo, TcpTotals, Time, Transport, Waker,
};
use linerate_quic::{QuicConn, QuicEvent};
use linerate_tls::TlsInfo;

pub(crate) use self::listeners::QuicListening;
use self::listeners::{PROTOCOL, QuicListener};
use self::streams::{CarriedConnection, SpareWindows};
use crate::limits::{QUIC_DATAGRAMS, QUIC_LINGER, QUIC_RENEW, QUIC_SEND_TOGETHER};

/// A transport, and QUIC over datagrams beside it.
///
/// The slots of the transport's connections are even here, and those of QUIC's odd.
pub(crate) struct WithQuic<T, D> {
    wire: T,
    datagrams: D,
    listening: QuicListening,
    listeners: Vec<Option<QuicListener>>,
    connections: Vec<Option<CarriedConnection>>,
    free: Vec<u32>,
    generation: u32,
    spare: SpareWindows,
    /// Closed connections that wait for their last responses to be acknowledged, the oldest first.
    closing: VecDeque<Conn>,
    /// Connections to look at before the next wait: the application has sent on them.
    touched: Vec<Conn>,
    /// When to look whether listeners are to speak other TLS.
    renew_at: Time,
    /// A socket may have more to read.
    has_more: bool,
    told: Vec<Event>,
    ready: Vec<DatagramSocket>,
    out: Vec<u8>,
}

/// The transport's connection, for one of ours.
fn inner(conn: Conn) -> Conn {
    Conn::new(conn.slot() as u32 / 2, conn.generation())
}

/// Ours, for one of the transport's.
fn outer(conn: Conn) -> Conn {
    Conn::new(conn.slot() as u32 * 2, conn.generation())
}

fn is_quic(conn: Conn) -> bool {
    conn.slot() % 2 == 1
}

impl<T: Transport, D: Datagrams> WithQuic<T, D> {
    pub(crate) fn new(wire: T, datagrams: D, listening: QuicListening) -> WithQuic<T, D> {
        WithQuic {
            wire,
            datagrams,
            listening,
            listeners: Vec::new(),
            connections: Vec::new(),
            free: Vec::new(),
            generation: 0,
            spare: SpareWindows(QUIC_SEND_TOGETHER),
            closing: VecDeque::new(),
            touched: Vec::new(),
            renew_at: Time::ZERO,
            has_more: false,
            told: Vec::new(),
            ready: Vec::new(),
            out: Vec::new(),
        }
    }

    fn get(&self, conn: Conn) -> Option<&CarriedConnection> {
        self.connections
            .get(conn.slot() / 2)?
            .as_ref()
            .filter(|held| held.conn == conn && held.until.is_none())
    }

    /// A connection that the application has, with its endpoint.
    fn held(&mut self, conn: Conn) -> Option<(&mut CarriedConnection, &mut QuicListener)> {
        let held = self.connections.get_mut(conn.slot() / 2)?.as_mut();
        let held = held.filter(|held| held.conn == conn && held.until.is_none())?;
        let listener = self.listeners.get_mut(held.endpoint)?.as_mut()?;
        Some((held, listener))
    }

    /// Sends what QUIC has to say.
    fn transmit(&mut self) {
        let now = self.wire.now();
        for listener in self.listeners.iter_mut().flatten() {
            listener.transmit(now, QUIC_DATAGRAMS, &mut self.datagrams, &mut self.out);
        }
    }

    /// Takes the datagrams that came, and lets time pass.
    fn receive_datagrams(&mut self, events: &mut Vec<Event>) -> io::Result<()> {
        let now = self.wire.now();
        if now >= self.renew_at {
            self.renew_at = now + QUIC_RENEW;
            self.listeners.iter_mut().flatten().for_each(|listener| self.listening.renew(listener));
        }
        let mut ready = std::mem::take(&mut self.ready);
        self.datagrams.turn(Some(Time::ZERO), &mut ready)?;
        let now = self.wire.now();
        for socket in ready.drain(..) {
            if let Some(listener) = self.listeners.iter_mut().flatten().find(|held| held.socket == socket) {
                self.has_more |= listener.receive(now, &mut self.datagrams);
            }
        }
        self.ready = ready;
        for at in 0..self.listeners.len() {
            if let Some(listener) = &mut self.listeners[at] {
                listener.end.run_timers(now);
            }
            while let Some(event) = self.listeners[at].as_mut().and_then(|listener| listener.end.next_event())
            {
                self.on_event(at, event, events);
            }
        }
        Ok(())
    }

    fn on_event(&mut self, at: usize, event: QuicEvent, events: &mut Vec<Event>) {
        let quic = match &event {
            QuicEvent::Accepted { .. } => return,
            QuicEvent::Connected { conn } => return self.connected(at, *conn, events),
            QuicEvent::Lost { conn, .. } => return self.lost(at, *conn, events),
            QuicEvent::Opened { conn, .. }
            | QuicEvent::Readable { conn, .. }
            | QuicEvent::Writable { conn, .. }
            | QuicEvent::Stopped { conn, .. }
            | QuicEvent::Room { conn, .. } => *conn,
        };
        let Some(listener) = &mut self.listeners[at] else { return };
        let Some(held) = listener.conn_of(quic).and_then(|conn| self.connections[conn.slot() / 2].as_mut())
        else {
            return;
        };
        let end = &mut listener.end;
        match event {
            QuicEvent::Opened { stream, .. } => held.opened(end, stream),
            QuicEvent::Readable { stream, .. } => held.readable(end, stream),
            QuicEvent::Writable { stream, .. } => {
                held.writable(end, stream);
                held.grow(end, &mut self.spare);
            }
            QuicEvent::Stopped { stream, code, .. } => held.stopped(end, stream, code),
            QuicEvent::Room { unidirectional: true, .. } => held.admitted(end),
            _ => {}
        }
        held.tell(events);
    }

    /// A handshake is complete: from here on the application knows the connection.
    fn connected(&mut self, at: usize, quic: QuicConn, events: &mut Vec<Event>) {
        let Some(listener) = &mut self.listeners[at] else { return };
        let (Some(agreed), Some(peer)) = (listener.end.agreed(quic), listener.end.peer(quic)) else { return };
        let tls = TlsInfo::of_quic(agreed.protocol.as_deref(), agreed.certificates);
        let slot = self.free.pop().unwrap_or(self.connections.len() as u32);
        if slot as usize == self.connections.len() {
            self.connections.push(None);
        }
        self.generation = self.generation.wrapping_add(1);
        let conn = Conn::new(slot * 2 + 1, self.generation);
        listener.remember(quic, conn);
        let listening = listener.listener;
        self.connections[slot as usize] = Some(CarriedConnection::new(conn, (quic, at), tls));
        events.push(Event::Accepted { listener: listening, conn, peer });
    }

    fn lost(&mut self, at: usize, quic: QuicConn, events: &mut Vec<Event>) {
        let Some(conn) = self.listeners[at].as_mut().and_then(|listener| listener.conn_of(quic)) else {
            return;
        };
        if self.get(conn).is_some() {
            events.push(Event::Failed { conn, error: NetError::of(NetErrorKind::Reset) });
        }
        self.remove(conn);
    }

    /// Forgets a connection.
    fn remove(&mut self, conn: Conn) {
        let held =
            self.connections.get_mut(conn.slot() / 2).and_then(|held| held.take_if(|held| held.conn == conn));
        if let Some(held) = held {
            held.give_back(&mut self.spare);
            self.free.push(conn.slot() as u32 / 2);
            if let Some(listener) = &mut self.listeners[held.endpoint] {
                listener.forget(held.quic);
            }
        }
    }

    /// Ends connections that the application has closed: once their last responses were acknowledged, or
    /// that takes too long.
    fn end_closed(&mut self) {
        let now = self.wire.now();
        for _ in 0..self.closing.len() {
            let Some(conn) = self.closing.pop_front() else { return };
            let Some(held) = self.connections[conn.slot() / 2].as_mut().filter(|held| held.conn == conn)
            else {
                continue;
            };
            let Some(listener) = &mut self.listeners[held.endpoint] else { continue };
            if held.is_settled(&mut listener.end) || held.until.is_none_or(|until| until <= now) {
                let code = held.code.unwrap_or(H3Code::NO_ERROR.0);
                listener.end.close(now, held.quic, code, "");
                self.remove(conn);
            } else {
                self.closing.push_back(conn);
            }
        }
        let closing = &self.closing;
        for at in 0..self.listeners.len() {
            let is_done = |listener: &QuicListener| listener.is_closed && listener.end.connections() == 0;
            if closing.is_empty()
                && self.listeners[at].as_ref().is_some_and(is_done)
                && let Some(listener) = self.listeners[at].take()
            {
                self.datagrams.close(listener.socket);
            }
        }
    }

    /// Tells of what the application's own calls have led to.
    fn tell_touched(&mut self, events: &mut Vec<Event>) {
        for conn in std::mem::take(&mut self.touched) {
            if let Some((held, _)) = self.held(conn) {
                held.is_touched = false;
                held.tell(events);
            }
        }
    }

    fn next_deadline(&self) -> Option<Time> {
        let timers = self.listeners.iter().flatten().filter_map(|listener| listener.end.deadline());
        let closing = self.closing.front().and_then(|conn| self.connections[conn.slot() / 2].as_ref()?.until);
        timers.chain(closing).min()
    }

    /// Ends a connection of QUIC for the application.
    fn close_quic(&mut self, conn: Conn, how: Close) {
        let now = self.wire.now();
        let Some((held, listener)) = self.held(conn) else { return };
        let code = held
            .code
            .unwrap_or(if how == Close::Abort { H3Code::EXCESSIVE_LOAD } else { H3Code::NO_ERROR }.0);
        held.code = Some(code);
        if how != Close::Abort && code == H3Code::NO_ERROR.0 {
            held.until = Some(now + QUIC_LINGER);
            self.closing.push_back(conn);
            return;
        }
        listener.end.close(now, held.quic, code, "");
        self.remove(conn);
    }

    fn send_quic(&mut self, conn: Conn, bytes: &[u8]) {
        let Some((held, listener)) = self.held(conn) else { return };
        held.take(&mut listener.end, bytes);
        if !std::mem::replace(&mut held.is_touched, true) {
            self.touched.push(conn);
        }
    }
}

impl<T: Transport, D: Datagrams> Transport for WithQuic<T, D> {
    fn now(&mut self) -> Time {
        self.wire.now()
    }

    fn listen(
        &mut self,
        at: SocketAddr,
        options: &ListenOptions,
    ) -> Result<(Listener, SocketAddr), NetError> {
        let (listener, at) = self.wire.listen(at, options)?;
        match self.listening.open(&mut self.datagrams, listener, at, options) {
            Ok(Some(quic)) => match self.listeners.iter().position(Option::is_none) {
                Some(free) => self.listeners[free] = Some(quic),
                None => self.listeners.push(Some(quic)),
            },
            Ok(None) => {}
            Err(error) => {
                self.wire.unlisten(listener);
                return Err(error);
            }
        }
        Ok((listener, at))
    }

    fn adopt(&mut self, socket: OwnedFd) -> Result<Listener, NetError> {
        self.wire.adopt(socket)
    }

    fn unlisten(&mut self, listener: Listener) {
        self.wire.unlisten(listener);
        for held in self.listeners.iter_mut().flatten().filter(|held| held.listener == listener) {
            held.is_closed = true;
            held.end.accept_up_to(0);
        }
    }

    fn refuse_new(&mut self, listener: Listener) -> bool {
        for held in self.listeners.iter_mut().flatten().filter(|held| held.listener == listener) {
            held.end.accept_up_to(0);
        }
        self.wire.refuse_new(listener)
    }

    fn set_defer(&mut self, listener: Listener, defer: Option<Duration>) {
        self.wire.set_defer(listener, defer);
    }

    fn connect(&mut self, to: SocketAddr, options: &ConnectOptions) -> Result<Conn, NetError> {
        self.wire.connect(to, options).map(outer)
    }

    fn local(&mut self, conn: Conn) -> Option<SocketAddr> {
        if is_quic(conn) {
            return self.held(conn).map(|(_, listener)| listener.at);
        }
        self.wire.local(inner(conn))
    }

    fn turn(&mut self, until: Option<Time>, events: &mut Vec<Event>) -> io::Result<()> {
        let before = events.len();
        self.tell_touched(events);
        self.end_closed();
        self.transmit();
        let until = match std::mem::take(&mut self.has_more) || events.len() > before {
            true => Some(Time::ZERO),
            false => until.into_iter().chain(self.next_deadline()).min(),
        };
        let mut told = std::mem::take(&mut self.told);
        let turned = self.wire.turn(until, &mut told);
        events.extend(told.drain(..).map(translated));
        self.told = told;
        turned?;
        self.receive_datagrams(events)
    }

    fn received_by(turn: Time) -> Time {
        T::received_by(turn)
    }

    fn receive(&mut self, data: Data, mut take: impl FnMut(&mut [u8])) -> After {
        let conn = data.conn();
        if !is_quic(conn) {
            return self.wire.receive(Data::new(inner(conn), data.token()), take);
        }
        let Some((held, _)) = self.held(conn) else { return After::Gone };
        held.is_told = false;
        let mut records = std::mem::take(&mut held.inbox);
        take(&mut records);
        records.clear();
        if let Some((held, _)) = self.held(conn)
            && held.inbox.is_empty()
        {
            held.keep_inbox(records);
        }
        After::Open
    }

    fn receive_or_discard(&mut self, data: Data, mut take: impl FnMut(ReceivedPiece<'_>) -> Ahead) -> After {
        if !is_quic(data.conn()) {
            return self.wire.receive_or_discard(Data::new(inner(data.conn()), data.token()), take);
        }
        self.receive(data, |bytes| {
            take(ReceivedPiece::Bytes(bytes));
        })
    }

    fn unread(&mut self, conn: Conn) -> Option<Data> {
        if is_quic(conn) {
            return None;
        }
        self.wire.unread(inner(conn)).map(|data| Data::new(conn, data.token()))
    }

    fn send(&mut self, conn: Conn, bytes: &[u8]) -> Result<(), NetError> {
        if !is_quic(conn) {
            return self.wire.send(inner(conn), bytes);
        }
        self.send_quic(conn, bytes);
        Ok(())
    }

    fn send_shared(&mut self, conn: Conn, bytes: Bytes) -> Result<(), NetError> {
        if !is_quic(conn) {
            return self.wire.send_shared(inner(conn), bytes);
        }
        self.send(conn, &bytes)
    }

    fn send_last(&mut self, conn: Conn, bytes: &[u8], how: Close) -> Result<(), NetError> {
        if !is_quic(conn) {
            return self.wire.send_last(inner(conn), bytes, how);
        }
        self.send(conn, bytes)?;
        self.close(conn, how);
        Ok(())
    }

    fn gathers(&self) -> bool {
        self.wire.gathers()
    }

    fn lend(&mut self, bytes: Arc<[u8]>) -> Lent {
        self.wire.lend(bytes)
    }

    fn send_lent(&mut self, conn: Conn, lent: Lent, range: Range<usize>) -> Result<(), NetError> {
        if is_quic(conn) {
            return Err(NetError::from_errno(rustix::io::Errno::OPNOTSUPP.raw_os_error()));
        }
        self.wire.send_lent(inner(conn), lent, range)
    }

    fn send_file(
        &mut self,
        conn: Conn,
        head: &[u8],
        file: &Arc<File>,
        range: Range<u64>,
    ) -> Result<(), NetError> {
        if !is_quic(conn) {
            return self.wire.send_file(inner(conn), head, file, range);
        }
        // Streams have the files of their responses read piece by piece.
        Err(NetError::from_errno(rustix::io::Errno::OPNOTSUPP.raw_os_error()))
    }

    fn sends_files(&self) -> bool {
        self.wire.sends_files()
    }

    fn unsent(&self, conn: Conn) -> usize {
        if is_quic(conn) {
            return self.get(conn).map_or(0, |held| held.unsent);
        }
        self.wire.unsent(inner(conn))
    }

    fn pause(&mut self, conn: Conn) {
        // What comes of QUIC's streams is bounded by what was released.
        if !is_quic(conn) {
            self.wire.pause(inner(conn));
        }
    }

    fn resume(&mut self, conn: Conn) {
        if !is_quic(conn) {
            self.wire.resume(inner(conn));
        }
    }

    fn set_low_water(&mut self, conn: Conn, bytes: usize) {
        if !is_quic(conn) {
            self.wire.set_low_water(inner(conn), bytes);
        }
    }

    fn close(&mut self, conn: Conn, how: Close) {
        if is_quic(conn) {
            return self.close_quic(conn, how);
        }
        self.wire.close(inner(conn), how);
    }

    fn unfinished(&self) -> usize {
        self.wire.unfinished() + self.connections.iter().flatten().count()
    }

    fn half_closed(&self) -> usize {
        self.wire.half_closed()
    }

    fn reset_closed(&mut self, most: usize) -> usize {
        self.wire.reset_closed(most)
    }

    fn accept_trouble(&self) -> Option<NetError> {
        self.wire.accept_trouble()
    }

    fn protocol(&self, conn: Conn) -> Option<&[u8]> {
        if is_quic(conn) {
            return self.get(conn).map(|_| PROTOCOL);
        }
        self.wire.protocol(inner(conn))
    }

    fn reason(&self, conn: Conn) -> Option<String> {
        if is_quic(conn) { None } else { self.wire.reason(inner(conn)) }
    }

    fn about(&self, conn: Conn) -> Option<Arc<dyn Any + Send + Sync>> {
        if is_quic(conn) {
            return Some(Arc::clone(&self.get(conn)?.tls) as Arc<dyn Any + Send + Sync>);
        }
        self.wire.about(inner(conn))
    }

    fn set_profile(&mut self, listener: Listener, profile: Profile) {
        self.wire.set_profile(listener, profile);
    }

    fn info(&mut self, conn: Conn) -> Option<TcpInfo> {
        if is_quic(conn) { None } else { self.wire.info(inner(conn)) }
    }

    fn watch(&mut self, descriptor: OwnedFd) -> Result<(), NetError> {
        self.wire.watch(descriptor)
    }

    fn waker(&self) -> Waker {
        self.wire.waker()
    }

    fn totals(&self) -> Option<TcpTotals> {
        self.wire.totals()
    }

    fn news(&mut self) -> Option<String> {
        self.wire.news()
    }

    fn flows(&self, from: usize, most: usize, each: impl FnMut(FlowInfo)) -> Option<usize> {
        self.wire.flows(from, most, each)
    }

    fn name(&self) -> &'static str {
        self.wire.name()
    }
}

/// An event of the transport, with our connection.
fn translated(event: Event) -> Event {
    match event {
        Event::Accepted { listener, conn, peer } => Event::Accepted { listener, conn: outer(conn), peer },
        Event::Connected { conn, at, tcp_at } => Event::Connected { conn: outer(conn), at, tcp_at },
        Event::Readable { conn, data } => {
            Event::Readable { conn: outer(conn), data: Data::new(outer(conn), data.token()) }
        }
        Event::Drained { conn } => Event::Drained { conn: outer(conn) },
        Event::Failed { conn, error } => Event::Failed { conn: outer(conn), error },
        Event::Woken => Event::Woken,
    }
}
