//! Paired rounds: each runs every program once. The order rotates, so that no program always comes
//! first.

use std::path::Path;
use std::process::{Command, Stdio};

use anyhow::{Context, Result};
use serde::Serialize;
use serde_json::Value;

use super::Tools;
use super::contender::{Contender, ContenderReport};
use super::scenario::{LoadMeasure, LoadScenario, LoadShape};
use super::server::{BenchServer, ServerCounts};

/// Beyond the planned time a program gets this long to end by itself, seconds.
const GRACE_S: f64 = 8.0;

/// A program that waited for its core longer than this share of the run was disturbed by others.
const DISTURBED: f64 = 0.10;

/// One program's run.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct ProgramRun {
    /// The program's name.
    pub(crate) program: &'static str,
    /// Round, from 0.
    pub(crate) round: usize,
    /// Answered per second, as the program says.
    pub(crate) rate: f64,
    /// Answered, as the program says.
    pub(crate) answered: u64,
    /// The server's count.
    pub(crate) server_requests: Option<u64>,
    /// Processor time per request of what is measured (the client in `bench load`, the server in
    /// `bench serve`), microseconds.
    pub(crate) cpu_us: f64,
    /// Latency that 99 % did not exceed, where it is measured, microseconds.
    pub(crate) p99_us: Option<f64>,
    /// Resident memory that a user adds, where it is measured, kB.
    pub(crate) user_kb: Option<f64>,
    /// The server's processor time as a share of the run.
    pub(crate) server_busy: f64,
    /// The client's.
    pub(crate) client_busy: f64,
    /// Share of the run for which the client was runnable and had to wait for its core.
    pub(crate) waited: f64,
    /// Largest resident memory, kB.
    pub(crate) max_rss_kb: u64,
    /// Why it does not count, if it does not.
    pub(crate) fault: Option<String>,
}

impl ProgramRun {
    /// A run without a result.
    pub(crate) fn failed(program: &'static str, round: usize, fault: String) -> ProgramRun {
        let (rate, cpu_us, server_busy, client_busy, waited) = (0.0, 0.0, 0.0, 0.0, 0.0);
        let (answered, server_requests, max_rss_kb) = (0, None, 0);
        let fault = Some(fault);
        ProgramRun {
            program,
            round,
            rate,
            answered,
            server_requests,
            cpu_us,
            p99_us: None,
            user_kb: None,
            server_busy,
            client_busy,
            waited,
            max_rss_kb,
            fault,
        }
    }

    /// A run whose figures are the client's, against a server of its own.
    pub(crate) fn of_client(
        program: &'static str,
        round: usize,
        said: &ContenderReport,
        cost: &ProgramCost,
        seen: &ServerCounts,
    ) -> ProgramRun {
        ProgramRun {
            program,
            round,
            rate: said.rate,
            answered: said.answered,
            server_requests: seen.requests,
            cpu_us: cost.cpu_s * 1e6 / said.answered.max(1) as f64,
            p99_us: None,
            user_kb: None,
            server_busy: seen.cpu_s / cost.wall_s,
            client_busy: cost.cpu_s / cost.wall_s,
            waited: cost.delay_s / cost.wall_s,
            max_rss_kb: cost.max_rss_kb,
            fault: None,
        }
    }
}

/// Reasons to doubt a scenario's figures: each run that does not count, and a line about other
/// programs that disturbed runs on this machine.
pub(crate) fn doubts(runs: &[ProgramRun]) -> Vec<String> {
    let fault = |r: &ProgramRun| Some(format!("{}, round {}: {}", r.program, r.round + 1, r.fault.as_ref()?));
    let mut all: Vec<String> = runs.iter().filter_map(fault).collect();
    let disturbed: Vec<&ProgramRun> = runs.iter().filter(|r| r.waited > DISTURBED).collect();
    if let Some(most) = disturbed.iter().map(|r| r.waited).max_by(f64::total_cmp) {
        let (n, of, most) = (disturbed.len(), runs.len(), most * 100.0);
        all.push(format!(
            "{n} of {of} runs waited for their core for more than a tenth of the time (most: {most:.0} %)"
        ));
    }
    all
}

/// The wrapper's measurements of a program.
#[derive(Debug)]
pub(crate) struct ProgramCost {
    /// Processor time, seconds.
    pub(crate) cpu_s: f64,
    /// From start to end, seconds.
    pub(crate) wall_s: f64,
    /// Runnable without a core, seconds.
    pub(crate) delay_s: f64,
    /// Largest resident memory, kB.
    pub(crate) max_rss_kb: u64,
    /// Resident memory over time: seconds, kB.
    pub(crate) rss_kb: Vec<(f64, u64)>,
    /// Processor time over time: seconds, seconds.
    pub(crate) cpu_over_time_s: Vec<(f64, f64)>,
    /// When it was started, microseconds of the clock of the bare server.
    pub(crate) start_us: u64,
}

