//! Where the time of calls goes.

use std::time::Duration;

use http::Version;

use super::rules::{Does, OK, SECOND, ok, one_pipe, program};
use super::{CallOptions, Program, address};
use crate::client::timings::{ResponseExt, Timings, Why};

const MS: Duration = Duration::from_millis(1);

fn told() -> CallOptions {
    CallOptions { timings: true, ..one_pipe() }
}

fn timings(program: &Program, number: u64) -> Timings {
    let timings = *program.ended[&number].as_ref().unwrap().timings().unwrap();
    let parts = timings.queue + timings.behind + timings.server + timings.receive;
    assert_eq!(parts, timings.total, "{timings:?}");
    assert_eq!(timings.address, Some(address()));
    timings
}

#[test]
fn each_part_of_a_call_is_told_from_the_others() {
    let (mut program, _) = program(told(), |_, n, head| match n {
        0 => ok(),
        _ if head.starts_with("GET /9 ") => Does::SaysInPieces(1, OK.to_owned()),
        _ => Does::SaysAfter(100 * MS, OK.to_owned()),
    });
    program.get(0);
    program.run(SECOND);
    let first = timings(&program, 0);
    assert!(!first.is_reused && first.connect.is_some() && first.tls.is_none(), "{first:?}");
    program.get_all(1..4);
    program.run(SECOND);
    assert_eq!(program.ended[&1].as_ref().unwrap().why(), Some(Why::Server));
    let last = timings(&program, 3);
    assert_eq!((last.why(), last.requests_before), (Why::Behind, 2), "{last}");
    assert!(last.behind >= 100 * MS && last.is_reused && last.connect.is_none(), "{last:?}");
    assert!(last.to_string().contains("waited behind 2 earlier requests"), "{last}");
    program.get(9);
    program.run(SECOND);
    assert_eq!(timings(&program, 9).why(), Why::Receiving, "{:?}", timings(&program, 9));
}

#[test]
fn waiting_for_a_place_and_being_sent_again_are_told() {
    let (mut program, _) = program(CallOptions { depth: 1, ..told() }, |_, n, head| match n {
        0 => Does::SaysAfter(100 * MS, OK.to_owned()),
        _ if head.starts_with("GET /2 ") => Does::SaysAfter(100 * MS, OK.to_owned()),
        1 if head.starts_with("GET /1 ") => Does::ClosesAfter(50 * MS, String::new()),
        _ => ok(),
    });
    program.get(0);
    program.get(1);
    program.run(SECOND);
    let again = timings(&program, 1);
    assert_eq!((again.attempts, again.connection, again.why()), (2, 1, Why::SentAgain), "{again}");
    program.get(2);
    program.get(3);
    program.run(SECOND);
    assert_eq!(timings(&program, 3).why(), Why::Place, "{}", timings(&program, 3));
}

#[test]
fn without_the_setting_nothing_is_told() {
    let (mut program, _) = program(one_pipe(), |_, _, _| ok());
    program.get(0);
    program.run(SECOND);
    assert!(program.ended[&0].as_ref().unwrap().timings().is_none());
}

/// Each kind has words of its own, with the times.
#[test]
fn what_took_longest_is_told_in_words() {
    let parts = |queue, behind, server, receive| Timings {
        queue: queue * MS,
        behind: behind * MS,
        server: server * MS,
        receive: receive * MS,
        total: (queue + behind + server + receive) * MS,
        attempts: 1,
        ..Timings::default()
    };
    let waited = parts(40, 1, 2, 3);
    for (timings, why, words) in [
        (waited, Why::Place, "40.0ms of 46.0ms: waited for a place on a connection"),
        (
            Timings { limited: 30 * MS, ..waited },
            Why::Limit,
            "40.0ms of 46.0ms: waited while all connections that Hosts may have were in use",
        ),
        (
            Timings { connect: Some(30 * MS), ..waited },
            Why::Connecting,
            "40.0ms of 46.0ms: waited for a new connection",
        ),
        (
            Timings { dns: Some(15 * MS), tls: Some(15 * MS), version: Version::HTTP_3, ..waited },
            Why::Connecting,
            "40.0ms of 46.0ms: waited for a new connection by QUIC",
        ),
        (
            Timings { attempts: 2, ..waited },
            Why::SentAgain,
            "40.0ms of 46.0ms: was sent 2 times, as connections were lost",
        ),
        (
            Timings { requests_before: 2, ..parts(1, 40, 2, 3) },
            Why::Behind,
            "40.0ms of 46.0ms: waited behind 2 earlier requests of its connection",
        ),
        (parts(1, 2, 40, 3), Why::Server, "40.0ms of 46.0ms: the server and the way there and back"),
        (
            Timings { retransmits: 1, ..parts(1, 2, 40, 3) },
            Why::Retransmitted,
            "43.0ms of 46.0ms: segments were lost (1 sent again)",
        ),
        (parts(1, 2, 3, 40), Why::Receiving, "40.0ms of 46.0ms: the response took long to arrive"),
    ] {
        assert_eq!((timings.why(), timings.to_string().as_str()), (why, words));
    }
}
