//! The run document: what all agents of a run carry out. It is written once and never changed.

use std::collections::BTreeMap;

use linerate_load::Plan;
use serde::{Deserialize, Serialize};

/// Version of all documents and messages of this crate. Agents of another version are refused.
pub const SCHEMA: &str = "linerate.machines/1";

/// Version of linerate. A plan of another version could have parts that this one does not know.
pub const VERSION: &str = env!("CARGO_PKG_VERSION");

/// Most agents of one run. Reason: the target is 1,000; a document for more could exceed a message.
pub const MOST_AGENTS: usize = 4096;

/// One agent's part.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct RunShare {
    /// The agent's name.
    pub agent: String,
    /// Which start of the agent: a restarted one is another.
    pub incarnation: String,
    /// Number of its first thread among all threads of the run.
    pub first_thread: u32,
    /// Its threads.
    pub threads: u32,
    /// 0: its own share; from 1 on: a lost agent's share that it took over.
    #[serde(default)]
    pub part: u32,
}

/// The part of a run document that lets its agents read the plan.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SealedPlan {
    /// The public key of this run alone by which it is sealed.
    pub by: String,
    /// The plan's key, sealed to each agent: by incarnation, Base64.
    pub keys: BTreeMap<String, String>,
    /// SHA-256 of the encrypted plan, so that a signature covers it.
    pub digest: String,
}

/// A lost agent's share, given to another.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Takeover {
    /// [`SCHEMA`].
    pub schema: String,
    /// The run.
    pub run: String,
    /// The agent that takes over, and the threads of its new share.
    pub share: RunShare,
    /// The lost agent.
    pub lost: String,
    /// What the lost agent has reported: all that was due before this moment of the run,
    /// nanoseconds.
    pub accounted_ns: u64,
    /// Requests that it sent of a closed loop.
    pub sent: u64,
    /// When to join, nanoseconds from the run's start.
    pub at_ns: u64,
}

/// What happens to the share of an agent that is lost.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum OnLoss {
    /// No agent sends it; the others continue.
    #[default]
    Continue,
    /// Another agent takes it over.
    Rebalance,
    /// The run ends.
    Abort,
}

/// A run, as the agents read it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct RunDocument {
    /// [`SCHEMA`].
    pub schema: String,
    /// [`VERSION`].
    #[serde(default)]
    pub version: String,
    /// The run's name.
    pub run: String,
    /// The load of all agents together, without what is secret.
    pub plan: Plan,
    /// How its agents read the whole plan, which is under a key of its own.
    #[serde(default)]
    pub sealed: SealedPlan,
    /// Whether agents report each request.
    #[serde(default)]
    pub log_requests: bool,
    /// The agents, in the order of their threads.
    pub shares: Vec<RunShare>,
}

/// The part of a run document that all versions can read.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub struct DocumentHead {
    /// The schema of the rest.
    pub schema: String,
    /// Version of the program that wrote it.
    #[serde(default)]
    pub version: String,
    /// The run's name.
    pub run: String,
    shares: Vec<ShareHead>,
}

#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
struct ShareHead {
    agent: String,
    incarnation: String,
}

impl DocumentHead {
    /// Reads it.
    pub fn read(text: &[u8]) -> Option<DocumentHead> {
        serde_json::from_slice(text).ok()
    }

    /// Whether this agent has a part in the run.
    pub fn names(&self, agent: &str, incarnation: &str) -> bool {
        self.shares.iter().any(|share| share.agent == agent && share.incarnation == incarnation)
    }

    /// The other version of which the document is; `None`: it is of this one.
    pub fn other_version(&self) -> Option<String> {
        other_version(&self.schema, &self.version)
    }
}

/// The version of which something is, in words; `None`: it is of this version.
fn other_version(schema: &str, version: &str) -> Option<String> {
    match version {
        VERSION if schema == SCHEMA => None,
        "" => Some("an earlier linerate".to_owned()),
        VERSION => Some(format!("linerate {version} with {schema}")),
        _ => Some(format!("linerate {version}")),
    }
}

/// An agent as it announces itself. Agents of other versions can lack all but their name.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
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
    /// The X25519 key to which secrets are sealed for it, as an NKEY (`X...`).
    pub seal_key: String,
    /// Its own NKEY, if it has one.
    pub nkey: Option<String>,
    /// By that NKEY: the seal key is its own. Base64.
    pub seal_signature: Option<String>,
}

impl AgentCard {
    /// The other version of which the agent is; `None`: it is of this one.
    pub fn other_version(&self) -> Option<String> {
        other_version(&self.schema, &self.version)
    }
}

