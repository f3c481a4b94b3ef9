//! The flags for NATS and for agents.

use std::path::PathBuf;

use clap::Args;
use linerate_machines::coordinator::Wanted;

const MACHINES: &str = "Many machines";

/// How to reach NATS.
#[derive(Args, Clone, Debug, Default)]
pub(crate) struct BusFlags {
    /// NATS servers with JetStream: nats://HOST:PORT or tls://HOST:PORT, several separated by commas
    #[arg(long, value_name = "URL", help_heading = MACHINES)]
    pub(crate) nats: Option<String>,

    /// NATS credentials (a JWT and its key, as nsc writes them)
    #[arg(long, value_name = "FILE", requires = "nats", help_heading = MACHINES)]
    pub(crate) creds: Option<PathBuf>,

    /// Trust the certificates in FILE for NATS, beside those of the system
    #[arg(long, value_name = "FILE", requires = "nats", help_heading = MACHINES)]
    pub(crate) nats_ca: Option<PathBuf>,

    /// Certificate that we show to NATS
    #[arg(long, value_name = "FILE", requires = "nats_key", help_heading = MACHINES)]
    pub(crate) nats_cert: Option<PathBuf>,

    /// Key of --nats-cert
    #[arg(long, value_name = "FILE", requires = "nats_cert", help_heading = MACHINES)]
    pub(crate) nats_key: Option<PathBuf>,
}

/// Which agents carry out a load.
#[derive(Args, Clone, Debug, Default)]
pub(crate) struct MachineFlags {
    #[command(flatten)]
    pub(crate) bus: BusFlags,

    /// Let N agents send this load together, or all agents with a label, such as region=eu
    ///
    /// Connections, rate and requests are those of all agents together. Agents are started on other machines by
    /// linerate agent.
    #[arg(long, value_name = "N|LABEL=VALUE", value_parser = wanted, conflicts_with = "agents_local", requires = "nats", help_heading = MACHINES)]
    pub(crate) agents: Option<Wanted>,

    /// Start nats-server and N agents on this machine for this run: to try it out
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=256), conflicts_with = "nats", help_heading = MACHINES)]
    pub(crate) agents_local: Option<u32>,

    /// Continue with a run whose coordinator ended
    #[arg(long, value_name = "RUN", requires = "nats", conflicts_with_all = ["agents", "url"], help_heading = MACHINES)]
    pub(crate) resume: Option<String>,
}

impl MachineFlags {
    /// Whether the load is sent by agents.
    pub(crate) fn are_wanted(&self) -> bool {
        self.agents.is_some() || self.agents_local.is_some() || self.resume.is_some()
    }
}

fn wanted(text: &str) -> Result<Wanted, String> {
    if let Ok(n) = text.parse::<u32>() {
        let most = linerate_machines::document::MOST_AGENTS;
        return match n {
            0 => Err("at least one agent is needed".to_owned()),
            n if n as usize > most => Err(format!("a run has at most {most} agents")),
            n => Ok(Wanted::Number(n)),
        };
    }
    match text.split_once('=') {
        Some((key, value)) if !key.is_empty() && !value.is_empty() => Ok(Wanted::Label(text.to_owned())),
        _ => Err("a number of agents, or a label such as region=eu".to_owned()),
    }
}
