//! Kernel bypass by AF_XDP. A small program in the card's driver redirects our TCP segments to this
//! process and passes everything else to the kernel. The interface stays the kernel's: ssh, ping
//! and every other port work.
//!
//! Our segments ([`Steer`]) are, for a server, those to its TCP ports on the interface's addresses;
//! for a client, those to source addresses of its own, all TCP ports. Messages about our segments
//! are ours too, if those were too large, or if nothing can be reached by them for long. Fragments and frames with VLAN tags are never ours.
//!
//! The kernel answers ARP and NDP for all these addresses, since the interface has them. A client's
//! addresses are added for as long as the link lives, unless the interface has them already. They
//! have a lifetime, so that they expire even if the process is killed.
//!
//! The kernel's routes and neighbours give the MAC address that a packet goes to.

mod addresses;
mod asker;
mod detour;
mod ethernet;
mod flow_key;
mod follow;
mod handover;
mod leaving;
mod lender;
mod limits;
mod loan;
mod neighbours;
mod netlink;
mod news;
mod offload;
mod open;
mod preflight;
mod program;
mod roster;
mod shares;
mod steer;
#[cfg(test)]
mod tests;

use std::collections::VecDeque;
use std::io;
use std::net::IpAddr;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::time::Duration;

use crate::clock::{Clock, monotonic};
use crate::sys::EventFd;
use crate::sys::xdp::{QueueSocket, wait_any};
use crate::{Time, Waker};

use super::{Checksums, Link};
use addresses::BorrowedAddresses;
use detour::ProcessDetour;
use ethernet::Mac;
use neighbours::{FramePath, Hop, Neighbours, Question};
use netlink::Netlink;
use news::Monitor;
use open::SharedInterface;

pub use lender::Lender;
pub use loan::{Borrower, LendersReply};
pub use open::{Opened, XdpMode, XdpOptions, open};
pub use preflight::XdpError;
pub use roster::{
    BorrowerCounter, BorrowerCounts, BorrowerStatus, BorrowerTally, LenderRoster, LenderStatus,
};
pub use steer::Steer;

/// Packets that one link lost.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct XdpCounts {
    /// Received and dropped by the kernel because a ring was full: the thread was too slow.
    pub overrun: u64,
    /// Dropped as too large for a frame, which offloads of a sender on the same machine may cause
    /// where the kernel gives no packets that span frames.
    pub too_large: u64,
    /// Not sent because no frame was free.
    pub no_room: u64,
    /// Not sent because the next hop is unknown.
    pub no_way: u64,
    /// Not sent because the interface was down.
    pub down: u64,
}

/// The interface of the route to this address; `None` if there is no route, or it is unknown.
pub fn interface_towards(to: IpAddr) -> Option<u32> {
    Netlink::open().and_then(|mut kernel| kernel.route(to)).ok().flatten().map(|route| route.interface)
}

/// Addresses to resolve, at most. Reason: the others are resolved when packets are sent to them.
const LOOKED_FOR: usize = 64;

/// One thread's share of an interface: one or several of its receive queues.
pub struct Xdp {
    queues: Vec<QueueSocket>,
    /// The way of a process that gives its queues back, or has none any more.
    detour: Option<ProcessDetour>,
    /// The queue to read first; it rotates, so that a full queue does not starve the others.
    first: usize,
    mac: Mac,
    interface: u32,
    mtu: usize,
    /// The largest packet that fits a frame.
    largest: usize,
    checksums: Checksums,
    /// The peer is on this machine, so it may leave checksums incomplete.
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
    /// Whether the interface is up, and whether it was at the last report.
    is_up: bool,
    was_up: bool,
    /// Notifications may have been missed, so the interface's state must be read.
    unsure: bool,
    /// Reports to the operator; only the link that speaks for all has any.
    speaks: bool,
    said: VecDeque<String>,
    /// It was said that packets are lost because they are larger than a frame.
    lost_large: bool,
    /// Dropped last, because it detaches the program from the interface.
    shared: Arc<SharedInterface>,
}

impl std::fmt::Debug for Xdp {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Xdp").field("interface", &self.interface).field("queues", &self.queues.len()).finish()
    }
}

impl Xdp {
    /// Packets lost so far. Costs system calls.
    pub fn counts(&self) -> XdpCounts {
        self.queues.iter().map(QueueSocket::counts).fold(self.counts, |mut sum, queue| {
            sum.overrun += queue.ring_full + queue.no_frame;
            sum.too_large += queue.dropped;
            sum
        })
    }

    /// For how long [`Link::wait`] may wait.
    fn longest_wait(&self, now: Time, until: Option<Time>) -> Option<Duration> {
        let looks = (!self.looked_for.is_empty()).then(|| self.look_again - now);
        let unsent = self.queues.first().is_some_and(|queue| queue.unsent() > 0)
            || self.detour.as_ref().is_some_and(|detour| detour.is_full);
        let unsent = unsent.then_some(limits::LOOK_AGAIN);
        let addresses = self.addresses.is_some().then_some(limits::ADDRESS_RENEWAL);
        let down = (!self.is_up).then_some(limits::DOWN_LOOK);
        let limits = [until.map(|until| until - now), looks, unsent, addresses, down];
        limits.into_iter().flatten().min()
    }

    /// Descriptors for a caller that waits by itself: once one is ready to read, [`Link::wait`] would
    /// return.
    pub fn descriptors(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        let queues = self.queues.iter().map(QueueSocket::descriptor);
        let detour = self.detour.as_ref().map(ProcessDetour::descriptor);
        [self.wake.as_fd(), self.monitor.as_fd()].into_iter().chain(self.lender()).chain(queues).chain(detour)
    }

