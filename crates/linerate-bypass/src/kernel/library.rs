//! The C library's own functions.

use std::ffi::CStr;
use std::ptr::null_mut;
use std::sync::atomic::{AtomicPtr, Ordering};

use libc::{
    c_int, c_long, c_uint, c_void, epoll_event, fd_set, iovec, mmsghdr, msghdr, nfds_t, off_t, pid_t, pollfd,
    sigset_t, size_t, sockaddr, socklen_t, ssize_t, timespec, timeval,
};

fn find(name: &CStr) -> *mut c_void {
    // SAFETY: the name ends with a zero.
    unsafe { libc::dlsym(libc::RTLD_NEXT, name.as_ptr()) }
}

/// Defines the module of real functions. Another library's constructor may call before ours, so a
/// function that is not resolved yet is resolved then.
macro_rules! functions {
    ($($name:ident($($arg:ident: $kind:ty),*) -> $result:ty;)*) => {
        /// The C library's function of the same name.
        pub(crate) mod real {
            use super::*;
            $(
                pub(super) mod $name {
                    pub(in super::super) static FOUND: super::AtomicPtr<super::c_void> =
                        super::AtomicPtr::new(super::null_mut());
                }

                /// # Safety
                /// As its manual page.
                pub(crate) unsafe fn $name($($arg: $kind),*) -> $result {
                    let mut found = $name::FOUND.load(Ordering::Relaxed);
                    if found.is_null() {
                        found = resolved(stringify!($name));
                        $name::FOUND.store(found, Ordering::Relaxed);
                    }
                    // SAFETY: it is the function of this name, with the signature of its manual page.
                    unsafe {
                        let function: unsafe extern "C" fn($($kind),*) -> $result = std::mem::transmute(found);
                        function($($arg),*)
                    }
                }
            )*
        }

        /// Resolves what this C library has, so that later calls, perhaps in signal handlers, need not.
        pub(crate) fn resolve() {
            $(real::$name::FOUND.store(looked_up(stringify!($name)), Ordering::Relaxed);)*
        }
    };
}

functions! {
    listen(fd: c_int, backlog: c_int) -> c_int;
    accept4(fd: c_int, address: *mut sockaddr, len: *mut socklen_t, flags: c_int) -> c_int;
    connect(fd: c_int, address: *const sockaddr, len: socklen_t) -> c_int;
    bind(fd: c_int, address: *const sockaddr, len: socklen_t) -> c_int;
    read(fd: c_int, into: *mut c_void, len: size_t) -> ssize_t;
    readv(fd: c_int, parts: *const iovec, count: c_int) -> ssize_t;
    recv(fd: c_int, into: *mut c_void, len: size_t, flags: c_int) -> ssize_t;
    recvfrom(fd: c_int, into: *mut c_void, len: size_t, flags: c_int, address: *mut sockaddr, address_len: *mut socklen_t) -> ssize_t;
    recvmsg(fd: c_int, message: *mut msghdr, flags: c_int) -> ssize_t;
    recvmmsg(fd: c_int, messages: *mut mmsghdr, count: c_uint, flags: c_int, time: *mut timespec) -> c_int;
    write(fd: c_int, bytes: *const c_void, len: size_t) -> ssize_t;
    writev(fd: c_int, parts: *const iovec, count: c_int) -> ssize_t;
    send(fd: c_int, bytes: *const c_void, len: size_t, flags: c_int) -> ssize_t;
    sendto(fd: c_int, bytes: *const c_void, len: size_t, flags: c_int, address: *const sockaddr, address_len: socklen_t) -> ssize_t;
    sendmsg(fd: c_int, message: *const msghdr, flags: c_int) -> ssize_t;
    sendmmsg(fd: c_int, messages: *mut mmsghdr, count: c_uint, flags: c_int) -> c_int;
    sendfile(to: c_int, from: c_int, offset: *mut off_t, count: size_t) -> ssize_t;
    splice(from: c_int, from_offset: *mut off_t, to: c_int, to_offset: *mut off_t, len: size_t, flags: c_uint) -> ssize_t;
    close(fd: c_int) -> c_int;
    close_range(first: c_uint, last: c_uint, flags: c_int) -> c_int;
    shutdown(fd: c_int, how: c_int) -> c_int;
    getsockopt(fd: c_int, level: c_int, name: c_int, value: *mut c_void, len: *mut socklen_t) -> c_int;
    setsockopt(fd: c_int, level: c_int, name: c_int, value: *const c_void, len: socklen_t) -> c_int;
    getsockname(fd: c_int, address: *mut sockaddr, len: *mut socklen_t) -> c_int;
    getpeername(fd: c_int, address: *mut sockaddr, len: *mut socklen_t) -> c_int;
    fcntl(fd: c_int, command: c_int, value: usize) -> c_int;
    ioctl(fd: c_int, request: usize, value: usize) -> c_int;
    dup(fd: c_int) -> c_int;
    dup2(fd: c_int, to: c_int) -> c_int;
    dup3(fd: c_int, to: c_int, flags: c_int) -> c_int;
    epoll_ctl(epoll: c_int, op: c_int, fd: c_int, event: *mut epoll_event) -> c_int;
    epoll_wait(epoll: c_int, events: *mut epoll_event, most: c_int, timeout: c_int) -> c_int;
    epoll_pwait(epoll: c_int, events: *mut epoll_event, most: c_int, timeout: c_int, signals: *const sigset_t) -> c_int;
    epoll_pwait2(epoll: c_int, events: *mut epoll_event, most: c_int, timeout: *const timespec, signals: *const sigset_t) -> c_int;
    poll(polled: *mut pollfd, count: nfds_t, timeout: c_int) -> c_int;
    ppoll(polled: *mut pollfd, count: nfds_t, timeout: *const timespec, signals: *const sigset_t) -> c_int;
    select(count: c_int, read: *mut fd_set, write: *mut fd_set, except: *mut fd_set, timeout: *mut timeval) -> c_int;
    pselect(count: c_int, read: *mut fd_set, write: *mut fd_set, except: *mut fd_set, timeout: *const timespec, signals: *const sigset_t) -> c_int;
    syscall(number: c_long, a: usize, b: usize, c: usize, d: usize, e: usize, f: usize) -> c_long;
    fork() -> pid_t;
}

fn looked_up(name: &str) -> *mut c_void {
    let mut terminated = [0u8; 32];
    terminated[..name.len()].copy_from_slice(name.as_bytes());
    CStr::from_bytes_until_nul(&terminated).map_or(null_mut(), find)
}

/// The address of a function, which the C library must have: a program that calls it was linked to it.
fn resolved(name: &str) -> *mut c_void {
    let found = looked_up(name);
    if found.is_null() {
        super::write_error(b"linerate bypass: the C library has no function ");
        super::write_error(name.as_bytes());
        super::write_error(b"\n");
        std::process::abort();
    }
    found
}
