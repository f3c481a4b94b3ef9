//! The rounds of a comparison and what they say: a verdict for each metric, and what to doubt.

mod left_out;
mod seen;

use std::collections::BTreeMap;

use crate::figures::{self, LabMetric, RunFigures};
use crate::latencies::Statistic;
use crate::limits::LEAST_ROUNDS;
use crate::stats::{self, ConfidenceInterval};
pub use left_out::RunLeftOut;
use left_out::{grouped, listed};
use seen::PairedValues;

/// Share of a run for which a thread had to wait for its core, from which on it was disturbed.
const DISTURBED: f64 = 0.1;

/// Relative spread of one side's rate from which on the machine was too noisy.
const NOISY: f64 = 0.2;

/// Difference of shares (of a status, of errors) from which on the servers did different work.
const OTHER_WORK: f64 = 0.01;

/// One of the two.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ComparedSide {
    /// The first, to which the other is compared.
    A,
    /// The second.
    B,
}

impl ComparedSide {
    /// As people write it.
    pub fn name(self) -> &'static str {
        match self {
            ComparedSide::A => "A",
            ComparedSide::B => "B",
        }
    }

    /// Its place in a pair.
    pub fn index(self) -> usize {
        self as usize
    }
}

/// The order of a round, from 0: A B, then B A, so that a drift of the machine favours neither.
pub fn order(round: u32) -> [ComparedSide; 2] {
    if round.is_multiple_of(2) {
        [ComparedSide::A, ComparedSide::B]
    } else {
        [ComparedSide::B, ComparedSide::A]
    }
}

/// One of each.
pub type Pair<T> = [T; 2];

/// What a metric says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MetricVerdict {
    /// This one is better.
    Better(ComparedSide),
    /// The interval holds 1.
    NoDifference,
    /// There is no interval, because fewer than [`LEAST_ROUNDS`] rounds count.
    TooFewRounds,
    /// Too few requests, or on both sides ones without a response decide it.
    NotMeasured,
}

/// A metric of both sides.
#[derive(Clone, Debug, PartialEq)]
pub struct ComparedMetric {
    /// The metric.
    pub metric: &'static LabMetric,
    /// The value of each side: of latencies that of all its rounds together, each with the same
    /// weight, else the geometric mean of its runs. `None`: not measured on both sides.
    pub means: Option<Pair<f64>>,
    /// Whether the value of a side is a bound: requests without a good response stand there.
    pub at_least: Pair<bool>,
    /// B's value over A's; `None` without values, or where both are bounds.
    pub ratio: Option<f64>,
    /// The interval that holds the true ratio in 95 of 100 cases; `None` for too few rounds.
    pub ci95: Option<(f64, f64)>,
    /// How likely a ratio as far from 1 is if both are equal.
    pub p: Option<f64>,
    /// The same, corrected for the number of metrics.
    pub p_corrected: Option<f64>,
    /// Rounds in which both sides have it.
    pub rounds: u32,
    /// Rounds in which both sides ran.
    pub rounds_of: u32,
    /// The verdict.
    pub verdict: MetricVerdict,
    /// Where no difference was seen: rounds that one of this size would need beyond those measured.
    pub more_rounds: Option<u32>,
    /// The smallest difference that these rounds find in 80 % of comparisons, a share of 1.
    pub finds: f64,
}

/// All rounds of two sides.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Rounds {
    /// The rounds in which both sides ran, in order.
    pub pairs: Vec<Pair<RunFigures>>,
}

impl Rounds {
    /// A round more.
    pub fn push(&mut self, pair: Pair<RunFigures>) {
        self.pairs.push(pair);
    }

    /// The rounds that count: both runs have figures.
    fn good(&self) -> impl Iterator<Item = &Pair<RunFigures>> {
        self.pairs.iter().filter(|pair| pair.iter().all(|run| run.fault.is_none()))
    }

    /// The rounds that count.
    pub fn counted(&self) -> usize {
        self.good().count()
    }

    /// Logarithms of B's value over A's, round by round. Of latencies, whose rounds have one value
    /// together, these are the jackknife's.
    pub fn log_ratios(&self, metric: &str) -> Vec<f64> {
        self.seen(metric).map_or_else(Vec::new, |seen| seen.by_round)
    }

