//! Asks this machine's kernel about a server that runs here.

use std::net::SocketAddr;

use linerate_net::sock_diag::{SocketState, TcpSocket, tcp_sockets};

use crate::limits::SOCKETS;

/// Connections to these addresses that wait for the server to accept them; 0 when it has accepted
/// any, when it runs elsewhere, and when this kernel does not say.
pub(crate) fn unaccepted(addresses: &[SocketAddr]) -> u64 {
    tcp_sockets(SOCKETS).map_or(0, |(sockets, _)| waiting(&sockets, addresses))
}

fn waiting(sockets: &[TcpSocket], addresses: &[SocketAddr]) -> u64 {
    // A connection that no process has accepted has no file descriptor.
    let theirs = |s: &&TcpSocket| OPEN.contains(&s.state) && addresses.iter().any(|a| same(*a, s.local));
    let (waiting, accepted): (Vec<&TcpSocket>, Vec<_>) =
        sockets.iter().filter(theirs).partition(|s| s.inode == 0);
    if accepted.is_empty() { waiting.len() as u64 } else { 0 }
}

/// Established, and closed by the peer alone.
const OPEN: [SocketState; 2] = [SocketState(1), SocketState(8)];

/// A server that listens on `::` has IPv4 peers too.
fn same(a: SocketAddr, b: SocketAddr) -> bool {
    a.port() == b.port() && a.ip().to_canonical() == b.ip().to_canonical()
}

#[cfg(test)]
mod tests {
    use std::net::{TcpListener, TcpStream};

    use super::*;

    #[test]
    fn a_queue_is_counted_until_something_is_accepted() {
        for at in ["127.0.0.1:0", "[::]:0"] {
            let listener = TcpListener::bind(at).unwrap();
            let port = listener.local_addr().unwrap().port();
            let to: SocketAddr = ([127, 0, 0, 1], port).into();
            assert_eq!(unaccepted(&[to]), 0);
            let clients = [TcpStream::connect(to).unwrap(), TcpStream::connect(to).unwrap()];
            assert_eq!(unaccepted(&[to]), 2);
            let accepted = listener.accept().unwrap();
            assert_eq!(unaccepted(&[to]), 0);
            drop((clients, accepted));
        }
    }
}
