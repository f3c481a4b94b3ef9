//! Functions of the C library as packetdrill calls them: `__wrap_X` replaces `X` where packetdrill
//! is linked with `--wrap=X`. They convert pointers to values, and pass calls on foreign
//! descriptors to the C library.
//!
//! `open`, `fcntl` and `ioctl` are variadic in C. On the supported platforms (Linux on x86-64 and
//! AArch64) the third argument is passed like that of an ordinary function. If the caller gave
//! none, it is not used.
//!
//! SAFETY, for all of them: packetdrill calls them as it would call the C library, so a pointer is
//! null or points to what the function's manual page says, as long as the call lasts.

use std::ffi::{CStr, c_char, c_int, c_long, c_uint, c_ulong, c_void};
use std::net::{SocketAddr, SocketAddrV4, SocketAddrV6};
use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use libc::{iovec, msghdr, sockaddr, sockaddr_in, sockaddr_in6, sockaddr_ll, socklen_t, timeval};
use linerate_net::Time;

use crate::shell;
use crate::world::{Answer, DrillWorld};

/// The functions that packetdrill must be linked with `--wrap` for.
pub const WRAPPED: [&str; 29] = [
    "accept",
    "bind",
    "close",
    "connect",
    "fcntl",
    "freeifaddrs",
    "getifaddrs",
    "getsockopt",
    "gettimeofday",
    "if_nametoindex",
    "ioctl",
    "listen",
    "mlockall",
    "open",
    "read",
    "recv",
    "recvmsg",
    "sched_setscheduler",
    "send",
    "sendto",
    "setsockopt",
    "shutdown",
    "sleep",
    "socket",
    "system",
    "times",
    "usleep",
    "write",
    "getsockname",
];

/// The one interface's name and number.
const NAME: &[u8; 5] = b"tun0\0";
const INDEX: c_int = 1;
/// <linux/sockios.h>: when the last packet arrived.
const SIOCGSTAMP: c_ulong = 0x8906;
const TUNSETIFF: c_ulong = 0x4004_54ca;

static WORLD: Mutex<Option<DrillWorld>> = Mutex::new(None);
static TICKS: AtomicI64 = AtomicI64::new(0);

/// Calls the world, which the first call creates.
fn with<T>(ask: impl FnOnce(&mut DrillWorld) -> T) -> T {
    let mut guard: MutexGuard<'_, Option<DrillWorld>> = WORLD.lock().unwrap_or_else(PoisonError::into_inner);
    let world =
        guard.get_or_insert_with(|| DrillWorld::new().unwrap_or_else(|error| give_up(&error.to_string())));
    ask(world)
}

/// Ends packetdrill with an error.
fn give_up(why: &str) -> ! {
    eprintln!("linerate: {why}");
    std::process::exit(1)
}

fn is_ours(fd: c_int) -> bool {
    with(|world| world.has(fd))
}

/// Returns a result as C does: -1 and errno on failure.
fn told(answer: Answer) -> i64 {
    answer.unwrap_or_else(|errno| {
        // SAFETY: errno is the C library's own location for this thread.
        unsafe { *libc::__errno_location() = errno };
        -1
    })
}

fn told_int(answer: Answer) -> c_int {
    told(answer) as c_int
}

/// # Safety
/// `address` points to `len` bytes of a socket's address.
unsafe fn address(address: *const sockaddr, len: socklen_t) -> Option<SocketAddr> {
    if address.is_null() || (len as usize) < size_of::<sockaddr_in>() {
        return None;
    }
    // SAFETY: there are enough bytes for the family, as was checked.
    match c_int::from(unsafe { (*address).sa_family }) {
        libc::AF_INET => {
            // SAFETY: there are enough bytes for it, as was checked.
            let v4 = unsafe { address.cast::<sockaddr_in>().read_unaligned() };
            let ip = u32::from_be(v4.sin_addr.s_addr).into();
            Some(SocketAddrV4::new(ip, u16::from_be(v4.sin_port)).into())
        }
        libc::AF_INET6 if len as usize >= size_of::<sockaddr_in6>() => {
            // SAFETY: there are enough bytes for it, as was checked.
            let v6 = unsafe { address.cast::<sockaddr_in6>().read_unaligned() };
            let ip = v6.sin6_addr.s6_addr.into();
            Some(SocketAddrV6::new(ip, u16::from_be(v6.sin6_port), 0, 0).into())
        }
        _ => None,
    }
}

