//! Moves a client's bytes between its callers and its calls, under any driver of the transport.

use std::future::Future;
use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use linerate_http::client::HeadCache;
use linerate_net::layer::Layered;
use linerate_net::{Event, NetError, NetErrorKind, Time, Transport, TransportLimits};
use tracing::{Span, debug, debug_span};

use super::board::{Command, SharedBoard};
use super::calls::{CallReading, Calls};
use super::limits::{CLOSING_TURN, H2_WINDOW, LARGEST_REQUEST_BODY, LOOKUP_PAUSE, UNSENT_MARK, WORTH_A_PIPE};
use super::moderation::Moderation;
use super::options::{CallOptions, Protocol};
use super::secure::Secure;
use super::target::{Target, addresses_of};
use super::waiting::Waits;
use crate::conversation::Conversation;
use crate::route::RouteLayer;
use crate::{Any, AnyShared, H2Shared, Speaks};

/// A lookup of the server's name.
type Lookup = Pin<Box<dyn Future<Output = io::Result<Vec<SocketAddr>>> + Send>>;

/// Limits of a transport for `connections` connections.
pub(super) fn limits(connections: u32) -> TransportLimits {
    TransportLimits {
        // Those that close are still there for a moment.
        connections: connections.saturating_mul(4).saturating_add(64),
        // TLS adds to what is sent.
        unsent_bytes: LARGEST_REQUEST_BODY + LARGEST_REQUEST_BODY / 64 + 4 * UNSENT_MARK,
        ..TransportLimits::default()
    }
}

/// Whether no connection could be opened only because earlier ones are still closing. `open`: those of the pool.
pub(super) fn lacks_room(error: &NetError, transport: &impl Transport, open: u32) -> bool {
    error.kind == NetErrorKind::NoMemory && transport.unfinished() > open as usize
}

/// Whether a turn has something to do though no descriptor is ready.
pub(super) fn is_turn_due(transport: &mut impl Transport) -> bool {
    let next = transport.next_turn();
    next != Time::NEVER && next <= transport.now()
}

/// Connections at once, at most.
pub(super) fn connections(options: &CallOptions) -> u32 {
    options.pipes.max(options.h2_connections)
}

/// Protocol state that the connections of a client share.
pub(super) fn shared_by(options: &CallOptions) -> AnyShared {
    let speaks = match (options.protocol, options.secure) {
        (Protocol::Http2, false) => Speaks::Http2,
        (Protocol::Http2, true) => Speaks::AgreedHttp2,
        _ => Speaks::Either,
    };
    AnyShared::new(speaks, HeadCache::new(), H2Shared::new(H2_WINDOW))
}

/// The mover of a client's bytes over any transport.
pub(super) type Moving<T> = Mover<Layered<T, RouteLayer>, Any<CallReading>>;

pub(super) fn mover_over<T: Transport>(
    transport: T,
    shared: Arc<SharedBoard>,
    options: &CallOptions,
    target: Target,
    secure: Option<&Secure>,
) -> Moving<T> {
    let mut options = options.clone();
    let (layer, profile) = Secure::layer(secure, options.proxy.as_ref());
    options.profile = profile;
    let layered = Layered::new(transport, layer, limits(connections(&options)));
    let both = shared_by(&options);
    let calls = Calls::new(layered, options, target.addresses(), both);
    Mover::new(shared, calls, target)
}

/// Callers and calls of one client. Its owner turns the transport between [`begin`](Mover::begin) and
/// [`end`](Mover::end).
pub(super) struct Mover<T: Transport, C: Conversation<Reading = CallReading>> {
    shared: Arc<SharedBoard>,
    pub(super) calls: Calls<T, C>,
    target: Target,
    pub(super) span: Span,
    lookup: Option<Lookup>,
    lookup_after: Time,
    lookup_since: Time,
    /// Of the name of an alternative.
    other_lookup: Option<Lookup>,
    commands: Vec<Command>,
    /// Callers that wait for a place, and how long at most.
    waits: Waits,
    timeout: Duration,
    /// When it last began.
    begun: Time,
    moderation: Moderation,
    /// Of the transport's last turn.
    pub(super) events: Vec<Event>,
    wakers: Vec<Waker>,
}

