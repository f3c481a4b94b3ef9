//! Connections to an alternative that the server announced (RFC 7838): one is opened over QUIC while calls go on over
//! TCP, and takes them once it is established.

use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use linerate_http::client::AltServices;
use linerate_net::{ConnectOptions, NetErrorKind, Time, Transport};
use tracing::debug;

use super::reaching::{Attempt, interleave};
use super::{CallReading, Calls, PipeState};
use crate::client::alternatives::{AltMemory, AltPlace};
use crate::client::limits::{ALT_ADDRESSES, LEAVING};
use crate::client::options::{CallOptions, Protocol};
use crate::conversation::Conversation;
use crate::route::BY_QUIC;
use crate::{Loss, PooledConnection};

/// What is known of the alternative whose turn it is.
#[derive(Debug, Default)]
enum Whereabouts {
    /// It is at addresses; those that are left to be tried.
    #[default]
    Known,
    /// Its name has to be looked up.
    Wanted,
    /// Its name is being looked up.
    LookedUp,
}

/// The way to a server beside TCP.
#[derive(Debug)]
pub(super) struct SecondWay {
    memory: AltMemory,
    /// Responses are searched for alternatives.
    pub(super) is_followed: bool,
    /// The alternative whose turn it is.
    place: Option<AltPlace>,
    whereabouts: Whereabouts,
    addresses: Vec<SocketAddr>,
    /// Connections with another number are those of earlier alternatives.
    number: u32,
    /// A connection is established, so that calls take this way.
    pub(super) is_used: bool,
}

impl SecondWay {
    pub(super) fn new(options: &CallOptions) -> SecondWay {
        let authority = http::uri::Authority::try_from(options.host.as_bytes()).ok();
        let host = authority.as_ref().map_or("", |authority| authority.host());
        SecondWay {
            memory: AltMemory::new(host, options.own_host_only),
            is_followed: options.protocol == Protocol::AltSvc && options.secure,
            place: None,
            whereabouts: Whereabouts::Known,
            addresses: Vec::new(),
            number: 0,
            is_used: false,
        }
    }

    /// Whether a pipe is one of the alternative whose turn it is.
    fn is_of<C>(&self, pipe: &PooledConnection<C, PipeState>) -> bool {
        self.place.is_some() && pipe.beside.alternative == Some(self.number)
    }

    /// Whether a pipe takes calls, as far as the way counts that it goes.
    pub(super) fn takes<C>(&self, pipe: &PooledConnection<C, PipeState>) -> bool {
        if self.is_used { self.is_of(pipe) } else { pipe.beside.alternative.is_none() }
    }

    /// Whether a pipe does not count among those that a client may have: it is tried beside the way in use, or only
    /// finishes its responses.
    pub(super) fn is_extra<C: Conversation>(&self, pipe: &PooledConnection<C, PipeState>) -> bool {
        let is_behind = !self.is_of(pipe) || (pipe.established && pipe.conversation.is_leaving());
        pipe.beside.alternative.is_some() && (is_behind || !(self.is_used || pipe.established))
    }

    fn leave_place(&mut self) {
        (self.place, self.is_used, self.whereabouts) = (None, false, Whereabouts::Known);
        self.addresses.clear();
    }

    fn failed(&mut self, now: Time) {
        if let Some(place) = &self.place {
            self.memory.failed(place, now);
        }
        self.leave_place();
    }

    /// A response announced alternatives.
    pub(super) fn heard(&mut self, services: &AltServices, age: Duration, now: Time) {
        self.memory.heard(services, age, now);
    }

    /// A response came on a connection to an alternative.
    pub(super) fn answered<C>(&mut self, pipe: &PooledConnection<C, PipeState>) {
        if self.is_of(pipe)
            && let Some(place) = &self.place
        {
            self.memory.worked(place);
        }
    }

    /// The alternative said that it does not answer for the server (421).
    pub(super) fn misdirected(&mut self, now: Time) {
        if let Some(place) = &self.place {
            debug!(port = place.port, "the alternative does not answer for the server");
            self.memory.misdirected(place, now);
        }
        self.leave_place();
    }
}

impl<T: Transport, C: Conversation<Reading = CallReading>> Calls<T, C> {
    /// Whether requests have streams of their own on the way that calls take.
    pub(super) fn on_streams(&self) -> Option<bool> {
        if self.second_way.is_used { Some(true) } else { self.streams }
    }

