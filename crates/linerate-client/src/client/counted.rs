//! Requests whose responses are only counted, at the rate of `linerate load`: runs of requests, and whole responses that
//! are compared instead of read.

use std::future::poll_fn;
use std::ops::AddAssign;
use std::task::{Context, Poll};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use linerate_http::client::{HeadCache, HeadView, Rendered, StreamTemplate, Template, Values};
use linerate_net::epoll::Epoll;
use linerate_net::{Close, Conn, Data, Event, NetError, Time, Transport};

use super::driver::{self, Turns, Watched};
use super::error::{Error, ErrorDetail};
use super::limits::{LEAVING, ROOM_PAUSE, ROUNDS, SWEEP_MOST};
use super::mover::{self, lacks_room};
use super::options::{CallOptions, Protocol};
use super::secure::Secure;
use super::target::Target;
use super::template::Compiled;
use crate::conversation::{
    Alike, BodyPart, Out, Requests, Responses, Settle, Settled, TransportWire, Whole, Whose,
};
use crate::{
    Any, Conversation, Expired, H1, Loss, Pool, PoolAction, PoolOptions, PoolReceived, Run, Stamp,
    connect_words,
};

/// Outcomes of counted requests. `responses + failed + unknown + unsent` is the number asked for.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Counted {
    /// Whole responses.
    pub responses: u64,
    /// Of them, by the first digit of the status: 1xx (only 101) at index 1, to 5xx at index 5.
    pub by_class: [u64; 10],
    /// Requests that failed.
    pub failed: u64,
    /// Requests that are not idempotent and got no response.
    pub unknown: u64,
    /// Requests that never left, because no connection could be opened any more.
    pub unsent: u64,
    /// Requests sent again.
    pub resent: u64,
    /// Bytes received.
    pub received: u64,
    /// From the first attempt to connect to the last end.
    pub elapsed: Duration,
    /// Why the first of those that failed did, in words.
    pub first_failure: Option<String>,
}

/// Counts responses.
struct Counting<'a>(&'a mut Counted);

impl Counting<'_> {
    fn count(&mut self, run: &Run, status: u16) {
        let count = u64::from(run.count);
        self.0.responses += count;
        self.0.by_class[usize::from(status / 100) % 10] += count;
    }
}

impl Responses for Counting<'_> {
    type Reading = ();

    fn wants_parts(&self) -> bool {
        false
    }

    fn received(&mut self, bytes: usize) {
        self.0.received += bytes as u64;
    }

    fn head(&mut self, (): &mut (), _: u16, _: &HeadView<'_>) -> Whose {
        Whose::Matched
    }

    fn body(&mut self, (): &mut (), _: u16, _: &[u8]) {}

    fn looks_on(&self, (): &(), _: u16) -> bool {
        false
    }

    fn answered(&mut self, run: &Run, _: u16, (): &mut (), response: &Whole) {
        self.count(run, response.status);
    }

    fn alike(&mut self, run: &Run, responses: &Alike<'_>) {
        self.count(run, responses.status);
    }

    fn unsolicited(&mut self, _: Time, _: &[u8], _: u64) {}
}

impl Settle for Counting<'_> {
    fn settled(&mut self, run: &Run, how: Settled, detail: &str) {
        let is_unknown = match how {
            Settled::Failed(_) => false,
            Settled::Reset(_) | Settled::TimedOut => !run.idempotent,
            Settled::Unknown => true,
        };
        if is_unknown { &mut self.0.unknown } else { &mut self.0.failed }.add_assign(u64::from(run.count));
        self.0.first_failure.get_or_insert_with(|| detail.to_owned());
    }
}

/// Renders requests, all of a run together.
struct Rendering {
    template: Template,
    streamed: Option<StreamTemplate>,
    scratch: Vec<u8>,
    /// Where each request is the same: as many of them as a connection may carry at once.
    copies: Vec<u8>,
    seed: u64,
    now_ms: u64,
}

