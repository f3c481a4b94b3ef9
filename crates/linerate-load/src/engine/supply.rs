//! Decides which request comes next and when it is due. Pace and stop are values.

use std::time::Duration;

use linerate_net::Time;

use crate::flows::journeys::{Journeys, UsersOf};
use crate::limits::UNSENT_ALONE;
use crate::plan::schedule::Schedule;

/// A core's share of the plan's requests. Sans-IO: told the time, it says what may leave.
#[derive(Debug)]
pub(crate) struct Supply {
    pace: Pacing,
    /// Measured requests that may still be taken.
    remaining: u64,
    next: u64,
    start: Time,
    measure_from: Time,
    stop_at: Time,
    /// When it stops by itself.
    last_at: Time,
    stopped: bool,
    unsent: u64,
    /// Of these, those that [`Supply::tell_unsent`] has not told yet.
    untold: u64,
    /// When the supply was stopped.
    stopped_at: Time,
    /// Due before this part of the run joined; when the first of them was, and when it joined.
    missed: u64,
    missed_from: Option<(Time, Time)>,
}

#[derive(Debug)]
enum Pacing {
    Closed,
    /// A closed loop whose requests leave at least so far apart.
    Held {
        gap: Duration,
        next: Time,
    },
    Scheduled(Schedule),
    /// As users go on.
    Users(Journeys),
}

/// What a held loop may make up for when its thread was late. Reason: without it timers alone would
/// hold it further below its rate; more would be a burst.
const MADE_UP: Duration = Duration::from_millis(10);

/// Requests that may leave now: consecutive numbers of this core, all due at the same time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct DueBatch {
    pub(crate) first: u64,
    pub(crate) count: u32,
    pub(crate) due: Time,
    pub(crate) measured: bool,
}

impl Supply {
    /// `requests`: this core's share of measured requests, `u64::MAX` for no limit. `stop_at`:
    /// `Time::NEVER` for none.
    pub(crate) fn new(
        schedule: Option<Schedule>,
        requests: u64,
        start: Time,
        measure_from: Time,
        stop_at: Time,
    ) -> Supply {
        let pace = schedule.map_or(Pacing::Closed, Pacing::Scheduled);
        Supply {
            pace,
            remaining: requests,
            next: 0,
            start,
            measure_from,
            stop_at,
            last_at: stop_at,
            stopped: false,
            unsent: 0,
            untold: 0,
            stopped_at: Time::ZERO,
            missed: 0,
            missed_from: None,
        }
    }

    /// A closed loop sends at most one request in each `gap`.
    pub(crate) fn hold(&mut self, gap: Duration) {
        if matches!(self.pace, Pacing::Closed) {
            self.pace = Pacing::Held { gap, next: self.start };
        }
    }

    /// Requests are those of users, whose iterations may go on after the end for this long.
    pub(crate) fn follow(&mut self, users: Journeys, graceful: Duration) {
        users.start(self.start, self.measure_from);
        self.pace = Pacing::Users(users);
        self.last_at = self.stop_at + graceful;
    }

    /// Joins a run late. Others have accounted for what was due before `accounted`, and for `sent`
    /// requests of a closed loop; what was due from then until `from` is unsent.
    pub(crate) fn join(&mut self, accounted: Time, from: Time, sent: u64) {
        if let Pacing::Users(users) = &self.pace {
            return users.join(from);
        }
        let Pacing::Scheduled(schedule) = &mut self.pace else {
            self.next += sent;
            if self.remaining != u64::MAX {
                self.remaining = self.remaining.saturating_sub(sent);
            }
            return;
        };
        while let Some(due) = schedule.peek().map(|ns| at(self.start, ns)) {
            if due >= from.min(self.stop_at) || self.remaining == 0 {
                break;
            }
            schedule.pop();
            self.next += 1;
            if due < self.measure_from {
                continue;
            }
            if due >= accounted {
                self.missed += 1;
                self.missed_from.get_or_insert((due, from));
            }
            if self.remaining != u64::MAX {
                self.remaining -= 1;
            }
        }
    }

    /// Takes up to `most` requests that are due at `now`.
    #[inline]
    pub(crate) fn take(&mut self, now: Time, most: u32) -> Option<DueBatch> {
        self.take_until(now, most, self.stop_at)
    }

    /// Takes the request of a user that is due at `now`.
    pub(crate) fn take_of(&mut self, now: Time, of: UsersOf) -> Option<DueBatch> {
        let Pacing::Users(users) = &self.pace else { return None };
        if now >= self.stop_at {
            users.close(self.stop_at);
        }
        let (first, due) = if now < self.last_at { users.take(now, of)? } else { return None };
        Some(DueBatch { first, count: 1, due, measured: due >= self.measure_from })
    }

