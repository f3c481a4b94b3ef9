//! The system calls that server and clients need, each as a small safe function.
//!
//! Unlike `std::net`, they never retry, never hide a short count and need no object per connection.

use std::io;
use std::net::{Ipv4Addr, SocketAddrV4};
use std::os::fd::RawFd;
use std::time::Duration;

/// Events per `epoll_wait`, at most. More would only fill the cache: the next call returns the
/// rest.
pub const EVENTS: usize = 512;

fn check(rc: i64) -> io::Result<usize> {
    usize::try_from(rc).map_err(|_| io::Error::last_os_error())
}

/// Whether the error only means "not now".
pub fn would_block(e: &io::Error) -> bool {
    matches!(e.raw_os_error(), Some(libc::EAGAIN) | Some(libc::EINTR))
}

fn to_raw(a: SocketAddrV4) -> libc::sockaddr_in {
    libc::sockaddr_in {
        sin_family: libc::AF_INET as libc::sa_family_t,
        sin_port: a.port().to_be(),
        sin_addr: libc::in_addr { s_addr: u32::from_ne_bytes(a.ip().octets()) },
        sin_zero: [0; 8],
    }
}

/// A peer's address in the kernel's form, at a stable address while borrowed.
#[derive(Clone, Copy, Debug)]
pub struct PeerAddress(libc::sockaddr_in);

impl PeerAddress {
    /// The kernel's form of `a`.
    pub fn new(a: SocketAddrV4) -> PeerAddress {
        PeerAddress(to_raw(a))
    }

    /// Pointer and length for a system call.
    pub fn as_raw(&self) -> (*const libc::sockaddr, libc::socklen_t) {
        (&raw const self.0 as *const libc::sockaddr, size_of::<libc::sockaddr_in>() as libc::socklen_t)
    }
}

/// A TCP socket, blocking or not.
pub fn socket(nonblocking: bool) -> io::Result<RawFd> {
    let kind = libc::SOCK_STREAM | libc::SOCK_CLOEXEC | if nonblocking { libc::SOCK_NONBLOCK } else { 0 };
    // SAFETY: no pointers.
    check(unsafe { libc::socket(libc::AF_INET, kind, 0) } as i64).map(|fd| fd as RawFd)
}

/// Connects; on a non-blocking socket "in progress" is fine.
pub fn connect(fd: RawFd, peer: &PeerAddress) -> io::Result<()> {
    let (at, len) = peer.as_raw();
    // SAFETY: `at` points to a live sockaddr_in of `len` bytes.
    match check(unsafe { libc::connect(fd, at, len) } as i64) {
        Err(e) if e.raw_os_error() == Some(libc::EINPROGRESS) => Ok(()),
        other => other.map(drop),
    }
}

/// Sets an int socket option.
pub fn set(fd: RawFd, level: i32, name: i32, value: i32) -> io::Result<()> {
    let len = size_of::<i32>() as libc::socklen_t;
    // SAFETY: the value lives through the call and `len` is its size.
    check(unsafe { libc::setsockopt(fd, level, name, (&raw const value).cast(), len) } as i64).map(drop)
}

/// Makes a descriptor non-blocking.
pub fn set_nonblocking(fd: RawFd) -> io::Result<()> {
    // SAFETY: no pointers.
    check(unsafe { libc::fcntl(fd, libc::F_SETFL, libc::O_NONBLOCK) } as i64).map(drop)
}

/// A non-blocking listener, and the address it got.
pub fn listen(at: SocketAddrV4) -> io::Result<(RawFd, SocketAddrV4)> {
    let fd = socket(true)?;
    set(fd, libc::SOL_SOCKET, libc::SO_REUSEADDR, 1)?;
    set(fd, libc::IPPROTO_TCP, libc::TCP_NODELAY, 1)?;
    let raw = PeerAddress::new(at);
    let (p, len) = raw.as_raw();
    // SAFETY: `p` points to a live sockaddr_in of `len` bytes.
    check(unsafe { libc::bind(fd, p, len) } as i64)?;
    // SAFETY: no pointers.
    check(unsafe { libc::listen(fd, 4096) } as i64)?;
    local_address(fd).map(|at| (fd, at))
}

