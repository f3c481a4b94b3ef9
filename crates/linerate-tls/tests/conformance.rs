//! The conformance suite of transports over TLS.

mod identity;

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use identity::{CLIENT, LOCALHOST, SERVER, client_options, identity, layer};
use linerate_net::conformance::Subject;
use linerate_net::epoll::Epoll;
use linerate_net::layer::{Layer, Layered};
use linerate_net::mem::{Cut, Mem, MemOptions};
use linerate_net::uring::Uring;
use linerate_net::{Listener, NetError, Probe, Profile, Transport, TransportLimits, conformance_tests};
use linerate_skips::{need, skip};
use linerate_tls::{ServerOptions, TlsLayer, TlsSession};

/// The suite does not name a profile: here every connection has TLS.
struct Always(TlsLayer);

impl Layer for Always {
    type Session = TlsSession;

    fn connect(&mut self, _profile: Profile, to: SocketAddr) -> Result<Option<TlsSession>, NetError> {
        self.0.connect(CLIENT, to)
    }

    fn accept(&mut self, listener: Listener, _profile: Profile, peer: SocketAddr) -> Option<TlsSession> {
        self.0.accept(listener, SERVER, peer)
    }
}

fn over<T: Transport>(wire: T, limits: TransportLimits) -> Layered<T, Always> {
    let server = ServerOptions::new(identity(&LOCALHOST));
    let both = layer(&client_options(&LOCALHOST), &server);
    Layered::new(wire, Always(both), limits)
}

/// A record of TLS 1.3: head, type and tag (RFC 8446 section 5.2).
fn wire_len(len: usize) -> usize {
    len + len.div_ceil(1 << 14) * 22
}

fn subject<T: Transport>(
    make: fn(TransportLimits) -> Layered<T, Always>,
    at: IpAddr,
    bulk: usize,
) -> Option<Subject<Layered<T, Always>>> {
    Some(Subject { make, at, from: None, bulk, wire_len })
}

/// More than the kernel buffers on loopback.
const KERNEL_BULK: usize = 24 << 20;

fn epoll() -> Option<Subject<Layered<Epoll, Always>>> {
    let make = |limits| over(Epoll::with_limits(limits).expect("epoll"), limits);
    subject(make, Ipv4Addr::LOCALHOST.into(), KERNEL_BULK)
}

fn uring() -> Option<Subject<Layered<Uring, Always>>> {
    if let Err(why) = Probe::run().uring() {
        skip(need::IO_URING, why);
        return None;
    }
    let make = |limits| over(Uring::with_limits(limits).expect("io_uring"), limits);
    subject(make, Ipv6Addr::LOCALHOST.into(), KERNEL_BULK)
}

fn mem_cut() -> Option<Subject<Layered<Mem, Always>>> {
    let make = |limits| {
        let options =
            MemOptions { limits, cut: Cut::Random(3000), window: 10_000, seed: 7, ..MemOptions::default() };
        over(Mem::new(options).expect("mem"), limits)
    };
    subject(make, Ipv4Addr::LOCALHOST.into(), 1 << 20)
}

conformance_tests!(over_mem_with_random_cuts, super::mem_cut);
conformance_tests!(over_epoll, super::epoll);
conformance_tests!(over_uring, super::uring);
