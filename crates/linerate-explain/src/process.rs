//! A server's process on this machine as it is while a call is being made: its threads and what
//! they wait in, its open files, its sockets and their queues, a JVM's pauses. Pure functions over
//! the text of files; who reads them is [`crate::driver`].

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::time::Duration;

use linerate_net::sock_diag::{SocketState, TcpSocket};

use crate::occupancy::ThreadActivity;

/// Observations of the server's process: threads, files, sockets, queues.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ProcessView {
    /// Its number.
    pub pid: u32,
    /// Its name.
    pub name: String,
    /// It was found by its listening socket, and not named.
    pub found: bool,
    /// How often its threads were looked at, and during how many calls.
    pub looks: usize,
    /// Calls that were made meanwhile.
    pub calls: usize,
    /// The activity of its threads, most frequent first.
    pub threads: Vec<Doing>,
    /// Files and sockets it has open, and how many it may have.
    pub files: Option<(u64, u64)>,
    /// The port's listening sockets it has.
    pub listeners: Vec<KernelListener>,
    /// Its other TCP sockets by state.
    pub sockets: BTreeMap<&'static str, u64>,
    /// Bytes it has not read yet, and on how many connections.
    pub unread: (u64, u64),
    /// Bytes its peers have not acknowledged yet, and on how many connections.
    pub unsent: (u64, u64),
    /// Connections turned away at full accept queues of this machine since the start (TcpExt
    /// ListenOverflows, ListenDrops).
    pub turned_away: (u64, u64),
    /// A JVM's own counters of its pauses since the start.
    pub jvm: Option<Jvm>,
    /// Gaps in these observations, and oddities.
    pub notes: Vec<String>,
}

/// An activity of threads.
#[derive(Clone, Debug, PartialEq)]
pub struct Doing {
    /// In words: `running`, `waiting for events (epoll_wait)`.
    pub what: String,
    /// Threads, on average over the looks.
    pub mean: f64,
    /// The most at one look.
    pub most: usize,
    /// Names of some of them.
    pub names: Vec<String>,
}

/// A listening socket.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KernelListener {
    /// Its address.
    pub address: SocketAddr,
    /// Connections that waited to be accepted, the most seen.
    pub waiting: u32,
    /// How many may.
    pub limit: Option<u32>,
}

/// Pauses of a JVM.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Jvm {
    /// Collections of its garbage collectors.
    pub collections: u64,
    /// Time they took.
    pub collected: Duration,
    /// Times all threads were stopped, for whatever reason.
    pub safepoints: u64,
    /// Time they stood still.
    pub stopped: Duration,
}

impl Jvm {
    /// The increase since `before`.
    pub(crate) fn since(&self, before: &Jvm) -> Jvm {
        Jvm {
            collections: self.collections.saturating_sub(before.collections),
            collected: self.collected.saturating_sub(before.collected),
            safepoints: self.safepoints.saturating_sub(before.safepoints),
            stopped: self.stopped.saturating_sub(before.stopped),
        }
    }
}

/// A thread at one look.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ThreadLook {
    pub(crate) name: String,
    pub(crate) what: String,
}

/// A thread from its `stat`, `syscall` and `wchan`; the last two may be forbidden, and empty.
pub(crate) fn thread(stat: &str, syscall: &str, wchan: &str) -> Option<ThreadLook> {
    let (open, close) = (stat.find('(')?, stat.rfind(')')?);
    let name = stat.get(open + 1..close)?.to_owned();
    let state = stat.get(close + 1..)?.trim_start().chars().next()?;
    let what = match state {
        'R' => "running".to_owned(),
        'T' | 't' => "stopped by a signal or a debugger".to_owned(),
        'Z' | 'X' => "ended".to_owned(),
        'I' => "idle".to_owned(),
        _ => {
            let waits = waits_in(syscall, wchan);
            match state {
                'D' => format!("waiting for a device ({waits})"),
                _ => waits,
            }
        }
    };
    Some(ThreadLook { name, what })
}

