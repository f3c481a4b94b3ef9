//! Builds that run beside test programs, with what these leave of the processors.

use std::collections::VecDeque;
use std::process::{Child, Command};

use anyhow::{Context, Result};
use tempfile::NamedTempFile;

use xtask::shell::{self, heading};

/// Builds, one after the other. Their output is shown when one fails.
pub(super) struct BackgroundBuilds {
    running: Option<(String, Child, NamedTempFile)>,
    waiting: VecDeque<Command>,
}

impl BackgroundBuilds {
    /// Starts the first of these builds, if there is one.
    pub(super) fn start(builds: Vec<Command>) -> Result<Option<BackgroundBuilds>> {
        let mut beside = BackgroundBuilds { running: None, waiting: builds.into() };
        Ok(beside.run()?.then_some(beside))
    }

    /// Starts the next build when one has ended; whether any runs. A failure ends them all: the step
    /// that needs them builds again, and fails.
    pub(super) fn run(&mut self) -> Result<bool> {
        if let Some((words, child, output)) = &mut self.running {
            let Some(status) = child.try_wait()? else { return Ok(true) };
            heading(&format!("     {words}: {status}"));
            if !status.success() {
                heading(std::fs::read_to_string(output.path())?.trim_end());
                self.waiting.clear();
            }
            self.running = None;
        }
        let Some(build) = self.waiting.pop_front() else { return Ok(false) };
        let output = NamedTempFile::new()?;
        let mut build = yielding(&build);
        let words = shell::words(&build);
        heading(&format!("     beside test programs: {words}"));
        build.stdout(output.reopen()?).stderr(output.reopen()?);
        let child = build.spawn().with_context(|| format!("cannot start {words}"))?;
        self.running = Some((words, child, output));
        Ok(true)
    }

    /// The command that runs.
    pub(super) fn words(&self) -> String {
        self.running.as_ref().map(|(words, ..)| words.clone()).unwrap_or_default()
    }
}

impl Drop for BackgroundBuilds {
    /// Only a run that breaks off leaves one running.
    fn drop(&mut self) {
        if let Some((_, child, _)) = &mut self.running {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

/// The same command with the least priority: a test that waits for a moment gets the processor.
fn yielding(command: &Command) -> Command {
    let mut nice = shell::program("nice");
    nice.args(["-n", "19"]).arg(command.get_program()).args(command.get_args());
    nice
}

#[cfg(test)]
mod tests {
    use super::*;

    fn all(builds: &[&str]) -> Vec<bool> {
        let command = |script: &&str| {
            let mut sh = shell::program("sh");
            sh.args(["-c", script]);
            sh
        };
        let Some(mut beside) =
            BackgroundBuilds::start(builds.iter().map(command).collect()).expect("started")
        else {
            return Vec::new();
        };
        let mut seen = Vec::new();
        loop {
            let runs = beside.run().expect("asked");
            if seen.last() != Some(&runs) {
                seen.push(runs);
            }
            if !runs {
                return seen;
            }
            std::thread::sleep(std::time::Duration::from_millis(1));
        }
    }

    #[test]
    fn builds_run_in_turn_and_none_behind_a_failed_one() {
        let folder = tempfile::tempdir().expect("a folder");
        let file = |name: &str| folder.path().join(name);
        let touch = |name: &str| format!("test \"$(nice)\" = 19 && touch {}", file(name).display());
        assert_eq!(all(&[]), [false; 0]);
        assert_eq!(all(&[&touch("a"), &touch("b")]), [true, false]);
        assert!(file("a").exists() && file("b").exists());
        // It may have ended before anyone asks.
        assert_eq!(all(&["exit 1", &touch("c")]).last(), Some(&false));
        assert!(!file("c").exists());
    }
}
