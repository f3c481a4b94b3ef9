//! Says why an HTTP call is slow, and proves it by experiment. Probes, evidence and verdicts are plain data; the rules are pure
//! functions over what was observed.
//!
//! * [`passive`]: calls seen in packets, from a capture or live. Nothing is proved there, only seen.
#![forbid(unsafe_code)]

pub mod passive;
