//! The program's verdicts on frames, run by the kernel, which requires root.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use linerate_skips::{need, skip};

use crate::clock::monotonic;
use crate::ipv6::tests::extend;
use crate::limits::EXTENSION_HEADERS;
use crate::sys::xdp::{BpfMap, MapKind, Program};

use super::Steer;
use super::ethernet::Mac;
use super::flow_key::{FLOW_KEY, flow_key};
use super::limits;
use super::preflight;
use super::program::{Ours, QueueMode, SharingMaps, XDP_DROP, XDP_PASS, program, stamp};
use super::steer::{Ports, Rule};

const OURS: u32 = 4;
const CARD: Mac = Mac([2; 6]);
const US: Ipv4Addr = Ipv4Addr::new(10, 1, 2, 3);
const US6: Ipv6Addr = Ipv6Addr::new(0xfd00, 1, 2, 3, 4, 5, 6, 7);

/// Runs a program with these rules on frames; `None` without the right to load one.
struct Judge(Program);

impl Judge {
    fn new(rules: &[Rule]) -> Option<Judge> {
        if let Err(why) = preflight::capabilities() {
            skip(need::XDP, why);
            return None;
        }
        Some(Judge(
            Program::load(&program(rules, CARD, Ours::Say(OURS))).expect("a program the verifier takes"),
        ))
    }

    fn drops(&self, frame: &[u8]) -> bool {
        self.0.verdict(frame).expect("a verdict") == XDP_DROP
    }

    fn takes(&self, frame: &[u8]) -> bool {
        match self.0.verdict(frame).expect("a verdict") {
            OURS => true,
            XDP_PASS => false,
            other => panic!("verdict {other}"),
        }
    }
}

fn ethernet(kind: u16, packet: &[u8]) -> Vec<u8> {
    let mut frame = vec![2; 12];
    frame.extend_from_slice(&kind.to_be_bytes());
    frame.extend_from_slice(packet);
    frame
}

/// A segment to `port`, in IPv4 with this many bytes of options.
fn v4(to: Ipv4Addr, port: u16, options: usize, change: impl FnOnce(&mut [u8])) -> Vec<u8> {
    let mut packet = vec![0; 20 + options];
    packet[0] = 0x40 | (5 + options / 4) as u8;
    packet[9] = 6;
    packet[6] = 0x40; // don't fragment
    packet[16..20].copy_from_slice(&to.octets());
    change(&mut packet);
    packet.extend_from_slice(&[0x1f, 0x90]);
    packet.extend_from_slice(&port.to_be_bytes());
    packet.resize(packet.len() + 16, 0);
    ethernet(0x0800, &packet)
}

fn v6(to: Ipv6Addr, port: u16, next_header: u8) -> Vec<u8> {
    let mut packet = vec![0; 40];
    packet[0] = 0x60;
    packet[6] = next_header;
    packet[24..40].copy_from_slice(&to.octets());
    packet.extend_from_slice(&[0x1f, 0x90]);
    packet.extend_from_slice(&port.to_be_bytes());
    packet.resize(packet.len() + 16, 0);
    ethernet(0x86dd, &packet)
}

fn rules(steer: &Steer) -> Vec<Rule> {
    steer.rules(&[US.into(), US6.into()])
}

