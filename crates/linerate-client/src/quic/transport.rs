//! A transport over datagrams: QUIC's connections, each with a socket of its own.

use std::io;
use std::net::SocketAddr;
use std::ops::Range;
use std::sync::{Arc, Mutex, PoisonError};

use bytes::Bytes;
use linerate_net::datagrams::{DatagramOptions, DatagramSocket, Datagrams, DatagramsAfter, DatagramsToSend};
use linerate_net::{
    After, Close, Conn, ConnectOptions, Data, Event, Lent, ListenOptions, Listener, NetError, NetErrorKind,
    TcpInfo, Time, Transport, Waker,
};
use linerate_quic::{QuicConn, QuicEndpoint, QuicEvent, QuicLost, QuicStream, StreamRead};

use super::outgoing::{Outgoing, WriteTo};
use super::records::{RECORD_HEAD, RecordKind, StreamRecordHead, put_record};
use super::totals::QuicTotals;
use crate::limits::{DATAGRAMS_AT_ONCE, RECORD_BYTES, UNSENT_BYTES};

/// `H3_NO_ERROR`: how connections are closed (RFC 9114, section 8.1).
const NO_ERROR: u64 = 0x100;

/// `H3_REQUEST_CANCELLED`.
const CANCELLED: u64 = 0x10c;

/// Bytes of one send: what a datagram of IPv4 may have, and 64 segments of it leave in one call.
const SEND_BYTES: usize = 60_000;

/// How QUIC's connections are made.
#[derive(Clone, Debug)]
pub struct QuicWay {
    /// The name that the server must prove to have.
    pub name: String,
    /// Requests in flight on each connection, at most: so many streams are opened ahead.
    pub depth: u32,
}

/// One connection.
struct QuicEntry {
    conn: Conn,
    quic: QuicConn,
    socket: DatagramSocket,
    local: SocketAddr,
    established: bool,
    /// An event of it is under way that `receive` answers.
    is_reported: bool,
    /// It is in the list of those to report.
    is_listed: bool,
    readable: Vec<QuicStream>,
    /// Records for the application.
    notices: Vec<u8>,
    /// How it ended.
    end: Option<After>,
    reason: Option<String>,
    /// Streams for requests that are open, that the application knows of, and that it has used.
    opened: u64,
    told: u64,
    used: u64,
    outgoing: Outgoing,
}

impl QuicEntry {
    /// Whether a stream that the application reads has something for it.
    fn has_readable(&self) -> bool {
        self.readable.iter().any(|stream| !self.outgoing.is_held(stream.id()))
    }
}

/// QUIC over datagrams, as a [`Transport`] whose bytes are records of streams. Only conversations that know
/// these can use it: HTTP/3's.
pub struct QuicTransport<D> {
    net: D,
    endpoint: QuicEndpoint,
    way: QuicWay,
    /// By the slot of QUIC's connection.
    entries: Vec<Option<QuicEntry>>,
    /// By the slot of the socket.
    sockets: Vec<Option<Conn>>,
    open: usize,
    /// Connections with something to report.
    listed: Vec<Conn>,
    /// Found out between turns.
    failed: Vec<Event>,
    lent: Vec<Arc<[u8]>>,
    ready: Vec<DatagramSocket>,
    out: Vec<u8>,
    incoming: Vec<u8>,
    /// Datagrams came in the last turn.
    has_moved: bool,
    totals: Arc<Mutex<QuicTotals>>,
}

impl<D: Datagrams> QuicTransport<D> {
    /// Over these datagrams, by this endpoint of a client.
    pub fn new(net: D, endpoint: QuicEndpoint, way: QuicWay) -> QuicTransport<D> {
        QuicTransport {
            net,
            endpoint,
            way,
            entries: Vec::new(),
            sockets: Vec::new(),
            open: 0,
            listed: Vec::new(),
            failed: Vec::new(),
            lent: Vec::new(),
            ready: Vec::new(),
            out: Vec::new(),
            incoming: Vec::new(),
            has_moved: false,
            totals: Arc::new(Mutex::new(QuicTotals::default())),
        }
    }

