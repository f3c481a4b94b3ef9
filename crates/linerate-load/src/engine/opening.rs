//! When connections are opened: up to the number wanted, a few in a turn, with pauses when it does no good.

use std::time::Duration;

use linerate_net::{ConnectOptions, NetError, Time, Transport};

use super::loss::{connect_failure, connect_words};
use super::session::Session;
use super::{Engine, Run};
use crate::limits::{FIRST_BACKOFF, LONGEST_BACKOFF, OPENED_PER_TURN};

/// Counts of connections and the pauses between attempts. Sans-IO.
#[derive(Debug)]
pub(crate) struct Opening {
    wanted: u32,
    open: u32,
    attempts: u64,
    failed: u32,
    ever_opened: bool,
    not_before: Time,
    connect_pause: Duration,
    fruitless_pause: Duration,
}

impl Opening {
    pub(crate) fn new(wanted: u32) -> Opening {
        Opening {
            wanted,
            open: 0,
            attempts: 0,
            failed: 0,
            ever_opened: false,
            not_before: Time::ZERO,
            connect_pause: FIRST_BACKOFF,
            fruitless_pause: FIRST_BACKOFF,
        }
    }

    /// Connections open or being opened.
    pub(crate) fn open(&self) -> u32 {
        self.open
    }

    pub(crate) fn has_room(&self) -> bool {
        self.open < self.wanted
    }

    fn may(&self, now: Time) -> bool {
        self.has_room() && now >= self.not_before
    }

    /// When to look again; `Time::NEVER` when all are open.
    pub(crate) fn next(&self, now: Time) -> Time {
        if self.has_room() { self.not_before.max(now) } else { Time::NEVER }
    }

    pub(crate) fn opened(&mut self) {
        self.ever_opened = true;
        self.connect_pause = FIRST_BACKOFF;
    }

    pub(crate) fn closed(&mut self) {
        self.open -= 1;
    }

    /// An answer came: the peer is alive.
    pub(crate) fn fruitful(&mut self) {
        self.fruitless_pause = FIRST_BACKOFF;
    }

    /// A connection ended without an answer. Many that end together are one reason to pause, not many.
    pub(crate) fn fruitless(&mut self, now: Time) {
        if now >= self.not_before {
            self.not_before = now + self.fruitless_pause;
            self.fruitless_pause = (self.fruitless_pause * 2).min(LONGEST_BACKOFF);
        }
    }

    /// A connection could not be opened. Says whether none ever could and it is time to give up.
    pub(crate) fn failed(&mut self, now: Time) -> bool {
        self.failed = self.failed.saturating_add(1);
        if now >= self.not_before {
            self.not_before = now + self.connect_pause;
            self.connect_pause = (self.connect_pause * 2).min(LONGEST_BACKOFF);
        }
        !self.ever_opened && self.failed >= self.wanted.min(10)
    }
}

impl<T: Transport> Engine<T> {
    /// Opens what is missing, a few at a time.
    pub(crate) fn open_some(&mut self, now: Time) {
        let mut opened = 0;
        while opened < OPENED_PER_TURN
            && self.unreachable.is_none()
            && self.opening.may(now)
            && self.is_needed(now)
        {
            opened += 1;
            self.open_one(now);
        }
    }

    /// Whether another connection would have something to carry.
    pub(crate) fn is_needed(&mut self, now: Time) -> bool {
        if !self.again.is_empty() {
            return true;
        }
        if self.stopping.is_some() || self.supply.ended() {
            return false;
        }
        // A connection for one request is opened when that is due, so that opening it is part of its latency.
        !self.is_short() || self.supply.next_due().is_none_or(|due| due <= now)
    }

    pub(crate) fn is_short(&self) -> bool {
        self.orders.per_connection == Some(1)
    }

    fn open_one(&mut self, now: Time) {
        let nth = self.opening.attempts;
        self.opening.attempts += 1;
        let to = pick(&self.orders.addresses, nth);
        let from = (!self.orders.from.is_empty()).then(|| pick(&self.orders.from, nth));
        let options = ConnectOptions { from, short: self.is_short() };
        let conn = match self.transport.connect(to, &options) {
            Ok(conn) => conn,
            Err(error) => return self.connect_failed(None, &error, now),
        };
        let budget = self.orders.per_connection.unwrap_or(u32::MAX).min(self.learnt.budget());
        if self.sessions.len() <= conn.slot() {
            self.sessions.resize_with(conn.slot() + 1, || None);
        }
        self.sessions[conn.slot()] = Some(Session::new(conn, now, budget));
        self.opening.open += 1;
        if self.is_short() {
            self.send_first(conn, now);
        }
    }

    /// The one request of a short connection is handed over at once: it leaves as soon as the connection is established.
    fn send_first(&mut self, conn: linerate_net::Conn, now: Time) {
        if let Some(run) = self.again.pop_front() {
            return self.send_again(conn, run, 1, now);
        }
        if let Some(batch) = self.take(now, 1) {
            self.send_batch(conn, batch, now);
        }
    }

    /// A connection could not be opened: the request it was for has failed.
    pub(crate) fn connect_failed(&mut self, session: Option<Session>, error: &NetError, now: Time) {
        self.recorder.connections.failed += 1;
        let why = connect_failure(error.kind);
        let detail = connect_words(error);
        let mut fresh = 0;
        if let Some(mut session) = session {
            for run in session.pipeline.drain() {
                self.in_flight -= u64::from(run.count);
                if run.stamp.sent < session.since {
                    self.again_or_unknown(run, false, why, &detail);
                } else {
                    fresh += run.count;
                    self.fail(&run, why, Some(&detail));
                }
            }
        }
        if fresh == 0 && self.again.is_empty() {
            self.fail_next(why, &detail, now);
        }
        if self.opening.failed(now) {
            self.unreachable = Some(detail);
        }
    }

    /// Takes the next request, as if it had been on the connection that failed.
    fn fail_next(&mut self, why: crate::outcome::Failure, detail: &str, now: Time) {
        let Some(batch) = self.supply.take(now, 1) else { return };
        let (kind, count) = self.kinds.pick(batch.first, 1);
        let stamp = super::Stamp { sent: now, due: batch.due, fruitless: 0, measured: batch.measured };
        let run: Run<super::Stamp> = self.run_of(stamp, batch.first, count, kind);
        if batch.measured {
            self.recorder.sent(kind, count);
        }
        self.fail(&run, why, Some(detail));
    }
}

fn pick<A: Copy>(from: &[A], nth: u64) -> A {
    from[usize::try_from(nth % from.len() as u64).unwrap_or(0)]
}
