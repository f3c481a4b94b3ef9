//! The calls of one program to one server: queue, pipes, matching and retries as one state machine. Sans-IO but for the
//! transport it is given, so that it runs in memory and in virtual time as on sockets.
//!
//! * `request`: whether requests can be sent, and their bytes.
//! * `filling`: which request takes which pipe, and when a pipe is opened.
//! * `idle`: how long a server keeps an idle connection.
//! * `growth`: how many pipes the pace of responses is worth.
//! * `reaching`: which address it is opened to.
//! * `second_way`: which alternative that the server announced has its turn, and `following`: connections to it.
//! * `sharing`: the limit for the connections of several clients.
//! * `response`: which response belongs to which call.
//! * `streaming`: bodies that come and go piece by piece.
//! * `ending`: what becomes of calls whose pipe is lost or whose time is over.

mod ending;
mod filling;
mod following;
mod growth;
mod idle;
mod queues;
mod reaching;
mod request;
mod response;
mod second_way;
mod sharing;
mod streamed;
mod streaming;
mod table;
#[cfg(test)]
mod tests;

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::{Request, Version};
use linerate_base::Random;
use linerate_net::{Close, Conn, Data, Event, NetError, Time, Transport};
use linerate_tls::TlsInfo;
use tracing::{debug, warn};

pub use response::{CallReading, Trailers};
pub use streamed::News;
pub use table::Done;

use self::growth::Pace;
use self::idle::IdleLimit;
use self::queues::{Candidate, Queues};
use self::reaching::{Attempt, Round};
use self::request::{Nature, OutgoingRequests};
use self::response::{HeadReader, PartialResponse, PipeTimes, Reader, ReadingRules, SeenByReader};
use self::second_way::SecondWay;
use self::table::{CallTable, OpenCall, Terms, Unanswered};
use super::connection::{ConnectionInfo, ConnectionTls};
use super::connection_limit::{LimitWait, LimitedConnections};
use super::error::{Error, Phase};
use super::limits::{DEPTH, LEAVING, PIPES, SLOW_FACTOR, SLOW_LEAST, SWEEP_LEAST, SWEEP_MOST, WORTH_A_PIPE};
use super::meter::Meter;
use super::options::{CallOptions, Protocol, RequestOptions};
use super::proxy::ConnectFailure;
use super::statistics::{PipeStatistics, Statistics};
use super::timings::Timings;
use crate::conversation::Conversation;
use crate::{Loss, Pool, PoolAction, PoolOptions, PooledConnection};

/// The state of a pipe beside its conversation.
#[derive(Debug, Default)]
struct PipeState {
    /// It carries a request that must be alone.
    alone: bool,
    /// It takes nothing more until it is idle: a request that must be alone waits for it.
    reserved: bool,
    /// The response at its head is slow.
    slow: bool,
    /// The number of the filling that gave it requests last.
    filled: u64,
    /// When it was last idle, or a response came.
    progress: Time,
    /// When bytes or the end came last, and how long nothing had come before.
    heard: Time,
    silence: Duration,
    /// What a call is told of it.
    times: PipeTimes,
    /// The version of HTTP that it speaks.
    version: Version,
    connection: Option<ConnectionInfo>,
    /// Responses since it was idle last.
    since_idle: u64,
    /// Since when the rest of a streamed response is discarded.
    discarding: Option<Time>,
    /// The attempt that opened it.
    attempt: Option<Attempt>,
    /// The number of the alternative that it leads to, if it goes the second way.
    alternative: Option<u32>,
    statistics: PipeStatistics,
}

impl PipeState {
    /// What its next response tells of it.
    fn connection(&self) -> Option<ConnectionInfo> {
        let connection = self.connection.clone()?;
        Some(ConnectionInfo { is_reused: self.times.is_reused, ..connection })
    }

    /// The address it leads to.
    fn to(&self) -> Option<SocketAddr> {
        Some(self.attempt?.to)
    }
}

/// Requests and responses of the connections that had one place, one after the other.
#[derive(Clone, Copy, Debug, Default)]
struct Carried {
    requests: u64,
    responses: u64,
}

