//! What everything that does no I/O needs: time as a value, and random numbers that a seed repeats.

mod random;
mod time;

pub use random::{Random, derive, mix, nth};
pub use time::Time;
