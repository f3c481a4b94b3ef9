//! A load that agents on many machines send.

use std::io::{Write, stderr};
use std::path::PathBuf;
use std::time::{Duration, Instant, SystemTime};

use linerate_lab::servers::{LabServer, Recipe, ServerTrouble, kill_all};
use linerate_load::plan::Check;
use linerate_load::plan::abort::AbortWatch;
use linerate_load::{Outcome, Plan, Snapshot, SnapshotFeed};
use linerate_machines::coordinator::{Collected, Coordinator, RunError, RunProgress, WantedAgents};
use linerate_machines::document::RunDocument;
use linerate_machines::merge::{AgentResult, Standing};
use linerate_machines::signing::SigningKey;
use linerate_machines::{BusError, BusOptions};
use linerate_report::schema::machines::{Agent, AgentShare, Machines};
use linerate_report::schema::outcome as schema;
use tokio::sync::watch;

use super::results::Results;
use super::watch::{Display, Interrupt};
use super::{Extra, ReportExtras, find, metrics, open, otlp, request_log, server};
use crate::agent::{bus_options, fault_of, interruptible};
use crate::args::{LoadArgs, Summary};
use crate::fault::{CommandFault, Exit};

/// Messages for when the broker has been away for some seconds, when nothing comes from it, and when
/// it is back.
const CUT_OFF: &str =
    "no NATS server can be reached: agents go on and keep what they measure; Ctrl-C reports what has come";
const SILENT: &str = "no agent's report has come for some seconds: the figures shown are old; agents go on";
const BACK: &str = "a NATS server is back";
const FRESH: &str = "the agents' reports come again";

/// How reports come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Reports {
    Come,
    CutOff,
    Silent,
}

impl Reports {
    fn of(progress: &RunProgress) -> Reports {
        match (progress.is_cut_off, progress.old) {
            (true, _) => Reports::CutOff,
            (false, Some(_)) => Reports::Silent,
            (false, None) => Reports::Come,
        }
    }

    /// What to say when it becomes so.
    fn words(self, before: Reports) -> &'static str {
        match (self, before) {
            (Reports::CutOff, _) => CUT_OFF,
            (Reports::Silent, _) => SILENT,
            (Reports::Come, Reports::CutOff) => BACK,
            (Reports::Come, _) => FRESH,
        }
    }
}

/// Sends a plan by agents, or continues with a run (`plan` is then absent), and reports.
pub(super) fn run(
    args: &LoadArgs,
    plan: Option<Plan>,
    results: &Results,
    (server, collector): (Option<server::FiguresSource>, Option<otlp::Collector>),
) -> Result<Exit, CommandFault> {
    let interrupt = Interrupt::listen_then(kill_all)?;
    let feed = SnapshotFeed::default();
    let RunEndpoints { serving, page } = RunEndpoints::open(args, plan.as_ref(), &feed)?;
    let log = args.log_requests.as_deref().zip(plan.as_ref());
    let (to, log) = log.map(|(file, plan)| request_log::prepare(file, plan)).unzip();
    let mut beside: Result<Watching, CommandFault> = Ok(Watching::default());
    let flags = &args.machines;
    let Setup { mut local, bus, wanted, key } = Setup::of(args, &interrupt)?;
    let stop = watch::Sender::new(false);
    let mut shown = ScreenRun::new(plan.as_ref(), args.quiet);
    let carry_out = async {
        let mut coordinator = Coordinator::connect(&bus, stop.subscribe())
            .await?
            .signing(key)
            .on_loss(flags.on_agent_loss.into())
            .logging(to);
        let show = |progress: &RunProgress| {
            if shown.show(progress, &feed, interrupt.asked()) {
                stop.send_replace(true);
            }
        };
        let announce = |document: &RunDocument, start: SystemTime| {
            if let Some(plan) = &plan {
                beside = Watching::start(plan, start + plan.warm_up, (server, collector, log), &feed);
            }
            if flags.agents_local.is_none() {
                let (run, number) = (&document.run, document.shares.len());
                let agents = if number == 1 { "1 agent".to_owned() } else { format!("{number} agents") };
                let again = "--resume continues with it, should this process end";
                let _ = writeln!(stderr(), "run {run} on {agents}; {again}");
            }
        };
        match (&flags.resume, plan.clone(), wanted) {
            (None, Some(plan), Some(wanted)) => coordinator.run(plan, wanted, announce, show).await,
            (Some(run), ..) => coordinator.resume(run, show).await,
            _ => unreachable!("agents or a run are named"),
        }
    };
    let collected = interruptible(&interrupt, &stop, carry_out)?;
    shown.clear();
    if let Some(local) = &mut local {
        local.complain();
    }
    drop(local);
    let mut collected = collected.map_err(fault)?;
    if shown.aborted.is_some() && !interrupt.asked() {
        collected.outcome.interrupted = false;
        collected.outcome.aborted = shown.aborted.take();
    }
    let Watched { server, logged, unwritten } = beside?.finish(&mut collected);
    drop(serving);
    let machines = machines(&collected);
    shown.end(machines.complete);
    let length = Summary::length(args.summary);
    let shares = shares(&collected);
    let beside = ReportExtras::Machines(&machines, &shares);
    let beside = Extra { beside, server: server.as_ref(), line: None, logged, page };
    let exit = super::report(&collected.plan, &collected.outcome, results, length, beside)?;
    unwritten.map_or(Ok(()), Err)?;
    Ok(if exit == Exit::Fine && !machines.complete { Exit::Ours } else { exit })
}

