//! What comes in: packets, and then the timers that speak of packets which did not come.

use std::time::Duration;

use super::Stack;
use crate::link::Link;
use crate::{Event, Time};

/// Packets after which timers run though the link never had nothing left. Reason: no ring holds more, so whatever had come by then
/// was read; and a link that always has more must not stop the timers.
const UNREAD: usize = 1 << 14;

/// An application that keeps the turn for longer is slow: a peer that probes for a lost tail does so after 10 ms or so.
const LONG: Duration = Duration::from_millis(4);

/// Turns for which an application counts as slow. Reason: it is likely to be slow again, and what it costs when it isn't is an ACK of
/// its own in so many turns.
const SLOW_TURNS: u8 = 4;

/// Packets that may lie unread in the link.
#[derive(Clone, Copy, Debug)]
pub(super) struct Unread {
    /// They came after this.
    since: Time,
    /// How many were read since.
    read: usize,
}

impl<L: Link> Stack<L> {
    /// A turn begins; the application had the time since the last one.
    pub(super) fn note_absence(&mut self) {
        let now = self.link.now_anew();
        if now.nanos_since(self.core.now) > LONG.as_nanos() as u64 {
            self.slow = SLOW_TURNS;
        } else {
            self.slow = self.slow.saturating_sub(1);
        }
        self.core.now = now;
    }

    /// Packets are taken in, and timers run.
    ///
    /// A timer of TCP speaks of silence, so it runs only when what had come by then was read: a process that stood still for longer
    /// than a time-out finds the ACK in the ring, and has nothing to send again.
    pub(super) fn take_packets(&mut self, events: &mut Vec<Event>) {
        let core = &mut self.core;
        core.now = self.link.now();
        let (checksums, most) = (self.link.checksums(), core.shared.limits.packets_per_turn);
        // For a SYN's answer the link's own size will do: narrower paths are learnt when a connection is not answered.
        let mtu = self.link.mtu([0, 0, 0, 0].into());
        if std::mem::replace(&mut core.mtu, mtu) > mtu {
            core.narrow(mtu);
        }
        let mut taken = 0;
        // A link may lend only what it knew of when it looked last.
        while taken < most {
            match self.link.receive(most - taken, |packet| core.handle_packet(packet, checksums, mtu, events))
            {
                0 => break,
                count => taken += count,
            }
        }
        core.expire_closed();
        if let Some(at) = self.read_until(taken, most) {
            self.core.expire(at, mtu, events);
        }
    }

    /// Everything that came before this time was read; `None`: nothing new is known.
    fn read_until(&mut self, taken: usize, most: usize) -> Option<Time> {
        if taken < most {
            self.unread = None;
            return Some(self.core.now);
        }
        let unread = self.unread.get_or_insert(Unread { since: self.core.now, read: 0 });
        unread.read += taken;
        if unread.read < UNREAD {
            return None;
        }
        self.unread.take().map(|unread| unread.since)
    }

    /// Before a slow application has its turn, peers hear that what they sent has arrived, as a kernel tells them whatever an
    /// application does: else they take the silence for a loss. ACKs that travel with a fast one's answers cost nothing.
    pub(super) fn acknowledge_before(&mut self) -> std::io::Result<()> {
        if self.slow == 0 {
            return Ok(());
        }
        let core = &mut self.core;
        for slot in &core.dirty {
            if let Some((_, entry)) = core.table.by_slot(*slot) {
                entry.flow.acknowledge_now();
            }
        }
        self.flush()
    }
}
