//! Errors of system calls as failures of a call, in words.

use std::net::SocketAddr;

use crate::call::{CallStage, Failure, Why};
use crate::causes::NO_PORT;

/// An error in words for somebody who wants to reach a server.
pub(super) fn words_of(error: &std::io::Error, to: SocketAddr) -> String {
    match why_of(error) {
        Why::TimedOut => format!("{to} does not answer"),
        Why::Refused => format!("{to} refuses the connection: nobody listens there"),
        Why::NoPort => format!("{NO_PORT} for {to}"),
        Why::Reset => format!("{to} reset the connection"),
        _ => {
            let text = error.to_string();
            format!("{to}: {}", text.split(" (os error").next().unwrap_or(&text))
        }
    }
}

pub(super) fn why_of(error: &std::io::Error) -> Why {
    use std::io::ErrorKind as K;
    match error.kind() {
        K::TimedOut => Why::TimedOut,
        K::ConnectionRefused => Why::Refused,
        K::ConnectionReset | K::BrokenPipe | K::ConnectionAborted => Why::Reset,
        K::AddrNotAvailable => Why::NoPort,
        K::UnexpectedEof => Why::ClosedEarly,
        _ => Why::Other,
    }
}

pub(super) fn failure(stage: CallStage, error: &std::io::Error, to: SocketAddr) -> Failure {
    let words = match (stage, why_of(error)) {
        (CallStage::Connect, _) => words_of(error, to),
        (CallStage::Tls, Why::TimedOut) => {
            format!("{to} accepts the connection and does not answer the TLS handshake")
        }
        (CallStage::Wait, Why::TimedOut) => format!("{to} accepts the connection and sends no answer"),
        (CallStage::Receive, Why::TimedOut) => format!("{to} begins its answer and does not end it"),
        (CallStage::Send, Why::TimedOut) => format!("{to} does not take the request"),
        _ => words_of(error, to),
    };
    Failure { stage, why: why_of(error), words }
}
