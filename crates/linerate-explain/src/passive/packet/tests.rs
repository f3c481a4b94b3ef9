use super::*;

/// IPv4 and TCP headers, then `payload`.
fn v4(payload: &[u8]) -> Vec<u8> {
    let mut p = vec![0x45, 0];
    p.extend((40 + payload.len() as u16).to_be_bytes());
    p.extend([0, 0, 0x40, 0, 64, 6, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2]);
    p.extend(tcp_bytes(payload));
    p
}

fn v6(payload: &[u8], next: u8, extension: &[u8]) -> Vec<u8> {
    let mut p = vec![0x60, 0, 0, 0];
    p.extend((20 + payload.len() as u16 + extension.len() as u16).to_be_bytes());
    p.extend([next, 64]);
    p.extend([0; 15]);
    p.push(1);
    p.extend([0; 15]);
    p.push(2);
    p.extend(extension);
    p.extend(tcp_bytes(payload));
    p
}

fn tcp_bytes(payload: &[u8]) -> Vec<u8> {
    let mut p = vec![0x9c, 0x40, 0, 80, 0, 0, 0, 7, 0, 0, 0, 9, 0x50, flag::ACK, 1, 0, 0, 0, 0, 0];
    p.extend(payload);
    p
}

/// Source, length and data of the segment in a frame.
fn decode(link: LinkType, frame: &[u8]) -> Result<(String, u32, Vec<u8>), Skip> {
    let packet = Packet { time_ns: 0, link, data: frame, wire_len: frame.len() as u32 };
    segment(&packet).map(|s| (s.src.addr().to_string(), s.len, s.data.to_vec()))
}

fn ethernet(tags: &[u8], kind: [u8; 2], packet: &[u8]) -> Vec<u8> {
    [&[0; 12][..], tags, &kind, packet].concat()
}

#[test]
fn every_link_type_comes_off() {
    let ip = v4(b"hi");
    let wanted = Ok(("10.0.0.1:40000".to_owned(), 2, b"hi".to_vec()));
    let padded = [ethernet(&[], [8, 0], &ip), vec![0; 4]].concat();
    assert_eq!(decode(LinkType::Ethernet, &padded), wanted, "padding is no data");
    assert_eq!(decode(LinkType::Ethernet, &ethernet(&[0x81, 0, 0, 5], [8, 0], &ip)), wanted);
    let qinq = ethernet(&[0x88, 0xa8, 0, 5, 0x81, 0, 0, 6], [8, 0], &ip);
    assert_eq!(decode(LinkType::Ethernet, &qinq), wanted);
    assert_eq!(decode(LinkType::Raw, &ip), wanted);
    assert_eq!(decode(LinkType::Loopback, &[&[2, 0, 0, 0][..], &ip].concat()), wanted);
    assert_eq!(decode(LinkType::Loopback, &[&[0, 0, 0, 2][..], &ip].concat()), wanted);
    assert_eq!(decode(LinkType::LinuxSll, &[&[0; 14][..], &[8, 0], &ip].concat()), wanted);
    assert_eq!(decode(LinkType::LinuxSll2, &[&[8, 0][..], &[0; 18], &ip].concat()), wanted);
    let nflog =
        [&[2, 0, 0, 1, 8, 0, 1, 0, 0, 0, 0, 0][..], &(4 + ip.len() as u16).to_le_bytes(), &[9, 0], &ip]
            .concat();
    assert_eq!(decode(LinkType::Nflog, &nflog), wanted);
    assert_eq!(decode(LinkType::from_number(147), &ip), Err(Skip::Link(147)));
}

