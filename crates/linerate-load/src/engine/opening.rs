//! When connections are opened: up to the number wanted, a few in a turn, with pauses when it does no good.

use std::net::SocketAddr;

use linerate_client::{
    Conversation, Failure, Loss, PooledConnection, RequestsEnd, Run, Stamp, connect_failure, connect_words,
};
use linerate_net::{ConnectOptions, NetErrorKind, Time, Transport};

use super::kinds::Kinds;
use super::reach::Reach;
use super::recorder::Recorder;
use super::responses::ResponseReading;
use super::{Engine, EngineConnection};
use crate::flows::journeys::{Journeys, UsersOf};
use crate::limits::HANGING;

impl<T: Transport, C: Conversation<Reading = ResponseReading>> Engine<T, C> {
    /// Opens what is missing, a few at a time.
    pub(crate) fn open_some(&mut self, now: Time) {
        if let Some(users) = self.kinds.journeys() {
            self.pool.opening.want(users.wanted(now));
        }
        let mut left = self.pool.opening.this_turn(now);
        while left > 0 && self.unreachable.is_none() && self.pool.opening.wants_more() && self.is_needed(now)
        {
            left -= 1;
            self.open_one(now);
        }
    }

    /// Whether another connection would have something to carry.
    pub(crate) fn is_needed(&mut self, now: Time) -> bool {
        if self.pool.has_again() {
            return true;
        }
        if self.stopping.is_some() || self.supply.ended() {
            return false;
        }
        if let Some(users) = &self.users {
            let is_due = users.next_due(UsersOf::NoConnection).is_some_and(|due| due <= now);
            return is_due || self.reach.is_down();
        }
        if self.orders.one_of_several {
            let opening = &self.pool.opening;
            let lacks = |users: &Journeys| users.are_more_due(now, opening.pending());
            return self.reach.is_down()
                || (self.pool.ready() == 0 && self.kinds.journeys().is_some_and(lacks));
        }
        // A connection for one request is opened when that is due, so that opening it is part of its latency.
        !self.is_short() || self.reach.is_down() || self.supply.next_due().is_none_or(|due| due <= now)
    }

    pub(crate) fn is_short(&self) -> bool {
        self.orders.per_connection == Some(1)
    }

    fn open_one(&mut self, now: Time) {
        let nth = self.pool.opening.attempt();
        let to = self.orders.addresses.pick(nth);
        let from = (!self.orders.from.is_empty()).then(|| pick(&self.orders.from, nth));
        let (short, profile, unix) = (self.is_short(), self.orders.profile, self.orders.unix.clone());
        let options = ConnectOptions { from, short, profile, unix };
        let conn = match self.transport.connect(to, &options) {
            Ok(conn) => conn,
            Err(error) => {
                return self.connect_failed((None, Some(to)), error.kind, connect_words(&error), now);
            }
        };
        self.pool.add(conn, now);
        if let Some(connection) = self.pool.get_mut(conn) {
            connection.beside.to = Some(to);
        }
        if self.is_short() || self.users.is_some() {
            self.send_first(conn, now);
        }
    }

    /// The one request of a short connection is handed over at once: it leaves as soon as the connection is established.
    fn send_first(&mut self, conn: linerate_net::Conn, now: Time) {
        // It is new: no other is waited for.
        if let Some((run, end)) = self.pool.next_again(conn, 1, false) {
            self.send_again(conn, run, end, now);
            // One that broke a connection goes alone.
            if !matches!(end, RequestsEnd::Broken { .. }) {
                self.send_again_beside(conn, run.first, now);
            }
            return;
        }
        if self.users.is_some() {
            return self.send_first_of_user(conn, now);
        }
        if let Some(batch) = self.take(now, 1) {
            self.send_batch(conn, batch, now);
        }
    }

