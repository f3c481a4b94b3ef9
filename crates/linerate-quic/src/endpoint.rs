//! All connections of one thread.

use std::collections::{BTreeSet, VecDeque};
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::{Bytes, BytesMut};
use linerate_base::{Random, Time};
use quinn_proto::crypto::rustls::QuicClientConfig;
use quinn_proto::{
    ClientConfig, Connection, ConnectionHandle, DatagramEvent, Dir, EcnCodepoint, Endpoint, Event, Incoming,
    ServerConfig, StreamEvent, Transmit,
};

use crate::streams::{QuicStream, code};
use crate::{QuicError, QuicLost, QuicOptions};

/// A connection of an endpoint: a slot and the generation that makes it unique.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct QuicConn {
    slot: u32,
    generation: u32,
}

impl QuicConn {
    /// The slot: small, dense, reused once the connection is gone.
    pub fn slot(self) -> usize {
        self.slot as usize
    }

    /// What tells connections of one slot apart.
    pub fn generation(self) -> u32 {
        self.generation
    }
}

/// What is known of a connection.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct QuicStats {
    /// The smoothed round-trip time (RFC 9002, section 5.3).
    pub rtt: Duration,
    /// Packets sent, and how many of them are taken for lost (RFC 9002, section 6.1).
    pub sent: u64,
    /// Packets lost, without probes of the path's size.
    pub lost: u64,
}

/// An event of an endpoint.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum QuicEvent {
    /// A peer began a connection. It carries nothing before [`QuicEvent::Connected`].
    Accepted {
        /// The connection.
        conn: QuicConn,
        /// The peer's address.
        peer: SocketAddr,
    },
    /// The handshake is complete: streams may be opened.
    Connected {
        /// The connection.
        conn: QuicConn,
    },
    /// The peer opened a stream. Bytes of it may have come.
    Opened {
        /// The connection.
        conn: QuicConn,
        /// The stream.
        stream: QuicStream,
    },
    /// Bytes of a stream came, or its end.
    Readable {
        /// The connection.
        conn: QuicConn,
        /// The stream.
        stream: QuicStream,
    },
    /// A stream takes bytes again, after a write that was not taken whole.
    Writable {
        /// The connection.
        conn: QuicConn,
        /// The stream.
        stream: QuicStream,
    },
    /// The peer wants no more of what we send on a stream.
    Stopped {
        /// The connection.
        conn: QuicConn,
        /// The stream.
        stream: QuicStream,
        /// The peer's code.
        code: u64,
    },
    /// The peer admits streams again.
    Room {
        /// The connection.
        conn: QuicConn,
        /// Which: unidirectional ones.
        unidirectional: bool,
    },
    /// The connection ended. The last event of it.
    Lost {
        /// The connection.
        conn: QuicConn,
        /// How.
        how: QuicLost,
    },
}

/// Datagrams to send: `len` bytes were appended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct QuicTransmit {
    /// The address to send to.
    pub to: SocketAddr,
    /// The address to send from, if it matters.
    pub from: Option<IpAddr>,
    /// The codepoint of ECN (RFC 3168): 0 to 3.
    pub ecn: u8,
    /// Bytes in all.
    pub len: usize,
    /// Bytes of each datagram but the last, which may be shorter.
    pub segment: usize,
    /// The connection that they belong to; `None`: a reply of the endpoint itself.
    pub conn: Option<QuicConn>,
}

/// Bytes for each one received that an address may be sent which is not proven (RFC 9000, section 8.1).
const AMPLIFICATION: usize = 3;

pub(crate) struct HeldConnection {
    pub(crate) connection: Connection,
    generation: u32,
    /// It is in `to_poll`.
    polls: bool,
    /// It is in `to_send`.
    sends: bool,
    /// Its place in `deadlines`.
    deadline: Option<Time>,
    /// Its end was reported, or nobody wants to hear of it.
    is_over: bool,
    /// A peer began it, and its handshake is not complete.
    is_shaking: bool,
    /// Bytes that its peer may still be sent, as long as it has not proven its address.
    allowance: Option<usize>,
    /// Streams that we ended and whose end the peer has not acknowledged.
    pub(crate) finishing: u32,
}

