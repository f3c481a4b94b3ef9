//! `linerate agents`: the agents and runs on a bus.

use std::fmt::Write;

use clap::{Args, Subcommand};
use linerate_machines::document::AgentCard;
use linerate_machines::listing::{self, Listing};

use crate::agent::{block_on, bus_options, fault_of};
use crate::args::machines::BusFlags;
use crate::fault::{CommandFault, Exit};
use crate::terminal;

/// List agents and runs under way, and end one
#[derive(Args, Clone, Debug)]
#[command(
    after_long_help = "Examples:\n  linerate agents --nats nats://127.0.0.1\n  linerate agents --nats nats://127.0.0.1 stop 3af20c745e52"
)]
pub(crate) struct AgentsArgs {
    #[command(flatten)]
    bus: BusFlags,

    #[command(subcommand)]
    command: Option<AgentsCommand>,
}

/// What else can be done.
#[derive(Clone, Debug, Subcommand)]
enum AgentsCommand {
    /// End a run: its agents stop sending, and its load reports what they measured until then
    Stop {
        /// The run's name
        #[arg(value_name = "RUN")]
        run: String,
    },
}

/// Runs the command.
pub(crate) fn run(args: &AgentsArgs) -> Result<Exit, CommandFault> {
    let bus = bus_options(&args.bus)?;
    if let Some(AgentsCommand::Stop { run }) = &args.command {
        block_on(listing::stop(&bus, run))?.map_err(fault_of)?;
        return terminal::print(&format!("run {run} was told to end\n")).map(|()| Exit::Fine);
    }
    let listing = block_on(listing::list(&bus))?.map_err(fault_of)?;
    terminal::print(&to_string(&listing)).map(|()| Exit::Fine)
}

fn to_string(listing: &Listing) -> String {
    let mut out = String::new();
    if listing.agents.is_empty() {
        out.push_str("no agents\n");
    } else {
        let rows = listing.agents.iter().map(row);
        table(&mut out, ["agent", "version", "cores", "kernel", "labels", "run"], rows.collect());
    }
    if listing.runs.is_empty() {
        out.push_str("\nno run is under way\n");
        return out;
    }
    let rows = listing.runs.iter().map(|(name, run)| {
        let coordinator = run.coordinator.clone().unwrap_or_else(|| "none: --resume reports it".to_owned());
        [name.clone(), run.agents.len().to_string(), coordinator]
    });
    out.push('\n');
    table(&mut out, ["run", "agents", "coordinator"], rows.collect());
    out
}

fn row(card: &AgentCard) -> [String; 6] {
    let labels = if card.labels.is_empty() { "-".to_owned() } else { card.labels.join(",") };
    let run = card.run.clone().unwrap_or_else(|| "-".to_owned());
    [card.name.clone(), card.version.clone(), card.cores.to_string(), card.kernel.clone(), labels, run]
}

/// Columns as wide as what is in them.
fn table<const N: usize>(out: &mut String, head: [&str; N], rows: Vec<[String; N]>) {
    let all: Vec<[String; N]> = std::iter::once(head.map(str::to_owned)).chain(rows).collect();
    let width = |i: usize| all.iter().map(|row| row[i].chars().count()).max().unwrap_or(0);
    let widths: Vec<usize> = (0..N).map(width).collect();
    for row in &all {
        let mut line = String::new();
        for (cell, width) in row.iter().zip(&widths) {
            let _ = write!(line, "{cell:<width$}  ");
        }
        out.push_str(line.trim_end());
        out.push('\n');
    }
}

#[cfg(test)]
mod tests {
    use linerate_machines::listing::ListedRun;

    use super::*;

    #[test]
    fn agents_and_runs_have_a_line_each() {
        let agent = |name: &str, run: Option<&str>| AgentCard {
            name: name.to_owned(),
            version: "0.1.0".to_owned(),
            cores: 2,
            kernel: "6.1".to_owned(),
            run: run.map(str::to_owned),
            ..AgentCard::default()
        };
        let mut listing = Listing::default();
        assert_eq!(to_string(&listing), "no agents\n\nno run is under way\n");
        listing.agents = vec![agent("eu-1", Some("r1")), agent("us", None)];
        let run = ListedRun { agents: vec!["eu-1".to_owned()], coordinator: None };
        listing.runs.insert("r1".to_owned(), run);
        assert_eq!(
            to_string(&listing),
            "agent  version  cores  kernel  labels  run\n\
             eu-1   0.1.0    2      6.1     -       r1\n\
             us     0.1.0    2      6.1     -       -\n\
             \n\
             run  agents  coordinator\n\
             r1   1       none: --resume reports it\n"
        );
    }
}
