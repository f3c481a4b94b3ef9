//! Which address a pipe is opened to (RFC 8305).

use std::net::SocketAddr;

use linerate_net::{Close, Conn, Time, Transport};

use super::{CallReading, Calls, PipeState};
use crate::PooledConnection;
use crate::client::limits::ATTEMPT_DELAY;
use crate::conversation::Conversation;

/// Attempts to each address once. It ends when all addresses have failed, or when one is reached.
#[derive(Debug, Default)]
pub(super) struct Round {
    /// Attempts of earlier rounds, which may still be under way, have another one.
    number: u32,
    failed: Vec<SocketAddr>,
}

impl Round {
    /// Whether an address can be tried in it.
    fn has_left(&self, to: SocketAddr) -> bool {
        !self.failed.contains(&to)
    }

    /// Whether all of these addresses have failed.
    pub(super) fn is_over(&self, addresses: &[SocketAddr]) -> bool {
        addresses.iter().all(|to| !self.has_left(*to))
    }

    /// Each address may be tried again.
    pub(super) fn next(&mut self) {
        self.number = self.number.wrapping_add(1);
        self.failed.clear();
    }

    /// An address was reached.
    pub(super) fn forget_failures(&mut self) {
        self.failed.clear();
    }
}

/// An attempt to open a pipe.
#[derive(Clone, Copy, Debug)]
pub(super) struct Attempt {
    pub(super) to: SocketAddr,
    /// The number of its round.
    round: u32,
}

impl Attempt {
    /// One that is no part of any round.
    pub(super) fn beside(to: SocketAddr) -> Attempt {
        Attempt { to, round: 0 }
    }
}

/// Addresses that have failed in a round.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Tried {
    Some,
    All,
}

/// Addresses in the order of attempts: the families in turns, that of the first one first (RFC 8305 section 4).
pub(super) fn interleave(addresses: Vec<SocketAddr>) -> Vec<SocketAddr> {
    let Some(first) = addresses.first().map(SocketAddr::is_ipv6) else { return addresses };
    let (ours, others): (Vec<_>, Vec<_>) = addresses.into_iter().partition(|a| a.is_ipv6() == first);
    let (mut ours, mut others) = (ours.into_iter(), others.into_iter());
    let mut all = Vec::new();
    loop {
        let pair = [ours.next(), others.next()];
        if pair.iter().all(Option::is_none) {
            return all;
        }
        all.extend(pair.into_iter().flatten());
    }
}

impl<T: Transport, C: Conversation<Reading = CallReading>> Calls<T, C> {
    /// The address of the next attempt: the one that was reached last, or the next that has not failed in this round.
    pub(super) fn next_attempt(&self) -> Attempt {
        let next = self.next_address(|to| self.round.has_left(to));
        Attempt { to: next.unwrap_or(self.addresses[self.current()]), round: self.round.number }
    }

    /// The first address that fits, from the current one on.
    fn next_address(&self, fits: impl Fn(SocketAddr) -> bool) -> Option<SocketAddr> {
        let (before, from) = self.addresses.split_at(self.current());
        from.iter().chain(before).copied().find(|to| fits(*to))
    }

    pub(super) fn current(&self) -> usize {
        self.address % self.addresses.len().max(1)
    }

    /// An attempt of a round to an address failed. Of several in one round to one address only the first is news.
    pub(super) fn address_failed(&mut self, attempt: Option<Attempt>) -> Option<Tried> {
        let Attempt { to, .. } =
            attempt.filter(|a| a.round == self.round.number && self.round.has_left(a.to))?;
        self.round.failed.push(to);
        if self.addresses.get(self.current()) == Some(&to) {
            self.address += 1;
        }
        if !self.round.is_over(&self.addresses) {
            return Some(Tried::Some);
        }
        self.round.next();
        self.unreached = true;
        Some(Tried::All)
    }

    /// A pipe is established: the others go to the same address, and attempts to others end.
    pub(super) fn reached(&mut self, conn: Conn) {
        if self.addresses.len() < 2 {
            return;
        }
        let reached = self.pool.get_mut(conn).filter(|pipe| pipe.beside.alternative.is_none());
        let Some(to) = reached.and_then(|pipe| pipe.beside.to()) else { return };
        self.address = self.addresses.iter().position(|known| *known == to).unwrap_or(0);
        for slot in 0..self.pool.slots() {
            let is_attempt = |pipe: &&PooledConnection<C, PipeState>| {
                !pipe.established && pipe.beside.alternative.is_none()
            };
            let Some(pipe) = self.pool.at(slot).filter(is_attempt) else { continue };
            let other = pipe.conn;
            if other != conn && pipe.beside.to() != Some(to) && self.pool.remove(other).is_some() {
                self.transport.close(other, Close::Now);
            }
        }
    }

    /// While no pipe is established, an attempt that takes long gets company: one to the next address (RFC 8305
    /// section 5). An address that has failed in this round is not tried again beside it.
    pub(super) fn race(&mut self, now: Time) {
        let (mut newest, mut tried) = (Time::ZERO, self.round.failed.clone());
        let mut opening = 0;
        for pipe in (0..self.pool.slots()).filter_map(|slot| self.pool.at(slot)) {
            if pipe.beside.alternative.is_some() {
                continue;
            }
            if pipe.established {
                return;
            }
            opening += 1;
            // An address that the name no longer has is not waited for.
            if pipe.beside.to().is_some_and(|to| self.addresses.contains(&to)) {
                newest = newest.max(pipe.since);
            }
            // An attempt of an earlier round does not count: this one has to end in time.
            let of_this_round = pipe.beside.attempt.filter(|attempt| attempt.round == self.round.number);
            tried.extend(of_this_round.map(|attempt| attempt.to));
        }
        if opening == 0 || now - newest < ATTEMPT_DELAY {
            return;
        }
        let next = self.next_address(|to| !tried.contains(&to));
        if let Some(next) = next {
            self.address = self.addresses.iter().position(|known| *known == next).unwrap_or(0);
            self.open_one(now);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rfc8305_4_families_take_turns() {
        let all = ["[::1]:1", "[::2]:1", "[::3]:1", "1.1.1.1:1", "2.2.2.2:1"];
        let sorted = interleave(all.iter().map(|a| a.parse().unwrap()).collect());
        let sorted: Vec<String> = sorted.iter().map(ToString::to_string).collect();
        assert_eq!(sorted, ["[::1]:1", "1.1.1.1:1", "[::2]:1", "2.2.2.2:1", "[::3]:1"]);
        assert!(interleave(Vec::new()).is_empty());
    }
}
