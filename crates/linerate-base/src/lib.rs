//! What everything that does no I/O needs: time as a value, days of the calendar, and random numbers
//! that a seed repeats.
//!
//! ```
//! use std::time::Duration;
//!
//! use linerate_base::{Random, Time};
//!
//! // When the first ten requests of a Poisson process are due, at 100 a second on average.
//! let mut random = Random::new(7);
//! let mut due = Time::ZERO;
//! for _ in 0..10 {
//!     due = due + Duration::from_secs_f64(random.exponential() / 100.0);
//!     println!("{:.3} ms", due.as_nanos() as f64 / 1e6);
//! }
//! ```

mod calendar;
mod random;
mod time;

pub use calendar::{CalendarDay, DAY_S};
pub use random::{Random, derive, mix, nth};
pub use time::Time;
