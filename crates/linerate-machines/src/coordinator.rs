//! The coordinator: finds agents, writes the run document, starts them together, adds up what they
//! publish. All its state is on the bus: another coordinator can continue.

use std::time::Duration;

use async_nats::jetstream::consumer::pull::{Ordered, OrderedConfig};
use futures_util::StreamExt;
use linerate_load::outcome::Interval;
use linerate_load::{Outcome, Plan};
use tokio::sync::{mpsc, watch};
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep, timeout};

use crate::bus::{Bus, BusError, BusOptions, keys, unix_ns};
use crate::document::{AgentCard, Ready, RunDocument, SCHEMA, split};
use crate::figures::Figures;
use crate::merge::{AgentResult, Merger, Standing};

/// How long the coordinator waits for agents to appear.
const AGENTS_WITHIN: Duration = Duration::from_secs(10);

/// How long it waits for all of them to be ready.
const READY_WITHIN: Duration = Duration::from_secs(30);

/// From the order to start to the start. Reason: the order reaches all agents long before.
const LEAD: Duration = Duration::from_secs(2);

/// Agents say something each second.
const SILENCE: Duration = Duration::from_secs(3);

/// How long agents may take to end after the user's interrupt.
const END_WITHIN: Duration = Duration::from_secs(20);

/// Seconds that a live view is given. Reason: no terminal has more columns.
const SHOWN: usize = 512;

/// Messages that wait to be added up.
const WAITING: usize = 1024;

/// How long after an agent's key has ended its messages are waited for.
const GONE_AFTER: Duration = Duration::from_secs(10);

/// Which agents.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Wanted {
    /// So many, any.
    Number(u32),
    /// All that have this label, `key=value`.
    Label(String),
}

