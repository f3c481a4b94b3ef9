//! `bench h3`: `linerate load` beside shb, oha, h2load and a raw sender, `linerate serve` beside nginx, all over HTTP/3.

pub(crate) mod nginx;
mod scenario;

use std::net::SocketAddr;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result, ensure};

use self::scenario::{
    H2LOAD, LOAD, NGINX, OHA, QUIET_AIM, QUIET_MOST, QuicMeasure, QuicScenario, QuicShape, RAW, SCENARIOS,
    SERVE, SHB,
};
use super::alone::AloneFinding;
use super::contender::Contender;
use super::figures::{median, of_program};
use super::round::{ProgramRun, in_turns, measured};
use super::scenario::Figure;
use super::serve::peer::{PeerProcess, ServePeer};
use super::table::{TablePage, as_table, thousands};
use super::{CommonBenchOptions, Tools, alone_on_this_machine, build_with, chosen, circumstances};
use super::{elsewhere, typed};
use xtask::shell;

/// Beyond the planned time a client gets this long to end by itself, seconds.
const GRACE_S: f64 = 12.0;
/// A server that is busy for longer is the limit of what it is asked for, and the run does not count.
const LIMIT: f64 = 0.9;
/// How long connections stay quiet, seconds. Reason: the last handshakes are done after one.
const QUIET_S: f64 = 4.0;
/// What the servers' row asks for.
const KIBIBYTE: &str = "bytes/1024";

/// What to measure.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct QuicBenchOptions {
    #[command(flatten)]
    common: CommonBenchOptions,
    /// Build and measure with this profile; figures of "dev" say nothing.
    #[arg(long, default_value = "release")]
    profile: String,
    /// More flags for every run of `linerate load`.
    #[arg(long, default_value = "")]
    flags: String,
    /// More flags for every run of `linerate serve`.
    #[arg(long, default_value = "")]
    serve_flags: String,
}

/// Measures; `false` when a binding figure was missed.
pub(crate) fn run(options: &QuicBenchOptions) -> Result<bool> {
    let common = &options.common;
    if common.list {
        SCENARIOS.iter().for_each(|s| println!("{:<12} {}", s.name, s.what));
        return Ok(true);
    }
    let scenarios = chosen(&common.only, SCENARIOS, |s| s.name)?;
    if let Some(ended) = elsewhere(|| build(options))? {
        return Ok(ended);
    }
    let _alone = alone_on_this_machine()?;
    let tools = Tools::built(&options.profile, common, &options.serve_flags, false)?;
    let mut page = TablePage::new(head(options, &tools));
    for s in scenarios {
        println!("\n{}: {}", s.name, s.what);
        match s.sort {
            QuicMeasure::Load(shape) => clients(&tools, options, s, shape, &mut page)?,
            QuicMeasure::Serve(shape) => servers(&tools, options, s, shape, &mut page),
            QuicMeasure::Quiet(connections) => quiet(&tools, s, connections, &mut page)?,
        }
        // Written after each scenario, so that an interrupted run loses no measurement.
        page.write(common.out.as_deref())?;
    }
    println!("\n{}", page.markdown());
    Ok(page.all_reached())
}

fn build(options: &QuicBenchOptions) -> Result<()> {
    build_with(&options.profile, &["linerate-cli", "linerate-bench-raw"])?;
    if let Err(e) = nginx::build() {
        println!("nginx with HTTP/3 cannot be built: {e:#}");
    }
    Ok(())
}

/// The command and the machine.
fn head(o: &QuicBenchOptions, t: &Tools) -> String {
    let flags = |name: &str, flags: &str, usual: &str| match flags {
        flags if flags == usual => String::new(),
        flags => format!(" {name}={flags:?}"),
    };
    let all = flags("--profile", &o.profile, "release")
        + &flags("--flags", &o.flags, "")
        + &flags("--serve-flags", &o.serve_flags, "");
    format!("`cargo xtask bench h3 {}{all}`\n\n{}", typed(&o.common), circumstances(t))
}

