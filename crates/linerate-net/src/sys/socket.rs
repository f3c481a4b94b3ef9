//! TCP sockets: the calls of the hot path by libc, the rest by `socket2`.

use std::io::{self, IoSlice};
use std::mem::{self, MaybeUninit};
use std::net::{IpAddr, Shutdown, SocketAddr};
use std::os::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd};
use std::path::Path;
use std::time::Duration;

use socket2::{Domain, Protocol, SockAddr, SockFilter, SockRef, Socket, Type};

use super::{check, check_size};
use crate::{ListenOptions, TcpInfo};

/// A TCP socket that does not block.
pub(crate) fn tcp(to: SocketAddr) -> io::Result<OwnedFd> {
    let domain = if to.is_ipv4() { libc::AF_INET } else { libc::AF_INET6 };
    let kind = libc::SOCK_STREAM | libc::SOCK_NONBLOCK | libc::SOCK_CLOEXEC;
    // SAFETY: socket takes no pointers.
    let fd = check(unsafe { libc::socket(domain, kind, libc::IPPROTO_TCP) })?;
    // SAFETY: the kernel just gave us this descriptor, which has no other owner.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// A Unix stream socket that does not block.
pub(crate) fn unix() -> io::Result<OwnedFd> {
    Ok(Socket::new(Domain::UNIX, Type::STREAM.nonblocking().cloexec(), None)?.into())
}

/// Connects to a Unix socket. `WouldBlock`: its accept queue is full.
pub(crate) fn connect_unix(fd: &OwnedFd, path: &Path) -> io::Result<()> {
    SockRef::from(fd).connect(&SockAddr::unix(path)?)
}

/// Our end of a connection, where it has an address.
pub(crate) fn local(fd: &impl AsFd) -> Option<SocketAddr> {
    SockRef::from(fd).local_addr().ok()?.as_socket()
}

/// Binds to a source address and leaves the port to `connect`, which may then share ports between destinations.
/// Where the option is unknown (QEMU's user mode), each connection gets a port of its own.
pub(crate) fn bind_source(fd: &OwnedFd, from: IpAddr) -> io::Result<()> {
    let on: libc::c_int = 1;
    // SAFETY: the option is an int that lives through the call.
    let late = check(unsafe {
        libc::setsockopt(
            fd.as_raw_fd(),
            libc::IPPROTO_IP,
            libc::IP_BIND_ADDRESS_NO_PORT,
            (&raw const on).cast(),
            size_of::<libc::c_int>() as libc::socklen_t,
        )
    });
    match late {
        Err(e) if e.raw_os_error() != Some(libc::ENOPROTOOPT) => return Err(e),
        _ => {}
    }
    SockRef::from(fd).bind(&SockAddr::from(SocketAddr::new(from, 0)))
}

/// Binds to a source port.
pub(crate) fn bind_port(fd: &OwnedFd, from: SocketAddr) -> io::Result<()> {
    SockRef::from(fd).bind(&SockAddr::from(from))
}

/// Starts a connection: `Ok(true)` when it is established already.
pub(crate) fn connect(fd: &OwnedFd, to: SocketAddr) -> io::Result<bool> {
    let to = SockAddr::from(to);
    // SAFETY: socket2 gives the address and its true length; it lives through the call.
    match check(unsafe { libc::connect(fd.as_raw_fd(), to.as_ptr().cast(), to.len()) }) {
        Ok(_) => Ok(true),
        Err(e) if matches!(e.raw_os_error(), Some(libc::EINPROGRESS | libc::EINTR)) => Ok(false),
        Err(e) => Err(e),
    }
}

/// A listening socket and its address. TCP_NODELAY is set on it: accepted sockets inherit it without a call each.
pub(crate) fn listen(at: SocketAddr, options: &ListenOptions) -> io::Result<(OwnedFd, SocketAddr)> {
    let socket = Socket::new(Domain::for_address(at), Type::STREAM.nonblocking(), Some(Protocol::TCP))?;
    socket.set_reuse_address(true)?;
    if options.reuse_port {
        socket.set_reuse_port(true)?;
    }
    if at.is_ipv6() {
        // The same port may be served on both families, each by its own listener.
        socket.set_only_v6(true)?;
    }
    socket.set_tcp_nodelay(true)?;
    if let Some(defer) = options.defer {
        set_defer_accept(&socket, Some(defer))?;
    }
    socket.bind(&at.into())?;
    socket.listen(libc::c_int::try_from(options.backlog).unwrap_or(libc::c_int::MAX))?;
    let at = socket.local_addr()?.as_socket().unwrap_or(at);
    Ok((socket.into(), at))
}

/// Prepares a listening socket that exists already, TCP's or a Unix one, as [`listen`] prepares its own.
pub(crate) fn adopt(fd: &OwnedFd) -> io::Result<()> {
    let socket = SockRef::from(fd);
    socket.set_nonblocking(true)?;
    if matches!(socket.domain()?, Domain::IPV4 | Domain::IPV6) {
        socket.set_tcp_nodelay(true)?;
    }
    Ok(())
}

/// From now on no handshake begins at a listening socket; those under way continue. A SYN that is dropped comes again
/// after a second, when the socket is closed or another one has the port: no established connection is reset.
pub(crate) fn drop_syns(socket: &impl AsFd) -> io::Result<()> {
    // A socket's filter sees a TCP packet from its TCP header on. SYN and not ACK: 0 bytes of it are let through.
    const FLAGS_AT: u32 = 13;
    const SYN: u32 = 0x02;
    const ACK: u32 = 0x10;
    let step = |code: u32, jt, jf, k| SockFilter::new(code as u16, jt, jf, k);
    SockRef::from(socket).attach_filter(&[
        step(libc::BPF_LD | libc::BPF_B | libc::BPF_ABS, 0, 0, FLAGS_AT),
        step(libc::BPF_ALU | libc::BPF_AND | libc::BPF_K, 0, 0, SYN | ACK),
        step(libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K, 0, 1, SYN),
        step(libc::BPF_RET | libc::BPF_K, 0, 0, 0),
        step(libc::BPF_RET | libc::BPF_K, 0, 0, u32::MAX),
    ])
}

/// Connections are accepted when their first bytes are there; after so long (`None`: at once) without.
pub(crate) fn set_defer_accept(socket: &impl AsRawFd, defer: Option<Duration>) -> io::Result<()> {
    // Whole seconds, at least one.
    let seconds =
        defer.map_or(0, |time| libc::c_int::try_from(time.as_secs().max(1)).unwrap_or(libc::c_int::MAX));
    // SAFETY: the option is an int that lives through the call.
    check(unsafe {
        libc::setsockopt(
            socket.as_raw_fd(),
            libc::IPPROTO_TCP,
            libc::TCP_DEFER_ACCEPT,
            (&raw const seconds).cast(),
            size_of::<libc::c_int>() as libc::socklen_t,
        )
    })
    .map(|_| ())
}

/// Accepts one connection that does not block.
pub(crate) fn accept(listener: &OwnedFd) -> io::Result<(OwnedFd, SocketAddr)> {
    // SAFETY: sockaddr_storage is plain bytes: all zeros is a value.
    let mut storage: libc::sockaddr_storage = unsafe { mem::zeroed() };
    let mut len = size_of::<libc::sockaddr_storage>() as libc::socklen_t;
    let flags = libc::SOCK_NONBLOCK | libc::SOCK_CLOEXEC;
    // SAFETY: the address has room for `len` bytes; both live through the call.
    let fd = check(unsafe {
        libc::accept4(listener.as_raw_fd(), (&raw mut storage).cast(), &raw mut len, flags)
    })?;
    // SAFETY: the kernel just gave us this descriptor, which has no other owner.
    let fd = unsafe { OwnedFd::from_raw_fd(fd) };
    Ok((fd, address(&storage).unwrap_or_else(unknown_address)))
}

/// The name of a peer for which the kernel reports none.
pub(crate) fn unknown_address() -> SocketAddr {
    SocketAddr::from(([0, 0, 0, 0], 0))
}

/// The address the kernel wrote.
pub(super) fn address(storage: &libc::sockaddr_storage) -> Option<SocketAddr> {
    match libc::c_int::from(storage.ss_family) {
        libc::AF_INET => {
            // SAFETY: the family says that this storage, which is larger and as aligned, holds a sockaddr_in.
            let v4 = unsafe { &*std::ptr::from_ref(storage).cast::<libc::sockaddr_in>() };
            Some((v4.sin_addr.s_addr.to_ne_bytes(), u16::from_be(v4.sin_port)).into())
        }
        libc::AF_INET6 => {
            // SAFETY: the family says that this storage, which is larger and as aligned, holds a sockaddr_in6.
            let v6 = unsafe { &*std::ptr::from_ref(storage).cast::<libc::sockaddr_in6>() };
            Some((v6.sin6_addr.s6_addr, u16::from_be(v6.sin6_port)).into())
        }
        _ => None,
    }
}

/// Reads what is there. By number, not by the C library's function: that is a cancellation point, which in a process with
/// several threads costs 3 % of a request.
pub(crate) fn recv(fd: &impl AsRawFd, buffer: &mut [u8]) -> io::Result<usize> {
    let (fd, at, len) = (fd.as_raw_fd(), buffer.as_mut_ptr(), buffer.len());
    // SAFETY: the kernel writes at most `len` bytes into a buffer of that length, and no address is asked for.
    let n = unsafe { libc::syscall(libc::SYS_recvfrom, fd, at, len, 0, 0usize, 0usize) };
    check_size(n as isize)
}

/// Takes up to `len` bytes out of the socket without copying them (tcp(7), MSG_TRUNC).
pub(crate) fn discard(fd: &impl AsRawFd, len: usize) -> io::Result<usize> {
    let fd = fd.as_raw_fd();
    // SAFETY: with MSG_TRUNC, TCP writes nothing to the buffer, which is null; nor is an address asked for.
    let n = unsafe { libc::syscall(libc::SYS_recvfrom, fd, 0usize, len, libc::MSG_TRUNC, 0usize, 0usize) };
    check_size(n as isize)
}

/// Sends what the socket takes, without SIGPIPE. By number, as `recv`. `more`: the end of it, what does not fill a segment, waits
/// for what comes next.
pub(crate) fn send(fd: &impl AsRawFd, bytes: &[u8], more: bool) -> io::Result<usize> {
    let (fd, at, len) = (fd.as_raw_fd(), bytes.as_ptr(), bytes.len());
    let flags = libc::MSG_NOSIGNAL | if more { libc::MSG_MORE } else { 0 };
    // SAFETY: the kernel reads at most `len` bytes from a slice of that length, and no address is given.
    let n = unsafe { libc::syscall(libc::SYS_sendto, fd, at, len, flags, 0usize, 0usize) };
    check_size(n as isize)
}

/// The same for several pieces in order.
pub(crate) fn send_all(fd: &impl AsRawFd, pieces: &[IoSlice<'_>], more: bool) -> io::Result<usize> {
    // SAFETY: msghdr is plain data: all zeros is a value (no address, no control data).
    let mut message: libc::msghdr = unsafe { mem::zeroed() };
    message.msg_iov = pieces.as_ptr().cast_mut().cast();
    message.msg_iovlen = pieces.len() as _;
    let flags = libc::MSG_NOSIGNAL | if more { libc::MSG_MORE } else { 0 };
    // SAFETY: std guarantees IoSlice to have iovec's layout; sendmsg only reads through it, and all lives through the
    // call.
    check_size(unsafe { libc::sendmsg(fd.as_raw_fd(), &raw const message, flags) })
}

/// TCP_NODELAY.
pub(crate) fn set_nodelay(fd: &impl AsFd) -> io::Result<()> {
    SockRef::from(fd).set_tcp_nodelay(true)
}

/// The pending error, taken away.
pub(crate) fn take_error(fd: &impl AsFd) -> Option<i32> {
    SockRef::from(fd).take_error().ok().flatten().and_then(|e| e.raw_os_error())
}

/// Ends directions of a connection: `Write` is our FIN. `Both` ends a listening socket too, also for other processes
/// that hold it. It can only fail where there is nothing to end any more.
pub(crate) fn shutdown(fd: &impl AsFd, how: Shutdown) {
    let _ = SockRef::from(fd).shutdown(how);
}

/// Makes `close` send RST.
pub(crate) fn set_abort(fd: &impl AsFd) -> io::Result<()> {
    SockRef::from(fd).set_linger(Some(Duration::ZERO))
}

/// SO_RCVLOWAT.
pub(crate) fn set_low_water(fd: &impl AsRawFd, bytes: usize) -> io::Result<()> {
    let bytes = libc::c_int::try_from(bytes.max(1)).unwrap_or(libc::c_int::MAX);
    // SAFETY: the option is an int that lives through the call.
    check(unsafe {
        libc::setsockopt(
            fd.as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_RCVLOWAT,
            (&raw const bytes).cast(),
            size_of::<libc::c_int>() as libc::socklen_t,
        )
    })
    .map(|_| ())
}

/// Room for TCP_INFO as the newest kernels give it; older ones fill a shorter prefix.
const TCP_INFO_ROOM: usize = 512;

/// TCP_INFO.
pub(crate) fn tcp_info(fd: &impl AsRawFd) -> io::Result<TcpInfo> {
    let mut room = [MaybeUninit::<u8>::uninit(); TCP_INFO_ROOM];
    let mut len = TCP_INFO_ROOM as libc::socklen_t;
    // SAFETY: the kernel writes at most `len` bytes into room of that length, and sets `len` to what it wrote.
    check(unsafe {
        libc::getsockopt(
            fd.as_raw_fd(),
            libc::IPPROTO_TCP,
            libc::TCP_INFO,
            room.as_mut_ptr().cast(),
            &raw mut len,
        )
    })?;
    let written = (len as usize).min(TCP_INFO_ROOM);
    // SAFETY: the kernel wrote the first `written` bytes.
    let bytes = unsafe { std::slice::from_raw_parts(room.as_ptr().cast::<u8>(), written) };
    Ok(TcpInfo::parse(bytes))
}
