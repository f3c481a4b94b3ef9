//! What a protocol is to a client: requests go in as runs, bytes come and go, and each request ends in
//! exactly one way.
//!
//! A [`Conversation`] is one connection's protocol, without I/O and without a clock. The
//! [`Pool`](crate::Pool) opens connections, hands requests out and decides what becomes of those whose
//! connection is lost; the owner of the pool looks at responses ([`Responses`]), makes the bytes of requests
//! ([`Requests`]) and hears what the pool decided ([`Settle`]). All of it is static dispatch.
//!
//! The trait asks for no order of responses and no one-to-one of bytes and requests, so that a protocol with
//! streams fits: several responses may be read at once (each has its own [`Responses::Reading`]), a request may
//! end while the connection goes on ([`Conversation::given_back`], [`Conversation::cancel_oldest`]), and bytes
//! may have to leave that are no request, or leave later ([`Conversation::send_pending`]).

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;

use bytes::Bytes;
use linerate_http::ResetCode;
use linerate_http::client::{Fields, HeadView};
use linerate_net::{Ahead, Close, Conn, Lent, NetError, Time, Transport};

use crate::{Failure, Loss, Run};

/// The peers agreed on a protocol that the owner does not accept.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the server does not speak HTTP/2: of h2 it agreed to {agreed} (ALPN)")]
pub struct ProtocolRefused {
    /// What they agreed on.
    pub agreed: String,
}

/// One connection's protocol. Everything that is read and written on it passes through here.
pub trait Conversation {
    /// What the owner remembers of a response while it is read.
    type Reading: Default;
    /// What all conversations of a core share: what they learnt from earlier responses.
    type Shared;

    /// For a new connection.
    fn new(shared: &Self::Shared) -> Self;

    /// Requests that the protocol would take now, beside those in flight: 0 once the peer has said that it
    /// takes no more, or while its windows and stream limits are used up.
    fn room(&self) -> u32;

    /// As [`room`](Self::room), for requests of which it is known whether they have a body: windows do not hold up those
    /// without one.
    #[inline]
    fn room_for(&self, _body: bool) -> u32 {
        self.room()
    }

    /// Requests without a whole response.
    fn in_flight(&self) -> u32;

    /// Whole responses so far.
    fn answers(&self) -> u32;

    /// The connection is established, and the peers agreed on this protocol (ALPN).
    ///
    /// # Errors
    /// It is not one that the owner accepts.
    fn agreed(
        &mut self,
        _protocol: Option<&[u8]>,
        _shared: &mut Self::Shared,
    ) -> Result<(), ProtocolRefused> {
        Ok(())
    }

    /// Whether part of a response has been read of which more must follow.
    fn in_response(&self) -> bool;

    /// The requests that have waited longest.
    fn oldest(&self) -> Option<Run>;

    /// Sends requests and remembers them; `last`: the connection carries no others after them. What cannot leave
    /// yet leaves with [`send_pending`](Self::send_pending). Returns the bytes that left.
    ///
    /// # Errors
    /// The transport took no more. The requests are in flight all the same, until they are abandoned.
    fn begin(
        &mut self,
        run: Run,
        last: bool,
        requests: &mut impl Requests,
        out: &mut impl Out,
    ) -> Result<u64, NetError>;

    /// Reads what came at `now`.
    ///
    /// # Errors
    /// The connection carries nothing more, and why.
    fn handle_bytes<E: Responses<Reading = Self::Reading>>(
        &mut self,
        now: Time,
        bytes: &[u8],
        shared: &mut Self::Shared,
        events: &mut E,
    ) -> Result<(), Loss>;

    /// How many of the bytes that came are the peer's: over QUIC there are heads of records between them.
    #[inline]
    fn payload_bytes(bytes: &[u8]) -> usize {
        bytes.len()
    }

    /// Length and use of the bytes that come next.
    #[inline]
    fn ahead<E: Responses<Reading = Self::Reading>>(&self, _events: &E) -> Ahead {
        Ahead::default()
    }

    /// So many of the bytes that [`ahead`](Self::ahead) told of came at `now`, and were discarded since nobody looks at them.
    ///
    /// # Errors
    /// The connection carries nothing more, and why.
    fn handle_discarded<E: Responses<Reading = Self::Reading>>(
        &mut self,
        _now: Time,
        _bytes: u64,
        _shared: &mut Self::Shared,
        _events: &mut E,
    ) -> Result<(), Loss> {
        Ok(())
    }

