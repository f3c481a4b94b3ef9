//! What becomes of requests whose connection has ended: nothing disappears, and nothing is sent twice that may not be. Pure: the engine
//! and the baselines ask the same rules.
//!
//! RFC 9112: a response that breaks off is incomplete (section 8); behind a response that says `Connection: close` nothing is processed
//! (section 9.6); an idempotent request may go out again (section 9.3.1), and behind a connection that failed nothing is pipelined before
//! the first response (section 9.3.2).

use crate::limits::ATTEMPTS_IN_VAIN;
use crate::outcome::Failure;
use crate::plan::Resend;

/// How a connection ended, seen from its requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum End {
    /// The last response said that nothing behind it is processed.
    Announced,
    /// The peer closed or reset it, or the transport failed.
    Lost(Failure),
    /// We gave it up: another request on it had waited too long.
    Abandoned(Failure),
}

impl End {
    pub(crate) fn failure(self) -> Failure {
        match self {
            End::Announced => Failure::ClosedEarly,
            End::Lost(why) | End::Abandoned(why) => why,
        }
    }
}

/// A request on that connection.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Unanswered {
    pub(crate) idempotent: bool,
    /// It went out again so often without the server doing anything on the connection.
    pub(crate) in_vain: u8,
    /// The server had sent at least part of a response on this connection.
    pub(crate) server_spoke: bool,
}

/// What becomes of a request of whose response not one byte came. One whose response had begun has failed: it is not asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fate {
    Again,
    Failed(Failure),
    /// Nobody can know whether it was acted on.
    Unknown,
}

/// The rules.
pub(crate) fn fate(how: Resend, end: End, request: Unanswered) -> Fate {
    let may = request.idempotent && request.in_vain < ATTEMPTS_IN_VAIN;
    let again = match (how, end) {
        (Resend::Never, _) => false,
        // Not processed, whatever the method.
        (_, End::Announced) => true,
        // The server had its turn; the next connection may be a better one.
        (_, End::Abandoned(_)) | (Resend::Idempotent, _) => may,
        (Resend::Idle, End::Lost(_)) => may && request.server_spoke,
    };
    match end {
        _ if again => Fate::Again,
        End::Announced => Fate::Failed(end.failure()),
        // It might have been answered, had we waited.
        End::Abandoned(_) if how == Resend::Never => Fate::Unknown,
        _ if request.idempotent => Fate::Failed(end.failure()),
        _ => Fate::Unknown,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use Failure::{ClosedEarly, Malformed, Reset, Timeout};

    const GET: Unanswered = Unanswered { idempotent: true, in_vain: 0, server_spoke: true };
    const POST: Unanswered = Unanswered { idempotent: false, ..GET };
    const FIRST_GET: Unanswered = Unanswered { server_spoke: false, ..GET };

    #[test]
    fn rfc9112_9_6_behind_an_announced_close_nothing_was_processed() {
        for request in [GET, POST, Unanswered { in_vain: u8::MAX, ..POST }] {
            assert_eq!(fate(Resend::Idle, End::Announced, request), Fate::Again);
            assert_eq!(fate(Resend::Idempotent, End::Announced, request), Fate::Again);
            assert_eq!(fate(Resend::Never, End::Announced, request), Fate::Failed(ClosedEarly));
        }
    }

    #[test]
    fn rfc9112_9_3_1_an_idempotent_request_goes_out_again_where_the_server_had_answered() {
        for why in [ClosedEarly, Reset] {
            assert_eq!(fate(Resend::Idle, End::Lost(why), GET), Fate::Again);
            assert_eq!(fate(Resend::Idle, End::Lost(why), FIRST_GET), Fate::Failed(why));
            assert_eq!(fate(Resend::Idempotent, End::Lost(why), FIRST_GET), Fate::Again);
            assert_eq!(fate(Resend::Never, End::Lost(why), GET), Fate::Failed(why));
        }
    }

    #[test]
    fn rfc9112_9_3_1_of_what_is_not_idempotent_nobody_knows() {
        for how in [Resend::Idle, Resend::Never, Resend::Idempotent] {
            assert_eq!(fate(how, End::Lost(Reset), POST), Fate::Unknown);
            assert_eq!(fate(how, End::Abandoned(Timeout), POST), Fate::Unknown);
        }
    }

    #[test]
    fn attempts_in_vain_have_a_limit() {
        let vain = |request: Unanswered, in_vain| Unanswered { in_vain, ..request };
        for (how, request) in [(Resend::Idle, GET), (Resend::Idempotent, FIRST_GET)] {
            let end = End::Lost(ClosedEarly);
            assert_eq!(fate(how, end, vain(request, ATTEMPTS_IN_VAIN - 1)), Fate::Again);
            assert_eq!(fate(how, end, vain(request, ATTEMPTS_IN_VAIN)), Fate::Failed(ClosedEarly));
        }
    }

    #[test]
    fn what_we_cut_off_ourselves_is_no_failure_of_the_server() {
        assert_eq!(fate(Resend::Idle, End::Abandoned(Timeout), GET), Fate::Again);
        assert_eq!(fate(Resend::Never, End::Abandoned(Timeout), GET), Fate::Unknown);
        assert_eq!(fate(Resend::Idle, End::Abandoned(Timeout), FIRST_GET), Fate::Again);
        // A peer that does not speak HTTP will not answer the others either.
        assert_eq!(fate(Resend::Idle, End::Lost(Malformed), FIRST_GET), Fate::Failed(Malformed));
    }
}
