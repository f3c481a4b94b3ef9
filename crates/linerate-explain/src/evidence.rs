//! What a verdict stands on. There is no way to a [`Verdict`](crate::verdict::Verdict) but through [`Grounds`].

use crate::stats::{Estimate, median, p_value, shift};

/// Two arms of an experiment that differ in one thing, run in turns in random order.
#[derive(Clone, Debug, PartialEq)]
pub struct Trial {
    /// What was tried.
    pub name: String,
    /// The one thing that was changed.
    pub changed: String,
    /// Milliseconds of each call without the change.
    pub without: Vec<f64>,
    /// Milliseconds of each call with it.
    pub with: Vec<f64>,
    /// How much time the change took away, milliseconds.
    pub effect: Estimate,
    /// How likely such a difference is when the change does nothing.
    pub p_value: f64,
}

impl Trial {
    /// Compares two arms. `None` when one has fewer than two calls.
    pub fn of(name: &str, changed: &str, without: Vec<f64>, with: Vec<f64>) -> Option<Trial> {
        (without.len() >= 2 && with.len() >= 2).then(|| Trial {
            name: name.to_owned(),
            changed: changed.to_owned(),
            effect: shift(&without, &with),
            p_value: p_value(&without, &with),
            without,
            with,
        })
    }

    /// Median without the change, milliseconds.
    pub fn before_ms(&self) -> f64 {
        median(&self.without)
    }

    /// Median with it.
    pub fn after_ms(&self) -> f64 {
        median(&self.with)
    }

    /// The change took away at least `ms` milliseconds, and chance is no explanation: with four calls in each arm the
    /// smallest probability there can be is 0.029, with three 0.1; there every call must have moved, and by half.
    pub fn moved(&self, ms: f64) -> bool {
        let least = self.without.iter().copied().fold(f64::INFINITY, f64::min);
        let most = self.with.iter().copied().fold(0.0, f64::max);
        let apart = least > 2.0 * most;
        self.effect.value >= ms
            && self.effect.low > 0.0
            && (self.p_value <= 0.03 || (apart && self.p_value <= 0.11))
    }
}

/// How sure a verdict is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Proof {
    /// Seen, and others are as well possible.
    Possible,
    /// Seen, and what else could be was ruled out as far as it can be.
    Likely,
    /// An intervention moved it, or a kernel counter owns at least 80 % of the excess.
    Proved,
}

impl Proof {
    /// Its name in reports.
    pub fn name(self) -> &'static str {
        match self {
            Proof::Possible => "possible",
            Proof::Likely => "likely",
            Proof::Proved => "proved",
        }
    }
}

/// What a verdict stands on first.
#[derive(Clone, Debug, PartialEq)]
pub enum Grounds {
    /// An intervention moved it.
    Moved(Trial),
    /// The kernel counted it.
    Counted {
        /// What was counted, in words with its figures.
        words: String,
        /// The share of the excess it owns.
        share: f64,
    },
    /// It was seen, and `words` say what.
    Seen {
        /// In words with its figures.
        words: String,
        /// Nothing else that could look so is left.
        alone: bool,
    },
}

/// Share of the excess a counter must own to prove.
const OWNS: f64 = 0.8;

impl Grounds {
    /// How sure that is.
    pub fn proof(&self) -> Proof {
        match self {
            Grounds::Moved(trial) if trial.moved(0.0) => Proof::Proved,
            Grounds::Counted { share, .. } if *share >= OWNS => Proof::Proved,
            Grounds::Moved(_) | Grounds::Counted { .. } | Grounds::Seen { alone: true, .. } => Proof::Likely,
            Grounds::Seen { alone: false, .. } => Proof::Possible,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_proves_and_what_does_not() {
        let trial = |without: &[f64], with: &[f64]| {
            Trial::of("t", "c", without.to_vec(), with.to_vec()).expect("enough")
        };
        let stall = [44.0, 43.9, 44.1, 44.0, 44.2, 43.8];
        let quick = [0.5, 0.6, 0.4, 0.5, 0.7, 0.5];
        assert_eq!(Grounds::Moved(trial(&stall, &quick)).proof(), Proof::Proved);
        assert_eq!(Grounds::Moved(trial(&stall, &stall)).proof(), Proof::Likely);
        assert!(!trial(&stall, &stall).moved(0.0));
        assert!(
            trial(&[1000.0, 1001.0, 1002.0], &[1.0, 2.0, 3.0]).moved(5.0),
            "three calls, all of which moved"
        );
        assert!(!trial(&[1000.0, 1001.0, 2.0], &[1.0, 2.0, 3.0]).moved(5.0));
        assert_eq!(Trial::of("t", "c", vec![1.0], vec![2.0, 3.0]), None);
        let counted = |share| Grounds::Counted { words: "w".to_owned(), share }.proof();
        assert_eq!((counted(0.8), counted(0.79)), (Proof::Proved, Proof::Likely));
    }
}
