//! The coordinator: finds agents, writes the run document, starts them together, adds up what they
//! publish. All its state is on the bus: another coordinator can continue.

use std::collections::BTreeMap;
use std::time::{Duration, SystemTime};

use async_nats::jetstream::consumer::DeliverPolicy;
use async_nats::jetstream::consumer::pull::{Ordered, OrderedConfig};
use futures_util::StreamExt;
use linerate_load::outcome::{Interval, MachineNow};
use linerate_load::request_log;
use linerate_load::{Outcome, Plan};
use tokio::sync::{mpsc, watch};
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep, timeout};

use crate::bus::{BusError, BusOptions, Changes, ChangesSince, NatsBus, PresentAgent, keys, unix_ns};
use crate::clock::ClockOffset;
use crate::document::{
    AgentCard, AgentReady, OnLoss, RunDocument, SCHEMA, Takeover, VERSION, differing_kernels, split,
};
use crate::figures::IntervalFigures;
use crate::lease::Lease;
use crate::losses::{LAG, LOOK, Losses, Remedy};
use crate::merge::{AgentResult, Merger, Standing};
use crate::presence::Presence;
use crate::sealing;
use crate::signing::{self, SigningKey};

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

/// Agents that are told of one by one while the run lasts. Reason: their figures are looked at by
/// people, and cost the square of their number.
const TOLD: usize = 64;

/// Messages that wait to be added up.
const WAITING: usize = 1024;

/// How long a look at the agents may take. Reason: there is one each second.
const LOOK_WITHIN: Duration = Duration::from_secs(1);

/// Takeovers in a row that a replayed run may lack. Reason: each one that is looked for in vain costs
/// a request.
const GAP: u32 = 4;

/// How long the run's secrets may take to be removed from the bus.
const CLEAR_WITHIN: Duration = Duration::from_secs(3);

/// How long no message may come before they are asked for anew. Reason: a consumer notices only after
/// half a minute that a broker has forgotten it, and before that agents would be given up.
const QUIET: Duration = Duration::from_secs(3);

/// How long that may take. Reason: what was asked of a broker that is away is never answered.
const OPENS_WITHIN: Duration = Duration::from_secs(2);

/// How long between attempts to read the run's messages.
const AGAIN: Duration = Duration::from_millis(500);

/// Which agents.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum WantedAgents {
    /// Any agents, this many.
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
    /// Fewer agents than wanted; the ones present.
    #[error("{}", too_few(.wanted, .there))]
    TooFew {
        /// The number of agents, or the label, that the run asks for.
        wanted: WantedAgents,
        /// Agents that are there: name, and why they cannot take part.
        there: Vec<(String, Option<String>)>,
    },
    /// Agents with the label that was asked for are of other versions: name and version.
    #[error("this is linerate {VERSION}; {}", versions(.0))]
    OtherVersions(Vec<(String, String)>),
    /// Agents that do not take part, with their reasons.
    #[error("{}", .0.join("; "))]
    Refused(Vec<String>),
    /// There is no such run.
    #[error("there is no run {0} on this bus")]
    NoRun(String),
    /// The run's coordinator ended before it gave the order to start.
    #[error("run {0} was never started: its coordinator ended before")]
    NotStarted(String),
    /// Another coordinator has the run.
    #[error("run {run} has a coordinator already: {by}")]
    Led {
        /// The run.
        run: String,
        /// The coordinator.
        by: String,
    },
    /// Another coordinator took the run while this one was away.
    #[error("another coordinator has taken run {run} over and reports it: {by}")]
    TakenOver {
        /// The run.
        run: String,
        /// The other coordinator.
        by: String,
    },
    /// Interrupted before the run started.
    #[error("interrupted before the run started")]
    Interrupted,
}

