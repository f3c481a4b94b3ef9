//! `bench machines`: `linerate load --agents` with real and with simulated agents on loopback, against the targets of
//! docs/MACHINES.md.

mod bus;

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use serde_json::Value;

use self::bus::{BusProgram, NatsServer, ProcessCost, Traffic};
use super::alone::AloneFinding;
use super::server::BenchServer;
use super::table::{TablePage, as_table, thousands};
use super::{CommonBenchOptions, Tools, alone_on_this_machine, chosen, elsewhere, machine};
use xtask::shell;

/// What to measure.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct MachinesBenchOptions {
    /// Only these scenarios (comma-separated; --list names them).
    #[arg(long, value_delimiter = ',')]
    only: Vec<String>,
    /// Shorter runs: a first look, in less than a minute and a half.
    #[arg(long)]
    quick: bool,
    /// Debug builds: to try the bench, not to measure.
    #[arg(long)]
    debug: bool,
    /// Write the tables to PATH.md and every figure to PATH.json.
    #[arg(long, value_name = "PATH")]
    out: Option<PathBuf>,
    /// Name the scenarios and stop.
    #[arg(long)]
    list: bool,
}

struct MachinesScenario {
    name: &'static str,
    what: &'static str,
    run: fn(&MachinesBench, &mut TablePage) -> Result<Vec<AloneFinding>>,
}

const SCENARIOS: &[MachinesScenario] = &[
    MachinesScenario { name: "exact", what: "16 agents, one server", run: exact },
    MachinesScenario { name: "spread", what: "one agent per core", run: spread },
    MachinesScenario {
        name: "coordinator",
        what: "64 simulated agents of 1,000,000 requests/s",
        run: coordinator,
    },
    MachinesScenario {
        name: "thousand",
        what: "1,000 simulated agents of 1,000,000 requests/s",
        run: thousand,
    },
];

const AGENTS: u32 = 16;
/// Requests/s of all agents of `exact` together.
const RATE: u64 = 20_000;
/// Requests/s of a simulated agent.
const SIMULATED_RATE: u64 = 1_000_000;
const SPREAD_AT_MOST_MS: f64 = 2.0;
const TRAFFIC_AT_MOST_KB: f64 = 20.0;
const CPU_AT_MOST: f64 = 0.05;
/// From the planned end to the end of the coordinator, seconds. Reason: the agents' last messages
/// need some time, whatever adds them up.
const TAIL_AT_MOST_S: f64 = 5.0;
/// The folder for the spools, beside which agents write.
const KEPT: &str = "kept";
/// From the order to start to the start, seconds.
const LEAD_S: f64 = 2.0;

struct MachinesBench {
    tools: Tools,
    swarm: PathBuf,
    quick: bool,
}

impl MachinesBench {
    fn either<T>(&self, whole: T, quick: T) -> T {
        if self.quick { quick } else { whole }
    }
}

/// Measures; `false` when a target was missed.
pub(crate) fn run(options: &MachinesBenchOptions) -> Result<bool> {
    if options.list {
        SCENARIOS.iter().for_each(|s| println!("{:<12} {}", s.name, s.what));
        return Ok(true);
    }
    let scenarios = chosen(&options.only, SCENARIOS, |s| s.name)?;
    if let Some(ended) = elsewhere(|| build(options.debug))? {
        return Ok(ended);
    }
    let _alone = alone_on_this_machine()?;
    let common = CommonBenchOptions {
        only: options.only.clone(),
        rounds: 1,
        seconds: 1.0,
        out: options.out.clone(),
        list: false,
    };
    let mut tools = Tools::new(&common, "", false)?;
    let folder = shell::target_dir().join(if options.debug { "debug" } else { "release" });
    (tools.linerate, tools.raw) = (folder.join("linerate"), folder.join("linerate-bench-raw"));
    let bench = MachinesBench { tools, swarm: folder.join("examples/swarm"), quick: options.quick };
    let flags = [(options.quick, " --quick"), (options.debug, " --debug (figures mean nothing)")];
    let flags: String = flags.iter().filter(|(given, _)| *given).map(|(_, flag)| *flag).collect();
    let mut page = TablePage::new(format!("`cargo xtask bench machines{flags}`\n\n{}.\n", machine()));
    for s in scenarios {
        println!("\n{}: {}", s.name, s.what);
        let findings = (s.run)(&bench, &mut page).unwrap_or_else(|e| {
            vec![AloneFinding::new("measured", "yes".to_owned(), format!("no: {e:#}"), false)]
        });
        page.add_alone(s.name, s.what, findings);
        page.write(options.out.as_deref())?;
    }
    println!("\n{}", page.markdown());
    Ok(page.all_reached())
}