/// Where the run can be looked at while it lasts.
struct RunEndpoints {
    serving: Option<metrics::Serving>,
    page: Option<open::Open>,
}

impl RunEndpoints {
    fn open(args: &LoadArgs, plan: Option<&Plan>, feed: &SnapshotFeed) -> Result<RunEndpoints, CommandFault> {
        let Some(plan) = plan else { return Ok(RunEndpoints { serving: None, page: None }) };
        let serving = args.metrics.as_ref().map(|at| metrics::serve(at, plan)).transpose()?;
        if let Some(serving) = &serving {
            serving.watch(feed.watcher(), None);
        }
        let mut page = args.open.then(|| open::serve(plan)).transpose()?;
        if let Some(page) = &mut page {
            page.watch(feed.watcher(), None)?;
        }
        Ok(RunEndpoints { serving, page })
    }
}

/// The run on this screen, and whether a condition of the plan ends it.
struct ScreenRun {
    display: Option<Display>,
    reports: Reports,
    abort: AbortWatch,
    aborted: Option<String>,
}

impl ScreenRun {
    fn new(plan: Option<&Plan>, quiet: bool) -> ScreenRun {
        ScreenRun {
            display: plan.map(|plan| Display::new(plan, quiet)),
            reports: Reports::Come,
            abort: AbortWatch::new(plan.map_or(&[], |plan| &plan.abort_on)),
            aborted: None,
        }
    }

    /// Shows how it goes; whether a condition now ends it.
    fn show(&mut self, progress: &RunProgress, feed: &SnapshotFeed, interrupted: bool) -> bool {
        let now = Reports::of(progress);
        if now != self.reports {
            self.clear();
            let _ = writeln!(stderr(), "{}", now.words(self.reports));
            self.reports = now;
        }
        let snapshot = snapshot(progress);
        feed.show(snapshot.clone());
        let was_aborted = self.aborted.is_some();
        if !was_aborted && !interrupted {
            self.aborted = self.abort.look(&snapshot);
        }
        let is_ending = interrupted || self.aborted.is_some();
        if let Some(display) = &mut self.display {
            display.show(&snapshot, is_ending);
        }
        self.aborted.is_some() && !was_aborted
    }

    /// The run is over. A broker that is back only now has brought all reports at once, between two looks.
    fn end(&mut self, complete: bool) {
        if complete && self.reports == Reports::CutOff {
            let _ = writeln!(stderr(), "{BACK}");
        }
    }

    fn clear(&mut self) {
        if let Some(display) = &mut self.display {
            display.clear();
        }
    }
}

/// Where agents are, and how they are asked.
struct Setup {
    local: Option<Local>,
    bus: BusOptions,
    wanted: Option<WantedAgents>,
    key: Option<SigningKey>,
}

impl Setup {
    fn of(args: &LoadArgs, interrupt: &Interrupt) -> Result<Setup, CommandFault> {
        let flags = &args.machines;
        let key = flags.sign_key.as_deref().map(|file| SigningKey::read("--sign-key", file));
        let key = key.transpose().map_err(input_fault)?;
        // A search has many runs.
        let once = args.find.is_none();
        let local = flags.agents_local.map(|agents| Local::start(agents, once, interrupt)).transpose()?;
        let bus = match &local {
            Some(local) => BusOptions { url: local.url().to_owned(), ..BusOptions::default() },
            None => bus_options(&flags.bus)?,
        };
        let wanted = flags.agents_local.map(WantedAgents::Number).or_else(|| flags.agents.clone());
        Ok(Setup { local, bus, wanted, key })
    }
}