/// A warning about agents whose kernels differ: the kernels may be why their figures differ.
pub fn differing_kernels(cards: &[AgentCard]) -> Option<String> {
    const NAMED: usize = 3;
    let mut kernels: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for card in cards.iter().filter(|card| !card.kernel.is_empty()) {
        kernels.entry(&card.kernel).or_default().push(&card.name);
    }
    let of = |(kernel, names): (&&str, &Vec<&str>)| {
        let shown = names[..names.len().min(NAMED)].join(", ");
        let more = match names.len().saturating_sub(NAMED) {
            0 => String::new(),
            more => format!(" and {more} more"),
        };
        format!("{kernel} ({shown}{more})")
    };
    let all: Vec<String> = kernels.iter().map(of).collect();
    (all.len() > 1).then(|| format!("the agents' kernels differ: {}", all.join(", ")))
}

/// An agent's answer to a run document.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct AgentReady {
    /// Which start of the agent.
    pub incarnation: String,
    /// Why it does not take part; `None`: it is ready.
    pub refused: Option<String>,
    /// How far its clock is ahead of the coordinator's, nanoseconds.
    #[serde(default)]
    pub clock_offset_ns: i64,
    /// Uncertainty of its clock against the coordinator's, nanoseconds.
    pub clock_uncertainty_ns: u64,
}

/// Why a run cannot be split among agents.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SplitError {
    /// An agent would have no connection.
    #[error("{} for {threads} threads on {agents} agents", too_few(*.connections))]
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

fn too_few(connections: u32) -> String {
    match connections {
        1 => "1 connection is too few".to_owned(),
        n => format!("{n} connections are too few"),
    }
}

/// Deals the threads of a run out to agents. Each agent gets `threads` threads, by default one per
/// core of its own, but never more threads than the run has connections.
pub fn split(
    plan: &Plan,
    threads: Option<u32>,
    agents: &[(String, String, u32)],
) -> Result<Vec<RunShare>, SplitError> {
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
        let share = RunShare {
            agent: agent.clone(),
            incarnation: incarnation.clone(),
            first_thread,
            threads,
            part: 0,
        };
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
    pub fn share_of(&self, agent: &str, incarnation: &str) -> Option<&RunShare> {
        self.shares.iter().find(|share| share.agent == agent && share.incarnation == incarnation)
    }
}

#[cfg(test)]
mod tests {
    use linerate_load::plan::Target;

    use super::*;

    #[test]
    fn agents_with_other_kernels_are_named() {
        let card = |name: &str, kernel: &str| AgentCard {
            name: name.to_owned(),
            kernel: kernel.to_owned(),
            ..AgentCard::default()
        };
        let mut cards: Vec<AgentCard> = ["a", "b", "c", "d"].map(|name| card(name, "6.1.0")).into();
        cards.push(card("old", ""));
        assert_eq!(differing_kernels(&cards), None);
        cards.push(card("e", "5.15.0"));
        let said = "the agents' kernels differ: 5.15.0 (e), 6.1.0 (a, b, c and 1 more)";
        assert_eq!(differing_kernels(&cards).as_deref(), Some(said));
    }

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
    fn other_versions_are_named() {
        for (schema, version, other) in [
            (SCHEMA, VERSION, None),
            (SCHEMA, "0.0.9", Some("linerate 0.0.9".to_owned())),
            (SCHEMA, "", Some("an earlier linerate".to_owned())),
            ("linerate.machines/9", "9.0.0", Some("linerate 9.0.0".to_owned())),
            ("linerate.machines/9", VERSION, Some(format!("linerate {VERSION} with linerate.machines/9"))),
        ] {
            assert_eq!(other_version(schema, version), other, "{schema} {version}");
        }
        let text = br#"{"schema":"s/2","run":"r","shares":[{"agent":"a","incarnation":"1","new":{}}],"x":1}"#;
        let head = DocumentHead::read(text).unwrap();
        assert!(head.names("a", "1") && !head.names("a", "2") && !head.names("b", "1"));
        assert_eq!(head.other_version().unwrap(), "an earlier linerate");
        let card: AgentCard = serde_json::from_str(r#"{"name":"a","labels":["x=y"],"new":[]}"#).unwrap();
        assert_eq!((card.name.as_str(), card.other_version().is_some()), ("a", true));
    }

    #[test]
    fn an_agent_without_a_connection_is_an_error() {
        let error = split(&plan(2), None, &agents(&[1, 1, 1])).unwrap_err();
        assert_eq!(error.to_string(), "2 connections are too few for 3 threads on 3 agents");
        let error = split(&plan(1), None, &agents(&[1, 1])).unwrap_err();
        assert_eq!(error.to_string(), "1 connection is too few for 2 threads on 2 agents");
        assert!(split(&plan(7), Some(4), &agents(&[1, 1])).is_err());
        assert!(split(&plan(8), Some(4), &agents(&[1, 1])).is_ok());
    }
}
