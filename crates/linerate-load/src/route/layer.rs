//! A connection's preamble and its TLS, over any transport.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};

use linerate_net::layer::{Layer, Layered, Progress, Session};
use linerate_net::{Listener, NetError, NetErrorKind, Profile, Transport, TransportLimits};
use linerate_tls::{HandshakeCounts, PLAIN, TlsLayer, TlsSession};

use super::preamble::{Introduction, Preamble};
use crate::outcome::Outcome;
use crate::plan::Plan;
use crate::plan::tls::{TargetTls, TlsClient};
use crate::start::StartError;

/// The profile of connections that have a route of their own.
const ROUTED: Profile = Profile(1);

/// The layers below HTTP of each connection of a run: preamble and TLS. Threads share them.
#[derive(Clone)]
pub(crate) struct RouteTo {
    preamble: Option<Arc<Preamble>>,
    tls: Option<TlsClient>,
}

impl RouteTo {
    /// That of a plan; `None`: bytes pass as they are.
    pub(crate) fn of(plan: &Plan) -> Result<Option<RouteTo>, StartError> {
        // A new user has no session to resume.
        let resumes = !plan.flows.as_ref().is_some_and(|flows| flows.own_connections);
        let tls = plan.tls.clone().map(|tls| TargetTls { resume: tls.resume && resumes, ..tls });
        let tls = tls.map(|tls| tls.client(plan.alpn())).transpose();
        let tls = tls.map_err(|e| StartError::Plan(e.to_string()))?;
        let preamble = Preamble::of(&plan.route);
        Ok((tls.is_some() || preamble.is_some()).then_some(RouteTo { preamble, tls }))
    }

    /// The layer of one thread.
    pub(crate) fn layer(&self) -> RouteLayer {
        let mut tls = TlsLayer::new();
        let profile = self.tls.as_ref().map_or(PLAIN, |client| client.add_to(&mut tls));
        RouteLayer { preamble: self.preamble.clone(), tls, profile }
    }

    /// A thread's transport with all of it, and the profile of its connections.
    pub(crate) fn over<T: Transport>(
        &self,
        wire: T,
        limits: TransportLimits,
    ) -> (Layered<T, RouteLayer>, Profile) {
        (Layered::new(wire, self.layer(), limits), ROUTED)
    }

    /// Puts into an outcome what the layer counted.
    pub(crate) fn settle(&self, counts: &Mutex<HandshakeCounts>, outcome: &mut Outcome) {
        let c = &outcome.connections;
        let is_silent = c.opened + c.failed == 0 && !outcome.interrupted && outcome.broken.is_none();
        if is_silent && outcome.unreachable.is_none() {
            let what = if self.tls.is_some() { "no TLS handshake ended" } else { "the proxy did not answer" };
            outcome.unreachable = Some(format!("{what} before the run did"));
        }
        if self.tls.is_some() {
            outcome.tls = Some(counts.lock().unwrap_or_else(PoisonError::into_inner).clone());
        }
    }
}

/// Makes the sessions of one thread.
pub(crate) struct RouteLayer {
    preamble: Option<Arc<Preamble>>,
    tls: TlsLayer,
    profile: Profile,
}

impl RouteLayer {
    /// One without TLS.
    pub(super) fn plain(preamble: Option<Arc<Preamble>>) -> RouteLayer {
        RouteLayer { preamble, tls: TlsLayer::new(), profile: PLAIN }
    }

    /// Counts of handshakes; they go up while sessions live.
    pub(crate) fn counts(&self) -> Arc<Mutex<HandshakeCounts>> {
        self.tls.counts()
    }

    /// The session of a connection to this address.
    pub(crate) fn session(&mut self, to: SocketAddr) -> Result<RouteSession, NetError> {
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
pub(crate) struct RouteSession {
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
}
