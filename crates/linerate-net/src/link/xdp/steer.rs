//! Which packets are redirected to us.

use std::net::{IpAddr, SocketAddr};

/// Ports of one address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Ports {
    All,
    Only(u16),
}

impl Ports {
    pub(super) fn have(self, port: u16) -> bool {
        match self {
            Ports::All => true,
            Ports::Only(only) => only == port,
        }
    }
}

/// Selects TCP segments to one of our addresses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Rule {
    pub(super) address: IpAddr,
    pub(super) ports: Ports,
}

/// Which packets are redirected, all of them TCP. The kernel keeps everything else on the
/// interface.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Steer {
    /// A server: segments to these addresses and ports. An unspecified address (`0.0.0.0`, `[::]`)
    /// means all addresses that the interface has at the start.
    Listen(Vec<SocketAddr>),
    /// A client: segments to these addresses, which nothing else on this machine may use for TCP.
    From(Vec<IpAddr>),
}

impl Steer {
    /// The rules for an interface with these addresses.
    pub(super) fn rules(&self, own: &[IpAddr]) -> Vec<Rule> {
        let mut rules = Vec::new();
        let mut add = |rule: Rule| {
            if !rules.contains(&rule) {
                rules.push(rule);
            }
        };
        match self {
            Steer::From(addresses) => {
                addresses.iter().for_each(|&address| add(Rule { address, ports: Ports::All }));
            }
            Steer::Listen(places) => {
                for place in places {
                    let ports = Ports::Only(place.port());
                    let all =
                        own.iter().filter(|a| place.ip().is_unspecified() && a.is_ipv4() == place.is_ipv4());
                    all.for_each(|&address| add(Rule { address, ports }));
                    if !place.ip().is_unspecified() {
                        add(Rule { address: place.ip(), ports });
                    }
                }
            }
        }
        rules
    }
}
