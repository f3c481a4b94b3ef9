//! Frames that the box itself sends: ARP replies (RFC 826), and messages that a packet was too big
//! (RFC 1191, RFC 8201).

use std::net::{Ipv4Addr, Ipv6Addr};

use crate::packet::{ETHERNET, Mac};

/// The address of the router that the box acts as.
pub(crate) const ROUTER_V4: Ipv4Addr = Ipv4Addr::new(10, 99, 0, 254);
/// Its IPv6 address.
pub(crate) const ROUTER_V6: Ipv6Addr = Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 0xfe);
/// Its hardware address.
pub(crate) const ROUTER_MAC: Mac = [2, 0, 0, 0, 0, 0xfe];

/// The reply to an ARP request for an address of `theirs` (the other side's range); `None` for
/// other addresses.
pub(crate) fn arp(request: &[u8], theirs: Mac, is_theirs: impl Fn(Ipv4Addr) -> bool) -> Option<Vec<u8>> {
    let body = request.get(ETHERNET..ETHERNET + 28)?;
    // Ethernet, IPv4, request.
    if body[..8] != [0, 1, 8, 0, 6, 4, 0, 1] {
        return None;
    }
    let (asker, wanted) = (&body[8..18], &body[24..28]);
    let wanted: [u8; 4] = wanted.try_into().ok()?;
    if !is_theirs(wanted.into()) {
        return None;
    }
    let mut out = Vec::with_capacity(ETHERNET + 28);
    out.extend_from_slice(&asker[..6]);
    out.extend_from_slice(&theirs);
    out.extend_from_slice(&[8, 6, 0, 1, 8, 0, 6, 4, 0, 2]);
    out.extend_from_slice(&theirs);
    out.extend_from_slice(&wanted);
    out.extend_from_slice(asker);
    Some(out)
}

/// A router's reply to `frame`, which exceeds `mtu`.
pub(crate) fn too_big(frame: &[u8], v6: bool, mtu: usize) -> Option<Vec<u8>> {
    let ip = frame.get(ETHERNET..)?;
    let mut out = Vec::with_capacity(600);
    out.extend_from_slice(frame.get(6..12)?);
    out.extend_from_slice(&ROUTER_MAC);
    if v6 {
        too_big_v6(&mut out, ip, mtu)?
    } else {
        too_big_v4(&mut out, ip, mtu)?
    }
    Some(out)
}

fn too_big_v4(out: &mut Vec<u8>, ip: &[u8], mtu: usize) -> Option<()> {
    // RFC 1812, section 4.3.2.3: as much of the original as fits 576 bytes.
    let original = &ip[..ip.len().min(576 - 28)];
    out.extend_from_slice(&[8, 0, 0x45, 0xc0]);
    out.extend_from_slice(&u16::try_from(28 + original.len()).ok()?.to_be_bytes());
    out.extend_from_slice(&[0, 0, 0, 0, 64, 1, 0, 0]);
    out.extend_from_slice(&ROUTER_V4.octets());
    out.extend_from_slice(ip.get(12..16)?);
    let header = checksum(0, &out[ETHERNET..]);
    out[ETHERNET + 10..ETHERNET + 12].copy_from_slice(&header.to_be_bytes());
    let icmp = out.len();
    out.extend_from_slice(&[3, 4, 0, 0, 0, 0]);
    out.extend_from_slice(&u16::try_from(mtu).ok()?.to_be_bytes());
    out.extend_from_slice(original);
    let sum = checksum(0, &out[icmp..]);
    out[icmp + 2..icmp + 4].copy_from_slice(&sum.to_be_bytes());
    Some(())
}