#[test]
fn ipv6_and_its_extensions() {
    let wanted = Ok(("[::1]:40000".to_owned(), 2, b"hi".to_vec()));
    assert_eq!(decode(LinkType::Raw, &v6(b"hi", 6, &[])), wanted);
    assert_eq!(decode(LinkType::Raw, &v6(b"hi", 60, &[6, 0, 1, 4, 0, 0, 0, 0])), wanted);
    assert_eq!(decode(LinkType::Raw, &v6(b"hi", 44, &[6, 0, 0, 1, 0, 0, 0, 0])), Err(Skip::Fragment));
    assert_eq!(decode(LinkType::Raw, &v6(b"hi", 44, &[17, 0, 0, 1, 0, 0, 0, 0])), Err(Skip::NotTcp), "UDP's");
    assert_eq!(
        decode(LinkType::Raw, &v6(b"hi", 44, &[6, 0, 0, 0, 0, 0, 0, 9])),
        wanted,
        "RFC 6946: all of it"
    );
    // A chain that never ends.
    let endless = v6(&[60; 200], 60, &[60, 0, 0, 0, 0, 0, 0, 0]);
    assert!(decode(LinkType::Raw, &endless).is_err());
}

#[test]
fn fragments_and_broken_headers_are_named() {
    let mut fragment = v4(b"hi");
    fragment[6] = 0x20;
    assert_eq!(decode(LinkType::Raw, &fragment), Err(Skip::Fragment));
    assert_eq!(decode(LinkType::Raw, &v4(b"hi")[..30]), Err(Skip::Malformed));
    assert_eq!(decode(LinkType::Ethernet, &[0; 20]), Err(Skip::NotTcp));
    assert_eq!(decode(LinkType::Ethernet, &[0; 5]), Err(Skip::Malformed));
}

/// Both parts of a packet, in IPv4 and in IPv6; and a UDP packet, which is not read.
#[test]
fn fragments_are_counted_and_told_of() {
    use crate::passive::{CaptureLimits, Observer, words};

    let v4_part = |flags_and_offset: u16, protocol: u8| {
        let mut p = v4(b"GET / HTTP/1.1\r\n");
        p[6..8].copy_from_slice(&flags_and_offset.to_be_bytes());
        p[9] = protocol;
        p
    };
    let v6_part = |offset_and_flags: u16| {
        let [high, low] = offset_and_flags.to_be_bytes();
        v6(b"GET / HTTP/1.1\r\n", 44, &[6, 0, high, low, 0, 0, 0, 7])
    };
    let mut observer = Observer::new(CaptureLimits::default());
    for data in [&v4_part(0x2000, 6), &v4_part(3, 6), &v6_part(1), &v6_part(24), &v4_part(3, 17)] {
        observer.packet(&Packet { time_ns: 0, link: LinkType::Raw, data, wire_len: data.len() as u32 });
    }
    let seen = observer.finish();
    let p = &seen.packets;
    assert_eq!((p.all, p.tcp, p.fragments, p.other, p.malformed), (5, 0, 4, 1, 0));
    assert_eq!(
        words::limits(&seen),
        ["4 IP fragments of TCP were left out: they are not put together, so their connections have holes"]
    );
}

#[test]
fn what_a_snap_length_cut_off_still_counts_as_length() {
    let whole = v4(b"hello");
    let packet = Packet { time_ns: 0, link: LinkType::Raw, data: &whole[..42], wire_len: 45 };
    let s = segment(&packet).expect("a segment");
    assert_eq!((s.len, s.data), (5, &b"he"[..]));
}

#[test]
fn a_length_left_to_the_card_is_what_there_is() {
    let mut offloaded = v4(b"hello");
    offloaded[2..4].fill(0);
    assert_eq!(decode(LinkType::Raw, &offloaded).map(|s| s.1), Ok(5));
}

/// Around `inner`: IPv4 of that protocol.
fn in_v4(protocol: u8, inner: &[u8]) -> Vec<u8> {
    let mut p = vec![0x45, 0];
    p.extend((20 + inner.len() as u16).to_be_bytes());
    p.extend([0, 0, 0, 0, 64, protocol, 0, 0, 192, 0, 2, 1, 192, 0, 2, 2]);
    p.extend(inner);
    p
}

/// UDP to that port.
fn in_udp(port: u16, inner: &[u8]) -> Vec<u8> {
    let mut p = vec![0xc0, 0];
    p.extend(port.to_be_bytes());
    p.extend((8 + inner.len() as u16).to_be_bytes());
    p.extend([0, 0]);
    p.extend(inner);
    in_v4(17, &p)
}

