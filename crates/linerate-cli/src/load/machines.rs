//! A load that agents on many machines send.

use std::io::{Write, stderr};
use std::path::PathBuf;
use std::time::Duration;

use linerate_lab::servers::{Recipe, Server, Trouble, kill_all};
use linerate_load::{Outcome, Plan, Snapshot};
use linerate_machines::BusOptions;
use linerate_machines::coordinator::{Collected, Coordinator, Progress, RunError, Wanted};
use linerate_machines::merge::{AgentResult, Standing};
use linerate_report::schema::machines::{Agent, Machines};
use tokio::sync::watch;

use super::Beside;
use super::output::Sink;
use super::watch::{Display, Interrupt};
use crate::agent::{bus_options, fault_of, interruptible};
use crate::args::{LoadArgs, Summary};
use crate::fault::{Exit, Fault};

/// Sends a plan by agents, or continues with a run (`plan` is then absent), and reports.
pub(super) fn run(args: &LoadArgs, plan: Option<Plan>, sink: Option<&Sink>) -> Result<Exit, Fault> {
    let interrupt = Interrupt::listen_then(kill_all)?;
    let flags = &args.machines;
    let mut local = flags.agents_local.map(|agents| Local::start(agents, &interrupt)).transpose()?;
    let bus = match &local {
        Some(local) => BusOptions { url: local.url().to_owned(), ..BusOptions::default() },
        None => bus_options(&flags.bus)?,
    };
    let wanted = flags.agents_local.map(Wanted::Number).or_else(|| flags.agents.clone());
    let stop = watch::Sender::new(false);
    let carry_out = async {
        let coordinator = Coordinator::connect(&bus, stop.subscribe()).await?;
        let mut display = plan.as_ref().map(|plan| Display::new(plan, args.quiet));
        let show = |progress: &Progress| {
            if let Some(display) = &mut display {
                display.show(&snapshot(progress), interrupt.asked());
            }
        };
        let collected = match (&flags.resume, plan.clone(), wanted) {
            (None, Some(plan), Some(wanted)) => coordinator.run(plan, wanted, show).await,
            (Some(run), ..) => coordinator.resume(run, show).await,
            _ => unreachable!("agents or a run are named"),
        };
        if let Some(display) = &mut display {
            display.clear();
        }
        collected
    };
    let collected = interruptible(&interrupt, &stop, carry_out)?;
    if let Some(local) = &mut local {
        local.complain();
    }
    drop(local);
    let collected = collected.map_err(fault)?;
    let machines = machines(&collected);
    let short = args.summary == Some(Summary::Short);
    let beside = Beside::Machines(&machines);
    let exit = super::report(&collected.plan, &collected.outcome, sink, short, beside)?;
    Ok(if exit == Exit::Fine && !machines.complete { Exit::Ours } else { exit })
}

fn fault(error: RunError) -> Fault {
    match error {
        RunError::Bus(error) => fault_of(error),
        RunError::Interrupted => Fault::interrupted(error.to_string()),
        RunError::Split(_) => Fault::input(error.to_string())
            .hint("give each agent's threads a connection (-c), or set --threads 1"),
        RunError::TooFew { .. } => Fault::ours(error.to_string())
            .hint("start agents with linerate agent --nats URL, or ask for fewer"),
        other => Fault::ours(other.to_string()),
    }
}

fn snapshot(progress: &Progress) -> Snapshot {
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
        series: progress.series.clone(),
        ..Snapshot::default()
    }
}

fn machines(collected: &Collected) -> Machines {
    Machines {
        run: collected.run.clone(),
        complete: collected.is_complete(),
        clock_uncertainty_us: collected.clock_uncertainty_ns.map(|ns| ns as f64 / 1e3),
        agents: collected.agents.iter().map(agent).collect(),
    }
}