/// The calls of one program to one server.
///
/// The owner hands calls over with [`submit`](Calls::submit), passes the transport's events to
/// [`handle`](Calls::handle), calls [`tick`](Calls::tick) after both and at [`deadline`](Calls::deadline), and takes
/// what has ended from [`done`](Calls::done).
///
/// ```
/// use bytes::Bytes;
/// use linerate_client::H1;
/// use linerate_client::client::{CallOptions, CallReading, Calls};
/// use linerate_http::client::HeadCache;
/// use linerate_net::mem::{Mem, MemOptions, PeerActions, PeerConn};
/// use linerate_net::{Time, Transport};
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// // A server in memory and in virtual time; `Epoll` and `Uring` take its place as they are.
/// let server = ([10, 0, 0, 1], 80).into();
/// let mut mem = Mem::new(MemOptions::default())?;
/// mem.serve(server, |_: Time, conn: PeerConn, _: &[u8], out: &mut PeerActions| {
///     out.send(conn, b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok");
/// })?;
/// let mut calls: Calls<Mem, H1<CallReading>> =
///     Calls::new(mem, CallOptions::default(), vec![server], HeadCache::new());
/// let now = calls.transport().now();
/// calls.submit(0, http::Request::get("/").body(Bytes::new())?, now);
/// let mut events = Vec::new();
/// while calls.unfinished() > 0 {
///     let now = calls.transport().now();
///     calls.tick(now);
///     let until = if calls.wants_turn() { now } else { calls.deadline() };
///     calls.transport().turn(Some(until), &mut events)?;
///     let now = calls.transport().now();
///     events.drain(..).for_each(|event| calls.handle(event, now));
/// }
/// let done = calls.done().pop().expect("it has ended");
/// assert_eq!((done.id, &done.result?.into_body()[..]), (0, &b"ok"[..]));
/// # Ok(())
/// # }
/// ```
pub struct Calls<T: Transport, C: Conversation<Reading = CallReading>> {
    transport: T,
    options: CallOptions,
    rules: ReadingRules,
    pool: Pool<C, PipeState>,
    calls: CallTable,
    queues: Queues,
    heads: HeadReader,
    out: OutgoingRequests,
    /// Frames of HTTP/2.
    frames: OutgoingRequests,
    done: Vec<Done>,
    news: Vec<News>,
    /// Calls whose bodies are streams; some may have ended.
    streaming: Vec<u64>,
    /// Those of them whose request has not left whole, and their connections.
    uploading: Vec<(u64, Conn)>,
    /// Whether requests have streams of their own, once a connection has agreed on its protocol.
    streams: Option<bool>,
    /// Connections that have something to say beside requests.
    speak: Vec<Conn>,
    addresses: Vec<SocketAddr>,
    /// Which of them is next, without end.
    address: usize,
    round: Round,
    second_way: SecondWay,
    /// Where several clients share a limit.
    limited: Option<LimitedConnections>,
    limit_wait: LimitWait,
    /// All addresses have failed since they were looked up, and none was reached.
    unreached: bool,
    /// The server keeps connections open: requests may follow each other (RFC 9112 section 9.3.2).
    persistent: bool,
    /// Attempts to connect that failed since the last one that did not.
    connects_failed: u32,
    /// No attempt before.
    connect_after: Time,
    random: Random,
    /// How long responses take, smoothed, nanoseconds.
    usual_ns: u64,
    pace: Pace,
    idle: IdleLimit,
    /// How long the last lookup of the name took, and when it ended.
    lookup: Option<(Duration, Time)>,
    /// Pipes that the calls of now are worth, by HTTP/1.1.
    wanted: u32,
    /// Pipes that have requests in flight, when last looked at.
    in_use: u32,
    next_sweep: Time,
    /// When the time of the first call is over that has a time of its own.
    next_own: Time,
    wants_turn: bool,
    statistics: Statistics,
    /// By the places of connections.
    carried: Vec<Carried>,
    meter: Meter,
    /// The values last reported to the meter, kept for their memory.
    told: Statistics,
    /// Pipes to choose from, in the order of choice; empty between turns.
    candidates: Vec<Candidate>,
    /// Fillings so far.
    fillings: u64,
}

