//! Differences between two states of one run. A count that is smaller than before, which a
//! snapshot can show for a moment, gives zero.

use super::{Bad, Bytes, Connections, Failure, Failures, NamedFigures, Requests, StepCourse};

impl Requests {
    /// The increase since an earlier state.
    #[must_use]
    pub fn since(&self, earlier: &Requests) -> Requests {
        let unsolicited = self.unsolicited_responses.saturating_sub(earlier.unsolicited_responses);
        let out_of_order = self.out_of_order_responses.saturating_sub(earlier.out_of_order_responses);
        Requests {
            sent: self.sent.saturating_sub(earlier.sent),
            answered: self.answered.saturating_sub(earlier.answered),
            failed: self.failed.saturating_sub(earlier.failed),
            unknown: self.unknown.saturating_sub(earlier.unknown),
            resent: self.resent.saturating_sub(earlier.resent),
            resent_refused: self.resent_refused.saturating_sub(earlier.resent_refused),
            resent_alone: self.resent_alone.saturating_sub(earlier.resent_alone),
            resent_reset: self.resent_reset.saturating_sub(earlier.resent_reset),
            unsent: self.unsent.saturating_sub(earlier.unsent),
            unsent_full: self.unsent_full.saturating_sub(earlier.unsent_full),
            unsent_unopened: self.unsent_unopened.saturating_sub(earlier.unsent_unopened),
            unsent_shut: self.unsent_shut.saturating_sub(earlier.unsent_shut),
            unsent_missed: self.unsent_missed.saturating_sub(earlier.unsent_missed),
            expecting: self.expecting.saturating_sub(earlier.expecting),
            met: self.met.saturating_sub(earlier.met),
            unsolicited_responses: unsolicited,
            out_of_order_responses: out_of_order,
        }
    }
}

impl Bad {
    /// The increase since an earlier state.
    #[must_use]
    pub fn since(&self, earlier: &Bad) -> Bad {
        Bad {
            status: self.status.saturating_sub(earlier.status),
            body: self.body.saturating_sub(earlier.body),
            encoding: self.encoding.saturating_sub(earlier.encoding),
            tag: self.tag.saturating_sub(earlier.tag),
            trailer: self.trailer.saturating_sub(earlier.trailer),
            take: self.take.saturating_sub(earlier.take),
            expect: self.expect.saturating_sub(earlier.expect),
        }
    }
}

impl NamedFigures {
    /// The increase since an earlier state, if there was one, without its course. Nobody waits for those in flight.
    #[must_use]
    pub fn since(&self, earlier: Option<&NamedFigures>) -> NamedFigures {
        let Some(earlier) = earlier else { return self.clone() };
        let mut added = NamedFigures {
            requests: self.requests.since(&earlier.requests),
            bad: self.bad.since(&earlier.bad),
            in_window: self.in_window.saturating_sub(earlier.in_window),
            course: StepCourse::default(),
            ..self.clone()
        };
        added.latency.subtract(&earlier.latency);
        added.waited.subtract(&earlier.waited);
        added
    }
}

impl Failures {
    /// The increase since an earlier state, without details.
    #[must_use]
    pub fn since(&self, earlier: &Failures) -> Failures {
        let mut added = Failures::default();
        for why in Failure::ALL {
            added.add(why, self.count(why).saturating_sub(earlier.count(why)));
        }
        added
    }
}

impl Bytes {
    /// The increase since an earlier state.
    #[must_use]
    pub fn since(&self, earlier: &Bytes) -> Bytes {
        Bytes {
            sent: self.sent.saturating_sub(earlier.sent),
            received: self.received.saturating_sub(earlier.received),
        }
    }
}

impl Connections {
    /// The increase since an earlier state; the learnt limit is the present one.
    #[must_use]
    pub fn since(&self, earlier: &Connections) -> Connections {
        Connections {
            opened: self.opened.saturating_sub(earlier.opened),
            failed: self.failed.saturating_sub(earlier.failed),
            refused: self.refused.saturating_sub(earlier.refused),
            hanging: self.hanging.saturating_sub(earlier.hanging),
            unaccepted: self.unaccepted.saturating_sub(earlier.unaccepted),
            closed_by_peer: self.closed_by_peer.saturating_sub(earlier.closed_by_peer),
            requests_resent: self.requests_resent.saturating_sub(earlier.requests_resent),
            learnt_limit: self.learnt_limit,
            learnt_on: self.learnt_on.saturating_sub(earlier.learnt_on),
        }
    }
}
