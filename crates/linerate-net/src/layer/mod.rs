//! A protocol between a transport and the application: encryption, a proxy's preamble.
//!
//! [`Layered`] is a transport over another one. Where its [`Layer`] makes a [`Session`] for a connection, the session changes
//! the bytes in both directions, after a handshake if it needs one. Where it makes none, bytes pass as they are. The
//! application sees the rules of [`Transport`]:
//!
//! * A connection we ask for is [`Event::Connected`] once its session is ready. Bytes sent before wait for that.
//! * A connection that is accepted is reported at once. It becomes readable when its session has bytes for the application.
//! * [`Close`] ends the session first, so that the peer can tell the end from a cut.
//!
//! Layers do not nest: the sessions of a layer may contain others.

mod entry;
mod session;
mod table;

use std::any::Any;
use std::collections::HashMap;
use std::fs::File;
use std::io;
use std::net::SocketAddr;
use std::ops::Range;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;

use self::entry::{HandshakeSide, LayerStage, LayeredConnection, after, broken};
pub use self::session::{Layer, Progress, Session};
use self::table::Entries;
use crate::closing::{Closing, ClosingQueue};
use crate::{
    After, Ahead, Close, Conn, ConnectOptions, Data, Event, FlowInfo, Lent, ListenOptions, Listener,
    NetError, NetErrorKind, Profile, ReceivedPiece, TcpInfo, TcpTotals, Time, Transport, TransportLimits,
    Waker,
};

/// The token of claims on bytes that came with the end of a handshake. No transport has a buffer of this number.
const EARLY: u64 = u64::MAX;

/// A transport whose connections have sessions.
pub struct Layered<T, L: Layer> {
    wire: T,
    layer: L,
    limits: TransportLimits,
    entries: Entries<L::Session>,
    profiles: HashMap<Listener, Profile>,
    lent: Vec<(Arc<[u8]>, Lent)>,
    /// Events of the transport in this turn.
    told: Vec<Event>,
    /// Connections in [`LayerStage::Closing`], the oldest first.
    closing: ClosingQueue,
    /// Bytes for the wire, kept for its allocation.
    sealed: Vec<u8>,
}

impl<T: Transport, L: Layer> Layered<T, L> {
    /// Over a transport that was made with the same limits.
    pub fn new(wire: T, layer: L, limits: TransportLimits) -> Layered<T, L> {
        Layered {
            wire,
            layer,
            limits,
            entries: Entries::new(),
            profiles: HashMap::new(),
            lent: Vec::new(),
            told: Vec::new(),
            closing: ClosingQueue::default(),
            sealed: Vec::new(),
        }
    }

    /// The layer.
    pub fn layer(&self) -> &L {
        &self.layer
    }

    /// The layer, to change what later sessions are like.
    pub fn layer_mut(&mut self) -> &mut L {
        &mut self.layer
    }

    /// The session of a connection, if it has one.
    pub fn session(&self, conn: Conn) -> Option<&L::Session> {
        self.entries.get(conn).map(|entry| &entry.session)
    }

    fn on_event(&mut self, event: Event, events: &mut Vec<Event>) {
        let conn = match &event {
            Event::Accepted { listener, conn, peer } => {
                return self.accepted(*listener, *conn, *peer, events);
            }
            Event::Woken => return events.push(event),
            Event::Connected { conn, .. }
            | Event::Readable { conn, .. }
            | Event::Drained { conn }
            | Event::Failed { conn, .. } => *conn,
        };
        let Some(entry) = self.entries.get_mut(conn) else { return events.push(event) };
        match event {
            Event::Connected { tcp_at, .. } => {
                entry.tcp_at = tcp_at;
                entry.stage = LayerStage::Shaking;
                self.begin(conn, events);
            }
            Event::Readable { data, .. } => match entry.stage {
                LayerStage::Ready | LayerStage::Failed if entry.after != After::Open => {
                    self.discard(conn, data, events)
                }
                LayerStage::Ready | LayerStage::Failed => events.push(Event::Readable { conn, data }),
                LayerStage::Connecting | LayerStage::Shaking | LayerStage::Closing { .. } => {
                    self.shake(conn, data, events)
                }
            },
            // A handshake's bytes cause it too, before the application's have left.
            Event::Drained { .. } => {
                if entry.stage == LayerStage::Ready {
                    events.push(event);
                }
            }
            Event::Failed { .. } if entry.is_closing() => self.give_up(conn, Close::Abort),
            Event::Failed { error, .. } => {
                if entry.stage == LayerStage::Shaking {
                    entry.session.lost(error);
                }
                // A failure is reported once, here or by a receive.
                let is_new = std::mem::replace(&mut entry.stage, LayerStage::Failed) != LayerStage::Failed;
                if is_new && !std::mem::replace(&mut entry.failure_told, true) {
                    events.push(event);
                }
            }
            Event::Accepted { .. } | Event::Woken => {}
        }
    }

