//! The ways of sending: ours, and the baselines of the write-ups, which exist to be compared with.
//!
//! * `event_loop`: the engine, one for each core.
//! * `threads`: blocking threads, each with one request at a time; with one thread it is "polling".
//! * `tasks`: tasks on an async runtime, each with one request at a time.
//! * `caller`: what a thread and a task have in common, sans-IO; `channel`: what their bytes go through.
//! * `towards`: where their connections go.

mod caller;
mod channel;
mod event_loop;
mod outgoing;
mod tasks;
mod threads;
mod towards;

pub(crate) use event_loop::Part;

use std::sync::Arc;

use linerate_net::link::pcap::PcapFile;
use linerate_net::{Time, Transport};

use crate::engine::board::{Board, Common};
use crate::engine::kinds::Kinds;
use crate::outcome::Outcome;
use crate::plan::{Plan, Way};
use crate::request_log;
use crate::route::Names;
use crate::run::{Place, StartError, Work};

/// Threads to be started and the boards they write on.
pub(crate) struct Works {
    pub(crate) works: Vec<Work>,
    pub(crate) boards: Vec<Arc<Board>>,
    /// Whether each thread has a core of its own.
    pub(crate) pinned: bool,
    /// Whether each thread may have a table of descriptors of its own, which makes system calls cheaper.
    pub(crate) own_descriptors: bool,
    /// What the user should know.
    pub(crate) warning: Option<String>,
    /// Where packets are written down.
    pub(crate) capture: Option<Arc<PcapFile>>,
    /// The target's name, if it can be looked up again.
    pub(crate) names: Option<Arc<Names>>,
}

/// What the plan asks for as threads to start.
pub(crate) fn works(
    plan: &Plan,
    place: Option<Place>,
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
    let part = Part { core: 0, cores: 1, start: Time::ZERO, route: None, names: None, joining: None };
    part.run(plan, transport, Arc::new(Board::default()))
}

/// Part `nth` of `whole` cut into `parts` nearly equal ones.
fn share(whole: u64, nth: u32, parts: u32) -> u64 {
    whole / u64::from(parts) + u64::from(u64::from(nth) < whole % u64::from(parts))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_add_up() {
        for (whole, parts) in [(0, 1), (1, 3), (10, 3), (100, 7)] {
            assert_eq!((0..parts).map(|nth| share(whole, nth, parts)).sum::<u64>(), whole);
        }
    }
}
