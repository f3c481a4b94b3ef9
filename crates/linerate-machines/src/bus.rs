//! The connection to NATS, and where things are on it.

mod changes;
mod hints;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use async_nats::connection::State;
use async_nats::jetstream::context::CreateStreamErrorKind;
use async_nats::jetstream::{self, ErrorCode, kv, stream};
use async_nats::{Client, ConnectOptions, Event, HeaderMap};
use bytes::Bytes;
use futures_util::StreamExt;
use tokio::sync::watch;
use tokio::time::{Instant, sleep};

use crate::document::{AgentCard, DocumentHead, RunDocument, VERSION};
use crate::signing;
pub(crate) use changes::{Changes, ChangesSince};

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

/// How long between attempts, while the servers elect a leader.
const AGAIN: Duration = Duration::from_millis(500);

/// Copies that are kept of everything. Reason: one of three servers may be lost.
const COPIES: usize = 3;

/// Keys that are read at a time. Reason: the broker serves thousands a second.
const AT_A_TIME: usize = 32;

/// Consumers of a bucket at most: an agent has up to six. Reason: the server's own limit of 1,000 would
/// end at 160 agents.
const CONSUMERS: i32 = 100_000;

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
    /// A file with an NKEY seed.
    pub nkey: Option<PathBuf>,
    /// Certificates that are trusted beside those of the system.
    pub ca: Option<PathBuf>,
    /// A client certificate and its key.
    pub certificate: Option<(PathBuf, PathBuf)>,
}

impl BusOptions {
    /// The seed of our NKEY, if we have one.
    pub(crate) fn seed(&self) -> Result<Option<String>, BusError> {
        match (&self.nkey, &self.credentials) {
            (Some(file), _) => signing::read_seed("--nkey", file).map(Some),
            (None, Some(file)) => signing::read_seed("--creds", file).map(Some),
            (None, None) => Ok(None),
        }
    }
}

/// A fault of the bus, with a hint how to mend it.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{what}")]
pub struct BusError {
    /// The fault, noun first.
    pub what: String,
    /// What to do about it.
    pub hint: Option<String>,
    /// Whether something that the user named is at fault: a flag, a file, the kind of server.
    pub is_input: bool,
}

impl BusError {
    pub(crate) fn new(what: impl std::fmt::Display) -> BusError {
        let mut what = what.to_string();
        // All that a client's error says of a silent server.
        if what == "timed out" {
            what.insert_str(0, "the NATS server is there and does not answer: ");
        }
        let hint = hints::of_request(&what).map(str::to_owned);
        BusError { what, hint, is_input: false }
    }

    pub(crate) fn hint(self, hint: impl Into<String>) -> BusError {
        BusError { hint: Some(hint.into()), ..self }
    }

    /// The user's input is at fault.
    pub(crate) fn input(self) -> BusError {
        BusError { is_input: true, ..self }
    }
}

/// An open connection with the buckets and the stream of all runs.
#[derive(Clone, Debug)]
pub(crate) struct NatsBus {
    pub(crate) client: Client,
    pub(crate) jetstream: jetstream::Context,
    pub(crate) runs: kv::Store,
    pub(crate) agents: kv::Store,
    pub(crate) stream: stream::Stream,
    pub(crate) complaints: Complaints,
}

/// The last thing that the server complained about, such as a permission that we lack.
#[derive(Clone, Debug)]
pub(crate) struct Complaints(Arc<watch::Sender<Option<String>>>);

impl Complaints {
    fn new() -> Complaints {
        Complaints(Arc::new(watch::Sender::new(None)))
    }

    fn note(&self, event: &Event) {
        if let Event::ServerError(complaint) = event {
            self.0.send_replace(Some(complaint.to_string()));
        }
    }

    fn explained(&self, error: BusError) -> BusError {
        match &*self.0.borrow() {
            Some(complaint) if error.what.contains(complaint.as_str()) => error,
            Some(complaint) => BusError::new(format!("{error}; the NATS server says: {complaint}"))
                .hint("give this user the permissions of docs/MACHINES.md"),
            None => error,
        }
    }

