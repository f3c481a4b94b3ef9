//! The rows of a scenario: servers are started, rows run in turns, and whatever happens the rounds
//! that were measured are handed back.

use std::collections::BTreeMap;
use std::io::{IsTerminal, Write, stderr};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use linerate_lab::figures::Run;
use linerate_lab::relay::Relay;
use linerate_lab::scenario::{Group, Row, Scenario, ServerPart};
use linerate_lab::servers::{Recipe, Server, Trouble, pin_this_thread};
use linerate_load::Plan;
use linerate_load::plan::Way;
use linerate_net::machine;
use linerate_report::lab;
use linerate_report::schema::lab as schema;

use crate::args::{LabArgs, LoadArgs};
use crate::compare::{first_line, flags_of_load, one_run};
use crate::environment;
use crate::fault::Fault;
use crate::load::{Interrupt, plan};
use crate::terminal;

/// Stands for the URL of a server that does not run yet.
const NOT_YET: &str = "http://127.0.0.1:1/";

/// Whether all flags of the rows are flags of `load`, before anything is started.
pub(super) fn check(scenario: &Scenario) -> Result<(), Fault> {
    for group in &scenario.groups {
        for row in &group.rows {
            plan_of(scenario, group, row, NOT_YET)?;
        }
    }
    Ok(())
}

/// The plan of a row towards a server at `url`.
fn plan_of(scenario: &Scenario, group: &Group, row: &Row, url: &str) -> Result<Plan, Fault> {
    let flags = format!("{} {}", group.load, row.load);
    let wrong = |why: &str| {
        Fault::input(format!("group {:?}, row {:?}: load = {flags:?}: {why}", group.name, row.name))
    };
    let words = shell_words::split(&flags).map_err(|_| wrong("a quote is not closed"))?;
    let args: LoadArgs = flags_of_load(&words).map_err(|e| wrong(&first_line(&e)))?;
    if args.url.is_some() || args.duration.is_some() || args.requests.is_some() {
        return Err(wrong("URL and duration are the scenario's")
            .hint("write duration at the top, and path at the row or its group"));
    }
    let path = row.path.as_ref().or(group.path.as_ref());
    let (run, warm_up) = scenario.times().map_err(Fault::input)?;
    let url = path.map_or_else(|| url.to_owned(), |path| format!("{}{path}", origin(url)));
    let args =
        LoadArgs { url: Some(url), duration: Some(run), warm_up: args.warm_up.or(Some(warm_up)), ..args };
    let meaning = plan::of(&args).map_err(|fault| wrong(fault.to_string().trim_start_matches("error: ")))?;
    Ok(meaning.plan)
}

/// `http://HOST:PORT` of a URL.
fn origin(url: &str) -> &str {
    let begins = url.find("://").map_or(0, |at| at + 3);
    let ends = url[begins..].find('/').map_or(url.len(), |at| begins + at);
    &url[..ends]
}

/// Runs all groups.
pub(super) fn measure(
    scenario: &Scenario,
    args: &LabArgs,
    interrupt: &Interrupt,
) -> Result<schema::Document, Fault> {
    let (run, warm_up) = scenario.times().map_err(Fault::input)?;
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
        let measured = one_group(scenario, group, (args, &cores), interrupt, &mut document)?;
        document.groups.push(measured);
    }
    document.interrupted = interrupt.asked();
    Ok(document)
}

/// Gives servers that are started the first half of the cores, and the client the others.
fn places(scenario: &Scenario, args: &LabArgs, document: &mut schema::Document) -> Vec<usize> {
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

/// A server of a group, and what belongs to it. All of it ends with this.
struct Started {
    server: Option<Server>,
    relay: Option<Relay>,
    url: String,
    // The folder goes last, when nothing reads it any more.
    _folder: Option<Folder>,
}

/// A folder with a server's files; dropping it removes it.
struct Folder(PathBuf);

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// A row with the runs that it has so far.
struct Ready<'a> {
    row: &'a Row,
    plan: Plan,
    runs: Vec<Run>,
    sending: String,
}

