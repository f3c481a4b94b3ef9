//! Queries the kernel about interfaces, addresses, routes and neighbours (rtnetlink, RFC 3549).

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use socket2::Socket;

use super::ethernet::Mac;
use crate::netlink::{
    LINK_HEADER, LINK_NAME, NetlinkRequest, NetlinkSocket, find, flag, kind, u16_at, u32_at,
};

/// Attributes, by message (linux/if_link.h, if_addr.h, rtnetlink.h, neighbour.h).
mod attribute {
    pub(super) const LINK_ADDRESS: u16 = 1;
    pub(super) const LINK_MTU: u16 = 4;
    pub(super) const LINK_XDP: u16 = 43;
    pub(super) const XDP_ATTACHED: u16 = 2;
    pub(super) const ADDRESS: u16 = 1;
    pub(super) const LOCAL: u16 = 2;
    pub(super) const CACHE_INFO: u16 = 6;
    pub(super) const FLAGS: u16 = 8;
    pub(super) const DESTINATION: u16 = 1;
    pub(super) const OUT_INTERFACE: u16 = 4;
    pub(super) const GATEWAY: u16 = 5;
    pub(super) const METRICS: u16 = 8;
    pub(super) const METRIC_MTU: u16 = 2;
    pub(super) const VIA: u16 = 18;
    pub(super) const NEIGHBOUR: u16 = 1;
    pub(super) const LINK_LAYER: u16 = 2;
}

/// IFA_F_NODAD, IFA_F_NOPREFIXROUTE
const PLAIN_ADDRESS: u32 = 0x02 | 0x200;
/// NTF_USE: resolve it.
const USE: u8 = 1;
/// Neighbour states with a usable address: permanent, no-ARP, reachable, stale, delay, probe.
const USABLE: u16 = 0x80 | 0x40 | 0x02 | 0x04 | 0x08 | 0x10;
/// Neighbour state in which the kernel doubts the address.
const STALE: u16 = 0x04;

/// A network interface.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Interface {
    pub(super) index: u32,
    /// `None` if it is not Ethernet.
    pub(super) mac: Option<Mac>,
    pub(super) mtu: usize,
    pub(super) up: bool,
    pub(super) running: bool,
    pub(super) loopback: bool,
    /// An XDP program is attached already.
    pub(super) has_program: bool,
}

/// The next hop of packets to an address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct NextHop {
    /// The outgoing interface.
    pub(super) interface: u32,
    /// The gateway; `None` if the address is on the link.
    pub(super) gateway: Option<IpAddr>,
    /// The path MTU, if it is not just the interface's.
    pub(super) mtu: Option<usize>,
}

/// A neighbour's MAC address, if known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Neighbour {
    pub(super) mac: Mac,
    /// The kernel has not confirmed it for a while.
    pub(super) stale: bool,
}

fn address(bytes: &[u8]) -> Option<IpAddr> {
    if let Ok(four) = <[u8; 4]>::try_from(bytes) {
        return Some(Ipv4Addr::from(four).into());
    }
    <[u8; 16]>::try_from(bytes).ok().map(|sixteen| Ipv6Addr::from(sixteen).into())
}

fn octets(address: IpAddr) -> Vec<u8> {
    match address {
        IpAddr::V4(v4) => v4.octets().to_vec(),
        IpAddr::V6(v6) => v6.octets().to_vec(),
    }
}

fn family(address: IpAddr) -> u8 {
    (if address.is_ipv4() { libc::AF_INET } else { libc::AF_INET6 }) as u8
}

fn bits(address: IpAddr) -> u8 {
    if address.is_ipv4() { 32 } else { 128 }
}

