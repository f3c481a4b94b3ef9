//! The engine against scripted servers in memory and in virtual time: no socket, no sleep.

mod h3_server;
mod hanging;
mod http2;
mod http3;
mod late;
mod peer;
mod stack;
mod streams;
mod tls;

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use linerate_net::Time;
use linerate_net::mem::{Accept, Cut, Mem, MemOptions};

use super::board::{Board, Common};
use crate::outcome::{Failure, Outcome};
use crate::plan::flow::{SchemaText, StepExpectation};
use crate::plan::{Check, Expectation, Order, Pace, Plan, Rate, Request, Resend, Stop, Target};
use crate::ways::CorePart;
use peer::{Script, Seen};

const MS: Duration = Duration::from_millis(1);

fn server() -> SocketAddr {
    SocketAddr::from(([127, 0, 0, 1], 80))
}

/// A plan of GETs on one connection without an end.
fn plan() -> Plan {
    let target = Target { url: "http://test/".into(), authority: "test".into(), addresses: vec![server()] };
    Plan { connections: 1, stop: Stop::default(), seed: 7, ..Plan::get(target, "/") }
}

fn request(method: &str) -> Request {
    Request { name: method.to_owned(), method: method.to_owned(), ..Request::get("/") }
}

fn requests(n: u64) -> Stop {
    Stop { requests: Some(n), duration: None }
}

fn seconds(n: u64) -> Stop {
    Stop { requests: None, duration: Some(Duration::from_secs(n)) }
}

/// A wire with a millisecond of latency each way.
fn wire() -> MemOptions {
    MemOptions { latency: MS, ..MemOptions::default() }
}

fn part() -> CorePart {
    CorePart { core: 0, cores: 1, start: Time::ZERO, route: None, names: None, joining: None, gap: None }
}

fn board() -> Arc<Board> {
    Arc::new(Board::default())
}

/// Each request that was due is in the ranking, once; those without a good response are behind all others.
fn assert_all_rank(outcome: &Outcome, throughput: bool) {
    let (r, latency) = (outcome.requests, &outcome.latency);
    if throughput {
        return assert!(latency.main().is_empty());
    }
    let good = r.answered - outcome.bad.total();
    assert_eq!(latency.main().good.count(), good, "{r:?}");
    assert_eq!(latency.main().count(), r.due(), "{r:?}");
    assert_eq!((latency.sent().good.count(), latency.sent().count()), (good, r.sent), "{r:?}");
    for (of, named) in outcome.by_name.values().map(|named| (named.requests, named)) {
        assert_eq!(named.ranked().good.count(), of.answered - named.bad.total(), "{of:?}");
        assert_eq!(named.ranked().count(), of.due(), "{of:?}");
    }
}

fn run_on(options: MemOptions, plan: &Plan, script: Script) -> (Outcome, Seen) {
    let seen = script.seen.clone();
    let mut mem = Mem::new(options).unwrap();
    mem.serve(server(), script).unwrap();
    let outcome = part().run(plan, mem, board()).unwrap();
    let r = outcome.requests;
    assert_eq!(r.sent, r.answered + r.failed + r.unknown, "{r:?}");
    assert_eq!(r.failed, outcome.failures.total());
    assert_all_rank(&outcome, plan.throughput);
    let c = seen.get().requests;
    if plan.warm_up.is_zero() {
        assert!(r.answered <= c && c <= r.sent + r.resent, "server counted {c}, we {r:?}");
    }
    (outcome, seen)
}

fn run(plan: &Plan, script: Script) -> (Outcome, Seen) {
    run_on(wire(), plan, script)
}

#[test]
fn each_request_is_answered_once() {
    let plan = Plan { connections: 4, depth: 10, stop: requests(1000), ..plan() };
    let (outcome, seen) = run(&plan, Script::new());
    assert_eq!(outcome.requests.answered, 1000);
    assert_eq!(seen.get().requests, 1000);
    assert_eq!(outcome.status.get(&200), Some(&1000));
    assert_eq!(outcome.connections.opened, 4);
    // A round trip is two milliseconds; 1000 requests, 40 in flight: 25 of them.
    assert_eq!(outcome.latency.from_sent.count(), 1000);
    assert_eq!(outcome.latency.from_sent.percentile_ns(50.0) / 1_000_000, 2);
}

#[test]
fn any_cut_of_the_bytes_gives_the_same_counts() {
    let base = Plan { connections: 3, depth: 7, stop: requests(200), ..plan() };
    for seed in 0..100 {
        let options = MemOptions { seed, cut: Cut::Random(1 + seed as usize % 40), window: 300, ..wire() };
        let (outcome, seen) = run_on(options, &base, Script::new());
        assert_eq!((outcome.requests.answered, seen.get().requests), (200, 200), "seed {seed}");
    }
}

