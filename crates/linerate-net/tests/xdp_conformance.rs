//! The conformance suite over AF_XDP. One stack uses both ends of a cable, so that every packet
//! passes a driver, both of its rings and the program that steers it. Needs root.

mod namespaces;

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::sync::OnceLock;
use std::time::Duration;

use linerate_net::conformance::{Subject, as_they_are};
use linerate_net::link::xdp::{Steer, Xdp, XdpMode, XdpOptions, open};
use linerate_net::link::{Checksums, Link};
use linerate_net::stack::{Stack, StackOptions};
use linerate_net::{Time, TransportLimits, Waker, conformance_tests};
use linerate_skips::{need, skip};
use namespaces::{Cable, Namespace, OURS, THEIRS};

/// Addresses of the clients, on our end, and of the server, on theirs; nothing else uses them.
const CLIENTS_V4: [IpAddr; 2] =
    [IpAddr::V4(Ipv4Addr::new(10, 77, 0, 8)), IpAddr::V4(Ipv4Addr::new(10, 77, 0, 9))];
const CLIENTS_V6: [IpAddr; 2] = [
    IpAddr::V6(Ipv6Addr::new(0xfd77, 0, 0, 0, 0, 0, 0, 8)),
    IpAddr::V6(Ipv6Addr::new(0xfd77, 0, 0, 0, 0, 0, 0, 9)),
];
const SERVER_V4: IpAddr = IpAddr::V4(Ipv4Addr::new(10, 77, 0, 10));
const SERVER_V6: IpAddr = IpAddr::V6(Ipv6Addr::new(0xfd77, 0, 0, 0, 0, 0, 0, 10));

/// How long one end waits before the other is polled.
const GLANCE: Duration = Duration::from_micros(200);

/// Both ends of a cable as one link: packets for the server enter at the clients' end, and vice
/// versa.
struct BothEnds {
    clients: Xdp,
    server: Xdp,
    /// Dropped last.
    _cable: Cable,
}

impl Link for BothEnds {
    fn now(&mut self) -> Time {
        self.clients.now()
    }

    fn now_anew(&mut self) -> Time {
        self.clients.now_anew()
    }

    fn receive(&mut self, max: usize, mut take: impl FnMut(&mut [u8])) -> usize {
        let count = self.server.receive(max, &mut take);
        count + self.clients.receive(max - count, take)
    }

    fn transmit(&mut self, to: IpAddr, len: usize, fill: impl FnOnce(&mut [u8])) -> bool {
        let from_clients = to == SERVER_V4 || to == SERVER_V6;
        if from_clients { self.clients.transmit(to, len, fill) } else { self.server.transmit(to, len, fill) }
    }

    fn flush(&mut self) -> io::Result<()> {
        self.clients.flush()?;
        self.server.flush()
    }

    fn wait(&mut self, until: Option<Time>) -> io::Result<bool> {
        self.server.wait(Some(Time::ZERO))?;
        loop {
            // An end whose wait ended early has packets.
            for end in 0..2 {
                let link = if end == 0 { &mut self.clients } else { &mut self.server };
                // The time it knows is from its last wait, before the other end's.
                let soon = link.now_anew() + GLANCE;
                let soon = until.map_or(soon, |until| until.min(soon));
                if link.wait(Some(soon))? {
                    return Ok(true);
                }
                let now = link.now();
                if now < soon || until.is_some_and(|until| until <= now) {
                    return Ok(false);
                }
            }
        }
    }

    fn waker(&self) -> Waker {
        self.clients.waker()
    }

    fn mtu(&mut self, to: IpAddr) -> usize {
        self.clients.mtu(to)
    }

    fn checksums(&self) -> Checksums {
        self.clients.checksums()
    }
}

fn end(of: &Namespace, interface: &str, addresses: &[IpAddr], mode: XdpMode) -> Xdp {
    let options = XdpOptions { mode, ..XdpOptions::new(interface, Steer::From(addresses.to_vec())) };
    of.run(|| open(&options).expect("the link").links.remove(0))
}

fn stack(limits: TransportLimits, clients: [IpAddr; 2], server: IpAddr, mode: XdpMode) -> Stack<BothEnds> {
    let cable = Cable::new(1).expect("it could be had a moment ago");
    let mut link = BothEnds {
        clients: end(&cable.ours, OURS, &clients, mode),
        server: end(&cable.theirs, THEIRS, &[server], mode),
        _cable: cable,
    };
    link.clients.look_for(&[server]).expect("the server's end answers");
    link.server.look_for(&clients).expect("the clients' end answers");
    let addresses = [&clients[..], &[server]].concat();
    Stack::new(link, StackOptions { addresses, limits, ..StackOptions::default() })
}

/// Whether this machine can run the suite; if not, each case is reported as skipped.
fn possible() -> bool {
    static POSSIBLE: OnceLock<bool> = OnceLock::new();
    let mut reported = false;
    let possible = *POSSIBLE.get_or_init(|| {
        let cable = Cable::new(1);
        reported = cable.is_none();
        cable.is_some()
    });
    if !possible && !reported {
        skip(need::NAMESPACES, "it takes root and network namespaces");
    }
    possible
}

type Made = Option<Subject<Stack<BothEnds>>>;

fn v4() -> Made {
    let make = |limits| stack(limits, CLIENTS_V4, SERVER_V4, XdpMode::Auto);
    possible().then_some(Subject {
        make,
        at: SERVER_V4,
        from: Some(CLIENTS_V4),
        bulk: 4 << 20,
        wire_len: as_they_are,
    })
}

fn generic_v6() -> Made {
    let make = |limits| stack(limits, CLIENTS_V6, SERVER_V6, XdpMode::Generic);
    possible().then_some(Subject {
        make,
        at: SERVER_V6,
        from: Some(CLIENTS_V6),
        bulk: 4 << 20,
        wire_len: as_they_are,
    })
}

conformance_tests!(over_xdp_v4, super::v4);
conformance_tests!(over_xdp_in_generic_mode_v6, super::generic_v6);
