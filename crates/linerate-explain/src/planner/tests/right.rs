//! Worlds in which a diagnosis was once sure of the wrong cause.

use super::*;
use crate::evidence::Grounds;
use crate::passive::LateSegments;

/// A server on this machine, so there is no path to it.
fn here() -> Settings {
    Settings { addresses: vec![([127, 0, 0, 1], 80).into()], ..settings() }
}

fn limit(diagnosis: &Diagnosis, start: &str) -> bool {
    diagnosis.limits.iter().any(|l| l.starts_with(start))
}

fn ruled_out(diagnosis: &Diagnosis, id: &str) -> bool {
    diagnosis.ruled_out.iter().any(|r| r.cause.id == id)
}

#[test]
fn a_path_that_is_too_narrow_is_proved_by_turns() {
    let narrow = World { rtt: 40.0, mtu: Some(1200), body: 3000, ..World::default() };
    let diagnosis = explained_with(narrow, settings(), 1);
    assert_eq!(ids(&diagnosis), ["path-mtu"], "{diagnosis:#?}");
    assert_eq!(diagnosis.causes[0].proof(), Proof::Proved, "{diagnosis:#?}");
}

/// It booted its workers, or collected garbage, while the first calls were made: 43 bytes meet no
/// limit of a path.
#[test]
fn a_server_that_hangs_at_first_has_no_narrow_path() {
    for (body, settings) in [(43, settings()), (3000, settings()), (3000, here())] {
        let world = World { hangs: 2, body, ..World::default() };
        let diagnosis = explained_with(world, settings, 1);
        assert!(!ids(&diagnosis).contains(&"path-mtu"), "{body}: {diagnosis:#?}");
        assert!(ruled_out(&diagnosis, "path-mtu") || diagnosis.causes.is_empty(), "{body}: {diagnosis:#?}");
    }
}

#[test]
fn a_full_queue_of_another_program_is_not_this_servers() {
    let call = |n: usize, overflows: u64, syns: u32| {
        let mut call = Call {
            fresh: true,
            connect: t(0.1),
            wait: t(12.0),
            total: t(12.1),
            overflows,
            ..Call::default()
        };
        call.connect_facts.total_retrans = syns;
        if syns > 0 {
            call.connect = t(1040.0);
        }
        call.wait += t(n as f64 * 0.01);
        call.end = Some(Ok(ProbeResponse {
            status: 200,
            reusable: true,
            body_bytes: 5,
            ..ProbeResponse::default()
        }));
        call
    };
    let judged = |overflows: u64, syns: u32| {
        let mut record = Record::new(settings());
        for n in 0..6 {
            let probe = CallProbe::plain(Experiment::Observe, 0, Lane::Fresh);
            let made = call(n, overflows, if n == 3 { syns } else { 0 });
            record.push(Probe::Call(Box::new(probe)), Observation::Call(Box::new(made)));
        }
        Judgements::new(&record, &causes::ALL).of("accept-queue").clone()
    };
    assert!(!matches!(judged(9, 0), Judgement::Named(_)), "no SYN of ours was sent again");
    let Judgement::Named(verdict) = judged(9, 1) else { unreachable!("ours was turned away") };
    assert_eq!(verdict.proof(), Proof::Proved, "{verdict:#?}");
}

/// Segments that come out of order are late where none gets lost.
#[test]
fn nothing_is_lost_over_loopback() {
    let call = |n: usize, disordered: bool| {
        let wait = if disordered { 20.0 } else { 1.0 + n as f64 * 0.01 };
        let mut call = Call { wait: t(wait), total: t(wait), ..Call::default() };
        call.facts.rcv_ooopack = u32::from(disordered) * 4;
        call.end = Some(Ok(ProbeResponse {
            status: 200,
            reusable: true,
            body_bytes: 5,
            ..ProbeResponse::default()
        }));
        call
    };
    let judged = |settings: Settings| {
        let mut record = Record::new(settings);
        for n in 0..20 {
            let probe = CallProbe::plain(Experiment::Observe, 0, Lane::Kept(0));
            let made = call(n, n % 2 == 1);
            record.push(Probe::Call(Box::new(probe)), Observation::Call(Box::new(made)));
        }
        Judgements::new(&record, &causes::ALL).of("packet-loss").clone()
    };
    assert!(matches!(judged(settings()), Judgement::Named(_)), "far away");
    assert!(matches!(judged(here()), Judgement::Open(_)), "here");
}

