//! Measurements without a rival: memory, the exact rate, and the latencies of a server that stalls.

use std::net::SocketAddr;
use std::path::Path;

use anyhow::{Context, Result};
use serde::Serialize;
use serde_json::Value;

use super::Tools;
use super::figures::median;
use super::round::{ProgramCost, measured};
use super::scenario::{LoadMeasure, LoadScenario};
use super::server::{BenchServer, ServerCounts};

const MEMORY_SECONDS: f64 = 30.0;
const MEMORY_AT_MOST_MB: f64 = 20.0;
/// From the second third of the run to the last: what allocators round up, not what leaks.
const GROWTH_AT_MOST_MB: f64 = 0.5;

const RATE: f64 = 50_000.0;
const RATE_ERROR_AT_MOST: f64 = 0.001;
const LATENESS_AT_MOST_US: f64 = 1000.0;

/// Slow enough that what waited during the stall drains in no time, so that the truth is plain
/// arithmetic.
const STALL_RATE: f64 = 1000.0;
const STALL_SECONDS: f64 = 20.0;
const STALL_MS: u64 = 1000;
const STALL_EVERY_MS: u64 = 10_000;
const TRUTH_WITHIN: f64 = 0.02;

/// One line of what was found.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct AloneFinding {
    /// The figure's name.
    pub(crate) what: String,
    /// The required value.
    pub(crate) wanted: String,
    /// The measured value.
    pub(crate) got: String,
    /// Whether that is good.
    pub(crate) ok: bool,
}

impl AloneFinding {
    /// Prints it, too.
    pub(crate) fn new(what: &str, wanted: String, got: String, ok: bool) -> AloneFinding {
        println!("  {what}: {got} (wanted: {wanted})");
        AloneFinding { what: what.into(), wanted, got, ok }
    }
}

/// Measures one of these scenarios.
pub(crate) fn run(t: &Tools, s: &LoadScenario) -> Result<Vec<AloneFinding>> {
    match s.sort {
        LoadMeasure::Memory => memory(t),
        LoadMeasure::Rate => rate(t),
        LoadMeasure::Stall => stall(t),
        LoadMeasure::InTurns { .. } => Ok(Vec::new()),
    }
}

struct AloneOutcome {
    json: Value,
    cost: ProgramCost,
    seen: ServerCounts,
}

/// One run of `linerate load` with these flags against a bare server with those.
fn load(t: &Tools, flags: &str, seconds: f64, server_options: &[&str]) -> Result<AloneOutcome> {
    let dir = tempfile::tempdir()?;
    let server = BenchServer::bare(t, dir.path(), server_options)?;
    let done =
        measured(t, &command(t, flags, seconds, server.address(), dir.path()), seconds + 15.0, dir.path());
    let seen = server.end()?;
    let (_, cost) = done?;
    let text = std::fs::read_to_string(dir.path().join("outcome.json")).context("no JSON was written")?;
    Ok(AloneOutcome { json: serde_json::from_str(&text)?, cost, seen })
}

fn command(t: &Tools, flags: &str, seconds: f64, at: SocketAddr, dir: &Path) -> Vec<String> {
    let json = dir.join("outcome.json");
    let all = format!("load http://{at}/ -t 1 -d {seconds}s --quiet {flags} {}", t.flags);
    let mut words = vec![t.linerate.display().to_string()];
    words.extend(all.split_whitespace().map(str::to_owned));
    words.extend(["--json".into(), json.display().to_string()]);
    words
}

fn number(v: &Value, pointer: &str) -> Result<f64> {
    v.pointer(pointer).and_then(Value::as_f64).with_context(|| format!("no number {pointer} in the JSON"))
}

fn memory(t: &Tools) -> Result<Vec<AloneFinding>> {
    let o = load(t, "-c 1000", MEMORY_SECONDS, &[])?;
    let most_in = |from: f64, to: f64| {
        let part = o.cost.rss_kb.iter().filter(|(at, _)| (from..to).contains(at));
        part.map(|&(_, kb)| kb).max().unwrap_or(0) as f64 / 1024.0
    };
    let third = MEMORY_SECONDS / 3.0;
    let growth = most_in(2.0 * third, MEMORY_SECONDS) - most_in(third, 2.0 * third);
    let max = o.cost.max_rss_kb as f64 / 1024.0;
    Ok(vec![
        AloneFinding::new(
            "largest resident memory",
            format!("at most {MEMORY_AT_MOST_MB} MB"),
            format!("{max:.1} MB"),
            max <= MEMORY_AT_MOST_MB,
        ),
        AloneFinding::new(
            "growth from the second ten seconds to the third",
            format!("at most {GROWTH_AT_MOST_MB} MB"),
            format!("{growth:.2} MB"),
            growth <= GROWTH_AT_MOST_MB,
        ),
    ])
}

