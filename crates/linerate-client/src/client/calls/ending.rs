//! Ends calls whose pipe is lost or whose time is over.

use bytes::Bytes;
use linerate_net::{Close, Conn, Time, Transport};
use tracing::debug;

use super::{CallReading, Calls, Done, Error, OpenCall, Phase, PipeState, Unanswered};
use crate::client::limits::DISCARD_TIME;
use crate::client::proxy::ConnectFailure;
use crate::conversation::Conversation;
use crate::route::ProxySilence;
use crate::{Expired, Loss, PooledConnection, Run, connect_words};

impl<T: Transport, C: Conversation<Reading = CallReading>> Calls<T, C> {
    /// A pipe is lost: each request on it gets its end by the rules of every client (`pool/resend.rs`).
    pub(super) fn lose(&mut self, conn: Conn, loss: &Loss, now: Time) {
        let Some(mut pipe) = self.pool.remove(conn) else { return };
        let loss = &pipe.conversation.why(loss.clone());
        let reason = self.transport.reason(conn);
        if !pipe.established {
            // Nothing was sent on it.
            let failure = self.not_opened(conn, loss, reason);
            self.transport.close(conn, loss.close());
            if pipe.beside.alternative.is_some() {
                return self.alternative_unreached(&pipe, &failure.words, now);
            }
            return self.connect_failed(pipe.beside.attempt, failure, now);
        }
        self.transport.close(conn, loss.close());
        if pipe.beside.alternative.is_some() {
            self.alternative_lost(&pipe, loss, now);
        } else if pipe.conversation.in_flight() == 0 && loss.by_peer() {
            let heard = pipe.beside.heard;
            self.idle.closed_after(if heard == now { pipe.beside.silence } else { now - heard }, now);
        }
        self.statistics.lost += 1;
        let detail = reason.filter(|_| matches!(loss, Loss::Net(_))).unwrap_or_else(|| loss.words());
        debug!(conn = conn.slot(), in_flight = pipe.conversation.in_flight(), %detail, "lost");
        let Calls { pool, calls, done, .. } = self;
        let net = if let Loss::Net(error) = loss { Some(*error) } else { None };
        pool.settle(&mut pipe, loss, &detail, now, &mut Unanswered { calls, done, net });
    }

    fn not_opened(&self, conn: Conn, loss: &Loss, reason: Option<String>) -> ConnectFailure {
        let net = if let Loss::Net(error) = loss { Some(*error) } else { None };
        let proxy = self.options.proxy.as_ref();
        let silence = self.transport.about(conn).and_then(|about| about.downcast::<ProxySilence>().ok());
        // Behind a tunnel, the server is to blame.
        let proxy = proxy.filter(|proxy| proxy.forwards() || silence.is_some());
        let words = match (reason, net) {
            (Some(reason), _) => reason,
            (None, Some(error)) => connect_words(&error),
            (None, None) if proxy.is_some() => "it did not answer in time".to_owned(),
            (None, None) => "the server did not answer in time".to_owned(),
        };
        ConnectFailure::of(proxy, words, net, silence.and_then(|silence| silence.status))
    }

    /// Looks for what has waited too long.
    pub(super) fn sweep(&mut self, now: Time) {
        for slot in 0..self.pool.slots() {
            self.sweep_pipe(slot, now);
        }
        if self.streams == Some(true) || self.second_way.is_followed {
            self.sweep_streams(now);
        }
        if !self.streaming.is_empty() {
            self.sweep_streaming(now);
        }
        self.sweep_queues(now);
        if self.next_own != Time::NEVER {
            self.sweep_own(now);
        }
        let Calls { pool, calls, done, .. } = self;
        pool.expire_again(now, &mut Unanswered { calls, done, net: None });
    }

    fn sweep_pipe(&mut self, slot: usize, now: Time) {
        if let Some(conn) = self.discards_too_long(slot, now) {
            self.statistics.given_up += 1;
            return self.lose(conn, &Loss::TimedOut, now);
        }
        let Some(pipe) = self.pool.at(slot) else { return };
        let idle = self.usable_idle_of(pipe);
        let (conn, conversation) = (pipe.conn, &pipe.conversation);
        if !pipe.established {
            if now - pipe.since >= self.options.connect_timeout {
                self.lose(conn, &Loss::TimedOut, now);
            }
            return;
        }
        let waited = now - pipe.beside.progress;
        let Some(oldest) = conversation.oldest().map(|run| run.first) else {
            // A server that sends something now and then does not keep it from that.
            if (waited >= self.options.idle_timeout || now - pipe.beside.heard >= idle)
                && let Some(pipe) = self.pool.remove(conn)
            {
                self.leave(pipe, Close::AfterPeer);
            }
            return;
        };
        let has_own = |call: &OpenCall| call.streaming.is_some() || call.is_own;
        let own_clock = conversation.has_streams() || self.calls.get(oldest).is_some_and(has_own);
        if !own_clock && !conversation.in_response() && waited >= self.options.first_byte_timeout {
            self.end_late(oldest, Phase::FirstByte);
            return self.lose(conn, &Loss::TimedOut, now);
        }
        let Calls { pool, calls, done, .. } = self;
        match pool.expire(slot, now, &mut Unanswered { calls, done, net: None }) {
            Expired::Connection => self.lose(conn, &Loss::TimedOut, now),
            Expired::Requests => self.speak.push(conn),
            Expired::None => {}
        }
    }