/// The system call or kernel function in which a thread sleeps, in words.
fn waits_in(syscall: &str, wchan: &str) -> String {
    let number = syscall.split_whitespace().next().and_then(|n| n.parse::<u32>().ok());
    let wchan = wchan.trim();
    let place = match wchan {
        "" | "0" => "",
        place => place,
    };
    let called = number.and_then(|n| call_name(std::env::consts::ARCH, n)).or_else(|| of_place(place));
    match called {
        Some("futex") => "waiting for another thread (futex)".to_owned(),
        Some(name @ ("epoll_wait" | "poll" | "select" | "io_uring_enter")) => {
            format!("waiting for events ({name})")
        }
        Some(name @ ("accept" | "connect" | "flock")) => format!("waiting in {name}"),
        Some("nanosleep") => "waiting for a timer (nanosleep)".to_owned(),
        Some(name @ ("read" | "recv")) => format!("waiting for data ({name})"),
        Some(name @ ("write" | "send")) => format!("waiting until its peer reads ({name})"),
        Some(name @ ("fsync" | "fdatasync")) => format!("waiting for the disk ({name})"),
        Some("wait4") => "waiting for another process (wait4)".to_owned(),
        Some("sigwait") => "waiting for a signal".to_owned(),
        _ if !place.is_empty() => format!("waiting in the kernel ({place})"),
        _ => "waiting".to_owned(),
    }
}

/// What a thread of a server under load does, from the same files. `is_client`: whether a descriptor is
/// a connection of the server's own clients; `None` where that cannot be told.
pub(crate) fn activity(
    stat: &str,
    syscall: &str,
    wchan: &str,
    is_client: impl Fn(u32) -> Option<bool>,
) -> Option<ThreadActivity> {
    let state = stat.get(stat.rfind(')')? + 1..)?.trim_start().chars().next()?;
    match state {
        'R' => return Some(ThreadActivity::Running),
        'D' => return Some(ThreadActivity::Blocked("a device")),
        'Z' | 'X' => return None,
        'S' => {}
        _ => return Some(ThreadActivity::Other),
    }
    let mut words = syscall.split_whitespace();
    let number = words.next().and_then(|n| n.parse::<u32>().ok());
    let call = number.and_then(|n| call_name(std::env::consts::ARCH, n)).or_else(|| of_place(wchan.trim()));
    let argument = words.next().and_then(|w| u32::from_str_radix(w.strip_prefix("0x")?, 16).ok());
    Some(match call {
        Some("futex") => ThreadActivity::Waiting,
        Some("epoll_wait" | "poll" | "select" | "io_uring_enter" | "accept") => ThreadActivity::Free,
        Some(call @ ("read" | "recv")) => match argument.and_then(is_client) {
            Some(true) => ThreadActivity::Free,
            Some(false) => ThreadActivity::Blocked(call),
            None => ThreadActivity::Other,
        },
        Some(call @ ("nanosleep" | "write" | "send" | "fsync" | "fdatasync" | "connect" | "flock")) => {
            ThreadActivity::Blocked(call)
        }
        _ => ThreadActivity::Other,
    })
}

/// System calls in which servers wait, by their numbers: x86-64, AArch64.
const CALLS: [(&str, &[u32], &[u32]); 17] = [
    ("futex", &[202, 449], &[98, 449]),
    ("epoll_wait", &[232, 281, 441], &[22, 441]),
    ("poll", &[7, 271], &[73]),
    ("select", &[23, 270], &[72]),
    ("io_uring_enter", &[426], &[426]),
    ("accept", &[43, 288], &[202, 242]),
    ("connect", &[42], &[203]),
    ("nanosleep", &[35, 230], &[101, 115]),
    ("read", &[0, 17, 19], &[63, 65, 67]),
    ("recv", &[45, 47, 299], &[207, 212, 243]),
    ("write", &[1, 18, 20], &[64, 66, 68]),
    ("send", &[44, 46, 40], &[206, 211, 71]),
    ("fsync", &[74], &[82]),
    ("fdatasync", &[75], &[83]),
    ("flock", &[73], &[32]),
    ("wait4", &[61, 247], &[260, 95]),
    ("sigwait", &[128, 130], &[137, 133]),
];

