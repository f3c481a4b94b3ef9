//! Receives bytes, in order, early or again (RFC 9293 section 3.10.7.4, seventh check), and decides
//! how large a window to announce.

use super::reassembly::{Most, Reassembly};
use super::urgent::without;
use super::{Flow, FlowActions, TcpState};
use crate::Time;
use crate::stack::pool::Cursor;
use crate::stack::shared::SharedPools;
use crate::stack::wire::{Flags, Sack, Seq, TcpHeader};

/// With fewer segments left in the window, the peer may be waiting for room; otherwise ACKs of its
/// data announce it in time.
const FEW_SEGMENTS: u32 = 16;

impl Flow {
    /// Sends the ACK without waiting any longer for data.
    pub(crate) fn acknowledge_now(&mut self) {
        self.acks.now |= self.acks.at != Time::NEVER;
    }

    /// Handles the payload and the FIN of an acceptable segment.
    pub(super) fn handle_payload(
        &mut self,
        now: Time,
        tcp: &TcpHeader,
        payload: &[u8],
        shared: &mut SharedPools,
    ) -> FlowActions {
        let fin = tcp.flags.has(Flags::FIN);
        if payload.is_empty() && !fin {
            return FlowActions::NOTHING;
        }
        if !matches!(self.state, TcpState::Established | TcpState::FinWait1 | TcpState::FinWait2) {
            // Nothing may follow the peer's FIN, so this is a duplicate from before it.
            self.acks.now = true;
            return FlowActions::SEND;
        }
        if !payload.is_empty() {
            self.counters.data_segs_in = self.counters.data_segs_in.wrapping_add(1);
        }
        let (mut seq, mut bytes) = (tcp.seq, payload);
        if fin {
            self.receive.fin_at = Some(seq + bytes.len() as u32);
        }
        self.note_duplicate(seq, bytes.len(), shared);
        if seq.lt(self.receive.nxt) {
            let known = (self.receive.nxt - seq).min(bytes.len() as u32);
            bytes = &bytes[known as usize..];
            seq += known;
            self.acks.now = true;
        }
        let room = if seq.lt(self.receive.edge) { (self.receive.edge - seq) as usize } else { 0 };
        if bytes.len() > room {
            // A window probe, or a peer that exceeds the window.
            bytes = &bytes[..room];
            self.receive.fin_at = self.receive.fin_at.filter(|_| !fin);
            self.acks.now = true;
        }
        let mut told = FlowActions::SEND;
        if !bytes.is_empty() {
            if self.receive.deaf || self.receive.shut {
                return FlowActions::RESET;
            }
            told.add(if seq == self.receive.nxt {
                self.take_next(now, bytes, shared)
            } else {
                self.take_early(now, seq, bytes, shared)
            });
        }
        if self.receive.fin_at == Some(self.receive.nxt) {
            self.receive.fin_at = None;
            self.receive.nxt += 1;
            self.receive.edge = self.receive.edge.max(self.receive.nxt);
            told.add(self.handle_fin());
        } else if fin {
            self.acks.now = true;
        }
        told
    }

    fn take_next(&mut self, now: Time, bytes: &[u8], shared: &mut SharedPools) -> FlowActions {
        if shared.pool.append(&mut self.receive.inbox, bytes).is_err() {
            shared.stats.bytes_dropped += bytes.len() as u64;
            shared.early_news = true;
            return FlowActions::NOTHING;
        }
        self.receive.nxt += bytes.len() as u32;
        if let Some(early) = &mut self.receive.early {
            self.receive.nxt = early.absorb(now, self.receive.nxt, &mut self.receive.inbox, &mut shared.pool);
            if early.is_empty() {
                self.receive.early = None;
            }
            // A gap was filled: the peer's recovery waits for this ACK (RFC 5681 section 4.2).
            self.acks.now = true;
        }
        self.acks.bytes += bytes.len() as u32;
        // A link may hand over several segments as one.
        let len = bytes.len().min(usize::from(shared.largest_segment)) as u16;
        self.receive.mss = self.receive.mss.max(len);
        if self.acks.bytes >= 2 * u32::from(self.receive.mss) {
            self.acks.now = true;
        } else if self.acks.at == Time::NEVER {
            self.acks.at = now + shared.limits.ack_delay;
        }
        FlowActions::READABLE
    }

    fn take_early(&mut self, now: Time, seq: Seq, bytes: &[u8], shared: &mut SharedPools) -> FlowActions {
        self.acks.now = true;
        self.counters.out_of_order = self.counters.out_of_order.wrapping_add(1);
        shared.stats.out_of_order += 1;
        shared.early_news = true;
        // Unread bytes count as well. The last range may cost a block more than its bytes.
        let cost = (shared.limits.early_bytes / 8).min(2 * self.receive.size as usize);
        let most = Most { ranges: shared.limits.ranges, cost: cost.saturating_sub(self.receive.inbox.len()) };
        let early = self.receive.early.get_or_insert_with(|| Box::new(Reassembly::new(now)));
        let kept = early.insert(seq, bytes, most, &mut shared.pool);
        if !kept {
            shared.stats.bytes_dropped += bytes.len() as u64;
        }
        if early.is_empty() {
            self.receive.early = None;
        }
        FlowActions::NOTHING
    }

    /// Since when it has held bytes behind an open gap, if it does.
    pub(crate) fn early_since(&self) -> Option<Time> {
        self.receive.early.as_ref().map(|early| early.since())
    }

    /// Drops bytes received out of order, as a receiver may (RFC 2018 section 8).
    pub(crate) fn drop_early(&mut self, shared: &mut SharedPools) {
        if let Some(mut early) = self.receive.early.take() {
            shared.stats.bytes_dropped += early.bytes();
            early.clear(&mut shared.pool);
        }
    }

