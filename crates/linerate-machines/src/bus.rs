//! The connection to NATS, and where things are on it.

use std::path::PathBuf;
use std::time::Duration;

use async_nats::jetstream::{self, kv, stream};
use async_nats::{Client, ConnectOptions, HeaderMap};
use bytes::Bytes;

use crate::document::RunDocument;

/// Oldest server that has what runs need (per-key limits of age, ordered consumers).
const OLDEST: (u32, u32) = (2, 11);

/// How long an agent's key lives without being renewed.
pub(crate) const AGENT_TTL: Duration = Duration::from_secs(5);

/// How long runs and their messages are kept. Reason: a spool can be replayed on the next day.
const KEPT: Duration = Duration::from_secs(48 * 3600);

/// Within this time the broker drops a message's second copy by itself.
const DUPLICATES: Duration = Duration::from_secs(120);

/// How long one request to the broker may take.
const PATIENCE: Duration = Duration::from_secs(10);

const RUNS: &str = "linerate_runs";
const AGENTS: &str = "linerate_agents";
const STREAM: &str = "LINERATE";

/// How to reach NATS.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct BusOptions {
    /// `nats://HOST:PORT` or `tls://HOST:PORT`, several separated by commas.
    pub url: String,
    /// A credentials file (JWT and NKEY).
    pub credentials: Option<PathBuf>,
    /// Certificates that are trusted beside those of the system.
    pub ca: Option<PathBuf>,
    /// A client certificate and its key.
    pub certificate: Option<(PathBuf, PathBuf)>,
}

/// What is wrong with the bus, and what would be right.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{what}")]
pub struct BusError {
    /// What is wrong.
    pub what: String,
    /// What to do about it.
    pub hint: Option<String>,
}

impl BusError {
    pub(crate) fn new(what: impl std::fmt::Display) -> BusError {
        BusError { what: what.to_string(), hint: None }
    }

    pub(crate) fn hint(self, hint: impl Into<String>) -> BusError {
        BusError { hint: Some(hint.into()), ..self }
    }
}

/// An open connection with the buckets and the stream of all runs.
#[derive(Clone, Debug)]
pub(crate) struct Bus {
    pub(crate) client: Client,
    pub(crate) jetstream: jetstream::Context,
    pub(crate) runs: kv::Store,
    pub(crate) agents: kv::Store,
    pub(crate) stream: stream::Stream,
}

impl Bus {
    /// Connects, and creates what is not there yet.
    pub(crate) async fn open(options: &BusOptions) -> Result<Bus, BusError> {
        let client = connect(options).await?;
        let info = client.server_info();
        check_version(&info.version)?;
        let jetstream = jetstream::new(client.clone());
        // Three servers keep three copies.
        let copies = if info.connect_urls.len() >= 3 { 3 } else { 1 };
        let runs = bucket(&jetstream, RUNS, KEPT, copies).await?;
        let agents = bucket(&jetstream, AGENTS, AGENT_TTL, copies).await?;
        let config = stream::Config {
            name: STREAM.to_owned(),
            subjects: vec!["linerate.run.>".to_owned()],
            max_age: KEPT,
            duplicate_window: DUPLICATES,
            num_replicas: copies,
            storage: stream::StorageType::File,
            ..stream::Config::default()
        };
        let stream = jetstream.get_or_create_stream(config).await.map_err(|e| no_jetstream(&e))?;
        Ok(Bus { client, jetstream, runs, agents, stream })
    }

    /// Publishes an agent's message and waits until the broker has stored it.
    pub(crate) async fn publish(&self, subject: String, id: &str, payload: Bytes) -> Result<(), BusError> {
        let mut headers = HeaderMap::new();
        headers.insert("Nats-Msg-Id", id);
        let ack =
            self.jetstream.publish_with_headers(subject, headers, payload).await.map_err(BusError::new)?;
        ack.await.map(drop).map_err(BusError::new)
    }

    /// The agents that are there now.
    pub(crate) async fn cards(&self) -> Result<Vec<crate::document::AgentCard>, BusError> {
        use futures_util::StreamExt;
        let mut cards = Vec::new();
        let mut keys = self.agents.keys().await.map_err(BusError::new)?;
        while let Some(key) = keys.next().await {
            let key = key.map_err(BusError::new)?;
            let Some(value) = self.agents.get(key).await.map_err(BusError::new)? else { continue };
            cards.extend(serde_json::from_slice(&value));
        }
        cards.sort_by(|a: &crate::document::AgentCard, b| a.name.cmp(&b.name));
        Ok(cards)
    }

    /// Reads a run document.
    pub(crate) async fn document(&self, run: &str) -> Result<Option<RunDocument>, BusError> {
        let value = self.runs.get(keys::document(run)).await.map_err(BusError::new)?;
        value
            .map(|bytes| {
                serde_json::from_slice(&bytes)
                    .map_err(|e| BusError::new(format!("the document of run {run} cannot be read: {e}")))
            })
            .transpose()
    }

    /// Writes a key that must not exist yet.
    pub(crate) async fn create(&self, key: &str, value: Vec<u8>) -> Result<(), BusError> {
        let largest = self.client.server_info().max_payload;
        if value.len() > largest {
            let what = format!("{} bytes are more than this NATS server takes ({largest})", value.len());
            return Err(BusError::new(what)
                .hint("raise max_payload in its configuration, or make the plan's bodies and data smaller"));
        }
        self.runs.create(key, value.into()).await.map(drop).map_err(BusError::new)
    }
}

