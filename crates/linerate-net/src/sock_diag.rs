//! The TCP sockets of this network namespace as its kernel lists them: sock_diag(7), without
//! privileges.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use crate::netlink::{NetlinkRequest, NetlinkSocket, find, flag, u32_at};

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

/// A TCP socket with what its connection did last (`struct tcp_info`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TimedSocket {
    /// The socket.
    pub socket: TcpSocket,
    /// Milliseconds since it sent data.
    pub sent_ago_ms: u32,
    /// Milliseconds since it received data.
    pub received_ago_ms: u32,
    /// Milliseconds since an acknowledgement came, with data or without.
    pub acked_ago_ms: u32,
    /// Segments sent and not acknowledged.
    pub unacked: u32,
    /// Smoothed round-trip time, microseconds; of a connection without data yet: that of its handshake.
    pub rtt_us: u32,
    /// Segments with data received.
    pub data_segs_in: u32,
    /// Segments with data sent.
    pub data_segs_out: u32,
}

/// SOCK_DIAG_BY_FAMILY (linux/sock_diag.h).
const BY_FAMILY: u16 = 20;
/// Sizes of `struct inet_diag_req_v2` and `struct inet_diag_msg`, bytes.
const REQUEST: usize = 56;
const ENTRY: usize = 72;
/// INET_DIAG_INFO (linux/inet_diag.h): the attribute with `struct tcp_info`.
const INFO: u16 = 2;

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
    let take = |body: &[u8]| entry(body).filter(&keep);
    dump_all(most, 0, &take)
}

/// As [`tcp_sockets_that`], with the times of each connection.
///
/// # Errors
/// As [`tcp_sockets`].
pub fn timed_sockets_that(
    most: usize,
    keep: impl Fn(&TcpSocket) -> bool,
) -> io::Result<(Vec<TimedSocket>, bool)> {
    let take = |body: &[u8]| timed(body).filter(|timed| keep(&timed.socket));
    dump_all(most, 1 << (INFO - 1), &take)
}

/// Of both families. `extensions`: the attributes that are wanted, as bits.
fn dump_all<T>(most: usize, extensions: u8, take: &dyn Fn(&[u8]) -> Option<T>) -> io::Result<(Vec<T>, bool)> {
    let mut sockets = Vec::new();
    let mut more = false;
    for family in [libc::AF_INET, libc::AF_INET6] {
        more |= !dump(request(family as u8, extensions), most, take, &mut sockets)?;
    }
    Ok((sockets, more))
}

/// A dump request (`struct inet_diag_req_v2`) for all TCP sockets of a family, in any state.
fn request(family: u8, extensions: u8) -> NetlinkRequest {
    let mut fixed = [0; REQUEST];
    fixed[..3].copy_from_slice(&[family, libc::IPPROTO_TCP as u8, extensions]);
    fixed[4..8].copy_from_slice(&u32::MAX.to_ne_bytes());
    NetlinkRequest::new(BY_FAMILY, flag::DUMP, &fixed)
}

/// Returns false if `most` ended it.
fn dump<T>(
    request: NetlinkRequest,
    most: usize,
    take: &dyn Fn(&[u8]) -> Option<T>,
    sockets: &mut Vec<T>,
) -> io::Result<bool> {
    let mut netlink = NetlinkSocket::open(libc::NETLINK_SOCK_DIAG)?;
    let is_cut = netlink.ask_until(request, |kind, body| {
        let found = take(body).filter(|_| kind == BY_FAMILY);
        let is_full = found.is_some() && sockets.len() >= most;
        sockets.extend(found.filter(|_| !is_full));
        is_full
    })?;
    Ok(!is_cut)
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

/// An entry with its `struct tcp_info`; a listening or ended socket has none.
fn timed(body: &[u8]) -> Option<TimedSocket> {
    let socket = entry(body)?;
    let info = find(body.get(ENTRY..)?, INFO)?;
    Some(TimedSocket {
        socket,
        sent_ago_ms: u32_at(info, 44)?,
        received_ago_ms: u32_at(info, 52)?,
        acked_ago_ms: u32_at(info, 56)?,
        unacked: u32_at(info, 24)?,
        rtt_us: u32_at(info, 68)?,
        data_segs_in: u32_at(info, 152)?,
        data_segs_out: u32_at(info, 156)?,
    })
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::net::{TcpListener, TcpStream};

    use super::*;
    use crate::netlink::messages;

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
    fn a_connection_tells_which_way_data_went_last() {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let address = listener.local_addr().expect("an address");
        let mut client = TcpStream::connect(address).expect("connected");
        let (mut server, _) = listener.accept().expect("accepted");
        let look = || {
            let (found, _) = timed_sockets_that(1 << 16, |s| s.peer == address).expect("sock_diag is there");
            found[0]
        };
        let pause = || std::thread::sleep(std::time::Duration::from_millis(30));
        pause();
        client.write_all(b"question").expect("sent");
        server.read_exact(&mut [0; 8]).expect("received");
        let asked = look();
        assert!(asked.sent_ago_ms < asked.received_ago_ms, "{asked:?}");
        assert_eq!((asked.data_segs_out, asked.data_segs_in), (1, 0));
        pause();
        server.write_all(b"answer").expect("sent");
        client.read_exact(&mut [0; 6]).expect("received");
        let answered = look();
        assert!(answered.sent_ago_ms > answered.received_ago_ms, "{answered:?}");
        assert_eq!((answered.data_segs_out, answered.data_segs_in), (1, 1));
        assert!(answered.rtt_us > 0);
    }

    #[test]
    fn damaged_answers_do_no_harm() {
        for len in [0u32, 1, 15, 16, 17, 88, u32::MAX] {
            let mut bytes = len.to_ne_bytes().to_vec();
            bytes.extend(BY_FAMILY.to_ne_bytes());
            bytes.resize(60, 0xff);
            assert!(messages(&bytes).all(|(_, _, body)| entry(body).is_none() && timed(body).is_none()));
        }
    }
}
