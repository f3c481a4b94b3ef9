//! A client's source addresses. The interface has them as long as the link lives, so that the
//! kernel answers ARP and NDP for them.

use std::net::IpAddr;

use crate::Time;

use super::limits::{ADDRESS_LIFE_S, ADDRESS_RENEWAL};
use super::netlink::Netlink;
use super::preflight::{self, XdpError};

/// Addresses that were added to an interface. Drop removes them; if the process is killed, they
/// expire within seconds.
#[derive(Debug)]
pub(super) struct BorrowedAddresses {
    interface: u32,
    addresses: Vec<IpAddr>,
    renew_at: Time,
}

impl BorrowedAddresses {
    /// Adds those of `wanted` that the interface lacks; `None` if it has all.
    pub(super) fn borrow(
        netlink: &mut Netlink,
        interface: u32,
        name: &str,
        wanted: &[IpAddr],
        now: Time,
    ) -> Result<Option<BorrowedAddresses>, XdpError> {
        let present = netlink.addresses().map_err(|e| preflight::kernel("its addresses", &e))?;
        for &address in wanted {
            if address.is_unspecified() || address.is_multicast() || address.is_loopback() {
                return Err(preflight::no_source(address));
            }
            match present.iter().find(|(_, a)| *a == address) {
                Some((there, _)) if *there != interface => {
                    return Err(preflight::address_elsewhere(name, address));
                }
                Some(_) => preflight::address_in_use(name, address)?,
                None => {}
            }
        }
        let mut borrowed =
            BorrowedAddresses { interface, addresses: Vec::new(), renew_at: now + ADDRESS_RENEWAL };
        for &address in wanted {
            if present.iter().any(|(_, a)| *a == address) || borrowed.addresses.contains(&address) {
                continue;
            }
            netlink
                .add_address(interface, address, ADDRESS_LIFE_S)
                .map_err(|e| preflight::cannot_add(name, address, &e))?;
            borrowed.addresses.push(address);
        }
        Ok(if borrowed.addresses.is_empty() { None } else { Some(borrowed) })
    }

    pub(super) fn has(&self, address: IpAddr) -> bool {
        self.addresses.contains(&address)
    }

    /// Schedules a renewal at once, because the interface may have lost the addresses.
    pub(super) fn give_again(&mut self, now: Time) {
        self.renew_at = now;
        self.renew(now);
    }

    /// Renews the addresses if it is time.
    pub(super) fn renew(&mut self, now: Time) {
        if now < self.renew_at {
            return;
        }
        self.renew_at = now + ADDRESS_RENEWAL;
        let Ok(mut netlink) = Netlink::open() else { return };
        for &address in &self.addresses {
            // On failure, the next try still comes before the lifetime ends.
            let _ = netlink.add_address(self.interface, address, ADDRESS_LIFE_S);
        }
    }
}

impl Drop for BorrowedAddresses {
    fn drop(&mut self) {
        let Ok(mut netlink) = Netlink::open() else { return };
        for &address in &self.addresses {
            // An address that cannot be removed expires with its lifetime.
            let _ = netlink.delete_address(self.interface, address);
        }
    }
}
