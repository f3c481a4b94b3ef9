//! The ICMP messages that concern TCP: a packet was too large for the path behind a router (RFC 1191
//! section 4, RFC 8201), or its destination cannot be reached (RFC 792, RFC 4443 section 3.1).

use super::Seq;
use super::checksum::Sum;
use super::ip::{Addr, TCP};
use super::malformed::Malformed;
use crate::stack::tuple::Tuple;

const IPV4_HEADER: usize = 20;
const IPV6_HEADER: usize = 40;
const ICMP: u8 = 1;
const ICMPV6: u8 = 58;
/// Bytes of type, code, checksum and MTU.
const HEADER: usize = 8;
/// Bytes of a segment that are always quoted: ports and sequence number (RFC 792).
const QUOTED: usize = 8;

/// Codes of "destination unreachable" that will not change soon: protocol and port, and by an
/// administrator network, host and communication (RFC 1122 section 3.2.2.1, RFC 1812 section
/// 5.2.7.1).
const HARD: [u8; 5] = [2, PORT, 9, 10, 13];
const PORT: u8 = 3;
const TOO_BIG: u8 = 4;
/// The same of ICMPv6: by an administrator, and the port.
const HARD_V6: [u8; 2] = [1, PORT_V6];
const PORT_V6: u8 = 4;

/// What a message says about a packet of ours.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum IcmpMeaning {
    /// The largest packet that fits, IP header included; 0 if the router does not say (RFC 1191 section 5).
    TooBig(usize),
    /// Nothing listens on the port.
    Refused,
    /// The destination cannot be reached.
    Unreachable,
}

/// A message about one of our packets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Message {
    /// The connection of that packet.
    pub(crate) tuple: Tuple,
    /// Its sequence number.
    pub(crate) seq: Seq,
    /// Its length, IP header included.
    pub(crate) len: usize,
    pub(crate) verdict: IcmpMeaning,
}

fn u16_at(bytes: &[u8], at: usize) -> usize {
    bytes.get(at..at + 2).map_or(0, |b| usize::from(b[0]) << 8 | usize::from(b[1]))
}

fn sum_of(parts: &[&[u8]]) -> u16 {
    let mut sum = Sum::default();
    parts.iter().for_each(|part| sum.add(part));
    sum.finish()
}

impl Message {
    /// Parses a packet that begins with its IP header. Other messages, and those that quote too
    /// little, are not for us.
    pub(crate) fn parse(bytes: &[u8]) -> Result<Message, Malformed> {
        match bytes.first().ok_or(Malformed::Short)? >> 4 {
            4 => Message::parse_v4(bytes),
            6 => Message::parse_v6(bytes),
            _ => Err(Malformed::NotOurs),
        }
    }

    fn parse_v4(bytes: &[u8]) -> Result<Message, Malformed> {
        let from = usize::from(bytes[0] & 15) * 4;
        let whole = bytes.get(..u16_at(bytes, 2)).ok_or(Malformed::Short)?;
        let message = whole.get(from..).filter(|_| from >= IPV4_HEADER).ok_or(Malformed::Header)?;
        let quoted =
            message.get(HEADER..).filter(|q| q.len() >= IPV4_HEADER + QUOTED).ok_or(Malformed::Short)?;
        let verdict = match (message[0], message[1]) {
            (3, TOO_BIG) => IcmpMeaning::TooBig(u16_at(message, 6)),
            (3, PORT) => IcmpMeaning::Refused,
            (3, code) if HARD.contains(&code) => IcmpMeaning::Unreachable,
            _ => return Err(Malformed::NotOurs),
        };
        if bytes[9] != ICMP || quoted[0] >> 4 != 4 || quoted[9] != TCP {
            return Err(Malformed::NotOurs);
        }
        if sum_of(&[message]) != 0 {
            return Err(Malformed::Checksum);
        }
        let header = usize::from(quoted[0] & 15) * 4;
        let segment = quoted.get(header..header + QUOTED).filter(|_| header >= IPV4_HEADER);
        let addr = |at: usize| quoted[at..].first_chunk().map_or(Addr::default(), |c| Addr::v4(*c));
        let (src, dst) = (addr(12), addr(16));
        Message::of(src, dst, segment, u16_at(quoted, 2), verdict, whole[16..20] == *src.bytes())
    }

    fn parse_v6(bytes: &[u8]) -> Result<Message, Malformed> {
        let whole = bytes.get(..IPV6_HEADER + u16_at(bytes, 4)).ok_or(Malformed::Short)?;
        let message = whole.get(IPV6_HEADER..).ok_or(Malformed::Short)?;
        let quoted =
            message.get(HEADER..).filter(|q| q.len() >= IPV6_HEADER + QUOTED).ok_or(Malformed::Short)?;
        let mtu = if message[4..6] == [0, 0] { u16_at(message, 6) } else { usize::from(u16::MAX) };
        let verdict = match (message[0], message[1]) {
            (2, 0) => IcmpMeaning::TooBig(mtu),
            (1, PORT_V6) => IcmpMeaning::Refused,
            (1, code) if HARD_V6.contains(&code) => IcmpMeaning::Unreachable,
            _ => return Err(Malformed::NotOurs),
        };
        if bytes[6] != ICMPV6 || quoted[0] >> 4 != 6 || quoted[6] != TCP {
            return Err(Malformed::NotOurs);
        }
        let len = (message.len() as u32).to_be_bytes();
        if sum_of(&[&whole[8..IPV6_HEADER], &len, &[0, ICMPV6], message]) != 0 {
            return Err(Malformed::Checksum);
        }
        let addr = |at: usize| quoted[at..].first_chunk().map_or(Addr::default(), |c| Addr::v6(*c));
        let (src, dst) = (addr(8), addr(24));
        let segment = quoted.get(IPV6_HEADER..IPV6_HEADER + QUOTED);
        Message::of(
            src,
            dst,
            segment,
            IPV6_HEADER + u16_at(quoted, 4),
            verdict,
            whole[24..40] == *src.bytes(),
        )
    }