/// Accepts one connection, non-blocking.
pub fn accept(listener: RawFd) -> io::Result<RawFd> {
    let flags = libc::SOCK_NONBLOCK | libc::SOCK_CLOEXEC;
    // SAFETY: null address pointers are allowed; the peer's address is not needed.
    check(unsafe { libc::accept4(listener, std::ptr::null_mut(), std::ptr::null_mut(), flags) } as i64)
        .map(|fd| fd as RawFd)
}

/// One `recv`.
pub fn recv(fd: RawFd, into: &mut [u8]) -> io::Result<usize> {
    // SAFETY: the buffer is valid for its length.
    check(unsafe { libc::recv(fd, into.as_mut_ptr().cast(), into.len(), 0) } as i64)
}

/// One `send`; `more` holds the bytes back for those that follow (the response and the FIN in one
/// segment).
pub fn send(fd: RawFd, bytes: &[u8], more: bool) -> io::Result<usize> {
    let flags = libc::MSG_NOSIGNAL | if more { libc::MSG_MORE } else { 0 };
    // SAFETY: the buffer is valid for its length.
    check(unsafe { libc::send(fd, bytes.as_ptr().cast(), bytes.len(), flags) } as i64)
}

/// One `sendfile` from `offset`: the kernel sends the file's pages without copying them.
pub fn send_file(fd: RawFd, file: RawFd, offset: usize, len: usize) -> io::Result<usize> {
    let mut at = offset as libc::off_t;
    // SAFETY: `at` lives through the call.
    check(unsafe { libc::sendfile(fd, file, &mut at, len) } as i64)
}

/// A file in memory with these bytes.
pub fn memory_file(bytes: &[u8]) -> io::Result<RawFd> {
    // SAFETY: the name is static and NUL-terminated.
    let fd =
        check(i64::from(unsafe { libc::memfd_create(c"answers".as_ptr(), libc::MFD_CLOEXEC) }))? as RawFd;
    let mut rest = bytes;
    while !rest.is_empty() {
        // SAFETY: the buffer is valid for its length.
        rest = &rest[check(unsafe { libc::write(fd, rest.as_ptr().cast(), rest.len()) } as i64)?..];
    }
    Ok(fd)
}

/// Shuts down the sending side.
pub fn shutdown_write(fd: RawFd) {
    // SAFETY: no pointers. A failure means that the peer is gone already.
    let _ = unsafe { libc::shutdown(fd, libc::SHUT_WR) };
}

/// Closes a descriptor.
pub fn close(fd: RawFd) {
    // SAFETY: no pointers; callers own `fd` and forget it afterwards.
    let _ = unsafe { libc::close(fd) };
}

/// An epoll instance and its events.
pub struct RawEpoll {
    fd: RawFd,
    events: Vec<libc::epoll_event>,
    ready: usize,
}

impl std::fmt::Debug for RawEpoll {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Epoll({})", self.fd)
    }
}

impl RawEpoll {
    /// A new instance.
    pub fn new() -> io::Result<RawEpoll> {
        // SAFETY: no pointers.
        let fd = check(unsafe { libc::epoll_create1(libc::EPOLL_CLOEXEC) } as i64)? as RawFd;
        Ok(RawEpoll { fd, events: vec![libc::epoll_event { events: 0, u64: 0 }; EVENTS], ready: 0 })
    }

    /// Watches `fd` for `events`, reported as `token`.
    pub fn add(&self, fd: RawFd, events: i32, token: u64) -> io::Result<()> {
        let mut e = libc::epoll_event { events: events as u32, u64: token };
        // SAFETY: `e` lives through the call.
        check(unsafe { libc::epoll_ctl(self.fd, libc::EPOLL_CTL_ADD, fd, &mut e) } as i64).map(drop)
    }

    /// Waits at most `timeout_ms` (-1: forever) and returns the number of events.
    pub fn wait(&mut self, timeout_ms: i32) -> io::Result<usize> {
        let room = self.events.len() as i32;
        // SAFETY: the buffer has room for `room` events.
        let n = unsafe { libc::epoll_wait(self.fd, self.events.as_mut_ptr(), room, timeout_ms) };
        self.note(n)
    }

