//! `bench load` and `bench serve`: the tables of docs/PERFORMANCE.md, measured in paired runs:
//! server on one core, client on another.

mod alone;
pub(crate) mod bypass;
mod cable;
pub(crate) mod client;
mod contender;
mod ends;
pub(crate) mod explain;
mod figures;
pub(crate) mod find;
pub(crate) mod flows;
pub(crate) mod h2;
pub(crate) mod h3;
pub(crate) mod machines;
pub(crate) mod pcap;
mod round;
mod scenario;
pub(crate) mod serve;
mod server;
pub(crate) mod stack;
pub(crate) mod table;
pub(crate) mod tls;
mod tools;
pub(crate) mod truth;

use std::path::PathBuf;
use std::process::Command;

use anyhow::{Context, Result, bail, ensure};
use contender::Contender;
use scenario::{LoadMeasure, LoadScenario, SCENARIOS};
pub(crate) use tools::Tools;

use xtask::shell;

/// Set in the namespace that a run as root gives itself.
const IN_NAMESPACE: &str = "LINERATE_BENCH_NAMESPACE";

/// The flags of both kinds.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct CommonBenchOptions {
    /// Only these scenarios (comma-separated; --list names them).
    #[arg(long, value_delimiter = ',')]
    only: Vec<String>,
    /// Paired rounds; each runs every program once, in rotating order.
    #[arg(long, default_value_t = 5)]
    rounds: usize,
    /// Seconds of each run.
    #[arg(long, default_value_t = 3.0)]
    seconds: f64,
    /// Write the tables to PATH.md and every single run to PATH.json.
    #[arg(long, value_name = "PATH")]
    out: Option<PathBuf>,
    /// Name the scenarios and stop.
    #[arg(long)]
    list: bool,
}

/// What to measure of clients.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct LoadBenchOptions {
    #[command(flatten)]
    common: CommonBenchOptions,
    /// Programs to compare with, of those installed (wrk, h2load, ab, hey, oha, shb, or none).
    #[arg(long, value_delimiter = ',', default_value = "wrk,h2load,ab,shb")]
    peers: Vec<String>,
    /// Leave `linerate load` itself out: how far are the others from the ceiling?
    #[arg(long)]
    without_linerate: bool,
    /// More flags for every run of `linerate load` (for instance "--io epoll").
    #[arg(long, default_value = "")]
    flags: String,
    /// The bare server never sleeps: the client then never pays for waking it.
    #[arg(long)]
    spin: bool,
}

impl Tools {
    fn new(common: &CommonBenchOptions, flags: &str, spin: bool) -> Result<Tools> {
        Tools::built("release", common, flags, spin)
    }

    /// Those that were built with this profile.
    fn built(profile: &str, common: &CommonBenchOptions, flags: &str, spin: bool) -> Result<Tools> {
        ensure!(common.rounds > 0 && common.seconds > 0.0, "at least one round of more than no time");
        let folder = shell::target_dir().join(if profile == "dev" { "debug" } else { profile });
        let bin = |name: &str| folder.join(name);
        let cpus = std::thread::available_parallelism()?.get();
        if cpus < 2 {
            println!("warning: only one core: server and client share it, and no figure here means much");
        }
        let cores = [0, usize::from(cpus > 1)];
        let (linerate, raw) = (bin("linerate"), bin("linerate-bench-raw"));
        Ok(Tools {
            linerate,
            raw,
            cores,
            rounds: common.rounds,
            seconds: common.seconds,
            flags: flags.into(),
            spin,
        })
    }
}

