//! A limit for the connections of several clients together: who may open one, and who gives some up. It does no I/O and
//! reads no clock.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::Waker;

/// Connections of several clients, at most. None is refused its share (the limit divided by the clients that use or
/// want connections, 1 at least) for long: who has more gives some up, idle ones first.
pub(super) struct ConnectionLimit {
    most: u32,
    shares: Mutex<ClientShares>,
}

#[derive(Default)]
struct ClientShares {
    clients: BTreeMap<u64, ClientShare>,
    next: u64,
    open: u32,
}

/// What one client has.
struct ClientShare {
    open: u32,
    wants: bool,
    waker: Waker,
}

impl ClientShares {
    /// The connections that each client may have whatever the others want.
    fn fair(&self, most: u32) -> u32 {
        let sharing = self.clients.values().filter(|client| client.open > 0 || client.wants).count();
        (most / (sharing.max(1) as u32)).max(1)
    }

    /// Connections that others miss of what each may have.
    fn missing(&self, but: u64, fair: u32) -> u32 {
        let others = self.clients.iter().filter(|(number, client)| **number != but && client.wants);
        others.map(|(_, client)| fair.saturating_sub(client.open)).sum()
    }

    /// Whether a client may open one more. Room that others miss is theirs.
    fn has_room(&self, number: u64, most: u32) -> bool {
        let fair = self.fair(most);
        let is_below = self.clients.get(&number).is_some_and(|client| client.open < fair);
        let free = most.saturating_sub(self.open);
        free > 0 && (is_below || free > self.missing(number, fair))
    }

    /// Others to be woken.
    fn wakers(&self, but: u64, which: impl Fn(&ClientShare) -> bool) -> Vec<Waker> {
        let others = self.clients.iter().filter(|(number, client)| **number != but && which(client));
        others.map(|(_, client)| client.waker.clone()).collect()
    }
}

impl ConnectionLimit {
    pub(super) fn new(most: u32) -> ConnectionLimit {
        ConnectionLimit { most, shares: Mutex::default() }
    }

    fn lock(&self) -> MutexGuard<'_, ClientShares> {
        self.shares.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl fmt::Debug for ConnectionLimit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ConnectionLimit").field("most", &self.most).finish_non_exhaustive()
    }
}

/// Connections that a client is to give up, because others wait for one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct GivenUp {
    /// Of those that are idle, at most.
    pub(super) idle: u32,
    /// In all, busy ones once their responses are there.
    pub(super) any: u32,
}

/// A client's connections among those of several. They are free again when it is dropped.
#[derive(Debug)]
pub(super) struct LimitedConnections {
    limit: Arc<ConnectionLimit>,
    number: u64,
}

impl LimitedConnections {
    /// `waker`: of the client, which is woken when there may be room, or others want some.
    pub(super) fn join(limit: Arc<ConnectionLimit>, waker: Waker) -> LimitedConnections {
        let mut shares = limit.lock();
        let number = shares.next;
        shares.next += 1;
        shares.clients.insert(number, ClientShare { open: 0, wants: false, waker });
        drop(shares);
        LimitedConnections { limit, number }
    }

    /// Whether it can open no connection now.
    pub(super) fn is_full(&self) -> bool {
        !self.limit.lock().has_room(self.number, self.limit.most)
    }

    /// Counts one more, if there is room.
    pub(super) fn take(&self) -> bool {
        let mut shares = self.limit.lock();
        let has_room = shares.has_room(self.number, self.limit.most);
        if let Some(client) = shares.clients.get_mut(&self.number).filter(|_| has_room) {
            client.open += 1;
            shares.open += 1;
        }
        has_room
    }

    /// The client has so many now, and would open more or not. Says what it is to give up.
    pub(super) fn settle(&self, open: u32, wants: bool) -> GivenUp {
        let mut shares = self.limit.lock();
        let Some(client) = shares.clients.get_mut(&self.number) else { return GivenUp::default() };
        let released = client.open.saturating_sub(open);
        client.open -= released;
        let wants_newly = wants && !std::mem::replace(&mut client.wants, wants);
        shares.open -= released;
        let fair = shares.fair(self.limit.most);
        let is_full = shares.open >= self.limit.most;
        let waiting =
            shares.clients.iter().filter(|(number, client)| **number != self.number && client.wants);
        let given_up = match is_full {
            true => GivenUp {
                idle: waiting.count() as u32,
                any: open.saturating_sub(fair).min(shares.missing(self.number, fair)),
            },
            false => GivenUp::default(),
        };
        let wakes = |client: &ClientShare| {
            (released > 0 && client.wants) || (wants_newly && is_full && client.open > 0)
        };
        let wakers = shares.wakers(self.number, wakes);
        drop(shares);
        wakers.into_iter().for_each(Waker::wake);
        given_up
    }
}

