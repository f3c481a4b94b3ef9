//! `bench stack`: user-space TCP over AF_XDP compared with the kernel's, both ends on this machine,
//! over veth in separate namespaces.

mod scale;
mod scenario;
mod serving;
mod transfer;

use anyhow::{Result, ensure};
use scale::{SCALES, ScaleScenario};
use scenario::{LOAD_EPOLL, NGINX, PORT, SCENARIOS, StackScenario};
use serde_json::Value;
use serving::{GRACE_S, start};

use super::cable::{CLIENT, Cable, FROM, SERVER};
use super::ends::{BusyCores, HEAD, row};
use super::round::{ProgramRun, in_turns, measured};
use super::table::{TablePage, as_table};
use super::{CommonBenchOptions, Tools, alone_on_this_machine, build_released, chosen, circumstances};
use super::{in_own_namespace, outside, typed};
use xtask::shell;

/// At a thousand connections no more of them than this share may need a retransmission.
const SENT_AGAIN: f64 = 0.001;

/// What to measure.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct StackBenchOptions {
    #[command(flatten)]
    common: CommonBenchOptions,
}

/// Measures; `false` when a binding figure was missed.
pub(crate) fn run(options: &StackBenchOptions) -> Result<bool> {
    let common = &options.common;
    if common.list {
        SCENARIOS.iter().for_each(|s| println!("{:<14} {}", s.name, s.what));
        SCALES.iter().for_each(|s| println!("{:<14} {}", s.name, s.what));
        return Ok(true);
    }
    let (scenarios, scales) = wanted(&common.only)?;
    if outside() {
        ensure!(shell::is_root(), "bench stack needs root: namespaces and AF_XDP");
        build_released(&["linerate-bench-raw", "linerate-cli"])?;
        return in_own_namespace();
    }
    let _alone = alone_on_this_machine()?;
    let tools = Tools::new(common, "", false)?;
    let cable = Cable::lay()?;
    let head = format!("`cargo xtask bench stack {}`\n\n{}", typed(common), circumstances(&tools));
    let mut page = TablePage::new(head);
    for s in scenarios {
        println!("\n{}: {}", s.name, s.what);
        let (table, runs) = match s.transfer {
            Some(what) => {
                let runs = transfer::run_all(&tools, s, what);
                (transfer::table(s, &runs), runs)
            }
            None => in_turns_of(&tools, &cable, s),
        };
        page.add_block(table);
        page.add_compared(s.name, s.what, s.wants, &runs);
        // Written after each scenario, so that an interrupted run loses no measurement.
        page.write(common.out.as_deref())?;
    }
    for s in scales {
        s.add(&tools, &cable, &mut page);
        page.write(common.out.as_deref())?;
    }
    println!("\n{}", page.markdown());
    Ok(page.all_reached())
}

/// Many requests: all rounds, and what came out.
fn in_turns_of(tools: &Tools, cable: &Cable, s: &StackScenario) -> (String, Vec<ProgramRun>) {
    let (there, absent): (Vec<&str>, Vec<&str>) =
        s.who.iter().partition(|who| **who != NGINX || shell::find("nginx").is_some());
    absent.iter().for_each(|who| println!("  {who} is not installed: left out"));
    let runs = in_turns(tools.rounds, &there, |who, round| one(tools, cable, s, who, round));
    let rows: Vec<String> = s.who.iter().map(|who| format!("{} |", row(who, &runs))).collect();
    (as_table(&format!("| {} | {HEAD} |", s.what), &rows), runs)
}

/// The paired scenarios, and those of scale.
fn wanted(only: &[String]) -> Result<(Vec<&'static StackScenario>, Vec<&'static ScaleScenario>)> {
    let is_scale = |name: &String| SCALES.iter().any(|s| s.name == name);
    let (large, in_turns): (Vec<String>, Vec<String>) = only.iter().cloned().partition(is_scale);
    let all = only.is_empty();
    let scenarios =
        if all || !in_turns.is_empty() { chosen(&in_turns, SCENARIOS, |s| s.name)? } else { Vec::new() };
    let scales = if all || !large.is_empty() { chosen(&large, SCALES, |s| s.name)? } else { Vec::new() };
    Ok((scenarios, scales))
}

fn one(t: &Tools, cable: &Cable, s: &StackScenario, who: &'static str, round: usize) -> Result<ProgramRun> {
    // All runs come from one address, as a user's do: what TIME_WAIT remembers of the last one must not be in the way.
    let from = format!("{FROM}9");
    let dir = tempfile::tempdir()?;
    let _serving = start(t, cable, who, s.body, dir.path())?;
    let mut command = vec![t.linerate.display().to_string()];
    let json = dir.path().join("outcome.json");
    let mut flags =
        format!("load -t 1 --quiet -c {} -d {}s --json {}", s.connections, t.seconds, json.display());
    if s.per_connection > 0 {
        flags += &format!(" --per-connection {}", s.per_connection);
    }
    if s.rate > 0 {
        flags += &format!(" --rate {}", s.rate);
    }
    flags += &match who {
        LOAD_EPOLL => " --io epoll".to_owned(),
        _ => format!(" --io xdp --interface {} --from {from}", CLIENT.0),
    };
    let path = if who == NGINX { String::new() } else { format!("bytes/{}", s.body) };
    flags += &format!(" http://{}:{PORT}/{path}", SERVER.1);
    command.extend(flags.split(' ').map(str::to_owned));
    let before = BusyCores::now(t)?;
    let (_, cost) = measured(t, &command, t.seconds + GRACE_S, dir.path())?;
    let busy = BusyCores::now(t)?.since(before);
    let outcome: Value = serde_json::from_str(&std::fs::read_to_string(json)?)?;
    let n = |pointer: &str| outcome.pointer(pointer).and_then(Value::as_f64).unwrap_or(0.0);
    let answered = n("/requests/answered");
    Ok(ProgramRun {
        program: who,
        round,
        rate: n("/rate_rps"),
        answered: answered as u64,
        server_requests: None,
        cpu_us: busy.each_us(answered),
        p99_us: None,
        user_kb: None,
        server_busy: busy.server_s / cost.wall_s,
        client_busy: busy.client_s / cost.wall_s,
        waited: cost.delay_s / cost.wall_s,
        max_rss_kb: cost.max_rss_kb,
        fault: fault(s, &n),
    })
}

/// No connection may fail, and hardly one may need a retransmission.
fn fault(s: &StackScenario, n: &impl Fn(&str) -> f64) -> Option<String> {
    let lost = n("/requests/failed") + n("/requests/unknown");
    let opened = n("/connections/opened");
    if lost > 0.0 {
        return Some(format!("{lost} requests failed or are unknown"));
    }
    // Of many requests on one connection each counts.
    let units = if s.per_connection == 0 { n("/requests/answered") } else { opened };
    let again = n("/tcp/retransmits");
    (again > units * SENT_AGAIN).then(|| format!("{again} segments sent again in {units} exchanges"))
}
