//! Statistics of small samples: medians, comparison of two arms, a slope. Pure functions that
//! assume no normal distribution.

use crate::limits::ARRANGEMENTS;
use linerate_base::Random;

/// The median; 0 for no values.
pub fn median(values: &[f64]) -> f64 {
    let mut sorted: Vec<f64> = values.iter().copied().filter(|v| v.is_finite()).collect();
    sorted.sort_by(f64::total_cmp);
    match sorted.len() {
        0 => 0.0,
        n if n % 2 == 1 => sorted[n / 2],
        n => f64::midpoint(sorted[n / 2 - 1], sorted[n / 2]),
    }
}

/// The median, with the interval that the order of the values gives; all of their range where there
/// are fewer than six.
pub fn middle(values: &[f64]) -> Estimate {
    let mut sorted: Vec<f64> = values.iter().copied().filter(|v| v.is_finite()).collect();
    sorted.sort_by(f64::total_cmp);
    let Some(last) = sorted.len().checked_sub(1) else { return Estimate::default() };
    // Find how many of the values lie below the true median by chance in fewer than one of 40 cases: the
    // binomial distribution of a coin.
    let n = sorted.len() as f64;
    let (mut weight, mut sum, mut k) = (0.5_f64.powf(n), 0.0, 0);
    while sum + weight <= 0.025 && k < last / 2 {
        sum += weight;
        weight *= (n - k as f64) / (k as f64 + 1.0);
        k += 1;
    }
    let k = k.saturating_sub(1);
    Estimate { value: median(&sorted), low: sorted[k], high: sorted[last - k] }
}

/// A figure and the interval that holds the true one in 95 of 100 cases.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Estimate {
    /// The estimate.
    pub value: f64,
    /// Lower end of the interval.
    pub low: f64,
    /// Upper end of the interval.
    pub high: f64,
}

impl Estimate {
    /// Whether the interval holds `x`.
    pub fn contains(&self, x: f64) -> bool {
        (self.low..=self.high).contains(&x)
    }
}

/// How much `a` is above `b`: the median of all differences (Hodges and Lehmann), with the interval
/// that the ranks give.
///
/// ```
/// use linerate_explain::stats::shift;
///
/// let (slow, fast) = ([44.0, 43.9, 44.1, 44.2], [4.0, 3.9, 4.1, 4.2]);
/// let more = shift(&slow, &fast);
/// assert!((more.value - 40.0).abs() < 0.01 && more.low > 39.0, "{more:?}");
/// ```
pub fn shift(a: &[f64], b: &[f64]) -> Estimate {
    let mut differences: Vec<f64> = a.iter().flat_map(|x| b.iter().map(move |y| x - y)).collect();
    if differences.is_empty() {
        return Estimate::default();
    }
    differences.sort_by(f64::total_cmp);
    let (m, n) = (a.len() as f64, b.len() as f64);
    let spread = (m * n * (m + n + 1.0) / 12.0).sqrt();
    let k = (m * n / 2.0 - 1.96 * spread).floor().max(0.0) as usize;
    let k = k.min(differences.len() - 1);
    Estimate {
        value: median(&differences),
        low: differences[k],
        high: differences[differences.len() - 1 - k],
    }
}

/// How likely a difference of the arms' rank sums as large as this one is when the arms do not
/// differ (two-sided permutation test): by all arrangements when they are few, else by a sample of
/// them.
pub fn p_value(a: &[f64], b: &[f64]) -> f64 {
    if a.is_empty() || b.is_empty() {
        return 1.0;
    }
    let ranks = ranks(&a.iter().chain(b).copied().collect::<Vec<_>>());
    if arrangements(ranks.len(), a.len()) <= ARRANGEMENTS {
        exact(&ranks, a.len())
    } else {
        sampled(ranks, a.len())
    }
}

/// Whether a choice's rank sum is as far from what is expected as that of the first `k`.
fn as_far(ranks: &[f64], k: usize) -> impl Fn(f64) -> bool + use<> {
    let expected = ranks.iter().sum::<f64>() * k as f64 / ranks.len() as f64;
    let seen = (ranks[..k].iter().sum::<f64>() - expected).abs() - 1e-9;
    move |sum| (sum - expected).abs() >= seen
}

fn exact(ranks: &[f64], k: usize) -> f64 {
    let as_far = as_far(ranks, k);
    let (mut far, mut all) = (0u64, 0u64);
    each_choice(ranks.len(), k, &mut |chosen| {
        all += 1;
        far += u64::from(as_far(chosen.iter().map(|i| ranks[*i]).sum()));
    });
    far as f64 / all as f64
}

