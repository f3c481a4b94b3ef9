use proptest::prelude::*;

use super::*;

/// Draws the noise of one run.
type Noise = fn(&mut Random) -> f64;

/// A normal value (Box and Muller).
fn normal(random: &mut Random) -> f64 {
    (-2.0 * random.unit().ln()).sqrt() * (2.0 * std::f64::consts::PI * random.unit()).cos()
}

/// The log-ratios of a comparison, whose B has the logarithm `effect` more; each run has noise of
/// its own, and both runs of a round share what the machine does.
fn ratios(rounds: usize, effect: f64, random: &mut Random, noise: Noise) -> Vec<f64> {
    let round = |_| {
        let shared = 0.3 * normal(random);
        let a = shared + noise(random);
        let b = shared + noise(random) + effect;
        b - a
    };
    (0..rounds).map(round).collect()
}

/// The share of a thousand comparisons that claim a difference.
fn claims(rounds: usize, effect: f64, noise: Noise) -> f64 {
    let mut random = Random::new(7 + rounds as u64);
    let found = (0..1_000).filter(|_| mean(&ratios(rounds, effect, &mut random, noise)).unwrap().differs());
    found.count() as f64 / 1_000.0
}

/// The noises of metrics: a rate, a tail latency, a CPU time in ticks, a machine with outliers.
const NOISES: [(&str, Noise); 4] = [
    ("rate", |r| 0.05 * normal(r)),
    ("p99", |r| 0.1 * (r.exponential() + r.exponential())),
    ("cpu", |r| (0.01 * normal(r) * 200.0).round() / 200.0),
    ("outliers", |r| if r.unit() < 0.1 { 0.4 * r.unit() } else { 0.03 * normal(r) }),
];

/// 5 %, and two standard deviations of a share of a thousand more.
const AT_MOST: f64 = 0.05 + 2.0 * 0.006_9;

#[test]
fn equal_servers_are_called_different_in_at_most_5_percent() {
    for (name, noise) in NOISES {
        let shares = [5, 10, 20].map(|rounds| claims(rounds, 0.0, noise));
        println!("{name}: {shares:?}");
        assert!(shares.iter().all(|share| *share <= AT_MOST), "{name}: {shares:?}");
    }
}

#[test]
fn five_percent_more_are_found_in_80_percent_of_comparisons() {
    let found = claims(20, 1.05f64.ln(), NOISES[0].1);
    println!("found: {found}");
    assert!(found >= 0.8, "{found}");
}

#[test]
fn planned_rounds_find_what_they_promise() {
    let spread = 0.05 * 2f64.sqrt();
    let rounds = rounds_for(1.05f64.ln(), spread).unwrap();
    assert!((17..=20).contains(&rounds), "{rounds}");
    assert!((smallest_found(rounds, spread) / 1.05f64.ln() - 1.0).abs() < 0.05);
    assert_eq!(rounds_for(0.0, spread), None);
    assert_eq!(rounds_for(1.0, 0.0), Some(3));
}

#[test]
fn few_and_odd_values_claim_nothing() {
    assert_eq!(mean(&[]), None);
    assert_eq!(mean(&[1.0, 1.0]), None);
    assert_eq!(mean(&[1.0, f64::NAN, 1.0]), None);
    assert_eq!(difference(&[1.0; 9], &[1.0; 2]), None);
    // All the same: what was measured has no more digits than that.
    assert!(!mean(&[0.0; 5]).unwrap().differs());
    assert!(!mean(&[0.000_2; 5]).unwrap().differs());
    assert!(mean(&[0.01; 5]).unwrap().differs());
    let apart = difference(&[0.2, 0.21, 0.19, 0.2, 0.2], &[0.1, 0.11, 0.09, 0.1, 0.1]).unwrap();
    assert!(apart.differs() && (apart.value - 0.1).abs() < 1e-9, "{apart:?}");
}

#[test]
fn corrected_values_are_those_of_holm() {
    let near = |a: &[f64], b: &[f64]| a.iter().zip(b).all(|(a, b)| (a - b).abs() < 1e-12);
    assert!(near(&holm(&[0.01, 0.04, 0.03, 0.5]), &[0.04, 0.09, 0.09, 0.5]));
    assert!(holm(&[]).is_empty());
}

#[test]
fn an_interval_that_just_leaves_out_zero_has_a_small_p() {
    // The bootstrap's end lies further out than Student's; moved, values keep their resamples.
    let values = [0.739, 0.860, 0.024, 0.000, 0.001, 0.501, 0.578, 0.113];
    let end = mean(&values).unwrap().low;
    let moved = |by: f64| mean(&values.map(|v| v - end + by)).unwrap();
    // Not by nothing: whether an end is 0 or nearly so is up to rounding.
    let seen: Vec<ConfidenceInterval> = (-40..40).map(|step| moved((f64::from(step) + 0.5) * 2e-5)).collect();
    assert!(seen.iter().any(ConfidenceInterval::differs) && !seen.iter().all(ConfidenceInterval::differs));
    for interval in seen {
        assert_eq!(interval.differs(), interval.p < 0.05, "{interval:?}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(40))]
    #[test]
    fn an_interval_holds_its_mean_and_turns_with_its_values(values in prop::collection::vec(-1.0..1.0f64, 3..12)) {
        let seen = mean(&values).unwrap();
        prop_assert!(seen.low <= seen.value && seen.value <= seen.high);
        prop_assert!(seen.p > 0.0 && seen.p <= 1.0);
        prop_assert_eq!(seen.differs(), seen.p < 0.05, "{:?}", seen);
    }
}
