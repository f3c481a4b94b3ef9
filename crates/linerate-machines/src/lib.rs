//! One load run on many machines.
//!
//! The coordinator writes a [`RunDocument`](document::RunDocument) into a NATS bucket. Each agent
//! carries out its [`Share`](document::Share): together they send exactly the plan. Each second an
//! agent publishes what it measured; the [`Merger`](merge::Merger) adds it up, in any order and
//! with any copies, so that no percentile is ever averaged.
//!
//! * `document`, `figures`, `message`, `merge`, `clock`: decide, without I/O.
//! * `spool`: the agent's own file.
//! * `bus`: NATS. `agent` and `coordinator` drive the two sides.

pub mod agent;
mod bus;
pub mod clock;
pub mod coordinator;
pub mod document;
pub mod figures;
pub mod merge;
pub mod message;
pub mod spool;

pub use bus::{BusError, BusOptions};
