//! Calls to the kernel by threads that drive transports. They concern the calling thread or
//! process.

use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::atomic::{AtomicBool, Ordering};

use crate::clock::monotonic;
use crate::limits::INHERITED;
use crate::sys::{heap, inherited_listener, thread};
use crate::{NetError, Time};

/// The time of `CLOCK_MONOTONIC`.
pub fn monotonic_now() -> Time {
    monotonic()
}

/// Wall-clock time minus monotonic time, nanoseconds.
pub fn wall_offset_ns() -> u64 {
    let wall = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
    let wall = u64::try_from(wall.as_nanos()).unwrap_or(0);
    wall.wrapping_sub(monotonic_now().as_nanos())
}

/// How far other clocks are ahead of `CLOCK_MONOTONIC`, which stands still while a machine is
/// suspended.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ClocksAhead {
    /// `CLOCK_BOOTTIME`, nanoseconds.
    pub boot_ns: u64,
    /// The wall clock, as [`wall_offset_ns`] has it.
    pub wall_ns: u64,
}

/// Reads the clocks.
pub fn clocks_ahead() -> ClocksAhead {
    let boot_ns = thread::boot_time_ns().saturating_sub(monotonic_now().as_nanos());
    ClocksAhead { boot_ns, wall_ns: wall_offset_ns() }
}

/// Listening sockets that the service manager opened for this process, in its order
/// (sd_listen_fds(3)); empty if it opened none. Call it once, before the process opens any
/// descriptor; later calls return none.
///
/// # Errors
/// There are more than 64, or one of them does not listen.
pub fn inherited_sockets() -> io::Result<Vec<OwnedFd>> {
    static TAKEN: AtomicBool = AtomicBool::new(false);
    let number = |name: &str| std::env::var(name).ok()?.parse::<u32>().ok();
    if number("LISTEN_PID") != Some(std::process::id()) || TAKEN.swap(true, Ordering::SeqCst) {
        return Ok(Vec::new());
    }
    let count = number("LISTEN_FDS").unwrap_or(0);
    if count > INHERITED {
        return Err(io::Error::other(format!("LISTEN_FDS says {count} sockets; {INHERITED} are possible")));
    }
    // They follow standard input, output and error.
    (3..3 + count.cast_signed())
        .map(|fd| {
            inherited_listener(fd)
                .map_err(|e| io::Error::new(e.kind(), format!("descriptor {fd} of LISTEN_FDS: {e}")))
        })
        .collect()
}

/// CPU time the calling thread has used, in nanoseconds.
pub fn thread_cpu_time_ns() -> u64 {
    thread::cpu_time_ns()
}

/// Pins the calling thread to this CPU. Fails if the CPU does not exist or the process may not use
/// it.
pub fn pin_to_core(cpu: usize) -> Result<(), NetError> {
    thread::pin(cpu).map_err(NetError::from)
}

/// The CPUs that the calling thread may run on, ascending; `[0]` if the kernel does not say.
pub fn allowed_cores() -> Vec<usize> {
    thread::allowed_cpus().ok().filter(|cpus| !cpus.is_empty()).unwrap_or_else(|| vec![0])
}

/// Sets the timer slack of the calling thread: how many nanoseconds late its timers may fire
/// (default: 50 microseconds). Must be at least 1, because 0 restores the default.
pub fn set_timer_slack_ns(ns: u64) -> Result<(), NetError> {
    thread::set_timer_slack(ns).map_err(NetError::from)
}

/// Context switches of a thread.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ContextSwitches {
    /// The thread blocked.
    pub voluntary: u64,
    /// The scheduler preempted the thread.
    pub involuntary: u64,
}

/// Context switches of the calling thread since it started.
pub fn thread_context_switches() -> ContextSwitches {
    thread::context_switches()
        .map(|(voluntary, involuntary)| ContextSwitches { voluntary, involuntary })
        .unwrap_or_default()
}

/// Gives the calling thread a descriptor table of its own. System calls then need not count
/// references to descriptors, and the limit on open files applies to this thread alone. Other
/// threads cannot use what it opens afterwards, a transport's [`Waker`](crate::Waker) included. So
/// this is for threads that no other thread wakes.
pub fn own_descriptors() -> Result<(), NetError> {
    thread::own_descriptors().map_err(NetError::from)
}

/// Whether two threads, by their ids, have the same descriptor table. A process's own id is that of its first thread.
///
/// # Errors
/// The kernel lacks kcmp(2) or refuses it, or a thread has ended.
pub fn share_descriptors(one: u32, other: u32) -> io::Result<bool> {
    thread::share_descriptors(one, other)
}

/// The scheduler's statistics of a thread.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SchedStat {
    /// Nanoseconds on a CPU.
    pub on_cpu_ns: u64,
    /// Nanoseconds runnable without a CPU.
    pub waiting_ns: u64,
    /// Time slices: how often it got a CPU.
    pub slices: u64,
}

