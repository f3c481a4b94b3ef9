//! `bench truth`: servers that misbehave and count what they did; what `linerate load`, wrk, k6, hey and h2load report of each. The tables
//! of docs/LOAD-TRUTH.md.

mod bounded;
mod contents;
mod judge;
mod page;
mod peers;
mod rows;
mod secure;
mod streams;
mod way;
mod ways;

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use judge::{LoadReport, TruthRow, TruthServerCounts};
use linerate_broken::Broken;
use way::{Over, TruthWay};

use xtask::shell;

/// How long a run of `load` may take.
const LIMIT: Duration = Duration::from_secs(40);

/// How long a server may wait for its first request before its steps begin. Reason: some programs take a second to start.
const FIRST_REQUEST: Duration = Duration::from_secs(10);

/// Time in which a server's threads may still count after the client has its last response.
const SETTLING: Duration = Duration::from_millis(50);

/// What to measure.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct TruthBenchOptions {
    /// Only these ways (comma-separated; --list names them); without --results the page stays as it is.
    #[arg(long, value_delimiter = ',')]
    only: Vec<String>,
    /// A file that keeps the rows (JSON): those that are measured now replace theirs, the others stay.
    #[arg(long, value_name = "FILE")]
    results: Option<PathBuf>,
    /// Write the tables to this file as well.
    #[arg(long, value_name = "FILE")]
    out: Option<PathBuf>,
    /// Leave wrk, k6, hey and h2load out; the page stays as it is.
    #[arg(long)]
    alone: bool,
    /// The command to measure (default: the release build, built from here).
    #[arg(long, value_name = "PATH")]
    linerate: Option<PathBuf>,
    /// More flags for `load` (for instance "--io epoll").
    #[arg(long, default_value = "", allow_hyphen_values = true)]
    flags: String,
    /// Name the ways and stop.
    #[arg(long)]
    list: bool,
}

/// Measures; `false` when a row is outside the goal.
pub(crate) fn run(options: &TruthBenchOptions) -> Result<bool> {
    if options.list {
        rows::all().for_each(|w| println!("{:<20} {}", w.name, w.what));
        return Ok(true);
    }
    let chosen = chosen(&options.only)?;
    let linerate = match &options.linerate {
        Some(path) => path.clone(),
        None => build()?,
    };
    let _alone = super::alone_on_this_machine()?;
    let missing: Vec<String> = peers::ALL.iter().filter_map(|p| p.missing()).collect();
    missing.iter().for_each(|words| println!("{words}: its column says so"));
    let mut rows = options.results.as_deref().map_or(Ok(Vec::new()), kept)?;
    for way in chosen {
        println!("{}: {}", way.name, way.what);
        let mut row = load(way, &linerate, &options.flags)?;
        for peer in peers::ALL {
            let cell = if options.alone { "-".into() } else { beside(way, peer)? };
            row.peers.push(cell);
        }
        println!("  {} | {:?} | {:?} | {:?}", row.named, row.share, row.down_s, row.peers);
        row.faults.iter().for_each(|fault| println!("  OUTSIDE: {fault}"));
        rows.retain(|r| r.way != row.way);
        rows.push(row);
        if let Some(path) = &options.results {
            std::fs::write(path, serde_json::to_vec_pretty(&rows)?)
                .with_context(|| path.display().to_string())?;
        }
    }
    // In the order of the page; a row of a removed way is dropped.
    let rows: Vec<TruthRow> =
        rows::all().filter_map(|w| rows.iter().find(|r| r.way == w.name).cloned()).collect();
    let tables = tables(&rows, &missing);
    println!("\n{tables}");
    if let Some(path) = &options.out {
        std::fs::write(path, &tables).with_context(|| path.display().to_string())?;
    }
    if rows.len() == rows::all().count() && !options.alone && options.flags.is_empty() {
        page::write(&tables)?;
    }
    Ok(rows.iter().all(|row| row.faults.is_empty()))
}

/// The rows in a file; none if there is no file.
fn kept(path: &Path) -> Result<Vec<TruthRow>> {
    match std::fs::read(path) {
        Ok(bytes) => serde_json::from_slice(&bytes).with_context(|| path.display().to_string()),
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => Ok(Vec::new()),
        Err(e) => Err(e).with_context(|| path.display().to_string()),
    }
}