/// Agents that carry out the looks of a search.
struct Agents<'a> {
    runtime: &'a tokio::runtime::Runtime,
    coordinator: Coordinator,
    stop: watch::Sender<bool>,
    wanted: WantedAgents,
}

impl find::Looker for Agents<'_> {
    fn send(
        &mut self,
        plan: &Plan,
        look: &mut dyn FnMut(&Snapshot) -> bool,
    ) -> Result<Outcome, CommandFault> {
        self.stop.send_replace(false);
        let stop = &self.stop;
        let show = |progress: &RunProgress| {
            if look(&snapshot(progress)) {
                stop.send_replace(true);
            }
        };
        let carry_out = self.coordinator.run(plan.clone(), self.wanted.clone(), |_, _| {}, show);
        let collected = self.runtime.block_on(carry_out).map_err(fault)?;
        if let Some(why) = linerate_report::machines::not_complete(&machines(&collected)) {
            return Err(CommandFault::ours(format!("--find: {why}")).hint("start the search again"));
        }
        Ok(collected.outcome)
    }

    /// That agents are found and started together is no part of the search.
    fn took(&self, _: Instant, plan: &Plan, outcome: &Outcome) -> Duration {
        plan.warm_up + outcome.duration
    }
}

/// `--find` by agents.
pub(super) fn find(
    args: &LoadArgs,
    plan: &Plan,
    check: &Check,
    results: &Results,
) -> Result<Exit, CommandFault> {
    let interrupt = Interrupt::listen_then(kill_all)?;
    let Setup { local, bus, wanted, key } = Setup::of(args, &interrupt)?;
    let wanted =
        wanted.ok_or_else(|| CommandFault::input("--find with --resume: a search cannot be continued"))?;
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(1)
        .enable_all()
        .build()
        .map_err(|e| CommandFault::ours(format!("a runtime could not be started: {e}")))?;
    let stop = watch::Sender::new(false);
    let coordinator = runtime.block_on(Coordinator::connect(&bus, stop.subscribe())).map_err(fault)?;
    let coordinator = coordinator.signing(key).on_loss(args.machines.on_agent_loss.into());
    let mut agents = Agents { runtime: &runtime, coordinator, stop, wanted };
    let exit = find::run(args, plan, check, results, &interrupt, &mut agents);
    drop(local);
    exit
}

/// What is done beside the run, on this machine.
#[derive(Default)]
struct Watching {
    server: Option<server::ProcessReading>,
    exporting: Option<otlp::Exporting>,
    logging: Option<request_log::Logging>,
}

/// What came of it.
struct Watched {
    server: Option<schema::Server>,
    logged: Option<schema::RequestLog>,
    /// Why the log of requests is not whole.
    unwritten: Option<CommandFault>,
}

impl Watching {
    fn start(
        plan: &Plan,
        from: SystemTime,
        (server, collector, log): (
            Option<server::FiguresSource>,
            Option<otlp::Collector>,
            Option<request_log::ReadyLog>,
        ),
        feed: &SnapshotFeed,
    ) -> Result<Watching, CommandFault> {
        let export = |collector: otlp::Collector| collector.export(plan, from, (feed.watcher(), None));
        Ok(Watching {
            server: server.map(|server| server.watch(from)).transpose()?,
            exporting: collector.map(export).transpose()?,
            logging: log.map(request_log::ReadyLog::start).transpose()?,
        })
    }

    fn finish(self, collected: &mut Collected) -> Watched {
        let outcome = &mut collected.outcome;
        if let Some(exporting) = self.exporting {
            exporting.finish(outcome);
        }
        let server = self.server.and_then(|server| server.finish(outcome));
        let (mut logged, unwritten) = self.logging.map(|logging| logging.finish(outcome)).unzip();
        if let Some(logged) = logged.as_mut().filter(|_| collected.log_left_out > 0) {
            logged.left_out += collected.log_left_out;
            let left_out = collected.log_left_out;
            outcome.warnings.push(format!(
                "--log-requests lacks {left_out} requests: an agent reports at most 10,000 each second"
            ));
        }
        Watched { server, logged, unwritten: unwritten.flatten() }
    }
}

