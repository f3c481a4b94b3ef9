//! Options that stand in place of the script's: of the command line, and of variables.

use serde_json::{Map, Value, json};

use super::fault::{K6Exit, K6Fault};
use crate::args::K6RunArgs;

fn bad(why: impl Into<String>) -> K6Fault {
    K6Fault::new(K6Exit::BadOptions, why)
}

/// `__ENV`: the variables of this process, and those given.
pub(super) fn env(args: &K6RunArgs) -> Result<Vec<(String, String)>, K6Fault> {
    let mut all: Vec<_> = std::env::vars_os()
        .filter_map(|(name, value)| Some((name.into_string().ok()?, value.into_string().ok()?)))
        .collect();
    for text in &args.env {
        let given = match text.split_once('=') {
            Some((name, value)) if !name.is_empty() => Some((name.to_owned(), value.to_owned())),
            // As k6: a bare name passes the variable of this process on, and it is there already.
            None if !text.is_empty() => None,
            _ => return Err(bad(format!("-e {text:?} has no name\nhint: write it as -e NAME=VALUE"))),
        };
        all.extend(given);
    }
    Ok(all)
}

/// How much runs, as given outside of the script.
struct GivenPace {
    vus: Option<Value>,
    iterations: Option<Value>,
    duration: Option<Value>,
    stages: Option<Value>,
}

fn stages<'a>(texts: impl IntoIterator<Item = &'a str>) -> Result<Option<Value>, K6Fault> {
    let mut stages = Vec::new();
    for text in texts {
        let stage = text.trim().trim_start_matches('[').trim_end_matches(']');
        let wrong = || bad(format!("the stage {text:?} is no TIME:N\nhint: write it as --stage 30s:50"));
        let (duration, target) = stage.split_once(':').ok_or_else(wrong)?;
        let target: u32 = target.trim().parse().map_err(|_| wrong())?;
        stages.push(json!({ "duration": duration.trim(), "target": target }));
    }
    Ok((!stages.is_empty()).then_some(Value::Array(stages)))
}

/// Those of variables.
fn of_variables() -> Result<GivenPace, K6Fault> {
    let text = |name: &str| std::env::var(name).ok().filter(|value| !value.is_empty());
    let number = |name: &str| match text(name) {
        None => Ok(None),
        Some(value) => match value.parse::<u64>() {
            Ok(number) => Ok(Some(json!(number))),
            Err(_) => Err(bad(format!("{name} is {value:?}: it has to be a whole number"))),
        },
    };
    Ok(GivenPace {
        vus: number("K6_VUS")?,
        iterations: number("K6_ITERATIONS")?,
        duration: text("K6_DURATION").map(Value::String),
        stages: stages(text("K6_STAGES").iter().flat_map(|all| all.split(',')))?,
    })
}

/// The script's options with what was given in their place.
pub(super) fn merged(args: &K6RunArgs, script: &Value) -> Result<Value, K6Fault> {
    let mut all = match script {
        Value::Null => Map::new(),
        Value::Object(all) => all.clone(),
        other => return Err(bad(format!("options is {other}: it has to be an object"))),
    };
    let typed = GivenPace {
        vus: args.vus.map(|n| json!(n)),
        iterations: args.iterations.map(|n| json!(n)),
        duration: args.duration.clone().map(Value::String),
        stages: stages(args.stages.iter().map(String::as_str))?,
    };
    for given in [of_variables()?, typed] {
        let paces =
            [("iterations", given.iterations), ("duration", given.duration), ("stages", given.stages)];
        if paces.iter().any(|(_, value)| value.is_some()) {
            // A pace that is given takes the place of every other.
            for key in ["iterations", "duration", "stages", "scenarios"] {
                all.remove(key);
            }
        }
        all.extend(
            paces.into_iter().chain([("vus", given.vus)]).filter_map(|(k, v)| Some((k.to_owned(), v?))),
        );
    }
    let mut set = |key: &str, value: Option<Value>| all.extend(value.map(|value| (key.to_owned(), value)));
    let flag = |is_set: bool| is_set.then_some(Value::Bool(true));
    set("insecureSkipTLSVerify", flag(args.insecure_skip_tls_verify));
    set("discardResponseBodies", flag(args.discard_response_bodies));
    set("noConnectionReuse", flag(args.no_connection_reuse));
    set("throw", flag(args.throw));
    set("maxRedirects", args.max_redirects.map(|n| json!(n)));
    set("batch", args.batch.map(|n| json!(n)));
    set("batchPerHost", args.batch_per_host.map(|n| json!(n)));
    set("userAgent", args.user_agent.clone().map(Value::String));
    set("summaryTimeUnit", args.summary_time_unit.clone().map(Value::String));
    set("summaryTrendStats", (!args.summary_trend_stats.is_empty()).then(|| json!(args.summary_trend_stats)));
    if !args.tags.is_empty() {
        let mut tags = all.get("tags").and_then(Value::as_object).cloned().unwrap_or_default();
        for text in &args.tags {
            let pair = text.split_once('=').filter(|(name, _)| !name.is_empty());
            let (name, value) = pair.ok_or_else(|| {
                bad(format!("--tag {text:?} is no NAME=VALUE\nhint: write it as --tag run=7"))
            })?;
            tags.insert(name.to_owned(), json!(value));
        }
        all.insert("tags".to_owned(), Value::Object(tags));
    }
    if args.no_thresholds {
        all.remove("thresholds");
    }
    Ok(Value::Object(all))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pace_that_is_typed_takes_the_place_of_the_scripts() {
        let script = json!({ "scenarios": { "a": {} }, "vus": 7, "tags": { "x": "1" }, "thresholds": {} });
        let args = K6RunArgs {
            duration: Some("3s".into()),
            tags: vec!["y=2".into()],
            no_thresholds: true,
            ..K6RunArgs::default()
        };
        let all = merged(&args, &script).unwrap();
        assert_eq!(all, json!({ "vus": 7, "duration": "3s", "tags": { "x": "1", "y": "2" } }));
        let args = K6RunArgs { stages: vec!["1s:2".into(), "[3s:0]".into()], ..K6RunArgs::default() };
        let all = merged(&args, &Value::Null).unwrap();
        assert_eq!(
            all["stages"],
            json!([{ "duration": "1s", "target": 2 }, { "duration": "3s", "target": 0 }])
        );
        let args = K6RunArgs { stages: vec!["1s".into()], ..K6RunArgs::default() };
        assert_eq!(merged(&args, &Value::Null).unwrap_err().exit, K6Exit::BadOptions);
    }
}
