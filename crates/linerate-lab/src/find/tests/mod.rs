//! The search against servers whose capacity is known. They run in virtual time.

mod limits;
mod servers;

use std::collections::BinaryHeap;

use linerate_base::Random;

use super::*;
use servers::{LIMIT, Made, NANO, Queue, Server, World, fixed, random, servers};

/// Searches of 200 that may be off by more than 5 %.
const WRONG: usize = 8;

/// The search, and the virtual time that it took.
fn found(made: &Made, seed: u64) -> (End, f64, Vec<Point>) {
    let settings = Settings { unit: Unit::Rate, allowed: 0.01, start: 100.0, most: 1e6, budget: BUDGET };
    let mut search = Search::new(settings);
    let mut world = World::new(made, seed);
    loop {
        match search.next_step() {
            Next::Done(end) => return (end, world.now, search.points()),
            Next::Look(step) => {
                let begun = world.now;
                let lost = |over| step.is_lost(over, 0.01);
                let (warm_up, lasts) = (step.warm_up.as_secs_f64(), step.lasts.as_secs_f64());
                let (slices, score) = world.run(step.rate, warm_up, lasts, 20, step.burst, &lost);
                // What opening connections and ending a run costs.
                world.now += 0.05;
                search.take(&Seen { slices, score, took: Duration::from_secs_f64(world.now - begun) });
            }
        }
    }
}

/// Whether an estimate is within 5 % of the truth.
fn is_near(rate: f64, made: &Made) -> bool {
    (rate / made.truth - 1.0).abs() <= 0.05
}

#[test]
fn the_truth_of_each_server_is_where_its_share_of_late_requests_crosses_the_limit() {
    for made in servers() {
        let mut world = World::new(&made, 1);
        // A server that scales out has done so afterwards.
        for _ in 0..4 {
            world.run(5_000.0, 0.0, 3.0, 1, false, &|_| false);
        }
        let (below, above) = (world.share(made.truth * 0.96), world.share(made.truth * 1.04));
        assert!(below <= 0.01 && above > 0.01, "{}: {below} {above}", made.name);
    }
}

#[test]
fn the_knee_of_twenty_servers_is_found() {
    let (mut wrong, mut worst) = (Vec::new(), 0.0);
    for made in servers() {
        let mut off = Vec::new();
        for seed in 1..=10 {
            let (end, took, points) = found(&made, seed);
            assert!(took <= BUDGET.as_secs_f64() + 2.0, "{}: {took} s", made.name);
            let End::Knee { rate, low, high } = end else { panic!("{}: {end:?}", made.name) };
            assert!(low <= rate && rate <= high, "{}: {end:?}", made.name);
            off.push((rate / made.truth - 1.0) * 100.0);
            worst = f64::max(worst, (rate / made.truth - 1.0).abs());
            if !is_near(rate, &made) {
                let shown =
                    points.iter().map(|p| format!("{:.0}: {:.4} {:+.2}", p.rate, p.share.value(), p.score));
                wrong.push(format!(
                    "{} seed {seed}: {rate:.0} for {:.0}: {}",
                    made.name,
                    made.truth,
                    shown.collect::<Vec<_>>().join(", ")
                ));
            }
        }
        let shown: Vec<String> = off.iter().map(|o| format!("{o:+.1}")).collect();
        println!("{:<24} {:>6.0}/s  {} %", made.name, made.truth, shown.join(" "));
    }
    println!("{} of 200 are off by more than 5 %:\n{}", wrong.len(), wrong.join("\n"));
    // Not 0: see `what_thirty_seconds_cannot_tell`.
    assert!(wrong.len() <= WRONG, "{} of 200:\n{}", wrong.len(), wrong.join("\n"));
    assert!(worst <= 0.2, "{worst}");
}

/// A server that is always, or never, too late.
struct Always(bool);

