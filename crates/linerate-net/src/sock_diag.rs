//! The TCP sockets of this network namespace as its kernel lists them: sock_diag(7), without
//! privileges.

use std::io::{self, Read, Write};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::time::Duration;

use socket2::{Domain, Protocol, Socket, Type};

/// States of a TCP socket, numbered as in the kernel (net/tcp_states.h).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SocketState(pub u8);

impl SocketState {
    /// Waits for connections.
    pub const LISTEN: SocketState = SocketState(10);
    /// Has ended, and keeps its ports for a minute (RFC 9293 section 3.6.1).
    pub const TIME_WAIT: SocketState = SocketState(6);

    /// The name that `ss` uses.
    pub fn name(self) -> &'static str {
        match self.0 {
            1 => "established",
            2 => "syn-sent",
            3 | 12 => "syn-recv",
            4 => "fin-wait-1",
            5 => "fin-wait-2",
            6 => "time-wait",
            7 => "closed",
            8 => "close-wait",
            9 => "last-ack",
            10 => "listening",
            11 => "closing",
            _ => "in another state",
        }
    }
}

/// A TCP socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TcpSocket {
    /// The socket's state.
    pub state: SocketState,
    /// The local address.
    pub local: SocketAddr,
    /// The peer's address.
    pub peer: SocketAddr,
    /// Bytes received and not read (Recv-Q). For a listening socket: connections in the accept
    /// queue.
    pub receive_queue: u32,
    /// Bytes not acknowledged (Send-Q). For a listening socket: the backlog.
    pub send_queue: u32,
    /// The inode, which `/proc/PID/fd` shows as `socket:[inode]`.
    pub inode: u32,
}

/// linux/netlink.h, linux/sock_diag.h
mod kind {
    pub(super) const ERROR: u16 = 2;
    pub(super) const DONE: u16 = 3;
    pub(super) const BY_FAMILY: u16 = 20;
    /// NLM_F_REQUEST | NLM_F_DUMP
    pub(super) const DUMP: u16 = 0x301;
}

/// Timeout of the kernel's reply. Reason: the kernel replies within the call.
const PATIENCE: Duration = Duration::from_secs(1);
/// Size of a netlink message's header, and of `struct inet_diag_msg`, bytes.
const HEADER: usize = 16;
const ENTRY: usize = 72;

/// Lists the IPv4 and IPv6 sockets, at most `most`; the flag says whether there are more.
///
/// # Errors
/// This kernel has no sock_diag (CONFIG_INET_DIAG), or seccomp forbids it here.
pub fn tcp_sockets(most: usize) -> io::Result<(Vec<TcpSocket>, bool)> {
    tcp_sockets_that(most, |_| true)
}

/// As [`tcp_sockets`], but only those that `keep` accepts; only these count towards `most`.
///
/// # Errors
/// As [`tcp_sockets`].
pub fn tcp_sockets_that(
    most: usize,
    keep: impl Fn(&TcpSocket) -> bool,
) -> io::Result<(Vec<TcpSocket>, bool)> {
    let mut sockets = Vec::new();
    let mut more = false;
    for family in [libc::AF_INET, libc::AF_INET6] {
        more |= !dump(family as u8, most, &keep, &mut sockets)?;
    }
    Ok((sockets, more))
}

/// A dump request (`struct inet_diag_req_v2`) for all TCP sockets of a family, in any state.
fn request(family: u8) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(HEADER + 56);
    bytes.extend(((HEADER + 56) as u32).to_ne_bytes());
    bytes.extend(kind::BY_FAMILY.to_ne_bytes());
    bytes.extend(kind::DUMP.to_ne_bytes());
    bytes.extend(1u32.to_ne_bytes());
    bytes.extend(0u32.to_ne_bytes());
    bytes.extend([family, libc::IPPROTO_TCP as u8, 0, 0]);
    bytes.extend(u32::MAX.to_ne_bytes());
    bytes.resize(HEADER + 56, 0);
    bytes
}

/// Returns false if `most` ended it.
fn dump(
    family: u8,
    most: usize,
    keep: &dyn Fn(&TcpSocket) -> bool,
    sockets: &mut Vec<TcpSocket>,
) -> io::Result<bool> {
    let netlink = Domain::from(libc::AF_NETLINK);
    let mut socket =
        Socket::new(netlink, Type::RAW.cloexec(), Some(Protocol::from(libc::NETLINK_SOCK_DIAG)))?;
    socket.set_read_timeout(Some(PATIENCE))?;
    socket.write_all(&request(family))?;
    let mut buffer = vec![0; 64 << 10];
    while sockets.len() < most {
        let len = socket.read(&mut buffer)?;
        if len < HEADER {
            return Err(io::Error::other("the kernel's answer is cut off"));
        }
        match take(&buffer[..len], most, keep, sockets) {
            Took::More => {}
            Took::Done => return Ok(true),
            Took::Failed(errno) => return Err(io::Error::from_raw_os_error(errno)),
        }
    }
    Ok(false)
}

