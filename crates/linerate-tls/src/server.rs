//! The server's certificates and options.

use std::collections::HashMap;
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;

use linerate_net::Profile;
use rustls::ServerConfig;
use rustls::server::{
    ClientHello, NoServerSessionStorage, ResolvesServerCert, ServerSessionMemoryCache, WebPkiClientVerifier,
};
use rustls::sign::CertifiedKey;

use crate::Version;
use crate::client::{provider, roots_of};
use crate::limits::{PROFILES, TICKET_KEY_LIFE};
use crate::pem::{Identity, TlsError};

/// Stored sessions of TLS 1.2 clients without tickets. Reason: some kilobytes each.
const SESSIONS: usize = 4096;

/// The TLS options of a server.
///
/// [`ServerOptions::build`] creates the keys of session tickets, which are replaced while the server
/// runs.
///
/// ```
/// use linerate_tls::{Identity, ServerOptions};
///
/// # let made = rcgen::generate_simple_self_signed(vec!["localhost".to_owned()])?;
/// # let (certificate, key) = (made.cert.pem(), made.signing_key.serialize_pem());
/// let identity = Identity::from_pem(("cert.pem", certificate.as_bytes()), ("key.pem", key.as_bytes()))?;
/// let mut options = ServerOptions::new(identity);
/// options.alpn = vec![b"http/1.1".to_vec()];
/// let tls = options.build()?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct ServerOptions {
    /// The certificate and key for clients that send no host name, or one that is not in `named`.
    pub identity: Identity,
    /// Certificates by requested host name (SNI): `example.org`, or `*.example.org` for all names
    /// beneath it.
    pub named: Vec<(String, Identity)>,
    /// The lowest version.
    pub least: Version,
    /// The highest version.
    pub most: Version,
    /// Protocols for ALPN, in order of preference.
    pub alpn: Vec<Vec<u8>>,
    /// Let clients resume sessions.
    pub resume: bool,
    /// How long one key encrypts session tickets: a second to six hours, which is the default. A
    /// ticket is accepted for that long after its key was replaced; later, the client makes a full
    /// handshake.
    pub ticket_key_life: Duration,
    /// Require client certificates that these sign: a PEM text, with the name that errors use.
    pub client_roots: Option<(String, Vec<u8>)>,
}

impl ServerOptions {
    /// TLS 1.2 and 1.3 with resumption, without client certificates.
    pub fn new(identity: Identity) -> ServerOptions {
        ServerOptions {
            identity,
            named: Vec::new(),
            least: Version::Tls12,
            most: Version::Tls13,
            alpn: Vec::new(),
            resume: true,
            ticket_key_life: TICKET_KEY_LIFE,
            client_roots: None,
        }
    }

    /// Builds the configuration of listeners. All threads should share it, so that they share
    /// ticket keys.
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
        let shown = Arc::new(ShownCertificates(RwLock::new(Certificates::new(&self.identity, &self.named))));
        let mut config = builder.with_cert_resolver(shown.clone());
        config.alpn_protocols.clone_from(&self.alpn);
        if self.resume {
            config.ticketer = crate::tickets::rotating(self.ticket_key_life)?;
            config.session_storage = ServerSessionMemoryCache::new(SESSIONS);
        } else {
            config.send_tls13_tickets = 0;
            config.session_storage = Arc::new(NoServerSessionStorage {});
        }
        let state =
            ServerTlsState { config: Arc::new(config), shown, has_tls13: self.most >= Version::Tls13 };
        Ok(ServerTls(Arc::new(RwLock::new(state))))
    }
}

/// TLS for listeners, which can be changed while they listen. Clones share it.
#[derive(Clone, Debug)]
pub struct ServerTls(Arc<RwLock<ServerTlsState>>);

#[derive(Clone, Debug)]
struct ServerTlsState {
    config: Arc<ServerConfig>,
    shown: Arc<ShownCertificates>,
    has_tls13: bool,
}

