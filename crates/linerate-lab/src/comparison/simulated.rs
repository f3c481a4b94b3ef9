//! Comparisons of simulated servers: how often equal ones are called different, and whether one
//! that stalls in every other round is found.

use linerate_base::Random;
use linerate_load::histogram::Histogram;

use super::*;
use crate::check::MetricCheck;
use crate::latencies::RunLatencies;

/// Comparisons of each kind.
const COMPARISONS: usize = 200;

fn normal(random: &mut Random) -> f64 {
    (-2.0 * random.unit().ln()).sqrt() * (2.0 * std::f64::consts::PI * random.unit()).cos()
}

/// A run that takes a second with four connections: `ms` each, more or less.
fn run(ms: f64, random: &mut Random) -> RunFigures {
    let mut histogram = Histogram::new();
    let (mut left, mut answered) = (4e3, 0u32);
    while left > 0.0 && answered < 500 {
        let took = ms * (0.5 * normal(random)).exp();
        histogram.record((took * 1e6) as u64, 1);
        left -= took;
        answered += 1;
    }
    RunFigures {
        values: [("rate_rps", f64::from(answered))].into(),
        latencies: RunLatencies::new(&histogram, &Histogram::new()),
        answered: answered.into(),
        sent: answered.into(),
        ..RunFigures::default()
    }
}

/// Whether a side stalls in a round: its number, and the beginning of this comparison.
type Stalls = fn(u32, &mut Random, bool) -> bool;

/// Rounds of equal servers, whose machine drifts; while one stalls, each request takes 50 ms.
fn equal(rounds: u32, stalls: Stalls, random: &mut Random) -> Rounds {
    let mut all = Rounds::default();
    let first = [random.unit() < 0.5, random.unit() < 0.5];
    for round in 0..rounds {
        let shared = 2.0 * (0.2 * normal(random)).exp();
        all.push([0, 1].map(|side| {
            let ms = shared * (0.05 * normal(random)).exp();
            let stalled = if stalls(round, random, first[side]) { 50.0 } else { 0.0 };
            run(ms + stalled, random)
        }));
    }
    all
}

#[test]
fn equal_servers_are_called_different_in_at_most_5_percent() {
    let kinds: [(&str, Stalls); 4] = [
        ("steady", |_, _, _| false),
        ("stalls seldom", |_, random, _| random.unit() < 0.15),
        ("stalls at times", |_, random, _| random.unit() < 0.4),
        ("stalls in every other round", |round, _, first| round.is_multiple_of(2) == first),
    ];
    for (kind, stalls) in kinds {
        for rounds in [5, 10] {
            let mut random = Random::new(u64::from(rounds));
            let mut claims: BTreeMap<&str, usize> = BTreeMap::new();
            for _ in 0..COMPARISONS {
                for compared in equal(rounds, stalls, &mut random).verdicts() {
                    let claimed = matches!(compared.verdict, MetricVerdict::Better(_));
                    *claims.entry(compared.metric.id).or_default() += usize::from(claimed);
                }
            }
            println!("{kind}, {rounds} rounds: {claims:?}");
            assert!(claims.values().all(|n| *n * 20 <= COMPARISONS), "{kind}, {rounds} rounds: {claims:?}");
        }
    }
}

#[test]
fn a_server_that_stalls_in_every_other_round_fails_the_check_on_its_p99() {
    let check = [MetricCheck::parse("p99 ratio<1.10").unwrap()];
    for stall in [50.0, 500.0] {
        for seed in 0..20 {
            let mut random = Random::new(seed);
            let mut rounds = Rounds::default();
            for round in 0..10 {
                let stalled = if u32::is_multiple_of(round, 2) { stall } else { 0.0 };
                rounds.push([run(2.0, &mut random), run(2.0 + stalled, &mut random)]);
            }
            let checked = rounds.checked(&check, &[]);
            assert!(!checked[0].pass, "{stall} ms: {checked:?}");
            let verdicts = rounds.verdicts();
            let by = |id: &str| verdicts.iter().find(|c| c.metric.id == id).unwrap();
            assert!(by("p99_us").means.is_none_or(|[a, b]| b > 5.0 * a), "{:?}", by("p99_us"));
            assert_eq!(by("p90_us").verdict, MetricVerdict::Better(ComparedSide::A), "{:?}", by("p90_us"));
        }
    }
}
