//! A plan as its hosts see it.

use std::net::SocketAddr;

use super::Plan;
use super::tls::TargetTls;

impl Plan {
    /// Hosts that requests go to (at least 1).
    pub fn host_count(&self) -> usize {
        1 + self.flows.as_ref().map_or(0, |flows| flows.hosts.len())
    }

    /// The addresses of all hosts.
    pub fn all_addresses(&self) -> Vec<SocketAddr> {
        let others = self.flows.iter().flat_map(|flows| &flows.hosts).flat_map(|host| &host.target.addresses);
        self.target.addresses.iter().chain(others).copied().collect()
    }

    /// TLS towards those hosts that are reached over it.
    pub fn all_tls(&self) -> impl Iterator<Item = &TargetTls> {
        let others = self.flows.iter().flat_map(|flows| &flows.hosts).filter_map(|host| host.tls.as_ref());
        self.tls.iter().chain(others)
    }

    /// The plan as it is for one of its hosts, by its number.
    pub fn at_host(&self, host: usize) -> Plan {
        let mut plan = self.clone();
        let flows = self.flows.as_ref();
        if let Some(other) = host.checked_sub(1).and_then(|nth| flows?.hosts.get(nth)) {
            plan.target = other.target.clone();
            plan.route.lookup.clone_from(&other.lookup);
            plan.tls.clone_from(&other.tls);
        }
        plan
    }

    /// Puts the target and lookup of a plan as it is for one host in the place of that host's.
    pub fn set_host(&mut self, host: usize, of: Plan) {
        let flows = self.flows.as_mut();
        match host.checked_sub(1) {
            None => (self.target, self.route.lookup) = (of.target, of.route.lookup),
            Some(nth) => {
                if let Some(other) = flows.and_then(|flows| flows.hosts.get_mut(nth)) {
                    (other.target, other.lookup) = (of.target, of.route.lookup);
                }
            }
        }
    }
}
