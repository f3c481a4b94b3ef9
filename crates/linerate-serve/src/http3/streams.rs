//! The streams of one connection: what was handed over in both directions, and what waits.

use std::collections::VecDeque;
use std::sync::Arc;

use linerate_http::h3::H3Code;
use linerate_http::h3::server::{ALL_STREAMS, StreamRecord};
use linerate_net::{Conn, Data, Event, Time};
use linerate_quic::{QuicConn, QuicEndpoint, QuicStream, StreamRead, StreamWrite};
use linerate_tls::TlsInfo;

use crate::limits::{
    H2_CONNECTION_WINDOW, H2_KEPT, H3_CONNECTION_ROOM, H3_CONNECTION_WINDOW, H3_STREAM_ROOM,
    H3_STREAM_WINDOW, QUIC_SEND_WINDOW, QUIC_SEND_WINDOW_MOST,
};

/// A stream that is not over in both directions.
#[derive(Debug)]
struct CarriedStream {
    id: u64,
    /// `None`: it is our own, and the client does not admit it yet.
    stream: Option<QuicStream>,
    /// Bytes of it that the application takes.
    take_left: i64,
    /// There may be bytes to read.
    is_readable: bool,
    /// The client sends no more, or nobody wants it.
    received: bool,
    /// Bytes that QUIC has not taken.
    pending: VecDeque<u8>,
    /// The stream ends behind them.
    ends: bool,
    /// Its end, or a reset, was given to QUIC.
    sent: bool,
    /// Bytes that QUIC has taken and the application does not know of.
    unreported: u32,
}

/// A connection of QUIC, as the application sees it: records of streams, one behind the other.
#[derive(Debug)]
pub(super) struct CarriedConnection {
    pub(super) conn: Conn,
    pub(super) quic: QuicConn,
    pub(super) endpoint: usize,
    pub(super) tls: Arc<TlsInfo>,
    /// In the order of their IDs, those of the client and ours apart.
    streams: Vec<CarriedStream>,
    /// Records for the application.
    pub(super) inbox: Vec<u8>,
    /// A claim on them was reported.
    pub(super) is_told: bool,
    /// The application has sent since the last turn.
    pub(super) is_touched: bool,
    /// The beginning of a record from the application.
    outbox: Vec<u8>,
    /// Bytes that QUIC has not taken, of all streams.
    pub(super) unsent: usize,
    /// The application waits for all of them to be taken.
    owes_drained: bool,
    take_left: i64,
    /// A stream has bytes that the application does not take yet.
    holds_back: bool,
    /// The application takes as much of all streams as it ever does.
    is_wide: bool,
    unreported: u32,
    send_window: u64,
    /// Bytes given to QUIC since its window last grew.
    grown: u64,
    /// The application has closed it, with this code.
    pub(super) code: Option<u64>,
    /// The application has let go of it, and its last responses have until then to be acknowledged.
    pub(super) until: Option<Time>,
}

/// Bytes of a connection's windows beyond the first ones that a thread has left to give.
pub(super) struct SpareWindows(pub(super) u64);

impl CarriedConnection {
    pub(super) fn new(conn: Conn, (quic, endpoint): (QuicConn, usize), tls: TlsInfo) -> CarriedConnection {
        CarriedConnection {
            conn,
            quic,
            endpoint,
            tls: Arc::new(tls),
            streams: Vec::new(),
            inbox: Vec::new(),
            is_told: false,
            is_touched: false,
            outbox: Vec::new(),
            unsent: 0,
            owes_drained: false,
            take_left: i64::from(H3_CONNECTION_WINDOW),
            holds_back: false,
            is_wide: false,
            unreported: 0,
            send_window: QUIC_SEND_WINDOW,
            grown: 0,
            code: None,
            until: None,
        }
    }

    fn place(&self, id: u64) -> Option<usize> {
        match self.streams.last() {
            Some(last) if last.id == id => Some(self.streams.len() - 1),
            _ => self.streams.iter().position(|stream| stream.id == id),
        }
    }

