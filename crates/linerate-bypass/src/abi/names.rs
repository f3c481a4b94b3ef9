//! Listening, accepting, names and options.

use std::net::SocketAddr;

use libc::{c_int, c_void, sockaddr, socklen_t};
use linerate_net::link::xdp::BorrowerCounter;
use linerate_net::sockets::{SocketFailure, SocketId};

use super::readiness::wait_for_queues;
use super::{
    CallOwner, answer, by_owner, bytes, bytes_mut, claim, fail, is_of_this_machine, note_listener,
    tell_address, who_answers,
};
use crate::kernel::{self, SignalMask, real};
use crate::messages::tell_once;
use crate::polling::{self, NextConnection};
use crate::process::with_world;
use crate::table::{self, DescriptorKind};
use crate::world::{BypassWorld, errno_of};
use crate::{claim as claims, options, tally};

/// listen(2): the kernel listens in any case.
///
/// # Safety
/// As listen(2).
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn listen(fd: c_int, backlog: c_int) -> c_int {
    match who_answers(fd) {
        CallOwner::Kernel => {}
        CallOwner::Us => return fail(libc::EINVAL) as c_int,
        CallOwner::Nobody(errno) => return fail(errno) as c_int,
    }
    // SAFETY: as the caller's.
    let listens = unsafe { real::listen(fd, backlog) };
    if listens == 0 {
        note_listener(fd);
    }
    listens
}

/// accept(2).
///
/// # Safety
/// As accept(2).
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn accept(fd: c_int, address: *mut sockaddr, len: *mut socklen_t) -> c_int {
    // SAFETY: as the caller's.
    unsafe { accept4(fd, address, len, 0) }
}

/// accept4(2).
///
/// # Safety
/// As accept(2).
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn accept4(
    fd: c_int,
    address: *mut sockaddr,
    len: *mut socklen_t,
    flags: c_int,
) -> c_int {
    claim(fd);
    match who_answers(fd) {
        CallOwner::Kernel => {}
        CallOwner::Us => return fail(libc::EINVAL) as c_int,
        CallOwner::Nobody(errno) => return fail(errno) as c_int,
    }
    let before = kernel::errno();
    let counts = matches!(table::kind(fd), DescriptorKind::Listener | DescriptorKind::Named);
    while claims::waits() && table::kind(fd) == DescriptorKind::Named && claims::blocks(fd) {
        let mut polled = [libc::pollfd { fd, events: libc::POLLIN, revents: 0 }];
        if let Err(errno) = wait_for_queues(&mut polled, None, SignalMask::NONE) {
            return fail(errno) as c_int;
        }
        if table::kind(fd) == DescriptorKind::Named {
            // SAFETY: as the caller's.
            let accepted = unsafe { real::accept4(fd, address, len, flags) };
            // Another process may have been faster.
            if accepted >= 0 || kernel::errno() != libc::EAGAIN {
                return counted_of_kernel(accepted, counts);
            }
        }
    }
    kernel::set_errno(before);
    while table::kind(fd) == DescriptorKind::Listener {
        match polling::accept(fd, flags) {
            Ok(NextConnection::Ours(accepted, peer, family)) => {
                kernel::set_errno(before);
                // SAFETY: as the caller's.
                unsafe { tell_address(family, peer, address, len) };
                return accepted;
            }
            Ok(NextConnection::Kernels) => {}
            // Without connections of ours the kernel's remain.
            Err(libc::ECONNRESET) => break,
            Err(errno) => return fail(errno) as c_int,
        }
        // SAFETY: as the caller's. The kernel's listener does not wait.
        let accepted = unsafe { real::accept4(fd, address, len, flags) };
        if accepted >= 0 || kernel::errno() != libc::EAGAIN {
            return counted_of_kernel(accepted, true);
        }
        match polling::await_connection(fd) {
            Ok(true) => {}
            Ok(false) => return fail(libc::EAGAIN) as c_int,
            Err(libc::ECONNRESET) => break,
            Err(errno) => return fail(errno) as c_int,
        }
    }
    // SAFETY: as the caller's.
    counted_of_kernel(unsafe { real::accept4(fd, address, len, flags) }, counts)
}

