//! Rates over time: as people write them, and when they make the n-th request due.

use std::fmt;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::curve::Curve;
use super::invalid::InvalidPlan;
use super::limits::{MAX_RATE, MAX_RATE_STEPS, MIN_RATE};
use super::units::{parse_duration, parse_scaled, quoted, shown_duration};

/// How arrivals are spaced.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Arrival {
    /// Evenly.
    #[default]
    Constant,
    /// A Poisson process: what many independent users do.
    Poisson,
}

/// A rate over time: straight lines, one after the other. It ends with the last, unless that one has no end.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Rate {
    /// At least one.
    pub steps: Vec<RateStep>,
}

/// From one rate to another over a time, requests/s.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct RateStep {
    /// At its start.
    pub from: f64,
    /// At its end.
    pub to: f64,
    /// How long; `None` only for a constant last step (for ever).
    pub lasts: Option<Duration>,
}

/// The forms of a rate, for messages.
const EXAMPLES: &str =
    "write requests per second such as 500, 50k or 1.5M, or steps such as 0..5000@30s,5000@60s";

impl Rate {
    /// A rate that never changes and never ends, requests/s.
    pub fn constant(per_second: f64) -> Rate {
        Rate { steps: vec![RateStep { from: per_second, to: per_second, lasts: None }] }
    }

    /// Reads `50k`, `1.5M`, `0..5000@30s,5000@60s`. The error names the place and what would be
    /// right.
    ///
    /// ```
    /// use linerate_load::plan::Rate;
    ///
    /// // From nothing to 5,000/s in 30 s, then a minute at 5,000/s.
    /// let rate = Rate::parse("0..5000@30s,5000@60s")?;
    /// assert_eq!(rate.total(), Some(375_000.0));
    /// # Ok::<(), linerate_load::plan::InvalidPlan>(())
    /// ```
    pub fn parse(text: &str) -> Result<Rate, InvalidPlan> {
        if text.trim().is_empty() {
            return Err(format!("the rate is empty; {EXAMPLES}").into());
        }
        let parts: Vec<&str> = text.split(',').map(str::trim).collect();
        if parts.len() > MAX_RATE_STEPS {
            return Err(
                format!("the rate has {} steps; at most {MAX_RATE_STEPS} are possible", parts.len()).into()
            );
        }
        let place = |index: usize| match parts.len() {
            1 => format!("rate {}", quoted(text)),
            n => format!("rate {}, step {} of {n}", quoted(text), index + 1),
        };
        let mut steps = Vec::with_capacity(parts.len());
        for (index, part) in parts.iter().enumerate() {
            let step = parse_step(part).map_err(|why| format!("{}: {why}", place(index)))?;
            if step.lasts.is_none() && index + 1 < parts.len() {
                let why = format!(
                    "only the last step may go on for ever; say how long {} lasts: {part}@30s",
                    quoted(part)
                );
                return Err(format!("{}: {why}", place(index)).into());
            }
            steps.push(step);
        }
        let rate = Rate { steps };
        rate.check().map_err(|why| format!("rate {}: {why}", quoted(text)))?;
        Ok(rate)
    }

    /// Whether it can be followed: steps there, numbers in range, somewhere above zero. The error
    /// says what isn't.
    pub fn check(&self) -> Result<(), InvalidPlan> {
        let in_range = |r: f64| r == 0.0 || (MIN_RATE..=MAX_RATE).contains(&r);
        for step in &self.steps {
            if let Some(r) = [step.from, step.to].into_iter().find(|r| !in_range(*r)) {
                return Err(
                    format!("{r} requests/s is out of range; a rate is 0, or {MIN_RATE} to 1G").into()
                );
            }
            if step.lasts.is_none() && step.from != step.to {
                return Err("a step from one rate to another needs a duration".into());
            }
        }
        if self.steps.iter().all(|s| s.from == 0.0 && s.to == 0.0) {
            return Err(format!("0 requests/s sends nothing; {EXAMPLES}").into());
        }
        Ok(())
    }

