//! A thread's measurements for metrics: responses by route, their durations, and the durations of
//! loop turns. Only that thread writes, without a lock; metrics read it on request. Switched off it
//! costs one branch.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use linerate_net::{Time, machine};

use crate::Route;
use crate::limits::ROUTE_NAMES;

/// With a single writer, no atomic addition is needed.
pub(crate) fn bump(counter: &AtomicU64, n: u64) {
    counter.store(counter.load(Relaxed).wrapping_add(n), Relaxed);
}

/// Upper ends of the histograms' buckets, in nanoseconds: from 0.1 ms to 10 s, as in Prometheus
/// clients, and finer below.
pub(crate) const BUCKETS: [u64; 16] = [
    100_000,
    250_000,
    500_000,
    1_000_000,
    2_500_000,
    5_000_000,
    10_000_000,
    25_000_000,
    50_000_000,
    100_000_000,
    250_000_000,
    500_000_000,
    1_000_000_000,
    2_500_000_000,
    5_000_000_000,
    10_000_000_000,
];

/// Status classes 1xx (never used by a response) to 5xx.
pub(crate) const CLASSES: usize = 5;

/// Durations by bucket; the last bucket has those beyond all ends.
#[derive(Debug, Default)]
pub(crate) struct Histogram {
    counts: [AtomicU64; BUCKETS.len() + 1],
    sum_ns: AtomicU64,
}

impl Histogram {
    fn record(&self, took: Duration, count: u64) {
        let ns = u64::try_from(took.as_nanos()).unwrap_or(u64::MAX);
        // Most durations are in the first few.
        let bucket = BUCKETS.iter().position(|end| ns <= *end).unwrap_or(BUCKETS.len());
        bump(&self.counts[bucket], count);
        bump(&self.sum_ns, ns.saturating_mul(count));
    }
}

/// Histograms as read, summed over threads.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Durations {
    pub(crate) counts: [u64; BUCKETS.len() + 1],
    pub(crate) sum_ns: u64,
}

impl Durations {
    pub(crate) fn add(&mut self, histogram: &Histogram) {
        for (sum, count) in self.counts.iter_mut().zip(&histogram.counts) {
            *sum += count.load(Relaxed);
        }
        self.sum_ns += histogram.sum_ns.load(Relaxed);
    }

    pub(crate) fn count(&self) -> u64 {
        self.counts.iter().sum()
    }
}

/// Measurements of one route.
#[derive(Debug, Default)]
pub(crate) struct RouteCounts {
    pub(crate) by_class: [AtomicU64; CLASSES],
    pub(crate) took: Histogram,
}

/// Measurements of a thread.
#[derive(Debug)]
pub(crate) struct Measured {
    /// Indexed by the route's number; few are used.
    routes: Box<[OnceLock<Box<RouteCounts>>]>,
    pub(crate) turns: Histogram,
    /// When the current turn of the loop began, in nanoseconds; 0: the loop waits.
    turn_began: AtomicU64,
}

impl Default for Measured {
    fn default() -> Self {
        Measured {
            routes: (0..ROUTE_NAMES).map(|_| OnceLock::new()).collect(),
            turns: Histogram::default(),
            turn_began: AtomicU64::new(0),
        }
    }
}

impl Measured {
    fn route(&self, route: Route) -> &RouteCounts {
        self.routes[usize::from(route.0) % ROUTE_NAMES].get_or_init(Box::default)
    }

    /// Routes that had responses.
    pub(crate) fn routes(&self) -> impl Iterator<Item = (Route, &RouteCounts)> {
        self.routes.iter().enumerate().filter_map(|(n, counts)| Some((Route(n as u16), &**counts.get()?)))
    }

    /// How long the current turn has lasted.
    pub(crate) fn in_turn(&self) -> Duration {
        match self.turn_began.load(Relaxed) {
            0 => Duration::ZERO,
            began => machine::monotonic_now() - Time::from_nanos(began),
        }
    }
}

/// The writing end, for the thread itself.
#[derive(Debug, Default)]
pub(crate) struct Meter {
    /// Responses of this turn to requests of this turn, by route: their duration is known when it
    /// ends.
    at_once: Vec<(Route, u64)>,
}

impl Meter {
    pub(crate) fn begin_turn(&mut self, measured: &Measured, now: Time) {
        measured.turn_began.store(now.as_nanos(), Relaxed);
    }

    /// Records a response in the turn of `now` to a request that was read in the turn of `began`.
    pub(crate) fn answered(
        &mut self,
        measured: &Measured,
        route: Route,
        status: u16,
        began: Time,
        now: Time,
    ) {
        let counts = measured.route(route);
        let class = usize::from(status / 100).clamp(1, CLASSES) - 1;
        bump(&counts.by_class[class], 1);
        if began < now {
            counts.took.record(now - began, 1);
            return;
        }
        match self.at_once.last_mut() {
            Some((last, count)) if *last == route => *count += 1,
            _ => self.at_once.push((route, 1)),
        }
    }

    pub(crate) fn end_turn(&mut self, measured: &Measured, began: Time, now: Time) {
        measured.turn_began.store(0, Relaxed);
        let took = now - began;
        measured.turns.record(took, 1);
        for (route, count) in self.at_once.drain(..) {
            measured.route(route).took.record(took, count);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn responses_of_a_turn_took_the_turn_and_those_that_waited_their_wait() {
        let (measured, mut meter) = (Measured::default(), Meter::default());
        let at = |us: u64| Time::from_nanos(us * 1000);
        let (one, other) = (Route::new("/one"), Route::new("/other"));
        meter.begin_turn(&measured, at(1_000_000));
        for route in [one, one, other, one] {
            meter.answered(&measured, route, 200, at(1_000_000), at(1_000_000));
        }
        meter.answered(&measured, other, 503, at(0), at(1_000_000));
        meter.end_turn(&measured, at(1_000_000), at(1_000_200));
        let of = |route| {
            let mut took = Durations::default();
            took.add(&measured.route(route).took);
            took
        };
        let (one, other) = (of(one), of(other));
        assert_eq!((one.counts[1], one.count(), one.sum_ns), (3, 3, 600_000));
        assert_eq!((other.counts[1], other.counts[12], other.sum_ns), (1, 1, 1_000_200_000));
        let classes: Vec<u64> = measured
            .routes()
            .flat_map(|(_, counts)| counts.by_class.iter().map(|n| n.load(Relaxed)))
            .collect();
        assert_eq!(classes, [0, 3, 0, 0, 0, 0, 1, 0, 0, 1]);
        assert_eq!(measured.in_turn(), Duration::ZERO);
    }
}