fn too_few(wanted: &WantedAgents, there: &[(String, Option<String>)]) -> String {
    let asked = match wanted {
        WantedAgents::Number(1) => "1 agent was asked for".to_owned(),
        WantedAgents::Number(n) => format!("{n} agents were asked for"),
        WantedAgents::Label(label) => format!("agents with the label {label} were asked for"),
    };
    let name = |(name, why_not): &(String, Option<String>)| match why_not {
        Some(why) => format!("{name} ({why})"),
        None => name.clone(),
    };
    match there.len() {
        0 => format!("{asked}; none is there"),
        _ => format!("{asked}; there are {}", there.iter().map(name).collect::<Vec<_>>().join(", ")),
    }
}

fn versions(agents: &[(String, String)]) -> String {
    agents.iter().map(|(name, other)| format!("{name} is {other}")).collect::<Vec<_>>().join(", ")
}

/// How a run goes.
#[derive(Clone, Debug)]
pub struct RunProgress {
    /// Since the start.
    pub elapsed: Duration,
    /// Figures so far, of all agents.
    pub figures: IntervalFigures,
    /// Requests in flight at the agents' last words.
    pub in_flight: u64,
    /// Connections open then.
    pub open: u64,
    /// Agents that have not ended.
    pub agents: usize,
    /// How each agent is doing; empty where there are too many to tell.
    pub machines: Vec<MachineNow>,
    /// Whether no NATS server has been there for some seconds.
    pub is_cut_off: bool,
    /// How old the figures are, if they are older than they should be.
    pub old: Option<Duration>,
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
    /// The agents' clocks against the coordinator's, by name; empty where they were not kept.
    pub clocks: BTreeMap<String, ClockOffset>,
    /// Requests that agents left out of the log, because they were too many for the bus.
    pub log_left_out: u64,
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
    bus: NatsBus,
    stop: watch::Receiver<bool>,
    key: Option<SigningKey>,
    on_loss: OnLoss,
    /// Takes what became of each request.
    log: Option<request_log::Sender>,
}

impl Coordinator {
    /// Connects. When `stop` becomes true, agents are asked to end and the result is what they
    /// measured.
    pub async fn connect(options: &BusOptions, stop: watch::Receiver<bool>) -> Result<Coordinator, RunError> {
        Ok(Coordinator {
            bus: NatsBus::open(options).await?,
            stop,
            key: None,
            on_loss: OnLoss::default(),
            log: None,
        })
    }

    /// Signs run documents.
    #[must_use]
    pub fn signing(self, key: Option<SigningKey>) -> Coordinator {
        Coordinator { key, ..self }
    }

    /// Hands over what became of each request.
    #[must_use]
    pub fn logging(self, log: Option<request_log::Sender>) -> Coordinator {
        Coordinator { log, ..self }
    }

    /// What happens to the share of an agent that is lost.
    #[must_use]
    pub fn on_loss(self, on_loss: OnLoss) -> Coordinator {
        Coordinator { on_loss, ..self }
    }

    /// Carries out a plan on agents. `announce` is called once, with what they carry out and when they
    /// start.
    pub async fn run(
        &mut self,
        plan: Plan,
        wanted: WantedAgents,
        announce: impl FnOnce(&RunDocument, SystemTime),
        say: impl FnMut(&RunProgress),
    ) -> Result<Collected, RunError> {
        let carried_out = self.carry_out(plan, wanted, announce, say).await;
        carried_out.map_err(|error| match error {
            RunError::Bus(error) => RunError::Bus(self.bus.explained(error)),
            other => other,
        })
    }

