//! When connections are opened: up to the number wanted, a few in a turn, with pauses when it does no good.

use std::time::Duration;

use linerate_net::Time;

use crate::limits::{
    ASKED_AGAIN, ASKED_AT_FIRST, ASKED_AT_LEAST, ASKED_AT_MOST, DOWN_BACKOFF, FIRST_BACKOFF, LONGEST_BACKOFF,
    OPENED_PER_TURN,
};

/// Counts of connections and the pauses between attempts. Sans-IO.
#[derive(Debug)]
pub struct Opening {
    wanted: u32,
    open: u32,
    /// Of them, those that the peer has not answered yet, and how many may be.
    asked: u32,
    may_ask: u32,
    attempts: u64,
    failed: u32,
    not_before: Time,
    connect_pause: Duration,
    fruitless_pause: Duration,
}

impl Opening {
    /// For so many connections.
    pub fn new(wanted: u32) -> Opening {
        Opening {
            wanted,
            open: 0,
            asked: 0,
            may_ask: ASKED_AT_FIRST,
            attempts: 0,
            failed: 0,
            not_before: Time::ZERO,
            connect_pause: FIRST_BACKOFF,
            fruitless_pause: FIRST_BACKOFF,
        }
    }

    /// Connections open or being opened.
    pub fn open(&self) -> u32 {
        self.open
    }

    /// Whether connections are wanted that are neither open nor being opened.
    pub fn has_room(&self) -> bool {
        self.missing() > 0
    }

    /// Connections that are wanted and neither open nor being opened.
    fn missing(&self) -> u32 {
        self.wanted.saturating_sub(self.open)
    }

    /// Whether one more is wanted, and not too many wait for the peer.
    pub fn wants_more(&self) -> bool {
        self.has_room() && self.asked < self.may_ask
    }

    /// How many may be opened in this turn.
    ///
    /// All that are missing are tried in turn, each once, so that a server that refuses, or a machine
    /// that has nothing left to connect with, costs each of them a request.
    pub fn this_turn(&self, now: Time) -> u32 {
        let may = self.wants_more() && now >= self.not_before;
        if may { self.missing().min(OPENED_PER_TURN) } else { 0 }
    }

    /// The number of the attempt that follows, from 0.
    pub fn attempt(&mut self) -> u64 {
        let nth = self.attempts;
        self.attempts += 1;
        nth
    }

    /// When to look again; `Time::NEVER` when all are open, and while the peer has to answer first.
    pub fn next(&self, now: Time) -> Time {
        if self.wants_more() { self.not_before.max(now) } else { Time::NEVER }
    }

    /// A connection is being opened.
    pub fn asks(&mut self) {
        self.open += 1;
        self.asked += 1;
    }

    /// The peer has answered, or will not: others may be opened.
    pub fn answered(&mut self) {
        self.asked = self.asked.saturating_sub(1);
    }

    /// A connection is open after so long. The more answers come at once, the more may be asked for at once; one that had to ask
    /// again found no room at the peer or on the way, and each of those makes it fewer.
    pub fn opened(&mut self, took: Duration) {
        self.may_ask = if took < ASKED_AGAIN {
            (self.may_ask + 1).min(ASKED_AT_MOST)
        } else {
            (self.may_ask - self.may_ask / 64).max(ASKED_AT_LEAST)
        };
        self.connect_pause = FIRST_BACKOFF;
    }

    /// A connection is closed, or could not be opened.
    pub fn closed(&mut self) {
        self.open -= 1;
    }

    /// An answer came: the peer is alive.
    pub fn fruitful(&mut self) {
        self.fruitless_pause = FIRST_BACKOFF;
    }

    /// A connection ended without an answer. Many that end together are one reason to pause, not many.
    pub fn fruitless(&mut self, now: Time) {
        if now >= self.not_before {
            self.not_before = now + self.fruitless_pause;
            self.fruitless_pause = (self.fruitless_pause * 2).min(LONGEST_BACKOFF);
        }
    }

    /// A connection could not be opened; `alone`: no other is open. Says whether it is time to give up if none ever could.
    pub fn failed(&mut self, now: Time, alone: bool) -> bool {
        self.failed = self.failed.saturating_add(1);
        if now >= self.not_before {
            let longest = if alone { DOWN_BACKOFF } else { LONGEST_BACKOFF };
            self.not_before = now + self.connect_pause.min(longest);
            self.connect_pause = (self.connect_pause * 2).min(LONGEST_BACKOFF);
        }
        self.failed >= self.wanted.min(10)
    }

    /// The last open connection has ended: whether the server is still there is to be known soon.
    pub fn alone(&mut self, now: Time) {
        self.not_before = self.not_before.min(now + DOWN_BACKOFF);
    }
}
