//! One load run on many machines.
//!
//! The coordinator writes a [`RunDocument`](document::RunDocument) into a NATS bucket. Each agent
//! carries out its [`RunShare`](document::RunShare): together they send exactly the plan. Each second an
//! agent publishes what it measured; the [`Merger`](merge::Merger) adds it up, in any order and
//! with any copies, so that no percentile is ever averaged.
//!
//! * `document`, `allow`, `signing`, `sealing`, `presence`, `losses`, `figures`, `message`, `merge`, `clock`:
//!   decide, without I/O.
//! * `spool`: the agent's own file.
//! * `lease`: the key of a run's only coordinator.
//! * `bus`: NATS. `agent` and `coordinator` drive the two sides.
//!
//! ```no_run
//! use std::time::Duration;
//!
//! use linerate_load::plan::{Plan, Stop, Target};
//! use linerate_machines::BusOptions;
//! use linerate_machines::coordinator::{Coordinator, WantedAgents};
//!
//! # async fn example() -> Result<(), Box<dyn std::error::Error>> {
//! let bus = BusOptions { url: "nats://127.0.0.1:4222".to_owned(), ..BusOptions::default() };
//! let stop = Stop { requests: None, duration: Some(Duration::from_secs(10)) };
//! let plan = Plan { connections: 64, stop, ..Plan::get(Target::at(([127, 0, 0, 1], 8080).into()), "/") };
//! let (_stop, stopped) = tokio::sync::watch::channel(false);
//! let mut coordinator = Coordinator::connect(&bus, stopped).await?;
//! let all = coordinator.run(plan, WantedAgents::Number(2), |_, _| {}, |progress| println!("{:?}", progress.elapsed)).await?;
//! println!("{:?}, complete: {}", all.outcome.requests, all.is_complete());
//! # Ok(())
//! # }
//! ```

pub mod agent;
pub mod allow;
mod bus;
pub mod clock;
pub mod coordinator;
pub mod document;
pub mod figures;
mod lease;
pub mod listing;
pub mod losses;
pub mod merge;
pub mod message;
mod presence;
mod sealing;
pub mod signing;
pub mod spool;

pub use bus::{BusError, BusOptions};
