//! The C library's functions that take a descriptor of a connection.

use std::ffi::{CStr, c_int, c_void};
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::{LazyLock, Mutex, MutexGuard};

use libc::{epoll_event, iovec, size_t, sockaddr, sockaddr_in, socklen_t, ssize_t};

use crate::world::World;

/// The C library's own functions.
struct Real {
    listen: unsafe extern "C" fn(c_int, c_int) -> c_int,
    epoll_ctl: unsafe extern "C" fn(c_int, c_int, c_int, *mut epoll_event) -> c_int,
    epoll_wait: unsafe extern "C" fn(c_int, *mut epoll_event, c_int, c_int) -> c_int,
    accept4: unsafe extern "C" fn(c_int, *mut sockaddr, *mut socklen_t, c_int) -> c_int,
    recv: unsafe extern "C" fn(c_int, *mut c_void, size_t, c_int) -> ssize_t,
    writev: unsafe extern "C" fn(c_int, *const iovec, c_int) -> ssize_t,
    close: unsafe extern "C" fn(c_int) -> c_int,
    shutdown: unsafe extern "C" fn(c_int, c_int) -> c_int,
    setsockopt: unsafe extern "C" fn(c_int, c_int, c_int, *const c_void, socklen_t) -> c_int,
}

#[allow(clippy::missing_transmute_annotations, reason = "the fields have the types")]
static REAL: LazyLock<Real> = LazyLock::new(|| {
    fn find(name: &CStr) -> *mut c_void {
        // SAFETY: the name ends with a zero.
        let found = unsafe { libc::dlsym(libc::RTLD_NEXT, name.as_ptr()) };
        assert!(!found.is_null(), "the C library has no {name:?}");
        found
    }
    // SAFETY: each is the function of this name, with the signature of its manual page.
    unsafe {
        Real {
            listen: std::mem::transmute(find(c"listen")),
            epoll_ctl: std::mem::transmute(find(c"epoll_ctl")),
            epoll_wait: std::mem::transmute(find(c"epoll_wait")),
            accept4: std::mem::transmute(find(c"accept4")),
            recv: std::mem::transmute(find(c"recv")),
            writev: std::mem::transmute(find(c"writev")),
            close: std::mem::transmute(find(c"close")),
            shutdown: std::mem::transmute(find(c"shutdown")),
            setsockopt: std::mem::transmute(find(c"setsockopt")),
        }
    }
});

static WORLD: Mutex<Option<World>> = Mutex::new(None);

/// The connections; `None` while there are none, or if this call comes from our own code.
fn world() -> Option<MutexGuard<'static, Option<World>>> {
    WORLD.try_lock().ok().filter(|world| world.is_some())
}

/// Sets errno.
fn fail(errno: c_int) -> c_int {
    // SAFETY: the thread's errno is always there.
    unsafe { *libc::__errno_location() = errno };
    -1
}

fn done(result: Result<(), c_int>) -> c_int {
    result.map_or_else(fail, |()| 0)
}

fn size(result: Result<usize, c_int>) -> ssize_t {
    result.map_or_else(|errno| fail(errno) as ssize_t, |len| len as ssize_t)
}

/// The IPv4 address that a socket is bound to.
fn bound_to(fd: c_int) -> Option<SocketAddr> {
    let mut len = size_of::<sockaddr_in>() as socklen_t;
    // SAFETY: the structure is plain numbers, and the kernel writes at most its length.
    let address = unsafe {
        let mut address: sockaddr_in = std::mem::zeroed();
        let got = libc::getsockname(fd, (&raw mut address).cast(), &raw mut len);
        (got == 0 && c_int::from(address.sin_family) == libc::AF_INET).then_some(address)?
    };
    let ip = Ipv4Addr::from(u32::from_be(address.sin_addr.s_addr));
    Some(SocketAddr::from((ip, u16::from_be(address.sin_port))))
}

/// `listen`: the first IPv4 socket's connections are ours if `LINERATE_BYPASS` names an interface.
///
/// # Safety
/// As listen(2).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn listen(fd: c_int, backlog: c_int) -> c_int {
    if world().as_deref().and_then(Option::as_ref).is_some_and(|world| world.listener == fd) {
        return 0;
    }
    let interface = std::env::var("LINERATE_BYPASS").ok().filter(|_| world().is_none());
    let (Some(interface), Some(at)) = (interface, bound_to(fd)) else {
        // SAFETY: as the caller's.
        return unsafe { (REAL.listen)(fd, backlog) };
    };
    match World::open(&interface, fd, at, backlog.unsigned_abs().max(1)) {
        Ok(world) => {
            eprintln!("bypass: {at} is served by user-space TCP over {interface} ({})", world.how);
            if let Ok(mut place) = WORLD.lock() {
                *place = Some(world);
            }
            0
        }
        Err(why) => {
            eprintln!("bypass: {why}");
            fail(libc::EADDRNOTAVAIL)
        }
    }
}

/// `epoll_ctl`. There is one epoll instance.
///
/// # Safety
/// As epoll_ctl(2).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn epoll_ctl(epoll: c_int, op: c_int, fd: c_int, event: *mut epoll_event) -> c_int {
    if let Some(world) = world().as_deref_mut().and_then(Option::as_mut)
        && (fd == world.listener || world.has(fd))
    {
        // SAFETY: as the caller's; EPOLL_CTL_DEL needs no event.
        let wanted = (op != libc::EPOLL_CTL_DEL).then(|| unsafe { event.read_unaligned() });
        return done(world.watch(fd, wanted.map(|wanted| (wanted.events, wanted.u64))));
    }
    // SAFETY: as the caller's.
    unsafe { (REAL.epoll_ctl)(epoll, op, fd, event) }
}