/// Every other call has segments that came out of order, and is late by so much, at a round trip of
/// 40 ms.
fn disordered(late_ms: f64, packets: Option<LateSegments>) -> [Judgement; 2] {
    let mut record = Record::new(settings());
    for n in 0..20 {
        let hit = n % 2 == 1;
        let total = 42.0 + f64::from(n) * 0.01 + if hit { late_ms } else { 0.0 };
        let mut call = Call { wait: t(41.0), receive: t(total - 41.0), total: t(total), ..Call::default() };
        call.facts.min_rtt_us = 40_000;
        call.facts.rcv_ooopack = u32::from(hit) * 4;
        call.late = packets.filter(|_| hit);
        call.end = Some(Ok(ProbeResponse {
            status: 200,
            reusable: true,
            body_bytes: 5,
            ..ProbeResponse::default()
        }));
        let probe = CallProbe::plain(Experiment::Observe, 0, Lane::Kept(0));
        record.push(Probe::Call(Box::new(probe)), Observation::Call(Box::new(call)));
    }
    let judgements = Judgements::new(&record, &causes::ALL);
    ["packet-loss", "reordering"].map(|id| judgements.of(id).clone())
}

/// Segments out of order prove no loss: their packets do, or that the call is late by a round trip.
#[test]
fn what_is_overtaken_is_not_lost() {
    let proof = |judgement: &Judgement| match judgement {
        Judgement::Named(verdict) => Some(verdict.proof()),
        _ => None,
    };
    let lost = Some(LateSegments { lost: 1, told: 1, ..LateSegments::default() });
    let overtaken = Some(LateSegments { overtaken: 2, ..LateSegments::default() });
    for (late_ms, packets, loss, order) in [
        (8.0, None, None, Some(Proof::Likely)),
        (45.0, None, Some(Proof::Likely), None),
        (8.0, overtaken, None, Some(Proof::Proved)),
        (60.0, overtaken, None, Some(Proof::Proved)),
        (45.0, lost, Some(Proof::Proved), None),
    ] {
        let judged = disordered(late_ms, packets);
        assert_eq!(
            (proof(&judged[0]), proof(&judged[1])),
            (loss, order),
            "{late_ms} {packets:?}: {judged:#?}"
        );
    }
}

/// Where every call loses segments, none says what an ordinary one takes: not 0 ms.
#[test]
fn calls_that_all_lost_segments_are_compared_with_the_quickest() {
    let judged = |takes: fn(usize) -> f64, rto_ms: u32| {
        let mut record = Record::new(settings());
        for n in 0..12 {
            let total = takes(n);
            let mut call = Call { wait: t(total), total: t(total), ..Call::default() };
            call.facts.total_retrans = 1;
            call.facts.total_rto_time_ms = rto_ms;
            call.end = Some(Ok(ProbeResponse { status: 200, reusable: true, ..ProbeResponse::default() }));
            let probe = CallProbe::plain(Experiment::Observe, 0, Lane::Kept(0));
            record.push(Probe::Call(Box::new(probe)), Observation::Call(Box::new(call)));
        }
        Judgements::new(&record, &causes::ALL).of("packet-loss").clone()
    };
    let named = |judgement: Judgement| match judgement {
        Judgement::Named(verdict) => Some((verdict.proof(), verdict.cost_ms())),
        _ => None,
    };
    // They took 50 ms, and 290 where a segment was sent again after a time-out.
    let some = named(judged(|n| if n % 2 == 0 { 50.0 } else { 290.0 }, 0));
    assert_eq!(some, Some((Proof::Likely, 240.0)));
    // All of them waited for one: 200 ms are not what an ordinary call takes.
    assert_eq!(named(judged(|_| 240.0, 200)), Some((Proof::Likely, 200.0)));
    let alike = judged(|n| 240.0 + n as f64 * 0.1, 0);
    assert!(matches!(&alike, Judgement::Open(why) if why.contains("all 12 calls")), "{alike:?}");
}

