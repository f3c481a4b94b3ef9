//! Finds the process that answers at an address of this machine. Several may have its listening
//! socket: workers that all accept, or children that merely inherited it. Which of them accepts is
//! seen in three ways: it has the connection of a call, it waits in accept, or it uses processor time.

use std::collections::HashSet;
use std::fs;
use std::net::SocketAddr;
use std::time::Duration;

use linerate_net::sock_diag::{SocketState, TcpSocket, tcp_sockets};

use super::process::ProcessCounters;
use super::view::{descriptors, parent, read, threads, watched_inodes};
use crate::limits::{HOLDERS, PROCESSES, SOCKETS};
use crate::local::Snapshot;

/// The process that accepts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum AcceptingProcess {
    /// One process.
    One(u32),
    /// Each of them: the workers of one program, or several programs.
    Several(Vec<u32>),
    /// One or more of them, and nothing shows which.
    Unclear(Vec<u32>),
    /// None that this process may look at.
    Nobody,
}

/// The processes that have the listening socket of an address, from before the first call on.
#[derive(Debug)]
pub(super) struct Holders {
    to: SocketAddr,
    all: Vec<(ProcessCounters, Snapshot, Holder)>,
}

/// A process that has the listening socket.
#[derive(Clone, Debug, PartialEq)]
struct Holder {
    pid: u32,
    parent: Option<u32>,
    name: String,
    /// Whether it waits for connections, when no call is made.
    waits: Waits,
    /// Time on processors since the first call.
    ran: Duration,
}

/// How a process that has a listening socket waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Waits {
    /// For connections on that socket: in accept, or by an epoll that has it.
    There,
    /// For events that cannot be seen (poll, select, `io_uring`).
    Perhaps,
    /// For something else.
    Elsewhere,
}

/// Share of all holders' processor time below which one did nothing for our calls.
const IDLE: f64 = 0.1;

impl Holders {
    /// Of the listening socket that takes connections to `to`, an address of this machine.
    pub(super) fn of(to: SocketAddr) -> Holders {
        let inodes = listening_inodes(to);
        let all = with_any(&inodes).take(HOLDERS).map(|pid| {
            let process = ProcessCounters::new(pid);
            let before = process.look();
            let name = read(pid, "comm").trim().to_owned();
            let waits = waits(pid, &inodes);
            let holder = Holder { pid, parent: parent(pid), name, waits, ran: Duration::ZERO };
            (process, before, holder)
        });
        Holders { to, all: all.collect() }
    }

    /// Where there is only one, no call has to show that it accepts.
    pub(super) fn only(&self) -> Option<u32> {
        match self.all.as_slice() {
            [(.., only)] => Some(only.pid),
            _ => None,
        }
    }

    /// The process found by the calls so far. `ours`: our ends of connections that are open.
    pub(super) fn found(&self, ours: &[SocketAddr]) -> AcceptingProcess {
        let ran = |(process, before, holder): &(ProcessCounters, Snapshot, Holder)| Holder {
            ran: process.look().since(before).ran,
            ..holder.clone()
        };
        let holders: Vec<Holder> = self.all.iter().map(ran).collect();
        accepting(&holders, &self.owners(ours))
    }

    /// A child that did not have the listening socket before has a connection of ours: the server forks a
    /// process for each.
    pub(super) fn forks(&self, ours: &[SocketAddr]) -> bool {
        let accepts = |pid: u32| self.all.iter().any(|(.., holder)| holder.pid == pid);
        self.owners(ours).into_iter().any(|pid| !accepts(pid) && parent(pid).is_some_and(accepts))
    }

    /// A process that has a connection of ours and not the listening socket: connections are handed
    /// on to it.
    pub(super) fn handed_to(&self, ours: &[SocketAddr]) -> Option<u32> {
        let owners = self.owners(ours);
        let accepts = |pid: &u32| self.all.iter().any(|(.., holder)| holder.pid == *pid);
        owners.iter().copied().find(|pid| !accepts(pid)).filter(|_| !owners.iter().any(accepts))
    }

    /// The processes that have the server's end of a connection of ours.
    fn owners(&self, ours: &[SocketAddr]) -> Vec<u32> {
        let Ok((sockets, _)) = tcp_sockets(SOCKETS) else { return Vec::new() };
        let plain = |a: SocketAddr| SocketAddr::new(a.ip().to_canonical(), a.port());
        let theirs = |s: &&TcpSocket| {
            s.state != SocketState::LISTEN
                && s.inode != 0
                && plain(s.local) == plain(self.to)
                && ours.contains(&plain(s.peer))
        };
        with_any(&sockets.iter().filter(theirs).map(|s| s.inode).collect()).collect()
    }
}