    async fn carry_out(
        &mut self,
        plan: Plan,
        wanted: WantedAgents,
        announce: impl FnOnce(&RunDocument, SystemTime),
        mut say: impl FnMut(&RunProgress),
    ) -> Result<Collected, RunError> {
        let complaints = self.bus.complaints.clone();
        let cards = complaints.or(self.find(&wanted)).await?;
        let kernels = differing_kernels(&cards);
        let doubts =
            cards.iter().filter_map(|card| Some(format!("{}: {}", card.name, sealing::doubt(card)?)));
        let doubts: Vec<_> = doubts.collect();
        if !doubts.is_empty() {
            return Err(RunError::Refused(doubts));
        }
        let name = |c: &AgentCard| (c.name.clone(), c.incarnation.clone(), c.cores);
        let names: Vec<_> = cards.iter().map(name).collect();
        let threads = plan.threads;
        let shares = split(&plan, threads, &names)?;
        let run = format!("{:012x}", (unix_ns() >> 10) & 0xffff_ffff_ffff);
        let (schema, version) = (SCHEMA.to_owned(), VERSION.to_owned());
        let (sealed, encrypted) = sealing::seal(&plan, &run, &cards)?;
        let hidden = sealing::redacted(&plan);
        let log_requests = self.log.is_some();
        let document = RunDocument { schema, version, run, plan: hidden, sealed, log_requests, shares };
        let lease = complaints.or(Lease::take(&self.bus, &document.run, &self.stop)).await?;
        let clock = self.bus.client.subscribe(keys::clock(&document.run)).await.map_err(BusError::new)?;
        let clock = tokio::spawn(tell_time(self.bus.client.clone(), clock));
        let started = complaints.or(self.start(&document, encrypted)).await;
        clock.abort();
        let (go, clocks) = match started {
            Ok(started) => {
                announce(&document, SystemTime::UNIX_EPOCH + Duration::from_nanos(started.0));
                started
            }
            Err(error) => {
                // Agents that are ready wait for the start: without this order, for a minute.
                let key = keys::stop(&document.run);
                let stop = self.bus.order(&key);
                drop(timeout(LOOK_WITHIN, stop).await);
                drop(timeout(LOOK_WITHIN, self.bus.forget_plan(&document.run)).await);
                lease.leave().await;
                return Err(error);
            }
        };
        let mut collected = self.follow_alone(lease, document, go, &mut say).await?;
        collected.clocks = clocks;
        collected.plan = plan;
        collected.outcome.warnings.extend(kernels);
        Ok(collected)
    }

    /// Follows a run to its end, as long as no other coordinator takes it over.
    async fn follow_alone(
        &mut self,
        lease: Lease,
        document: RunDocument,
        go: u64,
        say: &mut impl FnMut(&RunProgress),
    ) -> Result<Collected, RunError> {
        let run = document.run.clone();
        let mut collected = self.follow(&lease, document, go, say).await;
        let alone = lease.check_again().await;
        if let (Ok(()), Ok(collected)) = (&alone, &mut collected) {
            self.clear(&run, collected).await;
        }
        lease.leave().await;
        alone.and(collected)
    }

    /// The run is over: its secrets go, and if its result is complete, so do the agents' spools.
    async fn clear(&self, run: &str, collected: &mut Collected) {
        let (is_complete, over) = (collected.is_complete(), keys::over(run));
        let cleared = async {
            if is_complete {
                self.bus.order(&over).await?;
            }
            self.bus.forget_plan(run).await
        };
        let why = match timeout(CLEAR_WITHIN, cleared).await {
            Ok(Ok(())) => return,
            Ok(Err(error)) => error.what,
            Err(_) => format!("no response within {} s", CLEAR_WITHIN.as_secs()),
        };
        collected
            .outcome
            .warnings
            .push(format!("the run's encrypted plan stays on the bus for two days: {why}"));
    }

    /// Continues with a run that another coordinator started, if that one has ended.
    pub async fn resume(
        mut self,
        run: &str,
        mut say: impl FnMut(&RunProgress),
    ) -> Result<Collected, RunError> {
        let no_run = || RunError::NoRun(run.to_owned());
        if !keys::is_name(run) {
            return Err(no_run());
        }
        let document = self.bus.document(run).await?.ok_or_else(no_run)?;
        let complaints = self.bus.complaints.clone();
        let lease = complaints.or(Lease::take(&self.bus, run, &self.stop)).await?;
        let go = self.bus.runs.get(keys::go(run)).await.map_err(BusError::new)?;
        let Some(go) = go.and_then(|value| std::str::from_utf8(&value).ok()?.parse().ok()) else {
            lease.leave().await;
            return Err(RunError::NotStarted(run.to_owned()));
        };
        self.follow_alone(lease, document, go, &mut say).await
    }

