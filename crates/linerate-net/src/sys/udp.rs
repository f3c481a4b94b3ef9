//! UDP sockets: many datagrams in one call, both ways.

use std::io;
use std::mem;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::fd::{AsRawFd, OwnedFd};

use socket2::{Domain, Protocol, SockAddr, Socket, Type};

use super::socket::address;
use super::{check, check_size};

/// Messages that one receive takes at most. Reason: each brings up to 64 KiB of one peer, and their heads
/// are on the stack.
pub(crate) const MESSAGES: usize = 16;

/// Bytes of one message: datagrams of one peer that the kernel merged (UDP_GRO).
pub(crate) const MESSAGE_BYTES: usize = 64 << 10;

/// Room for the control messages of one call, aligned as the kernel needs it.
#[repr(C, align(8))]
#[derive(Clone, Copy)]
struct ControlRoom([u8; 128]);

impl ControlRoom {
    const EMPTY: ControlRoom = ControlRoom([0; 128]);
}

fn set(fd: &impl AsRawFd, level: libc::c_int, name: libc::c_int, value: libc::c_int) -> io::Result<()> {
    let len = size_of::<libc::c_int>() as libc::socklen_t;
    // SAFETY: the option is an int that lives through the call.
    check(unsafe { libc::setsockopt(fd.as_raw_fd(), level, name, (&raw const value).cast(), len) })
        .map(|_| ())
}

/// A UDP socket that does not block, with its address. It merges datagrams that come, tells ECN and what
/// it dropped, and never lets a datagram be fragmented (RFC 9000, section 14).
pub(crate) fn open(
    at: SocketAddr,
    peer: Option<SocketAddr>,
    reuse_port: bool,
    buffer: usize,
) -> io::Result<(OwnedFd, SocketAddr)> {
    let socket = Socket::new(Domain::for_address(at), Type::DGRAM.nonblocking(), Some(Protocol::UDP))?;
    if reuse_port {
        socket.set_reuse_port(true)?;
    }
    if at.is_ipv6() {
        socket.set_only_v6(true)?;
        set(&socket, libc::IPPROTO_IPV6, libc::IPV6_RECVTCLASS, 1)?;
        set(&socket, libc::IPPROTO_IPV6, libc::IPV6_RECVPKTINFO, 1)?;
        set(&socket, libc::IPPROTO_IPV6, libc::IPV6_MTU_DISCOVER, libc::IPV6_PMTUDISC_PROBE)?;
    } else {
        set(&socket, libc::IPPROTO_IP, libc::IP_RECVTOS, 1)?;
        set(&socket, libc::IPPROTO_IP, libc::IP_PKTINFO, 1)?;
        set(&socket, libc::IPPROTO_IP, libc::IP_MTU_DISCOVER, libc::IP_PMTUDISC_PROBE)?;
    }
    set(&socket, libc::SOL_SOCKET, libc::SO_RXQ_OVFL, 1)?;
    // Since Linux 5.0. Without it each datagram is a message of its own.
    let _ = set(&socket, libc::SOL_UDP, libc::UDP_GRO, 1);
    // The kernel cuts both to net.core.rmem_max and wmem_max.
    socket.set_recv_buffer_size(buffer)?;
    socket.set_send_buffer_size(buffer)?;
    socket.bind(&at.into())?;
    if let Some(peer) = peer {
        socket.connect(&peer.into())?;
    }
    let at = socket.local_addr()?.as_socket().unwrap_or(at);
    Ok((socket.into(), at))
}

