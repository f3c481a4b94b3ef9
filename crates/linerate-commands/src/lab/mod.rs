//! `linerate lab`.

mod heads;
mod launch;
mod rows;
mod seen;

use std::fmt::Write as _;
use std::path::Path;

use linerate_lab::scenario::{self, LabScenario, ServerPart};
use linerate_report::lab;
use linerate_report::schema::lab as schema;

use crate::args::LabArgs;
use crate::documents;
use crate::fault::{CommandFault, Exit};
use crate::load::Interrupt;
use crate::load::output::ReportSinks;
use crate::terminal;

/// Bytes of a scenario file. Reason: one with all its servers' programs has some ten kB.
const LARGEST: u64 = 1 << 20;

/// Runs the command.
pub(crate) fn run(args: &LabArgs) -> Result<Exit, CommandFault> {
    let name = match args.scenario.as_deref() {
        Some("list") | None => return list(),
        Some(_) if args.list => return list(),
        Some(name) => name,
    };
    if args.print {
        let text = scenario::text_of(name).ok_or_else(|| unknown(name))?;
        return terminal::print(text).map(|()| Exit::Fine);
    }
    let scenario = changed(found(name)?, args)?;
    let sinks = ReportSinks::of(args.json.as_deref(), args.html.as_deref())?;
    rows::check(&scenario)?;
    rows::announce(&scenario, args)?;
    let interrupt = Interrupt::listen()?;
    let document = rows::measure(&scenario, args, &interrupt)?;
    report(&document, &sinks)?;
    Ok(exit(&document))
}

fn exit(document: &schema::Document) -> Exit {
    let mut rows = document.groups.iter().flat_map(|g| &g.rows).peekable();
    if document.interrupted {
        Exit::Interrupted
    } else if rows.peek().is_none() {
        Exit::Unreachable
    } else if rows.any(|row| row.rounds == 0) {
        Exit::CheckFailed
    } else {
        Exit::Fine
    }
}

fn list() -> Result<Exit, CommandFault> {
    let (mut out, style) = (String::new(), terminal::style_beside(false));
    let beside_name = " ".repeat(13);
    for scenario in scenario::built_in() {
        let about = style.wrapped(&beside_name, &scenario.about);
        let _ = writeln!(out, "{:<12} {}", scenario.name, about.trim_start());
    }
    out.push_str(
        "\nRun one:         linerate lab pipelining\nPrint its file:  linerate lab pipelining --print\n",
    );
    terminal::print(&out).map(|()| Exit::Fine)
}

fn unknown(name: &str) -> CommandFault {
    let names: Vec<String> = scenario::built_in().into_iter().map(|s| s.name).collect();
    CommandFault::input(format!("there is no scenario {name}"))
        .hint(format!("built in are {}; or name a file: ./{name}.toml", names.join(", ")))
}

/// A built-in scenario, or one in a file, also of the folder `scenarios`.
fn found(name: &str) -> Result<LabScenario, CommandFault> {
    if let Some(built_in) = scenario::built_in().into_iter().find(|s| s.name == name) {
        return Ok(built_in);
    }
    let in_folder = Path::new("scenarios").join(format!("{name}.toml"));
    let path = if name.contains(['/', '.']) { Path::new(name) } else { &in_folder };
    if !name.contains(['/', '.']) && !path.exists() {
        return Err(unknown(name));
    }
    let advice = documents::Advice {
        unreadable: "name a scenario file, or a built-in scenario: linerate lab list",
        folder: "name a scenario file in it",
        no_file: "name a scenario in a file",
        large: "a scenario names servers and loads; data belongs elsewhere",
    };
    let bytes = documents::read_bytes("lab", path, LARGEST, advice)?;
    let wrong = |why: String| {
        CommandFault::input(format!("{}: {why}", path.display()))
            .hint("linerate lab pipelining --print shows a scenario that is right")
    };
    let text = String::from_utf8(bytes).map_err(|_| wrong("it is no text".to_owned()))?;
    scenario::parse(&text).map_err(|error| wrong(error.to_string()))
}

/// The scenario as the flags want it.
fn changed(mut scenario: LabScenario, args: &LabArgs) -> Result<LabScenario, CommandFault> {
    scenario.rounds = args.rounds.unwrap_or(scenario.rounds);
    if let Some(time) = args.duration {
        scenario.duration = format!("{}ms", time.as_millis().max(1));
    }
    if !args.only.is_empty() {
        let names: Vec<String> = scenario.groups.iter().map(|g| g.name.clone()).collect();
        scenario.groups.retain(|g| args.only.iter().any(|text| g.name.contains(text.as_str())));
        if scenario.groups.is_empty() {
            return Err(CommandFault::input("--only leaves no group").hint(format!(
                "the groups of {} are {}",
                scenario.name,
                names.join(", ")
            )));
        }
    }
    if let Some(line) = args.line {
        scenario.groups.retain(|g| !g.veth && g.round_trip.is_none() && g.line.is_none());
        if scenario.groups.is_empty() {
            let text = format!("each group of {} has a network of its own", scenario.name);
            return Err(CommandFault::input(text).hint("leave --line out"));
        }
        scenario.groups.iter_mut().for_each(|g| g.line = Some(line));
    }
    if let Some(url) = &args.url {
        replace(&mut scenario, url)?;
    }
    Ok(scenario)
}

/// Puts a URL in the place of the servers that it can stand for, and leaves out all others.
fn replace(scenario: &mut LabScenario, url: &str) -> Result<(), CommandFault> {
    let of_own: Vec<String> =
        scenario.servers.iter().filter(|s| s.replaceable).map(|s| s.name.clone()).collect();
    if of_own.is_empty() {
        return Err(CommandFault::input(format!(
            "the scenario {} compares servers of its own",
            scenario.name
        ))
        .hint("leave the URL out, or use linerate lab pipelining URL"));
    }
    if !url.starts_with("http://") && !url.starts_with("https://") {
        return Err(CommandFault::input(format!("{url} is no URL")).hint("write http://HOST:PORT/"));
    }
    // A veth pair leads to servers in its own namespace alone.
    scenario.groups.retain(|g| !g.veth);
    for group in &mut scenario.groups {
        group.rows.retain(|row| of_own.contains(&row.server));
    }
    scenario.groups.retain(|g| !g.rows.is_empty());
    let part = |name: String| ServerPart {
        name,
        command: None,
        url: Some(url.to_owned()),
        needs: Vec::new(),
        check: None,
        build: None,
        install: String::new(),
        files: Default::default(),
        cores: None,
        https: false,
        replaceable: true,
    };
    scenario.servers = of_own.into_iter().map(part).collect();
    Ok(())
}

/// Prints the report first, so that nothing is lost where a file cannot be written.
fn report(document: &schema::Document, sinks: &ReportSinks) -> Result<(), CommandFault> {
    let to_stderr = sinks.to_stderr();
    let printed = terminal::print_beside(&lab::text(document, terminal::style_beside(to_stderr)), to_stderr);
    sinks.write("lab", &lab::json(document), || lab::page(document)).and(printed)
}
