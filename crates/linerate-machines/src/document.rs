//! The run document: what all agents of a run carry out. It is written once and never changed.

use std::net::IpAddr;

use linerate_load::Plan;
use serde::{Deserialize, Serialize};

/// Version of all documents and messages of this crate. Agents of another version are refused.
pub const SCHEMA: &str = "linerate.machines/1";

/// Most agents of one run. Reason: the target is 1,000; a document for more could exceed a message.
pub const MOST_AGENTS: usize = 4096;

/// One agent's part.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Share {
    /// The agent's name.
    pub agent: String,
    /// Which start of the agent: a restarted one is another.
    pub incarnation: String,
    /// Number of its first thread among all threads of the run.
    pub first_thread: u32,
    /// Its threads.
    pub threads: u32,
}

/// A run, as the agents read it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct RunDocument {
    /// [`SCHEMA`].
    pub schema: String,
    /// The run's name.
    pub run: String,
    /// What is sent, by all agents together.
    pub plan: Plan,
    /// The agents, in the order of their threads.
    pub shares: Vec<Share>,
}

/// An agent as it announces itself.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct AgentCard {
    /// [`SCHEMA`].
    pub schema: String,
    /// Its name, unique on the bus.
    pub name: String,
    /// Random; another for each start.
    pub incarnation: String,
    /// Version of the program.
    pub version: String,
    /// The kernel's release.
    pub kernel: String,
    /// Cores that it may use.
    pub cores: u32,
    /// Labels, `key=value`.
    pub labels: Vec<String>,
    /// The run that it carries out now.
    pub run: Option<String>,
}

/// An agent's answer to a run document.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Ready {
    /// Which start of the agent.
    pub incarnation: String,
    /// Why it does not take part; `None`: it is ready.
    pub refused: Option<String>,
    /// Uncertainty of its clock against the coordinator's, nanoseconds.
    pub clock_uncertainty_ns: u64,
}

/// Why a run cannot be split among agents.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SplitError {
    /// An agent would have no connection.
    #[error("{connections} connections are too few for {threads} threads on {agents} agents")]
    TooFewConnections {
        /// Of the plan.
        connections: u32,
        /// Of all agents.
        threads: u32,
        /// In the run.
        agents: usize,
    },
    /// More than a run can have.
    #[error("a run has at most {MOST_AGENTS} agents")]
    TooManyAgents,
}

/// Deals the threads of a run out to agents. Each agent gets `threads` threads, by default one per
/// core of its own, but never more threads than the run has connections.
pub fn split(
    plan: &Plan,
    threads: Option<u32>,
    agents: &[(String, String, u32)],
) -> Result<Vec<Share>, SplitError> {
    if agents.len() > MOST_AGENTS {
        return Err(SplitError::TooManyAgents);
    }
    let of_each = |cores: u32| threads.unwrap_or(cores).max(1);
    let mut wanted: Vec<u32> = agents.iter().map(|(_, _, cores)| of_each(*cores)).collect();
    // Threads are a choice of ours: with few connections, the agents with most threads lose some.
    let most = plan.connections.max(1);
    while threads.is_none() && wanted.iter().sum::<u32>() > most {
        match wanted.iter_mut().filter(|n| **n > 1).max() {
            Some(n) => *n -= 1,
            None => break,
        }
    }
    let all = wanted.iter().sum::<u32>();
    if all > plan.connections {
        let connections = plan.connections;
        return Err(SplitError::TooFewConnections { connections, threads: all, agents: agents.len() });
    }
    let mut first_thread = 0;
    let share = |((agent, incarnation, _), threads): (&(String, String, u32), u32)| {
        let share = Share { agent: agent.clone(), incarnation: incarnation.clone(), first_thread, threads };
        first_thread += threads;
        share
    };
    Ok(agents.iter().zip(wanted).map(share).collect())
}

impl RunDocument {
    /// Threads of all agents.
    pub fn threads(&self) -> u32 {
        self.shares.iter().map(|share| share.threads).sum()
    }

    /// The part of an agent.
    pub fn share_of(&self, agent: &str, incarnation: &str) -> Option<&Share> {
        self.shares.iter().find(|share| share.agent == agent && share.incarnation == incarnation)
    }
}

/// Which targets an agent may load.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AllowList(Vec<Allowed>);

#[derive(Clone, Debug, PartialEq, Eq)]
enum Allowed {
    Any,
    /// Addresses whose first bits are these.
    Network(IpAddr, u8),
    /// A host as it stands in the URL, with its port or without one.
    Authority(String),
}

/// An entry of an allow list that means nothing.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is neither a host, HOST:PORT, an address, a network such as 10.0.0.0/8, nor *")]
pub struct WrongEntry(pub String);

