//! Compares the calls' times of two diagnoses, to see whether a cause that was found before is
//! gone. Pure functions.

use crate::stats::{Estimate, median, more_often, p_value, shift};
use crate::times::CallPart;

/// A cause as an earlier diagnosis has it.
#[derive(Clone, Debug, PartialEq)]
pub struct Before {
    /// The cause's stable id.
    pub id: String,
    /// Milliseconds that it cost.
    pub cost_ms: f64,
    /// The part of the call that it makes slow.
    pub part: CallPart,
    /// The time of that part in each call, milliseconds.
    pub times: Vec<f64>,
    /// Of that, what a call on a connection that stands took, in the middle: the cause is in the rest.
    /// 0 where it is in such calls themselves.
    pub rest_ms: f64,
    /// The predicted time of the part after the fix.
    pub predicted: Option<Estimate>,
}

/// The state of an earlier cause now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Change {
    /// The calls are quicker by what it cost.
    Gone,
    /// They are quicker by part of that.
    Partly,
    /// They are not.
    Still,
    /// This many more calls in each diagnosis would tell; 0 where the calls' times do not contain what
    /// it cost.
    Unclear(usize),
}

impl Change {
    /// Its name in documents.
    pub fn name(self) -> &'static str {
        match self {
            Change::Gone => "gone",
            Change::Partly => "partly gone",
            Change::Still => "still there",
            Change::Unclear(_) => "unclear",
        }
    }
}

/// A cause now and before.
#[derive(Clone, Debug, PartialEq)]
pub struct Compared {
    /// Whether the cause is gone.
    pub change: Change,
    /// Median time of the part in the earlier diagnosis, milliseconds.
    pub before_ms: f64,
    /// Median time of the part now, milliseconds.
    pub now_ms: f64,
    /// Probability that this is not chance, below 1; `None` if it is unclear, or if the cause's own
    /// experiment decided.
    pub confidence: Option<f64>,
    /// If the cause is gone and its fix had a prediction: whether that held.
    pub held: Option<bool>,
}

/// Share of a cause's cost that must be missing for it to be gone.
const ALL_OF_IT: f64 = 0.75;
/// Share of a cause's cost that must be missing for it to be gone in part.
const PART_OF_IT: f64 = 0.25;
/// Share of a cause's cost that must be visible in the calls' times. Otherwise these cannot show
/// whether it is gone.
const HELD: f64 = 0.8;
/// Chance of being wrong that is accepted.
const CHANCE: f64 = 0.05;
/// How far a prediction may be off: a share of it.
const OFF_SHARE: f64 = 0.1;
/// How far a prediction may be off, milliseconds: machines differ by that from one minute to the next.
const OFF_MS: f64 = 1.0;

/// Compares a cause with the times of its part `now`, of which `rest_ms` are those of a call on a
/// connection that stands: where the cause lies before such a call, only what comes beside it is
/// compared, so that a mend of something else confirms nothing. `named`: this diagnosis names the
/// cause again, as more than `possible`.
pub fn compare(before: &Before, now: &[f64], rest_ms: f64, named: bool) -> Compared {
    let (before_ms, now_ms) = (median(&before.times), median(now));
    let beside = |times: &[f64], rest: f64| times.iter().map(|t| (t - rest).max(0.0)).collect::<Vec<_>>();
    let (was, is) = (beside(&before.times, before.rest_ms), beside(now, rest_ms));
    let took_away = |share: f64| above(&was, &is, share * before.cost_ms);
    let (all, part, none) = (took_away(ALL_OF_IT), took_away(PART_OF_IT), median(&was) - median(&is));
    let (change, chance) = if !named && !was.is_empty() && median(&was) < HELD * before.cost_ms {
        match seldom(&was, &is, before.cost_ms) {
            chance if chance <= CHANCE => (Change::Gone, Some(chance)),
            _ => (Change::Unclear(0), None),
        }
    } else if named {
        let partly = part <= CHANCE && none >= PART_OF_IT * before.cost_ms;
        (if partly { Change::Partly } else { Change::Still }, None)
    } else if all <= CHANCE {
        (Change::Gone, Some(all))
    } else if above(&is, &was, -ALL_OF_IT * before.cost_ms) <= CHANCE {
        match part <= CHANCE {
            true => (Change::Partly, Some(part)),
            false => (Change::Still, Some(above(&is, &was, -ALL_OF_IT * before.cost_ms))),
        }
    } else {
        (Change::Unclear(calls_to_tell(&was, &is, before.cost_ms)), None)
    };
    let held = before.predicted.filter(|_| change == Change::Gone).map(|p| holds(p, now));
    Compared { change, before_ms, now_ms, confidence: chance.map(|c| 1.0 - c), held }
}

