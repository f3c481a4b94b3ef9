//! Decides the fate of requests whose connection has ended: nothing disappears, and nothing is sent twice that may not
//! be. Pure: every client asks the same rules.
//!
//! RFC 9112: a response that breaks off is incomplete (section 8); behind a response that says `Connection: close` nothing is processed
//! (section 9.6); an idempotent request may go out again (section 9.3.1), and behind a connection that failed nothing is pipelined before
//! the first response (section 9.3.2).

use serde::{Deserialize, Serialize};

use crate::Failure;
use crate::limits::{ATTEMPTS_IN_VAIN, RESENT_IN_VAIN};

/// Which requests go out again when their connection ends without a byte of their response.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Resend {
    /// Idempotent ones where the server had answered on that connection before, and all that the server certainly did not process: those
    /// behind a response that announced the close, refused streams, and streams above the last one of a GOAWAY.
    #[default]
    Idle,
    /// None.
    Never,
    /// Every idempotent one, up to three times.
    Idempotent,
}

impl Resend {
    /// All of them.
    pub const ALL: [Resend; 3] = [Resend::Idle, Resend::Never, Resend::Idempotent];

    /// As on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Resend::Idle => "idle",
            Resend::Never => "never",
            Resend::Idempotent => "idempotent",
        }
    }
}

/// How a connection or a stream ended, seen from its requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RequestsEnd {
    /// The last response said that nothing behind it is processed.
    Announced,
    /// The peer said of this request that it does not process it (RFC 9113 sections 6.8 and 8.7).
    Refused,
    /// The peer closed or reset it, or the transport failed.
    Lost(Failure),
    /// A connection with streams broke by an error that concerns all of it.
    Broken {
        /// This request is known to be the cause.
        at_fault: bool,
        /// No other was in flight.
        alone: bool,
    },
    /// The connection continues: the peer reset the request's stream alone.
    StreamReset,
    /// We gave it up: another request on it had waited too long.
    Abandoned(Failure),
}

impl RequestsEnd {
    /// The failure of a request that fails by it.
    pub fn failure(self) -> Failure {
        match self {
            RequestsEnd::Announced => Failure::ClosedEarly,
            RequestsEnd::Refused => Failure::RefusedStream,
            RequestsEnd::Broken { at_fault: true, .. } => Failure::Malformed,
            RequestsEnd::Broken { at_fault: false, .. } => Failure::ClosedEarly,
            RequestsEnd::StreamReset => Failure::Reset,
            RequestsEnd::Lost(why) | RequestsEnd::Abandoned(why) => why,
        }
    }
}

/// A request on that connection.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Unanswered {
    /// It may be sent again when its outcome is not known (RFC 9110 section 9.2.2).
    pub(crate) idempotent: bool,
    /// It went out again so often without the server doing anything on the connection.
    pub(crate) in_vain: u8,
    /// Refusals in a row by the peer, with no other response in between.
    pub(crate) refused: u8,
    /// The server had sent at least part of a response on this connection.
    pub(crate) server_spoke: bool,
}

/// The fate of a request that got no byte of a response. A request whose response had begun has failed, and needs no
/// decision.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Decision {
    /// It goes out again.
    Again,
    /// It has failed.
    Failed(Failure),
    /// The server may or may not have acted on it.
    Unknown,
}

