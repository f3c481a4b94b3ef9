//! Reading and writing of bytes.

use libc::{c_int, c_uint, c_void, iovec, off_t, size_t, sockaddr, socklen_t, ssize_t};

use super::{answer, by_owner, bytes, bytes_mut, fail};
use crate::kernel::{self, real};
use crate::messages::tell_once;
use crate::table::{self, DescriptorKind};
use crate::transfer;

/// Parts of one call, at most (IOV_MAX).
const PARTS: usize = 1024;
/// Parts without an allocation.
const FEW: usize = 64;

/// Receives into the caller's parts.
///
/// # Safety
/// As readv(2).
pub(super) unsafe fn receive_parts(fd: c_int, parts: *const iovec, count: usize, flags: c_int) -> isize {
    if count > PARTS || (parts.is_null() && count > 0) {
        return fail(libc::EINVAL);
    }
    // SAFETY: as the caller's.
    let part = |at: usize| unsafe {
        let part = parts.add(at).read_unaligned();
        bytes_mut(part.iov_base, part.iov_len)
    };
    if count <= FEW {
        let mut slices: [&mut [u8]; FEW] =
            std::array::from_fn(|at| if at < count { part(at) } else { &mut [] });
        return answer(|| transfer::receive(fd, &mut slices[..count], flags));
    }
    let mut slices: Vec<&mut [u8]> = (0..count).map(part).collect();
    answer(|| transfer::receive(fd, &mut slices, flags))
}

/// Sends the caller's parts.
///
/// # Safety
/// As writev(2).
pub(super) unsafe fn send_parts(fd: c_int, parts: *const iovec, count: usize, flags: c_int) -> isize {
    if count > PARTS || (parts.is_null() && count > 0) {
        return fail(libc::EINVAL);
    }
    // SAFETY: as the caller's.
    let part = |at: usize| unsafe {
        let part = parts.add(at).read_unaligned();
        bytes(part.iov_base, part.iov_len)
    };
    if count <= FEW {
        let slices: [&[u8]; FEW] = std::array::from_fn(|at| if at < count { part(at) } else { &[] });
        return answer(|| transfer::transmit(fd, &slices[..count], flags));
    }
    let slices: Vec<&[u8]> = (0..count).map(part).collect();
    answer(|| transfer::transmit(fd, &slices, flags))
}

/// read(2).
///
/// # Safety
/// As read(2).
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn read(fd: c_int, into: *mut c_void, len: size_t) -> ssize_t {
    by_owner(
        fd,
        // SAFETY: as the caller's.
        || unsafe { real::read(fd, into, len) },
        // SAFETY: as the caller's.
        || answer(|| transfer::receive(fd, &mut [unsafe { bytes_mut(into, len) }], 0)),
    )
}

/// readv(2).
///
/// # Safety
/// As readv(2).
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn readv(fd: c_int, parts: *const iovec, count: c_int) -> ssize_t {
    by_owner(
        fd,
        // SAFETY: as the caller's.
        || unsafe { real::readv(fd, parts, count) },
        // SAFETY: as the caller's.
        || unsafe { receive_parts(fd, parts, usize::try_from(count).unwrap_or(usize::MAX), 0) },
    )
}

/// recv(2).
///
/// # Safety
/// As recv(2).
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn recv(fd: c_int, into: *mut c_void, len: size_t, flags: c_int) -> ssize_t {
    by_owner(
        fd,
        // SAFETY: as the caller's.
        || unsafe { real::recv(fd, into, len, flags) },
        // SAFETY: as the caller's.
        || answer(|| transfer::receive(fd, &mut [unsafe { bytes_mut(into, len) }], flags)),
    )
}

/// recvfrom(2): TCP tells no address.
///
/// # Safety
/// As recvfrom(2).
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn recvfrom(
    fd: c_int,
    into: *mut c_void,
    len: size_t,
    flags: c_int,
    address: *mut sockaddr,
    address_len: *mut socklen_t,
) -> ssize_t {
    by_owner(
        fd,
        // SAFETY: as the caller's.
        || unsafe { real::recvfrom(fd, into, len, flags, address, address_len) },
        || {
            // SAFETY: as the caller's.
            unsafe {
                if !address.is_null() && !address_len.is_null() {
                    address_len.write_unaligned(0);
                }
                answer(|| transfer::receive(fd, &mut [bytes_mut(into, len)], flags))
            }
        },
    )
}

/// A read whose buffer's size the compiler knew (_FORTIFY_SOURCE).
fn check_room(len: size_t, room: size_t) {
    if len > room {
        kernel::write_error(b"linerate bypass: *** buffer overflow detected ***: terminated\n");
        std::process::abort();
    }
}

/// `__read_chk`.
///
/// # Safety
/// As read(2).
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn __read_chk(
    fd: c_int,
    into: *mut c_void,
    len: size_t,
    room: size_t,
) -> ssize_t {
    check_room(len, room);
    // SAFETY: as the caller's.
    unsafe { read(fd, into, len) }
}

