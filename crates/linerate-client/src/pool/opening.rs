//! When connections are opened: up to the number wanted, a few in a turn, with pauses when it does no good.

use std::time::Duration;

use linerate_net::Time;

use crate::limits::{
    ASKED_AGAIN, ASKED_AT_FIRST, ASKED_AT_LEAST, ASKED_AT_MOST, ASKED_BLINDLY, DOWN_BACKOFF, FIRST_BACKOFF,
    LATE_LEAST, LATE_MOST, LATE_SHARE, LONGEST_BACKOFF, OPENED_PER_TURN,
};

/// Counts of connections and the pauses between attempts. Sans-IO.
#[derive(Debug)]
pub struct Opening {
    wanted: u32,
    open: u32,
    /// Attempts to connect that are pending, and the limit for them.
    asked: u32,
    may_ask: u32,
    /// The limit that stays even where handshakes are late.
    blindly: u32,
    /// Time of the quickest handshake.
    quickest: Duration,
    attempts: u64,
    failed: u32,
    not_before: Time,
    connect_pause: Duration,
    fruitless_pause: Duration,
}

impl Opening {
    /// For `wanted` connections.
    pub fn new(wanted: u32) -> Opening {
        Opening {
            wanted,
            open: 0,
            asked: 0,
            may_ask: ASKED_AT_FIRST,
            blindly: ASKED_BLINDLY,
            quickest: Duration::MAX,
            attempts: 0,
            failed: 0,
            not_before: Time::ZERO,
            connect_pause: FIRST_BACKOFF,
            fruitless_pause: FIRST_BACKOFF,
        }
    }

    /// So many are wanted from now on. Those that are open stay.
    pub fn want(&mut self, wanted: u32) {
        self.wanted = wanted;
    }

    /// Connections open or being opened.
    pub fn open(&self) -> u32 {
        self.open
    }

    /// Attempts to connect that have not ended.
    pub fn pending(&self) -> u32 {
        self.asked
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

    /// When to look again; `Time::NEVER` when all are open, and while pending attempts are at their limit.
    pub fn next(&self, now: Time) -> Time {
        if self.wants_more() { self.not_before.max(now) } else { Time::NEVER }
    }

    /// A connection is being opened.
    pub fn asks(&mut self) {
        self.open += 1;
        self.asked += 1;
    }

    /// An attempt to connect ended, well or not: another may begin.
    pub fn answered(&mut self) {
        self.asked = self.asked.saturating_sub(1);
    }

    /// A connection is open after so long. The more answers come at once, the more may be asked for at once. Beyond some, answers
    /// that come late tell that a queue fills, and make it fewer. One that had to ask again found no room at the peer or on the
    /// way: each of those makes it fewer, and late answers count from there on.
    pub fn opened(&mut self, took: Duration) {
        self.quickest = self.quickest.min(took);
        let late = (self.quickest / LATE_SHARE).clamp(LATE_LEAST, LATE_MOST);
        if took >= ASKED_AGAIN {
            self.may_ask = (self.may_ask - self.may_ask / 64).max(ASKED_AT_LEAST);
            self.blindly = self.may_ask;
        } else if took <= self.quickest + late || self.may_ask < self.blindly {
            self.may_ask = (self.may_ask + 1).min(ASKED_AT_MOST);
        } else if took > self.quickest + 2 * late && self.may_ask > self.blindly {
            self.may_ask -= 1;
        }
        self.connect_pause = FIRST_BACKOFF;
    }

    /// A connection is closed, or could not be opened.
    pub fn closed(&mut self) {
        self.open -= 1;
    }

    /// A response came: the peer is alive.
    pub fn fruitful(&mut self) {
        self.fruitless_pause = FIRST_BACKOFF;
    }

    /// A connection ended without a response. Many that end together are one reason to pause, not many.
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

#[cfg(test)]
mod tests {
    use std::cmp::Reverse;
    use std::collections::BinaryHeap;

    use super::*;

    /// A line that takes a handshake every `each`, with a queue of `queue`. An attempt that finds it full is repeated
    /// after a second. Returns how many attempts were repeated, and when `wanted` connections were open.
    fn open_over(wanted: u32, round_trip: Duration, each: Duration, queue: u32) -> (u32, Duration) {
        let (round_trip, each) = (round_trip.as_nanos() as u64, each.as_nanos() as u64);
        let mut opening = Opening::new(wanted);
        // When the client hears next, by a handshake or its own timer, and when the connection was first attempted.
        let mut coming: BinaryHeap<Reverse<(u64, bool, u64)>> = BinaryHeap::new();
        let (mut now, mut free_at, mut again, mut done) = (0, 0, 0, 0);
        let ask = |now: u64, first: u64, free_at: &mut u64, again: &mut u32| {
            if free_at.saturating_sub(now) >= each * u64::from(queue) {
                *again += 1;
                return Reverse((now + 1_000_000_000, false, first));
            }
            *free_at = now.max(*free_at) + each;
            Reverse((*free_at + round_trip, true, first))
        };
        while done < wanted {
            for _ in 0..opening.this_turn(Time::from_nanos(now)) {
                if opening.wants_more() {
                    opening.asks();
                    coming.push(ask(now, now, &mut free_at, &mut again));
                }
            }
            let Some(Reverse((at, answered, first))) = coming.pop() else { panic!("nothing is asked for") };
            now = at;
            if answered {
                opening.answered();
                opening.opened(Duration::from_nanos(now - first));
                done += 1;
            } else {
                coming.push(ask(now, first, &mut free_at, &mut again));
            }
        }
        (again, Duration::from_nanos(now))
    }

    /// Lines that differ by a hundred times in how many handshakes are under way when they are full.
    #[test]
    fn a_hundred_thousand_are_opened_at_the_pace_of_the_line() {
        const MS: Duration = Duration::from_millis(1);
        const US: Duration = Duration::from_micros(1);
        for (round_trip, each, queue, again_at_most, within) in [
            (20 * MS, 20 * US, 500, 1000, 3000 * MS),
            (40 * MS, 5 * US, 2000, 0, 1500 * MS),
            (MS / 10, 5 * US, 1100, 0, 600 * MS),
            (2 * MS, 20 * US, 250, 2000, 3500 * MS),
        ] {
            let (again, took) = open_over(100_000, round_trip, each, queue);
            println!("{round_trip:?}, {each:?} each, {queue}: {again} again, all after {took:?}");
            assert!(again <= again_at_most && took <= within, "{round_trip:?}: {again} again, {took:?}");
        }
    }
}