#[test]
fn a_server_takes_its_port_on_its_addresses_and_nothing_else() {
    let any =
        [SocketAddr::from((Ipv4Addr::UNSPECIFIED, 8080)), SocketAddr::from((Ipv6Addr::UNSPECIFIED, 8443))];
    let rules = rules(&Steer::Listen(any.to_vec()));
    let Some(judge) = Judge::new(&rules) else {
        return;
    };
    assert!(judge.takes(&v4(US, 8080, 0, |_| {})));
    assert!(judge.takes(&v6(US6, 8443, 6)));
    for (frame, what) in [
        (v4(US, 22, 0, |_| {}), "another port"),
        (v4(Ipv4Addr::new(10, 1, 2, 4), 8080, 0, |_| {}), "another address"),
        (v4(US, 8080, 0, |ip| ip[9] = 17), "UDP"),
        (v4(US, 8080, 0, |ip| ip[9] = 1), "ICMP"),
        (v4(US, 8080, 0, |ip| ip[0] = 0x55), "version 5"),
        (v6(US6, 8080, 6), "the other family's port"),
        (v6(Ipv6Addr::new(0xfd00, 1, 2, 3, 4, 5, 6, 8), 8443, 6), "an address that differs at its end"),
        (v6(Ipv6Addr::new(0xfd01, 1, 2, 3, 4, 5, 6, 7), 8443, 6), "an address that differs at its start"),
        (v6(US6, 8443, 58), "ICMPv6"),
        (v6(US6, 8443, 0), "an extension header"),
        (ethernet(0x0806, &[0; 46]), "ARP"),
        (ethernet(0x8100, &[0; 46]), "a VLAN tag"),
    ] {
        assert!(!judge.takes(&frame), "{what}");
    }
}

/// A router's message about a segment from one of our ports.
fn too_big_v4(from: Ipv4Addr, port: u16, change: impl FnOnce(&mut [u8])) -> Vec<u8> {
    let mut packet = vec![0; 20 + 8 + 28];
    (packet[0], packet[9]) = (0x45, 1);
    packet[16..20].copy_from_slice(&from.octets());
    (packet[20], packet[21]) = (3, 4);
    (packet[28], packet[28 + 9]) = (0x45, 6);
    packet[28 + 12..28 + 16].copy_from_slice(&from.octets());
    packet[48..50].copy_from_slice(&port.to_be_bytes());
    change(&mut packet);
    ethernet(0x0800, &packet)
}

fn too_big_v6(from: Ipv6Addr, port: u16, change: impl FnOnce(&mut [u8])) -> Vec<u8> {
    let mut packet = vec![0; 40 + 8 + 48];
    (packet[0], packet[6], packet[40]) = (0x60, 58, 2);
    packet[24..40].copy_from_slice(&from.octets());
    (packet[48], packet[48 + 6]) = (0x60, 6);
    packet[48 + 8..48 + 24].copy_from_slice(&from.octets());
    packet[88..90].copy_from_slice(&port.to_be_bytes());
    change(&mut packet);
    ethernet(0x86dd, &packet)
}

#[test]
fn a_routers_word_about_our_segments_is_ours_and_other_messages_are_not() {
    let rules = rules(&Steer::Listen(vec![(US, 8080).into(), (US6, 8443).into()]));
    let Some(judge) = Judge::new(&rules) else { return };
    assert!(judge.takes(&too_big_v4(US, 8080, |_| {})));
    assert!(judge.takes(&too_big_v6(US6, 8443, |_| {})));
    for code in [2, 3, 9, 10, 13] {
        assert!(judge.takes(&too_big_v4(US, 8080, |p| p[21] = code)), "code {code}");
    }
    for code in [1, 4] {
        assert!(judge.takes(&too_big_v6(US6, 8443, |p| (p[40], p[41]) = (1, code))), "code {code}");
    }
    for (frame, what) in [
        (too_big_v4(US, 22, |_| {}), "about another port"),
        (too_big_v4(Ipv4Addr::new(10, 1, 2, 4), 8080, |_| {}), "about another address"),
        (too_big_v4(US, 8080, |p| p[21] = 1), "host unreachable, which may pass"),
        (too_big_v4(US, 8080, |p| p[20] = 8), "ping"),
        (too_big_v4(US, 8080, |p| p[28 + 9] = 17), "about UDP"),
        (too_big_v4(US, 8080, |p| p[6] = 0x20), "a fragment"),
        (too_big_v6(US6, 22, |_| {}), "about another port"),
        (too_big_v6(Ipv6Addr::LOCALHOST, 8443, |_| {}), "about another address"),
        (too_big_v6(US6, 8443, |p| p[40] = 135), "a neighbour's question"),
        (too_big_v6(US6, 8443, |p| p[40] = 1), "no route, which may pass"),
        (too_big_v6(US6, 8443, |p| (p[40], p[41]) = (4, 1)), "a parameter problem"),
        (too_big_v6(US6, 8443, |p| p[48 + 6] = 17), "about UDP"),
    ] {
        assert!(!judge.takes(&frame), "{what}");
    }
    for whole in [too_big_v4(US, 8080, |_| {}), too_big_v6(US6, 8443, |_| {})] {
        for len in 14..whole.len() {
            assert!(!judge.takes(&whole[..len]), "cut at {len}");
        }
    }
}

