//! `soak`: user-space TCP over the simulated network, for many seeds. A seed that fails is named, and is a bug report.

use anyhow::Result;

use crate::shell;

/// How long.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct Options {
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

/// Runs them with a release build.
pub(crate) fn run(options: &Options) -> Result<bool> {
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