fn call_name(arch: &str, number: u32) -> Option<&'static str> {
    let of = |(_, x86, arm): &&(&str, &[u32], &[u32])| match arch {
        "x86_64" => x86.contains(&number),
        "aarch64" => arm.contains(&number),
        _ => false,
    };
    CALLS.iter().find(of).map(|(name, ..)| *name)
}

/// The same by the place in the kernel, where the call's number may not be read.
fn of_place(place: &str) -> Option<&'static str> {
    const PLACES: [(&str, &str); 10] = [
        ("futex", "futex"),
        ("ep_poll", "epoll_wait"),
        ("poll_schedule", "poll"),
        ("inet_csk_accept", "accept"),
        ("hrtimer_nanosleep", "nanosleep"),
        ("do_nanosleep", "nanosleep"),
        ("pipe_read", "read"),
        ("wait_woken", "read"),
        ("do_wait", "wait4"),
        ("io_cqring_wait", "io_uring_enter"),
    ];
    PLACES.iter().find(|(start, _)| place.starts_with(start)).map(|(_, name)| *name)
}

/// Names of threads kept for each thing they do. Reason: it is shown on a line.
const NAMES: usize = 3;

/// Several looks at all threads, as one list.
pub(crate) fn doing(looks: &[Vec<ThreadLook>]) -> Vec<Doing> {
    let mut by_what: BTreeMap<&str, (usize, usize, BTreeMap<String, usize>)> = BTreeMap::new();
    for look in looks {
        let mut now: BTreeMap<&str, usize> = BTreeMap::new();
        for thread in look {
            *now.entry(&thread.what).or_default() += 1;
            let (_, _, names) = by_what.entry(&thread.what).or_default();
            *names.entry(kind_of(&thread.name)).or_default() += 1;
        }
        for (what, n) in now {
            let (sum, most, _) = by_what.entry(what).or_default();
            *sum += n;
            *most = (*most).max(n);
        }
    }
    let mut all: Vec<Doing> = by_what
        .into_iter()
        .map(|(what, (sum, most, names))| {
            let mut names: Vec<(String, usize)> = names.into_iter().collect();
            names.sort_by(|a, b| b.1.cmp(&a.1).then_with(|| a.0.cmp(&b.0)));
            Doing {
                what: what.to_owned(),
                mean: sum as f64 / looks.len().max(1) as f64,
                most,
                names: names.into_iter().take(NAMES).map(|(name, _)| name).collect(),
            }
        })
        .collect();
    all.sort_by(|a, b| b.mean.total_cmp(&a.mean).then_with(|| a.what.cmp(&b.what)));
    all
}

/// Threads of a pool have the same name with a number: `pool-1-thread-7` is `pool-1-thread-N`.
fn kind_of(name: &str) -> String {
    let bare = name.trim_end_matches(|c: char| c.is_ascii_digit());
    if bare.len() < name.len() && !bare.is_empty() { format!("{bare}N") } else { name.to_owned() }
}

/// How many files a process may open, from `/proc/PID/limits`.
pub(crate) fn file_limit(text: &str) -> Option<u64> {
    let line = text.lines().find(|l| l.starts_with("Max open files"))?;
    let soft = line.trim_start_matches("Max open files").split_whitespace().next()?;
    if soft == "unlimited" { Some(u64::MAX) } else { soft.parse().ok() }
}

/// Inodes that an epoll watches, from its `fdinfo`.
pub(crate) fn epoll_inodes(text: &str) -> Vec<u32> {
    let inode = |line: &str| {
        let (_, rest) = line.strip_prefix("tfd:")?.split_once(" ino:")?;
        u32::from_str_radix(rest.split_whitespace().next()?, 16).ok()
    };
    text.lines().filter_map(inode).collect()
}

/// A process in words: its number, and its name where that is known.
pub(crate) fn called(pid: u32, name: &str) -> String {
    if name.is_empty() { pid.to_string() } else { format!("{pid} ({name})") }
}

/// The number of a socket, from what a descriptor's link says.
pub(crate) fn socket_inode(link: &str) -> Option<u32> {
    link.strip_prefix("socket:[")?.strip_suffix(']')?.parse().ok()
}

