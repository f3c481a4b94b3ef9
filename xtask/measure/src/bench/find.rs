//! `bench find`: `linerate load --find` against servers of known capacity on loopback: the table of
//! docs/COMPARE.md.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use serde_json::Value;

use xtask::shell;

/// What to measure.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct FindBenchOptions {
    /// Searches of each server.
    #[arg(long, default_value_t = 3)]
    rounds: usize,
    /// The linerate to measure; without it, a release build is made.
    #[arg(long, value_name = "FILE")]
    linerate: Option<PathBuf>,
}

/// How far from the truth a search may end.
const WITHIN: f64 = 0.1;

/// A server that works on requests in lanes, in their order.
struct LaneServer {
    name: &'static str,
    lanes: usize,
    service: Duration,
    /// Requests per second.
    capacity: f64,
}

/// A constant rate up to the capacity finds an idle lane for each request; beyond it the queue grows
/// until all are late.
const SERVERS: [LaneServer; 3] = [
    LaneServer { name: "1 lane of 4 ms", lanes: 1, service: Duration::from_millis(4), capacity: 250.0 },
    LaneServer { name: "4 lanes of 5 ms", lanes: 4, service: Duration::from_millis(5), capacity: 800.0 },
    LaneServer { name: "16 lanes of 8 ms", lanes: 16, service: Duration::from_millis(8), capacity: 2_000.0 },
];

/// Searches; `false` when one ended too far from the truth.
pub(crate) fn run(options: &FindBenchOptions) -> Result<bool> {
    ensure!(options.rounds > 0, "at least one round");
    let linerate = match &options.linerate {
        Some(file) => file.clone(),
        None => {
            shell::run(shell::cargo().args(["build", "--release", "--quiet", "-p", "linerate-cli"]))?;
            shell::target_dir().join("release/linerate")
        }
    };
    let mut reached = true;
    println!("| server | capacity, requests/s | found | off by |\n| --- | --- | --- | --- |");
    for known in &SERVERS {
        let url = serve(known)?;
        let found = (0..options.rounds).map(|_| search(&linerate, &url)).collect::<Result<Vec<_>>>()?;
        let off = found.iter().map(|rate| rate / known.capacity - 1.0);
        reached &= off.clone().all(|off| off.abs() <= WITHIN);
        let list = |all: Vec<String>| all.join(", ");
        println!(
            "| {} | {} | {} | {} |",
            known.name,
            known.capacity,
            list(found.iter().map(|rate| format!("{rate:.0}")).collect()),
            list(off.map(|off| format!("{:+.1} %", off * 100.0)).collect())
        );
    }
    Ok(reached)
}

fn search(linerate: &Path, url: &str) -> Result<f64> {
    let mut command = Command::new(linerate);
    command.args(["load", "-q", "--find", "p99<100ms", "--json", "-", url]);
    let document: Value = serde_json::from_str(&shell::output(&mut command)?)?;
    document["find"]["rate_rps"].as_f64().with_context(|| format!("no rate: {}", document["find"]))
}

/// Serves until the process ends. What a lane does is a time at which it is free again, so a thread
/// that wakes up late makes one response late and takes nothing from the capacity.
fn serve(known: &LaneServer) -> Result<String> {
    let listener = TcpListener::bind("127.0.0.1:0")?;
    let url = format!("http://{}/", listener.local_addr()?);
    let (free, service) = (Arc::new(Mutex::new(vec![Instant::now(); known.lanes])), known.service);
    thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            let free = Arc::clone(&free);
            // A connection ends as its client wants it.
            thread::spawn(move || respond(stream, &free, service));
        }
    });
    Ok(url)
}

fn respond(mut stream: TcpStream, free: &Mutex<Vec<Instant>>, service: Duration) -> std::io::Result<()> {
    stream.set_nodelay(true)?;
    let (mut seen, mut buffer) = (Vec::new(), [0; 4096]);
    loop {
        let n = stream.read(&mut buffer)?;
        if n == 0 {
            return Ok(());
        }
        seen.extend_from_slice(&buffer[..n]);
        if !seen.ends_with(b"\r\n\r\n") {
            continue;
        }
        seen.clear();
        let done = {
            let mut free = free.lock().unwrap_or_else(PoisonError::into_inner);
            let now = Instant::now();
            let done = free.iter().min().map_or(now, |first| (*first).max(now)) + service;
            if let Some(first) = free.iter_mut().min() {
                *first = done;
            }
            done
        };
        thread::sleep(done.saturating_duration_since(Instant::now()));
        stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")?;
    }
}
