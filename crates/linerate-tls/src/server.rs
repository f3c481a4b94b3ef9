//! What a server shows to clients.

use std::collections::HashMap;
use std::sync::{Arc, PoisonError, RwLock};

use linerate_net::Profile;
use rustls::ServerConfig;
use rustls::server::{
    ClientHello, NoServerSessionStorage, ResolvesServerCert, ServerSessionMemoryCache, WebPkiClientVerifier,
};
use rustls::sign::CertifiedKey;

use crate::Version;
use crate::client::{provider, roots_of};
use crate::limits::PROFILES;
use crate::pem::{Identity, TlsError};

/// Sessions of TLS 1.2 clients without tickets that are kept. Reason: some kilobytes each.
const SESSIONS: usize = 4096;

/// How a server speaks TLS.
///
/// The keys of session tickets are made by [`ServerOptions::build`], and are replaced every six hours. A ticket is taken for six to
/// twelve hours.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct ServerOptions {
    /// The server's certificate and key, for clients that name no host or one that is not among `named`.
    pub identity: Identity,
    /// Certificates for host names that clients ask for (SNI): `example.org`, or `*.example.org` for all names beneath it.
    pub named: Vec<(String, Identity)>,
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
            named: Vec::new(),
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
        let shown = Arc::new(Shown(RwLock::new(Certificates::new(&self.identity, &self.named))));
        let mut config = builder.with_cert_resolver(shown.clone());
        config.alpn_protocols.clone_from(&self.alpn);
        if self.resume {
            config.ticketer = rustls::crypto::aws_lc_rs::Ticketer::new().map_err(unfit)?;
            config.session_storage = ServerSessionMemoryCache::new(SESSIONS);
        } else {
            config.send_tls13_tickets = 0;
            config.session_storage = Arc::new(NoServerSessionStorage {});
        }
        let state = State { config: Arc::new(config), shown };
        Ok(ServerTls(Arc::new(RwLock::new(state))))
    }
}

/// TLS for listeners, which can be changed while they listen. Clones are the same.
#[derive(Clone, Debug)]
pub struct ServerTls(Arc<RwLock<State>>);

#[derive(Clone, Debug)]
struct State {
    config: Arc<ServerConfig>,
    shown: Arc<Shown>,
}

impl ServerTls {
    fn state(&self) -> State {
        self.0.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    pub(crate) fn config(&self) -> Arc<ServerConfig> {
        self.state().config
    }

    /// Shows other certificates from the next handshake on, as [`ServerOptions`] has them. Connections stay, and sessions are resumed.
    pub fn replace(&self, identity: &Identity, named: &[(String, Identity)]) {
        let certificates = Certificates::new(identity, named);
        *self.state().shown.0.write().unwrap_or_else(PoisonError::into_inner) = certificates;
    }

    /// Another that speaks the same until it is changed: they share the keys of tickets, and what [`ServerTls::replace`] shows.
    #[must_use]
    pub fn another(&self) -> ServerTls {
        ServerTls(Arc::new(RwLock::new(self.state())))
    }

    /// Becomes another from the next connection on. Connections stay; sessions from before are not resumed.
    pub fn become_as(&self, other: &ServerTls) {
        let state = other.state();
        *self.0.write().unwrap_or_else(PoisonError::into_inner) = state;
    }
}

/// The certificates of the moment.
#[derive(Debug)]
struct Shown(RwLock<Certificates>);

#[derive(Debug)]
struct Certificates {
    usual: Arc<CertifiedKey>,
    /// By name in lower case; `*.` stays.
    named: HashMap<String, Arc<CertifiedKey>>,
}

impl Certificates {
    fn new(usual: &Identity, named: &[(String, Identity)]) -> Certificates {
        let named = named.iter().map(|(name, identity)| (name.to_ascii_lowercase(), identity.key.clone()));
        Certificates { usual: usual.key.clone(), named: named.collect() }
    }

    /// A whole name first, then the longest that has a wildcard.
    fn of(&self, name: &str) -> &Arc<CertifiedKey> {
        let name = name.to_ascii_lowercase();
        let wildcards = name.match_indices('.').map(|(at, _)| format!("*{}", &name[at..]));
        let mut found =
            std::iter::once(name.clone()).chain(wildcards).filter_map(|name| self.named.get(&name));
        found.next().unwrap_or(&self.usual)
    }
}

impl ResolvesServerCert for Shown {
    fn resolve(&self, hello: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        let certificates = self.0.read().unwrap_or_else(PoisonError::into_inner);
        match hello.server_name() {
            Some(name) if !certificates.named.is_empty() => Some(certificates.of(name).clone()),
            _ => Some(certificates.usual.clone()),
        }
    }
}

/// What the listeners of a server speak. All its threads' layers share it, and more can be added while they run.
#[derive(Clone, Debug, Default)]
pub struct ServerProfiles(Arc<RwLock<Vec<ServerTls>>>);

impl ServerProfiles {
    /// The profile of listeners that speak this TLS, the same for clones of it; `None`: there are too many.
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

    pub(crate) fn config(&self, profile: Profile) -> Option<Arc<ServerConfig>> {
        let all = self.0.read().unwrap_or_else(PoisonError::into_inner);
        Some(all.get(usize::from(profile.0).checked_sub(1)?)?.config())
    }
}