impl HeldConnection {
    /// quinn-proto begins a datagram as long as one byte may be sent, so that the last one may go beyond
    /// the limit. Here it is lost instead, and comes again as others do that were lost.
    #[cold]
    fn keep_within_allowance(&mut self, transmit: &mut Transmit) {
        let Some(left) = self.allowance else { return };
        let segment = transmit.segment_size.unwrap_or(transmit.size).max(1);
        let beyond = transmit.size.saturating_sub(left);
        self.allowance = match beyond {
            0 => Some(left - transmit.size),
            // It begins none beyond the limit, unless it knows the address to be proven.
            _ if left == 0 || beyond >= segment => None,
            _ => {
                transmit.size = (transmit.size - 1) / segment * segment;
                // quinn-proto has counted it.
                Some(0)
            }
        };
    }
}

/// All connections of one thread.
pub struct QuicEndpoint {
    pub(crate) endpoint: Endpoint,
    client: Option<ClientConfig>,
    pub(crate) most_connections: usize,
    /// Handshakes in progress beyond which a peer must prove its address.
    retry_above: usize,
    pub(crate) shaking: usize,
    /// By quinn-proto's handle.
    held: Vec<Option<HeldConnection>>,
    generations: u32,
    accepted: usize,
    /// Connections that may have events.
    to_poll: VecDeque<usize>,
    /// Connections that may have something to send.
    to_send: VecDeque<usize>,
    deadlines: BTreeSet<(Time, usize)>,
    events: VecDeque<QuicEvent>,
    /// Responses of the endpoint itself (RFC 9000, sections 6, 8.1.2 and 10.3), with their bytes.
    replies: VecDeque<(Transmit, Vec<u8>)>,
    /// Where quinn-proto writes: it counts from the beginning of its buffer.
    scratch: Vec<u8>,
    /// quinn-proto counts time from an [`Instant`], which only a clock can make. This one is an origin:
    /// it is never compared with the clock.
    origin: Instant,
}

/// Replies that wait to be sent. Reason: a flood of datagrams that need one must not fill the memory;
/// each may be left out.
const MOST_REPLIES: usize = 64;

impl std::fmt::Debug for QuicEndpoint {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("QuicEndpoint").field("connections", &self.connections()).finish_non_exhaustive()
    }
}

impl QuicEndpoint {
    /// An end that opens connections. `seed`: of its random numbers.
    ///
    /// # Errors
    /// An option is out of range, or the TLS configuration does not fit.
    pub fn client(
        options: &QuicOptions,
        tls: Arc<rustls::ClientConfig>,
        seed: u64,
    ) -> Result<QuicEndpoint, QuicError> {
        let tls = QuicClientConfig::try_from(tls).map_err(|_| QuicError::NoFirstCipher)?;
        let mut client = ClientConfig::new(Arc::new(tls));
        client.transport_config(options.transport()?);
        Ok(QuicEndpoint::new(options, Some(client), None, seed))
    }

    /// An end that accepts connections. `seed`: of its random numbers.
    ///
    /// # Errors
    /// An option is out of range, or the TLS configuration does not fit.
    pub fn server(
        options: &QuicOptions,
        tls: Arc<rustls::ServerConfig>,
        seed: u64,
    ) -> Result<QuicEndpoint, QuicError> {
        let server = options.server(tls)?;
        Ok(QuicEndpoint::new(options, None, Some(server), seed))
    }

    fn new(
        options: &QuicOptions,
        client: Option<ClientConfig>,
        server: Option<Arc<ServerConfig>>,
        seed: u64,
    ) -> QuicEndpoint {
        let mut random = Random::new(seed);
        let mut bytes = [0; 32];
        bytes.chunks_exact_mut(8).for_each(|part| part.copy_from_slice(&random.next_u64().to_le_bytes()));
        QuicEndpoint {
            endpoint: Endpoint::new(Arc::new(options.endpoint()), server, true, Some(bytes)),
            client,
            most_connections: options.connections,
            retry_above: options.retry_above,
            shaking: 0,
            held: Vec::new(),
            generations: 0,
            accepted: 0,
            to_poll: VecDeque::new(),
            to_send: VecDeque::new(),
            scratch: Vec::new(),
            deadlines: BTreeSet::new(),
            events: VecDeque::new(),
            replies: VecDeque::new(),
            origin: Instant::now(),
        }
    }

