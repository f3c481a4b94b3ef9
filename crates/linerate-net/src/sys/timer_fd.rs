//! A timerfd: a moment that an event loop of somebody else can wait for, to the microsecond.

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};
use std::time::Duration;

use super::check;
use super::poll::timespec;

/// A descriptor that becomes readable when its time has come.
#[derive(Debug)]
pub struct TimerFd(OwnedFd);

impl TimerFd {
    /// A timer that is not set.
    ///
    /// # Errors
    /// No file descriptor is left.
    pub fn new() -> io::Result<TimerFd> {
        // SAFETY: timerfd_create takes no pointers.
        let fd = check(unsafe {
            libc::timerfd_create(libc::CLOCK_MONOTONIC, libc::TFD_CLOEXEC | libc::TFD_NONBLOCK)
        })?;
        // SAFETY: the kernel just gave us this descriptor, and nothing else owns it.
        Ok(TimerFd(unsafe { OwnedFd::from_raw_fd(fd) }))
    }

    /// It becomes readable once, after this time. An earlier setting is forgotten, whether its time had come or not.
    ///
    /// # Errors
    /// The kernel refuses the time, which fits in every case.
    pub fn set(&self, after: Duration) -> io::Result<()> {
        // Zero would unset it.
        let value = timespec(after.max(Duration::from_nanos(1)));
        let spec = libc::itimerspec { it_interval: timespec(Duration::ZERO), it_value: value };
        // SAFETY: the new value lives through the call, and no old one is asked for.
        check(unsafe { libc::timerfd_settime(self.0.as_raw_fd(), 0, &raw const spec, std::ptr::null_mut()) })
            .map(drop)
    }
}

impl AsFd for TimerFd {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

impl AsRawFd for TimerFd {
    fn as_raw_fd(&self) -> RawFd {
        self.0.as_raw_fd()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sys::{Interest, Poll};

    #[test]
    fn a_timer_goes_off_once_for_each_setting() -> io::Result<()> {
        let (timer, mut poll) = (TimerFd::new()?, Poll::new(4)?);
        poll.add(&timer, Interest::Read, 7)?;
        assert_eq!(poll.wait(Some(Duration::ZERO))?, 0, "it was not set");
        for after in [Duration::from_micros(50), Duration::ZERO] {
            timer.set(after)?;
            assert_eq!(poll.wait(None)?, 1);
            assert_eq!(poll.wait(Some(Duration::ZERO))?, 0, "edges alone count");
        }
        Ok(())
    }
}