    /// RFC 2883 section 4: records the first part of a segment that was received before.
    pub(super) fn note_duplicate(&mut self, start: Seq, len: usize, shared: &mut SharedPools) {
        shared.stats.duplicates_in += u64::from(len > 0 && (start + len as u32).le(self.receive.nxt));
        let plain = start == self.receive.nxt && self.receive.early.is_none();
        if plain || !self.agreed.sack || len == 0 {
            return;
        }
        let end = start + len as u32;
        let known = if start.lt(self.receive.nxt) {
            Some((start, end.min(self.receive.nxt)))
        } else {
            self.receive.early.as_ref().and_then(|early| early.known(start, end))
        };
        self.acks.dsack = known.or(self.acks.dsack);
    }

    /// Blocks to acknowledge selectively (RFC 2018, RFC 2883).
    pub(super) fn sack_blocks(&self) -> Sack {
        let mut sack = Sack::default();
        if self.agreed.sack {
            let room = crate::stack::wire::Options::sack_room(self.agreed.timestamps);
            if let Some((start, end)) = self.acks.dsack {
                sack.push(start, end);
            }
            if let Some(early) = &self.receive.early {
                early.blocks(&mut sack, room);
            }
        }
        sack
    }

    /// An ACK with these blocks has left. Returns whether another must follow for the remaining new
    /// blocks.
    pub(super) fn sack_told(&mut self, sack: &Sack) -> bool {
        if !sack.blocks().is_empty() {
            self.acks.dsack = None;
        }
        self.receive.early.as_mut().is_some_and(|early| self.agreed.sack && early.told(sack))
    }

    /// Lends about `most` received bytes to `take`.
    pub(crate) fn read(
        &mut self,
        now: Time,
        most: usize,
        shared: &mut SharedPools,
        take: impl FnMut(&mut [u8]),
    ) {
        let len = match self.urgent_places() {
            None => shared.pool.take(&mut self.receive.inbox, most, take),
            Some(places) => {
                let len = shared.pool.take(&mut self.receive.inbox, most, without(places, take));
                self.pass_urgent(places, len);
                len
            }
        };
        self.receive.taken = self.receive.taken.saturating_add(len as u32);
        self.grow_window(now, shared);
    }

    /// Bytes received in order, without urgent ones.
    pub(crate) fn unread(&self) -> usize {
        let len = self.receive.inbox.len();
        let urgent = self.urgent_places().map_or(0, |at| at.iter().filter(|at| **at < len).count());
        len - urgent
    }

    /// The bytes up to the next urgent one, which is removed if it is the first.
    fn plain(&mut self, shared: &mut SharedPools) -> usize {
        loop {
            let len = self.receive.inbox.len();
            let Some(places) = self.urgent_places() else { return len };
            let first = places[0].min(places[1]);
            if first > 0 || len == 0 {
                return first.min(len);
            }
            shared.pool.consume(&mut self.receive.inbox, 1);
            self.pass_urgent(places, 1);
        }
    }

    /// Copies the first received bytes.
    pub(crate) fn peek(&mut self, into: &mut [u8], shared: &mut SharedPools) -> usize {
        let len = self.plain(shared).min(into.len());
        let mut cursor = Cursor::default();
        shared.pool.copy(&self.receive.inbox, &shared.lent, &mut cursor, 0, &mut into[..len]);
        len
    }

    /// Removes up to `most` of the first received bytes.
    pub(crate) fn skip(&mut self, now: Time, most: usize, shared: &mut SharedPools) -> usize {
        let len = self.plain(shared).min(most);
        let places = self.urgent_places();
        shared.pool.consume(&mut self.receive.inbox, len);
        if let Some(places) = places {
            self.pass_urgent(places, len);
        }
        self.receive.taken = self.receive.taken.saturating_add(len as u32);
        self.grow_window(now, shared);
        len
    }

    /// Grows the window if a window's worth was read within few round trips: it may be what limits
    /// the peer.
    fn grow_window(&mut self, now: Time, shared: &SharedPools) {
        if self.receive.taken < self.receive.size / 2 {
            return;
        }
        let most = if self.agreed.scaled { shared.limits.largest_window } else { 0xffff };
        // Before the first sample the round trip is assumed to be short.
        let soon = (self.rtt.smoothed() * 4).max(4_000_000);
        if now.nanos_since(self.receive.since) < soon {
            self.receive.size = self.receive.size.saturating_mul(2).min(most.max(self.receive.size));
        }
        (self.receive.taken, self.receive.since) = (0, now);
    }

    /// The right edge of the window that memory allows. It never moves back (RFC 9293 section
    /// 3.8.6), and not by small steps (section 3.8.6.2.2).
    pub(super) fn new_edge(&self) -> Seq {
        let free = self.receive.size.saturating_sub(self.receive.inbox.len() as u32);
        let edge = self.receive.nxt + free;
        let step = u32::from(self.receive.mss).min(self.receive.size / 2);
        if edge.ge(self.receive.edge + step) { edge } else { self.receive.edge }
    }

    /// After a read: whether the window opened so far that the peer should learn it at once.
    pub(crate) fn note_read(&mut self) -> bool {
        let left =
            if self.receive.edge.gt(self.receive.nxt) { self.receive.edge - self.receive.nxt } else { 0 };
        let edge = self.new_edge();
        let grows = if edge.gt(self.receive.edge) { edge - self.receive.edge } else { 0 };
        let step = (2 * u32::from(self.receive.mss)).max(self.receive.size / 4).min(self.receive.size / 2);
        let matters =
            left < (self.receive.size / 2).min(FEW_SEGMENTS * u32::from(self.receive.mss)) && grows >= step;
        if matters && !self.receive.ended {
            self.acks.now = true;
        }
        matters
    }
}
