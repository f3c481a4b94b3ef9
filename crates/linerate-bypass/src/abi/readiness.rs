//! Waiting for readiness: epoll, poll and select.

use std::time::Duration;

use libc::{c_int, epoll_event, fd_set, nfds_t, pollfd, sigset_t, size_t, timespec, timeval};

use super::{answer, bound, claim, fail};
use crate::kernel::{self, SignalMask, real};
use crate::process::with_world;
use crate::table::{self, DescriptorKind};
use crate::{claim as claims, polling};

/// Descriptors of one poll(2), at most. Reason: a bound; the kernel's is RLIMIT_NOFILE.
const MOST_POLLED: usize = 1 << 20;

fn millis(timeout: c_int) -> Option<Duration> {
    u64::try_from(timeout).ok().map(Duration::from_millis)
}

/// # Safety
/// It is null, or a time.
unsafe fn spec(time: *const timespec) -> Result<Option<Duration>, c_int> {
    // SAFETY: as the caller's.
    let Some(time) = (unsafe { time.as_ref() }) else { return Ok(None) };
    match (u64::try_from(time.tv_sec), u32::try_from(time.tv_nsec)) {
        (Ok(seconds), Ok(nanos)) if nanos < 1_000_000_000 => Ok(Some(Duration::new(seconds, nanos))),
        _ => Err(libc::EINVAL),
    }
}

/// epoll_ctl(2). A listener is in the kernel's set and in ours.
///
/// # Safety
/// As epoll_ctl(2).
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn epoll_ctl(
    epoll: c_int,
    op: c_int,
    fd: c_int,
    event: *mut epoll_event,
) -> c_int {
    claim(fd);
    let kind = table::kind(fd);
    match kind {
        DescriptorKind::Kept => return fail(libc::EBADF) as c_int,
        DescriptorKind::Connection | DescriptorKind::Listener => {}
        DescriptorKind::Named => {
            // SAFETY: as the caller's; EPOLL_CTL_DEL needs no event.
            let (done, event) = unsafe { (real::epoll_ctl(epoll, op, fd, event), event.as_ref()) };
            if done == 0 {
                claims::register(epoll, op, fd, event.map(|event| (event.events, event.u64)));
            }
            return done;
        }
        // SAFETY: as the caller's.
        _ => return unsafe { real::epoll_ctl(epoll, op, fd, event) },
    }
    if kind == DescriptorKind::Listener {
        // SAFETY: as the caller's.
        let done = unsafe { real::epoll_ctl(epoll, op, fd, event) };
        if done != 0 {
            return done;
        }
    }
    // SAFETY: as the caller's; EPOLL_CTL_DEL needs no event.
    let wanted = unsafe { event.as_ref() }.map(|event| (event.events, event.u64));
    let done = answer(|| polling::watch(epoll, op, fd, wanted).map(|()| 0)) as c_int;
    if kind == DescriptorKind::Listener && done != 0 && kernel::errno() == libc::ECONNRESET {
        return 0;
    }
    done
}

/// Whether an epoll has a set of ours. A process that waits for queues may get them here.
fn has_set(epoll: c_int) -> bool {
    if claims::waits() {
        let before = kernel::errno();
        claims::look(bound);
        kernel::set_errno(before);
    }
    table::kind(epoll) == DescriptorKind::Set
}

/// Waits on an epoll with a set of ours.
///
/// # Safety
/// As epoll_wait(2).
unsafe fn wait_on_set(
    epoll: c_int,
    events: *mut epoll_event,
    most: c_int,
    limit: Option<Duration>,
    signals: SignalMask,
) -> Option<c_int> {
    if events.is_null() {
        return Some(fail(libc::EFAULT) as c_int);
    }
    let len = usize::try_from(most).ok().filter(|len| *len > 0);
    let Some(len) = len else { return Some(fail(libc::EINVAL) as c_int) };
    // SAFETY: the caller's array has that many entries, which are plain numbers.
    let out = unsafe { std::slice::from_raw_parts_mut(events, len) };
    let done = answer(|| polling::epoll_wait(epoll, out, limit, signals)) as c_int;
    // Without connections of ours the kernel's remain.
    (done >= 0 || kernel::errno() != libc::ECONNRESET).then_some(done)
}

/// What became of a wait on an epoll.
enum EpollWait {
    /// What the call returns.
    Done(c_int),
    /// The kernel's epoll decides. It need not wait if `at_once`, because it was waited for.
    Kernels { at_once: bool },
}

