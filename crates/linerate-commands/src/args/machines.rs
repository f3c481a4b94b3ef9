//! The flags for NATS and for agents.

use std::path::PathBuf;

use clap::Args;
use linerate_machines::coordinator::WantedAgents;
use linerate_machines::document::OnLoss;

const MACHINES: &str = "Many machines";

/// What agents cannot do for a load.
const NOT_BY_AGENTS: [&str; 4] = ["save_responses", "explain", "capture", "csv_fine"];

/// How to reach NATS.
#[derive(Args, Clone, Debug, Default)]
pub(crate) struct BusFlags {
    /// NATS servers with JetStream: nats://HOST:PORT or tls://HOST:PORT, several separated by commas
    #[arg(long, value_name = "URL", help_heading = MACHINES)]
    pub(crate) nats: Option<String>,

    /// NATS credentials (a JWT and its key, as nsc writes them)
    #[arg(long, value_name = "FILE", requires = "nats", help_heading = MACHINES)]
    pub(crate) creds: Option<PathBuf>,

    /// NKEY for NATS: a file with its seed, such as linerate agent new-key writes
    #[arg(long, value_name = "FILE", requires = "nats", conflicts_with = "creds", help_heading = MACHINES)]
    pub(crate) nkey: Option<PathBuf>,

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
    #[arg(long, value_name = "N|LABEL=VALUE", value_parser = wanted, conflicts_with = "agents_local", conflicts_with_all = NOT_BY_AGENTS, requires = "nats", help_heading = MACHINES)]
    pub(crate) agents: Option<WantedAgents>,

    /// Start nats-server and N agents on this machine for this run: to try it out
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=256), conflicts_with = "nats", conflicts_with_all = NOT_BY_AGENTS, help_heading = MACHINES)]
    pub(crate) agents_local: Option<u32>,

    /// What happens to the share of an agent that is lost: nobody sends it, another agent does, or the run ends
    #[arg(long, value_name = "WHAT", value_enum, default_value_t = Loss::Continue, help_heading = MACHINES)]
    pub(crate) on_agent_loss: Loss,

    /// Sign the run with the NKEY in FILE, for agents with --trust-key
    #[arg(long, value_name = "FILE", requires = "agents", help_heading = MACHINES)]
    pub(crate) sign_key: Option<PathBuf>,

    /// Continue with a run whose coordinator ended
    #[arg(long, value_name = "RUN", requires = "nats", conflicts_with_all = ["agents", "url", "log_requests"], help_heading = MACHINES)]
    pub(crate) resume: Option<String>,
}

/// `--on-agent-loss`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Loss {
    /// Nobody sends it
    #[default]
    Continue,
    /// Another agent takes it over
    Rebalance,
    /// The run ends
    Abort,
}

impl From<Loss> for OnLoss {
    fn from(loss: Loss) -> OnLoss {
        match loss {
            Loss::Continue => OnLoss::Continue,
            Loss::Rebalance => OnLoss::Rebalance,
            Loss::Abort => OnLoss::Abort,
        }
    }
}

impl MachineFlags {
    /// Whether the load is sent by agents.
    pub(crate) fn are_wanted(&self) -> bool {
        self.agents.is_some() || self.agents_local.is_some() || self.resume.is_some()
    }
}

fn wanted(text: &str) -> Result<WantedAgents, String> {
    if let Ok(n) = text.parse::<u32>() {
        let most = linerate_machines::document::MOST_AGENTS;
        return match n {
            0 => Err("at least one agent is needed".to_owned()),
            n if n as usize > most => Err(format!("a run has at most {most} agents")),
            n => Ok(WantedAgents::Number(n)),
        };
    }
    match text.split_once('=') {
        Some((key, value)) if !key.is_empty() && !value.is_empty() => {
            Ok(WantedAgents::Label(text.to_owned()))
        }
        _ => Err("a number of agents, or a label such as region=eu".to_owned()),
    }
}
