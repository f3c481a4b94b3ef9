//! Which processes the clients and servers are, looked up while their connections are open.

use std::collections::{BTreeMap, HashMap};
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use linerate_explain::driver::SocketOwners;
use linerate_explain::passive::live::{LiveObserver, LiveWindow};

/// Time between two looks at least. Reason: most connections last longer.
const PAUSE: Duration = Duration::from_millis(250);
/// Share of the time that looks may take: one in so many. Reason: a machine with 100,000 sockets takes
/// 0.1 s for one.
const SELDOM: u32 = 50;
/// Processes of a server that are named. Reason: a line.
const SERVING: usize = 8;

/// The processes that were found.
#[derive(Debug)]
pub(super) struct ProcessFinder {
    sockets: SocketOwners,
    port: u16,
    next: Instant,
    /// What the look before found: packets arrive here later than sockets are listed, so short
    /// connections are known only by the next look.
    before: HashMap<(SocketAddr, SocketAddr), u32>,
    /// Processes that have a server's ends of connections.
    pub(super) serving: BTreeMap<SocketAddr, Vec<u32>>,
    /// The kernel does not list sockets.
    pub(super) failed: Option<String>,
}

impl ProcessFinder {
    pub(super) fn of(port: u16) -> ProcessFinder {
        ProcessFinder {
            sockets: SocketOwners::default(),
            port,
            next: Instant::now(),
            before: HashMap::new(),
            serving: BTreeMap::new(),
            failed: None,
        }
    }

    /// Looks up the processes of new connections, if it is time.
    pub(super) fn look(&mut self, observer: &mut LiveObserver) {
        let began = Instant::now();
        if self.failed.is_some() || began < self.next {
            return;
        }
        let unowned = observer.unowned();
        if unowned.is_empty() {
            return;
        }
        let found = match self.sockets.look(self.port) {
            Ok(found) => found,
            Err(e) => {
                self.failed = Some(e.to_string());
                return;
            }
        };
        let mut now = HashMap::new();
        for socket in found {
            let Some(pid) = socket.pid else { continue };
            now.insert((socket.local, socket.peer), pid);
            if socket.local.port() != self.port {
                continue;
            }
            let serving = self.serving.entry(socket.local).or_default();
            if serving.len() < SERVING && !serving.contains(&pid) {
                serving.push(pid);
            }
        }
        for ends in unowned {
            if let Some(pid) = now.get(&ends).or_else(|| self.before.get(&ends)) {
                observer.owned(ends.0, ends.1, *pid);
            }
        }
        self.before = now;
        self.next = Instant::now() + PAUSE.max(began.elapsed() * SELDOM);
    }

    /// The names of the processes of a window.
    pub(super) fn names(&mut self, window: &LiveWindow) -> BTreeMap<u32, String> {
        // Of servers that nothing is seen of any more nothing is kept.
        let seen = |server: &SocketAddr| window.servers.iter().any(|s| s.server == Some(*server));
        self.serving.retain(|server, _| seen(server));
        let clients = window.servers.iter().flat_map(|s| s.clients.iter().filter_map(|c| c.pid));
        let pids = clients.chain(self.serving.values().flatten().copied());
        pids.map(|pid| (pid, self.sockets.name(pid).unwrap_or("?").to_owned())).collect()
    }
}
