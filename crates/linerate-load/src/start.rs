//! How a run starts: the part of it that this process sends, its threads, and why it may not start.

use std::time::Duration;

use linerate_net::Time;

use crate::engine::kinds::RequestError;
use crate::outcome::Outcome;
use crate::plan::InvalidPlan;

/// Why a run could not start: the plan asks for what cannot be had. Nothing was sent.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StartError {
    /// The plan itself is at fault (exit code 2).
    #[error("{0}")]
    Plan(String),
    /// This machine lacks something (exit code 4).
    #[error("{0}")]
    Machine(String),
    /// The interface cannot be had for a TCP in user space (exit code 4).
    #[error(transparent)]
    Interface(#[from] linerate_net::link::xdp::XdpError),
}

impl From<InvalidPlan> for StartError {
    fn from(invalid: InvalidPlan) -> StartError {
        StartError::Plan(invalid.into())
    }
}

impl From<RequestError> for StartError {
    fn from(error: RequestError) -> StartError {
        StartError::Plan(error.to_string())
    }
}

/// A thread's part of the work: runs to the end and says what it measured.
pub(crate) type Work = Box<dyn FnOnce() -> Result<Outcome, String> + Send>;

/// Which part of a run this process sends: its threads among the threads of all machines.
///
/// Thread `t` of all `T` sends requests number `t`, `t + T`, `t + 2T` and so on, and opens its share
/// of the connections. So the parts together send exactly what one process would.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RunPlace {
    /// Number of this process's first thread among all.
    pub first_thread: u32,
    /// Threads of all processes together.
    pub all_threads: u32,
    /// When the run starts, on this machine's monotonic clock; `None`: at once.
    pub start: Option<Time>,
    /// Where it joins a run that has started; `None`: it is there from the start.
    pub join: Option<Join>,
    /// Requests of a closed loop leave at least so far apart, counting all threads of this process;
    /// `None`: as responses come.
    pub gap: Option<Duration>,
}

/// How a part joins a run that has started: for a part that was late, or that takes over the share
/// of another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Join {
    /// From this moment of the run on it sends.
    pub at: Duration,
    /// Another part has accounted for all requests due before this moment of the run. Those due from then
    /// until `at` are `unsent`.
    pub accounted: Duration,
    /// Requests of a closed loop that another has sent already.
    pub sent: u64,
}
