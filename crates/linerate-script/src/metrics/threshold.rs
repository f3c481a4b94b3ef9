//! Thresholds: conditions on metrics that decide the exit code.

use std::time::Duration;

use serde_json::Value;

use super::sink::{MetricKind, MetricSink};

/// A condition on a metric.
#[derive(Clone, Debug, PartialEq)]
pub struct Threshold {
    /// As written: `p(95)<500`.
    pub source: String,
    /// Which value.
    aggregation: String,
    compare: ThresholdCompare,
    limit: f64,
    /// The run ends as soon as it fails.
    pub abort_on_fail: bool,
    /// But not before this time.
    pub delay: Duration,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ThresholdCompare {
    Less,
    LessOrEqual,
    Greater,
    GreaterOrEqual,
    Equal,
    NotEqual,
}

/// The thresholds of one metric, or of its samples with certain tags.
#[derive(Clone, Debug, PartialEq)]
pub struct MetricThresholds {
    /// As written: `http_req_duration{name:login}`.
    pub key: String,
    /// The metric.
    pub metric: String,
    /// The tags that a sample must have.
    pub tags: Vec<(String, String)>,
    /// All must hold.
    pub thresholds: Vec<Threshold>,
}

/// Splits `metric{tag:value,tag:value}`.
pub(crate) fn selector(key: &str) -> Result<(String, Vec<(String, String)>), String> {
    let Some((metric, rest)) = key.split_once('{') else { return Ok((key.trim().to_owned(), Vec::new())) };
    let inner = rest.strip_suffix('}').ok_or_else(|| format!("{key}: the closing brace is missing"))?;
    let pair = |text: &str| {
        let (name, value) = text.split_once(':').ok_or_else(|| format!("{key}: {text:?} is no tag:value"))?;
        let bare = |text: &str| text.trim().trim_matches(|c| c == '"' || c == '\'').to_owned();
        Ok((bare(name), bare(value)))
    };
    let parts = inner.split(',').filter(|part| !part.trim().is_empty());
    Ok((metric.trim().to_owned(), parts.map(pair).collect::<Result<_, String>>()?))
}

impl Threshold {
    /// Reads `p(95)<500`.
    ///
    /// # Errors
    /// In words, what is wrong.
    pub(crate) fn parse(source: &str) -> Result<Threshold, String> {
        let operators = [
            ("<=", ThresholdCompare::LessOrEqual),
            (">=", ThresholdCompare::GreaterOrEqual),
            ("===", ThresholdCompare::Equal),
            ("==", ThresholdCompare::Equal),
            ("!=", ThresholdCompare::NotEqual),
            ("<", ThresholdCompare::Less),
            (">", ThresholdCompare::Greater),
        ];
        let wrong = || {
            format!(
                "the threshold {source:?} is not understood\nhint: write it as \"p(95)<500\", \"rate<0.01\" or \"count>100\""
            )
        };
        let found = operators.into_iter().find_map(|(sign, compare)| {
            let (left, right) = source.split_once(sign)?;
            Some((left, compare, right))
        });
        let (left, compare, right) = found.ok_or_else(wrong)?;
        let limit: f64 = right.trim().parse().map_err(|_| wrong())?;
        let aggregation: String = left.chars().filter(|c| !c.is_whitespace()).collect();
        let is_known = ["avg", "min", "max", "med", "count", "rate", "value"].contains(&aggregation.as_str())
            || MetricSink::new(MetricKind::Trend).value(&aggregation, 1.0).is_some();
        if !is_known {
            return Err(wrong());
        }
        let source = source.to_owned();
        Ok(Threshold { source, aggregation, compare, limit, abort_on_fail: false, delay: Duration::ZERO })
    }

    fn of(value: &Value) -> Result<Threshold, String> {
        if let Some(source) = value.as_str() {
            return Threshold::parse(source);
        }
        let source = value.get("threshold").and_then(Value::as_str);
        let mut threshold = Threshold::parse(source.ok_or_else(|| format!("{value} is no threshold"))?)?;
        threshold.abort_on_fail = value.get("abortOnFail").and_then(Value::as_bool) == Some(true);
        if let Some(delay) = value.get("delayAbortEval").filter(|delay| !delay.is_null()) {
            threshold.delay =
                crate::duration::duration(delay).map_err(|why| format!("delayAbortEval: {why}"))?;
        }
        Ok(threshold)
    }

    /// Whether the metric has such a value.
    pub fn fits(&self, kind: MetricKind) -> bool {
        match kind {
            MetricKind::Counter => ["count", "rate"].contains(&self.aggregation.as_str()),
            MetricKind::Gauge => self.aggregation == "value",
            MetricKind::Rate => self.aggregation == "rate",
            MetricKind::Trend => !["rate", "value"].contains(&self.aggregation.as_str()),
        }
    }

    /// Its value, and whether it holds.
    pub fn judge(&self, sink: &MetricSink, seconds: f64) -> (f64, bool) {
        let value = sink.value(&self.aggregation, seconds).unwrap_or(f64::NAN);
        let holds = match self.compare {
            ThresholdCompare::Less => value < self.limit,
            ThresholdCompare::LessOrEqual => value <= self.limit,
            ThresholdCompare::Greater => value > self.limit,
            ThresholdCompare::GreaterOrEqual => value >= self.limit,
            ThresholdCompare::Equal => value == self.limit,
            ThresholdCompare::NotEqual => value != self.limit,
        };
        (value, holds)
    }

    /// The value's name.
    pub fn aggregation(&self) -> &str {
        &self.aggregation
    }
}

impl MetricThresholds {
    /// Reads what `options.thresholds` has under `key`.
    ///
    /// # Errors
    /// In words, what is wrong.
    pub(crate) fn of(key: &str, value: &Value) -> Result<MetricThresholds, String> {
        let (metric, tags) = selector(key)?;
        let thresholds = match value {
            Value::Array(all) => all.iter().map(Threshold::of).collect::<Result<_, _>>(),
            one => Threshold::of(one).map(|one| vec![one]),
        };
        let thresholds = thresholds.map_err(|why| format!("thresholds of {key}: {why}"))?;
        Ok(MetricThresholds { key: key.to_owned(), metric, tags, thresholds })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn thresholds_are_read() {
        let of = |text: &str| Threshold::parse(text);
        assert_eq!(of("p(99.9) < 1.5e3").unwrap().aggregation(), "p(99.9)");
        assert_eq!(of("rate==1").unwrap().compare, ThresholdCompare::Equal);
        for wrong in ["", "p(95)", "p(95)<", "p(101)<1", "mean<1", "avg<x"] {
            assert!(of(wrong).is_err(), "{wrong}");
        }
        let value =
            serde_json::json!([{ "threshold": "max<9", "abortOnFail": true, "delayAbortEval": "2s" }]);
        let all = MetricThresholds::of("http_req_duration{name:a b, status:\"200\"}", &value).unwrap();
        assert_eq!(all.tags, [("name".into(), "a b".into()), ("status".into(), "200".into())]);
        assert!(all.thresholds[0].abort_on_fail && all.thresholds[0].delay == Duration::from_secs(2));
    }
}
