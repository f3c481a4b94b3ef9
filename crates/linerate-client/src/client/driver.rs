//! The task that moves a client's bytes: an epoll instance of our own, which tokio wakes it for.

use std::future::Future;
use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use linerate_http::client::HeadCache;
use linerate_net::epoll::{Epoll, TimerFd};
use linerate_net::layer::Layered;
use linerate_net::{Event, Profile, Time, Transport};
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;
use tokio::runtime::Handle;
use tokio::time::Sleep;

use super::board::SharedBoard;
use super::calls::{CallReading, Calls};
use super::limits::ROUNDS;
use super::mover::{Mover, connections, is_turn_due, limits, mover_over};
use super::options::{CallOptions, Protocol};
use super::secure::Secure;
use super::target::Target;
use crate::H1;
use crate::conversation::Conversation;
use crate::route::RouteLayer;

/// An epoll instance for `connections` connections, and its descriptor, by which tokio knows that it has events.
pub(super) fn open(connections: u32) -> io::Result<(Epoll, Watched)> {
    let epoll = Epoll::with_limits(limits(connections))?;
    let ready = watched(Arc::new(epoll.descriptor()?))?;
    Ok((epoll, ready))
}

/// A descriptor of an epoll instance that tokio waits for.
pub(super) type Watched = AsyncFd<Arc<OwnedFd>>;

/// A descriptor that tokio waits for until it can be read.
pub(super) fn watched<F: AsFd + AsRawFd>(descriptor: F) -> io::Result<AsyncFd<F>> {
    // What replaces it is unsafe, because a descriptor that is not its owner's may be closed or swapped. What owns
    // its descriptor does neither.
    #[expect(deprecated, reason = "both callers own their descriptor")]
    AsyncFd::with_interest(descriptor, Interest::READABLE)
}

/// Waits for an epoll instance inside tokio.
pub(super) struct Turns {
    descriptor: Arc<OwnedFd>,
    /// `None` while responses collect, and a moment after: tokio would wake for each of them, to no purpose.
    ready: Option<Watched>,
    timer: Option<Pin<Box<Sleep>>>,
    timer_at: Time,
    /// While responses collect: tokio's own timers know milliseconds.
    collecting: Option<AsyncFd<TimerFd>>,
    is_collecting: bool,
}

impl Turns {
    pub(super) fn new(ready: Watched) -> Turns {
        let descriptor = Arc::clone(ready.get_ref());
        Turns {
            descriptor,
            ready: Some(ready),
            timer: None,
            timer_at: Time::NEVER,
            collecting: None,
            is_collecting: false,
        }
    }

    /// Lets responses collect for this long: until then [`collects`](Turns::collects) holds.
    ///
    /// # Errors
    /// No descriptor is left for a timer.
    fn collect(&mut self, time: Duration) -> io::Result<()> {
        self.ready = None;
        if self.collecting.is_none() {
            self.collecting = Some(watched(TimerFd::new()?)?);
        }
        if let Some(timer) = &self.collecting {
            timer.get_ref().set(time)?;
        }
        self.is_collecting = true;
        Ok(())
    }

    /// Whether responses still collect; then the task is woken when that is over.
    ///
    /// # Errors
    /// tokio has ended.
    fn collects(&mut self, cx: &mut Context<'_>) -> io::Result<bool> {
        let Some(timer) = self.collecting.as_ref().filter(|_| self.is_collecting) else { return Ok(false) };
        match timer.poll_read_ready(cx) {
            Poll::Ready(guard) => guard?.clear_ready(),
            Poll::Pending => return Ok(true),
        }
        self.is_collecting = false;
        Ok(false)
    }

    /// One turn, if there may be news or `forced`; says whether there were events.
    ///
    /// # Errors
    /// The transport is broken.
    pub(super) fn turn<T: Transport>(
        &mut self,
        cx: &mut Context<'_>,
        transport: &mut T,
        forced: bool,
        events: &mut Vec<Event>,
    ) -> io::Result<bool> {
        let Some(ready) = &self.ready else {
            transport.turn(Some(Time::ZERO), events)?;
            if !events.is_empty() {
                return Ok(true);
            }
            let ready = self.ready.insert(watched(Arc::clone(&self.descriptor))?);
            return Ok(ready.poll_read_ready(cx)?.is_ready());
        };
        match ready.poll_read_ready(cx) {
            Poll::Ready(Ok(mut guard)) => {
                transport.turn(Some(Time::ZERO), events)?;
                if events.is_empty() {
                    guard.clear_ready();
                    // Registers the waker, unless something came meanwhile.
                    return Ok(ready.poll_read_ready(cx)?.is_ready());
                }
            }
            Poll::Ready(Err(error)) => return Err(error),
            Poll::Pending if forced => transport.turn(Some(Time::ZERO), events)?,
            Poll::Pending => {}
        }
        Ok(!events.is_empty())
    }