    /// What QUIC went through. Of connections it knows when they have ended.
    pub fn totals(&self) -> Arc<Mutex<QuicTotals>> {
        Arc::clone(&self.totals)
    }

    /// The network below.
    #[cfg(test)]
    pub(crate) fn net(&mut self) -> &mut D {
        &mut self.net
    }

    fn count(&self, count: impl FnOnce(&mut QuicTotals)) {
        count(&mut self.totals.lock().unwrap_or_else(PoisonError::into_inner));
    }

    fn entry(&mut self, conn: Conn) -> Option<&mut QuicEntry> {
        self.entries.get_mut(conn.slot())?.as_mut().filter(|entry| entry.conn == conn)
    }

    /// A connection with what writes on it.
    fn writer(&mut self, conn: Conn) -> Option<(&mut QuicEntry, WriteTo<'_>)> {
        let QuicTransport { entries, endpoint, .. } = self;
        let entry = entries.get_mut(conn.slot())?.as_mut().filter(|entry| entry.conn == conn)?;
        let to = WriteTo { endpoint, conn: entry.quic, opened: 4 * entry.opened };
        Some((entry, to))
    }

    fn list(&mut self, conn: Conn) {
        if let Some(entry) = self.entry(conn)
            && !std::mem::replace(&mut entry.is_listed, true)
        {
            self.listed.push(conn);
        }
    }

    /// Tells the application of streams whose bytes QUIC has taken.
    fn tell_taken(&mut self, conn: Conn) {
        let Some(entry) = self.entry(conn) else { return };
        let before = entry.notices.len();
        for id in entry.outgoing.newly_taken() {
            put_record(RecordKind::Taken, id, &[], &mut entry.notices);
        }
        if entry.notices.len() > before {
            self.list(conn);
        }
    }

    /// Sends everything that leaves now.
    fn flush(&mut self) {
        let now = self.net.now();
        loop {
            self.out.clear();
            let Some(out) = self.endpoint.next_transmit(now, DATAGRAMS_AT_ONCE, &mut self.out) else {
                return;
            };
            let conn = out.conn.map(application);
            let entry =
                conn.and_then(|conn| self.entries.get(conn.slot())?.as_ref().filter(|e| e.conn == conn));
            // Its socket is closed: the peer will find out by itself.
            let Some(QuicEntry { socket, conn, .. }) = entry else { continue };
            let (socket, conn) = (*socket, *conn);
            let segment = out.segment.max(1);
            let most = (SEND_BYTES / segment).max(1) * segment;
            for bytes in self.out[..out.len].chunks(most) {
                let datagrams = DatagramsToSend { to: out.to, from: None, ecn: out.ecn, segment, bytes };
                if let Err(error) = self.net.send(socket, &datagrams) {
                    self.unreachable(conn, error);
                    break;
                }
            }
        }
    }

    /// The machine of the peer, or ours, says that no datagram arrives.
    fn unreachable(&mut self, conn: Conn, error: NetError) {
        let Some(entry) = self.entry(conn).filter(|entry| entry.end.is_none()) else { return };
        let error = match (error.kind, entry.established) {
            (NetErrorKind::Refused, true) => {
                entry.reason = Some("no process listens on the server's port any more (ICMP)".to_owned());
                NetError::of(NetErrorKind::Reset)
            }
            (NetErrorKind::Refused, false) => {
                entry.reason = Some("connection refused: nothing listens on this UDP port".to_owned());
                error
            }
            _ => error,
        };
        entry.end = Some(After::Failed(error));
        self.list(conn);
    }

