//! What can be typed.

mod compare;
#[cfg(test)]
mod documented;
mod epilogue;
mod explain;
pub(crate) mod foreign;
mod k6;
mod lab;
mod load;
pub(crate) mod machines;
pub(crate) mod other_tools;
mod passive;
pub(crate) mod request;
pub(crate) mod route;
mod short;
pub(crate) mod tls;
pub(crate) mod values;
pub(crate) mod wrong;

use std::io::IsTerminal;

use clap::{Args, CommandFactory, FromArgMatches, Parser, Subcommand};

pub(crate) use compare::CompareArgs;
pub(crate) use explain::{ExplainArgs, ExplainSummary, PidArgument, Written};
pub(crate) use k6::{K6Args, K6Command, K6RunArgs};
pub(crate) use lab::LabArgs;
pub(crate) use load::{Annotations, FindBy, Http, LoadArgs, ServerProcess, Summary, When};
pub(crate) use passive::{KEYS_ALONE, PassiveArgs};
pub(crate) use values::Resolve;

/// HTTP as fast as the wire allows, and why when it isn't
#[derive(Debug, Parser)]
#[command(name = "linerate", version, disable_help_subcommand = true, max_term_width = usize::from(WIDEST))]
pub(crate) struct Cli {
    #[command(subcommand)]
    pub(crate) command: Option<Command>,
}

/// The widest line of the help. Reason: longer ones are hard to read.
const WIDEST: u16 = 100;

impl Cli {
    /// The definition, its help laid out for the terminal.
    pub(crate) fn shown(words: &[std::ffi::OsString]) -> clap::Command {
        // As clap decides it.
        let typed = || std::env::var("COLUMNS").ok().and_then(|columns| columns.parse().ok());
        let columns =
            if std::io::stdout().is_terminal() { Some(crate::terminal::columns()) } else { typed() };
        epilogue::laid_out(short::of(Cli::command(), words), columns.unwrap_or(WIDEST).min(WIDEST).into())
    }

    /// What was typed.
    pub(crate) fn typed(words: Vec<std::ffi::OsString>) -> Result<Cli, clap::Error> {
        Cli::from_arg_matches(&Cli::shown(&words).try_get_matches_from(words)?)
    }
}

/// A subcommand.
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    Load(Box<LoadArgs>),
    Serve(Box<crate::serve::ServeArgs>),
    Explain(Box<ExplainArgs>),
    Compare(Box<CompareArgs>),
    Lab(Box<LabArgs>),
    Report(ReportArgs),
    Top(crate::top::TopArgs),
    Agent(Box<crate::agent::AgentArgs>),
    Agents(crate::agents::AgentsArgs),
    Bypass(crate::bypass::BypassArgs),
    Demo(DemoArgs),
    Wrk(other_tools::WrkArgs),
    Ab(other_tools::AbArgs),
    Hey(other_tools::HeyArgs),
    K6(K6Args),
    Help(crate::guide::HelpArgs),
    Completions(CompletionsArgs),
    Man(ManArgs),
}

/// See on this machine what polling, threads, pipelining and HTTP/2 bring, in about 20 seconds
///
/// Starts a small server inside this process, on one core, and sends to it in all ways from another: one at a time, a
/// hundred blocking threads, an async pool, event loops with long, short, mixed and pipelined connections, and HTTP/2. Each
/// row says what was seen, what held it back, and which way was better here. Then 10,000 requests on 100 connections, and three ways of
/// a server to wait 10 ms: a blocking handler, threads, coroutines. Needs nothing but this program: no network, no root, and it leaves
/// nothing behind.
#[derive(Args, Clone, Debug)]
#[command(
    after_long_help = "Examples:\n  linerate demo --time 2s\n  linerate demo http://127.0.0.1:8080/     the ways of sending, to a server of yours"
)]
pub(crate) struct DemoArgs {
    /// Send to this server instead
    #[arg(value_name = "URL")]
    pub(crate) url: Option<String>,

    /// Time for each way
    #[arg(long, value_name = "TIME", default_value = "1200ms", value_parser = values::demo_time)]
    pub(crate) time: std::time::Duration,
}

/// Show saved results again, several side by side
///
/// FILE is what load, compare, lab or explain wrote with --json FILE. Runs of load stand in one table, a column for each file, with the
/// ratio to the first. Comparisons, scenarios of lab and diagnoses follow one after the other.
#[derive(Args, Clone, Debug)]
#[command(
    after_long_help = "Examples:\n  linerate report monday.json tuesday.json\n  linerate report comparison.json --html page.html"
)]
pub(crate) struct ReportArgs {
    /// Documents to show
    #[arg(value_name = "FILE", required = true)]
    pub(crate) files: Vec<std::path::PathBuf>,

    /// Write one run, comparison or scenario as a page to look at
    #[arg(long, value_name = "FILE")]
    pub(crate) html: Option<std::path::PathBuf>,
}

/// Print a completion script for a shell
#[derive(Args, Clone, Debug)]
#[command(
    after_long_help = "Example:\n  linerate completions bash > ~/.local/share/bash-completion/completions/linerate"
)]
pub(crate) struct CompletionsArgs {
    /// Which shell
    #[arg(value_name = "SHELL")]
    pub(crate) shell: clap_complete::Shell,
}

/// Print the manual page, of linerate or of one of its commands
#[derive(Args, Clone, Debug)]
#[command(after_long_help = "Examples:\n  linerate man load | man -l -\n  linerate man --dir \
                             /usr/local/share/man/man1  write all pages")]
pub(crate) struct ManArgs {
    /// Which command's page
    #[arg(value_name = "COMMAND")]
    pub(crate) command: Option<String>,
    /// Write the pages of all commands as files into this directory instead
    #[arg(long, value_name = "DIR", conflicts_with = "command")]
    pub(crate) dir: Option<std::path::PathBuf>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_definition_is_sound() {
        use clap::CommandFactory;
        Cli::command().debug_assert();
    }
}