/// Why a run did not start or could not be followed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum RunError {
    /// The bus.
    #[error(transparent)]
    Bus(#[from] BusError),
    /// The plan does not fit the agents.
    #[error(transparent)]
    Split(#[from] crate::document::SplitError),
    /// Too few agents; who is there.
    #[error("{}", too_few(.wanted, .there))]
    TooFew {
        /// What was asked for.
        wanted: Wanted,
        /// Agents that are there: name, and the run that keeps them busy.
        there: Vec<(String, Option<String>)>,
    },
    /// Agents that do not take part, with their reasons.
    #[error("{}", .0.join("; "))]
    Refused(Vec<String>),
    /// There is no such run.
    #[error("there is no run {0} on this bus")]
    NoRun(String),
    /// Interrupted before the run started.
    #[error("interrupted before the run started")]
    Interrupted,
}

fn too_few(wanted: &Wanted, there: &[(String, Option<String>)]) -> String {
    let asked = match wanted {
        Wanted::Number(n) => format!("{n} agents were asked for"),
        Wanted::Label(label) => format!("agents with the label {label} were asked for"),
    };
    let name = |(name, run): &(String, Option<String>)| match run {
        Some(run) => format!("{name} (busy with run {run})"),
        None => name.clone(),
    };
    match there.len() {
        0 => format!("{asked}; none is there"),
        _ => format!("{asked}; there are {}", there.iter().map(name).collect::<Vec<_>>().join(", ")),
    }
}

/// How a run goes.
#[derive(Clone, Debug)]
pub struct Progress {
    /// Since the start.
    pub elapsed: Duration,
    /// Figures so far, of all agents.
    pub figures: Figures,
    /// Requests in flight at the agents' last words.
    pub in_flight: u64,
    /// Connections open then.
    pub open: u64,
    /// Agents that have not ended.
    pub agents: usize,
    /// The last finished seconds.
    pub series: Vec<Interval>,
}

/// What a run on many machines measured.
#[derive(Clone, Debug)]
pub struct Collected {
    /// The run's name, for `--resume` and for replays.
    pub run: String,
    /// The plan that was carried out.
    pub plan: Plan,
    /// All agents together.
    pub outcome: Outcome,
    /// Each agent.
    pub agents: Vec<AgentResult>,
    /// Largest uncertainty of an agent's clock, nanoseconds; `None` where it was not kept.
    pub clock_uncertainty_ns: Option<u64>,
}

impl Collected {
    /// Whether the figures are those of all agents, whole.
    pub fn is_complete(&self) -> bool {
        self.agents.iter().all(|agent| agent.standing == Standing::Complete)
    }
}

/// A coordinator with its connection.
#[derive(Debug)]
pub struct Coordinator {
    bus: Bus,
    stop: watch::Receiver<bool>,
}

impl Coordinator {
    /// Connects. When `stop` becomes true, agents are asked to end and the result is what they
    /// measured.
    pub async fn connect(options: &BusOptions, stop: watch::Receiver<bool>) -> Result<Coordinator, RunError> {
        Ok(Coordinator { bus: Bus::open(options).await?, stop })
    }

    /// Carries out a plan on agents.
    pub async fn run(
        mut self,
        plan: Plan,
        wanted: Wanted,
        mut say: impl FnMut(&Progress),
    ) -> Result<Collected, RunError> {
        let cards = self.find(&wanted).await?;
        let names: Vec<_> = cards.into_iter().map(|c| (c.name, c.incarnation, c.cores)).collect();
        let threads = plan.threads;
        let shares = split(&plan, threads, &names)?;
        let run = format!("{:012x}", (unix_ns() >> 10) & 0xffff_ffff_ffff);
        let document = RunDocument { schema: SCHEMA.to_owned(), run, plan, shares };
        let clock = self.bus.client.subscribe(keys::clock(&document.run)).await.map_err(BusError::new)?;
        let clock = tokio::spawn(tell_time(self.bus.client.clone(), clock));
        let started = self.start(&document).await;
        clock.abort();
        let (go, uncertainty) = match started {
            Ok(started) => started,
            Err(error) => {
                let _ = self.bus.create(&keys::stop(&document.run), Vec::new()).await;
                return Err(error);
            }
        };
        let mut collected = self.follow(document, go, &mut say).await?;
        collected.clock_uncertainty_ns = Some(uncertainty);
        Ok(collected)
    }

    /// Continues with a run that another coordinator started.
    pub async fn resume(mut self, run: &str, mut say: impl FnMut(&Progress)) -> Result<Collected, RunError> {
        let no_run = || RunError::NoRun(run.to_owned());
        if !keys::is_name(run) {
            return Err(no_run());
        }
        let document = self.bus.document(run).await?.ok_or_else(no_run)?;
        let go = self.bus.runs.get(keys::go(run)).await.map_err(BusError::new)?;
        let go = go.and_then(|value| std::str::from_utf8(&value).ok()?.parse().ok()).ok_or_else(no_run)?;
        self.follow(document, go, &mut say).await
    }

    /// Agents that are free, as many as wanted.
    async fn find(&mut self, wanted: &Wanted) -> Result<Vec<AgentCard>, RunError> {
        let deadline = Instant::now() + AGENTS_WITHIN;
        loop {
            let there = self.bus.cards().await?;
            let fits = |card: &&AgentCard| match wanted {
                Wanted::Number(_) => true,
                Wanted::Label(label) => card.labels.contains(label),
            };
            let mut free: Vec<_> = there.iter().filter(fits).filter(|c| c.run.is_none()).cloned().collect();
            let enough = match wanted {
                Wanted::Number(n) => free.len() >= *n as usize,
                // Those that belong together appear within moments of each other.
                Wanted::Label(_) => !free.is_empty(),
            };
            if enough {
                if let Wanted::Number(n) = wanted {
                    free.truncate(*n as usize);
                }
                return Ok(free);
            }
            if *self.stop.borrow() {
                return Err(RunError::Interrupted);
            }
            if Instant::now() >= deadline {
                let there = there.into_iter().map(|card| (card.name, card.run)).collect();
                return Err(RunError::TooFew { wanted: wanted.clone(), there });
            }
            sleep(Duration::from_millis(200)).await;
        }
    }

    /// Writes the document, waits until all agents are ready, and gives the order to start: the
    /// moment, nanoseconds since 1970, and the largest uncertainty of a clock.
    async fn start(&mut self, document: &RunDocument) -> Result<(u64, u64), RunError> {
        let run = &document.run;
        let text = serde_json::to_vec(document).map_err(BusError::new)?;
        let all_ready = keys::ready(run, "*");
        let mut answers = self.bus.runs.watch(&all_ready).await.map_err(BusError::new)?;
        self.bus.create(&keys::document(run), text).await?;
        let deadline = Instant::now() + READY_WITHIN;
        let mut waiting: Vec<&str> = document.shares.iter().map(|share| share.agent.as_str()).collect();
        let (mut refused, mut uncertainty) = (Vec::new(), 0);
        while !waiting.is_empty() {
            let entry = tokio::select! {
                entry = tokio::time::timeout_at(deadline, answers.next()) => entry,
                _ = self.stop.wait_for(|stop| *stop) => return Err(RunError::Interrupted),
            };
            let Ok(Some(entry)) = entry else {
                let silent = waiting.iter().map(|name| format!("{name} did not answer")).collect();
                return Err(RunError::Refused(silent));
            };
            let entry = entry.map_err(BusError::new)?;
            let Ok(ready) = serde_json::from_slice::<Ready>(&entry.value) else { continue };
            waiting.retain(|name| keys::ready(run, name) != entry.key);
            uncertainty = uncertainty.max(ready.clock_uncertainty_ns);
            refused.extend(ready.refused);
        }
        if !refused.is_empty() {
            return Err(RunError::Refused(refused));
        }
        let go = unix_ns() + LEAD.as_nanos() as u64;
        self.bus.create(&keys::go(run), go.to_string().into_bytes()).await?;
        Ok((go, uncertainty))
    }

    /// Adds up messages until all agents have ended, or are gone.
    async fn follow(
        &mut self,
        document: RunDocument,
        go: u64,
        say: &mut impl FnMut(&Progress),
    ) -> Result<Collected, RunError> {
        let run = document.run.clone();
        let plan = document.plan.clone();
        let config = OrderedConfig { filter_subject: keys::subjects(&run), ..OrderedConfig::default() };
        let consumer = self.bus.stream.create_consumer(config).await.map_err(BusError::new)?;
        let messages = consumer.messages().await.map_err(BusError::new)?;
        let (payloads, mut arrived) = mpsc::channel(WAITING);
        // The stream of messages must not be dropped in the middle of a step, as a time limit would.
        let reading = Reading(tokio::spawn(read(messages, payloads)));
        let mut merger = Merger::new(document);
        let mut presence = Presence::default();
        let (mut told, mut heard) = (Instant::now(), Instant::now());
        let mut stopped = false;
        let mut give_up = Instant::now() + Duration::from_secs(u64::from(u32::MAX));
        while !merger.is_complete() {
            match timeout(Duration::from_millis(100), arrived.recv()).await {
                Ok(Some(payload)) => {
                    heard = Instant::now();
                    merger.add(&payload);
                }
                Ok(None) => return Err(BusError::new("the connection to NATS ended").into()),
                Err(_) => {}
            }
            if *self.stop.borrow() && !stopped {
                stopped = true;
                give_up = Instant::now() + END_WITHIN;
                let _ = self.bus.create(&keys::stop(&run), Vec::new()).await;
            }
            if told.elapsed() < Duration::from_secs(1) {
                continue;
            }
            told = Instant::now();
            say(&progress(&merger, go));
            // While messages come there is no need to ask who is there.
            let is_silent = heard.elapsed() >= SILENCE;
            if Instant::now() >= give_up || (is_silent && presence.all_gone(&self.bus, &merger).await) {
                break;
            }
        }
        drop(reading);
        let mut outcome = merger.outcome();
        outcome.interrupted |= stopped;
        let agents = merger.agents();
        outcome.warnings.extend(doubts(&agents));
        Ok(Collected { run, plan, outcome, agents, clock_uncertainty_ns: None })
    }
}

/// Ends the task that reads messages when the coordinator needs no more.
#[derive(Debug)]
struct Reading(JoinHandle<()>);

impl Drop for Reading {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// Reads the run's messages, from the first one on.
async fn read(mut messages: Ordered, payloads: mpsc::Sender<bytes::Bytes>) {
    while let Some(message) = messages.next().await {
        // After an error the stream continues where it was.
        let Ok(message) = message else { continue };
        if payloads.send(message.payload.clone()).await.is_err() {
            return;
        }
    }
}

/// Since when the agents that have not ended are gone.
#[derive(Debug, Default)]
struct Presence(Option<Instant>);

impl Presence {
    /// Whether no unfinished agent has been there for a while, so that nothing more will come.
    async fn all_gone(&mut self, bus: &Bus, merger: &Merger) -> bool {
        // A broker that does not answer says nothing about agents.
        let Ok(Ok(cards)) = timeout(Duration::from_secs(2), bus.cards()).await else { return false };
        let here = |incarnation: &str| cards.iter().any(|card| card.incarnation == incarnation);
        let mut unfinished = merger.unfinished().peekable();
        let some_here = unfinished.peek().is_some() && unfinished.any(|share| here(&share.incarnation));
        if some_here {
            self.0 = None;
            return false;
        }
        self.0.get_or_insert_with(Instant::now).elapsed() >= GONE_AFTER
    }
}

fn progress(merger: &Merger, go: u64) -> Progress {
    let (figures, in_flight, open) = merger.so_far();
    let elapsed = Duration::from_nanos(unix_ns().saturating_sub(go));
    Progress {
        elapsed,
        figures,
        in_flight,
        open,
        agents: merger.unfinished().count(),
        series: merger.recent(SHOWN),
    }
}

/// What is missing, in words.
fn doubts(agents: &[AgentResult]) -> Vec<String> {
    let doubt = |agent: &AgentResult| {
        let name = &agent.share.agent;
        match &agent.standing {
            Standing::Complete => None,
            Standing::Open { last_second: None } => Some(format!("agent {name} reported nothing")),
            Standing::Open { last_second: Some(second) } => Some(format!(
                "agent {name} was lost after second {second}; requests it had in flight count as unknown"
            )),
            Standing::Missing(seqs) => Some(format!(
                "of agent {name} {} of its messages are missing from the series; its totals are whole",
                seqs.len()
            )),
            Standing::Altered => {
                Some(format!("the messages of agent {name} are not those that it says it sent"))
            }
        }
    };
    agents.iter().filter_map(doubt).collect()
}

/// Answers agents that ask for the time.
async fn tell_time(client: async_nats::Client, mut requests: async_nats::Subscriber) {
    while let Some(request) = requests.next().await {
        if let Some(reply) = request.reply {
            let _ = client.publish(reply, unix_ns().to_string().into()).await;
        }
    }
}
