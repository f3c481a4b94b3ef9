//! The ways of sending: ours, and the baselines of the write-ups, which exist to be compared with.
//!
//! * `event_loop`: the threads of event loops; `core_part`: the engine of each.
//! * `hosts`: the engines of several hosts, side by side in each thread.
//! * `quic`: the engine over QUIC.
//! * `threads`: blocking threads, each with one request at a time; with one thread it is "polling".
//! * `tasks`: tasks on an async runtime, each with one request at a time.
//! * `caller`: what a thread and a task have in common, sans-IO; `channel`: what their bytes go through.
//! * `towards`: where their connections go.

mod caller;
mod channel;
mod core_part;
mod event_loop;
mod hosts;
mod outgoing;
mod quic;
mod tasks;
mod threads;
mod towards;
mod works;

pub(crate) use core_part::CorePart;
#[cfg(test)]
pub(crate) use quic::run_over as run_over_datagrams;
pub(crate) use works::Works;

use std::sync::Arc;

use linerate_net::{Time, Transport};

use crate::engine::board::{Board, Common};
use crate::engine::kinds::Kinds;
use crate::outcome::Outcome;
use crate::plan::{Plan, Way};
use crate::request_log;
use crate::start::{RunPlace, StartError};

/// The threads to start for a plan.
pub(crate) fn works(
    plan: &Plan,
    place: Option<RunPlace>,
    log: Option<request_log::Sender>,
) -> Result<Works, StartError> {
    Kinds::new(plan, 0, 1)?;
    let common = Arc::new(Common::logging(log));
    match plan.way {
        Way::Loop => event_loop::works(plan, place, &common),
        Way::Poll => threads::works(plan, 1, &common),
        Way::Threads => threads::works(plan, plan.connections, &common),
        Way::Async => tasks::works(plan, &common),
    }
}

/// Runs a plan on one thread and on a transport of one's own, whose clock begins at zero.
pub(crate) fn run_on<T: Transport>(plan: &Plan, transport: T) -> Result<Outcome, String> {
    let part =
        CorePart { core: 0, cores: 1, start: Time::ZERO, route: None, names: None, joining: None, gap: None };
    part.run(plan, transport, Arc::new(Board::default()))
}
