//! The conformance suite over layers that are written outside the crate: one that only changes
//! bytes, and one with a handshake, records and an end of its own, as TLS has.

mod xor;

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::time::Duration;

use linerate_net::conformance::{Subject, as_they_are};
use linerate_net::epoll::Epoll;
use linerate_net::layer::Layered;
use linerate_net::mem::{Cut, Mem, MemOptions};
use linerate_net::uring::Uring;
use linerate_net::{Probe, Transport, TransportLimits, conformance_tests};
use linerate_skips::{need, skip};
use xor::{Records, RecordsLayer, XorLayer};

const V4: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);
const V6: IpAddr = IpAddr::V6(Ipv6Addr::LOCALHOST);

/// More than the kernel buffers on loopback.
const KERNEL_BULK: usize = 24 << 20;

fn xor<T: Transport>(wire: T, limits: TransportLimits) -> Layered<T, XorLayer> {
    Layered::new(wire, XorLayer, limits)
}

fn records<T: Transport>(wire: T, limits: TransportLimits) -> Layered<T, RecordsLayer> {
    Layered::new(wire, RecordsLayer, limits)
}

fn epoll(limits: TransportLimits) -> Epoll {
    Epoll::with_limits(limits).expect("epoll")
}

fn mem(limits: TransportLimits) -> Mem {
    let options = MemOptions { limits, latency: Duration::from_micros(300), ..MemOptions::default() };
    Mem::new(options).expect("mem")
}

fn mem_cut(limits: TransportLimits) -> Mem {
    let options =
        MemOptions { limits, cut: Cut::Random(3000), window: 10_000, seed: 7, ..MemOptions::default() };
    Mem::new(options).expect("mem")
}

fn mem_crumbs(limits: TransportLimits) -> Mem {
    let options = MemOptions { limits, cut: Cut::Every(7), window: 999, ..MemOptions::default() };
    Mem::new(options).expect("mem")
}

fn has_uring() -> bool {
    match Probe::run().uring() {
        Ok(()) => true,
        Err(why) => {
            skip(need::IO_URING, why);
            false
        }
    }
}

fn uring(limits: TransportLimits) -> Uring {
    Uring::with_limits(limits).expect("io_uring")
}

fn of_xor<T: Transport>(
    make: fn(TransportLimits) -> Layered<T, XorLayer>,
    bulk: usize,
) -> Option<Subject<Layered<T, XorLayer>>> {
    Some(Subject { make, at: V4, from: None, bulk, wire_len: as_they_are })
}

fn of_records<T: Transport>(
    make: fn(TransportLimits) -> Layered<T, RecordsLayer>,
    at: IpAddr,
    bulk: usize,
) -> Option<Subject<Layered<T, RecordsLayer>>> {
    Some(Subject { make, at, from: None, bulk, wire_len: Records::wire_len })
}

fn xor_epoll() -> Option<Subject<Layered<Epoll, XorLayer>>> {
    of_xor(|limits| xor(epoll(limits), limits), KERNEL_BULK)
}

fn records_epoll() -> Option<Subject<Layered<Epoll, RecordsLayer>>> {
    of_records(|limits| records(epoll(limits), limits), V6, KERNEL_BULK)
}

fn records_uring() -> Option<Subject<Layered<Uring, RecordsLayer>>> {
    has_uring().then(|| of_records(|limits| records(uring(limits), limits), V4, KERNEL_BULK))?
}

fn records_mem() -> Option<Subject<Layered<Mem, RecordsLayer>>> {
    of_records(|limits| records(mem(limits), limits), V6, 4 << 20)
}

fn records_mem_cut() -> Option<Subject<Layered<Mem, RecordsLayer>>> {
    of_records(|limits| records(mem_cut(limits), limits), V4, 1 << 20)
}

fn records_mem_crumbs() -> Option<Subject<Layered<Mem, RecordsLayer>>> {
    of_records(|limits| records(mem_crumbs(limits), limits), V4, 100_000)
}

conformance_tests!(xor_over_epoll, super::xor_epoll);
conformance_tests!(records_over_mem, super::records_mem);
conformance_tests!(records_over_mem_with_random_cuts, super::records_mem_cut);
conformance_tests!(records_over_mem_in_crumbs, super::records_mem_crumbs);
conformance_tests!(records_over_epoll, super::records_epoll);
conformance_tests!(records_over_uring, super::records_uring);
