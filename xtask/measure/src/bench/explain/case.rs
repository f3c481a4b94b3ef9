//! A case: a fault as data.

use super::wild::Wild;

/// A cause made on purpose, or a server without a fault on the path.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Case {
    /// Its name, for `--only` and the table.
    pub(crate) name: &'static str,
    /// The id of the correct cause; empty if there is no fault.
    pub(crate) truth: &'static str,
    /// The path has no fault, so naming a cause on the path is a false alarm.
    pub(crate) alike: bool,
    /// Round-trip times at which it is tried, milliseconds.
    pub(crate) rtts: &'static [u64],
    /// Further faults of the network, as flags of `xtask net run`.
    pub(crate) net: &'static str,
    /// The server of the case.
    pub(crate) server: CaseServer,
    /// The CPUs of the server.
    pub(crate) share: ServerCpus,
    /// Activity during the case.
    pub(crate) beside: &'static [BackgroundActivity],
    /// Kernel settings of the client's side.
    pub(crate) client_sysctls: &'static [(&'static str, &'static str)],
    /// The queueing discipline of the client's interface, as `tc` takes it; empty: the usual one.
    pub(crate) client_qdisc: &'static str,
    /// Rules of the server's side, each as nft takes it.
    pub(crate) server_rules: &'static [&'static str],
    /// Kernel settings of the server's side.
    pub(crate) server_sysctls: &'static [(&'static str, &'static str)],
    /// Path of the request.
    pub(crate) path: &'static str,
    /// The request, as flags of `linerate explain`.
    pub(crate) flags: &'static [&'static str],
    /// The fault is in the calling program: `explain` makes no calls and watches those of the
    /// activity.
    pub(crate) watched: bool,
    /// `explain` gets the server's PID.
    pub(crate) pid: bool,
    /// The server is called by this name, which the client must look up.
    pub(crate) name_server: Option<CaseNameServer>,
    /// The case depends on CPU time: with `--jobs`, it runs while no other case does.
    pub(crate) alone: bool,
    /// The server is called for the first time by `explain`, and started anew for each diagnosis.
    pub(crate) cold: bool,
    /// The fault is in TLS: the case is run with `--tls` alone.
    pub(crate) over_tls: bool,
    /// Causes that are there besides: each is right where it is named.
    pub(crate) also: &'static [&'static str],
    /// Causes that are there besides, and are the reason for the right one or cost as much: where
    /// they are named before it, it is as good as first.
    pub(crate) behind: &'static [&'static str],
    /// Causes that must not be named, however unsure.
    pub(crate) never: &'static [&'static str],
    /// Causes that must not be ruled out.
    pub(crate) open: &'static [&'static str],
    /// The same call without the fault, where there is one to hold predictions against.
    pub(crate) fixed: Fixed,
}

/// How the comparison call gets rid of the fault.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Fixed {
    /// There is no call without the fault.
    Not,
    /// The network's faults are removed.
    Net,
    /// Another server responds, or the same one with other flags.
    Server(CaseServer),
    /// The other activity stops.
    Alone,
    /// The request has other flags.
    Flags(&'static [&'static str]),
    /// Kernel settings are the usual ones, but for these of the server's side.
    Sysctls(&'static [(&'static str, &'static str)]),
    /// The name server responds at once, for IPv4 alone.
    Names,
    /// The server gets all processors, alone.
    Whole,
}

impl Case {
    /// The same without its fault.
    pub(crate) fn mended(&self) -> Option<Case> {
        let mended = match self.fixed {
            Fixed::Not => return None,
            Fixed::Net => Case { net: "", ..*self },
            Fixed::Server(server) => Case { server, ..*self },
            Fixed::Alone => Case { beside: &[], ..*self },
            Fixed::Flags(flags) => Case { flags, ..*self },
            Fixed::Sysctls(server_sysctls) => Case { client_sysctls: &[], server_sysctls, ..*self },
            Fixed::Names => Case { net: "", name_server: Some(NAMES), ..*self },
            Fixed::Whole => Case { share: ServerCpus::Whole, ..*self },
        };
        Some(mended)
    }
}

/// Without a fault: what a case needs to say is what differs.
pub(crate) const PLAIN: Case = Case {
    name: "",
    truth: "",
    alike: false,
    rtts: &[0, 40],
    net: "",
    server: CaseServer::Linerate(&[]),
    share: ServerCpus::Whole,
    beside: &[],
    client_sysctls: &[],
    client_qdisc: "",
    server_rules: &[],
    server_sysctls: &[],
    path: "/",
    flags: &[],
    watched: false,
    pid: false,
    name_server: None,
    alone: false,
    cold: false,
    over_tls: false,
    also: &[],
    behind: &[],
    never: &[],
    open: &[],
    fixed: Fixed::Not,
};