impl<T: Transport, C: Conversation<Reading = CallReading>> Calls<T, C> {
    /// `shared`: what the conversations of the pipes share.
    pub fn new(
        transport: T,
        options: CallOptions,
        addresses: Vec<SocketAddr>,
        shared: C::Shared,
    ) -> Calls<T, C> {
        let connections = match options.protocol {
            Protocol::Http1 => options.pipes.clamp(1, PIPES),
            _ => options.pipes.max(options.h2_connections).clamp(1, PIPES) + LEAVING,
        };
        let streams = match options.protocol {
            Protocol::Http1 => Some(false),
            Protocol::Http2 | Protocol::Http3 => Some(true),
            Protocol::Either | Protocol::AltSvc => None,
        };
        let pool = PoolOptions {
            connections,
            depth: options.depth.max(options.streams).clamp(1, DEPTH),
            per_connection: None,
            timeout: options.timeout,
            resend: options.resend,
        };
        let second_way = SecondWay::new(&options);
        let rules = ReadingRules::of(&options, second_way.is_followed);
        Calls {
            transport,
            rules,
            pool: Pool::new(pool, shared),
            calls: CallTable::default(),
            queues: Queues::default(),
            heads: HeadReader::default(),
            out: OutgoingRequests::default(),
            frames: OutgoingRequests::default(),
            streams,
            news: Vec::new(),
            streaming: Vec::new(),
            uploading: Vec::new(),
            speak: Vec::new(),
            done: Vec::new(),
            addresses: reaching::interleave(addresses),
            address: 0,
            round: Round::default(),
            second_way,
            limited: None,
            limit_wait: LimitWait::default(),
            unreached: false,
            persistent: false,
            connects_failed: 0,
            connect_after: Time::ZERO,
            random: Random::new(options.seed),
            usual_ns: 0,
            pace: Pace::default(),
            idle: IdleLimit::default(),
            lookup: None,
            wanted: options.usual_pipes(),
            in_use: 0,
            next_sweep: Time::NEVER,
            next_own: Time::NEVER,
            wants_turn: false,
            statistics: Statistics::default(),
            candidates: Vec::new(),
            fillings: 0,
            carried: Vec::new(),
            meter: Meter::new(&options),
            told: Statistics::default(),
            options,
        }
    }

    /// The transport, for its turns.
    pub fn transport(&mut self) -> &mut T {
        &mut self.transport
    }

    /// Hands a call over. The low 32 bits of `id` must be small and free; no other call ever has the same `id`. Its time
    /// counts from `accepted`; [`RequestOptions`] among its extensions hold for it.
    pub fn submit(&mut self, id: u64, request: Request<Bytes>, accepted: Time) {
        self.statistics.calls += 1;
        if let Err(error) = request::check(&request, &self.options) {
            return self.done.push(Done { id, result: Err(error) });
        }
        let nature = Nature::of(&request, self.options.tag.is_some());
        let terms = self.terms(&request, accepted);
        self.calls.insert(OpenCall::new(id, request, nature, terms));
        let Queues { usual, alone, .. } = &mut self.queues;
        if nature.alone { alone } else { usual }.push_back(id);
    }

    fn terms(&mut self, request: &Request<Bytes>, accepted: Time) -> Terms {
        let mut terms =
            Terms { accepted, timeout: self.options.timeout, is_own: false, order: self.statistics.calls };
        if !request.extensions().is_empty() {
            let own = RequestOptions::of(request);
            terms.accepted = Time::from_nanos(accepted.nanos_since(Time::ZERO + own.waited));
            if let Some(timeout) = own.timeout {
                (terms.timeout, terms.is_own) = (timeout, true);
                self.next_own = self.next_own.min(terms.accepted + timeout);
            }
        }
        terms
    }

    /// Abandons a call. One that was not sent never is; the response to one that was is read and
    /// discarded.
    pub fn cancel(&mut self, id: u64) {
        let Some(call) = self.calls.take(id) else { return };
        self.statistics.cancelled += 1;
        self.forget(&call);
    }

    /// Takes an event of the transport.
    pub fn handle(&mut self, event: Event, now: Time) {
        match event {
            Event::Connected { conn, at, tcp_at } => self.connected(conn, at, tcp_at, now),
            Event::Readable { conn, data } => self.readable(conn, data, now),
            Event::Failed { conn, error } => self.lose(conn, &Loss::Net(error), now),
            Event::Drained { conn } if self.has_streams(conn) => self.speak.push(conn),
            Event::Drained { .. } | Event::Woken | Event::Accepted { .. } => {}
        }
    }

