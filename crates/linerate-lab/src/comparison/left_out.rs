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

/// What belongs to each key, in the order of the first of each.
pub(super) fn grouped<K: PartialEq, V>(pairs: impl IntoIterator<Item = (K, V)>) -> Vec<(K, Vec<V>)> {
    let mut all: Vec<(K, Vec<V>)> = Vec::new();
    for (key, value) in pairs {
        match all.iter_mut().find(|(known, _)| *known == key) {
            Some((_, values)) => values.push(value),
            None => all.push((key, vec![value])),
        }
    }
    all
}

/// `1, 3, 5`.
pub(super) fn listed(rounds: &[u32]) -> String {
    rounds.iter().map(u32::to_string).collect::<Vec<_>>().join(", ")
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
                let lacking = metrics.iter().filter_map(|metric| Some((lacks(run, metric.id)?, metric.id)));
                let reasons = grouped(lacking);
                all.extend(reasons.into_iter().map(|(why, metrics)| RunLeftOut {
                    round,
                    side,
                    metrics,
                    why,
                }));
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
        let is_sound =
            |left: &RunLeftOut| self.pairs[left.round as usize - 1][left.side.index()].fault.is_none();
        let runs = self.left_out().into_iter().filter(is_sound);
        let all = grouped(runs.map(|left| ((left.side, left.metrics, left.why), left.round)));
        let said = |((side, metrics, why), rounds): ((ComparedSide, Vec<&str>, String), Vec<u32>)| {
            let titles: Vec<&str> =
                metrics.iter().filter_map(|id| figures::metric(id)).map(|m| m.title).collect();
            let (round, is) = if rounds.len() == 1 { ("round", "is") } else { ("rounds", "are") };
            let (side, titles) = (side.name(), titles.join(", "));
            format!("{round} {} of {side} {is} left out of {titles}: {why}", listed(&rounds))
        };
        all.into_iter().map(said).collect()
    }
}
