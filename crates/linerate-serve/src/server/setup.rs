//! What a server is told before it runs, and while it does.

use std::sync::Arc;
use std::time::Duration;

use linerate_net::Transport;

use super::{Server, Wall};
use crate::access_log::{AccessLog, LogBuffer};
use crate::clients::{ClientRules, Clients};
use crate::counts::ThreadCounts;
use crate::limits::Limits;
use crate::notice::{Lack, Misdirected};
use crate::watch::Watchdog;
use crate::{Draining, Handler};

impl<T: Transport, H: Handler> Server<T, H> {
    pub(crate) fn with_counts(mut self, counts: Arc<ThreadCounts>) -> Self {
        self.engine.counts = counts;
        self
    }

    /// With another wall clock.
    #[must_use]
    pub fn with_wall(mut self, wall: Wall) -> Self {
        self.wall = wall;
        self
    }

    /// Closes each connection after so many requests, as `keepalive_requests` does elsewhere.
    #[must_use]
    pub fn with_close_after(mut self, requests: Option<u32>) -> Self {
        self.engine.close_after = requests;
        self
    }

    /// Writes a line per answer.
    #[must_use]
    pub fn with_access_log(mut self, log: Option<AccessLog>) -> Self {
        self.engine.log = log.map(LogBuffer::new);
        self
    }

    /// Measures responses by route and turns of the loop, as [`ServerOptions::measure`](crate::ServerOptions) says.
    #[must_use]
    pub fn with_measure(mut self, on: bool) -> Self {
        self.set_measure(on);
        self
    }

    /// The same for one that runs.
    pub(crate) fn set_measure(&mut self, on: bool) {
        self.engine.meter = on.then(|| self.engine.meter.take().unwrap_or_default());
    }

    /// Tells this one as well when it drains.
    #[must_use]
    pub fn with_draining(mut self, draining: Draining) -> Self {
        self.engine.goodbye = draining;
        self
    }

    pub(crate) fn with_misdirected(mut self, misdirected: Misdirected) -> Self {
        self.engine.misdirected = Some(misdirected);
        self
    }

    pub(crate) fn with_lack(mut self, lack: Lack) -> Self {
        self.lack = Some(lack);
        self
    }

    pub(crate) fn with_watchdog(mut self, dog: Option<&Watchdog>) -> Self {
        self.engine.watch = dog.map(|dog| (dog.watch(), dog.clone()));
        self
    }

    /// Grants something else from now on, to connections that are open as well.
    pub fn set_limits(&mut self, limits: Limits) {
        self.engine.set_limits(limits);
        for c in self.connections.iter().flatten() {
            self.deadlines.arm(c.conn.slot(), self.deadline(c));
        }
    }

    /// Says of all listeners whether connections are accepted before they have sent something (TCP_DEFER_ACCEPT).
    pub(crate) fn set_defer(&mut self, defer: Option<Duration>) {
        for (_, listener) in &self.listeners {
            self.transport.set_defer(*listener, defer);
        }
    }

    /// Grants this to each client from the next connection and request on.
    #[must_use]
    pub fn with_client_rules(mut self, rules: ClientRules) -> Self {
        self.engine.rules = rules;
        self
    }

    /// With what other threads know of the clients.
    pub(crate) fn with_clients(mut self, clients: Arc<Clients>) -> Self {
        self.engine.clients = clients;
        self
    }

    /// As [`Server::with_client_rules`], for one that runs.
    pub fn set_client_rules(&mut self, rules: ClientRules) {
        self.engine.rules = rules;
    }

    /// As [`Server::with_close_after`], for one that runs.
    pub fn set_close_after(&mut self, requests: Option<u32>) {
        self.engine.close_after = requests;
    }

    /// As [`Server::with_access_log`], for one that runs: lines of the log before are handed over.
    pub fn set_access_log(&mut self, log: Option<AccessLog>) {
        self.engine.log = log.map(LogBuffer::new);
    }
}
