//! What a rule is: a cause by its stable name, the probes that it wants, and its judgement.

use crate::evidence::{Exclusion, Trial};
use crate::probe::{Block, Experiment};
use crate::record::Record;
use crate::verdict::Verdict;

/// A change in one piece of software.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fix {
    /// Which software.
    pub software: &'static str,
    /// The change to make there.
    pub change: &'static str,
}

/// The judgement of a rule on the observations.
#[derive(Clone, Debug, PartialEq)]
pub enum Judgement {
    /// It is the cause, or one of them.
    Named(Box<Verdict>),
    /// It was tested, or what was seen excludes it.
    RuledOut(Exclusion),
    /// It could not be tested here; what would be needed.
    Open(String),
    /// There was no sign of it.
    Silent,
}

/// A cause and its rule.
#[derive(Debug)]
pub struct Cause {
    /// Its stable name.
    pub id: &'static str,
    /// One line in plain words.
    pub title: &'static str,
    /// Changes that remove it.
    pub fixes: &'static [Fix],
    /// A caution for running the same command again to verify the fix; empty where there is
    /// none.
    pub verify: &'static str,
    /// The probes that would tell more, when there is a sign of it; none when all is known.
    pub(crate) wants: fn(&Record) -> Vec<Block>,
    /// The judgement.
    pub(crate) judge: fn(&Record) -> Judgement,
}

/// Most fixes are verified by the same command.
pub(crate) const AGAIN: &str = "";

/// Nothing more to ask.
pub(crate) fn nothing(_: &Record) -> Vec<Block> {
    Vec::new()
}

/// Something was seen that cannot be where the cause is.
pub(crate) fn excluded(words: impl Into<String>) -> Judgement {
    Judgement::RuledOut(Exclusion::seen(words))
}

/// An experiment that did not move `ms` milliseconds: ruled out where its interval excludes them,
/// else unclear.
pub(crate) fn not_moved(trial: &Trial, ms: f64, words: &str) -> Judgement {
    Exclusion::by_interval(trial, ms, words).map_or_else(Judgement::Open, Judgement::RuledOut)
}

/// Whether an experiment is to be made: the first time, and once more where a busy machine makes
/// its noise too wide to tell.
pub(crate) fn again(record: &Record, experiment: Experiment, trial: Option<&Trial>, ms: f64) -> bool {
    const ENOUGH: usize = 10;
    match trial {
        None => !record.tried(experiment),
        Some(trial) => {
            let few = trial.without.len().max(trial.with.len()) < ENOUGH;
            trial.is_unclear(ms) && few && !record.given_up.contains(&experiment)
        }
    }
}
