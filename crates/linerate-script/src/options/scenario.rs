//! Scenarios: which users run what, and when.

use std::time::Duration;

use serde_json::{Map, Value};

use super::reader::OptionReader;

/// Users and what they run.
#[derive(Clone, Debug, PartialEq)]
pub struct UserScenario {
    /// Its name.
    pub name: String,
    /// How many users run how often.
    pub executor: Executor,
    /// From the start of the run.
    pub start: Duration,
    /// How long iterations may go on after its end.
    pub graceful_stop: Duration,
    /// The function.
    pub exec: String,
    /// Variables, in place of those of the run.
    pub env: Vec<(String, String)>,
    /// Tags of its samples.
    pub tags: Vec<(String, String)>,
}

/// Within this time a number of users, or a rate, goes evenly to `target`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct RateStage {
    /// 0: at once.
    pub time: Duration,
    /// At its end.
    pub target: f64,
}

/// How many users run how often.
#[derive(Clone, Debug, PartialEq)]
pub enum Executor {
    /// So many, one iteration after the other.
    ConstantVus {
        /// Users.
        vus: u32,
        /// For so long.
        duration: Duration,
    },
    /// A number that changes.
    RampingVus {
        /// Users at the start.
        start: u32,
        /// From there.
        stages: Vec<RateStage>,
        /// How long an iteration may go on when its user is not wanted any more.
        graceful_ramp_down: Duration,
    },
    /// So many share a number of iterations.
    SharedIterations {
        /// Users.
        vus: u32,
        /// Of all of them.
        iterations: u64,
        /// The end in any case.
        max_duration: Duration,
    },
    /// So many, each with its number of iterations.
    PerVuIterations {
        /// Users.
        vus: u32,
        /// Of each.
        iterations: u64,
        /// The end in any case.
        max_duration: Duration,
    },
    /// Iterations begin at a rate.
    ArrivalRate {
        /// Iterations/s at the start.
        start: f64,
        /// From there.
        stages: Vec<RateStage>,
        /// Users at the start.
        pre_allocated: u32,
        /// And at most.
        max_vus: u32,
        /// The rate is constant.
        is_constant: bool,
    },
}

impl Executor {
    /// As in a script.
    pub fn name(&self) -> &'static str {
        match self {
            Executor::ConstantVus { .. } => "constant-vus",
            Executor::RampingVus { .. } => "ramping-vus",
            Executor::SharedIterations { .. } => "shared-iterations",
            Executor::PerVuIterations { .. } => "per-vu-iterations",
            Executor::ArrivalRate { is_constant: true, .. } => "constant-arrival-rate",
            Executor::ArrivalRate { .. } => "ramping-arrival-rate",
        }
    }

    /// Users, at most.
    pub fn most_users(&self) -> u32 {
        match self {
            Executor::ConstantVus { vus, .. }
            | Executor::SharedIterations { vus, .. }
            | Executor::PerVuIterations { vus, .. } => *vus,
            Executor::RampingVus { start, stages, .. } => {
                stages.iter().map(|stage| stage.target as u32).max().unwrap_or(0).max(*start)
            }
            Executor::ArrivalRate { max_vus, .. } => *max_vus,
        }
    }

    /// When iterations stop to begin.
    pub fn duration(&self) -> Duration {
        match self {
            Executor::ConstantVus { duration, .. } => *duration,
            Executor::SharedIterations { max_duration, .. }
            | Executor::PerVuIterations { max_duration, .. } => *max_duration,
            Executor::RampingVus { stages, .. } | Executor::ArrivalRate { stages, .. } => {
                stages.iter().map(|stage| stage.time).sum()
            }
        }
    }
}

/// What `maxDuration` is, unless it is given.
const MAX_DURATION: Duration = Duration::from_secs(600);

/// What `gracefulStop` and `gracefulRampDown` are, unless they are given.
const GRACEFUL: Duration = Duration::from_secs(30);

/// Users of all scenarios, at most.
const MOST_USERS: u64 = 200_000;

/// The scenarios that options stand for.
pub(super) fn scenarios(all: &Map<String, Value>) -> Result<Vec<UserScenario>, String> {
    let reader = OptionReader(all);
    let has = |key: &str| reader.get(key).is_some();
    let scenarios = match reader.get("scenarios") {
        Some(Value::Object(map)) if !map.is_empty() => {
            let each = map.iter().map(|(name, value)| scenario(name, value));
            each.collect::<Result<Vec<_>, _>>()?
        }
        Some(Value::Object(_)) | None => vec![shortcut(&reader, has)?],
        Some(_) => return reader.wrong("scenarios", "an object"),
    };
    let users: u64 = scenarios.iter().map(|scenario| u64::from(scenario.executor.most_users())).sum();
    if users > MOST_USERS {
        return Err(format!("{users} users are more than {MOST_USERS}"));
    }
    Ok(scenarios)
}

