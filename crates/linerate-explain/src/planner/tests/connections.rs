//! Worlds in which connections are what differs.

use super::*;
use crate::signs::by_connection;

/// The call's connection had to send its SYN again.
pub(super) fn lose_syn(call: &mut Call) {
    let later = t(1040.0);
    call.connect += later;
    call.total += later;
    call.connect_facts = Facts { total_retrans: 1, total_rto_time_ms: 1040, ..Facts::default() };
}

#[test]
fn connections() {
    let closing = explained(World { keep: false, rtt: 5.0, ..World::default() });
    assert_eq!(ids(&closing), ["no-keep-alive"], "{closing:#?}");
    let syn = explained(World { lose_syn: 3, ..World::default() });
    // The server may have dropped them: from here that looks the same.
    assert_eq!(ids(&syn), ["syn-loss", "accept-queue"], "{syn:#?}");
    assert_eq!(syn.causes[1].proof(), Proof::Possible);
    let queue = explained(World { accept: 300.0, ..World::default() });
    assert_eq!(ids(&queue), ["accept-queue"], "{queue:#?}");
    // At a distance a full queue looks like lost SYNs at first. The difference: calls on new
    // connections wait, and those on reused ones lose nothing.
    for seed in 0..20 {
        let full = World { accept: 150.0, lose_syn: 3, rtt: 40.0, ..World::default() };
        let full = explained_with(full, settings(), seed);
        assert_eq!(ids(&full), ["accept-queue"], "{full:#?}");
        let lost = explained_with(World { lose_syn: 3, rtt: 40.0, ..World::default() }, settings(), seed);
        assert_eq!(ids(&lost), ["syn-loss", "accept-queue"], "{lost:#?}");
    }
    // A queue with room for five: a call alone does not meet it.
    for (rtt, seed) in [0.05, 40.0].into_iter().flat_map(|rtt| (0..20).map(move |seed| (rtt, seed))) {
        let short = World { backlog: 5, think: |_| 100.0, rtt, ..World::default() };
        let short = explained_with(short, settings(), seed);
        assert_eq!(ids(&short), ["server-think"], "{rtt}, seed {seed}: {short:#?}");
        let told = |l: &String| l.starts_with("accept-queue: unclear: of") && l.contains("opened alone none");
        assert!(short.limits.iter().any(told), "{:?}", short.limits);
        assert!(
            short.ruled_out.iter().all(|r| r.cause.id != "accept-queue" && r.cause.id != "syn-loss"),
            "{short:#?}"
        );
    }
    let setup = explained(World { setup: 200.0, ..World::default() });
    assert_eq!(ids(&setup), ["reverse-dns"], "{setup:#?}");
    assert_eq!(setup.causes[0].proof(), Proof::Possible);
    let ports = explained(World { no_port: true, ..World::default() });
    assert_eq!(ids(&ports), ["ports-exhausted"], "{ports:#?}");
}

#[test]
fn only_so_many_connections() {
    let turn: fn(&mut Noise) -> f64 = |noise| noise.between(60.0, 120.0);
    for (limit, rtt) in [(2, 0.05), (2, 40.0), (10, 0.05), (30, 5.0)] {
        for seed in 0..10 {
            let full = explained_with(World { limit, rtt, turn, ..World::default() }, settings(), seed);
            assert_eq!(ids(&full), ["connection-limit"], "{limit}, seed {seed}: {full:#?}");
            assert_eq!(full.causes[0].proof(), Proof::Proved);
            // An interval of 95 in 100 misses now and then, and not by much.
            let dose = full.causes[0].dose().expect("a dose");
            assert!(dose.low < 1.1 && dose.high > 0.9, "{full:#?}");
        }
    }
    // Those beyond the limit are accepted and not answered. However long the first one hangs, the
    // experiments have their time.
    for (rtt, seed) in [0.05, 40.0].into_iter().flat_map(|rtt| (0..10).map(move |seed| (rtt, seed))) {
        let full = World { limit: 1, starves: true, rtt, ..World::default() };
        let settings = Settings { budget: Duration::from_secs(10), ..settings() };
        let full = explained_with(full, settings, seed);
        assert_eq!(ids(&full), ["connection-limit"], "{rtt}, seed {seed}: {full:#?}");
    }
    // Idle connections of ours don't affect calls that wait to be accepted, or for a lookup.
    for world in [World { accept: 60.0, ..World::default() }, World { setup: 60.0, ..World::default() }] {
        let diagnosis = explained(world);
        assert!(!ids(&diagnosis).contains(&"connection-limit"), "{diagnosis:#?}");
        assert!(diagnosis.ruled_out.iter().any(|r| r.cause.id == "connection-limit"), "{diagnosis:#?}");
    }
}

