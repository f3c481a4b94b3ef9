//! Links move packets: whole IP packets in, whole IP packets out. What is under them (Ethernet, addresses of cards) is the link's
//! own business. Links think nothing of TCP; the stack that does never sees what they are made of.
//!
//! [`fault`] and [`pcap`] go over any link and are links themselves: `Pcap<Fault<Xdp>>` writes down what a host on a bad network
//! sees. A stack over a bare link pays nothing for them.

pub mod fault;
mod faults;
mod late;
pub mod pcap;
pub mod sim;
pub mod xdp;

pub use faults::Faults;

use std::io;
use std::net::IpAddr;
use std::sync::Arc;

use crate::{Time, Waker};

/// Who makes and checks the checksums of TCP and IP.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Checksums {
    /// The stack makes and checks them all.
    Full,
    /// The link's peer is on this very machine and sends partial ones: they are made, but not checked.
    Trust,
}

/// What goes over a link on somebody's wish. The default: nothing.
#[derive(Clone, Debug, Default)]
pub struct Middlewares {
    /// What goes wrong.
    pub fault: Option<fault::FaultOptions>,
    /// Where packets are written down.
    pub pcap: Option<Arc<pcap::PcapFile>>,
}

impl Middlewares {
    /// A stack may as well use the bare link.
    pub fn is_nothing(&self) -> bool {
        self.fault.is_none() && self.pcap.is_none()
    }

    /// This link, the `nth` of several, with all that is wished: faults are the network's, and the capture is what a host on that
    /// network sees.
    pub fn over<L: Link>(&self, link: L, nth: usize) -> pcap::Pcap<fault::Fault<L>> {
        let faults = self.fault.unwrap_or_default().for_link(nth);
        pcap::Pcap::new(fault::Fault::new(link, faults), self.pcap.clone())
    }
}

/// Moves IP packets. Packets are lent in both directions, so that ring memory cannot escape.
pub trait Link {
    /// The time now, read since the last [`Link::flush`] or [`Link::wait`].
    fn now(&mut self) -> Time;

    /// The time now, read anew: whoever asks has been away. A link that keeps no time read earlier has nothing to do.
    fn now_anew(&mut self) -> Time {
        self.now()
    }

    /// Lends up to `max` received packets to `take`, each beginning with its IP header. Returns how many there were.
    fn receive(&mut self, max: usize, take: impl FnMut(&mut [u8])) -> usize;

    /// Has a packet of `len` bytes written by `fill` and sends it towards `to`. `false` when there is no room now (nothing was
    /// called) or no way to `to` is known yet; the stack then tries again after the next [`Link::wait`] or lets its timers do it.
    fn transmit(&mut self, to: IpAddr, len: usize, fill: impl FnOnce(&mut [u8])) -> bool;

    /// Whether there is room for a packet, so that what was refused has no way to its peer. As far as a link cannot tell, it is
    /// full.
    fn has_room(&mut self) -> bool {
        false
    }

    /// Lets everything handed to [`Link::transmit`] go. ENETDOWN: the link is down and has lost it, which may pass; other errors are for
    /// good.
    fn flush(&mut self) -> io::Result<()>;

    /// Waits for packets until `until` (`None`: as long as it takes; a time in the past: only looks). It may end early for
    /// reasons of its own. Says whether [`Link::waker`]'s handle was used since the last call.
    fn wait(&mut self, until: Option<Time>) -> io::Result<bool>;

    /// A handle that ends [`Link::wait`] from another thread.
    fn waker(&self) -> Waker;

    /// The largest packet towards `to`, IP header included, bytes. Asked when a connection begins, and again when one is not
    /// answered: where the system knows of a narrower path (ICMP stays with the kernel), it is told here. The unspecified
    /// address asks for the link's own size.
    fn mtu(&mut self, to: IpAddr) -> usize;

    /// Packets that were lost on this machine before [`Link::receive`] could lend them. It may cost a system call.
    fn overrun(&self) -> u64 {
        0
    }

    /// Something about what is under the link that the operator should know, once each: it went down, its MTU changed.
    fn news(&mut self) -> Option<String> {
        None
    }

    /// Who makes and checks checksums.
    fn checksums(&self) -> Checksums;
}
