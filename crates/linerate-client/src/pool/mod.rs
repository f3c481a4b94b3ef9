//! The connections of one core: when they are opened, how many requests they carry, and what becomes of requests
//! whose connection has ended.

mod connection;
mod learnt;
mod loss;
mod opening;
mod resend;
mod settle;
#[cfg(test)]
mod tests;

use std::collections::VecDeque;
use std::time::Duration;

use linerate_net::{After, Ahead, Conn, Data, NetError, ReceivedPiece, Time, Transport};

use crate::conversation::{
    Conversation, Facts, Out, ProtocolRefused, Requests, Responses, Settle, Settled, TransportWire, Unsent,
};
use crate::{Failure, Run};
pub use connection::PooledConnection;
pub use learnt::Learnt;
pub use loss::{Loss, connect_failure, connect_words};
pub use opening::Opening;
use resend::{Decision, Unanswered, decide};
pub use resend::{RequestsEnd, Resend};
pub use settle::{Expired, LostConnection, settle};

/// Options that the owner of a pool sets.
#[derive(Clone, Copy, Debug)]
pub struct PoolOptions {
    /// Connections wanted.
    pub connections: u32,
    /// Requests in flight on each.
    pub depth: u32,
    /// Requests that each carries; `None`: as many as the server takes.
    pub per_connection: Option<u32>,
    /// From sending a request to its response.
    pub timeout: Duration,
    /// Which requests go out again when their connection ends without a byte of their response.
    pub resend: Resend,
}

/// A request that has to go out again, and how it was lost.
#[derive(Clone, Copy, Debug)]
struct Waiting {
    run: Run,
    end: RequestsEnd,
}

/// The connections of one core; `X`: what their owner keeps beside each.
#[derive(Debug)]
pub struct Pool<C: Conversation, X> {
    options: PoolOptions,
    shared: C::Shared,
    /// When connections are opened.
    pub opening: Opening,
    /// How many requests the server takes on a connection.
    pub learnt: Learnt,
    /// By the connection's slot.
    connections: Vec<Option<PooledConnection<C, X>>>,
    /// Connections with a free place and nothing to send when last looked at.
    ready: VecDeque<Conn>,
    /// Requests that have to go out again.
    again: VecDeque<Waiting>,
    /// Those that have to go out alone on a connection: one of them breaks it.
    suspects: VecDeque<Waiting>,
    /// Connections to be opened in place of some that failed unannounced.
    careful: u32,
    in_flight: u64,
    held_up: HeldUp,
}

/// What servers did not admit, beside what conversations know.
#[derive(Debug, Default)]
struct HeldUp {
    shut_ns: u64,
    bodies: u64,
    bytes: u64,
    longest_ns: u64,
}

impl HeldUp {
    fn shut<C: Conversation>(&mut self, conversation: &C, now: Time) {
        let shut = conversation.shut_since().map_or(0, |since| now.nanos_since(since));
        self.shut_ns = self.shut_ns.max(shut);
    }

    /// The time of a request is over of whose body this part waits.
    fn body(&mut self, unsent: Unsent, now: Time) {
        self.bodies += 1;
        self.bytes += unsent.bytes;
        self.longest_ns = self.longest_ns.max(now.nanos_since(unsent.since));
    }
}

/// The result of reading received bytes.
#[derive(Debug)]
pub struct PoolReceived {
    /// When they had arrived.
    pub at: Time,
    /// Whole responses among them.
    pub answered: u32,
    /// The owner must do this with the connection.
    pub next: PoolAction,
}

/// The owner must do this with a connection.
#[derive(Debug)]
pub enum PoolAction {
    /// Nothing: it was closed before.
    Nothing,
    /// It may have room for requests.
    Fill,
    /// It has carried all that it may.
    Retire,
    /// It is lost.
    Lose(Loss),
}

impl<C: Conversation, X: Default> Pool<C, X> {
    /// A pool without connections; `shared`: what its conversations share.
    pub fn new(options: PoolOptions, shared: C::Shared) -> Pool<C, X> {
        Pool {
            opening: Opening::new(options.connections),
            options,
            shared,
            learnt: Learnt::default(),
            connections: Vec::new(),
            ready: VecDeque::new(),
            again: VecDeque::new(),
            suspects: VecDeque::new(),
            careful: 0,
            in_flight: 0,
            held_up: HeldUp::default(),
        }
    }