fn fault(error: RunError) -> CommandFault {
    match error {
        RunError::Bus(error) => fault_of(error),
        RunError::Interrupted => CommandFault::interrupted(error.to_string()),
        RunError::Split(_) => CommandFault::input(&error)
            .hint("give each agent's threads a connection (-c), or set --threads 1"),
        RunError::TooFew { .. } => CommandFault::ours(error.to_string())
            .hint("start agents with linerate agent --nats URL, or ask for fewer"),
        RunError::OtherVersions(_) => {
            CommandFault::ours(error.to_string()).hint("install the same version on all machines")
        }
        RunError::NoRun(_) => CommandFault::input(&error)
            .hint("the load prints the run's name when it starts; a bus keeps runs for two days"),
        RunError::NotStarted(_) => CommandFault::ours(error.to_string()).hint("start the load again"),
        RunError::Led { .. } => CommandFault::ours(error.to_string())
            .hint("let it report the run, or end it first: kill -9, because Ctrl-C would end the run too"),
        other => CommandFault::ours(other.to_string()),
    }
}

/// A file that the user named and that is not what it should be.
fn input_fault(error: BusError) -> CommandFault {
    let fault = CommandFault::input(error.what);
    match error.hint {
        Some(hint) => fault.hint(hint),
        None => fault,
    }
}

fn snapshot(progress: &RunProgress) -> Snapshot {
    let figures = &progress.figures;
    Snapshot {
        elapsed: progress.elapsed,
        measuring: true,
        requests: figures.requests,
        bad: figures.bad,
        failures: figures.failures.clone(),
        status: figures.status.clone(),
        in_flight: progress.in_flight,
        open: progress.open,
        bytes: figures.bytes,
        connections: figures.connections,
        tcp: figures.tcp,
        latency: figures.latency.clone(),
        waited: figures.waited.clone(),
        series: progress.series.clone(),
        old: progress.old,
        machines: progress.machines.clone(),
        ..Snapshot::default()
    }
}

fn machines(collected: &Collected) -> Machines {
    Machines {
        run: collected.run.clone(),
        complete: collected.is_complete(),
        clock_uncertainty_us: collected
            .clocks
            .values()
            .map(|clock| clock.uncertainty_ns)
            .max()
            .map(|ns| ns as f64 / 1e3),
        agents: collected.agents.iter().map(agent).collect(),
    }
}

/// Each machine once, in the order of their first shares.
fn shares(collected: &Collected) -> Vec<AgentShare> {
    let run = collected.outcome.duration.as_secs_f64().ceil() as u64;
    let mut shares: Vec<AgentShare> = Vec::new();
    for result in &collected.agents {
        let name = &result.share.agent;
        let missing_seconds = match &result.standing {
            Standing::Complete | Standing::Altered => 0,
            Standing::Open { last_second } | Standing::Left { last_second } => {
                run.saturating_sub(last_second.map_or(0, |last| last + 1))
            }
            // One message tells of one second.
            Standing::Missing(seqs) => seqs.len() as u64,
        };
        let (sent, answered) = (result.figures.requests.sent, result.figures.requests.answered);
        let stood_still_ms = millis(result.figures.stood_still);
        match shares.iter_mut().find(|share| share.id == *name) {
            Some(share) => {
                share.sent += sent;
                share.answered += answered;
                share.missing_seconds += missing_seconds;
                share.stood_still_ms = share.stood_still_ms.max(stood_still_ms);
            }
            None => {
                let clock = collected.clocks.get(name);
                shares.push(AgentShare {
                    id: name.clone(),
                    sent,
                    answered,
                    missing_seconds,
                    clock_offset_us: clock.map(|clock| clock.offset_ns as f64 / 1e3),
                    clock_uncertainty_us: clock.map(|clock| clock.uncertainty_ns as f64 / 1e3),
                    stood_still_ms,
                });
            }
        }
    }
    shares
}

/// Milliseconds to a thousandth.
fn millis(time: Duration) -> f64 {
    time.as_micros() as f64 / 1e3
}

