//! Receives bytes, in order, early or again (RFC 9293 section 3.10.7.4, seventh check), and decides
//! how large a window to announce.

use super::urgent::without;
use super::{Flow, State, Told};
use crate::Time;
use crate::stack::piece::Piece;
use crate::stack::pool::{Chain, Pool};
use crate::stack::shared::Shared;
use crate::stack::wire::{Flags, Sack, Seq, TcpHeader};

/// With fewer segments left in the window, the peer may be waiting for room; otherwise ACKs of its
/// data announce it in time.
const FEW_SEGMENTS: u32 = 16;

/// A range received before the data that precedes it.
struct Early {
    start: Seq,
    end: Seq,
    piece: Piece,
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
struct Most {
    ranges: usize,
    cost: usize,
}

impl Reassembly {
    fn new(now: Time) -> Reassembly {
        Reassembly { ranges: Vec::new(), arrivals: 0, since: now }
    }

    /// Memory that it holds.
    fn cost(&self) -> usize {
        self.ranges.iter().map(|range| range.piece.cost()).sum()
    }

    /// Stores the bytes that are new. Returns whether all of them are stored now.
    fn insert(&mut self, mut seq: Seq, mut bytes: &[u8], most: Most, pool: &mut Pool) -> bool {
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
    fn fill(&mut self, i: usize, seq: Seq, bytes: &[u8], most: Most, pool: &mut Pool) -> bool {
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
            let Ok(piece) = Piece::new(bytes, pool) else { return false };
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
    fn absorb(&mut self, now: Time, mut next: Seq, inbox: &mut Chain, pool: &mut Pool) -> Seq {
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
    fn known(&self, start: Seq, end: Seq) -> Option<(Seq, Seq)> {
        let next = self.ranges.get(self.ranges.partition_point(|r| r.end.le(start)))?;
        next.start.lt(end).then(|| (next.start.max(start), next.end.min(end)))
    }

    /// Blocks to report: first the one with the latest segment, then those not reported yet, then
    /// the others; the most recent first in each group (RFC 2018 section 4).
    fn blocks(&self, sack: &mut Sack, room: usize) {
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
    fn told(&mut self, sack: &Sack) -> bool {
        for (start, _) in sack.blocks() {
            let i = self.ranges.partition_point(|r| r.start.lt(*start));
            if let Some(range) = self.ranges.get_mut(i) {
                range.fresh = false;
            }
        }
        self.ranges.iter().any(|range| range.fresh)
    }

    pub(super) fn clear(&mut self, pool: &mut Pool) {
        for range in self.ranges.drain(..) {
            range.piece.clear(pool);
        }
    }
}

impl Flow {
    /// Sends the ACK without waiting any longer for data.
    pub(crate) fn acknowledge_now(&mut self) {
        self.ack_now |= self.ack_at != Time::NEVER;
    }

    /// Handles the payload and the FIN of an acceptable segment.
    pub(super) fn handle_payload(
        &mut self,
        now: Time,
        tcp: &TcpHeader,
        payload: &[u8],
        shared: &mut Shared,
    ) -> Told {
        let fin = tcp.flags.has(Flags::FIN);
        if payload.is_empty() && !fin {
            return Told::NOTHING;
        }
        if !matches!(self.state, State::Established | State::FinWait1 | State::FinWait2) {
            // Nothing may follow the peer's FIN, so this is a duplicate from before it.
            self.ack_now = true;
            return Told::SEND;
        }
        if !payload.is_empty() {
            self.counters.data_segs_in = self.counters.data_segs_in.wrapping_add(1);
        }
        let (mut seq, mut bytes) = (tcp.seq, payload);
        if fin {
            self.fin_at = Some(seq + bytes.len() as u32);
        }
        self.note_duplicate(seq, bytes.len(), shared);
        if seq.lt(self.rcv_nxt) {
            let known = (self.rcv_nxt - seq).min(bytes.len() as u32);
            bytes = &bytes[known as usize..];
            seq += known;
            self.ack_now = true;
        }
        let room = if seq.lt(self.rcv_edge) { (self.rcv_edge - seq) as usize } else { 0 };
        if bytes.len() > room {
            // A window probe, or a peer that exceeds the window.
            bytes = &bytes[..room];
            self.fin_at = self.fin_at.filter(|_| !fin);
            self.ack_now = true;
        }
        let mut told = Told::SEND;
        if !bytes.is_empty() {
            if self.deaf {
                return Told::RESET;
            }
            told.add(if seq == self.rcv_nxt {
                self.take_next(now, bytes, shared)
            } else {
                self.take_early(now, seq, bytes, shared)
            });
        }
        if self.fin_at == Some(self.rcv_nxt) {
            self.fin_at = None;
            self.rcv_nxt += 1;
            self.rcv_edge = self.rcv_edge.max(self.rcv_nxt);
            told.add(self.handle_fin());
        } else if fin {
            self.ack_now = true;
        }
        told
    }

    fn take_next(&mut self, now: Time, bytes: &[u8], shared: &mut Shared) -> Told {
        if shared.pool.append(&mut self.inbox, bytes).is_err() {
            shared.stats.bytes_dropped += bytes.len() as u64;
            shared.early_news = true;
            return Told::NOTHING;
        }
        self.rcv_nxt += bytes.len() as u32;
        if let Some(early) = &mut self.early {
            self.rcv_nxt = early.absorb(now, self.rcv_nxt, &mut self.inbox, &mut shared.pool);
            if early.ranges.is_empty() {
                self.early = None;
            }
            // A gap was filled: the peer's recovery waits for this ACK (RFC 5681 section 4.2).
            self.ack_now = true;
        }
        self.ack_bytes += bytes.len() as u32;
        self.rcv_mss = self.rcv_mss.max((bytes.len()).min(usize::from(u16::MAX)) as u16);
        if self.ack_bytes >= 2 * u32::from(self.rcv_mss) {
            self.ack_now = true;
        } else if self.ack_at == Time::NEVER {
            self.ack_at = now + shared.limits.ack_delay;
        }
        Told::READABLE
    }

    fn take_early(&mut self, now: Time, seq: Seq, bytes: &[u8], shared: &mut Shared) -> Told {
        self.ack_now = true;
        self.counters.out_of_order = self.counters.out_of_order.wrapping_add(1);
        shared.stats.out_of_order += 1;
        shared.early_news = true;
        // Unread bytes count as well. The last range may cost a block more than its bytes.
        let cost = (shared.limits.early_bytes / 8).min(2 * self.rcv_size as usize);
        let most = Most { ranges: shared.limits.ranges, cost: cost.saturating_sub(self.inbox.len()) };
        let early = self.early.get_or_insert_with(|| Box::new(Reassembly::new(now)));
        let kept = early.insert(seq, bytes, most, &mut shared.pool);
        if !kept {
            shared.stats.bytes_dropped += bytes.len() as u64;
        }
        if early.ranges.is_empty() {
            self.early = None;
        }
        Told::NOTHING
    }

    /// Since when it has held bytes behind an open gap, if it does.
    pub(crate) fn early_since(&self) -> Option<Time> {
        self.early.as_ref().map(|early| early.since)
    }

    /// Drops bytes received out of order, as a receiver may (RFC 2018 section 8).
    pub(crate) fn drop_early(&mut self, shared: &mut Shared) {
        if let Some(mut early) = self.early.take() {
            shared.stats.bytes_dropped +=
                early.ranges.iter().map(|r| u64::from(r.end - r.start)).sum::<u64>();
            early.clear(&mut shared.pool);
        }
    }

    /// RFC 2883 section 4: records the first part of a segment that was received before.
    pub(super) fn note_duplicate(&mut self, start: Seq, len: usize, shared: &mut Shared) {
        shared.stats.duplicates_in += u64::from(len > 0 && (start + len as u32).le(self.rcv_nxt));
        let plain = start == self.rcv_nxt && self.early.is_none();
        if plain || !self.sack_on || len == 0 {
            return;
        }
        let end = start + len as u32;
        let known = if start.lt(self.rcv_nxt) {
            Some((start, end.min(self.rcv_nxt)))
        } else {
            self.early.as_ref().and_then(|early| early.known(start, end))
        };
        self.dsack = known.or(self.dsack);
    }

    /// Blocks to acknowledge selectively (RFC 2018, RFC 2883).
    pub(super) fn sack_blocks(&self) -> Sack {
        let mut sack = Sack::default();
        if self.sack_on {
            let room = crate::stack::wire::Options::sack_room(self.timestamps);
            if let Some((start, end)) = self.dsack {
                sack.push(start, end);
            }
            if let Some(early) = &self.early {
                early.blocks(&mut sack, room);
            }
        }
        sack
    }

    /// An ACK with these blocks has left. Returns whether another must follow for the remaining new
    /// blocks.
    pub(super) fn sack_told(&mut self, sack: &Sack) -> bool {
        if !sack.blocks().is_empty() {
            self.dsack = None;
        }
        self.early.as_mut().is_some_and(|early| self.sack_on && early.told(sack))
    }

    /// Lends about `most` received bytes to `take`.
    pub(crate) fn read(&mut self, now: Time, most: usize, shared: &mut Shared, take: impl FnMut(&mut [u8])) {
        let len = match self.urgent_places() {
            None => shared.pool.take(&mut self.inbox, most, take),
            Some(places) => {
                let len = shared.pool.take(&mut self.inbox, most, without(places, take));
                self.pass_urgent(places, len);
                len
            }
        };
        self.rcv_taken = self.rcv_taken.saturating_add(len as u32);
        self.grow_window(now, shared);
    }

    /// Grows the window if a window's worth was read within few round trips: it may be what limits
    /// the peer.
    fn grow_window(&mut self, now: Time, shared: &Shared) {
        if self.rcv_taken < self.rcv_size / 2 {
            return;
        }
        let most = if self.scaled { shared.limits.largest_window } else { 0xffff };
        // Before the first sample the round trip is assumed to be short.
        let soon = (self.rtt.smoothed() * 4).max(4_000_000);
        if now.nanos_since(self.rcv_since) < soon {
            self.rcv_size = self.rcv_size.saturating_mul(2).min(most.max(self.rcv_size));
        }
        (self.rcv_taken, self.rcv_since) = (0, now);
    }

    /// The right edge of the window that memory allows. It never moves back (RFC 9293 section
    /// 3.8.6), and not by small steps (section 3.8.6.2.2).
    pub(super) fn new_edge(&self) -> Seq {
        let free = self.rcv_size.saturating_sub(self.inbox.len() as u32);
        let edge = self.rcv_nxt + free;
        let step = u32::from(self.rcv_mss).min(self.rcv_size / 2);
        if edge.ge(self.rcv_edge + step) { edge } else { self.rcv_edge }
    }

    /// After a read: whether the window opened so far that the peer should learn it at once.
    pub(crate) fn note_read(&mut self) -> bool {
        let left = if self.rcv_edge.gt(self.rcv_nxt) { self.rcv_edge - self.rcv_nxt } else { 0 };
        let edge = self.new_edge();
        let grows = if edge.gt(self.rcv_edge) { edge - self.rcv_edge } else { 0 };
        let step = (2 * u32::from(self.rcv_mss)).max(self.rcv_size / 4).min(self.rcv_size / 2);
        let matters = left < (self.rcv_size / 2).min(FEW_SEGMENTS * u32::from(self.rcv_mss)) && grows >= step;
        if matters && !self.ended {
            self.ack_now = true;
        }
        matters
    }
}
