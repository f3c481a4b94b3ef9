//! A rule: a cause by its stable name, the probes that it wants, and its judgement.

use std::cell::OnceCell;
use std::fmt;

use crate::call::Call;
use crate::evidence::{Exclusion, Trial};
use crate::parts::{CausePage, FaultPlace, Forecast, PacketSigns, RuleFix, ServerChange};
use crate::probe::{Block, Experiment};
use crate::record::Record;
use crate::times::CallPart;
use crate::verdict::Verdict;

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

/// A cause: all that is known of it, and its rule. Two are equal when their names are.
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
    /// Where it is.
    pub place: FaultPlace,
    /// The part of a call that it makes longer.
    pub part: CallPart,
    /// What the longest pause of a call is when this is its cause, where that can be said in a few
    /// words.
    pub pause: Option<&'static str>,
    /// What packets alone show of it; `None`: nothing.
    pub packets: Option<PacketSigns>,
    /// Its explanation.
    pub page: CausePage,
    pub(crate) server_changed: ServerChange,
    pub(crate) forecast: Forecast,
    pub(crate) rule: Rule,
}

impl Cause {
    /// Whether a call met it, as far as the kernel counted that; `true` where it does not count.
    pub fn is_met_by(&self, call: &Call) -> bool {
        match self.forecast {
            Forecast::Spared(met) => met(call),
            _ => true,
        }
    }

    /// The fixes: all that verdicts and captures advise, and those for more systems.
    pub fn all_fixes(&self) -> Vec<RuleFix> {
        let seen = self.packets.map_or(&[][..], |p| p.fixes);
        let mut fixes: Vec<RuleFix> = Vec::new();
        for fix in self.fixes.iter().chain(seen).chain(self.page.more) {
            if !fixes.contains(fix) {
                fixes.push(*fix);
            }
        }
        fixes
    }
}

/// A cause that no experiment tells: packets alone show it.
pub(crate) struct PacketCause {
    pub(crate) id: &'static str,
    pub(crate) place: FaultPlace,
    pub(crate) packets: PacketSigns,
    pub(crate) page: CausePage,
}

impl PacketCause {
    pub(crate) const fn cause(self) -> Cause {
        Cause {
            id: self.id,
            title: self.packets.title,
            fixes: self.packets.fixes,
            verify: AGAIN,
            place: self.place,
            part: CallPart::Call,
            pause: None,
            packets: Some(self.packets),
            page: self.page,
            server_changed: ServerChange::TakenBack,
            forecast: Forecast::Lever,
            rule: Rule::PacketsAlone,
        }
    }
}

impl PartialEq for Cause {
    fn eq(&self, other: &Cause) -> bool {
        self.id == other.id
    }
}

impl Eq for Cause {}

impl fmt::Debug for Cause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.id)
    }
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
        hidden_by: &'static [&'static Cause],
        /// Other judgements that the rule asks for.
        asks: &'static [&'static Cause],
        wants: fn(&Record, &Judged<'_>) -> Vec<Block>,
        judge: fn(&Record, &Judged<'_>) -> Judgement,
    },
    /// No experiment tells: only packets show it.
    PacketsAlone,
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
            Rule::PacketsAlone => Judgement::Silent,
        })
    }

    /// The probes that the rule of a cause still wants.
    pub(crate) fn wanted(&self, cause: &Cause) -> Vec<Block> {
        match cause.rule {
            Rule::Alone { wants, .. } => wants(self.record),
            Rule::Beside { hidden_by, asks, wants, .. } => {
                wants(self.record, &Judged { all: self, hidden_by, asks })
            }
            Rule::PacketsAlone => Vec::new(),
        }
    }
}

/// The part of the judgements that a rule may ask for: what it declares.
#[derive(Debug)]
pub(crate) struct Judged<'a> {
    all: &'a Judgements<'a>,
    hidden_by: &'static [&'static Cause],
    asks: &'static [&'static Cause],
}

impl Judged<'_> {
    pub(crate) fn of(&self, cause: &Cause) -> &Judgement {
        let id = cause.id;
        let declared = self.hidden_by.iter().chain(self.asks).any(|c| c.id == id);
        debug_assert!(declared, "a rule asks for the judgement of {id}, which it does not declare");
        self.all.of(id)
    }

    pub(crate) fn names(&self, cause: &Cause) -> bool {
        matches!(self.of(cause), Judgement::Named(_))
    }

    pub(crate) fn names_any(&self, causes: &[&Cause]) -> bool {
        causes.iter().any(|cause| self.names(cause))
    }

    /// A cause is named that hides the one that asks.
    pub(crate) fn hides_it(&self) -> bool {
        self.names_any(self.hidden_by)
    }
}

#[cfg(test)]
impl Cause {
    /// One for tests, with nothing to say.
    pub(crate) const BLANK: Cause = Cause {
        id: "",
        title: "",
        fixes: &[],
        verify: AGAIN,
        place: FaultPlace::Wire,
        part: CallPart::Call,
        pause: None,
        packets: None,
        page: CausePage { what: "", lanes: ["", ""], picture: &[], more: &[] },
        server_changed: ServerChange::TakenBack,
        forecast: Forecast::Lever,
        rule: Rule::PacketsAlone,
    };
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
            hidden_by: &[&ASKED],
            asks: &[],
            wants: nothing_beside,
            judge: |_, judged| if judged.hides_it() { Judgement::Silent } else { judged.of(&ASKED).clone() },
        },
        ..cause("asking")
    };

    const fn cause(id: &'static str) -> Cause {
        let rule = Rule::Alone { wants: nothing, judge: |_| Judgement::Silent };
        Cause { id, title: "", fixes: &[], rule, ..Cause::BLANK }
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
                judge: |_, judged| judged.of(&OTHER).clone(),
            },
            ..cause("secretly")
        };
        static OTHER: Cause = cause("other");
        let record = Record::new(Settings::default());
        Judgements::new(&record, &[&SECRETLY, &OTHER]).of("secretly");
    }
}