#[test]
fn headers_of_any_length_are_read_and_fragments_are_not() {
    let rules = rules(&Steer::Listen(vec![(US, 8080).into()]));
    let Some(judge) = Judge::new(&rules) else {
        return;
    };
    for options in (0..=40).step_by(4) {
        assert!(judge.takes(&v4(US, 8080, options, |_| {})), "{options} bytes of options");
        assert!(!judge.takes(&v4(US, 8081, options, |_| {})), "{options} bytes of options");
    }
    assert!(!judge.takes(&v4(US, 8080, 0, |ip| ip[0] = 0x44)), "a header too short to be one");
    assert!(!judge.takes(&v4(US, 8080, 0, |ip| ip[7] = 1)), "a later fragment");
    assert!(judge.takes(&v4(US, 8080, 0, |ip| ip[6] = 0)), "may be fragmented, is not");
    let whole = v4(US, 8080, 40, |_| {});
    // The kernel refuses to test frames shorter than a header. A frame without a whole TCP header
    // is malformed, and we drop it.
    for len in 14..14 + 60 + 4 {
        assert!(!judge.takes(&whole[..len]), "cut at {len}");
    }
    let whole = v6(US6, 8080, 6);
    for len in 14..14 + 40 + 4 {
        assert!(!judge.takes(&whole[..len]), "cut at {len}");
    }
}

/// The kernel would reassemble them and reset the connection.
#[test]
fn fragments_of_our_segments_reach_nobody() {
    let rules = rules(&Steer::Listen(vec![(US, 8080).into(), (US6, 8080).into()]));
    let Some(judge) = Judge::new(&rules) else { return };
    let first = |port, options| v4(US, port, options, |ip| ip[6] = 0x20);
    for options in [0, 40] {
        let whole = first(8080, options);
        // A fragment has at least eight bytes of the segment.
        assert!(judge.drops(&whole) && judge.drops(&whole[..14 + 20 + options + 8]));
        assert!(!judge.drops(&first(22, options)) && !judge.takes(&first(22, options)), "another port");
    }
    let later = v4(US, 8080, 0, |ip| ip[7] = 1);
    assert!(!judge.drops(&later) && !judge.takes(&later), "alone it is nothing to the kernel");
    let six = |port: u16, next: u8, offset: u16| {
        let mut frame = v6(US6, port, 44);
        let header = [&[next, 0][..], &offset.to_be_bytes(), &[0; 4]].concat();
        frame.splice(54..54, header);
        frame
    };
    // The first of several fragments, and an atomic fragment (RFC 6946).
    assert!(judge.drops(&six(8080, 6, 1)) && judge.drops(&six(8080, 6, 0)));
    for other in [six(22, 6, 1), six(8080, 17, 1), six(8080, 6, 8 | 1)] {
        assert!(!judge.drops(&other) && !judge.takes(&other));
    }
}