    fn accepted(&mut self, listener: Listener, conn: Conn, peer: SocketAddr, events: &mut Vec<Event>) {
        let profile = self.profiles.get(&listener).copied().unwrap_or_default();
        events.push(Event::Accepted { listener, conn, peer });
        if let Some(session) = self.layer.accept(listener, profile, peer) {
            self.entries
                .insert(conn, LayeredConnection::new(session, HandshakeSide::Accepted, self.wire.now()));
            self.begin(conn, events);
        }
    }

    /// TCP is established.
    fn begin(&mut self, conn: Conn, events: &mut Vec<Event>) {
        let Some(entry) = self.entries.get_mut(conn) else { return };
        entry.has_begun = true;
        if entry.session.wants_local() {
            entry.session.set_local(self.wire.local(conn));
        }
        self.sealed.clear();
        entry.session.begin(&mut self.sealed);
        self.flush(conn);
        self.settle(conn, After::Open, events);
    }

    /// Sends what `sealed` holds. A connection that cannot take it tells so by itself.
    fn flush(&mut self, conn: Conn) {
        if !self.sealed.is_empty() {
            let _ = self.wire.send(conn, &self.sealed);
            self.sealed.clear();
        }
    }

    /// Sends what the session has to say by itself.
    fn reply(&mut self, conn: Conn) {
        let Some(entry) = self.entries.get_mut(conn) else { return };
        self.sealed.clear();
        entry.session.reply(&mut self.sealed);
        self.flush(conn);
    }

    /// Bytes of a handshake came.
    fn shake(&mut self, conn: Conn, data: Data, events: &mut Vec<Event>) {
        let Some(entry) = self.entries.get_mut(conn) else { return };
        entry.has_heard = true;
        let is_closing = entry.is_closing();
        let mut early = std::mem::take(&mut entry.early);
        let after = read(&mut self.wire, entry, data, &mut |plain: &mut [u8]| {
            if !is_closing {
                early.extend_from_slice(plain);
            }
        });
        entry.early = early;
        self.reply(conn);
        self.settle(conn, after, events);
    }

    /// Discards bytes behind the end of a session; a reset there is reported.
    fn discard(&mut self, conn: Conn, data: Data, events: &mut Vec<Event>) {
        let after = self.wire.receive(data, |_| ());
        let Some(entry) = self.entries.get_mut(conn) else { return };
        if let (After::Failed(error), After::Ended) = (after, entry.after) {
            entry.after = after;
            entry.stage = LayerStage::Failed;
            events.push(Event::Failed { conn, error });
        }
    }

    /// Acts on the state of a handshake.
    fn settle(&mut self, conn: Conn, after: After, events: &mut Vec<Event>) {
        let Some(entry) = self.entries.get_mut(conn) else { return };
        match (entry.session.is_ready(), entry.stage, broken(after)) {
            // The peer's FIN is waited for.
            (true, LayerStage::Closing { how: Close::AfterPeer }, None) => {}
            (true, LayerStage::Closing { how }, _) => self.last_words(conn, how),
            (false, LayerStage::Closing { .. }, Some(_)) => {
                let how = entry.closes(Close::Abort);
                self.give_up(conn, how);
            }
            (false, LayerStage::Closing { .. }, None) => {}
            (true, _, _) => self.ready(conn, after, events),
            (false, _, Some(error)) => {
                entry.stage = LayerStage::Failed;
                entry.session.lost(error);
                match entry.side {
                    HandshakeSide::Asked => {
                        entry.failure_told = true;
                        events.push(Event::Failed { conn, error });
                    }
                    // A session that refused has said why; a reset must not overtake that.
                    HandshakeSide::Accepted => claim(entry, conn, refusal(after, error), events),
                }
            }
            (false, _, None) => {}
        }
    }

