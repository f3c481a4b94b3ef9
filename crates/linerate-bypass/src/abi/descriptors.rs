//! Descriptors: closing, copying, flags.

use libc::{c_int, c_uint, pid_t};

use super::{CallOwner, answer, fail, who_answers};
use crate::claim;
use crate::kernel::{self, real};
use crate::process::with_world;
use crate::table::{self, DescriptorKind};
use crate::world::errno_of;

/// close(2).
///
/// # Safety
/// As close(2).
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn close(fd: c_int) -> c_int {
    match table::kind(fd) {
        DescriptorKind::Kernel => {}
        DescriptorKind::Kept => return fail(libc::EBADF) as c_int,
        kind @ (DescriptorKind::Named | DescriptorKind::Orphan) => {
            if kind == DescriptorKind::Named {
                claim::unregister(fd);
            }
            table::set(fd, DescriptorKind::Kernel);
        }
        DescriptorKind::Connection | DescriptorKind::Listener | DescriptorKind::Set => {
            let before = kernel::errno();
            let closed = with_world(|world| world.close(fd));
            kernel::set_errno(before);
            if closed == Ok(false) {
                return 0;
            }
            table::set(fd, DescriptorKind::Kernel);
        }
    }
    // SAFETY: as the caller's.
    unsafe { real::close(fd) }
}

/// The program has what was ours in these numbers closed, or replaced.
fn make_free(fd: c_int) {
    if table::kind(fd) != DescriptorKind::Kernel {
        // SAFETY: it takes no pointer.
        unsafe { close(fd) };
    }
    if table::kind(fd) == DescriptorKind::Kept {
        // It stays open for the kernel, and the number is the program's again.
        let _ = with_world(|world| {
            world.forget_kept(fd);
            Ok(())
        });
        table::set(fd, DescriptorKind::Kernel);
    }
}

/// close_range(2).
///
/// # Safety
/// As close_range(2).
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn close_range(first: c_uint, last: c_uint, flags: c_int) -> c_int {
    const CLOSED_BY_EXEC: c_int = libc::CLOSE_RANGE_CLOEXEC as c_int;
    if flags & CLOSED_BY_EXEC == 0 && first <= last {
        let ours: Vec<_> = table::ours(first, last).collect();
        ours.into_iter().for_each(|(fd, _)| make_free(fd));
    }
    // SAFETY: as the caller's.
    unsafe { real::close_range(first, last, flags) }
}

/// closefrom(3).
///
/// # Safety
/// As closefrom(3).
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn closefrom(first: c_int) {
    // SAFETY: as the caller's.
    unsafe { close_range(first.max(0) as c_uint, c_uint::MAX, 0) };
}

/// `copy`, which the kernel has made, is a copy of `fd`.
fn note_copy(fd: c_int, copy: c_int) -> c_int {
    match table::kind(fd) {
        _ if copy < 0 => copy,
        DescriptorKind::Kernel | DescriptorKind::Kept => copy,
        kind @ (DescriptorKind::Named | DescriptorKind::Orphan) => {
            table::set(copy, kind);
            if kind == DescriptorKind::Named {
                claim::note_blocking(copy, claim::blocks(fd));
            }
            copy
        }
        _ => answer(|| with_world(|world| world.copied(fd, copy)).map(|()| copy as usize)) as c_int,
    }
}

/// dup(2).
///
/// # Safety
/// As dup(2).
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn dup(fd: c_int) -> c_int {
    if table::kind(fd) == DescriptorKind::Kept {
        return fail(libc::EBADF) as c_int;
    }
    // SAFETY: as the caller's.
    note_copy(fd, unsafe { real::dup(fd) })
}

/// dup2(2).
///
/// # Safety
/// As dup2(2).
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn dup2(fd: c_int, to: c_int) -> c_int {
    if table::kind(fd) == DescriptorKind::Kept {
        return fail(libc::EBADF) as c_int;
    }
    if fd == to {
        // SAFETY: as the caller's.
        return unsafe { real::dup2(fd, to) };
    }
    make_free(to);
    // SAFETY: as the caller's.
    note_copy(fd, unsafe { real::dup2(fd, to) })
}

/// dup3(2).
///
/// # Safety
/// As dup3(2).
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn dup3(fd: c_int, to: c_int, flags: c_int) -> c_int {
    if table::kind(fd) == DescriptorKind::Kept {
        return fail(libc::EBADF) as c_int;
    }
    if fd != to {
        make_free(to);
    }
    // SAFETY: as the caller's.
    note_copy(fd, unsafe { real::dup3(fd, to, flags) })
}