/// # Safety
/// `out` is null or points to `*len` writable bytes.
unsafe fn put_address(from: SocketAddr, out: *mut sockaddr, len: *mut socklen_t) {
    if out.is_null() || len.is_null() {
        return;
    }
    match from {
        SocketAddr::V4(from) => {
            let mut v4: sockaddr_in = ZERO_V4;
            v4.sin_port = from.port().to_be();
            v4.sin_addr.s_addr = u32::from(*from.ip()).to_be();
            // SAFETY: the caller's buffer, which is a sockaddr_storage.
            unsafe { put(&v4, out, len) }
        }
        SocketAddr::V6(from) => {
            let mut v6: sockaddr_in6 = ZERO_V6;
            v6.sin6_port = from.port().to_be();
            v6.sin6_addr.s6_addr = from.ip().octets();
            // SAFETY: the caller's buffer, which is a sockaddr_storage.
            unsafe { put(&v6, out, len) }
        }
    }
}

const ZERO_V4: sockaddr_in = sockaddr_in {
    sin_family: libc::AF_INET as u16,
    sin_port: 0,
    sin_addr: libc::in_addr { s_addr: 0 },
    sin_zero: [0; 8],
};
const ZERO_V6: sockaddr_in6 = sockaddr_in6 {
    sin6_family: libc::AF_INET6 as u16,
    sin6_port: 0,
    sin6_flowinfo: 0,
    sin6_addr: libc::in6_addr { s6_addr: [0; 16] },
    sin6_scope_id: 0,
};

/// # Safety
/// `out` points to `*len` writable bytes.
unsafe fn put<T>(value: &T, out: *mut sockaddr, len: *mut socklen_t) {
    // SAFETY: at most `*len` bytes are written, and `value` has as many as are read.
    unsafe {
        let count = size_of::<T>().min(*len as usize);
        std::ptr::copy_nonoverlapping(std::ptr::from_ref(value).cast::<u8>(), out.cast(), count);
        *len = size_of::<T>() as socklen_t;
    }
}

fn time_of(at: Time) -> timeval {
    let micros = at.as_nanos() / 1000;
    timeval { tv_sec: (micros / 1_000_000) as c_long, tv_usec: (micros % 1_000_000) as c_long }
}

#[unsafe(no_mangle)]
extern "C" fn __wrap_socket(domain: c_int, kind: c_int, protocol: c_int) -> c_int {
    let stream = kind & 0xf == libc::SOCK_STREAM;
    told_int(with(|world| match domain {
        libc::AF_PACKET => Ok(world.open_other(true)),
        libc::AF_INET | libc::AF_INET6 if stream && (protocol == 0 || protocol == libc::IPPROTO_TCP) => {
            Ok(world.open_socket())
        }
        libc::AF_INET | libc::AF_INET6 if !stream => Ok(world.open_other(false)),
        _ => Err(libc::EPROTONOSUPPORT),
    }))
}

#[unsafe(no_mangle)]
unsafe extern "C" fn __wrap_bind(fd: c_int, at: *const sockaddr, len: socklen_t) -> c_int {
    // SAFETY: as the manual page says.
    let at = unsafe { address(at, len) };
    // A packet socket is bound to the only interface.
    told_int(at.map_or(Ok(0), |at| with(|world| world.bind(fd, at))))
}

#[unsafe(no_mangle)]
extern "C" fn __wrap_listen(fd: c_int, backlog: c_int) -> c_int {
    told_int(with(|world| world.listen(fd, backlog.max(0) as u32)))
}

#[unsafe(no_mangle)]
unsafe extern "C" fn __wrap_accept(fd: c_int, out: *mut sockaddr, len: *mut socklen_t) -> c_int {
    told_int(with(|world| world.accept(fd)).map(|(accepted, peer)| {
        // SAFETY: as the manual page says.
        unsafe { put_address(peer, out, len) };
        accepted
    }))
}

#[unsafe(no_mangle)]
unsafe extern "C" fn __wrap_connect(fd: c_int, to: *const sockaddr, len: socklen_t) -> c_int {
    // SAFETY: as the manual page says.
    let to = unsafe { address(to, len) };
    told_int(to.ok_or(libc::EAFNOSUPPORT).and_then(|to| with(|world| world.connect(fd, to))))
}

#[unsafe(no_mangle)]
unsafe extern "C" fn __wrap_getsockname(fd: c_int, out: *mut sockaddr, len: *mut socklen_t) -> c_int {
    told_int(with(|world| world.local(fd)).map(|local| {
        // SAFETY: as the manual page says.
        unsafe { put_address(local, out, len) };
        0
    }))
}

