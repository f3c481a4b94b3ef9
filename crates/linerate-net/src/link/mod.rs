//! Links move whole IP packets in and out. The layer below (Ethernet, MAC addresses) is private to
//! the link. Links know nothing of TCP, and the stack never sees their packets' framing.
//!
//! [`fault`] and [`pcap`] wrap any link and are links themselves: `Pcap<Fault<Xdp>>` records what a
//! host on a bad network sees. A stack over a bare link pays nothing for them.

pub mod fault;
mod faults;
mod late;
mod middlewares;
pub mod pcap;
pub mod sim;
pub mod xdp;

pub use faults::Faults;
pub use middlewares::Middlewares;

use std::io;
use std::net::IpAddr;

use crate::{Time, Waker};

/// Which side computes and verifies the checksums of TCP and IP.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Checksums {
    /// The stack computes and verifies them all.
    Full,
    /// The link's peer is on this machine and sends partial checksums: the stack computes its own
    /// and verifies none.
    Trust,
}

/// Moves IP packets. Packets are lent in both directions, so that ring memory cannot escape.
pub trait Link {
    /// The current time, possibly cached since the last [`Link::flush`] or [`Link::wait`].
    fn now(&mut self) -> Time;

    /// The current time, read again because the caller may have been away. A link without a cached
    /// time need not implement it.
    fn now_anew(&mut self) -> Time {
        self.now()
    }

    /// Lends up to `max` received packets to `take`, each beginning with its IP header. Returns how
    /// many there were.
    fn receive(&mut self, max: usize, take: impl FnMut(&mut [u8])) -> usize;

    /// Lets `fill` write a packet of `len` bytes and sends it towards `to`. Returns `false`,
    /// without calling `fill`, if there is no room or no known next hop. The stack then retries
    /// after the next [`Link::wait`] or by its timers.
    fn transmit(&mut self, to: IpAddr, len: usize, fill: impl FnOnce(&mut [u8])) -> bool;

    /// Whether a packet could be sent. If so, a refused packet had no known next hop. A link that
    /// cannot tell counts as full.
    fn has_room(&mut self) -> bool {
        false
    }

    /// Sends everything handed to [`Link::transmit`]. ENETDOWN: the link is down and has lost the
    /// packets, which may pass. Other errors are permanent.
    fn flush(&mut self) -> io::Result<()>;

    /// Waits for packets until `until` (`None`: forever; a past time: only polls). It may end
    /// early. Returns whether [`Link::waker`]'s handle was used since the last call.
    fn wait(&mut self, until: Option<Time>) -> io::Result<bool>;

    /// A handle that ends [`Link::wait`] from another thread.
    fn waker(&self) -> Waker;

    /// The largest packet towards `to`, IP header included, bytes. The stack calls it when a
    /// connection begins and again when segments are not acknowledged: ICMP stays with the kernel,
    /// so this is how the stack learns of a narrower path. The unspecified address asks for the
    /// link's own MTU.
    fn mtu(&mut self, to: IpAddr) -> usize;

    /// The caller sees signs of a flood: a link that can keep more unread packets should do so for
    /// some seconds.
    fn expect_flood(&mut self) {}

    /// Packets lost on this machine before [`Link::receive`] could lend them. It may cost a system
    /// call.
    fn overrun(&self) -> u64 {
        0
    }

    /// Packets lost on this machine because no frame of the link holds them. It may cost a system
    /// call.
    fn too_large(&self) -> u64 {
        0
    }

    /// Reports each change below the link that the operator should know once: it went down, its MTU
    /// changed.
    fn news(&mut self) -> Option<String> {
        None
    }

    /// Which side computes and verifies checksums.
    fn checksums(&self) -> Checksums;
}