/// `__recv_chk`.
///
/// # Safety
/// As recv(2).
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn __recv_chk(
    fd: c_int,
    into: *mut c_void,
    len: size_t,
    room: size_t,
    flags: c_int,
) -> ssize_t {
    check_room(len, room);
    // SAFETY: as the caller's.
    unsafe { recv(fd, into, len, flags) }
}

/// `__recvfrom_chk`.
///
/// # Safety
/// As recvfrom(2).
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn __recvfrom_chk(
    fd: c_int,
    into: *mut c_void,
    len: size_t,
    room: size_t,
    flags: c_int,
    address: *mut sockaddr,
    address_len: *mut socklen_t,
) -> ssize_t {
    check_room(len, room);
    // SAFETY: as the caller's.
    unsafe { recvfrom(fd, into, len, flags, address, address_len) }
}

/// write(2).
///
/// # Safety
/// As write(2).
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn write(fd: c_int, from: *const c_void, len: size_t) -> ssize_t {
    by_owner(
        fd,
        // SAFETY: as the caller's.
        || unsafe { real::write(fd, from, len) },
        // SAFETY: as the caller's.
        || answer(|| transfer::transmit(fd, &[unsafe { bytes(from, len) }], 0)),
    )
}

/// writev(2).
///
/// # Safety
/// As writev(2).
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn writev(fd: c_int, parts: *const iovec, count: c_int) -> ssize_t {
    by_owner(
        fd,
        // SAFETY: as the caller's.
        || unsafe { real::writev(fd, parts, count) },
        // SAFETY: as the caller's.
        || unsafe { send_parts(fd, parts, usize::try_from(count).unwrap_or(usize::MAX), 0) },
    )
}

/// send(2).
///
/// # Safety
/// As send(2).
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn send(fd: c_int, from: *const c_void, len: size_t, flags: c_int) -> ssize_t {
    by_owner(
        fd,
        // SAFETY: as the caller's.
        || unsafe { real::send(fd, from, len, flags) },
        // SAFETY: as the caller's.
        || answer(|| transfer::transmit(fd, &[unsafe { bytes(from, len) }], flags)),
    )
}

/// sendto(2): a connection ignores the address.
///
/// # Safety
/// As sendto(2).
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn sendto(
    fd: c_int,
    from: *const c_void,
    len: size_t,
    flags: c_int,
    address: *const sockaddr,
    address_len: socklen_t,
) -> ssize_t {
    by_owner(
        fd,
        // SAFETY: as the caller's.
        || unsafe { real::sendto(fd, from, len, flags, address, address_len) },
        // SAFETY: as the caller's.
        || answer(|| transfer::transmit(fd, &[unsafe { bytes(from, len) }], flags)),
    )
}

/// Sends a part of a file.
///
/// # Safety
/// As sendfile(2).
unsafe fn send_file(to: c_int, from: c_int, offset: *mut off_t, count: size_t) -> ssize_t {
    answer(|| {
        let at = if offset.is_null() {
            kernel::seek(from, 0, libc::SEEK_CUR).map_err(|_| libc::EINVAL)?
        } else {
            // SAFETY: as the caller's.
            unsafe { offset.read_unaligned() }
        };
        let taken = transfer::send_file(to, from, at, count)?;
        if offset.is_null() {
            kernel::seek(from, at + taken as i64, libc::SEEK_SET)?;
        } else {
            // SAFETY: as the caller's.
            unsafe { offset.write_unaligned(at + taken as off_t) };
        }
        Ok(taken)
    })
}

/// sendfile(2).
///
/// # Safety
/// As sendfile(2).
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn sendfile(
    to: c_int,
    from: c_int,
    offset: *mut off_t,
    count: size_t,
) -> ssize_t {
    if table::kind(from) == DescriptorKind::Connection {
        return fail(libc::EINVAL);
    }
    by_owner(
        to,
        // SAFETY: as the caller's.
        || unsafe { real::sendfile(to, from, offset, count) },
        // SAFETY: as the caller's.
        || unsafe { send_file(to, from, offset, count) },
    )
}

/// sendfile64(2): the same, because offsets have 64 bits.
///
/// # Safety
/// As sendfile(2).
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn sendfile64(
    to: c_int,
    from: c_int,
    offset: *mut off_t,
    count: size_t,
) -> ssize_t {
    // SAFETY: as the caller's.
    unsafe { sendfile(to, from, offset, count) }
}

/// splice(2): not built for connections of ours.
///
/// # Safety
/// As splice(2).
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn splice(
    from: c_int,
    from_offset: *mut off_t,
    to: c_int,
    to_offset: *mut off_t,
    len: size_t,
    flags: c_uint,
) -> ssize_t {
    if [from, to].iter().any(|fd| table::kind(*fd) == DescriptorKind::Connection) {
        tell_once("splice is not there for connections in user space");
        return fail(libc::EINVAL);
    }
    // SAFETY: as the caller's.
    unsafe { real::splice(from, from_offset, to, to_offset, len, flags) }
}
