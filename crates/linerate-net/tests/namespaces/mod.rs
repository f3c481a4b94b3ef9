//! Two network namespaces with a cable between them, for tests that need root.
#![allow(dead_code)] // each test program uses its part

use std::fs::File;
use std::io::Read;
use std::net::{Ipv4Addr, Ipv6Addr};
use std::os::fd::AsFd;
use std::process::{Child, Command, Output, Stdio};
use std::thread;

use linerate_skips::{need, skip_part};
use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};

/// Our end of the cable, in the namespace [`Cable::ours`].
pub(crate) const OURS: &str = "here";
/// The kernel's end, in [`Cable::theirs`].
pub(crate) const THEIRS: &str = "there";
pub(crate) const OUR_V4: Ipv4Addr = Ipv4Addr::new(10, 77, 0, 1);
pub(crate) const THEIR_V4: Ipv4Addr = Ipv4Addr::new(10, 77, 0, 2);
pub(crate) const OUR_V6: Ipv6Addr = Ipv6Addr::new(0xfd77, 0, 0, 0, 0, 0, 0, 1);
pub(crate) const THEIR_V6: Ipv6Addr = Ipv6Addr::new(0xfd77, 0, 0, 0, 0, 0, 0, 2);

/// Behind the router of [`Cable::beyond`].
pub(crate) const FAR_V4: Ipv4Addr = Ipv4Addr::new(10, 78, 0, 2);
pub(crate) const FAR_V6: Ipv6Addr = Ipv6Addr::new(0xfd78, 0, 0, 0, 0, 0, 0, 2);
const ROUTER_V4: Ipv4Addr = Ipv4Addr::new(10, 78, 0, 1);
const ROUTER_V6: Ipv6Addr = Ipv6Addr::new(0xfd78, 0, 0, 0, 0, 0, 0, 1);

/// A network namespace. It ends with its keeper process, which ends with this process.
pub(crate) struct Namespace(Child);

impl Namespace {
    fn new() -> Option<Namespace> {
        // The keeper reports that it runs, then waits for the end of its input, which this process
        // holds open.
        let mut child = Command::new("unshare")
            .args(["--net", "sh", "-c", "echo; exec cat"])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .ok()?;
        let there = child.stdout.take().is_some_and(|mut out| out.read_exact(&mut [0]).is_ok());
        if !there {
            let _ = child.kill();
            let _ = child.wait();
            return None;
        }
        Some(Namespace(child))
    }

    /// The process id by which commands name the namespace.
    pub(crate) fn pid(&self) -> u32 {
        self.0.id()
    }

    /// Moves the calling thread, and processes it starts, into the namespace.
    pub(crate) fn enter(&self) {
        let file = File::open(format!("/proc/{}/ns/net", self.pid())).expect("the namespace");
        move_into_link_name_space(file.as_fd(), Some(LinkNameSpaceType::Network)).expect("root may");
    }

    /// Runs `what` on a thread in the namespace.
    pub(crate) fn run<T: Send>(&self, what: impl FnOnce() -> T + Send) -> T {
        thread::scope(|scope| {
            let inside = scope.spawn(|| {
                self.enter();
                what()
            });
            inside.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
        })
    }

    /// Runs a command line in the namespace; single spaces separate the words.
    pub(crate) fn command(&self, line: &str) -> Output {
        let mut words = line.split(' ');
        let program = words.next().expect("a program");
        let args: Vec<&str> = words.collect();
        self.run(|| Command::new(program).args(args).output().unwrap_or_else(|e| panic!("{line}: {e}")))
    }

    /// Runs a command that must succeed; returns its output.
    pub(crate) fn must(&self, line: &str) -> String {
        let out = self.command(line);
        assert!(out.status.success(), "{line}: {}", String::from_utf8_lossy(&out.stderr));
        String::from_utf8_lossy(&out.stdout).into_owned()
    }

    /// Pings, which must succeed; the timeout allows for a busy machine. Without a `ping` program
    /// it says so and returns.
    pub(crate) fn ping(&self, arguments: &str) {
        if Command::new("ping").arg("-V").output().is_err() {
            return skip_part("pings", "ping", "ping is not installed");
        }
        self.must(&format!("ping -W 20 {arguments}"));
    }
}

impl Drop for Namespace {
    fn drop(&mut self) {
        drop(self.0.stdin.take());
        let _ = self.0.wait();
    }
}

/// Two namespaces and a veth pair: the stack under test has one end, the kernel's stack the other.
pub(crate) struct Cable {
    pub(crate) ours: Namespace,
    pub(crate) theirs: Namespace,
}

impl Cable {
    /// Returns `None` if namespaces cannot be created; the test is reported as skipped. `queues`: of
    /// each end.
    pub(crate) fn new(queues: u32) -> Option<Cable> {
        Cable::for_part("", queues)
    }

