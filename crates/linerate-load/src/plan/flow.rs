//! Flows: users that send one request after the other, and take values from the responses.

use std::time::Duration;

use linerate_base::Random;
use serde::{Deserialize, Serialize};

use super::invalid::InvalidPlan;
use super::limits::{MAX_CONNECTIONS, MAX_FOLLOW, MAX_THINK, USER_CONNECTIONS, USERS_AT_ONCE};
use super::rate::{Arrival, Rate};
use super::route::Lookup;
use super::target::Target;
use super::tls::TargetTls;
use super::units::quoted;

/// The flows of a plan. Its `requests` are then the steps of these flows.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct FlowPlan {
    /// Users at the same time, at most, over all threads (at least 1).
    pub users: u32,
    /// When they come.
    pub pace: UserPace,
    /// Each iteration has a connection of its own, and resumes no TLS session.
    pub own_connections: bool,
    /// How long iterations may go on after the end of the run.
    pub graceful: Duration,
    /// Stop once so many iterations have begun, over all threads.
    pub iterations: Option<u64>,
    /// Whether a user keeps its cookies from one iteration to the next.
    pub keep_cookies: bool,
    /// Functions that steps name.
    #[serde(default)]
    pub script: Option<PlanScript>,
    /// At least one.
    pub flows: Vec<UserFlow>,
    /// Where steps go that do not go to the plan's target.
    #[serde(default)]
    pub hosts: Vec<FlowHost>,
}

/// A host beside the plan's target.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FlowHost {
    /// Where it is. Its `url` is the scheme and the authority alone.
    pub target: Target,
    /// The name that is looked up again when no address can be reached.
    pub lookup: Option<Lookup>,
    /// TLS towards it; `None`: plain HTTP.
    pub tls: Option<TargetTls>,
}

/// A script in JavaScript, which exports functions.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PlanScript {
    /// Its file, as the plan writes it.
    pub file: String,
    /// The script itself.
    pub text: String,
}

/// The slot of a body that a script makes. No plan can write it: names have no colon.
pub(crate) const MADE_SLOT: &str = ":made";

/// Slots of what `sign` returns begin so.
pub(crate) const SIGN_PREFIX: &str = "sign.";

/// Functions of the plan's script that a step calls, by their names.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct StepHooks {
    /// Returns the body of a request.
    pub body: Option<String>,
    /// Sees a request, and returns what its slots `{{sign.NAME}}` are filled with.
    pub sign: Option<String>,
    /// Sees a response, and says what is wrong with it.
    pub judge: Option<String>,
    /// The slots of `sign` that the request has.
    pub uses: Vec<String>,
}

impl StepHooks {
    /// The functions that it names.
    pub fn functions(&self) -> impl Iterator<Item = &str> {
        [&self.body, &self.sign, &self.judge].into_iter().flatten().map(String::as_str)
    }

    /// Whether the request depends on the script.
    pub(crate) fn changes(&self) -> bool {
        self.body.is_some() || self.sign.is_some()
    }
}

/// When users come.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum UserPace {
    /// All at the start; each begins again when it has finished.
    Always,
    /// As many as the stages say at each time; each begins again as long as they want it.
    Stages(Rate),
    /// New ones at this rate, iterations/s, each for one iteration.
    Arriving(Rate, Arrival),
}

impl UserPace {
    /// Its stages or steps, if it has some.
    pub fn steps(&self) -> Option<&Rate> {
        match self {
            UserPace::Always => None,
            UserPace::Stages(steps) | UserPace::Arriving(steps, _) => Some(steps),
        }
    }
}

/// A number of users, or stages of it.
#[derive(Clone, Debug, PartialEq)]
pub struct UserCount {
    /// At the same time, at most.
    pub most: u32,
    /// How many at each time, if that changes.
    pub stages: Option<Rate>,
}

impl UserCount {
    /// Reads `1000` or `1..50@10s,50@60s`.
    ///
    /// # Errors
    /// In words, what would be right.
    pub fn parse(text: &str) -> Result<UserCount, InvalidPlan> {
        let is_count = |n: f64| n >= 1.0 && n <= MAX_CONNECTIONS as f64 && n.fract() == 0.0;
        let stages = Rate::parse(text).map_err(|why| {
            let why = why.to_string().replace("requests/s", "users");
            let why = why.strip_prefix("rate ").unwrap_or(&why).split(';').next().unwrap_or_default();
            format!("users {why}; write a number of users such as 100, or stages such as 1..50@10s,50@60s")
        })?;
        let most = stages.highest();
        let ends = stages.steps.iter().flat_map(|step| [step.from, step.to]);
        if !is_count(most) || ends.clone().any(|n| n != 0.0 && !is_count(n)) {
            return Err(format!(
                "users {}: numbers of users are whole, and at most {MAX_CONNECTIONS}",
                quoted(text)
            )
            .into());
        }
        let is_constant = stages.steps.len() == 1 && stages.duration().is_none();
        Ok(UserCount { most: most as u32, stages: (!is_constant).then_some(stages) })
    }
}