    /// A connection whose response nobody wants any more: its call was streamed, so that the response has no time limit
    /// of its own.
    fn discards_too_long(&mut self, slot: usize, now: Time) -> Option<Conn> {
        let pipe = self.pool.at_mut(slot)?;
        let oldest = pipe.conversation.oldest();
        // Only streamed calls have no time of sending.
        let is_unwanted = |run: &Run| run.stamp.sent == Time::NEVER && self.calls.get(run.first).is_none();
        let discards = pipe.conversation.in_response() && oldest.as_ref().is_some_and(is_unwanted);
        if !discards || pipe.conversation.has_streams() {
            pipe.beside.discarding = None;
            return None;
        }
        let since = *pipe.beside.discarding.get_or_insert(now);
        (now - since >= DISCARD_TIME).then_some(pipe.conn)
    }

    /// Requests on streams whose response did not begin in time.
    fn sweep_streams(&mut self, now: Time) {
        let patience = self.options.first_byte_timeout;
        if now < Time::ZERO + patience {
            return;
        }
        let before = Time::from_nanos(now.as_nanos() - patience.as_nanos() as u64);
        for (id, conn) in self.calls.waiting_since(before) {
            let Some(pipe) = self.pool.get_mut(conn) else { continue };
            if !pipe.conversation.has_streams() {
                continue;
            }
            let is_dead = pipe.beside.heard <= before;
            if !is_dead && !self.pool.cancel(conn, id) {
                continue;
            }
            let why = "the response did not begin in time";
            self.end_unanswered(id, Phase::FirstByte, why);
            if is_dead {
                self.lose(conn, &Loss::TimedOut, now);
            } else {
                self.speak.push(conn);
            }
        }
    }

    /// The time of a request is over that was taken from its connection.
    pub(super) fn end_unanswered(&mut self, id: u64, phase: Phase, why: &str) {
        let Some(call) = self.calls.take(id) else { return };
        let done = match call.nature.idempotent {
            true => call.fail(Error::timeout(phase)),
            false => call.unknown(why),
        };
        self.done.push(done);
    }

    /// Responses will not be heard any more: the outcome of requests that left and are not idempotent is unknown.
    pub fn abandon(&mut self) {
        for call in self.calls.take_unknown() {
            self.done.push(call.unknown("the client ended before the response came"));
        }
    }

    /// The time of a request in flight is over.
    fn end_late(&mut self, id: u64, phase: Phase) {
        let Some(call) = self.calls.get(id) else { return };
        // The rules of lost connections settle the others: the server may have acted on them.
        if call.nature.idempotent {
            self.end(id, Err(Error::timeout(phase)));
        }
    }

    /// Ends the calls whose time is over, wherever they are: some have a time of their own, so that the oldest is not
    /// the first.
    fn sweep_own(&mut self, now: Time) {
        let (late, next) = self.calls.late(now);
        self.next_own = next;
        for id in late {
            let Some(call) = self.calls.take(id) else { continue };
            let sent = call.sent.and(call.conn);
            let is_oldest = |pipe: &mut PooledConnection<C, PipeState>| {
                !pipe.conversation.has_streams()
                    && pipe.conversation.oldest().is_some_and(|run| run.first == id)
            };
            let holds_up = sent.filter(|conn| !call.begun && self.pool.get_mut(*conn).is_some_and(is_oldest));
            self.forget(&call);
            self.done.push(match sent {
                None => call.fail(Error::timeout(self.phase_of_waiting())),
                Some(_) if call.nature.idempotent => call.fail(Error::timeout(Phase::Response)),
                Some(_) => call.unknown("the response was not whole in time"),
            });
            // Those behind it must not wait for a server that may be gone.
            if let Some(conn) = holds_up {
                self.lose(conn, &Loss::TimedOut, now);
            }
        }
    }

    fn phase_of_waiting(&self) -> Phase {
        if self.limit_wait.goes_on() { Phase::Limit } else { Phase::Queue }
    }

    fn sweep_queues(&mut self, now: Time) {
        let Calls { queues, calls, .. } = self;
        let mut late = Vec::new();
        for queue in queues.all_mut() {
            let is_late = |id: &u64| calls.get(*id).is_none_or(|call| call.deadline <= now);
            while queue.front().is_some_and(is_late) {
                late.extend(queue.pop_front());
            }
        }
        for id in late {
            let was_sent = self.calls.get(id).is_some_and(|call| call.sent.is_some());
            let phase = if was_sent { Phase::Response } else { self.phase_of_waiting() };
            self.end(id, Err(Error::timeout(phase)));
        }
    }

    /// The server takes no more requests on a pipe.
    pub(super) fn retire(&mut self, conn: Conn) {
        if let Some(pipe) = self.pool.remove(conn) {
            self.statistics.retired += 1;
            debug!(conn = conn.slot(), "retired: the server takes no more requests on it");
            self.leave(pipe, Close::AfterPeer);
        }
    }

    /// A call ends, if it has not.
    pub(super) fn end(&mut self, id: u64, result: Result<http::Response<Bytes>, Error>) {
        if let Some(call) = self.calls.take(id) {
            self.done.push(match result {
                Ok(_) => Done { id, result },
                Err(error) => call.fail(error),
            });
        }
    }
}
