//! A client's configuration in variants that differ in one thing each, for experiments.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use rustls::client::{
    ClientSessionMemoryCache, ClientSessionStore, Resumption, Tls12ClientSessionValue,
    Tls13ClientSessionValue, UnbufferedClientConnection,
};
use rustls::pki_types::ServerName;
use rustls::{ClientConfig, NamedGroup};

use crate::client::ClientOptions;
use crate::handshakes::HandshakeCounts;
use crate::limits::SERVERS;
use crate::machine::TlsMachine;
use crate::pem::TlsError;
use crate::session::TlsSession;
use crate::{Version, words::describe};

/// What differs from the options.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Variant {
    /// Nothing.
    #[default]
    Usual,
    /// No session is resumed.
    Full,
    /// A session is resumed if there is one, even if the options say not to.
    Resumed,
    /// No session is resumed, and the first key share is of the group that the server chose before.
    KnownGroup,
    /// No session is resumed, and all versions are offered, whatever the options say.
    AllVersions,
}

/// The variants of one client towards one server. All share the sessions that the server gave.
#[derive(Clone, Debug)]
pub struct Variants {
    name: ServerName<'static>,
    usual: Arc<ClientConfig>,
    full: Arc<ClientConfig>,
    resumed: Arc<ClientConfig>,
    known_group: Arc<ClientConfig>,
    all_versions: Arc<ClientConfig>,
    memory: Arc<ServerMemory>,
}

impl Variants {
    /// Of these options, towards the server of this name or address.
    ///
    /// # Errors
    /// The name is none that a certificate can have, or the options do not fit together.
    pub fn of(options: &ClientOptions, name: &str) -> Result<Variants, TlsError> {
        let name = ServerName::try_from(name.to_owned())
            .map_err(|_| TlsError::Options(format!("{name} is no name that a certificate can have")))?;
        let memory = Arc::new(ServerMemory::new());
        let other = Arc::new(ServerMemory::new());
        // Servers ask for another key share only where they would ask browsers as well.
        let options = ClientOptions { post_quantum_first: true, ..options.clone() };
        let base = options.build()?;
        let every = ClientOptions { least: Version::Tls12, most: Version::Tls13, ..options.clone() };
        let storing = |base: &Arc<ClientConfig>, memory: &Arc<ServerMemory>, resumes, knows_group| {
            let mut config = ClientConfig::clone(base);
            config.resumption =
                Resumption::store(Arc::new(Recall { memory: memory.clone(), resumes, knows_group }));
            Arc::new(config)
        };
        let with = |resumes, knows_group| storing(&base, &memory, resumes, knows_group);
        Ok(Variants {
            name,
            usual: with(options.resume, false),
            full: with(false, false),
            resumed: with(true, false),
            known_group: with(false, true),
            // Its sessions are of another configuration: with that of the others they are void.
            all_versions: storing(&every.build()?, &other, false, false),
            memory,
        })
    }

    /// A session for a new connection.
    ///
    /// # Errors
    /// The configuration has no version in common with its cipher suites.
    pub fn session(&self, variant: Variant) -> Result<TlsSession, TlsError> {
        let config = match variant {
            Variant::Usual => &self.usual,
            Variant::Full => &self.full,
            Variant::Resumed => &self.resumed,
            Variant::KnownGroup => &self.known_group,
            Variant::AllVersions => &self.all_versions,
        };
        let conn = UnbufferedClientConnection::new(config.clone(), self.name.clone());
        let conn = conn.map_err(|error| TlsError::NoSession { why: describe(&error) })?;
        let counts = Arc::new(Mutex::new(HandshakeCounts::default()));
        Ok(TlsSession::new(TlsMachine::Client(Box::new(conn)), counts))
    }

    /// Tickets and session ids that servers have given so far.
    pub fn given(&self) -> u64 {
        self.memory.given.load(Ordering::Relaxed)
    }
}

/// What servers gave, and which group they chose.
#[derive(Debug)]
struct ServerMemory {
    sessions: ClientSessionMemoryCache,
    given: AtomicU64,
    group: Mutex<Option<NamedGroup>>,
}

impl ServerMemory {
    fn new() -> ServerMemory {
        ServerMemory {
            sessions: ClientSessionMemoryCache::new(SERVERS),
            given: AtomicU64::new(0),
            group: Mutex::new(None),
        }
    }
}

/// What a variant makes of it. All of them store, so that each new session serves every variant.
#[derive(Debug)]
struct Recall {
    memory: Arc<ServerMemory>,
    resumes: bool,
    /// rustls remembers the group by itself; browsers and most clients do not.
    knows_group: bool,
}

impl ClientSessionStore for Recall {
    fn set_kx_hint(&self, _server_name: ServerName<'static>, group: NamedGroup) {
        *self.memory.group.lock().unwrap_or_else(PoisonError::into_inner) = Some(group);
    }

    fn kx_hint(&self, _server_name: &ServerName<'_>) -> Option<NamedGroup> {
        let group = self.memory.group.lock().unwrap_or_else(PoisonError::into_inner);
        group.filter(|_| self.knows_group)
    }

    fn set_tls12_session(&self, server_name: ServerName<'static>, value: Tls12ClientSessionValue) {
        self.memory.given.fetch_add(1, Ordering::Relaxed);
        self.memory.sessions.set_tls12_session(server_name, value);
    }

    fn tls12_session(&self, server_name: &ServerName<'_>) -> Option<Tls12ClientSessionValue> {
        self.resumes.then(|| self.memory.sessions.tls12_session(server_name))?
    }

    fn remove_tls12_session(&self, server_name: &ServerName<'static>) {
        self.memory.sessions.remove_tls12_session(server_name);
    }

    fn insert_tls13_ticket(&self, server_name: ServerName<'static>, value: Tls13ClientSessionValue) {
        self.memory.given.fetch_add(1, Ordering::Relaxed);
        self.memory.sessions.insert_tls13_ticket(server_name, value);
    }

    fn take_tls13_ticket(&self, server_name: &ServerName<'static>) -> Option<Tls13ClientSessionValue> {
        self.resumes.then(|| self.memory.sessions.take_tls13_ticket(server_name))?
    }
}
