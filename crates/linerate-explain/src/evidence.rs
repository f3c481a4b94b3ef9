//! The evidence for a verdict. A [`Verdict`](crate::verdict::Verdict) can only be made from
//! [`Grounds`].

use crate::stats::{Estimate, median, more_often, p_value, shift};

/// Two arms of an experiment that differ in one thing, in paired runs in random order.
#[derive(Clone, Debug, PartialEq)]
pub struct Trial {
    /// The change under test.
    pub name: String,
    /// The one thing that was changed.
    pub changed: String,
    /// Milliseconds of each call without the change.
    pub without: Vec<f64>,
    /// Milliseconds of each call with it.
    pub with: Vec<f64>,
    /// How much time the change took away, milliseconds.
    pub effect: Estimate,
    /// Probability of such a difference if the change does nothing.
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

    /// The change removed at least `ms` milliseconds, and chance does not explain that. With four
    /// calls in each arm the smallest possible probability is 0.029. With three it is 0.1; then
    /// every call must have moved, and by half.
    pub fn moved(&self, ms: f64) -> bool {
        let least = self.without.iter().copied().fold(f64::INFINITY, f64::min);
        let most = self.with.iter().copied().fold(0.0, f64::max);
        let apart = least > 2.0 * most;
        let all = self.effect.low > 0.0 && (self.p_value <= 0.03 || (apart && self.p_value <= 0.11));
        self.effect.value >= ms && (all || self.moved_often())
    }

    /// Not every call without the change is slow (a stall that a busy machine spares some calls),
    /// and with it hardly one is: then the interval of the shift reaches to 0, and how often calls
    /// are slow decides (Fisher's exact test).
    fn moved_often(&self) -> bool {
        let half = self.effect.value / 2.0;
        let slow = |times: &[f64]| times.iter().filter(|t| **t > half + median(&self.with)).count();
        let (without, with) = (slow(&self.without), slow(&self.with));
        2 * without >= self.without.len()
            && self.p_value <= 0.03
            && more_often(without, self.without.len(), with, self.with.len()) <= 0.01
    }

    /// The interval excludes that the change takes away `ms` milliseconds or more.
    pub fn excludes(&self, ms: f64) -> bool {
        let enough = self.without.len().min(self.with.len()) >= LEAST_CALLS;
        enough && self.effect.high < ms && !self.moved(ms)
    }

    /// Neither did it move, nor is it excluded that it takes away `ms` milliseconds.
    pub fn is_unclear(&self, ms: f64) -> bool {
        !self.moved(ms) && !self.excludes(ms)
    }

    /// Number of calls that would decide whether it removes `ms` milliseconds, if these do not: the
    /// interval narrows with their root.
    pub fn calls_to_tell(&self, ms: f64) -> usize {
        let made = self.without.len() + self.with.len();
        let half = (self.effect.high - self.effect.low) / 2.0;
        let times = (half / (ms / 2.0).max(1e-3)).powi(2).clamp(1.0, 50.0);
        ((made as f64 * times) as usize).saturating_sub(made).max(2 * LEAST_CALLS)
    }
}

/// Calls in each arm from which on an interval says anything.
const LEAST_CALLS: usize = 3;

/// The reason why a cause is excluded. The mere absence of signs is no such reason. It takes an
/// interval that does not contain the effect, or an observation that is impossible if the cause
/// exists.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Exclusion(String);

impl Exclusion {
    /// The experiment's interval does not contain an effect of `ms` milliseconds.
    ///
    /// # Errors
    /// It contains one; the error says in words what would decide.
    pub(crate) fn by_interval(trial: &Trial, ms: f64, words: &str) -> Result<Exclusion, String> {
        if trial.excludes(ms) {
            return Ok(Exclusion(words.to_owned()));
        }
        Err(format!("unclear: {words}; {} more calls would tell", trial.calls_to_tell(ms)))
    }

    /// None of `events` showed the cause. The reason states what that cannot exclude: a share that
    /// would have shown with a probability of 95 %.
    pub(crate) fn none_of(events: u64, words: &str) -> Exclusion {
        // The rule of three: the upper end of the interval for a share of which none was seen.
        let most = 300.0 / events.max(3) as f64;
        Exclusion(format!("{words} (a share of more than {most:.1} % would have shown)"))
    }

    /// Something was seen that cannot be where the cause is.
    pub(crate) fn seen(words: impl Into<String>) -> Exclusion {
        Exclusion(words.into())
    }

    /// The reason in words.
    pub fn words(&self) -> &str {
        &self.0
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

/// The main evidence of a verdict.
#[derive(Clone, Debug, PartialEq)]
pub enum Grounds {
    /// An intervention moved it.
    Moved(Trial),
    /// The kernel counted it.
    Counted {
        /// The counts, in words with their figures.
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
    fn nothing_is_ruled_out_without_an_interval() {
        let trial = |without: &[f64], with: &[f64]| {
            Trial::of("t", "c", without.to_vec(), with.to_vec()).expect("enough")
        };
        let quiet = trial(&[50.1, 50.2, 50.0, 50.3], &[50.2, 50.1, 50.0, 50.2]);
        assert!(quiet.excludes(4.0) && Exclusion::by_interval(&quiet, 4.0, "w").is_ok());
        // On a busy machine: half of the calls stall, and with the lever hardly one.
        let busy = trial(&[50.8, 0.1, 51.0, 0.1], &[0.05, 0.05, 0.04, 30.0]);
        assert!(busy.is_unclear(4.0), "{busy:?}");
        let word = Exclusion::by_interval(&busy, 4.0, "w").expect_err("too wide");
        assert!(word.starts_with("unclear: w; ") && word.ends_with(" more calls would tell"), "{word}");
        assert!(!trial(&[1.0, 1.0], &[1.0, 1.0]).excludes(4.0), "two calls exclude nothing");
        let none = Exclusion::none_of(100, "none lost");
        assert_eq!(none.words(), "none lost (a share of more than 3.0 % would have shown)");
    }

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
        let sometimes = [43.0, 43.2, 0.1, 43.1, 42.9, 0.1, 43.4, 43.0, 43.3, 0.1];
        let never = [0.1; 10];
        assert!(trial(&sometimes, &never).moved(5.0), "{:?}", trial(&sometimes, &never));
        assert!(!trial(&never, &sometimes).moved(0.0));
        let counted = |share| Grounds::Counted { words: "w".to_owned(), share }.proof();
        assert_eq!((counted(0.8), counted(0.79)), (Proof::Proved, Proof::Likely));
    }
}
