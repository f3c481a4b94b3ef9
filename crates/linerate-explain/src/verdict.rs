//! A cause, named, on the grounds it stands on.

use crate::evidence::{Grounds, Proof, Trial};
use crate::parts::RuleFix;
use crate::prediction::Prediction;
use crate::rule::Cause;
use crate::stats::Estimate;

/// A cause, named. It can only be made from [`Grounds`].
#[derive(Clone, Debug, PartialEq)]
pub struct Verdict {
    cause: &'static Cause,
    title: String,
    cost_ms: f64,
    proof: Proof,
    trials: Vec<Trial>,
    dose: Option<Estimate>,
    by_time: bool,
    behind: bool,
    fails: bool,
    evidence: Vec<String>,
    fixes: &'static [RuleFix],
    predicted: Option<Prediction>,
}

impl Verdict {
    /// `cause` costs `cost_ms` milliseconds a call, on these grounds.
    pub(crate) fn new(cause: &'static Cause, cost_ms: f64, grounds: Grounds) -> Verdict {
        let proof = grounds.proof();
        let by_time = matches!(grounds, Grounds::Seen { .. });
        let (mut trials, mut evidence) = (Vec::new(), Vec::new());
        match grounds {
            Grounds::Moved(trial) => trials.push(trial),
            Grounds::Counted { words, .. } | Grounds::Seen { words, .. } => evidence.push(words),
        }
        Verdict {
            cause,
            title: cause.title.to_owned(),
            cost_ms,
            proof,
            trials,
            dose: None,
            by_time,
            behind: false,
            fails: false,
            evidence,
            fixes: cause.fixes,
            predicted: None,
        }
    }

    /// With how the time follows the strength of the lever.
    pub(crate) fn with_dose(mut self, dose: Option<Estimate>) -> Verdict {
        self.dose = dose;
        self
    }

    /// With what the call will take without it.
    pub(crate) fn predicting(mut self, predicted: Option<Prediction>) -> Verdict {
        self.predicted = predicted;
        self
    }

    /// With more evidence.
    pub(crate) fn saying(mut self, words: impl Into<String>) -> Verdict {
        self.evidence.push(words.into());
        self
    }

    /// At most that sure.
    pub(crate) fn at_most(mut self, proof: Proof) -> Verdict {
        self.proof = self.proof.min(proof);
        self
    }

    /// One step less sure.
    pub(crate) fn less_sure(mut self) -> Verdict {
        self.proof = match self.proof {
            Proof::Proved => Proof::Likely,
            Proof::Likely | Proof::Possible => Proof::Possible,
        };
        self
    }

    /// It stands on times that were seen, and on no experiment or counter.
    pub(crate) fn is_by_time(&self) -> bool {
        self.by_time
    }

    /// It stands on calls that failed, which a busy machine does not make.
    pub(crate) fn by_failures(mut self) -> Verdict {
        self.by_time = false;
        self
    }

    /// Behind another that is the reason for it.
    pub(crate) fn behind(mut self) -> Verdict {
        self.behind = true;
        self
    }

    /// The call fails by it: that counts, whatever time it takes.
    pub(crate) fn failing(mut self) -> Verdict {
        self.fails = true;
        self
    }

    /// The call fails by it.
    pub fn fails(&self) -> bool {
        self.fails
    }

    /// With a title of its own.
    pub(crate) fn titled(mut self, title: &str) -> Verdict {
        self.title = title.to_owned();
        self
    }

    /// With advice of its own.
    pub(crate) fn advising(mut self, fixes: &'static [RuleFix]) -> Verdict {
        self.fixes = fixes;
        self
    }

    /// All that is known of its cause.
    pub fn cause(&self) -> &'static Cause {
        self.cause
    }

    /// The cause's stable name.
    pub fn id(&self) -> &'static str {
        self.cause.id
    }

    /// Names this cause.
    pub fn names(&self, cause: &Cause) -> bool {
        self.cause == cause
    }

    /// One line in plain words.
    pub fn title(&self) -> &str {
        &self.title
    }

    /// Milliseconds it costs the call.
    pub fn cost_ms(&self) -> f64 {
        self.cost_ms
    }

    /// How sure it is.
    pub fn proof(&self) -> Proof {
        self.proof
    }

    /// The same as a number between 0 and 1: what is left for chance and for what looks alike.
    pub fn confidence(&self) -> f64 {
        let chance = self.trials.first().map_or(0.0, |t| t.p_value);
        match self.proof {
            Proof::Proved => 0.99 - chance.min(0.09),
            Proof::Likely => 0.75,
            Proof::Possible => 0.4,
        }
    }

    /// Experiments behind it, the deciding one first.
    pub fn trials(&self) -> &[Trial] {
        &self.trials
    }

    /// How the time follows the strength of the first experiment's lever: milliseconds for each
    /// millisecond.
    pub fn dose(&self) -> Option<Estimate> {
        self.dose
    }

    /// Observations and counts that support the verdict.
    pub fn evidence(&self) -> &[String] {
        &self.evidence
    }

    /// Changes that remove the cause, by software.
    pub fn fixes(&self) -> &'static [RuleFix] {
        self.fixes
    }

    /// A caution for running the same command again to verify the fix; empty where there is
    /// none.
    pub fn verify(&self) -> &'static str {
        self.cause.verify
    }

    /// The predicted time of the call once the cause is fixed, where it can be predicted.
    pub fn predicted(&self) -> Option<Prediction> {
        self.predicted
    }

    /// Its rank: cost, weighted by the strength of the proof.
    pub(crate) fn weight(&self) -> f64 {
        let sure = match self.proof {
            Proof::Proved => 1.0,
            Proof::Likely => 0.8,
            Proof::Possible => 0.4,
        };
        self.cost_ms * sure * if self.behind { 0.3 } else { 1.0 }
    }
}
