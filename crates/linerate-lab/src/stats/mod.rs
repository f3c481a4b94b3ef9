//! Intervals for the mean of few values: studentised bootstrap and Student's t, the wider of both.
//!
//! A plain bootstrap of five values says "different" about equal servers three times as often as
//! it promises. The studentised one (bootstrap-t) resamples the ratio of mean and standard error,
//! so it knows that the standard error itself is uncertain. It follows skewed values, where
//! Student's t is too sure on one side. Student's t is exact for normal ones, where the bootstrap
//! of few values is not. The wider of both at each end is safe in either case.

mod joint;
mod student;

use linerate_base::Random;

use crate::limits::{ALL_RESAMPLES, LEAST_ROUNDS, RESAMPLES, RESOLUTION};
pub use joint::{Joint, joint};
pub use student::{t_cdf, t_quantile};

/// Probability that an interval leaves the true value out, at both ends together.
const ALPHA: f64 = 0.05;

/// Share of true differences that a planned number of rounds is to find.
const POWER: f64 = 0.8;

/// Most rounds that are planned. Reason: more is a way to say "never".
const MOST: u32 = 10_000;

/// A mean and the interval that holds the true one in 95 of 100 cases.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ConfidenceInterval {
    /// The mean.
    pub value: f64,
    /// Lower end of the interval.
    pub low: f64,
    /// Upper end of the interval.
    pub high: f64,
    /// How likely a mean at least as far from 0 is if the true one is 0.
    pub p: f64,
}

impl ConfidenceInterval {
    /// Whether it leaves out zero: a difference was seen.
    pub fn differs(&self) -> bool {
        self.low > 0.0 || self.high < 0.0
    }
}

/// The interval of the mean; `None` for fewer than three values, or values that are not finite.
pub fn mean(values: &[f64]) -> Option<ConfidenceInterval> {
    interval(&[values])
}

/// The interval of the first mean minus the second one, of values that are not paired.
pub fn difference(a: &[f64], b: &[f64]) -> Option<ConfidenceInterval> {
    interval(&[a, b])
}

/// Of the first group's mean minus those of the others.
fn interval(groups: &[&[f64]]) -> Option<ConfidenceInterval> {
    let usable = |g: &&[f64]| g.len() >= LEAST_ROUNDS && g.iter().all(|v| v.is_finite());
    if !groups.iter().all(usable) {
        return None;
    }
    let seen = DifferenceOfMeans::of(groups);
    let error = seen.error.max(floor(groups));
    let df = seen.degrees(groups, error);
    let t = seen.value / error;
    let student = t_quantile(1.0 - ALPHA / 2.0, df);
    let p_student = 2.0 * t_cdf(-t.abs(), df);
    let (mut low, mut high, mut p) = (-student, student, p_student);
    // Fewer values than these have too few distinct resamples, and a spread below the resolution
    // of the measurement has none that mean anything.
    if groups.iter().all(|g| g.len() >= ALL_RESAMPLES) && seen.error >= floor(groups) {
        let all = resampled(groups, seen.value);
        let rare = rare(all.len());
        low = low.min(all[rare - 1]);
        high = high.max(all[all.len() - rare]);
        let below = all.partition_point(|x| *x <= t);
        let above = all.len() - all.partition_point(|x| *x < t);
        p = p.max(p_of(below.min(above), all.len()));
    }
    let value = seen.value;
    Some(ConfidenceInterval { value, low: value - high * error, high: value - low * error, p: p.min(1.0) })
}

/// How many of `n` resampled values lie outside of an interval at each end: rarer than `ALPHA`, not
/// as rare, so that the ends and `p` say the same.
fn rare(n: usize) -> usize {
    ((n + 1) as f64 * ALPHA / 2.0).ceil() as usize - 1
}

/// How likely it is that no more than `beyond` of `n` resampled values are beyond zero.
fn p_of(beyond: usize, n: usize) -> f64 {
    2.0 * (beyond + 1) as f64 / (n + 1) as f64
}

/// The smallest standard error that is believed.
fn floor(groups: &[&[f64]]) -> f64 {
    let variance: f64 = groups.iter().map(|g| RESOLUTION * RESOLUTION / g.len() as f64).sum();
    variance.sqrt()
}

/// A difference of means and its standard error.
struct DifferenceOfMeans {
    value: f64,
    error: f64,
}

impl DifferenceOfMeans {
    fn of(groups: &[&[f64]]) -> DifferenceOfMeans {
        let (mut value, mut variance) = (0.0, 0.0);
        for (i, group) in groups.iter().enumerate() {
            let (mean, of_mean) = moments(group.iter().copied(), group.len());
            value += if i == 0 { mean } else { -mean };
            variance += of_mean;
        }
        DifferenceOfMeans { value, error: variance.sqrt() }
    }

