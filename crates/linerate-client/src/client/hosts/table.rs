//! The clients of all origins: a bounded number, of which idle ones make room for others.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use http::Request;
use tokio::sync::Notify;

use super::origin::HttpOrigin;
use crate::client::Client;
use crate::client::error::{Error, Phase};
use crate::client::options::RequestOptions;

/// The client of one origin.
struct OpenOrigin {
    client: Client,
    /// Calls under way.
    calls: usize,
    /// When it was used last, in uses of the table.
    used: u64,
}

#[derive(Default)]
struct Origins {
    open: HashMap<HttpOrigin, OpenOrigin>,
    uses: u64,
}

/// The clients of all origins.
pub(super) struct OriginTable {
    most: usize,
    origins: Mutex<Origins>,
    /// An origin became idle or was opened: calls that wait look again.
    changed: Notify,
}

impl OriginTable {
    /// For this many origins at most.
    pub(super) fn new(most: usize) -> OriginTable {
        OriginTable { most, origins: Mutex::default(), changed: Notify::new() }
    }

    pub(super) fn len(&self) -> usize {
        self.lock().open.len()
    }

    fn lock(&self) -> MutexGuard<'_, Origins> {
        self.origins.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A call to this origin, once there is room for it. It waits as long as `patience` says, which is asked once.
    pub(super) async fn lease(
        &self,
        origin: &HttpOrigin,
        make: impl Fn() -> Result<Client, Error>,
        patience: impl Fn() -> Duration,
    ) -> Result<OriginLease<'_>, Error> {
        let (mut made, mut since) = (None, None);
        loop {
            let mut changed = std::pin::pin!(self.changed.notified());
            changed.as_mut().enable();
            match self.try_lease(origin, &mut made) {
                Leased::Here(mut lease) => {
                    lease.waited = since.map_or(Duration::ZERO, |(since, _): (Instant, _)| since.elapsed());
                    return Ok(lease);
                }
                // Not under the lock: the program's function and TLS take their time, and calls to other origins go on.
                Leased::Unmade => made = Some(make()?),
                Leased::Full => {
                    let (since, patience) = *since.get_or_insert_with(|| (Instant::now(), patience()));
                    let left = patience.saturating_sub(since.elapsed());
                    tokio::time::timeout(left, changed).await.map_err(|_| Error::timeout(Phase::Limit))?;
                }
            }
        }
    }

    /// `made`: a client for this origin, if it needs one.
    fn try_lease(&self, origin: &HttpOrigin, made: &mut Option<Client>) -> Leased<'_> {
        let mut origins = self.lock();
        origins.uses += 1;
        let used = origins.uses;
        let waited = Duration::ZERO;
        let lease =
            |client| Leased::Here(OriginLease { table: self, origin: origin.clone(), client, waited });
        if let Some(open) = origins.open.get_mut(origin) {
            open.calls += 1;
            open.used = used;
            return lease(open.client.clone());
        }
        let is_full = origins.open.len() >= self.most;
        if is_full && origins.open.values().all(|open| open.calls > 0) {
            return Leased::Full;
        }
        let Some(client) = made.take() else { return Leased::Unmade };
        if is_full {
            let idle = origins.open.iter().filter(|(_, open)| open.calls == 0);
            let oldest = idle.min_by_key(|(_, open)| open.used).map(|(origin, _)| origin.clone());
            // Its connections close with it.
            oldest.and_then(|oldest| origins.open.remove(&oldest));
        }
        origins.open.insert(origin.clone(), OpenOrigin { client: client.clone(), calls: 1, used });
        drop(origins);
        self.changed.notify_waiters();
        lease(client)
    }
}

/// What became of asking for a place.
enum Leased<'a> {
    Here(OriginLease<'a>),
    /// There is room for the origin, whose client has to be made.
    Unmade,
    /// All places have calls under way.
    Full,
}

/// A call to an origin, whose client stays open meanwhile.
pub(super) struct OriginLease<'a> {
    table: &'a OriginTable,
    origin: HttpOrigin,
    client: Client,
    /// How long the call waited for it.
    waited: Duration,
}

impl OriginLease<'_> {
    /// Its client, for a call whose time runs since it began to wait.
    pub(super) fn client_for<B>(&self, request: &mut Request<B>) -> Client {
        if !self.waited.is_zero() {
            request.extensions_mut().get_or_insert_default::<RequestOptions>().waited = self.waited;
        }
        self.client.clone()
    }
}

impl Drop for OriginLease<'_> {
    fn drop(&mut self) {
        let mut origins = self.table.lock();
        let Some(open) = origins.open.get_mut(&self.origin) else { return };
        open.calls -= 1;
        if open.calls == 0 {
            drop(origins);
            self.table.changed.notify_waiters();
        }
    }
}
