//! Tests that run for long.

use std::process::Command;

use anyhow::{Result, ensure};

use crate::test::results::TestTally;
use xtask::shell;

/// Runs tests and shows what they say.
pub(super) fn run_tests(tests: &mut Command) -> Result<()> {
    let mut tally = TestTally::default();
    shell::lines(tests, |line| {
        tally.read(line);
        println!("{line}");
    })?;
    // A test that has another name by now is no success.
    ensure!(tally.good(), "no test ran");
    Ok(())
}
