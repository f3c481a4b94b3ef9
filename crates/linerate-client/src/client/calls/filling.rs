//! Which request takes which pipe, and when a pipe is opened.

use std::net::SocketAddr;

use http::Version;
use linerate_http::client::StreamFieldCoding;
use linerate_net::{Close, Conn, NetError, Time, Transport};
use tracing::debug;

use super::growth::Demand;
use super::queues::{Candidate, Queues};
use super::reaching::{Attempt, Tried};
use super::request::Writing;
use super::{CallReading, Calls, PipeState};
use crate::client::error::{Error, ErrorDetail};
use crate::client::limits::{LARGEST_REQUEST_BODY, ROOM_PAUSE, UNSENT_MARK};
use crate::client::mover::lacks_room;
use crate::client::options::CallOptions;
use crate::client::proxy::ConnectFailure;
use crate::conversation::{Conversation, Out};
use crate::{Failure, PooledConnection, RequestsEnd, Run, Stamp, connect_words};

impl<T: Transport, C: Conversation<Reading = CallReading>> Calls<T, C> {
    /// Gives requests to pipes, and opens pipes for the rest.
    pub(super) fn fill(&mut self, now: Time) {
        self.drop_ended();
        if !self.has_waiting() {
            return;
        }
        self.choose_way(now);
        self.list_candidates(now);
        let mut left = self.candidates.len() as u32;
        // A connection may be ahead of the others by half of what each of them has: fewer system calls carry the requests.
        let ahead = self.pool.in_flight() as u32 / left.max(1) / 2;
        for at in 0..self.candidates.len() {
            let conn = self.candidates[at].conn;
            if !self.has_waiting() {
                break;
            }
            // Each takes its share, so that one batch for each connection leaves, and all of them work.
            let share = (self.waiting() as u32).div_ceil(left).max(ahead);
            left -= 1;
            self.fillings += 1;
            if let Some(pipe) = self.pool.get_mut(conn) {
                pipe.beside.filled = self.fillings;
            }
            self.fill_pipe(conn, share.max(1), now);
        }
        self.candidates.clear();
        self.drop_ended();
        self.reserve();
        self.open_some(now);
    }

    /// Calls at the heads of the queues that have ended leave them.
    fn drop_ended(&mut self) {
        let most = 2 * self.calls.len() + 64;
        for queue in self.queues.all_mut() {
            if queue.len() > most {
                // Calls that were abandoned while the head of the queue could not leave.
                queue.retain(|id| self.calls.get(*id).is_some());
            }
            while queue.front().is_some_and(|id| self.calls.get(*id).is_none()) {
                queue.pop_front();
            }
        }
    }

    pub(super) fn waiting(&self) -> usize {
        self.queues.len()
    }

    pub(super) fn has_waiting(&self) -> bool {
        self.waiting() > 0 || self.pool.has_again()
    }