    fn seen(&self, metric: &str) -> Option<PairedValues> {
        match Statistic::of(metric) {
            Some(statistic) => {
                let both = |pair: &&Pair<RunFigures>| pair.iter().all(RunFigures::has_latencies);
                PairedValues::together(statistic, &self.pairs.iter().filter(both).collect::<Vec<_>>())
            }
            None => PairedValues::apart(&self.logs(metric)),
        }
    }

    /// Rounds in which both sides have a metric.
    fn rounds_with(&self, metric: &str) -> usize {
        if Statistic::of(metric).is_some() {
            self.pairs.iter().filter(|pair| pair.iter().all(RunFigures::has_latencies)).count()
        } else {
            self.logs(metric).len()
        }
    }

    fn logs(&self, metric: &str) -> Vec<Pair<f64>> {
        let value = |run: &RunFigures| run.values.get(metric).map(|v| v.ln());
        // A run without a response has a rate all the same.
        self.pairs.iter().filter_map(|[a, b]| Some([value(a)?, value(b)?])).collect()
    }

    /// The verdicts of all metrics that both sides have.
    pub fn verdicts(&self) -> Vec<ComparedMetric> {
        let metrics = figures::measured(self.pairs.iter().flatten());
        let mut all: Vec<ComparedMetric> = metrics.into_iter().filter_map(|m| self.compared(m)).collect();
        let p: Vec<f64> = all.iter().filter_map(|c| c.p).collect();
        let with = all.iter_mut().filter(|c| c.p.is_some());
        for (compared, corrected) in with.zip(stats::holm(&p)) {
            compared.p_corrected = Some(corrected);
        }
        all
    }

    fn compared(&self, metric: &'static LabMetric) -> Option<ComparedMetric> {
        let rounds = self.rounds_with(metric.id) as u32;
        if rounds == 0 {
            return None;
        }
        let none = ComparedMetric {
            metric,
            means: None,
            at_least: [false; 2],
            ratio: None,
            ci95: None,
            p: None,
            p_corrected: None,
            rounds,
            rounds_of: self.pairs.len() as u32,
            verdict: MetricVerdict::NotMeasured,
            more_rounds: None,
            finds: f64::INFINITY,
        };
        let Some(seen) = self.seen(metric.id) else { return Some(none) };
        let known = ComparedMetric { means: Some(seen.means), at_least: seen.at_least, ..none };
        if seen.at_least == [true; 2] {
            return Some(known);
        }
        if seen.at_least != [false; 2] {
            // A bound has a direction at most, and no interval; and a side is not better for a value of which only the
            // least is known.
            let ratio = Some(seen.value.exp());
            let verdict = match verdict(metric, seen.interval) {
                MetricVerdict::Better(side) if seen.at_least[side.index()] => return Some(known),
                verdict => verdict,
            };
            let p = seen.interval.map(|i| i.p);
            return Some(ComparedMetric { ratio, p, verdict, ..known });
        }
        let spread = stats::spread(&seen.by_round);
        let differs = seen.interval.is_some_and(|i| i.differs());
        let more = stats::rounds_for(seen.value, spread).map(|all| all.saturating_sub(rounds).max(1));
        Some(ComparedMetric {
            ratio: Some(seen.value.exp()),
            ci95: seen.interval.map(|i| (i.low.exp(), i.high.exp())),
            p: seen.interval.map(|i| i.p),
            verdict: verdict(metric, seen.interval),
            more_rounds: more.filter(|_| !differs),
            finds: match seen.interval {
                None => f64::INFINITY,
                Some(_) => stats::smallest_found(rounds, spread).exp_m1(),
            },
            ..known
        })
    }

    /// What to know before believing the verdicts.
    pub fn warnings(&self) -> Vec<String> {
        let mut all = Vec::new();
        all.extend(self.too_few());
        for side in [ComparedSide::A, ComparedSide::B] {
            all.extend(self.faults(side));
            all.extend(self.limited(side));
            all.extend(self.noisy(side));
        }
        all.extend(self.lacking());
        all.extend(self.other_work());
        all.extend(self.errors());
        all
    }

    fn side(&self, side: ComparedSide) -> impl Iterator<Item = &RunFigures> {
        self.good().map(move |pair| &pair[side.index()])
    }

