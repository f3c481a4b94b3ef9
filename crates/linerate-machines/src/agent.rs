//! An agent: waits for runs that name it, carries out its share, and publishes what it measures.

pub mod engine;
mod publishing;

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use async_nats::jetstream::kv;
use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use linerate_load::plan::route::Lookup;
use linerate_load::{Join, Plan, RunPlace};
use linerate_net::{Time, machine};
use tokio::net::lookup_host;
use tokio::sync::watch;
use tokio::time::{Instant, sleep, timeout};

use crate::allow::{AllowList, AllowVerdict};
use crate::bus::{BusError, BusOptions, Changes, ChangesSince, NatsBus, is_order, keys, unix_ns};
use crate::clock::{ClockFilter, ClockOffset, EXCHANGES, TOLERABLE};
use crate::document::{
    AgentCard, AgentReady, DocumentHead, RunDocument, RunShare, SCHEMA, Takeover, VERSION,
};
use crate::sealing::{self, SealKey};
use crate::signing::{self, TrustedKey};

use engine::{LoadEngine, ShareEngine};
pub use publishing::{Replayed, replay};

/// How long between attempts to reach NATS at the start.
const RETRY: Duration = Duration::from_millis(500);

/// How often the agent's key is renewed.
const RENEW: Duration = Duration::from_secs(1);

/// Time to take the own name off the list of agents. Reason: brokers may be gone, and a user who
/// interrupts waits for it.
const LEAVE_WITHIN: Duration = Duration::from_secs(2);

/// How long an agent waits for the start of a run that it is ready for.
const GO_WITHIN: Duration = Duration::from_secs(60);

/// Runs of which an agent remembers that it took part. Reason: their names rise with the time, and
/// the bucket keeps them for two days.
const REMEMBERED: usize = 10_000;

/// How long the plan of a run may take to come. Reason: it is written before the run's document.
const PLAN_WITHIN: Duration = Duration::from_secs(10);

/// How long an agent that ends after one run waits to hear whether its spool is needed any more.
const OVER_WITHIN: Duration = Duration::from_secs(5);

/// Runs whose spools are removed once their results are complete. Reason: older ones stay on disk.
const SPOOLS: usize = 1000;

/// How long a target's name may take to be looked up.
const LOOKUP_WITHIN: Duration = Duration::from_secs(10);

/// Most shares that an agent carries out at a time: its own, and those that it took over.
const MOST_PARTS: usize = 16;

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
    /// Keys of which one must have signed a run; empty: any run, signed or not.
    pub trusted: Vec<TrustedKey>,
    /// Folder for spool files.
    pub spool: PathBuf,
    /// Version of the program.
    pub version: String,
    /// End after this many runs; `None`: never.
    pub runs: Option<u32>,
    /// How long to keep trying to reach NATS at the start.
    pub wait: Duration,
}

/// What an agent has to say, for a log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AgentEvent {
    /// NATS could not be reached yet.
    Unreached {
        /// Why.
        why: String,
    },
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
    stop: watch::Receiver<bool>,
    say: impl Fn(AgentEvent) + Send + Sync + 'static,
) -> Result<(), BusError> {
    serve_by(LoadEngine, options, stop, say).await
}

/// Opens the bus, trying again as long as it may; `None`: `stop` became true before.
async fn open(
    options: &AgentOptions,
    stop: &mut watch::Receiver<bool>,
    say: &(impl Fn(AgentEvent) + Send + Sync),
) -> Result<Option<NatsBus>, BusError> {
    let until = Instant::now() + options.wait;
    let mut said = false;
    loop {
        let error = tokio::select! {
            opened = NatsBus::open(&options.bus) => match opened {
                Ok(bus) => return Ok(Some(bus)),
                Err(error) => error,
            },
            _ = stop.wait_for(|stop| *stop) => return Ok(None),
        };
        if error.is_input || Instant::now() + RETRY >= until {
            return Err(error);
        }
        if !std::mem::replace(&mut said, true) {
            say(AgentEvent::Unreached { why: error.what });
        }
        tokio::select! {
            () = sleep(RETRY) => {}
            _ = stop.wait_for(|stop| *stop) => return Ok(None),
        }
    }
}

