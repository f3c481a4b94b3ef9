//! Schedules: all threads together make the plan's arrivals, whatever their number.

use std::time::Duration;

use proptest::prelude::*;

use super::*;
use crate::plan::{Rate, RateStep};

fn open(rate: &str, arrival: Arrival) -> Pace {
    Pace::Open { rate: Rate::parse(rate).unwrap(), arrival }
}

fn taken(pace: &Pace, seed: u64, thread: u32, threads: u32, most: usize) -> Vec<u64> {
    let mut schedule = Schedule::new(pace, seed, thread, threads).unwrap();
    std::iter::from_fn(|| schedule.pop()).take(most).collect()
}

fn union(pace: &Pace, seed: u64, threads: u32, most: usize) -> Vec<u64> {
    let mut all: Vec<u64> = (0..threads).flat_map(|t| taken(pace, seed, t, threads, most)).collect();
    all.sort_unstable();
    all
}

#[test]
fn a_closed_loop_has_none() {
    assert!(Schedule::new(&Pace::Closed, 1, 0, 1).is_none());
}

#[test]
fn even_arrivals_do_not_drift() {
    let pace = open("33.3", Arrival::Constant);
    let mut schedule = Schedule::new(&pace, 0, 0, 1).unwrap();
    let last = (0..=3_330_000).fold(None, |_, _| schedule.pop());
    assert_eq!(last, Some(100_000_000_000_000));
}

#[test]
fn a_trace_is_dealt_out() {
    let pace = Pace::Trace(vec![0, 5, 5, 7, 100]);
    assert_eq!(taken(&pace, 0, 0, 2, 99), [0, 5, 100]);
    assert_eq!(taken(&pace, 0, 1, 2, 99), [5, 7]);
    let mut first = Schedule::new(&pace, 0, 0, 2).unwrap();
    assert_eq!((first.due_before(5), first.due_before(6), first.due_before(1000)), (1, 2, 3));
    first.pop();
    assert_eq!((first.popped(), first.due_before(1000)), (1, 2));
    assert_eq!(taken(&Pace::Trace(Vec::new()), 0, 0, 1, 9), [0; 0]);
    assert_eq!(taken(&Pace::Trace(vec![3]), 0, 7, 8, 9), [0; 0]);
}

#[test]
fn the_same_seed_asks_for_the_same_again() {
    let pace = open("1000", Arrival::Poisson);
    assert_eq!(taken(&pace, 5, 1, 4, 500), taken(&pace, 5, 1, 4, 500));
    assert_ne!(taken(&pace, 5, 1, 4, 500), taken(&pace, 6, 1, 4, 500));
    assert_ne!(taken(&pace, 5, 1, 4, 500), taken(&pace, 5, 2, 4, 500));
}

/// Counts in windows of a second: in a Poisson process their variance equals their mean.
fn counts_per_second(dues: &[u64], seconds: usize) -> Vec<f64> {
    let mut counts = vec![0.0; seconds];
    for due in dues {
        if let Some(count) = counts.get_mut((due / 1_000_000_000) as usize) {
            *count += 1.0;
        }
    }
    counts
}

#[test]
fn poisson_has_its_mean_and_variance_over_any_threads() {
    for threads in [1, 3, 8] {
        let pace = open("100@2000s", Arrival::Poisson);
        let dues = union(&pace, 42, threads, usize::MAX);
        assert!(dues.iter().all(|due| *due <= 2_000_000_000_000));
        let counts = counts_per_second(&dues, 2000);
        let mean = counts.iter().sum::<f64>() / 2000.0;
        let variance = counts.iter().map(|c| (c - mean).powi(2)).sum::<f64>() / 2000.0;
        // Standard deviations: of the mean 0.22, of the variance 3.2.
        assert!((mean - 100.0).abs() < 0.9, "{threads} threads: mean {mean}");
        assert!((variance - 100.0).abs() < 13.0, "{threads} threads: variance {variance}");
    }
}

#[test]
fn poisson_follows_the_rate() {
    let dues = union(&open("0..1000@100s", Arrival::Poisson), 7, 2, usize::MAX);
    // 50,000 in all, of them a quarter in the first half of the time; standard deviations 224 and
    // 112.
    assert!((dues.len() as f64 - 50_000.0).abs() < 900.0, "{}", dues.len());
    let first_half = dues.partition_point(|due| *due < 50_000_000_000) as f64;
    assert!((first_half - 12_500.0).abs() < 450.0, "{first_half}");
}

fn any_pace() -> impl Strategy<Value = Pace> {
    let number = prop_oneof![(1_u64..100_000).prop_map(|n| n as f64), 0.5..5000.0];
    let forever = number.clone().prop_map(Rate::constant);
    let steps = prop::collection::vec((number.clone(), number, 1_u64..3_000), 1..4).prop_map(|steps| Rate {
        steps: steps
            .into_iter()
            .map(|(from, to, ms)| RateStep { from, to, lasts: Some(Duration::from_millis(ms)) })
            .collect(),
    });
    let even = prop_oneof![forever, steps].prop_map(|rate| Pace::Open { rate, arrival: Arrival::Constant });
    let trace = prop::collection::vec(0_u64..1_000_000, 0..300).prop_map(|mut times| {
        times.sort_unstable();
        Pace::Trace(times)
    });
    prop_oneof![3 => even, 1 => trace]
}

proptest! {
    #[test]
    fn threads_together_make_the_single_schedule(pace in any_pace(), threads in 1_u32..9) {
        const EACH: usize = 200;
        let alone = taken(&pace, 1, 0, 1, EACH * threads as usize);
        let shares: Vec<Vec<u64>> = (0..threads).map(|t| taken(&pace, 1, t, threads, EACH)).collect();
        for (n, due) in alone.iter().enumerate() {
            let (thread, index) = (n % threads as usize, n / threads as usize);
            prop_assert_eq!(shares[thread].get(index), Some(due), "request {}", n);
        }
        prop_assert_eq!(shares.iter().map(Vec::len).sum::<usize>(), alone.len());
    }

    #[test]
    fn schedules_agree_with_the_rate(rate in 1_u64..2_000_000, threads in 1_u32..9, thread in 0_u32..8) {
        let pace = open(&rate.to_string(), Arrival::Constant);
        let mine = taken(&pace, 1, thread % threads, threads, 300);
        for (i, due) in mine.iter().enumerate() {
            let k = u64::from(thread % threads) + i as u64 * u64::from(threads);
            prop_assert_eq!(*due, k * 1_000_000_000 / rate);
        }
    }

    #[test]
    fn counting_agrees_with_taking(
        pace in prop_oneof![any_pace(), Just(open("500", Arrival::Poisson)), Just(open("1..900@1s", Arrival::Poisson))],
        threads in 1_u32..5, pops in 0_usize..100, ns in 0_u64..2_000_000_000,
    ) {
        for thread in 0..threads {
            let mut schedule = Schedule::new(&pace, 9, thread, threads).unwrap();
            for _ in 0..pops {
                schedule.pop();
            }
            let counted = schedule.due_before(ns);
            let mut walked = 0;
            while schedule.peek().is_some_and(|due| due < ns) {
                schedule.pop();
                walked += 1;
            }
            prop_assert_eq!(counted, walked);
        }
    }

    #[test]
    fn due_times_ascend(pace in prop_oneof![any_pace(), Just(open("100k", Arrival::Poisson))], seed: u64) {
        let dues = taken(&pace, seed, 1, 3, 500);
        prop_assert!(dues.is_sorted());
    }
}