    /// The handshake is over: what waited leaves, and what came early is reported.
    fn ready(&mut self, conn: Conn, after: After, events: &mut Vec<Event>) {
        let now = self.wire.now();
        let Some(entry) = self.entries.get_mut(conn) else { return };
        entry.stage = LayerStage::Ready;
        if entry.side == HandshakeSide::Asked {
            // A session that waits for nothing is ready when TCP is.
            let at = if entry.has_heard { now } else { entry.tcp_at };
            events.push(Event::Connected { conn, at, tcp_at: entry.tcp_at });
        }
        if entry.paused {
            self.wire.pause(conn);
        }
        let waiting = std::mem::take(&mut entry.waiting);
        if !entry.early.is_empty() || after != After::Open {
            claim(entry, conn, after, events);
        }
        if !waiting.is_empty() {
            self.sealed.clear();
            entry.handed = waiting.len();
            entry.session.seal(&waiting, &mut self.sealed);
            self.flush(conn);
            if self.wire.unsent(conn) == 0 {
                events.push(Event::Drained { conn });
            }
        }
    }

    /// A connection that is ready and closed by the application: what waited leaves, and the session's end.
    fn last_words(&mut self, conn: Conn, how: Close) {
        let Some(mut entry) = self.entries.remove(conn) else { return };
        self.sealed.clear();
        if !entry.waiting.is_empty() {
            entry.session.seal(&entry.waiting, &mut self.sealed);
        }
        entry.session.finish(&mut self.sealed);
        self.flush(conn);
        self.wire.close(conn, how);
    }

    /// Keeps a connection that the application has closed for what is still to be done for its peer.
    fn linger(&mut self, conn: Conn, how: Close) {
        let now = self.wire.now();
        let Some(entry) = self.entries.get_mut(conn) else { return };
        let was_ready = entry.stage == LayerStage::Ready;
        entry.stage = LayerStage::Closing { how };
        let entries = &self.entries;
        let waits_for = |conn| entries.get(conn)?.waits_for();
        if let Some(oldest) = self.closing.push(&self.limits, now, (conn, Closing::AfterPeer), waits_for) {
            self.end(oldest, Close::Now);
        }
        if was_ready {
            self.wire.resume(conn);
        }
    }

    fn give_up(&mut self, conn: Conn, how: Close) {
        self.entries.remove(conn);
        self.wire.close(conn, how);
    }

    /// Ends a connection that the application has closed, without waiting for the peer any longer.
    fn end(&mut self, conn: Conn, how: Close) {
        match self.entries.get(conn) {
            Some(entry) if entry.session.is_ready() => self.last_words(conn, how),
            _ => self.give_up(conn, Close::Abort),
        }
    }

    /// Ends connections that the application has closed and that take too long.
    fn expire(&mut self) {
        while self.closing.next().is_some() {
            let (now, entries) = (self.wire.now(), &self.entries);
            let Some(conn) = self.closing.expired(now, |conn| entries.get(conn)?.waits_for()) else { return };
            self.end(conn, Close::Now);
        }
    }

    /// Ends the connection that has lingered longest, so that the wire has room for another one.
    /// Says whether there was one.
    fn make_room(&mut self, how: Close) -> bool {
        let entries = &self.entries;
        let Some(oldest) = self.closing.oldest(|conn| entries.get(conn)?.waits_for()) else { return false };
        if how == Close::Abort {
            self.give_up(oldest, how)
        } else {
            self.end(oldest, how)
        }
        true
    }

