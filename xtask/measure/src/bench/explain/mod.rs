//! `bench explain`: each cause made on purpose, at round-trip times of 0 and 40 ms, and servers without a fault in the
//! network; `linerate explain` is asked about each of them, and the tables of docs/EXPLAIN-ACCURACY.md say how often it was right.

mod beside;
mod case;
mod cases;
mod cells;
mod dns;
mod jars;
mod jobs;
mod judged;
mod nginx;
mod page;
mod results;
mod servers;
mod stage;
mod wild;

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Result, bail, ensure};
use case::Case;
use servers::Programs;
use stage::CaseStage;

/// What to measure.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct ExplainBenchOptions {
    /// Only these cases, or all that inject these causes (comma-separated; --list names them).
    #[arg(long, value_delimiter = ',')]
    only: Vec<String>,
    /// Diagnoses of each case at each round-trip time.
    #[arg(long, default_value_t = 10)]
    runs: usize,
    /// Diagnoses of each healthy server and look-alike at each round-trip time (default: a fifth more than --runs, 300 in all).
    #[arg(long, value_name = "RUNS")]
    alike: Option<usize>,
    /// Two diagnoses of each case: some minutes instead of an hour.
    #[arg(long, conflicts_with_all = ["runs", "alike"])]
    quick: bool,
    /// So many cases side by side, each in namespaces of its own; those about processor time follow alone.
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u8).range(1..=16))]
    jobs: u8,
    /// Only this round-trip time, milliseconds.
    #[arg(long)]
    rtt: Option<u64>,
    /// Stop after so many seconds; --results keeps what was measured, and the next run goes on from there.
    #[arg(long, value_name = "SECONDS")]
    slice: Option<u64>,
    /// A file that keeps every run (a line of JSON each); runs that it has are not made again.
    #[arg(long, value_name = "FILE")]
    results: Option<PathBuf>,
    /// Instead of the causes made on purpose: servers that people run, each healthy, with time to think, with workers, with a limiter and
    /// cold, at both round-trip times, on a quiet machine and beside four busy loops.
    #[arg(long)]
    cells: bool,
    /// So many diagnoses in all, spread evenly over the cells.
    #[arg(long, value_name = "RUNS", requires = "cells", conflicts_with_all = ["quick", "alike", "runs"])]
    sample: Option<usize>,
    /// What the order of a sample is made from; the same seed goes on where --results stopped.
    #[arg(long, default_value_t = 1, requires = "sample")]
    seed: u64,
    /// Over TLS: every server that can gets a certificate, and the calls are https. Cases whose server cannot are left out.
    #[arg(long, conflicts_with = "cells")]
    tls: bool,
    /// Download the libraries of Tomcat, Jetty and Undertow that are missing, 9 MB of Maven Central, to ~/.cache/linerate/jars.
    #[arg(long, requires = "cells")]
    fetch: bool,
    /// Write the tables into docs/EXPLAIN-ACCURACY.md.
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

impl ExplainBenchOptions {
    /// Diagnoses of a case at one round-trip time.
    fn wanted(&self, case: &Case) -> usize {
        match self.alike {
            _ if self.quick => 2,
            Some(alike) if case.alike => alike,
            None if case.alike => (self.runs * 6).div_ceil(5),
            _ => self.runs,
        }
    }

    fn all(&self) -> Box<dyn Iterator<Item = &'static Case>> {
        if self.cells { Box::new(cells::all().iter()) } else { Box::new(cases::all()) }
    }

    fn chosen(&self) -> Result<Vec<&'static Case>> {
        let kind = |c: &Case| c.name.split(' ').next().unwrap_or_default().to_owned();
        let known = |name: &String| self.all().any(|c| c.name == name || c.truth == name || kind(c) == *name);
        if let Some(unknown) = self.only.iter().find(|n| !known(n)) {
            bail!("no case {unknown}; --list names them");
        }
        let named = |c: &&Case| self.only.iter().any(|n| n == c.name || n == c.truth || *n == kind(c));
        Ok(self.all().filter(|c| self.only.is_empty() || named(c)).collect())
    }

    /// Each case with each round-trip time at which it is tried.
    fn settings(&self, cases: &[&'static Case]) -> Vec<(&'static Case, u64)> {
        let each = |case: &&'static Case| {
            let case = *case;
            case.rtts.iter().filter(|r| self.rtt.is_none_or(|only| only == **r)).map(move |r| (case, *r))
        };
        cases.iter().flat_map(each).collect()
    }
}

/// Measures; the exit code is 1 when a cause was missed or a false alarm given.
pub(crate) fn main(options: &ExplainBenchOptions) -> ExitCode {
    if options.list {
        for c in options.all() {
            let truth = if c.truth.is_empty() { "nothing is wrong" } else { c.truth };
            println!("{:<28} {truth:<26} at {:?} ms", c.name, c.rtts);
        }
        return ExitCode::SUCCESS;
    }
    crate::net::in_own_processes(|| Ok(u8::from(!run(options)?)))
}

fn run(options: &ExplainBenchOptions) -> Result<bool> {
    ensure!(options.runs > 0, "at least one run");
    let cases = options.chosen()?;
    if options.fetch {
        jars::fetch()?;
    }
    let mut programs = Programs::build(options.linerate.as_deref(), options.explain.as_deref())?;
    if options.tls {
        programs.issue_certificate()?;
    }
    if options.symptoms {
        symptoms(&cases, options, &programs);
        return Ok(true);
    }
    ensure!(stage::explain_exists(&programs), "this linerate has no command explain");
    let runs = jobs::run(&cases, &programs, options)?;
    let machine = || format!("On {}.", super::machine_with("in namespaces of its own"));
    if options.cells {
        println!("\n{}", page::cells(&runs));
        if options.page {
            page::write_cells(&runs, &machine())?;
        }
        return Ok(true);
    }
    println!("\n{}", page::markdown(&runs));
    if options.page {
        page::write(&runs, options.tls, &machine())?;
    }
    Ok(page::all_reached(&runs))
}

/// A plain client's view of each case.
fn symptoms(cases: &[&'static Case], options: &ExplainBenchOptions, programs: &Programs) {
    for (case, rtt) in options.settings(cases) {
        let seen = CaseStage::new(case, rtt, programs).and_then(|stage| stage.symptoms());
        let seen = seen.unwrap_or_else(|e| format!("not run, {e:#}\n"));
        println!("{} ({}), RTT {rtt} ms\n{seen}", case.name, case.truth);
    }
}
