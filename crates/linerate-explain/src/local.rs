//! A server's process on this machine, from outside: what the kernel counted of it, and its garbage
//! collector, while a call was made. Pure functions over the text and bytes of files; who reads
//! them is [`crate::driver`].

use std::collections::BTreeMap;
use std::time::Duration;

use crate::process::Jvm;

/// Counters of a process at a moment. All of them only ever grow.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Snapshot {
    /// By thread: time on a processor and time ready to run but waiting for one.
    pub threads: BTreeMap<u32, Thread>,
    /// Time its control group was kept from running (cpu.max).
    pub throttled: Duration,
    /// Time the garbage collector took, when it is a JVM that tells.
    pub collected: Duration,
    /// It has a collector that tells.
    pub has_collector: bool,
    /// Descriptors that are open, and how many may be.
    pub files: Option<(u64, u64)>,
    /// Threads that are stopped by a signal or a debugger.
    pub stopped: u32,
}

/// Counters of a thread.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Thread {
    /// Its name.
    pub name: String,
    /// Time on a processor.
    pub ran: Duration,
    /// Time ready to run and waiting for a processor.
    pub waited: Duration,
}

/// Beginnings of the names (15 characters, as the kernel keeps them) of threads by which a runtime
/// compiles, collects garbage and looks after itself: no call waits for their turn.
const SERVICE: [&str; 41] = [
    // HotSpot.
    "Attach Listener",
    "C1 CompilerThre",
    "C2 CompilerThre",
    "Common-Cleaner",
    "Concurrent Mark",
    "Finalizer",
    "G1 Conc#",
    "G1 Main Marker",
    "G1 Refine#",
    "G1 Service",
    "GC Thread#",
    "JVMCI",
    "Monitor Deflati",
    "Notification Th",
    "Reference Handl",
    "Service Thread",
    "Shenandoah",
    "Signal Dispatch",
    "StringDedupThre",
    "Sweeper thread",
    "VM Periodic Tas",
    "VM Thread",
    "XDriver",
    "XStat",
    "XWorker",
    "ZDriver",
    "ZDirector",
    "ZStat",
    "ZUncommitter",
    "ZWorker",
    // .NET.
    ".NET BGC",
    ".NET EventPipe",
    ".NET Finalizer",
    ".NET GC",
    ".NET Server GC",
    ".NET SigHandler",
    ".NET SynchManag",
    ".NET Tiered Com",
    // V8.
    "DelayedTaskSche",
    "V8 DefaultWorke",
    "V8Worker",
];

impl Thread {
    /// It compiles, collects garbage, or looks after the runtime otherwise.
    pub fn is_service(&self) -> bool {
        SERVICE.iter().any(|name| self.name.starts_with(name))
    }
}

/// The activity of a process during a call.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Spent {
    /// The thread that ran longest, of those that may serve calls.
    pub busiest: Thread,
    /// Of all threads together.
    pub ran: Duration,
    /// The longest that one of these waited for a processor.
    pub waited: Duration,
    /// Kept from running by its control group.
    pub throttled: Duration,
    /// In the garbage collector.
    pub collected: Duration,
    /// There is a collector that tells.
    pub has_collector: bool,
    /// Descriptors open after it, and how many may be.
    pub files: Option<(u64, u64)>,
    /// Threads that were stopped by a signal or a debugger before and after the call, of all.
    pub stopped: u32,
    /// All threads after it.
    pub threads: u32,
}

impl Snapshot {
    /// The differences from `before` to this snapshot.
    pub fn since(&self, before: &Snapshot) -> Spent {
        let mut spent = Spent {
            throttled: self.throttled.saturating_sub(before.throttled),
            collected: self.collected.saturating_sub(before.collected),
            has_collector: self.has_collector,
            files: self.files,
            stopped: self.stopped.min(before.stopped),
            threads: u32::try_from(self.threads.len()).unwrap_or(u32::MAX),
            ..Spent::default()
        };
        for (id, now) in &self.threads {
            let was = before.threads.get(id).cloned().unwrap_or_default();
            let ran = now.ran.saturating_sub(was.ran);
            let waited = now.waited.saturating_sub(was.waited);
            spent.ran += ran;
            if now.is_service() {
                continue;
            }
            spent.waited = spent.waited.max(waited);
            if ran > spent.busiest.ran {
                spent.busiest = Thread { name: now.name.clone(), ran, waited };
            }
        }
        spent
    }
}

/// Throttled time of a control group's `cpu.stat`, of version 2 or 1.
pub fn throttled(text: &str) -> Duration {
    let value = |name: &str| text.lines().find_map(|l| l.strip_prefix(name)?.trim().parse::<u64>().ok());
    value("throttled_usec ")
        .map(Duration::from_micros)
        .or_else(|| value("throttled_time ").map(Duration::from_nanos))
        .unwrap_or_default()
}

