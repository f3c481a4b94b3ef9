//! `bench bypass`: nginx and redis, unchanged, on user-space TCP compared with the same programs on the
//! kernel's sockets, over veth in separate namespaces.

mod configuration;
mod scenario;
mod serving;

use std::path::Path;

use anyhow::{Context, Result, ensure};
use scenario::{BYPASS, BypassScenario, BypassServer, KERNEL, SCENARIOS};
use serde::Serialize;
use serde_json::{Value, json};
use serving::{PORT, ServedCounts, UnchangedProgram, raise_queues, resent};

use super::cable::{CLIENT, Cable, FROM, SERVER};
use super::contender::{Contender, ContenderReport};
use super::ends::{BusyCores, HEAD, row};
use super::round::{ProgramRun, in_turns, measured};
use super::table::{TablePage, as_table, thousands};
use super::{CommonBenchOptions, Tools, alone_on_this_machine, build_released, chosen, circumstances};
use super::{in_own_namespace, outside, typed};
use xtask::shell;

/// Beyond the planned time a client gets this long to end by itself, seconds.
const GRACE_S: f64 = 10.0;
/// A run of ours counts if at least this share of its connections was in user space.
const IN_USER_SPACE: f64 = 0.99;
/// Requests by which redis' speed is guessed: redis-benchmark takes a number of them, and no time.
const GUESSED_BY: u64 = 20_000;

/// What to measure.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct BypassBenchOptions {
    #[command(flatten)]
    common: CommonBenchOptions,
}

/// What both ends of a run counted.
#[derive(Clone, Copy, Debug, Serialize)]
struct BypassRunCounts {
    program: &'static str,
    round: usize,
    served: ServedCounts,
    resent_by_client: u64,
}

/// Measures; `false` when a binding figure was missed.
pub(crate) fn run(options: &BypassBenchOptions) -> Result<bool> {
    let common = &options.common;
    if common.list {
        SCENARIOS.iter().for_each(|s| println!("{:<14} {}", s.name, s.what));
        return Ok(true);
    }
    let scenarios = chosen(&common.only, SCENARIOS, |s| s.name)?;
    if outside() {
        ensure!(shell::is_root(), "bench bypass needs root: namespaces and AF_XDP");
        build_released(&["linerate-bench-raw", "linerate-cli", "linerate-bypass"])?;
        return in_own_namespace();
    }
    let _alone = alone_on_this_machine()?;
    let tools = Tools::new(common, "", false)?;
    let cable = Cable::lay()?;
    raise_queues(&cable)?;
    let head = format!("`cargo xtask bench bypass {}`\n\n{}", typed(common), circumstances(&tools));
    let mut page = TablePage::new(head);
    for s in scenarios {
        println!("\n{}: {}", s.name, s.what);
        let mut counts = Vec::new();
        let runs = in_turns(tools.rounds, &[BYPASS, KERNEL], |who, round| {
            let (run, counted) = one(&tools, &cable, s, who, round)?;
            counts.push(counted);
            Ok(run)
        });
        page.add_block(table(s, &runs, &counts));
        page.add_compared(s.name, s.what, &s.wants, &runs);
        page.add_counts(s.name, json!(counts));
        // Written after each scenario, so that an interrupted run loses no measurement.
        page.write(common.out.as_deref())?;
    }
    println!("\n{}", page.markdown());
    Ok(page.all_reached())
}

fn table(s: &BypassScenario, runs: &[ProgramRun], counts: &[BypassRunCounts]) -> String {
    let line = |who: &&str| {
        let of = || counts.iter().filter(|c| c.program == *who);
        let sum = |part: fn(&BypassRunCounts) -> u64| thousands(of().map(part).sum::<u64>() as f64);
        let (server, client) = (sum(|c| c.served.resent), sum(|c| c.resent_by_client));
        let shares = of().filter_map(|c| c.served.in_user_space);
        let share = shares.reduce(f64::min).map_or("-".to_owned(), |least| format!("{:.2} %", least * 100.0));
        format!("{} | {share} | {server} | {client} |", row(who, runs))
    };
    let head = format!(
        "| {} | {HEAD} | least share of connections in user space | segments resent by the server, all rounds | by the client |",
        s.what
    );
    as_table(&head, &[BYPASS, KERNEL].iter().map(line).collect::<Vec<_>>())
}

