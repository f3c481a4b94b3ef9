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
fn found(made: &Made, seed: u64) -> (SearchEnd, f64, Vec<(SearchPoint, Says)>) {
    found_in(World::new(made, seed))
}

fn found_in(mut world: World) -> (SearchEnd, f64, Vec<(SearchPoint, Says)>) {
    let settings =
        SearchSettings { unit: LoadUnit::Rate, allowed: 0.01, start: 100.0, most: 1e6, budget: BUDGET };
    let mut search = Search::new(settings);
    loop {
        match search.next_step() {
            SearchNext::Done(end) => {
                let points = search.points().map(|(p, says)| (p.clone(), says)).collect();
                return (end, world.now, points);
            }
            SearchNext::Look(step) => {
                let begun = world.now;
                let lost = |over| step.is_lost(over, 0.01);
                let (warm_up, lasts) = (step.warm_up.as_secs_f64(), step.lasts.as_secs_f64());
                let (slices, score) = world.run(step.rate, warm_up, lasts, 20, step.burst, &lost);
                // What opening connections and ending a run costs.
                world.now += 0.05;
                let took = Duration::from_secs_f64(world.now - begun);
                search.take(&RateObservation { slices, score, took, disturbed: world.was_disturbed(begun) });
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

/// Looks of a search for a message.
fn shown(points: &[(SearchPoint, Says)]) -> String {
    let one = |(p, says): &(SearchPoint, Says)| {
        format!("{:.0}: {:.4} {:+.2} {says:?}", p.rate, p.share.value(), p.score)
    };
    points.iter().map(one).collect::<Vec<_>>().join(", ")
}

/// No look says of a rate what its interval denies.
fn agree(points: &[(SearchPoint, Says)], low: f64, high: f64) -> bool {
    points.iter().all(|(point, says)| match says {
        Says::Holds => point.rate < high,
        Says::Fails => point.rate > low,
        Says::Open | Says::Disturbed | Says::Outdated => true,
    })
}

#[test]
fn the_knee_of_twenty_servers_is_found() {
    let (mut wrong, mut worst, mut outside, mut widths) = (Vec::new(), 0.0, 0, Vec::new());
    for made in servers() {
        let mut off = Vec::new();
        for seed in 1..=10 {
            let (end, took, points) = found(&made, seed);
            assert!(took <= (BUDGET + EXTRA).as_secs_f64() + 7.0, "{}: {took} s", made.name);
            let SearchEnd::Knee { rate, low, high } = end else {
                panic!("{}: {end:?}: {}", made.name, shown(&points))
            };
            assert!(low <= rate && rate <= high, "{}: {end:?}", made.name);
            assert!(agree(&points, low, high), "{}: {end:?}: {}", made.name, shown(&points));
            off.push((rate / made.truth - 1.0) * 100.0);
            worst = f64::max(worst, (rate / made.truth - 1.0).abs());
            outside += usize::from(!(low..=high).contains(&made.truth));
            widths.push(high / low - 1.0);
            if !is_near(rate, &made) {
                wrong.push(format!(
                    "{} seed {seed}: {rate:.0} for {:.0}: {}",
                    made.name,
                    made.truth,
                    shown(&points)
                ));
            }
        }
        let shown: Vec<String> = off.iter().map(|o| format!("{o:+.1}")).collect();
        println!("{:<24} {:>6.0}/s  {} %", made.name, made.truth, shown.join(" "));
    }
    println!("{} of 200 are off by more than 5 %:\n{}", wrong.len(), wrong.join("\n"));
    widths.sort_by(f64::total_cmp);
    println!("{outside} of 200 lie outside of their interval, whose median width is {:.3}", widths[100]);
    // Not 0: see `what_thirty_seconds_cannot_tell`.
    assert!(wrong.len() <= WRONG, "{} of 200:\n{}", wrong.len(), wrong.join("\n"));
    assert!(worst <= 0.2, "{worst}");
    assert!(outside <= 10 && widths[100] <= 0.1, "{outside} {}", widths[100]);
}

#[test]
fn on_a_busy_machine_the_interval_holds_the_truth_or_the_client_is_named() {
    let (mut outside, mut limited, mut wide, mut all) = (Vec::new(), 0, Vec::new(), 0);
    for made in servers() {
        for seed in 1..=10 {
            let (end, took, points) = found_in(World::disturbed(&made, seed, 6.0, 2.0));
            assert!(took <= 80.0, "{}: {took} s", made.name);
            all += 1;
            match end {
                SearchEnd::Knee { low, high, .. } => {
                    assert!(agree(&points, low, high), "{}: {end:?}: {}", made.name, shown(&points));
                    let is_out = !(low..=high).contains(&made.truth);
                    outside.extend(is_out.then(|| format!("{} {end:?}: {}", made.name, shown(&points))));
                    wide.extend(
                        (high / low > WIDE).then(|| format!("{} {end:?}: {}", made.name, shown(&points))),
                    );
                }
                // What holds for certain is below the truth at least.
                SearchEnd::ClientLimit { low } => {
                    limited += 1;
                    let is_out = low.is_some_and(|low| low > made.truth);
                    outside.extend(is_out.then(|| format!("{} {end:?}: {}", made.name, shown(&points))));
                }
                // So is what fails for certain above it.
                SearchEnd::NotMeasured { low: None, high: Some(high) } => {
                    limited += 1;
                    let is_out = high < made.truth;
                    outside.extend(is_out.then(|| format!("{} {end:?}: {}", made.name, shown(&points))));
                }
                end => panic!("{} seed {seed}: {end:?}: {}", made.name, shown(&points)),
            }
        }
    }
    println!(
        "{} outside, {limited} limited, {} wide\n{}\n{}",
        outside.len(),
        wide.len(),
        outside.join("\n"),
        wide.join("\n")
    );
    assert!(outside.len() * 20 <= all, "{}", outside.join("\n"));
    assert!(limited * 5 <= all && wide.is_empty(), "{limited} {}", wide.join("\n"));
}

#[test]
fn a_client_that_never_has_its_core_judges_nothing() {
    for made in servers().iter().take(3) {
        let (end, took, points) = found_in(World::disturbed(made, 1, 0.01, 100.0));
        assert!(took <= 25.0, "{}: {took} s", made.name);
        assert_eq!(end, SearchEnd::ClientLimit { low: None }, "{}: {}", made.name, shown(&points));
    }
}

/// It fails one request in ten, however few there are.
struct Tenth(u64);

impl Server for Tenth {
    fn serve(&mut self, at: f64, _: &mut Random) -> Option<f64> {
        self.0 += 1;
        (!self.0.is_multiple_of(10)).then_some(at + 0.001)
    }
}

#[test]
fn a_server_that_fails_a_tenth_at_any_rate_holds_at_none() {
    let made = Made { name: "a tenth", truth: 0.0, poisson: false, make: Box::new(|| Box::new(Tenth(0))) };
    let (end, _, points) = found(&made, 1);
    assert!(
        matches!(end, SearchEnd::NotMeasured { low: None, high: Some(_) }),
        "{end:?}: {}",
        shown(&points)
    );
}

#[test]
fn a_server_that_fails_for_certain_is_not_told_as_the_client() {
    for seed in 1..=10 {
        let made =
            Made { name: "a tenth", truth: 0.0, poisson: false, make: Box::new(|| Box::new(Tenth(0))) };
        let (end, _, points) = found_in(World::disturbed(&made, seed, 6.0, 2.0));
        // Unless the client was never there.
        let fails = points.iter().any(|(_, says)| *says == Says::Fails);
        assert_eq!(matches!(end, SearchEnd::ClientLimit { .. }), !fails, "{end:?}: {}", shown(&points));
    }
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
    assert_eq!(end, SearchEnd::AlwaysFails(LEAST_RATE));
    assert!(took < 20.0 && points.len() >= 4, "{took}: {points:?}");
    let (end, took, _) = found(&always("instant", false), 1);
    assert_eq!(end, SearchEnd::NeverFails(1e6));
    assert!(took < 15.0, "{took}");
}

/// A closed loop of `connections` connections against workers that take a fixed or a random time: what was
/// over the limit, of all that were answered after the warm-up, and the score.
fn closed(
    workers: usize,
    mean: f64,
    even: bool,
    connections: usize,
    step: SearchStep,
    seed: u64,
) -> (Vec<ShareSlice>, f64) {
    let mut random_numbers = Random::new(seed);
    let service = if even { fixed } else { random };
    let mut queue = Queue::new(workers, mean, service);
    let mut due: BinaryHeap<std::cmp::Reverse<u64>> =
        (0..connections).map(|_| std::cmp::Reverse(0)).collect();
    let (begin, end) = (step.warm_up.as_secs_f64(), (step.warm_up + step.lasts).as_secs_f64());
    let (mut latencies, mut slices) = (Vec::new(), vec![ShareSlice::default(); 20]);
    while let Some(std::cmp::Reverse(at)) = due.pop() {
        let at = at as f64 / NANO;
        if at >= end {
            break;
        }
        let Some(done) = queue.serve(at, &mut random_numbers) else { break };
        if at >= begin {
            latencies.push(done - at);
            let piece = &mut slices[((at - begin) / (end - begin) * 20.0) as usize];
            piece.all += 1;
            piece.over += u64::from(done - at > LIMIT);
        }
        due.push(std::cmp::Reverse((done * NANO) as u64));
    }
    latencies.sort_by(f64::total_cmp);
    let p99 = latencies.get((latencies.len() * 99 / 100).min(latencies.len().saturating_sub(1)));
    (slices, p99.map_or(-1.0, |p99| (LIMIT / p99).ln()))
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
            let settings = SearchSettings {
                unit: LoadUnit::Connections,
                allowed: 0.01,
                start: 1.0,
                most: 1e5,
                budget: BUDGET,
            };
            let (mut search, mut spent) = (Search::new(settings), Duration::ZERO);
            let end = loop {
                let step = match search.next_step() {
                    SearchNext::Done(end) => break end,
                    SearchNext::Look(step) => step,
                };
                assert!(step.rate.fract() == 0.0 && step.rate >= 1.0 && !step.burst, "{step:?}");
                let (slices, score) = closed(workers, mean, even, step.rate as usize, step, seed);
                let took = step.warm_up + step.lasts + Duration::from_millis(50);
                spent += took;
                search.take(&RateObservation { slices, score, took, disturbed: false });
            };
            assert!(spent <= BUDGET + EXTRA + Duration::from_secs(7), "{spent:?}");
            let SearchEnd::Knee { rate, low, high } = end else { panic!("{workers} x {mean}: {end:?}") };
            assert!(low <= rate && rate <= high && rate.fract() == 0.0, "{end:?}");
            let (least, most) = (*truth.start() as f64 * 0.95, *truth.end() as f64 * 1.05);
            assert!((least..=most).contains(&rate), "{workers} workers, {mean} s, seed {seed}: {end:?}");
        }
    }
}
