//! Finds the process that answers at an address of this machine: the one that has its listening
//! socket.

use std::collections::{HashMap, HashSet};
use std::fs;
use std::net::SocketAddr;

use linerate_net::sock_diag::{State, TcpSocket, tcp_sockets};

use super::view::{descriptors, parent};
use crate::limits::{PROCESSES, SOCKETS};

/// What has the listening socket.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Found {
    /// One process, which accepts.
    One(u32),
    /// Several that may accept: the workers of one program, or several programs.
    Several(Vec<u32>),
    /// None that this process may look at.
    Nobody,
}

/// Who listens at `to`, an address of this machine.
pub(super) fn listening(to: SocketAddr) -> Found {
    let Ok((all, _)) = tcp_sockets(SOCKETS) else { return Found::Nobody };
    let own = std::process::id();
    let inodes: HashSet<u32> = all.iter().filter(|s| answers(s, to)).map(|s| s.inode).collect();
    if inodes.is_empty() {
        return Found::Nobody;
    }
    let folders = fs::read_dir("/proc").into_iter().flatten().flatten();
    let pids = folders.filter_map(|e| e.file_name().to_str()?.parse::<u32>().ok());
    let has = |pid: &u32| descriptors(*pid).is_ok_and(|(_, sockets)| !sockets.is_disjoint(&inodes));
    let holders: Vec<u32> = pids.take(PROCESSES).filter(|pid| *pid != own && has(pid)).collect();
    one_of(&holders, &holders.iter().filter_map(|pid| Some((*pid, parent(*pid)?))).collect())
}

/// The socket takes connections to `to`.
fn answers(socket: &TcpSocket, to: SocketAddr) -> bool {
    let (ip, port) = (socket.local.ip(), socket.local.port());
    // One of IPv6 for all addresses takes those of IPv4, too, unless IPV6_V6ONLY is set.
    let takes = ip == to.ip() || ip.is_unspecified() && (ip.is_ipv6() || to.is_ipv4());
    socket.state == State::LISTEN && port == to.port() && takes
}

/// Of processes that have the same socket: a parent hands it to its workers and accepts nothing
/// itself.
fn one_of(holders: &[u32], parents: &HashMap<u32, u32>) -> Found {
    let hands_on = |pid: &u32| holders.iter().any(|other| parents.get(other) == Some(pid));
    let workers: Vec<u32> = holders.iter().copied().filter(|pid| !hands_on(pid)).collect();
    match workers.as_slice() {
        [] => Found::Nobody,
        [one] => Found::One(*one),
        _ => Found::Several(workers),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_accepts_of_those_that_have_the_socket() {
        let parents = |pairs: &[(u32, u32)]| pairs.iter().copied().collect();
        assert_eq!(one_of(&[], &parents(&[])), Found::Nobody);
        assert_eq!(one_of(&[7], &parents(&[(7, 1)])), Found::One(7));
        assert_eq!(one_of(&[7, 8], &parents(&[(7, 1), (8, 7)])), Found::One(8), "a master and its worker");
        let several = one_of(&[7, 8, 9], &parents(&[(7, 1), (8, 7), (9, 7)]));
        assert_eq!(several, Found::Several(vec![8, 9]));
    }

    #[test]
    fn a_process_that_listens_is_found_and_our_own_is_not() {
        let mut child = std::process::Command::new("python3")
            .args(["-c", "import socket,sys\ns=socket.create_server(('127.0.0.1',0))\nprint(s.getsockname()[1],flush=True)\nsys.stdin.read()"])
            .stdin(std::process::Stdio::piped())
            .stdout(std::process::Stdio::piped())
            .spawn()
            .expect("python3 is there");
        let mut line = String::new();
        let out = child.stdout.take().expect("piped");
        std::io::BufRead::read_line(&mut std::io::BufReader::new(out), &mut line).expect("a port");
        let port = line.trim().parse::<u16>().expect("a port");
        let found = listening(([127, 0, 0, 1], port).into());
        let elsewhere = listening(([127, 0, 0, 2], port).into());
        child.kill().expect("ours");
        child.wait().expect("it ends");
        assert_eq!((found, elsewhere), (Found::One(child.id()), Found::Nobody));
        let own = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
        assert_eq!(listening(own.local_addr().expect("an address")), Found::Nobody);
    }
}