impl Rendering {
    fn new((template, streamed): Compiled, depth: u32, seed: u64) -> Rendering {
        let copies = template.fixed().map(|one| one.repeat(depth as usize)).unwrap_or_default();
        let now_ms = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |d| d.as_millis() as u64);
        Rendering { template, streamed, scratch: Vec::new(), copies, seed, now_ms }
    }
}

impl Requests for Rendering {
    fn write_h1(&mut self, run: &Run, _: bool, out: &mut impl Out) -> Result<u64, NetError> {
        if let Some(one) = self.template.fixed() {
            let bytes = &self.copies[..self.copies.len().min(one.len() * run.count as usize)];
            return out.send(bytes).map(|()| bytes.len() as u64);
        }
        self.scratch.clear();
        for seq in run.first..run.end() {
            let values = Values { seq, now_ms: self.now_ms, seed: self.seed, row: &[] };
            self.template.render(&values, &mut self.scratch);
        }
        out.send(&self.scratch).map(|()| self.scratch.len() as u64)
    }

    fn fixed_block(&self, _: u16) -> Option<&[u8]> {
        self.streamed.as_ref()?.fixed()
    }

    fn write_h2(&mut self, run: &Run, block: &mut Vec<u8>, mut body: impl FnMut(BodyPart<'_>)) {
        let Rendering { streamed, scratch, seed, now_ms, .. } = self;
        let Some(template) = streamed else { return };
        let values = Values { seq: run.first, now_ms: *now_ms, seed: *seed, row: &[] };
        template.render_block(&values, block);
        template.render_body(&values, scratch, |part| match part {
            Rendered::Copied(bytes) => body(BodyPart::Copied(bytes)),
            Rendered::Shared(bytes, range) => body(BodyPart::Shared(bytes, None, range)),
        });
    }
}

/// A counted run over a transport.
struct CountedRun<T: Transport, C: Conversation<Reading = ()>> {
    transport: T,
    options: CallOptions,
    pool: Pool<C, ()>,
    /// Whether requests have streams of their own, once a connection has agreed on its protocol.
    streams: Option<bool>,
    rendering: Rendering,
    to: Vec<std::net::SocketAddr>,
    next: u64,
    count: u64,
    persistent: bool,
    connects_failed: u32,
    /// No attempt before: the transport had no room.
    connect_after: Time,
    next_sweep: Time,
    counted: Counted,
    events: Vec<Event>,
}

impl<T: Transport, C: Conversation<Reading = ()>> CountedRun<T, C> {
    fn new(
        transport: T,
        shared: C::Shared,
        options: &CallOptions,
        to: Vec<std::net::SocketAddr>,
        template: Compiled,
        count: u64,
    ) -> Self {
        let depth = options.depth;
        let (streams, most) = match options.protocol {
            Protocol::Http1 => (Some(false), options.pipes),
            Protocol::Http2 | Protocol::Http3 => (Some(true), options.h2_connections + LEAVING),
            Protocol::Either | Protocol::AltSvc => {
                (None, options.pipes.max(options.h2_connections) + LEAVING)
            }
        };
        let connections = u32::try_from(count.max(1)).unwrap_or(u32::MAX).min(most);
        let timeout = options.timeout;
        let pool = PoolOptions { connections, depth, per_connection: None, timeout, resend: options.resend };
        CountedRun {
            transport,
            pool: Pool::new(pool, shared),
            streams,
            rendering: Rendering::new(template, depth, options.seed),
            options: options.clone(),
            to,
            next: 0,
            count,
            persistent: false,
            connects_failed: 0,
            connect_after: Time::ZERO,
            next_sweep: Time::ZERO,
            counted: Counted::default(),
            events: Vec::new(),
        }
    }

    fn has_more(&self) -> bool {
        self.next < self.count || self.pool.has_again()
    }

