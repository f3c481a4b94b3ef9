//! Paths, and running other programs.

use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::time::Duration;

use anyhow::{Context, Result, bail};

/// The root of the repository.
pub fn root() -> &'static Path {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    here.parent().unwrap_or(here)
}

/// Cargo's output folder.
pub fn target_dir() -> PathBuf {
    match std::env::var_os("CARGO_TARGET_DIR") {
        Some(dir) => root().join(dir),
        None => root().join("target"),
    }
}

/// The cargo that runs us, in the repository's root, with empty standard input.
pub fn cargo() -> Command {
    let mut c = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    c.current_dir(root()).stdin(Stdio::null());
    c
}

/// Any other program, likewise.
pub fn program(name: impl AsRef<std::ffi::OsStr>) -> Command {
    let mut c = Command::new(name);
    c.current_dir(root()).stdin(Stdio::null());
    c
}

/// The path of a program: where tests look, too.
pub use linerate_skips::find;

/// Runs to the end; an error names the command when it fails.
pub fn run(command: &mut Command) -> Result<()> {
    let status = command.status().with_context(|| format!("cannot start {}", words(command)))?;
    if !status.success() {
        bail!("{} failed: {status}", words(command));
    }
    Ok(())
}

/// Runs to the end and returns what it wrote to standard output; its standard error comes with the
/// error.
pub fn output(command: &mut Command) -> Result<String> {
    let out = command.output().with_context(|| format!("cannot start {}", words(command)))?;
    if !out.status.success() {
        bail!(
            "{} failed: {}\n{}",
            words(command),
            out.status,
            String::from_utf8_lossy(&out.stderr).trim_end()
        );
    }
    Ok(String::from_utf8_lossy(&out.stdout).into_owned())
}

/// How long the last lines may take once the program has ended.
const LAST_LINES: Duration = Duration::from_secs(10);

/// Runs to the end and passes each line of standard output to `take` as it comes.
pub fn lines(command: &mut Command, mut take: impl FnMut(&str)) -> Result<()> {
    let child = command.stdout(Stdio::piped()).spawn();
    let mut child = child.with_context(|| format!("cannot start {}", words(command)))?;
    let out = child.stdout.take().context("no pipe")?;
    let (say, lines) = mpsc::channel();
    std::thread::spawn(move || {
        BufReader::new(out).lines().map_while(Result::ok).try_for_each(|l| say.send(l))
    });
    loop {
        match lines.recv_timeout(LAST_LINES) {
            Ok(line) => take(&line),
            // A process that the program has left behind may hold the pipe open.
            Err(RecvTimeoutError::Timeout) if child.try_wait()?.is_none() => {}
            Err(_) => break,
        }
    }
    let status = child.wait()?;
    if !status.success() {
        bail!("{} failed: {status}", words(command));
    }
    Ok(())
}

/// The command as one would type it.
pub fn words(command: &Command) -> String {
    let program = Path::new(command.get_program());
    let name = program.file_name().unwrap_or(program.as_os_str());
    let all = std::iter::once(name).chain(command.get_args());
    all.map(|w| w.to_string_lossy()).collect::<Vec<_>>().join(" ")
}

/// Prints a line that does not get lost between what other programs print.
pub fn heading(text: &str) {
    println!("{text}");
    let _ = std::io::stdout().flush();
}

/// Whether this process may do everything.
pub fn is_root() -> bool {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let uid = status.lines().find_map(|l| l.strip_prefix("Uid:")?.split_whitespace().nth(1));
    uid == Some("0")
}
