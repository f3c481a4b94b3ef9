//! The stack over the network in memory.

use std::collections::HashSet;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::time::Duration;

use linerate_net::conformance::{Subject, as_they_are};
use linerate_net::link::sim::{Sim, SimEnd, SimOptions};
use linerate_net::stack::{Stack, StackLimits, StackOptions};
use linerate_net::{
    After, Close, ConnectOptions, Event, ListenOptions, Transport, TransportLimits, conformance_tests,
};

const V4: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);
const V6: IpAddr = IpAddr::V6(Ipv6Addr::LOCALHOST);

fn alone(limits: TransportLimits, sim: SimOptions) -> Stack<SimEnd> {
    let addresses = vec![V4, V6, Ipv4Addr::new(127, 0, 0, 9).into()];
    let options = StackOptions { addresses, seed: Some(sim.seed), limits, ..StackOptions::default() };
    Stack::new(Sim::alone(sim).expect("a descriptor"), options)
}

fn near() -> Option<Subject<Stack<SimEnd>>> {
    Some(Subject {
        make: |limits| alone(limits, SimOptions::default()),
        at: V4,
        from: None,
        bulk: 4 << 20,
        wire_len: as_they_are,
    })
}

fn far_v6() -> Option<Subject<Stack<SimEnd>>> {
    let far = |limits| {
        alone(limits, SimOptions { delay: Duration::from_millis(2), mtu: 1280, ..SimOptions::default() })
    };
    Some(Subject { make: far, at: V6, from: None, bulk: 4 << 20, wire_len: as_they_are })
}

conformance_tests!(over_sim, super::near);
conformance_tests!(over_sim_far_v6, super::far_v6);

fn bad() -> Option<Subject<Stack<SimEnd>>> {
    let bad = |limits| {
        let sim = SimOptions {
            seed: 11,
            loss_ppm: 10_000,
            reorder_ppm: 20_000,
            reorder_by: Duration::from_micros(300),
            duplicate_ppm: 10_000,
            corrupt_ppm: 1_000,
            ..SimOptions::default()
        };
        alone(limits, sim)
    };
    Some(Subject { make: bad, at: V4, from: None, bulk: 4 << 20, wire_len: as_they_are })
}

conformance_tests!(over_a_bad_sim, super::bad);

/// Tens of thousands of short connections leave only TIME_WAIT entries, and those are bounded.
#[test]
fn connections_that_come_and_go_leave_nothing() {
    const CONNECTIONS: usize = 20_000;
    const AT_ONCE: usize = 100;
    let stack = StackLimits { time_wait: 500, ..StackLimits::default() };
    let options = StackOptions { addresses: vec![V4], seed: Some(3), stack, ..StackOptions::default() };
    let mut net = Stack::new(Sim::alone(SimOptions::default()).expect("a descriptor"), options);
    let (_, at) = net.listen(SocketAddr::new(V4, 80), &ListenOptions::default()).expect("can listen");
    let (mut opened, mut answered, mut largest) = (0, 0, 0);
    let mut clients = HashSet::new();
    let mut events = Vec::new();
    while answered < CONNECTIONS {
        while opened - answered < AT_ONCE && opened < CONNECTIONS {
            let conn = net.connect(at, &ConnectOptions::default()).expect("a port is free");
            net.send(conn, b"request").expect("can send");
            largest = largest.max(conn.slot());
            clients.insert(conn);
            opened += 1;
        }
        net.turn(None, &mut events).expect("something happens");
        for event in events.drain(..) {
            let Event::Readable { conn, data } = event else { continue };
            let mut got = 0;
            let after = net.receive(data, |piece| got += piece.len());
            if !clients.contains(&conn) {
                if got > 0 {
                    net.send(conn, b"answer").expect("can send");
                    net.close(conn, Close::Now);
                }
            } else if after == After::Ended {
                clients.remove(&conn);
                net.close(conn, Close::Now);
                answered += 1;
            }
        }
    }
    let stats = net.stats();
    assert!(largest < 4 * AT_ONCE, "slots are used again: {largest}");
    assert_eq!((stats.active_opens, stats.passive_opens), (CONNECTIONS as u64, CONNECTIONS as u64));
    assert_eq!((stats.retransmits, stats.resets_out), (0, 0), "{stats:?}");
    assert!(net.waiting().1 <= 500 && stats.time_waits_cut > 0);
    // A short connection is six packets.
    assert!(stats.packets_out <= 6 * CONNECTIONS as u64, "{}", stats.packets_out);
}
