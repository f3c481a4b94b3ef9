//! Worlds in which the wait depends on the time, or on the call before: none of them limits a rate.

use super::*;

/// What a call waits by the clock.
#[derive(Clone, Copy)]
pub(super) enum Clocked {
    No,
    /// For the next tick of that many milliseconds.
    Tick(f64),
    /// For a lock: its period, and for how much of it it is held.
    Lock(f64, f64),
    /// For an acknowledgement that is delayed behind the server, unless the call before ended so long
    /// ago.
    Acked(f64),
}

impl Lived {
    /// Calls at these times, on a kept connection where the last one has ended.
    pub(super) fn scattered(&mut self, times: &[Duration], settings: &Settings) -> Vec<Call> {
        let begin = self.now;
        let mut free = begin;
        let mut one = |at: &Duration| {
            self.now = begin + ms(*at);
            let lane = if self.now >= free { Lane::Kept(0) } else { Lane::Fresh };
            let call = self.call(&CallProbe::plain(Experiment::Scattered, 0, lane), settings, 0);
            self.ended = self.now + ms(call.total);
            free = free.max(self.ended);
            cut(call, self.until - self.now)
        };
        let calls = times.iter().map(&mut one).collect();
        self.now = free;
        calls
    }

    /// What a call waits by the clock that arrives now.
    pub(super) fn clocked(&mut self, clocked: Clocked, connect: f64, rtt: f64) -> f64 {
        let at = self.now + connect + rtt / 2.0;
        match clocked {
            Clocked::No => 0.0,
            Clocked::Tick(period) => period - at.rem_euclid(period),
            Clocked::Lock(period, held) => (held - at.rem_euclid(period)).max(0.0),
            Clocked::Acked(forgets) if self.now - self.ended < forgets => 42.0 + self.noise.between(0.0, 2.0),
            Clocked::Acked(_) => 0.0,
        }
    }
}

/// Whatever else is found, no limiter is.
fn no_limiter(diagnosis: &Diagnosis, what: &str) {
    assert!(!ids(diagnosis).contains(&"rate-limit"), "{what}: {diagnosis:#?}");
}

#[test]
fn a_server_that_answers_on_a_tick_limits_no_rate() {
    for period in [20.0, 40.0, 50.0, 100.0, 200.0, 333.0, 500.0] {
        for rtt in [0.05, 30.0] {
            for seed in 0..12 {
                let world = World { rtt, clocked: Clocked::Tick(period), ..World::default() };
                let diagnosis = explained_with(world, settings(), seed);
                no_limiter(&diagnosis, &format!("{period}, {rtt}, {seed}"));
                assert_ne!(diagnosis.whole, Whole::Healthy, "{period}, {rtt}: {diagnosis:#?}");
                if period <= 100.0 && rtt < 1.0 {
                    assert_eq!(
                        ids(&diagnosis),
                        ["periodic-stall"],
                        "{period}, {rtt}, {seed}: {diagnosis:#?}"
                    );
                    let title = diagnosis.causes[0].title();
                    assert!(
                        title.contains("on a tick"),
                        "{period}, {seed}: {:?}",
                        diagnosis.causes[0].evidence()
                    );
                }
            }
        }
    }
}

#[test]
fn a_lock_that_is_held_most_of_the_time_is_found_by_calls_at_random_times() {
    let mut proved = 0;
    for (period, held) in [(120.0, 90.0), (60.0, 45.0), (240.0, 180.0), (120.0, 40.0)] {
        for seed in 0..20 {
            let world = World { clocked: Clocked::Lock(period, held), ..World::default() };
            let diagnosis = explained_with(world, settings(), seed);
            no_limiter(&diagnosis, &format!("{period}, {held}, {seed}"));
            assert_ne!(diagnosis.whole, Whole::Healthy, "{period}, {held}, {seed}: {diagnosis:#?}");
            let found = ids(&diagnosis);
            assert!(found.iter().all(|id| *id == "periodic-stall"), "{period}, {held}: {diagnosis:#?}");
            proved += usize::from(diagnosis.causes.iter().any(|c| c.proof() == Proof::Proved));
        }
    }
    assert!(proved >= 60, "{proved} of 80");
}

