//! Just enough of Ethernet, IP, TCP and UDP to classify frames. A truncated frame is
//! [`FrameKind::Other`].

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// Length of an Ethernet header.
pub(crate) const ETHERNET: usize = 14;

/// A hardware address.
pub(crate) type Mac = [u8; 6];

/// The properties of a frame that matter to the box.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct FrameFacts {
    pub(crate) kind: FrameKind,
    pub(crate) v6: bool,
    /// Bytes of the IP packet.
    pub(crate) ip_bytes: usize,
    /// Whether routers must not fragment it (IPv4's DF; always true for IPv6).
    pub(crate) whole: bool,
    pub(crate) flow: Option<FrameFlow>,
}

/// One direction of a conversation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct FrameFlow {
    pub(crate) from: (IpAddr, u16),
    pub(crate) to: (IpAddr, u16),
    pub(crate) udp: bool,
}

/// The part of a frame that decides its fate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FrameKind {
    /// ARP: the box answers it.
    Arp,
    /// Neighbour and router discovery of IPv6: passed at once, because it belongs to the link and
    /// not to the path.
    Neighbour,
    Tcp(TcpFields),
    Udp,
    Icmp,
    /// "Fragmentation needed" (RFC 1191) and "packet too big" (RFC 8201).
    IcmpTooBig,
    Other,
}

/// The fields of a TCP header that matter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct TcpFields {
    pub(crate) sequence: u32,
    pub(crate) syn: bool,
    pub(crate) ack: bool,
    pub(crate) fin: bool,
    pub(crate) rst: bool,
    pub(crate) payload: usize,
}

fn be16(b: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_be_bytes(b.get(at..at + 2)?.try_into().ok()?))
}

fn be32(b: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_be_bytes(b.get(at..at + 4)?.try_into().ok()?))
}

/// Classifies a frame.
pub(crate) fn parse(frame: &[u8]) -> FrameFacts {
    let other = FrameFacts {
        kind: FrameKind::Other,
        v6: false,
        ip_bytes: frame.len().saturating_sub(ETHERNET),
        whole: false,
        flow: None,
    };
    let ip = frame.get(ETHERNET..).unwrap_or(&[]);
    match be16(frame, 12) {
        Some(0x0806) => FrameFacts { kind: FrameKind::Arp, ..other },
        Some(0x0800) => ipv4(ip).unwrap_or(other),
        Some(0x86dd) => ipv6(ip).unwrap_or(FrameFacts { v6: true, ..other }),
        _ => other,
    }
}

fn ipv4(ip: &[u8]) -> Option<FrameFacts> {
    let header = usize::from(ip.first()? & 15) * 4;
    let bytes = usize::from(be16(ip, 2)?).min(ip.len());
    let address = |at: usize| Some(IpAddr::V4(Ipv4Addr::from(be32(ip, at)?)));
    let (from, to) = (address(12)?, address(16)?);
    let body = ip.get(header.max(20)..bytes)?;
    let flags = be16(ip, 6)?;
    let whole = flags & 0x4000 != 0;
    let (kind, ports) =
        if flags & 0x1fff != 0 { (FrameKind::Other, None) } else { above(*ip.get(9)?, body)? };
    let flow = ports.map(|(a, b)| FrameFlow { from: (from, a), to: (to, b), udp: kind == FrameKind::Udp });
    Some(FrameFacts { kind, v6: false, ip_bytes: bytes, whole, flow })
}

fn ipv6(ip: &[u8]) -> Option<FrameFacts> {
    let bytes = (40 + usize::from(be16(ip, 4)?)).min(ip.len());
    let address =
        |at: usize| Some(IpAddr::V6(Ipv6Addr::from(<[u8; 16]>::try_from(ip.get(at..at + 16)?).ok()?)));
    let (from, to) = (address(8)?, address(24)?);
    let body = ip.get(40..bytes)?;
    let (kind, ports) = above(*ip.get(6)?, body)?;
    let flow = ports.map(|(a, b)| FrameFlow { from: (from, a), to: (to, b), udp: kind == FrameKind::Udp });
    Some(FrameFacts { kind, v6: true, ip_bytes: bytes, whole: true, flow })
}

