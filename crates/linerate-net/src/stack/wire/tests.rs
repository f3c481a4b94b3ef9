use proptest::prelude::*;

use super::*;
use crate::ipv6::tests::extend;
use crate::limits::EXTENSION_HEADERS;

fn addr(v4: bool, last: u8) -> Addr {
    let ip: std::net::IpAddr =
        if v4 { [10, 0, 0, last].into() } else { [0xfd00, 0, 0, 0, 0, 0, 0, u16::from(last)].into() };
    Addr::from(ip)
}

fn options() -> impl Strategy<Value = Options> {
    let sack = prop::collection::vec((any::<u32>(), any::<u32>()), 0..3);
    (any::<Option<u16>>(), prop::option::of(0u8..15), any::<bool>(), any::<Option<(u32, u32)>>(), sack)
        .prop_map(|(mss, window_scale, sack_permitted, timestamps, blocks)| {
            let mut options = Options { mss, window_scale, sack_permitted, timestamps, ..Options::default() };
            // The options of a SYN and SACK blocks do not fit into 40 bytes together, and never
            // occur together.
            if mss.is_none() && window_scale.is_none() && !sack_permitted {
                for (start, end) in blocks {
                    options.sack.push(Seq(start), Seq(end));
                }
            }
            options
        })
}

fn ecn() -> impl Strategy<Value = Ecn> {
    prop::sample::select(&[Ecn::NotCapable, Ecn::Capable1, Ecn::Capable, Ecn::Marked])
}

proptest! {
    /// A router's mark changes nothing else, and leaves the checksum right.
    #[test]
    fn marked_on_the_way(v4: bool, ecn in ecn(), ports: (u16, u16)) {
        let (src, dst) = (addr(v4, 1), addr(v4, 2));
        let tcp = TcpHeader { src_port: ports.0, dst_port: ports.1, ecn, ..TcpHeader::default() };
        let mut bytes = vec![0; headers_len(&dst, &tcp)];
        emit(&src, &dst, &tcp, &mut bytes, |_| {});
        let may = ecn != Ecn::NotCapable;
        prop_assert_eq!(Ecn::mark(&mut bytes), may);
        let marked = Packet::parse(&bytes, Checksums::Full).expect("well formed").tcp;
        prop_assert_eq!(marked, TcpHeader { ecn: if may { Ecn::Marked } else { ecn }, ..tcp });
        prop_assert!(!Ecn::mark(&mut bytes[..usize::from(v4)]), "no packet");
    }

    /// A written packet can be parsed with matching checksums, and cannot once a bit was changed.
    #[test]
    fn written_and_read(
        v4: bool, ports: (u16, u16), seq: u32, ack: u32, flags: u8, window: u16, options in options(), ecn in ecn(),
        payload in prop::collection::vec(any::<u8>(), 0..100), broken: u16,
    ) {
        let (src, dst) = (addr(v4, 1), addr(v4, 2));
        let tcp = TcpHeader {
            src_port: ports.0, dst_port: ports.1, seq: Seq(seq), ack: Seq(ack), flags: Flags(flags), window,
            urgent: window ^ 0x5a5a, ecn, options,
        };
        let mut bytes = vec![0xaa; headers_len(&dst, &tcp) + payload.len()];
        emit(&src, &dst, &tcp, &mut bytes, |out| out.copy_from_slice(&payload));
        let packet = Packet::parse(&bytes, Checksums::Full).expect("well formed");
        prop_assert_eq!((packet.src, packet.dst, packet.tcp), (src, dst, tcp));
        prop_assert_eq!(&bytes[packet.from..packet.to], &payload[..]);
        // Ethernet pads short frames; bytes behind the packet do not belong to it.
        bytes.extend_from_slice(&[0; 7]);
        let padded = Packet::parse(&bytes, Checksums::Full).expect("well formed");
        prop_assert_eq!((padded.from, padded.to), (packet.from, packet.to));
        let at = usize::from(broken) % packet.to;
        bytes[at] ^= 1 << (broken >> 13);
        let changed = Packet::parse(&bytes, Checksums::Full);
        // No checksum covers version, traffic class, flow label and hop limit of IPv6.
        prop_assert!(changed.is_err() || (!v4 && (at < 4 || at == 7)), "byte {} was changed", at);
    }

    #[test]
    fn no_bytes_cause_a_panic(bytes in prop::collection::vec(any::<u8>(), 0..200), v6: bool) {
        let mut bytes = bytes;
        for checksums in [Checksums::Full, Checksums::Trust] {
            let _ = Packet::parse(&bytes, checksums);
            if let Some(first) = bytes.first_mut() {
                *first = if v6 { 0x60 } else { 0x45 };
            }
            if let Some(protocol) = bytes.get_mut(if v6 { 6 } else { 9 }) {
                *protocol = 6;
            }
            let _ = Packet::parse(&bytes, checksums);
        }
        let _ = Options::parse(&bytes);
    }
}