/// Experiments took most of the time: fewer calls at random times are made, not none.
#[test]
fn a_lock_far_away_is_found_in_what_time_is_left() {
    let (mut found, mut made) = (0, 0);
    for seed in 0..20 {
        let world = World { rtt: 40.0, clocked: Clocked::Lock(120.0, 90.0), ..World::default() };
        let planner = lived_with(world, settings(), seed);
        let calls = planner.record().calls();
        made += usize::from(calls.filter(|(p, _)| p.experiment == Experiment::Scattered).count() >= 10);
        found += usize::from(ids(&planner.diagnose()).contains(&"periodic-stall"));
    }
    assert!(made >= 18 && found >= 14, "{made} and {found} of 20");
}

/// Far away the server's process is not known, and a busy machine may be why calls are slow: more of them at
/// random times show the period.
#[test]
fn a_lock_far_away_is_found_beside_busy_programs() {
    let healthy = (0..60)
        .filter(|seed| {
            let world = World {
                rtt: 40.0,
                clocked: Clocked::Lock(120.0, 90.0),
                pressure: Some(0.99),
                ..World::default()
            };
            explained_with(world, settings(), *seed).whole == Whole::Healthy
        })
        .count();
    assert!(healthy <= 2, "{healthy} of 60");
}

/// Whatever the period and the distance: calls that follow one another may meet stalls as often as those at
/// random times, and most of both may.
#[test]
fn a_lock_that_most_calls_meet_is_never_healthy() {
    for (period, held) in [(120.0, 90.0), (60.0, 45.0), (100.0, 50.0), (120.0, 40.0)] {
        for rtt in [10.0, 40.0, 57.0] {
            let healthy: Vec<u64> = (0..12)
                .filter(|seed| {
                    let world = World { rtt, clocked: Clocked::Lock(period, held), ..World::default() };
                    explained_with(world, settings(), *seed).whole == Whole::Healthy
                })
                .collect();
            assert!(healthy.is_empty(), "{period}, {held}, {rtt}: {healthy:?}");
        }
    }
}

/// Threads of the server that no call waits for had no processor: that takes nothing off a lock.
#[test]
fn a_lock_is_found_on_a_busy_machine() {
    let mut found = 0;
    for seed in 0..20 {
        let mut lived = Lived::new(World { clocked: Clocked::Lock(120.0, 90.0), ..World::default() }, seed);
        let mut planner = Planner::new(settings());
        planner.under_pressure(Some(0.99));
        while let Some(probe) = planner.poll_probe(t(lived.now)) {
            let mut seen = lived.make(&probe, &settings());
            if let Observation::Scattered(calls) = &mut seen {
                for call in calls {
                    let waited = call.wait.mul_f64(1.5);
                    call.server = Some(Box::new(crate::local::Spent { waited, ..Default::default() }));
                }
            }
            planner.handle_observation(probe, seen);
        }
        found += usize::from(ids(&planner.diagnose()).contains(&"periodic-stall"));
    }
    assert!(found >= 16, "{found} of 20");
}

#[test]
fn a_delayed_acknowledgement_behind_the_server_is_a_step() {
    for forgets in [16.0, 38.0, 60.0] {
        for seed in 0..12 {
            let world = World { clocked: Clocked::Acked(forgets), ..World::default() };
            let diagnosis = explained_with(world, settings(), seed);
            assert_eq!(ids(&diagnosis), ["server-nagle-delayed-ack"], "{forgets}, {seed}: {diagnosis:#?}");
            assert_eq!(diagnosis.causes[0].proof(), Proof::Likely);
            assert!(diagnosis.causes[0].title().contains("behind the server"), "{diagnosis:#?}");
        }
    }
}

#[test]
fn a_limiter_is_proved_by_how_the_wait_falls() {
    for every in [40.0, 100.0, 200.0] {
        for seed in 0..12 {
            let diagnosis = explained_with(World { every, ..World::default() }, settings(), seed);
            assert_eq!(ids(&diagnosis), ["rate-limit"], "{every}, {seed}: {diagnosis:#?}");
            assert_eq!(diagnosis.causes[0].proof(), Proof::Proved, "{every}, {seed}: {diagnosis:#?}");
            let says = |e: &String| e.starts_with("dose-response: a call waits ");
            assert!(diagnosis.causes[0].evidence().iter().any(says), "{diagnosis:#?}");
        }
    }
}

