//! Whether calls wait because they follow one another too soon, and whether the server itself says
//! so.

use std::collections::BTreeMap;
use std::time::Duration;

use super::wait::{WORK_MS, beyond_rtt};
use crate::call::{Call, ProbeResponse, ms};
use crate::evidence::Trial;
use crate::probe::{CallProbe, Experiment};
use crate::record::Record;
use crate::stats::{Estimate, median, slope};
use crate::words::say;

/// Used if a refusal does not say when to retry.
const AGAIN: Duration = Duration::from_secs(1);

/// The server refuses a call because too many came: 429 (RFC 6585, section 4), or 503 with a time
/// to come again (RFC 9110, section 15.6.4). When it may be called again.
pub(crate) fn refused(answer: &ProbeResponse) -> Option<Duration> {
    let after = answer.field("retry-after");
    let asked = answer.status == 429 || answer.status == 503 && after.is_some();
    // A date (RFC 9110, section 10.2.3) is not read: it would need the server's clock.
    let seconds = after.and_then(|a| a.trim().parse().ok()).map_or(AGAIN, Duration::from_secs);
    asked.then_some(seconds)
}

/// Calls that were refused so, and all that were answered.
pub(crate) fn refusals(record: &Record) -> (Vec<&ProbeResponse>, usize) {
    let calls = record.calls().map(|(_, c)| c).chain(record.bursts().flatten());
    let answers: Vec<&ProbeResponse> = calls.filter_map(Call::answer).collect();
    let all = answers.len();
    (answers.into_iter().filter(|a| refused(a).is_some()).collect(), all)
}

/// Arms of [`Experiment::Paced`]: right after the call before, after a pause longer than a call
/// takes, the call that opens the connection, and after a quarter and half of what long pauses spare.
pub(crate) const SOON: u8 = 0;
pub(crate) const LONG: u8 = 1;
pub(crate) const OPENING: u8 = 2;
pub(crate) const SHORT: [(u8, f64); 2] = [(3, 0.25), (4, 0.5)];
/// Pauses longer than a call, in times that a call takes. Reason: neither is a whole number, so
/// that a server that answers on a tick makes calls wait differently after each of them.
pub(crate) const PAUSES: [f64; 3] = [1.5, 2.3, 3.1];
/// Share of what calls wait that the pace must explain.
const LEAST_SHARE: f64 = 0.3;
/// Least wait that the pace must explain, milliseconds.
const LEAST_MS: f64 = WORK_MS / 2.0;
/// How far calls after long pauses may be from their floor: a share of what a pause spares.
const OFF_SHARE: f64 = 0.15;
/// The same in milliseconds.
const OFF_MS: f64 = 2.0;
/// Calls after each dose from which on it counts.
const EACH: usize = 2;

/// How the wait of a call depends on the pause before it.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum PausePace {
    /// Nothing is known.
    Untried,
    /// A pause does not spare a call its wait, or that is unclear: the trial says which.
    Same(Trial),
    /// It falls by a millisecond for each millisecond of pause, and stays at its floor after longer
    /// ones: a limiter. `None`: pauses shorter than the wait did not fit into the time.
    Limited(Trial, Option<Estimate>),
    /// A pause spares all of the wait or nothing, and long ones always all of it: a delayed
    /// acknowledgement.
    Step(Trial),
    /// A pause spares some of it, and neither as a limiter nor as a delayed acknowledgement does. Why
    /// not, in words.
    Otherwise(Trial, String),
}

impl PausePace {
    /// What a call waits that pays nothing for the pace, milliseconds.
    pub(crate) fn alone_ms(&self) -> Option<f64> {
        match self {
            PausePace::Limited(trial, _) | PausePace::Step(trial) => Some(trial.after_ms()),
            PausePace::Untried | PausePace::Same(_) | PausePace::Otherwise(..) => None,
        }
    }
}

/// Least wait that the pace must explain, milliseconds.
pub(crate) fn least_ms(record: &Record) -> f64 {
    (LEAST_SHARE * beyond_rtt(record)).max(LEAST_MS)
}

/// The result of the calls at several paces.
pub(crate) fn seen(record: &Record) -> PausePace {
    let Some(trial) = trial(record) else { return PausePace::Untried };
    if !trial.moved(least_ms(record)) {
        return PausePace::Same(trial);
    }
    let (soon, spared) = (trial.before_ms(), trial.effect.value);
    let tolerance = OFF_MS.max(OFF_SHARE * spared);
    let long = after_pauses(record, LONG);
    let floors: Vec<(f64, f64)> = long.iter().map(|(pause, waits)| (*pause, median(waits))).collect();
    let floor = floors.iter().map(|f| f.1).fold(f64::INFINITY, f64::min);
    // Of all of them one may be a hiccup.
    let above = long.iter().flat_map(|l| &l.1).filter(|w| **w > floor + tolerance).count();
    if above > 1 || floors.iter().any(|f| f.1 > floor + tolerance) {
        let told: Vec<String> =
            floors.iter().map(|(p, w)| format!("{} after {}", say(*w), say(*p))).collect();
        let words = format!(
            "calls wait {} right after another, and after longer pauses {}: what limits a rate lets all of these through at once",
            say(soon),
            told.join(", ")
        );
        return PausePace::Otherwise(trial, words);
    }
    let Some(slope) = short_slope(record).filter(|_| has_both_doses(&long)) else {
        return PausePace::Limited(trial, None);
    };
    // What a limiter lets through at once it makes wait a whole turn less.
    if (-1.35..=-0.65).contains(&slope.value) && slope.high < -0.4 {
        return PausePace::Limited(trial, Some(slope));
    }
    if all_or_nothing(record, soon, floor + tolerance) {
        return PausePace::Step(trial);
    }
    let words = format!(
        "calls wait {} right after another, and {:.2} ms less for each millisecond of a pause shorter than that ({:.2} to {:.2}): with what \
         limits a rate it would be 1.00",
        say(soon),
        -slope.value,
        -slope.high,
        -slope.low
    );
    PausePace::Otherwise(trial, words)
}

