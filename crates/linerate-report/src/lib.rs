//! Turns outcomes into what people and machines read: plain data in, text out. Measures nothing, opens nothing.
//!
//! * [`summary`]: the end of a run, for a terminal; readable without colour.
//! * [`live`]: a run while it lasts, as a view that is redrawn or as plain lines.
//! * [`json`]: the versioned document ([`schema`]) that scripts and dashboards read.
//! * [`passive`]: calls that were seen in packets; [`diagram`]: what went to and fro, for a terminal and as SVG.
//! * [`explain`]: why a call is slow, as text and as a document.
//! * [`table`]: ways of sending side by side, for the demo.
#![forbid(unsafe_code)]

pub mod diagram;
pub mod doubts;
pub mod explain;
mod figures;
pub mod json;
pub mod limits;
pub mod live;
pub mod passive;
pub mod schema;
pub mod style;
pub mod summary;
pub mod table;
#[cfg(test)]
mod testing;
pub mod top;
pub mod units;

use linerate_load::plan::check::CheckResult;
use linerate_load::{Outcome, Plan};

pub use style::Style;

/// Everything a report of one run is made from.
#[derive(Clone, Copy, Debug)]
pub struct Report<'a> {
    /// What was to be done.
    pub plan: &'a Plan,
    /// What came of it.
    pub outcome: &'a Outcome,
    /// What the plan's checks found, in the plan's order.
    pub checks: &'a [CheckResult],
    /// Where it happened.
    pub environment: &'a Environment,
}

/// Where a run happened: what someone needs to know to repeat it.
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