/// The protocol above IP, and its two ports, if any.
fn above(protocol: u8, body: &[u8]) -> Option<(FrameKind, Option<(u16, u16)>)> {
    let ports = || Some((be16(body, 0)?, be16(body, 2)?));
    Some(match protocol {
        6 => {
            let (offset, flags) = (usize::from(body.get(12)? >> 4) * 4, *body.get(13)?);
            let tcp = TcpFields {
                sequence: be32(body, 4)?,
                fin: flags & 1 != 0,
                syn: flags & 2 != 0,
                rst: flags & 4 != 0,
                ack: flags & 16 != 0,
                payload: body.len().saturating_sub(offset),
            };
            (FrameKind::Tcp(tcp), Some(ports()?))
        }
        17 => (FrameKind::Udp, Some(ports()?)),
        1 if body.get(..2)? == [3, 4] => (FrameKind::IcmpTooBig, None),
        1 => (FrameKind::Icmp, None),
        58 => match *body.first()? {
            2 => (FrameKind::IcmpTooBig, None),
            130..=137 | 143 => (FrameKind::Neighbour, None),
            _ => (FrameKind::Icmp, None),
        },
        _ => (FrameKind::Other, None),
    })
}

#[cfg(test)]
pub(crate) mod testing {
    /// A TCP segment in IPv4 with DF set, as an interface would send it; checksums stay 0.
    pub(crate) fn tcp(
        from: ([u8; 4], u16),
        to: ([u8; 4], u16),
        flags: u8,
        seq: u32,
        payload: usize,
    ) -> Vec<u8> {
        let mut f = vec![2, 0, 0, 0, 2, 1, 2, 0, 0, 0, 1, 1, 8, 0];
        f.extend([0x45, 0]);
        f.extend(u16::try_from(40 + payload).expect("it fits").to_be_bytes());
        f.extend([0, 1, 0x40, 0, 64, 6, 0, 0]);
        f.extend(from.0);
        f.extend(to.0);
        f.extend(from.1.to_be_bytes());
        f.extend(to.1.to_be_bytes());
        f.extend(seq.to_be_bytes());
        f.extend([0, 0, 0, 0, 0x50, flags, 0xff, 0xff, 0, 0, 0, 0]);
        f.resize(f.len() + payload, b'x');
        f
    }

    /// A segment from client to server.
    pub(crate) fn segment(flags: u8, seq: u32, payload: usize) -> Vec<u8> {
        tcp(([10, 99, 1, 1], 4000), ([10, 99, 2, 1], 80), flags, seq, payload)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_tcp_segment() {
        let p = parse(&testing::segment(0x18, 7, 100));
        let FrameKind::Tcp(t) = p.kind else { panic!("{p:?}") };
        assert_eq!(
            (t.sequence, t.payload, t.ack, t.syn, p.ip_bytes, p.whole),
            (7, 100, true, false, 140, true)
        );
        assert_eq!(p.flow.expect("a flow").to.1, 80);
    }

    #[test]
    fn padding_of_ethernet_is_no_payload() {
        let mut frame = testing::segment(0x10, 7, 0);
        frame.resize(60, 0);
        let FrameKind::Tcp(t) = parse(&frame).kind else { panic!() };
        assert_eq!(t.payload, 0);
    }

    #[test]
    fn neighbour_discovery_is_of_the_link() {
        let mut f = vec![0; 14 + 40 + 24];
        (f[12], f[13], f[14], f[19], f[20]) = (0x86, 0xdd, 0x60, 24, 58);
        for (code, kind) in [(135, FrameKind::Neighbour), (2, FrameKind::IcmpTooBig), (128, FrameKind::Icmp)]
        {
            f[54] = code;
            assert_eq!(parse(&f).kind, kind);
        }
    }

    proptest! {
        #[test]
        fn anything_may_come(bytes: Vec<u8>, ethertype in prop::sample::select(vec![0x0800u16, 0x86dd, 0x0806, 1])) {
            let mut frame = bytes;
            if frame.len() >= 14 {
                frame[12..14].copy_from_slice(&ethertype.to_be_bytes());
            }
            parse(&frame);
        }

        #[test]
        fn a_segment_cut_anywhere(at in 0usize..140) {
            parse(&testing::segment(0x18, 1, 86)[..at]);
        }
    }
}
