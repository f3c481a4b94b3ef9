//! The state of a network: packets in flight, the status of each end, and the time.

use std::net::IpAddr;
use std::time::Duration;

use super::nat::Mappings;
use super::options::{SimOptions, SimStats};
use crate::Time;
use crate::ecn::Ecn;
use crate::link::faults::Dice;
use crate::link::late::Late;

/// The status of an end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Status {
    /// It has not begun yet, so the others wait for it.
    New,
    Running,
    Waiting(Time),
    Gone,
}

pub(super) struct SimulatedEnd {
    addresses: Vec<IpAddr>,
    pub(super) status: Status,
    /// Packets do not end its wait.
    pub(super) deaf: bool,
    arrivals: Late<Vec<u8>>,
}

pub(super) struct Net {
    pub(super) options: SimOptions,
    pub(super) stats: SimStats,
    pub(super) now: Time,
    pub(super) ends: Vec<SimulatedEnd>,
    spare: Vec<Vec<u8>>,
    dice: Dice,
    mappings: Mappings,
    /// Until when the path towards an address is busy.
    busy: Vec<(IpAddr, Time)>,
}

impl Net {
    pub(super) fn new(options: SimOptions) -> Net {
        Net {
            options,
            stats: SimStats::default(),
            now: Time::from_nanos(1_000_000_000),
            ends: Vec::new(),
            spare: Vec::new(),
            dice: Dice::new(options.seed),
            mappings: Mappings::default(),
            busy: Vec::new(),
        }
    }

    pub(super) fn add(&mut self, addresses: &[IpAddr]) -> usize {
        let (addresses, arrivals) = (addresses.to_vec(), Late::default());
        self.ends.push(SimulatedEnd { addresses, status: Status::New, deaf: false, arrivals });
        self.ends.len() - 1
    }

    /// Takes a spare buffer of `len` bytes.
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

    pub(super) fn is_down(&self) -> bool {
        self.options.outages.is_some_and(|outages| outages.is_down(self.now))
    }

    /// Accepts a packet towards `to` and decides its fate.
    pub(super) fn carry(&mut self, to: IpAddr, mut packet: Vec<u8>) {
        self.stats.sent += 1;
        if self.is_down() {
            self.stats.lost += 1;
            return self.give_back(packet);
        }
        let to = match &self.options.nat {
            Some(nat) => self.mappings.pass(nat, self.now, to, &mut packet),
            None => Some(to),
        };
        let Some(to) = to else {
            self.stats.astray += 1;
            return self.give_back(packet);
        };
        let Some(end) = self.end_of(to) else {
            self.stats.astray += 1;
            return self.give_back(packet);
        };
        let path = if self.options.path_mtu == 0 { usize::MAX } else { self.options.path_mtu };
        if packet.len() > self.options.mtu.min(path) {
            self.stats.too_large += 1;
            return self.give_back(packet);
        }
        let faults = self.options.faults();
        if self.stats.sent == self.options.lose || self.dice.loses(&faults) {
            self.stats.lost += 1;
            return self.give_back(packet);
        }
        let Some(left) = self.departure(to, &mut packet) else {
            self.stats.dropped += 1;
            return self.give_back(packet);
        };
        let fate = self.dice.fate(&faults, packet.len());
        fate.corrupt(&mut packet);
        self.stats.corrupted += u64::from(fate.corrupt.is_some());
        self.stats.reordered += u64::from(fate.later.is_some());
        let at = left + self.options.delay + fate.later.unwrap_or_default();
        if let Some(later) = fate.copy {
            self.stats.duplicated += 1;
            let mut copy = self.buffer(packet.len());
            copy.copy_from_slice(&packet);
            self.arrive(end, at + later, copy);
        }
        self.arrive(end, at, packet);
    }

    /// When a packet has passed the bottleneck; `None` if its queue is full. It may be marked there.
    fn departure(&mut self, to: IpAddr, packet: &mut [u8]) -> Option<Time> {
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
        let is_long = self.options.mark_from > 0 && waiting > self.options.mark_from as u128;
        self.stats.marked += u64::from(is_long && Ecn::mark(packet));
        let takes = (packet.len() as u128 * 1_000_000_000 / u128::from(rate)) as u64;
        self.busy[i].1 = free + Duration::from_nanos(takes);
        Some(self.busy[i].1)
    }

    fn arrive(&mut self, end: usize, mut at: Time, packet: Vec<u8>) {
        let together = self.options.together.as_nanos() as u64;
        if together > 0 {
            at = Time::from_nanos(at.as_nanos().next_multiple_of(together));
        }
        self.ends[end].arrivals.push(at, packet);
    }

    pub(super) fn next_arrival(&self, end: usize) -> Option<Time> {
        self.ends[end].arrivals.next()
    }

    /// The next packet that has arrived at this end.
    pub(super) fn arrived(&mut self, end: usize) -> Option<Vec<u8>> {
        self.ends[end].arrivals.pop(self.now)
    }

    /// When this end has to run next.
    fn due(&self, end: usize) -> Option<Time> {
        match self.ends[end].status {
            Status::Waiting(until) => {
                let next = self.next_arrival(end).filter(|_| !self.ends[end].deaf).unwrap_or(Time::NEVER);
                Some(until.min(next)).filter(|at| *at != Time::NEVER)
            }
            _ => None,
        }
    }

    /// True if no end runs and no event is due.
    pub(super) fn is_idle(&self) -> bool {
        !self.somebody_runs() && (0..self.ends.len()).all(|end| self.due(end).is_none())
    }

    /// True if an end is gone, so that it will never wake the others.
    pub(super) fn is_left(&self) -> bool {
        self.ends.iter().any(|end| end.status == Status::Gone)
    }

    fn somebody_runs(&self) -> bool {
        self.ends.iter().any(|end| matches!(end.status, Status::Running | Status::New))
    }

    /// If all ends wait, advances the time to the first due event and selects its end. Returns
    /// whether one was selected.
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
