//! Looks at a server's process while a call is being made: reads `/proc` and asks the kernel for
//! its sockets.

use std::collections::HashSet;
use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use linerate_net::machine;
use linerate_net::sock_diag::{SocketState, TcpSocket, tcp_sockets};

use super::counters::counter;
use super::process::perf_file;
use crate::limits::{FILES, LOOKS, PROCESSES, SOCKETS, THREADS};
use crate::local::jvm;
use crate::process::{
    Jvm, ProcessView, ThreadLook, called, doing, epoll_inodes, file_limit, proc_net_tcp, socket_inode,
    thread as thread_of,
};

/// Between two looks. Reason: the shortest stall that matters is a few milliseconds long.
const BETWEEN: Duration = Duration::from_millis(1);
/// Looks that are enough.
const ENOUGH: usize = 5;
/// Calls made for them, at most.
const CALLS: usize = 3;

/// State of the server's process at the start of an explanation: counts start from these values.
#[derive(Debug)]
pub(super) struct ProcessWatch {
    pid: u32,
    /// Read before it can end.
    name: String,
    port: u16,
    began: Option<u64>,
    turned_away: (u64, u64),
    jvm: Option<Jvm>,
}

impl ProcessWatch {
    /// From now on. `port`: the one that the server listens on.
    pub(super) fn new(pid: u32, port: u16) -> ProcessWatch {
        let name = name(pid);
        ProcessWatch { pid, name, port, began: began(pid), turned_away: turned_away(pid), jvm: jvm_of(pid) }
    }

    /// Looks at the process while `call` runs, as often as that takes; `calls`: how many calls
    /// there may be.
    pub(super) fn look(&self, calls: usize, mut call: impl FnMut()) -> ProcessView {
        let pid = self.pid;
        let name = Some(name(pid)).filter(|now| !now.is_empty()).unwrap_or_else(|| self.name.clone());
        let mut view = ProcessView { pid, name, ..Default::default() };
        let mut looks: Vec<Vec<ThreadLook>> = Vec::new();
        let mut waiting = Vec::new();
        while view.calls < calls.min(CALLS) && looks.len() < ENOUGH && self.is_there() {
            let over = AtomicBool::new(false);
            let seen = std::thread::scope(|scope| {
                let looker = scope.spawn(|| self.looks(&over));
                call();
                over.store(true, Ordering::Release);
                looker.join().unwrap_or_default()
            });
            view.calls += 1;
            looks.extend(seen.0);
            waiting.extend(seen.1);
        }
        if looks.is_empty() && self.is_there() {
            looks.push(threads(pid));
        }
        if !self.is_there() {
            view.notes.push(format!("process {pid} has ended while we looked"));
            return view;
        }
        view.looks = looks.len();
        view.threads = doing(&looks);
        self.files_and_sockets(&mut view);
        for listener in &mut view.listeners {
            // The most that was seen: a queue is full for moments.
            let most = waiting.iter().filter(|(a, _)| *a == listener.address).map(|(_, n)| *n).max();
            listener.waiting = listener.waiting.max(most.unwrap_or(0));
        }
        let now = turned_away(pid);
        let since = |now: u64, before: u64| now.saturating_sub(before);
        view.turned_away = (since(now.0, self.turned_away.0), since(now.1, self.turned_away.1));
        view.jvm = jvm_of(pid).zip(self.jvm).map(|(now, before)| now.since(&before));
        view
    }

    fn is_there(&self) -> bool {
        self.began.is_some() && began(self.pid) == self.began
    }

    /// Until it is `over`: the threads at each look, and the accept queues.
    fn looks(&self, over: &AtomicBool) -> (Vec<Vec<ThreadLook>>, Vec<(std::net::SocketAddr, u32)>) {
        let (mut looks, mut waiting) = (Vec::new(), Vec::new());
        while looks.len() < LOOKS {
            looks.push(threads(self.pid));
            if let Ok((all, _)) = tcp_sockets(SOCKETS) {
                let listens = |s: &&TcpSocket| s.state == SocketState::LISTEN && s.local.port() == self.port;
                waiting.extend(all.iter().filter(listens).map(|s| (s.local, s.receive_queue)));
            }
            if over.load(Ordering::Acquire) {
                break;
            }
            std::thread::sleep(BETWEEN);
        }
        (looks, waiting)
    }