/// As [`serve`], by an engine of one's own.
pub async fn serve_by(
    engine: impl ShareEngine + 'static,
    options: AgentOptions,
    mut stop: watch::Receiver<bool>,
    say: impl Fn(AgentEvent) + Send + Sync + 'static,
) -> Result<(), BusError> {
    if !keys::is_name(&options.name) {
        let what = format!("--name {:?}: a name has 1 to 64 letters, digits, - or _", options.name);
        return Err(BusError::new(what).hint("for example --name eu-1").input());
    }
    let Some(bus) = open(&options, &mut stop, &say).await? else { return Ok(()) };
    let incarnation = format!("{:016x}", unix_ns() ^ (u64::from(std::process::id()) << 40));
    let mut card = AgentCard {
        schema: SCHEMA.to_owned(),
        name: options.name.clone(),
        incarnation: incarnation.clone(),
        version: options.version.clone(),
        kernel: kernel(),
        cores: u32::try_from(machine::allowed_cores().len()).unwrap_or(1),
        labels: options.labels.clone(),
        ..AgentCard::default()
    };
    let seal_key = SealKey::new();
    card.seal_key = seal_key.public();
    if let Some(seed) = options.bus.seed()? {
        sealing::vouch(&mut card, &seed)?;
    }
    let agent = Arc::new(AgentState {
        options,
        bus,
        incarnation,
        card: Mutex::new(card),
        seal_key,
        engine: Box::new(engine),
        spools: Mutex::default(),
        leaving: stop.clone(),
        say: Box::new(say),
    });
    let entering = async {
        // Before anyone can see this agent, so that no run for it is missed.
        let documents = Changes::open(&agent.bus.runs, &["*.document".to_owned()], ChangesSince::Now)
            .await
            .map_err(BusError::new)?;
        agent.enter().await.map(|()| documents)
    };
    let documents = agent.bus.complaints.or(entering).await.map_err(|error| agent.bus.explained(error))?;
    let renewing = tokio::spawn(Arc::clone(&agent).renew());
    (agent.say)(AgentEvent::Waiting);
    agent.serve_runs(documents).await;
    renewing.abort();
    // Without brokers the key ends by itself.
    let leave = async {
        let _ = agent.bus.agents.delete(&agent.options.name).await;
        let _ = agent.bus.client.flush().await;
    };
    let _ = timeout(LEAVE_WITHIN, leave).await;
    Ok(())
}

struct AgentState {
    options: AgentOptions,
    bus: NatsBus,
    incarnation: String,
    /// It names the run that is carried out now.
    card: Mutex<AgentCard>,
    seal_key: SealKey,
    engine: Box<dyn ShareEngine>,
    /// The spools of runs whose result may still need them.
    spools: Mutex<BTreeMap<String, Vec<PathBuf>>>,
    /// It is to end: it stops sending, publishes what it measured, and leaves.
    leaving: watch::Receiver<bool>,
    say: Box<dyn Fn(AgentEvent) + Send + Sync>,
}

impl AgentState {
    fn card(&self) -> Result<Vec<u8>, BusError> {
        let card = self.card.lock().unwrap_or_else(PoisonError::into_inner);
        serde_json::to_vec(&*card).map_err(BusError::new)
    }

    /// Takes its name. A name that another agent has is an error.
    async fn enter(&self) -> Result<(), BusError> {
        let name = &self.options.name;
        self.bus.agents.create(name, self.card()?.into()).await.map(drop).map_err(|error| {
            match error.kind() {
                kv::CreateErrorKind::AlreadyExists => BusError::new(format!("another agent is named {name}"))
                    .hint("give this one another --name; the name of an agent that died is free after 5 s"),
                _ => BusError::new(error),
            }
        })
    }

    async fn renew(self: Arc<AgentState>) {
        loop {
            sleep(RENEW).await;
            self.renew_once().await;
        }
    }

    /// Renews the key. The next second tries again; without success the key ends by itself.
    async fn renew_once(&self) {
        if let Ok(card) = self.card() {
            drop(timeout(RENEW, self.bus.agents.put(&self.options.name, card.into())).await);
        }
    }

