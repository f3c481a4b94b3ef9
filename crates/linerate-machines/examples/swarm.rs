//! Many agents in one process that send nothing: what they "measure" is drawn from a fixed
//! distribution, and recorded once more in a single histogram. All else is what real agents do.
//! `cargo xtask bench machines` runs it.
//!
//! `swarm NATS_URL AGENTS RATE FOLDER` carries out one run; each agent measures RATE requests/s.
//! `swarm sum SPOOL...` adds up the intervals in spool files; `swarm merge NATS_URL RUN` merges a
//! run's messages on the broker as the coordinator does.

use std::error::Error;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime};

use linerate_load::histogram::Histogram;
use linerate_load::plan::Pace;
use linerate_load::request_log::Sender;
use linerate_load::{Outcome, Plan, RunPlace, Snapshot};
use linerate_machines::BusOptions;
use linerate_machines::agent::engine::{RunningShare, ShareEngine};
use linerate_machines::agent::{AgentEvent, AgentOptions, serve_by};
use linerate_machines::allow::AllowList;
use linerate_machines::coordinator::Coordinator;
use linerate_machines::figures::IntervalFigures;
use linerate_machines::message::MessageWord;
use linerate_machines::spool;
use linerate_net::{Time, machine};
use serde_json::json;
use tokio::sync::watch;
use tokio::task::JoinSet;

/// Different latencies in an agent's second. Reason: a million samples of a real server fill some
/// hundred to some thousand of a histogram's buckets.
const DRAWS: u64 = 2000;

/// Latencies to draw from.
const TABLE: usize = 1 << 16;

/// Agents that connect at a time.
const TOGETHER: usize = 25;

/// Latencies around 400 us, skewed as those of servers are, nanoseconds.
fn table() -> Arc<[u64]> {
    let mut seed = 1;
    let mut normal = || (0..12).map(|_| next(&mut seed) as f64 / 2f64.powi(32)).sum::<f64>() - 6.0;
    (0..TABLE).map(|_| (400e3 * (0.6 * normal()).exp()) as u64).collect()
}

/// 32 random bits.
fn next(seed: &mut u64) -> u64 {
    *seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
    *seed >> 32
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Pretends to send.
struct Simulation {
    rate: u64,
    table: Arc<[u64]>,
    /// All samples of all agents.
    single: Arc<Mutex<Histogram>>,
}

impl ShareEngine for Simulation {
    fn start(&self, plan: Plan, place: RunPlace, _: Option<Sender>) -> Result<Box<dyn RunningShare>, String> {
        let seconds = plan.stop.duration.ok_or("a simulation needs a duration")?.as_secs();
        Ok(Box::new(Simulated {
            start: place.start.unwrap_or_else(machine::monotonic_now),
            began: SystemTime::now(),
            seconds,
            rate: self.rate,
            is_open: !matches!(plan.pace, Pace::Closed),
            table: Arc::clone(&self.table),
            single: Arc::clone(&self.single),
            stopped: AtomicBool::new(false),
            so_far: Mutex::new((0, u64::from(place.first_thread) + 1, Snapshot::default())),
        }))
    }
}

/// A share that is not sent.
struct Simulated {
    start: Time,
    began: SystemTime,
    seconds: u64,
    rate: u64,
    is_open: bool,
    table: Arc<[u64]>,
    single: Arc<Mutex<Histogram>>,
    stopped: AtomicBool,
    /// Seconds, the state of the generator, and the sum.
    so_far: Mutex<(u64, u64, Snapshot)>,
}

impl Simulated {
    fn elapsed(&self) -> u64 {
        machine::monotonic_now().nanos_since(self.start) / 1_000_000_000
    }

    /// "Measures" whole seconds until there are `seconds`.
    fn until(&self, seconds: u64) -> MutexGuard<'_, (u64, u64, Snapshot)> {
        let mut so_far = locked(&self.so_far);
        while so_far.0 < seconds {
            so_far.0 += 1;
            let mut seed = so_far.1;
            let draws = DRAWS.min(self.rate).max(1);
            let mut single = locked(&self.single);
            for _ in 0..draws {
                let nanos = self.table[next(&mut seed) as usize % TABLE];
                so_far.2.latency.record(nanos, self.rate / draws);
                single.record(nanos, self.rate / draws);
            }
            drop(single);
            so_far.1 = seed;
            let (n, sum) = (self.rate / draws * draws, &mut so_far.2);
            sum.requests.sent += n;
            sum.requests.answered += n;
            *sum.status.entry(200).or_default() += n;
            sum.bytes.sent += n * 100;
            sum.bytes.received += n * 300;
            sum.open = 1;
            sum.connections.opened = 1;
        }
        so_far
    }
}

impl RunningShare for Simulated {
    fn snapshot(&self) -> Snapshot {
        self.until(self.elapsed().min(self.seconds)).2.clone()
    }

    fn finished(&self) -> bool {
        self.elapsed() >= self.seconds || self.stopped.load(Ordering::Relaxed)
    }

    fn stop(&self) {
        self.stopped.store(true, Ordering::Relaxed);
    }