/// Pauses shorter than a call were tried.
pub(crate) fn has_short_pauses(record: &Record) -> bool {
    record
        .calls()
        .any(|(p, _)| p.experiment == Experiment::Paced && SHORT.iter().any(|(arm, _)| *arm == p.arm))
}

/// A wait from this share of the usual one on is all of it.
const WHOLE: f64 = 0.85;

/// Right after another call all wait for long, and after short pauses as long or hardly at all.
fn all_or_nothing(record: &Record, soon: f64, floor: f64) -> bool {
    let waits = |arm: u8| paced(record, arm).map(|(_, c)| ms(c.wait));
    let whole = |wait: &f64| *wait >= WHOLE * soon;
    let short: Vec<f64> = SHORT.iter().flat_map(|(arm, _)| waits(*arm)).collect();
    let between = short.iter().filter(|w| !whole(w) && **w > floor).count();
    let met = short.iter().filter(|w| whole(w)).count();
    // Of each kind one may be a hiccup.
    between <= 1 && met >= EACH && waits(SOON).filter(|w| *w <= floor).count() <= 1
}

/// Both of the long pauses that decide were tried often enough.
fn has_both_doses(long: &[(f64, Vec<f64>)]) -> bool {
    long.iter().filter(|(_, waits)| waits.len() >= EACH).count() >= PAUSES.len()
}

/// How the wait changes for each millisecond of a pause that is shorter than the wait.
fn short_slope(record: &Record) -> Option<Estimate> {
    let arms = [(SOON, 0.0)].into_iter().chain(SHORT);
    let doses: Vec<_> = arms.flat_map(|(arm, _)| after_pauses(record, arm)).collect();
    let told = doses.len() > SHORT.len() && doses.iter().all(|(_, waits)| waits.len() >= EACH);
    let points: Vec<(f64, f64)> =
        doses.iter().flat_map(|(pause, waits)| waits.iter().map(|w| (*pause, *w))).collect();
    slope(&points).filter(|_| told)
}

/// The waits of an arm's calls by the pause before them, both milliseconds.
fn after_pauses(record: &Record, arm: u8) -> Vec<(f64, Vec<f64>)> {
    let mut by_pause: BTreeMap<Duration, Vec<f64>> = BTreeMap::new();
    for (probe, call) in paced(record, arm) {
        by_pause.entry(probe.pause).or_default().push(ms(call.wait));
    }
    by_pause.into_iter().map(|(pause, waits)| (ms(pause), waits)).collect()
}

/// Calls right after the one before, against calls after a pause.
pub(crate) fn trial(record: &Record) -> Option<Trial> {
    let name = "a pause before the call";
    let [without, with] = [SOON, LONG].map(|arm| paced(record, arm).map(|(_, c)| ms(c.wait)).collect());
    Trial::of(name, "the pace", without, with)
}

/// An arm's calls; refused ones don't count.
fn paced(record: &Record, arm: u8) -> impl Iterator<Item = (&CallProbe, &Call)> {
    let calls = record.calls().filter(move |(p, _)| p.experiment == Experiment::Paced && p.arm == arm);
    calls.filter(|(_, c)| c.answer().is_some_and(|a| a.status < 400) && !c.lossy())
}

/// Of the calls right after another and of those after a pause: how many failed with 503, of how
/// many.
pub(crate) fn unavailable(record: &Record) -> [(usize, usize); 2] {
    [SOON, LONG].map(|arm| {
        let calls = record.calls().filter(|(p, _)| p.experiment == Experiment::Paced && p.arm == arm);
        calls.filter_map(|(_, c)| c.answer()).fold((0, 0), |(bad, all), answer| {
            (bad + usize::from(matches!(answer.status, 429 | 503)), all + 1)
        })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_a_refusal() {
        let answer = |status, after: Option<&str>| ProbeResponse {
            status,
            fields: after.iter().map(|a| ("retry-after".to_owned(), (*a).to_owned())).collect(),
            ..ProbeResponse::default()
        };
        assert_eq!(refused(&answer(429, Some("7"))), Some(Duration::from_secs(7)));
        assert_eq!(refused(&answer(429, None)), Some(AGAIN));
        assert_eq!(refused(&answer(503, Some("Wed, 21 Oct 2015 07:28:00 GMT"))), Some(AGAIN));
        assert_eq!((refused(&answer(503, None)), refused(&answer(200, Some("1")))), (None, None));
    }
}
