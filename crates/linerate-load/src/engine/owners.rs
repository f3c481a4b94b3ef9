//! Users with connections of their own: a new one for each iteration, opened when its user is due, so
//! that opening it is part of the first step's latency. No user waits for another one's connection.

use linerate_client::Conversation;
use linerate_net::{Close, Conn, Time, Transport};

use super::Engine;
use super::responses::ResponseReading;
use crate::flows::journeys::UsersOf;

impl<T: Transport, C: Conversation<Reading = ResponseReading>> Engine<T, C> {
    /// Sends what users with a connection are due to send.
    pub(crate) fn serve_owners(&mut self, now: Time) {
        let Some(users) = self.users.clone() else { return };
        while let Some(conn) = users.due_connection(now) {
            match self.pool.get_mut(conn) {
                Some(connection) if connection.room() > 0 => {}
                Some(connection) if connection.waits() => {
                    users.hold_first();
                    continue;
                }
                _ => {
                    users.unbind_first();
                    continue;
                }
            }
            let Some(batch) = self.supply.take_of(now, UsersOf::Connections) else { return };
            if let Some(batch) = self.prepare(batch, now) {
                self.send_batch(conn, batch, now);
            }
        }
    }

    /// The first request on a new connection. Without one it is closed.
    pub(crate) fn send_first_of_user(&mut self, conn: Conn, now: Time) {
        while let Some(batch) = self.supply.take_of(now, UsersOf::NoConnection) {
            if let Some(batch) = self.prepare(batch, now) {
                return self.send_batch(conn, batch, now);
            }
        }
        // While the server cannot be reached, it tells whether that is over.
        if !self.reach.is_down() && self.pool.remove(conn).is_some() {
            self.transport.close(conn, Close::Abort);
        }
    }

    /// Requests that go out again are streams of the connection that was opened for another one of their user.
    pub(crate) fn send_again_beside(&mut self, conn: Conn, first: u64, now: Time) {
        let Some(users) = self.users.clone() else { return };
        while self.pool.first_again().is_some_and(|run| users.share_connection(first, run.first)) {
            let Some((run, end)) = self.pool.next_again(conn, 1, false) else { return };
            self.send_again(conn, run, end, now);
        }
    }

    /// A connection is established: now it is known whether connections have streams, which users may share.
    pub(crate) fn learn_streams(&mut self, conn: Conn, now: Time) {
        let Some(users) = self.kinds.journeys() else { return };
        let Some(connection) = self.pool.get_mut(conn) else { return };
        if let Some(depth) = users.learn(connection.conversation.has_streams(), now) {
            self.pool.set_depth(depth);
        }
    }

    /// A connection that was opened for nobody has told that the server can be reached.
    pub(crate) fn retire_unused(&mut self, conn: Conn, now: Time) {
        let is_unused = self.pool.get_mut(conn).is_some_and(|c| c.conversation.in_flight() == 0);
        if self.users.is_some() && is_unused {
            self.retire(conn, now);
        }
    }

    /// Closes the connections of users that are gone.
    pub(crate) fn retire_released(&mut self, now: Time) {
        let Some(users) = self.users.clone() else { return };
        users.released().into_iter().for_each(|conn| self.retire(conn, now));
    }
}