/// Parses `struct ifinfomsg` and its attributes.
pub(super) fn parse_link(body: &[u8]) -> Option<Interface> {
    const ETHER: u16 = 1; // ARPHRD_ETHER
    let (hardware, flags) = (u16_at(body, 2)?, u32_at(body, 8)? as libc::c_int);
    let rest = body.get(LINK_HEADER..)?;
    let mac = find(rest, attribute::LINK_ADDRESS).and_then(|a| a.try_into().ok()).map(Mac);
    let attached = find(rest, attribute::LINK_XDP).and_then(|x| find(x, attribute::XDP_ATTACHED));
    Some(Interface {
        index: u32_at(body, 4)?,
        mac: mac.filter(|_| hardware == ETHER),
        mtu: find(rest, attribute::LINK_MTU).and_then(|m| u32_at(m, 0))? as usize,
        up: flags & libc::IFF_UP != 0,
        running: flags & libc::IFF_RUNNING != 0,
        loopback: flags & libc::IFF_LOOPBACK != 0,
        has_program: attached.is_some_and(|a| a.first() != Some(&0)),
    })
}

/// Parses `struct ifaddrmsg` and its attributes: the interface and the address.
pub(super) fn parse_address(body: &[u8]) -> Option<(u32, IpAddr)> {
    let rest = body.get(8..)?;
    // On a point-to-point interface, ADDRESS is the other end.
    let own = find(rest, attribute::LOCAL).or_else(|| find(rest, attribute::ADDRESS))?;
    Some((u32_at(body, 4)?, address(own)?))
}

/// The same with the length of the network's prefix.
fn parse_network(body: &[u8]) -> Option<(u32, IpAddr, u8)> {
    let (interface, address) = parse_address(body)?;
    Some((interface, address, body[1]))
}

/// Parses `struct rtmsg` and its attributes.
fn parse_route(body: &[u8]) -> Option<NextHop> {
    const UNICAST: u8 = 1; // RTN_UNICAST
    let rest = body.get(12..).filter(|_| body[7] == UNICAST)?;
    let gateway = find(rest, attribute::GATEWAY)
        // `struct rtvia`: a gateway of the other family
        .or_else(|| find(rest, attribute::VIA).and_then(|via| via.get(2..)))
        .and_then(address);
    let mtu = find(rest, attribute::METRICS)
        .and_then(|m| find(m, attribute::METRIC_MTU))
        .and_then(|m| u32_at(m, 0));
    Some(NextHop {
        interface: find(rest, attribute::OUT_INTERFACE).and_then(|o| u32_at(o, 0))?,
        gateway,
        mtu: mtu.map(|m| m as usize).filter(|&m| m > 0),
    })
}

/// Parses `struct ndmsg` and its attributes.
fn parse_neighbour(body: &[u8]) -> Option<Neighbour> {
    let state = u16_at(body, 8)?;
    let mac = find(body.get(12..)?, attribute::LINK_LAYER)?;
    (state & USABLE != 0).then_some(())?;
    Some(Neighbour { mac: Mac(mac.try_into().ok()?), stale: state & STALE != 0 })
}

/// An rtnetlink socket.
pub(super) struct Netlink(NetlinkSocket);

impl Netlink {
    pub(super) fn open() -> io::Result<Netlink> {
        NetlinkSocket::open(libc::NETLINK_ROUTE).map(Netlink)
    }

    fn one<T>(
        &mut self,
        request: NetlinkRequest,
        parse: impl Fn(&[u8]) -> Option<T>,
    ) -> io::Result<Option<T>> {
        let mut found = None;
        self.0.ask(request, |_, body| found = parse(body))?;
        Ok(found)
    }

    /// The interface of this name, if it exists.
    pub(super) fn interface(&mut self, name: &str) -> io::Result<Option<Interface>> {
        let mut zero_ended = name.as_bytes().to_vec();
        zero_ended.push(0);
        let request = NetlinkRequest::new(kind::GET_LINK, 0, &[0; 16]).with(LINK_NAME, &zero_ended);
        match self.one(request, parse_link) {
            Err(e) if matches!(e.raw_os_error(), Some(libc::ENODEV | libc::ERANGE | libc::EINVAL)) => {
                Ok(None)
            }
            result => result,
        }
    }