#[test]
fn a_server_that_closes_after_a_hundred_loses_nothing_and_is_learnt() {
    for (connections, depth, says_close) in
        [(100, 100, true), (10, 1000, true), (10, 1000, false), (3, 1, true)]
    {
        let plan = Plan { connections, depth, stop: requests(10_000), ..plan() };
        let script = Script { close_after: Some(100), says_close, ..Script::new() };
        let (outcome, seen) = run(&plan, script);
        assert_eq!(outcome.requests.answered, 10_000, "{connections} x {depth}");
        assert_eq!(seen.get().answered, 10_000);
        let learnt = outcome.connections.learnt_limit;
        assert!(learnt == Some(100) || depth * connections == 10_000 && learnt.is_none(), "{learnt:?}");
        // Only the first connections, and the odd probe, send more than the server takes.
        let first = u64::from(connections) * u64::from(depth.saturating_sub(100).max(depth.min(100)));
        assert!(outcome.requests.resent <= first + 2 * u64::from(depth), "{:?}", outcome.requests);
    }
}

#[test]
fn what_cannot_be_known_is_unknown() {
    let mut plan = Plan { connections: 1, depth: 10, stop: requests(10), ..plan() };
    plan.requests = vec![request("POST")];
    let (outcome, seen) = run(&plan, Script { close_after: Some(4), ..Script::new() });
    assert_eq!(outcome.requests.answered, 4);
    assert_eq!(outcome.requests.unknown, 6);
    assert_eq!(outcome.requests.resent, 0);
    assert_eq!(seen.get().requests, 4);
}

#[test]
fn a_server_that_closes_at_once_ends_in_failures() {
    let plan = Plan { connections: 2, depth: 5, stop: requests(20), ..plan() };
    let (outcome, _) = run(&plan, Script { close_after: Some(0), ..Script::new() });
    assert_eq!(outcome.failures.count(Failure::ClosedEarly) + outcome.failures.count(Failure::Reset), 20);
}

#[test]
fn many_connections_closed_at_once_are_one_reason_to_pause() {
    let plan = Plan { connections: 64, stop: requests(200), timeout: Duration::from_millis(500), ..plan() };
    let (outcome, _) = run(&plan, Script { close_after: Some(0), ..Script::new() });
    assert_eq!(outcome.failures.count(Failure::Timeout), 0, "{:?}", outcome.failures);
    // The last few wait for their turn when time is up.
    assert_eq!(outcome.requests.failed + outcome.requests.unknown, 200);
    assert!(outcome.requests.failed > 150, "{:?}", outcome.requests);
}

#[test]
fn a_server_that_speaks_ssh_is_malformed() {
    let plan = Plan { connections: 2, depth: 5, stop: requests(20), ..plan() };
    let (outcome, _) = run(&plan, Script { banner: b"SSH-2.0-OpenSSH_9.2p1\r\n".to_vec(), ..Script::new() });
    assert_eq!(outcome.failures.count(Failure::Malformed), 20, "{:?}", outcome.failures);
    assert!(outcome.failures.details["malformed"].contains("SSH"), "{:?}", outcome.failures.details);
}

#[test]
fn an_endless_header_ends() {
    let plan = Plan { stop: requests(3), ..plan() };
    let script = Script {
        banner: b"HTTP/1.1 200 OK\r\n".to_vec(),
        endless: b"X-Y: z\r\n".repeat(500),
        ..Script::new()
    };
    let (outcome, _) = run(&plan, script);
    assert_eq!(outcome.failures.count(Failure::Malformed), 3, "{:?}", outcome.failures);
}

#[test]
fn a_server_that_never_answers_times_out() {
    let plan = Plan { connections: 2, depth: 3, timeout: 100 * MS, stop: requests(12), ..plan() };
    let (outcome, _) = run(&plan, Script { silent: true, ..Script::new() });
    // The last requests still wait after the end: whether responses would have come is unknown.
    assert_eq!(outcome.requests.failed + outcome.requests.unknown, 12);
    assert!(outcome.failures.count(Failure::Timeout) >= 6, "{:?}", outcome.requests);
}

#[test]
fn what_is_in_flight_at_the_end_is_waited_for() {
    let plan = Plan { connections: 5, stop: seconds(1), ..plan() };
    let (outcome, seen) = run(&plan, Script { think: Duration::from_millis(300), ..Script::new() });
    assert_eq!(outcome.requests.unknown, 0);
    assert_eq!(outcome.requests.answered, seen.get().requests);
    let silent = Script { silent: true, ..Script::new() };
    let (outcome, _) = run(&plan, silent);
    assert_eq!((outcome.requests.sent, outcome.requests.unknown), (5, 5));
}

#[test]
fn one_three_and_ten_requests_on_a_connection() {
    for per in [1, 3, 10] {
        let plan =
            Plan { connections: 4, depth: 2, per_connection: Some(per), stop: requests(600), ..plan() };
        let (outcome, seen) = run(&plan, Script::new());
        assert_eq!(outcome.requests.answered, 600);
        let least = 600 / u64::from(per);
        assert!((least..least + 4).contains(&seen.get().connections), "{per}: {:?}", seen.get().connections);
        assert!(seen.get().said_close >= least - 4);
        assert_eq!(outcome.requests.resent, 0, "{per}");
    }
}