    /// Takes what the endpoint has to tell.
    fn collect(&mut self, events: &mut Vec<Event>) {
        events.append(&mut self.failed);
        while let Some(event) = self.endpoint.next_event() {
            self.hear(event, events);
        }
        for conn in std::mem::take(&mut self.listed) {
            let Some(entry) = self.entry(conn) else { continue };
            entry.is_listed = false;
            match entry.end {
                Some(After::Failed(error)) if !entry.established => {
                    events.push(Event::Failed { conn, error });
                }
                _ if entry.established && !entry.is_reported => {
                    entry.is_reported = true;
                    events.push(Event::Readable { conn, data: Data::new(conn, 0) });
                }
                _ => {}
            }
        }
    }

    fn hear(&mut self, event: QuicEvent, events: &mut Vec<Event>) {
        match event {
            QuicEvent::Connected { conn } => self.connected(application(conn), events),
            QuicEvent::Opened { conn, stream } | QuicEvent::Readable { conn, stream } => {
                let conn = application(conn);
                let Some(entry) = self.entry(conn) else { return };
                if !entry.readable.contains(&stream) {
                    entry.readable.push(stream);
                }
                self.list(conn);
            }
            QuicEvent::Writable { conn, stream } => {
                let conn = application(conn);
                let Some((entry, mut to)) = self.writer(conn) else { return };
                let waited = entry.outgoing.unsent() > 0;
                entry.outgoing.write_on(stream.id(), &mut to);
                if waited && entry.outgoing.unsent() == 0 {
                    events.push(Event::Drained { conn });
                }
                self.tell_taken(conn);
            }
            QuicEvent::Stopped { conn, stream, code } => {
                let conn = application(conn);
                if let Some((entry, to)) = self.writer(conn) {
                    entry.outgoing.forget(stream.id());
                    // Only by our reset does the server learn how many bytes of its window the stream has
                    // taken; until then they are lost to the connection (RFC 9000, section 3.5).
                    to.endpoint.reset(to.conn, stream, code);
                }
                self.tell_taken(conn);
            }
            QuicEvent::Room { conn, unidirectional: false } => self.open_ahead(application(conn)),
            QuicEvent::Room { .. } | QuicEvent::Accepted { .. } => {}
            QuicEvent::Lost { conn, how } => self.lost(application(conn), &how),
        }
    }

    fn connected(&mut self, conn: Conn, events: &mut Vec<Event>) {
        let at = self.net.now();
        let Some(entry) = self.entry(conn) else { return };
        entry.established = true;
        let quic = entry.quic;
        // Ours is the first of its kind, whose ID the conversation knows.
        let control = self.endpoint.open(quic, true);
        self.count(|totals| totals.handshakes += 1);
        events.push(Event::Connected { conn, at, tcp_at: at });
        if control.is_none() {
            self.lost(
                conn,
                &QuicLost::Broken("the server admits no control stream (RFC 9114, 6.2)".to_owned()),
            );
            return;
        }
        self.open_ahead(conn);
        let Some(streams) = self.entry(conn).map(|entry| entry.outgoing.streams()) else { return };
        for id in streams {
            if let Some((entry, mut to)) = self.writer(conn) {
                entry.outgoing.write_on(id, &mut to);
            }
        }
    }

    /// Opens streams for the requests to come, and tells the application how many there are.
    fn open_ahead(&mut self, conn: Conn) {
        let depth = u64::from(self.way.depth);
        let QuicTransport { entries, endpoint, .. } = self;
        let entry = entries.get_mut(conn.slot()).and_then(Option::as_mut).filter(|entry| entry.conn == conn);
        let Some(entry) = entry.filter(|entry| entry.established) else { return };
        let before = entry.opened;
        while entry.opened < entry.used + depth && endpoint.open(entry.quic, false).is_some() {
            entry.opened += 1;
        }
        for n in before..entry.opened {
            if entry.outgoing.waits(4 * n) {
                let mut to = WriteTo { endpoint, conn: entry.quic, opened: 4 * entry.opened };
                entry.outgoing.write_on(4 * n, &mut to);
            }
        }
        if entry.opened > entry.told {
            entry.told = entry.opened;
            put_record(RecordKind::Room, entry.opened, &[], &mut entry.notices);
            self.list(conn);
        }
        self.tell_taken(conn);
    }