/// The example in RFC 1071 section 3.
#[test]
fn rfc_1071_example() {
    let mut sum = checksum::Sum::default();
    sum.add(&[0x00, 0x01, 0xf2, 0x03, 0xf4, 0xf5, 0xf6, 0xf7]);
    assert_eq!(sum.finish(), !0xddf2);
}

/// RFC 9293 section 3.4: comparison wraps.
#[test]
fn sequence_numbers_wrap() {
    let near = Seq(u32::MAX - 5);
    assert!(near.lt(near + 10) && (near + 10).gt(near) && near.le(near) && near.ge(near));
    assert_eq!((near + 10) - near, 10);
    assert_eq!(near.max(near + 10), near + 10);
    assert_eq!(near.min(near + 10), near);
}

/// RFC 9293 section 3.2: a length below 2, or beyond the header, makes the options unreadable.
#[test]
fn options_that_lie_about_their_length() {
    assert_eq!(Options::parse(&[8, 0]), Err(Malformed::Header));
    assert_eq!(Options::parse(&[8, 1]), Err(Malformed::Header));
    assert_eq!(Options::parse(&[2, 4, 5]), Err(Malformed::Header));
    assert_eq!(Options::parse(&[99, 3, 0, 1, 0, 99]), Ok(Options::default()), "unknown ones are skipped");
}

/// RFC 7323 section 2.3: a shift above 14 counts as 14.
#[test]
fn the_largest_shift() {
    assert_eq!(Options::parse(&[3, 3, 99]).map(|o| o.window_scale), Ok(Some(14)));
}

#[test]
fn fragments_are_not_ours() {
    let tcp = TcpHeader::default();
    let (src, dst) = (addr(true, 1), addr(true, 2));
    let mut bytes = vec![0; headers_len(&dst, &tcp)];
    emit(&src, &dst, &tcp, &mut bytes, |_| {});
    bytes[6] = 0x20;
    assert_eq!(Packet::parse(&bytes, Checksums::Trust).map(|_| ()), Err(Malformed::NotOurs));
}

/// RFC 8200 section 4.
#[test]
fn segments_behind_extension_headers_are_read() {
    let (src, dst) = (addr(false, 1), addr(false, 2));
    let tcp = TcpHeader { src_port: 1, dst_port: 2, seq: Seq(3), flags: Flags::ACK, ..TcpHeader::default() };
    let mut plain = vec![0; headers_len(&dst, &tcp) + 5];
    emit(&src, &dst, &tcp, &mut plain, |out| out.copy_from_slice(b"hello"));
    for headers in [&[(0, 0)][..], &[(60, 2), (43, 0)], &[(0, 1), (60, 0), (43, 2), (60, 0)]] {
        let mut bytes = plain.clone();
        extend(&mut bytes, headers);
        let packet = Packet::parse(&bytes, Checksums::Full).expect("well formed");
        assert_eq!((packet.src, packet.dst, packet.tcp), (src, dst, tcp));
        assert_eq!(&bytes[packet.from..packet.to], b"hello");
        // A length that ends within the headers.
        bytes[4..6].copy_from_slice(&[0, 7]);
        assert_eq!(Packet::parse(&bytes, Checksums::Full).map(|_| ()), Err(Malformed::Header));
    }
    let mut leads_on = plain.clone();
    extend(&mut leads_on, &[(43, 0)]);
    leads_on[43] = 1;
    assert_eq!(Packet::parse(&leads_on, Checksums::Full).map(|_| ()), Err(Malformed::NotOurs));
    let mut long = plain.clone();
    extend(&mut long, &[(60, 0); EXTENSION_HEADERS + 1]);
    assert_eq!(Packet::parse(&long, Checksums::Full).map(|_| ()), Err(Malformed::Header));
}
