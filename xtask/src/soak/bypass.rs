//! `soak bypass`: unchanged servers on user-space TCP under mixed load.

use anyhow::Result;

use super::running::run_tests;
use xtask::shell;

/// How long.
#[derive(Clone, Debug, clap::Args)]
pub(super) struct BypassSoakOptions {
    /// How long each server is under load.
    #[arg(long, default_value_t = 30)]
    minutes: u64,
}

/// Runs it in a debug build, nginx, nginx with TLS and HAProxy at once: their clients pause.
pub(super) fn run(options: &BypassSoakOptions) -> Result<bool> {
    let mut tests = shell::cargo();
    tests.args(["test", "-p", "linerate-bypass", "--test", "programs", "mixed::", "--", "--nocapture"]);
    tests.args(["--test-threads", "3"]);
    run_tests(tests.env("LINERATE_BYPASS_SECONDS", (options.minutes * 60).to_string()))?;
    println!("{} minutes each: nothing lost, and what connections took was given back", options.minutes);
    Ok(true)
}