    fn is_over(&self) -> bool {
        !self.has_more() && self.pool.in_flight() == 0
    }

    fn open_some(&mut self, now: Time) -> bool {
        if now < self.connect_after {
            return false;
        }
        let missing = if self.has_more() { self.pool.opening.this_turn(now) } else { 0 };
        let missing = missing.min(self.missing_pipes());
        for _ in 0..missing {
            let nth = self.pool.opening.attempt() as usize;
            let options = self.options.connecting();
            match self.transport.connect(self.to[nth % self.to.len()], &options) {
                Ok(conn) => self.pool.add(conn, now),
                Err(error) if lacks_room(&error, &self.transport, self.pool.opening.open()) => {
                    self.connect_after = now + ROOM_PAUSE;
                    // Connections whose time to close is over leave in a turn.
                    return true;
                }
                Err(error) => {
                    self.connect_failed(&connect_words(&error), now);
                    return false;
                }
            }
        }
        missing > 0
    }

    /// As of calls: of HTTP/2 one connection serves many requests.
    fn missing_pipes(&self) -> u32 {
        let most = match self.streams {
            None => 1,
            Some(true) => self.options.h2_connections,
            Some(false) => self.options.pipes,
        };
        let leaving = (0..self.pool.slots())
            .filter_map(|slot| self.pool.at(slot))
            .filter(|pipe| pipe.established && pipe.conversation.is_leaving());
        most.saturating_sub(self.pool.opening.open() - leaving.count() as u32)
    }

    /// After some attempts in a row, with no connection left, the rest stays unsent.
    fn connect_failed(&mut self, why: &str, now: Time) {
        self.connects_failed += 1;
        let alone = self.pool.opening.open() == 0;
        self.pool.opening.failed(now, alone);
        self.counted.first_failure.get_or_insert_with(|| why.to_owned());
        if alone && self.connects_failed >= self.options.connect_attempts {
            self.counted.unsent += self.count - self.next;
            self.next = self.count;
            let failed = &mut self.counted.failed;
            self.pool.give_up_again(|run, _| *failed += u64::from(run.count));
        }
    }

    fn fill(&mut self, conn: Conn, now: Time) {
        loop {
            let persistent = self.persistent;
            let Some(pipe) = self.pool.get_mut(conn) else { return };
            let in_flight = pipe.conversation.in_flight();
            let streams = pipe.conversation.has_streams();
            // A request that is not idempotent is never pipelined (RFC 9112 section 9.3.2).
            let many = streams || (persistent && self.rendering.template.is_idempotent());
            let room = pipe.room().min(if many { u32::MAX } else { 1_u32.saturating_sub(in_flight) });
            if room == 0 {
                return;
            }
            let has_room = self.pool.has_again() && self.missing_pipes() > 0;
            let run = match self.pool.next_again(conn, room, has_room) {
                Some((run, _)) => {
                    self.counted.resent += u64::from(run.count);
                    run
                }
                None if self.next < self.count => self.new_run(room, now),
                None => return,
            };
            if let Err(error) = self.pool.begin(conn, run, &mut self.rendering, &mut self.transport) {
                return self.send_failed(conn, error, now);
            }
        }
    }

    fn new_run(&mut self, room: u32, now: Time) -> Run {
        let count = u32::try_from(self.count - self.next).unwrap_or(u32::MAX).min(room);
        let (expect, idempotent) =
            (self.rendering.template.expect(), self.rendering.template.is_idempotent());
        let stamp = Stamp { sent: now, due: now, in_vain: 0, refused: 0, measured: false };
        let run = Run { stamp, first: self.next, count, kind: 0, expect, idempotent };
        self.next += u64::from(count);
        run
    }

