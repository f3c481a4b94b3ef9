//! Connections that the server closes when they are idle.

use std::time::Duration;

use super::rules::{Does, OK, SECOND, one_pipe, program};
use super::{Program, random_up_to};
use linerate_base::Random;

/// Requests that are not idempotent, with pauses of two seconds, give or take 0.1 s; returns those that failed.
fn posts(program: &mut Program, count: u64) -> u64 {
    let mut random = Random::new(1);
    for number in 0..count {
        program.post(number);
        program.run(SECOND * 5);
        let pause = Duration::from_millis(1_900 + random_up_to(&mut random, 200));
        program.wait(pause);
    }
    (0..count).filter(|number| program.ended[number].is_err()).count() as u64
}

#[test]
fn where_the_limit_is_announced_no_request_meets_a_close() {
    let says = OK.replace("\r\n\r\n", "\r\nKeep-Alive: max=9, timeout=2\r\n\r\n");
    let (mut program, log) = program(one_pipe(), move |_, _, _| Does::ClosesAfter(SECOND * 2, says.clone()));
    assert_eq!(posts(&mut program, 500), 0);
    assert_eq!(log.lock().unwrap().len(), 500);
}

#[test]
fn a_limit_that_is_not_announced_is_learnt() {
    let (mut program, log) = program(one_pipe(), |_, _, _| Does::ClosesAfter(SECOND * 2, OK.to_owned()));
    let failed = posts(&mut program, 500);
    // Before the first close there is no sign of it.
    assert!(failed <= 1, "{failed}");
    assert_eq!(log.lock().unwrap().len(), 500);
}
