//! Keys of a bucket as they change, however often the broker is away meanwhile.

use std::time::Duration;

use async_nats::jetstream::kv;
use futures_util::StreamExt;
use tokio::sync::mpsc;
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep, sleep_until};

/// Entries that wait to be looked at. Reason: those who wait for a key look at once.
const WAITING: usize = 64;

/// How long between attempts to look at the keys again.
const AGAIN: Duration = Duration::from_millis(500);

/// Keys as they change. A broker that is silent, or away, changes no key: what happened meanwhile
/// comes when it is back.
#[derive(Debug)]
pub(crate) struct Changes {
    entries: mpsc::Receiver<kv::Entry>,
    task: JoinHandle<()>,
}

/// From where on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ChangesSince {
    /// The keys' present values.
    Present,
    /// Values that are written from now on.
    Now,
}

impl Changes {
    /// Opens the watch; an error if the server does not allow it.
    pub(crate) async fn open(
        store: &kv::Store,
        keys: &[String],
        from: ChangesSince,
    ) -> Result<Changes, kv::WatchError> {
        let first = match from {
            ChangesSince::Present => store.watch_many_with_history(keys).await,
            ChangesSince::Now => store.watch_many(keys).await,
        };
        Ok(Changes::start(store.clone(), keys.to_vec(), Some(first?)))
    }

    /// The same from the present values on, without waiting: it opens as soon as a broker is there.
    pub(crate) fn whenever(store: &kv::Store, keys: &[String]) -> Changes {
        Changes::start(store.clone(), keys.to_vec(), None)
    }

    fn start(store: kv::Store, keys: Vec<String>, first: Option<kv::Watch>) -> Changes {
        let (to, entries) = mpsc::channel(WAITING);
        Changes { entries, task: tokio::spawn(pass_on(store, keys, first, to)) }
    }

    /// The next entry. It can be dropped while it waits.
    pub(crate) async fn next(&mut self) -> kv::Entry {
        match self.entries.recv().await {
            Some(entry) => entry,
            // The task ends with us, or by a panic of its own: then nothing comes.
            None => std::future::pending().await,
        }
    }

    /// The next entry, if it comes by then.
    pub(crate) async fn next_until(&mut self, deadline: Instant) -> Option<kv::Entry> {
        tokio::select! {
            biased;
            entry = self.next() => Some(entry),
            () = sleep_until(deadline) => None,
        }
    }
}

impl Drop for Changes {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn pass_on(
    store: kv::Store,
    keys: Vec<String>,
    mut watch: Option<kv::Watch>,
    to: mpsc::Sender<kv::Entry>,
) {
    let mut seen = 0;
    loop {
        match &mut watch {
            Some(current) => match current.next().await {
                Some(Ok(entry)) if entry.revision <= seen => {}
                Some(Ok(entry)) => {
                    seen = entry.revision;
                    if to.send(entry).await.is_err() {
                        return;
                    }
                }
                // A heartbeat was missed, or the consumer is gone: that is no change of a key.
                Some(Err(_)) | None => watch = None,
            },
            None => match opened_again(&store, &keys, seen).await {
                Ok(again) => watch = Some(again),
                Err(_) => sleep(AGAIN).await,
            },
        }
    }
}

/// A watch that has all that came behind `seen`.
async fn opened_again(store: &kv::Store, keys: &[String], seen: u64) -> Result<kv::Watch, kv::WatchError> {
    match keys {
        [key] if seen > 0 => store.watch_from_revision(key, seen + 1).await,
        _ => store.watch_many_with_history(keys).await,
    }
}
