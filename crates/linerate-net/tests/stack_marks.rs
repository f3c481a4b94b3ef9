//! A bottleneck that marks packets instead of dropping them (RFC 3168), in virtual time.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::time::Duration;

use linerate_net::link::sim::{Sim, SimOptions, SimStats};
use linerate_net::stack::{Stack, StackOptions, StackStats, UseOfEcn};
use linerate_net::{Conn, ConnectOptions, Event, ListenOptions, Transport};

/// 100 Mbit/s.
const RATE: u64 = 12_500_000;
/// Half of what the path holds.
const QUEUE: usize = RATE as usize / 100;
const BYTES: usize = 16 << 20;

/// Moves bytes there and back at the same time, and says how long that took.
fn transfer(ip: IpAddr, ecn: UseOfEcn, mark_from: usize) -> (Duration, StackStats, SimStats) {
    let sim = SimOptions {
        delay: Duration::from_millis(10),
        rate: Some(RATE),
        queue: QUEUE,
        mark_from,
        ..SimOptions::default()
    };
    let options = StackOptions { addresses: vec![ip], seed: Some(5), ecn, ..StackOptions::default() };
    let mut net = Stack::new(Sim::alone(sim).expect("a descriptor"), options);
    let (_, at) = net.listen(SocketAddr::new(ip, 80), &ListenOptions::default()).expect("can listen");
    let begin = net.now();
    let client = net.connect(at, &ConnectOptions::default()).expect("can connect");
    let (mut got, mut events): ([usize; 2], _) = ([0, 0], Vec::new());
    let send = |net: &mut Stack<_>, conn: Conn| net.send(conn, &vec![7; BYTES]).expect("can send");
    while got != [BYTES; 2] {
        net.turn(None, &mut events).expect("something happens");
        for event in events.drain(..) {
            match event {
                Event::Connected { conn, .. } | Event::Accepted { conn, .. } => send(&mut net, conn),
                Event::Readable { conn, data } => {
                    let got = &mut got[usize::from(conn == client)];
                    net.receive(data, |piece| *got += piece.len());
                }
                Event::Failed { error, .. } => panic!("{error}"),
                Event::Drained { .. } | Event::Woken => {}
            }
        }
    }
    (net.now() - begin, net.stats(), net.link().sim().stats())
}

/// With marks less is lost (the first slow start overshoots before its mark comes back), and the
/// link is used as well as without.
#[test]
fn marks_take_the_place_of_losses() {
    for ip in [IpAddr::V4(Ipv4Addr::LOCALHOST), IpAddr::V6(Ipv6Addr::LOCALHOST)] {
        let (without, losses, dropping) = transfer(ip, UseOfEcn::Off, QUEUE / 4);
        assert!(losses.retransmits > 20 && dropping.dropped > 20, "{losses:?} {dropping:?}");
        assert_eq!((dropping.marked, losses.marks_in, losses.marks_heeded), (0, 0, 0));
        let (with, marks, marking) = transfer(ip, UseOfEcn::Ask, QUEUE / 4);
        println!("{without:?} by losses, {with:?} by marks: {marking:?} {marks:?}");
        assert!(marking.dropped * 3 < dropping.dropped, "{marking:?} and {dropping:?}");
        assert!(marks.marks_heeded > 2 && marks.marks_in >= marks.marks_heeded, "{marks:?}");
        assert_eq!(marks.marks_in, marking.marked, "each mark arrives");
        assert!(with < without * 5 / 4, "{with:?} and {without:?}");
    }
}

/// Where no router marks, connections that could be marked are as all others.
#[test]
fn it_costs_nothing_where_nothing_is_marked() {
    let ip = IpAddr::V4(Ipv4Addr::LOCALHOST);
    let [(off, ..), (ask, ..)] = [UseOfEcn::Off, UseOfEcn::Ask].map(|ecn| transfer(ip, ecn, 0));
    assert!(ask < off * 21 / 20 && off < ask * 21 / 20, "{off:?} and {ask:?}");
}
