//! Packets that were captured twice: a packet passes two captured interfaces, or a mirrored port
//! sees it in both directions, or it is seen inside and outside of a tunnel. Both copies have the
//! same IP identification and segment within a millisecond. The second copy is not a
//! retransmission.

use std::collections::VecDeque;

use crate::passive::limits::LATELY;
use crate::passive::packet::{Endpoint, Segment};

/// Longest time between copies. Reason: no sender retransmits so soon, and a retransmission has
/// another identification.
const COPY_NS: i64 = 1_000_000;

/// The fields that both copies share.
type Key = (Endpoint, Endpoint, u16, u32, u32, u8, u32);

/// The last packets.
#[derive(Debug, Default)]
pub(in crate::passive) struct Lately(VecDeque<(Key, u8, i64)>);

impl Lately {
    /// It is a copy of one of the last packets; else it is remembered.
    pub(in crate::passive) fn is_again(&mut self, s: &Segment<'_>, now: i64) -> bool {
        // Linux does not number packets that must not be fragmented and have no connection, so 0
        // identifies nothing: then both copies have different headers, as inside and outside of a
        // tunnel.
        let key = (s.src, s.dst, s.id, s.seq, s.ack, s.flags, s.len);
        let again = self.0.iter().rev().any(|(seen, depth, at)| {
            *seen == key && (s.id != 0 || s.depth != *depth) && (now - at).abs() < COPY_NS
        });
        if !again {
            if self.0.len() >= LATELY {
                self.0.pop_front();
            }
            self.0.push_back((key, s.depth, now));
        }
        again
    }
}
