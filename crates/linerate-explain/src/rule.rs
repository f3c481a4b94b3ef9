//! A rule: a cause by its stable name, the probes that it wants, and its judgement.

use std::cell::OnceCell;

use crate::evidence::{Exclusion, Trial};
use crate::probe::{Block, Experiment};
use crate::record::Record;
use crate::verdict::Verdict;

/// A change in one piece of software.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RuleFix {
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
    pub fixes: &'static [RuleFix],
    /// A caution for running the same command again to verify the fix; empty where there is
    /// none.
    pub verify: &'static str,
    pub(crate) rule: Rule,
}

/// Two pure functions. The first gives the probes that would tell more, when there is a sign of the
/// cause; none when all is known. The second judges.
#[derive(Debug)]
pub(crate) enum Rule {
    /// Over the record alone.
    Alone { wants: fn(&Record) -> Vec<Block>, judge: fn(&Record) -> Judgement },
    /// Over the record, and over the judgements of other causes: of those that are declared here.
    Beside {
        /// Each of these, when it is named, explains what was seen: then this cause is silent.
        hidden_by: &'static [&'static str],
        /// Other judgements that the rule asks for.
        asks: &'static [&'static str],
        wants: fn(&Record, &Judged<'_>) -> Vec<Block>,
        judge: fn(&Record, &Judged<'_>) -> Judgement,
    },
}

/// The judgements over one record. Each is made once, when it is first asked for.
#[derive(Debug)]
pub(crate) struct Judgements<'a> {
    record: &'a Record,
    causes: &'a [&'static Cause],
    made: Vec<OnceCell<Judgement>>,
}

impl<'a> Judgements<'a> {
    pub(crate) fn new(record: &'a Record, causes: &'a [&'static Cause]) -> Judgements<'a> {
        Judgements { record, causes, made: vec![OnceCell::new(); causes.len()] }
    }

    pub(crate) fn of(&self, id: &str) -> &Judgement {
        let Some(place) = self.causes.iter().position(|c| c.id == id) else {
            debug_assert!(false, "there is no cause {id}");
            return &Judgement::Silent;
        };
        self.made[place].get_or_init(|| match self.causes[place].rule {
            Rule::Alone { judge, .. } => judge(self.record),
            Rule::Beside { hidden_by, asks, judge, .. } => {
                judge(self.record, &Judged { all: self, hidden_by, asks })
            }
        })
    }

    /// The probes that the rule of a cause still wants.
    pub(crate) fn wanted(&self, cause: &Cause) -> Vec<Block> {
        match cause.rule {
            Rule::Alone { wants, .. } => wants(self.record),
            Rule::Beside { hidden_by, asks, wants, .. } => {
                wants(self.record, &Judged { all: self, hidden_by, asks })
            }
        }
    }
}

/// The part of the judgements that a rule may ask for: what it declares.
#[derive(Debug)]
pub(crate) struct Judged<'a> {
    all: &'a Judgements<'a>,
    hidden_by: &'static [&'static str],
    asks: &'static [&'static str],
}

impl Judged<'_> {
    pub(crate) fn of(&self, id: &str) -> &Judgement {
        let declared = self.hidden_by.contains(&id) || self.asks.contains(&id);
        debug_assert!(declared, "a rule asks for the judgement of {id}, which it does not declare");
        self.all.of(id)
    }

    pub(crate) fn names(&self, id: &str) -> bool {
        matches!(self.of(id), Judgement::Named(_))
    }

    pub(crate) fn names_any(&self, ids: &[&str]) -> bool {
        ids.iter().any(|id| self.names(id))
    }

    /// A cause is named that hides the one that asks.
    pub(crate) fn hides_it(&self) -> bool {
        self.names_any(self.hidden_by)
    }
}

/// Most fixes are verified by the same command.
pub(crate) const AGAIN: &str = "";

/// No probe would tell more.
pub(crate) fn nothing(_: &Record) -> Vec<Block> {
    Vec::new()
}

/// The same for a rule that asks for judgements.
pub(crate) fn nothing_beside(_: &Record, _: &Judged<'_>) -> Vec<Block> {
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

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;
    use crate::record::Settings;

    static MADE: AtomicUsize = AtomicUsize::new(0);

    static ASKED: Cause = Cause {
        rule: Rule::Alone {
            wants: nothing,
            judge: |_| {
                MADE.fetch_add(1, Ordering::Relaxed);
                Judgement::Open("made".to_owned())
            },
        },
        ..cause("asked")
    };

    static ASKING: Cause = Cause {
        rule: Rule::Beside {
            hidden_by: &["asked"],
            asks: &[],
            wants: nothing_beside,
            judge: |_, judged| if judged.hides_it() { Judgement::Silent } else { judged.of("asked").clone() },
        },
        ..cause("asking")
    };

    const fn cause(id: &'static str) -> Cause {
        let rule = Rule::Alone { wants: nothing, judge: |_| Judgement::Silent };
        Cause { id, title: "", fixes: &[], verify: AGAIN, rule }
    }

    #[test]
    fn a_judgement_is_made_once() {
        let record = Record::new(Settings::default());
        let all = [&ASKING, &ASKED];
        let judgements = Judgements::new(&record, &all);
        assert_eq!(judgements.of("asking"), judgements.of("asked"));
        assert_eq!(MADE.load(Ordering::Relaxed), 1);
    }

    #[cfg(debug_assertions)]
    #[test]
    #[should_panic(expected = "does not declare")]
    fn a_judgement_that_is_not_declared_is_not_given() {
        static SECRETLY: Cause = Cause {
            rule: Rule::Beside {
                hidden_by: &[],
                asks: &[],
                wants: nothing_beside,
                judge: |_, judged| judged.of("other").clone(),
            },
            ..cause("secretly")
        };
        static OTHER: Cause = cause("other");
        let record = Record::new(Settings::default());
        Judgements::new(&record, &[&SECRETLY, &OTHER]).of("secretly");
    }
}
