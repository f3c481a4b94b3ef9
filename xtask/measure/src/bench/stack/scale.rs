//! Memory of user-space TCP connections, open and closed: `idle100k` and `churn`.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use serde_json::Value;

use super::scenario::XDP;
use super::scenario::{BODY, PORT};
use super::serving::{GRACE_S, start};
use crate::bench::Tools;
use crate::bench::alone::AloneFinding;
use crate::bench::cable::{CLIENT, Cable, FROM, SERVER};
use crate::bench::round::measured;
use crate::bench::server::BenchProcess;
use crate::bench::table::{TablePage, as_table, thousands};

/// Connections open at once.
const OPEN: u64 = 100_000;
/// ... and opened and closed, in rounds.
const CHURN: u64 = 1_000_000;
const ROUND: u64 = 100_000;
/// Memory of an open connection at most, kB: stack and engine together.
const EACH_AT_MOST_KB: f64 = 1.0;
/// Memory may still grow by so much once the table of TIME_WAIT is full.
const GROWTH_AT_MOST_KB: u64 = 1024;
/// Entries of TIME_WAIT at most (docs/STACK.md).
const TIME_WAIT_AT_MOST: u64 = 1 << 18;
/// How long all connections may take to open, and to be over.
const PATIENCE: Duration = Duration::from_secs(45);
/// How long entries of TIME_WAIT are kept, and a little.
const TIME_WAIT: Duration = Duration::from_secs(65);
/// Looks at the statistics are connections, too: before a round, after it, and one whose count was
/// late.
const LOOKS: u64 = 3;
const SETTLES: Duration = Duration::from_millis(700);

/// A scenario of scale.
pub(super) struct ScaleScenario {
    /// The name for `--only`.
    pub(super) name: &'static str,
    /// A description in words.
    pub(super) what: &'static str,
    run: fn(&Tools, &Cable, &mut TablePage) -> Result<Vec<AloneFinding>>,
}

pub(super) const SCALES: &[ScaleScenario] = &[
    ScaleScenario { name: "idle100k", what: "100,000 open connections", run: idle },
    ScaleScenario { name: "churn", what: "1,000,000 connections opened and closed", run: churn },
];

impl ScaleScenario {
    /// Measures it, and writes the result to the page.
    pub(super) fn add(&self, t: &Tools, cable: &Cable, page: &mut TablePage) {
        println!("\n{}: {}", self.name, self.what);
        match (self.run)(t, cable, page) {
            Ok(findings) => page.add_alone(self.name, self.what, findings),
            Err(e) => {
                let error = AloneFinding::new("measured", "yes".into(), format!("no: {e:#}"), false);
                page.add_alone(self.name, self.what, vec![error]);
            }
        }
    }
}

/// Memory of `linerate` that this process is, or has started, kB.
fn resident_kb(child: &Child) -> Result<u64> {
    let mut pid = child.id();
    loop {
        let of = |file: &str| std::fs::read_to_string(format!("/proc/{pid}/{file}"));
        if of("comm")?.trim() == "linerate" {
            let status = of("status")?;
            let line = status.lines().find_map(|l| l.strip_prefix("VmRSS:")?.trim().strip_suffix(" kB"));
            return line.and_then(|l| l.parse().ok()).context("no VmRSS");
        }
        let children = of(&format!("task/{pid}/children"))?;
        pid = children.split(' ').find_map(|c| c.parse().ok()).context("linerate does not run")?;
    }
}

/// The server's counters, read over a separate connection.
fn stats() -> Result<Value> {
    let at = SocketAddr::new(SERVER.1.parse()?, PORT);
    let mut c = TcpStream::connect_timeout(&at, Duration::from_secs(5))?;
    c.set_read_timeout(Some(Duration::from_secs(5)))?;
    write!(c, "GET /stats HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")?;
    let mut answer = String::new();
    c.read_to_string(&mut answer)?;
    let body = answer.split("\r\n\r\n").nth(1).context("no answer")?;
    Ok(serde_json::from_str(body)?)
}

fn number(of: &Value, pointer: &str) -> u64 {
    of.pointer(pointer).and_then(Value::as_u64).unwrap_or(0)
}

/// Waits until the server's counts are as they should be.
fn wait_for(what: &str, patience: Duration, is: impl Fn(&Value) -> bool) -> Result<Value> {
    let begin = Instant::now();
    loop {
        // A server that is busy with all the others may respond too late.
        let last = stats();
        if let Ok(stats) = &last
            && is(stats)
        {
            return last;
        }
        ensure!(begin.elapsed() < patience, "{what} did not come within {patience:?}: {last:?}");
        sleep(Duration::from_millis(100));
    }
}

/// The words of a client from these addresses.
fn load(t: &Tools, from: std::ops::RangeInclusive<u64>, flags: &str) -> Vec<String> {
    let from: Vec<String> = from.map(|n| format!("{FROM}{n}")).collect();
    let words = format!(
        "load -t 1 --quiet --io xdp --interface {} --from {} {flags} http://{}:{PORT}/bytes/{BODY}",
        CLIENT.0,
        from.join(","),
        SERVER.1
    );
    let mut all = vec![t.linerate.display().to_string()];
    all.extend(words.split(' ').map(str::to_owned));
    all
}

/// A client that goes when this goes.
fn client(t: &Tools, dir: &Path, flags: &str) -> Result<BenchProcess> {
    let mut c = Command::new(&t.raw);
    c.args(["run", "--core", &t.cores[1].to_string(), "--limit-s", "60", "--out"]);
    c.arg(dir.join("cost.json")).arg("--").args(load(t, 250..=252, flags));
    let c = c.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    Ok(BenchProcess(c.spawn().context("cannot start the client")?))
}