    fn is_ready(&self, conn: Conn) -> bool {
        self.entries.get(conn).is_some_and(|entry| entry.stage == LayerStage::Ready)
    }

    /// Seals pieces of a connection that is ready into `sealed`, all or none.
    fn seal(&mut self, conn: Conn, pieces: &[&[u8]]) -> Result<(), NetError> {
        let Some(entry) = self.entries.get_mut(conn) else { return Err(gone()) };
        let len: usize = pieces.iter().map(|piece| entry.session.sealed_len(piece.len())).sum();
        let unsent = self.wire.unsent(conn);
        if unsent + len > self.limits.unsent_bytes {
            return Err(NetError::of(NetErrorKind::NoMemory));
        }
        entry.handed = if unsent == 0 { 0 } else { entry.handed };
        entry.handed += pieces.iter().map(|piece| piece.len()).sum::<usize>();
        self.sealed.clear();
        for piece in pieces {
            entry.session.seal(piece, &mut self.sealed);
        }
        Ok(())
    }
}

/// The application gets a claim of the layer's own.
fn claim<S>(entry: &mut LayeredConnection<S>, conn: Conn, after: After, events: &mut Vec<Event>) {
    entry.after = after;
    events.push(Event::Readable { conn, data: Data::new(conn, EARLY) });
}

/// How the application sees a handshake that failed: a session's refusal is an end, after which connections are closed in order.
fn refusal(after: After, error: NetError) -> After {
    if error.kind == NetErrorKind::Handshake { After::Ended } else { after }
}

/// Bytes of a connection that is closed or was never open go nowhere.
fn gone() -> NetError {
    NetError::of(NetErrorKind::Reset)
}

/// Takes a claim on bytes of the wire and lends what they say to `take`.
fn read<T: Transport, S: Session>(
    wire: &mut T,
    entry: &mut LayeredConnection<S>,
    data: Data,
    take: &mut dyn FnMut(&mut [u8]),
) -> After {
    let mut progress = Progress::Open;
    let mut pieces = |plain: &mut [u8]| {
        if !plain.is_empty() {
            take(plain);
        }
    };
    let wire_after = wire.receive(data, |bytes| {
        if progress == Progress::Open {
            progress = entry.session.open(bytes, &mut pieces);
        }
    });
    if progress == Progress::Open && wire_after == After::Ended {
        progress = entry.session.cut();
    }
    entry.has_refused |= matches!((progress, wire_after), (Progress::Failed(_), After::Open));
    after(progress, wire_after)
}

impl<T: Transport, L: Layer> Transport for Layered<T, L> {
    fn now(&mut self) -> Time {
        self.wire.now()
    }

    fn listen(
        &mut self,
        at: SocketAddr,
        options: &ListenOptions,
    ) -> Result<(Listener, SocketAddr), NetError> {
        let (listener, at) = self.wire.listen(at, options)?;
        self.profiles.insert(listener, options.profile);
        Ok((listener, at))
    }

    fn adopt(&mut self, socket: OwnedFd) -> Result<Listener, NetError> {
        self.wire.adopt(socket)
    }

    fn unlisten(&mut self, listener: Listener) {
        self.profiles.remove(&listener);
        self.wire.unlisten(listener);
    }

    fn refuse_new(&mut self, listener: Listener) -> bool {
        self.wire.refuse_new(listener)
    }

    fn set_defer(&mut self, listener: Listener, defer: Option<Duration>) {
        self.wire.set_defer(listener, defer);
    }

    fn connect(&mut self, to: SocketAddr, options: &ConnectOptions) -> Result<Conn, NetError> {
        let session = self.layer.connect(options.profile, to)?;
        let mut conn = self.wire.connect(to, options);
        // In order if the wire can let go of it at once. A reset if its last words would have to be
        // acknowledged first.
        for how in [Close::Lingering, Close::Abort] {
            if conn.is_err_and(|error| error.kind == NetErrorKind::NoMemory) && self.make_room(how) {
                conn = self.wire.connect(to, options);
            }
        }
        let conn = conn?;
        if let Some(session) = session {
            self.entries.insert(conn, LayeredConnection::new(session, HandshakeSide::Asked, self.wire.now()));
        }
        Ok(conn)
    }

