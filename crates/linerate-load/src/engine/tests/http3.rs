//! The engine over HTTP/3, both sides in memory and in virtual time: datagrams that are lost, doubled and
//! reordered, and a server that rejects, resets, says goodbye, closes and falls silent. Each request ends in
//! exactly one outcome.

use std::rc::Rc;

use linerate_base::Random;
use linerate_net::datagrams::{PathFaults, SimDatagrams};

use super::h3_server::{CLEAN, Deed, SERVER, Scripted};
use super::*;
use crate::plan::http::{Http, HttpOptions};
use crate::plan::tls::{PemFile, TargetTls, Trust};
use crate::route::RouteTo;
use crate::ways::run_over_datagrams;

/// Seeds of an ordinary run. Reason: each takes some hundredths of a second.
const SEEDS: u64 = 30;
fn plan_of(requests_in_all: u64, connections: u32, depth: u32) -> Plan {
    let mut plan = Plan {
        connections,
        depth,
        stop: requests(requests_in_all),
        timeout: 1000 * MS,
        http: HttpOptions { version: Http::Three, ..HttpOptions::default() },
        ..plan()
    };
    let mut tls = TargetTls::towards("a.example");
    tls.trust = Trust::Pem(PemFile { path: "cert".to_owned(), text: SERVER.1.clone() });
    plan.tls = Some(tls);
    plan.target.addresses = vec![SocketAddr::from(([10, 0, 0, 2], 443))];
    plan
}

/// The outcome, and what the server counted: requests, and responses.
fn run_quic(plan: &Plan, server: Option<Scripted>, faults: PathFaults) -> (Outcome, (u64, u64)) {
    plan.validate().unwrap();
    let mut net = SimDatagrams::new(faults, plan.seed).unwrap();
    let seen = server.as_ref().map(|server| Rc::clone(&server.seen)).unwrap_or_default();
    if let Some(server) = server {
        net.serve(plan.target.addresses[0], server);
    }
    let part = CorePart { route: RouteTo::of(plan).unwrap(), ..part() };
    let outcome = run_over_datagrams(part, plan, net, board()).unwrap();
    let r = outcome.requests;
    assert_eq!(r.sent, r.answered + r.failed + r.unknown, "{r:?}");
    assert_eq!(r.failed, outcome.failures.total());
    let counted = *seen.borrow();
    (outcome, counted)
}

#[test]
fn every_request_is_answered_on_streams_of_few_connections() {
    let plan = plan_of(500, 3, 40);
    let (outcome, seen) = run_quic(&plan, Some(Scripted::new(|_| Deed::Answer, 300, 1)), CLEAN);
    assert_eq!((outcome.requests.answered, seen), (500, (500, 500)), "{:?}", outcome.failures);
    assert_eq!((outcome.connections.opened, outcome.http.h3), (3, 3));
    let quic = outcome.quic.unwrap();
    assert_eq!((quic.handshakes, quic.lost, quic.retries, quic.dropped, quic.rtts), (3, 0, 0, 0, 3));
    assert!((2_000_000..10_000_000).contains(&quic.rtt_min_ns), "{quic:?}");
    assert!(quic.datagrams_sent > 0 && quic.datagrams_received > 0);
    // Received are the bytes of streams, and nothing that stands between them in this process.
    let per_response = outcome.bytes.received / 500;
    assert!((303..330).contains(&per_response), "{per_response} bytes of a response");
}

#[test]
fn large_bodies_cross_both_ways_however_small_the_windows_are() {
    let mut plan = plan_of(40, 2, 4);
    plan.requests = vec![request("POST")];
    plan.requests[0].body = Some(vec![b'b'; 3 << 20].into());
    plan.timeout = Duration::from_secs(60);
    let (outcome, seen) = run_quic(&plan, Some(Scripted::new(|_| Deed::Answer, 200_000, 1)), CLEAN);
    assert_eq!((outcome.requests.answered, seen.0), (40, 40), "{:?}", outcome.failures);
    assert!(outcome.bytes.sent >= 40 * (3 << 20), "{:?}", outcome.bytes);
}

#[test]
fn rfc9114_rejected_requests_go_out_again_and_others_fail_with_their_code() {
    let plan = plan_of(200, 2, 8);
    let deed = |nth| match nth % 10 {
        3 => Deed::Reset(0x10b),
        7 => Deed::Reset(0x102),
        _ => Deed::Answer,
    };
    let (outcome, seen) = run_quic(&plan, Some(Scripted::new(deed, 10, 1)), CLEAN);
    let r = outcome.requests;
    assert_eq!((r.sent, r.unknown, r.answered), (200, 0, seen.1), "{r:?}");
    assert_eq!(seen.0, r.sent + r.resent, "{r:?}");
    assert_eq!(outcome.failures.codes().get("H3_INTERNAL_ERROR"), Some(&r.failed));
    assert!(r.failed > 0 && r.resent > 0 && outcome.http.refused == r.resent, "{r:?}");
}

