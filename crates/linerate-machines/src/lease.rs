//! A run has one coordinator at a time. It holds a key on the bus, which ends when it is no longer
//! renewed.

use std::time::Duration;

use async_nats::jetstream::kv;
use serde::{Deserialize, Serialize};
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep, timeout};

use crate::bus::{AGENT_TTL, BusError, NatsBus, keys, unix_ns};
use crate::coordinator::RunError;

/// How often the key is renewed.
const RENEW: Duration = Duration::from_secs(1);

/// How often a key that another coordinator holds is looked at.
const LOOK: Duration = Duration::from_millis(250);

/// How long the key of a coordinator that has died can stay. Reason: a broker removes old keys some
/// moments late.
const FREE_WITHIN: Duration = AGENT_TTL.saturating_add(Duration::from_secs(5));

/// Time for the last look at the key, and to give it up.
const LEAVE_WITHIN: Duration = Duration::from_secs(2);

/// A coordinator as it names itself.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct LeaseHolder {
    host: String,
    pid: u32,
    /// When it took the key, nanoseconds since 1970.
    since: u64,
}

impl std::fmt::Display for LeaseHolder {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "process {} on {}", self.pid, self.host)
    }
}

/// The coordinator that a key's value names.
pub(crate) fn holder(value: &[u8]) -> Option<String> {
    serde_json::from_slice::<LeaseHolder>(value).ok().map(|holder| holder.to_string())
}

/// The key of a run's coordinator, which is renewed until it is released.
#[derive(Debug)]
pub(crate) struct Lease {
    key: LeaseKey,
    run: String,
    renewing: JoinHandle<()>,
    taken_by: watch::Receiver<Option<String>>,
}

/// The key itself.
#[derive(Clone, Debug)]
struct LeaseKey {
    store: kv::Store,
    name: String,
    holder: LeaseHolder,
}

/// How an attempt to hold the key ended.
enum LeaseAttempt {
    /// It is ours, at this revision.
    Ours(u64),
    /// Another coordinator holds it, at this revision.
    Others(u64, String),
}

impl Lease {
    /// Takes the key of a run. If a coordinator held it that has died, this waits until it is free.
    pub(crate) async fn take(
        bus: &NatsBus,
        run: &str,
        stop: &watch::Receiver<bool>,
    ) -> Result<Lease, RunError> {
        let host = std::fs::read_to_string("/proc/sys/kernel/hostname");
        let host = host.map_or("an unknown machine".to_owned(), |host| host.trim().to_owned());
        let holder = LeaseHolder { host, pid: std::process::id(), since: unix_ns() };
        let key = LeaseKey { store: bus.agents.clone(), name: keys::coordinator(run), holder };
        let deadline = Instant::now() + FREE_WITHIN;
        let mut seen = None;
        let revision = loop {
            match key.create().await? {
                Some(LeaseAttempt::Ours(revision)) => break revision,
                // A new revision means that the other coordinator still renews the key, so it is alive.
                Some(LeaseAttempt::Others(revision, by))
                    if *seen.get_or_insert(revision) != revision || Instant::now() >= deadline =>
                {
                    return Err(RunError::Led { run: run.to_owned(), by });
                }
                _ => {}
            }
            if *stop.borrow() {
                return Err(RunError::Interrupted);
            }
            sleep(LOOK).await;
        };
        let taken_by = watch::Sender::new(None);
        let (heard, renewed) = (taken_by.subscribe(), key.clone());
        let renewing = tokio::spawn(async move {
            let by = renewed.renew_until_taken(revision).await;
            taken_by.send_replace(Some(by));
        });
        Ok(Lease { key, run: run.to_owned(), renewing, taken_by: heard })
    }

    /// An error once another coordinator has taken the run over.
    pub(crate) fn check(&self) -> Result<(), RunError> {
        match &*self.taken_by.borrow() {
            Some(by) => Err(RunError::TakenOver { run: self.run.clone(), by: by.clone() }),
            None => Ok(()),
        }
    }

    /// The same after a last look at the key. An unreachable broker says nothing about it.
    pub(crate) async fn check_again(&self) -> Result<(), RunError> {
        self.check()?;
        if let Ok(Ok(Some(LeaseAttempt::Others(_, by)))) = timeout(LEAVE_WITHIN, self.key.held()).await {
            return Err(RunError::TakenOver { run: self.run.clone(), by });
        }
        Ok(())
    }

    /// Gives the key up, so that another coordinator need not wait.
    pub(crate) async fn leave(self) {
        self.renewing.abort();
        let free = async {
            if let Ok(Some(LeaseAttempt::Ours(revision))) = self.key.held().await {
                let _ = self.key.store.delete_expect_revision(&self.key.name, Some(revision)).await;
            }
        };
        let _ = timeout(LEAVE_WITHIN, free).await;
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        self.renewing.abort();
    }
}

impl LeaseKey {
    fn value(&self) -> Result<Vec<u8>, BusError> {
        serde_json::to_vec(&self.holder).map_err(BusError::new)
    }

    /// Creates the key, if it is free. `None`: it became free or changed meanwhile.
    async fn create(&self) -> Result<Option<LeaseAttempt>, BusError> {
        match self.store.create(&self.name, self.value()?.into()).await {
            Ok(revision) => Ok(Some(LeaseAttempt::Ours(revision))),
            Err(error) if error.kind() == kv::CreateErrorKind::AlreadyExists => self.held().await,
            Err(error) => Err(BusError::new(error)),
        }
    }

    /// The present holder of the key; `None`: it is free.
    async fn held(&self) -> Result<Option<LeaseAttempt>, BusError> {
        let entry = self.store.entry(&self.name).await.map_err(BusError::new)?;
        Ok(entry.filter(|entry| entry.operation == kv::Operation::Put).map(|entry| {
            match serde_json::from_slice::<LeaseHolder>(&entry.value) {
                Ok(holder) if holder == self.holder => LeaseAttempt::Ours(entry.revision),
                Ok(holder) => LeaseAttempt::Others(entry.revision, holder.to_string()),
                Err(_) => LeaseAttempt::Others(entry.revision, "an unknown process".to_owned()),
            }
        }))
    }

    /// Renews the key each second until another coordinator holds it; which.
    async fn renew_until_taken(self, mut revision: u64) -> String {
        loop {
            sleep(RENEW).await;
            let Ok(value) = self.value() else { continue };
            let renewed = self.store.update(&self.name, value.into(), revision);
            match timeout(RENEW, renewed).await {
                Ok(Ok(next)) => revision = next,
                // The key ended while no broker was there, or an acknowledgement was lost.
                Ok(Err(error)) if error.kind() == kv::UpdateErrorKind::WrongLastRevision => {
                    match timeout(RENEW, self.create()).await {
                        Ok(Ok(Some(LeaseAttempt::Ours(next)))) => revision = next,
                        Ok(Ok(Some(LeaseAttempt::Others(_, by)))) => return by,
                        _ => {}
                    }
                }
                _ => {}
            }
        }
    }
}
