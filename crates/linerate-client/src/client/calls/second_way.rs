//! The way to a server over QUIC, beside TCP: which alternative has its turn, and where it is.

use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use linerate_http::client::AltServices;
use linerate_net::Time;
use tracing::debug;

use crate::client::alternatives::{AltMemory, AltPlace};
use crate::client::limits::ALT_ADDRESSES;
use crate::client::options::{CallOptions, Protocol};

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

    /// Whether a pipe, whose alternative has this number, is one of that whose turn it is.
    pub(super) fn is_of(&self, alternative: Option<u32>) -> bool {
        self.place.is_some() && alternative == Some(self.number)
    }

    /// Whether a pipe takes calls, as far as the way counts that it goes.
    pub(super) fn takes(&self, alternative: Option<u32>) -> bool {
        if self.is_used { self.is_of(alternative) } else { alternative.is_none() }
    }

    /// Whether a pipe does not count among those that a client may have: it is tried beside the way in use, or only
    /// finishes its responses.
    pub(super) fn is_extra(&self, alternative: Option<u32>, is_established: bool, is_leaving: bool) -> bool {
        let is_behind = !self.is_of(alternative) || (is_established && is_leaving);
        alternative.is_some() && (is_behind || !(self.is_used || is_established))
    }

    fn leave_place(&mut self) {
        (self.place, self.is_used, self.whereabouts) = (None, false, Whereabouts::Known);
        self.addresses.clear();
    }

    /// It is not tried for a while.
    pub(super) fn failed(&mut self, now: Time) {
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
    pub(super) fn answered(&mut self, alternative: Option<u32>) {
        if self.is_of(alternative)
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

    /// Whether it has to be looked for anew which alternative has its turn, and it may be.
    pub(super) fn is_known(&self) -> bool {
        matches!(self.whereabouts, Whereabouts::Known)
    }

    /// An alternative that is no longer announced, or not fresh, is left.
    pub(super) fn expire(&mut self, now: Time) {
        if self.place.as_ref().is_some_and(|place| !self.memory.is_known(place, now)) {
            self.leave_place();
        }
    }

    /// The next alternative has its turn, if one is known and no address is left of the last. `reached`: where
    /// connections over TCP go.
    pub(super) fn turn(&mut self, reached: Option<IpAddr>, now: Time) {
        if !self.addresses.is_empty() {
            return;
        }
        self.leave_place();
        let Some(place) = self.memory.next(now).cloned() else { return };
        self.number = self.number.wrapping_add(1);
        if place.host.is_empty() {
            self.addresses.extend(reached.map(|ip| SocketAddr::new(ip, place.port)));
        } else if let Ok(ip) = place.host.parse::<IpAddr>() {
            self.addresses.push(SocketAddr::new(ip, place.port));
        } else {
            self.whereabouts = Whereabouts::Wanted;
        }
        self.place = Some(place);
    }

    /// The address of the next connection, and the number of its alternative.
    pub(super) fn next(&self) -> Option<(SocketAddr, u32)> {
        Some((*self.addresses.first()?, self.number))
    }

    /// An address of the alternative failed: the next one, or it is not tried for a while.
    pub(super) fn address_failed(&mut self, now: Time) {
        if !self.addresses.is_empty() {
            self.addresses.remove(0);
        }
        if self.addresses.is_empty() {
            self.failed(now);
        }
    }

    /// The name and port that have to be looked up; each is returned once.
    pub(super) fn take_lookup(&mut self) -> Option<(String, u16)> {
        let place = self.place.as_ref().filter(|_| matches!(self.whereabouts, Whereabouts::Wanted))?;
        self.whereabouts = Whereabouts::LookedUp;
        Some((place.host.clone(), place.port))
    }

    /// What looking the name up found, in the order of attempts; says whether there is something to try.
    pub(super) fn found(&mut self, addresses: Vec<SocketAddr>, now: Time) -> bool {
        if !matches!(self.whereabouts, Whereabouts::LookedUp) {
            return false;
        }
        (self.whereabouts, self.addresses) = (Whereabouts::Known, addresses);
        self.addresses.truncate(ALT_ADDRESSES);
        if self.addresses.is_empty() {
            self.failed(now);
        }
        !self.addresses.is_empty()
    }
}
