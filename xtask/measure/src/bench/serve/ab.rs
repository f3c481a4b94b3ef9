//! The write-up's own measurement: `ab -k -c 1000 -n 200000`, rate and memory.

use anyhow::Result;

use super::peer::{PeerProcess, ServePeer};
use super::round;
use super::scenario::{EPOLL, NETTY, ServeScenario, THREADS, URING, WAITING};
use crate::bench::alone::AloneFinding;
use crate::bench::contender::Contender;
use crate::bench::figures::{median, of_program, ratio};
use crate::bench::round::{ProgramRun, line};
use crate::bench::scenario::Figure;
use crate::bench::server::BenchServer;
use crate::bench::table::{TablePage, as_table, thousands};
use crate::bench::{Tools, round as clients};

const REQUESTS: usize = 200_000;
const CONNECTIONS: usize = 1000;
/// A server that needs longer is measured by what it did within this time, seconds.
const AT_MOST_S: u32 = 8;
const GRACE_S: f64 = 40.0;

const MEMORY_AT_MOST_MB: f64 = 30.0;
/// Highest possible rate of this many connections if each response takes 10 ms, requests/s.
const POSSIBLE: f64 = 100_000.0;
const OF_POSSIBLE: f64 = 0.95;
const TIMES_THREADS: f64 = 6.0;

/// Measures, and says what came of the write-up's claims.
pub(super) fn run(
    t: &Tools,
    s: &ServeScenario,
    path: &'static str,
    peers: &[ServePeer],
    page: &mut TablePage,
) -> Result<()> {
    let servers = super::start(t, peers, page);
    let (mut runs, mut bare) = (Vec::new(), Vec::new());
    for server in &servers {
        // Uncounted: compilers at run time have compiled then.
        let _ = one(t, server, path, 0);
    }
    for round in 0..t.rounds {
        for i in 0..servers.len() {
            let server = &servers[(i + round) % servers.len()];
            let run = one(t, server, path, round)
                .unwrap_or_else(|e| ProgramRun::failed(server.peer.name(), round, format!("{e:#}")));
            println!("  {}", line(&run));
            runs.push(run);
        }
        bare.extend(ceiling(t, path).inspect_err(|e| println!("  the bare server: {e:#}")));
    }
    let mut rows = rows(&servers, &runs);
    let ceiling = bare_row(path, &bare, &mut rows);
    page.add_block(as_table(&head(s), &rows));
    page.add_compared(s.name, s.what, &[], &runs);
    let findings = if path == "/" { hello(&runs) } else { wait(&runs, ceiling) };
    page.add_alone(s.name, s.what, findings);
    Ok(())
}

fn head(s: &ServeScenario) -> String {
    format!("| {} | requests/s | server CPU us per request | most resident memory, MB |", s.what)
}

fn rows(servers: &[PeerProcess], runs: &[ProgramRun]) -> Vec<String> {
    let row = |server: &PeerProcess| {
        let name = server.peer.name();
        let rate = of_program(runs, name, Figure::Rate).map_or_else(|| "-".into(), thousands);
        let cpu = of_program(runs, name, Figure::Cpu).map_or_else(|| "-".into(), |c| format!("{c:.1}"));
        format!("| {name} | {rate} | {cpu} | {:.1} |", memory_mb(runs, name))
    };
    servers.iter().map(row).collect()
}

fn memory_mb(runs: &[ProgramRun], name: &str) -> f64 {
    runs.iter().filter(|r| r.program == name).map(|r| r.max_rss_kb).max().unwrap_or(0) as f64 / 1024.0
}