    fn lost(&mut self, conn: Conn, how: &QuicLost) {
        let Some(entry) = self.entry(conn).filter(|entry| entry.end.is_none()) else { return };
        let words = how.to_string();
        let (record, kind) = match how {
            QuicLost::ClosedByPeer { code, .. } => (Some((RecordKind::Closed, *code)), NetErrorKind::Reset),
            // CONNECTION_REFUSED (RFC 9000, section 20.1).
            QuicLost::EndedByPeer { code: 2, .. } => {
                (Some((RecordKind::EndedByPeer, 2)), NetErrorKind::Refused)
            }
            QuicLost::EndedByPeer { code, .. } => {
                (Some((RecordKind::EndedByPeer, *code)), NetErrorKind::Handshake)
            }
            QuicLost::Broken(_) => (Some((RecordKind::Broken, 0)), NetErrorKind::Handshake),
            QuicLost::Version => (None, NetErrorKind::Handshake),
            QuicLost::TimedOut => (None, NetErrorKind::TimedOut),
            QuicLost::Reset | QuicLost::ClosedByUs => (None, NetErrorKind::Reset),
            _ => (None, NetErrorKind::Other),
        };
        if let Some((kind, code)) = record.filter(|_| entry.established) {
            put_record(kind, code, words.as_bytes(), &mut entry.notices);
        }
        entry.reason = Some(words);
        entry.end = Some(After::Failed(NetError::of(kind)));
        self.list(conn);
    }

    /// Takes the datagrams of a socket.
    fn receive_from(&mut self, socket: DatagramSocket, now: Time) {
        let QuicTransport { net, endpoint, .. } = self;
        let mut retries = 0;
        let after = net.receive(socket, |came| {
            for datagram in came.each() {
                retries += u64::from(is_retry(datagram));
                endpoint.receive(now, came.peer, None, came.ecn, datagram);
            }
        });
        if retries > 0 {
            self.count(|totals| totals.retries += retries);
        }
        if let DatagramsAfter::Failed(error) = after
            && let Some(Some(conn)) = self.sockets.get(socket.slot()).copied()
        {
            self.unreachable(conn, error);
        }
    }

    /// Reads the streams of a connection that have something, as records.
    fn read(&mut self, conn: Conn, mut take: impl FnMut(&mut [u8])) {
        let QuicTransport { entries, endpoint, incoming, .. } = self;
        let Some(entry) = entries.get_mut(conn.slot()).and_then(Option::as_mut) else { return };
        incoming.clear();
        let mut streams = std::mem::take(&mut entry.readable);
        let held: Vec<_> = streams.extract_if(.., |stream| entry.outgoing.is_held(stream.id())).collect();
        for stream in streams.drain(..) {
            let start = incoming.len();
            let mut head = StreamRecordHead { number: stream.id(), len: 0, kind: RecordKind::Bytes };
            incoming.extend_from_slice(&head.bytes());
            let read = endpoint.read(entry.quic, stream, |bytes| incoming.extend_from_slice(bytes));
            head.len = u32::try_from(incoming.len() - start - RECORD_HEAD).unwrap_or(u32::MAX);
            match read {
                StreamRead::Ended => head.kind = RecordKind::Last,
                StreamRead::Open if head.len > 0 => {}
                StreamRead::Reset(_) if head.len > 0 => {}
                _ => incoming.truncate(start),
            }
            if let Some(place) = incoming.get_mut(start..start + RECORD_HEAD) {
                place.copy_from_slice(&head.bytes());
            }
            if let StreamRead::Reset(code) = read {
                put_record(RecordKind::Reset, stream.id(), &code.to_le_bytes(), incoming);
            }
            // The response came before the whole request left, whose rest is not needed.
            if read == StreamRead::Ended && entry.outgoing.waits(stream.id()) {
                entry.outgoing.forget(stream.id());
                let _ = endpoint.reset(entry.quic, stream, CANCELLED);
            }
            if incoming.len() >= RECORD_BYTES {
                take(incoming);
                incoming.clear();
            }
        }
        streams.extend(held);
        entry.readable = streams;
        incoming.append(&mut entry.notices);
        if !incoming.is_empty() {
            take(incoming);
        }
    }
}