    /// The interface with this index; `None` if it was removed.
    pub(super) fn interface_of(&mut self, index: u32) -> io::Result<Option<Interface>> {
        let mut fixed = [0; 16];
        fixed[4..8].copy_from_slice(&index.to_ne_bytes());
        match self.one(NetlinkRequest::new(kind::GET_LINK, 0, &fixed), parse_link) {
            Err(e) if e.raw_os_error() == Some(libc::ENODEV) => Ok(None),
            result => result,
        }
    }

    /// The bare socket. No reply is outstanding.
    pub(super) fn into_socket(self) -> Socket {
        self.0.into_socket()
    }

    /// All addresses of this network namespace, with the indices of their interfaces.
    pub(super) fn addresses(&mut self) -> io::Result<Vec<(u32, IpAddr)>> {
        let mut all = Vec::new();
        self.0.ask(NetlinkRequest::new(kind::GET_ADDRESS, flag::DUMP, &[0; 8]), |_, body| {
            all.extend(parse_address(body));
        })?;
        Ok(all)
    }

    /// The same with the lengths of their networks' prefixes.
    pub(super) fn networks(&mut self) -> io::Result<Vec<(u32, IpAddr, u8)>> {
        let mut all = Vec::new();
        self.0.ask(NetlinkRequest::new(kind::GET_ADDRESS, flag::DUMP, &[0; 8]), |_, body| {
            all.extend(parse_network(body));
        })?;
        Ok(all)
    }

    /// The route of packets to an address; `None` if there is none.
    pub(super) fn route(&mut self, to: IpAddr) -> io::Result<Option<NextHop>> {
        let fixed = [family(to), bits(to), 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];
        let request =
            NetlinkRequest::new(kind::GET_ROUTE, 0, &fixed).with(attribute::DESTINATION, &octets(to));
        match self.one(request, parse_route) {
            Err(e) if e.raw_os_error().is_some() => Ok(None),
            result => result,
        }
    }

    fn neighbour_fixed(interface: u32, of: IpAddr, flags: u8) -> [u8; 12] {
        let mut fixed = [0; 12];
        fixed[0] = family(of);
        fixed[4..8].copy_from_slice(&interface.to_ne_bytes());
        fixed[10] = flags;
        fixed
    }

    /// A neighbour's MAC address; `None` while unknown.
    pub(super) fn neighbour(&mut self, interface: u32, of: IpAddr) -> io::Result<Option<Neighbour>> {
        let fixed = Netlink::neighbour_fixed(interface, of, 0);
        let request =
            NetlinkRequest::new(kind::GET_NEIGHBOUR, 0, &fixed).with(attribute::NEIGHBOUR, &octets(of));
        match self.one(request, parse_neighbour) {
            Err(e) if e.raw_os_error().is_some() => Ok(None),
            result => result,
        }
    }

    /// Makes the kernel resolve a neighbour (ARP, NDP), or confirm it.
    pub(super) fn look_for(&mut self, interface: u32, neighbour: IpAddr) -> io::Result<()> {
        let fixed = Netlink::neighbour_fixed(interface, neighbour, USE);
        let request = NetlinkRequest::new(kind::NEW_NEIGHBOUR, flag::CREATE | flag::ACK, &fixed)
            .with(attribute::NEIGHBOUR, &octets(neighbour));
        self.0.ask(request, |_, _| {})
    }

    /// Adds an address to an interface, or renews it, for `lasting` seconds. The kernel does not
    /// use it for its own connections.
    pub(super) fn add_address(&mut self, interface: u32, address: IpAddr, lasting: u32) -> io::Result<()> {
        let mut cache_info = [0; 16];
        cache_info[4..8].copy_from_slice(&lasting.to_ne_bytes()); // valid; preferred stays 0
        let request = Netlink::address_request(
            kind::NEW_ADDRESS,
            flag::CREATE | flag::REPLACE | flag::ACK,
            interface,
            address,
        );
        let request = request
            .with(attribute::FLAGS, &PLAIN_ADDRESS.to_ne_bytes())
            .with(attribute::CACHE_INFO, &cache_info);
        self.0.ask(request, |_, _| {})
    }

