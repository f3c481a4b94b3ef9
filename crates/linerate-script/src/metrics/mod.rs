//! The metrics of a run: those of k6, and those of its script.

mod sink;
mod threshold;

use std::collections::HashMap;
use std::sync::Arc;

use crate::action::{UserRequest, UserResponse};
use crate::limits::{CHECKS, CUSTOM_METRICS};
use crate::sample::{HttpTags, SampleTags, TagLookup};

pub use sink::{MetricKind, MetricSink, SampleUnit};
pub use threshold::{MetricThresholds, Threshold};

/// A metric's place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MetricId(pub(crate) u32);

/// k6's own metrics, in the order of their places.
const BUILT_IN: [(&str, MetricKind, SampleUnit); 20] = [
    ("vus", MetricKind::Gauge, SampleUnit::Plain),
    ("vus_max", MetricKind::Gauge, SampleUnit::Plain),
    ("iterations", MetricKind::Counter, SampleUnit::Plain),
    ("iteration_duration", MetricKind::Trend, SampleUnit::Time),
    ("dropped_iterations", MetricKind::Counter, SampleUnit::Plain),
    ("checks", MetricKind::Rate, SampleUnit::Plain),
    ("group_duration", MetricKind::Trend, SampleUnit::Time),
    ("http_reqs", MetricKind::Counter, SampleUnit::Plain),
    ("http_req_failed", MetricKind::Rate, SampleUnit::Plain),
    ("http_req_duration", MetricKind::Trend, SampleUnit::Time),
    ("http_req_blocked", MetricKind::Trend, SampleUnit::Time),
    ("http_req_connecting", MetricKind::Trend, SampleUnit::Time),
    ("http_req_tls_handshaking", MetricKind::Trend, SampleUnit::Time),
    ("http_req_sending", MetricKind::Trend, SampleUnit::Time),
    ("http_req_waiting", MetricKind::Trend, SampleUnit::Time),
    ("http_req_receiving", MetricKind::Trend, SampleUnit::Time),
    ("data_sent", MetricKind::Counter, SampleUnit::Data),
    ("data_received", MetricKind::Counter, SampleUnit::Data),
    // Kept free for protocols to come, so that names of scripts do not take them.
    ("ws_sessions", MetricKind::Counter, SampleUnit::Plain),
    ("grpc_req_duration", MetricKind::Trend, SampleUnit::Time),
];

/// Places of k6's own metrics.
pub mod built_in {
    use super::MetricId;

    /// Active users.
    pub const VUS: MetricId = MetricId(0);
    /// Users that there are.
    pub const VUS_MAX: MetricId = MetricId(1);
    /// Whole iterations.
    pub const ITERATIONS: MetricId = MetricId(2);
    /// How long they took.
    pub const ITERATION_DURATION: MetricId = MetricId(3);
    /// Iterations that were due and had no user.
    pub const DROPPED: MetricId = MetricId(4);
    pub(crate) const CHECKS: MetricId = MetricId(5);
    pub(crate) const GROUP_DURATION: MetricId = MetricId(6);
    pub(crate) const HTTP_REQS: MetricId = MetricId(7);
    pub(crate) const HTTP_REQ_FAILED: MetricId = MetricId(8);
    pub(crate) const HTTP_REQ_DURATION: MetricId = MetricId(9);
    pub(crate) const DATA_SENT: MetricId = MetricId(16);
    pub(crate) const DATA_RECEIVED: MetricId = MetricId(17);
}

/// A metric and its samples.
#[derive(Clone, Debug)]
pub struct RunMetric {
    /// `http_req_duration`
    pub name: String,
    /// How its samples are summed up.
    pub kind: MetricKind,
    /// Of its values.
    pub unit: SampleUnit,
    /// All samples.
    pub sink: MetricSink,
    /// Those with certain tags.
    pub parts: Vec<MetricPart>,
}

/// The samples of a metric that have certain tags.
#[derive(Clone, Debug)]
pub struct MetricPart {
    /// As written in a threshold.
    pub key: String,
    tags: Vec<(String, String)>,
    /// Its samples.
    pub sink: MetricSink,
}

/// A check of a script.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ScriptCheck {
    /// `::login::page`
    pub group: Arc<str>,
    /// Its name.
    pub name: String,
    /// How often it held.
    pub passes: u64,
    /// How often not.
    pub fails: u64,
}

/// A metric's name, a threshold's key, and the tags in it.
type PartSelector = (String, String, Vec<(String, String)>);