#[test]
fn rfc9114_5_2_what_a_goaway_excludes_goes_out_again() {
    let plan = plan_of(100, 1, 4);
    let deed = |nth| if nth % 30 == 29 { Deed::GoAway } else { Deed::Answer };
    let (outcome, seen) = run_quic(&plan, Some(Scripted::new(deed, 10, 1)), CLEAN);
    let r = outcome.requests;
    assert_eq!((r.answered, r.failed, r.unknown), (100, 0, 0), "{r:?} {:?}", outcome.failures);
    assert!(outcome.http.go_aways >= 3 && outcome.http.go_aways == outcome.connections.opened - 1, "{r:?}");
    assert!(r.resent > 0 && seen.1 >= 100, "{seen:?}");
}

#[test]
fn a_server_that_closes_with_an_error_or_falls_silent_loses_no_count() {
    for (code, word) in [(0x102, "H3_INTERNAL_ERROR"), (0x107, "H3_EXCESSIVE_LOAD")] {
        let plan = plan_of(60, 1, 1);
        let deed = move |nth| if nth % 20 == 19 { Deed::Close(code) } else { Deed::Answer };
        let (outcome, _) = run_quic(&plan, Some(Scripted::new(deed, 10, 1)), CLEAN);
        let r = outcome.requests;
        assert_eq!((r.sent, r.answered + r.failed), (60, 60), "{r:?}");
        let details = format!("{:?}", outcome.failures);
        assert!(r.failed == 0 || details.contains(word), "{details}");
        assert!(outcome.connections.opened >= 3);
    }
    let plan = plan_of(20, 1, 2);
    let deed = |nth| if nth >= 10 { Deed::Silence } else { Deed::Answer };
    let (outcome, _) = run_quic(&plan, Some(Scripted::new(deed, 10, 1)), CLEAN);
    let r = outcome.requests;
    assert_eq!((r.sent, r.answered, r.failed), (20, 10, 10), "{r:?} {:?}", outcome.failures);
}

#[test]
fn nobody_there_is_said_at_once() {
    let (outcome, _) = run_quic(&plan_of(5, 1, 1), None, CLEAN);
    let why = outcome.unreachable.unwrap();
    assert!(why.contains("UDP") && why.contains("over TCP"), "{why}");
    assert_eq!((outcome.requests.answered, outcome.connections.opened), (0, 0));
}

#[test]
fn a_path_that_passes_nothing_is_a_timeout() {
    let dead = PathFaults { loss: 1.0, ..CLEAN };
    let (outcome, _) = run_quic(&plan_of(5, 1, 1), Some(Scripted::new(|_| Deed::Answer, 1, 1)), dead);
    assert!(outcome.unreachable.is_some(), "{:?}", outcome.requests);
}

fn run_seed(seed: u64) {
    let mut dice = Random::new(seed);
    let lossy = dice.below(2) == 0;
    let share = |n| if lossy { n } else { 0.0 };
    let faults = PathFaults {
        loss: share(0.02),
        duplicates: share(0.02),
        jitter: if lossy { 3 * MS } else { Duration::ZERO },
        marked: share(0.1),
        ..CLEAN
    };
    let mut plan = plan_of(200, 1 + dice.below(3) as u32, 1 + dice.below(30) as u32);
    plan.seed = seed;
    plan.timeout = 3000 * MS;
    plan.per_connection = (dice.below(4) == 0).then_some(20);
    plan.requests = vec![request("GET"), request("POST")];
    plan.requests[1].body = Some(vec![b'p'; dice.below(40_000) as usize].into());
    plan.resend = Resend::ALL[dice.below(3) as usize];
    let evil = dice.below(20);
    let mut fate = Random::new(seed + 2);
    let deed = move |_| match fate.below(100) {
        n if n >= evil => Deed::Answer,
        0..2 => Deed::GoAway,
        2..4 => Deed::Close([0x100, 0x102, 0x107][fate.below(3) as usize]),
        4..6 => Deed::Cut(0x102),
        6 => Deed::Silence,
        _ => Deed::Reset([0x100, 0x102, 0x10b, 0x10c, 77][fate.below(5) as usize]),
    };
    let server = Scripted::new(deed, dice.below(3000) as usize, seed);
    let (outcome, (seen, answered)) = run_quic(&plan, Some(server), faults);
    let r = outcome.requests;
    assert_eq!(r.sent, 200, "seed {seed}: {r:?}");
    assert!(r.answered <= answered, "seed {seed}: the server answered {answered}, we counted {r:?}");
    assert!(seen <= r.sent + r.resent, "seed {seed}: the server saw {seen}: {r:?}");
    if evil == 0 {
        assert_eq!(r.answered, 200, "seed {seed}: {:?}", outcome.failures);
    }
}

#[test]
fn each_request_ends_in_exactly_one_outcome_whatever_the_path_and_the_server_do() {
    (0..SEEDS).for_each(run_seed);
}