    /// Does something, unless the server says that it does not permit it: such requests get no
    /// response, so waiting for one would take until the timeout.
    pub(crate) async fn or<T, E: From<BusError>>(
        &self,
        work: impl Future<Output = Result<T, E>>,
    ) -> Result<T, E> {
        let mut said = self.0.subscribe();
        let refused = said.wait_for(|said| said.as_ref().is_some_and(|said| is_refusal(said)));
        // An earlier refusal is not about this request.
        let already = self.0.borrow().as_ref().is_some_and(|said| is_refusal(said));
        tokio::select! {
            biased;
            done = work => done,
            _ = refused, if !already => {
                Err(self.explained(BusError::new("this user lacks a permission")).into())
            }
        }
    }
}

/// Whether the server says that the user may not do it.
pub(crate) fn is_refusal(complaint: &str) -> bool {
    complaint.to_lowercase().contains("permissions violation")
}

impl NatsBus {
    /// Connects, and creates what is not there yet.
    pub(crate) async fn open(options: &BusOptions) -> Result<NatsBus, BusError> {
        let complaints = Complaints::new();
        let client = connect(options, &complaints).await?;
        check_version(&client.server_info().version)?;
        let opened = complaints.or(NatsBus::open_all(client, complaints.clone())).await;
        opened.map_err(|error| complaints.explained(error))
    }

    async fn open_all(client: Client, complaints: Complaints) -> Result<NatsBus, BusError> {
        let jetstream = jetstream::new(client.clone());
        let runs = bucket(&jetstream, RUNS, KEPT).await?;
        let agents = bucket(&jetstream, AGENTS, AGENT_TTL).await?;
        let config = stream::Config {
            name: STREAM.to_owned(),
            subjects: vec!["linerate.run.>".to_owned()],
            max_age: KEPT,
            duplicate_window: DUPLICATES,
            storage: stream::StorageType::File,
            ..stream::Config::default()
        };
        let stream = create(&jetstream, config).await?;
        Ok(NatsBus { client, jetstream, runs, agents, stream, complaints })
    }

    /// Whether a server is there.
    pub(crate) fn is_connected(&self) -> bool {
        self.client.connection_state() == State::Connected
    }

    /// An error, with what the server complained about.
    pub(crate) fn explained(&self, error: BusError) -> BusError {
        self.complaints.explained(error)
    }

    /// Publishes an agent's message and waits until the broker has stored it.
    pub(crate) async fn publish(&self, subject: String, id: &str, payload: Bytes) -> Result<(), BusError> {
        let mut headers = HeaderMap::new();
        headers.insert("Nats-Msg-Id", id);
        let ack =
            self.jetstream.publish_with_headers(subject, headers, payload).await.map_err(BusError::new)?;
        ack.await.map(drop).map_err(BusError::new)
    }

    /// The agents that come and go from now on, and those that are there.
    pub(crate) async fn roster(&self) -> Result<Roster, BusError> {
        let changes = Changes::open(&self.agents, &[">".to_owned()], ChangesSince::Present)
            .await
            .map_err(BusError::new)?;
        Ok(Roster { changes, agents: BTreeMap::new(), is_whole: false })
    }

