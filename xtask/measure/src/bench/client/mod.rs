//! `bench client`: the ways of `linerate::client` in turns with hyper-util's client, reqwest and `linerate load`, and the
//! Python package with aiohttp and httpx; each on one thread.

mod python;
mod scenario;

use std::net::SocketAddr;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use linerate_netbox::NetBox;
use serde_json::Value;

use super::contender::Contender;
use super::figures::of_program;
use super::round::{ProgramCost, ProgramRun, line, measured};
use super::scenario::Figure;
use super::serve::peer::{PeerProcess, ServePeer, build_go};
use super::server::{BenchServer, ServerCounts};
use super::table::{TablePage, as_table, thousands};
use super::{
    CommonBenchOptions, Tools, WITH_PEERS, alone_on_this_machine, build_released, chosen, circumstances,
};
use super::{elsewhere, typed};
use scenario::{
    AIOHTTP, ClientScenario, ClientTask, DEFAULT, HTTPX, LOAD, PYTHON_ALL, PYTHON_SEND, SCENARIOS, SEND,
};
use xtask::shell;

/// Beyond the planned time a client gets this long to end by itself, seconds.
const GRACE_S: f64 = 12.0;

/// Requests on a connection before nginx closes it.
const REQUESTS_EACH: u32 = 100;

/// Connections of each client where their number is given.
const CONNECTIONS: u32 = 4;

/// What to measure.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct ClientBenchOptions {
    #[command(flatten)]
    common: CommonBenchOptions,
}

/// What a client has to do, beside its name.
#[derive(Clone, Copy)]
struct ClientJob {
    seconds: f64,
    calls: u32,
    /// Calls that begin each second; 0: as earlier ones end.
    rate: u64,
    post_every: u32,
}

/// What a client printed.
struct ClientReport {
    rate: f64,
    answered: u64,
    posts: u64,
    unsettled: u64,
    p99_us: Option<f64>,
    connections: u64,
}

/// Measures; `false` when a figure was missed.
pub(crate) fn run(options: &ClientBenchOptions) -> Result<bool> {
    let common = &options.common;
    if common.list {
        SCENARIOS.iter().for_each(|s| println!("{:<16} {}", s.name, s.what));
        return Ok(true);
    }
    let scenarios = chosen(&common.only, SCENARIOS, |s| s.name)?;
    if let Some(ended) = elsewhere(build)? {
        return Ok(ended);
    }
    let _alone = alone_on_this_machine()?;
    let tools = Tools::new(common, "", false)?;
    let mut page =
        TablePage::new(format!("`cargo xtask bench client {}`\n\n{}", typed(common), circumstances(&tools)));
    for s in scenarios {
        println!("\n{}: {}", s.name, s.what);
        if s.clients.contains(&PYTHON_ALL)
            && let Some(why) = python::missing()
        {
            println!("  not run: {why}");
            page.add_doubt(format!("{}: not run, because {why}", s.name));
            continue;
        }
        scenario(&tools, s, &mut page)?;
        page.write(common.out.as_deref())?;
    }
    println!("\n{}", page.markdown());
    Ok(page.all_reached())
}

/// The clients, and the server that has to be compiled.
fn build() -> Result<()> {
    build_released(&WITH_PEERS)?;
    if let Err(why) = build_go() {
        println!("go cannot be built: {why:#}");
    }
    Ok(())
}

fn scenario(t: &Tools, s: &ClientScenario, page: &mut TablePage) -> Result<()> {
    let job = job(t, s)?;
    let mut runs = Vec::new();
    for round in 0..t.rounds {
        for i in 0..s.clients.len() {
            let client = s.clients[(i + round) % s.clients.len()];
            let run = one(t, s, &job, client, round);
            let run = run.unwrap_or_else(|e| ProgramRun::failed(client, round, format!("{e:#}")));
            let p99 = run.p99_us.map(|p99| format!(", p99 {p99:.0} us")).unwrap_or_default();
            println!("  {}{p99}", line(&run));
            runs.push(run);
        }
    }
    let with_p99 = runs.iter().any(|run| run.p99_us.is_some());
    let row = |name: &&str| {
        let figure = |figure| of_program(&runs, name, figure).unwrap_or(0.0);
        let (cpu, rate) = (figure(Figure::Cpu), figure(Figure::Rate));
        let p99 = if with_p99 { format!(" {:.0} |", figure(Figure::P99)) } else { String::new() };
        format!("| {name} | {cpu:.3} | {} |{p99}", thousands(rate))
    };
    let p99 = if with_p99 { " p99, us |" } else { "" };
    let head = format!("| {} | CPU us per request | requests/s |{p99}", s.what);
    page.add_block(as_table(&head, &s.clients.iter().map(row).collect::<Vec<_>>()));
    page.add_compared(s.name, s.what, s.wants, &runs);
    Ok(())
}

