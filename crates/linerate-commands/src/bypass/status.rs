//! `--status`: what a running `linerate bypass` does. It tells whoever connects to an abstract socket
//! of its network namespace, if that is root or its own user. The socket's name has the interface and
//! the process.

use std::fmt::Write as _;
use std::io::{Read, Write};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr as UnixAddress, UnixListener, UnixStream};
use std::time::{Duration, SystemTime};
use std::{fs, io, thread};

use linerate_net::link::xdp::{BorrowerCounts, LenderRoster, LenderStatus};
use linerate_report::json::rfc3339;
use linerate_report::schema::bypass::{BypassCounts, BypassDocument, BypassWorker, SCHEMA};
use linerate_report::units;
use nix::sys::socket::{getsockopt, sockopt::PeerCredentials};
use nix::unistd::geteuid;

use crate::fault::{CommandFault, said};

/// What stands before the interface and the process in the socket's name.
const NAME: &str = "linerate-bypass/";
/// How long the other side may take. Reason: a stopped process must not hold this one.
const PATIENCE: Duration = Duration::from_secs(5);
/// Bytes of a document, at most. Reason: 64 queues have 64 processes, each of 300 bytes, and as many may
/// wait; the rest is for the program's arguments.
const MOST_BYTES: u64 = 4 << 20;

/// What does not change while the command runs.
#[derive(Clone, Debug)]
pub(super) struct BypassFacts {
    pub(super) interface: String,
    pub(super) listen: Vec<String>,
    pub(super) program: Vec<String>,
    pub(super) started: SystemTime,
}

/// Which command is asked.
#[derive(Clone, Debug, Default)]
pub(crate) struct WhichBypass {
    pub(crate) interface: Option<String>,
    pub(crate) pid: Option<u32>,
}

/// A running command.
#[derive(Clone, Debug, PartialEq, Eq)]
struct RunningBypass {
    interface: String,
    pid: u32,
}

impl RunningBypass {
    fn name(&self) -> String {
        format!("{NAME}{}/{}", self.interface, self.pid)
    }
}

/// Answers from now on, in a thread of its own.
///
/// # Errors
/// The socket's name is taken, or there can be no socket.
pub(super) fn serve(roster: LenderRoster, facts: BypassFacts) -> io::Result<()> {
    let running = RunningBypass { interface: facts.interface.clone(), pid: std::process::id() };
    let listener = UnixListener::bind_addr(&UnixAddress::from_abstract_name(running.name())?)?;
    thread::Builder::new().name("status".to_owned()).spawn(move || {
        for client in listener.incoming() {
            match client {
                Ok(client) => tell(client, &roster, &facts),
                // Out of file descriptors, say. It must not spin.
                Err(_) => thread::sleep(Duration::from_millis(100)),
            }
        }
    })?;
    Ok(())
}

fn tell(mut client: UnixStream, roster: &LenderRoster, facts: &BypassFacts) {
    if !is_trusted(&client) {
        return;
    }
    let text = serde_json::to_string(&document(&roster.status(), facts));
    // A client that has gone away needs no document.
    let _ = client.set_write_timeout(Some(PATIENCE)).and_then(|()| client.write_all(text?.as_bytes()));
}

/// Whether the other side is root or our user.
fn is_trusted(other: &UnixStream) -> bool {
    getsockopt(other, PeerCredentials).is_ok_and(|peer| peer.uid() == 0 || peer.uid() == geteuid().as_raw())
}

fn counts(counts: BorrowerCounts) -> BypassCounts {
    let BorrowerCounts {
        accepted,
        accepted_of_kernel,
        connections,
        bytes_in,
        bytes_out,
        retransmits,
        lost,
        resets_out,
        accepted_here,
    } = counts;
    BypassCounts {
        accepted,
        accepted_of_kernel,
        connections,
        bytes_in,
        bytes_out,
        retransmits,
        lost,
        resets_out,
        accepted_here,
    }
}

/// The share of connections in user space.
fn share(counts: BorrowerCounts) -> Option<f64> {
    let all = counts.accepted.saturating_add(counts.accepted_of_kernel);
    (all > 0).then(|| counts.accepted as f64 / all as f64)
}

