//! The time of this machine.

use crate::Time;
use crate::sys::thread;

pub(crate) fn monotonic() -> Time {
    Time::from_nanos(thread::monotonic_ns())
}

/// Reads the clock on first use, and at most once: a turn has one of these.
#[derive(Default)]
pub(crate) struct Clock(Option<Time>);

impl Clock {
    pub(crate) fn now(&mut self) -> Time {
        *self.0.get_or_insert_with(monotonic)
    }
}
