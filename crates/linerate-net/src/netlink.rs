//! Requests to the kernel over netlink and its replies, as bytes (RFC 3549): what rtnetlink and sock_diag
//! have in common.

use std::io::{self, Read, Write};
use std::time::Duration;

use socket2::{Domain, Protocol, Socket, Type};

/// Message types of every protocol (linux/netlink.h), and of rtnetlink (linux/rtnetlink.h).
pub(crate) mod kind {
    pub(crate) const ERROR: u16 = 2;
    pub(crate) const DONE: u16 = 3;
    pub(crate) const NEW_LINK: u16 = 16;
    pub(crate) const DELETE_LINK: u16 = 17;
    pub(crate) const GET_LINK: u16 = 18;
    pub(crate) const NEW_ADDRESS: u16 = 20;
    pub(crate) const DELETE_ADDRESS: u16 = 21;
    pub(crate) const GET_ADDRESS: u16 = 22;
    pub(crate) const GET_ROUTE: u16 = 26;
    pub(crate) const NEW_NEIGHBOUR: u16 = 28;
    pub(crate) const GET_NEIGHBOUR: u16 = 30;
    pub(crate) const NEW_QDISC: u16 = 36;
    pub(crate) const GET_QDISC: u16 = 38;
}

/// Flags of a message (linux/netlink.h).
pub(crate) mod flag {
    pub(super) const REQUEST: u16 = 0x1;
    pub(crate) const ACK: u16 = 0x4;
    pub(crate) const REPLACE: u16 = 0x100;
    pub(crate) const DUMP: u16 = 0x300;
    pub(crate) const CREATE: u16 = 0x400;
}

/// Attribute of a link's messages: its name, ended by zero (linux/if_link.h).
pub(crate) const LINK_NAME: u16 = 3;
/// Bytes of `struct ifinfomsg`, which begins a link's messages.
pub(crate) const LINK_HEADER: usize = 16;
/// Bytes of a message's header.
pub(crate) const HEADER: usize = 16;
/// Timeout of a reply. Reason: the kernel replies within the call.
const PATIENCE: Duration = Duration::from_secs(1);
/// Datagrams of one reply, at most. Reason: bounded; nothing that is asked for has this many.
const DUMPED: usize = 1 << 16;

/// A request being built: header, fixed part, attributes.
pub(crate) struct NetlinkRequest(Vec<u8>);

impl NetlinkRequest {
    pub(crate) fn new(kind: u16, flags: u16, fixed: &[u8]) -> NetlinkRequest {
        let mut bytes = vec![0; HEADER];
        bytes[4..6].copy_from_slice(&kind.to_ne_bytes());
        bytes[6..8].copy_from_slice(&(flags | flag::REQUEST).to_ne_bytes());
        bytes.extend_from_slice(fixed);
        NetlinkRequest(bytes)
    }

    pub(crate) fn with(mut self, attribute: u16, value: &[u8]) -> NetlinkRequest {
        self.0.extend_from_slice(&(value.len() as u16 + 4).to_ne_bytes());
        self.0.extend_from_slice(&attribute.to_ne_bytes());
        self.0.extend_from_slice(value);
        self.0.resize(self.0.len().next_multiple_of(4), 0);
        self
    }

    pub(crate) fn finish(mut self, sequence: u32) -> Vec<u8> {
        let len = self.0.len() as u32;
        self.0[..4].copy_from_slice(&len.to_ne_bytes());
        self.0[8..12].copy_from_slice(&sequence.to_ne_bytes());
        self.0
    }
}

pub(crate) fn u16_at(bytes: &[u8], at: usize) -> Option<u16> {
    bytes.get(at..at + 2)?.try_into().ok().map(u16::from_ne_bytes)
}

pub(crate) fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    bytes.get(at..at + 4)?.try_into().ok().map(u32::from_ne_bytes)
}

/// The attributes in `bytes`, each with type and value. Stops at a malformed one.
fn attributes(mut bytes: &[u8]) -> impl Iterator<Item = (u16, &[u8])> {
    std::iter::from_fn(move || {
        let len = usize::from(u16_at(bytes, 0)?);
        let kind = u16_at(bytes, 2)? & 0x3fff;
        let value = bytes.get(4..len)?;
        bytes = bytes.get(len.next_multiple_of(4)..).unwrap_or_default();
        Some((kind, value))
    })
}

/// The first attribute of that type.
pub(crate) fn find(bytes: &[u8], kind: u16) -> Option<&[u8]> {
    attributes(bytes).find(|(k, _)| *k == kind).map(|(_, value)| value)
}

/// The messages in `bytes`, each with type, sequence number and body. Stops at a malformed one.
pub(crate) fn messages(mut bytes: &[u8]) -> impl Iterator<Item = (u16, u32, &[u8])> {
    std::iter::from_fn(move || {
        let len = u32_at(bytes, 0)? as usize;
        let (kind, sequence) = (u16_at(bytes, 4)?, u32_at(bytes, 8)?);
        let body = bytes.get(HEADER..len)?;
        bytes = bytes.get(len.next_multiple_of(4)..).unwrap_or_default();
        Some((kind, sequence, body))
    })
}

/// A netlink socket that sends requests and reads replies.
pub(crate) struct NetlinkSocket {
    socket: Socket,
    sequence: u32,
    buffer: Vec<u8>,
}