    /// Agents that are free, as many as wanted.
    async fn find(&mut self, wanted: &WantedAgents) -> Result<Vec<AgentCard>, RunError> {
        let deadline = Instant::now() + AGENTS_WITHIN;
        let mut roster = self.bus.roster().await?;
        loop {
            let is_asked_for = |card: &&AgentCard| match wanted {
                WantedAgents::Number(_) => true,
                WantedAgents::Label(label) => card.labels.contains(label),
            };
            let asked_for: Vec<_> = roster.agents().into_iter().flatten().filter(is_asked_for).collect();
            let other = |card: &&AgentCard| Some((card.name.clone(), card.other_version()?));
            let others: Vec<_> = asked_for.iter().filter_map(other).collect();
            let is_free = |card: &&AgentCard| card.run.is_none() && card.other_version().is_none();
            let mut free: Vec<AgentCard> = asked_for.into_iter().filter(is_free).cloned().collect();
            // All agents with the label are meant, also those that cannot read the plan.
            if matches!(wanted, WantedAgents::Label(_)) && !others.is_empty() {
                return Err(RunError::OtherVersions(others));
            }
            let enough = match wanted {
                WantedAgents::Number(n) => free.len() >= *n as usize,
                // Those that belong together appear within moments of each other.
                WantedAgents::Label(_) => !free.is_empty(),
            };
            if enough {
                if let WantedAgents::Number(n) = wanted {
                    free.truncate(*n as usize);
                }
                return Ok(free);
            }
            if *self.stop.borrow() {
                return Err(RunError::Interrupted);
            }
            if Instant::now() >= deadline {
                let there = roster.agents().into_iter().flatten();
                let there = there.map(|card| (card.name.clone(), why_not(card))).collect();
                return Err(RunError::TooFew { wanted: wanted.clone(), there });
            }
            roster.change(Duration::from_millis(200)).await;
        }
    }

    /// Writes the document, waits until all agents are ready, and gives the order to start: the
    /// moment, nanoseconds since 1970, and how far each agent's clock is ahead of ours.
    async fn start(
        &mut self,
        document: &RunDocument,
        encrypted: Vec<u8>,
    ) -> Result<(u64, BTreeMap<String, ClockOffset>), RunError> {
        let run = &document.run;
        let text = self.written(document)?;
        let all_ready = [keys::ready(run, "*")];
        let mut answers =
            Changes::open(&self.bus.runs, &all_ready, ChangesSince::Now).await.map_err(BusError::new)?;
        self.bus.create(&keys::plan(run), encrypted).await?;
        self.bus.create(&keys::document(run), text).await?;
        let deadline = Instant::now() + READY_WITHIN;
        let mut waiting: Vec<&str> = document.shares.iter().map(|share| share.agent.as_str()).collect();
        let (mut refused, mut clocks) = (Vec::new(), BTreeMap::new());
        while !waiting.is_empty() {
            let entry = tokio::select! {
                entry = answers.next_until(deadline) => entry,
                _ = self.stop.wait_for(|stop| *stop) => return Err(RunError::Interrupted),
            };
            let Some(entry) = entry else {
                let silent = waiting.iter().map(|name| format!("{name} did not answer")).collect();
                return Err(RunError::Refused(silent));
            };
            let Some(at) = waiting.iter().position(|name| keys::ready(run, name) == entry.key) else {
                continue;
            };
            let name = waiting.swap_remove(at);
            match serde_json::from_slice::<AgentReady>(&entry.value) {
                Ok(ready) => {
                    let (offset_ns, uncertainty_ns) = (ready.clock_offset_ns, ready.clock_uncertainty_ns);
                    clocks.insert(name.to_owned(), ClockOffset { offset_ns, uncertainty_ns });
                    refused.extend(ready.refused);
                }
                Err(error) => refused.push(format!("the answer of {name} cannot be read: {error}")),
            }
        }
        if !refused.is_empty() {
            return Err(RunError::Refused(refused));
        }
        let go = unix_ns() + LEAD.as_nanos() as u64;
        self.bus.create(&keys::go(run), go.to_string().into_bytes()).await?;
        Ok((go, clocks))
    }

