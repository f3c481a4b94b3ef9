//! Takes packets in, and then runs the timers that react to missing packets.

use std::net::{IpAddr, Ipv4Addr};
use std::time::Duration;

use super::Stack;
use super::core::mss_of;
use super::wire::Addr;
use crate::link::Link;
use crate::{Event, Time};

/// Packets after which timers run though the link was never empty. Reason: no ring holds more, so
/// everything received by then was handled; and a link that always has more must not stop the
/// timers.
const UNREAD: usize = 1 << 14;

/// An application that takes longer in one turn is slow: a peer probes for a lost tail after about
/// 10 ms.
const LONG: Duration = Duration::from_millis(4);

/// Turns for which an application counts as slow. Reason: it is likely to be slow again. If not,
/// the cost is one separate ACK in each of these turns.
const SLOW_TURNS: u8 = 4;

/// Packets that may lie unread in the link.
#[derive(Clone, Copy, Debug)]
pub(super) struct Unread {
    /// When the packets that may be unread began to arrive.
    since: Time,
    /// How many were read since.
    read: usize,
}

impl<L: Link> Stack<L> {
    /// A turn begins; the application ran since the last one.
    pub(super) fn note_absence(&mut self) {
        let now = self.link.now_anew();
        if now.nanos_since(self.core.now) > LONG.as_nanos() as u64 {
            self.slow = SLOW_TURNS;
        } else {
            self.slow = self.slow.saturating_sub(1);
        }
        self.core.now = now;
    }

    /// Takes packets in and runs timers.
    ///
    /// Timers fire only after all packets already received were handled. So a process that was held
    /// up for longer than a timeout finds the ACK in the ring and retransmits nothing.
    pub(super) fn take_packets(&mut self, events: &mut Vec<Event>) {
        let core = &mut self.core;
        core.now = self.link.now();
        if core.is_flooded() {
            self.link.expect_flood();
        }
        // Packets whose replies would be dropped stay in the link: it has room for many.
        let most = core.shared.limits.packets_per_turn.min(core.replies.room());
        let checksums = self.link.checksums();
        // The link's own MTU suffices for a SYN-ACK: narrower paths are learnt when segments are
        // not acknowledged.
        let mtu = self.link.mtu([0, 0, 0, 0].into());
        let before = std::mem::replace(&mut core.mtu, mtu);
        if before != mtu {
            // IPv4 has the shorter header.
            core.shared.largest_segment = mss_of(mtu, &Addr::from(IpAddr::V4(Ipv4Addr::UNSPECIFIED)));
        }
        if before > mtu {
            core.narrow(mtu);
        }
        let mut taken = 0;
        // A link may lend only what it had when it last looked.
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

    /// Everything received before this time was handled; `None`: nothing new is known.
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

    /// Before a slow application runs, peers get ACKs of their data, as a kernel sends them
    /// whatever the application does. Otherwise they take the silence for a loss. With a fast
    /// application, ACKs travel with its responses and cost nothing.
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
