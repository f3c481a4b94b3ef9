//! The connection that a response came on.

use std::net::SocketAddr;
use std::sync::Arc;

use http::Version;
use linerate_tls::TlsInfo;

/// The connection that a response came on, on clients built with
/// [`Builder::connection_info`](super::Builder::connection_info).
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct ConnectionInfo {
    /// Its number: connections of a client count from 0, in the order in which it established them.
    pub number: u64,
    /// A response came on it before.
    pub is_reused: bool,
    /// Our end of it. `None`: the transport does not say, or it is a Unix socket.
    pub local: Option<SocketAddr>,
    /// The server's end, or the proxy's. `None`: it is a Unix socket.
    pub peer: Option<SocketAddr>,
    /// `peer` is that of a proxy.
    pub is_proxied: bool,
    /// The version of HTTP that it speaks: [`Version::HTTP_11`], [`Version::HTTP_2`] or
    /// [`Version::HTTP_3`], over QUIC.
    pub protocol: Version,
    /// What TLS agreed on, with `https`; `None` over QUIC, which does not say.
    pub tls: Option<Arc<ConnectionTls>>,
}

/// What a connection's handshake agreed on.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct ConnectionTls {
    /// For example "TLSv1.3".
    pub version: String,
    /// The registered name (IANA) of the cipher suite, for example "TLS_AES_256_GCM_SHA384".
    pub cipher: String,
    /// It resumed an earlier session.
    pub is_resumed: bool,
}

impl ConnectionTls {
    pub(super) fn of(info: &TlsInfo) -> ConnectionTls {
        let TlsInfo { agreed, is_resumed, .. } = info;
        ConnectionTls {
            version: agreed.version.clone(),
            cipher: agreed.cipher.clone(),
            is_resumed: *is_resumed,
        }
    }
}
