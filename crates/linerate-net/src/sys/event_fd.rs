//! An eventfd, by which another thread ends a wait.

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};
use std::time::Duration;

use super::{check, check_size};

/// Counts signals; readable while the count is above zero.
#[derive(Debug)]
pub(crate) struct EventFd(OwnedFd);

impl EventFd {
    pub(crate) fn new() -> io::Result<EventFd> {
        // SAFETY: eventfd takes no pointers.
        let fd = check(unsafe { libc::eventfd(0, libc::EFD_CLOEXEC | libc::EFD_NONBLOCK) })?;
        // SAFETY: the kernel just gave us this descriptor, and nothing else owns it.
        Ok(EventFd(unsafe { OwnedFd::from_raw_fd(fd) }))
    }

    /// Adds one. Fails only if the counter is at its maximum, and then the wait has ended already.
    pub(crate) fn signal(&self) {
        let one = 1u64;
        // SAFETY: the pointer is to 8 readable bytes that live through the call.
        let _ = unsafe { libc::write(self.0.as_raw_fd(), (&raw const one).cast(), 8) };
    }

    /// Resets the count; returns whether it was above zero.
    pub(crate) fn take(&self) -> bool {
        let mut count = 0u64;
        // SAFETY: the pointer is to 8 writable bytes that live through the call.
        check_size(unsafe { libc::read(self.0.as_raw_fd(), (&raw mut count).cast(), 8) }).is_ok()
    }

    /// Waits for a signal, at most `limit`; returns whether one came.
    pub(crate) fn wait(&self, limit: Duration) -> bool {
        let mut poll = libc::pollfd { fd: self.0.as_raw_fd(), events: libc::POLLIN, revents: 0 };
        let ms = libc::c_int::try_from(limit.as_millis()).unwrap_or(libc::c_int::MAX);
        // SAFETY: one pollfd that lives through the call.
        let n = unsafe { libc::poll(&raw mut poll, 1, ms) };
        n > 0 && self.take()
    }
}

impl AsFd for EventFd {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

impl AsRawFd for EventFd {
    fn as_raw_fd(&self) -> RawFd {
        self.0.as_raw_fd()
    }
}
