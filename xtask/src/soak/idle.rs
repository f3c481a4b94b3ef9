//! `soak idle`: real servers close idle connections while a client pauses for about as long.

use std::path::Path;
use std::process::Command;

use anyhow::{Result, ensure};

use crate::test::results::TestTally;
use xtask::{jars, shell};

/// How much.
#[derive(Clone, Debug, clap::Args)]
pub(super) struct IdleOptions {
    /// Calls to each server.
    #[arg(long, default_value_t = 100_000)]
    calls: u32,
}

/// Runs it in a debug build: the client sleeps most of the time.
pub(super) fn run(options: &IdleOptions) -> Result<bool> {
    let mut tests = shell::cargo();
    tests.args([
        "test",
        "-p",
        "linerate",
        "--test",
        "client_real",
        "idle::",
        "--",
        "--nocapture",
        "--test-threads",
        "8",
    ]);
    tests.env("LINERATE_IDLE_CALLS", options.calls.to_string());
    match tomcat() {
        Ok(jars) => drop(tests.env("LINERATE_TOMCAT", jars)),
        Err(why) => println!("without Tomcat: {why:#}"),
    }
    let interpreter = xtask::python();
    if let Err(why) = gunicorn(&interpreter) {
        println!("without gunicorn: {why:#}");
    } else {
        tests.env("PATH", xtask::path_with_python()?);
    }
    let mut tally = TestTally::default();
    shell::lines(&mut tests, |line| {
        tally.read(line);
        println!("{line}");
    })?;
    // A test that has another name by now is no success.
    ensure!(tally.good(), "no test ran");
    println!("{} calls to each server: no GET failed, and no POST came twice", options.calls);
    Ok(true)
}

/// Its class path.
fn tomcat() -> Result<String> {
    ensure!(shell::find("java").is_some(), "java is not installed");
    jars::fetch(&jars::TOMCAT)?;
    let paths = jars::TOMCAT.map(|jar| jars::folder().join(jar.file()).display().to_string());
    Ok(paths.join(":"))
}

/// Installs it beside our package for Python.
fn gunicorn(interpreter: &Path) -> Result<()> {
    let has = Command::new(interpreter).args(["-c", "import gunicorn"]).output();
    if has.is_ok_and(|output| output.status.success()) {
        return Ok(());
    }
    ensure!(interpreter.is_file(), "cargo xtask python makes the environment for it");
    shell::run(Command::new(interpreter).args(["-m", "pip", "install", "--quiet", "gunicorn"]))
}
