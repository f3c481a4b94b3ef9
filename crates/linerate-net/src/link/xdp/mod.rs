//! Packets past the kernel's stack, by AF_XDP: a small program in the card's driver hands TCP segments that are ours to this process
//! and leaves all else with the kernel. The interface stays the kernel's: ssh, ping and every other port work on.
//!
//! What is ours ([`Steer`]): a server's TCP ports on the interface's addresses; a client's own source addresses, all TCP ports.
//! ARP and NDP for those are answered by the kernel, since they are addresses of the interface: a client's are given to it for as
//! long as the link lives (with a lifetime, so that they go away even when the process is killed), unless it has them already.
//! So are the words of routers that a segment of ours was too large. Fragments, IPv6 packets with extension headers and frames with
//! VLAN tags are never ours.
//!
//! The kernel's routes and neighbours say to whose card a packet goes.

mod addresses;
mod ethernet;
mod follow;
mod limits;
mod neighbours;
mod netlink;
mod news;
mod offload;
mod open;
mod preflight;
mod program;
mod steer;
#[cfg(test)]
mod tests;

use std::collections::VecDeque;
use std::io;
use std::net::IpAddr;
use std::os::fd::AsFd;
use std::sync::Arc;
use std::time::Duration;

use crate::clock::{Clock, monotonic};
use crate::sys::EventFd;
use crate::sys::xdp::{QueueSocket, wait_any};
use crate::{Time, Waker};

use super::{Checksums, Link};
use addresses::BorrowedAddresses;
use ethernet::Mac;
use neighbours::{Hop, Neighbours, Way};
use netlink::Netlink;
use news::Monitor;
use open::Shared;

pub use open::{Opened, XdpMode, XdpOptions, open};
pub use preflight::XdpError;
pub use steer::Steer;

/// Packets that did not make it, of one link.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct XdpCounts {
    /// Received and dropped by the kernel since a ring was full: we were too slow.
    pub overrun: u64,
    /// Dropped by the kernel as too large for a frame, which offloads of the sender on the same machine may cause.
    pub too_large: u64,
    /// Not sent since no frame was free.
    pub no_room: u64,
    /// Not sent since nobody knows where to.
    pub no_way: u64,
    /// Not sent since the interface was down.
    pub down: u64,
}

/// The interface by which packets to this address leave this machine; `None`: they don't, or nobody knows.
pub fn interface_towards(to: IpAddr) -> Option<u32> {
    Netlink::open().and_then(|mut kernel| kernel.route(to)).ok().flatten().map(|route| route.interface)
}

/// Addresses whose card is looked for, at most. Reason: the others are looked for when they are sent to again.
const LOOKED_FOR: usize = 64;

/// One thread's part of an interface: one or several of its receive queues.
pub struct Xdp {
    queues: Vec<QueueSocket>,
    /// Packets are taken from this queue first, each time from another: none starves behind a full one.
    first: usize,
    mac: Mac,
    interface: u32,
    mtu: usize,
    /// The largest packet that fits a frame.
    largest: usize,
    checksums: Checksums,
    /// The peer may leave checksums to a card: it is on this machine.
    completes: bool,
    neighbours: Neighbours,
    netlink: Netlink,
    looked_for: Vec<IpAddr>,
    look_again: Time,
    next_epoch: Time,
    wake: Arc<EventFd>,
    look_for_wake: Time,
    clock: Clock,
    counts: XdpCounts,
    addresses: Option<BorrowedAddresses>,
    monitor: Monitor,
    look_for_news: Time,
    /// Whether the interface is up, and whether it was when that was said last.
    is_up: bool,
    was_up: bool,
    /// What the interface is like has to be asked for: changes may have been missed.
    unsure: bool,
    /// What the operator should know, of the one link that speaks for all.
    speaks: bool,
    said: VecDeque<String>,
    /// Goes last: with it the program leaves the interface.
    shared: Arc<Shared>,
}

impl std::fmt::Debug for Xdp {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Xdp").field("interface", &self.interface).field("queues", &self.queues.len()).finish()
    }
}

impl Xdp {
    /// Packets that did not make it so far. Asks the kernel.
    pub fn counts(&self) -> XdpCounts {
        self.queues.iter().map(QueueSocket::counts).fold(self.counts, |mut sum, queue| {
            sum.overrun += queue.ring_full + queue.no_frame;
            sum.too_large += queue.dropped;
            sum
        })
    }

    /// Looks for the cards of these peers, until all are known or three seconds have passed. So a client's first packets are
    /// not lost.
    pub fn look_for(&mut self, peers: &[IpAddr]) -> Result<(), XdpError> {
        let until = monotonic() + limits::FIRST_LOOK;
        for &peer in peers {
            while self.way(peer).is_none() {
                if monotonic() >= until {
                    return Err(preflight::no_way(&self.shared.interface, peer));
                }
                std::thread::sleep(limits::LOOK_AGAIN);
                self.neighbours.look_again(peer);
            }
        }
        Ok(())
    }

    #[inline]
    fn way(&mut self, to: IpAddr) -> Option<Way> {
        let (netlink, interface) = (&mut self.netlink, self.interface);
        self.neighbours.find(to, || next_hop(netlink, interface, to))
    }

    #[cold]
    fn unknown_card(&mut self, to: IpAddr) {
        self.counts.no_way += 1;
        if self.looked_for.is_empty() {
            self.look_again = self.clock.now() + limits::LOOK_AGAIN;
        }
        if self.looked_for.len() < LOOKED_FOR && !self.looked_for.contains(&to) {
            self.looked_for.push(to);
        }
    }

