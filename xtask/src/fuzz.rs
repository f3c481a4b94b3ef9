//! `fuzz`: each target of fuzz/ for some seconds, from the committed corpus, which the ordinary tests replay.

use anyhow::{Context, Result, bail};

use xtask::shell;

/// What to fuzz.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct FuzzOptions {
    /// Only this target.
    target: Option<String>,
    /// Seconds for each target.
    #[arg(long, default_value_t = 30)]
    seconds: u64,
}

/// Runs the targets one after the other; the first that finds something ends it with an error.
pub(crate) fn run(options: &FuzzOptions) -> Result<bool> {
    if shell::find("cargo-fuzz").is_none() {
        println!("cargo-fuzz is not installed: installing it");
        shell::run(shell::cargo().args(["install", "--locked", "cargo-fuzz"]))
            .context("cargo-fuzz is needed: cargo install --locked cargo-fuzz")?;
    }
    let targets = shell::output(&mut fuzz(&["list"]))?;
    let mut targets: Vec<&str> = targets.lines().collect();
    if let Some(only) = &options.target {
        if !targets.contains(&only.as_str()) {
            bail!("no fuzz target {only}; there are: {}", targets.join(", "));
        }
        targets.retain(|t| t == only);
    }
    for target in targets {
        println!("== {target}: {} s", options.seconds);
        // New inputs grow in a separate folder: the committed corpus stays small and chosen by
        // hand.
        let new = tempfile::tempdir()?;
        let (new, seeds) = (new.path().display().to_string(), format!("fuzz/corpus/{target}"));
        let limit = format!("-max_total_time={}", options.seconds);
        shell::run(&mut fuzz(&["run", target, &new, &seeds, "--", &limit, "-verbosity=0"]))?;
    }
    Ok(true)
}

/// cargo-fuzz asks for a nightly compiler; ours does it when told that it may.
fn fuzz(words: &[&str]) -> std::process::Command {
    let mut c = shell::cargo();
    c.arg("fuzz").args(words).env("RUSTC_BOOTSTRAP", "1").env_remove("CARGO_TARGET_DIR");
    c
}
