//! The server's end of a connection of HTTP/3 (RFC 9114).
//!
//! QUIC's streams are somebody else's. What happens to them comes as [`StreamRecord`]s, one behind the
//! other, and goes as such: [`H3Server::next`] reads what a client sends and reports requests as
//! [`ClientEvent`](crate::h2::server::ClientEvent)s. Their owner responds by [`H3Server::respond`] and
//! [`H3Server::write_data`]. Everything to be sent collects in [`H3Server::out`].
//!
//! The face is that of [HTTP/2's server](crate::h2::server::Server), and so are its events: a request is
//! named by how many came before it.

mod blocked;
mod read;
mod records;
#[cfg(test)]
mod tests;
mod unidirectional;
mod write;

use linerate_base::Time;

use self::blocked::BlockedStream;
use self::records::put_bytes_head;
pub use self::records::{ALL_STREAMS, StreamRecord};
use self::unidirectional::PeerStreams;
use super::{H3Code, H3Error, H3FrameReader, H3Settings, QpackDecoder, frame_kind, put_go_away, stream_kind};
use crate::h2::server::{FieldCoding, RememberedHead, ResponseBlocks};

/// What a server announces, and how much it puts up with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct H3ServerOptions {
    /// Bytes of a stream that come before they are [released](H3Server::release), and of all streams of
    /// a connection.
    pub stream_window: u32,
    /// See `stream_window`.
    pub connection_window: u32,
    /// Bytes of a stream that may be written before the transport takes more, and of all streams.
    pub stream_room: u32,
    /// See `stream_room`.
    pub connection_room: u32,
    /// Bytes of a request's head, each field counted 32 more.
    pub head_list: u32,
    /// Bytes of QPACK's dynamic table.
    pub table_capacity: u32,
    /// Streams at once whose field sections may wait for entries of the table.
    pub blocked_streams: u32,
    /// Streams that the client may make us reset by breaking a rule on each; more end the connection.
    pub resets_caused: u32,
    /// Requests between two calls of [`H3Server::begin_turn`] that the client may cancel in the same
    /// time; more end the connection.
    pub resets_at_once: u32,
}

/// The first streams that a server opens (RFC 9000, section 2.1): control, and QPACK's decoder.
const CONTROL: u64 = 3;
const DECODER: u64 = 7;

/// A stream that no request has, for the first GOAWAY (RFC 9114, section 5.2).
const BEYOND_ALL: u64 = (1 << 62) - 4;

/// Bytes of QPACK's instructions that may wait for the client. Reason: it decides how many there are.
const INSTRUCTIONS_WAITING: i64 = 64 << 10;

/// How far a request has come.
#[derive(Clone, Debug, PartialEq, Eq)]
enum RequestPhase {
    /// Its head is to come.
    Head,
    /// Its content, or trailers.
    Content,
    /// Its trailers have come: only its end is to come.
    Trailers(Vec<(String, Vec<u8>)>),
}

/// A stream of a request that is not over in both directions.
#[derive(Debug)]
struct RequestFlow {
    /// How many came before it.
    id: u32,
    reader: H3FrameReader,
    phase: RequestPhase,
    /// When it was opened.
    since: Time,
    /// Bytes of the announced content that have not come.
    content_left: Option<u64>,
    /// Bytes that the transport takes. Negative: a head went beyond it.
    send_left: i64,
    /// Bytes that the owner has read and the transport does not know of.
    unreported: u32,
    /// Its field section waits, or came again.
    blocked: Option<BlockedStream>,
    /// Bytes that were reported as read, and are to be read once more.
    debt: u32,
    /// The response has ended.
    sent: bool,
    /// The request has ended.
    received: bool,
}

/// The rest of a record of bytes that is being read.
#[derive(Clone, Copy, Debug)]
struct OpenRecord {
    stream: u64,
    left: usize,
    ends: bool,
    /// Its bytes came before, and had to wait.
    again: bool,
}

/// How far the end of the connection has come (RFC 9114, section 5.2).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum H3Goodbye {
    No,
    /// The first GOAWAY was sent.
    Announced,
    /// Requests before this one get responses.
    Final(u32),
}

/// The server's end of a connection.
#[derive(Debug)]
pub struct H3Server {
    options: H3ServerOptions,
    decoder: QpackDecoder,
    known: RememberedHead,
    /// In the order of their numbers.
    flows: Vec<RequestFlow>,
    /// Requests that were opened.
    opened: u32,
    peers: PeerStreams,
    record: Option<OpenRecord>,
    send_left: i64,
    /// Bytes of all streams that were read and not reported.
    unreported: u32,
    /// As [`RequestFlow::debt`], of all streams.
    debt: u32,
    window: u32,
    /// Bytes of instructions beyond what the transport takes.
    instructions_left: Option<i64>,
    goodbye: H3Goodbye,
    resets_caused: u32,
    /// The first request of this turn, and how many since then were cancelled.
    turn_from: u32,
    cancelled: u32,
    now: Time,
    /// What the client asked for beside requests, since it was last asked: frames, and resets.
    spent: (u32, u32),
    over: Option<H3Code>,
    error: Option<H3Error>,
    out: Vec<u8>,
}

