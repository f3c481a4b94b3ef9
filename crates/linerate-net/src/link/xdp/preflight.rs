//! Explains what is missing and how to fix it.

use std::net::IpAddr;
use std::{fs, io};

use super::limits::QUEUES_PER_THREAD;

/// Why this machine cannot run the link.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{problem}; {hint}")]
pub struct XdpError {
    /// The missing permission or feature, or the obstacle.
    pub problem: String,
    /// How to fix it.
    pub hint: String,
}

pub(super) fn error(problem: impl Into<String>, hint: impl Into<String>) -> XdpError {
    XdpError { problem: problem.into(), hint: hint.into() }
}

/// A capability: its bit, its name, its purpose.
const CAPABILITIES: [(u32, &str, &str); 4] = [
    (12, "CAP_NET_ADMIN", "attaching an XDP program"),
    (13, "CAP_NET_RAW", "AF_XDP sockets"),
    (39, "CAP_BPF", "loading an XDP program"),
    // The verifier requires it to read behind a header of variable length.
    (38, "CAP_PERFMON", "an XDP program that looks behind IP headers"),
];
/// Includes CAP_BPF and CAP_PERFMON.
const SYS_ADMIN: u32 = 21;

const HOW_TO_GET_THEM: &str = "run it as root, or give them to it: setcap cap_net_admin,cap_net_raw,cap_bpf,cap_perfmon+ep PROGRAM \
                               (a container: --cap-add=NET_ADMIN --cap-add=NET_RAW --cap-add=BPF --cap-add=PERFMON)";

/// Whether the process has the required capabilities.
pub(super) fn capabilities() -> Result<(), XdpError> {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    match effective(&status) {
        Some(bits) => lacking(bits),
        // If /proc does not show them, the calls themselves will fail and tell.
        None => Ok(()),
    }
}

fn effective(status: &str) -> Option<u64> {
    let line = status.lines().find_map(|l| l.strip_prefix("CapEff:"))?;
    u64::from_str_radix(line.trim(), 16).ok()
}

fn lacking(bits: u64) -> Result<(), XdpError> {
    let has = |bit: u32| bits & (1 << bit) != 0;
    let missing: Vec<_> = CAPABILITIES
        .iter()
        .filter(|(bit, name, _)| !(has(*bit) || matches!(*name, "CAP_BPF" | "CAP_PERFMON") && has(SYS_ADMIN)))
        .map(|(_, name, what)| format!("{name} ({what})"))
        .collect();
    if missing.is_empty() {
        return Ok(());
    }
    Err(error(
        format!("--io xdp needs {}, which this process does not have", missing.join(", ")),
        HOW_TO_GET_THEM,
    ))
}

pub(super) fn no_interface(name: &str) -> XdpError {
    let known = interfaces();
    let hint = if known.is_empty() {
        "ip link lists them".to_owned()
    } else {
        format!("there are {}", known.join(", "))
    };
    error(format!("there is no interface {name:?}"), hint)
}

/// The names of this namespace's interfaces.
fn interfaces() -> Vec<String> {
    let text = fs::read_to_string("/proc/thread-self/net/dev").unwrap_or_default();
    text.lines()
        .filter_map(|line| line.split_once(':'))
        .map(|(name, _)| name.trim().to_owned())
        .take(16)
        .collect()
}

pub(super) fn is_down(name: &str) -> XdpError {
    error(format!("the interface {name} is down"), format!("ip link set dev {name} up"))
}

pub(super) fn not_ethernet(name: &str) -> XdpError {
    error(
        format!("{name} is not an Ethernet interface"),
        "--io xdp needs one (a network card, a veth); for loopback, bridges' ports and tunnels use --io epoll",
    )
}

pub(super) fn has_program(name: &str) -> XdpError {
    error(
        format!("{name} has an XDP program already (another linerate, a load balancer, a filter)"),
        format!(
            "ip link show dev {name} names it; ip link set dev {name} xdp off removes it, unless it is held by a process"
        ),
    )
}

pub(super) fn too_many_queues(name: &str, queues: u32, threads: usize) -> XdpError {
    let most = threads * QUEUES_PER_THREAD;
    error(
        format!("{name} has {queues} receive queues, too many for {threads} threads"),
        format!("more threads, or fewer queues: ethtool -L {name} combined {most}"),
    )
}

