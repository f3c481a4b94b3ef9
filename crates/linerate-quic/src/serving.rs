//! What a server asks of its connections.

use std::net::SocketAddr;
use std::sync::Arc;

use quinn_proto::VarInt;
use quinn_proto::crypto::rustls::HandshakeData;
use rustls::pki_types::CertificateDer;

use crate::endpoint::{QuicConn, QuicEndpoint};
use crate::{QuicError, QuicOptions};

/// What both ends agreed on in the handshake.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct QuicAgreed {
    /// The protocol (ALPN, RFC 7301).
    pub protocol: Option<Vec<u8>>,
    /// The name that the client asked for (SNI).
    pub server_name: Option<String>,
    /// The peer's certificates in DER, if it sent any.
    pub certificates: Vec<Vec<u8>>,
}

impl QuicEndpoint {
    /// What was agreed on, once the handshake is complete.
    pub fn agreed(&mut self, conn: QuicConn) -> Option<QuicAgreed> {
        let session = self.held_mut(conn)?.connection.crypto_session();
        let data = session.handshake_data()?.downcast::<HandshakeData>().ok()?;
        let chain =
            session.peer_identity().and_then(|chain| chain.downcast::<Vec<CertificateDer<'_>>>().ok());
        let chain = chain.map(|chain| chain.iter().map(|der| der.to_vec()).collect());
        Some(QuicAgreed {
            protocol: data.protocol,
            server_name: data.server_name,
            certificates: chain.unwrap_or_default(),
        })
    }

    /// The peer's address, which changes when it moves (RFC 9000, section 9).
    pub fn peer(&mut self, conn: QuicConn) -> Option<SocketAddr> {
        Some(self.held_mut(conn)?.connection.remote_address())
    }

    /// Handshakes in progress that peers began.
    pub fn handshakes(&self) -> usize {
        self.shaking
    }

    /// Whether the peer has acknowledged the end of each stream that we ended.
    pub fn is_settled(&mut self, conn: QuicConn) -> bool {
        self.held_mut(conn).is_none_or(|held| held.finishing == 0)
    }

    /// Refuses connections beyond so many from now on.
    pub fn accept_up_to(&mut self, connections: usize) {
        self.most_connections = connections;
    }

    /// Bytes that the connection may have sent and not acknowledged from now on.
    pub fn set_send_window(&mut self, conn: QuicConn, bytes: u64) {
        if let Some(connection) = self.touch(conn) {
            connection.set_send_window(bytes);
        }
    }

    /// Bytes of all its streams that the peer may send before they are read, from now on.
    pub fn set_receive_window(&mut self, conn: QuicConn, bytes: u32) {
        if let Some(connection) = self.touch(conn) {
            connection.set_receive_window(VarInt::from_u32(bytes));
        }
    }

    /// Another TLS configuration for connections from now on.
    ///
    /// # Errors
    /// An option is out of range, or the TLS configuration does not fit.
    pub fn set_server_tls(
        &mut self,
        options: &QuicOptions,
        tls: Arc<rustls::ServerConfig>,
    ) -> Result<(), QuicError> {
        self.endpoint.set_server_config(Some(options.server(tls)?));
        Ok(())
    }
}
