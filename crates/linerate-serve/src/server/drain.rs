//! The end of a listener or of all: what was asked is answered, and then they go.

use std::time::Duration;

use linerate_net::{Close, Time, Transport};

use super::Server;
use crate::connection::{Connection, Waits};
use crate::{Address, Handler};

/// Idle connections are told to go when draining, once they have been quiet for this long: what the peer sent before it could
/// know is still read.
const DRAIN_QUIET: Duration = Duration::from_millis(100);
/// How long a drained connection that never stops asking goes on being answered; then the next answer is its last. Reason: what was
/// received is answered, but there must be a last.
const DRAIN_PATIENCE: Duration = Duration::from_millis(300);

impl<T: Transport, H: Handler> Server<T, H> {
    /// Stops listening at an address that [`Server::listen`] gave. Its connections are told to close behind the answers that are
    /// due; those that have not ended after `drain` are cut.
    pub fn unlisten(&mut self, at: &Address, drain: Duration) {
        let now = self.transport.now();
        for (_, gone) in self.listeners.extract_if(.., |(address, _)| address == at) {
            self.transport.unlisten(gone);
            for c in self.connections.iter_mut().flatten().filter(|c| c.listener == gone && !c.leaving) {
                c.leaving = true;
                self.leaving += 1;
            }
            self.leaving_until = now + drain;
            self.drain_hard_at = now + DRAIN_PATIENCE;
        }
    }

    /// Stops accepting; every answer from now on says that its connection ends, and idle ones are closed.
    pub fn drain(&mut self) {
        self.engine.draining = true;
        self.engine.goodbye.begin();
        self.drain_hard_at = self.transport.now() + DRAIN_PATIENCE;
        for (_, listener) in self.listeners.drain(..) {
            self.transport.unlisten(listener);
        }
    }

    pub(super) fn drain_tick(&self) -> Option<Time> {
        ((self.engine.draining && self.open > 0) || self.leaving > 0)
            .then(|| self.engine.now + DRAIN_QUIET / 2)
    }

    /// While draining: those that have been quiet for a moment go.
    pub(super) fn close_idle(&mut self) {
        let (now, draining) = (self.engine.now, self.engine.draining);
        let overdue = now >= self.leaving_until;
        let hard = self.engine.draining_hard;
        for slot in 0..self.connections.len() {
            let idle = |c: &mut Connection| {
                (draining || c.leaving) && c.waits == Waits::Idle && c.since + DRAIN_QUIET <= now
            };
            if let Some(c) = self.connections[slot].take_if(idle) {
                self.close(c, Close::Lingering);
            } else if let Some(c) = self.connections[slot].take_if(|c| overdue && c.leaving) {
                self.close(c, Close::Abort);
            } else if let Some(c) = &mut self.connections[slot]
                && (draining || c.leaving)
                && hard
                && !c.queue_is_empty()
            {
                // What it has asked is answered; more is not read.
                c.closing.get_or_insert(Close::Lingering);
            }
        }
    }
}