/// How likely it is by chance that none of the calls now meets a cause that met some of those before, and
/// cost them so much (Fisher's exact test).
fn seldom(was: &[f64], is: &[f64], cost_ms: f64) -> f64 {
    let from = median(is) + ALL_OF_IT * cost_ms;
    let met = |times: &[f64]| times.iter().filter(|t| **t >= from).count();
    if is.is_empty() || met(is) > 0 { 1.0 } else { more_often(met(was), was.len(), 0, is.len()) }
}

/// How likely it is by chance that values of `a` are above those of `b` by more than `ms`
/// (permutation test on ranks, one side).
fn above(a: &[f64], b: &[f64], ms: f64) -> f64 {
    if a.is_empty() || b.is_empty() {
        return 1.0;
    }
    let less: Vec<f64> = a.iter().map(|t| t - ms).collect();
    let p = p_value(&less, b) / 2.0;
    if shift(&less, b).value > 0.0 { p } else { 1.0 - p }
}

/// Whether a time in the middle of `now` is what was predicted: the intervals meet, or it is off by
/// little.
fn holds(predicted: Estimate, now: &[f64]) -> bool {
    let seen = crate::stats::middle(now);
    let meet = seen.low <= predicted.high && predicted.low <= seen.high;
    meet || (seen.value - predicted.value).abs() <= OFF_MS.max(OFF_SHARE * predicted.value)
}

/// Number of calls that would decide where these do not. An interval narrows with the root of that
/// number, and ranks of few calls decide nothing.
fn calls_to_tell(before: &[f64], now: &[f64], cost_ms: f64) -> usize {
    const LEAST: usize = 4;
    let few = LEAST.saturating_sub(before.len().min(now.len()));
    if few > 0 {
        return few;
    }
    let seen = shift(before, now);
    let times = ((seen.high - seen.low) / cost_ms.max(1e-3)).powi(2).clamp(1.0, 50.0);
    let made = before.len().max(now.len());
    ((made as f64 * times) as usize).saturating_sub(made).max(LEAST)
}

/// How calls without a named cause compare.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BaselinePace {
    /// They take longer.
    Slower,
    /// They take less.
    Faster,
    /// No difference was seen.
    Alike,
}

impl BaselinePace {
    /// Its name in documents.
    pub fn name(self) -> &'static str {
        match self {
            BaselinePace::Slower => "slower",
            BaselinePace::Faster => "faster",
            BaselinePace::Alike => "as before",
        }
    }
}

/// A difference that counts, milliseconds.
const COUNTS_MS: f64 = 2.0;
/// A difference that counts, as a share of the call.
const COUNTS_SHARE: f64 = 0.1;