    /// A document as it is written: signed, if there is a key.
    fn written(&self, document: &impl serde::Serialize) -> Result<Vec<u8>, BusError> {
        let text = serde_json::to_vec(document).map_err(BusError::new)?;
        self.key.as_ref().map_or(Ok(text.clone()), |key| key.sign(&text))
    }

    /// Gives the shares of lost agents to others, or ends the run. What to say of it.
    async fn remedy(
        &self,
        losses: &mut Losses,
        merger: &mut Merger,
        presence: &Presence,
        elapsed: Duration,
    ) -> Vec<String> {
        if self.on_loss == OnLoss::Continue || merger.lagging(elapsed, LAG).is_empty() {
            return Vec::new();
        }
        let mut said = Vec::new();
        for remedy in losses.remedies(self.on_loss, merger, presence, elapsed) {
            match remedy {
                Remedy::Abort(share) => {
                    self.order_stop(merger.run());
                    said.push(format!("the run was aborted because agent {} was lost", share.agent));
                }
                Remedy::Nobody(share) => {
                    said.push(format!("no agent could take over the share of {}", share.agent));
                }
                Remedy::Give(number, takeover) => {
                    let key = keys::takeover(&takeover.run, &number.to_string());
                    let written = async { self.bus.create(&key, self.written(&takeover)?).await };
                    match written.await {
                        Ok(()) => {
                            said.push(taken_over(&takeover));
                            merger.add_takeover(&takeover);
                        }
                        Err(error) => {
                            said.push(format!("no agent was given the share of {}: {error}", takeover.lost))
                        }
                    }
                }
            }
        }
        said
    }

    /// Looks which agents of a run are at work; `None`: the bus did not answer.
    async fn look(&self, merger: &Merger) -> Option<Vec<PresentAgent>> {
        let unfinished = merger.unfinished().map(|share| share.agent.as_str());
        timeout(LOOK_WITHIN, self.bus.present(unfinished)).await.ok()?.ok()
    }

    /// Orders the agents to stop, as soon as a broker takes the order.
    fn order_stop(&self, run: &str) {
        let (bus, key) = (self.bus.clone(), keys::stop(run));
        tokio::spawn(async move {
            while bus.order(&key).await.is_err() {
                sleep(AGAIN).await;
            }
        });
    }

    /// The takeovers that a run has had.
    async fn takeovers(&self, run: &str) -> Result<Vec<Takeover>, BusError> {
        let (mut takeovers, mut missing) = (Vec::new(), 0);
        for number in 1.. {
            let key = keys::takeover(run, &number.to_string());
            match self.bus.runs.get(key).await.map_err(BusError::new)? {
                Some(value) => {
                    takeovers.push(serde_json::from_slice(signing::parts(&value).1).map_err(BusError::new)?);
                    missing = 0;
                }
                // Of a run that was replayed some may be missing.
                None if missing < GAP && !takeovers.is_empty() => missing += 1,
                None if number <= GAP && takeovers.is_empty() => {}
                None => break,
            }
        }
        Ok(takeovers)
    }

