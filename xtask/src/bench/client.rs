//! `bench client`: the ways of `linerate::client` in turns with hyper-util's client, reqwest and `linerate load`, each on
//! one thread, against the bare server.

use std::net::SocketAddr;
use std::path::Path;

use anyhow::{Context, Result, ensure};
use serde_json::Value;

use super::contender::Contender;
use super::figures::of_program;
use super::round::{Run, line, measured};
use super::scenario::{Figure, Want};
use super::server::Server;
use super::table::{Page, as_table, thousands};
use super::{Common, Tools, alone_on_this_machine, can_have_namespace, chosen, circumstances};
use super::{in_own_namespace, outside, typed};
use crate::shell;

/// Beyond the planned time a client gets this long to end by itself, seconds.
const GRACE_S: f64 = 12.0;

/// What to measure.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct Options {
    #[command(flatten)]
    common: Common,
}

#[derive(Debug)]
struct Scenario {
    name: &'static str,
    what: &'static str,
    in_flight: u32,
    /// Bytes of each response's body.
    body: usize,
    wants: &'static [Want],
}

const SEND: &str = "send";
const SEND_ALL: &str = "send_all";
const COUNTED: &str = "send_counted";
const LOAD: &str = "linerate load";
const HYPER: &str = "hyper-util";
const REQWEST: &str = "reqwest";

/// In the order of the table.
const CLIENTS: [&str; 6] = [SEND, SEND_ALL, COUNTED, LOAD, HYPER, REQWEST];

const fn rate(ours: &'static str, against: &'static str, limit: f64) -> Want {
    Want { figure: Figure::Rate, ours, against, limit, binds: true }
}

const SCENARIOS: &[Scenario] = &[
    Scenario {
        name: "flight100",
        what: "100-byte responses, 100 in flight",
        in_flight: 100,
        body: 100,
        wants: &[
            rate(SEND, HYPER, 5.0),
            rate(SEND, REQWEST, 5.0),
            rate(SEND_ALL, HYPER, 10.0),
            rate(SEND_ALL, REQWEST, 10.0),
            rate(COUNTED, LOAD, 0.8),
        ],
    },
    Scenario {
        name: "flight1",
        what: "100-byte responses, one at a time",
        in_flight: 1,
        body: 100,
        wants: &[rate(SEND, HYPER, 1.0), rate(SEND, REQWEST, 1.0)],
    },
    Scenario {
        name: "body16k",
        what: "16 KiB responses, 100 in flight",
        in_flight: 100,
        body: 16 << 10,
        wants: &[rate(SEND, HYPER, 1.0), rate(SEND, REQWEST, 1.0)],
    },
];

/// Measures; `false` when a figure was missed.
pub(crate) fn run(options: &Options) -> Result<bool> {
    let common = &options.common;
    if common.list {
        SCENARIOS.iter().for_each(|s| println!("{:<16} {}", s.name, s.what));
        return Ok(true);
    }
    let scenarios = chosen(&common.only, SCENARIOS, |s| s.name)?;
    if outside() {
        let packages = ["linerate-cli", "linerate-bench-raw", "linerate-bench-peers"];
        let mut cargo = shell::cargo();
        cargo.args(["build", "--release", "--quiet"]);
        shell::run(cargo.args(packages.iter().flat_map(|package| ["-p", package])))?;
        if can_have_namespace() {
            return in_own_namespace();
        }
    }
    let _alone = alone_on_this_machine()?;
    let tools = Tools::new(common, "", false)?;
    let mut page =
        Page::new(format!("`cargo xtask bench client {}`\n\n{}", typed(common), circumstances(&tools)));
    for s in scenarios {
        println!("\n{}: {}", s.name, s.what);
        scenario(&tools, s, &mut page);
        page.write(common.out.as_deref())?;
    }
    println!("\n{}", page.markdown());
    Ok(page.all_reached())
}

fn scenario(t: &Tools, s: &Scenario, page: &mut Page) {
    let mut runs = Vec::new();
    for round in 0..t.rounds {
        for i in 0..CLIENTS.len() {
            let client = CLIENTS[(i + round) % CLIENTS.len()];
            let run =
                one(t, s, client, round).unwrap_or_else(|e| Run::failed(client, round, format!("{e:#}")));
            println!("  {}", line(&run));
            runs.push(run);
        }
    }
    let row = |name: &&str| {
        let figure = |figure| of_program(&runs, name, figure).unwrap_or(0.0);
        let (cpu, rate) = (figure(Figure::Cpu), figure(Figure::Rate));
        format!("| {name} | {cpu:.3} | {} |", thousands(rate))
    };
    let head = format!("| {} | CPU us per request | requests/s |", s.what);
    page.add_block(as_table(&head, &CLIENTS.iter().map(row).collect::<Vec<_>>()));
    page.add_compared(s.name, s.what, s.wants, &runs);
}

fn one(t: &Tools, s: &Scenario, client: &'static str, round: usize) -> Result<Run> {
    let dir = tempfile::tempdir()?;
    let server = Server::bare(t, dir.path(), &["--body", &s.body.to_string()])?;
    let command = command(t, s, client, server.address(), dir.path());
    let done = measured(t, &command, t.seconds + GRACE_S, dir.path());
    let seen = server.end()?;
    let (out, cost) = done?;
    let (rate, answered) = said(client, &out, dir.path())?;
    let counted = seen.requests.unwrap_or(0);
    ensure!(counted >= answered, "says {answered} answered, the server counted {counted}");
    Ok(Run {
        program: client,
        round,
        rate,
        answered,
        server_requests: seen.requests,
        cpu_us: cost.cpu_s * 1e6 / answered.max(1) as f64,
        server_busy: seen.cpu_s / cost.wall_s,
        client_busy: cost.cpu_s / cost.wall_s,
        waited: cost.delay_s / cost.wall_s,
        max_rss_kb: cost.max_rss_kb,
        fault: None,
    })
}

/// Program and arguments.
fn command(t: &Tools, s: &Scenario, client: &str, at: SocketAddr, dir: &Path) -> Vec<String> {
    let (seconds, in_flight) = (t.seconds, s.in_flight);
    let words = if client == LOAD {
        // As many connections as `linerate::client` has.
        let (connections, depth) = (in_flight.min(4), in_flight.div_ceil(4));
        let (program, json) = (t.linerate.display(), dir.join("outcome.json"));
        format!(
            "{program} load http://{at}/ -t 1 -c {connections} -p {depth} -d {seconds}s --quiet --json {}",
            json.display()
        )
    } else {
        let program = shell::target_dir().join("release/linerate-bench-peers");
        format!("{} call {client} http://{at}/ {seconds} {in_flight}", program.display())
    };
    words.split(' ').map(str::to_owned).collect()
}

/// Rate and number of responses.
fn said(client: &str, out: &str, dir: &Path) -> Result<(f64, u64)> {
    if client == LOAD {
        let said = Contender::Linerate.said(out, dir)?;
        return Ok((said.rate, said.answered));
    }
    let v: Value = serde_json::from_str(out.trim())?;
    let found = v["rate"].as_f64().zip(v["answered"].as_u64());
    found.with_context(|| format!("{client} said nothing that can be read: {out}"))
}