    /// Degrees of freedom by Welch and Satterthwaite; of one group one less than it has values.
    fn degrees(&self, groups: &[&[f64]], error: f64) -> f64 {
        let least = groups.iter().map(|g| g.len() - 1).min().unwrap_or(1) as f64;
        let part = |g: &&[f64]| {
            let (_, variance) = moments(g.iter().copied(), g.len());
            variance * variance / (g.len() - 1) as f64
        };
        let below: f64 = groups.iter().map(part).sum();
        if groups.len() == 1 || below <= 0.0 { least } else { (error.powi(4) / below).max(least) }
    }
}

/// The mean, and the variance of the mean.
fn moments(values: impl Iterator<Item = f64> + Clone, n: usize) -> (f64, f64) {
    let count = n as f64;
    let mean = values.clone().sum::<f64>() / count;
    let squares: f64 = values.map(|v| (v - mean) * (v - mean)).sum();
    (mean, squares / (count - 1.0).max(1.0) / count)
}

/// The studentised means of resamples, ascending.
fn resampled(groups: &[&[f64]], value: f64) -> Vec<f64> {
    let all = match groups {
        [one] if one.len() <= ALL_RESAMPLES => every_resample(one, value),
        _ => {
            let mut random = Random::new(19);
            let mut drawn: Vec<Vec<f64>> = groups.iter().map(|g| g.to_vec()).collect();
            let draw = |_| {
                for (to, from) in drawn.iter_mut().zip(groups) {
                    to.fill_with(|| from[(random.next_u64() % from.len() as u64) as usize]);
                }
                let borrowed: Vec<&[f64]> = drawn.iter().map(Vec::as_slice).collect();
                studentised(&DifferenceOfMeans::of(&borrowed), value)
            };
            (0..RESAMPLES).map(draw).collect()
        }
    };
    let mut all: Vec<f64> = all;
    all.sort_by(f64::total_cmp);
    all
}

/// All n^n resamples, each once.
fn every_resample(values: &[f64], value: f64) -> Vec<f64> {
    let n = values.len();
    let one = |code: usize| {
        let mut rest = code;
        let digits = (0..n).map(|_| {
            let digit = rest % n;
            rest /= n;
            values[digit]
        });
        let drawn: Vec<f64> = digits.collect();
        studentised(&DifferenceOfMeans::of(&[&drawn]), value)
    };
    (0..n.pow(n as u32)).map(one).collect()
}

fn studentised(drawn: &DifferenceOfMeans, value: f64) -> f64 {
    let off = drawn.value - value;
    // A resample of equal values has no standard error; rounding may leave a trace of one.
    if drawn.error > 1e-12 {
        off / drawn.error
    } else if off.abs() <= 1e-12 {
        0.0
    } else {
        off.signum() * f64::INFINITY
    }
}

/// Rounds after which a true difference of `effect` would be found in 80 % of comparisons, if
/// rounds spread by the standard deviation `spread`; `None`: too many to wait for.
pub fn rounds_for(effect: f64, spread: f64) -> Option<u32> {
    let spread = spread.max(RESOLUTION);
    let finds = |n: u32| effect.abs() >= smallest_found(n, spread);
    if !finds(MOST) {
        return None;
    }
    let (mut low, mut high) = (LEAST_ROUNDS as u32 - 1, MOST);
    while high - low > 1 {
        let middle = low.midpoint(high);
        if finds(middle) {
            high = middle;
        } else {
            low = middle;
        }
    }
    Some(high)
}

/// The smallest difference that this many rounds find in 80 % of comparisons.
pub fn smallest_found(rounds: u32, spread: f64) -> f64 {
    let df = f64::from(rounds.max(2) - 1);
    let wanted = t_quantile(1.0 - ALPHA / 2.0, df) + t_quantile(POWER, df);
    wanted * spread.max(RESOLUTION) / f64::from(rounds.max(2)).sqrt()
}

/// The standard deviation; 0 for fewer than two values.
pub fn spread(values: &[f64]) -> f64 {
    if values.len() < 2 {
        return 0.0;
    }
    let (_, variance) = moments(values.iter().copied(), values.len());
    (variance * values.len() as f64).sqrt()
}

/// The median; 0 for no values.
pub fn median(values: &[f64]) -> f64 {
    let mut sorted: Vec<f64> = values.iter().copied().filter(|v| v.is_finite()).collect();
    sorted.sort_by(f64::total_cmp);
    match sorted.len() {
        0 => 0.0,
        n => f64::midpoint(sorted[(n - 1) / 2], sorted[n / 2]),
    }
}

/// P-values corrected for their number (Holm 1979): each is at least as large as before, and the
/// probability that any of them claims a difference of equal things stays below the level.
pub fn holm(p: &[f64]) -> Vec<f64> {
    let mut order: Vec<usize> = (0..p.len()).collect();
    order.sort_by(|a, b| p[*a].total_cmp(&p[*b]));
    let mut corrected = vec![1.0; p.len()];
    let mut most: f64 = 0.0;
    for (rank, i) in order.iter().enumerate() {
        most = most.max((p[*i] * (p.len() - rank) as f64).min(1.0));
        corrected[*i] = most;
    }
    corrected
}

#[cfg(test)]
mod tests;