fn hello(runs: &[ProgramRun]) -> Vec<AloneFinding> {
    let mut all = Vec::new();
    for ours in [EPOLL, URING] {
        let mb = memory_mb(runs, ours);
        let wanted = format!("at most {MEMORY_AT_MOST_MB} MB");
        all.push(AloneFinding::new(
            &format!("memory, {ours}"),
            wanted,
            format!("{mb:.1} MB"),
            mb <= MEMORY_AT_MOST_MB,
        ));
        if let Some(r) = ratio(runs, ours, NETTY, Figure::Rate) {
            let got = format!("{:.2} ({:.2} to {:.2})", r.median, r.least, r.most);
            all.push(AloneFinding::new(
                &format!("rate of {ours} x netty's"),
                "more than 1".into(),
                got,
                r.median > 1.0,
            ));
        }
    }
    all
}

fn wait(runs: &[ProgramRun], ceiling: f64) -> Vec<AloneFinding> {
    let mut all = Vec::new();
    let possible = if ceiling.is_nan() { POSSIBLE } else { ceiling.min(POSSIBLE) };
    for ours in [EPOLL, URING] {
        let Some(rate) = of_program(runs, ours, Figure::Rate) else { continue };
        let wanted = format!(
            "at least {OF_POSSIBLE} x {} (the less of what 1000 connections can do, {}, and what ab asks of a bare server that waits as long)",
            thousands(possible),
            thousands(POSSIBLE)
        );
        let got = format!("{}: {:.2}", thousands(rate), rate / possible);
        all.push(AloneFinding::new(&format!("rate of {ours}"), wanted, got, rate >= possible * OF_POSSIBLE));
        if let Some(r) = ratio(runs, ours, THREADS, Figure::Rate) {
            let got = format!("{:.1} ({:.1} to {:.1})", r.median, r.least, r.most);
            let wanted = format!("at least {TIMES_THREADS}");
            let what = format!("rate of {ours} x that of 16 blocking threads");
            all.push(AloneFinding::new(&what, wanted, got, r.median >= TIMES_THREADS));
        }
    }
    all
}

fn command(address: std::net::SocketAddr, path: &str) -> Vec<String> {
    // -t first: it sets -n, and a later -n overrides that.
    let words = format!("ab -q -k -t {AT_MOST_S} -n {REQUESTS} -c {CONNECTIONS} http://{address}{path}");
    words.split(' ').map(str::to_owned).collect()
}

fn one(t: &Tools, server: &PeerProcess, path: &'static str, round: usize) -> Result<ProgramRun> {
    let dir = tempfile::tempdir()?;
    let command = command(server.address, server.peer.path(path));
    round::run(t, server, Contender::Ab, &command, GRACE_S, dir.path(), round)
}

/// ab's own limit: its rate against the cheapest possible server, which parses nothing and waits as
/// long as the others do. Requests/s, and the server's CPU microseconds per request.
fn ceiling(t: &Tools, path: &str) -> Result<(f64, f64)> {
    let dir = tempfile::tempdir()?;
    let mut options = vec!["--body", "14"];
    if path == WAITING {
        options.extend(["--wait-ms", "10"]);
    }
    let server = BenchServer::bare(t, dir.path(), &options)?;
    let done = clients::measured(t, &command(server.address(), "/"), GRACE_S, dir.path());
    let seen = server.end()?;
    let rate = Contender::Ab.said(&done?.0, dir.path())?.rate;
    println!("  the bare server ({}): {}/s", options.join(" "), thousands(rate));
    Ok((rate, seen.cpu_s * 1e6 / seen.requests.unwrap_or(0).max(1) as f64))
}

/// The bare server's row, and its rate.
fn bare_row(path: &str, bare: &[(f64, f64)], rows: &mut Vec<String>) -> f64 {
    let of = |all: Vec<f64>| median(&all).unwrap_or(f64::NAN);
    let (rate, cpu) = (of(bare.iter().map(|b| b.0).collect()), of(bare.iter().map(|b| b.1).collect()));
    if !bare.is_empty() {
        let waits = if path == WAITING { ", waits 10 ms" } else { "" };
        rows.push(format!(
            "| a bare server (epoll; parses nothing{waits}) | {} | {cpu:.1} | - |",
            thousands(rate)
        ));
    }
    rate
}