fn build(debug: bool) -> Result<()> {
    let packages = [
        &["-p", "linerate-cli", "-p", "linerate-bench-raw"][..],
        &["-p", "linerate-machines", "--example", "swarm"],
    ];
    for package in packages {
        let mut cargo = shell::cargo();
        cargo.args(["build", "--quiet"]).args((!debug).then_some("--release")).args(package);
        shell::run(&mut cargo)?;
    }
    Ok(())
}

/// A load that a coordinator follows, with the costs of its second phase.
struct Followed {
    document: Value,
    run: String,
    /// The coordinator's share of a core while agents measured.
    coordinator_cpu: f64,
    coordinator: ProcessCost,
    broker_cpu: f64,
    broker: ProcessCost,
    /// Of the processes with simulated agents.
    agents_cpu: f64,
    /// Of all agents' connections, per second.
    traffic: Traffic,
    /// Most messages that waited in the stream for the coordinator.
    pending: u64,
    consumers: u64,
    /// From the planned end to the end of the coordinator, seconds.
    tail_s: f64,
    /// From the command to the order to start, seconds.
    start_s: f64,
}

/// Runs a load of `seconds` on agents that wait already.
fn followed(
    b: &MachinesBench,
    bus: &NatsServer,
    agents: &[BusProgram],
    seconds: u64,
    words: &str,
) -> Result<Followed> {
    let of_agents = bus.connections()?;
    let json = bus.folder.path().join("outcome.json");
    let mut command = Command::new(&b.tools.linerate);
    command.args(["load", "-q", "--nats", &bus.url, "-d", &format!("{seconds}s"), "--json"]).arg(&json);
    command.args(words.split_whitespace());
    let begin = Instant::now();
    let mut load = BusProgram::start(command, bus.folder.path(), "coordinator")?;
    load.says("--resume continues with it")?;
    let start = Instant::now() + Duration::from_secs_f64(LEAD_S);
    let start_s = begin.elapsed().as_secs_f64();
    let end = start + Duration::from_secs(seconds);
    // The first second is left out: agents are still settling.
    sleep_until(start + Duration::from_secs(1));
    keep_spools(bus)?;
    let look = |load: &BusProgram| -> Result<_> {
        let agents = agents.iter().map(|agent| agent.cost().cpu_s).sum::<f64>();
        Ok((Instant::now(), load.cost().cpu_s, bus.program.cost().cpu_s, agents, bus.traffic(&of_agents)?))
    };
    let before = look(&load)?;
    let (mut consumers, mut pending) = (0, 0);
    while Instant::now() + Duration::from_secs(1) < end {
        std::thread::sleep(Duration::from_secs(1));
        let (all, waiting) = bus.consumers()?;
        (consumers, pending) = (consumers.max(all), pending.max(waiting));
    }
    let (after, coordinator) = (look(&load)?, load.cost());
    let mut most = coordinator.most_rss_mb;
    while !load.ended()? {
        most = most.max(load.cost().most_rss_mb);
        ensure!(end.elapsed() < Duration::from_secs(60), "the coordinator did not end: {}", load.err());
        std::thread::sleep(Duration::from_millis(10));
    }
    let tail_s = end.elapsed().as_secs_f64();
    load.end(Duration::ZERO)?;
    let wall = (after.0 - before.0).as_secs_f64();
    let words = load.err();
    let run = words.split("run ").nth(1).and_then(|rest| rest.split(' ').next()).context("no run")?;
    Ok(Followed {
        document: serde_json::from_str(&std::fs::read_to_string(json)?)?,
        run: run.to_owned(),
        coordinator_cpu: (after.1 - before.1) / wall,
        coordinator: ProcessCost { most_rss_mb: most, ..coordinator },
        broker_cpu: (after.2 - before.2) / wall,
        broker: bus.program.cost(),
        agents_cpu: (after.3 - before.3) / wall,
        traffic: Traffic {
            bytes: (after.4.bytes - before.4.bytes) / wall,
            messages: (after.4.messages - before.4.messages) / wall,
        },
        pending,
        consumers,
        tail_s,
        start_s,
    })
}

fn sleep_until(moment: Instant) {
    std::thread::sleep(moment.saturating_duration_since(Instant::now()));
}

