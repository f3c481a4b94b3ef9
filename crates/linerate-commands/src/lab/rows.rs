//! The rows of a scenario: servers are started, rows run in turns, and whatever happens the rounds
//! that were measured are handed back.

use std::collections::BTreeMap;
use std::io::{IsTerminal, Write, stderr};
use std::time::SystemTime;

use linerate_lab::figures::RunFigures;
use linerate_lab::scenario::{LabScenario, RowGroup, ScenarioRow, ServerPart};
use linerate_lab::servers::pin_this_thread;
use linerate_lab::veth::{self, VethPair};
use linerate_load::Plan;
use linerate_load::plan::Way;
use linerate_load::plan::file::PlanFile;
use linerate_net::machine;
use linerate_netbox::LineShape;
use linerate_report::schema::lab as schema;
use linerate_report::{lab, units};

use super::launch::{LabNetwork, Started, started};
use super::{heads, seen};
use crate::args::{LabArgs, LoadArgs};
use crate::compare::{first_line, flags_of_load, one_run};
use crate::environment;
use crate::fault::CommandFault;
use crate::line::LaidLine;
use crate::load::{Interrupt, plan};
use crate::terminal;
use crate::ways::{self, Seen};

/// Stands for the address of a server that does not run yet.
const NOT_YET: &str = "127.0.0.1:1/";

/// Whether all flags of the rows are flags of `load`, before anything is started.
pub(super) fn check(scenario: &LabScenario) -> Result<(), CommandFault> {
    for group in &scenario.groups {
        for row in &group.rows {
            let scheme = scenario.server(&row.server).map_or("http", ServerPart::scheme);
            plan_of(scenario, group, row, &format!("{scheme}://{NOT_YET}"))?;
        }
    }
    Ok(())
}

/// Says beforehand how long it takes.
pub(super) fn announce(scenario: &LabScenario, args: &LabArgs) -> Result<(), CommandFault> {
    let time = scenario.planned().map_err(CommandFault::input)?;
    let rows: usize = scenario.groups.iter().map(|g| g.rows.len()).sum();
    if !args.quiet {
        let rows = units::several(rows as u64, "row", "rows");
        let rounds = units::several(u64::from(scenario.rounds), "round", "rounds");
        let time = units::time_us(time.as_secs_f64() * 1e6, true);
        let _ = writeln!(stderr(), "{rows}, {rounds} of each: about {time}");
    }
    Ok(())
}

/// The plan of a row towards a server at `url`.
fn plan_of(
    scenario: &LabScenario,
    group: &RowGroup,
    row: &ScenarioRow,
    url: &str,
) -> Result<Plan, CommandFault> {
    let flags = flags(group, row);
    let wrong = |why: &str| {
        CommandFault::input(format!("group {:?}, row {:?}: load = {flags:?}: {why}", group.name, row.name))
    };
    let words = shell_words::split(&flags).map_err(|_| wrong("a quote is not closed"))?;
    let args: LoadArgs = flags_of_load(&words).map_err(|e| wrong(&first_line(&e)))?;
    if args.url.is_some() || args.duration.is_some() || args.requests.is_some() {
        return Err(wrong("URL and duration are the scenario's")
            .hint("write duration at the top, and path at the row or its group"));
    }
    if args.line.is_some() {
        return Err(wrong("a line is the group's").hint("write line = \"26ms,loss=1%\" at the group"));
    }
    let path = row.path.as_ref().or(group.path.as_ref());
    let (run, warm_up) = scenario.times().map_err(CommandFault::input)?;
    let url = path.map_or_else(|| url.to_owned(), |path| format!("{}{path}", origin(url)));
    let args =
        LoadArgs { url: Some(url), duration: Some(run), warm_up: args.warm_up.or(Some(warm_up)), ..args };
    let file = match group.requests().map_err(CommandFault::input)? {
        Some(_) if args.plan.is_some() => return Err(wrong("the group has a plan")),
        None => args.plan.as_deref().map(PlanFile::load).transpose().map_err(CommandFault::input)?,
        file => file,
    };
    let meaning =
        plan::of_file(&args, file).map_err(|fault| wrong(fault.to_string().trim_start_matches("error: ")))?;
    Ok(meaning.plan)
}