#[unsafe(no_mangle)]
unsafe extern "C" fn __wrap_read(fd: c_int, out: *mut c_void, len: usize) -> isize {
    if !is_ours(fd) {
        // SAFETY: the caller's own arguments.
        return unsafe { libc::read(fd, out, len) };
    }
    if with(|world| world.is_interface(fd)) {
        // Sent packets are read from the packet socket; this only empties the interface's queue.
        return 1;
    }
    // SAFETY: the caller's own arguments.
    unsafe { __wrap_recv(fd, out, len, 0) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn __wrap_recv(fd: c_int, out: *mut c_void, len: usize, flags: c_int) -> isize {
    let peek = flags & libc::MSG_PEEK != 0;
    let answer = with(|world| world.receive(fd, len, peek)).map(|bytes| {
        // SAFETY: no more than `len` bytes came, and `out` has room for as many.
        unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), out.cast(), bytes.len().min(len)) };
        bytes.len() as i64
    });
    told(answer) as isize
}

#[unsafe(no_mangle)]
unsafe extern "C" fn __wrap_write(fd: c_int, bytes: *const c_void, len: usize) -> isize {
    if !is_ours(fd) {
        // SAFETY: the caller's own arguments.
        return unsafe { libc::write(fd, bytes, len) };
    }
    // SAFETY: `bytes` points to `len` readable ones.
    let bytes = unsafe { std::slice::from_raw_parts(bytes.cast::<u8>(), len) };
    let answer =
        with(|world| if world.is_interface(fd) { world.write_packet(bytes) } else { world.send(fd, bytes) });
    told(answer) as isize
}

