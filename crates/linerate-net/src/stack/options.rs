//! What a stack can be told, and its limits.

use std::net::IpAddr;
use std::time::Duration;

use crate::{HostSecret, Limits};

/// How a stack behaves. The default answers to every address its link brings packets for.
#[derive(Clone, Debug, Default)]
pub struct StackOptions {
    /// Our own addresses. The first of a family is the source of connections that name none; segments for others are
    /// ignored. Empty: whatever the link brings is ours, and `connect` has to be told the source.
    pub addresses: Vec<IpAddr>,
    /// Secrets (sequence numbers, ports, tables) follow from it: for tests. `None`: from the system.
    pub seed: Option<u64>,
    /// What sequence numbers and timestamps follow from, so that those of a later process are higher than what peers remember
    /// of an earlier one. `None`: they follow from the other secrets, and a process begins anew.
    pub host: Option<HostSecret>,
    /// The limits every transport has.
    pub limits: Limits,
    /// The limits of the stack.
    pub stack: StackLimits,
}

/// Limits of a stack, each with its reason.
#[derive(Clone, Copy, Debug)]
pub struct StackLimits {
    /// Packets taken in one turn. Reason: what came first must not get old, and a batch stays in the cache.
    pub packets_per_turn: usize,
    /// Bytes of a connection that the application is lent in one turn. Reason: while it is at them nothing is acknowledged, and a
    /// peer takes 10 ms of silence for a loss.
    pub lent_per_turn: usize,
    /// Bytes in buffers of all connections together, both directions. Reason: peers that do not read, or that send faster
    /// than we read, must not grow our memory. Beyond it what comes is dropped as if lost, and `send` fails.
    pub buffer_bytes: usize,
    /// The receive window of a connection at first, bytes. Reason: enough for a far server at once, little enough for many.
    pub first_window: u32,
    /// The receive window a connection may grow to that is read fast, bytes.
    pub largest_window: u32,
    /// Bytes of a connection that are buffered for the wire, acknowledged or not yet sent, before `unsent` tells of more.
    /// Reason: what a fast and far path has under way, so that it does not run dry while the application is told.
    pub send_buffer: usize,
    /// Handshakes under way on a listener; its backlog is below it. Reason: anybody can begin one. Beyond it SYN cookies
    /// answer (RFC 4987 section 3.6).
    pub handshakes: u32,
    /// TIME_WAIT entries. Reason: memory, 80 bytes each. Beyond it the oldest gives way to the newest: a late segment of that
    /// connection is then answered by a reset.
    pub time_wait: u32,
    /// How long TIME_WAIT lasts (RFC 9293 section 3.4.1: two maximum segment lifetimes), and how long a connection that we
    /// have closed waits for the peer's FIN.
    pub time_wait_time: Duration,
    /// How long the first SYN and SYN-ACK wait for an answer before they are sent again (RFC 6298 section 2.1).
    pub first_rto: Duration,
    /// The retransmission time-out is at least this. Reason: peers delay ACKs; RACK and TLP find losses long before it.
    pub least_rto: Duration,
    /// ... and at most this (RFC 6298 section 2.5).
    pub largest_rto: Duration,
    /// Ports that connections of ours begin from, first and last (RFC 6056 section 3.2).
    pub ports: (u16, u16),
    /// How often a SYN or SYN-ACK is sent again. Reason: as Linux does; about two minutes.
    pub handshake_retries: u8,
    /// How long sent bytes may stay unacknowledged before the connection fails. Reason: RFC 9293 section 3.8.3 asks for at
    /// least 100 s.
    pub patience: Duration,
    /// The same for a connection that the application has closed. Reason: nobody waits for it, and it holds a slot.
    pub orphan_patience: Duration,
    /// How long an ACK may wait for data to travel with (RFC 9293 section 3.8.6.3: below 500 ms). Reason: a peer with Nagle's
    /// algorithm waits for it.
    pub ack_delay: Duration,
    /// Answers to strangers (resets, mostly) in a second. Reason: anybody may cause them (RFC 5961 section 10).
    pub replies_per_s: u32,
    /// Ranges of a connection received out of order. Reason: each ACK looks through them.
    pub ranges: usize,
    /// Memory that bytes received out of order hold, of all connections together. Reason: a peer can make a single byte cost a
    /// hundred. Beyond it the connection whose gap has been open longest loses what it received behind it, as if the network had
    /// lost it; one connection never has more than an eighth of it, nor more than twice its window.
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
            send_buffer: 1 << 20,
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
