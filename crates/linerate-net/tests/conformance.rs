//! The conformance suite over every transport, on both families.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::time::Duration;

use linerate_net::conformance::{Subject, as_they_are};
use linerate_net::epoll::Epoll;
use linerate_net::mem::{Cut, Mem, MemOptions};
use linerate_net::uring::Uring;
use linerate_net::{Probe, TransportLimits, conformance_tests};
use linerate_skips::{need, skip};

const V4: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);
const V6: IpAddr = IpAddr::V6(Ipv6Addr::LOCALHOST);

/// More than the kernel buffers on loopback (tcp_rmem and tcp_wmem end at about 6 and 4 MB).
const KERNEL_BULK: usize = 24 << 20;

fn epoll(at: IpAddr) -> Option<Subject<Epoll>> {
    Some(Subject {
        make: |limits| Epoll::with_limits(limits).expect("epoll"),
        at,
        from: None,
        bulk: KERNEL_BULK,
        wire_len: as_they_are,
    })
}

fn epoll_v4() -> Option<Subject<Epoll>> {
    epoll(V4)
}

fn epoll_v6() -> Option<Subject<Epoll>> {
    epoll(V6)
}

fn uring(at: IpAddr) -> Option<Subject<Uring>> {
    if let Err(why) = Probe::run().uring() {
        skip(need::IO_URING, why);
        return None;
    }
    Some(Subject {
        make: |limits| Uring::with_limits(limits).expect("io_uring"),
        at,
        from: None,
        bulk: KERNEL_BULK,
        wire_len: as_they_are,
    })
}

fn uring_v4() -> Option<Subject<Uring>> {
    uring(V4)
}

fn uring_v6() -> Option<Subject<Uring>> {
    uring(V6)
}

fn mem(options: MemOptions) -> Mem {
    Mem::new(options).expect("mem")
}

fn mem_perfect() -> Option<Subject<Mem>> {
    let make = |limits| mem(MemOptions { limits, ..MemOptions::default() });
    Some(Subject { make, at: V4, from: None, bulk: 4 << 20, wire_len: as_they_are })
}

fn mem_far() -> Option<Subject<Mem>> {
    let make = |limits: TransportLimits| {
        mem(MemOptions { limits, latency: Duration::from_micros(300), ..MemOptions::default() })
    };
    Some(Subject { make, at: V6, from: None, bulk: 4 << 20, wire_len: as_they_are })
}

fn mem_cut() -> Option<Subject<Mem>> {
    let make = |limits| {
        mem(MemOptions { limits, cut: Cut::Random(3000), window: 10_000, seed: 7, ..MemOptions::default() })
    };
    Some(Subject { make, at: V4, from: None, bulk: 1 << 20, wire_len: as_they_are })
}

fn mem_crumbs() -> Option<Subject<Mem>> {
    let make = |limits| mem(MemOptions { limits, cut: Cut::Every(7), window: 999, ..MemOptions::default() });
    Some(Subject { make, at: V4, from: None, bulk: 100_000, wire_len: as_they_are })
}

conformance_tests!(over_mem, super::mem_perfect);
conformance_tests!(over_mem_with_latency, super::mem_far);
conformance_tests!(over_mem_with_random_cuts, super::mem_cut);
conformance_tests!(over_mem_in_crumbs, super::mem_crumbs);
conformance_tests!(over_epoll_v4, super::epoll_v4);
conformance_tests!(over_epoll_v6, super::epoll_v6);
conformance_tests!(over_uring_v4, super::uring_v4);
conformance_tests!(over_uring_v6, super::uring_v6);