impl SchedStat {
    /// Parses the contents of `/proc/PID/task/TID/schedstat`.
    pub fn parse(text: &str) -> Option<SchedStat> {
        let mut numbers = text.split_ascii_whitespace().map(|n| n.parse::<u64>().ok());
        let mut next = || numbers.next().flatten();
        Some(SchedStat { on_cpu_ns: next()?, waiting_ns: next()?, slices: next()? })
    }
}

/// The calling thread's `/proc/thread-self/schedstat`; `None` if the kernel does not keep it.
pub fn thread_sched_stat() -> Option<SchedStat> {
    SchedStat::parse(&std::fs::read_to_string("/proc/thread-self/schedstat").ok()?)
}

/// The calling thread's id, as the kernel and [`sched_stat_of`] use it.
pub fn thread_id() -> Option<u32> {
    std::fs::read_link("/proc/thread-self").ok()?.file_name()?.to_str()?.parse().ok()
}

/// The same for another thread of this process. Its current wait for a CPU is not included.
pub fn sched_stat_of(thread: u32) -> Option<SchedStat> {
    SchedStat::parse(&std::fs::read_to_string(format!("/proc/self/task/{thread}/schedstat")).ok()?)
}

/// The soft limit on open descriptors.
pub fn nofile() -> io::Result<u64> {
    thread::nofile()
}

/// Raises the soft limit on open descriptors to the hard limit and returns it.
pub fn raise_nofile() -> io::Result<u64> {
    thread::raise_nofile()
}

/// The soft limit on open descriptors, and the least one at which a server over epoll in this
/// process could accept a connection now.
pub fn nofile_to_accept() -> io::Result<(u64, u64)> {
    let limit = thread::nofile()?;
    let used = match std::fs::File::open("/dev/null") {
        // A descriptor gets the lowest free number.
        Ok(file) => file.as_raw_fd() as u64,
        Err(e) if e.raw_os_error() == Some(libc::EMFILE) => limit,
        Err(e) => return Err(e),
    };
    Ok((limit, crate::epoll::least_limit(used)))
}

/// Returns freed memory that the heap holds to the system; says whether there was any. glibc keeps
/// freed memory for each thread, so that a peak would last forever. Other C libraries do not, and
/// the call then does nothing. It takes milliseconds if there is much memory, and it holds the
/// heap's locks: do not call it in an event loop.
pub fn return_free_memory() -> bool {
    heap::trim()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clocks_advance() {
        let (wall, cpu) = (monotonic_now(), thread_cpu_time_ns());
        let mut x = 1u64;
        while thread_cpu_time_ns() == cpu {
            x = std::hint::black_box(x.wrapping_mul(3));
        }
        assert!(monotonic_now() > wall);
    }

    #[test]
    fn a_core_that_does_not_exist_cannot_be_had() {
        assert!(pin_to_core(1 << 30).is_err());
        assert!(pin_to_core(1023).is_err() || allowed_cores().contains(&1023));
    }

    #[test]
    fn a_thread_can_be_pinned_to_a_core_it_may_use() {
        let core = *allowed_cores().last().expect("there is one");
        std::thread::spawn(move || {
            pin_to_core(core).expect("allowed");
            assert_eq!(allowed_cores(), vec![core]);
            set_timer_slack_ns(1).expect("always allowed");
        })
        .join()
        .expect("no panic");
    }

    #[test]
    fn the_scheduler_speaks_in_three_numbers() {
        let expected = SchedStat { on_cpu_ns: 12, waiting_ns: 34, slices: 5 };
        assert_eq!(SchedStat::parse("12 34 5\n"), Some(expected));
        assert_eq!(SchedStat::parse("12 34\n"), None);
        assert_eq!(SchedStat::parse("12 x 5"), None);
    }

    #[test]
    fn threads_have_numbers_by_which_others_know_them() {
        let (tell, told) = std::sync::mpsc::channel();
        let (done, wait) = std::sync::mpsc::channel::<()>();
        let thread = std::thread::spawn(move || {
            tell.send(thread_id()).expect("somebody listens");
            // Keeps the thread alive until the test has looked at it.
            let _ = wait.recv();
        });
        let id = told.recv().expect("it tells").expect("there is /proc");
        assert_ne!(Some(id), thread_id());
        assert!(sched_stat_of(id).is_some_and(|s| s.on_cpu_ns > 0));
        drop(done);
        thread.join().expect("no panic");
    }

    #[test]
    fn the_descriptor_limit_is_at_least_what_it_was() {
        let first = raise_nofile().expect("a limit");
        assert_eq!(raise_nofile().expect("a limit"), first);
    }
}