/// The flags of a row, with the client's end of the veth pair filled in.
fn flags(group: &RowGroup, row: &ScenarioRow) -> String {
    let all = format!("{} {}", group.load, row.load);
    let all = if group.veth {
        all.replace("{interface}", veth::CLIENT.0).replace("{from}", veth::FROM)
    } else {
        all
    };
    all.trim().to_owned()
}

/// `http://HOST:PORT` of a URL.
pub(super) fn origin(url: &str) -> &str {
    let begins = url.find("://").map_or(0, |at| at + 3);
    let ends = url[begins..].find('/').map_or(url.len(), |at| begins + at);
    &url[..ends]
}

/// Runs all groups.
pub(super) fn measure(
    scenario: &LabScenario,
    args: &LabArgs,
    interrupt: &Interrupt,
) -> Result<schema::Document, CommandFault> {
    let (run, warm_up) = scenario.times().map_err(CommandFault::input)?;
    let mut document = schema::Document {
        schema: schema::SCHEMA.to_owned(),
        scenario: scenario.name.clone(),
        about: scenario.about.clone(),
        started_at: Some(linerate_report::json::rfc3339(SystemTime::now())),
        rounds_planned: scenario.rounds,
        run_s: run.as_secs_f64(),
        warm_up_s: warm_up.as_secs_f64(),
        server_cores: Vec::new(),
        groups: Vec::new(),
        left_out: Vec::new(),
        warnings: Vec::new(),
        interrupted: false,
        environment: linerate_report::json::environment(&environment::here(), ""),
    };
    let cores = places(scenario, args, &mut document);
    for group in &scenario.groups {
        if interrupt.asked() {
            break;
        }
        let run = (args, cores.as_slice());
        let measured = match group.line {
            Some(line) => over_line(scenario, group, line, run, interrupt, &mut document)?,
            None if group.veth => over_veth(scenario, group, run, interrupt, &mut document)?,
            None => one_group(scenario, group, (args, &cores, LabNetwork::Here), interrupt, &mut document)?,
        };
        document.groups.push(measured);
    }
    document.interrupted = interrupt.asked();
    Ok(document)
}

/// The same in network namespaces of their own. Where there are none, all rows are left out.
fn over_veth(
    scenario: &LabScenario,
    group: &RowGroup,
    (args, cores): (&LabArgs, &[usize]),
    interrupt: &Interrupt,
    document: &mut schema::Document,
) -> Result<schema::Group, CommandFault> {
    let work = |pair: &VethPair| {
        one_group(scenario, group, (args, cores, LabNetwork::Veth(pair)), interrupt, document)
    };
    match veth::inside(work) {
        Ok(measured) => measured,
        Err(trouble) => {
            let name = args.scenario.as_deref().unwrap_or_default();
            let (why, install) = match trouble {
                veth::VethTrouble::NotRoot => (format!("{trouble}; run: sudo linerate lab {name}"), ""),
                veth::VethTrouble::Missing => (trouble.to_string(), "apt install iproute2 util-linux"),
                veth::VethTrouble::Other(_) => (trouble.to_string(), ""),
            };
            Ok(left_out(group, &why, install, document))
        }
    }
}

/// The same over a shaped line. Where there is none, all rows are left out.
fn over_line(
    scenario: &LabScenario,
    group: &RowGroup,
    line: LineShape,
    (args, cores): (&LabArgs, &[usize]),
    interrupt: &Interrupt,
    document: &mut schema::Document,
) -> Result<schema::Group, CommandFault> {
    let laid = match LaidLine::lay(line) {
        Ok(laid) => laid,
        Err(fault) => {
            let why = fault.to_string();
            let why = why.lines().next().unwrap_or_default().trim_start_matches("error: ");
            return Ok(left_out(group, why, "", document));
        }
    };
    let mut measured = laid.inside(|| {
        let network = LabNetwork::Line(&laid);
        one_group(scenario, group, (args, cores, network), interrupt, document)
    })?;
    for doubt in laid.doubts() {
        if !document.warnings.contains(&doubt) {
            document.warnings.push(doubt);
        }
    }
    measured.line = Some(laid.document());
    Ok(measured)
}