    /// `to_sender`: the message was addressed to the source of the packet.
    fn of(
        src: Addr,
        dst: Addr,
        segment: Option<&[u8]>,
        len: usize,
        verdict: IcmpMeaning,
        to_sender: bool,
    ) -> Result<Message, Malformed> {
        let segment = segment.filter(|_| to_sender).ok_or(Malformed::Header)?;
        let port = |at: usize| u16_at(segment, at) as u16;
        let tuple = Tuple { local: src, remote: dst, local_port: port(0), remote_port: port(2) };
        let seq = Seq(segment[4..].first_chunk().map_or(0, |c| u32::from_be_bytes(*c)));
        Ok(Message { tuple, seq, len, verdict })
    }

    /// A router's message that this packet of ours was too large.
    #[cfg(test)]
    pub(crate) fn about(packet: &[u8], mtu: u16) -> Vec<u8> {
        let kind = if packet[0] >> 4 == 4 { (3, TOO_BIG) } else { (2, 0) };
        Message::of_kind(packet, kind, mtu)
    }

    /// A message of this type and code about this packet of ours.
    #[cfg(test)]
    pub(crate) fn of_kind(packet: &[u8], (kind, code): (u8, u8), mtu: u16) -> Vec<u8> {
        let v4 = packet[0] >> 4 == 4;
        let quoted = &packet[..packet.len().min(if v4 { 28 } else { 1232 })];
        let mut message = vec![kind, code, 0, 0, 0, 0];
        message.extend_from_slice(&mtu.to_be_bytes());
        message.extend_from_slice(quoted);
        let (mut ip, addresses) = if v4 {
            let len = (IPV4_HEADER + message.len()) as u16;
            let mut ip = vec![0x45, 0, 0, 0, 0, 0, 0, 0, 64, ICMP, 0, 0];
            ip[2..4].copy_from_slice(&len.to_be_bytes());
            // From an arbitrary router, to the sender.
            ip.extend_from_slice(&[10, 0, 0, 254]);
            ip.extend_from_slice(&packet[12..16]);
            let sum = sum_of(&[&ip]);
            ip[10..12].copy_from_slice(&sum.to_be_bytes());
            (ip, Vec::new())
        } else {
            let mut ip = vec![0x60, 0, 0, 0, 0, 0, ICMPV6, 64];
            ip[4..6].copy_from_slice(&(message.len() as u16).to_be_bytes());
            ip.extend_from_slice(&[0xfd, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xfe]);
            ip.extend_from_slice(&packet[8..24]);
            let pseudo = [&ip[8..40], &(message.len() as u32).to_be_bytes(), &[0, ICMPV6]].concat();
            (ip, pseudo)
        };
        let sum = sum_of(&[&addresses, &message]);
        message[2..4].copy_from_slice(&sum.to_be_bytes());
        ip.extend_from_slice(&message);
        ip
    }
}

#[cfg(test)]
mod tests {
    use std::net::IpAddr;

    use super::*;
    use crate::stack::wire::{Flags, TcpHeader, emit, headers_len};

    /// A segment of ours with 100 bytes.
    fn segment(from: &str, to: &str) -> Vec<u8> {
        let addr = |text: &str| Addr::from(text.parse::<IpAddr>().expect("an address"));
        let tcp = TcpHeader {
            src_port: 80,
            dst_port: 5000,
            seq: Seq(77),
            flags: Flags::ACK,
            ..TcpHeader::default()
        };
        let mut packet = vec![0; headers_len(&addr(to), &tcp) + 100];
        emit(&addr(from), &addr(to), &tcp, &mut packet, |_| {});
        packet
    }

    #[test]
    fn what_a_router_says_is_read_for_both_families() {
        for (from, to) in [("10.0.0.1", "10.0.0.2"), ("fd00::1", "fd00::2")] {
            let packet = segment(from, to);
            let bytes = Message::about(&packet, 1300);
            let told = Message::parse(&bytes).expect("well formed");
            assert_eq!(
                (told.seq, told.len, told.verdict),
                (Seq(77), packet.len(), IcmpMeaning::TooBig(1300))
            );
            assert_eq!((told.tuple.local_port, told.tuple.remote_port), (80, 5000));
            assert_eq!(told.tuple.local.ip().to_string(), from);
            assert_eq!(told.tuple.remote.ip().to_string(), to);
            for cut in 0..bytes.len() {
                assert!(Message::parse(&bytes[..cut]).is_err(), "cut at {cut}");
            }
            for at in 0..bytes.len() {
                let mut other = bytes.clone();
                other[at] ^= 0x10;
                // The router's own address and unchecked header fields may have any value.
                if let Ok(other) = Message::parse(&other) {
                    assert_eq!(other, told, "byte {at}");
                }
            }
        }
    }

    #[test]
    fn other_messages_and_other_peoples_are_not_ours() {
        let packet = segment("10.0.0.1", "10.0.0.2");
        let mut elsewhere = Message::about(&packet, 1300);
        elsewhere[19] = 9;
        assert_eq!(Message::parse(&elsewhere), Err(Malformed::Header), "to another address");
        let mut unreachable = Message::about(&packet, 1300);
        // Host unreachable may pass (RFC 1122 section 4.2.3.9).
        unreachable[21] = 1;
        assert_eq!(Message::parse(&unreachable), Err(Malformed::NotOurs));
        assert_eq!(Message::parse(&packet), Err(Malformed::NotOurs), "a segment is no message");
    }
}
