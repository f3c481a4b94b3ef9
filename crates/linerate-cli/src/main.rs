//! The `linerate` command: what was typed, what it means, and one visible match that runs it.
#![forbid(unsafe_code)]

mod args;
mod baseline;
mod demo;
mod environment;
mod explain;
mod fault;
mod load;
mod passive;
mod serve;
mod sources;
mod terminal;
mod top;
mod why;

use std::io::Write;
use std::process::ExitCode;

use clap::{CommandFactory, Parser};

use args::{Cli, Command};
use fault::{Exit, Fault};

fn main() -> ExitCode {
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(error) => {
            let _ = error.print();
            if let Some(hint) = args::foreign::hint(&error) {
                let _ = writeln!(std::io::stderr(), "hint: {hint}");
            }
            return ExitCode::from(u8::try_from(error.exit_code()).unwrap_or(2));
        }
    };
    let done = match cli.command {
        Some(Command::Load(args)) => load::run(&args),
        Some(Command::Serve(args)) => serve::run(&args),
        Some(Command::Explain(args)) => explain::run(&args),
        Some(Command::Top(args)) => top::run(&args),
        Some(Command::Demo(args)) => demo::run(&args),
        Some(Command::Completions(args)) => completions(args.shell),
        Some(Command::Man(args)) => man(args.command.as_deref()),
        None => terminal::print(include_str!("orientation.txt")).map(|()| Exit::Fine),
    };
    done.unwrap_or_else(|fault| {
        let _ = writeln!(std::io::stderr(), "{fault}");
        fault.exit
    })
    .into()
}

fn completions(shell: clap_complete::Shell) -> Result<Exit, Fault> {
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut Cli::command(), "linerate", &mut script);
    print(&script)
}

fn man(name: Option<&str>) -> Result<Exit, Fault> {
    let mut command = Cli::command();
    command.build();
    let command = match name {
        None => command,
        Some(name) => {
            let names: Vec<&str> = command.get_subcommands().map(clap::Command::get_name).collect();
            let unknown = Fault::input(format!("there is no command {name}"))
                .hint(format!("known are {}", names.join(", ")));
            let found = command.find_subcommand(name).ok_or(unknown)?;
            found.clone().name(format!("linerate-{name}")).display_name(format!("linerate-{name}"))
        }
    };
    let mut page = Vec::new();
    clap_mangen::Man::new(command).render(&mut page).map_err(|e| Fault::ours(e.to_string()))?;
    print(&page)
}

fn print(text: &[u8]) -> Result<Exit, Fault> {
    terminal::print(&String::from_utf8_lossy(text)).map(|()| Exit::Fine)
}