    /// Takes one that cannot be sent. In a closed loop an attempt to connect may fail just when
    /// time is up.
    pub(crate) fn take_unsendable(&mut self, now: Time) -> Option<DueBatch> {
        self.take_until(now, 1, Time::NEVER)
    }

    #[inline]
    fn take_until(&mut self, now: Time, most: u32, closed_until: Time) -> Option<DueBatch> {
        if self.stopped || most == 0 || self.remaining == 0 {
            return None;
        }
        let (due, count) = match &mut self.pace {
            Pacing::Closed | Pacing::Held { .. } if now >= closed_until => return None,
            Pacing::Closed => (now, most),
            Pacing::Held { next, .. } if now < *next => return None,
            Pacing::Held { gap, next } => {
                let earliest = Time::from_nanos(now.as_nanos().saturating_sub(MADE_UP.as_nanos() as u64));
                *next = (*next + *gap).max(earliest);
                (now, 1)
            }
            Pacing::Users(_) => return self.take_of(now, UsersOf::Anyone),
            Pacing::Scheduled(schedule) => {
                let due = at(self.start, schedule.peek()?);
                if due > now || due >= self.stop_at {
                    return None;
                }
                schedule.pop();
                (due, 1)
            }
        };
        let measured = due >= self.measure_from;
        let count =
            if measured { count.min(u32::try_from(self.remaining).unwrap_or(u32::MAX)) } else { count };
        if measured && self.remaining != u64::MAX {
            self.remaining -= u64::from(count);
        }
        let first = self.next;
        self.next += u64::from(count);
        Some(DueBatch { first, count, due, measured })
    }

    /// When the next request is due; `None` in a closed loop and when there is none.
    pub(crate) fn next_due(&mut self) -> Option<Time> {
        if self.ended() {
            return None;
        }
        match &mut self.pace {
            Pacing::Closed => None,
            Pacing::Held { next, .. } => Some(*next).filter(|next| *next < self.stop_at),
            Pacing::Users(users) => users.next_due(UsersOf::Anyone),
            Pacing::Scheduled(s) => s.peek().map(|ns| at(self.start, ns)).filter(|due| *due < self.stop_at),
        }
    }

    /// Whether the supply has no further request.
    pub(crate) fn ended(&mut self) -> bool {
        self.stopped
            || self.remaining == 0
            || match &mut self.pace {
                Pacing::Closed | Pacing::Held { .. } => false,
                Pacing::Users(users) => users.is_over(),
                Pacing::Scheduled(s) => s.peek().is_none_or(|ns| at(self.start, ns) >= self.stop_at),
            }
    }

    /// Stops the supply: requests that were due and not sent by now are `unsent`.
    pub(crate) fn stop(&mut self, now: Time) {
        if self.stopped {
            return;
        }
        self.stopped = true;
        self.stopped_at = now.min(self.last_at);
        if let Pacing::Users(users) = &self.pace {
            users.stop();
        }
        if let Pacing::Scheduled(schedule) = &mut self.pace {
            let until = now.min(self.stop_at).nanos_since(self.start);
            let warm = self.measure_from.nanos_since(self.start);
            while schedule.peek().is_some_and(|due| due < warm && due < until) {
                schedule.pop();
                self.next += 1;
            }
            self.unsent = schedule.due_before(until).min(self.remaining);
            self.untold = self.unsent;
        }
    }

    /// After the stop and before they are told: requests that were due and never sent, and of the rest of the run those that were due
    /// before this part joined it.
    pub(crate) fn untold(&self) -> (u64, u64) {
        (self.untold, if self.missed_from.is_some() { self.missed } else { 0 })
    }

    /// Tells once, after the stop, which requests were due and never sent: their numbers where they have one of this core, how
    /// long each was waited for, and how many they are.
    pub(crate) fn tell_unsent(&mut self, mut tell: impl FnMut(Option<u64>, Duration, u64)) {
        let end = self.stopped_at;
        let untold = std::mem::take(&mut self.untold);
        if let Some((first, joined)) = self.missed_from.take() {
            tell(None, end - first, 1);
            tell(None, end - joined, self.missed - 1);
        }
        let Pacing::Scheduled(schedule) = &mut self.pace else { return };
        for n in 0..untold.min(UNSENT_ALONE) {
            let due = schedule.peek().map_or(end, |ns| at(self.start, ns));
            schedule.pop();
            tell(Some(self.next + n), end - due, 1);
        }
        // Those that were due last: they were waited for at least so long.
        tell(None, Duration::ZERO, untold.saturating_sub(UNSENT_ALONE));
    }