/// Folders of the process's control groups that may hold a `cpu.stat`, from `/proc/PID/cgroup`.
pub fn groups(text: &str) -> Vec<String> {
    let mut folders = Vec::new();
    for line in text.lines() {
        let mut parts = line.splitn(3, ':');
        let (Some(_), Some(controllers), Some(path)) = (parts.next(), parts.next(), parts.next()) else {
            continue;
        };
        if controllers.is_empty() {
            folders.push(format!("/sys/fs/cgroup{path}"));
            folders.push(format!("/sys/fs/cgroup/unified{path}"));
        } else if controllers.split(',').any(|c| c == "cpu") {
            folders.push(format!("/sys/fs/cgroup/{controllers}{path}"));
            folders.push(format!("/sys/fs/cgroup/cpu{path}"));
        }
    }
    folders
}

/// Time that a JVM's collectors took, from its `hsperfdata` file. `None`: it is no such file.
pub fn collected(bytes: &[u8]) -> Option<Duration> {
    jvm(bytes).map(|told| told.collected)
}

/// A JVM's pauses by its `hsperfdata` file: counters `sun.gc.collector.N.time` and
/// `sun.rt.safepointTime`, in ticks of `sun.os.hrt.frequency`, with how many there were. `None`: it
/// is no such file.
pub fn jvm(bytes: &[u8]) -> Option<Jvm> {
    let (mut collected, mut stopped, mut frequency) = (0u64, 0u64, None);
    let mut told = Jvm::default();
    each_counter(bytes, |name, value| {
        let of_collector = name.starts_with(b"sun.gc.collector.");
        if name == b"sun.os.hrt.frequency" {
            frequency = Some(value);
        } else if of_collector && name.ends_with(b".time") {
            collected = collected.saturating_add(value);
        } else if of_collector && name.ends_with(b".invocations") {
            told.collections = told.collections.saturating_add(value);
        } else if name == b"sun.rt.safepoints" {
            told.safepoints = value;
        } else if name == b"sun.rt.safepointTime" {
            stopped = value;
        }
    })?;
    let frequency = frequency.filter(|f| *f > 0)?;
    let time = |ticks: u64| Duration::from_secs_f64(ticks as f64 / frequency as f64);
    Some(Jvm { collected: time(collected), stopped: time(stopped), ..told })
}

/// Gives each number of an `hsperfdata` file with its name. `None`: it is no such file, or damaged.
///
/// The format (PerfMemory, version 2): a prologue of 32 bytes with magic, byte order and the offset
/// and number of entries; each entry has its length, its name's offset, a vector length, a type,
/// flags, a unit, a variability and its data's offset.
fn each_counter(bytes: &[u8], mut take: impl FnMut(&[u8], u64)) -> Option<()> {
    let u32_at = |at: usize| -> Option<u32> {
        let four: [u8; 4] = bytes.get(at..at.checked_add(4)?)?.try_into().ok()?;
        Some(if bytes.get(4) == Some(&1) { u32::from_le_bytes(four) } else { u32::from_be_bytes(four) })
    };
    let u64_at = |at: usize| -> Option<u64> {
        let eight: [u8; 8] = bytes.get(at..at.checked_add(8)?)?.try_into().ok()?;
        Some(if bytes.get(4) == Some(&1) { u64::from_le_bytes(eight) } else { u64::from_be_bytes(eight) })
    };
    if bytes.get(..4)? != [0xca, 0xfe, 0xc0, 0xc0] || bytes.get(5) != Some(&2) {
        return None;
    }
    let (mut at, entries) = (u32_at(24)? as usize, u32_at(28)?);
    for _ in 0..entries.min(ENTRIES) {
        let length = u32_at(at)? as usize;
        if length < 20 {
            return None;
        }
        let name_at = at.checked_add(u32_at(at + 4)? as usize)?;
        let name = bytes.get(name_at..)?.split(|b| *b == 0).next()?;
        let scalar = u32_at(at + 8)? == 0 && bytes.get(at + 12) == Some(&b'J');
        if scalar && let Some(value) = u64_at(at.checked_add(u32_at(at + 16)? as usize)?) {
            take(name, value);
        }
        at = at.checked_add(length)?;
    }
    Some(())
}