pub(super) fn queue_busy(name: &str, queue: u32) -> XdpError {
    error(
        format!("receive queue {queue} of {name} is in use by another AF_XDP socket"),
        "end the other program, or use another interface",
    )
}

pub(super) fn no_way(name: &str, peer: IpAddr) -> XdpError {
    error(
        format!(
            "no way to {peer} by {name} is known: nobody there answers to ARP or NDP, or the route leads elsewhere"
        ),
        format!("ip route get {peer}, ip neighbour show dev {name}"),
    )
}

pub(super) fn no_source(address: IpAddr) -> XdpError {
    error(
        format!("{address} cannot be a source address"),
        "--from takes free addresses of the interface's network",
    )
}

pub(super) fn address_elsewhere(name: &str, address: IpAddr) -> XdpError {
    error(
        format!("{address} belongs to another interface than {name}"),
        "--from takes free addresses of the interface's network",
    )
}

pub(super) fn cannot_add(name: &str, address: IpAddr, e: &io::Error) -> XdpError {
    error(
        format!("{address} cannot be given to {name}: {}", in_words(e)),
        format!("give it an address yourself: ip address add {address} dev {name}"),
    )
}

pub(super) fn cannot_reserve(at: std::net::SocketAddr, e: &io::Error) -> XdpError {
    error(
        format!("{at} cannot be listened on: {}", in_words(e)),
        "another program may listen there (ss -ltn shows it), or the address is not this machine's",
    )
}

pub(super) fn kernel(what: &str, e: &io::Error) -> XdpError {
    error(format!("the kernel does not tell {what}: {}", in_words(e)), "rtnetlink is needed")
}

/// Explains the kernel's refusal of a socket, a map, a program or an attachment.
pub(super) fn refused(what: &str, e: &io::Error) -> XdpError {
    let hint = match e.raw_os_error() {
        Some(libc::EPERM | libc::EACCES) => HOW_TO_GET_THEM,
        Some(libc::EAFNOSUPPORT | libc::ENOSYS | libc::EPROTONOSUPPORT) => {
            "this kernel was built without it (CONFIG_XDP_SOCKETS, CONFIG_BPF_SYSCALL); --io epoll works on every kernel"
        }
        Some(libc::ENOMEM) => "the kernel has too little memory for it",
        Some(libc::EOPNOTSUPP) => "this driver cannot do it; --io epoll works on every interface",
        _ => "--io epoll works on every kernel",
    };
    error(format!("{what} was refused: {}", in_words(e)), hint)
}

/// The system's error message, without the number.
pub(super) fn in_words(e: &io::Error) -> String {
    let text = e.to_string();
    match text.split_once(" (os error ").map(|(before, rest)| (before, rest.split_once(')'))) {
        Some((before, Some((_, after)))) => format!("{before}{after}"),
        _ => text,
    }
}

/// Memory that sockets share with the kernel counts as locked (RLIMIT_MEMLOCK, over all processes
/// of the user).
pub(super) fn too_little_memory(name: &str, queues: u32, bytes: usize) -> XdpError {
    let limits = fs::read_to_string("/proc/self/limits").unwrap_or_default();
    let most = most_locked(&limits).map(|bytes| format!(" of {} MB", bytes >> 20)).unwrap_or_default();
    let needed = (bytes >> 20) * queues as usize;
    error(
        format!(
            "--io xdp needs {needed} MB of locked memory for {queues} receive queue{} of {name}, more than the limit{most} leaves this user",
            if queues == 1 { "" } else { "s" }
        ),
        "ulimit -l unlimited, LimitMEMLOCK=infinity in a systemd unit, or the capability CAP_IPC_LOCK beside the others",
    )
}

/// The limit in the text of /proc/PID/limits, bytes; `None` if unlimited or unknown.
fn most_locked(limits: &str) -> Option<u64> {
    let line = limits.lines().find_map(|line| line.strip_prefix("Max locked memory"))?;
    line.split_ascii_whitespace().next()?.parse().ok()
}

