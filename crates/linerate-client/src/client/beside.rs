//! A client in the thread of a server, on the server's transport.

use std::fmt;
use std::io;
use std::sync::Arc;
use std::task::{Context, Waker};

use linerate_net::share::{Companion, CompanionStep, Guest, Owner, Rest, share};
use linerate_net::{Time, Transport};

use super::board::SharedBoard;
use super::limits::ROUNDS;
use super::mover::{Moving, mover_over};
use super::options::CallOptions;
use super::secure::Secure;
use super::target::Target;

/// Moves the bytes of a client in a server's thread, over the server's transport. A server takes it with the handler that
/// has the client.
///
/// It ends with the server's thread: calls end with [`Error::Closed`](super::Error::Closed) then.
pub struct Beside {
    shared: Arc<SharedBoard>,
    options: CallOptions,
    target: Target,
    secure: Option<Secure>,
    has_joined: bool,
}

impl Beside {
    pub(super) fn new(
        shared: Arc<SharedBoard>,
        options: CallOptions,
        target: Target,
        secure: Option<Secure>,
    ) -> Beside {
        Beside { shared, options, target, secure, has_joined: false }
    }
}

impl Companion for Beside {
    type Owned<T: Transport> = Owner<T>;
    type Running<T: Transport> = BesideRunning<T>;

    fn join<T: Transport>(mut self, transport: T) -> (Owner<T>, BesideRunning<T>) {
        let (owner, guest) = share(transport);
        let rest = guest.rest();
        let waker = Waker::from(Arc::clone(rest.bell()));
        self.has_joined = true;
        let (shared, target) = (self.shared.clone(), self.target.clone());
        let mover = mover_over(guest, shared, &self.options, target, self.secure.as_ref());
        (owner, BesideRunning { mover, rest, waker, is_open: true })
    }
}

impl Drop for Beside {
    fn drop(&mut self) {
        if !self.has_joined {
            self.shared.end();
        }
    }
}

impl fmt::Debug for Beside {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Beside").finish_non_exhaustive()
    }
}

/// A [`Beside`] on its part of the transport.
pub struct BesideRunning<T: Transport> {
    mover: Moving<Guest<T>>,
    rest: Rest,
    waker: Waker,
    /// A client is left.
    is_open: bool,
}

impl<T: Transport> BesideRunning<T> {
    /// Does what callers and the last turn brought; returns when to look again, `None` at once.
    fn round(&mut self) -> io::Result<Option<Time>> {
        let BesideRunning { mover, rest, waker, is_open } = self;
        rest.bell().take();
        *is_open = *is_open && mover.is_wanted();
        let forced = mover.begin(&mut Context::from_waker(waker))?;
        mover.calls.transport().turn(Some(Time::ZERO), &mut mover.events)?;
        let moved = forced || !mover.events.is_empty();
        mover.end();
        if moved {
            return Ok(None);
        }
        let now = mover.calls.transport().now();
        let until = mover.until(now);
        if !*is_open {
            // Connections may still be closing.
            return Ok(Some(until));
        }
        Ok((until > now && mover.sleep(waker)).then_some(until))
    }
}

impl<T: Transport> CompanionStep for BesideRunning<T> {
    fn step(&mut self) -> io::Result<()> {
        let rests = !self.rest.has_events() && !self.rest.bell().has_rung();
        if rests && (self.rest.next() == Time::NEVER || self.mover.calls.transport().now() < self.rest.next())
        {
            return Ok(());
        }
        let span = self.mover.span.clone();
        let _entered = span.enter();
        for _ in 0..ROUNDS {
            if let Some(until) = self.round()? {
                self.rest.until(until);
                return Ok(());
            }
        }
        self.mover.publish();
        self.rest.until(Time::ZERO);
        Ok(())
    }
}

impl<T: Transport> fmt::Debug for BesideRunning<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("BesideRunning").finish_non_exhaustive()
    }
}
