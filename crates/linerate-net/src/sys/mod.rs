//! Thin safe wrappers over system calls. They make no decisions. All `unsafe` of the project is in
//! here.
#![allow(unsafe_code)]

mod buffers;
mod event_fd;
pub(crate) mod file;
#[cfg(target_env = "gnu")]
pub(crate) mod heap;
#[cfg(not(target_env = "gnu"))]
#[path = "heap_elsewhere.rs"]
pub(crate) mod heap;
mod inherited;
pub(crate) mod instrument;
pub(crate) mod packet_ring;
mod pages;
pub(crate) mod passing;
mod poll;
pub(crate) mod ring;
pub(crate) mod ring_check;
pub(crate) mod socket;
pub(crate) mod tallies;
pub(crate) mod tap;
pub(crate) mod thread;
mod timer_fd;
pub(crate) mod udp;
pub(crate) mod xdp;

pub(crate) use event_fd::EventFd;
pub(crate) use inherited::inherited_listener;
pub(crate) use pages::memory_file;
pub(crate) use poll::{Interest, Poll, PollEvent, has_pwait2};
pub use timer_fd::TimerFd;

use std::io;

/// Converts the result of a call that returns -1 and sets errno on failure.
pub(crate) fn check(result: libc::c_int) -> io::Result<libc::c_int> {
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(result) }
}

/// The same for calls that return a size.
pub(crate) fn check_size(result: libc::ssize_t) -> io::Result<usize> {
    usize::try_from(result).map_err(|_| io::Error::last_os_error())
}