/// Measures clients; `false` when a binding figure was missed.
pub(crate) fn run(options: &LoadBenchOptions) -> Result<bool> {
    let common = &options.common;
    if common.list {
        SCENARIOS.iter().for_each(|s| println!("{:<14} {}", s.name, s.what));
        return Ok(true);
    }
    let scenarios = chosen(&common.only, SCENARIOS, |s| s.name)?;
    if let Some(ended) = elsewhere(|| build(options))? {
        return Ok(ended);
    }
    let _alone = alone_on_this_machine()?;
    let tools = Tools::new(common, &options.flags, options.spin)?;
    let mut page = table::TablePage::new(head(options, &tools));
    for s in scenarios {
        println!("\n{}: {}", s.name, s.what);
        match s.sort {
            LoadMeasure::InTurns { .. } => {
                page.add_turns(s, &round::run_all(&tools, s, &contenders(options, s)?)?)
            }
            _ if options.without_linerate => println!("  (of linerate alone: left out)"),
            _ => page.add_alone(s.name, s.what, alone::run(&tools, s)?),
        }
        // Written after each scenario, so that an interrupted run loses no measurement.
        page.write(common.out.as_deref())?;
    }
    println!("\n{}", page.markdown());
    Ok(page.all_reached())
}

/// The command and the machine.
fn head(o: &LoadBenchOptions, t: &Tools) -> String {
    let spin = if o.spin { " --spin" } else { "" };
    let flags = if o.flags.is_empty() { String::new() } else { format!(" --flags={:?}", o.flags) };
    format!(
        "`cargo xtask bench load {} --peers {}{spin}{flags}`\n\n{}",
        typed(&o.common),
        o.peers.join(","),
        circumstances(t)
    )
}

/// The common options as typed.
fn typed(c: &CommonBenchOptions) -> String {
    let only = if c.only.is_empty() { String::new() } else { format!(" --only {}", c.only.join(",")) };
    format!("--rounds {} --seconds {}{only}", c.rounds, c.seconds)
}

fn circumstances(t: &Tools) -> String {
    format!(
        "{}; server on core {}, client on core {}; medians of {} rounds in turns.\n",
        machine(),
        t.cores[0],
        t.cores[1],
        t.rounds
    )
}

/// Whether this process still runs outside a network namespace. Builds happen here, where the
/// network is available.
fn outside() -> bool {
    std::env::var_os(IN_NAMESPACE).is_none()
}

