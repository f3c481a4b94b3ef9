//! `options` of a script.

mod scenario;

use std::time::Duration;

use serde_json::{Map, Value};

use crate::metrics::MetricThresholds;

pub use scenario::{Executor, RateStage, Scenario};

/// The options of a run: those of the script, and what was given in their place.
#[derive(Clone, Debug)]
pub struct ScriptOptions {
    /// As one JSON object.
    pub source: Value,
    /// What runs, at least one.
    pub scenarios: Vec<Scenario>,
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
    pub fn read(source: Value) -> Result<ScriptOptions, String> {
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

/// Reads values of options, and names those that are wrong.
pub(crate) struct OptionReader<'a>(pub(crate) &'a Map<String, Value>);

impl<'a> OptionReader<'a> {
    pub(crate) fn get(&self, key: &str) -> Option<&'a Value> {
        self.0.get(key).filter(|value| !value.is_null())
    }

    pub(crate) fn wrong<T>(&self, key: &str, wanted: &str) -> Result<T, String> {
        let value = self.get(key).unwrap_or(&Value::Null);
        Err(format!("{key} is {value}: it has to be {wanted}"))
    }

    fn flag(&self, key: &str) -> Result<bool, String> {
        match self.get(key) {
            None => Ok(false),
            Some(Value::Bool(flag)) => Ok(*flag),
            Some(_) => self.wrong(key, "true or false"),
        }
    }

    pub(crate) fn number(&self, key: &str, usual: u32) -> Result<u32, String> {
        match self.get(key) {
            None => Ok(usual),
            Some(value) => match value.as_f64().filter(|n| n.fract() == 0.0 && (0.0..=4e9).contains(n)) {
                Some(n) => Ok(n as u32),
                None => self.wrong(key, "a whole number"),
            },
        }
    }

    pub(crate) fn text(&self, key: &str) -> Result<Option<String>, String> {
        match self.get(key) {
            None => Ok(None),
            Some(Value::String(text)) => Ok(Some(text.clone())),
            Some(_) => self.wrong(key, "a text"),
        }
    }

    pub(crate) fn map(&self, key: &str) -> Result<impl Iterator<Item = (&'a String, &'a Value)>, String> {
        match self.get(key) {
            None => Ok(None.into_iter().flatten()),
            Some(Value::Object(map)) => Ok(Some(map.iter()).into_iter().flatten()),
            Some(_) => self.wrong(key, "an object"),
        }
    }

    pub(crate) fn texts(&self, key: &str) -> Result<Vec<(String, String)>, String> {
        let text = |value: &Value| value.as_str().map_or_else(|| value.to_string(), str::to_owned);
        Ok(self.map(key)?.map(|(key, value)| (key.clone(), text(value))).collect())
    }

    pub(crate) fn duration(&self, key: &str, usual: Duration) -> Result<Duration, String> {
        match self.get(key) {
            None => Ok(usual),
            Some(value) => duration(value).map_err(|why| format!("{key}: {why}")),
        }
    }
}

/// Reads `1m30s`, or a number of milliseconds.
///
/// # Errors
/// In words, what would be right.
pub fn duration(value: &Value) -> Result<Duration, String> {
    let wrong = || {
        format!("{value} is no duration\nhint: write it as \"30s\", \"1m30s\" or a number of milliseconds")
    };
    let ms = |ms: f64| Duration::try_from_secs_f64(ms / 1000.0).map_err(|_| wrong());
    if let Some(n) = value.as_f64() {
        return ms(n);
    }
    let text = value.as_str().ok_or_else(wrong)?.trim();
    if let Ok(n) = text.parse::<f64>() {
        return ms(n);
    }
    let (mut rest, mut total) = (text, 0.0);
    while !rest.is_empty() {
        let digits = rest.find(|c: char| !c.is_ascii_digit() && c != '.').ok_or_else(wrong)?;
        let n: f64 = rest[..digits].parse().map_err(|_| wrong())?;
        rest = &rest[digits..];
        let units = [
            ("ns", 1e-6),
            ("us", 1e-3),
            ("µs", 1e-3),
            ("ms", 1.0),
            ("s", 1e3),
            ("m", 6e4),
            ("h", 3.6e6),
            ("d", 8.64e7),
        ];
        let (unit, each) = units.into_iter().find(|(unit, _)| rest.starts_with(unit)).ok_or_else(wrong)?;
        rest = &rest[unit.len()..];
        total += n * each;
    }
    if text.is_empty() { Err(wrong()) } else { ms(total) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn durations_are_read_as_k6_reads_them() {
        let of = |value: Value| duration(&value).map(|time| time.as_millis());
        assert_eq!(of(json!("1m30s")), Ok(90_000));
        assert_eq!(of(json!("1h2m3s4ms")), Ok(3_723_004));
        assert_eq!(of(json!(1500)), Ok(1500));
        assert_eq!(of(json!("250")), Ok(250));
        assert_eq!(of(json!("1.5s")), Ok(1500));
        for wrong in [json!(""), json!("s"), json!("1x"), json!(-1), json!([])] {
            assert!(of(wrong.clone()).is_err(), "{wrong}");
        }
    }

    #[test]
    fn what_is_not_supported_is_named() {
        let of = |value: Value| ScriptOptions::read(value).map(|options| options.warnings);
        assert!(of(json!({ "rps": 10 })).unwrap_err().contains("options.rps"));
        assert_eq!(of(json!({ "ext": {}, "vus": 1 })).unwrap(), ["options.ext has no effect"]);
        assert!(of(json!({ "vus": "many" })).unwrap_err().contains("vus is \"many\""));
        assert!(of(json!({ "thresholds": { "http_reqs": ["counts>1"] } })).unwrap_err().contains("counts>1"));
    }
}
