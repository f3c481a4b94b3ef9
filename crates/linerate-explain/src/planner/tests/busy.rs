//! Healthy servers on a machine whose processors others want as well. The waits beyond a round trip are
//! those of diagnoses that named a cause.

use super::*;

/// Nearly all of the time something waits for a processor.
const PRESSURE: Option<f64> = Some(0.99);

/// One of these, milliseconds.
fn one_of(noise: &mut Noise, all: &[f64]) -> f64 {
    all[(noise.unit() * all.len() as f64) as usize]
}

fn waitress(noise: &mut Noise) -> f64 {
    one_of(
        noise,
        &[14.8, 6.9, 9.6, 59.5, 19.9, 3.8, 8.0, 24.0, 9.9, 1.9, 2.4, 2.2, 2.6, 2.1, 2.9, 3.9, 4.5, 0.8],
    )
}

fn fastapi(noise: &mut Noise) -> f64 {
    one_of(
        noise,
        &[1.4, 12.7, 4.1, 4.2, 3.3, 4.6, 17.6, 121.7, 11.2, 48.0, 18.2, 63.7, 11.6, 28.0, 18.5, 107.6],
    )
}

fn gunicorn(noise: &mut Noise) -> f64 {
    one_of(noise, &[0.5, 0.6, 124.7, 47.5, 69.7, 91.9, 124.1, 1.5, 8.8, 1.2, 42.8, 400.0])
}

#[test]
fn waits_for_processors_are_no_work_and_no_line() {
    let mut named = 0;
    for think in [waitress, fastapi, gunicorn] {
        for (seed, lane) in (0..12).zip([0.0, 3.9].into_iter().cycle()) {
            let world = World { rtt: 40.0, think, lane, ..World::default() };
            let busy = explained_with(World { pressure: PRESSURE, ..world.clone() }, settings(), seed);
            let found = ids(&busy);
            let blamed = ["server-think", "server-queueing"].iter().any(|id| found.contains(id));
            assert!(!blamed, "{seed}, {lane}: {busy:#?}");
            named += usize::from(!ids(&explained_with(world, settings(), seed)).is_empty());
        }
    }
    assert!(named > 0, "on a quiet machine it is the server that takes these times");
}

#[test]
fn work_is_named_on_a_busy_machine_where_every_call_has_it() {
    for rtt in [0.05, 40.0] {
        for seed in 0..20 {
            let think = |noise: &mut Noise| 20.0 + waitress(noise);
            let world = World { rtt, think, pressure: PRESSURE, ..World::default() };
            let diagnosis = explained_with(world, settings(), seed);
            assert_eq!(ids(&diagnosis), ["server-think"], "{rtt}, {seed}: {diagnosis:#?}");
        }
    }
}

/// It is we who wait for a processor, for as long as programs beside us run; the kernel's own round
/// trip of a handshake shows that.
#[test]
fn our_own_wait_for_a_handshake_is_no_queue_on_the_way() {
    let woken = |now: f64| 10.0 + 12.0 * (now / 1000.0 % 8.0);
    for rtt in [0.05, 40.0] {
        for seed in 0..20 {
            let world = World { rtt, woken, ..World::default() };
            let diagnosis = explained_with(world, settings(), seed);
            assert!(!ids(&diagnosis).contains(&"bufferbloat"), "{rtt}, {seed}: {diagnosis:#?}");
        }
    }
}

/// 17 connections to a server that works for 100 ms: two of them met the machine's worst moment.
#[test]
fn two_slow_connections_at_a_bad_moment_are_no_busy_worker() {
    let judged = |pressure: Option<f64>| {
        let mut record = Record::new(settings());
        let quick = [122.5, 138.2, 147.1, 154.4, 148.7, 151.1, 148.4, 149.7, 107.7, 123.0, 110.0, 107.8];
        let slow = [219.5, 247.0];
        for (lane, wait) in (0..).zip(quick.into_iter().chain(slow)) {
            for fresh in [true, false] {
                let mut call = Call { fresh, wait: t(wait), total: t(wait), ..Call::default() };
                call.end =
                    Some(Ok(ProbeResponse { status: 200, reusable: true, ..ProbeResponse::default() }));
                let probe = CallProbe::plain(Experiment::PerConnection, 0, Lane::Kept(lane));
                record.push(Probe::Call(Box::new(probe)), Observation::Call(Box::new(call)));
            }
        }
        record.pressure = pressure;
        Judgements::new(&record, &causes::ALL).of("pinned-to-busy-worker").clone()
    };
    assert!(matches!(judged(None), Judgement::Named(_)), "on a quiet machine the connection decides");
    let Judgement::Open(why) = judged(PRESSURE) else { unreachable!("{:?}", judged(PRESSURE)) };
    assert!(why.starts_with("unclear: 2 of 14 connections were slow"), "{why}");
}

