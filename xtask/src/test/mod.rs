//! `test`: all that CI runs, quick steps first. It continues after a failure, so that one run
//! reports everything.

mod packages;
mod results;
mod smoke;

use std::io::{BufRead, BufReader, Write};
use std::process::Stdio;
use std::sync::mpsc::{self, RecvTimeoutError};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};

use crate::{icount, shell, tidy};
use results::Tally;

/// How long the last lines of the tests may take once cargo has ended.
const LAST_LINES: Duration = Duration::from_secs(10);

/// One step: its heading and what it does.
type Step = (&'static str, fn(&mut Tally) -> Result<()>);

const STEPS: [Step; 8] = [
    ("programs that tests need", |_| packages::provide()),
    ("format", |_| shell::run(shell::cargo().args(["fmt", "--all", "--check"]))),
    ("lints", |_| lints()),
    ("tidy", |_| good(tidy::run()?, "tidy found something")),
    ("tests", tests),
    ("instruction counts", |_| instruction_counts()),
    ("release build", |_| shell::run(shell::cargo().args(["build", "--release", "-p", "linerate-cli"]))),
    ("smoke run", |_| smoke::run()),
];

/// Runs all steps; `false` when one failed.
pub(crate) fn run() -> Result<bool> {
    let begin = Instant::now();
    let mut tally = Tally::default();
    let mut times = Vec::new();
    for (name, step) in STEPS {
        heading(&format!("== {name}"));
        let start = Instant::now();
        if let Err(e) = step(&mut tally) {
            heading(&format!("{name}: {e:#}"));
            tally.failed_steps.push(name);
        }
        times.push(format!("{name} {}", seconds(start.elapsed())));
    }
    heading(&format!("== {} ({})", seconds(begin.elapsed()), times.join(", ")));
    if !tally.failed_steps.is_empty() {
        heading(&format!("failed: {}", tally.failed_steps.join(", ")));
    }
    heading(&tally.line());
    Ok(tally.good())
}

/// A line that does not get lost between what other programs print.
fn heading(text: &str) {
    println!("{text}");
    let _ = std::io::stdout().flush();
}

fn seconds(d: Duration) -> String {
    format!("{:.0}s", d.as_secs_f64())
}

fn good(yes: bool, otherwise: &str) -> Result<()> {
    if yes { Ok(()) } else { bail!("{otherwise}") }
}

fn lints() -> Result<()> {
    shell::run(shell::cargo().args([
        "clippy",
        "--quiet",
        "--workspace",
        "--all-targets",
        "--",
        "-D",
        "warnings",
    ]))?;
    // Only libraries: a command's help is written for a terminal and is not valid rustdoc.
    let mut doc = shell::cargo();
    doc.args([
        "doc",
        "--quiet",
        "--workspace",
        "--no-deps",
        "--exclude",
        "linerate-cli",
        "--exclude",
        "xtask",
    ]);
    shell::run(doc.env("RUSTDOCFLAGS", "-D warnings"))
}

/// `cargo test` of everything, its results summed up while they pass by.
fn tests(tally: &mut Tally) -> Result<()> {
    let mut cargo = shell::cargo();
    cargo.args(["test", "--workspace", "--no-fail-fast"]).stdout(Stdio::piped());
    let mut child = cargo.spawn().context("cannot start cargo")?;
    let out = child.stdout.take().context("no pipe")?;
    let (say, lines) = mpsc::channel();
    std::thread::spawn(move || {
        BufReader::new(out).lines().map_while(Result::ok).try_for_each(|l| say.send(l))
    });
    loop {
        match lines.recv_timeout(LAST_LINES) {
            Ok(line) => {
                tally.read(&line);
                heading(&line);
            }
            Err(RecvTimeoutError::Disconnected) => break,
            // A process that a failed test has left behind holds the pipe open.
            Err(RecvTimeoutError::Timeout) if child.try_wait()?.is_some() => {
                heading("a program that a test started has not ended");
                break;
            }
            Err(RecvTimeoutError::Timeout) => {}
        }
    }
    good(child.wait()?.success(), "cargo test failed")
}

fn instruction_counts() -> Result<()> {
    if shell::find("valgrind").is_none() {
        heading("valgrind is missing: instruction counts are not compared");
        return Ok(());
    }
    good(icount::run(&icount::Options::for_tests())?, "a hot path takes more instructions than committed")
}
