//! Sends the responses of several connections in a row.

use linerate_net::Transport;

use super::Server;
use crate::Handler;
use crate::answer::OrderedResponse;
use crate::connection::ServedConnection;
use crate::limits;

impl<T: Transport, H: Handler> Server<T, H> {
    /// Holds responses to a pipeline until those of the turn's other connections, so that all leave
    /// in a row.
    pub(super) fn hold(&mut self, mut c: ServedConnection) {
        let bytes = self.engine.out.len();
        if !c.queue_is_empty() || c.closing.is_some() || bytes == 0 || bytes > limits::HELD_EACH {
            return self.settle(c);
        }
        let empty = self.held.buffer();
        let answers = std::mem::replace(&mut self.engine.out, empty);
        let work = self.engine.work(&mut c);
        work.queue.push_back(OrderedResponse::Bytes { bytes: answers, last: false });
        let (conn, slot) = (c.conn, c.conn.slot());
        self.connections[slot] = Some(c);
        if self.held.add(conn, bytes) {
            self.let_go();
        }
    }

    /// Sends what was held.
    pub(super) fn let_go(&mut self) {
        let mut held = self.held.take();
        for conn in held.drain(..) {
            if let Some(c) = self.take(conn) {
                self.settle(c);
            }
        }
        self.held.give_back(held);
    }
}
