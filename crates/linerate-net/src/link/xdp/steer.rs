//! Which packets are ours.

use std::net::{IpAddr, SocketAddr};

/// Ports of one address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Ports {
    All,
    Only(u16),
}

/// TCP segments to one address of ours.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Rule {
    pub(super) address: IpAddr,
    pub(super) ports: Ports,
}

/// What is steered to us, all of it TCP. Everything else on the interface stays with the kernel.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Steer {
    /// A server's: segments to these addresses and ports. An unspecified address (`0.0.0.0`, `[::]`) means all addresses that the
    /// interface has when it begins.
    Listen(Vec<SocketAddr>),
    /// A client's: segments to these addresses, which nothing else on this machine may use for TCP.
    From(Vec<IpAddr>),
}

impl Steer {
    /// The rules, given the interface's addresses.
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
