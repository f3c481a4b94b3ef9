//! How a network in memory behaves, and what it counts.

use std::net::Ipv4Addr;
use std::time::Duration;

use crate::Time;
use crate::link::{Checksums, Faults};

/// When all links are down: packets are lost, and sending fails as in the kernel (ENETDOWN).
#[derive(Clone, Copy, Debug)]
pub struct Outages {
    /// When the first begins.
    pub first: Duration,
    /// From one to the next.
    pub every: Duration,
    /// Each.
    pub lasts: Duration,
}

impl Outages {
    pub(super) fn is_down(&self, now: Time) -> bool {
        let since = now.nanos_since(Time::ZERO + self.first);
        let begun = now >= Time::ZERO + self.first;
        begun && since % (self.every.as_nanos() as u64).max(1) < self.lasts.as_nanos() as u64
    }
}

/// A NAT before the hosts of a network: to all others they have one address and few ports.
#[derive(Clone, Copy, Debug)]
pub struct Nat {
    /// The address that the others see.
    pub outside: Ipv4Addr,
    /// How the addresses behind it begin.
    pub inside: [u8; 2],
    /// The ports it has.
    pub first_port: u16,
    /// The last of them.
    pub last_port: u16,
    /// A port whose connection has ended, and that nothing passed for so long, is free.
    pub forgets: Duration,
}

impl Nat {
    pub(super) fn is_inside(&self, address: Ipv4Addr) -> bool {
        address.octets()[..2] == self.inside
    }
}

/// How the network behaves. The default is a perfect one: 100 microseconds one way, and nothing goes wrong.
#[derive(Clone, Copy, Debug)]
pub struct SimOptions {
    /// Everything random follows from it.
    pub seed: u64,
    /// One way.
    pub delay: Duration,
    /// Bytes a second towards each address; `None`: no limit.
    pub rate: Option<u64>,
    /// Bytes that wait for the rate, towards each address; more are dropped.
    pub queue: usize,
    /// Packets lost, of a million.
    pub loss_ppm: u32,
    /// Packets that take up to `reorder_by` longer than others, of a million.
    pub reorder_ppm: u32,
    /// How much longer, at most.
    pub reorder_by: Duration,
    /// Packets that arrive twice, of a million.
    pub duplicate_ppm: u32,
    /// Packets of which a bit arrives changed, of a million.
    pub corrupt_ppm: u32,
    /// Packets lost, counted from 1 in the order in which they were sent: for tests of one loss. Zero: none.
    pub lose: u64,
    /// Packets arrive together, at multiples of this: as behind a card or a machine that looks only so often. Zero: each in its
    /// time.
    pub together: Duration,
    /// When links are down.
    pub outages: Option<Outages>,
    /// Who is behind a NAT.
    pub nat: Option<Nat>,
    /// The largest packet, IP header included. Larger ones are lost: one that was under way when it became smaller.
    pub mtu: usize,
    /// The largest packet that the path behind the link takes; larger ones are lost without a word. Zero: as the link.
    pub path_mtu: usize,
    /// Who makes and checks checksums.
    pub checksums: Checksums,
}

impl Default for SimOptions {
    fn default() -> Self {
        SimOptions {
            seed: 1,
            delay: Duration::from_micros(100),
            rate: None,
            queue: 1 << 20,
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
    /// What goes wrong, by shares.
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

/// What happened to packets.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SimStats {
    /// Packets sent.
    pub sent: u64,
    /// Lost on the way.
    pub lost: u64,
    /// Dropped since the queue before the rate's limit was full.
    pub dropped: u64,
    /// Delayed so that others could overtake them.
    pub reordered: u64,
    /// Doubled.
    pub duplicated: u64,
    /// Changed.
    pub corrupted: u64,
    /// Too large.
    pub too_large: u64,
    /// For an address that no end has.
    pub astray: u64,
}
