//! What errors tell, and what happens to responses that nobody asked for.

use std::error::Error as _;

use linerate_net::mem::MemOptions;

use super::rules::{Does, OK, SECOND, ok, one_pipe, program};
use super::{Program, address};
use crate::client::error::{Error, ErrorKind};
use crate::{Failure, Resend};

/// Of a server whose last response of some comes twice: which belongs to which is in doubt, but not before.
#[test]
fn a_surplus_response_is_told_to_the_caller_of_its_connection() {
    let (mut program, _) = program(one_pipe(), |_, n, _| match n {
        3 => Does::Says(OK.repeat(2)),
        _ => ok(),
    });
    program.get(0);
    program.run(SECOND);
    assert_eq!(program.calls.statistics().doubtful, 0);
    program.get_all(1..4);
    program.run(SECOND);
    let error = program.error(3);
    assert_eq!((error.kind(), error.address()), (ErrorKind::Mismatch, Some(address())), "{error}");
    assert_eq!(program.calls.statistics().doubtful, 3, "{:?}", program.calls.statistics());
    // Alone on its connection a response belongs to its request.
    let (mut program, _) = self::program(one_pipe(), |_, _, _| Does::Says(OK.repeat(2)));
    program.get(1);
    program.run(SECOND);
    assert_eq!((program.status(1), program.calls.statistics().doubtful), (200, 0));
}

#[test]
fn a_request_that_failed_comes_back_with_the_address() {
    let options = super::CallOptions { resend: Resend::Never, ..one_pipe() };
    let (mut program, _) = program(options, |_, _, _| Does::SaysAndCloses("HTTP/1.1 200 OK\r\n".to_owned()));
    program.get(7);
    program.run(SECOND);
    let error = program.ended.remove(&7).unwrap().unwrap_err();
    assert!(matches!(error, Error::Failed { failure: Failure::Truncated, .. }), "{error:?}");
    assert_eq!((error.kind(), error.address()), (ErrorKind::Failed, Some(address())));
    assert_eq!(error.into_request().unwrap().uri().path(), "/7");
}

#[test]
fn a_time_out_names_the_address() {
    let (mut program, _) = program(one_pipe(), |_, _, _| Does::Nothing);
    program.get(1);
    program.run(SECOND * 9);
    assert_eq!(program.error(1).address(), Some(address()));
    assert!(program.error(1).source().is_none());
}

#[test]
fn a_server_that_refuses_is_named() {
    let mem = linerate_net::mem::Mem::new(MemOptions::default()).unwrap();
    let mut program = Program::<_, crate::H1<_>>::over(mem, one_pipe(), super::HeadCache::new());
    program.get(1);
    program.run(SECOND * 9);
    assert_eq!((program.error(1).kind(), program.error(1).address()), (ErrorKind::Connect, Some(address())));
}
