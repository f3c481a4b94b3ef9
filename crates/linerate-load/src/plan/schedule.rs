//! One thread's share of the arrivals, in order, without storing them.

use super::curve::{Curve, Fraction};
use super::{Arrival, Pace};
use linerate_base::{Random, derive};

/// Due times of one of several threads, nanoseconds from the start, ascending.
///
/// Thread `t` of `T` takes requests number `t`, `t + T`, `t + 2T` and so on: evenly spaced arrivals
/// and traces are dealt out, so that all threads together make exactly the plan's arrivals. A
/// Poisson process is instead made of `T` independent ones of a `T`-th of the rate, whose union is
/// one of the whole rate.
#[derive(Clone, Debug)]
pub struct Schedule {
    source: StepSource,
    next: Option<u64>,
    popped: u64,
}

#[derive(Clone, Debug)]
enum StepSource {
    Even(Even),
    Curved { curve: Curve, thread: u64, threads: u64 },
    Poisson { curve: Curve, random: Random, sum: f64, threads: f64 },
    Trace(Vec<u64>),
}

impl Schedule {
    /// The share of `thread` (from 0) of `threads`; `None` for a closed loop, which has no
    /// schedule.
    pub fn new(pace: &Pace, seed: u64, thread: u32, threads: u32) -> Option<Schedule> {
        let (thread, threads) = (u64::from(thread), u64::from(threads.max(1)));
        let source = match pace {
            Pace::Closed => return None,
            Pace::Open { rate, arrival } => {
                let curve = Curve::new(rate);
                match (arrival, curve.only_constant()) {
                    (Arrival::Poisson, _) => {
                        let random = Random::new(derive(seed, thread));
                        StepSource::Poisson { curve, random, sum: 0.0, threads: threads as f64 }
                    }
                    (Arrival::Constant, Some(fraction)) => {
                        StepSource::Even(Even::new(fraction, thread, threads))
                    }
                    (Arrival::Constant, None) => StepSource::Curved { curve, thread, threads },
                }
            }
            Pace::Trace(times) => StepSource::Trace(
                times.iter().skip(thread as usize).step_by(threads as usize).copied().collect(),
            ),
        };
        let mut schedule = Schedule { source, next: None, popped: 0 };
        schedule.next = schedule.source.next(0);
        Some(schedule)
    }

    /// The time of the next arrival; `None` after the last one.
    #[inline]
    pub fn peek(&self) -> Option<u64> {
        self.next
    }

    /// Takes the next arrival and returns when it is due.
    #[inline]
    pub fn pop(&mut self) -> Option<u64> {
        let due = self.next?;
        self.popped += 1;
        self.next = self.source.next(self.popped);
        Some(due)
    }

    /// Arrivals taken so far.
    pub fn popped(&self) -> u64 {
        self.popped
    }

    /// How many of the arrivals not yet taken are due before `ns`.
    ///
    /// Costs the same however many they are, but for a Poisson process, where it walks over them.
    pub fn due_before(&self, ns: u64) -> u64 {
        match &self.source {
            _ if self.next.is_none_or(|due| due >= ns) => 0,
            StepSource::Even(even) => even.due_before(ns, self.popped),
            StepSource::Curved { curve, thread, threads } => {
                share(curve.due_before(ns), *thread, *threads).saturating_sub(self.popped)
            }
            StepSource::Poisson { .. } => {
                let mut walker = self.clone();
                while walker.next.is_some_and(|due| due < ns) {
                    walker.pop();
                }
                walker.popped - self.popped
            }
            StepSource::Trace(times) => {
                (times.partition_point(|due| *due < ns) as u64).saturating_sub(self.popped)
            }
        }
    }
}

impl StepSource {
    /// Arrival number `n` of this thread. Numbers must be consecutive.
    #[inline]
    fn next(&mut self, n: u64) -> Option<u64> {
        match self {
            StepSource::Even(even) => Some(even.next()),
            StepSource::Curved { curve, thread, threads } => {
                curve.due_ns(n.checked_mul(*threads)?.checked_add(*thread)?)
            }
            StepSource::Poisson { curve, random, sum, threads } => {
                *sum += random.exponential();
                curve.due_ns_at(*sum * *threads)
            }
            StepSource::Trace(times) => times.get(usize::try_from(n).ok()?).copied(),
        }
    }
}

/// How many of the first `all` requests are `thread`'s.
fn share(all: u64, thread: u64, threads: u64) -> u64 {
    all.saturating_sub(thread).div_ceil(threads)
}

/// A constant rate: each due time from the one before by an addition, exactly, as one divides by
/// hand.
#[derive(Clone, Debug)]
struct Even {
    fraction: Fraction,
    thread: u64,
    threads: u64,
    /// The value that `next` returns, with the remainder in parts of a nanosecond.
    due: u64,
    rest: u64,
    step: u64,
    step_rest: u64,
}

impl Even {
    fn new(fraction: Fraction, thread: u64, threads: u64) -> Even {
        let divided = |count: u64| {
            let parts = u128::from(fraction.parts);
            // Rates are at least a millionth and threads at most thousands: this is far from
            // overflowing.
            let nanos = u128::from(count).saturating_mul(1_000_000_000).saturating_mul(fraction.per);
            (u64::try_from(nanos / parts).unwrap_or(u64::MAX), (nanos % parts) as u64)
        };
        let (due, rest) = divided(thread);
        let (step, step_rest) = divided(threads);
        Even { fraction, thread, threads, due, rest, step, step_rest }
    }

    #[inline]
    fn next(&mut self) -> u64 {
        let due = self.due;
        self.rest += self.step_rest;
        let carry = self.rest >= self.fraction.parts;
        if carry {
            self.rest -= self.fraction.parts;
        }
        self.due = self.due.saturating_add(self.step).saturating_add(u64::from(carry));
        due
    }

    /// `k * 1e9 * per / parts < ns` for how many of this thread's `k`, less those taken.
    fn due_before(&self, ns: u64, taken: u64) -> u64 {
        let per_second = 1_000_000_000 * self.fraction.per;
        let all = (u128::from(ns) * u128::from(self.fraction.parts)).div_ceil(per_second);
        share(u64::try_from(all).unwrap_or(u64::MAX), self.thread, self.threads).saturating_sub(taken)
    }
}

#[cfg(test)]
mod tests;
