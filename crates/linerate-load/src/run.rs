//! Starting a run, watching it, ending it.

use crate::{Outcome, Plan, Snapshot};

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
}

/// A run under way.
#[derive(Debug)]
pub struct Running {}

/// Starts a run on its own threads.
pub fn start(_plan: Plan) -> Result<Running, StartError> {
    Ok(Running {})
}

impl Running {
    /// How it is going. Never waits for the network.
    pub fn snapshot(&self) -> Snapshot {
        Snapshot::default()
    }

    /// Whether it has ended by itself.
    pub fn finished(&self) -> bool {
        true
    }

    /// Asks it to end now: nothing more is sent, answers under way get a moment (at most a second).
    pub fn stop(&self) {}

    /// Waits for the end.
    pub fn join(self) -> Outcome {
        Outcome::default()
    }
}
