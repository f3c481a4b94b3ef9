//! `linerate k6`: k6's command line.

use std::path::PathBuf;

use clap::{Args, Subcommand};

/// Run k6 scripts, unchanged: linerate k6 run script.js
#[derive(Args, Clone, Debug)]
pub(crate) struct K6Args {
    /// What to do
    #[command(subcommand)]
    pub(crate) what: K6Command,
}

/// What k6 is asked for.
#[derive(Clone, Debug, Subcommand)]
pub(crate) enum K6Command {
    Run(Box<K6RunArgs>),
}

/// Run a script, and end with k6's summary and exit codes
///
/// Options of the script hold, except those that are given here; these hold before variables such as K6_VUS, and these before the
/// script's. What is not supported is named before the run.
#[derive(Args, Clone, Debug, Default)]
#[command(after_long_help = "\
Examples:
  linerate k6 run script.js
  linerate k6 run -u 10 -d 30s -e HOST=127.0.0.1:8080 script.js
  linerate k6 run -s 30s:50,1m:50,10s:0 --summary-export out.json script.js

Exit codes are k6's: 0 fine; 99 a threshold failed; 100, 101 setup or teardown took too long; 104 bad options; 105 interrupted;
107 the script threw while it was loaded, in setup or in teardown, or uses what is not supported; 108 the script called exec.test.abort().")]
pub(crate) struct K6RunArgs {
    /// The script
    #[arg(value_name = "SCRIPT")]
    pub(crate) script: PathBuf,

    /// Users at the same time
    #[arg(short = 'u', long, value_name = "N")]
    pub(crate) vus: Option<u32>,

    /// Iterations that all users share
    #[arg(short = 'i', long, value_name = "N")]
    pub(crate) iterations: Option<u64>,

    /// How long users go on: 30s, 1m30s
    #[arg(short = 'd', long, value_name = "TIME")]
    pub(crate) duration: Option<String>,

    /// Stages of a number of users: 30s:50,1m:0 (repeatable)
    #[arg(
        short = 's',
        long = "stage",
        visible_alias = "stages",
        value_name = "TIME:N",
        value_delimiter = ','
    )]
    pub(crate) stages: Vec<String>,

    /// A variable of __ENV (repeatable)
    #[arg(short = 'e', long = "env", value_name = "NAME=VALUE")]
    pub(crate) env: Vec<String>,

    /// A tag of all samples (repeatable)
    #[arg(long = "tag", value_name = "NAME=VALUE")]
    pub(crate) tags: Vec<String>,

    /// Write the summary as JSON to this file
    #[arg(long, value_name = "FILE")]
    pub(crate) summary_export: Option<PathBuf>,

    /// Values of trends in the summary: avg,p(99)
    #[arg(long, value_name = "LIST", value_delimiter = ',')]
    pub(crate) summary_trend_stats: Vec<String>,

    /// Unit of times in the summary: s, ms or us
    #[arg(long, value_name = "UNIT")]
    pub(crate) summary_time_unit: Option<String>,

    /// Show no progress
    #[arg(short, long)]
    pub(crate) quiet: bool,

    /// Do not call setup()
    #[arg(long)]
    pub(crate) no_setup: bool,

    /// Do not call teardown()
    #[arg(long)]
    pub(crate) no_teardown: bool,

    /// Judge no thresholds
    #[arg(long)]
    pub(crate) no_thresholds: bool,

    /// Print no summary, and do not call handleSummary()
    #[arg(long)]
    pub(crate) no_summary: bool,

    /// Accept any certificate
    #[arg(long)]
    pub(crate) insecure_skip_tls_verify: bool,

    /// Read bodies of responses and drop them
    #[arg(long)]
    pub(crate) discard_response_bodies: bool,

    /// A connection for each request
    #[arg(long)]
    pub(crate) no_connection_reuse: bool,

    /// A failed request throws
    #[arg(short = 'w', long)]
    pub(crate) throw: bool,

    /// Redirects to follow, at most
    #[arg(long, value_name = "N")]
    pub(crate) max_redirects: Option<u32>,

    /// Requests of a batch at a time, at most
    #[arg(long, value_name = "N")]
    pub(crate) batch: Option<u32>,

    /// Of these to one host, at most
    #[arg(long, value_name = "N")]
    pub(crate) batch_per_host: Option<u32>,

    /// User-Agent of requests
    #[arg(long, value_name = "TEXT")]
    pub(crate) user_agent: Option<String>,

    /// Taken, and without effect: there is nothing to report
    #[arg(long, hide = true)]
    pub(crate) no_usage_report: bool,

    /// No colors
    #[arg(long)]
    pub(crate) no_color: bool,
}
