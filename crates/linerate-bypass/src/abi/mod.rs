//! The C library's functions that take descriptors. Each asks whose the descriptor is; what is the
//! kernel's goes to the C library's own function, untouched.

mod descriptors;
mod messages;
mod names;
mod raw;
mod readiness;
mod streams;

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use libc::{c_int, c_void, sockaddr, sockaddr_in, sockaddr_in6, socklen_t};

use crate::kernel;
use crate::options::SocketFamily;
use crate::process;
use crate::table::{self, DescriptorKind};

/// Runs when the library is loaded.
#[used]
#[unsafe(link_section = ".init_array")]
static AT_LOAD: extern "C" fn() = {
    extern "C" fn at_load() {
        kernel::resolve();
        note_inherited();
    }
    at_load
};

/// A program may get its listeners from the one that has started it, and never call listen(2).
fn note_inherited() {
    if std::env::var_os(crate::CONFIGURATION).is_none() {
        return;
    }
    let open = std::fs::read_dir("/proc/self/fd").into_iter().flatten().flatten();
    let numbers = open.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    // The list has a descriptor of its own, so it is read before.
    for fd in numbers.collect::<Vec<c_int>>() {
        note_listener(fd);
    }
}

/// A descriptor of the kernel's has come. Returns whether it is a listener of an address that was asked for.
fn note_listener(fd: c_int) -> bool {
    let mut listens = [0; 4];
    if table::kind(fd) == DescriptorKind::Kernel
        && kernel::option(fd, libc::SOL_SOCKET, libc::SO_ACCEPTCONN, &mut listens).is_ok()
        && c_int::from_ne_bytes(listens) != 0
        && let Some((family, at)) = bound(fd)
    {
        crate::claim::listens(fd, family, at);
    }
    table::kind(fd) == DescriptorKind::Named
}

/// Who answers a call on a descriptor.
enum CallOwner {
    Kernel,
    /// A connection of ours.
    Us,
    /// Nobody: this errno.
    Nobody(c_int),
}

fn who_answers(fd: c_int) -> CallOwner {
    match table::kind(fd) {
        DescriptorKind::Connection => CallOwner::Us,
        DescriptorKind::Kept => CallOwner::Nobody(libc::EBADF),
        DescriptorKind::Orphan => {
            process::tell_orphan();
            CallOwner::Nobody(libc::ENOTCONN)
        }
        _ => CallOwner::Kernel,
    }
}

/// Answers a call by the C library's own function, or by ours.
fn by_owner<T: From<i8>>(fd: c_int, kernel: impl FnOnce() -> T, ours: impl FnOnce() -> T) -> T {
    match who_answers(fd) {
        CallOwner::Kernel => kernel(),
        CallOwner::Us => ours(),
        CallOwner::Nobody(errno) => {
            fail(errno);
            T::from(-1)
        }
    }
}

fn fail(errno: c_int) -> isize {
    kernel::set_errno(errno);
    -1
}

/// The result of a call of ours. A call that succeeds keeps errno.
fn answer(call: impl FnOnce() -> Result<usize, c_int>) -> isize {
    let before = kernel::errno();
    match call() {
        Ok(done) => {
            kernel::set_errno(before);
            done as isize
        }
        Err(errno) => fail(errno),
    }
}

/// The caller's bytes to fill.
///
/// # Safety
/// The caller's buffer has that many bytes, for as long as the slice lives.
unsafe fn bytes_mut<'a>(start: *mut c_void, len: usize) -> &'a mut [u8] {
    if start.is_null() || len == 0 {
        return &mut [];
    }
    // SAFETY: as the caller's.
    unsafe { std::slice::from_raw_parts_mut(start.cast(), len.min(isize::MAX as usize)) }
}

/// The caller's bytes.
///
/// # Safety
/// As [`bytes_mut`].
unsafe fn bytes<'a>(start: *const c_void, len: usize) -> &'a [u8] {
    if start.is_null() || len == 0 {
        return &[];
    }
    // SAFETY: as the caller's.
    unsafe { std::slice::from_raw_parts(start.cast(), len.min(isize::MAX as usize)) }
}

