//! One transfer over a long path with loss, through a box (docs/NETBOX.md): user-space TCP compared
//! with the kernel's cubic.

use std::io::{BufRead, BufReader, Read};
use std::process::Stdio;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use linerate_netbox::{NamespaceProcess, NetBox};
use serde_json::Value;

use super::scenario::PORT;
use super::scenario::{EPOLL, LOAD_EPOLL, LOAD_XDP, StackScenario, XDP};
use crate::bench::Tools;
use crate::bench::figures::median;
use crate::bench::round::ProgramRun;
use crate::bench::table::as_table;

/// Bytes of each transfer.
const BYTES: usize = 50_000_000;
/// A client's upload is split into this many requests, all in flight at once: a server reads no
/// more of a body than its handler wants.
const POSTS: usize = 250;
/// A client of ours past the kernel; the box leads its whole network to it.
const FROM: &str = "10.99.1.9";
/// Longest time of a transfer, seconds.
const LIMIT_S: u32 = 300;

/// The end that sends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum TransferSender {
    /// The server that is compared, to the kernel.
    Server,
    /// The client that is compared, to the kernel.
    Client,
    /// The kernel, to the server that is compared.
    Kernel,
}

/// The differences between two transfers.
#[derive(Clone, Copy, Debug)]
pub(super) struct Transfer {
    pub(super) sender: TransferSender,
    /// Share of frames lost, each way.
    pub(super) loss: f64,
    /// Share of frames that take a millisecond longer than others, each way.
    pub(super) late: f64,
    /// One way; a round trip takes twice as long.
    pub(super) delay: Duration,
}

/// All rounds. With loss the path is the limit and not the machine, so they run side by side; the same seed for both of a round.
pub(super) fn run_all(t: &Tools, s: &StackScenario, what: Transfer) -> Vec<ProgramRun> {
    let turns = (0..t.rounds).flat_map(|round| s.who.iter().map(move |who| (*who, round)));
    let one = |(who, round): (&'static str, usize)| {
        let run =
            one(t, who, round, what).unwrap_or_else(|e| ProgramRun::failed(who, round, format!("{e:#}")));
        let mbit = run.rate * 8.0 / 1e6;
        println!("  round {} {who:<22} {mbit:.1} Mbit/s {}", round + 1, run.fault.as_deref().unwrap_or(""));
        run
    };
    if what.loss == 0.0 && what.late == 0.0 {
        return turns.map(one).collect();
    }
    std::thread::scope(|scope| {
        let all: Vec<_> = turns.map(|turn| scope.spawn(move || one(turn))).collect();
        // A panic in one was printed already.
        all.into_iter().filter_map(|run| run.join().ok()).collect()
    })
}

/// The table of results.
pub(super) fn table(s: &StackScenario, runs: &[ProgramRun]) -> String {
    let row = |who: &&str| {
        let good = runs.iter().filter(|r| r.program == *who && r.fault.is_none());
        let mut mbit: Vec<f64> = good.map(|r| r.rate * 8.0 / 1e6).collect();
        mbit.sort_by(f64::total_cmp);
        let of = |x: Option<f64>| x.map_or("-".to_owned(), |x| format!("{x:.1}"));
        let all: Vec<String> = mbit.iter().map(|x| format!("{x:.1}")).collect();
        format!("| {} | {} | {} |", named(who), of(median(&mbit)), all.join(" "))
    };
    let rows: Vec<String> = s.who.iter().map(row).collect();
    as_table(&format!("| {} | Mbit/s, median | all rounds |", s.what), &rows)
}

fn named(who: &str) -> String {
    if past_the_kernel(who) { who.to_owned() } else { format!("{who}, cubic") }
}

fn past_the_kernel(who: &str) -> bool {
    who == XDP || who == LOAD_XDP
}

fn one(t: &Tools, who: &'static str, round: usize, what: Transfer) -> Result<ProgramRun> {
    let net = NetBox::builder()
        .delay(what.delay)
        .loss(what.loss)
        .reorder(what.late, Duration::from_millis(1))
        .seed(1 + round as u64)
        .start()?;
    for side in [net.client(), net.server()] {
        let mut c = side.command("ip");
        // By the route, since a namespace may not choose cubic by its settings.
        let route = "route change 10.99.0.0/16 dev net0 proto kernel scope link src IP congctl cubic";
        c.args(route.replace("IP", &side.ip().to_string()).split(' '));
        side.output(c)?;
    }
    let _serving = serve(t, &net, if who == XDP { "xdp --interface net0" } else { "epoll" })?;
    let dir = tempfile::tempdir()?;
    let json = dir.path().join("outcome.json");
    let mut flags = format!("load -t 1 -c 1 --quiet --timeout {LIMIT_S}s --json {}", json.display());
    flags += &match who {
        LOAD_XDP => format!(" --io xdp --interface net0 --from {FROM}"),
        _ => " --io epoll".to_owned(),
    };
    debug_assert!(matches!(who, XDP | EPOLL | LOAD_XDP | LOAD_EPOLL));
    let at = format!("http://{}:{PORT}", net.server().ip());
    if what.sender == TransferSender::Server {
        flags += &format!(" -n 1 {at}/bytes/{BYTES}");
    } else {
        let body = dir.path().join("body");
        std::fs::write(&body, vec![b'x'; BYTES / POSTS])?;
        flags += &format!(" -n {POSTS} -p {POSTS} -X POST --body @{} {at}/status/200", body.display());
    }
    let mut command = net.client().command(&t.linerate);
    command.args(flags.split(' '));
    net.client().output(command)?;
    let outcome: Value = serde_json::from_str(&std::fs::read_to_string(json)?)?;
    let n = |pointer: &str| outcome.pointer(pointer).and_then(Value::as_f64).unwrap_or(0.0);
    let good = outcome.pointer("/status/200").and_then(Value::as_f64);
    ensure!(
        good == Some(n("/requests/sent")),
        "status {}, failures {}",
        outcome["status"],
        outcome["failures"]
    );
    let took_s = n("/latency_us/from_sent/max") / 1e6;
    let report = net.report();
    let missed = report.missed + report.up.overflow + report.down.overflow;
    Ok(ProgramRun {
        program: who,
        round,
        rate: BYTES as f64 / took_s,
        answered: 1,
        server_requests: None,
        cpu_us: 0.0,
        p99_us: None,
        user_kb: None,
        server_busy: 0.0,
        client_busy: 0.0,
        waited: 0.0,
        max_rss_kb: 0,
        fault: (missed > 0).then(|| format!("the box lost {missed} frames more than it should")),
    })
}

/// A server in the box that is ready.
fn serve(t: &Tools, net: &NetBox, io: &str) -> Result<NamespaceProcess> {
    let mut c = net.server().command(&t.linerate);
    let at = net.server().ip();
    c.args(format!("serve --threads 1 --listen {at}:{PORT} --io {io}").split(' '));
    c.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
    let mut serving = net.server().spawn(c)?;
    let mut lines = BufReader::new(serving.stderr.take().context("no pipe")?);
    let mut said = String::new();
    while !said.contains("listening on") {
        ensure!(lines.read_line(&mut said)? > 0, "the server ended: {said}");
    }
    // Keeps the pipe open for later output.
    std::thread::spawn(move || lines.read_to_end(&mut Vec::new()));
    Ok(serving)
}
