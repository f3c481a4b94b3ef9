//! Settings of an endpoint.

use std::sync::Arc;
use std::time::Duration;

use quinn_proto::congestion::{BbrConfig, CubicConfig};
use quinn_proto::crypto::rustls::QuicServerConfig;
use quinn_proto::{
    ConnectionId, ConnectionIdGenerator, EndpointConfig, IdleTimeout, RandomConnectionIdGenerator,
    ServerConfig, TransportConfig, VarInt,
};

use crate::QuicError;

/// How fast an end sends.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum CongestionControl {
    /// CUBIC (RFC 9438).
    #[default]
    Cubic,
    /// BBR.
    Bbr,
}

/// Settings of an endpoint, for all its connections.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct QuicOptions {
    /// Bidirectional streams that the peer may have open.
    pub streams: u32,
    /// Unidirectional streams that the peer may have open.
    pub unidirectional_streams: u32,
    /// Bytes of a stream that the peer may send before they are read.
    pub stream_window: u32,
    /// The same for all streams of a connection together.
    pub connection_window: u32,
    /// Bytes that one connection may have sent and not acknowledged, at most.
    pub send_window: u64,
    /// A connection ends when nothing came for this long.
    pub idle: Duration,
    /// A packet that asks for an acknowledgement leaves when nothing else did for this long, so that
    /// nobody's idle timeout ends the connection; `None`: never (RFC 9000, section 10.1.2).
    pub keep_alive: Option<Duration>,
    /// Connections that peers may have open; more are refused.
    pub connections: usize,
    /// Handshakes in progress beyond which a peer must prove its address by a Retry (RFC 9000, section
    /// 8.1.2), which costs it a round trip.
    pub retry_above: usize,
    /// Which of several endpoints at one address this is, for what steers datagrams to it.
    pub steering: Option<QuicSteering>,
    /// How fast it sends.
    pub congestion: CongestionControl,
}

/// Several endpoints have one address: their connection IDs say whose they are, to those who know how.
#[derive(Clone, Copy)]
pub struct QuicSteering {
    /// Whether a connection ID belongs to this endpoint: about one of `endpoints` does.
    pub is_own: fn(&QuicSteering, &[u8]) -> bool,
    /// The number of this endpoint.
    pub index: u32,
    /// How many there are.
    pub endpoints: u32,
    /// What hides the number from others.
    pub key: u32,
}

impl std::fmt::Debug for QuicSteering {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "QuicSteering({} of {})", self.index, self.endpoints)
    }
}

impl PartialEq for QuicSteering {
    fn eq(&self, other: &QuicSteering) -> bool {
        (self.index, self.endpoints, self.key) == (other.index, other.endpoints, other.key)
    }
}

impl Eq for QuicSteering {}

/// Bytes of a connection ID.
const CID_BYTES: usize = 8;

/// Draws random connection IDs until one belongs to this endpoint.
struct SteeredIds {
    random: RandomConnectionIdGenerator,
    by: QuicSteering,
}

impl ConnectionIdGenerator for SteeredIds {
    fn generate_cid(&mut self) -> ConnectionId {
        // Each fits with a chance of one in `endpoints`: this many never miss.
        for _ in 0..64 * self.by.endpoints.max(1) {
            let id = self.random.generate_cid();
            if (self.by.is_own)(&self.by, &id) {
                return id;
            }
        }
        self.random.generate_cid()
    }

    fn cid_len(&self) -> usize {
        CID_BYTES
    }

    fn cid_lifetime(&self) -> Option<Duration> {
        None
    }
}

impl Default for QuicOptions {
    fn default() -> QuicOptions {
        QuicOptions {
            streams: 100,
            unidirectional_streams: 3,
            stream_window: 1 << 20,
            connection_window: 16 << 20,
            send_window: 8 << 20,
            idle: Duration::from_secs(30),
            keep_alive: None,
            connections: 100_000,
            retry_above: 1000,
            steering: None,
            congestion: CongestionControl::Cubic,
        }
    }
}

/// Bytes of datagrams that wait for their connection to be accepted. Reason: none ever waits.
const EARLY_BYTES: u64 = 64 << 10;

impl QuicOptions {
    /// The settings of an endpoint that are none of its connections.
    pub(crate) fn endpoint(&self) -> EndpointConfig {
        let mut config = EndpointConfig::default();
        if let Some(by) = self.steering {
            config.cid_generator(move || {
                Box::new(SteeredIds { random: RandomConnectionIdGenerator::new(CID_BYTES), by })
            });
        }
        config
    }

    /// The configuration of an end that accepts.
    pub(crate) fn server(&self, tls: Arc<rustls::ServerConfig>) -> Result<Arc<ServerConfig>, QuicError> {
        let tls = QuicServerConfig::try_from(tls).map_err(|_| QuicError::NoFirstCipher)?;
        let mut server = ServerConfig::with_crypto(Arc::new(tls));
        server.transport_config(self.transport()?);
        server.incoming_buffer_size(EARLY_BYTES).incoming_buffer_size_total(EARLY_BYTES);
        Ok(Arc::new(server))
    }

    pub(crate) fn transport(&self) -> Result<Arc<TransportConfig>, QuicError> {
        let mut transport = TransportConfig::default();
        transport
            .max_concurrent_bidi_streams(VarInt::from_u32(self.streams))
            .max_concurrent_uni_streams(VarInt::from_u32(self.unidirectional_streams))
            .stream_receive_window(VarInt::from_u32(self.stream_window))
            .receive_window(VarInt::from_u32(self.connection_window))
            .send_window(self.send_window)
            .keep_alive_interval(self.keep_alive)
            .datagram_receive_buffer_size(None);
        let idle = IdleTimeout::try_from(self.idle).map_err(|_| QuicError::Option("the idle timeout"))?;
        transport.max_idle_timeout(Some(idle));
        match self.congestion {
            CongestionControl::Cubic => {
                transport.congestion_controller_factory(Arc::new(CubicConfig::default()))
            }
            CongestionControl::Bbr => transport.congestion_controller_factory(Arc::new(BbrConfig::default())),
        };
        Ok(Arc::new(transport))
    }
}