#[test]
fn nobody_there_is_said() {
    let plan = Plan { connections: 20, stop: seconds(10), ..plan() };
    let (outcome, _) = run(&plan, Script { accept: Accept::Refuse, ..Script::new() });
    assert_eq!(outcome.unreachable.as_deref(), Some("connection refused"));
    assert_eq!(outcome.failures.count(Failure::Connect), outcome.requests.sent);
    let ignored = Plan { timeout: 100 * MS, ..plan };
    let (outcome, _) = run(&ignored, Script { accept: Accept::Ignore, ..Script::new() });
    assert_eq!(outcome.unreachable.as_deref(), Some("connection timed out"));
}

/// A core that gave up while the others did not would take its share of the requests with it.
#[test]
fn no_core_gives_up_alone() {
    let dead = Some((Time::ZERO, Time::ZERO + 500 * MS));
    let plan = Plan { connections: 4, stop: seconds(2), ..plan() };
    for others in [0, 1] {
        let common = Arc::new(Common::default());
        let boards: Vec<_> = (0..=others).map(|_| Arc::new(Board::sharing(&common))).collect();
        let mut mem = Mem::new(wire()).unwrap();
        mem.serve(server(), Script { dead, ..Script::new() }).unwrap();
        let outcome = part().run(&plan, mem, Arc::clone(&boards[0])).unwrap();
        let is_alone = others == 0;
        assert_eq!(outcome.unreachable.is_some(), is_alone, "{:?}", outcome.requests);
        assert_eq!(outcome.requests.answered == 0, is_alone, "{:?}", outcome.requests);
    }
}

#[test]
fn downtime_is_measured_and_fails_what_was_due() {
    let dead = Some((Time::ZERO + 1000 * MS, Time::ZERO + 2500 * MS));
    let script = || Script { dead, ..Script::new() };
    let open = Pace::Open { rate: Rate::constant(1000.0), arrival: Default::default() };
    let plan = Plan { connections: 20, stop: seconds(4), ..plan() };
    for (pace, per_connection) in [(open, None), (Pace::Closed, None), (Pace::Closed, Some(1))] {
        let is_open = pace != Pace::Closed;
        let plan = Plan { pace, per_connection, ..plan.clone() };
        let (outcome, _) = run(&plan, script());
        let down = outcome.down.as_ref().unwrap();
        let total = down.spans.total().as_millis();
        // A round trip for the SYN that finds the server again, and at most 10 ms until it leaves.
        assert!((1500..=1515).contains(&total), "{total} ms down");
        assert!(!down.at_end && outcome.was_down());
        let failed = outcome.failures.count(Failure::Connect);
        if is_open {
            assert!((1495..=1530).contains(&failed), "{failed} of 1500");
            assert_eq!(outcome.requests.unsent, 0);
        } else {
            // 20 connections, each tried about every 10 ms.
            assert!((2000..3100).contains(&failed), "{failed}");
        }
        assert!(outcome.connections.refused > 0);
        assert_eq!(outcome.connections.learnt_limit, None, "its end is no limit");
    }
}

#[test]
fn attempts_that_fail_count_against_the_number_of_requests() {
    let dead = Some((Time::ZERO + 10 * MS, Time::ZERO + 3_600_000 * MS));
    let plan = Plan { connections: 4, stop: requests(200), ..plan() };
    let (outcome, _) = run(&plan, Script { dead, ..Script::new() });
    assert_eq!(outcome.requests.sent, 200);
    assert_eq!(outcome.requests.answered + outcome.failures.count(Failure::Connect), 200);
    assert!(outcome.down.unwrap().at_end);
}

#[test]
fn attempts_that_hang_fail_when_time_is_up() {
    let plan = Plan { connections: 3, stop: seconds(3), ..plan() };
    let (outcome, _) = run(&plan, Script { accept: Accept::Ignore, ..Script::new() });
    assert_eq!((outcome.requests.sent, outcome.failures.count(Failure::Connect)), (3, 3));
    assert_eq!(outcome.connections.hanging, 3);
    assert_eq!(outcome.duration.as_secs(), 3);
    assert!(outcome.down.unwrap().at_end);
}

#[test]
fn a_late_response_is_a_timeout_unless_the_time_given_is_over() {
    let plan = Plan { connections: 2, timeout: 100 * MS, stop: requests(4), ..plan() };
    let (outcome, _) = run(&plan, Script { silent: true, ..Script::new() });
    assert_eq!(outcome.failures.count(Failure::Timeout), 4, "{:?}", outcome.requests);
}

