//! What the rounds say about one metric, before it is judged.

use linerate_load::histogram::LARGEST_NS;

use crate::figures::RunFigures;
use crate::latencies::{Mixed, RunLatencies, RunStatistic, Statistic};
use crate::stats::{self, ConfidenceInterval};

/// The smallest latency that has a logarithm, microseconds.
const LEAST_US: f64 = 1e-3;

/// What stands for a request that is later than any limit, microseconds: the longest timeout.
const LATER_US: f64 = LARGEST_NS as f64 / 1e3;

/// Values of both sides, and how they differ.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct PairedValues {
    /// The value of each side.
    pub(super) means: [f64; 2],
    /// Whether it is only known to be at least that.
    pub(super) at_least: [bool; 2],
    /// The logarithm of B's value over A's.
    pub(super) value: f64,
    /// Round by round; their mean is `value`, but where that is a bound.
    pub(super) by_round: Vec<f64>,
    /// The interval of their mean; `None` for too few rounds.
    pub(super) interval: Option<ConfidenceInterval>,
}

impl PairedValues {
    /// Of a metric that each run has by itself: the mean of paired ratios.
    pub(super) fn apart(logs: &[[f64; 2]]) -> Option<PairedValues> {
        if logs.is_empty() {
            return None;
        }
        let n = logs.len() as f64;
        let mean = |side: usize| (logs.iter().map(|pair| pair[side]).sum::<f64>() / n).exp();
        let by_round: Vec<f64> = logs.iter().map(|[a, b]| b - a).collect();
        Some(PairedValues {
            means: [mean(0), mean(1)],
            at_least: [false; 2],
            value: by_round.iter().sum::<f64>() / n,
            interval: stats::mean(&by_round),
            by_round,
        })
    }

    /// Of a statistic that all rounds of a side have together; `None` where too few requests say it.
    pub(super) fn together(statistic: Statistic, pairs: &[&[RunFigures; 2]]) -> Option<PairedValues> {
        let side = |i: usize| pairs.iter().map(move |pair| &pair[i].latencies);
        let is_enough = |i: usize| statistic.is_said_by(&side(i).collect::<Vec<_>>());
        if !is_enough(0) || !is_enough(1) {
            return None;
        }
        let all: Vec<_> = side(0).chain(side(1)).collect();
        let mixed = Mixed::of(statistic, &all);
        // A mean is bounded by each request without a good response, however few they are: those count in it with
        // the time that they were waited for.
        let is_later = |found: RunStatistic| found.at_least && statistic != Statistic::Mean;
        let us = |counts: &[u32]| {
            let found = mixed.weighed(counts);
            if is_later(found) { LATER_US } else { found.us.max(LEAST_US) }
        };
        let joint = stats::joint(pairs.len(), &|a, b| (us(b) / us(a)).ln());
        let found = |of_b: bool| {
            let counts: Vec<u32> =
                (0..all.len()).map(|run| u32::from((run >= pairs.len()) == of_b)).collect();
            mixed.weighed(&counts)
        };
        let (a, b) = (found(false), found(true));
        let means = [(a, 0), (b, 1)].map(|(found, i)| match is_later(found) {
            true => side(i).map(RunLatencies::longest_us).fold(LEAST_US, f64::max),
            false => found.us.max(LEAST_US),
        });
        Some(PairedValues {
            means,
            at_least: [a.at_least, b.at_least],
            value: (means[1] / means[0]).ln(),
            by_round: joint.by_round,
            interval: joint.interval,
        })
    }
}