/// Agents as processes, each on these cores.
fn agents(b: &MachinesBench, bus: &NatsServer, cores: &[Option<usize>]) -> Result<Vec<BusProgram>> {
    let mut all = Vec::new();
    for (i, core) in cores.iter().enumerate() {
        let name = format!("agent-{i}");
        let mut command = match core {
            Some(core) => {
                let mut command = Command::new("taskset");
                command.args(["-c", &core.to_string()]).arg(&b.tools.linerate);
                command
            }
            None => Command::new(&b.tools.linerate),
        };
        command.args(["agent", "--nats", &bus.url, "--once", "--name", &name, "--spool"]);
        command.arg(bus.folder.path());
        all.push(BusProgram::start(command, bus.folder.path(), &name)?);
    }
    all.iter_mut().try_for_each(|agent| agent.says("waits for runs"))?;
    Ok(all)
}

/// Agents remove their spools when the run is complete: a second name keeps what they write.
fn keep_spools(bus: &NatsServer) -> Result<()> {
    let kept = bus.folder.path().join(KEPT);
    std::fs::create_dir_all(&kept)?;
    for (name, file) in files_named(bus.folder.path(), "linerate-")? {
        match std::fs::hard_link(&file, kept.join(name)) {
            Err(e) if e.kind() != std::io::ErrorKind::AlreadyExists => return Err(e.into()),
            _ => {}
        }
    }
    Ok(())
}

/// Names and paths of the files in a folder whose names begin so.
fn files_named(folder: &Path, begins: &str) -> Result<Vec<(String, PathBuf)>> {
    let mut files = Vec::new();
    for entry in std::fs::read_dir(folder)? {
        let (name, path) = entry.map(|e| (e.file_name().to_string_lossy().into_owned(), e.path()))?;
        if name.starts_with(begins) && path.is_file() {
            files.push((name, path));
        }
    }
    Ok(files)
}

/// The spool files of a run, one for each agent.
fn spools(bus: &NatsServer, run: &str, agents: usize) -> Result<Vec<PathBuf>> {
    let files = files_named(&bus.folder.path().join(KEPT), &format!("linerate-{run}-"))?;
    ensure!(files.len() == agents, "{} spools of {agents} agents", files.len());
    Ok(files.into_iter().map(|(_, path)| path).collect())
}

/// When each agent's last thread began, seconds since 1970: all share this machine's clock.
fn begun(spool: &Path) -> Result<f64> {
    let text = std::fs::read_to_string(spool)?;
    let last: Value = serde_json::from_str(text.lines().last().context("an empty spool")?)?;
    let outcome = &last["word"]["final"]["outcome"];
    let seconds =
        |time: &Value, whole: &str, nanos: &str| Some((time[whole].as_f64()?, time[nanos].as_f64()? / 1e9));
    let start = seconds(&outcome["started_at"], "secs_since_epoch", "nanos_since_epoch");
    let late = seconds(&outcome["client"]["start_late"], "secs", "nanos");
    let ((whole, part), (late, nanos)) = start.zip(late).context("the last message has no start")?;
    // Whole seconds lose nothing of the microseconds.
    Ok((whole % 10_000.0) + part + late + nanos)
}

/// From the first agent's start to the last one's, milliseconds.
fn spread_ms(spools: &[PathBuf]) -> Result<f64> {
    let begun = spools.iter().map(|spool| begun(spool)).collect::<Result<Vec<f64>>>()?;
    let (first, last) = begun.iter().fold((f64::MAX, f64::MIN), |(a, b), t| (a.min(*t), b.max(*t)));
    Ok((last - first) * 1e3)
}

/// What the program with simulated agents says about a histogram.
fn told(out: &str) -> Result<Value> {
    Ok(serde_json::from_str(out.trim().lines().last().context("swarm said nothing")?)?)
}

/// The histogram of a run as it merges, from the broker's messages.
fn merged(b: &MachinesBench, bus: &NatsServer, run: &str) -> Result<Value> {
    told(&shell::output(shell::program(&b.swarm).args(["merge", &bus.url, run]))?)
}

