//! What was seen to cost time, and the texts about it.

use std::net::SocketAddr;

use super::super::observation::ObservedCall;

/// Something that was seen to cost time.
#[derive(Clone, Debug)]
pub struct Finding {
    /// Its stable id.
    pub id: &'static str,
    /// A short title for people.
    pub title: &'static str,
    /// The server whose calls it is about, where there are several.
    pub server: Option<SocketAddr>,
    /// Calls it was seen in.
    pub calls: u64,
    /// Calls looked at.
    pub of: u64,
    /// Average cost per affected call, nanoseconds.
    pub cost_ns: i64,
    /// Total cost of all affected calls, nanoseconds.
    pub all_ns: i64,
    /// How certain the cause is.
    pub confidence: Confidence,
    /// The observations, in words.
    pub evidence: Vec<String>,
    /// Possible changes, by software.
    pub fixes: Vec<SoftwareFix>,
    /// An experiment that would prove the cause, or show that it is fixed.
    pub verify: String,
    /// A call to look at.
    pub example: Option<ObservedCall>,
}

/// Certainty without an experiment. Packets alone prove nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Confidence {
    /// Seen once, or explained as well by something else.
    Possible,
    /// Seen again and again, or not easily explained by anything else.
    Likely,
}

/// A change to software.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SoftwareFix {
    /// The software to change.
    pub software: &'static str,
    /// The setting or the call to change.
    pub change: &'static str,
}

/// A smaller share of the affected calls' time is not a cause.
pub(super) const SHARE: f64 = 0.1;
/// A smaller cost per call is not a cause, nanoseconds.
pub(super) const LEAST_NS: i64 = 2_000_000;
/// Requests that left at once in place of one that was answered.
pub(super) const FOLLOWED: u64 = 10;

/// The texts about a cause.
pub(super) struct CauseTexts {
    pub(super) id: &'static str,
    pub(super) title: &'static str,
    pub(super) fixes: Fixes,
    pub(super) verify: &'static str,
}

/// The fixes: the software, and its change.
pub(super) type Fixes = &'static [(&'static str, &'static str)];

pub(super) fn made(fixes: Fixes) -> Vec<SoftwareFix> {
    fixes.iter().map(|(software, change)| SoftwareFix { software, change }).collect()
}

pub(super) fn per(sum: i64, n: u64) -> i64 {
    sum / i64::try_from(n.max(1)).unwrap_or(i64::MAX)
}
