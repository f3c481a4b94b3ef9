//! What becomes of requests whose connection is lost: nothing disappears, nothing is silently sent twice.
//!
//! RFC 9112 section 9.3: unanswered idempotent requests may go out again on a new connection; of the others nobody can
//! know whether they were acted on.

use linerate_http::client::Run;
use linerate_net::{Close, Conn, NetError, NetErrorKind, Time, Transport};

use super::Engine;
use super::session::{Phase, Session};
use super::stamp::Stamp;
use crate::limits::FRUITLESS_ATTEMPTS;
use crate::outcome::Failure;

/// How a connection was lost.
#[derive(Clone, Debug)]
pub(crate) enum Loss {
    /// The peer closed between answers.
    Closed,
    /// The last answer said that the peer will close (RFC 9112 section 9.6).
    SaidClose,
    /// The peer closed in the middle of an answer: which part is missing.
    Cut(String),
    /// The transport failed.
    Net(NetError),
    /// The peer does not speak HTTP as it should.
    Malformed(String),
    /// The oldest request in flight has waited too long.
    TimedOut,
}

impl Loss {
    fn failure(&self) -> Failure {
        match self {
            Loss::Closed | Loss::SaidClose | Loss::Cut(_) => Failure::ClosedEarly,
            Loss::Net(error) if error.kind == NetErrorKind::Reset => Failure::Reset,
            Loss::Net(error) => connect_failure(error.kind),
            Loss::Malformed(_) => Failure::Malformed,
            Loss::TimedOut => Failure::Timeout,
        }
    }

    fn words(&self) -> String {
        match self {
            Loss::Closed | Loss::SaidClose => "the peer closed the connection without an answer".to_owned(),
            Loss::Cut(detail) | Loss::Malformed(detail) => detail.clone(),
            Loss::Net(error) => error.to_string(),
            Loss::TimedOut => "no whole answer within the time-out".to_owned(),
        }
    }

    /// How our end is closed.
    fn close(&self) -> Close {
        match self {
            Loss::Closed | Loss::SaidClose => Close::AfterPeer,
            Loss::Cut(_) | Loss::Net(_) => Close::Now,
            Loss::Malformed(_) | Loss::TimedOut => Close::Abort,
        }
    }

    fn by_peer(&self) -> bool {
        match self {
            Loss::Closed | Loss::SaidClose | Loss::Cut(_) => true,
            Loss::Net(error) => error.kind == NetErrorKind::Reset,
            Loss::Malformed(_) | Loss::TimedOut => false,
        }
    }
}

/// Which failure an error of the transport is.
pub(crate) fn connect_failure(kind: NetErrorKind) -> Failure {
    match kind {
        NetErrorKind::PortsExhausted => Failure::PortsExhausted,
        NetErrorKind::DescriptorsExhausted => Failure::DescriptorsExhausted,
        NetErrorKind::NoMemory => Failure::NoMemory,
        _ => Failure::Connect,
    }
}

/// The error of a connection that could not be opened, in words.
pub(crate) fn connect_words(error: &NetError) -> String {
    match error.kind {
        NetErrorKind::Reset => "the peer reset the connection while it was being opened".to_owned(),
        _ => error.to_string(),
    }
}

impl<T: Transport> Engine<T> {
    /// A connection is lost: sorts what was in flight on it, and closes our end.
    pub(crate) fn lose(&mut self, conn: Conn, loss: Loss, now: Time) {
        let Some(mut session) = self.remove(conn) else { return };
        self.opening.closed();
        if session.phase == Phase::Connecting {
            self.transport.close(conn, Close::Abort);
            let error = match loss {
                Loss::Net(error) => error,
                _ => NetError::of(NetErrorKind::TimedOut),
            };
            return self.connect_failed(Some(session), &error, now);
        }
        self.disconnected(now);
        self.look_at_tcp(conn, session.answers <= 1 && self.is_short());
        self.transport.close(conn, loss.close());
        let as_planned =
            self.orders.per_connection.is_some() && session.budget == 0 && session.pipeline.is_empty();
        if loss.by_peer() && !as_planned {
            self.recorder.connections.closed_by_peer += 1;
            // An idle connection that is closed says nothing of how many requests it would have taken.
            if matches!(loss, Loss::SaidClose) || !session.pipeline.is_empty() {
                self.learnt.closed_after(session.answers);
            }
        }
        if session.answers == 0 {
            self.opening.fruitless(now);
        }
        self.sort_in_flight(&mut session, &loss, now);
        if as_planned {
            self.open_some(now);
        }
    }

    fn sort_in_flight(&mut self, session: &mut Session, loss: &Loss, now: Time) {
        let (why, detail) = (loss.failure(), loss.words());
        let fruitful = session.answers > 0;
        let begun = session.in_answer();
        let timeout_ns = u64::try_from(self.orders.timeout.as_nanos()).unwrap_or(u64::MAX);
        let mut front = true;
        for run in session.pipeline.drain() {
            self.in_flight -= u64::from(run.count);
            let was_front = std::mem::replace(&mut front, false);
            match loss {
                Loss::TimedOut if run.stamp.expired(now, timeout_ns) => self.timed_out(&run, &detail),
                // The front one's answer is what made no sense, or was cut.
                _ if was_front
                    && (matches!(loss, Loss::Malformed(_))
                        || (begun && !run.idempotent && !matches!(loss, Loss::TimedOut))) =>
                {
                    self.fail(&Run { count: 1, ..run }, why, Some(&detail));
                    if run.count > 1 {
                        let rest = Run { first: run.first + 1, count: run.count - 1, ..run };
                        self.again_or_unknown(rest, fruitful, why, &detail);
                    }
                }
                _ => self.again_or_unknown(run, fruitful, why, &detail),
            }
        }
    }

    /// After the end of the time given a late request is unknown rather than failed: it might still have been answered.
    fn timed_out(&mut self, run: &Run<Stamp>, detail: &str) {
        if self.stopping.is_some_and(|at| at >= self.supply.stop_at()) || self.board.stop_asked() {
            self.recorder.unknown(run);
        } else {
            self.fail(run, Failure::Timeout, Some(detail));
        }
    }

    /// Idempotent requests go out again, unless that has been in vain too often; the others are unknown.
    pub(crate) fn again_or_unknown(
        &mut self,
        mut run: Run<Stamp>,
        fruitful: bool,
        why: Failure,
        detail: &str,
    ) {
        if !run.idempotent {
            return self.recorder.unknown(&run);
        }
        if !fruitful {
            run.stamp.fruitless += 1;
        }
        if run.stamp.fruitless >= FRUITLESS_ATTEMPTS {
            return self.fail(&run, why, Some(detail));
        }
        self.again.push_back(run);
    }

    /// Requests that wait to go out again and whose time is over.
    pub(crate) fn expire_waiting(&mut self, now: Time, timeout_ns: u64) {
        if !self.again.iter().any(|run| run.stamp.expired(now, timeout_ns)) {
            return;
        }
        for run in std::mem::take(&mut self.again) {
            if run.stamp.expired(now, timeout_ns) {
                self.timed_out(&run, "no connection to send it again on within the time-out");
            } else {
                self.again.push_back(run);
            }
        }
    }
}
