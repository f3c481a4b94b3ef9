//! The state of a network: packets on their way, who waits, and the time.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::net::IpAddr;
use std::time::Duration;

use super::options::{SimOptions, SimStats};
use crate::Time;

/// What an end does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Status {
    /// It has not begun yet: the others wait for it.
    New,
    Running,
    Waiting(Time),
    Gone,
}

/// Arrival, order, and the place of the packet.
type Arrival = Reverse<(Time, u64, usize)>;

pub(super) struct End {
    addresses: Vec<IpAddr>,
    pub(super) status: Status,
    arrivals: BinaryHeap<Arrival>,
}

pub(super) struct Net {
    pub(super) options: SimOptions,
    pub(super) stats: SimStats,
    pub(super) now: Time,
    pub(super) ends: Vec<End>,
    packets: Vec<Vec<u8>>,
    free: Vec<usize>,
    spare: Vec<Vec<u8>>,
    order: u64,
    random: u64,
    /// Until when the way towards an address is taken.
    busy: Vec<(IpAddr, Time)>,
}

impl Net {
    pub(super) fn new(options: SimOptions) -> Net {
        Net {
            options,
            stats: SimStats::default(),
            now: Time::from_nanos(1_000_000_000),
            ends: Vec::new(),
            packets: Vec::new(),
            free: Vec::new(),
            spare: Vec::new(),
            order: 0,
            random: options.seed,
            busy: Vec::new(),
        }
    }

    pub(super) fn add(&mut self, addresses: &[IpAddr]) -> usize {
        let end = End { addresses: addresses.to_vec(), status: Status::New, arrivals: BinaryHeap::new() };
        self.ends.push(end);
        self.ends.len() - 1
    }

    /// Splitmix64.
    fn random(&mut self) -> u64 {
        self.random = self.random.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.random;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    fn happens(&mut self, ppm: u32) -> bool {
        ppm > 0 && self.random() % 1_000_000 < u64::from(ppm)
    }

    /// A buffer of `len` bytes.
    pub(super) fn buffer(&mut self, len: usize) -> Vec<u8> {
        let mut buffer = self.spare.pop().unwrap_or_default();
        buffer.clear();
        buffer.resize(len, 0);
        buffer
    }

    pub(super) fn give_back(&mut self, packet: Vec<u8>) {
        self.spare.push(packet);
    }

    fn end_of(&self, to: IpAddr) -> Option<usize> {
        let alone = self.ends.len() == 1;
        self.ends.iter().position(|end| end.addresses.contains(&to)).or_else(|| alone.then_some(0))
    }

    /// Takes a packet towards `to`, and decides its fate.
    pub(super) fn carry(&mut self, to: IpAddr, mut packet: Vec<u8>) {
        self.stats.sent += 1;
        let Some(end) = self.end_of(to) else {
            self.stats.astray += 1;
            return self.give_back(packet);
        };
        if self.stats.sent == self.options.lose || self.happens(self.options.loss_ppm) {
            self.stats.lost += 1;
            return self.give_back(packet);
        }
        let Some(left) = self.departure(to, packet.len()) else {
            self.stats.dropped += 1;
            return self.give_back(packet);
        };
        if self.happens(self.options.corrupt_ppm) {
            self.stats.corrupted += 1;
            let bit = self.random() as usize % (packet.len().max(1) * 8);
            if let Some(byte) = packet.get_mut(bit / 8) {
                *byte ^= 1 << (bit % 8);
            }
        }
        let mut at = left + self.options.delay;
        if self.happens(self.options.reorder_ppm) {
            self.stats.reordered += 1;
            at = at + self.some_of(self.options.reorder_by);
        }
        if self.happens(self.options.duplicate_ppm) {
            self.stats.duplicated += 1;
            let mut copy = self.buffer(packet.len());
            copy.copy_from_slice(&packet);
            let later = at + self.some_of(self.options.reorder_by);
            self.arrive(end, later, copy);
        }
        self.arrive(end, at, packet);
    }

    fn some_of(&mut self, most: Duration) -> Duration {
        Duration::from_nanos(self.random() % (most.as_nanos() as u64).max(1))
    }

    /// When a packet has passed the place where the rate is limited.
    fn departure(&mut self, to: IpAddr, len: usize) -> Option<Time> {
        let Some(rate) = self.options.rate.map(|rate| rate.max(1)) else { return Some(self.now) };
        let i = self.busy.iter().position(|(address, _)| *address == to).unwrap_or_else(|| {
            self.busy.push((to, Time::ZERO));
            self.busy.len() - 1
        });
        let free = self.busy[i].1.max(self.now);
        let waiting = free.nanos_since(self.now) as u128 * u128::from(rate) / 1_000_000_000;
        if waiting > self.options.queue as u128 {
            return None;
        }
        let takes = (len as u128 * 1_000_000_000 / u128::from(rate)) as u64;
        self.busy[i].1 = free + Duration::from_nanos(takes);
        Some(self.busy[i].1)
    }

    fn arrive(&mut self, end: usize, at: Time, packet: Vec<u8>) {
        let place = self.free.pop().unwrap_or_else(|| {
            self.packets.push(Vec::new());
            self.packets.len() - 1
        });
        self.packets[place] = packet;
        self.order += 1;
        self.ends[end].arrivals.push(Reverse((at, self.order, place)));
    }

    pub(super) fn next_arrival(&self, end: usize) -> Option<Time> {
        self.ends[end].arrivals.peek().map(|Reverse((at, ..))| *at)
    }

    /// A packet that has arrived.
    pub(super) fn arrived(&mut self, end: usize) -> Option<Vec<u8>> {
        if self.next_arrival(end)? > self.now {
            return None;
        }
        let Reverse((_, _, place)) = self.ends[end].arrivals.pop()?;
        self.free.push(place);
        Some(std::mem::take(&mut self.packets[place]))
    }

    /// When this end has to run next.
    fn due(&self, end: usize) -> Option<Time> {
        match self.ends[end].status {
            Status::Waiting(until) => {
                let next = self.next_arrival(end).unwrap_or(Time::NEVER);
                Some(until.min(next)).filter(|at| *at != Time::NEVER)
            }
            _ => None,
        }
    }

    /// Nobody runs, and nothing will happen by itself.
    pub(super) fn is_idle(&self) -> bool {
        !self.somebody_runs() && (0..self.ends.len()).all(|end| self.due(end).is_none())
    }

    /// An end is gone, and so nobody will ever wake the others.
    pub(super) fn is_left(&self) -> bool {
        self.ends.iter().any(|end| end.status == Status::Gone)
    }

    fn somebody_runs(&self) -> bool {
        self.ends.iter().any(|end| matches!(end.status, Status::Running | Status::New))
    }

    /// When all wait, time goes on to what comes first, and that end runs. Whether one was chosen.
    pub(super) fn choose(&mut self) -> bool {
        if self.somebody_runs() {
            return false;
        }
        let first = (0..self.ends.len()).filter_map(|end| Some((self.due(end)?, end))).min();
        let Some((at, end)) = first else { return false };
        self.now = self.now.max(at);
        self.ends[end].status = Status::Running;
        true
    }
}