    /// Until it is to leave, or has served as many runs as it may.
    async fn serve_runs(&self, mut documents: Changes) {
        let (mut served, mut taken) = (0, BTreeSet::new());
        let mut leaving = self.leaving.clone();
        let mut over = Changes::whenever(&self.bus.runs, &[keys::over("*")]);
        loop {
            let entry = tokio::select! {
                entry = documents.next() => entry,
                entry = over.next() => {
                    self.remove_spools(&entry);
                    continue;
                }
                _ = leaving.wait_for(|leaving| *leaving) => return,
            };
            let text = signing::parts(&entry.value).1;
            let Some(head) = DocumentHead::read(text) else { continue };
            if !keys::is_name(&head.run) || !head.names(&self.options.name, &self.incarnation) {
                continue;
            }
            let read = match head.other_version() {
                Some(other) => Err(format!("is linerate {VERSION}, and the load is {other}")),
                None => serde_json::from_slice::<RunDocument>(text)
                    .map_err(|error| format!("cannot read the plan: {error}")),
            };
            let document = match read {
                Ok(document) => document,
                Err(why) => {
                    self.refuse(head.run, why).await;
                    continue;
                }
            };
            let share = document.share_of(&self.options.name, &self.incarnation).cloned();
            let Some(share) = share else { continue };
            // A document that was carried out is not carried out again, however often it is written.
            if !taken.insert(document.run.clone()) {
                continue;
            }
            if taken.len() > REMEMBERED {
                taken.pop_first();
            }
            let trusted = &self.options.trusted;
            let is_trusted = trusted.is_empty() || signing::is_signed(&entry.value, trusted);
            self.set_run(Some(document.run.clone()));
            if let Err(why) = self.take_part(&document, &share, is_trusted).await {
                let why = self.bus.explained(why);
                (self.say)(AgentEvent::Refused { run: document.run, why: why.to_string() });
            }
            self.set_run(None);
            // The next run need not wait until the key is renewed.
            self.renew_once().await;
            served += 1;
            if *leaving.borrow() || self.options.runs.is_some_and(|most| served >= most) {
                let until = Instant::now() + OVER_WITHIN;
                while self.has_spools()
                    && let Some(entry) = over.next_until(until).await
                {
                    self.remove_spools(&entry);
                }
                return;
            }
        }
    }

    fn spools(&self) -> MutexGuard<'_, BTreeMap<String, Vec<PathBuf>>> {
        self.spools.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn has_spools(&self) -> bool {
        !self.spools().is_empty()
    }

    /// The result of a run is complete: what is in its spools has been reported.
    fn remove_spools(&self, over: &kv::Entry) {
        let run = over.key.strip_suffix(".over").filter(|_| is_order(over)).unwrap_or_default();
        for file in self.spools().remove(run).unwrap_or_default() {
            if let Err(error) = std::fs::remove_file(&file) {
                (self.say)(AgentEvent::NoSpool { why: format!("{} stays: {error}", file.display()) });
            }
        }
    }

    /// Replies that this agent does not take part in a run whose plan it cannot read.
    async fn refuse(&self, run: String, why: String) {
        let ready = AgentReady {
            incarnation: self.incarnation.clone(),
            refused: Some(format!("{} {why}", self.options.name)),
            clock_offset_ns: 0,
            clock_uncertainty_ns: 0,
        };
        let Ok(ready) = serde_json::to_vec(&ready) else { return };
        // A document that was delivered again has a reply already.
        if self.bus.create(&keys::ready(&run, &self.options.name), ready).await.is_ok() {
            (self.say)(AgentEvent::Refused {
                run,
                why: format!("this agent {why}; install the same version on all machines"),
            });
        }
    }

    fn set_run(&self, run: Option<String>) {
        self.card.lock().unwrap_or_else(PoisonError::into_inner).run = run;
    }

