//! TLS of a client: what it trusts, and what it proves to be.

use std::sync::Arc;

use linerate_net::Profile;
use linerate_tls::{ClientOptions, Identity, Roots, TlsLayer};
use rustls::ClientConfig;
use rustls::pki_types::ServerName;

use super::error::Error;
use super::options::Protocol;
use super::proxy::ClientProxy;
use crate::route::{ROUTED, RouteLayer};

/// TLS options of the builder.
#[derive(Clone, Debug, Default)]
pub(super) struct SecureOptions {
    /// PEM texts of certificates that are trusted beside the system's.
    pub(super) added: Vec<u8>,
    /// Instead of the system's.
    pub(super) only_added: bool,
    pub(super) insecure: bool,
    /// PEM texts of a chain and its key.
    pub(super) identity: Option<(Vec<u8>, Vec<u8>)>,
    /// Instead of the URL's.
    pub(super) name: Option<String>,
}

impl SecureOptions {
    /// Whether anything was said that only makes sense with TLS.
    pub(super) fn is_used(&self) -> bool {
        !self.added.is_empty() || self.insecure || self.identity.is_some() || self.name.is_some()
    }

    /// TLS state that all connections share: sessions are resumed across them.
    pub(super) fn build(&self, host: &str, protocol: Protocol) -> Result<Secure, Error> {
        let problem = |error: linerate_tls::TlsError| Error::Builder(format!("TLS: {error}"));
        let name = self.name.as_deref().unwrap_or(host);
        let name = ServerName::try_from(name.to_owned())
            .map_err(|_| Error::Builder(format!("TLS: {name:?} is no name that a certificate can have")))?;
        let mut options = ClientOptions::default();
        let place = || "the PEM text of add_root".to_owned();
        options.roots = match () {
            () if self.insecure => Roots::Insecure,
            () if self.only_added => Roots::Pem(place(), self.added.clone()),
            () if self.added.is_empty() => Roots::System,
            () => Roots::SystemAnd(place(), self.added.clone()),
        };
        if let Some((chain, key)) = &self.identity {
            let chain = ("the chain of client_certificate", chain.as_slice());
            let key = ("the key of client_certificate", key.as_slice());
            options.identity = Some(Identity::from_pem(chain, key).map_err(problem)?);
        }
        options.alpn = match protocol {
            Protocol::Either | Protocol::AltSvc => vec![b"h2".to_vec(), b"http/1.1".to_vec()],
            Protocol::Http1 => vec![b"http/1.1".to_vec()],
            Protocol::Http2 => vec![b"h2".to_vec()],
            Protocol::Http3 => vec![b"h3".to_vec()],
        };
        if protocol == Protocol::Http3 {
            options.least = linerate_tls::Version::Tls13;
        }
        let config = options.build().map_err(problem)?;
        let mut quic = Arc::clone(&config);
        if protocol == Protocol::AltSvc {
            (options.alpn, options.least) = (vec![b"h3".to_vec()], linerate_tls::Version::Tls13);
            quic = options.build().map_err(problem)?;
        }
        Ok(Secure { config, quic, name })
    }
}

/// TLS of a client, ready for use.
#[derive(Clone)]
pub(super) struct Secure {
    config: Arc<ClientConfig>,
    /// Of connections over QUIC.
    #[cfg_attr(not(feature = "quic"), expect(dead_code, reason = "nothing speaks QUIC"))]
    quic: Arc<ClientConfig>,
    name: ServerName<'static>,
}

impl Secure {
    /// What QUIC makes its handshakes with, and the name that the server must prove.
    #[cfg(feature = "quic")]
    pub(super) fn quic(&self) -> (Arc<ClientConfig>, String) {
        (Arc::clone(&self.quic), self.name.to_str().into_owned())
    }

    /// A layer whose connections go through the tunnel of a proxy and speak TLS, and their profile; without either
    /// they are plain.
    pub(super) fn layer(secure: Option<&Secure>, proxy: Option<&ClientProxy>) -> (RouteLayer, Profile) {
        let mut tls = TlsLayer::new();
        let profile = secure
            .map(|secure| tls.add_client(secure.config.clone(), secure.name.clone()))
            .unwrap_or(linerate_tls::PLAIN);
        let preamble = proxy.and_then(ClientProxy::preamble);
        let is_plain = secure.is_none() && preamble.is_none();
        (RouteLayer::new(preamble, tls, profile), if is_plain { linerate_tls::PLAIN } else { ROUTED })
    }
}
