//! What an agent runs its share by. `linerate_load` is the one that sends; simulations bring their
//! own.

use linerate_load::request_log::Sender;
use linerate_load::{Outcome, Plan, RunPlace, Running, Snapshot};

/// Starts shares.
pub trait ShareEngine: Send + Sync {
    /// Starts this place's part of a plan, or says why it cannot.
    /// With a `log`, each request is handed over.
    fn start(
        &self,
        plan: Plan,
        place: RunPlace,
        log: Option<Sender>,
    ) -> Result<Box<dyn RunningShare>, String>;
}

/// A share that is being sent.
pub trait RunningShare: Send + Sync {
    /// How it is going. Never waits.
    fn snapshot(&self) -> Snapshot;

    /// Whether it has ended by itself.
    fn finished(&self) -> bool;

    /// Asks it to end now.
    fn stop(&self);

    /// Waits for the end.
    fn join(self: Box<Self>) -> Outcome;
}

/// Sends, by `linerate_load`.
#[derive(Clone, Copy, Debug, Default)]
pub struct LoadEngine;

impl ShareEngine for LoadEngine {
    fn start(
        &self,
        plan: Plan,
        place: RunPlace,
        log: Option<Sender>,
    ) -> Result<Box<dyn RunningShare>, String> {
        let started = match log {
            Some(log) => linerate_load::start_part_logged(plan, place, log),
            None => linerate_load::start_part(plan, place),
        };
        match started {
            Ok(running) => Ok(Box::new(running)),
            Err(error) => Err(error.to_string()),
        }
    }
}

impl RunningShare for Running {
    fn snapshot(&self) -> Snapshot {
        Running::snapshot(self)
    }

    fn finished(&self) -> bool {
        Running::finished(self)
    }

    fn stop(&self) {
        Running::stop(self);
    }

    fn join(self: Box<Self>) -> Outcome {
        Running::join(*self)
    }
}