    /// The peer sends nothing more: says whether that cut a response off.
    fn handle_end<E: Responses<Reading = Self::Reading>>(&mut self, now: Time, events: &mut E) -> Loss;

    /// Sends what is not a request (acknowledgements, windows), and what of requests had to wait. To be called when
    /// the connection is established, and after bytes were read or requests cancelled. Returns the bytes of requests
    /// that left.
    ///
    /// # Errors
    /// The transport took no more.
    #[inline]
    fn send_pending(&mut self, _requests: &mut impl Requests, _out: &mut impl Out) -> Result<u64, NetError> {
        Ok(0)
    }

    /// Requests that the peer gave back since the last call, while the connection goes on. They are not in flight
    /// any more.
    #[inline]
    fn given_back(&mut self, _each: impl FnMut(Run, Fate)) {}

    /// Whether each request has a stream of its own, so that none waits behind another.
    #[inline]
    fn has_streams(&self) -> bool {
        false
    }

    /// Whether the peer has said that it takes no more requests.
    #[inline]
    fn is_leaving(&self) -> bool {
        false
    }

    /// Bytes of request bodies that wait for the peer's windows.
    #[inline]
    fn held_back(&self) -> usize {
        0
    }

    /// The requests of whose bodies a part waits for the peer's windows.
    fn unsent(&self) -> Vec<Unsent> {
        Vec::new()
    }

    /// Since when the peer admits no streams at all.
    fn shut_since(&self) -> Option<Time> {
        None
    }

    /// Holds the response to one request back, or no longer, where it has a stream of its own.
    fn hold(&mut self, _first: u64, _held: bool) {}

    /// Bytes that wait of the body of a request that was begun with [`BodyPart::Follows`]; `None`: it is over.
    fn upload_backlog(&self, _first: u64) -> Option<usize> {
        None
    }

    /// The next piece of that body.
    fn give(&mut self, _first: u64, _piece: Bytes) {}

    /// That body is whole.
    fn give_end(&mut self, _first: u64) {}

    /// Gives one request up by its number, if the connection can do without its response.
    fn cancel(&mut self, _first: u64) -> Option<Run> {
        None
    }

    /// Gives the oldest requests up, if the connection can do without their responses.
    #[inline]
    fn cancel_oldest(&mut self) -> Option<Run> {
        None
    }

    /// What the peer said before may tell more of a loss.
    fn why(&self, loss: Loss) -> Loss {
        loss
    }

    /// The connection is lost: gives all requests back, the oldest first, each with what is known of it.
    fn abandon(&mut self, each: impl FnMut(Run, Fate));

    /// The connection has carried all that it may: says so to the peer, where the protocol has a way. Returns how
    /// our end is closed.
    fn leave(&mut self, _out: &mut impl Out) -> Close {
        Close::AfterPeer
    }

    /// What is known of the protocol on all connections.
    fn facts(_shared: &Self::Shared) -> Facts {
        Facts::default()
    }

    /// Bytes of a response like the last one, when that is known beforehand.
    fn usual_response(_shared: &Self::Shared) -> Option<usize> {
        None
    }
}

/// A request of whose body a part waits for the peer's windows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Unsent {
    /// The number of the request.
    pub first: u64,
    /// Bytes that wait.
    pub bytes: u64,
    /// When a part of it left last.
    pub since: Time,
}

/// What is known of the protocol on all connections of a core.
#[derive(Clone, Debug, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct Facts {
    /// Connections by HTTP/1.1, where the protocol was negotiated.
    pub h1: u64,
    /// Connections by HTTP/2.
    pub h2: u64,
    /// Connections by HTTP/3.
    #[serde(default)]
    pub h3: u64,
    /// The least `SETTINGS_MAX_CONCURRENT_STREAMS` of all connections; `None`: none said a number.
    pub max_concurrent_streams: Option<u32>,
    /// The greatest.
    #[serde(default)]
    pub most_concurrent_streams: Option<u32>,
    /// How long at the longest a connection admitted no streams, since that limit was 0; nanoseconds.
    #[serde(default)]
    pub shut_ns: u64,
    /// Requests whose time was over while a part of their body waited for the server's windows.
    #[serde(default)]
    pub held_bodies: u64,
    /// Bytes of these bodies that did not leave.
    #[serde(default)]
    pub held_bytes: u64,
    /// How long at the longest nothing of such a body had left; nanoseconds.
    #[serde(default)]
    pub held_ns: u64,
    /// Requests that the server refused without processing them: by REFUSED_STREAM, or above GOAWAY's last stream.
    pub refused: u64,
    /// Connections that the server ended by GOAWAY.
    pub go_aways: u64,
    /// Streams that the server reset for another reason, by the name of its code.
    pub resets: BTreeMap<String, u64>,
}

