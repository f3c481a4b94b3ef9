//! An agent: waits for runs that name it, carries out its share, and publishes what it measures.

use std::collections::VecDeque;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use futures_util::StreamExt;
use linerate_load::{Outcome, Place, Plan, Running};
use linerate_net::{Time, machine};
use tokio::sync::{Notify, watch};
use tokio::time::{Instant, sleep, sleep_until, timeout};

use crate::bus::{Bus, BusError, BusOptions, keys, unix_ns};
use crate::clock::{ClockFilter, ClockOffset, EXCHANGES, TOLERABLE};
use crate::document::{AgentCard, AllowList, Ready, RunDocument, SCHEMA, Share};
use crate::figures::Figures;
use crate::message::{Message, MessageDigest, Word, digest_of, digest_of_all};
use crate::spool::Spool;

/// How often the agent's key is renewed.
const RENEW: Duration = Duration::from_secs(1);

/// How long an agent waits for the start of a run that it is ready for.
const GO_WITHIN: Duration = Duration::from_secs(60);

/// Messages that wait in memory for the broker. Reason: three hours at one a second; older ones are
/// in the spool alone.
const QUEUE: usize = 10_000;

/// How long the agent tries to publish its last messages after the run.
const LAST_WORDS: Duration = Duration::from_secs(60);

/// How long before the common start threads are started. Reason: opening rings and pinning takes
/// milliseconds; the threads then spin until the start.
const EARLY: Duration = Duration::from_millis(100);

/// What an agent allows, and how it appears.
#[derive(Clone, Debug)]
pub struct AgentOptions {
    /// The way to NATS.
    pub bus: BusOptions,
    /// Its name, unique on the bus: letters, digits, `-` and `_`.
    pub name: String,
    /// Labels, `key=value`.
    pub labels: Vec<String>,
    /// What it may load.
    pub allowed: AllowList,
    /// Highest rate of its own share, requests/s; `None`: any.
    pub max_rate: Option<f64>,
    /// Longest run; `None`: any.
    pub max_duration: Option<Duration>,
    /// Folder for spool files.
    pub spool: PathBuf,
    /// Version of the program.
    pub version: String,
    /// End after this many runs; `None`: never.
    pub runs: Option<u32>,
}

/// What an agent has to say, for a log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AgentEvent {
    /// It can be given runs.
    Waiting,
    /// A run named it, and it refused.
    Refused {
        /// The run.
        run: String,
        /// Why.
        why: String,
    },
    /// A run begins.
    Started {
        /// The run.
        run: String,
        /// The target.
        url: String,
    },
    /// A run has ended and its results are published.
    Ended {
        /// The run.
        run: String,
    },
    /// Results are not all published; they are in the spool.
    Unpublished {
        /// The run.
        run: String,
        /// The file.
        spool: PathBuf,
        /// Why.
        why: String,
    },
    /// The spool cannot be written.
    NoSpool {
        /// Why.
        why: String,
    },
}

/// Serves runs until `stop` becomes true.
pub async fn serve(
    options: AgentOptions,
    mut stop: watch::Receiver<bool>,
    say: impl Fn(AgentEvent) + Send + Sync + 'static,
) -> Result<(), BusError> {
    if !keys::is_name(&options.name) {
        let what = format!("--name {:?}: a name has 1 to 64 letters, digits, - or _", options.name);
        return Err(BusError::new(what).hint("for example --name eu-1"));
    }
    let bus = Bus::open(&options.bus).await?;
    let incarnation = format!("{:016x}", unix_ns() ^ (u64::from(std::process::id()) << 40));
    let agent = Arc::new(Agent { options, bus, incarnation, run: Mutex::new(None), say: Box::new(say) });
    agent.enter().await?;
    let renewing = tokio::spawn(Arc::clone(&agent).renew());
    (agent.say)(AgentEvent::Waiting);
    let served = tokio::select! {
        served = agent.serve_runs() => served,
        _ = stop.wait_for(|stop| *stop) => Ok(()),
    };
    renewing.abort();
    let _ = agent.bus.agents.delete(&agent.options.name).await;
    let _ = agent.bus.client.flush().await;
    served
}

struct Agent {
    options: AgentOptions,
    bus: Bus,
    incarnation: String,
    run: Mutex<Option<String>>,
    say: Box<dyn Fn(AgentEvent) + Send + Sync>,
}