    /// Looks which way calls take, and opens a connection to an alternative that has none.
    pub(super) fn choose_way(&mut self, now: Time) {
        if !self.second_way.is_followed {
            return;
        }
        let (mut is_opening, mut is_used, mut behind) = (false, false, 0);
        let way = &mut self.second_way;
        if way.place.as_ref().is_some_and(|place| !way.memory.is_known(place, now)) {
            way.leave_place();
        }
        for pipe in (0..self.pool.slots()).filter_map(|slot| self.pool.at(slot)) {
            if way.is_of(pipe) {
                is_opening |= !pipe.established;
                is_used |= pipe.established && !pipe.conversation.is_leaving();
            }
            behind += u32::from(way.is_extra(pipe) && pipe.established);
        }
        way.is_used = is_used;
        let is_known = matches!(way.whereabouts, Whereabouts::Known);
        // A server that announces another alternative each time gets no connection for each.
        if is_used || is_opening || !is_known || behind >= LEAVING {
            return;
        }
        if way.addresses.is_empty() {
            self.turn_to_alternative(now);
        }
        self.open_alternative(now);
    }

    /// The next alternative has its turn, if one is known.
    fn turn_to_alternative(&mut self, now: Time) {
        let reached = self.addresses.get(self.current()).copied();
        let way = &mut self.second_way;
        way.leave_place();
        let Some(place) = way.memory.next(now).cloned() else { return };
        way.number = way.number.wrapping_add(1);
        way.whereabouts = Whereabouts::Known;
        if place.host.is_empty() {
            way.addresses.extend(reached.map(|to| SocketAddr::new(to.ip(), place.port)));
        } else if let Ok(ip) = place.host.parse::<IpAddr>() {
            way.addresses.push(SocketAddr::new(ip, place.port));
        } else {
            way.whereabouts = Whereabouts::Wanted;
        }
        way.place = Some(place);
    }

    /// Opens a connection to the alternative. Says whether it is being opened.
    pub(super) fn open_alternative(&mut self, now: Time) -> bool {
        let Some(to) = self.second_way.addresses.first().copied() else { return false };
        let options = ConnectOptions { profile: BY_QUIC, ..ConnectOptions::default() };
        match self.transport.connect(to, &options) {
            Ok(conn) => {
                self.wants_turn = true;
                self.pool.add(conn, now);
                if let Some(pipe) = self.pool.get_mut(conn) {
                    pipe.beside.attempt = Some(Attempt::beside(to));
                    pipe.beside.alternative = Some(self.second_way.number);
                }
                true
            }
            Err(error) => {
                debug!(%to, %error, "no connection over QUIC");
                self.statistics.connect_failures += 1;
                self.next_alternative_address(now);
                false
            }
        }
    }

    /// An address of the alternative failed: the next one, or it is not tried for a while.
    fn next_alternative_address(&mut self, now: Time) {
        let way = &mut self.second_way;
        if !way.addresses.is_empty() {
            way.addresses.remove(0);
        }
        if way.addresses.is_empty() {
            way.failed(now);
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
        if self.second_way.is_of(pipe) && !self.second_way.is_used {
            self.next_alternative_address(now);
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
        if self.second_way.is_of(pipe) && !(is_usual || pipe.conversation.is_leaving()) {
            self.second_way.failed(now);
        }
    }

    /// The name and port of an alternative that have to be looked up; each is returned once.
    pub(in crate::client) fn take_lookup(&mut self) -> Option<(String, u16)> {
        let way = &mut self.second_way;
        let place = way.place.as_ref().filter(|_| matches!(way.whereabouts, Whereabouts::Wanted))?;
        way.whereabouts = Whereabouts::LookedUp;
        Some((place.host.clone(), place.port))
    }

    /// What looking it up found. Nothing: it failed.
    pub(in crate::client) fn alternative_found(&mut self, addresses: Vec<SocketAddr>, now: Time) {
        let way = &mut self.second_way;
        if !matches!(way.whereabouts, Whereabouts::LookedUp) {
            return;
        }
        (way.whereabouts, way.addresses) = (Whereabouts::Known, interleave(addresses));
        way.addresses.truncate(ALT_ADDRESSES);
        match way.addresses.is_empty() {
            true => way.failed(now),
            false => _ = self.open_alternative(now),
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
