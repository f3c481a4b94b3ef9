//! Options of a network in memory, and its counters.

use std::net::Ipv4Addr;
use std::time::Duration;

use crate::Time;
use crate::link::{Checksums, Faults};

/// Times when all links are down: packets are lost, and sending fails as in the kernel (ENETDOWN).
#[derive(Clone, Copy, Debug)]
pub struct Outages {
    /// Start of the first outage.
    pub first: Duration,
    /// Time from the start of one outage to the next.
    pub every: Duration,
    /// Length of each outage.
    pub lasts: Duration,
}

impl Outages {
    pub(super) fn is_down(&self, now: Time) -> bool {
        let since = now.nanos_since(Time::ZERO + self.first);
        let begun = now >= Time::ZERO + self.first;
        begun && since % (self.every.as_nanos() as u64).max(1) < self.lasts.as_nanos() as u64
    }
}

/// A NAT in front of some hosts of a network, which share one public address and few ports.
#[derive(Clone, Copy, Debug)]
pub struct Nat {
    /// The public address.
    pub outside: Ipv4Addr,
    /// First two bytes of the addresses behind the NAT.
    pub inside: [u8; 2],
    /// The first public port.
    pub first_port: u16,
    /// The last public port.
    pub last_port: u16,
    /// How long a mapping outlives a closed connection without traffic.
    pub forgets: Duration,
}

impl Nat {
    pub(super) fn is_inside(&self, address: Ipv4Addr) -> bool {
        address.octets()[..2] == self.inside
    }
}

/// Behavior of the network. The default has a one-way delay of 100 microseconds and no faults.
#[derive(Clone, Copy, Debug)]
pub struct SimOptions {
    /// Determines everything that is random.
    pub seed: u64,
    /// One-way delay.
    pub delay: Duration,
    /// Bytes per second towards each address; `None`: unlimited.
    pub rate: Option<u64>,
    /// Bytes that may queue for the rate towards each address; more are dropped.
    pub queue: usize,
    /// Bytes that may queue before packets are marked that may be (RFC 3168 section 5). Zero: none is
    /// marked.
    pub mark_from: usize,
    /// Packets lost, per million.
    pub loss_ppm: u32,
    /// Packets delayed by up to `reorder_by` more than others, per million.
    pub reorder_ppm: u32,
    /// The longest extra delay.
    pub reorder_by: Duration,
    /// Packets that arrive twice, per million.
    pub duplicate_ppm: u32,
    /// Packets that arrive with one bit flipped, per million.
    pub corrupt_ppm: u32,
    /// Number of the packet to lose, counted from 1 in sending order, for tests of a single loss.
    /// Zero: none.
    pub lose: u64,
    /// Packets arrive in batches, at multiples of this time, as from a card that interrupts rarely.
    /// Zero: each arrives in its own time.
    pub together: Duration,
    /// When the links are down.
    pub outages: Option<Outages>,
    /// The hosts behind a NAT.
    pub nat: Option<Nat>,
    /// The largest packet, IP header included. Larger packets are lost, also those in flight when
    /// the MTU shrank.
    pub mtu: usize,
    /// The largest packet on the path behind the link. Larger ones are lost without an ICMP
    /// message. Zero: as the link.
    pub path_mtu: usize,
    /// Which side computes and verifies checksums.
    pub checksums: Checksums,
}

impl Default for SimOptions {
    fn default() -> Self {
        SimOptions {
            seed: 1,
            delay: Duration::from_micros(100),
            rate: None,
            queue: 1 << 20,
            mark_from: 0,
            loss_ppm: 0,
            reorder_ppm: 0,
            reorder_by: Duration::from_millis(1),
            duplicate_ppm: 0,
            corrupt_ppm: 0,
            lose: 0,
            outages: None,
            nat: None,
            together: Duration::ZERO,
            mtu: 1500,
            path_mtu: 0,
            checksums: Checksums::Full,
        }
    }
}

impl SimOptions {
    /// The faults among these options.
    pub(super) fn faults(&self) -> Faults {
        Faults {
            delay: self.delay,
            loss_ppm: self.loss_ppm,
            reorder_ppm: self.reorder_ppm,
            reorder_by: self.reorder_by,
            duplicate_ppm: self.duplicate_ppm,
            corrupt_ppm: self.corrupt_ppm,
        }
    }
}

/// Counters of packets.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SimStats {
    /// Packets sent.
    pub sent: u64,
    /// Packets lost in the network.
    pub lost: u64,
    /// Packets dropped because the queue of the bottleneck was full.
    pub dropped: u64,
    /// Packets marked because of a long queue.
    pub marked: u64,
    /// Packets delayed so that others could overtake them.
    pub reordered: u64,
    /// Packets duplicated.
    pub duplicated: u64,
    /// Packets corrupted.
    pub corrupted: u64,
    /// Packets larger than the MTU.
    pub too_large: u64,
    /// Packets to an address that no end has.
    pub astray: u64,
}
