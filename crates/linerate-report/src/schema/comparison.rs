//! `"schema": "linerate.comparison/1"`: two servers, builds or ways of sending, in turns.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::outcome::Environment;

/// The value of `schema`.
pub const SCHEMA: &str = "linerate.comparison/1";

/// The whole document.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Document {
    /// [`SCHEMA`].
    pub schema: String,
    /// The first side, to which the other is compared.
    pub a: Side,
    /// The second side.
    pub b: Side,
    /// When it began (RFC 3339, UTC).
    pub started_at: Option<String>,
    /// Rounds that were planned.
    pub rounds_planned: u32,
    /// Rounds that count: both sides ran, and neither failed.
    pub rounds_counted: u32,
    /// Measured time of each run, seconds.
    pub run_s: f64,
    /// Time before it that does not count, seconds.
    pub warm_up_s: f64,
    /// Metrics by name: those that both sides have.
    pub metrics: BTreeMap<String, Metric>,
    /// The checks, in the order they were given.
    #[serde(default)]
    pub checks: Vec<Check>,
    /// What has changed since a saved comparison; absent without `--baseline`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub baseline: Option<Baseline>,
    /// What the reader should know before believing the verdicts.
    pub warnings: Vec<String>,
    /// Runs that do not count in some metrics, in the order of rounds.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub left_out: Vec<LeftOutRun>,
    /// Every run, in the order of rounds.
    #[serde(default)]
    pub rounds: Vec<Round>,
    /// Whether the user ended it early.
    #[serde(default)]
    pub interrupted: bool,
    /// What ended it early otherwise, in words.
    #[serde(default)]
    pub broken: Option<String>,
    /// Where it happened.
    pub environment: Environment,
}

/// One of the two.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Side {
    /// As the user wrote it: a URL, or `cmd:...`.
    pub given: String,
    /// Where requests went.
    pub target: String,
    /// Flags of this side alone.
    #[serde(default)]
    pub flags: String,
    /// How requests were sent, in words.
    pub sending: String,
    /// Cores of the server that was started; empty: all of them, or none was started.
    #[serde(default)]
    pub server_cores: Vec<usize>,
}

/// A metric of both sides.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Metric {
    /// A's value. Of latencies it is that of all its rounds together, each with the same weight;
    /// else the geometric mean of its runs. Null where too few requests say it.
    pub a: Option<f64>,
    /// B's value.
    pub b: Option<f64>,
    /// Sides ("a", "b") whose value is only known to be at least that, because requests without a
    /// response stand there.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub at_least: Vec<String>,
    /// B over A; null without values, and where both are bounds.
    pub ratio: Option<f64>,
    /// The interval that holds the true ratio in 95 of 100 cases; null for fewer than three rounds.
    pub ci95: Option<[f64; 2]>,
    /// "a" or "b", whichever is better, "no difference seen", "too few rounds" (fewer than three
    /// count) or "not measured" (too few requests, or none with a response on either side).
    pub verdict: String,
    /// Whether more of it is better.
    #[serde(default)]
    pub more_is_better: bool,
    /// How likely a ratio as far from 1 is if both are equal: of this metric alone.
    #[serde(default)]
    pub p_value: Option<f64>,
    /// The same, corrected for the number of metrics (Holm).
    #[serde(default)]
    pub p_corrected: Option<f64>,
    /// Rounds in which both sides have it.
    #[serde(default)]
    pub rounds: u32,
    /// Of how many rounds that were run.
    #[serde(default)]
    pub rounds_of: u32,
    /// Where no difference was seen: rounds beyond these that one of this size would need. Null
    /// where one was seen, and for more than 10,000.
    #[serde(default)]
    pub more_rounds: Option<u32>,
    /// The smallest difference that these rounds find in 80 % of comparisons, a share of 1.
    #[serde(default)]
    pub finds: Option<f64>,
}

/// A run that does not count in some metrics.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct LeftOutRun {
    /// Its round, from 1.
    pub round: u32,
    /// Its side: "a" or "b".
    pub side: String,
    /// The metrics that lack it, of those that other rounds have.
    pub metrics: Vec<String>,
    /// Why.
    pub why: String,
}

/// A check and what it found.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Check {
    /// As the user wrote it.
    pub expr: String,
    /// The value that was compared; null if there was none.
    pub value: Option<f64>,
    /// Whether it held.
    pub pass: bool,
    /// The value in words, and how sure it is.
    #[serde(default)]
    pub shown: String,
}

/// What has changed since a saved comparison.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Baseline {
    /// The file.
    pub file: String,
    /// When that comparison began.
    pub started_at: Option<String>,
    /// Metrics by name.
    pub metrics: BTreeMap<String, Change>,
}

/// How a metric's ratio has changed.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Change {
    /// B over A then.
    pub then: f64,
    /// B over A now.
    pub now: f64,
    /// `now` over `then`.
    pub change: f64,
    /// The interval that holds the true change in 95 of 100 cases.
    pub ci95: Option<[f64; 2]>,
    /// "better", "worse" (of B against A), "no difference seen" or "too few rounds".
    pub verdict: String,
}

/// A round: one run of each.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Round {
    /// Which ran first: "a" or "b".
    pub first: String,
    /// The run of A.
    pub a: Run,
    /// The run of B.
    pub b: Run,
}

/// One run.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Run {
    /// Values by metric: those that were measured.
    pub values: BTreeMap<String, f64>,
    /// Metrics of these that are only known to be at least that.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub at_least: Vec<String>,
    /// The latencies of its good responses: HdrHistogram V2 deflate in base64, nanoseconds.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub histogram: String,
    /// How long each request without a good response was waited for, in the same form. They count as
    /// later than any limit.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub waited: String,
    /// Requests sent.
    pub sent: u64,
    /// Whole responses.
    pub answered: u64,
    /// Failed, unknown, bad, unsent and unsolicited.
    pub errors: u64,
    /// Responses by status.
    pub status: BTreeMap<String, u64>,
    /// Bytes received.
    pub bytes_received: u64,
    /// Why the client was the limit, if it was.
    #[serde(default)]
    pub client_limit: Option<String>,
    /// Why it does not count, if it does not.
    #[serde(default)]
    pub fault: Option<String>,
}
