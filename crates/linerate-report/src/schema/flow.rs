//! What became of the iterations of a flow, and of each step.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::outcome::{Bad, Latency, Requests};

/// Iterations of a flow that began after the warm-up; each ends in one of three ways.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct FlowCounts {
    /// All steps went well.
    pub done: u64,
    /// A step had no good response, or a value to take was missing.
    pub failed: u64,
    /// The run ended before the iteration did.
    pub stopped: u64,
    /// Iterations of a rate of users that were due and never began.
    #[serde(default)]
    pub unstarted: u64,
    /// Requests of failed iterations that were not sent.
    pub skipped_requests: u64,
    /// Redirects that were followed; each is a request of its step.
    #[serde(default)]
    pub redirects: u64,
    /// How long they took from when the user was due, pauses included; null if none ended. Failed ones lie beyond every
    /// limit, and stopped ones do not count.
    pub duration_us: Option<Latency>,
    /// The same of those that are done alone.
    #[serde(default)]
    pub done_us: Option<Latency>,
    /// Why iterations failed: step and reason.
    pub causes: BTreeMap<String, u64>,
}

/// Figures of one request name.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Named {
    /// Its counts.
    pub requests: Requests,
    /// Its bad answers.
    pub bad: Bad,
    /// From due in an open loop, from sent in a closed one; null with `--throughput`. Requests without a good response lie
    /// beyond every limit.
    pub latency_us: Option<Latency>,
    /// The same of good responses alone.
    #[serde(default)]
    pub answered_us: Option<Latency>,
    /// Of a step of a flow: how it went over time, for the first 12 steps of a plan with several.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub series: Option<StepSeries>,
}

/// A step over time: an entry of each list for each interval. Those are of a second, in a run of more than 96 s of 2 s, and
/// so on.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct StepSeries {
    /// Their ends, seconds from the beginning of measuring.
    pub t_s: Vec<f64>,
    /// Responses per second in each; null after the end of the run, when iterations were only let end.
    pub rate_rps: Vec<Option<f64>>,
    /// Median latency in each, microseconds, within 2 %; null if no response came.
    pub p50_us: Vec<Option<f64>>,
    /// 99th percentile, likewise.
    pub p99_us: Vec<Option<f64>>,
    /// Whether the median is only a bound: a request without a good response stands there.
    pub p50_at_least: Vec<bool>,
    /// The same of the 99th percentile.
    pub p99_at_least: Vec<bool>,
    /// Failed in each.
    pub failed: Vec<u64>,
    /// Of unknown end in each.
    pub unknown: Vec<u64>,
    /// Responses in each that were not good.
    pub bad: Vec<u64>,
}
