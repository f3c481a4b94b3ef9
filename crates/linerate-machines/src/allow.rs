//! Which targets an agent may load. A coordinator says where connections go; the agent's own list
//! decides, and a name on it stands for what the agent itself finds under that name.

use std::net::{IpAddr, SocketAddr};

use linerate_load::Plan;
use linerate_load::plan::route::Lookup;

/// Which targets an agent may load.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AllowList(Vec<AllowedTarget>);

#[derive(Clone, Debug, PartialEq, Eq)]
enum AllowedTarget {
    Any,
    /// Addresses whose first bits are these.
    Network(IpAddr, u8),
    /// An address with its port.
    Endpoint(SocketAddr),
    /// A name as it is looked up, with its port or without one.
    Name(String, Option<u16>),
}

/// An entry of an allow list that means nothing.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is neither a host, HOST:PORT, an address, a network such as 10.0.0.0/8, nor *")]
pub struct WrongEntry(pub String);

/// What a list says about a plan.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AllowVerdict {
    /// The plan may be carried out as it is.
    Allowed,
    /// Its addresses may be loaded, and no others: its name must not be looked up again.
    AddressesOnly,
    /// This name may be loaded: at the addresses that the agent finds, not at those of the plan.
    LookUp(Lookup),
    /// No.
    Refused,
}

impl AllowList {
    /// Loopback alone: what an agent may load unless its user says more.
    pub fn loopback() -> AllowList {
        let networks = [(IpAddr::from([127, 0, 0, 0]), 8), (IpAddr::from([0, 0, 0, 0, 0, 0, 0, 1u16]), 128)];
        AllowList(networks.map(|(address, bits)| AllowedTarget::Network(address, bits)).into())
    }

    /// Reads entries separated by commas.
    pub fn parse(text: &str) -> Result<AllowList, WrongEntry> {
        let entries = text.split(',').map(str::trim).filter(|entry| !entry.is_empty());
        let entries = entries.map(entry).collect::<Result<Vec<_>, _>>()?;
        if entries.is_empty() { Err(WrongEntry(text.to_owned())) } else { Ok(AllowList(entries)) }
    }

    /// Whether it lets a run choose among more than a few machines: `*`, or a network of more than
    /// 65,536 addresses.
    pub fn is_wide(&self) -> bool {
        self.0.iter().any(|allowed| match allowed {
            AllowedTarget::Any => true,
            AllowedTarget::Network(network, _) if network.is_loopback() => false,
            AllowedTarget::Network(IpAddr::V4(_), bits) => *bits < 16,
            AllowedTarget::Network(IpAddr::V6(_), bits) => *bits < 112,
            AllowedTarget::Endpoint(_) | AllowedTarget::Name(..) => false,
        })
    }

    /// Whether a plan may load one of its hosts, by the host's number.
    pub fn verdict(&self, plan: &Plan, number: usize) -> AllowVerdict {
        if self.0.contains(&AllowedTarget::Any) {
            return AllowVerdict::Allowed;
        }
        let (route, host) = (&plan.route, plan.host(number));
        // A proxy leads on, to hosts that only it looks up: they must be listed, too.
        let led_to = [Some(&host.target.authority), route.proxy.as_ref().and_then(|p| p.tunnel.as_ref())];
        let leads_elsewhere = route.proxy.is_some()
            && led_to.into_iter().flatten().any(|authority| !self.has_authority(authority));
        if route.unix.is_some() || leads_elsewhere {
            return AllowVerdict::Refused;
        }
        match &host.lookup {
            Some(lookup) if self.has_name(&lookup.host, lookup.port) => AllowVerdict::LookUp(lookup.clone()),
            _ => {
                let addresses = &host.target.addresses;
                let are_listed = !addresses.is_empty() && addresses.iter().all(|at| self.has_address(*at));
                if are_listed { AllowVerdict::AddressesOnly } else { AllowVerdict::Refused }
            }
        }
    }