    fn handle(&mut self, event: Event, now: Time) {
        match event {
            Event::Connected { conn, at, .. } => {
                if let Err(why) = self.pool.agreed(conn, self.transport.protocol(conn)) {
                    return self.refuse(conn, &why.to_string(), now);
                }
                if let Some(pipe) = self.pool.get_mut(conn) {
                    self.streams = Some(pipe.conversation.has_streams());
                }
                if self.pool.established(conn, at).is_some() {
                    self.connects_failed = 0;
                    self.send_pending(conn, now);
                    self.fill(conn, now);
                }
            }
            Event::Readable { conn, data } => self.readable(conn, data, now),
            Event::Failed { conn, error } => self.lose(conn, &Loss::Net(error), now),
            Event::Drained { .. } | Event::Woken | Event::Accepted { .. } => {}
        }
    }

    /// The server agreed to no protocol that we speak.
    fn refuse(&mut self, conn: Conn, why: &str, now: Time) {
        if self.pool.remove(conn).is_some() {
            self.transport.close(conn, Close::Abort);
            self.connect_failed(why, now);
        }
    }

    fn send_pending(&mut self, conn: Conn, now: Time) {
        if let Err(error) = self.pool.send_pending(conn, &mut self.rendering, &mut self.transport) {
            self.send_failed(conn, error, now);
        }
    }

    /// A pipe took nothing more. Responses that had arrived before are counted first: the server may have answered,
    /// and then closed with requests unread.
    fn send_failed(&mut self, conn: Conn, error: NetError, now: Time) {
        let rest = self.transport.unread(conn).map(|data| self.receive(data, now).next);
        let loss = if let Some(PoolAction::Lose(loss)) = rest { loss } else { Loss::Net(error) };
        self.lose(conn, &loss, now);
    }

    fn receive(&mut self, data: Data, now: Time) -> PoolReceived {
        self.pool.receive(data, now, &mut self.transport, &mut Counting(&mut self.counted))
    }

    fn readable(&mut self, conn: Conn, data: Data, now: Time) {
        let received = self.receive(data, now);
        match received.next {
            PoolAction::Nothing => {}
            PoolAction::Lose(loss) => self.lose(conn, &loss, now),
            PoolAction::Retire => self.retire(conn),
            PoolAction::Fill => {
                self.persistent |= received.answered > 0;
                self.send_pending(conn, now);
                self.fill(conn, now);
            }
        }
    }

    /// The server takes no more requests on it. Of HTTP/2 our end closes at once: the server may wait for that.
    fn retire(&mut self, conn: Conn) {
        let Some(mut pipe) = self.pool.remove(conn) else { return };
        let transport = &mut self.transport;
        let how = pipe.conversation.leave(&mut TransportWire { transport, conn });
        self.transport.close(conn, how);
    }

    fn lose(&mut self, conn: Conn, loss: &Loss, now: Time) {
        let Some(mut pipe) = self.pool.remove(conn) else { return };
        let loss = &pipe.conversation.why(loss.clone());
        let reason = self.transport.reason(conn);
        self.transport.close(conn, loss.close());
        if !pipe.established {
            return self.connect_failed(&reason.unwrap_or_else(|| loss.words()), now);
        }
        self.pool.settle(&mut pipe, loss, &loss.words(), now, &mut Counting(&mut self.counted));
    }

    fn sweep(&mut self, now: Time) {
        self.next_sweep = now + (self.options.timeout / 20).min(SWEEP_MOST);
        for slot in 0..self.pool.slots() {
            let expired = self.pool.expire(slot, now, &mut Counting(&mut self.counted));
            let Some(pipe) = self.pool.at_mut(slot) else { continue };
            let hangs = !pipe.established && now - pipe.since >= self.options.connect_timeout;
            let conn = pipe.conn;
            if expired == Expired::Connection || hangs {
                self.lose(conn, &Loss::TimedOut, now);
            } else {
                self.send_pending(conn, now);
                self.fill(conn, now);
            }
        }
        self.pool.expire_again(now, &mut Counting(&mut self.counted));
    }

