//! Settles the requests on a lost connection, and those that a peer gives back.

use linerate_net::{Conn, Time};

use super::{Decision, Loss, Pool, PooledConnection, RequestsEnd, Resend, Unanswered, Waiting, decide};
use crate::conversation::{Conversation, Fate, Settle, Settled};
use crate::{Failure, Run};

/// Why a request whose body waits has no response.
const HELD_UP: &str = "the server's flow-control window admitted no more of the request's body";

/// A connection that is lost, seen from its requests.
#[derive(Clone, Copy, Debug)]
pub struct LostConnection<'a> {
    /// The way in which it was lost.
    pub loss: &'a Loss,
    /// The same for people to read.
    pub detail: &'a str,
    /// When.
    pub now: Time,
    /// From sending a request to its response, nanoseconds.
    pub timeout_ns: u64,
    /// Which requests go out again.
    pub resend: Resend,
    /// The oldest request was sent again on this connection, and the server did nothing since.
    pub stuck: bool,
}

/// Gives each request in flight on a lost connection its end: those that go out again to `again`, the others to
/// `events`.
pub fn settle<C: Conversation>(
    conversation: &mut C,
    lost: LostConnection<'_>,
    events: &mut impl Settle,
    mut again: impl FnMut(Run, RequestsEnd),
) {
    let LostConnection { loss, detail, now, timeout_ns, resend, mut stuck } = lost;
    let begun = conversation.in_response() || matches!(loss, Loss::Cut(_));
    let server_spoke = conversation.answers() > 0 || begun;
    let alone = conversation.in_flight() == 1;
    let unsent = if matches!(loss, Loss::TimedOut) { conversation.unsent() } else { Vec::new() };
    let bystander = match loss {
        Loss::Broken { words, by_peer: false } => &format!("a fault beside it ended the connection: {words}"),
        _ => detail,
    };
    conversation.abandon(|mut run, fate| {
        let stuck = std::mem::take(&mut stuck);
        if matches!(loss, Loss::TimedOut) && run.stamp.expired(now, timeout_ns) {
            let waits = unsent.iter().any(|unsent| unsent.first == run.first);
            return events.settled(&run, Settled::TimedOut, if waits { HELD_UP } else { detail });
        }
        match (fate, loss) {
            (Fate::Begun, Loss::Malformed(_)) | (Fate::AtFault { begun: true }, _) => {
                return events.settled(&run, Settled::Failed(Failure::Malformed), detail);
            }
            (Fate::Malformed(words), _) => {
                return events.settled(&run, Settled::Failed(Failure::Malformed), words);
            }
            (Fate::Begun | Fate::Reset { begun: true, .. }, Loss::TimedOut)
            | (
                Fate::NeverProcessed
                | Fate::Refused
                | Fate::Unknown
                | Fate::AtFault { begun: false }
                | Fate::Reset { begun: false, .. },
                _,
            ) => {}
            (Fate::Begun | Fate::Reset { .. }, _) => {
                return events.settled(&run, Settled::Failed(Failure::Truncated), bystander);
            }
        }
        let (end, first) = (loss.end(fate, alone), Run { count: 1, ..run });
        let words =
            if end == (RequestsEnd::Broken { at_fault: false, alone: false }) { bystander } else { detail };
        let mut one = |mut run: Run, stuck: bool| {
            if stuck || !server_spoke {
                run.stamp.in_vain = run.stamp.in_vain.saturating_add(1);
            }
            match by_the_rules(resend, end, &run, server_spoke) {
                Decision::Again => again(run, end),
                Decision::Failed(why) => events.settled(&run, Settled::Failed(why), words),
                Decision::Unknown => events.settled(&run, Settled::Unknown, words),
            }
        };
        if stuck {
            one(first, true);
            run.first += 1;
            run.count -= 1;
        }
        if run.count > 0 {
            one(run, false);
        }
    });
}

fn by_the_rules(resend: Resend, end: RequestsEnd, run: &Run, server_spoke: bool) -> Decision {
    let (idempotent, in_vain) = (run.idempotent, run.stamp.in_vain);
    decide(resend, end, Unanswered { idempotent, in_vain, refused: run.stamp.refused, server_spoke })
}

impl<C: Conversation, X: Default> Pool<C, X> {
    /// An established connection is lost and was taken out: each request in flight on it gets its end. `detail` says
    /// for people to read how it was lost. Returns whether the peer closed a connection that was to carry more.
    pub fn settle(
        &mut self,
        connection: &mut PooledConnection<C, X>,
        loss: &Loss,
        detail: &str,
        now: Time,
        events: &mut impl Settle,
    ) -> bool {
        let conversation = &mut connection.conversation;
        let answers = conversation.answers();
        let begun = conversation.in_response() || matches!(loss, Loss::Cut(_));
        let busy = conversation.in_flight() > 0;
        let as_planned = self.options.per_connection.is_some() && connection.budget == 0 && !busy;
        let by_peer = loss.by_peer() && !as_planned;
        if by_peer && !matches!(loss, Loss::Broken { .. }) {
            self.learn(loss, answers, begun, busy);
        }
        // The server had no chance to respond to a request that was not whole.
        if answers == 0 && !begun && !matches!(loss, Loss::Unfinished) {
            self.opening.fruitless(now);
        }
        let lost = LostConnection {
            loss,
            detail,
            now,
            timeout_ns: self.timeout_ns(),
            resend: self.options.resend,
            stuck: connection.again_at == Some(answers),
        };
        self.in_flight -= u64::from(conversation.in_flight());
        self.held_up.shut(conversation, now);
        if matches!(loss, Loss::TimedOut) {
            conversation.unsent().into_iter().for_each(|unsent| self.held_up.body(unsent, now));
        }
        let Pool { again, suspects, .. } = self;
        settle(conversation, lost, events, |run, end| match end {
            RequestsEnd::Broken { .. } => suspects.push_back(Waiting { run, end }),
            _ => again.push_back(Waiting { run, end }),
        });
        self.make_room_for_suspects();
        by_peer
    }

