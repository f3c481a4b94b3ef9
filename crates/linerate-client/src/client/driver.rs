//! The task that moves a client's bytes: an epoll instance of our own, which tokio wakes it for.

use std::future::Future;
use std::io;
use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use linerate_http::client::HeadCache;
use linerate_net::epoll::Epoll;
use linerate_net::{Event, Limits, Time, Transport};
use tokio::io::unix::AsyncFd;
use tokio::time::Sleep;

use super::board::{Command, SharedBoard};
use super::calls::{CallReading, Calls};
use super::limits::{CLOSING_TURN, LARGEST_REQUEST_BODY, LOOKUP_PAUSE, ROUNDS, UNSENT_MARK};
use super::options::CallOptions;
use super::target::Target;
use crate::H1;

/// A lookup of the server's name.
type Lookup = Pin<Box<dyn Future<Output = io::Result<Vec<SocketAddr>>> + Send>>;

/// An epoll instance for so many connections, and the descriptor by which tokio knows that it has news.
pub(super) fn open(connections: u32) -> io::Result<(Epoll, AsyncFd<OwnedFd>)> {
    let limits = Limits {
        // Those that close are still there for a moment.
        connections: connections.saturating_mul(4).saturating_add(64),
        unsent_bytes: LARGEST_REQUEST_BODY + 2 * UNSENT_MARK,
        ..Limits::default()
    };
    let epoll = Epoll::with_limits(limits)?;
    // What replaces it is unsafe, because a descriptor that is not its owner's may be closed or swapped. An `OwnedFd` is
    // neither.
    #[expect(deprecated, reason = "an `OwnedFd` is sound here")]
    let ready = AsyncFd::with_interest(epoll.descriptor()?, tokio::io::Interest::READABLE)?;
    Ok((epoll, ready))
}

/// Waits for an epoll instance inside tokio.
pub(super) struct Turns {
    ready: AsyncFd<OwnedFd>,
    timer: Option<Pin<Box<Sleep>>>,
    timer_at: Time,
}

impl Turns {
    pub(super) fn new(ready: AsyncFd<OwnedFd>) -> Turns {
        Turns { ready, timer: None, timer_at: Time::NEVER }
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
        match self.ready.poll_read_ready(cx) {
            Poll::Ready(Ok(mut guard)) => {
                transport.turn(Some(Time::ZERO), events)?;
                if events.is_empty() {
                    guard.clear_ready();
                    // Registers the waker, unless something came meanwhile.
                    return Ok(self.ready.poll_read_ready(cx)?.is_ready());
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
        // A timer that goes off too early costs a look; to move it each time would cost more.
        if self.timer.is_none() || self.timer_at > until || self.timer_at <= now {
            self.timer_at = until;
            let timer = self.timer.get_or_insert_with(|| Box::pin(tokio::time::sleep(Duration::ZERO)));
            timer.as_mut().reset(tokio::time::Instant::now() + (until - now));
        }
        self.timer.as_mut().is_some_and(|timer| timer.as_mut().poll(cx).is_ready())
    }
}

/// The task of a client.
pub(super) struct Driver {
    shared: Arc<SharedBoard>,
    calls: Calls<Epoll, H1<CallReading>>,
    turns: Turns,
    target: Target,
    lookup: Option<Lookup>,
    lookup_after: Time,
    commands: Vec<Command>,
    events: Vec<Event>,
    wakers: Vec<Waker>,
}

impl Driver {
    /// # Errors
    /// A descriptor is lacking.
    pub(super) fn new(shared: Arc<SharedBoard>, options: CallOptions, target: Target) -> io::Result<Driver> {
        let (epoll, ready) = open(options.pipes)?;
        let addresses = target.addresses();
        Ok(Driver {
            shared,
            calls: Calls::new(epoll, options, addresses, HeadCache::new()),
            turns: Turns::new(ready),
            target,
            lookup: None,
            lookup_after: Time::ZERO,
            commands: Vec::new(),
            events: Vec::new(),
            wakers: Vec::new(),
        })
    }

    /// Looks the name up when it has to be known, or none of its addresses could be reached.
    fn look_up(&mut self, cx: &mut Context<'_>, now: Time) {
        let wanted = self.calls.unfinished() > 0 && self.calls.wants_addresses();
        if self.lookup.is_none() && wanted && now >= self.lookup_after && self.target.has_name() {
            self.lookup_after = now + LOOKUP_PAUSE;
            self.lookup = Some(Box::pin(self.target.clone().look_up()));
        }
        let Some(lookup) = &mut self.lookup else { return };
        let Poll::Ready(found) = lookup.as_mut().poll(cx) else { return };
        self.lookup = None;
        match found {
            Ok(addresses) if !addresses.is_empty() => self.calls.set_addresses(addresses),
            Ok(_) => self.calls.unreachable("the name has no address"),
            Err(error) => self.calls.unreachable(&format!("the name cannot be looked up: {error}")),
        }
    }

    /// Does what there is to do; says whether there may be more.
    fn round(&mut self, cx: &mut Context<'_>, forced: bool) -> io::Result<bool> {
        let now = self.calls.transport().now();
        for command in self.commands.drain(..) {
            match command {
                Command::Submit(id, request) => self.calls.submit(id, request, now),
                Command::Cancel(id) => self.calls.cancel(id),
            }
        }
        self.look_up(cx, now);
        self.calls.tick(now);
        let forced = self.calls.wants_turn() || forced;
        let found = self.turns.turn(cx, self.calls.transport(), forced, &mut self.events)?;
        if !self.events.is_empty() {
            let now = self.calls.transport().now();
            for event in self.events.drain(..) {
                self.calls.handle(event, now);
            }
            self.calls.tick(now);
        }
        self.shared.deliver(self.calls.done(), &mut self.wakers);
        Ok(found)
    }

    /// When to look again though nothing happened.
    fn until(&mut self, now: Time) -> Time {
        let open = self.calls.open() as usize;
        let closing = self.calls.transport().unfinished() > open;
        let until = if closing { now + CLOSING_TURN } else { Time::NEVER };
        let until = if self.lookup.is_none() && self.calls.wants_addresses() && self.calls.unfinished() > 0 {
            until.min(self.lookup_after.max(now + Duration::from_millis(1)))
        } else {
            until
        };
        until.min(self.calls.deadline())
    }
}

impl Future for Driver {
    type Output = ();

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        let this = self.get_mut();
        let mut forced = false;
        for _ in 0..ROUNDS {
            if !this.shared.take_commands(&mut this.commands) {
                this.calls.close();
                return Poll::Ready(());
            }
            match this.round(cx, forced) {
                Ok(true) => continue,
                Ok(false) => {}
                // Without its transport nothing can be done: the callers get an error.
                Err(_) => return Poll::Ready(()),
            }
            let now = this.calls.transport().now();
            let until = this.until(now);
            forced = this.turns.wait(cx, now, until);
            let Driver { shared, calls, .. } = this;
            if !forced && shared.sleep(cx.waker(), |statistics| calls.write_statistics(statistics)) {
                return Poll::Pending;
            }
        }
        // Others have their turn.
        cx.waker().wake_by_ref();
        Poll::Pending
    }
}

impl Drop for Driver {
    fn drop(&mut self) {
        self.shared.end();
    }
}