/// The sockets of `/proc/PID/net/tcp` or `tcp6`: as [`TcpSocket`], without the limits of listening
/// ones.
pub(crate) fn proc_net_tcp(text: &str) -> impl Iterator<Item = TcpSocket> {
    text.lines().skip(1).filter_map(|line| {
        let mut fields = line.split_whitespace().skip(1);
        let (local, peer) = (end(fields.next()?)?, end(fields.next()?)?);
        let state = SocketState(u8::from_str_radix(fields.next()?, 16).ok()?);
        let (send, receive) = fields.next()?.split_once(':')?;
        let queue = |hex| u32::from_str_radix(hex, 16).ok();
        let inode = fields.nth(4)?.parse().ok()?;
        Some(TcpSocket {
            state,
            local,
            peer,
            receive_queue: queue(receive)?,
            send_queue: queue(send)?,
            inode,
        })
    })
}

/// `0100007F:1F90`: an address in words of the machine's byte order, and a port.
fn end(text: &str) -> Option<SocketAddr> {
    let (address, port) = text.split_once(':')?;
    let port = u16::from_str_radix(port, 16).ok()?;
    let word = |at: usize| u32::from_str_radix(address.get(at..at + 8)?, 16).ok().map(u32::to_ne_bytes);
    let ip = match address.len() {
        8 => IpAddr::V4(Ipv4Addr::from(word(0)?)),
        32 => {
            let words = [word(0)?, word(8)?, word(16)?, word(24)?];
            IpAddr::V6(Ipv6Addr::from(<[u8; 16]>::try_from(words.concat()).ok()?))
        }
        _ => return None,
    };
    Some(SocketAddr::new(ip, port))
}

impl ProcessView {
    /// Its number, and its name where that is known.
    pub fn called(&self) -> String {
        called(self.pid, &self.name)
    }