/// Counts a connection of the kernel's if its listener was named. Returns it.
fn counted_of_kernel(accepted: c_int, was_named: bool) -> c_int {
    if accepted >= 0 && was_named {
        let is_here = is_of_this_machine(accepted);
        let what = if is_here { BorrowerCounter::AcceptedHere } else { BorrowerCounter::AcceptedOfKernel };
        tally::count(what, 1);
    }
    accepted
}

/// connect(2).
///
/// # Safety
/// As connect(2).
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn connect(fd: c_int, address: *const sockaddr, len: socklen_t) -> c_int {
    by_owner(
        fd,
        // SAFETY: as the caller's.
        || unsafe { real::connect(fd, address, len) },
        || fail(libc::EISCONN) as c_int,
    )
}

/// bind(2).
///
/// # Safety
/// As bind(2).
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn bind(fd: c_int, address: *const sockaddr, len: socklen_t) -> c_int {
    by_owner(
        fd,
        // SAFETY: as the caller's.
        || unsafe { real::bind(fd, address, len) },
        || fail(libc::EINVAL) as c_int,
    )
}

/// shutdown(2). Of a listener it ends both.
///
/// # Safety
/// As shutdown(2).
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn shutdown(fd: c_int, how: c_int) -> c_int {
    use linerate_net::sockets::Shutdown;
    let direction = match how {
        libc::SHUT_RD => Some(Shutdown::Read),
        libc::SHUT_WR => Some(Shutdown::Write),
        libc::SHUT_RDWR => Some(Shutdown::Both),
        _ => None,
    };
    let ours = || {
        answer(|| {
            let direction = direction.ok_or(libc::EINVAL)?;
            with_world(|world| {
                let id = world.id(fd)?;
                let shut = world.net.shutdown(id, direction).map_err(errno_of);
                world.flush_soon(true);
                world.tell_waiters();
                shut.map(|()| 0)
            })
        })
    };
    by_owner(
        fd,
        || {
            if table::kind(fd) == DescriptorKind::Listener {
                ours();
            }
            // SAFETY: as the caller's.
            unsafe { real::shutdown(fd, how) }
        },
        || ours() as c_int,
    )
}

/// setsockopt(2).
///
/// # Safety
/// As setsockopt(2).
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn setsockopt(
    fd: c_int,
    level: c_int,
    name: c_int,
    value: *const c_void,
    len: socklen_t,
) -> c_int {
    by_owner(
        fd,
        || {
            // SAFETY: as the caller's.
            let set = unsafe { real::setsockopt(fd, level, name, value, len) };
            if set == 0 && table::kind(fd) == DescriptorKind::Listener {
                // Connections inherit it; what the kernel takes is remembered at least.
                // SAFETY: as the caller's.
                let value = unsafe { bytes(value, len as usize) };
                answer(|| set_option(fd, level, name, value));
            }
            set
        },
        || {
            // SAFETY: as the caller's.
            let value = unsafe { bytes(value, len as usize) };
            answer(|| set_option(fd, level, name, value)) as c_int
        },
    )
}

fn set_option(fd: c_int, level: c_int, name: c_int, value: &[u8]) -> Result<usize, c_int> {
    with_world(|world| {
        let socket = world.socket(fd)?;
        let (id, mut stored) = (socket.id, std::mem::take(&mut socket.stored));
        let options = world.net.options_mut(id).map_err(errno_of);
        let set = options.and_then(|options| stored.set(level, name, value, options));
        world.socket(fd)?.stored = stored;
        set.map(|()| 0)
    })
}

