//! Says why an HTTP call is slow, and proves it by experiment. Probes, evidence and verdicts are
//! plain data; the rules are pure functions over what was observed.
//!
//! A [`Planner`] asks for one probe after another, takes the observations, and ends with a
//! [`Diagnosis`]; it opens no socket and reads no clock. [`driver`] is the thin part that does.
//!
//! * [`causes`]: each cause with its symptom, the experiment that proves it, and what to change.
//! * [`evidence`]: what a verdict stands on; without it none can be made.
//! * [`stats`]: two arms against each other, dose and response.
//! * [`times`], [`baseline`]: the calls' times, and two diagnoses against each other.
//! * [`predict`]: what a call will take once a cause is fixed.
//! * [`outside_in`]: where it is, from this machine to the wire.
//! * [`software`]: the server software that responded, and the advice that fits it.
//! * [`shown`]: material shown beside a verdict: calls next to each other, [`packets`], the server's
//!   [`process`].
//! * [`pages`]: each cause, explained for a reader who has never heard of it.
//! * [`passive`]: calls seen in packets, from a capture or live. Nothing is proved there, only
//!   seen.
//!
//! ```no_run
//! use linerate_explain::passive::{CaptureLimits, findings, read};
//!
//! let seen = read(std::fs::File::open("calls.pcapng")?, CaptureLimits::default())?;
//! for finding in findings::of(&seen) {
//!     println!("{} of {} calls: {}", finding.calls, finding.of, finding.title);
//! }
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
#![forbid(unsafe_code)]

mod arms;
pub mod baseline;
pub mod call;
pub mod causes;
mod coding;
pub mod diagnosis;
pub mod driver;
pub mod evidence;
pub mod handshake;
mod late;
pub mod limits;
pub mod local;
pub mod occupancy;
pub mod outside_in;
pub mod packets;
pub mod pages;
mod parts;
pub mod passive;
pub mod planner;
pub mod predict;
pub mod prediction;
pub mod probe;
pub mod process;
pub mod record;
mod rule;
pub mod shown;
mod signs;
pub mod software;
pub mod stats;
mod steady;
pub mod times;
pub mod upstream;
pub mod verdict;
mod words;

pub use diagnosis::{Diagnosis, Whole};
pub use driver::{ProbeTls, Request, explain};
pub use planner::Planner;
pub use record::Settings;
pub use verdict::Verdict;
