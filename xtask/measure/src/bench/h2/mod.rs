//! `bench h2`: `linerate load` beside h2load, shb and a raw sender, `linerate serve` beside nginx and hyper, all over HTTP/2.

mod scenario;

use std::net::SocketAddr;
use std::path::Path;

use anyhow::{Context, Result, ensure};

use self::scenario::{
    HYPER_AXUM, LOAD, OUR_AXUM, RAW, RAW_RATE, SCENARIOS, SHB, SHB_RATE, StreamMeasure, StreamScenario,
};
use super::alone::AloneFinding;
use super::contender::{Contender, ContenderReport};
use super::figures::{of_program, ratio};
use super::round::{ProgramRun, line, measured};
use super::scenario::Figure;
use super::serve::peer::{LOCAL, PeerProcess, ServePeer, certificate};
use super::server::BenchServer;
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

/// What to measure.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct StreamBenchOptions {
    #[command(flatten)]
    common: CommonBenchOptions,
    /// More flags for every run of `linerate load`.
    #[arg(long, default_value = "")]
    flags: String,
    /// More flags for every run of `linerate serve`.
    #[arg(long, default_value = "")]
    serve_flags: String,
}

/// Measures; `false` when a binding figure was missed.
pub(crate) fn run(options: &StreamBenchOptions) -> Result<bool> {
    let common = &options.common;
    if common.list {
        SCENARIOS.iter().for_each(|s| println!("{:<12} {}", s.name, s.what));
        return Ok(true);
    }
    let scenarios = chosen(&common.only, SCENARIOS, |s| s.name)?;
    if let Some(ended) = elsewhere(|| build_released(&WITH_PEERS))? {
        return Ok(ended);
    }
    let _alone = alone_on_this_machine()?;
    let tools = Tools::new(common, &options.serve_flags, false)?;
    let mut page = TablePage::new(head(options, &tools));
    for s in scenarios {
        println!("\n{}: {}", s.name, s.what);
        match s.sort {
            StreamMeasure::Bare | StreamMeasure::Nginx => clients(&tools, options, s, &mut page)?,
            StreamMeasure::Servers(names) => servers(&tools, options, s, names, &mut page)?,
        }
        // Written after each scenario, so that an interrupted run loses no measurement.
        page.write(common.out.as_deref())?;
    }
    println!("\n{}", page.markdown());
    Ok(page.all_reached())
}

/// The command and the machine.
fn head(o: &StreamBenchOptions, t: &Tools) -> String {
    let flags = |name: &str, flags: &str| match flags {
        "" => String::new(),
        flags => format!(" {name}={flags:?}"),
    };
    let all = flags("--flags", &o.flags) + &flags("--serve-flags", &o.serve_flags);
    format!("`cargo xtask bench h2 {}{all}`\n\n{}", typed(&o.common), circumstances(t))
}

/// A client: one of those of `bench load`, or the raw sender.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum StreamBenchClient {
    Of(Contender),
    Raw,
}

impl StreamBenchClient {
    fn name(self) -> &'static str {
        match self {
            StreamBenchClient::Of(contender) => contender.name(),
            StreamBenchClient::Raw => RAW,
        }
    }

    /// Program and arguments.
    fn command(
        self,
        t: &Tools,
        o: &StreamBenchOptions,
        s: &StreamScenario,
        at: SocketAddr,
        dir: &Path,
    ) -> Result<Vec<String>> {
        let (c, d, scheme) = (s.connections, s.depth, if s.tls { "https" } else { "http" });
        let (url, seconds) = (format!("{scheme}://{at}/"), t.seconds);
        let words = match self {
            StreamBenchClient::Raw => {
                format!(
                    "{} h2 --target {at} --connections {c} --depth {d} --seconds {seconds}",
                    t.raw.display()
                )
            }
            // Its default windows would make it say more than others: it has all that there is.
            StreamBenchClient::Of(Contender::H2load) => {
                format!("h2load -t1 -c{c} -m{d} -w30 -W30 -D{} {url}", seconds.ceil())
            }
            StreamBenchClient::Of(Contender::Shb) => {
                let shb = shell::find(SHB).context("shb is not installed")?;
                format!("{} -j -t 1 --http2 -p {d} -z {seconds}s -c {c} {url}", shb.display())
            }
            StreamBenchClient::Of(_) => {
                let insecure = if s.tls { "--insecure" } else { "" };
                let throughput = if matches!(s.sort, StreamMeasure::Nginx) { "--throughput" } else { "" };
                let json = dir.join("outcome.json");
                format!(
                    "{} load {url} --http 2 {insecure} {throughput} -t 1 -c {c} -p {d} -d {seconds}s --quiet {} --json {}",
                    t.linerate.display(),
                    o.flags,
                    json.display()
                )
            }
        };
        Ok(words.split_whitespace().map(str::to_owned).collect())
    }

    fn said(self, out: &str, dir: &Path) -> Result<ContenderReport> {
        match self {
            StreamBenchClient::Of(contender) => contender.said(out, dir),
            StreamBenchClient::Raw => Contender::RawEpoll.said(out, dir),
        }
    }
}

