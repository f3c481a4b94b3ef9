//! A load that agents on many machines send.

use std::io::{BufRead, BufReader, Write, stderr};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use linerate_load::plan::check::CheckResult;
use linerate_load::{Outcome, Plan, Snapshot};
use linerate_machines::BusOptions;
use linerate_machines::coordinator::{Collected, Coordinator, Progress, RunError, Wanted};
use linerate_machines::merge::{AgentResult, Standing};
use linerate_report::schema::machines::{Agent, Machines};
use linerate_report::{Report, json, machines as table, summary};

use super::output::Sink;
use super::watch::{Display, Interrupt};
use crate::agent::{block_on, bus_options, fault_of, stop_on, until_interrupted};
use crate::args::{LoadArgs, Summary};
use crate::fault::{Exit, Fault};
use crate::{environment, terminal};

/// Sends a plan by agents, or continues with a run (`plan` is then absent), and reports.
pub(super) fn run(args: &LoadArgs, plan: Option<Plan>, sink: Option<&Sink>) -> Result<Exit, Fault> {
    let interrupt = Interrupt::listen()?;
    let flags = &args.machines;
    let local = flags.agents_local.map(Local::start).transpose()?;
    let bus = match &local {
        Some(local) => BusOptions { url: local.url.clone(), ..BusOptions::default() },
        None => bus_options(&flags.bus)?,
    };
    let wanted = flags.agents_local.map(Wanted::Number).or_else(|| flags.agents.clone());
    let stop = stop_on(&interrupt);
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
    let collected = block_on(async {
        let carried_out = async {
            let collected = carry_out.await;
            stop.send_replace(true);
            collected
        };
        tokio::join!(carried_out, until_interrupted(&interrupt, &stop)).0
    })?;
    drop(local);
    report(&collected.map_err(fault)?, args, sink)
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

fn report(collected: &Collected, args: &LoadArgs, sink: Option<&Sink>) -> Result<Exit, Fault> {
    let Collected { plan, outcome, .. } = collected;
    let checks: Vec<CheckResult> = plan.checks.iter().map(|check| check.evaluate(outcome)).collect();
    let environment = environment::here();
    let report = Report { plan, outcome, checks: &checks, environment: &environment };
    let to_stderr = sink == Some(&Sink::Stdout);
    let style = terminal::style_beside(to_stderr);
    let short = args.summary == Some(Summary::Short);
    let machines = machines(collected);
    let text = if short { summary::short(&report, style) } else { summary::to_string(&report, style) };
    let text = text + &table::to_string(&machines, style);
    terminal::print_beside(&text, to_stderr)?;
    if let Some(sink) = sink {
        sink.write(&json::to_string_of_machines(&report, &machines))?;
    }
    let exit = super::exit(plan, outcome, &checks);
    Ok(if exit == Exit::Fine && !machines.complete { Exit::Ours } else { exit })
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

/// nats-server and agents that this process started. They end with it.
struct Local {
    url: String,
    children: Vec<Child>,
    folder: PathBuf,
}

/// How long nats-server may take to listen.
const SERVER_WITHIN: Duration = Duration::from_secs(10);

impl Local {
    fn start(agents: u32) -> Result<Local, Fault> {
        let folder = std::env::temp_dir().join(format!("linerate-agents-{}", std::process::id()));
        std::fs::create_dir_all(&folder)
            .map_err(|e| Fault::ours(format!("{} cannot be created: {e}", folder.display())))?;
        let mut local = Local { url: String::new(), children: Vec::new(), folder };
        local.start_server()?;
        let own =
            std::env::current_exe().map_err(|e| Fault::ours(format!("our own file cannot be found: {e}")))?;
        for i in 0..agents {
            let mut agent = Command::new(&own);
            agent.args(["agent", "--nats", &local.url, "--allow-target", "*", "--once", "--name"]);
            agent.arg(format!("local-{}", i + 1)).arg("--spool").arg(&local.folder);
            local.spawn(agent, "agent")?;
        }
        Ok(local)
    }

    fn start_server(&mut self) -> Result<(), Fault> {
        let mut server = Command::new("nats-server");
        server.args(["-a", "127.0.0.1", "-p", "-1", "-js", "-sd"]).arg(&self.folder);
        server.arg("--ports_file_dir").arg(&self.folder);
        self.spawn(server, "nats-server")?;
        let pid = self.children.last().map_or(0, Child::id);
        let deadline = Instant::now() + SERVER_WITHIN;
        let file = self.folder.join(format!("nats-server_{pid}.ports"));
        while Instant::now() < deadline {
            if let Some(url) = url_in(&file) {
                self.url = url;
                return Ok(());
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        Err(Fault::ours("nats-server does not listen after 10 s"))
    }

    fn spawn(&mut self, mut command: Command, what: &'static str) -> Result<(), Fault> {
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
        let mut child = command.spawn().map_err(|e| {
            let fault = Fault::ours(format!("{what} could not be started: {e}"));
            match what {
                "nats-server" => fault.hint("go install github.com/nats-io/nats-server/v2@v2.15.2, or your distribution's package (2.11 or later), in PATH"),
                _ => fault,
            }
        })?;
        if let Some(errors) = child.stderr.take() {
            std::thread::spawn(move || pass_on(what, BufReader::new(errors)));
        }
        self.children.push(child);
        Ok(())
    }
}

/// Agents' complaints are ours; nats-server's log is not.
fn pass_on(what: &str, lines: impl BufRead) {
    for line in lines.lines().map_while(Result::ok) {
        if what == "agent"
            && (line.starts_with("error") || line.contains("hint:") || line.contains("memory alone"))
        {
            let _ = writeln!(stderr(), "{line}");
        }
    }
}

fn url_in(file: &Path) -> Option<String> {
    let text = std::fs::read_to_string(file).ok()?;
    let ports: serde_json::Value = serde_json::from_str(&text).ok()?;
    ports["nats"][0].as_str().map(str::to_owned)
}

impl Drop for Local {
    fn drop(&mut self) {
        // Agents end by themselves after their run; the server is last.
        for child in self.children.iter_mut().rev() {
            let pid = nix::unistd::Pid::from_raw(i32::try_from(child.id()).unwrap_or(i32::MAX));
            let _ = nix::sys::signal::kill(pid, nix::sys::signal::Signal::SIGTERM);
            let deadline = Instant::now() + Duration::from_secs(3);
            while matches!(child.try_wait(), Ok(None)) && Instant::now() < deadline {
                std::thread::sleep(Duration::from_millis(10));
            }
            let _ = child.kill();
            let _ = child.wait();
        }
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}