/// The rules.
pub(crate) fn decide(how: Resend, end: RequestsEnd, request: Unanswered) -> Decision {
    let may = request.idempotent && request.in_vain < ATTEMPTS_IN_VAIN;
    let again = match (how, end) {
        (Resend::Never, _) => false,
        // Nothing was processed, so that it is no second attempt.
        (_, RequestsEnd::Refused) => request.refused <= RESENT_IN_VAIN,
        // The server received it, and said no.
        (Resend::Idle, RequestsEnd::StreamReset) => false,
        // Not processed, whatever the method.
        (_, RequestsEnd::Announced) => true,
        // The others are not the cause, and the cause will show it alone.
        (Resend::Idle, RequestsEnd::Broken { alone, .. }) => may && !alone,
        // The server had its turn; the next connection may be a better one.
        (_, RequestsEnd::Abandoned(_)) | (Resend::Idempotent, _) => may,
        (Resend::Idle, RequestsEnd::Lost(_)) => may && request.server_spoke,
    };
    match end {
        _ if again => Decision::Again,
        RequestsEnd::Announced
        | RequestsEnd::Refused
        | RequestsEnd::StreamReset
        | RequestsEnd::Broken { at_fault: true, .. } => Decision::Failed(end.failure()),
        // With more patience there might have been a response.
        RequestsEnd::Abandoned(_) if how == Resend::Never => Decision::Unknown,
        _ if request.idempotent => Decision::Failed(end.failure()),
        _ => Decision::Unknown,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use Failure::{ClosedEarly, Malformed, RefusedStream, Reset, Timeout};

    const GET: Unanswered = Unanswered { idempotent: true, in_vain: 0, refused: 0, server_spoke: true };
    const POST: Unanswered = Unanswered { idempotent: false, ..GET };
    const FIRST_GET: Unanswered = Unanswered { server_spoke: false, ..GET };

    #[test]
    fn rfc9112_9_6_behind_an_announced_close_nothing_was_processed() {
        for request in [GET, POST, Unanswered { in_vain: u8::MAX, ..POST }] {
            assert_eq!(decide(Resend::Idle, RequestsEnd::Announced, request), Decision::Again);
            assert_eq!(decide(Resend::Idempotent, RequestsEnd::Announced, request), Decision::Again);
            assert_eq!(decide(Resend::Never, RequestsEnd::Announced, request), Decision::Failed(ClosedEarly));
        }
    }

    #[test]
    fn rfc9113_8_7_what_was_refused_goes_out_again_unless_nothing_may() {
        let refused = |refused| Unanswered { refused, ..POST };
        assert_eq!(decide(Resend::Never, RequestsEnd::Refused, refused(1)), Decision::Failed(RefusedStream));
        for how in [Resend::Idle, Resend::Idempotent] {
            for times in 1..=RESENT_IN_VAIN {
                assert_eq!(decide(how, RequestsEnd::Refused, refused(times)), Decision::Again);
            }
            let once_more = decide(how, RequestsEnd::Refused, refused(RESENT_IN_VAIN + 1));
            assert_eq!(once_more, Decision::Failed(RefusedStream));
        }
    }

    /// RFC 9113 section 8.7: any other code leaves open whether the server acted on the request.
    #[test]
    fn rfc9113_8_7_a_reset_stream_has_failed() {
        for (how, request) in [(Resend::Idle, GET), (Resend::Idle, POST), (Resend::Never, GET)] {
            assert_eq!(decide(how, RequestsEnd::StreamReset, request), Decision::Failed(Reset), "{how:?}");
        }
        assert_eq!(decide(Resend::Idempotent, RequestsEnd::StreamReset, GET), Decision::Again);
        assert_eq!(decide(Resend::Idempotent, RequestsEnd::StreamReset, POST), Decision::Failed(Reset));
        let often = Unanswered { in_vain: ATTEMPTS_IN_VAIN, ..GET };
        assert_eq!(decide(Resend::Idempotent, RequestsEnd::StreamReset, often), Decision::Failed(Reset));
    }

    #[test]
    fn rfc9112_9_3_1_an_idempotent_request_goes_out_again_where_the_server_had_answered() {
        for why in [ClosedEarly, Reset] {
            assert_eq!(decide(Resend::Idle, RequestsEnd::Lost(why), GET), Decision::Again);
            assert_eq!(decide(Resend::Idle, RequestsEnd::Lost(why), FIRST_GET), Decision::Failed(why));
            assert_eq!(decide(Resend::Idempotent, RequestsEnd::Lost(why), FIRST_GET), Decision::Again);
            assert_eq!(decide(Resend::Never, RequestsEnd::Lost(why), GET), Decision::Failed(why));
        }
    }

    #[test]
    fn rfc9112_9_3_1_of_what_is_not_idempotent_nobody_knows() {
        for how in [Resend::Idle, Resend::Never, Resend::Idempotent] {
            assert_eq!(decide(how, RequestsEnd::Lost(Reset), POST), Decision::Unknown);
            assert_eq!(decide(how, RequestsEnd::Abandoned(Timeout), POST), Decision::Unknown);
        }
    }

    /// Of the requests on a connection that an error broke, the cause shows itself by breaking another one alone.
    #[test]
    fn behind_a_connection_error_each_request_goes_out_alone() {
        let broken = |at_fault, alone| RequestsEnd::Broken { at_fault, alone };
        for request in [GET, FIRST_GET] {
            assert_eq!(decide(Resend::Idle, broken(false, false), request), Decision::Again);
            assert_eq!(decide(Resend::Idle, broken(true, false), request), Decision::Again);
            assert_eq!(decide(Resend::Idle, broken(true, true), request), Decision::Failed(Malformed));
            assert_eq!(decide(Resend::Idempotent, broken(true, true), request), Decision::Again);
        }
        assert_eq!(decide(Resend::Never, broken(false, false), GET), Decision::Failed(ClosedEarly));
        assert_eq!(decide(Resend::Idle, broken(false, false), POST), Decision::Unknown);
        assert_eq!(decide(Resend::Idle, broken(true, false), POST), Decision::Failed(Malformed));
    }

    #[test]
    fn attempts_in_vain_have_a_limit() {
        let vain = |request: Unanswered, in_vain| Unanswered { in_vain, ..request };
        for (how, request) in [(Resend::Idle, GET), (Resend::Idempotent, FIRST_GET)] {
            let end = RequestsEnd::Lost(ClosedEarly);
            assert_eq!(decide(how, end, vain(request, ATTEMPTS_IN_VAIN - 1)), Decision::Again);
            assert_eq!(decide(how, end, vain(request, ATTEMPTS_IN_VAIN)), Decision::Failed(ClosedEarly));
        }
    }

    #[test]
    fn what_we_cut_off_ourselves_is_no_failure_of_the_server() {
        assert_eq!(decide(Resend::Idle, RequestsEnd::Abandoned(Timeout), GET), Decision::Again);
        assert_eq!(decide(Resend::Never, RequestsEnd::Abandoned(Timeout), GET), Decision::Unknown);
        assert_eq!(decide(Resend::Idle, RequestsEnd::Abandoned(Timeout), FIRST_GET), Decision::Again);
        // A peer that does not speak HTTP will not respond to the others either.
        assert_eq!(
            decide(Resend::Idle, RequestsEnd::Lost(Malformed), FIRST_GET),
            Decision::Failed(Malformed)
        );
    }
}