impl AllowList {
    /// Loopback alone: what an agent may load unless its user says more.
    pub fn loopback() -> AllowList {
        let networks = [(IpAddr::from([127, 0, 0, 0]), 8), (IpAddr::from([0, 0, 0, 0, 0, 0, 0, 1u16]), 128)];
        AllowList(networks.map(|(address, bits)| Allowed::Network(address, bits)).into())
    }

    /// Reads entries separated by commas.
    pub fn parse(text: &str) -> Result<AllowList, WrongEntry> {
        text.split(',')
            .map(str::trim)
            .filter(|entry| !entry.is_empty())
            .map(entry)
            .collect::<Result<_, _>>()
            .map(AllowList)
    }

    /// Whether a plan's target is allowed: its authority is listed, or each of its addresses.
    pub fn allows(&self, plan: &Plan) -> bool {
        let host = host_of(&plan.target.authority);
        let by_name = self.0.iter().any(|allowed| match allowed {
            Allowed::Any => true,
            Allowed::Authority(name) => *name == plan.target.authority || name == host,
            Allowed::Network(..) => false,
        });
        let within = |address: IpAddr| {
            self.0.iter().any(
                |allowed| matches!(allowed, Allowed::Network(net, bits) if contains(*net, *bits, address)),
            )
        };
        let addresses = &plan.target.addresses;
        by_name || (!addresses.is_empty() && addresses.iter().all(|a| within(a.ip())))
    }
}

fn entry(text: &str) -> Result<Allowed, WrongEntry> {
    let wrong = || WrongEntry(text.to_owned());
    if text == "*" {
        return Ok(Allowed::Any);
    }
    if let Some((address, bits)) = text.split_once('/') {
        let address: IpAddr = address.parse().map_err(|_| wrong())?;
        let bits: u8 = bits.parse().map_err(|_| wrong())?;
        let most = if address.is_ipv4() { 32 } else { 128 };
        return if bits <= most { Ok(Allowed::Network(address, bits)) } else { Err(wrong()) };
    }
    if let Ok(address) = text.parse::<IpAddr>() {
        return Ok(Allowed::Network(address, if address.is_ipv4() { 32 } else { 128 }));
    }
    let is_name = text.bytes().all(|b| b.is_ascii_alphanumeric() || b".-_:[]".contains(&b));
    if is_name { Ok(Allowed::Authority(text.to_owned())) } else { Err(wrong()) }
}

fn host_of(authority: &str) -> &str {
    match authority.rsplit_once(':') {
        Some((host, port)) if port.bytes().all(|b| b.is_ascii_digit()) && !host.is_empty() => host,
        _ => authority,
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
    use linerate_load::plan::Target;

    use super::*;

    fn plan(connections: u32) -> Plan {
        Plan { connections, ..Plan::get(Target::at(([10, 1, 2, 3], 80).into()), "/") }
    }

    fn agents(cores: &[u32]) -> Vec<(String, String, u32)> {
        cores.iter().enumerate().map(|(i, cores)| (format!("a{i}"), "x".to_owned(), *cores)).collect()
    }

    #[test]
    fn threads_are_dealt_out_without_gaps() {
        let shares = split(&plan(64), None, &agents(&[2, 8, 1])).unwrap();
        let dealt: Vec<_> = shares.iter().map(|s| (s.first_thread, s.threads)).collect();
        assert_eq!(dealt, [(0, 2), (2, 8), (10, 1)]);
        let few = split(&plan(5), None, &agents(&[2, 8, 1])).unwrap();
        assert_eq!(few.iter().map(|s| s.threads).sum::<u32>(), 5);
        assert!(few.iter().all(|s| s.threads > 0));
    }

    #[test]
    fn an_agent_without_a_connection_is_an_error() {
        let error = split(&plan(2), None, &agents(&[1, 1, 1])).unwrap_err();
        assert_eq!(error.to_string(), "2 connections are too few for 3 threads on 3 agents");
        assert!(split(&plan(7), Some(4), &agents(&[1, 1])).is_err());
        assert!(split(&plan(8), Some(4), &agents(&[1, 1])).is_ok());
    }

    #[test]
    fn an_allow_list_names_hosts_and_networks() {
        let allows = |list: &str| AllowList::parse(list).unwrap().allows(&plan(1));
        assert!(allows("*") && allows("10.0.0.0/8") && allows("10.1.2.3") && allows("10.1.2.3:80"));
        assert!(!allows("10.1.2.4, 192.168.0.0/16") && !allows("10.1.2.3:81") && !allows("::/0"));
        assert!(allows("0.0.0.0/0"));
        assert!(!AllowList::loopback().allows(&plan(1)));
        for wrong in ["10.0.0.0/33", "a b", "x/8", "http://a/"] {
            assert_eq!(AllowList::parse(wrong).unwrap_err(), WrongEntry(wrong.to_owned()));
        }
    }
}