/// Whether a client is installed and speaks HTTP/3.
fn can(client: &str) -> Result<(), String> {
    if [LOAD, RAW].contains(&client) {
        return Ok(());
    }
    let program = shell::find(client).ok_or("is not installed")?;
    let (asked, said) = match client {
        H2LOAD => ("--version", "nghttp3"),
        OHA => ("--help", "HTTP/3"),
        _ => ("--help", "--http3"),
    };
    match shell::output(shell::program(program).arg(asked)) {
        Ok(text) if text.contains(said) || text.contains("--http-version") => Ok(()),
        _ => Err("was built without HTTP/3".to_owned()),
    }
}

/// Program and arguments of a client.
fn command(
    client: &str,
    t: &Tools,
    o: &QuicBenchOptions,
    QuicShape { connections, depth }: QuicShape,
    (at, path): (SocketAddr, &str),
    dir: &Path,
) -> Vec<String> {
    let (url, seconds) = (format!("https://{at}/{path}"), t.seconds);
    let words = match client {
        RAW => format!(
            "{} h3 --target {at} --connections {connections} --depth {depth} --seconds {seconds}",
            t.raw.display()
        ),
        SHB => format!("shb -j -t 1 --http3 -p {depth} -z {seconds}s -c {connections} {url}"),
        OHA => format!(
            "oha --no-tui --http-version 3 --insecure -p {depth} -z {}s -c {connections} {url}",
            seconds.ceil()
        ),
        H2LOAD => format!("h2load --alpn-list=h3 -t1 -c{connections} -m{depth} -D{} {url}", seconds.ceil()),
        _ => format!(
            "{} load {url} --http 3 --insecure -t 1 -c {connections} -p {depth} -d {seconds}s --quiet {} --json {}",
            t.linerate.display(),
            o.flags,
            dir.join("outcome.json").display()
        ),
    };
    words.split_whitespace().map(str::to_owned).collect()
}

/// The program whose words a client speaks.
fn speaks_as(client: &str) -> Contender {
    match client {
        RAW => Contender::RawEpoll,
        SHB => Contender::Shb,
        OHA => Contender::Oha,
        H2LOAD => Contender::H2load,
        _ => Contender::Linerate,
    }
}

/// Clients in turns, each against a fresh server; the figure is the client's processor time.
fn clients(
    t: &Tools,
    o: &QuicBenchOptions,
    s: &QuicScenario,
    shape: QuicShape,
    page: &mut TablePage,
) -> Result<()> {
    let mut who = Vec::new();
    for client in [LOAD, SHB, OHA, H2LOAD, RAW] {
        match can(client) {
            Ok(()) => who.push(client),
            Err(why) => page.add_doubt(format!("{}: {client} {why}", s.name)),
        }
    }
    let runs = in_turns(t.rounds, &who, |client, round| {
        let server = PeerProcess::start(t, ServePeer::H3Linerate)?;
        let run = one(t, o, &server, client, shape, "")?;
        let busy = run.server_busy;
        let fault = (busy >= LIMIT).then(|| {
            let (rate, cpu) = (run.rate, run.cpu_us);
            format!("the server's core was {:.0} % busy ({rate:.0}/s, {cpu:.3} us)", busy * 100.0)
        });
        Ok(ProgramRun { program: client, round, fault, ..run })
    });
    add(page, s, &who, &runs, "client");
    Ok(())
}

/// Servers in turns, by `linerate load`; the figure is the server's processor time.
fn servers(t: &Tools, o: &QuicBenchOptions, s: &QuicScenario, shape: QuicShape, page: &mut TablePage) {
    let who = [SERVE, NGINX];
    let runs = in_turns(t.rounds, &who, |name, round| {
        let peer = if name == SERVE { ServePeer::H3Linerate } else { ServePeer::H3Nginx };
        let server = PeerProcess::start(t, peer)?;
        let run = one(t, o, &server, LOAD, shape, KIBIBYTE)?;
        // The share of the server's core is its time in the whole run.
        let cpu_us = run.server_busy * run.cpu_us / run.client_busy;
        Ok(ProgramRun { program: name, round, cpu_us, ..run })
    });
    add(page, s, &who, &runs, "server");
}

