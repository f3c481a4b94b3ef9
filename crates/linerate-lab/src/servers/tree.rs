//! The processes of a server, and what they use, from `/proc`.

use std::collections::BTreeMap;
use std::fs;
use std::time::Duration;

use crate::limits::PROCESSES;

/// One tick of the kernel's processor times, as user space sees them.
const TICK: Duration = Duration::from_millis(10);

/// By so many may a process's ticks differ from its threads' nanoseconds: its own code's and the kernel's are
/// rounded, at both looks.
const TICKS_ROUNDED: u32 = 4;

/// Ticks from which on a share of them is known to some percent.
const LEAST_TICKS: u64 = 20;

/// A process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Member {
    /// Its number.
    pub pid: i32,
    /// Its process group.
    pub group: i32,
    parent: i32,
    ticks: u64,
    /// Of these, in its own code.
    own_ticks: u64,
    /// When it started: with its number a name that no other process has.
    started: u64,
}

impl Member {
    /// Whether this very process still runs.
    pub fn is_alive(&self) -> bool {
        self.now().is_some()
    }

    /// The same process with what it has used by now; `None` if it has ended.
    pub fn now(&self) -> Option<Member> {
        let stat = fs::read_to_string(format!("/proc/{}/stat", self.pid)).ok()?;
        let (now, state) = parse_stat(&stat)?;
        (now.started == self.started && !"ZX".contains(state)).then_some(now)
    }
}

/// `/proc/PID/stat`: the process and its state.
fn parse_stat(text: &str) -> Option<(Member, char)> {
    let pid = text.split(' ').next()?.parse().ok()?;
    // The name may contain spaces and brackets.
    let rest = &text[text.rfind(')')? + 1..];
    let fields: Vec<&str> = rest.split_whitespace().collect();
    let number = |i: usize| fields.get(i)?.parse::<u64>().ok();
    let member = Member {
        pid,
        parent: fields.get(1)?.parse().ok()?,
        group: fields.get(2)?.parse().ok()?,
        ticks: number(11)? + number(12)?,
        own_ticks: number(11)?,
        started: number(19)?,
    };
    Some((member, fields.first()?.chars().next()?))
}

/// The processes of a group, and all that descend from them.
pub fn members(group: i32) -> Vec<Member> {
    family(|m| m.group == group || m.pid == group)
}

/// A process, and all that descend from it.
pub fn descendants(pid: i32) -> Vec<Member> {
    family(|m| m.pid == pid)
}

fn family(begins: impl Fn(&Member) -> bool) -> Vec<Member> {
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    let pids = entries.filter_map(|e| e.file_name().to_str()?.parse::<i32>().ok());
    let all = pids.filter_map(|pid| {
        let (member, state) = parse_stat(&fs::read_to_string(format!("/proc/{pid}/stat")).ok()?)?;
        (!"ZX".contains(state)).then_some(member)
    });
    let all: Vec<Member> = all.collect();
    let mut found: Vec<Member> = all.iter().copied().filter(|m| begins(m)).collect();
    let mut looked = 0;
    while looked < found.len() && found.len() < PROCESSES {
        let parent = found[looked].pid;
        looked += 1;
        let children = all.iter().filter(|m| m.parent == parent);
        let new: Vec<Member> =
            children.copied().filter(|m| !found.iter().any(|known| known.pid == m.pid)).collect();
        found.extend(new);
    }
    found
}

/// What a thread has used.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct ThreadUse {
    on_cpu_ns: u64,
    waiting_ns: u64,
    switches: u64,
}

/// What processes have used since they started.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Usage {
    threads: BTreeMap<i32, ThreadUse>,
    ticks: BTreeMap<i32, u64>,
    own_ticks: BTreeMap<i32, u64>,
    /// Memory that is resident, bytes. What processes share counts once for each.
    pub rss: u64,
}

impl Usage {
    /// Of these processes, now.
    pub fn of(members: &[Member]) -> Usage {
        let mut usage = Usage::default();
        for member in members {
            let process = format!("/proc/{}", member.pid);
            usage.ticks.insert(member.pid, member.ticks);
            usage.own_ticks.insert(member.pid, member.own_ticks);
            let tasks = fs::read_dir(format!("{process}/task")).into_iter().flatten().flatten();
            for task in tasks.filter_map(|e| e.file_name().to_str()?.parse::<i32>().ok()) {
                let read = |file: &str| {
                    fs::read_to_string(format!("{process}/task/{task}/{file}")).unwrap_or_default()
                };
                usage.threads.insert(task, thread_use(&read("schedstat"), &read("status")));
            }
        }
        usage.rss = resident(members);
        usage
    }

    /// Whether there is no process.
    pub fn is_empty(&self) -> bool {
        self.ticks.is_empty()
    }

