//! Turns outcomes into text for people and documents for machines: plain data in, text out. It
//! measures nothing and opens no file.
//!
//! * [`summary`]: the end of a run, for a terminal; readable without colour.
//! * [`live`]: a run in progress, as a redrawn view or as plain lines.
//! * [`live_page`]: the same as a page that events keep up to date.
//! * [`formats`]: CSV, JUnit XML, annotations.
//! * [`load_page`]: a run as one page of HTML.
//! * [`request_log`]: a line for each request.
//! * [`json`]: the versioned document ([`schema`]) for scripts and dashboards.
//! * [`passive`]: calls reassembled from packets; [`diagram`]: segments between two ends, for a
//!   terminal and as SVG.
//! * [`explain`]: why a call is slow, as text and as a document.
//! * [`compare`]: two sides in turns, as text, as a document and as a page; [`saved`]: saved documents,
//!   shown again.
//! * [`lab`]: a scenario's rows side by side.
//! * [`pipelining`]: whether pipelining pays at a server, and what would.
//! * [`find`]: the search for the highest rate at which a check holds.
//! * [`machines`]: the machines of one run side by side.
//! * [`table`]: ways of sending side by side, for the demo.
//!
//! ```no_run
//! use linerate_load::plan::{Plan, Target};
//! use linerate_report::{Environment, Report, Style, json, summary};
//!
//! let plan = Plan::get(Target::at(([127, 0, 0, 1], 8080).into()), "/");
//! let outcome = linerate_load::start(plan.clone())?.join();
//! let environment = Environment::default();
//! let report = Report { plan: &plan, outcome: &outcome, checks: &[], environment: &environment };
//! eprintln!("{}", summary::to_string(&report, summary::SummaryLength::Screen, Style::default()));
//! println!("{}", json::to_string(&report));
//! # Ok::<(), linerate_load::StartError>(())
//! ```
#![forbid(unsafe_code)]

pub mod compare;
pub mod diagram;
pub mod doubts;
pub mod explain;
mod figures;
pub mod find;
pub mod formats;
pub mod json;
pub mod lab;
pub mod limits;
pub mod live;
pub mod live_page;
pub mod load_page;
pub mod machines;
mod markup;
pub mod passive;
pub mod pipelining;
pub mod request_log;
pub mod saved;
pub mod schema;
pub mod style;
pub mod summary;
pub mod table;
#[cfg(test)]
mod testing;
pub mod top;
pub mod units;
pub mod verdict;

use linerate_load::plan::check::CheckResult;
use linerate_load::{Outcome, Plan};

pub use style::Style;

/// Everything a report of one run is made from.
#[derive(Clone, Copy, Debug)]
pub struct Report<'a> {
    /// The plan of the run.
    pub plan: &'a Plan,
    /// The results.
    pub outcome: &'a Outcome,
    /// The results of the plan's checks, in the plan's order.
    pub checks: &'a [CheckResult],
    /// The machine and software of the run.
    pub environment: &'a Environment,
}

/// The environment of a run: all that is needed to repeat it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Environment {
    /// The command as it was typed.
    pub command: String,
    /// Version of linerate.
    pub version: String,
    /// Kernel name and release.
    pub kernel: String,
    /// Cores this process may use.
    pub cpus: u32,
    /// Name of the machine.
    pub host: String,
}