fn agent(result: &AgentResult) -> Agent {
    let outcome: &Outcome = &result.outcome;
    let latency = outcome.latency.from_due.as_ref().unwrap_or(&outcome.latency.from_sent);
    let micros = |ns: u64| ns as f64 / 1e3;
    let (standing, last_second, missing) = match &result.standing {
        Standing::Complete => ("complete", None, Vec::new()),
        Standing::Open { last_second } => ("lost", *last_second, Vec::new()),
        Standing::Missing(seqs) => ("missing", None, seqs.clone()),
        Standing::Altered => ("altered", None, Vec::new()),
    };
    let seconds = outcome.duration.as_secs_f64();
    Agent {
        name: result.share.agent.clone(),
        standing: standing.to_owned(),
        last_second,
        missing,
        threads: result.share.threads,
        rate_rps: if seconds > 0.0 { outcome.requests.answered as f64 / seconds } else { 0.0 },
        sent: outcome.requests.sent,
        answered: outcome.requests.answered,
        failed: outcome.requests.failed,
        unknown: outcome.requests.unknown,
        unsent: outcome.requests.unsent,
        p50_us: micros(latency.percentile_ns(50.0)),
        p99_us: micros(latency.percentile_ns(99.0)),
        lateness_p99_us: micros(outcome.client.lateness.percentile_ns(99.0)),
        saturated: outcome.client.saturated,
    }
}

/// nats-server and agents that this process started. They end with it, the server last.
struct Local {
    agents: Vec<Server>,
    server: Server,
    _folder: Folder,
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
    fn start(agents: u32, interrupt: &Interrupt) -> Result<Local, Fault> {
        let folder = std::env::temp_dir().join(format!("linerate-agents-{}", std::process::id()));
        std::fs::create_dir_all(&folder)
            .map_err(|e| Fault::ours(format!("{} cannot be created: {e}", folder.display())))?;
        let folder = Folder(folder);
        let place = folder.0.display().to_string();
        let own =
            std::env::current_exe().map_err(|e| Fault::ours(format!("our own file cannot be found: {e}")))?;
        let start = |words: &[&str], url: &str| {
            let words = words.iter().map(|word| (*word).to_owned()).collect();
            let recipe =
                Recipe { words, url: Some(url.to_owned()), cores: Vec::new(), patience: SERVER_WITHIN };
            recipe.start(&|| interrupt.asked()).map_err(|trouble| not_started(&trouble))
        };
        let words = ["nats-server", "-a", "127.0.0.1", "-p", "{port}", "-js", "-sd", &place];
        let mut local =
            Local { agents: Vec::new(), server: start(&words, "nats://127.0.0.1:{port}")?, _folder: folder };
        let (own, url) = (own.display().to_string(), local.url().to_owned());
        for i in 1..=agents {
            let name = format!("local-{i}");
            let words = [
                own.as_str(),
                "agent",
                "--nats",
                &url,
                "--allow-target",
                "*",
                "--once",
                "--name",
                &name,
                "--spool",
                &place,
            ];
            local.agents.push(start(&words, &url)?);
        }
        Ok(local)
    }

    fn url(&self) -> &str {
        self.server.url()
    }

    /// Passes on what agents that have ended complained about.
    fn complain(&mut self) {
        for words in self.agents.iter_mut().filter_map(Server::ended) {
            let complaint = |line: &&str| {
                line.starts_with("error") || line.contains("hint:") || line.contains("memory alone")
            };
            for line in words.lines().map(str::trim).filter(complaint) {
                let _ = writeln!(stderr(), "{line}");
            }
        }
    }
}

fn not_started(trouble: &Trouble) -> Fault {
    match trouble {
        Trouble::Interrupted => Fault::interrupted(trouble.to_string()),
        Trouble::Start { program, .. } if program == "nats-server" => {
            Fault::ours(trouble.to_string()).hint("go install github.com/nats-io/nats-server/v2@v2.15.2, or your distribution's package (2.11 or later), in PATH")
        }
        _ => Fault::ours(trouble.to_string()),
    }
}