    /// Pipes with room, the least loaded first. Those with a slow response at their head come last, and only if all
    /// have one.
    fn list_candidates(&mut self, now: Time) {
        let slow_after = self.slow_after();
        self.candidates.clear();
        let adapts = self.options.adapts && self.on_streams() == Some(false);
        let (mut alone, mut stalled, mut usable) = (0, 0, 0);
        let fresh = self.usable_idle(!self.queues.alone.is_empty());
        self.in_use = 0;
        for slot in 0..self.pool.slots() {
            let Some(pipe) = self.pool.at_mut(slot) else { continue };
            let (conn, in_flight) = (pipe.conn, pipe.conversation.in_flight());
            let (is_taking, is_second) =
                (self.second_way.takes(pipe.beside.alternative), pipe.beside.alternative.is_some());
            let fresh = if is_second { self.options.idle_timeout } else { fresh };
            if in_flight == 0 && pipe.established && (!is_taking || now - pipe.beside.heard >= fresh) {
                // The server is about to close it, or calls go another way.
                if let Some(pipe) = self.pool.remove(conn) {
                    self.leave(pipe, Close::AfterPeer);
                }
                continue;
            }
            if in_flight == 0 || pipe.conversation.has_streams() {
                // It was idle until now: a slow response is one that we have waited for.
                if in_flight == 0 {
                    pipe.beside.progress = now;
                }
            } else if !pipe.beside.slow {
                let waited = now - pipe.beside.progress;
                let is_stalled = adapts && !pipe.conversation.in_response() && self.pace.is_stalled(waited);
                if is_stalled || waited > slow_after {
                    pipe.beside.slow = true;
                    self.statistics.head_of_line += u64::from(in_flight > 1);
                }
            }
            let (slow, filled) = (pipe.beside.slow, pipe.beside.filled);
            self.in_use += u32::from(in_flight > 0);
            alone += u32::from(pipe.beside.alone);
            stalled += u32::from(slow);
            usable += u32::from(!slow);
            // Quick responses come together on a few, so that many leave in one system call.
            if is_taking && (!adapts || usable <= self.wanted) && self.room(conn) > 0 {
                self.candidates.push(Candidate { slow, in_flight, filled, conn });
            }
        }
        if adapts {
            let alone_waiting = self.queues.alone.len() as u32;
            let usual = self.waiting() as u32 - alone_waiting + self.pool.in_flight() as u32 - alone;
            let demand = Demand { usual, alone: alone + alone_waiting, stalled };
            self.wanted = self.pace.wanted(demand, self.options.depth, self.options.pipes);
        }
        self.sort_candidates();
        // The others will have room soon, or another one opens.
        if self.has_quick_pipe() || self.may_open() {
            self.candidates.retain(|candidate| !candidate.slow);
        }
    }

    /// Idle ones first. By HTTP/1.1 the others take turns, unless one is far ahead: a server with one core stays with a
    /// connection while requests are there, and the one whose responses come now, which has the fewest in flight, would
    /// keep it from the others.
    fn sort_candidates(&mut self) {
        let takes_turns = self.on_streams() == Some(false);
        let mean = self.pool.in_flight() as u32 / (self.candidates.len() as u32).max(1);
        let far = mean + (mean / 2).max(1);
        self.candidates.sort_unstable_by_key(|candidate| {
            let Candidate { slow, in_flight, filled, conn } = *candidate;
            let has_turn = takes_turns && (1..=far).contains(&in_flight);
            let (load, turn) = if has_turn { (1, filled) } else { (in_flight, 0) };
            (slow, load, turn, conn.slot())
        });
    }

    /// Whether another pipe may be opened, by the present state of the pool.
    fn may_open(&self) -> bool {
        self.connects_failed == 0 && self.pool.opening.has_room() && self.missing_pipes() > 0
    }

    fn has_quick_pipe(&self) -> bool {
        let is_quick = |pipe: &PooledConnection<C, PipeState>| {
            !pipe.beside.slow && self.second_way.takes(pipe.beside.alternative)
        };
        (0..self.pool.slots()).any(|slot| self.pool.at(slot).is_some_and(is_quick))
    }

    /// Requests that a pipe may take now.
    fn room(&mut self, conn: Conn) -> u32 {
        if self.transport.unsent(conn) >= UNSENT_MARK {
            return 0;
        }
        let (persistent, waits_alone) = (self.persistent, !self.queues.alone.is_empty());
        let Some(pipe) = self.pool.get_mut(conn) else { return 0 };
        let in_flight = pipe.conversation.in_flight();
        if pipe.conversation.has_streams() {
            // If nothing else waits, a pipe that holds bodies up takes no share of them.
            let Queues { usual, alone, .. } = &self.queues;
            let bodies = usual.is_empty() && alone.is_empty() && !self.pool.has_again();
            return self.room_on_streams(conn, bodies);
        }
        let is_reserved = pipe.beside.reserved && waits_alone && in_flight > 0;
        if pipe.beside.alone || is_reserved {
            return 0;
        }
        pipe.beside.reserved &= waits_alone;
        let depth =
            if self.options.adapts { self.pace.depth(self.options.depth) } else { self.options.depth };
        let room = pipe.room().min(depth.saturating_sub(in_flight));
        if persistent { room } else { room.min(1_u32.saturating_sub(in_flight)) }
    }