fn chosen<S>(only: &[String], all: &'static [S], name: impl Fn(&S) -> &str) -> Result<Vec<&'static S>> {
    if only.is_empty() {
        return Ok(all.iter().collect());
    }
    let find = |wanted: &String| all.iter().find(|s| name(s) == wanted);
    only.iter().map(|n| find(n).with_context(|| format!("no scenario {n}; --list names them"))).collect()
}

/// The participants in order: ours, the ceilings, and the requested peers that are installed and
/// able.
fn contenders(options: &LoadBenchOptions, s: &LoadScenario) -> Result<Vec<Contender>> {
    let mut all = vec![Contender::Linerate, Contender::RawEpoll, Contender::RawUring];
    if options.without_linerate {
        all.remove(0);
    }
    for name in options.peers.iter().filter(|n| *n != "none") {
        let Some(peer) = Contender::peer(name) else {
            bail!("unknown peer {name}: wrk, h2load, ab, hey, oha, shb")
        };
        match shell::find(name) {
            Some(_) => all.push(peer),
            None => println!("  {name} is not installed: left out"),
        }
    }
    all.retain(|c| c.can(s));
    Ok(all)
}

fn build(options: &LoadBenchOptions) -> Result<()> {
    let packages = ["linerate-bench-raw", "linerate-cli"];
    build_released(&packages[..if options.without_linerate { 1 } else { 2 }])
}

/// What the measurements beside other programs need. Reason for one set: other sets are other features of
/// what they share, so that each measurement would build linerate again.
const WITH_PEERS: [&str; 3] = ["linerate-cli", "linerate-bench-raw", "linerate-bench-peers"];

/// Builds packages as they are released.
fn build_released(packages: &[&str]) -> Result<()> {
    build_with("release", packages)
}

/// Builds packages with a profile of Cargo.toml.
fn build_with(profile: &str, packages: &[&str]) -> Result<()> {
    let mut cargo = shell::cargo();
    cargo.args(["build", "--profile", profile, "--quiet"]);
    shell::run(cargo.args(packages.iter().flat_map(|package| ["-p", package])))
}

/// Builds what is measured, where the network is available, and measures in a network namespace of its own if
/// this machine has them: whether that reached its targets. `None`: it continues here.
fn elsewhere(build: impl FnOnce() -> Result<()>) -> Result<Option<bool>> {
    if !outside() {
        return Ok(None);
    }
    build()?;
    can_have_namespace().then(in_own_namespace).transpose()
}

/// The words by which a program gets a network of its own. What it starts is numbered apart from the machine's
/// processes, so that all of it ends with it, and it ends with this process.
const APART: [&str; 8] =
    ["setpriv", "--pdeathsig", "KILL", "unshare", "--net", "--pid", "--kill-child", "--mount-proc"];

fn can_have_namespace() -> bool {
    let tried = shell::is_root().then(|| shell::program(APART[0]).args(&APART[1..]).arg("true").output());
    matches!(tried, Some(Ok(out)) if out.status.success())
}

/// Runs this same command in a network namespace, and ends with it all that it has started. So the machine's traffic, firewall and
/// connections in TIME-WAIT don't affect the figures, and the port range is wide enough for short
/// connections.
fn in_own_namespace() -> Result<bool> {
    const SET_UP: &str = "ip link set lo up && echo 1024 65535 >/proc/sys/net/ipv4/ip_local_port_range && \
         { ulimit -n 65536 2>/dev/null || true; } && { \"$@\"; exit $?; }";
    let mut c = Command::new(APART[0]);
    // Signals of the terminal do nothing to the first process of a namespace, so that is the shell.
    c.args(&APART[1..])
        .args(["sh", "-c", SET_UP, "sh"])
        .arg(std::env::current_exe()?)
        .args(std::env::args_os().skip(1));
    Ok(c.env(IN_NAMESPACE, "1").status().context("cannot start setpriv")?.success())
}

/// Two measurements at once measure each other: the second waits for the first. Held until dropped.
fn alone_on_this_machine() -> Result<std::fs::File> {
    let path = std::env::temp_dir().join("linerate-bench.lock");
    let lock = std::fs::File::options()
        .create(true)
        .append(true)
        .open(&path)
        .with_context(|| path.display().to_string())?;
    if lock.try_lock().is_err() {
        println!("another bench runs on this machine: waiting for its end");
        lock.lock()?;
    }
    Ok(lock)
}

/// One line about where this was measured.
fn machine() -> String {
    machine_with(if std::env::var_os(IN_NAMESPACE).is_some() {
        "own network namespace"
    } else {
        "the machine's loopback"
    })
}

/// The same for what brings its own network: `place` says which.
fn machine_with(place: &str) -> String {
    let read = |p: &str| std::fs::read_to_string(p).unwrap_or_default().trim().to_owned();
    let cpuinfo = read("/proc/cpuinfo");
    let model =
        cpuinfo.lines().find_map(|l| l.strip_prefix("model name")?.split_once(": ")).map_or("?", |m| m.1);
    let cores = std::thread::available_parallelism().map_or(0, usize::from);
    let date = shell::output(shell::program("date").args(["-u", "+%F %H:%M UTC"])).unwrap_or_default();
    format!(
        "{cores} cores ({model}), Linux {}, TCP {}, {place}, {}",
        // The text after the version names a builder's own kernel.
        read("/proc/sys/kernel/osrelease").split('-').next().unwrap_or_default(),
        read("/proc/sys/net/ipv4/tcp_congestion_control"),
        date.trim()
    )
}

/// A page with other words between its two markers.
fn between(page: &str, [begin, end]: [&str; 2], text: &str) -> Result<String> {
    let (before, rest) = page.split_once(begin).with_context(|| format!("no line {begin}"))?;
    let (_, after) = rest.split_once(end).with_context(|| format!("no line {end}"))?;
    ensure!(!after.contains(begin), "{begin} is there twice");
    Ok(format!("{before}{begin}\n{text}{end}{after}"))
}