/// All rounds of a scenario.
pub(crate) fn run_all(t: &Tools, s: &LoadScenario, who: &[Contender]) -> Result<Vec<ProgramRun>> {
    let LoadMeasure::InTurns { shape, .. } = s.sort else { return Ok(Vec::new()) };
    let mut all = Vec::new();
    for round in 0..t.rounds {
        for i in 0..who.len() {
            let c = who[(i + round) % who.len()];
            let run = one(t, &shape, c, round)
                .unwrap_or_else(|e| ProgramRun::failed(c.name(), round, format!("{e:#}")));
            println!("  {}", line(&run));
            all.push(run);
        }
    }
    Ok(all)
}

/// All rounds of named programs; each run is printed when it has ended.
pub(crate) fn in_turns(
    rounds: usize,
    who: &[&'static str],
    mut one: impl FnMut(&'static str, usize) -> Result<ProgramRun>,
) -> Vec<ProgramRun> {
    let turns =
        (0..rounds).flat_map(|round| (0..who.len()).map(move |i| (who[(i + round) % who.len()], round)));
    let run = |(who, round)| {
        let run = one(who, round).unwrap_or_else(|e| ProgramRun::failed(who, round, format!("{e:#}")));
        println!("  {}", line(&run));
        run
    };
    turns.map(run).collect()
}

/// A run in one line.
pub(crate) fn line(r: &ProgramRun) -> String {
    match &r.fault {
        Some(fault) => format!("round {} {:<22} {fault}", r.round + 1, r.program),
        None => format!(
            "round {} {:<22} {:>12.0}/s {:>8.3} us/request, client {:>3.0} % server {:>3.0} % busy, waited {:.0} %",
            r.round + 1,
            r.program,
            r.rate,
            r.cpu_us,
            r.client_busy * 100.0,
            r.server_busy * 100.0,
            r.waited * 100.0
        ),
    }
}

fn one(t: &Tools, shape: &LoadShape, c: Contender, round: usize) -> Result<ProgramRun> {
    let dir = tempfile::tempdir()?;
    let server = match shape.nginx {
        true => BenchServer::nginx(t, dir.path(), shape.body)?,
        false => BenchServer::bare(t, dir.path(), &["--body", &shape.body.to_string()])?,
    };
    let command = c.command(t, shape, server.address(), dir.path())?;
    let done = measured(t, &command, t.seconds + GRACE_S, dir.path());
    let seen = server.end()?;
    let (out, cost) = done?;
    let said = c.said(&out, dir.path())?;
    let fault = disagreement(c, shape, said.answered, said.slack, &seen);
    Ok(ProgramRun { fault, ..ProgramRun::of_client(c.name(), round, &said, &cost, &seen) })
}

/// The server's own count must confirm the program's. All answered requests must have arrived, and
/// no more may have arrived than those and the ones in flight at the end.
fn disagreement(
    c: Contender,
    shape: &LoadShape,
    answered: u64,
    slack: u64,
    seen: &ServerCounts,
) -> Option<String> {
    let counted = seen.requests?;
    let most = match c {
        Contender::Linerate => answered + slack,
        // The others don't report requests in flight; the raw clients send one more to learn the
        // response's length.
        _ => answered + (shape.connections * shape.depth * 2) as u64 + 1,
    };
    (counted < answered || counted > most)
        .then(|| format!("says {answered} answered, the server counted {counted}"))
}

/// Runs a program pinned, favoured and limited; its standard output and its cost.
pub(crate) fn measured(
    t: &Tools,
    command: &[String],
    limit_s: f64,
    dir: &Path,
) -> Result<(String, ProgramCost)> {
    let report = dir.join("cost.json");
    let mut c = Command::new(&t.raw);
    c.args(["run", "--core", &t.cores[1].to_string(), "--limit-s", &limit_s.to_string(), "--out"]);
    c.arg(&report).arg("--").args(command).current_dir(dir);
    let out = c.stdin(Stdio::null()).output().context("cannot start the wrapper")?;
    let errors = String::from_utf8_lossy(&out.stderr).trim().to_owned();
    let text = std::fs::read_to_string(&report).with_context(|| format!("{}: {errors}", command[0]))?;
    let v: Value = serde_json::from_str(&text)?;
    anyhow::ensure!(v["timed_out"] != true, "did not end within {limit_s} s");
    anyhow::ensure!(v["exit"] == 0, "ended with {} (signal {}): {errors}", v["exit"], v["signal"]);
    let n = |name: &str| v[name].as_f64().unwrap_or(0.0);
    let rss = v["rss_kb"].as_array().into_iter().flatten();
    let cpu = v["cpu_over_time_s"].as_array().into_iter().flatten();
    let cost = ProgramCost {
        cpu_s: n("user_s") + n("sys_s"),
        wall_s: n("wall_s"),
        delay_s: n("run_delay_s"),
        max_rss_kb: v["max_rss_kb"].as_u64().unwrap_or(0),
        rss_kb: rss.filter_map(|p| Some((p[0].as_f64()?, p[1].as_u64()?))).collect(),
        cpu_over_time_s: cpu.filter_map(|p| Some((p[0].as_f64()?, p[1].as_f64()?))).collect(),
        start_us: v["start_us"].as_u64().unwrap_or(0),
    };
    Ok((String::from_utf8_lossy(&out.stdout).into_owned(), cost))
}