    fn has_address(&self, at: SocketAddr) -> bool {
        self.0.iter().any(|allowed| match allowed {
            AllowedTarget::Network(network, bits) => contains(*network, *bits, at.ip()),
            AllowedTarget::Endpoint(endpoint) => *endpoint == at,
            AllowedTarget::Any | AllowedTarget::Name(..) => false,
        })
    }

    fn has_name(&self, host: &str, port: u16) -> bool {
        self.0.iter().any(|allowed| match allowed {
            AllowedTarget::Name(name, its) => {
                name.eq_ignore_ascii_case(host) && its.is_none_or(|its| its == port)
            }
            _ => false,
        })
    }

    /// A host with or without a port, which somebody else looks up.
    fn has_authority(&self, authority: &str) -> bool {
        let (host, port) = split(authority);
        match host.trim_matches(['[', ']']).parse::<IpAddr>() {
            Ok(address) => self.has_address(SocketAddr::new(address, port.unwrap_or(80))),
            // Without a port, the scheme's own.
            Err(_) => [80, 443].into_iter().any(|usual| self.has_name(host, port.unwrap_or(usual))),
        }
    }
}

fn entry(text: &str) -> Result<AllowedTarget, WrongEntry> {
    let wrong = || WrongEntry(text.to_owned());
    if text == "*" {
        return Ok(AllowedTarget::Any);
    }
    if let Some((address, bits)) = text.split_once('/') {
        let address: IpAddr = address.parse().map_err(|_| wrong())?;
        let bits: u8 = bits.parse().map_err(|_| wrong())?;
        let most = if address.is_ipv4() { 32 } else { 128 };
        return if bits <= most { Ok(AllowedTarget::Network(address, bits)) } else { Err(wrong()) };
    }
    if let Ok(address) = text.trim_matches(['[', ']']).parse::<IpAddr>() {
        return Ok(AllowedTarget::Network(address, if address.is_ipv4() { 32 } else { 128 }));
    }
    if let Ok(endpoint) = text.parse() {
        return Ok(AllowedTarget::Endpoint(endpoint));
    }
    let (host, port) = split(text);
    let is_name = !host.is_empty() && host.bytes().all(|b| b.is_ascii_alphanumeric() || b".-_".contains(&b));
    if is_name { Ok(AllowedTarget::Name(host.to_owned(), port)) } else { Err(wrong()) }
}

/// Host and port of an authority.
fn split(authority: &str) -> (&str, Option<u16>) {
    match authority.rsplit_once(':').map(|(host, port)| (host, port.parse())) {
        Some((host, Ok(port))) => (host, Some(port)),
        _ => (authority, None),
    }
}

