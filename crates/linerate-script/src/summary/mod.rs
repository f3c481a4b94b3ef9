//! The end of a run: k6's data object, and its text.

mod text;

use std::collections::BTreeMap;
use std::time::Duration;

use serde_json::{Map, Value, json};

use crate::error::InvalidOptions;
use crate::metrics::{MetricKind, MetricSink, MetricThresholds, RunMetrics, ScriptCheck};
use crate::options::ScriptOptions;

pub use text::text_summary;

/// A threshold at the end of a run.
#[derive(Clone, Debug, PartialEq)]
pub struct JudgedThreshold {
    /// `http_req_duration{name:login}`
    pub key: String,
    /// `p(95)<500`
    pub source: String,
    /// Its value.
    pub value: f64,
    /// Whether it holds.
    pub holds: bool,
    /// The run is to end because it does not.
    pub aborts: bool,
}

/// Judges all thresholds, `elapsed` after the start.
///
/// # Errors
/// A threshold names a metric that there is not, or a value that its metric has not.
pub fn judge(
    metrics: &RunMetrics,
    thresholds: &[MetricThresholds],
    elapsed: Duration,
) -> Result<Vec<JudgedThreshold>, InvalidOptions> {
    let mut judged = Vec::new();
    for of in thresholds {
        let Some(metric) = metrics.named(&of.metric) else {
            return Err(InvalidOptions(format!("thresholds of {}: no metric has that name", of.key)));
        };
        for threshold in &of.thresholds {
            if !threshold.fits(metric.kind) {
                let (kind, source) = (metric.kind.name(), &threshold.source);
                let aggregation = threshold.aggregation();
                let why = format!("thresholds of {}: a {kind} has no {aggregation} ({source})", of.key);
                return Err(InvalidOptions(why));
            }
            let Some(sink) = metrics.sink(of) else { continue };
            let (value, holds) = threshold.judge(sink, elapsed.as_secs_f64());
            // As k6 has it: a rate without samples is none, other values are then 0.
            let holds = holds || metric.kind == MetricKind::Rate && sink.is_empty();
            judged.push(JudgedThreshold {
                key: of.key.clone(),
                source: threshold.source.clone(),
                value,
                holds,
                aborts: !holds && !sink.is_empty() && threshold.abort_on_fail && elapsed >= threshold.delay,
            });
        }
    }
    Ok(judged)
}

/// What `handleSummary` gets.
pub fn summary_data(
    metrics: &RunMetrics,
    options: &ScriptOptions,
    judged: &[JudgedThreshold],
    elapsed: Duration,
    setup: Option<&str>,
) -> Value {
    let seconds = elapsed.as_secs_f64();
    let mut all = Map::new();
    let mut insert = |key: &str, kind: MetricKind, unit: &str, sink: &MetricSink| {
        let mut metric =
            json!({ "type": kind.name(), "contains": unit, "values": values(sink, options, seconds) });
        let ours: Map<_, _> = judged
            .iter()
            .filter(|t| t.key == key)
            .map(|t| (t.source.clone(), json!({ "ok": t.holds })))
            .collect();
        if !ours.is_empty() {
            metric["thresholds"] = Value::Object(ours);
        }
        all.insert(key.to_owned(), metric);
    };
    for metric in metrics.metrics() {
        let is_judged = judged.iter().any(|t| t.key == metric.name);
        // As k6 has it: these are there in any case.
        let is_always = ["data_sent", "data_received"].contains(&metric.name.as_str());
        if !metric.sink.is_empty() || is_judged || is_always {
            insert(&metric.name, metric.kind, metric.unit.name(), &metric.sink);
        }
        for part in &metric.parts {
            let is_judged = judged.iter().any(|t| t.key == part.key);
            if !part.sink.is_empty() || is_judged {
                insert(&part.key, metric.kind, metric.unit.name(), &part.sink);
            }
        }
    }
    let mut data = json!({
        "root_group": group_tree(metrics.checks()),
        "options": {
            "summaryTrendStats": options.trend_stats,
            "summaryTimeUnit": options.time_unit.as_deref().unwrap_or(""),
            "noColor": false,
        },
        "state": { "isStdOutTTY": false, "isStdErrTTY": false, "testRunDurationMs": seconds * 1e3 },
        "metrics": all,
    });
    if let Some(Ok(setup)) = setup.map(serde_json::from_str::<Value>) {
        data["setup_data"] = setup;
    }
    data
}