    fn instant(&self, now: Time) -> Instant {
        self.origin + Duration::from_nanos(now.as_nanos())
    }

    /// Connections that take memory, those that are ending included.
    pub fn connections(&self) -> usize {
        self.held.iter().flatten().count()
    }

    /// Begins a connection.
    ///
    /// # Errors
    /// The endpoint is a server's, or the name is none.
    pub fn connect(&mut self, now: Time, to: SocketAddr, name: &str) -> Result<QuicConn, QuicError> {
        let cannot = |why: String| QuicError::Connect { to, why };
        let config = self.client.clone().ok_or_else(|| cannot("this end only accepts".to_owned()))?;
        let now = self.instant(now);
        let begun = self.endpoint.connect(now, config, to, name);
        let (handle, connection) = begun.map_err(|error| cannot(error.to_string()))?;
        Ok(self.hold(handle, connection))
    }

    fn hold(&mut self, handle: ConnectionHandle, connection: Connection) -> QuicConn {
        if self.held.len() <= handle.0 {
            self.held.resize_with(handle.0 + 1, || None);
        }
        self.generations = self.generations.wrapping_add(1);
        let generation = self.generations;
        self.held[handle.0] = Some(HeldConnection {
            connection,
            generation,
            polls: false,
            sends: false,
            deadline: None,
            is_over: false,
            is_shaking: false,
            allowance: None,
            finishing: 0,
        });
        self.mark(handle.0);
        QuicConn { slot: handle.0 as u32, generation }
    }

    pub(crate) fn held_mut(&mut self, conn: QuicConn) -> Option<&mut HeldConnection> {
        self.held.get_mut(conn.slot())?.as_mut().filter(|held| held.generation == conn.generation)
    }

    /// The connection, which is looked after once the caller is done with it.
    pub(crate) fn touch(&mut self, conn: QuicConn) -> Option<&mut Connection> {
        let held = self.held.get(conn.slot())?.as_ref()?;
        if held.generation != conn.generation {
            return None;
        }
        self.mark(conn.slot());
        self.held[conn.slot()].as_mut().map(|held| &mut held.connection)
    }

    /// Looks after a connection later.
    fn mark(&mut self, slot: usize) {
        let Some(held) = &mut self.held[slot] else { return };
        if !std::mem::replace(&mut held.polls, true) {
            self.to_poll.push_back(slot);
        }
        if !std::mem::replace(&mut held.sends, true) {
            self.to_send.push_back(slot);
        }
    }

    fn touch_slot(&mut self, slot: usize) -> Option<&mut Connection> {
        let generation = self.held.get(slot)?.as_ref()?.generation;
        self.touch(QuicConn { slot: slot as u32, generation })
    }

    /// Takes one datagram. `ecn`: the codepoint of its header, 0 to 3. `local`: the address that it was
    /// sent to, if that is known.
    pub fn receive(&mut self, now: Time, peer: SocketAddr, local: Option<IpAddr>, ecn: u8, datagram: &[u8]) {
        let at = self.instant(now);
        let mut reply = Vec::new();
        let ecn = EcnCodepoint::from_bits(ecn);
        match self.endpoint.handle(at, peer, local, ecn, BytesMut::from(datagram), &mut reply) {
            Some(DatagramEvent::ConnectionEvent(handle, event)) => {
                if let Some(connection) = self.touch_slot(handle.0) {
                    connection.handle_event(event);
                }
                if let Some(Some(HeldConnection { allowance: Some(left), .. })) = self.held.get_mut(handle.0)
                {
                    *left += AMPLIFICATION * datagram.len();
                }
            }
            Some(DatagramEvent::NewConnection(incoming)) => self.accept(at, incoming, datagram.len()),
            Some(DatagramEvent::Response(transmit)) => self.reply(transmit, reply),
            None => {}
        }
    }

