//! Where the time of calls goes.

use std::time::Duration;

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