impl<T: Transport, C: Conversation<Reading = CallReading>> Mover<T, C> {
    pub(super) fn new(shared: Arc<SharedBoard>, mut calls: Calls<T, C>, target: Target) -> Self {
        calls.share_limit(&shared);
        Mover {
            shared,
            span: debug_span!(parent: None, "linerate_client", server = %target.shown()),
            target,
            lookup: None,
            lookup_after: Time::ZERO,
            lookup_since: Time::ZERO,
            other_lookup: None,
            commands: Vec::new(),
            waits: Waits::default(),
            timeout: calls.timeout(),
            begun: Time::ZERO,
            moderation: Moderation::default(),
            events: Vec::new(),
            wakers: Vec::new(),
            calls,
        }
    }

    /// Takes what callers want. `false`: no client is left, and all connections are closed.
    pub(super) fn is_wanted(&mut self) -> bool {
        if self.shared.take_commands(&mut self.commands) {
            return true;
        }
        self.calls.close();
        self.calls.tell();
        false
    }

    /// Looks the name up when it has to be known, or none of its addresses could be reached.
    fn look_up(&mut self, cx: &mut Context<'_>, now: Time) {
        let wanted = self.calls.unfinished() > 0 && self.calls.wants_addresses();
        if self.lookup.is_none() && wanted && now >= self.lookup_after && self.target.has_name() {
            self.lookup_after = now + LOOKUP_PAUSE;
            self.lookup_since = now;
            self.lookup = Some(Box::pin(self.target.clone().look_up()));
        }
        let Some(lookup) = &mut self.lookup else { return };
        let Poll::Ready(found) = lookup.as_mut().poll(cx) else { return };
        self.lookup = None;
        self.calls.looked_up(now - self.lookup_since, now);
        match found {
            Ok(addresses) if !addresses.is_empty() => self.calls.set_addresses(addresses),
            Ok(_) => self.calls.unreachable(&format!("{} has no address", self.target.looked_up())),
            Err(error) => {
                let name = self.target.looked_up();
                self.calls.unreachable(&format!("{name} cannot be looked up: {error}"));
            }
        }
    }

    /// Looks up the name of an alternative that the server announced.
    fn look_up_other(&mut self, cx: &mut Context<'_>, now: Time) {
        if let Some((host, port)) = self.calls.take_lookup() {
            self.other_lookup = Some(Box::pin(addresses_of(host, port)));
        }
        let Some(lookup) = &mut self.other_lookup else { return };
        if let Poll::Ready(found) = lookup.as_mut().poll(cx) {
            self.other_lookup = None;
            let found = found.inspect_err(|why| debug!(%why, "the alternative's name cannot be looked up"));
            self.calls.alternative_found(found.unwrap_or_else(|_| Vec::new()), now);
        }
    }

    /// Hears what has arrived, where that comes before anything else. The thread may have been busy elsewhere: a
    /// response that has arrived is not late, and a connection that the server has closed takes no request.
    fn listen_first(&mut self) -> io::Result<()> {
        let now = self.calls.transport().now();
        let paused = now - self.begun >= WORTH_A_PIPE;
        self.begun = now;
        let may_be_wrong = if self.calls.is_idle() { !self.commands.is_empty() } else { paused };
        if may_be_wrong || self.calls.deadline() <= now {
            self.calls.transport().turn(Some(Time::ZERO), &mut self.events)?;
            self.end();
        }
        Ok(())
    }

