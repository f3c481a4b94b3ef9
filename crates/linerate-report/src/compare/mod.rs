//! Two sides compared in turns: as a document, as text and as a page. Text and page are made from
//! the document, so that a saved one looks as it did at first.

mod chart;
mod page;
mod text;
mod words;

use std::collections::BTreeMap;
use std::fmt;
use std::time::{Duration, SystemTime};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use linerate_lab::check::Checked;
use linerate_lab::comparison::{
    ComparedMetric, ComparedSide, MetricVerdict, Pair, RatioChange, Rounds, RunLeftOut, order,
};
use linerate_lab::figures;
use linerate_lab::latencies::RunLatencies;

use crate::json::{rfc3339, text_of};
use crate::schema::comparison as schema;
use crate::{Environment, limits};

pub use page::to_string as page;
pub use text::to_string as text;
pub use words::{NO_DIFFERENCE, NOT_MEASURED, TOO_FEW_ROUNDS};

/// Everything a report of a comparison is made from.
#[derive(Clone, Debug)]
pub struct ComparisonReport<'a> {
    /// Both sides, as the user gave them.
    pub sides: Pair<schema::Side>,
    /// The measured runs of both sides, in pairs.
    pub rounds: &'a Rounds,
    /// Rounds that were planned.
    pub planned: u32,
    /// Measured time of each run.
    pub run: Duration,
    /// Time before it that does not count.
    pub warm_up: Duration,
    /// When it began.
    pub started_at: SystemTime,
    /// The checks and what became of them.
    pub checks: &'a [Checked],
    /// The saved comparison (its file, and when it began), and what has changed since.
    pub baseline: Option<(&'a Saved, &'a [RatioChange])>,
    /// What to doubt beside what the rounds say themselves.
    pub warnings: Vec<String>,
    /// Whether the user ended it early.
    pub interrupted: bool,
    /// What ended it early otherwise.
    pub broken: Option<String>,
    /// The machine and software.
    pub environment: &'a Environment,
    /// The transport that moved the bytes.
    pub io: String,
}

/// The document.
pub fn document(told: &ComparisonReport<'_>) -> schema::Document {
    let verdicts = told.rounds.verdicts();
    let mut warnings = told.warnings.clone();
    warnings.extend(told.rounds.warnings());
    let [a, b] = told.sides.clone();
    schema::Document {
        schema: schema::SCHEMA.to_owned(),
        a,
        b,
        started_at: Some(rfc3339(told.started_at)),
        rounds_planned: told.planned,
        rounds_counted: told.rounds.counted() as u32,
        run_s: told.run.as_secs_f64(),
        warm_up_s: told.warm_up.as_secs_f64(),
        metrics: verdicts.iter().map(|c| (c.metric.id.to_owned(), metric(c))).collect(),
        checks: told.checks.iter().map(check).collect(),
        baseline: told.baseline.map(|(saved, since)| schema::Baseline {
            file: saved.file.clone(),
            started_at: saved.document.started_at.clone(),
            metrics: since.iter().map(|s| (s.metric.id.to_owned(), change(s))).collect(),
        }),
        warnings,
        left_out: told.rounds.left_out().iter().map(left_out).collect(),
        rounds: told.rounds.pairs.iter().zip(0..).map(round).collect(),
        interrupted: told.interrupted,
        broken: told.broken.clone(),
        environment: crate::json::environment(told.environment, &told.io),
    }
}

/// The document as indented JSON, with a line end.
pub fn json(document: &schema::Document) -> String {
    text_of(document)
}

/// Six significant digits: more were never measured.
fn digits(value: f64) -> f64 {
    if value == 0.0 || !value.is_finite() {
        return value;
    }
    let scale = 10f64.powf(5.0 - value.abs().log10().floor());
    (value * scale).round() / scale
}

fn ends(ci95: Option<(f64, f64)>) -> Option<[f64; 2]> {
    ci95.map(|(low, high)| [digits(low), digits(high)])
}

fn metric(c: &ComparedMetric) -> schema::Metric {
    let side = |i: usize| c.means.map(|means| digits(means[i]));
    let bounds = ["a", "b"].into_iter().zip(c.at_least).filter(|(_, is_bound)| *is_bound);
    schema::Metric {
        a: side(0),
        b: side(1),
        at_least: bounds.map(|(side, _)| side.to_owned()).collect(),
        ratio: c.ratio.map(digits),
        ci95: ends(c.ci95),
        verdict: match c.verdict {
            MetricVerdict::Better(ComparedSide::A) => "a",
            MetricVerdict::Better(ComparedSide::B) => "b",
            MetricVerdict::NoDifference => NO_DIFFERENCE,
            MetricVerdict::TooFewRounds => TOO_FEW_ROUNDS,
            MetricVerdict::NotMeasured => NOT_MEASURED,
        }
        .to_owned(),
        more_is_better: c.metric.more_is_better,
        p_value: c.p.map(digits),
        p_corrected: c.p_corrected.map(digits),
        rounds: c.rounds,
        rounds_of: c.rounds_of,
        more_rounds: c.more_rounds,
        finds: Some(digits(c.finds)).filter(|f| f.is_finite()),
    }
}