    /// Requests that a pipe with streams may take now, with or without a body.
    fn room_on_streams(&mut self, conn: Conn, body: bool) -> u32 {
        let Some(pipe) = self.pool.get_mut(conn) else { return 0 };
        let is_full = body && pipe.conversation.held_back() >= LARGEST_REQUEST_BODY;
        if is_full { 0 } else { pipe.room_for(body) }
    }

    /// Gives a pipe up to `share` requests, which leave together.
    fn fill_pipe(&mut self, conn: Conn, share: u32, now: Time) {
        let mut left = self.room(conn).min(share);
        let unsent = self.transport.unsent(conn);
        self.frames.beside(unsent);
        let coding = self.field_coding(conn);
        while left > 0 && self.out.len() + self.frames.len() + unsent < UNSENT_MARK {
            left -= 1;
            let Some((run, alone)) = self.next_for(conn, now) else { break };
            self.begin(conn, coding, run, now);
            if alone {
                break;
            }
        }
        if self.frames.is_full() {
            self.speak.push(conn);
        }
        self.flush(conn, now);
    }

    /// Hands over what collected for a connection.
    pub(super) fn flush(&mut self, conn: Conn, now: Time) {
        let Calls { out, frames, transport, .. } = self;
        let mut sent = Ok(());
        for out in [out, frames] {
            if out.len() > 0 {
                sent = sent.and(out.hand_over(conn, transport));
            }
        }
        if let Err(error) = sent {
            self.send_failed(conn, error, now);
        }
    }

    /// Sends what a connection has to say beside requests, and what of them had to wait.
    pub(super) fn send_pending(&mut self, conn: Conn, now: Time) {
        loop {
            if !self.has_streams(conn) {
                return;
            }
            let unsent = self.transport.unsent(conn);
            let coding = self.field_coding(conn);
            let Calls { pool, calls, options, out, frames, .. } = self;
            let mut writing = Writing::new(calls, options, coding, out);
            if let Err(error) = pool.send_pending_on(conn, &mut writing, frames.beside(unsent)) {
                return self.send_failed(conn, error, now);
            }
            let was_full = frames.is_full();
            self.flush(conn, now);
            // The transport reports when the bytes it still holds have left.
            if !was_full || self.transport.unsent(conn) > 0 {
                return;
            }
        }
    }

    /// The next request for a pipe, and whether it must be alone there: one that is sent again, or the oldest that
    /// waits.
    fn next_for(&mut self, conn: Conn, now: Time) -> Option<(Run, bool)> {
        let conversation = &self.pool.get_mut(conn)?.conversation;
        let streams = conversation.has_streams();
        let idle = streams || conversation.in_flight() == 0;
        let has_room = self.pool.has_again() && self.missing_pipes() > 0;
        while let Some((run, end)) = self.pool.next_again(conn, 1, has_room) {
            let Some(call) = self.calls.get(run.first) else { continue };
            if call.upload().is_some() {
                // Its body has gone, in part at least.
                let detail = "the server did not process the request, whose body is a stream".to_owned();
                self.end(run.first, Err(Error::failed(end.failure(), detail)));
                continue;
            }
            if !call.nature.alone || idle {
                self.statistics.resent += 1;
                let is_suspect = matches!(end, RequestsEnd::Broken { .. });
                return Some((run, is_suspect || (call.nature.alone && !streams)));
            }
            // It waits for an idle pipe, as when it was new.
            self.queues.alone.push_front(run.first);
        }
        let takes_bodies = !streams || self.room_on_streams(conn, true) > 0;
        let id = loop {
            let (id, has_body) = self.next_new(idle, takes_bodies)?;
            if takes_bodies || !has_body {
                break id;
            }
            // Requests behind it that have no body do not wait for the server's window.
            self.queues.held_up.push_back(id);
        };
        let call = self.calls.get(id)?;
        let alone = call.nature.alone;
        // Of streams the last piece counts. The pool knows one time-out for all.
        let timeout = u64::try_from(self.options.timeout.as_nanos()).unwrap_or(u64::MAX);
        let sent = match call.streaming {
            Some(_) => Time::NEVER,
            None if call.is_own => Time::from_nanos(call.deadline.as_nanos().saturating_sub(timeout)),
            None => call.accepted,
        };
        let stamp = Stamp { sent, due: now, in_vain: 0, refused: 0, measured: false };
        let (expect, idempotent) = (call.nature.expect, call.nature.idempotent);
        Some((Run { stamp, first: id, count: 1, kind: 0, expect, idempotent }, alone && !streams))
    }

