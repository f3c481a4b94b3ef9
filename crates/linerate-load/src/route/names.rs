//! The addresses that connections go to. When none of them can be reached, their name is looked up again, off the loop.

use std::io;
use std::net::{SocketAddr, ToSocketAddrs};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;

use linerate_net::{NetErrorKind, Time};

use crate::limits::{ADDRESSES, LOOKUP_PAUSE};
use crate::outcome::{Failure, Lookups};
use crate::plan::route::Lookup;
use crate::plan::{Plan, Target};

/// Looks a name up.
type Resolver = fn(&str, u16) -> io::Result<Vec<SocketAddr>>;

/// A name and its addresses, shared by all threads.
#[derive(Debug)]
pub(crate) struct Names {
    lookup: Lookup,
    resolver: Resolver,
    known: Mutex<KnownName>,
    /// How often the addresses have changed.
    version: AtomicU64,
}

#[derive(Debug)]
struct KnownName {
    addresses: Arc<[SocketAddr]>,
    not_before: Time,
    is_looking: bool,
    counts: Lookups,
}

impl Names {
    /// The name of a plan, if it has one that can be looked up.
    pub(crate) fn of(plan: &Plan) -> Option<Arc<Names>> {
        let resolver: Resolver = |host, port| (host, port).to_socket_addrs().map(Iterator::collect);
        plan.route.lookup.clone().map(|lookup| Names::new(lookup, &plan.target, resolver))
    }

    fn new(lookup: Lookup, target: &Target, resolver: Resolver) -> Arc<Names> {
        let known = KnownName {
            addresses: target.addresses.clone().into(),
            not_before: Time::ZERO,
            is_looking: false,
            counts: Lookups::default(),
        };
        Arc::new(Names { lookup, resolver, known: Mutex::new(known), version: AtomicU64::new(0) })
    }

    fn known(&self) -> MutexGuard<'_, KnownName> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// How often it was looked up again, and what came of it.
    pub(crate) fn counts(&self) -> Lookups {
        self.known().counts.clone()
    }

    /// No address can be reached: looks the name up, unless that is under way or was done within the last second.
    fn ask(self: &Arc<Names>, now: Time) {
        if self.may_look(now) {
            let names = Arc::clone(self);
            let looking = move || names.learn((names.resolver)(&names.lookup.host, names.lookup.port));
            if let Err(error) = thread::Builder::new().name("lookup".to_owned()).spawn(looking) {
                self.learn(Err(error));
            }
        }
    }

    fn may_look(&self, now: Time) -> bool {
        let mut known = self.known();
        let may = !known.is_looking && now >= known.not_before;
        if may {
            known.is_looking = true;
            known.not_before = now + LOOKUP_PAUSE;
            known.counts.again += 1;
        }
        may
    }

    /// The result of a lookup. Addresses of the other family are left out; without any, those that were known stay.
    fn learn(&self, found: io::Result<Vec<SocketAddr>>) {
        let mut known = self.known();
        known.is_looking = false;
        let mut addresses: Vec<SocketAddr> = Vec::new();
        for address in found.unwrap_or_default() {
            let is_wanted = address.is_ipv6() == self.lookup.ipv6 && !addresses.contains(&address);
            if is_wanted && addresses.len() < ADDRESSES {
                addresses.push(address);
            }
        }
        if addresses.is_empty() {
            known.counts.failed += 1;
            return;
        }
        // Name servers give the same addresses in turns.
        let is_same = addresses.len() == known.addresses.len()
            && addresses.iter().all(|address| known.addresses.contains(address));
        if !is_same {
            known.counts.changed += 1;
            known.counts.addresses.clone_from(&addresses);
            known.addresses = addresses.into();
            self.version.fetch_add(1, Ordering::Release);
        }
    }
}

/// The addresses that the connections of one thread go to, in turns.
#[derive(Clone, Debug)]
pub(crate) struct Addresses {
    known: Arc<[SocketAddr]>,
    version: u64,
    /// Those at which attempts have failed since one succeeded.
    failed: Vec<SocketAddr>,
    names: Option<Arc<Names>>,
}

impl Addresses {
    pub(crate) fn new(target: &Target, names: Option<Arc<Names>>) -> Addresses {
        Addresses { known: target.addresses.clone().into(), version: 0, failed: Vec::new(), names }
    }

