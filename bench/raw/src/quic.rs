//! QUIC for the raw ends of HTTP/3: quinn-proto over UDP sockets, with segments in one call both ways
//! (UDP_SEGMENT and UDP_GRO).

use std::io;
use std::net::{SocketAddr, SocketAddrV4};
use std::os::fd::RawFd;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::BytesMut;
use quinn_proto::{
    Connection, ConnectionError, ConnectionHandle, DatagramEvent, Dir, Endpoint, EndpointConfig, Event,
    IdleTimeout, ReadError, ServerConfig, StreamEvent, StreamId, Transmit, TransportConfig, VarInt,
};

use crate::sys::{self, PeerAddress, RawEpoll};

/// Datagrams in one send. Reason: the kernel takes 64 and at most 64 KiB.
const SEGMENTS: usize = 40;

/// Bytes of one receive.
const RECEIVE: usize = 64 << 10;

/// Receives from one socket in a row.
const RECEIVES: usize = 64;

/// A connection and its number among those of its end.
pub(crate) struct NumberedConnection<'c> {
    pub(crate) number: usize,
    pub(crate) connection: &'c mut Connection,
}

/// What an end makes of its connections.
pub(crate) trait RawStreamUser {
    /// A connection is ready to carry streams.
    fn connected(&mut self, on: NumberedConnection<'_>) -> io::Result<()>;
    /// Streams may be opened.
    fn available(&mut self, on: NumberedConnection<'_>) -> io::Result<()>;
    /// Bytes of a stream came; `ends`: they are its last.
    fn bytes(&mut self, on: NumberedConnection<'_>, id: StreamId, len: usize, ends: bool) -> io::Result<()>;
    /// A stream takes bytes again.
    fn writable(&mut self, on: NumberedConnection<'_>, id: StreamId) -> io::Result<()>;
    /// A connection is gone.
    fn lost(&mut self, number: usize, reason: ConnectionError) -> io::Result<()>;
}

/// Opens our control stream, with settings that admit no dynamic table.
pub(crate) fn open_control(connection: &mut Connection) -> io::Result<()> {
    let id = connection.streams().open(Dir::Uni).ok_or_else(|| io::Error::other("no control stream"))?;
    // The kind of the stream, and an empty SETTINGS frame.
    connection.send_stream(id).write(&[0, 4, 0]).map_err(io::Error::other)?;
    Ok(())
}

struct RawQuicConnection {
    connection: Connection,
    fd: RawFd,
    /// It is in the list of those to look after.
    is_due: bool,
}

/// All connections of one end, by one thread.
pub(crate) struct RawQuicEnd {
    endpoint: Endpoint,
    /// By handle.
    connections: Vec<Option<RawQuicConnection>>,
    due: Vec<usize>,
    received: Vec<u8>,
    out: Vec<u8>,
    epoll: RawEpoll,
    pub(crate) counts: RawDatagramCounts,
}

/// What crossed the sockets.
#[derive(Clone, Copy, Debug, Default)]
pub struct RawDatagramCounts {
    /// Datagrams sent, and calls that sent them.
    pub sent: (u64, u64),
    /// Datagrams received, and calls that received them.
    pub received: (u64, u64),
}

/// The transport parameters of both ends.
pub(crate) fn transport() -> io::Result<Arc<TransportConfig>> {
    let mut transport = TransportConfig::default();
    transport.max_concurrent_bidi_streams(VarInt::from_u32(1000));
    transport.max_concurrent_uni_streams(VarInt::from_u32(16));
    let idle = IdleTimeout::try_from(Duration::from_secs(10)).map_err(io::Error::other)?;
    transport.max_idle_timeout(Some(idle));
    Ok(Arc::new(transport))
}

impl RawQuicEnd {
    pub(crate) fn new(server: Option<Arc<ServerConfig>>) -> io::Result<RawQuicEnd> {
        Ok(RawQuicEnd {
            endpoint: Endpoint::new(Arc::new(EndpointConfig::default()), server, true, None),
            connections: Vec::new(),
            due: Vec::new(),
            received: vec![0; RECEIVE],
            out: Vec::new(),
            epoll: RawEpoll::new()?,
            counts: RawDatagramCounts::default(),
        })
    }

    /// Reads a socket from now on.
    pub(crate) fn watch(&self, fd: RawFd) -> io::Result<()> {
        self.epoll.add(fd, libc::EPOLLIN, fd as u64)
    }

    /// Opens a connection over a socket of its own.
    pub(crate) fn connect(
        &mut self,
        config: &quinn_proto::ClientConfig,
        target: SocketAddrV4,
    ) -> io::Result<()> {
        let fd = sys::udp_socket(None, Some(target))?;
        self.watch(fd)?;
        let (handle, connection) = self
            .endpoint
            .connect(Instant::now(), config.clone(), SocketAddr::V4(target), "localhost")
            .map_err(io::Error::other)?;
        self.hold(handle, connection, fd);
        Ok(())
    }

    fn hold(&mut self, handle: ConnectionHandle, connection: Connection, fd: RawFd) {
        if self.connections.len() <= handle.0 {
            self.connections.resize_with(handle.0 + 1, || None);
        }
        self.connections[handle.0] = Some(RawQuicConnection { connection, fd, is_due: true });
        self.due.push(handle.0);
    }

    /// Waits, receives, lets the user work, and sends.
    pub(crate) fn turn(&mut self, user: &mut impl RawStreamUser, most: Duration) -> io::Result<()> {
        self.serve_due(user)?;
        let now = Instant::now();
        let timeout = |held: &mut RawQuicConnection| held.connection.poll_timeout();
        let first = self.connections.iter_mut().flatten().filter_map(timeout).min();
        let wait = first.map_or(most, |at| at.saturating_duration_since(now).min(most));
        let ready = self.epoll.wait_for(wait)?;
        for n in 0..ready {
            let (fd, _) = self.epoll.event(n);
            self.receive(fd as RawFd)?;
        }
        self.run_timers();
        self.serve_due(user)
    }

    fn run_timers(&mut self) {
        let now = Instant::now();
        for (n, held) in self.connections.iter_mut().enumerate() {
            let Some(held) = held else { continue };
            if held.connection.poll_timeout().is_some_and(|at| at <= now) {
                held.connection.handle_timeout(now);
                mark(held, n, &mut self.due);
            }
        }
    }

    fn receive(&mut self, fd: RawFd) -> io::Result<()> {
        for _ in 0..RECEIVES {
            let (len, segment, peer) = match sys::receive_segments(fd, &mut self.received) {
                Ok(came) => came,
                // A peer that has ended its socket is no fault of this one.
                Err(e) if sys::would_block(&e) || e.kind() == io::ErrorKind::ConnectionRefused => {
                    return Ok(());
                }
                Err(e) => return Err(e),
            };
            self.counts.received.1 += 1;
            let now = Instant::now();
            let mut rest = BytesMut::from(&self.received[..len]);
            while !rest.is_empty() {
                let datagram = rest.split_to(rest.len().min(segment));
                self.counts.received.0 += 1;
                self.datagram(fd, peer, datagram, now)?;
            }
        }
        Ok(())
    }

    fn datagram(
        &mut self,
        fd: RawFd,
        peer: SocketAddrV4,
        datagram: BytesMut,
        now: Instant,
    ) -> io::Result<()> {
        self.out.clear();
        match self.endpoint.handle(now, SocketAddr::V4(peer), None, None, datagram, &mut self.out) {
            Some(DatagramEvent::ConnectionEvent(handle, event)) => {
                if let Some(held) = &mut self.connections[handle.0] {
                    held.connection.handle_event(event);
                    mark(held, handle.0, &mut self.due);
                }
            }
            Some(DatagramEvent::NewConnection(incoming)) => {
                match self.endpoint.accept(incoming, now, &mut self.out, None) {
                    Ok((handle, connection)) => self.hold(handle, connection, fd),
                    Err(refused) => {
                        if let Some(response) = refused.response {
                            send(fd, &response, &self.out, &mut self.counts)?;
                        }
                    }
                }
            }
            Some(DatagramEvent::Response(response)) => send(fd, &response, &self.out, &mut self.counts)?,
            None => {}
        }
        Ok(())
    }

    /// Looks after the connections that something happened to.
    fn serve_due(&mut self, user: &mut impl RawStreamUser) -> io::Result<()> {
        let mut at = 0;
        while let Some(n) = self.due.get(at).copied() {
            at += 1;
            let Some(held) = &mut self.connections[n] else { continue };
            held.is_due = false;
            while let Some(event) = held.connection.poll() {
                let on = NumberedConnection { number: n, connection: &mut held.connection };
                handle(on, event, user)?;
            }
            let now = Instant::now();
            loop {
                self.out.clear();
                let Some(transmit) = held.connection.poll_transmit(now, SEGMENTS, &mut self.out) else {
                    break;
                };
                send(held.fd, &transmit, &self.out, &mut self.counts)?;
            }
            while let Some(event) = held.connection.poll_endpoint_events() {
                if let Some(event) = self.endpoint.handle_event(ConnectionHandle(n), event) {
                    held.connection.handle_event(event);
                    mark(held, n, &mut self.due);
                }
            }
            if held.connection.is_drained() {
                self.connections[n] = None;
            }
        }
        self.due.clear();
        Ok(())
    }
}

fn mark(held: &mut RawQuicConnection, n: usize, due: &mut Vec<usize>) {
    if !held.is_due {
        held.is_due = true;
        due.push(n);
    }
}

fn handle(on: NumberedConnection<'_>, event: Event, user: &mut impl RawStreamUser) -> io::Result<()> {
    match event {
        Event::Connected => user.connected(on),
        Event::ConnectionLost { reason } => user.lost(on.number, reason),
        Event::Stream(StreamEvent::Opened { dir }) => {
            let NumberedConnection { number, connection } = on;
            while let Some(id) = connection.streams().accept(dir) {
                read(NumberedConnection { number, connection }, id, user)?;
            }
            Ok(())
        }
        Event::Stream(StreamEvent::Readable { id }) => read(on, id, user),
        Event::Stream(StreamEvent::Available { dir: Dir::Bi }) => user.available(on),
        Event::Stream(StreamEvent::Writable { id }) => user.writable(on, id),
        Event::Stream(StreamEvent::Stopped { .. }) => Err(io::Error::other("the peer stopped a stream")),
        _ => Ok(()),
    }
}

/// Reads and counts what a stream has.
fn read(on: NumberedConnection<'_>, id: StreamId, user: &mut impl RawStreamUser) -> io::Result<()> {
    let (mut len, mut ends) = (0, false);
    {
        let mut stream = on.connection.recv_stream(id);
        // It has ended, and its end was seen.
        let Ok(mut chunks) = stream.read(true) else { return Ok(()) };
        loop {
            match chunks.next(usize::MAX) {
                Ok(Some(chunk)) => len += chunk.bytes.len(),
                Ok(None) => {
                    ends = true;
                    break;
                }
                Err(ReadError::Blocked) => break,
                Err(reset) => return Err(io::Error::other(reset)),
            }
        }
        // What it has to transmit leaves with everything else.
        let _ = chunks.finalize();
    }
    user.bytes(on, id, len, ends)
}

fn send(fd: RawFd, transmit: &Transmit, bytes: &[u8], counts: &mut RawDatagramCounts) -> io::Result<()> {
    let SocketAddr::V4(peer) = transmit.destination else { return Err(io::Error::other("an IPv6 peer")) };
    let segment = transmit.segment_size.unwrap_or(transmit.size).max(1);
    counts.sent.0 += transmit.size.div_ceil(segment) as u64;
    counts.sent.1 += 1;
    match sys::send_segments(fd, &bytes[..transmit.size], segment, &PeerAddress::new(peer)) {
        // QUIC recovers from what a full socket drops.
        Err(e) if sys::would_block(&e) || e.kind() == io::ErrorKind::ConnectionRefused => Ok(()),
        other => other,
    }
}
