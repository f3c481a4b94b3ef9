//! `cargo xtask`: the one door for building, testing and measuring linerate.

mod book;
mod dist;
mod fuzz;
mod icount;
mod measure;
mod pictures;
mod python;
mod release;
mod soak;
mod test;
mod tidy;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

/// Builds, tests and measures linerate.
#[derive(Debug, Parser)]
#[command(name = "cargo xtask")]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// All that CI runs: format, lints, tidy, tests, instruction counts, a release build and a smoke run.
    Test(test::Options),
    /// Holds the source against the project's rules: crate table, cycles, sizes, words, unsafe, links.
    Tidy(tidy::Options),
    /// Measures side by side with other programs; `bench --help` names what.
    #[command(disable_help_flag = true)]
    Bench(measure::Words),
    /// Lays out, checks and builds the book (with mdbook).
    Book(book::Options),
    /// Builds what users install: the archive and packages, in target/dist.
    Dist(dist::Options),
    /// Each way of installing, on clean root file systems, timed.
    Release(release::Options),
    /// Records the README's pictures from real runs (takes root).
    Pictures(pictures::Options),
    /// Builds the wheel for Python, installs it in an environment of its own, and runs its tests.
    Python(python::Options),
    /// Instruction counts of the hot paths against those committed (needs valgrind).
    Icount(icount::Options),
    /// Runs each fuzz target for some seconds.
    Fuzz(fuzz::Options),
    /// Many more seeds of the simulated network than the ordinary tests run.
    Soak(soak::Options),
    /// Programs in a network of their own, with delay, loss, rate and MTU (takes root).
    #[command(disable_help_flag = true)]
    Net(measure::Words),
}

fn main() -> ExitCode {
    let done = match Cli::parse().command {
        Command::Test(options) => test::run(&options),
        Command::Tidy(options) => tidy::run(&options),
        Command::Book(options) => book::run(&options),
        Command::Dist(options) => dist::run(&options),
        Command::Release(options) => release::run(&options),
        Command::Pictures(options) => pictures::run(&options),
        Command::Python(options) => python::run(&options),
        Command::Icount(options) => icount::run(&options),
        Command::Fuzz(options) => fuzz::run(&options),
        Command::Soak(options) => soak::run(&options),
        Command::Bench(words) => measure::run("bench", &words),
        Command::Net(words) => measure::run("net", &words),
    };
    match done {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(e) => {
            eprintln!("error: {e:#}");
            ExitCode::FAILURE
        }
    }
}