/// Each packet is the same segment; cut anywhere, it is what is left, or an error.
fn all_come_off(cases: &[(&str, LinkType, Vec<u8>)]) {
    let wanted = Ok(("10.0.0.1:40000".to_owned(), 2, b"hi".to_vec()));
    for (name, link, packet) in cases {
        assert_eq!(decode(*link, packet), wanted, "{name}");
        for n in 0..packet.len() {
            let _ = decode(*link, &packet[..n]);
        }
    }
}

#[test]
fn tunnels_come_off() {
    let ip = v4(b"hi");
    let frame = ethernet(&[], [8, 0], &ip);
    let vxlan = [&[8, 0, 0, 0, 0, 0, 42, 0][..], &frame].concat();
    let gre = |head: &[u8], inner: &[u8]| in_v4(47, &[head, inner].concat());
    let eth = |packet: &[u8]| ethernet(&[], [8, 0], packet);
    let cases: &[(&str, LinkType, Vec<u8>)] = &[
        ("VXLAN", LinkType::Ethernet, eth(&in_udp(4789, &vxlan))),
        ("VXLAN of Linux before", LinkType::Raw, in_udp(8472, &vxlan)),
        ("VXLAN-GPE", LinkType::Raw, in_udp(4790, &[&[12, 0, 0, 1, 0, 0, 0, 0][..], &ip].concat())),
        ("Geneve", LinkType::Raw, in_udp(6081, &[&[0, 0, 0x65, 0x58, 0, 0, 1, 0][..], &frame].concat())),
        (
            "Geneve with options",
            LinkType::Raw,
            in_udp(6081, &[&[1, 0, 8, 0, 0, 0, 1, 0, 0, 0, 0, 0][..], &ip].concat()),
        ),
        ("GRE", LinkType::Raw, gre(&[0, 0, 8, 0], &ip)),
        (
            "GRE with checksum, key and number",
            LinkType::Raw,
            gre(&[0xb0, 0, 8, 0, 0, 0, 0, 0, 0, 0, 0, 9, 0, 0, 0, 1], &ip),
        ),
        ("GRE of frames", LinkType::Raw, gre(&[0, 0, 0x65, 0x58], &frame)),
        ("ERSPAN", LinkType::Raw, gre(&[0x10, 0, 0x88, 0xbe, 0, 0, 0, 1, 0x10, 0, 0, 0, 0, 0, 0, 0], &frame)),
        ("PPTP", LinkType::Raw, gre(&[0x30, 1, 0x88, 0x0b, 0, 4, 0, 1, 0, 0, 0, 1, 0xff, 3, 0, 0x21], &ip)),
        ("IP in IP", LinkType::Raw, in_v4(4, &ip)),
        ("IP in IP in IP", LinkType::Raw, in_v4(4, &in_v4(4, &ip))),
    ];
    all_come_off(cases);
}

#[test]
fn labels_come_off() {
    let ip = v4(b"hi");
    let frame = ethernet(&[], [8, 0], &ip);
    let cases: &[(&str, LinkType, Vec<u8>)] = &[
        (
            "PPPoE",
            LinkType::Ethernet,
            ethernet(
                &[],
                [0x88, 0x64],
                &[&[0x11, 0, 0, 7, 0, ip.len() as u8 + 2, 0, 0x21][..], &ip, &[0; 4]].concat(),
            ),
        ),
        ("PPP", LinkType::Ppp, [&[0xff, 3, 0, 0x21][..], &ip].concat()),
        ("MPLS", LinkType::Ethernet, ethernet(&[], [0x88, 0x47], &[&[0, 1, 1, 64][..], &ip].concat())),
        (
            "MPLS of two labels",
            LinkType::Ethernet,
            ethernet(&[], [0x88, 0x47], &[&[0, 1, 0, 64, 0, 2, 1, 64][..], &ip].concat()),
        ),
        (
            "a frame in MPLS",
            LinkType::Ethernet,
            ethernet(&[], [0x88, 0x47], &[&[0, 1, 1, 64, 0, 0, 0, 0][..], &frame].concat()),
        ),
        (
            "four tags",
            LinkType::Ethernet,
            ethernet(&[0x88, 0xa8, 0, 5, 0x81, 0, 0, 6, 0x81, 0, 0, 7, 0x91, 0, 0, 8], [8, 0], &ip),
        ),
        (
            "SNAP",
            LinkType::Ethernet,
            ethernet(&[], [0, 60], &[&[0xaa, 0xaa, 3, 0, 0, 0, 8, 0][..], &ip].concat()),
        ),
        ("802.1ah", LinkType::Ethernet, ethernet(&[], [0x88, 0xe7], &[&[0; 4][..], &frame].concat())),
    ];
    all_come_off(cases);
}

