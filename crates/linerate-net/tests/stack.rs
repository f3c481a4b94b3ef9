//! The stack over the network in memory.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::time::Duration;

use linerate_net::conformance::Subject;
use linerate_net::link::sim::{Sim, SimEnd, SimOptions};
use linerate_net::stack::{Stack, StackOptions};
use linerate_net::{Limits, conformance_tests};

const V4: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);
const V6: IpAddr = IpAddr::V6(Ipv6Addr::LOCALHOST);

fn alone(limits: Limits, sim: SimOptions) -> Stack<SimEnd> {
    let options =
        StackOptions { addresses: Vec::new(), seed: Some(sim.seed), limits, ..StackOptions::default() };
    Stack::new(
        Sim::alone(sim).expect("a descriptor"),
        StackOptions { addresses: vec![V4, V6, Ipv4Addr::new(127, 0, 0, 9).into()], ..options },
    )
}

fn near() -> Option<Subject<Stack<SimEnd>>> {
    Some(Subject { make: |limits| alone(limits, SimOptions::default()), at: V4, bulk: 4 << 20 })
}

fn far_v6() -> Option<Subject<Stack<SimEnd>>> {
    let far = |limits| {
        alone(limits, SimOptions { delay: Duration::from_millis(2), mtu: 1280, ..SimOptions::default() })
    };
    Some(Subject { make: far, at: V6, bulk: 4 << 20 })
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
    Some(Subject { make: bad, at: V4, bulk: 4 << 20 })
}

conformance_tests!(over_a_bad_sim, super::bad);