/// Leaves out all rows of a group, for one reason.
fn left_out(group: &RowGroup, why: &str, install: &str, document: &mut schema::Document) -> schema::Group {
    document.left_out.extend(group.rows.iter().map(|row| schema::LeftOut {
        group: group.name.clone(),
        row: row.name.clone(),
        why: why.to_owned(),
        install: install.to_owned(),
    }));
    schema::Group { name: group.name.clone(), about: group.about.clone(), ..schema::Group::default() }
}

/// Gives servers that are started the first half of the cores, and the client the others.
fn places(scenario: &LabScenario, args: &LabArgs, document: &mut schema::Document) -> Vec<usize> {
    let cores = machine::allowed_cores();
    if args.no_pin || scenario.servers.iter().all(|s| s.command.is_none()) {
        return Vec::new();
    }
    if cores.len() < 2 {
        document.warnings.push("servers and client share one core: every figure is of both".to_owned());
        return Vec::new();
    }
    let (servers, client) = cores.split_at(cores.len() / 2);
    if let Err(why) = pin_this_thread(client) {
        let text = format!("servers and client were not given cores of their own: {why}");
        document.warnings.push(text);
        return Vec::new();
    }
    document.server_cores = servers.to_vec();
    servers.to_vec()
}

/// A row with the runs that it has so far.
struct ReadyRow<'a> {
    row: &'a ScenarioRow,
    plan: Plan,
    runs: Vec<RunFigures>,
    sending: String,
}