    fn accept(&mut self, at: Instant, incoming: Incoming, came: usize) {
        let is_proven = incoming.remote_address_validated();
        let (peer, mut reply) = (incoming.remote_address(), Vec::new());
        if self.accepted >= self.most_connections {
            let refusal = self.endpoint.refuse(incoming, &mut reply);
            return self.reply(refusal, reply);
        }
        // The address in a packet may be forged: a Retry costs no memory (RFC 9000, section 8.1.2).
        if !is_proven && incoming.may_retry() && self.shaking >= self.retry_above {
            if let Ok(retry) = self.endpoint.retry(incoming, &mut reply) {
                self.reply(retry, reply);
            }
            return;
        }
        match self.endpoint.accept(incoming, at, &mut reply, None) {
            Ok((handle, connection)) => {
                self.accepted += 1;
                self.shaking += 1;
                let conn = self.hold(handle, connection);
                if let Some(held) = &mut self.held[handle.0] {
                    held.is_shaking = true;
                    held.allowance = (!is_proven).then_some(AMPLIFICATION * came);
                }
                self.events.push_back(QuicEvent::Accepted { conn, peer });
            }
            // A first packet that makes no sense: the peer is told, and nothing is left of it here.
            Err(error) => {
                if let Some(transmit) = error.response {
                    self.reply(transmit, reply);
                }
            }
        }
    }

    fn reply(&mut self, transmit: Transmit, bytes: Vec<u8>) {
        if self.replies.len() < MOST_REPLIES {
            self.replies.push_back((transmit, bytes));
        }
    }

    /// When [`QuicEndpoint::run_timers`] is next needed; `None`: never, as things are. Known once
    /// everything was sent.
    pub fn deadline(&self) -> Option<Time> {
        self.deadlines.first().map(|(at, _)| *at)
    }

    /// Whether there are events to take, or datagrams may leave now.
    pub fn has_work(&self) -> bool {
        let is_told = self.events.is_empty() && self.to_poll.is_empty();
        !(is_told && self.replies.is_empty() && self.to_send.is_empty())
    }

    /// Lets time pass.
    pub fn run_timers(&mut self, now: Time) {
        let at = self.instant(now);
        while let Some((due, slot)) = self.deadlines.first().copied().filter(|(due, _)| *due <= now) {
            self.deadlines.remove(&(due, slot));
            if let Some(held) = &mut self.held[slot] {
                held.deadline = None;
            }
            if let Some(connection) = self.touch_slot(slot) {
                connection.handle_timeout(at);
            }
        }
    }

    /// The next event.
    pub fn next_event(&mut self) -> Option<QuicEvent> {
        while self.events.is_empty() {
            let slot = self.to_poll.pop_front()?;
            self.take_events(slot);
        }
        self.events.pop_front()
    }

    fn take_events(&mut self, slot: usize) {
        let Some(held) = &mut self.held[slot] else { return };
        held.polls = false;
        if held.is_over {
            return;
        }
        let conn = QuicConn { slot: slot as u32, generation: held.generation };
        while let Some(event) = held.connection.poll() {
            let event = match event {
                Event::Connected => {
                    self.shaking -= usize::from(std::mem::take(&mut held.is_shaking));
                    held.allowance = None;
                    QuicEvent::Connected { conn }
                }
                Event::ConnectionLost { reason } => {
                    held.is_over = true;
                    self.events.push_back(QuicEvent::Lost { conn, how: reason.into() });
                    return;
                }
                Event::Stream(StreamEvent::Opened { dir }) => {
                    while let Some(id) = held.connection.streams().accept(dir) {
                        self.events.push_back(QuicEvent::Opened { conn, stream: QuicStream(id) });
                    }
                    continue;
                }
                Event::Stream(StreamEvent::Readable { id }) => {
                    QuicEvent::Readable { conn, stream: QuicStream(id) }
                }
                Event::Stream(StreamEvent::Writable { id }) => {
                    QuicEvent::Writable { conn, stream: QuicStream(id) }
                }
                Event::Stream(StreamEvent::Stopped { id, error_code }) => {
                    QuicEvent::Stopped { conn, stream: QuicStream(id), code: error_code.into_inner() }
                }
                Event::Stream(StreamEvent::Available { dir }) => {
                    QuicEvent::Room { conn, unidirectional: dir == Dir::Uni }
                }
                Event::Stream(StreamEvent::Finished { .. }) => {
                    held.finishing = held.finishing.saturating_sub(1);
                    continue;
                }
                Event::HandshakeDataReady | Event::DatagramReceived | Event::DatagramsUnblocked => continue,
            };
            self.events.push_back(event);
        }
    }