/// Compares the calls of two diagnoses, of which the first named no cause. Also returns the
/// probability that the difference is not chance.
pub fn pace(before: &[f64], now: &[f64]) -> (BaselinePace, Option<f64>) {
    let least = COUNTS_MS.max(COUNTS_SHARE * median(before).max(median(now)));
    let [slower, faster] = [above(now, before, least), above(before, now, least)];
    match (slower <= CHANCE, faster <= CHANCE) {
        (true, _) => (BaselinePace::Slower, Some(1.0 - slower)),
        (_, true) => (BaselinePace::Faster, Some(1.0 - faster)),
        _ => (BaselinePace::Alike, None),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stalled(times: &[f64]) -> Before {
        let predicted = Some(Estimate { value: 1.8, low: 1.5, high: 2.3 });
        Before {
            id: "x".to_owned(),
            cost_ms: 40.0,
            part: CallPart::Call,
            times: times.to_vec(),
            rest_ms: 0.0,
            predicted,
        }
    }

    const SLOW: [f64; 6] = [42.0, 41.8, 42.3, 42.1, 41.9, 42.0];
    const QUICK: [f64; 6] = [1.8, 1.9, 1.7, 2.1, 1.6, 1.8];

    #[test]
    fn gone_partly_gone_and_still_there() {
        let before = stalled(&SLOW);
        let gone = compare(&before, &QUICK, 0.0, false);
        assert_eq!((gone.change, gone.held), (Change::Gone, Some(true)));
        assert!((gone.before_ms - 42.0).abs() < 0.1 && (gone.now_ms - 1.8).abs() < 0.1, "{gone:?}");
        assert!(gone.confidence.is_some_and(|c| c > 0.99), "{gone:?}");
        let still = compare(&before, &SLOW, 0.0, true);
        assert_eq!((still.change, still.held, still.confidence), (Change::Still, None, None));
        let again = compare(&before, &SLOW, 0.0, false);
        assert_eq!(again.change, Change::Still, "times tell it, too: {again:?}");
        let half: Vec<f64> = SLOW.iter().map(|t| t - 20.0).collect();
        assert_eq!(compare(&before, &half, 0.0, false).change, Change::Partly);
        assert_eq!(compare(&before, &half, 0.0, true).change, Change::Partly);
        // Named again although the calls are as quick as can be: the experiment saw it.
        assert_eq!(compare(&before, &SLOW.map(|t| t - 1.0), 0.0, true).change, Change::Still);
    }

    #[test]
    fn few_or_scattered_calls_tell_nothing() {
        assert_eq!(compare(&stalled(&[42.0]), &[1.8], 0.0, false).change, Change::Unclear(3));
        assert_eq!(compare(&stalled(&[]), &QUICK, 0.0, false).change, Change::Unclear(4));
        let scattered = [3.0, 90.0, 14.0, 60.0, 2.0, 80.0];
        let unclear = compare(&stalled(&scattered), &[2.0, 70.0, 9.0, 55.0, 31.0, 7.0], 0.0, false);
        assert!(matches!(unclear.change, Change::Unclear(n) if n >= 4), "{unclear:?}");
        assert_eq!((unclear.confidence, unclear.held), (None, None));
    }

    #[test]
    fn times_that_do_not_hold_the_cost_tell_nothing() {
        let spared = Before { cost_ms: 4000.0, ..stalled(&SLOW) };
        assert_eq!(compare(&spared, &QUICK, 0.0, false).change, Change::Unclear(0));
        assert_eq!(compare(&spared, &QUICK, 0.0, true).change, Change::Still);
    }

    /// A new connection took 60 ms more than a call on one that stands, which took 44 ms.
    #[test]
    fn a_mend_of_something_else_does_not_confirm() {
        let new = SLOW.map(|t| t + 62.0);
        let before = Before { cost_ms: 60.0, part: CallPart::New, rest_ms: 44.0, ..stalled(&new) };
        // Calls are quicker, and connections are opened as slowly.
        let other = compare(&before, &new.map(|t| t - 43.0), 1.0, false);
        assert!(!matches!(other.change, Change::Gone | Change::Partly), "{other:?}");
        assert_eq!(compare(&before, &new.map(|t| t - 60.0), 44.0, false).change, Change::Gone);
        assert_eq!(compare(&before, &new.map(|t| t - 103.0), 1.0, false).change, Change::Gone);
    }

    /// A quota that keeps one call in three from running.
    #[test]
    fn a_cause_that_met_some_calls_only_is_gone_where_none_meets_it() {
        let before =
            Before { cost_ms: 70.0, ..stalled(&[12.0, 12.1, 85.0, 12.0, 11.9, 84.0, 12.0, 12.2, 86.0]) };
        assert_eq!(compare(&before, &[12.0; 18], 0.0, false).change, Change::Gone);
        assert_eq!(compare(&before, &[12.0; 3], 0.0, false).change, Change::Unclear(0));
        assert_eq!(compare(&before, &[[12.0; 8], [85.0; 8]].concat(), 0.0, false).change, Change::Unclear(0));
    }

    #[test]
    fn a_prediction_holds_where_intervals_meet_or_little_is_missing() {
        let predicted = Estimate { value: 40.0, low: 39.9, high: 40.1 };
        assert!(holds(predicted, &[43.9, 43.8, 43.95]), "within 10 %");
        assert!(holds(predicted, &[38.0, 48.0, 54.0, 53.0]), "the intervals meet");
        assert!(!holds(predicted, &[45.0, 45.1, 45.2, 45.3]));
        let short = Estimate { value: 0.5, low: 0.4, high: 0.6 };
        assert!(
            holds(short, &[1.1, 1.2, 1.1]) && !holds(short, &[1.9, 1.8, 1.9]),
            "a millisecond is nothing"
        );
    }

    #[test]
    fn without_a_cause_the_pace_is_compared() {
        assert_eq!(pace(&QUICK, &QUICK), (BaselinePace::Alike, None));
        assert_eq!(pace(&QUICK, &SLOW).0, BaselinePace::Slower);
        assert_eq!(pace(&SLOW, &QUICK).0, BaselinePace::Faster);
        assert_eq!(pace(&[], &QUICK).0, BaselinePace::Alike);
        let trifle = QUICK.map(|t| t + 1.0);
        assert_eq!(pace(&QUICK, &trifle).0, BaselinePace::Alike, "a millisecond is nothing");
    }
}
