//! How many connections a client opens by itself.

use std::time::Duration;

use super::rules::{Does, OK, SECOND, ok, program, program_over};
use super::{CallOptions, options};
use crate::client::limits::{FEW_PIPES, MOST_PIPES};

const MS: Duration = Duration::from_millis(1);

fn adaptive() -> CallOptions {
    CallOptions { pipes: MOST_PIPES, adapts: true, depth: 64, ..options() }
}

/// As a client with a connection for each call would take, and a little more for finding out.
#[test]
fn a_hundred_slow_calls_at_once_take_little_more_than_one() {
    let (mut program, _) = program(adaptive(), |_, _, _| Does::SaysAfter(200 * MS, OK.to_owned()));
    program.get_all(0..100);
    program.run(SECOND);
    let first = program.now();
    assert!((0..100).all(|n| program.status(n) == 200));
    assert!(first.as_nanos() < 300_000_000, "{first:?}");
    // What was learnt holds.
    program.get_all(100..200);
    program.run(SECOND);
    assert!(program.now() - first < 220 * MS, "{:?}", program.now() - first);
    let statistics = program.calls.statistics();
    assert!(statistics.connected <= 110, "{statistics:?}");
}

/// However far the server is: the way alone makes no response slow, the first ones among them.
#[test]
fn quick_responses_share_few_connections() {
    for latency in [MS, 10 * MS, 100 * MS] {
        let (mut program, log) = program_over(latency, adaptive(), |_, _, _| ok());
        for round in 0..20 {
            program.get_all(round * 500..(round + 1) * 500);
            program.run(30 * SECOND);
        }
        let connections = log.lock().unwrap().iter().map(|(conn, ..)| *conn).max();
        assert_eq!(connections, Some(u64::from(FEW_PIPES) - 1), "{latency:?}");
        assert_eq!(program.calls.statistics().connected, u64::from(FEW_PIPES), "{latency:?}");
    }
}

/// A pause of the server opens some, and they are left alone when it is over.
#[test]
fn after_a_pause_few_connections_are_used_again() {
    let (mut program, log) = program(adaptive(), |_, n, _| match n {
        3 => Does::SaysAfter(300 * MS, OK.to_owned()),
        _ => ok(),
    });
    program.get_all(0..100);
    program.run(SECOND);
    for round in 1..20 {
        program.get_all(round * 100..(round + 1) * 100);
        program.run(SECOND);
    }
    log.lock().unwrap().clear();
    program.get_all(9000..9100);
    program.run(SECOND);
    let mut used: Vec<u64> = log.lock().unwrap().iter().map(|(conn, ..)| *conn).collect();
    used.sort_unstable();
    used.dedup();
    assert!(used.len() <= 2 * FEW_PIPES as usize, "{used:?}");
}

/// A server with one core answers what one connection brings while the others wait. Those get the next requests, or it
/// would stay with that one.
#[test]
fn connections_take_turns_while_one_is_served() {
    let options = CallOptions { pipes: 4, depth: 16, ..options() };
    let (mut program, log) = program(options, |conn, n, _| match (conn, n) {
        (_, 0) => ok(),
        (0, n) => Does::SaysAfter(2 * MS * n as u32, OK.to_owned()),
        _ => Does::SaysAfter(500 * MS, OK.to_owned()),
    });
    program.get_all(0..4);
    program.run(SECOND);
    program.get_all(4..16);
    for n in 0..3 {
        while program.calls.statistics().responses <= 4 + n {
            program.wait(MS / 4);
        }
        program.get(16 + n);
    }
    program.wait(2 * MS);
    let log = log.lock().unwrap();
    let last: Vec<u64> = log[16..].iter().map(|(conn, ..)| *conn).collect();
    assert_eq!(last, [0, 1, 2], "the connection that is served has the fewest in flight each time");
}

#[test]
fn slow_posts_get_a_connection_each() {
    let (mut program, log) = program(adaptive(), |_, _, _| Does::SaysAfter(200 * MS, OK.to_owned()));
    (0..50).for_each(|n| {
        program.post(n);
    });
    program.run(SECOND);
    assert!((0..50).all(|n| program.status(n) == 200) && log.lock().unwrap().len() == 50);
    assert!(program.now().as_nanos() < 300_000_000, "{:?}", program.now());
}