    /// Until nothing can be done before `turns` wakes the task.
    fn poll(&mut self, cx: &mut Context<'_>, turns: &mut Turns) -> Poll<Result<(), Error>> {
        let mut forced = false;
        for _ in 0..ROUNDS {
            let now = self.transport.now();
            if now >= self.next_sweep {
                self.sweep(now);
            }
            forced |= self.open_some(now) | mover::is_turn_due(&mut self.transport);
            if self.is_over() {
                return Poll::Ready(Ok(()));
            }
            let mut events = std::mem::take(&mut self.events);
            let found = turns.turn(cx, &mut self.transport, forced, &mut events);
            let now = self.transport.now();
            for event in events.drain(..) {
                self.handle(event, now);
            }
            self.events = events;
            if found.map_err(|e| Error::Connect(ErrorDetail::by(e.to_string(), e)))? {
                continue;
            }
            let open = self.pool.opening.next(now).max(self.connect_after);
            let until = self.next_sweep.min(if self.has_more() { open } else { Time::NEVER });
            let until = until.max(now + Duration::from_millis(1)).min(self.transport.next_turn());
            forced = turns.wait(cx, now, until);
            if !forced && !self.is_over() {
                return Poll::Pending;
            }
        }
        cx.waker().wake_by_ref();
        Poll::Pending
    }
}

/// Sends `count` requests of a template and counts their responses.
pub(super) async fn run(
    options: &CallOptions,
    target: Target,
    secure: Option<&Secure>,
    template: &super::template::Template,
    count: u64,
) -> Result<Counted, Error> {
    let no_runtime = |_| Error::Connect("no tokio runtime\nhint: await calls inside one".into());
    tokio::runtime::Handle::try_current().map_err(no_runtime)?;
    let mut options = options.clone();
    (options.pipes, options.h2_connections) = (options.usual_pipes(), options.usual_h2_connections());
    let compiled = template.compile(&target, &options)?;
    let to = target
        .look_up()
        .await
        .map_err(|e| Error::Connect(ErrorDetail::by(format!("the name cannot be looked up: {e}"), e)))?;
    if to.is_empty() {
        return Err(Error::Connect("the name has no address".into()));
    }
    let no_loop = |e: std::io::Error| Error::Connect(ErrorDetail::by(format!("no event loop: {e}"), e));
    if secure.is_none() && options.protocol == Protocol::Http1 {
        let (epoll, ready) = driver::open(options.pipes).map_err(no_loop)?;
        let run: CountedRun<Epoll, H1<()>> =
            CountedRun::new(epoll, HeadCache::new(), &options, to, compiled, count);
        return finish(run, ready).await;
    }
    #[cfg(feature = "quic")]
    if options.protocol == Protocol::Http3 {
        let (transport, ready) = super::by_quic::open(&options, secure).map_err(no_loop)?;
        let run: CountedRun<_, crate::H3<()>> =
            CountedRun::new(transport, crate::H3Shared::default(), &options, to, compiled, count);
        return finish(run, ready).await;
    }
    let (wire, ready, profile) = driver::open_secure(&options, secure).map_err(no_loop)?;
    options.profile = profile;
    let shared = mover::shared_by(&options);
    let run: CountedRun<_, Any<()>> = CountedRun::new(wire, shared, &options, to, compiled, count);
    finish(run, ready).await
}

async fn finish<T: Transport, C: Conversation<Reading = ()>>(
    mut run: CountedRun<T, C>,
    ready: Watched,
) -> Result<Counted, Error> {
    let count = run.count;
    let mut turns = Turns::new(ready);
    let begun = run.transport.now();
    poll_fn(|cx| run.poll(cx, &mut turns)).await?;
    let mut counted = run.counted;
    counted.elapsed = run.transport.now() - begun;
    match counted.first_failure.take() {
        Some(why) if counted.unsent == count && count > 0 => Err(Error::Connect(why.into())),
        first_failure => Ok(Counted { first_failure, ..counted }),
    }
}