fn option(fd: c_int, level: c_int, name: c_int, room: usize) -> Result<Vec<u8>, c_int> {
    let known = with_world(|world| {
        let id = world.id(fd)?;
        if let Some(stored) = world.socket(fd)?.stored.get(level, name) {
            return Ok(Some(stored.to_vec()));
        }
        Ok(match (level, name) {
            (libc::SOL_SOCKET, libc::SO_ERROR) => {
                Some(world.net.take_error(id).map_err(errno_of)?.unwrap_or(0).to_ne_bytes().to_vec())
            }
            (libc::IPPROTO_TCP, libc::TCP_INFO) => {
                let (flow, bytes) = (world.net.info(id), world.net.bytes(id));
                Some(options::tcp_info(&flow.map_err(errno_of)?, bytes.map_err(errno_of)?))
            }
            (libc::IPPROTO_TCP, libc::TCP_MAXSEG) => {
                let mss = world.net.info(id).map_err(errno_of)?.mss_bytes;
                Some(i32::from(mss).to_ne_bytes().to_vec())
            }
            _ => None,
        })
    })?;
    if let Some(value) = known {
        return Ok(value);
    }
    // As of a socket on which nothing was set.
    let mut value = vec![0; room.min(4096)];
    let len = kernel::option(fd, level, name, &mut value)?;
    value.truncate(len);
    Ok(value)
}

/// getsockopt(2).
///
/// # Safety
/// As getsockopt(2).
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn getsockopt(
    fd: c_int,
    level: c_int,
    name: c_int,
    value: *mut c_void,
    len: *mut socklen_t,
) -> c_int {
    by_owner(
        fd,
        // SAFETY: as the caller's.
        || unsafe { real::getsockopt(fd, level, name, value, len) },
        || {
            answer(|| {
                if value.is_null() || len.is_null() {
                    return Err(libc::EFAULT);
                }
                // SAFETY: as the caller's.
                let room = unsafe { len.read_unaligned() } as usize;
                let told = option(fd, level, name, room)?;
                let most = told.len().min(room);
                // SAFETY: as the caller's.
                unsafe {
                    bytes_mut(value, most).copy_from_slice(&told[..most]);
                    len.write_unaligned(most as socklen_t);
                }
                Ok(0)
            }) as c_int
        },
    )
}

/// Tells the caller one of the addresses of a connection of ours.
///
/// # Safety
/// As getsockname(2).
unsafe fn tell_name(
    fd: c_int,
    name: impl FnOnce(&mut BypassWorld, SocketId) -> Result<SocketAddr, SocketFailure>,
    address: *mut sockaddr,
    len: *mut socklen_t,
) -> c_int {
    answer(|| {
        let (family, named) = with_world(|world| {
            let (id, family) = world.socket(fd).map(|socket| (socket.id, socket.family))?;
            Ok((family, name(world, id).map_err(errno_of)?))
        })?;
        // SAFETY: as the caller's.
        unsafe { tell_address(family, named, address, len) };
        Ok(0)
    }) as c_int
}

/// getsockname(2).
///
/// # Safety
/// As getsockname(2).
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn getsockname(fd: c_int, address: *mut sockaddr, len: *mut socklen_t) -> c_int {
    by_owner(
        fd,
        // SAFETY: as the caller's.
        || unsafe { real::getsockname(fd, address, len) },
        // SAFETY: as the caller's.
        || unsafe { tell_name(fd, |world, id| world.net.local(id), address, len) },
    )
}

/// getpeername(2).
///
/// # Safety
/// As getpeername(2).
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn getpeername(fd: c_int, address: *mut sockaddr, len: *mut socklen_t) -> c_int {
    by_owner(
        fd,
        // SAFETY: as the caller's.
        || unsafe { real::getpeername(fd, address, len) },
        // SAFETY: as the caller's.
        || unsafe { tell_name(fd, |world, id| world.net.peer(id), address, len) },
    )
}

/// Tells that io_uring is refused: its requests would pass us by.
pub(super) fn refuse_io_uring() -> isize {
    tell_once("io_uring is refused: its requests on connections in user space would be lost");
    fail(libc::EOPNOTSUPP)
}
