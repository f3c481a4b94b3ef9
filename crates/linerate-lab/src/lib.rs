//! Things compared in turns. It prints nothing and parses no arguments.
//!
//! * [`stats`]: paired log-ratios with studentised intervals, and how many rounds a decision needs.
//! * [`figures`]: what one run says about one side; [`comparison`]: what the rounds say about both.
//! * [`check`]: `p99 ratio<1.05` as a gate.
//! * [`find`]: the search for the highest rate at which a check holds. Without I/O and clock.
//! * [`scenario`]: which servers and which loads, built in or from TOML; [`relay`]: a longer round trip.
//! * [`veth`]: two network namespaces with a veth pair between them, for user-space TCP.
//! * [`servers`]: servers as processes of their own, which are pinned, watched and always ended.
#![forbid(unsafe_code)]

pub mod check;
pub mod comparison;
pub mod figures;
pub mod find;
pub mod limits;
pub mod relay;
pub mod scenario;
pub mod servers;
pub mod stats;
pub mod veth;