impl ServerTls {
    fn state(&self) -> ServerTlsState {
        self.0.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    pub(crate) fn config(&self) -> Arc<ServerConfig> {
        self.state().config
    }

    /// Replaces the certificates from the next handshake on. Connections stay, and sessions are
    /// resumed.
    pub fn replace(&self, identity: &Identity, named: &[(String, Identity)]) {
        let certificates = Certificates::new(identity, named);
        *self.state().shown.0.write().unwrap_or_else(PoisonError::into_inner) = certificates;
    }

    /// A copy that can be changed separately later. Both share ticket keys, and certificates set by
    /// [`ServerTls::replace`].
    #[must_use]
    pub fn another(&self) -> ServerTls {
        ServerTls(Arc::new(RwLock::new(self.state())))
    }

    /// Adopts the configuration of `other` from the next connection on. Connections stay; earlier
    /// sessions are not resumed.
    pub fn become_as(&self, other: &ServerTls) {
        let state = other.state();
        *self.0.write().unwrap_or_else(PoisonError::into_inner) = state;
    }
}

/// The current certificates.
#[derive(Debug)]
struct ShownCertificates(RwLock<Certificates>);

#[derive(Debug)]
struct Certificates {
    usual: Arc<CertifiedKey>,
    /// By lower-case name, including the `*.` of wildcards.
    named: HashMap<String, Arc<CertifiedKey>>,
}

impl Certificates {
    fn new(usual: &Identity, named: &[(String, Identity)]) -> Certificates {
        let named = named.iter().map(|(name, identity)| (name.to_ascii_lowercase(), identity.key.clone()));
        Certificates { usual: usual.key.clone(), named: named.collect() }
    }

    /// An exact name first, then the longest wildcard.
    fn of(&self, name: &str) -> &Arc<CertifiedKey> {
        let name = name.to_ascii_lowercase();
        let wildcards = name.match_indices('.').map(|(at, _)| format!("*{}", &name[at..]));
        let mut found =
            std::iter::once(name.clone()).chain(wildcards).filter_map(|name| self.named.get(&name));
        found.next().unwrap_or(&self.usual)
    }
}

impl ResolvesServerCert for ShownCertificates {
    fn resolve(&self, hello: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        let certificates = self.0.read().unwrap_or_else(PoisonError::into_inner);
        match hello.server_name() {
            Some(name) if !certificates.named.is_empty() => Some(certificates.of(name).clone()),
            _ => Some(certificates.usual.clone()),
        }
    }
}

/// TLS of a listener as QUIC speaks it: the same certificates and checks, TLS 1.3 alone, no early data.
#[derive(Clone, Debug)]
pub struct QuicTls {
    of: Arc<ServerConfig>,
    config: Arc<ServerConfig>,
}

impl QuicTls {
    /// The configuration. Certificates that [`ServerTls::replace`] sets are shown at once.
    pub fn config(&self) -> Arc<ServerConfig> {
        Arc::clone(&self.config)
    }

    /// Whether the listeners with this profile speak something else by now ([`ServerTls::become_as`]).
    pub fn is_outdated(&self, all: &ServerProfiles, profile: Profile) -> bool {
        all.config(profile).is_some_and(|config| !Arc::ptr_eq(&config, &self.of))
    }
}

/// The TLS configurations of a server's listeners. The layers of all its threads share them, and
/// more can be added while they run.
#[derive(Clone, Debug, Default)]
pub struct ServerProfiles(Arc<RwLock<Vec<ServerTls>>>);

impl ServerProfiles {
    /// The profile of listeners with this TLS, the same for its clones; `None` if there are too
    /// many.
    pub fn add(&self, tls: &ServerTls) -> Option<Profile> {
        let mut all = self.0.write().unwrap_or_else(PoisonError::into_inner);
        let known = all.iter().position(|known| Arc::ptr_eq(&known.0, &tls.0));
        let at = known.unwrap_or(all.len());
        if at >= PROFILES {
            return None;
        }
        if known.is_none() {
            all.push(tls.clone());
        }
        Some(Profile(at as u16 + 1))
    }

    /// The configuration of a profile for QUIC with this protocol (ALPN). `None`: there is no such profile,
    /// or TLS 1.3 is not among its versions.
    pub fn of_quic(&self, profile: Profile, protocol: &[u8]) -> Option<QuicTls> {
        let state = self.state(profile).filter(|state| state.has_tls13)?;
        let mut config = ServerConfig::clone(&state.config);
        config.alpn_protocols = vec![protocol.to_vec()];
        config.max_early_data_size = 0;
        Some(QuicTls { of: state.config, config: Arc::new(config) })
    }

    fn state(&self, profile: Profile) -> Option<ServerTlsState> {
        let all = self.0.read().unwrap_or_else(PoisonError::into_inner);
        Some(all.get(usize::from(profile.0).checked_sub(1)?)?.state())
    }

    pub(crate) fn config(&self, profile: Profile) -> Option<Arc<ServerConfig>> {
        Some(self.state(profile)?.config)
    }
}
