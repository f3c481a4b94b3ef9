//! A window of HTTP/2's flow control (RFC 9113, section 5.2), as its receiver gives it, and whether
//! the sender stood still because it was full.

use std::collections::VecDeque;

use crate::passive::limits::ROOMS;

/// The total of bytes that may be sent, and since when.
#[derive(Clone, Copy, Debug)]
struct Edge {
    total: i64,
    at: i64,
}

/// A window, of a stream or of a connection.
#[derive(Clone, Debug)]
pub(super) struct Room {
    edges: VecDeque<Edge>,
    sent: i64,
    /// All that the sender may send was sent, at that time.
    full: Option<i64>,
    /// The most that could be sent when the first byte was.
    size: i64,
}

/// A sender that stood still.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Full {
    /// When its last bytes passed.
    pub(super) since: i64,
    /// When the receiver gave room.
    pub(super) room_at: i64,
    /// Bytes that the window admitted in the beginning.
    pub(super) size: i64,
}

impl Room {
    pub(super) fn new(initial: u32, now: i64) -> Room {
        let first = Edge { total: i64::from(initial), at: now };
        Room { edges: VecDeque::from([first]), sent: 0, full: None, size: 0 }
    }

    /// The receiver admits this many bytes more; or fewer, when its settings change.
    pub(super) fn admit(&mut self, bytes: i64, now: i64) {
        let last = self.edges.back().map_or(0, |edge| edge.total);
        if self.edges.len() >= ROOMS {
            self.edges.pop_front();
        }
        self.edges.push_back(Edge { total: last.saturating_add(bytes), at: now });
    }

    /// Bytes passed that count. Returns how the window had held them up, if they follow a full one:
    /// exactly what had been admitted was sent, and there was no room until the receiver gave it.
    pub(super) fn sent(&mut self, bytes: u32, now: i64) -> Option<Full> {
        if bytes == 0 {
            return None;
        }
        if self.sent == 0 {
            self.size = self.edges.back().map_or(0, |edge| edge.total);
        }
        let sent = self.sent;
        let more = self.edges.iter().find(|edge| edge.total > sent);
        let full =
            self.full.take().zip(more).map(|(since, edge)| Full { since, room_at: edge.at, size: self.size });
        self.sent = self.sent.saturating_add(i64::from(bytes));
        while self.edges.get(1).is_some_and(|next| next.total <= self.sent) {
            self.edges.pop_front();
        }
        self.full = self.edges.front().is_some_and(|edge| edge.total == self.sent).then_some(now);
        full
    }
}

/// The sender went on later than this after the receiver's word had reached it: it was not ready
/// before, and the window is not why, nanoseconds.
const READY_NS: i64 = 3_000_000;
/// The receiver gave room later than this after the bytes had reached it: it had not read them,
/// nanoseconds. Reason: receivers that read at once are scheduled within some milliseconds.
const READ_NS: i64 = 15_000_000;

impl Full {
    /// Its cost for the stream whose bytes passed now, and whether because the receiver did not read.
    /// `to_sender`, `to_receiver`: round trips from where we capture to either end. `None`: the
    /// window was not what the sender waited for.
    pub(super) fn cost(&self, now: i64, (to_sender, to_receiver): (i64, i64)) -> Option<(i64, bool)> {
        let known = self.room_at.saturating_add(to_sender);
        let follows = now.saturating_sub(known) <= to_sender / 4 + READY_NS;
        let late = (self.room_at - self.since).saturating_sub(to_receiver);
        let unread = late > READ_NS;
        // The receiver's own time was most of it, and too short to blame it.
        let neither = !unread && late > to_sender.saturating_add(to_receiver);
        // Room that the sender knew of before it stopped was not what it waited for.
        (follows && !neither && known > self.since).then_some((now - self.since, unread))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: i64 = 1_000_000;

    #[test]
    fn a_sender_stops_at_the_edge() {
        let mut room = Room::new(65_535, 0);
        assert_eq!(room.sent(49_152, MS), None);
        // The receiver gives room before all was sent: seen near the receiver.
        room.admit(40_000, 2 * MS);
        assert_eq!(room.sent(16_383, 3 * MS), None);
        let full = room.sent(1_000, 42 * MS).expect("it was full");
        assert_eq!(full, Full { since: 3 * MS, room_at: 2 * MS, size: 65_535 });
        assert_eq!(full.cost(42 * MS, (40 * MS, 0)), Some((39 * MS, false)));
        // Near the sender, which knew of the room when it stopped.
        assert_eq!(full.cost(42 * MS, (0, 40 * MS)), None);
        // It was not ready.
        assert_eq!(full.cost(100 * MS, (40 * MS, 0)), None);
        assert_eq!(room.sent(1_000, 43 * MS), None, "there was room");
    }

    #[test]
    fn a_receiver_that_does_not_read() {
        let mut room = Room::new(10, 0);
        assert_eq!(room.sent(10, MS), None);
        room.admit(10, 200 * MS);
        let full = room.sent(10, 201 * MS).expect("it was full");
        assert_eq!(full.cost(201 * MS, (0, 40 * MS)), Some((200 * MS, true)));
        assert_eq!(full.cost(201 * MS, (0, 199 * MS)), Some((200 * MS, false)));
        // On loopback a millisecond is the receiver's own time.
        assert_eq!(Full { room_at: 2 * MS, ..full }.cost(2 * MS, (0, 0)), None);
        // Settings take room away again.
        room.admit(-10, 202 * MS);
        room.admit(20, 240 * MS);
        assert_eq!(room.sent(5, 241 * MS).map(|f| f.room_at), Some(240 * MS));
    }
}
