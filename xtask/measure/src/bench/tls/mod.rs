//! `bench tls`: `linerate load` beside wrk and ab, `linerate serve` beside nginx, all over TLS 1.3 with AES-256-GCM and a P-256
//! certificate.
//!
//! wrk resumes sessions without saying so, ab never does: before the rounds, nginx writes down what each client does.

mod idle;
mod scenario;

use std::net::SocketAddr;
use std::path::Path;

use anyhow::{Context, Result, ensure};
use serde_json::Value;

use self::scenario::{Against, HandshakeRate, SCENARIOS, TlsMeasure, TlsScenario, TlsShape};
use super::contender::{Contender, wrk_script};
use super::figures::of_program;
use super::round::{ProgramRun, line, measured};
use super::scenario::{Figure, Want};
use super::serve::peer::{PeerProcess, ServePeer, Sessions, TLS_LOG};
use super::table::{TablePage, as_table, thousands};
use super::{
    CommonBenchOptions, Tools, WITH_PEERS, alone_on_this_machine, build_released, chosen, circumstances,
};
use super::{elsewhere, typed};
use xtask::shell;

/// Beyond the planned time a client gets this long to end by itself, seconds.
const GRACE_S: f64 = 12.0;
/// A server that is busy for longer is the limit of what it is asked for.
const LIMIT: f64 = 0.95;
/// Share of handshakes that must be of the kind wanted. Reason: the first of each connection is full.
const SHARE: f64 = 0.95;

/// What to measure.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct TlsBenchOptions {
    #[command(flatten)]
    common: CommonBenchOptions,
    /// More flags for every run of `linerate load`.
    #[arg(long, default_value = "")]
    flags: String,
}

/// Measures; `false` when a binding figure was missed.
pub(crate) fn run(options: &TlsBenchOptions) -> Result<bool> {
    let common = &options.common;
    if common.list {
        SCENARIOS.iter().for_each(|s| println!("{:<16} {}", s.name, s.what));
        return Ok(true);
    }
    let scenarios = chosen(&common.only, SCENARIOS, |s| s.name)?;
    if let Some(ended) = elsewhere(|| build_released(&WITH_PEERS))? {
        return Ok(ended);
    }
    let _alone = alone_on_this_machine()?;
    let tools = Tools::new(common, "", false)?;
    let head = format!("`cargo xtask bench tls {}`\n\n{}", typed(common), circumstances(&tools));
    let mut page = TablePage::new(head);
    for s in scenarios {
        println!("\n{}: {}", s.name, s.what);
        match s.sort {
            TlsMeasure::Clients { shape, server, wants } => {
                clients(&tools, options, s, (&shape, server), wants, &mut page)?
            }
            TlsMeasure::Servers { shape, wants } => servers(&tools, options, s, &shape, wants, &mut page)?,
            TlsMeasure::Idle => page.add_alone(s.name, s.what, idle::run(&tools)?),
        }
        page.write(common.out.as_deref())?;
    }
    println!("\n{}", page.markdown());
    Ok(page.all_reached())
}

/// Clients in turns against one server; the figure is the client's processor time.
fn clients(
    t: &Tools,
    o: &TlsBenchOptions,
    s: &TlsScenario,
    (shape, against): (&TlsShape, Against),
    wants: &[Want],
    page: &mut TablePage,
) -> Result<()> {
    let mut who = vec![Contender::Linerate];
    let ab_can = shape.handshakes == HandshakeRate::Full;
    for (peer, can) in [(Contender::Wrk, true), (Contender::Ab, ab_can)] {
        match shell::find(peer.name()) {
            Some(_) if can => who.push(peer),
            Some(_) => {}
            None => page.add_doubt(format!("{}: {} is not installed", s.name, peer.name())),
        }
    }
    if against == Against::Nginx {
        for &client in &who {
            let said = verify(t, o, shape, client)?;
            println!("  {} {said}", client.name());
            page.add_block(format!("{}, as nginx wrote it down: {} {said}.\n", s.name, client.name()));
        }
    }
    let server =
        PeerProcess::start(t, if against == Against::Bare { ServePeer::TlsBare } else { nginx(shape) })?;
    let mut runs = Vec::new();
    for round in 0..t.rounds {
        for i in 0..who.len() {
            let client = who[(i + round) % who.len()];
            let run = one(t, o, shape, &server, client, round, false)
                .unwrap_or_else(|e| ProgramRun::failed(client.name(), round, format!("{e:#}")));
            println!("  {}", line(&run));
            runs.push(run);
        }
    }
    let names: Vec<&str> = who.iter().map(|client| client.name()).collect();
    add(page, s, wants, &names, &runs);
    Ok(())
}