fn agent(result: &AgentResult) -> Agent {
    let figures = &result.figures;
    let micros = |ns: u64| ns as f64 / 1e3;
    let latency = |ns: u64, is_bound: bool| (ns > 0 || is_bound).then(|| micros(ns));
    let (standing, last_second, missing) = match &result.standing {
        Standing::Complete => ("complete", None, Vec::new()),
        Standing::Open { last_second } => ("lost", *last_second, Vec::new()),
        Standing::Left { last_second } => ("left", *last_second, Vec::new()),
        Standing::Missing(seqs) => ("missing", None, seqs.clone()),
        Standing::Altered => ("altered", None, Vec::new()),
    };
    Agent {
        name: result.share.agent.clone(),
        standing: standing.to_owned(),
        last_second,
        missing,
        threads: result.share.threads,
        rate_rps: figures.rate_rps,
        sent: figures.requests.sent,
        answered: figures.requests.answered,
        failed: figures.requests.failed,
        unknown: figures.requests.unknown,
        unsent: figures.requests.unsent,
        errors: figures.errors,
        p50_us: latency(figures.p50_ns, figures.p50_at_least),
        p99_us: latency(figures.p99_ns, figures.p99_at_least),
        at_least: [("p50_us", figures.p50_at_least), ("p99_us", figures.p99_at_least)]
            .into_iter()
            .filter(|(_, is_bound)| *is_bound)
            .map(|(row, _)| row.to_owned())
            .collect(),
        lateness_p99_us: micros(figures.lateness_p99_ns),
        start_late_us: figures.started_at.map(|_| figures.start_late.as_nanos() as f64 / 1e3),
        stood_still_ms: millis(figures.stood_still),
        saturated: figures.saturated,
    }
}

/// nats-server and agents that this process started. They end with it, the server last.
struct Local {
    agents: Vec<LabServer>,
    server: LabServer,
    _folder: Folder,
}

/// The cores of the agent with this number, from 1. Reason: agents that all had all cores would pin
/// their first threads to the same one.
fn cores_of(number: u32, agents: u32) -> Vec<usize> {
    let cores = linerate_net::machine::allowed_cores();
    let (mine, agents) = (number as usize - 1, agents as usize);
    let first = mine % cores.len().max(1);
    cores.into_iter().skip(first).step_by(agents).collect()
}

/// A folder that is removed when it is dropped.
struct Folder(PathBuf);

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// How long nats-server may take to listen.
const SERVER_WITHIN: Duration = Duration::from_secs(10);

impl Local {
    fn start(agents: u32, once: bool, interrupt: &Interrupt) -> Result<Local, CommandFault> {
        let folder = std::env::temp_dir().join(format!("linerate-agents-{}", std::process::id()));
        std::fs::create_dir_all(&folder)
            .map_err(|e| CommandFault::ours(format!("{} cannot be created: {e}", folder.display())))?;
        let folder = Folder(folder);
        let place = folder.0.display().to_string();
        let own = std::env::current_exe()
            .map_err(|e| CommandFault::ours(format!("our own file cannot be found: {e}")))?;
        let start = |words: &[&str], url: &str, cores: Vec<usize>| {
            let words = words.iter().map(|word| (*word).to_owned()).collect();
            let recipe = Recipe { words, url: Some(url.to_owned()), cores, patience: SERVER_WITHIN };
            recipe.start(&|| interrupt.asked()).map_err(|trouble| not_started(&trouble))
        };
        let words = ["nats-server", "-a", "127.0.0.1", "-p", "{port}", "-js", "-sd", &place];
        let server = start(&words, "nats://127.0.0.1:{port}", Vec::new())?;
        let mut local = Local { agents: Vec::new(), server, _folder: folder };
        let (own, url) = (own.display().to_string(), local.url().to_owned());
        for i in 1..=agents {
            let name = format!("local-{i}");
            let mut words = vec![own.as_str(), "agent", "--nats", &url, "--allow-target", "*"];
            words.extend(["--name", &name, "--spool", &place]);
            words.extend(once.then_some("--once"));
            local.agents.push(start(&words, &url, cores_of(i, agents))?);
        }
        Ok(local)
    }

    fn url(&self) -> &str {
        self.server.url()
    }

    /// Passes on what agents that have ended complained about.
    fn complain(&mut self) {
        for words in self.agents.iter_mut().filter_map(LabServer::ended) {
            let complaint = |line: &&str| {
                line.starts_with("error") || line.contains("hint:") || line.contains("memory alone")
            };
            for line in words.lines().map(str::trim).filter(complaint) {
                let _ = writeln!(stderr(), "{line}");
            }
        }
    }
}

fn not_started(trouble: &ServerTrouble) -> CommandFault {
    match trouble {
        ServerTrouble::Interrupted => CommandFault::interrupted(trouble.to_string()),
        ServerTrouble::Start { program, .. } if program == "nats-server" => {
            CommandFault::ours(trouble.to_string()).hint("go install github.com/nats-io/nats-server/v2@v2.15.2, or your distribution's package (2.11 or later), in PATH")
        }
        _ => CommandFault::ours(trouble.to_string()),
    }
}
