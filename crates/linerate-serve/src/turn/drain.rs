//! Drains one listener, or the whole server: received requests get responses, then connections
//! close.

use std::time::Duration;

use linerate_net::{Close, Time, Transport};

use super::Server;
use crate::connection::ServedConnection;
use crate::waits::Waits;
use crate::{Address, Handler, access_log};

/// Draining closes connections that have been idle this long: requests that the client sent before
/// it could know are still read.
const DRAIN_QUIET: Duration = Duration::from_millis(100);
/// How long a drained connection with constant requests gets responses; then the next one is its
/// last. Reason: received requests get responses, but there must be an end.
const DRAIN_PATIENCE: Duration = Duration::from_millis(300);

/// How long a listener stays open without accepting a connection. Reason: a handshake in progress
/// ends within a round trip, and closing the listener would reset it; most round trips are shorter.
const LAST_CALL: Duration = Duration::from_millis(100);
/// How long it stays open after the last accept. Reason: more connections may wait than one turn
/// accepts.
const LAST_CALL_MORE: Duration = Duration::from_millis(20);

impl<T: Transport, H: Handler> Server<T, H> {
    /// Stops listening on an address that [`Server::listen`] returned. Its connections close after
    /// the responses that are due; those still open after `drain` are cut.
    pub fn unlisten(&mut self, at: &Address, drain: Duration) {
        let now = self.transport.now();
        for (_, gone) in self.accepting.listeners.extract_if(.., |(address, _)| address == at) {
            self.transport.unlisten(gone);
            self.accepting.own.retain(|listener| *listener != gone);
            for c in self.connections.iter_mut().flatten().filter(|c| c.listener == gone && !c.leaving) {
                c.leaving = true;
                self.leaving.count += 1;
            }
            self.leaving.until = now + drain;
            self.leaving.hard_at = now + DRAIN_PATIENCE;
        }
    }

    /// Stops listening. Every response from now on closes its connection, and idle connections are
    /// closed. Connections in the accept queue, or in the handshake, are still accepted for a
    /// moment.
    pub fn drain(&mut self) {
        let now = self.transport.now();
        self.engine.drain.everywhere = true;
        self.engine.drain.signal.begin();
        self.leaving.hard_at = now + DRAIN_PATIENCE;
        self.accepting.last_call = now + LAST_CALL;
        for (_, listener) in self.accepting.listeners.drain(..) {
            // Other processes share this socket and keep it; its queue is theirs.
            if self.accepting.own.contains(&listener) && self.transport.refuse_new(listener) {
                self.accepting.closing.push(listener);
            } else {
                self.transport.unlisten(listener);
            }
        }
    }

    /// The time is over: logs the truncated responses, as far as they left, and the requests
    /// without a response.
    pub(crate) fn log_what_is_cut(&mut self) {
        let mut connections = std::mem::take(&mut self.connections);
        for c in connections.iter_mut().flatten() {
            self.look_at_unsent(c);
            self.forget_streams(c, true);
            self.engine.log_unanswered(c, access_log::CUT);
            self.engine.cancel_from(c, 0);
            self.engine.log_left(c, c.handed - c.unsent as u64, true);
        }
        self.connections = connections;
    }

    /// Whether connections may still arrive during the drain.
    pub(crate) fn is_closing_listeners(&self) -> bool {
        !self.accepting.closing.is_empty()
    }

    /// When listeners are to be closed.
    pub(super) fn last_call(&self) -> Option<Time> {
        self.is_closing_listeners().then_some(self.accepting.last_call)
    }

    /// Closes listeners that have accepted nothing for a moment.
    pub(super) fn close_listeners(&mut self, accepted_before: u64) {
        let (now, calm) = (self.engine.now, self.accepting.accepted == accepted_before);
        if !self.is_closing_listeners() {
            return;
        }
        if !calm || self.transport.accept_trouble().is_some() {
            // More may wait than one turn accepts.
            self.accepting.last_call = self.accepting.last_call.max(now + LAST_CALL_MORE);
        } else if now >= self.accepting.last_call {
            self.accepting.closing.drain(..).for_each(|listener| self.transport.unlisten(listener));
        }
    }

    pub(super) fn drain_tick(&self) -> Option<Time> {
        ((self.engine.drain.everywhere && self.open > 0) || self.leaving.count > 0)
            .then(|| self.engine.now + DRAIN_QUIET / 2)
    }

    /// While draining: closes connections that have been idle for a moment.
    pub(super) fn close_idle(&mut self) {
        let (now, draining) = (self.engine.now, self.engine.drain.everywhere);
        let overdue = now >= self.leaving.until;
        let hard = self.engine.drain.hard;
        for slot in 0..self.connections.len() {
            let idle = |c: &mut ServedConnection| {
                (draining || c.leaving) && c.waits == Waits::Idle && c.since + DRAIN_QUIET <= now
            };
            let streams = |c: &mut ServedConnection| (draining || c.leaving) && !overdue && c.is_http2();
            if let Some(c) = self.connections[slot].take_if(streams) {
                self.drain_streams(c);
            } else if let Some(c) = self.connections[slot].take_if(idle) {
                self.close(c, Close::Lingering);
            } else if let Some(c) = self.connections[slot].take_if(|c| overdue && c.leaving) {
                self.close(c, Close::Abort);
            } else if let Some(c) = &mut self.connections[slot]
                && (draining || c.leaving)
                && hard
                && !c.queue_is_empty()
            {
                // Its requests get responses; no more are read.
                c.closing.get_or_insert(Close::Lingering);
            }
        }
    }
}
