//! System calls without the C library, whose functions of these names are ours.

use std::os::fd::RawFd;
use std::time::Duration;

#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
compile_error!("bypass: system calls of this processor are not written yet");

/// A system call. Returns its result, or the negative errno.
///
/// # Safety
/// As the call's manual page.
pub(crate) unsafe fn system_call(number: libc::c_long, args: [usize; 6]) -> isize {
    let result: isize;
    #[cfg(target_arch = "x86_64")]
    // SAFETY: the kernel's calling convention; it changes rcx and r11.
    unsafe {
        std::arch::asm!("syscall", inlateout("rax") number as isize => result,
            in("rdi") args[0], in("rsi") args[1], in("rdx") args[2],
            in("r10") args[3], in("r8") args[4], in("r9") args[5],
            lateout("rcx") _, lateout("r11") _, options(nostack));
    }
    #[cfg(target_arch = "aarch64")]
    // SAFETY: the kernel's calling convention.
    unsafe {
        std::arch::asm!("svc 0", in("x8") number, inlateout("x0") args[0] => result,
            in("x1") args[1], in("x2") args[2], in("x3") args[3], in("x4") args[4], in("x5") args[5],
            options(nostack));
    }
    result
}

fn checked(result: isize) -> Result<usize, i32> {
    usize::try_from(result).map_err(|_| -result as i32)
}

/// The thread's errno.
pub(crate) fn errno() -> i32 {
    // SAFETY: the thread's errno is always there.
    unsafe { *libc::__errno_location() }
}

/// Sets the thread's errno.
pub(crate) fn set_errno(errno: i32) {
    // SAFETY: the thread's errno is always there.
    unsafe { *libc::__errno_location() = errno };
}

/// Writes to standard error. Nothing can be done if it fails.
pub(crate) fn write_error(bytes: &[u8]) {
    // SAFETY: the bytes are a slice's.
    unsafe { system_call(libc::SYS_write, [2, bytes.as_ptr() as usize, bytes.len(), 0, 0, 0]) };
}

/// Closes a descriptor.
pub(crate) fn close(fd: RawFd) -> Result<(), i32> {
    // SAFETY: it takes no pointer.
    checked(unsafe { system_call(libc::SYS_close, [fd as usize, 0, 0, 0, 0, 0]) }).map(drop)
}

/// A new TCP socket of a family, closed by `execve`.
pub(crate) fn tcp_socket(family: i32) -> Result<RawFd, i32> {
    let kind = libc::SOCK_STREAM | libc::SOCK_CLOEXEC;
    // SAFETY: it takes no pointer.
    checked(unsafe { system_call(libc::SYS_socket, [family as usize, kind as usize, 0, 0, 0, 0]) })
        .map(|fd| fd as RawFd)
}

/// fcntl(2) with a number.
pub(crate) fn fcntl(fd: RawFd, command: i32, value: usize) -> Result<i32, i32> {
    // SAFETY: these commands take no pointer.
    checked(unsafe { system_call(libc::SYS_fcntl, [fd as usize, command as usize, value, 0, 0, 0]) })
        .map(|result| result as i32)
}

/// An eventfd that never blocks.
pub(crate) fn event_fd() -> Result<RawFd, i32> {
    let flags = libc::EFD_CLOEXEC | libc::EFD_NONBLOCK;
    // SAFETY: it takes no pointer.
    checked(unsafe { system_call(libc::SYS_eventfd2, [0, flags as usize, 0, 0, 0, 0]) }).map(|fd| fd as RawFd)
}

/// Makes an eventfd ready.
pub(crate) fn signal_event(fd: RawFd) {
    let one = 1u64;
    // SAFETY: eight bytes of our own. It fails if it is ready beyond measure.
    unsafe { system_call(libc::SYS_write, [fd as usize, &raw const one as usize, 8, 0, 0, 0]) };
}

/// Makes an eventfd not ready.
pub(crate) fn drain_event(fd: RawFd) {
    let mut count = 0u64;
    // SAFETY: eight bytes of our own. It fails if it is not ready.
    unsafe { system_call(libc::SYS_read, [fd as usize, &raw mut count as usize, 8, 0, 0, 0]) };
}

/// An integer option of a socket of the kernel's.
pub(crate) fn option(fd: RawFd, level: i32, name: i32, value: &mut [u8]) -> Result<usize, i32> {
    let mut len = value.len() as libc::socklen_t;
    let args =
        [fd as usize, level as usize, name as usize, value.as_mut_ptr() as usize, &raw mut len as usize, 0];
    // SAFETY: the kernel writes at most `len` bytes of the slice.
    checked(unsafe { system_call(libc::SYS_getsockopt, args) }).map(|_| len as usize)
}