impl Drop for LimitedConnections {
    fn drop(&mut self) {
        let mut shares = self.limit.lock();
        let left = shares.clients.remove(&self.number);
        shares.open -= left.map_or(0, |client| client.open);
        let wakers = shares.wakers(self.number, |client| client.wants);
        drop(shares);
        wakers.into_iter().for_each(Waker::wake);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn client(limit: &Arc<ConnectionLimit>) -> LimitedConnections {
        LimitedConnections::join(Arc::clone(limit), Waker::noop().clone())
    }

    /// Takes as many as there are, up to `most`.
    fn take(client: &LimitedConnections, most: u32) -> u32 {
        (0..most).take_while(|_| client.take()).count() as u32
    }

    #[test]
    fn one_client_may_have_all_until_another_wants_some() {
        let limit = Arc::new(ConnectionLimit::new(5));
        let (first, second) = (client(&limit), client(&limit));
        assert_eq!(take(&first, 9), 5);
        assert_eq!(first.settle(5, true), GivenUp::default());
        assert!(second.is_full() && !second.take());
        assert_eq!(second.settle(0, true), GivenUp { idle: 1, any: 0 });
        assert_eq!(first.settle(5, true), GivenUp { idle: 1, any: 2 });
        // Two of them have closed.
        assert_eq!(first.settle(3, true), GivenUp::default());
        assert_eq!(take(&second, 9), 2);
        assert_eq!((second.settle(2, true).any, first.settle(3, true).any), (0, 0), "they stay as they are");
    }

    #[test]
    fn shares_that_do_not_come_out_even_are_not_taken_in_turns() {
        let limit = Arc::new(ConnectionLimit::new(4));
        let clients: Vec<LimitedConnections> = (0..3).map(|_| client(&limit)).collect();
        let mut open = [take(&clients[0], 2), take(&clients[1], 2), 0];
        assert_eq!(clients[2].settle(0, true), GivenUp::default());
        assert_eq!(clients[0].settle(2, true).any, 1);
        open[0] = 1;
        clients[0].settle(1, true);
        assert_eq!(clients[1].settle(2, true).any, 0, "one place is enough");
        open[2] += take(&clients[2], 1);
        assert_eq!((open, take(&clients[0], 2)), ([1, 2, 1], 0));
        let given_up = clients.iter().zip(open).map(|(client, open)| client.settle(open, true).any);
        assert_eq!(given_up.sum::<u32>(), 0);
    }

    #[test]
    fn a_client_that_ends_leaves_nothing_behind() {
        let limit = Arc::new(ConnectionLimit::new(2));
        let (first, second) = (client(&limit), client(&limit));
        assert_eq!(take(&first, 2), 2);
        drop(first);
        assert!(!second.is_full());
        assert_eq!(take(&second, 3), 2);
    }

    /// Clients that open and close at random: never more than the limit, and each that wants gets its share.
    #[test]
    fn never_more_than_the_limit() {
        for seed in 0..200 {
            let mut random = linerate_base::Random::new(seed);
            let most = 1 + random.below(12) as u32;
            let limit = Arc::new(ConnectionLimit::new(most));
            let count = 1 + random.below(u64::from(most)) as usize;
            let mut clients: Vec<(LimitedConnections, u32)> =
                (0..count).map(|_| (client(&limit), 0)).collect();
            for _ in 0..300 {
                let (client, open) = &mut clients[random.below(count as u64) as usize];
                *open -= random.below(u64::from(*open) + 1) as u32;
                client.settle(*open, random.below(2) == 0);
                *open += take(client, random.below(4) as u32);
                assert!(clients.iter().map(|(_, open)| open).sum::<u32>() <= most, "seed {seed}");
            }
            // All want as many as they can get.
            for _ in 0..=most {
                for (client, open) in &mut clients {
                    *open -= client.settle(*open, true).any;
                    client.settle(*open, true);
                    *open += take(client, 1);
                }
            }
            let fair = most / count as u32;
            assert!(clients.iter().all(|(_, open)| *open >= fair), "seed {seed}: {clients:?}");
        }
    }
}
