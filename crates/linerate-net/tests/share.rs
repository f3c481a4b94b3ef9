//! The conformance suite over an owner's part of a shared transport.

use std::net::{IpAddr, Ipv4Addr};
use std::time::Duration;

use linerate_net::conformance::{Subject, as_they_are};
use linerate_net::epoll::Epoll;
use linerate_net::mem::{Mem, MemOptions};
use linerate_net::share::{Owner, share};
use linerate_net::uring::Uring;
use linerate_net::{Probe, Transport, TransportLimits, conformance_tests};
use linerate_skips::{need, skip};

/// More than the kernel buffers on loopback.
const KERNEL_BULK: usize = 24 << 20;

fn of<T: Transport>(make: fn(TransportLimits) -> Owner<T>, bulk: usize) -> Option<Subject<Owner<T>>> {
    let at = IpAddr::V4(Ipv4Addr::LOCALHOST);
    Some(Subject { make, at, from: None, bulk, wire_len: as_they_are })
}

fn owner_epoll() -> Option<Subject<Owner<Epoll>>> {
    of(|limits| share(Epoll::with_limits(limits).expect("epoll")).0, KERNEL_BULK)
}

fn owner_uring() -> Option<Subject<Owner<Uring>>> {
    if let Err(why) = Probe::run().uring() {
        skip(need::IO_URING, why);
        return None;
    }
    of(|limits| share(Uring::with_limits(limits).expect("io_uring")).0, KERNEL_BULK)
}

fn owner_mem() -> Option<Subject<Owner<Mem>>> {
    let make = |limits| {
        let options = MemOptions { limits, latency: Duration::from_micros(300), ..MemOptions::default() };
        share(Mem::new(options).expect("mem")).0
    };
    of(make, 1 << 20)
}

conformance_tests!(epoll, crate::owner_epoll);
conformance_tests!(uring, crate::owner_uring);
conformance_tests!(mem, crate::owner_mem);
