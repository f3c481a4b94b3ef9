//! What `cargo xtask bench` and `cargo xtask net` run: programs side by side, and a network for them.

mod bench;
mod net;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

/// Measures linerate beside other programs.
#[derive(Debug, Parser)]
#[command(name = "cargo xtask", bin_name = "cargo xtask")]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Measures side by side with other programs.
    #[command(subcommand)]
    Bench(Bench),
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