    /// Which of these agents are there now.
    pub(crate) async fn present<'a>(
        &self,
        names: impl Iterator<Item = &'a str>,
    ) -> Result<Vec<PresentAgent>, BusError> {
        let cards = futures_util::stream::iter(names.map(str::to_owned).map(|name| self.agents.entry(name)));
        let mut cards = cards.buffer_unordered(AT_A_TIME);
        let mut there = Vec::new();
        while let Some(entry) = cards.next().await {
            let entry = entry.map_err(BusError::new)?;
            let Some(entry) = entry.filter(|entry| entry.operation == kv::Operation::Put) else { continue };
            // A card that cannot be read is not that of an agent of ours.
            if let Ok(card) = serde_json::from_slice(&entry.value) {
                there.push(PresentAgent { card, revision: entry.revision });
            }
        }
        Ok(there)
    }

    /// Reads a run document.
    pub(crate) async fn document(&self, run: &str) -> Result<Option<RunDocument>, BusError> {
        let value = self.runs.get(keys::document(run)).await.map_err(BusError::new)?;
        let Some(bytes) = value else { return Ok(None) };
        let text = signing::parts(&bytes).1;
        if let Some(other) = DocumentHead::read(text).and_then(|head| head.other_version()) {
            let what = format!("run {run} is of {other}, and this is linerate {VERSION}");
            return Err(BusError::new(what).hint("continue with it by the version that started it"));
        }
        let read = serde_json::from_slice(text);
        read.map(Some).map_err(|e| BusError::new(format!("the document of run {run} cannot be read: {e}")))
    }

    /// Removes the secrets of a run, which nobody needs any more.
    pub(crate) async fn forget_plan(&self, run: &str) -> Result<(), BusError> {
        self.runs.purge(keys::plan(run)).await.map_err(BusError::new)
    }

    /// Writes a key that must not exist yet.
    pub(crate) async fn create(&self, key: &str, value: Vec<u8>) -> Result<(), BusError> {
        let largest = self.client.server_info().max_payload;
        if value.len() > largest {
            let what = format!(
                "the plan with its bodies and data has {} bytes; this NATS server takes {largest}",
                value.len()
            );
            return Err(BusError::new(what)
                .hint("raise max_payload in its configuration, or make the plan's bodies and data smaller")
                .input());
        }
        self.runs.create(key, value.into()).await.map(drop).map_err(BusError::new)
    }

    /// Gives an order: a key that is empty.
    pub(crate) async fn order(&self, key: &str) -> Result<(), BusError> {
        self.runs.put(key, Bytes::new()).await.map(drop).map_err(BusError::new)
    }

    /// Writes a key unless it exists. A user who may only read may call it where it exists.
    pub(crate) async fn create_if_missing(&self, key: &str, value: Vec<u8>) -> Result<(), BusError> {
        if self.runs.get(key).await.map_err(BusError::new)?.is_some() {
            return Ok(());
        }
        match self.runs.create(key, value.into()).await {
            Ok(_) => Ok(()),
            Err(error) if error.kind() == kv::CreateErrorKind::AlreadyExists => Ok(()),
            Err(error) => Err(BusError::new(error)),
        }
    }
}

/// An agent that is there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct PresentAgent {
    pub(crate) card: AgentCard,
    /// Another one each time that it renews its key.
    pub(crate) revision: u64,
}

/// Agents as their keys come and go, by one consumer.
pub(crate) struct Roster {
    changes: Changes,
    /// By name: the card, and when it was renewed.
    agents: BTreeMap<String, (AgentCard, Instant)>,
    /// Whether all keys that were there at the beginning have come.
    is_whole: bool,
}

impl Roster {
    /// Waits for a change, at most so long.
    pub(crate) async fn change(&mut self, within: Duration) {
        let Some(entry) = self.changes.next_until(Instant::now() + within).await else { return };
        self.is_whole |= entry.delta == 0;
        let card = match entry.operation {
            kv::Operation::Put => serde_json::from_slice::<AgentCard>(&entry.value).ok(),
            _ => None,
        };
        // Coordinators have keys here too.
        match card.filter(|card| card.name == entry.key) {
            Some(card) => drop(self.agents.insert(entry.key, (card, Instant::now()))),
            None => drop(self.agents.remove(&entry.key)),
        }
    }

    /// The agents that are there, by name; `None` before all have been heard of.
    pub(crate) fn agents(&self) -> Option<impl Iterator<Item = &AgentCard>> {
        let there = self.agents.values().filter(|(_, renewed)| renewed.elapsed() < AGENT_TTL);
        self.is_whole.then(|| there.map(|(card, _)| card))
    }
}

/// Where replies to a user come: its own NKEY is in it, so that permissions can keep others out.
fn inbox_of(seed: &str) -> Result<String, BusError> {
    let pair = nkeys::KeyPair::from_seed(seed).map_err(BusError::new)?;
    Ok(format!("_INBOX.{}", pair.public_key()))
}

