//! Completes checksums: over a veth, the peer's kernel leaves the TCP checksum to a card that does
//! not exist.

use crate::ipv6;

/// Completes the checksum of a TCP segment that only has the pseudo-header's sum (RFC 9293 section
/// 3.1; the kernel calls it partial). Leaves everything else as it is, wrong checksums included.
pub(super) fn complete_checksum(packet: &mut [u8]) {
    let Some((addresses, start, end)) = layout(packet) else { return };
    let Some(segment) = packet.get(start..end).filter(|s| s.len() >= 20) else { return };
    let pseudo = fold(sum(&packet[addresses]) + 6 + (end - start) as u64);
    if u16::from_be_bytes([segment[16], segment[17]]) != pseudo {
        return;
    }
    // The sum over the segment already includes the pseudo-header's.
    let whole = !fold(sum(segment));
    packet[start + 16..start + 18].copy_from_slice(&whole.to_be_bytes());
}

/// Where the addresses are, and where the segment begins and ends; `None` if it is not TCP or has
/// an unknown shape.
fn layout(packet: &[u8]) -> Option<(std::ops::Range<usize>, usize, usize)> {
    let length = |at: usize| packet.get(at..at + 2).map(|l| usize::from(u16::from_be_bytes([l[0], l[1]])));
    match packet.first()? >> 4 {
        4 if packet.get(9) == Some(&6) => Some((12..20, usize::from(packet[0] & 15) * 4, length(2)?)),
        6 => match ipv6::payload(packet)? {
            (6, start) => Some((8..ipv6::HEADER, start, ipv6::HEADER + length(4)?)),
            _ => None,
        },
        _ => None,
    }
}

/// The sum of 16-bit words, the last one padded with a zero.
pub(super) fn sum(bytes: &[u8]) -> u64 {
    let (words, rest) = bytes.as_chunks::<4>();
    let sum: u64 = words.iter().map(|w| u64::from(u32::from_be_bytes(*w))).sum();
    let mut last = [0; 4];
    last[..rest.len()].copy_from_slice(rest);
    sum + u64::from(u32::from_be_bytes(last))
}

pub(super) fn fold(mut sum: u64) -> u16 {
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    sum as u16
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ipv6::tests::extend;

    fn v4(data: &[u8]) -> Vec<u8> {
        let total = (40 + data.len()) as u16;
        let mut p = vec![0x45, 0];
        p.extend_from_slice(&total.to_be_bytes());
        p.extend_from_slice(&[0, 0, 0x40, 0, 64, 6, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2]);
        p.extend_from_slice(&[0x1f, 0x90, 0, 80, 1, 2, 3, 4, 5, 6, 7, 8, 0x50, 0x18, 1, 1, 0, 0, 0, 0]);
        p.extend_from_slice(data);
        p
    }

    fn v6(data: &[u8]) -> Vec<u8> {
        let mut p = vec![0x60, 0, 0, 0];
        p.extend_from_slice(&((20 + data.len()) as u16).to_be_bytes());
        p.extend_from_slice(&[6, 64]);
        p.extend_from_slice(&[0xfd; 32]);
        p.extend_from_slice(&v4(data)[20..]);
        p
    }

    /// A segment behind hop-by-hop and destination options.
    fn behind_headers(data: &[u8]) -> Vec<u8> {
        let mut p = v6(data);
        extend(&mut p, &[(0, 0), (60, 1)]);
        p
    }

    fn with_checksum(mut p: Vec<u8>, value: u16) -> Vec<u8> {
        let at = layout(&p).expect("TCP").1 + 16;
        p[at..at + 2].copy_from_slice(&value.to_be_bytes());
        p
    }

    fn pseudo(p: &[u8]) -> u16 {
        let (addresses, start, end) = layout(p).expect("TCP");
        fold(sum(&p[addresses]) + 6 + (end - start) as u64)
    }

    fn is_right(p: &[u8]) -> bool {
        let (addresses, start, end) = layout(p).expect("TCP");
        fold(sum(&p[addresses]) + 6 + (end - start) as u64 + u64::from(fold(sum(&p[start..end])))) == 0xffff
    }

    #[test]
    fn a_partial_checksum_becomes_a_right_one() {
        for data in [&b""[..], b"x", b"four", b"seven!!", &[0xff; 1460]] {
            for packet in [v4(data), v6(data), behind_headers(data)] {
                let partial = pseudo(&packet);
                let mut packet = with_checksum(packet, partial);
                // Ethernet's padding does not belong to the segment.
                packet.extend_from_slice(&[0xaa; 6]);
                complete_checksum(&mut packet);
                assert!(is_right(&packet), "{} bytes", data.len());
                let whole = packet.clone();
                complete_checksum(&mut packet);
                assert_eq!(packet, whole, "a right one stays");
            }
        }
    }

    #[test]
    fn a_wrong_checksum_stays_wrong() {
        for packet in [v4(b"data"), v6(b"data")] {
            let wrong = with_checksum(packet.clone(), pseudo(&packet) ^ 0x5555);
            let mut packet = wrong.clone();
            complete_checksum(&mut packet);
            assert_eq!(packet, wrong);
        }
    }

    #[test]
    fn what_is_cut_or_not_tcp_is_left_alone() {
        for whole in [v4(b"data"), v6(b"data")] {
            for len in 0..whole.len() {
                let mut cut = whole[..len].to_vec();
                complete_checksum(&mut cut);
                assert_eq!(cut, whole[..len]);
            }
            let mut udp = whole.clone();
            let at = if whole[0] >> 4 == 4 { 9 } else { 6 };
            udp[at] = 17;
            let before = udp.clone();
            complete_checksum(&mut udp);
            assert_eq!(udp, before);
        }
    }
}