/// Lets two bytes of a datagram decide which socket of its group gets it (SO_ATTACH_REUSEPORT_CBPF, since
/// Linux 4.5): `((bytes * key) >> 16) % sockets`. If its first bit is set, no socket has that number, and
/// the kernel decides by the addresses.
pub(crate) fn steer(fd: &impl AsRawFd, at: u32, key: u32, sockets: u32) -> io::Result<()> {
    let code = |code: u32| code as u16;
    let step = |of: u32, k: u32| libc::sock_filter { code: code(of), jt: 0, jf: 0, k };
    let load = libc::BPF_LD | libc::BPF_ABS;
    let alu = libc::BPF_ALU | libc::BPF_K;
    let mut steps = [
        step(load | libc::BPF_B, 0),
        // To the last step, which is five behind the next.
        libc::sock_filter { jt: 5, ..step(libc::BPF_JMP | libc::BPF_JSET | libc::BPF_K, 0x80) },
        step(load | libc::BPF_H, at),
        step(alu | libc::BPF_MUL, key),
        step(alu | libc::BPF_RSH, 16),
        step(alu | libc::BPF_MOD, sockets.max(1)),
        step(libc::BPF_RET | BPF_A, 0),
        step(libc::BPF_RET | libc::BPF_K, u32::MAX),
    ];
    let program = libc::sock_fprog { len: steps.len() as u16, filter: steps.as_mut_ptr() };
    let len = size_of::<libc::sock_fprog>() as libc::socklen_t;
    let (level, name) = (libc::SOL_SOCKET, libc::SO_ATTACH_REUSEPORT_CBPF);
    // SAFETY: the program and its steps live through the call, and the kernel copies them.
    check(unsafe { libc::setsockopt(fd.as_raw_fd(), level, name, (&raw const program).cast(), len) })
        .map(|_| ())
}

/// The accumulator, as what a program of BPF returns.
const BPF_A: u32 = 0x10;

/// Whether sends may carry several datagrams (UDP_SEGMENT, since Linux 4.18).
pub(crate) fn has_segments(fd: &impl AsRawFd) -> bool {
    set(fd, libc::SOL_UDP, libc::UDP_SEGMENT, 0).is_ok()
}

/// Room for what one receive brings.
pub(crate) struct ReceiveRoom {
    bytes: Box<[u8]>,
    controls: [ControlRoom; MESSAGES],
    names: Box<[libc::sockaddr_storage]>,
    /// Of each message: its bytes, and those of its control messages.
    lens: [(usize, usize); MESSAGES],
}

/// Datagrams of one peer that came together.
pub(crate) struct ReceivedMessage<'a> {
    pub(crate) peer: Option<SocketAddr>,
    /// The address that they were sent to.
    pub(crate) local: Option<IpAddr>,
    pub(crate) ecn: u8,
    /// Bytes of each but the last, which may be shorter.
    pub(crate) segment: usize,
    /// Datagrams that the socket has dropped so far for lack of room.
    pub(crate) drops: Option<u32>,
    pub(crate) bytes: &'a [u8],
}

impl ReceiveRoom {
    pub(crate) fn new() -> ReceiveRoom {
        // SAFETY: sockaddr_storage is plain bytes: all zeros is a value.
        let name: libc::sockaddr_storage = unsafe { mem::zeroed() };
        ReceiveRoom {
            bytes: vec![0; MESSAGES * MESSAGE_BYTES].into_boxed_slice(),
            controls: [ControlRoom::EMPTY; MESSAGES],
            names: vec![name; MESSAGES].into_boxed_slice(),
            lens: [(0, 0); MESSAGES],
        }
    }

    /// Message `n` of the last receive.
    pub(crate) fn message(&self, n: usize) -> ReceivedMessage<'_> {
        let (len, control_len) = self.lens[n];
        let bytes = &self.bytes[n * MESSAGE_BYTES..][..len.min(MESSAGE_BYTES)];
        let peer = address(&self.names[n]);
        let (local, ecn, drops) = (None, 0, None);
        let mut message = ReceivedMessage { peer, local, ecn, segment: len.max(1), drops, bytes };
        // SAFETY: an all-zero msghdr is a value; the macros read only the control room, as far as the
        // kernel filled it, and each payload has the size of its kind.
        unsafe {
            let mut head: libc::msghdr = mem::zeroed();
            head.msg_control = self.controls[n].0.as_ptr().cast_mut().cast();
            head.msg_controllen = control_len as _;
            let mut at = libc::CMSG_FIRSTHDR(&raw const head);
            while !at.is_null() {
                note(&mut message, (*at).cmsg_level, (*at).cmsg_type, libc::CMSG_DATA(at));
                at = libc::CMSG_NXTHDR(&raw const head, at);
            }
        }
        message
    }
}