    fn too_few(&self) -> Option<String> {
        let n = self.counted();
        let mut metrics = figures::measured(self.pairs.iter().flatten()).into_iter();
        let some = metrics.any(|metric| self.rounds_with(metric.id) >= LEAST_ROUNDS);
        (n < LEAST_ROUNDS).then(|| match n {
            _ if some => format!(
                "{n} of at least {LEAST_ROUNDS} rounds were measured whole: only latencies and the rate may have verdicts"
            ),
            0 => "no round was measured whole: there are no verdicts".to_owned(),
            _ => format!(
                "{n} of at least {LEAST_ROUNDS} rounds were measured: there are no intervals and no verdicts"
            ),
        })
    }

    fn faults(&self, side: ComparedSide) -> Option<String> {
        let faults = (1..)
            .zip(&self.pairs)
            .filter_map(|(round, pair)| pair[side.index()].fault.as_deref().map(|why| (why, round)));
        let faults = grouped(faults);
        let n: usize = faults.iter().map(|(_, rounds)| rounds.len()).sum();
        let of = self.pairs.len();
        let (name, where_) = (side.name(), "which count in latencies and the rate alone");
        let failed = || self.pairs.iter().map(|pair| &pair[side.index()]).filter(|run| run.fault.is_some());
        let left = if failed().all(RunFigures::has_latencies) { where_ } else { "which are left out" };
        let each = |(why, rounds): &(&str, Vec<u32>)| {
            let word = if rounds.len() == 1 { "Round" } else { "Rounds" };
            format!("{word} {}: {why}", listed(rounds))
        };
        let each: Vec<String> = faults.iter().map(each).collect();
        (n > 0).then(|| format!("{name} failed in {n} of {of} rounds, {left}. {}", each.join(". ")))
    }

    fn limited(&self, side: ComparedSide) -> Option<String> {
        let runs: Vec<&RunFigures> = self.side(side).collect();
        let limits: Vec<&str> = runs.iter().filter_map(|r| r.client_limit.as_deref()).collect();
        let why = limits.last()?;
        Some(format!(
            "the client was the limit in {} of {} runs of {}, so a faster server may look no better: {why}",
            limits.len(),
            runs.len(),
            side.name()
        ))
    }

    fn noisy(&self, side: ComparedSide) -> Option<String> {
        let runs: Vec<&RunFigures> = self.side(side).collect();
        let count =
            |waited: &dyn Fn(&RunFigures) -> f64| runs.iter().filter(|r| waited(r) > DISTURBED).count();
        let client = count(&|r| r.client_waited);
        let server = count(&|r| r.server_waited.unwrap_or(0.0));
        let (name, of) = (side.name(), runs.len());
        if client.max(server) * 2 > of {
            let (who, n) = if client >= server { ("client", client) } else { ("server", server) };
            return Some(format!(
                "the machine was too noisy: in {n} of {of} runs of {name} the {who} waited for its core for more than \
                 {:.0} % of the time it wanted one",
                DISTURBED * 100.0
            ));
        }
        let rates: Vec<f64> = runs.iter().filter_map(|r| r.values.get("rate_rps")).map(|v| v.ln()).collect();
        let spread = stats::spread(&rates);
        (spread > NOISY).then(|| {
            format!(
                "the rate of {name} spread by {:.0} % from round to round: a quieter machine, or longer runs, need fewer rounds",
                spread * 100.0
            )
        })
    }