/// The clients of a scenario that are installed.
fn contenders(s: &StreamScenario, page: &mut TablePage) -> Vec<StreamBenchClient> {
    let mut all = vec![StreamBenchClient::Of(Contender::Linerate)];
    let nginx = matches!(s.sort, StreamMeasure::Nginx);
    for peer in [Contender::H2load, Contender::Shb] {
        match shell::find(peer.name()) {
            Some(_) if peer == Contender::H2load || !(s.tls || nginx) => {
                all.push(StreamBenchClient::Of(peer))
            }
            Some(_) => {}
            None => page.add_doubt(format!("{}: {} is not installed", s.name, peer.name())),
        }
    }
    if !(s.tls || nginx) {
        all.push(StreamBenchClient::Raw);
    }
    all
}

/// Clients in turns, each against a fresh server; the figure is the client's processor time.
fn clients(t: &Tools, o: &StreamBenchOptions, s: &StreamScenario, page: &mut TablePage) -> Result<()> {
    let who = contenders(s, page);
    let mut runs = Vec::new();
    for round in 0..t.rounds {
        for i in 0..who.len() {
            let client = who[(i + round) % who.len()];
            let run = match s.sort {
                StreamMeasure::Nginx => beside_nginx(t, o, s, client, round),
                _ => beside_bare(t, o, s, client, round),
            };
            let run = run.unwrap_or_else(|e| ProgramRun::failed(client.name(), round, format!("{e:#}")));
            println!("  {}", line(&run));
            runs.push(run);
        }
    }
    add(page, s, &who.iter().map(|client| client.name()).collect::<Vec<_>>(), &runs);
    if who.contains(&StreamBenchClient::Raw) {
        page.add_alone(s.name, s.what, vec![ceiling(&runs)]);
    }
    Ok(())
}

/// The target against shb or the raw sender, whichever is easier.
fn ceiling(runs: &[ProgramRun]) -> AloneFinding {
    let wanted = format!("at least {SHB_RATE} x {SHB}, or {RAW_RATE} x {RAW}");
    let of = |peer| ratio(runs, LOAD, peer, Figure::Rate);
    let (shb, raw) = (of(SHB), of(RAW));
    let said = |name: &str, r: Option<super::figures::Ratio>| match r {
        Some(r) => format!("{:.2} x {name} ({:.2} to {:.2})", r.median, r.least, r.most),
        None => format!("{name}: not measured"),
    };
    let ok = shb.is_some_and(|r| r.median >= SHB_RATE) || raw.is_some_and(|r| r.median >= RAW_RATE);
    AloneFinding::new("rate", wanted, format!("{}, {}", said(SHB, shb), said(RAW, raw)), ok)
}

fn beside_bare(
    t: &Tools,
    o: &StreamBenchOptions,
    s: &StreamScenario,
    client: StreamBenchClient,
    round: usize,
) -> Result<ProgramRun> {
    let dir = tempfile::tempdir()?;
    let mut options = Vec::new();
    if s.tls {
        let [cert, key] = certificate(dir.path(), LOCAL)?.map(|path| path.display().to_string());
        options.extend(["--tls-cert".to_owned(), cert, "--tls-key".to_owned(), key]);
    }
    let options: Vec<&str> = options.iter().map(String::as_str).collect();
    let server = BenchServer::bare_h2(t, dir.path(), &options)?;
    let command = client.command(t, o, s, server.address(), dir.path())?;
    let done = measured(t, &command, t.seconds + GRACE_S, dir.path());
    let seen = server.end()?;
    let (out, cost) = done?;
    let said = client.said(&out, dir.path())?;
    // Allowed difference: requests in flight at the end, and those first sent while connections were opened.
    let slack = said.slack.max((s.connections * (2 * s.depth + 1)) as u64);
    let counted = seen.requests.unwrap_or(0);
    let agrees = (said.answered..=said.answered + slack).contains(&counted);
    let fault = (!agrees).then(|| format!("says {} answered, the server counted {counted}", said.answered));
    Ok(ProgramRun { fault, ..ProgramRun::of_client(client.name(), round, &said, &cost, &seen) })
}