    fn begin(&mut self, id: u64, stream: Option<QuicStream>) -> usize {
        let one_way = stream.is_none_or(QuicStream::is_unidirectional);
        let of_client = stream.is_some_and(QuicStream::is_of_client);
        self.streams.push(CarriedStream {
            id,
            stream,
            take_left: i64::from(H3_STREAM_WINDOW),
            is_readable: of_client,
            received: !of_client,
            pending: VecDeque::new(),
            ends: false,
            sent: one_way && of_client,
            unreported: 0,
        });
        self.streams.len() - 1
    }

    /// The client has opened a stream.
    pub(super) fn opened(&mut self, end: &mut QuicEndpoint, stream: QuicStream) {
        if self.until.is_some() {
            end.stop(self.quic, stream, H3Code::REQUEST_REJECTED.0);
            end.reset(self.quic, stream, H3Code::REQUEST_REJECTED.0);
            return;
        }
        StreamRecord::Bytes { stream: stream.id(), bytes: &[], ends: false }.write(&mut self.inbox);
        let at = self.begin(stream.id(), Some(stream));
        self.read(end, at);
    }

    /// Bytes of a stream came, or its end.
    pub(super) fn readable(&mut self, end: &mut QuicEndpoint, stream: QuicStream) {
        if let Some(at) = self.place(stream.id()) {
            self.streams[at].is_readable = true;
            self.read(end, at);
        }
    }

    /// Reads as much of a stream as the application takes.
    fn read(&mut self, end: &mut QuicEndpoint, at: usize) {
        let CarriedConnection { quic, streams, inbox, take_left, holds_back, .. } = self;
        let held = &mut streams[at];
        let Some(stream) = held.stream.filter(|_| !held.received) else { return };
        let most = held.take_left.min(*take_left);
        if most <= 0 {
            *holds_back = true;
            return;
        }
        let (begun, mut came) = (inbox.len(), 0);
        let mut read = StreamRead::Open;
        StreamRecord::write_bytes(held.id, inbox, |out| {
            read = end.read_up_to(*quic, stream, most as usize, |bytes| {
                came += bytes.len();
                out.extend_from_slice(bytes);
            });
            read == StreamRead::Ended
        });
        held.take_left -= came as i64;
        *take_left -= came as i64;
        if came == 0 && read != StreamRead::Ended {
            inbox.truncate(begun);
        }
        held.is_readable = came as i64 == most;
        *holds_back |= held.is_readable;
        match read {
            StreamRead::Open => return,
            StreamRead::Reset(code) => StreamRecord::Reset { stream: held.id, code }.write(inbox),
            StreamRead::Ended | StreamRead::Gone => {}
        }
        held.received = true;
        self.forget(at);
    }

    /// Reads what was held back, if the application takes it now.
    fn read_again(&mut self, end: &mut QuicEndpoint) {
        if !std::mem::take(&mut self.holds_back) || self.until.is_some() {
            return;
        }
        let mut at = 0;
        while at < self.streams.len() {
            let before = self.streams.len();
            if self.streams[at].is_readable {
                self.read(end, at);
            }
            at += usize::from(self.streams.len() == before);
        }
    }

    /// The client wants no more of a stream.
    pub(super) fn stopped(&mut self, end: &mut QuicEndpoint, stream: QuicStream, code: u64) {
        StreamRecord::Stop { stream: stream.id(), code }.write(&mut self.inbox);
        if let Some(at) = self.place(stream.id()) {
            self.give_up(end, at, code);
        }
    }

    /// Nothing more of a stream is sent.
    fn give_up(&mut self, end: &mut QuicEndpoint, at: usize, code: u64) {
        let held = &mut self.streams[at];
        if let Some(stream) = held.stream.filter(|_| !held.sent) {
            end.reset(self.quic, stream, code);
        }
        held.sent = true;
        let dropped = held.pending.len();
        held.pending = VecDeque::new();
        self.unsent -= dropped;
        self.taken(at, dropped);
        self.forget(at);
    }

    /// QUIC takes more of a stream.
    pub(super) fn writable(&mut self, end: &mut QuicEndpoint, stream: QuicStream) {
        if let Some(at) = self.place(stream.id()) {
            self.write_pending(end, at);
        }
    }