    /// Adds up messages until all agents have ended, or are gone.
    async fn follow(
        &mut self,
        lease: &Lease,
        document: RunDocument,
        go: u64,
        say: &mut impl FnMut(&RunProgress),
    ) -> Result<Collected, RunError> {
        let run = document.run.clone();
        let messages = messages(&self.bus, &run, 1).await?;
        let (to, mut arrived) = mpsc::channel(WAITING);
        // The stream of messages must not be dropped in the middle of a step, as a time limit would.
        let reading = ReaderTask(tokio::spawn(read(self.bus.clone(), run.clone(), messages, to)));
        let mut merger = Merger::new(document);
        let before = self.takeovers(&run).await?;
        for takeover in &before {
            merger.add_takeover(takeover);
        }
        let mut losses = Losses::new(run.clone(), &before);
        let mut said: Vec<String> = before.iter().map(taken_over).collect();
        let (mut aborted, mut stopped) = (None, false);
        let (mut presence, begun) = (Presence::new(run.clone()), Instant::now());
        let (mut told, mut heard, mut connected) = (Instant::now(), Instant::now(), Instant::now());
        let mut give_up = Instant::now() + Duration::from_secs(u64::from(u32::MAX));
        while !merger.is_complete() {
            if let Ok(Some(message)) = timeout(Duration::from_millis(100), arrived.recv()).await {
                heard = Instant::now();
                merger.add_from(keys::sender(&message.subject), &message.payload);
                let entries = merger.take_logged();
                if let Some(log) = self.log.as_ref().filter(|_| !entries.is_empty()) {
                    log.hand_over(entries);
                }
            }
            if *self.stop.borrow() && !stopped {
                stopped = true;
                give_up = Instant::now() + END_WITHIN;
                self.order_stop(&run);
            }
            if told.elapsed() < Duration::from_secs(1) {
                continue;
            }
            told = Instant::now();
            lease.check()?;
            connected = if self.bus.is_connected() { Instant::now() } else { connected };
            let elapsed = Duration::from_nanos(unix_ns().saturating_sub(go));
            let old = old(&merger, elapsed, heard.elapsed());
            say(&progress(&merger, elapsed, connected.elapsed() >= SILENCE, old));
            let is_silent = heard.elapsed() >= SILENCE;
            if is_silent || !merger.lagging(elapsed, LOOK).is_empty() {
                let there = self.look(&merger).await;
                presence.note(begun.elapsed(), there.as_deref(), merger.unfinished());
            }
            let remedies = self.remedy(&mut losses, &mut merger, &presence, elapsed).await;
            if self.on_loss == OnLoss::Abort && aborted.is_none() {
                aborted = remedies.first().cloned();
                give_up = if aborted.is_some() { Instant::now() + END_WITHIN } else { give_up };
            }
            said.extend(remedies);
            if Instant::now() >= give_up || (is_silent && presence.all_gone()) {
                break;
            }
        }
        drop(reading);
        said.extend(left_behind(&merger, &presence));
        let mut collected = self.collected(&merger, said);
        // Agents report every stop as an interruption, also an abort by a condition of the plan.
        let outcome = &mut collected.outcome;
        outcome.interrupted = stopped || (outcome.interrupted && aborted.is_none());
        outcome.aborted = outcome.aborted.take().or(aborted);
        Ok(collected)
    }

    /// What came of all agents, with all that is to be said about it.
    fn collected(&self, merger: &Merger, said: Vec<String>) -> Collected {
        let (mut outcome, agents) = (merger.outcome(), merger.agents());
        outcome.warnings.extend(doubts(&agents));
        outcome.warnings.extend(said);
        if !merger.is_complete() && !self.bus.is_connected() {
            let warning =
                "no NATS server could be reached at the end; what agents measured since is in their spools";
            outcome.warnings.push(warning.to_owned());
        }
        let (run, plan) = (merger.run().to_owned(), merger.plan().clone());
        let log_left_out = merger.log_left_out();
        Collected { run, plan, outcome, agents, clocks: BTreeMap::new(), log_left_out }
    }
}

/// Ends the task that reads messages when the coordinator needs no more.
#[derive(Debug)]
struct ReaderTask(JoinHandle<()>);