    fn join(self: Box<Self>) -> Outcome {
        let seconds = self.elapsed().min(self.seconds);
        let sum = self.until(seconds).2.clone();
        let mut outcome = Outcome {
            started_at: Some(self.began),
            duration: Duration::from_secs(seconds),
            requests: sum.requests,
            status: sum.status,
            bytes: sum.bytes,
            connections: sum.connections,
            io: "simulated".to_owned(),
            ..Outcome::default()
        };
        outcome.client.threads = 1;
        outcome.client.lateness.record(1000, sum.requests.sent);
        outcome.latency.from_due = self.is_open.then(|| sum.latency.clone());
        outcome.latency.from_sent = sum.latency;
        outcome
    }
}

fn options(url: &str, number: usize, folder: &Path) -> AgentOptions {
    AgentOptions {
        bus: BusOptions { url: url.to_owned(), ..BusOptions::default() },
        name: format!("sim-{number}"),
        labels: Vec::new(),
        allowed: AllowList::loopback(),
        max_rate: None,
        max_duration: None,
        trusted: Vec::new(),
        spool: folder.to_owned(),
        version: env!("CARGO_PKG_VERSION").to_owned(),
        runs: Some(1),
        wait: Duration::ZERO,
    }
}

async fn carry_out(url: String, agents: usize, rate: u64, folder: PathBuf) -> Result<(), Box<dyn Error>> {
    let single = Arc::new(Mutex::new(Histogram::new()));
    let (table, waiting) = (table(), Arc::new(AtomicU64::new(0)));
    let (_stop, stop) = watch::channel(false);
    let mut all = JoinSet::new();
    for number in 0..agents {
        // The first one makes the buckets; the others come in groups.
        let there = || waiting.load(Ordering::Relaxed) as usize;
        while number > 0 && (there() == 0 || number >= there() + TOGETHER) {
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
        let engine = Simulation { rate, table: Arc::clone(&table), single: Arc::clone(&single) };
        let waiting = Arc::clone(&waiting);
        let say = move |event: AgentEvent| match event {
            AgentEvent::Waiting => drop(waiting.fetch_add(1, Ordering::Relaxed)),
            AgentEvent::Started { .. } | AgentEvent::Ended { .. } => {}
            trouble => drop(writeln!(std::io::stderr(), "sim-{number}: {trouble:?}")),
        };
        all.spawn(serve_by(engine, options(&url, number, &folder), stop.clone(), say));
    }
    while (waiting.load(Ordering::Relaxed) as usize) < agents {
        if let Some(ended) = all.try_join_next() {
            return Err(format!("an agent ended before the run: {:?}", ended?).into());
        }
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    print(&json!({ "waiting": agents }))?;
    while let Some(ended) = all.join_next().await {
        ended??;
    }
    print(&described(&locked(&single)))
}

/// The histogram and what it holds.
fn described(histogram: &Histogram) -> serde_json::Value {
    json!({
        "samples": histogram.count(),
        "buckets": histogram.iter_recorded().count(),
        "histogram": histogram,
    })
}

fn print(value: &serde_json::Value) -> Result<(), Box<dyn Error>> {
    let mut out = std::io::stdout();
    writeln!(out, "{value}")?;
    Ok(out.flush()?)
}

/// Adds up the intervals of all spools.
fn sum(files: &[String]) -> Result<(), Box<dyn Error>> {
    let mut sum = IntervalFigures::default();
    for file in files {
        for (message, _) in spool::read(Path::new(file))?.messages {
            if let MessageWord::Interval { figures, .. } = message.word {
                sum.merge(&figures);
            }
        }
    }
    print(&described(&sum.latency))
}

/// Merges what the broker holds of a run.
async fn merge(url: &str, run: &str) -> Result<(), Box<dyn Error>> {
    let bus = BusOptions { url: url.to_owned(), ..BusOptions::default() };
    let (_stop, stop) = watch::channel(false);
    let collected = Coordinator::connect(&bus, stop).await?.resume(run, |_| {}).await?;
    print(&described(collected.outcome.latency.main().good))
}

fn main() -> Result<(), Box<dyn Error>> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    match args.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        ["sum", ..] => sum(&args[1..]),
        ["merge", url, run] => {
            tokio::runtime::Builder::new_multi_thread().enable_all().build()?.block_on(merge(url, run))
        }
        [url, agents, rate, folder] => {
            machine::raise_nofile()?;
            let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
            runtime.block_on(carry_out(url.to_owned(), agents.parse()?, rate.parse()?, folder.into()))
        }
        _ => Err("usage: swarm NATS_URL AGENTS RATE FOLDER | sum SPOOL... | merge NATS_URL RUN".into()),
    }
}

#[cfg(test)]
mod tests {
    use linerate_load::plan::Target;

    use super::*;

    #[test]
    fn an_outcome_is_what_the_single_recorder_has() {
        let single = Arc::new(Mutex::new(Histogram::new()));
        let simulation = Simulation { rate: 10_000, table: table(), single: Arc::clone(&single) };
        let mut plan = Plan::get(Target::at(([127, 0, 0, 1], 80).into()), "/");
        plan.stop.duration = Some(Duration::from_secs(3));
        // It began in the past.
        let start = Time::from_nanos(machine::monotonic_now().as_nanos() - 10_000_000_000);
        let place = RunPlace { first_thread: 4, all_threads: 8, start: Some(start), join: None, gap: None };
        let share = simulation.start(plan, place, None).unwrap_or_else(|e| panic!("{e}"));
        let outcome = share.join();
        assert_eq!((outcome.requests.answered, outcome.latency.from_sent.count()), (30_000, 30_000));
        assert!(locked(&single).iter_recorded().eq(outcome.latency.from_sent.iter_recorded()));
    }
}
