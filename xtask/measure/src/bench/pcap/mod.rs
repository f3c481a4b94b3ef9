//! `bench pcap`: `linerate explain --pcap` in paired runs with tshark, over a generated capture:
//! the table of docs/EXPLAIN-PASSIVE.md.

mod synthesis;

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};

use xtask::shell;

/// What to measure.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct PcapBenchOptions {
    /// Megabytes of the capture that is made (in a temporary folder, which goes afterwards).
    #[arg(long, default_value_t = 200, value_parser = clap::value_parser!(u64).range(1..=20_000))]
    mb: u64,
    /// Connections in it that are open at the same time.
    #[arg(long, default_value_t = 64, value_parser = clap::value_parser!(u64).range(1..=1_000_000))]
    at_once: u64,
    /// Rounds; each runs both once.
    #[arg(long, default_value_t = 3)]
    rounds: usize,
    /// Leave tshark out: speed and memory of a long capture alone.
    #[arg(long)]
    without_tshark: bool,
    /// Seconds that tshark may take for one reading of it; then it is ended, and that is its figure.
    #[arg(long, default_value_t = 200, value_parser = clap::value_parser!(u64).range(1..=3600))]
    tshark_seconds: u64,
    /// Measure with this capture instead.
    #[arg(long, value_name = "FILE")]
    file: Option<PathBuf>,
}

/// Time and memory of a run.
#[derive(Clone, Copy, Debug)]
struct PcapCost {
    time: Duration,
    /// Most memory it had at once, as far as seen every few milliseconds, kB.
    memory_kb: u64,
    requests: u64,
    /// It did not come to its end.
    ended_early: bool,
}

/// Speed we hold ourselves to, times tshark's.
const AT_LEAST: f64 = 20.0;

/// Far more than the longest capture takes us.
const OURS_AT_MOST: Duration = Duration::from_secs(600);

/// Measures; `false` when a figure was missed.
pub(crate) fn run(options: &PcapBenchOptions) -> Result<bool> {
    ensure!(options.rounds > 0, "at least one round");
    shell::run(shell::cargo().args(["build", "--release", "--quiet", "-p", "linerate-cli"]))?;
    let folder = tempfile::tempdir()?;
    let (file, packets) = match &options.file {
        Some(file) => (file.clone(), None),
        None => {
            let file = folder.path().join("calls.pcap");
            let packets = synthesis::write(&file, options.mb * 1_000_000, options.at_once)?;
            (file, Some(packets))
        }
    };
    let size = std::fs::metadata(&file).with_context(|| format!("{} cannot be read", file.display()))?.len();
    let packets = packets.map_or(String::new(), |n| format!(", {n} packets"));
    println!("capture: {:.0} MB{packets}; {}", size as f64 / 1e6, super::machine());
    let with_tshark = !options.without_tshark && shell::find("tshark").is_some();
    if !with_tshark && !options.without_tshark {
        println!("tshark is not installed: left out");
    }
    // Both read it from memory.
    std::io::copy(&mut std::fs::File::open(&file)?, &mut std::io::sink())?;
    let (mut ours, mut theirs) = (Vec::new(), Vec::new());
    for round in 0..options.rounds {
        let mut one = |is_ours: bool| -> Result<()> {
            if is_ours {
                ours.push(linerate(&file)?);
            } else if with_tshark {
                theirs.push(tshark(&file, Duration::from_secs(options.tshark_seconds))?);
            }
            Ok(())
        };
        one(round % 2 == 0)?;
        one(round % 2 == 1)?;
    }
    println!("\n| program | time, median | MB/s | memory | requests seen |\n| --- | --- | --- | --- | --- |");
    row("linerate explain --pcap", &ours, size);
    if !theirs.is_empty() {
        row("tshark -q -z expert -z http,tree", &theirs, size);
        let ratio = median(&theirs).as_secs_f64() / median(&ours).as_secs_f64();
        let more = if theirs.iter().any(|t| t.ended_early) { "more than " } else { "" };
        println!("\n{more}{ratio:.1} x tshark's speed (wanted: {AT_LEAST})");
        return Ok(ratio >= AT_LEAST);
    }
    Ok(true)
}

fn median(took: &[PcapCost]) -> Duration {
    let mut times: Vec<Duration> = took.iter().map(|t| t.time).collect();
    times.sort_unstable();
    times[times.len() / 2]
}

fn row(name: &str, took: &[PcapCost], size: u64) {
    let time = median(took);
    let memory = took.iter().map(|t| t.memory_kb).max().unwrap_or(0);
    let early = took.iter().any(|t| t.ended_early);
    let (over, under) = if early { (">", "<") } else { ("", "") };
    println!(
        "| `{name}` | {over}{:.2} s | {under}{:.0} | {over}{:.0} MB | {} |",
        time.as_secs_f64(),
        size as f64 / 1e6 / time.as_secs_f64(),
        memory as f64 / 1e3,
        if early { "ended before".to_owned() } else { took[0].requests.to_string() }
    );
}

fn linerate(file: &Path) -> Result<PcapCost> {
    let mut command = Command::new(shell::target_dir().join("release/linerate"));
    command.args(["explain", "--json", "-", "--pcap"]).arg(file);
    let (took, out) = timed(&mut command, OURS_AT_MOST)?;
    ensure!(!took.ended_early, "linerate took more than {OURS_AT_MOST:?}");
    let requests = figure(&out, "\"requests\":");
    Ok(PcapCost { requests: requests.context("no requests in linerate's document")?, ..took })
}

/// All sequence analysis and all HTTP, without output per packet and without name lookups.
fn tshark(file: &Path, at_most: Duration) -> Result<PcapCost> {
    let mut command = Command::new("tshark");
    command.args(["-n", "-q", "-z", "expert", "-z", "http,tree", "-r"]).arg(file);
    let (took, out) = timed(&mut command, at_most)?;
    Ok(PcapCost { requests: figure(&out, "HTTP Request Packets").unwrap_or(0), ..took })
}

/// The first number after `name`.
fn figure(text: &str, name: &str) -> Option<u64> {
    let rest = &text[text.find(name)? + name.len()..];
    let rest = rest.trim_start();
    rest[..rest.find(|c: char| !c.is_ascii_digit()).unwrap_or(rest.len())].parse().ok()
}

fn timed(command: &mut Command, at_most: Duration) -> Result<(PcapCost, String)> {
    let begun = Instant::now();
    let mut child = command
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .context("cannot start")?;
    let mut out = child.stdout.take().context("piped")?;
    let reader = std::thread::spawn(move || {
        let mut text = String::new();
        std::io::Read::read_to_string(&mut out, &mut text).map(|_| text)
    });
    let status = format!("/proc/{}/status", child.id());
    let (mut memory_kb, mut ended_early) = (0, false);
    while child.try_wait()?.is_none() {
        let now = std::fs::read_to_string(&status).unwrap_or_default();
        memory_kb = figure(&now, "VmHWM:").unwrap_or(0).max(memory_kb);
        if begun.elapsed() > at_most {
            // It may have ended just now; then there is no process to end.
            let _ = child.kill();
            ended_early = true;
        }
        std::thread::sleep(Duration::from_millis(2));
    }
    let time = begun.elapsed();
    let text = reader.join().map_err(|_| anyhow::anyhow!("reading failed"))??;
    Ok((PcapCost { time, memory_kb, requests: 0, ended_early }, text))
}