/// The kernel handles packets late as well, for as long as programs beside it run. A queue of the path
/// that adds more than that is named all the same.
#[test]
fn late_packets_of_a_busy_kernel_are_no_queue_on_the_way() {
    let late: fn(f64, &mut Noise) -> f64 = |now, _| 12.0 * (now / 1000.0 % 8.0);
    let saw: fn(f64, &mut Noise) -> f64 = |now, _| 60.0 * (now / 1000.0 % 8.0);
    let mut quiet = 0;
    for seed in 0..20 {
        let world = World { rtt: 40.0, queue: late, ..World::default() };
        let busy = explained_with(World { pressure: PRESSURE, ..world.clone() }, settings(), seed);
        assert!(!ids(&busy).contains(&"bufferbloat"), "{seed}: {busy:#?}");
        quiet += usize::from(ids(&explained_with(world, settings(), seed)).contains(&"bufferbloat"));
        let bloated = World { rtt: 40.0, queue: saw, pressure: PRESSURE, ..World::default() };
        let diagnosis = explained_with(bloated, settings(), seed);
        assert!(ids(&diagnosis).contains(&"bufferbloat"), "{seed}: {diagnosis:#?}");
    }
    assert!(quiet > 0, "on a quiet machine it is the path that varies");
}

/// The first answers on new connections of two diagnoses, one of a JDK server and one of HAProxy.
#[test]
fn new_connections_that_wait_for_processors_are_no_accept_queue() {
    let judged = |pressure: Option<f64>, least: f64| {
        let mut record = Record::new(settings());
        let answered = |fresh: bool, wait: f64| {
            let mut call = Call { fresh, wait: t(wait), total: t(wait), ..Call::default() };
            call.end = Some(Ok(ProbeResponse { status: 200, reusable: true, ..ProbeResponse::default() }));
            call
        };
        for first in [37.4, 175.9, least, 16.4, 137.7] {
            for (fresh, wait) in [(true, first), (false, 1.9), (false, 0.6)] {
                let probe = CallProbe::plain(Experiment::Observe, 0, Lane::Fresh);
                let call = Box::new(answered(fresh, wait));
                record.push(Probe::Call(Box::new(probe)), Observation::Call(call));
            }
        }
        let burst = [91.6, 110.2, 110.0, 210.0, 310.1, 358.1].map(|wait| answered(true, wait));
        record.push(Probe::Burst(6), Observation::Burst(burst.to_vec()));
        record.pressure = pressure;
        Judgements::new(&record, &causes::ALL).of("accept-queue").clone()
    };
    assert!(matches!(judged(None, 1.8), Judgement::Named(_)), "{:?}", judged(None, 1.8));
    assert!(matches!(judged(PRESSURE, 30.0), Judgement::Named(_)), "each of them waits");
    let Judgement::Open(why) = judged(PRESSURE, 1.8) else { unreachable!("{:?}", judged(PRESSURE, 1.8)) };
    assert!(why.starts_with("unclear: the first answer on a new connection took 1.8"), "{why}");
}

/// nginx 40 ms away, healthy: three connections met a bad moment.
#[test]
fn slow_connections_far_away_at_a_bad_moment_are_no_busy_worker() {
    let judged = |slow: f64| {
        let mut record = Record::new(settings());
        let quick = [9.4, 8.6, 0.4, 0.2, 7.9, 2.8, 3.9];
        let busy = [0.0, 3.6, 5.5].map(|more| slow + more);
        for (lane, wait) in (0..).zip(quick.into_iter().chain(busy)) {
            for fresh in [true, false] {
                let wait = t(40.0 + wait);
                let mut call = Call { fresh, wait, total: wait, connect: t(40.0), ..Call::default() };
                call.facts.min_rtt_us = 40_000;
                call.end =
                    Some(Ok(ProbeResponse { status: 200, reusable: true, ..ProbeResponse::default() }));
                let probe = CallProbe::plain(Experiment::PerConnection, 0, Lane::Kept(lane));
                record.push(Probe::Call(Box::new(probe)), Observation::Call(Box::new(call)));
            }
        }
        record.pressure = PRESSURE;
        Judgements::new(&record, &causes::ALL).of("pinned-to-busy-worker").clone()
    };
    let Judgement::Open(why) = judged(24.4) else { unreachable!("{:?}", judged(24.4)) };
    assert!(why.starts_with("unclear: 3 of 10 connections were slow"), "{why}");
    assert!(matches!(judged(70.0), Judgement::Named(_)), "{:?}", judged(70.0));
}

/// The judgement on a server's work, where calls that wait so long are the only ones with an answer.
fn work(waits: &[f64]) -> Judgement {
    let mut record = Record::new(Settings { may_repeat: false, ..Settings::default() });
    for wait in waits {
        let end = Some(Ok(ProbeResponse { status: 200, ..ProbeResponse::default() }));
        let call = Call { fresh: true, wait: t(*wait), total: t(*wait), end, ..Call::default() };
        let probe = CallProbe::plain(Experiment::Observe, 0, Lane::Fresh);
        record.push(Probe::Call(Box::new(probe)), Observation::Call(Box::new(call)));
    }
    Judgements::new(&record, &causes::ALL).of("server-think").clone()
}