/// Both ends' memory with `connections` connections open, kB. Some of them carry requests meanwhile, as some
/// always are.
fn open(t: &Tools, cable: &Cable, connections: u64) -> Result<(u64, u64, Value)> {
    let dir = tempfile::tempdir()?;
    let server = start(t, cable, XDP, BODY, dir.path())?;
    let client = client(t, dir.path(), &format!("-c {connections} --rate 1000 -d 50s"))?;
    let stats = wait_for("the last connection", PATIENCE, |s| number(s, "/tcp/connections") >= connections)?;
    sleep(SETTLES);
    Ok((resident_kb(&server.0)?, resident_kb(&client.0)?, stats))
}

fn idle(t: &Tools, cable: &Cable, page: &mut TablePage) -> Result<Vec<AloneFinding>> {
    let (server_few, client_few, _) = open(t, cable, 10)?;
    let (server, client, stats) = open(t, cable, OPEN)?;
    let (mut rows, mut findings) = (Vec::new(), Vec::new());
    for (end, few, many) in [("serve --io xdp", server_few, server), ("load --io xdp", client_few, client)] {
        let each = many.saturating_sub(few) as f64 / OPEN as f64;
        rows.push(format!(
            "| {end} | {:.1} | {:.1} | {each:.2} |",
            few as f64 / 1024.0,
            many as f64 / 1024.0
        ));
        let what = format!("memory of an open connection, {end}");
        let ok = each <= EACH_AT_MOST_KB;
        findings.push(AloneFinding::new(
            &what,
            format!("at most {EACH_AT_MOST_KB} kB"),
            format!("{each:.2} kB"),
            ok,
        ));
    }
    let head = format!(
        "| {} open connections | MB with 10 | MB with all | kB for each (resident; stack, engine and buffers) |",
        thousands(OPEN as f64)
    );
    page.add_block(as_table(&head, &rows));
    println!(
        "  {} connections, {} cookies, {} segments overran",
        stats["tcp"]["connections"], stats["tcp"]["cookies_sent"], stats["tcp"]["overrun"]
    );
    Ok(findings)
}

/// Rounds of short connections, each from new addresses, so that TIME_WAIT does not interfere.
fn churn(t: &Tools, cable: &Cable, page: &mut TablePage) -> Result<Vec<AloneFinding>> {
    let dir = tempfile::tempdir()?;
    let server = start(t, cable, XDP, BODY, dir.path())?;
    let begin = resident_kb(&server.0)?;
    let (mut rows, mut memory, mut table, mut own) = (Vec::new(), Vec::new(), 0, 0);
    for round in 1..=CHURN / ROUND {
        let before = number(&stats()?, "/tcp/passive_opens");
        let json = dir.path().join("outcome.json");
        let flags = format!("-c 1000 -n {ROUND} --per-connection 1 --json {}", json.display());
        let command = load(t, 2 * round + 8..=2 * round + 9, &flags);
        let (_, cost) = measured(t, &command, 10.0 + GRACE_S, dir.path())?;
        let outcome: Value = serde_json::from_str(&std::fs::read_to_string(json)?)?;
        let counts = ["/requests/answered", "/connections/opened", "/requests/failed"];
        let [answered, opened, failed] = counts.map(|c| number(&outcome, c));
        let stats = stats()?;
        let accepted = number(&stats, "/tcp/passive_opens") - before;
        let same = answered == ROUND && opened == ROUND && (ROUND..=ROUND + LOOKS).contains(&accepted);
        if !same || failed > 0 {
            bail!(
                "{ROUND} asked for: {answered} answered, {failed} failed, {opened} opened, {accepted} accepted"
            );
        }
        table = table.max(number(&stats, "/tcp/time_wait"));
        own = own.max(cost.max_rss_kb);
        let now = resident_kb(&server.0)?;
        memory.push(now);
        let done = round * ROUND;
        println!("  {done}: {now} kB, {} in TIME_WAIT", stats["tcp"]["time_wait"]);
        if [100_000, 300_000, 500_000, CHURN].contains(&done) {
            let waiting = number(&stats, "/tcp/time_wait") as f64;
            let megabytes = |kb: u64| kb as f64 / 1024.0;
            rows.push(format!(
                "| {} | {:.1} | {} | {:.1} |",
                thousands(done as f64),
                megabytes(now),
                thousands(waiting),
                megabytes(cost.max_rss_kb)
            ));
        }
    }
    let head = "| opened and closed | server, MB resident | in TIME_WAIT at the server | client of 100,000, MB at most |";
    page.add_block(as_table(head, &rows));
    sleep(TIME_WAIT);
    let left = stats()?;
    let [open, waiting] = ["/tcp/connections", "/tcp/time_wait"].map(|c| number(&left, c));
    let growth = memory[memory.len() - 1].saturating_sub(memory[memory.len() / 2]);
    println!("  it began with {begin} kB");
    Ok(vec![
        AloneFinding::new(
            "memory from 600,000 to 1,000,000",
            format!("at most {GROWTH_AT_MOST_KB} kB more"),
            format!("{growth} kB"),
            growth <= GROWTH_AT_MOST_KB,
        ),
        AloneFinding::new(
            "entries in TIME_WAIT",
            format!("at most {TIME_WAIT_AT_MOST}"),
            table.to_string(),
            table <= TIME_WAIT_AT_MOST,
        ),
        AloneFinding::new("counts of both ends", "the same in each round".into(), "the same".into(), true),
        // The one that looked is one.
        AloneFinding::new(
            "left over a minute later",
            "no connection, none in TIME_WAIT".into(),
            format!("{}, {waiting}", open.saturating_sub(1)),
            open <= 1 && waiting == 0,
        ),
    ])
}
