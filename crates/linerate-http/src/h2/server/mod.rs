//! The server's end of a connection.
//!
//! [`Server::next`] reads what a client sends, frame by frame, and reports requests as [`ClientEvent`]s.
//! Their owner responds by [`Server::respond`] and [`Server::write_data`]. Everything to be sent
//! collects in [`Server::out`].

mod blocks;
mod flows;
mod heads;
mod read;
#[cfg(test)]
mod tests;
mod write;

use std::rc::Rc;

pub(crate) use self::blocks::{FieldCoding, fields as each_field, status_digits};
pub use self::blocks::{ResponseBlocks, ResponseHead};
use self::flows::Flows;
pub use self::heads::Heads;
pub(crate) use self::heads::{Head, Read, RememberedHead, trailer_fields};
use super::frame::{self, FrameHead, kind};
use super::hpack::Decoder;
use super::limits::{FIRST_WINDOW, LARGEST_WINDOW, LAST_STREAM};
use super::settings::{self, Settings, id};
use super::{Code, H2Error};
use crate::server::{RequestFault, RequestHead};

/// What a server announces, and how much it puts up with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ServerOptions {
    /// Streams at once.
    pub streams: u32,
    /// Bytes that a client may send on a stream before they are read, and on all of a connection; at
    /// least 65,535 of the latter.
    pub stream_window: u32,
    /// See `stream_window`.
    pub connection_window: u32,
    /// Bytes of a request's head, each field counted 32 more.
    pub head_list: u32,
    /// Streams that the client may make us reset by breaking a rule on each; more end the
    /// connection.
    pub resets_caused: u32,
    /// Requests between two calls of [`Server::begin_turn`] that the client may cancel in the same
    /// time; more end the connection.
    pub resets_at_once: u32,
}

/// A request whose head has come, over HTTP/2 or HTTP/3.
#[derive(Clone, Debug)]
pub struct Incoming {
    /// Its stream. Over HTTP/3: how many requests came before it.
    pub stream: u32,
    /// Its head as HTTP/1.1 would have it, or why it is refused.
    pub head: Result<Rc<RequestHead>, RequestFault>,
    /// It has no body, and no trailers.
    pub ends: bool,
    /// It is an extended CONNECT (RFC 8441), and its head a request for an upgrade.
    pub websocket: bool,
}

/// What a client has sent, over HTTP/2 or HTTP/3.
#[derive(Clone, Debug)]
pub enum ClientEvent<'i> {
    /// The head of a request.
    Request(Incoming),
    /// Content of a request's body, which counts against the windows until it is
    /// [released](Server::release).
    Data {
        /// Its stream.
        stream: u32,
        /// The content.
        content: &'i [u8],
        /// The request ends here.
        ends: bool,
    },
    /// The trailer section, with which the request ends.
    Trailers {
        /// Its stream.
        stream: u32,
        /// Names and values.
        fields: Vec<(String, Vec<u8>)>,
    },
    /// A request that breaks a rule (400), and whose stream was reset for it, or whose head is too
    /// large (431), which the client was told.
    Refused {
        /// The stream, which is over for its owner.
        stream: u32,
        /// The status that HTTP/1.1 has for it.
        status: u16,
    },
    /// The client has reset the stream, or broke a rule on it.
    Reset {
        /// The stream.
        stream: u32,
    },
}

/// How much of the connection's beginning has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Begun {
    Nothing,
    Preface,
    Settings,
}

/// How far the end of the connection has come (RFC 9113 section 6.8).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Goodbye {
    No,
    /// The first GOAWAY was sent, and a PING.
    Announced,
    /// The client knows; streams up to this one get responses.
    Final(u32),
}

/// The payload of the PING behind the first GOAWAY.
const GOODBYE: &[u8; 8] = b"goodbye!";

/// A field block whose frames are still coming.
#[derive(Debug)]
struct Assembly {
    head: FrameHead,
    bytes: Vec<u8>,
    frames: u32,
    /// The stream depends on itself (RFC 7540 section 5.3.1).
    is_circular: bool,
}