/// How reading a datagram ended.
#[derive(Debug, PartialEq, Eq)]
enum Took {
    More,
    Done,
    Failed(i32),
}

/// Parses the messages of one datagram.
fn take(
    mut bytes: &[u8],
    most: usize,
    keep: &dyn Fn(&TcpSocket) -> bool,
    sockets: &mut Vec<TcpSocket>,
) -> Took {
    while let Some(len) = u32_at(bytes, 0).map(|l| l as usize) {
        let Some(body) = bytes.get(HEADER..len) else { break };
        match u16_at(bytes, 4) {
            Some(kind::DONE) => return Took::Done,
            Some(kind::ERROR) => return Took::Failed(-(u32_at(body, 0).unwrap_or(0) as i32)),
            Some(kind::BY_FAMILY) if sockets.len() < most => sockets.extend(entry(body).filter(keep)),
            _ => {}
        }
        bytes = bytes.get(len.next_multiple_of(4)..).unwrap_or_default();
    }
    Took::More
}

/// `struct inet_diag_msg`.
fn entry(body: &[u8]) -> Option<TcpSocket> {
    let body = body.get(..ENTRY)?;
    let port = |at: usize| u16::from_be_bytes([body[at], body[at + 1]]);
    let address = |at: usize| -> Option<IpAddr> {
        Some(if i32::from(body[0]) == libc::AF_INET {
            IpAddr::V4(Ipv4Addr::from(<[u8; 4]>::try_from(&body[at..at + 4]).ok()?))
        } else {
            IpAddr::V6(Ipv6Addr::from(<[u8; 16]>::try_from(&body[at..at + 16]).ok()?))
        })
    };
    Some(TcpSocket {
        state: SocketState(body[1]),
        local: SocketAddr::new(address(8)?, port(4)),
        peer: SocketAddr::new(address(24)?, port(6)),
        receive_queue: u32_at(body, 56)?,
        send_queue: u32_at(body, 60)?,
        inode: u32_at(body, 68)?,
    })
}

pub(crate) fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    bytes.get(at..at + 4)?.try_into().ok().map(u32::from_ne_bytes)
}

pub(crate) fn u16_at(bytes: &[u8], at: usize) -> Option<u16> {
    bytes.get(at..at + 2)?.try_into().ok().map(u16::from_ne_bytes)
}

#[cfg(test)]
mod tests {
    use std::net::{TcpListener, TcpStream};

    use super::*;

    #[test]
    fn a_listener_tells_how_many_wait_and_how_many_may() {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let address = listener.local_addr().expect("an address");
        let mut client = TcpStream::connect(address).expect("connected");
        client.write_all(b"unread").expect("sent");
        let (sockets, _) = tcp_sockets(1 << 16).expect("sock_diag is there");
        let found =
            sockets.iter().find(|s| s.state == SocketState::LISTEN && s.local == address).expect("ours");
        assert_eq!((found.receive_queue, found.send_queue >= 1), (1, true), "{found:?}");
        let accepted = sockets.iter().find(|s| s.local == address && s.peer == client.local_addr().unwrap());
        assert_eq!(accepted.map(|s| (s.state.name(), s.receive_queue)), Some(("established", 6)));
        let (few, more) = tcp_sockets(1).expect("sock_diag is there");
        assert!(few.len() == 1 && more);
    }

    #[test]
    fn damaged_answers_do_no_harm() {
        let mut sockets = Vec::new();
        for len in [0u32, 1, 15, 16, 17, 88, u32::MAX] {
            let mut bytes = len.to_ne_bytes().to_vec();
            bytes.extend(kind::BY_FAMILY.to_ne_bytes());
            bytes.resize(60, 0xff);
            assert_eq!(take(&bytes, 10, &|_| true, &mut sockets), Took::More);
        }
        assert!(sockets.is_empty());
        let mut error = 20u32.to_ne_bytes().to_vec();
        error.extend(kind::ERROR.to_ne_bytes());
        error.resize(16, 0);
        error.extend((-13i32).to_ne_bytes());
        assert_eq!(take(&error, 10, &|_| true, &mut sockets), Took::Failed(13));
    }
}
