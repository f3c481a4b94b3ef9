//! The limit that the connections of several clients share: counts them, and gives some up where others wait.

use std::sync::Arc;
use std::task::Waker;

use linerate_net::{Close, Conn, Time, Transport};

use super::{CallReading, Calls};
use crate::client::board::SharedBoard;
use crate::client::connection_limit::{GivenUp, LimitedConnections};
use crate::client::limits::UNUSED;
use crate::conversation::Conversation;

impl<T: Transport, C: Conversation<Reading = CallReading>> Calls<T, C> {
    /// Its connections count within the limit of its options, if they have one. `board` is woken for it.
    pub(in crate::client) fn share_limit(&mut self, board: &Arc<SharedBoard>) {
        let join = |limit| LimitedConnections::join(limit, Waker::from(Arc::clone(board)));
        self.limited = self.options.limit.clone().map(join);
    }

    /// Whether the limit has room for one more, which is counted then.
    pub(super) fn takes_another(&self) -> bool {
        self.limited.as_ref().is_none_or(LimitedConnections::take)
    }

    /// Whether the limit has room for a connection beside those that calls take, which is counted then. If it has none, one
    /// of those makes room, unless it is the only one.
    pub(super) fn takes_one_beside(&mut self, now: Time) -> bool {
        if self.takes_another() {
            return true;
        }
        let pipes = (0..self.pool.slots()).filter_map(|slot| Some((slot, self.pool.at(slot)?)));
        let usable = pipes.filter(|(_, pipe)| pipe.established && pipe.beside.alternative.is_none());
        let loads: Vec<_> =
            usable.map(|(at, pipe)| (pipe.conversation.in_flight(), at, pipe.given_up)).collect();
        let is_leaving = loads.iter().any(|(_, _, given_up)| *given_up);
        let Some((in_flight, slot, _)) = loads.iter().min().filter(|_| loads.len() > 1 && !is_leaving) else {
            return false;
        };
        let Some(pipe) = self.pool.at_mut(*slot) else { return false };
        if *in_flight > 0 {
            pipe.take_no_more();
            return false;
        }
        let conn = pipe.conn;
        self.close_idle(conn);
        self.settle_limit(now);
        self.takes_another()
    }

    /// Whether the limit is reached.
    pub(super) fn is_limited(&self) -> bool {
        self.limited.as_ref().is_some_and(LimitedConnections::is_full)
    }

    /// Tells the limit what has changed, and gives up what others wait for.
    pub(super) fn settle_limit(&mut self, now: Time) {
        let Some(limited) = &self.limited else { return };
        let wants = self.wants_of_limit();
        let mut given_up = limited.settle(self.pool.opening.open(), self.idle_pipes(), wants);
        self.limit_wait.note(wants > 0 && limited.is_full(), now);
        if given_up == GivenUp::default() {
            return;
        }
        for slot in 0..self.pool.slots() {
            let Some(pipe) = self.pool.at_mut(slot).filter(|pipe| pipe.established) else { continue };
            let is_idle = pipe.conversation.in_flight() == 0;
            // Between two calls of a program it is not for others, unless they miss some of their share.
            let is_free = given_up.missed > 0 || now - pipe.beside.heard >= UNUSED;
            if is_idle && is_free && given_up.idle > 0 {
                let conn = pipe.conn;
                given_up.idle -= 1;
                given_up.missed = given_up.missed.saturating_sub(1);
                given_up.any = given_up.any.saturating_sub(1);
                self.close_idle(conn);
            } else if !is_idle && given_up.any > 0 {
                pipe.take_no_more();
                given_up.any -= 1;
            }
        }
        let Some(limited) = &self.limited else { return };
        limited.settle(self.pool.opening.open(), self.idle_pipes(), wants);
    }

    /// Connections that it would open, whatever others have: one for each call that waits, at most.
    fn wants_of_limit(&self) -> u32 {
        if !self.has_waiting() || self.addresses.is_empty() || !self.pool.opening.has_room() {
            return 0;
        }
        let again = usize::from(self.pool.has_again());
        let waiting = u32::try_from(self.waiting() + again).unwrap_or(u32::MAX);
        waiting.saturating_sub(self.pool.opening.pending()).min(self.missing_by_pace())
    }

    fn idle_pipes(&self) -> u32 {
        let pipes = (0..self.pool.slots()).filter_map(|slot| self.pool.at(slot));
        pipes.filter(|pipe| pipe.established && pipe.conversation.in_flight() == 0).count() as u32
    }

    fn close_idle(&mut self, conn: Conn) {
        if let Some(pipe) = self.pool.remove(conn) {
            self.leave(pipe, Close::Now);
        }
    }
}