/// Notes one control message.
///
/// # Safety
/// `data` is the payload of a control message of this level and kind, as the kernel wrote it.
unsafe fn note(message: &mut ReceivedMessage<'_>, level: libc::c_int, kind: libc::c_int, data: *const u8) {
    // SAFETY: the kernel wrote a payload of the kind's type, which may be unaligned.
    unsafe {
        match (level, kind) {
            (libc::SOL_UDP, libc::UDP_GRO) => {
                let segment = data.cast::<libc::c_int>().read_unaligned();
                message.segment = usize::try_from(segment).map_or(message.segment, |len| len.max(1));
            }
            (libc::IPPROTO_IP, libc::IP_TOS) => message.ecn = *data & 3,
            (libc::IPPROTO_IPV6, libc::IPV6_TCLASS) => {
                message.ecn = (data.cast::<libc::c_int>().read_unaligned() & 3) as u8;
            }
            (libc::IPPROTO_IP, libc::IP_PKTINFO) => {
                let info = data.cast::<libc::in_pktinfo>().read_unaligned();
                message.local = Some(Ipv4Addr::from(info.ipi_addr.s_addr.to_ne_bytes()).into());
            }
            (libc::IPPROTO_IPV6, libc::IPV6_PKTINFO) => {
                let info = data.cast::<libc::in6_pktinfo>().read_unaligned();
                message.local = Some(Ipv6Addr::from(info.ipi6_addr.s6_addr).into());
            }
            (libc::SOL_SOCKET, libc::SO_RXQ_OVFL) => {
                message.drops = Some(data.cast::<u32>().read_unaligned());
            }
            _ => {}
        }
    }
}

/// Receives what is there, at most `most` messages; returns how many came. Fewer than `most`: the socket
/// is empty.
pub(crate) fn receive(fd: &impl AsRawFd, room: &mut ReceiveRoom, most: usize) -> io::Result<usize> {
    let most = most.clamp(1, MESSAGES);
    // SAFETY: mmsghdr and iovec are plain data: all zeros is a value.
    let (mut heads, mut pieces): ([libc::mmsghdr; MESSAGES], [libc::iovec; MESSAGES]) =
        unsafe { (mem::zeroed(), mem::zeroed()) };
    let parts = room.bytes.chunks_exact_mut(MESSAGE_BYTES);
    let places = parts.zip(room.names.iter_mut()).zip(room.controls.iter_mut());
    for ((head, piece), ((bytes, name), control)) in heads.iter_mut().zip(&mut pieces).zip(places).take(most)
    {
        *piece = libc::iovec { iov_base: bytes.as_mut_ptr().cast(), iov_len: bytes.len() };
        head.msg_hdr.msg_name = std::ptr::from_mut(name).cast();
        head.msg_hdr.msg_namelen = size_of::<libc::sockaddr_storage>() as libc::socklen_t;
        head.msg_hdr.msg_iov = std::ptr::from_mut(piece);
        head.msg_hdr.msg_iovlen = 1;
        head.msg_hdr.msg_control = control.0.as_mut_ptr().cast();
        head.msg_hdr.msg_controllen = control.0.len() as _;
    }
    // SAFETY: `most` heads, each with pointers to room of the length that it says; all of it lives through
    // the call.
    let came = check(unsafe {
        libc::recvmmsg(
            fd.as_raw_fd(),
            heads.as_mut_ptr(),
            most as _,
            libc::MSG_DONTWAIT as _,
            std::ptr::null_mut(),
        )
    })?;
    for (head, lens) in heads.iter().zip(&mut room.lens).take(came as usize) {
        // The type of the length differs between C libraries.
        #[allow(clippy::unnecessary_cast)]
        let control_len = head.msg_hdr.msg_controllen as usize;
        *lens = (head.msg_len as usize, control_len);
    }
    Ok(came as usize)
}