impl Server for Always {
    fn serve(&mut self, at: f64, _: &mut Random) -> Option<f64> {
        (!self.0).then_some(at)
    }
}

fn always(name: &'static str, late: bool) -> Made {
    Made { name, truth: 0.0, poisson: false, make: Box::new(move || Box::new(Always(late))) }
}

#[test]
fn a_check_that_always_fails_and_one_that_never_does_are_named_as_that() {
    let (end, took, points) = found(&always("refuses", true), 1);
    assert_eq!(end, End::AlwaysFails(LEAST_RATE));
    assert!(took < 20.0 && points.len() >= 4, "{took}: {points:?}");
    let (end, took, _) = found(&always("instant", false), 1);
    assert_eq!(end, End::NeverFails(1e6));
    assert!(took < 15.0, "{took}");
}

/// A closed loop of `connections` connections against workers that take a fixed or a random time: what was
/// over the limit, of all that were answered after the warm-up, and the score.
fn closed(workers: usize, mean: f64, even: bool, connections: usize, step: Step, seed: u64) -> (Slice, f64) {
    let mut random_numbers = Random::new(seed);
    let service = if even { fixed } else { random };
    let mut queue = Queue::new(workers, mean, service);
    let mut due: BinaryHeap<std::cmp::Reverse<u64>> =
        (0..connections).map(|_| std::cmp::Reverse(0)).collect();
    let (begin, end) = (step.warm_up.as_secs_f64(), (step.warm_up + step.lasts).as_secs_f64());
    let mut latencies = Vec::new();
    while let Some(std::cmp::Reverse(at)) = due.pop() {
        let at = at as f64 / NANO;
        if at >= end {
            break;
        }
        let Some(done) = queue.serve(at, &mut random_numbers) else { break };
        if at >= begin {
            latencies.push(done - at);
        }
        due.push(std::cmp::Reverse((done * NANO) as u64));
    }
    latencies.sort_by(f64::total_cmp);
    let over = latencies.iter().filter(|l| **l > LIMIT).count() as u64;
    let p99 = latencies.get((latencies.len() * 99 / 100).min(latencies.len().saturating_sub(1)));
    (Slice { all: latencies.len() as u64, over }, p99.map_or(-1.0, |p99| (LIMIT / p99).ln()))
}

#[test]
fn the_most_connections_are_found() {
    // With a fixed time of service, c connections wait for c / workers services each.
    for (workers, mean, even, truth) in [
        (1, 0.005, true, 10..=10),
        (4, 0.005, true, 40..=40),
        (1, 0.030, true, 1..=1),
        (64, 0.0005, true, 6400..=6400),
        (8, 0.004, false, 60..=85),
    ] {
        for seed in 1..=10 {
            let settings =
                Settings { unit: Unit::Connections, allowed: 0.01, start: 1.0, most: 1e5, budget: BUDGET };
            let (mut search, mut spent) = (Search::new(settings), Duration::ZERO);
            let end = loop {
                let step = match search.next_step() {
                    Next::Done(end) => break end,
                    Next::Look(step) => step,
                };
                assert!(step.rate.fract() == 0.0 && step.rate >= 1.0 && !step.burst, "{step:?}");
                let (slice, score) = closed(workers, mean, even, step.rate as usize, step, seed);
                let took = step.warm_up + step.lasts + Duration::from_millis(50);
                spent += took;
                search.take(&Seen { slices: vec![slice], score, took });
            };
            assert!(spent <= BUDGET + Duration::from_secs(2), "{spent:?}");
            let End::Knee { rate, low, high } = end else { panic!("{workers} x {mean}: {end:?}") };
            assert!(low <= rate && rate <= high && rate.fract() == 0.0, "{end:?}");
            let (least, most) = (*truth.start() as f64 * 0.95, *truth.end() as f64 * 1.05);
            assert!((least..=most).contains(&rate), "{workers} workers, {mean} s, seed {seed}: {end:?}");
        }
    }
}
