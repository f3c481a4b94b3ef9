//! The window that one end advertises, and whether it stopped the other end from sending. At a
//! short distance, a reader that is too slow closes its window. At a long distance, the bytes in
//! flight fill the buffer first, and the window stays small instead.

use std::collections::VecDeque;

use crate::passive::limits::EDGES;
use crate::passive::packet::{Segment, flag};

use super::sequence::before;

/// A window as it was advertised.
#[derive(Clone, Copy, Debug)]
struct Edge {
    at: i64,
    /// After the last byte that may be sent.
    end: u32,
    size: u32,
    /// The largest window advertised before it. A window that only grows (receive buffers grow with
    /// use) is not a slow reader.
    most: u32,
}

/// The windows that one end advertised lately.
#[derive(Debug, Default)]
pub(super) struct Window {
    edges: VecDeque<Edge>,
    most: u32,
}

/// A segment without an MSS in the handshake is taken to be no larger than this (RFC 9293, section
/// 3.7.1).
const MSS: u16 = 536;

impl Window {
    /// A segment of this end. `scale`: of its window, when the handshake told it; `to_sender_ns`:
    /// the round trip from where we capture to the other end, which knows what was advertised that
    /// long ago.
    pub(super) fn advertised(&mut self, s: &Segment<'_>, now: i64, scale: Option<u8>, to_sender_ns: i64) {
        let Some(scale) = scale.filter(|_| s.has(flag::ACK) && !s.has(flag::SYN | flag::RST)) else { return };
        let size = u32::from(s.window) << scale.min(14);
        let edge = Edge { at: now, end: s.ack.wrapping_add(size), size, most: self.most };
        self.most = self.most.max(size);
        while self.edges.len() > 1 && self.edges[1].at <= now - to_sender_ns {
            self.edges.pop_front();
        }
        if self.edges.len() >= EDGES {
            // The value known here is newer than what the sender knew: its room looks larger, so
            // fewer stalls are reported.
            self.edges.pop_front();
        }
        self.edges.push_back(edge);
    }

    /// Up to where the other end knows that it may send.
    pub(super) fn known(&self, now: i64, to_sender_ns: i64) -> Option<u32> {
        self.edges.iter().rev().find(|e| e.at <= now - to_sender_ns).map(|e| e.end)
    }

    /// Up to where this end lets the other one send.
    pub(super) fn admits(&self) -> Option<u32> {
        self.edges.back().map(|e| e.end)
    }

    /// Its size now.
    pub(super) fn size(&self) -> Option<u32> {
        self.edges.back().map(|e| e.size)
    }

    /// Data up to `end` did not fit into what was `admitted` before: when it was admitted.
    pub(super) fn room_since(&self, admitted: u32, end: u32) -> Option<i64> {
        let edge = self.edges.iter().find(|e| !before(e.end, end))?;
        before(admitted, end).then_some(edge.at)
    }

    /// The other end's data up to `end` fills what had been advertised when it was sent, and that
    /// was less than half of the largest window: the buffer was mostly full of what was not read.
    /// The window's size then.
    pub(super) fn filled(&self, end: u32, now: i64, to_sender_ns: i64, mss: Option<u16>) -> Option<u32> {
        let known = self.edges.iter().rev().find(|e| e.at <= now - to_sender_ns)?;
        let room = known.end.wrapping_sub(end);
        let full = before(known.end, end) || room < 2 * u32::from(mss.unwrap_or(MSS));
        (full && known.size > 0 && known.size < known.most / 2).then_some(known.size)
    }
}