    fn files_and_sockets(&self, view: &mut ProcessView) {
        let pid = self.pid;
        let whose = format!("process {}", view.called());
        let (open, inodes) = match descriptors(pid) {
            Ok(found) => found,
            Err(e) => {
                let why = if e.kind() == ErrorKind::PermissionDenied {
                    "it belongs to somebody else: run this as its user or as root".to_owned()
                } else {
                    e.to_string()
                };
                view.notes.push(format!("open files and sockets of {whose} cannot be seen: {why}"));
                return;
            }
        };
        view.files = file_limit(&read(pid, "limits")).map(|limit| (open, limit));
        let (all, limits) = self.sockets(view);
        let own: Vec<TcpSocket> = all.iter().filter(|s| inodes.contains(&s.inode)).copied().collect();
        view.take_sockets(&own, self.port, limits);
        if view.listeners.is_empty() {
            let listening =
                all.iter().find(|s| s.state == SocketState::LISTEN && s.local.port() == self.port);
            let owner = listening.and_then(|s| owner_of(s.inode));
            let other = owner.map(|pid| format!("; process {} does", called(pid, &name(pid))));
            view.notes.push(format!(
                "{whose} does not listen on port {}{}: what is said of it may have nothing to do with the call",
                self.port,
                other.unwrap_or_default()
            ));
        }
    }

    /// All sockets of the process's network namespace, and whether listening ones tell their limit.
    fn sockets(&self, view: &mut ProcessView) -> (Vec<TcpSocket>, bool) {
        let space = |pid: &str| read_link(pid, "ns/net");
        if space("self") == space(&self.pid.to_string())
            && let Ok((all, more)) = tcp_sockets(SOCKETS)
        {
            if more {
                view.notes.push(format!(
                    "there are more than {SOCKETS} TCP sockets: only the first were looked at"
                ));
            }
            return (all, true);
        }
        let text = |name| read(self.pid, name);
        let all = ["net/tcp", "net/tcp6"].map(text);
        (all.iter().flat_map(|t| proc_net_tcp(t)).take(SOCKETS).collect(), false)
    }
}

pub(super) fn read(pid: u32, name: &str) -> String {
    fs::read_to_string(format!("/proc/{pid}/{name}")).unwrap_or_default()
}

pub(super) fn read_link(pid: &str, name: &str) -> Option<PathBuf> {
    fs::read_link(format!("/proc/{pid}/{name}")).ok()
}

fn name(pid: u32) -> String {
    read(pid, "comm").trim().to_owned()
}

/// When the process was started: the same number may be given to another one.
fn began(pid: u32) -> Option<u64> {
    let stat = read(pid, "stat");
    stat.get(stat.rfind(')')? + 1..)?.split_whitespace().nth(19)?.parse().ok()
}

/// The process that started it.
pub(super) fn parent(pid: u32) -> Option<u32> {
    let stat = read(pid, "stat");
    stat.get(stat.rfind(')')? + 1..)?.split_whitespace().nth(1)?.parse().ok()
}

pub(super) fn threads(pid: u32) -> Vec<ThreadLook> {
    let Ok(tasks) = fs::read_dir(format!("/proc/{pid}/task")) else { return Vec::new() };
    let text = |task: &Path, name: &str| fs::read_to_string(task.join(name)).unwrap_or_default();
    let one = |entry: fs::DirEntry| {
        let task = entry.path();
        thread_of(&text(&task, "stat"), &text(&task, "syscall"), &text(&task, "wchan"))
    };
    tasks.flatten().take(THREADS).filter_map(one).collect()
}

/// How many descriptors are open in the fullest table, and the sockets in all tables of a process.
pub(super) fn descriptors(pid: u32) -> std::io::Result<(u64, HashSet<u32>)> {
    let (mut open, mut sockets) = descriptors_in(Path::new(&format!("/proc/{pid}/fd")))?;
    for task in threads_with_own_tables(pid) {
        // A thread may have ended.
        if let Ok((more, others)) = descriptors_in(&task.join("fd")) {
            open = open.max(more);
            sockets.extend(others);
        }
    }
    Ok((open, sockets))
}

/// The folders of threads whose table of descriptors is their own (unshare(2), `CLONE_FILES`). None where the
/// kernel does not tell which these are.
pub(super) fn threads_with_own_tables(pid: u32) -> impl Iterator<Item = PathBuf> {
    let tasks = fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten().take(THREADS);
    let own = tasks.filter(move |task| {
        let thread = task.file_name().to_str().and_then(|name| name.parse::<u32>().ok());
        thread.is_some_and(|thread| matches!(machine::share_descriptors(pid, thread), Ok(false)))
    });
    own.map(|task| task.path())
}

fn descriptors_in(folder: &Path) -> std::io::Result<(u64, HashSet<u32>)> {
    let (mut open, mut sockets) = (0, HashSet::new());
    for entry in fs::read_dir(folder)?.flatten().take(FILES) {
        open += 1;
        let inode = fs::read_link(entry.path()).ok().and_then(|link| socket_inode(link.to_str()?));
        sockets.extend(inode);
    }
    Ok((open, sockets))
}

