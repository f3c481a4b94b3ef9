//! `options` of a script.

mod reader;
mod scenario;

use std::time::Duration;

use serde_json::{Map, Value};

use crate::error::InvalidOptions;
use crate::metrics::MetricThresholds;
use reader::OptionReader;

pub use scenario::{Executor, RateStage, UserScenario};

/// The options of a run: those of the script, and what was given in their place.
#[derive(Clone, Debug)]
pub struct ScriptOptions {
    /// As one JSON object.
    pub source: Value,
    /// What runs, at least one.
    pub scenarios: Vec<UserScenario>,
    /// Conditions on its metrics.
    pub thresholds: Vec<MetricThresholds>,
    /// Tags of all samples.
    pub tags: Vec<(String, String)>,
    /// Redirects to follow, unless a request says otherwise.
    pub max_redirects: u32,
    /// Requests of a batch at a time.
    pub batch: usize,
    /// Of these to one host.
    pub batch_per_host: usize,
    /// Cookies are kept from one iteration to the next.
    pub no_cookies_reset: bool,
    /// Bodies of responses are read and dropped.
    pub discard_bodies: bool,
    /// A failed request throws.
    pub throw: bool,
    /// Certificates are not checked.
    pub insecure: bool,
    /// Each request has a connection of its own.
    pub no_connection_reuse: bool,
    /// User-Agent, if it is not ours.
    pub user_agent: Option<String>,
    /// Addresses of hosts.
    pub hosts: Vec<(String, String)>,
    /// For `setup`.
    pub setup_timeout: Duration,
    /// For `teardown`.
    pub teardown_timeout: Duration,
    /// An iteration takes at least so long.
    pub min_iteration: Duration,
    /// Values of trends in the summary.
    pub trend_stats: Vec<String>,
    /// Unit of times in the summary.
    pub time_unit: Option<String>,
    /// Things to be told before the run.
    pub warnings: Vec<String>,
}

/// Options that would change what is sent, and that there are none of here.
const REFUSED: [&str; 9] = [
    "rps",
    "tlsAuth",
    "tlsVersion",
    "tlsCipherSuites",
    "localIPs",
    "blockHostnames",
    "blacklistIPs",
    "executionSegment",
    "executionSegmentSequence",
];

/// Options that change nothing here.
const WITHOUT_EFFECT: [&str; 16] = [
    "ext",
    "cloud",
    "dns",
    "systemTags",
    "linger",
    "paused",
    "noUsageReport",
    "httpDebug",
    "summaryMode",
    "noVUConnectionReuse",
    "console",
    "vusMax",
    "noSummary",
    "noColor",
    "quiet",
    "logOutput",
];

/// Options that are read.
const KNOWN: [&str; 24] = [
    "vus",
    "duration",
    "iterations",
    "stages",
    "scenarios",
    "thresholds",
    "tags",
    "maxRedirects",
    "batch",
    "batchPerHost",
    "noCookiesReset",
    "discardResponseBodies",
    "throw",
    "insecureSkipTLSVerify",
    "noConnectionReuse",
    "userAgent",
    "hosts",
    "setupTimeout",
    "teardownTimeout",
    "minIterationDuration",
    "summaryTrendStats",
    "summaryTimeUnit",
    "noSetup",
    "noTeardown",
];

impl ScriptOptions {
    /// Reads them.
    ///
    /// # Errors
    /// In words, what is wrong.
    pub fn read(source: Value) -> Result<ScriptOptions, InvalidOptions> {
        ScriptOptions::parse(source).map_err(InvalidOptions)
    }