/// The number of a connection for the application.
fn application(conn: QuicConn) -> Conn {
    Conn::new(conn.slot() as u32, conn.generation())
}

/// Whether a datagram is a Retry packet of version 1 (RFC 9000, section 17.2.5).
fn is_retry(datagram: &[u8]) -> bool {
    matches!(datagram, [first, 0, 0, 0, 1, ..] if first & 0xf0 == 0xf0)
}

impl<D: Datagrams> Transport for QuicTransport<D> {
    fn now(&mut self) -> Time {
        self.net.now()
    }

    fn listen(&mut self, _: SocketAddr, _: &ListenOptions) -> Result<(Listener, SocketAddr), NetError> {
        Err(NetError::of(NetErrorKind::Misuse))
    }

    fn unlisten(&mut self, _: Listener) {}

    fn connect(&mut self, to: SocketAddr, options: &ConnectOptions) -> Result<Conn, NetError> {
        let now = self.net.now();
        let (socket, local) = self.net.open(&DatagramOptions::towards(to, options.from))?;
        let quic = match self.endpoint.connect(now, to, &self.way.name) {
            Ok(quic) => quic,
            Err(_) => {
                self.net.close(socket);
                return Err(NetError::of(NetErrorKind::Misuse));
            }
        };
        let conn = application(quic);
        if self.entries.len() <= conn.slot() {
            self.entries.resize_with(conn.slot() + 1, || None);
        }
        if self.sockets.len() <= socket.slot() {
            self.sockets.resize_with(socket.slot() + 1, || None);
        }
        self.sockets[socket.slot()] = Some(conn);
        self.open += 1;
        self.entries[conn.slot()] = Some(QuicEntry {
            conn,
            quic,
            socket,
            local,
            established: false,
            is_reported: false,
            is_listed: false,
            readable: Vec::new(),
            notices: Vec::new(),
            end: None,
            reason: None,
            opened: 0,
            told: 0,
            used: 0,
            outgoing: Outgoing::default(),
        });
        Ok(conn)
    }

    fn local(&mut self, conn: Conn) -> Option<SocketAddr> {
        self.entry(conn).map(|entry| entry.local)
    }

    fn turn(&mut self, until: Option<Time>, events: &mut Vec<Event>) -> io::Result<()> {
        self.flush();
        let before = events.len();
        self.collect(events);
        let until = match events.len() > before {
            true => Some(Time::ZERO),
            false => until.into_iter().chain(self.endpoint.deadline()).min(),
        };
        let mut ready = std::mem::take(&mut self.ready);
        let turned = self.net.turn(until, &mut ready);
        let now = self.net.now();
        self.has_moved = !ready.is_empty();
        ready.drain(..).for_each(|socket| self.receive_from(socket, now));
        self.ready = ready;
        self.endpoint.run_timers(now);
        self.collect(events);
        turned
    }

    fn next_turn(&self) -> Time {
        let is_found = self.has_moved || self.net.has_more();
        if is_found || self.endpoint.has_work() || !(self.listed.is_empty() && self.failed.is_empty()) {
            return Time::ZERO;
        }
        self.endpoint.deadline().unwrap_or(Time::NEVER)
    }

    fn receive(&mut self, data: Data, take: impl FnMut(&mut [u8])) -> After {
        let conn = data.conn();
        let Some(entry) = self.entry(conn) else { return After::Gone };
        entry.is_reported = false;
        self.read(conn, take);
        self.entry(conn).and_then(|entry| entry.end).unwrap_or(After::Open)
    }