/// The [`ResponseBlocks`] of HTTP/3.
pub fn response_blocks() -> ResponseBlocks {
    ResponseBlocks::coded(FieldCoding { begin: super::section_prefix, field: super::field_line })
}

/// The stream of a request.
fn stream_of(id: u32) -> u64 {
    u64::from(id) * 4
}

impl H3Server {
    /// For a new connection. Our settings are what it has to say first.
    pub fn new(options: H3ServerOptions, now: Time) -> H3Server {
        let mut ours = vec![stream_kind::CONTROL as u8];
        let settings = H3Settings {
            table_capacity: u64::from(options.table_capacity),
            blocked_streams: u64::from(options.blocked_streams),
            field_section_bytes: Some(u64::from(options.head_list)),
            ..H3Settings::default()
        };
        settings.write(&mut ours);
        let mut server = H3Server {
            options,
            decoder: QpackDecoder::new(options.table_capacity as usize),
            known: RememberedHead::default(),
            flows: Vec::new(),
            opened: 0,
            peers: PeerStreams::default(),
            record: None,
            send_left: i64::from(options.connection_room),
            unreported: 0,
            debt: 0,
            window: options.connection_window,
            instructions_left: None,
            goodbye: H3Goodbye::No,
            resets_caused: 0,
            turn_from: 0,
            cancelled: 0,
            now,
            spent: (0, 0),
            over: None,
            error: None,
            out: Vec::new(),
        };
        server.put_own(CONTROL, &ours);
        server
    }

    /// Bytes to be sent; the owner takes them.
    #[inline]
    pub fn out(&mut self) -> &mut Vec<u8> {
        &mut self.out
    }

    /// Whether nothing more will come, nor may be sent.
    #[inline]
    pub fn is_over(&self) -> bool {
        self.over.is_some()
    }

    /// The rule that the client broke, if that ended the connection.
    pub fn error(&self) -> Option<&H3Error> {
        self.error.as_ref()
    }

    /// From here on, requests count as new ones (see [`H3ServerOptions::resets_at_once`]), and it is this
    /// late.
    #[inline]
    pub fn begin_turn(&mut self, now: Time) {
        (self.turn_from, self.cancelled, self.now) = (self.opened, 0, now);
    }

    /// When the first stream was opened whose request's head has not come.
    pub fn head_since(&self) -> Option<Time> {
        self.flows.iter().filter(|flow| flow.phase == RequestPhase::Head).map(|flow| flow.since).min()
    }

    /// What the client has sent beside requests since this was last asked: frames and streams that carry
    /// none, and requests given up.
    #[inline]
    pub fn take_spent(&mut self) -> (u32, u32) {
        std::mem::take(&mut self.spent)
    }

    /// Announces that no more requests are wanted. Those that the client sends before it knows get
    /// responses. The second call, a round trip later, names the last of them.
    pub fn say_goodbye(&mut self) {
        if self.is_over() {
            return;
        }
        match self.goodbye {
            H3Goodbye::No => {
                self.goodbye = H3Goodbye::Announced;
                self.put_go_away(BEYOND_ALL);
            }
            H3Goodbye::Announced => {
                self.goodbye = H3Goodbye::Final(self.opened);
                self.put_go_away(stream_of(self.opened));
                self.end_if_done();
            }
            H3Goodbye::Final(_) => {}
        }
    }

    /// The last response may have been the end of the connection.
    #[inline]
    fn end_if_done(&mut self) {
        if matches!(self.goodbye, H3Goodbye::Final(_)) && self.flows.is_empty() {
            self.go_away(H3Code::NO_ERROR);
        }
    }

    /// Ends the connection.
    pub fn go_away(&mut self, code: H3Code) {
        if self.over.is_none() {
            self.over = Some(code);
            StreamRecord::Close { code: code.0 }.write(&mut self.out);
        }
    }

    fn put_go_away(&mut self, id: u64) {
        let mut frame = Vec::with_capacity(12);
        put_go_away(id, &mut frame);
        self.put_own(CONTROL, &frame);
    }

    /// Writes on one of our own streams.
    fn put_own(&mut self, stream: u64, bytes: &[u8]) {
        StreamRecord::Bytes { stream, bytes, ends: false }.write(&mut self.out);
    }

    #[inline]
    fn place(&self, id: u32) -> Option<usize> {
        match self.flows.last() {
            Some(last) if last.id == id => Some(self.flows.len() - 1),
            _ => self.flows.binary_search_by_key(&id, |flow| flow.id).ok(),
        }
    }

    #[inline]
    fn flow(&self, id: u32) -> Option<&RequestFlow> {
        Some(&self.flows[self.place(id)?])
    }

    #[inline]
    fn flow_mut(&mut self, id: u32) -> Option<&mut RequestFlow> {
        let place = self.place(id)?;
        Some(&mut self.flows[place])
    }

    fn remove(&mut self, id: u32) -> Option<RequestFlow> {
        let place = self.place(id)?;
        Some(self.flows.remove(place))
    }
}