    /// As [`RawEpoll::wait`], with nanosecond resolution.
    pub fn wait_for(&mut self, most: Duration) -> io::Result<usize> {
        let room = self.events.len() as i32;
        let most =
            libc::timespec { tv_sec: most.as_secs() as libc::time_t, tv_nsec: most.subsec_nanos().into() };
        // SAFETY: the buffer has room for `room` events, the time lives through the call, and no
        // signals are named.
        let n =
            unsafe { libc::epoll_pwait2(self.fd, self.events.as_mut_ptr(), room, &most, std::ptr::null()) };
        self.note(n)
    }

    fn note(&mut self, n: i32) -> io::Result<usize> {
        self.ready = match check(i64::from(n)) {
            Ok(n) => n,
            Err(e) if would_block(&e) => 0,
            Err(e) => return Err(e),
        };
        Ok(self.ready)
    }

    /// Event number `i` of the last wait: its token and its bits.
    pub fn event(&self, i: usize) -> (u64, i32) {
        let e = self.events[..self.ready][i];
        (e.u64, e.events as i32)
    }
}

/// Raises this process's limit on file descriptors to its maximum.
pub fn raise_descriptor_limit() {
    let mut l = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: `l` lives through both calls. Failing leaves the limit as it was.
    unsafe {
        if libc::getrlimit(libc::RLIMIT_NOFILE, &mut l) == 0 {
            l.rlim_cur = l.rlim_max;
            libc::setrlimit(libc::RLIMIT_NOFILE, &l);
        }
    }
}

/// Pins the calling thread to one core.
pub fn pin(core: usize) -> io::Result<()> {
    // SAFETY: an all-zero cpu_set_t is an empty set; the macros only write inside it.
    let set = unsafe {
        let mut set: libc::cpu_set_t = std::mem::zeroed();
        libc::CPU_SET(core % libc::CPU_SETSIZE as usize, &mut set);
        set
    };
    // SAFETY: `set` lives through the call and its size is given.
    check(unsafe { libc::sched_setaffinity(0, size_of::<libc::cpu_set_t>(), &set) } as i64).map(drop)
}

/// CPU time of this process so far, user and system, seconds.
pub fn cpu_seconds() -> f64 {
    // SAFETY: an all-zero rusage is valid.
    let mut u: libc::rusage = unsafe { std::mem::zeroed() };
    // SAFETY: `u` lives through the call.
    unsafe { libc::getrusage(libc::RUSAGE_SELF, &mut u) };
    seconds(u.ru_utime) + seconds(u.ru_stime)
}

/// CPU time of another process so far, user and system, with those of its threads that have ended, seconds.
pub fn cpu_seconds_of(pid: u32) -> io::Result<f64> {
    let (mut clock, mut time) = (0, libc::timespec { tv_sec: 0, tv_nsec: 0 });
    // SAFETY: `clock` lives through the call.
    let failed = unsafe { libc::clock_getcpuclockid(pid as i32, &mut clock) };
    if failed != 0 {
        return Err(io::Error::from_raw_os_error(failed));
    }
    // SAFETY: `time` lives through the call.
    check(i64::from(unsafe { libc::clock_gettime(clock, &mut time) }))?;
    Ok(time.tv_sec as f64 + time.tv_nsec as f64 / 1e9)
}

/// A timeval as seconds.
pub fn seconds(t: libc::timeval) -> f64 {
    t.tv_sec as f64 + t.tv_usec as f64 / 1e6
}

/// Monotonic time in microseconds, the same clock for all processes of a machine.
pub fn now_us() -> u64 {
    now_ns() / 1000
}

/// The same in nanoseconds.
pub fn now_ns() -> u64 {
    let mut t = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: `t` lives through the call.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &mut t) };
    t.tv_sec as u64 * 1_000_000_000 + t.tv_nsec as u64
}

static ASKED_TO_END: std::sync::atomic::AtomicBool = std::sync::atomic::AtomicBool::new(false);