fn change(s: &RatioChange) -> schema::Change {
    schema::Change {
        then: digits(s.then),
        now: digits(s.now),
        change: digits(s.change),
        ci95: ends(s.ci95),
        verdict: match s.verdict {
            MetricVerdict::Better(ComparedSide::A) => "worse",
            MetricVerdict::Better(ComparedSide::B) => "better",
            MetricVerdict::NoDifference => NO_DIFFERENCE,
            MetricVerdict::TooFewRounds | MetricVerdict::NotMeasured => TOO_FEW_ROUNDS,
        }
        .to_owned(),
    }
}

fn check(c: &Checked) -> schema::Check {
    let Checked { expr, value, pass, shown } = c.clone();
    schema::Check { expr, value: value.map(digits), pass, shown }
}

fn left_out(run: &RunLeftOut) -> schema::LeftOutRun {
    schema::LeftOutRun {
        round: run.round,
        side: run.side.name().to_ascii_lowercase(),
        metrics: run.metrics.iter().map(|id| (*id).to_owned()).collect(),
        why: run.why.clone(),
    }
}

fn round((pair, number): (&Pair<figures::RunFigures>, u32)) -> schema::Round {
    let [first, _] = order(number);
    schema::Round { first: first.name().to_ascii_lowercase(), a: run(&pair[0]), b: run(&pair[1]) }
}

fn run(run: &figures::RunFigures) -> schema::Run {
    let [good, waited] = run.latencies.to_bytes().map(|bytes| BASE64.encode(bytes));
    schema::Run {
        values: run.values.iter().map(|(id, value)| ((*id).to_owned(), digits(*value))).collect(),
        at_least: run.at_least.iter().map(|id| (*id).to_owned()).collect(),
        histogram: good,
        waited,
        sent: run.sent,
        answered: run.answered,
        errors: run.errors,
        status: run.status.iter().map(|(status, n)| (status.to_string(), *n)).collect(),
        bytes_received: run.received,
        client_limit: run.client_limit.clone(),
        fault: run.fault.clone(),
    }
}

/// A saved comparison.
#[derive(Clone, Debug, PartialEq)]
pub struct Saved {
    /// The file, for messages.
    pub file: String,
    /// The document.
    pub document: schema::Document,
}

/// A saved comparison is wrong: where, and why.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WrongComparison(String);

impl fmt::Display for WrongComparison {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for WrongComparison {}

impl Saved {
    /// The logarithms of B's value over A's, round by round, by metric. A document of an earlier
    /// version has no histograms, so nothing is known of its latencies.
    ///
    /// # Errors
    /// The document is wrong.
    pub fn log_ratios(&self) -> Result<BTreeMap<String, Vec<f64>>, WrongComparison> {
        let mut rounds = Rounds::default();
        for (round, n) in self.document.rounds.iter().take(limits::ROUNDS).zip(1..) {
            let at = |name, why| WrongComparison(format!("round {n}, run of {name}: {why}"));
            let side = |name, run| measured(run).map_err(|why| at(name, why));
            rounds.push([side("A", &round.a)?, side("B", &round.b)?]);
        }
        let of = |m: &figures::LabMetric| (m.id.to_owned(), rounds.log_ratios(m.id));
        Ok(figures::METRICS.iter().map(of).filter(|(_, ratios)| !ratios.is_empty()).collect())
    }
}

/// A saved run, as far as metrics are made from it.
fn measured(run: &schema::Run) -> Result<figures::RunFigures, String> {
    let known = |(id, value): (&String, &f64)| Some((figures::metric(id)?.id, *value));
    let bytes = |text: &str| BASE64.decode(text).map_err(|why| format!("histogram: {why}"));
    let (good, waited) = (bytes(&run.histogram)?, bytes(&run.waited)?);
    let latencies = RunLatencies::from_bytes([&good, &waited]).map_err(|why| format!("histogram: {why}"))?;
    Ok(figures::RunFigures {
        values: run.values.iter().filter_map(known).filter(|(_, v)| v.is_finite() && *v > 0.0).collect(),
        latencies,
        answered: run.answered,
        fault: run.fault.clone(),
        ..figures::RunFigures::default()
    })
}

#[cfg(test)]
mod tests;