fn sampled(mut ranks: Vec<f64>, k: usize) -> f64 {
    let as_far = as_far(&ranks, k);
    let mut random = Random::new(1);
    let mut far = 0u64;
    for _ in 0..ARRANGEMENTS {
        random.shuffle(&mut ranks);
        far += u64::from(as_far(ranks[..k].iter().sum()));
    }
    // The arrangement that was seen is one of them.
    (far + 1) as f64 / (ARRANGEMENTS + 1) as f64
}

/// How likely it is that at least `a` of `m` happen where `b` of `n` did, when both happen equally
/// often (Fisher's exact test, one side).
pub fn more_often(a: usize, m: usize, b: usize, n: usize) -> f64 {
    let all = a + b;
    // The hypergeometric distribution by its ratios, from the least that `a` can be.
    let least = all.saturating_sub(n);
    let (mut weight, mut sum, mut above) = (1.0, 0.0, 0.0);
    for k in least..=all.min(m) {
        sum += weight;
        if k >= a {
            above += weight;
        }
        let (k, m, n, all) = (k as f64, m as f64, n as f64, all as f64);
        weight *= (m - k) * (all - k) / ((k + 1.0) * (n - all + k + 1.0));
    }
    above / sum
}

/// How likely it is that values in random order differ as little from one to the next as these do
/// (von Neumann's ratio on ranks, Bartels 1982; permutation test over a sample of the
/// arrangements). Small: they follow one another, as a queue that fills.
pub fn order_p_value(values: &[f64]) -> f64 {
    if values.len() < 3 {
        return 1.0;
    }
    // The sum of squares about the mean is the same for all arrangements: the numerator decides.
    let apart = |ranks: &[f64]| ranks.windows(2).map(|w| (w[1] - w[0]).powi(2)).sum::<f64>();
    let mut ranks = ranks(values);
    let seen = apart(&ranks) + 1e-9;
    let mut random = Random::new(1);
    let mut as_near = 0u64;
    for _ in 0..ARRANGEMENTS / 4 {
        random.shuffle(&mut ranks);
        as_near += u64::from(apart(&ranks) <= seen);
    }
    (as_near + 1) as f64 / (ARRANGEMENTS / 4 + 1) as f64
}

/// The slope of `y` over `x`: the median of the slopes of all pairs (Theil and Sen), with the
/// interval of Kendall's statistic. `None` when all `x` are the same.
pub fn slope(points: &[(f64, f64)]) -> Option<Estimate> {
    let mut slopes = Vec::new();
    for (i, (x, y)) in points.iter().enumerate() {
        slopes.extend(points[i + 1..].iter().filter(|(u, _)| u != x).map(|(u, v)| (v - y) / (u - x)));
    }
    if slopes.is_empty() {
        return None;
    }
    slopes.sort_by(f64::total_cmp);
    let n = points.len() as f64;
    let mut variance = n * (n - 1.0) * (2.0 * n + 5.0);
    let mut xs: Vec<f64> = points.iter().map(|p| p.0).collect();
    xs.sort_by(f64::total_cmp);
    for group in xs.chunk_by(|a, b| a == b) {
        let t = group.len() as f64;
        variance -= t * (t - 1.0) * (2.0 * t + 5.0);
    }
    let c = 1.96 * (variance.max(0.0) / 18.0).sqrt();
    let all = slopes.len() as f64;
    let last = slopes.len() - 1;
    let low = ((all - c) / 2.0).floor().max(0.0) as usize;
    let high = ((all + c) / 2.0).ceil() as usize;
    Some(Estimate { value: median(&slopes), low: slopes[low.min(last)], high: slopes[high.min(last)] })
}

/// Ranks from 1, the mean rank for what is equal.
fn ranks(values: &[f64]) -> Vec<f64> {
    let mut order: Vec<usize> = (0..values.len()).collect();
    order.sort_by(|a, b| values[*a].total_cmp(&values[*b]));
    let mut ranks = vec![0.0; values.len()];
    let mut done = 0;
    for group in order.chunk_by(|a, b| values[*a] == values[*b]) {
        let rank = done as f64 + (group.len() as f64 + 1.0) / 2.0;
        for i in group {
            ranks[*i] = rank;
        }
        done += group.len();
    }
    ranks
}

/// How many ways there are to choose `k` of `n`, as far as it matters.
fn arrangements(n: usize, k: usize) -> u64 {
    let mut all = 1u64;
    for i in 0..k.min(n - k) as u64 {
        all = all.saturating_mul(n as u64 - i) / (i + 1);
        if all > ARRANGEMENTS {
            break;
        }
    }
    all
}

