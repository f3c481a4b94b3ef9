//! The rules for plans, whatever they were made from.

use std::net::SocketAddr;
use std::time::Duration;

use linerate_net::link::fault::FaultOptions;

use crate::histogram::LARGEST_NS;
use crate::plan::flow::FlowPlan;
use crate::plan::limits::{MAX_ABORTS, MAX_FOLLOWING, MAX_GROUP, MAX_HOSTS};
use crate::plan::{InvalidPlan, Io, Order, Pace, Plan, Way};

/// Most requests in flight on one connection.
const DEEPEST: u32 = 1_000_000;
/// Most connections of one process.
const MOST_CONNECTIONS: u32 = 1_000_000;

impl Plan {
    /// Whether it can be carried out; if not, what is wrong and what would be right.
    pub fn validate(&self) -> Result<(), InvalidPlan> {
        if self.target.addresses.is_empty() {
            return Err(format!("{}: no address to send to", self.target.url).into());
        }
        if self.requests.is_empty() {
            return Err("there is no request to send: name at least one".into());
        }
        within("connections", u64::from(self.connections), 1, u64::from(MOST_CONNECTIONS))?;
        within("pipeline depth", u64::from(self.depth), 1, u64::from(DEEPEST))?;
        if let Some(n) = self.per_connection {
            within("requests per connection", u64::from(n), 1, u64::from(u32::MAX))?;
        }
        if let Some(n) = self.threads {
            within("threads", u64::from(n), 1, 1024)?;
        }
        if let Some(n) = self.stop.requests {
            within("requests", n, 1, u64::MAX)?;
        }
        let longest = Duration::from_nanos(LARGEST_NS);
        if self.timeout.is_zero() || self.timeout > longest {
            return Err(format!("the time-out must be between 1ns and 1h, not {:?}", self.timeout).into());
        }
        if self.stop.duration.is_some_and(|d| d.is_zero()) {
            return Err("the duration must be longer than 0".into());
        }
        if let Pace::Open { rate, .. } = &self.pace {
            rate.check()?;
        }
        self.validate_flows()?;
        self.validate_http()?;
        self.validate_route()?;
        self.validate_interface()?;
        self.validate_middlewares()?;
        Ok(self.validate_requests()?)
    }

    fn validate_flows(&self) -> Result<(), String> {
        let Some(flows) = &self.flows else { return Ok(()) };
        let wanted = u64::from(flows.users) * u64::from(self.connections_each());
        if wanted != u64::from(self.connections) {
            return Err(format!("{} users of flows need {wanted} connections", flows.users));
        }
        if flows.widest() > MAX_GROUP {
            return Err(format!("a group of steps has at most {MAX_GROUP} requests"));
        }
        let steps = || flows.flows.iter().flat_map(|flow| &flow.steps);
        if flows.flows.iter().any(|flow| flow.steps.is_empty()) || flows.flows.is_empty() {
            return Err("a flow has at least one step, and a plan with flows at least one flow".to_owned());
        }
        if steps().any(|step| step.request as usize >= self.requests.len()) {
            return Err("a step of a flow sends a request that is not in the plan".to_owned());
        }
        if flows.follows() && self.requests.len() > MAX_FOLLOWING {
            return Err(format!("with redirects, flows have at most {MAX_FOLLOWING} steps"));
        }
        self.validate_hosts(flows)?;
        let is_positive = |weight: f64| weight.is_finite() && weight > 0.0;
        if flows.flows.iter().any(|flow| !is_positive(flow.weight)) {
            return Err("the weight of a flow must be greater than 0".to_owned());
        }
        let is_closed = self.pace == Pace::Closed && self.stop.requests.is_none();
        if self.way != Way::Loop || self.depth > 1 || self.throughput || self.tag.is_some() || !is_closed {
            return Err(
                "flows need event loops, one request at a time, and neither a rate, a number of requests, \
                        a tag nor --throughput"
                    .to_owned(),
            );
        }
        Ok(())
    }

    /// What several hosts exclude.
    fn validate_hosts(&self, flows: &FlowPlan) -> Result<(), String> {
        if flows.flows.iter().flat_map(|flow| &flow.steps).any(|step| step.host as usize > flows.hosts.len())
        {
            return Err("a step of a flow goes to a host that is not in the plan".to_owned());
        }
        if flows.hosts.is_empty() {
            return Ok(());
        }
        if flows.hosts.len() > MAX_HOSTS {
            return Err(format!("the steps of a plan go to at most {MAX_HOSTS} other hosts"));
        }
        if let Some(host) = flows.hosts.iter().find(|host| host.target.addresses.is_empty()) {
            return Err(format!("{}: no address to send to", host.target.url));
        }
        let excluded = match () {
            () if self.is_quic() => "--http 3",
            () if !matches!(self.io, Io::Auto | Io::Epoll) => "--io uring or xdp: they need --io epoll",
            () if self.route.unix.is_some() => "--unix-socket",
            () if self.route.haproxy.is_some() => "--haproxy-protocol",
            () if self.route.proxy.is_some() => {
                "a proxy (--proxy, or a variable such as https_proxy; --noproxy '*' leaves it out)"
            }
            () => return Ok(()),
        };
        Err(format!("flows that go to several hosts do not go with {excluded}"))
    }

