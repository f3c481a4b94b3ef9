//! A server's counters, and how they are read.

pub(crate) mod counts;
pub(crate) mod live_stats;
pub(crate) mod meter;
pub(crate) mod metrics;
pub(crate) mod process;
pub(crate) mod prometheus;