fn same_histogram(what: &str, merged: &Value, single: &Value) -> AloneFinding {
    let buckets: BTreeSet<u64> =
        [merged, single].iter().filter_map(|histogram| histogram["buckets"].as_u64()).collect();
    let buckets: Vec<String> = buckets.iter().map(|n| thousands(*n as f64)).collect();
    let buckets = buckets.join(" and ");
    let samples = |histogram: &Value| thousands(histogram["samples"].as_f64().unwrap_or(0.0));
    let got = format!("{} and {} samples in {buckets} buckets", samples(merged), samples(single));
    let ok = merged["histogram"] == single["histogram"] && merged["samples"].as_u64() > Some(0);
    AloneFinding::new(what, "equal, bucket by bucket".to_owned(), got, ok)
}

fn complete(document: &Value) -> AloneFinding {
    let complete = &document["machines"]["complete"];
    AloneFinding::new("the result is complete", "true".to_owned(), complete.to_string(), *complete == true)
}

/// 16 real agents against one bare server that counts.
fn exact(b: &MachinesBench, page: &mut TablePage) -> Result<Vec<AloneFinding>> {
    let bus = NatsServer::start()?;
    let seconds = b.either(10, 5);
    let server = BenchServer::bare(&b.tools, bus.folder.path(), &[])?;
    let cores = std::thread::available_parallelism()?.get();
    let on: Vec<Option<usize>> = (0..AGENTS as usize).map(|i| Some(i % cores)).collect();
    let waiting = agents(b, &bus, &on)?;
    let words = format!("--agents {AGENTS} --threads 1 -c 64 --rate {RATE} http://{}/", server.address());
    let done = followed(b, &bus, &waiting, seconds, &words);
    let counted = server.end()?.requests.context("the server did not count")?;
    let done = done?;
    let requests = &done.document["requests"];
    let number = |name: &str| requests[name].as_u64().unwrap_or(0);
    let (sent, answered) = (number("sent"), number("answered"));
    let due = sent + number("unsent");
    let spools = spools(&bus, &done.run, AGENTS as usize)?;
    let merged = merged(b, &bus, &done.run)?;
    let sum = told(&shell::output(shell::program(&b.swarm).arg("sum").args(&spools))?)?;
    let kb = done.traffic.bytes / 1e3 / f64::from(AGENTS);
    let got = format!("{} sent, {} answered, the server counted {}", sent, answered, counted);
    let spread = spread_ms(&spools)?;
    let each = format!("{RATE} requests/s, {AGENTS} agents");
    page.add_block(costs(&each, AGENTS, &done, &bus)?);
    Ok(vec![
        complete(&done.document),
        AloneFinding::new(
            "counts",
            "those of the server".to_owned(),
            got,
            counted == answered && sent == answered,
        ),
        AloneFinding::new("due", format!("{}", RATE * seconds), format!("{due}"), due == RATE * seconds),
        same_histogram("merged outcomes, and all intervals of all spools", &merged, &sum),
        AloneFinding::new("start spread, 16 agents", "reported".to_owned(), format!("{spread:.2} ms"), true),
        traffic(kb),
    ])
}

fn traffic(kb: f64) -> AloneFinding {
    let wanted = format!("less than {TRAFFIC_AT_MOST_KB} kB/s");
    AloneFinding::new("control traffic per agent", wanted, format!("{kb:.1} kB/s"), kb < TRAFFIC_AT_MOST_KB)
}

/// One agent on each core, several times.
fn spread(b: &MachinesBench, _: &mut TablePage) -> Result<Vec<AloneFinding>> {
    let bus = NatsServer::start()?;
    let server = BenchServer::bare(&b.tools, bus.folder.path(), &[])?;
    let cores = std::thread::available_parallelism()?.get();
    let on: Vec<Option<usize>> = (0..cores).map(Some).collect();
    let mut spreads = Vec::new();
    for _ in 0..b.either(5, 2) {
        let waiting = agents(b, &bus, &on)?;
        let words =
            format!("--agents {cores} --threads 1 -c {cores} --rate {RATE} http://{}/", server.address());
        let done = followed(b, &bus, &waiting, 2, &words)?;
        spreads.push(spread_ms(&spools(&bus, &done.run, cores)?)?);
    }
    server.end()?;
    let most = spreads.iter().copied().fold(0.0, f64::max);
    let all = spreads.iter().map(|ms| format!("{ms:.3}")).collect::<Vec<_>>().join(", ");
    Ok(vec![AloneFinding::new(
        "start spread",
        format!("at most {SPREAD_AT_MOST_MS} ms"),
        format!("{most:.3} ms (runs: {all})"),
        most <= SPREAD_AT_MOST_MS,
    )])
}