    /// Does what is due now, and sends calls that were handed over.
    pub fn tick(&mut self, now: Time) {
        if now >= self.next_sweep {
            self.sweep(now);
        }
        self.cut_uploads(now);
        self.fill(now);
        if !self.uploading.is_empty() {
            self.pump_uploads(now);
        }
        while let Some(conn) = self.speak.pop() {
            self.send_pending(conn, now);
        }
        self.settle_limit(now);
        self.plan_sweep(now);
    }

    /// The time of a call that has no time of its own.
    pub fn timeout(&self) -> Duration {
        self.options.timeout
    }

    /// When to call [`tick`](Calls::tick) though nothing happened.
    pub fn deadline(&self) -> Time {
        self.next_sweep
    }

    /// Calls that have ended since the owner took them last.
    pub fn done(&mut self) -> &mut Vec<Done> {
        &mut self.done
    }

    /// Calls that have not ended.
    pub fn unfinished(&self) -> usize {
        self.calls.len()
    }

    /// Requests that have left and have no response yet.
    pub fn in_flight(&self) -> u64 {
        self.pool.in_flight()
    }

    /// Whether connections are open and none has a request in flight.
    pub fn is_idle(&self) -> bool {
        self.open() > 0 && self.pool.in_flight() == 0
    }

    /// Pipes open or being opened.
    pub fn open(&self) -> u32 {
        self.pool.opening.open()
    }

    /// Whether no address could be reached, so that the name may have new ones.
    pub fn wants_addresses(&self) -> bool {
        self.unreached || self.addresses.is_empty()
    }

    /// New addresses of the server.
    pub fn set_addresses(&mut self, addresses: Vec<SocketAddr>) {
        if !addresses.is_empty() {
            self.addresses = reaching::interleave(addresses);
            self.address = 0;
            self.unreached = false;
            if self.round.is_over(&self.addresses) {
                self.round.next();
            }
        }
    }

    /// The server cannot be found: what waits has failed.
    pub fn unreachable(&mut self, why: &str) {
        let by_proxy = self.options.proxy.as_ref().map(|_| None);
        self.fail_waiting(&ConnectFailure { words: why.to_owned(), net: None, by_proxy }, None);
    }

    /// Whether the transport needs a turn though nothing woke it: a connection is being opened.
    pub fn wants_turn(&mut self) -> bool {
        std::mem::take(&mut self.wants_turn)
    }

    /// Writes the counts so far.
    pub fn write_statistics(&mut self, into: &mut Statistics) {
        let mut pipes = std::mem::take(&mut into.pipes);
        pipes.clear();
        self.statistics.learnt_limit = self.pool.learnt.limit().0;
        self.statistics.waiting = (self.calls.len() as u64).saturating_sub(self.pool.in_flight());
        for slot in 0..self.pool.slots() {
            let Some(pipe) = self.pool.at_mut(slot) else { continue };
            pipes.push(PipeStatistics {
                established: pipe.established,
                in_flight: pipe.conversation.in_flight(),
                slow: pipe.beside.slow,
                ..pipe.beside.statistics
            });
        }
        into.clone_from(&self.statistics);
        into.pipes = pipes;
    }

    /// Tells the recorder of the crate `metrics` the counts so far, if the feature `metrics` is on.
    pub fn tell(&mut self) {
        if !Meter::TELLS {
            return;
        }
        let mut told = std::mem::take(&mut self.told);
        self.write_statistics(&mut told);
        let Calls { meter, pool, carried, .. } = self;
        let in_flight = |place: usize| pool.at(place).map_or(0, |pipe| pipe.conversation.in_flight());
        let pipes = carried.iter().enumerate();
        meter.tell(&told, pipes.map(|(place, c)| (c.requests, c.responses, in_flight(place))));
        self.told = told;
    }

    /// Tells the recorder of calls that failed and that the owner has not taken yet.
    pub fn tell_failures(&self) {
        if Meter::TELLS {
            self.done.iter().filter_map(|done| done.result.as_ref().err()).for_each(|e| self.meter.failed(e));
        }
    }

    fn carried(&mut self, conn: Conn) -> &mut Carried {
        if self.carried.len() <= conn.slot() {
            self.carried.resize(conn.slot() + 1, Carried::default());
        }
        &mut self.carried[conn.slot()]
    }

    /// Counts so far.
    pub fn statistics(&mut self) -> Statistics {
        let mut statistics = Statistics::default();
        self.write_statistics(&mut statistics);
        statistics
    }

