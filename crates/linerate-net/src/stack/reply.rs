//! Segments that belong to no connection: resets, SYN-ACKs, ACKs of connections that are over.

use std::collections::VecDeque;

use super::stats::StackStats;
use super::tuple::Tuple;
use super::wire::{Flags, Seq, TcpHeader};
use crate::Time;

/// Replies that wait for the link. Reason: only a flood creates them faster than the link takes
/// them. Before it drops any, the stack leaves packets in the link.
const WAITING: usize = 4096;

/// The queue of replies, with a rate limit.
pub(crate) struct Replies {
    queue: VecDeque<(Tuple, TcpHeader)>,
    /// Replies that found no room.
    dropped: u64,
    per_s: u64,
    /// Resets that may be sent, in billionths.
    tokens: u64,
    filled_at: Time,
}

impl Replies {
    pub(crate) fn new(per_s: u32) -> Replies {
        let per_s = u64::from(per_s.max(1));
        let tokens = per_s * 1_000_000_000;
        Replies { queue: VecDeque::new(), dropped: 0, per_s, tokens, filled_at: Time::ZERO }
    }

    /// Queues a reply; a flood may drop it, as the network could.
    pub(crate) fn push(&mut self, tuple: &Tuple, tcp: TcpHeader) {
        if self.room() > 0 {
            self.queue.push_back((*tuple, tcp));
        } else {
            self.dropped += 1;
        }
    }

    /// How many more may wait.
    pub(crate) fn room(&self) -> usize {
        WAITING.saturating_sub(self.queue.len())
    }

    /// Whether so many wait that retransmissions should come later.
    pub(crate) fn is_behind(&self) -> bool {
        self.queue.len() >= WAITING / 2
    }

    pub(crate) fn dropped(&self) -> u64 {
        self.dropped
    }

    pub(crate) fn front(&self) -> Option<&(Tuple, TcpHeader)> {
        self.queue.front()
    }

    pub(crate) fn len(&self) -> usize {
        self.queue.len()
    }

    pub(crate) fn pop(&mut self) {
        self.queue.pop_front();
    }

    /// Answers a segment without a connection by a reset (RFC 9293 section 3.10.7.1), at a limited
    /// rate.
    pub(crate) fn reset(
        &mut self,
        now: Time,
        tuple: &Tuple,
        to: &TcpHeader,
        len: usize,
        stats: &mut StackStats,
    ) {
        if to.flags.has(Flags::RST) {
            return;
        }
        if !self.take_token(now) {
            stats.replies_withheld += 1;
            return;
        }
        let ends = u32::from(to.flags.has(Flags::SYN)) + u32::from(to.flags.has(Flags::FIN));
        let (seq, ack, flags) = if to.flags.has(Flags::ACK) {
            (to.ack, Seq(0), Flags::RST)
        } else {
            (Seq(0), to.seq + len as u32 + ends, Flags::RST | Flags::ACK)
        };
        stats.resets_out += 1;
        let reset = TcpHeader {
            src_port: tuple.local_port,
            dst_port: tuple.remote_port,
            seq,
            ack,
            flags,
            ..TcpHeader::default()
        };
        self.push(tuple, reset);
    }

    fn take_token(&mut self, now: Time) -> bool {
        let full = self.per_s * 1_000_000_000;
        let earned = now.nanos_since(self.filled_at).saturating_mul(self.per_s);
        self.tokens = self.tokens.saturating_add(earned).min(full);
        self.filled_at = now;
        if self.tokens < 1_000_000_000 {
            return false;
        }
        self.tokens -= 1_000_000_000;
        true
    }
}