fn shortcut(reader: &OptionReader<'_>, has: impl Fn(&str) -> bool) -> Result<UserScenario, String> {
    let vus = reader.number("vus", 1)?;
    let executor = if has("stages") && (has("iterations") || has("duration")) {
        return Err(
            "options: stages cannot stand beside duration or iterations\nhint: leave one of them out"
                .to_owned(),
        );
    } else if has("stages") {
        let stages = stages(reader, 1.0)?;
        Executor::RampingVus { start: vus, stages, graceful_ramp_down: GRACEFUL }
    } else if has("iterations") {
        let (iterations, max_duration) =
            (u64::from(reader.number("iterations", 1)?), reader.duration("duration", MAX_DURATION)?);
        Executor::SharedIterations { vus, iterations, max_duration }
    } else if has("duration") {
        Executor::ConstantVus { vus, duration: reader.duration("duration", Duration::ZERO)? }
    } else {
        Executor::PerVuIterations { vus: 1.max(vus), iterations: 1, max_duration: MAX_DURATION }
    };
    let scenario = UserScenario {
        name: "default".to_owned(),
        executor,
        start: Duration::ZERO,
        graceful_stop: GRACEFUL,
        exec: "default".to_owned(),
        env: Vec::new(),
        tags: Vec::new(),
    };
    sound(scenario)
}

fn scenario(name: &str, value: &Value) -> Result<UserScenario, String> {
    let within = |why: String| format!("scenario {name}: {why}");
    let map = value.as_object().ok_or_else(|| within("it has to be an object".to_owned()))?;
    let reader = OptionReader(map);
    let read = || -> Result<UserScenario, String> {
        let executor = executor(&reader)?;
        Ok(UserScenario {
            name: name.to_owned(),
            executor,
            start: reader.duration("startTime", Duration::ZERO)?,
            graceful_stop: reader.duration("gracefulStop", GRACEFUL)?,
            exec: reader.text("exec")?.unwrap_or_else(|| "default".to_owned()),
            env: reader.texts("env")?,
            tags: reader.texts("tags")?,
        })
    };
    read().and_then(sound).map_err(within)
}

fn executor(reader: &OptionReader<'_>) -> Result<Executor, String> {
    let unit = |usual| reader.duration("timeUnit", usual).map(|time| time.as_secs_f64());
    let vus = reader.number("vus", 1)?;
    let iterations = || reader.number("iterations", 1).map(u64::from);
    let max_duration = || reader.duration("maxDuration", MAX_DURATION);
    let needed = |key: &str| match reader.get(key) {
        Some(_) => Ok(()),
        None => Err(format!("{key} is missing")),
    };
    let name = reader.text("executor")?;
    match name.as_deref() {
        None => Err("executor is missing".to_owned()),
        Some("constant-vus") => {
            needed("duration")?;
            Ok(Executor::ConstantVus { vus, duration: reader.duration("duration", Duration::ZERO)? })
        }
        Some("ramping-vus") => Ok(Executor::RampingVus {
            start: reader.number("startVUs", 1)?,
            stages: stages(reader, 1.0)?,
            graceful_ramp_down: reader.duration("gracefulRampDown", GRACEFUL)?,
        }),
        Some("shared-iterations") => {
            Ok(Executor::SharedIterations { vus, iterations: iterations()?, max_duration: max_duration()? })
        }
        Some("per-vu-iterations") => {
            Ok(Executor::PerVuIterations { vus, iterations: iterations()?, max_duration: max_duration()? })
        }
        Some("constant-arrival-rate") => {
            ["rate", "duration"].into_iter().try_for_each(needed)?;
            let start = rate(reader, "rate")? / unit(Duration::from_secs(1))?;
            let stages =
                vec![RateStage { time: reader.duration("duration", Duration::ZERO)?, target: start }];
            arriving(reader, start, stages, true)
        }
        Some("ramping-arrival-rate") => {
            let seconds = unit(Duration::from_secs(1))?;
            let stages = stages(reader, seconds)?;
            arriving(reader, rate(reader, "startRate")? / seconds, stages, false)
        }
        Some("externally-controlled") => {
            Err("the executor externally-controlled is not supported".to_owned())
        }
        Some(other) => Err(format!(
            "there is no executor {other:?}\nhint: constant-vus, ramping-vus, shared-iterations, per-vu-iterations, constant-arrival-rate or ramping-arrival-rate"
        )),
    }
}

fn rate(reader: &OptionReader<'_>, key: &str) -> Result<f64, String> {
    match reader.get(key) {
        None => Ok(0.0),
        Some(value) => match value.as_f64().filter(|rate| (0.0..=1e9).contains(rate)) {
            Some(rate) => Ok(rate),
            None => reader.wrong(key, "a number that is not negative"),
        },
    }
}