    fn connected(&mut self, conn: Conn, at: Time, tcp_at: Time, now: Time) {
        if let Err(why) = self.pool.agreed(conn, self.transport.protocol(conn)) {
            if let Some(pipe) = self.pool.remove(conn) {
                self.transport.close(conn, Close::Abort);
                if pipe.beside.alternative.is_some() {
                    return self.alternative_unreached(&pipe, &why.to_string(), now);
                }
                let failure = ConnectFailure::of_server(why.to_string());
                self.connect_failed(pipe.beside.attempt, failure, now);
            }
            return;
        }
        let Some(since) = self.pool.established(conn, at) else { return };
        self.pace.handshake(tcp_at - since);
        let opened = (tcp_at - since, at - tcp_at);
        let is_alternative = self.pool.get_mut(conn).is_some_and(|pipe| pipe.beside.alternative.is_some());
        if !is_alternative {
            (self.connects_failed, self.unreached) = (0, false);
            self.round.forget_failures();
        }
        self.statistics.connected += 1;
        self.reached(conn);
        if let Some(pipe) = self.pool.get_mut(conn) {
            (pipe.beside.progress, pipe.beside.heard) = (now, now);
            pipe.beside.times.number = self.statistics.connected - 1;
            (pipe.beside.times.connect, pipe.beside.times.tls) = opened;
            let streams = pipe.conversation.has_streams();
            if !is_alternative {
                self.streams = Some(streams);
            }
            pipe.beside.version = match self.transport.protocol(conn) {
                Some(b"h3") => Version::HTTP_3,
                _ if streams => Version::HTTP_2,
                _ => Version::HTTP_11,
            };
            if self.options.connection_info {
                let to = pipe.beside.to();
                let about = self.transport.about(conn).and_then(|about| about.downcast::<TlsInfo>().ok());
                pipe.beside.connection = Some(ConnectionInfo {
                    number: pipe.beside.times.number,
                    is_reused: false,
                    local: self.transport.local(conn).filter(|_| self.options.unix.is_none()),
                    peer: to.filter(|_| self.options.unix.is_none()),
                    is_proxied: self.options.proxy.is_some(),
                    protocol: pipe.beside.version,
                    tls: about.map(|info| Arc::new(ConnectionTls::of(&info))),
                });
            }
            debug!(conn = conn.slot(), to = ?pipe.beside.to(), version = ?pipe.beside.version, "connected");
        }
        self.send_pending(conn, now);
    }

    fn readable(&mut self, conn: Conn, data: Data, now: Time) {
        let (next, partial) = self.receive(conn, data, now);
        match next {
            PoolAction::Nothing => {}
            PoolAction::Lose(loss) => self.lose(conn, &loss, now),
            PoolAction::Retire => self.retire(conn),
            PoolAction::Fill if self.has_streams(conn) => self.send_pending(conn, now),
            PoolAction::Fill => self.check_partial(conn, partial, now),
        }
    }

    fn has_streams(&mut self, conn: Conn) -> bool {
        self.pool.get_mut(conn).is_some_and(|pipe| pipe.conversation.has_streams())
    }

    /// Reads responses, and says what the pipe is to do next.
    fn receive(&mut self, conn: Conn, data: Data, now: Time) -> (PoolAction, PartialResponse) {
        let Calls {
            transport,
            pool,
            rules,
            heads,
            calls,
            done,
            news,
            meter,
            pace,
            in_use,
            options,
            lookup,
            limit_wait,
            ..
        } = self;
        let (mut streams, mut waits_since, mut version) = (false, None, Version::HTTP_11);
        let mut is_alternative = false;
        if let Some(pipe) = pool.get_mut(conn) {
            (version, is_alternative) = (pipe.beside.version, pipe.beside.alternative.is_some());
            pipe.beside.silence = now - std::mem::replace(&mut pipe.beside.heard, now);
            streams = pipe.conversation.has_streams();
            if !streams && !pipe.conversation.in_response() {
                let oldest = pipe.conversation.oldest().and_then(|run| calls.get(run.first));
                let sent = oldest.filter(|call| call.upload().is_none()).and_then(|call| call.sent);
                waits_since = sent.map(|sent| pipe.beside.progress.max(sent + pace.way()));
            }
        }
        let seen = SeenByReader::default();
        let times = match options.timings {
            true => pool.get_mut(conn).map(|pipe| (pipe.beside.times, pipe.beside.progress)),
            false => None,
        };
        let (lookup, limit_wait) = (*lookup, *limit_wait);
        let connection = pool.get_mut(conn).and_then(|pipe| pipe.beside.connection());
        let mut reader = Reader {
            rules,
            version,
            is_alternative,
            heads,
            calls,
            done,
            news,
            meter,
            now,
            seen,
            times,
            connection,
            lookup,
            limit_wait,
        };
        let before = reader.done.len();
        let received = pool.receive(data, now, transport, &mut reader);
        let seen = reader.seen;
        let begun = received.answered.max(u32::from(seen.partial.id != 0 || seen.partial.held > 0));
        if let Some(since) = waits_since.filter(|_| begun > 0) {
            pace.took((now - since) / begun, *in_use);
        }
        let is_surplus = seen.unsolicited > 0 && matches!(received.next, PoolAction::Lose(Loss::Unsolicited));
        self.count(&seen);
        if received.answered > 0 {
            self.answered(conn, received.answered, before, now);
        }
        if is_surplus && !streams && !seen.in_doubt {
            self.doubt(conn, before);
        }
        self.act_on(conn, received.next, seen, now)
    }

