//! Options of a stack, and its limits.

use std::net::IpAddr;
use std::time::Duration;

use crate::{HostSecret, TransportLimits};

/// How a stack behaves. The default accepts packets for every address.
#[derive(Clone, Debug, Default)]
pub struct StackOptions {
    /// Our own addresses. The first of a family is the source of connections that name none;
    /// segments for others are ignored. Empty: every packet from the link is ours, and `connect`
    /// must name the source.
    pub addresses: Vec<IpAddr>,
    /// Determines all secrets (sequence numbers, ports, tables), for tests. `None`: the system's
    /// randomness.
    pub seed: Option<u64>,
    /// Secret behind sequence numbers and timestamps, so that those of a later process are higher
    /// than what peers remember of an earlier one. `None`: each process starts with random ones.
    pub host: Option<HostSecret>,
    /// Whether congestion may be signalled by marks instead of losses.
    pub ecn: UseOfEcn,
    /// The limits that every transport has.
    pub limits: TransportLimits,
    /// The limits of the stack.
    pub stack: StackLimits,
}

/// Explicit congestion notification (RFC 3168), as Linux's `tcp_ecn` has it: routers mark packets
/// instead of dropping them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum UseOfEcn {
    /// Never.
    Off,
    /// On connections whose peer asks for it.
    #[default]
    Accept,
    /// Also on those that we open, if the peer agrees. A SYN that is sent again does not ask, because
    /// some networks drop those that do.
    Ask,
}

impl UseOfEcn {
    /// What this number means as the value of `net.ipv4.tcp_ecn`. Those of accurate ECN (RFC 9768)
    /// mean the older one, which its peers fall back to.
    pub fn of_sysctl(value: u8) -> UseOfEcn {
        match value {
            0 => UseOfEcn::Off,
            1 | 3 | 4 => UseOfEcn::Ask,
            _ => UseOfEcn::Accept,
        }
    }

    /// As the kernel's TCP does it in this network namespace.
    pub fn of_this_machine() -> UseOfEcn {
        let text = std::fs::read_to_string("/proc/sys/net/ipv4/tcp_ecn").unwrap_or_default();
        // Without /proc it is unknown.
        text.trim().parse().map_or(UseOfEcn::default(), UseOfEcn::of_sysctl)
    }
}

/// Limits of a stack, each with its reason.
#[derive(Clone, Copy, Debug)]
pub struct StackLimits {
    /// Packets taken in one turn. Reason: the first must not wait long, and a batch stays in the
    /// cache.
    pub packets_per_turn: usize,
    /// Bytes of a connection lent to the application in one turn. Reason: while the application
    /// handles them nothing is acknowledged, and a peer takes 10 ms of silence for a loss.
    pub lent_per_turn: usize,
    /// Bytes in buffers of all connections together, both directions. Reason: peers that do not
    /// read, or that send faster than the application reads, must not grow our memory. Beyond it,
    /// incoming data is dropped as if lost, and `send` fails.
    pub buffer_bytes: usize,
    /// The initial receive window of a connection, bytes. Reason: enough for a distant server, and
    /// little enough for many connections.
    pub first_window: u32,
    /// The largest receive window of a connection that is read fast, bytes.
    pub largest_window: u32,
    /// Bytes of a connection that are buffered for the wire, unsent or unacknowledged, before
    /// `unsent` reports more: twice what its windows admit, at least the first and at most the
    /// second. Reason: a path must not run dry before the application is notified, and a peer that
    /// reads nothing needs no buffer. While memory is short, a connection gets less.
    pub send_buffer: (usize, usize),
    /// How long a peer may take nothing before its connection may end for lack of memory; a tenth of
    /// it once none at all is left. Reason: longer than most timeouts, and while memory is lacking
    /// every other connection suffers.
    pub stalled: Duration,
    /// Handshakes in progress on a listener; its backlog is smaller. Reason: any host can begin one.
    /// Beyond it, SYN cookies answer (RFC 4987 section 3.6).
    pub handshakes: u32,
    /// TIME_WAIT entries. Reason: memory, 80 bytes each. Beyond it the newest replaces the oldest:
    /// a reset then answers a late segment of that connection.
    pub time_wait: u32,
    /// How long TIME_WAIT lasts (RFC 9293 section 3.4.1: two maximum segment lifetimes), and how
    /// long a connection that we have closed waits for the peer's FIN.
    pub time_wait_time: Duration,
    /// Timeout of the first SYN and SYN-ACK before they are retransmitted (RFC 6298 section 2.1).
    pub first_rto: Duration,
    /// The minimum retransmission timeout. Reason: peers delay ACKs; RACK and TLP find losses long
    /// before it.
    pub least_rto: Duration,
    /// The maximum retransmission timeout (RFC 6298 section 2.5).
    pub largest_rto: Duration,
    /// First and last source port of connections that we open (RFC 6056 section 3.2).
    pub ports: (u16, u16),
    /// How often a SYN or SYN-ACK is retransmitted. Reason: as Linux does; about two minutes.
    pub handshake_retries: u8,
    /// How long sent bytes may stay unacknowledged before the connection fails. Reason: RFC 9293
    /// section 3.8.3 asks for at least 100 s.
    pub patience: Duration,
    /// How long the peer of a connection that the application has closed may take nothing. Reason:
    /// it holds a slot that no application uses.
    pub orphan_patience: Duration,
    /// How long an ACK may wait for data to travel with (RFC 9293 section 3.8.6.3: below 500 ms).
    /// Reason: a peer with Nagle's algorithm waits for it.
    pub ack_delay: Duration,
    /// Replies per second to segments of unknown connections, mostly resets. Reason: any host may
    /// cause them (RFC 5961 section 10).
    pub replies_per_s: u32,
    /// Ranges of a connection received out of order. Reason: each ACK scans them.
    pub ranges: usize,
    /// Memory of bytes received out of order, of all connections together. Reason: a peer can make
    /// a single byte cost a hundred. Beyond it, the connection whose gap has been open longest
    /// loses the bytes behind it, as if the network had lost them. One connection never holds more
    /// than an eighth of it, nor more than twice its window.
    pub early_bytes: usize,
}

impl Default for StackLimits {
    fn default() -> Self {
        StackLimits {
            packets_per_turn: 256,
            lent_per_turn: 128 << 10,
            buffer_bytes: 1 << 30,
            first_window: 256 << 10,
            largest_window: 6 << 20,
            send_buffer: (64 << 10, 1 << 20),
            stalled: Duration::from_secs(1),
            handshakes: 1 << 16,
            time_wait: 1 << 18,
            time_wait_time: Duration::from_secs(60),
            first_rto: Duration::from_secs(1),
            least_rto: Duration::from_millis(200),
            largest_rto: Duration::from_secs(60),
            ports: (1024, 65535),
            handshake_retries: 6,
            patience: Duration::from_secs(120),
            orphan_patience: Duration::from_secs(10),
            ack_delay: Duration::from_millis(4),
            replies_per_s: 10_000,
            ranges: 256,
            early_bytes: 64 << 20,
        }
    }
}
