//! `run`: one measured program in a session of its own, pinned, favored by the scheduler, with a
//! hard time limit, and its cost. Every program uses this wrapper, so that all are measured alike.

use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{Command, ExitStatus};
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use linerate_bench_raw::sys;
use serde_json::json;

use crate::args::Args;

/// Time between two samples of the program. Rare enough to cost its core nothing.
const LOOK_EVERY: Duration = Duration::from_millis(100);

#[derive(Default)]
struct WatchedChild {
    run_delay_ns: u64,
    rss_kb: Vec<(f64, u64)>,
    cpu_s: Vec<(f64, f64)>,
}

/// Runs what follows `--`; writes its cost as JSON to `--out`. Uses a session of its own and raises
/// its autogroup's priority where permitted.
pub(crate) fn run(words: impl Iterator<Item = String>) -> Result<()> {
    let words: Vec<String> = words.collect();
    let cut = words.iter().position(|w| w == "--").context("-- PROGRAM [ARGS] is missing")?;
    let a = Args::parse(words[..cut].iter().cloned(), &["core", "limit-s", "out"])?;
    let (program, arguments) = words[cut + 1..].split_first().context("no program after --")?;
    let core: Option<usize> = a.maybe("core")?;
    let limit = Duration::from_secs_f64(a.or("limit-s", 60.0)?);
    let out: String = a.maybe("out")?.context("--out FILE is needed")?;

    let mut command = Command::new(program);
    command.args(arguments);
    // SAFETY: between fork and exec it only makes system calls: no allocation, no lock.
    unsafe { command.pre_exec(move || prepare(core)) };
    let (start, start_us) = (Instant::now(), sys::now_us());
    let mut child = command.spawn().with_context(|| format!("cannot start {program}"))?;
    let pid = child.id();
    let (mut watched, mut timed_out) = (WatchedChild::default(), false);
    let (status, usage) = loop {
        look(pid, start, &mut watched);
        if let Some(end) = sys::reap(pid)? {
            break end;
        }
        if start.elapsed() > limit && !timed_out {
            timed_out = true;
            child.kill().context("cannot end the program")?;
        }
        std::thread::sleep(LOOK_EVERY);
    };
    let status = ExitStatus::from_raw(status);
    let report = json!({
        "start_us": start_us, "exit": status.code(), "signal": status.signal(), "timed_out": timed_out,
        "wall_s": start.elapsed().as_secs_f64(),
        "user_s": sys::seconds(usage.ru_utime), "sys_s": sys::seconds(usage.ru_stime),
        "max_rss_kb": usage.ru_maxrss, "run_delay_s": watched.run_delay_ns as f64 / 1e9, "rss_kb": watched.rss_kb,
        "cpu_over_time_s": watched.cpu_s,
    });
    std::fs::write(&out, report.to_string()).with_context(|| format!("cannot write {out}"))
}

/// Runs in the child, before exec.
fn prepare(core: Option<usize>) -> std::io::Result<()> {
    sys::new_session();
    sys::die_with_parent();
    sys::favour();
    core.map_or(Ok(()), sys::pin)
}

/// Adds up how long the program's threads were runnable without a CPU, and records its CPU time and memory.
fn look(pid: u32, start: Instant, into: &mut WatchedChild) {
    let at = start.elapsed();
    if let Ok(cpu) = sys::cpu_seconds_of(pid) {
        into.cpu_s.push((at.as_secs_f64(), cpu));
    }
    let Ok(tasks) = std::fs::read_dir(format!("/proc/{pid}/task")) else { return };
    let delays = tasks.flatten().filter_map(|t| {
        let text = std::fs::read_to_string(t.path().join("schedstat")).ok()?;
        text.split_whitespace().nth(1)?.parse::<u64>().ok()
    });
    // Threads that have ended are missing from the list, so the sum must never shrink.
    into.run_delay_ns = into.run_delay_ns.max(delays.sum());
    let Ok(status) = std::fs::read_to_string(format!("/proc/{pid}/status")) else { return };
    let rss = status.lines().find_map(|l| l.strip_prefix("VmRSS:")?.trim().strip_suffix(" kB")?.parse().ok());
    into.rss_kb.extend(rss.map(|kb| (at.as_secs_f64(), kb)));
}