fn values(sink: &MetricSink, options: &ScriptOptions, seconds: f64) -> Map<String, Value> {
    let names: Vec<&str> = match sink {
        MetricSink::Counter(_) => vec!["count", "rate"],
        MetricSink::Gauge { .. } => vec!["value", "min", "max"],
        MetricSink::Rate { .. } => vec!["rate", "passes", "fails"],
        MetricSink::Trend(_) => options.trend_stats.iter().map(String::as_str).collect(),
    };
    names.into_iter().map(|name| (name.to_owned(), json!(sink.value(name, seconds).unwrap_or(0.0)))).collect()
}

/// A name that stands for a path.
fn id_of(path: &str) -> String {
    let hash = aws_lc_rs::digest::digest(&aws_lc_rs::digest::SHA256, path.as_bytes());
    hash.as_ref()[..16].iter().map(|b| format!("{b:02x}")).collect()
}

#[derive(Default)]
struct GroupNode<'a> {
    groups: Vec<(&'a str, GroupNode<'a>)>,
    checks: Vec<&'a ScriptCheck>,
}

impl<'a> GroupNode<'a> {
    fn of(&mut self, name: &'a str) -> &mut GroupNode<'a> {
        let place = self.groups.iter().position(|(known, _)| *known == name);
        let place = place.unwrap_or_else(|| {
            self.groups.push((name, GroupNode::default()));
            self.groups.len() - 1
        });
        &mut self.groups[place].1
    }

    fn json(&self, name: &str, path: &str) -> Value {
        let check = |check: &&ScriptCheck| {
            let path = format!("{path}::{}", check.name);
            json!({ "name": check.name, "path": path, "id": id_of(&path), "passes": check.passes, "fails": check.fails })
        };
        let group = |(name, node): &(&str, GroupNode<'_>)| node.json(name, &format!("{path}::{name}"));
        json!({
            "name": name, "path": path, "id": id_of(path),
            "groups": self.groups.iter().map(group).collect::<Vec<_>>(),
            "checks": self.checks.iter().map(check).collect::<Vec<_>>(),
        })
    }
}

fn group_tree(checks: &[ScriptCheck]) -> Value {
    let mut root = GroupNode::default();
    for check in checks {
        let mut node = &mut root;
        for name in check.group.split("::").skip(1) {
            node = node.of(name);
        }
        node.checks.push(check);
    }
    root.json("", "")
}

/// What `--summary-export` writes: k6's form of it, in which a threshold says whether it failed.
pub fn summary_export(data: &Value) -> Value {
    let mut metrics = BTreeMap::new();
    for (name, metric) in data["metrics"].as_object().into_iter().flatten() {
        let mut flat = metric["values"].as_object().cloned().unwrap_or_default();
        if metric["type"] == "rate"
            && let Some(rate) = flat.remove("rate")
        {
            flat.insert("value".to_owned(), rate);
        }
        if let Some(thresholds) = metric["thresholds"].as_object() {
            let failed = thresholds.iter().map(|(source, t)| (source.clone(), json!(t["ok"] != true)));
            flat.insert("thresholds".to_owned(), Value::Object(failed.collect()));
        }
        metrics.insert(name.clone(), Value::Object(flat));
    }
    json!({ "root_group": exported(&data["root_group"]), "metrics": metrics })
}

fn exported(group: &Value) -> Value {
    let by_name = |key: &str, f: &dyn Fn(&Value) -> Value| {
        let all = group[key].as_array().into_iter().flatten();
        Value::Object(all.map(|one| (one["name"].as_str().unwrap_or_default().to_owned(), f(one))).collect())
    };
    let mut all = group.clone();
    all["groups"] = by_name("groups", &exported);
    all["checks"] = by_name("checks", &Value::clone);
    all
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::metrics::built_in;
    use crate::sample::SampleTags;

    fn metrics() -> (RunMetrics, ScriptOptions) {
        let options = ScriptOptions::read(json!({ "thresholds": {
            "http_req_duration": ["p(95)<5", "max<2"], "checks": [{ "threshold": "rate>0.9", "abortOnFail": true }],
        } }));
        let options = options.unwrap();
        let mut metrics = RunMetrics::new(&options.thresholds);
        let at = |group| SampleTags { group, ..SampleTags::default() };
        (0..10).for_each(|n| metrics.add(built_in::HTTP_REQ_DURATION, f64::from(n) / 3.0, &at("")));
        metrics.add(built_in::HTTP_REQS, 10.0, &at(""));
        metrics.add(built_in::HTTP_REQ_FAILED, 0.0, &at(""));
        metrics.add(built_in::ITERATIONS, 10.0, &at(""));
        metrics.add(built_in::DATA_SENT, 12_345.0, &at(""));
        metrics.check("is 200", true, &at(""));
        metrics.check("is 200", false, &at("::login"));
        metrics.check("is 404", true, &at("::login::page"));
        (metrics, options)
    }

    #[test]
    fn the_data_is_what_scripts_expect() {
        let (metrics, options) = metrics();
        let judged = judge(&metrics, &options.thresholds, Duration::from_secs(5)).unwrap();
        let of: Vec<_> = judged.iter().map(|t| (t.source.as_str(), t.holds, t.aborts)).collect();
        assert_eq!(of, [("rate>0.9", false, true), ("p(95)<5", true, false), ("max<2", false, false)]);
        let data = summary_data(&metrics, &options, &judged, Duration::from_secs(5), Some("{\"t\":1}"));
        assert_eq!(data["metrics"]["http_reqs"]["values"], json!({ "count": 10.0, "rate": 2.0 }));
        assert_eq!(data["metrics"]["http_req_duration"]["thresholds"]["max<2"]["ok"], false);
        assert_eq!(
            data["root_group"]["groups"][0]["groups"][0]["checks"][0]["path"],
            "::login::page::is 404"
        );
        assert_eq!(
            (&data["setup_data"]["t"], &data["state"]["testRunDurationMs"]),
            (&json!(1), &json!(5000.0))
        );
        let export = summary_export(&data);
        assert_eq!(
            export["metrics"]["http_req_duration"]["thresholds"],
            json!({ "p(95)<5": false, "max<2": true })
        );
        assert_eq!(export["root_group"]["groups"]["login"]["checks"]["is 200"]["fails"], 1);
    }

    #[test]
    fn the_text_has_each_part() {
        let (metrics, options) = metrics();
        let judged = judge(&metrics, &options.thresholds, Duration::from_secs(5)).unwrap();
        let data = summary_data(&metrics, &options, &judged, Duration::from_secs(5), None);
        let text = text_summary(&data, " ", false);
        for line in [
            "✓ 'p(95)<5' p(95)=",
            "✗ 'max<2' max=3ms",
            "checks_total.......: 3      0.6/s",
            "checks_succeeded...: 66.66% 2 out of 3",
            "✓ is 200",
            "✗ is 200",
            "↳  0% — ✓ 0 / ✗ 1",
            "http_req_duration..............: avg=1.5ms",
            "http_req_failed................: 0.00%  0 out of 1",
            "http_reqs......................: 10     2/s",
            "data_sent......................: 12 kB  2.5 kB/s",
        ] {
            assert!(text.contains(line), "{line} is missing in\n{text}");
        }
    }

    #[test]
    fn thresholds_that_fit_no_metric_are_named() {
        let options = ScriptOptions::read(json!({ "thresholds": { "nothing": ["count>1"] } })).unwrap();
        let why = judge(&RunMetrics::new(&[]), &options.thresholds, Duration::ZERO).unwrap_err().to_string();
        assert!(why.contains("thresholds of nothing"), "{why}");
        let options = ScriptOptions::read(json!({ "thresholds": { "http_reqs": ["p(95)<1"] } })).unwrap();
        assert!(
            judge(&RunMetrics::new(&[]), &options.thresholds, Duration::ZERO)
                .unwrap_err()
                .to_string()
                .contains("a counter has no p(95)")
        );
    }
}