fn contains(network: IpAddr, bits: u8, address: IpAddr) -> bool {
    match (network, address) {
        (IpAddr::V4(n), IpAddr::V4(a)) => {
            let shift = 32 - u32::from(bits);
            u32::from(n).checked_shr(shift).unwrap_or(0) == u32::from(a).checked_shr(shift).unwrap_or(0)
        }
        (IpAddr::V6(n), IpAddr::V6(a)) => {
            let shift = 128 - u32::from(bits);
            u128::from(n).checked_shr(shift).unwrap_or(0) == u128::from(a).checked_shr(shift).unwrap_or(0)
        }
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use linerate_load::plan::Target;
    use linerate_load::plan::file::PlanFile;
    use linerate_load::plan::flow::FlowHost;
    use linerate_load::plan::route::{Proxy, Route};

    use super::*;

    fn plan() -> Plan {
        Plan::get(Target::at(([10, 1, 2, 3], 80).into()), "/")
    }

    fn verdict(list: &str, plan: &Plan) -> AllowVerdict {
        AllowList::parse(list).unwrap().verdict(plan, 0)
    }

    #[test]
    fn an_allow_list_names_hosts_and_networks() {
        let allows = |list: &str| verdict(list, &plan()) != AllowVerdict::Refused;
        assert!(allows("*") && allows("10.0.0.0/8") && allows("10.1.2.3") && allows("10.1.2.3:80"));
        assert!(!allows("10.1.2.4, 192.168.0.0/16") && !allows("10.1.2.3:81") && !allows("::/0"));
        assert!(allows("0.0.0.0/0"));
        assert_eq!(AllowList::loopback().verdict(&plan(), 0), AllowVerdict::Refused);
        for wrong in ["10.0.0.0/33", "a b", "x/8", "http://a/", ":80"] {
            assert_eq!(AllowList::parse(wrong).unwrap_err(), WrongEntry(wrong.to_owned()));
        }
    }

    #[test]
    fn each_host_of_a_plan_is_listed() {
        let text = "users = 1\n[[flow]]\n[[flow.step]]\npath = \"http://10.9.9.9/x\"\n";
        let file = PlanFile::parse(text, Path::new("plan.toml")).unwrap();
        let mut plan = Plan { flows: file.flows, ..plan() };
        let other = FlowHost { target: Target::at(([10, 9, 9, 9], 80).into()), ..plan.host(1) };
        plan.set_host(1, other);
        let verdicts = |list: &str| {
            let list = AllowList::parse(list).unwrap();
            [0, 1].map(|host| list.verdict(&plan, host))
        };
        assert_eq!(verdicts("10.1.2.3"), [AllowVerdict::AddressesOnly, AllowVerdict::Refused]);
        assert_eq!(
            verdicts("10.1.2.3, 10.9.9.9:80"),
            [AllowVerdict::AddressesOnly, AllowVerdict::AddressesOnly]
        );
    }

    #[test]
    fn a_list_of_many_machines_is_wide() {
        let is_wide = |list: &str| AllowList::parse(list).unwrap().is_wide();
        assert!(is_wide("*") && is_wide("10.0.0.0/8") && is_wide("shop, 0.0.0.0/0") && is_wide("fd00::/64"));
        assert!(!is_wide("shop, 10.1.2.3, 10.1.0.0/16, 10.1.2.3:80, fd00::/112, 127.0.0.0/8"));
        assert!(!AllowList::loopback().is_wide());
    }

    /// A coordinator that says "shop" and means another machine is not believed.
    #[test]
    fn a_listed_name_is_what_the_agent_finds() {
        let lookup = Lookup { host: "shop.example".to_owned(), port: 80, ipv6: false };
        let mut named = plan();
        named.target.authority = "shop.example".to_owned();
        assert_eq!(verdict("shop.example", &named), AllowVerdict::Refused, "addresses were given");
        named.route.lookup = Some(lookup.clone());
        assert_eq!(verdict("Shop.Example", &named), AllowVerdict::LookUp(lookup.clone()));
        assert_eq!(verdict("shop.example:80", &named), AllowVerdict::LookUp(lookup));
        assert_eq!(verdict("shop.example:81, other.example", &named), AllowVerdict::Refused);
        assert_eq!(verdict("10.0.0.0/8", &named), AllowVerdict::AddressesOnly);
        assert_eq!(verdict("*", &named), AllowVerdict::Allowed);
    }

    #[test]
    fn a_proxy_and_what_is_behind_it_are_both_listed() {
        let proxied = |tunnel: Option<&str>| {
            let proxy = Proxy {
                url: "http://10.1.2.3:80".to_owned(),
                from: "--proxy".to_owned(),
                user: None,
                tunnel: tunnel.map(str::to_owned),
            };
            let mut plan = plan();
            plan.target.authority = "shop.example".to_owned();
            plan.route = Route { proxy: Some(proxy), ..Route::default() };
            plan
        };
        assert_eq!(verdict("10.0.0.0/8", &proxied(None)), AllowVerdict::Refused);
        assert_eq!(verdict("10.0.0.0/8, shop.example", &proxied(None)), AllowVerdict::AddressesOnly);
        assert_eq!(verdict("shop.example", &proxied(None)), AllowVerdict::Refused);
        assert_eq!(
            verdict("10.0.0.0/8, shop.example", &proxied(Some("evil.example:443"))),
            AllowVerdict::Refused
        );
        let mut unix = plan();
        unix.route.unix = Some("/run/docker.sock".into());
        assert_eq!(verdict("0.0.0.0/0", &unix), AllowVerdict::Refused);
    }
}
