//! Which processes of this machine have the TCP sockets with a port at one end.

use std::cmp::Reverse;
use std::collections::{HashMap, HashSet};
use std::fs;
use std::io;
use std::net::SocketAddr;

use linerate_net::sock_diag::{SocketState, TcpSocket, tcp_sockets_that};

use super::view::{descriptors, read};
use crate::limits::{PROCESSES, SOCKETS};

/// Processes with sockets that are looked at one by one for connections which are too short for a
/// search. Reason: each takes a list of the sockets.
const CANDIDATES: usize = 32;

/// Remembers which process has which socket, so that few descriptors are read again.
#[derive(Debug, Default)]
pub struct SocketOwners {
    /// The process of each socket, by the socket's inode; `None`: none that we may look at.
    known: HashMap<u32, Option<u32>>,
    /// Processes that had one, with their names, also of those that have ended.
    names: HashMap<u32, String>,
    /// Those of them that may have one again.
    pids: HashSet<u32>,
}

/// A socket with a connection, and the process that has it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OwnedSocket {
    /// The local address.
    pub local: SocketAddr,
    /// The peer's address.
    pub peer: SocketAddr,
    /// The process; `None`: none that this process may look at.
    pub pid: Option<u32>,
}

impl SocketOwners {
    /// Lists the connections with that port at one end, at most
    /// [`SOCKETS`](crate::limits::SOCKETS). New ones are looked for in the processes that had one
    /// before, then in all: a look may take a while.
    ///
    /// # Errors
    /// This kernel has no sock_diag, or seccomp forbids it.
    pub fn look(&mut self, port: u16) -> io::Result<Vec<OwnedSocket>> {
        // Short connections are opened and closed meanwhile: descriptors are read before the sockets
        // are listed, and after.
        let mut before = HashMap::new();
        for pid in self.pids.clone() {
            // One that has ended has none.
            before.extend(sockets_of(pid).into_iter().flatten().map(|inode| (inode, pid)));
        }
        let mut sockets = list(port)?;
        let there: HashSet<u32> = sockets.iter().map(|s| s.inode).collect();
        self.known.retain(|inode, _| there.contains(inode));
        for inode in &there {
            let pid = before.get(inode).map(|pid| Some(*pid));
            self.known.extend(pid.map(|pid| (*inode, pid)));
        }
        let mut unknown: HashSet<u32> =
            there.iter().filter(|inode| !self.known.contains_key(inode)).copied().collect();
        self.find(self.pids.clone().into_iter(), &mut unknown);
        if !unknown.is_empty() {
            let all = fs::read_dir("/proc")?.flatten();
            let pids = all.filter_map(|e| e.file_name().to_str()?.parse::<u32>().ok());
            let mut pids: Vec<u32> = pids.take(PROCESSES).collect();
            // The last ones first: what began a moment ago may have short connections.
            pids.sort_unstable_by_key(|pid| Reverse(*pid));
            let with_sockets = self.find(pids.into_iter(), &mut unknown);
            // They are not looked for again.
            self.known.extend(unknown.iter().map(|inode| (*inode, None)));
            let tried = if unknown.is_empty() { 0 } else { CANDIDATES };
            let new = with_sockets.into_iter().filter(|pid| !self.pids.contains(pid));
            for pid in new.take(tried).collect::<Vec<_>>() {
                sockets.extend(self.short_connections(pid, port)?);
            }
        }
        let plain = |a: SocketAddr| SocketAddr::new(a.ip().to_canonical(), a.port());
        let of = |s: &TcpSocket| {
            let pid = self.known.get(&s.inode).copied()?;
            Some(OwnedSocket { local: plain(s.local), peer: plain(s.peer), pid })
        };
        Ok(sockets.iter().filter_map(of).collect())
    }

    /// Connections with that port which a process has now, and has closed before all processes can be
    /// searched.
    fn short_connections(&mut self, pid: u32, port: u16) -> io::Result<Vec<TcpSocket>> {
        // As above.
        let own = sockets_of(pid).unwrap_or_default();
        let mut sockets = list(port)?;
        sockets.retain(|s| own.contains(&s.inode));
        if !sockets.is_empty() {
            self.remember(pid);
            self.known.extend(sockets.iter().map(|s| (s.inode, Some(pid))));
        }
        Ok(sockets)
    }

    /// A process has, or had, a socket.
    fn remember(&mut self, pid: u32) {
        if self.pids.insert(pid) {
            if self.names.len() >= PROCESSES {
                self.names.retain(|pid, _| self.pids.contains(pid));
            }
            self.names.insert(pid, read(pid, "comm").trim().to_owned());
        }
    }

    /// Looks for sockets among the descriptors of these processes; which of them have any sockets.
    fn find(&mut self, pids: impl Iterator<Item = u32>, unknown: &mut HashSet<u32>) -> Vec<u32> {
        let mut with_sockets = Vec::new();
        for pid in pids {
            if unknown.is_empty() {
                break;
            }
            let Ok(sockets) = sockets_of(pid) else {
                self.pids.remove(&pid);
                continue;
            };
            if !sockets.is_empty() {
                with_sockets.push(pid);
            }
            for inode in sockets.intersection(unknown).copied().collect::<Vec<u32>>() {
                self.remember(pid);
                unknown.remove(&inode);
                self.known.insert(inode, Some(pid));
            }
        }
        with_sockets
    }

    /// The program's name of a process that has or had a socket.
    pub fn name(&self, pid: u32) -> Option<&str> {
        self.names.get(&pid).map(String::as_str)
    }
}

/// Connections with that port.
fn list(port: u16) -> io::Result<Vec<TcpSocket>> {
    let (sockets, _) = tcp_sockets_that(SOCKETS, |s| {
        s.state != SocketState::LISTEN && s.inode != 0 && (s.local.port() == port || s.peer.port() == port)
    })?;
    Ok(sockets)
}

/// All sockets of a process and its threads.
fn sockets_of(pid: u32) -> io::Result<HashSet<u32>> {
    descriptors(pid).map(|(_, sockets)| sockets)
}

#[cfg(test)]
mod tests {
    use std::net::{TcpListener, TcpStream};

    use super::*;

    #[test]
    fn both_ends_of_a_connection_on_this_machine_have_a_process() {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let address = listener.local_addr().expect("an address");
        let client = TcpStream::connect(address).expect("connected");
        let local = client.local_addr().expect("an address");
        let mut owners = SocketOwners::default();
        let own = Some(std::process::id());
        let mut found = owners.look(address.port()).expect("sock_diag");
        // It was not accepted yet: the server's end is nobody's.
        found.retain(|s| s.pid == own);
        assert_eq!(found, [OwnedSocket { local, peer: address, pid: own }]);
        assert!(owners.name(std::process::id()).is_some_and(|name| !name.is_empty()));
        let accepted = listener.accept().expect("accepted");
        assert_eq!(owners.look(address.port()).expect("sock_diag").len(), 2);
        drop((client, accepted));
        assert_eq!(owners.look(address.port()).expect("sock_diag"), []);
    }

    #[test]
    fn a_process_with_short_connections_is_known_by_them() {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let address = listener.local_addr().expect("an address");
        let held = TcpStream::connect(address).expect("connected");
        let mut owners = SocketOwners::default();
        let pid = std::process::id();
        let short = owners.short_connections(pid, address.port()).expect("sock_diag");
        assert_eq!((short.len(), short[0].peer), (1, address));
        assert!(owners.pids.contains(&pid) && owners.known.values().eq([&Some(pid)]));
        assert_eq!(owners.short_connections(1, address.port()).expect("sock_diag"), []);
        drop(held);
    }
}