async fn connect(options: &BusOptions) -> Result<Client, BusError> {
    let mut connect =
        ConnectOptions::new().name("linerate").connection_timeout(PATIENCE).request_timeout(Some(PATIENCE));
    if let Some(file) = &options.credentials {
        connect = connect
            .credentials_file(file)
            .await
            .map_err(|e| BusError::new(format!("--creds {}: {e}", file.display())))?;
    }
    if let Some(ca) = &options.ca {
        connect = connect.add_root_certificates(ca.clone());
    }
    if let Some((certificate, key)) = &options.certificate {
        connect = connect.add_client_certificate(certificate.clone(), key.clone());
    }
    let servers: Vec<&str> = options.url.split(',').map(str::trim).filter(|url| !url.is_empty()).collect();
    let wrong = |why: &dyn std::fmt::Display| {
        BusError::new(format!("--nats {}: {why}", options.url))
            .hint("for example --nats nats://127.0.0.1:4222")
    };
    let addresses: Vec<async_nats::ServerAddr> =
        servers.iter().map(|url| url.parse()).collect::<Result<_, _>>().map_err(|e| wrong(&e))?;
    if addresses.is_empty() {
        return Err(wrong(&"no server is named"));
    }
    let unreachable = |why: &dyn std::fmt::Display| {
        let what = format!("no NATS server can be reached at {}: {why}", options.url);
        BusError::new(what).hint("start one with nats-server -js, or try --agents-local")
    };
    match tokio::time::timeout(PATIENCE, connect.connect(addresses)).await {
        Ok(connected) => connected.map_err(|e| unreachable(&e)),
        Err(_) => Err(unreachable(&"no connection within 10 s")),
    }
}

fn check_version(version: &str) -> Result<(), BusError> {
    let mut numbers = version.split('.').map_while(|n| n.parse::<u32>().ok());
    let found = (numbers.next().unwrap_or(0), numbers.next().unwrap_or(0));
    if found >= OLDEST {
        return Ok(());
    }
    let (major, minor) = OLDEST;
    Err(BusError::new(format!(
        "the NATS server is version {version}; runs on many machines need {major}.{minor}"
    ))
    .hint("install a newer nats-server"))
}

async fn bucket(
    jetstream: &jetstream::Context,
    name: &str,
    max_age: Duration,
    num_replicas: usize,
) -> Result<kv::Store, BusError> {
    if let Ok(store) = jetstream.get_key_value(name).await {
        return Ok(store);
    }
    let config =
        kv::Config { bucket: name.to_owned(), history: 1, max_age, num_replicas, ..kv::Config::default() };
    jetstream.create_key_value(config).await.map_err(|e| no_jetstream(&e))
}

fn no_jetstream(error: &dyn std::fmt::Display) -> BusError {
    BusError::new(format!("the NATS server does not offer JetStream to us: {error}"))
        .hint("start it with -js, and give this user the permissions of docs/MACHINES.md")
}

/// Names of keys and subjects.
pub(crate) mod keys {
    /// The document of a run.
    pub(crate) fn document(run: &str) -> String {
        format!("{run}.document")
    }

    /// When a run starts.
    pub(crate) fn go(run: &str) -> String {
        format!("{run}.go")
    }

    /// The order to end a run early.
    pub(crate) fn stop(run: &str) -> String {
        format!("{run}.stop")
    }

    /// An agent's answer to a run's document.
    pub(crate) fn ready(run: &str, agent: &str) -> String {
        format!("{run}.ready.{agent}")
    }

    /// Messages of an agent.
    pub(crate) fn subject(run: &str, agent: &str) -> String {
        format!("linerate.run.{run}.{agent}")
    }

    /// Messages of all agents of a run.
    pub(crate) fn subjects(run: &str) -> String {
        format!("linerate.run.{run}.*")
    }

    /// Where the coordinator says what time it is.
    pub(crate) fn clock(run: &str) -> String {
        format!("linerate.clock.{run}")
    }

    /// Whether a name can be part of a key and of a subject.
    pub(crate) fn is_name(name: &str) -> bool {
        let fine = |b: u8| b.is_ascii_alphanumeric() || b == b'-' || b == b'_';
        (1..=64).contains(&name.len()) && name.bytes().all(fine)
    }
}

/// Now, nanoseconds since 1970.
pub(crate) fn unix_ns() -> u64 {
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_nanos()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn old_servers_are_named() {
        for fine in ["2.11.0", "2.12.3-beta", "3.0.1"] {
            assert_eq!(check_version(fine), Ok(()));
        }
        let error = check_version("2.9.21").unwrap_err();
        assert_eq!(error.what, "the NATS server is version 2.9.21; runs on many machines need 2.11");
        assert!(check_version("").is_err());
    }

    #[test]
    fn names_fit_into_subjects() {
        for (name, fine) in [("a-1_B", true), ("", false), ("a.b", false), ("a b", false), ("*", false)] {
            assert_eq!(keys::is_name(name), fine, "{name:?}");
        }
        assert!(!keys::is_name(&"a".repeat(65)));
    }
}
