//! What QUIC went through, over all connections of a thread.

use std::time::Duration;

use linerate_net::datagrams::DatagramCounts;
use linerate_quic::QuicStats;

/// Counts over connections, those that have ended and those that are open.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct QuicTotals {
    /// Handshakes that were completed.
    pub handshakes: u64,
    /// Retry packets of servers, which prove an address (RFC 9000, section 8.1.2).
    pub retries: u64,
    /// Packets sent.
    pub packets: u64,
    /// Packets that were taken for lost (RFC 9002, section 6.1).
    pub lost: u64,
    /// The least smoothed round-trip time of a connection when it ended.
    pub rtt_min: Option<Duration>,
    /// The greatest.
    pub rtt_max: Duration,
    /// The sum over connections, to be divided by [`rtts`](QuicTotals::rtts).
    pub rtt_sum: Duration,
    /// Connections in that sum.
    pub rtts: u64,
    /// What crossed the sockets.
    pub datagrams: DatagramCounts,
}

impl QuicTotals {
    /// A connection that was established has ended.
    pub(crate) fn add(&mut self, stats: &QuicStats) {
        self.packets += stats.sent;
        self.lost += stats.lost;
        self.rtt_min = Some(self.rtt_min.map_or(stats.rtt, |least| least.min(stats.rtt)));
        self.rtt_max = self.rtt_max.max(stats.rtt);
        self.rtt_sum += stats.rtt;
        self.rtts += 1;
    }
}