    pub(super) fn delete_address(&mut self, interface: u32, address: IpAddr) -> io::Result<()> {
        self.0.ask(Netlink::address_request(kind::DELETE_ADDRESS, flag::ACK, interface, address), |_, _| {})
    }

    fn address_request(kind: u16, flags: u16, interface: u32, address: IpAddr) -> NetlinkRequest {
        let mut fixed = [0; 8];
        fixed[0] = family(address);
        fixed[1] = bits(address);
        fixed[4..8].copy_from_slice(&interface.to_ne_bytes());
        NetlinkRequest::new(kind, flags, &fixed)
            .with(attribute::LOCAL, &octets(address))
            .with(attribute::ADDRESS, &octets(address))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::netlink::HEADER;

    #[test]
    fn the_loopback_interface_is_what_it_is() {
        let mut netlink = Netlink::open().expect("rtnetlink");
        let lo = netlink.interface("lo").expect("an answer").expect("there is one");
        assert!(lo.loopback && lo.mtu > 0 && !lo.has_program);
        assert_eq!(netlink.interface("no-such-if").expect("an answer"), None);
        assert_eq!(netlink.interface("a-name-that-is-much-too-long").expect("an answer"), None);
        for (interface, address) in netlink.addresses().expect("a list") {
            assert!(interface > 0, "{address}");
        }
    }

    #[test]
    fn routes_that_lead_nowhere_are_none() {
        let mut netlink = Netlink::open().expect("rtnetlink");
        // A local address has no neighbour.
        assert_eq!(netlink.route(Ipv4Addr::LOCALHOST.into()).expect("an answer"), None);
        assert_eq!(netlink.neighbour(1, Ipv4Addr::new(127, 9, 9, 9).into()).expect("an answer"), None);
    }

    #[test]
    fn a_route_and_a_neighbour_are_read() {
        let metric =
            NetlinkRequest::new(0, 0, &[]).with(attribute::METRIC_MTU, &1400u32.to_ne_bytes()).finish(0);
        let route = NetlinkRequest::new(24, 0, &[2, 32, 0, 0, 254, 0, 0, 1, 0, 0, 0, 0])
            .with(attribute::OUT_INTERFACE, &5u32.to_ne_bytes())
            .with(attribute::METRICS, &metric[HEADER..])
            .with(attribute::GATEWAY, &[10, 0, 0, 1])
            .finish(1);
        let expected =
            NextHop { interface: 5, gateway: Some(Ipv4Addr::new(10, 0, 0, 1).into()), mtu: Some(1400) };
        assert_eq!(parse_route(&route[HEADER..]), Some(expected));
        let neighbour = |state: u16| {
            let mut fixed = Netlink::neighbour_fixed(5, Ipv4Addr::new(10, 0, 0, 1).into(), 0);
            fixed[8..10].copy_from_slice(&state.to_ne_bytes());
            let bytes =
                NetlinkRequest::new(28, 0, &fixed).with(attribute::LINK_LAYER, &[2, 0, 0, 0, 0, 1]).finish(1);
            parse_neighbour(&bytes[HEADER..])
        };
        let mac = Mac([2, 0, 0, 0, 0, 1]);
        assert_eq!(neighbour(0x02), Some(Neighbour { mac, stale: false }));
        assert_eq!(neighbour(0x04), Some(Neighbour { mac, stale: true }));
        assert_eq!(neighbour(0x01), None, "incomplete");
        assert_eq!(neighbour(0x20), None, "failed");
        assert_eq!(parse_route(&[]), None);
        assert_eq!(parse_neighbour(&[]), None);
    }
}