    fn local(&mut self, conn: Conn) -> Option<SocketAddr> {
        self.wire.local(conn)
    }

    fn turn(&mut self, until: Option<Time>, events: &mut Vec<Event>) -> io::Result<()> {
        let closing = self.closing.next();
        let until = until.into_iter().chain(closing).min();
        let mut told = std::mem::take(&mut self.told);
        let done = self.wire.turn(until, &mut told);
        for event in told.drain(..) {
            self.on_event(event, events);
        }
        self.told = told;
        self.expire();
        done
    }

    fn unread(&mut self, conn: Conn) -> Option<Data> {
        self.wire.unread(conn)
    }

    fn received_by(turn: Time) -> Time {
        T::received_by(turn)
    }

    fn receive(&mut self, data: Data, mut take: impl FnMut(&mut [u8])) -> After {
        let (conn, is_early) = (data.conn(), data.token() == EARLY);
        let Some(entry) = self.entries.get_mut(conn).filter(|entry| !entry.is_closing()) else {
            return if is_early { After::Gone } else { self.wire.receive(data, take) };
        };
        // Bytes that came early come first, whichever claim is served.
        let mut early = std::mem::take(&mut entry.early);
        if !early.is_empty() {
            take(&mut early);
        }
        if is_early {
            return entry.after;
        }
        if entry.after != After::Open {
            self.wire.receive(data, |_| ());
            return entry.told_once();
        }
        entry.after = read(&mut self.wire, entry, data, &mut take);
        let after = entry.told_once();
        self.reply(conn);
        after
    }

