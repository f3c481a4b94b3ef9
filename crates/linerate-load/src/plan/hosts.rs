//! A plan as its hosts see it.

use std::net::SocketAddr;

use super::flow::FlowHost;
use super::tls::TargetTls;
use super::{DataSet, Plan};

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

    /// A host by its number; 0 is the plan's target.
    pub fn host(&self, number: usize) -> FlowHost {
        let other = number.checked_sub(1).and_then(|nth| self.flows.as_ref()?.hosts.get(nth));
        let target = || FlowHost {
            target: self.target.clone(),
            lookup: self.route.lookup.clone(),
            tls: self.tls.clone(),
        };
        other.cloned().unwrap_or_else(target)
    }

    /// Puts the addresses and the lookup of a host in the place of what they were.
    pub fn set_host(&mut self, number: usize, host: FlowHost) {
        match number.checked_sub(1) {
            None => (self.target, self.route.lookup) = (host.target, host.lookup),
            Some(nth) => {
                let known = self.flows.as_mut().and_then(|flows| flows.hosts.get_mut(nth));
                if let Some(known) = known {
                    *known = host;
                }
            }
        }
    }

    /// The plan as it is for one of its hosts, with a row of each data set alone: users bring theirs.
    pub(crate) fn at_host(&self, number: usize) -> Plan {
        let row = |set: &DataSet| DataSet {
            name: set.name.clone(),
            columns: set.columns.clone(),
            rows: set.rows.first().cloned().into_iter().collect(),
        };
        let FlowHost { target, lookup, tls } = self.host(number);
        let mut plan = self.clone();
        plan.data = self.data.iter().map(row).collect();
        (plan.target, plan.route.lookup, plan.tls) = (target, lookup, tls);
        plan
    }
}