/// Entries of an hsperfdata file that are read. Reason: a JVM has some 300; a broken file must not
/// keep us.
const ENTRIES: u32 = 4096;

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn the_kernels_files() {
        assert_eq!(
            throttled("usage_usec 1\nnr_throttled 2\nthrottled_usec 3000\n"),
            Duration::from_millis(3)
        );
        assert_eq!(throttled("nr_throttled 2\nthrottled_time 3000000\n"), Duration::from_millis(3));
        assert_eq!(throttled(""), Duration::ZERO);
        let all = groups("4:cpu,cpuacct:/a\n1:name=systemd:/b\n0::/c\n");
        assert_eq!(
            all,
            [
                "/sys/fs/cgroup/cpu,cpuacct/a",
                "/sys/fs/cgroup/cpu/a",
                "/sys/fs/cgroup/c",
                "/sys/fs/cgroup/unified/c"
            ]
        );
    }

    /// An hsperfdata file as HotSpot writes it.
    fn written(counters: &[(&str, u64)]) -> Vec<u8> {
        let mut bytes = vec![0xca, 0xfe, 0xc0, 0xc0, 1, 2, 0, 1];
        bytes.extend([0; 16]);
        bytes.extend(32u32.to_le_bytes());
        bytes.extend((counters.len() as u32).to_le_bytes());
        for (name, value) in counters {
            let room = (name.len() + 1).next_multiple_of(8);
            bytes.extend((20 + room as u32 + 4 + 8).to_le_bytes());
            bytes.extend(20u32.to_le_bytes());
            bytes.extend(0u32.to_le_bytes());
            bytes.extend([b'J', 0, 1, 3]);
            bytes.extend((20 + room as u32 + 4).to_le_bytes());
            bytes.extend(name.as_bytes());
            bytes.resize(bytes.len() + room - name.len() + 4, 0);
            bytes.extend(value.to_le_bytes());
        }
        bytes
    }

    #[test]
    fn the_time_of_a_jvms_collectors() {
        let file = written(&[
            ("sun.os.hrt.frequency", 1_000_000_000),
            ("sun.gc.collector.0.time", 5_000_000),
            ("sun.gc.collector.0.invocations", 99),
            ("sun.gc.collector.1.time", 7_000_000),
            ("sun.rt.safepoints", 3),
            ("sun.rt.safepointTime", 9_000_000),
        ]);
        let ms = Duration::from_millis;
        let told = Jvm { collections: 99, collected: ms(12), safepoints: 3, stopped: ms(9) };
        assert_eq!(jvm(&file), Some(told));
        assert_eq!(collected(&file), Some(Duration::from_millis(12)));
        assert_eq!(collected(&file[..40]), None);
        assert_eq!(collected(b"something else"), None);
    }

    #[test]
    fn what_happened_between_two_looks() {
        let thread = |ran, waited| Thread {
            name: "main".to_owned(),
            ran: Duration::from_millis(ran),
            waited: Duration::from_millis(waited),
        };
        let at = |a, b| Snapshot { threads: [(1, a), (2, b)].into(), ..Snapshot::default() };
        let spent = at(thread(5, 1), thread(50, 9)).since(&at(thread(4, 1), thread(10, 2)));
        assert_eq!(
            (spent.ran.as_millis(), spent.waited.as_millis(), spent.busiest.ran.as_millis()),
            (41, 7, 40)
        );
    }

    #[test]
    fn threads_that_serve_no_call_are_not_the_busiest() {
        let thread = |name: &str, ran: u64, waited: u64| Thread {
            name: name.to_owned(),
            ran: Duration::from_millis(ran),
            waited: Duration::from_millis(waited),
        };
        let after = Snapshot {
            threads: [
                (1, thread("C2 CompilerThre", 36, 20)),
                (2, thread("HTTP-Dispatcher", 2, 1)),
                (3, thread("GC Thread#0", 9, 9)),
            ]
            .into(),
            ..Snapshot::default()
        };
        let spent = after.since(&Snapshot::default());
        let ms = Duration::from_millis;
        assert_eq!(
            (spent.busiest.name.as_str(), spent.ran, spent.waited),
            ("HTTP-Dispatcher", ms(47), ms(1))
        );
        // A pool's threads, and those of Go, which have the program's name, may serve calls.
        for name in ["pool-1-thread-1", "GCache", "server-go", "node", "libuv-worker", ".NET TP Worker"] {
            assert!(!thread(name, 1, 0).is_service(), "{name}");
        }
    }

    proptest! {
        #[test]
        fn any_bytes_are_read_without_harm(mut bytes in prop::collection::vec(any::<u8>(), 0..400), magic: bool) {
            if magic && bytes.len() > 8 {
                bytes[..8].copy_from_slice(&[0xca, 0xfe, 0xc0, 0xc0, 1, 2, 0, 1]);
            }
            let _ = collected(&bytes);
        }
    }
}