    /// The same for a part of a test that runs otherwise.
    pub(crate) fn for_part(part: &str, queues: u32) -> Option<Cable> {
        let pair = Namespace::new().zip(Namespace::new()).filter(|_| rustix::process::geteuid().is_root());
        let Some((ours, theirs)) = pair else {
            skip_part(part, need::NAMESPACES, "it takes root and network namespaces");
            return None;
        };
        let cable = Cable { ours, theirs };
        let (q, peer) = (queues, cable.theirs.pid());
        cable.ours.must(&format!(
            "ip link add {OURS} numrxqueues {q} numtxqueues {q} type veth peer name {THEIRS} numrxqueues {q} numtxqueues {q} \
             netns {peer}"
        ));
        for (end, name, v4, v6) in
            [(&cable.ours, OURS, OUR_V4, OUR_V6), (&cable.theirs, THEIRS, THEIR_V4, THEIR_V6)]
        {
            end.must(&format!("ip address add {v4}/24 dev {name}"));
            end.must(&format!("ip address add {v6}/64 dev {name} nodad"));
            end.must("ip link set lo up");
            end.must(&format!("ip link set {name} up"));
        }
        cable.wait_for_carrier();
        Some(cable)
    }

    /// Makes their end a router to a third namespace, over a cable of this MTU in the middle of the
    /// path, which both ends of the path do not know. The host there, [`FAR_V4`] and [`FAR_V6`],
    /// announces full segments.
    pub(crate) fn beyond(&self, mtu: u32) -> Namespace {
        let far = Namespace::new().expect("there were two");
        let pid = far.pid();
        self.theirs
            .must(&format!("ip link add inner mtu {mtu} type veth peer name outer mtu {mtu} netns {pid}"));
        self.theirs.must(&format!("ip address add {ROUTER_V4}/24 dev inner"));
        self.theirs.must(&format!("ip address add {ROUTER_V6}/64 dev inner nodad"));
        self.theirs.must("ip link set inner up");
        self.theirs.must("sysctl -qw net.ipv4.ip_forward=1 net.ipv6.conf.all.forwarding=1");
        far.must("ip link set lo up");
        far.must(&format!("ip address add {FAR_V4}/24 dev outer"));
        far.must(&format!("ip address add {FAR_V6}/64 dev outer nodad"));
        far.must("ip link set outer up");
        far.must(&format!("ip route add 10.77.0.0/24 via {ROUTER_V4} advmss 1460"));
        far.must(&format!("ip route add fd77::/64 via {ROUTER_V6} advmss 1440"));
        self.ours.must(&format!("ip route add 10.78.0.0/24 via {THEIR_V4}"));
        self.ours.must(&format!("ip route add fd78::/64 via {THEIR_V6}"));
        for _ in 0..1000 {
            if far.must("ip link show outer").contains("state UP") {
                return far;
            }
            thread::sleep(std::time::Duration::from_millis(5));
        }
        panic!("the second cable has no carrier");
    }

    /// Makes their end a NAT with two hosts behind it. All their connections to `to` come from
    /// [`THEIR_V4`] and port `from`, if the last connection is at least a second old. `None`: this
    /// kernel has no NAT.
    pub(crate) fn behind_one_port(&self, to: u16, from: u16) -> Option<[Namespace; 2]> {
        let hosts = [1, 2].map(|n| {
            let host = Namespace::new().expect("there were two");
            let pid = host.pid();
            self.theirs.must(&format!("ip link add inner{n} type veth peer name outer netns {pid}"));
            self.theirs.must(&format!("ip address add 10.80.{n}.1/24 dev inner{n}"));
            self.theirs.must(&format!("ip link set inner{n} up"));
            host.must(&format!("ip address add 10.80.{n}.2/24 dev outer"));
            host.must("ip link set outer up");
            host.must(&format!("ip route add default via 10.80.{n}.1"));
            host
        });
        self.theirs.must("sysctl -qw net.ipv4.ip_forward=1");
        let rules = [
            "nft add table ip nat".to_owned(),
            "nft add chain ip nat post {type nat hook postrouting priority 100;}".to_owned(),
            format!("nft add rule ip nat post oifname {THEIRS} tcp dport {to} snat to {THEIR_V4}:{from}"),
            "sysctl -qw net.netfilter.nf_conntrack_tcp_timeout_time_wait=1".to_owned(),
            "sysctl -qw net.netfilter.nf_conntrack_tcp_timeout_close=1".to_owned(),
        ];
        let made = rules.iter().all(|rule| self.theirs.command(rule).status.success());
        made.then_some(hosts)
    }

    /// A namespace whose only interface is `name`, a macvlan over our end, with this address.
    pub(crate) fn macvlan(&self, name: &str, address: Ipv4Addr) -> Namespace {
        let host = Namespace::new().expect("there were two");
        self.ours.must(&format!("ip link add {name} link {OURS} type macvlan mode bridge"));
        self.ours.must(&format!("ip link set {name} netns {}", host.pid()));
        host.must(&format!("ip address add {address}/24 dev {name}"));
        host.must(&format!("ip link set {name} up"));
        host
    }

    fn wait_for_carrier(&self) {
        for _ in 0..1000 {
            if self.theirs.must(&format!("ip link show {THEIRS}")).contains("state UP") {
                return;
            }
            thread::sleep(std::time::Duration::from_millis(5));
        }
        panic!("the cable has no carrier");
    }
}
