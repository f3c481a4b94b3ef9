//! `soak serve`: a real `linerate serve` under all kinds of clients at once for minutes. No
//! response may be lost or wrong, memory and descriptors must return to where they were, and the
//! end must be clean.

mod kinds;
mod server;
mod wire;

use std::net::SocketAddr;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};

use self::kinds::{ClientKind, Did, KINDS, SoakTurn};
use self::server::{QuietLevel, SoakServer};
use self::wire::{SoakConnection, get, pattern};
use xtask::shell;
use xtask::table::as_table;

/// What to run.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct ServeSoakOptions {
    /// How long the load lasts, in four parts.
    #[arg(long, default_value_t = 180)]
    seconds: u64,
    /// What moves the bytes: epoll, uring, or both, one after the other.
    #[arg(long, value_delimiter = ',', default_value = "epoll,uring")]
    io: Vec<String>,
}

/// Bytes of the requested file.
const FILE: usize = 300_000;
/// How often the configuration is changed and read again.
const RELOAD_EVERY: Duration = Duration::from_secs(2);
/// How long a quiet server gets to close what is open and give back what it held.
const SETTLES: Duration = Duration::from_secs(15);
/// Parts of a run; the server gets quiet after each.
const PARTS: u32 = 4;
/// Allowed growth of memory from the largest value of the earlier parts to the last part. Reason:
/// the allocator keeps pages, and how many depends on how many clients were busy at once. A leak of
/// a hundred bytes per connection is ten times as much after a minute.
const GROWTH_KB: u64 = 8 << 10;
/// Faults that are printed.
const SHOWN: usize = 10;

/// Runs it; `false` when something was lost, wrong, or not given back.
pub(crate) fn run(options: &ServeSoakOptions) -> Result<bool> {
    let mut build = shell::cargo();
    shell::run(build.args(["build", "--release", "--quiet", "-p", "linerate-cli"]))?;
    let mut good = true;
    for io in &options.io {
        println!("linerate serve --io {io}, {} s", options.seconds);
        good &= one(options, io)?;
    }
    Ok(good)
}

fn one(options: &ServeSoakOptions, io: &str) -> Result<bool> {
    let server = SoakServer::start(io, FILE)?;
    let faults = SoakFaults::default();
    let duration = Duration::from_secs(options.seconds.max(4));
    // Memory kept for reuse depends on how many clients were busy at once, so it grows ever more
    // slowly. A leak grows evenly.
    let fresh = server.quiet(SETTLES, usize::MAX)?;
    let mut levels = Vec::new();
    let mut done = Vec::new();
    for _ in 0..PARTS {
        add(&mut done, load(&server, duration / PARTS, &faults));
        levels.push(server.quiet(SETTLES, fresh.descriptors)?);
    }
    let drained = drain(server, &faults);
    print(&done, &levels, drained);
    faults.print();
    let Some((after, before)) = levels.split_last() else { return Ok(false) };
    let before_kb = before.iter().map(|l| l.memory_kb).max().unwrap_or(0);
    let grown = after.memory_kb.saturating_sub(before_kb);
    let mut good = faults.none();
    for (what, wrong) in [
        (format!("memory is {grown} kB more than after any part before"), grown > GROWTH_KB),
        (
            format!("clients have {} answers, more than the server has counted requests", answers(&done)),
            answers(&done) > after.requests,
        ),
    ] {
        if wrong {
            println!("wrong: {what}");
            good = false;
        }
    }
    println!("{}\n", if good { "nothing lost, nothing wrong, all given back" } else { "FAILED" });
    Ok(good)
}

fn answers(done: &[(ClientKind, Did)]) -> u64 {
    done.iter().map(|(_, did)| did.answers).sum()
}

/// The faults, the first of them in words.
#[derive(Debug, Default)]
struct SoakFaults {
    count: AtomicU64,
    first: Mutex<Vec<String>>,
}

impl SoakFaults {
    fn add(&self, what: String) {
        self.count.fetch_add(1, Relaxed);
        let mut first = self.first.lock().unwrap_or_else(PoisonError::into_inner);
        if first.len() < SHOWN {
            first.push(what);
        }
    }

    fn none(&self) -> bool {
        self.count.load(Relaxed) == 0
    }

    fn print(&self) {
        for fault in self.first.lock().unwrap_or_else(PoisonError::into_inner).iter() {
            println!("wrong: {fault}");
        }
        let more = self.count.load(Relaxed).saturating_sub(SHOWN as u64);
        if more > 0 {
            println!("wrong: {more} more");
        }
    }
}

