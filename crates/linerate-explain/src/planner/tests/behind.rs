//! Servers behind the one that answers: what its answers say of them.

use super::*;

/// The judgement on calls that wait so long, each with a field.
fn judged(waits: &[f64], field: impl Fn(f64) -> (&'static str, String)) -> Judgement {
    let mut record = Record::new(settings());
    for wait in waits {
        let (name, value) = field(*wait);
        let fields = vec![(name.to_owned(), value)];
        let answer = ProbeResponse { status: 200, reusable: true, fields, ..ProbeResponse::default() };
        let call = Call { wait: t(*wait), total: t(*wait), end: Some(Ok(answer)), ..Call::default() };
        let probe = CallProbe::plain(Experiment::Observe, 0, Lane::Kept(0));
        record.push(Probe::Call(Box::new(probe)), Observation::Call(Box::new(call)));
    }
    Judgements::new(&record, &causes::ALL).of("upstream-wait").clone()
}

const WAITS: [f64; 6] = [51.0, 55.0, 60.0, 52.0, 70.0, 51.0];
const ENVOY: &str = "x-envoy-upstream-service-time";

#[test]
fn the_time_behind_is_named_where_the_answers_name_it() {
    for named in [
        judged(&WAITS, |wait| (ENVOY, format!("{:.0}", wait - 1.0))),
        judged(&WAITS, |wait| ("server-timing", format!("cache;desc=miss, upstream;dur={:.1}", wait - 1.0))),
        judged(&WAITS, |wait| ("server-timing", format!("origin; dur=\"{wait}\""))),
    ] {
        assert!(matches!(&named, Judgement::Named(v) if v.proof() == Proof::Likely), "{named:?}");
    }
}

#[test]
fn it_is_the_proxy_where_they_name_little() {
    let little = judged(&WAITS, |_| (ENVOY, "1".to_owned()));
    assert!(matches!(little, Judgement::RuledOut(_)), "{little:?}");
    let half = judged(&WAITS, |wait| ("server-timing", format!("upstream;dur={}", wait / 2.0)));
    assert!(matches!(half, Judgement::Open(_)), "{half:?}");
}

#[test]
fn other_times_and_odd_fields_say_nothing_of_it() {
    let odd =
        ["db;dur=50", "upstream", "upstream;dur=NaN", "upstream;dur=-1", "upstream;dur=inf", ";;;,,,", ""];
    for value in odd {
        let silent = judged(&WAITS, |_| ("server-timing", value.to_owned()));
        assert_eq!(silent, Judgement::Silent, "{value}");
    }
    let quick = judged(&[2.0; 6], |_| (ENVOY, "2".to_owned()));
    assert_eq!(quick, Judgement::Silent);
}

/// Calls at servers that take turns: the wait of call number n.
fn turned(seed: u64, wait: impl Fn(usize, &mut Noise) -> f64) -> Diagnosis {
    let mut lived = Lived::new(World::default(), seed);
    let mut noise = Noise(Random::new(seed));
    let mut planner = Planner::new(settings());
    let mut n = 0;
    let mut late = |call: &mut Call| {
        let more = t(wait(n, &mut noise));
        n += 1;
        call.wait += more;
        call.total += more;
        more
    };
    while let Some(probe) = planner.poll_probe(t(lived.now)) {
        let mut seen = lived.make(&probe, &settings());
        match &mut seen {
            Observation::Call(call) => lived.now += ms(late(call)),
            Observation::Burst(calls) | Observation::Scattered(calls) => {
                for call in calls {
                    late(call);
                }
            }
            _ => {}
        }
        planner.handle_observation(probe, seen);
    }
    planner.diagnose()
}

#[test]
fn each_nth_call_is_one_slow_server_of_n() {
    for servers in 2..=4 {
        let mut found = 0;
        for seed in 0..20 {
            let diagnosis = turned(seed, |n, _| if n % servers == 1 { 60.0 } else { 0.0 });
            let causes = ids(&diagnosis);
            let why: Vec<_> = diagnosis.causes.iter().map(|c| (c.id(), c.proof(), c.evidence())).collect();
            let told = format!("{servers}, {seed}: {why:?}, {:?}", diagnosis.limits);
            assert!(causes.iter().all(|id| *id == "one-slow-backend"), "{told}");
            assert_ne!(diagnosis.whole, Whole::Healthy, "{told}");
            found += causes.len();
            let says = format!("each {servers}. waited 60");
            let said = diagnosis.causes.iter().flat_map(|c| c.evidence()).any(|e| e.contains(&says));
            assert!(causes.is_empty() || said, "{told}");
        }
        // Of four turns the first look shows too few.
        assert!(servers == 4 || found >= 18, "{servers}: {found} of 20");
    }
}

#[test]
fn calls_that_are_slow_by_chance_or_by_the_clock_are_no_slow_server() {
    for seed in 0..40 {
        let chance = turned(seed, |_, noise| if noise.unit() < 0.4 { 60.0 } else { 0.0 });
        let once = turned(seed, |n, _| if n == 7 || n == 20 { 60.0 } else { 0.0 });
        let alike = turned(seed, |_, noise| 60.0 * noise.unit());
        let lock = World { clocked: Clocked::Lock(120.0, 40.0), ..World::default() };
        for diagnosis in [chance, once, alike, explained_with(lock, settings(), seed)] {
            assert!(!ids(&diagnosis).contains(&"one-slow-backend"), "{seed}: {diagnosis:#?}");
        }
    }
}

/// The judgement on calls of which each waits so long and says so of a cache; the last ones after a rest.
fn cached(calls: &[(f64, &str)], rested: &[(f64, &str)]) -> Judgement {
    let mut record = Record::new(settings());
    let all =
        calls.iter().map(|c| (Experiment::Observe, c)).chain(rested.iter().map(|c| (Experiment::Rested, c)));
    for (experiment, (wait, said)) in all {
        let fields = vec![("x-cache".to_owned(), (*said).to_owned())];
        let answer = ProbeResponse { status: 200, reusable: true, fields, ..ProbeResponse::default() };
        let call = Call { wait: t(*wait), total: t(*wait), end: Some(Ok(answer)), ..Call::default() };
        let probe = CallProbe::plain(experiment, 0, Lane::Kept(0));
        record.push(Probe::Call(Box::new(probe)), Observation::Call(Box::new(call)));
    }
    Judgements::new(&record, &causes::ALL).of("cache-cold").clone()
}

#[test]
fn a_cache_that_loses_the_answer_or_never_has_it() {
    let (miss, hit) = ((60.0, "MISS"), (0.3, "HIT"));
    let warm = [miss, hit, hit, hit, hit, hit, hit];
    assert!(matches!(cached(&warm, &[]), Judgement::Open(_)), "{:?}", cached(&warm, &[]));
    let lost = cached(&warm, &[(61.0, "EXPIRED"), (62.0, "EXPIRED"), (60.0, "MISS")]);
    assert!(matches!(&lost, Judgement::Named(v) if v.proof() == Proof::Proved), "{lost:?}");
    let kept = cached(&warm, &[hit, hit]);
    assert!(matches!(kept, Judgement::Open(_)), "{kept:?}");
    let never = cached(&[miss; 8], &[]);
    assert!(matches!(&never, Judgement::Named(v) if v.proof() == Proof::Possible), "{never:?}");
    // Two of a CDN: the word of the one that is nearer counts.
    let now_and_then =
        [(60.0, "HIT, MISS"), hit, (60.0, "Miss from cloudfront"), hit, hit, (61.0, "MISS"), hit];
    let some = cached(&now_and_then, &[]);
    assert!(matches!(&some, Judgement::Named(v) if v.proof() == Proof::Likely), "{some:?}");
    // It costs nothing, it is not meant to be kept, or nobody says anything.
    for quiet in [[(0.4, "MISS"); 8], [(60.0, "DYNAMIC"); 8], [(60.0, "BYPASS"); 8], [(60.0, ""); 8]] {
        assert_eq!(cached(&quiet, &[]), Judgement::Silent);
    }
}

/// What a planner asks for with so many calls, where a call takes 60 ms; each look behind sees nothing.
fn asked_with(settings: &Settings) -> Vec<Probe> {
    let slow = World { think: |_| 60.0, ..World::default() };
    let mut lived = Lived::new(slow, 1);
    let mut planner = Planner::new(settings.clone());
    let mut asked = Vec::new();
    while let Some(probe) = planner.poll_probe(t(lived.now)) {
        let seen = match &probe {
            Probe::Behind(_) => Observation::Behind(None),
            _ => lived.make(&probe, settings),
        };
        planner.handle_observation(probe.clone(), seen);
        asked.push(probe);
        assert!(asked.len() < 1_000, "it never ends: {:?}", asked.last());
    }
    asked
}

#[test]
fn the_look_behind_has_its_turn_when_all_calls_are_spent() {
    for calls in [12, 16, 20, 60] {
        let asked = asked_with(&Settings { calls, pid: Some(1), may_repeat: true, ..settings() });
        let behind = asked.iter().filter(|probe| matches!(probe, Probe::Behind(_))).count();
        assert!(behind >= 4, "{calls}: {behind} looks behind");
        let counted: usize = asked.iter().filter(|probe| counts(probe)).map(Probe::calls).sum();
        assert!(counted <= calls + CALLS_TURNS, "{counted} of {calls}");
    }
}

#[test]
fn a_comparison_ends_with_its_calls() {
    for calls in [11, 12, 20] {
        let compares = vec![CallPart::Lookup, CallPart::Full];
        let tls = Some(crate::record::TlsSettings { insecure: false, resumes: true, limited: false });
        let asked = asked_with(&Settings { calls, may_repeat: true, compares, tls, ..settings() });
        assert!(asked.len() >= 11, "{calls}: {}", asked.len());
    }
}