    fn send(&mut self, conn: Conn, bytes: &[u8]) -> Result<(), NetError> {
        let Some((entry, mut to)) = self.writer(conn) else { return Ok(()) };
        if let Some(After::Failed(error)) = entry.end {
            return Err(error);
        }
        if entry.outgoing.all_unsent() > UNSENT_BYTES {
            return Err(NetError::of(NetErrorKind::NoMemory));
        }
        if let Some(last) = entry.outgoing.take(bytes, &mut to) {
            entry.used = entry.used.max(last / 4 + 1);
            self.open_ahead(conn);
        }
        self.tell_taken(conn);
        // Of a stream that is read again something may wait.
        if self.entry(conn).is_some_and(|entry| entry.has_readable()) {
            self.list(conn);
        }
        Ok(())
    }

    fn send_shared(&mut self, conn: Conn, bytes: Bytes) -> Result<(), NetError> {
        let Some((entry, mut to)) = self.writer(conn) else { return Ok(()) };
        if let Some(After::Failed(error)) = entry.end {
            return Err(error);
        }
        entry.outgoing.take_shared(bytes, &mut to);
        Ok(())
    }

    fn lend(&mut self, bytes: Arc<[u8]>) -> Lent {
        self.lent.push(bytes);
        Lent::new(self.lent.len() as u32 - 1)
    }

    fn send_lent(&mut self, conn: Conn, lent: Lent, range: Range<usize>) -> Result<(), NetError> {
        let bytes = self.lent.get(lent.index() as usize).ok_or(NetError::of(NetErrorKind::Misuse))?;
        if range.start > range.end || range.end > bytes.len() {
            return Err(NetError::of(NetErrorKind::Misuse));
        }
        let bytes = Bytes::from_owner(Arc::clone(bytes)).slice(range);
        self.send_shared(conn, bytes)
    }

    fn unsent(&self, conn: Conn) -> usize {
        let entry = self.entries.get(conn.slot()).and_then(Option::as_ref);
        entry.filter(|entry| entry.conn == conn).map_or(0, |entry| entry.outgoing.unsent())
    }

    // Each stream has its own window, which a conversation does not hold back.
    fn pause(&mut self, _: Conn) {}

    fn resume(&mut self, _: Conn) {}

    fn set_low_water(&mut self, _: Conn, _: usize) {}

    fn close(&mut self, conn: Conn, _: Close) {
        let Some(entry) = self.entries.get_mut(conn.slot()) else { return };
        if entry.as_ref().is_none_or(|entry| entry.conn != conn) {
            return;
        }
        // It must be there until its last datagram has left.
        let Some((quic, socket, established)) =
            entry.as_ref().map(|entry| (entry.quic, entry.socket, entry.established))
        else {
            return;
        };
        let (now, stats) = (self.net.now(), self.endpoint.stats(quic));
        self.endpoint.close(now, quic, NO_ERROR, "");
        self.flush();
        self.entries[conn.slot()] = None;
        self.sockets[socket.slot()] = None;
        self.open -= 1;
        self.net.close(socket);
        let datagrams = self.net.counts();
        self.count(|totals| {
            totals.datagrams = datagrams;
            if let Some(stats) = stats.filter(|_| established) {
                totals.add(&stats);
            }
        });
    }

    fn unfinished(&self) -> usize {
        self.open
    }

    fn protocol(&self, _: Conn) -> Option<&[u8]> {
        Some(b"h3")
    }

    fn reason(&self, conn: Conn) -> Option<String> {
        let entry = self.entries.get(conn.slot())?.as_ref().filter(|entry| entry.conn == conn)?;
        entry.reason.clone()
    }

    fn info(&mut self, _: Conn) -> Option<TcpInfo> {
        None
    }

    fn waker(&self) -> Waker {
        self.net.waker()
    }

    fn name(&self) -> &'static str {
        self.net.name()
    }
}
