//! The link between the stack and packetdrill's interface, with the only clock.

use std::collections::VecDeque;
use std::io;
use std::net::IpAddr;

use linerate_net::link::{Checksums, Link};
use linerate_net::{Time, Waker};

/// A link whose other end is a script.
pub(crate) struct ScriptedWire {
    pub(crate) now: Time,
    /// Packets to the stack.
    pub(crate) inbox: VecDeque<Vec<u8>>,
    /// Packets from the stack, with their times.
    pub(crate) outbox: VecDeque<(Time, Vec<u8>)>,
    pub(crate) mtu: usize,
    waker: Waker,
}

impl ScriptedWire {
    pub(crate) fn new(now: Time) -> io::Result<ScriptedWire> {
        let (inbox, outbox) = (VecDeque::new(), VecDeque::new());
        Ok(ScriptedWire { now, inbox, outbox, mtu: 1500, waker: Waker::new()? })
    }
}

impl Link for ScriptedWire {
    fn now(&mut self) -> Time {
        self.now
    }

    fn receive(&mut self, max: usize, mut take: impl FnMut(&mut [u8])) -> usize {
        let count = max.min(self.inbox.len());
        self.inbox.drain(..count).for_each(|mut packet| take(&mut packet));
        count
    }

    fn transmit(&mut self, _to: IpAddr, len: usize, fill: impl FnOnce(&mut [u8])) -> bool {
        let mut packet = vec![0; len];
        fill(&mut packet);
        self.outbox.push_back((self.now, packet));
        true
    }

    fn has_room(&mut self) -> bool {
        true
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }

    /// No packet comes by itself, so waiting just advances the clock.
    fn wait(&mut self, until: Option<Time>) -> io::Result<bool> {
        if self.inbox.is_empty()
            && let Some(until) = until
        {
            self.now = self.now.max(until);
        }
        Ok(false)
    }

    fn waker(&self) -> Waker {
        self.waker.clone()
    }

    fn mtu(&mut self, _to: IpAddr) -> usize {
        self.mtu
    }

    fn checksums(&self) -> Checksums {
        Checksums::Full
    }
}