    /// A connection could not be opened: the request it was for has failed.
    pub(crate) fn connect_failed(
        &mut self,
        (connection, to): (Option<PooledConnection<C, EngineConnection>>, Option<SocketAddr>),
        kind: NetErrorKind,
        detail: String,
        now: Time,
    ) {
        let detail = self.failed_at(to, kind, detail, now);
        let connections = &mut self.recorder.connections;
        connections.failed += 1;
        connections.refused += u64::from(kind == NetErrorKind::Refused);
        connections.hanging += u64::from(kind == NetErrorKind::TimedOut);
        if kind == NetErrorKind::Refused {
            self.pool.learnt.forget();
        }
        let why = connect_failure(kind);
        let since = connection.as_ref().map_or(now, |connection| connection.since);
        self.reach.failed(now, since);
        let mut carried = 0;
        if let Some(mut connection) = connection {
            let Engine { pool, recorder, kinds, reach, .. } = self;
            pool.abandon(&mut connection, |run| {
                carried += run.count;
                fail_unreached((recorder, kinds, reach), run, now, (why, &detail));
            });
        }
        if carried == 0 {
            self.fail_next(why, &detail, since, now);
        }
        let is_time = self.pool.opening.failed(now, self.reach.is_alone());
        // Attempts that found a port may yet succeed.
        let pending = why != Failure::Connect && self.pool.opening.open() > 0;
        if is_time && !pending && !self.board.reached() {
            self.board.give_up();
            self.given_up = Some(detail.clone());
        }
        self.last_refusal = Some((why, detail));
        self.fail_due(now);
    }

    /// An attempt at an address failed. The reason names the address if there are several.
    fn failed_at(&mut self, to: Option<SocketAddr>, kind: NetErrorKind, detail: String, now: Time) -> String {
        let Some(to) = to else { return detail };
        self.orders.addresses.failed(to, kind, now);
        let detail = match &self.orders.authority {
            Some(host) => format!("{detail}, at {host}"),
            None => detail,
        };
        if !self.orders.addresses.are_several() || connect_failure(kind) != Failure::Connect {
            return detail;
        }
        self.recorder.not_reached(to, &detail);
        format!("{detail}, at {to}")
    }

    /// In a closed loop each attempt that fails costs a request: one that waits to go out again, or the next one, which
    /// waited as long as the attempt took.
    fn fail_next(&mut self, why: Failure, detail: &str, since: Time, now: Time) {
        if self.orders.open_loop {
            return;
        }
        if let Some(run) = self.pool.pop_again(1) {
            return self.fail_unreached(&run, now, (why, detail));
        }
        self.fail_unsendable(why, detail, since, now);
    }

    /// In an open loop, while the server cannot be reached, each request fails when it is due.
    pub(crate) fn fail_due(&mut self, now: Time) {
        if !self.orders.open_loop || !self.reach.is_down() {
            return;
        }
        let Some((why, detail)) = self.last_refusal.take() else { return };
        let Engine { pool, recorder, kinds, reach, .. } = self;
        pool.give_up_again(|run, _| fail_unreached((recorder, kinds, reach), run, now, (why, &detail)));
        while self.fail_unsendable(why, &detail, now, now) {}
        self.last_refusal = Some((why, detail));
    }

    /// Takes the next request, as if it had been on the connection that failed. Says whether there was one.
    fn fail_unsendable(&mut self, why: Failure, detail: &str, since: Time, now: Time) -> bool {
        let Some(batch) = self.supply.take_unsendable(now) else { return false };
        let (kind, count) = self.kinds.pick(batch.first, 1);
        let stamp = Stamp { sent: since, due: batch.due, in_vain: 0, refused: 0, measured: batch.measured };
        let run = self.run_of(stamp, batch.first, count, kind);
        if batch.measured {
            self.recorder.sent(kind, count);
        }
        self.fail_unreached(&run, now, (why, detail));
        true
    }

    fn fail_unreached(&mut self, run: &Run, now: Time, why: (Failure, &str)) {
        fail_unreached((&mut self.recorder, &self.kinds, &mut self.reach), run, now, why);
    }

    /// Time is up: attempts to connect that still hang have failed. Those with a request on them are waited for like other requests,
    /// unless the server never said anything.
    pub(crate) fn give_up_hanging(&mut self, now: Time) {
        let silent = !self.recorder.has_heard();
        for slot in 0..self.pool.slots() {
            let Some(connection) = self.pool.at_mut(slot) else { continue };
            let hangs = !connection.established && now - connection.since >= HANGING;
            let (conn, idle) = (connection.conn, connection.conversation.in_flight() == 0);
            if hangs && (silent || idle) {
                self.lose(conn, Loss::TimedOut, now);
            }
        }
    }
}

/// A request has failed because there is no connection.
fn fail_unreached(
    (recorder, kinds, reach): (&mut Recorder, &Kinds, &mut Reach),
    run: &Run,
    now: Time,
    (why, detail): (Failure, &str),
) {
    if run.stamp.measured {
        reach.victim();
    }
    recorder.failed(run, now, (why, Some(detail)), kinds);
}

fn pick<A: Copy>(from: &[A], nth: u64) -> A {
    from[usize::try_from(nth % from.len() as u64).unwrap_or(0)]
}
