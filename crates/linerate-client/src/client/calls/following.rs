//! Connections to an alternative that the server announced (RFC 7838): one is opened over QUIC while calls go on over
//! TCP, and takes them once it is established.

use std::net::SocketAddr;
use std::time::Duration;

use linerate_net::{ConnectOptions, NetErrorKind, Time, Transport};
use tracing::debug;

use super::reaching::{Attempt, interleave};
use super::{CallReading, Calls, PipeState};
use crate::client::limits::LEAVING;
use crate::conversation::Conversation;
use crate::route::BY_QUIC;
use crate::{Loss, PooledConnection};

impl<T: Transport, C: Conversation<Reading = CallReading>> Calls<T, C> {
    /// Whether requests have streams of their own on the way that calls take.
    pub(in crate::client) fn on_streams(&self) -> Option<bool> {
        if self.second_way.is_used { Some(true) } else { self.streams }
    }

    /// Looks which way calls take, and opens a connection to an alternative that has none.
    pub(super) fn choose_way(&mut self, now: Time) {
        if !self.second_way.is_followed {
            return;
        }
        let (mut is_opening, mut is_used, mut behind) = (false, false, 0);
        let way = &mut self.second_way;
        way.expire(now);
        for pipe in (0..self.pool.slots()).filter_map(|slot| self.pool.at(slot)) {
            if way.is_of(pipe.beside.alternative) {
                is_opening |= !pipe.established;
                is_used |= pipe.established && !pipe.conversation.is_leaving();
            }
            let is_leaving = pipe.conversation.is_leaving();
            behind += u32::from(pipe.established && way.is_extra(pipe.beside.alternative, true, is_leaving));
        }
        way.is_used = is_used;
        // A server that announces another alternative each time gets no connection for each.
        if is_used || is_opening || !way.is_known() || behind >= LEAVING {
            return;
        }
        let reached = self.addresses.get(self.current()).map(SocketAddr::ip);
        self.second_way.turn(reached, now);
        self.open_alternative(now);
    }

    /// Opens a connection to the alternative. Says whether it is being opened.
    pub(super) fn open_alternative(&mut self, now: Time) -> bool {
        let Some((to, number)) = self.second_way.next() else { return false };
        let is_first = !self.second_way.is_used;
        if !(if is_first { self.takes_one_beside(now) } else { self.takes_another() }) {
            return false;
        }
        let options = ConnectOptions { profile: BY_QUIC, ..ConnectOptions::default() };
        match self.transport.connect(to, &options) {
            Ok(conn) => {
                self.wants_turn = true;
                self.pool.add(conn, now);
                if let Some(pipe) = self.pool.get_mut(conn) {
                    pipe.beside.attempt = Some(Attempt::beside(to));
                    pipe.beside.alternative = Some(number);
                }
                true
            }
            Err(error) => {
                debug!(%to, %error, "no connection over QUIC");
                self.statistics.connect_failures += 1;
                self.second_way.address_failed(now);
                false
            }
        }
    }

    /// A connection to an alternative could not be established. No call waits for it.
    pub(super) fn alternative_unreached(
        &mut self,
        pipe: &PooledConnection<C, PipeState>,
        why: &str,
        now: Time,
    ) {
        self.statistics.connect_failures += 1;
        debug!(why, "no connection over QUIC");
        // One that is in use has others.
        if self.second_way.is_of(pipe.beside.alternative) && !self.second_way.is_used {
            self.second_way.address_failed(now);
        }
    }

    /// An established connection to an alternative is lost: calls go over TCP, unless the server closed it in good
    /// order.
    pub(super) fn alternative_lost(&mut self, pipe: &PooledConnection<C, PipeState>, loss: &Loss, now: Time) {
        let is_usual = match loss {
            Loss::Closed | Loss::SaidClose => true,
            Loss::Net(error) => !matches!(error.kind, NetErrorKind::Reset | NetErrorKind::TimedOut),
            _ => false,
        };
        if self.second_way.is_of(pipe.beside.alternative) && !(is_usual || pipe.conversation.is_leaving()) {
            self.second_way.failed(now);
        }
    }

    /// The name and port of an alternative that have to be looked up; each is returned once.
    pub(crate) fn take_lookup(&mut self) -> Option<(String, u16)> {
        self.second_way.take_lookup()
    }

    /// What looking it up found. Nothing: it failed.
    pub(crate) fn alternative_found(&mut self, addresses: Vec<SocketAddr>, now: Time) {
        if self.second_way.found(interleave(addresses), now) {
            self.open_alternative(now);
        }
    }

    /// Calls that an alternative did not answer for go out again: the server processed none of them (RFC 9110 section
    /// 15.5.20).
    pub(super) fn send_elsewhere(&mut self, misdirected: Vec<u64>, now: Time) {
        if misdirected.is_empty() {
            return;
        }
        self.second_way.misdirected(now);
        for id in misdirected.into_iter().rev() {
            let Some(call) = self.calls.get_mut(id) else { continue };
            (call.sent, call.conn, call.begun) = (None, None, false);
            self.statistics.resent += 1;
            let queue = if call.nature.alone { &mut self.queues.alone } else { &mut self.queues.usual };
            queue.push_front(id);
        }
    }

    /// How long a pipe may have been idle; what is learnt of the server's limit is that of its connections over TCP.
    pub(super) fn usable_idle_of(&self, pipe: &PooledConnection<C, PipeState>) -> Duration {
        match pipe.beside.alternative {
            Some(_) => self.options.idle_timeout,
            None => self.usable_idle(false),
        }
    }
}
