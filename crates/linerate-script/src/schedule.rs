//! When iterations begin, and how many users are wanted. No clock.

use std::time::Duration;

use crate::options::RateStage;

/// When iterations begin at a rate that changes.
#[derive(Clone, Debug)]
pub struct IterationArrivals {
    stages: Vec<RateStage>,
    start: f64,
    next: u64,
    /// The stage that the next one is in, when that began, the rate then, and iterations until then.
    stage: usize,
    since: f64,
    rate: f64,
    before: f64,
}

impl IterationArrivals {
    /// From a rate (iterations/s) through stages.
    pub fn new(start: f64, stages: &[RateStage]) -> IterationArrivals {
        IterationArrivals {
            stages: stages.to_vec(),
            start,
            next: 0,
            stage: 0,
            since: 0.0,
            rate: start,
            before: 0.0,
        }
    }

    /// When the next iteration begins; `None`: none does.
    fn peek(&mut self) -> Option<Duration> {
        loop {
            let stage = self.stages.get(self.stage)?;
            let (time, wanted) = (stage.time.as_secs_f64(), self.next as f64 - self.before);
            let all = (self.rate + stage.target) / 2.0 * time;
            // The last one of a stage is due just before its end.
            if wanted < all - 1e-9 {
                let slope = if time > 0.0 { (stage.target - self.rate) / time } else { 0.0 };
                let root = (self.rate * self.rate + 2.0 * slope * wanted).max(0.0).sqrt();
                // Of rate t + slope t²/2 = wanted, in the form that bears a slope of 0.
                let sum = self.rate + root;
                let at = if wanted <= 0.0 { 0.0 } else { 2.0 * wanted / sum };
                return Some(Duration::from_secs_f64(self.since + at));
            }
            self.since += time;
            self.before += all;
            self.rate = stage.target;
            self.stage += 1;
        }
    }
}

impl Iterator for IterationArrivals {
    type Item = Duration;

    fn next(&mut self) -> Option<Duration> {
        let at = self.peek()?;
        self.next += 1;
        Some(at)
    }
}

impl IterationArrivals {
    /// The rate at the start, iterations/s.
    pub fn start_rate(&self) -> f64 {
        self.start
    }
}

/// How many users are wanted at `at`, and `None` once all stages are over.
pub fn wanted_users(start: u32, stages: &[RateStage], at: Duration) -> Option<u32> {
    let (mut from, mut since) = (f64::from(start), Duration::ZERO);
    for stage in stages {
        if at < since + stage.time {
            let share = (at - since).as_secs_f64() / stage.time.as_secs_f64();
            let users = from + (stage.target - from) * share;
            return Some(
                if stage.target >= from { (users + 1e-9).floor() } else { (users - 1e-9).ceil() } as u32
            );
        }
        (from, since) = (stage.target, since + stage.time);
    }
    None
}

/// From `at` on, when the user of this number (from 0) is wanted first; `None`: never again.
pub fn wanted_from(start: u32, stages: &[RateStage], user: u32, at: Duration) -> Option<Duration> {
    if wanted_users(start, stages, at)? > user {
        return Some(at);
    }
    let (mut from, mut since, place) = (f64::from(start), Duration::ZERO, f64::from(user) + 1.0);
    for stage in stages {
        let end = since + stage.time;
        if end > at && stage.target >= place {
            let reached = match from >= place {
                true => since,
                false => since + stage.time.mul_f64((place - from) / (stage.target - from)),
            };
            return Some(reached.max(at));
        }
        (from, since) = (stage.target, end);
    }
    None
}

/// From `at` on, when the user of this number is wanted no more.
pub fn wanted_until(start: u32, stages: &[RateStage], user: u32, at: Duration) -> Duration {
    let (mut from, mut since, place) = (f64::from(start), Duration::ZERO, f64::from(user));
    for stage in stages {
        let end = since + stage.time;
        if end > at && stage.target <= place {
            let left = match from <= place {
                true => since,
                false => since + stage.time.mul_f64((from - place) / (from - stage.target)),
            };
            return left.max(at);
        }
        (from, since) = (stage.target, end);
    }
    since
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stage(seconds: u64, target: f64) -> RateStage {
        RateStage { time: Duration::from_secs(seconds), target }
    }

    #[test]
    fn a_constant_rate_is_even() {
        let all: Vec<_> = IterationArrivals::new(5.0, &[stage(2, 5.0)]).collect();
        assert_eq!(all.len(), 10);
        assert!(all.iter().enumerate().all(|(n, at)| at.as_millis().abs_diff(n as u128 * 200) <= 1));
    }

    #[test]
    fn a_rate_that_grows_and_falls_has_as_many_as_its_area() {
        let all: Vec<_> =
            IterationArrivals::new(0.0, &[stage(10, 20.0), stage(0, 5.0), stage(4, 5.0), stage(10, 0.0)])
                .collect();
        assert!(all.len().abs_diff(100 + 20 + 25) <= 1, "{}", all.len());
        assert!(all.is_sorted());
        let early = all.iter().filter(|at| at.as_secs() < 5).count();
        assert!(early.abs_diff(25) <= 1, "{early}");
    }

    #[test]
    fn users_come_and_go_with_the_stages() {
        let stages = [stage(10, 10.0), stage(5, 10.0), stage(10, 0.0)];
        let at = Duration::from_secs;
        let wanted = |s| wanted_users(0, &stages, at(s));
        assert_eq!([0, 1, 5, 12, 15, 20, 24].map(wanted), [0, 1, 5, 10, 10, 5, 1].map(Some));
        assert_eq!(wanted(25), None);
        assert_eq!(wanted_from(0, &stages, 4, at(0)), Some(at(5)));
        assert_eq!(wanted_until(0, &stages, 4, at(5)), at(21));
        assert_eq!(wanted_from(0, &stages, 4, at(22)), None);
    }
}