    /// `connect` was called.
    pub fn add(&mut self, conn: Conn, now: Time) {
        let budget = self.options.per_connection.unwrap_or(u32::MAX).min(self.learnt.budget());
        // Behind a connection that failed only one until the first response (RFC 9112 section 9.3.2).
        let depth = if self.careful > 0 { 1 } else { self.options.depth };
        self.careful = self.careful.saturating_sub(1);
        if self.connections.len() <= conn.slot() {
            self.connections.resize_with(conn.slot() + 1, || None);
        }
        let conversation = C::new(&self.shared);
        let connection = PooledConnection::new(conn, now, conversation, budget, depth);
        self.connections[conn.slot()] = Some(connection);
        self.opening.asks();
    }

    /// The connection is established. Returns when `connect` was called, unless it was returned before.
    pub fn established(&mut self, conn: Conn, at: Time) -> Option<Time> {
        let connection = self.get_mut(conn).filter(|c| !c.established)?;
        connection.established = true;
        let since = connection.since;
        self.opening.answered();
        self.opening.opened(at - since);
        Some(since)
    }

    /// The peers agreed on a protocol while the connection was established.
    ///
    /// # Errors
    /// It is not one that the owner accepts.
    pub fn agreed(&mut self, conn: Conn, protocol: Option<&[u8]>) -> Result<(), ProtocolRefused> {
        let Pool { connections, shared, .. } = self;
        let connection = connections.get_mut(conn.slot()).and_then(Option::as_mut).filter(|c| c.conn == conn);
        connection.map_or(Ok(()), |connection| connection.conversation.agreed(protocol, shared))
    }

    /// Protocol facts, summed over all connections.
    pub fn facts(&self) -> Facts {
        let mut facts = C::facts(&self.shared);
        facts.shut_ns = facts.shut_ns.max(self.held_up.shut_ns);
        facts.held_bodies += self.held_up.bodies;
        facts.held_bytes += self.held_up.bytes;
        facts.held_ns = facts.held_ns.max(self.held_up.longest_ns);
        facts
    }

    /// Connections that admit no streams have done so until now.
    pub fn note_shut(&mut self, now: Time) {
        for connection in self.connections.iter().flatten() {
            self.held_up.shut(&connection.conversation, now);
        }
    }

    /// A connection, while it is there.
    #[inline]
    pub fn get_mut(&mut self, conn: Conn) -> Option<&mut PooledConnection<C, X>> {
        self.connections.get_mut(conn.slot())?.as_mut().filter(|c| c.conn == conn)
    }

    /// Slots in the table of connections, free ones among them.
    pub fn slots(&self) -> usize {
        self.connections.len()
    }

    /// The connection of a slot.
    pub fn at(&self, slot: usize) -> Option<&PooledConnection<C, X>> {
        self.connections.get(slot)?.as_ref()
    }

    /// The connection of a slot.
    pub fn at_mut(&mut self, slot: usize) -> Option<&mut PooledConnection<C, X>> {
        self.connections.get_mut(slot)?.as_mut()
    }

    /// Requests in flight on all connections.
    pub fn in_flight(&self) -> u64 {
        self.in_flight
    }

    /// Bytes of a response like the last one, when that is known beforehand.
    pub fn usual_response(&self) -> Option<usize> {
        C::usual_response(&self.shared)
    }

    /// Each connection may have so many requests in flight from now on.
    pub fn set_depth(&mut self, depth: u32) {
        self.options.depth = depth;
        self.connections.iter_mut().flatten().for_each(|connection| connection.depth = depth);
    }

    /// Sends requests on a connection. Returns the bytes.
    ///
    /// # Errors
    /// The connection is lost.
    #[inline]
    pub fn begin<T: Transport>(
        &mut self,
        conn: Conn,
        run: Run,
        requests: &mut impl Requests,
        transport: &mut T,
    ) -> Result<u64, NetError> {
        self.begin_on(conn, run, requests, &mut TransportWire { transport, conn })
    }

    /// As [`begin`](Pool::begin); the bytes go where the caller says.
    ///
    /// # Errors
    /// What `out` says.
    #[inline]
    pub fn begin_on(
        &mut self,
        conn: Conn,
        run: Run,
        requests: &mut impl Requests,
        out: &mut impl Out,
    ) -> Result<u64, NetError> {
        let closing_after = self.options.per_connection.is_some();
        let Some(connection) = self.get_mut(conn) else { return Ok(0) };
        connection.budget = connection.budget.saturating_sub(run.count);
        let last = closing_after && connection.budget == 0;
        let sent = connection.conversation.begin(run, last, requests, out);
        self.in_flight += u64::from(run.count);
        sent
    }

