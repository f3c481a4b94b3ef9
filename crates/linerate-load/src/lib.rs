//! Drives HTTP load and measures it honestly. Prints nothing, parses no arguments.
//!
//! A [`Plan`] says what to do; [`start`] does it on a thread per core and gives back a [`Running`], from which
//! [`Snapshot`]s can be taken while it lasts and an [`Outcome`] when it has ended. Plans and outcomes are plain data.

pub mod defaults;
mod engine;
pub mod histogram;
mod limits;
mod local;
pub mod outcome;
pub mod plan;
mod preview;
pub mod request_log;
mod route;
mod run;
mod start;
mod validate;
mod watch;
mod ways;

pub use outcome::{Outcome, Snapshot};
pub use plan::Plan;
pub use preview::{check, first_request};
pub use route::fuzz;
pub use run::{Running, Watcher, start, start_logged, start_part};
pub use start::{Join, Place, StartError};

/// Runs a plan on this thread and on a transport of one's own, whose clock begins at zero.
#[doc(hidden)]
pub fn run_on<T: linerate_net::Transport>(plan: &Plan, transport: T) -> Result<Outcome, String> {
    ways::run_on(plan, transport)
}
