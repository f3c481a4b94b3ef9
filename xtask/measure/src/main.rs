//! What `cargo xtask bench` and `cargo xtask net` run: programs side by side, and a network for them.

mod bench;
mod net;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

/// Measures linerate beside other programs.
#[derive(Debug, Parser)]
#[command(name = "cargo xtask", bin_name = "cargo xtask")]
struct MeasureCli {
    #[command(subcommand)]
    command: MeasureCommand,
}

#[derive(Debug, Subcommand)]
enum MeasureCommand {
    /// Measures side by side with other programs.
    #[command(subcommand)]
    Bench(BenchCommand),
    /// Programs in a network of their own, with delay, loss, rate and MTU (takes root).
    #[command(subcommand)]
    Net(net::NetCommand),
}

#[derive(Debug, Subcommand)]
enum BenchCommand {
    /// `linerate load` against raw clients, wrk, h2load, ab, hey, oha and shb, in turns.
    Load(bench::LoadBenchOptions),
    /// `linerate serve` against nginx, hyper, axum, Netty, Go and Swoole, in turns.
    Serve(bench::serve::ServeBenchOptions),
    /// `linerate::client` against hyper-util's client, reqwest and `linerate load`, in turns.
    Client(bench::client::ClientBenchOptions),
    /// `linerate load` and `linerate serve` over TLS against nginx, wrk and ab, in turns.
    Tls(bench::tls::TlsBenchOptions),
    /// Compares `linerate load` and `serve` over HTTP/2 with h2load, shb, nginx and hyper.
    H2(bench::h2::StreamBenchOptions),
    /// Compares `linerate load` and `serve` over HTTP/3 with shb, oha, h2load, nginx and a raw sender.
    H3(bench::h3::QuicBenchOptions),
    /// Measures loads from many machines with real and simulated agents, on loopback.
    Machines(bench::machines::MachinesBenchOptions),
    /// TCP in user space (`--io xdp`) against the kernel's, over veth in namespaces of its own, in turns (takes root).
    Stack(bench::stack::StackBenchOptions),
    /// nginx and redis, unchanged, on TCP in user space against the same on the kernel's, in turns (takes root).
    Bypass(bench::bypass::BypassBenchOptions),
    /// `linerate explain` against each cause made on purpose, and against healthy servers (takes root).
    Explain(bench::explain::ExplainBenchOptions),
    /// `linerate load`, wrk, k6, hey and h2load against servers that misbehave and count what they did.
    Truth(bench::truth::TruthBenchOptions),
    /// Flows and k6 scripts of linerate against k6 and Locust, in turns.
    Flows(bench::flows::FlowBenchOptions),
    /// `linerate explain --pcap` against tshark, in turns.
    Pcap(bench::pcap::PcapBenchOptions),
    /// `linerate load --find` against servers of known capacity on loopback.
    Find(bench::find::FindBenchOptions),
}

fn main() -> ExitCode {
    let done = match MeasureCli::parse().command {
        MeasureCommand::Bench(BenchCommand::Load(options)) => bench::run(&options),
        MeasureCommand::Bench(BenchCommand::Serve(options)) => bench::serve::run(&options),
        MeasureCommand::Bench(BenchCommand::Client(options)) => bench::client::run(&options),
        MeasureCommand::Bench(BenchCommand::Tls(options)) => bench::tls::run(&options),
        MeasureCommand::Bench(BenchCommand::H2(options)) => bench::h2::run(&options),
        MeasureCommand::Bench(BenchCommand::H3(options)) => bench::h3::run(&options),
        MeasureCommand::Bench(BenchCommand::Machines(options)) => bench::machines::run(&options),
        MeasureCommand::Bench(BenchCommand::Truth(options)) => bench::truth::run(&options),
        MeasureCommand::Bench(BenchCommand::Flows(options)) => bench::flows::run(&options),
        MeasureCommand::Bench(BenchCommand::Pcap(options)) => bench::pcap::run(&options),
        MeasureCommand::Bench(BenchCommand::Find(options)) => bench::find::run(&options),
        MeasureCommand::Bench(BenchCommand::Stack(options)) => bench::stack::run(&options),
        MeasureCommand::Bench(BenchCommand::Bypass(options)) => bench::bypass::run(&options),
        MeasureCommand::Bench(BenchCommand::Explain(options)) => return bench::explain::main(&options),
        MeasureCommand::Net(net) => return net::main(&net),
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