/// Servers in turns, by `linerate load`; the figure is the server's processor time.
fn servers(
    t: &Tools,
    o: &TlsBenchOptions,
    s: &TlsScenario,
    shape: &TlsShape,
    wants: &[Want],
    page: &mut TablePage,
) -> Result<()> {
    let all = [PeerProcess::start(t, ServePeer::TlsLinerate)?, PeerProcess::start(t, nginx(shape))?];
    let mut runs = Vec::new();
    for round in 0..t.rounds {
        for i in 0..all.len() {
            let server = &all[(i + round) % all.len()];
            let run = one(t, o, shape, server, Contender::Linerate, round, true)
                .unwrap_or_else(|e| ProgramRun::failed(server.peer.name(), round, format!("{e:#}")));
            println!("  {}", line(&run));
            runs.push(run);
        }
    }
    add(page, s, wants, &["linerate serve", "nginx"], &runs);
    Ok(())
}

fn add(page: &mut TablePage, s: &TlsScenario, wants: &[Want], names: &[&str], runs: &[ProgramRun]) {
    let row = |name: &&str| {
        let figure = |figure| of_program(runs, name, figure).unwrap_or(0.0);
        let (cpu, rate) = (figure(Figure::Cpu), figure(Figure::Rate));
        let busy = runs.iter().filter(|r| r.program == *name && r.fault.is_none()).map(|r| r.server_busy);
        let busy = busy.fold(0.0, f64::max);
        format!("| {name} | {cpu:.3} | {} | {:.0} % |", thousands(rate), busy * 100.0)
    };
    let head = format!("| {} | CPU us per request | requests/s | server busy, at most |", s.what);
    page.add_block(as_table(&head, &names.iter().map(row).collect::<Vec<_>>()));
    page.add_compared(s.name, s.what, wants, runs);
    let limited: Vec<&str> = runs.iter().filter(|r| r.server_busy > LIMIT).map(|r| r.program).collect();
    if let Some(first) = limited.first().filter(|_| wants.iter().any(|w| w.figure == Figure::Rate)) {
        page.add_doubt(format!(
            "{}: the server was the limit of {} runs, as of {first}",
            s.name,
            limited.len()
        ));
    }
}

fn nginx(shape: &TlsShape) -> ServePeer {
    ServePeer::TlsNginx(if shape.handshakes == HandshakeRate::Full {
        Sessions::Full
    } else {
        Sessions::Resumed
    })
}

/// One run. `of_server`: whose processor time is the figure.
fn one(
    t: &Tools,
    o: &TlsBenchOptions,
    shape: &TlsShape,
    server: &PeerProcess,
    client: Contender,
    round: usize,
    of_server: bool,
) -> Result<ProgramRun> {
    let dir = tempfile::tempdir()?;
    let command = command(t, o, shape, server.address, client, dir.path())?;
    let before = server.used()?;
    let (out, cost) = measured(t, &command, t.seconds + GRACE_S, dir.path())?;
    let server_s = server.used_since(&before)?.cpu_s;
    let said = client.said(&out, dir.path())?;
    if client == Contender::Linerate {
        shook_as_planned(shape, dir.path())?;
    }
    let cpu_s = if of_server { server_s } else { cost.cpu_s };
    Ok(ProgramRun {
        program: if of_server { server.peer.name() } else { client.name() },
        round,
        rate: said.rate,
        answered: said.answered,
        server_requests: None,
        cpu_us: cpu_s * 1e6 / said.answered.max(1) as f64,
        p99_us: None,
        user_kb: None,
        server_busy: server_s / cost.wall_s,
        client_busy: cost.cpu_s / cost.wall_s,
        waited: cost.delay_s / cost.wall_s,
        max_rss_kb: cost.max_rss_kb,
        fault: None,
    })
}