fn rate(t: &Tools) -> Result<Vec<AloneFinding>> {
    let seconds = t.seconds.max(5.0);
    let (mut errors, mut lateness, mut unsent, mut waited) = (Vec::new(), Vec::new(), 0.0, Vec::new());
    for _ in 0..t.rounds {
        let o = load(t, &format!("-c 64 -r {RATE}"), seconds, &[])?;
        errors.push((number(&o.json, "/rate_rps")? / RATE - 1.0).abs());
        lateness.push(number(&o.json, "/client/lateness_us_p99")?);
        unsent += number(&o.json, "/requests/unsent")?;
        waited.push(o.cost.delay_s / o.cost.wall_s * 100.0);
    }
    let middle = |of: &[f64]| median(of).unwrap_or(f64::NAN);
    let (error, late, waited) = (middle(&errors), middle(&lateness), middle(&waited));
    Ok(vec![
        AloneFinding::new(
            "error of the rate",
            format!("at most {} %", RATE_ERROR_AT_MOST * 100.0),
            format!("{:.4} %", error * 100.0),
            error <= RATE_ERROR_AT_MOST,
        ),
        AloneFinding::new(
            "lateness of sending, p99",
            format!("below {LATENESS_AT_MOST_US} us on an idle machine"),
            format!("{late:.0} us (the client waited {waited:.1} % of the time for its core)"),
            late < LATENESS_AT_MOST_US,
        ),
        AloneFinding::new("due and never sent", "0".into(), format!("{unsent}"), unsent == 0.0),
    ])
}

fn stall(t: &Tools) -> Result<Vec<AloneFinding>> {
    let (lasts, every) = (STALL_MS.to_string(), STALL_EVERY_MS.to_string());
    let flags = format!("-c 64 -r {STALL_RATE}");
    let o = load(t, &flags, STALL_SECONDS, &["--stall-ms", &lasts, "--stall-every-ms", &every])?;
    let truth = truth_us(&o.seen);
    let mut all = Vec::new();
    for (name, share) in [("p95", 0.95), ("p99", 0.99), ("p999", 0.999), ("max", 1.0)] {
        let expected = percentile(&truth, share);
        let due = number(&o.json, &format!("/latency_us/from_due/{name}"))?;
        let sent = number(&o.json, &format!("/latency_us/from_sent/{name}"))?;
        let off = due / expected - 1.0;
        all.push(AloneFinding::new(
            &format!("{name} from due"),
            format!("{:.1} ms (arithmetic) within {} %", expected / 1e3, TRUTH_WITHIN * 100.0),
            format!(
                "{:.1} ms, {:+.2} % (from sent it would have been {:.1} ms)",
                due / 1e3,
                off * 100.0,
                sent / 1e3
            ),
            off.abs() <= TRUTH_WITHIN,
        ));
    }
    Ok(all)
}

/// The latency from due of every request, sorted, microseconds: a request that is due while the server stalls
/// waits for its end; all others get their response at once.
fn truth_us(seen: &ServerCounts) -> Vec<f64> {
    let spacing = 1e6 / STALL_RATE;
    let due = (0..(STALL_SECONDS * STALL_RATE) as u64).map(|i| seen.first_us as f64 + i as f64 * spacing);
    let waits = |at: f64| {
        let stall = seen.stalls_us.iter().find(|&&(from, to)| at >= from as f64 && at < to as f64);
        stall.map_or(0.0, |&(_, to)| to as f64 - at)
    };
    let mut all: Vec<f64> = due.map(waits).collect();
    all.sort_by(f64::total_cmp);
    all
}

fn percentile(sorted: &[f64], share: f64) -> f64 {
    let rank = (sorted.len() as f64 * share).ceil() as usize;
    sorted.get(rank.max(1) - 1).copied().unwrap_or(f64::NAN)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_arithmetic_of_a_stall() {
        let seen = ServerCounts {
            stalls_us: vec![(4_500_000, 5_500_000), (14_500_000, 15_500_000)],
            ..ServerCounts::default()
        };
        let all = truth_us(&seen);
        assert_eq!(all.len(), 20_000);
        assert_eq!(all.iter().filter(|&&l| l > 0.0).count(), 2000);
        // One request in ten waits, evenly between zero and a second.
        assert_eq!(percentile(&all, 0.95), 500_000.0);
        assert_eq!(percentile(&all, 0.99), 900_000.0);
        assert_eq!(percentile(&all, 1.0), 1_000_000.0);
        assert_eq!(percentile(&all, 0.5), 0.0);
    }
}