fn tables(rows: &[TruthRow], missing: &[String]) -> String {
    let missing: String = missing.iter().map(|words| format!(" {words}.")).collect();
    format!("On {}.{missing}\n\n{}", super::machine(), page::markdown(rows))
}

fn chosen(only: &[String]) -> Result<Vec<&'static TruthWay>> {
    if let Some(unknown) = only.iter().find(|n| !rows::all().any(|w| w.name == **n)) {
        bail!("no way {unknown}; --list names them");
    }
    Ok(rows::all().filter(|w| only.is_empty() || only.iter().any(|n| n == w.name)).collect())
}

fn build() -> Result<PathBuf> {
    shell::run(shell::cargo().args(["build", "--release", "--quiet", "--bin", "linerate"]))?;
    Ok(shell::target_dir().join("release/linerate"))
}

/// A fresh server, whose steps proceed during `run`; `secure`: one of HTTP/2 is to speak TLS.
fn meanwhile<T>(way: &TruthWay, secure: bool, run: impl FnOnce(&Broken) -> Result<T>) -> Result<(Broken, T)> {
    let server = match way.over {
        Over::Http2(server) => server(secure),
        Over::Http1 | Over::Tls => (way.server)(),
    };
    let done = std::thread::scope(|scope| {
        scope.spawn(|| {
            let begun = Instant::now();
            while server.counts().requests == 0 && !way.steps.is_empty() {
                if begun.elapsed() > FIRST_REQUEST {
                    return;
                }
                std::thread::sleep(Duration::from_millis(1));
            }
            let begun = Instant::now();
            for (ms, what) in way.steps {
                std::thread::sleep(Duration::from_millis(*ms).saturating_sub(begun.elapsed()));
                what(&server);
            }
        });
        run(&server)
    })?;
    Ok((server, done))
}

/// One run of ours, judged.
fn load(way: &TruthWay, linerate: &Path, flags: &str) -> Result<TruthRow> {
    let dir = tempfile::tempdir()?;
    let json = dir.path().join("outcome.json");
    let (server, ran) = meanwhile(way, false, |server| {
        let mut command = shell::program(linerate);
        command.arg("load").args(way.flags()).args(flags.split_whitespace());
        command.args(["--quiet", "--json"]).arg(&json);
        command.arg(format!("{}{{{{seq}}}}", server.url())).env("NO_COLOR", "1");
        bounded::run(&mut command, LIMIT)
    })?;
    std::thread::sleep(SETTLING);
    ensure!(ran.status.is_some(), "{}: load did not end in {} s", way.name, LIMIT.as_secs());
    let text = std::fs::read_to_string(&json).with_context(|| format!("{}: {}", way.name, ran.err))?;
    let mut document: serde_json::Value = serde_json::from_str(&text)?;
    document["took_s"] = ran.took.as_secs_f64().into();
    let words = format!("{} {}", ran.err, ran.out).split_whitespace().collect::<Vec<_>>().join(" ");
    Ok(judge::judge(way, &LoadReport { document, words }, &counted(way, &server)))
}

/// The server's counts, up to the planned end of the run.
fn counted(way: &TruthWay, server: &Broken) -> TruthServerCounts {
    let (counts, numbers) = (server.counts(), server.numbers());
    let planned = Duration::from_secs(u64::from(way.shape.time().unwrap_or(0)));
    let down = server.first_connection().map_or(Duration::ZERO, |at| server.downtime_until(at + planned));
    TruthServerCounts {
        asked: numbers.asked,
        served: numbers.served,
        requests: counts.requests,
        broken: counts.broken,
        down_s: down.as_secs_f64(),
    }
}

/// The same by another program.
fn beside(way: &TruthWay, peer: peers::LoadGenerator) -> Result<String> {
    let Some(secure) = peer.speaks(way.over) else { return Ok("cannot".into()) };
    Ok(meanwhile(way, secure, |server| peer.run(&way.shape, way.over, &server.url()))?.1)
}