/// Waits on an epoll as far as it is ours: on a set, or, while this process waits for queues, beside the launcher.
///
/// # Safety
/// As epoll_pwait(2).
unsafe fn wait_on(
    epoll: c_int,
    events: *mut epoll_event,
    most: c_int,
    limit: Option<Duration>,
    signals: SignalMask,
) -> EpollWait {
    let mut at_once = false;
    while !at_once && !has_set(epoll) && claims::waits() {
        match claims::wait_beside(epoll, limit, signals, bound) {
            // One of both was enough: the kernel's events are there, or will not come.
            Ok(is_over) => at_once = is_over && !has_set(epoll),
            Err(errno) => return EpollWait::Done(fail(errno) as c_int),
        }
    }
    let limit = if at_once { Some(Duration::ZERO) } else { limit };
    if has_set(epoll)
        // SAFETY: as the caller's.
        && let Some(done) = unsafe { wait_on_set(epoll, events, most, limit, signals) }
    {
        return EpollWait::Done(done);
    }
    EpollWait::Kernels { at_once }
}

/// epoll_wait(2).
///
/// # Safety
/// As epoll_wait(2).
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn epoll_wait(
    epoll: c_int,
    events: *mut epoll_event,
    most: c_int,
    timeout: c_int,
) -> c_int {
    // SAFETY: as the caller's.
    unsafe {
        match wait_on(epoll, events, most, millis(timeout), SignalMask::NONE) {
            EpollWait::Done(done) => done,
            EpollWait::Kernels { at_once } => {
                real::epoll_wait(epoll, events, most, if at_once { 0 } else { timeout })
            }
        }
    }
}

/// epoll_pwait(2).
///
/// # Safety
/// As epoll_pwait(2).
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn epoll_pwait(
    epoll: c_int,
    events: *mut epoll_event,
    most: c_int,
    timeout: c_int,
    signals: *const sigset_t,
) -> c_int {
    // SAFETY: as the caller's.
    unsafe {
        match wait_on(epoll, events, most, millis(timeout), SignalMask::at(signals)) {
            EpollWait::Done(done) => done,
            EpollWait::Kernels { at_once } => {
                real::epoll_pwait(epoll, events, most, if at_once { 0 } else { timeout }, signals)
            }
        }
    }
}

/// epoll_pwait2(2).
///
/// # Safety
/// As epoll_pwait2(2).
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn epoll_pwait2(
    epoll: c_int,
    events: *mut epoll_event,
    most: c_int,
    timeout: *const timespec,
    signals: *const sigset_t,
) -> c_int {
    let no_time = timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: as the caller's; the time of our own lives through the call.
    unsafe {
        let limit = match spec(timeout) {
            Ok(limit) => limit,
            Err(errno) => return fail(errno) as c_int,
        };
        match wait_on(epoll, events, most, limit, SignalMask::at(signals)) {
            EpollWait::Done(done) => done,
            EpollWait::Kernels { at_once } => {
                let timeout = if at_once { &raw const no_time } else { timeout };
                real::epoll_pwait2(epoll, events, most, timeout, signals)
            }
        }
    }
}

/// Whether some of these are ours. Named listeners are claimed.
fn has_ours(list: &[pollfd]) -> bool {
    list.iter().for_each(|entry| claim(entry.fd));
    let ours = |entry: &pollfd| {
        matches!(
            table::kind(entry.fd),
            DescriptorKind::Connection | DescriptorKind::Listener | DescriptorKind::Kept
        )
    };
    list.iter().any(ours) && with_world(|_| Ok(())).is_ok()
}

/// Polls if some are ours.
///
/// # Safety
/// As poll(2).
unsafe fn poll_ours(
    polled: *mut pollfd,
    count: nfds_t,
    limit: Option<Duration>,
    signals: SignalMask,
) -> Option<c_int> {
    let len = usize::try_from(count).ok().filter(|len| *len <= MOST_POLLED && !polled.is_null())?;
    // SAFETY: the caller's array has that many entries, which are plain numbers.
    let list = unsafe { std::slice::from_raw_parts_mut(polled, len) };
    has_ours(list).then(|| answer(|| polling::poll(list, limit, signals)) as c_int)
}

/// poll(2).
///
/// # Safety
/// As poll(2).
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn poll(polled: *mut pollfd, count: nfds_t, timeout: c_int) -> c_int {
    // SAFETY: as the caller's.
    unsafe {
        let ours = poll_ours(polled, count, millis(timeout), SignalMask::NONE);
        ours.unwrap_or_else(|| real::poll(polled, count, timeout))
    }
}

/// `__poll_chk`.
///
/// # Safety
/// As poll(2).
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn __poll_chk(
    polled: *mut pollfd,
    count: nfds_t,
    timeout: c_int,
    room: size_t,
) -> c_int {
    assert!(count as usize <= room / size_of::<pollfd>(), "buffer overflow detected");
    // SAFETY: as the caller's.
    unsafe { poll(polled, count, timeout) }
}