    /// That of the attempt of this number. There is at least one.
    pub(crate) fn pick(&mut self, nth: u64) -> SocketAddr {
        if let Some(names) = &self.names {
            let version = names.version.load(Ordering::Acquire);
            if version != self.version {
                self.version = version;
                self.failed.clear();
                self.known = names.known().addresses.clone();
            }
        }
        self.known[usize::try_from(nth % self.known.len() as u64).unwrap_or(0)]
    }

    /// Whether it is one of them.
    pub(crate) fn has(&self, address: SocketAddr) -> bool {
        self.known.contains(&address)
    }

    /// Whether there is more than one.
    pub(crate) fn are_several(&self) -> bool {
        self.known.len() > 1
    }

    /// An attempt succeeded.
    pub(crate) fn reached(&mut self) {
        self.failed.clear();
    }

    /// An attempt at this address failed. Once that was so at all of them, none can be reached.
    pub(crate) fn failed(&mut self, to: SocketAddr, kind: NetErrorKind, now: Time) {
        let Some(names) = &self.names else { return };
        if linerate_client::connect_failure(kind) != Failure::Connect {
            return;
        }
        if !self.failed.contains(&to) && self.known.contains(&to) {
            self.failed.push(to);
        }
        if self.failed.len() >= self.known.len() {
            names.ask(now);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn at(ms: u64) -> Time {
        Time::ZERO + Duration::from_millis(ms)
    }

    fn addresses(texts: &[&str]) -> Vec<SocketAddr> {
        texts.iter().map(|text| text.parse().expect("an address")).collect()
    }

    fn names(known: &[&str]) -> (Arc<Names>, Addresses) {
        let target = Target { url: String::new(), authority: String::new(), addresses: addresses(known) };
        let lookup = Lookup { host: "h".to_owned(), port: 80, ipv6: false };
        let names = Names::new(lookup, &target, |_, _| Err(io::ErrorKind::NotFound.into()));
        (Arc::clone(&names), Addresses::new(&target, Some(names)))
    }

    #[test]
    fn at_most_once_a_second_and_one_at_a_time() {
        let (names, _) = names(&["192.0.2.1:80"]);
        assert!(names.may_look(at(0)));
        assert!(!names.may_look(at(5000)), "one is under way");
        names.learn(Ok(Vec::new()));
        assert!(names.may_look(at(5000)));
        names.learn(Ok(Vec::new()));
        assert!(!names.may_look(at(5999)));
        assert!(names.may_look(at(6000)));
        let counts = names.counts();
        assert_eq!((counts.again, counts.failed, counts.changed), (3, 2, 0));
    }

    #[test]
    fn new_addresses_of_the_same_family_take_the_place_of_the_old_ones() {
        let (names, mut mine) = names(&["192.0.2.1:80", "192.0.2.2:80"]);
        names.learn(Ok(addresses(&["192.0.2.2:80", "192.0.2.1:80", "192.0.2.2:80"])));
        assert_eq!(names.counts().changed, 0, "the same ones in another order");
        names.learn(Ok(addresses(&["[::1]:80"])));
        assert_eq!((names.counts().changed, names.counts().failed), (0, 1));
        assert_eq!(mine.pick(1), addresses(&["192.0.2.2:80"])[0]);
        names.learn(Ok(addresses(&["[::1]:80", "192.0.2.3:80"])));
        assert_eq!(names.counts().changed, 1);
        assert_eq!(mine.pick(1), addresses(&["192.0.2.3:80"])[0]);
    }

    #[test]
    fn it_is_asked_for_when_every_address_has_failed_in_turn() {
        let (names, mut mine) = names(&["192.0.2.1:80", "192.0.2.2:80"]);
        let (one, other) = (mine.pick(0), mine.pick(1));
        mine.failed(one, NetErrorKind::Refused, at(0));
        mine.reached();
        mine.failed(other, NetErrorKind::Refused, at(0));
        mine.failed(one, NetErrorKind::PortsExhausted, at(0));
        // One of two that is dead fails again and again.
        mine.failed(other, NetErrorKind::Refused, at(0));
        assert_eq!(names.counts().again, 0);
        mine.failed(one, NetErrorKind::TimedOut, at(0));
        assert_eq!(names.counts().again, 1);
    }
}
