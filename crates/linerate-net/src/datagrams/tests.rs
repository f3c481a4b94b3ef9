//! Datagrams cross, with their ends, marks and counts.

use std::net::SocketAddr;
use std::time::Duration;

use super::*;
use crate::NetErrorKind;

const PATIENCE: Duration = Duration::from_secs(10);

fn loopback(port: u16) -> SocketAddr {
    SocketAddr::from(([127, 0, 0, 1], port))
}

type ReceivedList = Vec<(SocketAddr, Option<IpAddr>, u8, Vec<u8>)>;

/// Receives until `enough` datagrams came, or the patience is over.
fn receive(net: &mut impl Datagrams, enough: usize) -> (ReceivedList, Option<NetError>) {
    let (mut came, mut failed, mut ready) = (ReceivedList::new(), None, Vec::new());
    let end = net.now() + PATIENCE;
    while came.len() < enough && failed.is_none() && net.now() < end {
        net.turn(Some(end), &mut ready).unwrap();
        for socket in ready.drain(..) {
            let after = net.receive(socket, |all| {
                came.extend(all.each().map(|one| (all.peer, all.local, all.ecn, one.to_vec())));
            });
            if let DatagramsAfter::Failed(error) = after {
                failed = Some(error);
            }
        }
    }
    (came, failed)
}

#[test]
fn many_datagrams_leave_in_one_call_and_come_whole() {
    let mut net = UdpEpoll::new(16).unwrap();
    let (_, server) = net.open(&DatagramOptions::at(loopback(0))).unwrap();
    let (client, own) = net.open(&DatagramOptions::towards(server, None)).unwrap();
    let bytes: Vec<u8> = (0..10_500u32).map(|n| (n / 1000) as u8).collect();
    net.send(client, &DatagramsToSend { to: server, from: None, ecn: 2, segment: 1000, bytes: &bytes })
        .unwrap();
    let (came, failed) = receive(&mut net, 11);
    assert_eq!(failed, None);
    let expected: ReceivedList = (0..11u8)
        .map(|n| {
            let len = if n == 10 { 500 } else { 1000 };
            (loopback(own.port()), Some(loopback(0).ip()), 2, vec![n; len])
        })
        .collect();
    assert_eq!(came, expected);
    let counts = net.counts();
    assert_eq!((counts.sent, counts.received, counts.not_sent, counts.dropped), (11, 11, 0, 0));
}

#[test]
fn a_peer_that_is_not_there_is_told_of_where_a_socket_has_one() {
    let mut net = UdpEpoll::new(16).unwrap();
    let (gone, at) = net.open(&DatagramOptions::at(loopback(0))).unwrap();
    net.close(gone);
    let (client, _) = net.open(&DatagramOptions::towards(at, None)).unwrap();
    net.send(client, &DatagramsToSend { to: at, from: None, ecn: 0, segment: 1, bytes: b"?" }).unwrap();
    let (came, failed) = receive(&mut net, 1);
    assert_eq!((came, failed.map(|e| e.kind)), (ReceivedList::new(), Some(NetErrorKind::Refused)));
}

#[test]
fn what_a_socket_has_no_room_for_is_counted() {
    let mut net = UdpEpoll::new(16).unwrap();
    let small = DatagramOptions { buffer_bytes: 4096, ..DatagramOptions::at(loopback(0)) };
    let (_, server) = net.open(&small).unwrap();
    let (client, _) = net.open(&DatagramOptions::towards(server, None)).unwrap();
    let datagram = [7; 1200];
    let out = DatagramsToSend { to: server, from: None, ecn: 0, segment: 1200, bytes: &datagram };
    (0..100).for_each(|_| net.send(client, &out).unwrap());
    // Drops are told with a datagram that comes after them.
    let before = receive(&mut net, 1).0.len() as u64;
    let mut all = before;
    while net.counts().dropped == 0 {
        net.send(client, &out).unwrap();
        all += receive(&mut net, 1).0.len() as u64;
    }
    let counts = net.counts();
    assert_eq!(counts.received, all);
    assert_eq!(counts.dropped + counts.received, counts.sent, "{counts:?}");
}