fn document(status: &LenderStatus, facts: &BypassFacts) -> BypassDocument {
    let workers = status.borrowers.iter().map(|worker| BypassWorker {
        pid: worker.pid,
        queues: worker.queues.clone(),
        replaced: worker.is_replaced,
        since: rfc3339(worker.since),
        counts: counts(worker.counts),
    });
    BypassDocument {
        schema: SCHEMA.to_owned(),
        pid: std::process::id(),
        interface: facts.interface.clone(),
        queues: status.queues,
        listen: facts.listen.clone(),
        program: facts.program.clone(),
        started_at: rfc3339(facts.started),
        seen_at: rfc3339(SystemTime::now()),
        in_user_space: share(status.counts()),
        workers: workers.collect(),
        ended: status.ended,
        ended_counts: counts(status.ended_counts),
    }
}

/// How many connections were in user space, in words; `None`: there were none.
pub(super) fn summary(status: &LenderStatus) -> Option<String> {
    let counts = status.counts();
    let share = share(counts)?;
    let all = counts.accepted.saturating_add(counts.accepted_of_kernel);
    Some(format!(
        "{} of {} connections in user space ({})",
        units::count(counts.accepted),
        units::count(all),
        percent(share)
    ))
}

/// A share that is not whole is never shown as such.
fn percent(share: f64) -> String {
    let tenths = (share * 1000.0).floor() / 10.0;
    format!("{tenths} %")
}

/// Asks a running command. Returns its document.
pub(crate) fn ask(which: &WhichBypass) -> Result<BypassDocument, CommandFault> {
    let listed = fs::read_to_string("/proc/self/net/unix")
        .map_err(|e| CommandFault::ours(format!("/proc/self/net/unix: {}", said(&e))))?;
    let running = chosen(&running(&listed), which)?;
    let failed = |e: io::Error| {
        CommandFault::unreachable(format!("linerate bypass, process {}: {}", running.pid, said(&e)))
    };
    let address = UnixAddress::from_abstract_name(running.name()).map_err(failed)?;
    let server = UnixStream::connect_addr(&address).map_err(failed)?;
    if !is_trusted(&server) {
        return Err(CommandFault::ours(format!(
            "process {} has the name of linerate bypass, and belongs to neither root nor this user",
            running.pid
        )));
    }
    server.set_read_timeout(Some(PATIENCE)).map_err(failed)?;
    let mut text = String::new();
    server.take(MOST_BYTES).read_to_string(&mut text).map_err(failed)?;
    if text.is_empty() {
        return Err(CommandFault::ours(format!("linerate bypass, process {}, says nothing", running.pid))
            .hint("it answers root and its own user"));
    }
    serde_json::from_str(&text)
        .map_err(|e| CommandFault::ours(format!("what process {} says is no status: {e}", running.pid)))
}

/// The commands that listen, by the kernel's list of sockets.
fn running(listed: &str) -> Vec<RunningBypass> {
    let names = listed.lines().filter_map(|line| line.split_once(&format!(" @{NAME}")));
    let parsed = names.filter_map(|(_, name)| {
        let (interface, pid) = name.rsplit_once('/')?;
        Some(RunningBypass { interface: interface.to_owned(), pid: pid.parse().ok()? })
    });
    let mut all: Vec<RunningBypass> = Vec::new();
    // A connection to it is listed with the same name.
    parsed.for_each(|running| {
        if !all.contains(&running) {
            all.push(running);
        }
    });
    all
}

fn chosen(all: &[RunningBypass], which: &WhichBypass) -> Result<RunningBypass, CommandFault> {
    let fits = |running: &&RunningBypass| {
        which.interface.as_ref().is_none_or(|name| *name == running.interface)
            && which.pid.is_none_or(|pid| pid == running.pid)
    };
    let fitting: Vec<&RunningBypass> = all.iter().filter(fits).collect();
    let list = |all: &[&RunningBypass]| {
        let each = all.iter().map(|running| format!("process {} on {}", running.pid, running.interface));
        each.collect::<Vec<_>>().join(", ")
    };
    match fitting[..] {
        [one] => Ok(one.clone()),
        [] => {
            let on = which.interface.as_ref().map_or(String::new(), |name| format!(" on {name}"));
            let with = which.pid.map_or(String::new(), |pid| format!(" with process {pid}"));
            let fault = CommandFault::unreachable(format!(
                "no linerate bypass runs{on}{with} in this network namespace"
            ));
            Err(match all {
                [] => fault,
                others => fault.hint(format!("there is {}", list(&others.iter().collect::<Vec<_>>()))),
            })
        }
        ref several => Err(CommandFault::input(format!("several are running: {}", list(several)))
            .hint("choose one by --interface or --pid")),
    }
}