/// One run; the processor time is the client's.
fn one(
    t: &Tools,
    o: &QuicBenchOptions,
    server: &PeerProcess,
    client: &'static str,
    shape: QuicShape,
    path: &str,
) -> Result<ProgramRun> {
    let dir = tempfile::tempdir()?;
    let words = command(client, t, o, shape, (server.address, path), dir.path());
    let before = server.used()?;
    let (out, cost) = measured(t, &words, t.seconds + GRACE_S, dir.path())?;
    let server_s = server.used_since(&before)?.cpu_s;
    let said = speaks_as(client).said(&out, dir.path())?;
    ensure!(said.answered > 0, "no request was answered");
    Ok(ProgramRun {
        rate: said.rate,
        answered: said.answered,
        cpu_us: cost.cpu_s * 1e6 / said.answered as f64,
        server_busy: server_s / cost.wall_s,
        client_busy: cost.cpu_s / cost.wall_s,
        waited: cost.delay_s / cost.wall_s,
        max_rss_kb: cost.max_rss_kb,
        fault: None,
        ..ProgramRun::failed(client, 0, String::new())
    })
}

fn add(page: &mut TablePage, s: &QuicScenario, names: &[&'static str], runs: &[ProgramRun], whose: &str) {
    let row = |name: &&str| {
        let figure = |figure| of_program(runs, name, figure).unwrap_or(0.0);
        let busy = runs.iter().filter(|run| run.program == *name).map(|run| run.server_busy);
        let counted = runs.iter().filter(|run| run.program == *name && run.fault.is_none()).count();
        format!(
            "| {name} | {:.3} | {} | {:.0} % | {counted} |",
            figure(Figure::Cpu),
            thousands(figure(Figure::Rate)),
            busy.fold(0.0, f64::max) * 100.0
        )
    };
    let head = format!(
        "| {} | {whose} CPU us per request | requests/s | server busy, at most | runs that count |",
        s.what
    );
    page.add_block(as_table(&head, &names.iter().map(row).collect::<Vec<_>>()));
    page.add_compared(s.name, s.what, s.wants, runs);
}

/// Memory of the server with so many connections that were opened and say nothing, beyond what it held
/// before.
fn quiet(t: &Tools, s: &QuicScenario, connections: usize, page: &mut TablePage) -> Result<()> {
    let mut all = Vec::new();
    for _ in 0..t.rounds {
        let server = PeerProcess::start(t, ServePeer::H3Linerate)?;
        let dir = tempfile::tempdir()?;
        let words = format!(
            "{} h3 --target {} --connections {connections} --depth 0 --seconds {QUIET_S}",
            t.raw.display(),
            server.address
        );
        let words: Vec<String> = words.split_whitespace().map(str::to_owned).collect();
        let before = server.memory_kb("VmRSS")?;
        let held = std::thread::scope(|scope| {
            let opened = scope.spawn(|| measured(t, &words, QUIET_S + GRACE_S, dir.path()));
            // The most while they are open: buffers of the handshakes may be freed behind them.
            let mut held = 0;
            while !opened.is_finished() {
                held = server.memory_kb("VmRSS")?;
                std::thread::sleep(Duration::from_millis(100));
            }
            opened.join().ok().context("the thread of the connections panicked")??;
            anyhow::Ok(held)
        })?;
        let each = held.saturating_sub(before) as f64 * 1024.0 / connections as f64;
        println!("  {each:.0} bytes a connection ({before} kB before, {held} kB with them)");
        all.push(each);
    }
    let each = median(&all).context("no round")?;
    let wanted = format!("at most {QUIET_MOST:.0} bytes, aim {QUIET_AIM:.0}");
    let finding =
        AloneFinding::new("memory of a quiet connection", wanted, format!("{each:.0}"), each <= QUIET_MOST);
    page.add_alone(s.name, s.what, vec![finding]);
    Ok(())
}
