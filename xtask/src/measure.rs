//! `bench` and `net`, which a program of their own runs: it takes the libraries, and minutes to build
//! for the first time.

use std::convert::Infallible;
use std::ffi::OsString;
use std::os::unix::process::CommandExt;
use std::process::Command;

use anyhow::{Context, Result};

/// What follows, as the other program reads it.
#[derive(Debug, clap::Args)]
pub(crate) struct Words {
    /// Its words; `--help` names them.
    #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
    words: Vec<OsString>,
}

/// Becomes the program that measures, in the caller's folder: signals and the exit code are its own.
pub(crate) fn run(command: &str, words: &Words) -> Result<bool> {
    become_it(command, words).map(|never| match never {})
}

fn become_it(command: &str, words: &Words) -> Result<Infallible> {
    let mut cargo = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    cargo.args(["run", "--quiet", "--package", "xtask-measure", "--", command]).args(&words.words);
    Err(cargo.exec()).context("cannot start cargo")
}
