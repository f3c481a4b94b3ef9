//! What a server shows to clients.

use std::sync::Arc;

use rustls::ServerConfig;
use rustls::server::{NoServerSessionStorage, ServerSessionMemoryCache, WebPkiClientVerifier};

use crate::Version;
use crate::client::{provider, roots_of};
use crate::pem::{Identity, TlsError};
use rustls::server::{ClientHello, ResolvesServerCert};
use rustls::sign::CertifiedKey;
use std::sync::{PoisonError, RwLock};

/// Sessions of TLS 1.2 clients without tickets that are kept. Reason: some kilobytes each.
const SESSIONS: usize = 4096;

/// How a server speaks TLS.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct ServerOptions {
    /// The server's certificate and key.
    pub identity: Identity,
    /// The least version.
    pub least: Version,
    /// The highest version.
    pub most: Version,
    /// Protocols for ALPN, in the order of preference.
    pub alpn: Vec<Vec<u8>>,
    /// Let clients resume sessions.
    pub resume: bool,
    /// Clients must show a certificate that these sign: a PEM text, with the name that errors use.
    pub client_roots: Option<(String, Vec<u8>)>,
}

impl ServerOptions {
    /// TLS 1.2 and 1.3, sessions resumed, clients not asked who they are.
    pub fn new(identity: Identity) -> ServerOptions {
        ServerOptions {
            identity,
            least: Version::Tls12,
            most: Version::Tls13,
            alpn: Vec::new(),
            resume: true,
            client_roots: None,
        }
    }

    /// What listeners need. All threads should share it: so they share the keys of tickets.
    pub fn build(&self) -> Result<ServerTls, TlsError> {
        let provider = Arc::new(provider(&[])?);
        let versions = Version::within(self.least, self.most);
        let unfit = |error: rustls::Error| TlsError::Options(error.to_string());
        let builder = ServerConfig::builder_with_provider(provider.clone());
        let builder = builder.with_protocol_versions(&versions).map_err(unfit)?;
        let builder = match &self.client_roots {
            None => builder.with_no_client_auth(),
            Some((place, text)) => {
                let roots = Arc::new(roots_of(place, text)?);
                let verifier = WebPkiClientVerifier::builder_with_provider(roots, provider).build();
                let verifier = verifier
                    .map_err(|error| TlsError::Unreadable { place: place.clone(), why: error.to_string() })?;
                builder.with_client_cert_verifier(verifier)
            }
        };
        let shown = Arc::new(Shown(RwLock::new(self.identity.key.clone())));
        let mut config = builder.with_cert_resolver(shown.clone());
        config.alpn_protocols.clone_from(&self.alpn);
        if self.resume {
            config.ticketer = rustls::crypto::aws_lc_rs::Ticketer::new().map_err(unfit)?;
            config.session_storage = ServerSessionMemoryCache::new(SESSIONS);
        } else {
            config.send_tls13_tickets = 0;
            config.session_storage = Arc::new(NoServerSessionStorage {});
        }
        Ok(ServerTls { config: Arc::new(config), shown })
    }
}

/// TLS for listeners, whose certificate can be replaced while they listen.
#[derive(Clone, Debug)]
pub struct ServerTls {
    pub(crate) config: Arc<ServerConfig>,
    shown: Arc<Shown>,
}

impl ServerTls {
    /// Shows another certificate from the next handshake on; connections stay.
    pub fn replace(&self, identity: &Identity) {
        *self.shown.0.write().unwrap_or_else(PoisonError::into_inner) = identity.key.clone();
    }
}

/// The certificate of the moment.
#[derive(Debug)]
struct Shown(RwLock<Arc<CertifiedKey>>);

impl ResolvesServerCert for Shown {
    fn resolve(&self, _hello: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        Some(self.0.read().unwrap_or_else(PoisonError::into_inner).clone())
    }
}
