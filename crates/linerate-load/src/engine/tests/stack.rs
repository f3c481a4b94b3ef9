//! The engine over user-space TCP in virtual time: delay, loss, duplication, reordering, and servers that close.

use std::net::IpAddr;
use std::thread;

use linerate_net::TransportLimits;
use linerate_net::link::pcap::{FILE_BYTES, PcapFile};
use linerate_net::link::sim::{Sim, SimOptions};
use linerate_net::link::{Link, Middlewares};
use linerate_net::mem::PeerHost;
use linerate_net::stack::{Stack, StackOptions};

use super::*;
use crate::outcome::{SegmentEvent, Segments};

const OURS: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(10, 0, 0, 1));

fn server_of() -> SocketAddr {
    SocketAddr::from(([10, 0, 0, 2], 80))
}

fn stack<L: Link>(end: L, address: IpAddr, seed: u64) -> Stack<L> {
    stack_with(end, address, seed, TransportLimits::default())
}

fn stack_with<L: Link>(end: L, address: IpAddr, seed: u64, limits: TransportLimits) -> Stack<L> {
    let addresses = vec![address];
    Stack::new(end, StackOptions { addresses, seed: Some(seed), limits, ..StackOptions::default() })
}

/// The plan runs against the script, each on a stack of its own.
fn run_over(network: SimOptions, plan: &Plan, script: Script) -> (Outcome, Seen) {
    run_with(network, &Middlewares::default(), plan, script)
}

/// The same with this over our link.
fn run_with(network: SimOptions, over: &Middlewares, plan: &Plan, script: Script) -> (Outcome, Seen) {
    run_within(TransportLimits::default(), &Sim::new(network), network.seed, over, plan, script)
}

/// The same within these limits of ours.
fn run_within(
    limits: TransportLimits,
    sim: &Sim,
    seed: u64,
    over: &Middlewares,
    plan: &Plan,
    script: Script,
) -> (Outcome, Seen) {
    let seen = script.seen.clone();
    let ours = stack_with(over.over(sim.end(&[OURS]).unwrap(), 0), OURS, seed, limits);
    let their_end = sim.end(&[server_of().ip()]).unwrap();
    let mut host = PeerHost::new(stack(their_end, server_of().ip(), seed + 1));
    host.serve(server_of(), script).unwrap();
    let server = thread::spawn(move || host.run(|| false));
    let mut plan = plan.clone();
    plan.target.addresses = vec![server_of()];
    let part =
        CorePart { core: 0, cores: 1, start: Time::ZERO, route: None, names: None, joining: None, gap: None };
    let outcome = part.run(&plan, ours, Arc::new(Board::default())).unwrap();
    server.join().unwrap().unwrap();
    let r = outcome.requests;
    assert_eq!(r.sent, r.answered + r.failed + r.unknown, "{r:?}");
    let c = seen.get().requests;
    assert!(r.answered <= c && c <= r.sent + r.resent, "server counted {c}, we {r:?}");
    (outcome, seen)
}

fn bad(seed: u64) -> SimOptions {
    SimOptions {
        seed,
        delay: Duration::from_millis(2),
        loss_ppm: 10_000,
        reorder_ppm: 30_000,
        duplicate_ppm: 10_000,
        corrupt_ppm: 2_000,
        ..SimOptions::default()
    }
}

#[test]
fn each_request_is_answered_once_on_a_bad_network() {
    for seed in 0..20 {
        let plan = Plan { connections: 4, depth: 10, stop: requests(1000), ..plan() };
        let (outcome, seen) = run_over(bad(seed), &plan, Script::new());
        assert_eq!((outcome.requests.answered, seen.get().requests), (1000, 1000), "seed {seed}");
    }
}

/// A TCP of our own counts each segment, and says so beside what looks at connections found.
#[test]
fn a_bad_network_is_seen_in_segments() {
    let mut all = Segments::default();
    for seed in 0..20 {
        let plan = Plan { connections: 4, depth: 10, stop: requests(1000), ..plan() };
        let (outcome, _) = run_over(bad(seed), &plan, Script::new());
        let (segments, stack) = (outcome.tcp.segments.unwrap(), outcome.tcp.stack.unwrap());
        assert_eq!(segments.sent.segments, stack.segments_out);
        assert_eq!(segments.sent.of(SegmentEvent::Retransmission), Some(stack.retransmits));
        assert_eq!(segments.received.of(SegmentEvent::OutOfOrder), Some(stack.out_of_order));
        assert_eq!(segments.received.of(SegmentEvent::Retransmission), None, "it cannot be told");
        all.merge(&segments);
    }
    for (counts, event) in [
        (&all.sent, SegmentEvent::Retransmission),
        (&all.received, SegmentEvent::DuplicateAck),
        (&all.received, SegmentEvent::SpuriousRetransmission),
    ] {
        assert!(counts.of(event) > Some(0), "{event:?}: {all:?}");
    }
}