/// What the clients of a scenario have to do.
fn job(t: &Tools, s: &ClientScenario) -> Result<ClientJob> {
    let job = |calls| ClientJob { seconds: t.seconds, calls, rate: 0, post_every: 0 };
    Ok(match s.task {
        ClientTask::Flight { calls, .. }
        | ClientTask::Far { calls, .. }
        | ClientTask::Packaged { calls, .. }
        | ClientTask::Pools { calls, .. }
        | ClientTask::Streams { calls } => job(calls),
        ClientTask::Nginx { calls, post_every } => ClientJob { post_every, ..job(calls) },
        ClientTask::Tenth { calls, of } => {
            let top = one(t, s, &job(calls), of, 0)?.rate;
            println!("  a tenth of {}/s", thousands(top));
            ClientJob { rate: (top / 10.0) as u64, ..job(calls) }
        }
    })
}

fn one(
    t: &Tools,
    s: &ClientScenario,
    job: &ClientJob,
    client: &'static str,
    round: usize,
) -> Result<ProgramRun> {
    let dir = tempfile::tempdir()?;
    let (said, cost, seen) = match s.task {
        ClientTask::Far { rtt_ms, .. } => {
            let calls = if client == SEND { job.calls } else { CONNECTIONS };
            far(t, &ClientJob { calls, ..*job }, client, rtt_ms, dir.path())?
        }
        ClientTask::Pools { rtt_ms, .. } => far(t, job, client, rtt_ms, dir.path())?,
        ClientTask::Packaged { server, .. } => beside(t, job, client, server, dir.path())?,
        ClientTask::Streams { .. } => {
            let server = BenchServer::bare_h2(t, dir.path(), &["--body", "100"])?;
            against(t, job, client, server, dir.path())?
        }
        ClientTask::Nginx { .. } => {
            let server = BenchServer::closing_nginx(t, dir.path(), 100, REQUESTS_EACH)?;
            against(t, job, client, server, dir.path())?
        }
        ClientTask::Flight { .. } | ClientTask::Tenth { .. } => {
            let body = if let ClientTask::Flight { body, .. } = s.task { body } else { 100 };
            let server = BenchServer::bare(t, dir.path(), &["--body", &body.to_string()])?;
            against(t, job, client, server, dir.path())?
        }
    };
    if let Some(counted) = seen.requests {
        ensure!(counted >= said.answered, "says {} answered, the server counted {counted}", said.answered);
    }
    let many = matches!(s.task, ClientTask::Pools { calls, .. } if client == DEFAULT && said.connections * 10 > calls.into());
    let fault = if many { Some(format!("{} connections", said.connections)) } else { fault(&said, &seen) };
    if job.post_every > 0 {
        println!("    {client}: {} POSTs, {} without a response", said.posts, said.unsettled);
    }
    Ok(ProgramRun {
        program: client,
        round,
        rate: said.rate,
        answered: said.answered,
        server_requests: seen.requests,
        cpu_us: cost.cpu_s * 1e6 / said.answered.max(1) as f64,
        p99_us: said.p99_us.filter(|p99| *p99 > 0.0),
        user_kb: None,
        server_busy: seen.cpu_s / cost.wall_s,
        client_busy: cost.cpu_s / cost.wall_s,
        waited: cost.delay_s / cost.wall_s,
        max_rss_kb: cost.max_rss_kb,
        fault,
    })
}

/// POST requests that came twice, or that got a response without the server's knowledge.
fn fault(said: &ClientReport, seen: &ServerCounts) -> Option<String> {
    let mut posts = seen.posts.clone();
    posts.sort_unstable();
    posts.dedup();
    let (came, distinct) = (seen.posts.len() as u64, posts.len() as u64);
    if came > distinct {
        return Some(format!("{} POST requests came twice", came - distinct));
    }
    let answered = said.posts - said.unsettled;
    (distinct < answered).then(|| format!("{answered} POSTs got a response, and {distinct} came"))
}

