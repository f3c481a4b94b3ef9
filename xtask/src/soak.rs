//! `soak`: what is run for long. User-space TCP over the simulated network, for many seeds: one that fails is named, and is a bug
//! report. `soak serve`: a server under all kinds of clients. `soak serve-mem`: the same in memory and in virtual time, by seed.
//! `soak client`: a program's client against a server that does anything, likewise. `soak idle`: the same beside real servers
//! that close idle connections. `soak bypass`: unchanged servers under mixed load. `soak machines`: agents, a broker and a coordinator that break at any moment, by seed.

mod bypass;
mod idle;
mod running;
mod serve;

use anyhow::{Context, Result};

use running::run_tests;
use xtask::shell;

/// What, and how long.
#[derive(Clone, Debug, clap::Args)]
#[command(args_conflicts_with_subcommands = true)]
pub(crate) struct SoakOptions {
    #[command(subcommand)]
    what: Option<SoakTarget>,
    #[command(flatten)]
    seeds: Seeds,
}

/// Which seeds.
#[derive(Clone, Debug, clap::Args)]
struct Seeds {
    /// Seeds to run.
    #[arg(long, default_value_t = 10_000)]
    seeds: u64,
    /// The first of them.
    #[arg(long, default_value_t = 1)]
    from: u64,
    /// Only this one.
    #[arg(long)]
    seed: Option<u64>,
}

#[derive(Clone, Debug, clap::Subcommand)]
enum SoakTarget {
    /// A real `linerate serve` under all kinds of clients at once, for minutes.
    Serve(serve::ServeSoakOptions),
    /// A server in memory and in virtual time, under clients that do anything at any moment.
    ServeMem(Seeds),
    /// A program's client in memory and in virtual time, over HTTP/1.1, HTTP/2 and TLS, against a server that does anything.
    Client(Seeds),
    /// A program's client that pauses for about as long as real servers keep idle connections.
    Idle(idle::IdleOptions),
    /// nginx and HAProxy, unchanged, on user-space TCP, under mixed load for half an hour.
    Bypass(bypass::BypassSoakOptions),
    /// `load` and a server over TLS and user-space TCP, whose connections break at any byte.
    Tls(Seeds),
    /// `linerate load` over HTTP/2 in virtual time, against a server that refuses, resets, goes away and is cut off.
    LoadH2(Seeds),
    /// Sockets over user-space TCP against the kernel's, under the same random calls.
    Sockets(Seeds),
    /// Loads from many machines in virtual time: agents, broker and coordinator break at any moment.
    Machines(Seeds),
}

/// Runs them with a release build.
pub(crate) fn run(options: &SoakOptions) -> Result<bool> {
    match &options.what {
        Some(SoakTarget::Serve(options)) => serve::run(options),
        Some(SoakTarget::ServeMem(seeds)) => seeds.run(
            &["linerate-serve", "--lib", "--", "turn::seeds"],
            "every client that stayed got its responses, and nothing was left behind",
        ),
        Some(SoakTarget::Client(seeds)) => seeds.run(
            &["linerate-client", "--features", "client", "--lib", "--", "client::calls::tests::seeds"],
            "each call ended once, and none got the response of another",
        ),
        Some(SoakTarget::Idle(options)) => idle::run(options),
        Some(SoakTarget::Bypass(options)) => bypass::run(options),
        Some(SoakTarget::Tls(seeds)) => seeds.run(
            &["linerate-load", "--lib", "--", "engine::tests::tls"],
            "each request ended in exactly one outcome, and no broken response was whole",
        ),
        Some(SoakTarget::LoadH2(seeds)) => seeds
            .run(&["linerate-load", "--lib", "--", "tests::http2"], "each request ended in exactly one way"),
        Some(SoakTarget::Sockets(seeds)) => seeds.run(
            &["linerate-net", "--test", "sockets_kernel", "--"],
            "each call answered as the kernel's, and left the same readiness and bytes",
        ),
        Some(SoakTarget::Machines(seeds)) => seeds.run(
            &["linerate-machines", "--lib", "--", "publishing::seeds"],
            "nothing counted twice, and nothing was missing in silence",
        ),
        None => options.seeds.run(
            &["linerate-net", "--test", "stack_seeds", "--test", "stack_hosts", "--"],
            "no hang, no byte lost, doubled or changed",
        ),
    }
}

impl Seeds {
    /// Runs them through a test of the package named first.
    fn run(&self, test: &[&str], meaning: &str) -> Result<bool> {
        let mut tests = shell::cargo();
        tests.args(["test", "--release", "-p"]).args(test).arg("--nocapture");
        tests.env("LINERATE_SEEDS", self.seeds.to_string()).env("LINERATE_FROM", self.from.to_string());
        if let Some(seed) = self.seed {
            tests.env("LINERATE_SEED", seed.to_string());
        }
        run_tests(&mut tests).with_context(|| format!("cargo test -p {}", test.join(" ")))?;
        println!("{} seeds: {meaning}", self.seed.map_or(self.seeds, |_| 1));
        Ok(true)
    }
}
