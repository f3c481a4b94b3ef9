//! Which connections use TLS, and with which configuration.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};

use linerate_net::layer::Layer;
use linerate_net::{Listener, NetError, NetErrorKind, Profile};
use rustls::ClientConfig;
use rustls::client::UnbufferedClientConnection;
use rustls::pki_types::ServerName;
use rustls::server::UnbufferedServerConnection;

use crate::handshakes::HandshakeCounts;
use crate::machine::TlsMachine;
use crate::server::{ServerProfiles, ServerTls};
use crate::session::TlsSession;
use crate::words::describe;

/// The profile of connections without TLS.
pub const PLAIN: Profile = Profile(0);

#[derive(Debug)]
enum TlsSide {
    Client(Arc<ClientConfig>, ServerName<'static>),
    Server(ServerTls),
}

/// TLS for the connections of one thread's transport.
///
/// ```
/// use std::sync::Arc;
///
/// use linerate_tls::{ClientOptions, PLAIN, TlsLayer};
///
/// # let mut options = ClientOptions::default();
/// # options.roots = linerate_tls::Roots::Insecure;
/// let mut layer = TlsLayer::new();
/// let profile = layer.add_client(options.build()?, "example.org".try_into()?);
/// // Connections that are opened with this profile begin with a handshake.
/// assert_ne!(profile, PLAIN);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, Default)]
pub struct TlsLayer {
    /// Profile `n` is at index `n - 1`.
    sides: Vec<TlsSide>,
    /// Of a layer with listeners only: profile `n` is the n-th of these.
    listeners: Option<ServerProfiles>,
    counts: Arc<Mutex<HandshakeCounts>>,
}

impl TlsLayer {
    /// A layer without configurations: every connection is plain.
    pub fn new() -> TlsLayer {
        TlsLayer::default()
    }

    /// A layer for a server's listeners, whose profiles `listeners` assigns.
    pub fn of_server(listeners: ServerProfiles) -> TlsLayer {
        TlsLayer { listeners: Some(listeners), ..TlsLayer::default() }
    }

    /// Adds a profile for connections to a server of this name.
    pub fn add_client(&mut self, config: Arc<ClientConfig>, name: ServerName<'static>) -> Profile {
        crate::client::seed(config.crypto_provider());
        self.add(TlsSide::Client(config, name))
    }

    /// Adds a profile for connections of a listener.
    pub fn add_server(&mut self, tls: &ServerTls) -> Profile {
        self.add(TlsSide::Server(tls.clone()))
    }

    /// Profiles are few: at most one for each configured host or listener.
    fn add(&mut self, side: TlsSide) -> Profile {
        self.sides.push(side);
        Profile(u16::try_from(self.sides.len()).unwrap_or(u16::MAX))
    }

    fn side(&self, profile: Profile) -> Option<&TlsSide> {
        self.sides.get(usize::from(profile.0).checked_sub(1)?)
    }

    /// The counts of this layer's handshakes, updated as long as sessions live.
    pub fn counts(&self) -> Arc<Mutex<HandshakeCounts>> {
        self.counts.clone()
    }

    fn session(&self, machine: TlsMachine) -> TlsSession {
        TlsSession::new(machine, self.counts.clone())
    }

    fn failed(&self, error: &rustls::Error) -> NetError {
        self.counts.lock().unwrap_or_else(PoisonError::into_inner).failed(describe(error));
        NetError::of(NetErrorKind::Handshake)
    }
}

impl Layer for TlsLayer {
    type Session = TlsSession;

    fn connect(&mut self, profile: Profile, _to: SocketAddr) -> Result<Option<TlsSession>, NetError> {
        let Some(TlsSide::Client(config, name)) = self.side(profile) else { return Ok(None) };
        match UnbufferedClientConnection::new(config.clone(), name.clone()) {
            Ok(conn) => Ok(Some(self.session(TlsMachine::Client(Box::new(conn))))),
            Err(error) => Err(self.failed(&error)),
        }
    }

    fn accept(&mut self, _listener: Listener, profile: Profile, _peer: SocketAddr) -> Option<TlsSession> {
        let config = match (&self.listeners, self.side(profile)) {
            (Some(listeners), _) => listeners.config(profile)?,
            (None, Some(TlsSide::Server(tls))) => tls.config(),
            (None, _) => return None,
        };
        // Fails only for a configuration without versions, which cannot be built.
        let conn = UnbufferedServerConnection::new(config).ok()?;
        Some(self.session(TlsMachine::Server(Box::new(conn))))
    }
}