    fn receive_or_discard(&mut self, data: Data, mut take: impl FnMut(ReceivedPiece<'_>) -> Ahead) -> After {
        if data.token() != EARLY && self.entries.get(data.conn()).is_none() {
            return self.wire.receive_or_discard(data, take);
        }
        // The application's byte count differs from the wire's.
        self.receive(data, |bytes| {
            take(ReceivedPiece::Bytes(bytes));
        })
    }

    fn send(&mut self, conn: Conn, bytes: &[u8]) -> Result<(), NetError> {
        let Some(entry) = self.entries.get_mut(conn) else { return self.wire.send(conn, bytes) };
        match entry.stage {
            LayerStage::Ready => {
                self.seal(conn, &[bytes])?;
                self.wire.send(conn, &self.sealed)
            }
            LayerStage::Connecting | LayerStage::Shaking => {
                if entry.waiting.len() + bytes.len() > self.limits.unsent_bytes {
                    return Err(NetError::of(NetErrorKind::NoMemory));
                }
                entry.waiting.extend_from_slice(bytes);
                Ok(())
            }
            LayerStage::Closing { .. } | LayerStage::Failed => Err(gone()),
        }
    }

    fn send_shared(&mut self, conn: Conn, bytes: Bytes) -> Result<(), NetError> {
        match self.entries.get(conn) {
            Some(_) => self.send(conn, &bytes),
            None => self.wire.send_shared(conn, bytes),
        }
    }

    fn send_last(&mut self, conn: Conn, bytes: &[u8], how: Close) -> Result<(), NetError> {
        match self.entries.get(conn).map(|entry| entry.stage) {
            None => self.wire.send_last(conn, bytes, how),
            Some(LayerStage::Ready) if how != Close::Abort && how != Close::AfterPeer => {
                self.seal(conn, &[bytes])?;
                if let Some(entry) = self.entries.get_mut(conn) {
                    entry.session.finish(&mut self.sealed);
                }
                self.wire.send_last(conn, &self.sealed, how)?;
                self.entries.remove(conn);
                Ok(())
            }
            Some(_) => {
                self.send(conn, bytes)?;
                self.close(conn, how);
                Ok(())
            }
        }
    }

    fn gathers(&self) -> bool {
        self.wire.gathers()
    }

    fn lend(&mut self, bytes: Arc<[u8]>) -> Lent {
        let lent = Lent::new(self.lent.len() as u32);
        let below = self.wire.lend(bytes.clone());
        self.lent.push((bytes, below));
        lent
    }

    fn send_lent(&mut self, conn: Conn, lent: Lent, range: Range<usize>) -> Result<(), NetError> {
        let misuse = NetError::of(NetErrorKind::Misuse);
        let (bytes, below) = self.lent.get(lent.index() as usize).ok_or(misuse)?;
        if self.entries.get(conn).is_none() {
            return self.wire.send_lent(conn, *below, range);
        }
        let bytes = bytes.clone();
        self.send(conn, bytes.get(range).ok_or(misuse)?)
    }

    fn send_file(
        &mut self,
        conn: Conn,
        head: &[u8],
        file: &Arc<File>,
        range: Range<u64>,
    ) -> Result<(), NetError> {
        if self.entries.get(conn).is_none() {
            return self.wire.send_file(conn, head, file, range);
        }
        let bytes = crate::file::read(file, range)?;
        // Both leave in one piece; a head that left without its file would promise what does not come.
        if !self.is_ready(conn) {
            return self.send(conn, &[head, &bytes].concat());
        }
        self.seal(conn, &[head, &bytes])?;
        self.wire.send(conn, &self.sealed)
    }

    fn unsent(&self, conn: Conn) -> usize {
        match self.entries.get(conn) {
            None => self.wire.unsent(conn),
            Some(entry) => match entry.stage {
                // Bytes that a session adds, and those of its handshake, are not the application's.
                LayerStage::Ready | LayerStage::Failed => self.wire.unsent(conn).min(entry.handed),
                LayerStage::Connecting | LayerStage::Shaking => entry.waiting.len(),
                LayerStage::Closing { .. } => 0,
            },
        }
    }

    fn pause(&mut self, conn: Conn) {
        let Some(entry) = self.entries.get_mut(conn) else { return self.wire.pause(conn) };
        entry.paused = true;
        if entry.stage == LayerStage::Ready {
            self.wire.pause(conn);
        }
    }

    fn resume(&mut self, conn: Conn) {
        let Some(entry) = self.entries.get_mut(conn) else { return self.wire.resume(conn) };
        entry.paused = false;
        if entry.stage == LayerStage::Ready {
            self.wire.resume(conn);
        }
    }

    fn set_low_water(&mut self, conn: Conn, bytes: usize) {
        // The application's byte count differs from the wire's: with a session there is no mark.
        if self.entries.get(conn).is_none() {
            self.wire.set_low_water(conn, bytes);
        }
    }

    fn close(&mut self, conn: Conn, how: Close) {
        let Some(entry) = self.entries.get_mut(conn) else { return self.wire.close(conn, how) };
        let how = entry.closes(how);
        match entry.stage {
            LayerStage::Closing { .. } => {}
            // The session's end would make the peer close; here the peer has to close by itself.
            LayerStage::Ready if how == Close::AfterPeer && entry.after == After::Open => {
                self.linger(conn, how)
            }
            LayerStage::Ready if how != Close::Abort => self.last_words(conn, how),
            LayerStage::Shaking if entry.side == HandshakeSide::Accepted && how != Close::Abort => {
                self.linger(conn, how)
            }
            _ => self.give_up(conn, how),
        }
    }

    fn unfinished(&self) -> usize {
        self.wire.unfinished()
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
        self.entries.get(conn)?.session.protocol()
    }

    fn reason(&self, conn: Conn) -> Option<String> {
        match self.entries.get(conn) {
            // What TCP could not open is not the session's.
            Some(entry) if !entry.has_begun => None,
            Some(entry) => entry.session.reason(),
            None => self.wire.reason(conn),
        }
    }

    fn about(&self, conn: Conn) -> Option<Arc<dyn Any + Send + Sync>> {
        self.entries.get(conn)?.session.about()
    }

    fn set_profile(&mut self, listener: Listener, profile: Profile) {
        self.profiles.insert(listener, profile);
    }

    fn info(&mut self, conn: Conn) -> Option<TcpInfo> {
        self.wire.info(conn)
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
