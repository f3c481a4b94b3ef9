//! Ethernet II headers, without VLAN tags.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// Bytes of the header.
pub(super) const HEADER: usize = 14;
const IPV4: [u8; 2] = [0x08, 0x00];
const IPV6: [u8; 2] = [0x86, 0xdd];

/// A MAC address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Mac(pub(super) [u8; 6]);

/// The sender of a frame and the IP packet in it; `None` if it carries another protocol.
pub(super) fn parse(frame: &mut [u8]) -> Option<(Mac, &mut [u8])> {
    let (header, packet) = frame.split_first_chunk_mut::<HEADER>()?;
    let ip = header[12..] == IPV4 || header[12..] == IPV6;
    let from = Mac([header[6], header[7], header[8], header[9], header[10], header[11]]);
    ip.then_some((from, packet))
}

/// Writes the header of a frame with an IP packet for `ip`.
pub(super) fn emit(header: &mut [u8], to: Mac, from: Mac, ip: IpAddr) {
    header[..6].copy_from_slice(&to.0);
    header[6..12].copy_from_slice(&from.0);
    header[12..HEADER].copy_from_slice(if ip.is_ipv4() { &IPV4 } else { &IPV6 });
}

/// The source address of an IP packet.
pub(super) fn source(packet: &[u8]) -> Option<IpAddr> {
    match packet.first()? >> 4 {
        4 => packet.get(12..16)?.try_into().ok().map(|a: [u8; 4]| Ipv4Addr::from(a).into()),
        6 => packet.get(8..24)?.try_into().ok().map(|a: [u8; 16]| Ipv6Addr::from(a).into()),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_header_is_read_as_it_was_written() {
        let (to, from) = (Mac([1, 2, 3, 4, 5, 6]), Mac([7, 8, 9, 10, 11, 12]));
        for ip in [IpAddr::from(Ipv4Addr::LOCALHOST), IpAddr::from(Ipv6Addr::LOCALHOST)] {
            let mut frame = [0; HEADER + 1];
            emit(&mut frame[..HEADER], to, from, ip);
            assert_eq!(frame[..6], to.0);
            assert_eq!(parse(&mut frame), Some((from, &mut [0][..])));
        }
        assert_eq!(parse(&mut [0; 13]), None);
        assert_eq!(parse(&mut [0; 60]), None, "not IP");
    }

    #[test]
    fn the_source_is_where_ip_has_it() {
        let mut packet = [0; 40];
        packet[0] = 0x45;
        packet[12..16].copy_from_slice(&[10, 0, 0, 1]);
        assert_eq!(source(&packet), Some(Ipv4Addr::new(10, 0, 0, 1).into()));
        packet[0] = 0x60;
        packet[23] = 9;
        assert!(matches!(source(&packet), Some(IpAddr::V6(a)) if a.octets()[15] == 9));
        assert_eq!(source(&packet[..20]), None);
        assert_eq!(source(&[]), None);
        assert_eq!(source(&[0x10; 40]), None);
    }
}
