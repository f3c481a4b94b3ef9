//! Attempts to connect that are never answered, and requests that never leave.

use super::*;

fn at_rate(rate: f64) -> Pace {
    Pace::Open { rate: Rate::constant(rate), arrival: Default::default() }
}

/// Each costs its own request: the server is within reach all the time.
#[test]
fn one_attempt_in_five_that_hangs_costs_one_request_in_five() {
    let wire = MemOptions { latency: 20 * MS, ..MemOptions::default() };
    let short = Plan {
        connections: 64,
        per_connection: Some(1),
        timeout: 200 * MS,
        stop: seconds(2),
        pace: at_rate(100.0),
        ..plan()
    };
    let script = || Script { ignore_every: Some(5), ..Script::new() };
    let (outcome, _) = run_on(wire, &short, script());
    assert_eq!((outcome.requests.answered, outcome.requests.failed), (160, 40), "{:?}", outcome.requests);
    assert!(!outcome.was_down() && !outcome.down.as_ref().unwrap().at_end, "{:?}", outcome.down);
    // Kept connections: one in five of eight is missing until its time is over, and then opened again.
    let kept = Plan { connections: 8, per_connection: None, ..short };
    let (outcome, _) = run_on(wire, &kept, script());
    assert_eq!((outcome.requests.answered, outcome.requests.failed), (200, 0), "{:?}", outcome.requests);
}

/// In a closed loop its request was waited for as long as the attempt took.
#[test]
fn an_attempt_that_hangs_is_a_wait_of_its_length() {
    let plan = Plan { connections: 8, timeout: 200 * MS, stop: seconds(1), ..plan() };
    let script = Script { think: 10 * MS, ignore_every: Some(4), ..Script::new() };
    let (outcome, _) = run(&plan, script);
    assert!(outcome.requests.failed > 0 && outcome.requests.answered > 0, "{:?}", outcome.requests);
    let longest = outcome.latency.main().percentile(100.0);
    assert!(longest.at_least && longest.ns >= 200_000_000, "{longest:?}");
}

/// The server takes 14 connections of 64: more of them would be no help, and the client is not late.
#[test]
fn what_never_left_for_want_of_connections_says_so() {
    // Of two attempts one hangs, until the end.
    let plan = Plan {
        connections: 8,
        timeout: Duration::from_secs(10),
        stop: seconds(2),
        pace: at_rate(1000.0),
        ..plan()
    };
    let script = || Script { think: 98 * MS, ignore_every: Some(2), ..Script::new() };
    let (outcome, _) = run(&plan, script());
    let r = outcome.requests;
    assert!(r.unsent > 1000 && r.unsent_unopened == r.unsent && r.unsent_full == 0, "{r:?}");
    assert!(outcome.client.lateness.percentile_ns(99.0) < 1_000_000, "the client was in time");
    let (outcome, _) = run(&plan, Script { ignore_every: None, ..script() });
    let r = outcome.requests;
    assert!(r.unsent > 1000 && r.unsent_full == r.unsent && r.unsent_unopened == 0, "{r:?}");
}

/// A handshake that takes a second: what was due meanwhile had no place to leave by.
#[test]
fn connections_that_open_late_do_not_make_the_client_late() {
    let plan = Plan { connections: 4, stop: seconds(3), pace: at_rate(200.0), ..plan() };
    let accept = Accept::After(Duration::from_secs(1));
    let (outcome, _) = run(&plan, Script { accept, ..Script::new() });
    assert_eq!(outcome.requests.answered, 600);
    assert!(outcome.client.lateness.max_ns() < 20_000_000, "{} ns", outcome.client.lateness.max_ns());
}
