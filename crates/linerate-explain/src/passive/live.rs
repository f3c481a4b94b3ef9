//! Calls that are watched without end: what is seen is judged window by window, for each server, and
//! from the beginning on. Memory stays bounded, whatever comes.
//!
//! A call belongs to the window in which its response ends. Windows lose nothing: their records add
//! up to that of a capture which was read whole.

use std::cmp::Reverse;
use std::collections::HashMap;
use std::net::SocketAddr;

use super::findings::{self, Finding};
use super::limits::SERVERS;
use super::words::{self, PassiveVerdict};
use super::{CaptureLimits, ClientProcess, Observation, Observer, Packet};

/// Watches packets, window by window.
#[derive(Debug)]
pub struct LiveObserver {
    observer: Observer,
    /// Packets that were dropped in the window before.
    dropped_before: u64,
}

/// What was seen in a window of time.
#[derive(Clone, Debug)]
pub struct LiveWindow {
    /// All of it.
    pub seen: Observation,
    /// What cost time, most costly first.
    pub findings: Vec<Finding>,
    /// Each server that answered, or is waited for, by itself; those with most to tell first.
    pub servers: Vec<LiveServer>,
    /// Calls that wait for the end of their response.
    pub waiting: WaitingCalls,
    /// Connections that are watched now.
    pub open: usize,
}

/// The calls to one server in a window.
#[derive(Clone, Debug)]
pub struct LiveServer {
    /// Its address; `None`: the servers that are not told apart.
    pub server: Option<SocketAddr>,
    /// What was seen of it.
    pub seen: Observation,
    /// What cost its calls time, most costly first.
    pub findings: Vec<Finding>,
    /// The calls of each client process, those with most calls first.
    pub clients: Vec<ClientProcess>,
    /// Calls that wait for the end of their response.
    pub waiting: WaitingCalls,
}

/// Calls that wait for the end of their response.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct WaitingCalls {
    /// How many.
    pub calls: u64,
    /// For how long the oldest one has waited, nanoseconds.
    pub oldest_ns: i64,
}

impl WaitingCalls {
    fn add(&mut self, other: WaitingCalls) {
        self.calls += other.calls;
        self.oldest_ns = self.oldest_ns.max(other.oldest_ns);
    }
}

impl LiveServer {
    /// The verdict of its calls.
    pub fn verdict(&self) -> PassiveVerdict {
        words::verdict(&self.seen, &self.findings)
    }
}

impl LiveWindow {
    /// The verdict of all calls.
    pub fn verdict(&self) -> PassiveVerdict {
        words::verdict(&self.seen, &self.findings)
    }

    fn of(
        seen: Observation,
        clients: &[ClientProcess],
        mut waiting: HashMap<SocketAddr, WaitingCalls>,
    ) -> LiveWindow {
        let findings = findings::of(&seen);
        let mut parts = seen.servers.clone();
        if parts.is_empty() {
            // A server alone is not told apart from all.
            let server = seen.connections.first().map(|c| c.server).or(clients.first().map(|c| c.server));
            parts.push((server.or(waiting.keys().next().copied()), seen.clone()));
        }
        let one = parts.len() == 1;
        let mut all = WaitingCalls::default();
        waiting.values().for_each(|calls| all.add(*calls));
        let part = |(server, seen): (Option<SocketAddr>, Observation)| LiveServer {
            findings: findings.iter().filter(|f| one || f.server == server).cloned().collect(),
            clients: clients.iter().filter(|c| Some(c.server) == server).cloned().collect(),
            waiting: server.and_then(|server| waiting.remove(&server)).unwrap_or_default(),
            server,
            seen,
        };
        let mut servers: Vec<LiveServer> = parts.into_iter().map(part).collect();
        // Of others nothing came in this window.
        let quiet = |(server, waiting): (SocketAddr, WaitingCalls)| LiveServer {
            server: Some(server),
            seen: Observation::default(),
            findings: Vec::new(),
            clients: Vec::new(),
            waiting,
        };
        servers.extend(waiting.into_iter().map(quiet).take(SERVERS.saturating_sub(servers.len())));
        servers.retain(|s| s.seen.sums.answered > 0 || s.waiting.calls > 0 || !s.findings.is_empty());
        servers.sort_by_key(|s| {
            let lost = s.findings.iter().fold(0i64, |sum, f| sum.saturating_add(f.all_ns));
            (Reverse((lost, s.seen.sums.answered)), s.server)
        });
        LiveWindow { findings, servers, seen, waiting: all, open: 0 }
    }
}

impl LiveObserver {
    /// Watches connections with this port at one end, or all.
    pub fn new(limits: CaptureLimits, port: Option<u16>) -> LiveObserver {
        let mut observer = Observer::new(limits).only_port(port);
        observer.flows.count_owners();
        LiveObserver { observer, dropped_before: 0 }
    }

    /// The next packet.
    pub fn packet(&mut self, packet: &Packet<'_>) {
        self.observer.packet(packet);
    }

    /// That many packets were lost before they could be captured.
    pub fn dropped(&mut self, packets: u64) {
        self.observer.dropped(packets);
    }

    /// Packets and requests since the beginning.
    pub fn progress(&self) -> (u64, u64) {
        self.observer.progress()
    }

    /// Forgets connections that have ended or were idle for long, by the time `now_ns` (nanoseconds
    /// since 1970, as in packets). Costs a look at each connection.
    pub fn sweep(&mut self, now_ns: i64) {
        self.observer.flows.sweep(now_ns);
    }

    /// Client and server of each connection whose process was not given, also of those that ended a
    /// moment ago.
    pub fn unowned(&self) -> Vec<(SocketAddr, SocketAddr)> {
        self.observer.flows.unowned()
    }

    /// That process has, or had, the client's end of the connection.
    pub fn owned(&mut self, client: SocketAddr, server: SocketAddr, pid: u32) {
        self.observer.flows.owned(client, server, pid);
    }

    /// Ends a window, at `now_ns`: what was seen in it.
    pub fn end_window(&mut self, now_ns: i64) -> LiveWindow {
        let (mut seen, clients) = self.observer.end_window(now_ns);
        let dropped = seen.packets.dropped;
        // Calls and connections of this window may lack packets of the one before.
        seen.packets.dropped += std::mem::replace(&mut self.dropped_before, dropped);
        let of = |(server, (calls, since)): (SocketAddr, (u64, i64))| {
            (server, WaitingCalls { calls, oldest_ns: now_ns.saturating_sub(since).max(0) })
        };
        let flows = &self.observer.flows;
        let waiting = flows.waiting().into_iter().map(of).collect();
        let mut window = LiveWindow { open: flows.open(), ..LiveWindow::of(seen, &clients, waiting) };
        window.seen.packets.dropped = dropped;
        window
    }

    /// What was seen from the beginning until now.
    pub fn so_far(&self) -> LiveWindow {
        let mut packets = self.observer.earlier;
        packets.add(&self.observer.packets);
        let seen = Observation { packets, ..self.observer.flows.so_far() };
        LiveWindow::of(seen, &[], HashMap::new())
    }

    /// The whole observation, as of a capture that was read whole.
    pub fn finish(self) -> Observation {
        self.observer.finish()
    }
}
