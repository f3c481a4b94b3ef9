//! The command without the checks of a debug build, used once as people use it.

use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use serde_json::Value;

use super::results::TestTally;
use super::skips::SkippedTest;
use xtask::nginx::Nginx;
use xtask::shell;

/// What the command is built with (Cargo.toml).
pub(super) const PROFILE: &str = "ci";

/// Longest life of a smoke run: a command that hangs is a failure, not a wait.
const LIMIT: Duration = Duration::from_secs(120);

/// Runs the demo, and a second of load against a real server.
pub(super) fn run(tally: &mut TestTally) -> Result<()> {
    let linerate = shell::target_dir().join(PROFILE).join("linerate");
    println!("{}", limited(Command::new(&linerate).arg("demo"))?);
    if shell::find("nginx").is_none() {
        tally.skipped.insert(SkippedTest::step("smoke run", "load against a real server", "nginx"));
        return Ok(());
    }
    let nginx = Nginx::start(600, "", &[])?;
    for flags in ["-c 8", "-c 8 -p 16", "-c 8 --per-connection 1", "-c 8 -r 1000"] {
        load(&linerate, &nginx, flags)?;
    }
    Ok(())
}

/// One second of load; its accounting must add up, and no request may fail.
fn load(linerate: &Path, nginx: &Nginx, flags: &str) -> Result<()> {
    let mut c = Command::new(linerate);
    c.arg("load").arg(format!("http://{}/", nginx.address)).args(flags.split(' '));
    c.args(["-d", "1s", "--quiet", "--json", "-", "--check", "errors<1%"]);
    let v: Value = serde_json::from_str(&limited(&mut c)?).context("the JSON of linerate load")?;
    let n = |name: &str| v["requests"][name].as_u64().with_context(|| format!("no requests.{name}"));
    ensure!(v["schema"] == "linerate.outcome/1", "the schema is {}", v["schema"]);
    // On a busy machine one that is due last may find no place.
    ensure!(n("failed")? == 0, "{} requests failed", n("failed")?);
    ensure!(n("answered")? > 100, "only {} requests answered in a second", n("answered")?);
    ensure!(
        n("sent")? == n("answered")? + n("failed")? + n("unknown")?,
        "it does not add up: {}",
        v["requests"]
    );
    println!("load {flags}: {} answered", n("answered")?);
    Ok(())
}

/// Runs to the end, which must come in time and be good; what it wrote to standard output.
fn limited(c: &mut Command) -> Result<String> {
    let words = shell::words(c);
    let child = c.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn();
    let child = child.with_context(|| format!("cannot start {words}"))?;
    let (done, ended) = std::sync::mpsc::channel();
    let pid = child.id();
    std::thread::spawn(move || done.send(child.wait_with_output()));
    let Ok(out) = ended.recv_timeout(LIMIT) else {
        let _ = Command::new("kill").args(["-9", &pid.to_string()]).status();
        bail!("{words} did not end within {LIMIT:?}");
    };
    let out = out?;
    ensure!(out.status.success(), "{words}: {}\n{}", out.status, String::from_utf8_lossy(&out.stderr));
    Ok(String::from_utf8_lossy(&out.stdout).into_owned())
}