    fn parse(source: Value) -> Result<ScriptOptions, String> {
        let empty = Map::new();
        let all = match &source {
            Value::Null => &empty,
            Value::Object(all) => all,
            other => return Err(format!("options is {other}: it has to be an object")),
        };
        let reader = OptionReader(all);
        let mut warnings = Vec::new();
        for (key, value) in all.iter().filter(|(_, value)| !value.is_null()) {
            let is_set =
                !matches!(value, Value::Bool(false)) && value.as_array().is_none_or(|all| !all.is_empty());
            if REFUSED.contains(&key.as_str()) && is_set {
                return Err(format!("options.{key} is not supported\nhint: leave it out"));
            }
            if WITHOUT_EFFECT.contains(&key.as_str()) {
                warnings.push(format!("options.{key} has no effect"));
            } else if !KNOWN.contains(&key.as_str()) && !REFUSED.contains(&key.as_str()) {
                warnings.push(format!("options.{key} is unknown and has no effect"));
            }
        }
        let thresholds = reader.map("thresholds")?;
        let usual = ["avg", "min", "med", "max", "p(90)", "p(95)"];
        Ok(ScriptOptions {
            scenarios: scenario::scenarios(all)?,
            thresholds: thresholds
                .map(|(key, value)| MetricThresholds::of(key, value))
                .collect::<Result<_, _>>()?,
            tags: reader.texts("tags")?,
            max_redirects: reader.number("maxRedirects", 10)?,
            batch: reader.number("batch", 20)?.max(1) as usize,
            batch_per_host: reader.number("batchPerHost", 6)?.max(1) as usize,
            no_cookies_reset: reader.flag("noCookiesReset")?,
            discard_bodies: reader.flag("discardResponseBodies")?,
            throw: reader.flag("throw")?,
            insecure: reader.flag("insecureSkipTLSVerify")?,
            no_connection_reuse: reader.flag("noConnectionReuse")?,
            user_agent: reader.text("userAgent")?,
            hosts: reader.texts("hosts")?,
            setup_timeout: reader.duration("setupTimeout", Duration::from_secs(60))?,
            teardown_timeout: reader.duration("teardownTimeout", Duration::from_secs(60))?,
            min_iteration: reader.duration("minIterationDuration", Duration::ZERO)?,
            trend_stats: match all.get("summaryTrendStats").filter(|value| !value.is_null()) {
                None => usual.map(str::to_owned).to_vec(),
                Some(value) => trend_stats(value)?,
            },
            time_unit: reader.text("summaryTimeUnit")?,
            warnings,
            source,
        })
    }
}

fn trend_stats(value: &Value) -> Result<Vec<String>, String> {
    let words: Option<Vec<&str>> = value.as_array().and_then(|all| all.iter().map(Value::as_str).collect());
    let words =
        words.ok_or_else(|| format!("options.summaryTrendStats is {value}: it has to be a list of texts"))?;
    let empty = crate::metrics::MetricSink::new(crate::metrics::MetricKind::Trend);
    match words.iter().find(|word| empty.value(word, 1.0).is_none()) {
        Some(word) => {
            Err(format!("options.summaryTrendStats: {word:?} is none of avg, min, med, max, count, p(N)"))
        }
        None => Ok(words.into_iter().map(str::to_owned).collect()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn what_is_not_supported_is_named() {
        let of = |value: Value| ScriptOptions::read(value).map(|options| options.warnings);
        assert!(of(json!({ "rps": 10 })).unwrap_err().to_string().contains("options.rps"));
        assert_eq!(of(json!({ "ext": {}, "vus": 1 })).unwrap(), ["options.ext has no effect"]);
        for (options, wanted) in [
            (json!({ "tags": { "a": { "b": 1 } } }), "tags.a is {\"b\":1}: it has to be a text"),
            (json!({ "tags": ["a"] }), "tags is [\"a\"]: it has to be an object"),
            (
                json!({ "scenarios": { "s": { "executor": "constant-vus", "duration": "1s", "env": { "A": [] } } } }),
                "scenario s: env.A is []: it has to be a text",
            ),
        ] {
            assert_eq!(of(options).unwrap_err().to_string(), wanted);
        }
        assert!(of(json!({ "vus": "many" })).unwrap_err().to_string().contains("vus is \"many\""));
        assert!(
            of(json!({ "thresholds": { "http_reqs": ["counts>1"] } }))
                .unwrap_err()
                .to_string()
                .contains("counts>1")
        );
    }
}