#[test]
fn used_up_ports_are_a_failure_of_their_own() {
    let plan = Plan {
        connections: 50,
        stop: Stop { duration: Some(Duration::from_millis(100)), requests: None },
        ..plan()
    };
    let (outcome, _) = run_on(MemOptions { ports: Some(30), ..wire() }, &plan, Script::new());
    assert!(outcome.failures.count(Failure::PortsExhausted) > 0);
    assert_eq!(outcome.connections.opened, 30);
    assert!(outcome.requests.answered > 1000);
}

/// Each connection that is missing costs one request and a pause, not as many as fit into a turn.
#[test]
fn connections_that_fail_at_once_cost_a_request_each() {
    let plan = Plan { stop: seconds(1), connections: 5, ..plan() };
    let (outcome, _) = run_on(MemOptions { ports: Some(0), ..wire() }, &plan, Script::new());
    let failed = outcome.requests.failed;
    assert!(
        (1..=5 * 128).contains(&failed),
        "{failed} in a second, at most one for each connection in 10 ms"
    );
}

#[test]
fn no_buffer_space_is_a_failure_that_passes() {
    let plan = Plan { connections: 4, stop: requests(500), ..plan() };
    let (outcome, _) = run_on(MemOptions { fail_send_every: Some(50), ..wire() }, &plan, Script::new());
    assert_eq!(outcome.requests.answered + outcome.requests.failed, 500, "{:?}", outcome.requests);
    assert!(outcome.requests.answered > 480);
}

#[test]
fn a_reset_within_a_response_fails_that_request_alone() {
    let plan = Plan { connections: 4, depth: 5, stop: requests(500), ..plan() };
    let (outcome, _) = run_on(MemOptions { reset_after_bytes: Some(1000), ..wire() }, &plan, Script::new());
    let failed = outcome.failures.count(Failure::Truncated);
    assert_eq!(
        (outcome.requests.answered + failed, outcome.requests.unknown),
        (500, 0),
        "{:?}",
        outcome.failures
    );
    assert!(failed <= outcome.connections.opened && outcome.requests.resent > 0);
}

/// RFC 9112 section 8.
#[test]
fn a_response_that_breaks_off_has_failed_and_is_not_asked_for_again() {
    for (method, depth) in [("GET", 1), ("GET", 10), ("POST", 1), ("POST", 10)] {
        let mut plan = Plan { connections: 3, depth, stop: requests(600), ..plan() };
        plan.requests = vec![request(method)];
        let (outcome, seen) = run(&plan, Script { truncate_every: Some(3), ..Script::new() });
        let truncated = seen.get().truncated;
        assert_eq!(outcome.failures.count(Failure::Truncated), truncated, "{method} {depth}");
        assert_eq!(outcome.requests.failed, truncated, "{method} {depth} {:?}", outcome.failures);
        match (method, depth) {
            ("GET", _) => assert_eq!(outcome.requests.answered, 600 - truncated),
            (_, 1) => assert_eq!(outcome.requests.unknown, 0),
            _ => assert!(outcome.requests.unknown > 0),
        }
        assert_eq!(outcome.requests.resent == 0, depth == 1 || method == "POST");
        assert_eq!(outcome.connections.learnt_limit, None, "what breaks off is no limit");
    }
}

/// RFC 9112 section 9.6.
#[test]
fn behind_an_announced_close_any_method_goes_out_again() {
    let mut plan = Plan { connections: 2, depth: 100, stop: requests(1000), ..plan() };
    plan.requests = vec![request("POST")];
    let script = || Script { close_after: Some(10), says_close: true, ..Script::new() };
    let (outcome, _) = run(&plan, script());
    assert_eq!((outcome.requests.answered, outcome.requests.unknown), (1000, 0));
    let never = Plan { resend: Resend::Never, ..plan };
    let (outcome, seen) = run(&never, script());
    assert_eq!((outcome.requests.resent, outcome.requests.unknown), (0, 0));
    assert_eq!(outcome.requests.answered, seen.get().answered);
    assert_eq!(outcome.failures.count(Failure::ClosedEarly), outcome.requests.failed);
}

/// RFC 9112 section 9.3.2.
#[test]
fn behind_an_unannounced_close_nothing_is_pipelined_before_the_first_response() {
    let plan = Plan { connections: 1, depth: 10, stop: requests(60), ..plan() };
    let (outcome, seen) = run(&plan, Script { close_after: Some(4), ..Script::new() });
    assert_eq!(outcome.requests.answered, 60, "{:?}", outcome.failures);
    let bursts = seen.get().bursts;
    assert_eq!(bursts[0], 10);
    // Three connections are closed before the limit is learnt; behind it nothing is lost any more.
    assert_eq!(bursts[1..4], [1, 1, 1], "{bursts:?}");
}

#[test]
fn resending_is_as_the_user_says() {
    let at_once = || Script { close_after: Some(0), ..Script::new() };
    for (resend, each) in [(Resend::Idle, 0), (Resend::Never, 0), (Resend::Idempotent, 3)] {
        let plan = Plan { connections: 2, depth: 1, stop: requests(12), resend, ..plan() };
        let (outcome, _) = run(&plan, at_once());
        let (r, f) = (outcome.requests, &outcome.failures);
        assert_eq!((r.failed, r.resent), (12, 12 * each), "{resend:?} {f:?}");
        assert_eq!(f.count(Failure::Timeout), 0);
    }
}

