//! Reads what the kernel and a JVM say of a process.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use linerate_net::machine::SchedStat;

use super::view::threads_with_own_tables;
use crate::limits::{FILES, THREADS};
use crate::local::{Snapshot, Thread, collected, groups, throttled};
use crate::process::file_limit;

/// Where a server's counters are: of its process, or of all that accept for it.
#[derive(Debug)]
pub(super) struct ProcessCounters {
    pids: Vec<u32>,
    /// The control groups' files of it.
    stats: Vec<PathBuf>,
    /// The folders of threads whose table of descriptors is their own.
    tables: Vec<PathBuf>,
    /// The file of performance counters that a JVM shares.
    perf: Option<PathBuf>,
}

impl ProcessCounters {
    pub(super) fn new(pid: u32) -> ProcessCounters {
        ProcessCounters::together(vec![pid])
    }

    /// Processes of one server, which are looked at as one: their control group is the first one's.
    pub(super) fn together(pids: Vec<u32>) -> ProcessCounters {
        let first = pids.first().copied().unwrap_or_default();
        let text = fs::read_to_string(format!("/proc/{first}/cgroup")).unwrap_or_default();
        let stats = groups(&text)
            .into_iter()
            .map(|g| PathBuf::from(g).join("cpu.stat"))
            .filter(|p| p.is_file())
            .collect();
        let tables = pids.iter().flat_map(|pid| threads_with_own_tables(*pid)).collect();
        ProcessCounters { pids, stats, tables, perf: perf_file(first) }
    }

    pub(super) fn pid(&self) -> u32 {
        self.pids.first().copied().unwrap_or_default()
    }

    /// The only process that is looked at; `None`: there are several.
    pub(super) fn only(&self) -> Option<u32> {
        if let [pid] = self.pids[..] { Some(pid) } else { None }
    }

    pub(super) fn look(&self) -> Snapshot {
        let throttled =
            self.stats.iter().filter_map(|p| fs::read_to_string(p).ok()).map(|t| throttled(&t)).max();
        let collected = self.perf.as_ref().and_then(|p| collected(&fs::read(p).ok()?));
        let (mut threads, mut stopped) = (BTreeMap::new(), 0);
        for pid in &self.pids {
            let (more, halted) = threads_of(*pid);
            threads.extend(more);
            stopped += halted;
        }
        // The table of any one of them may be full.
        let tables = self.pids.iter().map(|pid| PathBuf::from(format!("/proc/{pid}")));
        let files = tables.chain(self.tables.iter().cloned()).filter_map(|table| files(&table));
        let files = files.max_by(|a, b| (a.0 * b.1.max(1)).cmp(&(b.0 * a.1.max(1))));
        Snapshot {
            threads,
            stopped,
            files,
            throttled: throttled.unwrap_or_default(),
            has_collector: collected.is_some(),
            collected: collected.unwrap_or_default(),
        }
    }
}

/// Descriptors that are open, and how many may be.
fn files(table: &Path) -> Option<(u64, u64)> {
    let folder = table.join("fd");
    // Since Linux 6.2 its size is their number.
    let open = match fs::metadata(&folder).ok()?.len() {
        0 => fs::read_dir(&folder).ok()?.take(FILES).count() as u64,
        open => open,
    };
    let limit = file_limit(&fs::read_to_string(table.join("limits")).ok()?)?;
    Some((open, limit))
}

/// All threads of a process, and how many are stopped.
fn threads_of(pid: u32) -> (BTreeMap<u32, Thread>, u32) {
    let Ok(tasks) = fs::read_dir(format!("/proc/{pid}/task")) else { return Default::default() };
    let mut stopped = 0;
    let one = |entry: fs::DirEntry| {
        let id = entry.file_name().to_str()?.parse().ok()?;
        let times = SchedStat::parse(&fs::read_to_string(entry.path().join("schedstat")).ok()?)?;
        let [ran, waited] = [times.on_cpu_ns, times.waiting_ns].map(Duration::from_nanos);
        let stat = fs::read_to_string(entry.path().join("stat")).unwrap_or_default();
        let name = stat.get(stat.find('(')? + 1..stat.rfind(')')?).unwrap_or_default().to_owned();
        let state = stat.get(stat.rfind(')')? + 1..).and_then(|rest| rest.trim_start().chars().next());
        stopped += u32::from(matches!(state, Some('T' | 't')));
        Some((id, Thread { name, ran, waited }))
    };
    let threads = tasks.flatten().take(THREADS).filter_map(one).collect();
    (threads, stopped)
}

/// `hsperfdata_USER/PID` in the temporary folder that the process sees.
pub(super) fn perf_file(pid: u32) -> Option<PathBuf> {
    for folder in [format!("/proc/{pid}/root/tmp"), "/tmp".to_owned()] {
        for entry in fs::read_dir(&folder).into_iter().flatten().flatten() {
            if entry.file_name().to_string_lossy().starts_with("hsperfdata_") {
                let file = entry.path().join(pid.to_string());
                if file.is_file() {
                    return Some(file);
                }
            }
        }
    }
    None
}
