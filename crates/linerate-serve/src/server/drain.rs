//! The end of a listener or of all: what was asked is answered, and then they go.

use std::time::Duration;

use linerate_net::{Close, Time, Transport};

use super::Server;
use crate::connection::{Connection, Waits};
use crate::{Address, Handler, access_log};

/// Idle connections are told to go when draining, once they have been quiet for this long: what the peer sent before it could
/// know is still read.
const DRAIN_QUIET: Duration = Duration::from_millis(100);
/// How long a drained connection that never stops asking goes on being answered; then the next answer is its last. Reason: what was
/// received is answered, but there must be a last.
const DRAIN_PATIENCE: Duration = Duration::from_millis(300);

/// How long a listener that accepts nobody new stays open. Reason: a handshake that has begun ends within a round trip, and closing the
/// listener would reset it; most round trips are shorter.
const LAST_CALL: Duration = Duration::from_millis(100);
/// And how long beyond the last that was accepted. Reason: those that wait may be more than one turn takes.
const LAST_CALL_MORE: Duration = Duration::from_millis(20);

impl<T: Transport, H: Handler> Server<T, H> {
    /// Stops listening at an address that [`Server::listen`] gave. Its connections are told to close behind the answers that are
    /// due; those that have not ended after `drain` are cut.
    pub fn unlisten(&mut self, at: &Address, drain: Duration) {
        let now = self.transport.now();
        for (_, gone) in self.listeners.extract_if(.., |(address, _)| address == at) {
            self.transport.unlisten(gone);
            self.own.retain(|listener| *listener != gone);
            for c in self.connections.iter_mut().flatten().filter(|c| c.listener == gone && !c.leaving) {
                c.leaving = true;
                self.leaving += 1;
            }
            self.leaving_until = now + drain;
            self.drain_hard_at = now + DRAIN_PATIENCE;
        }
    }

    /// Stops listening; every answer from now on says that its connection ends, and idle ones are closed. Connections that wait to be
    /// accepted, or whose handshake is under way, are accepted still, for a moment.
    pub fn drain(&mut self) {
        let now = self.transport.now();
        self.engine.draining = true;
        self.engine.goodbye.begin();
        self.drain_hard_at = now + DRAIN_PATIENCE;
        self.last_call = now + LAST_CALL;
        for (_, listener) in self.listeners.drain(..) {
            // A socket that others hold too goes on without us, and what waits at it is theirs.
            if self.own.contains(&listener) && self.transport.refuse_new(listener) {
                self.closing.push(listener);
            } else {
                self.transport.unlisten(listener);
            }
        }
    }

    /// The time is over: the access log has the responses that are cut, as far as they left, and the requests without one.
    pub(crate) fn log_what_is_cut(&mut self) {
        let mut connections = std::mem::take(&mut self.connections);
        for c in connections.iter_mut().flatten() {
            self.look_at_unsent(c);
            self.engine.log_unanswered(c, access_log::CUT);
            self.engine.cancel_from(c, 0);
            self.engine.log_left(c, c.handed - c.unsent as u64, true);
        }
        self.connections = connections;
    }

    /// Whether connections may still come although it drains.
    pub(crate) fn is_closing_listeners(&self) -> bool {
        !self.closing.is_empty()
    }

    /// When listeners are to be closed.
    pub(super) fn last_call(&self) -> Option<Time> {
        self.is_closing_listeners().then_some(self.last_call)
    }

    /// Closes listeners at which nobody has been accepted for a moment.
    pub(super) fn close_listeners(&mut self, accepted_before: u64) {
        let (now, calm) = (self.engine.now, self.accepted == accepted_before);
        if !self.is_closing_listeners() {
            return;
        }
        if !calm || self.transport.accept_trouble().is_some() {
            // More may wait than one turn takes.
            self.last_call = self.last_call.max(now + LAST_CALL_MORE);
        } else if now >= self.last_call {
            self.closing.drain(..).for_each(|listener| self.transport.unlisten(listener));
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