#[test]
fn what_nobody_asked_for_is_counted() {
    let plan = Plan { connections: 2, stop: requests(50), ..plan() };
    let (outcome, _) = run(&plan, Script { twice: true, ..Script::new() });
    let r = outcome.requests;
    assert_eq!((r.answered, r.failed, r.unsolicited_responses), (50, 0, 50), "{:?}", outcome.failures);
    assert_eq!(outcome.errors(), 50);
    let sample = outcome.samples.iter().find(|s| s.why == "unsolicited").unwrap();
    assert!(sample.head.starts_with("HTTP/1.1 200 OK"), "{sample:?}");
    // In a pipeline the surplus alone is visible: ten too many for ten requests.
    let plan = Plan { connections: 1, depth: 10, stop: requests(10), ..plan };
    let (outcome, _) = run(&plan, Script { twice: true, ..Script::new() });
    assert_eq!((outcome.requests.answered, outcome.requests.unsolicited_responses), (10, 10));
}

/// RFC 9110 section 15.5.9.
#[test]
fn a_farewell_on_an_idle_connection_is_forgiven() {
    let open = Pace::Open { rate: Rate::constant(1.0), arrival: Default::default() };
    let plan = Plan { connections: 2, stop: seconds(20), pace: open, ..plan() };
    let idle = Some(Duration::from_millis(1500));
    let (outcome, _) = run(&plan, Script { idle, farewell: true, ..Script::new() });
    assert_eq!((outcome.requests.answered, outcome.requests.unsolicited_responses), (20, 0));
    assert!(outcome.connections.closed_by_peer > 0);
}

#[test]
fn responses_out_of_order_are_matched_and_counted() {
    let plan = Plan { depth: 4, tag: Some("X-Tag".to_owned()), stop: requests(40), ..plan() };
    let script = Script { echo: Some("X-Tag".to_owned()), swap: true, ..Script::new() };
    let (outcome, _) = run(&plan, script);
    let r = outcome.requests;
    assert_eq!((r.answered, outcome.bad.total(), r.out_of_order_responses), (40, 0, 20));
}

#[test]
fn one_early_close_changes_nothing() {
    let plan = Plan { connections: 3, stop: requests(300), ..plan() };
    let (outcome, seen) = run(&plan, Script { close_first: true, says_close: true, ..Script::new() });
    assert_eq!((outcome.requests.answered, outcome.connections.learnt_limit), (300, None));
    assert!(seen.get().connections <= 4, "{}", seen.get().connections);
}

/// RFC 9110 section 15.2.2.
#[test]
fn another_protocol_that_nobody_asked_for_is_bad() {
    let mut plan = Plan { stop: requests(5), ..plan() };
    let script = || Script { status: "101 Switching Protocols", ..Script::new() };
    let (outcome, _) = run(&plan, script());
    assert_eq!((outcome.requests.answered, outcome.bad.status), (5, 5));
    plan.requests[0].fields.push(("Connection".to_owned(), "Upgrade".to_owned()));
    plan.requests[0].fields.push(("Upgrade".to_owned(), "x".to_owned()));
    assert_eq!(run(&plan, script()).0.bad.status, 0);
}

#[test]
fn an_open_loop_keeps_its_rate() {
    let open = Pace::Open { rate: Rate::constant(1000.0), arrival: Default::default() };
    let plan = Plan { connections: 20, stop: seconds(5), pace: open, ..plan() };
    let (outcome, _) = run(&plan, Script::new());
    assert_eq!(outcome.requests.answered, 5000);
    assert_eq!(outcome.requests.unsent, 0);
    assert_eq!(outcome.client.lateness.count(), 5000);
    assert!(outcome.client.lateness.percentile_ns(99.0) < 3_000_000);
    let due = outcome.latency.from_due.unwrap();
    assert_eq!(due.percentile_ns(50.0) / 1_000_000, 2);
}

#[test]
fn a_stall_is_not_hidden_from_those_who_were_due() {
    // 1000 requests/s on one connection for 10 s; the server stalls for 1 s: a tenth of the requests wait, the first for a
    // second, the last not at all.
    let open = Pace::Open { rate: Rate::constant(1000.0), arrival: Default::default() };
    let plan = Plan { connections: 1, depth: 10, stop: seconds(10), pace: open, ..plan() };
    let stall = Some((Time::ZERO + Duration::from_secs(4), Time::ZERO + Duration::from_secs(5)));
    let (outcome, _) = run(&plan, Script { stall, ..Script::new() });
    let due = outcome.latency.from_due.unwrap();
    assert_eq!(due.count(), 10_000);
    // Of ten in flight one goes with each round trip of 2 ms: 5000/s, so that the backlog of about 1000 melts at 4000/s.
    let p95 = due.percentile_ns(95.0) as f64 / 1e6;
    assert!((580.0..640.0).contains(&p95), "p95 {p95} ms");
    let p99 = due.percentile_ns(99.0) as f64 / 1e6;
    assert!((900.0..930.0).contains(&p99), "p99 {p99} ms");
    // Seen from when they were sent only ten were slow: the omission that an open loop avoids.
    assert!(outcome.latency.from_sent.percentile_ns(99.0) < 10_000_000);
    // The wait was the server's doing, not ours.
    assert!(outcome.client.lateness.percentile_ns(99.9) < 3_000_000);
}