async fn connect(options: &BusOptions, complaints: &Complaints) -> Result<Client, BusError> {
    let mut connect =
        ConnectOptions::new().name("linerate").connection_timeout(PATIENCE).request_timeout(Some(PATIENCE));
    let noted = complaints.clone();
    connect = connect.event_callback(move |event| {
        noted.note(&event);
        std::future::ready(())
    });
    if let Some(file) = &options.credentials {
        connect = connect.credentials_file(file).await.map_err(|e| {
            BusError::new(format!("--creds {}: {e}", file.display()))
                .hint("name a file with a user's JWT and NKEY seed, as nsc writes them")
                .input()
        })?;
    }
    if let Some(file) = &options.nkey {
        connect = connect.nkey(signing::read_seed("--nkey", file)?);
    }
    if let Some(seed) = options.seed()? {
        connect = connect.custom_inbox_prefix(inbox_of(&seed)?);
    }
    if let Some(ca) = &options.ca {
        holds("--nats-ca", ca, "CERTIFICATE")?;
        connect = connect.add_root_certificates(ca.clone()).require_tls(true);
    }
    if let Some((certificate, key)) = &options.certificate {
        holds("--nats-cert", certificate, "CERTIFICATE")?;
        holds("--nats-key", key, "PRIVATE KEY")?;
        connect = connect.add_client_certificate(certificate.clone(), key.clone()).require_tls(true);
    }
    let servers: Vec<&str> = options.url.split(',').map(str::trim).filter(|url| !url.is_empty()).collect();
    let wrong = |why: &dyn std::fmt::Display| {
        BusError::new(format!("--nats {}: {why}", options.url))
            .hint("for example --nats nats://127.0.0.1:4222")
            .input()
    };
    let addresses: Vec<async_nats::ServerAddr> =
        servers.iter().map(|url| url.parse()).collect::<Result<_, _>>().map_err(|e| wrong(&e))?;
    if addresses.is_empty() {
        return Err(wrong(&"no server is named"));
    }
    let unreachable = |why: &dyn std::fmt::Display| {
        let why = why.to_string();
        let what = hints::is_refusal(&why).then_some("the NATS server does not let us in");
        let what = what.unwrap_or("no NATS server can be reached");
        let hint = hints::of_connecting(&why);
        BusError::new(format!("{what} at {}: {why}", options.url)).hint(hint)
    };
    match tokio::time::timeout(PATIENCE, connect.connect(addresses)).await {
        Ok(connected) => connected.map_err(|e| unreachable(&e)),
        Err(_) => Err(unreachable(&"no connection within 10 s")),
    }
}

/// Whether a file has a block of this kind in PEM. Reason: the files are read when the connection is
/// made, where an error does not name them.
fn holds(flag: &str, file: &Path, what: &str) -> Result<(), BusError> {
    let wrong = |why: &dyn std::fmt::Display| {
        let hint = format!("a PEM file with `-----BEGIN {what}-----` is expected");
        BusError::new(format!("{flag} {}: {why}", file.display())).hint(hint).input()
    };
    let text = std::fs::read(file).map_err(|e| wrong(&e))?;
    let text = String::from_utf8_lossy(&text);
    let marks =
        |line: &str| line.starts_with("-----BEGIN ") && line.trim_end().ends_with(&format!("{what}-----"));
    if text.lines().any(marks) { Ok(()) } else { Err(wrong(&format!("no {}", what.to_lowercase()))) }
}

fn check_version(version: &str) -> Result<(), BusError> {
    let mut numbers = version.split('.').map_while(|n| n.parse::<u32>().ok());
    let found = (numbers.next().unwrap_or(0), numbers.next().unwrap_or(0));
    if found >= OLDEST {
        return Ok(());
    }
    let (major, minor) = OLDEST;
    Err(BusError::new(format!(
        "the NATS server is version {version}; runs on many machines need {major}.{minor} or later"
    ))
    .hint("install a newer one: go install github.com/nats-io/nats-server/v2@v2.15.2")
    .input())
}

async fn bucket(
    jetstream: &jetstream::Context,
    name: &str,
    max_age: Duration,
) -> Result<kv::Store, BusError> {
    if let Ok(store) = jetstream.get_key_value(name).await {
        return Ok(store);
    }
    // What create_key_value would make of it, with room for more consumers.
    let config = stream::Config {
        name: format!("KV_{name}"),
        subjects: vec![format!("$KV.{name}.>")],
        max_messages_per_subject: 1,
        max_age,
        max_consumers: CONSUMERS,
        allow_rollup: true,
        deny_delete: true,
        // A direct reply is the value itself, and an agent's user chooses the subject of the reply:
        // it could write what it likes under the keys of others.
        allow_direct: false,
        discard: stream::DiscardPolicy::New,
        ..stream::Config::default()
    };
    create(jetstream, config).await?;
    jetstream.get_key_value(name).await.map_err(|e| no_jetstream(&e))
}

