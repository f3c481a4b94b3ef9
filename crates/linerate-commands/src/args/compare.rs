//! The flags of `linerate compare`: its own, and those of `load` that say what and how to send.

use std::path::PathBuf;
use std::time::Duration;

use clap::{Arg, Args};
use linerate_lab::check::MetricCheck;
use linerate_lab::limits::MOST_ROUNDS;

use super::{LoadArgs, values};

const COMPARING: &str = "Comparing";
const SERVERS: &str = "Servers that it starts";

/// Flags of `load` that the help of `compare` shows: they mean the same here, or are meant for it.
const SHOWN: [&str; 7] = ["url", "check", "json", "html", "quiet", "duration", "warm_up"];

const AFTER: &str = "\
The flags of linerate load that say what and how to send work here too, for both sides: -c, -p, -r, -n, -t, -X, -H, --body,
--per-connection, --way, --io, --plan, --expect-status, --insecure ... (linerate load --help). --a and --b give more of them to
one side alone.

Examples:
  linerate compare http://127.0.0.1:8080/ http://127.0.0.1:8081/            two servers
  linerate compare http://127.0.0.1:8080/ --a '-p 1' --b '-p 100' -c 8      two ways of sending to one
  linerate compare 'cmd:./old --port {port}' 'cmd:./new --port {port}'      two builds: started, watched and ended
  linerate compare 'cmd:linerate serve --listen 127.0.0.1:0' 'cmd:python3 -m http.server {port}' -c 8 --rounds 5
  linerate compare http://a.test/ http://b.test/ -r 500 --check 'p99 ratio<1.05' --json out.json   in a pipeline

Exit codes: 0 done and fine; 1 a check failed, a server ended early, or not one response was good; 2 bad input, nothing was run;
3 a server did not become ready, or was never reached; 4 something failed here; 130 interrupted (the rounds so far are reported).";

/// Compare two servers, builds or ways of sending: in turns, with a verdict that statistics back
///
/// Runs the same load against A and B in turns (A B, then B A, and so on), so that a machine that
/// drifts favours neither. Each metric gets the mean ratio of its rounds, the interval that holds
/// the true one in 95 of 100 cases, and a verdict, which is "no difference seen" when that is so.
#[derive(Args, Clone, Debug)]
#[command(after_long_help = AFTER, mut_args(own))]
pub(crate) struct CompareArgs {
    #[command(flatten)]
    pub(crate) load: Box<LoadArgs>,

    /// The second one; without it both sides are A, and --a and --b tell them apart
    #[arg(value_name = "B")]
    pub(crate) other: Option<String>,

    /// Rounds: each runs both sides once
    #[arg(long, value_name = "N", default_value = "10", value_parser = rounds, allow_negative_numbers = true, help_heading = COMPARING)]
    pub(crate) rounds: u32,

    /// Flags of load for A alone
    #[arg(long, value_name = "FLAGS", allow_hyphen_values = true, default_value = "", hide_default_value = true, help_heading = COMPARING)]
    pub(crate) a: String,

    /// Flags of load for B alone
    #[arg(long, value_name = "FLAGS", allow_hyphen_values = true, default_value = "", hide_default_value = true, help_heading = COMPARING)]
    pub(crate) b: String,

    /// What must hold at the end, else exit code 1: 'p99 ratio<1.05', 'rate lo>0.95'; repeatable
    ///
    /// A metric (rate, mean, p50, p90, p99, p99.9, cpu, rss, switches, wait, client_cpu), then ratio
    /// (B over A), lo or hi (the ends of its 95 % interval) or change (against --baseline), a
    /// comparison and a limit. 'p99 hi<1.05' passes only where it is sure, 'p99 lo<1.05' fails only
    /// where it is sure.
    #[arg(id = "gate", long = "check", value_name = "EXPR", value_parser = MetricCheck::parse, help_heading = COMPARING)]
    pub(crate) gates: Vec<MetricCheck>,

    /// Say what has changed since a saved comparison (--json FILE): its ratios against those of today
    #[arg(long, value_name = "FILE", help_heading = COMPARING)]
    pub(crate) baseline: Option<PathBuf>,

    /// Where the server of A answers, if it does not print that: http://127.0.0.1:8080/
    #[arg(long, value_name = "URL", help_heading = SERVERS)]
    pub(crate) a_url: Option<String>,

    /// Where the server of B answers, if it does not print that
    #[arg(long, value_name = "URL", help_heading = SERVERS)]
    pub(crate) b_url: Option<String>,

    /// Path to ask servers for that are started here, as /bytes/600
    #[arg(long, value_name = "PATH", help_heading = SERVERS)]
    pub(crate) path: Option<String>,

    /// Time that a server has to become ready
    #[arg(long, value_name = "TIME", default_value = "10s", value_parser = values::duration, help_heading = SERVERS)]
    pub(crate) ready_within: Duration,

    /// Do not give servers and client cores of their own
    #[arg(long, help_heading = SERVERS)]
    pub(crate) no_pin: bool,
}

/// Renames and hides what the flattened flags of `load` bring.
fn own(arg: Arg) -> Arg {
    match arg.get_id().as_str() {
        "url" => arg
            .value_name("A")
            .help("The first one: a URL, or cmd:PROGRAM ARGUMENTS, a server to start")
            .long_help(
                "The first one: a URL, or cmd:PROGRAM ARGUMENTS, a server that is started on cores of its own, watched (CPU, memory, \
                 context switches) and ended. It prints its URL, or {port} among its arguments stands for a free port",
            ),
        "check" => arg
            .long("check-each")
            .help("What must hold in every run, as --check of load: p99<50ms; repeatable")
            .long_help("What must hold in every run, else exit code 1, as --check of linerate load: p99<50ms, errors<0.1%; repeatable")
            .help_heading(COMPARING),
        "duration" => arg.help("Measured time of each run [default: 2s]").help_heading(COMPARING),
        "warm_up" => arg.help("Time before it that does not count [default: 500ms]").help_heading(COMPARING),
        "json" => arg.help_heading(COMPARING),
        "html" => arg.help("Write the results as one page to FILE or -").help_heading(COMPARING),
        "quiet" => arg.help("No progress, only the report").help_heading(COMPARING),
        id if is_own(id) || SHOWN.contains(&id) => arg,
        _ => arg.hide(true),
    }
}

fn is_own(id: &str) -> bool {
    let own =
        ["other", "rounds", "a", "b", "gate", "baseline", "a_url", "b_url", "path", "ready_within", "no_pin"];
    own.contains(&id) || id == "help" || id == "version"
}

fn rounds(text: &str) -> Result<u32, String> {
    match text.parse::<u32>() {
        Ok(n) if (1..=MOST_ROUNDS).contains(&n) => Ok(n),
        _ => Err(format!("rounds are a number from 1 to {MOST_ROUNDS}; 5 to 20 are usual")),
    }
}