extern "C" fn on_signal(_: i32) {
    ASKED_TO_END.store(true, std::sync::atomic::Ordering::Relaxed);
}

/// Makes SIGTERM and SIGINT request a stop instead of killing the process; see [`asked_to_end`].
pub fn end_on_signal() {
    for signal in [libc::SIGTERM, libc::SIGINT] {
        // SAFETY: the handler does nothing but one atomic store, which is async-signal-safe. No
        // SA_RESTART: waits must wake.
        unsafe {
            let mut a: libc::sigaction = std::mem::zeroed();
            a.sa_sigaction = on_signal as *const () as usize;
            libc::sigaction(signal, &a, std::ptr::null_mut());
        }
    }
}

/// Whether a signal requested a stop.
pub fn asked_to_end() -> bool {
    ASKED_TO_END.load(std::sync::atomic::Ordering::Relaxed)
}

/// If a child has ended, returns its wait status and the resources that it and its children used.
pub fn reap(pid: u32) -> io::Result<Option<(i32, libc::rusage)>> {
    let mut status = 0;
    // SAFETY: an all-zero rusage is valid.
    let mut usage: libc::rusage = unsafe { std::mem::zeroed() };
    // SAFETY: both pointers are to live variables.
    let got = check(i64::from(unsafe { libc::wait4(pid as i32, &mut status, libc::WNOHANG, &mut usage) }))?;
    Ok((got != 0).then_some((status, usage)))
}

/// Starts a new session, which has its own scheduler group.
pub fn new_session() {
    // SAFETY: no pointers. Fails only for a group leader, which a fresh child is not.
    let _ = unsafe { libc::setsid() };
}

/// Kills this process when its parent ends, for whatever reason.
pub fn die_with_parent() {
    // SAFETY: no pointers.
    let _ = unsafe { libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL) };
}

/// Raises this session's scheduler priority over other builds. Does nothing where that is not
/// permitted.
pub fn favour() {
    // SAFETY: the path and the text are static and NUL-terminated or counted; the descriptor is
    // closed again.
    unsafe {
        let fd = libc::open(c"/proc/self/autogroup".as_ptr(), libc::O_WRONLY | libc::O_CLOEXEC);
        if fd >= 0 {
            let _ = libc::write(fd, c"-20".as_ptr().cast(), 3);
            libc::close(fd);
        }
    }
}

/// Reads what standard input has; returns whether it has ended.
pub fn stdin_ended() -> bool {
    let mut buffer = [0u8; 256];
    // SAFETY: the buffer is valid for its length.
    unsafe { libc::read(0, buffer.as_mut_ptr().cast(), buffer.len()) <= 0 }
}

/// The room of a UDP socket's buffers, bytes. Reason: a burst of all connections must not be dropped.
const UDP_ROOM: i32 = 4 << 20;

/// A non-blocking UDP socket that merges the segments that it receives. `at`: its own address; `peer`:
/// the only one that it talks to.
pub fn udp_socket(at: Option<SocketAddrV4>, peer: Option<SocketAddrV4>) -> io::Result<RawFd> {
    let kind = libc::SOCK_DGRAM | libc::SOCK_CLOEXEC | libc::SOCK_NONBLOCK;
    // SAFETY: no pointers.
    let fd = check(unsafe { libc::socket(libc::AF_INET, kind, 0) } as i64)? as RawFd;
    set(fd, libc::SOL_UDP, libc::UDP_GRO, 1)?;
    for name in [libc::SO_RCVBUF, libc::SO_SNDBUF] {
        set(fd, libc::SOL_SOCKET, name, UDP_ROOM)?;
    }
    if let Some(at) = at {
        let raw = PeerAddress::new(at);
        let (p, len) = raw.as_raw();
        // SAFETY: `p` points to a live sockaddr_in of `len` bytes.
        check(unsafe { libc::bind(fd, p, len) } as i64)?;
    }
    if let Some(peer) = peer {
        connect(fd, &PeerAddress::new(peer))?;
    }
    Ok(fd)
}

