//! `test`: all that CI runs, quick steps first. It continues after a failure, so that one run
//! reports everything.

mod beside;
mod packages;
mod programs;
pub(crate) mod results;
mod retries;
mod schedule;
mod skips;
mod smoke;

use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Result, bail};

use crate::{icount, tidy};
use results::TestTally;
use skips::SkippedTest;
use xtask::shell;
use xtask::shell::heading;

/// The flags of `test`.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct TestOptions {
    /// Install no packages: name what is missing, and the tests that therefore don't run
    #[arg(long)]
    no_install: bool,
    /// Run only the step of this name, "tests" for example
    #[arg(long, value_name = "STEP", value_parser = STEPS.map(|(name, _)| name))]
    only: Option<String>,
    /// Fail if a test passes only on its second try, alone, and xtask/retries.toml does not know it
    #[arg(long)]
    strict_retries: bool,
}

/// What a build of everything, debug and release, takes. Reason: a full disk fails with words of the linker.
const DISK_GB: u64 = 15;
/// The same where there is a build already.
const DISK_AGAIN_GB: u64 = 4;

/// One step: its heading and what it does.
type Step = (&'static str, fn(&TestOptions, &mut TestTally) -> Result<()>);

const STEPS: [Step; 8] = [
    ("programs that tests need", |options, _| packages::provide(options.no_install)),
    ("format", |_, _| shell::run(shell::cargo().args(["fmt", "--all", "--check"]))),
    ("lints", |_, _| lints()),
    ("tidy", |_, _| good(tidy::run(&tidy::TidyOptions::default())?, "tidy found something")),
    ("tests", |options, tally| {
        programs::run(tally, if options.only.is_none() { builds() } else { Vec::new() })
    }),
    ("release build", |_, _| builds().iter_mut().try_for_each(shell::run)),
    ("instruction counts", |_, tally| instruction_counts(tally)),
    ("smoke run", |_, tally| smoke::run(tally)),
];

/// Runs all steps; `false` when one failed.
pub(crate) fn run(options: &TestOptions) -> Result<bool> {
    let begin = Instant::now();
    let mut tally = TestTally::default();
    let mut times = Vec::new();
    let takes = if shell::target_dir().join("release").exists() { DISK_AGAIN_GB } else { DISK_GB };
    if let Some(free) = free_gigabytes().filter(|free| *free < takes) {
        heading(&format!("only {free} GB of disk are free, and the builds take up to {takes} GB"));
        heading("hint: cargo clean, where target/ is full of old builds");
    }
    let wanted = |name: &str| options.only.as_deref().is_none_or(|only| only == name);
    for (i, (name, step)) in STEPS.into_iter().enumerate().filter(|(_, (name, _))| wanted(name)) {
        let place = format!("{} of {}, {} so far", i + 1, STEPS.len(), seconds(begin.elapsed()));
        heading(&format!("== {name} ({place})"));
        let start = Instant::now();
        if let Err(e) = step(options, &mut tally) {
            heading(&format!("{name}: {e:#}"));
            tally.failed_steps.push(name);
        }
        times.push(format!("{name} {}", seconds(start.elapsed())));
    }
    told(&mut tally, options.strict_retries);
    heading(&format!("== {} ({})", seconds(begin.elapsed()), times.join(", ")));
    if !tally.failed_steps.is_empty() {
        heading(&format!("failed: {}", tally.failed_steps.join(", ")));
    }
    heading(&tally.line());
    Ok(tally.good())
}

/// Names what was skipped and what passed only alone; where that is a failure, it is a failed step.
fn told(tally: &mut TestTally, strict_retries: bool) {
    if !tally.skipped.is_empty() {
        heading(&format!("skipped:\n  {}", skips::list(&tally.skipped).join("\n  ")));
    }
    if !tally.retried.is_empty() {
        heading(&format!("these failed at first and passed alone:\n  {}", tally.retried.join("\n  ")));
    }
    let mut judge = |step: &'static str, refused: Result<Vec<String>>| match refused {
        Ok(refused) if refused.is_empty() => {}
        Ok(refused) => {
            heading(&format!("{step} that the committed list does not have: {}", refused.join(", ")));
            tally.failed_steps.push(step);
        }
        Err(e) => {
            heading(&format!("{step}: {e:#}"));
            tally.failed_steps.push(step);
        }
    };
    // Both lists are read in any case: a bad one must not wait for the run that needs it.
    let (skipped, retried) = (skips::refused(&tally.skipped), retries::unknown(&tally.retried));
    if skips::strict() {
        judge("skips", skipped);
    }
    if strict_retries {
        judge("retries", retried);
    }
}

/// What the last steps need: the program whose instructions are counted, and the command for the
/// smoke run, which says nothing about speed.
fn builds() -> Vec<Command> {
    let mut command = shell::cargo();
    command.args(["build", "--locked", "--profile", smoke::PROFILE, "-p", "linerate-cli"]);
    vec![icount::build(), command]
}

/// Gigabytes free where this tree lies, as `df` says.
fn free_gigabytes() -> Option<u64> {
    let text = shell::output(shell::program(&shell::find("df")?).arg("-Pk").arg(shell::root())).ok()?;
    let kilobytes: u64 = text.lines().nth(1)?.split_whitespace().nth(3)?.parse().ok()?;
    Some(kilobytes >> 20)
}

fn seconds(d: Duration) -> String {
    format!("{:.0}s", d.as_secs_f64())
}

fn good(yes: bool, otherwise: &str) -> Result<()> {
    if yes { Ok(()) } else { bail!("{otherwise}") }
}

/// In CI a build fails if a lock file is behind, where a developer's build updates it.
fn locked() -> Option<&'static str> {
    std::env::var_os("CI").is_some().then_some("--locked")
}

fn lints() -> Result<()> {
    let mut clippy = shell::cargo();
    clippy.args(["clippy", "--workspace", "--all-targets"]).args(locked());
    shell::run(clippy.args(["--", "-D", "warnings"]))?;
    // Only libraries: a command's help is written for a terminal and is not valid rustdoc.
    let mut doc = shell::cargo();
    doc.args(["doc", "--workspace", "--no-deps", "--exclude", "linerate-cli"]);
    doc.args(["--exclude", "linerate-commands", "--exclude", "xtask"]).args(locked());
    shell::run(doc.env("RUSTDOCFLAGS", "-D warnings"))
}

fn instruction_counts(tally: &mut TestTally) -> Result<()> {
    if shell::find("valgrind").is_none() {
        tally.skipped.insert(SkippedTest::step("instruction counts", "", "valgrind"));
        return Ok(());
    }
    good(
        icount::run(&icount::IcountOptions::for_tests())?,
        "a hot path takes more instructions than committed",
    )
}