#[test]
fn a_server_that_remembers_our_ports() {
    for rtt in [0.05, 40.0] {
        for seed in 0..10 {
            let world = World { rtt, remembers: 1, ..World::default() };
            let diagnosis = explained_with(world, settings(), seed);
            assert_eq!(ids(&diagnosis), ["time-wait-collision"], "seed {seed}: {diagnosis:#?}");
            let cause = &diagnosis.causes[0];
            assert_eq!(cause.proof(), Proof::Proved);
            assert!((rtt + 7.0..rtt + 13.0).contains(&cause.cost_ms()), "{}", cause.cost_ms());
            assert!(diagnosis.shown.arms.is_some(), "both arms are shown");
        }
    }
    // From any port: some machine replies to SYNs that way. It is not a loss, and these ports are
    // not the reason.
    let tried = explained(World { remembers: 2, ..World::default() });
    assert!(tried.causes.is_empty(), "{:#?}", tried.causes);
    assert!(tried.limits.iter().any(|l| l.starts_with("time-wait-collision: ")), "{:?}", tried.limits);
    // A SYN that was lost takes a second.
    let lost = explained(World { lose_syn: 2, ..World::default() });
    assert!(!ids(&lost).contains(&"time-wait-collision"), "{lost:#?}");
}

#[test]
fn a_connection_that_met_a_busy_worker() {
    let every_other: fn(usize) -> bool = |which| which % 2 == 1;
    let some: fn(usize) -> bool = |which| which % 3 == 2;
    for rtt in [0.05, 40.0] {
        for meets in [every_other, some] {
            for seed in 0..20 {
                let world = World { rtt, busy: (60.0, meets), ..World::default() };
                let diagnosis = explained_with(world, settings(), seed);
                assert_eq!(ids(&diagnosis), ["pinned-to-busy-worker"], "seed {seed}: {diagnosis:#?}");
                assert_eq!(diagnosis.causes[0].proof(), Proof::Proved);
                assert!((55.0..65.0).contains(&diagnosis.causes[0].cost_ms()));
            }
        }
    }
    // Of the connections that the first look made some met a busy one, and none of the next six:
    // then six more are made.
    let late: fn(usize) -> bool = |which| which == 2 || which > 13;
    for seed in 0..20 {
        let diagnosis = explained_with(World { busy: (60.0, late), ..World::default() }, settings(), seed);
        assert_eq!(ids(&diagnosis), ["pinned-to-busy-worker"], "seed {seed}: {diagnosis:#?}");
    }
    // One in six is busy.
    let seldom: fn(usize) -> bool = |which| which == 2 || which % 6 == 5;
    for seed in 0..20 {
        let diagnosis = explained_with(World { busy: (60.0, seldom), ..World::default() }, settings(), seed);
        assert_eq!(ids(&diagnosis), ["pinned-to-busy-worker"], "seed {seed}: {diagnosis:#?}");
    }
    // Two rounds suffice where they tell, and a third one follows where they do not. While it is
    // unclear, work is possible at most.
    let two = lived_with(World { busy: (60.0, some), ..World::default() }, settings(), 1);
    assert_eq!(by_connection::made(two.record()), 12);
    let few: fn(usize) -> bool = |which| which == 1 || which == 8;
    for seed in 0..20 {
        // As many calls as on a busy machine.
        let settings = Settings { calls: 2 * settings().calls, ..settings() };
        let planner = lived_with(World { busy: (60.0, few), ..World::default() }, settings, seed);
        assert_eq!(by_connection::made(planner.record()), 18);
        let diagnosis = planner.diagnose();
        assert_eq!(ids(&diagnosis), ["server-think"], "seed {seed}: {diagnosis:#?}");
        assert_eq!(diagnosis.causes[0].proof(), Proof::Possible);
        let unclear = "pinned-to-busy-worker: unclear: ";
        assert!(diagnosis.limits.iter().any(|l| l.starts_with(unclear)), "{:?}", diagnosis.limits);
    }
    // Times that vary from call to call do not indicate a busy worker.
    let chance: fn(&mut Noise) -> f64 = |noise| -20.0 * (1.0 - 0.99 * noise.unit()).ln();
    let either: fn(&mut Noise) -> f64 = |noise| if noise.unit() < 0.5 { 60.0 } else { 0.0 };
    let mut named = 0;
    for think in [chance, either] {
        for seed in 0..100 {
            let diagnosis = explained_with(World { think, ..World::default() }, settings(), seed);
            named += usize::from(ids(&diagnosis).contains(&"pinned-to-busy-worker"));
        }
    }
    assert!(named <= 2, "{named} of 200: more than chance explains");
}

#[test]
fn a_proxy_that_collects_the_answer() {
    let asked = Settings { origin: Some("http://behind/".to_owned()), ..settings() };
    let world = World { think: |_| 100.0, behind: Some(100.0), ..World::default() };
    let diagnosis = explained_with(world.clone(), asked.clone(), 1);
    assert_eq!(ids(&diagnosis), ["proxy-buffering", "server-think"], "{diagnosis:#?}");
    assert_eq!(diagnosis.causes[0].proof(), Proof::Proved);
    // The proxy was not named: from here it is a server that thinks.
    assert_eq!(ids(&explained(world)), ["server-think"]);
    // The server behind thinks as long.
    let thinks = explained_with(World { think: |_| 100.0, ..World::default() }, asked.clone(), 1);
    assert_eq!(ids(&thinks), ["server-think"], "{thinks:#?}");
    assert!(thinks.ruled_out.iter().any(|r| r.cause.id == "proxy-buffering"), "{thinks:#?}");
    // Without the proxy all of it is sooner: it is slow, and holds nothing back.
    let slow = World { think: |_| 100.0, behind: Some(0.0), ..World::default() };
    assert_eq!(ids(&explained_with(slow, asked, 1)), ["server-think"]);
}