impl NetlinkSocket {
    /// `protocol`: NETLINK_ROUTE or another one.
    pub(crate) fn open(protocol: libc::c_int) -> io::Result<NetlinkSocket> {
        let protocol = Some(Protocol::from(protocol));
        let socket = Socket::new(Domain::from(libc::AF_NETLINK), Type::RAW.cloexec(), protocol)?;
        socket.set_read_timeout(Some(PATIENCE))?;
        Ok(NetlinkSocket { socket, sequence: 0, buffer: vec![0; 64 << 10] })
    }

    /// Sends a request and hands each message of the reply to `take`.
    pub(crate) fn ask(
        &mut self,
        request: NetlinkRequest,
        mut take: impl FnMut(u16, &[u8]),
    ) -> io::Result<()> {
        let until = |kind: u16, body: &[u8]| {
            take(kind, body);
            false
        };
        self.ask_until(request, until).map(|_| ())
    }

    /// As [`ask`](NetlinkSocket::ask), until `take` says that it has enough. Returns whether it did.
    pub(crate) fn ask_until(
        &mut self,
        request: NetlinkRequest,
        mut take: impl FnMut(u16, &[u8]) -> bool,
    ) -> io::Result<bool> {
        self.sequence = self.sequence.wrapping_add(1);
        let request = request.finish(self.sequence);
        let dump = u16_at(&request, 6).is_some_and(|flags| flags & flag::DUMP == flag::DUMP);
        self.socket.write_all(&request)?;
        for _ in 0..DUMPED {
            let len = self.socket.read(&mut self.buffer)?;
            match datagram(&self.buffer[..len], self.sequence, dump, &mut take)? {
                DatagramEnd::More => {}
                DatagramEnd::Over => return Ok(false),
                DatagramEnd::Enough => return Ok(true),
            }
        }
        Err(io::Error::other("the kernel's answer does not end"))
    }

    /// The bare socket. No reply is outstanding.
    pub(crate) fn into_socket(self) -> Socket {
        self.socket
    }
}

/// How reading a datagram ended.
#[derive(Debug, PartialEq, Eq)]
enum DatagramEnd {
    /// Others follow.
    More,
    /// The reply is complete.
    Over,
    /// The caller wants no more.
    Enough,
}

/// Takes the messages of one datagram of a reply.
fn datagram(
    bytes: &[u8],
    sequence: u32,
    dump: bool,
    take: &mut dyn FnMut(u16, &[u8]) -> bool,
) -> io::Result<DatagramEnd> {
    for (kind, of, body) in messages(bytes) {
        if of != sequence {
            continue; // The rest of a reply that timed out.
        }
        match kind {
            kind::DONE => return Ok(DatagramEnd::Over),
            kind::ERROR => {
                let errno = u32_at(body, 0).unwrap_or(0) as i32;
                let failed = errno != 0;
                return if failed {
                    Err(io::Error::from_raw_os_error(-errno))
                } else {
                    Ok(DatagramEnd::Over)
                };
            }
            _ if take(kind, body) => return Ok(DatagramEnd::Enough),
            _ => {}
        }
        if !dump {
            return Ok(DatagramEnd::Over);
        }
    }
    Ok(DatagramEnd::More)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn attributes_end_at_what_is_malformed() {
        let request =
            NetlinkRequest::new(1, 0, &[]).with(3, b"eth0\0").with(4, &9000u32.to_ne_bytes()).finish(7);
        let found: Vec<_> = messages(&request).collect();
        assert_eq!(found.len(), 1);
        let (kind, sequence, body) = found[0];
        assert_eq!((kind, sequence), (1, 7));
        assert_eq!(find(body, 3), Some(&b"eth0\0"[..]));
        assert_eq!(find(body, 4).and_then(|m| u32_at(m, 0)), Some(9000));
        for cut in 0..request.len() {
            assert_eq!(messages(&request[..cut]).count(), 0, "cut at {cut}");
        }
        for cut in 0..body.len() {
            assert!(attributes(&body[..cut]).count() < 2, "cut at {cut}");
        }
        assert_eq!(attributes(&[0, 0, 1, 0]).count(), 0, "a length of nothing");
        assert_eq!(messages(&[0; 16]).count(), 0);
    }

    #[test]
    fn damaged_replies_do_no_harm() {
        for len in [0u32, 1, 15, 16, 17, 35, 36, 40, 88, u32::MAX] {
            let mut bytes = len.to_ne_bytes().to_vec();
            bytes.resize(60, 0xff);
            let mut take = |_: u16, _: &[u8]| unreachable!("no message of this reply");
            assert_eq!(datagram(&bytes, 1, true, &mut take).expect("no error"), DatagramEnd::More);
        }
        let reply = |kind: u16, body: &[u8]| NetlinkRequest::new(kind, 0, body).finish(1);
        let mut take = |_: u16, _: &[u8]| false;
        let error = datagram(&reply(kind::ERROR, &(-13i32).to_ne_bytes()), 1, true, &mut take);
        assert_eq!(error.expect_err("refused").raw_os_error(), Some(13));
        for (kind, body) in [(kind::DONE, &[0; 4]), (kind::ERROR, &[0; 4])] {
            let end = datagram(&reply(kind, body), 1, true, &mut take).expect("no error");
            assert_eq!(end, DatagramEnd::Over);
        }
        let two = [reply(20, &[]), reply(20, &[])].concat();
        let mut seen = 0;
        let mut one = |_: u16, _: &[u8]| {
            seen += 1;
            true
        };
        assert_eq!(datagram(&two, 1, true, &mut one).expect("no error"), DatagramEnd::Enough);
        assert_eq!(seen, 1);
    }
}
