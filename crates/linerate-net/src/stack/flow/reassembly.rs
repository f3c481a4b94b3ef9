//! Bytes that came before the data that precedes them (RFC 9293 section 3.10.7.4).

use crate::Time;
use crate::stack::piece::ChargedBytes;
use crate::stack::pool::{BlockPool, Chain};
use crate::stack::wire::{Sack, Seq};

/// A range received before the data that precedes it.
struct Early {
    start: Seq,
    end: Seq,
    piece: ChargedBytes,
    /// No ACK has reported it yet.
    fresh: bool,
    /// Sequence of its last segment, by `Reassembly::arrivals`.
    arrival: u32,
}

/// Ranges received out of order. They do not touch, except where there was no room to join them.
pub(crate) struct Reassembly {
    ranges: Vec<Early>,
    /// Number of segments so far.
    arrivals: u32,
    /// Since when the first gap has been open.
    since: Time,
}

/// How many ranges, and how much memory, one connection may hold.
#[derive(Clone, Copy)]
pub(super) struct Most {
    pub(super) ranges: usize,
    pub(super) cost: usize,
}

impl Reassembly {
    pub(super) fn new(now: Time) -> Reassembly {
        Reassembly { ranges: Vec::new(), arrivals: 0, since: now }
    }

    /// Memory that it holds.
    pub(super) fn cost(&self) -> usize {
        self.ranges.iter().map(|range| range.piece.cost()).sum()
    }

    /// Stores the bytes that are new. Returns whether all of them are stored now.
    pub(super) fn insert(
        &mut self,
        mut seq: Seq,
        mut bytes: &[u8],
        most: Most,
        pool: &mut BlockPool,
    ) -> bool {
        self.arrivals = self.arrivals.wrapping_add(1);
        while !bytes.is_empty() {
            let i = self.ranges.partition_point(|r| r.end.le(seq));
            let until = match self.ranges.get_mut(i) {
                Some(next) if next.start.le(seq) => {
                    next.arrival = self.arrivals;
                    let known = ((next.end - seq) as usize).min(bytes.len());
                    seq += known as u32;
                    bytes = &bytes[known..];
                    continue;
                }
                Some(next) => (next.start - seq) as usize,
                None => usize::MAX,
            };
            let (gap, rest) = bytes.split_at(until.min(bytes.len()));
            if !self.fill(i, seq, gap, most, pool) {
                return false;
            }
            seq += gap.len() as u32;
            bytes = rest;
        }
        true
    }

    /// Puts bytes into the gap before the range at `i`.
    pub(super) fn fill(
        &mut self,
        i: usize,
        seq: Seq,
        bytes: &[u8],
        most: Most,
        pool: &mut BlockPool,
    ) -> bool {
        let end = seq + bytes.len() as u32;
        let touches_last = i > 0 && self.ranges[i - 1].end == seq;
        let full = !touches_last && self.ranges.len() >= most.ranges;
        if full || self.cost() + bytes.len() > most.cost {
            return false;
        }
        let at = if touches_last {
            if self.ranges[i - 1].piece.append(bytes, pool).is_err() {
                return false;
            }
            i - 1
        } else {
            let Ok(piece) = ChargedBytes::new(bytes, pool) else { return false };
            let arrival = self.arrivals;
            self.ranges.insert(i, Early { start: seq, end, piece, fresh: true, arrival });
            i
        };
        self.ranges[at].end = end;
        (self.ranges[at].fresh, self.ranges[at].arrival) = (true, self.arrivals);
        if self.ranges.get(at + 1).is_some_and(|next| next.start == end) {
            let next = self.ranges.remove(at + 1);
            match self.ranges[at].piece.join(next.piece, pool) {
                Ok(()) => self.ranges[at].end = next.end,
                Err(piece) => self.ranges.insert(at + 1, Early { piece, ..next }),
            }
        }
        true
    }

    /// Moves the ranges that follow `next` to `inbox`; returns the new next.
    pub(super) fn absorb(
        &mut self,
        now: Time,
        mut next: Seq,
        inbox: &mut Chain,
        pool: &mut BlockPool,
    ) -> Seq {
        while self.ranges.first().is_some_and(|first| first.start.le(next)) {
            let first = self.ranges.remove(0);
            self.since = now;
            if first.end.gt(next) {
                if first.piece.move_to((next - first.start) as usize, inbox, pool).is_err() {
                    break;
                }
                next = first.end;
            } else {
                first.piece.clear(pool);
            }
        }
        next
    }

    /// The first part of a segment that was received before.
    pub(super) fn known(&self, start: Seq, end: Seq) -> Option<(Seq, Seq)> {
        let next = self.ranges.get(self.ranges.partition_point(|r| r.end.le(start)))?;
        next.start.lt(end).then(|| (next.start.max(start), next.end.min(end)))
    }

    /// Blocks to report: first the one with the latest segment, then those not reported yet, then
    /// the others; the most recent first in each group (RFC 2018 section 4).
    pub(super) fn blocks(&self, sack: &mut Sack, room: usize) {
        let age = |range: &Early| self.arrivals.wrapping_sub(range.arrival);
        let latest = self.ranges.iter().map(age).min();
        let first = sack.blocks().len();
        for _ in first..room {
            let told = &sack.blocks()[first..];
            let untold = self.ranges.iter().filter(|r| !told.contains(&(r.start, r.end)));
            let Some(next) = untold.min_by_key(|r| (Some(age(r)) != latest, !r.fresh, age(r))) else { break };
            sack.push(next.start, next.end);
        }
    }

    /// These blocks were reported. Returns whether others still have to be.
    pub(super) fn told(&mut self, sack: &Sack) -> bool {
        for (start, _) in sack.blocks() {
            let i = self.ranges.partition_point(|r| r.start.lt(*start));
            if let Some(range) = self.ranges.get_mut(i) {
                range.fresh = false;
            }
        }
        self.ranges.iter().any(|range| range.fresh)
    }

    pub(super) fn is_empty(&self) -> bool {
        self.ranges.is_empty()
    }

    /// Since when something is early.
    pub(super) fn since(&self) -> Time {
        self.since
    }

    /// Bytes that are early.
    pub(super) fn bytes(&self) -> u64 {
        self.ranges.iter().map(|r| u64::from(r.end - r.start)).sum()
    }

    pub(super) fn clear(&mut self, pool: &mut BlockPool) {
        for range in self.ranges.drain(..) {
            range.piece.clear(pool);
        }
    }
}