#[test]
fn short_connections_on_a_bad_network() {
    for seed in 0..10 {
        let plan = Plan { connections: 8, per_connection: Some(1), stop: requests(300), ..plan() };
        let (outcome, seen) = run_over(bad(seed), &plan, Script::new());
        assert_eq!((outcome.requests.answered, seen.get().requests), (300, 300), "seed {seed}");
        assert!(outcome.connections.opened >= 300);
    }
}

#[test]
fn a_server_that_closes_after_some_loses_nothing() {
    for seed in 0..10 {
        let plan = Plan { connections: 5, depth: 40, stop: requests(2000), ..plan() };
        let script = Script { close_after: Some(25), says_close: seed % 2 == 0, ..Script::new() };
        let (outcome, seen) = run_over(bad(seed), &plan, script);
        assert_eq!((outcome.requests.answered, seen.get().answered), (2000, 2000), "seed {seed}");
    }
}

/// On a perfect network, the latency is the round trip and nothing else.
#[test]
fn the_latency_is_the_round_trip() {
    let network = SimOptions { delay: Duration::from_millis(10), ..SimOptions::default() };
    let plan = Plan { connections: 3, depth: 1, stop: requests(60), ..plan() };
    let (outcome, _) = run_over(network, &plan, Script::new());
    assert_eq!(outcome.latency.from_sent.percentile_ns(100.0) / 1_000_000, 20);
}

/// Faults of a link do what those of a network do; and the same seed gives the same capture again, byte for byte.
#[test]
fn a_bad_link_is_as_good_as_a_bad_network_and_its_capture_is_the_same_again() {
    let folder = tempfile::tempdir().unwrap();
    let run = |seed: u64, name: &str| {
        let path = folder.path().join(name);
        let fault = "loss=1%,dup=1%,reorder=3%,in:corrupt=0.2%,delay=2ms".parse().unwrap();
        let pcap = PcapFile::create(&path, FILE_BYTES, 0).unwrap();
        let fault = linerate_net::link::fault::FaultOptions { seed, ..fault };
        let over = Middlewares { fault: Some(fault), pcap: Some(pcap.clone()) };
        let plan = Plan { connections: 4, depth: 10, stop: requests(500), ..plan() };
        let network = SimOptions { seed, ..SimOptions::default() };
        let (outcome, seen) = run_with(network, &over, &plan, Script::new());
        assert_eq!((outcome.requests.answered, seen.get().requests), (500, 500), "seed {seed}");
        drop(over);
        let stats = pcap.stats();
        assert!(stats.packets > 100 && stats.left_out == 0, "{stats:?}");
        std::fs::read(path).unwrap()
    };
    for seed in 0..5 {
        assert!(run(seed, "once.pcap") == run(seed, "again.pcap"), "seed {seed}");
    }
}

/// Connections that wait for a late FIN fill the table, and the next one gets the place of the
/// oldest. None of this is a failure.
#[test]
fn a_late_fin_is_no_failure() {
    let network = SimOptions { delay: MS, ..SimOptions::default() };
    for lossy in [network, bad(3)] {
        let plan = Plan { connections: 2, per_connection: Some(1), stop: requests(500), ..plan() };
        let limits = TransportLimits { connections: 32, ..TransportLimits::default() };
        let script = Script { late_fin: Duration::from_millis(900), ..Script::new() };
        let sim = Sim::new(lossy);
        let (outcome, seen) = run_within(limits, &sim, lossy.seed, &Middlewares::default(), &plan, script);
        assert_eq!((outcome.requests.answered, outcome.failures.total()), (500, 0), "{outcome:?}");
        assert_eq!(seen.get().connections, outcome.connections.opened);
    }
}

/// The end of a run closes its connections some at a time, and does not count it.
#[test]
fn many_connections_close_in_turns_and_their_fins_are_not_counted() {
    const CONNECTIONS: u32 = 8000;
    // The queue has room for half as many segments without data.
    let network = SimOptions { delay: MS, rate: Some(20_000_000), queue: 200_000, ..SimOptions::default() };
    let sim = Sim::new(network);
    let plan = Plan { connections: CONNECTIONS, stop: requests(u64::from(CONNECTIONS)), ..plan() };
    let limits = TransportLimits::default();
    // All of them are open before the first response comes.
    let script = Script { think: Duration::from_secs(2), ..Script::new() };
    let (outcome, seen) = run_within(limits, &sim, 1, &Middlewares::default(), &plan, script);
    let all = u64::from(CONNECTIONS);
    assert_eq!((outcome.requests.answered, seen.get().connections), (all, all));
    assert_eq!(sim.stats().dropped, 0, "{:?}", sim.stats());
    let stack = outcome.tcp.stack.unwrap();
    // SYN, request, and at most one ACK.
    assert!(stack.segments_out <= 3 * all, "{stack:?}");
    assert!(sim.stats().sent >= 8 * all, "the connections were closed");
}