/// RFC 8200 section 4: the kernel knows no connection of ours, and would reset it.
#[test]
fn segments_behind_extension_headers_are_ours() {
    let rules = rules(&Steer::Listen(vec![(US6, 8443).into()]));
    let Some(judge) = Judge::new(&rules) else { return };
    let behind = |to: Ipv6Addr, port: u16, last: u8, headers: &[(u8, u8)]| {
        let mut packet = v6(to, port, last).split_off(14);
        extend(&mut packet, headers);
        ethernet(0x86dd, &packet)
    };
    let most = [(60, 0); EXTENSION_HEADERS];
    let chains: [&[(u8, u8)]; 8] = [
        &[(0, 0)],
        &[(60, 0)],
        &[(43, 2)],
        &[(0, 255)],
        &[(0, 1), (60, 3), (43, 2), (60, 0)],
        &[(43, 0), (43, 1)],
        &[(60, 0), (60, 31), (60, 0)],
        &most,
    ];
    for headers in chains {
        let whole = behind(US6, 8443, 6, headers);
        assert!(judge.takes(&whole), "{headers:?}");
        let ports = whole.len() - 20 + 4;
        for len in (14..ports).step_by(3).chain([ports - 1]) {
            assert!(!judge.takes(&whole[..len]) && !judge.drops(&whole[..len]), "{headers:?} cut at {len}");
        }
        for (other, what) in [
            (behind(US6, 22, 6, headers), "another port"),
            (behind(Ipv6Addr::LOCALHOST, 8443, 6, headers), "another address"),
            (behind(US6, 8443, 17, headers), "UDP"),
            (behind(US6, 8443, 59, headers), "no next header"),
        ] {
            assert!(!judge.takes(&other) && !judge.drops(&other), "{what} behind {headers:?}");
        }
    }
    // Behind a fragment header too, and a later fragment is the kernel's.
    for headers in [&[(60, 0), (44, 0)][..], &[(44, 0), (60, 0)], &[(0, 0), (43, 0), (44, 0), (60, 1)]] {
        assert!(judge.drops(&behind(US6, 8443, 6, headers)), "{headers:?}");
    }
    let mut leads_on = behind(US6, 8443, 6, &[(43, 0)]);
    leads_on[14 + 40 + 3] = 1;
    let late_options = behind(US6, 8443, 6, &[(60, 0), (0, 0)]);
    for frame in [leads_on, late_options] {
        assert!(!judge.takes(&frame) && !judge.drops(&frame));
    }
    // More of them than we walk, whatever the port.
    let long = [(60, 0); EXTENSION_HEADERS + 1];
    assert!(judge.drops(&behind(US6, 8443, 6, &long)) && judge.drops(&behind(US6, 22, 6, &long)));
    let elsewhere = behind(Ipv6Addr::LOCALHOST, 8443, 6, &long);
    assert!(!judge.takes(&elsewhere) && !judge.drops(&elsewhere));
}

/// As many rules as there may be are no trouble for the verifier.
#[test]
fn many_rules_for_ipv6_are_taken() {
    let address = |n: u16| Ipv6Addr::new(0xfd00, 1, 2, 3, 4, 5, 6, n);
    let more: Vec<IpAddr> = (0..limits::RULES as u16).map(|n| address(n).into()).collect();
    let Some(judge) = Judge::new(&rules(&Steer::From(more))) else { return };
    assert!(judge.takes(&v6(address(limits::RULES as u16 - 1), 80, 6)));
    assert!(!judge.takes(&v6(address(limits::RULES as u16), 80, 6)));
}

#[test]
fn frames_for_other_cards_and_for_all_are_the_kernels() {
    let rules = rules(&Steer::Listen(vec![(US, 8080).into(), (US6, 8080).into()]));
    let Some(judge) = Judge::new(&rules) else {
        return;
    };
    for frame in [v4(US, 8080, 0, |_| {}), v6(US6, 8080, 6), too_big_v4(US, 8080, |_| {})] {
        assert!(judge.takes(&frame));
        for at in 0..6 {
            let mut other = frame.clone();
            other[at] ^= 0x10;
            assert!(!judge.takes(&other) && !judge.drops(&other), "byte {at} differs");
        }
        let all = [&[0xff; 6][..], &frame[6..]].concat();
        assert!(!judge.takes(&all) && !judge.drops(&all));
    }
}

