//! The machines of one run, as part of its document.

use serde::{Deserialize, Serialize};

/// A run that several machines sent. The figures of the document are those of all of them together,
/// merged exactly.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Machines {
    /// The run's name on the bus.
    pub run: String,
    /// Whether every message of every agent arrived.
    pub complete: bool,
    /// Largest uncertainty of an agent's clock against the coordinator's, microseconds; null after
    /// `--resume`.
    pub clock_uncertainty_us: Option<f64>,
    /// The agents, in the order of their threads.
    pub agents: Vec<Agent>,
}

/// What is whole of one machine's figures, and how far its clock is from the coordinator's.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct AgentShare {
    /// The agent's name.
    pub id: String,
    /// Requests sent, with those of shares that it took over.
    pub sent: u64,
    /// Requests answered.
    pub answered: u64,
    /// Seconds of the run of which its figures are missing.
    pub missing_seconds: u64,
    /// How far its clock was ahead of the coordinator's, microseconds; null after `--resume`.
    pub clock_offset_us: Option<f64>,
    /// The offset is wrong by at most this, microseconds.
    pub clock_uncertainty_us: Option<f64>,
    /// The longest that one of its threads stood still, milliseconds.
    #[serde(default)]
    pub stood_still_ms: f64,
}

/// One agent's part.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Agent {
    /// Its name.
    pub name: String,
    /// `complete`, `lost`, `missing`, `altered` or `left` (it was told to end before the run did).
    pub standing: String,
    /// Last whole second that it reported, where it was lost.
    pub last_second: Option<u64>,
    /// Numbers of its messages that are missing.
    pub missing: Vec<u64>,
    /// Its threads.
    pub threads: u32,
    /// Answered requests per second.
    pub rate_rps: f64,
    /// Requests sent.
    pub sent: u64,
    /// Requests answered.
    pub answered: u64,
    /// Requests failed.
    pub failed: u64,
    /// Requests whose fate is unknown.
    pub unknown: u64,
    /// Requests that were due and never sent.
    pub unsent: u64,
    /// Errors as checks count them: failed, unknown, unsent and bad requests, and surplus responses.
    #[serde(default)]
    pub errors: u64,
    /// Median latency, microseconds; null without a request that has an end.
    pub p50_us: Option<f64>,
    /// 99th percentile, microseconds; null as `p50_us`.
    pub p99_us: Option<f64>,
    /// Which of `p50_us` and `p99_us` are only bounds: a request without a good response stands there.
    #[serde(default)]
    pub at_least: Vec<String>,
    /// 99th percentile of how late its requests left, microseconds (open loop).
    pub lateness_p99_us: f64,
    /// How late its last thread began against the common start, microseconds; null for an agent that
    /// did not end.
    #[serde(default)]
    pub start_late_us: Option<f64>,
    /// The longest that one of its threads stood still, milliseconds: stopped, suspended or without
    /// its core.
    #[serde(default)]
    pub stood_still_ms: f64,
    /// Whether this machine, not the server, set the limit.
    pub saturated: bool,
}