    /// Adds what its sockets are: those that listen on `port`, the others by state. `limits`:
    /// queues of listening ones say theirs.
    pub(crate) fn take_sockets(&mut self, own: &[TcpSocket], port: u16, limits: bool) {
        for socket in own {
            if socket.state == SocketState::LISTEN {
                if socket.local.port() == port {
                    let limit = limits.then_some(socket.send_queue);
                    self.listeners.push(KernelListener {
                        address: socket.local,
                        waiting: socket.receive_queue,
                        limit,
                    });
                }
                continue;
            }
            *self.sockets.entry(socket.state.name()).or_default() += 1;
            for (sum, queue) in
                [(&mut self.unread, socket.receive_queue), (&mut self.unsent, socket.send_queue)]
            {
                sum.0 += u64::from(queue);
                sum.1 += u64::from(queue > 0);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[cfg(target_arch = "x86_64")]
    fn what_keeps_a_thread_from_other_requests() {
        let of = |state: char, syscall: &str| {
            activity(&format!("7 (a ) b) {state} 1"), syscall, "", |fd| match fd {
                5 => Some(true),
                6 => Some(false),
                _ => None,
            })
        };
        assert_eq!(of('R', "running"), Some(ThreadActivity::Running));
        assert_eq!(of('S', "230 0x0 0x0"), Some(ThreadActivity::Blocked("nanosleep")));
        assert_eq!(of('S', "45 0x5 0x0"), Some(ThreadActivity::Free), "its client has no request");
        assert_eq!(of('S', "45 0x6 0x0"), Some(ThreadActivity::Blocked("recv")), "another server");
        assert_eq!(of('S', "45 0x7 0x0"), Some(ThreadActivity::Other));
        assert_eq!(of('S', "232 0x7 0x0"), Some(ThreadActivity::Free));
        assert_eq!(of('S', "202 0x7"), Some(ThreadActivity::Waiting));
        assert_eq!(of('D', ""), Some(ThreadActivity::Blocked("a device")));
        assert_eq!((of('Z', ""), of('S', "")), (None, Some(ThreadActivity::Other)));
    }

    #[test]
    fn what_an_epoll_watches() {
        let text = "pos:\t0\nflags:\t02\ntfd:        5 events:       19 data:                5  pos:0 ino:1f2a sdev:9\n\
                    tfd:        6 events:       19 data: 6\n";
        assert_eq!(epoll_inodes(text), [0x1f2a]);
    }

    #[test]
    fn an_unknown_name_is_left_out() {
        assert_eq!(ProcessView { pid: 7, ..ProcessView::default() }.called(), "7");
        assert_eq!(called(7, "java"), "7 (java)");
    }

    #[test]
    fn what_a_thread_does() {
        let of = |stat: &str, syscall: &str, wchan: &str| thread(stat, syscall, wchan).map(|t| t.what);
        assert_eq!(of("7 (a b) c) R 1 2", "running", "0").as_deref(), Some("running"));
        assert_eq!(thread("7 (a b) c) R 1 2", "", "").map(|t| t.name).as_deref(), Some("a b) c"));
        assert_eq!(
            of("7 (x) S 1", "", "futex_do_wait").as_deref(),
            Some("waiting for another thread (futex)")
        );
        assert_eq!(of("7 (x) S 1", "", "ep_poll").as_deref(), Some("waiting for events (epoll_wait)"));
        assert_eq!(of("7 (x) S 1", "", "xfs_log").as_deref(), Some("waiting in the kernel (xfs_log)"));
        assert_eq!(of("7 (x) D 1", "", "").as_deref(), Some("waiting for a device (waiting)"));
        assert_eq!((of("", "", ""), of("7 (x", "", "")), (None, None));
        assert_eq!(call_name("x86_64", 202), Some("futex"));
        assert_eq!(call_name("aarch64", 22), Some("epoll_wait"));
        assert_eq!(call_name("riscv64", 22), None);
    }

    #[test]
    fn looks_become_a_list() {
        let seen = |name: &str, what: &str| ThreadLook { name: name.to_owned(), what: what.to_owned() };
        let looks = [
            vec![seen("pool-1", "running"), seen("pool-2", "waiting"), seen("main", "waiting")],
            vec![seen("pool-1", "waiting"), seen("pool-2", "waiting"), seen("main", "waiting")],
        ];
        let all = doing(&looks);
        assert_eq!((all[0].what.as_str(), all[0].mean, all[0].most), ("waiting", 2.5, 3));
        assert_eq!(all[0].names, ["pool-N", "main"]);
        assert_eq!((all[1].what.as_str(), all[1].mean, all[1].most), ("running", 0.5, 1));
        assert!(doing(&[]).is_empty());
    }

    #[test]
    fn the_kernels_files() {
        let limits =
            "Limit   Soft  Hard\nMax open files            1024                 524288               files\n";
        assert_eq!((file_limit(limits), file_limit("")), (Some(1024), None));
        assert_eq!((socket_inode("socket:[77]"), socket_inode("/dev/null")), (Some(77), None));
        let text = "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode\n   \
                    0: 0100007F:1F90 00000000:0000 0A 00000000:00000002 00:00000000 00000000  1000        0 4711 1 0 100 0\n \
                    broken\n";
        let sockets: Vec<_> = proc_net_tcp(text).collect();
        assert_eq!(sockets.len(), 1);
        assert_eq!((sockets[0].receive_queue, sockets[0].inode), (2, 4711));
        if cfg!(target_endian = "little") {
            assert_eq!(sockets[0].local, ([127, 0, 0, 1], 8080).into());
        }
        let mut view = ProcessView::default();
        let other = TcpSocket { state: SocketState(1), receive_queue: 5, send_queue: 0, ..sockets[0] };
        view.take_sockets(&[sockets[0], other, other], 8080, false);
        assert_eq!((view.listeners[0].waiting, view.listeners[0].limit), (2, None));
        assert_eq!((view.sockets["established"], view.unread, view.unsent), (2, (10, 2), (0, 0)));
    }

    proptest::proptest! {
        #[test]
        fn any_text_is_read_without_harm(text in ".{0,200}", line in "[0-9A-F: ]{0,200}") {
            for text in [&text, &line] {
                let _ = (thread(text, text, text), file_limit(text), socket_inode(text));
                let _ = proc_net_tcp(&format!("head\n0: {text}")).count();
            }
        }
    }
}
