//! `bench explain`: each cause made on purpose, at round-trip times of 0 and 40 ms, and servers in which nothing on the way is wrong;
//! `linerate explain` is asked about each of them, and the tables of docs/EXPLAIN.md say how often it was right.

mod beside;
mod case;
mod cases;
mod dns;
mod page;
mod results;
mod servers;
mod stage;

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use anyhow::{Result, bail, ensure};
use case::Case;
use results::Run;
use servers::Programs;
use stage::Stage;

/// What to measure.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct Options {
    /// Only these cases, or all that inject these causes (comma-separated; --list names them).
    #[arg(long, value_delimiter = ',')]
    only: Vec<String>,
    /// Diagnoses of each case at each round-trip time.
    #[arg(long, default_value_t = 10)]
    runs: usize,
    /// Two diagnoses of each case: some minutes instead of hours.
    #[arg(long, conflicts_with = "runs")]
    quick: bool,
    /// Only this round-trip time, milliseconds.
    #[arg(long)]
    rtt: Option<u64>,
    /// Stop after so many seconds; --results keeps what was measured, and the next run goes on from there.
    #[arg(long, value_name = "SECONDS")]
    slice: Option<u64>,
    /// A file that keeps every run (a line of JSON each); runs that it has are not made again.
    #[arg(long, value_name = "FILE")]
    results: Option<PathBuf>,
    /// Write the tables into docs/EXPLAIN.md.
    #[arg(long)]
    page: bool,
    /// Don't diagnose: show what a plain client (curl) sees of each fault.
    #[arg(long)]
    symptoms: bool,
    /// The command that serves and loads (default: built from here).
    #[arg(long, value_name = "PATH")]
    linerate: Option<PathBuf>,
    /// The command that explains, for comparing builds (default: the same).
    #[arg(long, value_name = "PATH")]
    explain: Option<PathBuf>,
    /// Name the cases and stop.
    #[arg(long)]
    list: bool,
}

impl Options {
    fn wanted(&self) -> usize {
        if self.quick { 2 } else { self.runs }
    }

    fn chosen(&self) -> Result<Vec<&'static Case>> {
        let known = |name: &String| cases::all().any(|c| c.name == name || c.truth == name);
        if let Some(unknown) = self.only.iter().find(|n| !known(n)) {
            bail!("no case {unknown}; --list names them");
        }
        let named = |c: &&Case| self.only.iter().any(|n| n == c.name || n == c.truth);
        Ok(cases::all().filter(|c| self.only.is_empty() || named(c)).collect())
    }
}

/// Measures; the exit code is 1 when a cause was missed or a false alarm given.
pub(crate) fn main(options: &Options) -> ExitCode {
    if options.list {
        for c in cases::all() {
            let truth = if c.truth.is_empty() { "nothing is wrong" } else { c.truth };
            println!("{:<18} {truth:<26} at {:?} ms", c.name, c.rtts);
        }
        return ExitCode::SUCCESS;
    }
    crate::net::in_own_processes(|| Ok(u8::from(!run(options)?)))
}

fn run(options: &Options) -> Result<bool> {
    ensure!(options.wanted() > 0, "at least one run");
    let cases = options.chosen()?;
    let programs = Programs::build(options.linerate.as_deref(), options.explain.as_deref())?;
    ensure!(options.symptoms || stage::explain_exists(&programs), "this linerate has no command explain");
    let mut runs = match &options.results {
        Some(path) => results::read(path)?,
        None => Vec::new(),
    };
    let begin = Instant::now();
    let over = || options.slice.is_some_and(|s| begin.elapsed() > Duration::from_secs(s));
    for case in cases {
        if let Some(lack) = stage::lacks(case, &programs) {
            println!("{}: not run, {lack}", case.name);
            continue;
        }
        for rtt in case.rtts.iter().filter(|r| options.rtt.is_none_or(|only| only == **r)) {
            if over() {
                break;
            }
            if options.symptoms {
                let seen = Stage::new(case, *rtt, &programs).and_then(|stage| stage.symptoms());
                let seen = seen.unwrap_or_else(|e| format!("not run, {e:#}\n"));
                println!("{} ({}), RTT {rtt} ms\n{seen}", case.name, case.truth);
            } else {
                diagnose(case, *rtt, &programs, options, &mut runs, &over)?;
            }
        }
    }
    if options.symptoms {
        return Ok(true);
    }
    println!("\n{}", page::markdown(&runs));
    if options.page {
        page::write(&runs, &format!("On {}.", super::machine()))?;
    }
    Ok(page::all_reached(&runs))
}

/// As many diagnoses of a case as are missing.
fn diagnose(
    case: &'static Case,
    rtt: u64,
    programs: &Programs,
    options: &Options,
    runs: &mut Vec<Run>,
    over: &dyn Fn() -> bool,
) -> Result<()> {
    let has = runs.iter().filter(|r| r.case == case.name && r.rtt_ms == rtt).count();
    if has >= options.wanted() {
        return Ok(());
    }
    let stage = match Stage::new(case, rtt, programs) {
        Ok(stage) => stage,
        Err(e) => {
            println!("{}: not run, {e:#}", case.name);
            return Ok(());
        }
    };
    for _ in has..options.wanted() {
        if over() {
            break;
        }
        let run = stage.explain(programs)?;
        let named: Vec<String> = run.causes.iter().map(|(id, cost)| format!("{id} {cost:.1}")).collect();
        let said = run.error.clone().unwrap_or_else(|| format!("{} {}", run.verdict, named.join(", ")));
        println!("{:<18} {rtt:>3} ms  {:>5.1} s  {said}", case.name, run.took_s);
        if let Some(path) = &options.results {
            results::add(path, &run)?;
        }
        runs.push(run);
    }
    for doubt in stage.doubts() {
        println!("{}: {doubt}", case.name);
    }
    Ok(())
}