#[test]
fn what_was_due_and_never_left_is_unsent() {
    let open = Pace::Open { rate: Rate::constant(1000.0), arrival: Default::default() };
    let plan = Plan { connections: 1, stop: seconds(1), pace: open, ..plan() };
    let (outcome, _) = run(&plan, Script { think: Duration::from_millis(98), ..Script::new() });
    // One at a time, 100 ms each.
    assert_eq!(outcome.requests.sent, 10);
    assert_eq!(outcome.requests.unsent, 990);
    // The first of them was due after a millisecond or ten, and waited for until the end.
    let (p50, waited) = (outcome.percentile(50.0), &outcome.latency.waited);
    assert!(p50.at_least && (980..=1000).contains(&(p50.ns / 1_000_000)), "{p50:?}");
    assert!((400..=600).contains(&(waited.percentile_ns(50.0) / 1_000_000)));
    let mut several = plan;
    several.requests = vec![request("GET"), request("PUT")];
    let (outcome, _) = run(&several, Script { think: Duration::from_millis(98), ..Script::new() });
    assert_eq!(outcome.by_name.values().map(|named| named.requests.unsent).sum::<u64>(), 990);
}

/// A balancer without a server: connections are accepted and closed at once.
#[test]
fn a_target_that_accepts_and_closes_is_out_of_reach() {
    let open = Pace::Open { rate: Rate::constant(500.0), arrival: Default::default() };
    for pace in [Pace::Closed, open] {
        let plan = Plan { connections: 4, stop: seconds(5), pace, ..plan() };
        let at = |ms| Time::ZERO + ms * MS;
        let script = |dead| Script { dead, accepts_dead: true, ..Script::new() };
        let (outcome, _) = run(&plan, script(Some((at(1000), at(4500)))));
        let outage = outcome.outage().expect("3.5 seconds");
        assert!((3400..=3600).contains(&outage.lasted.as_millis()), "{outage:?}");
        assert!((980..=1010).contains(&outage.from.as_millis()), "{outage:?}");
        assert!(outcome.was_down() && !outcome.down.as_ref().unwrap().had_a_bad_second());
        assert!(outcome.silence().unwrap().lasted >= outage.lasted);
        // It is there again within some tens of milliseconds.
        assert!(outage.lasted.as_millis() <= 3530, "{outage:?}");
        let (short, _) = run(&plan, script(Some((at(1000), at(1800)))));
        assert_eq!((short.outage(), short.was_down()), (None, false));
        // A target that has never answered is tried again and again.
        let never = Plan { stop: requests(200), ..plan };
        let (outcome, _) = run(&never, Script { close_after: Some(0), ..Script::new() });
        assert_eq!(outcome.requests.failed, 200);
        assert!(outcome.quiet.as_ref().unwrap().until_ns < 3_000_000_000, "{:?}", outcome.quiet);
    }
}

/// A tenth of the requests gets no response in time, or a quick 503: no percentile is better for it.
#[test]
fn requests_without_a_good_response_lie_beyond_every_limit() {
    let base =
        Plan { connections: 10, depth: 1, stop: requests(1000), timeout: Duration::from_secs(1), ..plan() };
    let silent = Script { swallow_every: Some(10), ..Script::new() };
    let (outcome, _) = run(&base, silent);
    assert_eq!((outcome.failures.count(Failure::Timeout), outcome.requests.answered), (100, 900));
    let (p50, p99) = (outcome.percentile(50.0), outcome.percentile(99.0));
    assert!(!p50.at_least && p50.ns < 5_000_000, "{p50:?}");
    assert!(p99.at_least && (1000..1200).contains(&(p99.ns / 1_000_000)), "{p99:?}");
    let check = |expr: &str, outcome: &Outcome| Check::parse(expr).unwrap().evaluate(outcome).pass;
    assert!(!check("p99<100ms", &outcome) && !check("max<100s", &outcome) && check("p50<100ms", &outcome));
    let quick = Script { fail_every: Some(10), ..Script::new() };
    let (outcome, _) = run(&base, quick);
    assert_eq!((outcome.bad.status, outcome.requests.answered), (100, 1000));
    assert!(!check("p99<100ms", &outcome) && check("p50<100ms", &outcome) && check("p89<100ms", &outcome));
}

