//! Changes of the interface, as the kernel reports them (rtnetlink's groups).

use std::io::{self, Read};
use std::net::IpAddr;
use std::os::fd::{AsFd, BorrowedFd};

use socket2::Socket;

use super::netlink::{Interface, Netlink, parse_address, parse_link};
use crate::netlink::{kind, messages, u32_at};
use crate::sys::xdp::join_group;

/// RTNLGRP_LINK, RTNLGRP_IPV4_IFADDR, RTNLGRP_IPV6_IFADDR (linux/rtnetlink.h)
const GROUPS: [u32; 3] = [1, 5, 9];
/// Messages read at a time, at most. Reason: a storm of changes must not hold up a turn; the next
/// turn reads the rest.
const READ_AT_ONCE: usize = 64;

/// A change of the interface.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum News {
    /// The interface's new state.
    Link(Interface),
    /// The interface was removed, or moved to another namespace.
    Gone,
    /// The interface lost this address.
    AddressGone(IpAddr),
    /// The socket overflowed, so messages are missing.
    Missed,
}

/// Listens for changes of one interface.
pub(super) struct Monitor {
    socket: Socket,
    interface: u32,
    buffer: Vec<u8>,
}

impl Monitor {
    pub(super) fn open(interface: u32) -> io::Result<Monitor> {
        let mut netlink = Netlink::open()?;
        // A request gives the socket its address. Without one, the kernel takes it for the author
        // of every change.
        netlink.interface_of(interface)?;
        let socket = netlink.into_socket();
        for group in GROUPS {
            join_group(socket.as_fd(), group)?;
        }
        socket.set_nonblocking(true)?;
        Ok(Monitor { socket, interface, buffer: vec![0; 64 << 10] })
    }

    /// The changes since the last call.
    pub(super) fn read(&mut self) -> Vec<News> {
        let mut news = Vec::new();
        for _ in 0..READ_AT_ONCE {
            match self.socket.read(&mut self.buffer) {
                Ok(len) => {
                    let told = messages(&self.buffer[..len]);
                    news.extend(told.filter_map(|(kind, _, body)| about(self.interface, kind, body)));
                }
                Err(e) if e.raw_os_error() == Some(libc::ENOBUFS) => news.push(News::Missed),
                Err(_) => break,
            }
        }
        news
    }
}

impl AsFd for Monitor {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

/// The news that a message has about this interface.
fn about(interface: u32, kind: u16, body: &[u8]) -> Option<News> {
    let ours = u32_at(body, 4) == Some(interface);
    // A bridge also reports its ports, in messages of its own family.
    let is_link = body.first() == Some(&0);
    match kind {
        kind::NEW_LINK if ours && is_link => parse_link(body).map(News::Link),
        kind::DELETE_LINK if ours && is_link => Some(News::Gone),
        kind::DELETE_ADDRESS if ours => parse_address(body).map(|(_, address)| News::AddressGone(address)),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use super::*;

    #[test]
    fn only_what_is_about_the_interface_is_news() {
        let mut link = vec![0u8; 16];
        link[2..4].copy_from_slice(&1u16.to_ne_bytes());
        link[4..8].copy_from_slice(&7u32.to_ne_bytes());
        // IFLA_MTU
        link.extend_from_slice(&[8, 0, 4, 0]);
        link.extend_from_slice(&1400u32.to_ne_bytes());
        assert!(
            matches!(about(7, kind::NEW_LINK, &link), Some(News::Link(i)) if i.mtu == 1400 && !i.up && i.index == 7)
        );
        assert_eq!(about(8, kind::NEW_LINK, &link), None);
        assert_eq!(about(7, kind::DELETE_LINK, &link), Some(News::Gone));
        link[0] = libc::AF_BRIDGE as u8;
        assert_eq!(about(7, kind::DELETE_LINK, &link), None, "it left a bridge");
        let mut address = vec![2u8, 24, 0, 0];
        address.extend_from_slice(&7u32.to_ne_bytes());
        address.extend_from_slice(&[8, 0, 2, 0, 10, 0, 0, 1]);
        let gone = News::AddressGone(Ipv4Addr::new(10, 0, 0, 1).into());
        assert_eq!(about(7, kind::DELETE_ADDRESS, &address), Some(gone));
        assert_eq!(about(8, kind::DELETE_ADDRESS, &address), None);
        assert_eq!(about(7, kind::NEW_ADDRESS, &address), None);
        assert_eq!(about(7, kind::NEW_LINK, &[]), None);
    }

    #[test]
    fn a_monitor_hears_nothing_where_nothing_happens() {
        let mut netlink = Netlink::open().expect("rtnetlink");
        let lo = netlink.interface("lo").expect("an answer").expect("there is one");
        assert_eq!(Monitor::open(lo.index).expect("a monitor").read(), []);
    }
}
