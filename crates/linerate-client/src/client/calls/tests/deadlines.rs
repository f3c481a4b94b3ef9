//! Calls with a time of their own.

use std::time::Duration;

use bytes::Bytes;
use http::{Method, Request};

use super::Program;
use super::rules::{Does, OK, SECOND, ok, one_pipe, program};
use crate::client::error::{Error, Phase};
use crate::client::options::{CallOptions, RequestOptions};
use crate::client::timings::{ResponseExt as _, Why};

/// A call whose whole response has to be there after this time.
fn within(program: &mut Program, number: u64, method: Method, time: Duration) {
    let request = Request::builder().method(method).uri(format!("/{number}"));
    let request = request.extension(RequestOptions::default().timeout(time)).body(Bytes::new());
    program.send(number, request.unwrap());
}

/// Of requests that follow each other on one connection the second may have less time than the first.
#[test]
fn a_call_ends_at_its_own_time_whatever_is_before_it() {
    let (mut program, log) = program(one_pipe(), |_, n, _| match n {
        0 => ok(),
        _ => Does::SaysAfter(SECOND, OK.to_owned()),
    });
    program.get(0);
    program.run(SECOND);
    let start = program.now();
    program.get(1);
    within(&mut program, 2, Method::GET, SECOND / 5);
    program.wait(SECOND / 4);
    assert!(matches!(program.error(2), Error::Timeout { phase: Phase::Response, .. }), "{:?}", program.ended);
    program.run(SECOND * 2);
    assert_eq!(program.status(1), 200);
    assert!(program.now() - start < SECOND + SECOND / 10, "the first is not disturbed");
    assert_eq!(log.lock().unwrap().len(), 3);
    // The response that nobody waits for is discarded, and the connection goes on.
    program.get(3);
    program.run(SECOND * 3);
    assert_eq!((program.status(3), program.calls.statistics().connected), (200, 1));
}

#[test]
fn one_that_waits_for_a_connection_ends_too() {
    let (mut program, log) = program(one_pipe(), |_, _, _| Does::SaysAfter(SECOND, OK.to_owned()));
    program.get(1);
    within(&mut program, 2, Method::GET, SECOND / 5);
    program.run(SECOND * 2);
    assert!(matches!(program.error(2), Error::Timeout { phase: Phase::Queue, .. }), "{}", program.error(2));
    assert_eq!((program.status(1), log.lock().unwrap().len()), (200, 1));
}

/// A call that has waited elsewhere has that much less of the client's time, or of its own.
#[test]
fn the_time_before_the_hand_over_counts() {
    let (mut program, _) = program(CallOptions { timings: true, ..one_pipe() }, |_, _, head| {
        if head.starts_with("GET /0 ") { ok() } else { Does::SaysAfter(SECOND * 20, OK.to_owned()) }
    });
    program.wait(SECOND * 10);
    let request = |number: u64, own: RequestOptions| {
        let own = RequestOptions { waited: SECOND * 5, ..own };
        Request::get(format!("/{number}")).extension(own).body(Bytes::new()).unwrap()
    };
    program.send(0, request(0, RequestOptions::default()));
    program.run(SECOND);
    let timings = *program.ended[&0].as_ref().unwrap().timings().unwrap();
    assert_eq!((timings.why(), timings.limited), (Why::Limit, SECOND * 5), "{timings:?}");
    for (number, own, left) in [
        (1, RequestOptions::default(), SECOND * 3),
        (2, RequestOptions::default().timeout(SECOND * 6), SECOND),
    ] {
        let start = program.now();
        program.send(number, request(number, own));
        program.run(SECOND * 9);
        assert!(matches!(program.error(number), Error::Timeout { .. }), "{}", program.error(number));
        let took = program.now() - start;
        assert!(took >= left && took < left + SECOND / 2, "{number}: {took:?}");
    }
}

/// Longer than all times of the client, among others with the client's.
#[test]
fn a_longer_time_holds_for_its_call_alone() {
    let (mut program, _) = program(one_pipe(), |_, n, _| match n {
        0 => ok(),
        _ => Does::SaysAfter(SECOND * 12, OK.to_owned()),
    });
    program.get(0);
    program.run(SECOND);
    let start = program.now();
    within(&mut program, 1, Method::GET, SECOND * 20);
    program.get(2);
    program.wait(SECOND * 9);
    assert!(matches!(program.error(2), Error::Timeout { .. }), "{}", program.error(2));
    program.run(SECOND * 20);
    assert_eq!(program.status(1), 200);
    assert!(program.now() - start < SECOND * 13);
}

#[test]
fn the_outcome_of_a_late_post_is_unknown_and_it_is_sent_once() {
    let (mut program, log) = program(one_pipe(), |_, n, _| match n {
        0 => ok(),
        _ => Does::SaysAfter(SECOND, OK.to_owned()),
    });
    program.get(0);
    program.run(SECOND);
    within(&mut program, 1, Method::POST, SECOND / 5);
    program.run(SECOND / 2);
    assert!(matches!(program.error(1), Error::OutcomeUnknown(_)), "{}", program.error(1));
    program.get(2);
    program.run(SECOND * 3);
    assert_eq!((program.status(2), log.lock().unwrap().len()), (200, 3));
}