    fn validate_route(&self) -> Result<(), String> {
        if self.route.unix.is_some() && self.io.is_user_space() {
            return Err(
                "--io xdp bypasses the kernel, and a Unix socket (--unix-socket) is the kernel's".to_owned()
            );
        }
        if self.route.unix.is_some() && !self.from.is_empty() {
            return Err("--from is about addresses, and --unix-socket connects to none".to_owned());
        }
        Ok(())
    }

    fn validate_interface(&self) -> Result<(), String> {
        match (self.io, &self.interface) {
            (Io::Xdp, None) => Err("--io xdp bypasses the kernel, so it needs --interface: the one that leads to the \
                                    target (ip route get ADDRESS names it)"
                .to_owned()),
            (Io::Xdp, Some(_)) if self.from.is_empty() => {
                Err("--io xdp needs --from: source addresses that nothing else on this machine uses, free ones of the \
                     interface's network"
                    .to_owned())
            }
            (Io::Xdp, Some(_)) => self.validate_sources(),
            (_, Some(_)) => Err("--interface is for --io xdp; elsewhere the kernel chooses".to_owned()),
            (_, None) => Ok(()),
        }
    }

    fn validate_sources(&self) -> Result<(), String> {
        for to in &self.target.addresses {
            if self.from.contains(&to.ip()) {
                return Err(format!(
                    "--from is {}, which is the target itself; connections come from free addresses of the interface's network",
                    to.ip()
                ));
            }
            if !self.has_source_for(to) {
                return Err(format!("--from has no address of the same family as the target {to}"));
            }
        }
        Ok(())
    }

    fn validate_middlewares(&self) -> Result<(), String> {
        let past_the_kernel = self.io.is_user_space();
        if self.busy_poll.is_some() && !past_the_kernel {
            return Err(
                "--busy-poll is for --io xdp; elsewhere the kernel does it: sysctl net.core.busy_poll"
                    .to_owned(),
            );
        }
        if self.pcap_out.is_some() && !past_the_kernel {
            return Err("--pcap-out is for --io xdp, whose packets other programs don't see; elsewhere capture with tcpdump -w \
                        FILE or dumpcap"
                .to_owned());
        }
        match &self.fault {
            None => Ok(()),
            Some(_) if !past_the_kernel => {
                Err("--fault is for --io xdp; elsewhere let the network do it: tc qdisc add dev IF root netem loss 1%, or an nft \
                     rule that drops"
                    .to_owned())
            }
            Some(text) => text.parse::<FaultOptions>().map(drop).map_err(|why| format!("--fault {why}")),
        }
    }

    fn has_source_for(&self, to: &SocketAddr) -> bool {
        self.from.iter().any(|from| from.is_ipv4() == to.is_ipv4())
    }

    fn validate_requests(&self) -> Result<(), String> {
        for request in &self.requests {
            if !(request.weight.is_finite() && request.weight > 0.0) {
                return Err(format!(
                    "request \"{}\": the weight must be greater than 0, not {}",
                    request.name, request.weight
                ));
            }
        }
        if let Order::Listed(list) = &self.order {
            if list.is_empty() {
                return Err("the list of requests is empty: name at least one".to_owned());
            }
            if let Some(bad) = list.iter().find(|i| **i as usize >= self.requests.len()) {
                return Err(format!(
                    "request number {bad} is not in the plan, which has {}",
                    self.requests.len()
                ));
            }
        }
        let is_known = |name: &String| self.requests.iter().any(|request| request.name == *name);
        let mut conditions = self.checks.iter().chain(self.abort_on.iter().map(|condition| &condition.check));
        if let Some(check) = conditions.find(|c| c.name.as_ref().is_some_and(|name| !is_known(name))) {
            let mut names: Vec<&str> = self.requests.iter().map(|r| r.name.as_str()).collect();
            names.dedup();
            names.truncate(10);
            let expr = &check.expr;
            return Err(format!("check {expr}: no request has that name; known are {}", names.join(", ")));
        }
        if self.abort_on.len() > MAX_ABORTS {
            return Err(format!("more than {MAX_ABORTS} conditions are to end the run"));
        }
        match self.data.iter().find(|d| d.rows.is_empty()) {
            Some(empty) => Err(format!("data set \"{}\" has no row: give it at least one", empty.name)),
            None => Ok(()),
        }
    }
}

fn within(what: &str, value: u64, least: u64, most: u64) -> Result<(), String> {
    if (least..=most).contains(&value) {
        return Ok(());
    }
    if most == u64::MAX {
        return Err(format!("{what} must be at least {least}, not {value}"));
    }
    Err(format!("{what} must be between {least} and {most}, not {value}"))
}