    /// For how long such a caller may wait: until this time at most.
    pub fn rest(&mut self, until: Option<Time>) -> Option<Duration> {
        let now = self.clock.now();
        self.longest_wait(now, until)
    }

    /// Resolves the MAC addresses of these peers, until all are known or three seconds have passed.
    /// Without it, a client's first packets would be lost.
    pub fn look_for(&mut self, peers: &[IpAddr]) -> Result<(), XdpError> {
        let until = monotonic() + limits::FIRST_LOOK;
        for &peer in peers {
            while self.way(peer).is_none() {
                if monotonic() >= until {
                    return Err(preflight::no_way(&self.shared.interface, peer));
                }
                std::thread::sleep(limits::LOOK_AGAIN);
                // No flood can use up what may be asked yet.
                self.neighbours.next_epoch();
            }
        }
        Ok(())
    }

    #[inline]
    fn way(&mut self, to: IpAddr) -> Option<FramePath> {
        let (netlink, interface) = (&mut self.netlink, self.interface);
        self.neighbours.find(to, |question| next_hop(netlink, interface, to, question))
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

    /// Runs periodic work.
    fn chores(&mut self, now: Time) {
        if !self.looked_for.is_empty() && now >= self.look_again {
            for address in self.looked_for.drain(..) {
                self.neighbours.look_again(address);
            }
        }
        if now >= self.next_epoch {
            self.next_epoch = now + limits::EPOCH;
            self.neighbours.next_epoch();
            if self.speaks && !self.lost_large && self.counts().too_large > 0 {
                self.lost_large = true;
                self.said.push_back(preflight::loses_large(&self.shared.interface));
            }
        }
        if let Some(addresses) = &mut self.addresses {
            addresses.renew(now);
        }
    }

    /// Checks now and then whether the waker was used.
    fn woken(&mut self, now: Time) -> bool {
        if now < self.look_for_wake {
            return false;
        }
        self.look_for_wake = now + limits::WAKE_LOOK;
        self.wake.take()
    }
}

/// Asks the kernel for the MAC address of the next hop towards an address.
#[cold]
fn next_hop(netlink: &mut Netlink, interface: u32, to: IpAddr, question: Question) -> Hop {
    let Ok(Some(route)) = netlink.route(to) else { return Hop::None };
    if route.interface != interface {
        return Hop::None;
    }
    let mtu = route.mtu.and_then(|mtu| u16::try_from(mtu).ok()).unwrap_or(u16::MAX);
    let hop = route.gateway.unwrap_or(to);
    match netlink.neighbour(interface, hop) {
        Ok(Some(neighbour)) => {
            if neighbour.stale {
                // Use a stale entry all the same: if the network does not confirm it, the kernel
                // will say so.
                let _ = netlink.look_for(interface, hop);
            }
            Hop::Known(FramePath { card: neighbour.mac, mtu })
        }
        _ if question == Question::Only => Hop::Unknown,
        _ => {
            // If that fails, the kernel is asked again as if the network had not answered.
            let _ = netlink.look_for(interface, hop);
            Hop::Asked
        }
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
        let (mut count, now) = (0, self.clock.now());
        let (neighbours, completes) = (&mut self.neighbours, self.completes);
        let mut lend = |frame: &mut [u8]| {
            if let Some((mac, packet)) = ethernet::parse(frame)
                && let Some(source) = ethernet::source(packet)
            {
                neighbours.seen(source, mac);
                if completes {
                    offload::complete_checksum(packet);
                }
                take(packet);
            }
        };
        let queues = self.queues.len();
        for at in 0..queues {
            let queue = &mut self.queues[(self.first + at) % queues];
            count += queue.receive(now, max - count, &mut lend);
            if count >= max {
                break;
            }
        }
        self.first = if queues > 0 { (self.first + 1) % queues } else { 0 };
        if let Some(detour) = &mut self.detour {
            count += detour.receive(max - count, lend);
        }
        count
    }

    fn transmit(&mut self, to: IpAddr, len: usize, fill: impl FnOnce(&mut [u8])) -> bool {
        if !self.is_up {
            // Treated as lost by the network: TCP retransmits it once the link is up.
            self.counts.down += 1;
            return true;
        }
        let Some(FramePath { card, .. }) = self.way(to) else {
            self.unknown_card(to);
            return false;
        };
        let own = self.mac;
        let write = |frame: &mut [u8]| {
            let (header, packet) = frame.split_at_mut(ethernet::HEADER);
            ethernet::emit(header, card, own, to);
            fill(packet);
        };
        let sent = if let Some(detour) = &mut self.detour {
            detour.transmit(ethernet::HEADER + len, write)
        } else {
            // Sent frames make room. An error while sending shows at the next flush.
            let has_room = self.has_room() || (self.kick().is_ok() && self.has_room());
            has_room && self.queues[0].transmit(ethernet::HEADER + len, write)
        };
        self.counts.no_room += u64::from(!sent);
        sent
    }

    fn has_room(&mut self) -> bool {
        match &self.detour {
            Some(detour) => !detour.is_full,
            None => self.queues[0].has_room(),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        // A flush ends a turn. A busy thread never waits, so the cached time must end here too.
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
        let limit = self.longest_wait(now, until);
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

    fn expect_flood(&mut self) {
        let now = self.clock.now();
        self.queues.iter_mut().for_each(|queue| queue.expect_flood(now));
    }

    fn overrun(&self) -> u64 {
        self.counts().overrun
    }

    fn too_large(&self) -> u64 {
        self.counts().too_large
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