    /// Takes out the oldest request that waits, with whether it has a body. `idle`: it may be one that must be alone;
    /// `held_up`: it may be one that a window held up.
    fn next_new(&mut self, idle: bool, held_up: bool) -> Option<(u64, bool)> {
        self.drop_ended();
        let calls = &self.calls;
        let Queues { usual, alone, held_up: bodies } = &mut self.queues;
        let queues = [Some(usual), Some(alone), held_up.then_some(bodies)].into_iter().flatten();
        let heads = queues.filter_map(|queue| {
            let call = calls.get(*queue.front()?)?;
            (idle || !call.nature.alone).then_some((call, queue))
        });
        let (call, queue) = heads.min_by_key(|(call, _)| call.order)?;
        queue.pop_front();
        Some((call.id(), call.has_body()))
    }

    /// Puts a request on a pipe; its bytes leave with those of the others.
    fn begin(&mut self, conn: Conn, coding: StreamFieldCoding, run: Run, now: Time) {
        if let Some(call) = self.calls.get_mut(run.first) {
            (call.sent, call.conn, call.begun) = (Some(now), Some(conn), false);
            let alone = call.nature.alone;
            if let Some(pipe) = self.pool.get_mut(conn) {
                call.to = pipe.beside.to();
                call.attempts += 1;
                call.requests_before = pipe.conversation.in_flight();
                pipe.beside.alone |= alone && !pipe.conversation.has_streams();
                pipe.beside.reserved = false;
                if pipe.conversation.in_flight() == 0 {
                    pipe.beside.since_idle = 0;
                }
                pipe.beside.statistics.requests += 1;
            }
            if call.upload().is_some() {
                self.uploading.push((run.first, conn));
            }
            self.carried(conn).requests += 1;
        }
        let Calls { pool, calls, options, out, frames, .. } = self;
        let mut writing = Writing::new(calls, options, coding, out);
        if let Err(error) = pool.begin_on(conn, run, &mut writing, frames) {
            self.send_failed(conn, error, now);
        }
    }

    /// How the fields of requests on a connection are encoded, if it has streams.
    fn field_coding(&mut self, conn: Conn) -> StreamFieldCoding {
        let version = self.pool.get_mut(conn).map_or(Version::HTTP_11, |pipe| pipe.beside.version);
        CallOptions::field_coding(version)
    }

    /// A request that must be alone, and is the oldest, has a pipe kept free for it.
    fn reserve(&mut self) {
        let order = |id: Option<&u64>| id.and_then(|id| Some(self.calls.get(*id)?.order));
        let Some(alone) = order(self.queues.alone.front()) else { return };
        if self.on_streams() == Some(true) {
            return;
        }
        let is_oldest = order(self.queues.usual.front()).is_none_or(|first| alone <= first);
        if !is_oldest {
            return;
        }
        let mut best: Option<(u32, usize)> = None;
        for slot in 0..self.pool.slots() {
            let Some(pipe) = self.pool.at_mut(slot) else { continue };
            if pipe.beside.reserved {
                return;
            }
            let in_flight = pipe.conversation.in_flight();
            let is_here = pipe.established && pipe.beside.alternative.is_none();
            if is_here && !pipe.beside.alone && best.is_none_or(|(least, _)| in_flight < least) {
                best = Some((in_flight, slot));
            }
        }
        if let Some((_, slot)) = best
            && let Some(pipe) = self.pool.at_mut(slot)
        {
            pipe.beside.reserved = true;
        }
    }