/// Reads from a place of a file.
pub(crate) fn pread(fd: RawFd, into: &mut [u8], at: i64) -> Result<usize, i32> {
    let args = [fd as usize, into.as_mut_ptr() as usize, into.len(), at as usize, 0, 0];
    // SAFETY: the bytes are a slice's.
    checked(unsafe { system_call(libc::SYS_pread64, args) })
}

/// lseek(2).
pub(crate) fn seek(fd: RawFd, offset: i64, whence: i32) -> Result<i64, i32> {
    // SAFETY: it takes no pointer.
    checked(unsafe { system_call(libc::SYS_lseek, [fd as usize, offset as usize, whence as usize, 0, 0, 0]) })
        .map(|at| at as i64)
}

/// A set of signals, as the kernel has it: its bytes are where this points.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct SignalMask(usize);

impl SignalMask {
    /// No change of signals.
    pub(crate) const NONE: SignalMask = SignalMask(0);

    /// # Safety
    /// It is null, or a set of signals that outlives this value.
    pub(crate) unsafe fn at(place: *const libc::sigset_t) -> SignalMask {
        SignalMask(place as usize)
    }
}

/// Bytes of the kernel's set of signals.
const MASK_BYTES: usize = 8;

/// Waits for descriptors. Returns how many are ready.
pub(crate) fn poll(
    polled: &mut [libc::pollfd],
    limit: Option<Duration>,
    signals: SignalMask,
) -> Result<usize, i32> {
    let time = limit.map(|limit| libc::timespec {
        tv_sec: libc::time_t::try_from(limit.as_secs()).unwrap_or(libc::time_t::MAX),
        tv_nsec: libc::c_long::from(limit.subsec_nanos()),
    });
    let time = time.as_ref().map_or(0, |time| std::ptr::from_ref(time) as usize);
    let args = [polled.as_mut_ptr() as usize, polled.len(), time, signals.0, MASK_BYTES, 0];
    // SAFETY: the list is a slice's, the time lives through the call; the mask as its maker promised.
    checked(unsafe { system_call(libc::SYS_ppoll, args) })
}

/// Events of the kernel's epoll, without waiting.
pub(crate) fn epoll_look(epoll: RawFd, out: &mut [libc::epoll_event]) -> Result<usize, i32> {
    let args = [epoll as usize, out.as_mut_ptr() as usize, out.len(), 0, 0, 0];
    // SAFETY: the array is a slice's.
    checked(unsafe { system_call(libc::SYS_epoll_pwait, args) })
}

/// Whether an epoll of the kernel's has a descriptor.
pub(crate) fn epoll_has(epoll: RawFd, fd: RawFd) -> bool {
    let mut event = libc::epoll_event { events: 0, u64: 0 };
    let args = [epoll as usize, libc::EPOLL_CTL_ADD as usize, fd as usize, &raw mut event as usize, 0, 0];
    // SAFETY: the event is our own.
    let added = checked(unsafe { system_call(libc::SYS_epoll_ctl, args) });
    if added.is_ok() {
        let args = [epoll as usize, libc::EPOLL_CTL_DEL as usize, fd as usize, 0, 0, 0];
        // SAFETY: it takes no event.
        unsafe { system_call(libc::SYS_epoll_ctl, args) };
    }
    added == Err(libc::EEXIST)
}

/// How many files the process may have open.
pub(crate) fn open_files() -> usize {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: the structure is our own.
    unsafe { libc::getrlimit(libc::RLIMIT_NOFILE, &raw mut limit) };
    usize::try_from(limit.rlim_cur).unwrap_or(usize::MAX)
}

/// The calling thread gets SIGPIPE.
pub(crate) fn raise_sigpipe() {
    // SAFETY: it takes no pointer.
    unsafe { libc::raise(libc::SIGPIPE) };
}

/// No signal is delivered to the calling thread.
pub(crate) fn block_signals() {
    // SAFETY: the set is our own.
    unsafe {
        let mut all: libc::sigset_t = std::mem::zeroed();
        libc::sigfillset(&raw mut all);
        libc::pthread_sigmask(libc::SIG_BLOCK, &raw const all, std::ptr::null_mut());
    }
}

/// Calls these in a forked child, and at the end of the process.
pub(crate) fn at_fork_and_exit(child: extern "C" fn(), exit: extern "C" fn()) {
    // SAFETY: the functions live as long as the process: the library is never unloaded. Without memory
    // for the notes a child would take descriptors for its own that do nothing.
    unsafe {
        libc::pthread_atfork(None, None, Some(child));
        libc::atexit(exit);
    }
}