fn one_group(
    scenario: &LabScenario,
    group: &RowGroup,
    (args, cores, network): (&LabArgs, &[usize], LabNetwork<'_>),
    interrupt: &Interrupt,
    document: &mut schema::Document,
) -> Result<schema::Group, CommandFault> {
    let delay = group.delay().map_err(CommandFault::input)?;
    let mut servers: BTreeMap<&str, Started> = BTreeMap::new();
    let mut missing: BTreeMap<&str, (String, String)> = BTreeMap::new();
    let mut rows: Vec<ReadyRow<'_>> = Vec::new();
    for row in &group.rows {
        let Some(part) = scenario.server(&row.server) else { continue };
        if !servers.contains_key(row.server.as_str()) && !missing.contains_key(row.server.as_str()) {
            tell(args, &format!("{}: starting {}", group.name, part.name));
            match started(part, delay, (args, cores, network), interrupt) {
                Ok(started) => drop(servers.insert(&row.server, started)),
                Err(why) => drop(missing.insert(&row.server, why)),
            }
        }
        if interrupt.asked() {
            break;
        }
        if let Some((why, install)) = missing.get(row.server.as_str()) {
            document.left_out.push(schema::LeftOut {
                group: group.name.clone(),
                row: row.name.clone(),
                why: why.clone(),
                install: install.clone(),
            });
        } else if let Some(started) = servers.get(row.server.as_str()) {
            let plan = plan_of(scenario, group, row, &started.url)?;
            rows.push(ReadyRow { row, plan, runs: Vec::new(), sending: String::new() });
        }
    }
    in_turns((scenario, group), &mut rows, &servers, (args, interrupt), document)?;
    tell(args, "");
    let first: Option<Vec<RunFigures>> = rows.first().map(|r| r.runs.clone());
    warn(&mut document.warnings, group, &rows, document.server_cores.len());
    let words = match &group.quick {
        Some(name) => heads::words(
            &rows.iter().map(|r| heads::HeldUpRow::of(name, &r.plan, &r.runs)).collect::<Vec<_>>(),
            group.line,
        ),
        None => words(&rows, document.server_cores.len()),
    };
    let cores_of = |ready: &ReadyRow<'_>| scenario.server(&ready.row.server).and_then(|part| part.cores);
    let shown = |(i, ready): (usize, &ReadyRow<'_>)| schema::Row {
        about: format!("{} {}", ready.row.about, words[i]).trim().to_owned(),
        ..shown(ready, group, cores_of(ready), first.as_deref().filter(|_| i > 0))
    };
    Ok(schema::Group {
        name: group.name.clone(),
        about: group.about.clone(),
        relay_ms: delay.map(|d| d.as_secs_f64() * 1e3),
        line: None,
        rows: rows.iter().enumerate().map(shown).collect(),
    })
}

/// What was seen of each row, beside the others of its server.
fn words(rows: &[ReadyRow<'_>], server_cores: usize) -> Vec<String> {
    let client = if server_cores == 0 { 0 } else { machine::allowed_cores().len() };
    let cores = seen::Cores { server: server_cores, client };
    let all: Vec<Seen> = rows.iter().map(|r| seen::of(&r.row.name, &r.plan, &r.runs, cores)).collect();
    let others = |i: usize| {
        let beside = rows.iter().enumerate().filter(|(j, r)| *j != i && r.row.server == rows[i].row.server);
        beside.map(|(j, _)| all[j].clone()).collect::<Vec<_>>()
    };
    all.iter().enumerate().map(|(i, seen)| ways::in_a_group(seen, &others(i))).collect()
}

/// Runs the rows of a group in turns: forwards, then backwards.
fn in_turns(
    (scenario, group): (&LabScenario, &RowGroup),
    rows: &mut [ReadyRow<'_>],
    servers: &BTreeMap<&str, Started>,
    (args, interrupt): (&LabArgs, &Interrupt),
    document: &mut schema::Document,
) -> Result<(), CommandFault> {
    for round in 0..scenario.rounds {
        let forwards = round.is_multiple_of(2);
        let order: Vec<usize> =
            if forwards { (0..rows.len()).collect() } else { (0..rows.len()).rev().collect() };
        for i in order {
            let ready = &mut rows[i];
            tell(
                args,
                &format!("{}: round {} of {}, {}", group.name, round + 1, scenario.rounds, ready.row.name),
            );
            let server = servers.get(ready.row.server.as_str()).and_then(|s| s.server.as_ref());
            let (run, how) = match one_run(&ready.plan, server, interrupt, &mut |_, _| ()) {
                Ok(Some(done)) => done,
                Ok(None) => break,
                Err(fault) if round == 0 && document.groups.is_empty() => return Err(fault),
                // The rounds measured before are reported.
                Err(fault) => {
                    let why = fault.to_string().replace('\n', " ");
                    document.warnings.push(format!("{}, {}: {why}", group.name, ready.row.name));
                    whole_rounds(rows);
                    return Ok(());
                }
            };
            ready.sending = how.words;
            document.environment.io = how.io;
            ready.runs.push(run);
        }
        if interrupt.asked() {
            break;
        }
    }
    whole_rounds(rows);
    Ok(())
}

/// A round that did not come to its end counts for no row.
fn whole_rounds(rows: &mut [ReadyRow<'_>]) {
    let whole = rows.iter().map(|r| r.runs.len()).min().unwrap_or(0);
    rows.iter_mut().for_each(|r| r.runs.truncate(whole));
}

/// Where the client was the limit, or had no core, a server is not measured.
fn warn(warnings: &mut Vec<String>, group: &RowGroup, rows: &[ReadyRow<'_>], server_cores: usize) {
    let limited = |_: &ReadyRow<'_>, run: &RunFigures| run.client_limit.is_some();
    // Blocking threads share cores among themselves, so their waiting proves nothing.
    let waited =
        |ready: &ReadyRow<'_>, run: &RunFigures| run.client_waited > 0.2 && ready.plan.way == Way::Loop;
    // Many threads of a server wait for each other, so what they used counts as well.
    let starved = |_: &ReadyRow<'_>, run: &RunFigures| {
        run.server_waited.is_some_and(|share| share > 0.2) && seen::taken(run, server_cores) > 0.1
    };
    let in_most = |ready: &ReadyRow<'_>, found: &dyn Fn(&ReadyRow<'_>, &RunFigures) -> bool| {
        ready.runs.iter().filter(|run| found(ready, run)).count() * 2 > ready.runs.len()
    };
    let mut note = |found: &dyn Fn(&ReadyRow<'_>, &RunFigures) -> bool, what: &str| {
        let names: Vec<&str> =
            rows.iter().filter(|ready| in_most(ready, found)).map(|ready| ready.row.name.as_str()).collect();
        let of = if names.len() == rows.len() { "all rows".to_owned() } else { names.join("; ") };
        match warnings.iter_mut().find(|said| said.starts_with(what)) {
            _ if names.is_empty() => {}
            Some(said) => *said += &format!(", {} ({of})", group.name),
            None => warnings.push(format!("{what}: {} ({of})", group.name)),
        }
    };
    note(&limited, "the client was the limit, not the server");
    note(&waited, "other work took the client's core for part of the time");
    note(&starved, "other work took the server's core for part of the time");
}

fn shown(
    ready: &ReadyRow<'_>,
    group: &RowGroup,
    cores: Option<usize>,
    first: Option<&[RunFigures]>,
) -> schema::Row {
    let (min_us, max_us) = lab::extremes(&ready.runs);
    schema::Row {
        name: ready.row.name.clone(),
        server: ready.row.server.clone(),
        target: ready.plan.target.url.clone(),
        flags: flags(group, ready.row),
        sending: ready.sending.clone(),
        about: ready.row.about.clone(),
        curve: ready.row.curve.clone(),
        server_cores: cores.and_then(|n| u32::try_from(n).ok()),
        line_share: lab::line_share(&ready.runs),
        metrics: lab::metrics(&ready.runs, first),
        quick: group.quick.as_ref().and_then(|name| lab::quick(&ready.runs, name)),
        min_us,
        max_us,
        rounds: ready.runs.iter().filter(|r| r.fault.is_none()).count() as u32,
        errors: ready.runs.iter().map(|r| r.errors).sum(),
        fault: ready.runs.iter().find_map(|r| r.fault.clone()),
        runs_left_out: lab::runs_left_out(&ready.runs),
    }
}

/// Progress, on standard error.
fn tell(args: &LabArgs, text: &str) {
    if args.quiet {
        return;
    }
    if stderr().is_terminal() && terminal::can_redraw() {
        terminal::overwrite_line(text);
    } else if !text.is_empty() {
        let _ = writeln!(stderr(), "{text}");
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use linerate_lab::scenario::built_in;

    #[test]
    fn every_built_in_row_has_a_plan() {
        for scenario in built_in() {
            check(&scenario).unwrap_or_else(|e| panic!("{}: {e}", scenario.name));
        }
    }

    #[test]
    fn a_lost_core_of_the_server_is_named_as_the_clients_is() {
        let scenario = built_in().remove(0);
        let group = &scenario.groups[0];
        let ready = |run: RunFigures| ReadyRow {
            row: &group.rows[0],
            plan: Plan::get(linerate_load::plan::Target::at(([127, 0, 0, 1], 80).into()), "/"),
            runs: vec![run],
            sending: String::new(),
        };
        let said = |run: RunFigures| {
            let mut warnings = Vec::new();
            warn(&mut warnings, group, &[ready(run)], 1);
            warnings.join("\n")
        };
        assert_eq!(said(RunFigures::default()), "");
        let busy = |us: f64, share: f64| RunFigures {
            values: [("cpu_us_per_request", us), ("rate_rps", 10_000.0)].into(),
            server_waited: Some(share),
            ..RunFigures::default()
        };
        let server = said(busy(50.0, 0.5));
        assert!(server.starts_with("other work took the server's core for part of the time: "), "{server}");
        assert_eq!(said(busy(98.0, 0.98)), "", "a thousand processes wait for each other");
        let client = said(RunFigures { client_waited: 0.5, ..RunFigures::default() });
        assert!(client.starts_with("other work took the client's core for part of the time: "), "{client}");
    }

    #[test]
    fn flags_that_the_scenario_decides_are_refused() {
        let mut scenario = built_in().remove(0);
        for (flags, said) in [("-d 5s", "the scenario's"), ("--no-such", "--no-such"), ("-c 0", "-c")] {
            flags.clone_into(&mut scenario.groups[0].rows[0].load);
            let fault = check(&scenario).expect_err(flags).to_string();
            assert!(fault.contains(said) && fault.contains("loopback"), "{fault}");
        }
    }

    #[test]
    fn an_origin_is_what_stands_before_the_path() {
        assert_eq!(origin("http://a:1/b/c?d"), "http://a:1");
        assert_eq!(origin("http://a"), "http://a");
    }
}
