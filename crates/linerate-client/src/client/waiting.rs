//! Calls that wait for a place among the calls of a client. Their time runs already.

use std::collections::BTreeMap;
use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use linerate_net::Time;
use tokio::sync::{AcquireError, OwnedSemaphorePermit};

use super::board::{Command, SharedBoard};
use super::error::{Error, Phase};
use super::options::RequestOptions;

type Acquire = Pin<Box<dyn Future<Output = Result<OwnedSemaphorePermit, AcquireError>> + Send>>;

/// A caller that waits, seen from the driver, whose clock counts.
#[derive(Default)]
pub(super) struct Waiter(Mutex<WaiterState>);

#[derive(Default)]
struct WaiterState {
    since: Option<Time>,
    is_late: bool,
    waker: Option<Waker>,
}

impl Waiter {
    fn lock(&self) -> MutexGuard<'_, WaiterState> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A place that a caller waits for. Places are handed out in the order they were asked for.
pub(super) struct PlaceWait {
    acquire: Acquire,
    waiter: Arc<Waiter>,
}

impl PlaceWait {
    /// `own`: the options of the request.
    pub(super) fn new(shared: &SharedBoard, own: RequestOptions) -> PlaceWait {
        let waiter = Arc::<Waiter>::default();
        shared.command(Command::Wait(Arc::downgrade(&waiter), own));
        PlaceWait { acquire: Box::pin(Arc::clone(&shared.places).acquire_owned()), waiter }
    }

    /// The place, and since when the caller has waited for it.
    ///
    /// # Errors
    /// The time of the call is over, or the client has ended.
    pub(super) fn poll(
        &mut self,
        cx: &mut Context<'_>,
    ) -> Poll<Result<(OwnedSemaphorePermit, Option<Time>), Error>> {
        let place = self.acquire.as_mut().poll(cx);
        let mut state = self.waiter.lock();
        match place {
            Poll::Ready(Ok(permit)) if !state.is_late => Poll::Ready(Ok((permit, state.since))),
            Poll::Ready(Err(_)) => Poll::Ready(Err(Error::Closed)),
            _ if state.is_late => Poll::Ready(Err(Error::timeout(Phase::Queue))),
            _ => {
                state.waker = Some(cx.waker().clone());
                Poll::Pending
            }
        }
    }
}

/// The callers that wait, in the order in which their time is over.
#[derive(Default)]
pub(super) struct Waits {
    by_deadline: BTreeMap<(Time, u64), Weak<Waiter>>,
    number: u64,
    /// Entries after those that had gone were taken out last.
    kept: usize,
}

impl Waits {
    pub(super) fn add(&mut self, waiter: Weak<Waiter>, timeout: Duration, now: Time) {
        let Some(waits) = waiter.upgrade() else { return };
        waits.lock().since = Some(now);
        self.number += 1;
        self.by_deadline.insert((now + timeout, self.number), waiter);
        if self.by_deadline.len() > 2 * self.kept + 64 {
            self.by_deadline.retain(|_, waiter| waiter.strong_count() > 0);
            self.kept = self.by_deadline.len();
        }
    }

    /// Tells those whose time is over.
    pub(super) fn expire(&mut self, now: Time, wakers: &mut Vec<Waker>) {
        while let Some(first) = self.by_deadline.first_entry()
            && (first.key().0 <= now || first.get().strong_count() == 0)
        {
            if let Some(waiter) = first.remove().upgrade() {
                let mut state = waiter.lock();
                state.is_late = true;
                wakers.extend(state.waker.take());
            }
        }
    }

    /// When the time of the first is over.
    pub(super) fn next(&self) -> Time {
        self.by_deadline.first_key_value().map_or(Time::NEVER, |((at, _), _)| *at)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn those_that_have_gone_are_not_kept() {
        let (mut waits, mut wakers) = (Waits::default(), Vec::new());
        let held = Arc::<Waiter>::default();
        waits.add(Arc::downgrade(&held), Duration::from_secs(9), Time::ZERO);
        for _ in 0..10_000 {
            let gone = Arc::<Waiter>::default();
            waits.add(Arc::downgrade(&gone), Duration::from_secs(30), Time::ZERO);
        }
        assert!(waits.by_deadline.len() < 100, "{}", waits.by_deadline.len());
        waits.expire(Time::ZERO + Duration::from_secs(8), &mut wakers);
        assert!(!held.lock().is_late && waits.next() == Time::ZERO + Duration::from_secs(9));
        waits.expire(waits.next(), &mut wakers);
        assert!(held.lock().is_late && waits.next() == Time::NEVER);
    }
}
