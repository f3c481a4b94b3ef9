//! `linerate bypass --status`: what a running one does, for people and for machines.

use crate::bypass::BypassArgs;
use crate::bypass::status::{self, WhichBypass};
use crate::fault::{CommandFault, Exit};
use crate::load::output::OutputSink;
use crate::terminal;

/// Runs the command.
pub(crate) fn run(args: &BypassArgs) -> Result<Exit, CommandFault> {
    let sink = args.json.as_deref().map(OutputSink::new);
    sink.as_ref().map_or(Ok(()), |sink| sink.probe("--json"))?;
    let document = status::ask(&WhichBypass { interface: args.interface.clone(), pid: args.pid })?;
    if sink != Some(OutputSink::Stdout) {
        terminal::print(&status::text(&document))?;
    }
    if let Some(sink) = sink {
        let json = serde_json::to_string_pretty(&document)
            .map_err(|e| CommandFault::ours(format!("the status is no JSON: {e}")))?;
        sink.write(&(json + "\n"))?;
    }
    Ok(Exit::Fine)
}