impl Facts {
    /// Adds another core's; the least limit stays.
    pub fn merge(&mut self, other: &Facts) {
        self.h1 += other.h1;
        self.h2 += other.h2;
        self.h3 += other.h3;
        let limits = [self.max_concurrent_streams, other.max_concurrent_streams];
        self.max_concurrent_streams = limits.into_iter().flatten().min();
        let limits = [self.most_concurrent_streams, other.most_concurrent_streams];
        self.most_concurrent_streams = limits.into_iter().flatten().max();
        self.shut_ns = self.shut_ns.max(other.shut_ns);
        self.held_bodies += other.held_bodies;
        self.held_bytes += other.held_bytes;
        self.held_ns = self.held_ns.max(other.held_ns);
        self.refused += other.refused;
        self.go_aways += other.go_aways;
        for (code, n) in &other.resets {
            *self.resets.entry(code.clone()).or_default() += n;
        }
    }
}

/// How far a request got whose connection is lost, or that the peer gave back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fate {
    /// Part of its response came.
    Begun,
    /// The peer said that it does not process it (RFC 9112 section 9.6; RFC 9113 section 6.8): it may be sent again
    /// whatever its method.
    NeverProcessed,
    /// The peer said so of this request by HTTP/2's own means (RFC 9113 sections 6.8 and 8.7).
    Refused,
    /// The peer reset the request's stream for another reason. It may have acted on it (RFC 9113 section 8.7).
    Reset {
        /// The reason that it gave.
        code: ResetCode,
        /// Part of the response had come.
        begun: bool,
    },
    /// The response broke the protocol's rules: which, in words.
    Malformed(&'static str),
    /// The fault that broke the connection came on its stream.
    AtFault {
        /// The head of its response had come.
        begun: bool,
    },
    /// Nobody can know whether it was acted on.
    Unknown,
}

/// Whose response one is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Whose {
    /// The protocol knows.
    #[default]
    Matched,
    /// It names its request: the number of one of ours, or of none.
    Named(Option<u64>),
}

/// Whether a response came when it should.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Turn {
    /// It is that of the request it should answer.
    Right,
    /// It names a request whose turn had not come.
    OutOfOrder,
    /// It names none in flight.
    Unknown,
}

/// A whole response that was read part by part.
#[derive(Clone, Copy, Debug)]
pub struct Whole {
    /// When its end came.
    pub now: Time,
    /// When its first byte came, if that was in an earlier read.
    pub first_byte: Option<Time>,
    /// Its status.
    pub status: u16,
    /// Whether it came when it should.
    pub turn: Turn,
}

/// Whole responses of one length, with the same head.
#[derive(Clone, Copy, Debug)]
pub struct Alike<'a> {
    /// When they came.
    pub now: Time,
    /// When the first byte came, if that was in an earlier read; it is one response then.
    pub first_byte: Option<Time>,
    /// Their status.
    pub status: u16,
    /// Head of the first of them.
    pub head: &'a [u8],
    /// Body of the first of them.
    pub body: &'a [u8],
}

/// Looks at responses while they are read.
pub trait Responses {
    /// State of a response while it is read.
    type Reading: Default;

    /// Whether every response is handed over part by part. If not, whole ones that are alike are handed over at once.
    fn wants_parts(&self) -> bool;

    /// So many bytes came.
    fn received(&mut self, bytes: usize);

    /// The head of the response to this request follows.
    #[inline]
    fn begins(&mut self, _reading: &mut Self::Reading, _run: &Run) {}