/// A server whose work takes 5 to 90 ms on a machine where something waits for a processor most of the time:
/// the least of its waits tells nothing, and the time in which nothing waited does.
#[test]
fn work_of_any_length_shows_while_nothing_waits_for_a_processor() {
    let judged = |contended: f64| {
        let mut lived = Lived::new(World { pressure: PRESSURE, ..World::default() }, 1);
        let mut planner = Planner::new(settings());
        let mut n = 0;
        while let Some(probe) = planner.poll_probe(t(lived.now)) {
            let mut seen = lived.make(&probe, &settings());
            let calls = match &mut seen {
                Observation::Call(call) => std::slice::from_mut(&mut **call),
                Observation::Scattered(calls) => calls.as_mut_slice(),
                _ => &mut [],
            };
            for call in calls {
                n += 1;
                let work = f64::from([5, 90, 31, 16, 48, 24, 70][n % 7]);
                call.wait += t(work);
                call.total += t(work);
                call.contended = Some(call.total.mul_f64(contended));
            }
            planner.under_pressure(PRESSURE);
            planner.handle_observation(probe, seen);
        }
        planner.diagnose()
    };
    let apart = judged(0.4);
    assert_eq!(ids(&apart).first(), Some(&"server-think"), "{apart:#?}");
    let words = apart.causes[0].evidence().join(" ");
    assert!(words.contains("while nothing on this machine waited for a processor"), "{words}");
    let unclear = judged(1.0);
    assert!(!ids(&unclear).contains(&"server-think"), "{unclear:#?}");
}

/// A call of 10.4 ms, the only one of several that had an answer, on a machine where builds ran.
#[test]
fn one_slow_call_alone_is_no_work() {
    assert!(matches!(work(&[12.0]), Judgement::Open(_)), "{:?}", work(&[12.0]));
    assert!(matches!(work(&[12.0, 12.0]), Judgement::Named(_)), "{:?}", work(&[12.0, 12.0]));
    assert!(matches!(work(&[300.0]), Judgement::Named(_)), "{:?}", work(&[300.0]));
}

/// 100 kB to a server 40 ms away: its end leaves 20 ms after it was written.
#[test]
fn a_request_that_leaves_in_pieces_is_no_work() {
    let judged = |held: f64, segments: u32| {
        let mut record = Record::new(settings());
        for _ in 0..12 {
            let end = Some(Ok(ProbeResponse { status: 200, reusable: true, ..ProbeResponse::default() }));
            let mut call =
                Call { wait: t(61.0), total: t(61.0), held_in_tcp: Some(t(held)), end, ..Call::default() };
            (call.facts.min_rtt_us, call.facts.data_segs_out) = (40_000, segments);
            let probe = CallProbe::plain(Experiment::Observe, 0, Lane::Kept(0));
            record.push(Probe::Call(Box::new(probe)), Observation::Call(Box::new(call)));
        }
        Judgements::new(&record, &causes::ALL).of("server-think").clone()
    };
    assert!(matches!(judged(20.0, 70), Judgement::RuledOut(_)), "{:?}", judged(20.0, 70));
    assert!(matches!(judged(0.1, 70), Judgement::Named(_)), "{:?}", judged(0.1, 70));
    // What Nagle's algorithm holds is another cause's.
    assert!(matches!(judged(20.0, 2), Judgement::Named(_)), "{:?}", judged(20.0, 2));
}

/// 100 kB on a new connection: its end leaves two round trips later than on one whose window has grown.
#[test]
fn a_first_request_that_leaves_in_pieces_is_no_work_for_its_connection() {
    let judged = |held: f64| {
        let mut record = Record::new(settings());
        let end = Some(Ok(ProbeResponse { status: 200, reusable: true, ..ProbeResponse::default() }));
        let call = |fresh: bool, noise: f64| {
            let held = if fresh { held } else { 1.0 };
            let wait = if fresh { 121.0 + noise } else { 41.0 };
            let mut call = Call { fresh, wait: t(wait), total: t(wait), end: end.clone(), ..Call::default() };
            call.held_in_tcp = Some(t(held));
            (call.facts.min_rtt_us, call.facts.data_segs_out) = (40_000, 70);
            call
        };
        for n in 0..6 {
            for fresh in [true, false] {
                let lane = if fresh { Lane::Fresh } else { Lane::Kept(0) };
                let probe = CallProbe::plain(Experiment::Observe, 0, lane);
                record.push(
                    Probe::Call(Box::new(probe)),
                    Observation::Call(Box::new(call(fresh, f64::from(n)))),
                );
            }
        }
        let burst = (0..8).map(|n| call(true, f64::from(n))).collect();
        record.push(Probe::Burst(8), Observation::Burst(burst));
        Judgements::new(&record, &causes::ALL).of("reverse-dns").clone()
    };
    assert!(matches!(judged(1.0), Judgement::Named(_)), "{:?}", judged(1.0));
    assert_eq!(judged(80.0), Judgement::Silent);
}