/// Processes on this machine that have the listening socket of an address: its server, and children
/// that inherited the socket.
pub fn listening_processes(to: SocketAddr) -> Vec<u32> {
    with_any(&listening_inodes(to)).collect()
}

fn listening_inodes(to: SocketAddr) -> HashSet<u32> {
    let Ok((sockets, _)) = tcp_sockets(SOCKETS) else { return HashSet::new() };
    sockets.iter().filter(|s| answers(s, to)).map(|s| s.inode).collect()
}

/// Other processes that have one of these sockets.
fn with_any(inodes: &HashSet<u32>) -> impl Iterator<Item = u32> {
    let own = std::process::id();
    let folders = (!inodes.is_empty()).then(|| fs::read_dir("/proc").ok()).flatten();
    let pids = folders.into_iter().flatten().flatten();
    let pids = pids.filter_map(|e| e.file_name().to_str()?.parse::<u32>().ok()).take(PROCESSES);
    let has = |pid: &u32| descriptors(*pid).is_ok_and(|(_, sockets)| !sockets.is_disjoint(inodes));
    pids.filter(move |pid| *pid != own && has(pid))
}

/// How the threads of a process wait.
fn waits(pid: u32, inodes: &HashSet<u32>) -> Waits {
    let what: Vec<String> = threads(pid).into_iter().map(|t| t.what).collect();
    let some = |words: &str| what.iter().any(|w| w.contains(words));
    let there = some("epoll_wait") && !watched_inodes(pid).is_disjoint(inodes);
    if there || some("waiting in accept") {
        Waits::There
    } else if ["poll)", "select)", "io_uring_enter)", "running"].iter().any(|w| some(w))
        && !some("epoll_wait")
        || what.is_empty()
    {
        Waits::Perhaps
    } else {
        Waits::Elsewhere
    }
}

/// The socket takes connections to `to`.
fn answers(socket: &TcpSocket, to: SocketAddr) -> bool {
    // A JVM listens on ::ffff:127.0.0.1 where it is asked for 127.0.0.1 (RFC 4291 section 2.5.5.2).
    let (ip, port) = (socket.local.ip().to_canonical(), socket.local.port());
    // One of IPv6 for all addresses takes those of IPv4, too, unless IPV6_V6ONLY is set.
    let takes = ip == to.ip().to_canonical() || ip.is_unspecified() && (ip.is_ipv6() || to.is_ipv4());
    socket.state == SocketState::LISTEN && port == to.port() && takes
}

/// Which of those that have the socket accept. `owners`: processes that have a connection of ours.
fn accepting(holders: &[Holder], owners: &[u32]) -> AcceptingProcess {
    let all: f64 = holders.iter().map(|h| h.ran.as_secs_f64()).sum();
    let owns = |h: &Holder| owners.contains(&h.pid);
    let works = |h: &Holder| all > 0.0 && h.ran.as_secs_f64() >= IDLE * all;
    let acts = |h: &Holder| h.waits == Waits::There || works(h) && h.waits != Waits::Elsewhere || owns(h);
    let pids = |some: &[&Holder]| some.iter().map(|h| h.pid).collect::<Vec<u32>>();
    match holders {
        [] => return AcceptingProcess::Nobody,
        [only] => return AcceptingProcess::One(only.pid),
        _ => {}
    }
    let mut acting: Vec<&Holder> = holders.iter().filter(|h| acts(h)).collect();
    // A connection that two have was inherited as well: it is its user's.
    if acting.len() > 1 && acting.iter().all(|h| owns(h)) && acting.iter().any(|h| works(h)) {
        acting.retain(|h| works(h));
    }
    match acting.as_slice() {
        [] => AcceptingProcess::Unclear(holders.iter().map(|h| h.pid).collect()),
        [one] => {
            // Its like beside it accepts as well, though it was not its turn.
            let like =
                |h: &&Holder| h.parent == one.parent && h.name == one.name && h.waits == Waits::Perhaps;
            let workers: Vec<&Holder> = holders.iter().filter(like).collect();
            let perhaps = holders.iter().any(|h| h.pid != one.pid && h.waits == Waits::Perhaps);
            match workers.len() {
                0 | 1 if owns(one) || !perhaps => AcceptingProcess::One(one.pid),
                0 | 1 => AcceptingProcess::Unclear(holders.iter().map(|h| h.pid).collect()),
                _ => AcceptingProcess::Several(pids(&workers)),
            }
        }
        several => AcceptingProcess::Several(pids(several)),
    }
}

#[cfg(test)]
mod tests;