fn is_socket_of_ours(fd: c_int) -> bool {
    matches!(table::kind(fd), DescriptorKind::Connection | DescriptorKind::Listener)
}

/// O_NONBLOCK of a socket of ours: changed if a value is given; returns what it was.
fn nonblocking(fd: c_int, new: Option<bool>) -> Result<bool, c_int> {
    with_world(|world| {
        let socket = world.socket(fd)?;
        let before = socket.nonblocking;
        socket.nonblocking = new.unwrap_or(before);
        Ok(before)
    })
}

/// fcntl(2). Its last argument is in a register, whatever its type.
///
/// # Safety
/// As fcntl(2).
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn fcntl(fd: c_int, command: c_int, value: usize) -> c_int {
    if let CallOwner::Nobody(errno) = who_answers(fd)
        && (errno == libc::EBADF || command == libc::F_SETFL)
    {
        return fail(errno) as c_int;
    }
    match command {
        // SAFETY: as the caller's.
        libc::F_DUPFD | libc::F_DUPFD_CLOEXEC => note_copy(fd, unsafe { real::fcntl(fd, command, value) }),
        libc::F_GETFL if is_socket_of_ours(fd) => answer(|| {
            let flags = kernel::fcntl(fd, libc::F_GETFL, 0)? & !libc::O_NONBLOCK;
            let ours = if nonblocking(fd, None)? { libc::O_NONBLOCK } else { 0 };
            Ok((flags | ours) as usize)
        }) as c_int,
        libc::F_SETFL if is_socket_of_ours(fd) => {
            answer(|| nonblocking(fd, Some(value as c_int & libc::O_NONBLOCK != 0)).map(|_| 0)) as c_int
        }
        libc::F_SETFL if table::kind(fd) == DescriptorKind::Named => {
            claim::note_blocking(fd, value as c_int & libc::O_NONBLOCK == 0);
            // SAFETY: as the caller's.
            unsafe { real::fcntl(fd, command, value) }
        }
        // SAFETY: as the caller's.
        _ => unsafe { real::fcntl(fd, command, value) },
    }
}

/// fcntl64(2): the same, because offsets have 64 bits.
///
/// # Safety
/// As fcntl(2).
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn fcntl64(fd: c_int, command: c_int, value: usize) -> c_int {
    // SAFETY: as the caller's.
    unsafe { fcntl(fd, command, value) }
}

/// ioctl(2).
///
/// # Safety
/// As ioctl(2).
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn ioctl(fd: c_int, request: usize, value: usize) -> c_int {
    if let CallOwner::Nobody(errno) = who_answers(fd) {
        return fail(errno) as c_int;
    }
    let number = value as *mut c_int;
    let queued = |receiving: bool| {
        answer(|| {
            let (unread, unsent) =
                with_world(|world| world.id(fd).and_then(|id| world.net.queued(id).map_err(errno_of)))?;
            let count = if receiving { unread } else { unsent };
            // SAFETY: as the caller's.
            unsafe { number.write_unaligned(c_int::try_from(count).unwrap_or(c_int::MAX)) };
            Ok(0)
        }) as c_int
    };
    match request as libc::Ioctl {
        libc::FIONBIO if table::kind(fd) == DescriptorKind::Named && !number.is_null() => {
            // SAFETY: as the caller's.
            claim::note_blocking(fd, unsafe { number.read_unaligned() } == 0);
        }
        _ if !is_socket_of_ours(fd) => {}
        libc::FIONBIO | libc::FIONREAD | libc::TIOCOUTQ if number.is_null() => {
            return fail(libc::EFAULT) as c_int;
        }
        libc::FIONBIO => {
            // SAFETY: as the caller's.
            let on = unsafe { number.read_unaligned() } != 0;
            return answer(|| nonblocking(fd, Some(on)).map(|_| 0)) as c_int;
        }
        libc::FIONREAD if table::kind(fd) == DescriptorKind::Connection => return queued(true),
        libc::TIOCOUTQ if table::kind(fd) == DescriptorKind::Connection => return queued(false),
        _ => {}
    }
    // SAFETY: as the caller's.
    unsafe { real::ioctl(fd, request, value) }
}

/// vfork(2) as fork(2), which may take its place: a child that shares our memory would close our
/// connections for its parent.
///
/// # Safety
/// As fork(2).
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn vfork() -> pid_t {
    // SAFETY: as the caller's.
    unsafe { real::fork() }
}