impl Drop for ReaderTask {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// The run's messages, from this one in the stream on.
async fn messages(bus: &NatsBus, run: &str, from: u64) -> Result<Ordered, BusError> {
    let filter_subject = keys::subjects(run);
    let deliver_policy = DeliverPolicy::ByStartSequence { start_sequence: from };
    let config = OrderedConfig { filter_subject, deliver_policy, ..OrderedConfig::default() };
    let consumer = bus.stream.create_consumer(config).await.map_err(BusError::new)?;
    consumer.messages().await.map_err(BusError::new)
}

/// Reads the run's messages, however often the broker is away meanwhile.
async fn read(bus: NatsBus, run: String, mut of_run: Ordered, to: mpsc::Sender<async_nats::Message>) {
    let mut next = 1;
    loop {
        while let Ok(Some(Ok(message))) = timeout(QUIET, of_run.next()).await {
            next = message.info().map_or(next, |info| info.stream_sequence + 1);
            if to.send(message.message).await.is_err() {
                return;
            }
        }
        // After an error, a silence, or the end of the consumer, another one continues where it was.
        of_run = loop {
            if let Ok(Ok(again)) = timeout(OPENS_WITHIN, messages(&bus, &run, next)).await {
                break again;
            }
            sleep(AGAIN).await;
        };
    }
}

/// How old the agents' figures are, if they are older than they should be. `heard`: since the last
/// message.
fn old(merger: &Merger, elapsed: Duration, heard: Duration) -> Option<Duration> {
    // The first message comes a second after the warm-up.
    let expected = elapsed.saturating_sub(merger.plan().warm_up + Duration::from_secs(1));
    let old = heard.min(expected);
    (old >= SILENCE && merger.unfinished().next().is_some()).then_some(old)
}

/// Agents that have no part in the run any more, and never said what they measured.
fn left_behind(merger: &Merger, presence: &Presence) -> Vec<String> {
    let idle: Vec<&str> = merger
        .unfinished()
        .filter(|share| presence.is_idle(share))
        .map(|share| share.agent.as_str())
        .collect();
    let unread = match merger.unread() {
        0 => String::new(),
        1 => "; one message cannot be read".to_owned(),
        n => format!("; {n} messages cannot be read"),
    };
    let said = |name: &&str| {
        format!(
            "agent {name} has ended its part without a last message{unread}; what it measured is in its spool \
             (linerate agent replay)"
        )
    };
    idle.iter().map(said).collect()
}

fn progress(merger: &Merger, elapsed: Duration, is_cut_off: bool, old: Option<Duration>) -> RunProgress {
    let (figures, in_flight, open) = merger.so_far();
    RunProgress {
        elapsed,
        figures,
        in_flight,
        open,
        agents: merger.unfinished().count(),
        machines: if merger.shares().len() <= TOLD { merger.now() } else { Vec::new() },
        is_cut_off,
        old,
        series: merger.recent(SHOWN),
    }
}

fn taken_over(takeover: &Takeover) -> String {
    let (accounted, at) = (takeover.accounted_ns as f64 / 1e9, takeover.at_ns as f64 / 1e9);
    format!(
        "agent {} took over the share of {} at {at:.0} s; what was due between {accounted:.0} s and then is unsent",
        takeover.share.agent, takeover.lost
    )
}

/// Why an agent cannot take part in a run; `None`: it is free.
fn why_not(card: &AgentCard) -> Option<String> {
    let busy = card.run.as_ref().map(|run| format!("busy with run {run}"));
    card.other_version().map(|other| format!("{other}, not {VERSION}")).or(busy)
}

/// Agents whose reports are missing or altered, for warnings.
fn doubts(agents: &[AgentResult]) -> Vec<String> {
    let doubt = |agent: &AgentResult| {
        let name = &agent.share.agent;
        match &agent.standing {
            Standing::Complete => None,
            Standing::Open { last_second: None } => Some(format!("agent {name} reported nothing")),
            Standing::Open { last_second: Some(second) } => Some(format!(
                "agent {name} was lost after second {second}; requests it had in flight count as unknown"
            )),
            // It says so itself.
            Standing::Left { .. } => None,
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

/// Answers agents that ask for the time, in their inboxes alone. Reason: where a reply would be a key
/// of the bucket, an agent's user would write by our rights.
async fn tell_time(client: async_nats::Client, mut requests: async_nats::Subscriber) {
    while let Some(request) = requests.next().await {
        if let Some(reply) = request.reply.filter(|reply| reply.starts_with("_INBOX.")) {
            let _ = client.publish(reply, unix_ns().to_string().into()).await;
        }
    }
}