/// The address of a socket.
pub fn local_address(fd: RawFd) -> io::Result<SocketAddrV4> {
    let mut got = to_raw(SocketAddrV4::new(Ipv4Addr::UNSPECIFIED, 0));
    let mut len = size_of::<libc::sockaddr_in>() as libc::socklen_t;
    // SAFETY: both pointers are to live variables, `len` is the room in `got`.
    check(unsafe { libc::getsockname(fd, (&raw mut got).cast(), &mut len) } as i64)?;
    Ok(of_raw(&got))
}

fn of_raw(raw: &libc::sockaddr_in) -> SocketAddrV4 {
    SocketAddrV4::new(Ipv4Addr::from(raw.sin_addr.s_addr.to_ne_bytes()), u16::from_be(raw.sin_port))
}

/// Room for one control message, aligned as the kernel needs it.
#[repr(align(8))]
struct RawControlRoom([u8; 64]);

/// Sends bytes as datagrams of `segment` bytes each, in one call.
pub fn send_segments(fd: RawFd, bytes: &[u8], segment: usize, peer: &PeerAddress) -> io::Result<()> {
    let mut control = RawControlRoom([0; 64]);
    let mut piece = libc::iovec { iov_base: bytes.as_ptr() as *mut libc::c_void, iov_len: bytes.len() };
    let (name, name_len) = peer.as_raw();
    // SAFETY: an all-zero msghdr is valid. Its pointers are to variables that live through the call; the
    // control message fits into its room, and the kernel writes to none of them.
    let sent = unsafe {
        let mut message: libc::msghdr = std::mem::zeroed();
        message.msg_name = name as *mut libc::c_void;
        message.msg_namelen = name_len;
        message.msg_iov = &raw mut piece;
        message.msg_iovlen = 1;
        if segment < bytes.len() {
            message.msg_control = control.0.as_mut_ptr().cast();
            message.msg_controllen = libc::CMSG_SPACE(size_of::<u16>() as u32) as usize;
            let head = libc::CMSG_FIRSTHDR(&raw const message);
            (*head).cmsg_level = libc::SOL_UDP;
            (*head).cmsg_type = libc::UDP_SEGMENT;
            (*head).cmsg_len = libc::CMSG_LEN(size_of::<u16>() as u32) as usize;
            libc::CMSG_DATA(head).cast::<u16>().write_unaligned(segment as u16);
        }
        libc::sendmsg(fd, &raw const message, 0)
    };
    check(sent as i64).map(drop)
}

/// Receives datagrams of one peer in one call: bytes of all, of each but the last, and the peer.
pub fn receive_segments(fd: RawFd, into: &mut [u8]) -> io::Result<(usize, usize, SocketAddrV4)> {
    let mut control = RawControlRoom([0; 64]);
    let mut piece = libc::iovec { iov_base: into.as_mut_ptr().cast(), iov_len: into.len() };
    let mut peer = to_raw(SocketAddrV4::new(Ipv4Addr::UNSPECIFIED, 0));
    // SAFETY: an all-zero msghdr is valid. Its pointers are to variables that live through the call, with
    // the room that it says. The control messages are walked as the kernel left them.
    unsafe {
        let mut message: libc::msghdr = std::mem::zeroed();
        message.msg_name = (&raw mut peer).cast();
        message.msg_namelen = size_of::<libc::sockaddr_in>() as libc::socklen_t;
        message.msg_iov = &raw mut piece;
        message.msg_iovlen = 1;
        message.msg_control = control.0.as_mut_ptr().cast();
        message.msg_controllen = control.0.len();
        let len = check(libc::recvmsg(fd, &raw mut message, 0) as i64)?;
        let mut segment = len.max(1);
        let mut head = libc::CMSG_FIRSTHDR(&raw const message);
        while !head.is_null() {
            if (*head).cmsg_level == libc::SOL_UDP && (*head).cmsg_type == libc::UDP_GRO {
                segment = libc::CMSG_DATA(head).cast::<i32>().read_unaligned() as usize;
            }
            head = libc::CMSG_NXTHDR(&raw const message, head);
        }
        Ok((len, segment.max(1), of_raw(&peer)))
    }
}