fn too_big_v6(out: &mut Vec<u8>, ip: &[u8], mtu: usize) -> Option<()> {
    // RFC 4443, section 3.2: as much of the original as fits 1280 bytes.
    let original = &ip[..ip.len().min(1280 - 48)];
    let length = u16::try_from(8 + original.len()).ok()?;
    out.extend_from_slice(&[0x86, 0xdd, 0x60, 0, 0, 0]);
    out.extend_from_slice(&length.to_be_bytes());
    out.extend_from_slice(&[58, 64]);
    out.extend_from_slice(&ROUTER_V6.octets());
    out.extend_from_slice(ip.get(8..24)?);
    let icmp = out.len();
    out.extend_from_slice(&[2, 0, 0, 0]);
    out.extend_from_slice(&u32::try_from(mtu).ok()?.to_be_bytes());
    out.extend_from_slice(original);
    let pseudo = sum(0, &out[ETHERNET + 8..ETHERNET + 40]) + u32::from(length) + 58;
    let sum = checksum(pseudo, &out[icmp..]);
    out[icmp + 2..icmp + 4].copy_from_slice(&sum.to_be_bytes());
    Some(())
}

fn sum(start: u32, bytes: &[u8]) -> u32 {
    let word = |c: &[u8]| u32::from(c[0]) << 8 | c.get(1).map_or(0, |b| u32::from(*b));
    bytes.chunks(2).fold(start, |s, c| s + word(c))
}

/// RFC 1071.
fn checksum(start: u32, bytes: &[u8]) -> u16 {
    let mut s = sum(start, bytes);
    while s > 0xffff {
        s = (s & 0xffff) + (s >> 16);
    }
    !(s as u16)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::packet::{FrameKind, parse, testing};

    #[test]
    fn too_big_says_the_mtu_and_quotes_the_packet() {
        let frame = testing::segment(0x18, 1, 1400);
        let answer = too_big(&frame, false, 1300).expect("an answer");
        let p = parse(&answer);
        assert_eq!(p.kind, FrameKind::IcmpTooBig);
        assert_eq!(p.ip_bytes, 576);
        let ip = &answer[ETHERNET..];
        assert_eq!(ip[26..28], 1300u16.to_be_bytes(), "RFC 1191, section 4: next-hop MTU");
        assert_eq!(ip[28..48], frame[ETHERNET..ETHERNET + 20], "the original header is quoted");
        assert_eq!(checksum(0, &ip[..20]), 0, "the header's checksum");
        assert_eq!(checksum(0, &ip[20..]), 0, "the message's checksum");
        assert_eq!(answer[..6], frame[6..12], "it goes back to the sender");
    }

    #[test]
    fn too_big_in_ipv6() {
        let mut frame = vec![0; ETHERNET + 40 + 1400];
        (frame[12], frame[13], frame[14]) = (0x86, 0xdd, 0x60);
        frame[18..20].copy_from_slice(&1400u16.to_be_bytes());
        let answer = too_big(&frame, true, 1300).expect("an answer");
        assert_eq!(parse(&answer).kind, FrameKind::IcmpTooBig);
        let ip = &answer[ETHERNET..];
        assert_eq!(ip.len(), 1280);
        let pseudo = sum(0, &ip[8..40]) + 1240 + 58;
        assert_eq!(checksum(pseudo, &ip[40..]), 0);
    }

    #[test]
    fn arp_is_answered_for_the_other_side_only() {
        let mut request = vec![0xff; 6];
        request.extend([2, 0, 0, 0, 1, 1, 8, 6, 0, 1, 8, 0, 6, 4, 0, 1]);
        request.extend([2, 0, 0, 0, 1, 1, 10, 99, 1, 1, 0, 0, 0, 0, 0, 0, 10, 99, 2, 7]);
        let other = [2, 0, 0, 0, 2, 1];
        let answer = arp(&request, other, |a| a.octets()[2] == 2).expect("an answer");
        assert_eq!(answer[..6], request[6..12]);
        assert_eq!(answer[ETHERNET + 6..ETHERNET + 18], [0, 2, 2, 0, 0, 0, 2, 1, 10, 99, 2, 7]);
        assert_eq!(arp(&request, other, |a| a.octets()[2] == 1), None);
        assert_eq!(arp(&request[..30], other, |_| true), None, "cut short");
    }
}