/// The metrics of one thread, or of all.
#[derive(Clone, Debug)]
pub struct RunMetrics {
    metrics: Vec<RunMetric>,
    names: HashMap<String, MetricId>,
    /// Selectors for metrics that a script may still make.
    selectors: Vec<PartSelector>,
    checks: Vec<ScriptCheck>,
    check_places: HashMap<Arc<str>, HashMap<String, usize>>,
}

impl RunMetrics {
    /// k6's own metrics, with parts for these thresholds.
    pub fn new(thresholds: &[MetricThresholds]) -> RunMetrics {
        let selectors = thresholds.iter().filter(|t| !t.tags.is_empty());
        let mut selectors: Vec<_> =
            selectors.map(|t| (t.metric.clone(), t.key.clone(), t.tags.clone())).collect();
        let usual = "http_req_duration{expected_response:true}";
        if !selectors.iter().any(|(_, key, _)| key == usual) {
            let tags = vec![("expected_response".to_owned(), "true".to_owned())];
            selectors.push(("http_req_duration".to_owned(), usual.to_owned(), tags));
        }
        let mut all = RunMetrics {
            metrics: Vec::new(),
            names: HashMap::new(),
            selectors,
            checks: Vec::new(),
            check_places: HashMap::new(),
        };
        for (name, kind, unit) in BUILT_IN {
            all.insert(name, kind, unit);
        }
        all
    }

    fn insert(&mut self, name: &str, kind: MetricKind, unit: SampleUnit) -> MetricId {
        let id = MetricId(u32::try_from(self.metrics.len()).unwrap_or(u32::MAX));
        let ours = self.selectors.iter().filter(|(metric, ..)| metric == name);
        let part = |(_, key, tags): &PartSelector| MetricPart {
            key: key.clone(),
            tags: tags.clone(),
            sink: MetricSink::new(kind),
        };
        let parts = ours.map(part).collect();
        let name = name.to_owned();
        self.names.insert(name.clone(), id);
        self.metrics.push(RunMetric { name, kind, unit, sink: MetricSink::new(kind), parts });
        id
    }

    /// A metric of the script's own. The same name gives the same metric.
    ///
    /// # Errors
    /// In words, why there can be no such metric.
    pub(crate) fn register(
        &mut self,
        name: &str,
        kind: MetricKind,
        unit: SampleUnit,
    ) -> Result<MetricId, String> {
        if let Some(id) = self.names.get(name) {
            let known = &self.metrics[id.0 as usize];
            if known.kind != kind {
                let (has, wanted) = (known.kind.name(), kind.name());
                return Err(format!("metric {name:?} is a {has} already, and cannot be a {wanted}"));
            }
            return Ok(*id);
        }
        let is_letter = |c: char| c.is_ascii_alphanumeric() || c == '_';
        if name.is_empty()
            || name.len() > 128
            || !name.chars().all(is_letter)
            || name.as_bytes()[0].is_ascii_digit()
        {
            return Err(format!("{name:?} is no name of a metric: letters, digits and _, at most 128"));
        }
        if self.metrics.len() >= CUSTOM_METRICS + BUILT_IN.len() {
            return Err(format!("more than {CUSTOM_METRICS} metrics"));
        }
        Ok(self.insert(name, kind, unit))
    }

    /// Counts a sample.
    pub fn add(&mut self, id: MetricId, value: f64, tags: &dyn TagLookup) {
        let Some(metric) = self.metrics.get_mut(id.0 as usize) else { return };
        metric.sink.add(value);
        for part in &mut metric.parts {
            let has = |(key, wanted): &(String, String)| {
                // A tag that is not there is empty, as in k6.
                tags.tag(key).map_or(wanted.is_empty(), |value| value == wanted.as_str())
            };
            if part.tags.iter().all(has) {
                part.sink.add(value);
            }
        }
    }

    /// Counts a check.
    pub fn check(&mut self, name: &str, passes: bool, tags: &SampleTags<'_>) {
        self.add(built_in::CHECKS, f64::from(u8::from(passes)), tags);
        let place = self.check_places.get(tags.group).and_then(|names| names.get(name)).copied();
        let place = match place {
            Some(place) => place,
            None if self.checks.len() >= CHECKS => return,
            None => self.new_check(tags.group, name),
        };
        let check = &mut self.checks[place];
        *(if passes { &mut check.passes } else { &mut check.fails }) += 1;
    }

    fn new_check(&mut self, group: &str, name: &str) -> usize {
        let group: Arc<str> = group.into();
        let place = self.checks.len();
        self.check_places.entry(Arc::clone(&group)).or_default().insert(name.to_owned(), place);
        self.checks.push(ScriptCheck { group, name: name.to_owned(), passes: 0, fails: 0 });
        place
    }

