//! `soak idle`: real servers close idle connections while a client pauses for about as long.

use anyhow::{Result, ensure};

use super::running::run_tests;
use crate::python;
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
    tests.args(["test", "-p", "linerate", "--test", "client_real", "idle::", "--", "--nocapture"]);
    tests.args(["--test-threads", "8"]).env("LINERATE_IDLE_CALLS", options.calls.to_string());
    match tomcat() {
        Ok(jars) => drop(tests.env("LINERATE_TOMCAT", jars)),
        Err(why) => println!("without Tomcat: {why:#}"),
    }
    match gunicorn() {
        Ok(()) => drop(tests.env("PATH", xtask::path_with_python()?)),
        Err(why) => println!("without gunicorn: {why:#}"),
    }
    run_tests(&mut tests)?;
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
fn gunicorn() -> Result<()> {
    ensure!(xtask::python().is_file(), "cargo xtask python makes the environment for it");
    python::install("gunicorn", "gunicorn")
}
