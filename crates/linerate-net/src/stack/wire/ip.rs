//! IPv4 (RFC 791) and IPv6 (RFC 8200) headers.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use super::checksum::Sum;
use super::malformed::Malformed;
use crate::ecn::Ecn;
use crate::ipv6;
use crate::link::Checksums;

/// The protocol number of TCP.
pub(super) const TCP: u8 = 6;
const IPV4_HEADER: usize = 20;
const IPV6_HEADER: usize = ipv6::HEADER;
const HOP_LIMIT: u8 = 64;
/// The first 12 bytes of an IPv4-mapped address (RFC 4291 section 2.5.5.2).
const MAPPED: [u8; 12] = [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff];

/// An address of either family in 16 bytes: IPv4 addresses are mapped.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
pub(crate) struct Addr([u8; 16]);

impl Addr {
    pub(crate) fn is_v4(&self) -> bool {
        self.0[..12] == MAPPED
    }

    pub(super) fn v6(bytes: [u8; 16]) -> Addr {
        Addr(bytes)
    }

    pub(super) fn v4(bytes: [u8; 4]) -> Addr {
        let [a, b, c, d] = bytes;
        Addr([0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, a, b, c, d])
    }

    pub(crate) fn ip(&self) -> IpAddr {
        match self.0 {
            [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, a, b, c, d] => IpAddr::V4(Ipv4Addr::new(a, b, c, d)),
            bytes => IpAddr::V6(Ipv6Addr::from(bytes)),
        }
    }

    /// The bytes as they are on the wire.
    pub(super) fn bytes(&self) -> &[u8] {
        if self.is_v4() { &self.0[12..] } else { &self.0 }
    }

    /// All 16 bytes, as two words.
    pub(crate) fn words(&self) -> [u64; 2] {
        let word = |at: usize| self.0[at..].first_chunk().map_or(0, |c| u64::from_ne_bytes(*c));
        [word(0), word(8)]
    }

    /// Bytes of an IP header towards this address.
    pub(crate) fn header_len(&self) -> usize {
        if self.is_v4() { IPV4_HEADER } else { IPV6_HEADER }
    }

    /// Neither unspecified nor multicast nor broadcast: a valid source of a segment (RFC 1122
    /// section 4.2.3.10).
    pub(crate) fn is_somebody(&self) -> bool {
        match self.ip() {
            IpAddr::V4(v4) => !v4.is_unspecified() && !v4.is_multicast() && !v4.is_broadcast(),
            IpAddr::V6(v6) => !v6.is_unspecified() && !v6.is_multicast(),
        }
    }
}

impl From<IpAddr> for Addr {
    fn from(ip: IpAddr) -> Addr {
        match ip {
            IpAddr::V4(v4) => Addr::v4(v4.octets()),
            IpAddr::V6(v6) => Addr(v6.octets()),
        }
    }
}

/// The fields of an IP header that we need.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct IpHeader {
    pub(crate) src: Addr,
    pub(crate) dst: Addr,
    pub(crate) ecn: Ecn,
    /// Where in the packet the payload begins and ends.
    pub(crate) from: usize,
    pub(crate) to: usize,
}

impl IpHeader {
    #[inline]
    pub(crate) fn parse(bytes: &[u8], checksums: Checksums) -> Result<IpHeader, Malformed> {
        match bytes.first().ok_or(Malformed::Short)? >> 4 {
            4 => IpHeader::parse_v4(bytes, checksums),
            6 => IpHeader::parse_v6(bytes),
            _ => Err(Malformed::NotOurs),
        }
    }

    #[inline]
    fn parse_v4(bytes: &[u8], checksums: Checksums) -> Result<IpHeader, Malformed> {
        let header: &[u8; IPV4_HEADER] = bytes.first_chunk().ok_or(Malformed::Short)?;
        let [first, class, l0, l1, _, _, f0, f1, _, protocol, _, _, s0, s1, s2, s3, d0, d1, d2, d3] = *header;
        let (from, to) = (usize::from(first & 15) * 4, usize::from(u16::from_be_bytes([l0, l1])));
        if from < IPV4_HEADER || to < from {
            return Err(Malformed::Header);
        }
        if to > bytes.len() {
            return Err(Malformed::Short);
        }
        // A fragment is not for us: more follow, or this is not the first.
        if protocol != TCP || u16::from_be_bytes([f0, f1]) & 0x3fff != 0 {
            return Err(Malformed::NotOurs);
        }
        if checksums == Checksums::Full {
            let mut sum = Sum::default();
            sum.add(&bytes[..from]);
            if sum.finish() != 0 {
                return Err(Malformed::Checksum);
            }
        }
        let (src, dst) = (Addr::v4([s0, s1, s2, s3]), Addr::v4([d0, d1, d2, d3]));
        Ok(IpHeader { src, dst, ecn: Ecn::of_v4(class), from, to })
    }

    fn parse_v6(bytes: &[u8]) -> Result<IpHeader, Malformed> {
        let header: &[u8; IPV6_HEADER] = bytes.first_chunk().ok_or(Malformed::Short)?;
        let to = IPV6_HEADER + usize::from(u16::from_be_bytes([header[4], header[5]]));
        let from = match header[6] {
            TCP => IPV6_HEADER,
            _ => match ipv6::payload(bytes).ok_or(Malformed::Header)? {
                (TCP, from) => from,
                _ => return Err(Malformed::NotOurs),
            },
        };
        if to > bytes.len() {
            return Err(Malformed::Short);
        }
        if from > to {
            return Err(Malformed::Header);
        }
        let addr = |at: usize| header[at..].first_chunk().map_or(Addr::default(), |c| Addr(*c));
        let (src, dst) = (addr(8), addr(24));
        if src.is_v4() || dst.is_v4() {
            // Mapped addresses must not appear on the wire (RFC 4291 section 2.5.5.2).
            return Err(Malformed::Header);
        }
        Ok(IpHeader { src, dst, ecn: Ecn::of_v6(header[1]), from, to })
    }

    /// Writes the header of a packet with a payload of `len` bytes into `header`, which must have
    /// its length.
    pub(crate) fn emit(src: &Addr, dst: &Addr, len: usize, ecn: Ecn, header: &mut [u8]) {
        if dst.is_v4() {
            let Some(header) = header.first_chunk_mut::<IPV4_HEADER>() else { return };
            let [l0, l1] = ((IPV4_HEADER + len) as u16).to_be_bytes();
            let ([.., s0, s1, s2, s3], [.., d0, d1, d2, d3]) = (src.0, dst.0);
            // Don't fragment. The identification of an atomic datagram has no meaning (RFC 6864
            // section 4.1). One array, because many small copies are many calls.
            let e = ecn.to_v4();
            *header = [0x45, e, l0, l1, 0, 0, 0x40, 0, HOP_LIMIT, TCP, 0, 0, s0, s1, s2, s3, d0, d1, d2, d3];
            let mut sum = Sum::default();
            sum.add(header);
            [header[10], header[11]] = sum.finish().to_be_bytes();
        } else {
            header[..4].copy_from_slice(&[0x60, ecn.to_v6(), 0, 0]);
            header[4..6].copy_from_slice(&(len as u16).to_be_bytes());
            header[6..8].copy_from_slice(&[TCP, HOP_LIMIT]);
            header[8..24].copy_from_slice(src.bytes());
            header[24..40].copy_from_slice(dst.bytes());
        }
    }
}