impl FlowPlan {
    /// So many users, in place of those it has, which a rate keeps as their limit.
    pub fn set_users(&mut self, users: UserCount) -> Result<(), InvalidPlan> {
        let is_arriving = matches!(self.pace, UserPace::Arriving(..));
        if is_arriving && users.stages.is_some() {
            return Err("with a rate of users, users is the most at the same time: a number".into());
        }
        self.users = users.most;
        if !is_arriving {
            self.pace = users.stages.map_or(UserPace::Always, UserPace::Stages);
        }
        Ok(())
    }

    /// Requests that a user may have in flight at once: those of the largest group (at least 1).
    pub fn widest(&self) -> usize {
        let groups = self.flows.iter().flat_map(|flow| {
            (0..flow.steps.len()).map(|first| {
                let members = &flow.steps[first..first + flow.group_at(first)];
                members.iter().map(|step| step.repeat as usize).sum::<usize>()
            })
        });
        groups.max().unwrap_or(1).max(1)
    }

    /// Users of a rate at the same time, at most, where nobody says how many.
    pub fn usual_users(&self) -> u32 {
        let each = self.widest().min(USER_CONNECTIONS) * (1 + self.hosts.len());
        USERS_AT_ONCE / u32::try_from(each).unwrap_or(1)
    }

    /// The number of the host that each of the plan's requests goes to; 0 is the plan's target.
    pub fn hosts_by_request(&self, requests: usize) -> Vec<usize> {
        let mut hosts = vec![0; requests];
        for step in self.flows.iter().flat_map(|flow| &flow.steps) {
            if let Some(host) = hosts.get_mut(step.request as usize) {
                *host = step.host as usize;
            }
        }
        hosts
    }

    /// Whether some step follows redirects.
    pub(crate) fn follows(&self) -> bool {
        self.flows.iter().flat_map(|flow| &flow.steps).any(|step| step.follow > 0)
    }

    /// All steps follow so many redirects.
    ///
    /// # Errors
    /// They are too many.
    pub fn set_follow(&mut self, follow: u32) -> Result<(), InvalidPlan> {
        if follow > MAX_FOLLOW {
            return Err(format!("at most {MAX_FOLLOW} redirects are followed, not {follow}").into());
        }
        self.flows.iter_mut().flat_map(|flow| &mut flow.steps).for_each(|step| step.follow = follow);
        Ok(())
    }

    /// The cells that the script makes for a request: its body, and what signing gives; none without a script.
    pub(crate) fn made_columns(&self) -> Vec<String> {
        if self.script.is_none() {
            return Vec::new();
        }
        let mut columns = vec![MADE_SLOT.to_owned()];
        for name in self.flows.iter().flat_map(|flow| &flow.steps).flat_map(|step| &step.hooks.uses) {
            if !columns.contains(name) {
                columns.push(name.clone());
            }
        }
        columns
    }

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

impl UserFlow {
    /// Steps of the group that begins with this one; 0: it is in none.
    pub(crate) fn group_at(&self, first: usize) -> usize {
        let Some(name) = self.steps.get(first).and_then(|step| step.group.as_ref()) else { return 0 };
        self.steps[first..].iter().take_while(|step| step.group.as_ref() == Some(name)).count()
    }
}

/// A request, and what follows from its response.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct FlowStep {
    /// Index into the plan's requests.
    pub request: u32,
    /// The host that it goes to: 0 is the plan's target, others are those of [`FlowPlan::hosts`] from 1 on.
    #[serde(default)]
    pub host: u32,
    /// How often in a row (at least 1).
    pub repeat: u32,
    /// What the response must be like, beside the request's own expectation.
    pub expect: Option<StepExpectation>,
    /// Redirects to follow before the response counts.
    pub follow: u32,
    /// Values to take from the response.
    pub take: Vec<TakeRule>,
    /// The pause after the response.
    pub think: Think,
    /// Steps of the same group that follow one another leave together. The pause is that of the last.
    pub group: Option<String>,
    /// Functions of the plan's script.
    #[serde(default)]
    pub hooks: StepHooks,
}

/// What the response to a step must be like.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct StepExpectation {
    /// Parts of the response, written as in `take`, and the text, number or `regex:PATTERN` that each
    /// must be; `None`: it must be there.
    pub parts: Vec<(String, Option<String>)>,
    /// A JSON Schema that the body must satisfy.
    #[serde(default)]
    pub schema: Option<SchemaText>,
    /// Longest time to the response, from when the request was due.
    pub max: Option<Duration>,
}

/// A JSON Schema (draft 2020-12 or draft-07).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SchemaText {
    /// The file that it comes from, as the plan writes it; `None`: it is in the plan.
    pub file: Option<String>,
    /// The schema itself, as JSON.
    pub text: String,
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
    pub fn parse(text: &str) -> Result<Think, InvalidPlan> {
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