    /// The client admits our own streams.
    pub(super) fn admitted(&mut self, end: &mut QuicEndpoint) {
        for at in (0..self.streams.len()).rev() {
            if self.streams[at].stream.is_none() {
                self.write_pending(end, at);
            }
        }
    }

    fn write_pending(&mut self, end: &mut QuicEndpoint, at: usize) {
        let held = &mut self.streams[at];
        if held.stream.is_none() {
            held.stream = end.open(self.quic, true);
        }
        let Some(stream) = held.stream.filter(|_| !held.sent) else { return };
        let (mut all, mut written) = (0, StreamWrite::Taken(0));
        while !held.pending.is_empty() {
            let (piece, _) = held.pending.as_slices();
            let len = piece.len();
            written = end.write(self.quic, stream, piece);
            let StreamWrite::Taken(taken) = written else { break };
            held.pending.drain(..taken);
            all += taken;
            if taken < len {
                break;
            }
        }
        self.unsent -= all;
        self.taken(at, all);
        let held = &mut self.streams[at];
        match written {
            StreamWrite::Taken(_) if held.pending.is_empty() && held.ends => {
                end.finish(self.quic, stream);
                held.sent = true;
                self.forget(at);
            }
            StreamWrite::Taken(_) => {}
            StreamWrite::Stopped(code) => self.give_up(end, at, code),
            StreamWrite::Gone => self.give_up(end, at, H3Code::REQUEST_CANCELLED.0),
        }
    }

    /// QUIC has taken bytes, or they were dropped: the application may write as many again.
    fn taken(&mut self, at: usize, bytes: usize) {
        let held = &mut self.streams[at];
        self.grown += bytes as u64;
        // Our own streams have no limit but that of what there is to say.
        if held.id & 1 == 1 {
            if bytes > 0 {
                StreamRecord::Room { stream: held.id, bytes: bytes as u64 }.write(&mut self.inbox);
            }
            return;
        }
        held.unreported += bytes as u32;
        self.unreported += bytes as u32;
        if held.unreported > H3_STREAM_ROOM / 2 && !held.sent {
            let bytes = u64::from(std::mem::take(&mut held.unreported));
            StreamRecord::Room { stream: held.id, bytes }.write(&mut self.inbox);
        }
        if self.unreported > H3_CONNECTION_ROOM / 2 {
            let bytes = u64::from(std::mem::take(&mut self.unreported));
            StreamRecord::Room { stream: ALL_STREAMS, bytes }.write(&mut self.inbox);
        }
    }

    /// Forgets a stream that is over in both directions.
    fn forget(&mut self, at: usize) {
        if self.streams[at].received && self.streams[at].sent {
            self.streams.remove(at);
        }
    }

    /// Takes records from the application.
    pub(super) fn take(&mut self, end: &mut QuicEndpoint, bytes: &[u8]) {
        let held;
        let mut input = if self.outbox.is_empty() {
            bytes
        } else {
            self.outbox.extend_from_slice(bytes);
            held = std::mem::take(&mut self.outbox);
            &held[..]
        };
        while let Some(record) = StreamRecord::read(&mut input) {
            self.record(end, record);
        }
        self.outbox.extend_from_slice(input);
        self.read_again(end);
    }

    fn record(&mut self, end: &mut QuicEndpoint, record: StreamRecord<'_>) {
        match record {
            StreamRecord::Bytes { stream, bytes, ends } => self.write(end, stream, bytes, ends),
            StreamRecord::Again { .. } => record.write(&mut self.inbox),
            StreamRecord::Reset { stream, code } => {
                if let Some(at) = self.place(stream) {
                    self.give_up(end, at, code);
                }
            }
            StreamRecord::Stop { stream, code } => {
                let Some(at) = self.place(stream).filter(|at| !self.streams[*at].received) else { return };
                if let Some(stream) = self.streams[at].stream {
                    end.stop(self.quic, stream, code);
                }
                self.streams[at].received = true;
                self.forget(at);
            }
            StreamRecord::Room { stream: ALL_STREAMS, bytes } => {
                self.take_left = self.take_left.saturating_add_unsigned(bytes);
                if self.take_left > i64::from(H3_CONNECTION_WINDOW)
                    && !std::mem::replace(&mut self.is_wide, true)
                {
                    end.set_receive_window(self.quic, H2_CONNECTION_WINDOW);
                }
            }
            StreamRecord::Room { stream, bytes } => {
                if let Some(at) = self.place(stream) {
                    let left = &mut self.streams[at].take_left;
                    *left = left.saturating_add_unsigned(bytes);
                }
            }
            StreamRecord::Close { code } => self.code = self.code.or(Some(code)),
        }
    }

