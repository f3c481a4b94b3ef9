//! What is below HTTP on the connections of a plan.

use std::sync::{Arc, Mutex, PoisonError};

use linerate_client::route::{Preamble, ROUTED, RouteLayer};
use linerate_net::layer::Layered;
use linerate_net::{Profile, Transport, TransportLimits};
use linerate_tls::{HandshakeCounts, PLAIN, TlsLayer};

use rustls::ClientConfig;

use crate::outcome::Outcome;
use crate::plan::Plan;
use crate::plan::tls::{TargetTls, TlsClient};
use crate::start::StartError;

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
        let preamble = plan.route.preamble();
        Ok((tls.is_some() || preamble.is_some()).then_some(RouteTo { preamble, tls }))
    }

    /// What QUIC makes its handshakes with, and the server's name.
    pub(crate) fn quic(&self) -> Option<(Arc<ClientConfig>, String)> {
        self.tls.as_ref().map(TlsClient::config)
    }

    /// The layer of one thread.
    pub(crate) fn layer(&self) -> RouteLayer {
        let mut tls = TlsLayer::new();
        let profile = self.tls.as_ref().map_or(PLAIN, |client| client.add_to(&mut tls));
        RouteLayer::new(self.preamble.clone(), tls, profile)
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
        self.count(counts, outcome);
    }

    /// Puts into an outcome how handshakes went.
    pub(crate) fn count(&self, counts: &Mutex<HandshakeCounts>, outcome: &mut Outcome) {
        if self.tls.is_some() {
            outcome.tls = Some(counts.lock().unwrap_or_else(PoisonError::into_inner).clone());
        }
    }
}