    /// Whether calls wait for pipes that are not open yet.
    pub(super) fn is_short_of_pipes(&self) -> bool {
        self.has_waiting() && self.pool.opening.has_room() && self.missing_pipes() > 0
    }

    /// Pipes that may be opened beside those that are there.
    fn missing_pipes(&self) -> u32 {
        if self.is_limited() { 0 } else { self.missing_by_pace() }
    }

    /// Pipes that are worth opening beside those that are there, whatever other clients have. Before the first has agreed
    /// on a protocol it is the only one; of HTTP/2 one serves many requests.
    pub(super) fn missing_by_pace(&self) -> u32 {
        let streams = self.on_streams();
        let most = match streams {
            None => 1,
            Some(true) if self.options.h2_adapts && !self.is_slow() => 1,
            Some(true) => self.options.h2_connections,
            Some(false) if self.options.adapts => self.wanted,
            Some(false) => self.options.pipes,
        };
        let leaving = |pipe: &PooledConnection<C, PipeState>| {
            let is_leaving = pipe.established && pipe.conversation.is_leaving();
            let is_extra = self.second_way.is_extra(pipe.beside.alternative, pipe.established, is_leaving);
            is_extra || (is_leaving && streams != Some(false))
        };
        let leaving = match (streams, self.second_way.is_followed) {
            (Some(false), false) => 0,
            _ => (0..self.pool.slots()).filter(|slot| self.pool.at(*slot).is_some_and(leaving)).count(),
        };
        most.saturating_sub(self.pool.opening.open() - leaving as u32)
    }

    /// Whether responses take longer than a connection is worth.
    fn is_slow(&self) -> bool {
        self.usual_ns > (self.pace.worth() + self.pace.way()).as_nanos() as u64
    }

    /// Opens pipes for what found no place, one for each request at most.
    fn open_some(&mut self, now: Time) {
        if !self.has_waiting() || self.addresses.is_empty() || now < self.connect_after {
            return;
        }
        let is_second = self.second_way.is_used;
        if !is_second {
            self.race(now);
        }
        let being_opened = (0..self.pool.slots())
            .filter_map(|slot| self.pool.at(slot))
            .filter(|pipe| !pipe.established && pipe.beside.alternative.is_some() == is_second)
            .count();
        let again = usize::from(self.pool.has_again());
        let missing = (self.waiting() + again).saturating_sub(being_opened) as u32;
        let missing = missing.min(self.missing_pipes());
        for _ in 0..self.pool.opening.this_turn(now).min(missing) {
            let opened = if is_second { self.open_alternative(now) } else { self.open_one(now) };
            if !opened {
                return;
            }
        }
    }

    pub(super) fn open_one(&mut self, now: Time) -> bool {
        if !self.takes_another() {
            return false;
        }
        let attempt = self.next_attempt();
        let options = self.options.connecting();
        match self.transport.connect(attempt.to, &options) {
            Ok(conn) => {
                self.wants_turn = true;
                self.pool.add(conn, now);
                if let Some(pipe) = self.pool.get_mut(conn) {
                    pipe.beside.attempt = Some(attempt);
                }
                true
            }
            Err(error) if lacks_room(&error, &self.transport, self.pool.opening.open()) => {
                // Connections whose time to close is over leave in a turn.
                self.wants_turn = true;
                self.connect_after = now + ROOM_PAUSE;
                false
            }
            Err(error) => {
                self.connect_failed(Some(attempt), self.at_once(error), now);
                false
            }
        }
    }

