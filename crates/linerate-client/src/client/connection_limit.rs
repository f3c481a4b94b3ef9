//! A limit for the connections of several clients together: who may open one, and who gives some up. It does no I/O and
//! reads no clock.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::Waker;
use std::time::Duration;

use linerate_net::Time;

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
    /// Connections that it would open beside them.
    wants: u32,
    /// There was no room when it asked last: it is woken once there is.
    was_refused: bool,
    /// Of those open, the idle ones.
    idle: u32,
    waker: Waker,
}

impl ClientShare {
    /// What it misses of its share.
    fn missing(&self, fair: u32) -> u32 {
        self.wants.min(fair.saturating_sub(self.open))
    }
}

impl ClientShares {
    /// The connections that each client may have whatever the others want.
    fn fair(&self, most: u32) -> u32 {
        let sharing = self.clients.values().filter(|client| client.open > 0 || client.wants > 0).count();
        (most / (sharing.max(1) as u32)).max(1)
    }

    /// The sum over all clients but one.
    fn others(&self, but: u64, count: impl Fn(&ClientShare) -> u32) -> u32 {
        let others = self.clients.iter().filter(|(number, _)| **number != but);
        others.fold(0, |sum, (_, client)| sum.saturating_add(count(client)))
    }

    /// Whether a client may open one more. Room that others miss is theirs.
    fn has_room(&self, number: u64, most: u32) -> bool {
        let fair = self.fair(most);
        let is_below = self.clients.get(&number).is_some_and(|client| client.open < fair);
        let free = most.saturating_sub(self.open);
        free > 0 && (is_below || free > self.others(number, |client| client.missing(fair)))
    }

    /// Wakers of clients that were refused one, and have room now.
    fn readmitted(&mut self, most: u32) -> Vec<Waker> {
        if self.open >= most {
            return Vec::new();
        }
        let refused = self.clients.iter().filter(|(_, client)| client.was_refused);
        let refused: Vec<u64> = refused.map(|(number, _)| *number).collect();
        let mut wakers = Vec::new();
        for number in refused {
            let has_room = self.has_room(number, most);
            if let Some(client) = self.clients.get_mut(&number).filter(|_| has_room) {
                client.was_refused = false;
                wakers.push(client.waker.clone());
            }
        }
        wakers
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
    /// Of these, the ones that others miss of their share.
    pub(super) missed: u32,
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
        shares.clients.insert(number, ClientShare { open: 0, wants: 0, was_refused: false, idle: 0, waker });
        drop(shares);
        LimitedConnections { limit, number }
    }

    /// Whether it can open no connection now. If so, it is woken once it can.
    pub(super) fn is_full(&self) -> bool {
        self.admits(0) == 0
    }

    /// Counts one more, if there is room.
    pub(super) fn take(&self) -> bool {
        self.admits(1) > 0
    }

    /// Connections that it may open, one at most; `counted` of them are open from now on.
    fn admits(&self, counted: u32) -> u32 {
        let mut shares = self.limit.lock();
        let has_room = shares.has_room(self.number, self.limit.most);
        let Some(client) = shares.clients.get_mut(&self.number) else { return 0 };
        client.was_refused = !has_room;
        if has_room {
            client.open += counted;
            shares.open += counted;
        }
        u32::from(has_room)
    }

    /// The client has so many now, `idle` of them without a request in flight, and would open so many beside them. Says
    /// what it is to give up.
    pub(super) fn settle(&self, open: u32, idle: u32, wants: u32) -> GivenUp {
        let mut shares = self.limit.lock();
        let Some(client) = shares.clients.get_mut(&self.number) else { return GivenUp::default() };
        let released = client.open.saturating_sub(open);
        client.open -= released;
        client.idle = idle;
        let wants_more = wants > std::mem::replace(&mut client.wants, wants);
        shares.open -= released;
        let fair = shares.fair(self.limit.most);
        let free = self.limit.most.saturating_sub(shares.open);
        let short = |wanted: u32| wanted.saturating_sub(free);
        let missed = short(shares.others(self.number, |client| client.missing(fair)));
        let given_up = GivenUp {
            idle: short(shares.others(self.number, |client| client.wants)),
            missed,
            any: open.saturating_sub(fair).min(missed),
        };
        let mut wakers = shares.readmitted(self.limit.most);
        if free < wants {
            // Idle ones may be closed at once; who is above the share hears once that others miss some.
            let gives = |client: &ClientShare| client.idle > 0 || (wants_more && client.open > fair);
            let others =
                shares.clients.iter().filter(|(number, client)| **number != self.number && gives(client));
            wakers.extend(others.map(|(_, client)| client.waker.clone()));
        }
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
        let wakers = shares.readmitted(self.limit.most);
        drop(shares);
        wakers.into_iter().for_each(Waker::wake);
    }
}

/// When calls waited because the limit was reached: the last time, which may go on.
#[derive(Clone, Copy, Debug)]
pub(super) struct LimitWait {
    since: Time,
    /// [`Time::NEVER`] while it goes on.
    until: Time,
}

impl Default for LimitWait {
    fn default() -> LimitWait {
        LimitWait { since: Time::NEVER, until: Time::ZERO }
    }
}

impl LimitWait {
    pub(super) fn note(&mut self, is_reached: bool, now: Time) {
        match (self.goes_on(), is_reached) {
            (false, true) => *self = LimitWait { since: now, until: Time::NEVER },
            (true, false) => self.until = now,
            _ => {}
        }
    }