fn arriving(
    reader: &OptionReader<'_>,
    start: f64,
    stages: Vec<RateStage>,
    is_constant: bool,
) -> Result<Executor, String> {
    if reader.get("preAllocatedVUs").is_none() {
        return Err("preAllocatedVUs is missing".to_owned());
    }
    let pre_allocated = reader.number("preAllocatedVUs", 1)?;
    let max_vus = reader.number("maxVUs", pre_allocated)?;
    if max_vus < pre_allocated {
        return Err(format!("maxVUs is {max_vus}: it cannot be less than preAllocatedVUs, {pre_allocated}"));
    }
    Ok(Executor::ArrivalRate { start, stages, pre_allocated, max_vus, is_constant })
}

fn stages(reader: &OptionReader<'_>, unit: f64) -> Result<Vec<RateStage>, String> {
    let Some(all) = reader.get("stages").and_then(Value::as_array).filter(|all| !all.is_empty()) else {
        return reader.wrong("stages", "a list of { duration, target }");
    };
    let stage = |value: &Value| {
        let map = value.as_object().ok_or_else(|| format!("stage {value} is no {{ duration, target }}"))?;
        let reader = OptionReader(map);
        if reader.get("target").is_none() {
            return Err(format!("stage {value} has no target"));
        }
        Ok(RateStage {
            time: reader.duration("duration", Duration::ZERO)?,
            target: rate(&reader, "target")? / unit,
        })
    };
    all.iter().map(stage).collect()
}

/// Refuses what cannot run.
fn sound(scenario: UserScenario) -> Result<UserScenario, String> {
    let duration = scenario.executor.duration();
    let (users, iterations) = match &scenario.executor {
        Executor::SharedIterations { iterations, vus, .. } => {
            if *iterations < u64::from(*vus) {
                return Err(format!(
                    "{iterations} iterations cannot be shared by {vus} users\nhint: take as many users as iterations, or fewer"
                ));
            }
            (*vus, *iterations)
        }
        Executor::PerVuIterations { iterations, vus, .. } => (*vus, *iterations),
        Executor::RampingVus { .. } => (1, 1),
        other => (other.most_users(), 1),
    };
    if users == 0 || iterations == 0 {
        return Err("there is nothing to do: users and iterations have to be 1 or more".to_owned());
    }
    if duration.is_zero() || duration > Duration::from_secs(366 * 86_400) {
        return Err(format!(
            "it takes {} s: it has to take some time, and at most a year",
            duration.as_secs()
        ));
    }
    Ok(scenario)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn of(options: Value) -> Result<Vec<UserScenario>, String> {
        scenarios(options.as_object().unwrap())
    }

    #[test]
    fn shortcuts_stand_for_scenarios() {
        let executor = |options| of(options).unwrap().remove(0).executor.name();
        assert_eq!(executor(json!({})), "per-vu-iterations");
        assert_eq!(executor(json!({ "vus": 3, "iterations": 9 })), "shared-iterations");
        assert_eq!(executor(json!({ "vus": 3, "duration": "1s" })), "constant-vus");
        assert_eq!(executor(json!({ "stages": [{ "duration": "1s", "target": 3 }] })), "ramping-vus");
    }

    #[test]
    fn wrong_scenarios_are_named() {
        let why = |options| of(options).unwrap_err();
        assert!(
            why(json!({ "scenarios": { "a": { "executor": "fast" } } }))
                .contains("scenario a: there is no executor")
        );
        assert!(
            why(json!({ "scenarios": { "a": { "executor": "externally-controlled" } } }))
                .contains("not supported")
        );
        assert!(why(json!({ "vus": 10, "iterations": 5 })).contains("cannot be shared"));
        assert!(why(json!({ "stages": [{ "duration": "1s" }] })).contains("no target"));
        let rate = json!({ "scenarios": { "a": { "executor": "constant-arrival-rate", "rate": 5, "duration": "1s" } } });
        assert!(why(rate).contains("preAllocatedVUs is missing"));
    }

    #[test]
    fn a_rate_counts_per_its_unit() {
        let scenario = of(json!({ "scenarios": { "a": {
            "executor": "ramping-arrival-rate", "startRate": 60, "timeUnit": "1m", "preAllocatedVUs": 2,
            "stages": [{ "duration": "2s", "target": 120 }],
        } } }));
        let scenario = scenario.unwrap().remove(0);
        let Executor::ArrivalRate { start, stages, max_vus, .. } = scenario.executor else { panic!() };
        assert_eq!((start, stages[0].target, max_vus), (1.0, 2.0, 2));
    }
}