/// A server that takes 700 ms, behind a path that reorders what it sends: no call hangs.
#[test]
fn what_is_overtaken_is_not_too_large_for_the_path() {
    let judged = |late: LateSegments| {
        let mut record = Record::new(settings());
        for n in 0..8 {
            let mut call = Call { fresh: true, wait: t(700.0), total: t(745.0), ..Call::default() };
            call.facts.rcv_ooopack = 2;
            call.facts.bytes_received = 20_000;
            call.late = Some(late);
            call.end = Some(Ok(ProbeResponse { status: 200, ..ProbeResponse::default() }));
            call.receive = t(5.0 + f64::from(n));
            let probe = CallProbe::plain(Experiment::Observe, 0, Lane::Fresh);
            record.push(Probe::Call(Box::new(probe)), Observation::Call(Box::new(call)));
        }
        Judgements::new(&record, &causes::ALL).of("path-mtu").clone()
    };
    let lost = judged(LateSegments { lost: 1, ..LateSegments::default() });
    assert!(matches!(lost, Judgement::Open(_)), "{lost:?}");
    let overtaken = judged(LateSegments { overtaken: 2, ..LateSegments::default() });
    assert!(matches!(overtaken, Judgement::Silent), "{overtaken:?}");
}

#[test]
fn a_loss_in_any_call_is_none_that_is_ruled_out() {
    for every in [7, 13, 19] {
        for seed in 0..5 {
            let lossy =
                explained_with(World { lose: every, think: |_| 1.0, ..World::default() }, settings(), seed);
            assert!(!ruled_out(&lossy, "packet-loss"), "{every}, {seed}: {lossy:#?}");
        }
    }
    let clean = explained(World::default());
    let why = &clean.ruled_out.iter().find(|r| r.cause.id == "packet-loss").expect("none was lost").why;
    assert!(why.contains("would have shown"), "{why}");
}

#[test]
fn a_pool_of_workers_is_no_line() {
    for pool in [1, 2, 4, 8] {
        for rtt in [0.05, 40.0] {
            for seed in 0..6 {
                let world = World { think: |_| 100.0, pool, rtt, ..World::default() };
                let diagnosis = explained_with(world, settings(), seed);
                assert_eq!(ids(&diagnosis), ["server-think"], "{pool}, {rtt}: {diagnosis:#?}");
                let served = (pool < 8).then_some(usize::from(pool));
                assert_eq!(diagnosis.served_at_once, served, "{pool}, {rtt}: {diagnosis:#?}");
            }
        }
    }
}

#[test]
fn our_own_pace_is_no_work_of_the_server() {
    for every in [50.0, 101.0, 500.0] {
        for rtt in [0.05, 40.0] {
            let diagnosis = explained_with(World { every, rtt, ..World::default() }, settings(), 1);
            assert_eq!(ids(&diagnosis), ["rate-limit"], "{every}, {rtt}: {diagnosis:#?}");
            // With so long a turn the doses do not fit into the time.
            let proof = if every > 300.0 { Proof::Likely } else { Proof::Proved };
            assert_eq!(diagnosis.causes[0].proof(), proof, "{diagnosis:#?}");
        }
    }
    let both = explained(World { every: 101.0, think: |_| 30.0, ..World::default() });
    assert_eq!(ids(&both), ["rate-limit", "server-think"], "{both:#?}");
    let work = explained(World { think: |_| 101.0, ..World::default() });
    assert!(ruled_out(&work, "rate-limit") && ids(&work) == ["server-think"], "{work:#?}");
}

