//! One load run on many machines.
//!
//! The coordinator writes a [`RunDocument`](document::RunDocument) into a NATS bucket. Each agent
//! carries out its [`Share`](document::Share): together they send exactly the plan. Each second an
//! agent publishes what it measured; the [`Merger`](merge::Merger) adds it up, in any order and
//! with any copies, so that no percentile is ever averaged.
//!
//! * `document`, `allow`, `signing`, `losses`, `figures`, `message`, `merge`, `clock`: decide, without I/O.
//! * `spool`: the agent's own file.
//! * `lease`: the key of a run's only coordinator.
//! * `bus`: NATS. `agent` and `coordinator` drive the two sides.

pub mod agent;
pub mod allow;
mod bus;
pub mod clock;
pub mod coordinator;
pub mod document;
pub mod figures;
mod lease;
pub mod losses;
pub mod merge;
pub mod message;
pub mod signing;
pub mod spool;

pub use bus::{BusError, BusOptions};
