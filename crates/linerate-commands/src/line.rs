//! `--line`: a shaped line between this program and servers of this machine; and `cmd:COMMAND` in
//! the place of a URL, a server that is started for the run.

use std::io;
use std::net::{SocketAddr, UdpSocket};

use linerate_lab::servers::{LabServer, Recipe, ServerTrouble};
use linerate_netbox::{FrameCounts, LineShape, NetBox, NetboxReport};
use linerate_report::schema::line::{LineFrames, ShapedLine};

use crate::fault::CommandFault;
use crate::load::Interrupt;

/// A line that packets pass, and what it is.
#[derive(Debug)]
pub(crate) struct LaidLine {
    line: LineShape,
    net: NetBox,
}

/// Runs `work` where servers of this machine are reached over the line alone.
pub(crate) fn over<T: Send>(
    line: LineShape,
    work: impl FnOnce(&LaidLine) -> Result<T, CommandFault> + Send,
) -> Result<T, CommandFault> {
    let laid = LaidLine::lay(line)?;
    laid.inside(|| work(&laid))
}

impl LaidLine {
    /// Lays it, from the namespace of the calling thread.
    pub(crate) fn lay(line: LineShape) -> Result<LaidLine, CommandFault> {
        if let Some(why) = NetBox::impossible() {
            return Err(CommandFault::ours(format!("--line cannot shape packets: {why}"))
                .hint("run it as root, or leave --line out"));
        }
        let net = line.builder().to_this_machine().start();
        let net = net.map_err(|e| CommandFault::ours(format!("--line cannot shape packets: {e}")))?;
        Ok(LaidLine { line, net })
    }

    /// Runs `work` at the client's end, where servers of this machine are reached over the line alone.
    pub(crate) fn inside<T: Send>(
        &self,
        work: impl FnOnce() -> Result<T, CommandFault> + Send,
    ) -> Result<T, CommandFault> {
        let entered = self.net.client().run(work);
        entered.map_err(|e| CommandFault::ours(format!("the line's namespace cannot be entered: {e}")))?
    }

    /// Runs `work` where servers are: what it starts is in this machine's network.
    pub(crate) fn at_the_server<T: Send>(&self, work: impl FnOnce() -> T + Send) -> io::Result<T> {
        self.net.server().run(work)
    }

    /// The line's part of a document, at the end of a run.
    pub(crate) fn document(&self) -> ShapedLine {
        let frames =
            |c: &FrameCounts| LineFrames { sent: c.received, lost: c.lost, queue_full: c.queue_full };
        let report = self.net.report();
        ShapedLine {
            text: self.line.to_string(),
            rate_bps: self.line.rate,
            round_trip_ms: self.line.round_trip.as_secs_f64() * 1e3,
            loss: self.line.loss,
            up: frames(&report.up),
            down: frames(&report.down),
        }
    }

    /// What keeps the line from being as asked for.
    pub(crate) fn doubts(&self) -> Vec<String> {
        let mut all = doubts(&self.net.report());
        if !self.net.real_time() {
            all.push(
                "the shaped line has no real-time priority (chrt): its delay is longer while other programs run"
                    .to_owned(),
            );
        }
        all
    }
}

fn doubts(report: &NetboxReport) -> Vec<String> {
    let unplanned = report.missed + report.up.overflow + report.down.overflow;
    let lost = |n: u64| {
        format!("the shaped line lost {n} packets that it should not have: this machine is too busy for it")
    };
    (unplanned > 0).then(|| lost(unplanned)).into_iter().collect()
}

/// Whether the line leads to all of these addresses: it leads to this machine alone, over IPv4.
pub(crate) fn leads_to(addresses: &[SocketAddr]) -> Result<(), CommandFault> {
    let fault = |address: &SocketAddr, why: &str| {
        Err(CommandFault::input(format!("--line does not lead to {address}: {why}")).hint(
            "name a server of this machine by its IPv4 address, such as http://127.0.0.1:8080/, or 'cmd:...'",
        ))
    };
    for address in addresses {
        if address.is_ipv6() {
            return fault(address, "a line carries IPv4 alone");
        }
        // An address of this machine can be bound to.
        if UdpSocket::bind((address.ip(), 0)).is_err() {
            return fault(address, "it is no address of this machine");
        }
    }
    Ok(())
}

/// The server that `cmd:COMMAND` in the place of a URL starts; `None` for a URL.
pub(crate) fn own_server(url: Option<&str>) -> Result<Option<LabServer>, CommandFault> {
    let Some(command) = url.and_then(|url| url.strip_prefix("cmd:")) else { return Ok(None) };
    let recipe = Recipe::parse(command).map_err(|why| {
        CommandFault::input(format!("cmd:{command}: {why}"))
            .hint("write for example 'cmd:./server --port {port}'")
    })?;
    let interrupt = Interrupt::listen()?;
    recipe.start(&|| interrupt.asked()).map(Some).map_err(|trouble| match trouble {
        ServerTrouble::Interrupted => CommandFault::interrupted(trouble),
        ServerTrouble::Start { .. } => CommandFault::input(format!("cmd:{command}: {trouble}")),
        _ => CommandFault::unreachable(format!("cmd:{command}: {trouble}")),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fault::Exit;

    #[test]
    fn a_line_leads_to_this_machine_alone() {
        let to = |text: &str| leads_to(&[text.parse().unwrap()]).map_err(|e| e.to_string());
        assert_eq!(to("127.0.0.1:80"), Ok(()));
        assert_eq!(to("127.1.2.3:80"), Ok(()));
        // RFC 5737: nobody has it.
        let error = to("192.0.2.1:80").unwrap_err();
        assert!(error.contains("192.0.2.1:80: it is no address of this machine"), "{error}");
        assert!(to("[::1]:80").unwrap_err().contains("IPv4 alone"));
    }

    #[test]
    fn a_command_is_no_url() {
        assert!(own_server(Some("http://127.0.0.1/")).unwrap().is_none());
        assert!(own_server(None).unwrap().is_none());
        for (command, said) in [("cmd:", "no program is named"), ("cmd:/no/such", "could not be started")] {
            let fault = own_server(Some(command)).map(drop).unwrap_err();
            assert_eq!(fault.exit, Exit::BadInput);
            assert!(fault.to_string().contains(said), "{fault}");
        }
    }
}
