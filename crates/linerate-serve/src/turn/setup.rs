//! The settings of a server, before it runs and while it does.

use std::sync::Arc;
use std::time::Duration;

use linerate_net::{Time, Transport};

use super::parts::WallClock;
use super::{Server, Wall};
use crate::access_log::{AccessLog, LogBuffer};
use crate::clients::{ClientRules, Clients};
use crate::engine::HandlerWatch;
use crate::limits::Limits;
use crate::notice::{Lack, Misdirected};
use crate::stats::counts::ThreadCounts;
use crate::watch::Watchdog;
use crate::{Draining, Handler};

impl<T: Transport, H: Handler> Server<T, H> {
    pub(crate) fn with_counts(mut self, counts: Arc<ThreadCounts>) -> Self {
        self.engine.counts = counts;
        self
    }

    /// Reads this clock for the durations in the access log, which otherwise end with the turn's
    /// beginning: a response that is read, made and sent within one turn would take no time.
    pub(crate) fn with_log_clock(mut self, clock: fn() -> Time) -> Self {
        self.engine.log.clock = Some(clock);
        self
    }

    /// Sets another wall clock.
    #[must_use]
    pub fn with_wall(mut self, wall: Wall) -> Self {
        self.clock = WallClock::new(wall);
        self
    }

    /// Closes each connection after this many requests, like `keepalive_requests` in nginx.
    #[must_use]
    pub fn with_close_after(mut self, requests: Option<u32>) -> Self {
        self.engine.close_after = requests;
        self
    }

    /// Writes a log line per response.
    #[must_use]
    pub fn with_access_log(mut self, log: Option<AccessLog>) -> Self {
        self.engine.log.buffer = log.map(LogBuffer::new);
        self
    }

    /// Measures responses by route and turns of the loop, as
    /// [`ServerOptions::measure`](crate::ServerOptions) describes.
    #[must_use]
    pub fn with_measure(mut self, on: bool) -> Self {
        self.set_measure(on);
        self
    }

    /// The same for a running server.
    pub(crate) fn set_measure(&mut self, on: bool) {
        self.engine.meter = on.then(|| self.engine.meter.take().unwrap_or_default());
    }

    /// Speaks HTTP/2 too, by prior knowledge and where TLS agrees on it; the default.
    #[must_use]
    pub fn with_http2(mut self, on: bool) -> Self {
        self.set_http2(on);
        self
    }

    /// As [`Server::with_http2`], for the new connections of a running server.
    pub fn set_http2(&mut self, on: bool) {
        self.engine.set_http2(on);
    }

    /// Signals drains of this server to `draining` too.
    #[must_use]
    pub fn with_draining(mut self, draining: Draining) -> Self {
        self.engine.drain.signal = draining;
        self
    }

    pub(crate) fn with_misdirected(mut self, misdirected: Misdirected) -> Self {
        self.engine.misdirected = Some(misdirected);
        self
    }

    pub(crate) fn with_lack(mut self, lack: Lack) -> Self {
        self.accepting.lack = Some(lack);
        self
    }

    pub(crate) fn with_watchdog(mut self, dog: Option<&Watchdog>) -> Self {
        self.engine.watch = dog.map(HandlerWatch::by).unwrap_or_default();
        self
    }

    /// Changes the limits, for open connections too.
    pub fn set_limits(&mut self, limits: Limits) {
        self.engine.set_limits(limits);
        for c in self.connections.iter().flatten() {
            self.timeouts.arm(c.conn.slot(), self.deadline(c));
        }
    }

    /// Sets for all listeners whether connections are accepted only once they have sent bytes
    /// (TCP_DEFER_ACCEPT).
    pub(crate) fn set_defer(&mut self, defer: Option<Duration>) {
        for (_, listener) in &self.accepting.listeners {
            self.transport.set_defer(*listener, defer);
        }
    }

    /// Sets the rules for clients, from the next connection and request on.
    #[must_use]
    pub fn with_client_rules(mut self, rules: ClientRules) -> Self {
        self.engine.admission.rules = rules;
        self
    }

    /// Shares what other threads know of the clients.
    pub(crate) fn with_clients(mut self, clients: Arc<Clients>) -> Self {
        self.engine.admission.clients = clients;
        self
    }

    /// As [`Server::with_client_rules`], for a running server.
    pub fn set_client_rules(&mut self, rules: ClientRules) {
        self.engine.admission.rules = rules;
    }

    /// As [`Server::with_close_after`], for a running server.
    pub fn set_close_after(&mut self, requests: Option<u32>) {
        self.engine.close_after = requests;
    }

    /// As [`Server::with_access_log`], for a running server: lines of the previous log are handed
    /// over first.
    pub fn set_access_log(&mut self, log: Option<AccessLog>) {
        self.engine.log.buffer = log.map(LogBuffer::new);
    }
}
