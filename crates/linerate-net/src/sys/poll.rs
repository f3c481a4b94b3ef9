//! epoll.

use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use super::check;

/// The events to report for a descriptor, always edge-triggered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Interest {
    /// Bytes, the peer's FIN, errors.
    Read,
    /// The same, and room to send.
    ReadWrite,
    /// Connections on a listening socket shared with other processes: the kernel wakes one of them,
    /// not all.
    Shared,
}

impl Interest {
    fn flags(self) -> u32 {
        let read = libc::EPOLLIN | libc::EPOLLRDHUP | libc::EPOLLET;
        (match self {
            Interest::Read => read,
            Interest::ReadWrite => read | libc::EPOLLOUT,
            Interest::Shared => libc::EPOLLIN | libc::EPOLLET | libc::EPOLLEXCLUSIVE,
        }) as u32
    }
}

/// The events that epoll reported for a descriptor.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PollEvent(u32);

impl PollEvent {
    /// True if bytes or the end of the stream can be read.
    pub(crate) fn readable(self) -> bool {
        self.0 & (libc::EPOLLIN | libc::EPOLLRDHUP | libc::EPOLLHUP | libc::EPOLLERR) as u32 != 0
    }

    pub(crate) fn writable(self) -> bool {
        self.0 & libc::EPOLLOUT as u32 != 0
    }

    /// The peer sent its FIN.
    pub(crate) fn fin(self) -> bool {
        self.0 & libc::EPOLLRDHUP as u32 != 0
    }

    /// True if an error is pending or both directions are shut down.
    pub(crate) fn broken(self) -> bool {
        self.0 & (libc::EPOLLHUP | libc::EPOLLERR) as u32 != 0
    }
}

/// An epoll instance and the events of its last wait.
pub(crate) struct Poll {
    fd: OwnedFd,
    events: Vec<libc::epoll_event>,
    capacity: usize,
}

/// Cleared once if the kernel lacks `epoll_pwait2` (before 5.11).
static PWAIT2: AtomicBool = AtomicBool::new(true);

impl Poll {
    /// `capacity`: events returned by one wait, at most.
    pub(crate) fn new(capacity: usize) -> io::Result<Poll> {
        // SAFETY: epoll_create1 takes no pointers.
        let fd = check(unsafe { libc::epoll_create1(libc::EPOLL_CLOEXEC) })?;
        // SAFETY: the kernel just gave us this descriptor, and nothing else owns it.
        let fd = unsafe { OwnedFd::from_raw_fd(fd) };
        let capacity = capacity.max(1);
        Ok(Poll { fd, events: Vec::with_capacity(capacity), capacity })
    }

    /// Another descriptor of the same instance.
    pub(crate) fn descriptor(&self) -> io::Result<OwnedFd> {
        self.fd.try_clone()
    }

    fn control(&self, op: libc::c_int, fd: &impl AsRawFd, interest: Interest, token: u64) -> io::Result<()> {
        let mut event = libc::epoll_event { events: interest.flags(), u64: token };
        // SAFETY: `event` lives through the call, and the kernel copies it.
        check(unsafe { libc::epoll_ctl(self.fd.as_raw_fd(), op, fd.as_raw_fd(), &raw mut event) }).map(|_| ())
    }

    pub(crate) fn add(&self, fd: &impl AsRawFd, interest: Interest, token: u64) -> io::Result<()> {
        self.control(libc::EPOLL_CTL_ADD, fd, interest, token)
    }

    pub(crate) fn modify(&self, fd: &impl AsRawFd, interest: Interest, token: u64) -> io::Result<()> {
        self.control(libc::EPOLL_CTL_MOD, fd, interest, token)
    }

    /// Removes a descriptor. Needed where closing it is not enough because other processes hold the
    /// same socket.
    pub(crate) fn remove(&self, fd: &impl AsRawFd) -> io::Result<()> {
        self.control(libc::EPOLL_CTL_DEL, fd, Interest::Read, 0)
    }

    /// Waits, at most `limit` (`None`: forever), and returns how many events came. A signal ends
    /// the wait with none.
    pub(crate) fn wait(&mut self, limit: Option<Duration>) -> io::Result<usize> {
        self.events.clear();
        let result = if PWAIT2.load(Ordering::Relaxed) { self.wait_ns(limit) } else { self.wait_ms(limit) };
        let count = match check(result) {
            Ok(n) => n as usize,
            Err(e) if e.raw_os_error() == Some(libc::EINTR) => 0,
            Err(e) if e.raw_os_error() == Some(libc::ENOSYS) && PWAIT2.swap(false, Ordering::Relaxed) => {
                return self.wait(limit);
            }
            Err(e) => return Err(e),
        };
        // SAFETY: the kernel wrote `count` events, never more than the capacity given.
        unsafe { self.events.set_len(count) };
        Ok(count)
    }

    fn wait_ns(&mut self, limit: Option<Duration>) -> libc::c_int {
        let spec = limit.map(timespec);
        let spec_ptr = spec.as_ref().map_or(std::ptr::null(), |s| s as *const libc::timespec);
        // SAFETY: `events` has room for `capacity` entries; `spec` lives through the call; no
        // signal mask is given. The call goes by number, since old C libraries lack the function.
        let result = unsafe {
            libc::syscall(
                libc::SYS_epoll_pwait2,
                self.fd.as_raw_fd(),
                self.events.as_mut_ptr(),
                self.capacity as libc::c_int,
                spec_ptr,
                std::ptr::null::<libc::sigset_t>(),
                0usize,
            )
        };
        result as libc::c_int
    }

    fn wait_ms(&mut self, limit: Option<Duration>) -> libc::c_int {
        // Rounded up: a wait that ends too early would spin until the deadline.
        let ms = limit.map_or(-1, |d| {
            libc::c_int::try_from(d.as_nanos().div_ceil(1_000_000)).unwrap_or(libc::c_int::MAX)
        });
        // SAFETY: `events` has room for `capacity` entries.
        unsafe {
            libc::epoll_wait(self.fd.as_raw_fd(), self.events.as_mut_ptr(), self.capacity as libc::c_int, ms)
        }
    }

    /// The token and state of one event of the last wait.
    pub(crate) fn event(&self, index: usize) -> (u64, PollEvent) {
        let event = self.events[index];
        (event.u64, PollEvent(event.events))
    }
}

/// Whether the kernel has `epoll_pwait2`, found by a wait of zero time.
pub(crate) fn has_pwait2() -> bool {
    Poll::new(1).and_then(|mut p| p.wait(Some(Duration::ZERO))).is_ok() && PWAIT2.load(Ordering::Relaxed)
}

pub(crate) fn timespec(d: Duration) -> libc::timespec {
    libc::timespec {
        tv_sec: libc::time_t::try_from(d.as_secs()).unwrap_or(libc::time_t::MAX),
        tv_nsec: libc::c_long::from(d.subsec_nanos() as i32),
    }
}