#[test]
fn a_client_takes_all_tcp_to_its_addresses() {
    let more: Vec<IpAddr> = (0..100).map(|n| Ipv4Addr::new(10, 9, 0, n).into()).chain([US6.into()]).collect();
    let rules = rules(&Steer::From(more));
    let Some(judge) = Judge::new(&rules) else { return };
    for port in [1, 22, 8080, 65535] {
        assert!(judge.takes(&v4(Ipv4Addr::new(10, 9, 0, 0), port, 0, |_| {})));
        assert!(judge.takes(&v4(Ipv4Addr::new(10, 9, 0, 99), port, 0, |_| {})));
        assert!(judge.takes(&v6(US6, port, 6)));
        assert!(!judge.takes(&v4(Ipv4Addr::new(10, 9, 0, 100), port, 0, |_| {})));
        assert!(!judge.takes(&v4(US, port, 0, |_| {})), "the interface's own address is not the client's");
    }
}

#[test]
fn rules_are_what_was_asked_for_once() {
    let at = |ip: IpAddr, port: u16| SocketAddr::from((ip, port));
    let listen = Steer::Listen(vec![
        at(Ipv4Addr::UNSPECIFIED.into(), 80),
        at(US.into(), 80),
        at(Ipv4Addr::new(10, 1, 2, 9).into(), 81),
    ]);
    let expected = [
        Rule { address: US.into(), ports: Ports::Only(80) },
        Rule { address: Ipv4Addr::new(10, 1, 2, 9).into(), ports: Ports::Only(81) },
    ];
    assert_eq!(rules(&listen), expected);
    assert_eq!(
        rules(&Steer::From(vec![US.into(), US.into()])),
        [Rule { address: US.into(), ports: Ports::All }]
    );
}

/// The maps of a program that belongs to several processes, with room for one queue.
struct ProgramMaps {
    kernels: BpfMap<FLOW_KEY>,
    sockets: BpfMap<4>,
    modes: BpfMap<4>,
    flows: BpfMap<FLOW_KEY>,
    detours: BpfMap<FLOW_KEY>,
}

impl ProgramMaps {
    /// `None` without the right to have any.
    fn new() -> Option<ProgramMaps> {
        if let Err(why) = preflight::capabilities() {
            skip(need::XDP, why);
            return None;
        }
        Some(ProgramMaps {
            kernels: BpfMap::new(MapKind::Hash, 16).expect("a map"),
            sockets: BpfMap::new(MapKind::Sockets, 1).expect("a map"),
            modes: BpfMap::new(MapKind::Array, 1).expect("a map"),
            flows: BpfMap::new(MapKind::Recent, 16).expect("a map"),
            detours: BpfMap::new(MapKind::Hash, 16).expect("a map"),
        })
    }

    fn load(&self, rules: &[Rule]) -> Program {
        let maps = SharingMaps {
            sockets: self.sockets.number(),
            modes: self.modes.number(),
            has_several: true,
            kernels: self.kernels.number(),
            flows: self.flows.number(),
            detours: self.detours.number(),
        };
        Program::load(&program(rules, CARD, Ours::ToProcesses(maps))).expect("a program")
    }
}