    /// Calls that a read ended or that go elsewhere; says what the pipe is to do next.
    fn act_on(
        &mut self,
        conn: Conn,
        next: PoolAction,
        seen: SeenByReader,
        now: Time,
    ) -> (PoolAction, PartialResponse) {
        self.requeue(seen.robbed);
        if let Some((services, age)) = &seen.announced {
            self.second_way.heard(services, *age, now);
        }
        self.send_elsewhere(seen.misdirected, now);
        self.pause_full(seen.full);
        for (id, trouble) in seen.useless {
            self.pool.cancel(conn, id);
            self.end(id, Err(trouble.error()));
        }
        let malformed = |words: &str| PoolAction::Lose(Loss::Malformed(words.to_owned()));
        let next = match next {
            PoolAction::Fill if seen.mismatch => {
                malformed("a response on this connection belonged to no request of it")
            }
            PoolAction::Fill if seen.in_doubt => {
                malformed("the end of a response on this connection is in doubt")
            }
            next => next,
        };
        (next, seen.partial)
    }

    /// A pipe took nothing more. Responses that had arrived before are read first: the server may have answered, and
    /// then closed with requests unread.
    fn send_failed(&mut self, conn: Conn, error: NetError, now: Time) {
        let rest = self.transport.unread(conn).map(|data| self.receive(conn, data, now).0);
        let loss = if let Some(PoolAction::Lose(loss)) = rest { loss } else { Loss::Net(error) };
        self.lose(conn, &loss, now);
    }

    fn count(&mut self, seen: &SeenByReader) {
        self.persistent |= seen.persistent;
        if let Some(seconds) = seen.keep_alive {
            self.idle.announced(Duration::from_secs(u64::from(seconds)));
        }
        self.statistics.responses += seen.answered - seen.discarded.min(seen.answered);
        self.statistics.discarded += seen.discarded;
        self.statistics.out_of_order += seen.out_of_order;
        self.statistics.unsolicited += seen.unsolicited;
        if let Some(took) = seen.took_ns {
            let usual = self.usual_ns;
            self.usual_ns = if usual == 0 { took } else { usual - usual / 8 + took / 8 };
        }
    }

    /// `from`: the calls that have ended just now.
    fn answered(&mut self, conn: Conn, count: u32, from: usize, now: Time) {
        if self.options.timings {
            self.note_retransmits(conn, from);
        }
        let Some(pipe) = self.pool.get_mut(conn) else { return };
        pipe.beside.progress = now;
        pipe.beside.slow = false;
        pipe.beside.times.is_reused = true;
        pipe.beside.statistics.responses += u64::from(count);
        pipe.beside.since_idle += u64::from(count);
        pipe.beside.alone &= pipe.conversation.in_flight() > 0;
        if pipe.beside.alternative.is_some() {
            self.second_way.answered(pipe.beside.alternative);
        }
        self.carried(conn).responses += u64::from(count);
    }

