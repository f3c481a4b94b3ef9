//! `cargo xtask`: the one door for building, testing and measuring linerate.

mod bench;
mod book;
mod dist;
mod fuzz;
mod icount;
mod net;
mod nginx;
mod pictures;
mod python;
mod release;
mod shell;
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
    /// Measures side by side with other programs.
    #[command(subcommand)]
    Bench(Bench),
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
    #[command(subcommand)]
    Net(net::Net),
}

#[derive(Debug, Subcommand)]
enum Bench {
    /// `linerate load` against raw clients, wrk, h2load, ab, hey, oha and shb, in turns.
    Load(bench::Options),
    /// `linerate serve` against nginx, hyper, axum, Netty, Go and Swoole, in turns.
    Serve(bench::serve::Options),
    /// `linerate::client` against hyper-util's client, reqwest and `linerate load`, in turns.
    Client(bench::client::Options),
    /// `linerate load` and `linerate serve` over TLS against nginx, wrk and ab, in turns.
    Tls(bench::tls::Options),
    /// Compares `linerate load` and `serve` over HTTP/2 with h2load, shb, nginx and hyper.
    H2(bench::h2::Options),
    /// Measures loads from many machines with real and simulated agents, on loopback.
    Machines(bench::machines::Options),
    /// TCP in user space (`--io xdp`) against the kernel's, over veth in namespaces of its own, in turns (takes root).
    Stack(bench::stack::Options),
    /// `linerate explain` against each cause made on purpose, and against healthy servers (takes root).
    Explain(bench::explain::Options),
    /// `linerate load`, wrk, k6, hey and h2load against servers that misbehave and count what they did.
    Truth(bench::truth::Options),
    /// `linerate explain --pcap` against tshark, in turns.
    Pcap(bench::pcap::Options),
    /// `linerate load --find` against servers of known capacity on loopback.
    Find(bench::find::Options),
}

fn main() -> ExitCode {
    let done = match Cli::parse().command {
        Command::Test(options) => test::run(&options),
        Command::Tidy(options) => tidy::run(&options),
        Command::Bench(Bench::Load(options)) => bench::run(&options),
        Command::Bench(Bench::Serve(options)) => bench::serve::run(&options),
        Command::Bench(Bench::Client(options)) => bench::client::run(&options),
        Command::Bench(Bench::Tls(options)) => bench::tls::run(&options),
        Command::Bench(Bench::H2(options)) => bench::h2::run(&options),
        Command::Bench(Bench::Machines(options)) => bench::machines::run(&options),
        Command::Bench(Bench::Truth(options)) => bench::truth::run(&options),
        Command::Bench(Bench::Pcap(options)) => bench::pcap::run(&options),
        Command::Bench(Bench::Find(options)) => bench::find::run(&options),
        Command::Bench(Bench::Stack(options)) => bench::stack::run(&options),
        Command::Bench(Bench::Explain(options)) => return bench::explain::main(&options),
        Command::Book(options) => book::run(&options),
        Command::Dist(options) => dist::run(&options),
        Command::Release(options) => release::run(&options),
        Command::Pictures(options) => pictures::run(&options),
        Command::Python(options) => python::run(&options),
        Command::Icount(options) => icount::run(&options),
        Command::Fuzz(options) => fuzz::run(&options),
        Command::Soak(options) => soak::run(&options),
        Command::Net(net) => return net::main(&net),
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
