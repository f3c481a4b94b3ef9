//! A socket, the connections of QUIC on it, and how the next one is opened.

use std::net::SocketAddr;
use std::time::Duration;

use linerate_net::datagrams::{
    DatagramOptions, DatagramSocket, DatagramSteering, Datagrams, DatagramsAfter, DatagramsToSend,
};
use linerate_net::{Conn, ListenOptions, Listener, NetError, Profile, Time};
use linerate_quic::{QuicConn, QuicEndpoint, QuicOptions, QuicSteering};
use linerate_tls::{QuicTls, ServerProfiles};

use crate::limits::{
    Limits, QUIC_CONNECTION_WINDOW, QUIC_REQUESTS, QUIC_RETRY_ABOVE, QUIC_SEND_WINDOW, QUIC_STREAM_WINDOW,
    QUIC_UNIDIRECTIONAL,
};

/// What HTTP/3 is called in TLS (ALPN).
pub(super) const PROTOCOL: &[u8] = b"h3";

/// Where a packet with a short header has its connection ID (RFC 9000, section 17.3.1).
const CID_AT: u32 = 1;

/// Whether the kernel steers packets with this connection ID to this thread.
fn is_own(by: &QuicSteering, id: &[u8]) -> bool {
    let steering = DatagramSteering { at: CID_AT, key: by.key, sockets: by.endpoints };
    id.first_chunk().is_some_and(|bytes| steering.socket_of(*bytes) == by.index)
}

/// How listeners of QUIC are opened: which TLS they have, and within which limits.
#[derive(Debug)]
pub(crate) struct QuicListening {
    pub(crate) profiles: ServerProfiles,
    pub(crate) limits: Limits,
    /// Random, and different for each thread.
    pub(crate) seed: u64,
    /// Which thread this is, of how many that share their addresses with nobody else, and what hides that.
    pub(crate) thread: (u32, u32, u32),
}

/// A socket that clients send to.
pub(super) struct QuicListener {
    pub(super) socket: DatagramSocket,
    /// The listener of TCP at the same address.
    pub(super) listener: Listener,
    pub(super) at: SocketAddr,
    profile: Profile,
    tls: QuicTls,
    pub(super) end: QuicEndpoint,
    /// The connections that the application knows, or knew, by QUIC's slot.
    known: Vec<Option<Conn>>,
    /// It is closed once its connections are over.
    pub(super) is_closed: bool,
}

impl QuicListening {
    /// Opens a socket beside a listener of TCP, if that has TLS.
    pub(super) fn open(
        &mut self,
        datagrams: &mut impl Datagrams,
        listener: Listener,
        at: SocketAddr,
        options: &ListenOptions,
    ) -> Result<Option<QuicListener>, NetError> {
        let Some(tls) = self.profiles.of_quic(options.profile, PROTOCOL) else { return Ok(None) };
        let socket = DatagramOptions { reuse_port: options.reuse_port, ..DatagramOptions::at(at) };
        let (socket, at) = datagrams.open(&socket)?;
        let (_, sockets, key) = self.thread;
        if sockets > 1 {
            // Without it a client that moves may lose its connection, and all others do not notice.
            let _ = datagrams.steer(socket, &DatagramSteering { at: CID_AT, key, sockets });
        }
        self.seed = self.seed.wrapping_add(1);
        // Options in range and TLS 1.3, which has the first cipher suite: there is no other fault.
        let end = QuicEndpoint::server(&self.options(), tls.config(), self.seed)
            .map_err(|_| NetError::from_errno(rustix::io::Errno::INVAL.raw_os_error()))?;
        let profile = options.profile;
        Ok(Some(QuicListener {
            socket,
            listener,
            at,
            profile,
            tls,
            end,
            known: Vec::new(),
            is_closed: false,
        }))
    }

    /// Lets a listener speak what its profile has become.
    pub(super) fn renew(&self, held: &mut QuicListener) {
        if held.tls.is_outdated(&self.profiles, held.profile)
            && let Some(tls) = self.profiles.of_quic(held.profile, PROTOCOL)
        {
            // What it was made with was sound, and so is this.
            let _ = held.end.set_server_tls(&self.options(), tls.config());
            held.tls = tls;
        }
    }

    fn options(&self) -> QuicOptions {
        let mut options = QuicOptions::default();
        options.streams = QUIC_REQUESTS;
        options.unidirectional_streams = QUIC_UNIDIRECTIONAL;
        options.stream_window = QUIC_STREAM_WINDOW;
        options.connection_window = QUIC_CONNECTION_WINDOW;
        options.send_window = QUIC_SEND_WINDOW;
        options.idle = self.limits.idle_time.max(Duration::from_secs(1));
        options.connections = self.limits.connections;
        options.retry_above = QUIC_RETRY_ABOVE;
        let (index, endpoints, key) = self.thread;
        options.steering = (endpoints > 1).then_some(QuicSteering { is_own, index, endpoints, key });
        options
    }
}

impl QuicListener {
    /// Takes datagrams; `true`: there may be more, which no event tells of.
    pub(super) fn receive(&mut self, now: Time, datagrams: &mut impl Datagrams) -> bool {
        let end = &mut self.end;
        let after = datagrams.receive(self.socket, |came| {
            for datagram in came.each() {
                end.receive(now, came.peer, came.local, came.ecn, datagram);
            }
        });
        // A failure is about datagrams sent before, which QUIC finds out by itself.
        after != DatagramsAfter::Empty
    }

    pub(super) fn transmit(
        &mut self,
        now: Time,
        most: usize,
        datagrams: &mut impl Datagrams,
        out: &mut Vec<u8>,
    ) {
        while let Some(transmit) = self.end.next_transmit(now, most, out) {
            let (to, from, ecn, segment) = (transmit.to, transmit.from, transmit.ecn, transmit.segment);
            // What does not leave is lost, as on the way.
            let _ = datagrams.send(self.socket, &DatagramsToSend { to, from, ecn, segment, bytes: out });
            out.clear();
        }
    }

    pub(super) fn conn_of(&self, quic: QuicConn) -> Option<Conn> {
        *self.known.get(quic.slot())?
    }

    pub(super) fn remember(&mut self, quic: QuicConn, conn: Conn) {
        if self.known.len() <= quic.slot() {
            self.known.resize(quic.slot() + 1, None);
        }
        self.known[quic.slot()] = Some(conn);
    }

    pub(super) fn forget(&mut self, quic: QuicConn) {
        if let Some(known) = self.known.get_mut(quic.slot()) {
            *known = None;
        }
    }
}
