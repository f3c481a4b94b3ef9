//! Which runs do not count in which metrics, and why.

use super::{ComparedSide, Rounds};
use crate::figures::{self, RunFigures};
use crate::latencies::Statistic;

/// A run that does not count in some metrics.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RunLeftOut {
    /// Its round, from 1.
    pub round: u32,
    /// Its side.
    pub side: ComparedSide,
    /// The metrics that lack it, of those that other rounds have.
    pub metrics: Vec<&'static str>,
    /// Why.
    pub why: String,
}

/// Why a run does not count in a metric.
fn lacks(run: &RunFigures, metric: &'static str) -> Option<String> {
    let of_latency = Statistic::of(metric).is_some();
    let counts = if of_latency { run.has_latencies() } else { run.values.contains_key(metric) };
    if counts {
        return None;
    }
    let unknown = if of_latency { "no latency was recorded" } else { "it was not measured" };
    let why = run.fault.as_deref().or(run.missing.get(metric).copied());
    Some(why.unwrap_or(unknown).to_owned())
}

impl Rounds {
    /// All runs that do not count somewhere, in the order of rounds. A metric that no round has is
    /// no loss of a single one.
    pub fn left_out(&self) -> Vec<RunLeftOut> {
        let mut metrics = figures::measured(self.pairs.iter().flatten());
        metrics.retain(|metric| self.rounds_with(metric.id) > 0 || self.counted() == 0);
        let mut all: Vec<RunLeftOut> = Vec::new();
        for (round, pair) in (1..).zip(&self.pairs) {
            for side in [ComparedSide::A, ComparedSide::B] {
                let run = &pair[side.index()];
                let before = all.len();
                for metric in metrics.iter().map(|metric| metric.id) {
                    let Some(why) = lacks(run, metric) else { continue };
                    match all[before..].iter_mut().find(|left| left.why == why) {
                        Some(left) => left.metrics.push(metric),
                        None => all.push(RunLeftOut { round, side, metrics: vec![metric], why }),
                    }
                }
                // A comparison without a single metric.
                if let Some(why) = run.fault.clone().filter(|_| metrics.is_empty()) {
                    all.push(RunLeftOut { round, side, metrics: Vec::new(), why });
                }
            }
        }
        all
    }

    /// Sentences about runs without a fault that some metrics lack: which and why, round by round.
    pub(super) fn lacking(&self) -> Vec<String> {
        let mut all: Vec<(RunLeftOut, Vec<String>)> = Vec::new();
        for left in self.left_out() {
            if self.pairs[left.round as usize - 1][left.side.index()].fault.is_some() {
                continue;
            }
            let round = left.round.to_string();
            let same = |(of, _): &&mut (RunLeftOut, Vec<String>)| {
                (of.side, &of.metrics, &of.why) == (left.side, &left.metrics, &left.why)
            };
            match all.iter_mut().find(same) {
                Some((_, rounds)) => rounds.push(round),
                None => all.push((left, vec![round])),
            }
        }
        let said = |(left, rounds): (RunLeftOut, Vec<String>)| {
            let titles: Vec<&str> =
                left.metrics.iter().filter_map(|id| figures::metric(id)).map(|m| m.title).collect();
            let (word, rounds) = (if rounds.len() == 1 { "round" } else { "rounds" }, rounds.join(", "));
            format!(
                "{word} {rounds} of {} {} left out of {}: {}",
                left.side.name(),
                if word == "round" { "is" } else { "are" },
                titles.join(", "),
                left.why
            )
        };
        all.into_iter().map(said).collect()
    }
}
