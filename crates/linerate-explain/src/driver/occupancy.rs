//! Looks at the threads and the sockets of a server under load.

use std::cell::OnceCell;
use std::collections::HashMap;
use std::fs;
use std::path::Path;
use std::time::Duration;

use linerate_net::machine::SchedStat;
use linerate_net::sock_diag::{SocketState, TcpSocket, tcp_sockets};

use super::machine::used;
use super::view::read;
use crate::limits::{OCCUPANCY_THREADS, SOCKETS};
use crate::occupancy::{OccupancyLook, ThreadMoment};
use crate::process::{activity, socket_inode};

/// What a look at a server needs.
#[derive(Debug)]
pub struct OccupancyWatch {
    port: u16,
    /// Ticks of this machine's processors that were used, and all, when it began.
    ticks: Option<(u64, u64)>,
}

impl OccupancyWatch {
    /// Of a server on this port.
    pub fn new(port: u16) -> OccupancyWatch {
        OccupancyWatch { port, ticks: used() }
    }

    /// Looks at these processes.
    pub fn look(&self, pids: &[u32]) -> OccupancyLook {
        let mut look = OccupancyLook::default();
        // Where they have a network of their own, its sockets are not this machine's.
        let space = |pid: &str| fs::read_link(format!("/proc/{pid}/ns/net")).ok();
        let is_here = pids.first().is_some_and(|pid| space(&pid.to_string()) == space("self"));
        let sockets = if is_here { tcp_sockets(SOCKETS).ok().map(|(all, _)| all) } else { None };
        look.queued = sockets.as_deref().map(|all| queued(all, self.port));
        let by_inode: OnceCell<HashMap<u32, bool>> = OnceCell::new();
        for pid in pids {
            // A thread may have a table of its own.
            let is_client = |task: &Path, fd: u32| {
                let link = fs::read_link(task.join(format!("fd/{fd}"))).ok()?;
                let Some(inode) = socket_inode(link.to_str()?) else { return Some(false) };
                let all = sockets.as_deref()?;
                let ports = by_inode.get_or_init(|| ports(all, self.port));
                // What is no TCP socket of this machine leads elsewhere, too (a local database).
                Some(ports.get(&inode).copied().unwrap_or(false))
            };
            let room = OCCUPANCY_THREADS.saturating_sub(look.threads.len());
            let Ok(tasks) = fs::read_dir(format!("/proc/{pid}/task")) else { continue };
            let moments = tasks.flatten().take(room).filter_map(|task| {
                let id = task.file_name().to_str()?.parse().ok()?;
                moment(id, &task.path(), |fd| is_client(&task.path(), fd))
            });
            look.threads.extend(moments);
        }
        look
    }

    /// The share of this machine's processor time that was used since it began.
    pub fn machine_busy(&self) -> Option<f64> {
        let ((before, all_before), (now, all_now)) = self.ticks.zip(used())?;
        let all = all_now.checked_sub(all_before).filter(|all| *all > 0)?;
        Some(now.saturating_sub(before) as f64 / all as f64)
    }

    /// Cores that a process may use.
    pub fn cores(pid: u32) -> Option<u32> {
        let status = read(pid, "status");
        let mask = status.lines().find_map(|line| line.strip_prefix("Cpus_allowed:"))?;
        let ones = mask.chars().filter_map(|c| c.to_digit(16)).map(u32::count_ones).sum::<u32>();
        // The mask may name cores that this machine could have.
        let online = fs::read_dir("/sys/devices/system/cpu").ok()?.flatten();
        let is_core = |name: &str| name.strip_prefix("cpu").is_some_and(|n| n.parse::<u32>().is_ok());
        let online = online.filter(|e| is_core(&e.file_name().to_string_lossy())).count() as u32;
        Some(ones.min(online).max(1))
    }
}

fn moment(id: u32, task: &Path, is_client: impl Fn(u32) -> Option<bool>) -> Option<ThreadMoment> {
    // A thread may end while it is looked at, and the call that it is in may be forbidden to see.
    let text = |name: &str| fs::read_to_string(task.join(name)).unwrap_or_default();
    let SchedStat { on_cpu_ns, waiting_ns, slices } = SchedStat::parse(&text("schedstat"))?;
    let [ran, waited] = [on_cpu_ns, waiting_ns].map(Duration::from_nanos);
    let activity = activity(&text("stat"), &text("syscall"), &text("wchan"), is_client)?;
    Some(ThreadMoment { id, activity, ran, waited, slices })
}

fn ports(all: &[TcpSocket], port: u16) -> HashMap<u32, bool> {
    all.iter().filter(|s| s.inode != 0).map(|s| (s.inode, s.local.port() == port)).collect()
}

/// Connections that were not accepted, and those with bytes that were not read.
fn queued(all: &[TcpSocket], port: u16) -> u64 {
    let of = |s: &TcpSocket| match s.state {
        SocketState::LISTEN => u64::from(s.receive_queue),
        // Without an inode it is in the accept queue, and counted there.
        _ => u64::from(s.receive_queue > 0 && s.inode != 0),
    };
    all.iter().filter(|s| s.local.port() == port).map(of).sum()
}
