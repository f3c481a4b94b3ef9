//! The server's processor time while a way runs, from `/proc`.

use std::collections::BTreeMap;
use std::fs;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use linerate_explain::driver::listening_processes;
use linerate_lab::servers::descendants;
use linerate_net::machine::SchedStat;

/// Threads of ours that serve.
const OURS: &str = "serve-";
/// Threads beside them that a handler may block.
const OURS_BESIDE: &str = "tokio-blocking";

/// Whose threads count.
#[derive(Clone, Debug)]
pub(super) enum ServerThreads {
    /// The one in this process.
    Ours,
    /// A process of this machine, and those that it started.
    Process(i32),
    /// On another machine, or not to be looked at.
    Unknown,
}

impl ServerThreads {
    /// The server that listens at an address.
    pub(super) fn at(address: Option<&SocketAddr>) -> ServerThreads {
        let found = address.and_then(|to| listening_processes(*to).into_iter().min());
        found.and_then(|pid| pid.try_into().ok()).map_or(ServerThreads::Unknown, ServerThreads::Process)
    }

    /// Nanoseconds that each of its threads has used, and waited for a core.
    fn threads(&self) -> Threads {
        let mut used = BTreeMap::new();
        let (pids, all) = match self {
            ServerThreads::Ours => (vec![std::process::id().cast_signed()], false),
            ServerThreads::Process(pid) => (descendants(*pid).iter().map(|m| m.pid).collect(), true),
            ServerThreads::Unknown => return used,
        };
        for pid in pids {
            let tasks = fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten();
            for task in tasks.filter_map(|e| e.file_name().to_str()?.parse::<i32>().ok()) {
                let read = |file: &str| fs::read_to_string(format!("/proc/{pid}/task/{task}/{file}")).ok();
                let serves = |name: String| name.starts_with(OURS) || name.starts_with(OURS_BESIDE);
                if !all && !read("comm").is_some_and(serves) {
                    continue;
                }
                let times = read("schedstat").and_then(|text| SchedStat::parse(&text));
                used.extend(times.map(|times| ((pid, task), [times.on_cpu_ns, times.waiting_ns])));
            }
        }
        used
    }
}

/// Threads by process and number.
type Threads = BTreeMap<(i32, i32), [u64; 2]>;

/// The server's threads at a moment.
#[derive(Clone, Debug)]
pub(super) struct ThreadLoads {
    at: Instant,
    threads: Threads,
}

/// What the server used between two looks, in cores.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Used {
    pub(super) cores: f64,
    /// Its busiest thread.
    pub(super) busiest: f64,
    /// The longest that a thread waited for a core, as a share of the time.
    pub(super) waited: f64,
}

impl ThreadLoads {
    pub(super) fn now(server: &ServerThreads) -> ThreadLoads {
        ThreadLoads { threads: server.threads(), at: Instant::now() }
    }

    /// `None`: its threads are not known, or the time is too short for a share.
    pub(super) fn until(&self, later: &ThreadLoads) -> Option<Used> {
        let lasted = later.at.duration_since(self.at);
        if later.threads.is_empty() || lasted < Duration::from_millis(20) {
            return None;
        }
        let grown = |which: usize| {
            let before = |id| self.threads.get(id).map_or(0, |nanos: &[u64; 2]| nanos[which]);
            let nanos = later.threads.iter().map(move |(id, now)| now[which].saturating_sub(before(id)));
            nanos.map(|nanos| nanos as f64 / lasted.as_nanos() as f64).collect::<Vec<f64>>()
        };
        let most = |shares: &[f64]| shares.iter().copied().fold(0.0, f64::max);
        let used = grown(0);
        Some(Used { cores: used.iter().sum(), busiest: most(&used), waited: most(&grown(1)) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_threads_used_is_a_share_of_the_time_between() {
        let begin = Instant::now();
        let look = |ms: u64, threads: &[((i32, i32), [u64; 2])]| ThreadLoads {
            at: begin + Duration::from_millis(ms),
            threads: threads.iter().copied().collect(),
        };
        let before = look(0, &[((1, 1), [5_000_000, 0]), ((1, 2), [0, 0])]);
        // The third thread is new.
        let after =
            look(100, &[((1, 1), [55_000_000, 0]), ((1, 2), [25_000_000, 10_000_000]), ((1, 3), [0, 0])]);
        assert_eq!(before.until(&after), Some(Used { cores: 0.75, busiest: 0.5, waited: 0.1 }));
        assert_eq!(before.until(&look(100, &[])), None);
        assert_eq!(before.until(&look(1, &[((1, 1), [5_000_000, 0])])), None);
    }
}