    /// Does what callers want; says whether the transport needs a turn though nothing woke it.
    ///
    /// # Errors
    /// The transport is broken.
    pub(super) fn begin(&mut self, cx: &mut Context<'_>) -> io::Result<bool> {
        self.listen_first()?;
        let now = self.calls.transport().now();
        for command in self.commands.drain(..) {
            match command {
                Command::Wait(waiter, own) => self.waits.add(waiter, own.left(self.timeout), now),
                Command::Submit(id, request, since) => {
                    self.calls.submit(id, request, since.unwrap_or(now));
                }
                Command::Stream(id, request, upload, since) => {
                    self.calls.submit_streaming(id, request, upload, since.unwrap_or(now));
                }
                Command::Give(id, piece) => self.calls.give(id, piece, now),
                Command::GiveEnd(id) => self.calls.give_end(id),
                Command::FailUpload(id, why) => self.calls.fail_upload(id, why),
                Command::Taken(id, bytes) => self.calls.taken(id, bytes, now),
                Command::Cancel(id) => self.calls.cancel(id),
            }
        }
        self.waits.expire(now, &mut self.wakers);
        self.wakers.drain(..).for_each(Waker::wake);
        self.look_up(cx, now);
        self.calls.tick(now);
        self.look_up_other(cx, now);
        Ok(self.calls.wants_turn())
    }

    /// Handles what the transport said, and tells callers.
    pub(super) fn end(&mut self) {
        if !self.events.is_empty() {
            let now = self.calls.transport().now();
            let (in_flight, ended) = (self.in_flight(), self.calls.done().len());
            for event in self.events.drain(..) {
                self.calls.handle(event, now);
            }
            self.moderation.read((self.calls.done().len() - ended) as u32, in_flight, now);
            self.calls.tick(now);
        }
        self.calls.tell_failures();
        self.shared.deliver_news(self.calls.news(), &mut self.wakers);
        self.shared.deliver(self.calls.done(), &mut self.wakers);
    }

    fn in_flight(&self) -> u32 {
        u32::try_from(self.calls.in_flight()).unwrap_or(u32::MAX)
    }

    /// How long responses may collect before the next turn, if they may. Streams share a connection, and their
    /// responses come together as it is.
    pub(super) fn collects(&mut self) -> Option<Duration> {
        if self.calls.on_streams() != Some(false) {
            return None;
        }
        let in_flight = self.in_flight();
        let transport = self.calls.transport();
        // It has something to do by itself.
        if transport.next_turn() != Time::NEVER {
            return None;
        }
        let now = transport.now();
        self.moderation.collect(in_flight, now)
    }

    /// When to look again though nothing happened.
    pub(super) fn until(&mut self, now: Time) -> Time {
        let open = self.calls.open() as usize;
        let closing = self.calls.transport().unfinished() > open;
        let until = if closing { now + CLOSING_TURN } else { Time::NEVER };
        let looks_up = self.target.has_name() && self.lookup.is_none();
        let until = if looks_up && self.calls.wants_addresses() && self.calls.unfinished() > 0 {
            until.min(self.lookup_after.max(now + Duration::from_millis(1)))
        } else {
            until
        };
        until.min(self.calls.deadline()).min(self.waits.next()).min(self.calls.transport().next_turn())
    }

    /// Nothing is left to do, unless a caller wants something; says whether it may sleep.
    pub(super) fn sleep(&mut self, waker: &Waker) -> bool {
        self.calls.tell();
        let Mover { shared, calls, .. } = self;
        shared.sleep(waker, |statistics| calls.write_statistics(statistics))
    }

    /// Writes the counts of a client that is busy.
    pub(super) fn publish(&mut self) {
        self.calls.tell();
        let Mover { shared, calls, .. } = self;
        shared.publish(|statistics| calls.write_statistics(statistics));
    }
}

impl<T: Transport, C: Conversation<Reading = CallReading>> Drop for Mover<T, C> {
    fn drop(&mut self) {
        self.calls.abandon();
        self.shared.deliver(self.calls.done(), &mut self.wakers);
        self.shared.end();
    }
}