    /// Gives up one request that is in flight, if its connection can do without its response. Says whether it was. What
    /// the peer has to be told leaves with [`send_pending`](Pool::send_pending).
    pub fn cancel(&mut self, conn: Conn, first: u64) -> bool {
        let cancelled = self.get_mut(conn).and_then(|connection| connection.conversation.cancel(first));
        self.in_flight -= cancelled.map_or(0, |run| u64::from(run.count));
        cancelled.is_some()
    }

    /// Sends what a connection has to say beside requests, and what of requests had to wait. Returns the bytes of requests.
    ///
    /// # Errors
    /// The connection is lost.
    #[inline]
    pub fn send_pending<T: Transport>(
        &mut self,
        conn: Conn,
        requests: &mut impl Requests,
        transport: &mut T,
    ) -> Result<u64, NetError> {
        self.send_pending_on(conn, requests, &mut TransportWire { transport, conn })
    }

    /// As [`send_pending`](Pool::send_pending); the bytes go where the caller says.
    ///
    /// # Errors
    /// What `out` says.
    #[inline]
    pub fn send_pending_on(
        &mut self,
        conn: Conn,
        requests: &mut impl Requests,
        out: &mut impl Out,
    ) -> Result<u64, NetError> {
        let Some(connection) = self.get_mut(conn) else { return Ok(0) };
        connection.conversation.send_pending(requests, out)
    }

    /// Reads what came on a connection.
    #[inline]
    pub fn receive<T, E>(&mut self, data: Data, now: Time, transport: &mut T, events: &mut E) -> PoolReceived
    where
        T: Transport,
        E: Responses<Reading = C::Reading> + Settle,
    {
        let conn = data.conn();
        let Pool { connections, shared, options, .. } = self;
        let connection = connections.get_mut(conn.slot()).and_then(Option::as_mut).filter(|c| c.conn == conn);
        let Some(connection) = connection else {
            transport.receive(data, |_| ());
            return PoolReceived { at: now, answered: 0, next: PoolAction::Nothing };
        };
        let conversation = &mut connection.conversation;
        let (before, answers) = (conversation.in_flight(), conversation.answers());
        let (mut read, mut at) = (Ok(()), now);
        let after = transport.receive_or_discard(data, |piece| {
            if read.is_err() {
                return Ahead::default();
            }
            at = at.max(T::received_by(now));
            read = match piece {
                ReceivedPiece::Bytes(bytes) => {
                    events.received(C::payload_bytes(bytes));
                    conversation.handle_bytes(at, bytes, shared, events)
                }
                ReceivedPiece::Discarded(bytes) => {
                    events.received(bytes as usize);
                    conversation.handle_discarded(at, bytes, shared, events)
                }
            };
            conversation.ahead(events)
        });
        let next = match (read, after) {
            (Err(loss), _) => PoolAction::Lose(loss),
            (Ok(()), After::Ended) => PoolAction::Lose(conversation.handle_end(at, events)),
            (Ok(()), After::Failed(error)) => PoolAction::Lose(Loss::Net(error)),
            (Ok(()), After::Gone) => PoolAction::Nothing,
            (Ok(()), After::Open) => PoolAction::Fill,
        };
        self.in_flight -= u64::from(before - conversation.in_flight());
        let answers_now = conversation.answers();
        let answered = answers_now - answers;
        if answered > 0 {
            connection.depth = options.depth;
        }
        let done = connection.is_done();
        if answered > 0 {
            self.opening.fruitful();
            self.learnt.answered(answers_now);
        }
        self.take_back(conn, events);
        let next = if done && matches!(next, PoolAction::Fill) { PoolAction::Retire } else { next };
        PoolReceived { at, answered, next }
    }

    /// Takes a connection out: it is closed, or will be.
    pub fn remove(&mut self, conn: Conn) -> Option<PooledConnection<C, X>> {
        let entry = self.connections.get_mut(conn.slot())?;
        let connection = if entry.as_ref().is_some_and(|c| c.conn == conn) { entry.take() } else { None };
        let connection = connection?;
        if !connection.established {
            self.opening.answered();
        }
        self.opening.closed();
        Some(connection)
    }

    /// Takes a connection out and gives each of its requests up.
    pub fn abandon(&mut self, connection: &mut PooledConnection<C, X>, mut each: impl FnMut(&Run)) {
        connection.conversation.abandon(|run, _| {
            self.in_flight -= u64::from(run.count);
            each(&run);
        });
    }

