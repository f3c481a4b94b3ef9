//! What becomes of a lost connection and of the requests on it, by the rules of [`linerate_client::fate`].

use linerate_client::{Decision, End, Failure, Loss, Stamp, Unanswered, Waiting, connect_words, decide};
use linerate_http::client::Run;
use linerate_net::{Close, Conn, NetError, NetErrorKind, Time, Transport};

use super::Engine;
use super::session::{Phase, Session};

impl<T: Transport> Engine<T> {
    /// A connection is lost: sorts what was in flight on it, and closes our end.
    pub(crate) fn lose(&mut self, conn: Conn, loss: Loss, now: Time) {
        let Some(mut session) = self.remove(conn) else { return };
        self.opening.closed();
        let reason = self.transport.reason(conn);
        if session.phase == Phase::Connecting {
            self.transport.close(conn, Close::Abort);
            let error = match loss {
                Loss::Net(error) => error,
                _ => NetError::of(NetErrorKind::TimedOut),
            };
            let detail = reason.unwrap_or_else(|| connect_words(&error));
            return self.connect_failed(Some(session), error.kind, detail, now);
        }
        self.disconnected(now);
        self.look_at_last(&session, session.answers <= 1 && self.is_short());
        self.transport.close(conn, loss.close());
        let begun = session.in_answer() || matches!(loss, Loss::Cut(_));
        let as_planned =
            self.orders.per_connection.is_some() && session.budget == 0 && session.pipeline.is_empty();
        if loss.by_peer() && !as_planned {
            self.recorder.connections.closed_by_peer += 1;
            self.learn(&session, &loss, begun);
        }
        if session.answers == 0 && !begun {
            self.opening.fruitless(now);
        }
        let detail = reason.filter(|_| matches!(loss, Loss::Net(_))).unwrap_or_else(|| loss.words());
        self.sort_in_flight(&mut session, &loss, &detail, begun, now);
        if as_planned {
            self.open_some(now);
        }
    }

    /// What the end of a connection teaches: the server's limit, where it ended between responses, and care.
    fn learn(&mut self, session: &Session, loss: &Loss, begun: bool) {
        let announced = matches!(loss, Loss::SaidClose);
        // An idle connection that is closed says nothing of how many requests it would have taken.
        let busy = !session.pipeline.is_empty();
        if announced || (busy && !begun) {
            self.learnt.closed_after(session.answers);
        }
        if !announced && busy {
            self.careful = self.careful.saturating_add(1).min(self.orders.connections);
        }
    }

    fn sort_in_flight(&mut self, session: &mut Session, loss: &Loss, detail: &str, begun: bool, now: Time) {
        let spoke = session.answers > 0 || begun;
        let end = loss.end(begun && session.announced());
        // Sent again, at the front since then, and the server did nothing.
        let mut stuck = session.again_at == Some(session.answers);
        let timeout_ns = u64::try_from(self.orders.timeout.as_nanos()).unwrap_or(u64::MAX);
        let mut front = true;
        for mut run in session.pipeline.drain() {
            self.in_flight -= u64::from(run.count);
            if matches!(loss, Loss::TimedOut) && run.stamp.expired(now, timeout_ns) {
                front = false;
                self.timed_out(&run, detail);
                continue;
            }
            if std::mem::replace(&mut front, false) {
                let first = Run { count: 1, ..run };
                match loss {
                    Loss::Malformed(_) => self.fail(&first, Failure::Malformed, Some(detail)),
                    Loss::TimedOut => self.decide(first, end, spoke, stuck, detail),
                    _ if begun => self.fail(&first, Failure::Truncated, Some(detail)),
                    _ => self.decide(first, end, spoke, stuck, detail),
                }
                run.first += 1;
                run.count -= 1;
                stuck = false;
            }
            if run.count > 0 {
                self.decide(run, end, spoke, false, detail);
            }
        }
    }

    /// What becomes of requests without a byte of their response.
    fn decide(&mut self, mut run: Run<Stamp>, end: End, spoke: bool, stuck: bool, detail: &str) {
        if stuck || !spoke {
            run.stamp.in_vain = run.stamp.in_vain.saturating_add(1);
        }
        let (idempotent, in_vain) = (run.idempotent, run.stamp.in_vain);
        let request = Unanswered { idempotent, in_vain, server_spoke: spoke };
        match decide(self.orders.resend, end, request) {
            Decision::Again => self.again.push_back(Waiting { run, why: end.failure() }),
            Decision::Failed(why) => self.fail(&run, why, Some(detail)),
            Decision::Unknown => self.recorder.unknown(&run),
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

    /// The next request to go out again on this connection. One that met two closing connections in a row waits for a new one: many may be
    /// closing at once.
    pub(crate) fn take_again(&mut self, conn: Conn) -> Option<Waiting> {
        let unlucky = self.again.front()?.run.stamp.in_vain > 0;
        if unlucky && self.session(conn).is_none_or(|session| session.answers > 0) {
            return None;
        }
        self.again.pop_front()
    }

    /// Requests that wait to go out again and whose time is over failed for what they were lost for.
    pub(crate) fn expire_waiting(&mut self, now: Time, timeout_ns: u64) {
        if !self.again.iter().any(|waiting| waiting.run.stamp.expired(now, timeout_ns)) {
            return;
        }
        for waiting in std::mem::take(&mut self.again) {
            if waiting.run.stamp.expired(now, timeout_ns) {
                let words = "no connection to send it again on within the time-out";
                self.fail(&waiting.run, waiting.why, Some(words));
            } else {
                self.again.push_back(waiting);
            }
        }
    }
}
