//! The flags of `linerate lab`.

use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use linerate_lab::limits::MOST_ROUNDS;
use linerate_netbox::LineShape;

use super::values;

const AFTER: &str = "\
Examples:
  linerate lab list                                      the scenarios that are built in
  linerate lab pipelining                                poll, threads, an async pool and pipelined requests
  linerate lab pipelining http://127.0.0.1:8080/         the same, sent to a server of yours
  linerate lab concurrency --html page.html              servers side by side, as a page
  linerate lab concurrency --build                       builds the server on hyper first, by cargo
  linerate lab pipelining --line 26ms,loss=1%             the same over a line with this round trip and loss; takes root
  linerate lab nagle --print > mine.toml                 a scenario as a file, to be changed
  linerate lab mine.toml --json out.json

Exit codes: 0 done; 1 a row got no response; 2 bad input, nothing was run; 3 nothing of it could be run here; 4 something
failed here; 130 interrupted (the rounds so far are reported).";

/// Repeat a comparison from the write-ups on this machine: servers are started, loads sent in turns
///
/// A scenario has groups of rows. Each row is a server and a way of sending to it. All rows of a group run once in each round,
/// forwards and backwards in turns, and each is compared with the first one, round by round. A server that is not installed is named
/// with the command that installs it, and its rows are left out.
#[derive(Args, Clone, Debug)]
#[command(after_long_help = AFTER)]
pub(crate) struct LabArgs {
    /// A built-in scenario, a scenario file (TOML), or list [default: list]
    #[arg(value_name = "SCENARIO")]
    pub(crate) scenario: Option<String>,

    /// Your own server, where a scenario allows it
    #[arg(value_name = "URL")]
    pub(crate) url: Option<String>,

    /// Name the built-in scenarios, as linerate lab list does
    #[arg(long)]
    pub(crate) list: bool,

    /// Print the scenario as TOML, and stop
    #[arg(long)]
    pub(crate) print: bool,

    /// Rounds [default: as the scenario says]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=i64::from(MOST_ROUNDS)))]
    pub(crate) rounds: Option<u32>,

    /// Measured time of each run [default: as the scenario says]
    #[arg(short = 'd', long, value_name = "TIME", value_parser = values::duration)]
    pub(crate) duration: Option<Duration>,

    /// Run only groups whose name contains TEXT; repeatable
    #[arg(long, value_name = "TEXT")]
    pub(crate) only: Vec<String>,

    /// Time that a server has to become ready
    #[arg(long, value_name = "TIME", default_value = "30s", value_parser = values::duration)]
    pub(crate) ready_within: Duration,

    /// Send over a shaped line: a rate, a round trip and a loss each way, 100mbit,26ms,loss=1%; or telecom, lan, regions
    ///
    /// Groups that have a network of their own are left out. See linerate load --help. This takes root and /dev/net/tun.
    #[arg(long, value_name = "RATE,RTT,loss=P", value_parser = values::line)]
    pub(crate) line: Option<LineShape>,

    /// Build the servers that a scenario has as source; their libraries are downloaded
    #[arg(long)]
    pub(crate) build: bool,

    /// Do not give servers and client cores of their own
    #[arg(long)]
    pub(crate) no_pin: bool,

    /// Write the results as JSON to FILE, or - for standard output (the tables then go to standard error)
    #[arg(long, value_name = "FILE")]
    pub(crate) json: Option<PathBuf>,

    /// Write the results as one page to FILE or -
    #[arg(long, value_name = "FILE")]
    pub(crate) html: Option<PathBuf>,

    /// No progress, only the report
    #[arg(short = 'q', long)]
    pub(crate) quiet: bool,
}