/// Whether the kernel's TCP connections or listeners use this address: redirecting it would take
/// their packets away.
pub(super) fn address_in_use(name: &str, address: IpAddr) -> Result<(), XdpError> {
    let table = if address.is_ipv4() { "tcp" } else { "tcp6" };
    let text = fs::read_to_string(format!("/proc/thread-self/net/{table}")).unwrap_or_default();
    match uses(&text, address) {
        0 => Ok(()),
        n => Err(error(
            format!("{n} TCP sockets of this machine use {address}; they would be cut off, ssh among them"),
            format!(
                "give --from an address that nothing else uses: a free one of {name}'s network is added for the run"
            ),
        )),
    }
}

/// Counts the sockets in the text of /proc/net/tcp that have this local address.
fn uses(text: &str, address: IpAddr) -> usize {
    let words: Vec<u8> = match address {
        IpAddr::V4(v4) => v4.octets().to_vec(),
        IpAddr::V6(v6) => v6.octets().to_vec(),
    };
    // /proc prints words of four bytes in this machine's byte order.
    let printed: String =
        words.as_chunks::<4>().0.iter().map(|w| format!("{:08X}", u32::from_ne_bytes(*w))).collect();
    // Sockets in TIME-WAIT (06) need hardly any packets.
    let is_use = |line: &&str| {
        let mut columns = line.split_ascii_whitespace();
        let local = columns.nth(1).and_then(|l| l.split_once(':')).map(|(a, _)| a);
        local == Some(&printed) && columns.nth(1) != Some("06")
    };
    text.lines().skip(1).filter(is_use).count()
}

/// A note if another interface has an address in a network of this one: the kernel answers ARP for
/// an address on both, and packets that come in by the other one do not reach us.
pub(super) fn shared_network(name: &str, index: u32, networks: &[(u32, IpAddr, u8)]) -> Option<String> {
    let of_this = |own: bool| networks.iter().filter(move |(of, ..)| (*of == index) == own);
    let mut pairs = of_this(true).flat_map(|own| of_this(false).map(move |other| (own, other)));
    let ((_, own, prefix), (_, other, _)) = pairs.find(|((_, own, mine), (_, other, theirs))| {
        // Every interface has link-local addresses, and an address alone is no network.
        let usual = |ip: &IpAddr| match ip {
            IpAddr::V4(v4) => v4.is_loopback() || v4.is_link_local(),
            IpAddr::V6(v6) => v6.is_loopback() || v6.is_unicast_link_local(),
        };
        let longest = if own.is_ipv4() { 32 } else { 128 };
        let alone = *mine >= longest || *theirs >= longest || *mine == 0 || *theirs == 0;
        !alone && !usual(own) && !usual(other) && within_one_network(*own, *other, *mine.min(theirs))
    })?;
    Some(format!(
        "another interface of this machine has {other}, in the network of {own}/{prefix} on {name}: packets to \
         {name} that come in by it are lost; hint: give them different networks, or let only the right one answer \
         ARP: sysctl -w net.ipv4.conf.all.arp_ignore=1 net.ipv4.conf.all.arp_announce=2"
    ))
}

/// Whether both addresses are of one family and begin with the same bits.
fn within_one_network(a: IpAddr, b: IpAddr, prefix: u8) -> bool {
    let bits = |ip: IpAddr| match ip {
        IpAddr::V4(v4) => u128::from(v4.to_bits()) << 96,
        IpAddr::V6(v6) => v6.to_bits(),
    };
    let differ = bits(a) ^ bits(b);
    a.is_ipv4() == b.is_ipv4() && differ.leading_zeros() >= u32::from(prefix)
}

/// The switches that keep packets within frames.
fn without_offloads(name: &str) -> String {
    format!(
        "ethtool -K {name} gro off lro off, and on the sender's interface: ethtool -K PEER tso off gso off"
    )
}

/// A note for the start: the kernel gives no packets that span frames.
pub(super) fn frames_only(name: &str) -> String {
    format!(
        "the kernel cannot hand over packets larger than a frame (XDP_USE_SG): those of a sender on this machine, and those that GRO puts together, are lost; hint: {}",
        without_offloads(name)
    )
}