#[test]
fn a_refusal_is_named_and_obeyed() {
    let diagnosis = explained(World { refuses_from: 6, ..World::default() });
    assert_eq!(ids(&diagnosis), ["rate-limit"], "{diagnosis:#?}");
    assert!(diagnosis.calls <= 9, "it was asked not to call: {}", diagnosis.calls);
    assert!(diagnosis.took_s >= 1.0, "it said when to call again");
    assert!(diagnosis.causes[0].evidence()[0].contains("429 with Retry-After: 1"), "{diagnosis:#?}");
}

#[test]
fn a_busy_machine_hides_no_stall() {
    let mut named = 0;
    for seed in 0..40 {
        let world = World { nagle: true, busy_machine: 0.25, ..World::default() };
        let diagnosis = explained_with(world, settings(), seed);
        assert!(!ruled_out(&diagnosis, "server-nagle-delayed-ack"), "seed {seed}: {diagnosis:#?}");
        named += usize::from(ids(&diagnosis).first() == Some(&"server-nagle-delayed-ack"));
    }
    assert!(named >= 38, "{named} of 40");
}

#[test]
fn one_slow_connection_is_no_busy_worker() {
    let one: fn(usize) -> bool = |which| which == 4;
    for seed in 0..20 {
        let diagnosis = explained_with(World { busy: (60.0, one), ..World::default() }, settings(), seed);
        assert!(!ids(&diagnosis).contains(&"pinned-to-busy-worker"), "seed {seed}: {diagnosis:#?}");
    }
}

#[test]
fn a_trifle_is_a_note() {
    let closing = explained(World { keep: false, rtt: 0.045, ..World::default() });
    assert_eq!((closing.whole, closing.causes.len()), (Whole::Healthy, 0), "{closing:#?}");
    assert!(limit(&closing, "no-keep-alive: "), "{:?}", closing.limits);
}

#[test]
fn a_call_that_fails_is_not_fine() {
    for status in [404, 500] {
        let diagnosis = explained(World { status, ..World::default() });
        assert_eq!(diagnosis.whole, Whole::Inconclusive, "{diagnosis:#?}");
        assert_eq!(diagnosis.limits[0], format!("the call fails with {status}"));
    }
}

#[test]
fn an_answer_that_ends_late_with_its_connection() {
    let judged = |late: f64| {
        let mut record = Record::new(settings());
        for _ in 0..4 {
            let mut call =
                Call { fresh: true, wait: t(1.0), receive: t(late), total: t(1.0 + late), ..Call::default() };
            call.closed_after = Some(t(late));
            call.end = Some(Ok(ProbeResponse { status: 200, body_bytes: 5, ..ProbeResponse::default() }));
            let probe = CallProbe::plain(Experiment::Observe, 0, Lane::Fresh);
            record.push(Probe::Call(Box::new(probe)), Observation::Call(Box::new(call)));
        }
        Judgements::new(&record, &causes::ALL).of("late-close").clone()
    };
    let Judgement::Named(verdict) = judged(500.0) else { unreachable!("it is late") };
    assert!((499.0..501.0).contains(&verdict.cost_ms()), "{verdict:#?}");
    assert_eq!(judged(0.2), Judgement::Silent);
}

#[test]
fn a_narrow_line_is_the_reason_for_what_it_drops() {
    let seen = |id: &str, ms: f64| {
        let grounds = Grounds::Counted { words: "w".to_owned(), share: 1.0 };
        Verdict::new(causes::find(id).expect("a cause"), ms, grounds)
    };
    let mut named = [seen("packet-loss", 934.0), seen("bandwidth", 926.0)];
    assert!(named[0].weight() > named[1].weight());
    lost_for_a_reason(&mut named);
    assert!(named[0].weight() < named[1].weight());
    let mut alone = [seen("packet-loss", 934.0)];
    lost_for_a_reason(&mut alone);
    assert_eq!(alone[0].weight(), seen("packet-loss", 934.0).weight());
}