    /// Measured requests that are due by now and have not left.
    pub(crate) fn overdue(&self, now: Time) -> u64 {
        let Pacing::Scheduled(schedule) = &self.pace else { return 0 };
        let warm = schedule.due_before(self.measure_from.nanos_since(self.start));
        let due = schedule.due_before(now.min(self.stop_at).nanos_since(self.start)).saturating_sub(warm);
        self.missed + if self.stopped { self.unsent } else { due.min(self.remaining) }
    }

    /// Whether the time ended it, not the number of requests.
    pub(crate) fn ran_out_of_time(&self) -> bool {
        self.remaining > 0 && !matches!(&self.pace, Pacing::Users(users) if users.is_over())
    }

    /// When the time given ends.
    pub(crate) fn stop_at(&self) -> Time {
        self.stop_at
    }

    /// When it stops by itself: iterations of users may go on for a while.
    pub(crate) fn last_at(&self) -> Time {
        self.last_at
    }

    /// The time given is over: no iteration of a user begins any more.
    pub(crate) fn close(&self) {
        if let Pacing::Users(users) = &self.pace {
            users.close(self.stop_at);
        }
    }
}

fn at(start: Time, nanos: u64) -> Time {
    Time::from_nanos(start.as_nanos().saturating_add(nanos))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::{Arrival, Pace, Rate};

    const SECOND: u64 = 1_000_000_000;

    fn supply(requests: u64) -> Supply {
        let pace = Pace::Open { rate: Rate::constant(100.0), arrival: Arrival::Constant };
        let schedule = Schedule::new(&pace, 1, 1, 2);
        let from = |seconds: u64| Time::from_nanos((100 + seconds) * SECOND);
        Supply::new(schedule, requests, from(0), from(1), from(11))
    }

    fn take_all(supply: &mut Supply) -> Vec<DueBatch> {
        let end = Time::from_nanos(200 * SECOND);
        std::iter::from_fn(|| supply.take(end, 1)).collect()
    }

    fn unsent(supply: &mut Supply) -> u64 {
        let mut all = 0;
        supply.tell_unsent(|_, _, n| all += n);
        all
    }

    #[test]
    fn each_unsent_request_has_its_number_and_its_wait() {
        let mut supply = supply(u64::MAX);
        let at = |ms: u64| Time::from_nanos(100 * SECOND + ms * 1_000_000);
        // 50 requests a second, of which those of the warm-up do not count.
        let taken = std::iter::from_fn(|| supply.take(at(1500), 1)).count() as u64;
        supply.stop(at(1600));
        let mut told = Vec::new();
        supply
            .tell_unsent(|number, waited, n| told.extend((n > 0).then_some((number, waited.as_millis(), n))));
        let numbers: Vec<_> = told.iter().filter_map(|(number, _, _)| *number).collect();
        assert_eq!(numbers, (taken..taken + 5).collect::<Vec<_>>());
        assert!(told.iter().all(|(_, _, n)| *n == 1) && told.is_sorted_by(|a, b| a.1 > b.1), "{told:?}");
        assert!((80..=100).contains(&told[0].1), "{told:?}");
    }

    /// The schedule, divided: sent by the first part, by none, and by the second part.
    #[test]
    fn a_part_that_joins_sends_the_rest_of_the_schedule() {
        let at = |ms: u64| Time::from_nanos(100 * SECOND + ms * 1_000_000);
        for (requests, accounted, from) in
            [(u64::MAX, 3000, 5000), (u64::MAX, 0, 4000), (300, 5000, 6500), (100, 9000, 9000)]
        {
            let whole = take_all(&mut supply(requests));
            let mut late = supply(requests);
            late.join(at(accounted), at(from), 0);
            let measured = |b: &&DueBatch| b.measured;
            let missed = whole.iter().filter(measured).filter(|b| b.due >= at(accounted) && b.due < at(from));
            let missed = missed.count() as u64;
            assert_eq!(late.overdue(at(from)), missed);
            let taken = take_all(&mut late);
            let rest: Vec<_> = whole.into_iter().filter(|b| b.due >= at(from)).collect();
            assert_eq!(taken, rest);
            late.stop(at(20_000));
            assert_eq!(unsent(&mut late), missed, "{requests} {accounted} {from}");
            assert_eq!(unsent(&mut late), 0, "each is told once");
        }
    }

    #[test]
    fn a_closed_loop_continues_behind_what_was_sent() {
        let mut late = Supply::new(None, 50, Time::ZERO, Time::ZERO, Time::NEVER);
        late.join(Time::ZERO, Time::from_nanos(SECOND), 30);
        let batch = late.take(Time::from_nanos(SECOND), 100).unwrap();
        assert_eq!((batch.first, batch.count), (30, 20));
        assert!(late.ended() && unsent(&mut late) == 0);
    }
}