/// The server's end of a connection.
#[derive(Debug)]
pub struct Server {
    options: ServerOptions,
    begun: Begun,
    decoder: Decoder,
    known: RememberedHead,
    flows: Flows,
    /// The client's.
    settings: Settings,
    send_left: i64,
    /// The rest of our window, and bytes of it that were read and not reported.
    receive_left: u32,
    unreported: u32,
    /// How wide the connection's window is.
    window: u32,
    assembly: Option<Assembly>,
    /// A field block was written.
    wrote: bool,
    goodbye: Goodbye,
    resets_caused: u32,
    /// The first stream of this turn, and how many since then were cancelled.
    turn_from: u32,
    cancelled: u32,
    over: Option<Code>,
    error: Option<H2Error>,
    out: Vec<u8>,
}

impl Server {
    /// For a new connection. Our settings are what it has to say first.
    pub fn new(options: ServerOptions) -> Server {
        let mut ours = Vec::with_capacity(24);
        settings::put(id::MAX_CONCURRENT_STREAMS, options.streams, &mut ours);
        settings::put(id::INITIAL_WINDOW_SIZE, options.stream_window.min(LARGEST_WINDOW), &mut ours);
        settings::put(id::MAX_HEADER_LIST_SIZE, options.head_list, &mut ours);
        settings::put(id::ENABLE_CONNECT_PROTOCOL, 1, &mut ours);
        let mut out = Vec::new();
        frame::put(kind::SETTINGS, 0, 0, &ours, &mut out);
        let window = options.connection_window.clamp(FIRST_WINDOW, LARGEST_WINDOW);
        if window > FIRST_WINDOW {
            frame::put_window(0, window - FIRST_WINDOW, &mut out);
        }
        Server {
            options,
            begun: Begun::Nothing,
            decoder: Decoder::default(),
            known: RememberedHead::default(),
            flows: Flows::default(),
            settings: Settings::default(),
            send_left: i64::from(FIRST_WINDOW),
            receive_left: window,
            unreported: 0,
            window,
            assembly: None,
            wrote: false,
            goodbye: Goodbye::No,
            resets_caused: 0,
            turn_from: 0,
            cancelled: 0,
            over: None,
            error: None,
            out,
        }
    }

    /// Bytes to be sent; the owner takes them.
    #[inline]
    pub fn out(&mut self) -> &mut Vec<u8> {
        &mut self.out
    }

    /// Whether the client's preface has come.
    #[inline]
    pub fn is_open(&self) -> bool {
        self.begun != Begun::Nothing
    }

    /// Streams that are not over.
    #[inline]
    pub fn open_streams(&self) -> usize {
        self.flows.len()
    }

    /// Whether nothing more will come, nor may be sent.
    #[inline]
    pub fn is_over(&self) -> bool {
        self.over.is_some()
    }

    /// The rule that the client broke, if that ended the connection.
    pub fn error(&self) -> Option<&H2Error> {
        self.error.as_ref()
    }

    /// From here on, requests count as new ones (see [`ServerOptions::resets_at_once`]).
    #[inline]
    pub fn begin_turn(&mut self) {
        (self.turn_from, self.cancelled) = (self.flows.last() + 1, 0);
    }

    /// Announces that no more requests are wanted. Those that the client sends before it knows get
    /// responses; a round trip later a second GOAWAY names the last of them.
    pub fn say_goodbye(&mut self) {
        if self.goodbye == Goodbye::No && !self.is_over() {
            self.goodbye = Goodbye::Announced;
            self.put_go_away(LAST_STREAM, Code::NO_ERROR);
            frame::put(kind::PING, 0, 0, GOODBYE, &mut self.out);
        }
    }

    /// The client knows: no more requests come.
    fn finish_goodbye(&mut self) {
        let last = self.flows.last();
        self.goodbye = Goodbye::Final(last);
        self.put_go_away(last, Code::NO_ERROR);
        self.end_if_done();
    }

    /// The last response may have been the end of the connection.
    #[inline]
    fn end_if_done(&mut self) {
        if matches!(self.goodbye, Goodbye::Final(_)) && self.flows.len() == 0 {
            self.over.get_or_insert(Code::NO_ERROR);
        }
    }

    /// Ends the connection.
    pub fn go_away(&mut self, code: Code) {
        if self.over.is_none() {
            let last = if let Goodbye::Final(last) = self.goodbye { last } else { self.flows.last() };
            self.put_go_away(last, code);
            self.over = Some(code);
        }
    }

    fn put_go_away(&mut self, last: u32, code: Code) {
        let [a, b, c, d] = last.to_be_bytes();
        let [e, f, g, h] = code.0.to_be_bytes();
        frame::put(kind::GOAWAY, 0, 0, &[a, b, c, d, e, f, g, h], &mut self.out);
    }
}
