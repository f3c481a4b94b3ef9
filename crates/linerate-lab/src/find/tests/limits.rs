//! What else could be had: another search beside ours, and what 30 s of requests can tell at all.

use super::servers::{Made, World, servers};
use super::{SearchEnd, found, is_near};
use crate::find::BUDGET;

/// The search of Nighthawk's adaptive load controller: each look lasts `period` and passes or fails.
/// The rate doubles until a look fails, then the interval is halved until two rates are within 1 %,
/// or the time is over.
fn exponential_then_binary(made: &Made, seed: u64, period: f64) -> f64 {
    let mut world = World::new(made, seed);
    let (mut low, mut high, mut rate, mut before) = (0.0, None, 100.0, f64::INFINITY);
    while world.now + period <= BUDGET.as_secs_f64() && f64::abs(rate / before - 1.0) >= 0.01 {
        let (_, score) = world.run(rate, 0.0, period, 1, false, &|_| false);
        world.now += 0.05;
        if score >= 0.0 {
            low = rate
        } else {
            high = Some(rate)
        }
        before = rate;
        rate = high.map_or(rate * 2.0, |high| f64::midpoint(low, high));
    }
    rate
}

#[test]
fn ours_finds_more_than_exponential_and_binary_search() {
    const PERIODS: [f64; 4] = [1.0, 2.0, 3.0, 5.0];
    let (mut ours, mut theirs) = (0, [0; PERIODS.len()]);
    println!("{:<24} within 5 %, of 10: ours, theirs with looks of {PERIODS:?} s", "");
    for made in servers() {
        let near = |rates: &dyn Fn(u64) -> f64| (1..=10).filter(|seed| is_near(rates(*seed), &made)).count();
        let own = near(&|seed| match found(&made, seed).0 {
            SearchEnd::Knee { rate, .. } => rate,
            end => panic!("{}: {end:?}", made.name),
        });
        let other = PERIODS.map(|period| near(&|seed| exponential_then_binary(&made, seed, period)));
        println!("{:<24} {own} {other:?}", made.name);
        ours += own;
        theirs.iter_mut().zip(other).for_each(|(sum, n)| *sum += n);
    }
    println!("of 200: {ours}, and {theirs:?}");
    assert!(theirs.iter().all(|n| ours > *n), "{ours} {theirs:?}");
}

/// A look at 5 % below the truth that fails, or one at 5 % above it that holds, misleads any search
/// that trusts it. Here each such look has 27 s: all the time that a search has, at one rate.
#[test]
fn what_thirty_seconds_cannot_tell() {
    const LOOKS: u64 = 50;
    let uneven = ["M/M/1, 400/s", "M/D/1, 250/s", "bimodal, 1000/s"];
    for made in servers().iter().filter(|made| uneven.contains(&made.name)) {
        let is_misled = |seed: u64, factor: f64| {
            let (_, score) = World::new(made, seed).run(made.truth * factor, 1.5, 27.0, 1, true, &|_| false);
            (score >= 0.0) != (factor < 1.0)
        };
        let of = |factor: f64| (1..=LOOKS).filter(|seed| is_misled(*seed, factor)).count();
        let (below, above) = (of(0.95), of(1.05));
        println!(
            "{:<24} of {LOOKS} looks, {below} fail 5 % below the truth, {above} hold 5 % above it",
            made.name
        );
        assert!(below > 0 && above > 0, "{}: {below} {above}", made.name);
    }
}