    /// When request number `k` (from 0) is due, nanoseconds from the start: the moment at which
    /// more than `k` requests have become due, the integral of the rate. `None` when the rate ends
    /// before.
    ///
    /// Never decreases with `k`; at a constant rate R exactly `k * 1e9 / R`, rounded down. Sets up
    /// the whole curve for each call: a [`Schedule`](super::schedule::Schedule) does so once.
    pub fn due_ns(&self, k: u64) -> Option<u64> {
        Curve::new(self).due_ns(k)
    }

    /// When the integral of the rate exceeds `cumulative` requests, nanoseconds from the start;
    /// `None` when it never does. Turns a Poisson process of rate one into one of this rate.
    pub fn due_ns_at(&self, cumulative: f64) -> Option<u64> {
        Curve::new(self).due_ns_at(cumulative)
    }

    /// The integral over all of it: how many requests it makes; `None` when it never ends.
    pub fn total(&self) -> Option<f64> {
        Curve::new(self).total()
    }

    /// How long all of it lasts; `None` when it never ends.
    pub fn duration(&self) -> Option<Duration> {
        self.steps
            .iter()
            .map(|s| s.lasts)
            .try_fold(Duration::ZERO, |sum, lasts| Some(sum.saturating_add(lasts?)))
    }

    /// The rate of the plan at a time from the start, requests/s; 0 after the end.
    pub fn at(&self, time: Duration) -> f64 {
        let mut start = Duration::ZERO;
        for step in &self.steps {
            let Some(lasts) = step.lasts else { return step.to };
            let into = time.saturating_sub(start);
            if into < lasts {
                return step.from + (step.to - step.from) * into.as_secs_f64() / lasts.as_secs_f64();
            }
            start += lasts;
        }
        0.0
    }

    /// The first time from `from` on at which it is at least `level`; `None`: it never is again.
    pub(crate) fn reaches(&self, level: f64, from: Duration) -> Option<Duration> {
        let mut start = Duration::ZERO;
        for step in &self.steps {
            let end = step.lasts.map_or(Duration::MAX, |lasts| start.saturating_add(lasts));
            let first = from.max(start);
            if first < end {
                if self.at(first) >= level {
                    return Some(first);
                }
                if let (Some(lasts), true) = (step.lasts, step.to >= level && step.to > step.from) {
                    let share = (level - step.from) / (step.to - step.from);
                    // Rounding must not put it just below the level.
                    let at = start + lasts.mul_f64(share.clamp(0.0, 1.0)) + Duration::from_nanos(1);
                    if at < end {
                        return Some(at.max(first));
                    }
                }
            }
            start = end;
        }
        None
    }

    /// The highest rate anywhere in it, requests/s.
    pub fn highest(&self) -> f64 {
        self.steps.iter().map(|s| s.from.max(s.to)).fold(0.0, f64::max)
    }
}

/// `5000`, `5000@60s`, `0..5000@30s`; each number may be followed by `/s`.
fn parse_step(text: &str) -> Result<RateStep, String> {
    let (rates, lasts) = match text.split_once('@') {
        Some((rates, lasts)) => {
            (rates, Some(parse_duration(lasts).map_err(|why| format!("the duration {why}"))?))
        }
        None => (text, None),
    };
    if lasts == Some(Duration::ZERO) {
        return Err("a step cannot last 0s".to_owned());
    }
    let (from, to) = match rates.split_once("..") {
        Some((from, to)) => (parse_rate(from)?, parse_rate(to)?),
        None => {
            let rate = parse_rate(rates)?;
            (rate, rate)
        }
    };
    if lasts.is_none() && from != to {
        return Err(format!("say how long the change from one rate to the other takes: {text}@30s"));
    }
    Ok(RateStep { from, to, lasts })
}

fn parse_rate(text: &str) -> Result<f64, String> {
    let trimmed = text.trim();
    let number = trimmed.strip_suffix("/s").unwrap_or(trimmed);
    parse_scaled(number).ok_or_else(|| format!("{} is not a number; {EXAMPLES}", quoted(trimmed)))
}

/// As [`Rate::parse`] reads it.
impl fmt::Display for Rate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, step) in self.steps.iter().enumerate() {
            if index > 0 {
                f.write_str(",")?;
            }
            write!(f, "{}", step.from)?;
            if step.from != step.to {
                write!(f, "..{}", step.to)?;
            }
            if let Some(lasts) = step.lasts {
                write!(f, "@{}", shown_duration(lasts))?;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