    /// Counts a request that has ended.
    pub fn request(&mut self, request: &UserRequest, response: &UserResponse, wide: SampleTags<'_>) {
        let expected = request.expected.as_ref().map(|expected| expected.has(response.status));
        let tags = HttpTags {
            sample: SampleTags { group: &request.tags.group, custom: &request.tags.custom, ..wide },
            method: &request.method,
            url: request.url.as_str(),
            name: request.tags.name.as_deref(),
            status: response.status,
            proto: &response.proto,
            error: &response.error,
            error_code: response.error_code,
            expected,
        };
        self.add(built_in::HTTP_REQS, 1.0, &tags);
        if let Some(expected) = expected {
            self.add(built_in::HTTP_REQ_FAILED, f64::from(u8::from(!expected)), &tags);
        }
        let t = &response.timings;
        let parts =
            [t.duration(), t.blocked, t.connecting, t.tls_handshaking, t.sending, t.waiting, t.receiving];
        for (place, value) in (built_in::HTTP_REQ_DURATION.0..).zip(parts) {
            self.add(MetricId(place), value, &tags);
        }
        self.add(built_in::DATA_SENT, response.bytes.0 as f64, &tags);
        self.add(built_in::DATA_RECEIVED, response.bytes.1 as f64, &tags);
    }

    /// Adds those of another thread.
    pub fn merge(&mut self, other: &RunMetrics) {
        for metric in &other.metrics {
            let id = match self.names.get(&metric.name) {
                Some(id) => *id,
                None => self.insert(&metric.name, metric.kind, metric.unit),
            };
            let ours = &mut self.metrics[id.0 as usize];
            ours.sink.merge(&metric.sink);
            ours.parts.iter_mut().zip(&metric.parts).for_each(|(ours, part)| ours.sink.merge(&part.sink));
        }
        for check in &other.checks {
            let place = self.check_places.get(&check.group).and_then(|names| names.get(&check.name)).copied();
            let place = place.unwrap_or_else(|| self.new_check(&check.group, &check.name));
            self.checks[place].passes += check.passes;
            self.checks[place].fails += check.fails;
        }
    }

    /// All metrics, in the order in which they were made.
    pub fn metrics(&self) -> &[RunMetric] {
        &self.metrics
    }

    /// All checks, likewise.
    pub fn checks(&self) -> &[ScriptCheck] {
        &self.checks
    }

    /// The metric of this name.
    pub fn named(&self, name: &str) -> Option<&RunMetric> {
        self.names.get(name).map(|id| &self.metrics[id.0 as usize])
    }

    /// The samples that a threshold's key names.
    pub fn sink(&self, thresholds: &MetricThresholds) -> Option<&MetricSink> {
        let metric = self.named(&thresholds.metric)?;
        if thresholds.tags.is_empty() {
            return Some(&metric.sink);
        }
        metric.parts.iter().find(|part| part.key == thresholds.key).map(|part| &part.sink)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn samples_with_certain_tags_are_counted_apart() {
        let key = "http_req_duration{name:login}";
        let wanted = MetricThresholds::of(key, &serde_json::json!(["max<5"])).unwrap();
        let mut metrics = RunMetrics::new(std::slice::from_ref(&wanted));
        let tags = |custom| SampleTags { custom, ..SampleTags::default() };
        let login = [("name".to_owned(), "login".to_owned())];
        metrics.add(built_in::HTTP_REQ_DURATION, 4.0, &tags(&login));
        metrics.add(built_in::HTTP_REQ_DURATION, 9.0, &tags(&[]));
        let judged = wanted.thresholds[0].judge(metrics.sink(&wanted).unwrap(), 1.0);
        assert_eq!(judged, (4.0, true));
        assert_eq!(metrics.named("http_req_duration").unwrap().sink.value("max", 1.0), Some(9.0));
    }

    #[test]
    fn a_name_has_one_kind() {
        let mut metrics = RunMetrics::new(&[]);
        let id = metrics.register("mine", MetricKind::Trend, SampleUnit::Time).unwrap();
        assert_eq!(metrics.register("mine", MetricKind::Trend, SampleUnit::Time), Ok(id));
        assert!(metrics.register("mine", MetricKind::Rate, SampleUnit::Plain).is_err());
        assert!(metrics.register("no name", MetricKind::Rate, SampleUnit::Plain).is_err());
    }
}