    /// Waits until then at most; says whether that is over already.
    pub(super) fn wait(&mut self, cx: &mut Context<'_>, now: Time, until: Time) -> bool {
        if until <= now {
            return true;
        }
        if until == Time::NEVER {
            self.timer_at = until;
            return false;
        }
        if self.timer_at <= now {
            // It went off, or is about to: connections that are closing may have to end in a turn.
            self.timer_at = Time::NEVER;
            return true;
        }
        // A timer that goes off too early costs a look; to move it each time would cost more.
        if self.timer.is_none() || self.timer_at > until {
            self.timer_at = until;
            let timer = self.timer.get_or_insert_with(|| Box::pin(tokio::time::sleep(Duration::ZERO)));
            timer.as_mut().reset(tokio::time::Instant::now() + (until - now));
        }
        self.timer.as_mut().is_some_and(|timer| timer.as_mut().poll(cx).is_ready())
    }
}

/// Bytes as they are, or through a proxy's tunnel and TLS.
type Wire = Layered<Epoll, RouteLayer>;

/// An epoll instance with tunnels and TLS over it, and the profile of the connections.
pub(super) fn open_secure(
    options: &CallOptions,
    secure: Option<&Secure>,
) -> io::Result<(Wire, Watched, Profile)> {
    let connections = connections(options);
    let (epoll, ready) = open(connections)?;
    let (layer, profile) = Secure::layer(secure, options.proxy.as_ref());
    Ok((Layered::new(epoll, layer, limits(connections)), ready, profile))
}

/// Starts the task of a client. In clear text HTTP/1.1 has a driver of its own, that has nothing to decide.
pub(super) fn spawn(
    runtime: &Handle,
    shared: Arc<SharedBoard>,
    options: &CallOptions,
    target: Target,
    secure: Option<&Secure>,
) -> io::Result<()> {
    if secure.is_none() && options.protocol == Protocol::Http1 {
        let (epoll, ready) = open(options.pipes)?;
        let calls: Calls<Epoll, H1<CallReading>> =
            Calls::new(epoll, options.clone(), target.addresses(), HeadCache::new());
        runtime.spawn(Driver::new(Mover::new(shared, calls, target), ready));
        return Ok(());
    }
    #[cfg(feature = "quic")]
    if options.protocol == Protocol::Http3 {
        let (transport, ready) = super::by_quic::open(options, secure)?;
        let mover = super::by_quic::mover_by(transport, shared, options, target);
        runtime.spawn(Driver::new(mover, ready));
        return Ok(());
    }
    let (epoll, ready) = open(connections(options))?;
    #[cfg(feature = "quic")]
    if options.protocol == Protocol::AltSvc {
        let mover = super::by_quic::mover_beside(epoll, shared, options, target, secure)?;
        runtime.spawn(Driver::new(mover, ready));
        return Ok(());
    }
    runtime.spawn(Driver::new(mover_over(epoll, shared, options, target, secure), ready));
    Ok(())
}

/// The task of a client.
struct Driver<T: Transport, C: Conversation<Reading = CallReading>> {
    mover: Mover<T, C>,
    turns: Turns,
    /// How long responses collect once callers had their turn.
    collect: Option<Duration>,
}

/// What a client's task does after a round.
enum AfterRound {
    /// There may be more, or responses collect first.
    Again,
    /// Nothing was found.
    Waits,
    /// Callers hand new calls over, which leave before responses collect.
    OthersTurn,
}

impl<T: Transport, C: Conversation<Reading = CallReading>> Driver<T, C> {
    fn new(mover: Mover<T, C>, ready: Watched) -> Self {
        Driver { mover, turns: Turns::new(ready), collect: None }
    }

    /// Does what there is to do; says what may be next.
    fn round(&mut self, cx: &mut Context<'_>, forced: bool) -> io::Result<AfterRound> {
        let Driver { mover, turns, collect } = self;
        let forced = mover.begin(cx)? | forced | is_turn_due(mover.calls.transport());
        if let Some(time) = collect.take() {
            turns.collect(time)?;
            return Ok(AfterRound::Again);
        }
        let found = turns.turn(cx, mover.calls.transport(), forced, &mut mover.events)?;
        mover.end();
        if !found {
            return Ok(AfterRound::Waits);
        }
        *collect = mover.collects();
        Ok(if collect.is_some() { AfterRound::OthersTurn } else { AfterRound::Again })
    }
}

/// Nothing in it is pinned.
impl<T: Transport, C: Conversation<Reading = CallReading>> Unpin for Driver<T, C> {}

impl<T: Transport, C: Conversation<Reading = CallReading>> Future for Driver<T, C> {
    type Output = ();

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        let this = self.get_mut();
        let span = this.mover.span.clone();
        let _entered = span.enter();
        let mut forced = false;
        for _ in 0..ROUNDS {
            match this.turns.collects(cx) {
                Ok(false) => {}
                Ok(true) => return Poll::Pending,
                // Without its transport nothing can be done: the callers get an error.
                Err(_) => return Poll::Ready(()),
            }
            if !this.mover.is_wanted() {
                return Poll::Ready(());
            }
            match this.round(cx, forced) {
                Ok(AfterRound::Again) => continue,
                Ok(AfterRound::Waits) => {}
                Ok(AfterRound::OthersTurn) => break,
                Err(_) => return Poll::Ready(()),
            }
            let now = this.mover.calls.transport().now();
            let until = this.mover.until(now);
            forced = this.turns.wait(cx, now, until);
            if !forced && this.mover.sleep(cx.waker()) {
                return Poll::Pending;
            }
        }
        // Others have their turn.
        this.mover.publish();
        cx.waker().wake_by_ref();
        Poll::Pending
    }
}
