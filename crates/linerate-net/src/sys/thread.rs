//! Facts that a thread can ask of the kernel, and set, about itself.

use std::io;
use std::mem;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

use super::check;

/// Nanoseconds of a clock.
fn clock_ns(clock: libc::clockid_t) -> u64 {
    let mut spec = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the timespec lives through the call. Every Linux has these clocks, so it cannot fail.
    unsafe { libc::clock_gettime(clock, &raw mut spec) };
    spec.tv_sec as u64 * 1_000_000_000 + spec.tv_nsec as u64
}

/// CLOCK_MONOTONIC.
pub(crate) fn monotonic_ns() -> u64 {
    clock_ns(libc::CLOCK_MONOTONIC)
}

/// CLOCK_BOOTTIME, which also advances while the machine sleeps.
pub(crate) fn boot_time_ns() -> u64 {
    clock_ns(libc::CLOCK_BOOTTIME)
}

/// CLOCK_REALTIME.
pub(crate) fn wall_ns() -> u64 {
    clock_ns(libc::CLOCK_REALTIME)
}

/// CPU time of the calling thread.
pub(crate) fn cpu_time_ns() -> u64 {
    clock_ns(libc::CLOCK_THREAD_CPUTIME_ID)
}

/// Runs the calling thread on one CPU only.
pub(crate) fn pin(cpu: usize) -> io::Result<()> {
    if cpu >= libc::CPU_SETSIZE as usize {
        return Err(io::Error::from_raw_os_error(libc::EINVAL));
    }
    // SAFETY: cpu_set_t is a bit array: all zeros is a value.
    let mut set: libc::cpu_set_t = unsafe { mem::zeroed() };
    // SAFETY: `cpu` is below CPU_SETSIZE, checked above.
    unsafe { libc::CPU_SET(cpu, &mut set) };
    // SAFETY: the set lives through the call, and its size is given.
    check(unsafe { libc::sched_setaffinity(0, size_of::<libc::cpu_set_t>(), &raw const set) }).map(|_| ())
}

/// The CPUs the calling thread may run on.
pub(crate) fn allowed_cpus() -> io::Result<Vec<usize>> {
    // SAFETY: cpu_set_t is a bit array: all zeros is a value.
    let mut set: libc::cpu_set_t = unsafe { mem::zeroed() };
    // SAFETY: the set lives through the call, and its size is given.
    check(unsafe { libc::sched_getaffinity(0, size_of::<libc::cpu_set_t>(), &raw mut set) })?;
    // SAFETY: every index is below CPU_SETSIZE.
    Ok((0..libc::CPU_SETSIZE as usize).filter(|&cpu| unsafe { libc::CPU_ISSET(cpu, &set) }).collect())
}

/// Gives the calling thread a descriptor table of its own, a copy of the process's.
pub(crate) fn own_descriptors() -> io::Result<()> {
    // SAFETY: existing descriptors stay valid in both tables; memory does not change.
    check(unsafe { libc::unshare(libc::CLONE_FILES) }).map(|_| ())
}

/// Whether two threads of this machine have the same descriptor table (kcmp(2)).
pub(crate) fn share_descriptors(one: u32, other: u32) -> io::Result<bool> {
    // linux/kcmp.h.
    const KCMP_FILES: libc::c_long = 2;
    let [one, other] = [one, other].map(libc::c_long::from);
    // SAFETY: this call takes numbers, no pointer.
    let order = unsafe { libc::syscall(libc::SYS_kcmp, one, other, KCMP_FILES, 0, 0) };
    if order < 0 { Err(io::Error::last_os_error()) } else { Ok(order == 0) }
}

/// Sets how many nanoseconds late timers may fire.
pub(crate) fn set_timer_slack(ns: u64) -> io::Result<()> {
    // SAFETY: this option takes a number, no pointer.
    check(unsafe { libc::prctl(libc::PR_SET_TIMERSLACK, ns as libc::c_ulong, 0, 0, 0) }).map(|_| ())
}

/// Voluntary and involuntary context switches of the calling thread.
pub(crate) fn context_switches() -> io::Result<(u64, u64)> {
    // SAFETY: rusage is plain numbers: all zeros is a value.
    let mut usage: libc::rusage = unsafe { mem::zeroed() };
    // SAFETY: the struct lives through the call.
    check(unsafe { libc::getrusage(libc::RUSAGE_THREAD, &raw mut usage) })?;
    Ok((usage.ru_nvcsw as u64, usage.ru_nivcsw as u64))
}

/// The soft limit of open descriptors.
pub(crate) fn nofile() -> io::Result<u64> {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: the struct lives through the call.
    check(unsafe { libc::getrlimit(libc::RLIMIT_NOFILE, &raw mut limit) })?;
    Ok(limit.rlim_cur)
}

/// Raises the soft limit of open descriptors to the hard one and returns it.
pub(crate) fn raise_nofile() -> io::Result<u64> {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: the struct lives through the call.
    check(unsafe { libc::getrlimit(libc::RLIMIT_NOFILE, &raw mut limit) })?;
    if limit.rlim_cur < limit.rlim_max {
        let before = limit.rlim_cur;
        limit.rlim_cur = limit.rlim_max;
        // SAFETY: the struct lives through the call.
        if check(unsafe { libc::setrlimit(libc::RLIMIT_NOFILE, &raw const limit) }).is_err() {
            return Ok(before);
        }
    }
    Ok(limit.rlim_cur)
}

/// Makes the process's descriptor table large enough for `count` of them, at once.
///
/// The kernel doubles the table as descriptors are opened. In a process of several threads it then
/// waits until no other core can be using the old one (`expand_fdtable`, `synchronize_rcu`). That
/// takes 10 ms and more, in whichever `accept4` triggers it.
pub(crate) fn reserve_descriptors(any: &impl AsRawFd, count: u32) -> io::Result<()> {
    let last = nofile()?.min(u64::from(count)).saturating_sub(1) as libc::c_int;
    // SAFETY: no pointers; it makes a descriptor of its own, at `last` or above.
    let made = check(unsafe { libc::fcntl(any.as_raw_fd(), libc::F_DUPFD_CLOEXEC, last) })?;
    // SAFETY: the kernel just gave us this descriptor, and nothing else owns it.
    drop(unsafe { OwnedFd::from_raw_fd(made) });
    Ok(())
}

/// The number that the next descriptor will get: the lowest free one. `None` if there is none.
pub(crate) fn lowest_free(any: &impl AsRawFd) -> Option<u64> {
    // SAFETY: no pointers; it makes a descriptor of its own.
    let made = check(unsafe { libc::fcntl(any.as_raw_fd(), libc::F_DUPFD_CLOEXEC, 0) }).ok()?;
    // SAFETY: the kernel just gave us this descriptor, and nothing else owns it.
    drop(unsafe { OwnedFd::from_raw_fd(made) });
    Some(made as u64)
}

/// `uname -r`.
pub(crate) fn kernel_release() -> Option<String> {
    // SAFETY: utsname is plain bytes: all zeros is a value.
    let mut name: libc::utsname = unsafe { mem::zeroed() };
    // SAFETY: the struct lives through the call.
    check(unsafe { libc::uname(&raw mut name) }).ok()?;
    let bytes: Vec<u8> = name.release.iter().map(|&c| c as u8).take_while(|&c| c != 0).collect();
    String::from_utf8(bytes).ok()
}