fn one(
    t: &Tools,
    cable: &Cable,
    s: &BypassScenario,
    who: &'static str,
    round: usize,
) -> Result<(ProgramRun, BypassRunCounts)> {
    let dir = tempfile::tempdir()?;
    let program = UnchangedProgram::start(t, cable, s, who, dir.path())?;
    let seen = seen(t, cable, s, &program, who, round);
    let ended = program.end();
    let seen = seen?;
    ended?;
    Ok(seen)
}

/// A client's run, as the client, both cores and the server saw it.
fn seen(
    t: &Tools,
    cable: &Cable,
    s: &BypassScenario,
    program: &UnchangedProgram,
    who: &'static str,
    round: usize,
) -> Result<(ProgramRun, BypassRunCounts)> {
    let dir = program.folder();
    let command = match s.server {
        BypassServer::Nginx(path) => load(t, s, path, dir),
        BypassServer::Redis => redis(t, s, dir)?,
    };
    let kernel_before = resent_here()?;
    let before = BusyCores::now(t)?;
    let (out, cost) = measured(t, &command, t.seconds + GRACE_S, dir)?;
    let busy = BusyCores::now(t)?.since(before);
    let (said, resent_by_client) = match s.server {
        BypassServer::Nginx(_) => {
            let json = std::fs::read_to_string(dir.join("outcome.json"))?;
            (Contender::Linerate.said(&out, dir)?, resent_by_load(&json)?)
        }
        BypassServer::Redis => (said_by_redis(&out, &command)?, resent_here()?.saturating_sub(kernel_before)),
    };
    let served = program.counts(t, cable)?;
    let run = ProgramRun {
        program: who,
        round,
        rate: said.rate,
        answered: said.answered,
        server_requests: served.requests,
        cpu_us: busy.each_us(said.answered as f64),
        p99_us: None,
        user_kb: None,
        server_busy: busy.server_s / cost.wall_s,
        client_busy: busy.client_s / cost.wall_s,
        waited: cost.delay_s / cost.wall_s,
        max_rss_kb: cost.max_rss_kb,
        fault: fault(&said, &served),
    };
    Ok((run, BypassRunCounts { program: who, round, served, resent_by_client }))
}

/// nginx's client: user-space TCP for both sides, so that it is not the limit.
fn load(t: &Tools, s: &BypassScenario, path: &str, dir: &Path) -> Vec<String> {
    let json = dir.join("outcome.json");
    let mut flags = format!(
        "load -t 1 --quiet -c {} -d {}s --json {} --io xdp --interface {} --from {FROM}9",
        s.connections,
        t.seconds,
        json.display(),
        CLIENT.0
    );
    if s.per_connection > 0 {
        flags += &format!(" --per-connection {}", s.per_connection);
    }
    flags += &format!(" http://{}:{PORT}{path}", SERVER.1);
    let mut words = vec![t.linerate.display().to_string()];
    words.extend(flags.split(' ').map(str::to_owned));
    words
}

/// redis' client, with as many requests as take the planned time.
fn redis(t: &Tools, s: &BypassScenario, dir: &Path) -> Result<Vec<String>> {
    let program = shell::find("redis-benchmark").context("redis-benchmark is not installed")?;
    let words = |test: &str, requests: u64| -> Vec<String> {
        let flags = format!("-h {} -p {PORT} -c {} -n {requests} --csv -t {test}", SERVER.1, s.connections);
        std::iter::once(program.display().to_string()).chain(flags.split(' ').map(str::to_owned)).collect()
    };
    // It sets the key that is asked for.
    let guess = words("set", GUESSED_BY);
    let (out, _) = measured(t, &guess, GRACE_S, dir)?;
    let rate = said_by_redis(&out, &guess)?.rate;
    Ok(words("get", ((rate * t.seconds) as u64).max(1)))
}

