//! Runs a program for no longer than it may take.

use std::fs::File;
use std::process::{Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result};

use xtask::shell;

/// The result of a program.
#[derive(Debug)]
pub(crate) struct Ran {
    /// `None`: it was still running when its time was over, and was ended.
    pub(crate) status: Option<ExitStatus>,
    pub(crate) out: String,
    pub(crate) err: String,
    pub(crate) took: Duration,
}

/// Runs it; standard output and error go through files, so that neither can hold it up.
pub(crate) fn run(command: &mut Command, limit: Duration) -> Result<Ran> {
    let dir = tempfile::tempdir()?;
    let (out, err) = (dir.path().join("out"), dir.path().join("err"));
    command.stdin(Stdio::null()).stdout(File::create(&out)?).stderr(File::create(&err)?);
    let begun = Instant::now();
    let mut child = command.spawn().with_context(|| format!("cannot start {}", shell::words(command)))?;
    let mut status = None;
    while status.is_none() && begun.elapsed() < limit {
        std::thread::sleep(Duration::from_millis(2));
        status = child.try_wait()?;
    }
    if status.is_none() {
        child.kill()?;
        child.wait()?;
    }
    let text = |path| std::fs::read(path).map(|bytes| String::from_utf8_lossy(&bytes).into_owned());
    Ok(Ran { status, took: begun.elapsed(), out: text(out)?, err: text(err)? })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_takes_too_long_is_ended() {
        let ran =
            run(Command::new("sh").args(["-c", "echo here; exec sleep 30"]), Duration::from_millis(300));
        let ran = ran.expect("sh is there");
        assert!(ran.status.is_none() && ran.took < Duration::from_secs(20), "{ran:?}");
        assert_eq!(ran.out, "here\n");
    }
}