    /// Processor time from `before` to this.
    pub fn cpu_since(&self, before: &Usage) -> Duration {
        let threads = Duration::from_nanos(self.grown(before, |t| t.on_cpu_ns));
        let process =
            |(pid, now): (&i32, &u64)| now.saturating_sub(before.ticks.get(pid).copied().unwrap_or(0));
        let ticks: u64 = self.ticks.iter().map(process).sum();
        let processes = TICK * u32::try_from(ticks).unwrap_or(u32::MAX);
        // The scheduler's nanoseconds are exact, but a thread that ended takes its own along, also one that
        // began after `before`; the process keeps them in ticks.
        let gone = before.threads.keys().any(|id| !self.threads.contains_key(id));
        let rounded = TICK * TICKS_ROUNDED * u32::try_from(self.ticks.len()).unwrap_or(u32::MAX);
        if gone || processes > threads + rounded { threads.max(processes) } else { threads }
    }

    /// The share of processor time that processes spent in their own code rather than in the
    /// kernel, from `before` to this; `None` where they used too little of it to tell.
    pub fn own_share_since(&self, before: &Usage) -> Option<f64> {
        let grown = |now: &BTreeMap<i32, u64>, before: &BTreeMap<i32, u64>| -> u64 {
            now.iter().map(|(pid, n)| n.saturating_sub(before.get(pid).copied().unwrap_or(0))).sum()
        };
        let all = grown(&self.ticks, &before.ticks);
        let own = grown(&self.own_ticks, &before.own_ticks);
        (all >= LEAST_TICKS).then(|| (own as f64 / all as f64).min(1.0))
    }

    /// Time for which threads were runnable without a core, from `before` to this.
    pub fn waited_since(&self, before: &Usage) -> Duration {
        Duration::from_nanos(self.grown(before, |t| t.waiting_ns))
    }

    /// Context switches from `before` to this.
    pub fn switches_since(&self, before: &Usage) -> u64 {
        self.grown(before, |t| t.switches)
    }

    fn grown(&self, before: &Usage, what: impl Fn(&ThreadUse) -> u64) -> u64 {
        let of =
            |(id, now): (&i32, &ThreadUse)| what(now).saturating_sub(before.threads.get(id).map_or(0, &what));
        self.threads.iter().map(of).sum()
    }
}

fn thread_use(schedstat: &str, status: &str) -> ThreadUse {
    let mut numbers = schedstat.split_whitespace().map(|n| n.parse().unwrap_or(0));
    let switches = |line: &str| {
        let (name, value) = line.split_once(':')?;
        let counts = ["voluntary_ctxt_switches", "nonvoluntary_ctxt_switches"].contains(&name);
        counts.then(|| value.trim().parse::<u64>().ok())?
    };
    ThreadUse {
        on_cpu_ns: numbers.next().unwrap_or(0),
        waiting_ns: numbers.next().unwrap_or(0),
        switches: status.lines().filter_map(switches).sum(),
    }
}

/// Resident memory of processes, bytes.
pub fn resident(members: &[Member]) -> u64 {
    let of = |member: &Member| {
        let status = fs::read_to_string(format!("/proc/{}/status", member.pid)).ok()?;
        let line = status.lines().find_map(|l| l.strip_prefix("VmRSS:"))?;
        line.trim().trim_end_matches("kB").trim().parse::<u64>().ok()
    };
    members.iter().filter_map(of).sum::<u64>() * 1024
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_with_brackets_does_not_shift_the_fields() {
        let text = "12 (a ) b (c) S 3 4 5 0 -1 1 2 3 4 5 60 70 8 9 10 11 12 13 999 0 0";
        let (member, state) = parse_stat(text).unwrap();
        assert_eq!((member.pid, member.parent, member.group, state), (12, 3, 4, 'S'));
        assert_eq!((member.ticks, member.started), (130, 999));
        assert_eq!(parse_stat("12 (a S 3"), None);
    }

    #[test]
    fn threads_that_end_leave_their_time_in_the_process() {
        let used = |on_cpu_ns| ThreadUse { on_cpu_ns, waiting_ns: 5, switches: 2 };
        let before = Usage {
            threads: [(1, used(10)), (2, used(20))].into(),
            ticks: [(1, 1)].into(),
            ..Usage::default()
        };
        let mut after = Usage {
            threads: [(1, used(110)), (2, used(20)), (3, used(7))].into(),
            ticks: [(1, 3)].into(),
            ..Usage::default()
        };
        assert_eq!(after.cpu_since(&before), Duration::from_nanos(107));
        // A thread for each request: they began and ended in between.
        after.ticks = [(1, 90)].into();
        assert_eq!(after.cpu_since(&before), TICK * 89);
        after.ticks = [(1, 3)].into();
        after.threads.remove(&2);
        assert_eq!(after.cpu_since(&before), TICK * 2);
        assert_eq!(
            (after.switches_since(&before), after.waited_since(&before)),
            (2, Duration::from_nanos(5))
        );
    }

    #[test]
    fn this_process_has_memory_and_threads() {
        let me = fs::read_to_string("/proc/self/stat").unwrap();
        let (member, _) = parse_stat(&me).unwrap();
        assert!(
            member.is_alive() && members(member.group).contains(&Member { ..member }) || member.ticks > 0
        );
        let usage = Usage::of(&[member]);
        assert!(usage.rss > 100_000 && !usage.threads.is_empty());
        assert!(!Member { started: 1, ..member }.is_alive());
    }
}
