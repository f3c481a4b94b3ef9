//! Intervals of a value that rounds have together, such as a percentile of all of them.
//!
//! The jackknife gives each round a value, and the intervals of [`mean`] hold for these. Where a few
//! rounds decide it is too sure: with two stalled rounds of five, the value is the same whichever
//! one is left out. So resamples of whole rounds widen the interval, and a difference is claimed
//! only if the rounds one by one show it too, or if it is rarer than the same runs dealt to both
//! sides at random.

use linerate_base::Random;

use super::{ALPHA, ConfidenceInterval, floor, mean, moments, p_of, rare, t_quantile};
use crate::limits::{DEALS, DEALT_ROUNDS, RESAMPLES_OF_ROUNDS};

/// The value of all rounds, and its interval.
#[derive(Clone, Debug, PartialEq)]
pub struct Joint {
    /// The value of all rounds.
    pub value: f64,
    /// A value for each round, by which all of them differ from the rest (jackknife): their mean
    /// is the value, and they spread as single measurements would.
    pub by_round: Vec<f64>,
    /// `None` for too few rounds.
    pub interval: Option<ConfidenceInterval>,
}

/// How often each run counts for a side: first those of A, round by round, then those of B.
type Counts = [u32];

/// Runs in an order: those of A, round by round, then those of B.
type Order = [usize];

/// Compares two sides, which consist of these runs.
type Value<'a> = &'a dyn Fn(&Counts, &Counts) -> f64;

/// Of `rounds` rounds.
pub fn joint(rounds: usize, value: Value<'_>) -> Joint {
    let order: Vec<usize> = (0..2 * rounds).collect();
    let (all, by_round) = jackknife(&order, value);
    let interval = mean(&by_round).map(|sure| {
        let mut random = Random::new(23);
        let mut counts = vec![0; rounds];
        let mut drawn: Vec<f64> = (0..RESAMPLES_OF_ROUNDS)
            .map(|_| {
                counts.fill(0);
                (0..rounds).for_each(|_| counts[below(&mut random, rounds)] += 1);
                counted(&order, value, &|round| counts[round])
            })
            .collect();
        drawn.sort_by(f64::total_cmp);
        let sure = widened(within_reason(sure, &by_round), &drawn);
        let alone = |one: usize| counted(&order, value, &|round| u32::from(round == one));
        let one_by_one = || mean(&(0..rounds).map(alone).collect::<Vec<f64>>()).is_some_and(|i| i.differs());
        if !sure.differs() || rounds > DEALT_ROUNDS || one_by_one() {
            sure
        } else {
            dealt(sure, rounds, &by_round, value, &mut random)
        }
    });
    Joint { value: all, by_round, interval }
}

/// The value where the runs of each round count so often.
fn counted(order: &Order, value: Value<'_>, count: &dyn Fn(usize) -> u32) -> f64 {
    let rounds = order.len() / 2;
    let (mut a, mut b) = (vec![0; order.len()], vec![0; order.len()]);
    for round in 0..rounds {
        a[order[round]] = count(round);
        b[order[rounds + round]] = count(round);
    }
    value(&a, &b)
}

/// The value, and one for each round.
fn jackknife(order: &Order, value: Value<'_>) -> (f64, Vec<f64>) {
    let rounds = order.len() / 2;
    let all = counted(order, value, &|_| 1);
    let without = |left: usize| counted(order, value, &|round| u32::from(round != left));
    let left: Vec<f64> = if rounds > 1 { (0..rounds).map(without).collect() } else { vec![all] };
    let (n, centre) = (rounds as f64, left.iter().sum::<f64>() / left.len() as f64);
    (all, left.iter().map(|without| all + (n - 1.0) * (centre - without)).collect())
}

fn below(random: &mut Random, most: usize) -> usize {
    (random.next_u64() % most as u64) as usize
}

/// A resample that misses the round that decides has no spread, and any end is possible by it. No
/// end lies further out than Student's in 99.5 % of cases.
fn within_reason(interval: ConfidenceInterval, by_round: &[f64]) -> ConfidenceInterval {
    let (_, variance) = moments(by_round.iter().copied(), by_round.len());
    let rare = ALPHA / 10.0;
    let student = t_quantile(1.0 - rare / 2.0, by_round.len() as f64 - 1.0);
    let most = student * variance.sqrt().max(floor(&[by_round]));
    let (low, high) = (interval.low.max(interval.value - most), interval.high.min(interval.value + most));
    let capped = ConfidenceInterval { low, high, ..interval };
    let contradicts = capped.differs() && interval.p >= ALPHA;
    ConfidenceInterval { p: if contradicts { rare } else { interval.p }, ..capped }
}

/// At least as wide as these resampled values are, ascending.
fn widened(interval: ConfidenceInterval, drawn: &[f64]) -> ConfidenceInterval {
    let rare = rare(drawn.len());
    let at_most = drawn.partition_point(|x| *x <= 0.0);
    let at_least = drawn.len() - drawn.partition_point(|x| *x < 0.0);
    ConfidenceInterval {
        low: interval.low.min(drawn[rare - 1]),
        high: interval.high.max(drawn[drawn.len() - rare]),
        p: interval.p.max(p_of(at_most.min(at_least), drawn.len())).min(1.0),
        ..interval
    }
}

/// The interval holds 0 unless the value is rare among deals of the same runs: with both runs of
/// a round swapped or not, or with all runs in any order. The first knows that a machine drifts,
/// the second that a stall hits any run.
fn dealt(
    interval: ConfidenceInterval,
    rounds: usize,
    by_round: &[f64],
    value: Value<'_>,
    random: &mut Random,
) -> ConfidenceInterval {
    // A value that a single round decides is large and unsure at once.
    let far = |by_round: &[f64]| {
        let (mean, of_mean) = moments(by_round.iter().copied(), rounds);
        mean.abs() / of_mean.sqrt().max(floor(&[by_round]))
    };
    let seen = far(by_round) * (1.0 - 1e-9);
    let as_far = |order: &Order| usize::from(far(&jackknife(order, value).1) >= seen);
    let mut order: Vec<usize> = (0..2 * rounds).collect();
    let swapped: usize = (0..DEALS)
        .map(|_| {
            let of_round = 0..rounds;
            of_round.filter(|_| below(random, 2) == 1).for_each(|round| order.swap(round, rounds + round));
            as_far(&order)
        })
        .sum();
    let shuffled: usize = (0..DEALS)
        .map(|_| {
            (1..order.len()).rev().for_each(|i| order.swap(i, below(random, i + 1)));
            as_far(&order)
        })
        .sum();
    let share = |far: usize| (far + 1) as f64 / (DEALS + 1) as f64;
    let p = share(swapped.min(shuffled));
    // Fewer than six rounds can be swapped in so few ways that even the rarest two are not rare
    // enough: then these must be it. The next ones are four.
    let rarest = 3.0 / 2f64.powi(rounds as i32);
    if p < ALPHA || (rounds < 6 && share(swapped) < rarest) {
        return interval;
    }
    ConfidenceInterval {
        low: interval.low.min(0.0),
        high: interval.high.max(0.0),
        p: interval.p.max(p),
        ..interval
    }
}
