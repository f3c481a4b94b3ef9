//! The connections at a server's port while a call on a new one waits, where the server is on this
//! machine.

use std::net::SocketAddr;
use std::sync::mpsc;
use std::thread::Scope;
use std::time::Duration;

use linerate_net::sock_diag::{SocketState, TcpSocket, tcp_sockets};

use crate::call::Crowd;
use crate::limits::SOCKETS;

/// A call that takes longer is looked at. Reason: quick ones are not disturbed by it.
const AFTER: Duration = Duration::from_millis(100);

/// Looks once, unless the call ends before. `None`: the server is on another machine.
pub(super) struct CrowdWatcher<'scope> {
    over: mpsc::Sender<()>,
    seen: std::thread::ScopedJoinHandle<'scope, Option<Crowd>>,
}

impl<'scope> CrowdWatcher<'scope> {
    pub(super) fn begin(scope: &'scope Scope<'scope, '_>, to: SocketAddr) -> Option<CrowdWatcher<'scope>> {
        let (over, is_over) = mpsc::channel();
        let look = move || match is_over.recv_timeout(AFTER) {
            Err(mpsc::RecvTimeoutError::Timeout) => tcp_sockets(SOCKETS).ok().map(|(all, _)| crowd(&all, to)),
            _ => None,
        };
        to.ip().is_loopback().then(|| CrowdWatcher { over, seen: scope.spawn(look) })
    }

    pub(super) fn end(self) -> Option<Crowd> {
        drop(self.over);
        self.seen.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    }
}

fn crowd(all: &[TcpSocket], to: SocketAddr) -> Crowd {
    let count = |n: usize| u32::try_from(n).unwrap_or(u32::MAX);
    let at_port = |s: &&TcpSocket| s.local.port() == to.port();
    let waiting =
        all.iter().filter(at_port).filter(|s| s.state == SocketState::LISTEN).map(|s| s.receive_queue);
    // One that nobody has accepted yet has no inode.
    let accepted: Vec<&TcpSocket> = all
        .iter()
        .filter(at_port)
        .filter(|s| s.state.name() == "established" && s.inode != 0 && s.peer.port() != to.port())
        .collect();
    let idle = accepted.iter().filter(|s| s.receive_queue == 0 && s.send_queue == 0).count();
    Crowd { waiting: waiting.sum(), accepted: count(accepted.len()), idle: count(idle) }
}

#[cfg(test)]
mod tests {
    use std::net::{TcpListener, TcpStream};

    use super::*;

    #[test]
    fn connections_are_told_from_those_that_wait_to_be_accepted() {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let to = listener.local_addr().expect("an address");
        let open: Vec<_> = (0..3).map(|_| TcpStream::connect(to).expect("it listens")).collect();
        let accepted = listener.accept().expect("connected");
        let seen = std::thread::scope(|scope| {
            let watcher = CrowdWatcher::begin(scope, to).expect("loopback");
            std::thread::sleep(3 * AFTER);
            watcher.end()
        });
        assert_eq!(seen, Some(Crowd { waiting: 2, accepted: 1, idle: 1 }), "{open:?} {accepted:?}");
    }
}