/// What ours counted of its handshakes must be what the scenario is about.
fn shook_as_planned(shape: &TlsShape, dir: &Path) -> Result<()> {
    let text = std::fs::read_to_string(dir.join("outcome.json")).context("no outcome.json")?;
    let tls = serde_json::from_str::<Value>(&text)?["tls"].clone();
    let n = |name: &str| tls[name].as_f64().unwrap_or(0.0);
    let (full, all) = (n("full"), n("full") + n("resumed"));
    let share = match shape.handshakes {
        HandshakeRate::Few => return Ok(()),
        HandshakeRate::Full => full / all,
        HandshakeRate::Resumed => 1.0 - full / all,
    };
    ensure!(share >= SHARE, "of {all} handshakes {full} were full");
    Ok(())
}

/// A short run against an nginx that writes down what it sees: which share was resumed, and what was agreed on.
fn verify(t: &Tools, o: &TlsBenchOptions, shape: &TlsShape, client: Contender) -> Result<String> {
    let logged =
        if shape.handshakes == HandshakeRate::Full { Sessions::FullLogged } else { Sessions::ResumedLogged };
    let server = PeerProcess::start(t, ServePeer::TlsNginx(logged))?;
    let short = Tools { seconds: 1.0, ..t.clone() };
    let dir = tempfile::tempdir()?;
    let command = command(&short, o, shape, server.address, client, dir.path())?;
    measured(&short, &command, short.seconds + GRACE_S, dir.path())?;
    let log = std::fs::read_to_string(server.dir.path().join(TLS_LOG)).context("nginx wrote no log")?;
    let lines: Vec<&str> = log.lines().collect();
    let resumed = lines.iter().filter(|line| line.starts_with("r ")).count();
    let share = resumed as f64 / lines.len().max(1) as f64;
    let agreed = lines.last().map_or("", |line| line.split_once(' ').map_or("", |(_, rest)| rest));
    let good = match shape.handshakes {
        HandshakeRate::Few => true,
        HandshakeRate::Full => share <= 1.0 - SHARE,
        HandshakeRate::Resumed => share >= SHARE,
    };
    ensure!(good, "{}: {:.1} % of requests came in resumed sessions", client.name(), share * 100.0);
    Ok(format!("with {:.1} % of requests in resumed sessions, by {agreed}", share * 100.0))
}

/// Program and arguments.
fn command(
    t: &Tools,
    o: &TlsBenchOptions,
    shape: &TlsShape,
    at: SocketAddr,
    client: Contender,
    dir: &Path,
) -> Result<Vec<String>> {
    let TlsShape { connections, depth, path, handshakes } = *shape;
    let (url, whole) = (format!("https://{at}{path}"), t.seconds.ceil());
    let split = |words: String| words.split_whitespace().map(str::to_owned).collect::<Vec<_>>();
    let is_short = handshakes != HandshakeRate::Few;
    Ok(match client {
        Contender::Wrk if is_short => {
            let mut words = split(format!("wrk -t1 -c{connections} -d{whole} {url}"));
            words.extend(["-H".to_owned(), "Connection: close".to_owned()]);
            words
        }
        Contender::Wrk if depth > 1 => {
            let script = dir.join("pipeline.lua");
            std::fs::write(&script, wrk_script(depth, path))?;
            split(format!("wrk -t1 -c{connections} -d{whole} -s {} {url}", script.display()))
        }
        Contender::Wrk => split(format!("wrk -t1 -c{connections} -d{whole} {url}")),
        Contender::Ab => split(format!("ab -q -t{whole} -n10000000 -c{connections} {url}")),
        _ => {
            let shake = match handshakes {
                HandshakeRate::Few => "",
                HandshakeRate::Full => "--per-connection 1 --tls-resume off",
                HandshakeRate::Resumed => "--per-connection 1",
            };
            split(format!(
                "{} load {url} --insecure --http 1.1 -t 1 -c {connections} -p {depth} -d {}s --quiet {shake} {} --json {}",
                t.linerate.display(),
                t.seconds,
                o.flags,
                dir.join("outcome.json").display()
            ))
        }
    })
}
