//! `bench serve`: `linerate serve` beside other servers, each on one core, by `linerate load` and wrk on the other.

mod ab;
mod idle;
mod page;
pub(crate) mod peer;
mod round;
mod scenario;

use anyhow::{Context, Result, ensure};
use peer::{PeerProcess, ServePeer};
use scenario::{SCENARIOS, ServeMeasure, ServeScenario};

use super::contender::Contender;
use super::table::TablePage;
use super::{CommonBenchOptions, Tools, chosen, circumstances, elsewhere, typed};
use xtask::shell;

/// What to measure of servers.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct ServeBenchOptions {
    #[command(flatten)]
    common: CommonBenchOptions,
    /// Only these servers (comma-separated; by their names in the table).
    #[arg(long, value_delimiter = ',')]
    servers: Vec<String>,
    /// Clients: linerate, wrk.
    #[arg(long, value_delimiter = ',', default_value = "linerate,wrk")]
    clients: Vec<String>,
    /// More flags for every run of `linerate serve`.
    #[arg(long, default_value = "")]
    flags: String,
}

/// Measures; `false` when a binding figure was missed.
pub(crate) fn run(options: &ServeBenchOptions) -> Result<bool> {
    let common = &options.common;
    if common.list {
        SCENARIOS.iter().for_each(|s| println!("{:<14} {}", s.name, s.what));
        return Ok(true);
    }
    let scenarios = chosen(&common.only, SCENARIOS, |s| s.name)?;
    let clients = clients(options)?;
    if let Some(ended) = elsewhere(peer::build)? {
        return Ok(ended);
    }
    let tools = Tools::new(common, &options.flags, false)?;
    let mut page = TablePage::new(head(options, &tools));
    for s in scenarios {
        println!("\n{}: {}", s.name, s.what);
        let peers = peers(options, s, &mut page)?;
        match s.sort {
            ServeMeasure::InTurns { shape, wants } => {
                let servers = start(&tools, &peers, &mut page);
                let series = round::run_all(&tools, &shape, &servers, &clients);
                page::add(&mut page, s, wants, &shape, &servers, &series);
            }
            ServeMeasure::Idle => {
                let findings = idle::run(&tools, &peers, &mut page)?;
                page.add_alone(s.name, s.what, findings);
            }
            ServeMeasure::Ab(path) => ab::run(&tools, s, path, &peers, &mut page)?,
        }
        // Written after each scenario, so that an interrupted run loses no measurement.
        page.write(common.out.as_deref())?;
    }
    println!("\n{}", page.markdown());
    Ok(page.all_reached())
}

fn clients(options: &ServeBenchOptions) -> Result<Vec<Contender>> {
    let known = |name: &String| match name.as_str() {
        "linerate" => Ok(Contender::Linerate),
        "wrk" => Ok(Contender::Wrk),
        _ => anyhow::bail!("unknown client {name}: linerate, wrk"),
    };
    let mut all = options.clients.iter().map(known).collect::<Result<Vec<_>>>()?;
    if shell::find("wrk").is_none() {
        println!("wrk is not installed: left out");
        all.retain(|c| *c != Contender::Wrk);
    }
    ensure!(!all.is_empty(), "no client is left");
    Ok(all)
}

/// The participants; prints the names of missing ones.
fn peers(options: &ServeBenchOptions, s: &ServeScenario, page: &mut TablePage) -> Result<Vec<ServePeer>> {
    let mut all = Vec::new();
    for &name in s.who {
        let peer = ServePeer::of(name).with_context(|| format!("no server {name}"))?;
        if !options.servers.is_empty() && !options.servers.iter().any(|n| n == name) {
            continue;
        }
        match peer.missing() {
            None => all.push(peer),
            Some(why) => {
                println!("  {name} is left out: {why}");
                page.add_doubt(format!("{}: {name} is left out: {why}", s.name));
            }
        }
    }
    Ok(all)
}

/// Starts all of them; who does not start is named.
fn start(t: &Tools, peers: &[ServePeer], page: &mut TablePage) -> Vec<PeerProcess> {
    let mut all = Vec::new();
    for &peer in peers {
        match PeerProcess::start(t, peer) {
            Ok(running) => all.push(running),
            Err(e) => {
                println!("  {} does not start: {e:#}", peer.name());
                page.add_doubt(format!("{} does not start: {e:#}", peer.name()));
            }
        }
    }
    all
}

/// The command and the machine.
fn head(o: &ServeBenchOptions, t: &Tools) -> String {
    let servers =
        if o.servers.is_empty() { String::new() } else { format!(" --servers {:?}", o.servers.join(",")) };
    let flags = if o.flags.is_empty() { String::new() } else { format!(" --flags={:?}", o.flags) };
    format!(
        "`cargo xtask bench serve {} --clients {}{servers}{flags}`\n\n{}",
        typed(&o.common),
        o.clients.join(","),
        circumstances(t)
    )
}
