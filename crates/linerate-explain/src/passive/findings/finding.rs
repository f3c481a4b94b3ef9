//! What was seen to cost time, and the texts about it.

use std::net::SocketAddr;

use super::super::observation::ObservedCall;
use crate::parts::RuleFix;
use crate::rule::Cause;

/// Something that was seen to cost time.
#[derive(Clone, Debug)]
pub struct Finding {
    /// The cause: its texts and its place.
    pub cause: &'static Cause,
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
    pub fixes: &'static [RuleFix],
    /// An experiment that would prove the cause, or show that it is fixed.
    pub verify: &'static str,
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

impl Finding {
    /// Of a cause that packets show, with its texts.
    pub(super) fn of(cause: &'static Cause) -> Finding {
        let (title, fixes, verify) =
            cause.packets.map_or((cause.title, cause.fixes, cause.verify), |p| (p.title, p.fixes, p.verify));
        Finding {
            cause,
            title,
            server: None,
            calls: 0,
            of: 0,
            cost_ns: 0,
            all_ns: 0,
            confidence: Confidence::Likely,
            evidence: Vec::new(),
            fixes,
            verify,
            example: None,
        }
    }
}

/// A smaller share of the affected calls' time is not a cause.
pub(super) const SHARE: f64 = 0.1;
/// A smaller cost per call is not a cause, nanoseconds.
pub(super) const LEAST_NS: i64 = 2_000_000;
/// Requests that left at once in place of one that was answered.
pub(super) const FOLLOWED: u64 = 10;

pub(super) fn per(sum: i64, n: u64) -> i64 {
    sum / i64::try_from(n.max(1)).unwrap_or(i64::MAX)
}