impl Agent {
    fn card(&self) -> Vec<u8> {
        let card = AgentCard {
            schema: SCHEMA.to_owned(),
            name: self.options.name.clone(),
            incarnation: self.incarnation.clone(),
            version: self.options.version.clone(),
            kernel: std::fs::read_to_string("/proc/sys/kernel/osrelease")
                .unwrap_or_default()
                .trim()
                .to_owned(),
            cores: u32::try_from(machine::allowed_cores().len()).unwrap_or(1),
            labels: self.options.labels.clone(),
            run: self.run.lock().unwrap_or_else(PoisonError::into_inner).clone(),
        };
        serde_json::to_vec(&card).unwrap_or_default()
    }

    /// Takes its name. A name that another agent has is an error.
    async fn enter(&self) -> Result<(), BusError> {
        let name = &self.options.name;
        self.bus.agents.create(name, self.card().into()).await.map(drop).map_err(|error| match error.kind() {
            async_nats::jetstream::kv::CreateErrorKind::AlreadyExists => {
                BusError::new(format!("another agent is named {name}"))
                    .hint("give this one another --name; the name of an agent that died is free after 5 s")
            }
            _ => BusError::new(error),
        })
    }

    async fn renew(self: Arc<Agent>) {
        loop {
            sleep(RENEW).await;
            // The next second tries again; without success the key ends by itself.
            let _ = timeout(RENEW, self.bus.agents.put(&self.options.name, self.card().into())).await;
        }
    }

    async fn serve_runs(&self) -> Result<(), BusError> {
        let mut documents = self.bus.runs.watch("*.document").await.map_err(BusError::new)?;
        let mut served = 0;
        while let Some(entry) = documents.next().await {
            let Ok(entry) = entry else { continue };
            let Ok(document) = serde_json::from_slice::<RunDocument>(&entry.value) else { continue };
            let share = document.share_of(&self.options.name, &self.incarnation).cloned();
            let Some(share) = share.filter(|_| keys::is_name(&document.run)) else { continue };
            self.set_run(Some(document.run.clone()));
            if let Err(why) = self.take_part(&document, &share).await {
                (self.say)(AgentEvent::Refused { run: document.run, why: why.to_string() });
            }
            self.set_run(None);
            served += 1;
            if self.options.runs.is_some_and(|most| served >= most) {
                return Ok(());
            }
        }
        Err(BusError::new("the connection to NATS ended"))
    }

    fn set_run(&self, run: Option<String>) {
        *self.run.lock().unwrap_or_else(PoisonError::into_inner) = run;
    }

    /// From the document to the last message.
    async fn take_part(&self, document: &RunDocument, share: &Share) -> Result<(), BusError> {
        let run = &document.run;
        let mut plan = document.plan.clone();
        plan.threads = Some(share.threads);
        let offset = self.clock_offset(run).await;
        let refused = self.refusal(document, share, &plan, offset);
        let ready = Ready {
            incarnation: self.incarnation.clone(),
            refused: refused.clone(),
            clock_uncertainty_ns: offset.map_or(u64::MAX, |o| o.uncertainty_ns),
        };
        let ready = serde_json::to_vec(&ready).unwrap_or_default();
        self.bus.create(&keys::ready(run, &self.options.name), ready).await?;
        if let Some(why) = refused {
            return Err(BusError::new(why));
        }
        let offset = offset.unwrap_or(ClockOffset { offset_ns: 0, uncertainty_ns: 0 });
        let Some(go) = self.wait_for_go(run).await? else {
            return Err(BusError::new("the run was given up before it started"));
        };
        let wait = Duration::from_nanos(offset.ours(go).saturating_sub(unix_ns()));
        let start = machine::monotonic_now() + wait;
        sleep_until(Instant::now() + wait.saturating_sub(EARLY)).await;
        let place =
            Place { first_thread: share.first_thread, all_threads: document.threads(), start: Some(start) };
        (self.say)(AgentEvent::Started { run: run.clone(), url: plan.target.url.clone() });
        self.measure(run, plan, place).await
    }

    /// Why this agent does not take part.
    fn refusal(
        &self,
        document: &RunDocument,
        share: &Share,
        plan: &Plan,
        offset: Option<ClockOffset>,
    ) -> Option<String> {
        let name = &self.options.name;
        if document.schema != SCHEMA {
            return Some(format!("{name} knows {SCHEMA}, not {}", document.schema));
        }
        if !self.options.allowed.allows(plan) {
            let target = &plan.target.authority;
            return Some(format!("{name} may not load {target}: its --allow-target does not list it"));
        }
        let part = f64::from(share.threads) / f64::from(document.threads().max(1));
        if let (Some(most), Some(rate)) = (self.options.max_rate, highest_rate(plan))
            && rate * part > most
        {
            return Some(format!("{name} sends at most {most} requests/s, and its share is {}", rate * part));
        }
        if let Some(most) = self.options.max_duration
            && plan.stop.duration.is_none_or(|duration| duration + plan.warm_up > most)
        {
            return Some(format!("{name} allows runs of at most {} s", most.as_secs_f64()));
        }
        match offset {
            None => Some(format!("{name} got no answer about the coordinator's clock")),
            Some(o) if o.uncertainty_ns > TOLERABLE.as_nanos() as u64 => Some(format!(
                "{name} knows the coordinator's clock only to {} ms",
                o.uncertainty_ns / 1_000_000
            )),
            Some(_) => linerate_load::check(plan).err().map(|error| format!("{name}: {error}")),
        }
    }