#[test]
fn more_than_the_path_takes_is_lost_here() {
    let mut net = UdpEpoll::new(16).unwrap();
    let (_, server) = net.open(&DatagramOptions::at(loopback(0))).unwrap();
    let (client, _) = net.open(&DatagramOptions::towards(server, None)).unwrap();
    let long = vec![0; 65_508];
    let out = DatagramsToSend { to: server, from: None, ecn: 0, segment: long.len(), bytes: &long };
    net.send(client, &out).unwrap();
    assert_eq!((net.counts().sent, net.counts().not_sent, net.counts().too_long), (0, 0, 1));
}

#[test]
fn ipv6_has_its_marks_and_addresses_too() {
    let mut net = UdpEpoll::new(16).unwrap();
    let at = SocketAddr::from((Ipv6Addr::LOCALHOST, 0));
    let (server, at) = match net.open(&DatagramOptions::at(at)) {
        Ok(opened) => opened,
        Err(why) => return linerate_skips::skip("IPv6", why),
    };
    let (client, own) = net.open(&DatagramOptions::towards(at, None)).unwrap();
    net.send(client, &DatagramsToSend { to: at, from: None, ecn: 1, segment: 2, bytes: b"abc" }).unwrap();
    let (came, _) = receive(&mut net, 2);
    let (peer, local, ecn, _) = came[0].clone();
    assert_eq!((peer.port(), local, ecn), (own.port(), Some(Ipv6Addr::LOCALHOST.into()), 1));
    assert_eq!(
        came.into_iter().map(|(.., bytes)| bytes).collect::<Vec<_>>(),
        [b"ab".to_vec(), b"c".to_vec()]
    );
    let back = DatagramsToSend { to: peer, from: local, ecn: 3, segment: 1, bytes: b"z" };
    net.send(server, &back).unwrap();
    assert_eq!(receive(&mut net, 1).0, [(at, Some(Ipv6Addr::LOCALHOST.into()), 3, b"z".to_vec())]);
    assert_eq!(net.counts().marked, 1);
}

/// Sends everything back.
#[derive(Default)]
struct Echo(Vec<(SocketAddr, Vec<u8>)>);

impl DatagramPeer for Echo {
    fn receive(&mut self, _: Time, from: SocketAddr, _: u8, datagram: &[u8]) {
        self.0.push((from, datagram.to_vec()));
    }

    fn send(&mut self, _: Time, out: &mut dyn FnMut(SocketAddr, u8, &[u8])) {
        self.0.drain(..).for_each(|(to, bytes)| out(to, 0, &bytes));
    }

    fn deadline(&self) -> Option<Time> {
        None
    }
}

#[test]
fn the_path_in_memory_loses_and_doubles_as_it_is_told() {
    let server = SocketAddr::from(([10, 0, 0, 2], 443));
    let came = |faults: PathFaults, bytes: usize| {
        let mut net = SimDatagrams::new(faults, 1).unwrap();
        net.serve(server, Echo::default());
        let (client, _) = net.open(&DatagramOptions::towards(server, None)).unwrap();
        let bytes = vec![1; bytes];
        for _ in 0..1000 {
            let out = DatagramsToSend { to: server, from: None, ecn: 0, segment: bytes.len(), bytes: &bytes };
            net.send(client, &out).unwrap();
        }
        let (came, _) = receive(&mut net, usize::MAX);
        (came.len(), net.now())
    };
    let clean = PathFaults::default();
    assert_eq!(came(clean, 1472).0, 1000);
    assert_eq!(came(clean, 1473).0, 0);
    let lossy = came(PathFaults { loss: 0.1, ..clean }, 100).0;
    assert!((760..=860).contains(&lossy), "{lossy}");
    let doubled = came(PathFaults { duplicates: 0.1, ..clean }, 100).0;
    assert!((1160..=1260).contains(&doubled), "{doubled}");
}

#[test]
fn nobody_there_is_told_in_memory_too() {
    let mut net = SimDatagrams::new(PathFaults::default(), 1).unwrap();
    let server = SocketAddr::from(([10, 0, 0, 2], 443));
    let (client, _) = net.open(&DatagramOptions::towards(server, None)).unwrap();
    net.send(client, &DatagramsToSend { to: server, from: None, ecn: 0, segment: 1, bytes: b"?" }).unwrap();
    assert_eq!(receive(&mut net, 1).1.map(|e| e.kind), Some(NetErrorKind::Refused));
}
