//! A connection's preamble and its TLS, over any transport.

use std::any::Any;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};

use linerate_net::layer::{Layer, Progress, Session};
use linerate_net::{Listener, NetError, NetErrorKind, Profile};
use linerate_tls::{HandshakeCounts, PLAIN, TlsLayer, TlsSession};

use super::preamble::{Introduction, Preamble};

/// The profile of connections that have a route of their own.
pub const ROUTED: Profile = Profile(1);

/// The profile of connections over QUIC, where a transport has both ways.
pub const BY_QUIC: Profile = Profile(2);

/// Makes the sessions of one thread.
pub struct RouteLayer {
    preamble: Option<Arc<Preamble>>,
    tls: TlsLayer,
    profile: Profile,
}

impl RouteLayer {
    /// `profile`: that of the connections in `tls`, or [`PLAIN`].
    pub fn new(preamble: Option<Arc<Preamble>>, tls: TlsLayer, profile: Profile) -> RouteLayer {
        RouteLayer { preamble, tls, profile }
    }

    /// One without TLS.
    pub fn plain(preamble: Option<Arc<Preamble>>) -> RouteLayer {
        RouteLayer::new(preamble, TlsLayer::new(), PLAIN)
    }

    /// Counts of handshakes; they go up while sessions live.
    pub fn counts(&self) -> Arc<Mutex<HandshakeCounts>> {
        self.tls.counts()
    }

    /// The session of a connection to this address.
    ///
    /// # Errors
    /// TLS cannot begin.
    pub fn session(&mut self, to: SocketAddr) -> Result<RouteSession, NetError> {
        let introduction = self.preamble.clone().map(|preamble| Introduction::new(preamble, to));
        let tls = self.tls.connect(self.profile, to)?;
        Ok(RouteSession { introduction, tls, replies: Vec::new() })
    }
}

impl Layer for RouteLayer {
    type Session = RouteSession;

    fn connect(&mut self, profile: Profile, to: SocketAddr) -> Result<Option<RouteSession>, NetError> {
        if profile == PLAIN { Ok(None) } else { self.session(to).map(Some) }
    }

    fn accept(&mut self, _: Listener, _: Profile, _: SocketAddr) -> Option<RouteSession> {
        None
    }
}

/// One connection's preamble and TLS, one after the other.
pub struct RouteSession {
    introduction: Option<Introduction>,
    tls: Option<TlsSession>,
    replies: Vec<u8>,
}

impl RouteSession {
    fn is_introduced(&self) -> bool {
        self.introduction.as_ref().is_none_or(Introduction::is_done)
    }
}

impl Session for RouteSession {
    fn wants_local(&self) -> bool {
        self.introduction.as_ref().is_some_and(Introduction::wants_local)
    }

    fn set_local(&mut self, local: Option<SocketAddr>) {
        if let Some(introduction) = &mut self.introduction {
            introduction.set_local(local);
        }
    }

    fn begin(&mut self, wire: &mut Vec<u8>) {
        if let Some(introduction) = &self.introduction {
            introduction.begin(wire);
        }
        if self.is_introduced()
            && let Some(tls) = &mut self.tls
        {
            tls.begin(wire);
        }
    }

    fn open(&mut self, mut wire: &mut [u8], take: &mut dyn FnMut(&mut [u8])) -> Progress {
        if let Some(introduction) = self.introduction.as_mut().filter(|introduction| !introduction.is_done())
        {
            let Ok(used) = introduction.open(wire, &mut self.replies) else {
                return Progress::Failed(NetError::of(NetErrorKind::Proxy));
            };
            if !introduction.is_done() {
                return Progress::Open;
            }
            if let Some(tls) = &mut self.tls {
                tls.begin(&mut self.replies);
            }
            wire = &mut wire[used..];
        }
        match &mut self.tls {
            Some(tls) => tls.open(wire, take),
            None => {
                take(wire);
                Progress::Open
            }
        }
    }

    fn reply(&mut self, wire: &mut Vec<u8>) {
        wire.append(&mut self.replies);
        if let Some(tls) = &mut self.tls {
            tls.reply(wire);
        }
    }

    fn is_ready(&self) -> bool {
        self.is_introduced() && self.tls.as_ref().is_none_or(TlsSession::is_ready)
    }

    fn seal(&mut self, bytes: &[u8], wire: &mut Vec<u8>) {
        match &mut self.tls {
            Some(tls) => tls.seal(bytes, wire),
            None => wire.extend_from_slice(bytes),
        }
    }

    fn sealed_len(&self, len: usize) -> usize {
        self.tls.as_ref().map_or(len, |tls| tls.sealed_len(len))
    }

    fn finish(&mut self, wire: &mut Vec<u8>) {
        if let Some(tls) = &mut self.tls {
            tls.finish(wire);
        }
    }

    fn cut(&mut self) -> Progress {
        if let Some(introduction) = self.introduction.as_mut().filter(|introduction| !introduction.is_done())
        {
            introduction.cut();
            return Progress::Failed(NetError::of(NetErrorKind::Proxy));
        }
        self.tls.as_mut().map_or(Progress::Ended, TlsSession::cut)
    }

    fn lost(&mut self, error: NetError) {
        if let Some(introduction) = self.introduction.as_mut().filter(|introduction| !introduction.is_done())
        {
            introduction.lost(&error.to_string());
        } else if let Some(tls) = &mut self.tls {
            tls.lost(error);
        }
    }

    fn reason(&self) -> Option<String> {
        let introduced = self.introduction.as_ref().and_then(Introduction::reason);
        introduced.or_else(|| self.tls.as_ref()?.reason())
    }

    fn protocol(&self) -> Option<&[u8]> {
        self.tls.as_ref()?.protocol()
    }

    /// A [`ProxySilence`](super::ProxySilence) while there is no tunnel, then what TLS has to say.
    fn about(&self) -> Option<Arc<dyn Any + Send + Sync>> {
        match self.introduction.as_ref().and_then(Introduction::silence) {
            Some(silence) => Some(Arc::new(silence)),
            None => self.tls.as_ref()?.about(),
        }
    }
}