    /// A response's head. `kind` is that of the request whose response it should be.
    fn head(&mut self, reading: &mut Self::Reading, kind: u16, head: &HeadView<'_>) -> Whose;

    /// The next piece of its body.
    fn body(&mut self, reading: &mut Self::Reading, kind: u16, piece: &[u8]);

    /// Its trailers.
    fn trailers(&mut self, _reading: &mut Self::Reading, _kind: u16, _fields: Fields<'_>) {}

    /// Whether anything of the body that is still to come is looked at.
    fn looks_on(&self, _reading: &Self::Reading, _kind: u16) -> bool {
        true
    }

    /// It is whole. `kind` is the one that `body` got.
    fn answered(&mut self, run: &Run, kind: u16, reading: &mut Self::Reading, response: &Whole);

    /// Whole responses to all requests of `run`.
    fn alike(&mut self, run: &Run, responses: &Alike<'_>);

    /// The head of the response to this request exceeds `limit` bytes. Its connection is lost, or its stream alone.
    #[inline]
    fn head_too_long(&mut self, _run: &Run, _limit: usize) {}

    /// Bytes came that no request had asked for: so many responses, or what pretends to be some.
    fn unsolicited(&mut self, now: Time, bytes: &[u8], responses: u64);
}

/// Hears how requests ended without a response.
pub trait Settle {
    /// All of `run` ended like this; `detail`: the same for people to read.
    fn settled(&mut self, run: &Run, how: Settled, detail: &str);
}

/// How a request ended without a response.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Settled {
    /// It has failed.
    Failed(Failure),
    /// The peer reset its stream with this code before a byte of the response came. It may have acted on the request.
    Reset(ResetCode),
    /// No whole response came within the time-out.
    TimedOut,
    /// Nobody can know whether it was acted on.
    Unknown,
}

/// Makes the bytes of requests.
pub trait Requests {
    /// Writes them as HTTP/1.1; the last says `Connection: close` when `closing`. Returns the bytes.
    ///
    /// # Errors
    /// What `out` said.
    fn write_h1(&mut self, run: &Run, closing: bool, out: &mut impl Out) -> Result<u64, NetError>;

    /// HTTP/2 and HTTP/3: the field block of every request of this kind, where all have the same and no body.
    fn fixed_block(&self, _kind: u16) -> Option<&[u8]> {
        None
    }

    /// HTTP/2 and HTTP/3: appends the field block of the first request of `run`, and hands out its body. A client that speaks
    /// HTTP/1.1 alone has no need of it.
    fn write_h2(&mut self, _run: &Run, _block: &mut Vec<u8>, _body: impl FnMut(BodyPart<'_>)) {}
}

/// A stretch of a request's body.
#[derive(Debug)]
pub enum BodyPart<'a> {
    /// Bytes made for this request.
    Copied(&'a [u8]),
    /// A range of bytes that stay where they are; `Some`: in the transport's keeping.
    Shared(&'a Arc<[u8]>, Option<Lent>, Range<usize>),
    /// Bytes that nobody changes any more.
    Counted(&'a Bytes),
    /// More of it follows later, by [`Conversation::give`].
    Follows,
}

/// Where bytes leave.
pub trait Out {
    /// Takes all of them.
    ///
    /// # Errors
    /// The transport took no more.
    fn send(&mut self, bytes: &[u8]) -> Result<(), NetError>;

    /// Takes a range of bytes that stay where they are; `lent`: in the transport's keeping.
    ///
    /// # Errors
    /// The transport took no more.
    fn send_shared(
        &mut self,
        bytes: &Arc<[u8]>,
        lent: Option<Lent>,
        range: Range<usize>,
    ) -> Result<(), NetError>;

    /// Takes bytes that nobody changes any more.
    ///
    /// # Errors
    /// The transport took no more.
    fn send_counted(&mut self, bytes: Bytes) -> Result<(), NetError> {
        self.send(&bytes)
    }

    /// Whether so many bytes wait to leave that bodies should wait too.
    #[inline]
    fn is_full(&self) -> bool {
        false
    }
}

/// A connection of a transport, to send on.
#[derive(Debug)]
pub struct TransportWire<'a, T> {
    /// The transport.
    pub transport: &'a mut T,
    /// The connection.
    pub conn: Conn,
}

impl<T: Transport> Out for TransportWire<'_, T> {
    #[inline]
    fn send(&mut self, bytes: &[u8]) -> Result<(), NetError> {
        self.transport.send(self.conn, bytes)
    }

    #[inline]
    fn send_shared(
        &mut self,
        bytes: &Arc<[u8]>,
        lent: Option<Lent>,
        range: Range<usize>,
    ) -> Result<(), NetError> {
        match lent {
            Some(lent) => self.transport.send_lent(self.conn, lent, range),
            None => self.transport.send(self.conn, &bytes[range]),
        }
    }

    #[inline]
    fn send_counted(&mut self, bytes: Bytes) -> Result<(), NetError> {
        self.transport.send_shared(self.conn, bytes)
    }
}