    async fn clock_offset(&self, run: &str) -> Option<ClockOffset> {
        let mut filter = ClockFilter::default();
        for _ in 0..EXCHANGES {
            let left = unix_ns();
            let reply = timeout(RENEW, self.bus.client.request(keys::clock(run), bytes::Bytes::new())).await;
            let came = unix_ns();
            if let Ok(Ok(reply)) = reply
                && let Some(theirs) = std::str::from_utf8(&reply.payload).ok().and_then(|t| t.parse().ok())
            {
                filter.add(left, theirs, came);
            } else {
                return filter.best();
            }
        }
        filter.best()
    }

    /// The moment of the start on the coordinator's clock; `None`: the run was given up.
    async fn wait_for_go(&self, run: &str) -> Result<Option<u64>, BusError> {
        let keys = [keys::go(run), keys::stop(run)];
        let mut changes = self.bus.runs.watch_many_with_history(&keys).await.map_err(BusError::new)?;
        let first = timeout(GO_WITHIN, changes.next()).await.ok().flatten();
        let Some(Ok(entry)) = first else { return Ok(None) };
        Ok((entry.key == keys[0]).then(|| std::str::from_utf8(&entry.value).ok()?.parse().ok()).flatten())
    }

    /// Runs the share and publishes an interval each second.
    async fn measure(&self, run: &str, plan: Plan, place: Place) -> Result<(), BusError> {
        let (bus, subject) = (self.bus.clone(), keys::subject(run, &self.options.name));
        let file = self.options.spool.join(format!("linerate-{run}-{}.jsonl", self.options.name));
        let spool = Spool::create(&file);
        if let Err(error) = &spool {
            (self.say)(AgentEvent::NoSpool { why: format!("{}: {error}", file.display()) });
        }
        let queue = Arc::new(Queue::default());
        let publishing = tokio::spawn(publish(bus, subject, Arc::clone(&queue)));
        let mut log = Log {
            run: run.to_owned(),
            agent: self.options.name.clone(),
            incarnation: self.incarnation.clone(),
            spool: spool.ok(),
            queue: Arc::clone(&queue),
            digests: Vec::new(),
            before: Figures::default(),
        };
        let start = place.start.unwrap_or_else(machine::monotonic_now) + plan.warm_up;
        let started = linerate_load::start_part(plan, place);
        let outcome = match started {
            Err(error) => Outcome { broken: Some(error.to_string()), ..Outcome::default() },
            Ok(running) => {
                let mut stop =
                    self.bus.runs.watch_with_history(keys::stop(run)).await.map_err(BusError::new)?;
                let mut second = 0;
                while !running.finished() {
                    let end = start + Duration::from_secs(second + 1);
                    second += u64::from(next_second(&running, end, &mut stop, &mut log, second).await);
                }
                tokio::task::spawn_blocking(move || running.join()).await.map_err(BusError::new)?
            }
        };
        log.finish(outcome);
        queue.close();
        match timeout(LAST_WORDS, publishing).await {
            Ok(Ok(0)) => (self.say)(AgentEvent::Ended { run: run.to_owned() }),
            left => {
                let why = format!("NATS did not take them ({left:?})");
                (self.say)(AgentEvent::Unpublished { run: run.to_owned(), spool: file, why });
            }
        }
        Ok(())
    }
}

/// The highest rate that an open loop reaches.
fn highest_rate(plan: &Plan) -> Option<f64> {
    match &plan.pace {
        linerate_load::plan::Pace::Open { rate, .. } => {
            rate.steps.iter().map(|step| step.from.max(step.to)).reduce(f64::max)
        }
        _ => None,
    }
}

