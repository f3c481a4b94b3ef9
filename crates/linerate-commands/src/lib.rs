//! What the `linerate` command does: what was typed, what it means, and one visible match that runs it.
#![forbid(unsafe_code)]

mod agent;
mod agents;
mod args;
mod baseline;
mod bypass;
mod bypass_status;
mod compare;
mod demo;
mod documents;
mod environment;
mod explain;
mod fault;
mod guide;
mod k6;
mod keyboard;
mod lab;
mod line;
mod load;
mod other_tools;
mod passive;
mod pipelining;
mod proxy_hints;
mod report;
mod serve;
mod sources;
mod terminal;
mod tls_hints;
mod top;
mod ways;
mod why;

use std::io::Write;
use std::process::ExitCode;

use clap::CommandFactory;

use args::{Cli, Command};
use fault::{CommandFault, Exit};
use other_tools::Tool;

/// Runs the command line of this process; says the exit code that `linerate help exit-codes` explains.
pub fn run() -> ExitCode {
    let cli = match Cli::typed(other_tools::typed()) {
        Ok(cli) => cli,
        Err(error) => {
            let words: Vec<String> = std::env::args().skip(1).collect();
            let meant = || args::wrong::meant(&error, &words);
            let hint = args::foreign::hint(&error).or_else(meant);
            let code = ExitCode::from(u8::try_from(error.exit_code()).unwrap_or(2));
            args::wrong::print(error, hint);
            return code;
        }
    };
    linerate_load::hooks::install(load::hooks::load);
    let done = match cli.command {
        Some(Command::Load(args)) if k6::ours::is_script(args.url.as_deref()) => k6::ours::load(&args),
        Some(Command::Load(args)) => load::run(&args),
        Some(Command::Serve(args)) => serve::run(&args),
        Some(Command::Explain(args)) => explain::run(&args),
        Some(Command::Compare(args)) => compare::run(&args),
        Some(Command::Lab(args)) => lab::run(&args),
        Some(Command::Report(args)) => report::run(&args),
        Some(Command::Top(args)) => top::run(&args),
        Some(Command::Agent(args)) => agent::run(&args),
        Some(Command::Agents(args)) => agents::run(&args),
        Some(Command::Bypass(args)) if args.status => bypass_status::run(&args),
        Some(Command::Bypass(args)) => match bypass::run(&args) {
            Ok(code) => return ExitCode::from(code),
            Err(fault) => Err(fault),
        },
        Some(Command::Demo(args)) => demo::run(&args),
        Some(Command::Wrk(args)) => other_tools::run(Tool::Wrk, &args.words),
        Some(Command::Ab(args)) => other_tools::run(Tool::Ab, &args.words),
        Some(Command::Hey(args)) => other_tools::run(Tool::Hey, &args.words),
        Some(Command::K6(args)) => return ExitCode::from(k6::run(&args)),
        Some(Command::Completions(args)) => completions(args.shell),
        Some(Command::Help(args)) => guide::run(&args),
        Some(Command::Man(args)) => man(&args),
        None => terminal::print(include_str!("orientation.txt")).map(|()| Exit::Fine),
    };
    done.unwrap_or_else(|fault| {
        let _ = writeln!(std::io::stderr(), "{fault}");
        fault.exit
    })
    .into()
}

fn completions(shell: clap_complete::Shell) -> Result<Exit, CommandFault> {
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut Cli::command(), "linerate", &mut script);
    print(&script)
}

fn man(args: &args::ManArgs) -> Result<Exit, CommandFault> {
    let mut command = Cli::command();
    command.build();
    if let Some(dir) = &args.dir {
        return man_pages(&command, dir);
    }
    let command = match args.command.as_deref() {
        None => command,
        Some(name) => {
            let names: Vec<&str> = command.get_subcommands().map(clap::Command::get_name).collect();
            let unknown = CommandFault::input(format!("there is no command {name}"))
                .hint(format!("known are {}", names.join(", ")));
            of_its_own(command.find_subcommand(name).ok_or(unknown)?)
        }
    };
    print(&rendered(command)?)
}

/// A subcommand with the name that its page has.
fn of_its_own(command: &clap::Command) -> clap::Command {
    let name = format!("linerate-{}", command.get_name());
    command.clone().name(name.clone()).display_name(name)
}

fn rendered(command: clap::Command) -> Result<Vec<u8>, CommandFault> {
    let mut page = Vec::new();
    clap_mangen::Man::new(command).render(&mut page).map_err(|e| CommandFault::ours(e.to_string()))?;
    Ok(page)
}

/// Writes linerate.1 and a page for each command.
fn man_pages(command: &clap::Command, dir: &std::path::Path) -> Result<Exit, CommandFault> {
    let cannot =
        |e: std::io::Error| CommandFault::ours(format!("--dir {}: {}", dir.display(), fault::said(&e)));
    std::fs::create_dir_all(dir).map_err(cannot)?;
    let all = command.get_subcommands().map(of_its_own);
    for page in std::iter::once(command.clone()).chain(all) {
        let file = dir.join(format!("{}.1", page.get_name()));
        std::fs::write(file, rendered(page)?).map_err(cannot)?;
    }
    Ok(Exit::Fine)
}

fn print(text: &[u8]) -> Result<Exit, CommandFault> {
    terminal::print(&String::from_utf8_lossy(text)).map(|()| Exit::Fine)
}