    fn write(&mut self, end: &mut QuicEndpoint, id: u64, bytes: &[u8], ends: bool) {
        // Only our own streams are not there yet.
        let at = match self.place(id) {
            Some(at) => at,
            None if id & 3 == 3 => {
                let stream = end.open(self.quic, true);
                let at = self.begin(id, stream);
                self.streams[at].received = true;
                at
            }
            // The client has given it up meanwhile.
            None => return self.lost(bytes.len()),
        };
        let held = &mut self.streams[at];
        let Some(stream) = held.stream.filter(|_| held.pending.is_empty()) else {
            if held.sent {
                return self.lost(bytes.len());
            }
            held.pending.extend(bytes);
            held.ends |= ends;
            self.unsent += bytes.len();
            return;
        };
        if held.sent {
            return self.lost(bytes.len());
        }
        match end.write(self.quic, stream, bytes) {
            StreamWrite::Taken(taken) => {
                held.pending.extend(&bytes[taken..]);
                held.ends |= ends;
                self.unsent += bytes.len() - taken;
                if taken == bytes.len() && ends {
                    end.finish(self.quic, stream);
                    held.sent = true;
                }
                self.taken(at, taken);
                self.forget(at);
            }
            StreamWrite::Stopped(code) => {
                self.taken(at, bytes.len());
                self.give_up(end, at, code);
            }
            StreamWrite::Gone => {
                self.taken(at, bytes.len());
                self.give_up(end, at, H3Code::REQUEST_CANCELLED.0);
            }
        }
    }

    /// Bytes of a stream that is gone.
    fn lost(&mut self, bytes: usize) {
        self.unreported += bytes as u32;
    }

    /// Reports what the application can take or has waited for.
    pub(super) fn tell(&mut self, events: &mut Vec<Event>) {
        if self.until.is_some() {
            self.inbox.clear();
            return;
        }
        let conn = self.conn;
        if !self.inbox.is_empty() && !std::mem::replace(&mut self.is_told, true) {
            events.push(Event::Readable { conn, data: Data::new(conn, 0) });
        }
        if self.unsent > 0 {
            self.owes_drained = true;
        } else if std::mem::take(&mut self.owes_drained) {
            events.push(Event::Drained { conn });
        }
    }

    /// Keeps the room of records that were read, if it is not much.
    pub(super) fn keep_inbox(&mut self, records: Vec<u8>) {
        if records.capacity() <= H2_KEPT {
            self.inbox = records;
        }
    }

    /// Lets QUIC hold more of a connection whose client acknowledges what it has.
    pub(super) fn grow(&mut self, end: &mut QuicEndpoint, spare: &mut SpareWindows) {
        let more = self.send_window;
        if self.unsent > 0 && self.grown > 2 * more && more < QUIC_SEND_WINDOW_MOST && spare.0 >= more {
            spare.0 -= more;
            self.send_window += more;
            self.grown = 0;
            end.set_send_window(self.quic, self.send_window);
        }
    }

    /// Gives back what its window has grown.
    pub(super) fn give_back(&self, spare: &mut SpareWindows) {
        spare.0 += self.send_window - QUIC_SEND_WINDOW;
    }

    /// Whether all that the application has sent was taken and acknowledged.
    pub(super) fn is_settled(&self, end: &mut QuicEndpoint) -> bool {
        self.streams.iter().all(|stream| stream.pending.is_empty() || stream.id & 1 == 1)
            && end.is_settled(self.quic)
    }
}