/// All kinds at once, and the configuration read again meanwhile.
fn load(server: &SoakServer, duration: Duration, faults: &SoakFaults) -> Vec<(ClientKind, Did)> {
    let until = Instant::now() + duration;
    let at = server.address;
    std::thread::scope(|scope| {
        let mut running = Vec::new();
        for &kind in KINDS {
            for thread in 0..kind.threads {
                running.push((kind, scope.spawn(move || repeat(kind, at, thread, until, faults))));
            }
        }
        let mut reloads = 0;
        while Instant::now() < until {
            std::thread::sleep(RELOAD_EVERY.min(until.saturating_duration_since(Instant::now())));
            reloads += 1;
            if let Err(e) = server.reload(reloads) {
                faults.add(format!("SIGHUP: {e:#}"));
            }
        }
        let mut all = Vec::new();
        for (kind, thread) in running {
            let did = thread.join().unwrap_or_else(|_| {
                faults.add(format!("{}: the client panicked", kind.name));
                Did::default()
            });
            add(&mut all, vec![(kind, did)]);
        }
        all
    })
}

/// Sums by kind.
fn add(all: &mut Vec<(ClientKind, Did)>, more: Vec<(ClientKind, Did)>) {
    for (kind, did) in more {
        match all.iter_mut().find(|(k, _)| k.name == kind.name) {
            Some((_, sum)) => {
                sum.connections += did.connections;
                sum.answers += did.answers;
            }
            None => all.push((kind, did)),
        }
    }
}

fn repeat(kind: ClientKind, at: SocketAddr, thread: usize, until: Instant, faults: &SoakFaults) -> Did {
    let mut did = Did::default();
    let mut number = thread;
    while Instant::now() < until {
        match (kind.call)(&SoakTurn { at, number }) {
            Ok(answers) => did.answers += answers,
            Err(e) => faults.add(format!("{}: {e:#}", kind.name)),
        }
        did.connections += kind.connections;
        number += kind.threads;
    }
    did
}

/// SIGTERM while clients pipeline: each gets complete responses up to the last one, which announces
/// the close. Returns the number of these responses.
fn drain(server: SoakServer, faults: &SoakFaults) -> u64 {
    const CLIENTS: usize = 16;
    const FIRST: Duration = Duration::from_millis(500);
    let at = server.address;
    std::thread::scope(|scope| {
        let clients: Vec<_> = (0..CLIENTS).map(|_| scope.spawn(move || until_told(at))).collect();
        std::thread::sleep(FIRST);
        if let Err(e) = server.end() {
            faults.add(format!("the end: {e:#}"));
        }
        let mut answers = 0;
        for client in clients {
            match client.join() {
                Ok(Ok(n)) => answers += n,
                Ok(Err(e)) => faults.add(format!("while it ends: {e:#}")),
                Err(_) => faults.add("while it ends: the client panicked".into()),
            }
        }
        answers
    })
}

/// Sends requests until a response announces the close.
fn until_told(at: SocketAddr) -> Result<u64> {
    let mut client = SoakConnection::connect(at)?;
    let mut answers = 0;
    loop {
        client.send(get("/bytes/500").repeat(16))?;
        for _ in 0..16 {
            let answer = client.must()?;
            ensure!(answer.status == 200 && answer.body == pattern(500), "a wrong answer: {}", answer.head);
            answers += 1;
            if answer.closes() {
                client.ends(false)?;
                return Ok(answers);
            }
        }
    }
}

fn print(done: &[(ClientKind, Did)], levels: &[QuietLevel], drained: u64) {
    let rows: Vec<String> = done
        .iter()
        .map(|(kind, did)| format!("| {} | {} | {} |", kind.name, did.connections, did.answers))
        .chain([format!("| pipelined x 16 while SIGTERM comes | 16 | {drained} |")])
        .collect();
    println!("{}", as_table("| clients | connections | answers, whole and right |", &rows));
    let row = |what: &str, of: fn(&QuietLevel) -> u64| {
        let cells: Vec<String> = levels.iter().map(|level| of(level).to_string()).collect();
        format!("| {what} | {} |", cells.join(" | "))
    };
    let rows = [
        row("resident memory, kB", |l| l.memory_kb),
        row("open descriptors", |l| l.descriptors as u64),
        row("requests it has counted", |l| l.requests),
    ];
    let parts: String = (1..=levels.len()).map(|n| format!(" after part {n} |")).collect();
    println!("{}", as_table(&format!("| the server, when it is quiet |{parts}"), &rows));
}