/// Connections of a process that has given its queues up, whatever became of the queue since.
#[test]
fn frames_that_take_a_detour_go_to_its_interface_until_their_peer_begins_anew() {
    const REDIRECTED: u32 = 4;
    let Some(maps) = ProgramMaps::new() else { return };
    let loaded = maps.load(&rules(&Steer::Listen(vec![(US, 8080).into()])));
    let from_peer = |flags: u8| {
        let mut frame = v4(US, 8080, 0, |_| {});
        frame[26..30].copy_from_slice(&[10, 0, 0, 9]);
        frame[34 + 13] = flags;
        frame
    };
    let verdict = |flags: u8| loaded.verdict(&from_peer(flags)).expect("a verdict");
    let key = flow_key("10.0.0.9:8080".parse().expect("a peer"), 8080);
    let key_of_another = flow_key("10.0.0.8:8080".parse().expect("a peer"), 8080);
    let mode = |mode: QueueMode| maps.modes.set([0; 4], mode as u32).expect("set");
    maps.detours.set(key, 1).expect("set");
    maps.flows.set(key, 0).expect("set");
    assert_eq!(verdict(0x10), XDP_PASS, "a queue that has always been its process's has no detours");
    for each in [QueueMode::AllButKernels, QueueMode::NewToKernel] {
        mode(each);
        assert_eq!(verdict(0x10), REDIRECTED);
    }
    let mut about_it = too_big_v4(US, 8080, |_| {});
    about_it[14 + 28 + 16..14 + 28 + 20].copy_from_slice(&[10, 0, 0, 9]);
    about_it[14 + 50..14 + 52].copy_from_slice(&[0x1f, 0x90]);
    assert_eq!(loaded.verdict(&about_it).expect("a verdict"), REDIRECTED);
    assert_eq!(maps.flows.get(key), Some(0));
    // A peer that has closed still gets the rest, and needs no question.
    assert_eq!((verdict(0x11), maps.flows.get(key)), (REDIRECTED, None));
    assert_eq!(verdict(0x10), REDIRECTED);
    maps.detours.set(key_of_another, 1).expect("set");
    assert_eq!(verdict(0x02), XDP_PASS, "no socket has the queue");
    assert_eq!((maps.detours.get(key), maps.detours.get(key_of_another)), (None, Some(1)));
    assert!(maps.kernels.get(key).is_some());
    assert_eq!(verdict(0x10), XDP_PASS);
}

#[test]
fn a_queue_without_a_socket_is_the_kernels_and_its_connections_are_noted() {
    let rules = rules(&Steer::Listen(vec![(US, 8080).into(), (US6, 8443).into()]));
    let Some(maps) = ProgramMaps::new() else { return };
    let kernels = &maps.kernels;
    let loaded = maps.load(&rules);
    rules.chunks(1).for_each(|only| drop(maps.load(only)));
    let passes = |frame: &[u8]| assert_eq!(loaded.verdict(frame).expect("a verdict"), XDP_PASS);
    let with = |mut frame: Vec<u8>, segment: usize, flags: u8| {
        frame[segment + 13] = flags;
        frame[26..30].copy_from_slice(&[10, 0, 0, 9]);
        frame
    };
    passes(&with(v4(US, 8080, 0, |_| {}), 34, 0x10));
    passes(&with(v4(US, 8080, 0, |_| {}), 34, 0x12));
    passes(&v4(US, 8080, 0, |_| {})[..40]);
    passes(&with(v4(US, 22, 0, |_| {}), 34, 2));
    passes(&too_big_v4(US, 8080, |_| {}));
    passes(&too_big_v6(US6, 8443, |_| {}));
    assert_eq!(kernels.keys(16), [[0; FLOW_KEY]; 0]);
    // ECN's bits beside SYN.
    passes(&with(v4(US, 8080, 8, |_| {}), 42, 0xc2));
    let noted = [10, 0, 0, 9, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0x1f, 0x90, 0x1f, 0x90];
    assert_eq!(kernels.keys(16), [noted]);
    let age = stamp(monotonic()).wrapping_sub(kernels.get(noted).expect("a stamp"));
    assert!(age < 60_000, "{age}");
    kernels.remove(noted).expect("it was there");
    let mut frame = v6(US6, 8443, 6);
    (frame[22], frame[37], frame[54 + 13]) = (0xfd, 7, 2);
    passes(&frame);
    let mut noted = [0; FLOW_KEY];
    (noted[0], noted[15]) = (0xfd, 7);
    noted[16..].copy_from_slice(&[0x1f, 0x90, 0x20, 0xfb]);
    assert_eq!(kernels.keys(16), [noted]);
    kernels.remove(noted).expect("it was there");
    let mut packet = frame[14..].to_vec();
    extend(&mut packet, &[(0, 0), (60, 1)]);
    passes(&ethernet(0x86dd, &packet));
    assert_eq!(kernels.keys(16), [noted]);
}
