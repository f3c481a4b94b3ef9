//! Which processes of this machine have the TCP sockets with a port at one end.

use std::collections::{HashMap, HashSet};
use std::fs;
use std::io;
use std::net::SocketAddr;

use linerate_net::sock_diag::{SocketState, tcp_sockets_that};

use super::view::{descriptors, read};
use crate::limits::{PROCESSES, SOCKETS};

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
    /// [`SOCKETS`](crate::limits::SOCKETS). `everywhere`: sockets that are new are looked for in all
    /// processes, not only in those that had one before.
    ///
    /// # Errors
    /// This kernel has no sock_diag, or seccomp forbids it.
    pub fn look(&mut self, port: u16, everywhere: bool) -> io::Result<Vec<OwnedSocket>> {
        let (sockets, _) = tcp_sockets_that(SOCKETS, |s| {
            s.state != SocketState::LISTEN
                && s.inode != 0
                && (s.local.port() == port || s.peer.port() == port)
        })?;
        let there: HashSet<u32> = sockets.iter().map(|s| s.inode).collect();
        self.known.retain(|inode, _| there.contains(inode));
        let mut unknown: HashSet<u32> =
            there.iter().filter(|inode| !self.known.contains_key(inode)).copied().collect();
        self.find(self.pids.clone().into_iter(), &mut unknown);
        if everywhere && !unknown.is_empty() {
            let all = fs::read_dir("/proc")?.flatten();
            let pids = all.filter_map(|e| e.file_name().to_str()?.parse::<u32>().ok()).take(PROCESSES);
            self.find(pids, &mut unknown);
            // They are not looked for again.
            self.known.extend(unknown.into_iter().map(|inode| (inode, None)));
        }
        let plain = |a: SocketAddr| SocketAddr::new(a.ip().to_canonical(), a.port());
        let of = |s: &linerate_net::sock_diag::TcpSocket| {
            let pid = self.known.get(&s.inode).copied()?;
            Some(OwnedSocket { local: plain(s.local), peer: plain(s.peer), pid })
        };
        Ok(sockets.iter().filter_map(of).collect())
    }

    /// Looks for sockets among the descriptors of these processes.
    fn find(&mut self, pids: impl Iterator<Item = u32>, unknown: &mut HashSet<u32>) {
        for pid in pids {
            if unknown.is_empty() {
                return;
            }
            let Ok((_, sockets)) = descriptors(pid) else {
                self.pids.remove(&pid);
                continue;
            };
            let own: Vec<u32> = sockets.intersection(unknown).copied().collect();
            if own.is_empty() {
                continue;
            }
            if self.pids.insert(pid) {
                if self.names.len() >= PROCESSES {
                    self.names.retain(|pid, _| self.pids.contains(pid));
                }
                self.names.insert(pid, read(pid, "comm").trim().to_owned());
            }
            for inode in own {
                unknown.remove(&inode);
                self.known.insert(inode, Some(pid));
            }
        }
    }

    /// The program's name of a process that has or had a socket.
    pub fn name(&self, pid: u32) -> Option<&str> {
        self.names.get(&pid).map(String::as_str)
    }
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
        assert_eq!(owners.look(address.port(), false).expect("sock_diag"), [], "nobody is known yet");
        let own = Some(std::process::id());
        let mut found = owners.look(address.port(), true).expect("sock_diag");
        // It was not accepted yet: the server's end is nobody's.
        found.retain(|s| s.pid == own);
        assert_eq!(found, [OwnedSocket { local, peer: address, pid: own }]);
        assert!(owners.name(std::process::id()).is_some_and(|name| !name.is_empty()));
        let accepted = listener.accept().expect("accepted");
        assert_eq!(owners.look(address.port(), false).expect("sock_diag").len(), 2);
        drop((client, accepted));
        assert_eq!(owners.look(address.port(), true).expect("sock_diag"), []);
    }
}