/// How datagrams leave.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SendAs<'a> {
    /// `None`: the peer that the socket is connected to.
    pub(crate) to: Option<SocketAddr>,
    pub(crate) from: Option<IpAddr>,
    pub(crate) ecn: u8,
    /// Bytes of each datagram; `None`: there is one.
    pub(crate) segment: Option<u16>,
    pub(crate) bytes: &'a [u8],
}

/// Sends datagrams of one length, but for the last, to one peer.
pub(crate) fn send(fd: &impl AsRawFd, out: &SendAs<'_>) -> io::Result<()> {
    let mut control = ControlRoom::EMPTY;
    let name = out.to.map(SockAddr::from);
    let mut piece = libc::iovec { iov_base: out.bytes.as_ptr().cast_mut().cast(), iov_len: out.bytes.len() };
    // SAFETY: an all-zero msghdr is a value. Its pointers are to variables that live through the call, and
    // sendmsg only reads through them. The control room holds all kinds of control messages together, of
    // 24, 24 and 40 bytes, and each is written inside of it.
    let sent = unsafe {
        let mut head: libc::msghdr = mem::zeroed();
        if let Some(name) = &name {
            head.msg_name = name.as_ptr().cast_mut().cast();
            head.msg_namelen = name.len();
        }
        head.msg_iov = &raw mut piece;
        head.msg_iovlen = 1;
        let (at, mut used) = (control.0.as_mut_ptr(), 0);
        if let Some(segment) = out.segment {
            put(at, &mut used, libc::SOL_UDP, libc::UDP_SEGMENT, segment);
        }
        if out.ecn & 3 != 0 {
            let is_v4 = out.to.map_or_else(|| is_v4(fd), |to| to.is_ipv4());
            let (level, kind) = match is_v4 {
                true => (libc::IPPROTO_IP, libc::IP_TOS),
                false => (libc::IPPROTO_IPV6, libc::IPV6_TCLASS),
            };
            put(at, &mut used, level, kind, libc::c_int::from(out.ecn & 3));
        }
        match out.from {
            Some(IpAddr::V4(from)) => {
                let mut info: libc::in_pktinfo = mem::zeroed();
                info.ipi_spec_dst.s_addr = u32::from_ne_bytes(from.octets());
                put(at, &mut used, libc::IPPROTO_IP, libc::IP_PKTINFO, info);
            }
            Some(IpAddr::V6(from)) => {
                let mut info: libc::in6_pktinfo = mem::zeroed();
                info.ipi6_addr.s6_addr = from.octets();
                put(at, &mut used, libc::IPPROTO_IPV6, libc::IPV6_PKTINFO, info);
            }
            None => {}
        }
        if used > 0 {
            head.msg_control = at.cast();
            head.msg_controllen = used as _;
        }
        libc::sendmsg(fd.as_raw_fd(), &raw const head, libc::MSG_NOSIGNAL)
    };
    check_size(sent).map(|_| ())
}

fn is_v4(fd: &impl AsRawFd) -> bool {
    let (mut domain, mut len) = (0 as libc::c_int, size_of::<libc::c_int>() as libc::socklen_t);
    // SAFETY: the option is an int, and `len` its size; both live through the call.
    let known = check(unsafe {
        libc::getsockopt(
            fd.as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_DOMAIN,
            (&raw mut domain).cast(),
            &raw mut len,
        )
    });
    known.is_ok() && domain == libc::AF_INET
}

/// Writes a control message behind `used` bytes.
///
/// # Safety
/// `room` is aligned for `cmsghdr` and has space for it there.
unsafe fn put<T>(room: *mut u8, used: &mut usize, level: libc::c_int, kind: libc::c_int, data: T) {
    // SAFETY: the caller's word; CMSG_SPACE keeps the next one aligned.
    unsafe {
        let head = room.add(*used).cast::<libc::cmsghdr>();
        (*head).cmsg_level = level;
        (*head).cmsg_type = kind;
        (*head).cmsg_len = libc::CMSG_LEN(size_of::<T>() as u32) as _;
        libc::CMSG_DATA(head).cast::<T>().write_unaligned(data);
        *used += libc::CMSG_SPACE(size_of::<T>() as u32) as usize;
    }
}
