//! The state of this machine during the calls: whether threads waited for a CPU, and which other
//! processes call the server.

use std::collections::HashSet;
use std::fs;
use std::net::SocketAddr;
use std::time::Duration;

use linerate_net::Time;
use linerate_net::instrument;
use linerate_net::sock_diag::{TcpSocket, tcp_sockets};

use crate::diagnosis::Machine;
use crate::limits::SOCKETS;
use crate::process::proc_net_tcp;

/// Since the start of a diagnosis.
#[derive(Debug)]
pub(super) struct Clocked {
    began: Time,
    stalled: Option<Duration>,
    ticks: Option<(u64, u64)>,
}

impl Clocked {
    pub(super) fn begin() -> Clocked {
        Clocked { began: instrument::now(), stalled: stalled(), ticks: ticks() }
    }

    /// Share of the time since then in which something waited for a processor.
    pub(super) fn pressure(&self) -> Option<f64> {
        let took = (instrument::now() - self.began).as_secs_f64().max(1e-9);
        let (now, before) = stalled().zip(self.stalled)?;
        Some((now.saturating_sub(before).as_secs_f64() / took).min(1.0))
    }

    /// The counts since then, without the wait of our own calls.
    pub(super) fn end(&self, waited_share: f64) -> Machine {
        let stolen = ticks().zip(self.ticks).map(|(now, before)| {
            (now.0.saturating_sub(before.0)) as f64 / (now.1.saturating_sub(before.1)).max(1) as f64
        });
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        Machine {
            waited_share,
            pressure: self.pressure(),
            load: load().map(|load| load / cores as f64),
            steal: stolen,
        }
    }
}

/// Time in which something waited for a processor (PSI).
pub(super) fn stalled() -> Option<Duration> {
    let text = fs::read_to_string("/proc/pressure/cpu").ok()?;
    pressure(&text)
}

fn pressure(text: &str) -> Option<Duration> {
    let some = text.lines().find_map(|line| line.strip_prefix("some "))?;
    let total = some.split_whitespace().find_map(|word| word.strip_prefix("total="))?;
    total.parse().ok().map(Duration::from_micros)
}

fn load() -> Option<f64> {
    fs::read_to_string("/proc/loadavg").ok()?.split_whitespace().next()?.parse().ok()
}

/// Ticks stolen, and all.
fn ticks() -> Option<(u64, u64)> {
    steal(&fs::read_to_string("/proc/stat").ok()?)
}

/// Ticks of all processors that were used, stolen ones among them, and all.
pub(super) fn used() -> Option<(u64, u64)> {
    busy(&fs::read_to_string("/proc/stat").ok()?)
}

fn busy(text: &str) -> Option<(u64, u64)> {
    let line = text.lines().find_map(|line| line.strip_prefix("cpu "))?;
    let all: Vec<u64> = line.split_whitespace().map_while(|n| n.parse().ok()).collect();
    let sum: u64 = all.iter().take(8).sum();
    // Neither idle nor waiting for a device.
    Some((sum.checked_sub(all.get(3)? + all.get(4)?)?, sum))
}

fn steal(text: &str) -> Option<(u64, u64)> {
    let line = text.lines().find_map(|line| line.strip_prefix("cpu "))?;
    let all: Vec<u64> = line.split_whitespace().map_while(|n| n.parse().ok()).collect();
    // The guests' time is within the first two.
    Some((*all.get(7)?, all.iter().take(8).sum()))
}

/// Connections that others have to the server's port: as its process sees them, or this machine
/// where the server is on it.
pub(super) fn others(to: SocketAddr, pid: Option<u32>, ours: &HashSet<SocketAddr>) -> Option<u16> {
    let count = |all: Vec<TcpSocket>| u16::try_from(foreign(&all, to.port(), ours)).ok();
    match pid {
        Some(pid) => {
            let text = |name: &str| fs::read_to_string(format!("/proc/{pid}/net/{name}")).unwrap_or_default();
            let all = ["tcp", "tcp6"].map(text);
            count(all.iter().flat_map(|t| proc_net_tcp(t)).take(SOCKETS).collect())
        }
        None if to.ip().is_loopback() => tcp_sockets(SOCKETS).ok().and_then(|(all, _)| count(all)),
        None => None,
    }
}

/// How many connections at this port are not ours. While others come and go, /proc lists a connection
/// twice now and then.
fn foreign(all: &[TcpSocket], port: u16, ours: &HashSet<SocketAddr>) -> usize {
    let served = |s: &&TcpSocket| s.state.name() == "established" && s.local.port() == port;
    let foreign = all.iter().filter(served).filter(|s| !ours.contains(&s.peer));
    foreign.map(|s| (s.local, s.peer)).collect::<HashSet<_>>().len()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_connection_that_is_listed_twice_counts_once() {
        let line = |peer: &str| {
            format!("0: 0100007F:1F90 0100007F:{peer} 01 00000000:00000000 00:00000000 0 0 0 7\n")
        };
        let text = ["head\n".to_owned(), line("A001"), line("A002"), line("A001")].concat();
        let all: Vec<TcpSocket> = proc_net_tcp(&text).collect();
        let ours = HashSet::from(["127.0.0.1:40962".parse().expect("an address")]);
        assert_eq!((all.len(), foreign(&all, 8080, &ours), foreign(&all, 8080, &HashSet::new())), (3, 1, 2));
    }

    #[test]
    fn the_kernels_files() {
        let text = "some avg10=1.00 avg60=0.00 avg300=0.00 total=2500000\nfull avg10=0.00 total=1\n";
        assert_eq!((pressure(text), pressure("")), (Some(Duration::from_millis(2500)), None));
        assert_eq!(steal("cpu  1 2 3 4 5 6 7 8 9 10\ncpu0 1\n"), Some((8, 36)));
        assert_eq!(steal("cpu  1 2\n"), None);
    }

    #[test]
    fn others_at_a_port_are_told_from_our_own() {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
        let to = listener.local_addr().expect("an address");
        let streams: Vec<_> = (0..3).map(|_| std::net::TcpStream::connect(to).expect("it listens")).collect();
        let accepted: Vec<_> = (0..3).map(|_| listener.accept().expect("connected")).collect();
        let ours = HashSet::from([streams[0].local_addr().expect("an address")]);
        assert_eq!(others(to, None, &ours), Some(2), "{accepted:?}");
        assert_eq!(others(to, Some(std::process::id()), &ours), Some(2));
        assert_eq!(others(([192, 0, 2, 1], to.port()).into(), None, &ours), None);
    }
}