/// Inodes of all that the epolls of a process watch (`/proc/PID/fdinfo`).
pub(super) fn watched_inodes(pid: u32) -> HashSet<u32> {
    let own = PathBuf::from(format!("/proc/{pid}"));
    let tables = std::iter::once(own).chain(threads_with_own_tables(pid));
    tables.flat_map(|table| watched_in(&table)).collect()
}

fn watched_in(table: &Path) -> HashSet<u32> {
    let folder = fs::read_dir(table.join("fd")).into_iter().flatten().flatten().take(FILES);
    let polls =
        folder.filter(|e| fs::read_link(e.path()).is_ok_and(|l| l.ends_with("anon_inode:[eventpoll]")));
    // A descriptor may be closed meanwhile.
    let texts = polls.filter_map(|e| fs::read_to_string(table.join("fdinfo").join(e.file_name())).ok());
    texts.flat_map(|text| epoll_inodes(&text)).collect()
}

/// Which process has the socket.
fn owner_of(inode: u32) -> Option<u32> {
    let all = fs::read_dir("/proc").ok()?.flatten();
    let pids = all.filter_map(|e| e.file_name().to_str()?.parse::<u32>().ok()).take(PROCESSES);
    pids.into_iter().find(|pid| descriptors(*pid).is_ok_and(|(_, sockets)| sockets.contains(&inode)))
}

fn turned_away(pid: u32) -> (u64, u64) {
    let text = read(pid, "net/netstat");
    (counter(&text, "ListenOverflows"), counter(&text, "ListenDrops"))
}

fn jvm_of(pid: u32) -> Option<Jvm> {
    jvm(&fs::read(perf_file(pid)?).ok()?)
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;
    use std::process::{Command, Stdio};

    use super::*;

    #[test]
    fn a_process_that_ends_meanwhile_is_said_to() {
        let mut child =
            Command::new("sleep").arg("60").stdout(Stdio::null()).spawn().expect("sleep is there");
        let watch = ProcessWatch::new(child.id(), 80);
        assert!(watch.look(0, || ()).notes.iter().any(|n| n.contains("does not listen on port 80")));
        child.kill().expect("ours");
        child.wait().expect("it ends");
        let view = watch.look(3, || unreachable!("there is nothing to look at"));
        assert_eq!((view.notes.len(), view.looks, view.name.is_empty()), (1, 0, false));
        assert!(view.notes[0].contains("has ended while we looked"), "{:?}", view.notes);
    }

    #[test]
    fn tables_of_threads_are_looked_at() {
        let (told, is_told) = std::sync::mpsc::channel();
        let (over, is_over) = std::sync::mpsc::channel::<()>();
        let thread = std::thread::spawn(move || {
            if machine::own_descriptors().is_err() {
                return told.send(None);
            }
            let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
            let sent = told.send(listener.local_addr().ok());
            let _ = is_over.recv();
            sent
        });
        let address = is_told.recv().expect("told");
        let own = address.is_some_and(|address| {
            let (all, _) = tcp_sockets(SOCKETS).expect("sock_diag");
            let socket = all.iter().find(|s| s.local == address).expect("it listens");
            let pid = std::process::id();
            let first = descriptors_in(Path::new(&format!("/proc/{pid}/fd"))).expect("ours").1;
            let known = threads_with_own_tables(pid).next().is_some();
            let found = descriptors(pid).expect("ours").1.contains(&socket.inode);
            assert!(!first.contains(&socket.inode) && found == known, "kcmp: {known}, found: {found}");
            known
        });
        over.send(()).expect("it waits");
        thread.join().expect("it ends").expect("told");
        // A kernel without kcmp(2), or a sandbox, hides them.
        assert!(own || machine::share_descriptors(std::process::id(), std::process::id()).is_err());
    }

    #[test]
    fn what_waits_during_a_call_is_seen() {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let address = listener.local_addr().expect("an address");
        let watch = ProcessWatch::new(std::process::id(), address.port());
        let mut calls = 0;
        let view = watch.look(2, || {
            calls += 1;
            let waiting = std::net::TcpStream::connect(address).expect("it listens");
            std::thread::sleep(Duration::from_millis(20));
            drop((waiting, listener.accept()));
        });
        assert!(calls > 0 && view.calls == calls, "as many as it took");
        assert!(view.looks >= 1 && !view.threads.is_empty() && view.files.is_some(), "{view:#?}");
        assert_eq!(
            view.listeners.iter().map(|l| (l.address, l.limit.is_some())).collect::<Vec<_>>(),
            [(address, true)]
        );
        assert_eq!(view.listeners[0].waiting, 1, "one waited while the call was made");
        assert_eq!((view.notes.as_slice(), view.jvm), (&[][..], None));
    }
}