    /// From the document to the last message.
    async fn take_part(
        &self,
        document: &RunDocument,
        share: &RunShare,
        is_trusted: bool,
    ) -> Result<(), BusError> {
        let run = &document.run;
        let offset = self.clock_offset(run).await;
        let plan = match self.whole_plan(document).await {
            Ok(plan) => self.on_this_machine(&plan, is_trusted).await,
            Err(why) => Err(why),
        };
        let plan = plan.and_then(|plan| match self.refusal(document, share, &plan, offset) {
            Some(why) => Err(why),
            None => Ok(plan),
        });
        let ready = AgentReady {
            incarnation: self.incarnation.clone(),
            refused: plan.as_ref().err().cloned(),
            clock_offset_ns: offset.map_or(0, |o| o.offset_ns.saturating_neg()),
            clock_uncertainty_ns: offset.map_or(u64::MAX, |o| o.uncertainty_ns),
        };
        let ready = serde_json::to_vec(&ready).map_err(BusError::new)?;
        self.bus.create(&keys::ready(run, &self.options.name), ready).await?;
        let plan = plan.map_err(BusError::new)?;
        let offset = offset.unwrap_or(ClockOffset { offset_ns: 0, uncertainty_ns: 0 });
        let mut takeovers = Changes::whenever(&self.bus.runs, &[keys::takeover(run, "*")]);
        let go = self.wait_for_go(run).await.map_err(BusError::new)?;
        let place = RunPlace {
            first_thread: share.first_thread,
            all_threads: document.threads(),
            start: Some(on_monotonic(offset.ours(go))),
            join: None,
            gap: self.gap(&plan),
        };
        (self.say)(AgentEvent::Started { run: run.clone(), url: plan.target.url.clone() });
        let superseded = watch::Sender::new(false);
        let mut parts = FuturesUnordered::new();
        let measure = |share, place, superseded| self.measure(document, &plan, go, share, place, superseded);
        parts.push(measure((share.clone(), None), place, superseded.subscribe()));
        loop {
            let entry = tokio::select! {
                _ = parts.next() => match parts.is_empty() {
                    true => return Ok(()),
                    false => continue,
                },
                entry = takeovers.next() => entry,
            };
            let Some(takeover) = self.takeover(run, &entry.value) else { continue };
            let own = |s: &RunShare| s.agent == self.options.name && s.incarnation == self.incarnation;
            // It was silent for so long that another sends its share.
            if takeover.lost == self.options.name && !own(&takeover.share) {
                superseded.send_replace(true);
            }
            if own(&takeover.share) && parts.len() < MOST_PARTS {
                let join = Join {
                    at: Duration::from_nanos(takeover.at_ns),
                    accounted: Duration::from_nanos(takeover.accounted_ns),
                    sent: takeover.sent,
                };
                let place = RunPlace { first_thread: takeover.share.first_thread, join: Some(join), ..place };
                let (_, never) = watch::channel(false);
                parts.push(measure((takeover.share.clone(), Some(takeover)), place, never));
            }
        }
    }

    /// How far apart requests of a closed loop leave at least, so that they are no more than this
    /// agent sends. An open loop of more is refused.
    fn gap(&self, plan: &Plan) -> Option<Duration> {
        let is_closed = plan.pace == linerate_load::plan::Pace::Closed;
        self.options.max_rate.filter(|_| is_closed).map(|rate| Duration::from_secs_f64(1.0 / rate.max(1e-6)))
    }

    /// The plan with its secrets, which is sealed to the run's agents.
    async fn whole_plan(&self, document: &RunDocument) -> Result<Plan, String> {
        let (run, name) = (&document.run, &self.options.name);
        let mut plan = Changes::whenever(&self.bus.runs, &[keys::plan(run)]);
        let encrypted = plan.next_until(Instant::now() + PLAN_WITHIN).await;
        let encrypted = encrypted.ok_or_else(|| format!("{name} got no plan of run {run}"))?;
        let opened =
            sealing::open(&document.sealed, run, &self.incarnation, &self.seal_key, &encrypted.value);
        opened.map_err(|why| format!("{name} {why}"))
    }

    /// Reads an order to take a share over, if it is one that this agent trusts.
    fn takeover(&self, run: &str, bytes: &[u8]) -> Option<Takeover> {
        let trusted = &self.options.trusted;
        let is_trusted = trusted.is_empty() || signing::is_signed(bytes, trusted);
        let takeover: Takeover = serde_json::from_slice(signing::parts(bytes).1).ok()?;
        (is_trusted && takeover.schema == SCHEMA && takeover.run == run).then_some(takeover)
    }

    /// The plan as this agent may carry it out, or why it may not.
    async fn on_this_machine(&self, plan: &Plan, is_trusted: bool) -> Result<Plan, String> {
        let name = &self.options.name;
        if !is_trusted {
            return Err(format!("{name} carries out only runs that a trusted key has signed"));
        }
        let mut own = plan.clone();
        if plan.pcap_out.is_some() {
            return Err(format!("{name} writes no files for a run (--pcap-out)"));
        }
        for number in 0..plan.host_count() {
            let mut host = plan.host(number);
            match self.options.allowed.verdict(plan, number) {
                AllowVerdict::Allowed => continue,
                AllowVerdict::AddressesOnly => host.lookup = None,
                AllowVerdict::Refused => {
                    let target = &host.target.authority;
                    return Err(format!("{name} may not load {target}: its --allow-target does not list it"));
                }
                AllowVerdict::LookUp(lookup) => host.target.addresses = self.look_up(&lookup).await?,
            }
            own.set_host(number, host);
        }
        Ok(own)
    }