/// A fault that meets one call in five, at no regular time.
#[test]
fn a_fault_that_meets_some_calls_at_random_times_is_not_healthy() {
    let think: fn(&mut Noise) -> f64 = |noise| if noise.unit() < 0.2 { 40.0 } else { 0.1 };
    let healthy = (0..100)
        .filter(|seed| {
            let diagnosis = explained_with(World { think, ..World::default() }, settings(), *seed);
            diagnosis.whole == Whole::Healthy
        })
        .count();
    // Fewer than three of 30 calls meet it in 4.4 of 100 diagnoses.
    assert!(healthy <= 9, "{healthy} of 100");
}

#[test]
fn calls_at_random_times_come_after_all_else_and_not_after_a_proof() {
    let scattered = |planner: &Planner| {
        planner.record().calls().filter(|(p, _)| p.experiment == Experiment::Scattered).count()
    };
    let healthy = lived_with(World::default(), settings(), 1);
    assert_eq!((scattered(&healthy), healthy.diagnose().whole), (CALLS_SCATTERED, Whole::Healthy));
    let stalls = lived_with(World { nagle: true, ..World::default() }, settings(), 1);
    assert_eq!(scattered(&stalls), 0);
    assert!(stalls.diagnose().took_s < 1.5, "{}", stalls.diagnose().took_s);
    let once = Settings { may_repeat: false, ..settings() };
    assert_eq!(scattered(&lived_with(World::default(), once, 1)), 0);
}

/// The wait for a processor of each call is its own: it excuses that call, and no other.
#[test]
fn each_slow_call_is_judged_by_its_own_starvation() {
    let judged = |starved: f64, busy: f64| {
        let mut lived = Lived::new(World::default(), 1);
        let mut planner = Planner::new(settings());
        while let Some(probe) = planner.poll_probe(t(lived.now)) {
            let mut seen = lived.make(&probe, &settings());
            if let Observation::Scattered(calls) = &mut seen {
                for (n, call) in calls.iter_mut().enumerate() {
                    let slow = if n % 4 == 0 { 55.0 } else { 0.0 };
                    call.wait += t(slow);
                    call.total += t(slow);
                    call.starved = t(busy + if slow > 0.0 { starved } else { 0.0 });
                }
            }
            planner.handle_observation(probe, seen);
        }
        planner.diagnose()
    };
    let slow = judged(0.0, 0.02);
    assert_eq!(slow.whole, Whole::Inconclusive, "10 % of 0.2 ms are no busy machine: {slow:#?}");
    assert!(slow.limits[0].contains("of 60 calls at random times waited 55"), "{:?}", slow.limits);
    let starved = judged(54.0, 0.0);
    assert_eq!(starved.whole, Whole::Healthy, "it was we who waited: {starved:#?}");
}

/// A server that drops one call in five: those at random times tell, where one of the first look may be a
/// hiccup.
#[test]
fn calls_that_fail_at_random_times_are_no_health() {
    let judged = |every: usize| {
        let mut lived = Lived::new(World::default(), 1);
        let mut planner = Planner::new(settings());
        while let Some(probe) = planner.poll_probe(t(lived.now)) {
            let mut seen = lived.make(&probe, &settings());
            if let Observation::Scattered(calls) = &mut seen {
                for call in calls.iter_mut().step_by(every) {
                    let words = "the server closed the connection without an answer".to_owned();
                    call.end = Some(Err(Failure { stage: CallStage::Wait, why: Why::ClosedEarly, words }));
                }
            }
            planner.handle_observation(probe, seen);
        }
        planner.diagnose()
    };
    let drops = judged(5);
    assert_eq!(drops.whole, Whole::Inconclusive, "{drops:#?}");
    assert!(drops.limits[0].contains("6 of 41 calls failed"), "{:?}", drops.limits);
    let once = judged(100);
    assert_eq!(once.whole, Whole::Healthy, "{once:#?}");
    assert!(once.limits.iter().any(|limit| limit.contains("1 of 41 calls failed")), "{:?}", once.limits);
}