/// ppoll(2).
///
/// # Safety
/// As ppoll(2).
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn ppoll(
    polled: *mut pollfd,
    count: nfds_t,
    timeout: *const timespec,
    signals: *const sigset_t,
) -> c_int {
    // SAFETY: as the caller's.
    unsafe {
        let ours = match spec(timeout) {
            Ok(limit) => poll_ours(polled, count, limit, SignalMask::at(signals)),
            Err(_) => None,
        };
        ours.unwrap_or_else(|| real::ppoll(polled, count, timeout, signals))
    }
}

/// `__ppoll_chk`.
///
/// # Safety
/// As ppoll(2).
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn __ppoll_chk(
    polled: *mut pollfd,
    count: nfds_t,
    timeout: *const timespec,
    signals: *const sigset_t,
    room: size_t,
) -> c_int {
    assert!(count as usize <= room / size_of::<pollfd>(), "buffer overflow detected");
    // SAFETY: as the caller's.
    unsafe { ppoll(polled, count, timeout, signals) }
}

/// The three sets of select(2), and the events that each stands for.
struct SelectSets([(*mut fd_set, i16, i16); 3]);

impl SelectSets {
    fn new(read: *mut fd_set, write: *mut fd_set, except: *mut fd_set) -> SelectSets {
        SelectSets([
            (read, libc::POLLIN, libc::POLLIN | libc::POLLHUP | libc::POLLERR),
            (write, libc::POLLOUT, libc::POLLOUT | libc::POLLERR),
            (except, libc::POLLPRI, libc::POLLPRI),
        ])
    }

    /// # Safety
    /// As select(2).
    unsafe fn polled(&self, count: c_int) -> Vec<pollfd> {
        let mut list = Vec::new();
        for fd in 0..count.min(libc::FD_SETSIZE as c_int) {
            let mut events = 0;
            for (set, wanted, _) in self.0 {
                // SAFETY: as the caller's.
                if !set.is_null() && unsafe { libc::FD_ISSET(fd, set) } {
                    events |= wanted;
                }
            }
            if events != 0 {
                list.push(pollfd { fd, events, revents: 0 });
            }
        }
        list
    }

    /// # Safety
    /// As select(2).
    unsafe fn tell(&self, list: &[pollfd]) -> usize {
        let mut count = 0;
        for (set, wanted, told) in self.0 {
            if set.is_null() {
                continue;
            }
            // SAFETY: as the caller's.
            unsafe { libc::FD_ZERO(set) };
            for entry in list.iter().filter(|entry| entry.events & wanted != 0 && entry.revents & told != 0) {
                // SAFETY: as the caller's.
                unsafe { libc::FD_SET(entry.fd, set) };
                count += 1;
            }
        }
        count
    }
}

/// Selects if some are ours.
///
/// # Safety
/// As select(2).
unsafe fn select_ours(
    sets: &SelectSets,
    count: c_int,
    limit: Option<Duration>,
    signals: SignalMask,
) -> Option<c_int> {
    // SAFETY: as the caller's.
    let mut list = unsafe { sets.polled(count) };
    has_ours(&list).then(|| {
        answer(|| {
            polling::poll(&mut list, limit, signals)?;
            if list.iter().any(|entry| entry.revents & libc::POLLNVAL != 0) {
                return Err(libc::EBADF);
            }
            // SAFETY: as the caller's.
            Ok(unsafe { sets.tell(&list) })
        }) as c_int
    })
}

/// select(2). The time that is left is not told.
///
/// # Safety
/// As select(2).
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn select(
    count: c_int,
    read: *mut fd_set,
    write: *mut fd_set,
    except: *mut fd_set,
    timeout: *mut timeval,
) -> c_int {
    // SAFETY: as the caller's.
    unsafe {
        let limit = timeout.as_ref().map(|time| {
            let seconds = u64::try_from(time.tv_sec).unwrap_or(0);
            Duration::from_secs(seconds) + Duration::from_micros(u64::try_from(time.tv_usec).unwrap_or(0))
        });
        let sets = SelectSets::new(read, write, except);
        let ours = select_ours(&sets, count, limit, SignalMask::NONE);
        ours.unwrap_or_else(|| real::select(count, read, write, except, timeout))
    }
}

/// pselect(2).
///
/// # Safety
/// As pselect(2).
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn pselect(
    count: c_int,
    read: *mut fd_set,
    write: *mut fd_set,
    except: *mut fd_set,
    timeout: *const timespec,
    signals: *const sigset_t,
) -> c_int {
    // SAFETY: as the caller's.
    unsafe {
        let sets = SelectSets::new(read, write, except);
        let ours = match spec(timeout) {
            Ok(limit) => select_ours(&sets, count, limit, SignalMask::at(signals)),
            Err(_) => None,
        };
        ours.unwrap_or_else(|| real::pselect(count, read, write, except, timeout, signals))
    }
}