    /// What is due from time to time.
    fn chores(&mut self, now: Time) {
        if !self.looked_for.is_empty() && now >= self.look_again {
            for address in self.looked_for.drain(..) {
                self.neighbours.look_again(address);
            }
        }
        if now >= self.next_epoch {
            self.next_epoch = now + limits::EPOCH;
            self.neighbours.next_epoch();
        }
        if let Some(addresses) = &mut self.addresses {
            addresses.renew(now);
        }
    }

    /// Whether the waker was used, looked at now and then.
    fn woken(&mut self, now: Time) -> bool {
        if now < self.look_for_wake {
            return false;
        }
        self.look_for_wake = now + limits::WAKE_LOOK;
        self.wake.take()
    }
}

/// Asks the kernel for the card of the next hop towards an address.
#[cold]
fn next_hop(netlink: &mut Netlink, interface: u32, to: IpAddr) -> Hop {
    let Ok(Some(route)) = netlink.route(to) else { return Hop::None };
    if route.interface != interface {
        return Hop::None;
    }
    let mtu = route.mtu.and_then(|mtu| u16::try_from(mtu).ok()).unwrap_or(u16::MAX);
    let hop = route.gateway.unwrap_or(to);
    match netlink.neighbour(interface, hop) {
        Ok(Some(neighbour)) => {
            if neighbour.stale {
                // It is used all the same; should the network not confirm it, the kernel will say so.
                let _ = netlink.look_for(interface, hop);
            }
            Hop::Known(Way { card: neighbour.mac, mtu })
        }
        _ => match netlink.look_for(interface, hop) {
            Ok(()) => Hop::Asked,
            Err(_) => Hop::None,
        },
    }
}

impl Link for Xdp {
    fn now(&mut self) -> Time {
        self.clock.now()
    }

    fn now_anew(&mut self) -> Time {
        self.clock = Clock::default();
        self.clock.now()
    }

    fn receive(&mut self, max: usize, mut take: impl FnMut(&mut [u8])) -> usize {
        let mut count = 0;
        let queues = self.queues.len();
        for at in 0..queues {
            let queue = &mut self.queues[(self.first + at) % queues];
            let (neighbours, completes) = (&mut self.neighbours, self.completes);
            count += queue.receive(max - count, |frame| {
                if let Some((mac, packet)) = ethernet::parse(frame)
                    && let Some(source) = ethernet::source(packet)
                {
                    neighbours.seen(source, mac);
                    if completes {
                        offload::complete_checksum(packet);
                    }
                    take(packet);
                }
            });
            if count >= max {
                break;
            }
        }
        self.first = (self.first + 1) % queues;
        count
    }

    fn transmit(&mut self, to: IpAddr, len: usize, fill: impl FnOnce(&mut [u8])) -> bool {
        if !self.is_up {
            // As if the network had lost it: TCP sends it again when there is a link.
            self.counts.down += 1;
            return true;
        }
        let Some(Way { card, .. }) = self.way(to) else {
            self.unknown_card(to);
            return false;
        };
        // What has left makes room; failing to send shows with the next flush.
        let has_room = self.has_room() || (self.kick().is_ok() && self.has_room());
        let (own, queue) = (self.mac, &mut self.queues[0]);
        let sent = has_room
            && queue.transmit(ethernet::HEADER + len, |frame| {
                let (header, packet) = frame.split_at_mut(ethernet::HEADER);
                ethernet::emit(header, card, own, to);
                fill(packet);
            });
        self.counts.no_room += u64::from(!sent);
        sent
    }

    fn has_room(&mut self) -> bool {
        self.queues[0].has_room()
    }

    fn flush(&mut self) -> io::Result<()> {
        // A turn ends with it: while there is enough to do, nobody waits, and time must go on.
        self.clock = Clock::default();
        self.kick()
    }

    fn wait(&mut self, until: Option<Time>) -> io::Result<bool> {
        self.clock = Clock::default();
        self.kick()?;
        let now = self.clock.now();
        self.chores(now);
        self.follow(now, false)?;
        self.queues.iter().for_each(QueueSocket::poll_queue);
        if self.queues.iter_mut().any(QueueSocket::has_received) {
            return Ok(self.woken(now));
        }
        let mut limit = until.map(|until| until - now);
        let mut at_most = |time: Duration| limit = Some(limit.map_or(time, |l| l.min(time)));
        if !self.looked_for.is_empty() {
            at_most(self.look_again - now);
        }
        if self.queues[0].unsent() > 0 {
            at_most(limits::LOOK_AGAIN);
        }
        if self.addresses.is_some() {
            at_most(limits::ADDRESS_RENEWAL);
        }
        if !self.is_up {
            at_most(limits::DOWN_LOOK);
        }
        if limit != Some(Duration::ZERO) {
            let news = wait_any(&self.queues, &self.wake, self.monitor.as_fd(), limit)?;
            self.clock = Clock::default();
            if news {
                let now = self.clock.now();
                self.follow(now, true)?;
            }
        }
        Ok(self.wake.take())
    }

    fn waker(&self) -> Waker {
        Waker(Arc::clone(&self.wake))
    }

    fn overrun(&self) -> u64 {
        self.counts().overrun
    }

    fn news(&mut self) -> Option<String> {
        self.said.pop_front()
    }

    fn mtu(&mut self, to: IpAddr) -> usize {
        if to.is_unspecified() {
            return self.mtu;
        }
        self.way(to).map_or(self.mtu, |way| self.mtu.min(usize::from(way.mtu)))
    }

    fn checksums(&self) -> Checksums {
        self.checksums
    }
}