    /// Notes a connection that has room for requests, unless it is noted.
    #[inline]
    pub fn note_ready(&mut self, conn: Conn) {
        let Some(connection) = self.get_mut(conn) else { return };
        if !connection.listed && connection.room() > 0 {
            connection.listed = true;
            self.ready.push_back(conn);
        }
    }

    /// Connections noted that had room for requests; some may be gone.
    pub fn ready(&self) -> usize {
        self.ready.len()
    }

    /// The next of them.
    pub fn next_ready(&mut self) -> Option<Conn> {
        let conn = self.ready.pop_front()?;
        if let Some(connection) = self.get_mut(conn) {
            connection.listed = false;
        }
        Some(conn)
    }

    /// Requests that were to leave on a connection that was lost just before wait for another one.
    pub fn put_off(&mut self, run: Run, why: Failure) {
        self.again.push_back(Waiting { run, end: RequestsEnd::Lost(why) });
    }

    /// Whether requests have to go out again.
    #[inline]
    pub fn has_again(&self) -> bool {
        !(self.again.is_empty() && self.suspects.is_empty())
    }

    /// The requests that go out again next.
    pub fn first_again(&self) -> Option<&Run> {
        self.again.front().map(|waiting| &waiting.run)
    }

    /// The next requests to go out again on this connection, `most` of them at most, and how they were lost. Those that met two closing
    /// connections in a row wait for a new one, if there is room for it: many may be closing at once.
    pub fn next_again(&mut self, conn: Conn, most: u32, has_room: bool) -> Option<(Run, RequestsEnd)> {
        if let Some(suspect) = self.next_suspect(conn) {
            return Some(suspect);
        }
        let unlucky = self.again.front()?.run.stamp.in_vain > 0;
        let connection = self.get_mut(conn)?;
        let answers = connection.conversation.answers();
        if unlucky && answers > 0 && has_room {
            return None;
        }
        if connection.conversation.in_flight() == 0 {
            connection.again_at = Some(answers);
        }
        pop(&mut self.again, most)
    }

    /// A request that has to be alone, for a connection that is idle. No other follows it until it has its response.
    fn next_suspect(&mut self, conn: Conn) -> Option<(Run, RequestsEnd)> {
        if self.suspects.is_empty() {
            return None;
        }
        let connection = self.get_mut(conn).filter(|c| c.conversation.in_flight() == 0)?;
        connection.again_at = Some(connection.conversation.answers());
        connection.depth = 1;
        connection.drains = false;
        let next = pop(&mut self.suspects, 1);
        if self.suspects.is_empty() {
            self.connections.iter_mut().flatten().for_each(|connection| connection.drains = false);
        }
        next
    }

    /// The next requests to go out again, `most` of them at most; the caller does not send them.
    pub fn pop_again(&mut self, most: u32) -> Option<Run> {
        let next = pop(&mut self.again, most).or_else(|| pop(&mut self.suspects, most));
        next.map(|(run, _)| run)
    }

    /// Gives up all requests that have to go out again, with what each was lost for.
    pub fn give_up_again(&mut self, mut each: impl FnMut(&Run, Failure)) {
        let again = std::mem::take(&mut self.again);
        for Waiting { run, end } in again.into_iter().chain(std::mem::take(&mut self.suspects)) {
            each(&run, end.failure());
        }
    }

    /// Requests that wait to go out again and whose time is over failed for what they were lost for.
    pub fn expire_again(&mut self, now: Time, events: &mut impl Settle) {
        let timeout_ns = self.timeout_ns();
        for waiting in [&mut self.again, &mut self.suspects] {
            if !waiting.iter().any(|waiting| waiting.run.stamp.expired(now, timeout_ns)) {
                continue;
            }
            waiting.retain(|Waiting { run, end }| {
                let expired = run.stamp.expired(now, timeout_ns);
                if expired {
                    let words = "no connection to send it again on within the time-out";
                    events.settled(run, Settled::Failed(end.failure()), words);
                }
                !expired
            });
        }
    }

    fn timeout_ns(&self) -> u64 {
        u64::try_from(self.options.timeout.as_nanos()).unwrap_or(u64::MAX)
    }
}

/// The next requests that wait, `most` of them at most.
fn pop(waiting: &mut VecDeque<Waiting>, most: u32) -> Option<(Run, RequestsEnd)> {
    let Waiting { mut run, end } = waiting.pop_front()?;
    if run.count > most {
        let rest = Run { first: run.first + u64::from(most), count: run.count - most, ..run };
        waiting.push_front(Waiting { run: rest, end });
        run.count = most;
    }
    Some((run, end))
}