    /// The addresses that this agent finds under a name.
    async fn look_up(&self, lookup: &Lookup) -> Result<Vec<SocketAddr>, String> {
        let name = &self.options.name;
        let found = timeout(LOOKUP_WITHIN, lookup_host((lookup.host.as_str(), lookup.port))).await;
        let found = found.map_err(|_| "no response".to_owned());
        let found = found.and_then(|found| found.map_err(|error| error.to_string()));
        let found = found.map_err(|why| format!("{name} cannot look up {}: {why}", lookup.host))?;
        let addresses: Vec<_> = found.filter(|at| at.is_ipv6() == lookup.ipv6).collect();
        if addresses.is_empty() {
            let family = if lookup.ipv6 { "IPv6" } else { "IPv4" };
            return Err(format!("{name} finds no {family} address of {}", lookup.host));
        }
        Ok(addresses)
    }

    /// Why this agent does not take part.
    fn refusal(
        &self,
        document: &RunDocument,
        share: &RunShare,
        plan: &Plan,
        offset: Option<ClockOffset>,
    ) -> Option<String> {
        let name = &self.options.name;
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
            Some(_) => linerate_load::check_part(plan).err().map(|error| format!("{name}: {error}")),
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

    /// The moment of the start on the coordinator's clock, or why there is none.
    async fn wait_for_go(&self, run: &str) -> Result<u64, String> {
        let keys = [keys::go(run), keys::stop(run)];
        let mut changes = Changes::whenever(&self.bus.runs, &keys);
        let mut leaving = self.leaving.clone();
        let order = async {
            loop {
                let entry = changes.next().await;
                if entry.key == keys[0] || is_order(&entry) {
                    break entry;
                }
            }
        };
        let entry = tokio::select! {
            entry = order => entry,
            () = sleep(GO_WITHIN) => return Err(format!("no order to start came within {} s", GO_WITHIN.as_secs())),
            _ = leaving.wait_for(|leaving| *leaving) => return Err("this agent was told to leave".to_owned()),
        };
        if entry.key != keys[0] {
            return Err("the run was given up before it started".to_owned());
        }
        let moment = std::str::from_utf8(&entry.value).ok().and_then(|text| text.parse().ok());
        moment.ok_or_else(|| "the order to start names no moment".to_owned())
    }
}

/// The kernel's release; empty where it is not told.
fn kernel() -> String {
    let release = std::fs::read_to_string("/proc/sys/kernel/osrelease");
    release.map_or(String::new(), |release| release.trim().to_owned())
}

/// A moment, nanoseconds since 1970, on this machine's monotonic clock.
fn on_monotonic(unix: u64) -> Time {
    let (now, now_unix) = (machine::monotonic_now().as_nanos(), unix_ns());
    Time::from_nanos(now.saturating_add(unix).saturating_sub(now_unix))
}

/// The highest rate that an open loop reaches; of a recorded log, the most requests in a second.
fn highest_rate(plan: &Plan) -> Option<f64> {
    match &plan.pace {
        linerate_load::plan::Pace::Open { rate, .. } => {
            rate.steps.iter().map(|step| step.from.max(step.to)).reduce(f64::max)
        }
        linerate_load::plan::Pace::Trace(times) => {
            let within = |(i, from): (usize, &u64)| {
                times[i..].partition_point(|due| *due < from.saturating_add(1_000_000_000))
            };
            times.iter().enumerate().map(within).max().map(|most| most as f64)
        }
        linerate_load::plan::Pace::Closed => None,
    }
}

#[cfg(test)]
mod tests {
    use linerate_load::plan::{Pace, Target};

    use super::*;

    #[test]
    fn the_highest_rate_of_a_log_is_that_of_its_busiest_second() {
        let mut plan = Plan::get(Target::at(([127, 0, 0, 1], 80).into()), "/");
        assert_eq!(highest_rate(&plan), None);
        plan.pace = Pace::Trace([0, 1, 900, 1_000, 1_100, 1_800, 3_000].map(|ms| ms * 1_000_000).into());
        assert_eq!(highest_rate(&plan), Some(4.0));
    }
}