/// Waits for the end of a second, of the run, or for the order to stop; whether a second was logged.
async fn next_second(
    running: &Running,
    end: Time,
    stop: &mut async_nats::jetstream::kv::Watch,
    log: &mut Log,
    second: u64,
) -> bool {
    const SLICE: Duration = Duration::from_millis(20);
    let now = machine::monotonic_now();
    if now >= end {
        let snapshot = running.snapshot();
        log.interval(second, (snapshot.in_flight, snapshot.open), Figures::of_snapshot(&snapshot));
        return true;
    }
    let left = Duration::from_nanos(end.nanos_since(now)).min(SLICE);
    if let Ok(Some(_)) = timeout(left, stop.next()).await {
        running.stop();
        sleep(left).await;
    }
    false
}

/// Numbers the messages, and keeps each in the spool and for the broker.
struct Log {
    run: String,
    agent: String,
    incarnation: String,
    spool: Option<Spool>,
    queue: Arc<Queue>,
    digests: Vec<MessageDigest>,
    before: Figures,
}

impl Log {
    fn interval(&mut self, second: u64, (in_flight, open): (u64, u64), now: Figures) {
        let figures = Box::new(now.since(&self.before));
        self.before = now;
        self.put(Word::Interval { second, in_flight, open, figures });
    }

    /// The rest since the last interval, then the last word.
    fn finish(&mut self, mut outcome: Outcome) {
        let second = (self.digests.len() as u64).max(outcome.duration.as_secs());
        self.interval(second, (0, 0), Figures::of_outcome(&outcome));
        outcome.series.clear();
        outcome.saved.clear();
        let digest = digest_of_all(&self.digests);
        self.put(Word::Final { digest, outcome: Box::new(outcome) });
    }

    fn put(&mut self, word: Word) {
        let message = Message {
            schema: SCHEMA.to_owned(),
            run: self.run.clone(),
            agent: self.agent.clone(),
            incarnation: self.incarnation.clone(),
            seq: self.digests.len() as u64,
            word,
        };
        let bytes = message.to_bytes();
        self.digests.push(digest_of(&bytes));
        if let Some(spool) = &mut self.spool
            && spool.append(&bytes).is_err()
        {
            // A full disk: what follows is in memory alone.
            self.spool = None;
        }
        self.queue.push(message.id(), bytes);
    }
}

/// Messages on the way to the broker. Measuring never waits for it.
#[derive(Default)]
struct Queue {
    state: Mutex<(VecDeque<(String, bytes::Bytes)>, bool)>,
    changed: Notify,
}

impl Queue {
    fn push(&self, id: String, bytes: Vec<u8>) {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        if state.0.len() >= QUEUE {
            state.0.pop_front();
        }
        state.0.push_back((id, bytes.into()));
        self.changed.notify_one();
    }

    fn close(&self) {
        self.state.lock().unwrap_or_else(PoisonError::into_inner).1 = true;
        self.changed.notify_one();
    }

    /// The oldest message, and whether no more will come.
    fn first(&self) -> (Option<(String, bytes::Bytes)>, bool) {
        let state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        (state.0.front().cloned(), state.1)
    }

    fn done(&self, id: &str) {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        if state.0.front().is_some_and(|(first, _)| first == id) {
            state.0.pop_front();
        }
    }
}

/// Publishes until the queue is closed and empty; each message until the broker has stored it.
/// Messages that the broker refuses for good are left out; how many.
async fn publish(bus: Bus, subject: String, queue: Arc<Queue>) -> u64 {
    const AGAIN: Duration = Duration::from_millis(500);
    let mut refused = 0;
    loop {
        match queue.first() {
            (None, true) => return refused,
            (None, false) => queue.changed.notified().await,
            (Some((id, bytes)), _) => {
                let too_long = bytes.len() > bus.client.server_info().max_payload;
                refused += u64::from(too_long);
                if too_long || bus.publish(subject.clone(), &id, bytes).await.is_ok() {
                    queue.done(&id);
                } else {
                    sleep(AGAIN).await;
                }
            }
        }
    }
}

/// Publishes what a spool holds. The broker and the coordinator drop what they have already. How
/// many messages were published, and how many lines were torn.
pub async fn replay(bus: &BusOptions, file: &std::path::Path) -> Result<(u64, u64), BusError> {
    let spooled = crate::spool::read(file).map_err(|e| BusError::new(format!("{}: {e}", file.display())))?;
    if spooled.messages.is_empty() {
        return Err(BusError::new(format!("{} holds no message of a run", file.display()))
            .hint("name a spool file that an agent wrote: linerate-RUN-AGENT.jsonl"));
    }
    let bus = Bus::open(bus).await?;
    let mut published = 0;
    for (message, bytes) in spooled.messages {
        if keys::is_name(&message.run) && keys::is_name(&message.agent) {
            bus.publish(keys::subject(&message.run, &message.agent), &message.id(), bytes.into()).await?;
            published += 1;
        }
    }
    Ok((published, spooled.torn))
}