/// The document for people.
pub(crate) fn text(document: &BypassDocument) -> String {
    let mut text = format!(
        "{} on {}, process {}, {} receive queue{}\nprogram: {}\n",
        document.listen.join(", "),
        document.interface,
        document.pid,
        document.queues,
        if document.queues == 1 { "" } else { "s" },
        document.program.join(" ")
    );
    let share = document.in_user_space.map_or("no connections yet".to_owned(), |share| {
        format!("{} of all connections in user space", percent(share))
    });
    text += &format!("since {}: {share}\n\n", document.started_at);
    text +=
        "process     queues       open  accepted  by the kernel        in       out  resent  lost  since\n";
    let mut line = |name: &str, queues: &str, counts: &BypassCounts, since: &str| {
        // A string takes everything.
        let _ = writeln!(
            text,
            "{name:<11} {queues:<10} {:>6} {:>9} {:>14} {:>9} {:>9} {:>7} {:>5}  {since}",
            units::count(counts.connections),
            units::count(counts.accepted),
            units::count(counts.accepted_of_kernel),
            units::bytes(counts.bytes_in as f64),
            units::bytes(counts.bytes_out as f64),
            units::count(counts.retransmits),
            units::count(counts.lost),
        );
    };
    for worker in &document.workers {
        let queues = worker.queues.iter().map(u32::to_string).collect::<Vec<_>>().join(",");
        let queues = match (queues.is_empty(), worker.replaced) {
            (false, _) => queues.as_str(),
            (true, false) => "kernel",
            (true, true) => "replaced",
        };
        line(&worker.pid.to_string(), queues, &worker.counts, &worker.since);
    }
    if document.ended > 0 {
        line(&format!("{} ended", document.ended), "", &document.ended_counts, "");
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    const LISTED: &str = "Num       RefCount Protocol Flags    Type St Inode Path\n\
        0: 00000002 00000000 00010000 0001 01 100 @linerate-bypass/eth0/41\n\
        0: 00000003 00000000 00000000 0001 03 101 @linerate-bypass/eth0/41\n\
        0: 00000002 00000000 00010000 0001 01 102 @linerate-bypass/eth1/42\n\
        0: 00000002 00000000 00010000 0001 01 103 @linerate-bypass/eth1/no\n\
        0: 00000002 00000000 00010000 0001 01 104 /run/linerate-bypass/eth2/43\n";

    fn which(interface: Option<&str>, pid: Option<u32>) -> WhichBypass {
        WhichBypass { interface: interface.map(str::to_owned), pid }
    }

    #[test]
    fn a_command_is_found_by_its_interface_or_process() {
        let all = running(LISTED);
        let names: Vec<_> = all.iter().map(|one| (one.interface.as_str(), one.pid)).collect();
        assert_eq!(names, [("eth0", 41), ("eth1", 42)]);
        assert_eq!(chosen(&all, &which(Some("eth1"), None)).expect("one").pid, 42);
        assert_eq!(chosen(&all, &which(None, Some(41))).expect("one").interface, "eth0");
        let several = chosen(&all, &which(None, None)).expect_err("two");
        assert!(several.to_string().contains("process 41 on eth0, process 42 on eth1"), "{several}");
        let none = chosen(&all, &which(Some("eth0"), Some(42))).expect_err("none");
        assert!(none.to_string().contains("no linerate bypass runs on eth0 with process 42"), "{none}");
        assert_eq!(none.exit, crate::fault::Exit::Unreachable);
    }

    #[test]
    fn a_share_is_rounded_down() {
        assert_eq!(
            (percent(1.0), percent(0.9999), percent(0.989)),
            ("100 %".into(), "99.9 %".into(), "98.9 %".into())
        );
    }
}
