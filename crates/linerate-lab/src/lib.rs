//! Things compared in turns. It prints nothing and parses no arguments.
//!
//! * [`stats`]: paired log-ratios with studentised intervals, and how many rounds a decision needs.
//! * [`figures`]: what one run says about one side; [`comparison`]: what the rounds say about both.
//! * [`latencies`]: percentiles of several runs, each of which weighs the same.
//! * [`check`]: `p99 ratio<1.05` as a gate.
//! * [`find`]: the search for the highest rate at which a check holds. Without I/O and clock.
//! * [`scenario`]: which servers and which loads, built in or from TOML; [`relay`]: a longer round trip.
//! * [`veth`]: two network namespaces with a veth pair between them, for user-space TCP.
//! * [`servers`]: servers as processes of their own, which are pinned, watched and always ended.
//!
//! ```
//! use linerate_lab::stats::mean;
//!
//! // Requests/s of two servers, measured in turns: the machine's slow minutes hit both.
//! let (ours, theirs) = ([101.0, 99.0, 103.0, 98.0], [95.0, 94.0, 97.0, 92.0]);
//! let logs: Vec<f64> = ours.iter().zip(theirs).map(|(a, b): (&f64, f64)| (a / b).ln()).collect();
//! let ratio = mean(&logs).expect("at least three rounds");
//! assert!(ratio.differs());
//! println!("{:.3} ({:.3} to {:.3})", ratio.value.exp(), ratio.low.exp(), ratio.high.exp());
//! ```
#![forbid(unsafe_code)]

pub mod check;
pub mod comparison;
pub mod figures;
pub mod find;
mod invalid;
pub mod latencies;
pub mod limits;
pub mod relay;
pub mod scenario;
pub mod servers;
pub mod stats;
pub mod veth;

pub use invalid::InvalidLab;