fn each_choice(n: usize, k: usize, with: &mut impl FnMut(&[usize])) {
    let mut chosen: Vec<usize> = (0..k).collect();
    loop {
        with(&chosen);
        let Some(i) = (0..k).rev().find(|&i| chosen[i] < n - k + i) else { return };
        chosen[i] += 1;
        for j in i + 1..k {
            chosen[j] = chosen[j - 1] + 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn known_values() {
        assert_eq!(median(&[3.0, 1.0, 2.0]), 2.0);
        assert_eq!(median(&[]), 0.0);
        // scipy.stats.mannwhitneyu([1,2,3],[4,5,6], method="exact").pvalue
        assert!((p_value(&[1.0, 2.0, 3.0], &[4.0, 5.0, 6.0]) - 0.1).abs() < 1e-9);
        let six: Vec<f64> = (0..6).map(f64::from).collect();
        let above: Vec<f64> = six.iter().map(|x| x + 10.0).collect();
        assert!((p_value(&above, &six) - 2.0 / 924.0).abs() < 1e-9);
        assert_eq!(shift(&above, &six).value, 10.0);
        let exact = slope(&[(8.0, 12.0), (16.0, 20.0), (24.0, 28.0), (32.0, 36.0)]).expect("a slope");
        assert_eq!((exact.value, exact.low, exact.high), (1.0, 1.0, 1.0));
        assert_eq!(slope(&[(1.0, 1.0), (1.0, 2.0)]), None);
        // scipy.stats.fisher_exact([[7, 3], [0, 10]], alternative="greater").pvalue
        assert!((more_often(7, 10, 0, 10) - 120.0 / 77_520.0).abs() < 1e-9);
        assert!((more_often(3, 4, 2, 5) - 0.357_142_857).abs() < 1e-6);
    }

    #[test]
    fn the_interval_of_a_median() {
        let of = |n: u32| middle(&(1..=n).map(f64::from).collect::<Vec<_>>());
        // Conover, Practical Nonparametric Statistics: the ranks for 95 %.
        for (n, low, high) in [(1, 1.0, 1.0), (5, 1.0, 5.0), (8, 1.0, 8.0), (9, 2.0, 8.0), (20, 6.0, 15.0)] {
            let seen = of(n);
            assert_eq!((seen.low, seen.high), (low, high), "{n}");
        }
        assert_eq!(middle(&[]), Estimate::default());
    }

    #[test]
    fn an_order_is_told_from_chance() {
        let saw: Vec<f64> = (0..16).map(|i| 100.0 + f64::from((i + 5) % 12)).collect();
        assert!(order_p_value(&saw) < 0.01, "{}", order_p_value(&saw));
        let mut shuffled = saw.clone();
        Random::new(3).shuffle(&mut shuffled);
        assert!(order_p_value(&shuffled) > 0.05, "{}", order_p_value(&shuffled));
        assert_eq!((order_p_value(&[7.0; 16]), order_p_value(&[])), (1.0, 1.0));
    }

    #[test]
    fn a_sample_of_arrangements_agrees_with_all() {
        let all: Vec<f64> = (0..16).map(|i| f64::from(i * 7 % 16) + if i < 8 { 2.5 } else { 0.0 }).collect();
        let ranks = ranks(&all);
        let (exact, sampled) = (exact(&ranks, 8), sampled(ranks, 8));
        assert!((exact - sampled).abs() < 0.02, "{exact} and {sampled}");
    }

    proptest! {
        #[test]
        fn a_shift_moves_with_its_arm(a in prop::collection::vec(0.0..1e3f64, 1..9), b in prop::collection::vec(0.0..1e3f64, 1..9), by in 0.0..1e3f64) {
            let moved: Vec<f64> = a.iter().map(|x| x + by).collect();
            let (before, after) = (shift(&a, &b), shift(&moved, &b));
            prop_assert!((after.value - before.value - by).abs() < 1e-6);
            prop_assert!(before.low <= before.value && before.value <= before.high);
            prop_assert!((shift(&b, &a).value + before.value).abs() < 1e-6);
        }

        #[test]
        fn a_probability_is_one(a in prop::collection::vec(0.0..10.0f64, 1..9), b in prop::collection::vec(0.0..10.0f64, 1..9)) {
            let p = p_value(&a, &b);
            prop_assert!(p > 0.0 && p <= 1.0, "{}", p);
            prop_assert!((p - p_value(&b, &a)).abs() < 1e-9);
            let same = p_value(&a, &a);
            prop_assert!(same > 0.9, "{}", same);
        }

        #[test]
        fn a_slope_scales(points in prop::collection::vec((0u8..5, 0.0..100.0f64), 2..20), by in 0.1..10.0f64) {
            let points: Vec<(f64, f64)> = points.into_iter().map(|(x, y)| (f64::from(x), y)).collect();
            let scaled: Vec<(f64, f64)> = points.iter().map(|(x, y)| (*x, y * by)).collect();
            if let (Some(a), Some(b)) = (slope(&points), slope(&scaled)) {
                prop_assert!((b.value - a.value * by).abs() < 1e-6);
                prop_assert!(a.low <= a.value && a.value <= a.high);
            }
        }
    }
}
