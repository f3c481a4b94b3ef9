//! Decides the next step of an HTTP/2 connection: as [`settle`](super::settle), with streams in place of a
//! queue.

use linerate_http::h2::Code;
use linerate_net::{Close, Conn, Transport};

use super::Server;
use crate::connection::ServedConnection;
use crate::limits::{H2_DRAIN_PATIENCE, TURN_BYTES, TURN_ROUNDS, UNSENT_CLOSED};
use crate::waits::Waits;
use crate::{Handler, access_log};

impl<T: Transport, H: Handler> Server<T, H> {
    /// Runs the streams, and sends what they have in as few sends as possible.
    pub(super) fn settle_streams(&mut self, mut c: ServedConnection) {
        let handed = c.handed;
        for round in 0.. {
            let room = self.engine.allowance.each().saturating_sub(c.unsent);
            self.engine.turn_streams(&mut c, room);
            let before = c.handed;
            if self.flush(&mut c).is_err() {
                return self.close(c, Close::Abort);
            }
            let stuck = c.handed == before || c.unsent >= self.engine.allowance.each();
            let more = c.http2().is_some_and(|session| session.more);
            if !more || (stuck && c.unsent > 0) {
                break;
            }
            if round >= TURN_ROUNDS || c.handed - handed >= TURN_BYTES as u64 {
                // Others get their turn first.
                if !c.dirty {
                    c.dirty = true;
                    self.unsettled.add_to_next(c.conn);
                }
                break;
            }
        }
        if let Some(how) = c.closing
            && c.unsent <= UNSENT_CLOSED
            && (how != Close::Abort || c.unsent == 0)
        {
            return self.close(c, how);
        }
        if self.engine.allowance.is_scarce() {
            self.list_starving(&mut c);
        }
        self.keep(c);
    }

    /// A connection whose windows keep back what it may have while memory is scarce may hear nothing
    /// more from its client: it is looked at again once memory is not scarce.
    fn list_starving(&mut self, c: &mut ServedConnection) {
        let conn = c.conn;
        if let Some(session) = c.http2()
            && session.wants_memory()
            && !std::mem::replace(&mut session.starves, true)
        {
            if self.starving.len() > 2 * self.open {
                let here = |conn: &Conn| {
                    self.connections
                        .get(conn.slot())
                        .and_then(Option::as_ref)
                        .is_some_and(|c| c.conn == *conn)
                };
                self.starving.retain(here);
            }
            self.starving.push(conn);
        }
    }

    /// Settles those that waited for memory, if there is some.
    pub(super) fn feed_starving(&mut self) {
        if self.starving.is_empty() || self.engine.allowance.is_scarce() {
            return;
        }
        for conn in std::mem::take(&mut self.starving) {
            let Some(mut c) = self.take(conn) else { continue };
            if let Some(session) = c.http2() {
                session.starves = false;
            }
            if !std::mem::replace(&mut c.dirty, true) {
                self.unsettled.add_to_next(conn);
            }
            self.connections[conn.slot()] = Some(c);
        }
    }

    /// Something of it has taken too long.
    pub(super) fn expired_streams(&mut self, mut c: ServedConnection) {
        if c.waits == Waits::Write && c.unsent > 0 {
            return self.expired_write(c);
        }
        let silent = c.waits == Waits::Handler && c.handed == c.left_at_since;
        if c.peer_ended && silent && c.since + self.engine.limits.idle_time <= self.engine.now {
            // As with HTTP/1.1: its client may be gone.
            return self.close(c, Close::Abort);
        }
        let idle = matches!(c.waits, Waits::Idle | Waits::Head);
        match c.http2().filter(|session| idle && session.streams.is_empty()) {
            Some(session) => session.cut(Code::NO_ERROR),
            None => self.engine.expire_streams(&mut c),
        }
        c.progressed = true;
        self.settle_streams(c);
    }

    /// The server, or its listener, drains: requests that are here, or that the client sends before
    /// it knows, get responses.
    pub(super) fn drain_streams(&mut self, mut c: ServedConnection) {
        let now = self.engine.now;
        let Some(session) = c.http2() else { return self.keep(c) };
        session.say_goodbye(now);
        let overdue = session.goodbye.is_some_and(|since| since + H2_DRAIN_PATIENCE <= now);
        if overdue && session.streams.is_empty() {
            // Its client does not reply, or keeps a stream open that has its response.
            session.cut(Code::NO_ERROR);
        }
        self.settle_streams(c);
    }

    /// The connection ends: its streams do.
    pub(super) fn forget_streams(&mut self, c: &mut ServedConnection, cut: bool) {
        self.engine.forget_streams(c, if cut { access_log::CUT } else { access_log::LEFT });
    }
}