    /// Whether calls wait for the limit now.
    pub(super) fn goes_on(&self) -> bool {
        self.until == Time::NEVER
    }

    /// How much of the time from `from` to `to` it took.
    pub(super) fn part_of(&self, from: Time, to: Time) -> Duration {
        self.until.min(to) - self.since.max(from)
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
        assert_eq!(first.settle(5, 0, 4), GivenUp::default());
        assert!(second.is_full() && !second.take());
        assert_eq!(second.settle(0, 0, 9), GivenUp { idle: 4, missed: 0, any: 0 });
        assert_eq!(first.settle(5, 0, 4), GivenUp { idle: 9, missed: 2, any: 2 });
        // Two of them have closed.
        assert_eq!(first.settle(3, 0, 4), GivenUp { idle: 7, missed: 0, any: 0 });
        assert_eq!(take(&second, 9), 2);
        assert_eq!((second.settle(2, 0, 7).any, first.settle(3, 0, 4).any), (0, 0), "they stay as they are");
    }

    #[test]
    fn shares_that_do_not_come_out_even_are_not_taken_in_turns() {
        let limit = Arc::new(ConnectionLimit::new(4));
        let clients: Vec<LimitedConnections> = (0..3).map(|_| client(&limit)).collect();
        let mut open = [take(&clients[0], 2), take(&clients[1], 2), 0];
        assert_eq!(clients[2].settle(0, 0, 4), GivenUp::default());
        assert_eq!(clients[0].settle(2, 0, 4).any, 1);
        open[0] = 1;
        clients[0].settle(1, 0, 4);
        assert_eq!(clients[1].settle(2, 0, 4).any, 0, "one place is enough");
        open[2] += take(&clients[2], 1);
        assert_eq!((open, take(&clients[0], 2)), ([1, 2, 1], 0));
        let given_up = clients.iter().zip(open).map(|(client, open)| client.settle(open, 0, 4).any);
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

    /// Counts how often it is woken.
    #[derive(Default)]
    struct Woken(std::sync::atomic::AtomicU32);

    impl std::task::Wake for Woken {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, std::sync::atomic::Ordering::SeqCst);
        }
    }

    impl Woken {
        fn client(self: &Arc<Self>, limit: &Arc<ConnectionLimit>) -> LimitedConnections {
            LimitedConnections::join(Arc::clone(limit), Waker::from(Arc::clone(self)))
        }

        fn take(&self) -> u32 {
            self.0.swap(0, std::sync::atomic::Ordering::SeqCst)
        }
    }

    #[test]
    fn who_was_refused_is_woken_when_others_want_no_more() {
        let (limit, woken) = (Arc::new(ConnectionLimit::new(4)), Arc::new(Woken::default()));
        let (first, second) = (woken.client(&limit), client(&limit));
        second.settle(0, 0, 9);
        assert_eq!(take(&first, 9), 2, "the rest is the other's");
        first.settle(2, 0, 1);
        assert_eq!(woken.take(), 0);
        second.settle(0, 0, 0);
        assert_eq!((woken.take(), first.take()), (1, true));
    }

    #[test]
    fn room_between_the_question_and_the_wish_is_not_missed() {
        let (limit, woken) = (Arc::new(ConnectionLimit::new(1)), Arc::new(Woken::default()));
        let (first, second) = (woken.client(&limit), client(&limit));
        assert!(second.take() && first.is_full());
        second.settle(0, 0, 0);
        assert_eq!((woken.take(), first.is_full()), (1, false));
        assert!(first.take() && second.is_full());
        first.settle(0, 0, 1);
        first.settle(0, 0, 1);
        assert_eq!(woken.take(), 0, "it knows that there is room");
    }

    #[test]
    fn who_has_idle_ones_is_woken_for_each_that_others_want() {
        let (limit, woken) = (Arc::new(ConnectionLimit::new(4)), Arc::new(Woken::default()));
        let (first, second) = (woken.client(&limit), client(&limit));
        assert_eq!(take(&first, 4), 4);
        first.settle(4, 4, 0);
        second.settle(0, 0, 3);
        assert_eq!((woken.take(), first.settle(4, 4, 0)), (1, GivenUp { idle: 3, missed: 2, any: 2 }));
        first.settle(3, 3, 0);
        assert_eq!(take(&second, 1), 1);
        second.settle(1, 0, 2);
        assert_eq!((woken.take(), first.settle(3, 3, 0).idle), (1, 2));
        first.settle(1, 1, 0);
        assert_eq!(take(&second, 3), 2);
        second.settle(3, 0, 0);
        assert_eq!(woken.take(), 0, "nobody wants its last");
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
                client.settle(*open, 0, random.below(3) as u32);
                *open += take(client, random.below(4) as u32);
                assert!(clients.iter().map(|(_, open)| open).sum::<u32>() <= most, "seed {seed}");
            }
            // All want as many as they can get.
            for _ in 0..=most {
                for (client, open) in &mut clients {
                    *open -= client.settle(*open, 0, most).any;
                    client.settle(*open, 0, most);
                    *open += take(client, 1);
                }
            }
            let fair = most / count as u32;
            assert!(clients.iter().all(|(_, open)| *open >= fair), "seed {seed}: {clients:?}");
        }
    }
}