    /// Tells the responses that came just now how many segments were sent again on their connection.
    fn note_retransmits(&mut self, conn: Conn, from: usize) {
        let Some(pipe) = self.pool.get_mut(conn) else { return };
        let Some(info) = self.transport.info(conn) else { return };
        let before = std::mem::replace(&mut pipe.beside.times.retransmits, info.retransmits);
        let responses = self.done[from..].iter_mut().filter_map(|done| done.result.as_mut().ok());
        for timings in responses.filter_map(|response| response.extensions_mut().get_mut::<Timings>()) {
            timings.retransmits = info.retransmits.saturating_sub(before);
        }
    }

    /// Looking the name up took so long, until now.
    pub fn looked_up(&mut self, took: Duration, now: Time) {
        self.lookup = Some((took, now));
    }

    /// More responses came on a connection than requests had left. Each since it was idle may belong to another request,
    /// unless there was only one. Their callers are told, as far as they have not got them; `from`: those that have
    /// ended just now.
    fn doubt(&mut self, conn: Conn, from: usize) {
        let Some(pipe) = self.pool.get_mut(conn) else { return };
        let (responses, to) = (pipe.beside.since_idle, pipe.beside.to());
        if responses < 2 || self.options.tag.is_some() {
            return;
        }
        self.statistics.doubtful += responses;
        warn!(conn = conn.slot(), ?to, responses, "more responses than requests: these may be mixed up");
        for done in &mut self.done[from..] {
            if done.result.is_ok() {
                let words = "more responses than requests came on its connection, which was closed";
                done.result = Err(Error::Mismatch(words.into()).at(to));
            }
        }
    }

    /// The response being read may be useless, or its call abandoned: its connection is read to the end only
    /// within limits.
    fn check_partial(&mut self, conn: Conn, partial: PartialResponse, now: Time) {
        let Some(pipe) = self.pool.get_mut(conn) else { return };
        if !pipe.conversation.in_response() {
            return;
        }
        match partial.trouble {
            Some(trouble) => {
                self.end(partial.id, Err(trouble.error()));
                self.lose(conn, &Loss::TimedOut, now);
            }
            None if partial.held > self.options.max_discarded && self.calls.get(partial.id).is_none() => {
                self.statistics.given_up += 1;
                self.lose(conn, &Loss::TimedOut, now);
            }
            None => {}
        }
    }

    /// The next sweep, if there is anything to wait for.
    fn plan_sweep(&mut self, now: Time) {
        if self.calls.len() == 0 && self.pool.in_flight() == 0 && !self.pool.has_again() {
            self.next_sweep = self.idle_until(now);
            return;
        }
        let o = &self.options;
        let shortest = o.timeout.min(o.first_byte_timeout).min(o.connect_timeout);
        let step = (shortest / 20).clamp(SWEEP_LEAST, SWEEP_MOST);
        let connect =
            if self.is_short_of_pipes() { self.connect_after.max(now + SWEEP_LEAST) } else { Time::NEVER };
        if self.next_sweep <= now || self.next_sweep > now + step {
            self.next_sweep = now + step;
        }
        if self.options.adapts && self.has_waiting() && self.pool.in_flight() > 0 {
            // A pipe may be slow by then.
            self.next_sweep = self.next_sweep.min(now + WORTH_A_PIPE);
        }
        self.next_sweep = self.next_sweep.min(connect).min(self.next_own.max(now + SWEEP_LEAST));
    }

    /// When the first connection has been idle for too long, or took too long to open.
    fn idle_until(&self, now: Time) -> Time {
        let o = &self.options;
        let end = |pipe: &PooledConnection<C, PipeState>| match pipe.established {
            true => {
                (pipe.beside.heard + self.usable_idle_of(pipe)).min(pipe.beside.progress + o.idle_timeout)
            }
            false => pipe.since + o.connect_timeout,
        };
        let ends = (0..self.pool.slots()).filter_map(|slot| self.pool.at(slot)).map(end);
        ends.min().map_or(Time::NEVER, |at| at.max(now + SWEEP_LEAST))
    }

    /// How long a connection may have been idle and still take a request. `alone`: one that is not idempotent.
    fn usable_idle(&self, alone: bool) -> Duration {
        self.idle.usable(alone, self.pace.way(), self.options.idle_timeout)
    }

    /// How long a response may be at the head of a pipe before it counts as slow: no first one comes sooner than the
    /// way takes.
    fn slow_after(&self) -> Duration {
        let usual = Duration::from_nanos(self.usual_ns.saturating_mul(u64::from(SLOW_FACTOR)));
        usual.max(SLOW_LEAST + 2 * self.pace.way())
    }
}