/// The same, once packets were lost.
pub(super) fn loses_large(name: &str) -> String {
    format!(
        "packets to {name} were lost because they are larger than a frame (too_large); hint: {}",
        without_offloads(name)
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn missing_capabilities_are_named() {
        assert_eq!(effective("Name:\tx\nCapEff:\t000001ffffffffff\n"), Some(0x1ff_ffff_ffff));
        assert_eq!(effective("Name:\tx\n"), None);
        assert_eq!(lacking(u64::MAX), Ok(()));
        assert_eq!(lacking(1 << 12 | 1 << 13 | 1 << SYS_ADMIN), Ok(()));
        let said = lacking(1 << 12).expect_err("two are missing").to_string();
        assert!(
            said.contains(
                "needs CAP_NET_RAW (AF_XDP sockets), CAP_BPF (loading an XDP program), CAP_PERFMON"
            ),
            "{said}"
        );
        assert!(said.contains("setcap"), "{said}");
    }

    #[test]
    fn interfaces_in_one_network_are_named() {
        let at = |text: &str| text.parse::<IpAddr>().expect("an address");
        let said = |networks: &[(u32, &str, u8)]| {
            let networks: Vec<_> =
                networks.iter().map(|(of, text, prefix)| (*of, at(text), *prefix)).collect();
            shared_network("eth0", 2, &networks)
        };
        let both = said(&[(2, "10.0.0.1", 24), (3, "10.0.0.9", 24)]).expect("a note");
        assert!(both.contains("has 10.0.0.9, in the network of 10.0.0.1/24 on eth0"), "{both}");
        assert!(said(&[(2, "10.0.0.1", 24), (3, "10.0.9.9", 16)]).is_some(), "one is within the other");
        assert!(said(&[(2, "fd00::1", 64), (3, "fd00::2", 64)]).is_some());
        for alone in [
            [(2, "10.0.0.1", 24), (3, "10.0.1.9", 24)],
            [(2, "10.0.0.1", 24), (2, "10.0.0.9", 24)],
            [(2, "10.0.0.1", 24), (3, "10.0.0.9", 32)],
            [(2, "10.0.0.1", 24), (3, "fd00::2", 8)],
            [(2, "fe80::1", 64), (3, "fe80::2", 64)],
            [(3, "10.0.0.1", 24), (4, "10.0.0.9", 24)],
        ] {
            assert_eq!(said(&alone), None, "{alone:?}");
        }
    }

    #[test]
    fn sockets_on_an_address_are_counted() {
        let text = "  sl  local_address rem_address   st tx_queue\n   0: 0100007F:1F90 00000000:0000 0A 00000000:00000000\n   \
                    1: 0100007F:1F91 0100007F:0016 06 00000000:00000000\n   2: 00000000:0016 00000000:0000 0A 0\n";
        if cfg!(target_endian = "little") {
            assert_eq!(uses(text, [127, 0, 0, 1].into()), 1);
        }
        assert_eq!(uses(text, [127, 0, 0, 2].into()), 0);
        let six = "h\n 0: 00000000000000000000000001000000:0016 00000000000000000000000000000000:0000 0A\n";
        if cfg!(target_endian = "little") {
            assert_eq!(uses(six, std::net::Ipv6Addr::LOCALHOST.into()), 1);
        }
    }

    #[test]
    fn refusals_say_what_to_do() {
        let says = |errno: i32| refused("the socket", &io::Error::from_raw_os_error(errno)).hint;
        assert!(says(libc::EPERM).contains("setcap"));
        let memory = too_little_memory("eth0", 2, 8 << 20);
        assert!(
            memory.problem.contains("needs 16 MB of locked memory for 2 receive queues of eth0"),
            "{memory}"
        );
        assert!(memory.hint.contains("ulimit -l"), "{memory}");
        assert_eq!(
            most_locked("Limit x\nMax locked memory         8388608  8388608  bytes\n"),
            Some(8 << 20)
        );
        assert_eq!(most_locked("Max locked memory         unlimited   unlimited  bytes\n"), None);
        assert!(says(libc::EAFNOSUPPORT).contains("CONFIG_XDP_SOCKETS"));
        assert!(says(libc::EOPNOTSUPP).contains("--io epoll"));
        assert!(no_interface("ethx").hint.contains("lo"));
    }
}
