//! Waiting for readiness: epoll, poll and select.

use std::time::{Duration, Instant};

use libc::{c_int, epoll_event, fd_set, nfds_t, pollfd, sigset_t, size_t, timespec, timeval};

use super::{answer, bound, claim, fail};
use crate::claim::BesideLauncher;
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
    /// The kernel's epoll decides.
    Kernels,
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
    let (begin, mut left) = (Instant::now(), limit);
    while !has_set(epoll) && claims::waits() {
        let mut polled = [pollfd { fd: epoll, events: libc::POLLIN, revents: 0 }];
        match claims::wait_beside(&mut polled, left, signals) {
            Ok(BesideLauncher::Over(0)) => return EpollWait::Done(0),
            Ok(BesideLauncher::Over(_)) => {
                // SAFETY: as the caller's.
                let done = unsafe { real::epoll_wait(epoll, events, most, 0) };
                // Another process may have been faster.
                if done != 0 || left == Some(Duration::ZERO) {
                    return EpollWait::Done(done);
                }
            }
            Ok(BesideLauncher::Replied) => {}
            Err(errno) => return EpollWait::Done(fail(errno) as c_int),
        }
        left = limit.map(|limit| limit.saturating_sub(begin.elapsed()));
    }
    if has_set(epoll)
        // SAFETY: as the caller's.
        && let Some(done) = unsafe { wait_on_set(epoll, events, most, left, signals) }
    {
        return EpollWait::Done(done);
    }
    EpollWait::Kernels
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
            EpollWait::Kernels => real::epoll_wait(epoll, events, most, timeout),
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
            EpollWait::Kernels => real::epoll_pwait(epoll, events, most, timeout, signals),
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
    // SAFETY: as the caller's.
    unsafe {
        let limit = match spec(timeout) {
            Ok(limit) => limit,
            Err(errno) => return fail(errno) as c_int,
        };
        match wait_on(epoll, events, most, limit, SignalMask::at(signals)) {
            EpollWait::Done(done) => done,
            EpollWait::Kernels => real::epoll_pwait2(epoll, events, most, timeout, signals),
        }
    }
}

/// Whether some of these are ours.
fn has_ours(list: &[pollfd]) -> bool {
    let ours = |entry: &pollfd| {
        matches!(
            table::kind(entry.fd),
            DescriptorKind::Connection | DescriptorKind::Listener | DescriptorKind::Kept
        )
    };
    list.iter().any(ours) && with_world(|_| Ok(())).is_ok()
}

/// Waits until some of these are ready, or the time is over, while this process waits for queues and some are
/// listeners for which it does. Returns how many are ready; `None`: it waits for queues no more.
pub(super) fn wait_for_queues(
    list: &mut [pollfd],
    limit: Option<Duration>,
    signals: SignalMask,
) -> Result<Option<usize>, c_int> {
    let (begin, mut left) = (Instant::now(), limit);
    loop {
        list.iter().for_each(|entry| claim(entry.fd));
        let is_named = |entry: &pollfd| table::kind(entry.fd) == DescriptorKind::Named;
        if !claims::waits() || !list.iter().any(is_named) {
            return Ok(None);
        }
        if let BesideLauncher::Over(count) = claims::wait_beside(list, left, signals)? {
            return Ok(Some(count));
        }
        left = limit.map(|limit| limit.saturating_sub(begin.elapsed()));
    }
}

/// Polls if some are ours, or may become so meanwhile.
fn poll_list(
    list: &mut [pollfd],
    limit: Option<Duration>,
    signals: SignalMask,
) -> Option<Result<usize, c_int>> {
    match wait_for_queues(list, limit, signals) {
        Ok(Some(count)) => Some(Ok(count)),
        Ok(None) => has_ours(list).then(|| polling::poll(list, limit, signals)),
        Err(errno) => Some(Err(errno)),
    }
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
    let before = kernel::errno();
    let done = poll_list(list, limit, signals)?;
    kernel::set_errno(before);
    Some(answer(|| done) as c_int)
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
    let before = kernel::errno();
    let done = poll_list(&mut list, limit, signals)?;
    kernel::set_errno(before);
    let told = done.and_then(|_| {
        if list.iter().any(|entry| entry.revents & libc::POLLNVAL != 0) {
            return Err(libc::EBADF);
        }
        // SAFETY: as the caller's.
        Ok(unsafe { sets.tell(&list) })
    });
    Some(answer(|| told) as c_int)
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