    /// Requests that must be alone wait for idle connections: as many as can be used take nothing new until they are.
    fn make_room_for_suspects(&mut self) {
        let mut left = self.suspects.len();
        for connection in self.connections.iter_mut().flatten() {
            connection.drains = left > 0;
            left = left.saturating_sub(1);
        }
    }

    /// Learns from the end of a connection: the server's limit, where it ended between responses, and care.
    fn learn(&mut self, loss: &Loss, answers: u32, begun: bool, busy: bool) {
        let announced = matches!(loss, Loss::SaidClose);
        // An idle connection that is closed says nothing of how many requests it would have taken.
        if announced || (busy && !begun) {
            self.learnt.closed_after(answers);
        }
        if !announced && busy {
            self.careful = self.careful.saturating_add(1).min(self.options.connections);
        }
    }

    /// Takes back the requests that the peer has not answered and will not, while the connection continues.
    #[inline]
    pub(super) fn take_back(&mut self, conn: Conn, events: &mut impl Settle) {
        let resend = self.options.resend;
        let Pool { connections, again, .. } = self;
        let Some(Some(connection)) = connections.get_mut(conn.slot()) else { return };
        connection.conversation.given_back(|mut run, fate| {
            let end = match fate {
                Fate::NeverProcessed => RequestsEnd::Announced,
                Fate::Refused => RequestsEnd::Refused,
                Fate::Malformed(words) => {
                    return events.settled(&run, Settled::Failed(Failure::Malformed), words);
                }
                Fate::Reset { code, begun: true } => {
                    let words = format!("the server reset the stream of a response that had begun: {code}");
                    return events.settled(&run, Settled::Failed(Failure::Truncated), &words);
                }
                Fate::Begun => {
                    let words = "the server ended a response that had begun";
                    return events.settled(&run, Settled::Failed(Failure::Truncated), words);
                }
                Fate::Reset { begun: false, .. } | Fate::AtFault { .. } | Fate::Unknown => {
                    // The server was there and gave no response: again and again that must end in a failure.
                    run.stamp.in_vain = run.stamp.in_vain.saturating_add(1);
                    RequestsEnd::StreamReset
                }
            };
            let decision = by_the_rules(resend, end, &run, true);
            if decision == Decision::Again {
                return again.push_back(Waiting { run, end });
            }
            let words = match fate {
                Fate::Reset { code, .. } => {
                    let words = format!("the server reset the stream: {code}");
                    return events.settled(&run, Settled::Reset(code), &words);
                }
                Fate::Refused if resend == Resend::Never => "the server refused the stream",
                Fate::Refused => "the server refused the stream again and again",
                _ => "the server gave the request back",
            };
            match decision {
                Decision::Failed(why) => events.settled(&run, Settled::Failed(why), words),
                Decision::Unknown | Decision::Again => events.settled(&run, Settled::Unknown, words),
            }
        });
    }

    /// Cancels requests of the connection in a slot that have waited too long. Says whether it has to go: because it
    /// cannot do without their responses, or was not established in time.
    pub fn expire(&mut self, slot: usize, now: Time, events: &mut impl Settle) -> Expired {
        let timeout_ns = self.timeout_ns();
        let Some(Some(connection)) = self.connections.get_mut(slot) else { return Expired::None };
        let mut expired = Expired::None;
        loop {
            let is_late = match connection.conversation.oldest() {
                Some(run) => run.stamp.expired(now, timeout_ns),
                None => !connection.established && now.nanos_since(connection.since) >= timeout_ns,
            };
            if !is_late {
                return expired;
            }
            let unsent = connection.conversation.unsent();
            let Some(run) = connection.conversation.cancel_oldest() else { return Expired::Connection };
            self.in_flight -= u64::from(run.count);
            match unsent.into_iter().find(|unsent| unsent.first == run.first) {
                Some(unsent) => {
                    self.held_up.body(unsent, now);
                    events.settled(&run, Settled::TimedOut, HELD_UP);
                }
                None => events.settled(&run, Settled::TimedOut, &Loss::TimedOut.words()),
            }
            expired = Expired::Requests;
        }
    }
}

/// Whether requests, or the whole connection, have waited too long.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Expired {
    /// Nothing.
    None,
    /// Requests that were cancelled: the connection continues.
    Requests,
    /// The connection.
    Connection,
}