fn one_group(
    scenario: &Scenario,
    group: &Group,
    (args, cores): (&LabArgs, &[usize]),
    interrupt: &Interrupt,
    document: &mut schema::Document,
) -> Result<schema::Group, Fault> {
    let delay = group.delay().map_err(Fault::input)?;
    let mut servers: BTreeMap<&str, Started> = BTreeMap::new();
    let mut missing: BTreeMap<&str, (String, String)> = BTreeMap::new();
    let mut rows: Vec<Ready<'_>> = Vec::new();
    for row in &group.rows {
        let Some(part) = scenario.server(&row.server) else { continue };
        if !servers.contains_key(row.server.as_str()) && !missing.contains_key(row.server.as_str()) {
            tell(args, &format!("{}: starting {}", group.name, part.name));
            match started(part, delay, (args, cores), interrupt) {
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
            rows.push(Ready { row, plan, runs: Vec::new(), sending: String::new() });
        }
    }
    in_turns((scenario, group), &mut rows, &servers, (args, interrupt), document)?;
    tell(args, "");
    let first: Option<Vec<Run>> = rows.first().map(|r| r.runs.clone());
    warn(document, group, &rows);
    let shown = |(i, ready): (usize, &Ready<'_>)| shown(ready, group, first.as_deref().filter(|_| i > 0));
    Ok(schema::Group {
        name: group.name.clone(),
        about: group.about.clone(),
        relay_ms: delay.map(|d| d.as_secs_f64() * 1e3),
        rows: rows.iter().enumerate().map(shown).collect(),
    })
}

/// Runs the rows of a group in turns: forwards, then backwards.
fn in_turns(
    (scenario, group): (&Scenario, &Group),
    rows: &mut [Ready<'_>],
    servers: &BTreeMap<&str, Started>,
    (args, interrupt): (&LabArgs, &Interrupt),
    document: &mut schema::Document,
) -> Result<(), Fault> {
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
                // What was measured before is reported.
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
fn whole_rounds(rows: &mut [Ready<'_>]) {
    let whole = rows.iter().map(|r| r.runs.len()).min().unwrap_or(0);
    rows.iter_mut().for_each(|r| r.runs.truncate(whole));
}

/// Where the client was the limit, or had no core, a server is not measured.
fn warn(document: &mut schema::Document, group: &Group, rows: &[Ready<'_>]) {
    let limited = |_: &Ready<'_>, run: &Run| run.client_limit.is_some();
    // Blocking threads share cores among themselves, so their waiting proves nothing.
    let waited = |ready: &Ready<'_>, run: &Run| run.client_waited > 0.2 && ready.plan.way == Way::Loop;
    let in_most = |ready: &Ready<'_>, found: &dyn Fn(&Ready<'_>, &Run) -> bool| {
        ready.runs.iter().filter(|run| found(ready, run)).count() * 2 > ready.runs.len()
    };
    let mut note = |found: &dyn Fn(&Ready<'_>, &Run) -> bool, what: &str| {
        let names: Vec<&str> =
            rows.iter().filter(|ready| in_most(ready, found)).map(|ready| ready.row.name.as_str()).collect();
        if !names.is_empty() {
            document.warnings.push(format!("{}: {what} ({})", group.name, names.join(", ")));
        }
    };
    note(&limited, "the client was the limit, not the server");
    note(&waited, "other work took the client's core for part of the time");
}

fn shown(ready: &Ready<'_>, group: &Group, first: Option<&[Run]>) -> schema::Row {
    let (min_us, max_us) = lab::extremes(&ready.runs);
    schema::Row {
        name: ready.row.name.clone(),
        server: ready.row.server.clone(),
        target: ready.plan.target.url.clone(),
        flags: format!("{} {}", group.load, ready.row.load).trim().to_owned(),
        sending: ready.sending.clone(),
        about: ready.row.about.clone(),
        metrics: lab::metrics(&ready.runs, first),
        min_us,
        max_us,
        rounds: ready.runs.iter().filter(|r| r.fault.is_none()).count() as u32,
        errors: ready.runs.iter().map(|r| r.errors).sum(),
        fault: ready.runs.iter().find_map(|r| r.fault.clone()),
    }
}

/// Starts a server with what belongs to it; an error is why its rows are left out, and how to
/// install it.
fn started(
    part: &ServerPart,
    delay: Option<std::time::Duration>,
    (args, cores): (&LabArgs, &[usize]),
    interrupt: &Interrupt,
) -> Result<Started, (String, String)> {
    let other = |why: String| (why, String::new());
    let mut started = match (&part.command, &part.url) {
        (Some(command), _) => launched(part, command, (args, cores), interrupt)?,
        (None, url) => {
            Started { server: None, relay: None, url: url.clone().unwrap_or_default(), _folder: None }
        }
    };
    if let Some(delay) = delay {
        let to: SocketAddr = address(&started.url)
            .ok_or_else(|| other(format!("{} has no address that a relay can reach", started.url)))?;
        let relay =
            Relay::start(to, delay).map_err(|e| other(format!("the relay could not be started: {e}")))?;
        started.url = format!("http://{}/", relay.address());
        started.relay = Some(relay);
    }
    Ok(started)
}

/// The address of an `http://` URL.
fn address(url: &str) -> Option<SocketAddr> {
    use std::net::ToSocketAddrs;
    let authority = origin(url).strip_prefix("http://")?;
    let with_port = if authority.contains(':') { authority.to_owned() } else { format!("{authority}:80") };
    with_port.to_socket_addrs().ok()?.next()
}

fn launched(
    part: &ServerPart,
    command: &str,
    (args, cores): (&LabArgs, &[usize]),
    interrupt: &Interrupt,
) -> Result<Started, (String, String)> {
    let other = |why: String| (why, String::new());
    let mut words = shell_words::split(command).map_err(|e| other(e.to_string()))?;
    for program in words.first().into_iter().chain(&part.needs) {
        if program != "linerate" && !is_installed(program) {
            return Err((format!("{program} is not installed"), part.install.clone()));
        }
    }
    // This very program, wherever it is.
    if words.first().is_some_and(|w| w == "linerate")
        && let Ok(me) = std::env::current_exe()
    {
        words[0] = me.display().to_string();
    }
    let port = free_port().map_err(|e| other(format!("no port is free: {e}")))?;
    let folder = if part.files.is_empty() { None } else { Some(folder(part, port).map_err(other)?) };
    let dir = folder.as_ref().map_or(String::new(), |f| f.0.display().to_string());
    let words = words.iter().map(|w| filled(w, port, &dir)).collect();
    let recipe = Recipe {
        words,
        url: Some(format!("http://127.0.0.1:{port}/")),
        cores: cores.to_vec(),
        patience: args.ready_within,
    };
    match recipe.start(&|| interrupt.asked()) {
        Ok(server) => {
            let url = server.url().to_owned();
            Ok(Started { server: Some(server), relay: None, url, _folder: folder })
        }
        Err(Trouble::Interrupted) => Err(other("interrupted".to_owned())),
        Err(trouble) => Err((format!("{} did not start: {trouble}", part.name), part.install.clone())),
    }
}

fn filled(text: &str, port: u16, dir: &str) -> String {
    text.replace("{port}", &port.to_string()).replace("{dir}", dir)
}

fn free_port() -> std::io::Result<u16> {
    std::net::TcpListener::bind(("127.0.0.1", 0))?.local_addr().map(|a| a.port())
}

/// Whether a program is there, by its path or in PATH.
fn is_installed(program: &str) -> bool {
    if program.contains('/') {
        return Path::new(program).is_file();
    }
    let path = std::env::var_os("PATH").unwrap_or_default();
    // Servers are found where only root's PATH leads.
    std::env::split_paths(&path)
        .chain([PathBuf::from("/usr/sbin"), PathBuf::from("/usr/local/sbin")])
        .any(|folder| folder.join(program).is_file())
}

/// A new folder with a server's files. Only this user may read it.
fn folder(part: &ServerPart, port: u16) -> Result<Folder, String> {
    use std::os::unix::fs::DirBuilderExt;
    let path = std::env::temp_dir().join(format!("linerate-lab-{}-{port}", std::process::id()));
    let cannot = |e: std::io::Error| format!("its files could not be written to {}: {e}", path.display());
    std::fs::DirBuilder::new().mode(0o700).create(&path).map_err(cannot)?;
    let folder = Folder(path.clone());
    for (name, text) in &part.files {
        let text = filled(text, port, &path.display().to_string());
        std::fs::write(path.join(name), text).map_err(cannot)?;
    }
    Ok(folder)
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
        assert_eq!(address("http://127.0.0.1/x"), Some(([127, 0, 0, 1], 80).into()));
        assert_eq!(address("https://127.0.0.1/"), None);
    }
}
