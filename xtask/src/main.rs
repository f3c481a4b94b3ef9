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
struct XtaskCli {
    #[command(subcommand)]
    command: XtaskCommand,
}

#[derive(Debug, Subcommand)]
enum XtaskCommand {
    /// All that CI runs: format, lints, tidy, tests, instruction counts, a release build and a smoke run.
    Test(test::TestOptions),
    /// Holds the source against the project's rules: crate table, cycles, sizes, words, unsafe, links.
    Tidy(tidy::TidyOptions),
    /// Measures side by side with other programs; `bench --help` names what.
    #[command(disable_help_flag = true)]
    Bench(measure::Words),
    /// Lays out, checks and builds the book (with mdbook).
    Book(book::BookOptions),
    /// Builds what users install: the archive and packages, in target/dist.
    Dist(dist::DistOptions),
    /// Each way of installing, on clean root file systems, timed.
    Release(release::ReleaseOptions),
    /// Records the README's pictures from real runs (takes root).
    Pictures(pictures::PicturesOptions),
    /// Builds the wheel for Python, installs it in an environment of its own, and runs its tests.
    Python(python::PythonOptions),
    /// Instruction counts of the hot paths against those committed (needs valgrind).
    Icount(icount::IcountOptions),
    /// Runs each fuzz target for some seconds.
    Fuzz(fuzz::FuzzOptions),
    /// Many more seeds of the simulated network than the ordinary tests run.
    Soak(soak::SoakOptions),
    /// Programs in a network of their own, with delay, loss, rate and MTU (takes root).
    #[command(disable_help_flag = true)]
    Net(measure::Words),
}

fn main() -> ExitCode {
    let done = match XtaskCli::parse().command {
        XtaskCommand::Test(options) => test::run(&options),
        XtaskCommand::Tidy(options) => tidy::run(&options),
        XtaskCommand::Book(options) => book::run(&options),
        XtaskCommand::Dist(options) => dist::run(&options),
        XtaskCommand::Release(options) => release::run(&options),
        XtaskCommand::Pictures(options) => pictures::run(&options),
        XtaskCommand::Python(options) => python::run(&options),
        XtaskCommand::Icount(options) => icount::run(&options),
        XtaskCommand::Fuzz(options) => fuzz::run(&options),
        XtaskCommand::Soak(options) => soak::run(&options),
        XtaskCommand::Bench(words) => measure::run("bench", &words),
        XtaskCommand::Net(words) => measure::run("net", &words),
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