/// A real server.
#[derive(Clone, Copy, Debug)]
pub(crate) enum CaseServer {
    /// `linerate serve` with these flags.
    Linerate(&'static [&'static str]),
    /// programs/server.py in this mode.
    Python(&'static str),
    /// programs/Server.java in this mode, with these flags for the virtual machine.
    Jdk(&'static str, &'static [&'static str]),
    /// programs/server.js in this mode.
    Node(&'static str),
    /// programs/server.go.
    Go,
    /// nginx with these lines in its `server` block. Its own upstream, `linerate serve` with a late
    /// body, is at port 8001 of the server; one under Nagle's algorithm is its upstream `nagle`.
    Nginx(&'static str),
    /// The same, over HTTP/2.
    NginxHttp2(&'static str),
    /// What people run, with a small application.
    Wild(Wild),
    /// programs/odd.py in this mode.
    Odd(&'static str),
}

/// The CPUs of a server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ServerCpus {
    /// All CPUs.
    Whole,
    /// A tenth of one, by a control group.
    Tenth,
    /// One, together with this many loops that never sleep.
    Contended(usize),
    /// All, beside this many loops that never sleep.
    Beside(usize),
}

/// Activity while `explain` looks.
#[derive(Clone, Copy, Debug)]
pub(crate) enum BackgroundActivity {
    /// `linerate load` with these flags, at the same server.
    Load(&'static str),
    /// The same from the server's own side, whatever the round trip: with a distance the same
    /// connections would queue for less.
    LoadNear(&'static str),
    /// Connections held open without a request: their number.
    Hold(usize),
    /// Connections: their number, milliseconds each is held, and milliseconds until it is opened again.
    Churn(usize, u64, u64),
    /// A call of this path, and the next after this many milliseconds.
    Calls(&'static str, u64),
    /// Calls of this path, one after the other, by a client that reads this many bytes, then does
    /// something else for 20 ms.
    Dawdle(&'static str, usize),
    /// Another client behind the same address, which uses the ports of that range before `explain`
    /// does: programs/collide.py.
    Collide(u16, u16),
    /// 16 calls at once every second, by a client with this many connections (0: as many as it
    /// takes): programs/caller.js.
    Bursts(usize),
}

/// The name server of the client, on the server's side.
#[derive(Clone, Copy, Debug)]
pub(crate) struct CaseNameServer {
    /// Milliseconds until it responds.
    pub(crate) delay_ms: u64,
    /// It has an IPv6 address of the server, too.
    pub(crate) v6: bool,
    /// It has a dead IPv4 address before the server's.
    pub(crate) dead_first: bool,
    /// The resolver first asks another one, which never responds.
    pub(crate) dead_before: bool,
    /// It never responds to questions for IPv6 addresses.
    pub(crate) mute_v6: bool,
}

/// One that responds at once, for IPv4 alone.
pub(crate) const NAMES: CaseNameServer =
    CaseNameServer { delay_ms: 0, v6: false, dead_first: false, dead_before: false, mute_v6: false };

/// Causes on the path: naming one of them is a false alarm if only the server takes time.
pub(crate) const ON_THE_WAY: [&str; 33] = [
    "server-nagle-delayed-ack",
    "client-nagle-delayed-ack",
    "tiny-writes",
    "accept-queue",
    "syn-loss",
    "packet-loss",
    "local-drops",
    "bandwidth",
    "reordering",
    "path-jitter",
    "slow-start",
    "idle-restart",
    "zero-window",
    "client-slow-reader",
    "send-buffer",
    "path-mtu",
    "bufferbloat",
    "ports-exhausted",
    "keep-alive-race",
    "idle-forgotten",
    "h2-flow-control",
    "h2-head-of-line",
    "time-wait-collision",
    "tls-full-handshake",
    "tls-hello-retry",
    "tls-long-chain",
    "tls-old-version",
    "tls-slow-key",
    // Neither on the path nor in the server.
    "client-pool",
    "dead-address",
    "dns-slow",
    "dns-timeout",
    "ipv6-fallback",
];

/// Ids of causes that no case injects, with the reason.
pub(crate) const NOT_INJECTED: [(&str, &str); 8] = [
    ("tls-long-chain", "it takes another certificate; the tests of the command have one"),
    ("tls-slow-key", "it takes another key; the tests of the command have one"),
    ("upstream-wait", "it takes a proxy that names it; the tests of the command have HAProxy"),
    ("one-slow-backend", "it takes a balancer; the tests of the command have HAProxy"),
    (
        "idle-limit-order",
        "it takes a balancer and a longer budget; the tests of the command have HAProxy and nginx",
    ),
    ("upstream-pool", "it takes a database; the tests of the command have one, and its look-alikes"),
    ("proxy-connects-per-call", "it takes a proxy; the tests of the command have nginx"),
    ("stopped", "a stopped process answers no warm-up; the tests of the command stop one"),
];
