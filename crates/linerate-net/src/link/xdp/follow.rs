//! Follows changes of the interface: it may go down and up again, or be removed.

use std::io;
use std::net::IpAddr;

use super::Xdp;
use super::limits::{LOOK_FOR_NEWS, SAID};
use super::netlink::Interface;
use super::news::News;
use crate::Time;
use crate::sys::xdp::QueueSocket;

impl Xdp {
    /// Makes the kernel send. A link that is down has lost the packets, as a network would; a
    /// removed interface is an error.
    pub(super) fn kick(&mut self) -> io::Result<()> {
        if self.detour.as_ref().is_some_and(|detour| detour.is_gone) {
            return Err(io::Error::other("the interface of its last connections was removed"));
        }
        match self.queues.first_mut().map_or(Ok(()), QueueSocket::kick) {
            Ok(()) => Ok(()),
            Err(e) if e.raw_os_error() == Some(libc::ENETDOWN) => {
                // A notification, or the periodic look at a link that is down, will show that it is
                // up again.
                self.is_up = false;
                self.look_for_news = self.look_for_news.min(self.clock.now() + LOOK_FOR_NEWS);
                Ok(())
            }
            Err(e) if matches!(e.raw_os_error(), Some(libc::ENXIO | libc::ENODEV)) => Err(self.gone()),
            Err(e) => Err(e),
        }
    }

    fn gone(&self) -> io::Error {
        io::Error::other(format!("the interface {} was removed", self.shared.interface))
    }

    /// Reads the kernel's notifications, periodically or because some are there.
    pub(super) fn follow(&mut self, now: Time, there_is_some: bool) -> io::Result<()> {
        if now < self.look_for_news && !there_is_some {
            return Ok(());
        }
        self.look_for_news = now + LOOK_FOR_NEWS;
        self.hear_lender()?;
        self.leave_queues()?;
        let mut news = self.monitor.read();
        if self.unsure || !self.is_up {
            news.push(News::Missed);
        }
        for news in news {
            match news {
                News::Link(interface) => self.changed(&interface),
                News::Gone => return Err(self.gone()),
                News::AddressGone(address) => self.lost(address),
                News::Missed => match self.netlink.interface_of(self.interface)? {
                    Some(interface) => {
                        self.unsure = false;
                        self.changed(&interface);
                    }
                    None => return Err(self.gone()),
                },
            }
        }
        Ok(())
    }

    fn changed(&mut self, interface: &Interface) {
        let name = self.shared.interface.clone();
        let mtu = interface.mtu.min(self.largest);
        if mtu != self.mtu {
            self.mtu = mtu;
            self.say(format!("the MTU of {name} is {mtu} now"));
        }
        if let Some(mac) = interface.mac.filter(|mac| *mac != self.mac) {
            self.mac = mac;
            match self.shared.steer_to(mac) {
                Ok(()) => self.say(format!("the hardware address of {name} has changed")),
                Err(e) => self.say(format!(
                    "the hardware address of {name} has changed, and packets to it cannot be taken: {e}"
                )),
            }
        }
        // The kernel's notification or a failed call, whichever comes first, reports the change.
        if interface.up == self.was_up {
            self.is_up = interface.up;
            return;
        }
        (self.is_up, self.was_up) = (interface.up, interface.up);
        if !interface.up {
            return self.say(format!("{name} is down: packets are lost until it is up again"));
        }
        self.say(format!("{name} is up again"));
        // The kernel has forgotten its neighbours and may have removed addresses.
        self.neighbours.next_epoch();
        if let Some(addresses) = &mut self.addresses {
            addresses.give_again(self.clock.now());
        }
    }

    /// Handles the loss of an address of the interface.
    fn lost(&mut self, address: IpAddr) {
        let now = self.clock.now();
        match &mut self.addresses {
            // While the link is down, adding the address would be undone again: the notification
            // that it is up will trigger it.
            Some(borrowed) if borrowed.has(address) && !self.is_up => {}
            Some(borrowed) if borrowed.has(address) => borrowed.give_again(now),
            _ if self.shared.steers(address) => self.say(format!(
                "{} has lost the address {address}: nobody is told any more that it is here",
                self.shared.interface
            )),
            _ => {}
        }
    }

    /// Reports to the operator. Only one of several links does.
    fn say(&mut self, what: String) {
        if self.speaks && self.said.len() < SAID {
            self.said.push_back(what);
        }
    }
}
