//! Which address a pipe is opened to (RFC 8305).

use std::net::SocketAddr;

use linerate_net::{Close, Conn, Time, Transport};

use super::{CallReading, Calls};
use crate::client::limits::ATTEMPT_DELAY;
use crate::conversation::Conversation;

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
    /// The address of the next attempt: the one that was reached last, or the next after one that failed.
    pub(super) fn address(&self) -> SocketAddr {
        self.addresses[self.address % self.addresses.len()]
    }

    /// An attempt to an address failed. Says whether that is news: of several at once only the first is.
    pub(super) fn address_failed(&mut self, to: Option<SocketAddr>) -> bool {
        let is_current = self.addresses.len() < 2 || to == Some(self.address());
        self.address += usize::from(is_current);
        is_current
    }

    /// A pipe is established: the others go to the same address, and attempts to others end.
    pub(super) fn reached(&mut self, conn: Conn) {
        if self.addresses.len() < 2 {
            return;
        }
        let Some(to) = self.pool.get_mut(conn).and_then(|pipe| pipe.beside.to) else { return };
        self.address = self.addresses.iter().position(|known| *known == to).unwrap_or(0);
        for slot in 0..self.pool.slots() {
            let Some(pipe) = self.pool.at(slot).filter(|pipe| !pipe.established) else { continue };
            let other = pipe.conn;
            if other != conn && pipe.beside.to != Some(to) && self.pool.remove(other).is_some() {
                self.transport.close(other, Close::Now);
            }
        }
    }

    /// While no pipe is established, an attempt that takes long gets company: one to the next address (RFC 8305
    /// section 5).
    pub(super) fn race(&mut self, now: Time) {
        if self.addresses.len() < 2 {
            return;
        }
        let (mut newest, mut tried) = (Time::ZERO, Vec::new());
        for pipe in (0..self.pool.slots()).filter_map(|slot| self.pool.at(slot)) {
            if pipe.established {
                return;
            }
            newest = newest.max(pipe.since);
            if !tried.contains(&pipe.beside.to) {
                tried.push(pipe.beside.to);
            }
        }
        if !tried.is_empty() && tried.len() < self.addresses.len() && now - newest >= ATTEMPT_DELAY {
            self.address += 1;
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
