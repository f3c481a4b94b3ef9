//! Flows: users that send one request after the other, and take values from the responses.

use std::time::Duration;

use linerate_base::Random;
use serde::{Deserialize, Serialize};

use super::limits::MAX_THINK;

/// The flows of a plan. Its `requests` are then the steps of these flows.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct FlowPlan {
    /// Users at the same time, over all threads (at least 1).
    pub users: u32,
    /// Stop once so many iterations have begun, over all threads.
    pub iterations: Option<u64>,
    /// Whether a user keeps its cookies from one iteration to the next.
    pub keep_cookies: bool,
    /// At least one.
    pub flows: Vec<UserFlow>,
}

impl FlowPlan {
    /// The names of all values that are taken, each once.
    pub fn names(&self) -> Vec<String> {
        let mut names: Vec<String> = Vec::new();
        for take in self.flows.iter().flat_map(|flow| &flow.steps).flat_map(|step| &step.take) {
            if !names.contains(&take.name) {
                names.push(take.name.clone());
            }
        }
        names
    }
}

/// Steps that a user makes one after the other.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct UserFlow {
    /// Name in the report.
    pub name: String,
    /// Share of all iterations, relative to the other flows' weights (greater than 0).
    pub weight: f64,
    /// At least one.
    pub steps: Vec<FlowStep>,
}

/// A request, and what follows from its response.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct FlowStep {
    /// Index into the plan's requests.
    pub request: u32,
    /// How often in a row (at least 1).
    pub repeat: u32,
    /// Values to take from the response.
    pub take: Vec<TakeRule>,
    /// The pause after the response.
    pub think: Think,
}

/// A value to take.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TakeRule {
    /// Its name in slots.
    pub name: String,
    /// Where it comes from, as in the plan file: `json:$.token`.
    pub from: String,
}

/// How long a user pauses.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Think {
    /// Not at all.
    #[default]
    No,
    /// Always so long.
    Fixed(Duration),
    /// Evenly distributed between the two.
    Between(Duration, Duration),
    /// Exponentially distributed with this mean, at most ten times as long.
    Exponential(Duration),
}

impl Think {
    /// The next pause.
    pub(crate) fn next(self, random: &mut Random) -> Duration {
        match self {
            Think::No => Duration::ZERO,
            Think::Fixed(time) => time,
            Think::Between(from, to) => from + (to - from).mul_f64(random.unit()),
            Think::Exponential(mean) => mean.mul_f64(random.exponential().min(10.0)),
        }
    }

    /// Reads `"1s"`, `"1s..3s"` or `"exp:2s"`.
    ///
    /// # Errors
    /// In words, what would be right.
    pub fn parse(text: &str) -> Result<Think, super::InvalidPlan> {
        let wrong = |why: String| format!("think: {why}; write \"1s\", \"1s..3s\" or \"exp:2s\"");
        let read = |text: &str| {
            let time = super::units::parse_duration(text.trim()).map_err(|why| wrong(why.to_string()))?;
            if time > MAX_THINK { Err(wrong("a pause is at most 1h".to_owned())) } else { Ok(time) }
        };
        if let Some(mean) = text.strip_prefix("exp:") {
            return Ok(Think::Exponential(read(mean)?));
        }
        let Some((from, to)) = text.split_once("..") else { return Ok(Think::Fixed(read(text)?)) };
        let (from, to) = (read(from)?, read(to)?);
        if from > to {
            return Err(wrong(format!("{text} begins behind its end")).into());
        }
        Ok(Think::Between(from, to))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_are_read_and_drawn() {
        let second = Duration::from_secs(1);
        assert_eq!(Think::parse("1s"), Ok(Think::Fixed(second)));
        assert_eq!(Think::parse("500ms..1s"), Ok(Think::Between(second / 2, second)));
        assert_eq!(Think::parse("exp:1s"), Ok(Think::Exponential(second)));
        for text in ["", "s", "2s..1s", "1s..", "exp:", "exp:1s..2s", "2h"] {
            assert!(Think::parse(text).is_err(), "{text}");
        }
        let mut random = Random::new(1);
        for _ in 0..1000 {
            let pause = Think::Between(second, second * 3).next(&mut random);
            assert!((second..=second * 3).contains(&pause));
            assert!(Think::Exponential(second).next(&mut random) <= second * 10);
        }
    }
}