/// Makes a stream with three copies, or with as many as the servers can keep.
async fn create(jetstream: &jetstream::Context, config: stream::Config) -> Result<stream::Stream, BusError> {
    let deadline = Instant::now() + PATIENCE;
    let mut config = stream::Config { num_replicas: COPIES, ..config };
    loop {
        let error = match jetstream.get_or_create_stream(config.clone()).await {
            Ok(stream) => return Ok(stream),
            Err(error) => error,
        };
        match error.kind() {
            // One server alone, or a cluster with fewer servers than copies.
            CreateStreamErrorKind::JetStream(why) if has_too_few(&why) && config.num_replicas > 1 => {
                config.num_replicas = 1;
            }
            CreateStreamErrorKind::JetStream(why)
                if why.error_code() == ErrorCode::CLUSTER_NOT_AVAILABLE && Instant::now() < deadline =>
            {
                sleep(AGAIN).await;
            }
            _ => return Err(no_jetstream(&error)),
        }
    }
}

/// Whether the servers that there are cannot keep so many copies, however long one waits.
fn has_too_few(why: &jetstream::Error) -> bool {
    [ErrorCode::STREAM_REPLICAS_NOT_SUPPORTED, ErrorCode::CLUSTER_NO_PEERS, ErrorCode::INSUFFICIENT_RESOURCES]
        .contains(&why.error_code())
}

fn no_jetstream(error: &dyn std::fmt::Display) -> BusError {
    let why = error.to_string();
    let hint = hints::of_jetstream(&why);
    BusError::new(format!("the NATS server does not offer JetStream to us: {why}")).hint(hint)
}

/// Whether an entry is what [`NatsBus::order`] writes. Reason: the server writes its replies wherever
/// a user asks it to, and they are never empty.
pub(crate) fn is_order(entry: &kv::Entry) -> bool {
    entry.operation == kv::Operation::Put && entry.value.is_empty()
}

/// Names of keys and subjects.
pub(crate) mod keys {
    /// The document of a run.
    pub(crate) fn document(run: &str) -> String {
        format!("{run}.document")
    }

    /// The only coordinator of a run, beside the agents. No agent's name has a dot.
    pub(crate) fn coordinator(run: &str) -> String {
        format!("coordinator.{run}")
    }

    /// The run whose coordinator has this key.
    pub(crate) fn coordinated(key: &str) -> Option<&str> {
        key.strip_prefix("coordinator.")
    }

    /// The whole plan of a run, encrypted.
    pub(crate) fn plan(run: &str) -> String {
        format!("{run}.plan")
    }

    /// Written when a run's result is complete: agents need their spools no more.
    pub(crate) fn over(run: &str) -> String {
        format!("{run}.over")
    }

    /// When a run starts.
    pub(crate) fn go(run: &str) -> String {
        format!("{run}.go")
    }

    /// The order to end a run early.
    pub(crate) fn stop(run: &str) -> String {
        format!("{run}.stop")
    }

    /// A share that an agent takes over.
    pub(crate) fn takeover(run: &str, number: &str) -> String {
        format!("{run}.takeover.{number}")
    }

    /// An agent's answer to a run's document.
    pub(crate) fn ready(run: &str, agent: &str) -> String {
        format!("{run}.ready.{agent}")
    }

    /// Messages of an agent.
    pub(crate) fn subject(run: &str, agent: &str) -> String {
        format!("linerate.run.{run}.{agent}")
    }

    /// The agent whose messages a subject has: no other one may write there.
    pub(crate) fn sender(subject: &str) -> &str {
        subject.rsplit('.').next().unwrap_or_default()
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
        assert_eq!(error.what, "the NATS server is version 2.9.21; runs on many machines need 2.11 or later");
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
