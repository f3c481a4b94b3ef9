//! Connections whose peers take nothing: they end once memory is lacking, so that others have some.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::time::Duration;

use super::core::Core;
use crate::{Conn, NetError, NetErrorKind};

/// Connections that end at once, at most. Reason: the list of candidates is memory too, and these
/// free tens of megabytes.
const AT_ONCE: usize = 1024;

/// With less room than this, connections end after a tenth of the time. Reason: one full segment or
/// request finds none.
const URGENT: usize = 1 << 16;

impl Core {
    /// Makes room for bytes that are about to be queued on this connection. Refuses them if it has
    /// to wait: memory is short, and it holds some already.
    #[cold]
    pub(super) fn make_memory_for(&mut self, conn: Conn, len: usize) -> Result<(), NetError> {
        if !self.shared.pool.has_room(len) {
            self.drop_early_until(len);
        }
        if !self.shared.pool.has_room_beyond_reserve(len) {
            self.end_stalled(len);
        }
        let Some(entry) = self.table.get(conn) else { return Ok(()) };
        if let Some(error) = entry.flow.error {
            return Err(error);
        }
        let is_short = !self.shared.pool.has_room_beyond_reserve(len);
        if is_short && entry.flow.held_back(&self.shared) > 0 {
            return Err(NetError::of(NetErrorKind::NoMemory));
        }
        Ok(())
    }

    /// Ends connections whose peers have taken nothing for some time, those stalled longest first,
    /// until there is room for so many bytes beside the reserve.
    #[cold]
    pub(super) fn end_stalled(&mut self, len: usize) {
        // Where nothing is left at all, bytes of every connection are lost meanwhile.
        let urgent = !self.shared.pool.has_room(URGENT);
        let least = self.shared.limits.stalled / if urgent { 10 } else { 1 };
        if self.now < self.next_stalled[usize::from(urgent)] {
            return;
        }
        let least_ms = u32::try_from(least.as_millis()).unwrap_or(u32::MAX);
        let (mut oldest, mut longest) = (BinaryHeap::new(), 0);
        for slot in 0..self.table.slots() as u32 {
            let stalled = self.table.at(slot).map_or(0, |entry| entry.flow.stalled_ms(self.now));
            longest = longest.max(stalled);
            if stalled >= least_ms.max(1) {
                oldest.push((Reverse(stalled), slot));
            }
            if oldest.len() > AT_ONCE {
                oldest.pop();
            }
        }
        if oldest.is_empty() {
            // The search visits every connection, so the next one is when it may find some.
            let wait = Duration::from_millis(u64::from(least_ms.saturating_sub(longest).max(1)));
            self.next_stalled[usize::from(urgent)] = self.now + wait;
        }
        for (_, slot) in oldest.into_sorted_vec() {
            if self.shared.pool.has_room_beyond_reserve(len) {
                return;
            }
            if let Some((conn, _)) = self.table.by_slot(slot) {
                self.starve(conn);
            }
        }
    }

    /// Ends a connection. The application and the peer learn of it.
    fn starve(&mut self, conn: Conn) {
        let Some(entry) = self.table.get_mut(conn) else { return };
        let (tuple, reset) = (entry.flow.tuple, entry.flow.reset_header());
        entry.flow.starve();
        self.shared.stats.stalled_ended += 1;
        self.shared.stats.resets_out += 1;
        self.replies.push(&tuple, reset);
        let mut events = std::mem::take(&mut self.pending);
        self.failed(conn, &mut events);
        self.pending = events;
    }
}