    /// Appends datagrams to one peer, at most `most` of one size. `None`: there is nothing to send now.
    pub fn next_transmit(&mut self, now: Time, most: usize, out: &mut Vec<u8>) -> Option<QuicTransmit> {
        if let Some((transmit, bytes)) = self.replies.pop_front() {
            out.extend_from_slice(&bytes[..transmit.size]);
            return Some(plain(&transmit, None));
        }
        let at = self.instant(now);
        while let Some(slot) = self.to_send.front().copied() {
            self.scratch.clear();
            if let Some(held) = &mut self.held[slot]
                && let Some(mut transmit) = held.connection.poll_transmit(at, most, &mut self.scratch)
            {
                if held.allowance.is_some() {
                    held.keep_within_allowance(&mut transmit);
                    if transmit.size == 0 {
                        continue;
                    }
                }
                out.extend_from_slice(&self.scratch[..transmit.size]);
                let conn = QuicConn { slot: slot as u32, generation: held.generation };
                return Some(plain(&transmit, Some(conn)));
            }
            self.to_send.pop_front();
            self.settle(slot);
        }
        None
    }

    /// Everything of this connection was sent: its deadline is known, or it is gone.
    fn settle(&mut self, slot: usize) {
        let Some(held) = &mut self.held[slot] else { return };
        held.sends = false;
        let mut is_changed = false;
        while let Some(event) = held.connection.poll_endpoint_events() {
            if let Some(event) = self.endpoint.handle_event(ConnectionHandle(slot), event) {
                held.connection.handle_event(event);
                is_changed = true;
            }
        }
        let is_gone = held.connection.is_drained();
        let next = held.connection.poll_timeout().filter(|_| !is_gone);
        let next = next.map(|at| Time::ZERO + at.saturating_duration_since(self.origin));
        if held.deadline != next {
            if let Some(before) = held.deadline {
                self.deadlines.remove(&(before, slot));
            }
            self.deadlines.extend(next.map(|at| (at, slot)));
            held.deadline = next;
        }
        if is_gone {
            let is_of_server = held.connection.side().is_server();
            self.accepted -= usize::from(is_of_server);
            self.shaking -= usize::from(std::mem::take(&mut held.is_shaking));
            // What it has not told yet is told now: its slot may have another connection soon.
            self.take_events(slot);
            self.held[slot] = None;
        } else if is_changed {
            self.mark(slot);
        }
    }

    /// What is known of a connection, while it takes memory.
    pub fn stats(&self, conn: QuicConn) -> Option<QuicStats> {
        let held = self.held.get(conn.slot())?.as_ref().filter(|held| held.generation == conn.generation)?;
        let path = held.connection.stats().path;
        Some(QuicStats { rtt: path.rtt, sent: path.sent_packets, lost: path.lost_packets })
    }

    /// Closes a connection. No event tells of its end.
    pub fn close(&mut self, now: Time, conn: QuicConn, with: u64, reason: &str) {
        let at = self.instant(now);
        let Some(connection) = self.touch(conn) else { return };
        connection.close(at, code(with), Bytes::copy_from_slice(reason.as_bytes()));
        if let Some(held) = &mut self.held[conn.slot()] {
            held.is_over = true;
        }
    }
}

fn plain(transmit: &Transmit, conn: Option<QuicConn>) -> QuicTransmit {
    QuicTransmit {
        conn,
        to: transmit.destination,
        from: transmit.src_ip,
        ecn: transmit.ecn.map_or(0, |ecn| ecn as u8),
        len: transmit.size,
        segment: transmit.segment_size.unwrap_or(transmit.size),
    }
}