/// `epoll_wait`.
///
/// # Safety
/// As epoll_wait(2).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn epoll_wait(
    epoll: c_int,
    events: *mut epoll_event,
    most: c_int,
    timeout: c_int,
) -> c_int {
    let real = REAL.epoll_wait;
    if let (Some(world), Ok(len)) = (world().as_deref_mut().and_then(Option::as_mut), usize::try_from(most)) {
        // SAFETY: the caller's array has that many entries; they are plain numbers.
        let out = unsafe { std::slice::from_raw_parts_mut(events, len) };
        return world.wait(timeout, out, |rest| {
            // SAFETY: the array and its length are a slice's.
            unsafe { real(epoll, rest.as_mut_ptr(), rest.len() as c_int, 0) }
        });
    }
    // SAFETY: as the caller's.
    unsafe { real(epoll, events, most, timeout) }
}

/// `accept4`. Descriptors are copies of one of `/dev/null`.
///
/// # Safety
/// As accept(2).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn accept4(
    fd: c_int,
    address: *mut sockaddr,
    len: *mut socklen_t,
    flags: c_int,
) -> c_int {
    let mut guard = world();
    let Some(world) = guard.as_deref_mut().and_then(Option::as_mut).filter(|world| world.listener == fd)
    else {
        drop(guard);
        // SAFETY: as the caller's.
        return unsafe { (REAL.accept4)(fd, address, len, flags) };
    };
    // SAFETY: the name ends with a zero.
    let make = || unsafe { libc::open(c"/dev/null".as_ptr(), libc::O_RDWR | libc::O_CLOEXEC) };
    let (fd, peer) = match world.accept(make) {
        Ok(accepted) => accepted,
        Err(errno) => return fail(errno),
    };
    if let (SocketAddr::V4(peer), false) = (peer, address.is_null() || len.is_null()) {
        // SAFETY: the structure is plain numbers; the caller's buffer has the length that it gives.
        unsafe {
            let mut named: sockaddr_in = std::mem::zeroed();
            named.sin_family = libc::AF_INET as u16;
            named.sin_port = peer.port().to_be();
            named.sin_addr.s_addr = u32::from(*peer.ip()).to_be();
            let room = (*len as usize).min(size_of::<sockaddr_in>());
            std::ptr::copy_nonoverlapping((&raw const named).cast::<u8>(), address.cast(), room);
            *len = size_of::<sockaddr_in>() as socklen_t;
        }
    }
    fd
}

/// `recv`.
///
/// # Safety
/// As recv(2).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn recv(fd: c_int, buffer: *mut c_void, len: size_t, flags: c_int) -> ssize_t {
    if let Some(world) = world().as_deref_mut().and_then(Option::as_mut)
        && world.has(fd)
    {
        // SAFETY: the caller's buffer has that many bytes.
        let into = unsafe { std::slice::from_raw_parts_mut(buffer.cast::<u8>(), len) };
        return size(world.read(fd, into, flags & libc::MSG_PEEK != 0));
    }
    // SAFETY: as the caller's.
    unsafe { (REAL.recv)(fd, buffer, len, flags) }
}

/// `writev`.
///
/// # Safety
/// As writev(2).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn writev(fd: c_int, parts: *const iovec, count: c_int) -> ssize_t {
    if let Some(world) = world().as_deref_mut().and_then(Option::as_mut)
        && world.has(fd)
        && let Ok(len) = usize::try_from(count)
    {
        // SAFETY: the caller's array has that many entries, each of a buffer of its length.
        let bytes =
            |part: &iovec| unsafe { std::slice::from_raw_parts(part.iov_base.cast::<u8>(), part.iov_len) };
        // SAFETY: the same.
        let parts = unsafe { std::slice::from_raw_parts(parts, len) };
        return size(world.write(fd, parts.iter().filter(|part| part.iov_len > 0).map(bytes)));
    }
    // SAFETY: as the caller's.
    unsafe { (REAL.writev)(fd, parts, count) }
}

/// `close`.
///
/// # Safety
/// As close(2).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn close(fd: c_int) -> c_int {
    if let Some(world) = world().as_deref_mut().and_then(Option::as_mut)
        && world.has(fd)
    {
        return done(world.close(fd));
    }
    // SAFETY: as the caller's.
    unsafe { (REAL.close)(fd) }
}

/// `shutdown`.
///
/// # Safety
/// As shutdown(2).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn shutdown(fd: c_int, how: c_int) -> c_int {
    if let Some(world) = world().as_deref_mut().and_then(Option::as_mut)
        && world.has(fd)
    {
        return done(world.shutdown(fd, how));
    }
    // SAFETY: as the caller's.
    unsafe { (REAL.shutdown)(fd, how) }
}

/// `setsockopt`: a linger time of zero resets at close. User-space TCP never delays small segments, and
/// has no other option.
///
/// # Safety
/// As setsockopt(2).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn setsockopt(
    fd: c_int,
    level: c_int,
    name: c_int,
    value: *const c_void,
    len: socklen_t,
) -> c_int {
    if let Some(world) = world().as_deref_mut().and_then(Option::as_mut)
        && world.has(fd)
    {
        if (level, name) != (libc::SOL_SOCKET, libc::SO_LINGER) {
            return 0;
        }
        if value.is_null() || (len as usize) < size_of::<libc::linger>() {
            return fail(libc::EINVAL);
        }
        // SAFETY: the caller's value has that length, and is plain numbers.
        let linger = unsafe { value.cast::<libc::linger>().read_unaligned() };
        return done(world.reset_at_close(fd, linger.l_onoff != 0 && linger.l_linger == 0));
    }
    // SAFETY: as the caller's.
    unsafe { (REAL.setsockopt)(fd, level, name, value, len) }
}
