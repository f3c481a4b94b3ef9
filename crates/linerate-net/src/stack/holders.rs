//! The connections that hold bytes received out of order, and which of them drop those if there are
//! too many. Honest gaps close within a few round trips, so those open longest are dropped first.

use std::collections::VecDeque;

use super::core::Core;
use crate::{Conn, Time};

/// Room made at once if bytes in order find none. Reason: their peer retransmits them, and others
/// follow.
const ROOM: usize = 1 << 20;

/// Connections that hold bytes behind a gap, with the time since which it was open when last
/// examined; the longest first.
#[derive(Default)]
pub(super) struct Holders {
    list: VecDeque<(Conn, Time)>,
    /// Above this length, closed connections are removed.
    tidy_at: usize,
}

impl Core {
    /// Bytes of this connection came out of order, or found no room.
    #[cold]
    pub(super) fn note_early(&mut self, conn: Conn) {
        if let Some(entry) = self.table.get_mut(conn)
            && !entry.holds
            && let Some(since) = entry.flow.early_since()
        {
            entry.holds = true;
            self.holders.list.push_back((conn, since));
            if self.holders.list.len() > self.holders.tidy_at.max(64) {
                let table = &self.table;
                self.holders.list.retain(|(conn, _)| table.get(*conn).is_some());
                self.holders.tidy_at = 2 * self.holders.list.len();
            }
        }
        while self.shared.pool.early() > self.shared.limits.early_bytes && self.drop_oldest() {}
        if !self.shared.pool.has_room(1 << 16) {
            self.drop_early_until(ROOM);
            if !self.shared.pool.has_room(1 << 16) {
                self.end_stalled(0);
            }
        }
    }

    /// Drops bytes received out of order until this many others fit, or none are left.
    #[cold]
    pub(super) fn drop_early_until(&mut self, room: usize) {
        while !self.shared.pool.has_room(room) && self.drop_oldest() {}
    }

    /// Drops those of the oldest gap; false if none are left.
    fn drop_oldest(&mut self) -> bool {
        let Some((conn, since)) = self.holders.list.pop_front() else { return false };
        let Some(entry) = self.table.get_mut(conn) else { return true };
        match entry.flow.early_since() {
            None => entry.holds = false,
            // By now it has another gap.
            Some(later) if later > since => self.holders.list.push_back((conn, later)),
            Some(_) => {
                entry.holds = false;
                entry.flow.drop_early(&mut self.shared);
            }
        }
        true
    }
}
