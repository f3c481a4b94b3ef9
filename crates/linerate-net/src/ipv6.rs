//! Where the payload of an IPv6 packet begins: behind its extension headers (RFC 8200 section 4).

use crate::limits::EXTENSION_HEADERS;

/// Bytes of the header before all others.
pub(crate) const HEADER: usize = 40;

/// Numbers of extension headers.
const HOP_BY_HOP: u8 = 0;
const ROUTING: u8 = 43;
const DESTINATION: u8 = 60;

/// The protocol of a packet's payload, and where it begins; `None` if headers are cut, too many, or
/// demand that the packet be discarded. A routing header that leads on, and a fragment header, count
/// as payload, because they are not for a stack.
pub(crate) fn payload(packet: &[u8]) -> Option<(u8, usize)> {
    let (mut next, mut at) = (*packet.get(6)?, HEADER);
    for position in 0..=EXTENSION_HEADERS {
        let is_options = next == DESTINATION || (next == HOP_BY_HOP && position == 0);
        if !is_options && next != ROUTING {
            return Some((next, at));
        }
        let len = 8 * (1 + usize::from(*packet.get(at + 1)?));
        let header = packet.get(at..at + len)?;
        match next {
            ROUTING if header[3] != 0 => return Some((next, at)),
            ROUTING => {}
            _ if !may_skip(&header[2..]) => return None,
            _ => {}
        }
        (next, at) = (header[0], at + len);
    }
    None
}

/// Whether a receiver that knows none of these options may skip them all: their highest two bits
/// are zero (RFC 8200 section 4.2).
fn may_skip(mut options: &[u8]) -> bool {
    while let [kind, rest @ ..] = options {
        if *kind == 0 {
            options = rest;
            continue;
        }
        let Some(after) = rest.first().and_then(|len| rest.get(1 + usize::from(*len)..)) else {
            return false;
        };
        if kind >> 6 != 0 {
            return false;
        }
        options = after;
    }
    true
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    const TCP: u8 = 6;

    /// Puts extension headers of these kinds and lengths, in units of eight bytes, into a packet.
    pub(crate) fn extend(packet: &mut Vec<u8>, headers: &[(u8, u8)]) {
        let mut last = packet[6];
        for (kind, more) in headers.iter().rev() {
            let len = 8 * (1 + usize::from(*more));
            let mut header = vec![0; len];
            (header[0], header[1]) = (last, *more);
            packet.splice(HEADER..HEADER, header);
            last = *kind;
        }
        packet[6] = last;
        let len = (packet.len() - HEADER) as u16;
        packet[4..6].copy_from_slice(&len.to_be_bytes());
    }

    fn packet(headers: &[(u8, u8)]) -> Vec<u8> {
        let mut packet = vec![0; HEADER + 20];
        (packet[0], packet[6]) = (0x60, TCP);
        extend(&mut packet, headers);
        packet
    }

    /// RFC 8200 section 4.1.
    #[test]
    fn the_payload_is_behind_the_headers() {
        assert_eq!(payload(&packet(&[])), Some((TCP, 40)));
        assert_eq!(payload(&packet(&[(0, 0)])), Some((TCP, 48)));
        assert_eq!(payload(&packet(&[(0, 1), (60, 0), (43, 2), (60, 0)])), Some((TCP, 40 + 56)));
        assert_eq!(payload(&packet(&[(60, 0), (0, 0)])), Some((0, 48)), "hop-by-hop options come first");
        assert_eq!(payload(&packet(&[(44, 0)])), Some((44, 40)), "a fragment");
    }

    #[test]
    fn a_chain_is_bounded_and_may_be_cut() {
        let chain = [(60, 0); EXTENSION_HEADERS + 1];
        assert_eq!(payload(&packet(&chain[1..])), Some((TCP, 40 + 8 * EXTENSION_HEADERS)));
        assert_eq!(payload(&packet(&chain)), None);
        let whole = packet(&[(0, 0), (43, 3)]);
        for len in 0..40 + 40 {
            assert_eq!(payload(&whole[..len]), None, "cut at {len}");
        }
    }

    /// RFC 8200 section 4.4: a routing header with segments left leads on to another host.
    #[test]
    fn a_routing_header_that_leads_on_is_not_passed() {
        let mut packet = packet(&[(43, 0)]);
        packet[HEADER + 3] = 1;
        assert_eq!(payload(&packet), Some((43, 40)));
    }

    /// RFC 8200 section 4.2.
    #[test]
    fn unknown_options_say_whether_they_may_be_skipped() {
        for (options, skipped) in [
            ([1, 4, 0, 0, 0, 0], true),
            ([0, 0, 0x1e, 2, 9, 9], true),
            ([0x5e, 4, 0, 0, 0, 0], false),
            ([0, 0, 0x9e, 2, 9, 9], false),
            ([0xde, 4, 0, 0, 0, 0], false),
            ([1, 5, 0, 0, 0, 0], false),
            ([0, 0, 0, 0, 0, 1], false),
        ] {
            let mut packet = packet(&[(60, 0)]);
            packet[HEADER + 2..HEADER + 8].copy_from_slice(&options);
            assert_eq!(payload(&packet).is_some(), skipped, "{options:x?}");
        }
    }
}