/// Runs simulated agents for some seconds; the load, and the single recorder of all samples.
fn simulated(b: &MachinesBench, bus: &NatsServer, agents: u32, seconds: u64) -> Result<(Followed, Value)> {
    let mut command = Command::new(&b.swarm);
    let spool = bus.folder.path().join("spool");
    std::fs::create_dir_all(&spool)?;
    command.args([&bus.url, &agents.to_string(), &SIMULATED_RATE.to_string()]).arg(&spool);
    let mut swarm = BusProgram::start(command, bus.folder.path(), "swarm")?;
    swarm.says("waiting")?;
    let rate = u64::from(agents) * SIMULATED_RATE;
    // The target is never asked: the agents only say that they measured.
    let words = format!("--agents {agents} --threads 1 -c {agents} --rate {rate} http://127.0.0.1:9/");
    let mut waiting = vec![swarm];
    let done = followed(b, bus, &waiting, seconds, &words)?;
    waiting[0].end(Duration::from_secs(60))?;
    let single = told(&waiting[0].out())?;
    Ok((done, single))
}

fn coordinator(b: &MachinesBench, page: &mut TablePage) -> Result<Vec<AloneFinding>> {
    let bus = NatsServer::start()?;
    let (done, single) = simulated(b, &bus, 64, b.either(30, 10))?;
    let cpu = done.coordinator_cpu;
    page.add_block(costs("64 simulated agents", 64, &done, &bus)?);
    Ok(vec![
        complete(&done.document),
        same_histogram("merged, and a single recorder", &merged(b, &bus, &done.run)?, &single),
        AloneFinding::new(
            "coordinator",
            format!("less than {:.0} % of a core", CPU_AT_MOST * 100.0),
            format!("{:.1} %", cpu * 100.0),
            cpu < CPU_AT_MOST,
        ),
        traffic(done.traffic.bytes / 1e3 / 64.0),
    ])
}

fn thousand(b: &MachinesBench, page: &mut TablePage) -> Result<Vec<AloneFinding>> {
    const MANY: u32 = 1000;
    let bus = NatsServer::start()?;
    let (done, single) = simulated(b, &bus, MANY, b.either(60, 12))?;
    page.add_block(costs("1,000 simulated agents", MANY, &done, &bus)?);
    let seconds = f64::from(MANY);
    Ok(vec![
        complete(&done.document),
        same_histogram("merged, and a single recorder", &merged(b, &bus, &done.run)?, &single),
        AloneFinding::new(
            "messages that wait for the coordinator, at most",
            format!("those of one second, {}", thousands(seconds)),
            thousands(done.pending as f64),
            done.pending as f64 <= seconds,
        ),
        AloneFinding::new(
            "from the planned end to the whole result",
            format!("at most {TAIL_AT_MOST_S} s"),
            format!("{:.1} s", done.tail_s),
            done.tail_s <= TAIL_AT_MOST_S,
        ),
        traffic(done.traffic.bytes / 1e3 / seconds),
    ])
}

/// What a run cost, as a table.
fn costs(what: &str, agents: u32, done: &Followed, bus: &NatsServer) -> Result<String> {
    let stored = bus.stored()?;
    let percent = |share: f64| format!("{:.1} % of a core", share * 100.0);
    let each = f64::from(agents);
    let rows = [
        ("coordinator", percent(done.coordinator_cpu)),
        ("coordinator's memory", format!("{:.0} MB", done.coordinator.most_rss_mb)),
        ("nats-server", percent(done.broker_cpu)),
        ("nats-server's memory", format!("{:.0} MB", done.broker.most_rss_mb)),
        ("agents, all together", percent(done.agents_cpu)),
        ("traffic of an agent, both directions", format!("{:.2} kB/s", done.traffic.bytes / 1e3 / each)),
        ("messages of an agent, both directions", format!("{:.1} /s", done.traffic.messages / each)),
        ("stream of results", format!("{:.1} MB", stored.bytes / 1e6)),
        ("a message in it", format!("{:.2} kB", stored.bytes / 1e3 / stored.messages.max(1.0))),
        ("consumers on the broker, at most", done.consumers.to_string()),
        ("messages that waited for the coordinator, at most", done.pending.to_string()),
        ("from the command to the order to start", format!("{:.1} s", done.start_s)),
        ("from the planned end to the whole result", format!("{:.1} s", done.tail_s)),
    ];
    let rows: Vec<String> = rows.iter().map(|(name, value)| format!("| {name} | {value} |")).collect();
    Ok(as_table(&format!("| {what} | |"), &rows))
}
