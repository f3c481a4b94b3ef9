//! `"schema": "linerate.lab/1"`: a scenario's rows, compared with the first one of their group.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::line::ShapedLine;
use super::outcome::Environment;

/// The value of `schema`.
pub const SCHEMA: &str = "linerate.lab/1";

/// The whole document.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Document {
    /// [`SCHEMA`].
    pub schema: String,
    /// The scenario's name.
    pub scenario: String,
    /// What it shows.
    pub about: String,
    /// When it began (RFC 3339, UTC).
    pub started_at: Option<String>,
    /// Rounds that were planned.
    pub rounds_planned: u32,
    /// Measured time of each run, seconds.
    pub run_s: f64,
    /// Time before it that does not count, seconds.
    pub warm_up_s: f64,
    /// Cores of the servers that were started; empty: not given any of their own.
    pub server_cores: Vec<usize>,
    /// Its groups.
    pub groups: Vec<Group>,
    /// Rows that were left out.
    pub left_out: Vec<LeftOut>,
    /// What the reader should know before believing the figures.
    pub warnings: Vec<String>,
    /// Whether the user ended it early.
    pub interrupted: bool,
    /// Where it happened.
    pub environment: Environment,
}

/// Rows that are compared with each other.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Group {
    /// Its name.
    pub name: String,
    /// What differs from other groups.
    pub about: String,
    /// Time that a relay added to each round trip, milliseconds.
    pub relay_ms: Option<f64>,
    /// The shaped line that its packets passed, and what it did to them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub line: Option<ShapedLine>,
    /// Its rows; the others are compared with the first.
    pub rows: Vec<Row>,
}

/// A row.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Row {
    /// Its name.
    pub name: String,
    /// The server's name.
    pub server: String,
    /// The target of its requests.
    pub target: String,
    /// Flags of load.
    pub flags: String,
    /// How it was sent, in words.
    pub sending: String,
    /// What one sees in it.
    pub about: String,
    /// The curve that it is a point of, over the cores of servers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub curve: Option<String>,
    /// Cores of its server, where the scenario says how many.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub server_cores: Option<u32>,
    /// The share of the line that it took; absent where the interface has no real speed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub line_share: Option<f64>,
    /// Metrics by name.
    pub metrics: BTreeMap<String, Metric>,
    /// The quick requests alone, in a group that says which ones are.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub quick: Option<QuickRequests>,
    /// The shortest latency of all rounds, microseconds; null where latencies were not measured.
    #[serde(default)]
    pub min_us: Option<f64>,
    /// The longest one.
    #[serde(default)]
    pub max_us: Option<f64>,
    /// Rounds in which it ran and was answered.
    pub rounds: u32,
    /// Requests that did not end well, of all rounds.
    pub errors: u64,
    /// Why a run of it does not count.
    pub fault: Option<String>,
    /// Its runs that do not count in some metrics, in the order of rounds.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub runs_left_out: Vec<RowRunLeftOut>,
}

/// A run that does not count in some metrics.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct RowRunLeftOut {
    /// Its round, from 1.
    pub round: u32,
    /// The metrics that lack it, of those that other rounds have.
    pub metrics: Vec<String>,
    /// Why.
    pub why: String,
}

/// The quick requests of a row, of all rounds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct QuickRequests {
    /// How many were sent.
    pub requests: u64,
    /// How many of them took at least 10 ms longer than the quickest one.
    pub held_up: u64,
    /// Their median, microseconds.
    pub p50_us: Option<f64>,
    /// Their 99th percentile; null where too few requests lie beyond it.
    pub p99_us: Option<f64>,
    /// The median of all other requests; null where there are none.
    pub others_p50_us: Option<f64>,
}

/// A metric of a row.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Metric {
    /// Of latencies that of all its runs together, each with the same weight; else the geometric
    /// mean of its runs. Null where too few requests say it.
    pub value: Option<f64>,
    /// Whether the value is only known to be at least that, because requests without a response
    /// stand there.
    #[serde(default)]
    pub at_least: bool,
    /// Whether the value is only known to be below that, because a round had not a single good response.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub at_most: bool,
    /// Over the first row's, in the same rounds; null for that row itself.
    pub ratio: Option<f64>,
    /// The interval that holds the true ratio in 95 of 100 cases.
    pub ci95: Option<[f64; 2]>,
    /// Whether the interval holds 1: "no difference seen"; else whether this row is "better" or "worse".
    pub verdict: Verdict,
}

/// What a ratio says.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub enum Verdict {
    /// It is the first row, or the first row lacks the metric.
    #[default]
    #[serde(rename = "-")]
    None,
    /// This row is better than the first.
    #[serde(rename = "better")]
    Better,
    /// It is worse.
    #[serde(rename = "worse")]
    Worse,
    /// The interval holds 1.
    #[serde(rename = "no difference seen")]
    NoDifference,
    /// Fewer than three rounds count.
    #[serde(rename = "too few rounds")]
    TooFewRounds,
    /// Too few requests, or on neither side ones with a response, say it.
    #[serde(rename = "not measured")]
    NotMeasured,
}

/// A row that was left out.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct LeftOut {
    /// Its group.
    pub group: String,
    /// Its name.
    pub row: String,
    /// Why.
    pub why: String,
    /// How to install what is missing; empty where that is not it.
    pub install: String,
}