/// Segments that user-space TCP has sent again, by the JSON of `linerate load`. The fate of all requests is known.
fn resent_by_load(json: &str) -> Result<u64> {
    let outcome: Value = serde_json::from_str(json)?;
    let n = |pointer: &str| {
        outcome.pointer(pointer).and_then(Value::as_u64).with_context(|| format!("no {pointer} in the JSON"))
    };
    let unknown = n("/requests/unknown")?;
    ensure!(unknown == 0, "the fate of {unknown} requests is unknown");
    n("/tcp/retransmits")
}

/// The second line of its CSV: the test's name and the requests per second. It sends as many as it is told to.
fn said_by_redis(out: &str, command: &[String]) -> Result<ContenderReport> {
    let row = out.lines().nth(1).and_then(|line| line.split(',').nth(1));
    let rate = row.and_then(|rate| rate.trim_matches('"').parse().ok());
    let rate = rate.with_context(|| format!("redis-benchmark said nothing that can be read:\n{out}"))?;
    let count = command.iter().skip_while(|word| *word != "-n").nth(1).and_then(|count| count.parse().ok());
    Ok(ContenderReport { rate, answered: count.context("no number of requests")?, slack: 0 })
}

/// Segments that the kernel of this namespace, the client's, has sent again.
fn resent_here() -> Result<u64> {
    resent(&std::fs::read_to_string("/proc/net/snmp")?)
}

/// Why a run does not count.
fn fault(said: &ContenderReport, served: &ServedCounts) -> Option<String> {
    if let Some(share) = served.in_user_space.filter(|share| *share < IN_USER_SPACE) {
        return Some(format!("only {:.2} % of the connections were in user space", share * 100.0));
    }
    let (least, most) = (said.answered, said.answered + said.slack);
    let counted = served.requests.filter(|n| !(least..=most).contains(n))?;
    Some(format!("{least} answered and at most {most} sent, the server's log has {counted}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    const SAID: ContenderReport = ContenderReport { rate: 50.0, answered: 100, slack: 3 };

    fn served(in_user_space: Option<f64>, requests: Option<u64>) -> ServedCounts {
        ServedCounts { resent: 0, in_user_space, requests }
    }

    #[test]
    fn a_run_counts_if_its_connections_were_in_user_space_and_the_log_agrees() {
        for (in_user_space, requests) in [(Some(0.99), Some(100)), (None, Some(103)), (Some(1.0), None)] {
            assert_eq!(fault(&SAID, &served(in_user_space, requests)), None);
        }
        for (in_user_space, requests) in [(Some(0.989), Some(100)), (None, Some(99)), (Some(1.0), Some(104))]
        {
            assert!(
                fault(&SAID, &served(in_user_space, requests)).is_some(),
                "{in_user_space:?} {requests:?}"
            );
        }
    }

    #[test]
    fn what_the_clients_say() {
        let csv = "\"test\",\"rps\",\"avg_latency_ms\"\n\"GET\",\"81632.65\",\"0.3\"\n";
        let said =
            said_by_redis(csv, &["redis-benchmark", "-n", "40000"].map(str::to_owned)).expect("a rate");
        assert_eq!((said.rate, said.answered), (81_632.65, 40_000));
        assert!(said_by_redis("Could not connect\n", &[]).is_err());
        let outcome = |unknown: u64| {
            json!({ "tcp": { "retransmits": 2 }, "requests": { "unknown": unknown } }).to_string()
        };
        assert_eq!(resent_by_load(&outcome(0)).expect("a number"), 2);
        assert!(resent_by_load(&outcome(1)).is_err() && resent_by_load("{}").is_err());
    }
}
