//! Time as transports report it.

use std::ops::{Add, Sub};
use std::time::Duration;

/// Monotonic time in nanoseconds. Kernel transports use `CLOCK_MONOTONIC`, so times of several
/// cores of one machine compare. `mem` counts from zero and only advances by its waits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Time(u64);

impl Time {
    /// The earliest time.
    pub const ZERO: Time = Time(0);
    /// Later than everything: "no deadline".
    pub const NEVER: Time = Time(u64::MAX);

    /// From nanoseconds.
    pub const fn from_nanos(nanos: u64) -> Time {
        Time(nanos)
    }

    /// In nanoseconds.
    pub const fn as_nanos(self) -> u64 {
        self.0
    }

    /// Nanoseconds since `earlier`, zero when `earlier` is later.
    pub const fn nanos_since(self, earlier: Time) -> u64 {
        self.0.saturating_sub(earlier.0)
    }
}

impl Add<Duration> for Time {
    type Output = Time;
    fn add(self, d: Duration) -> Time {
        Time(self.0.saturating_add(u64::try_from(d.as_nanos()).unwrap_or(u64::MAX)))
    }
}

impl Sub<Time> for Time {
    type Output = Duration;
    fn sub(self, earlier: Time) -> Duration {
        Duration::from_nanos(self.nanos_since(earlier))
    }
}