#[unsafe(no_mangle)]
unsafe extern "C" fn __wrap_send(fd: c_int, bytes: *const c_void, len: usize, _flags: c_int) -> isize {
    // SAFETY: the caller's own arguments.
    unsafe { __wrap_write(fd, bytes, len) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn __wrap_sendto(
    fd: c_int,
    bytes: *const c_void,
    len: usize,
    _flags: c_int,
    _to: *const sockaddr,
    _to_len: socklen_t,
) -> isize {
    // SAFETY: the caller's own arguments.
    unsafe { __wrap_write(fd, bytes, len) }
}

#[unsafe(no_mangle)]
extern "C" fn __wrap_close(fd: c_int) -> c_int {
    if !is_ours(fd) {
        // SAFETY: a descriptor of the caller's, who gives it up.
        return unsafe { libc::close(fd) };
    }
    told_int(with(|world| world.close(fd)))
}

#[unsafe(no_mangle)]
extern "C" fn __wrap_shutdown(fd: c_int, how: c_int) -> c_int {
    told_int(with(|world| world.shutdown(fd, how)))
}

#[unsafe(no_mangle)]
unsafe extern "C" fn __wrap_getsockopt(
    fd: c_int,
    level: c_int,
    name: c_int,
    out: *mut c_void,
    len: *mut socklen_t,
) -> c_int {
    let answer = with(|world| match (level, name) {
        (libc::SOL_SOCKET, libc::SO_ERROR) => world.take_error(fd),
        (libc::IPPROTO_TCP, libc::TCP_MAXSEG) => world.segment(fd),
        _ => Err(libc::ENOPROTOOPT),
    });
    told_int(answer.map(|value| {
        // SAFETY: these options are an int, for which the caller has room.
        unsafe {
            out.cast::<c_int>().write_unaligned(value as c_int);
            *len = size_of::<c_int>() as socklen_t;
        }
        0
    }))
}

#[unsafe(no_mangle)]
extern "C" fn __wrap_setsockopt(
    fd: c_int,
    level: c_int,
    name: c_int,
    _value: *const c_void,
    _len: socklen_t,
) -> c_int {
    let always = match (level, name) {
        // Addresses are reusable at once, and Nagle's algorithm is off anyway.
        (libc::SOL_SOCKET, libc::SO_REUSEADDR) | (libc::IPPROTO_TCP, libc::TCP_NODELAY) => true,
        // Switching quick ACKs off is the default here.
        (libc::IPPROTO_TCP, libc::TCP_QUICKACK) => true,
        // An option of the packet socket.
        (libc::SOL_SOCKET, libc::SO_RCVBUF) => true,
        _ => false,
    };
    told_int(if always && is_ours(fd) { Ok(0) } else { Err(libc::ENOPROTOOPT) })
}

#[unsafe(no_mangle)]
extern "C" fn __wrap_fcntl(fd: c_int, command: c_int, argument: c_long) -> c_int {
    if !is_ours(fd) {
        // SAFETY: the caller's own arguments.
        return unsafe { libc::fcntl(fd, command, argument) };
    }
    told_int(with(|world| world.fcntl(fd, command, argument)))
}

#[unsafe(no_mangle)]
unsafe extern "C" fn __wrap_ioctl(fd: c_int, request: c_ulong, argument: *mut c_void) -> c_int {
    if !is_ours(fd) {
        // SAFETY: the caller's own arguments.
        return unsafe { libc::ioctl(fd, request, argument) };
    }
    match request {
        // SAFETY: an ifreq begins with the room for a name.
        TUNSETIFF => unsafe { std::ptr::copy_nonoverlapping(NAME.as_ptr(), argument.cast(), NAME.len()) },
        SIOCGSTAMP => {
            let at = time_of(with(|world| world.read_at()));
            // SAFETY: the argument is a timeval.
            unsafe { argument.cast::<timeval>().write_unaligned(at) };
        }
        _ => {}
    }
    0
}

#[unsafe(no_mangle)]
unsafe extern "C" fn __wrap_open(path: *const c_char, flags: c_int, mode: c_uint) -> c_int {
    // SAFETY: as the manual page says.
    if unsafe { CStr::from_ptr(path) }.to_bytes() == b"/dev/net/tun" {
        return told_int(with(|world| Ok(world.open_interface())));
    }
    // SAFETY: the caller's own arguments.
    unsafe { libc::open(path, flags, mode) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn __wrap_recvmsg(fd: c_int, msg: *mut msghdr, flags: c_int) -> isize {
    if !is_ours(fd) {
        // SAFETY: the caller's own arguments.
        return unsafe { libc::recvmsg(fd, msg, flags) };
    }
    let Some(packet) = with(DrillWorld::read_packet) else { give_up("no packet came") };
    // SAFETY: as the manual page says, with one buffer and room for an address.
    unsafe {
        let iovec { iov_base, iov_len } = *(*msg).msg_iov;
        let count = packet.len().min(iov_len);
        std::ptr::copy_nonoverlapping(packet.as_ptr(), iov_base.cast(), count);
        let from = (*msg).msg_name.cast::<sockaddr_ll>();
        let v4 = packet.first().is_some_and(|first| first >> 4 == 4);
        let protocol = if v4 { libc::ETH_P_IP } else { libc::ETH_P_IPV6 };
        (*from).sll_family = libc::AF_PACKET as u16;
        (*from).sll_protocol = (protocol as u16).to_be();
        (*from).sll_ifindex = INDEX;
        (*from).sll_pkttype = libc::PACKET_OUTGOING;
        count as isize
    }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn __wrap_system(command: *const c_char) -> c_int {
    // SAFETY: as the manual page says.
    let command = unsafe { CStr::from_ptr(command) }.to_string_lossy();
    // A status as wait(2) encodes it.
    with(|world| shell::run(world, &command)) << 8
}

#[unsafe(no_mangle)]
unsafe extern "C" fn __wrap_gettimeofday(out: *mut timeval, _zone: *mut c_void) -> c_int {
    let now = time_of(with(DrillWorld::clock));
    // SAFETY: as the manual page says.
    unsafe { out.write(now) };
    0
}

#[unsafe(no_mangle)]
extern "C" fn __wrap_usleep(micros: c_uint) -> c_int {
    with(|world| world.sleep(Duration::from_micros(u64::from(micros))));
    0
}

#[unsafe(no_mangle)]
extern "C" fn __wrap_sleep(seconds: c_uint) -> c_uint {
    with(|world| world.sleep(Duration::from_secs(u64::from(seconds))));
    0
}

/// Each call advances the tick, so that no caller waits for one.
#[unsafe(no_mangle)]
extern "C" fn __wrap_times(_out: *mut c_void) -> c_long {
    TICKS.fetch_add(1, Ordering::Relaxed)
}

#[unsafe(no_mangle)]
extern "C" fn __wrap_if_nametoindex(_name: *const c_char) -> c_uint {
    INDEX as c_uint
}

/// No address belongs to this machine, so none conflicts with a script's.
#[unsafe(no_mangle)]
unsafe extern "C" fn __wrap_getifaddrs(out: *mut *mut c_void) -> c_int {
    // SAFETY: as the manual page says.
    unsafe { out.write(std::ptr::null_mut()) };
    0
}

#[unsafe(no_mangle)]
extern "C" fn __wrap_freeifaddrs(_list: *mut c_void) {}

/// Time is virtual, so memory need not be locked.
#[unsafe(no_mangle)]
extern "C" fn __wrap_mlockall(_flags: c_int) -> c_int {
    0
}

#[unsafe(no_mangle)]
extern "C" fn __wrap_sched_setscheduler(
    _process: c_int,
    _policy: c_int,
    _parameters: *const c_void,
) -> c_int {
    0
}
