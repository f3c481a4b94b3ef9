//! What became of the iterations of a flow.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::outcome::Latency;

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
    /// How long those that are done took from when the user was due, pauses included; null if none is.
    pub duration_us: Option<Latency>,
    /// Why iterations failed: step and reason.
    pub causes: BTreeMap<String, u64>,
}