    /// Whether the servers did different work: other statuses, other sizes.
    fn other_work(&self) -> Option<String> {
        let shares = [ComparedSide::A, ComparedSide::B].map(|side| {
            let mut all: BTreeMap<u16, f64> = BTreeMap::new();
            let answered: u64 = self.side(side).map(|r| r.answered).sum();
            for (status, n) in self.side(side).flat_map(|r| &r.status) {
                *all.entry(*status).or_default() += *n as f64 / (answered.max(1)) as f64;
            }
            all
        });
        let other = |status: &&u16| {
            let of = |side: usize| shares[side].get(*status).copied().unwrap_or(0.0);
            (of(0) - of(1)).abs() > OTHER_WORK
        };
        let statuses: Vec<&u16> = shares.iter().flat_map(|s| s.keys()).collect();
        if let Some(status) = statuses.iter().copied().find(|s| other(s)) {
            let of = |side: usize| shares[side].get(status).copied().unwrap_or(0.0) * 100.0;
            return Some(format!(
                "the servers did different work: {:.1} % of A's responses and {:.1} % of B's have status {status}",
                of(0),
                of(1)
            ));
        }
        let size = [ComparedSide::A, ComparedSide::B].map(|side| {
            let sum = |of: fn(&RunFigures) -> u64| self.side(side).map(of).sum::<u64>() as f64;
            let (received, answered) = (sum(|r| r.received), sum(|r| r.answered).max(1.0));
            // Responses to requests of the warm-up are among the bytes, not among the responses.
            (received / (answered + sum(|r| r.carried_over)), received / answered)
        });
        let (less, more) = if size[0].1 < size[1].1 { (size[0], size[1]) } else { (size[1], size[0]) };
        // A Date or Server field more or less is not other work; a tenth of a response is.
        (more.0 > less.1 * 1.1 && more.0 - less.1 > 16.0).then(|| {
            let [a, b] = size.map(|s| s.1);
            format!("the servers did different work: a response of A has {a:.0} bytes, one of B {b:.0}")
        })
    }

    fn errors(&self) -> Option<String> {
        let share = [ComparedSide::A, ComparedSide::B].map(|side| {
            let (errors, sent) = self.side(side).fold((0, 0), |(e, s), run| (e + run.errors, s + run.sent));
            errors as f64 / sent.max(1) as f64
        });
        (share[0].max(share[1]) > 0.0).then(|| {
            let mut text = format!(
                "not all went well: {} of A's requests and {} of B's failed or got a bad response",
                percent(share[0]),
                percent(share[1])
            );
            if (share[0] - share[1]).abs() > OTHER_WORK {
                text += "; requests/s and costs are those of good responses";
            }
            text
        })
    }
}

fn percent(share: f64) -> String {
    match share * 100.0 {
        0.0 => "0 %".to_owned(),
        p if p < 0.01 => "<0.01 %".to_owned(),
        p => format!("{p:.2} %"),
    }
}

fn verdict(metric: &LabMetric, interval: Option<ConfidenceInterval>) -> MetricVerdict {
    match interval {
        Some(i) if i.low > 0.0 => {
            MetricVerdict::Better(if metric.more_is_better { ComparedSide::B } else { ComparedSide::A })
        }
        Some(i) if i.high < 0.0 => {
            MetricVerdict::Better(if metric.more_is_better { ComparedSide::A } else { ComparedSide::B })
        }
        Some(_) => MetricVerdict::NoDifference,
        None => MetricVerdict::TooFewRounds,
    }
}

/// How a metric's ratio has changed since a saved comparison: the ratio now over the ratio then.
/// Both were measured in turns, so a machine that is slower today changes neither.
#[derive(Clone, Debug, PartialEq)]
pub struct RatioChange {
    /// The metric.
    pub metric: &'static LabMetric,
    /// B over A in the saved comparison.
    pub then: f64,
    /// B over A now.
    pub now: f64,
    /// `now` over `then`.
    pub change: f64,
    /// The interval that holds the true change in 95 of 100 cases.
    pub ci95: Option<(f64, f64)>,
    /// Whether B has become better (`B`) or worse (`A`) against A.
    pub verdict: MetricVerdict,
}

/// What has changed since a saved comparison, whose log-ratios these are.
pub fn since(saved: &BTreeMap<String, Vec<f64>>, now: &Rounds) -> Vec<RatioChange> {
    let of = |metric: &'static LabMetric| {
        let then = saved.get(metric.id)?;
        let now = now.log_ratios(metric.id);
        if then.is_empty() || now.is_empty() {
            return None;
        }
        let mean = |of: &[f64]| of.iter().sum::<f64>() / of.len() as f64;
        let interval = stats::difference(&now, then);
        Some(RatioChange {
            metric,
            then: mean(then).exp(),
            now: mean(&now).exp(),
            change: (mean(&now) - mean(then)).exp(),
            ci95: interval.map(|i| (i.low.exp(), i.high.exp())),
            verdict: verdict(metric, interval),
        })
    };
    figures::METRICS.iter().filter_map(of).collect()
}

#[cfg(test)]
mod simulated;
#[cfg(test)]
mod tests;
