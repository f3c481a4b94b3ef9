//! Reads what the kernel and a JVM say of a process.

use std::collections::BTreeMap;
use std::fs;
use std::path::PathBuf;

use crate::limits::THREADS;
use crate::local::{Snapshot, Thread, collected, groups, schedstat, throttled};

/// Where a process's counters are.
#[derive(Debug)]
pub(super) struct Process {
    pid: u32,
    /// The control groups' files of it.
    stats: Vec<PathBuf>,
    /// The file of performance counters that a JVM shares.
    perf: Option<PathBuf>,
}

impl Process {
    pub(super) fn new(pid: u32) -> Process {
        let text = fs::read_to_string(format!("/proc/{pid}/cgroup")).unwrap_or_default();
        let stats = groups(&text)
            .into_iter()
            .map(|g| PathBuf::from(g).join("cpu.stat"))
            .filter(|p| p.is_file())
            .collect();
        Process { pid, stats, perf: perf_file(pid) }
    }

    pub(super) fn pid(&self) -> u32 {
        self.pid
    }

    pub(super) fn look(&self) -> Snapshot {
        let throttled =
            self.stats.iter().filter_map(|p| fs::read_to_string(p).ok()).map(|t| throttled(&t)).max();
        let collected = self.perf.as_ref().and_then(|p| collected(&fs::read(p).ok()?));
        let (threads, stopped) = self.threads();
        Snapshot {
            threads,
            stopped,
            throttled: throttled.unwrap_or_default(),
            collected: collected.unwrap_or_default(),
        }
    }

    /// All threads, and how many are stopped.
    fn threads(&self) -> (BTreeMap<u32, Thread>, u32) {
        let Ok(tasks) = fs::read_dir(format!("/proc/{}/task", self.pid)) else { return Default::default() };
        let mut stopped = 0;
        let one = |entry: fs::DirEntry| {
            let id = entry.file_name().to_str()?.parse().ok()?;
            let (ran, waited) = schedstat(&fs::read_to_string(entry.path().join("schedstat")).ok()?)?;
            let stat = fs::read_to_string(entry.path().join("stat")).unwrap_or_default();
            let name = stat.get(stat.find('(')? + 1..stat.rfind(')')?).unwrap_or_default().to_owned();
            let state = stat.get(stat.rfind(')')? + 1..).and_then(|rest| rest.trim_start().chars().next());
            stopped += u32::from(matches!(state, Some('T' | 't')));
            Some((id, Thread { name, ran, waited }))
        };
        let threads = tasks.flatten().take(THREADS).filter_map(one).collect();
        (threads, stopped)
    }
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
