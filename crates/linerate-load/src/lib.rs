//! Drives HTTP load and measures it honestly. Prints nothing, parses no arguments.
//!
//! A [`Plan`] says what to do; [`start`] does it on a thread per core and gives back a [`Running`], from which
//! [`Snapshot`]s can be taken while it lasts and an [`Outcome`] when it has ended. Plans and outcomes are plain data.
//!
//! ```
//! use std::time::Duration;
//!
//! use linerate_load::plan::{Plan, Stop, Target};
//!
//! # let listener = std::net::TcpListener::bind("127.0.0.1:0")?;
//! # let address = listener.local_addr()?;
//! # std::thread::spawn(move || {
//! #     use std::io::{Read, Write};
//! #     for mut stream in listener.incoming().map_while(Result::ok) {
//! #         std::thread::spawn(move || {
//! #             while stream.read(&mut [0; 4096]).is_ok_and(|n| n > 0) {
//! #                 let _ = stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok");
//! #             }
//! #         });
//! #     }
//! # });
//! let plan = Plan {
//!     connections: 1,
//!     threads: Some(1),
//!     warm_up: Duration::ZERO,
//!     stop: Stop { requests: Some(100), duration: None },
//!     ..Plan::get(Target::at(address), "/")
//! };
//! let outcome = linerate_load::start(plan)?.join();
//! assert_eq!(outcome.requests.answered, 100);
//! println!("p99 {} us", outcome.latency.from_sent.percentile_ns(99.0) / 1000);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

pub mod defaults;
mod engine;
mod extract;
mod flows;
pub mod histogram;
pub mod hooks;
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

pub use extract::decode::{UndecodableBody, decode_body};
pub use outcome::{Outcome, Snapshot};
pub use plan::Plan;
pub use preview::{check, check_part, first_request};
pub use route::fuzz;
pub use run::{Running, SnapshotFeed, Watcher, start, start_logged, start_part, start_part_logged};
pub use start::{Join, RunPlace, StartError};

/// Runs a plan on this thread and on a transport of one's own, whose clock begins at zero.
#[doc(hidden)]
pub fn run_on<T: linerate_net::Transport>(plan: &Plan, transport: T) -> Result<Outcome, plan::InvalidPlan> {
    Ok(ways::run_on(plan, transport)?)
}