/// The address that the kernel's socket is bound to.
fn bound(fd: c_int) -> Option<(SocketFamily, SocketAddr)> {
    named(fd, libc::SYS_getsockname)
}

/// Whether the peer of a connection of the kernel's is on this machine: its packets come over no interface.
fn is_of_this_machine(fd: c_int) -> bool {
    let (own, peer) = (bound(fd), named(fd, libc::SYS_getpeername));
    own.zip(peer).is_some_and(|((_, own), (_, peer))| own.ip() == peer.ip())
}

/// An address of the kernel's socket: getsockname(2) or getpeername(2).
fn named(fd: c_int, call: libc::c_long) -> Option<(SocketFamily, SocketAddr)> {
    // SAFETY: the structure is plain numbers, and the kernel writes at most its length.
    let (got, address) = unsafe {
        let mut address: sockaddr_in6 = std::mem::zeroed();
        let mut len = size_of::<sockaddr_in6>() as socklen_t;
        let args = [fd as usize, &raw mut address as usize, &raw mut len as usize, 0, 0, 0];
        (kernel::system_call(call, args), address)
    };
    let family = c_int::from(address.sin6_family);
    if got != 0 || (family != libc::AF_INET && family != libc::AF_INET6) {
        return None;
    }
    if family == libc::AF_INET {
        // SAFETY: the larger structure's bytes are those of the smaller one, by its family.
        let v4: sockaddr_in = unsafe { std::mem::transmute_copy(&address) };
        let ip = Ipv4Addr::from(u32::from_be(v4.sin_addr.s_addr));
        return Some((SocketFamily::V4, SocketAddr::from((ip, u16::from_be(v4.sin_port)))));
    }
    let ip = Ipv6Addr::from(address.sin6_addr.s6_addr);
    let ip = ip.to_ipv4_mapped().map_or(IpAddr::V6(ip), IpAddr::V4);
    Some((SocketFamily::V6, SocketAddr::from((ip, u16::from_be(address.sin6_port)))))
}

/// Somebody waits for connections of this listener: if it is named, it is ours from now on.
fn claim(fd: c_int) {
    if table::kind(fd) == DescriptorKind::Named {
        let before = kernel::errno();
        crate::claim::claim(fd, bound);
        kernel::set_errno(before);
    }
}

/// Copies one of the structures of addresses to the caller.
///
/// # Safety
/// As [`tell_address`], and both pointers are there.
unsafe fn copy_address<T>(told: &T, address: *mut sockaddr, len: *mut socklen_t) {
    // SAFETY: a structure of plain numbers; the caller's buffer has the length that it gives.
    unsafe {
        let room = len.read_unaligned() as usize;
        let bytes = std::ptr::from_ref(told).cast::<u8>();
        std::ptr::copy_nonoverlapping(bytes, address.cast(), room.min(size_of::<T>()));
        len.write_unaligned(size_of::<T>() as socklen_t);
    }
}

/// Tells the caller an address, as much of it as there is room for.
///
/// # Safety
/// As accept(2): the buffer has the length that `len` points to.
unsafe fn tell_address(family: SocketFamily, named: SocketAddr, address: *mut sockaddr, len: *mut socklen_t) {
    if address.is_null() || len.is_null() {
        return;
    }
    // SAFETY: structures of plain numbers; the rest is as the caller's.
    unsafe {
        match (family, named) {
            (SocketFamily::V4, SocketAddr::V4(named)) => {
                let mut told: sockaddr_in = std::mem::zeroed();
                told.sin_family = libc::AF_INET as u16;
                told.sin_port = named.port().to_be();
                told.sin_addr.s_addr = u32::from(*named.ip()).to_be();
                copy_address(&told, address, len);
            }
            (_, named) => {
                let mut told: sockaddr_in6 = std::mem::zeroed();
                told.sin6_family = libc::AF_INET6 as u16;
                told.sin6_port = named.port().to_be();
                told.sin6_addr.s6_addr = match named.ip() {
                    IpAddr::V4(ip) => ip.to_ipv6_mapped().octets(),
                    IpAddr::V6(ip) => ip.octets(),
                };
                copy_address(&told, address, len);
            }
        }
    }
}