    /// A pipe could not be opened. After some attempts in a row, with none open, what waits has failed, but not before
    /// each address has been tried.
    pub(super) fn connect_failed(&mut self, attempt: Option<Attempt>, failure: ConnectFailure, now: Time) {
        self.statistics.connect_failures += 1;
        debug!(why = %failure.words, "no connection");
        let Some(tried) = self.address_failed(attempt) else { return };
        self.connects_failed = self.connects_failed.saturating_add(1);
        if tried == Tried::Some {
            // The next address, at once (RFC 8305 section 5).
            self.connect_after = now;
            return;
        }
        // What is being opened the other way may still take what waits.
        let may_take = |p: &PooledConnection<C, PipeState>| p.established || p.beside.alternative.is_some();
        let alone = !(0..self.pool.slots()).any(|slot| self.pool.at(slot).is_some_and(may_take));
        self.pool.opening.failed(now, alone);
        // Clients that lost the same server come back at different times.
        let pause = self.pool.opening.next(now).nanos_since(now);
        let pause = if pause > u64::MAX / 2 { 0 } else { pause + self.random.below(pause / 2 + 1) };
        self.connect_after = now + std::time::Duration::from_nanos(pause);
        let attempts = self.options.connect_attempts.max(self.addresses.len() as u32);
        if alone && (self.connects_failed >= attempts || failure.is_final()) {
            self.fail_waiting(&failure, attempt.map(|attempt| attempt.to));
        }
    }

    /// The transport opened no connection.
    fn at_once(&self, error: NetError) -> ConnectFailure {
        ConnectFailure::of(self.options.proxy.as_ref(), connect_words(&error), Some(error), None)
    }

    /// Fails the waiting calls, because there is no connection.
    pub(super) fn fail_waiting(&mut self, why: &ConnectFailure, to: Option<SocketAddr>) {
        let queued = self.queues.all_mut().into_iter().flat_map(std::mem::take);
        let mut waiting: Vec<_> = queued.map(|id| (id, Failure::Connect)).collect();
        self.pool.give_up_again(|run, why| waiting.extend((run.first..run.end()).map(|id| (id, why))));
        for (id, failure) in waiting {
            let was_sent = self.calls.get(id).is_some_and(|call| call.sent.is_some());
            let error = if was_sent {
                // The server may have acted on it, though its connection ended.
                let ended = "the request was sent, its connection ended, and no other could be opened";
                Error::failed(failure, ErrorDetail::by_net(format!("{ended}: {}", why.words), why.net))
            } else {
                why.error().at(to)
            };
            self.end(id, Err(error));
        }
    }

    /// Calls that a mismatch took a response from go back to the head of the queue, if they may be sent again.
    pub(super) fn requeue(&mut self, robbed: Vec<u64>) {
        for id in robbed.into_iter().rev() {
            let Some(call) = self.calls.get(id) else { continue };
            if call.nature.alone {
                let words = "no response on its connection can be trusted".to_owned();
                self.end(id, Err(Error::Mismatch(words.into())));
            } else {
                self.queues.usual.push_front(id);
            }
        }
    }

    /// Closes all pipes: the program has ended its client.
    pub fn close(&mut self) {
        for slot in 0..self.pool.slots() {
            let Some(conn) = self.pool.at_mut(slot).map(|pipe| pipe.conn) else { continue };
            if let Some(pipe) = self.pool.remove(conn) {
                self.leave(pipe, Close::Now);
            }
        }
    }

    /// Closes a connection that was taken out, and says so to the server where the protocol has a way.
    pub(super) fn leave(&mut self, mut pipe: PooledConnection<C, PipeState>, how: Close) {
        let mut how = how;
        if pipe.established && pipe.conversation.has_streams() {
            how = pipe.conversation.leave(&mut self.frames);
            // That the server cannot take it changes nothing.
            let _ = self.frames.hand_over(pipe.conn, &mut self.transport);
        }
        if self.limited.is_some() && how == Close::AfterPeer {
            // Another client has its place already: a server that does not close first must not keep it open.
            how = Close::Now;
        }
        self.transport.close(pipe.conn, how);
    }
}