/// One run against this server.
fn against(
    t: &Tools,
    job: &ClientJob,
    client: &str,
    server: BenchServer,
    dir: &Path,
) -> Result<(ClientReport, ProgramCost, ServerCounts)> {
    let command = command(t, job, client, server.address(), dir);
    let done = measured(t, &command, job.seconds + GRACE_S, dir);
    let seen = server.end()?;
    let (out, cost) = done?;
    Ok((said(client, &out, dir)?, cost, seen))
}

/// One run against a server of `bench serve`.
fn beside(
    t: &Tools,
    job: &ClientJob,
    client: &str,
    server: &str,
    dir: &Path,
) -> Result<(ClientReport, ProgramCost, ServerCounts)> {
    let peer = ServePeer::of(server).with_context(|| format!("no server {server}"))?;
    if let Some(why) = peer.missing() {
        bail!("{why}");
    }
    let server = PeerProcess::start(t, peer)?;
    let before = server.used()?;
    let command = command(t, job, client, server.address, dir);
    let (out, cost) = measured(t, &command, job.seconds + GRACE_S, dir)?;
    let seen = ServerCounts { cpu_s: server.used_since(&before)?.cpu_s, ..ServerCounts::default() };
    Ok((said(client, &out, dir)?, cost, seen))
}

/// One run with a network between client and server.
fn far(
    t: &Tools,
    job: &ClientJob,
    client: &str,
    rtt_ms: u64,
    dir: &Path,
) -> Result<(ClientReport, ProgramCost, ServerCounts)> {
    if let Some(why) = NetBox::unavailable() {
        bail!("no network of its own: {why}");
    }
    let net = NetBox::builder().delay(Duration::from_micros(rtt_ms * 500)).start()?;
    let listen = format!("{}:0", net.server().ip());
    let server =
        net.server().run(|| BenchServer::bare(t, dir, &["--body", "100", "--listen", &listen]))??;
    let command = command(t, job, client, server.address(), dir);
    let done = net.client().run(|| measured(t, &command, job.seconds + GRACE_S, dir))?;
    let seen = server.end()?;
    let (out, cost) = done?;
    Ok((said(client, &out, dir)?, cost, seen))
}

/// Program and arguments.
fn command(t: &Tools, job: &ClientJob, client: &str, at: SocketAddr, dir: &Path) -> Vec<String> {
    let ClientJob { seconds, calls, rate, post_every } = job;
    let url = format!("http://{at}/");
    let (seconds, in_flight) = (seconds.to_string(), calls.to_string());
    let program = match client {
        LOAD => {
            // As many connections as `linerate::client` has.
            let (connections, depth) = (calls.min(&CONNECTIONS), calls.div_ceil(CONNECTIONS));
            let (program, json) = (t.linerate.display(), dir.join("outcome.json"));
            let words = format!(
                "{program} load {url} -t 1 -c {connections} -p {depth} -d {seconds}s --quiet --json {}",
                json.display()
            );
            return words.split(' ').map(str::to_owned).collect();
        }
        PYTHON_ALL | PYTHON_SEND | AIOHTTP | HTTPX => {
            vec![xtask::python().display().to_string(), python::script().display().to_string()]
        }
        _ => {
            let program = shell::target_dir().join("release/linerate-bench-peers");
            vec![program.display().to_string(), "call".to_owned()]
        }
    };
    let words = [client, &url, &seconds, &in_flight].map(str::to_owned);
    // Those in Python know neither.
    let more = if *rate > 0 || *post_every > 0 {
        vec![rate.to_string(), post_every.to_string()]
    } else {
        Vec::new()
    };
    program.into_iter().chain(words).chain(more).collect()
}

fn said(client: &str, out: &str, dir: &Path) -> Result<ClientReport> {
    if client == LOAD {
        let said = Contender::Linerate.said(out, dir)?;
        let (rate, answered) = (said.rate, said.answered);
        return Ok(ClientReport { rate, answered, posts: 0, unsettled: 0, p99_us: None, connections: 0 });
    }
    let v: Value = serde_json::from_str(out.trim())?;
    let found = v["rate"].as_f64().zip(v["answered"].as_u64());
    let (rate, answered) = found.with_context(|| format!("{client} said nothing that can be read: {out}"))?;
    let number = |name: &str| v[name].as_u64().unwrap_or(0);
    let (posts, unsettled, connections) = (number("posts"), number("unsettled"), number("connections"));
    Ok(ClientReport { rate, answered, posts, unsettled, p99_us: v["p99_us"].as_f64(), connections })
}
