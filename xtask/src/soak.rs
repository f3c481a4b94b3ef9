//! `soak`: what is run for long. User-space TCP over the simulated network, for many seeds: one that fails is named, and is a bug
//! report. `soak serve`: a server under all kinds of clients.

mod serve;

use anyhow::Result;

use crate::shell;

/// How long.
#[derive(Clone, Debug, clap::Args)]
#[command(args_conflicts_with_subcommands = true)]
pub(crate) struct Options {
    #[command(subcommand)]
    what: Option<What>,
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
enum What {
    /// A real `linerate serve` under all kinds of clients at once, for minutes.
    Serve(serve::Options),
}

/// Runs them with a release build.
pub(crate) fn run(options: &Options) -> Result<bool> {
    if let Some(What::Serve(options)) = &options.what {
        return serve::run(options);
    }
    let mut tests = shell::cargo();
    tests.args(["test", "--release", "-p", "linerate-net", "--test", "stack_seeds", "--", "--nocapture"]);
    tests.env("LINERATE_SEEDS", options.seeds.to_string()).env("LINERATE_FROM", options.from.to_string());
    if let Some(seed) = options.seed {
        tests.env("LINERATE_SEED", seed.to_string());
    }
    shell::run(&mut tests)?;
    println!(
        "{} seeds: no hang, no byte lost, doubled or changed",
        options.seed.map_or(options.seeds, |_| 1)
    );
    Ok(true)
}