#[test]
fn the_warm_up_is_in_no_figure() {
    let plan = Plan { stop: seconds(1), warm_up: Duration::from_secs(1), ..plan() };
    let (outcome, seen) = run(&plan, Script::new());
    assert_eq!(outcome.requests.answered, 500);
    // A round trip went into the handshake.
    assert_eq!(seen.get().requests, 999);
    assert_eq!(outcome.duration.as_millis(), 1000);
    let (cold, _) = run(&Plan { warm_up: Duration::ZERO, ..plan }, Script::new());
    let one = cold.bytes.received / cold.requests.answered;
    // One response to a request of the warm-up came after it.
    assert_eq!(outcome.bytes.received / one, 501);
    assert_eq!(outcome.arrived, 501);
}

/// A hundred requests wait at any time: those of the warm-up take time of what is measured.
#[test]
fn the_warm_up_does_not_lower_the_rate() {
    let think = Script { think: Duration::from_millis(498), ..Script::new() };
    let plan = Plan { stop: seconds(2), connections: 100, warm_up: Duration::from_secs(1), ..plan() };
    let (outcome, _) = run(&plan, think);
    assert_eq!(outcome.requests.answered, 400);
    assert_eq!((outcome.window.answered, outcome.window.time.as_secs()), (400, 2));
    assert_eq!(outcome.arrived, 500);
}

#[test]
fn a_late_response_does_not_lower_the_rate() {
    // The answer to the last request comes half a second after the end.
    let end = Time::ZERO + Duration::from_secs(2);
    let stall = Some((Time::ZERO + Duration::from_millis(1990), end + 500 * MS));
    let (outcome, _) = run(&Plan { stop: seconds(2), ..plan() }, Script { stall, ..Script::new() });
    assert_eq!((outcome.duration.as_millis() / 10, outcome.window.time.as_millis()), (250, 2000));
    assert_eq!(outcome.requests.answered, outcome.window.answered + 1);
    assert!((490.0..500.0).contains(&outcome.rate_rps()), "{}", outcome.rate_rps());
    let open = Pace::Open { rate: Rate::constant(100.0), arrival: Default::default() };
    let plan = Plan { stop: seconds(2), pace: open, ..plan() };
    let (outcome, _) = run(&plan, Script { stall, ..Script::new() });
    assert_eq!((outcome.requests.answered, outcome.window.answered), (200, 199));
    assert_eq!(outcome.window.time.as_millis(), 2000);
}

#[test]
fn bad_answers_are_answered_all_the_same() {
    let mut plan = Plan { stop: requests(10), ..plan() };
    plan.requests[0].expect =
        Expectation { status: vec![204], body: Some("hello".to_owned()), ..Default::default() };
    let (outcome, _) = run(&plan, Script::new());
    assert_eq!((outcome.requests.answered, outcome.bad.status, outcome.bad.body), (10, 10, 0));
    plan.requests[0].expect =
        Expectation { status: Vec::new(), body: Some("help".to_owned()), ..Default::default() };
    let (outcome, _) = run(&plan, Script::new());
    assert_eq!((outcome.requests.answered, outcome.bad.status, outcome.bad.body), (10, 0, 10));
    let (outcome, _) = run(&plan, Script { status: "503 Sorry", body: "help".to_owned(), ..Script::new() });
    assert_eq!((outcome.requests.answered, outcome.bad.status, outcome.bad.body), (10, 10, 0));
    let bad = outcome.samples.iter().find(|s| s.why == "bad status").unwrap();
    assert_eq!(bad.status, Some(503));
    assert!(bad.head.starts_with("HTTP/1.1 503 Sorry\r\n"));
}

#[test]
fn a_text_is_found_across_pieces_of_a_body() {
    let mut plan = Plan { stop: requests(20), ..plan() };
    plan.requests[0].expect.body = Some("needle".to_owned());
    for cut in 1..12 {
        let options = MemOptions { cut: Cut::Every(cut), ..wire() };
        let (outcome, _) =
            run_on(options, &plan, Script { body: "hay hay neneedle hay".to_owned(), ..Script::new() });
        assert_eq!(outcome.bad.total(), 0, "cut {cut}");
    }
}