fn beside_nginx(
    t: &Tools,
    o: &StreamBenchOptions,
    s: &StreamScenario,
    client: StreamBenchClient,
    round: usize,
) -> Result<ProgramRun> {
    one(t, o, s, &PeerProcess::start(t, ServePeer::H2Nginx)?, client, round, false)
}

/// Servers in turns, by `linerate load`; the figure is the server's processor time.
fn servers(
    t: &Tools,
    o: &StreamBenchOptions,
    s: &StreamScenario,
    names: &[&'static str],
    page: &mut TablePage,
) -> Result<()> {
    let mut all = Vec::new();
    for &name in names {
        let Some(peer) = peer(name, s.tls).filter(|peer| peer.missing().is_none()) else {
            page.add_doubt(format!("{}: {name} is not installed", s.name));
            continue;
        };
        match PeerProcess::start(t, peer) {
            Ok(running) => all.push((name, running)),
            Err(e) => page.add_doubt(format!("{}: {name} does not start: {e:#}", s.name)),
        }
    }
    let mut runs = Vec::new();
    for round in 0..t.rounds {
        for i in 0..all.len() {
            let (name, server) = &all[(i + round) % all.len()];
            let run = one(t, o, s, server, StreamBenchClient::Of(Contender::Linerate), round, true);
            let run = run.unwrap_or_else(|e| ProgramRun::failed(name, round, format!("{e:#}")));
            let run = ProgramRun { program: name, ..run };
            println!("  {}", line(&run));
            runs.push(run);
        }
    }
    add(page, s, names, &runs);
    Ok(())
}

fn peer(name: &str, tls: bool) -> Option<ServePeer> {
    Some(match (name, tls) {
        (scenario::SERVE, false) => ServePeer::Linerate(scenario::SERVE, ""),
        (scenario::SERVE, true) => ServePeer::TlsLinerate,
        (scenario::NGINX, false) => ServePeer::H2Nginx,
        (scenario::NGINX, true) => ServePeer::H2TlsNginx,
        (scenario::HYPER, _) => ServePeer::Rust(scenario::HYPER, "hyper-h2"),
        (OUR_AXUM, _) => ServePeer::Rust(OUR_AXUM, "linerate-axum-epoll"),
        (HYPER_AXUM, _) => ServePeer::Rust(HYPER_AXUM, "axum-h2"),
        _ => return None,
    })
}

/// One run. `of_server`: whose processor time is the figure.
fn one(
    t: &Tools,
    o: &StreamBenchOptions,
    s: &StreamScenario,
    server: &PeerProcess,
    client: StreamBenchClient,
    round: usize,
    of_server: bool,
) -> Result<ProgramRun> {
    let dir = tempfile::tempdir()?;
    let command = client.command(t, o, s, server.address, dir.path())?;
    let before = server.used()?;
    let (out, cost) = measured(t, &command, t.seconds + GRACE_S, dir.path())?;
    let server_s = server.used_since(&before)?.cpu_s;
    let said = client.said(&out, dir.path())?;
    ensure!(said.answered > 0, "no request was answered");
    Ok(ProgramRun {
        program: client.name(),
        round,
        rate: said.rate,
        answered: said.answered,
        server_requests: None,
        cpu_us: if of_server { server_s } else { cost.cpu_s } * 1e6 / said.answered as f64,
        p99_us: None,
        user_kb: None,
        server_busy: server_s / cost.wall_s,
        client_busy: cost.cpu_s / cost.wall_s,
        waited: cost.delay_s / cost.wall_s,
        max_rss_kb: cost.max_rss_kb,
        fault: None,
    })
}

fn add(page: &mut TablePage, s: &StreamScenario, names: &[&str], runs: &[ProgramRun]) {
    let row = |name: &&str| {
        let figure = |figure| of_program(runs, name, figure).unwrap_or(0.0);
        let (cpu, rate) = (figure(Figure::Cpu), figure(Figure::Rate));
        let busy = runs.iter().filter(|r| r.program == *name && r.fault.is_none()).map(|r| r.server_busy);
        let busy = busy.fold(0.0, f64::max);
        format!("| {name} | {cpu:.3} | {} | {:.0} % |", thousands(rate), busy * 100.0)
    };
    let whose = if matches!(s.sort, StreamMeasure::Servers(_)) { "server" } else { "client" };
    let head = format!("| {} | {whose} CPU us per request | requests/s | server busy, at most |", s.what);
    page.add_block(as_table(&head, &names.iter().map(row).collect::<Vec<_>>()));
    page.add_compared(s.name, s.what, s.wants, runs);
    if matches!(s.sort, StreamMeasure::Bare)
        && runs.iter().any(|r| r.program == LOAD && r.server_busy > LIMIT)
    {
        page.add_doubt(format!("{}: the bare server was the limit of {LOAD}", s.name));
    }
}