#[test]
fn only_tunnels_come_off() {
    let six = v6(b"hi", 6, &[]);
    assert_eq!(decode(LinkType::Raw, &in_v4(41, &six)).map(|s| s.0), Ok("[::1]:40000".to_owned()));
    let vxlan = [&[8, 0, 0, 0, 0, 0, 42, 0][..], &ethernet(&[], [8, 0], &v4(b"hi"))].concat();
    assert_eq!(decode(LinkType::Raw, &in_udp(53, &vxlan)), Err(Skip::NotTcp));
}

/// A packet that nests without end is left.
#[test]
fn nesting_is_bounded() {
    let nested = |n: usize| (0..n).fold(v4(b"hi"), |inner, _| in_v4(4, &inner));
    assert!(decode(LinkType::Raw, &nested(20)).is_ok());
    assert_eq!(decode(LinkType::Raw, &nested(40)), Err(Skip::NotTcp));
    let tags: Vec<u8> = [0x81, 0, 0, 5].repeat(200);
    assert_eq!(decode(LinkType::Ethernet, &ethernet(&tags, [8, 0], &v4(b"hi"))), Err(Skip::NotTcp));
}

/// On a machine with a tunnel each packet is captured on both of its interfaces.
#[test]
fn inside_and_outside_of_a_tunnel_is_one_packet() {
    use crate::passive::{CaptureLimits, Observer};

    let inner = v4(b"GET / HTTP/1.1\r\n\r\n");
    let mut observer = Observer::new(CaptureLimits::default());
    for data in [&inner, &in_v4(4, &inner)] {
        observer.packet(&Packet { time_ns: 5, link: LinkType::Raw, data, wire_len: data.len() as u32 });
    }
    assert_eq!(observer.finish().packets.twice, 1);
}

#[test]
fn options_are_read_and_broken_ones_end_them() {
    let with = |options: &[u8]| {
        let mut p = vec![0x45, 0];
        p.extend((40 + options.len() as u16).to_be_bytes());
        p.extend([0, 0, 0x40, 0, 64, 6, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2]);
        p.extend([0x9c, 0x40, 0, 80, 0, 0, 0, 7, 0, 0, 0, 9]);
        p.extend([(5 + options.len() as u8 / 4) << 4, flag::ACK, 1, 0, 0, 0, 0, 0]);
        p.extend(options);
        let packet = Packet { time_ns: 0, link: LinkType::Raw, data: &p, wire_len: p.len() as u32 };
        segment(&packet).map(|s| (s.stamps, s.sacks)).expect("a segment")
    };
    let stamps = [1, 1, 8, 10, 0, 0, 0, 5, 0, 0, 0, 6];
    assert_eq!(with(&stamps), (Some((5, 6)), [None; 2]));
    let sack = [&stamps[..], &[1, 1, 5, 10, 0, 0, 0, 1, 0, 0, 0, 2]].concat();
    assert_eq!(with(&sack), (Some((5, 6)), [Some((1, 2)), None]));
    for broken in [[8, 10, 0, 0], [8, 0, 0, 0], [8, 1, 8, 10], [5, 200, 1, 1]] {
        assert_eq!(with(&broken), (None, [None; 2]), "{broken:?}");
    }
}