#[test]
fn a_request_expects_parts_and_a_schema_of_its_response() {
    let mut plan = Plan { depth: 4, stop: requests(40), order: Order::Listed(vec![0, 1]), ..plan() };
    let mut other = plan.requests[0].clone();
    other.name = "other".to_owned();
    let schema = SchemaText { file: None, text: r#"{"properties": {"n": {"type": "integer"}}}"#.to_owned() };
    let parts = vec![("json:$.n".to_owned(), None)];
    other.expect.response = Some(StepExpectation { parts, schema: Some(schema), max: None });
    plan.requests.push(other);
    // The other half of the requests expects nothing.
    for (body, bad) in [(r#"{"n": 7}"#, 0), (r#"{"n": "7"}"#, 20), ("{}", 20), ("no JSON", 20)] {
        for cut in [1, 5] {
            let options = MemOptions { cut: Cut::Every(cut), ..wire() };
            let (outcome, _) = run_on(options, &plan, Script { body: body.to_owned(), ..Script::new() });
            assert_eq!((outcome.requests.answered, outcome.bad.expect, outcome.bad.total()), (40, bad, bad));
            assert_eq!((outcome.requests.expecting, outcome.requests.met), (20, 20 - bad), "{body}");
        }
    }
}

#[test]
fn tags_are_checked() {
    let plan = Plan { depth: 4, tag: Some("X-Tag".to_owned()), stop: requests(50), ..plan() };
    let (outcome, _) = run(&plan, Script { echo: Some("X-Tag".to_owned()), ..Script::new() });
    assert_eq!((outcome.requests.answered, outcome.bad.total()), (50, 0));
    let (outcome, _) = run(&plan, Script::new());
    assert_eq!((outcome.requests.answered, outcome.bad.tag), (50, 50));
}

#[test]
fn a_resent_request_is_the_same_request() {
    let mut plan = Plan { depth: 20, stop: requests(40), ..plan() };
    plan.requests[0].path = "/{{seq}}/{{rand:1-1000000}}".to_owned();
    let (outcome, seen) = run(&plan, Script { close_after: Some(7), keep_heads: true, ..Script::new() });
    assert_eq!(outcome.requests.answered, 40);
    let mut paths: Vec<_> =
        seen.get().heads.iter().map(|h| h.split(' ').nth(1).unwrap().to_owned()).collect();
    paths.sort();
    paths.dedup();
    assert_eq!(paths.len(), 40, "each number came with one random value only");
}

#[test]
fn several_kinds_are_told_apart() {
    let mut plan = Plan { depth: 3, stop: requests(400), ..plan() };
    plan.requests = vec![Request { weight: 3.0, ..request("GET") }, request("DELETE")];
    let (outcome, _) = run(&plan, Script::new());
    let (get, delete) = (&outcome.by_name["GET"], &outcome.by_name["DELETE"]);
    assert_eq!(get.requests.answered + delete.requests.answered, 400);
    assert!((60..140).contains(&delete.requests.answered), "{:?}", delete.requests);
    assert_eq!(get.latency.count(), get.requests.answered);
    // Those of all cores add up.
    let mut whole = Outcome::default();
    (0..2).for_each(|_| whole.merge(&outcome));
    assert_eq!(whole.window.answered, 800);
    assert_eq!(whole.by_name.values().map(|name| name.in_window).sum::<u64>(), 800);
}

#[test]
fn heads_and_gets_take_turns_on_one_connection() {
    let mut plan = Plan { depth: 5, stop: requests(200), ..plan() };
    plan.requests = vec![request("GET"), request("HEAD")];
    plan.order = Order::Listed(vec![0, 0, 1]);
    let (outcome, _) = run(&plan, Script::new());
    assert_eq!(outcome.requests.answered, 200);
    assert_eq!(outcome.by_name["HEAD"].requests.answered, 66);
}

#[test]
fn an_idle_connection_that_is_closed_teaches_nothing() {
    let open = Pace::Open { rate: Rate::constant(1.0), arrival: Default::default() };
    let plan = Plan { connections: 2, stop: seconds(20), pace: open, ..plan() };
    let (outcome, _) = run(&plan, Script { idle: Some(Duration::from_millis(2500)), ..Script::new() });
    assert_eq!(outcome.requests.answered, 20);
    assert_eq!(outcome.connections.learnt_limit, None);
}

#[test]
fn short_connections_in_an_open_loop_open_when_due() {
    let open = Pace::Open { rate: Rate::constant(100.0), arrival: Default::default() };
    let plan = Plan { connections: 50, per_connection: Some(1), stop: seconds(2), pace: open, ..plan() };
    let (outcome, seen) = run(&plan, Script::new());
    assert_eq!(outcome.requests.answered, 200);
    assert_eq!(seen.get().connections, 200);
    // From due: a round trip for the handshake and one for the response.
    assert_eq!(outcome.latency.from_due.unwrap().percentile_ns(50.0) / 1_000_000, 4);
    assert_eq!(outcome.latency.from_sent.percentile_ns(50.0) / 1_000_000, 4);
    assert_eq!(outcome.latency.connect.percentile_ns(50.0) / 1_000_000, 2);
}

#[test]
fn the_low_water_mark_delays_but_never_stalls() {
    let base = Plan { connections: 2, depth: 50, throughput: true, stop: requests(5000), ..plan() };
    let (outcome, seen) = run(&base, Script::new());
    assert_eq!((outcome.requests.answered, seen.get().requests), (5000, 5000));
    assert_eq!(outcome.latency.from_sent.count(), 0);
    // One by one, slowly: fewer bytes than the mark wait at any time.
    let (outcome, _) = run(&Plan { stop: requests(500), ..base }, Script { think: 20 * MS, ..Script::new() });
    assert_eq!(outcome.requests.answered, 500);
}
